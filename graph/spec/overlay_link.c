/* Connectors: what carries an edge of the deploy schema, and in which chunks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/spec/overlay_parts.h"
#include "graph/spec/spec.h"

#define IN_PROCESS "SharedMemoryConnector"

/* One end's word on an edge. */
typedef struct end {
    const og_yaml_node *node; /* the name, or the connector itself; NULL: nothing said */
    const char *name;
    const og_yaml_node *connector; /* NULL: nobody defines it */
} end;

static end end_of(const og_yaml_node *stage, const og_yaml_node *root, const char *side,
                  const char *prefix, int other) {
    char key[48];
    snprintf(key, sizeof key, "%s%d", prefix, other);
    end e = {.node = og_yaml_get(og_yaml_get(stage, side), key)};
    if (!e.node || e.node->kind == OG_YAML_NULL) return (end){0};
    if (e.node->kind == OG_YAML_MAP) {
        e.name = "inline";
        e.connector = e.node;
    } else {
        e.name = e.node->text;
        e.connector = og_yaml_get(og_yaml_get(root, "connectors"), e.name);
        if (e.connector && e.connector->kind != OG_YAML_MAP) e.connector = NULL;
    }
    return e;
}

static const og_yaml_node *stage_of(const og_overlay *ov, int id) {
    for (int i = 0; i < ov->n_stages; i++) {
        if (ov->stages[i].id == id) return ov->stages[i].values;
    }
    return NULL;
}

static end in_end(const og_overlay *ov, int from, int to) {
    return end_of(stage_of(ov, to), ov->root, "input_connectors", "from_stage_", from);
}

static end out_end(const og_overlay *ov, int from, int to) {
    return end_of(stage_of(ov, from), ov->root, "output_connectors", "to_stage_", to);
}

static const char *class_of(const og_yaml_node *connector) {
    const og_yaml_node *name = og_yaml_get(connector, "name");
    return name && name->kind == OG_YAML_SCALAR ? name->text : NULL;
}

static void add_size(og_overlay_link *l, const og_yaml_node *n) {
    int64_t v;
    if (l->n_chunks == OG_OVERLAY_MAX_CHUNKS || !og_yaml_int(n, &v, NULL)) return;
    if (v < 1 || v > 1 << 20) return;
    if (!l->n_chunks) l->chunks_src = n->src;
    l->chunks[l->n_chunks++] = (int)v;
}

static void add_sizes(og_overlay_link *l, const og_yaml_node *n) {
    if (!n) return;
    if (n->kind == OG_YAML_SCALAR) add_size(l, n);
    for (int i = 0; n->kind == OG_YAML_SEQ && i < n->n; i++) add_size(l, n->items[i]);
}

/* The ramp, or else the first size, then the lasting size or list of sizes. */
static void read_chunks(og_overlay_link *l) {
    const og_yaml_node *first = og_yaml_get(l->extra, "initial_codec_chunk_frames");
    if (!first) first = og_yaml_get(l->extra, "codec_chunk_frames_at_begin");
    add_sizes(l, og_yaml_get(l->extra, "codec_chunk_ramp"));
    if (!l->n_chunks) add_sizes(l, first);
    add_sizes(l, og_yaml_get(l->extra, "codec_chunk_frames"));
}

static bool flag_of(const og_yaml_node *map, const char *key) {
    const og_yaml_node *n = og_yaml_get(map, key);
    bool v = true;
    if (n) og_yaml_bool(n, &v, NULL);
    return v;
}

void og_overlay_link_of(const og_overlay *ov, int from, int to, og_overlay_link *out) {
    end in = in_end(ov, from, to), other = out_end(ov, from, to);
    const end *e = in.node ? &in : &other;
    *out = (og_overlay_link){.connector = e->name, .class_name = class_of(e->connector)};
    const og_yaml_node *extra = og_yaml_get(e->connector, "extra");
    out->extra = extra && extra->kind == OG_YAML_MAP ? extra : NULL;
    read_chunks(out);
    out->async_chunk = flag_of(ov->root, "async_chunk") &&
                       flag_of(stage_of(ov, from), "async_chunk") &&
                       flag_of(stage_of(ov, to), "async_chunk") &&
                       flag_of(out->extra, "codec_streaming");
}

/* A name that is not there is a slip where connectors are defined; where none are, the
 * edge simply has no settings. */
static void check_end(og__overlaying *o, const end *e) {
    const og_yaml_node *map = og_yaml_get(o->ov->root, "connectors");
    if (!e->node || e->connector) return;
    if (!map || map->kind != OG_YAML_MAP || !map->n) {
        og_diags_warn(o->d, e->node->src,
                      "no connector '%.60s': 'connectors' defines none", e->name);
        return;
    }
    og_diags_error(o->d, e->node->src, "no connector '%.60s'", e->name);
    const char *names[64];
    int n = 0;
    for (int i = 0; i < map->n && n < 64; i++) names[n++] = map->pairs[i].key;
    const char *best = og_near(e->name, names, n);
    if (best)
        og_diags_suggest(o->d, best);
    else
        og_diags_hint(o->d, "define it in the root's 'connectors'");
}

static void check_link(og__overlaying *o, int from, int to) {
    end in = in_end(o->ov, from, to), out = out_end(o->ov, from, to);
    check_end(o, &in);
    check_end(o, &out);
    const char *a = class_of(in.connector), *b = class_of(out.connector);
    if (!a || !b || !strcmp(a, b)) return;
    og_diags_error(o->d, in.node->src,
                   "the edge %d -> %d is a %.60s here and a %.60s at its "
                   "other end",
                   from, to, a, b);
    og_diags_hint(o->d, "the other end stands in line %d", out.node->src.line);
}

/* Check the links that a stage's own map of connectors names. */
static void check_side(og__overlaying *o, const og__overlay_stage *s, const char *side,
                       const char *prefix, bool inputs) {
    const og_yaml_node *map = og_yaml_get(s->values, side);
    size_t len = strlen(prefix);
    for (int i = 0; map && map->kind == OG_YAML_MAP && i < map->n; i++) {
        const og_yaml_pair *p = &map->pairs[i];
        char *stop;
        long id = strncmp(p->key, prefix, len) ? -1 : strtol(p->key + len, &stop, 10);
        if (id < 0 || id > 9999 || *stop || stop == p->key + len) {
            og_diags_error(o->d, p->src, "expected '%sN', not '%.60s'", prefix, p->key);
            continue;
        }
        check_link(o, inputs ? (int)id : s->id, inputs ? s->id : (int)id);
    }
}

/* Every edge is inside the process; other classes carry it between hosts. */
static void check_classes(og__overlaying *o) {
    const og_yaml_node *map = og_yaml_get(o->ov->root, "connectors");
    for (int i = 0; map && map->kind == OG_YAML_MAP && i < map->n; i++) {
        const og_yaml_node *name = og_yaml_get(map->pairs[i].value, "name");
        if (!name || name->kind != OG_YAML_SCALAR) continue;
        if (!strcmp(name->text, IN_PROCESS)) continue;
        og_diags_warn(o->d, name->src,
                      "connector '%.60s' is not supported: the edge stays "
                      "inside the process",
                      name->text);
        og_diags_hint(o->d, "edges inside the process are a %s", IN_PROCESS);
    }
}

void og__overlay_check_links(og__overlaying *o) {
    check_classes(o);
    for (int i = 0; i < o->ov->n_stages; i++) {
        const og__overlay_stage *s = &o->ov->stages[i];
        if (s->id < 0 || stage_of(o->ov, s->id) != s->values) continue;
        check_side(o, s, "input_connectors", "from_stage_", true);
        check_side(o, s, "output_connectors", "to_stage_", false);
    }
}
