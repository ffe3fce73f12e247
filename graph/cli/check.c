/* `check`: everything that can be said of a pipeline and its overlay without running
 * it. */
#include <string.h>

#include "graph/cli/cli.h"

typedef struct checked {
    og_diags *diags;
    og_plan *plan;
    og_str explain, recipes;
    bool json;
} checked;

/* ---- as JSON ------------------------------------------------------------------ */

static json_t *diag_json(const og_diag *d) {
    static const char *const words[] = {"note", "warning", "error"};
    return json_pack("{s:s, s:s?, s:i, s:i, s:s, s:s}", "severity", words[d->severity],
                     "file", d->src.file, "line", d->src.line, "column", d->src.col,
                     "message", d->msg ? d->msg : "", "hint", d->hint ? d->hint : "");
}

static json_t *diags_json(const og_diags *d) {
    json_t *list = json_array();
    for (int i = 0; i < og_diags_count(d); i++)
        json_array_append_new(list, diag_json(og_diags_at(d, i)));
    return list;
}

static json_t *lines_json(const og_str *s) {
    json_t *list = json_array();
    for (const char *at = s->data; at && *at;) {
        size_t n = strcspn(at, "\n");
        json_array_append_new(list, json_stringn(at, n));
        at += n + (at[n] == '\n');
    }
    return list;
}

static int print_plan_json(checked *c, bool ok) {
    json_t *j = c->plan ? og_plan_json(c->plan) : json_object();
    json_object_set_new(j, "ok", json_boolean(ok));
    json_object_set_new(j, "diagnostics", diags_json(c->diags));
    if (c->explain.data) json_object_set_new(j, "explain", lines_json(&c->explain));
    if (c->recipes.data) json_object_set_new(j, "recipes", lines_json(&c->recipes));
    return og__print_json(j);
}

/* ---- one pipeline ------------------------------------------------------------- */

static int recipes(og__cli *cli, checked *c, const char *arg) {
    og_err err = OG_ERR_INIT;
    json_error_t at;
    const char *text = og__read_text(cli->arena, arg, &err);
    if (!text) return og__report(&err);
    json_t *body = json_loads(text, JSON_REJECT_DUPLICATES, &at), *full = NULL;
    if (!body) {
        fprintf(stderr, "%s:%d:%d: error: %s\n", arg[0] == '@' ? arg + 1 : "--request",
                at.line, at.column, at.text);
        return og__hint("--request takes a JSON object, or @FILE with one");
    }
    int rc = og_plan_request_check(c->plan, body, &full, c->diags, &err);
    if (rc == 0) rc = og_plan_check_request(c->plan, full, &c->recipes, c->diags, &err);
    json_decref(body);
    json_decref(full);
    if (rc == 0) return 0;
    og__report(&err);
    return rc == OG_ENOMEM ? OG__EXIT_FAILED : OG__EXIT_USAGE;
}

static int print_text(checked *c) {
    og_str s = OG_STR_INIT;
    og_plan_print(c->plan, &s);
    if (c->explain.data) og_str_addf(&s, "\nsettings:\n%s", c->explain.data);
    if (c->recipes.data) og_str_addf(&s, "\nrecipes:\n%s", c->recipes.data);
    return og__print_str(&s);
}

static int check_pipeline(og__cli *cli, checked *c) {
    const char *pipeline, *request;
    int rc = og__plan_args(cli, &pipeline);
    if (rc) return rc;
    if (cli->args.help) {
        og__print_help(cli, stdout);
        return OG__EXIT_OK;
    }
    request = og__args_get(&cli->args, "request");
    c->json = !strcmp(
        og__args_has(&cli->args, "format") ? og__args_get(&cli->args, "format") : "text",
        "json");
    rc = og__plan_make(cli, pipeline, OG_PLAN_CHECK_ONLY, request != NULL, c->diags,
                       &c->plan);
    if (rc == 0 && og__args_has(&cli->args, "explain"))
        og_plan_explain(c->plan, &c->explain);
    if (rc == 0 && request) rc = recipes(cli, c, request);
    og__print_diags(c->diags, OG_SEVERITY_NOTE);
    int printed = c->json ? print_plan_json(c, rc == 0) : c->plan ? print_text(c) : 0;
    return rc ? rc : printed;
}

/* ---- overlays alone ----------------------------------------------------------- */

static json_t *overlay_json(const og_overlay *ov, og_overlay_part part) {
    og_str s = OG_STR_INIT;
    og_overlay_json(ov, part, &s);
    json_t *j = s.data && !s.oom ? json_loads(s.data, JSON_DECODE_ANY, NULL) : NULL;
    og_str_free(&s);
    return j ? j : json_null();
}

static int overlay_options(og__cli *cli, og_overlay_opts *o, og__data *data) {
    const og__args *a = &cli->args;
    og_overlay_flag *flags =
        og_arena_alloc(cli->arena, (size_t)(a->n_given + 1) * sizeof *flags);
    og__data_find(cli->arena, NULL, data);
    *o =
        (og_overlay_opts){.dirs = data->deploy, .n_dirs = data->n_deploy, .flags = flags};
    o->platform = og__args_get(a, "platform");
    if (!o->platform && og__args_has(a, "backend"))
        o->platform = og__args_get(a, "backend");
    o->sets = og__args_all(cli, "set", &o->n_sets);
    o->stage_overrides = og__args_get(a, "stage-overrides");
    if (!flags || !o->sets) return og__usage(cli, "out of memory");
    o->n_flags = og__key_flags(cli, flags);
    return o->n_flags < 0 ? og__usage(cli, "out of memory") : 0;
}

/* One file; its JSON goes into list. Returns whether it loaded. */
static bool check_overlay(og__cli *cli, og_overlay_opts *o, const char *file,
                          json_t *list) {
    og_diags *d = og_diags_create();
    og_overlay *ov = NULL;
    og_err err = OG_ERR_INIT;
    o->path = file;
    int rc = d ? og_overlay_load(o, d, &ov, &err)
               : og_err_set(&err, OG_ENOMEM, "out of memory");
    const char *status = rc < 0 ? "fail" : og_diags_warnings(d) ? "warn" : "ok";
    if (d) og__print_diags(d, OG_SEVERITY_NOTE);
    if (rc < 0 && !og_diags_errors(d)) og__report(&err);
    if (list) {
        json_t *j = json_pack("{s:s, s:s, s:o}", "file", file, "status", status,
                              "diagnostics", d ? diags_json(d) : json_array());
        if (rc == 0) {
            json_object_set_new(j, "merged", overlay_json(ov, OG_OVERLAY_MERGED));
            json_object_set_new(j, "effective", overlay_json(ov, OG_OVERLAY_EFFECTIVE));
        }
        json_array_append_new(list, j);
    } else {
        og_str s = OG_STR_INIT;
        og_str_addf(&s, "%-4s %s\n", status, file);
        if (rc == 0 && og__args_has(&cli->args, "explain")) og_overlay_explain(ov, &s);
        og__print_str(&s);
    }
    og_overlay_destroy(ov);
    og_diags_destroy(d);
    return rc == 0;
}

static int check_overlays(og__cli *cli, bool json) {
    og_overlay_opts o;
    og__data data;
    bool ok = true;
    int n = cli->args.n_pos;
    int rc = overlay_options(cli, &o, &data);
    if (rc) return rc;
    json_t *list = json ? json_array() : NULL;
    for (int i = 0; i < n; i++) ok &= check_overlay(cli, &o, cli->args.pos[i], list);
    if (json && n == 1) { /* one file: the object itself */
        json_t *only = json_incref(json_array_get(list, 0));
        json_decref(list);
        list = only;
    }
    rc = json ? og__print_json(list) : 0;
    return ok ? rc : OG__EXIT_USAGE;
}

/* Whether --overlay-only stands on the command line: files are then no pipelines. */
static int overlay_only(og__cli *cli, bool *is) {
    cli->overlay = og__overlay_options(cli->arena);
    if (!cli->overlay) return og__usage(cli, "out of memory");
    int rc = og__args_parse(cli, false);
    *is = og__args_has(&cli->args, "overlay-only");
    if (rc || !*is || cli->args.help) return rc;
    return cli->args.n_pos ? 0 : og__usage(cli, "--overlay-only: which files?");
}

static int run(og__cli *cli) {
    bool only;
    int rc = overlay_only(cli, &only);
    if (rc) return rc;
    const char *format = og__args_get(&cli->args, "format");
    if (only && !cli->args.help)
        return check_overlays(cli, format && !strcmp(format, "json"));
    if (cli->args.n_pos > 1)
        return og__usage(cli, "unexpected argument '%s'", cli->args.pos[1]);
    checked c = {.diags = og_diags_create()};
    rc = c.diags ? check_pipeline(cli, &c) : og__usage(cli, "out of memory");
    og_plan_destroy(c.plan);
    og_str_free(&c.explain);
    og_str_free(&c.recipes);
    og_diags_destroy(c.diags);
    return rc;
}

static const og__opt options[] = {
    {"explain", 'e', OG__SWITCH, NULL, NULL, OG__FILL_NONE, false,
     "every setting, and where it comes from"},
    {"request", 'r', OG__VALUE, "JSON", NULL, OG__FILL_NONE, false,
     "print the recipes of a request (JSON or @FILE), without weights"},
    {"format", 'f', OG__VALUE, "FORMAT", "text|json", OG__FILL_NONE, false,
     "form of what is printed"},
    {"overlay-only", 0, OG__SWITCH, NULL, NULL, OG__FILL_FILE, false,
     "the arguments are overlay files, checked without a pipeline"},
    {"device-memory", 0, OG__VALUE, "SIZE", NULL, OG__FILL_NONE, false,
     "memory of each GPU, 141GiB say: the plan is held against it"},
    {"platform", 0, OG__VALUE, "NAME", NULL, OG__FILL_NONE, false,
     "with --overlay-only: apply the platforms section of that name"},
    OG__PLAN_OPTIONS,
    {0},
};

static const char *const examples[] = {
    "omni-graph check qwen3_tts --model DIR --deploy deploy/qwen3_tts.yaml --explain",
    "omni-graph check qwen3_tts --model DIR --backend cuda --device-memory 141GiB",
    "omni-graph check qwen3_tts --request '{\"text\": \"hi\", \"voice\": \"rms\"}'",
    "omni-graph check --overlay-only a.yaml b.yaml",
    NULL,
};

const og__cmd og__cmd_check = {
    .name = "check",
    .usage = "PIPELINE [OPTIONS] | --overlay-only FILE...",
    .brief = "check a pipeline and its overlay, print the plan",
    .doc =
        "Messages go to stderr, the plan to stdout. Without --model no checkpoint is "
        "read: "
        "what depends on its configs stays open in the plan. With --request the embedded "
        "default checkpoint stands in, for its tokenizer. With --format json the overlay "
        "as merged is under \"merged\", the settings of each stage under \"effective\".",
    .options = options,
    .fill = OG__FILL_PIPELINE,
    .min_pos = 0,
    .max_pos = 4096,
    .overlay_flags = true,
    .examples = examples,
    .run = run,
};
