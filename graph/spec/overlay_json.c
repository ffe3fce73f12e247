/* An overlay as JSON, and as a list of values with where each came from. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/spec/json.h"
#include "graph/spec/overlay_parts.h"

void og__json_string(const char *s, og_str *out) {
    og_str_add(out, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            og_str_addf(out, "\\%c", c);
        else if (c == '\n')
            og_str_add(out, "\\n");
        else if (c == '\t')
            og_str_add(out, "\\t");
        else if (c < 0x20 || c == 0x7f)
            og_str_addf(out, "\\u%04x", c);
        else
            og_str_addn(out, s, 1);
    }
    og_str_add(out, "\"");
}

void og__json_line(int depth, og_str *out) {
    og_str_addf(out, "\n%*s", depth * 2, "");
}

/* The shortest decimal that reads back as v. */
static void number(double v, bool point, og_str *out) {
    char buf[40];
    if (!isfinite(v)) {
        og__json_string(isnan(v) ? ".nan" : v < 0 ? "-.inf" : ".inf", out);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        if (strtod(buf, NULL) == v) break;
    }
    og_str_add(out, buf);
    if (point && !strpbrk(buf, ".en")) og_str_add(out, ".0");
}

/* What to write a scalar as: 'b', 'i', 'f' or 's'. */
static char scalar_type(const og_yaml_node *n, int values, bool strict) {
    int scalars =
        values & (OG_VALUE_BOOL | OG_VALUE_INT | OG_VALUE_FLOAT | OG_VALUE_STRING);
    char guess = og_yaml_guess(n);
    if (n->quoted && !strict) return 's';
    if (!scalars || values == OG_VALUE_ANY) return guess;
    if (scalars & OG_VALUE_BOOL && og_value_fits(n, OG_VALUE_BOOL)) return 'b';
    if (scalars & OG_VALUE_FLOAT && og_value_fits(n, OG_VALUE_FLOAT)) {
        return guess == 'i' && !strict ? 'i' : 'f';
    }
    if (scalars & OG_VALUE_INT && og_value_fits(n, OG_VALUE_INT)) return 'i';
    return 's';
}

static void scalar(const og_yaml_node *n, int values, bool strict, og_str *out) {
    bool b = false;
    int64_t i = 0;
    double f = 0;
    switch (scalar_type(n, values, strict)) {
    case 'b':
        og_yaml_bool(n, &b, NULL);
        og_str_add(out, b ? "true" : "false");
        break;
    case 'i':
        og_yaml_int(n, &i, NULL);
        og_str_addf(out, "%lld", (long long)i);
        break;
    case 'f':
        og_yaml_float(n, &f, NULL);
        number(f, true, out);
        break;
    default: og__json_string(n->text, out);
    }
}

/* What is known of a node: the types of a scalar, and whose keys it holds. */
typedef struct known {
    const og_key *key; /* of the value itself; NULL: none */
    int values;
    og_section section; /* whose keys a map holds; NONE: not known */
    bool named;         /* the map's keys are free, its values are as the key's items */
} known;

static known of_key(const og_key *key) {
    if (!key) return (known){0};
    return (known){key, key->values, key->inner, (key->flags & OG_KEY_NAMED) != 0};
}

static known of_item(const known *k) {
    if (!k->key) return (known){0};
    return (known){k->key, k->key->items, k->section, false};
}

static known of_pair(const known *k, const char *name) {
    if (k->named) return of_item(k);
    return k->section ? of_key(og_key_find(k->section, name)) : (known){0};
}

static void write(const og_yaml_node *n, known k, bool strict, int depth, og_str *out) {
    const char *comma = "";
    switch (n->kind) {
    case OG_YAML_NULL: og_str_add(out, "null"); return;
    case OG_YAML_SCALAR: scalar(n, k.values, strict, out); return;
    case OG_YAML_SEQ:
        og_str_add(out, "[");
        for (int i = 0; i < n->n; i++, comma = ", ") {
            og_str_add(out, comma);
            write(n->items[i], of_item(&k), strict, depth, out);
        }
        og_str_add(out, "]");
        return;
    case OG_YAML_MAP: break;
    }
    og_str_add(out, "{");
    for (int i = 0; i < n->n; i++, comma = ",") {
        og_str_add(out, comma);
        if (depth >= 0)
            og__json_line(depth + 1, out);
        else if (i)
            og_str_add(out, " ");
        og__json_string(n->pairs[i].key, out);
        og_str_add(out, ": ");
        write(n->pairs[i].value, of_pair(&k, n->pairs[i].key), strict,
              depth < 0 ? depth : depth + 1, out);
    }
    if (n->n && depth >= 0) og__json_line(depth, out);
    og_str_add(out, "}");
}

static known of_section(og_section section) {
    return (known){.section = section};
}

void og_overlay_node_json(const og_yaml_node *node, int section, bool strict,
                          og_str *out) {
    bool ok = section > OG_SECTION_NONE && section < OG_SECTION_COUNT;
    write(node, of_section(ok ? (og_section)section : OG_SECTION_NONE), strict, 0, out);
}

static void effective(const og_overlay *ov, og_str *out) {
    og_str_add(out, "{\n  \"root\": ");
    write(ov->root, of_section(OG_SECTION_OVERLAY), true, 1, out);
    og_str_add(out, ",\n  \"stages\": {");
    for (int i = 0; i < ov->n_stages; i++) {
        og_str_add(out, i ? "," : "");
        og__json_line(2, out);
        og__json_string(ov->stages[i].name, out);
        og_str_add(out, ": ");
        write(ov->stages[i].values, of_section(OG_SECTION_OVERLAY_STAGE), true, 2, out);
    }
    og_str_add(out, ov->n_stages ? "\n  }\n}" : "}\n}");
}

void og_overlay_json(const og_overlay *ov, og_overlay_part part, og_str *out) {
    if (part == OG_OVERLAY_EFFECTIVE)
        effective(ov, out);
    else
        write(ov->merged, of_section(OG_SECTION_OVERLAY), false, 0, out);
}

static void place(og_src src, og_str *out) {
    if (!src.file)
        og_str_add(out, "  (built in)\n");
    else if (src.line > 0)
        og_str_addf(out, "  (%s:%d:%d)\n", src.file, src.line, src.col);
    else
        og_str_addf(out, "  (%s)\n", src.file);
}

static void explain(const char *path, const og_yaml_node *n, known k, bool idle,
                    og_str *out) {
    if (k.key && k.key->flags & (OG_KEY_UNSUPPORTED | OG_KEY_IGNORED)) idle = true;
    if (n->kind == OG_YAML_MAP && n->n) {
        for (int i = 0; i < n->n; i++) {
            og_str below = OG_STR_INIT;
            og_str_addf(&below, "%s%s%s", path, *path ? "." : "", n->pairs[i].key);
            if (below.data && !below.oom) {
                explain(below.data, n->pairs[i].value, of_pair(&k, n->pairs[i].key), idle,
                        out);
            }
            out->oom |= below.oom;
            og_str_free(&below);
        }
        return;
    }
    og_str_addf(out, "%s = ", path);
    write(n, k, true, -1, out);
    if (idle) og_str_add(out, "  [no effect here]");
    place(n->src, out);
}

/* Keys that work here, have a default and were not set. */
static void defaults(const char *stage, const og_yaml_node *values, og_section section,
                     int owner, og_str *out) {
    int n;
    const og_key *keys = og_keys(OG_SCHEMA_OVERLAY, &n);
    for (int i = 0; i < n; i++) {
        const og_key *key = &keys[i];
        bool idle = key->flags & (OG_KEY_UNSUPPORTED | OG_KEY_IGNORED);
        if (key->section != section || !key->def || idle) continue;
        if ((key->owners && !(key->owners & owner)) || og_yaml_get(values, key->name)) {
            continue;
        }
        og_str_addf(out, "%s%s%s = %s  (default)\n", stage, *stage ? "." : "", key->name,
                    key->def);
    }
}

void og_overlay_explain(const og_overlay *ov, og_str *out) {
    if (ov->root->n) explain("", ov->root, of_section(OG_SECTION_OVERLAY), false, out);
    for (int i = 0; i < ov->n_stages; i++) {
        const og__overlay_stage *s = &ov->stages[i];
        if (s->values->n) {
            explain(s->name, s->values, of_section(OG_SECTION_OVERLAY_STAGE), false, out);
        }
        defaults(s->name, s->values, OG_SECTION_OVERLAY_STAGE, s->owner, out);
    }
}
