/* Plans that must stand: the nine pipelines, and Qwen3-TTS with real configurations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tests/compile/archs.h"

#define TINY OG_SOURCE_DIR "/tests/data/qwen3_tts/tiny-a"

static const char *const nine[] = {"bagel",      "cosyvoice3",      "dialogue",
                                   "higgs_v3",   "qwen3_omni",      "qwen3_tts",
                                   "qwen_image", "qwen_image_edit", "wan2_2_i2v"};

static void show(const og_diags *d, const char *what) {
    og_str s = OG_STR_INIT;
    og_diags_print(d, &s);
    print_error("%s:\n%s\n", what, s.data ? s.data : "");
    og_str_free(&s);
}

/* Build; fails the test with the messages when it does not work. */
static og_plan *build(const og_plan_options *o, int flags, og_diags **diags) {
    og_diags *d = og_diags_create();
    og_plan *p = NULL;
    og_err err = OG_ERR_INIT;
    if (og_plan_build(o, flags, d, &p, &err) < 0) {
        show(d, err.msg);
        fail();
    }
    if (diags) {
        *diags = d;
    } else {
        og_diags_destroy(d);
    }
    return p;
}

static og_plan_options real(const char *pipeline, const char *model) {
    og_plan_options o = fake_options(pipeline);
    memset(&o.registry, 0, sizeof o.registry);
    o.model = model;
    return o;
}

static void test_nine_pass_with_known_archs(void **state) {
    (void)state;
    for (size_t i = 0; i < 9; i++) {
        og_plan_options o = fake_options(nine[i]);
        og_diags *d;
        og_plan *p = build(&o, OG_PLAN_CHECK_ONLY, &d);
        if (og_diags_errors(d) || og_diags_warnings(d)) {
            show(d, nine[i]);
            fail();
        }
        /* Some wait for phases or for converters. */
        static const char *const blocked = "bagel qwen3_omni qwen_image_edit wan2_2_i2v";
        assert_int_equal(p->runnable,
                         !strstr(blocked, nine[i]) || strcmp(nine[i], "qwen_image") == 0);
        assert_int_equal(p->n_order, p->n_stages);
        og_plan_destroy(p);
        og_diags_destroy(d);
    }
}

static void test_nine_pass_in_check_mode(void **state) {
    (void)state;
    for (size_t i = 0; i < 9; i++) {
        og_plan_options o = real(nine[i], NULL);
        og_plan *p = build(&o, OG_PLAN_CHECK_ONLY, NULL);
        /* The others have archs that are not here. */
        assert_int_equal(p->runnable, strcmp(nine[i], "qwen3_tts") == 0 ||
                                          strcmp(nine[i], "dialogue") == 0);
        assert_int_equal(p->n_blockers == 0, p->runnable);
        og_plan_destroy(p);
    }
}

static void test_unknown_archs_stop_a_run(void **state) {
    (void)state;
    og_plan_options o = real("cosyvoice3", TINY "/custom_voice");
    og_diags *d = og_diags_create();
    og_plan *p = NULL;
    og_err err = OG_ERR_INIT;
    assert_true(og_plan_build(&o, 0, d, &p, &err) < 0);
    assert_null(p);
    assert_non_null(strstr(err.msg, "not for this checkpoint"));
    og_diags_destroy(d);
}

static void test_custom_voice(void **state) {
    (void)state;
    og_plan_options o = real(NULL, TINY "/custom_voice"); /* picked by `match` */
    og_plan *p = build(&o, 0, NULL);
    assert_string_equal(p->name, "qwen3_tts");
    assert_true(p->runnable);
    assert_int_equal(p->n_stages, 2); /* the encoders leave: not a base checkpoint */
    assert_int_equal(p->n_edges, 3);
    int t = og_plan_find_stage(p, "talker"), v = og_plan_find_stage(p, "code2wav");
    assert_int_equal(t, p->order[0]);
    assert_int_equal(v, p->order[1]);
    assert_int_equal(p->n_groups, 1);
    assert_int_equal(p->groups[0].n_stages, 2);
    const og_plan_stage *s = &p->stages[t];
    assert_int_equal(s->sampling.n_stop, 1);
    assert_int_equal(s->sampling.min_tokens, 2);
    assert_true(s->has_node_plan && s->node.weight_bytes > 0 && s->node.kv_bytes > 0);
    assert_string_equal(p->stages[v].folder, "speech_tokenizer");
    assert_int_equal(p->responses[0].rate, 24000);
    const og_plan_edge *prompt = &p->edges[0], *codes = &p->edges[1];
    assert_true(prompt->at_admission);
    assert_int_equal(prompt->n_from, 1);
    assert_non_null(prompt->env->tokenizer);
    assert_int_equal(prompt->env->max_rows, s->max_model_len);
    assert_false(codes->at_admission);
    assert_int_equal(codes->n_chunk, 5);
    assert_int_equal(codes->width, 16);
    assert_true(codes->budget_bytes > 0);
    assert_int_equal(codes->max_items, s->sampling.max_tokens);
    assert_int_equal(p->edges[2].max_items, (int64_t)s->sampling.max_tokens * 1920);
    int f = og_plan_find_field(p, "voice");
    assert_true(p->fields[f].n_one_of > 0);
    og_plan_destroy(p);
}

static void test_voice_design(void **state) {
    (void)state;
    og_plan_options o = real("qwen3_tts", TINY "/voice_design");
    og_plan *p = build(&o, 0, NULL);
    assert_int_equal(p->n_stages, 2);
    assert_int_equal(p->fields[og_plan_find_field(p, "voice")].n_one_of, 0);
    og_plan_destroy(p);
}

static void test_dialogue(void **state) {
    (void)state;
    og_plan_options o = real("dialogue", TINY "/custom_voice");
    og_plan *p = build(&o, 0, NULL);
    const og_plan_edge *last = &p->edges[p->responses[0].edge];
    assert_true(last->join && last->join_gap == 0.25 && last->carries_lanes);
    assert_true(p->edges[0].numbered || p->edges[1].numbered || p->edges[2].numbered);
    assert_int_equal(og_plan_find_field(p, "voice"), -1);
    og_plan_destroy(p);
}

static void test_greedy_and_max_tokens(void **state) {
    (void)state;
    og_plan_options o = real("qwen3_tts", TINY "/custom_voice");
    o.greedy = true;
    o.max_tokens = 7;
    og_plan *p = build(&o, 0, NULL);
    const og_plan_stage *s = &p->stages[og_plan_find_stage(p, "talker")];
    assert_true(s->sampling.temperature == 0 && s->head_sampling.temperature == 0);
    assert_int_equal(s->sampling.max_tokens, 7);
    assert_false(s->max_tokens_soft);
    og_plan_destroy(p);
}

static void test_dummy_weights(void **state) {
    (void)state;
    og_plan_options o = real("qwen3_tts", TINY "/custom_voice");
    const char *sets[] = {"talker.load_format=dummy"};
    o.sets = sets, o.n_sets = 1;
    og_plan *p = build(&o, 0, NULL);
    assert_true(og_model_is_dummy(p->model));
    og_plan_destroy(p);
}

/* Meaning makes the fingerprint: limits of the overlay do not, a checkpoint's dims do. */
static void test_fingerprint(void **state) {
    (void)state;
    og_plan_options o = real("qwen3_tts", TINY "/custom_voice");
    og_plan *a = build(&o, 0, NULL);
    const char *sets[] = {"talker.max_num_seqs=3", "async_chunk=false"};
    o.sets = sets, o.n_sets = 2;
    og_plan *b = build(&o, 0, NULL);
    o = real("dialogue", TINY "/custom_voice");
    og_plan *c = build(&o, 0, NULL);
    assert_string_equal(a->fingerprint_hex, b->fingerprint_hex);
    assert_string_not_equal(a->fingerprint_hex, c->fingerprint_hex);
    assert_int_equal(b->stages[og_plan_find_stage(b, "talker")].max_num_seqs, 3);
    assert_true(b->edges[1].whole && b->edges[1].n_chunk == 0);
    assert_int_equal(a->stages[0].stage_key, b->stages[0].stage_key);
    assert_true(a->stages[0].stage_key != a->stages[1].stage_key);
    og_plan_destroy(a);
    og_plan_destroy(b);
    og_plan_destroy(c);
}

static void test_print_json_explain(void **state) {
    (void)state;
    og_plan_options o = real("qwen3_tts", TINY "/custom_voice");
    const char *sets[] = {"talker.max_num_seqs=3"};
    o.sets = sets, o.n_sets = 1;
    og_plan *p = build(&o, 0, NULL);
    og_str s = OG_STR_INIT;
    og_plan_print(p, &s);
    assert_non_null(strstr(s.data, "pipeline qwen3_tts"));
    assert_non_null(strstr(s.data, "talker.codes: codes[16]"));
    assert_non_null(strstr(s.data, "chunks 1,2,4,8,12"));
    assert_non_null(strstr(s.data, "hook qwen3_tts.prompt (at admission)"));
    og_str_free(&s);
    og_plan_explain(p, &s);
    assert_non_null(strstr(s.data, "max_num_seqs"));
    og_str_free(&s);
    json_t *j = og_plan_json(p);
    assert_non_null(j);
    assert_int_equal(json_array_size(json_object_get(j, "stages")), 2);
    assert_true(json_is_object(json_object_get(j, "effective")));
    assert_non_null(json_object_get(j, "merged"));
    json_decref(j);
    og_plan_destroy(p);
}

static void test_check_request_prints_recipes(void **state) {
    (void)state;
    og_plan_options o = real("qwen3_tts", TINY "/custom_voice");
    og_plan *p = build(&o, 0, NULL);
    const og_plan_field *voice = &p->fields[og_plan_find_field(p, "voice")];
    json_t *r = json_pack("{s:s,s:s}", "text", "Hello there.", "voice", voice->one_of[0]);
    og_str s = OG_STR_INIT;
    og_err err = OG_ERR_INIT;
    int rc = og_plan_check_request(p, r, &s, NULL, &err);
    if (rc < 0) {
        print_error("%s\n", err.msg);
    }
    assert_int_equal(rc, 0);
    assert_non_null(strstr(s.data, "hook qwen3_tts.prompt"));
    assert_non_null(strstr(s.data, "prompt"));
    og_str_free(&s);
    json_object_set_new(r, "voice", json_string("nobody"));
    assert_int_equal(og_plan_check_request(p, r, &s, NULL, &err), OG_EREJECT);
    assert_string_equal(err.field, "voice");
    og_str_free(&s);
    json_decref(r);
    og_plan_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nine_pass_with_known_archs),
        cmocka_unit_test(test_nine_pass_in_check_mode),
        cmocka_unit_test(test_unknown_archs_stop_a_run),
        cmocka_unit_test(test_custom_voice),
        cmocka_unit_test(test_voice_design),
        cmocka_unit_test(test_dialogue),
        cmocka_unit_test(test_greedy_and_max_tokens),
        cmocka_unit_test(test_dummy_weights),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_print_json_explain),
        cmocka_unit_test(test_check_request_prints_recipes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
