/* Reloads of an engine that serves: what is live, rolling, refused, and what fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/run/reload_rig.h"

#define G STUB_GENERATION
#define GENERATION                                                                        \
    "stages:\n  - {stage_id: 0, max_num_seqs: 4, default_sampling_params: {top_k: %d}}\n"

/* ---- live ------------------------------------------------------------------------- */

static void test_b083_each_answer_bears_one_generation(void **state) {
    (void)state;
    live s;
    live_load load;
    live_open(&s, "stages:\n  - {stage_id: 0, max_num_seqs: 4, "
                  "default_sampling_params: {top_k: 100000}}\n");
    live_load_start(&s, &load, G);
    for (int g = 2; g <= 101; g++) {
        live_save(s.overlay, GENERATION, g * G);
        assert_int_equal(live_reload(&s), OG_RELOADED_LIVE);
        int before = (int)live_stats(&s).finished;
        if (g % 10 == 0) live_until(live_stats(&s).finished > before);
    }
    assert_true(live_load_stop(&s, &load) > 10);
    assert_int_equal(live_stats(&s).generation, 101);
    assert_int_equal(atomic_load(&stub_nodes), 2); /* none was made anew */
    live_assert_drained(&s);
    live_close(&s);
}

/* A request keeps the settings of its submission, also while it waits. */
static void test_settings_at_submission(void **state) {
    (void)state;
    live s;
    live_open(&s, "stages:\n  - {stage_id: 0, max_num_seqs: 1, "
                  "default_sampling_params: {top_k: 100000}}\n");
    stub_gate_set(&stub_source_gate, true);
    og_request *runs = live_submit(&s, 99, 1, STUB_OK), *waits = live_submit(&s, 99, 2, STUB_OK);
    live_admit(&s, 1);
    assert_int_equal(live_stats(&s).queued, 1);
    live_save(s.overlay, "stages:\n  - {stage_id: 0, max_num_seqs: 1, "
                         "default_sampling_params: {top_k: 200000}}\n");
    assert_int_equal(live_reload(&s), OG_RELOADED_LIVE);
    og_request *later = live_submit(&s, 99, 3, STUB_OK);
    stub_gate_set(&stub_source_gate, false);
    assert_int_equal(live_read(runs, 99, 1, G), 0);
    assert_int_equal(live_read(waits, 99, 2, G), 0);
    assert_int_equal(live_read(later, 99, 3, G), 0);
    og_request_stats a, b;
    og_request_get_stats(waits, &a);
    og_request_get_stats(later, &b);
    assert_int_equal(a.generation, 1);
    assert_int_equal(b.generation, 2);
    og_request_free(runs);
    og_request_free(waits);
    og_request_free(later);
    live_assert_drained(&s);
    live_close(&s);
}

static int64_t admitted(live *s) {
    return live_stats(s).admitted;
}

/* Fewer sequences, and as many again, need no new replica; more than were loaded for do. */
static void test_batch_limits(void **state) {
    (void)state;
    char buf[512];
    live s;
    live_open(&s, "stages:\n  - {stage_id: 0, max_num_seqs: 3}\n");
    live_save(s.overlay, "stages:\n  - {stage_id: 0, max_num_seqs: 1}\n");
    assert_int_equal(live_reload(&s), OG_RELOADED_LIVE);
    og_request *r[4];
    for (int i = 0; i < 4; i++) r[i] = live_submit(&s, 9, 1, STUB_HANG);
    live_until(live_stats(&s).queued == 3);
    assert_int_equal(admitted(&s), 1);
    live_save(s.overlay, "stages:\n  - {stage_id: 0, max_num_seqs: 3}\n");
    assert_int_equal(live_reload(&s), OG_RELOADED_LIVE);
    live_until(admitted(&s) == 3);
    live_save(s.overlay, "stages:\n  - {stage_id: 0, max_num_seqs: 4}\n");
    assert_int_equal(live_reload(&s), OG_RELOADED_ROLLING);
    live_until(admitted(&s) == 4);
    assert_non_null(strstr(live_last(&s, "changes", buf, sizeof buf),
                           "4 is more than the 3 that the replicas were loaded for"));
    for (int i = 0; i < 4; i++) og_request_free(r[i]);
    live_assert_drained(&s);
    live_close(&s);
}

static int held_by(live *s, int replica) {
    og_node_stats st;
    assert_int_equal(og_engine_node_stats(s->engine, 0, replica, &st), 0);
    return st.slots_used;
}

#define ROUTED "stages:\n  - {stage_id: 0, num_replicas: 2, routing: %s}\n"

static void test_routing_is_live(void **state) {
    (void)state;
    live s;
    char text[160];
    og_request *r[4];
    snprintf(text, sizeof text, ROUTED, "round_robin");
    live_open(&s, text);
    for (int i = 0; i < 4; i++) r[i] = live_submit(&s, 10 + i, 7, STUB_HANG);
    live_until(admitted(&s) == 4);
    live_until(held_by(&s, 0) == 2 && held_by(&s, 1) == 2);
    for (int i = 0; i < 4; i++) og_request_free(r[i]);
    live_save(s.overlay, ROUTED, "{policy: affinity, key: stamp}");
    assert_int_equal(live_reload(&s), OG_RELOADED_LIVE);
    for (int i = 0; i < 4; i++) r[i] = live_submit(&s, 20 + i, 7, STUB_HANG);
    live_until(admitted(&s) == 8);
    live_until(held_by(&s, 0) == 4 || held_by(&s, 1) == 4);
    for (int i = 0; i < 4; i++) og_request_free(r[i]);
    live_save(s.overlay, ROUTED, "{policy: affinity, key: nobody}");
    assert_int_equal(live_reload(&s), OG_RELOADED_INVALID);
    assert_non_null(strstr(s.text, "overlay.yaml:2:"));
    assert_non_null(strstr(s.text, "there is no nobody"));
    live_assert_drained(&s);
    live_close(&s);
}

/* ---- rolling ----------------------------------------------------------------------- */

#define REPLICAS "stages:\n  - {stage_id: 0, num_replicas: %d, max_num_seqs: 2}\n"

static void test_b082_one_three_one_under_load(void **state) {
    (void)state;
    live s;
    live_load load;
    char buf[64];
    live_open(&s, "stages:\n  - {stage_id: 0, max_num_seqs: 2}\n");
    live_load_start(&s, &load, 0);
    for (int i = 0; i < 20; i++) {
        live_save(s.overlay, REPLICAS, i % 2 ? 1 : 3);
        int64_t before = live_stats(&s).finished;
        assert_int_equal(live_reload(&s), i % 2 ? OG_RELOADED_ROLLING : OG_RELOADED_DONE);
        live_until(live_stats(&s).leaving == 0 && live_stats(&s).finished > before);
        assert_int_equal(atomic_load(&stub_nodes), i % 2 ? 2 : 4);
    }
    live_load_stop(&s, &load);
    live_until(!strcmp(live_last(&s, "outcome", buf, sizeof buf), "\"done\""));
    live_assert_drained(&s);
    live_close(&s);
}

/* The vocoder on another thread, which answers while sources stand at their gate. */
#define APART "  - {stage_id: 1, devices: \"1\"}\n"

/* More replicas take more requests at once; a drained one ends its own first. */
static void test_a_drained_replica_ends_its_requests(void **state) {
    (void)state;
    live s;
    og_request *r[3];
    char buf[256];
    live_open(&s, "stages:\n  - {stage_id: 0, max_num_seqs: 1}\n" APART);
    live_save(s.overlay, "stages:\n  - {stage_id: 0, max_num_seqs: 1, num_replicas: 3}\n" APART);
    assert_int_equal(live_reload(&s), OG_RELOADED_DONE);
    assert_string_equal(live_last(&s, "started", buf, sizeof buf),
                        "[\"cpu:0 #1\",\"cpu:0 #2\"]");
    stub_gate_set(&stub_source_gate, true);
    for (int i = 0; i < 3; i++) r[i] = live_submit(&s, 99, 1 + i, STUB_OK);
    live_admit(&s, 3);
    live_save(s.overlay, "stages:\n  - {stage_id: 0, max_num_seqs: 1, num_replicas: 1}\n" APART);
    assert_int_equal(live_reload(&s), OG_RELOADED_ROLLING);
    assert_string_equal(live_last(&s, "drained", buf, sizeof buf),
                        "[\"cpu:0 #1\",\"cpu:0 #2\"]");
    assert_int_equal(live_stats(&s).leaving, 2);
    og_node_stats st;
    assert_int_equal(og_engine_node_stats(s.engine, 0, 1, &st), OG_ENOENT);
    stub_gate_set(&stub_source_gate, false);
    for (int i = 0; i < 3; i++) assert_int_equal(live_read(r[i], 99, 1 + i, 0), 0);
    /* Their nodes go with their last job, though nobody has freed the requests. */
    live_until(atomic_load(&stub_nodes) == 2);
    assert_int_equal(live_stats(&s).leaving, 2);
    for (int i = 0; i < 3; i++) og_request_free(r[i]);
    live_until(live_stats(&s).leaving == 0);
    live_until(!strcmp(live_last(&s, "outcome", buf, sizeof buf), "\"done\""));
    live_assert_drained(&s);
    live_close(&s);
}

/* A client that cancels, and a replica that fails, while it is drained. */
static void test_a_drained_replica_that_fails(void **state) {
    (void)state;
    live s;
    live_open(&s, "stages:\n  - {stage_id: 0, max_num_seqs: 1, num_replicas: 3}\n" APART);
    og_request *r[3];
    stub_gate_set(&stub_source_gate, true);
    for (int i = 0; i < 3; i++)
        r[i] = live_submit(&s, 99, 1 + i, i == 1 ? STUB_HANG : STUB_LOSE);
    live_admit(&s, 3);
    live_save(s.overlay, "stages:\n  - {stage_id: 0, max_num_seqs: 2}\n" APART);
    assert_int_equal(live_reload(&s), OG_RELOADED_ROLLING);
    stub_gate_set(&stub_source_gate, false);
    og_request *later = live_submit(&s, 99, 8, STUB_OK);
    assert_int_equal(live_read(later, 99, 8, 0), 0);
    for (int i = 0; i < 3; i++) og_request_free(r[i]);
    og_request_free(later);
    live_assert_drained(&s);
    live_close(&s);
}

/* ---- nothing happens ---------------------------------------------------------------- */

static void assert_as_before(live *s, int generation) {
    og_request *r = live_submit(s, 9, 1, STUB_OK);
    assert_int_equal(live_read(r, 9, 1, 0), 0);
    og_request_free(r);
    assert_int_equal(live_stats(s).generation, generation);
    live_assert_drained(s);
}

static void test_a_replica_that_does_not_start(void **state) {
    (void)state;
    live s;
    char buf[256];
    live_open(&s, "stages:\n  - {stage_id: 0}\n");
    int nodes = atomic_load(&stub_nodes);
    atomic_store(&stub_unmakeable, 1);
    live_save(s.overlay, REPLICAS, 3);
    assert_int_equal(live_reload(&s), OG_RELOADED_FAILED);
    atomic_store(&stub_unmakeable, 0);
    assert_non_null(strstr(live_last(&s, "error", buf, sizeof buf), "the device is not there"));
    assert_non_null(strstr(s.text, "source.num_replicas: (not set) -> 3"));
    assert_int_equal(atomic_load(&stub_nodes), nodes);
    assert_as_before(&s, 1);
    assert_int_equal(live_reload(&s), OG_RELOADED_DONE); /* the device is back */
    assert_as_before(&s, 2);
    live_close(&s);
}

static void test_a_change_that_is_refused_takes_all_with_it(void **state) {
    (void)state;
    live s;
    char buf[512];
    live_open(&s, "stages:\n  - {stage_id: 0}\n");
    live_save(s.overlay, "stages:\n  - {stage_id: 0, max_model_len: 100, "
                         "default_sampling_params: {top_k: 100000}}\n");
    og_reload_outcome outcome;
    og_err err = OG_ERR_INIT;
    assert_int_equal(og_reloader_run(s.reloader, "SIGHUP", &outcome, &err), OG_EUNSUPPORTED);
    assert_int_equal(outcome, OG_RELOADED_REFUSED);
    assert_non_null(strstr(err.msg, "source.max_model_len: (not set) -> 100"));
    assert_non_null(strstr(err.msg, "restart"));
    assert_int_equal(err.line, 2);
    assert_string_equal(live_last(&s, "cause", buf, sizeof buf), "\"SIGHUP\"");
    assert_string_equal(live_last(&s, "outcome", buf, sizeof buf), "\"refused\"");
    assert_non_null(strstr(live_last(&s, "changes", buf, sizeof buf), "\"class\":\"live\""));
    assert_as_before(&s, 1);
    live_close(&s);
}

static void test_another_pipeline_is_refused(void **state) {
    (void)state;
    live s;
    char yaml[4096];
    live_open(&s, "stages:\n  - {stage_id: 0}\n");
    snprintf(yaml, sizeof yaml, "%sstub_sum}\nedges:\n%s", stub_fields, stub_plain);
    stub_write(s.dir, "stub.yaml", yaml);
    assert_int_equal(live_reload(&s), OG_RELOADED_REFUSED);
    assert_non_null(strstr(s.text, "frozen part of the pipeline"));
    assert_as_before(&s, 1);
    live_close(&s);
}

static void test_memory_of_both(void **state) {
    (void)state;
    live s;
    live_open(&s, "stages:\n  - {stage_id: 0, max_num_seqs: 4}\n");
    s.opts.memory_limit = STUB_BYTES * 4 + STUB_BYTES / 2;
    live_save(s.overlay, REPLICAS, 2);
    assert_int_equal(live_reload(&s), OG_RELOADED_DONE); /* 3 nodes */
    live_save(s.overlay, "stages:\n  - {stage_id: 0, num_replicas: 2, max_num_seqs: 8}\n");
    assert_int_equal(live_reload(&s), OG_RELOADED_FAILED); /* 3 beside 3 */
    assert_non_null(strstr(s.text, "and the machine has"));
    assert_as_before(&s, 2);
    live_close(&s);
}

static void test_files_that_make_no_plan(void **state) {
    (void)state;
    live s;
    char buf[512];
    live_open(&s, "stages:\n  - {stage_id: 0}\n");
    live_save(s.overlay, "stages:\n  - {stage_id: 0, max_num_seqs: many}\n");
    assert_int_equal(live_reload(&s), OG_RELOADED_INVALID);
    assert_non_null(strstr(s.text, "overlay.yaml:2:33: error:"));
    live_last(&s, "error", buf, sizeof buf);
    assert_non_null(strstr(buf, "overlay.yaml:2:33: error:"));
    live_save(s.overlay, "stages:\n  - {stage_id: 0, max_nu");
    assert_int_equal(live_reload(&s), OG_RELOADED_INVALID);
    unlink(s.overlay);
    assert_int_equal(live_reload(&s), OG_RELOADED_INVALID);
    assert_non_null(strstr(s.text, "no such file"));
    live_save(s.overlay, "stages:\n  - {stage_id: 0}\n# as it was\n");
    assert_int_equal(live_reload(&s), OG_RELOADED_SAME);
    assert_as_before(&s, 1);
    assert_string_equal(live_last(&s, "outcome", buf, sizeof buf), "\"invalid\"");
    live_close(&s);
}

static void test_history_is_bounded(void **state) {
    (void)state;
    live s;
    live_open(&s, "stages:\n  - {stage_id: 0}\n");
    for (int i = 0; i < 2 * OG_RELOAD_HISTORY; i++) {
        live_save(s.overlay, GENERATION, 100000 + i);
        assert_true(live_reload(&s) <= OG_RELOADED_DONE);
    }
    json_t *st = og_engine_reload_status(s.engine);
    assert_int_equal(json_array_size(json_object_get(st, "reloads")), OG_RELOAD_HISTORY);
    json_decref(st);
    live_close(&s);
}

/* Whatever allocation fails, it is applied whole or not at all. */
static void test_reload_over_all_allocations(void **state) {
    (void)state;
    live s;
    live_open(&s, "stages:\n  - {stage_id: 0}\n");
    for (int n = 0;; n++) {
        og_reload_outcome outcome;
        og_err err = OG_ERR_INIT;
        int generation = live_stats(&s).generation;
        live_save(s.overlay, REPLICAS, n % 2 ? 1 : 2);
        og_alloc_fail_at(n + 1);
        int rc = og_reloader_run(s.reloader, "test", &outcome, &err);
        int hit = og_alloc_failed();
        og_alloc_fail_at(0);
        assert_int_equal(rc == 0, outcome <= OG_RELOADED_DONE);
        assert_int_equal(live_stats(&s).generation - generation,
                         outcome != OG_RELOADED_SAME && outcome <= OG_RELOADED_DONE);
        og_request *r = live_submit(&s, 3, 1, STUB_OK);
        assert_int_equal(live_read(r, 3, 1, 0), 0);
        og_request_free(r);
        if (!hit && rc == 0) break;
        assert_true(n < 5000);
    }
    live_assert_drained(&s);
    live_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b083_each_answer_bears_one_generation),
        cmocka_unit_test(test_settings_at_submission),
        cmocka_unit_test(test_batch_limits),
        cmocka_unit_test(test_routing_is_live),
        cmocka_unit_test(test_b082_one_three_one_under_load),
        cmocka_unit_test(test_a_drained_replica_ends_its_requests),
        cmocka_unit_test(test_a_drained_replica_that_fails),
        cmocka_unit_test(test_a_replica_that_does_not_start),
        cmocka_unit_test(test_a_change_that_is_refused_takes_all_with_it),
        cmocka_unit_test(test_another_pipeline_is_refused),
        cmocka_unit_test(test_memory_of_both),
        cmocka_unit_test(test_files_that_make_no_plan),
        cmocka_unit_test(test_history_is_bounded),
        cmocka_unit_test(test_reload_over_all_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
