/* The CUDA backend on a real device: every row of the case table against "ref" in both modes,
 * the rule about bits (in deterministic mode), graphs, the edges of a step, and failures.
 * Prints one line for each family of ops. Skips without a device, so it can run anywhere. */
#include "tests/kernels/cases.h"
#include "kernels/base/alloc.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* What linears are allowed more in fast mode, where activations are two bf16 terms: 2^-18 of
 * each is lost, independently, and the tensor cores cut sums off instead of rounding them. Both
 * are a few 1e-6 of the sum's size where f32 has 1e-7. The other ops' bounds hold as they are. */
#define FAST_SLACK 2.0

static case_env gpu; /* deterministic */
static int have_gpu;

static int has_backend(void) {
    for (const char *const *b = og_device_backends(); *b; b++)
        if (!strcmp(*b, "cuda")) return 1;
    return 0;
}

static int open_gpu(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_device *dev;
    if (!has_backend()) {
        print_message("skipped: this build has no CUDA backend\n");
        return 0;
    }
    if (og_device_open("cuda", 0, 1, &dev, &err) < 0) {
        print_message("skipped: %s\n", err.msg);
        return 0;
    }
    og_device_info info;
    og_device_info_get(dev, &info);
    print_message("%s, %.1f GiB\n", info.name, (double)info.memory / (1 << 30));
    og_device_close(dev);
    have_gpu = case_open(&gpu, "cuda", 1) == 0;
    if (have_gpu) og_device_set_deterministic(gpu.dev, 1);
    return have_gpu ? og_exec_reserve(gpu.ex, 64 << 20, NULL) : -1;
}

static int close_gpu(void **state) {
    (void)state;
    if (have_gpu) case_close(&gpu);
    return 0;
}

static void need_gpu(void) {
    if (!have_gpu) skip();
}

static void ok(int rc) {
    if (rc < 0) print_error("%s: %s\n", og_err_name(rc), og_exec_error(gpu.ex));
    assert_int_equal(rc, 0);
}

/* ---- the case table --------------------------------------------------------------------- */

typedef struct family {
    char name[40];
    int cases, failed;
    double worst; /* of error over tolerance */
    char at[64];
} family;

static void family_name(const og_case *c, char *out, size_t size) {
    snprintf(out, size, "%.*s", (int)strcspn(c->name, " ,"), c->name);
}

/* The worst error of a case over its tolerance; 0 tolerance: 0 or infinite. */
static double ratio_of(const og_case *c, const case_env *want, const case_env *got,
                       double slack) {
    double worst = 0, tol = c->tol * slack;
    for (int o = 0; o < want->n_ends; o++) {
        int64_t from = o ? want->ends[o - 1] : 0, to = want->ends[o];
        double square = 0;
        for (int64_t i = from; i < to; i++)
            square += (double)want->out[i] * (double)want->out[i];
        double rms = sqrt(square / (double)(to - from + 1));
        for (int64_t i = from; i < to; i++) {
            double a = (double)want->out[i], b = (double)got->out[i];
            double e = fabs(a - b) / (fabs(a) + rms + 1e-30);
            if (a == b) continue;
            if (!(b == b) || e > tol) {
                print_error("  %s: output %d, value %lld: want %.9g, got %.9g\n", c->name, o,
                            (long long)(i - from), a, b);
                return INFINITY;
            }
            if (e / tol > worst) worst = e / tol;
        }
    }
    return worst;
}

static double run_case(case_env *ref, case_env *got, const og_case *c, double slack) {
    int a = case_run(ref, c), b = case_run(got, c);
    if (a == 0 && b == 0) {
        assert_int_equal(ref->n_out, got->n_out);
        return ratio_of(c, ref, got, slack);
    }
    print_error("  %s: ref %s, cuda %s: %s\n", c->name, og_err_name(a), og_err_name(b),
                og_exec_error(got->ex));
    if (og_device_lost(got->dev)) fail_msg("the device is lost; run with OG_CUDA_TRACE=1");
    return INFINITY;
}

static family *find_family(family *all, int *n, const og_case *c) {
    char name[40];
    family_name(c, name, sizeof name);
    for (int i = 0; i < *n; i++)
        if (!strcmp(all[i].name, name)) return &all[i];
    family *f = &all[(*n)++];
    memset(f, 0, sizeof *f);
    snprintf(f->name, sizeof f->name, "%s", name);
    return f;
}

static int run_table(case_env *got, double of_linears) {
    family all[64];
    case_env ref;
    int n = 0, failed = 0;
    assert_int_equal(case_open(&ref, "ref", 1), 0);
    for (int i = 0; i < n_cases; i++) {
        family *f = find_family(all, &n, &cases[i]);
        double slack = strcmp(f->name, "linear") ? 1 : of_linears;
        double r = run_case(&ref, got, &cases[i], slack);
        f->cases++;
        f->failed += r > 1;
        if (r > f->worst) {
            f->worst = r;
            snprintf(f->at, sizeof f->at, "%s", cases[i].name);
        }
    }
    case_close(&ref);
    print_message("%-22s %5s %6s  worst error / allowed\n", "op", "cases", "failed");
    for (int i = 0; i < n; i++) {
        print_message("%-22s %5d %6d  %.3f %s\n", all[i].name, all[i].cases, all[i].failed,
                      all[i].worst, all[i].at);
        failed += all[i].failed;
    }
    return failed;
}

static void test_cuda_agrees_with_ref(void **state) {
    (void)state;
    need_gpu();
    assert_int_equal(run_table(&gpu, 1), 0);
}

static void test_cuda_agrees_with_ref_in_fast_mode(void **state) {
    (void)state;
    need_gpu();
    case_env fast;
    assert_int_equal(case_open(&fast, "cuda", 1), 0);
    int failed = run_table(&fast, FAST_SLACK);
    case_close(&fast);
    assert_int_equal(failed, 0);
}

/* Kernels that overlap must leave the very same bits. */
static void test_overlapped_launches_change_nothing(void **state) {
    (void)state;
    need_gpu();
    case_env over;
    int differ = 0;
    setenv("OG_PDL", "1", 1);
    int rc = case_open(&over, "cuda", 1);
    unsetenv("OG_PDL");
    assert_int_equal(rc, 0);
    og_device_set_deterministic(over.dev, 1);
    for (int i = 0; i < n_cases; i++) {
        ok(case_run(&gpu, &cases[i]));
        if (case_run(&over, &cases[i]) < 0) {
            print_error("%s: %s\n", cases[i].name, og_exec_error(over.ex));
            differ++;
        } else if (memcmp(gpu.out, over.out, (size_t)gpu.n_out * sizeof(float)) != 0) {
            print_error("%s differs\n", cases[i].name);
            differ++;
        }
    }
    case_close(&over);
    assert_int_equal(differ, 0);
}

static void hear(void *arg, const char *name, const og_tensor *t) {
    (void)name;
    (void)t;
    ++*(int *)arg;
}

/* With a listener the depth decoder is composed of ops, without one it shares work between
 * its passes. */
static void test_a_listener_changes_nothing(void **state) {
    (void)state;
    need_gpu();
    case_env other;
    int heard = 0;
    assert_int_equal(case_open(&other, "cuda", 1), 0);
    og_device_set_deterministic(other.dev, 1);
    og_exec_set_tap(other.ex, hear, &heard);
    for (int i = 0; i < n_cases; i++) {
        if (strncmp(cases[i].name, "depth_ar", 8) != 0) continue;
        ok(case_run(&gpu, &cases[i]));
        assert_int_equal(case_run(&other, &cases[i]), 0);
        assert_memory_equal(gpu.out, other.out, (size_t)gpu.n_out * sizeof(float));
    }
    case_close(&other);
    assert_true(heard > 0);
}

/* ---- bits ----------------------------------------------------------------------------------- */

static float *host_of(const og_tensor *t) {
    size_t bytes = og_tensor_bytes(t);
    float *p = og_malloc(bytes + 1);
    assert_non_null(p);
    ok(og_exec_sync(gpu.ex));
    assert_int_equal(og_device_download(gpu.dev, p, t->data, bytes, NULL), 0);
    return p;
}

static void same(const og_tensor *a, const og_tensor *b, const char *what) {
    float *x = host_of(a), *y = host_of(b);
    int64_t n = (int64_t)(og_tensor_bytes(a) / sizeof(float)), bad = 0, first = -1;
    for (int64_t i = 0; i < n; i++)
        if (memcmp(x + i, y + i, sizeof *x) != 0 && bad++ == 0) first = i;
    if (bad)
        print_error("%s: %lld of %lld differ, first %lld: %.9g and %.9g\n", what,
                    (long long)bad, (long long)n, (long long)first, (double)x[first],
                    (double)y[first]);
    og_free(x);
    og_free(y);
    assert_int_equal(bad, 0);
}

static og_tensor random_nd(og_dtype t, int rank, const int64_t *ne) {
    return case_tensor(&gpu, t, rank, ne, 1.0f, 0);
}

static og_tensor random_2d(og_dtype t, int64_t a, int64_t b) {
    return random_nd(t, 2, (int64_t[]){a, b});
}

static og_tensor zeros_2d(int64_t a, int64_t b) {
    return case_zeros(&gpu, OG_F32, 2, (int64_t[]){a, b});
}

typedef struct linear_shape {
    og_dtype t;
    int rows, k, n, norm; /* 1: norm_linear, 2: glu */
} linear_shape;

static int linear_op(const linear_shape *s, og_tensor *y, const og_tensor *x,
                     const og_tensor *w, const og_tensor *norm) {
    og_exec_reset(gpu.ex);
    if (s->norm == 1) return og_op_norm_linear(gpu.ex, 1, y, x, norm, 1e-6f, w, NULL);
    if (s->norm == 2)
        return og_op_glu_linear(gpu.ex, y, x, norm, 1e-6f, &w[0], &w[1], OG_ACT_SILU);
    return og_op_linear(gpu.ex, 1, y, x, w, NULL, NULL);
}

/* In batches of sizes that end with 0. */
static void check_linear(const linear_shape *s, const int *sizes) {
    case_clear(&gpu);
    og_tensor x = random_2d(OG_F32, s->rows, s->k), norm = random_nd(s->t, 1, &x.ne[1]);
    og_tensor w[2] = {random_2d(s->t, s->n, s->k), random_2d(s->t, s->n, s->k)};
    og_tensor y = zeros_2d(s->rows, s->n), z = zeros_2d(s->rows, s->n);
    ok(linear_op(s, &y, &x, w, &norm));
    for (size_t i = 0; sizes[i]; i++) {
        ok(og_op_fill(gpu.ex, &z, -7.0f));
        for (int r = 0; r < s->rows; r += sizes[i]) {
            int n = s->rows - r < sizes[i] ? s->rows - r : sizes[i];
            og_tensor xs = og_tensor_rows(&x, r, n), zs = og_tensor_rows(&z, r, n);
            ok(linear_op(s, &zs, &xs, w, &norm));
        }
        same(&y, &z, "linear in batches");
    }
}

static void test_linear_rows_alone_and_in_batches(void **state) {
    (void)state;
    need_gpu();
    static const linear_shape shapes[] = {
        {OG_F32, 70, 64, 40, 0},     {OG_F32, 33, 77, 33, 0},   {OG_BF16, 70, 128, 50, 0},
        {OG_BF16, 33, 77, 33, 0},    {OG_F16, 40, 48, 20, 0},   {OG_BF16, 20, 2048, 6144, 0},
        {OG_BF16, 20, 6144, 34, 0},  {OG_F32, 20, 2060, 18, 0}, {OG_BF16, 30, 2048, 512, 1},
        {OG_BF16, 30, 1024, 300, 2}, {OG_F32, 30, 75, 30, 1},   {OG_BF16, 30, 75, 30, 2},
    };
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 30, 0};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_linear(&shapes[i], sizes);
}

/* Within the tensor cores' family, too, a row does not depend on its company. */
static void test_fast_rows_in_batches(void **state) {
    (void)state;
    need_gpu();
    static const linear_shape shapes[] = {
        {OG_BF16, 96, 128, 50, 0},    {OG_BF16, 96, 2048, 6144, 0}, {OG_BF16, 96, 6144, 34, 0},
        {OG_BF16, 96, 2048, 1030, 1}, {OG_BF16, 96, 1032, 300, 2},
    };
    static const int sizes[] = {6, 8, 16, 24, 32, 48, 0};
    og_device_set_deterministic(gpu.dev, 0);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_linear(&shapes[i], sizes);
    og_device_set_deterministic(gpu.dev, 1);
}

static void test_fused_norm_is_the_norm_before(void **state) {
    (void)state;
    need_gpu();
    static const int widths[] = {2048, 1024, 96, 75};
    for (int i = 0; i < 4; i++) {
        int64_t k = widths[i];
        case_clear(&gpu);
        og_tensor x = random_2d(OG_F32, 5, k), t = zeros_2d(5, k), norm = random_nd(OG_BF16, 1, &k);
        og_tensor w = random_2d(OG_BF16, 64, k), y = zeros_2d(5, 64), z = zeros_2d(5, 64);
        ok(og_op_norm_linear(gpu.ex, 1, &y, &x, &norm, 1e-6f, &w, NULL));
        ok(og_op_rms_norm(gpu.ex, &t, &x, &norm, 1e-6f));
        ok(og_op_linear(gpu.ex, 1, &z, &t, &w, NULL, NULL));
        same(&y, &z, "norm_linear");
    }
}

static og_rows one_segment(int n, int pos, int slot) {
    int32_t s[512], p[3 * 512], cu[2] = {0, n};
    for (int r = 0; r < n; r++) {
        s[r] = slot;
        p[3 * r] = p[3 * r + 1] = p[3 * r + 2] = pos + r;
    }
    return (og_rows){n, 1, case_ints(&gpu, s, n), case_ints(&gpu, p, 3 * n),
                     case_ints(&gpu, cu, 2)};
}

typedef struct conv_shape {
    og_dtype t;
    int cin, cout, taps, dilation, stride; /* stride > 0: transposed; cout 0: depthwise */
} conv_shape;

static void conv_op(const conv_shape *s, og_tensor *y, const og_tensor *x, const og_tensor *w,
                    const og_tensor *bias, og_tensor *state, const og_rows *rows) {
    og_exec_reset(gpu.ex);
    if (s->stride) ok(og_op_conv_transpose1d(gpu.ex, y, x, w, bias, state, rows, s->stride));
    else if (!s->cout)
        ok(og_op_conv1d_depthwise(gpu.ex, y, x, w, bias, state, rows, s->dilation));
    else ok(og_op_conv1d(gpu.ex, y, x, w, bias, state, rows, s->dilation, NULL));
}

static void check_conv(const conv_shape *s) {
    enum { ROWS = 96 };
    static const int chunks[] = {1, 5, 8, 40};
    case_clear(&gpu);
    int up = s->stride ? s->stride : 1, cout = s->cout ? s->cout : s->cin;
    int64_t depth = s->stride ? s->taps - 1 : (s->taps - 1) * s->dilation;
    og_tensor x = random_2d(OG_F32, ROWS, s->cin), bias = random_2d(OG_F32, 1, cout);
    og_tensor w = s->cout ? random_nd(s->t, 3, (int64_t[]){up * cout, s->taps, s->cin})
                          : random_2d(s->t, s->cin, s->taps);
    og_tensor y = zeros_2d(ROWS * up, cout), z = zeros_2d(ROWS * up, cout);
    bias = og_tensor_view(&bias, 1, (int64_t[]){cout});
    og_tensor state[2];
    for (int i = 0; i < 2; i++)
        state[i] = case_zeros(&gpu, OG_F32, 3, (int64_t[]){3, depth, s->cin});
    og_rows all = one_segment(ROWS, 0, 2);
    conv_op(s, &y, &x, &w, &bias, &state[0], &all);
    for (int i = 0; i < 4; i++) {
        ok(og_op_fill(gpu.ex, &state[1], 0.0f));
        ok(og_op_fill(gpu.ex, &z, -7.0f));
        for (int r = 0; r < ROWS; r += chunks[i]) {
            int n = ROWS - r < chunks[i] ? ROWS - r : chunks[i];
            og_rows rows = one_segment(n, r, 2);
            og_tensor xs = og_tensor_rows(&x, r, n), zs = og_tensor_rows(&z, r * up, n * up);
            conv_op(s, &zs, &xs, &w, &bias, &state[1], &rows);
        }
        same(&y, &z, "conv in chunks");
        same(&state[0], &state[1], "state of conv in chunks");
    }
}

static void test_convolutions_whole_and_in_chunks(void **state) {
    (void)state;
    need_gpu();
    static const conv_shape shapes[] = {
        {OG_F32, 96, 96, 7, 9, 0}, {OG_F32, 19, 21, 5, 2, 0}, {OG_BF16, 32, 64, 7, 1, 0},
        {OG_F32, 48, 24, 2, 1, 8}, {OG_F32, 64, 0, 7, 1, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_conv(&shapes[i]);
}

/* ---- a whole decoder: chunks, company, graphs -------------------------------------------------- */

enum { D = 256, F = 640, HEADS = 4, KV_HEADS = 2, DIM = 64, LAYERS = 3, SLOTS = 12, PAGES = 20 };

typedef struct rig {
    og_decoder_layer layers[LAYERS];
    og_decoder net;
    og_kv kv[LAYERS];
} rig;

static og_tensor weight(og_dtype t, int64_t a, int64_t b) {
    return case_tensor(&gpu, t, 2, (int64_t[]){a, b}, 0.1f, 0);
}

static void rig_make(rig *g, og_dtype t) {
    int32_t table[SLOTS * PAGES];
    for (int i = 0; i < SLOTS * PAGES; i++) table[i] = 1 + i * 7 % (SLOTS * PAGES);
    const int32_t *dev_table = case_ints(&gpu, table, SLOTS * PAGES);
    int64_t d = D, dim = DIM, half = DIM / 2;
    for (int l = 0; l < LAYERS; l++) {
        g->layers[l] = (og_decoder_layer){
            .input_norm = random_nd(t, 1, &d), .post_norm = random_nd(t, 1, &d),
            .q_norm = random_nd(t, 1, &dim), .k_norm = random_nd(t, 1, &dim),
            .q = weight(t, HEADS * DIM, D), .k = weight(t, KV_HEADS * DIM, D),
            .v = weight(t, KV_HEADS * DIM, D), .o = weight(t, D, HEADS * DIM),
            .gate = weight(t, F, D), .up = weight(t, F, D), .down = weight(t, D, F)};
        int64_t ne[4] = {SLOTS * PAGES + 1, 16, KV_HEADS, DIM};
        g->kv[l] = (og_kv){.k = case_zeros(&gpu, t, 4, ne), .v = case_zeros(&gpu, t, 4, ne),
                           .table = dev_table, .max_pages = PAGES, .page = 16};
    }
    g->net = (og_decoder){.layers = g->layers, .n_layers = LAYERS, .n_heads = HEADS,
                          .n_kv_heads = KV_HEADS, .head_dim = DIM, .eps = 1e-6f,
                          .final_norm = random_nd(t, 1, &d),
                          .inv_freq = random_nd(OG_F32, 1, &half)};
}

static void test_decoder_in_chunks_and_in_company(void **state) {
    (void)state;
    need_gpu();
    enum { ROWS = 100 };
    case_clear(&gpu);
    rig g;
    rig_make(&g, OG_BF16);
    og_tensor x = random_2d(OG_F32, ROWS, D), y = zeros_2d(ROWS, D), z = zeros_2d(ROWS, D);
    og_rows all = one_segment(ROWS, 0, 1);
    og_exec_reset(gpu.ex);
    ok(og_op_copy(gpu.ex, &y, &x));
    ok(og_op_decoder_stack(gpu.ex, &y, &g.net, g.kv, &all));
    static const int chunks[] = {1, 9, 33};
    for (int i = 0; i < 3; i++) {
        ok(og_op_copy(gpu.ex, &z, &x));
        for (int r = 0; r < ROWS; r += chunks[i]) {
            int n = ROWS - r < chunks[i] ? ROWS - r : chunks[i];
            og_rows rows = one_segment(n, r, 2 + i);
            og_tensor zs = og_tensor_rows(&z, r, n);
            ok(og_op_decoder_stack(gpu.ex, &zs, &g.net, g.kv, &rows));
        }
        same(&y, &z, "decoder in chunks");
    }
    /* eight copies of the last row in company: slot 1 to 4 hold the same keys */
    int32_t slot[4] = {3, 1, 4, 2}, pos[12], cu[5] = {0, 1, 2, 3, 4};
    for (int i = 0; i < 12; i++) pos[i] = ROWS - 1;
    og_rows four = {4, 4, case_ints(&gpu, slot, 4), case_ints(&gpu, pos, 12),
                    case_ints(&gpu, cu, 5)};
    og_tensor last = og_tensor_rows(&x, ROWS - 1, 1), want = og_tensor_rows(&y, ROWS - 1, 1);
    og_tensor b = zeros_2d(4, D);
    for (int i = 0; i < 4; i++) {
        og_tensor row = og_tensor_rows(&b, i, 1);
        ok(og_op_copy(gpu.ex, &row, &last));
    }
    ok(og_op_decoder_stack(gpu.ex, &b, &g.net, g.kv, &four));
    for (int i = 0; i < 4; i++) {
        og_tensor row = og_tensor_rows(&b, i, 1);
        same(&want, &row, "decoder in company");
    }
}

/* A step whose rows are staged, run and then replayed at other positions. */
static int staged_step(rig *g, og_tensor *y, const og_tensor *x, int pos) {
    int32_t slot[2] = {5, 6}, at[6], cu[3] = {0, 1, 2};
    og_rows rows = {2, 2, NULL, NULL, NULL};
    for (int i = 0; i < 6; i++) at[i] = pos;
    og_exec_reset(gpu.ex);
    int rc = og_exec_stage_begin(gpu.ex);
    if (!rc) rc = og_exec_stage(gpu.ex, slot, sizeof slot, (const void **)&rows.slot);
    if (!rc) rc = og_exec_stage(gpu.ex, at, sizeof at, (const void **)&rows.pos);
    if (!rc) rc = og_exec_stage(gpu.ex, cu, sizeof cu, (const void **)&rows.cu);
    if (!rc) rc = og_exec_stage_end(gpu.ex);
    if (!rc && !y) return 0;
    if (!rc) rc = og_op_copy(gpu.ex, y, x);
    return rc ? rc : og_op_decoder_stack(gpu.ex, y, &g->net, g->kv, &rows);
}

static void test_a_captured_step_has_the_bits_of_a_run(void **state) {
    (void)state;
    need_gpu();
    enum { STEPS = 40 };
    case_clear(&gpu);
    rig g;
    og_graph *graph;
    rig_make(&g, OG_BF16);
    og_tensor x = random_2d(OG_F32, 2, D), y = zeros_2d(2, D), want = zeros_2d(2 * STEPS, D);
    for (int i = 0; i < STEPS; i++) {
        og_tensor row = og_tensor_rows(&want, 2 * i, 2);
        ok(staged_step(&g, &y, &x, i));
        ok(og_op_copy(gpu.ex, &row, &y));
    }
    ok(og_exec_capture_begin(gpu.ex));
    ok(staged_step(&g, &y, &x, 0));
    ok(og_exec_capture_end(gpu.ex, &graph));
    for (int l = 0; l < LAYERS; l++) {
        ok(og_op_fill(gpu.ex, &g.kv[l].k, 0.0f));
        ok(og_op_fill(gpu.ex, &g.kv[l].v, 0.0f));
    }
    og_tensor got = zeros_2d(2 * STEPS, D);
    for (int i = 0; i < STEPS; i++) {
        og_tensor row = og_tensor_rows(&got, 2 * i, 2);
        ok(staged_step(&g, NULL, NULL, i));
        ok(og_graph_launch(gpu.ex, graph));
        ok(og_op_copy(gpu.ex, &row, &y));
    }
    same(&want, &got, "replayed steps");
    og_graph_destroy(gpu.ex, graph);
}

/* ---- sampling: the very ids of ref ---------------------------------------------------------- */

static og_sample_row random_params(uint32_t *seed) {
    static const float temps[] = {0.0f, 0.3f, 0.9f, 1.7f}, tops[] = {1.0f, 0.95f, 0.5f, 0.0f};
    static const float mins[] = {0.0f, 0.0f, 0.05f}, reps[] = {1.0f, 1.05f, 1.6f};
    static const int ks[] = {0, 1, 5, 50, 900};
    uint32_t u = (uint32_t)((case_random(seed) + 1.0f) * 1e6f);
    return (og_sample_row){.temperature = temps[u % 4], .top_p = tops[u / 4 % 4],
                           .min_p = mins[u / 16 % 3], .repetition_penalty = reps[u / 48 % 3],
                           .presence_penalty = u / 144 % 2 ? 0.3f : 0.0f,
                           .frequency_penalty = u / 288 % 2 ? 0.1f : 0.0f,
                           .top_k = ks[u / 576 % 5], .min_tokens = (int)(u % 7),
                           .seed = u * 0x9e3779b97f4a7c15u, .stage = u % 3, .codebook = u % 16,
                           .count = u % 11};
}

enum { DRAWS = 96, MOST = 9001 };

/* Draws on one device; ids go to out. Logits are coarse, so that ties abound. */
static void draw_all(case_env *env, int vocab, int32_t *out) {
    case_clear(env);
    uint32_t seed = (uint32_t)vocab;
    float *x = og_malloc(sizeof(float) * DRAWS * MOST);
    int32_t *seen = og_calloc(DRAWS * MOST, sizeof *seen);
    static uint8_t allowed[MOST];
    og_sample_row params[DRAWS];
    for (int r = 0; r < DRAWS; r++) {
        params[r] = random_params(&seed);
        for (int i = 0; i < vocab; i++) {
            float v = 6.0f * case_random(&seed);
            x[r * vocab + i] = r % 2 ? (float)(int)(v * 4.0f) / 4.0f : v;
            seen[r * vocab + i] = case_random(&seed) > 0.9f ? 1 + i % 3 : 0;
        }
        if (r % 7 == 3) x[r * vocab + r] = NAN;
        if (r % 11 == 5) x[r * vocab + r] = -INFINITY;
    }
    for (int i = 0; i < vocab; i++) allowed[i] = i % 13 != 4;
    int32_t stop[2] = {vocab / 2, vocab - 1};
    og_place place = og_exec_alloc(env->ex, OG_F32, 1, (int64_t[]){0}).place;
    og_tensor logits = og_tensor_2d(
        OG_F32, DRAWS, vocab, case_bytes(env, x, sizeof(float) * (size_t)(DRAWS * vocab)));
    og_tensor history = og_tensor_2d(
        OG_I32, DRAWS, vocab, case_bytes(env, seen, sizeof(int32_t) * (size_t)(DRAWS * vocab)));
    og_tensor mask = og_tensor_1d(OG_U8, vocab, case_bytes(env, allowed, (size_t)vocab));
    og_tensor stops = og_tensor_1d(OG_I32, 2, case_ints(env, stop, 2));
    og_tensor ids = case_zeros(env, OG_I32, 1, (int64_t[]){DRAWS});
    logits.place = history.place = mask.place = stops.place = place;
    og_exec_reset(env->ex);
    int rc = og_exec_reserve(env->ex, 1 << 20, NULL);
    if (!rc)
        rc = og_op_sample(env->ex, &ids, &logits, case_bytes(env, params, sizeof params),
                          &history, &mask, &stops);
    if (!rc) rc = og_exec_sync(env->ex);
    if (!rc) rc = og_device_download(env->dev, out, ids.data, DRAWS * sizeof *out, NULL);
    og_free(x);
    og_free(seen);
    if (rc) fail_msg("%s", og_exec_error(env->ex));
}

static void test_sampler_draws_the_ids_of_ref(void **state) {
    (void)state;
    need_gpu();
    static const int vocabs[] = {100, 1024, 2048, 3072, MOST};
    case_env ref;
    int32_t want[DRAWS], got[DRAWS];
    assert_int_equal(case_open(&ref, "ref", 1), 0);
    for (int v = 0; v < 5; v++) {
        draw_all(&ref, vocabs[v], want);
        draw_all(&gpu, vocabs[v], got);
        for (int r = 0; r < DRAWS; r++)
            if (want[r] != got[r])
                fail_msg("vocabulary %d, row %d: want %d, got %d", vocabs[v], r, want[r], got[r]);
    }
    case_close(&ref);
}

/* ---- the edges of a step, failures ------------------------------------------------------------ */

static void test_fetch_and_stamps(void **state) {
    (void)state;
    need_gpu();
    case_clear(&gpu);
    void *host;
    uint64_t stamp;
    og_tensor y = zeros_2d(3, 5);
    assert_int_equal(og_device_alloc_host(gpu.dev, og_tensor_bytes(&y), &host, NULL), 0);
    for (int i = 0; i < 40; i++) {
        ok(og_op_fill(gpu.ex, &y, (float)i));
        ok(og_exec_fetch(gpu.ex, host, y.data, og_tensor_bytes(&y)));
        ok(og_exec_stamp(gpu.ex, &stamp));
        ok(og_exec_wait(gpu.ex, stamp));
        assert_int_equal(og_exec_reached(gpu.ex, stamp), 1);
        assert_true(((float *)host)[14] == (float)i);
    }
    assert_int_equal(og_exec_wait(gpu.ex, stamp + 1), OG_EINVAL);
    og_device_free_host(gpu.dev, host);
}

static void test_bad_indices_are_reported_at_the_sync(void **state) {
    (void)state;
    need_gpu();
    case_clear(&gpu);
    int32_t id[2] = {1, 99};
    og_tensor table = random_2d(OG_F32, 4, 8), y = zeros_2d(2, 8);
    og_tensor ids = og_tensor_1d(OG_I32, 2, case_ints(&gpu, id, 2));
    ids.place = table.place;
    ok(og_op_gather_rows(gpu.ex, &y, &table, &ids));
    assert_int_equal(og_exec_sync(gpu.ex), OG_EINVAL);
    assert_non_null(strstr(og_exec_error(gpu.ex), "gather_rows"));
    ok(og_exec_sync(gpu.ex));
}

static void test_no_memory_and_no_device_have_words(void **state) {
    (void)state;
    need_gpu();
    og_err err = OG_ERR_INIT;
    void *p;
    og_device *dev;
    assert_int_equal(og_device_alloc(gpu.dev, (size_t)1 << 50, &p, &err), OG_ENOMEM);
    assert_non_null(strstr(err.msg, "are free"));
    og_err_clear(&err);
    assert_int_equal(og_device_open("cuda", 99, 1, &dev, &err), OG_ENOENT);
    assert_non_null(strstr(err.msg, "GPU 99"));
    assert_int_equal(og_device_lost(gpu.dev), 0);
    og_tensor y = zeros_2d(2, 8);
    ok(og_op_fill(gpu.ex, &y, 1.0f));
    ok(og_exec_sync(gpu.ex));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_agrees_with_ref),
        cmocka_unit_test(test_cuda_agrees_with_ref_in_fast_mode),
        cmocka_unit_test(test_linear_rows_alone_and_in_batches),
        cmocka_unit_test(test_fast_rows_in_batches),
        cmocka_unit_test(test_fused_norm_is_the_norm_before),
        cmocka_unit_test(test_convolutions_whole_and_in_chunks),
        cmocka_unit_test(test_decoder_in_chunks_and_in_company),
        cmocka_unit_test(test_a_captured_step_has_the_bits_of_a_run),
        cmocka_unit_test(test_sampler_draws_the_ids_of_ref),
        cmocka_unit_test(test_fetch_and_stamps),
        cmocka_unit_test(test_bad_indices_are_reported_at_the_sync),
        cmocka_unit_test(test_no_memory_and_no_device_have_words),
        cmocka_unit_test(test_overlapped_launches_change_nothing),
        cmocka_unit_test(test_a_listener_changes_nothing),
    };
    return cmocka_run_group_tests_name("cuda", tests, open_gpu, close_gpu);
}
