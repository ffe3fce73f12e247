/* The kind ar_decoder over a toy network: ports, recipes, open sequences, company. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/nodes/ar_toy.h"

static void test_counts_to_the_stop(void **state) {
    (void)state;
    toy_fix f;
    th_job j;
    toy_open(&f, 4, 64, 16, 0);
    toy_job(&j, 1, 8, 100);
    j.job.sampling.stop[j.job.sampling.n_stop++] = 9;
    th_job_out(&j, TOY_TOKENS, OG_I32, 1, 16);
    th_job_out(&j, TOY_HIDDEN, OG_F32, TOY_H, 16);
    assert_int_equal(toy_admit(&f, &j), 0);
    toy_feed(&f, &j, TOY_IDS(1, 2, 5));
    assert_int_equal(th_run(f.node, 10), 5);
    TOY_EXPECT(&j, 1, 5, 6, 7, 8);
    assert_int_equal(j.stop_id, 9);
    assert_true(j.out[TOY_CODES].first);
    assert_int_equal(((int32_t *)(void *)j.out[TOY_TOKENS].data)[3], 8);
    assert_true(((float *)(void *)j.out[TOY_HIDDEN].data)[2 * TOY_H] == 7.0f);
    toy_done(&f, &j);
    toy_close(&f);
}

/* The token that meets the limit makes no frame. */
static void test_limit_counts_the_last_token(void **state) {
    (void)state;
    toy_fix f;
    th_job j;
    toy_open(&f, 1, 64, 16, 0);
    toy_job(&j, 1, 8, 4);
    assert_int_equal(toy_admit(&f, &j), 0);
    toy_feed(&f, &j, TOY_IDS(3));
    th_run(f.node, 10);
    TOY_EXPECT(&j, 1, 3, 4, 5);
    assert_int_equal(j.stop_id, -1);
    toy_done(&f, &j);
    toy_close(&f);
}

static void test_feed_rows_then_fill(void **state) {
    (void)state;
    toy_fix f;
    th_job j;
    toy_open(&f, 1, 64, 16, 0);
    toy_job(&j, 1, 8, 7);
    assert_int_equal(toy_admit(&f, &j), 0);
    th_feed_rows(f.node, &j, TOY_PROMPT, TOY_IDS(1), NULL, OG_LAST);
    th_feed_rows(f.node, &j, TOY_FEED, TOY_IDS(1, 2), TOY_IDS(0), OG_LAST);
    th_run(f.node, 20);
    TOY_EXPECT(&j, 1, 1, 3, 6, 7, 8, 9);
    toy_done(&f, &j);
    toy_close(&f);
}

/* More feed rows than are evaluated at once. */
static void test_feed_longer_than_its_window(void **state) {
    (void)state;
    toy_fix f;
    th_job j;
    int ids[100];
    for (int i = 0; i < 100; i++) ids[i] = i % 3;
    toy_open(&f, 2, 256, 16, 0);
    toy_job(&j, 1, 8, 110);
    assert_int_equal(toy_admit(&f, &j), 0);
    th_feed_rows(f.node, &j, TOY_PROMPT, TOY_IDS(0), NULL, OG_LAST);
    th_feed_rows(f.node, &j, TOY_FEED, toy_ids(100, ids), TOY_IDS(5), OG_LAST);
    th_run(f.node, 400);
    const int32_t *got = (const void *)j.out[TOY_CODES].data;
    assert_int_equal(j.out[TOY_CODES].n, 109);
    for (int i = 0, want = 0; i < 109; i++) {
        assert_int_equal(got[i * TOY_G], want);
        want = (want + 1 + (i < 100 ? ids[i] : 5)) % TOY_V;
    }
    toy_done(&f, &j);
    toy_close(&f);
}

/* A job that misses its feed row waits, and its neighbour does not. */
static void test_feed_that_comes_item_by_item(void **state) {
    (void)state;
    toy_fix f;
    th_job j[2];
    int32_t two = 2;
    toy_open(&f, 2, 64, 16, 0);
    for (int i = 0; i < 2; i++) {
        toy_job(&j[i], (uint64_t)i, 8, 5);
        assert_int_equal(toy_admit(&f, &j[i]), 0);
    }
    th_feed_rows(f.node, &j[0], TOY_PROMPT, TOY_IDS(1), NULL, OG_LAST);
    th_feed_rows(f.node, &j[0], TOY_FEED, toy_open_rows(TOY_ID, 3, 1, 0, NULL, 0), NULL,
                 OG_LAST);
    toy_feed(&f, &j[1], TOY_IDS(4));
    th_run(f.node, 20);
    TOY_EXPECT(&j[0], 0, 1);
    TOY_EXPECT(&j[1], 1, 4, 5, 6, 7);

    th_feed_items(f.node, &j[0], TOY_FEED, 3, OG_I32, 1, 1, &two, 0); /* sub(2): unused */
    assert_int_equal(th_run(f.node, 5), 0);
    th_feed_items(f.node, &j[0], TOY_FEED, 3, OG_I32, 1, 1, &two, 0);
    th_run(f.node, 5);
    TOY_EXPECT(&j[0], 0, 1, 4);
    th_feed_items(f.node, &j[0], TOY_FEED, 3, OG_I32, 1, 1, &two, OG_LAST);
    th_run(f.node, 5);
    TOY_EXPECT(&j[0], 1, 1, 4, 7, 8);
    toy_done(&f, &j[0]);
    toy_done(&f, &j[1]);
    toy_close(&f);
}

/* Prefill reaches up to the first row that is not known yet. */
static void test_open_prompt(void **state) {
    (void)state;
    toy_fix f;
    th_job j;
    og_step_info info;
    int32_t codes[] = {1, 2, 3, 4};
    toy_open(&f, 1, 64, 16, 0);
    toy_job(&j, 1, 16, 3);
    assert_int_equal(toy_admit(&f, &j), 0);
    th_feed_rows(f.node, &j, TOY_PROMPT,
                 toy_open_rows(TOY_PAIR, 0, 0, 3, (int[]){1, 2, 6}, 2), NULL, OG_LAST);
    th_feed_rows(f.node, &j, TOY_FEED, NULL, NULL, OG_LAST);
    assert_int_equal(th_step(f.node, &info), OG_STEP_WORK);
    assert_int_equal(info.prefill, 2);
    assert_int_equal(th_step(f.node, &info), OG_STEP_IDLE);
    th_feed_items(f.node, &j, TOY_PROMPT, 0, OG_I32, 2, 2, codes, 0);
    assert_int_equal(th_step(f.node, &info), OG_STEP_WORK);
    assert_int_equal(info.prefill, 2);
    assert_int_equal(th_step(f.node, &info), OG_STEP_IDLE);
    th_feed_items(f.node, &j, TOY_PROMPT, 0, OG_I32, 0, 2, codes, OG_LAST);
    assert_int_equal(th_step(f.node, &info), OG_STEP_WORK);
    assert_int_equal(info.prefill, 1);
    th_run(f.node, 5);
    TOY_EXPECT(&j, 1, 6, 7);
    toy_done(&f, &j);
    toy_close(&f);
}

/* The end of the prompt may be told after its last row has been run. */
static void test_prompt_closed_late(void **state) {
    (void)state;
    toy_fix f;
    th_job j;
    toy_open(&f, 1, 64, 16, 0);
    toy_job(&j, 1, 16, 3);
    assert_int_equal(toy_admit(&f, &j), 0);
    th_feed_rows(f.node, &j, TOY_FEED, NULL, NULL, OG_LAST);
    th_feed_rows(f.node, &j, TOY_PROMPT, TOY_IDS(9, 4), NULL, OG_FIRST);
    assert_int_equal(th_run(f.node, 5), 1);
    th_feed_rows(f.node, &j, TOY_PROMPT, TOY_IDS(7), NULL, 0);
    assert_int_equal(th_run(f.node, 5), 1);
    th_feed_rows(f.node, &j, TOY_PROMPT, NULL, NULL, OG_LAST);
    th_run(f.node, 5);
    TOY_EXPECT(&j, 1, 7, 8);
    toy_done(&f, &j);
    toy_close(&f);
}

/* Closed rows over items of two sources: a code frame plus a vector. */
static void test_rows_of_sources(void **state) {
    (void)state;
    toy_fix f;
    th_job j;
    int32_t codes[] = {1, 1, 2, 4};
    float vec[TOY_H] = {3, 11, 0, 0};
    int live = 0;
    og_err err = OG_ERR_INIT;
    og_term terms[] = {{TOY_PAIR, 0, 1}, {TOY_VECTOR, 1, 0}, {TOY_ID, OG_NO_SOURCE, 2}};
    int32_t off[] = {0, 3};
    og_recipe *r = og_recipe_create(
        &(og_recipe){.n_rows = 1, .off = off, .terms = terms, .n_sources = 2}, 0);
    toy_open(&f, 1, 64, 16, 0);
    toy_job(&j, 1, 16, 3);
    assert_int_equal(toy_admit(&f, &j), 0);
    toy_feed(&f, &j, r);
    assert_int_equal(th_run(f.node, 5), 0);
    assert_int_equal(th_feed_items_live(f.node, &j, TOY_PROMPT, 0, OG_I32, 2, 2, codes,
                                        OG_LAST, &live, &err), 0);
    assert_int_equal(th_run(f.node, 5), 0);
    assert_int_equal(th_feed_items_live(f.node, &j, TOY_PROMPT, 1, OG_F32, 1, TOY_H, vec,
                                        OG_LAST, &live, &err), 0);
    assert_int_equal(live, 0);
    th_run(f.node, 5);
    TOY_EXPECT(&j, 1, 11, 12); /* 6 + 3 + 2 */
    assert_int_equal(((int32_t *)(void *)j.out[TOY_CODES].data)[1], 11);
    toy_done(&f, &j);
    toy_close(&f);
}

/* Pieces of a prompt, each with a source 0 of its own, fed before the first has been run. */
static void test_pieces_have_their_own_sources(void **state) {
    (void)state;
    toy_fix f;
    th_job j;
    og_step_info info;
    toy_open(&f, 1, 64, 16, 0);
    toy_job(&j, 1, 16, 3);
    assert_int_equal(toy_admit(&f, &j), 0);
    th_feed_rows(f.node, &j, TOY_FEED, NULL, NULL, OG_LAST);
    for (int32_t piece = 0; piece < 3; piece++) {
        int32_t ids[2] = {9, 3 + piece};
        th_feed_rows(f.node, &j, TOY_PROMPT, toy_open_rows(TOY_ID, 0, 0, 0, NULL, 0), NULL,
                     piece == 2 ? OG_LAST : 0);
        th_feed_items(f.node, &j, TOY_PROMPT, 0, OG_I32, 2, 1, ids, OG_LAST);
    }
    th_step(f.node, &info);
    assert_int_equal(info.prefill, 6);
    th_run(f.node, 5);
    TOY_EXPECT(&j, 1, 5, 6);
    toy_done(&f, &j);
    toy_close(&f);
}

/* A stream that ends before a row of the prompt exists, and a prompt without rows: the
 * stage is passed over. */
static void test_passed_over(void **state) {
    (void)state;
    toy_fix f;
    th_job j[2];
    int32_t id = 1;
    og_term term = {TOY_ID, 0, 5};
    int32_t off[] = {0, 1};
    og_recipe *r = og_recipe_create(
        &(og_recipe){.n_rows = 1, .off = off, .terms = &term, .n_sources = 1}, 0);
    toy_open(&f, 2, 64, 16, 0);
    for (int i = 0; i < 2; i++) {
        toy_job(&j[i], (uint64_t)i, 16, 3);
        assert_int_equal(toy_admit(&f, &j[i]), 0);
    }
    toy_feed(&f, &j[0], r);
    toy_feed(&f, &j[1], toy_ids(0, NULL));
    th_feed_items(f.node, &j[0], TOY_PROMPT, 0, OG_I32, 1, 1, &id, OG_LAST);
    th_run(f.node, 5);
    for (int i = 0; i < 2; i++) {
        toy_expect(&j[i], 1, 0, NULL);
        assert_true(j[i].out[TOY_CODES].first);
        toy_done(&f, &j[i]);
    }
    toy_close(&f);
}

static void test_slow_client_stops_only_itself(void **state) {
    (void)state;
    toy_fix f;
    th_job j[2];
    toy_open(&f, 2, 64, 16, 0);
    for (int i = 0; i < 2; i++) {
        toy_job(&j[i], (uint64_t)i, 8, 6);
        assert_int_equal(toy_admit(&f, &j[i]), 0);
        j[i].out[TOY_CODES].room = i ? -1 : 2;
        toy_feed(&f, &j[i], TOY_IDS(1));
    }
    th_run(f.node, 20);
    TOY_EXPECT(&j[0], 0, 1, 2);
    TOY_EXPECT(&j[1], 1, 1, 2, 3, 4, 5);
    j[0].out[TOY_CODES].room = -1;
    th_run(f.node, 20);
    TOY_EXPECT(&j[0], 1, 1, 2, 3, 4, 5);
    toy_done(&f, &j[0]);
    toy_done(&f, &j[1]);
    toy_close(&f);
}

/* Decode rows and prompt rows of other jobs share one step. */
static void test_prefill_beside_decode(void **state) {
    (void)state;
    toy_fix f;
    th_job j[2];
    og_step_info info;
    toy_open(&f, 2, 64, 4, 0);
    for (int i = 0; i < 2; i++) toy_job(&j[i], (uint64_t)i, 16, 20);
    assert_int_equal(toy_admit(&f, &j[0]), 0);
    toy_feed(&f, &j[0], TOY_IDS(1));
    th_step(f.node, &info);
    assert_int_equal(info.prefill, 1);
    assert_int_equal(toy_admit(&f, &j[1]), 0);
    toy_feed(&f, &j[1], TOY_IDS(1, 2, 3, 4, 5));
    th_step(f.node, &info);
    assert_int_equal(info.jobs, 2);
    assert_int_equal(info.rows, 4);
    assert_int_equal(info.prefill, 3);
    th_step(f.node, &info);
    assert_int_equal(info.prefill, 2);
    assert_int_equal(j[0].out[TOY_CODES].n, 3);
    assert_int_equal(j[1].out[TOY_CODES].n, 1);
    toy_done(&f, &j[0]);
    toy_done(&f, &j[1]);
    toy_close(&f);
}

/* Prompts that come together share steps, oldest first, as far as the budget of rows goes. */
static void test_prompts_share_a_step(void **state) {
    (void)state;
    toy_fix f;
    th_job j[3];
    og_step_info info;
    toy_open(&f, 3, 64, 8, 0);
    for (int i = 0; i < 3; i++) {
        toy_job(&j[i], (uint64_t)i, 16, 4);
        assert_int_equal(toy_admit(&f, &j[i]), 0);
        toy_feed(&f, &j[i], TOY_IDS(1, 2, 3));
    }
    th_step(f.node, &info);
    assert_int_equal(info.prefill, 8);
    for (int i = 0; i < 3; i++) assert_int_equal(j[i].out[TOY_CODES].n, i < 2);
    th_step(f.node, &info);
    assert_int_equal(info.prefill, 1);
    assert_int_equal(info.rows, 3);
    th_run(f.node, 10);
    for (int i = 0; i < 3; i++) {
        TOY_EXPECT(&j[i], 1, 3, 4, 5);
        toy_done(&f, &j[i]);
    }
    toy_close(&f);
}

static void test_limits_drop_and_mute_of_a_chunk(void **state) {
    (void)state;
    toy_fix f;
    th_job j[2];
    og_err err = OG_ERR_INIT;
    toy_open(&f, 2, 64, 16, 0);
    for (int i = 0; i < 2; i++) {
        toy_job(&j[i], (uint64_t)i, 8, 50);
        assert_int_equal(toy_admit(&f, &j[i]), 0);
        og_chunk c = {.flags = OG_LAST | (i ? OG_MUTE : 0), .source = -1,
                      .rows = TOY_IDS(1), .max_tokens = 6, .drop = 2};
        assert_int_equal(f.node->api->feed(f.node, &j[i].job, TOY_PROMPT, &c, &err), 0);
        th_feed_rows(f.node, &j[i], TOY_FEED, NULL, NULL, OG_LAST);
    }
    th_run(f.node, 50);
    TOY_EXPECT(&j[0], 1, 3, 4, 5);
    toy_expect(&j[1], 1, 0, NULL);
    toy_done(&f, &j[0]);
    toy_done(&f, &j[1]);
    toy_close(&f);
}

/* History counts each id that was chosen, for the penalties. */
static void test_penalty_sees_own_tokens(void **state) {
    (void)state;
    toy_fix f;
    th_job j[2];
    float back[4][TOY_H] = {{-1}, {-1}, {-1}, {-1}};
    toy_open(&f, 2, 64, 16, 0);
    for (int i = 0; i < 2; i++) {
        toy_job(&j[i], (uint64_t)i, 8, 5);
        j[i].job.sampling.presence_penalty = i ? 50.0f : 0.0f;
        assert_int_equal(toy_admit(&f, &j[i]), 0);
        th_feed_rows(f.node, &j[i], TOY_PROMPT, TOY_IDS(3), NULL, OG_LAST);
        th_feed_rows(f.node, &j[i], TOY_FEED, toy_open_rows(TOY_VECTOR, 0, 0, 0, NULL, 0),
                     NULL, OG_LAST);
        th_feed_items(f.node, &j[i], TOY_FEED, 0, OG_F32, 4, TOY_H, back, OG_LAST);
    }
    th_run(f.node, 50);
    TOY_EXPECT(&j[0], 1, 3, 3, 3, 3);
    TOY_EXPECT(&j[1], 1, 3, 2, 1, 0);
    toy_done(&f, &j[0]);
    toy_done(&f, &j[1]);
    toy_close(&f);
}

/* Each request stamps its outputs with its own voice, in batches of 1 to 8, over slots that
 * are used again and again; some requests leave early. */
static void test_b050_no_other_voice(void **state) {
    (void)state;
    toy_fix f;
    static th_job j[8];
    uint32_t rnd = 12345;
    toy_open(&f, 8, 64, 8, 0);
    for (int round = 0; round < 200; round++) {
        int n = round % 8 + 1;
        for (int i = 0; i < n; i++) {
            rnd = rnd * 1664525u + 1013904223u;
            toy_job(&j[i], (uint64_t)i, 4, (int)(rnd >> 16) % 12 + 2);
            assert_int_equal(toy_admit(&f, &j[i]), 0);
            float voice[TOY_H] = {1, (float)(round * 8 + i)};
            th_feed_rows(f.node, &j[i], TOY_PROMPT,
                         toy_open_rows(TOY_VECTOR, 0, 0, 1, (int[]){9}, 1), NULL, OG_LAST);
            th_feed_rows(f.node, &j[i], TOY_FEED, NULL, NULL, OG_LAST);
            th_feed_items(f.node, &j[i], TOY_PROMPT, 0, OG_F32, 1, TOY_H, voice, OG_LAST);
            for (uint32_t s = rnd >> 28 & 3; s > 0; s--) th_step(f.node, NULL);
        }
        int early = (int)(rnd >> 8) % n;
        f.node->api->retire(f.node, &j[early].job);
        th_run(f.node, 100);
        for (int i = 0; i < n; i++) {
            const th_out *o = &j[i].out[TOY_CODES];
            assert_true(i == early || o->last);
            for (int64_t k = 0; k < o->n; k++)
                assert_int_equal(((int32_t *)(void *)o->data)[k * TOY_G + 1], round * 8 + i);
            toy_done(&f, &j[i]);
        }
    }
    toy_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_to_the_stop),
        cmocka_unit_test(test_limit_counts_the_last_token),
        cmocka_unit_test(test_feed_rows_then_fill),
        cmocka_unit_test(test_feed_longer_than_its_window),
        cmocka_unit_test(test_feed_that_comes_item_by_item),
        cmocka_unit_test(test_open_prompt),
        cmocka_unit_test(test_prompt_closed_late),
        cmocka_unit_test(test_rows_of_sources),
        cmocka_unit_test(test_pieces_have_their_own_sources),
        cmocka_unit_test(test_passed_over),
        cmocka_unit_test(test_slow_client_stops_only_itself),
        cmocka_unit_test(test_prefill_beside_decode),
        cmocka_unit_test(test_prompts_share_a_step),
        cmocka_unit_test(test_limits_drop_and_mute_of_a_chunk),
        cmocka_unit_test(test_penalty_sees_own_tokens),
        cmocka_unit_test(test_b050_no_other_voice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
