/* Request fields, stages and routes: from the checked tree to structs. */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "graph/spec/pipeline_parts.h"
#include "graph/spec/schema.h"

static const char *text_of(const og_yaml_node *map, const char *key, og_src *src) {
    const og_yaml_node *n = og__given(map, key);
    if (!n || n->kind != OG_YAML_SCALAR) return NULL;
    if (src) *src = n->src;
    return n->text;
}

static void check_name(og__reading *r, og_src src, const char *what, const char *name) {
    if (og_name_ok(name, strlen(name))) return;
    og_diags_error(r->d, src, "'%.60s' is no legal name of %s", name, what);
    og_diags_hint(r->d, "letters, digits, _ and -, beginning with a letter or _");
}

void og__no_such(og__reading *r, og_src src, const char *what, const char *name,
                 const char *const *names, int n) {
    og_diags_error(r->d, src, "no %s '%.60s'", what, name);
    const char *best = og_near(name, names, n);
    if (best) {
        og_diags_suggest(r->d, best);
        return;
    }
    og_str all = OG_STR_INIT;
    for (int i = 0; i < n && i < 20; i++) {
        og_str_addf(&all, "%s%s", i ? ", " : "", names[i]);
    }
    if (all.data) og_diags_hint(r->d, "there are: %s%s", all.data, n > 20 ? ", ..." : "");
    og_str_free(&all);
}

void og__no_such_stage(og__reading *r, og_src src, const char *name) {
    const char *names[OG_PIPELINE_MAX_STAGES];
    for (int i = 0; i < r->p->n_stages; i++) names[i] = r->stages[i].name;
    og__no_such(r, src, "stage", name, names, r->p->n_stages);
}

void og__no_such_field(og__reading *r, og_src src, const char *name) {
    const char **names = og__room(r, r->p->n_request, sizeof *names);
    for (int i = 0; names && i < r->p->n_request; i++) names[i] = r->request[i].name;
    if (names) og__no_such(r, src, "request field", name, names, r->p->n_request);
}

const og_cond *og__read_when(og__reading *r, const og_yaml_node *map) {
    const og_yaml_node *n = og__given(map, "when");
    return n ? og_cond_parse(n->text, og_yaml_text_src(n), r->a, r->d) : NULL;
}

bool og__read_hook(og__reading *r, const og_yaml_node *n, const char **file,
                   const char **function) {
    const char *dot = strchr(n->text, '.');
    if (!dot || !og_name_ok(n->text, (size_t)(dot - n->text)) ||
        !og_name_ok(dot + 1, strlen(dot + 1))) {
        og_diags_error(r->d, n->src, "a hook is written file.function, not '%.60s'",
                       n->text);
        return false;
    }
    *file = og_arena_strndup(r->a, n->text, (size_t)(dot - n->text));
    *function = dot + 1;
    if (!*file) r->oom = true;
    return *file != NULL;
}

/* Request fields. */

static bool is_size(const char *s) {
    for (int side = 0; side < 2; side++) {
        size_t n = strspn(s, "0123456789");
        if (n < 1 || n > 6 || s[0] == '0') return false;
        s += n;
        if (side == 0 && *s != 'x' && *s != 'X') return false;
        s += side == 0;
    }
    return !*s;
}

static bool default_fits(const og_spec_field *f, const og_yaml_node *v) {
    switch (f->type.kind) {
    case OG_TYPE_BOOL: return og_value_fits(v, OG_VALUE_BOOL);
    case OG_TYPE_INT: return og_value_fits(v, OG_VALUE_INT);
    case OG_TYPE_FLOAT: return og_value_fits(v, OG_VALUE_FLOAT);
    case OG_TYPE_SIZE: return is_size(v->text);
    default: return f->type.kind == OG_TYPE_TEXT;
    }
}

static bool allowed_word(const og_spec_field *f, const char *text) {
    for (int i = 0; i < f->n_one_of; i++) {
        if (!strcasecmp(f->one_of[i], text)) return true;
    }
    return f->n_one_of == 0;
}

static void check_default_item(og__reading *r, const og_spec_field *f,
                               const og_yaml_node *v) {
    double x;
    if (v->kind != OG_YAML_SCALAR || !default_fits(f, v)) {
        og_diags_error(r->d, v->src, "the default of '%s' is no %s", f->name,
                       og_type_kind_name(f->type.kind));
    } else if (!allowed_word(f, v->text)) {
        og_diags_error(r->d, v->src, "the default of '%s' is not in its one_of", f->name);
    } else if ((f->has_min || f->has_max) && og_yaml_float(v, &x, NULL) &&
               ((f->has_min && x < f->min) || (f->has_max && x > f->max))) {
        og_diags_error(r->d, v->src, "the default of '%s' is out of its range", f->name);
    }
}

static void check_default(og__reading *r, const og_spec_field *f) {
    const og_yaml_node *v = f->def;
    if (!v) return;
    if (!f->type.list) {
        check_default_item(r, f, v);
        return;
    }
    if (v->kind != OG_YAML_SEQ) {
        og_diags_error(r->d, v->src, "the default of '%s' must be a list", f->name);
        return;
    }
    for (int i = 0; i < v->n; i++) check_default_item(r, f, v->items[i]);
}

static void read_area(og__reading *r, og_spec_field *f, const og_yaml_node *map) {
    const og_yaml_node *step = og__given(map, "step");
    f->has_area = true;
    f->area_step = 1;
    f->area_of = text_of(map, "of", NULL);
    if (!og_yaml_int(og_yaml_get(map, "area"), &f->area, r->d)) return;
    if (step && !og_yaml_int(step, &f->area_step, r->d)) return;
    if (f->type.kind != OG_TYPE_SIZE) {
        og_diags_error(r->d, map->src, "only a size can be taken from a picture");
    }
}

static void read_one_of(og__reading *r, og_spec_field *f, const og_yaml_node *v) {
    if (v->kind == OG_YAML_SCALAR) {
        f->has_one_of_ref = true;
        og_cfg_ref_parse(v->text, og_yaml_text_src(v), false, r->a, r->d, &f->one_of_ref);
        return;
    }
    const char **words = og__room(r, v->n, sizeof *words);
    for (int i = 0; words && i < v->n; i++) words[i] = v->items[i]->text;
    f->one_of = words;
    f->n_one_of = words ? v->n : 0;
    if (!v->n) og_diags_error(r->d, v->src, "'one_of' is empty");
}

static bool read_number(og__reading *r, const og_yaml_node *map, const char *key,
                        double *out) {
    const og_yaml_node *n = og__given(map, key);
    if (!n || !og_yaml_float(n, out, r->d)) return false;
    if (isfinite(*out)) return true;
    og_diags_error(r->d, n->src, "'%s' must be finite", key);
    return false;
}

static void read_limits(og__reading *r, og_spec_field *f, const og_yaml_node *map) {
    f->has_min = read_number(r, map, "min", &f->min);
    f->has_max = read_number(r, map, "max", &f->max);
    f->has_step = read_number(r, map, "step", &f->step);
    if (f->has_min && f->has_max && f->min > f->max) {
        og_diags_error(r->d, og_yaml_get(map, "min")->src, "'min' is above 'max'");
    }
    if (f->has_step && !(f->step > 0)) {
        og_diags_error(r->d, og_yaml_get(map, "step")->src, "'step' must be above 0");
    }
    bool number = f->type.kind == OG_TYPE_INT || f->type.kind == OG_TYPE_FLOAT;
    bool size = f->type.kind == OG_TYPE_SIZE;
    if ((f->has_min || f->has_max || f->has_step) && !number && !size) {
        og_diags_error(r->d, map->src, "min, max and step are for int, float and size");
    }
}

static void read_field_map(og__reading *r, og_spec_field *f, const og_yaml_node *map) {
    const og_yaml_node *type = og__given(map, "type"), *one_of = og__given(map, "one_of");
    const og_yaml_node *def = og__given(map, "default");
    if (!og_type_parse(type->text, og_yaml_text_src(type), r->a, r->d, &f->type)) return;
    read_limits(r, f, map);
    if (one_of) read_one_of(r, f, one_of);
    if (def && def->kind == OG_YAML_MAP)
        read_area(r, f, def);
    else
        f->def = def;
    check_default(r, f);
}

static bool read_field(og__reading *r, og_spec_field *f, const og_yaml_pair *pair) {
    const og_yaml_node *v = pair->value;
    if (v->kind == OG_YAML_NULL) return false;
    *f = (og_spec_field){.name = pair->key, .src = pair->src};
    check_name(r, pair->src, "a request field", pair->key);
    int before = og_diags_errors(r->d);
    if (v->kind == OG_YAML_MAP) {
        read_field_map(r, f, v);
    } else {
        og_type_parse(v->text, og_yaml_text_src(v), r->a, r->d, &f->type);
    }
    if (og_diags_errors(r->d) == before && !og_type_is_field(f->type.kind)) {
        og_diags_error(r->d, v->src, "a request field cannot be '%s'",
                       og_type_kind_name(f->type.kind));
    }
    return true;
}

static void check_area_of(og__reading *r, const og_spec_field *f) {
    if (!f->has_area || !f->area_of) return;
    int k = og_pipeline_field(r->p, f->area_of);
    if (k < 0) {
        og__no_such_field(r, f->src, f->area_of);
    } else if (r->request[k].type.kind != OG_TYPE_IMAGE) {
        og_diags_error(r->d, f->src, "'%s' takes its size from '%s', which is no image",
                       f->name, f->area_of);
    }
}

void og__read_request(og__reading *r) {
    const og_yaml_node *map = og__given(r->p->tree, "request");
    int n = map ? map->n : 0;
    r->request = og__room(r, n, sizeof *r->request);
    if (!r->request) return;
    r->p->request = r->request;
    for (int i = 0; i < n; i++) {
        if (read_field(r, &r->request[r->p->n_request], &map->pairs[i]))
            r->p->n_request++;
    }
    for (int i = 0; i < r->p->n_request; i++) check_area_of(r, &r->request[i]);
}

/* Stages. */

static void read_weights(og__reading *r, og_spec_stage *s, const og_yaml_node *v) {
    if (!v) return;
    int n = v->kind == OG_YAML_MAP ? v->n : 1;
    og_spec_weights *w = og__room(r, n, sizeof *w);
    if (!w) return;
    for (int i = 0; i < n; i++) {
        bool map = v->kind == OG_YAML_MAP;
        const og_yaml_node *folder = map ? v->pairs[i].value : v;
        if (folder->kind != OG_YAML_SCALAR) continue;
        w[s->n_weights++] =
            (og_spec_weights){map ? v->pairs[i].key : NULL, folder->text, folder->src};
    }
    s->weights = w;
}

static const og_spec_port *read_ports(og__reading *r, const og_yaml_node *map, int *n) {
    og_spec_port *ports = og__room(r, map ? map->n : 0, sizeof *ports);
    for (int i = 0; ports && map && i < map->n; i++) {
        const og_yaml_pair *p = &map->pairs[i];
        if (p->value->kind != OG_YAML_SCALAR) continue;
        og_spec_port *port = &ports[*n];
        port->name = p->key;
        port->src = p->src;
        *n += og_type_parse(p->value->text, og_yaml_text_src(p->value), r->a, r->d,
                            &port->type);
    }
    return ports;
}

static void read_constraints(og_spec_stage *s, const og_yaml_node *map) {
    s->stop_token_ids = og__given(map, "stop_token_ids");
    s->stop_tokens = og__given(map, "stop_tokens");
    s->min_tokens = og__given(map, "min_tokens");
}

static void read_stage(og__reading *r, og_spec_stage *s, const og_yaml_node *map) {
    const og_yaml_node *id = og__given(map, "id");
    int64_t v = -1;
    *s = (og_spec_stage){.name = text_of(map, "name", &s->src)};
    s->src = og_yaml_get(map, "name")->src;
    check_name(r, s->src, "a stage", s->name);
    if (!strcmp(s->name, "request") || !strcmp(s->name, "response") ||
        !strcmp(s->name, "root") || !strcmp(s->name, "index")) {
        og_diags_error(r->d, s->src, "a stage cannot be called '%s'", s->name);
    }
    if (id) og_yaml_int(id, &v, r->d);
    s->id = (int)v;
    s->node = text_of(map, "node", &s->node_src);
    s->arch = text_of(map, "arch", &s->arch_src);
    s->tokenizer = text_of(map, "tokenizer", &s->tokenizer_src);
    s->scheduler = text_of(map, "scheduler", &s->scheduler_src);
    s->with = text_of(map, "with", &s->with_src);
    s->options = og__given(map, "options");
    read_weights(r, s, og__given(map, "weights"));
    read_constraints(s, og__given(map, "constraints"));
    s->when = og__read_when(r, map);
    s->in = read_ports(r, og__given(map, "in"), &s->n_in);
    s->out = read_ports(r, og__given(map, "out"), &s->n_out);
}

void og__read_stages(og__reading *r) {
    const og_yaml_node *list = og__given(r->p->tree, "stages");
    int n = list ? list->n : 0;
    if (n == 0) {
        og_diags_error(r->d, list ? list->src : r->p->src, "the pipeline has no stages");
    }
    if (n > OG_PIPELINE_MAX_STAGES) {
        og_diags_error(r->d, list->src, "too many stages (limit is %d)",
                       OG_PIPELINE_MAX_STAGES);
        n = 0;
    }
    r->stages = og__room(r, n, sizeof *r->stages);
    if (!r->stages) return;
    r->p->stages = r->stages;
    for (int i = 0; i < n; i++) {
        read_stage(r, &r->stages[i], list->items[i]);
        r->p->n_stages = i + 1;
    }
}

/* Routes. */

static void read_route_phases(og__reading *r, og_spec_route *route,
                              const og_yaml_node *list) {
    int *phases = og__room(r, list->n, sizeof *phases);
    const char **names = og__room(r, r->p->n_phases, sizeof *names);
    if (!phases || !names) return;
    for (int i = 0; i < r->p->n_phases; i++) names[i] = r->phases[i].name;
    for (int i = 0; i < list->n; i++) {
        int k = og_pipeline_phase(r->p, list->items[i]->text);
        if (k >= 0) {
            phases[route->n_phases++] = k;
            continue;
        }
        og__no_such(r, list->items[i]->src, "phase", list->items[i]->text, names,
                    r->p->n_phases);
    }
    route->phases = phases;
    if (!list->n) og_diags_error(r->d, list->src, "the route has no phases");
}

static void read_route(og__reading *r, og_spec_route *route, const og_yaml_pair *p) {
    *route = (og_spec_route){.name = p->key, .src = p->src};
    check_name(r, p->src, "a route", p->key);
    route->when = og__read_when(r, p->value);
    read_route_phases(r, route, og__given(p->value, "phases"));
    const og_yaml_node *next = og__given(p->value, "next");
    if (!next) return;
    route->next = next->text;
    route->next_src = next->src;
    og__read_hook(r, next, &route->next_file, &route->next_function);
}

void og__read_routes(og__reading *r) {
    const og_yaml_node *map = og__given(r->p->tree, "routes");
    int n = map ? map->n : 0;
    if (n && !r->p->n_phases) {
        og_diags_error(r->d, map->src, "'routes' need 'phases'");
        return;
    }
    if (!n && r->p->n_phases) {
        og_diags_error(r->d, r->p->src, "'phases' need 'routes'");
    }
    r->routes = og__room(r, n, sizeof *r->routes);
    if (!r->routes) return;
    r->p->routes = r->routes;
    for (int i = 0; i < n; i++) {
        if (map->pairs[i].value->kind == OG_YAML_NULL) continue;
        read_route(r, &r->routes[r->p->n_routes++], &map->pairs[i]);
    }
}
