/* The short form of scripts/soak. Arguments: seconds, and one seed; none: 4 s. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/serve/soak.h"

static soak_opts opts = {.seconds = 4, .lap = 1.5, .seed = 1};

/* B048, B073, B080, B082, B083 all at once, over a socket. */
static void test_b048_b073_b080_b082_b083_soak(void **state) {
    (void)state;
    soak_counts n;
    int problems = soak_run(&opts, &n);
    soak_print(&n, stdout);
    fflush(stdout);
    assert_int_equal(problems, 0);
    assert_int_equal(n.wrong + n.lost, 0);
    assert_true(n.same > 0 && n.laps > 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b048_b073_b080_b082_b083_soak),
    };
    if (argc > 1) opts.seconds = atof(argv[1]);
    if (argc > 2) opts.seed = strtoull(argv[2], NULL, 10);
    if (argc > 1) opts.lap = opts.seconds > 90 ? 30 : opts.seconds / 3;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
