/* The server under pressure: full queues, time limits, clients that do not read, stages that
 * fail, keys, and the way down. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "graph/serve/server.h"
#include "tests/serve/serve_rig.h"

#define SPEECH "/v1/audio/speech"
#define LONG                                                                               \
    "\"input\": \"one two three four five six seven eight nine ten eleven twelve thirteen " \
    "fourteen fifteen sixteen seventeen eighteen nineteen twenty\", \"voice\": \"rms\", "  \
    "\"seed\": 5"
#define SHORT "{\"input\": \"Good morning.\", \"voice\": \"rms\", \"seed\": 7}"

static void post(int fd, const char *body) {
    char head[256];
    snprintf(head, sizeof head, "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n",
             strlen(body));
    send_text(fd, head);
    send_text(fd, body);
}

static void test_api_keys(void **state) {
    (void)state;
    static const char *const keys[] = {"first", "second"};
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.api_keys = keys;
    o.n_api_keys = 2;
    served s;
    served_open(&s, NULL, &o);
    static const char *const wrong[] = {NULL, "Authorization: Bearer firs\r\n",
                                        "Authorization: Bearer first2\r\n",
                                        "Authorization: Bearer \r\n", "Authorization: second\r\n"};
    int fd = dial(s.port);
    for (size_t i = 0; i < 5; i++) {
        reply r = ask_on(fd, "POST", SPEECH, wrong[i], SHORT, strlen(SHORT));
        assert_error(&r, 401, NULL);
    }
    reply r = ask_on(fd, "POST", SPEECH, "Authorization: Bearer second\r\n", SHORT, strlen(SHORT));
    assert_int_equal(r.status, 200);
    reply_free(&r);
    r = ask_on(fd, "GET", "/health", NULL, NULL, 0);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    close(fd);
    served_close(&s);
}

/* A full queue says when to come again, and the connection is good for that. */
static void test_full_queue(void **state) {
    (void)state;
    enum { N = 40 };
    setup c = {.model = "examples/voice", .threads = 2, .sets = {"talker.max_num_seqs=1"},
               .n_sets = 1};
    int fds[N], ok = 0, busy = 0;
    served s;
    served_open_queue(&s, &c, NULL, 2);
    for (int i = 0; i < N; i++) {
        fds[i] = dial(s.port);
        post(fds[i], "{" LONG "}");
    }
    for (int i = 0; i < N; i++) {
        char v[32];
        reply r = read_reply(fds[i], "POST");
        ok += r.status == 200;
        if (r.status == 429) {
            busy++;
            assert_non_null(header_of(&r, "retry-after", v, sizeof v));
            reply h = ask_on(fds[i], "GET", "/health", NULL, NULL, 0);
            assert_int_equal(h.status, 200);
            reply_free(&h);
        }
        reply_free(&r);
        close(fds[i]);
    }
    assert_int_equal(ok + busy, N);
    assert_true(ok >= 1 && busy >= 1);
    served_close(&s);
}

static void test_time_limit(void **state) {
    (void)state;
    served s;
    served_open(&s, NULL, NULL);
    reply r = http_ask(s.port, "POST", SPEECH, "{" LONG ", \"timeout\": 0.001}");
    /* The tick that looks at the clock may come after a short answer. */
    assert_true(r.status == 504 || r.status == 200);
    reply_free(&r);
    wait_idle(&s, 5);
    served_close(&s);
}

/* B080: a client that does not read loses its own request, and only that. */
static void test_b080_client_that_does_not_read(void **state) {
    (void)state;
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.stall_timeout = 0.5;
    o.outbox = 4096;
    served s;
    served_open(&s, NULL, &o);
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 2048;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s.port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    post(fd, "{" LONG ", \"stream_format\": \"audio\"}");
    for (int i = 0; i < 3; i++) {
        reply r = http_ask(s.port, "POST", SPEECH, SHORT);
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
    wait_idle(&s, 20);
    close(fd);
    served_close(&s);
}


/* B073: where a stage fails in the middle nobody can take the cut answer for a whole one. */
static void test_b073_stage_fails_in_the_middle(void **state) {
    (void)state;
    static const char *const how[] = {"\"stream\": true", "\"stream_format\": \"audio\"",
                                      "\"stream_format\": \"audio\", \"response_format\": \"pcm\""};
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.outbox = 2048; /* the request waits for us and cannot end before the fault */
    served s;
    served_open(&s, NULL, &o);
    int talker = og_plan_find_stage(s.rig.plan, "talker");
    for (int i = 0; i < 3; i++) {
        char body[512], buf[1024];
        int fd = dial(s.port);
        snprintf(body, sizeof body, "{" LONG ", %s}", how[i]);
        post(fd, body);
        assert_true(read_some(fd, buf, 20, 5000) == 20);
        assert_memory_equal(buf, "HTTP/1.1 200 OK", 15);
        assert_int_equal(og_engine_inject_fault(s.rig.engine, talker, 0), 0);
        og_str all = OG_STR_INIT;
        ssize_t n;
        while ((n = read_some(fd, buf, sizeof buf, 5000)) > 0) {
            og_str_addn(&all, buf, (size_t)n);
            if (i == 0 && all.len > 5 && !memcmp(all.data + all.len - 5, "0\r\n\r\n", 5)) break;
        }
        bool ended = all.len > 5 && !memcmp(all.data + all.len - 5, "0\r\n\r\n", 5);
        if (i == 0) {
            assert_non_null(strstr(all.data, "speech.audio.error"));
            assert_null(strstr(all.data, "speech.audio.done"));
            assert_null(strstr(all.data, "[DONE]"));
        } else {
            assert_false(ended);
        }
        og_str_free(&all);
        close(fd);
        wait_idle(&s, 5);
    }
    reply r = http_ask(s.port, "POST", SPEECH, SHORT);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    served_close(&s);
}

/* Draining finishes what is under way, lets nothing new in, and says so. */
static void test_drain(void **state) {
    (void)state;
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.outbox = 2048;
    served s;
    served_open(&s, NULL, &o);
    int fd = dial(s.port);
    char buf[1];
    post(fd, "{" LONG ", \"stream_format\": \"audio\"}");
    assert_true(read_some(fd, buf, 1, 5000) == 1);
    og_server_drain(s.server);
    reply r = http_ask(s.port, "POST", SPEECH, SHORT);
    assert_error(&r, 503, NULL);
    r = http_ask(s.port, "GET", "/health", NULL);
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.body, "draining"));
    reply_free(&r);
    og_str all = OG_STR_INIT;
    char more[4096];
    ssize_t n;
    while ((n = read_some(fd, more, sizeof more, 5000)) > 0) og_str_addn(&all, more, (size_t)n);
    assert_memory_equal(all.data + all.len - 5, "0\r\n\r\n", 5);
    og_str_free(&all);
    close(fd);
    assert_int_equal(og_server_wait(s.server), 0);
    served_close(&s);
}

/* Destroyed in the middle of everything. */
static void test_destroy_under_load(void **state) {
    (void)state;
    served s;
    int fds[8];
    served_open(&s, NULL, NULL);
    for (int i = 0; i < 8; i++) {
        fds[i] = dial(s.port);
        post(fds[i], i % 2 ? "{" LONG "}" : "{" LONG ", \"stream\": true}");
    }
    nap(0.05);
    served_close(&s);
    for (int i = 0; i < 8; i++) close(fds[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_api_keys),
        cmocka_unit_test(test_full_queue),
        cmocka_unit_test(test_time_limit),
        cmocka_unit_test(test_b080_client_that_does_not_read),
        cmocka_unit_test(test_b073_stage_fails_in_the_middle),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_destroy_under_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
