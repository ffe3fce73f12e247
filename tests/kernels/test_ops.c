/* Every row of the case table on "cpu" against "ref". */
#include "tests/kernels/cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static int run_or_say(case_env *env, const og_case *c, const char *backend) {
    int rc = case_run(env, c);
    if (rc < 0)
        print_error("%s on %s: %s: %s\n", c->name, backend, og_err_name(rc),
                    og_exec_error(env->ex));
    return rc < 0;
}

/* Values [from, to) of one output. Says where the first difference is and how far the
 * worst is. */
static int compare_output(const og_case *c, const case_env *want, const case_env *got,
                          int64_t from, int64_t to) {
    double square = 0, worst = 0;
    int64_t bad = 0, first = -1;
    for (int64_t i = from; i < to; i++)
        square += (double)want->out[i] * (double)want->out[i];
    double rms = sqrt(square / (double)(to - from + 1));
    for (int64_t i = from; i < to; i++) {
        double a = (double)want->out[i], b = (double)got->out[i];
        double e = fabs(a - b) / (fabs(a) + rms + 1e-30);
        if (e > worst) worst = e;
        if (e <= c->tol && b == b) continue;
        if (first < 0) first = i;
        bad++;
    }
    if (bad)
        print_error(
            "%s: %lld of %lld differ, first at %lld: want %.9g, got %.9g; worst %.2g, "
            "allowed %.2g\n",
            c->name, (long long)bad, (long long)(to - from), (long long)(first - from),
            (double)want->out[first], (double)got->out[first], worst, c->tol);
    return bad > 0;
}

static int compare(const og_case *c, const case_env *want, const case_env *got) {
    int bad = 0;
    for (int i = 0; i < want->n_ends; i++)
        bad |= compare_output(c, want, got, i ? want->ends[i - 1] : 0, want->ends[i]);
    return bad;
}

static void test_cpu_agrees_with_ref(void **state) {
    (void)state;
    case_env ref, cpu;
    int failed = 0;
    assert_int_equal(case_open(&ref, "ref", 1), 0);
    assert_int_equal(case_open(&cpu, "cpu", 2), 0);
    for (int i = 0; i < n_cases; i++) {
        const og_case *c = &cases[i];
        if (run_or_say(&ref, c, "ref") || run_or_say(&cpu, c, "cpu")) {
            failed++;
            continue;
        }
        assert_int_equal(ref.n_out, cpu.n_out);
        failed += compare(c, &ref, &cpu);
    }
    case_close(&ref);
    case_close(&cpu);
    assert_int_equal(failed, 0);
}

static void test_names_are_unique_and_tolerances_have_reasons(void **state) {
    (void)state;
    for (int i = 0; i < n_cases; i++) {
        assert_true(cases[i].reason && cases[i].reason[0]);
        for (int j = 0; j < i; j++) assert_string_not_equal(cases[i].name, cases[j].name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_agrees_with_ref),
        cmocka_unit_test(test_names_are_unique_and_tolerances_have_reasons),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
