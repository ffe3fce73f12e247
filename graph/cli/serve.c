/* `serve`: pipelines behind an HTTP API. The process that the user starts is the parent: it
 * owns the listening socket and runs itself again as the worker (--listen-fd), which loads
 * the models. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "graph/cli/cli.h"
#include "graph/serve/serve.h"

#define FD_OPTION "listen-fd"
#define LOOK_S 1 /* between two looks at the devices */

typedef struct served {
    og_plan_options options;
    og_plan *plan;
    og_engine *engine;
    const char *name;
} served;

typedef struct serving {
    og__cli *cli;
    og_serve_opts opts;
    og_server *server;
    served models[OG_SERVE_MAX_MODELS];
    int n;
    const char *const *names; /* --served-model-name */
    int n_names;
    pthread_t signals;
    bool watching;
    atomic_bool leave, loaded; /* loaded: the engines stay as they are */
} serving;

/* ---- the log ---------------------------------------------------------------------------- */

static void print_line(void *arg, const char *line) {
    struct timespec t;
    struct tm tm;
    char when[32];
    (void)arg;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    fprintf(stderr, "%s.%03ldZ %s\n", when, t.tv_nsec / 1000000, line);
}

/* ---- options ------------------------------------------------------------------------------ */

static int read_seconds(og__cli *cli, const char *name, double *out) {
    const char *text = og__args_get(&cli->args, name);
    if (!text) return 0;
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !(v >= 0 && v <= 1e9))
        return og__usage(cli, "--%s must be a number of seconds, not '%s'", name, text);
    *out = v;
    return 0;
}

static int read_keys(serving *s) {
    const char *env = getenv("OMNI_GRAPH_API_KEY");
    int n;
    const char *const *given = og__args_all(s->cli, "api-key", &n);
    const char **keys = og_arena_alloc(s->cli->arena, (size_t)(n + 1) * sizeof *keys);
    if (!given || !keys) return og__usage(s->cli, "out of memory");
    for (int i = 0; i < n; i++) {
        if (!*given[i]) return og__usage(s->cli, "--api-key is empty");
        keys[i] = given[i];
    }
    if (env && *env) keys[n++] = env;
    s->opts.api_keys = keys;
    s->opts.n_api_keys = n;
    return 0;
}

static int read_options(serving *s) {
    og__cli *cli = s->cli;
    const og__args *a = &cli->args;
    og_serve_opts *o = &s->opts;
    *o = (og_serve_opts)OG_SERVE_OPTS_INIT;
    long long body = (long long)(o->max_body >> 20), workers = o->workers;
    long long connections = o->max_connections;
    int rc = read_keys(s);
    if (!rc) rc = og__args_int(cli, "max-body", 1, 4096, &body);
    if (!rc) rc = og__args_int(cli, "http-workers", 1, 256, &workers);
    if (!rc) rc = og__args_int(cli, "max-connections", 1, 1 << 20, &connections);
    if (!rc) rc = read_seconds(cli, "request-timeout", &o->request_timeout);
    if (!rc) rc = read_seconds(cli, "stall-timeout", &o->stall_timeout);
    if (!rc) rc = read_seconds(cli, "drain-timeout", &o->drain_timeout);
    if (rc) return rc;
    o->max_body = (size_t)body << 20;
    o->workers = (int)workers;
    o->max_connections = (int)connections;
    o->cors_origin = og__args_get(a, "cors-origin");
    o->tls_cert = og__args_get(a, "tls-cert");
    o->tls_key = og__args_get(a, "tls-key");
    o->voices_dir = og__args_get(a, "voices-dir");
    o->allow_files = og__args_has(a, "allow-files");
    o->quiet = og__args_has(a, "quiet");
    o->log = print_line;
    if (!o->tls_cert != !o->tls_key)
        return og__usage(cli, "--tls-cert and --tls-key go together");
    s->names = og__args_all(cli, "served-model-name", &s->n_names);
    return s->names ? 0 : og__usage(cli, "out of memory");
}

/* The k-th --model and --deploy are those of the k-th pipeline; a single one is of all. */
static const char *kth(const char *const *all, int n, int k) {
    return n == 1 ? all[0] : k < n ? all[k] : NULL;
}

static int read_models(serving *s) {
    og__cli *cli = s->cli;
    int n_models, n_deploys;
    const char *const *models = og__args_all(cli, "model", &n_models);
    const char *const *deploys = og__args_all(cli, "deploy", &n_deploys);
    s->n = cli->args.n_pos;
    if (!models || !deploys) return og__usage(cli, "out of memory");
    if (s->n > OG_SERVE_MAX_MODELS)
        return og__usage(cli, "too many pipelines (limit is %d)", OG_SERVE_MAX_MODELS);
    if ((n_models > 1 && n_models != s->n) || (n_deploys > 1 && n_deploys != s->n))
        return og__usage(cli, "--model and --deploy are given once, or once for each pipeline");
    for (int i = 0; i < s->n; i++) {
        served *m = &s->models[i];
        int rc = og__plan_options(cli, cli->args.pos[i], true, &m->options);
        if (rc) return rc;
        if (n_models) m->options.model = kth(models, n_models, i);
        if (n_deploys) m->options.deploy = kth(deploys, n_deploys, i);
    }
    return 0;
}

/* ---- the worker ------------------------------------------------------------------------------ */

static int make_plan(serving *s, served *m) {
    og_err err = OG_ERR_INIT;
    og_diags *d = og_diags_create();
    if (!d) return og__usage(s->cli, "out of memory");
    int rc = og_plan_build(&m->options, 0, d, &m->plan, &err);
    og__print_diags(d, OG_SEVERITY_WARNING);
    bool told = og_diags_errors(d) > 0;
    og_diags_destroy(d);
    if (rc == 0) return OG__EXIT_OK;
    if (!told) og__report(&err);
    return rc == OG_ENOMEM || rc == OG_EIO ? OG__EXIT_FAILED : OG__EXIT_USAGE;
}

static int load(serving *s, int index) {
    og_err err = OG_ERR_INIT;
    served *m = &s->models[index];
    og_engine_opts opts = {0};
    long long queue = 0;
    int rc = og__args_int(s->cli, "max-queue", 1, 1 << 20, &queue);
    if (rc) return rc;
    opts.max_queue = (int)queue;
    rc = make_plan(s, m);
    if (rc) return rc;
    if (og_engine_create(m->plan, &opts, &m->engine, &err) < 0) return og__report(&err);
    bool own = index == 0 && s->n_names > 0;
    m->name = own ? s->names[0] : m->plan->name;
    og_serve_model sm = {.name = m->name,
                         .engine = m->engine,
                         .options = &m->options,
                         .watch = !og__args_has(&s->cli->args, "no-watch")};
    if (own) {
        sm.aliases = s->names + 1;
        sm.n_aliases = s->n_names - 1;
    }
    if (og_server_add(s->server, &sm, &err) < 0) return og__report(&err);
    og_engine_stats es;
    og_engine_get_stats(m->engine, &es);
    char line[512];
    snprintf(line, sizeof line, "loaded model=%s pipeline=%s checkpoint=\"%s\" time=%.2f",
             m->name, m->plan->name, m->options.model ? m->options.model : "", es.load_s);
    print_line(NULL, line);
    return 0;
}

/* What this process has lost for good, the next one may find again: the parent starts it. */
static void look_for_losses(serving *s) {
    for (int i = 0; i < s->n && atomic_load(&s->loaded); i++) {
        og_engine_stats es;
        char why[256];
        og_engine_get_stats(s->models[i].engine, &es);
        if (es.lost == 0) continue;
        snprintf(why, sizeof why, "a device of model '%s' is lost", s->models[i].name);
        og_server_break(s->server, why);
        print_line(NULL, why);
        atomic_store(&s->loaded, false);
    }
}

static void *watch_signals(void *arg) {
    serving *s = arg;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    for (int hits = 0; !atomic_load(&s->leave);) {
        int sig = sigtimedwait(&set, NULL, &(struct timespec){.tv_sec = LOOK_S});
        if (sig < 0) look_for_losses(s);
        if (sig < 0 || atomic_load(&s->leave)) continue;
        if (sig == SIGHUP) {
            og_server_reload(s->server);
            continue;
        }
        if (++hits > 1) _exit(OG__EXIT_SIGNAL); /* asked twice: now */
        print_line(NULL, "draining");
        og_server_drain(s->server);
    }
    return NULL;
}

static int start_watch(serving *s) {
    s->watching = pthread_create(&s->signals, NULL, watch_signals, s) == 0;
    return s->watching ? 0 : OG__EXIT_FAILED;
}

static void stop_watch(serving *s) {
    if (!s->watching) return;
    atomic_store(&s->leave, true);
    pthread_kill(s->signals, SIGHUP);
    pthread_join(s->signals, NULL);
}

static void block_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static int work(serving *s, int fd) {
    og_err err = OG_ERR_INIT;
    block_signals();
    if (og_server_create(&s->opts, fd, &s->server, &err) < 0) return og__report(&err);
    int rc = start_watch(s);
    for (int i = 0; i < s->n && rc == 0; i++) rc = load(s, i);
    if (rc == 0) {
        atomic_store(&s->loaded, true);
        og_server_ready(s->server);
        print_line(NULL, "ready");
        int ended = og_server_wait(s->server);
        rc = ended == OG_EDEVICE ? OG_SERVE_EXIT_AGAIN : OG__EXIT_OK;
        print_line(NULL, ended == OG_ETIMEOUT ? "stopped, requests were cut" : "stopped");
    }
    stop_watch(s);
    og_server_destroy(s->server);
    for (int i = 0; i < s->n; i++) {
        og_engine_destroy(s->models[i].engine);
        og_plan_destroy(s->models[i].plan);
    }
    return rc;
}

/* ---- the parent -------------------------------------------------------------------------------- */

static char **worker_argv(og__cli *cli) {
    char **argv = og_arena_alloc(cli->arena, (size_t)(cli->argc + 6) * sizeof *argv);
    int n = 0;
    if (!argv) return NULL;
    argv[n++] = "omni-graph";
    argv[n++] = "serve";
    argv[n++] = "--" FD_OPTION;
    argv[n++] = "{fd}";
    for (int i = 0; i < cli->argc; i++) argv[n++] = cli->argv[i];
    return argv;
}

static int supervise(serving *s) {
    og__cli *cli = s->cli;
    og_err err = OG_ERR_INIT;
    const char *host = og__args_get(&cli->args, "host");
    long long port = OG_SERVE_PORT;
    int bound, rc = og__args_int(cli, "port", 0, 65535, &port);
    if (rc) return rc;
    int fd = og_listen(host ? host : "127.0.0.1", (int)port, &bound, &err);
    if (fd < 0) return og__report(&err);
    char line[256];
    snprintf(line, sizeof line, "listening url=%s://%s:%d", s->opts.tls_cert ? "https" : "http",
             host ? host : "127.0.0.1", bound);
    print_line(NULL, line);
    char **argv = worker_argv(cli);
    rc = argv ? og_serve_parent(fd, argv, print_line, NULL) : og__usage(cli, "out of memory");
    close(fd);
    return rc;
}

static int run(og__cli *cli) {
    serving s = {.cli = cli};
    const char *pipeline;
    long long fd = -1;
    int rc = og__plan_args(cli, &pipeline);
    if (rc == 0 && cli->args.help) {
        og__print_help(cli, stdout);
        return OG__EXIT_OK;
    }
    if (!rc) rc = read_options(&s);
    if (!rc) rc = read_models(&s);
    if (!rc) rc = og__args_int(cli, FD_OPTION, 0, 1 << 20, &fd);
    if (rc) return rc;
    return fd >= 0 ? work(&s, (int)fd) : supervise(&s);
}

static const og__opt options[] = {
    {"host", 0, OG__VALUE, "ADDR", NULL, OG__FILL_NONE, false,
     "address to listen at (default: 127.0.0.1; 0.0.0.0 for all)"},
    {"port", 'p', OG__VALUE, "N", NULL, OG__FILL_NONE, false,
     "port (default: 8000; 0: any free one)"},
    {"model", 'm', OG__VALUE, "DIR", NULL, OG__FILL_DIR, true,
     "checkpoint folder: one for all pipelines, or one for each in their order"},
    {"deploy", 'd', OG__VALUE, "FILE", NULL, OG__FILL_FILE, true,
     "overlay: where and how it runs; likewise"},
    {"served-model-name", 0, OG__VALUE, "NAME", NULL, OG__FILL_NONE, true,
     "what requests call the first pipeline; further ones are other names of it"},
    {"api-key", 0, OG__VALUE, "KEY", NULL, OG__FILL_NONE, true,
     "let in only requests with this key (also: $OMNI_GRAPH_API_KEY)"},
    {"tls-cert", 0, OG__VALUE, "FILE", NULL, OG__FILL_FILE, false,
     "serve HTTPS and HTTP/2 with this certificate (PEM)"},
    {"tls-key", 0, OG__VALUE, "FILE", NULL, OG__FILL_FILE, false, "its private key (PEM)"},
    {"cors-origin", 0, OG__VALUE, "ORIGIN", NULL, OG__FILL_NONE, false,
     "let pages from there use the API; * for any"},
    {"voices-dir", 0, OG__VALUE, "DIR", NULL, OG__FILL_DIR, false,
     "folder of uploaded voices"},
    {"max-queue", 0, OG__VALUE, "N", NULL, OG__FILL_NONE, false,
     "requests that wait for a place, then 429 (default: 256)"},
    {"max-body", 0, OG__VALUE, "MIB", NULL, OG__FILL_NONE, false,
     "largest body of a request (default: 32)"},
    {"max-connections", 0, OG__VALUE, "N", NULL, OG__FILL_NONE, false,
     "connections at a time (default: 4096)"},
    {"request-timeout", 0, OG__VALUE, "SECONDS", NULL, OG__FILL_NONE, false,
     "a request may take so long in all (default: 600; 0: no limit)"},
    {"stall-timeout", 0, OG__VALUE, "SECONDS", NULL, OG__FILL_NONE, false,
     "a client may leave its answer unread so long (default: 60)"},
    {"drain-timeout", 0, OG__VALUE, "SECONDS", NULL, OG__FILL_NONE, false,
     "time to finish requests on SIGTERM (default: 30)"},
    {"http-workers", 0, OG__VALUE, "N", NULL, OG__FILL_NONE, false,
     "threads that read bodies and encode audio (default: 4)"},
    {"allow-files", 0, OG__SWITCH, NULL, NULL, OG__FILL_NONE, false,
     "requests may name files of this machine"},
    {"no-watch", 0, OG__SWITCH, NULL, NULL, OG__FILL_NONE, false,
     "reload overlays on SIGHUP and POST /v1/reload only, not when they are saved"},
    {FD_OPTION, 0, OG__VALUE, "N", NULL, OG__FILL_NONE, false,
     "serve on this descriptor, in this process (for supervisors)"},
    OG__PLAN_OPTIONS_MORE,
    {"quiet", 'q', OG__SWITCH, NULL, NULL, OG__FILL_NONE, false, "no line per request"},
    {0},
};

static const char *const examples[] = {
    "omni-graph serve qwen3_tts",
    "omni-graph serve qwen3_tts --model DIR --backend cuda --host 0.0.0.0 --api-key SECRET",
    "omni-graph serve qwen3_tts --deploy tts.yaml    # saved again, it is reloaded",
    "curl -s localhost:8000/v1/audio/speech -H 'content-type: application/json' "
    "-d '{\"input\": \"Good morning.\", \"voice\": \"rms\"}' -o out.wav",
    NULL,
};

const og__cmd og__cmd_serve = {
    .name = "serve",
    .usage = "PIPELINE... [OPTIONS]",
    .brief = "serve pipelines over an OpenAI-compatible HTTP API",
    .doc = "Answers /v1/audio/speech, /v1/models, /health, /metrics and /v1/graph; a page at / "
           "draws the running graph. A small process owns the socket and runs the one that "
           "does the work, again if it dies. SIGTERM finishes what is under way and ends; "
           "SIGHUP, POST /v1/reload and a saved overlay reload. Without --model the embedded "
           "default checkpoint is used.",
    .options = options,
    .fill = OG__FILL_PIPELINE,
    .min_pos = 1,
    .max_pos = OG_SERVE_MAX_MODELS,
    .overlay_flags = true,
    .examples = examples,
    .run = run,
};
