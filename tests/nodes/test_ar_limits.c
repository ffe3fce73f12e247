/* The kind ar_decoder at its limits: admission, faults of one job, memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/nodes/ar_toy.h"

/* bytes of one page of the toy: 2 x 16 positions x 1 head x 2 floats */
#define PAGE 256

/* Ids that the head does not have are dropped; the stop id is banned for two tokens and then
 * ends the decoding without a frame. */
static void test_b053_stop_ids_past_the_head(void **state) {
    (void)state;
    toy_fix f;
    th_job j;
    toy_open(&f, 1, 64, 16, 0);
    toy_job(&j, 1, 8, 100);
    og_sampling *s = &j.job.sampling;
    s->min_tokens = 2;
    s->n_stop = 4;
    s->stop[0] = 151645;
    s->stop[1] = 9;
    s->stop[2] = -1;
    s->stop[3] = TOY_V;
    assert_int_equal(toy_admit(&f, &j), 0);
    toy_feed(&f, &j, TOY_IDS(9));
    th_run(f.node, 20);
    TOY_EXPECT(&j, 1, 8, 8);
    assert_int_equal(j.stop_id, 9);
    toy_done(&f, &j);
    toy_close(&f);
}

static int admit_code(toy_fix *f, th_job *j, og_err *err) {
    *err = (og_err)OG_ERR_INIT;
    return f->node->api->admit(f->node, &j->job, err);
}

/* Window 16, prompts of 15, 16 and 17 rows. */
static void test_b054_prompt_and_window(void **state) {
    (void)state;
    static const int tokens[] = {0, 1, 100};
    toy_fix f;
    th_job j;
    og_err err;
    int ids[17] = {0};
    ids[14] = 5;
    toy_open(&f, 1, 16, 16, 0);
    for (int rows = 15; rows <= 17; rows++)
        for (int t = 0; t < 3; t++) {
            toy_job(&j, 1, rows, tokens[t]);
            int rc = admit_code(&f, &j, &err);
            if (rows > 15 || tokens[t] == 0) {
                char need[16], have[16];
                snprintf(need, sizeof need, "%d", tokens[t] ? rows : 0);
                snprintf(have, sizeof have, "%d", tokens[t] ? 16 : 1);
                assert_int_equal(rc, OG_ELIMIT);
                assert_non_null(strstr(err.msg, need));
                assert_non_null(strstr(err.msg, have));
                assert_string_equal(err.node, "toy");
            } else {
                assert_int_equal(rc, 0);
                toy_feed(&f, &j, toy_ids(rows, ids));
                th_run(f.node, 20);
                toy_expect(&j, 1, 0, NULL); /* one token, which ended it */
                assert_int_equal(j.stop_id, -1);
            }
            toy_done(&f, &j);
        }
    toy_close(&f);
}

/* A prompt that turns out longer than what was reserved fails its own job. */
static void test_prompt_past_its_reservation(void **state) {
    (void)state;
    toy_fix f;
    th_job j[2];
    toy_open(&f, 2, 64, 16, 0);
    for (int i = 0; i < 2; i++) {
        toy_job(&j[i], (uint64_t)i, 3, 3);
        assert_int_equal(toy_admit(&f, &j[i]), 0);
    }
    toy_feed(&f, &j[0], TOY_IDS(1, 2, 3, 4));
    toy_feed(&f, &j[1], TOY_IDS(1, 2, 3));
    th_run(f.node, 20);
    assert_int_equal(j[0].err.code, OG_ELIMIT);
    assert_string_equal(j[0].err.node, "toy");
    TOY_EXPECT(&j[1], 1, 3, 4);
    toy_done(&f, &j[0]);
    toy_done(&f, &j[1]);
    toy_close(&f);
}

static void test_not_finite_fails_one_job(void **state) {
    (void)state;
    toy_fix f;
    th_job j[3];
    toy_open(&f, 3, 64, 16, 0);
    for (int i = 0; i < 3; i++) {
        toy_job(&j[i], (uint64_t)i, 4, 5);
        assert_int_equal(toy_admit(&f, &j[i]), 0);
        th_feed_rows(f.node, &j[i], TOY_PROMPT, TOY_IDS(2), NULL, OG_LAST);
        th_feed_rows(f.node, &j[i], TOY_FEED, i == 1 ? TOY_IDS(0, TOY_BAD) : NULL, NULL,
                     OG_LAST);
    }
    th_run(f.node, 20);
    assert_int_equal(j[1].err.code, OG_EINTERNAL);
    assert_non_null(strstr(j[1].err.msg, "not finite"));
    assert_non_null(strstr(j[1].err.msg, "token 2"));
    assert_int_equal(j[1].out[TOY_CODES].n, 2);
    TOY_EXPECT(&j[0], 1, 2, 3, 4, 5);
    TOY_EXPECT(&j[2], 1, 2, 3, 4, 5);
    for (int i = 0; i < 3; i++) toy_done(&f, &j[i]);
    toy_close(&f);
}

static void test_slots_run_out(void **state) {
    (void)state;
    toy_fix f;
    th_job j[3];
    og_err err;
    toy_open(&f, 2, 64, 16, 0);
    for (int i = 0; i < 3; i++) toy_job(&j[i], (uint64_t)i, 4, 5);
    assert_int_equal(admit_code(&f, &j[0], &err), 0);
    assert_int_equal(admit_code(&f, &j[1], &err), 0);
    assert_int_equal(admit_code(&f, &j[2], &err), OG_EBUSY);
    assert_null(j[2].job.slot);
    f.node->api->retire(f.node, &j[0].job);
    assert_int_equal(admit_code(&f, &j[2], &err), 0);
    toy_feed(&f, &j[2], TOY_IDS(4));
    toy_feed(&f, &j[0], TOY_IDS(1)); /* of a retired job: dropped */
    th_run(f.node, 20);
    TOY_EXPECT(&j[2], 1, 4, 5, 6, 7);
    assert_int_equal(j[0].out[TOY_CODES].n, 0);
    for (int i = 0; i < 3; i++) toy_done(&f, &j[i]);
    toy_close(&f);
}

static void test_pages_are_reserved_for_the_worst_case(void **state) {
    (void)state;
    toy_fix f;
    th_job j[3];
    og_err err;
    og_node_stats st;
    toy_open(&f, 4, 256, 16, 8 * PAGE);
    toy_job(&j[0], 0, 32, 65); /* 96 positions: 6 pages */
    toy_job(&j[1], 1, 32, 17); /* 48 positions: 3 pages */
    toy_job(&j[2], 2, 100, 100);
    assert_int_equal(admit_code(&f, &j[0], &err), 0);
    f.node->api->stats(f.node, &st);
    assert_int_equal(st.kv_pages, 8);
    assert_int_equal(st.kv_pages_used, 6);
    assert_int_equal(admit_code(&f, &j[1], &err), OG_EBUSY);

    err = (og_err)OG_ERR_INIT;
    assert_int_equal(f.node->api->fits(f.node, &j[2].job, &err), OG_ELIMIT);
    assert_non_null(strstr(err.msg, "13"));
    assert_non_null(strstr(err.msg, "8"));
    assert_int_equal(admit_code(&f, &j[2], &err), OG_ELIMIT);

    toy_feed(&f, &j[0], TOY_IDS(1));
    th_run(f.node, 200);
    f.node->api->stats(f.node, &st); /* an ended job has given its pages back */
    assert_int_equal(st.kv_pages_used, 0);
    assert_int_equal(admit_code(&f, &j[1], &err), 0);
    for (int i = 0; i < 3; i++) toy_done(&f, &j[i]);
    toy_close(&f);
}

/* From admitted, half-prefilled, decoding, ended and failed: all counters come back, chunks
 * and recipes are given up. */
static void test_retire_from_any_state(void **state) {
    (void)state;
    toy_fix f;
    th_job j;
    toy_open(&f, 2, 64, 2, 0);
    long before = og_alloc_live();
    for (int when = 0; when < 6; when++) {
        toy_job(&j, 1, 8, 5);
        assert_int_equal(toy_admit(&f, &j), 0);
        if (when >= 1) {
            th_feed_rows(f.node, &j, TOY_PROMPT, TOY_IDS(1, 2, 3), NULL, OG_LAST);
            th_feed_rows(f.node, &j, TOY_FEED, when == 5 ? TOY_IDS(TOY_BAD) : TOY_IDS(1),
                         TOY_IDS(0), OG_LAST);
        }
        for (int s = 1; s < (when == 4 ? 20 : when + 1); s++) th_step(f.node, NULL);
        toy_done(&f, &j);
        og_node_stats st;
        f.node->api->stats(f.node, &st);
        assert_int_equal(st.slots_used, 0);
        assert_int_equal(st.kv_pages_used, 0);
        assert_int_equal(og_alloc_live(), before);
        assert_int_equal(th_step(f.node, NULL), OG_STEP_IDLE);
    }
    toy_close(&f);
}

static og_recipe *one_term(int table, int source, int32_t index) {
    int32_t off[] = {0, 1};
    og_term t = {(uint16_t)table, (uint16_t)source, index};
    return og_recipe_create(
        &(og_recipe){.n_rows = 1, .off = off, .terms = &t, .n_sources = 1}, 0);
}

/* A chunk that is refused is given up too, and the job is still whole. */
static void test_bad_chunks_are_refused(void **state) {
    (void)state;
    toy_fix f;
    th_job j;
    og_err err = OG_ERR_INIT;
    int32_t items[8] = {0};
    int live = 0;
    toy_open(&f, 1, 64, 16, 0);
    toy_job(&j, 1, 8, 3);
    assert_int_equal(toy_admit(&f, &j), 0);
    long before = og_alloc_live();
    struct {
        int table, source, index, want;
        const char *says;
    } bad[] = {{TOY_ID, OG_NO_SOURCE, 128, OG_ELIMIT, "row 0: id 128 is not in table id"},
               {TOY_ID, OG_NO_SOURCE, -1, OG_ELIMIT, "id -1"},
               {9, OG_NO_SOURCE, 0, OG_EINVAL, "table 9 of 3"},
               {TOY_PAIR, OG_NO_SOURCE, 0, OG_EINVAL, "table pair, which takes items"},
               {TOY_PAIR, 16, 0, OG_ELIMIT, "source 16"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (og_err)OG_ERR_INIT;
        og_recipe *r = one_term(bad[i].table, bad[i].source, bad[i].index);
        assert_int_equal(th_feed_rows_err(f.node, &j, TOY_PROMPT, r, NULL, OG_LAST, &err),
                         bad[i].want);
        assert_non_null(strstr(err.msg, bad[i].says));
        assert_string_equal(err.node, "toy");
    }
    assert_int_equal(th_feed_rows_err(f.node, &j, TOY_FEED, NULL, TOY_IDS(1, 2), OG_LAST,
                                      &err), OG_EINVAL);
    assert_int_equal(th_feed_rows_err(f.node, &j, TOY_CODES, TOY_IDS(1), NULL, OG_LAST,
                                      &err), OG_EINVAL);
    assert_int_equal(th_feed_items_live(f.node, &j, TOY_PROMPT, 99, OG_I32, 2, 2, items, 0,
                                        &live, &err), OG_ELIMIT);
    assert_int_equal(th_feed_items_live(f.node, &j, TOY_PROMPT, 0, OG_I64, 2, 2, items, 0,
                                        &live, &err), OG_ETYPE);
    assert_int_equal(live, 0);
    assert_int_equal(og_alloc_live(), before);
    toy_feed(&f, &j, TOY_IDS(4));
    th_run(f.node, 5);
    TOY_EXPECT(&j, 1, 4, 5);
    toy_done(&f, &j);
    toy_close(&f);
}

/* Items are checked where they are used: a code past its codebook, items of another type. */
static void test_bad_items_fail_one_job(void **state) {
    (void)state;
    toy_fix f;
    th_job j[3];
    int32_t codes[2] = {3, TOY_V};
    toy_open(&f, 3, 64, 16, 0);
    for (int i = 0; i < 3; i++) {
        toy_job(&j[i], (uint64_t)i, 8, 3);
        assert_int_equal(toy_admit(&f, &j[i]), 0);
        toy_feed(&f, &j[i], i < 2 ? one_term(TOY_PAIR, 0, 0) : TOY_IDS(1));
    }
    th_feed_items(f.node, &j[0], TOY_PROMPT, 0, OG_I32, 1, 2, codes, OG_LAST);
    th_feed_items(f.node, &j[1], TOY_PROMPT, 0, OG_I32, 2, 1, codes, OG_LAST);
    th_run(f.node, 10);
    assert_int_equal(j[0].err.code, OG_ELIMIT);
    assert_non_null(strstr(j[0].err.msg, "holds 16"));
    assert_int_equal(j[1].err.code, OG_ETYPE);
    TOY_EXPECT(&j[2], 1, 1, 2);
    for (int i = 0; i < 3; i++) toy_done(&f, &j[i]);
    toy_close(&f);
}

static void test_create_over_all_allocations(void **state) {
    (void)state;
    toy_fix f;
    toy_prepare(&f, 3, 64, 16, 0);
    long live = og_alloc_live();
    int n = 0;
    for (;; n++) {
        og_err err = OG_ERR_INIT;
        og_node *node = NULL;
        og_alloc_fail_at(n + 1);
        int rc = og_ar_api.create(&f.cfg, &node, &err);
        int hit = og_alloc_failed();
        og_alloc_fail_at(0);
        if (!hit) {
            assert_int_equal(rc, 0);
            og_ar_api.destroy(node);
            break;
        }
        assert_int_equal(rc, OG_ENOMEM);
        assert_null(node);
        assert_int_equal(og_alloc_live(), live);
    }
    assert_true(n > 5);
    assert_int_equal(og_alloc_live(), live);
    og_model_close(f.model);
    th_close(&f.env);
}

static void test_create_refuses(void **state) {
    (void)state;
    toy_fix f;
    toy_prepare(&f, 3, 64, 16, 0);
    struct {
        int seqs, len;
        size_t kv;
        const char *says;
    } bad[] = {{0, 64, 0, "max_num_seqs is 0"},
               {4000, 64, 0, "max_num_seqs is 4000 (1 to 1024)"},
               {3, 5000, 0, "max_model_len is 5000, this network takes 2 to 4096"},
               {3, 64, 100, "100 bytes of KV hold no page"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        og_err err = OG_ERR_INIT;
        og_node *node = NULL;
        og_node_cfg cfg = f.cfg;
        cfg.max_seqs = bad[i].seqs;
        cfg.max_model_len = bad[i].len;
        cfg.kv_bytes = bad[i].kv;
        assert_int_equal(og_ar_api.create(&cfg, &node, &err), OG_ELIMIT);
        assert_non_null(strstr(err.msg, bad[i].says));
    }
    og_model_close(f.model);
    th_close(&f.env);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b053_stop_ids_past_the_head),
        cmocka_unit_test(test_b054_prompt_and_window),
        cmocka_unit_test(test_prompt_past_its_reservation),
        cmocka_unit_test(test_not_finite_fails_one_job),
        cmocka_unit_test(test_slots_run_out),
        cmocka_unit_test(test_pages_are_reserved_for_the_worst_case),
        cmocka_unit_test(test_retire_from_any_state),
        cmocka_unit_test(test_bad_chunks_are_refused),
        cmocka_unit_test(test_bad_items_fail_one_job),
        cmocka_unit_test(test_create_over_all_allocations),
        cmocka_unit_test(test_create_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
