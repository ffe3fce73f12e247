/* Requests inside a call: a batch and a WebSocket session speak by /v1/audio/speech itself.
 *
 * An inner call has no connection. It runs as any other call does, and whatever it puts into
 * its outbox kicks the outer call, whose step takes it out. Errors arrive as they would at a
 * client: a status and a JSON body.
 *
 *     og__call *in = og__inner_start(c, body);       // body: a reference that is taken over
 *     ... in the step of c ...
 *     og__inner_take(in, &bytes);
 *     if (og__inner_ended(in)) og__inner_drop(&in);
 *
 * All of it from the outer call's step. The outer call must drop every one before its last
 * step is over; an inner call keeps the outer one alive.
 */
#ifndef OG_SERVE_INNER_H
#define OG_SERVE_INNER_H

#include "graph/serve/server.h"

/* NULL without memory. The body's values may be shared with other bodies. */
og__call *og__inner_start(og__call *outer, json_t *body);
/* Cancels what is not over. *in may be NULL, and is afterwards. */
void og__inner_drop(og__call **in);
/* The status, 0 before the head is there. */
int og__inner_status(og__call *in);
/* The i-th value of a header of the answer, after its head is there; NULL: no more. */
const char *og__inner_header(og__call *in, const char *name, int i);
/* Nothing will be added to its outbox. */
bool og__inner_ended(og__call *in);
/* It ended without a proper end. */
bool og__inner_cut(og__call *in);
/* Append what waits; lets it go on when it was stalled. */
void og__inner_take(og__call *in, og_str *out);
/* Let its own time limit be felt; now and then. `over`: that of the outer call has passed. */
void og__inner_tick(og__call *in, bool over);
/* The error object in a body of an answer that failed, with `prefix` before its field; never
 * NULL but without memory. */
json_t *og__inner_error(const char *body, size_t n, const char *prefix);

#endif
