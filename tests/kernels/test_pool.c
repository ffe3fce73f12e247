/* The thread pool: each task runs once, from any number of callers, asleep or awake. */
#include "kernels/cpu/pool.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#define THREADS 4

static int start(void **state) {
    (void)state;
    return og__pool_acquire(THREADS, NULL);
}

static int stop(void **state) {
    (void)state;
    og__pool_release();
    return 0;
}

typedef struct counts {
    atomic_int hits[1000];
    atomic_int bad_worker;
    int64_t n;
} counts;

static void hit(void *arg, int64_t task, int worker) {
    counts *c = arg;
    atomic_fetch_add(&c->hits[task % 1000], 1);
    if (worker < 0 || worker >= og__pool_threads()) atomic_store(&c->bad_worker, 1);
}

static void run_and_check(int64_t n) {
    counts c = {.n = n};
    og__pool_run(n, hit, &c);
    for (int64_t i = 0; i < n; i++) assert_int_equal(c.hits[i], 1);
    assert_int_equal(c.bad_worker, 0);
}

static void nap(long us) {
    struct timespec t = {0, us * 1000};
    nanosleep(&t, NULL);
}

static void test_each_task_runs_once(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 17, 999};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) run_and_check(sizes[i]);
    for (int i = 0; i < 3000; i++) run_and_check(1 + i % 9);
}

static void test_sleeping_workers_wake_or_are_not_needed(void **state) {
    (void)state;
    for (int i = 0; i < 40; i++) {
        run_and_check(20);
        nap(i % 4 * 700);
    }
}

static void test_fewer_threads_can_be_asked_for(void **state) {
    (void)state;
    assert_int_equal(og__pool_threads(), THREADS);
    for (int n = 0; n <= THREADS + 1; n++) {
        og__pool_set_active(n);
        run_and_check(100);
    }
    og__pool_set_active(0);
}

/* Returns its argument when all went well. */
static void *caller(void *arg) {
    for (int i = 0; i < 300; i++) {
        counts c = {.n = 7};
        og__pool_run(7, hit, &c);
        for (int k = 0; k < 7; k++)
            if (c.hits[k] != 1) return NULL;
    }
    return arg;
}

static void test_several_callers_take_turns(void **state) {
    (void)state;
    pthread_t ids[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, caller, ids), 0);
    for (int i = 0; i < 3; i++) {
        void *ok;
        pthread_join(ids[i], &ok);
        assert_non_null(ok);
    }
}

static void test_the_first_user_sizes_the_pool(void **state) {
    (void)state;
    assert_int_equal(og__pool_acquire(1, NULL), 0);
    assert_int_equal(og__pool_threads(), THREADS);
    og__pool_release();
    run_and_check(10);
    og__pool_release(); /* the last user: workers stop */
    assert_int_equal(og__pool_acquire(2, NULL), 0);
    assert_int_equal(og__pool_threads(), 2);
    run_and_check(10);
    og__pool_release();
    assert_int_equal(og__pool_acquire(THREADS, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_task_runs_once),
        cmocka_unit_test(test_sleeping_workers_wake_or_are_not_needed),
        cmocka_unit_test(test_fewer_threads_can_be_asked_for),
        cmocka_unit_test(test_several_callers_take_turns),
        cmocka_unit_test(test_the_first_user_sizes_the_pool),
    };
    return cmocka_run_group_tests_name("pool", tests, start, stop);
}
