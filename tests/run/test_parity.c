/* The whole way of a request, from its fields through the hook, the talker and the vocoder
 * to samples, against the public reference's stored outputs; and against itself in company,
 * in chunks, on one thread and on two. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/run/rig.h"

/* Blank text is refused on purpose (the reference speaks the template's end). */
static bool is_blank(const json_t *meta) {
    const char *text = json_string_value(json_object_get(meta, "text"));
    return !text || strspn(text, " \t\r\n") == strlen(text);
}

static int run_case(const char *checkpoint, const char *name, const char *const *sets,
                    int n_sets, int threads) {
    char path[512];
    snprintf(path, sizeof path, "qwen3_tts/%s/%s", checkpoint, name);
    og_weights *g = golden_open(path);
    json_t *meta = case_meta(g), *fields = case_fields(meta);
    int done = 0;
    char model[256];
    snprintf(model, sizeof model, "tests/data/qwen3_tts/%s/%s", checkpoint,
             name[0] == 'v' ? "voice_design" : "custom_voice");
    setup c = {.model = model, .max_tokens = case_max_tokens(meta), .threads = threads};
    c.sets[c.n_sets++] = "talker.default_sampling_params.repetition_penalty=1.05";
    for (int i = 0; i < n_sets; i++) c.sets[c.n_sets++] = sets[i];
    rig s;
    rig_open(&s, &c);
    if (is_blank(meta)) {
        og_request_desc d = {.fields = fields};
        og_request *r = NULL;
        og_err err = OG_ERR_INIT;
        assert_int_equal(og_engine_submit(s.engine, &d, &r, &err), OG_EREJECT);
        assert_string_equal(err.field, "text");
    } else {
        answer a;
        ask(&s, &a, fields, 1);
        read_answer(&a);
        compare_with_golden(name, &a, g);
        answer_free(&a);
        done = 1;
    }
    rig_close(&s);
    json_decref(fields);
    json_decref(meta);
    og_weights_close(g);
    return done;
}

static int is_case(const struct dirent *e) {
    return !strncmp(e->d_name, "cv_", 3) || !strncmp(e->d_name, "vd_", 3);
}

static void every_case(const char *checkpoint) {
    char dir[512];
    snprintf(dir, sizeof dir, "%s/tests/golden/qwen3_tts/%s", OG_SOURCE_DIR, checkpoint);
    struct dirent **files = NULL;
    int n = scandir(dir, &files, is_case, alphasort), done = 0;
    assert_true(n > 20);
    for (int i = 0; i < n; i++) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(files[i]->d_name, "."),
                 files[i]->d_name);
        done += run_case(checkpoint, name, NULL, 0, 2);
        free(files[i]);
    }
    free(files);
    print_message("%s: %d requests equal to the reference\n", checkpoint, done);
    assert_true(done >= 20);
}

static void test_tiny_a(void **state) {
    (void)state;
    every_case("tiny-a");
}

static void test_tiny_b(void **state) {
    (void)state;
    every_case("tiny-b");
}

static void test_b003_chunked_or_whole(void **state) {
    (void)state;
    const char *whole = "async_chunk=false";
    const char *chunks = "talker.max_num_batched_tokens=3";
    assert_int_equal(run_case("tiny-b", "cv_long_stream", &whole, 1, 1), 1);
    assert_int_equal(run_case("tiny-b", "cv_long_stream", &chunks, 1, 2), 1);
    assert_int_equal(run_case("tiny-a", "vd_en", &whole, 1, 2), 1);
}

/* The embedded voice, greedy, against the reference in float32 on the bf16 weights. */
static void test_voice(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "qwen3_tts/voice/en_%d", i);
        og_weights *g = golden_open(name);
        const char *voice = og_weights_metadata(g, "voice");
        json_t *fields = json_pack("{s:s,s:s,s:s}", "text", og_weights_metadata(g, "text"),
                                   "voice", voice ? voice : "rms", "language", "English");
        setup c = {.model = "examples/voice", .threads = 2};
        c.sets[c.n_sets++] = "talker.default_sampling_params.repetition_penalty=1.0";
        rig s;
        rig_open(&s, &c);
        answer a;
        ask(&s, &a, fields, 1);
        read_answer(&a);
        compare_with_golden(name, &a, g);
        answer_free(&a);
        rig_close(&s);
        json_decref(fields);
        og_weights_close(g);
    }
}

#define COMPANY 8

static json_t *company_fields(int i) {
    static const char *const texts[] = {
        "Hi.", "A somewhat longer sentence, to be spoken beside shorter ones.", "Numbers: 42.",
        "One two three four five six seven eight nine ten.", "Yes, no, perhaps.",
        "The garden is green.", "Mixed lengths are the point of this test, of course.", "End"};
    static const char *const voices[] = {"ryan", "serena", "vivian", "aiden"};
    return json_pack("{s:s,s:s,s:b}", "text", texts[i], "voice", voices[i % 4],
                     "non_streaming_mode", i % 2);
}

/* Each of eight sampled requests of mixed length: alone on one thread in whole chunks, and
 * together on two threads in small chunks. Codes and samples are the same bits. */
static void test_alone_or_in_company(void **state) {
    (void)state;
    setup alone = {.model = "tests/data/qwen3_tts/tiny-b/custom_voice",
                   .max_tokens = 24,
                   .threads = 1,
                   .sampled = true,
                   .same_bits = true,
                   .sets = {"async_chunk=false"},
                   .n_sets = 1};
    setup together = {.model = alone.model,
                      .max_tokens = 24,
                      .threads = 2,
                      .sampled = true,
                      .same_bits = true,
                      .sets = {"talker.max_num_seqs=8", "code2wav.max_num_seqs=8",
                               "talker.max_num_batched_tokens=16"},
                      .n_sets = 3};
    answer solo[COMPANY], all[COMPANY];
    rig s, t;
    rig_open(&s, &alone);
    rig_open(&t, &together);
    for (int i = 0; i < COMPANY; i++) {
        json_t *f = company_fields(i);
        ask(&t, &all[i], f, 100 + (uint64_t)i);
        ask(&s, &solo[i], f, 100 + (uint64_t)i);
        json_decref(f);
    }
    for (int i = 0; i < COMPANY; i++) {
        read_answer(&solo[i]);
        read_answer(&all[i]);
        assert_true(solo[i].n > 0);
        assert_same(&solo[i], &all[i]);
    }
    for (int i = 0; i < COMPANY; i++) {
        answer_free(&solo[i]);
        answer_free(&all[i]);
    }
    rig_close(&s);
    rig_close(&t);
}

/* A dialogue's lanes, joined, are the lines spoken alone, with silence between. */
static void test_dialogue(void **state) {
    (void)state;
    setup c = {.pipeline = "dialogue",
               .same_bits = true,
               .model = "tests/data/qwen3_tts/tiny-a/custom_voice",
               .max_tokens = 16,
               .threads = 2};
    rig d, s;
    rig_open(&d, &c);
    c.pipeline = NULL;
    rig_open(&s, &c);
    json_t *f = json_pack("{s:s}", "text", "Ann: Hello there.\nBob: Good day.\nAnn: Bye.");
    answer talk, line[3];
    ask(&d, &talk, f, 5);
    json_decref(f);
    read_answer(&talk);
    const char *words[] = {"Hello there.", "Good day.", "Bye."};
    const char *voices[] = {"ryan", "serena", "ryan"};
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        f = json_pack("{s:s,s:s}", "text", words[i], "voice", voices[i]);
        ask(&s, &line[i], f, 5);
        json_decref(f);
        read_answer(&line[i]);
        assert_true(at + line[i].n <= talk.n);
        assert_memory_equal(talk.wav + at, line[i].wav, (size_t)line[i].n * sizeof(float));
        at += line[i].n + (i < 2 ? 6000 : 0);
        answer_free(&line[i]);
    }
    assert_int_equal(at, talk.n);
    answer_free(&talk);
    rig_close(&d);
    rig_close(&s);
}

static void test_prompt_too_long(void **state) {
    (void)state;
    setup c = {.model = "tests/data/qwen3_tts/tiny-a/custom_voice",
               .threads = 1,
               .sets = {"talker.max_model_len=16"},
               .n_sets = 1};
    rig s;
    rig_open(&s, &c);
    json_t *f = json_pack("{s:s,s:s}", "text", "Far too many words for sixteen rows, alas.",
                          "voice", "ryan");
    answer a;
    ask(&s, &a, f, 1);
    json_decref(f);
    og_event ev;
    assert_int_equal(og_request_next(a.r, 20000, &ev), OG_EVENT_ERROR);
    assert_int_equal(ev.err.code, OG_ELIMIT);
    assert_non_null(strstr(ev.err.msg, "16"));
    answer_free(&a);
    rig_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_a),
        cmocka_unit_test(test_tiny_b),
        cmocka_unit_test(test_b003_chunked_or_whole),
        cmocka_unit_test(test_voice),
        cmocka_unit_test(test_alone_or_in_company),
        cmocka_unit_test(test_dialogue),
        cmocka_unit_test(test_prompt_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
