/* Qwen3-TTS code2wav: binding the weights, preparing them, and the states of the slots.
 *
 * On a host device linear weights stay where the file was mapped. Convolutions are repacked
 * once in their own dtype and their file pages given back; codebooks and snakes become f32.
 * All of them go through the store, which brings them to the device. */
#include <math.h>
#include <string.h>

#include "kernels/base/alloc.h"
#include "nodes/blocks/decoder.h"
#include "nodes/vocoder/voc_qwen3_tts.h"

typedef og__voc_net net;

/* ---- binding: names and shapes as in the checkpoint ------------------------------- */

static void bind_linear(og_bind *b, og_tensor *w, og_tensor *bias, int out, int in,
                        const char *name) {
    og_bind_get(b, w, og_ne2(out, in), "%s.weight", name);
    og_bind_get(b, bias, og_ne1(out), "%s.bias", name);
}

static void bind_conv(og_bind *b, og__voc_conv *c, og_ne shape, int out,
                      const char *name) {
    og_bind_get(b, &c->w, shape, "%s.conv.weight", name);
    og_bind_get(b, &c->b, og_ne1(out), "%s.conv.bias", name);
}

static void bind_snake(og_bind *b, og__voc_snake *s, int channels, const char *name) {
    og_bind_get(b, &s->alpha, og_ne1(channels), "%s.alpha", name);
    og_bind_get(b, &s->inv_beta, og_ne1(channels), "%s.beta", name);
}

/* sum and usage of each codebook, in the order of the groups. */
static void bind_quantizer(net *m, og_bind *b, og_tensor *sum, og_tensor *usage) {
    const og__voc_cfg *c = &m->cfg;
    int half = c->codebook_dim / 2;
    og_ne proj = og_ne3(c->codebook_dim, half, 1);
    for (int g = 0; g < c->groups; g++) {
        const char *part = g < c->semantic ? "first" : "rest";
        int layer = g < c->semantic ? g : g - c->semantic;
        og_bind_get(b, &sum[g], og_ne2(c->codebook_size, half),
                    "quantizer.rvq_%s.vq.layers.%d._codebook.embedding_sum", part, layer);
        og_bind_get(b, &usage[g], og_ne1(c->codebook_size),
                    "quantizer.rvq_%s.vq.layers.%d._codebook.cluster_usage", part, layer);
    }
    og_bind_get(b, &m->proj_first, proj, "quantizer.rvq_first.output_proj.weight");
    og_bind_get(b, &m->proj_rest, proj, "quantizer.rvq_rest.output_proj.weight");
    /* The way into the codebooks is the encoder's. */
    og_bind_ignore(b, "quantizer.rvq_first.input_proj.");
    og_bind_ignore(b, "quantizer.rvq_rest.input_proj.");
}

static void bind_transformer(net *m, og_bind *b) {
    const og__voc_cfg *c = &m->cfg;
    int q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    const char *p = "pre_transformer";
    bind_linear(b, &m->in_w, &m->in_b, c->width, c->latent, "pre_transformer.input_proj");
    bind_linear(b, &m->out_w, &m->out_b, c->latent, c->width,
                "pre_transformer.output_proj");
    og_bind_get(b, &m->stack.final_norm, og_ne1(c->width), "%s.norm.weight", p);
    for (int i = 0; i < c->n_layers; i++) {
        og_decoder_layer *l = &m->layers[i];
        og_bind_get(b, &l->input_norm, og_ne1(c->width),
                    "%s.layers.%d.input_layernorm.weight", p, i);
        og_bind_get(b, &l->q, og_ne2(q, c->width), "%s.layers.%d.self_attn.q_proj.weight",
                    p, i);
        og_bind_get(b, &l->k, og_ne2(kv, c->width),
                    "%s.layers.%d.self_attn.k_proj.weight", p, i);
        og_bind_get(b, &l->v, og_ne2(kv, c->width),
                    "%s.layers.%d.self_attn.v_proj.weight", p, i);
        og_bind_get(b, &l->o, og_ne2(c->width, q), "%s.layers.%d.self_attn.o_proj.weight",
                    p, i);
        og_bind_get(b, &l->attn_scale, og_ne1(c->width),
                    "%s.layers.%d.self_attn_layer_scale.scale", p, i);
        og_bind_get(b, &l->post_norm, og_ne1(c->width),
                    "%s.layers.%d.post_attention_layernorm.weight", p, i);
        og_bind_get(b, &l->gate, og_ne2(c->ffn, c->width),
                    "%s.layers.%d.mlp.gate_proj.weight", p, i);
        og_bind_get(b, &l->up, og_ne2(c->ffn, c->width),
                    "%s.layers.%d.mlp.up_proj.weight", p, i);
        og_bind_get(b, &l->down, og_ne2(c->width, c->ffn),
                    "%s.layers.%d.mlp.down_proj.weight", p, i);
        og_bind_get(b, &l->mlp_scale, og_ne1(c->width),
                    "%s.layers.%d.mlp_layer_scale.scale", p, i);
    }
}

static void bind_upsample(net *m, og_bind *b, int i) {
    og__voc_upsample *u = &m->up[i];
    int c = m->cfg.latent, r = m->cfg.up[i];
    char name[64];
    snprintf(name, sizeof name, "upsample.%d.0", i);
    bind_conv(b, &u->up, og_ne3(c, c, r), c, name);
    og_bind_get(b, &u->dw_w, og_ne3(c, 1, VOC_KERNEL), "upsample.%d.1.dwconv.conv.weight",
                i);
    og_bind_get(b, &u->dw_b, og_ne1(c), "upsample.%d.1.dwconv.conv.bias", i);
    og_bind_get(b, &u->norm_w, og_ne1(c), "upsample.%d.1.norm.weight", i);
    og_bind_get(b, &u->norm_b, og_ne1(c), "upsample.%d.1.norm.bias", i);
    snprintf(name, sizeof name, "upsample.%d.1.pwconv1", i);
    bind_linear(b, &u->pw1_w, &u->pw1_b, 4 * c, c, name);
    snprintf(name, sizeof name, "upsample.%d.1.pwconv2", i);
    bind_linear(b, &u->pw2_w, &u->pw2_b, c, 4 * c, name);
    og_bind_get(b, &u->gamma, og_ne1(c), "upsample.%d.1.gamma", i);
}

static void bind_block(net *m, og_bind *b, int i) {
    og__voc_block *k = &m->block[i];
    int cin = m->cfg.channels >> i, c = cin / 2;
    char name[64];
    snprintf(name, sizeof name, "decoder.%d.block.0", i + 1);
    bind_snake(b, &k->act, cin, name);
    snprintf(name, sizeof name, "decoder.%d.block.1", i + 1);
    bind_conv(b, &k->up, og_ne3(cin, c, 2 * m->cfg.rate[i]), c, name);
    for (int j = 0; j < VOC_UNITS; j++) {
        og__voc_unit *u = &k->unit[j];
        snprintf(name, sizeof name, "decoder.%d.block.%d.act1", i + 1, j + 2);
        bind_snake(b, &u->act1, c, name);
        snprintf(name, sizeof name, "decoder.%d.block.%d.conv1", i + 1, j + 2);
        bind_conv(b, &u->conv1, og_ne3(c, c, VOC_KERNEL), c, name);
        snprintf(name, sizeof name, "decoder.%d.block.%d.act2", i + 1, j + 2);
        bind_snake(b, &u->act2, c, name);
        og_bind_get(b, &u->conv2_w, og_ne3(c, c, 1),
                    "decoder.%d.block.%d.conv2.conv.weight", i + 1, j + 2);
        og_bind_get(b, &u->conv2_b, og_ne1(c), "decoder.%d.block.%d.conv2.conv.bias",
                    i + 1, j + 2);
    }
}

static void bind_all(net *m, og_bind *b, og_tensor *sum, og_tensor *usage) {
    const og__voc_cfg *c = &m->cfg;
    int last = c->channels >> c->n_blocks;
    char name[64];
    bind_quantizer(m, b, sum, usage);
    bind_conv(b, &m->pre_conv, og_ne3(c->latent, c->codebook_dim, VOC_PRE_KERNEL),
              c->latent, "pre_conv");
    bind_transformer(m, b);
    for (int i = 0; i < c->n_up; i++) bind_upsample(m, b, i);
    bind_conv(b, &m->first, og_ne3(c->channels, c->latent, VOC_KERNEL), c->channels,
              "decoder.0");
    for (int i = 0; i < c->n_blocks; i++) bind_block(m, b, i);
    snprintf(name, sizeof name, "decoder.%d", c->n_blocks + 1);
    bind_snake(b, &m->last_act, last, name);
    snprintf(name, sizeof name, "decoder.%d", c->n_blocks + 2);
    bind_conv(b, &m->last, og_ne3(1, last, VOC_KERNEL), 1, name);
}

/* ---- memory ----------------------------------------------------------------------- */

/* Long-lived memory; NULL after an error. The lists have room for all (create_lists). */
static void *dev_mem(net *m, size_t bytes, og_err *err) {
    void *p = NULL;
    if (og_device_alloc(m->dev, bytes, &p, err) < 0) return NULL;
    m->dev_mem[m->n_dev++] = p;
    return p;
}

static void *host_mem(net *m, size_t n, size_t size, og_err *err) {
    void *p = og_calloc(n, size);
    if (!p)
        og_err_set(err, OG_ENOMEM, "no memory for %zu values of a vocoder", n);
    else
        m->host_mem[m->n_host++] = p;
    return p;
}

static int create_lists(net *m, og_err *err) {
    size_t n =
        64 + (size_t)m->cfg.groups + 2 * (size_t)m->cfg.n_layers + VOC_MAX_STAGES * 32;
    m->dev_mem = og_calloc(n, sizeof *m->dev_mem);
    m->host_mem = og_calloc(n, sizeof *m->host_mem);
    m->states = og_calloc(n, sizeof *m->states);
    if (m->dev_mem && m->host_mem && m->states) return 0;
    return og_err_set(err, OG_ENOMEM, "no memory for a vocoder");
}

/* ---- preparing -------------------------------------------------------------------- */

static float value_at(const og_tensor *t, int64_t i) {
    const char *p = (const char *)t->data + (size_t)i * og_dtype_size(t->dtype);
    float f;
    uint16_t h;
    if (t->dtype == OG_F32) {
        memcpy(&f, p, sizeof f);
        return f;
    }
    memcpy(&h, p, sizeof h);
    return t->dtype == OG_BF16 ? og_bf16_to_f32(h) : og_f16_to_f32(h);
}

/* A tensor of device memory of its own, zeroed. */
static int make_buffer(net *m, og_tensor *t, og_err *err) {
    t->place = m->store.place;
    t->data = dev_mem(m, og_tensor_bytes(t), err);
    return t->data ? 0 : OG_ENOMEM;
}

/* embedding_sum over the number of its uses, which a dead row clamps at 1e-5. */
static int make_codebook(net *m, int g, const og_tensor *sum, const og_tensor *usage,
                         og_err *err) {
    int64_t rows = sum->ne[0], width = sum->ne[1];
    og_tensor *t = &m->codebook[g];
    *t = og_tensor_2d(OG_F32, rows, width, NULL);
    float *y = og_store_make(&m->store, t, err);
    if (!y) return OG_ENOMEM;
    for (int64_t i = 0; i < rows; i++) {
        float n = value_at(usage, i);
        if (!(n > 1e-5f)) n = 1e-5f;
        for (int64_t k = 0; k < width; k++)
            y[i * width + k] = value_at(sum, i * width + k) / n;
    }
    m->weight_bytes += og_tensor_bytes(t);
    return og_store_place(&m->store, t, err);
}

/* stride 0: an ordinary convolution, else a transposed one. The old tensor's file pages
 * go back: nobody reads them again. */
static int repack(net *m, og_weights *w, og_tensor *t, int stride, og_err *err) {
    og_tensor from = *t, to;
    if (stride == 0) {
        to = og_tensor_3d(from.dtype, from.ne[0], from.ne[2], from.ne[1], NULL);
    } else {
        int64_t taps = (from.ne[2] + stride - 1) / stride;
        to = og_tensor_3d(from.dtype, stride * from.ne[1], taps, from.ne[0], NULL);
    }
    if (!og_store_make(&m->store, &to, err)) return OG_ENOMEM;
    if (stride == 0)
        og_pack_conv1d(&to, &from);
    else
        og_pack_conv_transpose1d(&to, &from, stride);
    og_weights_drop_pages(w, &from);
    m->weight_bytes += og_tensor_bytes(&to);
    *t = to;
    return og_store_place(&m->store, t, err);
}

static int make_snake(net *m, og__voc_snake *s, og_err *err) {
    int64_t n = s->alpha.ne[0];
    og_tensor both = og_tensor_2d(OG_F32, 2, n, NULL);
    float *a = og_store_make(&m->store, &both, err);
    if (!a) return OG_ENOMEM;
    float *b = a + n;
    for (int64_t i = 0; i < n; i++) {
        a[i] = (float)exp((double)value_at(&s->alpha, i));
        b[i] = 1.0f / ((float)exp((double)value_at(&s->inv_beta, i)) + 1e-9f);
    }
    m->weight_bytes += og_tensor_bytes(&both);
    int rc = og_store_place(&m->store, &both, err);
    if (rc < 0) return rc;
    og_tensor alpha = og_tensor_rows(&both, 0, 1), beta = og_tensor_rows(&both, 1, 1);
    s->alpha = og_tensor_view(&alpha, 1, &n);
    s->inv_beta = og_tensor_view(&beta, 1, &n);
    return 0;
}

static int make_state(net *m, og_tensor *state, int columns, int64_t channels,
                      og_err *err) {
    *state = og_tensor_3d(OG_F32, m->lim.slots, columns, channels, NULL);
    int rc = make_buffer(m, state, err);
    if (rc < 0) return rc;
    m->states[m->n_states++] = state;
    return 0;
}

/* A causal convolution of kernel k: repack and give it its past. */
static int make_conv(net *m, og_weights *w, og__voc_conv *c, int k, int dilation,
                     og_err *err) {
    int64_t cin = c->w.ne[1];
    int rc = repack(m, w, &c->w, 0, err);
    return rc < 0 ? rc : make_state(m, &c->state, (k - 1) * dilation, cin, err);
}

static int make_upsample(net *m, og_weights *w, int i, og_err *err) {
    og__voc_upsample *u = &m->up[i];
    int rc = repack(m, w, &u->up.w, m->cfg.up[i], err);
    if (rc < 0) return rc;
    u->dw_w = og_tensor_view(&u->dw_w, 2, (int64_t[]){m->cfg.latent, VOC_KERNEL});
    return make_state(m, &u->dw_state, VOC_KERNEL - 1, m->cfg.latent, err);
}

static int make_unit(net *m, og_weights *w, og__voc_unit *u, int dilation, og_err *err) {
    int64_t c = u->conv2_w.ne[0];
    int rc = make_snake(m, &u->act1, err);
    if (rc >= 0) rc = make_snake(m, &u->act2, err);
    if (rc >= 0) rc = make_conv(m, w, &u->conv1, VOC_KERNEL, dilation, err);
    u->conv2_w = og_tensor_view(&u->conv2_w, 2, (int64_t[]){c, c});
    return rc;
}

static int make_block(net *m, og_weights *w, int i, og_err *err) {
    og__voc_block *k = &m->block[i];
    int rc = make_snake(m, &k->act, err);
    if (rc >= 0) rc = repack(m, w, &k->up.w, m->cfg.rate[i], err);
    if (rc >= 0) rc = make_state(m, &k->up.state, 1, m->cfg.channels >> i, err);
    for (int j = 0; rc >= 0 && j < VOC_UNITS; j++) {
        rc = make_unit(m, w, &k->unit[j], og__voc_dilation(j), err);
    }
    return rc;
}

static size_t linear_bytes(const net *m) {
    size_t n = og_tensor_bytes(&m->proj_first) + og_tensor_bytes(&m->proj_rest) +
               og_tensor_bytes(&m->in_w) + og_tensor_bytes(&m->out_w);
    for (int i = 0; i < m->cfg.n_layers; i++) {
        const og_decoder_layer *l = &m->layers[i];
        const og_tensor *t[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t k = 0; k < sizeof t / sizeof *t; k++) n += og_tensor_bytes(t[k]);
    }
    for (int i = 0; i < m->cfg.n_up; i++) {
        n += og_tensor_bytes(&m->up[i].pw1_w) + og_tensor_bytes(&m->up[i].pw2_w);
    }
    for (int i = 0; i < m->cfg.n_blocks; i++) {
        for (int j = 0; j < VOC_UNITS; j++) {
            n += og_tensor_bytes(&m->block[i].unit[j].conv2_w);
        }
    }
    return n;
}

/* What is left after the repacks: linear weights, norms, scales and biases. */
static int place_transformer(net *m, og_err *err) {
    og_tensor *one[] = {&m->proj_first, &m->proj_rest, &m->in_w,  &m->in_b,
                        &m->out_w,      &m->out_b,     &m->first.b, &m->pre_conv.b,
                        &m->last.b};
    int rc = og_decoder_place(&m->stack, &m->store, err);
    for (size_t i = 0; rc >= 0 && i < sizeof one / sizeof *one; i++)
        rc = og_store_place(&m->store, one[i], err);
    return rc;
}

static int place_rest(net *m, og_err *err) {
    int rc = place_transformer(m, err);
    for (int i = 0; i < m->cfg.n_up; i++) {
        og__voc_upsample *u = &m->up[i];
        og_tensor *t[] = {&u->up.b,  &u->dw_w,  &u->dw_b,  &u->norm_w, &u->norm_b,
                          &u->pw1_w, &u->pw1_b, &u->pw2_w, &u->pw2_b,  &u->gamma};
        for (size_t k = 0; rc >= 0 && k < sizeof t / sizeof *t; k++)
            rc = og_store_place(&m->store, t[k], err);
    }
    for (int i = 0; i < m->cfg.n_blocks; i++) {
        og__voc_block *b = &m->block[i];
        if (rc >= 0) rc = og_store_place(&m->store, &b->up.b, err);
        for (int j = 0; rc >= 0 && j < VOC_UNITS; j++) {
            og__voc_unit *u = &b->unit[j];
            rc = og_store_place(&m->store, &u->conv1.b, err);
            if (rc >= 0) rc = og_store_place(&m->store, &u->conv2_w, err);
            if (rc >= 0) rc = og_store_place(&m->store, &u->conv2_b, err);
        }
    }
    return rc;
}

static int prepare(net *m, og_weights *w, const og_tensor *sum, const og_tensor *usage,
                   og_err *err) {
    const og__voc_cfg *c = &m->cfg;
    int64_t square[] = {c->codebook_dim, c->codebook_dim / 2};
    int rc = 0;
    for (int g = 0; rc >= 0 && g < c->groups; g++) {
        rc = make_codebook(m, g, &sum[g], &usage[g], err);
    }
    m->proj_first = og_tensor_view(&m->proj_first, 2, square);
    m->proj_rest = og_tensor_view(&m->proj_rest, 2, square);
    if (rc >= 0) rc = make_conv(m, w, &m->pre_conv, VOC_PRE_KERNEL, 1, err);
    for (int i = 0; rc >= 0 && i < c->n_up; i++) rc = make_upsample(m, w, i, err);
    if (rc >= 0) rc = make_conv(m, w, &m->first, VOC_KERNEL, 1, err);
    for (int i = 0; rc >= 0 && i < c->n_blocks; i++) rc = make_block(m, w, i, err);
    if (rc >= 0) rc = make_snake(m, &m->last_act, err);
    if (rc >= 0) rc = make_conv(m, w, &m->last, VOC_KERNEL, 1, err);
    m->weight_bytes += linear_bytes(m);
    return rc;
}

/* ---- plans of a step -------------------------------------------------------------- */

static int make_kv(net *m, og_err *err) {
    const og__voc_cfg *c = &m->cfg;
    int ring = og__voc_kv_ring(c, &m->lim), slots = m->lim.slots;
    int64_t ne[] = {1 + (int64_t)slots * ring, VOC_KV_PAGE, c->n_kv_heads, c->head_dim};
    og_tensor table = og_tensor_2d(OG_I32, slots, ring, NULL);
    int32_t *page = og_store_make(&m->store, &table, err);
    m->kv = host_mem(m, (size_t)c->n_layers, sizeof *m->kv, err);
    if (!page || !m->kv) return OG_ENOMEM;
    for (int i = 0; i < slots * ring; i++)
        page[i] = 1 + i; /* page 0 is the trash page */
    int rc = og_store_place(&m->store, &table, err);
    for (int i = 0; rc >= 0 && i < c->n_layers; i++) {
        og_kv *kv = &m->kv[i];
        *kv = (og_kv){
            .table = table.data, .max_pages = ring, .page = VOC_KV_PAGE, .ring = ring};
        kv->k = kv->v = og_tensor_nd(OG_F32, 4, ne, NULL);
        rc = make_buffer(m, &kv->k, err);
        if (rc >= 0) rc = make_buffer(m, &kv->v, err);
    }
    return rc;
}

static int make_stack(net *m, og_err *err) {
    const og__voc_cfg *c = &m->cfg;
    int half = c->head_dim / 2;
    og_tensor freq = og_tensor_1d(OG_F32, half, NULL);
    float *f = og_store_make(&m->store, &freq, err);
    if (!f) return OG_ENOMEM;
    for (int i = 0; i < half; i++) {
        f[i] = 1.0f / (float)pow((double)c->theta,
                                 (double)((float)(2 * i) / (float)c->head_dim));
    }
    og_tensor norm = m->stack.final_norm;
    m->stack = (og_decoder){.layers = m->layers,
                            .n_layers = c->n_layers,
                            .n_heads = c->n_heads,
                            .n_kv_heads = c->n_kv_heads,
                            .head_dim = c->head_dim,
                            .window = c->window,
                            .eps = c->eps,
                            .final_norm = norm,
                            .inv_freq = freq,
                            .tap = "code2wav"};
    return 0;
}

/* n groups of each frame, summed left to right. */
static int make_program(net *m, int n, og_tensor *off, og_tensor *table, int32_t **index,
                        og_err *err) {
    int64_t rows = m->lim.max_rows;
    *off = og_tensor_1d(OG_I32, rows + 1, NULL);
    *table = og_tensor_1d(OG_I32, rows * n, NULL);
    int32_t *at = og_store_make(&m->store, off, err);
    int32_t *which = at ? og_store_make(&m->store, table, err) : NULL;
    if (!which) return OG_ENOMEM;
    for (int r = 0; r <= m->lim.max_rows; r++) at[r] = r * n;
    for (int i = 0; i < m->lim.max_rows * n; i++) which[i] = i % n;
    *index = host_mem(m, (size_t)rows * (size_t)n, sizeof **index, err);
    if (!*index) return OG_ENOMEM;
    int rc = og_store_place(&m->store, off, err);
    return rc < 0 ? rc : og_store_place(&m->store, table, err);
}

static int make_levels(net *m, og_err *err) {
    const og__voc_cfg *c = &m->cfg;
    size_t slots = (size_t)m->lim.slots;
    int times = 1;
    int64_t at = 0;
    m->n_levels = 1 + c->n_up + c->n_blocks;
    for (int i = 0; i < m->n_levels; i++) {
        og__voc_level *l = &m->level[i];
        if (i > 0) times *= i <= c->n_up ? c->up[i - 1] : c->rate[i - 1 - c->n_up];
        l->times = times;
        if (i == 0) continue; /* the caller's own rows */
        l->at = (int32_t)at;
        at += (int64_t)m->lim.max_rows * times;
        l->cu = host_mem(m, slots + 1, sizeof *l->cu, err);
        if (!l->cu) return OG_ENOMEM;
    }
    m->all_slots = og_tensor_2d(OG_I32, at, 1, NULL);
    int rc = make_buffer(m, &m->all_slots, err);
    if (rc < 0) return rc;
    for (int i = 1; i < m->n_levels; i++)
        m->level[i].slot = (int32_t *)m->all_slots.data + m->level[i].at;
    size_t all = slots * (size_t)m->n_levels;
    m->slot_ids = host_mem(m, all, sizeof *m->slot_ids, err);
    m->slot_values = host_mem(m, all, sizeof *m->slot_values, err);
    return m->slot_ids && m->slot_values ? 0 : OG_ENOMEM;
}

/* ---- load ------------------------------------------------------------------------- */

void og__voc_unload(void *arg) {
    net *m = arg;
    if (!m) return;
    og_graphs_free(&m->graphs, m->ex);
    og_store_free(&m->store);
    for (int i = 0; i < m->n_dev; i++) og_device_free(m->dev, m->dev_mem[i]);
    for (int i = 0; i < m->n_host; i++) og_free(m->host_mem[i]);
    og_free(m->states);
    og_free(m->host_mem);
    og_free(m->dev_mem);
    og_free(m);
}

static int load_weights(net *m, const og_node_cfg *node, og_err *err) {
    og_weights *w = NULL;
    int rc = og_model_weights(node->model, node->folder, &w, err);
    if (rc < 0) return rc;
    size_t groups = (size_t)m->cfg.groups;
    og_tensor *sum = og_calloc(2 * groups, sizeof *sum);
    if (!sum) return og_err_set(err, OG_ENOMEM, "no memory for %zu codebooks", groups);
    og_bind *b = og_bind_create(w, "decoder.");
    bind_all(m, b, sum, sum + groups);
    rc = og_bind_finish(b, err);
    og_bind_free(b);
    if (rc >= 0) rc = prepare(m, w, sum, sum + groups, err);
    og_free(sum);
    return rc;
}

int og__voc_load(const og_node_cfg *node, const og_vocoder_limits *lim, void **out,
                 og_vocoder_dims *dims, og_err *err) {
    *out = NULL;
    const json_t *root = og_model_config(node->model, node->folder, NULL, err);
    if (!root) return err && err->code ? err->code : OG_ENOENT;
    int rc = og__voc_dims(root, lim, dims, err);
    if (rc < 0) return rc;
    net *m = og_calloc(1, sizeof *m);
    if (!m) return og_err_set(err, OG_ENOMEM, "no memory for a vocoder");
    m->lim = *lim;
    m->ex = node->exec;
    m->dev = og_exec_device(node->exec);
    og_store_init(&m->store, node->exec);
    og_graphs_init(&m->graphs, node->exec);
    rc = og__voc_config(root, &m->cfg, err);
    if (rc >= 0) rc = create_lists(m, err);
    if (rc < 0) goto fail;
    rc = OG_ENOMEM;
    m->layers = host_mem(m, (size_t)m->cfg.n_layers, sizeof *m->layers, err);
    m->codebook = host_mem(m, (size_t)m->cfg.groups, sizeof *m->codebook, err);
    if (!m->layers || !m->codebook) goto fail;

    int semantic = m->cfg.semantic, rest = m->cfg.groups - semantic;
    rc = load_weights(m, node, err);
    if (rc >= 0) rc = make_stack(m, err);
    if (rc >= 0) rc = place_rest(m, err);
    if (rc >= 0) rc = make_kv(m, err);
    if (rc >= 0) {
        rc = make_program(m, semantic, &m->first_off, &m->first_table, &m->first_index,
                          err);
    }
    if (rc >= 0) {
        rc = make_program(m, rest, &m->rest_off, &m->rest_table, &m->rest_index, err);
    }
    if (rc >= 0) rc = make_levels(m, err);
    if (rc < 0) goto fail;
    dims->weight_bytes = m->weight_bytes;
    *out = m;
    return 0;

fail:
    og__voc_unload(m);
    return rc;
}
