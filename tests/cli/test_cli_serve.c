/* `omni-graph serve` as a process: it answers, is run again when it dies, and goes when told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <time.h>

#include "tests/cli/program.h"
#include "tests/serve/client.h"

static void nap(void) {
    struct timespec t = {0, 50 * 1000 * 1000};
    nanosleep(&t, NULL);
}

static child start_serve(void) {
    char *argv[] = {"omni-graph", "serve", "qwen3_tts", "--model", "examples/voice", "--port",
                    "0", "--drain-timeout", "10", NULL};
    return start_argv(binary(), argv, NULL);
}

/* What the program has said so far. */
static char *said(const child *c) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(c->err));
    return slurp_path(path, NULL);
}

static int port_of(const child *c) {
    for (int i = 0; i < 400; i++, nap()) {
        int port = 0;
        char *text = said(c), *at = strstr(text, "127.0.0.1:");
        bool there = at && strchr(at, '\n') && sscanf(at, "127.0.0.1:%d", &port) == 1;
        free(text);
        if (there) return port;
    }
    fail_msg("no port");
    return -1;
}

/* Connections wait while no worker runs; one that a dying worker had is cut. */
static void wait_healthy(int port) {
    for (int i = 0; i < 400; i++, nap()) {
        reply r = http_ask(port, "GET", "/health", NULL);
        int status = r.status;
        reply_free(&r);
        if (status == 200) return;
    }
    fail_msg("never healthy");
}

static pid_t worker_of(pid_t parent) {
    char path[64];
    int worker = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
    for (int i = 0; i < 400 && !worker; i++, nap()) {
        FILE *f = fopen(path, "r");
        if (f && fscanf(f, "%d", &worker) != 1) worker = 0;
        if (f) fclose(f);
    }
    assert_true(worker > 0);
    return worker;
}

static void test_a_worker_that_dies_is_run_again(void **state) {
    (void)state;
    child c = start_serve();
    int port = port_of(&c);
    wait_healthy(port);
    for (int i = 0; i < 2; i++) {
        pid_t old = worker_of(c.pid);
        kill(old, SIGKILL);
        for (int k = 0; k < 400 && kill(old, 0) == 0; k++) nap();
        wait_healthy(port);
        assert_int_not_equal(worker_of(c.pid), old);
    }
    reply r = http_ask(port, "POST", "/v1/audio/speech",
                       "{\"input\": \"Good morning.\", \"voice\": \"rms\"}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    kill(c.pid, SIGTERM);
    ran done = wait_for(c);
    assert_int_equal(done.code, 0);
    assert_has(done.err, "worker died of signal 9");
    assert_has(done.err, "starting it again in 0.1 s");
    assert_has(done.err, "starting it again in 0.2 s"); /* longer while it dies young */
    assert_has(done.err, "draining");
    ran_free(&done);
}

/* What is wrong from the start is not tried again. */
static void test_wrong_from_the_start(void **state) {
    (void)state;
    assert_ends(program("serve", "qwen3_tts", "--tls-cert", "a.pem", NULL), 2, "--tls-key");
    assert_ends(program("serve", "qwen3_tts", "--port", "x", NULL), 2, "port");
    assert_ends(program("serve", NULL), 2, "PIPELINE");
    ran r = program("serve", "no_such_pipeline", "--port", "0", NULL);
    assert_int_not_equal(r.code, 0);
    assert_null(strstr(r.err, "starting it again"));
    ran_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_worker_that_dies_is_run_again),
        cmocka_unit_test(test_wrong_from_the_start),
    };
    return cmocka_run_group_tests(tests, enter_source_tree, NULL);
}
