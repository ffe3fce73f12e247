#include "nodes/ar/ar_kv.h"
#include "kernels/base/alloc.h"
#include "nodes/blocks/place.h"

#include <string.h>

size_t og__ar_page_bytes(int layers, int kv_heads, int head_dim) {
    return (size_t)layers * 2 * OG_AR_PAGE * (size_t)kv_heads * (size_t)head_dim *
           sizeof(float);
}

int32_t og__ar_pages(int64_t positions) {
    return (int32_t)((positions + OG_AR_PAGE - 1) / OG_AR_PAGE);
}

static int init_layers(ar_pool *p, int kv_heads, int head_dim, og_err *err) {
    int64_t ne[4] = {p->n_pages, OG_AR_PAGE, kv_heads, head_dim};
    for (int l = 0; l < p->n_layers; l++) {
        og_kv *kv = &p->layers[l];
        kv->k = kv->v = og_place_on(p->ex, og_tensor_nd(OG_F32, 4, ne, NULL));
        size_t bytes = og_tensor_bytes(&kv->k);
        int rc = og_device_alloc(og_exec_device(p->ex), bytes, &kv->k.data, err);
        if (!rc) rc = og_device_alloc(og_exec_device(p->ex), bytes, &kv->v.data, err);
        if (rc < 0) return rc;
        kv->table = p->table;
        kv->max_pages = p->max_pages;
        kv->page = OG_AR_PAGE;
        p->bytes += 2 * bytes;
    }
    return 0;
}

int og__ar_pool_init(ar_pool *p, og_exec *ex, int layers, int kv_heads, int head_dim,
                     int n_slots, int64_t max_positions, int32_t n_pages, og_err *err) {
    *p = (ar_pool){.ex = ex, .n_pages = n_pages + 1, .n_layers = layers};
    p->max_pages = og__ar_pages(max_positions);
    p->free = og_calloc((size_t)p->n_pages, sizeof *p->free);
    p->refs = og_calloc((size_t)p->n_pages, sizeof *p->refs);
    p->held = og_calloc((size_t)n_slots, sizeof *p->held);
    p->promise = og_calloc((size_t)n_slots, sizeof *p->promise);
    p->layers = og_calloc((size_t)layers, sizeof *p->layers);
    if (!p->free || !p->refs || !p->held || !p->promise || !p->layers)
        return og_err_set(err, OG_ENOMEM, "no memory for the tables of %d KV pages", n_pages);
    void *table;
    p->table_bytes = (size_t)n_slots * (size_t)p->max_pages * sizeof *p->table;
    int rc = og_shared_alloc(ex, p->table_bytes, &table, err);
    if (rc < 0) return rc;
    p->table = table;
    for (int32_t i = n_pages; i >= 1; i--) p->free[p->n_free++] = i;
    return init_layers(p, kv_heads, head_dim, err);
}

void og__ar_pool_show(ar_pool *p, const int32_t *table) {
    for (int l = 0; l < p->n_layers; l++) p->layers[l].table = table;
}

int og__ar_pool_fix(ar_pool *p, int n_slots, og_err *err) {
    og_tensor t = og_tensor_2d(OG_I32, n_slots, p->max_pages, p->table);
    int rc = og_device_place(og_exec_device(p->ex), &t, &p->fixed, err);
    if (rc < 0) {
        p->fixed = (og_tensor){0};
        return rc;
    }
    og__ar_pool_show(p, p->fixed.data);
    return 0;
}

int og__ar_pool_keep(ar_pool *p, int n_slots, og_err *err) {
    ar_index *x = &p->index;
    size_t pages = (size_t)p->n_pages;
    int32_t buckets = 1;
    while (buckets < p->n_pages) buckets *= 2;
    x->bucket = og_calloc((size_t)buckets, sizeof *x->bucket);
    x->next = og_calloc(pages, sizeof *x->next);
    x->newer = og_calloc(pages, sizeof *x->newer);
    x->older = og_calloc(pages, sizeof *x->older);
    x->listed = og_calloc(pages, 1);
    x->key = og_calloc(pages, AR_KEY);
    x->named = og_calloc((size_t)n_slots, sizeof *x->named);
    x->done = og_calloc((size_t)n_slots, sizeof *x->done);
    if (!x->bucket || !x->next || !x->newer || !x->older || !x->listed || !x->key ||
        !x->named || !x->done)
        return og_err_set(err, OG_ENOMEM, "no memory for an index of %d KV pages",
                          p->n_pages - 1);
    x->n_buckets = buckets;
    return 0;
}

static void free_index(ar_index *x) {
    og_free(x->done);
    og_free(x->named);
    og_free(x->key);
    og_free(x->listed);
    og_free(x->older);
    og_free(x->newer);
    og_free(x->next);
    og_free(x->bucket);
}

void og__ar_pool_free(ar_pool *p) {
    free_index(&p->index);
    for (int l = 0; p->layers && l < p->n_layers; l++) {
        og_device_free(og_exec_device(p->ex), p->layers[l].k.data);
        og_device_free(og_exec_device(p->ex), p->layers[l].v.data);
    }
    if (og_tensor_present(&p->fixed))
        og_device_unplace(og_exec_device(p->ex), &p->fixed);
    if (p->table) og_shared_free(p->ex, p->table);
    og_free(p->layers);
    og_free(p->promise);
    og_free(p->held);
    og_free(p->refs);
    og_free(p->free);
    *p = (ar_pool){0};
}

int og__ar_pool_reserve(ar_pool *p, int slot, int32_t pages) {
    if (pages > og__ar_pool_available(p)) return OG_EBUSY;
    p->promise[slot] = pages;
    p->reserved += pages;
    return 0;
}

/* ---- pages by key ------------------------------------------------------------------- */

static unsigned char *key_of(const ar_pool *p, int32_t page) {
    return p->index.key + (size_t)page * AR_KEY;
}

/* Keys are hashes: any bits of them do. */
static int32_t *bucket_of(const ar_pool *p, const unsigned char *key) {
    uint32_t h;
    memcpy(&h, key, sizeof h);
    return &p->index.bucket[h & (uint32_t)(p->index.n_buckets - 1)];
}

int32_t og__ar_pool_find(const ar_pool *p, const unsigned char key[AR_KEY]) {
    if (!p->index.n_buckets) return 0;
    int32_t page = *bucket_of(p, key);
    while (page && memcmp(key_of(p, page), key, AR_KEY) != 0) page = p->index.next[page];
    return page;
}

static void list_page(ar_pool *p, int32_t page) {
    if (og__ar_pool_find(p, key_of(p, page))) return; /* another page holds the same rows */
    int32_t *head = bucket_of(p, key_of(p, page));
    p->index.next[page] = *head;
    *head = page;
    p->index.listed[page] = 1;
}

static void unlist_page(ar_pool *p, int32_t page) {
    int32_t *at = bucket_of(p, key_of(p, page));
    while (*at != page) at = &p->index.next[*at];
    *at = p->index.next[page];
    p->index.listed[page] = 0;
}

static void to_cached(ar_pool *p, int32_t page) {
    ar_index *x = &p->index;
    x->newer[page] = 0;
    x->older[page] = x->newest;
    if (x->newest) x->newer[x->newest] = page;
    else x->oldest = page;
    x->newest = page;
    x->n_cached++;
}

static void from_cached(ar_pool *p, int32_t page) {
    ar_index *x = &p->index;
    int32_t newer = x->newer[page], older = x->older[page];
    if (newer) x->older[newer] = older;
    else x->newest = older;
    if (older) x->newer[older] = newer;
    else x->oldest = newer;
    x->n_cached--;
}

static int32_t take_page(ar_pool *p) {
    if (p->n_free) return p->free[--p->n_free];
    int32_t page = p->index.oldest;
    from_cached(p, page);
    unlist_page(p, page);
    return page;
}

/* ---- pages of a slot ----------------------------------------------------------------- */

static int32_t *table_of(ar_pool *p, int slot) {
    return p->table + (size_t)slot * (size_t)p->max_pages;
}

static void put_page(ar_pool *p, int slot, int32_t page) {
    p->refs[page]++;
    table_of(p, slot)[p->held[slot]++] = page;
    p->promise[slot]--;
    p->reserved--;
}

int og__ar_pool_share(ar_pool *p, int slot, int32_t page) {
    if (!p->promise[slot]) return OG_EINTERNAL;
    if (!p->refs[page]) from_cached(p, page);
    put_page(p, slot, page);
    p->index.named[slot] = p->index.done[slot] = p->held[slot];
    return 0;
}

void og__ar_pool_name(ar_pool *p, int slot, const unsigned char key[AR_KEY]) {
    int32_t page = table_of(p, slot)[p->index.named[slot]++];
    memcpy(key_of(p, page), key, AR_KEY);
}

void og__ar_pool_list(ar_pool *p, int slot) {
    ar_index *x = &p->index;
    while (x->done[slot] < x->named[slot])
        list_page(p, table_of(p, slot)[x->done[slot]++]);
}

int og__ar_pool_extend(ar_pool *p, int slot, int64_t n) {
    for (int32_t want = og__ar_pages(n); p->held[slot] < want;) {
        if (!p->promise[slot]) return OG_EINTERNAL;
        put_page(p, slot, take_page(p));
    }
    return 0;
}

/* From the last page to the first: a page is of use only while all before it are there, so
 * the ends of prefixes have to go first. */
void og__ar_pool_drop(ar_pool *p, int slot) {
    int32_t *table = table_of(p, slot);
    for (int32_t i = p->held[slot] - 1; i >= 0; i--) {
        int32_t page = table[i];
        table[i] = 0;
        if (--p->refs[page]) continue;
        if (p->index.n_buckets && p->index.listed[page]) to_cached(p, page);
        else p->free[p->n_free++] = page;
    }
    p->held[slot] = 0;
    if (p->index.n_buckets) p->index.named[slot] = p->index.done[slot] = 0;
    p->reserved -= p->promise[slot];
    p->promise[slot] = 0;
}
