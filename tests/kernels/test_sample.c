/* The sampler: order of processing, edges of each filter, and what the draws depend on. */
#include "kernels/ops.h"
#include "tests/kernels/cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define MAX_V 6000

static case_env cpu, ref;

static int open_both(void **state) {
    (void)state;
    if (case_open(&cpu, "cpu", 2) < 0 || case_open(&ref, "ref", 1) < 0) return -1;
    return og_exec_reserve(cpu.ex, 1 << 20, NULL) |
           og_exec_reserve(ref.ex, 1 << 20, NULL);
}

static int close_both(void **state) {
    (void)state;
    case_close(&cpu);
    case_close(&ref);
    return 0;
}

static const og_sample_row greedy = {
    .temperature = 0, .top_p = 1, .repetition_penalty = 1};
static const og_sample_row plain = {
    .temperature = 1, .top_p = 1, .repetition_penalty = 1};

typedef struct extras {
    const int32_t *history;
    const uint8_t *allowed;
    const int32_t *stop;
    int n_stop;
} extras;

static int32_t sample_on(case_env *env, const float *logits, int v,
                         const og_sample_row *row, const extras *e) {
    float x[MAX_V];
    int32_t id = -7;
    memcpy(x, logits, (size_t)v * sizeof *x);
    og_tensor ids = og_tensor_1d(OG_I32, 1, &id), t = og_tensor_2d(OG_F32, 1, v, x);
    og_tensor history = {0}, allowed = {0}, stop = {0};
    if (e && e->history) history = og_tensor_2d(OG_I32, 1, v, (void *)e->history);
    if (e && e->allowed) allowed = og_tensor_1d(OG_U8, v, (void *)e->allowed);
    if (e && e->stop) stop = og_tensor_1d(OG_I32, e->n_stop, (void *)e->stop);
    int rc = og_op_sample(env->ex, &ids, &t, row, &history, &allowed, &stop);
    if (rc < 0) print_error("%s\n", og_exec_error(env->ex));
    assert_int_equal(rc, 0);
    og_exec_reset(env->ex);
    return id;
}

/* Both backends must agree; the id that they drew. */
static int32_t sample(const float *logits, int v, const og_sample_row *row,
                      const extras *e) {
    int32_t a = sample_on(&cpu, logits, v, row, e),
            b = sample_on(&ref, logits, v, row, e);
    assert_int_equal(a, b);
    return a;
}

/* Bit i is set when id i was drawn in any of 400 draws. */
static unsigned drawn(const float *logits, int v, og_sample_row row, const extras *e) {
    unsigned set = 0;
    for (int i = 0; i < 400; i++) {
        row.seed = (uint64_t)i * 77 + 5;
        set |= 1u << sample(logits, v, &row, e);
    }
    return set;
}

static void test_philox_known_answers(void **state) {
    (void)state;
    static const uint32_t in[3][6] = {
        {0, 0, 0, 0, 0, 0},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u},
        {0xa4093822, 0x299f31d0, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}};
    static const uint32_t want[3][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                        {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        og_philox(in[i], in[i] + 2, out);
        assert_memory_equal(out, want[i], sizeof out);
    }
}

static void test_greedy_takes_the_first_maximum(void **state) {
    (void)state;
    float x[6] = {1, 3, -2, 3, 3, 0};
    assert_int_equal(sample(x, 6, &greedy, NULL), 1);
    float inf = INFINITY, odd[4] = {NAN, -inf, 2, NAN}, none[3] = {-inf, -inf, -inf};
    assert_int_equal(sample(odd, 4, &greedy, NULL), 2);
    assert_int_equal(sample(none, 3, &greedy, NULL), 0);
    assert_int_equal(sample(none, 3, &plain, NULL), 0);
    float top[3] = {1, inf, inf};
    assert_int_equal(sample(top, 3, &plain, NULL), 1);
}

static void test_penalties_come_first(void **state) {
    (void)state;
    float x[4] = {2.0f, 1.9f, -1.0f, 0.0f};
    int32_t seen[4] = {1, 0, 0, 0};
    extras e = {.history = seen};
    og_sample_row row = greedy;
    assert_int_equal(sample(x, 4, &row, &e), 0);
    row.repetition_penalty = 1.1f; /* 2 / 1.1 < 1.9 */
    assert_int_equal(sample(x, 4, &row, &e), 1);
    float below[2] = {-1.0f, -1.05f}; /* below 0 it multiplies */
    int32_t first[2] = {1, 0};
    e.history = first;
    assert_int_equal(sample(below, 2, &row, &e), 1);
    row = greedy;
    row.presence_penalty = 0.2f;
    e.history = seen;
    assert_int_equal(sample(x, 4, &row, &e), 1);
    row = greedy;
    row.frequency_penalty = 0.04f; /* 3 * 0.04 > 0.1, once is not enough */
    assert_int_equal(sample(x, 4, &row, &e), 0);
    seen[0] = 3;
    assert_int_equal(sample(x, 4, &row, &e), 1);
}

static void
test_b053_stop_ids_are_banned_below_min_tokens_and_bounds_are_kept(void **state) {
    (void)state;
    float x[4] = {5, 4, 3, 2};
    int32_t stop[4] = {0, 151645, -1, 1};
    extras e = {.stop = stop, .n_stop = 4};
    og_sample_row row = greedy;
    row.min_tokens = 2;
    assert_int_equal(sample(x, 4, &row, &e), 2);
    row.count = 1;
    assert_int_equal(sample(x, 4, &row, &e), 2);
    row.count = 2;
    assert_int_equal(sample(x, 4, &row, &e), 0);
}

static void test_allowed_mask(void **state) {
    (void)state;
    float x[4] = {5, 4, 3, 2};
    uint8_t allowed[4] = {0, 0, 1, 1};
    extras e = {.allowed = allowed};
    assert_int_equal(sample(x, 4, &greedy, &e), 2);
    assert_int_equal(drawn(x, 4, plain, &e), 0xc);
}

static void test_top_k_keeps_ties(void **state) {
    (void)state;
    float x[6] = {1, 2, 1, 0, 1, -1};
    og_sample_row row = plain;
    row.top_k = 1;
    assert_int_equal(drawn(x, 6, row, NULL), 1 << 1);
    row.top_k = 2; /* three ties at the second */
    assert_int_equal(drawn(x, 6, row, NULL), 1 << 0 | 1 << 1 | 1 << 2 | 1 << 4);
    row.top_k = 5;
    assert_int_equal(drawn(x, 6, row, NULL), 0x1f);
    row.top_k = 60;
    row.temperature = 3;
    assert_int_equal(drawn(x, 6, row, NULL), 0x3f);
    row.top_k = -1;
    assert_int_equal(drawn(x, 6, row, NULL), 0x3f);
}

static void test_top_p_edges(void **state) {
    (void)state;
    float ln2 = 0.69314718f, x[4] = {0, -2 * ln2, -ln2, -2 * ln2}; /* 4:1:2:1 of 8 */
    og_sample_row row = plain;
    row.top_p = 0.45f;
    assert_int_equal(drawn(x, 4, row, NULL), 1);
    row.top_p = 0.55f;
    assert_int_equal(drawn(x, 4, row, NULL), 1 << 0 | 1 << 2);
    row.top_p = 0.80f; /* of the equal ones the first stays */
    assert_int_equal(drawn(x, 4, row, NULL), 1 << 0 | 1 << 1 | 1 << 2);
    row.top_p = 0.95f;
    assert_int_equal(drawn(x, 4, row, NULL), 0xf);
    row.top_p = 0;
    assert_int_equal(drawn(x, 4, row, NULL), 1);
    float even[4] = {1, 1, 1, 1};
    assert_int_equal(drawn(even, 4, row, NULL), 1);
    row.top_p = 0.5f; /* the mass of two is not above 1 - p */
    assert_int_equal(drawn(even, 4, row, NULL), 3);
    row.top_p = 0.9f;
    row.top_k = 1; /* top_k comes before: all tie, all stay */
    assert_int_equal(drawn(even, 4, row, NULL), 0xf);
}

static void test_min_p(void **state) {
    (void)state;
    float x[4] = {0, -1, -2, -9};
    og_sample_row row = plain;
    row.min_p = 0.3f; /* e^-1 = 0.37, e^-2 = 0.14 */
    assert_int_equal(drawn(x, 4, row, NULL), 3);
    row.temperature = 2; /* after the temperature: e^-1 is the third */
    assert_int_equal(drawn(x, 4, row, NULL), 7);
}

static void test_temperature_of_any_size(void **state) {
    (void)state;
    float x[3] = {1e30f, -1e30f, 1e30f};
    og_sample_row row = plain;
    row.temperature = 1e-30f;
    assert_int_equal(drawn(x, 3, row, NULL), 5);
    row.temperature = 1e30f;
    assert_true(drawn(x, 3, row, NULL) & 5);
}

static void test_draws_follow_the_distribution(void **state) {
    (void)state;
    const int n = 20000;
    static const double p[8] = {0.35, 0.2, 0.15, 0.1, 0.08, 0.06, 0.04, 0.02};
    float x[8];
    int hits[8] = {0};
    for (int i = 0; i < 8; i++) x[i] = (float)log(p[i]) + 3;
    og_sample_row row = plain;
    row.seed = 1234;
    for (int i = 0; i < n; i++) {
        row.count = (uint64_t)i;
        hits[sample_on(&cpu, x, 8, &row, NULL)]++;
    }
    double chi = 0;
    for (int i = 0; i < 8; i++)
        chi += (hits[i] - n * p[i]) * (hits[i] - n * p[i]) / (n * p[i]);
    assert_true(chi < 24.3); /* 7 degrees of freedom, one in a thousand */
}

static void test_draws_depend_on_seed_stage_codebook_and_count(void **state) {
    (void)state;
    float x[2] = {0, 0};
    og_sample_row row = plain;
    uint64_t bits[5] = {0};
    for (int i = 0; i < 60; i++) {
        og_sample_row r[5] = {row, row, row, row, row};
        for (int j = 0; j < 5; j++) r[j].count = (uint64_t)i;
        r[1].seed = 1, r[2].stage = 1, r[3].codebook = 1, r[4].seed = (uint64_t)1 << 32;
        for (int j = 0; j < 5; j++) bits[j] |= (uint64_t)sample(x, 2, &r[j], NULL) << i;
    }
    for (int j = 0; j < 5; j++)
        for (int k = 0; k < j; k++) assert_true(bits[j] != bits[k]);
}

static void test_same_seed_same_id_alone_or_in_a_batch(void **state) {
    (void)state;
    enum { ROWS = 9, V = 500 };
    static float x[ROWS * V], y[ROWS * V];
    og_sample_row rows[ROWS];
    int32_t ids[ROWS];
    uint32_t seed = 3;
    for (int i = 0; i < ROWS * V; i++) x[i] = y[i] = 4 * case_random(&seed);
    for (int r = 0; r < ROWS; r++)
        rows[r] = (og_sample_row){.temperature = 0.5f + 0.1f * (float)r,
                                  .top_p = 0.95f,
                                  .top_k = r % 3 * 40,
                                  .repetition_penalty = 1,
                                  .seed = (uint64_t)r * 31,
                                  .count = (uint64_t)r};
    og_tensor t = og_tensor_2d(OG_F32, ROWS, V, y), out = og_tensor_1d(OG_I32, ROWS, ids);
    assert_int_equal(og_op_sample(cpu.ex, &out, &t, rows, NULL, NULL, NULL), 0);
    for (int r = 0; r < ROWS; r++)
        assert_int_equal(ids[r], sample(x + r * V, V, &rows[r], NULL));
}

/* Rounded logits make many ties at every threshold. */
static void test_backends_draw_the_same_ids(void **state) {
    (void)state;
    static float x[MAX_V];
    static int32_t seen[MAX_V];
    uint32_t seed = 99;
    for (int i = 0; i < 600; i++) {
        int v = 1 + (int)((case_random(&seed) + 1) * (i % 10 ? 200 : MAX_V / 2 - 1));
        for (int j = 0; j < v; j++) {
            x[j] = 6 * case_random(&seed);
            if (i % 2) x[j] = (float)(int)(x[j] * 2) / 2;
            if (i % 7 == 0 && j % 3 == 0) x[j] = -INFINITY;
            seen[j] = case_random(&seed) > 0.8f ? 1 + j % 3 : 0;
        }
        og_sample_row row = {.temperature = 0.1f + (case_random(&seed) + 1),
                             .top_p = i % 3 ? (case_random(&seed) + 1) / 2 : 1,
                             .min_p = i % 5 ? 0 : 0.01f,
                             .repetition_penalty = 1.0f + 0.2f * (float)(i % 2),
                             .presence_penalty = 0.1f * (float)(i % 3),
                             .frequency_penalty = 0.05f * (float)(i % 4),
                             .top_k =
                                 i % 4 ? (int32_t)((case_random(&seed) + 1) * 50) : 0,
                             .seed = (uint64_t)i << 20,
                             .count = (uint64_t)i};
        extras e = {.history = seen};
        sample(x, v, &row, &e);
    }
}

static void test_shape_errors(void **state) {
    (void)state;
    float x[6] = {0};
    int32_t ids[2];
    og_tensor t = og_tensor_2d(OG_F32, 2, 3, x), out = og_tensor_1d(OG_I32, 1, ids);
    assert_int_equal(og_op_sample(cpu.ex, &out, &t, &plain, NULL, NULL, NULL), OG_ESHAPE);
    assert_non_null(strstr(og_exec_error(cpu.ex), "f32[2,3]"));
    out = og_tensor_1d(OG_I32, 2, ids);
    og_tensor history = og_tensor_2d(OG_I32, 2, 4, ids);
    assert_int_equal(og_op_sample(cpu.ex, &out, &t, &plain, &history, NULL, NULL),
                     OG_ESHAPE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_greedy_takes_the_first_maximum),
        cmocka_unit_test(test_penalties_come_first),
        cmocka_unit_test(
            test_b053_stop_ids_are_banned_below_min_tokens_and_bounds_are_kept),
        cmocka_unit_test(test_allowed_mask),
        cmocka_unit_test(test_top_k_keeps_ties),
        cmocka_unit_test(test_top_p_edges),
        cmocka_unit_test(test_min_p),
        cmocka_unit_test(test_temperature_of_any_size),
        cmocka_unit_test(test_draws_follow_the_distribution),
        cmocka_unit_test(test_draws_depend_on_seed_stage_codebook_and_count),
        cmocka_unit_test(test_same_seed_same_id_alone_or_in_a_batch),
        cmocka_unit_test(test_backends_draw_the_same_ids),
        cmocka_unit_test(test_shape_errors),
    };
    return cmocka_run_group_tests_name("sample", tests, open_both, close_both);
}
