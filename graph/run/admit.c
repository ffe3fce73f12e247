/* Admission of one wave of a request: a transaction over all its jobs. The front door binds
 * each job to a replica and posts it; executors answer between steps, and whoever gives the
 * last answer settles it: all in, or all let go. Nobody waits for an answer, so that many
 * admissions are on their way at the same time, and a request whose last answer comes from the
 * executor of its prompt is in that executor's next step. */
#include <stdlib.h>
#include <string.h>

#include "graph/run/run.h"

#define MAX_REPLICAS 64 /* of a stage, as the overlay's num_replicas */

/* What the lane has bound to an executor already. */
static long own_cost(const og_request *r, const og__job *j, const og_executor *ex) {
    long own = 0;
    for (int i = r->wave_from; r->jobs[i] != j; i++)
        if (r->jobs[i]->lane == j->lane && r->jobs[i]->ex == ex) own += r->jobs[i]->cost;
    return own;
}

/* A replica that a job may be bound to. */
typedef struct choice {
    og_executor *ex;
    int node;
} choice;

/* The replicas of the job's stage that are up. coming: there is one, be it that it is being
 * made anew. */
static int list_replicas(og_engine *e, const og__job *j, choice *list, bool *coming) {
    int n = 0;
    for (int x = 0; x < e->n_executors; x++) {
        og_executor *ex = e->executors[x];
        for (int i = 0; i < ex->n_nodes; i++) {
            if (ex->stages[i] != j->stage) continue;
            *coming |= !atomic_load(&ex->dead);
            if (!atomic_load(&ex->lost) && n < MAX_REPLICAS) list[n++] = (choice){ex, i};
        }
    }
    return n;
}

/* The one with the least outstanding work of others; among equals the one where the lane
 * already is, so that its edges stay on one thread. */
static int by_work(const og__job *j, const choice *list, int n) {
    int best = 0;
    long least = 0, kept = 0;
    for (int i = 0; i < n; i++) {
        long own = own_cost(j->rq, j, list[i].ex);
        long others = atomic_load(&list[i].ex->outstanding) - own;
        if (i > 0 && (others > least || (others == least && own <= kept))) continue;
        best = i;
        least = others;
        kept = own;
    }
    return best;
}

static uint64_t mix(uint64_t h, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * 1099511628211u;
    return h ^ h >> 29;
}

/* The one that scores highest with the field's value, so that most values stay where they are
 * when a replica comes or goes. Without the field: by work. */
static int by_value(const og__job *j, const choice *list, int n) {
    const og_plan *p = j->rq->plan;
    const char *name = p->fields[p->stages[j->stage].affinity].name;
    json_t *v = json_object_get(j->rq->fields, name);
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (!text) return by_work(j, list, n);
    uint64_t h = mix(14695981039346656037u, text, strlen(text)), most = 0;
    int best = 0;
    for (int i = 0; i < n; i++) {
        char number = (char)list[i].ex->replicas[list[i].node];
        uint64_t score = mix(h, &number, 1) * 0x9e3779b97f4a7c15u;
        if (score < most) continue;
        most = score;
        best = i;
    }
    free(text);
    return best;
}

/* Under engine->mu. NULL: none is up. */
static og_executor *choose(og_engine *e, const og__job *j, int *node, bool *coming) {
    choice list[MAX_REPLICAS];
    int n = list_replicas(e, j, list, coming), at = 0;
    if (n == 0) return NULL;
    switch (j->rq->plan->stages[j->stage].policy) {
    case OG_PLAN_LEAST_WORK: at = by_work(j, list, n); break;
    case OG_PLAN_ROUND_ROBIN: at = (int)(e->rounds[j->stage]++ % (unsigned)n); break;
    case OG_PLAN_AFFINITY: at = by_value(j, list, n); break;
    }
    *node = list[at].node;
    return list[at].ex;
}

static void unbind(og_request *r, int to) {
    for (int i = r->wave_from; i < to; i++)
        atomic_fetch_sub(&r->jobs[i]->ex->outstanding, r->jobs[i]->cost);
}

/* Whether all replicas are up and have no job, so that what does not fit now never will.
 * Under engine->mu. */
static bool is_idle(og_engine *e) {
    for (int x = 0; x < e->n_executors; x++) {
        og_executor *ex = e->executors[x];
        if (atomic_load(&ex->outstanding) > 0) return false;
        if (atomic_load(&ex->lost) && !atomic_load(&ex->dead)) return false;
    }
    return true;
}

/* Under engine->mu, so that none is bound to an executor that has begun to leave. */
static void bind_job(og_engine *e, og__job *j, og_executor *ex) {
    if (j->ex != ex) {
        if (j->ex) atomic_fetch_sub(&j->ex->users, 1);
        if (j->ex) pthread_cond_broadcast(&e->cond); /* it may have been the last there */
        atomic_fetch_add(&ex->users, 1);
        j->ex = ex;
    }
    j->replica = ex->replicas[j->node_index];
    atomic_fetch_add(&ex->outstanding, j->cost);
}

static int bind_locked(og_engine *e, og_request *r, og_err *err) {
    r->alone = is_idle(e);
    for (int i = r->wave_from; i < r->n_jobs; i++) {
        og__job *j = r->jobs[i];
        bool coming = false;
        og_executor *ex = choose(e, j, &j->node_index, &coming);
        if (!ex) {
            unbind(r, i);
            if (coming) return OG_EBUSY;
            return og_err_set(err, OG_ELOST, "no replica of stage '%s' is up",
                              r->plan->stages[j->stage].name);
        }
        bind_job(e, j, ex);
    }
    return 0;
}

static int bind_jobs(og_engine *e, og_request *r, og_err *err) {
    pthread_mutex_lock(&e->mu);
    int rc = bind_locked(e, r, err);
    pthread_mutex_unlock(&e->mu);
    return rc;
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
        og_err_node(err, r->plan->stages[j->stage].name);
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
    og_err_node(err, r->plan->stages[j->stage].name);
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
