/* The rule about bits: a row has the same bits alone and in any batch, whole and in chunks,
 * in any slot or page, on any number of threads. All comparisons are memcmp. */
#include "kernels/cpu/pool.h"
#include "tests/kernels/cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define THREADS 4

static case_env env;

static int open_cpu(void **state) {
    (void)state;
    if (case_open(&env, "cpu", THREADS) < 0) return -1;
    return og_exec_reserve(env.ex, 64 << 20, NULL);
}

static int close_cpu(void **state) {
    (void)state;
    og__pool_set_active(0);
    case_close(&env);
    return 0;
}

static void ok(int rc) {
    if (rc < 0) print_error("%s: %s\n", og_err_name(rc), og_exec_error(env.ex));
    assert_int_equal(rc, 0);
    og_exec_reset(env.ex);
}

static og_tensor random_nd(int rank, const int64_t *ne, og_dtype t, int misalign) {
    return case_tensor(&env, t, rank, ne, 1.0f, misalign);
}

static og_tensor f32_2d(int64_t a, int64_t b) {
    return random_nd(2, (int64_t[]){a, b}, OG_F32, 0);
}

static og_tensor zeros(int64_t a, int64_t b) {
    return case_zeros(&env, OG_F32, 2, (int64_t[]){a, b});
}

static void same(const og_tensor *a, const og_tensor *b, const char *what) {
    if (!memcmp(a->data, b->data, og_tensor_bytes(a))) return;
    const float *x = a->data, *y = b->data;
    for (int64_t i = 0; i < og_tensor_count(a); i++)
        if (memcmp(x + i, y + i, 4) != 0)
            fail_msg("%s: value %lld of %lld is %.9g and %.9g", what, (long long)i,
                     (long long)og_tensor_count(a), (double)x[i], (double)y[i]);
}

/* ---- linear --------------------------------------------------------------------------- */

typedef struct linear_shape {
    og_dtype t;
    int misalign, rows, k, n;
} linear_shape;

static void check_linear(const linear_shape *s) {
    case_clear(&env);
    og_tensor x = f32_2d(s->rows, s->k), y = zeros(s->rows, s->n),
              z = zeros(s->rows, s->n);
    og_tensor w = random_nd(2, (int64_t[]){s->n, s->k}, s->t, s->misalign);
    og_tensor bias = random_nd(1, (int64_t[]){s->n}, OG_F32, 0);
    og_epilogue epi = {OG_ACT_SILU, NULL, NULL};
    og__pool_set_active(0);
    ok(og_op_linear(env.ex, 1, &y, &x, &w, &bias, &epi));
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 11, 12, 13, 30, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(z.data, 0, og_tensor_bytes(&z));
        og__pool_set_active(1 + (int)i % THREADS);
        for (int r = 0; r < s->rows; r += sizes[i]) {
            int n = s->rows - r < sizes[i] ? s->rows - r : sizes[i];
            og_tensor xs = og_tensor_rows(&x, r, n), zs = og_tensor_rows(&z, r, n);
            ok(og_op_linear(env.ex, 1, &zs, &xs, &w, &bias, &epi));
        }
        same(&y, &z, "linear in batches");
    }
    /* columns alone */
    for (int j = 0; j < s->n; j += 1 + s->n / 5) {
        og_tensor ws = og_tensor_rows(&w, j, 1), bs = og_tensor_rows(&bias, j, 1);
        og_tensor one = zeros(s->rows, 1);
        ok(og_op_linear(env.ex, 1, &one, &x, &ws, &bs, &epi));
        for (int r = 0; r < s->rows; r++)
            assert_memory_equal((float *)one.data + r, (float *)y.data + r * s->n + j, 4);
    }
}

static void test_linear_rows_alone_and_in_batches(void **state) {
    (void)state;
    static const linear_shape shapes[] = {
        {OG_F32, 0, 96, 64, 40},   {OG_F32, 2, 70, 77, 33},   {OG_BF16, 0, 96, 128, 50},
        {OG_BF16, 1, 70, 77, 33},  {OG_F16, 1, 40, 45, 20},   {OG_BF16, 0, 30, 3072, 34},
        {OG_F32, 0, 25, 2060, 18}, {OG_BF16, 0, 600, 32, 16}, {OG_F16, 0, 13, 1, 3},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_linear(&shapes[i]);
}

/* ---- convolutions ----------------------------------------------------------------------- */

#define SLOTS 8

static int32_t slot_of[4096], pos_of[3 * 4096], cu_of[64];

/* n_seg segments of `len` rows each, segment s in slot (s * step + first) % SLOTS. */
static og_rows segments(int n_seg, int len, int first, int step, int pos) {
    for (int s = 0, r = 0; s < n_seg; s++) {
        for (int t = 0; t < len; t++, r++) {
            slot_of[r] = (s * step + first) % SLOTS;
            for (int a = 0; a < 3; a++) pos_of[3 * r + a] = pos + t;
        }
        cu_of[s + 1] = r;
    }
    cu_of[0] = 0;
    return (og_rows){n_seg * len, n_seg, slot_of, pos_of, cu_of};
}

typedef struct conv_shape {
    og_dtype t;
    int rows, cin, cout, taps, dilation;
} conv_shape;

typedef enum conv_kind { CONV, DEPTHWISE, TRANSPOSED } conv_kind;

static void conv_op(conv_kind kind, const conv_shape *s, og_tensor *y, const og_tensor *x,
                    const og_tensor *w, const og_tensor *bias, og_tensor *state,
                    const og_rows *rows) {
    og_epilogue epi = {OG_ACT_NONE, NULL, NULL};
    if (kind == CONV)
        ok(og_op_conv1d(env.ex, y, x, w, bias, state, rows, s->dilation, &epi));
    else if (kind == DEPTHWISE)
        ok(og_op_conv1d_depthwise(env.ex, y, x, w, bias, state, rows, s->dilation));
    else
        ok(og_op_conv_transpose1d(env.ex, y, x, w, bias, state, rows, s->dilation));
}

static void check_conv(conv_kind kind, const conv_shape *s) {
    case_clear(&env);
    int up = kind == TRANSPOSED ? s->dilation : 1,
        cout = kind == DEPTHWISE ? s->cin : s->cout;
    int64_t depth = kind == TRANSPOSED ? s->taps - 1 : (s->taps - 1) * s->dilation;
    og_tensor x = f32_2d(s->rows, s->cin), y = zeros(s->rows * up, cout);
    og_tensor z = zeros(s->rows * up, cout);
    og_tensor w = kind == DEPTHWISE
                      ? random_nd(2, (int64_t[]){s->cin, s->taps}, s->t, 0)
                      : random_nd(3, (int64_t[]){up * s->cout, s->taps, s->cin}, s->t, 0);
    og_tensor bias = random_nd(1, (int64_t[]){cout}, OG_F32, 0);
    og_tensor state = case_zeros(&env, OG_F32, 3, (int64_t[]){SLOTS, depth, s->cin});
    og_tensor end = case_zeros(&env, OG_F32, 3, (int64_t[]){SLOTS, depth, s->cin});
    og__pool_set_active(0);
    og_rows rows = segments(1, s->rows, 2, 0, 0);
    conv_op(kind, s, &y, &x, &w, &bias, &end, &rows);
    static const int sizes[] = {1, 2, 3, 5, 8, 13, 31, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(state.data, 0, og_tensor_bytes(&state));
        og__pool_set_active(1 + (int)i % THREADS);
        for (int r = 0; r < s->rows; r += sizes[i]) {
            int n = s->rows - r < sizes[i] ? s->rows - r : sizes[i];
            og_tensor xs = og_tensor_rows(&x, r, n),
                      zs = og_tensor_rows(&z, r * up, n * up);
            rows = segments(1, n, 2, 0, 0);
            conv_op(kind, s, &zs, &xs, &w, &bias, &state, &rows);
        }
        same(&y, &z, "conv in chunks");
        same(&end, &state, "carried state");
    }
    /* the same rows as one of three segments, in another slot */
    og_tensor many = f32_2d(3 * s->rows, s->cin), out = zeros(3 * s->rows * up, cout);
    og_tensor mid = og_tensor_rows(&many, s->rows, s->rows);
    memcpy(mid.data, x.data, og_tensor_bytes(&x));
    memset(state.data, 0, og_tensor_bytes(&state));
    rows = segments(3, s->rows, 1, 3, 0);
    conv_op(kind, s, &out, &many, &w, &bias, &state, &rows);
    og_tensor got = og_tensor_rows(&out, s->rows * up, s->rows * up);
    same(&y, &got, "conv as one of three segments");
}

static void test_convolutions_whole_and_in_chunks(void **state) {
    (void)state;
    static const conv_shape shapes[] = {
        {OG_F32, 70, 32, 24, 7, 1}, {OG_F32, 90, 16, 17, 7, 9},
        {OG_F32, 40, 19, 20, 3, 2}, {OG_BF16, 40, 33, 10, 5, 1},
        {OG_F32, 30, 1, 12, 7, 1},  {OG_F32, 40, 1040, 18, 3, 1},
        {OG_F32, 700, 16, 1, 7, 1}, {OG_F32, 64, 768, 16, 2, 1},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_conv(CONV, &shapes[i]);
        check_conv(DEPTHWISE, &shapes[i]);
    }
    static const conv_shape transposed[] = {{OG_F32, 40, 32, 16, 2, 8},
                                            {OG_F32, 33, 17, 5, 3, 3},
                                            {OG_BF16, 20, 48, 24, 2, 5}};
    for (size_t i = 0; i < sizeof transposed / sizeof *transposed; i++)
        check_conv(TRANSPOSED, &transposed[i]);
}

/* ---- attention ---------------------------------------------------------------------------- */

#define PAGE 4
#define PER_SLOT 32

static int32_t table[SLOTS * PER_SLOT];

static og_kv make_kv(int ring, int shuffle, int heads, int dim) {
    for (int s = 0; s < SLOTS; s++)
        for (int i = 0; i < PER_SLOT; i++)
            table[s * PER_SLOT + i] =
                1 + (shuffle ? (i * SLOTS + s) * 7 % (SLOTS * PER_SLOT - 1)
                             : s * PER_SLOT + i);
    int64_t ne[4] = {SLOTS * PER_SLOT + 1, PAGE, heads, dim};
    return (og_kv){.k = case_zeros(&env, OG_F32, 4, ne),
                   .v = case_zeros(&env, OG_F32, 4, ne),
                   .table = table,
                   .max_pages = PER_SLOT,
                   .page = PAGE,
                   .ring = ring};
}

typedef struct attn_shape {
    int rows, heads, kv_heads, dim, window, ring, chunk;
} attn_shape;

static void step_attention(const attn_shape *s, og_tensor qkv[3], og_tensor *y, og_kv *kv,
                           const og_rows *rows) {
    og_tensor none = {0}, cos = zeros(rows->n, s->dim / 2),
              sin = zeros(rows->n, s->dim / 2);
    float freq[64];
    for (int i = 0; i < s->dim / 2; i++) freq[i] = 1.0f / (float)(1 + i * i);
    og_tensor inv = og_tensor_1d(OG_F32, s->dim / 2, freq);
    ok(og_op_rope_table(env.ex, &cos, &sin, rows, &inv));
    ok(og_op_qk_norm_rope_append(env.ex, &qkv[0], &qkv[1], &qkv[2], &none, &none, 1e-6f,
                                 &cos, &sin, rows, kv));
    ok(og_op_attn_paged(env.ex, y, &qkv[0], kv, rows, 0.2f, s->window));
}

static void copies(og_tensor to[3], const og_tensor from[3]) {
    for (int i = 0; i < 3; i++)
        memcpy(to[i].data, from[i].data, og_tensor_bytes(&from[i]));
}

static void check_attention(const attn_shape *s) {
    case_clear(&env);
    int64_t q_ne[3] = {s->rows, s->heads, s->dim},
            k_ne[3] = {s->rows, s->kv_heads, s->dim};
    og_tensor given[3] = {random_nd(3, q_ne, OG_F32, 0), random_nd(3, k_ne, OG_F32, 0),
                          random_nd(3, k_ne, OG_F32, 0)};
    og_tensor used[3] = {random_nd(3, q_ne, OG_F32, 0), random_nd(3, k_ne, OG_F32, 0),
                         random_nd(3, k_ne, OG_F32, 0)};
    og_tensor y = random_nd(3, q_ne, OG_F32, 0), z = random_nd(3, q_ne, OG_F32, 0);
    og__pool_set_active(0);
    og_kv kv = make_kv(0, 0, s->kv_heads, s->dim);
    og_rows rows = segments(1, s->rows, 1, 0, 0);
    copies(used, given);
    step_attention(s, used, &y, &kv, &rows);
    kv = make_kv(s->ring, 1, s->kv_heads, s->dim); /* other pages, perhaps in a ring */
    copies(used, given);
    for (int r = 0; r < s->rows; r += s->chunk) {
        int n = s->rows - r < s->chunk ? s->rows - r : s->chunk;
        og_tensor part[3], zs = og_tensor_rows(&z, r, n);
        for (int i = 0; i < 3; i++) part[i] = og_tensor_rows(&used[i], r, n);
        og__pool_set_active(1 + r % THREADS);
        rows = segments(1, n, 6, 0, r);
        step_attention(s, part, &zs, &kv, &rows);
    }
    same(&y, &z, "attention in chunks");
}

static void test_attention_whole_and_in_chunks(void **state) {
    (void)state;
    static const attn_shape shapes[] = {
        {40, 4, 2, 64, 0, 0, 1},  {40, 4, 2, 64, 0, 0, 7},  {60, 2, 2, 20, 9, 4, 1},
        {60, 2, 1, 38, 9, 6, 10}, {90, 4, 1, 16, 0, 0, 33},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_attention(&shapes[i]);
}

/* ---- elementwise and norms ----------------------------------------------------------------- */

/* The same numbers at another alignment, in a strided tensor, and in pieces. */
static void check_rows_op(const char *what, int width,
                          int (*op)(og_tensor *, og_tensor *)) {
    case_clear(&env);
    const int rows = 37;
    og_tensor x = f32_2d(rows, width), y = zeros(rows, width), z = zeros(rows, width);
    og_tensor wide = f32_2d(rows, width + 3), wide_y = zeros(rows, width + 3);
    og__pool_set_active(0);
    ok(op(&y, &x));
    for (int r = 0; r < rows; r += 5) {
        int n = rows - r < 5 ? rows - r : 5;
        og_tensor xs = og_tensor_rows(&x, r, n), zs = og_tensor_rows(&z, r, n);
        og__pool_set_active(1 + r % THREADS);
        ok(op(&zs, &xs));
    }
    same(&y, &z, what);
    og_tensor view = wide, view_y = wide_y;
    view.data = (float *)wide.data + 1, view_y.data = (float *)wide_y.data + 3;
    view.ne[1] = view_y.ne[1] = width;
    for (int r = 0; r < rows; r++)
        memcpy((float *)view.data + r * (width + 3), (float *)x.data + r * width,
               (size_t)width * 4);
    view_y.ne[0] = view.ne[0] = rows;
    ok(op(&view_y, &view));
    for (int r = 0; r < rows; r++)
        assert_memory_equal((float *)view_y.data + r * (width + 3),
                            (float *)y.data + r * width, (size_t)width * 4);
}

static float vectors[2][5000];

static og_tensor vector_of(int i, int64_t n) {
    uint32_t seed = (uint32_t)i + 7;
    for (int64_t c = 0; c < n; c++) vectors[i][c] = case_random(&seed);
    return og_tensor_1d(OG_F32, n, vectors[i]);
}

static int op_silu(og_tensor *y, og_tensor *x) {
    return og_op_unary(env.ex, y, x, OG_ACT_SILU);
}

static int op_gelu(og_tensor *y, og_tensor *x) {
    return og_op_unary(env.ex, y, x, OG_ACT_GELU);
}

static int op_snake(og_tensor *y, og_tensor *x) {
    og_tensor a = vector_of(0, x->ne[1]), b = vector_of(1, x->ne[1]);
    return og_op_snake(env.ex, y, x, &a, &b);
}

static int op_add_row(og_tensor *y, og_tensor *x) {
    og_tensor a = vector_of(0, x->ne[1]);
    return og_op_binary(env.ex, y, x, &a, OG_ADD);
}

static int op_rms(og_tensor *y, og_tensor *x) {
    og_tensor a = vector_of(0, x->ne[1]);
    return og_op_rms_norm(env.ex, y, x, &a, 1e-6f);
}

static int op_layer(og_tensor *y, og_tensor *x) {
    og_tensor a = vector_of(0, x->ne[1]), b = vector_of(1, x->ne[1]);
    return og_op_layer_norm(env.ex, y, x, &a, &b, 1e-6f);
}

static void test_elementwise_ops_do_not_depend_on_layout(void **state) {
    (void)state;
    static const int widths[] = {1, 3, 16, 31, 100, 1024, 4999};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        check_rows_op("silu", widths[i], op_silu);
        check_rows_op("gelu", widths[i], op_gelu);
        check_rows_op("snake", widths[i], op_snake);
        check_rows_op("add row", widths[i], op_add_row);
        check_rows_op("rms_norm", widths[i], op_rms);
        check_rows_op("layer_norm", widths[i], op_layer);
    }
}

/* ---- the whole table, over threads --------------------------------------------------------- */

static void test_every_case_is_equal_on_one_and_more_threads(void **state) {
    (void)state;
    for (int i = 0; i < n_cases; i++) {
        og__pool_set_active(1);
        assert_int_equal(case_run(&env, &cases[i]), 0);
        int64_t n = env.n_out;
        float *one = malloc((size_t)(n + 1) * sizeof *one);
        assert_non_null(one);
        memcpy(one, env.out, (size_t)n * sizeof *one);
        for (int threads = 2; threads <= THREADS; threads++) {
            og__pool_set_active(threads);
            assert_int_equal(case_run(&env, &cases[i]), 0);
            assert_int_equal(env.n_out, n);
            if (memcmp(one, env.out, (size_t)n * sizeof *one) != 0)
                fail_msg("%s differs on %d threads", cases[i].name, threads);
        }
        free(one);
    }
}

static void test_every_case_is_equal_on_avx2_and_avx512(void **state) {
    (void)state;
    case_env other;
    const char *given = getenv("OG_ISA");
    char keep[16];
    snprintf(keep, sizeof keep, "%s", given ? given : "");
    setenv("OG_ISA", "avx512", 1);
    int rc = case_open(&other, "cpu", THREADS);
    setenv("OG_ISA", "avx2", 1);
    case_env base;
    int rc2 = case_open(&base, "cpu", THREADS);
    setenv("OG_ISA", keep, 1);
    if (rc < 0 || rc2 < 0) {
        if (rc == 0) case_close(&other);
        if (rc2 == 0) case_close(&base);
        print_message("this processor has no AVX-512\n");
        skip();
    }
    for (int i = 0; i < n_cases; i++) {
        assert_int_equal(case_run(&base, &cases[i]), 0);
        assert_int_equal(case_run(&other, &cases[i]), 0);
        assert_int_equal(base.n_out, other.n_out);
        if (memcmp(base.out, other.out, (size_t)base.n_out * sizeof *base.out) != 0)
            fail_msg("%s differs between AVX2 and AVX-512", cases[i].name);
    }
    case_close(&base);
    case_close(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_rows_alone_and_in_batches),
        cmocka_unit_test(test_convolutions_whole_and_in_chunks),
        cmocka_unit_test(test_attention_whole_and_in_chunks),
        cmocka_unit_test(test_elementwise_ops_do_not_depend_on_layout),
        cmocka_unit_test(test_every_case_is_equal_on_one_and_more_threads),
        cmocka_unit_test(test_every_case_is_equal_on_avx2_and_avx512),
    };
    return cmocka_run_group_tests_name("bits", tests, open_cpu, close_cpu);
}
