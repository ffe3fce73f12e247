/* Qwen3-TTS code2wav, the decoder of the 12 Hz codec (qwen_tts, tokenizer_12hz, v2). At
 * the published sizes, T frames of 16 codes:
 *
 *   RVQ         row of group 0 -> linear; sum of the rows of groups 1.. -> linear; added
 *   pre_conv    causal conv k 3                                             [T, 1024]
 *   transformer linear to 512, 8 pre-norm layers with layer scales, window 72, RoPE,
 *               RMSNorm, linear back to 1024
 *   upsample    twice: transposed conv k 2 stride 2; ConvNeXt: depthwise causal conv k 7,
 *               LayerNorm, linear x4, GELU, linear, times gamma, + input    [4T, 1024]
 *   decoder.0   causal conv k 7                                             [4T, 1536]
 *   4 blocks    SnakeBeta; transposed conv k 2r stride r, channels halve; three units
 *               (dilation 1, 3, 9): snake, conv k 7, snake, conv k 1, + input
 *               r 8, 5, 4, 3            [32T, 768] [160T, 384] [640T, 192] [1920T, 96]
 *   output      SnakeBeta, causal conv k 7 to one channel, clamp to [-1, 1] [1920T]
 *
 * Each convolution keeps its last input columns per slot, attention a ring of keys, so
 * any chunking gives the same bits. One deliberate difference to the public Python: it
 * cuts frames in chunks of 300 and restarts positions and state in each of them, with 25
 * frames of context; here positions are absolute and nothing restarts. The two agree up
 * to frame 300, and after it this is the decode that was not cut. */
#include <string.h>

#include "nodes/vocoder/voc_qwen3_tts.h"

#define TRY(call)                                                                        \
    do {                                                                                 \
        int rc_ = (call);                                                                \
        if (rc_ < 0) return rc_;                                                         \
    } while (0)

typedef og__voc_net net;

static og_tensor mat(og_exec *ex, int64_t rows, int64_t width) {
    return og_exec_alloc(ex, OG_F32, 2, (int64_t[]){rows, width});
}

/* The first rows x width values of a buffer. */
static og_tensor part(const og_tensor *buf, int64_t rows, int64_t width) {
    og_tensor flat = og_tensor_rows(buf, 0, rows * width);
    return og_tensor_view(&flat, 2, (int64_t[]){rows, width});
}

static int snake(og_exec *ex, og_tensor *y, const og_tensor *x, const og__voc_snake *s) {
    return og_op_snake(ex, y, x, &s->alpha, &s->inv_beta);
}

static int conv(og_exec *ex, og_tensor *y, const og_tensor *x, og__voc_conv *c,
                const og_rows *rows, int dilation) {
    return og_op_conv1d(ex, y, x, &c->w, &c->b, &c->state, rows, dilation, NULL);
}

static int conv_t(og_exec *ex, og_tensor *y, const og_tensor *x, og__voc_conv *c,
                  const og_rows *rows, int stride) {
    return og_op_conv_transpose1d(ex, y, x, &c->w, &c->b, &c->state, rows, stride);
}

static int linear(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                  const og_tensor *b, const og_epilogue *epi) {
    return og_op_linear(ex, 1, y, x, w, b, epi);
}

/* The caller's rows at the time resolution of level i. */
static og_rows at_level(const net *m, int i) {
    const og__voc_level *l = &m->level[i];
    const og_rows *frames = &m->step.frames;
    if (i == 0) return *frames;
    return (og_rows){frames->n * l->times, frames->n_seg, l->slot, NULL, l->cu_seen};
}

/* ---- the network, from codes to samples ------------------------------------------- */

static int quantizer(net *m, og_exec *ex, og_tensor *x, int64_t rows) {
    int semantic = m->cfg.semantic, rest = m->cfg.groups - semantic;
    og_row_prog first = {m->codebook, semantic, m->first_off.data, m->first_table.data,
                         m->step.first_index};
    og_row_prog other = {m->codebook + semantic, rest, m->rest_off.data,
                         m->rest_table.data, m->step.rest_index};
    og_epilogue add = {OG_ACT_NONE, NULL, x};
    size_t mark = og_exec_mark(ex);
    og_tensor sum = mat(ex, rows, m->cfg.codebook_dim / 2);
    TRY(og_op_row_sum(ex, &sum, &first));
    TRY(linear(ex, x, &sum, &m->proj_first, NULL, NULL));
    TRY(og_op_row_sum(ex, &sum, &other));
    TRY(linear(ex, x, &sum, &m->proj_rest, NULL, &add));
    og_exec_release(ex, mark);
    og_tap(ex, x, "code2wav.quant");
    return 0;
}

/* y [n, latent] from the sums of the quantizer. */
static int pre_net(net *m, og_exec *ex, og_tensor *y, const og_rows *rows) {
    size_t mark = og_exec_mark(ex);
    og_tensor q = mat(ex, rows->n, m->cfg.codebook_dim);
    og_tensor h = mat(ex, rows->n, m->cfg.width);
    TRY(quantizer(m, ex, &q, rows->n));
    TRY(conv(ex, y, &q, &m->pre_conv, rows, 1));
    og_tap(ex, y, "code2wav.pre_conv");
    TRY(linear(ex, &h, y, &m->in_w, &m->in_b, NULL));
    og_tap(ex, &h, "code2wav.input_proj");
    TRY(og_op_decoder_stack(ex, &h, &m->stack, m->kv, rows));
    TRY(linear(ex, y, &h, &m->out_w, &m->out_b, NULL));
    og_tap(ex, y, "code2wav.pre_transformer");
    og_exec_release(ex, mark);
    return 0;
}

/* y [n * r, latent]; rows describes x, rows_up describes y. */
static int upsample(net *m, og_exec *ex, og_tensor *y, const og_tensor *x, int i,
                    const og_rows *rows, const og_rows *rows_up) {
    og__voc_upsample *u = &m->up[i];
    int64_t n = rows_up->n, c = m->cfg.latent;
    og_epilogue gelu = {OG_ACT_GELU, NULL, NULL};
    og_epilogue join = {OG_ACT_NONE, &u->gamma, y};
    size_t mark = og_exec_mark(ex);
    og_tensor h = mat(ex, n, c), wide = mat(ex, n, 4 * c);
    TRY(conv_t(ex, y, x, &u->up, rows, m->cfg.up[i]));
    og_tap(ex, y, "code2wav.upsample.%d.0", i);
    TRY(og_op_conv1d_depthwise(ex, &h, y, &u->dw_w, &u->dw_b, &u->dw_state, rows_up, 1));
    TRY(og_op_layer_norm(ex, &h, &h, &u->norm_w, &u->norm_b, 1e-6f));
    TRY(linear(ex, &wide, &h, &u->pw1_w, &u->pw1_b, &gelu));
    TRY(linear(ex, y, &wide, &u->pw2_w, &u->pw2_b, &join));
    og_tap(ex, y, "code2wav.upsample.%d.1", i);
    og_exec_release(ex, mark);
    return 0;
}

/* x += conv2(snake(conv1(snake(x)))); a and b are as large as x. */
static int unit(og_exec *ex, og_tensor *x, og_tensor *a, og_tensor *b, og__voc_unit *u,
                const og_rows *rows, int dilation) {
    og_epilogue join = {OG_ACT_NONE, NULL, x};
    TRY(snake(ex, a, x, &u->act1));
    TRY(conv(ex, b, a, &u->conv1, rows, dilation));
    TRY(snake(ex, b, b, &u->act2));
    return linear(ex, x, b, &u->conv2_w, &u->conv2_b, &join);
}

/* Turns *x, in buf[*at], into the next block's input, in another of the three buffers. */
static int block(net *m, og_exec *ex, og_tensor buf[3], int *at, og_tensor *x, int i,
                 const og_rows *rows, const og_rows *rows_up) {
    og__voc_block *k = &m->block[i];
    int to = (*at + 1) % 3, spare = (*at + 2) % 3, width = m->cfg.channels >> (i + 1);
    og_tensor y = part(&buf[to], rows_up->n, width);
    og_tensor a = part(&buf[*at], rows_up->n, width);
    og_tensor b = part(&buf[spare], rows_up->n, width);
    TRY(snake(ex, x, x, &k->act));
    og_tap(ex, x, "code2wav.decoder.%d.block.0", i + 1);
    TRY(conv_t(ex, &y, x, &k->up, rows, m->cfg.rate[i]));
    og_tap(ex, &y, "code2wav.decoder.%d.block.1", i + 1);
    for (int j = 0; j < VOC_UNITS; j++) {
        TRY(unit(ex, &y, &a, &b, &k->unit[j], rows_up, og__voc_dilation(j)));
        og_tap(ex, &y, "code2wav.decoder.%d.block.%d", i + 1, j + 2);
    }
    *x = y;
    *at = to;
    return 0;
}

/* Values of the largest activation after the upsamples: three such buffers are enough. */
static int64_t widest(const net *m, int frames) {
    int64_t most = 0;
    for (int i = 0; i <= m->cfg.n_blocks; i++) {
        int64_t n = (int64_t)m->level[m->cfg.n_up + i].times * (m->cfg.channels >> i);
        if (n > most) most = n;
    }
    return most * frames;
}

/* audio [n * samples, 1] from x [n * ups, latent]. */
static int decoder(net *m, og_exec *ex, og_tensor *audio, const og_tensor *x) {
    int level = m->cfg.n_up, at = 0;
    og_rows rows = at_level(m, level);
    size_t mark = og_exec_mark(ex);
    og_tensor buf[3];
    for (int i = 0; i < 3; i++) {
        buf[i] = og_exec_alloc(ex, OG_F32, 1, (int64_t[]){widest(m, m->step.frames.n)});
    }
    og_tensor h = part(&buf[0], rows.n, m->cfg.channels);
    TRY(conv(ex, &h, x, &m->first, &rows, 1));
    og_tap(ex, &h, "code2wav.decoder.0");
    for (int i = 0; i < m->cfg.n_blocks; i++) {
        og_rows rows_up = at_level(m, ++level);
        TRY(block(m, ex, buf, &at, &h, i, &rows, &rows_up));
        rows = rows_up;
    }
    TRY(snake(ex, &h, &h, &m->last_act));
    TRY(conv(ex, audio, &h, &m->last, &rows, 1));
    TRY(og_op_clamp(ex, audio, audio, -1.0f, 1.0f));
    og_exec_release(ex, mark);
    return 0;
}

/* All ops of a step: nothing here may depend on the contents of memory. */
static int network(void *arg, og_exec *ex) {
    net *m = arg;
    og_rows rows = at_level(m, 0);
    size_t mark = og_exec_mark(ex);
    og_tensor x = mat(ex, rows.n, m->cfg.latent);
    TRY(og_op_scatter_rows(ex, &m->all_slots, &m->step.slot_values, &m->step.slot_ids));
    TRY(pre_net(m, ex, &x, &rows));
    for (int i = 0; i < m->cfg.n_up; i++) {
        og_rows rows_up = at_level(m, i + 1);
        og_tensor up = mat(ex, rows_up.n, m->cfg.latent);
        TRY(upsample(m, ex, &up, &x, i, &rows, &rows_up));
        x = up;
        rows = rows_up;
    }
    TRY(decoder(m, ex, &m->step.y, &x));
    og_exec_release(ex, mark);
    return 0;
}

/* Indices and rows of this step, on the host. */
static void describe(net *m, const int32_t *codes, const og_rows *frames) {
    int groups = m->cfg.groups, semantic = m->cfg.semantic, rest = groups - semantic;
    for (int r = 0; r < frames->n; r++) {
        memcpy(m->first_index + r * semantic, codes + r * groups,
               (size_t)semantic * sizeof *codes);
        memcpy(m->rest_index + r * rest, codes + r * groups + semantic,
               (size_t)rest * sizeof *codes);
    }
    for (int i = 1, k = 0; i < m->n_levels; i++) {
        const og__voc_level *l = &m->level[i];
        for (int s = 0; s <= frames->n_seg; s++) l->cu[s] = frames->cu[s] * l->times;
        for (int s = 0; s < frames->n_seg; s++, k++) {
            int empty = l->cu[s] == l->cu[s + 1];
            m->slot_ids[k] = empty ? -1 : l->at + l->cu[s];
            m->slot_values[k] = empty ? 0 : frames->slot[frames->cu[s]];
        }
    }
}

static void *staged(og_exec *ex, const int32_t *host, int64_t n, int *rc) {
    const void *seen = NULL;
    if (*rc >= 0) *rc = og_exec_stage(ex, host, (size_t)n * sizeof *host, &seen);
    return (void *)(uintptr_t)seen;
}

/* The sizes follow from n and n_seg alone, and with them the addresses. */
static int stage(net *m, og_exec *ex, const og_rows *frames) {
    int64_t n = frames->n, seg = frames->n_seg, slots = seg * (m->n_levels - 1);
    og__voc_step *t = &m->step;
    int rc = og_exec_stage_begin(ex);
    if (rc < 0) return rc;
    t->frames = (og_rows){frames->n, frames->n_seg, staged(ex, frames->slot, n, &rc),
                          staged(ex, frames->pos, 3 * n, &rc),
                          staged(ex, frames->cu, seg + 1, &rc)};
    t->first_index = staged(ex, m->first_index, n * m->cfg.semantic, &rc);
    t->rest_index =
        staged(ex, m->rest_index, n * (m->cfg.groups - m->cfg.semantic), &rc);
    for (int i = 1; i < m->n_levels; i++)
        m->level[i].cu_seen = staged(ex, m->level[i].cu, seg + 1, &rc);
    void *ids = staged(ex, m->slot_ids, slots, &rc);
    void *values = staged(ex, m->slot_values, slots, &rc);
    t->slot_ids = og_place_on(ex, og_tensor_1d(OG_I32, slots, ids));
    t->slot_values = og_place_on(ex, og_tensor_2d(OG_I32, slots, 1, values));
    int ended = og_exec_stage_end(ex);
    return rc < 0 ? rc : ended;
}

static int forward(void *arg, og_exec *ex, og_tensor *audio, const int32_t *codes,
                   const og_rows *frames) {
    net *m = arg;
    int64_t samples = (int64_t)frames->n * m->cfg.samples_per_frame;
    uint64_t key = (uint64_t)frames->n << 32 | (uint64_t)frames->n_seg;
    describe(m, codes, frames);
    TRY(stage(m, ex, frames));
    m->step.y = mat(ex, samples, 1);
    TRY(og_graphs_run(&m->graphs, ex, key, network, m));
    *audio = og_tensor_view(&m->step.y, 1, &samples);
    og_tap(ex, audio, "code2wav.audio");
    return 0;
}

static int reset(void *arg, og_exec *ex, int slot) {
    net *m = arg;
    for (int i = 0; i < m->n_states; i++) {
        og_tensor mine = og_tensor_rows(m->states[i], slot, 1);
        TRY(og_op_fill(ex, &mine, 0.0f));
    }
    return 0;
}

/* ---- descriptor ------------------------------------------------------------------- */

static int check(const json_t *root, og_err *err) {
    og__voc_cfg c;
    return og__voc_config(root, &c, err);
}

static const og_vocoder_impl impl = {
    .dims = og__voc_dims,
    .load = og__voc_load,
    .unload = og__voc_unload,
    .forward = forward,
    .reset = reset,
};

static const og_port_desc ports[] = {
    {"codes", OG_PORT_IN | OG_PORT_STREAM, "codes[$decoder_config.num_quantizers]",
     "code frames, one code of each group"},
    {"audio", OG_PORT_OUT | OG_PORT_STREAM | OG_PORT_SAMPLES,
     "audio[$output_sample_rate]", "mono samples in [-1, 1]"},
    {NULL, 0, NULL, NULL},
};

static const og_option_desc options[] = {
    OG_VOCODER_OPTIONS,
    {NULL, OG_OPT_INT, NULL, 0, 0, 0, NULL},
};

const og_arch og_arch_qwen3_tts_code2wav = {
    .name = "qwen3_tts_code2wav",
    .doc = "decoder of the Qwen3-TTS 12 Hz speech codec: code frames to a waveform",
    .kind = OG_KIND_VOCODER,
    .model = "Qwen3-TTS-Tokenizer-12Hz",
    .section = "",
    .ports = ports,
    .options = options,
    .check = check,
    .impl = &impl,
};
