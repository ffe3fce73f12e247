/* How fast the ops run at the real sizes of Qwen3-TTS 1.7B, with random bf16 weights: the
 * decode frame (talker step, then fifteen passes of the predictor) captured in one graph, the
 * linears alone, the vocoder's convolutions. Prints a table; checks nothing but that values
 * stay finite. Skips without a device. OG_SPEED=short leaves the large batches out. */
#include "kernels/base/alloc.h"
#include "kernels/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

enum {
    HIDDEN = 2048, INTER = 6144, LAYERS = 28, HEADS = 16, KV_HEADS = 8, DIM = 128,
    VOCAB = 3072, D_HIDDEN = 1024, D_INTER = 3072, D_LAYERS = 5, D_VOCAB = 2048, GROUPS = 16,
    PAGE = 16, PAGES = 24, PAST = 300, MOST_ROWS = 64, MAX_BLOCKS = 1024, REPEATS = 20
};

static og_device *dev;
static og_exec *ex;
static void *blocks[MAX_BLOCKS];
static int n_blocks;
static char *noise; /* random bf16, host */
#define NOISE_BYTES (32u << 20)

static void ok(int rc) {
    if (rc < 0) print_error("%s: %s\n", og_err_name(rc), og_exec_error(ex));
    assert_int_equal(rc, 0);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *block(size_t bytes) {
    og_err err = OG_ERR_INIT;
    assert_true(n_blocks < MAX_BLOCKS);
    if (og_device_alloc(dev, bytes, &blocks[n_blocks], &err) < 0) fail_msg("%s", err.msg);
    return blocks[n_blocks++];
}

static void *with_bytes(const void *p, size_t n) {
    void *d = block(n);
    assert_int_equal(og_device_upload(dev, d, p, n, NULL), 0);
    return d;
}

static og_tensor placed(og_tensor t, void *data) {
    t.place = og_exec_alloc(ex, OG_F32, 1, (int64_t[]){0}).place;
    t.data = data;
    return t;
}

/* Small random bf16, also as the pattern of f32 tensors, whose halves are then small too. */
static og_tensor random_nd(og_dtype t, int rank, const int64_t *ne) {
    og_tensor x = og_tensor_nd(t, rank, ne, NULL);
    size_t bytes = og_tensor_bytes(&x), at = 0;
    char *p = block(bytes);
    for (; at < bytes; at += NOISE_BYTES) {
        size_t n = bytes - at < NOISE_BYTES ? bytes - at : NOISE_BYTES;
        assert_int_equal(og_device_upload(dev, p + at, noise, n, NULL), 0);
    }
    return placed(x, p);
}

static og_tensor random_2d(og_dtype t, int64_t a, int64_t b) {
    return random_nd(t, 2, (int64_t[]){a, b});
}

static og_tensor vector(og_dtype t, int64_t n) {
    return random_nd(t, 1, &n);
}

static int open_all(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    if (og_device_open("cuda", 0, 1, &dev, &err) < 0) {
        print_message("skipped: %s\n", err.msg);
        dev = NULL;
        return 0;
    }
    noise = og_malloc(NOISE_BYTES);
    if (!noise || og_exec_create(dev, 512u << 20, &ex, &err) < 0) return -1;
    uint32_t s = 1;
    for (size_t i = 0; i < NOISE_BYTES / 2; i++) {
        s = s * 1664525u + 1013904223u;
        uint16_t v = og_f32_to_bf16(((float)(s >> 8) * 0x1p-23f - 1.0f) * 0.04f);
        memcpy(noise + 2 * i, &v, 2);
    }
    return 0;
}

static void drop(void) {
    for (int i = 0; i < n_blocks; i++) og_device_free(dev, blocks[i]);
    n_blocks = 0;
}

static int close_all(void **state) {
    (void)state;
    if (!dev) return 0;
    drop();
    og_free(noise);
    og_exec_destroy(ex);
    og_device_close(dev);
    return 0;
}

/* Milliseconds of one launch, the best of three rounds. */
static double time_graph(og_graph *g) {
    double best = 1e30;
    ok(og_graph_launch(ex, g));
    ok(og_exec_sync(ex));
    for (int round = 0; round < 3; round++) {
        double t = now();
        for (int i = 0; i < REPEATS; i++) ok(og_graph_launch(ex, g));
        ok(og_exec_sync(ex));
        t = (now() - t) / REPEATS;
        if (t < best) best = t;
    }
    return best * 1e3;
}

/* ---- linears ----------------------------------------------------------------------------- */

static void one_linear(const char *name, int rows, int k, int n, og_dtype t) {
    enum { COPIES = 8, CALLS = 32 };
    og_tensor w[COPIES], x = random_2d(OG_F32, rows, k), y = random_2d(OG_F32, rows, n);
    og_graph *g;
    for (int i = 0; i < COPIES; i++) w[i] = random_2d(t, n, k);
    ok(og_exec_capture_begin(ex));
    for (int i = 0; i < CALLS; i++) ok(og_op_linear(ex, 1, &y, &x, &w[i % COPIES], NULL, NULL));
    ok(og_exec_capture_end(ex, &g));
    double us = time_graph(g) * 1e3 / CALLS, bytes = (double)og_tensor_bytes(&w[0]);
    print_message("linear %-10s %5d x %5d x %5d %-4s %8.2f us %7.0f GB/s %7.1f TFLOP/s\n", name,
                  rows, n, k, og_dtype_name(t), us, bytes / us * 1e-3,
                  2.0 * rows * n * k / us * 1e-6);
    og_graph_destroy(ex, g);
    drop();
}

static int is_short(void) {
    const char *v = getenv("OG_SPEED");
    return v && !strcmp(v, "short");
}

static void test_linears(void **state) {
    (void)state;
    if (!dev) skip();
    static const int rows[] = {1, 8, 64};
    for (int i = 0; i < (is_short() ? 2 : 3); i++) {
        one_linear("qkv", rows[i], HIDDEN, 4096, OG_BF16);
        one_linear("o", rows[i], HIDDEN, HIDDEN, OG_BF16);
        one_linear("gate, up", rows[i], HIDDEN, 2 * INTER, OG_BF16);
        one_linear("down", rows[i], INTER, HIDDEN, OG_BF16);
        one_linear("depth qkv", rows[i], D_HIDDEN, 4096, OG_BF16);
        one_linear("depth down", rows[i], D_INTER, D_HIDDEN, OG_BF16);
    }
    one_linear("f32", 1, HIDDEN, 4096, OG_F32);
    one_linear("f32", 64, HIDDEN, 4096, OG_F32);
}

/* ---- a frame ------------------------------------------------------------------------------ */

static og_decoder make_net(og_decoder_layer *layers, int n, int hidden, int inter) {
    for (int l = 0; l < n; l++)
        layers[l] = (og_decoder_layer){
            .input_norm = vector(OG_BF16, hidden), .post_norm = vector(OG_BF16, hidden),
            .q_norm = vector(OG_BF16, DIM), .k_norm = vector(OG_BF16, DIM),
            .q = random_2d(OG_BF16, HEADS * DIM, hidden),
            .k = random_2d(OG_BF16, KV_HEADS * DIM, hidden),
            .v = random_2d(OG_BF16, KV_HEADS * DIM, hidden),
            .o = random_2d(OG_BF16, hidden, HEADS * DIM),
            .gate = random_2d(OG_BF16, inter, hidden), .up = random_2d(OG_BF16, inter, hidden),
            .down = random_2d(OG_BF16, hidden, inter)};
    return (og_decoder){.layers = layers, .n_layers = n, .n_heads = HEADS,
                        .n_kv_heads = KV_HEADS, .head_dim = DIM, .eps = 1e-6f,
                        .final_norm = vector(OG_BF16, hidden),
                        .inv_freq = vector(OG_F32, DIM / 2)};
}

static void make_kv(og_kv *kv, int layers, int rows, int pages) {
    int32_t *table = og_malloc(sizeof *table * (size_t)(rows * pages));
    for (int i = 0; i < rows * pages; i++) table[i] = 1 + i;
    const int32_t *d = with_bytes(table, sizeof *table * (size_t)(rows * pages));
    int64_t ne[4] = {rows * pages + 1, PAGE, KV_HEADS, DIM};
    for (int l = 0; l < layers; l++)
        kv[l] = (og_kv){.k = random_nd(OG_BF16, 4, ne), .v = random_nd(OG_BF16, 4, ne),
                        .table = d, .max_pages = pages, .page = PAGE};
    og_free(table);
}

typedef struct frame {
    og_decoder_layer layers[LAYERS], d_layers[D_LAYERS];
    og_decoder net;
    og_depth depth;
    og_kv kv[LAYERS], d_kv[D_LAYERS];
    og_tensor embed[GROUPS - 1], head[GROUPS - 1], first_head;
    og_tensor x, codes, ids, logits;
    og_rows rows;
    const og_sample_row *params;
    const int32_t *slots, *early; /* early: positions with few keys */
} frame;

static void make_frame(frame *f) {
    f->net = make_net(f->layers, LAYERS, HIDDEN, INTER);
    f->depth = (og_depth){.net = make_net(f->d_layers, D_LAYERS, D_HIDDEN, D_INTER),
                          .n_groups = GROUPS, .first = random_2d(OG_BF16, VOCAB, HIDDEN),
                          .embed = f->embed, .head = f->head,
                          .proj = random_2d(OG_BF16, D_HIDDEN, HIDDEN),
                          .proj_bias = vector(OG_BF16, D_HIDDEN)};
    for (int g = 0; g < GROUPS - 1; g++) {
        f->embed[g] = random_2d(OG_BF16, D_VOCAB, HIDDEN);
        f->head[g] = random_2d(OG_BF16, D_VOCAB, D_HIDDEN);
    }
    f->first_head = random_2d(OG_BF16, VOCAB, HIDDEN);
    make_kv(f->kv, LAYERS, MOST_ROWS, PAGES);
    make_kv(f->d_kv, D_LAYERS, MOST_ROWS, 2);
}

static void make_rows(frame *f, int rows) {
    int32_t slot[MOST_ROWS], pos[3 * MOST_ROWS], early[3 * MOST_ROWS], cu[MOST_ROWS + 1] = {0};
    og_sample_row params[MOST_ROWS];
    for (int r = 0; r < rows; r++) {
        slot[r] = r;
        cu[r + 1] = r + 1;
        for (int a = 0; a < 3; a++) pos[3 * r + a] = PAST, early[3 * r + a] = GROUPS;
        params[r] = (og_sample_row){.temperature = 0.9f, .top_p = 1.0f, .top_k = 50,
                                    .repetition_penalty = 1.05f, .seed = (uint64_t)r + 1};
    }
    f->slots = with_bytes(slot, sizeof slot);
    f->rows = (og_rows){rows, rows, f->slots, with_bytes(pos, sizeof pos),
                        with_bytes(cu, sizeof cu)};
    f->params = with_bytes(params, sizeof params);
    f->early = with_bytes(early, sizeof early);
    f->x = random_2d(OG_F32, rows, HIDDEN);
    f->logits = random_2d(OG_F32, rows, VOCAB);
    f->codes = placed(og_tensor_2d(OG_I32, rows, GROUPS, NULL), block((size_t)rows * 64));
    f->ids = f->codes;
    f->ids.rank = 1;
}

static void talker(frame *f) {
    ok(og_op_decoder_stack(ex, &f->x, &f->net, f->kv, &f->rows));
    ok(og_op_linear(ex, 1, &f->logits, &f->x, &f->first_head, NULL, NULL));
    ok(og_op_sample(ex, &f->ids, &f->logits, f->params, NULL, NULL, NULL));
}

static void depth(frame *f) {
    ok(og_op_depth_ar(ex, &f->codes, &f->x, &f->depth, f->d_kv, f->slots, f->params));
}

static double time_part(frame *f, void (*a)(frame *), void (*b)(frame *)) {
    og_graph *g;
    og_exec_reset(ex);
    ok(og_exec_capture_begin(ex));
    a(f);
    if (b) b(f);
    ok(og_exec_capture_end(ex, &g));
    double ms = time_graph(g);
    og_graph_destroy(ex, g);
    return ms;
}

/* Microseconds of what is no matrix product, called in a row. */
static double time_calls(frame *f, void (*call)(frame *)) {
    enum { CALLS = 32 };
    og_graph *g;
    og_exec_reset(ex);
    ok(og_exec_capture_begin(ex));
    for (int i = 0; i < CALLS; i++) call(f);
    ok(og_exec_capture_end(ex, &g));
    double us = time_graph(g) * 1e3 / CALLS;
    og_graph_destroy(ex, g);
    return us;
}

static int layer; /* whose keys are read: another for each call */

static void attend(frame *f) {
    int64_t ne[3] = {f->rows.n, HEADS, DIM};
    og_tensor q = og_tensor_view(&f->x, 3, ne), y = q;
    y.data = f->logits.data; /* wide enough */
    ok(og_op_attn_paged(ex, &y, &q, &f->kv[layer++ % LAYERS], &f->rows, 0.09f, 0));
}

static void attend_few(frame *f) {
    int64_t ne[3] = {f->rows.n, HEADS, DIM};
    og_tensor q = og_tensor_view(&f->x, 3, ne), y = q;
    og_rows rows = f->rows;
    rows.pos = f->early;
    y.data = f->logits.data;
    ok(og_op_attn_paged(ex, &y, &q, &f->d_kv[layer++ % D_LAYERS], &rows, 0.09f, 0));
}

static void draw(frame *f) {
    og_tensor some = f->logits;
    some.ne[1] = D_VOCAB;
    ok(og_op_sample(ex, &f->ids, &some, f->params, NULL, NULL, NULL));
}

static void norm(frame *f) {
    og_tensor y = f->logits;
    y.ne[1] = HIDDEN;
    ok(og_op_rms_norm(ex, &y, &f->x, &f->net.final_norm, 1e-6f));
}

static void print_parts(frame *f, int rows) {
    print_message("%-6d attention %.2f us, at position 16 %.2f; sampling %.2f; a norm %.2f\n",
                  rows, time_calls(f, attend), time_calls(f, attend_few), time_calls(f, draw),
                  time_calls(f, norm));
}

static void check_finite(frame *f, int rows) {
    float *host = og_malloc((size_t)rows * HIDDEN * sizeof *host);
    assert_int_equal(
        og_device_download(dev, host, f->x.data, (size_t)rows * HIDDEN * sizeof *host, NULL), 0);
    for (int i = 0; i < rows * HIDDEN; i++) assert_true(host[i] - host[i] == 0.0f);
    og_free(host);
}

static void test_frame(void **state) {
    (void)state;
    if (!dev) skip();
    static frame f;
    static const int batches[] = {1, 8, 64};
    double t = now();
    make_frame(&f);
    print_message("weights made and loaded in %.2f s\n", now() - t);
    print_message("%-6s %10s %10s %10s   KV %d, ms\n", "batch", "talker", "predictor", "frame",
                  PAST);
    for (int i = 0; i < (is_short() ? 2 : 3); i++) {
        make_rows(&f, batches[i]);
        double a = time_part(&f, talker, NULL), b = time_part(&f, depth, NULL);
        print_message("%-6d %10.3f %10.3f %10.3f\n", batches[i], a, b,
                      time_part(&f, talker, depth));
        print_parts(&f, batches[i]);
        check_finite(&f, batches[i]);
    }
    drop();
}

/* ---- the vocoder's convolutions -------------------------------------------------------------- */

static double one_conv(int rows, int cin, int cout, int taps, int dilation, int stride,
                       og_dtype t) {
    enum { CALLS = 4 };
    int depth = stride ? taps - 1 : (taps - 1) * dilation, up = stride ? stride : 1;
    int32_t cu[2] = {0, rows};
    int32_t *slots = og_calloc((size_t)rows, sizeof *slots);
    og_rows r = {rows, 1, with_bytes(slots, sizeof *slots * (size_t)rows), NULL,
                 with_bytes(cu, sizeof cu)};
    og_tensor x = random_2d(OG_F32, rows, cin), y = random_2d(OG_F32, rows * up, cout);
    og_tensor w = random_nd(t, 3, (int64_t[]){up * cout, taps, cin}), bias = vector(OG_F32, cout);
    og_tensor state = {0};
    if (depth) state = random_nd(OG_F32, 3, (int64_t[]){1, depth, cin});
    og_graph *g;
    og_exec_reset(ex);
    ok(og_exec_capture_begin(ex));
    for (int i = 0; i < CALLS; i++)
        ok(stride ? og_op_conv_transpose1d(ex, &y, &x, &w, &bias, &state, &r, stride)
                  : og_op_conv1d(ex, &y, &x, &w, &bias, &state, &r, dilation, NULL));
    ok(og_exec_capture_end(ex, &g));
    double ms = time_graph(g) / CALLS;
    print_message("conv %7d x %4d -> %4d, k %d, d %d, stride %d %-4s %9.3f ms %6.1f TFLOP/s\n",
                  rows, cin, cout, taps, dilation, stride, og_dtype_name(t), ms,
                  2e-9 * rows * up * cout * taps * cin / ms);
    og_graph_destroy(ex, g);
    og_free(slots);
    drop();
    return ms;
}

/* Of each block of the decoder the upsampling, and its three units' two convolutions. */
static void vocoder(int frames) {
    static const int width[] = {1536, 768, 384, 192, 96}, strides[] = {8, 5, 4, 3};
    int rows = frames * 4;
    double total = one_conv(rows, 1024, 1536, 7, 1, 0, OG_F32);
    for (int b = 0; b < 4; b++) {
        total += one_conv(rows, width[b], width[b + 1], 2, 1, strides[b], OG_F32);
        rows *= strides[b];
        double k7 = one_conv(rows, width[b + 1], width[b + 1], 7, 3, 0, OG_F32);
        double k1 = one_conv(rows, width[b + 1], width[b + 1], 1, 1, 0, OG_F32);
        total += 3 * (k7 + k1);
    }
    total += one_conv(rows, 96, 1, 7, 1, 0, OG_F32);
    print_message("vocoder convolutions of %d frames: %.2f ms\n", frames, total);
}

static void test_vocoder(void **state) {
    (void)state;
    if (!dev) skip();
    vocoder(1);
    if (!is_short()) vocoder(64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linears),
        cmocka_unit_test(test_frame),
        cmocka_unit_test(test_vocoder),
    };
    return cmocka_run_group_tests_name("cuda speed", tests, open_all, close_all);
}
