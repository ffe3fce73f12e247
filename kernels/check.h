/* Checks that the op wrappers share.
 *
 * Names and tensors travel as pairs, ended by NULL; a NULL tensor or one of rank 0 is an
 * optional one that is absent and passes.
 *
 *     CHECK(og__usable(ex, "clamp", "y", y, "x", x, NULL));
 *     if (!og__same_shape(y, x))
 *         return og__eshape(ex, "clamp", "shapes differ", "y", y, "x", x, NULL);
 */
#ifndef OG_KERNELS_CHECK_H
#define OG_KERNELS_CHECK_H

#include "kernels/exec.h"

#define OG__CHECK(call)                                                                  \
    do {                                                                                 \
        int rc_ = (call);                                                                \
        if (rc_ < 0) return rc_;                                                         \
    } while (0)

/* A tensor seen as rows of contiguous elements, ld elements apart. */
typedef struct og__mat {
    char *p;
    og_dtype dtype;
    int64_t rows, cols, ld;
} og__mat;

/* View t as rows of `cols` elements: its innermost dimensions must be contiguous and
 * multiply to cols, the outer ones must lie at one stride. Returns 1 when it can be. */
int og__mat_as(const og_tensor *t, int64_t cols, og__mat *m);
/* The same with the last dimension as columns. The tensor has been checked. */
og__mat og__mat_of(const og_tensor *t);

int og__same_shape(const og_tensor *a, const og_tensor *b);
int og__is_weight(og_dtype t); /* f32, bf16, f16 */
/* t is f32 and can be seen as rows of its last dimension. */
int og__is_f32_rows(const og_tensor *t);
/* t is a dense vector [n] of a weight's dtype. */
int og__is_vector(const og_tensor *t, int64_t n);

/* Ranks are legal, places are the exec's, and outside of MEASURE all data is there. */
int og__usable(og_exec *ex, const char *op, ...) __attribute__((sentinel));
/* "op: why: name f32[2,3], name ..." as OG_ESHAPE. */
int og__eshape(og_exec *ex, const char *op, const char *why, ...)
    __attribute__((sentinel));

/* rows has n rows; on the host cu is ascending from 0 to n and slots are below n_slots
 * (n_slots < 0: any that is not negative). */
int og__check_rows(og_exec *ex, const char *op, const og_rows *rows, int64_t n,
                   int64_t n_slots);
int og__check_kv(og_exec *ex, const char *op, const og_kv *kv, int64_t n_kv_heads,
                 int64_t head_dim);

/* Page of a position of a slot. */
static inline int32_t og__kv_page(const og_kv *kv, int32_t slot, int64_t pos) {
    int64_t i = pos / kv->page;
    if (kv->ring > 0) i %= kv->ring;
    return kv->table[(int64_t)slot * kv->max_pages + i];
}

#endif
