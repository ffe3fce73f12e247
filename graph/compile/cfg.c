/* `$` values: keys of the checkpoint's configuration, and picking a pipeline by them. */
#include "graph/compile/compile.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CANDIDATES 256

const json_t *og__plan_section(og__build *b, int spec_stage) {
    og__bstage *s = &b->bs[spec_stage];
    if (s->tried || !b->model || !s->arch) {
        return s->section;
    }
    s->tried = true;
    const og_spec_stage *spec = &b->spec->stages[spec_stage];
    const char *section =
        s->arch->section && s->arch->section[0] ? s->arch->section : NULL;
    og_err err = OG_ERR_INIT;
    s->section = og_model_config(b->model, s->folder, section, &err);
    if (!s->section) {
        og_diags_error(b->diags, spec->src, "stage '%s': %s", spec->name, err.msg);
    }
    return s->section;
}

static const json_t *scope_of(og__build *b, const og_cfg_ref *ref, int own,
                              int *unknown) {
    *unknown = 0;
    if (!b->model) {
        *unknown = 1;
        return NULL;
    }
    if (ref->scope && strcmp(ref->scope, "root") == 0) {
        return og_model_config(b->model, "", NULL, NULL);
    }
    if (ref->scope && strcmp(ref->scope, "index") == 0) {
        return og_model_index(b->model);
    }
    int stage = ref->scope ? og_pipeline_stage(b->spec, ref->scope) : own;
    if (stage < 0 || !b->bs[stage].arch) {
        *unknown = 1;
        return NULL;
    }
    const json_t *j = og__plan_section(b, stage);
    *unknown = j == NULL;
    return j;
}

/* The type of an arch's port may name a key inside an object of the arch's own section. */
static bool in_own_section(const og__build *b, const og_cfg_ref *ref, int own) {
    return own >= 0 && ref->scope && strcmp(ref->scope, "root") != 0 &&
           strcmp(ref->scope, "index") != 0 && og_pipeline_stage(b->spec, ref->scope) < 0;
}

og__cfg_state og__plan_cfg_get(og__build *b, const og_cfg_ref *ref, int own,
                               const json_t **out) {
    int unknown;
    if (in_own_section(b, ref, own)) {
        og_cfg_ref nested = {.src = ref->src,
                             .key = og__plan_text(b, "%s.%s", ref->scope, ref->key)};
        return og__plan_cfg_get(b, &nested, own, out);
    }
    const json_t *scope = scope_of(b, ref, own, &unknown);
    *out = NULL;
    if (unknown) {
        return OG__CFG_UNKNOWN;
    }
    *out = og_cfg_find(scope, ref->key);
    return *out ? OG__CFG_FOUND : OG__CFG_ABSENT;
}

/* Nearest key of the object that the last part of a dotted key would be looked up in. */
static const char *near_key(const json_t *obj, const char *key) {
    const char *names[512];
    int n = 0;
    const char *k;
    json_t *v;
    json_object_foreach((json_t *)obj, k, v) {
        if (n < 512) {
            names[n++] = k;
        }
    }
    return og_near(key, names, n);
}

og__cfg_state og__plan_cfg_need(og__build *b, const og_cfg_ref *ref, int own,
                                const json_t **out) {
    og__cfg_state st = og__plan_cfg_get(b, ref, own, out);
    if (st == OG__CFG_ABSENT) {
        int unknown;
        const json_t *scope = scope_of(b, ref, own, &unknown);
        const char *name = ref->scope ? ref->scope
                           : own >= 0 ? b->spec->stages[own].name
                                      : "";
        og_diags_error(b->diags, ref->src,
                       "the checkpoint's configuration of '%s' has no key '%s'", name,
                       ref->key);
        og_diags_suggest(b->diags, scope ? near_key(scope, ref->key) : NULL);
    }
    if (st == OG__CFG_UNKNOWN && !b->model && !b->check) {
        og_diags_error(b->diags, ref->src, "$%s%s%s needs a checkpoint",
                       ref->scope ? ref->scope : "", ref->scope ? "." : "", ref->key);
        og_diags_hint(b->diags, "give --model DIR");
    }
    return st;
}

static const char *json_text(og__build *b, const json_t *j) {
    if (json_is_string(j)) {
        return json_string_value(j);
    }
    if (json_is_boolean(j)) {
        return json_is_true(j) ? "true" : "false";
    }
    if (json_is_integer(j)) {
        return og__plan_text(b, "%" JSON_INTEGER_FORMAT, json_integer_value(j));
    }
    return json_is_real(j) ? og__plan_text(b, "%.17g", json_real_value(j)) : NULL;
}

const char *og__plan_spec_text(og__build *b, const og_yaml_node *n, int own) {
    if (!n || n->kind != OG_YAML_SCALAR) {
        return NULL;
    }
    if (n->quoted || !og_cfg_is_ref(n->text)) {
        return n->text;
    }
    og_cfg_ref ref;
    const json_t *j;
    if (!og_cfg_ref_parse(n->text, n->src, true, b->arena, b->diags, &ref) ||
        og__plan_cfg_need(b, &ref, own, &j) != OG__CFG_FOUND) {
        return NULL;
    }
    const char *text = json_text(b, j);
    if (!text) {
        og_diags_error(b->diags, n->src, "%s is not a single value", n->text);
    }
    return text;
}

bool og__plan_spec_int(og__build *b, const og_yaml_node *n, int own, int64_t *out) {
    const char *text = og__plan_spec_text(b, n, own);
    if (!text) {
        return false;
    }
    char *end;
    long long v = strtoll(text, &end, 0);
    if (end == text || *end) {
        og_diags_error(b->diags, n->src, "'%s' is not an integer", text);
        return false;
    }
    *out = v;
    return true;
}

/* ---- picking a pipeline ---------------------------------------------------------- */

static const json_t *match_value(og_model *m, const char *key) {
    const json_t *index = og_model_index(m);
    if (strcmp(key, "class") == 0) {
        return json_object_get(index, "_class_name");
    }
    const json_t *v = og_cfg_find(og_model_config(m, "", NULL, NULL), key);
    return v ? v : og_cfg_find(index, key);
}

bool og__plan_match(og_model *m, const og_pipeline *p, const og_spec_match **why) {
    for (int i = 0; i < p->n_match; i++) {
        const json_t *v = match_value(m, p->match[i].key);
        const char *want = p->match[i].value;
        const char *text = json_string_value(v);
        char number[32] = "";
        if (json_is_integer(v)) {
            snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT,
                     json_integer_value(v));
            text = number;
        } else if (json_is_boolean(v)) {
            text = json_is_true(v) ? "true" : "false";
        }
        if (!v || (want && (!text || strcmp(text, want) != 0))) {
            *why = &p->match[i];
            return false;
        }
    }
    return true;
}

/* A pipeline that only inherited its `match` from a base is a variant that has to be asked
 * for by name. */
static bool own_match(const og_pipeline *p) {
    for (int i = 0; i < p->n_match; i++) {
        if (p->match[i].src.file && strcmp(p->match[i].src.file, p->file) == 0) {
            return true;
        }
    }
    return false;
}

static int list_yaml(og__build *b, const char *dir, char **names, int n) {
    struct dirent **found = NULL;
    int k = scandir(dir, &found, NULL, alphasort);
    for (int i = 0; i < k; i++) {
        size_t len = strlen(found[i]->d_name);
        if (len > 5 && strcmp(found[i]->d_name + len - 5, ".yaml") == 0 &&
            n < MAX_CANDIDATES) {
            names[n] = og_arena_printf(b->arena, "%s/%s", dir, found[i]->d_name);
            b->oom |= !names[n];
            n += names[n] != NULL;
        }
        free(found[i]);
    }
    free(found);
    return n;
}

/* Load quietly: a broken pipeline in the folder is not a candidate. */
static og_pipeline *try_load(og__build *b, const char *path) {
    og_diags *quiet = og_diags_create();
    og_pipeline *p = NULL;
    const og_spec_match *why;
    if (quiet && og_pipeline_load(path, b->opts->pipeline_dirs, b->opts->n_pipeline_dirs,
                                  quiet, &p, NULL) < 0) {
        p = NULL;
    }
    og_diags_destroy(quiet);
    if (p && (!own_match(p) || !og__plan_match(b->model, p, &why))) {
        og_pipeline_destroy(p);
        p = NULL;
    }
    return p;
}

og_pipeline *og__plan_pick(og__build *b) {
    const og_plan_options *o = b->opts;
    char *names[MAX_CANDIDATES];
    int n = 0;
    for (int d = 0; d < o->n_pipeline_dirs; d++) {
        n = list_yaml(b, o->pipeline_dirs[d], names, n);
    }
    og_pipeline *best = NULL;
    const char *tie = NULL;
    for (int i = 0; i < n; i++) {
        og_pipeline *p = try_load(b, names[i]);
        if (!p) {
            continue;
        }
        if (best && strcmp(best->name, p->name) != 0 && best->n_match == p->n_match) {
            tie = og__plan_text(b, "%s", p->file);
        }
        if (best && best->n_match >= p->n_match) {
            og_pipeline_destroy(p);
            continue;
        }
        og_pipeline_destroy(best);
        best = p;
        tie = NULL;
    }
    og_src none = {0};
    if (!best) {
        const char *type = json_string_value(match_value(b->model, "model_type"));
        const char *cls = json_string_value(match_value(b->model, "class"));
        og_diags_error(b->diags, none, "no pipeline matches the checkpoint %s (%s %s)",
                       o->model, type ? "model_type" : "class",
                       type  ? type
                       : cls ? cls
                             : "unknown");
        og_diags_hint(b->diags, "%d pipeline files were looked at; name one", n);
    } else if (tie) {
        og_diags_error(b->diags, none, "two pipelines match the checkpoint: %s and %s",
                       best->file, tie);
        og_diags_hint(b->diags, "name the one to use");
        og_pipeline_destroy(best);
        best = NULL;
    }
    return best;
}
