/* A performance suite: the public JSON, read as it is.
 *
 * A file is a list of entries; an entry is a server (`server_params`) and a list of benchmarks
 * (`benchmark_params`), each of which sweeps over rates and concurrencies and may bring a
 * baseline per hardware. Keys with - and _ are the same key. Everything that is not measured
 * stays in the list with a reason, so that a report shows what was left out.
 *
 *     og__suite suite;
 *     if (og__suite_load(arena, path, &suite, &warnings, &err) < 0) ...
 *     for (int i = 0; i < suite.n_runs; i++) use(&suite.runs[i]);
 *     og__suite_free(&suite);
 *
 * The public rules that this follows stand in docs/benchmarks.md, Serving. */
#ifndef OG_CLI_BENCH_SUITE_H
#define OG_CLI_BENCH_SUITE_H

#include "graph/cli/bench/run.h"

typedef struct og__suite_entry {
    const char *name, *model;
    const char *skip;     /* why none of it is run, NULL: it is */
    const json_t *server; /* server_params, borrowed from the suite */
    int first, n_runs;
} og__suite_entry;

/* One point of a sweep. */
typedef struct og__suite_run {
    int entry, item, step; /* item: of benchmark_params; step: of its sweep */
    const json_t *params;  /* the item, borrowed */
    const char *task, *phase, *dataset, *dataset_path; /* may be NULL */
    int n, warmup, concurrency;                        /* 0: no bound */
    double rate;                                       /* INFINITY: closed loop */
    double duration_s;         /* of a stability run, 0: n requests */
    int low_words, high_words; /* of the random set */
    const char *skip;
} og__suite_run;

typedef struct og__suite {
    const char *path;
    json_t *root; /* owned */
    json_t *more; /* files that a "$ref" names; owned */
    og__suite_entry *entries;
    og__suite_run *runs;
    int n_entries, n_runs;
} og__suite;

/* Unknown keys become lines of warnings. OG_EFORMAT with file:line:col for bad JSON, with the
 * path of the field for what does not fit. */
int og__suite_load(og_arena *arena, const char *path, og__suite *out, og_str *warnings,
                   og_err *err) OG_MUST_CHECK;
void og__suite_free(og__suite *s);

/* A member of a map whatever its dashes: "num_prompts" finds "num-prompts". */
json_t *og__member(const json_t *map, const char *name);

/* ---- servers ------------------------------------------------------------------ */

#define OG__SERVE_ARGS_MAX 128

typedef struct og__serve_line {
    const char *args[OG__SERVE_ARGS_MAX]; /* behind "serve PIPELINE" */
    int n;
    const char *skip; /* why this server cannot be started, NULL */
} og__serve_line;

typedef struct og__serve_how {
    bool one_device; /* leave out where stages are to lie */
    /* Finds an overlay by the name that the suite gives it. NULL: it is not there. */
    const char *(*overlay)(void *user, const char *name);
    void *user;
} og__serve_how;

/* Options of `omni-graph serve` that say what server_params say: serve_args, extra_cli_args,
 * stage_overrides, and the older stage_config_name with update and delete. */
int og__suite_serve_line(og_arena *arena, const og__suite_entry *e,
                         const og__serve_how *how, og__serve_line *out,
                         og_err *err) OG_MUST_CHECK;

/* ---- baselines ---------------------------------------------------------------- */

typedef enum og__verdict {
    OG__VERDICT_NA,
    OG__VERDICT_PASS,
    OG__VERDICT_FAIL
} og__verdict;
const char *og__verdict_word(og__verdict v);

typedef struct og__judged {
    const char *metric;
    double baseline, value; /* value: NAN when the result has none */
    og__verdict verdict;
} og__judged;

#define OG__JUDGED_MAX 32

/* Every metric of the run's baseline for that hardware beside the result's: throughputs are to
 * be at least, all else at most the baseline, within tolerance (0.05: 5 % worse is fine).
 * result NULL: nothing was measured. Their number. */
int og__suite_judge(const og__suite_run *run, const char *hardware, const json_t *result,
                    double tolerance, og__judged *out);

#endif
