/* Qwen3-TTS through the whole engine on a device that works by itself, with made-up weights.
 *
 * Sampled as the model is by default, with exactly the frames asked for. Of each number of
 * requests at once: the frame (talker, code predictor, sampling), from two rounds without the
 * vocoder that differ in their frames alone, and what clients see of one with it. The floor
 * is the time in which the step's weights and the KV of its rows are read at the bandwidth of
 * a copy measured in the same run. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/machine.h"
#include "bench/probe.h"
#include "bench/tts_engine.h"

#define COPY_BYTES ((int64_t)2 << 30)
#define COPY_TIMES 10
#define PROMPT_ROWS 24 /* about */

typedef struct device_round {
    double frame, frame_floor; /* seconds */
    tts_result seen;
} device_round;

typedef struct bench {
    tts_settings set;
    tts_engine tts;
    char device[128];
    double bandwidth, weights, states, kv_row; /* bytes (a second); KV of a position */
    device_round rounds[TTS_MAX_ROUNDS];
} bench;

/* Bytes read and written a second by the device's own copy. */
static int measure_copy(bench *b) {
    og_err err = OG_ERR_INIT;
    og_device *dev = NULL;
    og_exec *ex = NULL;
    void *from = NULL, *to = NULL;
    og_device_info info;
    int rc = og_device_open(b->set.backend, 0, 0, &dev, &err);
    if (rc == 0) rc = og_exec_create(dev, 0, &ex, &err);
    if (rc == 0) rc = og_device_alloc(dev, COPY_BYTES, &from, &err);
    if (rc == 0) rc = og_device_alloc(dev, COPY_BYTES, &to, &err);
    if (rc == 0) {
        og_tensor x = og_tensor_1d(OG_F32, COPY_BYTES / 4, from), y = x;
        y.data = to;
        rc = og_op_copy(ex, &y, &x);
        if (rc == 0) rc = og_exec_sync(ex);
        double t = machine_now();
        for (int i = 0; i < COPY_TIMES && rc == 0; i++) rc = og_op_copy(ex, &y, &x);
        if (rc == 0) rc = og_exec_sync(ex);
        b->bandwidth = 2.0 * COPY_BYTES * COPY_TIMES / (machine_now() - t);
    }
    if (dev) {
        og_device_info_get(dev, &info);
        snprintf(b->device, sizeof b->device, "%s", info.name);
        og_device_free(dev, from);
        og_device_free(dev, to);
    }
    if (rc < 0) fprintf(stderr, "tts_device: %s\n", ex ? og_exec_error(ex) : err.msg);
    og_exec_destroy(ex);
    og_device_close(dev);
    return rc;
}

/* Bytes of K and V that a position takes in all layers of the talker, bf16. */
static double kv_bytes(const tts_engine *t) {
    const json_t *c = t->plan->stages[og_plan_find_stage(t->plan, "talker")].section;
    double kv = json_number_value(json_object_get(c, "num_key_value_heads"));
    return 2 * 2 * kv * json_number_value(json_object_get(c, "head_dim")) *
           json_number_value(json_object_get(c, "num_hidden_layers"));
}

static int run_round(bench *b, int i) {
    int n = b->set.requests[i], frames = b->set.frames[i], few = (frames + 4) / 5;
    device_round *r = &b->rounds[i];
    tts_result less, more, warm;
    if (tts_round(&b->tts, n, 3, false, &warm) < 0 ||
        tts_round(&b->tts, n, few, true, &less) < 0 ||
        tts_round(&b->tts, n, frames, true, &more) < 0 ||
        tts_round(&b->tts, n, frames, false, &r->seen) < 0)
        return -1;
    if (frames > few) r->frame = (more.wall - less.wall) / (frames - few);
    double kv = n * b->kv_row * (PROMPT_ROWS + (frames + few) / 2.0);
    r->frame_floor = (b->tts.step_bytes + kv) / b->bandwidth;
    return 0;
}

static void print_round(const device_round *r) {
    const tts_result *s = &r->seen;
    printf("%8d %6d  %8.2f %8.2f %9.4f  %9.1f %7.4f  %8.1f %7.1f\n", s->requests, s->frames,
           r->frame * 1e3, r->frame_floor * 1e3, r->frame * s->frames / s->audio,
           s->requests * s->audio / s->wall, s->wall / s->audio, s->first_median * 1e3,
           s->first_worst * 1e3);
    fflush(stdout);
}

static json_t *round_json(const device_round *r) {
    const tts_result *s = &r->seen;
    return json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "requests", s->requests,
                     "frames", s->frames, "frame_ms", r->frame * 1e3, "floor_ms",
                     r->frame_floor * 1e3, "rtf_codes", r->frame * s->frames / s->audio,
                     "audio_s_per_s", s->requests * s->audio / s->wall, "rtf",
                     s->wall / s->audio, "first_audio_ms", s->first_median * 1e3,
                     "first_audio_worst_ms", s->first_worst * 1e3);
}

static json_t *report_json(const bench *b) {
    json_t *rounds = json_array();
    for (int i = 0; i < b->set.n_rounds; i++)
        json_array_append_new(rounds, round_json(&b->rounds[i]));
    return json_pack("{s:s, s:s, s:s, s:b, s:f, s:f, s:f, s:f, s:f, s:o}", "program",
                     "omni-graph", "device", b->device, "model", b->set.model,
                     "deterministic", b->set.deterministic, "copy_bytes_per_s", b->bandwidth,
                     "load_s", b->tts.load_s, "weights_mb", b->weights * 1e-6,
                     "kv_and_states_mb", b->states * 1e-6, "step_mb",
                     b->tts.step_bytes * 1e-6, "rounds", rounds);
}

static int run(bench *b) {
    if (measure_copy(b) < 0 || tts_open(&b->set, &b->tts) < 0) return -1;
    b->kv_row = kv_bytes(&b->tts);
    printf("%s, %s%s: a copy moves %.2f TB/s; loaded in %.2f s\n", b->set.model, b->device,
           b->set.deterministic ? ", deterministic" : "", b->bandwidth * 1e-12,
           b->tts.load_s);
    printf("%17s%-28s%s\n", "", "codes alone", "with the vocoder");
    printf("requests frames  frame ms    floor       RTF  audio-s/s     RTF  first ms   worst\n");
    for (int i = 0; i < b->set.n_rounds; i++) {
        if (run_round(b, i) < 0) return -1;
        print_round(&b->rounds[i]);
    }
    if (tts_memory(&b->tts, &b->weights, &b->states) < 0) return -1;
    printf("memory: weights %.0f MB, KV and states %.0f MB\n", b->weights * 1e-6,
           b->states * 1e-6);
    return machine_save(report_json(b), b->set.out);
}

static const char help[] =
    "usage: tts_device --model DIR [OPTIONS]\n"
    "  --model DIR        folder with the configs of a checkpoint (bench/configs)\n"
    "  --requests N,...   how many at a time, one round each (default 1,8,32,64,128)\n"
    "  --frames N,...     frames of each request of a round (default 250; the last "
    "repeats)\n"
    "  --backend NAME     cuda (default), cpu or ref\n"
    "  --deterministic    bits that do not depend on the batch\n"
    "  --root DIR         where pipelines/ and scripts/ are (default: the source tree)\n"
    "  -o FILE            the numbers as JSON\n";

static int parse(int argc, char **argv, tts_settings *s) {
    static const struct option names[] = {
        {"model", 1, NULL, 'm'},         {"requests", 1, NULL, 'r'}, {"frames", 1, NULL, 'f'},
        {"backend", 1, NULL, 'b'},       {"root", 1, NULL, 'd'},     {"help", 0, NULL, 'h'},
        {"deterministic", 0, NULL, 'D'}, {0}};
    *s = (tts_settings){.root = OG_SOURCE_DIR,
                        .backend = "cuda",
                        .requests = {1, 8, 32, 64, 128},
                        .n_rounds = 5,
                        .frames = {250}};
    int n_frames = 1, c;
    while ((c = getopt_long(argc, argv, "o:", names, NULL)) != -1) {
        switch (c) {
        case 'm': s->model = optarg; break;
        case 'r': s->n_rounds = tts_numbers(optarg, s->requests, TTS_MAX_REQUESTS); break;
        case 'f': n_frames = tts_numbers(optarg, s->frames, 4096); break;
        case 'b': s->backend = optarg; break;
        case 'd': s->root = optarg; break;
        case 'D': s->deterministic = true; break;
        case 'o': s->out = optarg; break;
        case 'h': fputs(help, stdout); exit(EXIT_SUCCESS);
        default: return -1;
        }
    }
    if (optind < argc || !s->model || s->n_rounds < 1 || n_frames < 1) return -1;
    for (int i = n_frames; i < TTS_MAX_ROUNDS; i++) s->frames[i] = s->frames[i - 1];
    return 0;
}

int main(int argc, char **argv) {
    static bench b;
    if (parse(argc, argv, &b.set) < 0) {
        fputs(help, stderr);
        return 2;
    }
    probe_start();
    int rc = run(&b);
    tts_close(&b.tts);
    probe_stop();
    return rc < 0;
}
