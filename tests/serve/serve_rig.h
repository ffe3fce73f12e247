/* A server in the test's own process, with the demo voice behind it, on a free port. Include
 * cmocka.h before this header. */
#ifndef OG_TESTS_SERVE_RIG_H
#define OG_TESTS_SERVE_RIG_H

#include <time.h>

#include "graph/serve/serve.h"
#include "tests/run/rig.h"
#include "tests/serve/client.h"

typedef struct served {
    rig rig;
    og_server *server;
    int fd, port;
} served;

/* max_queue 0: the engine's own. */
RIG_UNUSED static void served_open_queue(served *s, const setup *c, const og_serve_opts *o,
                                         int max_queue) {
    setup demo = {.model = "examples/voice", .threads = 2, .sampled = true};
    og_err err = OG_ERR_INIT;
    rig_open(&s->rig, c ? c : &demo);
    og_engine_opts eo = {.max_queue = max_queue};
    og_engine_destroy(s->rig.engine);
    if (og_engine_create(s->rig.plan, &eo, &s->rig.engine, &err) < 0) fail_msg("%s", err.msg);
    og_serve_opts opts = o ? *o : (og_serve_opts)OG_SERVE_OPTS_INIT;
    s->fd = og_listen("127.0.0.1", 0, &s->port, &err);
    if (s->fd < 0) fail_msg("%s", err.msg);
    if (og_server_create(&opts, s->fd, &s->server, &err) < 0) fail_msg("%s", err.msg);
    const char *alias = "tts-1";
    og_serve_model m = {
        .name = "demo", .aliases = &alias, .n_aliases = 1, .engine = s->rig.engine};
    if (og_server_add(s->server, &m, &err) < 0) fail_msg("%s", err.msg);
    og_server_ready(s->server);
}

RIG_UNUSED static void served_open(served *s, const setup *c, const og_serve_opts *o) {
    served_open_queue(s, c, o, 0);
}

RIG_UNUSED static void served_close(served *s) {
    og_server_destroy(s->server);
    close(s->fd);
    og_engine_stats st;
    og_engine_get_stats(s->rig.engine, &st);
    assert_int_equal(st.requests, 0);
    assert_int_equal(st.buffer_bytes, 0);
    rig_close(&s->rig);
}

RIG_UNUSED static void nap(double seconds) {
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

/* Until the engine has no request left. */
RIG_UNUSED static void wait_idle(served *s, double seconds) {
    og_engine_stats st;
    for (int i = 0; i < (int)(seconds * 100); i++) {
        og_engine_get_stats(s->rig.engine, &st);
        if (st.requests == 0) return;
        nap(0.01);
    }
    fail_msg("%d requests are left", st.requests);
}

#endif
