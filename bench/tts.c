/* Qwen3-TTS through the whole engine with made-up weights: how long a frame takes.
 *
 * Every request makes exactly the frames asked for, greedily. Of each number of requests
 * at once it prints the decode step (talker, code predictor, sampling: the time without
 * the vocoder), the vocoder's share, and what a client sees. The floor is the time that a
 * plain read of the step's weights takes at the best bandwidth measured in the same run;
 * its share is of the best step, so that both are of the machine's undisturbed moments. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench/machine.h"
#include "bench/probe.h"
#include "graph/run/engine.h"

#define MAX_ROUNDS 8
#define MAX_REQUESTS 64
#define CEILING_SECONDS 1.5
#define PROMPT_ROOM 40 /* positions of the prompt below, and a few more */
#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

typedef struct settings {
    const char *model, *root, *backend, *out;
    int threads, requests[MAX_ROUNDS], frames[MAX_ROUNDS], n_rounds;
} settings;

typedef struct round_result {
    int requests, frames;
    double wall, audio, first_median, first_worst; /* audio: seconds of one request */
    probe_stat decode, vocoder;
} round_result;

typedef struct bench {
    settings set;
    og_plan *plan;
    og_engine *engine;
    machine_rates before, after, ceiling;
    double load_s, peak_rss, floor_bytes;
    double weights, states; /* bytes that the nodes hold; states with the KV */
    round_result rounds[MAX_ROUNDS];
    int n_prompts;
} bench;

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

static int make_plan(bench *b) {
    const settings *s = &b->set;
    char pipelines[512], lua[512], sets[3][80];
    int slots = most(s->requests, s->n_rounds), frames = most(s->frames, s->n_rounds);
    snprintf(pipelines, sizeof pipelines, "%s/pipelines", s->root);
    snprintf(lua, sizeof lua, "%s/scripts/lua", s->root);
    snprintf(sets[0], sizeof sets[0], "talker.max_num_seqs=%d", slots);
    snprintf(sets[1], sizeof sets[1], "code2wav.max_num_seqs=%d", slots);
    snprintf(sets[2], sizeof sets[2], "talker.max_model_len=%d", frames + PROMPT_ROOM);
    const char *dirs[] = {pipelines, lua}, *list[] = {sets[0], sets[1], sets[2]};
    og_plan_options o = OG_PLAN_OPTIONS_INIT;
    o.pipeline = "qwen3_tts";
    o.model = s->model;
    o.pipeline_dirs = &dirs[0], o.n_pipeline_dirs = 1;
    o.script_dirs = &dirs[1], o.n_script_dirs = 1;
    o.sets = list, o.n_sets = 3;
    o.backend = s->backend;
    o.dummy = o.greedy = true;
    o.max_tokens = frames + 1;
    o.threads = s->threads;
    o.registry = probe_registry();
    og_err err = OG_ERR_INIT;
    og_diags *diags = og_diags_create();
    int rc = og_plan_build(&o, 0, diags, &b->plan, &err);
    og_diags_destroy(diags);
    return rc < 0 ? complain("plan", &err) : 0;
}

static int start(bench *b) {
    og_err err = OG_ERR_INIT;
    if (make_plan(b) < 0) return -1;
    if (og_engine_create(b->plan, NULL, &b->engine, &err) < 0)
        return complain("engine", &err);
    og_engine_stats st;
    og_engine_get_stats(b->engine, &st);
    b->load_s = st.load_s;
    int talker = og_plan_find_stage(b->plan, "talker");
    b->floor_bytes = 2 * step_values(b->plan->stages[talker].section);
    return 0;
}

/* ---- rounds ---------------------------------------- */

/* No two prompts are alike: a cached prefix would make the first audio look better. */
static int submit(bench *b, og_request **r) {
    char text[32];
    snprintf(text, sizeof text, "%c%c morning.", LETTERS[b->n_prompts % 26],
             LETTERS[b->n_prompts / 26 % 26]);
    b->n_prompts++;
    json_t *fields = json_pack("{s:s, s:s, s:s}", "text", text, "voice", "ryan",
                               "language", "english");
    og_request_desc d = {.fields = fields, .has_seed = 1, .seed = 1};
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

/* n requests that arrive together. */
static int run_round(bench *b, int n, int frames, round_result *out) {
    og_request *r[MAX_REQUESTS] = {NULL};
    double first[MAX_REQUESTS];
    int64_t samples = 0;
    int rc = 0;
    probe_reset(frames + 1);
    double t = machine_now();
    for (int i = 0; i < n && rc == 0; i++) rc = submit(b, &r[i]);
    for (int i = 0; i < n && rc == 0; i++) {
        samples = drain(r[i]);
        if (samples < 0) rc = -1;
    }
    *out = (round_result){.requests = n, .frames = frames, .wall = machine_now() - t};
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
    probe_sum(OG_KIND_AR, n, &out->decode);
    probe_sum(OG_KIND_VOCODER, 0, &out->vocoder);
    return 0;
}

static int measure_memory(bench *b) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    b->peak_rss = (double)u.ru_maxrss * 1024;
    for (int i = 0; i < b->plan->n_stages; i++) {
        og_node_stats st;
        if (og_engine_node_stats(b->engine, i, 0, &st) < 0) return -1;
        b->weights += (double)st.weight_bytes;
        b->states += (double)st.state_bytes;
    }
    return 0;
}

static int run_all(bench *b) {
    round_result warm;
    if (run_round(b, 1, 2, &warm) < 0) return -1;
    for (int i = 0; i < b->set.n_rounds; i++) {
        fprintf(stderr, "%d request%s ...\n", b->set.requests[i],
                b->set.requests[i] == 1 ? "" : "s");
        if (run_round(b, b->set.requests[i], b->set.frames[i], &b->rounds[i]) < 0)
            return -1;
    }
    return measure_memory(b);
}

/* ---- report ---------------------------------------- */

/* 0 where nothing was measured: a round too short to have all its requests in one step.
 */
static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

static double frame_seconds(const round_result *r) {
    return r->audio / r->frames;
}

static double vocoder_frame(const round_result *r) {
    return r->vocoder.total / (r->frames * r->requests);
}

static double floor_seconds(const bench *b) {
    return b->floor_bytes / b->ceiling.read;
}

static json_t *round_json(const bench *b, const round_result *r) {
    return json_pack(
        "{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
        "requests", r->requests, "frames", r->frames, "decode_step_ms",
        r->decode.median * 1e3, "decode_step_best_ms", r->decode.best * 1e3,
        "decode_step_cpu_ms", r->decode.cpu * 1e3, "floor_share",
        ratio(floor_seconds(b), r->decode.best), "frames_per_s_codes",
        ratio(r->requests, r->decode.median), "rtf_codes",
        r->decode.median / frame_seconds(r), "vocoder_ms_per_frame",
        vocoder_frame(r) * 1e3, "wall_s", r->wall, "frames_per_s",
        r->frames * r->requests / r->wall, "rtf", r->wall / r->audio, "first_audio_s",
        r->first_median, "first_audio_worst_s", r->first_worst);
}

static json_t *report_json(const bench *b) {
    json_t *rounds = json_array();
    for (int i = 0; i < b->set.n_rounds; i++)
        json_array_append_new(rounds, round_json(b, &b->rounds[i]));
    return json_pack("{s:s, s:s, s:s, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "program",
                     "omni-graph", "model", b->set.model, "backend", b->set.backend,
                     "machine", machine_json(b->set.threads, &b->before, &b->after),
                     "load_s", b->load_s, "peak_rss_mb", b->peak_rss * 1e-6, "weights_mb",
                     b->weights * 1e-6, "kv_and_states_mb", b->states * 1e-6, "step_mb",
                     b->floor_bytes * 1e-6, "floor_ms", floor_seconds(b) * 1e3, "rounds",
                     rounds);
}

static void report(const bench *b) {
    machine_print(b->set.threads, &b->before, &b->after);
    printf("%s on %s, loaded in %.1f s\n", b->set.model, b->set.backend, b->load_s);
    printf("memory: peak %.0f MB; weights %.0f + KV and states %.0f MB: %.2f times\n",
           b->peak_rss * 1e-6, b->weights * 1e-6, b->states * 1e-6,
           b->peak_rss / (b->weights + b->states));
    printf("floor: a decode step reads %.0f MB of weights: %.1f ms\n\n",
           b->floor_bytes * 1e-6, floor_seconds(b) * 1e3);
    printf("%17s%-50s%s\n", "", "codes alone", "with the vocoder");
    printf("requests frames   step ms   best    CPU  floor  frames/s   RTF  "
           "voc ms/frame  frames/s   RTF  first audio, worst s\n");
    for (int i = 0; i < b->set.n_rounds; i++) {
        const round_result *r = &b->rounds[i];
        const probe_stat *d = &r->decode;
        printf("%8d %6d  %8.1f %6.1f %6.1f %5.0f%%  %8.2f %5.2f  ", r->requests,
               r->frames, d->median * 1e3, d->best * 1e3, d->cpu * 1e3,
               100 * ratio(floor_seconds(b), d->best), ratio(r->requests, d->median),
               d->median / frame_seconds(r));
        printf("%12.1f  %8.2f %5.2f  %11.2f %6.2f\n", vocoder_frame(r) * 1e3,
               r->frames * r->requests / r->wall, r->wall / r->audio, r->first_median,
               r->first_worst);
    }
}

/* ---- main ---------------------------------------- */

static const char help[] =
    "usage: tts --model DIR [OPTIONS]\n"
    "  --model DIR        folder with the configs of a checkpoint (bench/configs)\n"
    "  --requests N,...   how many at a time, one round each (default 1,4,8)\n"
    "  --frames N,...     frames of each request of a round (default 24; the last "
    "repeats)\n"
    "  --threads N        of the CPU backend (default: all cores)\n"
    "  --backend NAME     cpu (default), ref or cuda\n"
    "  --root DIR         where pipelines/ and scripts/ are (default: the source tree)\n"
    "  -o FILE            the numbers as JSON\n";

/* Numbers from 1 to max, by commas. Returns how many, -1 on bad text. */
static int numbers(const char *text, int *v, int max) {
    int n = 0;
    for (char *end; n < MAX_ROUNDS; text = end + 1) {
        long x = strtol(text, &end, 10);
        if (end == text || x < 1 || x > max) return -1;
        v[n++] = (int)x;
        if (!*end) return n;
        if (*end != ',') return -1;
    }
    return -1;
}

static int parse(int argc, char **argv, settings *s) {
    static const struct option names[] = {
        {"model", 1, NULL, 'm'},   {"requests", 1, NULL, 'r'},
        {"frames", 1, NULL, 'f'},  {"threads", 1, NULL, 't'},
        {"backend", 1, NULL, 'b'}, {"root", 1, NULL, 'd'},
        {"help", 0, NULL, 'h'},    {0}};
    *s = (settings){.root = OG_SOURCE_DIR,
                    .backend = "cpu",
                    .threads = machine_cores(),
                    .requests = {1, 4, 8},
                    .n_rounds = 3,
                    .frames = {24}};
    int n_frames = 1, c;
    while ((c = getopt_long(argc, argv, "o:", names, NULL)) != -1) {
        switch (c) {
        case 'm': s->model = optarg; break;
        case 'r': s->n_rounds = numbers(optarg, s->requests, MAX_REQUESTS); break;
        case 'f': n_frames = numbers(optarg, s->frames, 4096); break;
        case 't':
            if (numbers(optarg, &s->threads, 256) != 1) s->threads = 0;
            break;
        case 'b': s->backend = optarg; break;
        case 'd': s->root = optarg; break;
        case 'o': s->out = optarg; break;
        case 'h': fputs(help, stdout); exit(EXIT_SUCCESS);
        default: return -1;
        }
    }
    if (optind < argc || !s->model || s->n_rounds < 1 || n_frames < 1 || s->threads < 1)
        return -1;
    for (int i = n_frames; i < MAX_ROUNDS; i++) s->frames[i] = s->frames[i - 1];
    return 0;
}

int main(int argc, char **argv) {
    static bench b;
    if (parse(argc, argv, &b.set) < 0) {
        fputs(help, stderr);
        return 2;
    }
    probe_start();
    int rc = machine_measure(b.set.threads, CEILING_SECONDS, &b.before);
    if (rc == 0) rc = start(&b);
    if (rc == 0) rc = run_all(&b);
    if (rc == 0) rc = machine_measure(b.set.threads, CEILING_SECONDS, &b.after);
    if (rc == 0) {
        b.ceiling = machine_best(&b.before, &b.after);
        report(&b);
        rc = machine_save(report_json(&b), b.set.out);
    }
    og_engine_destroy(b.engine);
    og_plan_destroy(b.plan);
    probe_stop();
    return rc < 0;
}
