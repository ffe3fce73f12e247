/* The pool of KV pages of one ar_decoder: which page holds which positions of which slot.
 *
 * A page is free or held by a number of slots. Admission reserves the worst case of a job,
 * and a page is only taken out of a reservation, so a job that was admitted never runs out.
 * Page 0 is the trash page and never handed out. One table of pages serves all layers; the
 * pages of layer l are rows of that layer's own k and v.
 */
#ifndef OG_AR_KV_H
#define OG_AR_KV_H

#include "nodes/ar/ar.h"

typedef struct ar_pool {
    int32_t n_pages;   /* with the trash page */
    int32_t max_pages; /* of one slot */
    int32_t n_free;
    int32_t reserved; /* promised to slots and not yet taken; never more than n_free */
    int32_t *free;    /* [n_pages], a stack */
    int32_t *refs;    /* [n_pages] slots that hold the page */
    int32_t *table;   /* [n_slots, max_pages], in device memory */
    int32_t *held;    /* [n_slots] pages in the table */
    int32_t *promise; /* [n_slots] pages reserved and not yet taken */
    int n_layers;
    og_kv *layers;
    og_device *dev;
    size_t bytes; /* of all k and v */
} ar_pool;

/* Bytes of one page over all layers, as f32. */
size_t og__ar_page_bytes(int layers, int kv_heads, int head_dim);
int32_t og__ar_pages(int64_t positions);

/* A pool of n_pages (and the trash page) for slots of at most max_positions. A failed init
 * leaves a pool that og__ar_pool_free takes. */
int og__ar_pool_init(ar_pool *p, og_device *dev, int layers, int kv_heads, int head_dim,
                     int n_slots, int64_t max_positions, int32_t n_pages, og_err *err);
void og__ar_pool_free(ar_pool *p);

/* Promise pages to a slot. OG_EBUSY when they are not there now. */
int og__ar_pool_reserve(ar_pool *p, int slot, int32_t pages);
/* Make sure that positions [0, n) of the slot have pages, within its promise. */
int og__ar_pool_extend(ar_pool *p, int slot, int64_t n);
/* Drop the slot's pages and what is left of its promise. */
void og__ar_pool_drop(ar_pool *p, int slot);
static inline int32_t og__ar_pool_used(const ar_pool *p) {
    return p->n_pages - 1 - p->n_free + p->reserved;
}

#endif
