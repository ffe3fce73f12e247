/* Inside of the loop: http.c (requests), answer.c (what goes out), wire.c (sockets).
 *
 * libwebsockets reads ahead of the request that is under way, and would then look at those
 * bytes again and again, without a pause, until the answer is complete. So an HTTP/1
 * connection is held from the moment its request is complete: nothing is read from it, and
 * its answer is written by us, as the socket has room (a held connection is not told of
 * that). An epoll set says when a held one has room again or has been closed by its client.
 *
 * What was read ahead is safe to go on with only where the next request has no body; else
 * its head would be taken for its body. The connection is then closed: its client sends
 * that request again, as every client that does not wait for answers must be ready to.
 *
 * All of it is for the loop thread alone.
 */
#ifndef OG_SERVE_HTTP_H
#define OG_SERVE_HTTP_H

#include <libwebsockets.h>

#include "graph/serve/server.h"

typedef struct og__session {
    og__call *call;
} og__session;

/* ---- http.c -------------------------------------------------------------------------- */

/* The connection has a call, of the list of those under way. */
void og__enlist(og_server *s, og__call *c, struct lws *wsi, og__session *ses);
/* The connection has no more to do with the call. */
void og__detach(og_server *s, og__call *c);
/* The same, where its answer was not complete: its step is told. */
void og__lost(og_server *s, og__call *c);
/* og__lost, and the connection is closed. */
void og__drop(og_server *s, og__call *c);

/* ---- answer.c ------------------------------------------------------------------------ */

/* Write what there is to write, now or when the socket has room. The call may be over then. */
void og__send(og_server *s, og__call *c);
/* libwebsockets says that there is room. */
int og__on_writable(struct lws *wsi, og__session *ses, og_server *s);

/* ---- wire.c -------------------------------------------------------------------------- */

OG_MUST_CHECK int og__wire_open(og_server *s, og_err *err);
void og__wire_close(og_server *s);
void og__hold(og__call *c);
/* The connection is read again; for a call that is about to end or can be held no longer. */
void og__release(og__call *c);
/* og__send is called when the socket of a held call has room. */
void og__wait_for_room(og__call *c);
/* A request is over: what was read so far belongs to it and to those before. */
void og__mark_read(struct lws *wsi);
/* Whether a request came, at least its beginning, together with one before it. */
bool og__is_read_ahead(struct lws *wsi);
/* Before the connection is closed: let the client read the answer although we have not read
 * all that it sent. The kernel would throw the answer away. */
void og__linger(og_server *s, struct lws *wsi, bool unread);
void og__kill(struct lws *wsi);

int og__on_hups(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                size_t len);
int og__on_linger(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                  size_t len);

#endif
