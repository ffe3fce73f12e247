#include "spec_test.h"

static const char *const dirs[] = {OG_SOURCE_DIR "/pipelines"};

static og_pipeline *load(const char *name) {
    og_diags *d = og_diags_create();
    og_err err = OG_ERR_INIT;
    og_pipeline *p = NULL;
    int rc = og_pipeline_load(name, dirs, 1, d, &p, &err);
    assert_silent(d);
    assert_int_equal(rc, 0);
    og_diags_destroy(d);
    return p;
}

static void test_all_load(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int stages, edges, routes;
    } all[] = {
        {"bagel", 5, 9, 5},      {"cosyvoice3", 5, 9, 0},      {"dialogue", 4, 5, 0},
        {"higgs_v3", 3, 4, 0},   {"qwen3_omni", 5, 8, 0},      {"qwen3_tts", 4, 5, 0},
        {"qwen_image", 3, 4, 0}, {"qwen_image_edit", 5, 7, 0}, {"wan2_2_i2v", 4, 6, 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        og_pipeline *p = load(all[i].name);
        assert_int_equal(p->n_stages, all[i].stages);
        assert_int_equal(p->n_edges, all[i].edges);
        assert_int_equal(p->n_routes, all[i].routes);
        og_pipeline_destroy(p);
    }
    assert_int_equal(og_alloc_live(), 0);
}

static void test_qwen3_tts(void **state) {
    (void)state;
    og_pipeline *p = load("qwen3_tts");
    assert_string_equal(p->match[0].key, "model_type");
    assert_string_equal(p->match[0].value, "qwen3_tts");
    const og_spec_field *voice = &p->request[og_pipeline_field(p, "voice")];
    assert_true(voice->type.optional && voice->has_one_of_ref);
    assert_string_equal(voice->one_of_ref.scope, "talker");
    assert_string_equal(voice->one_of_ref.key, "spk_id");
    const og_spec_field *lang = &p->request[og_pipeline_field(p, "language")];
    assert_string_equal(lang->def->text, "auto");
    const og_spec_stage *talker = &p->stages[og_pipeline_stage(p, "talker")];
    assert_int_equal(talker->id, 0);
    assert_string_equal(talker->node, "ar_decoder");
    assert_string_equal(talker->stop_token_ids->items[0]->text,
                        "$talker.codec_eos_token_id");
    assert_string_equal(talker->min_tokens->text, "2");
    const og_spec_stage *codec = &p->stages[og_pipeline_stage(p, "ref_codec")];
    assert_int_equal(codec->id, -1);
    assert_string_equal(codec->weights[0].folder, "speech_tokenizer");
    assert_int_equal(codec->when->op, OG_COND_AND);
    const og_spec_edge *e = &p->edges[2];
    assert_int_equal(e->n_from, 3);
    assert_string_equal(e->from[1].alias, "xvec");
    assert_true(e->from[1].optional);
    assert_int_equal(e->from[1].stage, og_pipeline_stage(p, "speaker"));
    assert_string_equal(e->from[1].name, "embedding");
    assert_string_equal(e->hook_file, "qwen3_tts");
    assert_string_equal(e->hook_function, "prompt");
    assert_int_equal(p->edges[3].n_chunk, 5);
    assert_int_equal(p->edges[3].chunk[4], 12);
    assert_int_equal(p->edges[0].via, OG_VIA_RESAMPLE);
    assert_int_equal(p->edges[4].to[0].kind, OG_END_RESPONSE);
    assert_string_equal(p->edges[4].to[0].name, "audio");
    assert_string_equal(og_pipeline_near_stage(p, "taker"), "talker");
    og_pipeline_destroy(p);
}

static void test_base_merging(void **state) {
    (void)state;
    og_pipeline *p = load("dialogue");
    assert_int_equal(p->n_bases, 1);
    assert_int_equal(og_pipeline_field(p, "voice"), -1);
    assert_true(og_pipeline_field(p, "language") >= 0);
    const og_spec_field *voices = &p->request[og_pipeline_field(p, "voices")];
    assert_true(voices->type.list);
    assert_int_equal(voices->def->n, 2);
    int lines = 0, joins = 0;
    for (int i = 0; i < p->n_edges; i++) {
        lines += p->edges[i].numbered;
        joins += p->edges[i].join && p->edges[i].join_gap == 0.25;
        if (p->edges[i].hook) assert_string_equal(p->edges[i].hook, "dialogue.lines");
    }
    assert_int_equal(lines, 1);
    assert_int_equal(joins, 1);
    assert_non_null(strstr(p->edges[0].src.file, "qwen3_tts.yaml"));
    assert_non_null(strstr(p->edges[4].src.file, "dialogue.yaml"));
    og_pipeline_destroy(p);
    p = load("qwen_image_edit");
    assert_int_equal(p->n_match, 1);
    assert_string_equal(p->match[0].value, "QwenImageEditPipeline");
    const og_spec_field *size = &p->request[og_pipeline_field(p, "size")];
    assert_true(size->has_area && size->area == 1048576 && size->area_step == 32);
    assert_string_equal(size->area_of, "image");
    assert_true(size->has_step && size->step == 16);
    og_pipeline_destroy(p);
}

static void test_phases_and_lanes(void **state) {
    (void)state;
    og_pipeline *p = load("bagel");
    assert_int_equal(p->n_phases, 4);
    const og_spec_phase *read = &p->phases[og_pipeline_phase(p, "read")];
    assert_int_equal(read->n_edges, 3);
    const og_spec_edge *hook = &p->edges[read->first + 2];
    assert_int_equal(hook->n_lanes, 3);
    assert_string_equal(hook->lanes[1].name, "no_text");
    assert_true(hook->lanes[1].optional);
    assert_int_equal(p->edges[read->first].resize.max, 1024);
    assert_int_equal(p->edges[read->first].resize.to_field, -1);
    assert_string_equal(p->routes[0].name, "understand");
    assert_int_equal(p->routes[0].n_phases, 2);
    assert_string_equal(p->routes[1].next_function, "next");
    assert_null(p->routes[4].when);
    assert_string_equal(p->stages[og_pipeline_stage(p, "dit")].with, "llm");
    og_pipeline_destroy(p);
    p = load("wan2_2_i2v");
    const og_spec_stage *dit = &p->stages[og_pipeline_stage(p, "dit")];
    assert_int_equal(dit->n_weights, 2);
    assert_string_equal(dit->weights[1].role, "low");
    assert_string_equal(dit->weights[1].folder, "transformer_2");
    assert_null(p->match[1].value);
    assert_int_equal(p->edges[1].resize.to_field, og_pipeline_field(p, "size"));
    og_pipeline_destroy(p);
    p = load("qwen3_omni");
    assert_string_equal(p->edges[1].from[0].part, "images");
    assert_int_equal(p->edges[4].via, OG_VIA_DETOKENIZE);
    assert_non_null(p->edges[4].when);
    og_pipeline_destroy(p);
}

static void test_many_errors_at_once(void **state) {
    (void)state;
    const char *text = "schema: omni-graph/1\npipeline: p\nrequest: {a: txt, b: int}\n"
                       "stages:\n  - {name: s, node: vae, arch: x, when: c}\n"
                       "edges:\n  - {from: request.b, to: t.in}\n"
                       "  - {from: s.out, to: response.smell}\n";
    og_diags *d = og_diags_create();
    og_err err = OG_ERR_INIT;
    og_pipeline *p;
    int rc = og_pipeline_parse("many.yaml", text, strlen(text), NULL, 0, d, &p, &err);
    assert_int_equal(rc, OG_ESPEC);
    assert_null(p);
    assert_int_equal(og_diags_errors(d), 4);
    assert_string_equal(err.file, "many.yaml");
    assert_int_equal(err.line, 3);
    rc = og_pipeline_parse("many.yaml", text, strlen(text), NULL, 0, d, &p, NULL);
    assert_int_equal(rc, OG_ESPEC);
    og_diags_destroy(d);
}

static void test_not_found(void **state) {
    (void)state;
    og_diags *d = og_diags_create();
    og_err err = OG_ERR_INIT;
    og_pipeline *p;
    assert_int_equal(og_pipeline_load("nosuch", dirs, 1, d, &p, &err), OG_ENOENT);
    assert_int_equal(og_diags_errors(d), 1);
    og_diags_destroy(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_load),
        cmocka_unit_test(test_qwen3_tts),
        cmocka_unit_test(test_base_merging),
        cmocka_unit_test(test_phases_and_lanes),
        cmocka_unit_test(test_many_errors_at_once),
        cmocka_unit_test(test_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
