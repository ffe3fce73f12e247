/* A toy arch for the ar_decoder kind, small enough to foretell every token.
 *
 * A state is its input row. The first code is state[0] mod 16 unless something bans it, the
 * second is state[1]; fed back, a frame gives {c0 + 1, c1, 0, 0}: so a job counts upwards
 * from its last prompt row, feed rows add to the count, and c1 keeps the stamp that the
 * prompt gave it. Tables: id i is the row {i, 0, 0, 0}, but 127 holds a NaN; a pair of
 * codes gives {c0 + c1, 0, 0, 0}; a vector is the row itself.
 */
#ifndef OG_TESTS_AR_TOY_H
#define OG_TESTS_AR_TOY_H

#include <math.h>

#include "nodes/ar/ar.h"
#include "nodes/registry.h"
#include "tests/support/golden.h"
#include "tests/support/harness.h"

#define TOY_H 4
#define TOY_G 2
#define TOY_V 16
#define TOY_BAD 127 /* id whose row is not finite */

enum { TOY_ID, TOY_PAIR, TOY_VECTOR };
enum { TOY_PROMPT, TOY_FEED, TOY_CODES, TOY_TOKENS, TOY_HIDDEN }; /* ports */

typedef struct toy {
    og_ar_model base;
    float rows[128][TOY_H];
} toy;

static int toy_dims(const json_t *section, og_ar_dims *d, og_err *err) {
    (void)section;
    (void)err;
    *d = (og_ar_dims){.hidden = TOY_H, .vocab = TOY_V, .groups = TOY_G, .layers = 1,
                      .kv_heads = 1, .head_dim = 2, .depth_layers = 1, .depth_kv_heads = 1,
                      .depth_head_dim = 2, .max_positions = 4096, .n_params = 512};
    return 0;
}

static int toy_load(const og_node_cfg *cfg, const og_ar_dims *d, og_ar_model **out,
                    og_err *err) {
    (void)cfg;
    (void)d;
    toy *t = og_calloc(1, sizeof *t);
    if (!t) return og_err_set(err, OG_ENOMEM, "no memory for a toy");
    for (int i = 0; i < 128; i++) t->rows[i][0] = (float)i;
    t->rows[TOY_BAD][3] = NAN;
    t->base.direct[TOY_ID] = og_tensor_2d(OG_F32, 128, TOY_H, t->rows);
    t->base.weight_bytes = sizeof t->rows;
    *out = &t->base;
    return 0;
}

static void toy_unload(og_ar_model *m) {
    og_free(m);
}

static int toy_table(const og_ar_model *m, og_exec *ex, int t, og_tensor *y,
                     const og_tensor *args) {
    (void)m;
    if (og_exec_get_mode(ex) == OG_MEASURE) return 0;
    if (t == TOY_VECTOR) return og_op_copy(ex, y, args);
    float *out = y->data;
    const int32_t *codes = args->data;
    for (int64_t i = 0; i < y->ne[0]; i++) {
        memset(out + i * TOY_H, 0, TOY_H * sizeof *out);
        out[i * TOY_H] = (float)(codes[i * TOY_G] + codes[i * TOY_G + 1]);
    }
    return 0;
}

static int toy_stack(const og_ar_model *m, og_exec *ex, og_tensor *x, og_kv *kv,
                     const og_rows *rows) {
    (void)m;
    if (og_exec_get_mode(ex) == OG_MEASURE) return 0;
    assert_int_equal(x->ne[0], rows->n);
    for (int s = 0; s < rows->n_seg; s++)
        for (int r = rows->cu[s]; r < rows->cu[s + 1]; r++) {
            int32_t page = rows->pos[3 * r] / kv->page;
            assert_int_equal(rows->slot[r], rows->slot[rows->cu[s]]);
            assert_in_range(page, 0, kv->max_pages - 1);
            (void)page;
        }
    return 0;
}

static int toy_logits(const og_ar_model *m, og_exec *ex, og_tensor *y, const og_tensor *h) {
    (void)m;
    if (og_exec_get_mode(ex) == OG_MEASURE) return 0;
    for (int64_t i = 0; i < y->ne[0]; i++) {
        const float *s = (const float *)h->data + i * TOY_H;
        int at = ((int)s[0] % TOY_V + TOY_V) % TOY_V;
        for (int v = 0; v < TOY_V; v++)
            ((float *)y->data)[i * TOY_V + v] = -(float)((v - at) * (v - at)) + s[3];
    }
    return 0;
}

static int toy_head(const og_ar_model *m, og_exec *ex, og_tensor *codes, const og_tensor *h,
                    og_kv *kv, const int32_t *slots, const og_sample_row *rows) {
    (void)m;
    (void)kv;
    (void)slots;
    (void)rows;
    if (og_exec_get_mode(ex) == OG_MEASURE) return 0;
    for (int64_t i = 0; i < codes->ne[0]; i++)
        ((int32_t *)codes->data)[i * TOY_G + 1] =
            (int32_t)((const float *)h->data)[i * TOY_H + 1];
    return 0;
}

static int toy_feedback(const og_ar_model *m, og_exec *ex, og_tensor *y,
                        const og_tensor *codes) {
    (void)m;
    if (og_exec_get_mode(ex) == OG_MEASURE) return 0;
    for (int64_t i = 0; i < y->ne[0]; i++) {
        const int32_t *c = (const int32_t *)codes->data + i * TOY_G;
        float row[TOY_H] = {(float)c[0] + 1, (float)c[1]};
        memcpy((float *)y->data + i * TOY_H, row, sizeof row);
    }
    return 0;
}

static int toy_check(const json_t *section, og_err *err) {
    (void)section;
    (void)err;
    return 0;
}

static const og_ar_impl toy_impl = {toy_dims,  toy_load,   toy_unload, toy_table,
                                    toy_stack, toy_logits, toy_head,   toy_feedback};

static const og_port_desc toy_ports[] = {
    {"prompt", OG_PORT_IN | OG_PORT_ROWS, "embeds[4]", ""},
    {"feed", OG_PORT_IN | OG_PORT_ROWS | OG_PORT_STREAM, "embeds[4]?", ""},
    {"codes", OG_PORT_OUT | OG_PORT_STREAM, "codes[2]", ""},
    {"tokens", OG_PORT_OUT | OG_PORT_STREAM, "tokens", ""},
    {"hidden", OG_PORT_OUT | OG_PORT_STREAM, "hidden[4]", ""},
    {0}};

static const og_table_desc toy_tables[] = {{"id", OG_TABLE_ID, "128", NULL, ""},
                                           {"pair", OG_TABLE_CODES, "16", "2", ""},
                                           {"vector", OG_TABLE_VECTOR, NULL, "4", ""},
                                           {0}};

static const og_arch toy_arch = {.name = "toy",
                                 .doc = "counts",
                                 .kind = OG_KIND_AR,
                                 .model = "none",
                                 .section = "",
                                 .ports = toy_ports,
                                 .tables = toy_tables,
                                 .check = toy_check,
                                 .impl = &toy_impl};

/* ---- fixture ---------------------------------------------------------------------- */

typedef struct toy_fix {
    th_env env;
    og_model *model;
    og_node_cfg cfg;
    og_node *node;
} toy_fix;

/* Everything but the node. */
TH_UNUSED void toy_prepare(toy_fix *f, int seqs, int len, int rows, size_t kv_bytes) {
    char path[4096];
    og_err err = OG_ERR_INIT;
    memset(f, 0, sizeof *f);
    th_open(&f->env, "ref");
    source_path(path, sizeof path, "tests/data/qwen3_tts/tiny-a/custom_voice");
    if (og_model_open(path, &f->model, &err) < 0) fail_msg("%s", err.msg);
    f->cfg = (og_node_cfg){.arch = &toy_arch, .stage = "toy", .model = f->model,
                           .folder = "", .exec = f->env.exec, .stage_key = 1,
                           .max_seqs = seqs, .max_model_len = len,
                           .max_batched_tokens = rows, .kv_bytes = kv_bytes};
}

TH_UNUSED void toy_open(toy_fix *f, int seqs, int len, int rows, size_t kv_bytes) {
    og_err err = OG_ERR_INIT;
    toy_prepare(f, seqs, len, rows, kv_bytes);
    if (og_ar_api.create(&f->cfg, &f->node, &err) < 0) fail_msg("%s", err.msg);
    th_plan(&f->env, f->node);
}

TH_UNUSED void toy_close(toy_fix *f) {
    og_node_stats st;
    f->node->api->stats(f->node, &st);
    assert_int_equal(st.slots_used, 0);
    assert_int_equal(st.kv_pages_used, 0);
    f->node->api->destroy(f->node);
    og_model_close(f->model);
    th_close(&f->env);
}

/* A greedy job with codes out, for prompts of at most items rows. */
TH_UNUSED void toy_job(th_job *j, uint64_t id, int items, int max_tokens) {
    th_job_init(j, id, id);
    th_job_greedy(j);
    j->job.max_items = items;
    j->job.sampling.max_tokens = max_tokens;
    th_job_out(j, TOY_CODES, OG_I32, TOY_G, 256);
}

TH_UNUSED int toy_admit(toy_fix *f, th_job *j) {
    og_err err = OG_ERR_INIT;
    return f->node->api->admit(f->node, &j->job, &err);
}

TH_UNUSED void toy_done(toy_fix *f, th_job *j) {
    f->node->api->retire(f->node, &j->job);
    f->node->api->retire(f->node, &j->job); /* twice is harmless */
    th_job_free(j);
}

/* Rows of one id each. */
TH_UNUSED og_recipe *toy_ids(int n, const int *ids) {
    int32_t off[257];
    og_term terms[256];
    assert_true(n <= 256);
    for (int i = 0; i <= n; i++) off[i] = i;
    for (int i = 0; i < n; i++) terms[i] = (og_term){TOY_ID, OG_NO_SOURCE, ids[i]};
    og_recipe *r = og_recipe_create(&(og_recipe){.n_rows = n, .off = off, .terms = terms}, 0);
    assert_non_null(r);
    return r;
}
#define TOY_IDS(...)                                               \
    toy_ids((int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)), (int[]){__VA_ARGS__})

/* Closed rows before and after one open part that reads source `from` on, in table. */
TH_UNUSED og_recipe *toy_open_rows(int table, int source, int from, int n, const int *ids,
                                   int at) {
    int32_t off[33];
    og_term terms[32];
    for (int i = 0; i <= n; i++) off[i] = i;
    for (int i = 0; i < n; i++) terms[i] = (og_term){TOY_ID, OG_NO_SOURCE, ids[i]};
    og_open_term t = {{(uint16_t)table, (uint16_t)source, from}, 1};
    og_open_part p = {at, source, 0, 1};
    og_recipe *r = og_recipe_create(&(og_recipe){.n_rows = n, .off = off, .terms = terms,
                                                 .n_open = 1, .open = &p, .open_terms = &t,
                                                 .n_sources = source + 1}, 1);
    assert_non_null(r);
    return r;
}

/* A job that needs no feed rows: prompt and nothing else. */
TH_UNUSED void toy_feed(toy_fix *f, th_job *j, og_recipe *prompt) {
    th_feed_rows(f->node, j, TOY_PROMPT, prompt, NULL, OG_FIRST | OG_LAST);
    th_feed_rows(f->node, j, TOY_FEED, NULL, NULL, OG_LAST);
}

/* The first codes that a job has given are exactly these, and it has ended or not. */
TH_UNUSED void toy_expect(const th_job *j, int ended, int n, const int *codes) {
    const th_out *o = &j->out[TOY_CODES];
    const int32_t *got = (const void *)o->data;
    if (j->err.code) fail_msg("%s", j->err.msg);
    assert_int_equal(o->n, n);
    for (int i = 0; i < n; i++) assert_int_equal(got[i * TOY_G], codes[i]);
    assert_int_equal(o->last, ended);
    assert_int_equal(j->stopped, ended);
}
#define TOY_EXPECT(j, ended, ...)                                                       \
    toy_expect(j, ended, (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)), (int[]){__VA_ARGS__})

#endif
