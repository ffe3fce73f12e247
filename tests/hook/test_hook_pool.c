/* Hook workers: answers, order within a request, slow hooks beside fast ones, the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "tests/hook/hook_support.h"

typedef struct bell {
    pthread_mutex_t lock;
    pthread_cond_t rung;
    int done, failed;
    int order[256];
} bell;

static void bell_open(bell *b) {
    memset(b, 0, sizeof *b);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->rung, NULL);
}

static void bell_wait(bell *b, int n) {
    pthread_mutex_lock(&b->lock);
    while (b->done < n) pthread_cond_wait(&b->rung, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

typedef struct task {
    og_hook_job job;
    bell *bell;
    int number;
} task;

static void on_done(og_hook_job *job) {
    task *t = job->arg;
    bell *b = t->bell;
    pthread_mutex_lock(&b->lock);
    if (b->done < 256) b->order[b->done] = t->number;
    b->done++;
    b->failed += job->code < 0;
    pthread_cond_signal(&b->rung);
    pthread_mutex_unlock(&b->lock);
}

static void task_init(task *t, bell *b, int number, const og_hook_env *env,
                      const og_hook_request *req) {
    memset(t, 0, sizeof *t);
    t->bell = b;
    t->number = number;
    t->job.call = (og_hook_call){.env = env, .request = req};
    t->job.done = on_done;
    t->job.arg = t;
}

static og_hook_pool *open_pool(int n, const og_hook_limits *limits) {
    og_err err = OG_ERR_INIT;
    og_hook_pool *pool = NULL;
    if (og_hook_pool_create(n, limits, &pool, &err) < 0) fail_msg("%s", err.msg);
    return pool;
}

static void test_many_requests(void **state) {
    (void)state;
    enum { REQUESTS = 12, CALLS = 8 };
    hs_bench b;
    bell all;
    og_hook_limits roomy = HS_ROOMY;
    static task tasks[REQUESTS * CALLS];
    og_hook_request req[REQUESTS];
    hs_open(&b);
    bell_open(&all);
    hs_dir_text(&b.dir, "counts",
                "return {f = function(ctx)\n"
                "  local s = ctx.state\n  s.n = (s.n or 0) + 1\n  ctx:log(s.n .. '')\n"
                "  ctx:emit{prompt = ctx.tables.text(s.n):rep(10)}\nend}");
    b.env.file = "counts";
    og_hook_pool *pool = open_pool(3, &roomy);
    for (int r = 0; r < REQUESTS; r++)
        req[r] = (og_hook_request){.fields = b.fields, .state = og_hook_state_create()};
    for (int c = 0; c < CALLS; c++)
        for (int r = 0; r < REQUESTS; r++) {
            task *t = &tasks[c * REQUESTS + r];
            task_init(t, &all, c, &b.env, &req[r]);
            og_hook_submit(pool, &t->job);
        }
    bell_wait(&all, REQUESTS * CALLS);
    assert_int_equal(all.failed, 0);
    for (int i = 0; i < REQUESTS * CALLS; i++) { /* a request's calls ran in order */
        og_hook_result *res = &tasks[i].job.result;
        assert_int_equal(atoi(res->logs[0]), tasks[i].number + 1);
        assert_int_equal(res->emits[0].rows->terms[0].index, tasks[i].number + 1);
        og_hook_result_free(res);
    }
    for (int r = 0; r < REQUESTS; r++) og_hook_pool_release(pool, req[r].state);
    og_hook_pool_release(pool, og_hook_state_create()); /* one that never ran */
    og_hook_pool_destroy(pool);
    hs_close(&b);
}

/* A hook that runs until its deadline does not keep the other worker from answering. */
static void test_b089_a_slow_hook_beside_fast_ones(void **state) {
    (void)state;
    enum { FAST = 20 };
    hs_bench b;
    bell all, slow_bell;
    og_hook_limits limits = {1ll << 60, 1000, 16u << 20, 64u << 20, 1u << 20};
    static task slow, fast[FAST];
    hs_open(&b);
    bell_open(&all);
    bell_open(&slow_bell);
    hs_dir_text(&b.dir, "slow", "return {f = function() while true do end end}");
    hs_dir_text(&b.dir, "fast", "return {f = function() end}");
    og_hook_env slow_env = b.env, fast_env = b.env;
    slow_env.file = "slow";
    fast_env.file = "fast";
    og_hook_pool *pool = open_pool(2, &limits);
    og_hook_request req = {.fields = b.fields};
    task_init(&slow, &slow_bell, 0, &slow_env, &req);
    og_hook_submit(pool, &slow.job);
    for (int i = 0; i < FAST; i++) {
        task_init(&fast[i], &all, i, &fast_env, &req);
        og_hook_submit(pool, &fast[i].job);
        bell_wait(&all, i + 1);
    }
    pthread_mutex_lock(&slow_bell.lock);
    int slow_done = slow_bell.done;
    pthread_mutex_unlock(&slow_bell.lock);
    assert_int_equal(slow_done, 0);
    assert_int_equal(all.failed, 0);
    bell_wait(&slow_bell, 1);
    assert_int_equal(slow.job.code, OG_EHOOK);
    assert_non_null(strstr(slow.job.err.msg, "longer than 1000 ms"));
    og_hook_pool_destroy(pool);
    hs_close(&b);
}

/* What waits when the pool goes is answered too. */
static void test_destroy_cancels_what_waits(void **state) {
    (void)state;
    enum { N = 40 };
    hs_bench b;
    bell all;
    og_hook_limits limits = {1ll << 60, 50, 16u << 20, 64u << 20, 1u << 20};
    static task tasks[N];
    hs_open(&b);
    bell_open(&all);
    hs_dir_text(&b.dir, "slow", "return {f = function() while true do end end}");
    b.env.file = "slow";
    og_hook_pool *pool = open_pool(1, &limits);
    og_hook_request req = {.fields = b.fields};
    for (int i = 0; i < N; i++) {
        task_init(&tasks[i], &all, i, &b.env, &req);
        og_hook_submit(pool, &tasks[i].job);
    }
    og_hook_pool_destroy(pool);
    assert_int_equal(all.done, N);
    int canceled = 0;
    for (int i = 0; i < N; i++) canceled += tasks[i].job.code == OG_ECANCELED;
    assert_true(canceled > 0);
    for (int i = 0; i < N; i++) assert_int_equal(all.order[i], i);
    hs_close(&b);
}

static void test_a_pool_that_cannot_start(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_hook_pool *pool = NULL;
    assert_int_equal(og_hook_pool_create(0, NULL, &pool, &err), OG_EINVAL);
    og_err_clear(&err);
    long live = og_alloc_live();
    og_alloc_fail_at(1);
    assert_int_equal(og_hook_pool_create(2, NULL, &pool, &err), OG_ENOMEM);
    og_alloc_fail_at(0);
    assert_null(pool);
    assert_int_equal(og_alloc_live(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_requests),
        cmocka_unit_test(test_b089_a_slow_hook_beside_fast_ones),
        cmocka_unit_test(test_destroy_cancels_what_waits),
        cmocka_unit_test(test_a_pool_that_cannot_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
