#include "tests/kernels/cases.h"
#include "kernels/base/alloc.h"
#include "kernels/elem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int case_open(case_env *env, const char *backend, int threads) {
    memset(env, 0, sizeof *env);
    int rc = og_device_open(backend, 0, threads, &env->dev, NULL);
    return rc < 0 ? rc : og_exec_create(env->dev, 1 << 16, &env->ex, NULL);
}

void case_close(case_env *env) {
    case_clear(env);
    og_free(env->out);
    og_exec_destroy(env->ex);
    og_device_close(env->dev);
}

void case_clear(case_env *env) {
    for (int i = 0; i < env->n_blocks; i++) og_device_free(env->dev, env->blocks[i]);
    env->n_blocks = 0;
    env->n_out = 0;
    env->n_ends = 0;
}

float case_random(uint32_t *seed) {
    uint32_t x = *seed += 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    x ^= x >> 16;
    return (float)(x >> 8) * 0x1p-23f - 1.0f;
}

/* A helper that fails here is a failed test set-up; there is nothing to go on with. */
static void must(int rc) {
    if (rc < 0) abort();
}

static void *block(case_env *env, size_t n) {
    void *p;
    if (env->n_blocks == CASE_BLOCKS) abort();
    must(og_device_alloc(env->dev, n + 64, &p, NULL));
    env->blocks[env->n_blocks++] = p;
    return p;
}

void *case_bytes(case_env *env, const void *bytes, size_t n) {
    void *p = block(env, n);
    must(og_device_upload(env->dev, p, bytes, n, NULL));
    return p;
}

int32_t *case_ints(case_env *env, const int32_t *values, int n) {
    return case_bytes(env, values, (size_t)n * sizeof *values);
}

static og_place place_of(const case_env *env) {
    return og_exec_alloc(env->ex, OG_F32, 1, (int64_t[]){0}).place;
}

og_tensor case_tensor(case_env *env, og_dtype t, int rank, const int64_t *ne, float scale,
                      int misalign) {
    og_tensor out = og_tensor_nd(t, rank, ne, NULL);
    int64_t n = og_tensor_count(&out);
    char *host = og_calloc(1, og_tensor_bytes(&out) + 1);
    if (!host) abort();
    for (int64_t i = 0; i < n; i++)
        og__elem_set(host, t, i, scale * case_random(&env->seed));
    char *p = block(env, og_tensor_bytes(&out) + (size_t)misalign);
    must(og_device_upload(env->dev, p + misalign, host, og_tensor_bytes(&out), NULL));
    og_free(host);
    out.data = p + misalign;
    out.place = place_of(env);
    return out;
}

og_tensor case_zeros(case_env *env, og_dtype t, int rank, const int64_t *ne) {
    og_tensor out = og_tensor_nd(t, rank, ne, NULL);
    out.data = block(env, og_tensor_bytes(&out));
    out.place = place_of(env);
    return out;
}

void case_keep(case_env *env, const og_tensor *t) {
    int64_t n = og_tensor_count(t);
    float *out = og_realloc(env->out, (size_t)(env->n_out + n + 1) * sizeof *out);
    char *host = og_malloc(og_tensor_bytes(t));
    if (!out || !host) abort();
    env->out = out;
    must(og_exec_sync(env->ex));
    must(og_device_download(env->dev, host, t->data, og_tensor_bytes(t), NULL));
    for (int64_t i = 0; i < n; i++) {
        int32_t v;
        if (t->dtype == OG_I32) memcpy(&v, host + i * 4, 4);
        out[env->n_out + i] =
            t->dtype == OG_I32 ? (float)v : og__elem(host, t->dtype, i);
    }
    env->n_out += n;
    if (env->n_ends == CASE_OUTPUTS) abort();
    env->ends[env->n_ends++] = env->n_out;
    og_free(host);
}

/* Measure, make room, run; a case's op is one statement over `rc`. */
#define MEASURE_AND_RUN(env, rc, call)                                 \
    do {                                                               \
        og_exec_reset((env)->ex);                                      \
        og_exec_set_mode((env)->ex, OG_MEASURE);                       \
        rc = (call);                                                   \
        og_exec_reset((env)->ex);                                      \
        if (rc == 0) rc = og_exec_reserve((env)->ex, og_exec_peak((env)->ex), NULL); \
        og_exec_set_mode((env)->ex, OG_RUN);                           \
        if (rc == 0) rc = (call);                                      \
        og_exec_reset((env)->ex);                                      \
    } while (0)

int case_run(case_env *env, const og_case *c) {
    case_clear(env);
    env->seed = 1;
    for (const char *p = c->name; *p; p++) env->seed = env->seed * 31 + (uint32_t)*p;
    return c->run(env, c);
}

static og_tensor tensor_2d(case_env *env, og_dtype t, int64_t a, int64_t b, float scale,
                           int misalign) {
    return case_tensor(env, t, 2, (int64_t[]){a, b}, scale, misalign);
}

static og_tensor vector(case_env *env, og_dtype t, int64_t n, float scale, int misalign) {
    return case_tensor(env, t, 1, &n, scale, misalign);
}

static og_tensor zeros_2d(case_env *env, int64_t a, int64_t b) {
    return case_zeros(env, OG_F32, 2, (int64_t[]){a, b});
}

/* ---- linear ------------------------------------------------------------------------- */

#define BIAS 16
#define SCALE 32
#define RESIDUAL 64
#define INPLACE 128 /* the residual is the output */
#define THREE 256   /* three weights of different widths */
#define STRIDED 512
#define ACT(what) ((og_act)((what) & 15))

static int run_linear(case_env *env, const og_case *c) {
    int n = c->what & THREE ? 3 : 1, rc;
    og_tensor x = tensor_2d(env, OG_F32, c->rows, c->what & STRIDED ? c->k + 5 : c->k, 1, 0);
    og_tensor w[3], y[3], bias[3] = {{0}};
    x.ne[1] = c->k;
    for (int i = 0; i < n; i++) {
        int64_t width = c->n + 7 * i;
        w[i] = tensor_2d(env, c->t, width, c->k, 1, c->misalign);
        y[i] = c->what & INPLACE ? tensor_2d(env, OG_F32, c->rows, width, 1, 0)
                                 : zeros_2d(env, c->rows, width);
        if (c->what & BIAS) bias[i] = vector(env, c->t, width, 1, c->misalign);
    }
    og_tensor scale = vector(env, c->t, c->n, 1, c->misalign);
    og_tensor residual = tensor_2d(env, OG_F32, c->rows, c->n, 1, 0);
    og_epilogue epi = {ACT(c->what), c->what & SCALE ? &scale : NULL,
                       c->what & INPLACE ? &y[0] : c->what & RESIDUAL ? &residual : NULL};
    MEASURE_AND_RUN(env, rc, og_op_linear(env->ex, n, y, &x, w, bias, &epi));
    for (int i = 0; i < n && rc == 0; i++) case_keep(env, &y[i]);
    return rc;
}

static int run_norm_linear(case_env *env, const og_case *c) {
    int rc;
    og_tensor x = tensor_2d(env, OG_F32, c->rows, c->k, 1, 0);
    og_tensor norm = vector(env, c->t, c->k, 1, c->misalign);
    og_tensor w[2] = {tensor_2d(env, c->t, c->n, c->k, 1, c->misalign),
                      tensor_2d(env, c->t, c->n, c->k, 1, c->misalign)};
    og_tensor y[2] = {zeros_2d(env, c->rows, c->n), zeros_2d(env, c->rows, c->n)};
    MEASURE_AND_RUN(env, rc,
                    og_op_norm_linear(env->ex, 2, y, &x, &norm, 1e-6f, w, NULL));
    if (rc < 0) return rc;
    case_keep(env, &y[0]);
    case_keep(env, &y[1]);
    MEASURE_AND_RUN(env, rc, og_op_glu_linear(env->ex, &y[0], &x, &norm, 1e-6f, &w[0], &w[1],
                                              OG_ACT_SILU));
    if (rc == 0) case_keep(env, &y[0]);
    return rc;
}

/* ---- map, norm, move ------------------------------------------------------------------ */

static int run_unary(case_env *env, const og_case *c) {
    int rc;
    og_tensor x = tensor_2d(env, OG_F32, c->rows, c->k, 12, 0);
    og_tensor y = zeros_2d(env, c->rows, c->k);
    MEASURE_AND_RUN(env, rc, og_op_unary(env->ex, &y, &x, ACT(c->what)));
    if (rc == 0) case_keep(env, &y);
    return rc;
}

static int run_binary(case_env *env, const og_case *c) {
    int rc = 0;
    og_tensor a = tensor_2d(env, OG_F32, c->rows, c->k, 2, 0);
    og_tensor b = tensor_2d(env, OG_F32, c->rows, c->k, 2, 0);
    og_tensor row = vector(env, OG_F32, c->k, 2, 0), y = zeros_2d(env, c->rows, c->k);
    for (int op = OG_ADD; op <= OG_DIV && rc == 0; op++) {
        MEASURE_AND_RUN(env, rc, og_op_binary(env->ex, &y, &a, &b, (og_binary)op));
        if (rc == 0) case_keep(env, &y);
        if (rc == 0)
            MEASURE_AND_RUN(env, rc, og_op_binary(env->ex, &y, &a, &row, (og_binary)op));
        if (rc == 0) case_keep(env, &y);
    }
    return rc;
}

static int run_scaled_add(case_env *env, const og_case *c) {
    int rc;
    og_tensor a = tensor_2d(env, OG_F32, c->rows, c->k, 2, 0);
    og_tensor b = tensor_2d(env, OG_F32, c->rows, c->k, 2, 0), none = {0};
    og_tensor scale = vector(env, c->t, c->k, 1, c->misalign);
    MEASURE_AND_RUN(env, rc, og_op_scaled_add(env->ex, &b, &a, &b, &scale));
    if (rc < 0) return rc;
    case_keep(env, &b);
    MEASURE_AND_RUN(env, rc, og_op_scaled_add(env->ex, &a, &a, &b, &none));
    if (rc == 0) case_keep(env, &a);
    return rc;
}

static int run_snake(case_env *env, const og_case *c) {
    int rc;
    og_tensor x = tensor_2d(env, OG_F32, c->rows, c->k, 5, 0);
    og_tensor alpha = vector(env, OG_F32, c->k, (float)c->what, 0);
    og_tensor beta = vector(env, OG_F32, c->k, 2, 0);
    MEASURE_AND_RUN(env, rc, og_op_snake(env->ex, &x, &x, &alpha, &beta));
    if (rc < 0) return rc;
    case_keep(env, &x);
    MEASURE_AND_RUN(env, rc, og_op_clamp(env->ex, &x, &x, -0.5f, 1.0f));
    if (rc == 0) case_keep(env, &x);
    return rc;
}

static int run_norm(case_env *env, const og_case *c) {
    int rc;
    og_tensor x = tensor_2d(env, OG_F32, c->rows, c->k, 3, 0), none = {0};
    og_tensor w = vector(env, c->t, c->k, 1, c->misalign);
    og_tensor b = vector(env, c->t, c->k, 1, c->misalign), y = zeros_2d(env, c->rows, c->k);
    MEASURE_AND_RUN(env, rc, og_op_rms_norm(env->ex, &y, &x, &w, 1e-5f));
    if (rc < 0) return rc;
    case_keep(env, &y);
    MEASURE_AND_RUN(env, rc, og_op_layer_norm(env->ex, &y, &x, &w, &b, 1e-6f));
    if (rc < 0) return rc;
    case_keep(env, &y);
    MEASURE_AND_RUN(env, rc, og_op_layer_norm(env->ex, &x, &x, &w, &none, 1e-6f));
    if (rc == 0) case_keep(env, &x);
    return rc;
}

static int run_move(case_env *env, const og_case *c) {
    int rc;
    int32_t picks[64];
    for (int i = 0; i < c->rows; i++) picks[i] = i % 5 == 4 ? -1 : i * 7 % c->n;
    og_tensor table = tensor_2d(env, c->t, c->n, c->k, 1, c->misalign);
    og_tensor ids = og_tensor_1d(OG_I32, c->rows, case_ints(env, picks, c->rows));
    ids.place = table.place;
    og_tensor y = zeros_2d(env, c->rows, c->k), all = zeros_2d(env, c->n, c->k);
    MEASURE_AND_RUN(env, rc, og_op_gather_rows(env->ex, &y, &table, &ids));
    if (rc < 0) return rc;
    case_keep(env, &y);
    MEASURE_AND_RUN(env, rc, og_op_copy(env->ex, &all, &table));
    if (rc < 0) return rc;
    case_keep(env, &all);
    MEASURE_AND_RUN(env, rc, og_op_scatter_rows(env->ex, &all, &y, &ids));
    if (rc < 0) return rc;
    case_keep(env, &all);
    og_tensor turned = all, back = case_zeros(env, c->t, 2, (int64_t[]){c->k, c->n});
    turned.ne[0] = c->k, turned.ne[1] = c->n, turned.stride[0] = 1, turned.stride[1] = c->k;
    MEASURE_AND_RUN(env, rc, og_op_copy(env->ex, &back, &turned));
    if (rc < 0) return rc;
    case_keep(env, &back);
    MEASURE_AND_RUN(env, rc, og_op_fill(env->ex, &back, 0.25f));
    if (rc == 0) case_keep(env, &back);
    return rc;
}

static int run_row_sum(case_env *env, const og_case *c) {
    int rc;
    int32_t off[65] = {0}, table[512], index[512];
    for (int r = 0, n = 0; r < c->rows; r++) {
        for (int j = 0; j < (r * 5 + 2) % 8; j++, n++) {
            table[n] = (n * 3 + r) % 2;
            index[n] = (n * 11 + r) % c->n;
        }
        off[r + 1] = n;
    }
    og_tensor tables[2] = {tensor_2d(env, c->t, c->n, c->k, 1, c->misalign),
                           tensor_2d(env, OG_F32, c->n, c->k, 1, 0)};
    og_row_prog prog = {tables, 2, case_ints(env, off, c->rows + 1),
                        case_ints(env, table, 512), case_ints(env, index, 512)};
    og_tensor y = zeros_2d(env, c->rows, c->k);
    MEASURE_AND_RUN(env, rc, og_op_row_sum(env->ex, &y, &prog));
    if (rc == 0) case_keep(env, &y);
    return rc;
}

/* ---- packed rows: segments of lengths 1, 2, 3 ... over scattered slots ------------------- */

#define MAX_ROWS 512
#define MAX_SEGMENTS 16
#define SLOTS 16

static og_rows packed(case_env *env, const og_case *c, int first_pos) {
    int32_t slot[MAX_ROWS], pos[3 * MAX_ROWS], cu[MAX_SEGMENTS + 1] = {0};
    int n_seg = c->segments ? c->segments : 1, r = 0;
    for (int s = 0; s < n_seg; s++) {
        int left = c->rows - r, len = s == n_seg - 1 ? left : left / (n_seg - s) + s % 2;
        for (int t = 0; t < len; t++, r++) {
            slot[r] = (s * 5 + 3) % SLOTS;
            pos[3 * r] = pos[3 * r + 1] = pos[3 * r + 2] = first_pos + t + s;
        }
        cu[s + 1] = r;
    }
    return (og_rows){c->rows, n_seg, case_ints(env, slot, c->rows),
                     case_ints(env, pos, 3 * c->rows), case_ints(env, cu, n_seg + 1)};
}

static int run_conv(case_env *env, const og_case *c) {
    int rc = 0;
    int64_t depth = (c->taps - 1) * c->dilation;
    og_rows rows = packed(env, c, 0);
    og_tensor x = tensor_2d(env, OG_F32, c->rows, c->k, 1, 0), y = zeros_2d(env, c->rows, c->n);
    og_tensor w = case_tensor(env, c->t, 3, (int64_t[]){c->n, c->taps, c->k}, 1, c->misalign);
    og_tensor bias = vector(env, c->t, c->n, 1, c->misalign), state = {0}, none = {0};
    og_tensor scale = vector(env, OG_F32, c->n, 1, 0);
    if (depth) state = case_tensor(env, OG_F32, 3, (int64_t[]){SLOTS, depth, c->k}, 1, 0);
    og_epilogue epi = {ACT(c->what), c->what & SCALE ? &scale : NULL,
                       c->what & INPLACE ? &y : NULL};
    for (int step = 0; step < 2 && rc == 0; step++) { /* the second reads the carried state */
        og_exec_reset(env->ex);
        og_exec_set_mode(env->ex, OG_MEASURE);
        rc = og_op_conv1d(env->ex, &y, &x, &w, c->what & BIAS ? &bias : &none, &state, &rows,
                          c->dilation, &epi);
        og_exec_reset(env->ex);
        if (rc == 0) rc = og_exec_reserve(env->ex, og_exec_peak(env->ex), NULL);
        og_exec_set_mode(env->ex, OG_RUN);
        if (rc == 0)
            rc = og_op_conv1d(env->ex, &y, &x, &w, c->what & BIAS ? &bias : &none, &state,
                              &rows, c->dilation, &epi);
        if (rc == 0) case_keep(env, &y);
    }
    if (rc == 0 && depth) case_keep(env, &state);
    return rc;
}

static int run_depthwise(case_env *env, const og_case *c) {
    int rc;
    int64_t depth = (c->taps - 1) * c->dilation;
    og_rows rows = packed(env, c, 0);
    og_tensor x = tensor_2d(env, OG_F32, c->rows, c->k, 1, 0), y = zeros_2d(env, c->rows, c->k);
    og_tensor w = tensor_2d(env, c->t, c->k, c->taps, 1, c->misalign), state = {0};
    og_tensor bias = vector(env, c->t, c->k, 1, c->misalign);
    if (depth) state = case_tensor(env, OG_F32, 3, (int64_t[]){SLOTS, depth, c->k}, 1, 0);
    MEASURE_AND_RUN(env, rc, og_op_conv1d_depthwise(env->ex, &y, &x, &w, &bias, &state, &rows,
                                                    c->dilation));
    if (rc == 0) case_keep(env, &y);
    if (rc == 0 && depth) case_keep(env, &state);
    return rc;
}

static int run_transposed(case_env *env, const og_case *c) {
    int rc;
    int64_t stride = c->dilation, taps = (c->taps + stride - 1) / stride;
    og_rows rows = packed(env, c, 0);
    og_tensor x = tensor_2d(env, OG_F32, c->rows, c->k, 1, 0), state = {0};
    og_tensor y = zeros_2d(env, c->rows * stride, c->n);
    og_tensor w =
        case_tensor(env, c->t, 3, (int64_t[]){stride * c->n, taps, c->k}, 1, c->misalign);
    og_tensor bias = vector(env, c->t, c->n, 1, c->misalign);
    if (taps > 1)
        state = case_tensor(env, OG_F32, 3, (int64_t[]){SLOTS, taps - 1, c->k}, 1, 0);
    MEASURE_AND_RUN(env, rc, og_op_conv_transpose1d(env->ex, &y, &x, &w, &bias, &state, &rows,
                                                    (int)stride));
    if (rc == 0) case_keep(env, &y);
    if (rc == 0 && taps > 1) case_keep(env, &state);
    return rc;
}

/* ---- attention ------------------------------------------------------------------------- */

/* Pages dealt out of order, page 0 left as trash. Holds `layers` pools. */
static void make_kv(case_env *env, const og_case *c, og_kv *kv, int layers, int positions) {
    int32_t table[SLOTS * 256];
    int per = c->ring ? c->ring : (positions + c->page - 1) / c->page;
    int total = SLOTS * per;
    for (int s = 0; s < SLOTS; s++)
        for (int i = 0; i < per; i++) table[s * per + i] = 1 + (s + i * SLOTS) * 7 % total;
    while (total % 7 == 0) abort(); /* 7 must be a unit for the pages to be distinct */
    int64_t ne[4] = {total + 1, c->page, c->kv_heads, c->dim};
    for (int l = 0; l < layers; l++) {
        kv[l] = (og_kv){.k = case_tensor(env, c->t, 4, ne, 1, 0),
                        .v = case_tensor(env, c->t, 4, ne, 1, 0),
                        .max_pages = per, .page = c->page, .ring = c->ring};
        kv[l].table = case_ints(env, table, SLOTS * per);
    }
}

static og_tensor heads_3d(case_env *env, int64_t rows, int64_t heads, int64_t dim) {
    return case_tensor(env, OG_F32, 3, (int64_t[]){rows, heads, dim}, 1, 0);
}

/* Rope table, norm + rope + append, attention; first positions hold random keys. */
static int run_attention(case_env *env, const og_case *c) {
    int rc;
    og_kv kv;
    og_rows rows = packed(env, c, c->k);
    make_kv(env, c, &kv, 1, c->k + c->rows + MAX_SEGMENTS);
    og_tensor q = heads_3d(env, c->rows, c->heads, c->dim), none = {0};
    og_tensor k = heads_3d(env, c->rows, c->kv_heads, c->dim), y = q;
    og_tensor v = heads_3d(env, c->rows, c->kv_heads, c->dim);
    og_tensor w = vector(env, OG_F32, c->dim, 1, 0), freq = vector(env, OG_F32, c->dim / 2, 1, 0);
    og_tensor cos = zeros_2d(env, c->rows, c->dim / 2), sin = zeros_2d(env, c->rows, c->dim / 2);
    y = heads_3d(env, c->rows, c->heads, c->dim);
    MEASURE_AND_RUN(env, rc, og_op_rope_table(env->ex, &cos, &sin, &rows, &freq));
    if (rc < 0) return rc;
    case_keep(env, &cos);
    case_keep(env, &sin);
    og_tensor *norm = c->what ? &w : &none;
    og_exec_set_mode(env->ex, OG_MEASURE);
    rc = og_op_qk_norm_rope_append(env->ex, &q, &k, &v, norm, norm, 1e-6f, &cos, &sin, &rows,
                                   &kv);
    og_exec_reset(env->ex);
    og_exec_set_mode(env->ex, OG_RUN);
    if (rc == 0) rc = og_exec_reserve(env->ex, og_exec_peak(env->ex), NULL);
    if (rc == 0)
        rc = og_op_qk_norm_rope_append(env->ex, &q, &k, &v, norm, norm, 1e-6f, &cos, &sin,
                                       &rows, &kv);
    if (rc < 0) return rc;
    case_keep(env, &q);
    case_keep(env, &k);
    case_keep(env, &kv.k);
    MEASURE_AND_RUN(env, rc, og_op_attn_paged(env->ex, &y, &q, &kv, &rows, 0.3f, c->window));
    if (rc == 0) case_keep(env, &y);
    return rc;
}

/* ---- macro ops -------------------------------------------------------------------------- */

#define LAYERS 2

static void make_layer(case_env *env, const og_case *c, og_decoder_layer *l, int64_t d) {
    int64_t q = c->heads * c->dim, kv = c->kv_heads * c->dim, f = c->n, m = c->misalign;
    float s = 1.0f / __builtin_sqrtf((float)d);
    *l = (og_decoder_layer){
        .input_norm = vector(env, c->t, d, 1, (int)m),
        .q = tensor_2d(env, c->t, q, d, s, (int)m),
        .k = tensor_2d(env, c->t, kv, d, s, (int)m),
        .v = tensor_2d(env, c->t, kv, d, s, (int)m),
        .o = tensor_2d(env, c->t, d, q, s, (int)m),
        .post_norm = vector(env, c->t, d, 1, (int)m),
        .gate = tensor_2d(env, c->t, f, d, s, (int)m),
        .up = tensor_2d(env, c->t, f, d, s, (int)m),
        .down = tensor_2d(env, c->t, d, f, s, (int)m),
    };
    if (c->what & 1) {
        l->q_norm = vector(env, c->t, c->dim, 1, (int)m);
        l->k_norm = vector(env, c->t, c->dim, 1, (int)m);
    }
    if (c->what & 2) {
        l->attn_scale = vector(env, c->t, d, 1, (int)m);
        l->mlp_scale = vector(env, c->t, d, 1, (int)m);
    }
}

static og_decoder make_decoder(case_env *env, const og_case *c, og_decoder_layer *layers,
                               int64_t d) {
    for (int i = 0; i < LAYERS; i++) make_layer(env, c, &layers[i], d);
    return (og_decoder){.layers = layers, .n_layers = LAYERS, .n_heads = c->heads,
                        .n_kv_heads = c->kv_heads, .head_dim = c->dim, .window = c->window,
                        .eps = 1e-6f, .final_norm = vector(env, c->t, d, 1, c->misalign),
                        .inv_freq = vector(env, OG_F32, c->dim / 2, 1, 0)};
}

static int run_decoder(case_env *env, const og_case *c) {
    int rc;
    og_decoder_layer layers[LAYERS];
    og_kv kv[LAYERS];
    og_rows rows = packed(env, c, 0);
    og_case f32_kv = *c;
    f32_kv.t = OG_F32;
    make_kv(env, &f32_kv, kv, LAYERS, c->rows + MAX_SEGMENTS);
    og_decoder net = make_decoder(env, c, layers, c->k);
    og_tensor x = tensor_2d(env, OG_F32, c->rows, c->k, 1, 0);
    og_exec_set_mode(env->ex, OG_MEASURE);
    rc = og_op_decoder_stack(env->ex, &x, &net, kv, &rows);
    og_exec_reset(env->ex);
    og_exec_set_mode(env->ex, OG_RUN);
    if (rc == 0) rc = og_exec_reserve(env->ex, og_exec_peak(env->ex), NULL);
    if (rc == 0) rc = og_op_decoder_stack(env->ex, &x, &net, kv, &rows);
    og_exec_reset(env->ex);
    if (rc == 0) case_keep(env, &x);
    return rc;
}

#define GROUPS 4
#define DEPTH_VOCAB 37

/* c->taps is the width of the talker: a projection is made when it differs from c->k. */
static int run_depth(case_env *env, const og_case *c) {
    int rc;
    int64_t h = c->taps, d = c->k;
    og_decoder_layer layers[LAYERS];
    og_kv kv[LAYERS];
    og_tensor embed[GROUPS - 1], head[GROUPS - 1];
    og_case f32_kv = *c;
    f32_kv.t = OG_F32;
    make_kv(env, &f32_kv, kv, LAYERS, GROUPS + 1);
    og_depth net = {.net = make_decoder(env, c, layers, d), .n_groups = GROUPS,
                    .first = tensor_2d(env, c->t, 50, h, 1, c->misalign), .embed = embed,
                    .head = head};
    for (int g = 0; g < GROUPS - 1; g++) {
        embed[g] = tensor_2d(env, c->t, DEPTH_VOCAB, h, 1, c->misalign);
        head[g] = tensor_2d(env, c->t, DEPTH_VOCAB, d, 1, c->misalign);
    }
    if (h != d) {
        net.proj = tensor_2d(env, c->t, d, h, 1, c->misalign);
        net.proj_bias = vector(env, c->t, d, 1, c->misalign);
    }
    int32_t codes[SLOTS * GROUPS] = {0}, slots[SLOTS];
    og_sample_row params[SLOTS];
    for (int r = 0; r < c->rows; r++) {
        codes[r * GROUPS] = r * 13 % 50;
        slots[r] = (r * 5 + 2) % SLOTS;
        params[r] = (og_sample_row){.temperature = c->window < 0 ? 0.8f : 0.0f, .top_p = 0.9f,
                                    .repetition_penalty = 1.0f, .top_k = 20,
                                    .seed = (uint64_t)r, .count = 5};
    }
    net.net.window = 0;
    og_tensor out = case_zeros(env, OG_I32, 2, (int64_t[]){c->rows, GROUPS});
    must(og_device_upload(env->dev, out.data, codes, og_tensor_bytes(&out), NULL));
    og_tensor state = tensor_2d(env, OG_F32, c->rows, h, 1, 0);
    const og_sample_row *given = case_bytes(env, params, sizeof params);
    const int32_t *where = case_ints(env, slots, c->rows);
    MEASURE_AND_RUN(env, rc, og_op_depth_ar(env->ex, &out, &state, &net, kv, where, given));
    if (rc == 0) case_keep(env, &out);
    return rc;
}

/* ---- the table --------------------------------------------------------------------------- */

#define SUM "f32 sums in 16 lanes against double: a few roundings of partial sums"
#define EXACT "moves, and sums of a few f32 in a fixed order: no rounding may differ"
#define ELEMENT "f32 polynomials within 4 ulp, next to double rounded once"
#define DEEP "two layers of sums, norms and softmax, each within the bound of a sum"
#define CODES "codes are ids: the margins of these cases are far above the rounding"

#define LINEAR(label, type, off, r, kk, nn, flags)                        \
    {.name = "linear " label, .run = run_linear, .tol = 4e-6, .reason = SUM, \
     .t = type, .misalign = off, .rows = r, .k = kk, .n = nn, .what = flags}
#define CONV(label, type, off, r, cin, cout, kk, dil, segs, flags)        \
    {.name = "conv1d " label, .run = run_conv, .tol = 4e-6, .reason = SUM, .t = type, \
     .misalign = off, .rows = r, .k = cin, .n = cout, .taps = kk, .dilation = dil,    \
     .segments = segs, .what = flags}
#define TRANSPOSED(label, type, r, cin, cout, kk, stride, segs)           \
    {.name = "conv_transpose1d " label, .run = run_transposed, .tol = 4e-6, .reason = SUM, \
     .t = type, .rows = r, .k = cin, .n = cout, .taps = kk, .dilation = stride,            \
     .segments = segs}
#define DEPTHWISE(label, type, off, r, cc, kk, dil, segs)                 \
    {.name = "conv1d_depthwise " label, .run = run_depthwise, .tol = 2e-6, .reason = SUM, \
     .t = type, .misalign = off, .rows = r, .k = cc, .taps = kk, .dilation = dil,         \
     .segments = segs}
#define ATTENTION(label, type, r, segs, past, h, hkv, d, win, rng, pg, norm) \
    {.name = "attention " label, .run = run_attention, .tol = 1e-5,          \
     .reason = "softmax weights within a few ulp, and bf16 or f16 keys that round apart", \
     .t = type, .rows = r, .segments = segs, .k = past, .heads = h, .kv_heads = hkv,      \
     .dim = d, .window = win, .ring = rng, .page = pg, .what = norm}
#define UNARY(label, r, kk, a)                                            \
    {.name = "unary " label, .run = run_unary, .tol = 6e-7, .reason = ELEMENT, .rows = r, \
     .k = kk, .what = a}
#define PLAIN(label, fn, bound, why, type, off, r, kk, nn, flags)         \
    {.name = label, .run = fn, .tol = bound, .reason = why, .t = type, .misalign = off, \
     .rows = r, .k = kk, .n = nn, .what = flags}
#define STACK(label, fn, bound, why, type, off, r, segs, d, f, h, hkv, hd, win, talker, flags) \
    {.name = label, .run = fn, .tol = bound, .reason = why, .t = type, .misalign = off, \
     .rows = r, .segments = segs, .k = d, .n = f, .heads = h, .kv_heads = hkv, .dim = hd, \
     .window = win, .page = 4, .taps = talker, .what = flags}

const og_case cases[] = {
    LINEAR("1x1x1", OG_F32, 0, 1, 1, 1, 0),
    LINEAR("K 1", OG_BF16, 0, 5, 1, 9, BIAS),
    LINEAR("odd f32", OG_F32, 0, 1, 37, 23, BIAS | OG_ACT_SILU),
    LINEAR("odd bf16", OG_BF16, 0, 1, 37, 23, BIAS | SCALE | RESIDUAL),
    LINEAR("odd f16", OG_F16, 0, 1, 37, 23, BIAS | OG_ACT_GELU),
    LINEAR("f32 off by 1", OG_F32, 1, 2, 100, 70, BIAS | SCALE),
    LINEAR("f32 off by 2", OG_F32, 2, 13, 100, 70, BIAS | SCALE),
    LINEAR("bf16 off by 1", OG_BF16, 1, 3, 100, 70, BIAS | INPLACE),
    LINEAR("bf16 off by 1, many rows", OG_BF16, 1, 33, 100, 70, BIAS | INPLACE),
    LINEAR("f16 off by 1", OG_F16, 1, 19, 100, 70, RESIDUAL | OG_ACT_RELU),
    LINEAR("rows 2", OG_BF16, 0, 2, 64, 33, 0),
    LINEAR("rows 3", OG_BF16, 0, 3, 64, 33, OG_ACT_TANH),
    LINEAR("rows 4", OG_F32, 0, 4, 65, 33, OG_ACT_SIGMOID),
    LINEAR("rows 5", OG_F16, 0, 5, 63, 33, OG_ACT_ELU),
    LINEAR("rows 7", OG_BF16, 0, 7, 48, 129, OG_ACT_GELU_TANH),
    LINEAR("rows 11", OG_BF16, 0, 11, 1024, 65, 0),
    LINEAR("rows 12", OG_BF16, 0, 12, 1024, 65, 0),
    LINEAR("rows 13", OG_F32, 0, 13, 1040, 17, BIAS),
    LINEAR("rows 96", OG_BF16, 0, 96, 77, 50, BIAS | SCALE | INPLACE | OG_ACT_SILU),
    LINEAR("rows 200, f32", OG_F32, 0, 200, 32, 16, 0),
    LINEAR("K 6144", OG_BF16, 0, 1, 6144, 40, 0),
    LINEAR("K 6144, rows 20", OG_BF16, 0, 20, 6144, 40, 0),
    LINEAR("K 6144, f32, rows 14", OG_F32, 0, 14, 6144, 18, 0),
    LINEAR("three weights", OG_BF16, 0, 1, 96, 64, THREE | BIAS),
    LINEAR("three weights, rows 17", OG_BF16, 0, 17, 96, 64, THREE | BIAS),
    LINEAR("strided x", OG_F32, 0, 6, 48, 20, STRIDED),
    LINEAR("strided x, rows 30", OG_BF16, 0, 30, 50, 20, STRIDED),
    PLAIN("norm_linear and glu", run_norm_linear, 6e-6, SUM, OG_BF16, 1, 3, 75, 40, 0),
    PLAIN("norm_linear and glu, rows 40", run_norm_linear, 6e-6, SUM, OG_F32, 0, 40, 64, 48,
          0),

    CONV("k 1", OG_F32, 0, 9, 24, 31, 1, 1, 2, BIAS),
    CONV("k 3, one row", OG_F32, 0, 1, 16, 10, 3, 1, 1, BIAS),
    CONV("k 7", OG_F32, 0, 40, 32, 17, 7, 1, 3, BIAS | SCALE),
    CONV("k 7 dilation 3", OG_F32, 0, 50, 48, 48, 7, 3, 4, BIAS | INPLACE),
    CONV("k 7 dilation 9", OG_F32, 0, 100, 16, 16, 7, 9, 2, BIAS),
    CONV("odd channels", OG_F32, 0, 45, 19, 21, 5, 2, 3, BIAS | OG_ACT_SILU),
    CONV("odd channels, few rows", OG_F32, 2, 8, 19, 21, 5, 2, 3, BIAS),
    CONV("one channel out", OG_F32, 0, 60, 96, 1, 7, 1, 1, BIAS),
    CONV("one channel in", OG_F32, 0, 60, 1, 20, 7, 1, 2, BIAS),
    CONV("bf16", OG_BF16, 1, 30, 33, 18, 3, 1, 2, BIAS),
    CONV("f16, few rows", OG_F16, 1, 6, 33, 18, 3, 1, 2, BIAS),
    CONV("wide", OG_F32, 0, 70, 1088, 20, 7, 1, 2, BIAS),
    CONV("many segments", OG_F32, 0, 16, 32, 32, 7, 1, 16, BIAS),
    CONV("17 taps", OG_F32, 0, 30, 16, 16, 17, 1, 2, 0),

    TRANSPOSED("k 2 stride 2", OG_F32, 12, 24, 24, 2, 2, 2),
    TRANSPOSED("k 16 stride 8", OG_F32, 20, 48, 24, 16, 8, 3),
    TRANSPOSED("k 7 stride 3", OG_F32, 9, 17, 5, 7, 3, 2),
    TRANSPOSED("bf16 k 6 stride 3", OG_BF16, 30, 32, 16, 6, 3, 1),

    DEPTHWISE("k 7", OG_F32, 0, 30, 64, 7, 1, 3),
    DEPTHWISE("odd", OG_BF16, 1, 21, 37, 5, 2, 2),
    DEPTHWISE("k 1", OG_F32, 0, 5, 9, 1, 1, 1),

    ATTENTION("one row", OG_F32, 1, 1, 40, 4, 2, 64, 0, 0, 16, 1),
    ATTENTION("first row", OG_F32, 1, 1, 0, 4, 4, 16, 0, 0, 4, 0),
    ATTENTION("prefill", OG_F32, 33, 1, 0, 6, 3, 20, 0, 0, 16, 1),
    ATTENTION("prefill of three", OG_F32, 40, 3, 7, 4, 1, 128, 0, 0, 5, 1),
    ATTENTION("window", OG_F32, 30, 2, 50, 4, 4, 64, 9, 0, 4, 0),
    ATTENTION("ring", OG_F32, 12, 2, 50, 4, 2, 24, 13, 9, 3, 0),
    ATTENTION("bf16 kv", OG_BF16, 9, 2, 30, 4, 2, 32, 0, 0, 16, 1),
    ATTENTION("f16 kv", OG_F16, 9, 2, 30, 4, 2, 38, 0, 0, 16, 1),
    ATTENTION("batch 16", OG_F32, 16, 16, 25, 2, 1, 48, 0, 0, 8, 1),

    UNARY("none", 3, 33, OG_ACT_NONE),
    UNARY("silu", 9, 2000, OG_ACT_SILU),
    UNARY("gelu", 5, 100, OG_ACT_GELU),
    UNARY("gelu tanh", 5, 100, OG_ACT_GELU_TANH),
    UNARY("relu", 5, 17, OG_ACT_RELU),
    UNARY("elu", 5, 101, OG_ACT_ELU),
    UNARY("tanh", 5, 103, OG_ACT_TANH),
    UNARY("sigmoid", 40, 1000, OG_ACT_SIGMOID),
    UNARY("exp", 5, 97, OG_ACT_EXP),
    PLAIN("binary", run_binary, 2e-7, "one rounding", OG_F32, 0, 7, 45, 0, 0),
    PLAIN("scaled_add", run_scaled_add, 3e-7, "two roundings against one", OG_BF16, 1, 7, 45,
          0, 0),
    PLAIN("snake", run_snake, 1e-6, ELEMENT, OG_F32, 0, 30, 50, 0, 3),
    PLAIN("snake, steep", run_snake, 1e-6, ELEMENT, OG_F32, 0, 30, 700, 0, 200),
    PLAIN("norms", run_norm, 2e-6, SUM, OG_F32, 0, 5, 1024, 0, 0),
    PLAIN("norms, odd", run_norm, 2e-6, SUM, OG_BF16, 1, 9, 37, 0, 0),
    PLAIN("norms, width 1", run_norm, 2e-6, SUM, OG_F16, 1, 3, 1, 0, 0),
    PLAIN("move bf16", run_move, 0, EXACT, OG_BF16, 0, 13, 19, 11, 0),
    PLAIN("move f16", run_move, 0, EXACT, OG_F16, 1, 13, 33, 40, 0),
    PLAIN("move f32", run_move, 0, EXACT, OG_F32, 2, 64, 300, 40, 0),
    PLAIN("row_sum", run_row_sum, 0, EXACT, OG_BF16, 1, 20, 39, 30, 0),
    PLAIN("row_sum, wide", run_row_sum, 0, EXACT, OG_F32, 2, 60, 1024, 30, 0),

    STACK("decoder_stack", run_decoder, 2e-5, DEEP, OG_F32, 0, 7, 2, 32, 48, 4, 2, 16, 0, 0,
          1),
    STACK("decoder_stack bf16", run_decoder, 2e-5, DEEP, OG_BF16, 1, 20, 3, 48, 88, 6, 3, 20,
          0, 0, 1),
    STACK("decoder_stack, layer scales, window", run_decoder, 2e-5, DEEP, OG_F32, 0, 20, 1,
          28, 44, 6, 3, 6, 5, 0, 2),
    STACK("depth_ar greedy", run_depth, 0, CODES, OG_F32, 0, 1, 0, 32, 64, 4, 2, 16, 0, 32,
          1),
    STACK("depth_ar greedy, projection", run_depth, 0, CODES, OG_BF16, 1, 5, 0, 40, 56, 5, 1,
          12, 0, 48, 1),
    STACK("depth_ar sampled", run_depth, 0, CODES, OG_F32, 0, 9, 0, 32, 64, 4, 2, 16, -1, 32,
          1),
};
const int n_cases = sizeof cases / sizeof cases[0];
