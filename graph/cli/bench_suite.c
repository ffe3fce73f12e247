/* `bench suite`: the public performance suites against our own server, or any other. */
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "graph/cli/bench/report.h"
#include "graph/cli/bench_suite.h"

#define DEFAULT_HARDWARE "H100" /* of the public files, where nothing is said */

static const char *get(const og__suite_cmd *c, const char *name) {
    return og__args_get(&c->cli->args, name);
}

/* ---- options ------------------------------------------------------------------ */

static int seconds(const og__suite_cmd *c, const char *name, double low, double *out) {
    const char *s = get(c, name);
    if (!s) return 0;
    char *end;
    double v = strtod(s, &end);
    if (end == s || *end || !(v >= low && v <= 1e7))
        return og__usage(c->cli, "--%s must be a number from %g, not '%s'", name, low, s);
    *out = v;
    return 0;
}

static int read_numbers(og__suite_cmd *c) {
    long long seed = 0, most = 0, frames = 0;
    const char *f = get(c, "frames");
    c->timeout_s = 600;
    c->start_timeout_s = 600;
    int rc = seconds(c, "tolerance", 0, &c->tolerance);
    if (!rc) rc = seconds(c, "timeout", 0.001, &c->timeout_s);
    if (!rc) rc = seconds(c, "start-timeout", 0.1, &c->start_timeout_s);
    if (!rc) rc = seconds(c, "duration", 0.001, &c->duration_s);
    if (!rc) rc = og__args_int(c->cli, "seed", 0, INT64_MAX, &seed);
    if (!rc) rc = og__args_int(c->cli, "num-prompts", 1, 10000000, &most);
    if (!rc && f && strcmp(f, "text")) rc = og__args_int(c->cli, "frames", 1, 1000000, &frames);
    c->seed = (uint64_t)seed;
    c->most = (int)most;
    c->frames = f && !strcmp(f, "text") ? -1 : (int)frames;
    return rc;
}

static int read_extra(og__suite_cmd *c) {
    const char *text = get(c, "extra-body");
    json_error_t e;
    if (!text) return 0;
    c->extra = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    if (!c->extra)
        return og__usage(c->cli, "--extra-body is not JSON: %s (column %d)", e.text, e.column);
    return json_is_object(c->extra) ? 0 : og__usage(c->cli, "--extra-body is a JSON object");
}

static int make_folder(og__suite_cmd *c) {
    const char *slash = strrchr(c->suite.path, '/');
    const char *name = slash ? slash + 1 : c->suite.path, *dot = strrchr(name, '.');
    struct stat st;
    c->out = get(c, "out") ? get(c, "out") : "bench-suite";
    c->stem = og_arena_strndup(c->cli->arena, name,
                               dot && dot > name ? (size_t)(dot - name) : strlen(name));
    if (c->list || (stat(c->out, &st) == 0 && S_ISDIR(st.st_mode))) return 0;
    if (mkdir(c->out, 0777) < 0)
        return og__usage(c->cli, "cannot make the folder '%s': %s", c->out, strerror(errno));
    return 0;
}

static int read_options(og__suite_cmd *c) {
    og_err err = OG_ERR_INIT;
    int n;
    const char *const *maps = og__args_all(c->cli, "checkpoint", &n);
    for (int i = 0; maps && i < n; i++)
        if (!strchr(maps[i], '='))
            return og__usage(c->cli, "--checkpoint is MODEL=DIR, not '%s'", maps[i]);
    c->base_url = get(c, "base-url");
    c->api_key = get(c, "api-key") ? get(c, "api-key") : getenv("OPENAI_API_KEY");
    c->hardware = get(c, "hardware") ? get(c, "hardware") : DEFAULT_HARDWARE;
    c->dataset = get(c, "dataset");
    c->quiet = og__args_has(&c->cli->args, "quiet");
    c->list = og__args_has(&c->cli->args, "list");
    if (c->base_url && og__url_parse(c->base_url, &c->url, &err) < 0) return og__report(&err);
    size_t len = strlen(c->url.path); /* ".../v1" is what clients are told */
    if (len >= 3 && !strcmp(c->url.path + len - 3, "/v1")) c->url.path[len - 3] = 0;
    if (c->base_url && !c->list && og__load_reach(&c->url, 10, &err) < 0) {
        og__report(&err);
        return OG__EXIT_FAILED;
    }
    int rc = read_numbers(c);
    if (!rc) rc = read_extra(c);
    return rc ? rc : make_folder(c);
}

/* ---- entries ------------------------------------------------------------------ */

static bool chosen(const og__suite_cmd *c, const char *name) {
    int n;
    const char *const *all = og__args_all(c->cli, "test", &n);
    for (int i = 0; all && i < n; i++)
        if (fnmatch(all[i], name, 0) == 0) return true;
    return n == 0;
}

static void runs_not(const og__suite_cmd *c, const og__suite_entry *e, const char *verdict,
                     const char *why, json_t *runs) {
    for (int i = 0; i < e->n_runs; i++) {
        const og__suite_run *r = &c->suite.runs[e->first + i];
        json_array_append_new(runs, og__suite_run_not(c, r, r->skip ? "skipped" : verdict,
                                                      r->skip ? r->skip : why));
    }
}

static void tell_run(const og__suite_cmd *c, const json_t *run) {
    const json_t *r = json_object_get(run, "result");
    if (c->quiet || !r) return;
    fprintf(stderr, "  %lld of %lld done, first packet %.1f ms, %.1f audio-s/s\n",
            (long long)json_integer_value(json_object_get(r, "completed")),
            (long long)json_integer_value(json_object_get(r, "num_prompts")),
            json_number_value(json_object_get(r, "median_audio_ttfp_ms")),
            json_number_value(json_object_get(r, "audio_throughput")));
}

static void all_runs(og__suite_cmd *c, const og__suite_entry *e, json_t *runs) {
    for (int i = 0; i < e->n_runs; i++) {
        const og__suite_run *r = &c->suite.runs[e->first + i];
        json_t *one = r->skip      ? og__suite_run_not(c, r, "skipped", r->skip)
                      : c->stopped ? og__suite_run_not(c, r, "skipped", "stopped")
                      : c->list    ? og__suite_run_not(c, r, "skipped", "to be run")
                                   : og__suite_run_one(c, r);
        tell_run(c, one);
        json_array_append_new(runs, one);
    }
}

static bool nothing_to_run(const og__suite_cmd *c, const og__suite_entry *e) {
    for (int i = 0; i < e->n_runs; i++)
        if (!c->suite.runs[e->first + i].skip) return false;
    return true;
}

/* A log need not be UTF-8. */
static json_t *words_json(const char *text) {
    json_t *s = json_string(text);
    return s ? s : json_string("(not UTF-8; see its log)");
}

static json_t *one_entry(og__suite_cmd *c, const og__suite_entry *e) {
    og_err err = OG_ERR_INIT;
    json_t *j = json_object(), *runs = json_array();
    const char *skip = e->skip;
    bool wanted = chosen(c, e->name);
    if (!wanted) skip = "not asked for";
    if (!skip && nothing_to_run(c, e)) skip = c->suite.runs[e->first].skip;
    if (!skip && c->stopped) skip = "stopped";
    if (!skip && !c->quiet && !c->list) fprintf(stderr, "%s\n", e->name);
    int rc = skip ? 1 : og__suite_server(c, e, &skip, &err);
    if (rc == OG_ECANCELED) c->stopped = true;
    if (rc < 0 && !c->quiet) og__report(&err);
    if (rc == 0)
        all_runs(c, e, runs);
    else
        runs_not(c, e, rc < 0 && !c->stopped ? "fail" : "skipped",
                 rc < 0 ? "its server was not ready" : skip, runs);
    json_object_set_new(j, "test_name", json_string(e->name));
    json_object_set_new(j, "model", e->model ? json_string(e->model) : json_null());
    json_object_set_new(j, "skipped", skip ? json_string(skip) : json_null());
    if (rc < 0) json_object_set_new(j, "failed", words_json(err.msg));
    if (rc == 0 && c->line) json_object_set_new(j, "server", json_string(c->line));
    if (rc == 0 && c->base_url) json_object_set_new(j, "server", json_string(c->base_url));
    if (rc == 0 && c->process) json_object_set_new(j, "start_s", json_real(c->start_s));
    json_object_set_new(j, "runs", runs);
    return j;
}

/* ---- report ------------------------------------------------------------------- */

static void count(json_t *t, const char *key) {
    json_int_t n = json_integer_value(json_object_get(t, key));
    json_object_set_new(t, key, json_integer(n + 1));
}

static void totals(json_t *report) {
    static const char *const keys[] = {"runs", "pass", "fail", "skipped", "baseline_pass",
                                       "baseline_fail", "baseline_na"};
    json_t *t = json_object(), *entry, *run, *b;
    size_t i, k, m;
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
        json_object_set_new(t, keys[n], json_integer(0));
    json_array_foreach(json_object_get(report, "entries"), i, entry)
        json_array_foreach(json_object_get(entry, "runs"), k, run) {
            count(t, "runs");
            count(t, json_string_value(json_object_get(run, "verdict")));
            json_array_foreach(json_object_get(run, "baseline"), m, b) {
                const char *v = json_string_value(json_object_get(b, "verdict"));
                count(t, !strcmp(v, "pass")   ? "baseline_pass"
                         : !strcmp(v, "fail") ? "baseline_fail"
                                              : "baseline_na");
            }
        }
    json_object_set_new(report, "totals", t);
}

static json_t *head(const og__suite_cmd *c) {
    char date[64];
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &tm);
    json_t *j = json_object();
    json_object_set_new(j, "suite", json_string(c->stem));
    json_object_set_new(j, "date", json_string(date));
    json_object_set_new(j, "hardware", json_string(c->hardware));
    json_object_set_new(j, "program", json_string("omni-graph " OG_VERSION));
    json_object_set_new(j, "tolerance", json_real(c->tolerance));
    json_object_set_new(j, "entries", json_array());
    return j;
}

static int write_one(const og__suite_cmd *c, const char *ending, og_str *s) {
    og_err err = OG_ERR_INIT;
    const char *path = og_arena_printf(c->cli->arena, "%s/%s.%s", c->out, c->stem, ending);
    int rc = s->oom || !path ? og_err_set(&err, OG_ENOMEM, "out of memory")
                             : og__write_file(path, s->data, s->len, &err);
    og_str_free(s);
    if (rc == 0 && !c->quiet) fprintf(stderr, "%s\n", path);
    return rc < 0 ? og__report(&err) : 0;
}

static int write_all(const og__suite_cmd *c, const json_t *report) {
    og_str json = OG_STR_INIT, csv = OG_STR_INIT, html = OG_STR_INIT;
    char *dump = json_dumps(report, JSON_INDENT(2));
    og_str_add(&json, dump ? dump : "");
    json.oom |= !dump;
    free(dump);
    og__report_csv(report, &csv);
    og__report_html(report, &html);
    int rc = write_one(c, "json", &json), rc2 = write_one(c, "csv", &csv);
    int rc3 = write_one(c, "html", &html);
    return rc ? rc : rc2 ? rc2 : rc3;
}

static int finish(const og__suite_cmd *c, json_t *report) {
    og_str text = OG_STR_INIT;
    totals(report);
    int rc = c->list ? 0 : write_all(c, report);
    og__report_text(report, &text);
    if (!c->quiet || c->list) rc = rc ? rc : og__print_str(&text);
    og_str_free(&text);
    const json_t *t = json_object_get(report, "totals");
    bool bad = json_integer_value(json_object_get(t, "fail")) > 0 ||
               (og__args_has(&c->cli->args, "assert-baseline") &&
                json_integer_value(json_object_get(t, "baseline_fail")) > 0);
    if (c->stopped) return OG__EXIT_SIGNAL;
    return rc ? rc : bad ? OG__EXIT_FAILED : OG__EXIT_OK;
}

static int run(og__cli *cli) {
    og__suite_cmd c = {.cli = cli, .stop_fd = -1};
    og_str warnings = OG_STR_INIT;
    og_err err = OG_ERR_INIT;
    if (og__suite_load(cli->arena, cli->args.pos[0], &c.suite, &warnings, &err) < 0) {
        og_str_free(&warnings);
        og__report(&err);
        return OG__EXIT_USAGE;
    }
    for (char *s = warnings.data; s && *s; s += strcspn(s, "\n") + 1)
        fprintf(stderr, "warning: %.*s\n", (int)strcspn(s, "\n"), s);
    og_str_free(&warnings);
    og__data_find(cli->arena, NULL, &c.data);
    int rc = read_options(&c);
    if (!rc) {
        json_t *report = head(&c), *entries = json_object_get(report, "entries");
        c.stop_fd = c.list ? -1 : og__bench_stop_fd();
        for (int i = 0; i < c.suite.n_entries; i++)
            json_array_append_new(entries, one_entry(&c, &c.suite.entries[i]));
        og__suite_server_stop(&c);
        rc = finish(&c, report);
        json_decref(report);
        if (c.stop_fd >= 0) close(c.stop_fd);
    }
    json_decref(c.extra);
    og__suite_free(&c.suite);
    return rc;
}

#define VALUE(name, arg, doc) {name, 0, OG__VALUE, arg, NULL, OG__FILL_NONE, false, doc}
#define PATH(name, arg, kind, many, doc) {name, 0, OG__VALUE, arg, NULL, kind, many, doc}
#define SWITCH(name, doc) {name, 0, OG__SWITCH, NULL, NULL, OG__FILL_NONE, false, doc}

static const og__opt options[] = {
    PATH("checkpoint", "MODEL=DIR", OG__FILL_DIR, true,
         "the folder of a model; MODEL may be a pattern: '*Qwen3-TTS*=DIR'"),
    PATH("checkpoints", "DIR", OG__FILL_DIR, false, "holds ORG/NAME or NAME of every model"),
    VALUE("pipeline", "NAME", "(default: the one of the checkpoint's model_type)"),
    PATH("deploy", "FILE", OG__FILL_FILE, false,
         "overlay of servers for which the file names none"),
    {"load-format", 0, OG__VALUE, "FORMAT", "auto|dummy", OG__FILL_NONE, false,
     "dummy: made-up weights"},
    {"backend", 0, OG__VALUE, "NAME", "ref|cpu|cuda", OG__FILL_NONE, false, "of every server"},
    VALUE("threads", "N", "of every server"),
    PATH("serve-arg", "ARG", OG__FILL_NONE, true, "a further word of the server's command line"),
    SWITCH("one-device", "leave out where the file places stages"),
    VALUE("base-url", "URL", "measure this server, and start none"),
    VALUE("api-key", "KEY", "(default: $OPENAI_API_KEY)"),
    SWITCH("any-model", "with --base-url: whatever model it serves"),
    PATH("test", "PATTERN", OG__FILL_NONE, true, "only entries whose test_name fits"),
    VALUE("hardware", "NAME", "whose baseline (default: " DEFAULT_HARDWARE ")"),
    VALUE("tolerance", "X", "0.05: 5 % worse is no miss (default: 0)"),
    SWITCH("assert-baseline", "exit code 1 when a baseline is missed"),
    VALUE("frames", "N|text", "length of every answer, as in bench serve"),
    PATH("dataset", "SET", OG__FILL_FILE, false, "in place of the file's texts"),
    VALUE("extra-body", "JSON", "keys that come over those of the file"),
    VALUE("num-prompts", "N", "at most so many in a run"),
    VALUE("duration", "SECONDS", "of a stability run, which is left out without it"),
    VALUE("seed", "N", "of texts, order and arrivals (default: 0)"),
    VALUE("timeout", "SECONDS", "for one request (default: 600)"),
    VALUE("start-timeout", "SECONDS", "until /health says ready (default: 600)"),
    PATH("out", "DIR", OG__FILL_DIR, false,
         "for NAME.json, .csv, .html and the servers' logs (default: bench-suite)"),
    SWITCH("list", "print what would be run"),
    {"quiet", 'q', OG__SWITCH, NULL, NULL, OG__FILL_NONE, false, "only errors"},
    {0},
};

static const char *const examples[] = {
    "omni-graph bench suite test_tts.json --checkpoints /models --hardware H200",
    "omni-graph bench suite test_tts.json --checkpoint '*Qwen3-TTS*=DIR' --load-format dummy "
    "--frames text --one-device",
    "omni-graph bench suite test_tts.json --base-url http://127.0.0.1:8091 --any-model",
    NULL,
};

const og__cmd og__cmd_bench_suite = {
    .name = "bench suite",
    .usage = "FILE.json [OPTIONS]",
    .brief = "run a public performance suite, and compare with its baselines",
    .doc = "Starts 'omni-graph serve' for every entry, sweeps over its loads and stops it again. "
           "What cannot be run here is listed with the reason. Exit code 1 when a run did not "
           "complete all its requests.",
    .options = options,
    .fill = OG__FILL_FILE,
    .min_pos = 1,
    .max_pos = 1,
    .examples = examples,
    .run = run,
};
