/* Where the memory of a node lies: weights on the device, and memory that both sides address.
 *
 * A store owns what a network keeps on its device. Weights are bound as views of the file and
 * then placed: a host device leaves them where they are, any other gets a copy, one for each
 * tensor however often it is named. Tensors that are computed at load time are made in host
 * memory, filled, and placed in the same way; the host memory goes once there is a copy.
 *
 *     og_store s;
 *     og_store_init(&s, cfg->exec);
 *     og_tensor f = og_tensor_1d(OG_F32, n, NULL);
 *     float *v = og_store_make(&s, &f, err);      // fill v, then
 *     rc = og_store_place(&s, &f, err);           // f lies on the device
 *     rc = og_store_place(&s, &m->q_proj, err);   // a bound weight
 *     ...
 *     og_store_free(&s);
 *
 * Single thread, the executor's. The device must outlive the store.
 */
#ifndef OG_BLOCKS_PLACE_H
#define OG_BLOCKS_PLACE_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The place of an exec's scratch, which is that of all tensors that its ops take. */
og_place og_place_of(og_exec *ex);
/* 1 when ops work in host memory, where a result is there once the op has returned. */
int og_place_is_host(og_exec *ex);
/* t, said to lie where the exec's ops expect it. */
og_tensor og_place_on(og_exec *ex, og_tensor t);

/* Zeroed memory that the host writes and ops read (or the other way round) under one address:
 * the device's own on a host device, pinned elsewhere. Kernels read it over the bus: for what
 * is read once, or seldom. */
OG_MUST_CHECK int og_shared_alloc(og_exec *ex, size_t bytes, void **out, og_err *err);
void og_shared_free(og_exec *ex, void *p); /* NULL is fine */

typedef struct og_stored {
    void *host;       /* what was placed; of no use after it was freed */
    int own;          /* host is ours */
    og_tensor placed; /* rank 0: not placed, or nothing to do */
} og_stored;

typedef struct og_store {
    og_device *dev;
    og_place place;
    og_stored *list;
    int n, cap;
} og_store;

void og_store_init(og_store *s, og_exec *ex);
/* Zeroed host memory for a dense tensor of t's shape; also in t->data. NULL after an error. */
void *og_store_make(og_store *s, og_tensor *t, og_err *err);
/* Bring t to the device. An absent tensor, and one that is there already, stay as they are. */
OG_MUST_CHECK int og_store_place(og_store *s, og_tensor *t, og_err *err);
void og_store_free(og_store *s); /* a zeroed store is fine */

#ifdef __cplusplus
}
#endif
#endif
