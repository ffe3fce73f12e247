/* Files of an overlay: the chain of base_config, and the checks of each file. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/spec/keys.h"
#include "graph/spec/overlay_parts.h"
#include "graph/spec/spec.h"

static int no_memory(og_err *err) {
    return og_err_set(err, OG_ENOMEM, "out of memory");
}

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

static const char *absolute(const char *path, og_arena *a) {
    char cwd[4096];
    if (path[0] == '/' || !getcwd(cwd, sizeof cwd)) return path;
    return og_arena_printf(a, "%s/%s", cwd, path);
}

/* Two entries for one stage in one file are a mistake, not a merge. */
static void check_twice(const og_yaml_node *list, og_diags *d) {
    for (int i = 0; i < list->n; i++) {
        int id = og__entry_id(list->items[i]);
        const char *name = og__entry_name(list->items[i]);
        if (list->items[i]->kind != OG_YAML_MAP) continue;
        if (!og_yaml_get(list->items[i], "stage_id") && !name) {
            og_diags_error(d, list->items[i]->src, "which stage? 'stage_id' is missing");
        }
        for (int k = 0; k < i && (id >= 0 || name); k++) {
            if (!og__entry_is(list->items[k], id, name)) continue;
            if (id >= 0) {
                og_diags_error(d, list->items[i]->src, "stage_id %d is listed twice", id);
            } else {
                og_diags_error(d, list->items[i]->src, "stage '%.60s' is listed twice",
                               name);
            }
            og_diags_hint(d, "the first entry is in line %d, column %d",
                          list->items[k]->src.line, list->items[k]->src.col);
            break;
        }
    }
}

static void check_list(const og_yaml_node *list, og_diags *d) {
    if (list && list->kind == OG_YAML_SEQ) check_twice(list, d);
}

/* Sections of other platforms are checked for mistakes, but what they hold that does
 * nothing here is nobody's concern. */
static void check_platforms(og__overlaying *o, const og_yaml_pair *pair) {
    const og_yaml_node *map = pair->value;
    if (map->kind != OG_YAML_MAP) {
        og__pair_check(pair, OG_SECTION_OVERLAY, false, o->d);
        return;
    }
    for (int i = 0; i < map->n; i++) {
        const og_yaml_pair *p = &map->pairs[i];
        bool ours = o->opts->platform && !strcmp(p->key, o->opts->platform);
        if (p->value->kind == OG_YAML_NULL) continue;
        og__keys_check(p->value, OG_SECTION_PLATFORM, !ours, o->d);
        check_list(og_yaml_get(p->value, "stages"), o->d);
    }
}

static void check_interpolation(const og_yaml_node *n, og_diags *d) {
    if (n->kind == OG_YAML_SCALAR && strstr(n->text, "${")) {
        og_diags_warn(d, n->src, "'${...}' is not replaced: the text is taken as it is");
    }
    for (int i = 0; n->kind == OG_YAML_SEQ && i < n->n; i++) {
        check_interpolation(n->items[i], d);
    }
    for (int i = 0; n->kind == OG_YAML_MAP && i < n->n; i++) {
        check_interpolation(n->pairs[i].value, d);
    }
}

static void check_file(og__overlaying *o, const og_yaml_node *root) {
    if (root->kind != OG_YAML_MAP) {
        og_diags_error(o->d, root->src, "an overlay is a map, not %s",
                       og_yaml_kind_name(root->kind));
        return;
    }
    for (int i = 0; i < root->n; i++) {
        const og_yaml_pair *p = &root->pairs[i];
        if (!strcmp(p->key, "platforms"))
            check_platforms(o, p);
        else
            og__pair_check(p, OG_SECTION_OVERLAY, false, o->d);
    }
    check_list(og_yaml_get(root, "stages"), o->d);
    check_interpolation(root, o->d);
}

/* The path a base_config means: relative to the folder of the file that names it. */
static const char *base_path(const og_yaml_node *base, og_arena *a) {
    const char *file = base->src.file, *slash = strrchr(file, '/');
    int dir = slash && base->text[0] != '/' ? (int)(slash - file) + 1 : 0;
    const char *path = og_arena_printf(a, "%.*s%s", dir, file, base->text);
    if (!path || exists(path)) return path;
    const char *with_end = og_arena_printf(a, "%s.yaml", path);
    return !with_end || exists(with_end) ? with_end : path;
}

static int cycle(og__overlaying *o, const og_yaml_node *base, int at, og_err *err) {
    og_str chain = OG_STR_INIT;
    for (int i = at; i < o->n; i++) og_str_addf(&chain, "%s -> ", o->ov->files[i]);
    og_str_add(&chain, o->ov->files[at]);
    og_diags_error(o->d, base->src, "base_config goes in a circle: %s",
                   chain.data ? chain.data : base->text);
    og_str_free(&chain);
    return og_err_at(err, OG_ESPEC, base->src, "base_config goes in a circle");
}

/* Read one file as the next layer. asked: the base_config that names it, or NULL. */
static int read_layer(og__overlaying *o, const char *path, const og_yaml_node *asked,
                      og_err *err) {
    og_err why = OG_ERR_INIT;
    const og_yaml_node *root;
    if (o->opts->asked) o->opts->asked(o->opts->asked_arg, path);
    int rc = og_yaml_load(path, o->a, o->d, &root, &why);
    if (rc == OG_ENOENT || rc == OG_EIO) {
        const char *full = absolute(path, o->a);
        og_diags_error(o->d, asked ? asked->src : (og_src){0},
                       "cannot read overlay '%s': %s", full ? full : path,
                       rc == OG_ENOENT ? "no such file" : why.msg);
        return og_err_at(err, rc, asked ? asked->src : (og_src){0},
                         "cannot read overlay '%s'", full ? full : path);
    }
    if (rc < 0) {
        if (err && !err->code) *err = why;
        return rc;
    }
    if (root->kind == OG_YAML_NULL) root = og_yaml_new_map(o->a, root->src, NULL, 0);
    if (!root) return no_memory(err);
    check_file(o, root);
    o->layers[o->n] = root;
    o->ov->files[o->n++] = path;
    o->ov->n_files = o->n;
    return 0;
}

/* 1: another layer was read, 0: the chain ends. */
static int read_base(og__overlaying *o, const char **real, og_err *err) {
    const og_yaml_node *base = og_yaml_get(o->layers[o->n - 1], "base_config");
    if (!base || base->kind != OG_YAML_SCALAR) return 0;
    if (o->n == OG_OVERLAY_MAX_BASES) {
        og_diags_error(o->d, base->src, "too many overlays in a chain (limit is %d)",
                       OG_OVERLAY_MAX_BASES);
        return og_err_at(err, OG_ELIMIT, base->src, "too many overlays in a chain");
    }
    const char *path = base_path(base, o->a);
    const char *canonical = path ? og__canonical(path, o->a) : NULL;
    if (!canonical) return no_memory(err);
    for (int i = 0; i < o->n; i++) {
        if (!strcmp(real[i], canonical)) return cycle(o, base, i, err);
    }
    real[o->n] = canonical;
    int rc = read_layer(o, path, base, err);
    return rc < 0 ? rc : 1;
}

static const char *overlay_path(og__overlaying *o) {
    const og_overlay_opts *opts = o->opts;
    if (exists(opts->path)) return og_arena_strdup(o->a, opts->path);
    for (int i = 0; i < opts->n_dirs && !strchr(opts->path, '/'); i++) {
        const char *path = og_arena_printf(o->a, "%s/%s", opts->dirs[i], opts->path);
        if (!path || exists(path)) return path;
        path = og_arena_printf(o->a, "%s.yaml", path);
        if (!path || exists(path)) return path;
    }
    return og_arena_strdup(o->a, opts->path);
}

int og__overlay_files(og__overlaying *o, og_err *err) {
    const char *real[OG_OVERLAY_MAX_BASES];
    if (!o->opts->path) {
        o->layers[0] = og_yaml_new_map(o->a, (og_src){0}, NULL, 0);
        o->n = 1;
        return o->layers[0] ? 0 : no_memory(err);
    }
    const char *path = overlay_path(o);
    real[0] = path ? og__canonical(path, o->a) : NULL;
    if (!real[0]) return no_memory(err);
    int rc = read_layer(o, path, NULL, err);
    if (rc < 0) return rc;
    do rc = read_base(o, real, err);
    while (rc > 0);
    return rc;
}
