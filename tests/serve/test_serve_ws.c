/* Text streams in, audio streams out, over a WebSocket whose frames are written here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/serve/ws.h"
#include "tests/serve/serve_rig.h"

#define KEYS "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define UPGRADE "Upgrade: websocket\r\nConnection: Upgrade\r\n" KEYS

static served demo;

static int open_demo(void **state) {
    (void)state;
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.max_body = 1 << 20;
    o.stall_timeout = 1.5;
    served_open(&demo, NULL, &o);
    return 0;
}

static int close_demo(void **state) {
    (void)state;
    served_close(&demo);
    return 0;
}

/* ---- frames -------------------------------------------------------------------------------- */

enum { CONT = 0, TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10, FIN = 0x80 };

static int connect_ws(void) {
    int fd = dial(demo.port);
    reply r = ask_on(fd, "GET", OG__WS_PATH, UPGRADE, NULL, 0);
    char v[64];
    if (r.status != 101) fail_msg("status %d: %s", r.status, r.body);
    assert_string_equal(header_of(&r, "sec-websocket-accept", v, sizeof v),
                        "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    reply_free(&r);
    return fd;
}

static void send_frame(int fd, int op, const char *data, size_t n) {
    static const unsigned char mask[4] = {0x12, 0x34, 0x56, 0x78};
    unsigned char *f = malloc(n + 14);
    size_t k = 0;
    f[k++] = (unsigned char)op;
    if (n < 126) {
        f[k++] = (unsigned char)(0x80 | n);
    } else {
        f[k++] = 0x80 | 127;
        for (int i = 7; i >= 0; i--) f[k++] = (unsigned char)(n >> (8 * i));
    }
    memcpy(f + k, mask, 4);
    k += 4;
    for (size_t i = 0; i < n; i++) f[k++] = (unsigned char)data[i] ^ mask[i % 4];
    send_bytes(fd, f, k);
    free(f);
}

static void say(int fd, const char *json) {
    send_frame(fd, FIN | TEXT, json, strlen(json));
}

static bool read_n(int fd, void *to, size_t n) {
    for (char *p = to; n;) {
        ssize_t k = read_some(fd, p, n, CLIENT_WAIT_MS);
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* One frame's payload, appended. Returns its first byte, -1 at the end. */
static int read_frame(int fd, og_str *out) {
    unsigned char h[10];
    if (!read_n(fd, h, 2)) return -1;
    size_t n = h[1] & 127, more = n == 126 ? 2 : n == 127 ? 8 : 0;
    if (!read_n(fd, h + 2, more)) return -1;
    if (more) n = 0;
    for (size_t i = 0; i < more; i++) n = n << 8 | h[2 + i];
    char *p = malloc(n + 1);
    bool ok = read_n(fd, p, n);
    og_str_addn(out, p, n);
    free(p);
    return ok ? h[0] : -1;
}

/* A message: its opcode; -1 at the end. */
static int read_message(int fd, og_str *out) {
    int first = -1;
    out->len = 0;
    for (;;) {
        int b = read_frame(fd, out);
        if (b < 0) return -1;
        if (first < 0) first = b & 15;
        if (b & FIN) return first;
    }
}

static json_t *hear(int fd) {
    og_str s = OG_STR_INIT;
    int op = read_message(fd, &s);
    if (op != TEXT) fail_msg("opcode %d where JSON was expected", op);
    json_t *j = json_loadb(s.data, s.len, 0, NULL);
    assert_non_null(j);
    og_str_free(&s);
    return j;
}

static const char *text_of(json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static json_int_t number(json_t *o, const char *key) {
    json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? json_integer_value(v) : -1;
}

/* audio.start, audio, audio.done. Returns the bytes; messages: how many binary ones. */
static og_str hear_sentence(int fd, int utterance, int index, const char *text, int *messages) {
    og_str audio = OG_STR_INIT, s = OG_STR_INIT;
    json_t *j = hear(fd);
    if (strcmp(text_of(j, "type"), "audio.start")) fail_msg("%s", json_dumps(j, 0));
    assert_int_equal(number(j, "utterance_index"), utterance);
    assert_int_equal(number(j, "sentence_index"), index);
    assert_string_equal(text_of(j, "sentence_text"), text);
    assert_int_equal(number(j, "sample_rate"), 24000);
    json_decref(j);
    int op, n = 0;
    for (; (op = read_message(fd, &s)) == BINARY; n++) og_str_addn(&audio, s.data, s.len);
    assert_int_equal(op, TEXT);
    j = json_loadb(s.data, s.len, 0, NULL);
    assert_string_equal(text_of(j, "type"), "audio.done");
    assert_int_equal(number(j, "utterance_index"), utterance);
    assert_int_equal(number(j, "sentence_index"), index);
    assert_int_equal(number(j, "total_bytes"), audio.len);
    assert_true(json_is_false(json_object_get(j, "error")));
    json_decref(j);
    og_str_free(&s);
    if (messages) *messages = n;
    return audio;
}

static void hear_done(int fd, int utterance, int sentences) {
    json_t *j = hear(fd);
    assert_string_equal(text_of(j, "type"), "session.done");
    assert_int_equal(number(j, "utterance_index"), utterance);
    assert_int_equal(number(j, "total_sentences"), sentences);
    json_decref(j);
}

static void hear_error(int fd, const char *param) {
    json_t *j = hear(fd), *e = json_object_get(j, "error");
    assert_string_equal(text_of(j, "type"), "error");
    assert_true(*text_of(j, "message") != 0);
    assert_string_equal(text_of(e, "param"), param);
    json_decref(j);
}

/* The audio is that of the same request over HTTP. */
static void assert_spoken(og_str *audio, const char *text, const char *format) {
    char body[512];
    snprintf(body, sizeof body, "{\"input\": \"%s\", \"voice\": \"rms\", \"seed\": 7, "
             "\"response_format\": \"%s\"}", text, format);
    reply r = http_ask(demo.port, "POST", "/v1/audio/speech", body);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.n, audio->len);
    assert_memory_equal(r.body, audio->data, r.n);
    reply_free(&r);
    og_str_free(audio);
}

static void hang_up(int fd) {
    close(fd);
    wait_idle(&demo, 10);
}

#define CONFIG "{\"type\": \"session.config\", \"voice\": \"rms\", \"seed\": 7, "
#define INPUT(text) "{\"type\": \"input.text\", \"text\": \"" text "\"}"
#define DONE "{\"type\": \"input.done\"}"

/* ---- sessions ----------------------------------------------------------------------------------- */

static void test_whole_utterances(void **state) {
    (void)state;
    int fd = connect_ws(), n;
    say(fd, CONFIG "\"response_format\": \"flac\"}");
    say(fd, INPUT("Good mor"));
    say(fd, INPUT("ning. How are you?"));
    say(fd, DONE);
    og_str a = hear_sentence(fd, 0, 0, "Good morning. How are you?", &n);
    assert_int_equal(n, 1);
    assert_spoken(&a, "Good morning. How are you?", "flac");
    hear_done(fd, 0, 1);
    say(fd, INPUT("Once more."));
    say(fd, DONE);
    a = hear_sentence(fd, 1, 0, "Once more.", NULL);
    assert_spoken(&a, "Once more.", "flac");
    hear_done(fd, 1, 1);
    say(fd, "{\"type\": \"session.close\"}");
    og_str s = OG_STR_INIT;
    assert_int_equal(read_message(fd, &s), CLOSE);
    assert_int_equal((unsigned char)s.data[0] << 8 | (unsigned char)s.data[1], 1000);
    og_str_free(&s);
    hang_up(fd);
}

/* A finished sentence is spoken while the next is being written. */
static void test_sentences_as_they_come(void **state) {
    (void)state;
    int fd = connect_ws(), n;
    say(fd, CONFIG "\"response_format\": \"pcm\", \"stream_audio\": true, "
                   "\"split_granularity\": \"sentence\"}");
    say(fd, INPUT("It is 3.5 o"));
    say(fd, INPUT("r so. And th"));
    og_str a = hear_sentence(fd, 0, 0, "It is 3.5 or so.", &n);
    assert_true(n > 1); /* in pieces */
    assert_spoken(&a, "It is 3.5 or so.", "pcm");
    say(fd, INPUT("at is that"));
    say(fd, DONE);
    say(fd, INPUT("Next! Last."));
    say(fd, DONE);
    a = hear_sentence(fd, 0, 1, " And that is that", NULL);
    assert_spoken(&a, " And that is that", "pcm");
    hear_done(fd, 0, 2);
    a = hear_sentence(fd, 1, 0, "Next!", NULL);
    assert_spoken(&a, "Next!", "pcm");
    a = hear_sentence(fd, 1, 1, " Last.", NULL);
    assert_spoken(&a, " Last.", "pcm");
    hear_done(fd, 1, 2);
    hang_up(fd);
}

static void test_errors_leave_the_session(void **state) {
    (void)state;
    static const struct {
        const char *message, *param;
    } rows[] = {
        {"{", ""},
        {"[]", ""},
        {"{}", "type"},
        {INPUT("x"), "type"},
        {"{\"type\": \"dance\"}", "type"},
        {CONFIG "\"split_granularity\": \"word\"}", "split_granularity"},
        {CONFIG "\"split_granularity\": 1}", "split_granularity"},
        {CONFIG "\"stream_audio\": 1}", "stream_audio"},
        {CONFIG "\"stream_audio\": true}", "response_format"},
        {CONFIG "\"stream_audio\": true, \"response_format\": \"pcm\", \"speed\": 2}", "speed"},
    };
    int fd = connect_ws();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        say(fd, rows[i].message);
        hear_error(fd, rows[i].param);
    }
    say(fd, CONFIG "\"response_format\": \"aac\"}");
    say(fd, "{\"type\": \"input.text\", \"text\": 5}");
    hear_error(fd, "text");
    say(fd, INPUT("Hm."));
    say(fd, DONE);
    hear_error(fd, "response_format"); /* as /v1/audio/speech has it */
    json_t *j = hear(fd);
    assert_string_equal(text_of(j, "type"), "audio.done");
    assert_true(json_is_true(json_object_get(j, "error")));
    json_decref(j);
    hear_done(fd, 0, 1);
    say(fd, INPUT(" "));
    say(fd, DONE);
    hear_error(fd, "text");
    hear_done(fd, 1, 0);
    say(fd, CONFIG "\"response_format\": \"pcm\"}");
    send_frame(fd, TEXT, "{\"type\": \"input.te", 18); /* a message in fragments */
    send_frame(fd, CONT, "xt\", \"text\": \"Go", 16);
    send_frame(fd, FIN | PING, "hi", 2);
    send_frame(fd, FIN | CONT, "od.\"}", 5);
    og_str s = OG_STR_INIT;
    assert_int_equal(read_message(fd, &s), PONG);
    og_str_free(&s);
    say(fd, DONE);
    s = hear_sentence(fd, 2, 0, "Good.", NULL);
    assert_spoken(&s, "Good.", "pcm");
    hear_done(fd, 2, 1);
    hang_up(fd);
}

static void test_text_is_bounded(void **state) {
    (void)state;
    int fd = connect_ws();
    og_str s = OG_STR_INIT;
    say(fd, CONFIG "\"response_format\": \"pcm\"}");
    og_str_addf(&s, "{\"type\": \"input.text\", \"text\": \"");
    for (int i = 0; i < 200 << 10; i++) og_str_addn(&s, "a", 1);
    og_str_addf(&s, "\"}");
    say(fd, s.data);
    say(fd, s.data);
    hear_error(fd, "text");
    s.len -= 2;
    for (int i = 0; i < 2 << 20; i++) og_str_addn(&s, "a", 1);
    send_frame(fd, FIN | TEXT, s.data, s.len); /* larger than any body */
    int op = read_message(fd, &s);
    assert_true(op == CLOSE || op == -1);
    og_str_free(&s);
    hang_up(fd);
    fd = connect_ws();
    send_frame(fd, FIN | BINARY, "x", 1);
    assert_true(read_message(fd, &s) != TEXT);
    og_str_free(&s);
    hang_up(fd);
}

/* A client that goes takes what is made for it along; one that says nothing is let go. */
static void test_gone_and_idle(void **state) {
    (void)state;
    int fd = connect_ws();
    say(fd, CONFIG "\"response_format\": \"pcm\", \"split_granularity\": \"sentence\"}");
    say(fd, INPUT("One two three four five six seven eight. One two three. Four. Five. Six. "));
    nap(0.05);
    hang_up(fd);
    fd = connect_ws();
    hear_error(fd, "");
    og_str s = OG_STR_INIT;
    assert_int_equal(read_message(fd, &s), CLOSE);
    og_str_free(&s);
    hang_up(fd);
}

static void test_upgrades_that_are_refused(void **state) {
    (void)state;
    reply r = http_ask(demo.port, "GET", OG__WS_PATH, NULL);
    assert_error(&r, 426, NULL);
    int fd = dial(demo.port);
    r = ask_on(fd, "GET", "/v1/models", UPGRADE, NULL, 0);
    assert_error(&r, 404, NULL);
    close(fd);
    fd = dial(demo.port);
    r = ask_on(fd, "GET", OG__WS_PATH, "Origin: http://evil.example\r\n" UPGRADE, NULL, 0);
    assert_error(&r, 403, NULL);
    close(fd);
    fd = dial(demo.port);
    r = ask_on(fd, "GET", OG__WS_PATH, "Origin: http://a\r\n" UPGRADE, NULL, 0);
    assert_int_equal(r.status, 101);
    reply_free(&r);
    hang_up(fd);
}

/* ---- sentences ------------------------------------------------------------------------------------ */

static void test_where_sentences_end(void **state) {
    (void)state;
    static const struct {
        const char *text;
        og__split how;
        size_t at;
    } rows[] = {
        {"One. Two", OG__SPLIT_NONE, 0},     {"One. Two", OG__SPLIT_SENTENCE, 4},
        {"One.", OG__SPLIT_SENTENCE, 0},     {"3.5 ", OG__SPLIT_SENTENCE, 0},
        {"Dr. Who? ", OG__SPLIT_SENTENCE, 8}, {"J. Doe. ", OG__SPLIT_SENTENCE, 7},
        {"\"Oh!\" he", OG__SPLIT_SENTENCE, 5}, {"Well... so", OG__SPLIT_SENTENCE, 7},
        {"One, two ", OG__SPLIT_SENTENCE, 0}, {"One, two ", OG__SPLIT_CLAUSE, 4},
        {"你好。再", OG__SPLIT_SENTENCE, 9},  {"你好，再", OG__SPLIT_CLAUSE, 9},
        {"你好", OG__SPLIT_CLAUSE, 0},        {"A line\nmore", OG__SPLIT_SENTENCE, 7},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t at = og__split_at(rows[i].text, strlen(rows[i].text), 0, rows[i].how);
        if (at != rows[i].at) fail_msg("'%s' gave %zu", rows[i].text, at);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_where_sentences_end),
        cmocka_unit_test(test_upgrades_that_are_refused),
        cmocka_unit_test(test_whole_utterances),
        cmocka_unit_test(test_sentences_as_they_come),
        cmocka_unit_test(test_errors_leave_the_session),
        cmocka_unit_test(test_text_is_bounded),
        cmocka_unit_test(test_gone_and_idle),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}
