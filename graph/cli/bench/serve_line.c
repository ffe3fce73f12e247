/* server_params as options of `omni-graph serve`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/cli/bench/suite.h"

typedef struct line {
    og_arena *arena;
    const og__serve_how *how;
    og__serve_line *out;
    json_t *stages; /* what --stage-overrides will say */
    og_err *err;
} line;

static int add(line *l, const char *word) {
    if (!word) return og_err_set(l->err, OG_ENOMEM, "out of memory");
    if (l->out->n == OG__SERVE_ARGS_MAX)
        return og_err_set(l->err, OG_ELIMIT,
                          "too many options for the server (limit is %d)",
                          OG__SERVE_ARGS_MAX);
    l->out->args[l->out->n++] = word;
    return 0;
}

static int add_pair(line *l, const char *option, const char *value) {
    int rc = add(l, option);
    return rc ? rc : add(l, value);
}

/* "a-b" and "a_b" and "--a-b" are one name. */
static bool is(const char *key, const char *name) {
    while (*key == '-') key++;
    for (; *key && *name; key++, name++)
        if (*key != *name && !(*key == '_' && *name == '-')) return false;
    return !*key && !*name;
}

/* What is about the start of the other server, and has no counterpart. */
static bool means_nothing(const char *key) {
    static const char *const names[] = {
        "trust-remote-code",
        "stage-init-timeout",
        "init-timeout",
        "skip-mm-profiling",
        "enable-diffusion-pipeline-profiler",
        "omni",
        "disable-log-stats",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is(key, names[i])) return true;
    return false;
}

static int overlay(line *l, const char *name) {
    const char *path = l->how->overlay ? l->how->overlay(l->how->user, name) : NULL;
    if (path) return add_pair(l, "--deploy", path);
    l->out->skip = og_arena_printf(l->arena, "the overlay '%s' is not here", name);
    return l->out->skip ? 0 : og_err_set(l->err, OG_ENOMEM, "out of memory");
}

/* ---- stage by stage ----------------------------------------------------------- */

static json_t *stage(line *l, const char *id) {
    json_t *s = json_object_get(l->stages, id);
    if (!s) json_object_set_new(l->stages, id, s = json_object());
    return s;
}

static bool is_place(const char *key) {
    return is(key, "devices") || is(key, "num-replicas");
}

static void merge(line *l, const char *id, const json_t *keys) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)keys, key, value) {
        if (!l->how->one_device || !is_place(key))
            json_object_set(stage(l, id), key, value);
    }
}

/* Older files: "engine_args.max_num_seqs" as one key; the outer map is that of the old schema
 * and the keys below it are ours. */
static void set_dotted(line *l, const char *id, const char *path, json_t *value) {
    static const char *const outer[] = {"engine_args.", "runtime.", "engine_extras."};
    for (size_t i = 0; i < sizeof outer / sizeof *outer; i++)
        if (!strncmp(path, outer[i], strlen(outer[i]))) path += strlen(outer[i]);
    if (l->how->one_device && is_place(path)) return;
    json_t *map = stage(l, id);
    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
        char key[128];
        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        json_t *below = json_object_get(map, key);
        if (!json_is_object(below)) json_object_set_new(map, key, below = json_object());
        map = below;
    }
    json_object_set(map, path, value);
}

static int set_root(line *l, const char *path, const json_t *value) {
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *word = text ? og_arena_printf(l->arena, "%s=%s", path, text) : NULL;
    free(text);
    return add_pair(l, "--set", word);
}

static int update(line *l, const json_t *map) {
    const char *key, *id, *path;
    json_t *value, *keys, *v;
    int rc = 0;
    json_object_foreach((json_t *)map, key, value) {
        if (strcmp(key, "stage_args") && strcmp(key, "stages")) {
            if (rc == 0) rc = set_root(l, key, value);
            continue;
        }
        json_object_foreach(value, id, keys) json_object_foreach(keys, path, v)
            set_dotted(l, id, path, v);
    }
    return rc;
}

/* A key that is taken away is one that is null. */
static int take_away(line *l, const json_t *map) {
    const char *key, *id;
    json_t *value, *keys, *path;
    size_t i;
    int rc = 0;
    json_object_foreach((json_t *)map, key, value) {
        if (strcmp(key, "stage_args") && strcmp(key, "stages")) {
            if (rc == 0) rc = set_root(l, key, json_null());
            continue;
        }
        json_object_foreach(value, id, keys)
            json_array_foreach(keys, i, path) if (json_is_string(path))
                set_dotted(l, id, json_string_value(path), json_null());
    }
    return rc;
}

static int overrides(line *l, const json_t *map) {
    const char *id;
    json_t *keys, *parsed = json_is_string(map)
                                ? json_loads(json_string_value(map), 0, NULL)
                                : json_incref((json_t *)map);
    json_object_foreach(parsed, id, keys) merge(l, id, keys);
    json_decref(parsed);
    return 0;
}

/* ---- options ------------------------------------------------------------------ */

static const char *value_text(line *l, const json_t *v) {
    if (json_is_string(v)) return json_string_value(v);
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *out = text ? og_arena_strdup(l->arena, text) : NULL;
    free(text);
    return out;
}

static int inline_file(line *l) {
    l->out->skip = "its overlay stands within the file, for a model that is not here";
    return 0;
}

static int serve_args(line *l, const json_t *map) {
    const char *key;
    json_t *v;
    int rc = 0;
    json_object_foreach((json_t *)map, key, v) {
        if (rc || means_nothing(key) || json_is_false(v) || json_is_null(v)) continue;
        if (is(key, "deploy-config") && json_is_string(v)) {
            rc = overlay(l, json_string_value(v));
        } else if (is(key, "stage-overrides")) {
            rc = overrides(l, v);
        } else if (is(key, "deploy-config-inline")) {
            rc = inline_file(l);
        } else {
            rc = add(l, og_arena_printf(l->arena, "--%s", key));
            if (!rc && !json_is_true(v)) rc = add(l, value_text(l, v));
        }
    }
    return rc;
}

static int cli_args(line *l, const json_t *list) {
    int rc = 0;
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++) {
        const char *s = json_string_value(json_array_get(list, i));
        const char *next = json_string_value(json_array_get(list, i + 1));
        bool has_value = next && strncmp(next, "--", 2);
        if (!s) continue;
        if (is(s, "deploy-config") && has_value) {
            rc = overlay(l, next);
            i++;
        } else if (is(s, "stage-overrides") && has_value) {
            json_t *map = json_loads(next, 0, NULL);
            rc = overrides(l, map);
            json_decref(map);
            i++;
        } else if (means_nothing(s)) {
            i += has_value;
        } else {
            rc = add(l, s);
        }
    }
    return rc;
}

int og__suite_serve_line(og_arena *arena, const og__suite_entry *e,
                         const og__serve_how *how, og__serve_line *out, og_err *err) {
    line l = {arena, how, out, json_object(), err};
    *out = (og__serve_line){0};
    const char *old = json_string_value(og__member(e->server, "stage_config_name"));
    int rc = l.stages ? 0 : og_err_set(err, OG_ENOMEM, "out of memory");
    if (rc == 0 && old) rc = overlay(&l, old);
    if (rc == 0) rc = serve_args(&l, og__member(e->server, "serve_args"));
    if (rc == 0) rc = cli_args(&l, og__member(e->server, "extra_cli_args"));
    if (rc == 0) rc = update(&l, og__member(e->server, "update"));
    if (rc == 0) rc = take_away(&l, og__member(e->server, "delete"));
    if (rc == 0) rc = overrides(&l, og__member(e->server, "stage_overrides"));
    const char *id;
    json_t *keys;
    void *next;
    json_object_foreach_safe(l.stages, next, id, keys) {
        if (json_object_size(keys) == 0) json_object_del(l.stages, id);
    }
    if (rc == 0 && json_object_size(l.stages))
        rc = add_pair(&l, "--stage-overrides", value_text(&l, l.stages));
    json_decref(l.stages);
    return rc;
}
