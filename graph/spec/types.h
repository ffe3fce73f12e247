/* Types of ports and request fields: kind, dims, list, optional.
 *
 *     type = base ["?"]            base = kind ["[" dim {"," dim} "]"] | "list(" base ")"
 *     dim  = number | "$" key | "$" stage "." key | "_"      (_ and no brackets: free)
 *
 * `codes[$num_code_groups]`, `audio[24000]?`, `list(image)`, `hidden[$thinker.width]`.
 * A `$key` without a stage belongs to the arch that declares the type. Values are plain
 * structs; their strings live in the arena they were parsed into. Unifying two types is
 * the compiler's business.
 *
 *     og_type t;
 *     if (og_type_parse("codes[16]?", src, arena, diags, &t)) ...
 */
#ifndef OG_SPEC_TYPES_H
#define OG_SPEC_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/spec/tree.h"

#ifdef __cplusplus
extern "C" {
#endif

/* name, word, most dims it takes */
#define OG_TYPE_KINDS(X)                                                                 \
    X(OG_TYPE_TEXT, "text", 0)                                                           \
    X(OG_TYPE_BOOL, "bool", 0)                                                           \
    X(OG_TYPE_INT, "int", 0)                                                             \
    X(OG_TYPE_FLOAT, "float", 0)                                                         \
    X(OG_TYPE_SIZE, "size", 0)                                                           \
    X(OG_TYPE_MESSAGES, "messages", 0)                                                   \
    X(OG_TYPE_IMAGE, "image", 0)                                                         \
    X(OG_TYPE_VIDEO, "video", 0)                                                         \
    X(OG_TYPE_AUDIO, "audio", 1)                                                         \
    X(OG_TYPE_TOKENS, "tokens", 0)                                                       \
    X(OG_TYPE_CODES, "codes", 1)                                                         \
    X(OG_TYPE_HIDDEN, "hidden", 2)                                                       \
    X(OG_TYPE_EMBEDS, "embeds", 2)                                                       \
    X(OG_TYPE_MEL, "mel", 1)                                                             \
    X(OG_TYPE_LATENT, "latent", 1)                                                       \
    X(OG_TYPE_KV, "kv", 0)

#define OG_TYPE_ENUM(name, word, dims) name,
typedef enum og_type_kind { OG_TYPE_KINDS(OG_TYPE_ENUM) OG_TYPE_KIND_COUNT } og_type_kind;
#undef OG_TYPE_ENUM

/* A key of the checkpoint's configuration: `$talker.spk_id` is {"talker", "spk_id"}. */
typedef struct og_cfg_ref {
    const char *scope; /* stage name, "root", "index"; NULL for a bare `$key` */
    const char *key;   /* may itself hold dots */
    og_src src;
} og_cfg_ref;

typedef enum og_dim_kind { OG_DIM_FREE, OG_DIM_CONST, OG_DIM_NAME } og_dim_kind;

typedef struct og_dim {
    og_dim_kind kind;
    int64_t value;  /* OG_DIM_CONST: >= 1 */
    og_cfg_ref ref; /* OG_DIM_NAME */
} og_dim;

#define OG_TYPE_MAX_DIMS 2

typedef struct og_type {
    og_type_kind kind;
    bool list;     /* list(...) of it */
    bool optional; /* `?` */
    int n_dims;    /* 0: all free */
    og_dim dims[OG_TYPE_MAX_DIMS];
    og_src src;
} og_type;

/* Parse text that stands at src (errors name the column inside it). False: see diags. */
bool og_type_parse(const char *text, og_src src, og_arena *a, og_diags *diags,
                   og_type *out);
/* Append the type as it would be written. */
void og_type_print(const og_type *t, og_str *out);
const char *og_type_kind_name(og_type_kind kind);
/* Whether a request field may have this kind. */
bool og_type_is_field(og_type_kind kind);

/* Whether text begins with `$` and so means a configuration value. */
bool og_cfg_is_ref(const char *text);
/* Parse `$scope.key`, or `$key` where bare is true. False: see diags. */
bool og_cfg_ref_parse(const char *text, og_src src, bool bare, og_arena *a,
                      og_diags *diags, og_cfg_ref *out);

/* Names of stages, fields, phases, lanes, ports: letters, digits, `_` and `-`, not
 * beginning with a digit or `-`, at most OG_NAME_MAX bytes. */
#define OG_NAME_MAX 64
bool og_name_ok(const char *text, size_t len);

#ifdef __cplusplus
}
#endif
#endif
