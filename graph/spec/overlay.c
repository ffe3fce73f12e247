#include "graph/spec/overlay.h"

#include <stdlib.h>
#include <string.h>

#include "graph/spec/overlay_parts.h"
#include "graph/spec/spec.h"

static int no_memory(og_err *err) {
    return og_err_set(err, OG_ENOMEM, "out of memory");
}

static bool too_big(og__overlaying *o, const og_yaml_node *n) {
    if (n->size <= OG_YAML_MAX_NODES) return false;
    og_diags_error(o->d, n->src, "too many nodes after merging (limit is %d)",
                   OG_YAML_MAX_NODES);
    return true;
}

static const og_yaml_node *without_base(og__overlaying *o, const og_yaml_node *root) {
    og__pairs m = {0};
    bool ok = og__pairs_copy(&m, root);
    og__pairs_remove(&m, "base_config");
    const og_yaml_node *out = ok ? og_yaml_new_map(o->a, root->src, m.list, m.n) : NULL;
    og__pairs_free(&m);
    return out;
}

/* Merge the layers, the last first; fold: with the nested blocks of each folded. */
static const og_yaml_node *merge_layers(og__overlaying *o, bool fold) {
    const og_yaml_node *merged = NULL;
    for (int i = o->n - 1; i >= 0; i--) {
        const og_yaml_node *layer = without_base(o, o->layers[i]);
        if (layer && fold) layer = og__overlay_fold(layer, o->a);
        if (!layer) return NULL;
        merged =
            merged ? og__overlay_merge(merged, layer, fold ? NULL : o->d, o->a) : layer;
        if (!merged) return NULL;
    }
    return merged;
}

static int build(og__overlaying *o, og_err *err) {
    int before = og_diags_errors(o->d);
    int rc = og__overlay_files(o, err);
    if (rc < 0) return rc;
    if (og_diags_errors(o->d) > before) return og_diags_err(o->d, err);
    const og_yaml_node *folded = merge_layers(o, true);
    o->ov->merged = folded ? merge_layers(o, false) : NULL;
    if (!o->ov->merged) return no_memory(err);
    if (too_big(o, o->ov->merged) || too_big(o, folded)) {
        og_diags_err(o->d, err);
        return OG_ELIMIT;
    }
    og__overlay_resolve(o, folded);
    if (!o->oom) og__overlay_flags(o);
    if (!o->oom) og__overlay_check_links(o);
    if (o->oom) return no_memory(err);
    return og_diags_errors(o->d) > before ? og_diags_err(o->d, err) : 0;
}

int og_overlay_load(const og_overlay_opts *opts, og_diags *diags, og_overlay **out,
                    og_err *err) {
    *out = NULL;
    og_arena *a = og_arena_create();
    og_overlay *ov = a ? og_arena_alloc(a, sizeof *ov) : NULL;
    if (!ov) {
        og_arena_destroy(a);
        return no_memory(err);
    }
    ov->arena = a;
    og__overlaying o = {.opts = opts, .a = a, .d = diags, .ov = ov};
    int rc = build(&o, err);
    if (rc < 0)
        og_arena_destroy(a);
    else
        *out = ov;
    return rc;
}

void og_overlay_destroy(og_overlay *ov) {
    if (ov) og_arena_destroy(ov->arena);
}

int og_overlay_n_files(const og_overlay *ov) {
    return ov->n_files;
}

const char *og_overlay_file(const og_overlay *ov, int i) {
    return i >= 0 && i < ov->n_files ? ov->files[i] : NULL;
}

const og_yaml_node *og_overlay_merged(const og_overlay *ov) {
    return ov->merged;
}

const og_yaml_node *og_overlay_platform(const og_overlay *ov) {
    return ov->platform;
}

const og_yaml_node *og_overlay_root(const og_overlay *ov) {
    return ov->root;
}

int og_overlay_n_stages(const og_overlay *ov) {
    return ov->n_stages;
}

const char *og_overlay_stage_name(const og_overlay *ov, int i) {
    return i >= 0 && i < ov->n_stages ? ov->stages[i].name : NULL;
}

const og_yaml_node *og_overlay_stage_at(const og_overlay *ov, int i) {
    return i >= 0 && i < ov->n_stages ? ov->stages[i].values : NULL;
}

const og_yaml_node *og_overlay_stage(const og_overlay *ov, const char *name) {
    for (int i = 0; i < ov->n_stages; i++) {
        if (!strcmp(ov->stages[i].name, name)) return ov->stages[i].values;
    }
    return NULL;
}

const og_yaml_node *og_overlay_get(const og_overlay *ov, const char *stage,
                                   const char *path) {
    const og_yaml_node *n =
        og_yaml_path(stage ? og_overlay_stage(ov, stage) : ov->root, path);
    return n && n->kind != OG_YAML_NULL ? n : NULL;
}

int64_t og_overlay_int(const og_overlay *ov, const char *stage, const char *path,
                       int64_t def) {
    const og_yaml_node *n = og_overlay_get(ov, stage, path);
    if (n) og_yaml_int(n, &def, NULL);
    return def;
}

double og_overlay_float(const og_overlay *ov, const char *stage, const char *path,
                        double def) {
    const og_yaml_node *n = og_overlay_get(ov, stage, path);
    if (n) og_yaml_float(n, &def, NULL);
    return def;
}

bool og_overlay_bool(const og_overlay *ov, const char *stage, const char *path,
                     bool def) {
    const og_yaml_node *n = og_overlay_get(ov, stage, path);
    if (n) og_yaml_bool(n, &def, NULL);
    return def;
}

const char *og_overlay_string(const og_overlay *ov, const char *stage, const char *path,
                              const char *def) {
    const og_yaml_node *n = og_overlay_get(ov, stage, path);
    if (n) og_yaml_string(n, &def, NULL);
    return def;
}

int og_overlay_devices(const og_overlay *ov, const char *stage, int *ids, int max) {
    const char *p = og_overlay_string(ov, stage, "devices", "");
    int n = 0;
    while (*p && n < max) {
        char *end;
        long id = strtol(p, &end, 10);
        if (end == p || id < 0 || id > 65535) break;
        ids[n++] = (int)id;
        p = end + strspn(end, " ");
        if (*p != ',') break;
        p++;
    }
    return n;
}
