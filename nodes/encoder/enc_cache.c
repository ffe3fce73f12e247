#include "nodes/encoder/enc_cache.h"

#include <stdint.h>
#include <string.h>

#include "kernels/base/alloc.h"

enum { BLOCK = 1024, NONE = -1, MAX_BLOCKS = 1 << 28 };

/* An entry takes at least one block, so there are as many entries as blocks, and entry i can
 * be known by its first block. The lists are indices: newer and older order the entries by
 * use, next chains those of one bucket, link the blocks of a value or the free ones. */
typedef struct entry {
    unsigned char key[OG__ENC_KEY];
    size_t bytes;
    int32_t newer, older, next;
} entry;

struct og__enc_cache {
    int32_t n_blocks, n_buckets; /* buckets: a power of two */
    int32_t free, n_free;
    int32_t newest, oldest;
    size_t entries;
    entry *entry;
    int32_t *link, *bucket;
    unsigned char *data;
};

/* What a block costs with its share of the tables. */
static size_t block_cost(void) {
    return BLOCK + sizeof(entry) + 3 * sizeof(int32_t);
}

static int32_t buckets_for(int32_t blocks) {
    int32_t n = 1;
    while (n < blocks) n *= 2;
    return n;
}

void og__enc_cache_destroy(og__enc_cache *c) {
    if (!c) return;
    og_free(c->data);
    og_free(c->bucket);
    og_free(c->link);
    og_free(c->entry);
    og_free(c);
}

int og__enc_cache_create(size_t max_bytes, og__enc_cache **out, og_err *err) {
    *out = NULL;
    size_t blocks = max_bytes / block_cost();
    if (blocks > MAX_BLOCKS) blocks = MAX_BLOCKS;
    og__enc_cache *c = og_calloc(1, sizeof *c);
    if (!c) return og_err_set(err, OG_ENOMEM, "no memory for a cache");
    c->n_blocks = c->n_free = (int32_t)blocks;
    c->newest = c->oldest = c->free = NONE;
    if (blocks) {
        c->n_buckets = buckets_for(c->n_blocks);
        c->entry = og_malloc(blocks * sizeof *c->entry);
        c->link = og_malloc(blocks * sizeof *c->link);
        c->bucket = og_malloc((size_t)c->n_buckets * sizeof *c->bucket);
        c->data = og_malloc(blocks * BLOCK); /* touched only as far as it fills */
        if (!c->entry || !c->link || !c->bucket || !c->data) {
            og__enc_cache_destroy(c);
            return og_err_set(err, OG_ENOMEM, "no memory for a cache of %zu bytes",
                              max_bytes);
        }
        for (int32_t i = 0; i < c->n_buckets; i++) c->bucket[i] = NONE;
        for (int32_t i = 0; i < c->n_blocks; i++) c->link[i] = i + 1;
        c->link[c->n_blocks - 1] = NONE;
        c->free = 0;
    }
    *out = c;
    return 0;
}

/* The head of the chain that key belongs to. Keys are hashes: any bits of them do. */
static int32_t *bucket_of(const og__enc_cache *c, const unsigned char *key) {
    uint32_t h;
    memcpy(&h, key, sizeof h);
    return &c->bucket[h & (uint32_t)(c->n_buckets - 1)];
}

static int32_t lookup(const og__enc_cache *c, const unsigned char *key) {
    if (!c->n_blocks) return NONE;
    int32_t i = *bucket_of(c, key);
    while (i != NONE && memcmp(c->entry[i].key, key, OG__ENC_KEY) != 0) i = c->entry[i].next;
    return i;
}

static void unlink_use(og__enc_cache *c, int32_t i) {
    entry *e = &c->entry[i];
    if (e->newer == NONE) c->newest = e->older;
    else c->entry[e->newer].older = e->older;
    if (e->older == NONE) c->oldest = e->newer;
    else c->entry[e->older].newer = e->newer;
}

static void link_newest(og__enc_cache *c, int32_t i) {
    c->entry[i].newer = NONE;
    c->entry[i].older = c->newest;
    if (c->newest == NONE) c->oldest = i;
    else c->entry[c->newest].newer = i;
    c->newest = i;
}

static void forget_oldest(og__enc_cache *c) {
    int32_t i = c->oldest, *at = bucket_of(c, c->entry[i].key);
    while (*at != i) at = &c->entry[*at].next;
    *at = c->entry[i].next;
    unlink_use(c, i);
    for (int32_t b = i, next; b != NONE; b = next) {
        next = c->link[b];
        c->link[b] = c->free;
        c->free = b;
        c->n_free++;
    }
    c->entries--;
}

size_t og__enc_cache_find(const og__enc_cache *c, const unsigned char key[OG__ENC_KEY]) {
    int32_t i = lookup(c, key);
    return i == NONE ? 0 : c->entry[i].bytes;
}

void og__enc_cache_get(og__enc_cache *c, const unsigned char key[OG__ENC_KEY], void *data) {
    int32_t i = lookup(c, key);
    if (i == NONE) return;
    unsigned char *to = data;
    size_t left = c->entry[i].bytes;
    for (int32_t b = i; b != NONE; b = c->link[b]) {
        size_t n = left < BLOCK ? left : BLOCK;
        memcpy(to, c->data + (size_t)b * BLOCK, n);
        to += n;
        left -= n;
    }
    unlink_use(c, i);
    link_newest(c, i);
}

void og__enc_cache_put(og__enc_cache *c, const unsigned char key[OG__ENC_KEY],
                       const void *data, size_t bytes) {
    size_t blocks = bytes / BLOCK + (bytes % BLOCK != 0);
    if (!bytes || blocks > (size_t)c->n_blocks || lookup(c, key) != NONE) return;
    while ((size_t)c->n_free < blocks) forget_oldest(c);

    const unsigned char *from = data;
    int32_t first = c->free, last = first;
    for (int32_t b = first; bytes > 0; b = c->link[b]) {
        size_t n = bytes < BLOCK ? bytes : BLOCK;
        memcpy(c->data + (size_t)b * BLOCK, from, n);
        from += n;
        bytes -= n;
        last = b;
    }
    c->free = c->link[last];
    c->link[last] = NONE;
    c->n_free -= (int32_t)blocks;

    entry *e = &c->entry[first];
    int32_t *head = bucket_of(c, key);
    memcpy(e->key, key, OG__ENC_KEY);
    e->bytes = (size_t)(from - (const unsigned char *)data);
    e->next = *head;
    *head = first;
    link_newest(c, first);
    c->entries++;
}

size_t og__enc_cache_bytes(const og__enc_cache *c) {
    return (size_t)(c->n_blocks - c->n_free) * block_cost();
}

size_t og__enc_cache_entries(const og__enc_cache *c) {
    return c->entries;
}
