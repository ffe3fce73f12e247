#include "nodes/ar/ar_kv.h"
#include "kernels/base/alloc.h"

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
        kv->k = kv->v = og_tensor_nd(OG_F32, 4, ne, NULL);
        size_t bytes = og_tensor_bytes(&kv->k);
        int rc = og_device_alloc(p->dev, bytes, &kv->k.data, err);
        if (!rc) rc = og_device_alloc(p->dev, bytes, &kv->v.data, err);
        if (rc < 0) return rc;
        kv->table = p->table;
        kv->max_pages = p->max_pages;
        kv->page = OG_AR_PAGE;
        p->bytes += 2 * bytes;
    }
    return 0;
}

int og__ar_pool_init(ar_pool *p, og_device *dev, int layers, int kv_heads, int head_dim,
                     int n_slots, int64_t max_positions, int32_t n_pages, og_err *err) {
    *p = (ar_pool){.dev = dev, .n_pages = n_pages + 1, .n_layers = layers};
    p->max_pages = og__ar_pages(max_positions);
    p->free = og_calloc((size_t)p->n_pages, sizeof *p->free);
    p->refs = og_calloc((size_t)p->n_pages, sizeof *p->refs);
    p->held = og_calloc((size_t)n_slots, sizeof *p->held);
    p->promise = og_calloc((size_t)n_slots, sizeof *p->promise);
    p->layers = og_calloc((size_t)layers, sizeof *p->layers);
    if (!p->free || !p->refs || !p->held || !p->promise || !p->layers)
        return og_err_set(err, OG_ENOMEM, "no memory for the tables of %d KV pages", n_pages);
    void *table;
    size_t bytes = (size_t)n_slots * (size_t)p->max_pages * sizeof *p->table;
    int rc = og_device_alloc(dev, bytes, &table, err);
    if (rc < 0) return rc;
    p->table = table;
    for (int32_t i = n_pages; i >= 1; i--) p->free[p->n_free++] = i;
    return init_layers(p, kv_heads, head_dim, err);
}

void og__ar_pool_free(ar_pool *p) {
    for (int l = 0; p->layers && l < p->n_layers; l++) {
        og_device_free(p->dev, p->layers[l].k.data);
        og_device_free(p->dev, p->layers[l].v.data);
    }
    if (p->table) og_device_free(p->dev, p->table);
    og_free(p->layers);
    og_free(p->promise);
    og_free(p->held);
    og_free(p->refs);
    og_free(p->free);
    *p = (ar_pool){0};
}

int og__ar_pool_reserve(ar_pool *p, int slot, int32_t pages) {
    if (pages > p->n_free - p->reserved) return OG_EBUSY;
    p->promise[slot] = pages;
    p->reserved += pages;
    return 0;
}

int og__ar_pool_extend(ar_pool *p, int slot, int64_t n) {
    int32_t *table = p->table + (size_t)slot * (size_t)p->max_pages;
    for (int32_t want = og__ar_pages(n); p->held[slot] < want; p->held[slot]++) {
        if (!p->promise[slot]) return OG_EINTERNAL;
        int32_t page = p->free[--p->n_free];
        p->refs[page] = 1;
        table[p->held[slot]] = page;
        p->promise[slot]--;
        p->reserved--;
    }
    return 0;
}

void og__ar_pool_drop(ar_pool *p, int slot) {
    int32_t *table = p->table + (size_t)slot * (size_t)p->max_pages;
    for (int32_t i = 0; i < p->held[slot]; i++) {
        int32_t page = table[i];
        if (--p->refs[page] == 0) p->free[p->n_free++] = page;
        table[i] = 0;
    }
    p->held[slot] = 0;
    p->reserved -= p->promise[slot];
    p->promise[slot] = 0;
}
