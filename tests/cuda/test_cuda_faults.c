/* What fails on the device, under two replicas of every stage: a launch that cannot start and
 * memory that is out cost one replica, which is made anew, and the others' requests are what they
 * are alone; a kernel that traps costs the device, which requests and the engine's counters say.
 * Skips without a device. The trap comes last: no other test of the process can follow it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/cuda/inject.h"
#include "tests/run/rig.h"

enum { REQUESTS = 12 };

static const setup two_replicas = {.model = "tests/data/qwen3_tts/tiny-b/custom_voice",
                                   .backend = "cuda",
                                   .max_tokens = 60,
                                   .threads = 2,
                                   .sampled = true,
                                   .same_bits = true,
                                   .sets = {"talker.num_replicas=2", "code2wav.num_replicas=2",
                                            "talker.max_num_seqs=4",
                                            "code2wav.max_num_seqs=4"},
                                   .n_sets = 4};

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

static void begin(rig *r, answer *a, int i) {
    static const char *const voices[] = {"ryan", "serena", "vivian", "aiden"};
    char text[64];
    snprintf(text, sizeof text, "Request %d of many.", i);
    json_t *f = json_pack("{s:s,s:s}", "text", text, "voice", voices[i % 4]);
    ask(r, a, f, 300 + (uint64_t)i);
    json_decref(f);
}

/* 1: done, 0: failed; the error is in *err. */
static int end(answer *a, og_err *err) {
    og_event ev;
    og_event_kind kind;
    while ((kind = og_request_next(a->r, 120000, &ev)) == OG_EVENT_ITEMS) {
        int64_t k = og_tensor_present(&ev.items) ? ev.items.ne[0] : 0;
        a->wav = og_realloc(a->wav, (size_t)(a->n + k) * sizeof *a->wav + 1);
        if (k) memcpy(a->wav + a->n, ev.items.data, (size_t)k * sizeof *a->wav);
        a->n += k;
    }
    if (kind == OG_EVENT_DONE) {
        assert_int_equal(og_request_tapped(a->r, 0, 0, &a->codes), 0);
        return 1;
    }
    assert_int_equal(kind, OG_EVENT_ERROR);
    *err = ev.err;
    return 0;
}

/* What fails is one of the launches of a round of requests. Returns how many failed. */
static int a_round(rig *r, rig *solo, inject_kind kind, int launches, og_err *err) {
    answer a[REQUESTS], b;
    int failed = 0;
    inject_arm(kind, launches);
    for (int i = 0; i < REQUESTS; i++) begin(r, &a[i], i);
    for (int i = 0; i < REQUESTS; i++) {
        int done = end(&a[i], err);
        failed += !done;
        if (done && solo) {
            begin(solo, &b, i);
            read_answer(&b);
            assert_same(&a[i], &b);
            answer_free(&b);
        }
        answer_free(&a[i]);
    }
    return failed;
}

static void one_replica(inject_kind kind, int launches) {
    rig r, solo;
    og_err err = OG_ERR_INIT;
    og_engine_stats st;
    rig_open(&r, &two_replicas);
    rig_open(&solo, &two_replicas);
    assert_int_equal(a_round(&r, NULL, INJECT_NONE, 0, &err), 0);
    /* none is running in solo now, so what fails is one of r's */
    int failed = a_round(&r, NULL, kind, launches, &err);
    assert_true(inject_done());
    print_message("%d of %d requests failed: %s\n", failed, REQUESTS, err.msg);
    assert_true(failed >= 1 && failed < REQUESTS);
    assert_int_equal(a_round(&r, &solo, INJECT_NONE, 0, &err), 0);
    og_engine_get_stats(r.engine, &st);
    assert_int_equal(st.rebuilt, 1);
    assert_int_equal(st.lost, 0);
    rig_close(&r);
    rig_close(&solo);
}

static void test_a_launch_that_cannot_start(void **state) {
    (void)state;
    if (!have_gpu()) skip();
    one_replica(INJECT_LAUNCH, 40);
}

static void test_memory_is_out(void **state) {
    (void)state;
    if (!have_gpu()) skip();
    one_replica(INJECT_MEMORY, 70);
}

static void test_a_trap_loses_the_device(void **state) {
    (void)state;
    if (!have_gpu()) skip();
    rig r;
    answer a;
    og_err err = OG_ERR_INIT;
    og_engine_stats st;
    rig_open(&r, &two_replicas);
    int failed = a_round(&r, NULL, INJECT_TRAP, 60, &err);
    assert_true(inject_done());
    print_message("%d of %d requests failed: %s\n", failed, REQUESTS, err.msg);
    assert_true(failed >= 1);
    assert_non_null(strstr(err.msg, "lost"));
    assert_int_equal(err.code, OG_ELOST);
    for (int i = 0; i < 2; i++) { /* on either replica */
        begin(&r, &a, i);
        assert_int_equal(end(&a, &err), 0);
        assert_int_equal(err.code, OG_ELOST);
        answer_free(&a);
    }
    og_engine_get_stats(r.engine, &st);
    assert_true(st.lost >= 1);
    assert_int_equal(st.rebuilt, 0);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_launch_that_cannot_start),
        cmocka_unit_test(test_memory_is_out),
        cmocka_unit_test(test_a_trap_loses_the_device),
    };
    return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
