#include "graph/run/engine.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "graph/run/run.h"

#define HOOK_WORKERS_DEFAULT 2
#define WINDOW_DEFAULT ((size_t)16 << 20)

double og__now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int start(og_engine *e, og_err *err) {
    const og_plan *p = e->plan;
    if (!p->runnable)
        return og_err_set(err, OG_EUNSUPPORTED, "this plan cannot run: %s",
                          p->n_blockers ? p->blockers[0] : "it was made to be checked only");
    int rc = og__reloads_init(e, err);
    if (rc == 0) rc = og_hook_pool_create(e->opts.hook_workers, NULL, &e->hooks, err);
    if (rc < 0) return rc;
    e->executors = og_calloc((size_t)p->n_groups, sizeof *e->executors);
    if (!e->executors) return og_err_set(err, OG_ENOMEM, "no memory for the executors");
    for (int i = 0; i < p->n_groups; i++) {
        rc = og__executor_create(e, p, i, &e->executors[i], err);
        if (rc < 0) return rc;
        e->n_executors = i + 1;
    }
    if (pthread_create(&e->front, NULL, og__front_main, e) != 0)
        return og_err_set(err, OG_EIO, "cannot start the front-door thread");
    e->front_started = true;
    return 0;
}

int og_engine_create(const og_plan *plan, const og_engine_opts *opts, og_engine **out,
                     og_err *err) {
    *out = NULL;
    double t0 = og__now();
    og_engine *e = og_calloc(1, sizeof *e);
    if (!e) return og_err_set(err, OG_ENOMEM, "no memory for the engine");
    pthread_mutex_init(&e->mu, NULL);
    pthread_cond_init(&e->cond, NULL);
    pthread_mutex_init(&e->reload_mu, NULL);
    pthread_mutex_init(&e->reloads.mu, NULL);
    e->plan = og_plan_ref(plan);
    e->generation = 1;
    e->turn = 1;
    if (opts) e->opts = *opts;
    if (e->opts.hook_workers <= 0) e->opts.hook_workers = HOOK_WORKERS_DEFAULT;
    if (e->opts.max_queue <= 0) e->opts.max_queue = OG_MAX_QUEUE_DEFAULT;
    if (e->opts.window_bytes == 0) e->opts.window_bytes = WINDOW_DEFAULT;
    int rc = start(e, err);
    if (rc < 0) {
        og_engine_destroy(e);
        return rc;
    }
    e->load_s = og__now() - t0;
    *out = e;
    return 0;
}

void og_engine_destroy(og_engine *e) {
    if (!e) return;
    pthread_mutex_lock(&e->mu);
    e->stop = true;
    pthread_cond_broadcast(&e->cond);
    pthread_mutex_unlock(&e->mu);
    if (e->front_started) pthread_join(e->front, NULL);
    og__reloads_clear(e);
    for (int i = 0; i < e->n_executors; i++) og__executor_destroy(e->executors[i]);
    og_hook_pool_destroy(e->hooks);
    og_free(e->executors);
    og_plan_unref(e->plan);
    pthread_mutex_destroy(&e->reloads.mu);
    pthread_mutex_destroy(&e->reload_mu);
    pthread_mutex_destroy(&e->mu);
    pthread_cond_destroy(&e->cond);
    og_free(e);
}

/* Whether the lost executor holds a job of it that others count on. Under request->mu. */
static bool is_bound(og_request *r, const og_executor *ex) {
    bool bound = false;
    if (r->jobs_left == 0 || r->rolling) return false; /* its jobs are the front door's */
    for (int i = r->wave_from; i < r->n_jobs; i++) {
        og__job *j = r->jobs[i];
        if (j->ex != ex || !j->admitted || j->retired) continue;
        bound |= r->answers == 0;
        if (r->answers > 0) j->admit_rc = OG_EAGAIN;
    }
    return bound;
}

void og__engine_fail_bound(og_engine *e, const og_executor *ex, const og_err *err) {
    for (;;) {
        og_request *hit = NULL;
        pthread_mutex_lock(&e->mu);
        for (og_request *r = e->all; r && !hit; r = r->all_next) {
            if (atomic_load(&r->fail_seen)) continue;
            pthread_mutex_lock(&r->mu);
            if (is_bound(r, ex)) hit = r;
            pthread_mutex_unlock(&r->mu);
        }
        if (hit) {
            atomic_store(&hit->fail_seen, true);
            og__request_ref(hit);
        }
        pthread_mutex_unlock(&e->mu);
        if (!hit) return;
        og__request_fail(hit, err);
        og__request_unref(hit);
    }
}

void og_engine_get_stats(og_engine *e, og_engine_stats *out) {
    int leaving = 0, lost = 0;
    pthread_mutex_lock(&e->mu);
    for (int i = 0; i < e->n_executors; i++)
        lost += atomic_load(&e->executors[i]->device_lost);
    for (og_executor *ex = e->leaving; ex; ex = ex->next) leaving++;
    *out = (og_engine_stats){.requests = e->n_requests,
                             .queued = e->n_queue,
                             .admitted = e->admitted,
                             .finished = e->finished,
                             .failed = e->failed,
                             .buffer_bytes = atomic_load(&e->buffer_bytes),
                             .rebuilt = atomic_load(&e->rebuilt),
                             .load_s = e->load_s,
                             .generation = e->generation,
                             .leaving = leaving,
                             .lost = lost};
    pthread_mutex_unlock(&e->mu);
}

/* The executor of a replica and which of its nodes that is. Under engine->mu. */
static og_executor *find_replica(og_engine *e, int stage, int replica, int *node) {
    for (int x = 0; x < e->n_executors; x++) {
        og_executor *ex = e->executors[x];
        for (int i = 0; i < ex->n_nodes; i++) {
            *node = i;
            if (ex->stages[i] == stage && ex->replicas[i] == replica) return ex;
        }
    }
    return NULL;
}

/* What is asked for of a replica's counters. */
static int read_counters(og_engine *e, int stage, int replica, og_node_stats *stats,
                         og_step_totals *totals) {
    int node;
    pthread_mutex_lock(&e->mu);
    og_executor *ex = find_replica(e, stage, replica, &node);
    if (ex) {
        pthread_mutex_lock(&ex->mu);
        if (stats) *stats = ex->stats[node];
        if (totals) *totals = ex->totals[node];
        pthread_mutex_unlock(&ex->mu);
    }
    pthread_mutex_unlock(&e->mu);
    return ex ? 0 : OG_ENOENT;
}

int og_engine_node_stats(og_engine *e, int stage, int replica, og_node_stats *out) {
    return read_counters(e, stage, replica, out, NULL);
}

int og_engine_step_totals(og_engine *e, int stage, int replica, og_step_totals *out) {
    return read_counters(e, stage, replica, NULL, out);
}

int og_engine_executor_memory(og_engine *e, int group, og_executor_memory *out) {
    pthread_mutex_lock(&e->mu);
    og_executor *ex = group >= 0 && group < e->n_executors ? e->executors[group] : NULL;
    if (ex) {
        pthread_mutex_lock(&ex->mu);
        *out = ex->memory;
        pthread_mutex_unlock(&ex->mu);
    }
    pthread_mutex_unlock(&e->mu);
    return ex ? 0 : OG_ENOENT;
}

og_replica_state og_engine_replica_state(og_engine *e, int stage, int replica) {
    og_replica_state state = OG_REPLICA_DOWN;
    int node;
    pthread_mutex_lock(&e->mu);
    og_executor *ex = find_replica(e, stage, replica, &node);
    if (ex && !atomic_load(&ex->dead))
        state = atomic_load(&ex->lost)      ? OG_REPLICA_REBUILDING
                : atomic_load(&ex->leaving) ? OG_REPLICA_LEAVING
                                            : OG_REPLICA_UP;
    pthread_mutex_unlock(&e->mu);
    return state;
}

int og_engine_inject_fault(og_engine *e, int stage, int replica) {
    int node;
    pthread_mutex_lock(&e->mu);
    og_executor *ex = find_replica(e, stage, replica, &node);
    if (ex) {
        atomic_store(&ex->fault, node + 1);
        og__executor_kick(ex);
    }
    pthread_mutex_unlock(&e->mu);
    return ex ? 0 : OG_ENOENT;
}
