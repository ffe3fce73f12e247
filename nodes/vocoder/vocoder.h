/* The vocoder kind: code frames in, audio samples out, with state carried per slot.
 *
 * An arch of this kind is an og_vocoder_impl. The kind owns slots, queues and batching:
 * it keeps the frames that were fed to a job until they are decoded, packs the pending
 * frames of many jobs into one forward pass, and hands each job its samples. The arch
 * owns weights and the state of each slot, and sees packed rows only.
 *
 * Frames of one job may be cut anywhere: a causal arch gives the same samples, bit for
 * bit, for every chunking and every company in the batch, because its state is input
 * columns and every position is absolute.
 *
 * Memory. All is planned in create: a job's queue holds max_model_len frames (two bytes a
 * code, touched only as far as frames come), so a chunk is copied and dropped inside
 * feed. Nothing is allocated in a step.
 *
 * Threads: as in nodes/node.h, all on the executor's thread.
 *
 *     static const og_vocoder_impl impl = {my_dims, my_load, my_unload, my_forward,
 *                                          my_reset};
 *     const og_arch og_arch_my_code2wav = {.kind = OG_KIND_VOCODER, .options = options,
 *                                          .impl = &impl, ...};
 */
#ifndef OG_VOCODER_H
#define OG_VOCODER_H

#include "nodes/node.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_VOCODER_MAX_GROUPS 64
#define OG_VOCODER_MAX_CODEBOOK 65536 /* codes are queued as 16 bits */

/* What the arch is allocated for. */
typedef struct og_vocoder_limits {
    int slots;     /* jobs at a time */
    int max_rows;  /* frames of one forward pass, all jobs together */
    int max_chunk; /* of them, frames of one job */
} og_vocoder_limits;

/* What the kind has to know of a network. */
typedef struct og_vocoder_dims {
    int groups;                          /* codes of a frame */
    int codebook[OG_VOCODER_MAX_GROUPS]; /* codes of group g are 0 .. codebook[g] - 1 */
    int samples_per_item;                /* samples of a frame */
    int rate;                            /* samples per second */
    int left_context, lookahead; /* frames; 0 in a causal arch, the only ones run yet */
    size_t state_bytes;          /* of one slot */
    size_t weight_bytes;         /* of the network */
} og_vocoder_dims;

typedef struct og_vocoder_impl {
    /* Facts from the config section alone; weight_bytes is an estimate here. */
    int (*dims)(const json_t *section, const og_vocoder_limits *lim, og_vocoder_dims *out,
                og_err *err);
    /* Bind and prepare weights, allocate the states of all slots (zero). On failure *net
     * is NULL and everything is given back. dims gets the exact weight_bytes. */
    int (*load)(const og_node_cfg *cfg, const og_vocoder_limits *lim, void **net,
                og_vocoder_dims *dims, og_err *err);
    void (*unload)(void *net); /* NULL is fine */
    /* Decode packed frames: codes [rows->n][groups], all in range; rows->slot and
     * rows->pos give the slot and the job's own frame number. *audio becomes an f32
     * [rows->n * samples_per_item] tensor in the exec's scratch. Moves the states of the
     * slots on. In MEASURE mode it only counts. 0 or a negative OG_E*, words in
     * og_exec_error(). */
    int (*forward)(void *net, og_exec *ex, og_tensor *audio, const int32_t *codes,
                   const og_rows *rows);
    /* Make the state of a slot that of silence before the first frame. */
    int (*reset)(void *net, og_exec *ex, int slot);
} og_vocoder_impl;

/* Options that every vocoder arch lists, since the kind reads them. */
/* clang-format off */
#define OG_VOCODER_OPTIONS                                                       \
    {"max_chunk_frames", OG_OPT_INT, "12", 1, 4096, 1,                           \
     "frames of one job in one step; longer input is decoded in such pieces"},   \
    {"max_step_frames", OG_OPT_INT, "64", 1, 4096, 1,                            \
     "frames of all jobs in one step; bounds the scratch memory"}
/* clang-format on */

extern const og_node_api og_vocoder_api;
OG_MUST_CHECK int og_vocoder_plan(const og_arch *a, const og_node_cfg *cfg,
                                  og_node_plan *out, og_err *err);
/* The row of the registry; og_kind_vocoder is the same by itself. */
/* clang-format off */
#define OG_KIND_VOCODER_DESC                                                     \
    {OG_KIND_VOCODER, "vocoder",                                                 \
     "turns code frames into audio samples, streaming with carried state: "      \
     "chunked output equals whole output, sample for sample",                    \
     &og_vocoder_api, og_vocoder_plan}
/* clang-format on */
extern const og_kind_desc og_kind_vocoder;
extern const og_arch og_arch_qwen3_tts_code2wav;

#ifdef __cplusplus
}
#endif
#endif
