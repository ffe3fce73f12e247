/* Reloads under load with the real stages: whatever is loaded while it runs, a request's
 * samples are those of its own settings, alone. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "graph/run/reload.h"

#define SETTINGS 4
#define TEXTS 3
#define CLIENTS 3
#ifdef __SANITIZE_THREAD__
#define RELOADS 12 /* networks are slow there */
#else
#define RELOADS 100
#endif

/* Settings, each with a place for the replicas of the talker. */
static const char *const overlays[SETTINGS] = {
    "stages:\n  - {stage_id: 0, max_num_seqs: 4, num_replicas: %d, default_sampling_params: "
    "{max_tokens: 8}}\n",
    "stages:\n  - {stage_id: 0, max_num_seqs: 2, num_replicas: %d, default_sampling_params: "
    "{max_tokens: 10, temperature: 1.1, top_k: 50}}\n",
    "async_chunk: false\n"
    "stages:\n  - {stage_id: 0, max_num_seqs: 4, num_replicas: %d, default_sampling_params: "
    "{max_tokens: 9}, subtalker_sampling_params: {temperature: 1.3}}\n",
    "connectors:\n  c: {name: SharedMemoryConnector, extra: {codec_chunk_frames: 3}}\n"
    "stages:\n  - {stage_id: 0, max_num_seqs: 3, num_replicas: %d, default_sampling_params: "
    "{max_tokens: 12, repetition_penalty: 1.2}, output_connectors: {to_stage_1: c}}\n"
    "  - {stage_id: 1, input_connectors: {from_stage_0: c}}\n",
};
static const char *const texts[TEXTS] = {"Good morning.", "The cat sat on the mat.", "Yes."};

typedef struct samples {
    float *x;
    int64_t n;
} samples;

typedef struct bench {
    char path[64];
    og_plan_options o;
    const char *pipelines, *lua;
    og_engine *engine;
    og_reloader *reloader;
    samples solo[SETTINGS][TEXTS];
} bench;

static void save(const bench *b, int setting, int replicas) {
    char temp[80];
    snprintf(temp, sizeof temp, "%s.new", b->path);
    FILE *f = fopen(temp, "w");
    assert_non_null(f);
    fprintf(f, overlays[setting], replicas);
    fclose(f);
    assert_int_equal(rename(temp, b->path), 0);
}

static void start(bench *b, int setting) {
    og_plan *plan = NULL;
    og_err err = OG_ERR_INIT;
    save(b, setting, 1);
    if (og_plan_build(&b->o, 0, NULL, &plan, &err) < 0) fail_msg("%s", err.msg);
    if (og_engine_create(plan, NULL, &b->engine, &err) < 0) fail_msg("%s", err.msg);
    og_plan_destroy(plan);
}

/* How it ended. */
static og_event_kind speak(og_engine *e, int text, samples *out, int *generation) {
    json_t *f = json_pack("{s:s,s:s,s:s,s:b}", "text", texts[text], "voice", "rms",
                          "language", "English", "non_streaming_mode", 1);
    og_request_desc d = {.fields = f, .has_seed = 1, .seed = (uint64_t)(11 + text)};
    og_request_stats st;
    og_request *r = NULL;
    og_event ev;
    og_event_kind kind;
    og_err err = OG_ERR_INIT;
    memset(out, 0, sizeof *out);
    int rc = og_engine_submit(e, &d, &r, &err);
    json_decref(f);
    if (rc < 0) return OG_EVENT_ERROR;
    while ((kind = og_request_next(r, 120000, &ev)) == OG_EVENT_ITEMS) {
        int64_t k = og_tensor_present(&ev.items) ? ev.items.ne[0] : 0;
        out->x = og_realloc(out->x, (size_t)(out->n + k + 1) * sizeof *out->x);
        if (k) memcpy(out->x + out->n, ev.items.data, (size_t)k * sizeof *out->x);
        out->n += k;
    }
    if (kind == OG_EVENT_ERROR) print_error("%s\n", ev.err.msg);
    og_request_get_stats(r, &st);
    *generation = st.generation;
    og_request_free(r);
    return kind;
}

static void alone(bench *b) {
    int generation;
    for (int s = 0; s < SETTINGS; s++) {
        start(b, s);
        for (int t = 0; t < TEXTS; t++)
            assert_int_equal(speak(b->engine, t, &b->solo[s][t], &generation), OG_EVENT_DONE);
        og_engine_destroy(b->engine);
    }
}

typedef struct client {
    bench *b;
    pthread_t thread;
    atomic_bool *stop;
    int number, asked, bad;
} client;

/* Generation g has setting (g - 1) % SETTINGS. */
static void *client_main(void *arg) {
    client *c = arg;
    while (!atomic_load(c->stop)) {
        samples got;
        int text = (c->number + c->asked++) % TEXTS, g = 1;
        og_event_kind kind = speak(c->b->engine, text, &got, &g);
        const samples *want = &c->b->solo[(g - 1) % SETTINGS][text];
        c->bad += kind != OG_EVENT_DONE || got.n != want->n ||
                  memcmp(got.x, want->x, (size_t)want->n * sizeof *got.x) != 0;
        og_free(got.x);
    }
    return NULL;
}

static int64_t finished(const bench *b) {
    og_engine_stats st;
    og_engine_get_stats(b->engine, &st);
    return st.finished;
}

static void wait_for_one(const bench *b) {
    int64_t before = finished(b);
    struct timespec t = {0, 1000000};
    for (int i = 0; i < 60000 && finished(b) == before; i++) nanosleep(&t, NULL);
    assert_true(finished(b) > before);
}

static void test_b083_answers_equal_to_their_solo_run(void **state) {
    (void)state;
    bench b;
    client c[CLIENTS];
    atomic_bool stop = false;
    og_err err = OG_ERR_INIT;
    memset(&b, 0, sizeof b);
    strcpy(b.path, "/tmp/og_voice_XXXXXX");
    close(mkstemp(b.path));
    b.pipelines = OG_SOURCE_DIR "/pipelines";
    b.lua = OG_SOURCE_DIR "/scripts/lua";
    b.o = (og_plan_options)OG_PLAN_OPTIONS_INIT;
    b.o.pipeline = "qwen3_tts";
    b.o.model = OG_SOURCE_DIR "/examples/voice";
    b.o.deploy = b.path;
    b.o.pipeline_dirs = &b.pipelines, b.o.n_pipeline_dirs = 1;
    b.o.script_dirs = &b.lua, b.o.n_script_dirs = 1;
    b.o.threads = 2;
    alone(&b);
    start(&b, 0);
    assert_int_equal(og_reloader_create(b.engine, &b.o, NULL, NULL, &b.reloader, &err), 0);
    for (int i = 0; i < CLIENTS; i++) {
        c[i] = (client){.b = &b, .stop = &stop, .number = i};
        pthread_create(&c[i].thread, NULL, client_main, &c[i]);
    }
    for (int g = 2; g <= 1 + RELOADS; g++) {
        save(&b, (g - 1) % SETTINGS, 1 + g / 4 % 3);
        if (og_reloader_run(b.reloader, "test", NULL, &err) < 0) fail_msg("%s", err.msg);
        if (g % 3 == 0) wait_for_one(&b);
    }
    atomic_store(&stop, true);
    int asked = 0;
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(c[i].thread, NULL);
        assert_int_equal(c[i].bad, 0);
        asked += c[i].asked;
    }
    og_engine_stats st;
    struct timespec t = {0, 1000000};
    do {
        nanosleep(&t, NULL);
        og_engine_get_stats(b.engine, &st);
    } while (st.leaving);
    print_message("%d answers over %d reloads\n", asked, RELOADS);
    assert_int_equal(st.generation, 1 + RELOADS);
    assert_int_equal(st.failed, 0);
    assert_int_equal(st.finished, asked);
    assert_int_equal(st.requests + st.queued + (int)st.buffer_bytes, 0);
    og_reloader_destroy(b.reloader);
    og_engine_destroy(b.engine);
    for (int s = 0; s < SETTINGS; s++)
        for (int k = 0; k < TEXTS; k++) og_free(b.solo[s][k].x);
    unlink(b.path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b083_answers_equal_to_their_solo_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
