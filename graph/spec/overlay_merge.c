/* Merging files of the deploy schema, and folding the nested blocks of a stage. */
#include <string.h>

#include "graph/spec/overlay_parts.h"
#include "graph/spec/spec.h"

int og__entry_id(const og_yaml_node *entry) {
    const og_yaml_node *id = og_yaml_get(entry, "stage_id");
    int64_t v;
    if (!id || !og_yaml_int(id, &v, NULL) || v < 0 || v > 9999) return -1;
    return (int)v;
}

const char *og__entry_name(const og_yaml_node *entry) {
    const og_yaml_node *name = og_yaml_get(entry, "name");
    return name && name->kind == OG_YAML_SCALAR ? name->text : NULL;
}

bool og__entry_is(const og_yaml_node *entry, int id, const char *name) {
    int own = og__entry_id(entry);
    if (own >= 0 || id >= 0) return own == id;
    const char *own_name = og__entry_name(entry);
    return own_name && name && !strcmp(own_name, name);
}

static bool merge_entry(og__items *l, const og_yaml_node *over, bool keep_null,
                        og_diags *d, og_arena *a) {
    int id = og__entry_id(over);
    const char *name = og__entry_name(over);
    for (int i = 0; i < l->n; i++) {
        if (!og__entry_is(l->list[i], id, name)) continue;
        l->list[i] = og__merge(l->list[i], over, keep_null, d, a);
        return l->list[i] != NULL;
    }
    return og__items_add(l, over);
}

const og_yaml_node *og__stages_merge(const og_yaml_node *base, const og_yaml_node *over,
                                     bool keep_null, og_diags *d, og_arena *a) {
    if (!base || base->kind != OG_YAML_SEQ || over->kind != OG_YAML_SEQ) return over;
    og__items l = {0};
    bool ok = true;
    for (int i = 0; i < base->n && ok; i++) ok = og__items_add(&l, base->items[i]);
    for (int i = 0; i < over->n && ok; i++) {
        ok = merge_entry(&l, over->items[i], keep_null, d, a);
    }
    const og_yaml_node *out = ok ? og_yaml_new_seq(a, over->src, l.list, l.n) : NULL;
    og_free(l.list);
    return out;
}

/* A way to merge the value of a key. */
typedef const og_yaml_node *(*merge_fn)(const char *key, const og_yaml_node *base,
                                        const og_yaml_node *over, og_diags *d,
                                        og_arena *a);

/* Merge two maps, each value by fn; null removes as in og__merge. */
static const og_yaml_node *merge_map(const og_yaml_node *base, const og_yaml_node *over,
                                     merge_fn fn, og_diags *d, og_arena *a) {
    if (!base || base->kind != OG_YAML_MAP || over->kind != OG_YAML_MAP) return over;
    og__pairs m = {0};
    bool ok = og__pairs_copy(&m, base);
    for (int i = 0; i < over->n && ok; i++) {
        const og_yaml_pair *p = &over->pairs[i];
        const og_yaml_node *below = og__pairs_get(&m, p->key), *v;
        if (p->value->kind == OG_YAML_NULL && below && below->kind != OG_YAML_NULL) {
            if (p->value->empty) {
                og_diags_warn(d, p->src, "an empty '%.60s' removes the one below",
                              p->key);
            }
            og__pairs_remove(&m, p->key);
            continue;
        }
        v = fn(p->key, below, p->value, d, a);
        ok = v && og__pairs_set(&m, p->key, p->src, v);
    }
    const og_yaml_node *out = ok ? og_yaml_new_map(a, over->src, m.list, m.n) : NULL;
    og__pairs_free(&m);
    return out;
}

/* A null in the section of a platform stays: it has yet to clear what the stage says. */
static const og_yaml_node *merge_section(const char *key, const og_yaml_node *base,
                                         const og_yaml_node *over, og_diags *d,
                                         og_arena *a) {
    if (!strcmp(key, "stages")) return og__stages_merge(base, over, true, d, a);
    return og__merge(base, over, true, d, a);
}

static const og_yaml_node *merge_platform(const char *key, const og_yaml_node *base,
                                          const og_yaml_node *over, og_diags *d,
                                          og_arena *a) {
    (void)key;
    return merge_map(base, over, merge_section, d, a);
}

static const og_yaml_node *merge_root(const char *key, const og_yaml_node *base,
                                      const og_yaml_node *over, og_diags *d,
                                      og_arena *a) {
    if (!strcmp(key, "platforms")) return merge_map(base, over, merge_platform, d, a);
    if (!strcmp(key, "stages")) return og__stages_merge(base, over, false, d, a);
    return og__merge(base, over, false, d, a);
}

const og_yaml_node *og__overlay_merge(const og_yaml_node *base, const og_yaml_node *over,
                                      og_diags *d, og_arena *a) {
    return merge_map(base, over, merge_root, d, a);
}

/* Folding. Nulls stay: they still have to act on the layers below. */

static bool nested(const char *key) {
    return !strcmp(key, "runtime") || !strcmp(key, "engine_args") ||
           !strcmp(key, "engine_extras");
}

static bool add_over(og__pairs *m, const og_yaml_pair *p, og_arena *a) {
    const og_yaml_node *v = og__merge(og__pairs_get(m, p->key), p->value, true, NULL, a);
    return v && og__pairs_set(m, p->key, p->src, v);
}

static bool add_map(og__pairs *m, const og_yaml_node *map, og_arena *a) {
    bool ok = true;
    for (int i = 0; map && map->kind == OG_YAML_MAP && i < map->n && ok; i++) {
        if (!nested(map->pairs[i].key)) ok = add_over(m, &map->pairs[i], a);
    }
    return ok;
}

static bool add_runtime(og__pairs *m, const og_yaml_node *map, og_arena *a) {
    static const char *const keys[] = {"devices", "num_replicas", "env"};
    for (int i = 0; i < 3; i++) {
        const og_yaml_pair *p = og_yaml_pair_of(map, keys[i]);
        if (p && !add_over(m, p, a)) return false;
    }
    return true;
}

static bool is_flat(const og_yaml_node *stage) {
    for (int i = 0; i < stage->n; i++) {
        if (nested(stage->pairs[i].key)) return false;
    }
    return true;
}

/* engine_extras < flat keys < engine_args, and runtime over the flat keys it repeats. */
static const og_yaml_node *fold_stage(const og_yaml_node *stage, og_arena *a) {
    if (stage->kind != OG_YAML_MAP || is_flat(stage)) return stage;
    og__pairs m = {0};
    bool ok = add_map(&m, og_yaml_get(stage, "engine_extras"), a) &&
              add_map(&m, stage, a) &&
              add_map(&m, og_yaml_get(stage, "engine_args"), a) &&
              add_runtime(&m, og_yaml_get(stage, "runtime"), a);
    const og_yaml_node *out = ok ? og_yaml_new_map(a, stage->src, m.list, m.n) : NULL;
    og__pairs_free(&m);
    return out;
}

static const og_yaml_node *fold_list(const og_yaml_node *list, og_arena *a) {
    if (list->kind != OG_YAML_SEQ) return list;
    og__items l = {0};
    bool ok = true;
    for (int i = 0; i < list->n && ok; i++) {
        const og_yaml_node *stage = fold_stage(list->items[i], a);
        ok = stage && og__items_add(&l, stage);
    }
    const og_yaml_node *out = ok ? og_yaml_new_seq(a, list->src, l.list, l.n) : NULL;
    og_free(l.list);
    return out;
}

static const og_yaml_node *fold_key(const char *key, const og_yaml_node *v, int depth,
                                    og_arena *a);

/* Fold the lists called `stages` of a root (depth 0), of its platforms (1) and of each of
 * them (2). */
static const og_yaml_node *fold_map(const og_yaml_node *map, int depth, og_arena *a) {
    if (map->kind != OG_YAML_MAP) return map;
    og__pairs m = {0};
    bool ok = true;
    for (int i = 0; i < map->n && ok; i++) {
        const og_yaml_node *v =
            fold_key(map->pairs[i].key, map->pairs[i].value, depth, a);
        ok = v && og__pairs_set(&m, map->pairs[i].key, map->pairs[i].src, v);
    }
    const og_yaml_node *out = ok ? og_yaml_new_map(a, map->src, m.list, m.n) : NULL;
    og__pairs_free(&m);
    return out;
}

static const og_yaml_node *fold_key(const char *key, const og_yaml_node *v, int depth,
                                    og_arena *a) {
    if (depth == 1) return fold_map(v, 2, a);
    if (!strcmp(key, "stages")) return fold_list(v, a);
    return depth == 0 && !strcmp(key, "platforms") ? fold_map(v, 1, a) : v;
}

const og_yaml_node *og__overlay_fold(const og_yaml_node *root, og_arena *a) {
    return fold_map(root, 0, a);
}
