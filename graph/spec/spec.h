/* Helpers of this room, not for others. */
#ifndef OG_SPEC_SPEC_H
#define OG_SPEC_SPEC_H

#include <stdbool.h>
#include <stddef.h>

#include "graph/spec/tree.h"

/* Make room for item n of a growing array. False: out of memory, the array is kept. */
bool og__grow(void **list, int n, int *cap, size_t size);

/* A path found by name: beside `beside` (a file, or NULL), then in dirs, with `.yaml`
 * added when the name has no such end. A name with a `/` is a path, relative to the
 * folder of `beside`. The string is in the arena; NULL: out of memory. When nothing is
 * there the first candidate is returned, so that an error can name it. */
const char *og__find_yaml(const char *name, const char *beside, const char *const *dirs,
                          int n_dirs, og_arena *a);
/* Canonical path, or path itself where that cannot be told. NULL: out of memory. */
const char *og__canonical(const char *path, og_arena *a);

/* over on base: maps recursively, lists replaced, null removes. Where there is nothing to
 * remove the null stays, so that it can act on a lower layer later; with keep_null it
 * always does. d, unless NULL, is warned of keys removed by an empty value. Either node
 * may be NULL. NULL: out of memory. */
const og_yaml_node *og__merge(const og_yaml_node *base, const og_yaml_node *over,
                              bool keep_null, og_diags *d, og_arena *a);

/* A growing list of nodes in place of a list that is being built; free list. */
typedef struct og__items {
    const og_yaml_node **list;
    int n, cap;
} og__items;

/* False: out of memory. */
bool og__items_add(og__items *l, const og_yaml_node *n);

/* A growing list of pairs in place of a map that is being built. */
typedef struct og__pairs {
    og_yaml_pair *list;
    int n, cap;
} og__pairs;

/* Append the pairs of a map (NULL is fine); set or replace a key, keeping its place.
 * False: out of memory. */
bool og__pairs_copy(og__pairs *m, const og_yaml_node *map);
bool og__pairs_set(og__pairs *m, const char *key, og_src src, const og_yaml_node *value);
void og__pairs_remove(og__pairs *m, const char *key);
const og_yaml_node *og__pairs_get(const og__pairs *m, const char *key);
void og__pairs_free(og__pairs *m);

#endif
