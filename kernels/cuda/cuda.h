/* The CUDA backend's own structs and functions; C and CUDA C++ both read it.
 *
 * A device is one GPU with a stream for loading. An exec is one stream with
 *   stage   a block on the device that a step's host bytes are copied into, and a ring of
 *           pinned blocks they are copied from; the block's addresses never change
 *   stamps  a ring of events
 *   fault   a word in mapped memory where kernels report bad indices, which the host cannot
 *           see beforehand; og_exec_sync turns it into an error
 *
 * Kernels are launched through launch.cuh alone. Bits: all kernels of one op spell each
 * output element as the same expression (explicit fma, no contraction across templates), so
 * its bits depend on its own row, K and dtype only; mma.cu is the exception, which
 * og_device_set_deterministic rules out.
 *
 * Environment, read when an exec is made: OG_PDL=1 lets every kernel start while the one before
 * it ends, OG_PDL=0 none; unset: those that follow a product of few rows, where it pays.
 * OG_CUDA_TRACE=1 waits after each launch, so that an error names its op.
 */
#ifndef OG_CUDA_H
#define OG_CUDA_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/check.h"

#define OG__CUDA_RING 4    /* pinned blocks: steps that may be in flight */
#define OG__CUDA_EVENTS 16 /* stamps that can be told apart */
#define OG__CUDA_STAGE (256 << 10)
#define OG__CUDA_OUTPUTS 4 /* weights in one launch */
#define OG__CUDA_TABLES 64 /* tables of one row_sum */

typedef struct og__cuda_device {
    cudaStream_t io;
    int sms, major, minor, lost;
    size_t memory;
    char name[96];
} og__cuda_device;

/* What went wrong on the device; op 0: nothing. The first of a step wins or not, as they
 * race: one is enough. */
typedef struct og__cuda_fault {
    int op; /* og__cuda_fault_op */
    int value;
} og__cuda_fault;
typedef enum og__cuda_fault_op {
    OG__FAULT_NONE,
    OG__FAULT_GATHER,
    OG__FAULT_SCATTER,
    OG__FAULT_ROW_SUM
} og__cuda_fault_op;

typedef struct og__cuda_exec {
    cudaStream_t stream;
    int pdl; /* 1: launches overlap, 0: not, -1: while few */
    int few; /* the last product was of few rows */
    int trace;
    unsigned char *stage;                /* on the device */
    unsigned char *pinned[OG__CUDA_RING]; /* on the host */
    cudaEvent_t copied[OG__CUDA_RING];
    size_t stage_cap, stage_used, stage_peak;
    int stage_open, turn;
    cudaEvent_t events[OG__CUDA_EVENTS];
    og__cuda_fault *fault, *fault_dev;
} og__cuda_exec;

static inline og__cuda_device *og__cuda_device_of(const og_device *dev) {
    return (og__cuda_device *)dev->impl;
}
static inline og__cuda_exec *og__cuda_exec_of(const og_exec *ex) {
    return (og__cuda_exec *)ex->impl;
}

/* Words and code for a CUDA error of an op. Remembers errors that do not go away. */
int og__cuda_fail(og_exec *ex, const char *op, cudaError_t e);
/* 1 for errors after which the driver refuses everything in this process. */
int og__cuda_sticky(cudaError_t e);
/* Check a launch that was just made; waits for it when tracing. */
int og__cuda_launched(og_exec *ex, const char *op, cudaError_t e);

#ifdef OG_CUDA_INJECT
/* Of a test: called after each launch in RUN mode, it may make the next thing fail. */
cudaError_t og__cuda_inject(const char *op, cudaStream_t stream);
#endif

/* device.c */
int og__cuda_open(og_device *dev, og_err *err);
void og__cuda_close(og_device *dev);
void og__cuda_info(const og_device *dev, og_device_info *info);
int og__cuda_alloc(og_device *dev, size_t bytes, void **out, og_err *err);
void og__cuda_free(og_device *dev, void *p);
int og__cuda_upload(og_device *dev, void *dst, const void *src, size_t bytes, og_err *err);
int og__cuda_download(og_device *dev, void *dst, const void *src, size_t bytes, og_err *err);
int og__cuda_alloc_host(og_device *dev, size_t bytes, void **out, og_err *err);
void og__cuda_free_host(og_device *dev, void *p);
int og__cuda_lost(const og_device *dev);
int og__cuda_report(og_device *dev, const char *what, cudaError_t e, og_err *err);

/* exec.c */
int og__cuda_exec_open(og_exec *ex, og_err *err);
void og__cuda_exec_close(og_exec *ex);
int og__cuda_sync(og_exec *ex);
int og__cuda_reserve(og_exec *ex, og_err *err);
int og__cuda_stage_begin(og_exec *ex);
int og__cuda_stage(og_exec *ex, const void *host, size_t bytes, const void **dev);
int og__cuda_stage_end(og_exec *ex);
int og__cuda_fetch(og_exec *ex, void *host, const void *dev, size_t bytes);
int og__cuda_stamp(og_exec *ex, uint64_t *stamp);
int og__cuda_reached(og_exec *ex, uint64_t stamp, int wait);
int og__cuda_capture_begin(og_exec *ex);
int og__cuda_capture_end(og_exec *ex, og_graph **out);
int og__cuda_graph_launch(og_exec *ex, og_graph *g);
void og__cuda_graph_destroy(og_exec *ex, og_graph *g);

/* ops, as in backend.h */
int og__cuda_copy(og_exec *ex, og_tensor *y, const og_tensor *x);
int og__cuda_fill(og_exec *ex, og_tensor *y, float v);
int og__cuda_gather_rows(og_exec *ex, og_tensor *y, const og_tensor *table,
                         const og_tensor *ids);
int og__cuda_scatter_rows(og_exec *ex, og_tensor *y, const og_tensor *x,
                          const og_tensor *ids);
int og__cuda_row_sum(og_exec *ex, og_tensor *y, const og_row_prog *prog);
int og__cuda_depth_pass(og_exec *ex, const og__depth_pass *pass);
/* depth_pass of all passes. The buffers of passes from 1 on follow one another: pos after
 * pass 0's 2 n_seq rows, params after pass 0's; slot and cu are the same for all of them and
 * follow pass 0's 2 n_seq and n_seq + 1. */
int og__cuda_depth_passes(og_exec *ex, const og__depth_pass *first, int n);
int og__cuda_unary(og_exec *ex, og_tensor *y, const og_tensor *x, og_act act);
int og__cuda_binary(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                    og_binary op);
int og__cuda_scaled_add(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                        const og_tensor *scale);
int og__cuda_snake(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *alpha,
                   const og_tensor *inv_beta);
int og__cuda_clamp(og_exec *ex, og_tensor *y, const og_tensor *x, float lo, float hi);
int og__cuda_rms_norm(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                      float eps);
int og__cuda_layer_norm(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                        const og_tensor *b, float eps);
int og__cuda_linear(og_exec *ex, int n, og_tensor *y, const og_tensor *x, const og_tensor *w,
                    const og_tensor *bias, const og_epilogue *epi);
int og__cuda_norm_linear(og_exec *ex, int n, og_tensor *y, const og_tensor *x,
                         const og_tensor *norm, float eps, const og_tensor *w,
                         const og_tensor *bias);
int og__cuda_glu_linear(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *norm,
                        float eps, const og_tensor *gate, const og_tensor *up, og_act act);
int og__cuda_rope_table(og_exec *ex, og_tensor *cos, og_tensor *sin, const og_rows *rows,
                        const og_tensor *inv_freq);
int og__cuda_qk_norm_rope_append(og_exec *ex, og_tensor *q, og_tensor *k, const og_tensor *v,
                                 const og_tensor *q_norm, const og_tensor *k_norm, float eps,
                                 const og_tensor *cos, const og_tensor *sin,
                                 const og_rows *rows, og_kv *kv);
int og__cuda_attn_paged(og_exec *ex, og_tensor *y, const og_tensor *q, const og_kv *kv,
                        const og_rows *rows, float scale, int window);
/* qk_norm_rope_append and attn_paged in one launch, with the same bits; q, k and v are read
 * only. Any rows, but each row does the appending of those before it in its segment again. */
int og__cuda_append_attend(og_exec *ex, og_tensor *y, const og_tensor *qkv,
                           const og_decoder_layer *l, float eps, const og_tensor *cos,
                           const og_tensor *sin, const og_rows *rows, og_kv *kv, float scale,
                           int window);
int og__cuda_conv1d(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                    const og_tensor *bias, og_tensor *state, const og_rows *rows,
                    int dilation, const og_epilogue *epi);
int og__cuda_conv1d_depthwise(og_exec *ex, og_tensor *y, const og_tensor *x,
                              const og_tensor *w, const og_tensor *bias, og_tensor *state,
                              const og_rows *rows, int dilation);
int og__cuda_conv_transpose1d(og_exec *ex, og_tensor *y, const og_tensor *x,
                              const og_tensor *w, const og_tensor *bias, og_tensor *state,
                              const og_rows *rows, int stride);
int og__cuda_pad_time(og_exec *ex, og_tensor *y, const og_tensor *x, int64_t left,
                      og_pad mode);
int og__cuda_magnitude(og_exec *ex, og_tensor *y, const og_tensor *x, float eps);
int og__cuda_log_floor(og_exec *ex, og_tensor *y, const og_tensor *x, float floor);
int og__cuda_softmax_time(og_exec *ex, og_tensor *y, const og_tensor *x);
int og__cuda_time_stats(og_exec *ex, og_tensor *mean, og_tensor *std, const og_tensor *x,
                        const og_tensor *w, float floor);
int og__cuda_rvq_nearest(og_exec *ex, og_tensor *ids, const og_tensor *x,
                         const og_tensor *table);
int og__cuda_sample(og_exec *ex, og_tensor *ids, og_tensor *logits, const og_sample_row *rows,
                    const og_tensor *history, const og_tensor *allowed,
                    const og_tensor *stop_ids);
/* The same without history and bans; then y[r] = table[ids[r]], as gather_rows has it. */
int og__cuda_sample_embed(og_exec *ex, og_tensor *ids, og_tensor *logits,
                          const og_sample_row *rows, const og_tensor *table, og_tensor *y);
int og__cuda_depth_ar(og_exec *ex, og_tensor *codes, const og_tensor *state,
                      const og_depth *net, og_kv *kv, const int32_t *slots,
                      const og_sample_row *rows);

#ifdef __cplusplus
}
#endif
#endif
