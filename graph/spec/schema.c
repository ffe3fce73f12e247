#include "graph/spec/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/spec/keys.h"

#define NEAR_MAX 64 /* longest name that is compared */

static const struct {
    const char *path;
    og_schema schema;
} sections[] = {{"", OG_SCHEMA_PIPELINE},
#define ROW(name, path, schema) {path, schema},
                OG_SECTIONS(ROW)
#undef ROW
};

const char *og_section_path(og_section section) {
    return sections[section].path;
}

const og_key *og_keys(og_schema schema, int *n) {
    *n = schema == OG_SCHEMA_PIPELINE ? og__n_pipeline_keys : og__n_overlay_keys;
    return schema == OG_SCHEMA_PIPELINE ? og__pipeline_keys : og__overlay_keys;
}

const og_key *og_key_find(og_section section, const char *name) {
    int n;
    const og_key *keys = og_keys(sections[section].schema, &n);
    for (int i = 0; i < n; i++) {
        if (keys[i].section == section && !strcmp(keys[i].name, name)) return &keys[i];
    }
    return NULL;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* Edit distance with swaps of neighbours (optimal string alignment). */
static int distance(const char *a, const char *b) {
    int n = (int)strlen(a), m = (int)strlen(b);
    int row[3][NEAR_MAX + 1];
    if (n > NEAR_MAX || m > NEAR_MAX) return NEAR_MAX;
    for (int k = 0; k <= m; k++) row[0][k] = k;
    for (int i = 1; i <= n; i++) {
        int *up2 = row[(i + 1) % 3], *up = row[(i + 2) % 3], *now = row[i % 3];
        now[0] = i;
        for (int k = 1; k <= m; k++) {
            int cost = a[i - 1] != b[k - 1];
            now[k] = least(least(up[k], now[k - 1]) + 1, up[k - 1] + cost);
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1]) {
                now[k] = least(now[k], up2[k - 2] + 1);
            }
        }
    }
    return row[n % 3][m];
}

static void nearer(const char *name, const char *candidate, const char **best,
                   int *score) {
    int len = (int)strlen(name), other = (int)strlen(candidate);
    int limit = (len > other ? len : other) / 3;
    int d = distance(name, candidate);
    if (limit < 1) limit = 1;
    if (d > limit || d >= *score || d >= len) return;
    *score = d;
    *best = candidate;
}

const char *og_near(const char *name, const char *const *names, int n) {
    const char *best = NULL;
    int score = NEAR_MAX;
    for (int i = 0; i < n; i++) nearer(name, names[i], &best, &score);
    return best;
}

const char *og_key_near(og_section section, const char *name) {
    const char *best = NULL;
    int n, score = NEAR_MAX;
    const og_key *keys = og_keys(sections[section].schema, &n);
    for (int i = 0; i < n; i++) {
        bool fits = keys[i].section == section && !(keys[i].flags & OG_KEY_REMOVED);
        if (fits) nearer(name, keys[i].name, &best, &score);
    }
    return best;
}

int og_owner_of(const char *kind) {
    static const char *const kinds[] = {"ar_decoder", "encoder", "dit", "vae", "vocoder"};
    for (int i = 0; kind && i < 5; i++) {
        if (!strcmp(kind, kinds[i])) return 1 << i;
    }
    return OG_OWNER_ALL;
}

bool og_value_fits(const og_yaml_node *n, int values) {
    bool b;
    int64_t i;
    double f;
    if (values & OG_VALUE_STRING) return true;
    if (values & OG_VALUE_REF && og_cfg_is_ref(n->text)) return true;
    if (values & OG_VALUE_BOOL && og_yaml_bool(n, &b, NULL)) return true;
    if (values & OG_VALUE_INT && og_yaml_int(n, &i, NULL)) return true;
    return values & OG_VALUE_FLOAT && og_yaml_float(n, &f, NULL);
}

#define SCALARS                                                                          \
    (OG_VALUE_BOOL | OG_VALUE_INT | OG_VALUE_FLOAT | OG_VALUE_STRING | OG_VALUE_REF)

static void value_words(int values, char *buf, size_t size) {
    static const struct {
        int bit;
        const char *word;
    } words[] = {
        {OG_VALUE_BOOL, "true or false"}, {OG_VALUE_INT, "a whole number"},
        {OG_VALUE_FLOAT, "a number"},     {OG_VALUE_STRING, "a string"},
        {OG_VALUE_LIST, "a list"},        {OG_VALUE_MAP, "a map"},
        {OG_VALUE_REF, "a $ value"},
    };
    buf[0] = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!(values & words[i].bit)) continue;
        size_t len = strlen(buf);
        snprintf(buf + len, size - len, "%s%s", len ? " or " : "", words[i].word);
    }
}

static void wrong_value(const char *key, const char *part, int values,
                        const og_yaml_node *v, og_diags *diags) {
    char want[128];
    value_words(values, want, sizeof want);
    if (v->kind == OG_YAML_SCALAR) {
        og_diags_error(diags, v->src, "%s'%s' takes %s, not '%.60s'", part, key, want,
                       v->text);
    } else {
        og_diags_error(diags, v->src, "%s'%s' takes %s, not %s", part, key, want,
                       og_yaml_kind_name(v->kind));
    }
}

static void check_range(const og_key *key, const og_yaml_node *v, og_diags *diags) {
    double x;
    if (!og_yaml_float(v, &x, NULL)) return;
    if (key->has_min && !(x >= key->min)) {
        og_diags_error(diags, v->src, "'%s' is %.60s (least value is %g)", key->name,
                       v->text, key->min);
    } else if (key->has_max && !(x <= key->max)) {
        og_diags_error(diags, v->src, "'%s' is %.60s (greatest value is %g)", key->name,
                       v->text, key->max);
    }
}

static bool word_in(const char *words, const char *text) {
    size_t len = strlen(text);
    for (const char *w = words; len;) {
        const char *bar = strchr(w, '|');
        size_t n = bar ? (size_t)(bar - w) : strlen(w);
        if (n == len && !strncmp(w, text, n)) return true;
        if (!bar) return false;
        w = bar + 1;
    }
    return false;
}

static void check_words(const og_key *key, const og_yaml_node *v, og_diags *diags) {
    if (word_in(key->words, v->text)) return;
    og_diags_error(diags, v->src, "'%s' cannot be '%.60s'", key->name, v->text);
    char words[256];
    size_t n = 0;
    for (const char *p = key->words; *p && n + 3 < sizeof words; p++) {
        words[n++] = *p == '|' ? ',' : *p;
        if (*p == '|') words[n++] = ' ';
    }
    words[n] = 0;
    og_diags_hint(diags, "one of: %s", words);
}

static void check_scalar(const og_key *key, const og_yaml_node *v, og_diags *diags) {
    if (!og_value_fits(v, key->values)) {
        wrong_value(key->name, "", key->values, v, diags);
        return;
    }
    bool numbers = key->values & (OG_VALUE_INT | OG_VALUE_FLOAT);
    if (numbers && !og_cfg_is_ref(v->text)) check_range(key, v, diags);
    bool one_type = !(key->values & ~(OG_VALUE_STRING | OG_VALUE_MAP));
    if (key->words && one_type) check_words(key, v, diags);
}

static void check_item(const og_key *key, const og_yaml_node *v, bool named, bool quiet,
                       og_diags *diags);

static void check_items(const og_key *key, const og_yaml_node *v, bool quiet,
                        og_diags *diags) {
    for (int i = 0; i < v->n; i++) check_item(key, v->items[i], false, quiet, diags);
}

/* One item of a list, or one value of a map of free names. */
static void check_item(const og_key *key, const og_yaml_node *v, bool named, bool quiet,
                       og_diags *diags) {
    const char *part = named ? "a value of " : "an item of ";
    int allowed = key->items ? key->items : OG_VALUE_ANY;
    bool overlay = sections[key->section].schema == OG_SCHEMA_OVERLAY;
    if (v->kind == OG_YAML_NULL && (named || (overlay && allowed & SCALARS))) return;
    if (named && v->kind == OG_YAML_SEQ && allowed == OG_VALUE_LIST) {
        og_key inner = *key;
        inner.items = OG_VALUE_MAP;
        check_items(&inner, v, quiet, diags);
    } else if (v->kind == OG_YAML_SCALAR && allowed & SCALARS) {
        if (!og_value_fits(v, allowed))
            wrong_value(key->name, part, allowed, v, diags);
        else if (key->has_min || key->has_max)
            check_range(key, v, diags);
    } else if (v->kind == OG_YAML_MAP && allowed & OG_VALUE_MAP) {
        if (key->inner) og__keys_check(v, key->inner, quiet, diags);
    } else if (v->kind == OG_YAML_SEQ ? !(allowed & OG_VALUE_LIST)
                                      : allowed != OG_VALUE_ANY) {
        wrong_value(key->name, part, allowed, v, diags);
    }
}

static void check_map(const og_key *key, const og_yaml_node *v, bool quiet,
                      og_diags *diags) {
    if (!(key->flags & OG_KEY_NAMED)) {
        if (key->inner) og__keys_check(v, key->inner, quiet, diags);
        return;
    }
    for (int i = 0; i < v->n; i++) check_item(key, v->pairs[i].value, true, quiet, diags);
}

static void check_value(const og_key *key, const og_yaml_node *v, bool quiet,
                        og_diags *diags) {
    switch (v->kind) {
    case OG_YAML_NULL: break; /* not given; required keys are looked for elsewhere */
    case OG_YAML_SCALAR: check_scalar(key, v, diags); break;
    case OG_YAML_SEQ:
        if (!(key->values & OG_VALUE_LIST))
            wrong_value(key->name, "", key->values, v, diags);
        else
            check_items(key, v, quiet, diags);
        break;
    case OG_YAML_MAP:
        if (!(key->values & OG_VALUE_MAP))
            wrong_value(key->name, "", key->values, v, diags);
        else
            check_map(key, v, quiet, diags);
        break;
    }
}

void og_key_check(const og_key *key, const og_yaml_node *value, og_diags *diags) {
    check_value(key, value, false, diags);
}

static void unknown_key(const og_yaml_pair *p, og_section section, og_diags *diags) {
    if (section == OG_SECTION_EXTRA) return; /* its keys are the models' own */
    if (sections[section].schema == OG_SCHEMA_PIPELINE) {
        og_diags_error(diags, p->src, "unknown key '%.60s'", p->key);
    } else {
        og_diags_warn(diags, p->src, "unknown key '%.60s' is not used", p->key);
    }
    og_diags_suggest(diags, og_key_near(section, p->key));
}

/* A known key that does nothing is only worth a word when it asks for something. */
static void unsupported(const og_key *key, const og_yaml_pair *p, og_diags *diags) {
    const og_yaml_node *v = p->value;
    if (v->kind == OG_YAML_NULL) return;
    if (v->kind == OG_YAML_SCALAR && key->def && !strcmp(v->text, key->def)) return;
    if (key->values == OG_VALUE_BOOL && !key->def && !strcmp(v->text, "false")) return;
    og_diags_warn(diags, p->src, "'%s' is known but has no effect here", key->name);
    og_diags_hint(diags, "%s", key->doc);
}

void og__pair_check(const og_yaml_pair *p, og_section section, bool quiet,
                    og_diags *diags) {
    const og_key *key = og_key_find(section, p->key);
    if (!key) {
        if (!quiet) unknown_key(p, section, diags);
        return;
    }
    if (key->flags & OG_KEY_REMOVED) {
        og_diags_error(diags, p->src, "'%s' is of an older schema", key->name);
        og_diags_hint(diags, "%s", key->doc);
        return;
    }
    if (key->flags & OG_KEY_UNSUPPORTED && !quiet) {
        unsupported(key, p, diags);
        quiet = true; /* said once, not for everything inside it */
    }
    check_value(key, p->value, quiet, diags);
}

static void check_required(const og_yaml_node *map, og_section section, og_diags *diags) {
    int n;
    const og_key *keys = og_keys(sections[section].schema, &n);
    for (int i = 0; i < n; i++) {
        if (keys[i].section != section || !(keys[i].flags & OG_KEY_REQUIRED)) continue;
        const og_yaml_node *v = og_yaml_get(map, keys[i].name);
        if (v && v->kind != OG_YAML_NULL) continue;
        og_diags_error(diags, map->src, "'%s' is missing", keys[i].name);
        og_diags_hint(diags, "%s", keys[i].doc);
    }
}

void og__keys_check(const og_yaml_node *map, og_section section, bool quiet,
                    og_diags *diags) {
    if (map->kind != OG_YAML_MAP) {
        og_diags_error(diags, map->src, "expected a map, not %s",
                       og_yaml_kind_name(map->kind));
        return;
    }
    for (int i = 0; i < map->n; i++)
        og__pair_check(&map->pairs[i], section, quiet, diags);
    check_required(map, section, diags);
}

void og_keys_check(const og_yaml_node *map, og_section section, og_diags *diags) {
    og__keys_check(map, section, false, diags);
}
