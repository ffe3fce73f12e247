/* Edges: from the checked tree to structs. */
#include <string.h>

#include "graph/spec/pipeline_parts.h"
#include "graph/spec/schema.h"

#define EDGE_MAX_ENDS 64

static const char *const responses[] = {"text", "audio", "image", "images", "video"};
static const char *const parts[] = {"images", "audios", "videos"};
#define N_RESPONSES ((int)(sizeof responses / sizeof *responses))
#define N_PARTS ((int)(sizeof parts / sizeof *parts))

static bool known(const char *name, const char *const *names, int n) {
    for (int i = 0; i < n; i++) {
        if (!strcmp(names[i], name)) return true;
    }
    return false;
}

static og_src at(const og_spec_end *e, const char *inside) {
    og_src src = e->src;
    src.col += (int)(inside - e->text);
    return src;
}

static void read_request_end(og__reading *r, og_spec_end *e, char *field, bool source) {
    char *dot = strchr(field, '.');
    if (dot) *dot = 0;
    e->kind = OG_END_REQUEST;
    e->name = field;
    e->part = dot ? dot + 1 : NULL;
    e->field = og_pipeline_field(r->p, field);
    if (!source) {
        og_diags_error(r->d, e->src, "an edge cannot end in the request");
    } else if (e->field < 0) {
        og__no_such_field(r, at(e, e->text + strlen("request.")), field);
    } else if (e->part && r->request[e->field].type.kind != OG_TYPE_MESSAGES) {
        og_diags_error(r->d, e->src, "request field '%s' has no parts", field);
    } else if (e->part && !known(e->part, parts, N_PARTS)) {
        og__no_such(r, e->src, "part of messages", e->part, parts, N_PARTS);
    }
}

static void read_stage_end(og__reading *r, og_spec_end *e, const char *stage,
                           char *port) {
    e->kind = OG_END_STAGE;
    e->name = port;
    e->stage = og_pipeline_stage(r->p, stage);
    if (e->stage < 0) {
        og__no_such_stage(r, e->src, stage);
    } else if (!og_name_ok(port, strlen(port))) {
        og_diags_error(r->d, e->src, "'%.60s' is no legal name of a port", port);
    }
}

static void read_response_end(og__reading *r, og_spec_end *e, char *port, bool source) {
    e->kind = OG_END_RESPONSE;
    e->name = port;
    if (source) {
        og_diags_error(r->d, e->src, "an edge cannot begin in the response");
    } else if (!known(port, responses, N_RESPONSES)) {
        og__no_such(r, e->src, "part of the response", port, responses, N_RESPONSES);
    }
}

/* Read `stage.port`, `request.field` or `response.port`; source: it may end in `?`. */
static void read_end(og__reading *r, og_spec_end *e, const char *alias,
                     const og_yaml_node *v, bool source) {
    *e = (og_spec_end){.alias = alias,
                       .src = og_yaml_text_src(v),
                       .stage = -1,
                       .field = -1,
                       .text = "",
                       .name = ""};
    size_t len = strlen(v->text);
    e->optional = len && v->text[len - 1] == '?';
    char *text = og_arena_strndup(r->a, v->text, len - e->optional);
    char *work = text ? og_arena_strdup(r->a, text) : NULL;
    if (!work) {
        r->oom = true;
        return;
    }
    e->text = text;
    char *dot = strchr(work, '.');
    if (!dot || !dot[1]) {
        og_diags_error(r->d, e->src,
                       "an end of an edge is written stage.port, not '%.60s'", v->text);
        return;
    }
    *dot = 0;
    if (!strcmp(work, "request"))
        read_request_end(r, e, dot + 1, source);
    else if (!strcmp(work, "response"))
        read_response_end(r, e, dot + 1, source);
    else
        read_stage_end(r, e, work, dot + 1);
    if (e->optional && !source) {
        og_diags_error(r->d, e->src, "'?' is for sources: a target is always there");
    }
}

static const og_spec_end *read_ends(og__reading *r, const og_yaml_node *v, bool source,
                                    int *n_out) {
    bool map = v->kind == OG_YAML_MAP;
    int n = map ? v->n : 1;
    if (n == 0 || n > EDGE_MAX_ENDS) {
        og_diags_error(r->d, v->src,
                       n ? "too many ends of an edge (limit is %d)"
                         : "an edge needs an end (limit is %d)",
                       EDGE_MAX_ENDS);
        return NULL;
    }
    og_spec_end *ends = og__room(r, n, sizeof *ends);
    for (int i = 0; ends && i < n; i++) {
        const og_yaml_node *text = map ? v->pairs[i].value : v;
        if (text->kind != OG_YAML_SCALAR) continue; /* null: removed by a derived file */
        read_end(r, &ends[(*n_out)++], map ? v->pairs[i].key : NULL, text, source);
    }
    return ends;
}

static void read_hook(og__reading *r, og_spec_edge *e, const og_yaml_node *map) {
    const og_yaml_node *hook = og__given(map, "hook");
    bool maps = og_yaml_get(map, "from")->kind == OG_YAML_MAP ||
                og_yaml_get(map, "to")->kind == OG_YAML_MAP;
    bool both = og_yaml_get(map, "from")->kind == OG_YAML_MAP &&
                og_yaml_get(map, "to")->kind == OG_YAML_MAP;
    if (!hook) {
        if (maps) {
            og_diags_error(r->d, e->src, "named ends need a hook");
            og_diags_hint(r->d,
                          "a plain edge is written from: stage.port, to: stage.port");
        }
        return;
    }
    e->hook = hook->text;
    e->hook_src = og_yaml_text_src(hook);
    og__read_hook(r, hook, &e->hook_file, &e->hook_function);
    if (!both) {
        og_diags_error(r->d, e->src, "a hook needs named ends, {name: stage.port}");
        return;
    }
    for (int i = 0; i < e->n_to; i++) {
        if (e->to[i].kind == OG_END_RESPONSE) {
            og_diags_error(r->d, e->to[i].src, "a hook edge ends at a stage");
        } else if (e->to[i].stage != e->to[0].stage) {
            og_diags_error(r->d, e->to[i].src,
                           "a hook edge ends at one stage, not at '%s' "
                           "and '%s'",
                           e->to[0].text, e->to[i].text);
        }
    }
}

static void read_lanes(og__reading *r, og_spec_edge *e, const og_yaml_node *v) {
    if (!v) return;
    if (!e->hook) og_diags_error(r->d, v->src, "lanes are made by a hook");
    if (v->kind == OG_YAML_SCALAR) {
        e->numbered = !strcmp(v->text, "numbered");
        if (!e->numbered) {
            og_diags_error(r->d, v->src, "lanes are a list of names, or 'numbered'");
        }
        return;
    }
    if (v->n == 0 || v->n > OG_EDGE_MAX_LANES) {
        og_diags_error(r->d, v->src, "%s lanes (limit is %d)", v->n ? "too many" : "no",
                       OG_EDGE_MAX_LANES);
        return;
    }
    og_spec_lane *lanes = og__room(r, v->n, sizeof *lanes);
    for (int i = 0; lanes && i < v->n; i++) {
        const og_yaml_node *n = v->items[i];
        size_t len = strlen(n->text);
        bool optional = len && n->text[len - 1] == '?';
        char *name = og_arena_strndup(r->a, n->text, len - optional);
        if (!name) {
            r->oom = true;
            return;
        }
        if (!og_name_ok(name, strlen(name))) {
            og_diags_error(r->d, n->src, "'%.60s' is no legal name of a lane", name);
        }
        for (int k = 0; k < i; k++) {
            if (!strcmp(lanes[k].name, name)) {
                og_diags_error(r->d, n->src, "lane '%s' is listed twice", name);
            }
        }
        lanes[i] = (og_spec_lane){name, optional, n->src};
    }
    if (lanes && lanes[0].optional) {
        og_diags_error(r->d, lanes[0].src,
                       "the first lane is the default: it cannot be "
                       "absent");
    }
    e->lanes = lanes;
    e->n_lanes = lanes ? v->n : 0;
}

static void read_resize(og__reading *r, og_spec_edge *e, const og_yaml_node *map) {
    static const char *const keys[] = {"area", "min", "max", "step"};
    int64_t *const out[] = {&e->resize.area, &e->resize.min, &e->resize.max,
                            &e->resize.step};
    e->via = OG_VIA_RESIZE;
    for (int i = 0; i < 4; i++) {
        const og_yaml_node *v = og__given(map, keys[i]);
        if (v) og_yaml_int(v, out[i], r->d);
    }
    if (e->resize.min && e->resize.max && e->resize.min > e->resize.max) {
        og_diags_error(r->d, og_yaml_get(map, "min")->src, "'min' is above 'max'");
    }
    const og_yaml_node *to = og__given(map, "to");
    if (!to) {
        if (!e->resize.area && !e->resize.min && !e->resize.max) {
            og_diags_error(r->d, map->src, "resize needs 'area', 'min', 'max' or 'to'");
        }
        return;
    }
    og_spec_end end;
    int before = og_diags_errors(r->d);
    read_end(r, &end, NULL, to, true);
    if (r->oom || og_diags_errors(r->d) > before) return;
    if (end.kind != OG_END_REQUEST || r->request[end.field].type.kind != OG_TYPE_SIZE) {
        og_diags_error(r->d, to->src, "'to' names a request field of type size");
        return;
    }
    e->resize.to_field = end.field;
}

static void read_via(og__reading *r, og_spec_edge *e, const og_yaml_node *v) {
    e->resize.to_field = -1;
    if (!v) return;
    e->via_src = v->src;
    if (v->kind == OG_YAML_SCALAR) {
        static const char *const words[] = {"resample", "detokenize"};
        if (!strcmp(v->text, words[0]))
            e->via = OG_VIA_RESAMPLE;
        else if (!strcmp(v->text, words[1]))
            e->via = OG_VIA_DETOKENIZE;
        else
            og__no_such(r, v->src, "converter", v->text, words, 2);
        return;
    }
    const og_yaml_node *resize = og__given(v, "resize"), *split = og__given(v, "split");
    if (!resize == !split) {
        og_diags_error(r->d, v->src, "'via' takes one converter: resize or split");
    } else if (resize) {
        read_resize(r, e, resize);
    } else {
        bool clause = !strcmp(split->text, "clause");
        e->via = clause ? OG_VIA_SPLIT_CLAUSE : OG_VIA_SPLIT_SENTENCE;
    }
}

static void read_chunk(og__reading *r, og_spec_edge *e, const og_yaml_node *v) {
    if (!v) return;
    int n = v->kind == OG_YAML_SEQ ? v->n : 1;
    e->chunk_src = v->src;
    if (n == 0 || n > OG_EDGE_MAX_CHUNKS) {
        og_diags_error(r->d, v->src, "%s chunk sizes (limit is %d)",
                       n ? "too many" : "no", OG_EDGE_MAX_CHUNKS);
        return;
    }
    int *sizes = og__room(r, n, sizeof *sizes);
    for (int i = 0; sizes && i < n; i++) {
        const og_yaml_node *item = v->kind == OG_YAML_SEQ ? v->items[i] : v;
        int64_t size;
        if (!og_yaml_int(item, &size, r->d)) return;
        if (size > 1 << 20) {
            og_diags_error(r->d, item->src, "chunk size is too big (limit is %d)",
                           1 << 20);
            return;
        }
        sizes[i] = (int)size;
    }
    e->chunk = sizes;
    e->n_chunk = sizes ? n : 0;
}

static void read_edge(og__reading *r, og_spec_edge *e, const og_yaml_node *map,
                      int phase) {
    const og_yaml_node *join = og__given(map, "join"), *per = og__given(map, "per");
    const og_yaml_node *async = og__given(map, "async_chunk"),
                       *gap = og__given(join, "gap");
    bool chunked;
    *e = (og_spec_edge){.src = map->src, .phase = phase, .async_chunk = OG_UNKNOWN};
    e->from = read_ends(r, og_yaml_get(map, "from"), true, &e->n_from);
    e->to = read_ends(r, og_yaml_get(map, "to"), false, &e->n_to);
    if (!e->from || !e->to) return;
    read_hook(r, e, map);
    read_lanes(r, e, og__given(map, "lanes"));
    read_via(r, e, og__given(map, "via"));
    read_chunk(r, e, og__given(map, "chunk"));
    if (async && og_yaml_bool(async, &chunked, r->d)) {
        e->async_chunk = chunked ? OG_TRUE : OG_FALSE;
    }
    e->join = join != NULL;
    if (gap) og_yaml_float(gap, &e->join_gap, r->d);
    e->when = og__read_when(r, map);
    e->per_chunk = per != NULL;
    if (per && !e->hook) og_diags_error(r->d, per->src, "'per' is for hook edges");
    if (join && e->hook) og_diags_error(r->d, join->src, "'join' is for plain edges");
}

static int count_edges(og__reading *r, const og_yaml_node *edges,
                       const og_yaml_node *phases) {
    int n = edges ? edges->n : 0;
    for (int i = 0; phases && i < phases->n; i++) n += phases->pairs[i].value->n;
    if (n <= OG_PIPELINE_MAX_EDGES) return n;
    og_diags_error(r->d, edges ? edges->src : phases->src, "too many edges (limit is %d)",
                   OG_PIPELINE_MAX_EDGES);
    return -1;
}

static void read_list(og__reading *r, const og_yaml_node *list, int phase) {
    for (int i = 0; i < list->n && !r->oom; i++) {
        read_edge(r, &r->edges[r->p->n_edges], list->items[i], phase);
        r->p->n_edges++;
    }
}

static void read_phases(og__reading *r, const og_yaml_node *map) {
    r->phases = og__room(r, map->n, sizeof *r->phases);
    if (!r->phases) return;
    r->p->phases = r->phases;
    for (int i = 0; i < map->n && !r->oom; i++) {
        const og_yaml_pair *p = &map->pairs[i];
        og_spec_phase *phase = &r->phases[i];
        *phase = (og_spec_phase){p->key, p->src, r->p->n_edges, 0};
        if (!og_name_ok(p->key, strlen(p->key))) {
            og_diags_error(r->d, p->src, "'%.60s' is no legal name of a phase", p->key);
        }
        if (p->value->kind == OG_YAML_SEQ) read_list(r, p->value, i);
        phase->n_edges = r->p->n_edges - phase->first;
        r->p->n_phases = i + 1;
    }
}

void og__read_edges(og__reading *r) {
    const og_yaml_node *edges = og__given(r->p->tree, "edges");
    const og_yaml_node *phases = og__given(r->p->tree, "phases");
    if (edges && phases) {
        og_diags_error(r->d, phases->src,
                       "a pipeline has 'edges', or 'phases' and 'routes'");
        og_diags_hint(r->d, "'edges' stand in line %d", edges->src.line);
        return;
    }
    int n = count_edges(r, edges, phases);
    if (n < 0) return;
    r->edges = og__room(r, n, sizeof *r->edges);
    if (!r->edges) return;
    r->p->edges = r->edges;
    if (edges) read_list(r, edges, -1);
    if (phases) read_phases(r, phases);
    if (!n) og_diags_error(r->d, r->p->src, "the pipeline has no edges");
}
