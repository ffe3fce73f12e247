/* The pool of KV pages of one ar_decoder: which page holds which positions of which slot.
 *
 * A page is in one of three states:
 *
 *     FREE    on the stack of free pages
 *     HELD    by refs slots, which all read it; only a page with one holder is written
 *     CACHED  by no slot, but its content has a key and may be wanted again
 *
 * A full page can be given a key that stands for all rows up to its end (ar_prefix.c). Once
 * its rows have been computed it is listed, and from then on immutable: slots with the same
 * rows share it. When its last holder drops it, a listed page becomes CACHED, any other
 * FREE. Where no page is free the least recently used CACHED page is taken, and admission
 * counts CACHED pages as free.
 *
 * Admission reserves the worst case of a job, and a page is only taken out of a reservation,
 * so a job that was admitted never runs out. Page 0 is the trash page and never handed out;
 * in the lists 0 stands for none. One table of pages serves all layers; the pages of layer l
 * are rows of that layer's own k and v.
 */
#ifndef OG_AR_KV_H
#define OG_AR_KV_H

#include "nodes/ar/ar.h"

#define AR_KEY 32 /* bytes of the key of a page */

/* Where listed pages are found: chains of those of one bucket, and the CACHED ones by use. */
typedef struct ar_index {
    int32_t n_buckets; /* a power of two; 0: this pool keeps nothing */
    int32_t n_cached;
    int32_t newest, oldest;
    int32_t *bucket;              /* [n_buckets] */
    int32_t *next, *newer, *older; /* [n_pages] */
    unsigned char *listed;        /* [n_pages] */
    unsigned char *key;           /* [n_pages, AR_KEY] */
    int32_t *named, *done;        /* [n_slots] pages with a key, and of them the listed */
} ar_index;

typedef struct ar_pool {
    int32_t n_pages;   /* with the trash page */
    int32_t max_pages; /* of one slot */
    int32_t n_free;
    int32_t reserved; /* promised to slots and not yet taken; never more than is available */
    int32_t *free;    /* [n_pages], a stack */
    int32_t *refs;    /* [n_pages] slots that hold the page */
    int32_t *table;   /* [n_slots, max_pages], shared with the device */
    size_t table_bytes;
    og_tensor fixed; /* a table that changes no more, on the device; rank 0: it may change */
    int32_t *held;    /* [n_slots] pages in the table */
    int32_t *promise; /* [n_slots] pages reserved and not yet taken */
    int n_layers;
    og_kv *layers;
    og_exec *ex;
    size_t bytes; /* of all k and v */
    ar_index index;
} ar_pool;

/* Bytes of one page over all layers, as f32. */
size_t og__ar_page_bytes(int layers, int kv_heads, int head_dim);
int32_t og__ar_pages(int64_t positions);

/* A pool of n_pages (and the trash page) for slots of at most max_positions. A failed init
 * leaves a pool that og__ar_pool_free takes. */
int og__ar_pool_init(ar_pool *p, og_exec *ex, int layers, int kv_heads, int head_dim,
                     int n_slots, int64_t max_positions, int32_t n_pages, og_err *err);
void og__ar_pool_free(ar_pool *p);
/* Where ops find the table; after init it is the shared one. */
void og__ar_pool_show(ar_pool *p, const int32_t *table);
/* The pages of all slots stay as they are from here on: the device gets a table of its own. */
int og__ar_pool_fix(ar_pool *p, int n_slots, og_err *err);

/* Promise pages to a slot. OG_EBUSY when they are not there now. */
int og__ar_pool_reserve(ar_pool *p, int slot, int32_t pages);
/* Make sure that positions [0, n) of the slot have pages, within its promise. */
int og__ar_pool_extend(ar_pool *p, int slot, int64_t n);
/* Drop the slot's pages and what is left of its promise: listed pages are kept. */
void og__ar_pool_drop(ar_pool *p, int slot);
/* Pages that could be promised now. */
static inline int32_t og__ar_pool_available(const ar_pool *p) {
    return p->n_free + p->index.n_cached - p->reserved;
}
static inline int32_t og__ar_pool_used(const ar_pool *p) {
    return p->n_pages - 1 - og__ar_pool_available(p);
}

/* Keep full pages by key from here on. Called once, behind init. */
int og__ar_pool_keep(ar_pool *p, int n_slots, og_err *err);
/* The key of the slot's first page that has none; the page is in its table and full once the
 * rows of this step have run. */
void og__ar_pool_name(ar_pool *p, int slot, const unsigned char key[AR_KEY]);
/* List the slot's named pages; their rows have been run. */
void og__ar_pool_list(ar_pool *p, int slot);
/* The listed page of that key, 0 when there is none. */
int32_t og__ar_pool_find(const ar_pool *p, const unsigned char key[AR_KEY]);
/* Let a listed page be the slot's next one, out of its promise. */
int og__ar_pool_share(ar_pool *p, int slot, int32_t page);

#endif
