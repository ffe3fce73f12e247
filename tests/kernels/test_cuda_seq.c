/* The ops over a whole sequence on a CUDA device: every case against "ref", in both modes, and
 * the same bits twice. Skips without a device. */
#include "tests/kernels/seq_cases.h"
#include "kernels/base/alloc.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* What convolutions are allowed more in fast mode: see test_cuda.c. */
#define FAST_SLACK 2.0

static int have_gpu(void) {
    og_device *dev;
    og_err err = OG_ERR_INIT;
    if (og_device_open("cuda", 0, 1, &dev, &err) < 0) {
        print_message("skipped: %s\n", err.msg);
        return 0;
    }
    og_device_close(dev);
    return 1;
}

static void run(case_env *env, const seq_case *c) {
    int rc = seq_case_run(env, c);
    if (rc < 0) fail_msg("%s: %s", c->name, og_exec_error(env->ex));
}

/* The first value that is off by more than the case allows, or -1. */
static int64_t first_bad(const seq_case *c, const case_env *want, const case_env *got,
                         int fast) {
    double square = 0, tol = c->tol;
    if (fast && !strncmp(c->name, "conv", 4)) tol *= FAST_SLACK;
    for (int64_t i = 0; i < want->n_out; i++)
        square += (double)want->out[i] * (double)want->out[i];
    double rms = sqrt(square / (double)(want->n_out + 1));
    for (int64_t i = 0; i < want->n_out; i++) {
        double a = (double)want->out[i], b = (double)got->out[i];
        if (!(fabs(a - b) <= tol * (fabs(a) + rms))) return i;
    }
    return -1;
}

static void agree(int deterministic) {
    case_env ref, gpu;
    int bad = 0;
    assert_int_equal(case_open(&ref, "ref", 1), 0);
    assert_int_equal(case_open(&gpu, "cuda", 1), 0);
    og_device_set_deterministic(gpu.dev, deterministic);
    for (int i = 0; i < n_seq_cases; i++) {
        const seq_case *c = &seq_cases[i];
        run(&ref, c);
        run(&gpu, c);
        assert_int_equal(ref.n_out, gpu.n_out);
        int64_t at = first_bad(c, &ref, &gpu, !deterministic);
        if (at < 0) continue;
        print_error("%s: value %lld is %.9g, not %.9g\n", c->name, (long long)at,
                    (double)gpu.out[at], (double)ref.out[at]);
        bad++;
    }
    case_close(&ref);
    case_close(&gpu);
    assert_int_equal(bad, 0);
}

static void test_cuda_agrees_with_ref(void **state) {
    (void)state;
    if (!have_gpu()) skip();
    agree(1);
}

/* bf16 convolutions may take the tensor cores here; the bounds hold for them, too. */
static void test_cuda_agrees_with_ref_in_fast_mode(void **state) {
    (void)state;
    if (!have_gpu()) skip();
    agree(0);
}

static void test_the_same_bits_twice(void **state) {
    (void)state;
    if (!have_gpu()) skip();
    case_env gpu;
    assert_int_equal(case_open(&gpu, "cuda", 1), 0);
    for (int i = 0; i < n_seq_cases; i++) {
        run(&gpu, &seq_cases[i]);
        size_t bytes = (size_t)gpu.n_out * sizeof(float);
        float *first = og_malloc(bytes + 1);
        memcpy(first, gpu.out, bytes);
        run(&gpu, &seq_cases[i]);
        int differ = memcmp(first, gpu.out, bytes) != 0;
        og_free(first);
        if (differ) fail_msg("%s differs from itself", seq_cases[i].name);
    }
    case_close(&gpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_agrees_with_ref),
        cmocka_unit_test(test_cuda_agrees_with_ref_in_fast_mode),
        cmocka_unit_test(test_the_same_bits_twice),
    };
    return cmocka_run_group_tests_name("cuda_seq", tests, NULL, NULL);
}
