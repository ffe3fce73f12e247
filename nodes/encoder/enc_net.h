/* What the networks of this room share: memory that is given back together, and weights that
 * are made once at load. */
#ifndef OG_ENC_NET_H
#define OG_ENC_NET_H

#include "nodes/blocks/place.h"
#include "nodes/encoder/encoder.h"

#define OG__ENC_MAX_BLOCKS 64

typedef struct og__enc_mem {
    og_store store;
    og_weights *weights; /* borrowed; file pages of what was repacked go back to it */
    void *block[OG__ENC_MAX_BLOCKS];
    int n;
    size_t weight_bytes, state_bytes; /* sums of what was made */
} og__enc_mem;

/* A convolution: w is [Cout, Cin, k] when bound and [Cout, k, Cin] when prepared. */
typedef struct og__enc_conv {
    og_tensor w, b;
} og__enc_conv;

void og__enc_mem_init(og__enc_mem *m, og_exec *ex);
void og__enc_mem_free(og__enc_mem *m);
/* Give t, whose shape is set, zeroed host memory; once it is filled, bring it to the device. */
OG_MUST_CHECK int og__enc_weight(og__enc_mem *m, og_tensor *t, og_err *err);
OG_MUST_CHECK int og__enc_place(og__enc_mem *m, og_tensor *t, og_err *err);
/* Give t zeroed memory of the device. */
OG_MUST_CHECK int og__enc_state(og__enc_mem *m, og_tensor *t, og_err *err);
/* Prepare a convolution's weights and bring them to the device; with k 1 they are as in the
 * file, as [Cout, Cin]. og__enc_prepare does the same for its bias, too. */
OG_MUST_CHECK int og__enc_repack(og__enc_mem *m, og_tensor *w, og_err *err);
OG_MUST_CHECK int og__enc_prepare(og__enc_mem *m, og__enc_conv *c, og_err *err);
/* Element i of a dense f32, bf16 or f16 tensor. */
float og__enc_value(const og_tensor *t, int64_t i);
/* "name.weight" [out, in, k] and "name.bias" [out], the name printed. */
void og__enc_bind_conv(og_bind *b, og__enc_conv *c, int out, int in, int k, const char *fmt,
                       ...) OG_PRINTF(6, 7);

/* Array key of a config: *n integers in [1, max], or the n_def of def when it is absent. */
OG_MUST_CHECK int og__enc_cfg_ints(const json_t *s, const char *key, int *v, int max_n,
                                   int *n, const int *def, int n_def, int max, og_err *err);
/* Report a fault of a config key. Returns code. */
int og__enc_bad(og_err *err, int code, const char *key, const char *fmt, ...)
    OG_PRINTF(4, 5);

#define OG__ENC_TRY(call)          \
    do {                           \
        int rc_ = (call);          \
        if (rc_ < 0) return rc_;   \
    } while (0)

static inline og_tensor og__enc_mat(og_exec *ex, int64_t rows, int64_t width) {
    return og_exec_alloc(ex, OG_F32, 2, (int64_t[]){rows, width});
}

/* Columns [from, from + n) of rows. */
static inline og_tensor og__enc_columns(const og_tensor *x, int64_t from, int64_t n) {
    og_tensor t = *x;
    t.ne[1] = n;
    if (t.data) t.data = (char *)t.data + from * (int64_t)og_dtype_size(t.dtype);
    return t;
}

#endif
