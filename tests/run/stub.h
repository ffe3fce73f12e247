/* Stub kinds and archs for tests of the engine: a source that makes numbered tokens and a
 * vocoder that turns each token into samples that carry the request's number. What they do
 * is told by the prompt: rows of one term each, [tokens, stamp, mode]. */
#ifndef OG_TEST_STUB_H
#define OG_TEST_STUB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "graph/run/engine.h"

enum { STUB_OK, STUB_FAIL, STUB_LOSE, STUB_HANG };
#define STUB_SLOTS 4
#define STUB_SPI 480 /* samples per token */
#define STUB_FAIL_AT 3
#define STUB_TOLD 4096
#define STUB_BYTES 4096 /* of state, as the plan has it */
#define STUB_GENERATION 100000
#define STUB_WINDOW 72 /* tokens that stub_sum looks back on */

typedef struct stub_slot {
    og_job *job;
    int given, n, stamp, mode;
    bool told;
    int pending[1024], n_pending; /* vocoder: tokens not yet turned into samples */
    bool ended;
    int64_t seen;
    int last[STUB_WINDOW]; /* stub_sum: tokens that were turned into samples */
} stub_slot;

typedef struct stub_node {
    og_node base;
    stub_slot slots[STUB_SLOTS];
    int n_slots;
} stub_node;

static atomic_int stub_in_use; /* slots held over all stub nodes */
static atomic_int stub_nodes; /* that live */
static atomic_int stub_unmakeable; /* nodes that cannot be made, from now on */
static atomic_int stub_admits; /* jobs that nodes have admitted, ever */
static atomic_int stub_n_told; /* prompts that sources were fed, and whose they were */
static _Atomic uint64_t stub_told[STUB_TOLD];

/* A gate before every step of a kind: while it is closed, an executor stands in its step
 * until it is let through, so that tests count steps and never time. */
typedef struct stub_gate {
    pthread_mutex_t mu;
    pthread_cond_t cond;
    bool closed;
    int let, waiting;
} stub_gate;

static stub_gate stub_source_gate = {.mu = PTHREAD_MUTEX_INITIALIZER,
                                     .cond = PTHREAD_COND_INITIALIZER};
static stub_gate stub_voc_gate = {.mu = PTHREAD_MUTEX_INITIALIZER,
                                  .cond = PTHREAD_COND_INITIALIZER};

static inline void stub_gate_pass(stub_gate *g) {
    pthread_mutex_lock(&g->mu);
    g->waiting++;
    pthread_cond_broadcast(&g->cond);
    while (g->closed && g->let == 0) pthread_cond_wait(&g->cond, &g->mu);
    if (g->closed) g->let--;
    g->waiting--;
    pthread_cond_broadcast(&g->cond);
    pthread_mutex_unlock(&g->mu);
}

static inline void stub_gate_set(stub_gate *g, bool closed) {
    pthread_mutex_lock(&g->mu);
    g->closed = closed;
    g->let = 0;
    pthread_cond_broadcast(&g->cond);
    pthread_mutex_unlock(&g->mu);
}

/* Run n steps; returns when an executor stands in the one after them. */
static inline void stub_gate_let(stub_gate *g, int n) {
    pthread_mutex_lock(&g->mu);
    g->let = n;
    pthread_cond_broadcast(&g->cond);
    while (g->let > 0 || g->waiting == 0) pthread_cond_wait(&g->cond, &g->mu);
    pthread_mutex_unlock(&g->mu);
}

static inline int stub_create(const og_node_cfg *cfg, og_node **out, og_err *err);

static inline void stub_destroy(og_node *n) {
    atomic_fetch_sub(&stub_nodes, 1);
    og_free(n);
}

static inline int stub_fits(const og_node *n, const og_job *job, og_err *err) {
    (void)n;
    if (job->max_items <= 5000) return 0;
    return og_err_set(err, OG_ELIMIT, "%d items, room for 5000", job->max_items);
}

static inline int stub_admit(og_node *n, og_job *job, og_err *err) {
    stub_node *s = (stub_node *)n;
    (void)err;
    for (int i = 0; i < s->n_slots; i++) {
        if (s->slots[i].job) continue;
        memset(&s->slots[i], 0, sizeof s->slots[i]);
        s->slots[i].job = job;
        job->slot = &s->slots[i];
        atomic_fetch_add(&stub_in_use, 1);
        atomic_fetch_add(&stub_admits, 1);
        return 0;
    }
    return OG_EBUSY;
}

static inline void stub_retire(og_node *n, og_job *job) {
    stub_slot *s = job->slot;
    (void)n;
    if (!s) return;
    s->job = NULL;
    job->slot = NULL;
    atomic_fetch_sub(&stub_in_use, 1);
}

static inline int stub_feed(og_node *n, og_job *job, int port, og_chunk *c, og_err *err) {
    stub_slot *s = job->slot;
    (void)n;
    (void)port;
    (void)err;
    if (c->rows && c->rows->n_rows >= 3) {
        s->n = c->rows->terms[0].index;
        s->stamp = c->rows->terms[1].index;
        s->mode = c->rows->terms[2].index;
        s->told = true;
        int at = atomic_fetch_add(&stub_n_told, 1);
        if (at < STUB_TOLD) atomic_store(&stub_told[at], job->id);
    }
    if (og_tensor_present(&c->items))
        for (int64_t i = 0; i < c->items.ne[0]; i++)
            s->pending[s->n_pending++] = ((const int32_t *)c->items.data)[i];
    if (c->flags & OG_LAST) s->ended = true;
    og_chunk_drop(c);
    return 0;
}

/* Two tokens a step: token i of a job is stamp * 1000 + i. Jobs whose top_k is a multiple of
 * STUB_GENERATION add that: samples then tell by which settings they were made. */
static inline int stub_source_step(og_node *n, og_step_info *info, og_err *err) {
    stub_node *node = (stub_node *)n;
    stub_gate_pass(&stub_source_gate);
    for (int i = 0; i < node->n_slots; i++) {
        stub_slot *s = &node->slots[i];
        if (!s->job || !s->told || s->given < 0) continue;
        if (s->mode == STUB_LOSE && s->given >= STUB_FAIL_AT)
            return og_err_set(err, OG_EDEVICE, "the device is gone");
        if (s->mode == STUB_HANG && s->given >= STUB_FAIL_AT) continue;
        if (s->mode == STUB_FAIL && s->given >= STUB_FAIL_AT) {
            og_err e = OG_ERR_INIT;
            og_err_set(&e, OG_EINTERNAL, "token %d went wrong", s->given);
            s->given = -1;
            og_job_fail(s->job, &e);
            continue;
        }
        int k = s->n - s->given < 2 ? s->n - s->given : 2;
        og_tensor view;
        og_out *out = s->job->out[1];
        if (og_out_reserve(out, k, &view) < 0) continue;
        for (int t = 0; t < k; t++)
            ((int32_t *)view.data)[t] = s->stamp * 1000 + s->given + t +
                                        s->job->sampling.top_k / STUB_GENERATION *
                                            STUB_GENERATION;
        s->given += k;
        bool last = s->given >= s->n;
        if (last) s->given = -1;
        og_out_commit(out, k, last ? OG_LAST : 0);
        info->jobs++;
    }
    return info->jobs ? OG_STEP_WORK : OG_STEP_IDLE;
}

/* What token t sounds like: its value, or in stub_sum that of the last STUB_WINDOW tokens. */
static inline float stub_sound(const stub_node *n, stub_slot *s, int token) {
    if (strcmp(n->base.cfg.arch->name, "stub_sum")) return (float)token;
    float sum = 0;
    s->last[s->seen++ % STUB_WINDOW] = token;
    for (int i = 0; i < STUB_WINDOW; i++) sum += (float)s->last[i];
    return sum;
}

/* All pending tokens of each job: STUB_SPI samples each, of the token's sound. */
static inline int stub_voc_step(og_node *n, og_step_info *info, og_err *err) {
    stub_node *node = (stub_node *)n;
    (void)err;
    stub_gate_pass(&stub_voc_gate);
    for (int i = 0; i < node->n_slots; i++) {
        stub_slot *s = &node->slots[i];
        if (!s->job || s->given < 0 || (!s->n_pending && !s->ended)) continue;
        og_tensor view;
        og_out *out = s->job->out[1];
        if (og_out_reserve(out, (int64_t)s->n_pending * STUB_SPI, &view) < 0) continue;
        for (int t = 0; t < s->n_pending; t++) {
            float sound = stub_sound(node, s, s->pending[t]);
            for (int k = 0; k < STUB_SPI; k++)
                ((float *)view.data)[t * STUB_SPI + k] = sound;
        }
        int64_t made = (int64_t)s->n_pending * STUB_SPI;
        s->n_pending = 0;
        if (s->ended) s->given = -1;
        og_out_commit(out, made, s->ended ? OG_LAST : 0);
        info->jobs++;
    }
    return info->jobs ? OG_STEP_WORK : OG_STEP_IDLE;
}

static inline void stub_stats(const og_node *n, og_node_stats *out) {
    memset(out, 0, sizeof *out);
    for (int i = 0; i < STUB_SLOTS; i++)
        out->slots_used += ((const stub_node *)n)->slots[i].job != NULL;
    out->slots = STUB_SLOTS;
}

static inline int stub_measure(og_node *n, og_err *err) {
    (void)n;
    (void)err;
    return 0;
}

static const og_node_api stub_source_api = {stub_create,      stub_destroy, stub_fits,
                                            stub_admit,       stub_feed,    stub_source_step,
                                            stub_retire,      stub_stats,   stub_measure};
static const og_node_api stub_voc_api = {stub_create,   stub_destroy, stub_fits,
                                         stub_admit,    stub_feed,    stub_voc_step,
                                         stub_retire,   stub_stats,   stub_measure};

static inline int stub_create(const og_node_cfg *cfg, og_node **out, og_err *err) {
    if (atomic_load(&stub_unmakeable))
        return og_err_set(err, OG_EDEVICE, "the device is not there");
    stub_node *n = og_calloc(1, sizeof *n);
    if (!n) return og_err_set(err, OG_ENOMEM, "no memory");
    n->base.api = cfg->arch->kind == OG_KIND_AR ? &stub_source_api : &stub_voc_api;
    n->base.cfg = *cfg;
    n->n_slots = cfg->max_seqs < STUB_SLOTS ? cfg->max_seqs : STUB_SLOTS;
    atomic_fetch_add(&stub_nodes, 1);
    *out = &n->base;
    return 0;
}

static inline int stub_plan(const og_arch *a, const og_node_cfg *cfg, og_node_plan *out,
                            og_err *err) {
    (void)cfg;
    (void)err;
    memset(out, 0, sizeof *out);
    bool voc = a->kind == OG_KIND_VOCODER;
    out->out_items_per_item[1] = voc ? STUB_SPI : 1;
    out->out_item_bytes[1] = 4;
    out->out_dtype[1] = voc ? OG_F32 : OG_I32;
    out->out_width[1] = 1;
    out->rate = voc ? 24000 : 0;
    out->state_bytes = STUB_BYTES;
    return 0;
}

static inline int stub_check(const json_t *section, og_err *err) {
    (void)section;
    (void)err;
    return 0;
}

static const og_port_desc stub_source_ports[] = {
    {"prompt", OG_PORT_IN | OG_PORT_ROWS, "embeds[8]", "what to do"},
    {"tokens", OG_PORT_OUT | OG_PORT_STREAM, "tokens", "numbered tokens"},
    {0}};
static const og_table_desc stub_tables[] = {
    {"id", OG_TABLE_ID, "100000", NULL, "numbers"}, {0}};
static const og_port_desc stub_voc_ports[] = {
    {"tokens", OG_PORT_IN | OG_PORT_STREAM, "tokens", "tokens"},
    {"audio", OG_PORT_OUT | OG_PORT_STREAM | OG_PORT_SAMPLES, "audio[24000]", "samples"},
    {0}};
static const og_arch stub_source = {.name = "stub_source",
                                    .doc = "numbered tokens",
                                    .kind = OG_KIND_AR,
                                    .model = "stub",
                                    .ports = stub_source_ports,
                                    .tables = stub_tables,
                                    .check = stub_check,
                                    .impl = &stub_tables};
static const og_arch stub_voc = {.name = "stub_voc",
                                 .doc = "stamped samples",
                                 .kind = OG_KIND_VOCODER,
                                 .model = "stub",
                                 .ports = stub_voc_ports,
                                 .check = stub_check,
                                 .impl = &stub_tables};
static const og_arch stub_sum = {.name = "stub_sum",
                                 .doc = "samples that depend on earlier tokens",
                                 .kind = OG_KIND_VOCODER,
                                 .model = "stub",
                                 .ports = stub_voc_ports,
                                 .check = stub_check,
                                 .impl = &stub_tables};
static const og_arch *const stub_archs[] = {&stub_source, &stub_voc, &stub_sum, NULL};
static const og_kind_desc stub_kinds[] = {
    {OG_KIND_ENCODER, "encoder", "", NULL, NULL},
    {OG_KIND_AR, "ar_decoder", "", &stub_source_api, stub_plan},
    {OG_KIND_DIT, "dit", "", NULL, NULL},
    {OG_KIND_VAE, "vae", "", NULL, NULL},
    {OG_KIND_VOCODER, "vocoder", "", &stub_voc_api, stub_plan}};

/* A folder with the stub pipeline and its hooks; the caller removes it. */
typedef struct stub_env {
    char dir[64];
    og_diags *diags;
    og_plan *plan;
    og_engine *engine;
} stub_env;

static inline void stub_write(const char *dir, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static const char stub_lua[] =
    "local M = {}\n"
    "function M.go(ctx, src)\n"
    "    local r = ctx.request\n"
    "    if r.n == 0 then ctx:reject('n', 'nothing to do') end\n"
    "    ctx:emit{prompt = ctx.tables.id{r.n, r.stamp, r.mode}}\n"
    "end\n"
    "function M.lines(ctx, src)\n"
    "    local r = ctx.request\n"
    "    for lane = 1, r.lanes do\n"
    "        ctx:emit{prompt = ctx.tables.id{r.n, r.stamp + lane, r.mode}, lane = lane}\n"
    "    end\n"
    "end\n"
    "return M\n";

static const char stub_fields[] = /* the arch of the vocoder follows */
    "schema: omni-graph/1\n"
    "pipeline: stub\n"
    "request:\n"
    "  n: {type: int, default: 5}\n"
    "  stamp: {type: int, default: 1}\n"
    "  mode: {type: int, default: 0}\n"
    "  lanes: {type: int, default: 1}\n"
    "stages:\n"
    "  - {name: source, id: 0, node: ar_decoder, arch: stub_source}\n"
    "  - {name: voc, id: 1, node: vocoder, arch: ";

static inline int stub_open_voc(stub_env *s, const char *voc, const char *edges,
                                const char *const *sets, int n_sets,
                                const og_engine_opts *opts) {
    memset(s, 0, sizeof *s);
    strcpy(s->dir, "/tmp/og_stub_XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    char yaml[4096], path[128];
    snprintf(yaml, sizeof yaml, "%s%s}\nedges:\n%s", stub_fields, voc, edges);
    stub_write(s->dir, "stub.yaml", yaml);
    stub_write(s->dir, "stub.lua", stub_lua);
    snprintf(path, sizeof path, "%s/stub.yaml", s->dir);
    const char *dirs[] = {s->dir};
    og_plan_options o = OG_PLAN_OPTIONS_INIT;
    o.pipeline = path;
    o.script_dirs = dirs;
    o.n_script_dirs = 1;
    o.threads = 1;
    o.sets = sets;
    o.n_sets = n_sets;
    o.registry = (og_plan_registry){stub_archs, stub_kinds, 5};
    s->diags = og_diags_create();
    og_err err = OG_ERR_INIT;
    int rc = og_plan_build(&o, 0, s->diags, &s->plan, &err);
    if (rc < 0) {
        og_str text = OG_STR_INIT;
        og_diags_print(s->diags, &text);
        fprintf(stderr, "%s\n%s\n", err.msg, text.data ? text.data : "");
        og_str_free(&text);
        return rc;
    }
    rc = og_engine_create(s->plan, opts, &s->engine, &err);
    if (rc < 0) fprintf(stderr, "%s\n", err.msg);
    return rc;
}

static inline int stub_open_sets(stub_env *s, const char *edges, const char *const *sets,
                                 int n_sets, const og_engine_opts *opts) {
    return stub_open_voc(s, "stub_voc", edges, sets, n_sets, opts);
}

static const char stub_plain[] =
    "  - {from: {n: request.n}, to: {prompt: source.prompt}, hook: stub.go}\n"
    "  - {from: source.tokens, to: voc.tokens, chunk: [1, 2, 4]}\n"
    "  - {from: voc.audio, to: response.audio}\n";

/* No request, byte or slot is left. */
static inline void stub_assert_drained(stub_env *s) {
    og_engine_stats st;
    og_engine_get_stats(s->engine, &st);
    assert_int_equal(st.requests, 0);
    assert_int_equal(st.queued, 0);
    assert_int_equal(st.buffer_bytes, 0);
    assert_int_equal(atomic_load(&stub_in_use), 0);
}

static inline void stub_close(stub_env *s) {
    char path[128];
    og_engine_destroy(s->engine);
    og_plan_destroy(s->plan);
    og_diags_destroy(s->diags);
    snprintf(path, sizeof path, "%s/stub.yaml", s->dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/stub.lua", s->dir);
    unlink(path);
    rmdir(s->dir);
}

#endif
