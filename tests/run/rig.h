/* A plan, an engine and requests read to their end, for tests of whole pipelines against
 * goldens and against each other. Include cmocka.h before this header. */
#ifndef OG_TEST_RIG_H
#define OG_TEST_RIG_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/run/engine.h"
#include "tests/support/golden.h"

#define RIG_UNUSED __attribute__((unused))

/* Waveform: share of the golden's peak. The two sides sum in different orders. */
#define WAV_TOLERANCE 1e-4

enum { SETS = 6 };

typedef struct rig {
    og_diags *diags;
    og_plan *plan;
    og_engine *engine;
} rig;

typedef struct setup {
    const char *pipeline; /* NULL: qwen3_tts */
    const char *model;    /* under the source tree */
    int max_tokens, threads;
    bool sampled;
    const char *sets[SETS];
    int n_sets;
    const char *backend;
    bool same_bits; /* answers are compared bit by bit, also on a device with a faster way */
} setup;

RIG_UNUSED static void rig_open(rig *s, const setup *c) {
    memset(s, 0, sizeof *s);
    char model[512];
    snprintf(model, sizeof model, "%s/%s", OG_SOURCE_DIR, c->model);
    const char *pipelines = OG_SOURCE_DIR "/pipelines", *lua = OG_SOURCE_DIR "/scripts/lua";
    og_plan_options o = OG_PLAN_OPTIONS_INIT;
    o.pipeline = c->pipeline ? c->pipeline : "qwen3_tts";
    o.model = model;
    o.pipeline_dirs = &pipelines;
    o.n_pipeline_dirs = 1;
    o.script_dirs = &lua;
    o.n_script_dirs = 1;
    const char *backend = getenv("OG_TEST_BACKEND"); /* scripts/gpu-check sets it */
    o.backend = c->backend ? c->backend : backend ? backend : "cpu";
    o.greedy = !c->sampled;
    o.max_tokens = c->max_tokens;
    o.threads = c->threads;
    const char *sets[SETS + 1];
    memcpy(sets, c->sets, sizeof c->sets);
    o.sets = sets;
    o.n_sets = c->n_sets;
    if (c->same_bits) sets[o.n_sets++] = "deterministic=true";
    s->diags = og_diags_create();
    og_err err = OG_ERR_INIT;
    if (og_plan_build(&o, 0, s->diags, &s->plan, &err) < 0) {
        og_str text = OG_STR_INIT;
        og_diags_print(s->diags, &text);
        fail_msg("%s\n%s", err.msg, text.data ? text.data : "");
    }
    if (og_engine_create(s->plan, NULL, &s->engine, &err) < 0) fail_msg("%s", err.msg);
}

RIG_UNUSED static void rig_close(rig *s) {
    og_engine_destroy(s->engine);
    og_plan_destroy(s->plan);
    og_diags_destroy(s->diags);
}

/* A request with its tap on the codes, and what came of it. */
typedef struct answer {
    og_request *r;
    float *wav;
    int64_t n;
    og_tensor codes;
} answer;

RIG_UNUSED static void ask(rig *s, answer *a, const json_t *fields, uint64_t seed) {
    memset(a, 0, sizeof *a);
    og_request_tap tap = {"talker", "codes"};
    og_request_desc d = {
        .fields = fields, .has_seed = 1, .seed = seed, .taps = &tap, .n_taps = 1};
    og_err err = OG_ERR_INIT;
    if (og_engine_submit(s->engine, &d, &a->r, &err) < 0) fail_msg("%s", err.msg);
}

RIG_UNUSED static void read_answer(answer *a) {
    og_event ev;
    og_event_kind kind;
    while ((kind = og_request_next(a->r, 120000, &ev)) == OG_EVENT_ITEMS) {
        int64_t k = og_tensor_present(&ev.items) ? ev.items.ne[0] : ev.gap;
        a->wav = og_realloc(a->wav, (size_t)(a->n + k) * sizeof *a->wav + 1);
        if (og_tensor_present(&ev.items))
            memcpy(a->wav + a->n, ev.items.data, (size_t)k * sizeof *a->wav);
        else if (k)
            memset(a->wav + a->n, 0, (size_t)k * sizeof *a->wav);
        a->n += k;
    }
    if (kind == OG_EVENT_ERROR) fail_msg("%s", ev.err.msg);
    assert_int_equal(kind, OG_EVENT_DONE);
    assert_int_equal(og_request_tapped(a->r, 0, 0, &a->codes), 0);
}

RIG_UNUSED static void answer_free(answer *a) {
    og_free(a->wav);
    og_request_free(a->r);
}

RIG_UNUSED static void assert_same(const answer *a, const answer *b) {
    assert_int_equal(og_tensor_count(&a->codes), og_tensor_count(&b->codes));
    assert_memory_equal(a->codes.data, b->codes.data, og_tensor_bytes(&a->codes));
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->wav, b->wav, (size_t)a->n * sizeof *a->wav);
}

RIG_UNUSED static json_t *case_meta(const og_weights *g) {
    const char *text = og_weights_metadata(g, "meta_json");
    assert_non_null(text);
    json_t *meta = json_loads(text, 0, NULL);
    assert_non_null(meta);
    return meta;
}

RIG_UNUSED static json_t *case_fields(const json_t *meta) {
    static const char *const names[][2] = {{"text", "text"},
                                           {"speaker", "voice"},
                                           {"language", "language"},
                                           {"instruct", "instructions"},
                                           {"non_streaming_mode", "non_streaming_mode"}};
    json_t *f = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *v = json_object_get(meta, names[i][0]);
        if (v && !json_is_null(v)) json_object_set(f, names[i][1], v);
    }
    return f;
}

RIG_UNUSED static int case_max_tokens(const json_t *meta) {
    return (int)json_integer_value(json_object_get(meta, "max_new_tokens"));
}

RIG_UNUSED static void compare_with_golden(const char *name, const answer *a, const og_weights *g) {
    og_tensor codes = golden_get(g, "codes"), wav = golden_get(g, "wav");
    if (og_tensor_count(&codes) != og_tensor_count(&a->codes))
        fail_msg("%s: %lld frames, the reference has %lld", name, (long long)a->codes.ne[0],
                 (long long)codes.ne[0]);
    for (int64_t i = 0; i < og_tensor_count(&codes); i++)
        if (golden_i64_at(&codes, i) != ((const int32_t *)a->codes.data)[i])
            fail_msg("%s: frame %lld, group %lld differs", name, (long long)(i / codes.ne[1]),
                     (long long)(i % codes.ne[1]));
    int64_t stored = og_tensor_count(&wav);
    int64_t len = golden_has(g, "wav_len") ? golden_i64(g, "wav_len", 0) : stored;
    assert_int_equal(a->n, len);
    double peak = 0;
    for (int64_t i = 0; i < stored; i++) {
        double v = fabs((double)golden_f32_at(&wav, i));
        if (v > peak) peak = v;
    }
    double diff = golden_max_diff(&wav, a->wav, stored);
    if (!(diff <= WAV_TOLERANCE * peak))
        fail_msg("%s: waveform differs by %g, peak %g", name, diff, peak);
}

#endif
