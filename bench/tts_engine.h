/* Qwen3-TTS with made-up weights in an engine of its own, for the programs that time it.
 *
 *     tts_engine t;
 *     probe_start();
 *     tts_open(&settings, &t);
 *     tts_round(&t, 8, 24, false, &result);
 *     tts_close(&t);
 *     probe_stop();
 */
#ifndef OG_BENCH_TTS_ENGINE_H
#define OG_BENCH_TTS_ENGINE_H

#include <stdbool.h>

#include "graph/run/engine.h"

#define TTS_MAX_ROUNDS 8
#define TTS_MAX_REQUESTS 128

typedef struct tts_settings {
    const char *model, *root, *backend, *out; /* folders; what to run on; JSON or NULL */
    int threads, requests[TTS_MAX_ROUNDS], frames[TTS_MAX_ROUNDS], n_rounds;
    bool greedy, deterministic;
} tts_settings;

typedef struct tts_engine {
    tts_settings set;
    og_plan *plan;
    og_engine *engine;
    double load_s, step_bytes; /* weights that a decode step streams */
    int n_prompts;
} tts_engine;

typedef struct tts_result {
    int requests, frames;
    /* Seconds from the first submit to the last sample; of audio of one request; until the
     * first sample of the median and of the last request. */
    double wall, audio, first_median, first_worst;
} tts_result;

/* Both say what is wrong on standard error and return -1. codes: the decoder alone, nothing
 * is spoken. */
int tts_open(const tts_settings *set, tts_engine *out);
int tts_round(tts_engine *t, int requests, int frames, bool codes, tts_result *out);
void tts_close(tts_engine *t);
/* Bytes that the nodes hold: weights, and KV with states. */
int tts_memory(tts_engine *t, double *weights, double *states);

/* Numbers from 1 to max, by commas. Returns how many, -1 on bad text. */
int tts_numbers(const char *text, int *v, int max);

#endif
