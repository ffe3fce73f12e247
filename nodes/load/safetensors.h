/* Weights: named tensors over safetensors files, and strict binding to them.
 *
 * og_weights is one set of tensors over one file or over the shards of an index. Files
 * are mapped read-only and used in place, so a tensor may be misaligned for its dtype
 * (og_tensor.data says how to read it) and keeps the dtype that the file gave it.
 * A set is immutable once open: any thread may read it; it is reference counted and the
 * views live as long as the set. A file that somebody truncates while it is mapped kills
 * the process (SIGBUS), as with any mapping: checkpoints are replaced by rename.
 *
 * A dummy set has no files: who binds a tensor creates it, from the seed and its name.
 *
 *     og_weights *w = NULL;
 *     if (og_weights_open(dir, &w, err) < 0) return err->code;
 *     og_bind *b = og_bind_create(w, "talker.model.");
 *     og_bind_get(b, &m->norm, og_ne1(width), "norm.weight");
 *     for (int i = 0; i < n_layers; i++)
 *         og_bind_get(b, &m->layer[i].q_proj, og_ne2(q_dim, width),
 *                     "layers.%d.self_attn.q_proj.weight", i);
 *     rc = og_bind_finish(b, err);        // lists everything missing or mis-shaped
 *     og_bind_free(b);
 */
#ifndef OG_LOAD_SAFETENSORS_H
#define OG_LOAD_SAFETENSORS_H

#include <stdint.h>

#include "kernels/base/err.h"
#include "kernels/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits on what a header may ask for. They stand in the messages. */
#define OG_ST_MAX_HEADER (100u * 1000u * 1000u) /* bytes of JSON; the format's own */
#define OG_ST_MAX_DEPTH 8                       /* nesting of that JSON; 3 is in use */
#define OG_ST_MAX_TENSORS (1u << 20)
#define OG_ST_MAX_NAME 1024
#define OG_ST_MAX_SHARDS 4096

typedef struct og_weights og_weights;

/* Open a .safetensors file, an index (*.safetensors.index.json), or a folder that holds
 * model.safetensors, model.safetensors.index.json or their diffusion_pytorch_model twins
 * (the index wins over the file). Checked before use: lengths, JSON, duplicates, dtypes,
 * shapes, overlaps, holes, truncation; for an index that every shard exists (before any
 * is opened) and that each tensor lies where the index says. OG_ENOENT when the folder
 * has no weights, OG_EFORMAT for a bad file; *out is then NULL. */
int og_weights_open(const char *path, og_weights **out, og_err *err) OG_MUST_CHECK;

/* A set without files: tensors of floating dtype (OG_F32, OG_BF16 or OG_F16) come into
 * being when they are bound. Values depend on seed, name and element index alone: about
 * N(0, 0.02); 1 for weights of rank 1 (norms) and for cluster counts; 0 for biases and
 * the logarithmic alpha and beta of snakes. Binding from several threads is safe. */
int og_weights_dummy(uint64_t seed, og_dtype dtype, og_weights **out,
                     og_err *err) OG_MUST_CHECK;
int og_weights_is_dummy(const og_weights *w);

og_weights *og_weights_ref(og_weights *w); /* one more owner; returns w */
void og_weights_close(og_weights *w);      /* one owner less; NULL is fine */

/* View of a tensor, NULL when there is none of that name. Dense; a scalar comes as rank 1
 * of one element. Never creates: a dummy set has nothing to find. */
const og_tensor *og_weights_find(const og_weights *w, const char *name);
/* All tensors, sorted by name (a dummy set has none to list: 0). */
size_t og_weights_count(const og_weights *w);
const char *og_weights_name(const og_weights *w, size_t i);
const og_tensor *og_weights_at(const og_weights *w, size_t i);
/* Value of a __metadata__ key (of the first shard that has it), NULL when absent. */
const char *og_weights_metadata(const og_weights *w, const char *key);
/* Things that are odd but harmless, for the log: a tensor that no index entry names. */
size_t og_weights_warnings(const og_weights *w);
const char *og_weights_warning(const og_weights *w, size_t i);
/* Hash over names, dtypes, shapes, offsets, file sizes and a few samples of the bytes; of
 * a dummy set over its seed and dtype. */
uint64_t og_weights_fingerprint(const og_weights *w);
/* Read the files into memory now rather than at the first touch. Best effort. */
void og_weights_populate(const og_weights *w);
/* Give the file pages of t back, after the caller made its own copy. Best effort; the
 * tensor stays readable. */
void og_weights_drop_pages(const og_weights *w, const og_tensor *t);

/* A shape to ask for; -1 accepts any length in that dimension. */
typedef struct og_ne {
    int rank;
    int64_t ne[OG_MAX_RANK];
} og_ne;
static inline og_ne og_ne1(int64_t a) {
    return (og_ne){1, {a}};
}
static inline og_ne og_ne2(int64_t a, int64_t b) {
    return (og_ne){2, {a, b}};
}
static inline og_ne og_ne3(int64_t a, int64_t b, int64_t c) {
    return (og_ne){3, {a, b, c}};
}
static inline og_ne og_ne4(int64_t a, int64_t b, int64_t c, int64_t d) {
    return (og_ne){4, {a, b, c, d}};
}
static inline og_ne og_ne5(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e) {
    return (og_ne){5, {a, b, c, d, e}};
}

/* A binder collects what one module wants of a set, below a prefix ("" or one that ends
 * in a dot), and reports all faults at once. Single thread. It borrows the set. */
typedef struct og_bind og_bind;

/* NULL when out of memory; every other call takes NULL, and og_bind_finish(NULL) then
 * reports it, so that callers check once. */
og_bind *og_bind_create(og_weights *w, const char *prefix);

/* Bind prefix + formatted name: *out becomes the view, or rank 0 after a fault, which is
 * recorded. The dtype must be F32, F16 or BF16. Returns 0, or the fault's code for those
 * who want to stop early; nobody has to look. */
int og_bind_get(og_bind *b, og_tensor *out, og_ne shape, const char *fmt, ...)
    OG_PRINTF(4, 5);
/* The same where absence is legal (*out has rank 0 then). A dummy set creates it: ask the
 * config first where a part may be left out. */
int og_bind_opt(og_bind *b, og_tensor *out, og_ne shape, const char *fmt, ...)
    OG_PRINTF(4, 5);
/* The same for one exact dtype of any kind. */
int og_bind_as(og_bind *b, og_tensor *out, og_dtype dtype, og_ne shape, const char *fmt,
               ...) OG_PRINTF(5, 6);
/* Whether the set has such a tensor (0 in a dummy set). */
int og_bind_has(og_bind *b, const char *fmt, ...) OG_PRINTF(2, 3);
/* Names below prefix + formatted text belong to somebody else and are not extra. */
void og_bind_ignore(og_bind *b, const char *fmt, ...) OG_PRINTF(2, 3);

/* 0 when all was found. Else OG_EFORMAT and one message with every missing, mis-shaped
 * and mistyped tensor, as far as it fits, then "and N more". */
int og_bind_finish(og_bind *b, og_err *err) OG_MUST_CHECK;
/* After finish: tensors below the prefix that nobody asked for; a warning, no error. */
size_t og_bind_extra_count(const og_bind *b);
const char *og_bind_extra(const og_bind *b, size_t i);
/* One line about them with the first few names, "" when there are none. */
const char *og_bind_extra_text(const og_bind *b);
void og_bind_free(og_bind *b);

#ifdef __cplusplus
}
#endif
#endif
