/* The talker with its prefix cache against the talker without: the same bits on a miss, on a
 * hit, alone and in company, for ids and for the rows of a cloned voice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/nodes/talker.h"

#define N_JOBS 8
#define N_FRAMES 31

static const char *const mix[N_JOBS] = {"cv_long",   "cv_long_stream", "cv_instruct",
                                        "cv_en",     "cv_numbers",     "cv_special_in_text",
                                        "vd_en",     "cv_mixed"};

typedef struct bits {
    int64_t frames;
    int32_t *codes;
    float *states;
} bits;

static void job_for(const talker_fix *f, th_job *j, const talker_case *c, int i) {
    talker_job(f, j, c, (uint64_t)i);
    og_sampling *s = &j->job.sampling, *h = &j->job.head_sampling;
    if (s->max_tokens > 24) s->max_tokens = 24;
    s->temperature = h->temperature = 0.9f;
    s->top_k = h->top_k = 50;
}

static void keep(const talker_fix *f, const th_job *j, bits *b) {
    const th_out *c = &j->out[f->codes], *s = &j->out[f->states];
    assert_int_equal(j->err.code, 0);
    assert_int_equal(j->stopped, 1);
    b->frames = c->n;
    b->codes = malloc((size_t)(c->n * f->groups) * 4 + 1);
    b->states = malloc((size_t)(c->n * f->hidden) * 4 + 1);
    memcpy(b->codes, c->data, (size_t)(c->n * f->groups) * 4);
    memcpy(b->states, s->data, (size_t)(c->n * f->hidden) * 4);
}

static void same(const talker_fix *f, const th_job *j, const bits *b) {
    assert_int_equal(j->err.code, 0);
    assert_int_equal(j->out[f->codes].n, b->frames);
    assert_memory_equal(j->out[f->codes].data, b->codes,
                        (size_t)(b->frames * f->groups) * 4);
    assert_memory_equal(j->out[f->states].data, b->states,
                        (size_t)(b->frames * f->hidden) * 4);
}

static void done(const talker_fix *f, th_job *j) {
    f->node->api->retire(f->node, &j->job);
    th_job_free(j);
}

static int64_t rows_found(const talker_fix *f) {
    og_node_stats st;
    f->node->api->stats(f->node, &st);
    return st.prefix_rows_hit;
}

static void one_by_one(const talker_fix *f, const talker_case *c, bits *b, int check) {
    for (int i = 0; i < N_JOBS; i++) {
        th_job j;
        job_for(f, &j, &c[i], i);
        talker_admit(f, &j);
        talker_feed(f, &j, &c[i]);
        th_run(f->node, 10000);
        if (check) same(f, &j, &b[i]);
        else keep(f, &j, &b[i]);
        done(f, &j);
    }
}

static void together(const talker_fix *f, const talker_case *c, const bits *b) {
    th_job j[N_JOBS];
    for (int i = 0; i < N_JOBS; i++) {
        job_for(f, &j[i], &c[i], i);
        talker_admit(f, &j[i]);
        talker_feed(f, &j[i], &c[i]);
        if (i % 3 == 2) th_step(f->node, NULL);
    }
    th_run(f->node, 10000);
    for (int i = 0; i < N_JOBS; i++) {
        same(f, &j[i], &b[i]);
        done(f, &j[i]);
    }
}

static void run_all(const char *backend, const char *folder, int rows) {
    talker_fix f;
    talker_case c[N_JOBS];
    bits b[N_JOBS];
    og_node_cfg cfg = TALKER_CFG;
    if (!th_has_backend(backend)) skip();
    talker_open(&f, backend, folder, cfg);
    for (int i = 0; i < N_JOBS; i++) talker_load(&f, &c[i], folder, mix[i]);
    one_by_one(&f, c, b, 0);
    assert_int_equal(rows_found(&f), 0);
    talker_close(&f);

    cfg.prefix_cache = 1;
    cfg.max_batched_tokens = rows;
    talker_open(&f, backend, folder, cfg);
    one_by_one(&f, c, b, 1);
    int64_t first = rows_found(&f);
    one_by_one(&f, c, b, 1);
    int64_t second = rows_found(&f) - first;
    assert_true(second >= N_JOBS * 16 / 2 && second > first);
    together(&f, c, b);
    assert_true(rows_found(&f) - first - second >= second);
    talker_close(&f);
    for (int i = 0; i < N_JOBS; i++) {
        talker_unload(&c[i]);
        free(b[i].codes);
        free(b[i].states);
    }
}

static void test_same_bits_cpu(void **state) {
    (void)state;
    run_all("cpu", "tiny-a", 512);
    run_all("cpu", "tiny-b", 24);
}

static void test_same_bits_ref(void **state) {
    (void)state;
    run_all("ref", "tiny-b", 512);
}

/* ---- a cloned voice ----------------------------------------------------------------- */

/* The rows of a reference: the speaker's vector, then each frame with a codec id, then a
 * text of its own. */
static og_recipe *clone_rows(int32_t cbos, int32_t last) {
    rb *b = rb_new();
    rb_term(b, T_SPEAKER, 1, 0);
    rb_row(b);
    for (int i = 0; i < N_FRAMES; i++) {
        rb_term(b, T_FRAME, 2, i);
        rb_term(b, T_CODEC, OG_NO_SOURCE, cbos);
        rb_row(b);
    }
    for (int i = 0; i < 4; i++) rb_pair(b, last + i, cbos);
    return rb_done(b);
}

/* Returns the rows that were found. */
static int64_t clone(const talker_fix *f, int speaker, int reference, int32_t last,
                     bits *b, int check) {
    th_job j;
    int32_t codes[N_FRAMES * 64], cbos = cfg_id(f->talker, "codec_bos_id"), g = f->groups;
    float voice[256];
    int64_t before = rows_found(f);
    for (int i = 0; i < N_FRAMES * g; i++) codes[i] = (i * 7 + reference) % 128;
    for (int i = 0; i < f->hidden; i++) voice[i] = (float)(i + speaker) / 64 - 1;
    th_job_init(&j, 1, 1);
    j.job.sampling.max_tokens = 12;
    th_job_out(&j, f->codes, OG_I32, g, 16);
    th_job_out(&j, f->states, OG_F32, f->hidden, 16);
    talker_admit(f, &j);
    th_feed_rows(f->node, &j, f->prompt, clone_rows(cbos, last), NULL, OG_LAST);
    th_feed_rows(f->node, &j, f->feed, NULL, NULL, OG_LAST);
    th_feed_items(f->node, &j, f->prompt, 2, OG_I32, N_FRAMES, g, codes, OG_LAST);
    th_feed_items(f->node, &j, f->prompt, 1, OG_F32, 1, f->hidden, voice, OG_LAST);
    th_run(f->node, 40);
    if (check) same(f, &j, b);
    else keep(f, &j, b);
    done(f, &j);
    return rows_found(f) - before;
}

static void test_cloned_voice(void **state) {
    (void)state;
    enum { N = 4 };
    static const struct {
        int speaker, reference, last, found;
    } use[N] = {{0, 0, 5, 0}, {0, 0, 40, 32}, {9, 0, 5, 0}, {0, 3, 5, 0}};
    talker_fix f;
    bits b[N];
    og_node_cfg cfg = TALKER_CFG;
    talker_open(&f, "cpu", "tiny-a", cfg);
    for (int i = 0; i < N; i++)
        clone(&f, use[i].speaker, use[i].reference, use[i].last, &b[i], 0);
    talker_close(&f);
    cfg.prefix_cache = 1;
    talker_open(&f, "cpu", "tiny-a", cfg);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < N; i++)
            assert_int_equal(
                clone(&f, use[i].speaker, use[i].reference, use[i].last, &b[i], 1),
                round ? 32 : use[i].found);
    talker_close(&f);
    for (int i = 0; i < N; i++) {
        free(b[i].codes);
        free(b[i].states);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits_cpu),
                                       cmocka_unit_test(test_same_bits_ref),
                                       cmocka_unit_test(test_cloned_voice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
