#include "nodes/recipe.h"
#include "kernels/base/alloc.h"

#include <stdatomic.h>
#include <string.h>

/* One block: the count that threads share, the public struct, then its arrays. */
typedef struct recipe_block {
    atomic_int refs;
    og_recipe pub;
    _Alignas(8) unsigned char data[];
} recipe_block;

static recipe_block *block_of(og_recipe *r) {
    return (recipe_block *)(void *)((unsigned char *)r - offsetof(recipe_block, pub));
}

static size_t up8(size_t n) {
    return (n + 7) & ~(size_t)7;
}

/* Copy n bytes to *at and step behind them. */
static const void *put(unsigned char **at, const void *from, size_t n) {
    void *p = *at;
    if (n) memcpy(p, from, n);
    *at += up8(n);
    return p;
}

og_recipe *og_recipe_create(const og_recipe *shape, int32_t n_open_terms) {
    int32_t n_terms = shape->n_rows ? shape->off[shape->n_rows] : 0;
    int32_t none = 0;
    const int32_t *offsets = shape->n_rows ? shape->off : &none;
    size_t off = ((size_t)shape->n_rows + 1) * sizeof *shape->off;
    size_t terms = (size_t)n_terms * sizeof *shape->terms;
    size_t open = (size_t)shape->n_open * sizeof *shape->open;
    size_t open_terms = (size_t)n_open_terms * sizeof *shape->open_terms;
    size_t spans = (size_t)shape->n_spans * sizeof *shape->spans;

    recipe_block *b = og_malloc(sizeof *b + up8(off) + up8(terms) + up8(open) +
                                up8(open_terms) + up8(spans));
    if (!b) return NULL;
    atomic_init(&b->refs, 1);
    b->pub = *shape;
    unsigned char *at = b->data;
    b->pub.off = put(&at, offsets, off);
    b->pub.terms = put(&at, shape->terms, terms);
    b->pub.open = put(&at, shape->open, open);
    b->pub.open_terms = put(&at, shape->open_terms, open_terms);
    b->pub.spans = put(&at, shape->spans, spans);
    b->pub.refs = 0;
    return &b->pub;
}

og_recipe *og_recipe_ref(og_recipe *r) {
    atomic_fetch_add_explicit(&block_of(r)->refs, 1, memory_order_relaxed);
    return r;
}

void og_recipe_unref(og_recipe *r) {
    if (!r) return;
    recipe_block *b = block_of(r);
    if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1) og_free(b);
}
