/* The front door: one thread that admits requests in order. Admission is one transaction
 * over all jobs of a request: every node reserves its worst case, or all let go and the
 * request waits at the head of the queue until a slot comes free. Nothing is held while
 * waiting, so requests cannot starve each other. */
#include <string.h>

#include "graph/run/run.h"

void og__front_push(og_engine *e, og_request *r, bool first) {
    og__request_ref(r);
    pthread_mutex_lock(&e->mu);
    if (!r->listed) {
        r->listed = true;
        r->all_next = e->all;
        if (e->all) e->all->all_prev = r;
        e->all = r;
    }
    if (first) e->n_queue++; /* its place was given back when its first wave left */
    r->next = first ? e->queue : NULL;
    if (first)
        e->queue = r;
    else if (e->queue_tail)
        e->queue_tail->next = r;
    else
        e->queue = r;
    if (!r->next) e->queue_tail = r;
    pthread_cond_broadcast(&e->cond);
    pthread_mutex_unlock(&e->mu);
}

void og__front_reply(og_engine *e) {
    pthread_mutex_lock(&e->mu);
    e->admit_wait--;
    pthread_cond_broadcast(&e->cond);
    pthread_mutex_unlock(&e->mu);
}

void og__front_freed(og_engine *e) {
    pthread_mutex_lock(&e->mu);
    e->freed++;
    pthread_cond_broadcast(&e->cond);
    pthread_mutex_unlock(&e->mu);
}

/* What the lane has bound to an executor already. */
static long own_cost(const og_request *r, const og__job *j, const og_executor *ex) {
    long own = 0;
    for (int i = r->wave_from; r->jobs[i] != j; i++)
        if (r->jobs[i]->lane == j->lane && r->jobs[i]->ex == ex) own += r->jobs[i]->cost;
    return own;
}

/* The replica of the job's stage with the least outstanding work of others that is not lost;
 * among equals the one where the lane already is, so that its edges stay on one thread.
 * coming: there is one that is being made anew. */
static og_executor *choose(og_engine *e, const og__job *j, int *node, bool *coming) {
    og_executor *best = NULL;
    long least = 0, kept = 0;
    for (int x = 0; x < e->n_executors; x++) {
        og_executor *ex = &e->executors[x];
        for (int i = 0; i < ex->n_nodes; i++) {
            if (ex->stages[i] != j->stage) continue;
            *coming |= !atomic_load(&ex->dead);
            if (atomic_load(&ex->lost)) continue;
            long own = own_cost(j->rq, j, ex);
            long others = atomic_load(&ex->outstanding) - own;
            if (best && (others > least || (others == least && own <= kept))) continue;
            best = ex;
            least = others;
            kept = own;
            *node = i;
        }
    }
    return best;
}

static int bind_jobs(og_engine *e, og_request *r, og_err *err) {
    for (int i = r->wave_from; i < r->n_jobs; i++) {
        og__job *j = r->jobs[i];
        bool coming = false;
        og_executor *ex = choose(e, j, &j->node_index, &coming);
        if (!ex) {
            for (int k = r->wave_from; k < i; k++)
                atomic_fetch_sub(&r->jobs[k]->ex->outstanding, r->jobs[k]->cost);
            if (coming) return OG_EBUSY;
            return og_err_set(err, OG_ELOST, "no replica of stage '%s' is up",
                              e->plan->stages[j->stage].name);
        }
        pthread_mutex_lock(&e->mu);
        j->ex = ex;
        pthread_mutex_unlock(&e->mu);
        j->replica = ex->replicas[j->node_index];
        atomic_fetch_add(&ex->outstanding, j->cost);
    }
    return 0;
}

/* Ask every node. Under request->mu, so that a failure's retirements come behind. */
static bool post_admits(og_engine *e, og_request *r) {
    int n = r->n_jobs - r->wave_from;
    pthread_mutex_lock(&e->mu);
    e->admit_wait = n;
    pthread_mutex_unlock(&e->mu);
    pthread_mutex_lock(&r->mu);
    bool failed = r->failed;
    if (!failed) {
        r->jobs_left = n;
        for (int i = r->wave_from; i < r->n_jobs; i++) {
            og__request_ref(r);
            og__executor_admit(r->jobs[i]->ex, r->jobs[i]);
        }
    }
    pthread_mutex_unlock(&r->mu);
    if (failed) return false;
    pthread_mutex_lock(&e->mu);
    while (e->admit_wait > 0) pthread_cond_wait(&e->cond, &e->mu);
    pthread_mutex_unlock(&e->mu);
    return true;
}

static void let_go(og_request *r) {
    for (int i = r->wave_from; i < r->n_jobs; i++)
        og__executor_retire(r->jobs[i]->ex, r->jobs[i]);
    pthread_mutex_lock(&r->mu);
    while (r->jobs_left > 0) pthread_cond_wait(&r->cond, &r->mu);
    bool failed = r->failed;
    pthread_mutex_unlock(&r->mu);
    if (failed) return;
    for (int i = r->wave_from; i < r->n_jobs; i++) {
        r->jobs[i]->retired = r->jobs[i]->admitted = false;
        atomic_store(&r->jobs[i]->retire_posted, false);
    }
}

/* 0, OG_EBUSY (try again when something came free), or the request's error. */
static int admit(og_engine *e, og_request *r, og_err *err) {
    int rc = bind_jobs(e, r, err);
    if (rc < 0) return rc;
    if (!post_admits(e, r)) {
        for (int i = r->wave_from; i < r->n_jobs; i++)
            atomic_fetch_sub(&r->jobs[i]->ex->outstanding, r->jobs[i]->cost);
        return OG_ECANCELED;
    }
    for (int i = r->wave_from; i < r->n_jobs && rc != OG_EBUSY; i++) {
        og__job *j = r->jobs[i];
        if (j->admit_rc == 0) continue;
        rc = j->admit_rc;
        og_err_clear(err);
        if (err) *err = j->admit_err;
        og_err_node(err, e->plan->stages[j->stage].name);
    }
    if (rc < 0) {
        let_go(r);
        return rc;
    }
    pthread_mutex_lock(&r->mu);
    r->wave_open = true;
    r->admitted = r->final;
    if (r->t_admit < 0) r->t_admit = og__now();
    pthread_mutex_unlock(&r->mu);
    for (int i = r->wave_from; i < r->n_jobs; i++)
        for (int p = 0; p < OG_MAX_PORTS; p++)
            if (r->jobs[i]->fed[p]) og__feeder_mark(&r->jobs[i]->feeders[p]);
    return 0;
}

static void pop(og_engine *e, og_request *r, bool admitted) {
    pthread_mutex_lock(&e->mu);
    og_request **at = &e->queue, *prev = NULL;
    while (*at != r) { /* a later wave of another request may have come before it */
        prev = *at;
        at = &(*at)->next;
    }
    *at = r->next;
    if (e->queue_tail == r) e->queue_tail = prev;
    e->n_queue--;
    e->admitted += admitted;
    pthread_mutex_unlock(&e->mu);
    og__request_unref(r);
}

static bool has_failed(og_request *r) {
    pthread_mutex_lock(&r->mu);
    bool failed = r->failed;
    pthread_mutex_unlock(&r->mu);
    return failed;
}

void *og__front_main(void *engine) {
    og_engine *e = engine;
    for (;;) {
        pthread_mutex_lock(&e->mu);
        while (!e->queue && !(e->stop && e->n_requests == 0))
            pthread_cond_wait(&e->cond, &e->mu);
        og_request *r = e->queue;
        unsigned freed = e->freed;
        bool stop = e->stop;
        pthread_mutex_unlock(&e->mu);
        if (!r) break;
        og_err err = OG_ERR_INIT;
        if (stop) og_err_set(&err, OG_ECANCELED, "the engine is stopping");
        int rc = stop || has_failed(r) ? OG_ECANCELED : 0;
        if (rc == 0 && !r->built) rc = og__request_build(r, &err);
        r->built = true;
        bool final = r->final;
        if (rc == 0) rc = admit(e, r, &err);
        if (rc == OG_EBUSY) {
            pthread_mutex_lock(&e->mu);
            while (e->freed == freed && !e->stop) pthread_cond_wait(&e->cond, &e->mu);
            pthread_mutex_unlock(&e->mu);
            continue;
        }
        if (rc < 0) {
            og_err_set(&err, rc, "%s", og_strerror(rc));
            og__request_fail(r, &err);
        }
        pop(e, r, rc == 0 && final);
    }
    return NULL;
}
