/* Executors: a thread that owns a group's nodes and one exec, and steps them. Sinks are
 * stepped first, so that what a client waits for leaves before new work is begun. */
#include <string.h>

#include "graph/run/run.h"

static bool has_failed(og_request *r) {
    pthread_mutex_lock(&r->mu);
    bool failed = r->failed;
    pthread_mutex_unlock(&r->mu);
    return failed;
}

static int reserve(og_executor *ex, og__job *j) {
    if (atomic_load(&ex->lost)) return OG_EAGAIN; /* another replica may be up */
    if (has_failed(j->rq)) return OG_ECANCELED;
    const og_node_api *api = j->node->api;
    int rc = api->fits(j->node, &j->base, &j->admit_err);
    if (rc < 0) return rc;
    if (ex->refused_turn == j->turn) return OG_EAGAIN; /* behind one that did not fit */
    int most = atomic_load(&ex->limits[j->node_index]);
    if (most && ex->in[j->node_index] >= most)
        rc = og_err_set(&j->admit_err, OG_EBUSY, "max_num_seqs is %d", most);
    else
        rc = api->admit(j->node, &j->base, &j->admit_err);
    if (rc == OG_EBUSY) ex->refused_turn = j->turn;
    return rc;
}

static void admit(og_executor *ex, og__job *j) {
    og_err_clear(&j->admit_err);
    j->node = ex->nodes[j->node_index];
    j->admit_rc = reserve(ex, j);
    j->admitted = j->admit_rc == 0;
    ex->held += j->admitted;
    ex->in[j->node_index] += j->admitted;
}

static void retire(og_executor *ex, og__job *j) {
    if (j->admitted && !j->retired) {
        j->node->api->retire(j->node, &j->base);
        ex->held--;
        ex->in[j->node_index]--;
    }
    j->retired = true;
}

/* Tell the request and the front door that a job has let go. */
static void announce(og_executor *ex, og__job *j) {
    og_request *r = j->rq;
    bool held = j->admitted;
    atomic_fetch_sub(&ex->outstanding, j->cost);
    pthread_mutex_lock(&r->mu);
    bool ended = --r->jobs_left == 0, rolling = r->rolling;
    bool wave_ended = ended && r->wave_open && !r->failed && !r->final;
    if (ended) r->wave_open = r->rolling = false;
    og__request_signal(r);
    pthread_mutex_unlock(&r->mu);
    if (held) og__front_freed(ex->e, rolling ? r : NULL);
    if (ended && rolling) og__admit_rolled(r);
    if (wave_ended) {
        r->built = false;
        og__request_advance(r);
    }
    og__request_unref(r);
}

static void take_stats(og_executor *ex) {
    for (int i = 0; i < ex->n_nodes && ex->nodes[i]; i++) {
        og_node_stats st;
        ex->nodes[i]->api->stats(ex->nodes[i], &st);
        int most = atomic_load(&ex->limits[i]);
        if (most && most < st.slots) st.slots = most;
        pthread_mutex_lock(&ex->mu);
        ex->stats[i] = st;
        pthread_mutex_unlock(&ex->mu);
    }
    pthread_mutex_lock(&ex->mu);
    ex->memory.scratch = og_exec_peak(ex->exec);
    ex->memory.staging = og_exec_staged(ex->exec);
    pthread_mutex_unlock(&ex->mu);
}

/* Answer the admissions of the inbox; returns with none in it, and the inbox locked. */
static void drain_admits(og_executor *ex) {
    pthread_mutex_lock(&ex->mu);
    while (ex->admits) {
        og__job *admits = ex->admits;
        ex->admits = ex->admits_tail = NULL;
        pthread_mutex_unlock(&ex->mu);
        while (admits) {
            og__job *j = admits;
            admits = j->next_admit;
            admit(ex, j);
            og__admit_answer(j->rq);
        }
        pthread_mutex_lock(&ex->mu);
    }
}

/* Take what the inbox holds. Admissions come before feeds, feeds before retirements: what is
 * admitted now is fed now, and a retired job drops what came late. */
static void drain(og_executor *ex) {
    drain_admits(ex);
    og__job *retires = ex->retires;
    og__feeder *dirty = ex->dirty;
    ex->retires = ex->retires_tail = NULL;
    ex->dirty = ex->dirty_tail = NULL;
    ex->kicked = false;
    pthread_mutex_unlock(&ex->mu);
    while (dirty) {
        og__feeder *f = dirty;
        dirty = f->next_dirty;
        og_request *r = f->job->rq;
        atomic_store(&f->dirty, false);
        og__feeder_pull(f);
        og__request_unref(r);
    }
    /* The counters are right before anybody can learn that the jobs are gone. */
    for (og__job *j = retires; j; j = j->next_retire) retire(ex, j);
    if (retires) take_stats(ex);
    while (retires) {
        og__job *j = retires;
        retires = j->next_retire;
        announce(ex, j);
    }
}

/* A step failed as a whole: the replica is lost, and with it the jobs bound to it. Other
 * replicas go on. */
static void lose(og_executor *ex, int node, const og_err *err) {
    og_err e = *err;
    og_err_node(&e, ex->nodes[node]->cfg.stage);
    if (og_device_lost(ex->dev)) {
        e.code = OG_ELOST;
        atomic_store(&ex->device_lost, true);
    }
    atomic_store(&ex->lost, true);
    og__engine_fail_bound(ex->e, ex, &e);
}

static void count_step(og_executor *ex, int node, const og_step_info *info, double seconds) {
    og_step_totals *t = &ex->totals[node];
    pthread_mutex_lock(&ex->mu);
    t->steps++;
    t->jobs += info->jobs;
    t->rows += info->rows;
    t->prefill += info->prefill;
    t->seconds += seconds;
    pthread_mutex_unlock(&ex->mu);
}

static int step_all(og_executor *ex) {
    int worked = 0;
    for (int i = 0; i < ex->n_nodes; i++) {
        og_step_info info = {0};
        og_err err = OG_ERR_INIT;
        og_exec_reset(ex->exec);
        int fault = i + 1;
        double began = og__now();
        int rc = atomic_compare_exchange_strong(&ex->fault, &fault, 0)
                     ? og_err_set(&err, OG_EDEVICE, "a fault was injected")
                     : ex->nodes[i]->api->step(ex->nodes[i], &info, &err);
        if (rc < 0) {
            og_err_set(&err, rc, "step failed: %s", og_exec_error(ex->exec));
            lose(ex, i, &err);
            return 0;
        }
        if (rc == OG_STEP_WORK) count_step(ex, i, &info, og__now() - began);
        worked |= rc == OG_STEP_WORK;
    }
    take_stats(ex);
    return worked;
}

static void destroy_nodes(og_executor *ex) {
    for (int i = ex->n_nodes - 1; i >= 0; i--) {
        if (ex->nodes[i]) ex->nodes[i]->api->destroy(ex->nodes[i]);
        ex->nodes[i] = NULL;
    }
}

static int create_nodes(og_executor *ex, og_err *err) {
    const og_plan *plan = ex->plan;
    int rc = 0;
    for (int i = 0; i < ex->n_nodes && rc == 0; i++) {
        const og_plan_stage *st = &plan->stages[ex->stages[i]];
        const og_node_api *api = st->kind_desc->api;
        og_node_cfg cfg = og_plan_node_cfg(plan, ex->stages[i], ex->exec);
        rc = api->create(&cfg, &ex->nodes[i], err);
        if (rc == 0) rc = api->measure(ex->nodes[i], err);
        if (rc < 0) og_err_node(err, st->name);
    }
    if (rc == 0) rc = og_exec_reserve(ex->exec, og_exec_peak(ex->exec), err);
    if (rc < 0) destroy_nodes(ex);
    og_exec_set_mode(ex->exec, OG_RUN);
    return rc;
}

/* A lost replica is made anew once its last job has let go. Where that fails it stays down, as
 * it does when the process has lost the device; the other replicas serve on. */
static void rebuild(og_executor *ex) {
    og_err err = OG_ERR_INIT;
    destroy_nodes(ex);
    if (atomic_load(&ex->device_lost) || create_nodes(ex, &err) < 0) {
        atomic_store(&ex->dead, true);
        og__front_freed(ex->e, NULL);
        return;
    }
    atomic_fetch_add(&ex->e->rebuilt, 1);
    atomic_store(&ex->lost, false);
    og__front_freed(ex->e, NULL);
}

/* Lost, and nothing stands in the way of making it anew. */
static bool is_broken(const og_executor *ex) {
    return atomic_load(&ex->lost) && ex->held == 0 && ex->nodes[0] &&
           !atomic_load(&ex->leaving);
}

/* Nobody is routed here any more, and the last job that was has let go. The thread stays, for
 * what requests that read their answers still send. */
static bool is_left(const og_executor *ex) {
    return atomic_load(&ex->leaving) && atomic_load(&ex->outstanding) == 0 && ex->nodes[0];
}

static void unload(og_executor *ex) {
    destroy_nodes(ex);
    atomic_store(&ex->unloaded, true);
}

static void *executor_main(void *arg) {
    og_executor *ex = arg;
    int rc = create_nodes(ex, &ex->create_err);
    pthread_mutex_lock(&ex->mu);
    ex->create_rc = rc;
    ex->ready = true;
    pthread_cond_broadcast(&ex->cond);
    pthread_mutex_unlock(&ex->mu);
    while (rc == 0) {
        drain(ex);
        if (is_broken(ex)) rebuild(ex);
        if (is_left(ex)) unload(ex);
        int worked = ex->nodes[0] && !atomic_load(&ex->lost) ? step_all(ex) : 0;
        /* A replica may fail with no job that would wake it by letting go. */
        bool rest = !worked && !is_broken(ex);
        pthread_mutex_lock(&ex->mu);
        while (rest && !ex->kicked && !ex->stop)
            pthread_cond_wait(&ex->cond, &ex->mu);
        bool stop = ex->stop && !ex->admits && !ex->retires && !ex->dirty;
        pthread_mutex_unlock(&ex->mu);
        if (stop) break;
    }
    destroy_nodes(ex);
    return NULL;
}

int og__executor_start(og_executor *ex, og_err *err) {
    og_exec_set_tap(ex->exec, ex->e->opts.tap, ex->e->opts.tap_arg);
    if (pthread_create(&ex->thread, NULL, executor_main, ex) != 0)
        return og_err_set(err, OG_EIO, "cannot start an executor thread");
    ex->started = true;
    pthread_mutex_lock(&ex->mu);
    while (!ex->ready) pthread_cond_wait(&ex->cond, &ex->mu);
    int rc = ex->create_rc;
    pthread_mutex_unlock(&ex->mu);
    if (rc < 0 && err && !err->code) *err = ex->create_err;
    return rc;
}

void og__executor_stop(og_executor *ex) {
    if (!ex->started) return;
    pthread_mutex_lock(&ex->mu);
    ex->stop = true;
    pthread_cond_broadcast(&ex->cond);
    pthread_mutex_unlock(&ex->mu);
    pthread_join(ex->thread, NULL);
    ex->started = false;
}

static void wake_locked(og_executor *ex) {
    ex->kicked = true;
    pthread_cond_signal(&ex->cond);
}

void og__executor_admit(og_executor *ex, og__job *j) {
    pthread_mutex_lock(&ex->mu);
    j->next_admit = NULL;
    if (ex->admits_tail)
        ex->admits_tail->next_admit = j;
    else
        ex->admits = j;
    ex->admits_tail = j;
    wake_locked(ex);
    pthread_mutex_unlock(&ex->mu);
}

void og__executor_retire(og_executor *ex, og__job *j) {
    if (atomic_exchange(&j->retire_posted, true)) return;
    pthread_mutex_lock(&ex->mu);
    j->next_retire = NULL;
    if (ex->retires_tail)
        ex->retires_tail->next_retire = j;
    else
        ex->retires = j;
    ex->retires_tail = j;
    wake_locked(ex);
    pthread_mutex_unlock(&ex->mu);
}

void og__executor_dirty(og_executor *ex, og__feeder *f) {
    pthread_mutex_lock(&ex->mu);
    f->next_dirty = NULL;
    if (ex->dirty_tail)
        ex->dirty_tail->next_dirty = f;
    else
        ex->dirty = f;
    ex->dirty_tail = f;
    wake_locked(ex);
    pthread_mutex_unlock(&ex->mu);
}

void og__executor_kick(og_executor *ex) {
    pthread_mutex_lock(&ex->mu);
    wake_locked(ex);
    pthread_mutex_unlock(&ex->mu);
}
