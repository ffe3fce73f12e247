/* Reading a suite: entries, sweeps, and what is left out and why. */
#include "graph/cli/bench/suite.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RUNS_MAX 100000
#define PATH_ROOM 512

typedef struct reader {
    og_arena *arena;
    og__suite *suite;
    og_str *warnings;
    og_err *err;
    char at[PATH_ROOM]; /* of the field that is being read */
    int cap_runs;
} reader;

static bool same_name(const char *a, const char *b) {
    for (; *a && *b; a++, b++)
        if (*a != *b && !((*a == '-' || *a == '_') && (*b == '-' || *b == '_')))
            return false;
    return *a == *b;
}

json_t *og__member(const json_t *map, const char *name) {
    const char *key;
    json_t *value, *found = json_object_get(map, name);
    if (found) return found;
    json_object_foreach((json_t *)map, key, value) if (same_name(key, name)) return value;
    return NULL;
}

static int bad(reader *r, const char *key, const char *fmt, ...) OG_PRINTF(3, 4);
static int bad(reader *r, const char *key, const char *fmt, ...) {
    char msg[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return og_err_set(r->err, OG_EFORMAT, "%s: %s%s%s: %s", r->suite->path, r->at,
                      key ? "." : "", key ? key : "", msg);
}

static void warn(reader *r, const char *key, const char *what) {
    og_str_addf(r->warnings, "%s: %s.%s: %s\n", r->suite->path, r->at, key, what);
}

/* names: "a|b|c" with underscores. */
static void warn_unknown(reader *r, const json_t *map, const char *names) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)map, key, value) {
        bool known = false;
        for (const char *w = names; w && !known;
             w = strchr(w, '|') ? strchr(w, '|') + 1 : NULL) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(w, "|"), w);
            known = same_name(key, name);
        }
        if (!known) warn(r, key, "unknown key, left alone");
    }
}

/* ---- values ------------------------------------------------------------------- */

static int string_at(reader *r, const json_t *map, const char *key, const char **out) {
    const json_t *v = og__member(map, key);
    *out = NULL;
    if (!v || json_is_null(v)) return 0;
    if (!json_is_string(v)) return bad(r, key, "a string is needed");
    *out = json_string_value(v);
    return 0;
}

/* The number of steps of a sweep's key; 0 when it is not there. */
static int steps_of(reader *r, const json_t *map, const char *key, int *n) {
    const json_t *v = og__member(map, key), *one;
    size_t i;
    *n = 0;
    if (!v || json_is_null(v)) return 0;
    if (!json_is_array(v)) {
        *n = 1;
        if (json_is_string(v) && !strcmp(json_string_value(v), "inf")) return 0;
        return json_is_number(v)
                   ? 0
                   : bad(r, key, "a number, or a list of numbers is needed");
    }
    *n = (int)json_array_size(v);
    if (*n == 0) return bad(r, key, "the list is empty");
    json_array_foreach(v, i, one) {
        bool inf = json_is_string(one) && !strcmp(json_string_value(one), "inf");
        if (!json_is_number(one) && !inf) return bad(r, key, "[%zu] is no number", i);
    }
    return 0;
}

static double step_of(const json_t *map, const char *key, int i) {
    const json_t *v = og__member(map, key);
    if (json_is_array(v)) {
        int n = (int)json_array_size(v);
        v = json_array_get(v, (size_t)(n == 1 ? 0 : i));
    }
    return json_is_string(v) ? INFINITY : json_number_value(v);
}

/* ---- one item of benchmark_params --------------------------------------------- */

#define ITEM_KEYS                                                                        \
    "dataset_name|dataset_path|backend|endpoint|num_prompts|request_rate|max_"           \
    "concurrency|"                                                                       \
    "random_input_len|random_output_len|random_range_ratio|ignore_eos|extra_body|"       \
    "percentile_metrics|trust_remote_code|task|eval_phase|enabled|baseline|num_warmups|" \
    "output_len|name|seed|duration_sec|num_prompts_per_batch|disable_shuffle|no_"        \
    "oversample|"                                                                        \
    "model|dataset|width|height|num_inference_steps|num_frames|fps|num_input_images|"    \
    "enable_negative_prompt|random_request_config|bot_task|warmup_requests|"             \
    "warmup_concurrency|warmup_num_inference_steps|warmup_prompt|dataset_path_inline|"   \
    "skip_performance_assertion|expected_duplex_audio_turns_per_session|metric_"         \
    "percentiles|"                                                                       \
    "goodput|burstiness"

static bool has_prefix(const char *s, const char *prefix) {
    return !strncmp(s, prefix, strlen(prefix));
}

/* Families of keys whose members belong to runners that are not this one. */
static void warn_item(reader *r, const json_t *item) {
    const char *key;
    json_t *value, *rest = json_copy((json_t *)item);
    json_object_foreach((json_t *)item, key, value) {
        if (has_prefix(key, "random_mm_") || has_prefix(key, "seed_tts_") ||
            has_prefix(key, "omniinteract_"))
            json_object_del(rest, key);
    }
    warn_unknown(r, rest, ITEM_KEYS);
    json_decref(rest);
}

static const char *why_not(reader *r, const json_t *item, const og__suite_run *base) {
    const char *backend = json_string_value(og__member(item, "backend"));
    if (json_is_false(og__member(item, "enabled"))) return "not enabled in the file";
    if (og__member(item, "dataset") || og__member(item, "width"))
        return "images and video are not measured yet";
    if (!backend) backend = "openai-audio-speech";
    if (strcmp(backend, "openai-audio-speech"))
        return og_arena_printf(r->arena, "backend '%s' is not measured yet", backend);
    if (base->n == 0 && base->duration_s == 0) return "it asks for no prompts";
    return NULL;
}

static og__suite_run *new_run(reader *r) {
    og__suite *s = r->suite;
    if (s->n_runs == r->cap_runs) {
        int cap = r->cap_runs ? 2 * r->cap_runs : 32;
        og__suite_run *more =
            cap > RUNS_MAX ? NULL : og_arena_alloc(r->arena, (size_t)cap * sizeof *more);
        if (!more) return NULL;
        if (s->n_runs) memcpy(more, s->runs, (size_t)s->n_runs * sizeof *more);
        s->runs = more;
        r->cap_runs = cap;
    }
    return &s->runs[s->n_runs++];
}

static int add_run(reader *r, const og__suite_run *base, double rate, double concurrency,
                   double prompts, int step) {
    og__suite_run *run = new_run(r);
    if (!run) return og_err_set(r->err, OG_ENOMEM, "no memory for another run");
    *run = *base;
    run->step = step;
    run->rate = rate;
    run->concurrency = concurrency > 0 && concurrency < 1e6 ? (int)concurrency : 0;
    if (base->duration_s == 0) run->n = prompts > 0 && prompts < 1e8 ? (int)prompts : 0;
    if (base->warmup < 0)
        run->warmup = !isinf(rate) || run->concurrency < 2 ? 2 : run->concurrency;
    if (!run->skip) run->skip = why_not(r, base->params, run);
    return 0;
}

/* Public rule: first a run for every rate, then one for every concurrency; one number of prompts
 * is that of all of them, several are one each. */
static int sweep(reader *r, const og__suite_run *base) {
    const json_t *item = base->params;
    const char *names[3] = {"request_rate", "max_concurrency", "num_prompts"};
    int n[3], rc = 0;
    for (int i = 0; i < 3 && rc == 0; i++) rc = steps_of(r, item, names[i], &n[i]);
    if (rc < 0) return rc;
    int most = n[0] > n[1] ? n[0] : n[1];
    if (most <= 1 && n[2] > 1) most = n[2];
    if (n[2] > 1 && n[2] != most)
        return bad(r, "num_prompts", "%d numbers for a sweep of %d", n[2], most);
    if (n[0] > 1 && n[1] > 1 && n[0] != n[1])
        return bad(r, "max_concurrency", "%d numbers beside %d of request_rate", n[1],
                   n[0]);
    double few =
        og__member(item, "num_prompts") ? 0 : 10; /* where the file says nothing */
    for (int k = 0; k < 2 && rc == 0; k++)
        for (int i = 0; i < (n[k] == 1 && n[2] > 1 ? most : n[k]) && rc == 0; i++) {
            double v = step_of(item, names[k], i);
            double prompts = n[2] ? step_of(item, names[2], i) : few;
            if (!(v > 0)) return bad(r, names[k], "%g is not positive", v);
            rc = add_run(r, base, k ? INFINITY : v, k ? v : 0, prompts, i);
        }
    for (int i = 0; most > 0 && n[0] + n[1] == 0 && i < most && rc == 0; i++)
        rc = add_run(r, base, INFINITY, 0, step_of(item, names[2], i), i);
    if (most == 0 && rc == 0)
        rc = add_run(r, base, INFINITY, 1, n[2] ? step_of(item, names[2], 0) : few, 0);
    return rc;
}

static int words(reader *r, const json_t *item, og__suite_run *base) {
    const json_t *len = og__member(item, "random_input_len");
    double ratio = json_number_value(og__member(item, "random_range_ratio"));
    base->low_words = base->high_words = 24;
    if (json_is_object(len)) {
        base->low_words = (int)json_number_value(og__member(len, "min"));
        base->high_words = (int)json_number_value(og__member(len, "max"));
        if (base->low_words < 0 || base->high_words < base->low_words)
            return bad(r, "random_input_len", "min and max are not in order");
    } else if (len) {
        double n = json_number_value(len);
        if (!(n >= 0 && n < 1e6) || !(ratio >= 0 && ratio <= 1))
            return bad(r, "random_input_len",
                       "a length, with a random_range_ratio up to 1");
        base->low_words = (int)floor(n * (1 - ratio));
        base->high_words = (int)ceil(n * (1 + ratio));
    }
    return 0;
}

static int read_item(reader *r, const json_t *item, int entry, int index) {
    og__suite_run base = {.entry = entry, .item = index, .params = item, .warmup = -1};
    const json_t *baseline = og__member(item, "baseline");
    const json_t *warm = og__member(item, "num_warmups");
    if (!json_is_object(item)) return bad(r, NULL, "a map is needed");
    warn_item(r, item);
    int rc = string_at(r, item, "task", &base.task);
    if (!rc) rc = string_at(r, item, "eval_phase", &base.phase);
    if (!rc) rc = string_at(r, item, "dataset_name", &base.dataset);
    if (!rc) rc = string_at(r, item, "dataset_path", &base.dataset_path);
    if (!rc) rc = words(r, item, &base);
    if (!rc && baseline && !json_is_object(baseline))
        rc = bad(r, "baseline", "a map is needed");
    const json_t *body = og__member(item, "extra_body");
    if (!rc && body && !json_is_object(body) && !json_is_string(body))
        rc = bad(r, "extra_body", "a map is needed");
    if (rc) return rc;
    if (json_is_integer(warm)) base.warmup = (int)json_integer_value(warm);
    base.duration_s = json_number_value(og__member(item, "duration_sec"));
    if (base.duration_s > 0) {
        double batch = json_number_value(og__member(item, "num_prompts_per_batch"));
        base.n = batch >= 1 && batch < 1e6 ? (int)batch : 50;
    }
    base.skip = r->suite->entries[entry].skip;
    return sweep(r, &base);
}

/* ---- entries ------------------------------------------------------------------ */

#define ENTRY_KEYS                                                                       \
    "test_name|description|server_type|benchmark_runner|benchmark_endpoint|"             \
    "benchmark_backend|mark|judge_server_params|omniinteract_aggregate_min_ia_qtf1|"     \
    "server_params|benchmark_params"
#define SERVER_KEYS                                                                      \
    "model|serve_args|extra_cli_args|stage_overrides|stage_config_name|update|delete|"   \
    "use_omni|trust_remote_code"

/* {"$ref": "relative.json"} in place of a list. */
static json_t *referred(reader *r, const char *name) {
    char path[1024];
    json_error_t e;
    const char *slash = strrchr(r->suite->path, '/');
    snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - r->suite->path + 1) : 0,
             r->suite->path, name);
    json_t *j = json_load_file(path, 0, &e);
    if (!j) {
        warn(r, "benchmark_params", "the file that $ref names cannot be read");
        return NULL;
    }
    json_array_append_new(r->suite->more, j);
    return j;
}

static const char *entry_skip(reader *r, const json_t *e, const char *model) {
    const char *type = json_string_value(og__member(e, "server_type"));
    if (og__member(e, "benchmark_runner")) return "its runner is not this one";
    if (type && strcmp(type, "vllm-omni") && strcmp(type, "omni-graph"))
        return og_arena_printf(r->arena, "it is about a server of another kind, %s",
                               type);
    if (json_is_false(og__member(og__member(e, "server_params"), "use_omni")))
        return "it is about a text server";
    return model ? NULL : "it names no model";
}

static int read_entry(reader *r, const json_t *e, int i) {
    og__suite_entry *out = &r->suite->entries[i];
    snprintf(r->at, sizeof r->at, "[%d]", i);
    if (!json_is_object(e)) return bad(r, NULL, "a map is needed");
    warn_unknown(r, e, ENTRY_KEYS);
    int rc = string_at(r, e, "test_name", &out->name);
    out->server = og__member(e, "server_params");
    if (!rc && out->server && !json_is_object(out->server))
        rc = bad(r, "server_params", "a map is needed");
    if (!out->name) out->name = og_arena_printf(r->arena, "entry %d", i);
    snprintf(r->at, sizeof r->at, "[%d].server_params", i);
    if (!rc && out->server) warn_unknown(r, out->server, SERVER_KEYS);
    if (!rc) rc = string_at(r, out->server, "model", &out->model);
    if (rc) return rc;
    out->skip = entry_skip(r, e, out->model);
    out->first = r->suite->n_runs;
    const json_t *items = og__member(e, "benchmark_params");
    snprintf(r->at, sizeof r->at, "[%d]", i);
    const char *ref = json_string_value(json_object_get(items, "$ref"));
    if (ref) items = referred(r, ref);
    if (items && !json_is_array(items))
        return bad(r, "benchmark_params", "a list is needed");
    for (size_t k = 0; k < json_array_size(items) && !rc; k++) {
        snprintf(r->at, sizeof r->at, "[%d].benchmark_params[%zu]", i, k);
        rc = read_item(r, json_array_get(items, k), i, (int)k);
    }
    if (!out->skip && json_array_size(items) == 0)
        out->skip = "it has no benchmark_params";
    out->n_runs = r->suite->n_runs - out->first;
    return rc;
}

static json_t *load_json(const char *path, og_err *err) {
    json_error_t e;
    json_t *j = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    og_src src = {path, e.line, e.column > 0 ? e.column : 1};
    if (!j && e.line < 0)
        og_err_set(err, OG_ENOENT, "%s", e.text);
    else if (!j)
        og_err_at(err, OG_EFORMAT, src, "%s", e.text);
    return j;
}

int og__suite_load(og_arena *arena, const char *path, og__suite *out, og_str *warnings,
                   og_err *err) {
    *out = (og__suite){.path = path, .more = json_array(), .root = load_json(path, err)};
    reader r = {.arena = arena, .suite = out, .warnings = warnings, .err = err};
    int rc = out->root ? 0 : err->code;
    bool one = json_is_object(out->root);
    if (rc == 0 && !one && !json_is_array(out->root))
        rc = og_err_set(err, OG_EFORMAT, "%s: a list of entries is needed", path);
    int n = rc ? 0 : one ? 1 : (int)json_array_size(out->root);
    if (rc == 0 && n == 0)
        rc = og_err_set(err, OG_EFORMAT, "%s: the list is empty", path);
    out->n_entries = n;
    out->entries = og_arena_alloc(arena, (size_t)(n + 1) * sizeof *out->entries);
    if (rc == 0 && !out->entries) rc = og_err_set(err, OG_ENOMEM, "out of memory");
    for (int i = 0; i < n && rc == 0; i++)
        rc = read_entry(&r, one ? out->root : json_array_get(out->root, (size_t)i), i);
    if (rc < 0) og__suite_free(out);
    return rc;
}

void og__suite_free(og__suite *s) {
    json_decref(s->root);
    json_decref(s->more);
    s->root = s->more = NULL;
}
