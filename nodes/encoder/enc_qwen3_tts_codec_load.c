/* Qwen3-TTS codec encoder: configuration, weights, buffers. */
#include <math.h>
#include <string.h>

#include "kernels/base/alloc.h"
#include "nodes/encoder/enc_qwen3_tts_codec.h"

#define SEC "encoder_config."
#define TRY OG__ENC_TRY
enum { MAX_WIDTH = 1 << 16, MAX_KERNEL = 64, MAX_HOP = 1 << 16 };

typedef og__codec_net net;

/* ---- configuration: keys that are left out have the public class's defaults -------------- */

static int read_int(const json_t *s, const char *key, int *v, int def, int min, int max,
                    og_err *err) {
    return og_cfg_int_or(s, key, v, def, min, max, err);
}

/* A key that this network has one way of. */
static int only_int(const json_t *s, const char *key, int want, og_err *err) {
    int v = want;
    TRY(og_cfg_int_or(s, key, &v, want, INT32_MIN, INT32_MAX, err));
    if (v == want) return 0;
    return og__enc_bad(err, OG_EUNSUPPORTED, key, "%s must be %d, not %d", key, want, v);
}

static int only_bool(const json_t *s, const char *key, int want, og_err *err) {
    int v = want;
    TRY(og_cfg_bool_or(s, key, &v, want, err));
    if (!v == !want) return 0;
    return og__enc_bad(err, OG_EUNSUPPORTED, key, "%s must be %s", key,
                       want ? "true" : "false");
}

static int only_text(const json_t *s, const char *key, const char *want, og_err *err) {
    const char *v = want;
    TRY(og_cfg_str_or(s, key, &v, want, err));
    if (!strcmp(v, want)) return 0;
    return og__enc_bad(err, OG_EUNSUPPORTED, key, "%s must be \"%s\", not \"%s\"", key, want,
                       v);
}

static int read_convolutions(const json_t *s, og__codec_cfg *c, og_err *err) {
    static const int def[] = {8, 6, 5, 4};
    int up[CODEC_MAX_STAGES];
    TRY(read_int(s, SEC "num_filters", &c->filters, 64, 1, MAX_WIDTH, err));
    TRY(read_int(s, SEC "kernel_size", &c->kernel, 7, 2, MAX_KERNEL, err));
    TRY(read_int(s, SEC "last_kernel_size", &c->last_kernel, 3, 2, MAX_KERNEL, err));
    TRY(read_int(s, SEC "residual_kernel_size", &c->res_kernel, 3, 2, MAX_KERNEL, err));
    TRY(read_int(s, SEC "compress", &c->compress, 2, 1, 64, err));
    TRY(og__enc_cfg_ints(s, SEC "upsampling_ratios", up, CODEC_MAX_STAGES, &c->n_stages, def,
                         4, 64, err));
    TRY(only_int(s, SEC "audio_channels", 1, err));
    TRY(only_int(s, SEC "num_residual_layers", 1, err));
    TRY(only_bool(s, SEC "use_causal_conv", 1, err));
    TRY(only_bool(s, SEC "use_conv_shortcut", 0, err));
    TRY(only_text(s, SEC "pad_mode", "constant", err));
    if (c->filters % c->compress)
        return og__enc_bad(err, OG_EFORMAT, SEC "num_filters",
                           SEC "num_filters (%d) must be a multiple of " SEC "compress (%d)",
                           c->filters, c->compress);
    if (c->filters << c->n_stages > MAX_WIDTH)
        return og__enc_bad(err, OG_ELIMIT, SEC "num_filters",
                           SEC "num_filters (%d) doubled %d times is over %d channels",
                           c->filters, c->n_stages, MAX_WIDTH);
    int64_t hop = 1;
    for (int i = 0; i < c->n_stages && hop <= MAX_HOP; i++) {
        c->ratio[i] = up[c->n_stages - 1 - i];
        hop *= c->ratio[i];
    }
    if (hop > MAX_HOP)
        return og__enc_bad(err, OG_ELIMIT, SEC "upsampling_ratios",
                           "the product of " SEC "upsampling_ratios is over %d", MAX_HOP);
    c->hop = (int)hop;
    return 0;
}

static int read_transformer(const json_t *s, og__codec_cfg *c, og_err *err) {
    TRY(og_cfg_int(s, SEC "hidden_size", &c->hidden, 1, MAX_WIDTH, err));
    TRY(read_int(s, SEC "num_hidden_layers", &c->n_layers, 8, 1, 512, err));
    TRY(read_int(s, SEC "intermediate_size", &c->ffn, 2048, 1, MAX_WIDTH, err));
    TRY(read_int(s, SEC "num_attention_heads", &c->n_heads, 8, 1, 1024, err));
    TRY(read_int(s, SEC "num_key_value_heads", &c->n_kv_heads, c->n_heads, 1, c->n_heads,
                 err));
    TRY(read_int(s, SEC "head_dim", &c->head_dim, c->hidden / c->n_heads, 1, 4096, err));
    TRY(og_cfg_float_or(s, SEC "rope_theta", &c->theta, 1e4f, 1, 1e12, err));
    TRY(og_cfg_float_or(s, SEC "norm_eps", &c->eps, 1e-5f, 0, 1, err));
    TRY(only_bool(s, SEC "attention_bias", 0, err));
    TRY(only_text(s, SEC "hidden_act", "gelu", err));
    if (c->head_dim < 2 || c->head_dim % 2)
        return og__enc_bad(err, OG_EFORMAT, SEC "head_dim",
                           SEC "head_dim must be even, not %d", c->head_dim);
    if (c->n_heads % c->n_kv_heads)
        return og__enc_bad(err, OG_EFORMAT, SEC "num_key_value_heads",
                           SEC "num_attention_heads (%d) must be a multiple of " SEC
                               "num_key_value_heads (%d)",
                           c->n_heads, c->n_kv_heads);
    return 0;
}

static int read_quantizers(const json_t *s, og__codec_cfg *c, og_err *err) {
    int all, width;
    TRY(og_cfg_int(s, SEC "num_quantizers", &all, 1, 1024, err));
    TRY(og_cfg_int(s, "encoder_valid_num_quantizers", &c->groups, 1, CODEC_MAX_GROUPS, err));
    TRY(read_int(s, SEC "num_semantic_quantizers", &c->semantic, 1, 1, CODEC_MAX_GROUPS,
                 err));
    TRY(read_int(s, SEC "codebook_size", &c->codebook_size, 2048, 1, 1 << 20, err));
    TRY(read_int(s, SEC "codebook_dim", &c->codebook_dim, 256, 1, MAX_WIDTH, err));
    TRY(read_int(s, SEC "vector_quantization_hidden_dimension", &width, c->codebook_dim, 1,
                 MAX_WIDTH, err));
    if (c->groups > all || c->groups <= c->semantic)
        return og__enc_bad(err, OG_EFORMAT, "encoder_valid_num_quantizers",
                           "encoder_valid_num_quantizers (%d) must be above " SEC
                           "num_semantic_quantizers (%d) and at most " SEC
                           "num_quantizers (%d)",
                           c->groups, c->semantic, all);
    if (width != c->codebook_dim)
        return og__enc_bad(err, OG_EUNSUPPORTED, SEC "codebook_dim",
                           SEC "codebook_dim (%d) must be " SEC
                               "vector_quantization_hidden_dimension (%d)",
                           c->codebook_dim, width);
    return 0;
}

int og__codec_config(const json_t *root, og__codec_cfg *c, og_err *err) {
    *c = (og__codec_cfg){0};
    TRY(og_cfg_int(root, "input_sample_rate", &c->rate, 1000, 768000, err));
    TRY(og_cfg_int(root, "encode_downsample_rate", &c->frame, 1, CODEC_DOWN * MAX_HOP, err));
    TRY(read_convolutions(root, c, err));
    TRY(read_transformer(root, c, err));
    TRY(read_quantizers(root, c, err));
    if (c->frame == CODEC_DOWN * c->hop) return 0;
    return og__enc_bad(err, OG_EFORMAT, "encode_downsample_rate",
                       "encode_downsample_rate is %d, but %d times the product of " SEC
                       "upsampling_ratios is %d",
                       c->frame, CODEC_DOWN, CODEC_DOWN * c->hop);
}

/* ---- sizes -------------------------------------------------------------------------------- */

static size_t weight_values(const og__codec_cfg *c) {
    size_t hidden = (size_t)c->hidden, width = (size_t)c->filters, n;
    n = width * (size_t)c->kernel;
    for (int i = 0; i < c->n_stages; i++, width *= 2) {
        n += width * width / (size_t)c->compress * (size_t)(c->res_kernel + 1);
        n += 4 * width * width * (size_t)c->ratio[i];
    }
    n += width * hidden * (size_t)c->last_kernel;
    n += (size_t)c->n_layers * hidden *
         (2 * (size_t)(c->n_heads + c->n_kv_heads) * (size_t)c->head_dim +
          2 * (size_t)c->ffn);
    n += hidden * hidden * 2 * CODEC_DOWN;
    return n + (size_t)c->codebook_dim *
                   (2 * hidden + (size_t)c->groups * (size_t)c->codebook_size);
}

/* A second of audio at a time, in whole positions. */
static int64_t chunk_items(const og__codec_cfg *c) {
    int64_t n = c->rate / c->hop * c->hop;
    return n < c->hop ? c->hop : n;
}

/* Rows of one sequence at most: samples of a chunk, or positions of the clip. */
static int64_t most_rows(const og__codec_cfg *c, int64_t max_items) {
    int64_t positions = og__codec_positions(c, max_items), chunk = chunk_items(c);
    return positions > chunk ? positions : chunk;
}

/* Floats, and the rows' slots, which are as large. */
static size_t state_values(const og__codec_cfg *c, int64_t max_items) {
    size_t width = (size_t)c->filters, n = (size_t)most_rows(c, max_items);
    n += (size_t)og__codec_positions(c, max_items) * (size_t)c->hidden + (size_t)c->kernel - 1;
    for (int i = 0; i < c->n_stages; i++, width *= 2)
        n += (size_t)(c->res_kernel - 1 + c->ratio[i]) * width;
    return n + (size_t)(c->last_kernel - 1) * width;
}

static og_encoder_dims dims_of(const og__codec_cfg *c, int max_seconds) {
    int64_t max_items = (int64_t)c->rate * max_seconds;
    return (og_encoder_dims){.rate = c->rate,
                             .min_items = 1,
                             .max_items = max_items,
                             .items_per_out = c->frame,
                             .dtype = OG_I32,
                             .width = c->groups,
                             .weight_bytes = weight_values(c) * sizeof(float),
                             .state_bytes = state_values(c, max_items) * sizeof(float)};
}

int og__codec_dims(const json_t *root, int max_seconds, og_encoder_dims *out, og_err *err) {
    og__codec_cfg c;
    TRY(og__codec_config(root, &c, err));
    *out = dims_of(&c, max_seconds);
    return 0;
}

/* ---- binding: names and shapes as in the checkpoint ---------------------------------------- */

static void bind_convolutions(net *m, og_bind *b) {
    const og__codec_cfg *c = &m->cfg;
    int width = c->filters;
    og__enc_bind_conv(b, &m->first, width, 1, c->kernel, "encoder.layers.0.conv");
    for (int i = 0; i < c->n_stages; i++, width *= 2) {
        og__codec_stage *g = &m->stage[i];
        int half = width / c->compress, r = c->ratio[i], at = 3 * i + 1;
        g->channels = width;
        og__enc_bind_conv(b, &g->res1, half, width, c->res_kernel,
                          "encoder.layers.%d.block.1.conv", at);
        og__enc_bind_conv(b, &g->res2, width, half, 1, "encoder.layers.%d.block.3.conv", at);
        og__enc_bind_conv(b, &g->down, 2 * width, width, 2 * r, "encoder.layers.%d.conv",
                          at + 2);
    }
    og__enc_bind_conv(b, &m->last, c->hidden, width, c->last_kernel,
                      "encoder.layers.%d.conv", 3 * c->n_stages + 2);
}

static void bind_layer(net *m, og_bind *b, int i) {
    const og__codec_cfg *c = &m->cfg;
    og__codec_layer *l = &m->layers[i];
    int d = c->hidden, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    const char *p = "encoder_transformer.layers";
    og_bind_get(b, &l->norm1_w, og_ne1(d), "%s.%d.input_layernorm.weight", p, i);
    og_bind_get(b, &l->norm1_b, og_ne1(d), "%s.%d.input_layernorm.bias", p, i);
    og_bind_get(b, &l->q, og_ne2(q, d), "%s.%d.self_attn.q_proj.weight", p, i);
    og_bind_get(b, &l->k, og_ne2(kv, d), "%s.%d.self_attn.k_proj.weight", p, i);
    og_bind_get(b, &l->v, og_ne2(kv, d), "%s.%d.self_attn.v_proj.weight", p, i);
    og_bind_get(b, &l->o, og_ne2(d, q), "%s.%d.self_attn.o_proj.weight", p, i);
    og_bind_get(b, &l->scale1, og_ne1(d), "%s.%d.self_attn_layer_scale.scale", p, i);
    og_bind_get(b, &l->norm2_w, og_ne1(d), "%s.%d.post_attention_layernorm.weight", p, i);
    og_bind_get(b, &l->norm2_b, og_ne1(d), "%s.%d.post_attention_layernorm.bias", p, i);
    og_bind_get(b, &l->fc1, og_ne2(c->ffn, d), "%s.%d.mlp.fc1.weight", p, i);
    og_bind_get(b, &l->fc2, og_ne2(d, c->ffn), "%s.%d.mlp.fc2.weight", p, i);
    og_bind_get(b, &l->scale2, og_ne1(d), "%s.%d.mlp_layer_scale.scale", p, i);
}

/* sum and usage of each codebook that is used, in the order of the groups. */
static void bind_quantizers(net *m, og_bind *b, og_tensor *sum, og_tensor *usage) {
    const og__codec_cfg *c = &m->cfg;
    og_ne proj = og_ne3(c->codebook_dim, c->hidden, 1);
    for (int g = 0; g < c->groups; g++) {
        int semantic = g < c->semantic;
        const char *part = semantic ? "semantic" : "acoustic";
        int i = semantic ? g : g - c->semantic;
        og_bind_get(b, &sum[g], og_ne2(c->codebook_size, c->codebook_dim),
                    "quantizer.%s_residual_vector_quantizer.layers.%d.codebook.embed_sum",
                    part, i);
        og_bind_get(b, &usage[g], og_ne1(c->codebook_size),
                    "quantizer.%s_residual_vector_quantizer.layers.%d.codebook.cluster_usage",
                    part, i);
    }
    og_bind_get(b, &m->semantic_proj, proj,
                "quantizer.semantic_residual_vector_quantizer.input_proj.weight");
    og_bind_get(b, &m->acoustic_proj, proj,
                "quantizer.acoustic_residual_vector_quantizer.input_proj.weight");
    /* The way back is the decoder's, and some codebooks are not used. */
    og_bind_ignore(b, "quantizer.");
}

static void bind_all(net *m, og_bind *b, og_tensor *sum, og_tensor *usage) {
    const og__codec_cfg *c = &m->cfg;
    bind_convolutions(m, b);
    for (int i = 0; i < c->n_layers; i++) bind_layer(m, b, i);
    og_bind_get(b, &m->downsample, og_ne3(c->hidden, c->hidden, 2 * CODEC_DOWN),
                "downsample.conv.weight");
    bind_quantizers(m, b, sum, usage);
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* embed_sum over the number of its uses, which a dead row clamps at 1e-5. */
static int make_codebook(net *m, int g, const og_tensor *sum, const og_tensor *usage,
                         og_err *err) {
    og_tensor *t = &m->codebook[g];
    *t = og_tensor_2d(OG_F32, sum->ne[0], sum->ne[1], NULL);
    TRY(og__enc_weight(&m->mem, t, err));
    float *y = t->data;
    for (int64_t i = 0; i < sum->ne[0]; i++) {
        float n = og__enc_value(usage, i);
        if (!(n > 1e-5f)) n = 1e-5f;
        for (int64_t k = 0; k < sum->ne[1]; k++, y++)
            *y = og__enc_value(sum, i * sum->ne[1] + k) / n;
    }
    return og__enc_place(&m->mem, t, err);
}

static int make_state(net *m, og_tensor *t, int columns, int channels, og_err *err) {
    *t = og_tensor_3d(OG_F32, 1, columns, channels, NULL);
    return og__enc_state(&m->mem, t, err);
}

static int make_stage(net *m, int i, og_err *err) {
    og__codec_stage *g = &m->stage[i];
    TRY(og__enc_prepare(&m->mem, &g->res1, err));
    TRY(og__enc_prepare(&m->mem, &g->res2, err));
    TRY(og__enc_prepare(&m->mem, &g->down, err));
    TRY(make_state(m, &g->res_state, m->cfg.res_kernel - 1, g->channels, err));
    g->down_state = og_tensor_2d(OG_F32, m->cfg.ratio[i], g->channels, NULL);
    return og__enc_state(&m->mem, &g->down_state, err);
}

static int make_inv_freq(net *m, og_err *err) {
    int half = m->cfg.head_dim / 2;
    m->inv_freq = og_tensor_1d(OG_F32, half, NULL);
    TRY(og__enc_weight(&m->mem, &m->inv_freq, err));
    float *f = m->inv_freq.data;
    for (int i = 0; i < half; i++)
        f[i] = 1.0f / (float)pow((double)m->cfg.theta,
                                 (double)((float)(2 * i) / (float)m->cfg.head_dim));
    return og__enc_place(&m->mem, &m->inv_freq, err);
}

static int make_rows(net *m, int64_t max_items, og_err *err) {
    int64_t positions = og__codec_positions(&m->cfg, max_items);
    m->chunk = chunk_items(&m->cfg);
    m->latent = og_tensor_2d(OG_F32, positions, m->cfg.hidden, NULL);
    TRY(og__enc_state(&m->mem, &m->latent, err));
    og_tensor slot = og_tensor_1d(OG_I32, most_rows(&m->cfg, max_items), NULL);
    og_tensor pos = og_tensor_1d(OG_I32, positions * 3, NULL);
    TRY(og__enc_state(&m->mem, &slot, err));
    if (!og_store_make(&m->mem.store, &pos, err)) return OG_ENOMEM;
    for (int64_t i = 0; i < positions * 3; i++)
        ((int32_t *)pos.data)[i] = (int32_t)(i / 3);
    TRY(og__enc_place(&m->mem, &pos, err));
    m->slot = slot.data;
    m->pos = pos.data;
    return 0;
}

static int place_layer(net *m, og__codec_layer *l, og_err *err) {
    og_tensor *wide[] = {&l->q, &l->k, &l->v, &l->o, &l->fc1, &l->fc2};
    og_tensor *narrow[] = {&l->norm1_w, &l->norm1_b, &l->scale1,
                           &l->norm2_w, &l->norm2_b, &l->scale2};
    for (int i = 0; i < 6; i++) {
        m->mem.weight_bytes += og_tensor_bytes(wide[i]);
        TRY(og__enc_place(&m->mem, wide[i], err));
        TRY(og__enc_place(&m->mem, narrow[i], err));
    }
    return 0;
}

static int prepare(net *m, const og_tensor *sum, const og_tensor *usage, og_err *err) {
    const og__codec_cfg *c = &m->cfg;
    int width = c->filters << c->n_stages;
    TRY(og__enc_prepare(&m->mem, &m->first, err));
    TRY(make_state(m, &m->first_state, c->kernel - 1, 1, err));
    for (int i = 0; i < c->n_stages; i++) TRY(make_stage(m, i, err));
    TRY(og__enc_prepare(&m->mem, &m->last, err));
    TRY(make_state(m, &m->last_state, c->last_kernel - 1, width, err));
    TRY(og__enc_repack(&m->mem, &m->downsample, err));
    TRY(og__enc_repack(&m->mem, &m->semantic_proj, err));
    TRY(og__enc_repack(&m->mem, &m->acoustic_proj, err));
    for (int g = 0; g < c->groups; g++) TRY(make_codebook(m, g, &sum[g], &usage[g], err));
    for (int i = 0; i < c->n_layers; i++) TRY(place_layer(m, &m->layers[i], err));
    return make_inv_freq(m, err);
}

static int load_weights(net *m, const og_node_cfg *node, og_err *err) {
    og_tensor sum[CODEC_MAX_GROUPS], usage[CODEC_MAX_GROUPS];
    TRY(og_model_weights(node->model, node->folder, &m->mem.weights, err));
    m->layers = og_calloc((size_t)m->cfg.n_layers, sizeof *m->layers);
    if (!m->layers)
        return og_err_set(err, OG_ENOMEM, "no memory for %d layers", m->cfg.n_layers);
    og_bind *b = og_bind_create(m->mem.weights, "encoder.");
    bind_all(m, b, sum, usage);
    int rc = og_bind_finish(b, err);
    og_bind_free(b);
    return rc < 0 ? rc : prepare(m, sum, usage, err);
}

void og__codec_unload(void *arg) {
    net *m = arg;
    if (!m) return;
    og__enc_mem_free(&m->mem);
    og_free(m->layers);
    og_free(m);
}

int og__codec_load(const og_node_cfg *cfg, int max_seconds, void **out, og_encoder_dims *dims,
                   og_err *err) {
    *out = NULL;
    const json_t *root = og_model_config(cfg->model, cfg->folder, NULL, err);
    if (!root) return err && err->code ? err->code : OG_ENOENT;
    net *m = og_calloc(1, sizeof *m);
    if (!m) return og_err_set(err, OG_ENOMEM, "no memory for an encoder");
    og__enc_mem_init(&m->mem, cfg->exec);
    int rc = og__codec_config(root, &m->cfg, err);
    if (rc < 0) goto fail;
    *dims = dims_of(&m->cfg, max_seconds);
    rc = load_weights(m, cfg, err);
    if (rc < 0) goto fail;
    rc = make_rows(m, dims->max_items, err);
    if (rc < 0) goto fail;
    dims->weight_bytes = m->mem.weight_bytes;
    dims->state_bytes = m->mem.state_bytes;
    *out = m;
    return 0;

fail:
    og__codec_unload(m);
    return rc;
}
