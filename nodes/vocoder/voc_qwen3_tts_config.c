/* Qwen3-TTS code2wav: its configuration, and the sizes that follow from it. */
#include <stdarg.h>
#include <string.h>

#include "nodes/vocoder/voc_qwen3_tts.h"

#define SEC "decoder_config."
enum { MAX_WIDTH = 1 << 16, MAX_HOP = 1 << 16 };

static int OG_PRINTF(4, 5)
    bad(og_err *err, int code, const char *key, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    og_err_setv(err, code, fmt, ap);
    va_end(ap);
    og_err_field(err, key);
    return code;
}

int og__voc_dilation(int unit) {
    static const int dilation[VOC_UNITS] = {1, 3, 9};
    return dilation[unit];
}

int og__voc_kv_ring(const og__voc_cfg *c, const og_vocoder_limits *lim) {
    int span = c->window - 1 + lim->max_chunk;
    return (span + VOC_KV_PAGE - 2) / VOC_KV_PAGE + 1;
}

static int read_quantizer(const json_t *root, og__voc_cfg *c, og_err *err) {
    int rc =
        og_cfg_int(root, SEC "num_quantizers", &c->groups, 2, OG_VOCODER_MAX_GROUPS, err);
    if (rc < 0) return rc;
    rc = og_cfg_int_or(root, SEC "num_semantic_quantizers", &c->semantic, 1, 1,
                       c->groups - 1, err);
    if (rc < 0) return rc;
    rc = og_cfg_int(root, SEC "codebook_size", &c->codebook_size, 1,
                    OG_VOCODER_MAX_CODEBOOK, err);
    if (rc < 0) return rc;
    rc = og_cfg_int(root, SEC "codebook_dim", &c->codebook_dim, 2, MAX_WIDTH, err);
    if (rc < 0) return rc;
    if (c->codebook_dim % 2) {
        return bad(err, OG_EFORMAT, SEC "codebook_dim",
                   SEC "codebook_dim must be even, not %d", c->codebook_dim);
    }
    return og_cfg_int(root, SEC "latent_dim", &c->latent, 1, MAX_WIDTH, err);
}

static int read_transformer(const json_t *root, og__voc_cfg *c, og_err *err) {
    const char *act = NULL;
    int bias = 0;
    int rc = og_cfg_int(root, SEC "hidden_size", &c->width, 1, MAX_WIDTH, err);
    if (rc < 0) return rc;
    rc = og_cfg_int(root, SEC "intermediate_size", &c->ffn, 1, MAX_WIDTH, err);
    if (rc < 0) return rc;
    rc = og_cfg_int(root, SEC "num_hidden_layers", &c->n_layers, 1, 512, err);
    if (rc < 0) return rc;
    rc = og_cfg_int(root, SEC "num_attention_heads", &c->n_heads, 1, 1024, err);
    if (rc < 0) return rc;
    rc = og_cfg_int_or(root, SEC "num_key_value_heads", &c->n_kv_heads, c->n_heads, 1,
                       c->n_heads, err);
    if (rc < 0) return rc;
    rc = og_cfg_int_or(root, SEC "head_dim", &c->head_dim, c->width / c->n_heads, 1, 4096,
                       err);
    if (rc < 0) return rc;
    rc = og_cfg_int(root, SEC "sliding_window", &c->window, 1, 1 << 20, err);
    if (rc < 0) return rc;
    rc = og_cfg_float_or(root, SEC "rms_norm_eps", &c->eps, 1e-5f, 0, 1, err);
    if (rc < 0) return rc;
    rc = og_cfg_float_or(root, SEC "rope_theta", &c->theta, 1e4f, 1, 1e12, err);
    if (rc < 0) return rc;
    rc = og_cfg_str_or(root, SEC "hidden_act", &act, "silu", err);
    if (rc < 0) return rc;
    rc = og_cfg_bool_or(root, SEC "attention_bias", &bias, 0, err);
    if (rc < 0) return rc;

    if (strcmp(act, "silu") != 0) {
        return bad(err, OG_EUNSUPPORTED, SEC "hidden_act",
                   SEC "hidden_act must be \"silu\", not \"%s\"", act);
    }
    if (bias) {
        return bad(err, OG_EUNSUPPORTED, SEC "attention_bias",
                   SEC "attention_bias is not supported");
    }
    if (c->head_dim < 2 || c->head_dim % 2) {
        return bad(err, OG_EFORMAT, SEC "head_dim", SEC "head_dim must be even, not %d",
                   c->head_dim);
    }
    if (c->n_heads % c->n_kv_heads) {
        return bad(err, OG_EFORMAT, SEC "num_key_value_heads",
                   SEC "num_attention_heads (%d) must be a multiple of " SEC
                       "num_key_value_heads (%d)",
                   c->n_heads, c->n_kv_heads);
    }
    return 0;
}

/* The product of all rates is the number of samples of a frame. */
static int read_rates(const json_t *root, og__voc_cfg *c, og_err *err) {
    int rc = og_cfg_int(root, SEC "decoder_dim", &c->channels, 1, MAX_WIDTH, err);
    if (rc < 0) return rc;
    rc = og_cfg_int_array(root, SEC "upsampling_ratios", c->up, VOC_MAX_STAGES, &c->n_up,
                          1, 64, err);
    if (rc < 0) return rc;
    rc = og_cfg_int_array(root, SEC "upsample_rates", c->rate, VOC_MAX_STAGES,
                          &c->n_blocks, 1, 64, err);
    if (rc < 0) return rc;
    if (c->channels % (1 << c->n_blocks)) {
        return bad(
            err, OG_EFORMAT, SEC "decoder_dim",
            SEC
            "decoder_dim (%d) must be a multiple of %d: each of the %d entries of " SEC
            "upsample_rates halves it",
            c->channels, 1 << c->n_blocks, c->n_blocks);
    }
    int64_t hop = 1;
    for (int i = 0; i < c->n_up && hop <= MAX_HOP; i++) hop *= c->up[i];
    for (int i = 0; i < c->n_blocks && hop <= MAX_HOP; i++) hop *= c->rate[i];
    if (hop > MAX_HOP) {
        return bad(err, OG_ELIMIT, SEC "upsample_rates",
                   "the product of " SEC "upsampling_ratios and " SEC "upsample_rates is "
                   "over %d samples a frame",
                   MAX_HOP);
    }
    c->samples_per_frame = (int)hop;

    int stated = 0;
    rc = og_cfg_int_or(root, "decode_upsample_rate", &stated, (int)hop, 1, MAX_HOP, err);
    if (rc < 0) return rc;
    if (stated != hop) {
        return bad(err, OG_EFORMAT, "decode_upsample_rate",
                   "decode_upsample_rate is %d, but the product of " SEC
                   "upsampling_ratios "
                   "and " SEC "upsample_rates is %d",
                   stated, (int)hop);
    }
    return og_cfg_int(root, "output_sample_rate", &c->sample_rate, 1000, 768000, err);
}

int og__voc_config(const json_t *root, og__voc_cfg *c, og_err *err) {
    *c = (og__voc_cfg){0};
    int rc = read_quantizer(root, c, err);
    if (rc < 0) return rc;
    rc = read_transformer(root, c, err);
    if (rc < 0) return rc;
    return read_rates(root, c, err);
}

/* Values carried per slot: columns of every convolution with a past, and the KV ring. */
static size_t state_values(const og__voc_cfg *c, const og_vocoder_limits *lim) {
    size_t past = VOC_KERNEL - 1, n = 0;
    n += (size_t)(VOC_PRE_KERNEL - 1) * (size_t)c->codebook_dim;
    n += (size_t)(c->n_up + 1) * past * (size_t)c->latent;
    for (int i = 0; i < c->n_blocks; i++) {
        n += (size_t)(c->channels >> i);
        for (int u = 0; u < VOC_UNITS; u++) {
            n += past * (size_t)og__voc_dilation(u) * (size_t)(c->channels >> (i + 1));
        }
    }
    n += past * (size_t)(c->channels >> c->n_blocks);
    size_t positions = (size_t)og__voc_kv_ring(c, lim) * VOC_KV_PAGE;
    return n +
           2 * (size_t)c->n_layers * positions * (size_t)(c->n_kv_heads * c->head_dim);
}

static size_t weight_values(const og__voc_cfg *c) {
    size_t dim = (size_t)c->codebook_dim, latent = (size_t)c->latent,
           w = (size_t)c->width;
    size_t heads = (size_t)(c->n_heads + c->n_kv_heads) * (size_t)c->head_dim;
    size_t n = (size_t)c->groups * (size_t)c->codebook_size * dim / 2 + dim * dim;
    n += latent * dim * VOC_PRE_KERNEL + 2 * latent * w;
    n += (size_t)c->n_layers * (2 * w * heads + 3 * w * (size_t)c->ffn);
    for (int i = 0; i < c->n_up; i++) n += latent * latent * (size_t)(c->up[i] + 8);
    n += latent * (size_t)c->channels * VOC_KERNEL;
    for (int i = 0; i < c->n_blocks; i++) {
        size_t half = (size_t)(c->channels >> (i + 1));
        n += 4 * half * half * (size_t)c->rate[i];
        n += VOC_UNITS * half * half * (VOC_KERNEL + 1);
    }
    return n;
}

int og__voc_dims(const json_t *root, const og_vocoder_limits *lim, og_vocoder_dims *out,
                 og_err *err) {
    og__voc_cfg c;
    int rc = og__voc_config(root, &c, err);
    if (rc < 0) return rc;
    *out = (og_vocoder_dims){.groups = c.groups,
                             .samples_per_item = c.samples_per_frame,
                             .rate = c.sample_rate,
                             .state_bytes = state_values(&c, lim) * sizeof(float),
                             .weight_bytes = weight_values(&c) * sizeof(float)};
    for (int g = 0; g < c.groups; g++) out->codebook[g] = c.codebook_size;
    return 0;
}
