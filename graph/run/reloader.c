/* From files to a reload: the plan is made anew with the options of the first, beside the
 * checkpoint that is loaded, and handed to the engine. */
#include <string.h>

#include "graph/run/run.h"
#include "graph/run/watch.h"


struct og_reloader {
    og_engine *e;
    const og_plan_options *opts;
    og_reload_fn *tell;
    void *arg;
    pthread_mutex_t mu; /* one run at a time */
    og_watch *watch;    /* NULL: nothing is watched */
};

int og_reloader_create(og_engine *e, const og_plan_options *opts, og_reload_fn *tell,
                       void *arg, og_reloader **out, og_err *err) {
    og_reloader *r = og_calloc(1, sizeof *r);
    *out = r;
    if (!r) return og_err_set(err, OG_ENOMEM, "no memory for the reloader");
    r->e = e;
    r->opts = opts;
    r->tell = tell;
    r->arg = arg;
    pthread_mutex_init(&r->mu, NULL);
    return 0;
}

void og_reloader_destroy(og_reloader *r) {
    if (!r) return;
    og_watch_destroy(r->watch);
    pthread_mutex_destroy(&r->mu);
    og_free(r);
}

/* ---- one reload ------------------------------------------------------------------- */

/* A base that is named without its ending may come with it. */
static void note_file(void *arg, const char *path) {
    og_reloader *r = arg;
    og_str with_end = OG_STR_INIT;
    og_watch_add(r->watch, path);
    const char *dot = strrchr(path, '.');
    if (dot && strcmp(dot, ".yaml") == 0) return;
    og_str_addf(&with_end, "%s.yaml", path);
    if (with_end.data) og_watch_add(r->watch, with_end.data);
    og_str_free(&with_end);
}

static int make_plan(og_reloader *r, const og_plan *now, og_diags *diags, og_plan **plan,
                     og_err *err) {
    og_plan_options o = *r->opts;
    o.loaded = now->model;
    if (r->watch) {
        o.asked = note_file;
        o.asked_arg = r;
        og_watch_renew(r->watch);
    }
    int rc = og_plan_build(&o, 0, diags, plan, err);
    /* Files of a chain that is broken are kept: the next good save may be of any of them. */
    if (r->watch && rc == 0) og_watch_prune(r->watch);
    return rc;
}

static void tell(og_reloader *r, const char *cause, og_reload_outcome outcome,
                 const char *text) {
    og_reload_report report = {.cause = cause, .outcome = outcome, .text = text};
    if (r->tell && outcome != OG_RELOADED_SAME) r->tell(r->arg, &report);
}

static void tell_invalid(og_reloader *r, const char *cause, const og_diags *diags,
                         const og_err *err) {
    og_str text = OG_STR_INIT;
    og_diags_print(diags, &text);
    if (!og_diags_errors(diags) && err) og_str_addf(&text, "error: %s\n", err->msg);
    const char *all = text.data && !text.oom ? text.data : "out of memory\n";
    og_engine_reload_invalid(r->e, cause, all);
    tell(r, cause, OG_RELOADED_INVALID, all);
    og_str_free(&text);
}

/* What changes, and what stands in the way of it. */
static int apply(og_reloader *r, const og_plan *plan, const char *cause,
                 og_reload_outcome *outcome, og_err *err) {
    og_str text = OG_STR_INIT;
    int rc = og__engine_reload(r->e, plan, cause, outcome, &text, err);
    if (rc < 0) og_str_addf(&text, "error: %s\n", err->msg);
    tell(r, cause, *outcome, text.data ? text.data : "");
    og_str_free(&text);
    return rc;
}

static int run_locked(og_reloader *r, const char *cause, og_reload_outcome *outcome,
                      og_err *err) {
    og_plan *plan = NULL;
    og_diags *diags = og_diags_create();
    if (!diags) return og_err_set(err, OG_ENOMEM, "no memory for a reload");
    const og_plan *old = og_engine_plan(r->e);
    int rc = make_plan(r, old, diags, &plan, err);
    if (rc < 0)
        tell_invalid(r, cause, diags, err);
    else
        rc = apply(r, plan, cause, outcome, err);
    og_plan_destroy(plan);
    og_plan_unref(old);
    og_diags_destroy(diags);
    return rc;
}

int og_reloader_run(og_reloader *r, const char *cause, og_reload_outcome *outcome,
                    og_err *err) {
    og_reload_outcome own = OG_RELOADED_INVALID;
    og_err why = OG_ERR_INIT;
    pthread_mutex_lock(&r->mu);
    int rc = run_locked(r, cause, &own, &why);
    pthread_mutex_unlock(&r->mu);
    if (outcome) *outcome = own;
    if (rc < 0 && err && !err->code) *err = why;
    return rc;
}

/* ---- watching --------------------------------------------------------------------- */

static void changed(void *arg) {
    og_reloader *r = arg;
    og_err err = OG_ERR_INIT;
    /* Its outcome has been told and put on record. */
    (void)!og_reloader_run(r, "a file was saved", NULL, &err);
}

/* The first run learns the files, and finds what was saved since the engine's plan was made. */
int og_reloader_watch(og_reloader *r, og_err *err) {
    og_err first = OG_ERR_INIT;
    og_watch *w;
    if (!r->opts->deploy || r->watch) return 0;
    int rc = og_watch_create(changed, r, &w, err);
    if (rc < 0) return rc;
    pthread_mutex_lock(&r->mu);
    r->watch = w;
    pthread_mutex_unlock(&r->mu);
    (void)!og_reloader_run(r, "start of the watch", NULL, &first);
    return og_watch_start(w, err);
}
