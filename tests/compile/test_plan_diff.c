/* What a new plan changes, and of which kind each change is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/compile/diff.h"
#include "tests/compile/archs.h"

#define TINY OG_SOURCE_DIR "/tests/data/qwen3_tts/tiny-a/custom_voice"

static char file[64];

static og_plan *build(const char *overlay, og_model *loaded) {
    og_plan *p = NULL;
    og_err err = OG_ERR_INIT;
    snprintf(file, sizeof file, "/tmp/og_plan_diff_%d.yaml", (int)getpid());
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(overlay, f);
    fclose(f);
    og_plan_options o = fake_options("qwen3_tts");
    o.model = TINY;
    o.loaded = loaded;
    o.deploy = file;
    if (og_plan_build(&o, 0, NULL, &p, &err) < 0) fail_msg("%s", err.msg);
    unlink(file);
    return p;
}

typedef struct pair {
    og_plan *old, *now;
    og_plan_changes changes;
} pair;

static pair compare(const char *before, const char *after, const int *loaded) {
    pair p = {.old = build(before, NULL)};
    og_err err = OG_ERR_INIT;
    p.now = build(after, p.old->model);
    assert_int_equal(og_plan_diff(p.old, p.now, loaded, &p.changes, &err), 0);
    return p;
}

static void done(pair *p) {
    og_plan_changes_free(&p->changes);
    og_plan_destroy(p->old);
    og_plan_destroy(p->now);
}

static void assert_kind(const char *before, const char *after, og_change_kind kind) {
    pair p = compare(before, after, NULL);
    if (p.changes.kind != kind || p.changes.n != 1) {
        og_str s = OG_STR_INIT;
        og_plan_changes_print(&p.changes, &s);
        fail_msg("%s%s", after, s.data ? s.data : "no changes");
    }
    done(&p);
}

#define STAGE(text) "stages:\n  - {stage_id: 0, " text "}\n"

static void test_kinds(void **state) {
    (void)state;
    const char *none = STAGE("max_num_seqs: 4");
    assert_kind(none, STAGE("max_num_seqs: 2"), OG_CHANGE_LIVE);
    assert_kind(none, STAGE("max_num_seqs: 5"), OG_CHANGE_ROLLING);
    assert_kind(none, STAGE("max_num_seqs: 4, default_sampling_params: {top_p: 0.5}"),
                OG_CHANGE_LIVE);
    assert_kind(none, STAGE("max_num_seqs: 4, subtalker_sampling_params: {top_k: 5}"),
                OG_CHANGE_LIVE);
    assert_kind(none, STAGE("max_num_seqs: 4, routing: round_robin"), OG_CHANGE_LIVE);
    assert_kind(none, STAGE("max_num_seqs: 4, num_replicas: 2"), OG_CHANGE_ROLLING);
    assert_kind(none, STAGE("max_num_seqs: 4, devices: \"1\""), OG_CHANGE_ROLLING);
    assert_kind(none, STAGE("max_num_seqs: 4, max_num_batched_tokens: 64"),
                OG_CHANGE_ROLLING);
    assert_kind(none, STAGE("max_num_seqs: 4, max_model_len: 512"), OG_CHANGE_REFUSE);
    assert_kind(none, STAGE("max_num_seqs: 4, dtype: float32"), OG_CHANGE_REFUSE);
    assert_kind(none, STAGE("max_num_seqs: 4, load_format: auto"), OG_CHANGE_REFUSE);
}

static const char chunks[] =
    "connectors:\n  c: {name: SharedMemoryConnector, extra: {codec_chunk_frames: %d}}\n"
    "stages:\n  - {stage_id: 0, output_connectors: {to_stage_1: c}}\n"
    "  - {stage_id: 1, input_connectors: {from_stage_0: c}}\n";

static void test_chunk_sizes_are_live(void **state) {
    (void)state;
    char a[512], b[512];
    snprintf(a, sizeof a, chunks, 25);
    snprintf(b, sizeof b, chunks, 10);
    pair p = compare(a, b, NULL);
    assert_int_equal(p.changes.n, 1);
    assert_int_equal(p.changes.kind, OG_CHANGE_LIVE);
    assert_string_equal(p.changes.list[0].path, "connectors.c.extra.codec_chunk_frames");
    assert_string_equal(p.changes.list[0].before, "25");
    assert_string_equal(p.changes.list[0].after, "10");
    done(&p);
    p = compare("{}\n", b, NULL); /* the connector as a whole */
    assert_int_equal(p.changes.kind, OG_CHANGE_LIVE);
    done(&p);
}

static void test_printed(void **state) {
    (void)state;
    char want[1024];
    og_str s = OG_STR_INIT;
    pair p = compare(STAGE("default_sampling_params: {top_k: 5, temperature: 0.9}"),
                     STAGE("default_sampling_params: {temperature: 0.5}, num_replicas: 3, "
                           "max_model_len: 512"),
                     NULL);
    og_plan_changes_print(&p.changes, &s);
    snprintf(want, sizeof want,
             "live     talker.default_sampling_params.top_k: 5 -> (not set)  (%s:2:52)\n"
             "live     talker.default_sampling_params.temperature: 0.9 -> 0.5  (%s:2:58)\n"
             "rolling  talker.num_replicas: (not set) -> 3  (%s:2:78)\n"
             "refuse   talker.max_model_len: (not set) -> 512  (%s:2:96): it is fixed once "
             "the replicas are loaded: restart to change it\n",
             file, file, file, file);
    assert_string_equal(s.data, want);
    og_str_free(&s);
    json_t *j = og_plan_changes_json(&p.changes);
    assert_int_equal(json_array_size(j), 4);
    json_t *c = json_array_get(j, 1);
    assert_string_equal(json_string_value(json_object_get(c, "path")),
                        "talker.default_sampling_params.temperature");
    assert_true(json_number_value(json_object_get(c, "new")) == 0.5);
    assert_string_equal(json_string_value(json_object_get(c, "class")), "live");
    snprintf(want, sizeof want, "%s:2:58", file);
    assert_string_equal(json_string_value(json_object_get(c, "source")), want);
    assert_true(json_is_null(json_object_get(json_array_get(j, 0), "new")));
    assert_int_equal(p.changes.kind, OG_CHANGE_REFUSE);
    json_decref(j);
    done(&p);
}

/* What was loaded for more than the running plan says can go back up to it. */
static void test_what_was_loaded_counts(void **state) {
    (void)state;
    int loaded[OG_PIPELINE_MAX_STAGES];
    for (int i = 0; i < OG_PIPELINE_MAX_STAGES; i++) loaded[i] = 8;
    pair p = compare(STAGE("max_num_seqs: 4"), STAGE("max_num_seqs: 8"), loaded);
    assert_int_equal(p.changes.kind, OG_CHANGE_LIVE);
    done(&p);
    p = compare(STAGE("max_num_seqs: 4"), STAGE("max_num_seqs: 9"), loaded);
    assert_int_equal(p.changes.kind, OG_CHANGE_ROLLING);
    assert_non_null(strstr(p.changes.list[0].why, "9 is more than the 8"));
    done(&p);
}

static void test_nothing_changes(void **state) {
    (void)state;
    pair p = compare(STAGE("max_num_seqs: 4"), "# said otherwise\n" STAGE("max_num_seqs: 4"),
                     NULL);
    assert_int_equal(p.changes.n, 0);
    assert_int_equal(p.changes.kind, OG_CHANGE_LIVE);
    assert_ptr_equal(p.old->model, p.now->model); /* one checkpoint, loaded once */
    done(&p);
}

static void test_another_checkpoint(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_plan *a = build("{}\n", NULL), *b = NULL;
    og_plan_options o = fake_options("qwen3_tts");
    og_plan_changes c;
    o.model = OG_SOURCE_DIR "/tests/data/qwen3_tts/tiny-a/base";
    assert_int_equal(og_plan_build(&o, 0, NULL, &b, &err), 0);
    assert_int_equal(og_plan_diff(a, b, NULL, &c, &err), 0);
    assert_int_equal(c.kind, OG_CHANGE_REFUSE);
    assert_int_equal(c.n, 1);
    assert_string_equal(c.list[0].path, "model");
    og_plan_changes_free(&c);
    og_plan_destroy(a);
    og_plan_destroy(b);
}

static void test_which_replicas_serve(void **state) {
    (void)state;
    pair p = compare(STAGE("max_num_seqs: 4"), STAGE("max_num_seqs: 2"), NULL);
    int t = og_plan_find_stage(p.old, "talker");
    assert_true(og_plan_stage_serves(&p.old->stages[t], &p.now->stages[t]));
    assert_false(og_plan_stage_serves(&p.now->stages[t], &p.old->stages[t]));
    done(&p);
    p = compare(STAGE("max_num_seqs: 4"), STAGE("enable_prefix_caching: false"), NULL);
    assert_false(og_plan_stage_serves(&p.old->stages[t], &p.now->stages[t]));
    done(&p);
}

static void test_over_all_allocations(void **state) {
    (void)state;
    pair p = compare(STAGE("max_num_seqs: 4"), STAGE("max_num_seqs: 9, num_replicas: 2"), NULL);
    for (int n = 0;; n++) {
        og_plan_changes c;
        og_err err = OG_ERR_INIT;
        og_alloc_fail_at(n + 1);
        int rc = og_plan_diff(p.old, p.now, NULL, &c, &err);
        int hit = og_alloc_failed();
        og_alloc_fail_at(0);
        if (rc == 0) {
            assert_int_equal(c.n, p.changes.n);
            og_plan_changes_free(&c);
        } else {
            assert_int_equal(rc, OG_ENOMEM);
        }
        if (!hit) break;
        assert_true(n < 500);
    }
    done(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_chunk_sizes_are_live),
        cmocka_unit_test(test_printed),
        cmocka_unit_test(test_what_was_loaded_counts),
        cmocka_unit_test(test_nothing_changes),
        cmocka_unit_test(test_another_checkpoint),
        cmocka_unit_test(test_which_replicas_serve),
        cmocka_unit_test(test_over_all_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
