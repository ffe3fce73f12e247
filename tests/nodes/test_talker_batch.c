/* A request has the same bits alone and in company, whatever the prefill chunks: greedy and
 * sampled, with jobs that come and go at different steps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "nodes/ar/ar_node.h"
#include "tests/nodes/far.h"
#include "tests/nodes/talker.h"

#define N_JOBS 8

/* Of mixed lengths and both text modes. */
static const char *const mix[N_JOBS] = {"cv_long",   "cv_one_char_stream", "cv_instruct",
                                        "cv_en",     "cv_long_stream",     "cv_empty",
                                        "vd_zh_stream", "cv_numbers_stream"};

typedef struct want {
    int64_t frames;
    int32_t *codes;
    float *states;
    int32_t stop_id;
} want;

static void make_sampled(th_job *j) {
    og_sampling *s = &j->job.sampling, *h = &j->job.head_sampling;
    s->temperature = h->temperature = 0.9f;
    s->top_k = h->top_k = 50;
    s->top_p = 0.95f;
    h->top_p = 0.9f;
}

static void job_for(const talker_fix *f, th_job *j, const talker_case *c, int i,
                    int sampled) {
    talker_job(f, j, c, (uint64_t)i);
    if (sampled) make_sampled(j);
}

static want take(const talker_fix *f, const th_job *j) {
    const th_out *c = &j->out[f->codes], *s = &j->out[f->states];
    size_t n = (size_t)c->n;
    want w = {.frames = c->n, .stop_id = j->stop_id};
    assert_int_equal(j->err.code, 0);
    assert_true(c->last && s->last && j->stopped == 1);
    w.codes = malloc(n * (size_t)f->groups * sizeof *w.codes + 1);
    w.states = malloc(n * (size_t)f->hidden * sizeof *w.states + 1);
    memcpy(w.codes, c->data, n * (size_t)f->groups * sizeof *w.codes);
    memcpy(w.states, s->data, n * (size_t)f->hidden * sizeof *w.states);
    return w;
}

static void same(const talker_fix *f, const char *what, const th_job *j, const want *w) {
    want got = take(f, j);
    size_t n = (size_t)w->frames;
    if (got.frames != w->frames || got.stop_id != w->stop_id)
        fail_msg("%s: %d frames, not %d", what, (int)got.frames, (int)w->frames);
    if (memcmp(got.codes, w->codes, n * (size_t)f->groups * sizeof *w->codes))
        fail_msg("%s: other codes", what);
    if (memcmp(got.states, w->states, n * (size_t)f->hidden * sizeof *w->states))
        fail_msg("%s: other states", what);
    free(got.codes);
    free(got.states);
}

/* Each job by itself, on a node with the given budget of rows. */
static void run_alone(const char *backend, const char *folder, int rows, int sampled,
                      want *w, int check) {
    talker_fix f;
    og_node_cfg cfg = TALKER_CFG;
    cfg.max_seqs = 1;
    cfg.max_batched_tokens = rows;
    talker_open(&f, backend, folder, cfg);
    for (int i = 0; i < N_JOBS; i++) {
        talker_case c;
        th_job j;
        talker_load(&f, &c, folder, mix[i]);
        job_for(&f, &j, &c, i, sampled);
        talker_admit(&f, &j);
        talker_feed(&f, &j, &c);
        th_run(f.node, 100000);
        if (check) same(&f, mix[i], &j, &w[i]);
        else w[i] = take(&f, &j);
        f.node->api->retire(f.node, &j.job);
        th_job_free(&j);
        talker_unload(&c);
    }
    talker_close(&f);
}

/* All jobs at once, job i admitted before step i * apart, from last to first when reversed.
 * A step that runs ahead of the host, as on a GPU, changes nothing. */
static void run_together(const char *backend, const char *folder, int rows, int sampled,
                         int apart, int reversed, int ahead, const want *w) {
    talker_fix f;
    talker_case c[N_JOBS];
    th_job *j = calloc(N_JOBS, sizeof *j);
    og_node_cfg cfg = TALKER_CFG;
    cfg.max_batched_tokens = rows;
    if (!strcmp(backend, "far")) {
        memset(&f, 0, sizeof f);
        far_open(&f.env);
        talker_open_on(&f, folder, cfg);
    } else {
        talker_open(&f, backend, folder, cfg);
    }
    og__ar_node(f.node)->ahead = ahead;
    for (int i = 0; i < N_JOBS; i++) talker_load(&f, &c[i], folder, mix[i]);
    for (int k = 0; k < N_JOBS; k++) {
        int i = reversed ? N_JOBS - 1 - k : k;
        job_for(&f, &j[i], &c[i], i, sampled);
        talker_admit(&f, &j[i]);
        talker_feed(&f, &j[i], &c[i]);
        for (int s = 0; s < apart; s++) th_step(f.node, NULL);
    }
    th_run(f.node, 100000);
    for (int i = 0; i < N_JOBS; i++) {
        same(&f, mix[i], &j[i], &w[i]);
        f.node->api->retire(f.node, &j[i].job);
        th_job_free(&j[i]);
        talker_unload(&c[i]);
    }
    free(j);
    talker_close(&f);
}

/* The naive backend is slow: it takes the two runs that differ most from being alone. */
static void run_all(const char *backend, const char *folder, int sampled) {
    int all = strcmp(backend, "ref") != 0;
    want w[N_JOBS];
    if (!th_has_backend(backend)) {
        print_message("no %s backend in this build\n", backend);
        skip();
    }
    run_alone(backend, folder, 512, sampled, w, 0);
    run_alone(backend, folder, 1, sampled, w, 1);
    if (all) run_alone(backend, folder, 3, sampled, w, 1);
    if (all) run_together(backend, folder, 512, sampled, 0, 0, 0, w);
    if (all) run_together(backend, folder, 8, sampled, 0, 1, 1, w);
    run_together(backend, folder, 13, sampled, 3, 0, 0, w);
    run_together(backend, folder, 512, sampled, 3, 0, 1, w);
    for (int i = 0; i < N_JOBS; i++) {
        free(w[i].codes);
        free(w[i].states);
    }
}

static void test_greedy_ref(void **state) {
    (void)state;
    run_all("ref", "tiny-b", 0);
}

static void test_sampled_ref(void **state) {
    (void)state;
    run_all("ref", "tiny-a", 1);
}

static void test_greedy_cpu(void **state) {
    (void)state;
    run_all("cpu", "tiny-a", 0);
    run_all("cpu", "tiny-b", 0);
}

static void test_sampled_cpu(void **state) {
    (void)state;
    run_all("cpu", "tiny-a", 1);
    run_all("cpu", "tiny-b", 1);
}

static void count_tap(void *arg, const char *name, const og_tensor *t) {
    assert_true(name[0] != 0);
    assert_int_equal(t->place.kind, OG_PLACE_HOST);
    *(double *)arg += t->dtype == OG_F32 ? *(const float *)t->data : 0.0;
}

/* A tap sees host memory, and what is tapped is not recorded. */
static void test_far_taps(void **state) {
    (void)state;
    double sum[2] = {0};
    for (int i = 0; i < 2; i++) {
        talker_fix f = {0};
        talker_case c;
        th_job j;
        if (i) far_open(&f.env);
        else th_open(&f.env, "ref");
        talker_open_on(&f, "tiny-a", TALKER_CFG);
        far_graph_launches = 0;
        og_exec_set_tap(f.env.exec, count_tap, &sum[i]);
        talker_load(&f, &c, "tiny-a", "cv_empty");
        talker_job(&f, &j, &c, 1);
        j.job.sampling.max_tokens = 6;
        talker_admit(&f, &j);
        talker_feed(&f, &j, &c);
        og_step_info info;
        og_err err = OG_ERR_INIT;
        while (f.node->api->step(f.node, &info, &err) == OG_STEP_WORK) continue;
        assert_int_equal(err.code, 0);
        f.node->api->retire(f.node, &j.job);
        th_job_free(&j);
        talker_unload(&c);
        talker_close(&f);
        assert_int_equal(far_graph_launches, 0);
    }
    assert_true(sum[0] != 0.0);
}

/* On a device whose memory is not the host's, with recorded steps. */
static void test_far(void **state) {
    (void)state;
    for (int sampled = 0; sampled < 2; sampled++) {
        want w[N_JOBS];
        const char *folder = sampled ? "tiny-b" : "tiny-a";
        far_graph_launches = 0;
        run_alone("ref", folder, 512, sampled, w, 0);
        run_together("far", folder, 512, sampled, 0, 0, 1, w);
        run_together("far", folder, 13, sampled, 3, 1, 1, w);
        assert_true(far_graph_launches > 20);
        for (int i = 0; i < N_JOBS; i++) {
            free(w[i].codes);
            free(w[i].states);
        }
    }
}

/* The seed of the request and nothing else decides what is drawn. */
static void test_seed_decides(void **state) {
    (void)state;
    talker_fix f;
    talker_case c;
    th_job j[3];
    talker_open(&f, "ref", "tiny-a", TALKER_CFG);
    talker_load(&f, &c, "tiny-a", "cv_long");
    for (int i = 0; i < 3; i++) {
        job_for(&f, &j[i], &c, i, 1);
        j[i].job.seed = i < 2 ? 5 : 6;
        talker_admit(&f, &j[i]);
        talker_feed(&f, &j[i], &c);
    }
    th_run(f.node, 10000);
    want a = take(&f, &j[0]), b = take(&f, &j[2]);
    same(&f, "same seed", &j[1], &a);
    assert_true(a.frames != b.frames ||
                memcmp(a.codes, b.codes, (size_t)a.frames * (size_t)f.groups * 4) != 0);
    free(a.codes);
    free(a.states);
    free(b.codes);
    free(b.states);
    for (int i = 0; i < 3; i++) {
        f.node->api->retire(f.node, &j[i].job);
        th_job_free(&j[i]);
    }
    talker_unload(&c);
    talker_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_ref), cmocka_unit_test(test_sampled_ref),
        cmocka_unit_test(test_greedy_cpu), cmocka_unit_test(test_sampled_cpu),
        cmocka_unit_test(test_far), cmocka_unit_test(test_far_taps),
        cmocka_unit_test(test_seed_decides)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
