/* Requests against a plan: fields, defaults, blank text, and what of the plan they use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/compile/archs.h"

#define TINY OG_SOURCE_DIR "/tests/data/qwen3_tts/tiny-a/custom_voice"

static og_plan *plan_of(const char *pipeline, const char *model) {
    og_plan_options o = fake_options(pipeline);
    og_plan *p = NULL;
    og_err err = OG_ERR_INIT;
    o.model = model;
    if (og_plan_build(&o, OG_PLAN_CHECK_ONLY, NULL, &p, &err) < 0) {
        print_error("%s\n", err.msg);
        fail();
    }
    return p;
}

static json_t *parse(const char *text) {
    json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!j) {
        print_error("bad JSON in the test: %s\n", text);
        fail();
    }
    return j;
}

/* The checked body as text, sorted; NULL when refused. */
static char *check(const og_plan *p, const char *body, og_diags *notes, og_err *err) {
    json_t *in = parse(body), *out = NULL;
    int rc = og_plan_request_check(p, in, &out, notes, err);
    char *text = rc == 0 ? json_dumps(out, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    assert_true((rc == 0) == (out != NULL));
    json_decref(out);
    json_decref(in);
    return text;
}

static void accepts(const og_plan *p, const char *body, const char *want) {
    og_err err = OG_ERR_INIT;
    char *got = check(p, body, NULL, &err);
    if (!got || strcmp(got, want) != 0) {
        print_error("%s\n gave %s\n want %s\n", body, got ? got : err.msg, want);
        fail();
    }
    free(got);
}

static void refuses(const og_plan *p, const char *body, const char *field,
                    const char *text) {
    og_err err = OG_ERR_INIT;
    char *got = check(p, body, NULL, &err);
    if (got || err.code != OG_EREJECT || strcmp(err.field, field) != 0 ||
        !strstr(err.msg, text)) {
        print_error("%s\n gave %s (field %s)\n", body, got ? got : err.msg, err.field);
        fail();
    }
    free(got);
}

static void test_blank_text_b055(void **state) {
    (void)state;
    og_plan *p = plan_of("qwen3_tts", TINY);
    refuses(p, "{}", "text", "missing");
    refuses(p, "{\"text\":null}", "text", "missing");
    refuses(p, "{\"text\":\"\"}", "text", "blank");
    refuses(p, "{\"text\":\" \\t\\n\"}", "text", "blank");
    refuses(p, "{\"text\":\"\\u3000\"}", "text", "blank");
    refuses(p, "{\"text\":\"\\u200b\\ufeff\\u00a0\"}", "text", "blank");
    accepts(p, "{\"text\":\"\\u3000a\"}",
            "{\"language\":\"auto\",\"text\":\"\xe3\x80\x80"
            "a\",\"x_vector_only_mode\":false}");
    og_plan_destroy(p);
}

static void test_words_without_case(void **state) {
    (void)state;
    og_plan *p = plan_of("qwen3_tts", TINY);
    accepts(p, "{\"text\":\"a\",\"voice\":\"RYAN\"}",
            "{\"language\":\"auto\",\"text\":\"a\",\"voice\":\"ryan\","
            "\"x_vector_only_mode\":false}");
    refuses(p, "{\"text\":\"a\",\"voice\":\"ryen\"}", "voice", "none of");
    og_err err = OG_ERR_INIT;
    assert_null(check(p, "{\"text\":\"a\",\"voice\":\"ryen\"}", NULL, &err));
    assert_non_null(strstr(err.hint, "ryan"));
    og_plan_destroy(p);
}

static void test_types(void **state) {
    (void)state;
    og_plan *p = plan_of("qwen3_tts", TINY);
    refuses(p, "{\"text\":5}", "text", "must be a string");
    refuses(p, "{\"text\":[\"a\"]}", "text", "must be a string");
    refuses(p, "{\"text\":\"a\",\"x_vector_only_mode\":\"maybe\"}", "x_vector_only_mode",
            "true or false");
    refuses(p, "{\"text\":\"a\",\"ref_audio\":7}", "ref_audio", "path");
    accepts(p, "{\"text\":\"a\",\"x_vector_only_mode\":\"Yes\"}",
            "{\"language\":\"auto\",\"text\":\"a\",\"x_vector_only_mode\":true}");
    refuses(p, "[]", "", "object");
    og_plan_destroy(p);
}

static void test_unknown_fields_warn(void **state) {
    (void)state;
    og_plan *p = plan_of("qwen3_tts", TINY);
    og_diags *notes = og_diags_create();
    og_err err = OG_ERR_INIT;
    char *got = check(p, "{\"text\":\"a\",\"vioce\":\"ryan\"}", notes, &err);
    assert_non_null(got);
    assert_null(strstr(got, "vioce"));
    assert_int_equal(og_diags_warnings(notes), 1);
    assert_non_null(strstr(og_diags_at(notes, 0)->hint, "voice"));
    free(got);
    og_diags_destroy(notes);
    og_plan_destroy(p);
}

static void test_numbers_and_sizes_b059(void **state) {
    (void)state;
    og_plan *p = plan_of("qwen_image", NULL);
    const char *head = "{\"prompt\":\"a\",";
    char body[256];
    static const struct {
        const char *rest, *field;
    } bad[] = {{"\"n\":0}", "n"},
               {"\"n\":11}", "n"},
               {"\"n\":1.5}", "n"},
               {"\"n\":\"two\"}", "n"},
               {"\"num_inference_steps\":1}", "num_inference_steps"},
               {"\"true_cfg_scale\":\"x\"}", "true_cfg_scale"},
               {"\"size\":\"0x512\"}", "size"},
               {"\"size\":\"-1x512\"}", "size"},
               {"\"size\":\"100000x100000\"}", "size"},
               {"\"size\":\"8x512\"}", "size"},
               {"\"size\":\"512\"}", "size"},
               {"\"size\":\"512x512x3\"}", "size"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(body, sizeof body, "%s%s", head, bad[i].rest);
        refuses(p, body, bad[i].field, bad[i].field);
    }
    og_diags *notes = og_diags_create();
    og_err err = OG_ERR_INIT;
    char *got =
        check(p, "{\"prompt\":\"a\",\"size\":\"1000X520\",\"n\":2.0}", notes, &err);
    assert_non_null(strstr(got, "\"size\":{\"height\":512,\"width\":992}"));
    assert_non_null(strstr(got, "\"n\":2"));
    assert_int_equal(og_diags_warnings(notes), 2);
    free(got);
    og_diags_destroy(notes);
    og_plan_destroy(p);
}

static void test_zero_is_a_value_b058(void **state) {
    (void)state;
    og_plan *p = plan_of("wan2_2_i2v", NULL);
    og_err err = OG_ERR_INIT;
    char *got = check(p,
                      "{\"prompt\":\"a\",\"image\":\"x.png\",\"seed\":0,"
                      "\"guidance_scale\":0,\"num_frames\":12}",
                      NULL, &err);
    assert_non_null(got);
    assert_non_null(strstr(got, "\"seed\":0"));
    assert_non_null(strstr(got, "\"guidance_scale\":0.0"));
    assert_non_null(strstr(got, "\"num_frames\":9")); /* 1 + 4k */
    free(got);
    og_plan_destroy(p);
}

static void test_lists(void **state) {
    (void)state;
    og_plan *p = plan_of("dialogue", TINY);
    og_err err = OG_ERR_INIT;
    char *got = check(p, "{\"text\":\"A: b\",\"voices\":\"ryan,vivian\"}", NULL, &err);
    assert_non_null(strstr(got, "\"voices\":[\"ryan\",\"vivian\"]"));
    free(got);
    refuses(p, "{\"text\":\"A: b\",\"voices\":3}", "voices", "list");
    refuses(p, "{\"text\":\"A: b\",\"voices\":[3]}", "voices", "string");
    og_plan_destroy(p);
}

/* ---- what is used ---------------------------------------------------------------- */

static int gate(const og_plan *p, const char *body, const char *const *want, int n,
                unsigned char *stage, unsigned char *edge, og_err *err) {
    json_t *in = parse(body), *out = NULL;
    int rc = og_plan_request_check(p, in, &out, NULL, err);
    if (rc == 0) {
        rc = og_plan_gate(p, out, want, n, stage, edge, err);
    }
    json_decref(out);
    json_decref(in);
    return rc;
}

static bool stage_on(const og_plan *p, const unsigned char *on, const char *name) {
    int i = og_plan_find_stage(p, name);
    assert_true(i >= 0);
    return on[i];
}

static const char *const chat = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]";

static void test_text_alone_leaves_audio_off_b074(void **state) {
    (void)state;
    og_plan *p = plan_of("qwen3_omni", NULL);
    unsigned char on[16], edges[16];
    og_err err = OG_ERR_INIT;
    char body[256];
    /* Without a checkpoint the `$` part of `when` holds nowhere: text is all there is. */
    snprintf(body, sizeof body, "%s,\"modalities\":[\"text\"]}", chat);
    assert_int_equal(gate(p, body, NULL, 0, on, edges, &err), 0);
    assert_true(stage_on(p, on, "thinker"));
    assert_false(stage_on(p, on, "talker"));
    assert_false(stage_on(p, on, "code2wav"));
    assert_false(stage_on(p, on, "vision"));
    assert_false(stage_on(p, on, "audio_enc"));
    snprintf(body, sizeof body, "%s,\"modalities\":[]}", chat);
    assert_int_equal(gate(p, body, NULL, 0, on, edges, &err), OG_EREJECT);
    assert_non_null(strstr(err.msg, "text"));
    og_plan_destroy(p);
}

static void test_pictures_turn_vision_on(void **state) {
    (void)state;
    og_plan *p = plan_of("qwen3_omni", NULL);
    unsigned char on[16], edges[16];
    og_err err = OG_ERR_INIT;
    const char *body =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"},"
        "{\"type\":\"text\",\"text\":\"hi\"}]}]}";
    assert_int_equal(gate(p, body, NULL, 0, on, edges, &err), 0);
    assert_true(stage_on(p, on, "vision"));
    assert_false(stage_on(p, on, "audio_enc"));
    og_plan_destroy(p);
}

static void test_only_what_is_wanted_runs(void **state) {
    (void)state;
    og_plan *p = plan_of("qwen3_tts", TINY);
    unsigned char on[16], edges[16];
    og_err err = OG_ERR_INIT;
    const char *audio[] = {"audio"}, *text[] = {"text"};
    assert_int_equal(gate(p, "{\"text\":\"a\"}", audio, 1, on, edges, &err), 0);
    assert_true(stage_on(p, on, "talker") && stage_on(p, on, "code2wav"));
    for (int i = 0; i < p->n_edges; i++) {
        assert_true(edges[i]);
    }
    assert_int_equal(gate(p, "{\"text\":\"a\"}", text, 1, on, edges, &err), OG_EREJECT);
    og_plan_destroy(p);
}

static void test_reference_turns_the_encoder_on(void **state) {
    (void)state;
    og_plan *p = plan_of("higgs_v3", NULL);
    unsigned char on[16], edges[16];
    og_err err = OG_ERR_INIT;
    assert_int_equal(gate(p, "{\"text\":\"a\"}", NULL, 0, on, edges, &err), 0);
    assert_false(stage_on(p, on, "ref_codec"));
    assert_true(stage_on(p, on, "talker"));
    assert_int_equal(
        gate(p, "{\"text\":\"a\",\"ref_audio\":\"x.wav\"}", NULL, 0, on, edges, &err), 0);
    assert_true(stage_on(p, on, "ref_codec"));
    og_plan_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blank_text_b055),
        cmocka_unit_test(test_words_without_case),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_unknown_fields_warn),
        cmocka_unit_test(test_numbers_and_sizes_b059),
        cmocka_unit_test(test_zero_is_a_value_b058),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_text_alone_leaves_audio_off_b074),
        cmocka_unit_test(test_pictures_turn_vision_on),
        cmocka_unit_test(test_only_what_is_wanted_runs),
        cmocka_unit_test(test_reference_turns_the_encoder_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
