/* Qwen3-TTS code2wav: what its configuration, its loader and its forward pass share.
 * Private to nodes/vocoder; the network itself is described in voc_qwen3_tts.c. */
#ifndef OG_VOC_QWEN3_TTS_H
#define OG_VOC_QWEN3_TTS_H

#include "nodes/blocks/graphs.h"
#include "nodes/blocks/place.h"
#include "nodes/vocoder/vocoder.h"

enum {
    VOC_MAX_STAGES = 8, /* entries of upsampling_ratios, and of upsample_rates */
    VOC_UNITS = 3,      /* residual units of a decoder block */
    VOC_KV_PAGE = 16,   /* positions per KV page */
    VOC_PRE_KERNEL = 3, /* pre_conv */
    VOC_KERNEL = 7,     /* every other causal convolution with a view of the past */
};

/* decoder_config, with the derived numbers. */
typedef struct og__voc_cfg {
    int groups, semantic, codebook_size, codebook_dim, latent;
    int width, ffn, n_layers, n_heads, n_kv_heads, head_dim, window;
    float eps, theta;
    int channels;                       /* decoder_dim; block i has channels >> (i + 1) */
    int n_up, up[VOC_MAX_STAGES];       /* upsampling_ratios */
    int n_blocks, rate[VOC_MAX_STAGES]; /* upsample_rates */
    int samples_per_frame, sample_rate;
} og__voc_cfg;

/* w is [Cout, k, Cin] (or [r*Cout, taps, Cin]) after loading; state holds the columns
 * before the next one and has rank 0 where nothing is carried. */
typedef struct og__voc_conv {
    og_tensor w, b, state;
} og__voc_conv;

typedef struct og__voc_snake {
    og_tensor alpha, inv_beta; /* f32 [C], out of their logarithms */
} og__voc_snake;

typedef struct og__voc_upsample {
    og__voc_conv up; /* [latent * r, 1, latent] */
    og_tensor dw_w, dw_b, dw_state;
    og_tensor norm_w, norm_b;
    og_tensor pw1_w, pw1_b, pw2_w, pw2_b; /* [4 latent, latent], [latent, 4 latent] */
    og_tensor gamma;
} og__voc_upsample;

typedef struct og__voc_unit {
    og__voc_snake act1, act2;
    og__voc_conv conv1;
    og_tensor conv2_w, conv2_b; /* [C, C]: the k 1 convolution is a linear layer */
} og__voc_unit;

typedef struct og__voc_block {
    og__voc_snake act;
    og__voc_conv up; /* [C/2 * r, 2, C] */
    og__voc_unit unit[VOC_UNITS];
} og__voc_block;

/* Rows at one time resolution: frames times `times`. Ops ask for the slot of a segment at its
 * first row, so that no other entry of slot is ever written. */
typedef struct og__voc_level {
    int times;
    int32_t at;      /* of its first row in all_slots */
    int32_t *slot;   /* on the device */
    int32_t *cu;     /* on the host, and below as ops see it in this step */
    const int32_t *cu_seen;
} og__voc_level;

/* What one step runs on, as ops see it. */
typedef struct og__voc_step {
    og_rows frames;
    const int32_t *first_index, *rest_index; /* of the two quantizer sums */
    og_tensor slot_ids, slot_values;         /* what goes into all_slots */
    og_tensor y;                             /* samples */
} og__voc_step;

typedef struct og__voc_net {
    og__voc_cfg cfg;
    og_vocoder_limits lim;
    og_exec *ex;
    og_device *dev;
    og_store store; /* weights, and tables that never change */
    size_t weight_bytes;

    og_tensor *codebook; /* [groups] of f32 [codebook_size, codebook_dim / 2] */
    og_tensor proj_first, proj_rest; /* [codebook_dim, codebook_dim / 2] */
    og__voc_conv pre_conv;
    og_tensor in_w, in_b, out_w, out_b; /* input_proj, output_proj */
    og_decoder_layer *layers;
    og_decoder stack;
    og_kv *kv; /* [n_layers] */
    og__voc_upsample up[VOC_MAX_STAGES];
    og__voc_conv first; /* decoder.0 */
    og__voc_block block[VOC_MAX_STAGES];
    og__voc_snake last_act;
    og__voc_conv last;

    /* The row programs of the two quantizer sums; only the indices change. */
    og_tensor first_off, first_table, rest_off, rest_table;
    int32_t *first_index, *rest_index;
    og__voc_level
        level[1 + 2 * VOC_MAX_STAGES]; /* frames, after each up, after each block */
    int n_levels;
    og_tensor all_slots;               /* i32 [rows of all levels but the first, 1] */
    int32_t *slot_ids, *slot_values;   /* [slots] of each level */
    og__voc_step step;
    og_graphs graphs;

    og_tensor **states; /* every state tensor above, [slots, ...] each */
    int n_states;
    void **dev_mem, **host_mem; /* what unload gives back */
    int n_dev, n_host;
} og__voc_net;

/* Dilation of residual unit i of a block. */
int og__voc_dilation(int unit);
/* Pages in a slot's KV ring: the window and the longest segment, wherever it starts. */
int og__voc_kv_ring(const og__voc_cfg *c, const og_vocoder_limits *lim);
/* Read and check every key; messages name it. */
int og__voc_config(const json_t *root, og__voc_cfg *c, og_err *err);

int og__voc_load(const og_node_cfg *node, const og_vocoder_limits *lim, void **net,
                 og_vocoder_dims *dims, og_err *err);
void og__voc_unload(void *net);
int og__voc_dims(const json_t *root, const og_vocoder_limits *lim, og_vocoder_dims *out,
                 og_err *err);

#endif
