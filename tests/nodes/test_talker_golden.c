/* The talker against the public reference: every custom_voice and voice_design request of
 * both small checkpoints, greedy, on each backend. Codes must be equal, prompt rows within
 * 1e-5 and states within 2e-5 (float32 sums in another order).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/nodes/talker.h"

typedef struct row_log {
    float *data;
    int64_t n, cap;
} row_log;

static void log_rows(void *arg, const char *name, const og_tensor *t) {
    row_log *l = arg;
    if (strcmp(name, "talker.rows") != 0) return;
    int64_t count = og_tensor_count(t);
    if (l->n + count > l->cap) return;
    memcpy(l->data + l->n, t->data, (size_t)count * sizeof *l->data);
    l->n += count;
}

static void check_outputs(const talker_fix *f, const talker_case *c, const th_job *j) {
    og_tensor tokens = golden_get(c->golden, "talker_tokens");
    og_tensor codes = golden_get(c->golden, "codes");
    og_tensor states = golden_get(c->golden, "talker_hidden");
    int64_t frames = codes.ne[0], chosen = og_tensor_count(&tokens);
    if (j->err.code) fail_msg("%s: %s", c->name, j->err.msg);
    assert_int_equal(chosen, frames + 1);
    assert_int_equal(j->out[f->codes].n, frames);
    assert_int_equal(j->out[f->tokens].n, frames);
    assert_int_equal(j->out[f->states].n, frames);
    assert_true(j->out[f->codes].last && j->out[f->tokens].last && j->out[f->states].last);

    const int32_t *got = (const void *)j->out[f->tokens].data;
    for (int64_t i = 0; i < frames; i++)
        if (got[i] != golden_i64_at(&tokens, i))
            fail_msg("%s: token %d is %d, not %d", c->name, (int)i, got[i],
                     (int)golden_i64_at(&tokens, i));
    got = (const void *)j->out[f->codes].data;
    for (int64_t i = 0; i < frames * f->groups; i++)
        if (got[i] != golden_i64_at(&codes, i))
            fail_msg("%s: frame %d group %d is %d, not %d", c->name, (int)(i / f->groups),
                     (int)(i % f->groups), got[i], (int)golden_i64_at(&codes, i));
    double d = golden_max_diff(&states, (const void *)j->out[f->states].data,
                               frames * f->hidden);
    if (d > 2e-5) fail_msg("%s: states differ by %g", c->name, d);

    int32_t last = (int32_t)golden_i64_at(&tokens, chosen - 1);
    int32_t eos = cfg_id(f->talker, "codec_eos_token_id");
    assert_int_equal(j->stopped, 1);
    assert_int_equal(j->stop_id, last == eos ? eos : -1);
}

static void run_case(talker_fix *f, const char *folder, const char *name) {
    talker_case c;
    th_job j;
    talker_load(f, &c, folder, name);
    og_tensor rows = golden_get(c.golden, "prompt_embeds");
    row_log log = {.cap = og_tensor_count(&rows)};
    log.data = malloc((size_t)log.cap * sizeof *log.data);
    assert_int_equal(c.prompt->n_rows, rows.ne[0]);

    talker_job(f, &j, &c, 1);
    talker_admit(f, &j);
    talker_feed(f, &j, &c);
    og_exec_set_tap(f->env.exec, log_rows, &log);
    th_run(f->node, 4096);
    og_exec_set_tap(f->env.exec, NULL, NULL);

    assert_int_equal(log.n, log.cap);
    double d = golden_max_diff(&rows, log.data, log.n);
    if (d > 1e-5) fail_msg("%s: prompt rows differ by %g", name, d);
    check_outputs(f, &c, &j);
    f->node->api->retire(f->node, &j.job);
    th_job_free(&j);
    free(log.data);
    talker_unload(&c);
}

static void run_folder(const char *backend, const char *folder) {
    talker_fix f;
    if (!th_has_backend(backend)) {
        print_message("no %s backend in this build\n", backend);
        skip();
    }
    talker_open(&f, backend, folder, TALKER_CFG);
    for (int i = 0; i < N_TALKER_CASES; i++) run_case(&f, folder, talker_cases[i]);
    og_node_stats st;
    f.node->api->stats(f.node, &st);
    assert_int_equal(st.slots_used, 0);
    assert_int_equal(st.kv_pages_used, 0);
    talker_close(&f);
}

static void test_tiny_a_ref(void **state) {
    (void)state;
    run_folder("ref", "tiny-a");
}

static void test_tiny_b_ref(void **state) {
    (void)state;
    run_folder("ref", "tiny-b");
}

static void test_tiny_a_cpu(void **state) {
    (void)state;
    run_folder("cpu", "tiny-a");
}

static void test_tiny_b_cpu(void **state) {
    (void)state;
    run_folder("cpu", "tiny-b");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_a_ref), cmocka_unit_test(test_tiny_b_ref),
        cmocka_unit_test(test_tiny_a_cpu), cmocka_unit_test(test_tiny_b_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
