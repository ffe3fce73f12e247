/* The encoder kind: reads a whole clip and gives codes or one vector.
 *
 * An arch of this kind is an og_encoder_impl. The kind owns slots, the samples that were
 * fed, the order of the clips and the cache of results; the arch owns weights and the
 * buffers of the one clip that is being encoded. Clips are encoded one after another, each
 * in pieces of bounded work, one piece a step, so that a long clip does not hold up the
 * nodes that share the executor, and a cancelled one ends at the next piece.
 *
 * What an engine feeds: the input port takes f32 samples [n] in one chunk with OG_LAST or in
 * many; max_items of the job is the number of samples (0: not known, the node's limit
 * holds). LAST without any sample is an absent input: the output is closed without an item.
 * What it gets: all items of the output in one commit with OG_FIRST | OG_LAST, reserved as
 * it is committed; the port needs room for og_encoder_items() of them.
 *
 * Results are kept by content: the key is the SHA-256 of the samples, the arch and the
 * fingerprint of the checkpoint, so a clip that was heard before costs a copy. The cache is
 * bounded in bytes (option cache_bytes) and forgets what was not used for longest; hits and
 * misses are in og_node_stats.
 *
 * Memory. The cache and the arch's buffers for the longest clip (option max_seconds) are
 * planned in create, a job's samples in admit. Nothing is allocated in a step.
 *
 * Errors. A clip that is longer than the limit or shorter than the network can take is
 * OG_ELIMIT with both numbers, from fits and admit where max_items tells, else from feed; a
 * sample that is not finite is OG_EINVAL from feed. All of them end the job alone.
 *
 *     static const og_encoder_impl impl = {my_dims, my_load, my_unload, my_pieces, my_piece};
 *     const og_arch og_arch_my_encoder = {.kind = OG_KIND_ENCODER, .options = options,
 *                                         .impl = &impl, ...};
 */
#ifndef OG_ENCODER_H
#define OG_ENCODER_H

#include "nodes/node.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_ENCODER_MAX_SECONDS 600

/* What the kind has to know of a network. */
typedef struct og_encoder_dims {
    int rate;              /* samples per second of the input */
    int64_t min_items;     /* samples of the shortest clip */
    int64_t max_items;     /* samples of the longest, from max_seconds */
    int64_t items_per_out; /* n samples give ceil(n / this) items; 0: one item */
    og_dtype dtype;        /* of the output: OG_I32 or OG_F32 */
    int64_t width;         /* values of an item */
    size_t weight_bytes;
    size_t state_bytes;    /* buffers of the clip that is being encoded */
} og_encoder_dims;

/* Items that a clip of n samples gives. */
int64_t og_encoder_items(const og_encoder_dims *d, int64_t n);

typedef struct og_encoder_impl {
    /* Facts from the config section alone; the byte counts are estimates here. */
    int (*dims)(const json_t *section, int max_seconds, og_encoder_dims *out, og_err *err);
    /* Bind and prepare weights, allocate buffers for clips of max_seconds. On failure *net
     * is NULL and everything is given back. dims gets the exact byte counts. */
    int (*load)(const og_node_cfg *cfg, int max_seconds, void **net, og_encoder_dims *dims,
                og_err *err);
    void (*unload)(void *net); /* NULL is fine */
    /* Pieces of work of a clip of n samples, at least 1. */
    int (*pieces)(const void *net, int64_t n);
    /* Do piece i of the clip x, f32 [n]. They come in order from 0 and without another clip
     * in between, but a clip may be left unfinished. The last one makes *y the result,
     * [items, width] in the exec's scratch. In MEASURE mode x has no data and any piece may
     * come. 0 or a negative OG_E*, words in og_exec_error(). */
    int (*piece)(void *net, og_exec *ex, int i, const og_tensor *x, og_tensor *y);
} og_encoder_impl;

/* Options that every encoder arch lists, since the kind reads them. */
/* clang-format off */
#define OG_ENCODER_OPTIONS                                                                  \
    {"max_seconds", OG_OPT_INT, "60", 1, OG_ENCODER_MAX_SECONDS, 1,                         \
     "longest clip; bounds the buffers and the scratch memory"},                            \
    {"cache_bytes", OG_OPT_INT, "16777216", 0, 1099511627776.0, 1,                          \
     "memory for results of clips that were heard before; 0: none are kept"}
/* clang-format on */

extern const og_node_api og_encoder_api;
OG_MUST_CHECK int og_encoder_plan(const og_arch *a, const og_node_cfg *cfg,
                                  og_node_plan *out, og_err *err);
extern const og_kind_desc og_kind_encoder;

extern const og_arch og_arch_qwen3_tts_speaker;
extern const og_arch og_arch_qwen3_tts_codec_encoder;

#ifdef __cplusplus
}
#endif
#endif
