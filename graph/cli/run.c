/* `run`: one request through a pipeline, its audio into a file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "graph/cli/run.h"
#include "graph/run/voice.h"

#define POLL_MS 100 /* how long to wait for samples before progress is shown again */

typedef struct job {
    og__cli *cli;
    og_plan *plan;
    og_engine *engine;
    og_request *request;
    og__watch *watch;
    og__layers *layers;
    json_t *fields;
    og__output out;
    og__taps taps;
    og__progress progress;
    const char *layers_dir;
    int response; /* index of the audio response */
    bool quiet, has_seed;
    uint64_t seed;
    double start;
} job;

/* ---- before anything is loaded ------------------------------------------------ */

static int read_seed(job *j) {
    const char *text = og__args_get(&j->cli->args, "seed");
    char *end;
    if (!text) return 0;
    errno = 0;
    j->seed = strtoull(text, &end, 10);
    if (errno || end == text || *end || strchr(text, '-'))
        return og__usage(
            j->cli, "--seed must be a whole number from 0 to 2^64-1, not '%s'", text);
    j->has_seed = true;
    return 0;
}

static int find_audio(job *j) {
    const og_plan *p = j->plan;
    for (int i = 0; i < p->n_responses; i++) {
        if (p->responses[i].type.kind != OG_TYPE_AUDIO) continue;
        j->response = i;
        return 0;
    }
    return og__usage(j->cli,
                     "pipeline '%s' answers with no audio, which is all that this "
                     "build can write",
                     p->name);
}

/* Every fault of the request that can be told from the plan alone. */
static int check_fields(job *j) {
    og_err err = OG_ERR_INIT;
    json_t *body = NULL, *checked = NULL;
    int rc = og__fields_json(j->cli, j->plan, &body);
    if (rc) return rc;
    og_diags *notes = og_diags_create();
    rc = og_voice_defaults(j->plan, body, &err);
    if (rc == 0) rc = og_plan_request_check(j->plan, body, &checked, notes, &err);
    if (notes && !j->quiet) og__print_diags(notes, OG_SEVERITY_WARNING);
    og_diags_destroy(notes);
    json_decref(body);
    j->fields = checked;
    return rc < 0 ? og__report(&err) : 0;
}

static int prepare(job *j, const char *pipeline) {
    og_err err = OG_ERR_INIT;
    const og__args *a = &j->cli->args;
    j->quiet = og__args_has(a, "quiet");
    j->layers_dir = og__args_get(a, "tap-layers");
    int rc = read_seed(j);
    if (!rc) rc = og__output_plan(j->cli, &j->out);
    if (!rc) rc = og__plan_make(j->cli, pipeline, 0, true, NULL, &j->plan);
    if (!rc) rc = find_audio(j);
    if (!rc) rc = og__taps_plan(j->cli, j->plan, &j->out, &j->taps);
    if (!rc) rc = check_fields(j);
    if (rc) return rc;
    int rate = j->plan->responses[j->response].rate;
    if (rate <= 0)
        return og__usage(j->cli, "the rate of the audio of '%s' is not known",
                         j->plan->name);
    if (og__watch_create(&j->watch, &err) < 0) return og__report(&err);
    j->out.watch = j->watch;
    rc = og__output_open(&j->out, rate, &err);
    if (rc == 0 && j->layers_dir) rc = og__layers_create(j->layers_dir, &j->layers, &err);
    if (rc == 0) return 0;
    og__report(&err);
    return OG__EXIT_USAGE;
}

/* ---- the run ------------------------------------------------------------------ */

static int start(job *j, og_err *err) {
    og_engine_opts opts = {0};
    if (j->layers) {
        opts.tap = og__layers_tap;
        opts.tap_arg = j->layers;
    }
    og__progress_init(&j->progress, j->cli, j->plan);
    og__progress_note(&j->progress, "loading ...");
    int rc = og_engine_create(j->plan, &opts, &j->engine, err);
    if (rc < 0) return rc;
    if (og__watch_hit(j->watch)) return og_err_set(err, OG_ECANCELED, "canceled");
    og_request_desc d = {.fields = j->fields,
                         .has_seed = j->has_seed,
                         .seed = j->seed,
                         .taps = j->taps.taps,
                         .n_taps = j->taps.n};
    j->start = og__seconds();
    rc = og_engine_submit(j->engine, &d, &j->request, err);
    if (rc == 0) og__watch_request(j->watch, j->request);
    return rc;
}

static void print_warnings(const job *j) {
    const char *line;
    for (int i = 0; !j->quiet && (line = og_request_warning(j->request, i)); i++)
        fprintf(stderr, "warning: %s\n", line);
}

static int take_items(job *j, const og_event *ev, og_err *err) {
    if (ev->response != j->response) return 0;
    int rc = og__output_silence(&j->out, ev->gap, err);
    return rc < 0 ? rc : og__output_write(&j->out, &ev->items, err);
}

static int pump(job *j, og_err *err) {
    int timeout = j->progress.on ? POLL_MS : -1;
    for (;;) {
        og_event ev;
        og_event_kind kind = og_request_next(j->request, timeout, &ev);
        int rc = 0;
        if (kind == OG_EVENT_DONE) return 0;
        if (kind == OG_EVENT_ERROR) {
            *err = ev.err;
            return ev.err.code ? ev.err.code : OG_EINTERNAL;
        }
        if (kind == OG_EVENT_ITEMS) rc = take_items(j, &ev, err);
        if (rc < 0) return rc;
        og__progress_show(&j->progress, j->request, (double)j->out.samples / j->out.rate,
                          og__seconds() - j->start);
    }
}

/* ---- afterwards --------------------------------------------------------------- */

static json_t *describe(job *j, double wall) {
    og_request_stats s;
    og_engine_stats e;
    og_request_get_stats(j->request, &s);
    og_engine_get_stats(j->engine, &e);
    double audio = (double)j->out.samples / j->out.rate;
    char seed[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)s.seed);
    /* 64 bits do not fit a JSON number in every reader. */
    return json_pack(
        "{s:s, s:s?, s:O, s:s, s:{s:i, s:I, s:f}, s:{s:f, s:f, s:f, s:f}, s:o}",
        "pipeline", j->plan->name, "model", j->plan->model_dir, "request", j->fields,
        "seed", seed, "audio", "sample_rate", j->out.rate, "samples",
        (json_int_t)j->out.samples, "seconds", audio, "timing", "load", e.load_s,
        "first_output", s.first_output_s, "wall", wall, "real_time_factor",
        audio > 0 ? wall / audio : 0.0, "taps", og__taps_json(&j->taps, j->request));
}

static int commit(job *j, double wall, og_err *err) {
    int rc = og__taps_write(&j->taps, j->request, err);
    int64_t layers = 0;
    if (rc == 0 && j->layers) rc = og__layers_finish(j->layers, &layers, err);
    if (rc < 0) return rc;
    json_t *info = j->out.kind == OG__JSON ? describe(j, wall) : NULL;
    rc = og__output_commit(&j->out, info, err);
    json_decref(info);
    if (rc == 0 && j->layers && !j->quiet)
        fprintf(stderr, "%s: %lld tensors\n", j->layers_dir, (long long)layers);
    return rc;
}

static void final_line(job *j, double wall) {
    og_request_stats s;
    double audio = (double)j->out.samples / j->out.rate;
    og_request_get_stats(j->request, &s);
    fprintf(stderr, "%s: %.2f s of audio in %.2f s",
            j->out.standard ? "standard output" : j->out.path, audio, wall);
    if (audio > 0) fprintf(stderr, ", real-time factor %.2f", wall / audio);
    if (s.first_output_s >= 0)
        fprintf(stderr, ", first audio after %.2f s", s.first_output_s);
    bool random = !og__args_has(&j->cli->args, "greedy");
    if (random && !j->has_seed && !j->plan->has_seed)
        fprintf(stderr, ", seed %llu", (unsigned long long)s.seed);
    fputc('\n', stderr);
}

/* What became of the output when the user stopped the run. */
static int interrupted(job *j) {
    double audio = j->out.rate ? (double)j->out.samples / j->out.rate : 0;
    fprintf(stderr, "stopped after %.2f s of audio; ", audio);
    if (j->out.standard && j->out.kind == OG__AUDIO)
        fprintf(stderr, "standard output has what was written so far\n");
    else
        fprintf(stderr, "nothing was kept, %s was not written\n",
                j->out.standard ? "standard output" : j->out.path);
    return OG__EXIT_SIGNAL;
}

/* The request goes first, so that the counters show what it left behind: nothing. */
static void print_stats(job *j) {
    og_request_stats s;
    bool submitted = j->request != NULL;
    if (submitted) og_request_get_stats(j->request, &s);
    og__watch_request(j->watch, NULL);
    og_request_free(j->request);
    j->request = NULL;
    og__stats_print(j->engine, j->plan, submitted ? &s : NULL);
}

static int work(job *j) {
    og_err err = OG_ERR_INIT;
    int rc = start(j, &err);
    if (rc == 0) rc = pump(j, &err);
    double wall = og__seconds() - j->start;
    og__progress_clear(&j->progress);
    if (rc == 0) print_warnings(j);
    if (rc == 0) rc = commit(j, wall, &err);
    if (rc == 0 && !j->quiet) final_line(j, wall);
    bool submitted = j->request != NULL;
    if (j->engine && og__args_has(&j->cli->args, "stats")) print_stats(j);
    if (rc == 0) return OG__EXIT_OK;
    if (rc == OG_ECANCELED && og__watch_hit(j->watch)) return interrupted(j);
    og_err_set(&err, rc, "%s", og_strerror(rc));
    int code = og__report(&err);
    return rc == OG_EREJECT || !submitted ? code : OG__EXIT_FAILED;
}

static void clean_up(job *j) {
    if (j->watch) og__watch_request(j->watch, NULL);
    og_request_free(j->request);
    og_engine_destroy(j->engine);
    og__output_abort(&j->out);
    og__watch_destroy(j->watch);
    og__layers_free(j->layers);
    json_decref(j->fields);
    og_plan_destroy(j->plan);
}

static int run(og__cli *cli) {
    job j = {.cli = cli};
    const char *pipeline;
    int rc = og__plan_args(cli, &pipeline);
    if (rc == 0 && cli->args.help) {
        og__print_help(cli, stdout);
        return OG__EXIT_OK;
    }
    if (rc == 0 && og__args_has(&cli->args, "batch")) return og__batch(cli, pipeline);
    if (rc == 0) rc = prepare(&j, pipeline);
    if (rc == 0) rc = work(&j);
    clean_up(&j);
    return rc;
}

static const og__opt options[] = {
    {"output", 'o', OG__VALUE, "FILE", NULL, OG__FILL_FILE, false,
     "where to: .wav, .flac, .mp3, .opus, .pcm, .raw, .json (facts only), or - for "
     "standard output"},
    {"format", 'f', OG__VALUE, "FORMAT", "wav|wav_f32|flac|mp3|opus|pcm|json", OG__FILL_NONE,
     false, "format, where the file's name does not say it"},
    {"request", 'r', OG__VALUE, "JSON", NULL, OG__FILL_NONE, false,
     "the request's fields as JSON, or @FILE; flags come over it"},
    {"seed", 0, OG__VALUE, "N", NULL, OG__FILL_NONE, false,
     "same seed, same result (default: drawn, and told)"},
    {"batch", 0, OG__VALUE, "FILE.jsonl", NULL, OG__FILL_FILE, false,
     "many requests: a line holds request fields, output and perhaps seed; -o is then the "
     "folder of the outputs. Done lines are skipped when run again"},
    {"in-flight", 0, OG__VALUE, "N", NULL, OG__FILL_NONE, false,
     "with --batch: lines under way at a time (default 16)"},
    {"in-order", 0, OG__SWITCH, NULL, NULL, OG__FILL_NONE, false,
     "with --batch: print the results in the order of the lines"},
    OG__PLAN_OPTIONS,
    {"tap", 0, OG__VALUE, "STAGE.PORT=FILE", NULL, OG__FILL_NONE, true,
     "write what passed a port as .npy"},
    {"tap-layers", 0, OG__VALUE, "DIR", NULL, OG__FILL_DIR, false,
     "for developers: write every named tensor; see 'inspect diff'"},
    {"stats", 0, OG__SWITCH, NULL, NULL, OG__FILL_NONE, false,
     "tables of slots, pages, memory and time at the end"},
    {"quiet", 'q', OG__SWITCH, NULL, NULL, OG__FILL_NONE, false, "only errors on stderr"},
    {0},
};

static const char *const examples[] = {
    "omni-graph run qwen3_tts --text \"Good morning.\" --voice rms --language english "
    "-o out.wav",
    "echo \"Good morning.\" | omni-graph run qwen3_tts --text - --voice rms -o - | aplay",
    "omni-graph run qwen3_tts --model DIR --text hi --greedy "
    "--tap talker.codes=codes.npy -o out.flac",
    "omni-graph run qwen3_tts --batch lines.jsonl -o out --set talker.num_replicas=2",
    "omni-graph run qwen3_tts --help     (with the fields of its requests)",
    NULL,
};

const og__cmd og__cmd_run = {
    .name = "run",
    .usage = "PIPELINE [--FIELD VALUE ...] [OPTIONS] -o FILE",
    .brief = "run one request through a pipeline and write its audio",
    .doc =
        "PIPELINE is a name (qwen3_tts) or a file. Its request fields are options: "
        "underscores become dashes, a bool needs no value, a list field may be given "
        "several times, and the text - is read from standard input. Without --model the "
        "embedded default checkpoint is used.",
    .options = options,
    .fill = OG__FILL_PIPELINE,
    .min_pos = 1,
    .max_pos = 1,
    .overlay_flags = true,
    .fields = true,
    .examples = examples,
    .run = run,
};
