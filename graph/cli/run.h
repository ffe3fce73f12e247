/* The parts of `run`: the request, the output file, taps, progress, Ctrl-C. All belong
 * to the main thread, but for the layer tap (executors call it) and the watcher (its
 * own). */
#ifndef OG_CLI_RUN_H
#define OG_CLI_RUN_H

#include "graph/cli/cli.h"
#include "graph/run/engine.h"
#include "nodes/media/audio.h"

/* ---- request ------------------------------------------------------------------ */

/* Body of the request from --request and the field flags; a new reference. */
int og__fields_json(og__cli *cli, const og_plan *p, json_t **out);

/* ---- output ------------------------------------------------------------------- */

typedef enum og__format { OG__AUDIO, OG__JSON } og__format;

typedef struct og__output {
    const char *path; /* "-": standard output */
    bool standard;
    og__format kind;
    og_audio_format audio;
    og_audio_out *out; /* open while AUDIO is written */
    int rate;
    int64_t samples;
    og_err err; /* of standard output */
    struct og__watch *watch; /* its signal ends a wait for a reader; NULL: none does */
} og__output;

/* Look at -o and --format before anything is loaded. 0, or an exit code. */
int og__output_plan(og__cli *cli, og__output *o);
int og__output_open(og__output *o, int rate, og_err *err);
/* samples: f32 [n]. */
int og__output_write(og__output *o, const og_tensor *samples, og_err *err);
int og__output_silence(og__output *o, int64_t n, og_err *err);
/* AUDIO: finish the file. JSON: write info (borrowed). */
int og__output_commit(og__output *o, const json_t *info, og_err *err);
void og__output_abort(og__output *o);

/* ---- taps --------------------------------------------------------------------- */

typedef struct og__taps {
    og_request_tap *taps;
    const char **files; /* NULL: into the JSON output */
    int n;
} og__taps;

/* --tap STAGE.PORT[=FILE], held against the plan. 0, or an exit code. */
int og__taps_plan(og__cli *cli, const og_plan *p, const og__output *o, og__taps *out);
/* After DONE: one .npy a tap and lane. */
int og__taps_write(const og__taps *t, og_request *r, og_err *err);
/* {"talker.codes": {"shape": [..], "dtype": "int64", "data": [[..], ..]}}; lane k > 0
 * has ".k" behind its name. A new reference, NULL when out of memory. */
json_t *og__taps_json(const og__taps *t, og_request *r);

typedef struct og__layers og__layers; /* --tap-layers */
int og__layers_create(const char *dir, og__layers **out, og_err *err);
void og__layers_tap(void *layers, const char *name, const og_tensor *t); /* og_tap_fn */
/* Number of files written, or the first error. */
int og__layers_finish(og__layers *l, int64_t *n, og_err *err);
void og__layers_free(og__layers *l); /* NULL is fine */

/* ---- progress ----------------------------------------------------------------- */

typedef struct og__progress {
    bool on, shown;
    double next;     /* time of the next line */
    const int *port; /* per stage: output port whose items are counted, -1: none */
    const og_plan *plan;
} og__progress;

double og__seconds(void); /* monotonic */
void og__progress_init(og__progress *p, og__cli *cli, const og_plan *plan);
void og__progress_note(og__progress *p, const char *text);
void og__progress_show(og__progress *p, og_request *r, double audio_s, double wall_s);
void og__progress_clear(og__progress *p);
/* Tables of --stats on stderr; q: of the request, or NULL. */
void og__stats_print(og_engine *e, const og_plan *p, const og_request_stats *q);

/* ---- many requests ---------------------------------------------------------- */

/* `run --batch FILE`: every line of a JSONL file. Returns the exit code. */
int og__batch(og__cli *cli, const char *pipeline);

/* ---- Ctrl-C ------------------------------------------------------------------- */

/* Takes SIGINT and SIGTERM from now on: the first cancels the request that is watched,
 * the second ends the process at once. Made before any other thread, which inherit
 * that these signals are blocked. */
typedef struct og__watch og__watch;
int og__watch_create(og__watch **out, og_err *err);
/* Cancel r (NULL: nothing) at the first signal, also if that came already. */
void og__watch_request(og__watch *w, og_request *r);
bool og__watch_hit(og__watch *w);
void og__watch_destroy(og__watch *w); /* NULL is fine */

#endif
