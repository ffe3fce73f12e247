/* The engine of the programs that time Qwen3-TTS: plan, start, rounds of requests. */
#include "bench/tts_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/machine.h"
#include "bench/probe.h"

#define PROMPT_ROOM 40 /* positions of the prompt below, and a few more */
#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

static int complain(const char *what, const og_err *err) {
    fprintf(stderr, "tts: %s: %s\n", what, err->msg);
    return -1;
}

/* ---- what a step has to read ---------------------------------------- */

static double number(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

/* Weights of one decoder layer, in values. */
static double layer_values(const json_t *c) {
    double d = number(c, "hidden_size"), q = number(c, "num_attention_heads");
    double kv = number(c, "num_key_value_heads"), dim = number(c, "head_dim");
    return d * dim * (2 * q + 2 * kv) + 3 * d * number(c, "intermediate_size");
}

/* Weights that one decode step streams: the talker once, the code predictor once for
 * every group but the first. Too many to stay in a cache between two passes. */
static double step_values(const json_t *talker) {
    const json_t *p = json_object_get(talker, "code_predictor_config");
    double d = number(talker, "hidden_size"), h = number(p, "hidden_size");
    double passes = number(talker, "num_code_groups") - 1;
    double pass = number(p, "num_hidden_layers") * layer_values(p) +
                  number(p, "vocab_size") * h + (h != d ? h * d : 0);
    return number(talker, "num_hidden_layers") * layer_values(talker) +
           number(talker, "vocab_size") * d + passes * pass;
}

/* ---- engine ---------------------------------------- */

static int most(const int *v, int n) {
    int max = 0;
    for (int i = 0; i < n; i++) max = v[i] > max ? v[i] : max;
    return max;
}

static int make_plan(tts_engine *b) {
    const tts_settings *s = &b->set;
    char pipelines[512], lua[512], sets[4][80];
    int slots = most(s->requests, s->n_rounds), frames = most(s->frames, s->n_rounds);
    snprintf(pipelines, sizeof pipelines, "%s/pipelines", s->root);
    snprintf(lua, sizeof lua, "%s/scripts/lua", s->root);
    snprintf(sets[0], sizeof sets[0], "talker.max_num_seqs=%d", slots);
    snprintf(sets[1], sizeof sets[1], "code2wav.max_num_seqs=%d", slots);
    snprintf(sets[2], sizeof sets[2], "talker.max_model_len=%d", frames + PROMPT_ROOM);
    snprintf(sets[3], sizeof sets[3], "talker.deterministic=true");
    const char *dirs[] = {pipelines, lua}, *list[] = {sets[0], sets[1], sets[2], sets[3]};
    og_plan_options o = OG_PLAN_OPTIONS_INIT;
    o.pipeline = "qwen3_tts";
    o.model = s->model;
    o.pipeline_dirs = &dirs[0], o.n_pipeline_dirs = 1;
    o.script_dirs = &dirs[1], o.n_script_dirs = 1;
    o.sets = list, o.n_sets = s->deterministic ? 4 : 3;
    o.backend = s->backend;
    o.dummy = true;
    o.greedy = s->greedy;
    o.max_tokens = frames + 1;
    o.threads = s->threads;
    o.registry = probe_registry();
    og_err err = OG_ERR_INIT;
    og_diags *diags = og_diags_create();
    int rc = og_plan_build(&o, 0, diags, &b->plan, &err);
    og_diags_destroy(diags);
    return rc < 0 ? complain("plan", &err) : 0;
}

int tts_open(const tts_settings *set, tts_engine *b) {
    og_err err = OG_ERR_INIT;
    *b = (tts_engine){.set = *set};
    if (make_plan(b) < 0) return -1;
    if (og_engine_create(b->plan, NULL, &b->engine, &err) < 0)
        return complain("engine", &err);
    og_engine_stats st;
    og_engine_get_stats(b->engine, &st);
    b->load_s = st.load_s;
    int talker = og_plan_find_stage(b->plan, "talker");
    b->step_bytes = 2 * step_values(b->plan->stages[talker].section);
    return 0;
}

void tts_close(tts_engine *b) {
    og_engine_destroy(b->engine);
    og_plan_destroy(b->plan);
}

int tts_memory(tts_engine *b, double *weights, double *states) {
    *weights = *states = 0;
    for (int i = 0; i < b->plan->n_stages; i++) {
        og_node_stats st;
        if (og_engine_node_stats(b->engine, i, 0, &st) < 0) return -1;
        *weights += (double)st.weight_bytes;
        *states += (double)st.state_bytes;
    }
    return 0;
}

/* ---- rounds ---------------------------------------- */

/* No two prompts are alike: a cached prefix would make the first audio look better. */
static int submit(tts_engine *b, bool codes, og_request **r) {
    static const og_request_tap tap = {"talker", "codes"};
    char text[32];
    snprintf(text, sizeof text, "%c%c morning.", LETTERS[b->n_prompts % 26],
             LETTERS[b->n_prompts / 26 % 26]);
    b->n_prompts++;
    json_t *fields = json_pack("{s:s, s:s, s:s}", "text", text, "voice", "ryan",
                               "language", "english");
    og_request_desc d = {.fields = fields, .has_seed = 1, .seed = 1};
    if (codes) d.taps = &tap, d.n_taps = d.taps_only = 1;
    og_err err = OG_ERR_INIT;
    int rc = og_engine_submit(b->engine, &d, r, &err);
    json_decref(fields);
    return rc < 0 ? complain("request", &err) : 0;
}

static int64_t drain(og_request *r) {
    og_event ev;
    og_event_kind kind;
    int64_t samples = 0;
    while ((kind = og_request_next(r, -1, &ev)) == OG_EVENT_ITEMS)
        if (og_tensor_present(&ev.items)) samples += ev.items.ne[0];
    if (kind == OG_EVENT_DONE) return samples;
    return complain("request", &ev.err);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Requests that arrive together. */
int tts_round(tts_engine *b, int n, int frames, bool codes, tts_result *out) {
    og_request *r[TTS_MAX_REQUESTS] = {NULL};
    double first[TTS_MAX_REQUESTS];
    int64_t samples = 0;
    int rc = 0;
    probe_reset(frames + 1);
    double t = machine_now();
    for (int i = 0; i < n && rc == 0; i++) rc = submit(b, codes, &r[i]);
    for (int i = 0; i < n && rc == 0; i++) {
        samples = drain(r[i]);
        if (samples < 0) rc = -1;
    }
    *out = (tts_result){.requests = n, .frames = frames, .wall = machine_now() - t};
    for (int i = 0; i < n && rc == 0; i++) {
        og_request_stats st;
        og_request_get_stats(r[i], &st);
        first[i] = st.first_output_s;
    }
    for (int i = 0; i < n; i++) og_request_free(r[i]);
    if (rc < 0) return rc;
    qsort(first, (size_t)n, sizeof *first, by_value);
    out->first_median = first[n / 2];
    out->first_worst = first[n - 1];
    out->audio = (double)samples / b->plan->responses[0].rate;
    return 0;
}

int tts_numbers(const char *text, int *v, int max) {
    int n = 0;
    for (char *end; n < TTS_MAX_ROUNDS; text = end + 1) {
        long x = strtol(text, &end, 10);
        if (end == text || x < 1 || x > max) return -1;
        v[n++] = (int)x;
        if (!*end) return n;
        if (*end != ',') return -1;
    }
    return -1;
}
