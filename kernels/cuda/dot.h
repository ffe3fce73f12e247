/* One kernel family behind linear and convolution: rows of x against rows of weights.
 *
 * A convolution is the same sum over K = taps * channels, where element k of row r is channel
 * k % channels of the input column that tap k / channels sees: a row of x, or a column of the
 * segment's state.
 */
#ifndef OG_CUDA_DOT_H
#define OG_CUDA_DOT_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct og__dot_out {
    const void *w;
    int64_t ldw; /* elements */
    const void *bias; /* [N], or NULL */
    float *y;
    int64_t ldy;
    int n;
    int bias_t;
    int tile0; /* first tile of this output, set by the launcher */
} og__dot_out;

typedef struct og__dot {
    const float *x;
    int64_t ldx;
    int m, k;
    int x_vec; /* x (and the state) can be read four floats at a time */
    /* rms_norm of x, when norm is not NULL; m must then be at most OG__DOT_ROWS */
    const void *norm;
    int norm_t;
    float eps;
    /* convolution, when cu is not NULL */
    const int32_t *cu, *slot;
    const float *state;
    int n_seg, channels, taps, dilation;
    int bias_mod; /* the bias repeats after so many outputs; 0: it does not */
    /* epilogue */
    int act;
    const void *scale;
    int scale_t;
    const float *residual;
    int64_t ldr;
    int glu; /* two weights: act(out[0]) * out[1] into out[0].y */
    int n_out, m_tiles;
    og__dot_out out[OG__CUDA_OUTPUTS];
} og__dot;

#define OG__DOT_ROWS 8 /* rows that read a weight once */
#define OG__DOT_FEW 4  /* rows up to which weights are all that is waited for */

/* Whether m rows against weights of t go to the tensor cores; their norm then runs before. */
static inline int og__cuda_fast(const og_exec *ex, og_dtype t, int m) {
    return t == OG_BF16 && m > OG__DOT_FEW && !ex->dev->deterministic;
}
int og__cuda_mma_takes(const og_exec *ex, og_dtype t, const og__dot *d);
int og__cuda_mma(og_exec *ex, const char *op, og__dot *d);

int og__cuda_dot_f32(og_exec *ex, const char *op, og__dot *d);
int og__cuda_dot_bf16(og_exec *ex, const char *op, og__dot *d);
int og__cuda_dot_f16(og_exec *ex, const char *op, og__dot *d);
int og__cuda_dot(og_exec *ex, const char *op, og_dtype t, og__dot *d);

#ifdef __cplusplus
}
#endif
#endif
