#include <string.h>

#include "graph/spec/pipeline_parts.h"
#include "graph/spec/schema.h"
#include "graph/spec/spec.h"

typedef struct layers {
    const char *files[OG_PIPELINE_MAX_BASES];
    const char *real[OG_PIPELINE_MAX_BASES]; /* canonical, for cycles */
    const og_yaml_node *trees[OG_PIPELINE_MAX_BASES];
    int n;
} layers;

typedef struct loader {
    og_arena *a;
    og_diags *d;
    const char *const *dirs;
    int n_dirs;
    layers l;
} loader;

static int no_memory(og_err *err) {
    return og_err_set(err, OG_ENOMEM, "out of memory");
}

static bool is_path(const char *name) {
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 5 && !strcmp(name + n - 5, ".yaml"));
}

static int check_root(loader *l, const char *file, const og_yaml_node *tree,
                      og_err *err) {
    if (tree->kind == OG_YAML_MAP) return 0;
    og_diags_error(l->d, tree->src, "a pipeline is a map, not %s",
                   og_yaml_kind_name(tree->kind));
    return og_err_at(err, OG_ESPEC, tree->src, "%s is not a pipeline", file);
}

static int cycle(loader *l, og_src src, const char *real, int at, og_err *err) {
    og_str chain = OG_STR_INIT;
    for (int i = at; i < l->l.n; i++) og_str_addf(&chain, "%s -> ", l->l.files[i]);
    og_str_add(&chain, l->l.files[at]);
    og_diags_error(l->d, src, "pipelines are based on each other: %s",
                   chain.data ? chain.data : real);
    og_str_free(&chain);
    return og_err_at(err, OG_ESPEC, src, "pipelines are based on each other");
}

/* Load the base that the topmost layer names. 1: there is one, 0: none. */
static int load_base(loader *l, og_err *err) {
    const og_yaml_node *top = l->l.trees[l->l.n - 1];
    const og_yaml_node *base = og_yaml_get(top, "base");
    if (!base || base->kind == OG_YAML_NULL) return 0;
    const char *name;
    if (!og_yaml_string(base, &name, l->d)) {
        return og_err_at(err, OG_ESPEC, base->src, "'base' is not a name");
    }
    if (l->l.n == OG_PIPELINE_MAX_BASES) {
        og_diags_error(l->d, base->src, "too many bases (limit is %d)",
                       OG_PIPELINE_MAX_BASES);
        return og_err_at(err, OG_ELIMIT, base->src, "too many bases");
    }
    const char *path = og__find_yaml(name, base->src.file, l->dirs, l->n_dirs, l->a);
    const char *real = path ? og__canonical(path, l->a) : NULL;
    if (!real) return no_memory(err);
    for (int i = 0; i < l->l.n; i++) {
        if (!strcmp(l->l.real[i], real)) return cycle(l, base->src, real, i, err);
    }
    const og_yaml_node *tree;
    og_err why = OG_ERR_INIT;
    int rc = og_yaml_load(path, l->a, l->d, &tree, &why);
    if (rc == OG_ENOENT || rc == OG_EIO) {
        og_diags_error(l->d, base->src, "base '%s': %s", name, why.msg);
        return og_err_at(err, rc, base->src, "base '%s': %s", name, why.msg);
    }
    if (rc == 0) rc = check_root(l, path, tree, &why);
    if (rc < 0) {
        if (err && !err->code) *err = why;
        return rc;
    }
    int i = l->l.n++;
    l->l.files[i] = path;
    l->l.real[i] = real;
    l->l.trees[i] = tree;
    return 1;
}

static const og_yaml_node *merge_layers(loader *l) {
    static const og_yaml_node none = {
        .kind = OG_YAML_MAP, .size = 1, .height = 1, .text = ""};
    const og_yaml_node *merged = &none;
    for (int i = l->l.n - 1; i >= 0 && merged; i--) {
        merged = og__pipeline_merge(merged, l->l.trees[i], l->a, l->d);
    }
    return merged;
}

void *og__room(og__reading *r, int n, size_t size) {
    void *p = og_arena_alloc(r->a, (size_t)(n > 0 ? n : 1) * size);
    if (!p) r->oom = true;
    return p;
}

const og_yaml_node *og__given(const og_yaml_node *map, const char *key) {
    const og_yaml_node *n = og_yaml_get(map, key);
    return n && n->kind != OG_YAML_NULL ? n : NULL;
}

static const char *const *copy_bases(og__reading *r, const layers *l) {
    const char **out = og__room(r, l->n, sizeof *out);
    for (int i = 1; out && i < l->n; i++) out[i - 1] = l->files[i];
    return out;
}

static void read_match(og__reading *r) {
    const og_yaml_node *map = og_yaml_get(r->p->tree, "match");
    int n = map && map->kind == OG_YAML_MAP ? map->n : 0;
    og_spec_match *out = og__room(r, n, sizeof *out);
    for (int i = 0; out && i < n; i++) {
        const og_yaml_pair *pair = &map->pairs[i];
        if (pair->value->kind == OG_YAML_NULL) continue;
        if (pair->value->kind != OG_YAML_SCALAR) {
            og_diags_error(r->d, pair->value->src, "'match' compares with texts, not %s",
                           og_yaml_kind_name(pair->value->kind));
            continue;
        }
        bool present = !pair->value->quoted && !strcmp(pair->value->text, "present");
        out[r->p->n_match++] =
            (og_spec_match){pair->key, present ? NULL : pair->value->text, pair->src};
    }
    r->p->match = out;
}

static void read_all(og__reading *r) {
    const og_yaml_node *name = og_yaml_get(r->p->tree, "pipeline");
    r->p->name = name->text;
    r->p->src = name->src;
    if (!og_name_ok(name->text, strlen(name->text))) {
        og_diags_error(r->d, name->src, "'%.60s' is no legal name", name->text);
    }
    read_match(r);
    og__read_request(r);
    if (!r->oom) og__read_stages(r);
    if (!r->oom) og__read_edges(r);
    if (!r->oom) og__read_routes(r);
    if (!r->oom) og__check_pipeline(r);
}

static int finish(loader *l, og_pipeline **out, og_err *err) {
    int before = og_diags_errors(l->d);
    const og_yaml_node *tree = merge_layers(l);
    if (og_diags_errors(l->d) > before) return og_diags_err(l->d, err);
    og_pipeline *p = tree ? og_arena_alloc(l->a, sizeof *p) : NULL;
    if (!p) return no_memory(err);
    og_keys_check(tree, OG_SECTION_PIPELINE, l->d);
    if (og_diags_errors(l->d) > before) return og_diags_err(l->d, err);
    *p = (og_pipeline){
        .file = l->l.files[0], .tree = tree, .arena = l->a, .n_bases = l->l.n - 1};
    og__reading r = {.p = p, .a = l->a, .d = l->d};
    p->bases = copy_bases(&r, &l->l);
    if (!r.oom) read_all(&r);
    if (r.oom) return no_memory(err);
    if (og_diags_errors(l->d) > before) return og_diags_err(l->d, err);
    *out = p;
    return 0;
}

/* Take the first layer, follow its bases, read. Takes the arena. */
static int load(loader *l, const char *file, const og_yaml_node *tree, og_pipeline **out,
                og_err *err) {
    int rc = check_root(l, file, tree, err);
    l->l.files[0] = file;
    l->l.real[0] = og__canonical(file, l->a);
    l->l.trees[0] = tree;
    l->l.n = 1;
    if (rc == 0 && !l->l.real[0]) rc = no_memory(err);
    int more = rc < 0 ? rc : 1;
    while (more > 0) more = load_base(l, err);
    return more < 0 ? more : finish(l, out, err);
}

int og_pipeline_load(const char *path_or_name, const char *const *dirs, int n_dirs,
                     og_diags *diags, og_pipeline **out, og_err *err) {
    *out = NULL;
    loader l = {.a = og_arena_create(), .d = diags, .dirs = dirs, .n_dirs = n_dirs};
    if (!l.a) return no_memory(err);
    const og_yaml_node *tree = NULL;
    const char *path = is_path(path_or_name)
                           ? og_arena_strdup(l.a, path_or_name)
                           : og__find_yaml(path_or_name, NULL, dirs, n_dirs, l.a);
    int rc = path ? og_yaml_load(path, l.a, diags, &tree, err) : no_memory(err);
    if (rc == OG_ENOENT || rc == OG_EIO) {
        og_diags_error(diags, (og_src){0}, "%s", err && err->code ? err->msg : path);
    }
    if (rc == 0) rc = load(&l, path, tree, out, err);
    if (rc < 0) og_arena_destroy(l.a);
    return rc;
}

int og_pipeline_parse(const char *name, const char *text, size_t len,
                      const char *const *dirs, int n_dirs, og_diags *diags,
                      og_pipeline **out, og_err *err) {
    *out = NULL;
    loader l = {.a = og_arena_create(), .d = diags, .dirs = dirs, .n_dirs = n_dirs};
    if (!l.a) return no_memory(err);
    const og_yaml_node *tree;
    int rc = og_yaml_parse(name, text, len, l.a, diags, &tree, err);
    const char *file = rc == 0 ? og_arena_strdup(l.a, name) : NULL;
    if (rc == 0) rc = file ? load(&l, file, tree, out, err) : no_memory(err);
    if (rc < 0) og_arena_destroy(l.a);
    return rc;
}

void og_pipeline_destroy(og_pipeline *p) {
    if (p) og_arena_destroy(p->arena);
}

int og_pipeline_stage(const og_pipeline *p, const char *name) {
    for (int i = 0; i < p->n_stages; i++) {
        if (!strcmp(p->stages[i].name, name)) return i;
    }
    return -1;
}

int og_pipeline_field(const og_pipeline *p, const char *name) {
    for (int i = 0; i < p->n_request; i++) {
        if (!strcmp(p->request[i].name, name)) return i;
    }
    return -1;
}

int og_pipeline_phase(const og_pipeline *p, const char *name) {
    for (int i = 0; i < p->n_phases; i++) {
        if (!strcmp(p->phases[i].name, name)) return i;
    }
    return -1;
}

const char *og_pipeline_near_stage(const og_pipeline *p, const char *name) {
    const char *names[OG_PIPELINE_MAX_STAGES];
    for (int i = 0; i < p->n_stages; i++) names[i] = p->stages[i].name;
    return og_near(name, names, p->n_stages);
}
