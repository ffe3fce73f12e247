/* One benchmark: texts become requests, requests become records, records a result.
 *
 *     og__bench b = OG__BENCH;
 *     b.load.url = url; b.model = "qwen3_tts"; b.set = set; b.n = 100;
 *     json_t *result = NULL;
 *     if (og__bench_run(&b, &result, &err) < 0) ...
 *
 * The result has the fields of the public bench client's result files (and more), so that what
 * reads those reads ours. */
#ifndef OG_CLI_BENCH_RUN_H
#define OG_CLI_BENCH_RUN_H

#include <jansson.h>

#include "graph/cli/bench/sets.h"
#include "graph/cli/bench/stats.h"

typedef enum og__stream { OG__STREAM_AUDIO, OG__STREAM_SSE, OG__STREAM_NONE } og__stream;

#define OG__PERCENTILES_MAX 16

typedef struct og__bench {
    og__load_opts load; /* load.answer is set from stream and format */
    const char *model, *backend, *label;
    const char *voice, *language, *instructions, *format; /* NULL: not in the body */
    const char *ref_audio, *ref_text; /* URL or data: URL for every request; NULL */
    bool clone;                       /* prompts bring their clips (file or made up) */
    const json_t *extra;              /* further keys of every body, borrowed; NULL */
    og__stream stream;
    og__set set;
    bool shuffle;
    int n, warmup;
    double rate, burstiness; /* INFINITY: all at once */
    uint64_t seed;
    int frames; /* of every answer, -1: as long as the text is spoken, 0: not fixed */
    int frame_samples;
    double frames_per_second;
    double percentiles[OG__PERCENTILES_MAX];
    int n_percentiles;
    og__limit limits[OG__LIMITS_MAX];
    int n_limits;
    bool detailed; /* every request is in the result */
} og__bench;

#define OG__BENCH                                                                        \
    {                                                                                    \
        .load = OG__LOAD_OPTS, .backend = "openai-audio-speech", .format = "pcm",        \
        .shuffle = true, .n = 1, .burstiness = 1, .rate = INFINITY,                      \
        .frame_samples = 1920, .frames_per_second = 12.5,                                \
        .percentiles = {50, 90, 95, 99}, .n_percentiles = 4                              \
    }

/* "50,95,99.9": their number, or OG_EINVAL. */
int og__percentiles_parse(const char *text, double *out, og_err *err) OG_MUST_CHECK;

/* Warm up, run, sum up. OG_ECANCELED when it was stopped (*result then holds what there
 * was). *result is the caller's. */
int og__bench_run(const og__bench *b, json_t **result, og_err *err) OG_MUST_CHECK;

/* The bodies of all requests; an arena string each. For og__bench_run, and --dry-run. */
int og__bench_jobs(const og__bench *b, og_arena *arena, int n, og__job *jobs,
                   og_err *err) OG_MUST_CHECK;
/* NULL: out of memory. */
json_t *og__result_json(const og__bench *b, const og__summary *s, const og__total *t,
                        const og__record *records);
/* The result for people, appended to out. */
void og__result_text(const json_t *result, og_str *out);

#endif
