/* What the command line says: global flags, --stage-overrides, --set, in this order. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "graph/spec/keys.h"
#include "graph/spec/overlay_parts.h"
#include "graph/spec/spec.h"

#define PATH_MAX_KEYS 16

/* A copy of a tree in which every node stands at src. Depth is bounded by the parser. */
static const og_yaml_node *at_place(const og_yaml_node *n, og_src src, og_arena *a) {
    og_yaml_node *out = og_arena_alloc(a, sizeof *out);
    if (!out) return NULL;
    *out = *n;
    out->src = src;
    const og_yaml_node **items = og_arena_alloc(a, (size_t)(n->n + 1) * sizeof *items);
    og_yaml_pair *pairs = og_arena_alloc(a, (size_t)(n->n + 1) * sizeof *pairs);
    if (!items || !pairs) return NULL;
    for (int i = 0; i < n->n; i++) {
        bool map = n->kind == OG_YAML_MAP;
        items[i] = at_place(map ? n->pairs[i].value : n->items[i], src, a);
        if (!items[i]) return NULL;
        if (map) pairs[i] = (og_yaml_pair){n->pairs[i].key, src, items[i]};
    }
    if (n->kind == OG_YAML_SEQ) out->items = items;
    if (n->kind == OG_YAML_MAP) out->pairs = pairs;
    return out;
}

/* The value of a flag. NULL: an error was reported, or out of memory. */
static const og_yaml_node *parse_value(og__overlaying *o, const char *label,
                                       const char *text) {
    const og_yaml_node *root;
    og_err err = OG_ERR_INIT;
    int rc = og_yaml_parse(label, text, strlen(text), o->a, o->d, &root, &err);
    if (rc == OG_ENOMEM) o->oom = true;
    if (rc < 0) return NULL;
    const og_yaml_node *out = at_place(root, (og_src){root->src.file, 0, 0}, o->a);
    if (!out) o->oom = true;
    return out;
}

/* {a: {b: value}} from the path "a.b". */
static const og_yaml_node *nest(og__overlaying *o, const char *path,
                                const og_yaml_node *value) {
    const char *keys[PATH_MAX_KEYS];
    int n = 0;
    char *work = og_arena_strdup(o->a, path);
    for (char *p = work, *next; p; p = next) {
        next = strchr(p, '.');
        if (next) *next++ = 0;
        if (!*p || n == PATH_MAX_KEYS) {
            og_diags_error(o->d, value->src, "'%.60s' is no path of keys (limit is %d)",
                           path, PATH_MAX_KEYS);
            return NULL;
        }
        keys[n++] = p;
    }
    if (!work) o->oom = true;
    while (n > 0 && value) {
        og_yaml_pair pair = {keys[--n], value->src, value};
        value = og_yaml_new_map(o->a, value->src, &pair, 1);
        if (!value) o->oom = true;
    }
    return work ? value : NULL;
}

static void over_stage(og__overlaying *o, og__overlay_stage *s, const og_yaml_node *map) {
    const og_yaml_node *own = og__owned(map, OG_SECTION_OVERLAY_STAGE, s->owner, o->a);
    const og_yaml_node *v = own ? og__merge(s->values, own, false, NULL, o->a) : NULL;
    if (v)
        s->values = v;
    else
        o->oom = true;
}

static void over_root(og__overlaying *o, const og_yaml_node *map) {
    const og_yaml_node *v = og__merge(o->ov->root, map, false, NULL, o->a);
    if (v)
        o->ov->root = v;
    else
        o->oom = true;
}

/* Whether a path's first key is known; says so when it is not. */
static bool known_key(og__overlaying *o, const og_yaml_node *map, og_section section) {
    const og_yaml_pair *p = &map->pairs[0];
    if (og_key_find(section, p->key)) return true;
    og_diags_error(o->d, p->src, "unknown key '%.60s'", p->key);
    og_diags_suggest(o->d, og_key_near(section, p->key));
    return false;
}

static bool is_stage(const og__overlay_stage *s, const char *name, size_t len) {
    char id[16];
    snprintf(id, sizeof id, "%d", s->id);
    if (!strncmp(s->name, name, len) && !s->name[len]) return true;
    return s->id >= 0 && !strncmp(id, name, len) && !id[len];
}

static bool set_stages(og__overlaying *o, const char *stage, size_t len, const char *path,
                       const og_yaml_node *value) {
    const og_yaml_node *map = NULL;
    bool found = false;
    for (int i = 0; i < o->ov->n_stages && !o->oom; i++) {
        if (!is_stage(&o->ov->stages[i], stage, len)) continue;
        if (!found) {
            map = nest(o, path, value);
            if (map && known_key(o, map, OG_SECTION_OVERLAY_STAGE)) {
                og_keys_check(map, OG_SECTION_OVERLAY_STAGE, o->d);
            }
        }
        found = true;
        if (map) over_stage(o, &o->ov->stages[i], map);
    }
    return found;
}

/* A root key also reaches the stages it is the default of: a flag beats what they say. */
static void spread(og__overlaying *o, const og_yaml_node *map) {
    for (int i = 0; i < o->ov->n_stages && !o->oom; i++) {
        over_stage(o, &o->ov->stages[i], map);
    }
}

static void set_root(og__overlaying *o, const char *path, const og_yaml_node *value) {
    const og_yaml_node *map = nest(o, path, value);
    if (!map) return;
    const og_key *key = og_key_find(OG_SECTION_OVERLAY, map->pairs[0].key);
    if (!key) {
        og_diags_error(o->d, value->src, "no stage and no root key '%.60s'",
                       map->pairs[0].key);
        const char *names[256];
        int n = 0;
        for (int i = 0; i < o->ov->n_stages && n < 256; i++) {
            names[n++] = o->ov->stages[i].name;
        }
        const char *best = og_near(map->pairs[0].key, names, n);
        if (!best) best = og_key_near(OG_SECTION_OVERLAY, map->pairs[0].key);
        og_diags_suggest(o->d, best);
        return;
    }
    if (!strcmp(key->name, "stages") || !strcmp(key->name, "platforms") ||
        !strcmp(key->name, "base_config")) {
        og_diags_error(o->d, value->src, "'%s' cannot be set by a flag", key->name);
        og_diags_hint(o->d, "write STAGE.key=value");
        return;
    }
    og_keys_check(map, OG_SECTION_OVERLAY, o->d);
    over_root(o, map);
    if (key->flags & OG_KEY_STAGES) spread(o, map);
}

static void apply_set(og__overlaying *o, const char *text) {
    const char *label = og_arena_printf(o->a, "--set %s", text);
    const char *eq = strchr(text, '=');
    const char *path = eq ? og_arena_strndup(o->a, text, (size_t)(eq - text)) : text;
    if (!label || !path) {
        o->oom = true;
        return;
    }
    if (!eq || eq == text) {
        og_diags_error(o->d, (og_src){label, 0, 0}, "expected STAGE.key=value");
        return;
    }
    const og_yaml_node *value = parse_value(o, label, eq + 1);
    const char *dot = strchr(path, '.');
    if (!value) return;
    if (dot && set_stages(o, path, (size_t)(dot - path), dot + 1, value)) return;
    set_root(o, path, value);
}

static void apply_flag(og__overlaying *o, const og_overlay_flag *flag) {
    char *label = og_arena_printf(o->a, "--%s %s", flag->key, flag->value);
    const og_yaml_node *value = label ? parse_value(o, label, flag->value) : NULL;
    const og_yaml_node *map = value ? nest(o, flag->key, value) : NULL;
    if (!label) o->oom = true;
    if (!map) return;
    const og_key *root = og_key_find(OG_SECTION_OVERLAY, map->pairs[0].key);
    const og_key *stage = og_key_find(OG_SECTION_OVERLAY_STAGE, map->pairs[0].key);
    if (!root && !stage) {
        known_key(o, map, OG_SECTION_OVERLAY_STAGE);
        return;
    }
    og_keys_check(map, stage ? OG_SECTION_OVERLAY_STAGE : OG_SECTION_OVERLAY, o->d);
    if (root) over_root(o, map);
    if (stage) spread(o, map);
}

/* JSON to nodes. Strings are quoted, so that "64" and 64 stay apart. */
static const og_yaml_node *from_json(og__overlaying *o, const json_t *j, og_src src,
                                     int depth);

static const og_yaml_node *from_array(og__overlaying *o, const json_t *j, og_src src,
                                      int depth) {
    int n = (int)json_array_size(j);
    const og_yaml_node **items = og_arena_alloc(o->a, (size_t)(n + 1) * sizeof *items);
    for (int i = 0; items && i < n; i++) {
        items[i] = from_json(o, json_array_get(j, (size_t)i), src, depth);
        if (!items[i]) return NULL;
    }
    return items ? og_yaml_new_seq(o->a, src, items, n) : NULL;
}

static const og_yaml_node *from_object(og__overlaying *o, const json_t *j, og_src src,
                                       int depth) {
    int n = (int)json_object_size(j), i = 0;
    og_yaml_pair *pairs = og_arena_alloc(o->a, (size_t)(n + 1) * sizeof *pairs);
    const char *key;
    json_t *value;
    if (!pairs) return NULL;
    json_object_foreach((json_t *)j, key, value) {
        const char *own = og_arena_strdup(o->a, key);
        const og_yaml_node *v = own ? from_json(o, value, src, depth) : NULL;
        if (!v) return NULL;
        pairs[i++] = (og_yaml_pair){own, src, v};
    }
    return og_yaml_new_map(o->a, src, pairs, n);
}

static const og_yaml_node *from_json(og__overlaying *o, const json_t *j, og_src src,
                                     int depth) {
    char number[64];
    if (depth > OG_YAML_MAX_DEPTH) {
        og_diags_error(o->d, src, "nested too deeply (limit is %d levels)",
                       OG_YAML_MAX_DEPTH);
        return NULL;
    }
    switch (json_typeof(j)) {
    case JSON_OBJECT: return from_object(o, j, src, depth + 1);
    case JSON_ARRAY: return from_array(o, j, src, depth + 1);
    case JSON_STRING: return og_yaml_new_scalar(o->a, src, json_string_value(j), true);
    case JSON_TRUE: return og_yaml_new_scalar(o->a, src, "true", false);
    case JSON_FALSE: return og_yaml_new_scalar(o->a, src, "false", false);
    case JSON_NULL: return og_yaml_new_null(o->a, src);
    case JSON_INTEGER:
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(j));
        break;
    default: snprintf(number, sizeof number, "%.17g", json_real_value(j));
    }
    return og_yaml_new_scalar(o->a, src, number, false);
}

static void override_stage(og__overlaying *o, const og_yaml_pair *p) {
    bool found = false;
    if (p->value->kind != OG_YAML_MAP) {
        og_diags_error(o->d, p->src, "stage '%.60s' takes a map of keys", p->key);
        return;
    }
    og_keys_check(p->value, OG_SECTION_OVERLAY_STAGE, o->d);
    for (int i = 0; i < o->ov->n_stages && !o->oom; i++) {
        if (!is_stage(&o->ov->stages[i], p->key, strlen(p->key))) continue;
        found = true;
        over_stage(o, &o->ov->stages[i], p->value);
    }
    if (!found) og_diags_error(o->d, p->src, "no stage '%.60s'", p->key);
}

static void apply_overrides(og__overlaying *o, const char *text) {
    static const char name[] = "--stage-overrides";
    const char *file = og_arena_strdup(o->a, name);
    json_error_t why;
    if (!file) {
        o->oom = true;
        return;
    }
    og_diags_source(o->d, name, text, strlen(text));
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (!j || !json_is_object(j)) {
        og_src src = {file, j ? 1 : why.line, j ? 1 : why.column};
        og_diags_error(o->d, src, "%s",
                       j ? "expected {\"STAGE\": {key: value}}" : why.text);
        json_decref(j);
        return;
    }
    int before = og_diags_errors(o->d);
    const og_yaml_node *map = from_json(o, j, (og_src){file, 0, 0}, 0);
    json_decref(j);
    if (!map && og_diags_errors(o->d) == before) o->oom = true;
    for (int i = 0; map && i < map->n && !o->oom; i++) override_stage(o, &map->pairs[i]);
}

void og__overlay_flags(og__overlaying *o) {
    const og_overlay_opts *opts = o->opts;
    for (int i = 0; i < opts->n_flags && !o->oom; i++) apply_flag(o, &opts->flags[i]);
    if (opts->stage_overrides && !o->oom) apply_overrides(o, opts->stage_overrides);
    for (int i = 0; i < opts->n_sets && !o->oom; i++) apply_set(o, opts->sets[i]);
}
