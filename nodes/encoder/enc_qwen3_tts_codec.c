/* Qwen3-TTS codec encoder (the encoder half of its 12 Hz codec; a Mimi, arXiv 2410.00037).
 * At the published sizes, n samples at 24 kHz, T = ceil(n / 960):
 *
 *   layers.0      causal conv k 7                                        [n, 64]
 *   4 stages      (strides 4, 5, 6, 8): x + conv k 1 (ELU (conv k 3 (ELU x))) with half the
 *                 channels between; ELU; causal conv k 2r stride r, channels double
 *                             [n/4, 128] [n/20, 256] [n/120, 512] [n/960, 1024]
 *   layers.14     ELU, causal conv k 3                                   [T, 512]
 *   transformer   8 pre-norm layers: LayerNorm, full causal attention with RoPE, layer
 *                 scale; LayerNorm, linear x4, GELU, linear, layer scale
 *   downsample    conv k 4 stride 2, the edge columns repeated around    [T/2, 512]
 *   quantizers    group 0: linear to 256, nearest codebook row; groups 1 .. 15: another
 *                 linear of the same input, nearest row, minus that row, and so on
 *
 * All convolutions but the last pad with zeros on the left, and on the right up to a whole
 * stride. They run over the clip chunk by chunk with the columns before kept as state, which
 * bounds their memory; the transformer then sees all positions. The checkpoint's
 * sliding_window is not applied, as the public code does not apply it either. */
#include "nodes/encoder/enc_qwen3_tts_codec.h"

#define TRY OG__ENC_TRY
#define TAP "codec_encoder."

typedef og__codec_net net;
typedef og__codec_stage stage;
typedef og__codec_layer layer;

static const og_epilogue elu = {OG_ACT_ELU, NULL, NULL};

/* One sequence of n rows, described in scratch. n is exact as a float: it is below a second
 * of samples, or a minute of positions. */
static int sequence(net *m, og_exec *ex, int64_t n, og_rows *rows) {
    og_tensor cu = og_exec_alloc(ex, OG_I32, 1, (int64_t[]){2});
    og_tensor end = og_tensor_rows(&cu, 1, 1);
    *rows = (og_rows){(int)n, 1, m->slot, m->pos, cu.data};
    TRY(og_op_fill(ex, &cu, 0.0f));
    return og_op_fill(ex, &end, (float)n);
}

/* ---- convolutions, on one chunk ---------------------------------------------------------- */

static int conv(net *m, og_exec *ex, og_tensor *y, const og_tensor *x, const og__enc_conv *c,
                og_tensor *state, const og_epilogue *epi) {
    og_rows rows;
    size_t mark = og_exec_mark(ex);
    TRY(sequence(m, ex, x->ne[0], &rows));
    TRY(og_op_conv1d(ex, y, x, &c->w, &c->b, state, &rows, 1, epi));
    og_exec_release(ex, mark);
    return 0;
}

static int residual(net *m, og_exec *ex, og_tensor *x, stage *g) {
    size_t mark = og_exec_mark(ex);
    og_tensor a = og__enc_mat(ex, x->ne[0], g->channels);
    og_tensor h = og__enc_mat(ex, x->ne[0], g->channels / m->cfg.compress);
    og_epilogue add = {OG_ACT_NONE, NULL, x};
    TRY(og_op_unary(ex, &a, x, OG_ACT_ELU));
    TRY(conv(m, ex, &h, &a, &g->res1, &g->res_state, &elu));
    TRY(og_op_linear(ex, 1, x, &h, &g->res2.w, &g->res2.b, &add));
    og_exec_release(ex, mark);
    return 0;
}

/* y = conv (ELU x) with stride r: the r columns before x, x, zeros up to a whole stride. */
static int stride(og_exec *ex, og_tensor *y, const og_tensor *x, stage *g, int r) {
    int64_t n = x->ne[0], whole = y->ne[0] * r;
    size_t mark = og_exec_mark(ex);
    og_tensor all = og__enc_mat(ex, r + whole, g->channels);
    og_tensor past = og_tensor_rows(&all, 0, r), now = og_tensor_rows(&all, r, n);
    og_tensor next = og_tensor_rows(&all, n, r);
    og_tensor end = og_tensor_rows(&all, r + n, whole - n);
    TRY(og_op_copy(ex, &past, &g->down_state));
    TRY(og_op_unary(ex, &now, x, OG_ACT_ELU));
    TRY(og_op_fill(ex, &end, 0.0f));
    TRY(og_op_conv1d_valid(ex, y, &all, &g->down.w, &g->down.b, r, 1, NULL));
    TRY(og_op_copy(ex, &g->down_state, &next));
    og_exec_release(ex, mark);
    return 0;
}

/* y [positions, hidden] of the chunk x [n, 1]. */
static int convolutions(net *m, og_exec *ex, og_tensor *y, const og_tensor *x) {
    const og__codec_cfg *c = &m->cfg;
    og_tensor h = og__enc_mat(ex, x->ne[0], c->filters);
    TRY(conv(m, ex, &h, x, &m->first, &m->first_state, NULL));
    og_tap(ex, &h, TAP "layers.0");
    for (int i = 0; i < c->n_stages; i++) {
        stage *g = &m->stage[i];
        int r = c->ratio[i];
        TRY(residual(m, ex, &h, g));
        og_tap(ex, &h, TAP "layers.%d", 3 * i + 1);
        og_tensor next = og__enc_mat(ex, (h.ne[0] + r - 1) / r, 2 * g->channels);
        TRY(stride(ex, &next, &h, g, r));
        h = next;
        og_tap(ex, &h, TAP "layers.%d", 3 * i + 3);
    }
    TRY(og_op_unary(ex, &h, &h, OG_ACT_ELU));
    TRY(conv(m, ex, y, &h, &m->last, &m->last_state, NULL));
    og_tap(ex, y, TAP "layers.%d", 3 * c->n_stages + 2);
    return 0;
}

static int reset(net *m, og_exec *ex) {
    TRY(og_op_fill(ex, &m->first_state, 0.0f));
    TRY(og_op_fill(ex, &m->last_state, 0.0f));
    for (int i = 0; i < m->cfg.n_stages; i++) {
        TRY(og_op_fill(ex, &m->stage[i].res_state, 0.0f));
        TRY(og_op_fill(ex, &m->stage[i].down_state, 0.0f));
    }
    return 0;
}

static int chunk(net *m, og_exec *ex, int i, const og_tensor *x) {
    int64_t at = i * m->chunk, n = x->ne[0] - at;
    if (n > m->chunk) n = m->chunk;
    og_tensor part = og_tensor_rows(x, at, n);
    og_tensor y = og_tensor_rows(&m->latent, at / m->cfg.hop,
                                 og__codec_positions(&m->cfg, n));
    part = og_tensor_view(&part, 2, (int64_t[]){n, 1});
    if (i == 0) TRY(reset(m, ex));
    return convolutions(m, ex, &y, &part);
}

/* ---- transformer, on all positions -------------------------------------------------------- */

/* The sequence is one page of keys, which the layers fill one after another. */
static int attention(net *m, og_exec *ex, og_tensor *x, const layer *l, const og_rows *rows) {
    const og__codec_cfg *c = &m->cfg;
    int64_t n = rows->n, q_ne[] = {n, c->n_heads, c->head_dim};
    int64_t kv_ne[] = {n, c->n_kv_heads, c->head_dim};
    int64_t page_ne[] = {1, n, c->n_kv_heads, c->head_dim};
    og_tensor h = og__enc_mat(ex, n, c->hidden), none = {0};
    og_tensor cos = og__enc_mat(ex, n, c->head_dim / 2);
    og_tensor sin = og__enc_mat(ex, n, c->head_dim / 2);
    og_tensor y = og_exec_alloc(ex, OG_F32, 3, q_ne);
    og_tensor w[] = {l->q, l->k, l->v};
    og_tensor qkv[] = {og_exec_alloc(ex, OG_F32, 3, q_ne),
                       og_exec_alloc(ex, OG_F32, 3, kv_ne),
                       og_exec_alloc(ex, OG_F32, 3, kv_ne)};
    og_kv kv = {og_exec_alloc(ex, OG_F32, 4, page_ne), og_exec_alloc(ex, OG_F32, 4, page_ne),
                m->slot, 1, (int)n, 0};
    og_epilogue add = {OG_ACT_NONE, &l->scale1, x};
    float scale = 1.0f / __builtin_sqrtf((float)c->head_dim);
    TRY(og_op_rope_table(ex, &cos, &sin, rows, &m->inv_freq));
    TRY(og_op_layer_norm(ex, &h, x, &l->norm1_w, &l->norm1_b, c->eps));
    TRY(og_op_linear(ex, 3, qkv, &h, w, NULL, NULL));
    TRY(og_op_qk_norm_rope_append(ex, &qkv[0], &qkv[1], &qkv[2], &none, &none, c->eps, &cos,
                                  &sin, rows, &kv));
    TRY(og_op_attn_paged(ex, &y, &qkv[0], &kv, rows, scale, 0));
    return og_op_linear(ex, 1, x, &y, &l->o, NULL, &add);
}

static int mlp(net *m, og_exec *ex, og_tensor *x, const layer *l) {
    const og__codec_cfg *c = &m->cfg;
    og_tensor h = og__enc_mat(ex, x->ne[0], c->hidden);
    og_tensor wide = og__enc_mat(ex, x->ne[0], c->ffn);
    og_epilogue gelu = {OG_ACT_GELU, NULL, NULL}, add = {OG_ACT_NONE, &l->scale2, x};
    TRY(og_op_layer_norm(ex, &h, x, &l->norm2_w, &l->norm2_b, c->eps));
    TRY(og_op_linear(ex, 1, &wide, &h, &l->fc1, NULL, &gelu));
    return og_op_linear(ex, 1, x, &wide, &l->fc2, NULL, &add);
}

static int transformer(net *m, og_exec *ex, int i, og_tensor *x) {
    og_rows rows;
    size_t start = og_exec_mark(ex);
    TRY(sequence(m, ex, x->ne[0], &rows));
    size_t mark = og_exec_mark(ex);
    TRY(attention(m, ex, x, &m->layers[i], &rows));
    og_exec_release(ex, mark);
    TRY(mlp(m, ex, x, &m->layers[i]));
    og_exec_release(ex, start);
    og_tap(ex, x, TAP "transformer.layers.%d", i);
    return 0;
}

/* ---- quantizers ----------------------------------------------------------------------------- */

/* Groups [from, to): codes of d, each one's row taken from what is left. */
static int quantize(net *m, og_exec *ex, og_tensor *codes, const og_tensor *d,
                    const og_tensor *proj, int from, int to) {
    size_t mark = og_exec_mark(ex);
    og_tensor left = og__enc_mat(ex, d->ne[0], m->cfg.codebook_dim);
    og_tensor row = og__enc_mat(ex, d->ne[0], m->cfg.codebook_dim);
    TRY(og_op_linear(ex, 1, &left, d, proj, NULL, NULL));
    for (int g = from; g < to; g++) {
        og_tensor ids = og__enc_columns(codes, g, 1);
        ids.rank = 1;
        TRY(og_op_rvq_nearest(ex, &ids, &left, &m->codebook[g]));
        if (g + 1 == to) break;
        TRY(og_op_gather_rows(ex, &row, &m->codebook[g], &ids));
        TRY(og_op_binary(ex, &left, &left, &row, OG_SUB));
    }
    og_exec_release(ex, mark);
    return 0;
}

static int finish(net *m, og_exec *ex, og_tensor *codes, const og_tensor *x) {
    const og__codec_cfg *c = &m->cfg;
    int64_t n = x->ne[0], frames = (n + CODEC_DOWN - 1) / CODEC_DOWN;
    *codes = og_exec_alloc(ex, OG_I32, 2, (int64_t[]){frames, c->groups});
    og_tensor d = og__enc_mat(ex, frames, c->hidden), none = {0};
    og_tensor padded = og__enc_mat(ex, (frames + 1) * CODEC_DOWN, c->hidden);
    TRY(og_op_pad_time(ex, &padded, x, CODEC_DOWN, OG_PAD_EDGE));
    TRY(og_op_conv1d_valid(ex, &d, &padded, &m->downsample, &none, CODEC_DOWN, 1, NULL));
    og_tap(ex, &d, TAP "downsample");
    TRY(quantize(m, ex, codes, &d, &m->semantic_proj, 0, c->semantic));
    TRY(quantize(m, ex, codes, &d, &m->acoustic_proj, c->semantic, c->groups));
    og_tap(ex, codes, TAP "codes");
    return 0;
}

/* ---- pieces: chunks of the convolutions, each layer, the quantizers ------------------------- */

static int chunks(const net *m, int64_t samples) {
    return (int)((samples + m->chunk - 1) / m->chunk);
}

static int pieces(const void *arg, int64_t n) {
    const net *m = arg;
    return chunks(m, n) + m->cfg.n_layers + 1;
}

static int piece(void *arg, og_exec *ex, int i, const og_tensor *x, og_tensor *y) {
    net *m = arg;
    int first = chunks(m, x->ne[0]);
    if (i < first) return chunk(m, ex, i, x);
    og_tensor all = og_tensor_rows(&m->latent, 0, og__codec_positions(&m->cfg, x->ne[0]));
    if (i < first + m->cfg.n_layers) return transformer(m, ex, i - first, &all);
    return finish(m, ex, y, &all);
}

/* ---- descriptor ------------------------------------------------------------------------------ */

static int check(const json_t *root, og_err *err) {
    og__codec_cfg c;
    return og__codec_config(root, &c, err);
}

static const og_encoder_impl impl = {
    .dims = og__codec_dims,
    .load = og__codec_load,
    .unload = og__codec_unload,
    .pieces = pieces,
    .piece = piece,
};

static const og_port_desc ports[] = {
    {"audio", OG_PORT_IN | OG_PORT_SAMPLES, "audio[$input_sample_rate]?",
     "reference voice, mono"},
    {"codes", OG_PORT_OUT, "codes[$encoder_valid_num_quantizers]",
     "one frame for each encode_downsample_rate samples"},
    {NULL, 0, NULL, NULL},
};

static const og_option_desc options[] = {
    OG_ENCODER_OPTIONS,
    {NULL, OG_OPT_INT, NULL, 0, 0, 0, NULL},
};

const og_arch og_arch_qwen3_tts_codec_encoder = {
    .name = "qwen3_tts_codec_encoder",
    .doc = "Codes of a reference voice, as the talker speaks them.",
    .kind = OG_KIND_ENCODER,
    .model = "Qwen3-TTS-Tokenizer-12Hz",
    .section = "",
    .ports = ports,
    .options = options,
    .check = check,
    .impl = &impl,
};
