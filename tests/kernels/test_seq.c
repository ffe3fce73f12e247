/* Ops over a whole sequence: "cpu" against "ref", one thread against several, and what is
 * known by hand. */
#include "kernels/cpu/pool.h"
#include "tests/kernels/seq_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { THREADS = 4 };

static og_tensor random_2d(case_env *env, int64_t a, int64_t b, float scale) {
    return case_tensor(env, OG_F32, 2, (int64_t[]){a, b}, scale, 0);
}

static og_tensor zeros_2d(case_env *env, int64_t a, int64_t b) {
    return case_zeros(env, OG_F32, 2, (int64_t[]){a, b});
}

static void run(case_env *env, const seq_case *c) {
    int rc = seq_case_run(env, c);
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
    for (int i = 0; i < n_seq_cases; i++) {
        run(&ref, &seq_cases[i]);
        run(&cpu, &seq_cases[i]);
        compare(&seq_cases[i], &ref, &cpu);
    }
    case_close(&ref);
    case_close(&cpu);
}

static void test_threads_change_no_bit(void **state) {
    (void)state;
    case_env env;
    assert_int_equal(case_open(&env, "cpu", THREADS), 0);
    for (int i = 0; i < n_seq_cases; i++) {
        og__pool_set_active(1);
        run(&env, &seq_cases[i]);
        size_t bytes = (size_t)env.n_out * sizeof(float);
        float *one = malloc(bytes + 1);
        memcpy(one, env.out, bytes);
        for (int n = 2; n <= THREADS; n++) {
            og__pool_set_active(n);
            run(&env, &seq_cases[i]);
            if (memcmp(one, env.out, bytes) != 0)
                fail_msg("%s differs on %d threads", seq_cases[i].name, n);
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
        SEQ_TWICE(&env, rc, og_op_rvq_nearest(env.ex, &ti, &tx, &t));
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
