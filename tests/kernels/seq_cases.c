#include "tests/kernels/seq_cases.h"
#include "kernels/base/alloc.h"

#include <stdlib.h>
#include <string.h>

static og_tensor random_2d(case_env *env, int64_t a, int64_t b, float scale) {
    return case_tensor(env, OG_F32, 2, (int64_t[]){a, b}, scale, 0);
}

static og_tensor zeros_2d(case_env *env, int64_t a, int64_t b) {
    return case_zeros(env, OG_F32, 2, (int64_t[]){a, b});
}

/* ---- one function per op ---------------------------------------------------------------- */

/* Columns of a wider tensor go in and out, so rows are not contiguous. */
static int run_pad(case_env *env, const seq_case *c) {
    int rc;
    og_tensor x = random_2d(env, c->rows, c->in + 3, 1), y;
    y = zeros_2d(env, c->rows + c->taps + c->stride, c->in + 2);
    x.ne[1] = y.ne[1] = c->in;
    SEQ_TWICE(env, rc, og_op_pad_time(env->ex, &y, &x, c->taps, (og_pad)c->what));
    og_tensor flat = zeros_2d(env, y.ne[0], c->in);
    if (!rc) rc = og_op_copy(env->ex, &flat, &y);
    if (!rc) case_keep(env, &flat);
    return rc;
}

static int run_conv(case_env *env, const seq_case *c) {
    int rc;
    int64_t n = (c->rows - (c->taps - 1) * c->dilation - 1) / c->stride + 1;
    og_tensor x = random_2d(env, c->rows, c->in, 1), y = random_2d(env, n, c->out, 1);
    og_tensor w = case_tensor(env, c->t, 3, (int64_t[]){c->out, c->taps, c->in}, 1,
                              c->t == OG_F32 ? 4 : 2);
    og_tensor bias = case_tensor(env, c->t, 1, (int64_t[]){c->out}, 1, 0), none = {0};
    og_tensor add = random_2d(env, n, c->out, 1);
    og_epilogue epi = {c->what ? OG_ACT_RELU : OG_ACT_NONE, NULL, c->what ? &add : NULL};
    SEQ_TWICE(env, rc, og_op_conv1d_valid(env->ex, &y, &x, &w, c->what ? &bias : &none,
                                      c->stride, c->dilation, &epi));
    if (!rc) case_keep(env, &y);
    return rc;
}

static int run_spectrum(case_env *env, const seq_case *c) {
    int rc;
    og_tensor x = random_2d(env, c->rows, 2 * c->in, 3), y = zeros_2d(env, c->rows, c->in);
    SEQ_TWICE(env, rc, og_op_magnitude(env->ex, &y, &x, 1e-9f));
    if (!rc) case_keep(env, &y);
    if (!rc) SEQ_TWICE(env, rc, og_op_log_floor(env->ex, &y, &y, 0.5f));
    if (!rc) case_keep(env, &y);
    return rc;
}

static int run_softmax(case_env *env, const seq_case *c) {
    int rc;
    og_tensor x = random_2d(env, c->rows, c->in, 9), y = zeros_2d(env, c->rows, c->in);
    SEQ_TWICE(env, rc, og_op_softmax_time(env->ex, &y, &x));
    if (!rc) case_keep(env, &y);
    return rc;
}

static int run_stats(case_env *env, const seq_case *c) {
    int rc;
    og_tensor x = random_2d(env, c->rows, c->in, 2), w = random_2d(env, c->rows, c->in, 3);
    og_tensor mean = case_zeros(env, OG_F32, 1, (int64_t[]){c->in});
    og_tensor std = case_zeros(env, OG_F32, 1, (int64_t[]){c->in}), none = {0};
    SEQ_TWICE(env, rc, og_op_time_stats(env->ex, &mean, &std, &x, &none, 1e-12f));
    if (!rc) case_keep(env, &mean), case_keep(env, &std);
    if (!rc) SEQ_TWICE(env, rc, og_op_softmax_time(env->ex, &w, &w));
    if (!rc) SEQ_TWICE(env, rc, og_op_time_stats(env->ex, &mean, &std, &x, &w, 1e-12f));
    if (!rc) case_keep(env, &mean), case_keep(env, &std);
    if (!rc) SEQ_TWICE(env, rc, og_op_time_stats(env->ex, &mean, &none, &x, &none, 0));
    if (!rc) case_keep(env, &mean);
    return rc;
}

static float *on_host(case_env *env, const og_tensor *t) {
    size_t bytes = og_tensor_bytes(t);
    float *p = og_malloc(bytes);
    if (!p || og_device_download(env->dev, p, t->data, bytes, NULL) < 0) abort();
    return p;
}

/* Codes go into a column of [R, 3]. Some rows of the table are equal, some are far away, and
 * some rows of x are rows of the table. */
static int run_nearest(case_env *env, const seq_case *c) {
    int rc;
    og_tensor x = random_2d(env, c->rows, c->in, 1), table = random_2d(env, c->out, c->in, 1);
    size_t row = (size_t)c->in * sizeof(float);
    float *t = on_host(env, &table), *v = on_host(env, &x);
    if (c->out > 8) {
        memcpy(t + 7 * c->in, t + 2 * c->in, row);
        for (int i = 0; i < c->in; i++) t[3 * c->in + i] *= 1e5f;
    }
    for (int r = 0; r < c->rows; r += 3) memcpy(v + r * c->in, t + r % c->out * c->in, row);
    table.data = case_bytes(env, t, og_tensor_bytes(&table));
    x.data = case_bytes(env, v, og_tensor_bytes(&x));
    og_free(t);
    og_free(v);
    og_tensor codes = case_zeros(env, OG_I32, 2, (int64_t[]){c->rows, 3}), ids = codes;
    ids.rank = 1;
    ids.data = (int32_t *)codes.data + 1;
    SEQ_TWICE(env, rc, og_op_rvq_nearest(env->ex, &ids, &x, &table));
    if (!rc) case_keep(env, &codes);
    return rc;
}

/* ---- the table ---------------------------------------------------------------------------- */

#define SUM "f32 sums in 16 lanes against double"
#define MOVED "rows are moved, nothing is computed"
#define DOUBLE "both sum in double, the weights are within an ulp or two"
#define DECIDED "decided in double on both"
#define PAD(label, t, c, l, r, m) \
    {"pad " label, run_pad, 0, MOVED, t, c, 0, l, r, 1, m, OG_F32}
#define CONV(label, t, i, o, k, s, d, flags, type) \
    {"conv " label, run_conv, 4e-6, SUM, t, i, o, k, s, d, flags, type}
#define PLAIN(label, fn, bound, why, t, i, o) \
    {label, fn, bound, why, t, i, o, 0, 0, 0, 0, OG_F32}

const seq_case seq_cases[] = {
    PAD("zero", 9, 5, 3, 2, OG_PAD_ZERO),
    PAD("edge", 9, 5, 3, 2, OG_PAD_EDGE),
    PAD("edge of one row", 1, 7, 3, 4, OG_PAD_EDGE),
    PAD("reflect", 9, 5, 8, 8, OG_PAD_REFLECT),
    PAD("reflect, one channel", 4000, 1, 384, 384, OG_PAD_REFLECT),
    PAD("nothing", 700, 64, 0, 0, OG_PAD_REFLECT),
    CONV("k 1", 9, 12, 7, 1, 1, 1, 1, OG_F32),
    CONV("k 5", 40, 16, 24, 5, 1, 1, 1, OG_F32),
    CONV("k 3 dilation 4, odd", 30, 6, 6, 3, 1, 4, 1, OG_F32),
    CONV("k 3 dilation 2, one row out", 5, 6, 6, 3, 1, 2, 0, OG_F32),
    CONV("k 8 stride 4", 404, 8, 16, 8, 4, 1, 1, OG_F32),
    CONV("k 4 stride 2, odd", 33, 7, 9, 4, 2, 1, 0, OG_F32),
    CONV("k 1 stride 3", 20, 8, 9, 1, 3, 1, 0, OG_F32),
    CONV("k 1024 stride 256, one channel", 4000, 1, 38, 1024, 256, 1, 0, OG_F32),
    CONV("bf16 k 16 stride 8", 100, 32, 20, 16, 8, 1, 1, OG_BF16),
    CONV("f16 k 3 dilation 3", 60, 16, 20, 3, 1, 3, 1, OG_F16),
    PLAIN("spectrum", run_spectrum, 2e-7, "one rounding apart at the most", 30, 513, 0),
    PLAIN("spectrum, narrow", run_spectrum, 2e-7, "as above", 1, 1, 0),
    PLAIN("softmax", run_softmax, 6e-7, "f32 polynomial within 2 ulp", 200, 40, 0),
    PLAIN("softmax, one row", run_softmax, 0, "e^0 over itself", 1, 17, 0),
    PLAIN("softmax, wide", run_softmax, 6e-7, "f32 polynomial within 2 ulp", 60, 1000, 0),
    PLAIN("stats", run_stats, 4e-7, DOUBLE, 200, 40, 0),
    PLAIN("stats, one row", run_stats, 4e-7, DOUBLE, 1, 3, 0),
    PLAIN("stats, wide", run_stats, 4e-7, DOUBLE, 50, 1001, 0),
    PLAIN("nearest", run_nearest, 0, DECIDED, 100, 16, 256),
    PLAIN("nearest, odd", run_nearest, 0, DECIDED, 7, 10, 128),
    PLAIN("nearest, one", run_nearest, 0, DECIDED, 3, 5, 1),
    PLAIN("nearest, real", run_nearest, 0, DECIDED, 20, 256, 2048),
};
const int n_seq_cases = sizeof seq_cases / sizeof *seq_cases;

int seq_case_run(case_env *env, const seq_case *c) {
    case_clear(env);
    env->seed = 1;
    for (const char *p = c->name; *p; p++) env->seed = env->seed * 31 + (uint32_t)*p;
    return c->run(env, c);
}
