/* Hot reload over HTTP: what is answered, what is logged, and that no request is lost. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/run/reload.h"
#include "tests/serve/serve_rig.h"

#define SPEECH "/v1/audio/speech"
#define BODY                                                                              \
    "{\"input\": \"Good morning.\", \"voice\": \"rms\", \"seed\": 7, "                      \
    "\"response_format\": \"pcm\"}"
#define CLIENTS 20
#ifdef __SANITIZE_THREAD__
#define RELOADS 6 /* networks are slow there */
#else
#define RELOADS 20
#endif

static const char short_one[] = "stages:\n  - {stage_id: 0, max_num_seqs: 4, "
                                "default_sampling_params: {max_tokens: 6}}\n";
static const char long_one[] = "stages:\n  - {stage_id: 0, max_num_seqs: 4, num_replicas: 2, "
                               "default_sampling_params: {max_tokens: 9, temperature: 1.2}}\n";
static const char bad_one[] = "stages:\n  - {stage_id: 0, max_num_seqs: many}\n";
static const char half_one[] = "stages:\n  - {stage_id: 0, max_num_";
static const char refused_one[] = "stages:\n  - {stage_id: 0, max_num_seqs: 4, max_model_len: 77, "
                                  "default_sampling_params: {max_tokens: 6}}\n";

typedef struct live {
    served served;
    char path[64];
    og_plan_options options;
    const char *pipelines, *lua;
    pthread_mutex_t mu;
    og_str log;
} live;

static void note_line(void *arg, const char *line) {
    live *s = arg;
    pthread_mutex_lock(&s->mu);
    og_str_addf(&s->log, "%s\n", line);
    pthread_mutex_unlock(&s->mu);
}

static bool has_line(live *s, const char *part) {
    pthread_mutex_lock(&s->mu);
    bool hit = s->log.data && strstr(s->log.data, part);
    pthread_mutex_unlock(&s->mu);
    return hit;
}

/* In place: a reader may see half of it. */
static void write_over(live *s, const char *text) {
    FILE *f = fopen(s->path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void save(live *s, const char *text) {
    char temp[80];
    snprintf(temp, sizeof temp, "%s.new", s->path);
    FILE *f = fopen(temp, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(rename(temp, s->path), 0);
}

static void live_open(live *s, const char *overlay, bool watch) {
    og_err err = OG_ERR_INIT;
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->mu, NULL);
    strcpy(s->path, "/tmp/og_serve_XXXXXX");
    int fd = mkstemp(s->path);
    assert_true(fd >= 0);
    close(fd);
    save(s, overlay);
    s->pipelines = OG_SOURCE_DIR "/pipelines";
    s->lua = OG_SOURCE_DIR "/scripts/lua";
    s->options = (og_plan_options)OG_PLAN_OPTIONS_INIT;
    s->options.pipeline = "qwen3_tts";
    s->options.model = OG_SOURCE_DIR "/examples/voice";
    s->options.deploy = s->path;
    s->options.pipeline_dirs = &s->pipelines;
    s->options.n_pipeline_dirs = 1;
    s->options.script_dirs = &s->lua;
    s->options.n_script_dirs = 1;
    s->options.threads = 1;
    if (og_plan_build(&s->options, 0, NULL, &s->served.rig.plan, &err) < 0) fail_msg("%s", err.msg);
    if (og_engine_create(s->served.rig.plan, NULL, &s->served.rig.engine, &err) < 0)
        fail_msg("%s", err.msg);
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.log = note_line;
    o.log_arg = s;
    s->served.fd = og_listen("127.0.0.1", 0, &s->served.port, &err);
    assert_true(s->served.fd >= 0);
    if (og_server_create(&o, s->served.fd, &s->served.server, &err) < 0) fail_msg("%s", err.msg);
    og_serve_model m = {
        .name = "demo", .engine = s->served.rig.engine, .options = &s->options, .watch = watch};
    if (og_server_add(s->served.server, &m, &err) < 0) fail_msg("%s", err.msg);
    og_server_ready(s->served.server);
}

static void live_close(live *s) {
    served_close(&s->served);
    unlink(s->path);
    og_str_free(&s->log);
    pthread_mutex_destroy(&s->mu);
}

static json_t *reload(live *s, int status) {
    reply r = http_ask(s->served.port, "POST", "/v1/reload", "{}");
    if (r.status != status) fail_msg("status %d, not %d: %.400s", r.status, status, r.body);
    json_t *j = json_of(&r);
    reply_free(&r);
    return j;
}

static const char *outcome_of(const json_t *j) {
    return json_string_value(json_object_get(j, "outcome"));
}

static json_t *graph_of(live *s) {
    reply r = http_ask(s->served.port, "GET", "/v1/graph/demo", NULL);
    assert_int_equal(r.status, 200);
    json_t *j = json_of(&r);
    reply_free(&r);
    return j;
}

/* ---- what is answered ------------------------------------------------------------------- */

static void test_outcomes_and_diffs(void **state) {
    (void)state;
    live s;
    live_open(&s, short_one, false);
    json_t *j = reload(&s, 200);
    assert_string_equal(outcome_of(j), "same");
    json_decref(j);
    save(&s, long_one);
    j = reload(&s, 200);
    json_t *m = json_array_get(json_object_get(j, "models"), 0);
    json_t *changes = json_object_get(m, "changes"), *change;
    bool tokens = false;
    size_t i;
    json_array_foreach(changes, i, change) {
        const char *path = json_string_value(json_object_get(change, "path"));
        tokens |= !strcmp(path, "talker.default_sampling_params.max_tokens");
    }
    assert_true(tokens);
    assert_int_equal(json_integer_value(json_object_get(m, "generation")), 2);
    json_decref(j);
    assert_true(has_line(&s, "reload model=demo cause=\"POST /v1/reload\" outcome="));
    assert_true(has_line(&s, "max_tokens: 6 -> 9"));
    save(&s, bad_one);
    j = reload(&s, 422);
    assert_string_equal(outcome_of(j), "invalid");
    const char *text = json_string_value(json_object_get(json_object_get(j, "error"), "message"));
    assert_non_null(strstr(text, ":2:"));
    json_decref(j);
    save(&s, refused_one);
    j = reload(&s, 409);
    assert_string_equal(outcome_of(j), "refused");
    json_decref(j);
    j = graph_of(&s);
    m = json_array_get(json_object_get(j, "models"), 0);
    assert_int_equal(json_integer_value(json_object_get(m, "generation")), 2);
    json_t *reloads = json_object_get(json_object_get(m, "reload"), "reloads");
    assert_int_equal(json_array_size(reloads), 3);
    assert_string_equal(outcome_of(json_array_get(reloads, 0)), "refused");
    json_decref(j);
    live_close(&s);
}

static void test_bodies_of_reload(void **state) {
    (void)state;
    live s;
    live_open(&s, short_one, false);
    reply r = http_ask(s.served.port, "POST", "/v1/reload", "{\"model\": \"other\"}");
    assert_error(&r, 404, "model");
    r = http_ask(s.served.port, "POST", "/v1/reload", "{\"model\": 3}");
    assert_error(&r, 400, "model");
    r = http_ask(s.served.port, "POST", "/v1/reload", "{");
    assert_error(&r, 400, NULL);
    r = http_ask(s.served.port, "POST", "/v1/reload", "{\"model\": \"demo\"}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    r = http_ask(s.served.port, "POST", "/v1/reload", NULL);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    r = http_ask(s.served.port, "GET", "/v1/reload", NULL);
    assert_error(&r, 405, NULL);
    live_close(&s);
}

static void test_without_options_there_is_no_reload(void **state) {
    (void)state;
    served s;
    served_open(&s, NULL, NULL);
    reply r = http_ask(s.port, "POST", "/v1/reload", "{}");
    assert_error(&r, 409, NULL);
    og_server_reload(s.server);
    served_close(&s);
}

/* ---- by itself, and by a signal ----------------------------------------------------------- */

static void wait_line(live *s, const char *part) {
    for (int i = 0; i < 2000 && !has_line(s, part); i++) nap(0.01);
    if (!has_line(s, part)) fail_msg("no line with '%s' in\n%s", part, s->log.data);
}

static void test_saved_files_and_signals(void **state) {
    (void)state;
    live s;
    live_open(&s, short_one, true);
    save(&s, "stages:\n  - {stage_id: 0, max_num_seqs: 3, "
             "default_sampling_params: {max_tokens: 6}}\n");
    wait_line(&s, "cause=\"a file was saved\" outcome=live");
    write_over(&s, half_one);
    wait_line(&s, "outcome=invalid");
    og_server_reload(s.served.server);
    wait_line(&s, "cause=\"SIGHUP\" outcome=invalid");
    save(&s, "stages:\n  - {stage_id: 0, max_num_seqs: 2, "
             "default_sampling_params: {max_tokens: 6}}\n");
    wait_line(&s, "max_num_seqs: 3 -> 2");
    og_server_reload(s.served.server);
    wait_line(&s, "cause=\"SIGHUP\" outcome=same");
    live_close(&s);
}

/* ---- under load ----------------------------------------------------------------------------- */

typedef struct load {
    live *s;
    reply solo[2]; /* of the two settings, alone */
    atomic_bool stop;
    atomic_int done, lost, wrong;
} load;

static bool same_body(const reply *a, const reply *b) {
    return a->n == b->n && !memcmp(a->body, b->body, a->n);
}

static void *client_main(void *arg) {
    load *l = arg;
    int fd = dial(l->s->served.port);
    do {
        reply r = ask_on(fd, "POST", SPEECH, NULL, BODY, strlen(BODY));
        if (r.status != 200 || r.cut)
            atomic_fetch_add(&l->lost, 1);
        else if (!same_body(&r, &l->solo[0]) && !same_body(&r, &l->solo[1]))
            atomic_fetch_add(&l->wrong, 1);
        atomic_fetch_add(&l->done, 1);
        reply_free(&r);
    } while (!atomic_load(&l->stop));
    close(fd);
    return NULL;
}

static reply alone(live *s, const char *overlay) {
    save(s, overlay);
    json_decref(reload(s, 200));
    reply r = http_ask(s->served.port, "POST", SPEECH, BODY);
    assert_int_equal(r.status, 200);
    return r;
}

static void reload_once(live *s, int i) {
    static const char *const texts[] = {short_one, bad_one, long_one, half_one, refused_one};
    static const int statuses[] = {200, 422, 200, 422, 409};
    if (texts[i % 5] == half_one)
        write_over(s, half_one);
    else
        save(s, texts[i % 5]);
    json_decref(reload(s, statuses[i % 5]));
    nap(0.02);
}

static void test_no_request_is_lost(void **state) {
    (void)state;
    live s;
    live_open(&s, short_one, true);
    load l = {.s = &s};
    l.solo[1] = alone(&s, long_one);
    l.solo[0] = alone(&s, short_one);
    assert_false(same_body(&l.solo[0], &l.solo[1]));
    pthread_t threads[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, client_main, &l), 0);
    for (int i = 0; i < RELOADS; i++) reload_once(&s, i);
    atomic_store(&l.stop, true);
    for (int i = 0; i < CLIENTS; i++) pthread_join(threads[i], NULL);
    assert_true(atomic_load(&l.done) >= CLIENTS);
    assert_int_equal(atomic_load(&l.lost), 0);
    assert_int_equal(atomic_load(&l.wrong), 0);
    wait_idle(&s.served, 20);
    reply r = http_ask(s.served.port, "GET", "/health", NULL);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    reply_free(&l.solo[0]);
    reply_free(&l.solo[1]);
    live_close(&s);
}

/* The way down while reloads wait: each is answered. */
static void test_ends_while_reloads_wait(void **state) {
    (void)state;
    live s;
    int fds[8];
    live_open(&s, short_one, true);
    for (int i = 0; i < 8; i++) {
        fds[i] = dial(s.served.port);
        send_text(fds[i], "POST /v1/reload HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}");
    }
    og_server_drain(s.served.server);
    assert_int_equal(og_server_wait(s.served.server), 0);
    for (int i = 0; i < 8; i++) close(fds[i]);
    live_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outcomes_and_diffs),
        cmocka_unit_test(test_bodies_of_reload),
        cmocka_unit_test(test_without_options_there_is_no_reload),
        cmocka_unit_test(test_saved_files_and_signals),
        cmocka_unit_test(test_no_request_is_lost),
        cmocka_unit_test(test_ends_while_reloads_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
