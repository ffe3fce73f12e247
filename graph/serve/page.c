#include "graph/serve/page.h"

static const unsigned char page[] = {
#include "page_html.inc"
};

void og__get_page(og__call *c) {
    og__reply_header(c, "content-security-policy",
                     "default-src 'self' 'unsafe-inline'; frame-ancestors 'none'");
    og__reply_header(c, "x-content-type-options", "nosniff");
    og__reply_header(c, "referrer-policy", "no-referrer");
    og__reply_header(c, "cache-control", "no-cache");
    og__reply_head(c, 200, "text/html; charset=utf-8", (int64_t)sizeof page);
    og__reply_put(c, page, sizeof page);
    og__reply_end(c);
}
