/* Hot reload: a new overlay for an engine that serves.
 *
 * A request runs by the plan that was the engine's when it was submitted, from its first hook
 * to its last sample; a reload gives later ones another plan. What a change needs is told by
 * its kind (compile/diff.h):
 *   live     the new plan takes its place; nothing else happens
 *   rolling  replicas are started first, beside the old ones; then requests are routed to
 *            them, and the old ones take no new jobs and go when their last request is gone
 *   refuse   nothing happens; the change needs a restart
 * All or nothing: with one change that is refused, or one replica that does not start,
 * everything stays as it was.
 *
 * An og_reloader makes new plans of the options that the first was made of and applies them:
 * by hand (a signal, a POST), or when a file of the overlay's chain is saved.
 *
 *     og_reloader *r;
 *     og_reloader_create(engine, &plan_options, told, arg, &r, &err);
 *     og_reloader_watch(r, &err);              // from now on by itself
 *     rc = og_reloader_run(r, "SIGHUP", &err); // and by hand
 *     json_t *status = og_engine_reload_status(engine);
 *     og_reloader_destroy(r);                  // before the engine
 *
 * Any thread may call; one reload runs at a time, others wait.
 */
#ifndef OG_RUN_RELOAD_H
#define OG_RUN_RELOAD_H

#include "graph/compile/diff.h"
#include "graph/run/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The plan that requests submitted now run by: a reference of the caller's own
 * (og_plan_unref). */
const og_plan *og_engine_plan(og_engine *e);

typedef enum og_reload_outcome {
    OG_RELOADED_SAME,    /* nothing differs */
    OG_RELOADED_LIVE,    /* the new plan is in force */
    OG_RELOADED_ROLLING, /* so it is, and old replicas are being drained */
    OG_RELOADED_DONE,    /* they are gone: what ROLLING becomes in the record; at once where
                            replicas came and none had to go */
    OG_RELOADED_REFUSED, /* needs a restart */
    OG_RELOADED_INVALID, /* the files do not make a plan */
    OG_RELOADED_FAILED   /* a replica did not start, or memory is out */
} og_reload_outcome;
const char *og_reload_outcome_name(og_reload_outcome outcome); /* "live", "refused", ... */

/* Apply a plan. Takes a reference of its own where it does. cause is kept for the record:
 * "overlay.yaml", "SIGHUP", "POST /v1/reload". *outcome may be NULL. Blocks while replicas
 * load; requests are served meanwhile. Returns 0 with SAME, LIVE, ROLLING, DONE; else OG_EUNSUPPORTED
 * (REFUSED), or why a replica did not start, with OG_ELIMIT where old and new replicas do not
 * fit into memory together. */
OG_MUST_CHECK int og_engine_reload(og_engine *e, const og_plan *plan, const char *cause,
                                   og_reload_outcome *outcome, og_err *err);

/* Put it on record that files did not make a plan; text: the diagnostics. */
void og_engine_reload_invalid(og_engine *e, const char *cause, const char *text);

#define OG_RELOAD_HISTORY 16

/* What there is to show, newest reload first, the last OG_RELOAD_HISTORY of them:
 *   {generation: 3,                    plans so far, the first is 1
 *    leaving: [{replica: "cpu:0 #1", stages: ["voc"], jobs: 2, unloaded: false}],
 *                                      jobs: of requests that are not freed
 *    reloads: [{time: "2026-12-01T02:03:04Z", cause, outcome, generation, seconds, error,
 *               changes: [{path, old, new, source, class, why}],
 *               started: ["cpu:0 #1"], drained: []}]}
 * A reload that found nothing changed is not recorded. A new reference; NULL: no memory. */
json_t *og_engine_reload_status(og_engine *e);

/* ---- reloader ------------------------------------------------------------------- */

typedef struct og_reloader og_reloader;

typedef struct og_reload_report {
    const char *cause;
    og_reload_outcome outcome;
    const char *text; /* lines for a log: the diff, or what is wrong with file:line:col */
} og_reload_report;
/* Told of every reload but SAME, on the thread that reloaded. */
typedef void og_reload_fn(void *arg, const og_reload_report *report);

/* opts: those that the engine's plan was made of; borrowed, with all they point to, until
 * the reloader is destroyed. tell may be NULL. */
OG_MUST_CHECK int og_reloader_create(og_engine *e, const og_plan_options *opts,
                                     og_reload_fn *tell, void *arg, og_reloader **out,
                                     og_err *err);
/* Ends the watching first. NULL is fine. */
void og_reloader_destroy(og_reloader *r);

/* Read the files and apply what they say. Returns as og_engine_reload; an invalid file is
 * OG_ESPEC (or why it cannot be read) with its first mistake in err. */
OG_MUST_CHECK int og_reloader_run(og_reloader *r, const char *cause,
                                  og_reload_outcome *outcome, og_err *err);

/* Start a thread that reloads when the overlay or a file of its base_config chain changes;
 * without an overlay there is nothing to watch, and 0 is returned. Once. Errors: OG_EIO,
 * OG_ENOMEM. */
OG_MUST_CHECK int og_reloader_watch(og_reloader *r, og_err *err);

#ifdef __cplusplus
}
#endif
#endif
