#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "graph/spec/spec.h"

bool og__grow(void **list, int n, int *cap, size_t size) {
    if (n < *cap) return true;
    int more = *cap ? *cap * 2 : 8;
    void *grown = og_realloc(*list, (size_t)more * size);
    if (!grown) return false;
    *list = grown;
    *cap = more;
    return true;
}

bool og__items_add(og__items *l, const og_yaml_node *n) {
    if (!og__grow((void **)&l->list, l->n, &l->cap, sizeof *l->list)) return false;
    l->list[l->n++] = n;
    return true;
}

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

static bool has_end(const char *name) {
    size_t n = strlen(name);
    return (n > 5 && !strcmp(name + n - 5, ".yaml")) ||
           (n > 4 && !strcmp(name + n - 4, ".yml"));
}

/* Folder of a file with its `/`, as a length; 0: the working folder. */
static int folder_len(const char *file) {
    const char *slash = file ? strrchr(file, '/') : NULL;
    return slash ? (int)(slash - file) + 1 : 0;
}

const char *og__find_yaml(const char *name, const char *beside, const char *const *dirs,
                          int n_dirs, og_arena *a) {
    const char *end = has_end(name) ? "" : ".yaml";
    if (name[0] == '/') return og_arena_printf(a, "%s%s", name, end);
    const char *first = og_arena_printf(a, "%.*s%s%s", folder_len(beside),
                                        beside ? beside : "", name, end);
    if (!first || exists(first) || strchr(name, '/')) return first;
    for (int i = 0; i < n_dirs; i++) {
        const char *path = og_arena_printf(a, "%s/%s%s", dirs[i], name, end);
        if (!path || exists(path)) return path;
    }
    return first;
}

const char *og__canonical(const char *path, og_arena *a) {
    char buf[PATH_MAX];
    return og_arena_strdup(a, realpath(path, buf) ? buf : path);
}

bool og__pairs_set(og__pairs *m, const char *key, og_src src, const og_yaml_node *value) {
    for (int i = 0; i < m->n; i++) {
        if (strcmp(m->list[i].key, key)) continue;
        m->list[i] = (og_yaml_pair){m->list[i].key, src, value};
        return true;
    }
    if (!og__grow((void **)&m->list, m->n, &m->cap, sizeof *m->list)) return false;
    m->list[m->n++] = (og_yaml_pair){key, src, value};
    return true;
}

void og__pairs_remove(og__pairs *m, const char *key) {
    for (int i = 0; i < m->n; i++) {
        if (strcmp(m->list[i].key, key)) continue;
        memmove(m->list + i, m->list + i + 1, (size_t)(m->n - i - 1) * sizeof *m->list);
        m->n--;
        return;
    }
}

const og_yaml_node *og__pairs_get(const og__pairs *m, const char *key) {
    for (int i = 0; i < m->n; i++) {
        if (!strcmp(m->list[i].key, key)) return m->list[i].value;
    }
    return NULL;
}

void og__pairs_free(og__pairs *m) {
    og_free(m->list);
    *m = (og__pairs){0};
}

bool og__pairs_copy(og__pairs *m, const og_yaml_node *map) {
    for (int i = 0; map && map->kind == OG_YAML_MAP && i < map->n; i++) {
        if (!og__grow((void **)&m->list, m->n, &m->cap, sizeof *m->list)) return false;
        m->list[m->n++] = map->pairs[i];
    }
    return true;
}

typedef struct merging {
    bool keep_null;
    og_diags *d;
    og_arena *a;
} merging;

static bool merge_pair(og__pairs *m, const og_yaml_pair *p, const merging *how) {
    const og_yaml_node *below = og__pairs_get(m, p->key);
    bool removes = p->value->kind == OG_YAML_NULL && below && below->kind != OG_YAML_NULL;
    if (removes && !how->keep_null) {
        if (p->value->empty) {
            og_diags_warn(how->d, p->src, "an empty '%.60s' removes the one below",
                          p->key);
            og_diags_hint(how->d,
                          "it is set at %s:%d; write 'null' to say that it is meant",
                          below->src.file ? below->src.file : "?", below->src.line);
        }
        og__pairs_remove(m, p->key);
        return true;
    }
    const og_yaml_node *merged =
        og__merge(below, p->value, how->keep_null, how->d, how->a);
    return merged && og__pairs_set(m, p->key, p->src, merged);
}

const og_yaml_node *og__merge(const og_yaml_node *base, const og_yaml_node *over,
                              bool keep_null, og_diags *d, og_arena *a) {
    if (!base || !over) return base ? base : over;
    if (base->kind != OG_YAML_MAP || over->kind != OG_YAML_MAP) return over;
    merging how = {keep_null, d, a};
    og__pairs m = {0};
    bool ok = og__pairs_copy(&m, base);
    for (int i = 0; i < over->n && ok; i++) ok = merge_pair(&m, &over->pairs[i], &how);
    const og_yaml_node *out = ok ? og_yaml_new_map(a, over->src, m.list, m.n) : NULL;
    og__pairs_free(&m);
    return out;
}
