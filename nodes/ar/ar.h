/* Between the kind ar_decoder and the networks that it runs.
 *
 * The kind owns jobs, slots, KV pages, batching, sampling parameters, stop rules and ports.
 * An arch owns weights and says, as ops, how rows become states, states become logits, a
 * first code becomes a frame, and a frame becomes the next input row. Every function that
 * takes an exec is called in RUN and in MEASURE mode and neither allocates nor waits.
 *
 * One step of the kind, R rows of several jobs packed behind one another:
 *
 *     x        = feedback(last frames) + feed rows | rows of prompts     [R, hidden]
 *     h        = stack(x)                                                [R, hidden]
 *     logits   = logits(h of each job's last row)                        [E, vocab]
 *     codes[0] = og_op_sample(logits)
 *     codes    = head(codes[0], h)                                       [E, groups]
 *
 * Rows are sums of terms (nodes/recipe.h). A table is either a tensor whose rows are added
 * as they lie (`direct`), or computed by `table` from the arguments of the terms.
 *
 * Ports are found by name; an arch has any of them:
 *     prompt  ROWS IN          rows before the first decoded token
 *     feed    ROWS IN STREAM   row i is added to the feedback of frame i, then `fill`
 *     codes   OUT STREAM       i32 [n, groups]
 *     tokens  OUT STREAM       i32 [n], the first code of each frame
 *     hidden  OUT STREAM       f32 [n, hidden], the state that the frame was drawn from
 *
 * The token that ends a decoding, by a stop id or by the limit, is in none of the outputs.
 * What an engine has to know of the input ports:
 *   - LAST on a chunk with rows (or with source < 0) says that no further recipe comes to
 *     the port; LAST on items of a source says that this source has ended.
 *   - A port without a feeder needs one empty LAST chunk: a job waits for feed rows until
 *     the port has ended.
 *   - Sources belong to a recipe: items are for the recipe that was fed last on their port
 *     (for the first one, before there is any). Items that recipes of two ports name are
 *     fed to both ports.
 *   - job->max_items bounds the rows of the prompt; 0 means all that the window can take.
 */
#ifndef OG_AR_H
#define OG_AR_H

#include "nodes/blocks/rows.h"
#include "nodes/node.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_AR_MAX_TABLES 8
#define OG_AR_PAGE 16 /* positions in a page of KV */

/* Sizes, from the config alone. */
typedef struct og_ar_dims {
    int hidden; /* width of rows and states */
    int vocab;  /* of the first code */
    int groups; /* codes in a frame; 1: tokens */
    int layers, kv_heads, head_dim;
    int depth_layers, depth_kv_heads, depth_head_dim; /* 0 layers: no depth head */
    int64_t max_positions;                            /* that the network was made for */
    int64_t n_params;
    int n_tables; /* the tables are filled in by the kind, from the arch's descriptor */
    og_row_table tables[OG_AR_MAX_TABLES];
} og_ar_dims;

/* The first member of every arch's model. */
typedef struct og_ar_model {
    og_tensor direct[OG_AR_MAX_TABLES]; /* [N, hidden]; rank 0: computed by `table` */
    og_tensor allowed;                  /* u8 [vocab], 0: never drawn; rank 0: all are */
    size_t weight_bytes;
} og_ar_model;

typedef struct og_ar_impl {
    int (*dims)(const json_t *section, og_ar_dims *out, og_err *err);
    int (*load)(const og_node_cfg *cfg, const og_ar_dims *d, og_ar_model **out, og_err *err);
    void (*unload)(og_ar_model *m); /* NULL is fine */

    /* y [n, hidden] from args: ids i32 [n], codes i32 [n, width], vectors f32 [n, width]. */
    int (*table)(const og_ar_model *m, og_exec *ex, int table, og_tensor *y,
                 const og_tensor *args);
    /* x [R, hidden] in place, through all layers and the final norm. */
    int (*stack)(const og_ar_model *m, og_exec *ex, og_tensor *x, og_kv *kv,
                 const og_rows *rows);
    /* y [n, vocab] = logits of the first code for states h [n, hidden]. */
    int (*logits)(const og_ar_model *m, og_exec *ex, og_tensor *y, const og_tensor *h);
    /* codes i32 [n, groups], column 0 given. NULL where groups is 1. */
    int (*head)(const og_ar_model *m, og_exec *ex, og_tensor *codes, const og_tensor *h,
                og_kv *kv, const int32_t *slots, const og_sample_row *rows);
    /* y [n, hidden] = the next input row of each job, from its last frame. */
    int (*feedback)(const og_ar_model *m, og_exec *ex, og_tensor *y, const og_tensor *codes);
} og_ar_impl;

/* The kind: api and plan. */
extern const og_node_api og_ar_api;
OG_MUST_CHECK int og_ar_plan(const og_arch *a, const og_node_cfg *cfg, og_node_plan *out,
                             og_err *err);

extern const og_arch og_arch_qwen3_tts_talker;

#ifdef __cplusplus
}
#endif
#endif
