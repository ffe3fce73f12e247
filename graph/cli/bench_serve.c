/* `bench serve`: load on a speech server, and what its listeners got. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/cli/bench_cli.h"
#include "graph/spec/schema.h"

#define DEFAULT_URL "http://127.0.0.1:8000"
#define SPEECH "/v1/audio/speech"
#define N_DEFAULT 1000

typedef struct serve {
    og__cli *cli;
    og__bench b;
    json_t *extra;
    const char *endpoint, *save;
    og_str headers;
} serve;

static const char *get(const serve *s, const char *name) {
    return og__args_get(&s->cli->args, name);
}

static const char *either(const serve *s, const char *a, const char *b) {
    const char *v = get(s, a);
    return v ? v : get(s, b);
}

/* A number from low to high; 0 and *out as it was when it was not given. */
static int real(const serve *s, const char *name, double low, double high, double *out) {
    const char *text = get(s, name);
    if (!text) return 0;
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !(v >= low && v <= high))
        return og__usage(s->cli, "--%s must be a number from %g to %g, not '%s'", name, low,
                         high, text);
    *out = v;
    return 0;
}

static int whole(const serve *s, const char *name, long long low, long long high, int *out) {
    long long v = *out;
    int rc = og__args_int(s->cli, name, low, high, &v);
    *out = (int)v;
    return rc;
}

/* ---- the server --------------------------------------------------------------- */

static int read_url(serve *s) {
    og_err err = OG_ERR_INIT;
    const char *url = get(s, "base-url"), *host = get(s, "host"), *port = get(s, "port");
    if (url && (host || port))
        return og__usage(s->cli, "--base-url says host and port already");
    if (!url && (host || port))
        url = og_arena_printf(s->cli->arena, strchr(host ? host : "", ':') ? "[%s]:%s" : "%s:%s",
                              host ? host : "127.0.0.1", port ? port : "8000");
    if (og__url_parse(url ? url : DEFAULT_URL, &s->b.load.url, &err) < 0)
        return og__report(&err);
    /* Clients are told a base with /v1, servers one without: both mean the same. */
    char *path = s->b.load.url.path;
    size_t n = strlen(path);
    s->endpoint = get(s, "endpoint") ? get(s, "endpoint") : SPEECH;
    if (s->endpoint[0] != '/')
        return og__usage(s->cli, "--endpoint begins with '/', not '%s'", s->endpoint);
    if (n >= 3 && !strcmp(path + n - 3, "/v1") && !strncmp(s->endpoint, "/v1/", 4))
        path[n - 3] = 0;
    s->b.load.path = s->endpoint;
    s->b.load.api_key = get(s, "api-key");
    if (!s->b.load.api_key) s->b.load.api_key = getenv("OPENAI_API_KEY");
    return 0;
}

static int read_headers(serve *s) {
    int n;
    const char *const *all = og__args_all(s->cli, "header", &n);
    for (int i = 0; all && i < n; i++) {
        const char *eq = strpbrk(all[i], "=:");
        if (!eq || eq == all[i] || strpbrk(all[i], "\r\n"))
            return og__usage(s->cli, "--header is NAME=VALUE, not '%s'", all[i]);
        const char *v = eq + 1 + strspn(eq + 1, " ");
        og_str_addf(&s->headers, "%.*s: %s\r\n", (int)(eq - all[i]), all[i], v);
    }
    s->b.load.headers = s->headers.data;
    return 0;
}

/* The model that the server names first, if it has a list. */
static void ask_model(serve *s) {
    og_str body = OG_STR_INIT;
    og_err err = OG_ERR_INIT;
    if (s->b.model) return;
    int status = og__load_get(&s->b.load.url, "/v1/models", s->b.load.api_key, 10, &body, &err);
    json_t *j = status == 200 && body.data ? json_loadb(body.data, body.len, 0, NULL) : NULL;
    const json_t *first = json_array_get(json_object_get(j, "data"), 0);
    const char *id = json_string_value(json_object_get(first, "id"));
    if (id) s->b.model = og_arena_strdup(s->cli->arena, id);
    json_decref(j);
    og_str_free(&body);
}

/* ---- what is asked for -------------------------------------------------------- */

static int read_backend(serve *s) {
    const char *backend = get(s, "backend");
    if (!backend || !strcmp(backend, "openai-audio-speech")) return 0;
    og__usage(s->cli, "--backend '%s' cannot be measured yet", backend);
    return og__hint("this client speaks to /v1/audio/speech: openai-audio-speech");
}

static int read_extra(serve *s) {
    const char *text = get(s, "extra-body");
    json_error_t e;
    if (!text) return 0;
    s->extra = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    if (!s->extra)
        return og__usage(s->cli, "--extra-body is not JSON: %s (column %d)", e.text, e.column);
    if (!json_is_object(s->extra))
        return og__usage(s->cli, "--extra-body is a JSON object: {\"voice\": \"Vivian\"}");
    s->b.extra = s->extra;
    return 0;
}

static int read_frames(serve *s) {
    const char *text = get(s, "frames");
    og__bench *b = &s->b;
    if (text && !strcmp(text, "text"))
        b->frames = -1;
    else if (text && whole(s, "frames", 1, 1000000, &b->frames))
        return OG__EXIT_USAGE;
    int rc = whole(s, "frame-samples", 1, 1000000, &b->frame_samples);
    if (!rc) rc = real(s, "frame-rate", 0.01, 10000, &b->frames_per_second);
    if (!rc && get(s, "frame-samples")) b->load.multiple = b->frame_samples;
    return rc;
}

static int read_request(serve *s) {
    og__bench *b = &s->b;
    const char *stream = get(s, "stream"), *format = get(s, "response-format");
    b->model = get(s, "model");
    b->voice = get(s, "voice");
    b->language = get(s, "language");
    b->instructions = get(s, "instructions");
    b->label = get(s, "label");
    if (stream)
        b->stream = !strcmp(stream, "sse")    ? OG__STREAM_SSE
                    : !strcmp(stream, "none") ? OG__STREAM_NONE
                                              : OG__STREAM_AUDIO;
    if (format) b->format = format;
    if (b->stream != OG__STREAM_NONE && strcmp(b->format, "pcm") && strcmp(b->format, "wav"))
        return og__usage(s->cli, "a stream is pcm or wav, not %s: add --stream none",
                         b->format);
    int rc = read_backend(s);
    if (!rc) rc = read_extra(s);
    if (!rc) rc = read_frames(s);
    if (!rc) rc = whole(s, "sample-rate", 1000, 768000, &b->load.rate);
    if (!rc) rc = whole(s, "channels", 1, 16, &b->load.channels);
    if (!rc) rc = real(s, "audible", -120, 0, &b->load.audible_dbfs);
    return rc;
}

/* ---- texts -------------------------------------------------------------------- */

static int random_set(serve *s) {
    og_err err = OG_ERR_INIT;
    int words = 24, low, high;
    double ratio = 0;
    int rc = whole(s, "random-input-len", 1, 100000, &words);
    if (!rc) rc = real(s, "random-range-ratio", 0, 1, &ratio);
    if (rc) return rc;
    low = (int)floor(words * (1 - ratio));
    high = (int)ceil(words * (1 + ratio));
    if (og__set_random(s->cli->arena, s->b.seed, s->b.n, low, high, &s->b.set, &err) < 0)
        return og__report(&err);
    s->b.shuffle = false;
    return 0;
}

static int read_set(serve *s) {
    og_err err = OG_ERR_INIT;
    const char *path = get(s, "dataset-path"), *name = either(s, "dataset", "dataset-name");
    bool random = name && !strcmp(name, "random");
    if (random) return random_set(s);
    if (name && !strncmp(name, "seed-tts", 8) && !path)
        return og__usage(s->cli, "--dataset-name %s needs --dataset-path FILE", name);
    if (path) name = path;
    if (og__set_load(s->cli->arena, name ? name : "english", &s->b.set, &err) < 0) {
        if (err.code == OG_ENOENT)
            og_err_hint(&err, "built in are: english, english-design, random");
        return og__report(&err);
    }
    for (int i = 0; i < s->b.set.n; i++) s->b.clone |= s->b.set.prompts[i].ref_audio != NULL;
    if (og__args_has(&s->cli->args, "disable-shuffle")) s->b.shuffle = false;
    return 0;
}

/* ---- load --------------------------------------------------------------------- */

static int read_rate(serve *s) {
    const char *rate = get(s, "request-rate");
    if (rate && strcmp(rate, "inf")) {
        int rc = real(s, "request-rate", 1e-6, 1e6, &s->b.rate);
        if (rc) return rc;
    }
    int rc = real(s, "burstiness", 0.01, 1000, &s->b.burstiness);
    if (!rc && get(s, "burstiness") && isinf(s->b.rate))
        rc = og__usage(s->cli, "--burstiness needs a --request-rate that is not inf");
    return rc;
}

static int read_load(serve *s) {
    og__bench *b = &s->b;
    og_err err = OG_ERR_INIT;
    long long seed = 0;
    b->n = N_DEFAULT;
    int rc = whole(s, "num-prompts", 1, 10000000, &b->n);
    if (!rc) rc = whole(s, "max-concurrency", 1, 100000, &b->load.max_concurrency);
    if (!rc) rc = read_rate(s);
    b->warmup = b->load.max_concurrency > 0 && b->load.max_concurrency < 8
                    ? b->load.max_concurrency
                    : 2;
    if (!rc) rc = whole(s, get(s, "warmup") ? "warmup" : "num-warmups", 0, 100000, &b->warmup);
    if (!rc) rc = og__args_int(s->cli, "seed", 0, INT64_MAX, &seed);
    if (!rc) rc = real(s, "timeout", 0.001, 86400, &b->load.timeout_s);
    b->seed = (uint64_t)seed;
    if (!rc && get(s, "goodput")) {
        b->n_limits = og__limits_parse(get(s, "goodput"), b->limits, &err);
        if (b->n_limits < 0) rc = og__report(&err);
    }
    if (!rc && get(s, "metric-percentiles")) {
        b->n_percentiles =
            og__percentiles_parse(get(s, "metric-percentiles"), b->percentiles, &err);
        if (b->n_percentiles < 0) rc = og__report(&err);
    }
    b->detailed = og__args_has(&s->cli->args, "save-detailed");
    return rc;
}

/* ---- result ------------------------------------------------------------------- */

/* -o FILE, or the public client's --save-result with folder and name. */
static int read_output(serve *s) {
    og_err err = OG_ERR_INIT;
    const char *dir = get(s, "result-dir"), *name = get(s, "result-filename");
    s->save = get(s, "output");
    if (s->save && (dir || name))
        return og__usage(s->cli, "-o says folder and name already");
    if (!s->save && (dir || name || og__args_has(&s->cli->args, "save-result")))
        s->save = og_arena_printf(s->cli->arena, "%s%s%s", dir ? dir : "", dir ? "/" : "",
                                  name ? name : "result_speech.json");
    if (s->save && strcmp(s->save, "-") && og__can_write(s->save, &err) < 0)
        return og__report(&err);
    return 0;
}

static int save(const serve *s, const json_t *result) {
    og_err err = OG_ERR_INIT;
    char *text = json_dumps(result, JSON_INDENT(2));
    og_str out = OG_STR_INIT;
    if (text)
        og_str_addf(&out, "%s\n", text);
    else
        out.oom = 1;
    free(text);
    if (!strcmp(s->save, "-")) return og__print_str(&out);
    int rc = out.oom ? og_err_set(&err, OG_ENOMEM, "out of memory")
                     : og__write_file(s->save, out.data, out.len, &err);
    og_str_free(&out);
    return rc < 0 ? og__report(&err) : 0;
}

static int show(const serve *s, const json_t *result) {
    int rc = s->save ? save(s, result) : 0;
    og_str text = OG_STR_INIT;
    if (rc || (s->save && !strcmp(s->save, "-")) || og__args_has(&s->cli->args, "quiet"))
        return rc;
    og__result_text(result, &text);
    rc = og__print_str(&text);
    if (s->save && rc == 0) fprintf(stderr, "%s\n", s->save);
    return rc;
}

/* Every body, one a line, and nothing is sent. */
static int dry_run(serve *s) {
    og_err err = OG_ERR_INIT;
    og_str out = OG_STR_INIT;
    og__job *jobs = og_arena_alloc(s->cli->arena, (size_t)s->b.n * sizeof *jobs);
    int rc = jobs ? og__bench_jobs(&s->b, s->cli->arena, s->b.n, jobs, &err)
                  : og_err_set(&err, OG_ENOMEM, "out of memory");
    if (rc < 0) return og__report(&err);
    for (int i = 0; i < s->b.n; i++) og_str_addf(&out, "%s\n", jobs[i].body);
    return og__print_str(&out);
}

static int measure(serve *s) {
    og_err err = OG_ERR_INIT;
    json_t *result;
    s->b.load.stop_fd = og__bench_stop_fd();
    bool live = isatty(STDERR_FILENO) && !og__args_has(&s->cli->args, "quiet");
    if (live) s->b.load.progress = og__bench_progress;
    int rc = og__load_reach(&s->b.load.url, 10, &err);
    if (rc == 0) ask_model(s);
    if (rc == 0) rc = og__bench_run(&s->b, &result, &err);
    if (live) og__bench_progress_clear();
    if (s->b.load.stop_fd >= 0) close(s->b.load.stop_fd);
    if (rc < 0 && rc != OG_ECANCELED) {
        og__report(&err);
        return rc == OG_ENOMEM || rc == OG_EIO || rc == OG_EREJECT ? OG__EXIT_FAILED
                                                                   : og__exit_code(rc);
    }
    int code = result ? show(s, result) : 0;
    bool whole_run = result && json_integer_value(json_object_get(result, "completed")) ==
                                   json_integer_value(json_object_get(result, "num_prompts"));
    json_decref(result);
    if (rc == OG_ECANCELED) return OG__EXIT_SIGNAL;
    return code ? code : whole_run ? OG__EXIT_OK : OG__EXIT_FAILED;
}

static int run(og__cli *cli) {
    serve s = {.cli = cli, .b = OG__BENCH};
    int rc = read_url(&s);
    if (!rc) rc = read_headers(&s);
    if (!rc) rc = read_request(&s);
    if (!rc) rc = read_load(&s);
    if (!rc) rc = read_set(&s);
    if (!rc) rc = read_output(&s);
    if (!rc) rc = og__args_has(&cli->args, "dry-run") ? dry_run(&s) : measure(&s);
    json_decref(s.extra);
    og_str_free(&s.headers);
    return rc;
}

#define VALUE(name, arg, doc) {name, 0, OG__VALUE, arg, NULL, OG__FILL_NONE, false, doc}
#define WORDS(name, arg, words, doc) {name, 0, OG__VALUE, arg, words, OG__FILL_NONE, false, doc}
#define PATH(name, letter, kind, doc) {name, letter, OG__VALUE, "PATH", NULL, kind, false, doc}
#define SWITCH(name, doc) {name, 0, OG__SWITCH, NULL, NULL, OG__FILL_NONE, false, doc}

static const og__opt options[] = {
    VALUE("base-url", "URL", "the server (default: " DEFAULT_URL "); http only"),
    VALUE("host", "ADDR", "instead of --base-url"),
    VALUE("port", "N", "instead of --base-url"),
    VALUE("endpoint", "PATH", "(default: " SPEECH ")"),
    VALUE("backend", "NAME", "openai-audio-speech, the only one so far"),
    VALUE("api-key", "KEY", "sent as a bearer token (default: $OPENAI_API_KEY)"),
    {"header", 0, OG__VALUE, "NAME=VALUE", NULL, OG__FILL_NONE, true, "a further header"},
    VALUE("model", "NAME", "(default: the first of /v1/models)"),
    VALUE("voice", "NAME", "of every request"),
    VALUE("language", "NAME", "of every request"),
    VALUE("instructions", "TEXT", "of every request"),
    VALUE("extra-body", "JSON", "further keys of every request: {\"task_type\": \"Base\"}"),
    WORDS("stream", "HOW", "audio|sse|none",
          "raw audio, events, or the answer as a whole (default: audio)"),
    VALUE("response-format", "FORMAT", "pcm, wav, mp3, ... (default: pcm)"),
    {"num-prompts", 'n', OG__VALUE, "N", NULL, OG__FILL_NONE, false,
     "requests (default: 1000)"},
    {"max-concurrency", 'c', OG__VALUE, "N", NULL, OG__FILL_NONE, false,
     "requests in flight: with it alone, a closed loop"},
    {"request-rate", 'r', OG__VALUE, "R", NULL, OG__FILL_NONE, false,
     "requests a second, an open loop; inf: all at once (default: inf)"},
    VALUE("burstiness", "K", "shape of the gaps: 1 Poisson, less: bursts (default: 1)"),
    VALUE("warmup", "N", "requests before, not measured (default: up to 8)"),
    VALUE("num-warmups", "N", "the same"),
    VALUE("seed", "N", "of texts, order and arrivals (default: 0)"),
    VALUE("timeout", "SECONDS", "for one request (default: 600)"),
    PATH("dataset", 0, OG__FILL_FILE,
         "english, english-design, random, or a file of lines (default: english)"),
    VALUE("dataset-name", "NAME", "the same; seed-tts and its like need a --dataset-path"),
    PATH("dataset-path", 0, OG__FILL_FILE, "a file of lines (.txt, .jsonl, .lst)"),
    VALUE("random-input-len", "N", "words of a random text (default: 24)"),
    VALUE("random-range-ratio", "X", "how much longer or shorter, 0 to 1 (default: 0)"),
    SWITCH("disable-shuffle", "texts in their order"),
    VALUE("frames", "N|text",
          "length of every answer (by max_new_tokens; the server must not end it before), "
          "checked to the sample; text: as long as a person takes"),
    VALUE("frame-samples", "N", "samples of a frame; answers are multiples (default: 1920)"),
    VALUE("frame-rate", "X", "frames a second, for --frames text (default: 12.5)"),
    VALUE("sample-rate", "HZ", "of PCM, unless the server says it (default: 24000)"),
    VALUE("channels", "N", "of PCM (default: 1)"),
    VALUE("audible", "DBFS", "loudness of the first audible sample (default: -50)"),
    VALUE("goodput", "LIMITS", "\"ttfp:50 e2el:1000\": requests within them, a second"),
    VALUE("metric-percentiles", "LIST", "(default: 50,90,95,99)"),
    VALUE("percentile-metrics", "LIST", "accepted; all metrics are always there"),
    VALUE("label", "TEXT", "kept in the result"),
    PATH("output", 'o', OG__FILL_FILE, "the result as JSON; - for standard output"),
    SWITCH("save-result", "the same, as result_speech.json"),
    PATH("result-dir", 0, OG__FILL_DIR, "its folder"),
    PATH("result-filename", 0, OG__FILL_FILE, "its name"),
    SWITCH("save-detailed", "every request is in the result"),
    SWITCH("omni", "accepted"),
    SWITCH("dry-run", "print the bodies, send nothing"),
    {"quiet", 'q', OG__SWITCH, NULL, NULL, OG__FILL_NONE, false, "no table, no progress"},
    {0},
};

static const char *const examples[] = {
    "omni-graph bench serve -c 8 -n 80 --voice Vivian --language English",
    "omni-graph bench serve -r 20 -n 1000 --frames text --goodput \"ttfp:50 underrun:0\" -o "
    "r.json",
    "omni-graph bench serve --base-url http://10.0.0.7:8091/v1 --stream sse --dataset texts.txt",
    NULL,
};

const og__cmd og__cmd_bench_serve = {
    .name = "bench serve",
    .usage = "[OPTIONS]",
    .brief = "load on a speech server over HTTP, and what its listeners got",
    .doc = "Speaks to any server that has /v1/audio/speech. Exit code 1 when a request "
           "failed or the server cannot be reached. Definitions of the figures: "
           "docs/benchmarks.md, Serving.",
    .options = options,
    .examples = examples,
    .run = run,
};
