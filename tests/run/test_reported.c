/* What users of other engines reported of audio, requests and scheduling, with stages that
 * make numbered tokens. A name carries the id of its report. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "tests/run/stub.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static og_request *submit(stub_env *s, int n, int stamp, int mode) {
    og_err err = OG_ERR_INIT;
    og_request *r = NULL;
    json_t *f = json_pack("{s:i,s:i,s:i}", "n", n, "stamp", stamp, "mode", mode);
    og_request_desc d = {.fields = f, .has_seed = 1, .seed = 1};
    if (og_engine_submit(s->engine, &d, &r, &err) < 0) fail_msg("%s", err.msg);
    json_decref(f);
    return r;
}

/* Read on to the end or to the timeout, with a pause after each piece. bad counts samples that are not those of this stamp's
 * tokens in order; at: samples read so far. */
static og_event read_slowly(og_request *r, int stamp, int timeout_ms, int pause_ms,
                            int64_t *at, int *bad) {
    og_event ev;
    while (og_request_next(r, timeout_ms, &ev) == OG_EVENT_ITEMS) {
        const float *x = ev.items.data;
        int64_t k = og_tensor_present(&ev.items) ? ev.items.ne[0] : 0;
        for (int64_t i = 0; i < k; i++, ++*at)
            *bad += (int)x[i] != stamp * 1000 + (int)(*at / STUB_SPI);
        if (pause_ms) nanosleep(&(struct timespec){0, pause_ms * 1000000L}, NULL);
    }
    return ev;
}

static og_event read_on(og_request *r, int stamp, int timeout_ms, int64_t *at, int *bad) {
    return read_slowly(r, stamp, timeout_ms, 0, at, bad);
}

static void expect_all(og_request *r, int n, int stamp) {
    int64_t at = 0;
    int bad = 0;
    og_event ev = read_on(r, stamp, 10000, &at, &bad);
    if (ev.kind != OG_EVENT_DONE) fail_msg("kind %d: %s", ev.kind, ev.err.msg);
    assert_int_equal(at, (int64_t)n * STUB_SPI);
    assert_int_equal(bad, 0);
    og_request_free(r);
}

static const char *edges_with(char *buf, size_t size, const char *how) {
    snprintf(buf, size,
             "  - {from: {n: request.n}, to: {prompt: source.prompt}, hook: stub.go}\n"
             "  - {from: source.tokens, to: voc.tokens, %s}\n"
             "  - {from: voc.audio, to: response.audio}\n",
             how);
    return buf;
}

/* ---- audio -------------------------------------------------------------------------------- */

/* A vocoder that looks back on 72 tokens, fed 25 at a time: state is carried from chunk to
 * chunk, so the samples are those of one pass over all. */
static void test_b040_a_long_window_in_short_chunks(void **state) {
    (void)state;
    enum { N = 200 };
    const char *how[] = {"chunk: [25]", "chunk: [1]", "async_chunk: false"};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        char edges[512];
        stub_env s;
        og_event ev;
        int64_t at = 0;
        edges_with(edges, sizeof edges, how[i]);
        assert_int_equal(stub_open_voc(&s, "stub_sum", edges, NULL, 0, NULL), 0);
        og_request *r = submit(&s, N, 3, STUB_OK);
        while (og_request_next(r, 10000, &ev) == OG_EVENT_ITEMS) {
            const float *x = ev.items.data;
            int64_t k = og_tensor_present(&ev.items) ? ev.items.ne[0] : 0;
            for (int64_t j = 0; j < k; j++, at++) {
                int64_t t = at / STUB_SPI,
                        first = t < STUB_WINDOW ? 0 : t - STUB_WINDOW + 1;
                int64_t want = (t - first + 1) * 3000 + (first + t) * (t - first + 1) / 2;
                assert_int_equal((int64_t)x[j], want);
            }
        }
        assert_int_equal(ev.kind, OG_EVENT_DONE);
        assert_int_equal(at, N * STUB_SPI);
        og_request_free(r);
        stub_assert_drained(&s);
        stub_close(&s);
    }
}

/* Two tokens a step into a window of one chunk, with a client that sleeps: nothing is lost. */
static void test_b042_a_slow_client_loses_nothing(void **state) {
    (void)state;
    char edges[512];
    stub_env s;
    og_event ev;
    int64_t at = 0;
    og_engine_opts opts = {.window_bytes = STUB_SPI * sizeof(float)};
    edges_with(edges, sizeof edges, "chunk: [1]");
    assert_int_equal(stub_open_sets(&s, edges, NULL, 0, &opts), 0);
    og_request *r = submit(&s, 100, 1, STUB_OK);
    while (og_request_next(r, 10000, &ev) == OG_EVENT_ITEMS) {
        struct timespec t = {0, 2000000};
        const float *x = ev.items.data;
        int64_t k = og_tensor_present(&ev.items) ? ev.items.ne[0] : 0;
        for (int64_t i = 0; i < k; i++, at++)
            assert_int_equal((int)x[i], 1000 + (int)(at / STUB_SPI));
        nanosleep(&t, NULL);
    }
    assert_int_equal(ev.kind, OG_EVENT_DONE);
    assert_int_equal(at, 100 * STUB_SPI);
    og_request_free(r);
    stub_assert_drained(&s);
    stub_close(&s);
}

/* ---- scheduling --------------------------------------------------------------------------- */

/* Neither a window nor chunking on or off makes a lone request stall. */
static void test_b079_windows_and_chunking(void **state) {
    (void)state;
    const int windows[] = {1, 2, 8};
    double least = 1e9, most = 0;
    for (int i = 0; i < 6; i++) {
        char edges[512];
        stub_env s;
        og_engine_opts opts = {.window_bytes =
                                   (size_t)windows[i % 3] * STUB_SPI * sizeof(float)};
        edges_with(edges, sizeof edges, i < 3 ? "chunk: [1]" : "async_chunk: false");
        assert_int_equal(stub_open_sets(&s, edges, NULL, 0, &opts), 0);
        double start = now();
        expect_all(submit(&s, 5, 2, STUB_OK), 5, 2);
        double took = now() - start;
        least = took < least ? took : least;
        most = took > most ? took : most;
        stub_assert_drained(&s);
        stub_close(&s);
    }
    print_message("six settings: %.4f to %.4f s\n", least, most);
    assert_true(most < 2 * least + 0.5);
}

/* Of three requests on three replicas, the second is forgotten by its stage, fails in it, or
 * takes the replica with it. The two others get all of theirs. */
static void one_of_three(int mode, const char *words) {
    stub_env s;
    const char *sets[] = {"source.num_replicas=3", "voc.num_replicas=3"};
    assert_int_equal(stub_open_sets(&s, stub_plain, sets, 2, NULL), 0);
    og_request *r[3];
    int64_t at[3] = {0};
    int bad = 0;
    for (int i = 0; i < 3; i++) r[i] = submit(&s, 300, i + 1, i == 1 ? mode : STUB_OK);
    double start = now();
    og_event ev = read_on(r[1], 2, mode == STUB_HANG ? 200 : 5000, &at[1], &bad);
    if (mode == STUB_HANG) {
        assert_int_equal(ev.kind, OG_EVENT_TIMEOUT);
        og_request_cancel(r[1]);
        ev = read_on(r[1], 2, 5000, &at[1], &bad);
    }
    assert_int_equal(ev.kind, OG_EVENT_ERROR);
    if (!strstr(ev.err.msg, words)) fail_msg("'%s' is not in '%s'", words, ev.err.msg);
    assert_true(now() - start < 1);
    og_request_free(r[1]);
    expect_all(r[0], 300, 1);
    expect_all(r[2], 300, 3);
    expect_all(submit(&s, 5, 4, STUB_OK), 5, 4);
    assert_int_equal(bad, 0);
    stub_assert_drained(&s);
    stub_close(&s);
}

static void test_b080_what_never_comes(void **state) {
    (void)state;
    one_of_three(STUB_HANG, "cancel");
    one_of_three(STUB_FAIL, "went wrong");
    one_of_three(STUB_LOSE, "the device is gone");
}

enum { CLIENTS = 4, EACH = 50 };

typedef struct client {
    stub_env *s;
    int first, bad, done, failed, lost;
} client;

static void *client_main(void *arg) {
    client *c = arg;
    for (int i = 0; i < EACH; i++) {
        int n = 20 + i % 30, stamp = c->first + i % 20;
        og_err err = OG_ERR_INIT;
        og_request *r = NULL;
        json_t *f = json_pack("{s:i,s:i}", "n", n, "stamp", stamp);
        og_request_desc d = {.fields = f};
        int rc = og_engine_submit(c->s->engine, &d, &r, &err);
        json_decref(f);
        if (rc < 0) {
            c->lost++;
            continue;
        }
        int64_t at = 0;
        og_event ev = read_slowly(r, stamp, 10000, 10, &at, &c->bad);
        c->done += ev.kind == OG_EVENT_DONE && at == (int64_t)n * STUB_SPI;
        c->failed += ev.kind == OG_EVENT_ERROR && strstr(ev.err.msg, "fault") != NULL;
        og_request_free(r);
    }
    return NULL;
}

/* Requests that do not end are handed in until each replica holds one, for a second. */
static bool both_work_again(stub_env *s, int stage) {
    og_request *held[100];
    int n = 0;
    bool both = false;
    for (double start = now(); !both && n < 100 && now() - start < 1;) {
        og_node_stats st[2];
        held[n++] = submit(s, 400, 1, STUB_HANG);
        nanosleep(&(struct timespec){0, 10000000}, NULL);
        for (int i = 0; i < 2; i++)
            assert_int_equal(og_engine_node_stats(s->engine, stage, i, &st[i]), 0);
        both = st[0].slots_used > 0 && st[1].slots_used > 0;
    }
    while (n > 0) og_request_free(held[--n]);
    return both;
}

/* Replicas leave ten times a second and are made anew: every request ends, with all of its
 * samples or with an error, and afterwards each replica has work again. */
static void test_b082_replicas_come_and_go(void **state) {
    (void)state;
    stub_env s;
    const char *sets[] = {"source.num_replicas=2", "voc.num_replicas=2"};
    og_engine_opts opts = {.window_bytes = 2 * STUB_SPI * sizeof(float)};
    assert_int_equal(stub_open_sets(&s, stub_plain, sets, 2, &opts), 0);
    int source = og_plan_find_stage(s.plan, "source"), done = 0, failed = 0;
    client c[CLIENTS];
    pthread_t t[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        c[i] = (client){.s = &s, .first = 1 + 20 * i};
        assert_int_equal(pthread_create(&t[i], NULL, client_main, &c[i]), 0);
    }
    for (int i = 0; i < 20; i++) {
        nanosleep(&(struct timespec){0, 100000000}, NULL);
        assert_int_equal(og_engine_inject_fault(s.engine, source, i % 2), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(c[i].bad, 0);
        assert_int_equal(c[i].lost, 0);
        done += c[i].done;
        failed += c[i].failed;
    }
    og_engine_stats st;
    og_engine_get_stats(s.engine, &st);
    print_message("%d requests: %d done, %d failed, %d replicas made anew\n",
                  CLIENTS * EACH, done, failed, st.rebuilt);
    assert_int_equal(done + failed, CLIENTS * EACH);
    assert_true(st.rebuilt >= 5 && failed > 0 && done > 0);
    assert_true(both_work_again(&s, source));
    stub_assert_drained(&s);
    stub_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b040_a_long_window_in_short_chunks),
        cmocka_unit_test(test_b042_a_slow_client_loses_nothing),
        cmocka_unit_test(test_b079_windows_and_chunking),
        cmocka_unit_test(test_b080_what_never_comes),
        cmocka_unit_test(test_b082_replicas_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
