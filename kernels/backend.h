/* What a backend gives: memory, a stream, and one function per op.
 *
 * The table is const and its functions have the signatures of ops.h. The wrappers
 * (wrap_*.c) call them after all checks of shapes, dtypes, places and memory; a backend
 * checks nothing again. An op entry that is NULL is composed from others (compose.c) where
 * the comment says so, and unsupported otherwise.
 *
 * Functions marked [s] may take scratch with og_exec_alloc. They are also called in MEASURE
 * mode: take the scratch, then return when og__measuring(ex). The wrapper gives it back.
 * All others are never called in MEASURE mode. No function is called for empty outputs.
 */
#ifndef OG_KERNELS_BACKEND_H
#define OG_KERNELS_BACKEND_H

#include "kernels/ops.h"

/* What pass `pass` of a depth decoder runs on, written on the device. Pass 0 has two rows
 * per sequence at positions 0 and 1, pass g one row at position g + 1. All arrays have room
 * for 2 * n_seq rows. */
typedef struct og__depth_pass {
    int n_seq, pass;
    const int32_t *slots;       /* [n_seq] */
    const og_sample_row *given; /* [n_seq] */
    int32_t *slot, *pos, *cu;   /* out: an og_rows of this pass */
    og_sample_row *params;      /* out: given with codebook = pass + 1 */
} og__depth_pass;

typedef struct og__backend {
    const char *name;
    og_place_kind place;

    int (*open)(og_device *dev, og_err *err);
    void (*close)(og_device *dev);
    void (*info)(const og_device *dev, og_device_info *info);
    int (*alloc)(og_device *dev, size_t bytes, void **out, og_err *err); /* zeroed */
    void (*free)(og_device *dev, void *p);
    /* Host to device and back, done on return; NULL: plain memory. */
    int (*upload)(og_device *dev, void *dst, const void *src, size_t bytes, og_err *err);
    int (*download)(og_device *dev, void *dst, const void *src, size_t bytes, og_err *err);
    int (*exec_open)(og_exec *ex, og_err *err); /* may be NULL */
    void (*exec_close)(og_exec *ex);            /* may be NULL */
    int (*sync)(og_exec *ex);                   /* NULL: work is done when an op returns */

    /* All of these are NULL on host backends (kernels/step.c has the plain versions). */
    int (*alloc_host)(og_device *dev, size_t bytes, void **out, og_err *err);
    void (*free_host)(og_device *dev, void *p);
    int (*lost)(const og_device *dev);
    int (*reserve)(og_exec *ex, og_err *err); /* grow the stage to what was measured */
    int (*stage_begin)(og_exec *ex);
    int (*stage)(og_exec *ex, const void *host, size_t bytes, const void **dev);
    int (*stage_end)(og_exec *ex);
    int (*fetch)(og_exec *ex, void *host, const void *dev, size_t bytes);
    int (*stamp)(og_exec *ex, uint64_t *stamp);
    int (*reached)(og_exec *ex, uint64_t stamp, int wait);
    int (*capture_begin)(og_exec *ex);
    int (*capture_end)(og_exec *ex, og_graph **out);
    int (*graph_launch)(og_exec *ex, og_graph *g);
    void (*graph_destroy)(og_exec *ex, og_graph *g);

    int (*copy)(og_exec *ex, og_tensor *y, const og_tensor *x);
    int (*fill)(og_exec *ex, og_tensor *y, float v);
    int (*gather_rows)(og_exec *ex, og_tensor *y, const og_tensor *table,
                       const og_tensor *ids);
    int (*scatter_rows)(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *ids);

    int (*unary)(og_exec *ex, og_tensor *y, const og_tensor *x, og_act act);
    int (*binary)(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                  og_binary op);
    int (*scaled_add)(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                      const og_tensor *scale); /* [s] */
    int (*snake)(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *alpha,
                 const og_tensor *inv_beta);
    int (*clamp)(og_exec *ex, og_tensor *y, const og_tensor *x, float lo, float hi);

    int (*rms_norm)(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                    float eps); /* [s] */
    int (*layer_norm)(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                      const og_tensor *b, float eps); /* [s] */

    int (*linear)(og_exec *ex, int n, og_tensor *y, const og_tensor *x, const og_tensor *w,
                  const og_tensor *bias, const og_epilogue *epi); /* [s] */
    int (*norm_linear)(og_exec *ex, int n, og_tensor *y, const og_tensor *x,
                       const og_tensor *norm, float eps, const og_tensor *w,
                       const og_tensor *bias); /* [s], composed by default */
    int (*glu_linear)(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *norm,
                      float eps, const og_tensor *gate, const og_tensor *up,
                      og_act act); /* [s], composed by default */

    int (*rope_table)(og_exec *ex, og_tensor *cos, og_tensor *sin, const og_rows *rows,
                      const og_tensor *inv_freq);
    int (*qk_norm_rope_append)(og_exec *ex, og_tensor *q, og_tensor *k, const og_tensor *v,
                               const og_tensor *q_norm, const og_tensor *k_norm, float eps,
                               const og_tensor *cos, const og_tensor *sin,
                               const og_rows *rows, og_kv *kv); /* [s] */
    int (*attn_paged)(og_exec *ex, og_tensor *y, const og_tensor *q, const og_kv *kv,
                      const og_rows *rows, float scale, int window); /* [s] */
    /* qk_norm_rope_append and attn_paged at once, of q, k, v that nobody reads afterwards, for
     * segments of about one row; composed by default */
    int (*append_attend)(og_exec *ex, og_tensor *y, const og_tensor *qkv,
                         const og_decoder_layer *l, float eps, const og_tensor *cos,
                         const og_tensor *sin, const og_rows *rows, og_kv *kv, float scale,
                         int window);

    int (*row_sum)(og_exec *ex, og_tensor *y, const og_row_prog *prog);

    int (*conv1d)(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                  const og_tensor *bias, og_tensor *state, const og_rows *rows, int dilation,
                  const og_epilogue *epi); /* [s] */
    int (*conv1d_depthwise)(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                            const og_tensor *bias, og_tensor *state, const og_rows *rows,
                            int dilation); /* [s] */
    int (*conv_transpose1d)(og_exec *ex, og_tensor *y, const og_tensor *x,
                            const og_tensor *w, const og_tensor *bias, og_tensor *state,
                            const og_rows *rows, int stride); /* [s], composed by default */

    int (*pad_time)(og_exec *ex, og_tensor *y, const og_tensor *x, int64_t left,
                    og_pad mode);
    int (*conv1d_valid)(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                        const og_tensor *bias, int stride, int dilation,
                        const og_epilogue *epi); /* [s], composed by default */
    int (*magnitude)(og_exec *ex, og_tensor *y, const og_tensor *x, float eps);
    int (*log_floor)(og_exec *ex, og_tensor *y, const og_tensor *x, float floor);
    int (*softmax_time)(og_exec *ex, og_tensor *y, const og_tensor *x); /* [s] */
    int (*time_stats)(og_exec *ex, og_tensor *mean, og_tensor *std, const og_tensor *x,
                      const og_tensor *w, float floor);
    int (*rvq_nearest)(og_exec *ex, og_tensor *ids, const og_tensor *x,
                       const og_tensor *table); /* [s] */

    int (*sample)(og_exec *ex, og_tensor *ids, og_tensor *logits, const og_sample_row *rows,
                  const og_tensor *history, const og_tensor *allowed,
                  const og_tensor *stop_ids); /* [s] */

    int (*decoder_stack)(og_exec *ex, og_tensor *x, const og_decoder *net, og_kv *kv,
                         const og_rows *rows); /* [s], composed by default */
    int (*depth_ar)(og_exec *ex, og_tensor *codes, const og_tensor *state,
                    const og_depth *net, og_kv *kv, const int32_t *slots,
                    const og_sample_row *rows); /* [s], composed by default */
    int (*depth_pass)(og_exec *ex, const og__depth_pass *pass); /* part of depth_ar */
} og__backend;

extern const og__backend og__backend_ref;
extern const og__backend og__backend_cpu;
#ifdef OG_WITH_CUDA
extern const og__backend og__backend_cuda;
#endif

/* The composed defaults, for the wrappers. */
int og__compose_norm_linear(og_exec *ex, int n, og_tensor *y, const og_tensor *x,
                            const og_tensor *norm, float eps, const og_tensor *w,
                            const og_tensor *bias);
int og__compose_glu_linear(og_exec *ex, og_tensor *y, const og_tensor *x,
                           const og_tensor *norm, float eps, const og_tensor *gate,
                           const og_tensor *up, og_act act);
int og__compose_conv_transpose1d(og_exec *ex, og_tensor *y, const og_tensor *x,
                                 const og_tensor *w, const og_tensor *bias,
                                 og_tensor *state, const og_rows *rows, int stride);
int og__compose_decoder_stack(og_exec *ex, og_tensor *x, const og_decoder *net, og_kv *kv,
                              const og_rows *rows);
int og__compose_depth_ar(og_exec *ex, og_tensor *codes, const og_tensor *state,
                         const og_depth *net, og_kv *kv, const int32_t *slots,
                         const og_sample_row *rows);

/* Parts of them, for backends that compose otherwise. */
int og__append_attend(og_exec *ex, og_tensor *y, og_tensor *qkv, const og_decoder_layer *l,
                      float eps, const og_tensor *cos, const og_tensor *sin,
                      const og_rows *rows, og_kv *kv, float scale, int window);
/* decoder_stack without the rope table and the final norm. */
int og__compose_layers(og_exec *ex, og_tensor *x, const og_decoder *net, og_kv *kv,
                       const og_rows *rows, const og_tensor *cos, const og_tensor *sin);
/* The embedded input of pass g, [R, H], or [R, 2, H] for pass 0, seen as [rows, H]; its
 * projection; the rows of the output that the head sees; group g of all rows. */
int og__depth_embed(og_exec *ex, og_tensor *in, int g, const og_tensor *codes,
                    const og_tensor *state, const og_depth *net);
int og__depth_project(og_exec *ex, og_tensor *x, const og_depth *net);
og_tensor og__depth_last(const og_tensor *x, int g, int64_t n_seq);
og_tensor og__depth_column(const og_tensor *codes, int g);

#endif
