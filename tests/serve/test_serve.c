/* The HTTP server over a real socket: speech in every form, errors, connections. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/serve/server.h"
#include "nodes/media/audio.h"
#include "tests/serve/serve_rig.h"

static served demo;

#define SPEECH "/v1/audio/speech"
#define HELLO "\"input\": \"Good morning.\", \"voice\": \"rms\", \"seed\": 7"

static int open_demo(void **state) {
    (void)state;
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.max_body = 4 << 20;
    o.cors_origin = "https://page.example";
    served_open(&demo, NULL, &o);
    return 0;
}

static int close_demo(void **state) {
    (void)state;
    served_close(&demo);
    return 0;
}

static reply speak(const char *body) {
    return http_ask(demo.port, "POST", SPEECH, body);
}

/* ---- speech ------------------------------------------------------------------------------- */

/* B038: a whole WAV has true sizes and nothing behind the samples. */
static void test_b038_whole_wav(void **state) {
    (void)state;
    reply r = speak("{" HELLO "}");
    char v[64];
    assert_int_equal(r.status, 200);
    assert_string_equal(header_of(&r, "content-type", v, sizeof v), "audio/wav");
    uint32_t riff, data;
    memcpy(&riff, r.body + 4, 4);
    memcpy(&data, r.body + 40, 4);
    assert_int_equal(riff, r.n - 8);
    assert_int_equal(data, r.n - 44);
    assert_true(r.n > 44 + 24000);
    assert_int_equal(strtol(header_of(&r, "x-vllm-omni-output-tokens", v, sizeof v), NULL, 10) * 1920,
                     (long)(data / 2));
    reply_free(&r);
}

/* B036, B037, B044: a streamed WAV has one header with unknown sizes, and the same samples. */
static void test_b036_b037_b044_streams_equal_the_whole(void **state) {
    (void)state;
    static const unsigned char unknown[44] =
        "RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\1\0\1\0\xc0\x5d\0\0\x80\xbb\0\0\2\0\x10\0data\xff\xff\xff\xff";
    reply whole = speak("{" HELLO ", \"response_format\": \"pcm\"}");
    reply wav = speak("{" HELLO ", \"stream\": true, \"stream_format\": \"audio\"}");
    reply pcm = speak("{" HELLO ", \"response_format\": \"pcm\", \"stream_format\": \"audio\"}");
    assert_int_equal(wav.status, 200);
    assert_false(wav.cut);
    assert_memory_equal(wav.body, unknown, 44);
    assert_int_equal(wav.n - 44, whole.n);
    assert_memory_equal(wav.body + 44, whole.body, whole.n);
    assert_int_equal(pcm.n, whole.n);
    assert_memory_equal(pcm.body, whole.body, whole.n);
    reply_free(&whole);
    reply_free(&wav);
    reply_free(&pcm);
}

/* The audio of all delta events, one after the other; usage: that of the done event. */
static size_t join_events(char *text, char *audio, json_t **usage) {
    size_t n = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        assert_int_equal(strncmp(line, "data: ", 6), 0);
        json_t *j = json_loads(line + 6, 0, NULL);
        const char *type = json_string_value(json_object_get(j, "type"));
        og_str bytes = OG_STR_INIT;
        if (!strcmp(type, "speech.audio.delta")) {
            const char *b64 = json_string_value(json_object_get(j, "audio"));
            assert_int_equal(og__data_url(b64, &bytes, NULL), 0);
            memcpy(audio + n, bytes.data, bytes.len);
            n += bytes.len;
        } else {
            assert_string_equal(type, "speech.audio.done");
            *usage = json_incref(json_object_get(j, "usage"));
        }
        og_str_free(&bytes);
        json_decref(j);
    }
    return n;
}

/* B072: a stream ends with its usage. */
static void test_b072_events_carry_the_audio_and_its_usage(void **state) {
    (void)state;
    reply whole = speak("{" HELLO ", \"response_format\": \"pcm\"}");
    reply r = speak("{" HELLO ", \"response_format\": \"pcm\", \"stream\": true, "
                    "\"stream_options\": {\"include_usage\": true}}");
    char v[64], *audio = malloc(r.n);
    json_t *usage = NULL;
    assert_int_equal(r.status, 200);
    assert_string_equal(header_of(&r, "content-type", v, sizeof v), "text/event-stream");
    size_t n = join_events(r.body, audio, &usage);
    assert_int_equal(n, whole.n);
    assert_memory_equal(audio, whole.body, n);
    json_int_t in = json_integer_value(json_object_get(usage, "input_tokens"));
    json_int_t out = json_integer_value(json_object_get(usage, "output_tokens"));
    assert_true(in > 0 && out > 0);
    assert_int_equal(in + out, json_integer_value(json_object_get(usage, "total_tokens")));
    json_decref(usage);
    free(audio);
    reply_free(&whole);
    reply_free(&r);
    r = speak("{" HELLO ", \"stream_options\": {\"include_usage\": true}}");
    assert_error(&r, 400, "stream_options");
    r = speak("{" HELLO ", \"stream_options\": null}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
}

static void test_formats_decode_to_the_same_length(void **state) {
    (void)state;
    static const struct {
        const char *name, *type;
        int64_t slack; /* of the codec's frames */
    } rows[] = {{"flac", "audio/flac", 0}, {"mp3", "audio/mpeg", 2400}, {"opus", "audio/ogg", 480}};
    reply pcm = speak("{" HELLO ", \"response_format\": \"pcm\"}");
    for (size_t i = 0; i < 3; i++) {
        char body[256], v[64];
        snprintf(body, sizeof body, "{" HELLO ", \"response_format\": \"%s\"}", rows[i].name);
        reply r = speak(body);
        og_audio a = {0};
        assert_int_equal(r.status, 200);
        assert_string_equal(header_of(&r, "content-type", v, sizeof v), rows[i].type);
        assert_int_equal(og_audio_decode(r.body, r.n, 24000, &a, NULL), 0);
        assert_true(llabs(a.n - (int64_t)pcm.n / 2) <= rows[i].slack);
        og_audio_clear(&a);
        reply_free(&r);
    }
    reply_free(&pcm);
}

/* B078: a format or a speed is honoured or refused. */
static void test_b078_format_and_speed(void **state) {
    (void)state;
    static const char *const refused[] = {
        "{" HELLO ", \"response_format\": \"mpeg\"}", "{" HELLO ", \"response_format\": 3}",
        "{" HELLO ", \"response_format\": \"mp3\", \"stream\": true}"};
    static const char *const speeds[] = {"{" HELLO ", \"speed\": 0}", "{" HELLO ", \"speed\": -1}",
                                         "{" HELLO ", \"speed\": \"1\"}"};
    char v[64];
    for (size_t i = 0; i < 3; i++) {
        reply r = speak(refused[i]);
        assert_error(&r, 400, "response_format");
        r = speak(speeds[i]);
        assert_error(&r, 400, "speed");
    }
    reply one = speak("{" HELLO ", \"response_format\": null}");
    reply upper = speak("{" HELLO ", \"response_format\": \"WAV\"}");
    reply twice = speak("{" HELLO ", \"speed\": 2.0}");
    assert_int_equal(upper.status, 200);
    assert_string_equal(header_of(&upper, "content-type", v, sizeof v), "audio/wav");
    assert_int_equal(upper.n, one.n);
    double ratio = (double)(twice.n - 44) / (double)(one.n - 44);
    assert_true(ratio > 0.495 && ratio < 0.505);
    reply_free(&one);
    reply_free(&upper);
    reply_free(&twice);
}

/* B046: another rate is resampled and announced, not only declared. */
static void test_b046_sample_rate(void **state) {
    (void)state;
    char v[64];
    reply one = speak("{" HELLO "}"), r = speak("{" HELLO ", \"sample_rate\": 16000}");
    uint32_t rate;
    memcpy(&rate, r.body + 24, 4);
    assert_int_equal(rate, 16000);
    assert_string_equal(header_of(&r, "x-sample-rate", v, sizeof v), "16000");
    assert_true(llabs((long long)(r.n - 44) * 3 - (long long)(one.n - 44) * 2) <= 8);
    reply_free(&one);
    reply_free(&r);
}

static void test_max_new_tokens(void **state) {
    (void)state;
    reply r = speak("{" HELLO ", \"max_new_tokens\": 4, \"response_format\": \"pcm\"}");
    assert_int_equal(r.status, 200);
    assert_true(r.n <= 4 * 1920 * 2);
    reply_free(&r);
}

/* B055: blank text is refused before anything is scheduled. */
static void test_b055_blank_input(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "{\"voice\": \"rms\"}", "{\"input\": null, \"voice\": \"rms\"}", "{\"input\": \"\"}",
        "{\"input\": \" \\t\\n\"}", "{\"input\": \"\xe3\x80\x80\"}"};
    for (size_t i = 0; i < 5; i++) {
        reply r = speak(bodies[i]);
        assert_error(&r, 400, "input");
    }
}

static void test_wrong_types_name_their_field(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"{\"input\": 3}", "input"},
        {"{" HELLO ", \"language\": []}", "language"},
        {"{\"input\": \"a\", \"voice\": 3}", "voice"},
        {"{\"input\": \"a\", \"voice\": \"nobody\"}", "voice"},
        {"{" HELLO ", \"stream\": 1}", "stream"},
        {"{" HELLO ", \"stream_format\": \"raw\"}", "stream_format"},
        {"{" HELLO ", \"max_new_tokens\": 1.5}", "max_new_tokens"},
        {"{\"input\": \"a\", \"seed\": \"x\"}", "seed"},
        {"{" HELLO ", \"speaker_embedding\": [1]}", "speaker_embedding"},
        {"{" HELLO ", \"word_timestamps\": true}", "word_timestamps"},
        {"{" HELLO ", \"task_type\": \"Sing\"}", "task_type"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reply r = speak(rows[i][0]);
        assert_error(&r, 400, rows[i][1]);
    }
    reply r = speak("{" HELLO ", \"model\": \"other\"}");
    assert_error(&r, 404, "model");
    r = speak("{" HELLO ", \"model\": \"tts-1\", \"voice\": {\"id\": \"rms\"}, \"tempo\": 1}");
    assert_int_equal(r.status, 400); /* voice stands twice */
    reply_free(&r);
}

static void test_unknown_fields_warn(void **state) {
    (void)state;
    char v[128];
    reply r = speak("{\"input\": \"Hi.\", \"model\": \"tts-1\", \"voice\": {\"id\": \"rms\"}, \"tempo\": 1}");
    assert_int_equal(r.status, 200);
    assert_string_equal(header_of(&r, "x-omni-warning", v, sizeof v), "unknown field 'tempo'");
    reply_free(&r);
}

/* B067: bodies that are not UTF-8 get an answer that is. */
static void test_b067_bad_utf8(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "{\"input\": \"\xc4\xe3\"}", "{\"input\": \"\xc0\x80\"}", "{\"input\": \"\xed\xa0\x80\"}",
        "{\"input\": \"\\ud83d\"}", "{\"input\": \"a\\u0000b\"}",
        "{\"input\": \"a\", \"model\": \"\xff\xfe\"}"};
    for (size_t i = 0; i < 6; i++) {
        reply r = speak(bodies[i]);
        assert_error(&r, 400, NULL);
    }
}

static void test_broken_bodies(void **state) {
    (void)state;
    static const char *const bodies[] = {"{", "[]", "3", "{\"input\": \"a\", \"input\": \"b\"}", "nul"};
    int fd = dial(demo.port);
    for (size_t i = 0; i < 5; i++) { /* and the connection stays usable */
        reply r = ask_on(fd, "POST", SPEECH, NULL, bodies[i], strlen(bodies[i]));
        assert_error(&r, 400, NULL);
    }
    char *deep = malloc(300001);
    memset(deep, '[', 300000);
    reply r = ask_on(fd, "POST", SPEECH, NULL, deep, 300000);
    assert_error(&r, 400, NULL);
    free(deep);
    close(fd);
}

/* ---- connections ------------------------------------------------------------------------------ */

/* B069: 100 Continue comes at once, 413 too, without the body. */
static void test_b069_expect_and_oversize(void **state) {
    (void)state;
    int fd = dial(demo.port);
    send_text(fd, "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nContent-Length: 2097152\r\n"
                  "Expect: 100-continue\r\n\r\n");
    char buf[64] = {0};
    assert_true(read_some(fd, buf, 25, 1000) == 25);
    assert_string_equal(buf, "HTTP/1.1 100 Continue\r\n\r\n");
    char *body = malloc(2097152);
    memset(body, ' ', 2097152);
    const char *text = "{" HELLO ", \"response_format\": \"pcm\"}";
    memcpy(body, text, strlen(text));
    send_bytes(fd, body, 2097152);
    free(body);
    reply r = read_reply(fd, "POST");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    close(fd);
    fd = dial(demo.port);
    send_text(fd, "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n"
                  "Expect: 100-continue\r\n\r\n");
    r = read_reply(fd, "POST");
    assert_error(&r, 413, NULL);
    assert_true(is_closed(fd, 2000));
    close(fd);
}

/* B070: requests in one packet are answered in order; a DELETE without a length has no body. */
static void test_b070_pipelined(void **state) {
    (void)state;
    static const int statuses[] = {200, 200, 404, 200};
    int fd = dial(demo.port);
    send_text(fd, "GET /health HTTP/1.1\r\nHost: a\r\nX-Request-Id: a\r\n\r\n"
                  "GET /health HTTP/1.1\r\nHost: a\r\nX-Request-Id: b\r\n\r\n"
                  "DELETE /v1/videos/x HTTP/1.1\r\nHost: a\r\nX-Request-Id: c\r\n\r\n"
                  "GET /v1/models HTTP/1.1\r\nHost: a\r\nX-Request-Id: d\r\n\r\n");
    for (int i = 0; i < 4; i++) {
        char v[64];
        reply r = read_reply(fd, "GET");
        assert_int_equal(r.status, statuses[i]);
        assert_int_equal(header_of(&r, "x-request-id", v, sizeof v)[0], 'a' + i);
        reply_free(&r);
    }
    for (const char *p = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n"; *p; p++) send_bytes(fd, p, 1);
    reply r = read_reply(fd, "GET");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    close(fd);
}

#define CHUNKED "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

static void test_post_without_a_length(void **state) {
    (void)state;
    static const char *const broken[] = {
        "POST " SPEECH " HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nContent-Length: -2\r\n\r\n{}",
        "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nContent-Length: 2x\r\n\r\n{}",
        "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n{}",
        "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
        "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        CHUNKED "x\r\n{}\r\n0\r\n\r\n",
        CHUNKED "2\r\n{}0\r\n\r\n",
        CHUNKED "ffffffffffffffffff\r\n{}"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        int fd = dial(demo.port);
        send_text(fd, broken[i]);
        reply r = read_reply(fd, "POST");
        assert_error(&r, 400, NULL);
        assert_true(is_closed(fd, 5000));
        close(fd);
    }
}

static void test_body_in_chunks(void **state) {
    (void)state;
    static const char body[] = CHUNKED "1\r\n{\r\n"
                                       "21;name=\"value\"\r\n\"input\": \"Good morning.\", \"voice\"\r\n"
                                       "013\r\n: \"rms\", \"seed\": 7}\r\n0\r\nTrailer: x\r\n\r\n";
    reply solo = speak("{" HELLO "}");
    for (int k = 0; k < 2; k++) {
        int fd = dial(demo.port);
        if (k == 0) send_text(fd, body);
        for (const char *p = body; k == 1 && *p; p++) send_bytes(fd, p, 1);
        reply r = read_reply(fd, "POST");
        if (r.status != 200) fail_msg("%d: %.200s", r.status, r.body);
        assert_int_equal(r.n, solo.n);
        assert_memory_equal(r.body, solo.body, solo.n);
        reply_free(&r);
        close(fd);
    }
    reply_free(&solo);
    char *big = malloc(6 << 20);
    int n = sprintf(big, CHUNKED "600000\r\n");
    memset(big + n, ' ', (size_t)((6 << 20) - n));
    int fd = dial(demo.port);
    send_bytes(fd, big, 6 << 20);
    reply r = read_reply(fd, "POST");
    assert_error(&r, 413, NULL);
    free(big);
    close(fd);
}

static void test_paths_and_methods(void **state) {
    (void)state;
    char v[64];
    reply r = http_ask(demo.port, "GET", "/nothing", NULL);
    assert_error(&r, 404, NULL);
    r = http_ask(demo.port, "GET", SPEECH, NULL);
    assert_string_equal(header_of(&r, "allow", v, sizeof v), "POST, OPTIONS");
    assert_error(&r, 405, NULL);
    r = http_ask(demo.port, "GET", "/v1/models/tts-1", NULL);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    r = http_ask(demo.port, "GET", "/v1/models/none", NULL);
    assert_error(&r, 404, "model");
    r = http_ask(demo.port, "HEAD", "/health", NULL);
    assert_int_equal(r.status, 200);
    reply_free(&r);
}

static void test_health_tells_of_stages(void **state) {
    (void)state;
    reply r = http_ask(demo.port, "GET", "/health", NULL);
    json_t *j = json_of(&r);
    json_t *model = json_array_get(json_object_get(j, "models"), 0);
    assert_int_equal(json_array_size(json_object_get(model, "stages")), 2);
    assert_string_equal(json_string_value(json_object_get(j, "status")), "ok");
    json_decref(j);
    reply_free(&r);
}

static void test_cors(void **state) {
    (void)state;
    char v[64];
    int fd = dial(demo.port);
    reply r = ask_on(fd, "OPTIONS", SPEECH, "Origin: https://page.example\r\n", NULL, 0);
    assert_int_equal(r.status, 204);
    assert_string_equal(header_of(&r, "access-control-allow-origin", v, sizeof v),
                        "https://page.example");
    reply_free(&r);
    r = ask_on(fd, "GET", "/health", "Origin: https://other.example\r\n", NULL, 0);
    assert_null(header_of(&r, "access-control-allow-origin", v, sizeof v));
    reply_free(&r);
    close(fd);
}

/* B048: clients that go away in the middle leave nothing behind, and the others their answer. */
static void test_b048_clients_that_leave(void **state) {
    (void)state;
    static const char body[] = "{\"input\": \"one two three four five six seven eight nine ten\", "
                               "\"voice\": \"rms\", \"seed\": 1, \"stream\": true}";
    char head[256];
    reply before = speak("{" HELLO "}");
    snprintf(head, sizeof head, "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n",
             sizeof body - 1);
    for (int i = 0; i < 6; i++) {
        int fd = dial(demo.port);
        send_text(fd, head);
        send_text(fd, body);
        char buf[512];
        if (i % 2) read_some(fd, buf, sizeof buf, 2000);
        close(fd);
    }
    reply after = speak("{" HELLO "}");
    assert_int_equal(after.n, before.n);
    assert_memory_equal(after.body, before.body, before.n);
    reply_free(&before);
    reply_free(&after);
    wait_idle(&demo, 10);
}

static void test_many_at_once_equal_their_solo(void **state) {
    (void)state;
    enum { N = 12 };
    int fds[N];
    reply solo = speak("{" HELLO "}");
    static const char body[] = "{" HELLO "}";
    for (int i = 0; i < N; i++) {
        char head[256];
        fds[i] = dial(demo.port);
        snprintf(head, sizeof head, "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n%s",
                 sizeof body - 1, body);
        send_text(fds[i], head);
    }
    for (int i = 0; i < N; i++) {
        reply r = read_reply(fds[i], "POST");
        assert_int_equal(r.status, 200);
        assert_int_equal(r.n, solo.n);
        assert_memory_equal(r.body, solo.body, solo.n);
        reply_free(&r);
        close(fds[i]);
    }
    reply_free(&solo);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b038_whole_wav),
        cmocka_unit_test(test_b036_b037_b044_streams_equal_the_whole),
        cmocka_unit_test(test_b072_events_carry_the_audio_and_its_usage),
        cmocka_unit_test(test_formats_decode_to_the_same_length),
        cmocka_unit_test(test_b078_format_and_speed),
        cmocka_unit_test(test_b046_sample_rate),
        cmocka_unit_test(test_max_new_tokens),
        cmocka_unit_test(test_b055_blank_input),
        cmocka_unit_test(test_wrong_types_name_their_field),
        cmocka_unit_test(test_unknown_fields_warn),
        cmocka_unit_test(test_b067_bad_utf8),
        cmocka_unit_test(test_broken_bodies),
        cmocka_unit_test(test_b069_expect_and_oversize),
        cmocka_unit_test(test_b070_pipelined),
        cmocka_unit_test(test_post_without_a_length),
        cmocka_unit_test(test_body_in_chunks),
        cmocka_unit_test(test_paths_and_methods),
        cmocka_unit_test(test_health_tells_of_stages),
        cmocka_unit_test(test_cors),
        cmocka_unit_test(test_b048_clients_that_leave),
        cmocka_unit_test(test_many_at_once_equal_their_solo),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}
