/* From options to a plan. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "graph/cli/cli.h"

int og__plan_args(og__cli *cli, const char **pipeline) {
    *pipeline = NULL;
    cli->overlay = og__overlay_options(cli->arena);
    if (!cli->overlay) return og__usage(cli, "out of memory");
    int rc = og__args_parse(cli, true);
    if (rc) return rc;
    const char *name = cli->args.n_pos ? cli->args.pos[0] : NULL;
    if (!name && cli->args.help) return 0;
    if (!name) {
        og__usage(cli, "which pipeline?");
        return og__hint("usage: omni-graph %s %s", cli->cmd->name, cli->cmd->usage);
    }
    if (cli->cmd->fields) {
        og_pipeline *p = og__pipeline_open(cli, name);
        if (!p) return OG__EXIT_USAGE;
        cli->fields = og__field_options(cli->arena, p);
        og_pipeline_destroy(p);
        if (!cli->fields) return og__usage(cli, "out of memory");
    }
    rc = og__args_parse(cli, false);
    if (rc == 0) *pipeline = name;
    return rc;
}

int og__key_flags(og__cli *cli, og_overlay_flag *flags) {
    const og__args *a = &cli->args;
    int n = 0;
    for (int i = 0; i < a->n_given; i++) {
        if (a->given[i].origin != OG__FROM_OVERLAY) continue;
        char *key = og_arena_strdup(cli->arena, a->given[i].opt->name);
        if (!key) return -1;
        for (char *c = key; *c; c++)
            if (*c == '-') *c = '_';
        flags[n++] =
            (og_overlay_flag){key, a->given[i].value ? a->given[i].value : "true"};
    }
    return n;
}

/* "141GiB", "80.5 GiB", "85899345920". */
static int device_memory(og__cli *cli, size_t *out) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    const char *text = og__args_get(&cli->args, "device-memory");
    if (!text) return 0;
    char *end;
    double v = strtod(text, &end);
    bool number = end != text && text[0] >= '0' && text[0] <= '9';
    while (*end == ' ') end++;
    for (int i = 0; i < 5 && number; i++) {
        double bytes = v * (double)(1ull << 10 * i);
        bool unit = !strcasecmp(end, units[i]) || (i == 0 && !*end);
        if (!unit || !(bytes >= 1 && bytes <= 0x1p60)) continue;
        *out = (size_t)bytes;
        return 0;
    }
    return og__usage(cli, "--device-memory must be a size like 141GiB, not '%s'", text);
}

static int numbers(og__cli *cli, og_plan_options *o) {
    long long threads = 0, tokens = 0;
    int rc = device_memory(cli, &o->device_memory);
    if (!rc) rc = og__args_int(cli, "threads", 1, 1024, &threads);
    if (!rc) rc = og__args_int(cli, "max-tokens", 1, 1 << 24, &tokens);
    o->threads = (int)threads;
    o->max_tokens = (int)tokens;
    return rc;
}

static int options(og__cli *cli, const char *pipeline, bool default_model,
                   const og__data *data, og_plan_options *o) {
    const og__args *a = &cli->args;
    *o = (og_plan_options)OG_PLAN_OPTIONS_INIT;
    o->pipeline = pipeline;
    o->pipeline_dirs = data->pipelines, o->n_pipeline_dirs = data->n_pipelines;
    o->script_dirs = data->scripts, o->n_script_dirs = data->n_scripts;
    o->deploy_dirs = data->deploy, o->n_deploy_dirs = data->n_deploy;
    o->model = og__args_get(a, "model");
    if (!o->model && default_model) o->model = data->model;
    if (!o->model && default_model) {
        og__usage(cli, "no checkpoint: the default one was not found");
        return og__hint("name one with --model DIR");
    }
    o->deploy = og__args_get(a, "deploy");
    o->sets = og__args_all(cli, "set", &o->n_sets);
    o->stage_overrides = og__args_get(a, "stage-overrides");
    if (og__args_has(a, "backend")) o->backend = og__args_get(a, "backend");
    const char *load = og__args_get(a, "load-format");
    o->dummy = load && !strcmp(load, "dummy");
    o->greedy = og__args_has(a, "greedy");
    og_overlay_flag *flags =
        og_arena_alloc(cli->arena, (size_t)(a->n_given + 1) * sizeof *flags);
    o->n_flags = flags ? og__key_flags(cli, flags) : -1;
    o->flags = flags;
    if (!o->sets || o->n_flags < 0) return og__usage(cli, "out of memory");
    return numbers(cli, o);
}

int og__plan_options(og__cli *cli, const char *pipeline, bool default_model,
                     og_plan_options *out) {
    og__data *data = og_arena_alloc(cli->arena, sizeof *data);
    if (!data) return og__usage(cli, "out of memory");
    og__data_find(cli->arena, pipeline, data);
    return options(cli, pipeline, default_model, data, out);
}

int og__plan_make(og__cli *cli, const char *pipeline, int flags, bool default_model,
                  og_diags *diags, og_plan **out) {
    og_plan_options o;
    og_err err = OG_ERR_INIT;
    *out = NULL;
    int rc = og__plan_options(cli, pipeline, default_model, &o);
    if (rc) return rc;
    og_diags *own = diags ? NULL : og_diags_create();
    og_diags *d = diags ? diags : own;
    if (!d) return og__usage(cli, "out of memory");
    rc = og_plan_build(&o, flags, d, out, &err);
    bool quiet = og__args_has(&cli->args, "quiet");
    if (own) og__print_diags(d, quiet ? OG_SEVERITY_ERROR : OG_SEVERITY_WARNING);
    bool told = og_diags_errors(d) > 0;
    og_diags_destroy(own);
    if (rc == 0) return OG__EXIT_OK;
    if (!told) og__report(&err);
    return rc == OG_ENOMEM || rc == OG_EIO ? OG__EXIT_FAILED : OG__EXIT_USAGE;
}
