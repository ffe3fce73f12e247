/* A stub pipeline with an overlay file that tests rewrite. Include cmocka.h before this. */
#ifndef OG_TEST_RELOAD_RIG_H
#define OG_TEST_RELOAD_RIG_H

#include <stdarg.h>
#include <time.h>

#include "graph/run/reload.h"
#include "tests/run/stub.h"

#define LIVE_UNUSED __attribute__((unused))
#define LIVE_TOLD 64

typedef struct live {
    char dir[64], pipeline[128], overlay[128];
    const char *dirs[1];
    og_plan_options opts;
    og_engine *engine;
    og_reloader *reloader;
    pthread_mutex_t mu; /* what the reloader told */
    og_reload_outcome told[LIVE_TOLD];
    char text[4096]; /* of the last */
    int n_told;
} live;

LIVE_UNUSED static void live_told(void *arg, const og_reload_report *r) {
    live *s = arg;
    pthread_mutex_lock(&s->mu);
    if (s->n_told < LIVE_TOLD) s->told[s->n_told++] = r->outcome;
    snprintf(s->text, sizeof s->text, "%s", r->text);
    pthread_mutex_unlock(&s->mu);
}

LIVE_UNUSED static int live_n_told(live *s) {
    pthread_mutex_lock(&s->mu);
    int n = s->n_told;
    pthread_mutex_unlock(&s->mu);
    return n;
}

/* As editors do: a file of another name, then a rename. */
LIVE_UNUSED static void live_save(const char *path, const char *fmt, ...) {
    char text[2048], temp[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(temp, sizeof temp, "%s.new", path);
    FILE *f = fopen(temp, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(rename(temp, path), 0);
}

LIVE_UNUSED static void live_open(live *s, const char *overlay) {
    char yaml[4096];
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->mu, NULL);
    strcpy(s->dir, "/tmp/og_reload_XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->pipeline, sizeof s->pipeline, "%s/stub.yaml", s->dir);
    snprintf(s->overlay, sizeof s->overlay, "%s/overlay.yaml", s->dir);
    snprintf(yaml, sizeof yaml, "%sstub_voc}\nedges:\n%s", stub_fields, stub_plain);
    stub_write(s->dir, "stub.yaml", yaml);
    stub_write(s->dir, "stub.lua", stub_lua);
    live_save(s->overlay, "%s", overlay);
    s->dirs[0] = s->dir;
    s->opts = (og_plan_options)OG_PLAN_OPTIONS_INIT;
    s->opts.pipeline = s->pipeline;
    s->opts.deploy = s->overlay;
    s->opts.script_dirs = s->dirs;
    s->opts.n_script_dirs = 1;
    s->opts.threads = 1;
    s->opts.registry = (og_plan_registry){stub_archs, stub_kinds, 5};
    og_plan *plan = NULL;
    og_err err = OG_ERR_INIT;
    if (og_plan_build(&s->opts, 0, NULL, &plan, &err) < 0) fail_msg("%s", err.msg);
    if (og_engine_create(plan, NULL, &s->engine, &err) < 0) fail_msg("%s", err.msg);
    og_plan_destroy(plan); /* the engine has its own reference */
    assert_int_equal(og_reloader_create(s->engine, &s->opts, live_told, s, &s->reloader, &err),
                     0);
}

LIVE_UNUSED static void live_close(live *s) {
    char command[96];
    og_reloader_destroy(s->reloader);
    og_engine_destroy(s->engine);
    assert_int_equal(atomic_load(&stub_nodes), 0);
    pthread_mutex_destroy(&s->mu);
    snprintf(command, sizeof command, "rm -rf %s", s->dir);
    assert_int_equal(system(command), 0);
}

LIVE_UNUSED static og_reload_outcome live_reload(live *s) {
    og_reload_outcome outcome;
    og_err err = OG_ERR_INIT;
    int rc = og_reloader_run(s->reloader, "test", &outcome, &err);
    assert_int_equal(rc == 0, outcome <= OG_RELOADED_DONE);
    return outcome;
}

LIVE_UNUSED static og_engine_stats live_stats(live *s) {
    og_engine_stats st;
    og_engine_get_stats(s->engine, &st);
    return st;
}

LIVE_UNUSED static void live_nap(void) {
    struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
}

/* Wait until an expression holds; 20 s are for ever. */
#define live_until(expr)                                                                  \
    do {                                                                                  \
        int left_ = 20000;                                                                \
        while (!(expr) && left_-- > 0) live_nap();                                        \
        if (!(expr)) fail_msg("%s did not come true", #expr);                             \
    } while (0)

/* The newest record's member, as text; the caller's buffer. */
LIVE_UNUSED static const char *live_last(live *s, const char *key, char *buf, size_t size) {
    json_t *st = og_engine_reload_status(s->engine);
    assert_non_null(st);
    json_t *v = json_object_get(json_array_get(json_object_get(st, "reloads"), 0), key);
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    snprintf(buf, size, "%s", text ? text : "");
    free(text);
    json_decref(st);
    return buf;
}

LIVE_UNUSED static void live_assert_drained(live *s) {
    live_until(live_stats(s).leaving == 0);
    og_engine_stats st = live_stats(s);
    assert_int_equal(st.requests, 0);
    assert_int_equal(st.queued, 0);
    assert_int_equal(st.buffer_bytes, 0);
    assert_int_equal(atomic_load(&stub_in_use), 0);
}

LIVE_UNUSED static og_request *live_submit(live *s, int n, int stamp, int mode) {
    og_err err = OG_ERR_INIT;
    og_request *r = NULL;
    json_t *f = json_pack("{s:i,s:i,s:i}", "n", n, "stamp", stamp, "mode", mode);
    og_request_desc d = {.fields = f, .has_seed = 1, .seed = 1};
    if (og_engine_submit(s->engine, &d, &r, &err) < 0) fail_msg("%s", err.msg);
    json_decref(f);
    return r;
}

/* Read to the end: every sample is that of its token, all of one generation, which is the one
 * that the request says it has. Returns how many were wrong. */
LIVE_UNUSED static int live_read(og_request *r, int n, int stamp, int per_generation) {
    og_event ev;
    og_event_kind kind;
    og_request_stats st;
    int64_t at = 0;
    int bad = 0;
    og_request_get_stats(r, &st);
    int base = st.generation * per_generation + stamp * 1000;
    while ((kind = og_request_next(r, 20000, &ev)) == OG_EVENT_ITEMS) {
        const float *x = ev.items.data;
        int64_t k = og_tensor_present(&ev.items) ? ev.items.ne[0] : 0;
        for (int64_t i = 0; i < k; i++, at++)
            bad += (int)x[i] != base + (int)(at / STUB_SPI);
    }
    return bad + (kind != OG_EVENT_DONE) + (at != (int64_t)n * STUB_SPI);
}

/* Let sources make single steps until n requests were admitted ever: an executor that stands
 * at its gate answers nobody. */
LIVE_UNUSED static void live_admit(live *s, int n) {
    stub_gate *g = &stub_source_gate;
    for (int i = 0; i < 20000 && live_stats(s).admitted < n; i++) {
        pthread_mutex_lock(&g->mu);
        g->let = g->waiting > 0;
        pthread_cond_broadcast(&g->cond);
        pthread_mutex_unlock(&g->mu);
        live_nap();
    }
    assert_int_equal(live_stats(s).admitted, n);
}

typedef struct live_client {
    live *s;
    pthread_t thread;
    int number, per_generation;
    atomic_bool *stop;
    int asked, bad;
} live_client;

LIVE_UNUSED static void *live_client_main(void *arg) {
    live_client *c = arg;
    while (!atomic_load(c->stop)) {
        int stamp = 1 + c->number * 10 + c->asked % 10, n = 1 + (c->asked * 13) % 40;
        og_request *r = live_submit(c->s, n, stamp, STUB_OK);
        c->bad += live_read(r, n, stamp, c->per_generation);
        og_request_free(r);
        c->asked++;
    }
    return NULL;
}

#define LIVE_CLIENTS 4

typedef struct live_load {
    live_client clients[LIVE_CLIENTS];
    atomic_bool stop;
} live_load;

LIVE_UNUSED static void live_load_start(live *s, live_load *l, int per_generation) {
    atomic_init(&l->stop, false);
    for (int i = 0; i < LIVE_CLIENTS; i++) {
        l->clients[i] = (live_client){
            .s = s, .number = i, .per_generation = per_generation, .stop = &l->stop};
        pthread_create(&l->clients[i].thread, NULL, live_client_main, &l->clients[i]);
    }
}

/* Nothing was lost, and no sample was wrong. Returns the requests. */
LIVE_UNUSED static int live_load_stop(live *s, live_load *l) {
    int asked = 0;
    atomic_store(&l->stop, true);
    for (int i = 0; i < LIVE_CLIENTS; i++) {
        pthread_join(l->clients[i].thread, NULL);
        assert_int_equal(l->clients[i].bad, 0);
        asked += l->clients[i].asked;
    }
    og_engine_stats st = live_stats(s);
    assert_int_equal(st.failed, 0);
    assert_int_equal(st.finished, asked);
    return asked;
}

#endif
