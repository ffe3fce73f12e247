/* Ops over a whole sequence: "cpu" against "ref", one thread against several, and what is
 * known by hand. */
#include "kernels/cpu/pool.h"
#include "tests/kernels/cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { THREADS = 4 };

typedef struct seq_case {
    const char *name;
    int (*run)(case_env *env, const struct seq_case *c);
    double tol; /* |got - want| <= tol * (|want| + rms of the wanted outputs) */
    const char *reason;
    int rows, in, out;          /* T, channels in and out */
    int taps, stride, dilation; /* of a convolution */
    int what;                   /* a padding mode, a flag */
    og_dtype t;                 /* of the weights */
} seq_case;

static og_tensor random_2d(case_env *env, int64_t a, int64_t b, float scale) {
    return case_tensor(env, OG_F32, 2, (int64_t[]){a, b}, scale, 0);
}

static og_tensor zeros_2d(case_env *env, int64_t a, int64_t b) {
    return case_zeros(env, OG_F32, 2, (int64_t[]){a, b});
}

/* Measure, make room, run. */
#define TWICE(env, rc, call)                                                           \
    do {                                                                               \
        og_exec_reset((env)->ex);                                                      \
        og_exec_set_mode((env)->ex, OG_MEASURE);                                       \
        rc = (call);                                                                   \
        og_exec_reset((env)->ex);                                                      \
        og_exec_set_mode((env)->ex, OG_RUN);                                           \
        if (!rc) rc = og_exec_reserve((env)->ex, og_exec_peak((env)->ex), NULL);       \
        if (!rc) rc = (call);                                                          \
        og_exec_reset((env)->ex);                                                      \
    } while (0)

/* ---- one function per op ---------------------------------------------------------------- */

/* Columns of a wider tensor go in and out, so rows are not contiguous. */
static int run_pad(case_env *env, const seq_case *c) {
    int rc;
    og_tensor x = random_2d(env, c->rows, c->in + 3, 1), y;
    y = zeros_2d(env, c->rows + c->taps + c->stride, c->in + 2);
    x.ne[1] = y.ne[1] = c->in;
    TWICE(env, rc, og_op_pad_time(env->ex, &y, &x, c->taps, (og_pad)c->what));
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
    TWICE(env, rc, og_op_conv1d_valid(env->ex, &y, &x, &w, c->what ? &bias : &none,
                                      c->stride, c->dilation, &epi));
    if (!rc) case_keep(env, &y);
    return rc;
}

static int run_spectrum(case_env *env, const seq_case *c) {
    int rc;
    og_tensor x = random_2d(env, c->rows, 2 * c->in, 3), y = zeros_2d(env, c->rows, c->in);
    TWICE(env, rc, og_op_magnitude(env->ex, &y, &x, 1e-9f));
    if (!rc) case_keep(env, &y);
    if (!rc) TWICE(env, rc, og_op_log_floor(env->ex, &y, &y, 0.5f));
    if (!rc) case_keep(env, &y);
    return rc;
}

static int run_softmax(case_env *env, const seq_case *c) {
    int rc;
    og_tensor x = random_2d(env, c->rows, c->in, 9), y = zeros_2d(env, c->rows, c->in);
    TWICE(env, rc, og_op_softmax_time(env->ex, &y, &x));
    if (!rc) case_keep(env, &y);
    return rc;
}

static int run_stats(case_env *env, const seq_case *c) {
    int rc;
    og_tensor x = random_2d(env, c->rows, c->in, 2), w = random_2d(env, c->rows, c->in, 3);
    og_tensor mean = case_zeros(env, OG_F32, 1, (int64_t[]){c->in});
    og_tensor std = case_zeros(env, OG_F32, 1, (int64_t[]){c->in}), none = {0};
    TWICE(env, rc, og_op_time_stats(env->ex, &mean, &std, &x, &none, 1e-12f));
    if (!rc) case_keep(env, &mean), case_keep(env, &std);
    if (!rc) TWICE(env, rc, og_op_softmax_time(env->ex, &w, &w));
    if (!rc) TWICE(env, rc, og_op_time_stats(env->ex, &mean, &std, &x, &w, 1e-12f));
    if (!rc) case_keep(env, &mean), case_keep(env, &std);
    if (!rc) TWICE(env, rc, og_op_time_stats(env->ex, &mean, &none, &x, &none, 0));
    if (!rc) case_keep(env, &mean);
    return rc;
}

/* Codes go into a column of [R, 3]. Some rows of the table are equal, some are far away, and
 * some rows of x are rows of the table. */
static int run_nearest(case_env *env, const seq_case *c) {
    int rc;
    og_tensor x = random_2d(env, c->rows, c->in, 1), table = random_2d(env, c->out, c->in, 1);
    size_t row = (size_t)c->in * sizeof(float);
    float *t = table.data;
    if (c->out > 8) {
        memcpy(t + 7 * c->in, t + 2 * c->in, row);
        for (int i = 0; i < c->in; i++) t[3 * c->in + i] *= 1e5f;
    }
    for (int r = 0; r < c->rows; r += 3)
        memcpy((float *)x.data + r * c->in, t + r % c->out * c->in, row);
    og_tensor codes = case_zeros(env, OG_I32, 2, (int64_t[]){c->rows, 3}), ids = codes;
    ids.rank = 1;
    ids.data = (int32_t *)codes.data + 1;
    TWICE(env, rc, og_op_rvq_nearest(env->ex, &ids, &x, &table));
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

static const seq_case table[] = {
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
enum { N_CASES = sizeof table / sizeof *table };

static void run(case_env *env, const seq_case *c) {
    case_clear(env);
    env->seed = 1;
    for (const char *p = c->name; *p; p++) env->seed = env->seed * 31 + (uint32_t)*p;
    int rc = c->run(env, c);
    if (rc < 0) fail_msg("%s: %s", c->name, og_exec_error(env->ex));
}

static void compare(const seq_case *c, const case_env *want, const case_env *got) {
    assert_int_equal(want->n_out, got->n_out);
    double square = 0;
    for (int64_t i = 0; i < want->n_out; i++)
        square += (double)want->out[i] * (double)want->out[i];
    double rms = sqrt(square / (double)(want->n_out + 1));
    for (int64_t i = 0; i < want->n_out; i++) {
        double a = (double)want->out[i], b = (double)got->out[i];
        if (fabs(a - b) <= c->tol * (fabs(a) + rms)) continue;
        fail_msg("%s: value %lld is %.9g, not %.9g", c->name, (long long)i, b, a);
    }
}

static void test_cpu_agrees_with_ref(void **state) {
    (void)state;
    case_env ref, cpu;
    assert_int_equal(case_open(&ref, "ref", 1), 0);
    assert_int_equal(case_open(&cpu, "cpu", THREADS), 0);
    for (int i = 0; i < N_CASES; i++) {
        run(&ref, &table[i]);
        run(&cpu, &table[i]);
        compare(&table[i], &ref, &cpu);
    }
    case_close(&ref);
    case_close(&cpu);
}

static void test_threads_change_no_bit(void **state) {
    (void)state;
    case_env env;
    assert_int_equal(case_open(&env, "cpu", THREADS), 0);
    for (int i = 0; i < N_CASES; i++) {
        og__pool_set_active(1);
        run(&env, &table[i]);
        size_t bytes = (size_t)env.n_out * sizeof(float);
        float *one = malloc(bytes + 1);
        memcpy(one, env.out, bytes);
        for (int n = 2; n <= THREADS; n++) {
            og__pool_set_active(n);
            run(&env, &table[i]);
            if (memcmp(one, env.out, bytes) != 0)
                fail_msg("%s differs on %d threads", table[i].name, n);
        }
        free(one);
    }
    og__pool_set_active(0);
    case_close(&env);
}

/* ---- by hand -------------------------------------------------------------------------------- */

static void check_pad(og_exec *ex, og_pad mode, const float want[7]) {
    float x[3] = {1, 2, 3}, y[7];
    og_tensor tx = og_tensor_2d(OG_F32, 3, 1, x), ty = og_tensor_2d(OG_F32, 7, 1, y);
    assert_int_equal(og_op_pad_time(ex, &ty, &tx, 2, mode), 0);
    assert_memory_equal(y, want, sizeof y);
}

static void test_known_values(void **state) {
    (void)state;
    case_env env;
    assert_int_equal(case_open(&env, "ref", 1), 0);
    check_pad(env.ex, OG_PAD_ZERO, (float[]){0, 0, 1, 2, 3, 0, 0});
    check_pad(env.ex, OG_PAD_EDGE, (float[]){1, 1, 1, 2, 3, 3, 3});
    check_pad(env.ex, OG_PAD_REFLECT, (float[]){3, 2, 1, 2, 3, 2, 1});

    float w[] = {1, 10}, x[] = {1, 2, 3, 4, 5}, y[2], mean[1], std[1];
    og_tensor tx = og_tensor_2d(OG_F32, 5, 1, x), ty = og_tensor_2d(OG_F32, 2, 1, y);
    og_tensor tw = og_tensor_3d(OG_F32, 1, 2, 1, w), none = {0};
    assert_int_equal(og_op_conv1d_valid(env.ex, &ty, &tx, &tw, &none, 2, 1, NULL), 0);
    assert_true(y[0] == 21 && y[1] == 43);
    og_tensor tm = og_tensor_1d(OG_F32, 1, mean), ts = og_tensor_1d(OG_F32, 1, std);
    assert_int_equal(og_op_time_stats(env.ex, &tm, &ts, &tx, &none, 0), 0);
    assert_true(mean[0] == 3 && std[0] == sqrtf(2));
    case_close(&env);
}

static void test_equals_take_the_lowest_index(void **state) {
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    for (int b = 0; b < 2; b++) {
        case_env env;
        float rows[] = {5, 0, 1, 1, 1, -1, 1, 1, -1, 1}, x[] = {1, 0, 1, 1, 0, 0};
        int32_t ids[3];
        assert_int_equal(case_open(&env, backends[b], 1), 0);
        og_tensor t = og_tensor_2d(OG_F32, 5, 2, rows), tx = og_tensor_2d(OG_F32, 3, 2, x);
        og_tensor ti = og_tensor_1d(OG_I32, 3, ids);
        int rc;
        TWICE(&env, rc, og_op_rvq_nearest(env.ex, &ti, &tx, &t));
        assert_int_equal(rc, 0);
        assert_int_equal(ids[0], 1); /* rows 1, 2 and 3 are at the same distance */
        assert_int_equal(ids[1], 1);
        assert_int_equal(ids[2], 1); /* 1 to 4 */
        case_close(&env);
    }
}

static void test_bad_shapes_are_errors(void **state) {
    (void)state;
    case_env env;
    assert_int_equal(case_open(&env, "cpu", 1), 0);
    og_exec *ex = env.ex;
    og_tensor x = random_2d(&env, 8, 4, 1), y = zeros_2d(&env, 8, 4), none = {0};
    og_tensor long_y = zeros_2d(&env, 24, 4), v = case_zeros(&env, OG_F32, 1, (int64_t[]){4});
    og_tensor w = case_tensor(&env, OG_F32, 3, (int64_t[]){4, 3, 4}, 1, 0);
    og_tensor ids = case_zeros(&env, OG_I32, 1, (int64_t[]){7});
    og_tensor empty = og_tensor_rows(&x, 0, 0);
    assert_int_equal(og_op_pad_time(ex, &long_y, &x, 8, OG_PAD_REFLECT), OG_ESHAPE);
    assert_int_equal(og_op_pad_time(ex, &long_y, &empty, 8, OG_PAD_EDGE), OG_ESHAPE);
    assert_int_equal(og_op_pad_time(ex, &y, &x, 1, OG_PAD_ZERO), OG_ESHAPE);
    assert_int_equal(og_op_pad_time(ex, &x, &x, 0, OG_PAD_ZERO), OG_EINVAL);
    assert_int_equal(og_op_conv1d_valid(ex, &y, &x, &w, &none, 1, 1, NULL), OG_ESHAPE);
    assert_int_equal(og_op_conv1d_valid(ex, &y, &x, &w, &none, 2, 2, NULL), OG_EUNSUPPORTED);
    assert_int_equal(og_op_conv1d_valid(ex, &y, &x, &w, &none, 0, 1, NULL), OG_EINVAL);
    assert_int_equal(og_op_conv1d_valid(ex, &y, &empty, &w, &none, 1, 1, NULL), OG_ESHAPE);
    assert_int_equal(og_op_magnitude(ex, &y, &x, 0), OG_ESHAPE);
    assert_int_equal(og_op_log_floor(ex, &y, &x, 0), OG_EINVAL);
    assert_int_equal(og_op_softmax_time(ex, &long_y, &x), OG_ESHAPE);
    assert_int_equal(og_op_time_stats(ex, &v, &none, &empty, &none, 0), OG_ESHAPE);
    assert_int_equal(og_op_time_stats(ex, &y, &none, &x, &none, 0), OG_ESHAPE);
    assert_int_equal(og_op_rvq_nearest(ex, &ids, &x, &y), OG_ESHAPE);
    case_close(&env);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_agrees_with_ref),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_equals_take_the_lowest_index),
        cmocka_unit_test(test_bad_shapes_are_errors),
    };
    return cmocka_run_group_tests_name("seq", tests, NULL, NULL);
}
