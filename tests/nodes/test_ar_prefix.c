/* The prefix cache of an ar_decoder: what is found, what is kept, who holds it, and that the
 * tokens are those of a node without it.
 *
 * The network of most tests is the toy with a memory: the K of a position is its input row,
 * and a state is the sum over q <= p of (q + 1) K[q]. So a token depends on every row before
 * it, and a page with other rows than its key says is seen at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "nodes/ar/ar_node.h"
#include "tests/nodes/ar_toy.h"

#define PAGE_BYTES 256 /* of the toy: 2 x 16 positions x 1 head x 2 floats */
#define MOST 250       /* rows of a prompt here */

static float *key_of(og_kv *kv, int slot, int pos) {
    int32_t page = kv->table[slot * kv->max_pages + pos / kv->page];
    return (float *)kv->k.data + ((size_t)page * (size_t)kv->page + (size_t)(pos % kv->page)) * 2;
}

static int sum_stack(const og_ar_model *m, og_exec *ex, og_tensor *x, og_kv *kv,
                     const og_rows *rows) {
    (void)m;
    if (og_exec_get_mode(ex) == OG_MEASURE) return 0;
    float *row = x->data;
    for (int r = 0; r < rows->n; r++, row += TOY_H) {
        int slot = rows->slot[r], pos = rows->pos[3 * r];
        float sum = 0;
        memcpy(key_of(kv, slot, pos), row, 2 * sizeof *row);
        for (int q = 0; q <= pos; q++) sum += (float)(q + 1) * key_of(kv, slot, q)[0];
        row[0] = sum;
    }
    return 0;
}

static const og_ar_impl sum_impl = {toy_dims,  toy_load,   toy_unload, toy_table,
                                    sum_stack, toy_logits, toy_head,   toy_feedback};

static void sum_open(toy_fix *f, og_arch *arch, int seqs, int rows, int pages, int cache) {
    og_err err = OG_ERR_INIT;
    toy_prepare(f, seqs, 256, rows, (size_t)pages * PAGE_BYTES);
    *arch = toy_arch;
    arch->impl = &sum_impl;
    f->cfg.arch = arch;
    f->cfg.prefix_cache = cache;
    if (og_ar_api.create(&f->cfg, &f->node, &err) < 0) fail_msg("%s", err.msg);
    th_plan(&f->env, f->node);
}

static og_node_stats stats_of(const toy_fix *f) {
    og_node_stats st;
    f->node->api->stats(f->node, &st);
    return st;
}

/* Admit and feed a prompt of ids; three tokens will come. */
static void begin(toy_fix *f, th_job *j, int n, const int *ids) {
    toy_job(j, 1, n, 4);
    if (toy_admit(f, j) < 0) fail_msg("not admitted");
    toy_feed(f, j, toy_ids(n, ids));
}

static void check_tokens(const th_job *j, int n, const int *ids) {
    long sum = 0;
    int want[3];
    for (int i = 0; i < n; i++) sum += (long)(i + 1) * ids[i];
    for (int i = 0; i < 3; i++) {
        want[i] = (int)(sum % TOY_V);
        sum += (long)(n + i + 1) * (want[i] + 1);
    }
    toy_expect(j, 1, 3, want);
}

/* One prompt from beginning to end; returns the rows of it that were found. */
static int64_t found(toy_fix *f, int n, const int *ids) {
    th_job j;
    int64_t before = stats_of(f).prefix_rows_hit;
    begin(f, &j, n, ids);
    th_run(f->node, 1000);
    check_tokens(&j, n, ids);
    toy_done(f, &j);
    return stats_of(f).prefix_rows_hit - before;
}

/* ids of a text, told by a letter; rows from `other` on are of another one. */
static void text(int *ids, int letter, int other) {
    for (int i = 0; i < MOST; i++) ids[i] = (i * 7 + (i < other ? letter : letter + 50)) % 100;
}

static void test_hit(void **state) {
    (void)state;
    toy_fix f;
    og_arch arch;
    th_job j;
    og_step_info info;
    int ids[MOST];
    text(ids, 1, MOST);
    sum_open(&f, &arch, 2, 64, 0, 1);
    assert_int_equal(found(&f, 40, ids), 0);
    assert_int_equal(stats_of(&f).kv_pages_cached, 2); /* the tail is nobody else's */
    begin(&f, &j, 40, ids);
    th_step(f.node, &info);
    assert_int_equal(info.rows, 8);
    th_run(f.node, 10);
    check_tokens(&j, 40, ids);
    toy_done(&f, &j);
    assert_int_equal(stats_of(&f).prefix_rows_hit, 32);
    assert_int_equal(stats_of(&f).prefix_rows_total, 80);
    toy_close(&f);
}

static void test_partial_hit_and_miss(void **state) {
    (void)state;
    toy_fix f;
    og_arch arch;
    int a[MOST], b[MOST];
    text(a, 1, MOST);
    sum_open(&f, &arch, 2, 64, 0, 1);
    assert_int_equal(found(&f, 100, a), 0);
    text(b, 1, 33);
    assert_int_equal(found(&f, 100, b), 32);
    assert_int_equal(found(&f, 100, b), 96); /* two pages of the first, four of its own */
    text(b, 1, 31);
    assert_int_equal(found(&f, 100, b), 16);
    text(b, 1, 0);
    assert_int_equal(found(&f, 100, b), 0);
    assert_int_equal(found(&f, 100, a), 96);
    assert_int_equal(found(&f, 250, a), 96); /* longer than what is there */
    assert_int_equal(found(&f, 250, a), 240);
    assert_int_equal(found(&f, 20, a), 16);
    assert_int_equal(found(&f, 10, a), 0);
    toy_close(&f);
}

/* The row that the first token is drawn from has to be run. */
static void test_last_row_is_computed(void **state) {
    (void)state;
    toy_fix f;
    og_arch arch;
    int ids[MOST];
    text(ids, 3, MOST);
    sum_open(&f, &arch, 1, 64, 0, 1);
    found(&f, 48, ids);
    assert_int_equal(stats_of(&f).kv_pages_cached, 3);
    assert_int_equal(found(&f, 48, ids), 32);
    assert_int_equal(found(&f, 49, ids), 48);
    toy_close(&f);
}

/* The same rows at another place are other rows. */
static void test_place_counts(void **state) {
    (void)state;
    toy_fix f;
    og_arch arch;
    int ids[MOST];
    for (int i = 0; i < MOST; i++) ids[i] = i % 16;
    sum_open(&f, &arch, 1, 64, 0, 1);
    assert_int_equal(found(&f, 64, ids), 0);
    assert_int_equal(found(&f, 64, ids + 16), 48);
    assert_int_equal(found(&f, 64, ids + 8), 0);
    toy_close(&f);
}

/* Prefixes that were not used for longest go first, and of one prefix its end. */
static void test_eviction(void **state) {
    (void)state;
    toy_fix f;
    og_arch arch;
    int ids[5][MOST];
    for (int i = 0; i < 5; i++) text(ids[i], i, MOST);
    sum_open(&f, &arch, 2, 64, 9, 1);
    assert_int_equal(found(&f, 40, ids[0]), 0);
    assert_int_equal(found(&f, 40, ids[1]), 0);
    assert_int_equal(found(&f, 40, ids[2]), 0);
    assert_int_equal(stats_of(&f).kv_pages_cached, 6);
    assert_int_equal(found(&f, 40, ids[0]), 32);
    assert_int_equal(found(&f, 80, ids[3]), 0); /* six pages, three are free */
    assert_int_equal(stats_of(&f).kv_pages_cached, 8);
    assert_int_equal(found(&f, 40, ids[0]), 32);
    assert_int_equal(found(&f, 40, ids[2]), 16); /* its second page went, 1 went whole */
    assert_int_equal(stats_of(&f).kv_pages_used, 0);
    toy_close(&f);
}

/* Cached pages are as good as free ones for admission: a pool full of them takes the largest
 * job that fits, and gives none away that a job was promised. */
static void test_cached_pages_are_free(void **state) {
    (void)state;
    toy_fix f;
    og_arch arch;
    th_job j[2];
    int ids[6][MOST];
    for (int i = 0; i < 6; i++) text(ids[i], i, MOST);
    sum_open(&f, &arch, 2, 64, 8, 1);
    for (int i = 0; i < 4; i++) found(&f, 33, ids[i]);
    assert_int_equal(stats_of(&f).kv_pages_cached, 7);
    begin(&f, &j[0], 60, ids[4]); /* four pages */
    assert_int_equal(stats_of(&f).kv_pages_used, 4);
    toy_job(&j[1], 1, 62, 4);
    assert_int_equal(toy_admit(&f, &j[1]), OG_EBUSY);
    th_job_free(&j[1]);
    begin(&f, &j[1], 60, ids[5]);
    assert_int_equal(stats_of(&f).kv_pages_used, 8);
    th_run(f.node, 20);
    check_tokens(&j[0], 60, ids[4]);
    check_tokens(&j[1], 60, ids[5]);
    toy_done(&f, &j[0]);
    toy_done(&f, &j[1]);
    toy_close(&f);
}

/* Two jobs over the same pages; the one that leaves takes nothing from the other. */
static void test_shared_while_both_run(void **state) {
    (void)state;
    toy_fix f;
    og_arch arch;
    th_job j[3];
    int ids[MOST];
    text(ids, 5, MOST);
    sum_open(&f, &arch, 3, 64, 0, 1);
    begin(&f, &j[0], 40, ids);
    th_step(f.node, NULL);
    assert_int_equal(stats_of(&f).kv_pages_used, 3);
    assert_int_equal(stats_of(&f).kv_pages_cached, 0); /* held */
    begin(&f, &j[1], 44, ids);
    begin(&f, &j[2], 40, ids);
    assert_int_equal(stats_of(&f).kv_pages_used, 9); /* promised, as if nothing were shared */
    th_step(f.node, NULL);
    assert_int_equal(stats_of(&f).prefix_rows_hit, 64);
    assert_int_equal(stats_of(&f).kv_pages_used, 5); /* two of all, a tail each */
    const ar_pool *p = &og__ar_const(f.node)->pool;
    assert_int_equal(p->refs[p->table[0]], 3);
    f.node->api->retire(f.node, &j[0].job);
    assert_int_equal(stats_of(&f).kv_pages_used, 4);
    th_run(f.node, 10);
    check_tokens(&j[1], 44, ids);
    check_tokens(&j[2], 40, ids);
    for (int i = 0; i < 3; i++) toy_done(&f, &j[i]);
    assert_int_equal(stats_of(&f).kv_pages_used, 0);
    assert_int_equal(stats_of(&f).kv_pages_cached, 2);
    toy_close(&f);
}

/* Two that start in one step compute the same rows twice; one copy is kept. */
static void test_same_prompt_in_one_step(void **state) {
    (void)state;
    toy_fix f;
    og_arch arch;
    th_job j[2];
    int ids[MOST];
    text(ids, 5, MOST);
    sum_open(&f, &arch, 2, 128, 0, 1);
    for (int i = 0; i < 2; i++) begin(&f, &j[i], 40, ids);
    th_run(f.node, 10);
    for (int i = 0; i < 2; i++) {
        check_tokens(&j[i], 40, ids);
        toy_done(&f, &j[i]);
    }
    assert_int_equal(stats_of(&f).prefix_rows_hit, 0);
    assert_int_equal(stats_of(&f).kv_pages_cached, 2);
    assert_int_equal(found(&f, 40, ids), 32);
    toy_close(&f);
}

/* What had been run when a job was aborted stays; what had not, does not. */
static void test_abort_in_the_middle(void **state) {
    (void)state;
    toy_fix f;
    og_arch arch;
    th_job j;
    int ids[MOST];
    text(ids, 9, MOST);
    sum_open(&f, &arch, 2, 20, 0, 1);
    begin(&f, &j, 100, ids);
    th_step(f.node, NULL);
    th_step(f.node, NULL);
    toy_done(&f, &j);
    assert_int_equal(stats_of(&f).kv_pages_used, 0);
    assert_int_equal(stats_of(&f).kv_pages_cached, 2); /* 40 rows */
    assert_int_equal(found(&f, 100, ids), 32);
    toy_close(&f);
}

/* A job that fails while its rows are collected: its pages were never written. */
static void test_failed_rows_are_not_kept(void **state) {
    (void)state;
    toy_fix f;
    og_arch arch;
    th_job j;
    int ids[MOST];
    text(ids, 9, MOST);
    sum_open(&f, &arch, 2, 64, 0, 1);
    toy_job(&j, 1, 20, 4); /* the prompt will have more rows */
    assert_int_equal(toy_admit(&f, &j), 0);
    toy_feed(&f, &j, toy_ids(40, ids));
    th_run(f.node, 10);
    assert_int_equal(j.err.code, OG_ELIMIT);
    toy_done(&f, &j);
    assert_int_equal(stats_of(&f).kv_pages_cached, 0);
    assert_int_equal(found(&f, 40, ids), 0);
    toy_job(&j, 1, 20, 4); /* pages that are there do not help it past its limit */
    assert_int_equal(toy_admit(&f, &j), 0);
    toy_feed(&f, &j, toy_ids(40, ids));
    th_run(f.node, 10);
    assert_int_equal(j.err.code, OG_ELIMIT);
    toy_done(&f, &j);
    toy_close(&f);
}

static void test_off(void **state) {
    (void)state;
    toy_fix f;
    og_arch arch;
    int ids[MOST];
    text(ids, 1, MOST);
    sum_open(&f, &arch, 2, 64, 0, 0);
    for (int i = 0; i < 3; i++) assert_int_equal(found(&f, 100, ids), 0);
    assert_int_equal(stats_of(&f).kv_pages_cached, 0);
    assert_int_equal(stats_of(&f).prefix_rows_total, 300);
    toy_close(&f);
}

/* Rows of sources are known by what the items hold, not by their numbers. */
static int64_t found_cloned(toy_fix *f, int pair, float voice, int64_t *first) {
    enum { N = 24 };
    th_job j;
    int32_t off[N + 1], codes[N * TOY_G];
    float vec[TOY_H] = {voice, 11, 0, 0};
    og_term terms[N];
    int64_t before = stats_of(f).prefix_rows_hit;
    for (int i = 0; i <= N; i++) off[i] = i;
    terms[0] = (og_term){TOY_VECTOR, 1, 0};
    for (int i = 1; i < N; i++) terms[i] = (og_term){TOY_PAIR, 0, i};
    for (int i = 0; i < N * TOY_G; i++) codes[i] = (i * pair) % TOY_V;
    toy_job(&j, 1, N, 2);
    assert_int_equal(toy_admit(f, &j), 0);
    toy_feed(f, &j, og_recipe_create(&(og_recipe){.n_rows = N, .off = off, .terms = terms,
                                                  .n_sources = 2}, 0));
    th_feed_items(f->node, &j, TOY_PROMPT, 1, OG_F32, 1, TOY_H, vec, OG_LAST);
    th_feed_items(f->node, &j, TOY_PROMPT, 0, OG_I32, N, TOY_G, codes, OG_LAST);
    th_run(f->node, 10);
    assert_int_equal(j.err.code, 0);
    *first = ((int32_t *)(void *)j.out[TOY_CODES].data)[0];
    toy_done(f, &j);
    return stats_of(f).prefix_rows_hit - before;
}

static void test_items_count_by_content(void **state) {
    (void)state;
    toy_fix f;
    og_arch arch;
    int64_t a, b;
    sum_open(&f, &arch, 2, 64, 0, 1);
    assert_int_equal(found_cloned(&f, 3, 1, &a), 0);
    assert_int_equal(found_cloned(&f, 3, 1, &b), 16);
    assert_int_equal(a, b);
    assert_int_equal(found_cloned(&f, 3, 2, &b), 0);
    assert_int_equal((a + 1) % TOY_V, b);
    assert_int_equal(found_cloned(&f, 5, 1, &b), 0);
    assert_int_equal(found_cloned(&f, 5, 1, &b), 16);
    toy_close(&f);
}

/* Items of a wrong type fail their job also where their bytes would match. */
static void test_wrong_items_never_match(void **state) {
    (void)state;
    toy_fix f;
    og_arch arch;
    th_job j;
    int32_t off[18], pairs[34];
    og_term terms[17];
    for (int i = 0; i < 18; i++) off[i] = i;
    for (int i = 0; i < 17; i++) terms[i] = (og_term){TOY_PAIR, 0, i};
    memset(pairs, 0, sizeof pairs);
    sum_open(&f, &arch, 2, 64, 0, 1);
    for (int i = 0; i < 3; i++) {
        toy_job(&j, 1, 17, 2);
        assert_int_equal(toy_admit(&f, &j), 0);
        toy_feed(&f, &j, og_recipe_create(&(og_recipe){.n_rows = 17, .off = off,
                                                       .terms = terms, .n_sources = 1}, 0));
        th_feed_items(f.node, &j, TOY_PROMPT, 0, i == 2 ? OG_F32 : OG_I32, 17, TOY_G, pairs,
                      OG_LAST);
        th_run(f.node, 10);
        assert_int_equal(j.err.code, i == 2 ? OG_ETYPE : 0);
        toy_done(&f, &j);
    }
    assert_int_equal(stats_of(&f).prefix_rows_hit, 16);
    toy_close(&f);
}

/* Rows that come in pieces: a page is kept when it is full, and found when all of it is
 * known as the prompt is first looked at. */
static void test_prompt_in_pieces(void **state) {
    (void)state;
    toy_fix f;
    og_arch arch;
    th_job j;
    int ids[MOST];
    text(ids, 2, MOST);
    sum_open(&f, &arch, 2, 64, 0, 1);
    toy_job(&j, 1, 40, 4);
    assert_int_equal(toy_admit(&f, &j), 0);
    th_feed_rows(f.node, &j, TOY_FEED, NULL, NULL, OG_LAST);
    for (int at = 0; at < 40; at += 10) {
        th_feed_rows(f.node, &j, TOY_PROMPT, toy_ids(10, ids + at), NULL,
                     at == 30 ? OG_LAST : 0);
        th_step(f.node, NULL);
    }
    th_run(f.node, 10);
    check_tokens(&j, 40, ids);
    toy_done(&f, &j);
    assert_int_equal(stats_of(&f).kv_pages_cached, 2);
    assert_int_equal(found(&f, 40, ids), 32);
    toy_close(&f);
}

static void root_of(const char *folder, const char *stage_folder, unsigned char *out) {
    char path[4096];
    og_err err = OG_ERR_INIT;
    toy_fix f;
    toy_prepare(&f, 1, 64, 16, 0);
    og_model_close(f.model);
    assert_int_equal(og_model_open(source_path(path, sizeof path, folder), &f.model, &err), 0);
    f.cfg.model = f.model;
    f.cfg.folder = stage_folder;
    f.cfg.prefix_cache = 1;
    if (og_ar_api.create(&f.cfg, &f.node, &err) < 0) fail_msg("%s", err.msg);
    memcpy(out, og__ar_const(f.node)->prefix_root, AR_KEY);
    toy_close(&f);
}

/* Keys of one checkpoint say nothing to another. */
static void test_checkpoint_is_in_the_key(void **state) {
    (void)state;
    unsigned char a[AR_KEY], b[AR_KEY], c[AR_KEY], none[AR_KEY] = {0};
    root_of("tests/data/qwen3_tts/tiny-a/custom_voice", "", a);
    root_of("tests/data/qwen3_tts/tiny-a/custom_voice", "", b);
    root_of("tests/data/qwen3_tts/tiny-a/voice_design", "", c);
    assert_memory_equal(a, b, AR_KEY);
    assert_memory_not_equal(a, c, AR_KEY);
    assert_memory_not_equal(a, none, AR_KEY);
    root_of("tests/data/qwen3_tts/tiny-a/custom_voice", "speech_tokenizer", c);
    assert_memory_not_equal(a, c, AR_KEY);
}

/* Every page is in exactly one place. */
static void check_pool(const ar_pool *p, int n_slots) {
    int32_t held = 0, cached = 0, listed = 0, promised = 0;
    int32_t *refs = calloc((size_t)p->n_pages, sizeof *refs);
    for (int s = 0; s < n_slots; s++) {
        promised += p->promise[s];
        for (int i = 0; i < p->held[s]; i++) refs[p->table[s * p->max_pages + i]]++;
    }
    for (int32_t i = 1; i < p->n_pages; i++) {
        assert_int_equal(refs[i], p->refs[i]);
        held += refs[i] > 0;
        listed += p->index.listed[i];
    }
    for (int32_t i = p->index.newest, last = 0; i; last = i, i = p->index.older[i]) {
        assert_int_equal(p->index.newer[i], last);
        assert_true(p->index.listed[i] && !refs[i]);
        cached++;
    }
    for (int32_t i = 0; i < p->n_free; i++)
        assert_true(!refs[p->free[i]] && !p->index.listed[p->free[i]]);
    int32_t chained = 0;
    for (int32_t i = 0; i < p->index.n_buckets; i++)
        for (int32_t k = p->index.bucket[i]; k; k = p->index.next[k]) chained++;
    assert_int_equal(chained, listed);
    assert_int_equal(cached, p->index.n_cached);
    assert_int_equal(held + cached + p->n_free, p->n_pages - 1);
    assert_int_equal(promised, p->reserved);
    assert_true(p->reserved <= p->n_free + cached);
    free(refs);
}

/* Jobs over few texts in a small pool, that come, end and leave in any order. */
static void test_many_jobs_in_a_small_pool(void **state) {
    (void)state;
    enum { JOBS = 6, TEXTS = 4 };
    toy_fix f;
    og_arch arch;
    th_job j[JOBS];
    int ids[TEXTS][MOST], busy[JOBS] = {0}, rows[JOBS], of[JOBS], ended = 0;
    uint32_t rnd = 7;
    for (int i = 0; i < TEXTS; i++) text(ids[i], i % 2, i < 2 ? MOST : 40);
    sum_open(&f, &arch, JOBS, 48, 24, 1);
    for (int round = 0; round < 4000; round++) {
        rnd = rnd * 1664525u + 1013904223u;
        int i = (int)(rnd >> 8) % JOBS;
        if (!busy[i]) {
            rows[i] = 1 + (int)(rnd >> 16) % 120;
            of[i] = (int)(rnd >> 28) % TEXTS;
            toy_job(&j[i], 1, rows[i], 4);
            busy[i] = toy_admit(&f, &j[i]) == 0;
            if (busy[i]) toy_feed(&f, &j[i], toy_ids(rows[i], ids[of[i]]));
            else th_job_free(&j[i]);
        } else if (j[i].stopped || (rnd >> 24) < 12) {
            if (j[i].stopped) check_tokens(&j[i], rows[i], ids[of[i]]);
            ended += j[i].stopped;
            toy_done(&f, &j[i]);
            busy[i] = 0;
        }
        th_step(f.node, NULL);
        check_pool(&og__ar_const(f.node)->pool, JOBS);
    }
    for (int i = 0; i < JOBS; i++)
        if (busy[i]) toy_done(&f, &j[i]);
    check_pool(&og__ar_const(f.node)->pool, JOBS);
    assert_true(ended > 300);
    assert_true(stats_of(&f).prefix_rows_hit > 5000);
    toy_close(&f);
}

static void test_create_over_all_allocations(void **state) {
    (void)state;
    toy_fix f;
    toy_prepare(&f, 3, 64, 16, 0);
    f.cfg.prefix_cache = 1;
    uint64_t seen;
    og_err none = OG_ERR_INIT; /* opens the weights, which stay with the model */
    assert_int_equal(og_model_fingerprint(f.model, &seen, &none), 0);
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
    assert_true(n > 12);
    og_model_close(f.model);
    th_close(&f.env);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hit),
        cmocka_unit_test(test_partial_hit_and_miss),
        cmocka_unit_test(test_last_row_is_computed),
        cmocka_unit_test(test_place_counts),
        cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_cached_pages_are_free),
        cmocka_unit_test(test_shared_while_both_run),
        cmocka_unit_test(test_same_prompt_in_one_step),
        cmocka_unit_test(test_abort_in_the_middle),
        cmocka_unit_test(test_failed_rows_are_not_kept),
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_items_count_by_content),
        cmocka_unit_test(test_wrong_items_never_match),
        cmocka_unit_test(test_prompt_in_pieces),
        cmocka_unit_test(test_checkpoint_is_in_the_key),
        cmocka_unit_test(test_many_jobs_in_a_small_pool),
        cmocka_unit_test(test_create_over_all_allocations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
