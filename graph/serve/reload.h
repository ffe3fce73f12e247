/* Reloads of a server's models.
 *
 *   og__reload    a model's reloader, and how often it had which outcome
 *   og__reloads   the thread that reloads by hand: on SIGHUP and POST /v1/reload, one after
 *                 the other, since a reload waits for replicas to load
 */
#ifndef OG_SERVE_RELOAD_H
#define OG_SERVE_RELOAD_H

#include "graph/run/reload.h"
#include "graph/serve/server.h"

#define OG__RELOAD_OUTCOMES (OG_RELOADED_FAILED + 1)

struct og__reload {
    og_server *server;
    char *model;
    og_reloader *reloader;
    atomic_llong outcomes[OG__RELOAD_OUTCOMES]; /* what became of ROLLING is the engine's */
};

OG_MUST_CHECK int og__reload_create(og_server *s, const og_serve_model *m, og__reload **out,
                                    og_err *err);
void og__reload_free(og__reload *r);

OG_MUST_CHECK int og__reloads_start(og_server *s, og_err *err);
/* Waits for the one that runs; those that wait are answered with 503. */
void og__reloads_stop(og_server *s);
void og__reloads_free(og_server *s); /* after the last call is gone */

void og__post_reload(og__call *c);

#endif
