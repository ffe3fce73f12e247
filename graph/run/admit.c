/* Admission of one wave of a request: a transaction over all its jobs. The front door binds
 * each job to a replica and posts it; executors answer between steps, and whoever gives the
 * last answer settles it: all in, or all let go. Nobody waits for an answer, so that many
 * admissions are on their way at the same time, and a request whose last answer comes from the
 * executor of its prompt is in that executor's next step. */
#include <string.h>

#include "graph/run/run.h"

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

static void unbind(og_request *r, int to) {
    for (int i = r->wave_from; i < to; i++)
        atomic_fetch_sub(&r->jobs[i]->ex->outstanding, r->jobs[i]->cost);
}

/* Whether all replicas are up and have no job, so that what does not fit now never will. */
static bool is_idle(og_engine *e) {
    for (int x = 0; x < e->n_executors; x++) {
        og_executor *ex = &e->executors[x];
        if (atomic_load(&ex->outstanding) > 0) return false;
        if (atomic_load(&ex->lost) && !atomic_load(&ex->dead)) return false;
    }
    return true;
}

static int bind_jobs(og_engine *e, og_request *r, og_err *err) {
    r->alone = is_idle(e);
    for (int i = r->wave_from; i < r->n_jobs; i++) {
        og__job *j = r->jobs[i];
        bool coming = false;
        og_executor *ex = choose(e, j, &j->node_index, &coming);
        if (!ex) {
            unbind(r, i);
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

int og__admit_post(og_engine *e, og_request *r, og_err *err) {
    int rc = bind_jobs(e, r, err), n = r->n_jobs - r->wave_from;
    if (rc < 0) return rc;
    pthread_mutex_lock(&r->mu); /* a failure's retirements come behind */
    bool failed = r->failed;
    r->answers = n > 0 ? n : 1; /* a wave of presets alone: nobody to ask */
    r->jobs_left = failed ? 0 : n;
    for (int i = r->wave_from; i < r->n_jobs && !failed; i++) {
        og__request_ref(r);
        r->jobs[i]->turn = e->turn;
        og__executor_admit(r->jobs[i]->ex, r->jobs[i]);
    }
    pthread_mutex_unlock(&r->mu);
    if (failed) {
        unbind(r, r->n_jobs);
        return OG_ECANCELED;
    }
    if (n == 0) og__admit_answer(r);
    return 0;
}

/* A fault of the request before "it does not fit now" before "ask again". */
static int verdict(const og_request *r, og_err *err) {
    int rc = 0;
    for (int i = r->wave_from; i < r->n_jobs; i++) {
        const og__job *j = r->jobs[i];
        if (j->admit_rc == 0 || (j->admit_rc == OG_EAGAIN && rc < 0)) continue;
        rc = j->admit_rc;
        if (rc == OG_EBUSY || rc == OG_EAGAIN) continue;
        *err = j->admit_err;
        og_err_node(err, r->e->plan->stages[j->stage].name);
        return rc;
    }
    return rc;
}

/* Refused where there was nobody else. Its jobs fit one by one, else their nodes had said so. */
static int never_fits(const og_request *r, og_err *err) {
    int i = r->wave_from, lanes = 0;
    while (r->jobs[i]->admit_rc != OG_EBUSY) i++;
    const og__job *j = r->jobs[i];
    for (int k = r->wave_from; k < r->n_jobs; k++) lanes += r->jobs[k]->stage == j->stage;
    const char *why = j->admit_err.msg;
    og_err_set(err, OG_ELIMIT, "the request has %d lanes, which do not fit together%s%s",
               lanes, why[0] ? ": " : "", why);
    og_err_hint(err, "raise max_num_seqs or the memory of the stage");
    og_err_node(err, r->e->plan->stages[j->stage].name);
    return OG_ELIMIT;
}

/* Under request->mu: no job can let go, and so no wave can end, before all are fed. */
static void commit(og_request *r) {
    r->wave_open = true;
    r->admitted = r->final;
    if (r->t_admit < 0) r->t_admit = og__now();
    for (int i = r->wave_from; i < r->n_jobs; i++)
        for (int p = 0; p < OG_MAX_PORTS; p++)
            if (r->jobs[i]->fed[p]) og__feeder_mark(&r->jobs[i]->feeders[p]);
}

static void roll_back(og_request *r) {
    r->rolling = true;
    for (int i = r->wave_from; i < r->n_jobs; i++)
        og__executor_retire(r->jobs[i]->ex, r->jobs[i]);
}

void og__admit_answer(og_request *r) {
    og_engine *e = r->e;
    og_err err = OG_ERR_INIT;
    pthread_mutex_lock(&e->mu);
    pthread_mutex_lock(&r->mu);
    bool open = --r->answers > 0;
    int rc = open ? 0 : r->failed ? OG_ECANCELED : verdict(r, &err);
    if (rc == OG_EBUSY && r->alone) rc = never_fits(r, &err);
    bool again = rc == OG_EBUSY || rc == OG_EAGAIN;
    if (!open && rc == 0) commit(r);
    if (again) {
        og__front_refused(e, r, rc == OG_EBUSY);
        roll_back(r);
    } else if (!open) {
        og__front_leave(e, r, rc == 0 && r->final);
    }
    pthread_mutex_unlock(&r->mu);
    pthread_mutex_unlock(&e->mu);
    if (open || again) return;
    if (rc < 0) {
        og_err_set(&err, rc, "%s", og_strerror(rc));
        og__request_fail(r, &err);
    }
    og__request_unref(r);
}

void og__admit_rolled(og_request *r) {
    for (int i = r->wave_from; i < r->n_jobs; i++) {
        r->jobs[i]->retired = r->jobs[i]->admitted = false;
        atomic_store(&r->jobs[i]->retire_posted, false);
    }
    og__front_back(r->e, r);
}
