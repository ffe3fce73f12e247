/* One request alone, in company of 1, 7 and 63 others, after another, and on either of two
 * replicas: in deterministic mode, which the CPU is always in, codes and samples are the same
 * bits. In fast mode codes are the same among more than four rows. The embedded voice, whose
 * weights are bf16; OG_TEST_BACKEND names the backend. The CPU, and OG_TEST_SHORT, leave large
 * batches out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/run/rig.h"

enum { FRAMES = 24, LONG = 400, MOST = 64 };

static int company_most(void) {
    const char *backend = getenv("OG_TEST_BACKEND");
    bool fast = backend && !strcmp(backend, "cuda");
    return fast && !getenv("OG_TEST_SHORT") ? MOST : 8;
}

static void open_voice(rig *r, int replicas, bool same_bits) {
    static const char *const one[] = {"talker.max_num_seqs=64", "code2wav.max_num_seqs=64",
                                      "talker.max_model_len=640",
                                      "talker.default_sampling_params.min_tokens=400"};
    setup c = {.model = "examples/voice", .threads = 2, .sampled = true, .same_bits = same_bits};
    memcpy(c.sets, one, sizeof one);
    c.n_sets = 4;
    if (replicas == 2) {
        c.sets[c.n_sets++] = "talker.num_replicas=2";
        c.sets[c.n_sets++] = "code2wav.num_replicas=2";
    }
    if (!same_bits) c.sets[c.n_sets++] = "talker.enable_prefix_caching=false";
    rig_open(r, &c);
}

/* Answers of different length with seeds of their own; number 0 is the one that is compared. */
static void start(rig *r, answer *a, int number, int frames) {
    static const char *const words[] = {"Rain", "A small boat", "Nobody", "The morning train"};
    char text[64];
    snprintf(text, sizeof text, "%s came late.", words[number % 4]);
    json_t *f = json_pack("{s:s,s:s,s:s}", "text", text, "voice", "rms", "language", "English");
    memset(a, 0, sizeof *a);
    static const og_request_tap tap = {"talker", "codes"};
    og_request_desc d = {.fields = f, .has_seed = 1, .seed = 50 + (uint64_t)number,
                         .max_tokens = frames, .taps = &tap, .n_taps = 1};
    og_err err = OG_ERR_INIT;
    if (og_engine_submit(r->engine, &d, &a->r, &err) < 0) fail_msg("%s", err.msg);
    json_decref(f);
}

static void wait_for_sound(answer *a) {
    og_event ev;
    og_event_kind kind = og_request_next(a->r, 120000, &ev);
    if (kind == OG_EVENT_ERROR) fail_msg("%s", ev.err.msg);
    assert_int_equal(kind, OG_EVENT_ITEMS);
}

static void one(rig *r, answer *a) {
    start(r, a, 0, FRAMES + 1); /* with the token that ends it */
    read_answer(a);
    assert_int_equal(a->codes.ne[0], FRAMES);
}

/* While `others` requests speak, which outlast it. */
static void one_of_many(rig *r, answer *a, int others) {
    static answer company[MOST];
    for (int i = 0; i < others; i++) start(r, &company[i], 1 + i, LONG);
    for (int i = 0; i < others; i++) wait_for_sound(&company[i]);
    one(r, a);
    for (int i = 0; i < others; i++) answer_free(&company[i]);
}

static void expect(const answer *want, answer *got, bool samples, const char *where) {
    bool same = og_tensor_bytes(&want->codes) == og_tensor_bytes(&got->codes) &&
                !memcmp(want->codes.data, got->codes.data, og_tensor_bytes(&got->codes));
    bool heard = want->n == got->n &&
                 !memcmp(want->wav, got->wav, (size_t)got->n * sizeof *got->wav);
    print_message("%-24s codes %s, samples %s\n", where, same ? "the same" : "DIFFER",
                  heard ? "the same" : "DIFFER");
    answer_free(got);
    assert_true(same && (heard || !samples));
}

static void test_alone_and_in_batches(void **state) {
    (void)state;
    static const int sizes[] = {2, 8, MOST};
    rig r;
    answer want, got;
    open_voice(&r, 1, true);
    one(&r, &want);
    one(&r, &got);
    expect(&want, &got, true, "after another");
    for (int i = 0; i < 3 && sizes[i] <= company_most(); i++) {
        char where[32];
        snprintf(where, sizeof where, "in a batch of %d", sizes[i]);
        one_of_many(&r, &got, sizes[i] - 1);
        expect(&want, &got, true, where);
    }
    answer_free(&want);
    rig_close(&r);
}

/* A long request holds the first replica, so that the second takes the next one. */
static void test_on_either_replica(void **state) {
    (void)state;
    rig r;
    answer want, got, other;
    open_voice(&r, 2, true);
    one(&r, &want);
    start(&r, &other, 1, LONG);
    wait_for_sound(&other);
    one(&r, &got);
    expect(&want, &got, true, "on the other replica");
    answer_free(&other);
    answer_free(&want);
    int talker = og_plan_find_stage(r.plan, "talker");
    for (int i = 0; i < 2; i++) {
        og_node_stats n;
        assert_int_equal(og_engine_node_stats(r.engine, talker, i, &n), 0);
        assert_true(n.rows > 0);
    }
    rig_close(&r);
}

/* Among more than four rows a product is the tensor cores', whatever their number: so no
 * prompt may be answered from the cache but for its last row. */
static void test_one_batch_class_in_fast_mode(void **state) {
    (void)state;
    static const int sizes[] = {6, 7, 8, 32};
    rig r;
    answer want, got;
    open_voice(&r, 1, false);
    one_of_many(&r, &want, 7);
    for (int i = 0; i < 4 && sizes[i] <= company_most(); i++) {
        char where[32];
        snprintf(where, sizeof where, "fast, in a batch of %d", sizes[i]);
        one_of_many(&r, &got, sizes[i] - 1);
        expect(&want, &got, false, where);
    }
    answer_free(&want);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone_and_in_batches),
        cmocka_unit_test(test_on_either_replica),
        cmocka_unit_test(test_one_batch_class_in_fast_mode),
    };
    return cmocka_run_group_tests_name("same bits", tests, NULL, NULL);
}
