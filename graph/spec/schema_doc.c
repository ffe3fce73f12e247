/* The key table as JSON Schema and as a reference page. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "graph/spec/json.h"
#include "graph/spec/schema.h"

static og_section first_section(og_schema schema) {
    return schema == OG_SCHEMA_PIPELINE ? OG_SECTION_PIPELINE : OG_SECTION_OVERLAY;
}

static bool has_section(const og_key *keys, int n, int section) {
    for (int i = 0; i < n; i++) {
        if ((int)keys[i].section == section) return true;
    }
    return false;
}

/* A section's path as a name: "stages[].runtime" is stages_runtime. */
static void def_name(og_section section, og_str *out) {
    bool gap = false;
    for (const char *p = og_section_path(section); *p; p++) {
        if (!isalnum((unsigned char)*p) && *p != '_') {
            gap = true;
            continue;
        }
        if (gap) og_str_add(out, "_");
        gap = false;
        og_str_addn(out, p, 1);
    }
}

static void ref(og_section section, og_str *out) {
    og_str_add(out, "{\"$ref\": \"#/$defs/");
    def_name(section, out);
    og_str_add(out, "\"}");
}

static void words_of(const char *words, og_str *out) {
    og_str_add(out, "{\"enum\": [");
    for (const char *w = words; w;) {
        const char *bar = strchr(w, '|');
        og_str_addf(out, "\"%.*s\"%s", (int)(bar ? bar - w : (long)strlen(w)), w,
                    bar ? ", " : "");
        w = bar ? bar + 1 : NULL;
    }
    og_str_add(out, "]}");
}

static void numeric(const og_key *key, const char *type, og_str *out) {
    og_str_addf(out, "{\"type\": \"%s\"", type);
    if (key->has_min) og_str_addf(out, ", \"minimum\": %.15g", key->min);
    if (key->has_max) og_str_addf(out, ", \"maximum\": %.15g", key->max);
    og_str_add(out, "}");
}

static void types_of(const og_key *key, int values, bool top, og_str *out);

static void map_of(const og_key *key, bool named, og_str *out) {
    if (named) {
        og_str_add(out, "{\"type\": \"object\", \"additionalProperties\": {\"anyOf\": [");
        types_of(key, key->items ? key->items : OG_VALUE_ANY, false, out);
        og_str_add(out, ", {\"type\": \"null\"}]}}");
    } else if (key->inner) {
        ref(key->inner, out);
    } else {
        og_str_add(out, "{\"type\": \"object\"}");
    }
}

static void list_of(const og_key *key, bool top, og_str *out) {
    int items = top ? key->items : OG_VALUE_MAP;
    bool nested = (key->flags & OG_KEY_NAMED) && top && key->items == OG_VALUE_LIST;
    og_str_add(out, "{\"type\": \"array\"");
    if (items && !nested) {
        og_str_add(out, ", \"items\": ");
        types_of(key, items, false, out);
    }
    og_str_add(out, "}");
}

/* One of the types in values. top: the key's own value, not what it contains. */
static void types_of(const og_key *key, int values, bool top, og_str *out) {
    bool named = top && key->flags & OG_KEY_NAMED;
    const char *comma = "";
    if (values == OG_VALUE_ANY) {
        og_str_add(out, "{}");
        return;
    }
    og_str_add(out, "{\"anyOf\": [");
    for (int bit = 1; bit <= OG_VALUE_REF; bit <<= 1) {
        if (!(values & bit)) continue;
        og_str_add(out, comma);
        comma = ", ";
        switch (bit) {
        case OG_VALUE_BOOL: og_str_add(out, "{\"type\": \"boolean\"}"); break;
        case OG_VALUE_INT: numeric(key, "integer", out); break;
        case OG_VALUE_FLOAT: numeric(key, "number", out); break;
        case OG_VALUE_STRING:
            if (top && key->words)
                words_of(key->words, out);
            else
                og_str_add(out, "{\"type\": \"string\"}");
            break;
        case OG_VALUE_LIST: list_of(key, top, out); break;
        case OG_VALUE_MAP: map_of(key, named, out); break;
        default: og_str_add(out, "{\"type\": \"string\", \"pattern\": \"^\\\\$\"}");
        }
    }
    if (top && !(key->flags & OG_KEY_REQUIRED)) {
        og_str_addf(out, "%s{\"type\": \"null\"}", comma);
    }
    og_str_add(out, "]}");
}

/* What a key has besides its types, opened by the caller's brace. */
static void property(const og_key *key, og_str *out) {
    og__json_line(4, out);
    og__json_string(key->name, out);
    og_str_add(out, ": {\"description\": ");
    og__json_string(key->doc, out);
    if (key->def) {
        bool bare = !strcmp(key->def, "true") || !strcmp(key->def, "false") ||
                    strspn(key->def, "-0123456789.") == strlen(key->def);
        og_str_add(out, ", \"default\": ");
        if (bare)
            og_str_add(out, key->def);
        else
            og__json_string(key->def, out);
    }
    if (key->flags & OG_KEY_UNSUPPORTED) og_str_add(out, ", \"deprecated\": true");
    og_str_add(out, ", \"allOf\": [");
    types_of(key, key->values, true, out);
    og_str_add(out, "]}");
}

static void required(const og_key *keys, int n, og_section section, og_str *out) {
    const char *comma = "";
    og_str_add(out, "\"required\": [");
    for (int i = 0; i < n; i++) {
        if (keys[i].section != section || !(keys[i].flags & OG_KEY_REQUIRED)) continue;
        og_str_add(out, comma);
        og__json_string(keys[i].name, out);
        comma = ", ";
    }
    og_str_add(out, "]");
}

/* A derived pipeline leaves out what its base says, so nothing is required of files. */
static void definition(og_schema schema, const og_key *keys, int n, og_section section,
                       og_str *out) {
    bool inherits = section == OG_SECTION_PIPELINE || section == OG_SECTION_STAGE;
    const char *comma = "";
    og__json_line(2, out);
    og_str_add(out, "\"");
    def_name(section, out);
    og_str_add(out, "\": {\"type\": \"object\", ");
    if (!inherits) {
        required(keys, n, section, out);
        og_str_add(out, ", ");
    }
    og_str_addf(out, "\"additionalProperties\": %s,",
                schema == OG_SCHEMA_PIPELINE ? "false" : "true");
    og__json_line(3, out);
    og_str_add(out, "\"properties\": {");
    for (int i = 0; i < n; i++) {
        if (keys[i].section != section || keys[i].flags & OG_KEY_REMOVED) continue;
        og_str_add(out, comma);
        property(&keys[i], out);
        comma = ",";
    }
    og__json_line(3, out);
    og_str_add(out, "}}");
}

void og_schema_json(og_schema schema, og_str *out) {
    int n;
    const og_key *keys = og_keys(schema, &n);
    const char *comma = "";
    og_str_add(out,
               "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n");
    og_str_addf(out, "  \"title\": \"omni-graph %s\",\n  \"$ref\": \"#/$defs/",
                schema == OG_SCHEMA_PIPELINE ? "pipeline" : "overlay");
    def_name(first_section(schema), out);
    og_str_add(out, "\",\n  \"$defs\": {");
    for (int s = OG_SECTION_NONE + 1; s < OG_SECTION_COUNT; s++) {
        if (!has_section(keys, n, s)) continue;
        og_str_add(out, comma);
        definition(schema, keys, n, (og_section)s, out);
        comma = ",";
    }
    og_str_add(out, "\n  }\n}\n");
}

static void type_words(int values, og_str *out) {
    static const char *const words[] = {"bool", "int", "float",  "string",
                                        "list", "map", "$ value"};
    const char *comma = "";
    if (values == OG_VALUE_ANY) {
        og_str_add(out, "any");
        return;
    }
    for (int i = 0; i < 7; i++) {
        if (!(values & 1 << i)) continue;
        og_str_addf(out, "%s%s", comma, words[i]);
        comma = ", ";
    }
}

static void range_words(const og_key *key, og_str *out) {
    if (key->has_min && key->has_max) {
        og_str_addf(out, ", %g to %g", key->min, key->max);
    } else if (key->has_min) {
        og_str_addf(out, ", at least %g", key->min);
    }
}

static void choice_words(const char *words, og_str *out) {
    og_str_add(out, " One of: `");
    for (; *words; words++) {
        if (*words == '|')
            og_str_add(out, "`, `");
        else
            og_str_addn(out, words, 1);
    }
    og_str_add(out, "`.");
}

static void row(const og_key *key, og_str *out) {
    og_str_addf(out, "| `%s` | ", key->name);
    type_words(key->values, out);
    range_words(key, out);
    if (key->flags & OG_KEY_REQUIRED) og_str_add(out, ", required");
    og_str_addf(out, " | %s%s%s | %s", key->def ? "`" : "", key->def ? key->def : "",
                key->def ? "`" : "", key->doc);
    if (key->words) choice_words(key->words, out);
    if (key->flags & OG_KEY_UNSUPPORTED)
        og_str_add(out, " *Known, without effect: warned.*");
    if (key->flags & OG_KEY_IGNORED) og_str_add(out, " *Accepted, without effect.*");
    if (key->flags & OG_KEY_OURS) og_str_add(out, " *Not in the public schema.*");
    if (key->flags & OG_KEY_STAGES) og_str_add(out, " *Default of every stage.*");
    if (key->reload == OG_RELOAD_LIVE) og_str_add(out, " *Reload: live.*");
    if (key->reload == OG_RELOAD_LOADED)
        og_str_add(out, " *Reload: live up to what was loaded, rolling beyond.*");
    if (key->reload == OG_RELOAD_ROLLING) og_str_add(out, " *Reload: rolling.*");
    og_str_add(out, " |\n");
}

/* Keys of one kind of reload, each named once. */
static void reload_row(const og_key *keys, int n, og_reload reload, const char *words,
                       og_str *out) {
    const char *comma = "";
    og_str_addf(out, "| %s | ", words);
    for (int i = 0; i < n; i++) {
        int idle = OG_KEY_UNSUPPORTED | OG_KEY_IGNORED | OG_KEY_REMOVED;
        bool named = keys[i].reload != reload || (keys[i].flags & idle);
        for (int k = 0; k < i && !named; k++)
            named = keys[k].reload == reload && !strcmp(keys[k].name, keys[i].name);
        if (named) continue;
        og_str_addf(out, "%s`%s`", comma, keys[i].name);
        comma = ", ";
    }
    og_str_add(out, " |\n");
}

static void reload_table(const og_key *keys, int n, og_str *out) {
    og_str_add(out, "\n## Reload\n\n| what a change needs | keys, with all below them |\n"
                    "|---|---|\n");
    reload_row(keys, n, OG_RELOAD_LIVE, "live", out);
    reload_row(keys, n, OG_RELOAD_LOADED, "live up to what was loaded, rolling beyond", out);
    reload_row(keys, n, OG_RELOAD_ROLLING, "rolling", out);
    og_str_add(out, "| nothing | keys without effect |\n| a restart | all others |\n");
}

void og_schema_markdown(og_schema schema, og_str *out) {
    int n;
    const og_key *keys = og_keys(schema, &n);
    og_str_addf(out,
                "# Keys of %s files\n\nMade from the key table by `omni-graph schema "
                "--markdown`.\n",
                schema == OG_SCHEMA_PIPELINE ? "pipeline" : "overlay");
    for (int s = OG_SECTION_NONE + 1; s < OG_SECTION_COUNT; s++) {
        if (!has_section(keys, n, s)) continue;
        bool first = s == (int)first_section(schema);
        og_str_addf(out,
                    "\n## %s\n\n| key | value | default | meaning |\n|---|---|---|---|\n",
                    first ? "Root" : og_section_path((og_section)s));
        for (int i = 0; i < n; i++) {
            if ((int)keys[i].section == s && !(keys[i].flags & OG_KEY_REMOVED)) {
                row(&keys[i], out);
            }
        }
    }
    if (schema == OG_SCHEMA_OVERLAY) reload_table(keys, n, out);
}
