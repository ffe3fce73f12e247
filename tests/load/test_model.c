/* Checkpoint folders and typed reads of configs. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/base/alloc.h"
#include "nodes/load/json.h"
#include "nodes/load/model.h"
#include "tests/support/golden.h"

static char dir[256];

static og_model *open_tiny(const char *variant) {
    char path[4096], rest[200];
    og_err err = OG_ERR_INIT;
    og_model *m = NULL;
    snprintf(rest, sizeof rest, "tests/data/qwen3_tts/tiny-a/%s", variant);
    if (og_model_open(source_path(path, sizeof path, rest), &m, &err) < 0)
        fail_msg("%s", err.msg);
    return m;
}

static void write_text(const char *name, const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_checkpoint(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_model *m = open_tiny("voice_design");
    const json_t *root = og_model_config(m, "", NULL, &err);
    const json_t *deep =
        og_model_config(m, "", "talker_config.code_predictor_config", &err);
    const json_t *codec = og_model_config(m, "speech_tokenizer", "decoder_config", &err);
    assert_non_null(root);
    assert_non_null(deep);
    assert_non_null(codec);
    assert_string_equal(json_string_value(og_cfg_find(root, "tts_model_type")),
                        "voice_design");
    assert_non_null(og_cfg_find(og_model_generation_config(m), "temperature"));
    assert_null(og_model_index(m));
    assert_true(og_model_has(m, "speech_tokenizer", "model.safetensors"));
    assert_false(og_model_has(m, "speech_tokenizer", "vocab.json"));
    og_weights *w = NULL, *again = NULL;
    const og_tokenizer *t = NULL;
    assert_int_equal(og_model_weights(m, "speech_tokenizer", &w, &err), 0);
    assert_int_equal(og_model_weights(m, "speech_tokenizer", &again, &err), 0);
    assert_ptr_equal(w, again);
    assert_non_null(og_weights_find(w, "decoder.pre_conv.conv.weight"));
    assert_int_equal(og_model_tokenizer(m, "", &t, &err), 0);
    assert_true(og_tokenizer_token_id(t, "<tts_pad>") > 0);
    og_model_close(og_model_ref(m));
    og_model_close(m);
}

static void test_what_is_not_there(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_model *m = open_tiny("custom_voice");
    og_weights *w;
    const og_tokenizer *t;
    assert_null(og_model_config(m, "", "no_such_config", &err));
    assert_non_null(strstr(err.msg, "no_such_config"));
    og_err_clear(&err);
    assert_null(og_model_config(m, "nowhere", NULL, &err));
    assert_int_equal(err.code, OG_ENOENT);
    og_err_clear(&err);
    assert_null(og_model_config(m, "../voice_design", NULL, &err));
    assert_int_equal(err.code, OG_EINVAL);
    assert_null(og_model_config(m, "a/../../b", NULL, NULL));
    assert_null(og_model_config(m, "/etc", NULL, NULL));
    assert_int_equal(og_model_weights(m, "nowhere", &w, NULL), OG_ENOENT);
    assert_int_equal(og_model_tokenizer(m, "speech_tokenizer", &t, NULL), OG_ENOENT);
    og_model_close(m);
    og_err_clear(&err);
    assert_int_equal(og_model_open("/nonexistent", &m, &err), OG_ENOENT);
    assert_null(m);
    og_err_clear(&err);
    assert_int_equal(og_model_open(dir, &m, &err), OG_ENOENT);
    assert_non_null(strstr(err.msg, "no config.json"));
    write_text("config.json", "{\"a\":1,\n\"a\":2}");
    og_err_clear(&err);
    assert_int_equal(og_model_open(dir, &m, &err), OG_EFORMAT);
    assert_non_null(strstr(err.msg, "config.json:2: duplicate key a"));
    write_text("config.json", "[1]");
    assert_int_equal(og_model_open(dir, &m, NULL), OG_EFORMAT);
    write_text("config.json", "{}");
    write_text("generation_config.json", "{");
    assert_int_equal(og_model_open(dir, &m, NULL), OG_EFORMAT);
    write_text("generation_config.json", "{}");
    assert_int_equal(og_model_open(dir, &m, NULL), 0);
    og_model_close(m);
}

static void test_fingerprints(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    uint64_t a, b, c, again;
    og_model *m = open_tiny("custom_voice"), *n = open_tiny("voice_design");
    assert_int_equal(og_model_fingerprint(m, &a, &err), 0);
    assert_int_equal(og_model_fingerprint(n, &b, &err), 0);
    assert_int_equal(og_model_fingerprint(m, &again, &err), 0);
    assert_true(a != b && a == again);
    char path[4096];
    og_model *d;
    source_path(path, sizeof path, "tests/data/qwen3_tts/tiny-a/custom_voice");
    assert_int_equal(og_model_open_dummy(path, 9, OG_BF16, &d, &err), 0);
    assert_int_equal(og_model_fingerprint(d, &c, &err), 0);
    assert_true(c != a && og_model_is_dummy(d) && !og_model_is_dummy(m));
    og_weights *w;
    assert_int_equal(og_model_weights(d, "nowhere", &w, &err), 0);
    assert_true(og_weights_is_dummy(w));
    og_model_close(d);
    og_model_close(m);
    og_model_close(n);
}

static void expect_msg(og_err *err, int rc, int code, const char *word) {
    assert_int_equal(rc, code);
    if (!strstr(err->msg, word)) fail_msg("'%s' lacks '%s'", err->msg, word);
    assert_true(err->field[0]);
    og_err_clear(err);
}

static void test_typed_reads(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    const char *text = "{\"i\":7,\"big\":5000000000,\"f\":0.5,\"s\":\"x\",\"b\":true,"
                       "\"n\":null,\"a\":[1,2,3],\"e\":[],\"o\":{\"p\":{\"q\":-2}}}";
    json_t *c = og_json_parse("c.json", text, strlen(text), 8, &err);
    int i = 0, n = 0, v[3];
    int64_t l = 0;
    float f = 0;
    const char *s = NULL;
    assert_int_equal(og_cfg_int(c, "i", &i, 0, 10, &err), 0);
    assert_int_equal(i, 7);
    assert_int_equal(og_cfg_int(c, "o.p.q", &i, -5, 10, &err), 0);
    assert_int_equal(i, -2);
    assert_int_equal(og_cfg_i64(c, "big", &l, 0, INT64_MAX, &err), 0);
    assert_true(l == 5000000000);
    assert_int_equal(og_cfg_float(c, "f", &f, 0, 1, &err), 0);
    assert_int_equal(og_cfg_float(c, "i", &f, 0, 10, &err), 0);
    assert_true(f == 7.0f);
    assert_int_equal(og_cfg_bool(c, "b", &i, &err), 0);
    assert_int_equal(i, 1);
    assert_int_equal(og_cfg_str(c, "s", &s, &err), 0);
    assert_string_equal(s, "x");
    assert_int_equal(og_cfg_int_array(c, "a", v, 3, &n, 0, 9, &err), 0);
    assert_int_equal(n, 3);
    assert_int_equal(v[2], 3);
    assert_int_equal(og_cfg_int_or(c, "n", &i, 42, 0, 100, &err), 0);
    assert_int_equal(i, 42);
    assert_int_equal(og_cfg_int_or(c, "i", &i, 42, 0, 100, &err), 0);
    assert_int_equal(i, 7);
    assert_int_equal(og_cfg_float_or(c, "zz", &f, 2.5f, 0, 9, &err), 0);
    assert_true(f == 2.5f);
    assert_int_equal(og_cfg_bool_or(c, "zz", &i, 1, &err), 0);
    assert_int_equal(i, 1);
    assert_int_equal(og_cfg_str_or(c, "o.zz", &s, "def", &err), 0);
    assert_string_equal(s, "def");
    expect_msg(&err, og_cfg_int(c, "zz", &i, 0, 1, &err), OG_EFORMAT, "zz is missing");
    expect_msg(&err, og_cfg_int(NULL, "zz", &i, 0, 1, &err), OG_EFORMAT, "missing");
    expect_msg(&err, og_cfg_int(c, "n", &i, 0, 1, &err), OG_EFORMAT, "missing");
    expect_msg(&err, og_cfg_int(c, "i.j", &i, 0, 1, &err), OG_EFORMAT, "i.j is missing");
    expect_msg(&err, og_cfg_int(c, "s", &i, 0, 1, &err), OG_EFORMAT, "a string");
    expect_msg(&err, og_cfg_int(c, "f", &i, 0, 1, &err), OG_EFORMAT, "fraction");
    expect_msg(&err, og_cfg_int(c, "i", &i, 0, 6, &err), OG_ELIMIT,
               "7 (allowed: 0 to 6)");
    expect_msg(&err, og_cfg_int(c, "big", &i, 0, INT64_MAX, &err), OG_ELIMIT,
               "2147483647");
    expect_msg(&err, og_cfg_int_or(c, "s", &i, 0, 0, 6, &err), OG_EFORMAT, "a string");
    expect_msg(&err, og_cfg_float(c, "f", &f, 1, 2, &err), OG_ELIMIT, "0.5");
    expect_msg(&err, og_cfg_float(c, "b", &f, 1, 2, &err), OG_EFORMAT, "a boolean");
    expect_msg(&err, og_cfg_bool(c, "i", &i, &err), OG_EFORMAT, "an integer");
    expect_msg(&err, og_cfg_str(c, "o", &s, &err), OG_EFORMAT, "an object");
    expect_msg(&err, og_cfg_int_array(c, "a", v, 2, &n, 0, 9, &err), OG_ELIMIT,
               "3 items");
    expect_msg(&err, og_cfg_int_array(c, "e", v, 2, &n, 0, 9, &err), OG_ELIMIT,
               "0 items");
    expect_msg(&err, og_cfg_int_array(c, "a", v, 3, &n, 2, 9, &err), OG_ELIMIT, "1 (");
    expect_msg(&err, og_cfg_int_array(c, "i", v, 3, &n, 0, 9, &err), OG_EFORMAT, "array");
    json_decref(c);
}

static void test_json_limits(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    const char *deep = "[[[[1]]]]", *brackets = "\"[[[[\\\"[[\"";
    assert_null(og_json_parse("x", deep, strlen(deep), 3, &err));
    assert_int_equal(err.code, OG_ELIMIT);
    json_t *j = og_json_parse("x", deep, strlen(deep), 4, &err);
    assert_non_null(j);
    json_decref(j);
    og_err_clear(&err);
    char wrapped[64];
    snprintf(wrapped, sizeof wrapped, "[%s]", brackets);
    j = og_json_parse("x", wrapped, strlen(wrapped), 1, &err);
    assert_non_null(j);
    json_decref(j);
    assert_null(og_json_load("/nonexistent.json", 10, 4, &err));
    assert_int_equal(err.code, OG_ENOENT);
    og_err_clear(&err);
    write_text("long.json", "[1,2,3,4,5,6]");
    char path[600];
    snprintf(path, sizeof path, "%s/long.json", dir);
    assert_null(og_json_load(path, 5, 4, &err));
    assert_int_equal(err.code, OG_ELIMIT);
    assert_non_null(strstr(err.msg, "limit is 5"));
    og_err_clear(&err);
    assert_null(og_json_load(dir, 5, 4, &err));
    assert_int_equal(err.code, OG_EIO);
}

static void *open_all(void *arg) {
    og_weights *w;
    const og_tokenizer *t;
    if (og_model_weights(arg, "", &w, NULL) < 0) return arg;
    if (og_model_weights(arg, "speech_tokenizer", &w, NULL) < 0) return arg;
    if (og_model_tokenizer(arg, "", &t, NULL) < 0) return arg;
    return og_model_config(arg, "speech_tokenizer", NULL, NULL) ? NULL : arg;
}

static void test_threads_share_one(void **state) {
    (void)state;
    og_model *m = open_tiny("custom_voice");
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_all, m), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    og_model_close(m);
}

static void test_out_of_memory(void **state) {
    (void)state;
    char path[4096];
    source_path(path, sizeof path, "examples/voice");
    long live = og_alloc_live();
    for (long n = 1; n < 100000; n++) {
        og_err err = OG_ERR_INIT;
        og_model *m = NULL;
        og_weights *w;
        const og_tokenizer *t;
        uint64_t fp;
        og_alloc_fail_at(n);
        int rc = og_model_open(path, &m, &err);
        if (rc == 0 && !og_model_config(m, "speech_tokenizer", NULL, &err)) rc = err.code;
        if (rc == 0) rc = og_model_weights(m, "", &w, &err);
        if (rc == 0) rc = og_model_tokenizer(m, "", &t, &err);
        if (rc == 0) rc = og_model_fingerprint(m, &fp, &err);
        int failed = og_alloc_failed();
        og_alloc_fail_at(0);
        og_model_close(m);
        assert_int_equal(og_alloc_live(), live);
        if (rc < 0) assert_int_equal(rc, OG_ENOMEM);
        if (!failed) break;
        n += n / 64; /* every early one, then a sample: thousands of alike names follow */
    }
}

static int make_dir(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "%s/model-XXXXXX", OG_BINARY_DIR);
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint),    cmocka_unit_test(test_what_is_not_there),
        cmocka_unit_test(test_fingerprints),  cmocka_unit_test(test_typed_reads),
        cmocka_unit_test(test_json_limits),   cmocka_unit_test(test_threads_share_one),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
