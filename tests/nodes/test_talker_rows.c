/* Prompt rows of a cloned voice: reference frames, a speaker vector and text, as an engine
 * feeds them, against sums taken straight from the weights.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/nodes/talker.h"

#define N_FRAMES 5

typedef struct row_log {
    float rows[64 * 64];
    int64_t n; /* values */
} row_log;

static void log_rows(void *arg, const char *name, const og_tensor *t) {
    row_log *l = arg;
    if (strcmp(name, "talker.rows") != 0 || l->n) return;
    l->n = og_tensor_count(t);
    assert_true(l->n <= 64 * 64);
    memcpy(l->rows, t->data, (size_t)l->n * sizeof *l->rows);
}

static const float *weight_row(const talker_fix *f, const char *name, int32_t row) {
    og_err err = OG_ERR_INIT;
    og_weights *w;
    assert_int_equal(og_model_weights(f->model, "", &w, &err), 0);
    const og_tensor *t = og_weights_find(w, name);
    assert_non_null(t);
    return (const float *)(const void *)((const char *)t->data + (size_t)row * (size_t)t->ne[1] * 4);
}

static void add(float *sum, const float *row, int n) {
    for (int i = 0; i < n; i++) {
        float v;
        memcpy(&v, &row[i], sizeof v);
        sum[i] += v;
    }
}

static void frame_sum(const talker_fix *f, float *sum, const int32_t *codes) {
    char name[96];
    memset(sum, 0, (size_t)f->hidden * sizeof *sum);
    add(sum, weight_row(f, "talker.model.codec_embedding.weight", codes[0]), f->hidden);
    for (int g = 1; g < f->groups; g++) {
        snprintf(name, sizeof name,
                 "talker.code_predictor.model.codec_embedding.%d.weight", g - 1);
        add(sum, weight_row(f, name, codes[g]), f->hidden);
    }
}

/* Rows: speaker alone, then codec bos, then each frame + codec bos. */
static og_recipe *clone_rows(int32_t cbos) {
    rb *b = rb_new();
    rb_term(b, T_SPEAKER, 1, 0);
    rb_row(b);
    rb_pair(b, -1, cbos);
    for (int i = 0; i < N_FRAMES; i++) {
        rb_term(b, T_FRAME, 2, i);
        rb_term(b, T_CODEC, OG_NO_SOURCE, cbos);
        rb_row(b);
    }
    return rb_done(b);
}

static void run_clone(const char *backend, const char *folder, int rows_a_step) {
    talker_fix f;
    th_job j;
    row_log log = {.n = 0};
    int32_t codes[N_FRAMES * 64];
    float voice[256], want[256];
    og_node_cfg cfg = TALKER_CFG;
    cfg.max_seqs = 1;
    cfg.max_batched_tokens = rows_a_step;
    if (!th_has_backend(backend)) skip();
    talker_open(&f, backend, folder, cfg);
    int32_t cbos = cfg_id(f.talker, "codec_bos_id"), g = f.groups, h = f.hidden;
    for (int i = 0; i < N_FRAMES * g; i++) codes[i] = i * 7 % 128;
    for (int i = 0; i < h; i++) voice[i] = (float)i / 8 - 1;

    th_job_init(&j, 1, 1);
    th_job_greedy(&j);
    j.job.sampling.max_tokens = 4;
    th_job_out(&j, f.codes, OG_I32, g, 8);
    talker_admit(&f, &j);
    th_feed_rows(f.node, &j, f.prompt, clone_rows(cbos), NULL, OG_LAST);
    th_feed_rows(f.node, &j, f.feed, NULL, NULL, OG_LAST);
    th_feed_items(f.node, &j, f.prompt, 2, OG_I32, 2, g, codes, 0);
    th_feed_items(f.node, &j, f.prompt, 2, OG_I32, N_FRAMES - 2, g, codes + 2 * g, OG_LAST);
    th_feed_items(f.node, &j, f.prompt, 1, OG_F32, 1, h, voice, OG_LAST);
    og_exec_set_tap(f.env.exec, log_rows, &log);
    th_run(f.node, 40);
    assert_int_equal(j.err.code, 0);
    assert_int_equal(j.out[f.codes].n, 3);

    int64_t n = log.n / h;
    assert_int_equal(n, rows_a_step < N_FRAMES + 2 ? rows_a_step : N_FRAMES + 2);
    for (int64_t r = 0; r < n; r++) {
        if (r < 2) memset(want, 0, sizeof want);
        else frame_sum(&f, want, codes + (r - 2) * g);
        if (r) add(want, weight_row(&f, "talker.model.codec_embedding.weight", cbos), h);
        assert_memory_equal(log.rows + r * h, r ? want : voice, (size_t)h * sizeof *want);
    }
    f.node->api->retire(f.node, &j.job);
    th_job_free(&j);
    talker_close(&f);
}

static void test_clone_rows_ref(void **state) {
    (void)state;
    run_clone("ref", "tiny-a", 64);
    run_clone("ref", "tiny-b", 4);
}

static void test_clone_rows_cpu(void **state) {
    (void)state;
    run_clone("cpu", "tiny-a", 3);
    run_clone("cpu", "tiny-b", 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clone_rows_ref),
                                       cmocka_unit_test(test_clone_rows_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
