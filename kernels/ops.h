/* Ops: the only door to a device.
 *
 * An og_device is a backend with its memory; an og_exec is a stream of work on it with a
 * scratch arena. An op takes the exec, then outputs, then inputs, then scalars. It checks
 * shapes, is asynchronous on the exec's stream, never allocates and never synchronises.
 * All ops return 0 or a negative OG_E*; og_exec_error() has the words for the last failure.
 *
 * Modes. The same step function is called under each of them:
 *   MEASURE  shapes are checked and scratch is counted; no data is touched
 *   RUN      the work is done (CPU) or launched (CUDA)
 *   CAPTURE  as RUN, inside a graph capture
 *
 * What changes from step to step (positions, lengths, slots, page tables, sampling
 * parameters, seeds) reaches an op in buffers of the device, never as a host scalar.
 *
 * Bits. Each output element is a fixed expression of its own row: the order of the sum over
 * K depends on (K, dtype, op) alone, never on the number of rows, on tiles, threads, chunks
 * or slots. A backend that cannot promise this says so in og_device_info.
 *
 * Shapes: B batch, T time, R packed rows, C channels, D or K width, H heads, V vocabulary.
 * Activations are f32 on the CPU; weights are f32, bf16 or f16 in place, [N, K] as in the
 * checkpoint.
 *
 *     og_device *dev; og_exec *ex; og_err err = OG_ERR_INIT;
 *     og_device_open("cpu", 0, 2, &dev, &err);
 *     og_exec_create(dev, 1 << 20, &ex, &err);
 *     og_tensor y = og_exec_alloc(ex, OG_F32, 2, (int64_t[]){rows, n});
 *     og_op_linear(ex, 1, &y, &x, &w, NULL, NULL);
 *     og_exec_reset(ex);
 */
#ifndef OG_OPS_H
#define OG_OPS_H

#include "kernels/base/err.h"
#include "kernels/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- devices ------------------------------------------------------------------- */

typedef struct og_device og_device; /* opaque; shared by all execs on it; thread safe */
typedef struct og_exec og_exec;     /* opaque; one thread at a time */

typedef struct og_device_info {
    const char *backend; /* "ref", "cpu", "cuda" */
    char name[128];      /* "AVX2, 2 threads" */
    int deterministic;   /* keeps the rule about bits */
    int threads;
    size_t memory; /* bytes of the device, 0 when unknown */
} og_device_info;

/* Open backend "ref", "cpu" or "cuda". threads bounds the CPU pool (0: all cores); it is one
 * pool for the whole process, sized by the first that opens it. OG_ISA=ref|avx2|avx512
 * chooses the instruction set. OG_EUNSUPPORTED when the backend is not built in. */
OG_MUST_CHECK int og_device_open(const char *backend, int index, int threads, og_device **out,
                                 og_err *err);
void og_device_close(og_device *dev); /* NULL is fine; execs must be gone */
/* Keep the rule about bits whatever it costs, where the backend has a faster way (cuda: bf16
 * weights against more than four rows use the tensor cores, whose bits differ from those of
 * fewer rows). Off at first; before any exec of the device measures or runs. */
void og_device_set_deterministic(og_device *dev, int on);
void og_device_info_get(const og_device *dev, og_device_info *info);
/* Names of the backends in this binary, NULL at the end. */
const char *const *og_device_backends(void);

/* Device memory of long life (weights, KV, states): zeroed, aligned to 64. */
OG_MUST_CHECK int og_device_alloc(og_device *dev, size_t bytes, void **out, og_err *err);
void og_device_free(og_device *dev, void *p);
/* Copy host bytes to the device or back and wait for it: loading and tests, never a step. */
OG_MUST_CHECK int og_device_upload(og_device *dev, void *dst, const void *src, size_t bytes,
                                   og_err *err);
OG_MUST_CHECK int og_device_download(og_device *dev, void *dst, const void *src, size_t bytes,
                                     og_err *err);
/* Long-lived copy of a dense host tensor (a weight), aligned to 256; *out has its shape and
 * lies on the device. On a host device *out is the tensor itself, which must outlive it.
 * og_device_unplace frees what og_device_place took; it does nothing on the host. */
OG_MUST_CHECK int og_device_place(og_device *dev, const og_tensor *host, og_tensor *out,
                                  og_err *err);
void og_device_unplace(og_device *dev, og_tensor *t);
/* Host memory that copies to and from the device need not wait for (pinned), zeroed. */
OG_MUST_CHECK int og_device_alloc_host(og_device *dev, size_t bytes, void **out, og_err *err);
void og_device_free_host(og_device *dev, void *p);
/* 1 after an error that the driver does not recover from: all later calls of this process on
 * this device fail, and only a new process helps. */
int og_device_lost(const og_device *dev);

typedef enum og_exec_mode { OG_MEASURE, OG_RUN, OG_CAPTURE } og_exec_mode;

OG_MUST_CHECK int og_exec_create(og_device *dev, size_t scratch, og_exec **out, og_err *err);
void og_exec_destroy(og_exec *ex);
og_device *og_exec_device(const og_exec *ex);
void og_exec_set_mode(og_exec *ex, og_exec_mode mode);
og_exec_mode og_exec_get_mode(const og_exec *ex);
/* Scratch, valid until the next reset. In MEASURE data is NULL and the peak is counted. In
 * RUN a tensor whose data is NULL comes back when the arena is too small, and every op then
 * refuses it with OG_ENOMEM. */
og_tensor og_exec_alloc(og_exec *ex, og_dtype t, int rank, const int64_t *ne);
/* Scratch marks: og_exec_release gives back all that was taken since the mark. */
size_t og_exec_mark(const og_exec *ex);
void og_exec_release(og_exec *ex, size_t mark);
void og_exec_reset(og_exec *ex);
/* Largest scratch that was in use since creation, in any mode; og_exec_reserve grows the
 * arena to at least that many bytes (between steps only). */
size_t og_exec_peak(const og_exec *ex);
OG_MUST_CHECK int og_exec_reserve(og_exec *ex, size_t bytes, og_err *err);
const char *og_exec_error(const og_exec *ex);
/* Wait until all launched work is done. Never called inside a step. */
OG_MUST_CHECK int og_exec_sync(og_exec *ex);

/* What the host hands to one step: rows, tables, parameters. Between begin and end each call
 * gives the address under which ops see the bytes; the addresses are the same in every step
 * that stages the same sizes in the same order, so a captured graph can hold them. All bytes
 * travel in one copy at end. On the host the address is `host` itself, which must then stay
 * as it is until the step is done. In MEASURE mode bytes are counted, and the next
 * og_exec_reserve makes room for them; in CAPTURE mode nothing is copied: stage again in RUN
 * mode before each og_graph_launch.
 *
 *     og_exec_stage_begin(ex);
 *     og_exec_stage(ex, pos, n * 3 * sizeof *pos, (const void **)&rows.pos);
 *     og_exec_stage_end(ex);
 */
OG_MUST_CHECK int og_exec_stage_begin(og_exec *ex);
OG_MUST_CHECK int og_exec_stage(og_exec *ex, const void *host, size_t bytes,
                                const void **dev);
OG_MUST_CHECK int og_exec_stage_end(og_exec *ex);
/* Most bytes that one step has staged since creation, in any mode; 0 on the host. */
size_t og_exec_staged(const og_exec *ex);
/* Copy results to the host in stream order; there after og_exec_sync or og_exec_wait. Only
 * memory of og_device_alloc_host makes it asynchronous. */
OG_MUST_CHECK int og_exec_fetch(og_exec *ex, void *host, const void *dev, size_t bytes);
/* Stamps: og_exec_stamp numbers the work launched so far; og_exec_reached says whether it is
 * done (1, 0 or an error); og_exec_wait waits for it. Numbers ascend from 1. A stamp may be
 * answered late, by one of the 16 that follow, never early. */
OG_MUST_CHECK int og_exec_stamp(og_exec *ex, uint64_t *stamp);
OG_MUST_CHECK int og_exec_reached(og_exec *ex, uint64_t stamp);
OG_MUST_CHECK int og_exec_wait(og_exec *ex, uint64_t stamp);

/* A recorded step. Between begin and end the exec is in CAPTURE mode: ops are recorded, not
 * run; scratch and stage must have been reserved, and must not grow while a graph of the exec
 * lives. A launch replays it with the same addresses. OG_EUNSUPPORTED on host devices. After
 * a failed op og_exec_capture_end still ends the recording, and says so. */
typedef struct og_graph og_graph;
OG_MUST_CHECK int og_exec_capture_begin(og_exec *ex);
OG_MUST_CHECK int og_exec_capture_end(og_exec *ex, og_graph **out);
OG_MUST_CHECK int og_graph_launch(og_exec *ex, og_graph *g);
void og_graph_destroy(og_exec *ex, og_graph *g); /* NULL is fine */

/* Developer's tap: fn sees each tensor that a model names with og_tap(), in RUN mode. The
 * compare tool and `run --tap-layers` stand on it. Costs one branch when fn is NULL. */
typedef void og_tap_fn(void *arg, const char *name, const og_tensor *t);
void og_exec_set_tap(og_exec *ex, og_tap_fn *fn, void *arg);
int og_exec_tapped(const og_exec *ex); /* 1 while a tap listens */
void og_tap(og_exec *ex, const og_tensor *t, const char *fmt, ...) OG_PRINTF(3, 4);

/* ---- packed rows --------------------------------------------------------------- */

/* Rows of several sequences, one behind another, as [R, D]. Segment s holds rows
 * [cu[s], cu[s+1]); all its rows belong to slot[cu[s]]. pos is the absolute position of
 * each row, three numbers for multimodal RoPE (all equal in plain models). */
typedef struct og_rows {
    int n;               /* rows */
    int n_seg;           /* sequences */
    const int32_t *slot; /* [n] state slot of each row */
    const int32_t *pos;  /* [n][3] */
    const int32_t *cu;   /* [n_seg + 1] */
} og_rows;

/* KV of one layer in pages. table[slot * max_pages + i] is the page that holds positions
 * [i * page, (i + 1) * page) of that slot; with ring > 0 the entry is i % ring. Page 0 is
 * the trash page. */
typedef struct og_kv {
    og_tensor k, v;       /* [n_pages, page, n_kv_heads, head_dim] */
    const int32_t *table; /* [n_slots, max_pages] */
    int max_pages;        /* row length of the table */
    int page;             /* positions per page */
    int ring;             /* 0, or the number of pages that are used in turn */
} og_kv;

/* ---- move ---------------------------------------------------------------------- */

/* y = x, cast to y's dtype; same shape, any strides. */
OG_MUST_CHECK int og_op_copy(og_exec *ex, og_tensor *y, const og_tensor *x);
OG_MUST_CHECK int og_op_fill(og_exec *ex, og_tensor *y, float v);
/* y[i] = table[ids[i]] widened to f32; y [R, D], table [N, D], ids i32 [R]. A negative id
 * gives zeros. */
OG_MUST_CHECK int og_op_gather_rows(og_exec *ex, og_tensor *y, const og_tensor *table,
                                    const og_tensor *ids);
/* y[ids[i]] = x[i]; a negative id is skipped. */
OG_MUST_CHECK int og_op_scatter_rows(og_exec *ex, og_tensor *y, const og_tensor *x,
                                     const og_tensor *ids);

/* ---- map ----------------------------------------------------------------------- */

typedef enum og_act {
    OG_ACT_NONE,
    OG_ACT_SILU,
    OG_ACT_GELU,      /* exact, by erf */
    OG_ACT_GELU_TANH, /* the tanh approximation */
    OG_ACT_RELU,
    OG_ACT_ELU,
    OG_ACT_TANH,
    OG_ACT_SIGMOID,
    OG_ACT_EXP
} og_act;
OG_MUST_CHECK int og_op_unary(og_exec *ex, og_tensor *y, const og_tensor *x, og_act act);

typedef enum og_binary { OG_ADD, OG_SUB, OG_MUL, OG_DIV } og_binary;
/* b has a's shape, or is [C] and stretches over the rows. */
OG_MUST_CHECK int og_op_binary(og_exec *ex, og_tensor *y, const og_tensor *a,
                               const og_tensor *b, og_binary op);
/* y = a + b * scale, scale [C] or absent: residual branches with a layer scale. */
OG_MUST_CHECK int og_op_scaled_add(og_exec *ex, og_tensor *y, const og_tensor *a,
                                   const og_tensor *b, const og_tensor *scale);
/* SnakeBeta: y = x + sin(x * alpha)^2 * inv_beta; alpha, inv_beta f32 [C], already out of
 * their logarithms (1 / (e^beta + 1e-9)). BigVGAN, arXiv 2206.04658. */
OG_MUST_CHECK int og_op_snake(og_exec *ex, og_tensor *y, const og_tensor *x,
                              const og_tensor *alpha, const og_tensor *inv_beta);
OG_MUST_CHECK int og_op_clamp(og_exec *ex, og_tensor *y, const og_tensor *x, float lo,
                              float hi);

/* ---- norm: over the last dimension, in f32 -------------------------------------- */

/* y = x / sqrt(mean(x^2) + eps) * w. arXiv 1910.07467. */
OG_MUST_CHECK int og_op_rms_norm(og_exec *ex, og_tensor *y, const og_tensor *x,
                                 const og_tensor *w, float eps);
/* y = (x - mean) / sqrt(var + eps) * w + b; population variance; b may be absent. */
OG_MUST_CHECK int og_op_layer_norm(og_exec *ex, og_tensor *y, const og_tensor *x,
                                   const og_tensor *w, const og_tensor *b, float eps);

/* ---- linear -------------------------------------------------------------------- */

/* Applied in this order to each output: bias, act, times scale[N], plus residual [R, N]. */
typedef struct og_epilogue {
    og_act act;
    const og_tensor *scale;    /* [N] or NULL */
    const og_tensor *residual; /* [R, N] or NULL; may be the output itself */
} og_epilogue;

/* y[i] = epilogue(x w[i]^T + bias[i]) for i < n: several weights over one input, each where
 * it lies (q, k, v need no concatenation). x f32 [R, K], w[i] [N_i, K], y[i] f32 [R, N_i].
 * bias is NULL or an array in which absent tensors have rank 0. epi may be NULL. */
OG_MUST_CHECK int og_op_linear(og_exec *ex, int n, og_tensor *y, const og_tensor *x,
                               const og_tensor *w, const og_tensor *bias,
                               const og_epilogue *epi);
/* The same over rms_norm(x, norm, eps). Composed by default. */
OG_MUST_CHECK int og_op_norm_linear(og_exec *ex, int n, og_tensor *y, const og_tensor *x,
                                    const og_tensor *norm, float eps, const og_tensor *w,
                                    const og_tensor *bias);
/* y = act(n gate^T) * (n up^T) with n = rms_norm(x, norm, eps). Composed by default. */
OG_MUST_CHECK int og_op_glu_linear(og_exec *ex, og_tensor *y, const og_tensor *x,
                                   const og_tensor *norm, float eps, const og_tensor *gate,
                                   const og_tensor *up, og_act act);

/* ---- positions and attention --------------------------------------------------- */

/* cos, sin f32 [R, head_dim / 2] of pos[r] * inv_freq[i]; the product is rounded to f32
 * before the cosine, as the public models do. inv_freq f32 [head_dim / 2]. */
OG_MUST_CHECK int og_op_rope_table(og_exec *ex, og_tensor *cos, og_tensor *sin,
                                   const og_rows *rows, const og_tensor *inv_freq);
/* In place: q [R, H, D] and k [R, Hkv, D] get per-head rms_norm (weights [D], rank 0: none),
 * then RoPE in halves layout (i pairs with i + D/2); k and v [R, Hkv, D] are appended to kv
 * at each row's position. Composed by default. */
OG_MUST_CHECK int og_op_qk_norm_rope_append(og_exec *ex, og_tensor *q, og_tensor *k,
                                            const og_tensor *v, const og_tensor *q_norm,
                                            const og_tensor *k_norm, float eps,
                                            const og_tensor *cos, const og_tensor *sin,
                                            const og_rows *rows, og_kv *kv);
/* y [R, H, D]: softmax(q k^T * scale) v over the keys of the row's slot at positions
 * max(0, pos - window + 1) .. pos (window 0: all of them), ascending. Query head h reads kv
 * head h / (H / Hkv). The rows' own keys must have been appended; with a ring the pages must
 * hold window + the longest segment. */
OG_MUST_CHECK int og_op_attn_paged(og_exec *ex, og_tensor *y, const og_tensor *q,
                                   const og_kv *kv, const og_rows *rows, float scale,
                                   int window);

/* ---- rows ---------------------------------------------------------------------- */

/* A sum of table rows for each output row: y[r] = ((t0 + t1) + t2) ... left to right, where
 * term j of row r is tables[table[j]][index[j]], j in [off[r], off[r+1]). No term: zeros. */
typedef struct og_row_prog {
    const og_tensor *tables; /* each [N_i, D], any float dtype */
    int n_tables;
    const int32_t *off;   /* [R + 1] */
    const int32_t *table; /* [off[R]] */
    const int32_t *index; /* [off[R]] */
} og_row_prog;
OG_MUST_CHECK int og_op_row_sum(og_exec *ex, og_tensor *y, const og_row_prog *prog);

/* ---- convolution over packed rows, time-major ----------------------------------- */

/* Causal convolution, stride 1. x f32 [R, Cin] packed by rows->cu; w [Cout, k, Cin] as made
 * by og_pack_conv1d; y f32 [R, Cout]. state f32 [n_slots, (k-1)*dilation, Cin] holds the
 * input columns before each segment's first and is moved on; zeros are the left padding of
 * a new sequence. Absent (rank 0) when k is 1. epi as in linear. The sum runs over taps
 * ascending, then channels. */
OG_MUST_CHECK int og_op_conv1d(og_exec *ex, og_tensor *y, const og_tensor *x,
                               const og_tensor *w, const og_tensor *bias, og_tensor *state,
                               const og_rows *rows, int dilation, const og_epilogue *epi);
/* Depthwise: w [C, k], x and y [R, C]. */
OG_MUST_CHECK int og_op_conv1d_depthwise(og_exec *ex, og_tensor *y, const og_tensor *x,
                                         const og_tensor *w, const og_tensor *bias,
                                         og_tensor *state, const og_rows *rows, int dilation);
/* Transposed convolution with stride r, the last k - r samples of the sequence cut, so that
 * T columns give T * r. w as made by og_pack_conv_transpose1d: [r * Cout, ceil(k / r), Cin],
 * r phases of a causal convolution over inputs; y f32 [R * r, Cout]; state
 * [n_slots, ceil(k / r) - 1, Cin]. bias [Cout]. rows describes x. */
OG_MUST_CHECK int og_op_conv_transpose1d(og_exec *ex, og_tensor *y, const og_tensor *x,
                                         const og_tensor *w, const og_tensor *bias,
                                         og_tensor *state, const og_rows *rows, int stride);

/* Load-time repacks on the host, dtype kept. From [Cout, Cin, k] (torch Conv1d) to
 * [Cout, k, Cin]; from [Cin, Cout, k] (torch ConvTranspose1d) to [r*Cout, ceil(k/r), Cin]:
 * phase p, tap j reads kernel column p + (taps - 1 - j) * r, zero past k. */
void og_pack_conv1d(og_tensor *y, const og_tensor *x);
void og_pack_conv_transpose1d(og_tensor *y, const og_tensor *x, int stride);

/* ---- whole sequences: x is one sequence [T, C], time-major ------------------------ */

typedef enum og_pad {
    OG_PAD_ZERO,
    OG_PAD_EDGE,   /* the nearest row */
    OG_PAD_REFLECT /* mirrored, the edge row once: needs fewer rows than T on each side */
} og_pad;
/* y[t] = x[t - left], and what the mode says outside of x; y f32 [left + T + right, C]. */
OG_MUST_CHECK int og_op_pad_time(og_exec *ex, og_tensor *y, const og_tensor *x, int64_t left,
                                 og_pad mode);
/* Convolution without padding: y[t] sums over x[t * stride + j * dilation], j < k. w
 * [Cout, k, Cin] as made by og_pack_conv1d, x dense, y f32 [(T - (k-1) * dilation - 1) /
 * stride + 1, Cout]; stride or dilation is 1. epi as in linear. Composed by default. */
OG_MUST_CHECK int og_op_conv1d_valid(og_exec *ex, og_tensor *y, const og_tensor *x,
                                     const og_tensor *w, const og_tensor *bias, int stride,
                                     int dilation, const og_epilogue *epi);
/* y [T, F] = sqrt(re^2 + im^2 + eps) of x [T, 2F], real parts first. */
OG_MUST_CHECK int og_op_magnitude(og_exec *ex, og_tensor *y, const og_tensor *x, float eps);
/* y = ln(max(x, floor)), floor > 0. */
OG_MUST_CHECK int og_op_log_floor(og_exec *ex, og_tensor *y, const og_tensor *x,
                                  float floor);
/* Each channel by itself: softmax over its T values; y may be x. */
OG_MUST_CHECK int og_op_softmax_time(og_exec *ex, og_tensor *y, const og_tensor *x);
/* Of each channel: mean = sum of w * x, std = sqrt(max(sum of w * (x - mean)^2, floor)),
 * summed in double. w [T, C], each column with the sum 1, or absent: 1 / T. mean and std
 * f32 [C]; std may be absent. */
OG_MUST_CHECK int og_op_time_stats(og_exec *ex, og_tensor *mean, og_tensor *std,
                                   const og_tensor *x, const og_tensor *w, float floor);
/* ids[r] = the row of table that is nearest to x[r] by Euclidean distance, the lowest of
 * equals; decided in double, so that all backends agree. x f32 [R, D], table f32 [N, D],
 * ids i32 [R] at any stride. */
OG_MUST_CHECK int og_op_rvq_nearest(og_exec *ex, og_tensor *ids, const og_tensor *x,
                                    const og_tensor *table);

/* ---- sampling ------------------------------------------------------------------ */

/* Parameters of one row. In this order, as the public engines do: repetition, presence and
 * frequency penalty over the ids counted in history; min_tokens ban of the stop ids; the
 * allowed mask; temperature; top_k (ties at the k-th stay); top_p (ascending, drop while the
 * mass is <= 1 - top_p, the largest always stays); min_p; then one Philox draw for each
 * vocabulary index and the Gumbel maximum. temperature 0 is greedy: the first maximum. The
 * arithmetic, the same to the bit on every backend, is spelled out in kernels/sample.h. */
typedef struct og_sample_row {
    float temperature, top_p, min_p;
    float repetition_penalty, presence_penalty, frequency_penalty;
    int32_t top_k;      /* <= 0: off */
    int32_t min_tokens; /* stop ids are banned while count < min_tokens */
    uint64_t seed;      /* of the request */
    uint32_t stage;     /* Philox key: which stage ... */
    uint32_t codebook;  /* ... and which codebook draws */
    uint64_t count;     /* tokens of this request so far: the counter */
} og_sample_row;

/* ids i32 [R]; logits f32 [R, V], changed in place; rows [R]; history i32 [R, V] counts of
 * the ids chosen so far or absent; allowed u8 [V] (0: never) or absent; stop_ids i32 [S] or
 * absent: banned below min_tokens. */
OG_MUST_CHECK int og_op_sample(og_exec *ex, og_tensor *ids, og_tensor *logits,
                               const og_sample_row *rows, const og_tensor *history,
                               const og_tensor *allowed, const og_tensor *stop_ids);

/* Philox 4x32-10 (Salmon et al., SC 2011): the four words for (key, counter). */
void og_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

/* ---- macro ops: composed by default (kernels/compose.c) --------------------------- */

/* One pre-norm decoder layer, weights as in the checkpoint; optional tensors have rank 0. */
typedef struct og_decoder_layer {
    og_tensor input_norm;             /* [D] */
    og_tensor q, k, v, o;             /* [H*hd, D] [Hkv*hd, D] [Hkv*hd, D] [D, H*hd] */
    og_tensor q_norm, k_norm;         /* [hd], optional */
    og_tensor attn_scale;             /* [D] layer scale of the attention branch, optional */
    og_tensor post_norm;              /* [D] */
    og_tensor gate, up, down;         /* [F, D] [F, D] [D, F] */
    og_tensor mlp_scale;              /* [D], optional */
} og_decoder_layer;

typedef struct og_decoder {
    const og_decoder_layer *layers;
    int n_layers, n_heads, n_kv_heads, head_dim;
    int window; /* 0: full causal */
    float eps;
    og_tensor final_norm; /* [D], rank 0: none */
    og_tensor inv_freq;   /* f32 [head_dim / 2] */
    const char *tap;      /* prefix of the tap names */
} og_decoder;

/* x [R, D] in place through all layers, then the final norm. kv: one per layer. */
OG_MUST_CHECK int og_op_decoder_stack(og_exec *ex, og_tensor *x, const og_decoder *net,
                                      og_kv *kv, const og_rows *rows);

/* The code predictor of a frame (RQ-Transformer style depth decoder): for each row, from the
 * talker's normed state and the first code, draws groups 1 .. n_groups-1 one after another.
 * Pass 0 feeds [state, first embedding], pass g the embedding of group g's code. */
typedef struct og_depth {
    og_decoder net;
    int n_groups;             /* with group 0 */
    og_tensor first;          /* embedding of group 0 [V0, H] */
    const og_tensor *embed;   /* n_groups - 1 tables [V, H]; table g-1 embeds group g */
    const og_tensor *head;    /* n_groups - 1 heads [V, Hc]; head g-1 draws group g */
    og_tensor proj, proj_bias; /* [Hc, H], [Hc]; rank 0 when the widths agree */
} og_depth;
/* codes i32 [R, n_groups], column 0 given; state f32 [R, H]; kv one per layer, each slot
 * with room for n_groups + 1 positions; slots [R]; rows[r] the parameters of row r (its
 * codebook field is set here). */
OG_MUST_CHECK int og_op_depth_ar(og_exec *ex, og_tensor *codes, const og_tensor *state,
                                 const og_depth *net, og_kv *kv, const int32_t *slots,
                                 const og_sample_row *rows);

#ifdef __cplusplus
}
#endif
#endif
