/* What the talker asks of its config and of its weights: messages name the key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/nodes/talker.h"

static json_t *section_of(const char *folder) {
    char path[4096], rest[128];
    og_err err = OG_ERR_INIT;
    snprintf(rest, sizeof rest, "tests/data/qwen3_tts/%s/custom_voice/config.json", folder);
    json_t *root = og_json_load(source_path(path, sizeof path, rest), 1 << 20, 16, &err);
    assert_non_null(root);
    json_t *s = json_deep_copy(json_object_get(root, "talker_config"));
    json_decref(root);
    return s;
}

/* Put value (NULL: nothing) at a key, one level deep in code_predictor_config when cp. */
static int with(const char *key, int cp, json_t *value, og_err *err) {
    const og_arch *a = og_arch_find("qwen3_tts_talker");
    json_t *s = section_of("tiny-b");
    json_t *at = cp ? json_object_get(s, "code_predictor_config") : s;
    if (value) json_object_set_new(at, key, value);
    else json_object_del(at, key);
    *err = (og_err)OG_ERR_INIT;
    int rc = a->check(s, err);
    json_decref(s);
    return rc;
}

static void test_every_key_is_asked_for(void **state) {
    (void)state;
    static const char *const keys[] = {
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "rope_theta", "rms_norm_eps", "vocab_size",
        "text_vocab_size", "text_hidden_size", "num_code_groups", "codec_eos_token_id"};
    og_err err;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        assert_int_equal(with(keys[i], 0, NULL, &err), OG_EFORMAT);
        assert_string_equal(err.field, keys[i]);
        assert_non_null(strstr(err.msg, keys[i]));
        if (i >= 8) continue;
        char full[96];
        snprintf(full, sizeof full, "code_predictor_config.%s", keys[i]);
        assert_int_equal(with(keys[i], 1, NULL, &err), OG_EFORMAT);
        assert_string_equal(err.field, full);
    }
    assert_int_equal(with("code_predictor_config", 0, NULL, &err), OG_EFORMAT);
}

static void test_keys_that_may_be_left_out(void **state) {
    (void)state;
    og_err err;
    assert_int_equal(with("max_position_embeddings", 0, NULL, &err), 0);
    assert_int_equal(with("hidden_act", 0, NULL, &err), 0);
    assert_int_equal(with("num_code_groups", 1, NULL, &err), 0);
    assert_int_equal(with("head_dim", 0, NULL, &err), 0); /* 48 / 6 */
    assert_int_equal(with("head_dim", 1, NULL, &err), 0); /* 40 / 5 */
    assert_int_equal(with("rope_scaling", 0, NULL, &err), 0);
}

static void test_values_that_do_not_fit(void **state) {
    (void)state;
    og_err err;
    struct {
        const char *key;
        int cp;
        json_t *value;
        int want;
        const char *says;
    } bad[] = {
        {"num_key_value_heads", 0, json_integer(4), OG_EFORMAT, "does not divide"},
        {"num_key_value_heads", 0, json_integer(7), OG_ELIMIT, "num_key_value_heads"},
        {"head_dim", 1, json_integer(13), OG_EFORMAT, "code_predictor_config.head_dim"},
        {"num_code_groups", 0, json_integer(1), OG_ELIMIT, "num_code_groups"},
        {"num_code_groups", 1, json_integer(9), OG_EFORMAT,
         "code_predictor_config.num_code_groups is 9, num_code_groups is 10"},
        {"codec_eos_token_id", 0, json_integer(1152), OG_ELIMIT, "codec_eos_token_id"},
        {"vocab_size", 0, json_integer(1024), OG_ELIMIT, "vocab_size"},
        {"vocab_size", 1, json_integer(1153), OG_ELIMIT, "code_predictor_config.vocab_size"},
        {"hidden_size", 0, json_string("48"), OG_EFORMAT, "hidden_size"},
        {"hidden_act", 0, json_string("gelu"), OG_EUNSUPPORTED, "'gelu'"},
        {"attention_bias", 1, json_true(), OG_EUNSUPPORTED,
         "code_predictor_config.attention_bias"},
        {"use_sliding_window", 0, json_true(), OG_EUNSUPPORTED, "use_sliding_window"},
        {"rms_norm_eps", 0, json_real(-1), OG_ELIMIT, "rms_norm_eps"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int rc = with(bad[i].key, bad[i].cp, bad[i].value, &err);
        if (rc != bad[i].want || !strstr(err.msg, bad[i].says))
            fail_msg("%s: %d %s", bad[i].key, rc, err.msg);
    }
}

static void plan_of(const char *folder, og_node_cfg *cfg, og_node_plan *p) {
    og_err err = OG_ERR_INIT;
    char path[4096], rest[128];
    snprintf(rest, sizeof rest, "tests/data/qwen3_tts/%s/custom_voice", folder);
    *cfg = TALKER_CFG;
    cfg->arch = og_arch_find("qwen3_tts_talker");
    cfg->folder = "";
    assert_int_equal(og_model_open(source_path(path, sizeof path, rest), &cfg->model, &err),
                     0);
    assert_int_equal(og_kind_get(OG_KIND_AR)->plan(cfg->arch, cfg, p, &err), 0);
}

/* The plan from the config agrees with what the node then takes. */
static void test_plan_is_what_is_taken(void **state) {
    (void)state;
    static const char *const folders[] = {"tiny-a", "tiny-b"};
    for (int i = 0; i < 2; i++) {
        og_node_cfg cfg;
        og_node_plan p;
        og_node_stats st;
        talker_fix f;
        plan_of(folders[i], &cfg, &p);
        talker_open(&f, "ref", folders[i], TALKER_CFG);
        f.node->api->stats(f.node, &st);
        assert_int_equal(p.weight_bytes, st.weight_bytes);
        assert_int_equal(st.kv_pages, 8 * 1024 / 16);
        assert_true(p.kv_bytes + p.state_bytes <= st.state_bytes);
        assert_int_equal(p.out_width[f.codes], f.groups);
        assert_int_equal(p.out_item_bytes[f.codes], f.groups * 4);
        assert_int_equal(p.out_dtype[f.states], OG_F32);
        assert_int_equal(p.out_width[f.states], f.hidden);
        assert_int_equal(p.max_positions, 32768);
        talker_close(&f);
        og_model_close(cfg.model);
    }
}

static void test_folder_without_a_talker(void **state) {
    (void)state;
    og_node_cfg cfg;
    og_node_plan p;
    th_env env;
    og_err err = OG_ERR_INIT;
    og_node *node = NULL;
    plan_of("tiny-b", &cfg, &p);
    th_open(&env, "ref");
    cfg.exec = env.exec;
    cfg.folder = "speech_tokenizer"; /* has a config, but no talker */
    assert_true(og_ar_api.create(&cfg, &node, &err) < 0);
    assert_null(node);
    assert_non_null(strstr(err.msg, "talker_config"));
    og_model_close(cfg.model);
    th_close(&env);
}

/* A config that asks for other sizes than the file has: every tensor is named. */
static void test_mis_shaped_weights_are_named(void **state) {
    (void)state;
    char dir[] = OG_BINARY_DIR "/talker.XXXXXX", path[4096], weights[4096];
    og_err err = OG_ERR_INIT;
    og_node_cfg cfg = TALKER_CFG;
    og_node *node = NULL;
    th_env env;
    assert_non_null(mkdtemp(dir));
    json_t *root = json_object(), *s = section_of("tiny-b");
    json_object_set_new(s, "intermediate_size", json_integer(90));
    json_object_set_new(root, "model_type", json_string("qwen3_tts"));
    json_object_set_new(root, "talker_config", s);
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
    source_path(weights, sizeof weights,
                "tests/data/qwen3_tts/tiny-b/custom_voice/model.safetensors");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(symlink(weights, path), 0);

    th_open(&env, "ref");
    cfg.arch = og_arch_find("qwen3_tts_talker");
    cfg.folder = "";
    cfg.exec = env.exec;
    assert_int_equal(og_model_open(dir, &cfg.model, &err), 0);
    assert_true(og_ar_api.create(&cfg, &node, &err) < 0);
    assert_non_null(strstr(err.msg, "talker.model.layers.0.mlp.gate_proj.weight"));
    assert_non_null(strstr(err.msg, "talker.model.layers.1.mlp.down_proj.weight"));
    assert_string_equal(err.node, "talker");
    og_model_close(cfg.model);
    th_close(&env);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    rmdir(dir);
}

static void test_create_over_all_allocations(void **state) {
    (void)state;
    og_node_cfg cfg;
    og_node_plan p;
    th_env env;
    plan_of("tiny-b", &cfg, &p);
    th_open(&env, "ref");
    cfg.exec = env.exec;
    cfg.max_seqs = 2;
    cfg.max_model_len = 64;
    for (int n = 1;; n++) {
        og_err err = OG_ERR_INIT;
        og_node *node = NULL;
        og_alloc_fail_at(n);
        int rc = og_ar_api.create(&cfg, &node, &err);
        int hit = og_alloc_failed();
        og_alloc_fail_at(0);
        if (!rc) og_ar_api.destroy(node);
        else assert_int_equal(rc, OG_ENOMEM);
        if (!hit) break;
    }
    og_model_close(cfg.model);
    th_close(&env);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_key_is_asked_for),
        cmocka_unit_test(test_keys_that_may_be_left_out),
        cmocka_unit_test(test_values_that_do_not_fit),
        cmocka_unit_test(test_plan_is_what_is_taken),
        cmocka_unit_test(test_folder_without_a_talker),
        cmocka_unit_test(test_mis_shaped_weights_are_named),
        cmocka_unit_test(test_create_over_all_allocations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
