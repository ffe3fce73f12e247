/* Many requests on two replicas of every stage: each is bitwise what it is alone, a replica
 * that fails takes only its own with it, and nothing is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/run/rig.h"

#define MANY 64
#define FAULTY 12

static json_t *fields(int i) {
    static const char *const words[] = {"one", "two", "three", "four", "five", "six", "seven"};
    static const char *const voices[] = {"ryan", "serena", "vivian", "aiden", "eric"};
    static const char *const languages[] = {"English", "Auto", "Chinese"};
    char text[512] = "";
    for (int k = 0; k <= i * 5 % 13; k++) {
        strcat(text, k ? " " : "");
        strcat(text, words[(i + k) % 7]);
    }
    json_t *f = json_pack("{s:s,s:s,s:s,s:b}", "text", text, "voice", voices[i % 5],
                          "language", languages[i % 3], "non_streaming_mode", i % 2);
    if (i % 4 == 0)
        json_object_set_new(f, "instructions", json_string("Speak slowly and clearly."));
    return f;
}

static const setup two_replicas = {.model = "tests/data/qwen3_tts/tiny-b/custom_voice",
                                   .max_tokens = 14,
                                   .threads = 2,
                                   .sampled = true,
                                   .same_bits = true,
                                   .sets = {"talker.num_replicas=2", "code2wav.num_replicas=2",
                                            "talker.max_num_seqs=5",
                                            "code2wav.max_num_seqs=4"},
                                   .n_sets = 4};
static const setup one_at_a_time = {.model = "tests/data/qwen3_tts/tiny-b/custom_voice",
                                    .max_tokens = 14,
                                    .threads = 1,
                                    .sampled = true,
                                    .same_bits = true};

static void assert_back_to_zero(rig *s) {
    og_engine_stats st;
    og_engine_get_stats(s->engine, &st);
    assert_int_equal(st.requests, 0);
    assert_int_equal(st.queued, 0);
    assert_int_equal(st.buffer_bytes, 0);
    for (int i = 0; i < s->plan->n_stages; i++)
        for (int r = 0; r < s->plan->stages[i].n_replicas; r++) {
            og_node_stats n;
            assert_int_equal(og_engine_node_stats(s->engine, i, r, &n), 0);
            assert_int_equal(n.slots_used, 0);
            assert_int_equal(n.kv_pages_used, 0);
        }
}

static void compare_with_solo(rig *solo, int i, const answer *a) {
    answer b;
    json_t *f = fields(i);
    ask(solo, &b, f, 1000 + (uint64_t)i);
    json_decref(f);
    read_answer(&b);
    assert_same(a, &b);
    answer_free(&b);
}

static void test_many_on_two_replicas(void **state) {
    (void)state;
    rig s, solo;
    rig_open(&s, &two_replicas);
    rig_open(&solo, &one_at_a_time);
    static answer a[MANY];
    for (int i = 0; i < MANY; i++) {
        json_t *f = fields(i);
        ask(&s, &a[i], f, 1000 + (uint64_t)i);
        json_decref(f);
    }
    for (int i = 0; i < MANY; i++) {
        read_answer(&a[i]);
        compare_with_solo(&solo, i, &a[i]);
        answer_free(&a[i]);
    }
    int talker = og_plan_find_stage(s.plan, "talker");
    for (int r = 0; r < 2; r++) {
        og_node_stats n;
        assert_int_equal(og_engine_node_stats(s.engine, talker, r, &n), 0);
        assert_true(n.rows > 0);
    }
    assert_back_to_zero(&s);
    rig_close(&s);
    rig_close(&solo);
}

/* Reads to the end or to an error; returns which. */
static og_event_kind read_to_end(answer *a) {
    og_event ev;
    og_event_kind kind;
    while ((kind = og_request_next(a->r, 120000, &ev)) == OG_EVENT_ITEMS) {
        int64_t k = og_tensor_present(&ev.items) ? ev.items.ne[0] : 0;
        a->wav = og_realloc(a->wav, (size_t)(a->n + k) * sizeof *a->wav + 1);
        if (k) memcpy(a->wav + a->n, ev.items.data, (size_t)k * sizeof *a->wav);
        a->n += k;
    }
    if (kind == OG_EVENT_DONE)
        assert_int_equal(og_request_tapped(a->r, 0, 0, &a->codes), 0);
    else
        assert_non_null(strstr(ev.err.msg, "fault"));
    return kind;
}

static int round_with_fault(rig *s, rig *solo, int replica) {
    answer a[FAULTY];
    int failed = 0;
    for (int i = 0; i < FAULTY; i++) {
        json_t *f = fields(i);
        ask(s, &a[i], f, 1000 + (uint64_t)i);
        json_decref(f);
    }
    og_event ev; /* until the first has begun to speak */
    og_event_kind first = og_request_next(a[0].r, 120000, &ev);
    assert_int_equal(first, OG_EVENT_ITEMS);
    int64_t n0 = ev.items.ne[0];
    a[0].wav = og_malloc((size_t)n0 * sizeof(float));
    memcpy(a[0].wav, ev.items.data, (size_t)n0 * sizeof(float));
    a[0].n = n0;
    if (replica >= 0)
        assert_int_equal(og_engine_inject_fault(
                             s->engine, og_plan_find_stage(s->plan, "talker"), replica),
                         0);
    for (int i = 0; i < FAULTY; i++) {
        if (read_to_end(&a[i]) == OG_EVENT_DONE)
            compare_with_solo(solo, i, &a[i]);
        else
            failed++;
        answer_free(&a[i]);
    }
    assert_back_to_zero(s);
    return failed;
}

static void test_a_replica_fails_and_returns(void **state) {
    (void)state;
    rig s, solo;
    setup c = two_replicas;
    c.max_tokens = 60; /* long enough to be hit in the middle */
    setup d = one_at_a_time;
    d.max_tokens = 60;
    rig_open(&s, &c);
    rig_open(&solo, &d);
    int failed = round_with_fault(&s, &solo, 0);
    assert_true(failed >= 1 && failed < FAULTY);
    assert_int_equal(round_with_fault(&s, &solo, -1), 0);
    og_engine_stats st;
    og_engine_get_stats(s.engine, &st);
    assert_int_equal(st.rebuilt, 1);
    rig_close(&s);
    rig_close(&solo);
}

/* Three at once, and the first leaves: in its prefill, which takes several steps, or when its
 * codes wait on the edge for a chunk to fill. The others and a fourth get what they get alone.
 * Whether it left before it was done: on a busy machine it may be done first. */
static bool abort_the_first(rig *s, rig *solo, bool on_the_edge) {
    answer a[4];
    og_stage_progress p = {0};
    int talker = og_plan_find_stage(s->plan, "talker");
    for (int i = 0; i < 3; i++) {
        json_t *f = fields(8 + i);
        ask(s, &a[i], f, 1008 + (uint64_t)i);
        json_decref(f);
    }
    while (on_the_edge && p.items < 2) og_request_get_progress(a[0].r, talker, &p);
    og_request_cancel(a[0].r);
    og_event ev;
    bool left = og_request_next(a[0].r, 5000, &ev) == OG_EVENT_ERROR;
    if (left) assert_int_equal(ev.err.code, OG_ECANCELED);
    json_t *f = fields(11);
    ask(s, &a[3], f, 1011);
    json_decref(f);
    answer_free(&a[0]);
    for (int i = 1; i < 4; i++) {
        read_answer(&a[i]);
        compare_with_solo(solo, 8 + i, &a[i]);
        answer_free(&a[i]);
    }
    assert_back_to_zero(s);
    return left;
}

static void test_b048_the_first_of_three_leaves(void **state) {
    (void)state;
    setup c = two_replicas;
    static const char *const sets[] = {"talker.max_num_seqs=3", "code2wav.max_num_seqs=3",
                                       "talker.max_num_batched_tokens=8", "async_chunk=false"};
    c.n_sets = sizeof sets / sizeof *sets;
    memcpy(c.sets, sets, sizeof sets);
    setup d = one_at_a_time;
    c.max_tokens = d.max_tokens = 40;
    rig s, solo;
    int left[2] = {0};
    rig_open(&s, &c);
    rig_open(&solo, &d);
    for (int i = 0; i < 6; i++) left[i % 2] += abort_the_first(&s, &solo, i % 2);
    print_message("left in time: %d of 3 in prefill, %d of 3 later\n", left[0], left[1]);
    assert_true(left[0] > 0 && left[1] > 0);
    rig_close(&s);
    rig_close(&solo);
}

/* A client that stops reading in the middle of a dialogue holds nobody up, and what it has
 * not read is bounded by what the request can make at most. */
static void test_b086_a_dialogue_nobody_reads(void **state) {
    (void)state;
    setup c = {.pipeline = "dialogue",
               .model = "tests/data/qwen3_tts/tiny-a/custom_voice",
               .max_tokens = 16,
               .threads = 2};
    rig d;
    rig_open(&d, &c);
    json_t *f = json_pack("{s:s}", "text", "Ann: Hello there.\nBob: Good day to you.");
    answer silent, other;
    ask(&d, &silent, f, 5);
    for (int i = 0; i < 3; i++) {
        ask(&d, &other, f, 6 + (uint64_t)i);
        read_answer(&other);
        assert_true(other.n > 0);
        answer_free(&other);
    }
    og_engine_stats st;
    og_engine_get_stats(d.engine, &st);
    print_message("unread dialogue: %zu bytes of address space\n", st.buffer_bytes);
    assert_true(st.buffer_bytes <= 2 * (16 * 1920 * sizeof(float) + 16 * 16 * 4));
    answer_free(&silent);
    json_decref(f);
    assert_back_to_zero(&d);
    rig_close(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_on_two_replicas),
        cmocka_unit_test(test_a_replica_fails_and_returns),
        cmocka_unit_test(test_b048_the_first_of_three_leaves),
        cmocka_unit_test(test_b086_a_dialogue_nobody_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
