/* The oracle: every op in naive C, one thread, sums in double. Host backends that have
 * nothing better for an op take it from here.
 */
#ifndef OG_REF_H
#define OG_REF_H

#include "kernels/check.h"

int og__ref_copy(og_exec *ex, og_tensor *y, const og_tensor *x);
int og__ref_fill(og_exec *ex, og_tensor *y, float v);
int og__ref_gather_rows(og_exec *ex, og_tensor *y, const og_tensor *table,
                        const og_tensor *ids);
int og__ref_scatter_rows(og_exec *ex, og_tensor *y, const og_tensor *x,
                         const og_tensor *ids);
int og__ref_row_sum(og_exec *ex, og_tensor *y, const og_row_prog *prog);
int og__ref_depth_pass(og_exec *ex, const og__depth_pass *pass);

int og__ref_unary(og_exec *ex, og_tensor *y, const og_tensor *x, og_act act);
int og__ref_binary(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                   og_binary op);
int og__ref_scaled_add(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                       const og_tensor *scale);
int og__ref_snake(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *alpha,
                  const og_tensor *inv_beta);
int og__ref_clamp(og_exec *ex, og_tensor *y, const og_tensor *x, float lo, float hi);
int og__ref_rms_norm(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                     float eps);
int og__ref_layer_norm(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                       const og_tensor *b, float eps);

int og__ref_linear(og_exec *ex, int n, og_tensor *y, const og_tensor *x,
                   const og_tensor *w, const og_tensor *bias, const og_epilogue *epi);
int og__ref_rope_table(og_exec *ex, og_tensor *cos, og_tensor *sin, const og_rows *rows,
                       const og_tensor *inv_freq);
int og__ref_qk_norm_rope_append(og_exec *ex, og_tensor *q, og_tensor *k,
                                const og_tensor *v, const og_tensor *q_norm,
                                const og_tensor *k_norm, float eps, const og_tensor *cos,
                                const og_tensor *sin, const og_rows *rows, og_kv *kv);
int og__ref_attn_paged(og_exec *ex, og_tensor *y, const og_tensor *q, const og_kv *kv,
                       const og_rows *rows, float scale, int window);

int og__ref_conv1d(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                   const og_tensor *bias, og_tensor *state, const og_rows *rows,
                   int dilation, const og_epilogue *epi);
int og__ref_conv1d_depthwise(og_exec *ex, og_tensor *y, const og_tensor *x,
                             const og_tensor *w, const og_tensor *bias, og_tensor *state,
                             const og_rows *rows, int dilation);
int og__ref_sample(og_exec *ex, og_tensor *ids, og_tensor *logits,
                   const og_sample_row *rows, const og_tensor *history,
                   const og_tensor *allowed, const og_tensor *stop_ids);

/* Activation, scale and residual on one output: row r, column j of n. */
double og__ref_act(double v, og_act act);
double og__ref_epilogue(double v, const og_epilogue *epi, int64_t r, int64_t j,
                        int64_t n);
/* Push a segment's input columns through its state: the last `depth` of [state, x]. */
void og__host_state_push(float *state, int64_t depth, const char *x, int64_t n,
                         int64_t ld, int64_t channels);

/* Memory of host backends. */
int og__host_alloc(og_device *dev, size_t bytes, void **out, og_err *err);
void og__host_free(og_device *dev, void *p);

#endif
