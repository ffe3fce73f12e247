/* Qwen3-TTS speaker encoder, an ECAPA-TDNN (arXiv 2005.07143). At the published sizes, T
 * frames of 256 samples at 24 kHz; all convolutions keep T and mirror their edges:
 *
 *   mel        128 bands, logarithmic                                       [T, 128]
 *   blocks.0   conv k 5, ReLU                                               [T, 512]
 *   blocks.1-3 SE-Res2Net, k 3, dilation 2, 3, 4: linear, ReLU; eight parts, the first as
 *              it is, the second through a conv, each later one through a conv after the
 *              output of the one before was added; linear, ReLU; times a gate per channel
 *              (mean over time, linear, ReLU, linear, sigmoid); + input
 *   mfa        linear over the outputs of blocks 1 to 3 side by side, ReLU  [T, 1536]
 *   asp        weights over time for each channel: linear of [x, mean, std] to 128, ReLU,
 *              tanh, linear, softmax over time; weighted mean and std       [3072]
 *   fc         linear                                                       [1024 or 2048]
 *
 * The first convolution, each block and the rest are a piece of work of their own. */
#include "kernels/base/alloc.h"
#include "nodes/encoder/enc_mel.h"

#define TRY OG__ENC_TRY
#define TAP "speaker."

enum {
    MELS = 128, /* fixed in the public code, as the rate is, whatever the config says */
    RATE = 24000,
    MAX_BLOCKS = 16,
    MAX_SCALE = 32,
    MAX_WIDTH = 1 << 16,
    MAX_KERNEL = 31,
};

typedef struct config {
    int dim; /* of the vector */
    int n, channels[MAX_BLOCKS], kernel[MAX_BLOCKS], dilation[MAX_BLOCKS];
    int attention, scale, se; /* widths of asp and of the gates; parts of a Res2Net */
} config;

typedef struct block {
    og__enc_conv tdnn1, tdnn2, part[MAX_SCALE], se1, se2;
} block;

typedef struct net {
    config cfg;
    og__enc_mem mem;
    og__enc_mel mel;
    og__enc_conv first, mfa, asp_tdnn, asp_conv, fc;
    block blocks[MAX_BLOCKS]; /* 1 .. n - 2 are used */
    /* Of the longest clip: the output of block 0, of the others side by side. */
    og_tensor head, side; /* [T, C] [T, C * (n - 2)] */
} net;

/* ---- configuration ------------------------------------------------------------------------ */

/* The last entry of the lists is mfa's, which takes the outputs of blocks 1 .. n - 2. */
static int check_channels(const config *c, og_err *err) {
    int sum = 0;
    for (int i = 0; i < c->n - 1; i++) {
        if (c->channels[i] != c->channels[0])
            return og__enc_bad(err, OG_EUNSUPPORTED, "enc_channels",
                               "enc_channels: all but the last must be equal, not %d and %d",
                               c->channels[0], c->channels[i]);
        if (i > 0) sum += c->channels[i];
    }
    if (c->channels[c->n - 1] != sum)
        return og__enc_bad(err, OG_EFORMAT, "enc_channels",
                           "enc_channels: the last must be the sum of entries 1 to %d (%d), "
                           "not %d",
                           c->n - 2, sum, c->channels[c->n - 1]);
    if (c->channels[0] % c->scale)
        return og__enc_bad(err, OG_EFORMAT, "enc_channels",
                           "enc_channels (%d) must be a multiple of enc_res2net_scale (%d)",
                           c->channels[0], c->scale);
    return 0;
}

/* Keys that are left out have the public class's defaults. */
static int read_config(const json_t *s, config *c, og_err *err) {
    static const int channels[] = {512, 512, 512, 512, 1536}, kernel[] = {5, 3, 3, 3, 1};
    static const int dilation[] = {1, 2, 3, 4, 1};
    int v, n_kernel, n_dilation;
    *c = (config){0};
    TRY(og_cfg_int(s, "enc_dim", &c->dim, 1, MAX_WIDTH, err));
    TRY(og_cfg_int_or(s, "sample_rate", &v, RATE, RATE, RATE, err));
    TRY(og_cfg_int_or(s, "mel_dim", &v, MELS, MELS, MELS, err));
    TRY(og__enc_cfg_ints(s, "enc_channels", c->channels, MAX_BLOCKS, &c->n, channels, 5,
                         MAX_WIDTH, err));
    TRY(og__enc_cfg_ints(s, "enc_kernel_sizes", c->kernel, MAX_BLOCKS, &n_kernel, kernel, 5,
                         MAX_KERNEL, err));
    TRY(og__enc_cfg_ints(s, "enc_dilations", c->dilation, MAX_BLOCKS, &n_dilation, dilation,
                         5, 64, err));
    TRY(og_cfg_int_or(s, "enc_attention_channels", &c->attention, 128, 1, MAX_WIDTH, err));
    TRY(og_cfg_int_or(s, "enc_res2net_scale", &c->scale, 8, 2, MAX_SCALE, err));
    TRY(og_cfg_int_or(s, "enc_se_channels", &c->se, 128, 1, MAX_WIDTH, err));
    if (c->n < 3 || n_kernel != c->n || n_dilation != c->n)
        return og__enc_bad(err, OG_EFORMAT, "enc_channels",
                           "enc_channels, enc_kernel_sizes and enc_dilations must have as "
                           "many entries, at least 3, not %d, %d and %d",
                           c->n, n_kernel, n_dilation);
    return check_channels(c, err);
}

static int padding(const config *c, int i) {
    return (c->kernel[i] - 1) * c->dilation[i];
}

/* A clip must be longer than the mirrored edges: of the samples, then of the frames. */
static int64_t shortest(const config *c, const og__enc_mel *mel) {
    int64_t most = 0, samples = (mel->fft - mel->hop) / 2 + 1;
    for (int i = 0; i < c->n; i++)
        if ((padding(c, i) + 1) / 2 > most) most = (padding(c, i) + 1) / 2;
    while (og__enc_mel_frames(mel, samples) <= most) samples++;
    return samples;
}

static size_t weight_values(const config *c) {
    size_t w = (size_t)c->channels[0], all = (size_t)c->channels[c->n - 1];
    size_t part = w / (size_t)c->scale, n;
    n = MELS * w * (size_t)c->kernel[0];
    for (int i = 1; i < c->n - 1; i++)
        n += 2 * w * w + 2 * w * (size_t)c->se +
             (size_t)(c->scale - 1) * part * part * (size_t)c->kernel[i];
    n += all * all * (size_t)c->kernel[c->n - 1] + 4 * all * (size_t)c->attention;
    return n + 2 * all * (size_t)c->dim;
}

static int64_t longest(const og__enc_mel *mel, int max_seconds) {
    return og__enc_mel_frames(mel, (int64_t)RATE * max_seconds);
}

static size_t state_values(const config *c, const og__enc_mel *mel, int max_seconds) {
    return (size_t)longest(mel, max_seconds) * (size_t)(c->channels[0] + c->channels[c->n - 1]);
}

static og__enc_mel mel_of(void) {
    return (og__enc_mel){.rate = RATE, .fft = 1024, .hop = 256, .bands = MELS, .top = 12000};
}

static og_encoder_dims dims_of(const config *c, int max_seconds) {
    og__enc_mel mel = mel_of();
    size_t bins = (size_t)mel.fft / 2 + 1, spectra = bins * (size_t)(2 * mel.fft + MELS);
    return (og_encoder_dims){.rate = RATE,
                             .min_items = shortest(c, &mel),
                             .max_items = (int64_t)RATE * max_seconds,
                             .dtype = OG_F32,
                             .width = c->dim,
                             .weight_bytes = (weight_values(c) + spectra) * sizeof(float),
                             .state_bytes = state_values(c, &mel, max_seconds) *
                                            sizeof(float)};
}

static int dims(const json_t *s, int max_seconds, og_encoder_dims *out, og_err *err) {
    config c;
    TRY(read_config(s, &c, err));
    *out = dims_of(&c, max_seconds);
    return 0;
}

/* ---- loading --------------------------------------------------------------------------------- */

static void bind_block(net *m, og_bind *b, int i) {
    const config *c = &m->cfg;
    block *k = &m->blocks[i];
    int w = c->channels[i], part = w / c->scale;
    og__enc_bind_conv(b, &k->tdnn1, w, w, 1, "blocks.%d.tdnn1.conv", i);
    for (int j = 0; j < c->scale - 1; j++)
        og__enc_bind_conv(b, &k->part[j], part, part, c->kernel[i],
                          "blocks.%d.res2net_block.blocks.%d.conv", i, j);
    og__enc_bind_conv(b, &k->tdnn2, w, w, 1, "blocks.%d.tdnn2.conv", i);
    og__enc_bind_conv(b, &k->se1, c->se, w, 1, "blocks.%d.se_block.conv1", i);
    og__enc_bind_conv(b, &k->se2, w, c->se, 1, "blocks.%d.se_block.conv2", i);
}

static void bind_all(net *m, og_bind *b) {
    const config *c = &m->cfg;
    int last = c->n - 1, all = c->channels[last];
    og__enc_bind_conv(b, &m->first, c->channels[0], MELS, c->kernel[0], "blocks.0.conv");
    for (int i = 1; i < last; i++) bind_block(m, b, i);
    og__enc_bind_conv(b, &m->mfa, all, all, c->kernel[last], "mfa.conv");
    og__enc_bind_conv(b, &m->asp_tdnn, c->attention, 3 * all, 1, "asp.tdnn.conv");
    og__enc_bind_conv(b, &m->asp_conv, all, c->attention, 1, "asp.conv");
    og__enc_bind_conv(b, &m->fc, c->dim, 2 * all, 1, "fc");
}

static int prepare(net *m, og_err *err) {
    og__enc_conv *one[] = {&m->first, &m->mfa, &m->asp_tdnn, &m->asp_conv, &m->fc};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        TRY(og__enc_prepare(&m->mem, one[i], err));
    for (int i = 1; i < m->cfg.n - 1; i++) {
        block *k = &m->blocks[i];
        og__enc_conv *of[] = {&k->tdnn1, &k->tdnn2, &k->se1, &k->se2};
        for (size_t j = 0; j < sizeof of / sizeof *of; j++)
            TRY(og__enc_prepare(&m->mem, of[j], err));
        for (int j = 0; j < m->cfg.scale - 1; j++)
            TRY(og__enc_prepare(&m->mem, &k->part[j], err));
    }
    return og__enc_mel_load(&m->mel, &m->mem, err);
}

static void unload(void *arg) {
    net *m = arg;
    if (!m) return;
    og__enc_mem_free(&m->mem);
    og_free(m);
}

static int make_buffers(net *m, int max_seconds, og_err *err) {
    const config *c = &m->cfg;
    int64_t t = longest(&m->mel, max_seconds);
    m->head = og_tensor_2d(OG_F32, t, c->channels[0], NULL);
    m->side = og_tensor_2d(OG_F32, t, c->channels[c->n - 1], NULL);
    TRY(og__enc_state(&m->mem, &m->head, err));
    return og__enc_state(&m->mem, &m->side, err);
}

static int load_weights(net *m, const og_node_cfg *cfg, og_err *err) {
    TRY(og_model_weights(cfg->model, cfg->folder, &m->mem.weights, err));
    og_bind *b = og_bind_create(m->mem.weights, "speaker_encoder.");
    bind_all(m, b);
    int rc = og_bind_finish(b, err);
    og_bind_free(b);
    return rc < 0 ? rc : prepare(m, err);
}

static int load(const og_node_cfg *cfg, int max_seconds, void **out, og_encoder_dims *d,
                og_err *err) {
    *out = NULL;
    const json_t *section =
        og_model_config(cfg->model, cfg->folder, cfg->arch->section, err);
    if (!section) return err && err->code ? err->code : OG_ENOENT;
    net *m = og_calloc(1, sizeof *m);
    if (!m) return og_err_set(err, OG_ENOMEM, "no memory for an encoder");
    og__enc_mem_init(&m->mem, cfg->exec);
    m->mel = mel_of();
    int rc = read_config(section, &m->cfg, err);
    if (rc < 0) goto fail;
    *d = dims_of(&m->cfg, max_seconds);
    rc = load_weights(m, cfg, err);
    if (rc < 0) goto fail;
    rc = make_buffers(m, max_seconds, err);
    if (rc < 0) goto fail;
    d->weight_bytes = m->mem.weight_bytes;
    d->state_bytes = m->mem.state_bytes;
    *out = m;
    return 0;

fail:
    unload(m);
    return rc;
}

/* ---- the network ------------------------------------------------------------------------------- */

static int linear(og_exec *ex, og_tensor *y, const og_tensor *x, const og__enc_conv *c,
                  og_act act) {
    og_epilogue epi = {act, NULL, NULL};
    return og_op_linear(ex, 1, y, x, &c->w, &c->b, &epi);
}

/* Convolution i with mirrored edges, and ReLU. */
static int same(const net *m, og_exec *ex, og_tensor *y, const og_tensor *x,
                const og__enc_conv *c, int i) {
    int pad = padding(&m->cfg, i);
    if (pad == 0) return linear(ex, y, x, c, OG_ACT_RELU);
    og_epilogue relu = {OG_ACT_RELU, NULL, NULL};
    size_t mark = og_exec_mark(ex);
    og_tensor wide = og__enc_mat(ex, x->ne[0] + pad, x->ne[1]);
    TRY(og_op_pad_time(ex, &wide, x, pad / 2, OG_PAD_REFLECT));
    TRY(og_op_conv1d_valid(ex, y, &wide, &c->w, &c->b, 1, m->cfg.dilation[i], &relu));
    og_exec_release(ex, mark);
    return 0;
}

/* Parts of x into parts of y. */
static int res2net(const net *m, og_exec *ex, og_tensor *y, const og_tensor *x, int i) {
    int64_t w = x->ne[1] / m->cfg.scale;
    og_tensor sum = og__enc_mat(ex, x->ne[0], w);
    og_tensor first = og__enc_columns(x, 0, w), to = og__enc_columns(y, 0, w);
    TRY(og_op_copy(ex, &to, &first));
    for (int j = 1; j < m->cfg.scale; j++) {
        og_tensor in = og__enc_columns(x, j * w, w), out = og__enc_columns(y, j * w, w);
        if (j > 1) {
            TRY(og_op_binary(ex, &sum, &in, &to, OG_ADD));
            in = sum;
        }
        TRY(same(m, ex, &out, &in, &m->blocks[i].part[j - 1], i));
        to = out;
    }
    return 0;
}

/* One number in (0, 1) for each channel of x. */
static int gate(const net *m, og_exec *ex, og_tensor *g, const og_tensor *x, int i) {
    int64_t w = x->ne[1];
    og_tensor mean = og_exec_alloc(ex, OG_F32, 1, &w), none = {0};
    og_tensor row = og_tensor_view(&mean, 2, (int64_t[]){1, w});
    og_tensor h = og__enc_mat(ex, 1, m->cfg.se);
    og_tensor out = og_tensor_view(g, 2, (int64_t[]){1, w});
    TRY(og_op_time_stats(ex, &mean, &none, x, &none, 0.0f));
    TRY(linear(ex, &h, &row, &m->blocks[i].se1, OG_ACT_RELU));
    return linear(ex, &out, &h, &m->blocks[i].se2, OG_ACT_SIGMOID);
}

/* The first frames of a buffer. */
static og_tensor frames_of(const og_tensor *buffer, int64_t t) {
    return og_tensor_rows(buffer, 0, t);
}

/* Where block i writes: block 0 to head, the others into their columns of side. */
static og_tensor output_of(const net *m, int i, int64_t t) {
    og_tensor y = frames_of(i ? &m->side : &m->head, t);
    int64_t w = m->cfg.channels[0];
    return i ? og__enc_columns(&y, (i - 1) * w, w) : y;
}

static int first(const net *m, og_exec *ex, int64_t t, const og_tensor *samples) {
    og_tensor mel = og__enc_mat(ex, t, MELS), y = output_of(m, 0, t);
    TRY(og__enc_mel_run(&m->mel, ex, &mel, samples));
    og_tap(ex, &mel, TAP "mel");
    TRY(same(m, ex, &y, &mel, &m->first, 0));
    og_tap(ex, &y, TAP "blocks.0");
    return 0;
}

static int se_res2net(const net *m, og_exec *ex, int64_t t, int i) {
    int64_t w = m->cfg.channels[0];
    og_tensor x = output_of(m, i - 1, t), y = output_of(m, i, t);
    og_tensor a = og__enc_mat(ex, t, w), b = og__enc_mat(ex, t, w);
    og_tensor g = og_exec_alloc(ex, OG_F32, 1, &w);
    TRY(linear(ex, &a, &x, &m->blocks[i].tdnn1, OG_ACT_RELU));
    TRY(res2net(m, ex, &b, &a, i));
    TRY(linear(ex, &a, &b, &m->blocks[i].tdnn2, OG_ACT_RELU));
    TRY(gate(m, ex, &g, &a, i));
    TRY(og_op_scaled_add(ex, &y, &x, &a, &g));
    og_tap(ex, &y, TAP "blocks.%d", i);
    return 0;
}

/* asp.tdnn over [x, mean, std]: the same mean and std for all frames are part of its bias. */
static int attend(const net *m, og_exec *ex, og_tensor *h, const og_tensor *x) {
    int64_t w = x->ne[1], a = h->ne[1];
    og_tensor stats = og_exec_alloc(ex, OG_F32, 1, (int64_t[]){2 * w}), none = {0};
    og_tensor mean = og_tensor_rows(&stats, 0, w), std = og_tensor_rows(&stats, w, w);
    og_tensor row = og_tensor_view(&stats, 2, (int64_t[]){1, 2 * w});
    og_tensor fixed = og__enc_mat(ex, 1, a), bias = og_tensor_view(&fixed, 1, &a);
    og_tensor of_x = og__enc_columns(&m->asp_tdnn.w, 0, w);
    og_tensor of_stats = og__enc_columns(&m->asp_tdnn.w, w, 2 * w);
    og_epilogue relu = {OG_ACT_RELU, NULL, NULL};
    TRY(og_op_time_stats(ex, &mean, &std, x, &none, 1e-12f));
    TRY(og_op_linear(ex, 1, &fixed, &row, &of_stats, &m->asp_tdnn.b, NULL));
    TRY(og_op_linear(ex, 1, h, x, &of_x, &bias, &relu));
    return og_op_unary(ex, h, h, OG_ACT_TANH);
}

static int pool(const net *m, og_exec *ex, og_tensor *y, const og_tensor *x) {
    int64_t t = x->ne[0], w = x->ne[1];
    og_tensor h = og__enc_mat(ex, t, m->cfg.attention), weight = og__enc_mat(ex, t, w);
    og_tensor both = og_exec_alloc(ex, OG_F32, 1, (int64_t[]){2 * w});
    og_tensor mean = og_tensor_rows(&both, 0, w), std = og_tensor_rows(&both, w, w);
    og_tensor row = og_tensor_view(&both, 2, (int64_t[]){1, 2 * w});
    TRY(attend(m, ex, &h, x));
    TRY(linear(ex, &weight, &h, &m->asp_conv, OG_ACT_NONE));
    TRY(og_op_softmax_time(ex, &weight, &weight));
    TRY(og_op_time_stats(ex, &mean, &std, x, &weight, 1e-12f));
    og_tap(ex, &row, TAP "asp");
    return linear(ex, y, &row, &m->fc, OG_ACT_NONE);
}

static int finish(const net *m, og_exec *ex, int64_t t, og_tensor *y) {
    int last = m->cfg.n - 1;
    og_tensor side = frames_of(&m->side, t);
    *y = og__enc_mat(ex, 1, m->cfg.dim);
    og_tensor x = og__enc_mat(ex, t, m->cfg.channels[last]);
    TRY(same(m, ex, &x, &side, &m->mfa, last));
    og_tap(ex, &x, TAP "mfa");
    TRY(pool(m, ex, y, &x));
    og_tap(ex, y, TAP "embedding");
    return 0;
}

static int pieces(const void *arg, int64_t n) {
    (void)n;
    return ((const net *)arg)->cfg.n;
}

static int piece(void *arg, og_exec *ex, int i, const og_tensor *samples, og_tensor *y) {
    const net *m = arg;
    int64_t t = og__enc_mel_frames(&m->mel, samples->ne[0]);
    if (i == 0) return first(m, ex, t, samples);
    return i < m->cfg.n - 1 ? se_res2net(m, ex, t, i) : finish(m, ex, t, y);
}

/* ---- descriptor -------------------------------------------------------------------------------- */

static int check(const json_t *s, og_err *err) {
    config c;
    return read_config(s, &c, err);
}

static const og_encoder_impl impl = {
    .dims = dims,
    .load = load,
    .unload = unload,
    .pieces = pieces,
    .piece = piece,
};

static const og_port_desc ports[] = {
    {"audio", OG_PORT_IN | OG_PORT_SAMPLES, "audio[24000]?", "reference voice, mono"},
    {"embedding", OG_PORT_OUT, "hidden[$enc_dim]", "one vector"},
    {NULL, 0, NULL, NULL},
};

static const og_option_desc options[] = {
    OG_ENCODER_OPTIONS,
    {NULL, OG_OPT_INT, NULL, 0, 0, 0, NULL},
};

const og_arch og_arch_qwen3_tts_speaker = {
    .name = "qwen3_tts_speaker",
    .doc = "Speaker vector of a reference voice.",
    .kind = OG_KIND_ENCODER,
    .model = "Qwen3-TTS",
    .section = "speaker_encoder_config",
    .ports = ports,
    .options = options,
    .check = check,
    .impl = &impl,
};
