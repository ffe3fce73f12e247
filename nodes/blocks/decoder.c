#include "nodes/blocks/decoder.h"
#include "kernels/base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_LAYERS 512
#define MAX_WIDTH (1 << 20)

static const char *key(char *buf, size_t size, const char *prefix, const char *name) {
    snprintf(buf, size, "%s%s", prefix, name);
    return buf;
}

static int need_int(const json_t *s, const char *prefix, const char *name, int *v,
                    int64_t max, og_err *err) {
    char k[128];
    return og_cfg_int(s, key(k, sizeof k, prefix, name), v, 1, max, err);
}

static int need_float(const json_t *s, const char *prefix, const char *name, float *v,
                      double min, double max, og_err *err) {
    char k[128];
    return og_cfg_float(s, key(k, sizeof k, prefix, name), v, min, max, err);
}

static int bad(og_err *err, const char *prefix, const char *name, const char *why, int a,
               int b) {
    char k[128];
    key(k, sizeof k, prefix, name);
    int rc = og_err_set(err, OG_EFORMAT, "%s: %s (%d and %d)", k, why, a, b);
    og_err_field(err, k);
    return rc;
}

static int read_flags(const json_t *s, const char *prefix, og_err *err) {
    char k[128];
    const char *act = NULL;
    int bias = 0;
    int rc = og_cfg_str_or(s, key(k, sizeof k, prefix, "hidden_act"), &act, "silu", err);
    if (!rc && strcmp(act, "silu") != 0) {
        rc = og_err_set(err, OG_EUNSUPPORTED, "%s: '%s' is not supported (silu is)", k, act);
        og_err_field(err, k);
    }
    if (!rc)
        rc = og_cfg_bool_or(s, key(k, sizeof k, prefix, "attention_bias"), &bias, 0, err);
    if (!rc && bias) {
        rc = og_err_set(err, OG_EUNSUPPORTED, "%s: biases are not supported", k);
        og_err_field(err, k);
    }
    return rc;
}

int og_decoder_cfg_read(const json_t *s, const char *prefix, og_decoder_cfg *c,
                        og_err *err) {
    char k[128];
    int positions;
    *c = (og_decoder_cfg){0};
    int rc = need_int(s, prefix, "hidden_size", &c->hidden, MAX_WIDTH, err);
    if (!rc) rc = need_int(s, prefix, "intermediate_size", &c->inter, MAX_WIDTH, err);
    if (!rc) rc = need_int(s, prefix, "num_hidden_layers", &c->layers, MAX_LAYERS, err);
    if (!rc) rc = need_int(s, prefix, "num_attention_heads", &c->heads, MAX_WIDTH, err);
    if (!rc) rc = need_int(s, prefix, "num_key_value_heads", &c->kv_heads, c->heads, err);
    if (!rc) rc = need_float(s, prefix, "rope_theta", &c->theta, 1.0, 1e12, err);
    if (!rc) rc = need_float(s, prefix, "rms_norm_eps", &c->eps, 0.0, 1.0, err);
    if (!rc) rc = read_flags(s, prefix, err);
    if (!rc)
        rc = og_cfg_int_or(s, key(k, sizeof k, prefix, "max_position_embeddings"),
                           &positions, 32768, 2, 1 << 24, err);
    if (!rc && c->heads % c->kv_heads)
        rc = bad(err, prefix, "num_key_value_heads", "does not divide num_attention_heads",
                 c->kv_heads, c->heads);
    if (!rc && !og_cfg_find(s, key(k, sizeof k, prefix, "head_dim")) &&
        c->hidden % c->heads)
        rc = bad(err, prefix, "num_attention_heads", "does not divide hidden_size, and there "
                 "is no head_dim", c->heads, c->hidden);
    if (!rc)
        rc = og_cfg_int_or(s, key(k, sizeof k, prefix, "head_dim"), &c->head_dim,
                           c->hidden / c->heads, 2, 4096, err);
    if (!rc && c->head_dim % 2)
        rc = bad(err, prefix, "head_dim", "RoPE pairs its halves, so it must be even",
                 c->head_dim, 2);
    if (!rc) c->max_positions = positions;
    return rc;
}

int64_t og_decoder_params(const og_decoder_cfg *c) {
    int64_t d = c->hidden, q = (int64_t)c->heads * c->head_dim;
    int64_t kv = (int64_t)c->kv_heads * c->head_dim;
    int64_t layer = 2 * d + 2 * d * q + 2 * d * kv + 3 * d * c->inter;
    if (c->qk_norm) layer += 2 * c->head_dim;
    if (c->layer_scale) layer += 2 * d;
    return c->layers * layer + d;
}

static void bind_layer(og_decoder_layer *l, const og_decoder_cfg *c, og_bind *b,
                       const char *p, int i) {
    int64_t d = c->hidden, hd = c->head_dim, q = c->heads * hd, kv = c->kv_heads * hd;
    int64_t f = c->inter;
    og_bind_get(b, &l->input_norm, og_ne1(d), "%slayers.%d.input_layernorm.weight", p, i);
    og_bind_get(b, &l->q, og_ne2(q, d), "%slayers.%d.self_attn.q_proj.weight", p, i);
    og_bind_get(b, &l->k, og_ne2(kv, d), "%slayers.%d.self_attn.k_proj.weight", p, i);
    og_bind_get(b, &l->v, og_ne2(kv, d), "%slayers.%d.self_attn.v_proj.weight", p, i);
    og_bind_get(b, &l->o, og_ne2(d, q), "%slayers.%d.self_attn.o_proj.weight", p, i);
    og_bind_get(b, &l->post_norm, og_ne1(d), "%slayers.%d.post_attention_layernorm.weight",
                p, i);
    og_bind_get(b, &l->gate, og_ne2(f, d), "%slayers.%d.mlp.gate_proj.weight", p, i);
    og_bind_get(b, &l->up, og_ne2(f, d), "%slayers.%d.mlp.up_proj.weight", p, i);
    og_bind_get(b, &l->down, og_ne2(d, f), "%slayers.%d.mlp.down_proj.weight", p, i);
    if (c->qk_norm) {
        og_bind_get(b, &l->q_norm, og_ne1(hd), "%slayers.%d.self_attn.q_norm.weight", p, i);
        og_bind_get(b, &l->k_norm, og_ne1(hd), "%slayers.%d.self_attn.k_norm.weight", p, i);
    }
    if (c->layer_scale) {
        og_bind_get(b, &l->attn_scale, og_ne1(d), "%slayers.%d.self_attn_layer_scale.scale",
                    p, i);
        og_bind_get(b, &l->mlp_scale, og_ne1(d), "%slayers.%d.mlp_layer_scale.scale", p, i);
    }
}

/* theta^(-2i / head_dim), rounded once (arXiv 2104.09864). */
static void fill_inv_freq(float *f, const og_decoder_cfg *c) {
    for (int i = 0; i < c->head_dim / 2; i++)
        f[i] = (float)(1.0 / pow((double)c->theta, 2.0 * i / c->head_dim));
}

int og_decoder_bind(og_decoder *net, const og_decoder_cfg *c, og_store *store, og_bind *b,
                    const char *prefix, og_err *err) {
    og_decoder_layer *layers = og_calloc((size_t)c->layers, sizeof *layers);
    if (!layers) return og_err_set(err, OG_ENOMEM, "no memory for %d layers", c->layers);
    *net = (og_decoder){.layers = layers,
                        .n_layers = c->layers,
                        .n_heads = c->heads,
                        .n_kv_heads = c->kv_heads,
                        .head_dim = c->head_dim,
                        .window = c->window,
                        .eps = c->eps,
                        .tap = net->tap};
    for (int i = 0; i < c->layers; i++) bind_layer(&layers[i], c, b, prefix, i);
    og_bind_get(b, &net->final_norm, og_ne1(c->hidden), "%snorm.weight", prefix);
    net->inv_freq = og_tensor_1d(OG_F32, c->head_dim / 2, NULL);
    float *f = og_store_make(store, &net->inv_freq, err);
    if (!f) return OG_ENOMEM;
    fill_inv_freq(f, c);
    return 0;
}

int og_decoder_place(og_decoder *net, og_store *store, og_err *err) {
    og_decoder_layer *layers = (og_decoder_layer *)(uintptr_t)net->layers;
    int rc = og_store_place(store, &net->inv_freq, err);
    if (!rc) rc = og_store_place(store, &net->final_norm, err);
    for (int i = 0; i < net->n_layers; i++) {
        og_decoder_layer *l = &layers[i];
        og_tensor *all[] = {&l->input_norm, &l->q,      &l->k,      &l->v,
                            &l->o,          &l->q_norm, &l->k_norm, &l->attn_scale,
                            &l->post_norm,  &l->gate,   &l->up,     &l->down,
                            &l->mlp_scale};
        for (size_t k = 0; !rc && k < sizeof all / sizeof *all; k++)
            rc = og_store_place(store, all[k], err);
    }
    return rc;
}

void og_decoder_free(og_decoder *net) {
    og_free((void *)(uintptr_t)net->layers);
    *net = (og_decoder){0};
}

size_t og_decoder_bytes(const og_decoder *net) {
    size_t sum = og_tensor_bytes(&net->final_norm);
    for (int i = 0; i < net->n_layers; i++) {
        const og_decoder_layer *l = &net->layers[i];
        const og_tensor *all[] = {&l->input_norm, &l->q,    &l->k,      &l->v,
                                  &l->o,          &l->q_norm, &l->k_norm, &l->attn_scale,
                                  &l->post_norm,  &l->gate, &l->up,     &l->down,
                                  &l->mlp_scale};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            if (og_tensor_present(all[k])) sum += og_tensor_bytes(all[k]);
    }
    return sum;
}
