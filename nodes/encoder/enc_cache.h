/* Results by content hash, bounded in bytes; the one that was not used for longest goes
 * first. All memory is taken at create and none afterwards: values live in chains of small
 * blocks, so any mix of sizes fits. Not thread safe; the owner is a node.
 *
 *     og__enc_cache *c;
 *     rc = og__enc_cache_create(16 << 20, &c, err);
 *     og__enc_cache_put(c, key, data, bytes);
 *     if (og__enc_cache_find(c, key) == bytes) og__enc_cache_get(c, key, data);
 *     og__enc_cache_destroy(c);
 */
#ifndef OG_ENC_CACHE_H
#define OG_ENC_CACHE_H

#include <stddef.h>

#include "kernels/base/err.h"

#define OG__ENC_KEY 32

typedef struct og__enc_cache og__enc_cache;

/* max_bytes bounds everything the cache takes; too little for one block is an empty cache
 * that keeps nothing. */
OG_MUST_CHECK int og__enc_cache_create(size_t max_bytes, og__enc_cache **out, og_err *err);
void og__enc_cache_destroy(og__enc_cache *c); /* NULL is fine */
/* Bytes of the value of key, 0 when it is not there. */
size_t og__enc_cache_find(const og__enc_cache *c, const unsigned char key[OG__ENC_KEY]);
/* Copy the value to data, which has room for it, and count it as used now. */
void og__enc_cache_get(og__enc_cache *c, const unsigned char key[OG__ENC_KEY], void *data);
/* Keep a copy, in place of older values if need be. A value that can never fit, an empty one
 * and a key that is there already change nothing. */
void og__enc_cache_put(og__enc_cache *c, const unsigned char key[OG__ENC_KEY],
                       const void *data, size_t bytes);
size_t og__enc_cache_bytes(const og__enc_cache *c);   /* in use, by whole blocks */
size_t og__enc_cache_entries(const og__enc_cache *c);

#endif
