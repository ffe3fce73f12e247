/* From merged files to the settings of each stage: platform, root keys, owners. */
#include <stdio.h>
#include <string.h>

#include "graph/spec/overlay_parts.h"
#include "graph/spec/spec.h"

static bool in_pipeline(const og_overlay_opts *opts, int id, const char *name) {
    if (!opts->stages) return true;
    for (int i = 0; i < opts->n_stages; i++) {
        if (id >= 0 ? opts->stages[i].id == id : !strcmp(opts->stages[i].name, name)) {
            return true;
        }
    }
    return false;
}

static void hint_stages(og__overlaying *o, const char *name) {
    const og_overlay_opts *opts = o->opts;
    og_str all = OG_STR_INIT;
    const char *best = NULL;
    for (int i = 0; i < opts->n_stages; i++) {
        const char *near = name ? og_near(name, &opts->stages[i].name, 1) : NULL;
        if (near) best = near;
        og_str_addf(&all, "%s%s", i ? ", " : "", opts->stages[i].name);
        if (opts->stages[i].id >= 0) og_str_addf(&all, " (%d)", opts->stages[i].id);
    }
    if (best)
        og_diags_suggest(o->d, best);
    else if (all.data)
        og_diags_hint(o->d, "stages are %s", all.data);
    og_str_free(&all);
}

/* Whether an entry means a stage of the pipeline; says so when it does not. */
static bool check_entry(og__overlaying *o, const og_yaml_node *entry, bool fatal) {
    int id = og__entry_id(entry);
    const char *name = og__entry_name(entry);
    if (id < 0 && !name) return false;
    if (in_pipeline(o->opts, id, name)) return true;
    const og_yaml_node *at = og_yaml_get(entry, id >= 0 ? "stage_id" : "name");
    void (*say)(og_diags *, og_src, const char *, ...) =
        fatal ? og_diags_error : og_diags_warn;
    if (id >= 0)
        say(o->d, at->src, "the pipeline has no stage with id %d", id);
    else
        say(o->d, at->src, "the pipeline has no stage '%.60s'", name);
    hint_stages(o, name);
    return false;
}

static const og_yaml_node *find_entry(const og_yaml_node *list, int id,
                                      const char *name) {
    for (int i = 0; list && list->kind == OG_YAML_SEQ && i < list->n; i++) {
        if (og__entry_is(list->items[i], id, name)) return list->items[i];
    }
    return NULL;
}

/* The entries of a platform that mean a stage there is. Without a pipeline that is one
 * which the file itself lists. */
static const og_yaml_node *known_entries(og__overlaying *o, const og_yaml_node *list,
                                         const og_yaml_node *stages) {
    const og_yaml_node **kept =
        og_arena_alloc(o->a, (size_t)(list->n + 1) * sizeof *kept);
    int n = 0;
    for (int i = 0; kept && i < list->n; i++) {
        const og_yaml_node *e = list->items[i];
        int id = og__entry_id(e);
        if (o->opts->stages) {
            if (check_entry(o, e, false)) kept[n++] = e;
        } else if (find_entry(stages, id, og__entry_name(e))) {
            kept[n++] = e;
        } else {
            og_diags_warn(o->d, e->src, "'stages' lists no such stage: this is not used");
        }
    }
    return kept ? og_yaml_new_seq(o->a, list->src, kept, n) : NULL;
}

static const og_yaml_node *platform_stages(og__overlaying *o, const og_yaml_node *stages,
                                           const og_yaml_node *section) {
    const og_yaml_node *over = og_yaml_get(section, "stages");
    if (!over || over->kind != OG_YAML_SEQ) return stages;
    over = known_entries(o, over, stages);
    if (!over) return NULL;
    return stages ? og__stages_merge(stages, over, false, NULL, o->a) : over;
}

static bool apply_section(og__overlaying *o, og__pairs *m, const og_yaml_node *folded) {
    const og_yaml_node *platforms = og_yaml_get(folded, "platforms");
    const og_yaml_node *section =
        o->opts->platform ? og_yaml_get(platforms, o->opts->platform) : NULL;
    if (!section || section->kind != OG_YAML_MAP) return true;
    for (int i = 0; i < section->n; i++) {
        const og_yaml_pair *p = &section->pairs[i];
        const og_yaml_node *below = og__pairs_get(m, p->key);
        const og_yaml_node *v = !strcmp(p->key, "stages")
                                    ? platform_stages(o, below, section)
                                    : og__merge(below, p->value, false, NULL, o->a);
        if (!v && below == NULL && !strcmp(p->key, "stages")) continue;
        if (!v || !og__pairs_set(m, p->key, p->src, v)) return false;
    }
    return true;
}

static bool apply_platform(og__overlaying *o, const og_yaml_node *folded) {
    og__pairs m = {0};
    bool ok = og__pairs_copy(&m, folded) && apply_section(o, &m, folded);
    og__pairs_remove(&m, "platforms");
    og__pairs_remove(&m, "base_config");
    if (ok) o->ov->platform = og_yaml_new_map(o->a, folded->src, m.list, m.n);
    og__pairs_remove(&m, "stages");
    if (ok) o->ov->root = og_yaml_new_map(o->a, folded->src, m.list, m.n);
    og__pairs_free(&m);
    return o->ov->platform && o->ov->root;
}

const og_yaml_node *og__owned(const og_yaml_node *map, og_section section, int owner,
                              og_arena *a) {
    og__pairs m = {0};
    bool ok = true;
    for (int i = 0; i < map->n && ok; i++) {
        const og_yaml_pair *p = &map->pairs[i];
        const og_key *key = og_key_find(section, p->key);
        const og_yaml_node *v = p->value;
        if (key && key->owners && !(key->owners & owner)) continue;
        if (key && key->inner == OG_SECTION_SAMPLING && v->kind == OG_YAML_MAP) {
            v = og__owned(v, OG_SECTION_SAMPLING, owner, a);
        }
        ok = v && og__pairs_set(&m, p->key, p->src, v);
    }
    const og_yaml_node *out = ok ? og_yaml_new_map(a, map->src, m.list, m.n) : NULL;
    og__pairs_free(&m);
    return out;
}

/* Root keys that are every stage's default. */
static const og_yaml_node *root_defaults(og__overlaying *o) {
    og__pairs m = {0};
    bool ok = true;
    for (int i = 0; i < o->ov->root->n && ok; i++) {
        const og_yaml_pair *p = &o->ov->root->pairs[i];
        const og_key *key = og_key_find(OG_SECTION_OVERLAY, p->key);
        bool reaches =
            key && key->flags & OG_KEY_STAGES && p->value->kind != OG_YAML_NULL;
        if (reaches) ok = og__pairs_set(&m, p->key, p->src, p->value);
    }
    const og_yaml_node *out =
        ok ? og_yaml_new_map(o->a, o->ov->root->src, m.list, m.n) : NULL;
    og__pairs_free(&m);
    return out;
}

/* An entry without the keys that only say which stage it is. */
static const og_yaml_node *settings(og__overlaying *o, const og_yaml_node *entry) {
    og__pairs m = {0};
    bool ok = og__pairs_copy(&m, entry);
    og__pairs_remove(&m, "stage_id");
    og__pairs_remove(&m, "name");
    const og_yaml_node *out = ok ? og_yaml_new_map(o->a, entry->src, m.list, m.n) : NULL;
    og__pairs_free(&m);
    return out;
}

static bool add_entry(og__overlaying *o, og__overlay_stage *s,
                      const og_yaml_node *entry) {
    if (!entry || entry->kind != OG_YAML_MAP) return true;
    const og_yaml_node *own = settings(o, entry);
    own = own ? og__owned(own, OG_SECTION_OVERLAY_STAGE, s->owner, o->a) : NULL;
    s->values = own ? og__merge(s->values, own, false, NULL, o->a) : NULL;
    return s->values != NULL;
}

static bool resolve_stage(og__overlaying *o, og__overlay_stage *s,
                          const og_yaml_node *defaults) {
    const og_yaml_node *list = og_yaml_get(o->ov->platform, "stages");
    const og_yaml_node *by_id = s->id >= 0 ? find_entry(list, s->id, NULL) : NULL;
    s->values = og__owned(defaults, OG_SECTION_OVERLAY_STAGE, s->owner, o->a);
    return s->values && add_entry(o, s, by_id) &&
           add_entry(o, s, find_entry(list, -1, s->name));
}

static bool list_stages(og__overlaying *o) {
    const og_overlay_opts *opts = o->opts;
    const og_yaml_node *list = og_yaml_get(o->ov->platform, "stages");
    bool given = opts->stages != NULL, seq = list && list->kind == OG_YAML_SEQ;
    int n = given ? opts->n_stages : seq ? list->n : 0;
    o->ov->stages = og_arena_alloc(o->a, (size_t)(n + 1) * sizeof *o->ov->stages);
    for (int i = 0; o->ov->stages && i < n; i++) {
        og__overlay_stage *s = &o->ov->stages[i];
        int id = given ? opts->stages[i].id : og__entry_id(list->items[i]);
        const char *name = given ? opts->stages[i].name : og__entry_name(list->items[i]);
        s->id = id;
        s->owner = given ? og_owner_of(opts->stages[i].kind) : OG_OWNER_ALL;
        s->name = name ? og_arena_strdup(o->a, name) : og_arena_printf(o->a, "%d", id);
        if (!s->name) return false;
        o->ov->n_stages = i + 1;
    }
    for (int i = 0; given && seq && i < list->n; i++) {
        check_entry(o, list->items[i], true);
    }
    return o->ov->stages != NULL;
}

void og__overlay_resolve(og__overlaying *o, const og_yaml_node *folded) {
    o->oom = !apply_platform(o, folded) || !list_stages(o);
    const og_yaml_node *defaults = o->oom ? NULL : root_defaults(o);
    o->oom = !defaults;
    for (int i = 0; i < o->ov->n_stages && !o->oom; i++) {
        o->oom = !resolve_stage(o, &o->ov->stages[i], defaults);
    }
}
