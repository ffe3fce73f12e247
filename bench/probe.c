#include "bench/probe.h"
#include "bench/machine.h"
#include "kernels/base/alloc.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KINDS 16
#define MAX_STEPS (1 << 16)

typedef struct step_mark {
    og_kind kind;
    int jobs, rows, prefill;
    double seconds, cpu;
} step_mark;

/* A node's functions have no place for the caller's own pointer, hence one probe a
 * process. */
static struct {
    og_kind_desc kinds[MAX_KINDS];
    og_node_api apis[MAX_KINDS];
    const og_kind_desc *real;
    int n_kinds;
    pthread_mutex_t mu; /* what follows */
    int tokens;
    step_mark *steps;
    int n_steps;
} probe = {.mu = PTHREAD_MUTEX_INITIALIZER};

static int kind_index(const og_node *n) {
    return (int)(n->api - probe.apis);
}

static const og_node_api *real_api(const og_node *n) {
    return probe.real[kind_index(n)].api;
}

static int probed_step(og_node *n, og_step_info *info, og_err *err) {
    double t = machine_now(), cpu = machine_cpu();
    int rc = real_api(n)->step(n, info, err);
    t = machine_now() - t;
    cpu = machine_cpu() - cpu;
    if (rc < 0 || info->rows == 0) return rc;
    pthread_mutex_lock(&probe.mu);
    if (probe.n_steps < MAX_STEPS)
        probe.steps[probe.n_steps++] = (step_mark){probe.kinds[kind_index(n)].kind,
                                                   info->jobs,
                                                   info->rows,
                                                   info->prefill,
                                                   t,
                                                   cpu};
    pthread_mutex_unlock(&probe.mu);
    return rc;
}

static int probed_admit(og_node *n, og_job *job, og_err *err) {
    pthread_mutex_lock(&probe.mu);
    if (probe.tokens > 0)
        job->sampling.min_tokens = job->sampling.max_tokens = probe.tokens;
    pthread_mutex_unlock(&probe.mu);
    return real_api(n)->admit(n, job, err);
}

/* The engine calls a node through the table in it, which is the kind's own until here. */
static int create(int kind, const og_node_cfg *cfg, og_node **out, og_err *err) {
    int rc = probe.real[kind].api->create(cfg, out, err);
    if (rc == 0) (*out)->api = &probe.apis[kind];
    return rc;
}

static int probed_create(const og_node_cfg *cfg, og_node **out, og_err *err) {
    for (int i = 0; i < probe.n_kinds; i++)
        if (probe.kinds[i].kind == cfg->arch->kind) return create(i, cfg, out, err);
    return og_err_set(err, OG_EINTERNAL, "no kind of arch %s", cfg->arch->name);
}

void probe_start(void) {
    probe.real = og_kinds(&probe.n_kinds);
    probe.steps = og_calloc(MAX_STEPS, sizeof *probe.steps);
    if (!probe.steps || probe.n_kinds > MAX_KINDS) abort();
    for (int i = 0; i < probe.n_kinds; i++) {
        probe.kinds[i] = probe.real[i];
        if (!probe.real[i].api) continue;
        probe.apis[i] = *probe.real[i].api;
        probe.apis[i].create = probed_create;
        probe.apis[i].step = probed_step;
        probe.apis[i].admit = probed_admit;
        probe.kinds[i].api = &probe.apis[i];
    }
}

void probe_stop(void) {
    og_free(probe.steps);
    probe.steps = NULL;
}

og_plan_registry probe_registry(void) {
    return (og_plan_registry){og_archs, probe.kinds, probe.n_kinds};
}

void probe_reset(int tokens) {
    pthread_mutex_lock(&probe.mu);
    probe.n_steps = 0;
    probe.tokens = tokens;
    pthread_mutex_unlock(&probe.mu);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n ? v[n / 2] : 0;
}

void probe_sum(og_kind kind, int jobs, probe_stat *out) {
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&probe.mu);
    double *v = og_calloc(2 * (size_t)probe.n_steps + 1, sizeof *v);
    double *cpu = v ? v + probe.n_steps : NULL;
    for (int i = 0; v && i < probe.n_steps; i++) {
        const step_mark *s = &probe.steps[i];
        if (s->kind != kind || (jobs && (s->jobs != jobs || s->prefill))) continue;
        v[out->steps] = s->seconds;
        cpu[out->steps++] = s->cpu;
        out->total += s->seconds;
        out->rows += s->rows;
    }
    pthread_mutex_unlock(&probe.mu);
    /* In the last one a job ended, with half a step's work. */
    if (jobs && out->steps > 1) {
        out->steps--;
        out->total -= v[out->steps];
    }
    if (out->steps) {
        out->median = median(v, out->steps);
        out->best = v[0];
        out->cpu = median(cpu, out->steps);
    }
    og_free(v);
}
