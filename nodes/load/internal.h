/* What the files of this room share and nobody else sees. */
#ifndef OG_LOAD_INTERNAL_H
#define OG_LOAD_INTERNAL_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/base/alloc.h"
#include "kernels/base/err.h"
#include "kernels/tensor.h"
#include "nodes/load/safetensors.h"

/* og_json_parse that calls a repeated key of the outermost object "duplicate TOP KEY". */
json_t *og__json_parse(const char *name, const char *text, size_t len, int max_depth,
                       const char *top, og_err *err);

/* Running FNV-1a hash for fingerprints. */
#define OG__HASH_INIT 0xcbf29ce484222325u
uint64_t og__hash(uint64_t h, const void *data, size_t n);
uint64_t og__hash_str(uint64_t h, const char *s); /* with its length */
uint64_t og__hash_u64(uint64_t h, uint64_t v);

/* One tensor of a set. shard is the index of its file. */
typedef struct og__entry {
    const char *name; /* in the set's arena */
    og_tensor t;
    uint32_t shard;
} og__entry;

/* One mapped file. Entries' names live in the arena it was opened with. */
typedef struct og__st_file {
    const char *path;
    void *map;
    size_t size;
    og__entry *entries; /* og_free */
    size_t n;
    json_t *metadata; /* the __metadata__ object or NULL */
    uint64_t hash;
} og__st_file;

/* Map and check one safetensors file. On failure *f holds nothing. */
int og__st_open(const char *path, og_arena *arena, og__st_file *f, og_err *err);
void og__st_close(og__st_file *f);

/* The binder's door to a set: the entry of a name, or -1. */
long og__weights_index(const og_weights *w, const char *name);
/* Create (or find again) a tensor of a dummy set. OG_ESHAPE for another shape. */
int og__weights_make(og_weights *w, const char *name, og_dtype dtype, og_ne shape,
                     og_tensor *out, og_err *err);
og_dtype og__weights_dummy_dtype(const og_weights *w);

#endif
