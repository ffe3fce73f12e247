/* Uploaded voices over a real socket: kept in a folder, used by name, gone when deleted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

#include "graph/serve/multipart.h"
#include "graph/serve/server.h"
#include "nodes/media/audio.h"
#include "tests/serve/serve_rig.h"

#define VOICES "/v1/audio/voices"
#define SPEECH "/v1/audio/speech"
#define SAID "It was a bright cold day in April."
#define MARK "------a7b"

static served base;
static char dir[64];
static og_str clip; /* a WAV file */

/* Two seconds of a tone that glides. */
static void make_clip(void) {
    enum { RATE = 24000, N = 2 * RATE };
    static float x[N];
    og_err err = OG_ERR_INIT;
    for (int i = 0; i < N; i++) {
        double t = (double)i / RATE;
        x[i] = (float)(0.3 * sin(6.283185307 * (120 + 40 * t) * t) + 0.1 * sin(1900 * t));
    }
    if (og_audio_encode(OG_AUDIO_WAV, RATE, 1, x, N, &clip, &err) < 0) fail_msg("%s", err.msg);
}

static const setup base_setup = {
    .model = "tests/data/qwen3_tts/tiny-a/base", .threads = 2, .max_tokens = 10};

static void open_base(void) {
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.voices_dir = dir;
    served_open(&base, &base_setup, &o);
}

static int open_all(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/og_voices_%d", (int)getpid()); /* made by the first upload */
    make_clip();
    open_base();
    return 0;
}

static int files_in_dir(bool drop) {
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[PATH_MAX];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (drop) unlink(path);
        n++;
    }
    if (d) closedir(d);
    if (drop) rmdir(dir);
    return n;
}

static int close_all(void **state) {
    (void)state;
    served_close(&base);
    files_in_dir(true);
    og_str_free(&clip);
    return 0;
}

/* ---- forms ------------------------------------------------------------------------------ */

static void part(og_str *s, const char *name, const char *more, const void *data, size_t n) {
    og_str_addf(s, "--" MARK "\r\nContent-Disposition: form-data; name=\"%s\"%s\r\n\r\n", name,
                more);
    og_str_addn(s, data, n);
    og_str_addf(s, "\r\n");
}

static void text_part(og_str *s, const char *name, const char *text) {
    if (text) part(s, name, "", text, strlen(text));
}

static void clip_part(og_str *s) {
    part(s, "audio_sample", "; filename=\"anna.wav\"\r\nContent-Type: audio/wav", clip.data,
         clip.len);
}

static reply send_form(og_str *s) {
    og_str_addf(s, "--" MARK "--\r\n");
    int fd = dial(base.port);
    reply r = ask_on(fd, "POST", VOICES, "Content-Type: multipart/form-data; boundary=" MARK "\r\n",
                     s->data, s->len);
    close(fd);
    og_str_free(s);
    return r;
}

static reply upload(const char *name, const char *ref_text) {
    og_str s = OG_STR_INIT;
    text_part(&s, "consent", "anna-2026");
    text_part(&s, "name", name);
    text_part(&s, "ref_text", ref_text);
    text_part(&s, "speaker_description", "Low and slow.");
    clip_part(&s);
    return send_form(&s);
}

static void assert_ok(reply *r) {
    if (r->status != 200) fail_msg("status %d: %.300s", r->status, r->body);
    reply_free(r);
}

static json_t *listed(const char *name) {
    reply r = http_ask(base.port, "GET", VOICES, NULL);
    assert_int_equal(r.status, 200);
    json_t *j = json_of(&r), *v, *hit = NULL;
    size_t i;
    bool named = false;
    json_array_foreach(json_object_get(j, "voices"), i, v)
        named |= !strcmp(json_string_value(v), name);
    json_array_foreach(json_object_get(j, "uploaded_voices"), i, v)
        if (!strcmp(json_string_value(json_object_get(v, "name")), name)) hit = json_incref(v);
    assert_int_equal(named, hit != NULL);
    json_decref(j);
    reply_free(&r);
    return hit;
}

static reply speak(const char *more) {
    char body[512];
    snprintf(body, sizeof body, "{\"input\": \"Hello there.\", \"seed\": 3, "
             "\"response_format\": \"pcm\", %s}", more);
    return http_ask(base.port, "POST", SPEECH, body);
}

/* What the clip itself gives. */
static reply speak_by_clip(const char *more) {
    og_str b64 = OG_STR_INIT, body = OG_STR_INIT;
    og__base64(clip.data, clip.len, &b64);
    og_str_addf(&body, "{\"input\": \"Hello there.\", \"seed\": 3, \"response_format\": \"pcm\", "
                       "\"voice\": \"alloy\", %s, \"ref_audio\": \"data:audio/wav;base64,", more);
    og_str_addn(&body, b64.data, b64.len);
    og_str_addf(&body, "\"}");
    reply r = http_ask(base.port, "POST", SPEECH, body.data);
    if (r.status != 200) fail_msg("status %d: %.300s", r.status, r.body);
    og_str_free(&b64);
    og_str_free(&body);
    return r;
}

static void assert_same_audio(reply *a, reply *b) {
    if (a->status != 200) fail_msg("status %d: %.300s", a->status, a->body);
    assert_int_equal(b->status, 200);
    assert_true(a->n > 1000);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->body, b->body, a->n);
    reply_free(a);
    reply_free(b);
}

static void delete_voice(const char *name, int status) {
    char path[256];
    snprintf(path, sizeof path, VOICES "/%s", name);
    reply r = http_ask(base.port, "DELETE", path, NULL);
    if (r.status != status) fail_msg("status %d: %.300s", r.status, r.body);
    reply_free(&r);
}

/* ---- the life of a voice ------------------------------------------------------------------ */

static const char *text_of(json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static void test_a_voice_lives_on_disk(void **state) {
    (void)state;
    reply r = upload("Anna.1", SAID), by_clip;
    if (r.status != 200) fail_msg("status %d: %.300s", r.status, r.body);
    json_t *j = json_of(&r);
    assert_true(json_is_true(json_object_get(j, "success")));
    assert_string_equal(text_of(json_object_get(j, "voice"), "name"), "Anna.1");
    json_decref(j);
    reply_free(&r);
    j = listed("Anna.1");
    assert_non_null(j);
    assert_string_equal(text_of(j, "consent"), "anna-2026");
    assert_string_equal(text_of(j, "mime_type"), "audio/wav");
    assert_string_equal(text_of(j, "embedding_source"), "audio");
    assert_string_equal(text_of(j, "ref_text"), SAID);
    assert_string_equal(text_of(j, "speaker_description"), "Low and slow.");
    assert_int_equal(json_integer_value(json_object_get(j, "file_size")), clip.len);
    assert_true(json_integer_value(json_object_get(j, "created_at")) > 1700000000);
    assert_true(json_integer_value(json_object_get(j, "embedding_dim")) > 0);
    json_decref(j);
    by_clip = speak_by_clip("\"ref_text\": \"" SAID "\"");
    r = speak("\"voice\": \"Anna.1\"");
    assert_same_audio(&r, &by_clip);
    served_close(&base); /* and it survives that */
    open_base();
    by_clip = speak_by_clip("\"ref_text\": \"" SAID "\"");
    r = speak("\"voice\": {\"id\": \"anna.1\"}");
    assert_same_audio(&r, &by_clip);
    assert_int_equal(files_in_dir(false), 1);
    delete_voice("anna.1", 200);
    delete_voice("anna.1", 404);
    assert_null(listed("Anna.1"));
    r = speak("\"voice\": \"anna.1\"");
    assert_error(&r, 400, "voice");
}

static void test_without_its_text_the_vector_speaks(void **state) {
    (void)state;
    reply r = upload("vec", NULL), by_clip = speak_by_clip("\"x_vector_only_mode\": true");
    assert_ok(&r);
    r = speak("\"voice\": \"vec\"");
    assert_same_audio(&r, &by_clip);
    r = upload("vec", SAID); /* in place of the other */
    assert_ok(&r);
    by_clip = speak_by_clip("\"ref_text\": \"" SAID "\"");
    r = speak("\"voice\": \"vec\"");
    assert_same_audio(&r, &by_clip);
    delete_voice("vec", 200);
}

static reply upload_vector(const char *list) {
    og_str s = OG_STR_INIT;
    text_part(&s, "consent", "x");
    text_part(&s, "name", "numbers");
    text_part(&s, "speaker_embedding", list);
    return send_form(&s);
}

static void test_a_vector_is_a_voice(void **state) {
    (void)state;
    reply r = upload("dim", NULL);
    assert_ok(&r);
    json_t *j = listed("dim");
    int dim = (int)json_integer_value(json_object_get(j, "embedding_dim"));
    json_decref(j);
    delete_voice("dim", 200);
    og_str list = OG_STR_INIT;
    for (int i = 0; i < dim; i++) og_str_addf(&list, "%s%g", i ? "," : "[", 0.01 * (i % 17));
    og_str_addf(&list, "]");
    r = upload_vector(list.data);
    assert_ok(&r);
    j = listed("numbers");
    assert_string_equal(text_of(j, "embedding_source"), "direct");
    assert_int_equal(json_integer_value(json_object_get(j, "embedding_dim")), dim);
    json_decref(j);
    r = speak("\"voice\": \"numbers\"");
    assert_ok(&r);
    delete_voice("numbers", 200);
    static const char *const bad[] = {"[1, 2]", "[]", "[\"a\"]", "7", "[1e999]", "[", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        r = upload_vector(bad[i]);
        assert_error(&r, 400, "speaker_embedding");
    }
    og_str_free(&list);
}

/* ---- what is refused ----------------------------------------------------------------------- */

static void test_names_stay_in_their_folder(void **state) {
    (void)state;
    static const char *const bad[] = {"../x", "..", ".x", "a/b", "a\\b", "a b", "%2e%2e", "\xc3\xa9",
                                      "", " ",
                                      "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeee"
                                      "ffffffffffg12345"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        reply r = upload(bad[i], SAID);
        assert_error(&r, 400, "name");
    }
    assert_int_equal(files_in_dir(false), 0);
    reply r = speak("\"voice\": \"../../etc/passwd\"");
    assert_error(&r, 400, "voice");
    delete_voice("..%2f..%2fx", 404);
    delete_voice("%2e%2e", 404);
}

static void test_fields_that_miss(void **state) {
    (void)state;
    og_str s = OG_STR_INIT;
    text_part(&s, "name", "anna");
    clip_part(&s);
    reply r = send_form(&s);
    assert_error(&r, 400, "consent");
    text_part(&s, "name", "anna");
    text_part(&s, "consent", "x");
    r = send_form(&s);
    assert_error(&r, 400, "audio_sample");
    text_part(&s, "name", "anna");
    text_part(&s, "name", "anna");
    r = send_form(&s);
    assert_error(&r, 400, "name");
    text_part(&s, "consent", "\xff\xfe");
    r = send_form(&s);
    assert_error(&r, 400, "consent");
    text_part(&s, "name", "anna");
    text_part(&s, "consent", "x");
    text_part(&s, "audio_sample", "this is no audio file");
    r = send_form(&s);
    assert_error(&r, 400, "audio_sample");
    assert_int_equal(files_in_dir(false), 0);
    r = http_ask(base.port, "POST", VOICES, "{}");
    assert_error(&r, 400, NULL);
    r = http_ask(base.port, "POST", VOICES "/x", "{}");
    assert_int_equal(r.status, 405);
    reply_free(&r);
    wait_idle(&base, 10);
}

/* A checkpoint with voices of its own does not clone. */
static void test_checkpoints_that_do_not_clone(void **state) {
    (void)state;
    reply r = upload("anna", SAID);
    assert_ok(&r);
    served_close(&base);
    setup s = base_setup;
    s.model = "tests/data/qwen3_tts/tiny-a/custom_voice";
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.voices_dir = dir;
    served_open(&base, &s, &o);
    r = upload("bob", SAID);
    assert_error(&r, 400, "model");
    r = speak("\"voice\": \"anna\"");
    assert_error(&r, 400, "voice");
    r = speak("\"voice\": \"ryan\"");
    assert_ok(&r);
    r = http_ask(base.port, "GET", VOICES, NULL);
    assert_non_null(strstr(r.body, "\"ryan\""));
    reply_free(&r);
    served_close(&base);
    o.voices_dir = NULL;
    served_open(&base, &base_setup, &o);
    r = upload("bob", SAID);
    assert_error(&r, 403, NULL);
    served_close(&base);
    open_base();
    delete_voice("anna", 200);
}

/* ---- the parser ------------------------------------------------------------------------------ */

#define KIND "multipart/form-data; boundary="

/* Parts of a body, or the error's code. */
static int parts_of(const char *type, const char *body, og__part *p) {
    og__multipart m;
    og_err err = OG_ERR_INIT;
    int n = 0, rc = og__multipart_open(&m, type, body, strlen(body), &err);
    while (rc == 0 && (rc = og__multipart_next(&m, p, &err)) > 0) {
        n++;
        rc = 0;
        if (!strncmp(m.at, "--", 2)) break;
    }
    return rc < 0 ? rc : n;
}

static void test_forms(void **state) {
    (void)state;
    og__part p;
    static const char good[] = "--b\r\ncontent-disposition:form-data;name=x\r\n\r\none\r\n--b--";
    assert_int_equal(parts_of(KIND "b", good, &p), 1);
    assert_string_equal(p.name, "x");
    assert_int_equal(p.n, 3);
    assert_int_equal(parts_of("Multipart/Form-Data; charset=utf-8; boundary=\"b\"", good, &p), 1);
    static const char quoted[] =
        "--b \r\nX: y\r\nContent-Disposition: form-data; filename=\"a;\\\".wav\"; name=\"x y\"\r\n"
        "Content-Type: audio/wav\r\n\r\n\r\n--b--\r\nafter";
    assert_int_equal(parts_of(KIND "b", quoted, &p), 1);
    assert_string_equal(p.name, "x y");
    assert_string_equal(p.filename, "a;\".wav");
    assert_string_equal(p.type, "audio/wav");
    assert_int_equal(p.n, 0);
    static const char *const bad[] = {
        "", "--", "--b", "--b\r", "x--b\r\n", "--b\r\n", "--b\r\n\r\n\r\n--b--",
        "--b\r\nContent-Disposition: form-data; name=x\r\n\r\none",
        "--b\r\nContent-Disposition: form-data; name=x\r\n\r\none\r\n--bc",
        "--b\r\nContent-Disposition: form-data; name=\"x\r\n\r\none\r\n--b--",
        "--b\r\nContent-Disposition: attachment; name=x\r\n\r\none\r\n--b--",
        "--b\r\nContent-Disposition: form-data; name\r\n\r\none\r\n--b--",
        "--b\r\nno colon\r\n\r\none\r\n--b--"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        og__multipart m;
        int rc = og__multipart_open(&m, KIND "b", bad[i], strlen(bad[i]), NULL);
        while (rc == 0 && (rc = og__multipart_next(&m, &p, NULL)) > 0) rc = 0;
        if (rc != OG_EREJECT && i) fail_msg("%zu gave %d", i, rc);
    }
    static const char *const types[] = {"", "text/plain", "multipart/form-data", KIND, KIND "\"b",
                                        "multipart/form-database; boundary=b", NULL};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        assert_int_equal(parts_of(types[i], good, &p), OG_EREJECT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_a_voice_lives_on_disk),
        cmocka_unit_test(test_without_its_text_the_vector_speaks),
        cmocka_unit_test(test_a_vector_is_a_voice),
        cmocka_unit_test(test_names_stay_in_their_folder),
        cmocka_unit_test(test_fields_that_miss),
        cmocka_unit_test(test_checkpoints_that_do_not_clone),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
