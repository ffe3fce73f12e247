/* Request fields: types, defaults as JSON, and the words that the checkpoint allows. */
#include "graph/compile/compile.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static json_t *scalar_json(og__build *b, og_type_kind kind, const og_yaml_node *n) {
    bool truth;
    int64_t i;
    double f;
    int w, h, used = 0;
    if (n->kind != OG_YAML_SCALAR) {
        og_diags_error(b->diags, n->src, "the default must be a %s, not %s",
                       og_type_kind_name(kind), og_yaml_kind_name(n->kind));
        return NULL;
    }
    switch (kind) {
    case OG_TYPE_BOOL:
        return og_yaml_bool(n, &truth, b->diags) ? json_boolean(truth) : NULL;
    case OG_TYPE_INT: return og_yaml_int(n, &i, b->diags) ? json_integer(i) : NULL;
    case OG_TYPE_FLOAT: return og_yaml_float(n, &f, b->diags) ? json_real(f) : NULL;
    case OG_TYPE_SIZE:
        if (sscanf(n->text, "%dx%d%n", &w, &h, &used) != 2 || n->text[used]) {
            og_diags_error(b->diags, n->src, "a size is WIDTHxHEIGHT, not '%s'", n->text);
            return NULL;
        }
        return json_pack("{s:i,s:i}", "width", w, "height", h);
    default: return json_string(n->text);
    }
}

json_t *og__plan_field_json(og__build *b, const og_type *type, const og_yaml_node *n) {
    if (!type->list) {
        return scalar_json(b, type->kind, n);
    }
    json_t *list = json_array();
    int count = n->kind == OG_YAML_SEQ ? n->n : 1;
    for (int i = 0; list && i < count; i++) {
        const og_yaml_node *item = n->kind == OG_YAML_SEQ ? n->items[i] : n;
        json_t *v = scalar_json(b, type->kind, item);
        if (!v || json_array_append_new(list, v) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Keys of a map of the checkpoint. A map that is missing or empty sets no limit. */
static void words_of_map(og__build *b, const og_spec_field *s, og_plan_field *f) {
    const json_t *map;
    og__cfg_state st = og__plan_cfg_get(b, &s->one_of_ref, -1, &map);
    if (st == OG__CFG_UNKNOWN && !b->model && !b->check) {
        og__plan_cfg_need(b, &s->one_of_ref, -1,
                          &map); /* says that a checkpoint is needed */
    }
    if (st != OG__CFG_FOUND) {
        return;
    }
    if (!json_is_object(map)) {
        og_diags_error(b->diags, s->one_of_ref.src,
                       "one_of of field '%s': $%s.%s of the checkpoint is not a map",
                       s->name, s->one_of_ref.scope ? s->one_of_ref.scope : "",
                       s->one_of_ref.key);
        return;
    }
    const char **words = og__plan_new(b, json_object_size(map), sizeof *words);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)map, key, v) {
        if (words) {
            words[f->n_one_of++] = og__plan_text(b, "%s", key);
        }
    }
    f->one_of = words;
}

static void make_field(og__build *b, const og_spec_field *s, og_plan_field *f) {
    f->name = s->name;
    f->src = s->src;
    f->type = s->type;
    f->optional = s->type.optional;
    f->one_of = s->one_of;
    f->n_one_of = s->n_one_of;
    f->has_min = s->has_min, f->min = s->min;
    f->has_max = s->has_max, f->max = s->max;
    f->has_step = s->has_step, f->step = s->step;
    f->has_area = s->has_area, f->area = s->area, f->area_step = s->area_step;
    f->area_of = s->has_area ? og_pipeline_field(b->spec, s->area_of) : -1;
    if (s->has_one_of_ref) {
        words_of_map(b, s, f);
    }
    if (s->def) {
        f->def = og__plan_field_json(b, &s->type, s->def);
        b->oom |= !f->def && !og_diags_errors(b->diags);
    }
}

int og__pass_fields(og__build *b) {
    b->fields = og__plan_new(b, (size_t)b->spec->n_request, sizeof *b->fields);
    for (int i = 0; b->fields && i < b->spec->n_request; i++) {
        make_field(b, &b->spec->request[i], &b->fields[i]);
    }
    return b->oom || og_diags_oom(b->diags) ? OG_ENOMEM : 0;
}
