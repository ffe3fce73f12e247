/* Failures that users of other servers reported, over a socket: what the other tests of this
 * room do not cover. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>

#include "graph/serve/server.h"
#include "nodes/media/audio.h"
#include "tests/serve/serve_rig.h"

#define SPEECH "/v1/audio/speech"
#define HELLO "\"input\": \"Good morning.\", \"voice\": \"rms\", \"seed\": 7"
#define PCM ", \"response_format\": \"pcm\""

static served demo;

static int open_demo(void **state) {
    (void)state;
    served_open(&demo, NULL, NULL);
    return 0;
}

static int close_demo(void **state) {
    (void)state;
    served_close(&demo);
    return 0;
}

static void assert_same_body(const reply *a, const reply *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->body, b->body, a->n);
}

static void start_post(int fd, const char *headers, const char *body) {
    char head[1024];
    snprintf(head, sizeof head,
             "POST " SPEECH " HTTP/1.1\r\nHost: a\r\n%sContent-Length: %zu\r\n\r\n",
             headers, strlen(body));
    send_text(fd, head);
    send_text(fd, body);
}

/* ---- B049 ------------------------------------------------------------------------------------ */

/* Two at once with one id, and two with an empty one: each has its own answer. */
static void test_b049_ids_that_repeat(void **state) {
    (void)state;
    static const char *const ids[] = {"X-Request-Id: same\r\n", "X-Request-Id: \r\n"};
    static const char *const bodies[] = {
        "{" HELLO PCM "}",
        "{\"input\": \"Yes.\", \"voice\": \"rms\", \"seed\": 3" PCM "}"};
    reply solo[2];
    for (int k = 0; k < 2; k++) solo[k] = http_ask(demo.port, "POST", SPEECH, bodies[k]);
    for (int i = 0; i < 2; i++) {
        int fds[2];
        for (int k = 0; k < 2; k++)
            start_post(fds[k] = dial(demo.port), ids[i], bodies[k]);
        for (int k = 0; k < 2; k++) {
            char v[128];
            reply r = read_reply(fds[k], "POST");
            assert_int_equal(r.status, 200);
            assert_same_body(&r, &solo[k]);
            assert_non_null(header_of(&r, "x-request-id", v, sizeof v));
            assert_true(i == 0 ? !strcmp(v, "same") : !strncmp(v, "req-", 4));
            reply_free(&r);
            close(fds[k]);
        }
    }
    reply_free(&solo[0]);
    reply_free(&solo[1]);
}

/* An id that cannot be printed back, or is longer than any, is not taken for one; no header of
 * the client's own making comes back. */
static void test_b049_ids_that_are_none(void **state) {
    (void)state;
    static const char *const wrong[] = {"a\tb", "a\x01z", "\xc3\xa9", "a\nX-Evil: 1"};
    char head[512], v[128];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int fd = dial(demo.port);
        snprintf(head, sizeof head,
                 "GET /health HTTP/1.1\r\nHost: a\r\nX-Request-Id: %s\r\n\r\n", wrong[i]);
        send_text(fd, head);
        reply r = read_reply(fd, "GET");
        if (r.status == 200) {
            assert_non_null(header_of(&r, "x-request-id", v, sizeof v));
            assert_true(!strncmp(v, "req-", 4) || !strcmp(v, "a"));
        } else {
            assert_true(r.status == 0 || (r.status >= 400 && r.status < 500));
        }
        assert_null(header_of(&r, "x-evil", v, sizeof v));
        reply_free(&r);
        close(fd);
    }
    size_t n = 65536;
    char *line = malloc(n + 64);
    int fd = dial(demo.port);
    strcpy(line, "GET /health HTTP/1.1\r\nHost: a\r\nX-Request-Id: ");
    size_t at = strlen(line);
    memset(line + at, 'a', n);
    strcpy(line + n, "\r\n\r\n");
    send_text(fd, line);
    reply r = read_reply(fd, "GET");
    assert_true(r.status == 0 || (r.status >= 400 && r.status < 500));
    reply_free(&r);
    close(fd);
    free(line);
    r = http_ask(demo.port, "GET", "/health", NULL);
    assert_int_equal(r.status, 200);
    reply_free(&r);
}

/* ---- B054, B055 -------------------------------------------------------------------------------- */

/* A text longer than the window is refused with both numbers, and the server lives. */
static void test_b054_longer_than_the_window(void **state) {
    (void)state;
    enum { WORDS = 40000 };
    char *body = malloc(WORDS * 4 + 128);
    char *p = body + sprintf(body, "{\"voice\": \"rms\", \"input\": \"");
    for (int i = 0; i < WORDS; i++) p += sprintf(p, "yes ");
    strcpy(p, "\"}");
    reply r = http_ask(demo.port, "POST", SPEECH, body);
    json_t *j = json_of(&r);
    const char *m =
        json_string_value(json_object_get(json_object_get(j, "error"), "message"));
    int numbers = 0;
    for (const char *s = m; s && *(s += strcspn(s, "0123456789"));
         s += strspn(s, "0123456789"))
        numbers++;
    if (numbers < 2) fail_msg("not both numbers: %s", m);
    json_decref(j);
    assert_error(&r, 400, NULL);
    free(body);
    r = http_ask(demo.port, "POST", SPEECH, "{" HELLO ", \"max_new_tokens\": 0}");
    assert_error(&r, 400, "max_new_tokens");
    r = http_ask(demo.port, "POST", SPEECH, "{" HELLO ", \"max_new_tokens\": 1" PCM "}");
    assert_int_equal(r.status, 200);
    assert_true(r.n <= 1920 * 2); /* the last token may be the end */
    reply_free(&r);
}

/* ---- B070 ------------------------------------------------------------------------------------------ */

/* A request behind one with a body, in one packet: both are answered, in order, or the
 * connection ends before the second was begun. The loop lives in any case. */
static void test_b070_behind_a_body(void **state) {
    (void)state;
    static const char body[] = "{" HELLO PCM "}";
    static const char get[] = "GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n";
    char post[512], packet[2048];
    snprintf(post, sizeof post,
             "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    reply solo = http_ask(demo.port, "POST", SPEECH, body);
    const char *const orders[][3] = {
        {post, get, ""}, {post, post, ""}, {get, post, get}, {get, get, post}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        int fd = dial(demo.port), answers = 0;
        snprintf(packet, sizeof packet, "%s%s%s", orders[i][0], orders[i][1],
                 orders[i][2]);
        send_text(fd, packet);
        for (int k = 0; k < 3 && *orders[i][k]; k++) {
            reply r = read_reply(fd, "GET");
            bool whole = r.status == 200 && !r.cut;
            assert_true(whole || (k > 0 && !r.head[0]));
            if (whole && orders[i][k] == post) assert_same_body(&r, &solo);
            if (whole && orders[i][k] == get) assert_non_null(strstr(r.body, "\"list\""));
            answers += whole;
            reply_free(&r);
            if (!whole) break;
            reply h = http_ask(demo.port, "GET", "/health", NULL);
            assert_int_equal(h.status, 200);
            reply_free(&h);
        }
        assert_true(answers >= 1);
        close(fd);
    }
    reply_free(&solo);
}

/* ---- B071 -------------------------------------------------------------------------------------------- */

static void make_clip(og_str *wav) {
    enum { N = 12000 };
    float *x = malloc(N * sizeof *x);
    uint32_t sizes[2] = {36 + N * 2, N * 2};
    for (int i = 0; i < N; i++) x[i] = 0.4f * sinf(0.05f * (float)i);
    og_str_addn(wav, "RIFF", 4);
    og_str_addn(wav, (char *)&sizes[0], 4);
    og_str_addn(wav, "WAVEfmt \x10\0\0\0\1\0\1\0\xc0\x5d\0\0\x80\xbb\0\0\2\0\x10\0data",
                32);
    og_str_addn(wav, (char *)&sizes[1], 4);
    for (int i = 0; i < N; i++) {
        int16_t s = (int16_t)(x[i] * 32767);
        og_str_addn(wav, (char *)&s, 2);
    }
    free(x);
}

static reply clone_with(int port, const char *ref_audio) {
    json_t *j =
        json_pack("{s:s, s:s, s:b, s:s, s:i, s:i, s:s}", "input", "Hi.", "ref_audio",
                  ref_audio, "x_vector_only_mode", 1, "language", "English", "seed", 4,
                  "max_new_tokens", 2, "response_format", "pcm");
    char *text = json_dumps(j, 0);
    reply r = http_ask(port, "POST", SPEECH, text);
    free(text);
    json_decref(j);
    return r;
}

static void test_b071_data_urls(void **state) {
    (void)state;
    static const char *const heads[] = {
        "data:audio/wav;base64,", "data:audio/wav;charset=utf-8;base64,",
        "DATA:audio/wav;BASE64,", "data:audio/x-wav;codec=pcm;base64,",
        "data:;base64,",          ""};
    static const char *const wrong[] = {"data:audio/wav;base64,", "data:audio/wav;base64",
                                        "data:audio/wav;base64,UklG!Rg==", "",
                                        "data:,abc"};
    setup c = {
        .model = "tests/data/qwen3_tts/tiny-a/base", .threads = 2, .sampled = true};
    served s;
    og_str wav = OG_STR_INIT, b64 = OG_STR_INIT, url = OG_STR_INIT;
    served_open(&s, &c, NULL);
    make_clip(&wav);
    og__base64(wav.data, wav.len, &b64);
    reply first = clone_with(s.port, b64.data);
    if (first.status != 200) fail_msg("%d %s", first.status, first.body);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (int form = 0; form < 3; form++) {
            url.len = 0;
            og_str_add(&url, heads[i]);
            for (size_t k = 0; k < b64.len;
                 k += 76) { /* line breaks inside; no padding */
                size_t n = b64.len - k < 76 ? b64.len - k : 76;
                og_str_addn(&url, b64.data + k, n);
                if (form == 1) og_str_add(&url, "\r\n");
            }
            while (form == 2 && url.data[url.len - 1] == '=') url.data[--url.len] = 0;
            reply r = clone_with(s.port, url.data);
            assert_int_equal(r.status, 200);
            assert_same_body(&r, &first);
            reply_free(&r);
        }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        reply r = clone_with(s.port, wrong[i]);
        assert_error(&r, 400, "ref_audio");
    }
    reply_free(&first);
    og_str_free(&wav);
    og_str_free(&b64);
    og_str_free(&url);
    served_close(&s);
}

/* ---- B080 ---------------------------------------------------------------------------------------------- */

/* The second of three is hit by a fault before its first sample: it gets a status and a
 * reason, and soon; the others go on, on the other replica. */
static void test_b080_a_fault_has_a_status(void **state) {
    (void)state;
    setup c = {.model = "examples/voice",
               .threads = 2,
               .sampled = true,
               .sets = {"talker.num_replicas=2", "code2wav.num_replicas=2"},
               .n_sets = 2};
    served s;
    served_open(&s, &c, NULL);
    int talker = og_plan_find_stage(s.rig.plan, "talker"), failed = 0;
    reply solo = http_ask(s.port, "POST", SPEECH, "{" HELLO PCM "}");
    for (int round = 0; round < 20 && failed == 0; round++) {
        int fds[3];
        for (int k = 0; k < 3; k++)
            start_post(fds[k] = dial(s.port), "", "{" HELLO PCM "}");
        nap(0.005 * round);
        assert_int_equal(og_engine_inject_fault(s.rig.engine, talker, round % 2), 0);
        for (int k = 0; k < 3; k++) {
            double t0 = og__clock();
            reply r = read_reply(fds[k], "POST");
            if (r.status == 200) {
                assert_same_body(&r, &solo);
                reply_free(&r);
            } else {
                failed++;
                assert_true(og__clock() - t0 < 5);
                assert_non_null(strstr(r.body, "\"device_error\""));
                assert_non_null(strstr(r.body, "talker"));
                assert_error(&r, 503, NULL);
            }
            close(fds[k]);
        }
        wait_idle(&s, 10);
    }
    assert_true(failed > 0);
    reply_free(&solo);
    served_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b049_ids_that_repeat),
        cmocka_unit_test(test_b049_ids_that_are_none),
        cmocka_unit_test(test_b054_longer_than_the_window),
        cmocka_unit_test(test_b070_behind_a_body),
        cmocka_unit_test(test_b071_data_urls),
        cmocka_unit_test(test_b080_a_fault_has_a_status),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}
