/* What the files of the CPU backend share. */
#ifndef OG_CPU_H
#define OG_CPU_H

#include "kernels/check.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/pool.h"
#include "kernels/ref/ref.h"

/* Below this many elements an elementwise op stays on the calling thread. */
#define OG__CPU_SERIAL 16384

static inline const og__isa *og__cpu_isa(const og_exec *ex) {
    return ex->dev->impl;
}

/* Scratch for n floats in *out; NULL while measuring. */
OG_MUST_CHECK int og__cpu_floats(og_exec *ex, int64_t n, float **out);
/* A weight vector as f32: in place, or widened into scratch. NULL when it is absent. */
OG_MUST_CHECK int og__cpu_vector(og_exec *ex, const og_tensor *v, const float **out);
/* Run fn over row blocks [from, to) of n rows of `width` elements. */
typedef void og__rows_fn(void *arg, int64_t from, int64_t to);
void og__cpu_rows(int64_t n, int64_t width, og__rows_fn *fn, void *arg);

/* Where the activations of a matrix product lie: row r, tap j is the input row that many
 * steps back, or a column of the segment's state. Rows hold a multiple of 16 channels. */
typedef struct og__taps {
    const float *x;
    int64_t ld;
    int taps, dilation;
    const og_rows *rows; /* not read when there is one tap */
    const float *state;  /* [slot][(taps - 1) * dilation][state_ld] */
    int64_t state_ld;
    int by_segment; /* state is indexed by segment instead of slot */
} og__taps;

/* One weight of a matrix product and where its result goes. */
typedef struct og__product {
    og__weights w;
    int64_t n;
    float *y;
    int64_t ldy;
    og__epi epi;
    const float *residual;
    int64_t ldr;
} og__product;

/* y_i = epilogue(rows . w_i) for n products over the same m rows. */
OG_MUST_CHECK int og__cpu_matmul(og_exec *ex, const og__taps *x, int64_t m,
                                 const og__product *p, int n);
/* Make rows of x hold a multiple of 16 channels: a padded copy in scratch, unless they do. */
OG_MUST_CHECK int og__cpu_pad(og_exec *ex, const float **x, int64_t *ld, int64_t rows,
                              int64_t width);
/* Fill a product's epilogue; takes scratch for vectors that are not f32. */
OG_MUST_CHECK int og__cpu_epilogue(og_exec *ex, og__product *p, const og_tensor *bias,
                                   const og_epilogue *epi);

int og__cpu_copy(og_exec *ex, og_tensor *y, const og_tensor *x);
int og__cpu_fill(og_exec *ex, og_tensor *y, float v);
int og__cpu_gather_rows(og_exec *ex, og_tensor *y, const og_tensor *table,
                        const og_tensor *ids);
int og__cpu_row_sum(og_exec *ex, og_tensor *y, const og_row_prog *prog);
int og__cpu_unary(og_exec *ex, og_tensor *y, const og_tensor *x, og_act act);
int og__cpu_binary(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                   og_binary op);
int og__cpu_scaled_add(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                       const og_tensor *scale);
int og__cpu_snake(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *alpha,
                  const og_tensor *inv_beta);
int og__cpu_clamp(og_exec *ex, og_tensor *y, const og_tensor *x, float lo, float hi);
int og__cpu_rms_norm(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                     float eps);
int og__cpu_layer_norm(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                       const og_tensor *b, float eps);
int og__cpu_linear(og_exec *ex, int n, og_tensor *y, const og_tensor *x,
                   const og_tensor *w, const og_tensor *bias, const og_epilogue *epi);
int og__cpu_qk_norm_rope_append(og_exec *ex, og_tensor *q, og_tensor *k,
                                const og_tensor *v, const og_tensor *q_norm,
                                const og_tensor *k_norm, float eps, const og_tensor *cos,
                                const og_tensor *sin, const og_rows *rows, og_kv *kv);
int og__cpu_attn_paged(og_exec *ex, og_tensor *y, const og_tensor *q, const og_kv *kv,
                       const og_rows *rows, float scale, int window);
int og__cpu_conv1d(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                   const og_tensor *bias, og_tensor *state, const og_rows *rows,
                   int dilation, const og_epilogue *epi);
int og__cpu_conv1d_depthwise(og_exec *ex, og_tensor *y, const og_tensor *x,
                             const og_tensor *w, const og_tensor *bias, og_tensor *state,
                             const og_rows *rows, int dilation);
int og__cpu_sample(og_exec *ex, og_tensor *ids, og_tensor *logits,
                   const og_sample_row *rows, const og_tensor *history,
                   const og_tensor *allowed, const og_tensor *stop_ids);

#endif
