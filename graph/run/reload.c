/* A new plan for a running engine. Replicas are started before anything changes, and one
 * critical section puts the new plan and its replicas in place of the old; those that are no
 * longer in it are drained, and a thread of its own destroys them. */
#include "graph/run/reload.h"

#include <string.h>
#include <time.h>

#include "graph/run/run.h"

typedef struct reload {
    og_engine *e;
    const og_plan *plan;
    const char *cause;
    double began;
    og_plan_changes changes;
    og_executor **executors; /* of the new plan, by group */
    bool *started;           /* which of them are new */
    og_executor **drained;   /* of the engine's, those that have no place in it */
    int n_drained;
    og_reload_outcome outcome;
    bool takes; /* the new plan takes the place of the old */
    int number, generation;
} reload;

const char *og_reload_outcome_name(og_reload_outcome outcome) {
    static const char *const names[] = {"same",    "live",    "rolling", "done",
                                        "refused", "invalid", "failed"};
    return names[outcome];
}

const og_plan *og_engine_plan(og_engine *e) {
    pthread_mutex_lock(&e->mu);
    const og_plan *p = og_plan_ref(e->plan);
    pthread_mutex_unlock(&e->mu);
    return p;
}

/* ---- records --------------------------------------------------------------------- */

static json_t *now_json(void) {
    char text[32];
    struct tm tm;
    time_t t = time(NULL);
    gmtime_r(&t, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return json_string(text);
}

static json_t *names_json(og_executor *const *list, const bool *take, int n) {
    json_t *names = json_array();
    for (int i = 0; i < n; i++)
        if (!take || take[i]) json_array_append_new(names, json_string(list[i]->name));
    return names;
}

/* Newest first; what memory does not suffice for is not on record. */
static void put_record(og_engine *e, json_t *record) {
    pthread_mutex_lock(&e->reloads.mu);
    if (record) json_array_insert_new(e->reloads.records, 0, record);
    json_array_remove(e->reloads.records, OG_RELOAD_HISTORY);
    pthread_mutex_unlock(&e->reloads.mu);
}

static void record(reload *l, const og_err *err) {
    int n = l->takes ? l->plan->n_groups : 0;
    json_t *started = names_json(l->executors, l->started, n);
    json_t *drained = names_json(l->drained, NULL, l->takes ? l->n_drained : 0);
    put_record(l->e, json_pack("{s:i,s:o,s:s,s:s,s:i,s:f,s:s?,s:o,s:o,s:o}", "number",
                               l->number, "time", now_json(), "cause", l->cause, "outcome",
                               og_reload_outcome_name(l->outcome), "generation",
                               l->generation, "seconds", og__now() - l->began, "error",
                               l->takes ? NULL : err->msg, "changes",
                               og_plan_changes_json(&l->changes), "started", started,
                               "drained", drained));
}

static int next_number(og_engine *e) {
    pthread_mutex_lock(&e->reloads.mu);
    int n = ++e->reloads.n;
    pthread_mutex_unlock(&e->reloads.mu);
    return n;
}

static int generation_of(og_engine *e) {
    pthread_mutex_lock(&e->mu);
    int n = e->generation;
    pthread_mutex_unlock(&e->mu);
    return n;
}

void og_engine_reload_invalid(og_engine *e, const char *cause, const char *text) {
    put_record(e, json_pack("{s:i,s:o,s:s,s:s,s:i,s:f,s:s,s:[],s:[],s:[]}", "number",
                            next_number(e), "time", now_json(), "cause", cause, "outcome",
                            og_reload_outcome_name(OG_RELOADED_INVALID), "generation",
                            generation_of(e), "seconds", 0.0, "error", text, "changes",
                            "started", "drained"));
}

/* What was rolling has rolled. */
static void record_done(og_engine *e, int number) {
    size_t i;
    json_t *v;
    pthread_mutex_lock(&e->reloads.mu);
    json_array_foreach(e->reloads.records, i, v) {
        if (json_integer_value(json_object_get(v, "number")) != number) continue;
        const char *done = og_reload_outcome_name(OG_RELOADED_DONE);
        json_object_set_new(v, "outcome", json_string(done));
    }
    pthread_mutex_unlock(&e->reloads.mu);
}

static json_t *leaving_json(const og_executor *ex) {
    json_t *stages = json_array();
    for (int i = 0; i < ex->n_nodes; i++)
        json_array_append_new(stages, json_string(ex->plan->stages[ex->stages[i]].name));
    return json_pack("{s:s,s:o,s:i,s:b}", "replica", ex->name, "stages", stages, "jobs",
                     atomic_load(&ex->users), "unloaded", (int)atomic_load(&ex->unloaded));
}

json_t *og_engine_reload_status(og_engine *e) {
    json_t *leaving = json_array();
    pthread_mutex_lock(&e->mu);
    int generation = e->generation;
    for (const og_executor *ex = e->leaving; ex; ex = ex->next)
        json_array_append_new(leaving, leaving_json(ex));
    pthread_mutex_unlock(&e->mu);
    pthread_mutex_lock(&e->reloads.mu);
    json_t *records = json_deep_copy(e->reloads.records);
    pthread_mutex_unlock(&e->reloads.mu);
    return json_pack("{s:i,s:o,s:o}", "generation", generation, "leaving", leaving,
                     "reloads", records);
}

/* ---- drained executors ------------------------------------------------------------ */

/* One that no job names any more; it stays in the list. Under engine->mu. */
static og_executor *find_left(og_engine *e) {
    og_executor *ex = e->leaving;
    while (ex && atomic_load(&ex->users) > 0) ex = ex->next;
    return ex;
}

/* Out of the list. Whether others of its reload are still in it. Under engine->mu. */
static bool unlist(og_engine *e, og_executor *ex) {
    og_executor **at = &e->leaving;
    bool more = false;
    while (*at != ex) at = &(*at)->next;
    *at = ex->next;
    for (og_executor *x = e->leaving; x; x = x->next) more |= x->reload == ex->reload;
    return more;
}

/* It is gone, for all who ask, when its nodes are. */
static void reap(og_engine *e, og_executor *ex) {
    og__executor_stop(ex);
    pthread_mutex_lock(&e->mu);
    bool more = unlist(e, ex);
    pthread_mutex_unlock(&e->mu);
    if (!more) record_done(e, ex->reload);
    og__executor_destroy(ex);
}

static void *reaper_main(void *engine) {
    og_engine *e = engine;
    pthread_mutex_lock(&e->mu);
    for (;;) {
        og_executor *ex = find_left(e);
        if (ex) {
            pthread_mutex_unlock(&e->mu);
            reap(e, ex);
            pthread_mutex_lock(&e->mu);
        } else if (e->reaper_stop) {
            break;
        } else {
            pthread_cond_wait(&e->cond, &e->mu);
        }
    }
    pthread_mutex_unlock(&e->mu);
    return NULL;
}

int og__reloads_init(og_engine *e, og_err *err) {
    e->reloads.records = json_array();
    return e->reloads.records ? 0 : og_err_set(err, OG_ENOMEM, "no memory for the engine");
}

void og__reloads_clear(og_engine *e) {
    pthread_mutex_lock(&e->mu);
    e->reaper_stop = true;
    pthread_cond_broadcast(&e->cond);
    pthread_mutex_unlock(&e->mu);
    if (e->reaper_started) pthread_join(e->reaper, NULL);
    json_decref(e->reloads.records);
}

/* ---- a reload --------------------------------------------------------------------- */

/* Sequences that each stage's replicas were loaded for. */
static void capacities(og_engine *e, int *loaded) {
    for (int s = 0; s < e->plan->n_stages; s++) loaded[s] = INT32_MAX;
    for (int x = 0; x < e->n_executors; x++) {
        const og_executor *ex = e->executors[x];
        for (int i = 0; i < ex->n_nodes && !atomic_load(&ex->dead); i++) {
            int s = ex->stages[i], n = ex->plan->stages[s].max_num_seqs;
            if (n < loaded[s]) loaded[s] = n;
        }
    }
}

static int refuse(const reload *l, og_err *err) {
    const og_plan_change *c = l->changes.list;
    while (c->kind != OG_CHANGE_REFUSE) c++;
    return og_err_at(err, OG_EUNSUPPORTED, c->src, "%s: %s -> %s: %s", c->path,
                     c->before ? c->before : "(not set)", c->after ? c->after : "(not set)",
                     c->why);
}

/* The reload's own lock keeps plan and executors as they are. */
static int compare(reload *l, og_err *err) {
    int loaded[OG_PIPELINE_MAX_STAGES];
    if (!l->plan->runnable)
        return og_err_set(err, OG_EUNSUPPORTED, "this plan cannot run: %s",
                          l->plan->n_blockers ? l->plan->blockers[0]
                                              : "it was made to be checked only");
    capacities(l->e, loaded);
    int rc = og_plan_diff(l->e->plan, l->plan, loaded, &l->changes, err);
    if (rc == 0 && l->changes.kind == OG_CHANGE_REFUSE) rc = refuse(l, err);
    return rc;
}

/* Each group of the new plan takes the first executor that can be it. */
static int match(reload *l, og_err *err) {
    og_engine *e = l->e;
    size_t n = (size_t)l->plan->n_groups;
    l->executors = og_calloc(n, sizeof *l->executors);
    l->started = og_calloc(n, sizeof *l->started);
    l->drained = og_calloc((size_t)e->n_executors, sizeof *l->drained);
    if (!l->executors || !l->started || !l->drained)
        return og_err_set(err, OG_ENOMEM, "no memory for the executors");
    memcpy(l->drained, e->executors, (size_t)e->n_executors * sizeof *l->drained);
    l->n_drained = e->n_executors;
    for (int g = 0; g < l->plan->n_groups; g++) {
        int i = 0;
        while (i < l->n_drained && !og__executor_serves(l->drained[i], l->plan, g)) i++;
        if (i == l->n_drained) continue;
        l->executors[g] = l->drained[i];
        memmove(&l->drained[i], &l->drained[i + 1],
                (size_t)(--l->n_drained - i) * sizeof *l->drained);
    }
    return 0;
}

static double gib(size_t n) {
    return (double)n / (1024.0 * 1024.0 * 1024.0);
}

static size_t group_bytes(const og_plan *p, int group) {
    const og_plan_group *g = &p->groups[group];
    size_t n = 0;
    for (int i = 0; i < g->n_stages && g->place.kind == OG_PLACE_HOST; i++)
        n += p->stages[g->stages[i]].node.kv_bytes + p->stages[g->stages[i]].node.state_bytes;
    return n;
}

/* For as long as old replicas are drained there are more than the plan was held against. */
static int check_memory(const reload *l, og_err *err) {
    size_t now = l->plan->weight_bytes, more = 0, limit = l->plan->memory_limit;
    pthread_mutex_lock(&l->e->mu);
    for (const og_executor *ex = l->e->leaving; ex; ex = ex->next)
        now += atomic_load(&ex->unloaded) ? 0 : og__executor_host_bytes(ex);
    pthread_mutex_unlock(&l->e->mu);
    for (int x = 0; x < l->e->n_executors; x++)
        now += og__executor_host_bytes(l->e->executors[x]);
    for (int g = 0; g < l->plan->n_groups; g++)
        more += l->executors[g] ? 0 : group_bytes(l->plan, g);
    if (!more || !limit || now + more <= limit) return 0;
    og_err_set(err, OG_ELIMIT,
               "new replicas would take %.2f GiB beside the %.2f GiB of those that they "
               "stand in for, and the machine has %.2f",
               gib(more), gib(now), gib(limit));
    og_err_hint(err, "restart, or change it in smaller steps");
    return OG_ELIMIT;
}

static int start_replicas(reload *l, og_err *err) {
    int rc = check_memory(l, err);
    for (int g = 0; g < l->plan->n_groups && rc == 0; g++) {
        if (l->executors[g]) continue;
        rc = og__executor_create(l->e, l->plan, g, &l->executors[g], err);
        l->started[g] = rc == 0;
    }
    for (int g = 0; g < l->plan->n_groups && rc < 0; g++) {
        if (!l->started[g]) continue;
        og__executor_destroy(l->executors[g]);
        l->started[g] = false;
    }
    return rc;
}

static int start_reaper(reload *l, og_err *err) {
    og_engine *e = l->e;
    if (l->n_drained == 0 || e->reaper_started) return 0;
    if (pthread_create(&e->reaper, NULL, reaper_main, e) != 0)
        return og_err_set(err, OG_EIO, "cannot start a thread");
    e->reaper_started = true;
    return 0;
}

/* The one moment in which everything changes. */
static void take_over(reload *l) {
    og_engine *e = l->e;
    const og_plan *old = e->plan;
    og_executor **executors = e->executors;
    pthread_mutex_lock(&e->mu);
    e->plan = og_plan_ref(l->plan);
    e->generation++;
    e->executors = l->executors;
    e->n_executors = l->plan->n_groups;
    for (int g = 0; g < l->plan->n_groups; g++)
        og__executor_assign(l->executors[g], l->plan, g);
    for (int i = 0; i < l->n_drained; i++) {
        og_executor *ex = l->drained[i];
        ex->reload = l->number;
        ex->next = e->leaving;
        e->leaving = ex;
        atomic_store(&ex->leaving, true);
        og__executor_kick(ex);
    }
    pthread_mutex_unlock(&e->mu);
    og__front_freed(e, NULL); /* there may be room where there was none */
    og_free(executors);
    og_plan_unref(old);
}

static bool changes_nothing(const reload *l) {
    bool starts = false;
    for (int g = 0; g < l->plan->n_groups; g++) starts |= !l->executors[g];
    return l->changes.n == 0 && !starts && l->n_drained == 0;
}

static int apply(reload *l, og_err *err) {
    int rc = compare(l, err);
    if (rc < 0) {
        l->outcome = rc == OG_EUNSUPPORTED ? OG_RELOADED_REFUSED : OG_RELOADED_FAILED;
        return rc;
    }
    l->outcome = OG_RELOADED_FAILED;
    rc = match(l, err);
    if (rc == 0 && changes_nothing(l)) {
        l->outcome = OG_RELOADED_SAME;
        return 0;
    }
    if (rc == 0) rc = start_reaper(l, err);
    if (rc == 0) rc = start_replicas(l, err);
    if (rc < 0) return rc;
    l->takes = true;
    l->outcome = OG_RELOADED_LIVE;
    for (int g = 0; g < l->plan->n_groups; g++)
        if (l->started[g]) l->outcome = OG_RELOADED_DONE;
    if (l->n_drained) l->outcome = OG_RELOADED_ROLLING;
    return 0;
}

/* Put on record before it happens: a drained replica may be gone, and that be told, at once. */
static void finish(reload *l, const og_err *err) {
    if (l->outcome == OG_RELOADED_SAME) return;
    l->number = next_number(l->e);
    l->generation = l->e->generation + (l->takes ? 1 : 0);
    record(l, err);
    if (l->takes) take_over(l);
}

int og__engine_reload(og_engine *e, const og_plan *plan, const char *cause,
                      og_reload_outcome *outcome, og_str *text, og_err *err) {
    pthread_mutex_lock(&e->reload_mu);
    reload l = {.e = e, .plan = plan, .cause = cause, .began = og__now()};
    int rc = apply(&l, err);
    finish(&l, err);
    if (text) og_plan_changes_print(&l.changes, text);
    if (!l.takes) og_free(l.executors);
    og_free(l.started);
    og_free(l.drained);
    og_plan_changes_free(&l.changes);
    pthread_mutex_unlock(&e->reload_mu);
    *outcome = l.outcome;
    return rc;
}

int og_engine_reload(og_engine *e, const og_plan *plan, const char *cause,
                     og_reload_outcome *outcome, og_err *err) {
    og_err own = OG_ERR_INIT;
    og_reload_outcome ignored;
    int rc = og__engine_reload(e, plan, cause, outcome ? outcome : &ignored, NULL, &own);
    if (rc < 0 && err && !err->code) *err = own;
    return rc;
}
