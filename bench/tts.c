/* Qwen3-TTS through the whole engine with made-up weights: how long a frame takes.
 *
 * Every request makes exactly the frames asked for, greedily. Of each number of requests
 * at once it prints the decode step (talker, code predictor, sampling: the time without
 * the vocoder), the vocoder's share, and what a client sees. The floor is the time that a
 * plain read of the step's weights takes at the best bandwidth measured in the same run;
 * its share is of the best step, so that both are of the machine's undisturbed moments. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "bench/machine.h"
#include "bench/probe.h"
#include "bench/tts_engine.h"

#define CEILING_SECONDS 1.5

typedef struct round_result {
    tts_result seen;
    probe_stat decode, vocoder;
} round_result;

typedef struct bench {
    tts_settings set;
    tts_engine tts;
    machine_rates before, after, ceiling;
    double peak_rss, weights, states; /* bytes; the last two of the nodes, KV in the states */
    round_result rounds[TTS_MAX_ROUNDS];
} bench;

static int measure_memory(bench *b) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    b->peak_rss = (double)u.ru_maxrss * 1024;
    return tts_memory(&b->tts, &b->weights, &b->states);
}

static int run_all(bench *b) {
    tts_result warm;
    if (tts_round(&b->tts, 1, 2, false, &warm) < 0) return -1;
    for (int i = 0; i < b->set.n_rounds; i++) {
        int n = b->set.requests[i];
        round_result *r = &b->rounds[i];
        fprintf(stderr, "%d request%s ...\n", n, n == 1 ? "" : "s");
        if (tts_round(&b->tts, n, b->set.frames[i], false, &r->seen) < 0) return -1;
        probe_sum(OG_KIND_AR, n, &r->decode);
        probe_sum(OG_KIND_VOCODER, 0, &r->vocoder);
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
    return r->seen.audio / r->seen.frames;
}

static double vocoder_frame(const round_result *r) {
    return r->vocoder.total / (r->seen.frames * r->seen.requests);
}

static double floor_seconds(const bench *b) {
    return b->tts.step_bytes / b->ceiling.read;
}

static json_t *round_json(const bench *b, const round_result *r) {
    return json_pack(
        "{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
        "requests", r->seen.requests, "frames", r->seen.frames, "decode_step_ms",
        r->decode.median * 1e3, "decode_step_best_ms", r->decode.best * 1e3,
        "decode_step_cpu_ms", r->decode.cpu * 1e3, "floor_share",
        ratio(floor_seconds(b), r->decode.best), "frames_per_s_codes",
        ratio(r->seen.requests, r->decode.median), "rtf_codes",
        r->decode.median / frame_seconds(r), "vocoder_ms_per_frame",
        vocoder_frame(r) * 1e3, "wall_s", r->seen.wall, "frames_per_s",
        r->seen.frames * r->seen.requests / r->seen.wall, "rtf", r->seen.wall / r->seen.audio, "first_audio_s",
        r->seen.first_median, "first_audio_worst_s", r->seen.first_worst);
}

static json_t *report_json(const bench *b) {
    json_t *rounds = json_array();
    for (int i = 0; i < b->set.n_rounds; i++)
        json_array_append_new(rounds, round_json(b, &b->rounds[i]));
    return json_pack("{s:s, s:s, s:s, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "program",
                     "omni-graph", "model", b->set.model, "backend", b->set.backend,
                     "machine", machine_json(b->set.threads, &b->before, &b->after),
                     "load_s", b->tts.load_s, "peak_rss_mb", b->peak_rss * 1e-6, "weights_mb",
                     b->weights * 1e-6, "kv_and_states_mb", b->states * 1e-6, "step_mb",
                     b->tts.step_bytes * 1e-6, "floor_ms", floor_seconds(b) * 1e3, "rounds",
                     rounds);
}

static void report(const bench *b) {
    machine_print(b->set.threads, &b->before, &b->after);
    printf("%s on %s, loaded in %.1f s\n", b->set.model, b->set.backend, b->tts.load_s);
    printf("memory: peak %.0f MB; weights %.0f + KV and states %.0f MB: %.2f times\n",
           b->peak_rss * 1e-6, b->weights * 1e-6, b->states * 1e-6,
           b->peak_rss / (b->weights + b->states));
    printf("floor: a decode step reads %.0f MB of weights: %.1f ms\n\n",
           b->tts.step_bytes * 1e-6, floor_seconds(b) * 1e3);
    printf("%17s%-50s%s\n", "", "codes alone", "with the vocoder");
    printf("requests frames   step ms   best    CPU  floor  frames/s   RTF  "
           "voc ms/frame  frames/s   RTF  first audio, worst s\n");
    for (int i = 0; i < b->set.n_rounds; i++) {
        const round_result *r = &b->rounds[i];
        const probe_stat *d = &r->decode;
        printf("%8d %6d  %8.1f %6.1f %6.1f %5.0f%%  %8.2f %5.2f  ", r->seen.requests,
               r->seen.frames, d->median * 1e3, d->best * 1e3, d->cpu * 1e3,
               100 * ratio(floor_seconds(b), d->best), ratio(r->seen.requests, d->median),
               d->median / frame_seconds(r));
        printf("%12.1f  %8.2f %5.2f  %11.2f %6.2f\n", vocoder_frame(r) * 1e3,
               r->seen.frames * r->seen.requests / r->seen.wall, r->seen.wall / r->seen.audio, r->seen.first_median,
               r->seen.first_worst);
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
    "  --backend NAME     cpu (default) or ref\n"
    "  --root DIR         where pipelines/ and scripts/ are (default: the source tree)\n"
    "  -o FILE            the numbers as JSON\n";

static int parse(int argc, char **argv, tts_settings *s) {
    static const struct option names[] = {
        {"model", 1, NULL, 'm'},   {"requests", 1, NULL, 'r'},
        {"frames", 1, NULL, 'f'},  {"threads", 1, NULL, 't'},
        {"backend", 1, NULL, 'b'}, {"root", 1, NULL, 'd'},
        {"help", 0, NULL, 'h'},    {0}};
    *s = (tts_settings){.root = OG_SOURCE_DIR,
                    .backend = "cpu",
                    .greedy = true,
                    .threads = machine_cores(),
                    .requests = {1, 4, 8},
                    .n_rounds = 3,
                    .frames = {24}};
    int n_frames = 1, c;
    while ((c = getopt_long(argc, argv, "o:", names, NULL)) != -1) {
        switch (c) {
        case 'm': s->model = optarg; break;
        case 'r': s->n_rounds = tts_numbers(optarg, s->requests, TTS_MAX_REQUESTS); break;
        case 'f': n_frames = tts_numbers(optarg, s->frames, 4096); break;
        case 't':
            if (tts_numbers(optarg, &s->threads, 256) != 1) s->threads = 0;
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
    int rc = machine_measure(b.set.threads, CEILING_SECONDS, &b.before);
    if (rc == 0) rc = tts_open(&b.set, &b.tts);
    if (rc == 0) rc = run_all(&b);
    if (rc == 0) rc = machine_measure(b.set.threads, CEILING_SECONDS, &b.after);
    if (rc == 0) {
        b.ceiling = machine_best(&b.before, &b.after);
        report(&b);
        rc = machine_save(report_json(&b), b.set.out);
    }
    tts_close(&b.tts);
    probe_stop();
    return rc < 0;
}
