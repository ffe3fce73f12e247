/* The server of a suite's entry: which checkpoint, which pipeline, which options. */
#include <fnmatch.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/cli/bench_suite.h"

#define PIPELINES_MAX 512

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- overlays ----------------------------------------------------------------- */

static const char *readable(const char *path) {
    return path && access(path, R_OK) == 0 && !is_folder(path) ? path : NULL;
}

static const char *find_overlay(void *user, const char *name) {
    og__suite_cmd *c = user;
    og_arena *a = c->cli->arena;
    const char *slash = strrchr(c->suite.path, '/'), *found = readable(name);
    if (!found && slash)
        found = readable(og_arena_printf(a, "%.*s/%s", (int)(slash - c->suite.path),
                                         c->suite.path, name));
    for (int i = 0; !found && i < c->data.n_deploy; i++)
        found = readable(og_arena_printf(a, "%s/%s", c->data.deploy[i], base_name(name)));
    return found;
}

/* ---- checkpoints -------------------------------------------------------------- */

/* --checkpoint PATTERN=DIR, --checkpoints ROOT, or a model that is a folder. */
static const char *find_checkpoint(og__suite_cmd *c, const char *model) {
    og_arena *a = c->cli->arena;
    int n;
    const char *const *all = og__args_all(c->cli, "checkpoint", &n);
    for (int i = 0; all && i < n; i++) {
        const char *eq = strrchr(all[i], '=');
        const char *pattern = og_arena_strndup(a, all[i], eq ? (size_t)(eq - all[i]) : 0);
        if (eq && pattern && fnmatch(pattern, model, 0) == 0) return eq + 1;
    }
    const char *root = og__args_get(&c->cli->args, "checkpoints");
    const char *tries[] = {
        root ? og_arena_printf(a, "%s/%s", root, model) : NULL,
        root ? og_arena_printf(a, "%s/%s", root, base_name(model)) : NULL, model};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
        if (tries[i] && is_folder(tries[i])) return tries[i];
    return NULL;
}

/* The pipeline of a checkpoint is the one that its model_type names. */
static const char *find_pipeline(og__suite_cmd *c, const char *dir, const char **skip) {
    const char *given = og__args_get(&c->cli->args, "pipeline"), *names[PIPELINES_MAX];
    og_arena *a = c->cli->arena;
    if (given) return given;
    json_t *j = json_load_file(og_arena_printf(a, "%s/config.json", dir), 0, NULL);
    const char *type = json_string_value(json_object_get(j, "model_type")), *found = NULL;
    int n = og__pipeline_names(a, names, PIPELINES_MAX);
    for (int i = 0; type && i < n && !found; i++)
        if (!strcmp(names[i], type)) found = names[i];
    if (!found && type)
        *skip = og_arena_printf(a, "there is no pipeline for a model of type '%s'", type);
    else if (!found)
        *skip = og_arena_printf(a, "'%s/config.json' names no model_type", dir);
    json_decref(j);
    return found;
}

/* ---- our own server ----------------------------------------------------------- */

#define ARGV_MAX (OG__SERVE_ARGS_MAX + 64)

typedef struct words {
    const char *argv[ARGV_MAX + 1];
    int n;
} words;

static void add(words *w, const char *s) {
    if (s && w->n < ARGV_MAX) w->argv[w->n++] = s;
}

static void add_given(og__suite_cmd *c, words *w, const char *name) {
    const char *v = og__args_get(&c->cli->args, name);
    if (!v) return;
    add(w, og_arena_printf(c->cli->arena, "--%s", name));
    add(w, v);
}

static const char *joined(og_arena *a, const words *w) {
    og_str s = OG_STR_INIT;
    for (int i = 1; i < w->n; i++) {
        bool quote = strpbrk(w->argv[i], " \"{}*$&;") != NULL;
        og_str_addf(&s, "%s%s%s%s", i > 1 ? " " : "", quote ? "'" : "", w->argv[i],
                    quote ? "'" : "");
    }
    const char *line = s.oom ? NULL : og_arena_printf(a, "omni-graph %s", s.data);
    og_str_free(&s);
    return line;
}

/* The command line without address and port, which differ every time. */
static int command(og__suite_cmd *c, const og__suite_entry *e, words *w,
                   const char **skip, og_err *err) {
    static const char *const passed[] = {"load-format", "backend", "threads"};
    og__serve_how how = {og__args_has(&c->cli->args, "one-device"), find_overlay, c};
    og__serve_line line;
    const char *dir = find_checkpoint(c, e->model);
    if (!dir)
        *skip = og_arena_printf(c->cli->arena, "no checkpoint of '%s' is here", e->model);
    const char *pipeline = dir ? find_pipeline(c, dir, skip) : NULL;
    if (!pipeline) return 1;
    int rc = og__suite_serve_line(c->cli->arena, e, &how, &line, err), n;
    if (rc < 0) return rc;
    *skip = line.skip;
    if (line.skip) return 1;
    add(w, "/proc/self/exe");
    add(w, "serve");
    add(w, pipeline);
    add(w, "--model");
    add(w, dir);
    add(w, "--served-model-name");
    add(w, e->model);
    bool deployed = false; /* the file's overlay, where it names one */
    for (int i = 0; i < line.n; i++) deployed |= !strcmp(line.args[i], "--deploy");
    if (!deployed) add_given(c, w, "deploy");
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        add_given(c, w, passed[i]);
    for (int i = 0; i < line.n; i++) add(w, line.args[i]);
    if (c->frames) { /* no answer may end by itself before its length is reached */
        add(w, "--set");
        add(w, "0.default_sampling_params.min_tokens=1000000");
    }
    const char *const *more = og__args_all(c->cli, "serve-arg", &n);
    for (int i = 0; more && i < n; i++) add(w, more[i]);
    return 0;
}

static int launch(og__suite_cmd *c, const og__suite_entry *e, words *w, og_err *err) {
    char self[4096], log[4096];
    int port = og__free_port();
    ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);
    if (port < 0 || k < 0)
        return og_err_set(err, OG_EIO, "no port or no program to start");
    self[k] = 0;
    w->argv[0] = self;
    add(w, "--host");
    add(w, "127.0.0.1");
    add(w, "--port");
    add(w, og_arena_printf(c->cli->arena, "%d", port));
    w->argv[w->n] = NULL;
    snprintf(log, sizeof log, "%s/%s.%d.log", c->out, c->stem,
             (int)(e - c->suite.entries));
    c->url = (og__url){.host = "127.0.0.1"};
    snprintf(c->url.port, sizeof c->url.port, "%hu", (unsigned short)port);
    double from = og__load_now();
    int rc = og__process_start(w->argv, log, &c->process, err);
    if (rc == 0)
        rc = og__process_wait(c->process, &c->url, c->start_timeout_s, c->stop_fd, err);
    c->start_s = og__load_now() - from;
    if (rc < 0) og__suite_server_stop(c);
    return rc;
}

/* ---- any server --------------------------------------------------------------- */

static bool same_model(const char *id, const char *model) {
    return !strcasecmp(id, model) || !strcasecmp(base_name(id), base_name(model));
}

/* The model that requests name: the suite's own, if the server has it, else its first. */
static int choose_model(og__suite_cmd *c, const char *model, const char **skip,
                        og_err *err) {
    og_str body = OG_STR_INIT;
    json_t *one;
    size_t i;
    const char *first = NULL, *found = NULL;
    int status = og__load_get(&c->url, "/v1/models", c->api_key, 30, &body, err);
    json_t *j =
        status == 200 && body.data ? json_loadb(body.data, body.len, 0, NULL) : NULL;
    json_array_foreach(json_object_get(j, "data"), i, one) {
        const char *id = json_string_value(json_object_get(one, "id"));
        if (id && !first) first = id;
        if (id && same_model(id, model)) found = id;
    }
    bool any = !c->base_url || og__args_has(&c->cli->args, "any-model");
    if (!found && any) found = first ? first : model;
    c->model = found ? og_arena_strdup(c->cli->arena, found) : NULL;
    if (!found)
        *skip =
            og_arena_printf(c->cli->arena, "the server serves '%s'", first ? first : "?");
    json_decref(j);
    og_str_free(&body);
    return status < 0 ? status : found ? 0 : 1;
}

int og__suite_server(og__suite_cmd *c, const og__suite_entry *e, const char **skip,
                     og_err *err) {
    words w = {.n = 0};
    *skip = NULL;
    if (c->base_url) return c->list ? 0 : choose_model(c, e->model, skip, err);
    int rc = command(c, e, &w, skip, err);
    if (rc) return rc;
    const char *line = joined(c->cli->arena, &w);
    if (!line) return og_err_set(err, OG_ENOMEM, "out of memory");
    bool same = c->line && !strcmp(c->line, line);
    if (same && (c->list || (c->process && !og__process_ended(c->process)))) return 0;
    og__suite_server_stop(c);
    c->line = line;
    if (c->list) return 0;
    if (!c->quiet) fprintf(stderr, "%s\n", line);
    rc = launch(c, e, &w, err);
    return rc ? rc : choose_model(c, e->model, skip, err);
}

void og__suite_server_stop(og__suite_cmd *c) {
    og__process_stop(c->process, 30);
    c->process = NULL;
    c->line = NULL;
}
