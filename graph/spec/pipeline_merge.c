/* `base` of the language: maps merge, null removes, stages merge by name, an edge takes
 * the place of the base's edges that feed one of its ports. */
#include <string.h>

#include "graph/spec/pipeline_parts.h"
#include "graph/spec/spec.h"

static const char *name_of(const og_yaml_node *stage) {
    const og_yaml_node *name = og_yaml_get(stage, "name");
    return name && name->kind == OG_YAML_SCALAR ? name->text : "";
}

static int find_stage(const og__items *l, const char *name) {
    for (int i = 0; *name && i < l->n; i++) {
        if (!strcmp(name_of(l->list[i]), name)) return i;
    }
    return -1;
}

/* Two stages of one name in one file are a mistake, not a merge. */
static void check_twice(const og_yaml_node *seq, og_diags *d) {
    for (int i = 1; i < seq->n; i++) {
        const char *name = name_of(seq->items[i]);
        for (int k = 0; *name && k < i; k++) {
            if (strcmp(name_of(seq->items[k]), name)) continue;
            og_diags_error(d, seq->items[i]->src, "stage '%.60s' is listed twice", name);
            og_diags_hint(d, "the first one is in line %d", seq->items[k]->src.line);
        }
    }
}

static bool merge_stage(og__items *l, const og_yaml_node *over, og_arena *a) {
    int at = find_stage(l, name_of(over));
    if (at < 0) return og__items_add(l, over);
    l->list[at] = og__merge(l->list[at], over, false, NULL, a);
    return l->list[at] != NULL;
}

static const og_yaml_node *merge_stages(const og_yaml_node *base,
                                        const og_yaml_node *over, og_arena *a,
                                        og_diags *d) {
    og__items l = {0};
    bool ok = true;
    if (over->n > OG_PIPELINE_MAX_STAGES) {
        og_diags_error(d, over->src, "too many stages (limit is %d)",
                       OG_PIPELINE_MAX_STAGES);
        return over;
    }
    check_twice(over, d);
    for (int i = 0; base && i < base->n && ok; i++)
        ok = og__items_add(&l, base->items[i]);
    for (int i = 0; i < over->n && ok; i++) ok = merge_stage(&l, over->items[i], a);
    const og_yaml_node *out = ok ? og_yaml_new_seq(a, over->src, l.list, l.n) : NULL;
    og_free(l.list);
    return out;
}

static bool to_has(const og_yaml_node *to, const char *port) {
    if (!to) return false;
    if (to->kind == OG_YAML_SCALAR) return !strcmp(to->text, port);
    for (int i = 0; to->kind == OG_YAML_MAP && i < to->n; i++) {
        if (!strcmp(to->pairs[i].value->text, port)) return true;
    }
    return false;
}

/* Whether edges a and b feed a port in common. */
static bool share_port(const og_yaml_node *a, const og_yaml_node *b) {
    const og_yaml_node *to = og_yaml_get(a, "to"), *other = og_yaml_get(b, "to");
    if (!to || !other) return false;
    if (to->kind == OG_YAML_SCALAR) return to_has(other, to->text);
    for (int i = 0; to->kind == OG_YAML_MAP && i < to->n; i++) {
        const og_yaml_node *port = to->pairs[i].value;
        if (port->kind == OG_YAML_SCALAR && to_has(other, port->text)) return true;
    }
    return false;
}

static bool replaced(const og_yaml_node *edge, const og_yaml_node *over) {
    for (int i = 0; i < over->n; i++) {
        if (share_port(edge, over->items[i])) return true;
    }
    return false;
}

static const og_yaml_node *merge_edges(const og_yaml_node *base, const og_yaml_node *over,
                                       og_arena *a, og_diags *d) {
    og__items l = {0};
    bool ok = true;
    if (over->n > OG_PIPELINE_MAX_EDGES) {
        og_diags_error(d, over->src, "too many edges (limit is %d)",
                       OG_PIPELINE_MAX_EDGES);
        return over;
    }
    for (int i = 0; base && i < base->n && ok; i++) {
        if (!replaced(base->items[i], over)) ok = og__items_add(&l, base->items[i]);
    }
    for (int i = 0; i < over->n && ok; i++) ok = og__items_add(&l, over->items[i]);
    const og_yaml_node *out = ok ? og_yaml_new_seq(a, over->src, l.list, l.n) : NULL;
    og_free(l.list);
    return out;
}

typedef const og_yaml_node *(*merge_lists)(const og_yaml_node *, const og_yaml_node *,
                                           og_arena *, og_diags *);

static const og_yaml_node *merge_list(const og_yaml_node *base, const og_yaml_node *over,
                                      merge_lists how, og_arena *a, og_diags *d) {
    if (over->kind != OG_YAML_SEQ) return over;
    return how(base && base->kind == OG_YAML_SEQ ? base : NULL, over, a, d);
}

static const og_yaml_node *merge_phases(const og_yaml_node *base,
                                        const og_yaml_node *over, og_arena *a,
                                        og_diags *d) {
    if (over->kind != OG_YAML_MAP) return over;
    og__pairs m = {0};
    bool ok = og__pairs_copy(&m, base);
    for (int i = 0; i < over->n && ok; i++) {
        const og_yaml_pair *p = &over->pairs[i];
        if (p->value->kind == OG_YAML_NULL) {
            og__pairs_remove(&m, p->key);
            continue;
        }
        const og_yaml_node *v =
            merge_list(og__pairs_get(&m, p->key), p->value, merge_edges, a, d);
        ok = v && og__pairs_set(&m, p->key, p->src, v);
    }
    const og_yaml_node *out = ok ? og_yaml_new_map(a, over->src, m.list, m.n) : NULL;
    og__pairs_free(&m);
    return out;
}

static const og_yaml_node *merge_value(const char *key, const og_yaml_node *base,
                                       const og_yaml_node *over, og_arena *a,
                                       og_diags *d) {
    if (!strcmp(key, "stages")) return merge_list(base, over, merge_stages, a, d);
    if (!strcmp(key, "edges")) return merge_list(base, over, merge_edges, a, d);
    if (!strcmp(key, "phases")) return merge_phases(base, over, a, d);
    return og__merge(base, over, false, NULL, a);
}

const og_yaml_node *og__pipeline_merge(const og_yaml_node *base, const og_yaml_node *over,
                                       og_arena *a, og_diags *d) {
    og__pairs m = {0};
    bool ok = og__pairs_copy(&m, base);
    for (int i = 0; i < over->n && ok; i++) {
        const og_yaml_pair *p = &over->pairs[i];
        if (!strcmp(p->key, "base")) continue;
        if (p->value->kind == OG_YAML_NULL) {
            og__pairs_remove(&m, p->key);
            continue;
        }
        const og_yaml_node *v =
            merge_value(p->key, og__pairs_get(&m, p->key), p->value, a, d);
        ok = v && og__pairs_set(&m, p->key, p->src, v);
    }
    const og_yaml_node *out = ok ? og_yaml_new_map(a, over->src, m.list, m.n) : NULL;
    og__pairs_free(&m);
    return out;
}
