/* Base checkpoints: a request with reference audio, from the file to samples, against the
 * public reference; and the same clip in other files. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>

#include "nodes/media/audio.h"
#include "tests/run/rig.h"

#define VECTOR_TOLERANCE 1e-4

typedef struct clip {
    char path[512];
    float *x; /* NULL: the file was there before */
    int64_t n;
    int rate;
} clip;

static void clip_open(clip *c, const char *name, int rate) {
    og_weights *g = golden_open("qwen3_tts/clips");
    og_tensor t = golden_get(g, name);
    c->n = og_tensor_count(&t);
    c->rate = rate;
    c->x = og_malloc((size_t)c->n * sizeof *c->x);
    memcpy(c->x, t.data, (size_t)c->n * sizeof *c->x);
    og_weights_close(g);
    snprintf(c->path, sizeof c->path, "/tmp/og_clip_%d_%s.wav", (int)getpid(), name);
}

static void clip_write(const clip *c, og_audio_format format, int channels) {
    og_err err = OG_ERR_INIT;
    og_audio_out *out = NULL;
    float *x = og_malloc((size_t)(c->n * channels) * sizeof *x);
    for (int64_t i = 0; i < c->n * channels; i++) x[i] = c->x[i / channels];
    if (og_audio_create(c->path, format, c->rate, channels, &out, &err) < 0 ||
        og_audio_write(out, x, (size_t)c->n, &err) < 0 || og_audio_commit(out, &err) < 0)
        fail_msg("%s", err.msg);
    og_free(x);
}

static void clip_close(clip *c) {
    if (c->x) unlink(c->path);
    og_free(c->x);
}

static json_t *base_fields(json_t *meta, const char *path) {
    json_t *f = case_fields(meta);
    static const char *const more[] = {"ref_text", "x_vector_only_mode"};
    for (int i = 0; i < 2; i++) {
        json_t *v = json_object_get(meta, more[i]);
        if (v && !json_is_null(v)) json_object_set(f, more[i], v);
    }
    json_object_set_new(f, "ref_audio", json_string(path));
    return f;
}

/* The clip of a case: a file beside the goldens, or samples in them that are written here. */
static bool case_clip(clip *c, const og_weights *g, int channels) {
    const char *file = og_weights_metadata(g, "ref_file");
    const char *name = og_weights_metadata(g, "clip");
    const char *rate = og_weights_metadata(g, "ref_sr");
    memset(c, 0, sizeof *c);
    if (file) {
        snprintf(c->path, sizeof c->path, "%s/tests/golden/qwen3_tts/%s", OG_SOURCE_DIR, file);
        return true;
    }
    if (!name) return false;
    clip_open(c, name, rate ? atoi(rate) : 24000);
    clip_write(c, OG_AUDIO_WAV_F32, channels);
    return true;
}

static const og_request_tap taps[] = {
    {"talker", "codes"}, {"speaker", "embedding"}, {"ref_codec", "codes"}};

static void ask_tapped(rig *s, answer *a, const json_t *fields, int n_taps) {
    memset(a, 0, sizeof *a);
    og_request_desc d = {
        .fields = fields, .has_seed = 1, .seed = 1, .taps = taps, .n_taps = n_taps};
    og_err err = OG_ERR_INIT;
    if (og_engine_submit(s->engine, &d, &a->r, &err) < 0) fail_msg("%s", err.msg);
}

/* What the encoders made of the clip. */
static void compare_references(const char *name, const answer *a, const og_weights *g) {
    og_tensor want = golden_get(g, "speaker_embedding"), got;
    assert_int_equal(og_request_tapped(a->r, 1, 0, &got), 0);
    assert_int_equal(og_tensor_count(&want), og_tensor_count(&got));
    double d = golden_max_diff(&want, got.data, og_tensor_count(&got));
    print_message("%s: speaker vector within %.1e\n", name, d);
    if (!(d <= VECTOR_TOLERANCE)) fail_msg("%s: speaker vector is off by %g", name, d);
    if (!golden_has(g, "ref_codes")) return;
    want = golden_get(g, "ref_codes");
    assert_int_equal(og_request_tapped(a->r, 2, 0, &got), 0);
    assert_int_equal(og_tensor_count(&want), og_tensor_count(&got));
    for (int64_t i = 0; i < og_tensor_count(&want); i++)
        if (golden_i64_at(&want, i) != ((const int32_t *)got.data)[i])
            fail_msg("%s: reference code %lld of frame %lld differs", name,
                     (long long)(i % want.ne[1]), (long long)(i / want.ne[1]));
}

static int run_base(const char *checkpoint, const char *name, int channels) {
    char path[512], model[256];
    snprintf(path, sizeof path, "qwen3_tts/%s/%s", checkpoint, name);
    og_weights *g = golden_open(path);
    clip c;
    if (!case_clip(&c, g, channels)) {
        og_weights_close(g);
        return 0;
    }
    json_t *meta = case_meta(g), *fields = base_fields(meta, c.path);
    snprintf(model, sizeof model, "tests/data/qwen3_tts/%s/base", checkpoint);
    setup s = {.model = model, .max_tokens = case_max_tokens(meta), .threads = 2};
    s.sets[s.n_sets++] = "talker.default_sampling_params.repetition_penalty=1.05";
    rig r;
    rig_open(&r, &s);
    answer a;
    ask_tapped(&r, &a, fields, golden_has(g, "ref_codes") ? 3 : 2);
    read_answer(&a);
    compare_references(name, &a, g);
    compare_with_golden(name, &a, g);
    answer_free(&a);
    rig_close(&r);
    clip_close(&c);
    json_decref(fields);
    json_decref(meta);
    og_weights_close(g);
    return 1;
}

static int is_case(const struct dirent *e) {
    return !strncmp(e->d_name, "base_", 5);
}

static void every_case(const char *checkpoint) {
    char dir[512];
    snprintf(dir, sizeof dir, "%s/tests/golden/qwen3_tts/%s", OG_SOURCE_DIR, checkpoint);
    struct dirent **files = NULL;
    int n = scandir(dir, &files, is_case, alphasort), done = 0;
    for (int i = 0; i < n; i++) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(files[i]->d_name, "."),
                 files[i]->d_name);
        done += run_base(checkpoint, name, 1 + i % 2);
        free(files[i]);
    }
    free(files);
    print_message("%s: %d cloned voices equal to the reference\n", checkpoint, done);
    assert_true(done >= 5);
}

static void test_tiny_a(void **state) {
    (void)state;
    every_case("tiny-a");
}

static void test_tiny_b(void **state) {
    (void)state;
    every_case("tiny-b");
}

/* Clips of very different length at once: each is what it is alone. */
static void test_b057_clips_of_many_lengths(void **state) {
    (void)state;
    static const char *const names[] = {"codec_encode_long12s", "codec_encode_short",
                                        "codec_encode_mid", "base_icl_text_longer"};
    enum { N = sizeof names / sizeof *names };
    setup s = {.model = "tests/data/qwen3_tts/tiny-b/base",
               .threads = 2,
               .max_tokens = 10,
               .same_bits = true};
    rig many, solo;
    rig_open(&many, &s);
    rig_open(&solo, &s);
    clip c[N];
    answer a[N], b;
    json_t *f[N];
    for (int i = 0; i < N; i++) {
        clip_open(&c[i], names[i], 24000);
        clip_write(&c[i], OG_AUDIO_WAV_F32, 1);
        f[i] = json_pack("{s:s,s:s,s:s}", "text", "Each in its own voice.", "ref_audio",
                         c[i].path, "ref_text", "What was said.");
    }
    for (int i = 0; i < N; i++) ask(&many, &a[i], f[i], 5);
    for (int i = 0; i < N; i++) {
        read_answer(&a[i]);
        ask(&solo, &b, f[i], 5);
        read_answer(&b);
        assert_same(&a[i], &b);
        answer_free(&b);
        answer_free(&a[i]);
        json_decref(f[i]);
        clip_close(&c[i]);
    }
    rig_close(&many);
    rig_close(&solo);
}

static void expect_error(rig *r, json_t *f, const char *field, const char *words) {
    og_request_desc d = {.fields = f};
    og_request *q = NULL;
    og_err err = OG_ERR_INIT;
    int rc = og_engine_submit(r->engine, &d, &q, &err);
    if (rc == 0) {
        og_event ev;
        assert_int_equal(og_request_next(q, 20000, &ev), OG_EVENT_ERROR);
        err = ev.err;
    }
    if (field) assert_string_equal(err.field, field);
    if (!strstr(err.msg, words)) fail_msg("'%s' does not say '%s'", err.msg, words);
    og_request_free(q);
    json_decref(f);
}

static void test_what_a_clone_needs(void **state) {
    (void)state;
    setup s = {.model = "tests/data/qwen3_tts/tiny-a/base", .threads = 2, .max_tokens = 8};
    rig r;
    rig_open(&r, &s);
    clip c, tiny;
    clip_open(&c, "base_icl_text_longer", 24000);
    clip_write(&c, OG_AUDIO_WAV, 1);
    clip_open(&tiny, "codec_encode_tiny", 24000);
    clip_write(&tiny, OG_AUDIO_WAV, 1);
    expect_error(&r, json_pack("{s:s}", "text", "Hello."), "ref_audio", "needs ref_audio");
    expect_error(&r, json_pack("{s:s,s:s}", "text", "Hello.", "ref_audio", c.path), "ref_text",
                 "x_vector_only_mode");
    expect_error(&r, json_pack("{s:s,s:s}", "text", "Hi.", "ref_audio", "/no/such.wav"),
                 "ref_audio", "/no/such.wav");
    expect_error(&r,
                 json_pack("{s:s,s:s,s:b}", "text", "Hi.", "ref_audio", tiny.path,
                           "x_vector_only_mode", 1),
                 NULL, "1280");
    clip_close(&c);
    clip_close(&tiny);
    og_engine_stats st;
    og_engine_get_stats(r.engine, &st);
    assert_int_equal(st.requests, 0);
    assert_int_equal(st.buffer_bytes, 0);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_a),
        cmocka_unit_test(test_tiny_b),
        cmocka_unit_test(test_b057_clips_of_many_lengths),
        cmocka_unit_test(test_what_a_clone_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
