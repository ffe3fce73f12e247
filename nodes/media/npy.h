/* NumPy's .npy files (format 1.0, little endian, C order): what --tap writes.
 *
 *     og_npy_out *o = NULL;                                  // int64 [rows, 16]
 *     rc = og_npy_create("codes.npy", OG_I64, 1, (int64_t[]){16}, &o, err);
 *     rc = og_npy_append(o, codes, n_rows, err);
 *     rc = og_npy_commit(o, err);                            // or og_npy_abort(o)
 *
 * The file appears whole or not at all. An object belongs to one thread at a time.
 */
#ifndef OG_MEDIA_NPY_H
#define OG_MEDIA_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/base/err.h"
#include "kernels/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_NPY_MAX_BYTES ((int64_t)1 << 36)

typedef struct og_npy_out og_npy_out;

/* A file of rows; the shape of a row is rank (0..5) and ne. dtypes that NumPy lacks
 * (BF16, F8) are OG_EUNSUPPORTED: widen them first. */
int og_npy_create(const char *path, og_dtype dtype, int rank, const int64_t *ne,
                  og_npy_out **out, og_err *err) OG_MUST_CHECK;
/* rows * bytes of a row, from host memory of any alignment. */
int og_npy_append(og_npy_out *o, const void *data, int64_t rows,
                  og_err *err) OG_MUST_CHECK;
/* Write the final shape, give the file its name, free o (also on failure). */
int og_npy_commit(og_npy_out *o, og_err *err) OG_MUST_CHECK;
void og_npy_abort(og_npy_out *o); /* NULL is fine */

/* Read a file: t is a dense tensor, whose data the caller frees with og_free. Big-endian,
 * Fortran-order and object arrays are OG_EUNSUPPORTED. A scalar comes as rank 1 of one
 * element. */
int og_npy_read(const char *path, og_tensor *t, og_err *err) OG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
