#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "tests/run/stub.h"

static og_request *submit(stub_env *s, int n, int stamp, int mode, int lanes) {
    og_err err = OG_ERR_INIT;
    og_request *r = NULL;
    json_t *f = json_pack("{s:i,s:i,s:i,s:i}", "n", n, "stamp", stamp, "mode", mode, "lanes",
                          lanes);
    og_request_desc d = {.fields = f, .has_seed = 1, .seed = 1};
    int rc = og_engine_submit(s->engine, &d, &r, &err);
    json_decref(f);
    if (rc < 0) fprintf(stderr, "%s\n", err.msg);
    assert_int_equal(rc, 0);
    return r;
}

/* Read to the end. Checks that the samples are those of tokens 0..n-1 of that stamp, in
 * order, each STUB_SPI times. Returns how the request ended. */
static og_event_kind read_all(og_request *r, int n, int stamp, og_err *err) {
    og_event ev;
    int64_t at = 0;
    og_event_kind kind;
    while ((kind = og_request_next(r, 10000, &ev)) == OG_EVENT_ITEMS) {
        if (!og_tensor_present(&ev.items)) continue;
        const float *x = ev.items.data;
        for (int64_t i = 0; i < ev.items.ne[0]; i++, at++)
            assert_int_equal((int)x[i], stamp * 1000 + (int)(at / STUB_SPI));
    }
    if (kind == OG_EVENT_DONE) assert_int_equal(at, (int64_t)n * STUB_SPI);
    if (kind == OG_EVENT_ERROR && err) *err = ev.err;
    if (kind == OG_EVENT_ERROR && !err) fprintf(stderr, "%s\n", ev.err.msg);
    return kind;
}

static void test_one_request(void **state) {
    (void)state;
    stub_env s;
    assert_int_equal(stub_open_sets(&s, stub_plain, NULL, 0, NULL), 0);
    og_request *r = submit(&s, 5, 7, STUB_OK, 1);
    assert_int_equal(read_all(r, 5, 7, NULL), OG_EVENT_DONE);
    og_event ev;
    assert_int_equal(og_request_next(r, 0, &ev), OG_EVENT_DONE);
    og_request_free(r);
    stub_assert_drained(&s);
    stub_close(&s);
}

/* The result does not depend on the chunk schedule, and chunking off never stalls. */
static void test_b079_b042_chunk_schedules(void **state) {
    (void)state;
    const char *chunks[] = {"chunk: [1]", "chunk: [2]", "chunk: [8]", "chunk: [1, 2, 4, 100]",
                            "async_chunk: false"};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        char edges[512];
        snprintf(edges, sizeof edges,
                 "  - {from: {n: request.n}, to: {prompt: source.prompt}, hook: stub.go}\n"
                 "  - {from: source.tokens, to: voc.tokens, %s}\n"
                 "  - {from: voc.audio, to: response.audio}\n",
                 chunks[i]);
        stub_env s;
        assert_int_equal(stub_open_sets(&s, edges, NULL, 0, NULL), 0);
        og_request *r = submit(&s, 99, 3, STUB_OK, 1);
        assert_int_equal(read_all(r, 99, 3, NULL), OG_EVENT_DONE);
        og_request_free(r);
        stub_assert_drained(&s);
        stub_close(&s);
    }
}

typedef struct client {
    stub_env *s;
    int first, count;
    int bad;
} client;

static void *client_main(void *arg) {
    client *c = arg;
    for (int i = 0; i < c->count; i++) {
        int stamp = c->first + i % 50, n = 1 + (c->first * 7 + i * 13) % 40;
        og_err err = OG_ERR_INIT;
        og_request *r = NULL;
        json_t *f = json_pack("{s:i,s:i}", "n", n, "stamp", stamp);
        og_request_desc d = {.fields = f};
        if (og_engine_submit(c->s->engine, &d, &r, &err) < 0) c->bad++;
        json_decref(f);
        if (!r) continue;
        if (i % 5 == 4)
            og_request_cancel(r);
        else {
            og_event ev;
            int64_t at = 0;
            og_event_kind kind;
            while ((kind = og_request_next(r, 20000, &ev)) == OG_EVENT_ITEMS) {
                const float *x = ev.items.data;
                int64_t k = og_tensor_present(&ev.items) ? ev.items.ne[0] : 0;
                for (int64_t j = 0; j < k; j++, at++)
                    c->bad += (int)x[j] != stamp * 1000 + (int)(at / STUB_SPI);
            }
            c->bad += kind != OG_EVENT_DONE || at != (int64_t)n * STUB_SPI;
        }
        og_request_free(r);
    }
    return NULL;
}

/* Many clients on few slots, one in five leaves at once: nobody gets another's samples. */
static void test_b050_b048_each_its_own(void **state) {
    (void)state;
    stub_env s;
    const char *sets[] = {"source.max_num_seqs=3", "voc.max_num_seqs=2"};
    assert_int_equal(stub_open_sets(&s, stub_plain, sets, 2, NULL), 0);
    client c[4];
    pthread_t t[4];
    for (int i = 0; i < 4; i++) {
        c[i] = (client){&s, 1 + i * 20, 60, 0};
        pthread_create(&t[i], NULL, client_main, &c[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(c[i].bad, 0);
    }
    stub_assert_drained(&s);
    stub_close(&s);
}

static void test_b080_one_fails_others_go_on(void **state) {
    (void)state;
    stub_env s;
    assert_int_equal(stub_open_sets(&s, stub_plain, NULL, 0, NULL), 0);
    og_request *a = submit(&s, 30, 1, STUB_OK, 1), *b = submit(&s, 30, 2, STUB_FAIL, 1);
    og_request *c = submit(&s, 30, 3, STUB_OK, 1);
    og_err err = OG_ERR_INIT;
    assert_int_equal(read_all(b, 30, 2, &err), OG_EVENT_ERROR);
    assert_non_null(strstr(err.msg, "went wrong"));
    assert_string_equal(err.node, "source");
    assert_int_equal(read_all(a, 30, 1, NULL), OG_EVENT_DONE);
    assert_int_equal(read_all(c, 30, 3, NULL), OG_EVENT_DONE);
    og_request_free(a);
    og_request_free(b);
    og_request_free(c);
    stub_assert_drained(&s);
    stub_close(&s);
}

static void test_hang_is_cancelled(void **state) {
    (void)state;
    stub_env s;
    assert_int_equal(stub_open_sets(&s, stub_plain, NULL, 0, NULL), 0);
    og_request *a = submit(&s, 30, 1, STUB_HANG, 1);
    og_event ev;
    while (og_request_next(a, 50, &ev) == OG_EVENT_ITEMS) {
    }
    assert_int_equal(ev.kind, OG_EVENT_TIMEOUT);
    og_request_cancel(a);
    assert_int_equal(og_request_next(a, 1000, &ev), OG_EVENT_ERROR);
    assert_int_equal(ev.err.code, OG_ECANCELED);
    og_request_free(a);
    stub_assert_drained(&s);
    stub_close(&s);
}

/* A replica that is lost fails its own requests and is made anew; later ones run. */
static void test_lost_replica(void **state) {
    (void)state;
    stub_env s;
    assert_int_equal(stub_open_sets(&s, stub_plain, NULL, 0, NULL), 0);
    og_err err = OG_ERR_INIT;
    og_request *a = submit(&s, 30, 1, STUB_LOSE, 1);
    assert_int_equal(read_all(a, 30, 1, &err), OG_EVENT_ERROR);
    assert_non_null(strstr(err.msg, "the device is gone"));
    og_request *b = submit(&s, 3, 2, STUB_OK, 1);
    assert_int_equal(read_all(b, 3, 2, NULL), OG_EVENT_DONE);
    og_engine_stats st;
    og_engine_get_stats(s.engine, &st);
    assert_int_equal(st.rebuilt, 1);
    og_request_free(a);
    og_request_free(b);
    stub_assert_drained(&s);
    stub_close(&s);
}

/* Two replicas, one of which fails in the middle: only its own requests get errors, and the
 * next round runs on both again. */
static void test_fault_on_one_of_two_replicas(void **state) {
    (void)state;
    stub_env s;
    const char *sets[] = {"source.num_replicas=2", "voc.num_replicas=2"};
    assert_int_equal(stub_open_sets(&s, stub_plain, sets, 2, NULL), 0);
    int source = og_plan_find_stage(s.plan, "source");
    for (int round = 0; round < 3; round++) {
        og_request *r[6];
        int failed = 0, done = 0;
        for (int i = 0; i < 4; i++) { /* one by one, so that they are dealt evenly */
            og_event ev;
            r[i] = submit(&s, 400, i + 1, STUB_HANG, 1);
            assert_int_equal(og_request_next(r[i], 10000, &ev), OG_EVENT_ITEMS);
        }
        for (int i = 4; i < 6; i++) r[i] = submit(&s, 400, i + 1, STUB_OK, 1);
        assert_int_equal(read_all(r[4], 400, 5, NULL), OG_EVENT_DONE);
        assert_int_equal(read_all(r[5], 400, 6, NULL), OG_EVENT_DONE);
        assert_int_equal(og_engine_inject_fault(s.engine, source, round % 2), 0);
        for (int i = 0; i < 4; i++) {
            og_event ev;
            while (og_request_next(r[i], 300, &ev) == OG_EVENT_ITEMS) {
            }
            failed += ev.kind == OG_EVENT_ERROR;
            done += ev.kind == OG_EVENT_TIMEOUT;
        }
        assert_int_equal(failed, 2);
        assert_int_equal(done, 2);
        for (int i = 0; i < 6; i++) og_request_free(r[i]);
        stub_assert_drained(&s);
    }
    og_engine_stats st;
    og_engine_get_stats(s.engine, &st);
    assert_int_equal(st.rebuilt, 3);
    assert_int_equal(og_engine_inject_fault(s.engine, source, 7), OG_ENOENT);
    stub_close(&s);
}

/* A client that does not read stops its own request, and nobody else's. */
static void test_b086_slow_reader(void **state) {
    (void)state;
    stub_env s;
    og_engine_opts opts = {.window_bytes = 4 * STUB_SPI * sizeof(float)};
    assert_int_equal(stub_open_sets(&s, stub_plain, NULL, 0, &opts), 0);
    og_request *slow = submit(&s, 500, 9, STUB_OK, 1);
    for (int i = 0; i < 5; i++) {
        og_request *r = submit(&s, 50, i + 1, STUB_OK, 1);
        assert_int_equal(read_all(r, 50, i + 1, NULL), OG_EVENT_DONE);
        og_request_free(r);
    }
    og_stage_progress p;
    og_request_get_progress(slow, og_plan_find_stage(s.plan, "voc"), &p);
    assert_true(p.items < 500 * STUB_SPI);
    assert_int_equal(read_all(slow, 500, 9, NULL), OG_EVENT_DONE);
    og_request_free(slow);
    stub_assert_drained(&s);
    stub_close(&s);
}

static void test_joined_lanes(void **state) {
    (void)state;
    stub_env s;
    const char *edges =
        "  - {from: {n: request.n}, to: {prompt: source.prompt}, hook: stub.lines, "
        "lanes: numbered}\n"
        "  - {from: source.tokens, to: voc.tokens, chunk: [1, 2, 4]}\n"
        "  - {from: voc.audio, to: response.audio, join: {gap: 0.25}}\n";
    assert_int_equal(stub_open_sets(&s, edges, NULL, 0, NULL), 0);
    og_request *r = submit(&s, 10, 40, STUB_OK, 3);
    og_event ev;
    og_event_kind kind;
    int64_t at = 0, gaps = 0;
    while ((kind = og_request_next(r, 10000, &ev)) == OG_EVENT_ITEMS) {
        if (ev.gap) {
            assert_int_equal(ev.gap, 6000);
            gaps++;
            assert_int_equal(at, gaps * 10 * STUB_SPI);
        }
        if (!og_tensor_present(&ev.items)) continue;
        const float *x = ev.items.data;
        for (int64_t i = 0; i < ev.items.ne[0]; i++, at++) {
            int64_t lane = at / (10 * STUB_SPI), token = at / STUB_SPI % 10;
            assert_int_equal((int)x[i], (40 + lane + 1) * 1000 + token);
        }
    }
    assert_int_equal(kind, OG_EVENT_DONE);
    assert_int_equal(gaps, 2);
    assert_int_equal(at, 30 * STUB_SPI);
    og_request_free(r);
    stub_assert_drained(&s);
    stub_close(&s);
}

static void test_rejects(void **state) {
    (void)state;
    stub_env s;
    assert_int_equal(stub_open_sets(&s, stub_plain, NULL, 0, NULL), 0);
    og_err err = OG_ERR_INIT;
    og_request *r = submit(&s, 0, 1, STUB_OK, 1);
    assert_int_equal(read_all(r, 0, 1, &err), OG_EVENT_ERROR);
    assert_int_equal(err.code, OG_EREJECT);
    assert_string_equal(err.field, "n");
    og_request_free(r);
    json_t *f = json_pack("{s:s}", "n", "many");
    og_request_desc d = {.fields = f};
    og_err_clear(&err);
    assert_int_equal(og_engine_submit(s.engine, &d, &r, &err), OG_EREJECT);
    assert_string_equal(err.field, "n");
    assert_null(r);
    json_decref(f);
    og_request_tap tap = {"voc", "adio"};
    f = json_pack("{s:i}", "n", 3);
    d = (og_request_desc){.fields = f, .taps = &tap, .n_taps = 1};
    og_err_clear(&err);
    assert_int_equal(og_engine_submit(s.engine, &d, &r, &err), OG_EINVAL);
    json_decref(f);
    stub_assert_drained(&s);
    stub_close(&s);
}

static void test_queue_is_bounded(void **state) {
    (void)state;
    stub_env s;
    og_engine_opts opts = {.max_queue = 2};
    const char *sets[] = {"source.max_num_seqs=1"};
    assert_int_equal(stub_open_sets(&s, stub_plain, sets, 1, &opts), 0);
    og_request *held = submit(&s, 30, 1, STUB_HANG, 1);
    og_event ev;
    og_request_next(held, 10000, &ev);
    og_engine_stats st;
    do { /* it runs, and leaves the queue a moment later */
        og_engine_get_stats(s.engine, &st);
    } while (st.queued > 0);
    og_request *a = submit(&s, 5, 2, STUB_OK, 1), *b = submit(&s, 5, 3, STUB_OK, 1), *c = NULL;
    json_t *f = json_pack("{s:i}", "n", 3);
    og_request_desc d = {.fields = f};
    og_err err = OG_ERR_INIT;
    assert_int_equal(og_engine_submit(s.engine, &d, &c, &err), OG_EBUSY);
    assert_non_null(strstr(err.msg, "limit is 2"));
    json_decref(f);
    og_request_free(held);
    assert_int_equal(read_all(a, 5, 2, NULL), OG_EVENT_DONE);
    assert_int_equal(read_all(b, 5, 3, NULL), OG_EVENT_DONE);
    og_request_free(a);
    og_request_free(b);
    stub_assert_drained(&s);
    stub_close(&s);
}

static void test_taps(void **state) {
    (void)state;
    stub_env s;
    assert_int_equal(stub_open_sets(&s, stub_plain, NULL, 0, NULL), 0);
    og_request_tap taps[] = {{"source", "tokens"}, {"voc", "audio"}};
    json_t *f = json_pack("{s:i,s:i}", "n", 20, "stamp", 4);
    og_request_desc d = {.fields = f, .taps = taps, .n_taps = 2};
    og_err err = OG_ERR_INIT;
    og_request *r = NULL;
    assert_int_equal(og_engine_submit(s.engine, &d, &r, &err), 0);
    json_decref(f);
    assert_int_equal(read_all(r, 20, 4, NULL), OG_EVENT_DONE);
    og_tensor t;
    assert_int_equal(og_request_tapped(r, 0, 0, &t), 0);
    assert_int_equal(t.ne[0], 20);
    assert_int_equal(((int32_t *)t.data)[19], 4019);
    assert_int_equal(og_request_tapped(r, 1, 0, &t), 0);
    assert_int_equal(t.ne[0], 20 * STUB_SPI);
    assert_int_equal((int)((float *)t.data)[0], 4000);
    assert_int_equal(og_request_tapped(r, 0, 1, &t), OG_ENOENT);
    og_request_free(r);
    stub_assert_drained(&s);
    stub_close(&s);
}

/* Freeing requests in any state, and destroying an engine whose queue is not empty. */
static void test_free_in_any_state(void **state) {
    (void)state;
    stub_env s;
    const char *sets[] = {"source.max_num_seqs=1"};
    assert_int_equal(stub_open_sets(&s, stub_plain, sets, 1, NULL), 0);
    for (int i = 0; i < 50; i++) {
        og_request *a = submit(&s, 100, 1, STUB_OK, 1), *b = submit(&s, 100, 2, STUB_OK, 1);
        struct timespec t = {0, (i % 10) * 50000};
        nanosleep(&t, NULL);
        og_request_free(b);
        og_request_free(a);
    }
    stub_assert_drained(&s);
    stub_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_request),
        cmocka_unit_test(test_b079_b042_chunk_schedules),
        cmocka_unit_test(test_b050_b048_each_its_own),
        cmocka_unit_test(test_b080_one_fails_others_go_on),
        cmocka_unit_test(test_hang_is_cancelled),
        cmocka_unit_test(test_lost_replica),
        cmocka_unit_test(test_fault_on_one_of_two_replicas),
        cmocka_unit_test(test_b086_slow_reader),
        cmocka_unit_test(test_joined_lanes),
        cmocka_unit_test(test_rejects),
        cmocka_unit_test(test_queue_is_bounded),
        cmocka_unit_test(test_taps),
        cmocka_unit_test(test_free_in_any_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
