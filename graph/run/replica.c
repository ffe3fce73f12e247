/* Executors come and go: made of a group of a plan, given another place in a later plan, and
 * destroyed when nothing names them any more. */
#include <stdio.h>
#include <string.h>

#include "graph/run/run.h"

static int replica_in(const og_plan_stage *st, int group) {
    for (int r = 0; r < st->n_replicas; r++)
        if (st->replicas[r].group == group) return r;
    return 0;
}

/* What runs the stages that stay on the host. */
static const char *host_backend(const og_plan *p) {
    return strcmp(p->backend, "cuda") == 0 ? "cpu" : p->backend;
}

/* Whether the overlay asks for it, of all stages or of one in the group. */
static bool wants_same_bits(const og_plan *p, const og_plan_group *g) {
    bool all = og_overlay_bool(p->overlay, NULL, "deterministic", false), any = all;
    for (int i = 0; i < g->n_stages; i++)
        any |= og_overlay_bool(p->overlay, p->stages[g->stages[i]].name, "deterministic", all);
    return any;
}

static int allocate(og_executor *ex, const og_plan_group *g, og_err *err) {
    size_t n = (size_t)g->n_stages;
    ex->nodes = og_calloc(n, sizeof *ex->nodes);
    ex->stages = og_calloc(n, sizeof *ex->stages);
    ex->replicas = og_calloc(n, sizeof *ex->replicas);
    ex->stats = og_calloc(n, sizeof *ex->stats);
    ex->totals = og_calloc(n, sizeof *ex->totals);
    ex->in = og_calloc(n, sizeof *ex->in);
    ex->limits = og_calloc(n, sizeof *ex->limits);
    bool ok = ex->nodes && ex->stages && ex->replicas && ex->stats && ex->totals && ex->in &&
              ex->limits;
    return ok ? 0 : og_err_set(err, OG_ENOMEM, "no memory for executor '%s'", g->name);
}

/* The plan was held against the host's memory; that of a GPU is known once it is open. */
static int check_memory(og_executor *ex, const og_plan *plan, og_err *err) {
    og_device_info info = {0};
    const og_plan_device *d = og_plan_find_device(plan, ex->place);
    if (ex->place.kind == OG_PLACE_HOST || !d) return 0;
    og_device_info_get(ex->dev, &info);
    ex->memory.device = info.memory;
    return info.memory ? og_plan_device_fits(plan, d, info.memory, NULL, err) : 0;
}

/* Its nodes stand sinks first. */
static int load(og_executor *ex, const og_plan *plan, int group, og_err *err) {
    const og_plan_group *g = &plan->groups[group];
    int rc = allocate(ex, g, err);
    if (rc < 0) return rc;
    ex->n_nodes = g->n_stages;
    ex->place = g->place;
    for (int i = 0; i < g->n_stages; i++) ex->stages[i] = g->stages[g->n_stages - 1 - i];
    og__executor_assign(ex, plan, group);
    const char *backend = g->place.kind == OG_PLACE_CUDA ? "cuda" : host_backend(plan);
    rc = og_device_open(backend, g->place.index, plan->threads, &ex->dev, err);
    if (rc < 0) {
        og_err_node(err, plan->stages[g->stages[0]].name);
        return rc;
    }
    if ((rc = check_memory(ex, plan, err)) < 0) return rc;
    og_device_set_deterministic(ex->dev, wants_same_bits(plan, g));
    rc = og_exec_create(ex->dev, 0, &ex->exec, err);
    return rc < 0 ? rc : og__executor_start(ex, err);
}

int og__executor_create(og_engine *e, const og_plan *plan, int group, og_executor **out,
                        og_err *err) {
    og_executor *ex = og_calloc(1, sizeof *ex);
    *out = NULL;
    if (!ex) return og_err_set(err, OG_ENOMEM, "no memory for an executor");
    ex->e = e;
    ex->plan = og_plan_ref(plan);
    pthread_mutex_init(&ex->mu, NULL);
    pthread_cond_init(&ex->cond, NULL);
    int rc = load(ex, plan, group, err);
    if (rc < 0) {
        og__executor_destroy(ex);
        return rc;
    }
    *out = ex;
    return 0;
}

void og__executor_destroy(og_executor *ex) {
    if (!ex) return;
    og__executor_stop(ex);
    og_exec_destroy(ex->exec);
    og_device_close(ex->dev);
    og_free(ex->nodes);
    og_free(ex->stages);
    og_free(ex->replicas);
    og_free(ex->stats);
    og_free(ex->totals);
    og_free(ex->in);
    og_free(ex->limits);
    og_plan_unref(ex->plan);
    pthread_mutex_destroy(&ex->mu);
    pthread_cond_destroy(&ex->cond);
    og_free(ex);
}

void og__executor_assign(og_executor *ex, const og_plan *plan, int group) {
    snprintf(ex->name, sizeof ex->name, "%s", plan->groups[group].name);
    for (int i = 0; i < ex->n_nodes; i++) {
        const og_plan_stage *st = &plan->stages[ex->stages[i]];
        int most = st->max_num_seqs;
        ex->replicas[i] = replica_in(st, group);
        if (most >= ex->plan->stages[ex->stages[i]].max_num_seqs) most = 0;
        atomic_store(&ex->limits[i], most);
    }
}

bool og__executor_serves(const og_executor *ex, const og_plan *plan, int group) {
    const og_plan_group *g = &plan->groups[group];
    if (atomic_load(&ex->dead) || ex->n_nodes != g->n_stages) return false;
    if (ex->place.kind != g->place.kind || ex->place.index != g->place.index) return false;
    for (int i = 0; i < g->n_stages; i++) {
        int stage = ex->stages[g->n_stages - 1 - i];
        if (stage != g->stages[i] ||
            !og_plan_stage_serves(&ex->plan->stages[stage], &plan->stages[stage]))
            return false;
    }
    return true;
}

size_t og__executor_host_bytes(const og_executor *ex) {
    size_t n = 0;
    for (int i = 0; i < ex->n_nodes && ex->place.kind == OG_PLACE_HOST; i++) {
        const og_node_plan *p = &ex->plan->stages[ex->stages[i]].node;
        n += p->kv_bytes + p->state_bytes;
    }
    return n;
}
