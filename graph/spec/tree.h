/* A YAML file as a tree in which every node knows where it stands.
 *
 * Scalars stay text: what `off` or `0` means is decided by the field that reads it, never
 * by its spelling, so a name may be `no` and a device list `0`. Only null (nothing, `~`,
 * `null`) is a kind of its own. Order of keys is kept. Nodes are immutable after parsing
 * and live in the arena they were parsed into; aliases share their anchor's node, so a
 * tree is a DAG, but its size is bounded as if it were written out.
 *
 * Refused, each with a position: duplicate keys (both positions), keys that are not
 * scalars, more than one document, tags other than !!str, an alias inside its own anchor,
 * NUL characters, text that is not UTF-8, and whatever goes over a limit below.
 *
 *     og_arena *a = og_arena_create();
 *     const og_yaml_node *root;
 *     if (og_yaml_load(path, a, diags, &root, &err) < 0) ...
 *     const og_yaml_node *n = og_yaml_get(root, "max_num_seqs");
 *     int64_t v;
 *     if (n && og_yaml_int(n, &v, diags)) use(v);
 */
#ifndef OG_SPEC_TREE_H
#define OG_SPEC_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/spec/diag.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_YAML_MAX_BYTES (4u << 20) /* of one file */
#define OG_YAML_MAX_NODES 50000      /* of one tree, aliases written out */
#define OG_YAML_MAX_DEPTH 64
#define OG_YAML_MAX_ANCHORS 256

typedef enum og_yaml_kind {
    OG_YAML_NULL,
    OG_YAML_SCALAR,
    OG_YAML_SEQ,
    OG_YAML_MAP,
} og_yaml_kind;

typedef struct og_yaml_node og_yaml_node;

typedef struct og_yaml_pair {
    const char *key;
    og_src src; /* of the key */
    const og_yaml_node *value;
} og_yaml_pair;

struct og_yaml_node {
    og_yaml_kind kind;
    og_src src;
    bool quoted;      /* scalar in quotes or a block: text whatever it looks like */
    bool empty;       /* null because nothing was written, not `null` or `~` */
    int n;            /* items or pairs */
    int size, height; /* nodes and depth of the subtree, aliases written out */
    const char *text; /* scalar: UTF-8 without NUL; otherwise "" */
    const og_yaml_node *const *items; /* seq */
    const og_yaml_pair *pairs;        /* map; keys are unique */
};

/* Parse len bytes of text that came from a file called name (copied into the arena).
 * An empty document is a null root. On failure *root is NULL and diags says why.
 * Errors: OG_ESPEC, OG_ELIMIT, OG_ENOMEM. */
int og_yaml_parse(const char *name, const char *text, size_t len, og_arena *a,
                  og_diags *diags, const og_yaml_node **root, og_err *err) OG_MUST_CHECK;
/* The same from a file. Errors also: OG_ENOENT, OG_EIO. */
int og_yaml_load(const char *path, og_arena *a, og_diags *diags,
                 const og_yaml_node **root, og_err *err) OG_MUST_CHECK;

/* Value of a key, NULL when there is none or the node is not a map (NULL is fine). */
const og_yaml_node *og_yaml_get(const og_yaml_node *map, const char *key);
const og_yaml_pair *og_yaml_pair_of(const og_yaml_node *map, const char *key);
/* Value at a dotted path of keys, "default_sampling_params.top_k". */
const og_yaml_node *og_yaml_path(const og_yaml_node *map, const char *path);

/* Read a scalar as a type. On success true; otherwise false, one error in diags, and *out
 * is untouched. Quotes do not matter to bool, int and float: "64" is a legal 64.
 *   bool   true false yes no on off y n 1 0, in any case
 *   int    decimal with optional sign and single underscores between digits, 0x and 0o
 *          forms, and 4096.0; 64 bits
 *   float  a decimal with or without exponent, or .inf, -.inf, .nan
 *   string any scalar, as it is written
 */
bool og_yaml_bool(const og_yaml_node *n, bool *out, og_diags *diags);
bool og_yaml_int(const og_yaml_node *n, int64_t *out, og_diags *diags);
bool og_yaml_float(const og_yaml_node *n, double *out, og_diags *diags);
bool og_yaml_string(const og_yaml_node *n, const char **out, og_diags *diags);

/* Where the first character of a scalar's text stands (behind the quote). */
og_src og_yaml_text_src(const og_yaml_node *n);
/* What a plain scalar looks like without a field: 'n'ull is a kind, so 'b'ool (true and
 * false only), 'i'nt, 'f'loat or 's'tring. Quoted: 's'. */
char og_yaml_guess(const og_yaml_node *n);

/* "a map", "a list", "a scalar", "null": for messages. */
const char *og_yaml_kind_name(og_yaml_kind kind);

/* Builders, for merged trees. All return NULL when out of memory. The pair and item
 * arrays are copied into the arena; size and height are worked out. */
og_yaml_node *og_yaml_new_null(og_arena *a, og_src src);
og_yaml_node *og_yaml_new_scalar(og_arena *a, og_src src, const char *text, bool quoted);
og_yaml_node *og_yaml_new_seq(og_arena *a, og_src src, const og_yaml_node *const *items,
                              int n);
og_yaml_node *og_yaml_new_map(og_arena *a, og_src src, const og_yaml_pair *pairs, int n);

#ifdef __cplusplus
}
#endif
#endif
