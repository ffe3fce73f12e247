/* Qwen3-TTS talker with its code predictor (12 Hz codec, G code groups a frame).
 *
 *     row    = text_projection(text_embedding[id])      fc2(silu(fc1 x))
 *            + codec_embedding[id] | sum of a frame's group embeddings | speaker vector
 *     h      = decoder stack (q/k norm, RoPE halves, GQA, gated SiLU), final norm
 *     c0     = sample(codec_head h); [vocab-1024, vocab) is banned but for the end token
 *     z      = predictor stack over [h, codec_embedding[c0]], a fresh KV for each frame,
 *              inputs through small_to_mtp_projection where the widths differ
 *     cg     = sample(lm_head[g-1] z), and embedding g-1 of cg is the next input, g < G
 *     input  = codec_embedding[c0] + sum of embedding g-1 [cg], one reduction, + feed row
 *
 * Public reference: qwen-tts 0.1.1, Qwen3TTSTalkerForConditionalGeneration. The three rows
 * of its multimodal RoPE are always equal here, so sections and interleaving have no effect.
 */
#include "kernels/base/alloc.h"
#include "nodes/ar/ar.h"
#include "nodes/blocks/decoder.h"

#include <string.h>

#define MAX_GROUPS 64
#define BANNED_TOP 1024 /* ids at the end of the vocabulary that name no code */
#define CP "code_predictor_config."

enum { TABLE_TEXT, TABLE_CODEC, TABLE_FRAME, TABLE_SPEAKER };

typedef struct talker_cfg {
    og_decoder_cfg talker, pred;
    int vocab, text_vocab, text_hidden, groups, eos, codebook;
} talker_cfg;

typedef struct talker {
    og_ar_model base; /* first */
    og_store store;
    talker_cfg c;
    og_weights *weights;
    og_decoder net;                 /* talker.model.* */
    og_tensor text_embedding;       /* [text_vocab, Ht] */
    og_tensor fc1, fc1_bias;        /* text_projection: [Ht, Ht] [Ht] */
    og_tensor fc2, fc2_bias;        /* [H, Ht] [H] */
    og_tensor codec_head;           /* [vocab, H] */
    og_tensor embed[MAX_GROUPS];    /* group g: [vocab, H], then [codebook, H] */
    og_tensor lm_head[MAX_GROUPS];  /* head g-1 draws group g: [codebook, Hc] */
    og_depth depth;
    og_tensor sum_off, sum_table;   /* a frame's groups as a row program, for max_rows */
} talker;

static const talker *as_talker(const og_ar_model *m) {
    return (const talker *)(const void *)m;
}

/* ---- config ---------------------------------------------------------------------- */

static int mismatch(og_err *err, const char *key, int got, int want, const char *other) {
    int rc = og_err_set(err, OG_EFORMAT, "%s is %d, %s is %d", key, got, other, want);
    og_err_field(err, key);
    return rc;
}

static int no_window(const json_t *s, const char *key, og_err *err) {
    int on = 0;
    int rc = og_cfg_bool_or(s, key, &on, 0, err);
    if (rc || !on) return rc;
    rc = og_err_set(err, OG_EUNSUPPORTED, "%s: a sliding window is not supported", key);
    og_err_field(err, key);
    return rc;
}

static int read_cfg(const json_t *s, talker_cfg *c, og_err *err) {
    int pred_groups;
    int rc = og_decoder_cfg_read(s, "", &c->talker, err);
    if (!rc) rc = og_decoder_cfg_read(s, CP, &c->pred, err);
    if (!rc) rc = og_cfg_int(s, "vocab_size", &c->vocab, BANNED_TOP + 1, 1 << 24, err);
    if (!rc) rc = og_cfg_int(s, "text_vocab_size", &c->text_vocab, 1, 1 << 24, err);
    if (!rc) rc = og_cfg_int(s, "text_hidden_size", &c->text_hidden, 1, 1 << 20, err);
    if (!rc) rc = og_cfg_int(s, "num_code_groups", &c->groups, 2, MAX_GROUPS, err);
    if (!rc) rc = og_cfg_int(s, "codec_eos_token_id", &c->eos, 0, c->vocab - 1, err);
    if (!rc) rc = og_cfg_int(s, CP "vocab_size", &c->codebook, 1, c->vocab, err);
    if (!rc)
        rc = og_cfg_int_or(s, CP "num_code_groups", &pred_groups, c->groups, 2, MAX_GROUPS,
                           err);
    if (!rc && pred_groups != c->groups)
        rc = mismatch(err, CP "num_code_groups", pred_groups, c->groups, "num_code_groups");
    if (!rc) rc = no_window(s, "use_sliding_window", err);
    if (!rc) rc = no_window(s, CP "use_sliding_window", err);
    c->talker.qk_norm = c->pred.qk_norm = 1;
    return rc;
}

static int check(const json_t *section, og_err *err) {
    talker_cfg c;
    return read_cfg(section, &c, err);
}

static int64_t count_params(const talker_cfg *c) {
    int64_t h = c->talker.hidden, t = c->text_hidden, p = c->pred.hidden;
    int64_t n = og_decoder_params(&c->talker) + og_decoder_params(&c->pred);
    n += t * c->text_vocab + t * (t + 1) + h * (t + 1) + 2 * h * c->vocab;
    n += (int64_t)(c->groups - 1) * c->codebook * (h + p);
    return h == p ? n : n + p * (h + 1);
}

static int dims(const json_t *section, og_ar_dims *d, og_err *err) {
    talker_cfg c;
    int rc = read_cfg(section, &c, err);
    if (rc < 0) return rc;
    *d = (og_ar_dims){.hidden = c.talker.hidden,
                      .vocab = c.vocab,
                      .groups = c.groups,
                      .layers = c.talker.layers,
                      .kv_heads = c.talker.kv_heads,
                      .head_dim = c.talker.head_dim,
                      .depth_layers = c.pred.layers,
                      .depth_kv_heads = c.pred.kv_heads,
                      .depth_head_dim = c.pred.head_dim,
                      .max_positions = c.talker.max_positions,
                      .n_params = count_params(&c)};
    return 0;
}

/* ---- weights --------------------------------------------------------------------- */

static int bind_nets(talker *m, og_bind *b, og_err *err) {
    m->net.tap = "talker";
    m->depth.net.tap = "code_predictor";
    int rc = og_decoder_bind(&m->net, &m->c.talker, &m->store, b, "model.", err);
    if (rc < 0) return rc;
    return og_decoder_bind(&m->depth.net, &m->c.pred, &m->store, b, "code_predictor.model.",
                           err);
}

static void bind_tables(talker *m, og_bind *b) {
    const talker_cfg *c = &m->c;
    int64_t h = c->talker.hidden, t = c->text_hidden, p = c->pred.hidden;
    og_bind_get(b, &m->text_embedding, og_ne2(c->text_vocab, t),
                "model.text_embedding.weight");
    og_bind_get(b, &m->fc1, og_ne2(t, t), "text_projection.linear_fc1.weight");
    og_bind_get(b, &m->fc1_bias, og_ne1(t), "text_projection.linear_fc1.bias");
    og_bind_get(b, &m->fc2, og_ne2(h, t), "text_projection.linear_fc2.weight");
    og_bind_get(b, &m->fc2_bias, og_ne1(h), "text_projection.linear_fc2.bias");
    og_bind_get(b, &m->codec_head, og_ne2(c->vocab, h), "codec_head.weight");
    og_bind_get(b, &m->embed[0], og_ne2(c->vocab, h), "model.codec_embedding.weight");
    for (int g = 1; g < c->groups; g++) {
        og_bind_get(b, &m->embed[g], og_ne2(c->codebook, h),
                    "code_predictor.model.codec_embedding.%d.weight", g - 1);
        og_bind_get(b, &m->lm_head[g - 1], og_ne2(c->codebook, p),
                    "code_predictor.lm_head.%d.weight", g - 1);
    }
    if (h == p) return;
    og_bind_get(b, &m->depth.proj, og_ne2(p, h),
                "code_predictor.small_to_mtp_projection.weight");
    og_bind_get(b, &m->depth.proj_bias, og_ne1(p),
                "code_predictor.small_to_mtp_projection.bias");
}

static int bind_all(talker *m, og_err *err) {
    og_bind *b = og_bind_create(m->weights, "talker.");
    int rc = 0;
    if (b) rc = bind_nets(m, b, err);
    if (b && !rc) bind_tables(m, b);
    if (!rc) rc = og_bind_finish(b, err);
    og_bind_free(b);
    return rc;
}

static size_t count_bytes(const talker *m) {
    const og_tensor *one[] = {&m->text_embedding, &m->fc1, &m->fc1_bias, &m->fc2,
                              &m->fc2_bias, &m->codec_head, &m->embed[0]};
    size_t sum = og_decoder_bytes(&m->net) + og_decoder_bytes(&m->depth.net);
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) sum += og_tensor_bytes(one[i]);
    for (int g = 1; g < m->c.groups; g++)
        sum += og_tensor_bytes(&m->embed[g]) + og_tensor_bytes(&m->lm_head[g - 1]);
    if (og_tensor_present(&m->depth.proj))
        sum += og_tensor_bytes(&m->depth.proj) + og_tensor_bytes(&m->depth.proj_bias);
    return sum;
}

static int make_i32(talker *m, int64_t n, og_tensor *t, int32_t **v, og_err *err) {
    *t = og_tensor_1d(OG_I32, n, NULL);
    *v = og_store_make(&m->store, t, err);
    return *v ? 0 : OG_ENOMEM;
}

/* Row i of the program is groups 0 .. G-1 of frame i; its indices are the codes themselves. */
static int make_frame_sum(talker *m, int rows, og_err *err) {
    int g = m->c.groups;
    int32_t *off, *table;
    int rc = make_i32(m, rows + 1, &m->sum_off, &off, err);
    if (!rc) rc = make_i32(m, (int64_t)rows * g, &m->sum_table, &table, err);
    if (rc < 0) return rc;
    for (int i = 0; i <= rows; i++) off[i] = i * g;
    for (int i = 0; i < rows * g; i++) table[i] = i % g;
    return 0;
}

static int make_mask(talker *m, og_err *err) {
    m->base.allowed = og_tensor_1d(OG_U8, m->c.vocab, NULL);
    uint8_t *allowed = og_store_make(&m->store, &m->base.allowed, err);
    if (!allowed) return OG_ENOMEM;
    memset(allowed, 1, (size_t)m->c.vocab - BANNED_TOP);
    memset(allowed + m->c.vocab - BANNED_TOP, 0, BANNED_TOP);
    allowed[m->c.eos] = 1;
    return 0;
}

static int place_all(talker *m, og_err *err) {
    og_tensor *one[] = {&m->text_embedding, &m->fc1,        &m->fc1_bias,   &m->fc2,
                        &m->fc2_bias,       &m->codec_head, &m->embed[0],   &m->depth.proj,
                        &m->depth.proj_bias, &m->sum_off,   &m->sum_table,  &m->base.allowed};
    int rc = og_decoder_place(&m->net, &m->store, err);
    if (!rc) rc = og_decoder_place(&m->depth.net, &m->store, err);
    for (size_t i = 0; !rc && i < sizeof one / sizeof *one; i++)
        rc = og_store_place(&m->store, one[i], err);
    for (int g = 1; !rc && g < m->c.groups; g++) {
        rc = og_store_place(&m->store, &m->embed[g], err);
        if (!rc) rc = og_store_place(&m->store, &m->lm_head[g - 1], err);
    }
    return rc;
}

static void unload(og_ar_model *base) {
    if (!base) return;
    talker *m = (talker *)(void *)base;
    og_decoder_free(&m->net);
    og_decoder_free(&m->depth.net);
    og_store_free(&m->store);
    og_free(m);
}

/* Rows of the largest call of `table` or `feedback`. */
static int most_rows(const og_node_cfg *cfg) {
    int n = cfg->max_batched_tokens > cfg->max_seqs ? cfg->max_batched_tokens
                                                    : cfg->max_seqs;
    return n > OG_ROW_MAX_TERMS ? n : OG_ROW_MAX_TERMS;
}

static int load(const og_node_cfg *cfg, const og_ar_dims *d, og_ar_model **out,
                og_err *err) {
    (void)d;
    talker *m = og_calloc(1, sizeof *m);
    if (!m) return og_err_set(err, OG_ENOMEM, "no memory for a talker");
    og_store_init(&m->store, cfg->exec);
    const json_t *section = og_model_config(cfg->model, cfg->folder, cfg->arch->section, err);
    int rc = read_cfg(section, &m->c, err);
    if (!rc) rc = og_model_weights(cfg->model, cfg->folder, &m->weights, err);
    if (!rc) rc = bind_all(m, err);
    if (!rc) rc = make_frame_sum(m, most_rows(cfg), err);
    if (!rc) rc = make_mask(m, err);
    if (!rc) rc = place_all(m, err);
    if (rc < 0) {
        unload(&m->base);
        return rc;
    }
    m->base.direct[TABLE_CODEC] = m->embed[0];
    m->base.weight_bytes = count_bytes(m);
    m->depth.n_groups = m->c.groups;
    m->depth.first = m->embed[0];
    m->depth.embed = &m->embed[1];
    m->depth.head = m->lm_head;
    *out = &m->base;
    return 0;
}

/* ---- network --------------------------------------------------------------------- */

static int text_rows(const talker *m, og_exec *ex, og_tensor *y, const og_tensor *ids) {
    int64_t ne[2] = {ids->ne[0], m->c.text_hidden};
    og_tensor e = og_exec_alloc(ex, OG_F32, 2, ne), t = og_exec_alloc(ex, OG_F32, 2, ne);
    og_epilogue silu = {OG_ACT_SILU, NULL, NULL};
    int rc = og_op_gather_rows(ex, &e, &m->text_embedding, ids);
    if (!rc) rc = og_op_linear(ex, 1, &t, &e, &m->fc1, &m->fc1_bias, &silu);
    if (!rc) rc = og_op_linear(ex, 1, y, &t, &m->fc2, &m->fc2_bias, NULL);
    return rc;
}

static int frame_rows(const talker *m, og_exec *ex, og_tensor *y, const og_tensor *codes) {
    return og_op_row_sum(ex, y, &(og_row_prog){.tables = m->embed,
                                               .n_tables = m->c.groups,
                                               .off = m->sum_off.data,
                                               .table = m->sum_table.data,
                                               .index = codes->data});
}

static int table(const og_ar_model *base, og_exec *ex, int t, og_tensor *y,
                 const og_tensor *args) {
    const talker *m = as_talker(base);
    size_t mark = og_exec_mark(ex);
    int rc = t == TABLE_TEXT    ? text_rows(m, ex, y, args)
             : t == TABLE_FRAME ? frame_rows(m, ex, y, args)
                                : og_op_copy(ex, y, args);
    og_exec_release(ex, mark);
    return rc;
}

static int stack(const og_ar_model *m, og_exec *ex, og_tensor *x, og_kv *kv,
                 const og_rows *rows) {
    return og_op_decoder_stack(ex, x, &as_talker(m)->net, kv, rows);
}

static int logits(const og_ar_model *m, og_exec *ex, og_tensor *y, const og_tensor *h) {
    return og_op_linear(ex, 1, y, h, &as_talker(m)->codec_head, NULL, NULL);
}

static int head(const og_ar_model *m, og_exec *ex, og_tensor *codes, const og_tensor *h,
                og_kv *kv, const int32_t *slots, const og_sample_row *rows) {
    return og_op_depth_ar(ex, codes, h, &as_talker(m)->depth, kv, slots, rows);
}

static int feedback(const og_ar_model *m, og_exec *ex, og_tensor *y,
                    const og_tensor *codes) {
    return frame_rows(as_talker(m), ex, y, codes);
}

static const og_ar_impl impl = {dims, load, unload, table, stack, logits, head, feedback};

/* ---- descriptor ------------------------------------------------------------------ */

static const og_port_desc ports[] = {
    {"prompt", OG_PORT_IN | OG_PORT_ROWS, "embeds[$hidden_size]",
     "rows before the first frame"},
    {"feed", OG_PORT_IN | OG_PORT_ROWS | OG_PORT_STREAM, "embeds[$hidden_size]?",
     "row i is added to the feedback of frame i, the fill row after the last"},
    {"codes", OG_PORT_OUT | OG_PORT_STREAM, "codes[$num_code_groups]",
     "one frame a step; the token that ends the decoding makes none"},
    {"tokens", OG_PORT_OUT | OG_PORT_STREAM, "tokens", "group 0 of each frame"},
    {"hidden", OG_PORT_OUT | OG_PORT_STREAM, "hidden[$hidden_size]",
     "normed state that the frame was drawn from"},
    {0}};

/* In the order of the TABLE_ enum. */
static const og_table_desc tables[] = {
    {"text", OG_TABLE_ID, "$text_vocab_size", NULL,
     "text token: its embedding through text_projection"},
    {"codec", OG_TABLE_ID, "$vocab_size", NULL, "codec token: codec_embedding"},
    {"frame", OG_TABLE_CODES, "$code_predictor_config.vocab_size", "$num_code_groups",
     "code frame: sum of the embeddings of its groups"},
    {"speaker", OG_TABLE_VECTOR, NULL, "$hidden_size", "speaker vector, as it is"},
    {0}};

const og_arch og_arch_qwen3_tts_talker = {
    .name = "qwen3_tts_talker",
    .doc = "Talker and code predictor: text rows in, frames of codec codes out.",
    .kind = OG_KIND_AR,
    .model = "Qwen3-TTS",
    .section = "talker_config",
    .tokenizer = "",
    .ports = ports,
    .tables = tables,
    .check = check,
    .impl = &impl};
