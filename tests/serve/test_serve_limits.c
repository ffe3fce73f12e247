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

/* A client whose end of the connection takes little. */
static int dial_slowly(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 2048;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* Whether the peer has closed; waits until that or an answer is there. */
static bool is_closed_now(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char c;
    if (poll(&p, 1, 20000) != 1) fail_msg("neither an answer nor an end");
    return recv(fd, &c, 1, MSG_PEEK) <= 0;
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

/* An answer that cannot end by itself: its client does not read. */
static void test_time_limit(void **state) {
    (void)state;
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.outbox = 2048;
    served s;
    served_open(&s, NULL, &o);
    int fd = dial_slowly(s.port);
    post(fd, "{" LONG ", \"stream\": true, \"timeout\": 2}");
    assert_false(is_closed_now(fd)); /* it is under way */
    wait_idle(&s, 20);
    reply r = read_reply(fd, "POST");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\"code\":\"timeout\""));
    assert_null(strstr(r.body, "speech.audio.done"));
    reply_free(&r);
    close(fd);
    served_close(&s);
}

/* Before anything was sent the limit is a status. */
static void test_time_limit_in_the_queue(void **state) {
    (void)state;
    setup c = {.model = "examples/voice", .threads = 2, .sets = {"talker.max_num_seqs=1"},
               .n_sets = 1};
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.outbox = 2048;
    served s;
    served_open(&s, &c, &o);
    int fd = dial_slowly(s.port);
    char first[1];
    post(fd, "{" LONG ", \"stream\": true}");
    assert_int_equal(read_some(fd, first, 1, 5000), 1);
    reply r = http_ask(s.port, "POST", SPEECH, "{" LONG ", \"timeout\": 0.01}");
    assert_error(&r, 504, NULL);
    close(fd);
    wait_idle(&s, 5);
    served_close(&s);
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Until the process has nothing to do: the stages have made what they may make ahead. */
static void wait_still(void) {
    double cpu = 0, wall = 0;
    for (int i = 0; i < 60; i++) {
        cpu = cpu_seconds(), wall = og__clock();
        nap(0.5);
        cpu = cpu_seconds() - cpu;
        wall = og__clock() - wall;
        if (cpu < wall / 10) return;
    }
    fail_msg("still %g s of work in %g s", cpu, wall);
}

/* Requests behind one that cannot end cost nothing while they wait. The first is answered;
 * those behind it are, or the connection is closed in good order and they are asked again. */
static void test_pipelined_posts(void **state) {
    (void)state;
    enum { N = 24 };
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.outbox = 2048;
    served s;
    served_open(&s, NULL, &o);
    int fd = dial_slowly(s.port);
    for (int i = 0; i < N; i++)
        post(fd, i == 0 ? "{" LONG ", \"stream\": true}" : SHORT);
    wait_still();
    reply r = read_reply(fd, "POST");
    assert_int_equal(r.status, 200);
    assert_false(r.cut);
    assert_non_null(strstr(r.body, "speech.audio.done"));
    reply_free(&r);
    int answered = 1;
    for (; answered < N && !is_closed_now(fd); answered++) {
        r = read_reply(fd, "POST");
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
    close(fd);
    for (; answered < N; answered += 8) { /* as a client does that wants the rest */
        r = http_ask(s.port, "POST", SPEECH, SHORT);
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
    served_close(&s);
}

/* The same with requests that have no body, and both kinds mixed. */
static void test_pipelined_mixed(void **state) {
    (void)state;
    served s;
    served_open(&s, NULL, NULL);
    int fd = dial(s.port);
    for (int i = 0; i < 50; i++) send_text(fd, "GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    for (int i = 0; i < 50; i++) {
        reply r = read_reply(fd, "GET");
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
    static const char both[] = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
                               "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
                               "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}";
    for (int i = 0; i < 8; i++) {
        int two = dial(s.port);
        send_text(two, both);
        reply r = read_reply(two, "GET");
        assert_int_equal(r.status, 200);
        reply_free(&r);
        assert_true(is_closed(two, 5000));
        close(two);
        r = ask_on(fd, "POST", SPEECH, NULL, "{}", 2); /* not in a hurry: all are answered */
        assert_error(&r, 400, "input");
    }
    close(fd);
    served_close(&s);
}

/* A client that never reads, and whose next answer cannot even begin, is let go. */
static void test_answers_that_cannot_begin(void **state) {
    (void)state;
    static const char get[] = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.stall_timeout = 1.2;
    o.outbox = 2048;
    served s;
    served_open(&s, NULL, &o);
    int fd = dial_slowly(s.port);
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    while (poll(&room, 1, 300) == 1 && room.revents == POLLOUT)
        if (send(fd, get, sizeof get - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) break;
    wait_still();
    nap(1);
    char buf[4096];
    ssize_t n;
    while ((n = read_some(fd, buf, sizeof buf, 5000)) > 0) continue;
    assert_int_equal(n, 0);
    close(fd);
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
    int fd = dial_slowly(s.port);
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
    do {
        n = read_some(fd, more, sizeof more, 5000);
        if (n > 0) og_str_addn(&all, more, (size_t)n);
    } while (n > 0 && memcmp(all.data + all.len - 5, "0\r\n\r\n", 5) != 0);
    assert_true(n > 0);
    og_str_free(&all);
    close(fd);
    assert_int_equal(og_server_wait(s.server), 0);
    served_close(&s);
}

/* A lost device: what is under way is finished, health says why, and the owner is told. */
static void test_break(void **state) {
    (void)state;
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.outbox = 2048;
    served s;
    served_open(&s, NULL, &o);
    int fd = dial_slowly(s.port);
    char first[1];
    post(fd, "{" LONG ", \"stream\": true}");
    assert_int_equal(read_some(fd, first, 1, 5000), 1);
    og_server_break(s.server, "the card fell off");
    reply r = http_ask(s.port, "GET", "/health", NULL);
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.body, "\"broken\""));
    assert_non_null(strstr(r.body, "the card fell off"));
    reply_free(&r);
    close(fd);
    assert_int_equal(og_server_wait(s.server), OG_EDEVICE);
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
        cmocka_unit_test(test_time_limit_in_the_queue),
        cmocka_unit_test(test_pipelined_posts),
        cmocka_unit_test(test_pipelined_mixed),
        cmocka_unit_test(test_answers_that_cannot_begin),
        cmocka_unit_test(test_b080_client_that_does_not_read),
        cmocka_unit_test(test_b073_stage_fails_in_the_middle),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_break),
        cmocka_unit_test(test_destroy_under_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
