/* Tables of options that are made at run time: request fields and overlay keys. */
#include <string.h>

#include "graph/cli/cli.h"
#include "graph/spec/schema.h"

static char *dashed(og_arena *arena, const char *name) {
    char *copy = og_arena_strdup(arena, name);
    for (char *c = copy; c && *c; c++)
        if (*c == '_') *c = '-';
    return copy;
}

static const char *field_doc(og_arena *arena, const og_spec_field *f) {
    og_str s = OG_STR_INIT;
    if (f->n_one_of) {
        og_str_add(&s, "one of");
        for (int i = 0; i < f->n_one_of; i++)
            og_str_addf(&s, "%s %s", i ? "," : "", f->one_of[i]);
    } else if (f->has_one_of_ref) {
        og_str_addf(&s, "one of the checkpoint's %s", f->one_of_ref.key);
    }
    if (f->has_min) og_str_addf(&s, "%sfrom %g", s.len ? "; " : "", f->min);
    if (f->has_max)
        og_str_addf(&s, "%sto %g", f->has_min ? " " : s.len ? "; " : "", f->max);
    const char *sep = s.len ? "; " : "";
    if (f->def && f->def->kind == OG_YAML_SCALAR)
        og_str_addf(&s, "%sdefault: %s", sep, f->def->text);
    else if (f->def || f->has_area)
        og_str_addf(&s, "%shas a default", sep);
    else
        og_str_addf(&s, "%s%s", sep, f->type.optional ? "optional" : "required");
    const char *doc = og_arena_strdup(arena, s.data ? s.data : "");
    og_str_free(&s);
    return doc;
}

static const char *type_word(og_arena *arena, const og_type *t) {
    switch (t->kind) {
    case OG_TYPE_TEXT: return "TEXT";
    case OG_TYPE_INT: return "INT";
    case OG_TYPE_FLOAT: return "NUMBER";
    case OG_TYPE_SIZE: return "WIDTHxHEIGHT";
    case OG_TYPE_MESSAGES: return "JSON";
    case OG_TYPE_AUDIO:
    case OG_TYPE_IMAGE:
    case OG_TYPE_VIDEO: return "FILE";
    default: return og_arena_strdup(arena, og_type_kind_name(t->kind));
    }
}

const og__opt *og__field_options(og_arena *arena, const og_pipeline *p) {
    og__opt *o = og_arena_alloc(arena, (size_t)(p->n_request + 1) * sizeof *o);
    for (int i = 0; o && i < p->n_request; i++) {
        const og_spec_field *f = &p->request[i];
        o[i].name = dashed(arena, f->name);
        o[i].kind = f->type.kind == OG_TYPE_BOOL && !f->type.list ? OG__BOOL : OG__VALUE;
        o[i].arg = type_word(arena, &f->type);
        o[i].fill =
            !strcmp(o[i].arg ? o[i].arg : "", "FILE") ? OG__FILL_FILE : OG__FILL_NONE;
        o[i].many = f->type.list;
        o[i].doc = field_doc(arena, f);
        if (!o[i].name || !o[i].arg || !o[i].doc) return NULL;
    }
    return o;
}

static bool is_flag(const og_key *k) {
    if (k->section != OG_SECTION_OVERLAY && k->section != OG_SECTION_OVERLAY_STAGE)
        return false;
    if (!strcmp(k->name, "stages") || !strcmp(k->name, "platforms")) return false;
    return strcmp(k->name, "stage_id") && strcmp(k->name, "base_config") &&
           !(k->flags & OG_KEY_REMOVED);
}

const og__opt *og__overlay_options(og_arena *arena) {
    int n, m = 0;
    const og_key *keys = og_keys(OG_SCHEMA_OVERLAY, &n);
    og__opt *o = og_arena_alloc(arena, (size_t)(n + 1) * sizeof *o);
    for (int i = 0; o && i < n; i++) {
        if (!is_flag(&keys[i])) continue;
        const char *name = dashed(arena, keys[i].name);
        bool seen = false;
        for (int j = 0; name && j < m; j++) seen |= !strcmp(o[j].name, name);
        if (seen) continue;
        o[m].name = name;
        o[m].kind = keys[i].values == OG_VALUE_BOOL ? OG__BOOL : OG__VALUE;
        o[m].arg = "VALUE";
        o[m].doc = keys[i].doc;
        if (!o[m++].name) return NULL;
    }
    return o;
}
