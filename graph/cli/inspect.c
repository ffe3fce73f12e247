/* `inspect`: what this binary knows, read from the same descriptors that the compiler
 * and the nodes use. Each thing is first put into a JSON object; the text is made from
 * that. */
#include <dirent.h>
#include <string.h>

#include "graph/cli/cli.h"
#include "graph/cli/ops.h"
#include "graph/spec/schema.h"

#define NAMES_MAX 512

/* ---- objects ------------------------------------------------------------------ */

static json_t *kind_json(const og_kind_desc *k) {
    json_t *archs = json_array();
    for (const og_arch *const *a = og_archs; *a; a++)
        if ((*a)->kind == k->kind) json_array_append_new(archs, json_string((*a)->name));
    return json_pack("{s:s, s:s, s:s?, s:b, s:o}", "is", "kind", "name", k->name, "doc",
                     k->doc, "runs", k->api != NULL, "archs", archs);
}

static json_t *ports_json(const og_arch *a, int direction) {
    json_t *list = json_array();
    for (const og_port_desc *p = a->ports; p && p->name; p++) {
        if (!(p->flags & direction)) continue;
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s?}", "name", p->name,
                                              "type", p->type, "how",
                                              p->flags & OG_PORT_ROWS     ? "rows"
                                              : p->flags & OG_PORT_STREAM ? "stream"
                                                                          : "whole",
                                              "doc", p->doc));
    }
    return list;
}

static json_t *tables_json(const og_arch *a) {
    static const char *const args[] = {"id", "codes", "vector"};
    json_t *list = json_array();
    for (const og_table_desc *t = a->tables; t && t->name; t++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s?, s:s?, s:s?}", "name", t->name,
                                        "takes", args[t->arg], "count", t->count, "width",
                                        t->width, "doc", t->doc));
    return list;
}

static json_t *options_json(const og_arch *a) {
    static const char *const types[] = {"int", "float", "bool", "text"};
    json_t *list = json_array();
    for (const og_option_desc *o = a->options; o && o->name; o++) {
        json_t *j = json_pack("{s:s, s:s, s:s?, s:b, s:s?}", "name", o->name, "type",
                              types[o->type], "default", o->def, "tunable", o->tunable,
                              "doc", o->doc);
        if (o->min != 0 || o->max != 0) {
            json_object_set_new(j, "min", json_real(o->min));
            json_object_set_new(j, "max", json_real(o->max));
        }
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *arch_json(const og_arch *a) {
    const og_kind_desc *k = og_kind_get(a->kind);
    json_t *lanes = json_array();
    for (const char *const *l = a->lanes; l && *l; l++)
        json_array_append_new(lanes, json_string(*l));
    return json_pack("{s:s, s:s, s:s?, s:s?, s:s?, s:s?, s:s?, s:o, s:o, s:o, s:o, s:o}",
                     "is", "arch", "name", a->name, "doc", a->doc, "kind",
                     k ? k->name : NULL, "model", a->model, "section", a->section,
                     "tokenizer", a->tokenizer, "in", ports_json(a, OG_PORT_IN), "out",
                     ports_json(a, OG_PORT_OUT), "tables", tables_json(a), "options",
                     options_json(a), "lanes", lanes);
}

static json_t *op_json(const og__op_doc *o) {
    return json_pack("{s:s, s:s, s:s, s:s}", "is", "op", "name", o->name, "family",
                     o->family, "doc", o->doc);
}

static json_t *types_json(const og_pipeline *p, const og__opt *options) {
    json_t *list = json_array();
    for (int i = 0; i < p->n_request; i++) {
        og_str type = OG_STR_INIT;
        og_type_print(&p->request[i].type, &type);
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s}", "name", p->request[i].name, "type",
                            type.data ? type.data : "", "doc", options[i].doc));
        og_str_free(&type);
    }
    return list;
}

static json_t *pipeline_json(og__cli *cli, const char *name) {
    og_pipeline *p = og__pipeline_open(cli, name);
    const og__opt *options = p ? og__field_options(cli->arena, p) : NULL;
    if (!options) {
        og_pipeline_destroy(p);
        return NULL;
    }
    json_t *stages = json_array(), *answers = json_array();
    for (int i = 0; i < p->n_stages; i++)
        json_array_append_new(
            stages, json_pack("{s:s, s:s, s:s}", "name", p->stages[i].name, "type",
                              p->stages[i].node, "doc", p->stages[i].arch));
    for (int i = 0; i < p->n_edges; i++)
        for (int k = 0; k < p->edges[i].n_to; k++)
            if (p->edges[i].to[k].kind == OG_END_RESPONSE)
                json_array_append_new(answers, json_string(p->edges[i].to[k].name));
    json_t *j = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "is", "pipeline", "name",
                          name, "file", p->file, "request", types_json(p, options),
                          "stages", stages, "response", answers);
    og_pipeline_destroy(p);
    return j;
}

/* ---- names -------------------------------------------------------------------- */

/* Names of the pipelines in all data folders, each once. */
int og__pipeline_names(og_arena *arena, const char **names, int max) {
    og__data data;
    int n = 0;
    og__data_find(arena, NULL, &data);
    for (int i = 0; i < data.n_pipelines; i++) {
        DIR *d = opendir(data.pipelines[i]);
        for (struct dirent *e; d && n < max && (e = readdir(d));) {
            size_t len = strlen(e->d_name);
            if (len < 6 || strcmp(e->d_name + len - 5, ".yaml")) continue;
            const char *name = og_arena_strndup(arena, e->d_name, len - 5);
            bool seen = !name;
            for (int k = 0; k < n && !seen; k++) seen = !strcmp(names[k], name);
            if (!seen) names[n++] = name;
        }
        if (d) closedir(d);
    }
    for (int i = 1; i < n; i++) /* few: insertion sort */
        for (int k = i; k > 0 && strcmp(names[k - 1], names[k]) > 0; k--) {
            const char *t = names[k];
            names[k] = names[k - 1];
            names[k - 1] = t;
        }
    return n;
}

static json_t *list_json(og__cli *cli, const char *what) {
    json_t *list = json_array();
    int n;
    const og_kind_desc *kinds = og_kinds(&n);
    if (*what == 'k')
        for (int i = 0; i < n; i++) json_array_append_new(list, kind_json(&kinds[i]));
    if (*what == 'a')
        for (const og_arch *const *a = og_archs; *a; a++)
            json_array_append_new(list, arch_json(*a));
    if (*what == 'o')
        for (const og__op_doc *o = og__op_docs; o->name; o++)
            json_array_append_new(list, op_json(o));
    if (*what == 'p') {
        const char *names[NAMES_MAX];
        n = og__pipeline_names(cli->arena, names, NAMES_MAX);
        for (int i = 0; i < n; i++) {
            json_t *j = pipeline_json(cli, names[i]);
            if (j) json_array_append_new(list, j);
        }
    }
    return list;
}

static json_t *find(og__cli *cli, const char *name) {
    const og_kind_desc *k = og_kind_find(name);
    const og_arch *a = og_arch_find(name);
    if (k) return kind_json(k);
    if (a) return arch_json(a);
    for (const og__op_doc *o = og__op_docs; o->name; o++)
        if (!strcmp(o->name, name) ||
            (!strncmp(name, "og_op_", 6) && !strcmp(o->name, name + 6)))
            return op_json(o);
    const char *names[NAMES_MAX];
    int n = og__pipeline_names(cli->arena, names, NAMES_MAX);
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], name)) return pipeline_json(cli, name);
    if (strchr(name, '/') || strstr(name, ".yaml")) return pipeline_json(cli, name);
    return NULL;
}

static int not_found(og__cli *cli, const char *name) {
    const char *names[NAMES_MAX];
    int n = og__pipeline_names(cli->arena, names, NAMES_MAX / 2), kinds;
    const og_kind_desc *k = og_kinds(&kinds);
    for (int i = 0; i < kinds; i++) names[n++] = k[i].name;
    for (const og_arch *const *a = og_archs; *a && n < NAMES_MAX; a++)
        names[n++] = (*a)->name;
    for (const og__op_doc *o = og__op_docs; o->name && n < NAMES_MAX; o++)
        names[n++] = o->name;
    const char *const words[] = {"kinds", "archs", "ops", "pipelines"};
    for (int i = 0; i < 4 && n < NAMES_MAX; i++) names[n++] = words[i];
    const char *best = og_near(name, names, n);
    og__usage(cli, "nothing here is called '%s'", name);
    return best ? og__hint("did you mean '%s'?", best)
                : og__hint("'omni-graph inspect' lists kinds, archs, ops and pipelines");
}

/* ---- text --------------------------------------------------------------------- */

static const char *text_of(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

static void line(const char *key, const json_t *j, og_str *out) {
    if (*text_of(j, key)) og_str_addf(out, "  %-10s %s\n", key, text_of(j, key));
}

static int width_of(const json_t *list, const char *key) {
    size_t i;
    json_t *item;
    int w = 0;
    json_array_foreach(list, i, item) {
        int len = (int)strlen(text_of(item, key));
        if (len > w) w = len;
    }
    return w;
}

/* A list of strings on one line, a list of objects as a table. */
static void section(const char *key, const json_t *j, og_str *out) {
    const json_t *list = json_object_get(j, key);
    size_t i;
    json_t *item;
    if (!json_array_size(list)) return;
    if (json_is_string(json_array_get(list, 0))) {
        og_str_addf(out, "  %-10s", key);
        json_array_foreach(list, i, item)
            og_str_addf(out, " %s", json_string_value(item));
        og_str_add(out, "\n");
        return;
    }
    og_str_addf(out, "  %s\n", key);
    const char *second = *text_of(json_array_get(list, 0), "takes") ? "takes" : "type";
    int w = width_of(list, "name"), v = width_of(list, second);
    json_array_foreach(list, i, item) {
        og_str_addf(out, "    %-*s  %-*s  %s", w, text_of(item, "name"), v,
                    text_of(item, second), text_of(item, "doc"));
        if (*text_of(item, "how")) og_str_addf(out, " [%s]", text_of(item, "how"));
        if (*text_of(item, "default"))
            og_str_addf(out, " [default %s]", text_of(item, "default"));
        og_str_add(out, "\n");
    }
}

static void print_object(const json_t *j, og_str *out) {
    static const char *const lines[] = {"kind",      "model", "family", "section",
                                        "tokenizer", "file",  NULL};
    static const char *const sections[] = {"archs",    "lanes",   "in",      "out",
                                           "tables",   "options", "request", "stages",
                                           "response", NULL};
    og_str_addf(out, "%s %s", text_of(j, "is"), text_of(j, "name"));
    if (*text_of(j, "doc")) og_str_addf(out, ": %s", text_of(j, "doc"));
    if (json_is_false(json_object_get(j, "runs")))
        og_str_add(out, " (no arch runs it yet)");
    og_str_add(out, "\n");
    for (const char *const *k = lines; *k; k++) line(*k, j, out);
    for (const char *const *k = sections; *k; k++) section(*k, j, out);
}

static void print_list(const json_t *list, og_str *out) {
    size_t i;
    json_t *item;
    int w = width_of(list, "name");
    json_array_foreach(list, i, item) {
        const char *doc =
            *text_of(item, "doc") ? text_of(item, "doc") : text_of(item, "file");
        og_str_addf(out, "  %-*s  %s\n", w, text_of(item, "name"), doc);
    }
}

static void print_everything(og__cli *cli, og_str *out) {
    static const char *const words[] = {"kinds", "archs", "ops", "pipelines"};
    for (int i = 0; i < 4; i++) {
        json_t *list = list_json(cli, words[i]);
        og_str_addf(out, "%s%s:\n", i ? "\n" : "", words[i]);
        print_list(list, out);
        json_decref(list);
    }
}

/* ---- the command -------------------------------------------------------------- */

static int show(og__cli *cli, const char *what, bool json) {
    bool list =
        og__word_in("kinds|kind|archs|arch|ops|op|pipelines|pipeline|nodes|node", what);
    const char *word = *what == 'n' ? "kinds" : what; /* a node is of a kind */
    json_t *j = list ? list_json(cli, word) : find(cli, what);
    if (!j) return not_found(cli, what);
    if (json) return og__print_json(j);
    og_str s = OG_STR_INIT;
    if (list)
        print_list(j, &s);
    else
        print_object(j, &s);
    json_decref(j);
    return og__print_str(&s);
}

static int run(og__cli *cli) {
    const og__args *a = &cli->args;
    const char *format = og__args_get(a, "format");
    bool json = format && !strcmp(format, "json");
    if (a->n_pos && !strcmp(a->pos[0], "diff")) {
        if (a->n_pos == 3) return og__diff(cli, a->pos[1], a->pos[2]);
        return og__usage(cli, "inspect diff takes two folders, or a folder and a "
                              ".safetensors file");
    }
    if (a->n_pos > 1) return og__usage(cli, "unexpected argument '%s'", a->pos[1]);
    if (a->n_pos) return show(cli, a->pos[0], json);
    if (json) {
        json_t *all =
            json_pack("{s:o, s:o, s:o, s:o}", "kinds", list_json(cli, "kinds"), "archs",
                      list_json(cli, "archs"), "ops", list_json(cli, "ops"), "pipelines",
                      list_json(cli, "pipelines"));
        return og__print_json(all);
    }
    og_str s = OG_STR_INIT;
    print_everything(cli, &s);
    return og__print_str(&s);
}

static const og__opt options[] = {
    {"format", 'f', OG__VALUE, "FORMAT", "text|json", OG__FILL_NONE, false,
     "form of what is printed"},
    {"tol", 0, OG__VALUE, "X", NULL, OG__FILL_NONE, false,
     "diff: largest absolute difference that counts as equal (default: 0)"},
    {"prefix", 0, OG__VALUE, "TEXT", NULL, OG__FILL_NONE, false,
     "diff: what stands before the names in the second set"},
    {0},
};

static const char *const examples[] = {
    "omni-graph inspect qwen3_tts_talker",
    "omni-graph inspect archs --format json",
    "omni-graph inspect diff layers_a layers_b --tol 1e-5",
    NULL,
};

const og__cmd og__cmd_inspect = {
    .name = "inspect",
    .usage = "[kinds|archs|ops|pipelines|NAME] | diff DIR_A DIR_B",
    .brief = "show node kinds, archs, ops and pipelines; compare layer dumps",
    .doc = "For developers: 'diff' compares two folders of 'run --tap-layers', or one "
           "with a "
           ".safetensors file, tensor by tensor, and names the first that differs.",
    .options = options,
    .words = "kinds|archs|ops|pipelines|diff",
    .fill = OG__FILL_NAME,
    .min_pos = 0,
    .max_pos = 3,
    .examples = examples,
    .run = run,
};
