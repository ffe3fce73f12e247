/* The table of the ops at real sizes; see ops_cases.h. */
#include "bench/ops_cases.h"
#include "kernels/base/alloc.h"

#include <stdlib.h>
#include <string.h>

#define POOL ((size_t)384 << 20)
#define NOISE ((size_t)16 << 20)
#define PAGE 16
#define MAX_ROWS 64

/* ---- memory ---------------------------------------- */

/* Without memory there is nothing to measure. */
static void must(int rc) {
    if (rc < 0) abort();
}

static void *block(ops_env *env, size_t bytes) {
    void *p;
    if (env->n_blocks == OPS_BLOCKS) abort();
    must(og_device_alloc(env->dev, bytes + 64, &p, NULL));
    env->blocks[env->n_blocks++] = p;
    return p;
}

static void *with_bytes(ops_env *env, const void *bytes, size_t n) {
    void *p = block(env, n);
    must(og_device_upload(env->dev, p, bytes, n, NULL));
    return p;
}

static og_tensor placed(ops_env *env, og_tensor t, void *data) {
    t.place = og_exec_alloc(env->ex, OG_F32, 1, (int64_t[]){0}).place;
    t.data = data;
    return t;
}

/* The next weights of the pool. */
static og_tensor take_nd(ops_env *env, og_dtype t, int rank, const int64_t *ne) {
    og_tensor w = og_tensor_nd(t, rank, ne, NULL);
    size_t bytes = og_tensor_bytes(&w);
    if (bytes > POOL) abort();
    if (env->cursor + bytes > POOL) env->cursor = 0;
    w = placed(env, w, env->pool + env->cursor);
    env->cursor += (bytes + 255) & ~(size_t)255;
    return w;
}

static og_tensor take_2d(ops_env *env, og_dtype t, int64_t a, int64_t b) {
    return take_nd(env, t, 2, (int64_t[]){a, b});
}

static og_tensor take_1d(ops_env *env, og_dtype t, int64_t n) {
    return take_nd(env, t, 1, &n);
}

/* An activation of its own, with values from the pool. */
static og_tensor own_nd(ops_env *env, int rank, const int64_t *ne) {
    og_tensor t = og_tensor_nd(OG_F32, rank, ne, NULL);
    size_t n = og_tensor_bytes(&t);
    float *host = og_malloc(n);
    if (!host) abort();
    for (size_t i = 0; i < n / sizeof *host; i++)
        host[i] = (float)(int)(i * 2654435761u % 2001u - 1000u) * 1e-3f;
    t = placed(env, t, with_bytes(env, host, n));
    og_free(host);
    return t;
}

static og_tensor own_2d(ops_env *env, int64_t a, int64_t b) {
    return own_nd(env, 2, (int64_t[]){a, b});
}

static og_tensor own_3d(ops_env *env, int64_t a, int64_t b, int64_t c) {
    return own_nd(env, 3, (int64_t[]){a, b, c});
}

/* One segment of n rows, or n segments of one row each, behind `past` positions. */
static void make_rows(ops_env *env, int n, int apart, int past) {
    int32_t *v = og_calloc((size_t)n * 5 + 1, sizeof *v);
    if (!v) abort();
    int32_t *slot = v, *pos = v + n, *cu = v + 4 * n;
    for (int r = 0; r < n; r++) {
        slot[r] = apart ? r : 0;
        for (int a = 0; a < 3; a++) pos[3 * r + a] = past + (apart ? 0 : r);
        cu[r + 1] = r + 1;
    }
    if (!apart) cu[1] = n;
    size_t at = sizeof *v;
    env->slots = with_bytes(env, slot, (size_t)n * at);
    env->rows =
        (og_rows){n, apart ? n : 1, env->slots, with_bytes(env, pos, 3 * (size_t)n * at),
                  with_bytes(env, cu, ((size_t)n + 1) * at)};
    og_free(v);
}

static int fail_oom(const void *p) {
    return p ? 0 : OG_ENOMEM;
}

int ops_open(ops_env *env, const char *backend, int threads, og_err *err) {
    memset(env, 0, sizeof *env);
    int rc = og_device_open(backend, 0, threads, &env->dev, err);
    if (rc < 0) return rc;
    env->device_works_alone = !strcmp(backend, "cuda");
    void *pool;
    rc = og_exec_create(env->dev, (size_t)1 << 20, &env->ex, err);
    if (rc == 0) rc = og_device_alloc(env->dev, POOL, &pool, err);
    if (rc < 0) return rc;
    env->pool = pool;
    uint16_t *noise = og_malloc(NOISE);
    if ((rc = fail_oom(noise)) < 0) return og_err_set(err, rc, "no memory for noise");
    uint32_t s = 1;
    for (size_t i = 0; i < NOISE / sizeof *noise; i++) {
        s = s * 1664525u + 1013904223u;
        noise[i] = og_f32_to_bf16(((float)(s >> 8) * 0x1p-23f - 1.0f) * 0.04f);
    }
    for (size_t at = 0; at < POOL && rc == 0; at += NOISE)
        rc = og_device_upload(env->dev, env->pool + at, noise, NOISE, err);
    og_free(noise);
    return rc;
}

static void drop(ops_env *env) {
    for (int i = 0; i < env->n_blocks; i++) og_device_free(env->dev, env->blocks[i]);
    env->n_blocks = 0;
    env->state = (og_tensor){0};
}

void ops_close(ops_env *env) {
    drop(env);
    if (env->pool) og_device_free(env->dev, env->pool);
    og_exec_destroy(env->ex);
    og_device_close(env->dev);
}

int ops_make(ops_env *env, const ops_case *c) {
    drop(env);
    env->bytes = env->flops = 0;
    og_exec_reset(env->ex);
    int rc = c->make(env, c);
    if (rc < 0) return rc;
    og_exec_set_mode(env->ex, OG_MEASURE);
    rc = c->call(env, c);
    og_exec_reset(env->ex);
    if (rc == 0) rc = og_exec_reserve(env->ex, og_exec_peak(env->ex), NULL);
    og_exec_set_mode(env->ex, OG_RUN);
    return rc;
}

int ops_call(ops_env *env, const ops_case *c) {
    return c->call(env, c);
}

/* ---- linear ---------------------------------------- */

static double size_of(const ops_case *c) {
    return (double)og_dtype_size(c->t);
}

static int make_linear(ops_env *env, const ops_case *c) {
    env->x = own_2d(env, c->rows, c->k);
    env->y[0] = own_2d(env, c->rows, c->n);
    env->bytes = (double)c->n * c->k * size_of(c) + 4.0 * c->rows * (c->k + c->n);
    env->flops = 2.0 * c->rows * c->n * c->k;
    return 0;
}

static int call_linear(ops_env *env, const ops_case *c) {
    og_tensor w = take_2d(env, c->t, c->n, c->k);
    return og_op_linear(env->ex, 1, env->y, &env->x, &w, NULL, NULL);
}

/* q, k and v of 16 heads and 8 kv heads of 128, behind the norm. */
static int make_qkv(ops_env *env, const ops_case *c) {
    env->x = own_2d(env, c->rows, c->k);
    env->y[0] = own_2d(env, c->rows, 2048);
    env->y[1] = own_2d(env, c->rows, 1024);
    env->y[2] = own_2d(env, c->rows, 1024);
    env->bytes = 4096.0 * c->k * size_of(c) + 4.0 * c->rows * (c->k + 4096);
    env->flops = 2.0 * c->rows * 4096 * c->k;
    return 0;
}

static int call_qkv(ops_env *env, const ops_case *c) {
    og_tensor norm = take_1d(env, c->t, c->k);
    og_tensor w[3] = {take_2d(env, c->t, 2048, c->k), take_2d(env, c->t, 1024, c->k),
                      take_2d(env, c->t, 1024, c->k)};
    return og_op_norm_linear(env->ex, 3, env->y, &env->x, &norm, 1e-6f, w, NULL);
}

static int make_glu(ops_env *env, const ops_case *c) {
    env->x = own_2d(env, c->rows, c->k);
    env->y[0] = own_2d(env, c->rows, c->n);
    env->bytes = 2.0 * c->n * c->k * size_of(c) + 4.0 * c->rows * (c->k + c->n);
    env->flops = 4.0 * c->rows * c->n * c->k;
    return 0;
}

static int call_glu(ops_env *env, const ops_case *c) {
    og_tensor norm = take_1d(env, c->t, c->k);
    og_tensor gate = take_2d(env, c->t, c->n, c->k), up = take_2d(env, c->t, c->n, c->k);
    return og_op_glu_linear(env->ex, env->y, &env->x, &norm, 1e-6f, &gate, &up,
                            OG_ACT_SILU);
}

/* ---- convolutions ---------------------------------------- */

static int make_conv(ops_env *env, const ops_case *c) {
    int64_t past = (int64_t)(c->taps - 1) * c->step;
    make_rows(env, c->rows, 0, 0);
    env->x = own_2d(env, c->rows, c->k);
    env->y[0] = own_2d(env, c->rows, c->n);
    if (past) env->state = own_3d(env, 1, past, c->k);
    env->bytes =
        (double)c->n * c->k * c->taps * size_of(c) + 4.0 * c->rows * (c->k + c->n);
    env->flops = 2.0 * c->rows * c->n * c->k * c->taps;
    return 0;
}

static int call_conv(ops_env *env, const ops_case *c) {
    og_tensor w = take_nd(env, c->t, 3, (int64_t[]){c->n, c->taps, c->k});
    og_tensor bias = take_1d(env, c->t, c->n);
    return og_op_conv1d(env->ex, env->y, &env->x, &w, &bias, &env->state, &env->rows,
                        c->step, NULL);
}

/* Of stride c->step and a kernel of c->taps strides. */
static int make_transposed(ops_env *env, const ops_case *c) {
    make_rows(env, c->rows, 0, 0);
    env->x = own_2d(env, c->rows, c->k);
    env->y[0] = own_2d(env, (int64_t)c->rows * c->step, c->n);
    if (c->taps > 1) env->state = own_3d(env, 1, c->taps - 1, c->k);
    env->bytes = (double)c->n * c->step * c->k * c->taps * size_of(c) +
                 4.0 * c->rows * (c->k + (double)c->n * c->step);
    env->flops = 2.0 * c->rows * c->step * c->n * c->k * c->taps;
    return 0;
}

static int call_transposed(ops_env *env, const ops_case *c) {
    og_tensor w =
        take_nd(env, c->t, 3, (int64_t[]){(int64_t)c->step * c->n, c->taps, c->k});
    og_tensor bias = take_1d(env, c->t, c->n);
    return og_op_conv_transpose1d(env->ex, env->y, &env->x, &w, &bias, &env->state,
                                  &env->rows, c->step);
}

static int make_depthwise(ops_env *env, const ops_case *c) {
    make_rows(env, c->rows, 0, 0);
    env->x = own_2d(env, c->rows, c->k);
    env->y[0] = own_2d(env, c->rows, c->k);
    env->state = own_3d(env, 1, c->taps - 1, c->k);
    env->bytes = 8.0 * c->rows * c->k + (double)c->k * c->taps * size_of(c);
    env->flops = 2.0 * c->rows * c->k * c->taps;
    return 0;
}

static int call_depthwise(ops_env *env, const ops_case *c) {
    og_tensor w = take_2d(env, c->t, c->k, c->taps), bias = take_1d(env, c->t, c->k);
    return og_op_conv1d_depthwise(env->ex, env->y, &env->x, &w, &bias, &env->state,
                                  &env->rows, 1);
}

/* ---- attention ---------------------------------------- */

/* Decoding (what 0: one row of every slot) or a prompt of c->rows rows (what 1). */
static int make_attention(ops_env *env, const ops_case *c) {
    int slots = c->what ? 1 : c->rows, last = c->past + (c->what ? c->rows : 1);
    env->pages = (last + PAGE - 1) / PAGE;
    make_rows(env, c->rows, !c->what, c->past);
    int32_t *table = og_malloc(sizeof *table * (size_t)(slots * env->pages));
    if (!table) abort();
    for (int i = 0; i < slots * env->pages; i++) table[i] = 1 + i;
    env->table = with_bytes(env, table, sizeof *table * (size_t)(slots * env->pages));
    og_free(table);
    env->x = own_3d(env, c->rows, c->heads, c->dim);
    env->y[0] = own_3d(env, c->rows, c->heads, c->dim);
    env->y[1] = own_3d(env, c->rows, c->kv_heads, c->dim);
    env->y[2] = own_3d(env, c->rows, c->kv_heads, c->dim);
    double keys =
        c->what ? c->rows * (c->past + 0.5 * (c->rows + 1)) : (double)c->rows * last;
    env->bytes = 2.0 * slots * last * c->kv_heads * c->dim * size_of(c) +
                 8.0 * c->rows * c->heads * c->dim;
    env->flops = 4.0 * keys * c->heads * c->dim;
    return 0;
}

static og_kv take_kv(ops_env *env, const ops_case *c, int slots) {
    int64_t ne[4] = {(int64_t)slots * env->pages + 1, PAGE, c->kv_heads, c->dim};
    return (og_kv){.k = take_nd(env, c->t, 4, ne),
                   .v = take_nd(env, c->t, 4, ne),
                   .table = env->table,
                   .max_pages = env->pages,
                   .page = PAGE};
}

static int call_attention(ops_env *env, const ops_case *c) {
    og_kv kv = take_kv(env, c, c->what ? 1 : c->rows);
    return og_op_attn_paged(env->ex, env->y, &env->x, &kv, &env->rows, 0.088f, 0);
}

/* The table of angles, then norm, rotation and append. */
static int make_rope(ops_env *env, const ops_case *c) {
    int rc = make_attention(env, c);
    env->state = own_2d(env, 2 * c->rows, c->dim / 2);
    env->bytes = 4.0 * c->rows * c->dim * (2 * c->heads + 2 * c->kv_heads) +
                 2.0 * c->rows * c->kv_heads * c->dim * size_of(c);
    env->flops = 12.0 * c->rows * c->dim * (c->heads + c->kv_heads);
    return rc;
}

static int call_rope(ops_env *env, const ops_case *c) {
    og_kv kv = take_kv(env, c, c->what ? 1 : c->rows);
    og_tensor cos = og_tensor_rows(&env->state, 0, c->rows);
    og_tensor sin = og_tensor_rows(&env->state, c->rows, c->rows);
    og_tensor freq = take_1d(env, OG_F32, c->dim / 2);
    og_tensor q_norm = take_1d(env, OG_BF16, c->dim),
              k_norm = take_1d(env, OG_BF16, c->dim);
    int rc = og_op_rope_table(env->ex, &cos, &sin, &env->rows, &freq);
    if (rc < 0) return rc;
    return og_op_qk_norm_rope_append(env->ex, &env->x, &env->y[1], &env->y[2], &q_norm,
                                     &k_norm, 1e-6f, &cos, &sin, &env->rows, &kv);
}

/* ---- element by element, moves ---------------------------------------- */

enum { RMS_NORM, LAYER_NORM, SILU, GELU, ADD, SCALED_ADD, SNAKE, COPY, GATHER, ROW_SUM };

static int make_map(ops_env *env, const ops_case *c) {
    static const int passes[] = {
        [RMS_NORM] = 2, [LAYER_NORM] = 2,          [SILU] = 2,  [GELU] = 2,
        [ADD] = 3,      [SCALED_ADD] = 3,          [SNAKE] = 2, [COPY] = 2,
        [GATHER] = 2,   [ROW_SUM] = OPS_GROUPS + 1};
    env->x = own_2d(env, c->rows, c->k);
    env->y[0] = own_2d(env, c->rows, c->k);
    env->y[1] = own_2d(env, c->rows, c->k);
    env->bytes = 4.0 * passes[c->what] * c->rows * c->k;
    if (c->what == GATHER || c->what == ROW_SUM) {
        double read = (double)(passes[c->what] - 1) * size_of(c);
        env->bytes = c->rows * c->k * (read + 4.0);
    }
    int32_t v[MAX_ROWS * OPS_GROUPS], off[MAX_ROWS + 1],
        table[MAX_ROWS * OPS_GROUPS] = {0};
    if (c->what != GATHER && c->what != ROW_SUM) return 0;
    for (int i = 0; i < MAX_ROWS * OPS_GROUPS; i++) v[i] = i * 37 % 2048;
    for (int i = 0; i <= MAX_ROWS; i++) off[i] = i * OPS_GROUPS;
    const int32_t *index = with_bytes(env, v, sizeof v);
    env->ids = placed(env, og_tensor_1d(OG_I32, c->rows, NULL), (void *)(uintptr_t)index);
    env->prog = (og_row_prog){NULL, 1, with_bytes(env, off, sizeof off),
                              with_bytes(env, table, sizeof table), index};
    return 0;
}

static int call_map(ops_env *env, const ops_case *c) {
    og_exec *ex = env->ex;
    og_tensor *y = &env->y[0], *x = &env->x, *b = &env->y[1];
    og_tensor w = take_1d(env, c->what == SNAKE ? OG_F32 : c->t, c->k);
    og_tensor w2 = take_1d(env, c->what == SNAKE ? OG_F32 : c->t, c->k), table;
    switch (c->what) {
    case RMS_NORM: return og_op_rms_norm(ex, y, x, &w, 1e-6f);
    case LAYER_NORM: return og_op_layer_norm(ex, y, x, &w, &w2, 1e-6f);
    case SILU: return og_op_unary(ex, y, x, OG_ACT_SILU);
    case GELU: return og_op_unary(ex, y, x, OG_ACT_GELU);
    case ADD: return og_op_binary(ex, y, x, b, OG_ADD);
    case SCALED_ADD: return og_op_scaled_add(ex, y, x, b, &w);
    case SNAKE: return og_op_snake(ex, y, x, &w, &w2);
    case COPY: return og_op_copy(ex, y, x);
    default: break;
    }
    table = take_2d(env, c->t, 2048, c->k);
    env->prog.tables = &table;
    return c->what == GATHER ? og_op_gather_rows(ex, y, &table, &env->ids)
                             : og_op_row_sum(ex, y, &env->prog);
}

/* ---- sampling, the code predictor ---------------------------------------- */

static void make_params(ops_env *env, int rows, float temperature) {
    og_sample_row p[MAX_ROWS];
    for (int r = 0; r < rows; r++)
        p[r] = (og_sample_row){.temperature = temperature,
                               .top_p = 1.0f,
                               .top_k = 50,
                               .repetition_penalty = 1.05f,
                               .seed = (uint64_t)r + 1};
    env->params = with_bytes(env, p, sizeof *p * (size_t)rows);
}

/* what 0: greedy; 1: temperature 0.9, top_k 50 and the penalty. */
static int make_sample(ops_env *env, const ops_case *c) {
    env->x = own_2d(env, c->rows, c->k);
    env->ids = placed(env, og_tensor_1d(OG_I32, c->rows, NULL), block(env, 4 * MAX_ROWS));
    make_params(env, c->rows, c->what ? 0.9f : 0.0f);
    env->bytes = 4.0 * c->rows * c->k;
    env->flops = 0;
    return 0;
}

static int call_sample(ops_env *env, const ops_case *c) {
    (void)c;
    return og_op_sample(env->ex, &env->ids, &env->x, env->params, NULL, NULL, NULL);
}

enum { D = 1024, F = 3072, QW = 2048, KVW = 1024, D_VOCAB = 2048, DEPTH_DIM = 128 };

/* A whole code predictor: fifteen passes of five layers, heads and draws. c->k is the
 * width of the talker. */
static int make_depth(ops_env *env, const ops_case *c) {
    double layer = (double)D * (2 * QW + 2 * KVW) + 3.0 * D * F;
    double pass =
        OPS_LAYERS * layer + (double)D_VOCAB * D + (c->k != D ? (double)D * c->k : 0);
    make_rows(env, c->rows, 1, 0);
    make_params(env, c->rows, 0.9f);
    env->pages = 2;
    int32_t table[2 * MAX_ROWS], codes[MAX_ROWS * OPS_GROUPS] = {0};
    for (int i = 0; i < 2 * c->rows; i++) table[i] = 1 + i;
    env->table = with_bytes(env, table, sizeof table);
    env->ids = placed(env, og_tensor_2d(OG_I32, c->rows, OPS_GROUPS, NULL),
                      with_bytes(env, codes, sizeof codes));
    env->x = own_2d(env, c->rows, c->k);
    env->bytes = (OPS_GROUPS - 1) * pass * size_of(c);
    env->flops =
        2.0 * c->rows * (OPS_GROUPS - 1) * pass + 2.0 * c->rows * OPS_LAYERS * layer;
    return 0;
}

static og_decoder_layer take_layer(ops_env *env, og_dtype t) {
    return (og_decoder_layer){.input_norm = take_1d(env, t, D),
                              .post_norm = take_1d(env, t, D),
                              .q = take_2d(env, t, QW, D),
                              .k = take_2d(env, t, KVW, D),
                              .v = take_2d(env, t, KVW, D),
                              .o = take_2d(env, t, D, QW),
                              .q_norm = take_1d(env, t, DEPTH_DIM),
                              .k_norm = take_1d(env, t, DEPTH_DIM),
                              .gate = take_2d(env, t, F, D),
                              .up = take_2d(env, t, F, D),
                              .down = take_2d(env, t, D, F)};
}

static int call_depth(ops_env *env, const ops_case *c) {
    og_decoder_layer layers[OPS_LAYERS];
    og_kv kv[OPS_LAYERS];
    og_tensor embed[OPS_GROUPS - 1], head[OPS_GROUPS - 1];
    const ops_case pages = {.t = OG_F32, .kv_heads = 8, .dim = DEPTH_DIM};
    for (int i = 0; i < OPS_LAYERS; i++) {
        layers[i] = take_layer(env, c->t);
        kv[i] = take_kv(env, &pages, c->rows);
    }
    for (int g = 0; g < OPS_GROUPS - 1; g++) {
        embed[g] = take_2d(env, c->t, D_VOCAB, c->k);
        head[g] = take_2d(env, c->t, D_VOCAB, D);
    }
    og_depth net = {.net = {.layers = layers,
                            .n_layers = OPS_LAYERS,
                            .n_heads = 16,
                            .n_kv_heads = 8,
                            .head_dim = DEPTH_DIM,
                            .eps = 1e-6f,
                            .final_norm = take_1d(env, c->t, D),
                            .inv_freq = take_1d(env, OG_F32, DEPTH_DIM / 2)},
                    .n_groups = OPS_GROUPS,
                    .first = take_2d(env, c->t, 3072, c->k),
                    .embed = embed,
                    .head = head};
    if (c->k != D) {
        net.proj = take_2d(env, c->t, D, c->k);
        net.proj_bias = take_1d(env, c->t, D);
    }
    return og_op_depth_ar(env->ex, &env->ids, &env->x, &net, kv, env->slots, env->params);
}

/* ---- the table ---------------------------------------- */

#define ONE_LINEAR(label, type, m, kk, nn)                                               \
    {                                                                                    \
        .name = "linear " label " M" #m " " #type, .make = make_linear,                  \
        .call = call_linear, .t = OG_##type, .rows = m, .k = kk, .n = nn                 \
    }
#define LINEAR(label, kk, nn)                                                            \
    ONE_LINEAR(label, BF16, 1, kk, nn), ONE_LINEAR(label, BF16, 4, kk, nn),              \
        ONE_LINEAR(label, BF16, 8, kk, nn), ONE_LINEAR(label, BF16, 64, kk, nn),         \
        ONE_LINEAR(label, F32, 1, kk, nn), ONE_LINEAR(label, F32, 4, kk, nn),            \
        ONE_LINEAR(label, F32, 8, kk, nn), ONE_LINEAR(label, F32, 64, kk, nn)
#define QKV(type, m, kk)                                                                 \
    {                                                                                    \
        .name = "norm_linear qkv " #kk " M" #m " " #type, .make = make_qkv,              \
        .call = call_qkv, .t = OG_##type, .rows = m, .k = kk                             \
    }
#define GLU(type, m, kk, nn)                                                             \
    {                                                                                    \
        .name = "glu_linear " #kk ">" #nn " M" #m " " #type, .make = make_glu,           \
        .call = call_glu, .t = OG_##type, .rows = m, .k = kk, .n = nn                    \
    }
#define CONV(type, r, cin, cout, kk, dil)                                                \
    {                                                                                    \
        .name = "conv1d " #cin ">" #cout " k" #kk " d" #dil " T" #r " " #type,           \
        .make = make_conv, .call = call_conv, .t = OG_##type, .rows = r, .k = cin,       \
        .n = cout, .taps = kk, .step = dil                                               \
    }
#define TRANSPOSED(type, r, cin, cout, times, stride)                                    \
    {                                                                                    \
        .name = "conv_transpose1d " #cin ">" #cout " s" #stride " T" #r " " #type,       \
        .make = make_transposed, .call = call_transposed, .t = OG_##type, .rows = r,     \
        .k = cin, .n = cout, .taps = times, .step = stride                               \
    }
#define DEPTHWISE(type, r, cc)                                                           \
    {                                                                                    \
        .name = "conv1d_depthwise " #cc " k7 T" #r " " #type, .make = make_depthwise,    \
        .call = call_depthwise, .t = OG_##type, .rows = r, .k = cc, .taps = 7            \
    }
#define ATTENTION(label, type, r, kv, prompt)                                            \
    {                                                                                    \
        .name = "attention " label " " #type, .make = make_attention,                    \
        .call = call_attention, .t = OG_##type, .rows = r, .heads = 16, .kv_heads = 8,   \
        .dim = 128, .past = kv, .what = prompt                                           \
    }
#define ROPE(r)                                                                          \
    {                                                                                    \
        .name = "rope, norm, append M" #r, .make = make_rope, .call = call_rope,         \
        .t = OG_F32, .rows = r, .heads = 16, .kv_heads = 8, .dim = 128, .past = 300      \
    }
#define MAP(label, op, type, r, kk)                                                      \
    {                                                                                    \
        .name = label " " #r "x" #kk, .make = make_map, .call = call_map,                \
        .t = OG_##type, .rows = r, .k = kk, .what = op                                   \
    }
#define SAMPLE(label, r, vocab, drawn)                                                   \
    {                                                                                    \
        .name = "sample " label " M" #r " V" #vocab, .make = make_sample,                \
        .call = call_sample, .rows = r, .k = vocab, .what = drawn                        \
    }
#define DEPTH(type, m, width)                                                            \
    {                                                                                    \
        .name = "depth_ar talker " #width " M" #m " " #type, .make = make_depth,         \
        .call = call_depth, .t = OG_##type, .rows = m, .k = width                        \
    }

const ops_case ops_cases[] = {
    /* The talker of 0.6B and the code predictor of both; then what 1.7B has beside them.
     */
    LINEAR("1024>1024", 1024, 1024),
    LINEAR("1024>2048", 1024, 2048),
    LINEAR("2048>1024", 2048, 1024),
    LINEAR("1024>3072", 1024, 3072),
    LINEAR("3072>1024", 3072, 1024),
    LINEAR("2048>2048", 2048, 2048),
    LINEAR("2048>3072", 2048, 3072),
    LINEAR("2048>6144", 2048, 6144),
    LINEAR("6144>2048", 6144, 2048),
    QKV(BF16, 1, 1024),
    QKV(BF16, 8, 1024),
    QKV(BF16, 1, 2048),
    QKV(BF16, 8, 2048),
    GLU(BF16, 1, 1024, 3072),
    GLU(BF16, 8, 1024, 3072),
    GLU(BF16, 1, 2048, 6144),
    GLU(BF16, 8, 2048, 6144),
    DEPTH(BF16, 1, 1024),
    DEPTH(BF16, 8, 1024),
    DEPTH(BF16, 1, 2048),

    ATTENTION("M1 KV300", F32, 1, 300, 0),
    ATTENTION("M1 KV2000", F32, 1, 2000, 0),
    ATTENTION("M8 KV300", F32, 8, 300, 0),
    ATTENTION("M8 KV2000", F32, 8, 2000, 0),
    ATTENTION("M8 KV2000", BF16, 8, 2000, 0),
    ATTENTION("prompt of 60", F32, 60, 0, 1),
    ROPE(1),
    ROPE(8),
    SAMPLE("greedy", 1, 3072, 0),
    SAMPLE("drawn", 1, 3072, 1),
    SAMPLE("drawn", 8, 3072, 1),
    SAMPLE("drawn", 1, 2048, 1),

    /* The vocoder: one frame is 4 rows after its upsampling by two twice; T4, T48: 1 and
     * 12 frames. Convolutions as published (f32), some in bf16. */
    CONV(F32, 1, 512, 1024, 3, 1),
    TRANSPOSED(F32, 1, 1024, 1024, 1, 2),
    TRANSPOSED(F32, 24, 1024, 1024, 1, 2),
    DEPTHWISE(F32, 4, 1024),
    DEPTHWISE(F32, 48, 1024),
    CONV(F32, 4, 1024, 1536, 7, 1),
    CONV(F32, 48, 1024, 1536, 7, 1),
    CONV(BF16, 4, 1024, 1536, 7, 1),
    TRANSPOSED(F32, 4, 1536, 768, 2, 8),
    TRANSPOSED(F32, 48, 1536, 768, 2, 8),
    CONV(F32, 32, 768, 768, 7, 1),
    CONV(F32, 384, 768, 768, 7, 1),
    CONV(BF16, 32, 768, 768, 7, 1),
    CONV(F32, 32, 768, 768, 1, 1),
    TRANSPOSED(F32, 32, 768, 384, 2, 5),
    CONV(F32, 160, 384, 384, 7, 3),
    CONV(F32, 1920, 384, 384, 7, 3),
    CONV(F32, 160, 384, 384, 1, 1),
    TRANSPOSED(F32, 160, 384, 192, 2, 4),
    CONV(F32, 640, 192, 192, 7, 9),
    CONV(F32, 640, 192, 192, 1, 1),
    TRANSPOSED(F32, 640, 192, 96, 2, 3),
    CONV(F32, 1920, 96, 96, 7, 9),
    CONV(F32, 1920, 96, 96, 1, 1),
    CONV(F32, 1920, 96, 1, 7, 1),

    MAP("rms_norm", RMS_NORM, BF16, 1, 1024),
    MAP("rms_norm", RMS_NORM, BF16, 64, 2048),
    MAP("layer_norm", LAYER_NORM, F32, 48, 1024),
    MAP("unary silu", SILU, F32, 64, 3072),
    MAP("unary gelu", GELU, F32, 48, 4096),
    MAP("binary add", ADD, F32, 64, 2048),
    MAP("scaled_add", SCALED_ADD, F32, 48, 1024),
    MAP("snake", SNAKE, F32, 1920, 96),
    MAP("snake", SNAKE, F32, 32, 768),
    MAP("copy", COPY, F32, 1024, 4096),
    MAP("gather_rows", GATHER, BF16, 8, 1024),
    MAP("row_sum of 16", ROW_SUM, BF16, 8, 1024),
};
const int n_ops_cases = sizeof ops_cases / sizeof ops_cases[0];
