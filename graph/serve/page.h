/* GET /: the page that draws the running graph. page.html is put into the program when it is
 * built (embed.cmake) and asks for nothing but this server's own routes. */
#ifndef OG_SERVE_PAGE_H
#define OG_SERVE_PAGE_H

#include "graph/serve/server.h"

void og__get_page(og__call *c);

#endif
