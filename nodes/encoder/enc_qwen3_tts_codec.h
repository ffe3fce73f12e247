/* Qwen3-TTS codec encoder: what its configuration, its loader and its forward pass share.
 * Private to nodes/encoder; the network itself is described in enc_qwen3_tts_codec.c. */
#ifndef OG_ENC_QWEN3_TTS_CODEC_H
#define OG_ENC_QWEN3_TTS_CODEC_H

#include "nodes/encoder/enc_net.h"

enum {
    CODEC_MAX_STAGES = 8, /* entries of upsampling_ratios */
    CODEC_MAX_GROUPS = 64,
    CODEC_DOWN = 2, /* stride of the last downsampling, whose kernel is twice that */
};

/* encoder_config, with the derived numbers. */
typedef struct og__codec_cfg {
    int rate, frame;  /* samples per second, samples per code frame */
    int groups, semantic; /* quantizers that are used; of them, semantic ones */
    int hidden, filters, kernel, last_kernel, res_kernel, compress;
    int n_stages, ratio[CODEC_MAX_STAGES]; /* strides, in the order of the layers */
    int hop;                               /* their product: samples per position */
    int n_layers, ffn, n_heads, n_kv_heads, head_dim;
    float theta, eps;
    int codebook_size, codebook_dim;
} og__codec_cfg;

/* Residual unit, then ELU and the strided convolution. States hold the input columns before
 * the next chunk. */
typedef struct og__codec_stage {
    int channels; /* of the input; the output has twice as many */
    og__enc_conv res1, res2, down;  /* [C/compress, k, C] [C, C/compress] [2C, 2r, C] */
    og_tensor res_state, down_state; /* [1, k-1, C] [r, C] */
} og__codec_stage;

typedef struct og__codec_layer {
    og_tensor norm1_w, norm1_b, q, k, v, o, scale1;
    og_tensor norm2_w, norm2_b, fc1, fc2, scale2;
} og__codec_layer;

typedef struct og__codec_net {
    og__codec_cfg cfg;
    og__enc_mem mem;
    int64_t chunk; /* samples of a piece of the convolutions, a multiple of hop */

    og__enc_conv first, last;
    og_tensor first_state, last_state; /* [1, k-1, C] */
    og__codec_stage stage[CODEC_MAX_STAGES];
    og__codec_layer *layers;
    og_tensor inv_freq;   /* f32 [head_dim / 2] */
    og_tensor downsample; /* [hidden, 4, hidden] */
    og_tensor semantic_proj, acoustic_proj;  /* [codebook_dim, hidden] */
    og_tensor codebook[CODEC_MAX_GROUPS];    /* f32 [codebook_size, codebook_dim] */

    og_tensor latent;   /* f32 [positions of the longest clip, hidden] */
    /* On the device: all zero, long enough for any piece; 0 1 2 ... three times each. */
    int32_t *slot, *pos;
} og__codec_net;

static inline int64_t og__codec_positions(const og__codec_cfg *c, int64_t samples) {
    return (samples + c->hop - 1) / c->hop;
}

/* Read and check every key; messages name it. */
int og__codec_config(const json_t *root, og__codec_cfg *c, og_err *err);
int og__codec_dims(const json_t *root, int max_seconds, og_encoder_dims *out, og_err *err);
int og__codec_load(const og_node_cfg *cfg, int max_seconds, void **net, og_encoder_dims *dims,
                   og_err *err);
void og__codec_unload(void *net);

#endif
