/* Hooks: the file and the function exist, the names on the edge are those that the hook
 * uses, and the environment that the hook room wants is filled in. */
#include "graph/compile/compile.h"
#include "nodes/load/json.h"

#include <stdio.h>
#include <string.h>

#define MAX_HOOK_BYTES (1u << 20)

static int load_text(const og__build *b, const char *file, char **text, size_t *len) {
    for (int i = 0; i < b->opts->n_script_dirs; i++) {
        char path[4096];
        og_err err = OG_ERR_INIT;
        snprintf(path, sizeof path, "%s/%s.lua", b->opts->script_dirs[i], file);
        int rc = og_file_read(path, MAX_HOOK_BYTES, text, len, &err);
        if (rc == 0 || rc == OG_ENOMEM) {
            return rc;
        }
    }
    return OG_ENOENT;
}

static bool on_list(const char *const *names, int n, const char *name) {
    for (int i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* A name that the hook reads and the edge lacks is legal (it is nil); beside one that the
 * edge has and the hook never reads, it is a misspelling. */
static void check_sources(og__build *b, const og_spec_edge *e,
                          const og__hook_names *names) {
    const char *aliases[OG_EDGE_MAX_LANES];
    int n = 0;
    for (; n < e->n_from && n < OG_EDGE_MAX_LANES; n++) {
        aliases[n] = e->from[n].alias ? e->from[n].alias : "";
    }
    for (int i = 0; i < e->n_from && i < n; i++) {
        if (names->n_reads && !on_list(names->reads, names->n_reads, aliases[i])) {
            const char *want = NULL;
            for (int k = 0; k < names->n_reads && !want; k++) {
                want = on_list(aliases, n, names->reads[k]) ? NULL : names->reads[k];
            }
            if (want) {
                og_diags_error(
                    b->diags, e->from[i].src,
                    "hook '%s' reads src.%s, which the edge does not have, and "
                    "never src.%s, which it has",
                    e->hook, want, aliases[i]);
            }
        }
    }
}

static void check_targets(og__build *b, const og_spec_edge *e,
                          const og__hook_names *names) {
    const char *aliases[OG_MAX_PORTS];
    int n = 0;
    for (; n < e->n_to && n < OG_MAX_PORTS; n++) {
        aliases[n] = e->to[n].alias ? e->to[n].alias : "";
    }
    for (int i = 0; i < names->n_emits; i++) {
        if (!on_list(aliases, n, names->emits[i])) {
            og_diags_error(b->diags, e->hook_src,
                           "hook '%s' emits '%s', which the edge's `to` does not have",
                           e->hook, names->emits[i]);
            og_diags_hint(b->diags, "add it: to: {%s: %s.PORT}", names->emits[i],
                          e->to[0].stage >= 0 ? b->spec->stages[e->to[0].stage].name
                                              : "STAGE");
        }
    }
}

static void check_names(og__build *b, const og_spec_edge *e) {
    og__hook_names names;
    char *text = NULL;
    size_t len = 0;
    int rc = load_text(b, e->hook_file, &text, &len);
    if (rc == 0) {
        rc = og__plan_hook_scan(b->arena, text, len, e->hook_function, &names);
    }
    if (rc == 0 && names.found) {
        check_sources(b, e, &names);
        check_targets(b, e, &names);
    }
    b->oom |= rc == OG_ENOMEM;
    og_free(text);
}

static void check_hook(og__build *b, og_src src, const char *hook, const char *file,
                       const char *function) {
    og_err err = OG_ERR_INIT;
    if (og_hook_check(b->opts->script_dirs, b->opts->n_script_dirs, file, function,
                      &err) == 0) {
        return;
    }
    if (err.file[0]) {
        og_diags_error(b->diags, src, "hook '%s': %s:%d: %s", hook, err.file, err.line,
                       err.msg);
    } else {
        og_diags_error(b->diags, src, "hook '%s': %s", hook, err.msg);
    }
    if (err.hint[0]) {
        og_diags_hint(b->diags, "%s", err.hint);
    }
}

/* ---- environments ---------------------------------------------------------------- */

static const char *const *field_names(og__build *b) {
    const char **names = og__plan_new(b, (size_t)b->spec->n_request, sizeof *names);
    for (int i = 0; names && i < b->spec->n_request; i++) {
        names[i] = b->spec->request[i].name;
    }
    return names;
}

static const og_hook_cfg *configs(og__build *b, int *n) {
    og_hook_cfg *cfg = og__plan_new(b, (size_t)b->n_stages + 2, sizeof *cfg);
    *n = 0;
    if (!cfg || !b->model) {
        return cfg;
    }
    const json_t *root = og_model_config(b->model, "", NULL, NULL);
    const json_t *index = og_model_index(b->model);
    if (root) {
        cfg[(*n)++] = (og_hook_cfg){"root", root};
    }
    if (index) {
        cfg[(*n)++] = (og_hook_cfg){"index", index};
    }
    for (int i = 0; i < b->n_stages; i++) {
        if (b->stages[i].section) {
            cfg[(*n)++] = (og_hook_cfg){b->stages[i].name, b->stages[i].section};
        }
    }
    return cfg;
}

static const og_tokenizer *tokenizer_of(og__build *b, const og_plan_stage *s) {
    const og_tokenizer *t = NULL;
    og_err err = OG_ERR_INIT;
    if (!b->model || !s->tokenizer) {
        return NULL;
    }
    if (og_model_tokenizer(b->model, s->tokenizer, &t, &err) < 0) {
        og_diags_error(b->diags, s->src, "stage '%s': %s", s->name, err.msg);
        return NULL;
    }
    return t;
}

/* Names of the map whose stages left the plan. */
static void fill_absent(og__build *b, const og_plan_edge *e, const og_spec_edge *spec,
                        og_hook_env *env) {
    const char **absent = og__plan_new(b, (size_t)spec->n_from + 1, sizeof *absent);
    for (int i = 0; absent && i < spec->n_from; i++) {
        bool kept = false;
        for (int k = 0; k < e->n_from; k++) {
            kept |= !strcmp(e->from[k].alias, spec->from[i].alias);
        }
        if (!kept) {
            absent[env->n_absent++] = spec->from[i].alias;
        }
    }
    env->absent = absent;
}

static void fill_env(og__build *b, const og_plan_edge *e, const og_spec_edge *spec,
                     og_hook_env *env) {
    int t = e->to[0].stage;
    og_hook_port *ports = og__plan_new(b, (size_t)e->n_to, sizeof *ports);
    const char **sources = og__plan_new(b, (size_t)e->n_from, sizeof *sources);
    if (b->oom) {
        return;
    }
    for (int i = 0; i < e->n_to; i++) {
        ports[i] = (og_hook_port){e->to[i].alias, e->to[i].port};
    }
    for (int i = 0; i < e->n_from; i++) {
        sources[i] = e->from[i].alias;
    }
    env->file = spec->hook_file;
    env->function = spec->hook_function;
    env->ports = ports, env->n_ports = e->n_to;
    env->sources = sources, env->n_sources = e->n_from;
    fill_absent(b, e, spec, env);
    env->lanes = e->lanes, env->n_lanes = e->n_lanes;
    env->numbered = e->numbered;
    if (t >= 0) {
        const og_plan_stage *s = &b->stages[t];
        env->stage = s->name;
        env->to = s->arch;
        env->section = s->section;
        env->tokenizer = tokenizer_of(b, s);
    }
}

static void make_envs(og__build *b) {
    int n_cfg;
    const og_hook_cfg *cfg = configs(b, &n_cfg);
    const char *const *fields = field_names(b);
    for (int i = 0; i < b->n_edges && !b->oom; i++) {
        og_plan_edge *e = &b->edges[i];
        og_hook_env *env = e->hook ? og__plan_new(b, 1, sizeof *env) : NULL;
        if (!env) {
            continue;
        }
        env->dirs = b->plan->script_dirs;
        env->n_dirs = b->plan->n_script_dirs;
        env->cfg = cfg, env->n_cfg = n_cfg;
        env->fields = fields, env->n_fields = b->spec->n_request;
        fill_env(b, e, &b->spec->edges[e->spec], env);
        e->env = env;
    }
}

int og__pass_hooks(og__build *b) {
    for (int i = 0; i < b->spec->n_edges && !b->oom; i++) {
        const og_spec_edge *e = &b->spec->edges[i];
        if (e->hook) {
            check_hook(b, e->hook_src, e->hook, e->hook_file, e->hook_function);
            check_names(b, e);
        }
    }
    for (int i = 0; i < b->spec->n_routes; i++) {
        const og_spec_route *r = &b->spec->routes[i];
        if (r->next) {
            check_hook(b, r->next_src, r->next, r->next_file, r->next_function);
        }
    }
    make_envs(b);
    return b->oom || og_diags_oom(b->diags) ? OG_ENOMEM : 0;
}
