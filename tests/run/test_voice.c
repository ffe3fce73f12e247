/* Saved voices: made of a clip once, they give the samples that the clip gives, and a voice
 * that does not fit is refused with the reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>

#include "graph/run/voice.h"
#include "nodes/load/json.h"
#include "nodes/media/audio.h"
#include "tests/run/rig.h"

#define BASE_A "tests/data/qwen3_tts/tiny-a/base"
#define BASE_B "tests/data/qwen3_tts/tiny-b/base"
#define SAID "It was a bright cold day in April."

static char clip_path[64], voice_path[64];

/* A synthetic clip: two seconds of a tone that glides. */
static int make_clip(void **state) {
    (void)state;
    enum { RATE = 24000, N = 2 * RATE };
    static float x[N];
    og_err err = OG_ERR_INIT;
    og_audio_out *out = NULL;
    snprintf(clip_path, sizeof clip_path, "/tmp/og_voice_%d.wav", (int)getpid());
    snprintf(voice_path, sizeof voice_path, "/tmp/og_voice_%d.voice", (int)getpid());
    for (int i = 0; i < N; i++) {
        double t = (double)i / RATE;
        x[i] = (float)(0.3 * sin(6.283185307 * (120 + 40 * t) * t) + 0.1 * sin(1900 * t));
    }
    if (og_audio_create(clip_path, OG_AUDIO_WAV_F32, RATE, 1, &out, &err) < 0 ||
        og_audio_write(out, x, N, &err) < 0 || og_audio_commit(out, &err) < 0)
        return -1;
    return 0;
}

static int drop_files(void **state) {
    (void)state;
    unlink(clip_path);
    unlink(voice_path);
    return 0;
}

static void open_base(rig *r, const char *model) {
    setup s = {.model = model, .threads = 2, .max_tokens = 10};
    rig_open(r, &s);
}

static void write_voice(const og_str *s) {
    FILE *f = fopen(voice_path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(s->data, 1, s->len, f), s->len);
    fclose(f);
}

static json_t *body(const char *audio, const char *more) {
    json_t *f = json_pack("{s:s, s:s}", "text", "Hello there, how are you?", "ref_audio", audio);
    json_t *add = json_loads(more, 0, NULL);
    assert_non_null(add);
    json_object_update(f, add);
    json_decref(add);
    return f;
}

/* Save the clip as a voice; fields: what goes with it. Nothing but encoders may run. */
static void save(rig *r, const char *fields) {
    og_request_tap taps[OG_VOICE_MAX_PORTS];
    og_err err = OG_ERR_INIT;
    og_request *q = NULL;
    og_event ev;
    og_str text = OG_STR_INIT;
    og_node_stats talker;
    int field = og_plan_find_field(r->plan, "ref_audio");
    json_t *f = body(clip_path, fields), *keep = json_loads(fields, 0, NULL);
    og_request_desc d = {.fields = f, .taps = taps, .taps_only = 1};
    d.n_taps = og_voice_taps(r->plan, field, taps, OG_VOICE_MAX_PORTS);
    assert_int_equal(d.n_taps, 2);
    if (og_engine_submit(r->engine, &d, &q, &err) < 0) fail_msg("%s", err.msg);
    og_event_kind kind = og_request_next(q, 120000, &ev);
    if (kind == OG_EVENT_ERROR) fail_msg("%s", ev.err.msg);
    assert_int_equal(kind, OG_EVENT_DONE);
    if (og_voice_pack(q, field, "anna", keep, &text, &err) < 0) fail_msg("%s", err.msg);
    og_request_free(q);
    assert_int_equal(og_engine_node_stats(r->engine, og_plan_find_stage(r->plan, "talker"), 0,
                                          &talker), 0);
    assert_int_equal(talker.rows, 0);
    write_voice(&text);
    og_str_free(&text);
    json_decref(f);
    json_decref(keep);
}

static int64_t encoder_steps(rig *r) {
    static const char *const stages[] = {"speaker", "ref_codec"};
    int64_t steps = 0;
    for (int i = 0; i < 2; i++) {
        og_node_stats st;
        assert_int_equal(og_engine_node_stats(r->engine, og_plan_find_stage(r->plan, stages[i]),
                                              0, &st), 0);
        steps += st.steps;
    }
    return steps;
}

static void answer_to(rig *r, answer *a, json_t *fields) {
    ask(r, a, fields, 5);
    read_answer(a);
    json_decref(fields);
}

/* saved: the fields of the voice; asked: those of the request with the clip, and with the
 * voice what it says over the saved ones. */
static void compare(const char *model, const char *saved, const char *asked,
                    const char *over) {
    rig r;
    answer clip, voice;
    open_base(&r, model);
    save(&r, saved);
    rig_close(&r);

    open_base(&r, model); /* another process, and one that never heard the clip */
    answer_to(&r, &voice, body(voice_path, over));
    assert_int_equal(encoder_steps(&r), 0);
    answer_to(&r, &clip, body(clip_path, asked));
    assert_true(encoder_steps(&r) > 0);
    assert_true(voice.n > 0);
    assert_same(&voice, &clip);
    answer_free(&voice);
    answer_free(&clip);
    og_engine_stats st;
    og_engine_get_stats(r.engine, &st);
    assert_int_equal(st.requests, 0);
    assert_int_equal(st.queued, 0);
    assert_int_equal(st.buffer_bytes, 0);
    assert_int_equal(st.finished, 2);
    rig_close(&r);
}

static void test_same_samples_as_the_clip(void **state) {
    (void)state;
    compare(BASE_A, "{\"ref_text\": \"" SAID "\"}", "{\"ref_text\": \"" SAID "\"}", "{}");
    compare(BASE_B, "{\"ref_text\": \"" SAID "\"}", "{\"ref_text\": \"" SAID "\"}", "{}");
}

static void test_speaker_vector_alone(void **state) {
    (void)state;
    compare(BASE_A, "{\"x_vector_only_mode\": true}", "{\"x_vector_only_mode\": true}", "{}");
    compare(BASE_A, "{\"ref_text\": \"" SAID "\"}", "{\"x_vector_only_mode\": true}",
            "{\"x_vector_only_mode\": true}");
}

/* What the request says comes over what was saved. */
static void test_own_text_over_the_saved_one(void **state) {
    (void)state;
    compare(BASE_A, "{\"ref_text\": \"Something else.\"}", "{\"ref_text\": \"" SAID "\"}",
            "{\"ref_text\": \"" SAID "\"}");
}

static void refused(rig *r, json_t *fields, const char *words) {
    og_request_desc d = {.fields = fields};
    og_request *q = NULL;
    og_err err = OG_ERR_INIT;
    assert_int_equal(og_engine_submit(r->engine, &d, &q, &err), OG_EREJECT);
    assert_null(q);
    assert_string_equal(err.field, "ref_audio");
    if (!strstr(err.msg, words)) fail_msg("'%s' does not say '%s'", err.msg, words);
    json_decref(fields);
    og_engine_stats st;
    og_engine_get_stats(r->engine, &st);
    assert_int_equal(st.requests, 0);
    assert_int_equal(st.queued, 0);
}

static void test_a_part_that_was_not_saved(void **state) {
    (void)state;
    rig r;
    open_base(&r, BASE_A);
    save(&r, "{\"x_vector_only_mode\": true}");
    refused(&r, body(voice_path, "{\"x_vector_only_mode\": false, \"ref_text\": \"Hi.\"}"),
            "has no ref_codec.codes");
    rig_close(&r);
}

static void test_another_checkpoint(void **state) {
    (void)state;
    rig r;
    open_base(&r, BASE_A);
    save(&r, "{\"x_vector_only_mode\": true}");
    rig_close(&r);
    setup s = {.model = "tests/data/qwen3_tts/tiny-a/custom_voice", .threads = 2};
    rig_open(&r, &s);
    refused(&r, body(voice_path, "{\"voice\": \"vivian\"}"), "of its 1 outputs 0");
    rig_close(&r);
}

/* A file with these metadata and one tensor. */
static void forge(const char *meta, const char *tensor, const char *dtype, int rows, int width,
                  int value) {
    char header[1024];
    int n = snprintf(header, sizeof header,
                     "{\"__metadata__\":%s,\"%s\":{\"dtype\":\"%s\",\"shape\":[%d,%d],"
                     "\"data_offsets\":[0,%d]}}",
                     meta, tensor, dtype, rows, width, rows * width * 4);
    uint64_t length = (uint64_t)n;
    og_str s = OG_STR_INIT;
    og_str_addn(&s, (const char *)&length, 8);
    og_str_addn(&s, header, (size_t)n);
    for (int32_t i = 0, v = value; i < rows * width; i++)
        og_str_addn(&s, (const char *)&v, sizeof v);
    write_voice(&s);
    og_str_free(&s);
}

#define META(fields) \
    "{\"format\":\"" OG_VOICE_FORMAT "\",\"checkpoint\":\"00\",\"fields\":\"" fields "\"}"

static void test_files_that_are_no_voice(void **state) {
    (void)state;
    rig r;
    int hidden = 0;
    og_err err = OG_ERR_INIT;
    open_base(&r, BASE_A);
    const json_t *root = og_model_config(r.plan->model, "", NULL, &err);
    assert_int_equal(og_cfg_int(root, "talker_config.hidden_size", &hidden, 1, 4096, &err), 0);
    unlink(voice_path);
    refused(&r, body(voice_path, "{}"), voice_path);
    write_voice(&(og_str){.data = (char[]){"hello"}, .len = 5});
    refused(&r, body(voice_path, "{}"), voice_path);
    forge("{\"a\":\"b\"}", "speaker.embedding", "F32", 1, hidden, 0);
    refused(&r, body(voice_path, "{}"), "is no saved voice");
    forge(META("7"), "speaker.embedding", "F32", 1, hidden, 0);
    refused(&r, body(voice_path, "{}"), "no JSON object");
    forge(META("{}"), "speaker.embedding", "F32", 1, hidden, 0);
    refused(&r, body(voice_path, "{}"), "another checkpoint (00; ");
    forge(META("{}"), "speaker.embedding", "F32", 1, hidden + 1, 0);
    refused(&r, body(voice_path, "{}"), "speaker.embedding is F32[1, ");
    forge(META("{}"), "speaker.embedding", "I32", 1, hidden, 0);
    refused(&r, body(voice_path, "{}"), "speaker.embedding is I32");
    forge(META("{}"), "talker.codes", "I32", 1, 16, 0);
    refused(&r, body(voice_path, "{}"), "of its 1 outputs 0");
    refused(&r, body(clip_path, "{\"ref_audio\": \"/no/such.voice\"}"), "/no/such.voice");
    rig_close(&r);
}

/* A voice whose codes are no codes of this codec fails its own request. */
static void test_codes_out_of_range(void **state) {
    (void)state;
    rig r;
    og_event ev;
    og_err err = OG_ERR_INIT;
    og_request *q = NULL;
    open_base(&r, BASE_A);
    save(&r, "{\"ref_text\": \"" SAID "\"}");
    size_t n = 0;
    char *text = NULL;
    assert_int_equal(og_file_read(voice_path, 1 << 24, &text, &n, &err), 0);
    int32_t wild = 0x7fffffff;
    for (size_t i = 0; i < 16; i++) memcpy(text + n - 4 * (i + 1), &wild, sizeof wild);
    write_voice(&(og_str){.data = text, .len = n});
    og_free(text);
    json_t *f = body(voice_path, "{}");
    og_request_desc d = {.fields = f};
    if (og_engine_submit(r.engine, &d, &q, &err) < 0) fail_msg("%s", err.msg);
    while (og_request_next(q, 120000, &ev) == OG_EVENT_ITEMS) continue;
    assert_int_equal(ev.kind, OG_EVENT_ERROR);
    if (!strstr(ev.err.msg, "2147483647")) fail_msg("%s", ev.err.msg);
    og_request_free(q);
    json_decref(f);
    answer a;
    answer_to(&r, &a, body(clip_path, "{\"ref_text\": \"" SAID "\"}"));
    answer_free(&a);
    rig_close(&r);
}

/* Submitting a voice over every allocation. */
static void test_submit_over_all_allocations(void **state) {
    (void)state;
    rig r;
    open_base(&r, BASE_A);
    save(&r, "{\"x_vector_only_mode\": true}");
    json_t *f = body(voice_path, "{}");
    og_request_desc d = {.fields = f};
    int n = 0;
    for (;; n++) {
        og_err err = OG_ERR_INIT;
        og_request *q = NULL;
        og_event ev;
        og_alloc_fail_at(n + 1);
        int rc = og_engine_submit(r.engine, &d, &q, &err);
        int hit = og_alloc_failed();
        og_alloc_fail_at(0);
        og_event_kind kind = OG_EVENT_ITEMS;
        while (rc == 0 && kind == OG_EVENT_ITEMS) kind = og_request_next(q, 120000, &ev);
        og_request_free(q);
        if (!hit && rc == 0 && kind == OG_EVENT_DONE) break;
        assert_true(n < 500);
    }
    og_engine_stats st;
    og_engine_get_stats(r.engine, &st);
    assert_int_equal(st.requests, 0);
    assert_int_equal(st.queued, 0);
    json_decref(f);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_samples_as_the_clip),
        cmocka_unit_test(test_speaker_vector_alone),
        cmocka_unit_test(test_own_text_over_the_saved_one),
        cmocka_unit_test(test_a_part_that_was_not_saved),
        cmocka_unit_test(test_another_checkpoint),
        cmocka_unit_test(test_files_that_are_no_voice),
        cmocka_unit_test(test_codes_out_of_range),
        cmocka_unit_test(test_submit_over_all_allocations),
    };
    return cmocka_run_group_tests(tests, make_clip, drop_files);
}
