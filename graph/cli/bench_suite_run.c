/* One point of a sweep: from the suite's words to a benchmark, and its verdict. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/cli/bench_suite.h"

static const char *text(const json_t *map, const char *key) {
    return json_string_value(og__member(map, key));
}

/* ---- texts -------------------------------------------------------------------- */

static const char *file_at(og_arena *a, const char *folder, const char *path,
                           const char *rest) {
    struct stat st;
    const char *full =
        og_arena_printf(a, "%s%s%s%s", folder, *folder ? "/" : "", path, rest);
    return full && stat(full, &st) == 0 && S_ISREG(st.st_mode) ? full : NULL;
}

/* The file behind a dataset_path: itself, or the list within the folder, here or beside the
 * suite. NULL: it is not on this machine. */
static const char *find_set(og__suite_cmd *c, const char *path, const char *locale) {
    og_arena *a = c->cli->arena;
    const char *slash = strrchr(c->suite.path, '/');
    const char *beside =
        og_arena_strndup(a, c->suite.path, slash ? (size_t)(slash - c->suite.path) : 0);
    const char *folders[] = {"", beside ? beside : ""};
    const char *in_locale = og_arena_printf(a, "/%s/meta.lst", locale ? locale : "en");
    for (size_t i = 0; path && i < 2; i++) {
        const char *f = file_at(a, folders[i], path, "");
        if (!f && in_locale) f = file_at(a, folders[i], path, in_locale);
        if (!f) f = file_at(a, folders[i], path, "/meta.lst");
        if (f) return f;
    }
    return NULL;
}

static int choose_set(og__suite_cmd *c, const og__suite_run *run, og__bench *b,
                      og_err *err) {
    og_arena *a = c->cli->arena;
    const char *name = run->dataset ? run->dataset : "random";
    bool design = !strcmp(name, "seed-tts-design");
    b->clone = !strcmp(name, "seed-tts");
    if (!c->dataset && !strcmp(name, "random")) {
        b->shuffle = false;
        return og__set_random(a, b->seed, b->n, run->low_words, run->high_words, &b->set,
                              err);
    }
    const char *file =
        c->dataset ? c->dataset
                   : find_set(c, run->dataset_path, text(run->params, "seed_tts_locale"));
    return og__set_load(a,
                        file     ? file
                        : design ? "english-design"
                                 : "english",
                        &b->set, err);
}

/* ---- the benchmark ------------------------------------------------------------ */

/* The file's extra_body with our own over it; a new reference. */
static int parse_extra(const og__suite_cmd *c, const og__suite_run *run, json_t **extra,
                       og_err *err) {
    const json_t *v = og__member(run->params, "extra_body");
    *extra = json_is_string(v)   ? json_loads(json_string_value(v), 0, NULL)
             : json_is_object(v) ? json_copy((json_t *)v)
                                 : json_object();
    if (!json_is_object(*extra))
        return og_err_set(err, OG_EFORMAT, "extra_body is no JSON object");
    if (c->extra && json_object_update(*extra, c->extra) < 0)
        return og_err_set(err, OG_ENOMEM, "out of memory");
    return 0;
}

static int options(og__suite_cmd *c, const og__suite_run *run, og__bench *b,
                   og_err *err) {
    const char *list = text(run->params, "metric_percentiles");
    const char *limits = text(run->params, "goodput"),
               *endpoint = text(run->params, "endpoint");
    const json_t *burst = og__member(run->params, "burstiness");
    b->load.url = c->url;
    b->load.path = endpoint && endpoint[0] == '/' ? endpoint : "/v1/audio/speech";
    b->load.api_key = c->api_key;
    b->load.timeout_s = c->timeout_s;
    b->load.stop_fd = c->stop_fd;
    b->load.max_concurrency = run->concurrency;
    if (!c->quiet && isatty(STDERR_FILENO)) b->load.progress = og__bench_progress;
    b->model = c->model;
    b->rate = run->rate;
    if (json_is_number(burst) && json_number_value(burst) > 0)
        b->burstiness = json_number_value(burst);
    b->warmup = run->warmup;
    b->n = c->most && run->n > c->most ? c->most : run->n;
    b->seed = c->seed;
    b->frames = c->frames;
    int n = list ? og__percentiles_parse(list, b->percentiles, err) : b->n_percentiles;
    if (n < 0) return n;
    b->n_percentiles = n;
    b->n_limits = limits ? og__limits_parse(limits, b->limits, err) : 0;
    return b->n_limits < 0 ? b->n_limits : 0;
}

/* A stability run: batch after batch until its time is over; the figures are those of the last
 * batch, the counts those of all. */
static int batches(og__suite_cmd *c, const og__suite_run *run, og__bench *b,
                   json_t **result, og_err *err) {
    double until = og__load_now() + c->duration_s;
    static const char *const counts[] = {"num_prompts", "completed", "failed"};
    long long sum[3] = {0, 0, 0};
    int n = 0, rc;
    do {
        json_t *one;
        b->seed = c->seed + (uint64_t)n;
        rc = choose_set(c, run, b, err);
        if (rc == 0) rc = og__bench_run(b, &one, err);
        b->warmup = 0;
        if (rc < 0) break;
        for (int i = 0; i < 3; i++)
            sum[i] += json_integer_value(json_object_get(one, counts[i]));
        json_decref(*result);
        *result = one;
        n++;
    } while (og__load_now() < until);
    for (int i = 0; i < 3 && *result; i++)
        json_object_set_new(*result, counts[i], json_integer(sum[i]));
    if (*result) json_object_set_new(*result, "batches", json_integer(n));
    return rc;
}

static int measure(og__suite_cmd *c, const og__suite_run *run, json_t **result,
                   og_err *err) {
    og__bench b = OG__BENCH;
    json_t *extra = NULL;
    *result = NULL;
    int rc = options(c, run, &b, err);
    if (rc == 0) rc = parse_extra(c, run, &extra, err);
    b.extra = extra;
    if (rc == 0 && run->duration_s > 0) {
        rc = batches(c, run, &b, result, err);
    } else if (rc == 0) {
        rc = choose_set(c, run, &b, err);
        if (rc == 0) rc = og__bench_run(&b, result, err);
    }
    if (b.load.progress) og__bench_progress_clear();
    json_decref(extra);
    return rc;
}

/* ---- what comes of it --------------------------------------------------------- */

static void put_text(json_t *j, const char *key, const char *v) {
    json_object_set_new(j, key, v ? json_string(v) : json_null());
}

static json_t *describe(const og__suite_run *run) {
    json_t *j = json_object();
    put_text(j, "task", run->task);
    put_text(j, "phase", run->phase);
    put_text(j, "dataset", run->dataset);
    json_object_set_new(j, "request_rate",
                        isinf(run->rate) ? json_null() : json_real(run->rate));
    json_object_set_new(j, "max_concurrency",
                        run->concurrency ? json_integer(run->concurrency) : json_null());
    json_object_set_new(j, "num_prompts", json_integer(run->n));
    return j;
}

/* The same beside the result, as the public runner adds it for what reads its files. */
static json_t *judged(const og__suite_cmd *c, const og__suite_run *run, json_t *result) {
    og__judged all[OG__JUDGED_MAX];
    int n = og__suite_judge(run, c->hardware, result, c->tolerance, all);
    json_t *list = json_array(), *plain = json_object();
    for (int i = 0; i < n; i++) {
        json_t *one = json_object();
        put_text(one, "metric", all[i].metric);
        json_object_set_new(one, "baseline", json_real(all[i].baseline));
        json_object_set_new(one, "value",
                            isnan(all[i].value) ? json_null() : json_real(all[i].value));
        put_text(one, "verdict", og__verdict_word(all[i].verdict));
        json_array_append_new(list, one);
        json_object_set_new(plain, all[i].metric, json_real(all[i].baseline));
    }
    if (result) json_object_set(result, "baseline", plain);
    if (result) put_text(result, "Hardware", c->hardware);
    json_decref(plain);
    return list;
}

json_t *og__suite_run_not(const og__suite_cmd *c, const og__suite_run *run,
                          const char *verdict, const char *why) {
    json_t *j = describe(run);
    put_text(j, "verdict", verdict);
    put_text(j, "skipped", why);
    json_object_set_new(j, "baseline", judged(c, run, NULL));
    return j;
}

json_t *og__suite_run_one(og__suite_cmd *c, const og__suite_run *run) {
    og_err err = OG_ERR_INIT;
    json_t *result;
    if (run->duration_s > 0 && c->duration_s <= 0)
        return og__suite_run_not(c, run, "skipped",
                                 "a stability run: say --duration SECONDS");
    int rc = measure(c, run, &result, &err);
    if (rc == OG_ECANCELED) c->stopped = true;
    if (rc < 0 && !result)
        return og__suite_run_not(c, run, rc == OG_ECANCELED ? "skipped" : "fail",
                                 err.msg);
    json_t *j = describe(run);
    long long done = json_integer_value(json_object_get(result, "completed"));
    bool all = done == json_integer_value(json_object_get(result, "num_prompts"));
    put_text(j, "verdict", all ? "pass" : c->stopped ? "skipped" : "fail");
    put_text(j, "skipped", c->stopped && !all ? "stopped" : NULL);
    json_object_set_new(j, "baseline", judged(c, run, result));
    json_object_set_new(j, "result", result);
    return j;
}
