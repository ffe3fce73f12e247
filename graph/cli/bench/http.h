/* HTTP/1.1 as the load generator needs it: a URL, and an answer that arrives in pieces.
 *
 * The parser holds no memory of its own and calls back with every piece of the body as it
 * comes, so that the caller's clock tells when it came. Content-Length, chunked bodies (with
 * trailers), bodies that end with the connection, and interim 1xx answers are understood.
 * One parser is one answer; one thread.
 *
 *     og__http p;
 *     og__http_init(&p);
 *     long used = og__http_feed(&p, data, n, on_body, me, &err);
 *     if (used < 0) ...                     // not HTTP
 *     if (p.done) ...                       // bytes behind `used` belong to nobody
 */
#ifndef OG_CLI_BENCH_HTTP_H
#define OG_CLI_BENCH_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/base/err.h"

typedef struct og__url {
    char host[256], port[8];
    char path[512]; /* "" or "/v1": what stands before the endpoint */
} og__url;

/* "http://host:port/path", "host:port" or "host". OG_EINVAL with a hint for https, which
 * this client does not speak. */
int og__url_parse(const char *text, og__url *out, og_err *err) OG_MUST_CHECK;

#define OG__HTTP_LINE_MAX 8192 /* of a header line */

typedef struct og__http {
    int status;
    bool keep_alive; /* the connection may carry another request */
    bool headers;    /* they are complete */
    bool done;
    int rate, channels;    /* of the content type or of x-... headers, 0: not said */
    int64_t input_tokens;  /* x-vllm-omni-input-tokens, -1: not said */
    double retry_after;    /* seconds, -1: not said */
    char content_type[64]; /* without parameters, lower case */
    char request_id[64];

    int state; /* from here on: the parser's own */
    bool chunked, sized;
    int64_t left;
    size_t n_line;
    char line[OG__HTTP_LINE_MAX];
} og__http;

typedef void (*og__body_fn)(void *user, const char *data, size_t n);

void og__http_init(og__http *p);
/* Take in n bytes. Returns how many were used (fewer than n only when the answer is
 * complete), or OG_EFORMAT with what is wrong. */
long og__http_feed(og__http *p, const char *data, size_t n, og__body_fn body, void *user,
                   og_err *err) OG_MUST_CHECK;
/* The peer has closed: 0 when that ends the body, else OG_EIO. */
int og__http_eof(og__http *p, og_err *err) OG_MUST_CHECK;

#endif
