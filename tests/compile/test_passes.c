/* The passes alone: unify, order, the hook scanner, gating, lanes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "graph/compile/compile.h"
#include "tests/compile/archs.h"

/* ---- unify ----------------------------------------------------------------------- */

static og_type type(og_arena *a, const char *text) {
    og_type t;
    og_src src = {"test", 1, 1};
    assert_true(og_type_parse(text, src, a, NULL, &t));
    return t;
}

static void expect_unify(const char *x, const char *y, const char *field) {
    og_arena *a = og_arena_create();
    og_type p = type(a, x), q = type(a, y), u;
    og__type_diff diff = {0};
    bool ok = og__plan_type_unify(&p, &q, &u, &diff);
    if (ok != (field == NULL) || (field && strcmp(diff.field, field) != 0)) {
        print_error("%s and %s: %s\n", x, y, ok ? "unified" : diff.field);
        fail();
    }
    og_arena_destroy(a);
}

static void test_unify_types(void **state) {
    (void)state;
    expect_unify("codes[16]", "codes[16]", NULL);
    expect_unify("codes[16]", "codes", NULL);
    expect_unify("codes", "codes[16]?", NULL);
    expect_unify("image", "list(image)", NULL);
    expect_unify("hidden[$a.width]", "hidden[12]", NULL);
    expect_unify("codes[16]", "codes[8]", "number of groups");
    expect_unify("audio[24000]", "audio[16000]", "rate");
    expect_unify("hidden[4]", "hidden[5]", "width");
    expect_unify("hidden[4]", "embeds[4]", "kind");
    expect_unify("list(image)", "image", "list");
    expect_unify("mel[80]", "mel[128]", "number of bins");
}

static void test_unified_type_keeps_what_is_known(void **state) {
    (void)state;
    og_arena *a = og_arena_create();
    og_type p = type(a, "codes[16]"), q = type(a, "codes"), u;
    og__type_diff diff;
    assert_true(og__plan_type_unify(&p, &q, &u, &diff));
    assert_int_equal(u.n_dims, 1);
    assert_int_equal(u.dims[0].value, 16);
    og_arena_destroy(a);
}

/* ---- order ----------------------------------------------------------------------- */

static void test_order(void **state) {
    (void)state;
    int from[] = {2, 2, 0, 3}, to[] = {0, 3, 1, 1}, order[4], cycle[5];
    assert_int_equal(og__plan_topo(4, 4, from, to, order, cycle), 0);
    int want[] = {2, 0, 3, 1};
    assert_memory_equal(order, want, sizeof want);
}

static void test_cycles_in_order_b018(void **state) {
    (void)state;
    int from[] = {0, 1, 2, 3}, to[] = {1, 2, 3, 1}, order[4], cycle[5];
    assert_int_equal(og__plan_topo(4, 4, from, to, order, cycle), 3);
    int want[] = {1, 2, 3, 1};
    assert_memory_equal(cycle, want, sizeof want);
    int self = 1;
    assert_int_equal(og__plan_topo(2, 1, &self, &self, order, cycle), 1);
    assert_int_equal(cycle[0], 1);
    assert_int_equal(cycle[1], 1);
}

/* ---- the hook scanner ------------------------------------------------------------ */

static bool listed(const char **names, int n, const char *name) {
    for (int i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void test_hook_scan(void **state) {
    (void)state;
    const char *text =
        "local M = {}\n"
        "function M.other(ctx, src) return src.no end\n"
        "-- src.comment  ctx:emit{bad = 1}\n"
        "function M.f(ctx, src)\n"
        "  local s = \"src.string\" .. 'src.q\\'uote' --[==[ src.long ]] ]==]\n"
        "  if src.a == src.b then ctx:emit{codes = f{inner = 1}, mute = true} end\n"
        "  ctx:emit({prompt = x == y, fill = p, [k] = 2, lane = 1})\n"
        "  for i = 1, 2 do local g = function() return src.c end end\n"
        "end\n"
        "function M.g(ctx, src) return src.no end\n";
    og_arena *a = og_arena_create();
    og__hook_names n;
    assert_int_equal(og__plan_hook_scan(a, text, strlen(text), "f", &n), 0);
    assert_true(n.found);
    assert_int_equal(n.n_reads, 3);
    assert_true(listed(n.reads, 3, "a") && listed(n.reads, 3, "b") &&
                listed(n.reads, 3, "c"));
    assert_int_equal(n.n_emits, 2);
    assert_true(listed(n.emits, 2, "codes") && listed(n.emits, 2, "prompt"));
    assert_int_equal(og__plan_hook_scan(a, text, strlen(text), "none", &n), 0);
    assert_false(n.found);
    assert_int_equal(og__plan_hook_scan(a, "function M.f(--[[", 17, "f", &n), 0);
    og_arena_destroy(a);
}

/* ---- gate ------------------------------------------------------------------------ */

typedef struct opened {
    og__build b;
    og_plan_options o;
    og_diags *d;
} opened;

static void open_build(opened *t, const char *pipeline, const char *model) {
    memset(t, 0, sizeof *t);
    t->o = fake_options(pipeline);
    t->o.model = model;
    t->d = og_diags_create();
    og_err err = OG_ERR_INIT;
    assert_int_equal(og__build_open(&t->b, &t->o, OG_PLAN_CHECK_ONLY, t->d, &err), 0);
    assert_int_equal(og__pass_resolve(&t->b), 0);
    assert_int_equal(og__pass_gate(&t->b), 0);
}

static void close_build(opened *t) {
    og__build_close(&t->b);
    og_diags_destroy(t->d);
}

static const og__bstage *stage(const opened *t, const char *name) {
    return &t->b.bs[og_pipeline_stage(t->b.spec, name)];
}

static void test_gate_without_a_checkpoint(void **state) {
    (void)state;
    opened t;
    open_build(&t, "qwen3_tts", NULL);
    assert_int_equal(t.b.n_stages, 4);
    assert_int_equal(stage(&t, "speaker")->on, OG_UNKNOWN);
    assert_int_equal(stage(&t, "talker")->on, OG_TRUE);
    close_build(&t);
}

static void test_gate_with_a_checkpoint(void **state) {
    (void)state;
    opened t;
    open_build(&t, "qwen3_tts",
               OG_SOURCE_DIR "/tests/data/qwen3_tts/tiny-a/custom_voice");
    assert_int_equal(t.b.n_stages, 2);
    assert_true(stage(&t, "speaker")->dropped);
    assert_true(stage(&t, "ref_codec")->dropped);
    int kept = 0;
    for (int i = 0; i < t.b.spec->n_edges; i++) {
        kept += !t.b.be[i].dropped;
    }
    assert_int_equal(kept, 3);
    close_build(&t);
}

/* ---- lanes ----------------------------------------------------------------------- */

static void test_lanes_flow_to_the_gatherer(void **state) {
    (void)state;
    opened t;
    open_build(&t, "qwen_image", NULL);
    assert_int_equal(og__pass_fields(&t.b), 0);
    assert_int_equal(og__pass_wire(&t.b), 0);
    assert_int_equal(og__pass_lanes(&t.b), 0);
    for (int i = 0; i < t.b.n_edges; i++) {
        const og_plan_edge *e = &t.b.edges[i];
        bool carries = strcmp(e->from[0].text, "text.hidden") == 0;
        assert_int_equal(e->carries_lanes, carries);
    }
    assert_int_equal(og_diags_errors(t.d), 0);
    close_build(&t);
}

static void test_fields(void **state) {
    (void)state;
    opened t;
    open_build(&t, "qwen_image_edit", NULL);
    assert_int_equal(og__pass_fields(&t.b), 0);
    int i = og_pipeline_field(t.b.spec, "size");
    assert_true(t.b.fields[i].has_area);
    assert_int_equal(t.b.fields[i].area_of, og_pipeline_field(t.b.spec, "image"));
    i = og_pipeline_field(t.b.spec, "true_cfg_scale");
    assert_true(json_real_value(t.b.fields[i].def) == 4.0);
    close_build(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unify_types),
        cmocka_unit_test(test_unified_type_keeps_what_is_known),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_cycles_in_order_b018),
        cmocka_unit_test(test_hook_scan),
        cmocka_unit_test(test_gate_without_a_checkpoint),
        cmocka_unit_test(test_gate_with_a_checkpoint),
        cmocka_unit_test(test_lanes_flow_to_the_gatherer),
        cmocka_unit_test(test_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
