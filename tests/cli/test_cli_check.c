/* check and dot: positions, provenance, overlays alone, recipes, pictures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cli/program.h"

#define MODEL "tests/data/qwen3_tts/tiny-a/custom_voice"

static json_t *json_of(ran *r, int code) {
    json_error_t at;
    if (r->code != code) fail_msg("exit code %d, not %d: %s", r->code, code, r->err);
    json_t *j = json_loads(r->out, 0, &at);
    if (!j) fail_msg("line %d: %s\n%s", at.line, at.text, r->out);
    ran_free(r);
    return j;
}

static void test_bad_yaml_has_a_position(void **state) {
    (void)state;
    char path[128], where[192];
    in_scratch(path, sizeof path, "bad.yaml");
    write_text(path, "schema: omni-graph/1\npipeline: bad\nstagse: []\n");
    snprintf(where, sizeof where, "%s:3:1: error: ", path);
    ran r = program("check", path, NULL);
    assert_int_equal(r.code, 2);
    assert_has(r.err, where);
    assert_has(r.err, "stagse: []\n");
    assert_has(r.err, "^");
    assert_has(r.err, "did you mean 'stages'?");
    assert_string_equal(r.out, "");
    ran_free(&r);
    r = program("check", path, "--format", "json", NULL);
    json_t *j = json_of(&r, 2);
    json_t *first = json_array_get(json_object_get(j, "diagnostics"), 0);
    assert_true(json_is_false(json_object_get(j, "ok")));
    assert_string_equal(json_string_value(json_object_get(first, "severity")), "error");
    assert_int_equal(json_integer_value(json_object_get(first, "line")), 3);
    json_decref(j);
    assert_ends(program("run", path, "-o", "x.wav", NULL), 2, where);
    assert_ends(program("check", "no_such_pipeline", NULL), 2, "no_such_pipeline");
}

static void test_plan_is_printed(void **state) {
    (void)state;
    ran r = program("check", "qwen3_tts", "--model", MODEL, NULL);
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    assert_has(r.out, "fingerprint");
    assert_has(r.out, "codes[16]");
    ran_free(&r);
    r = program("check", "qwen3_tts", "--model", MODEL, "--format", "json", NULL);
    json_t *j = json_of(&r, 0);
    assert_true(json_is_true(json_object_get(j, "ok")));
    assert_non_null(json_object_get(j, "merged"));
    assert_non_null(json_object_get(j, "effective"));
    json_decref(j);
    assert_ends(program("check", "qwen3_tts", "--model", "no/such/folder", NULL), 2,
                "no/such/folder");
}

/* All pipelines parse and pass every check whose archs exist. */
static void test_memory_of_devices(void **state) {
    (void)state;
#define ON_GPU "check", "qwen3_tts", "--model", MODEL, "--backend", "cuda"
    static const struct {
        const char *backend, *size, *text;
    } good[] = {
        {"cpu", "1GiB", "  host memory: 22.7 MiB planned of "},
        {"cuda", NULL, "  cuda:0: 22.7 MiB planned, its size is not known"},
        {"cuda", "141GiB", "  cuda:0: 22.7 MiB planned of 141.0 GiB, 141.0 GiB left\n"
                           "    talker: 20.7 MiB = weights 4.4 MiB, KV 16.0 MiB (2049 "
                           "pages x 8.0 KiB), state 250.0 KiB; gpu_memory_utilization 0.9 "
                           "allows 126.9 GiB\n"},
        {"cuda", "22 MiB", "  cuda:0: 21.8 MiB planned of 22.0 MiB, "},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ran t = program("check", "qwen3_tts", "--model", MODEL, "--backend",
                        good[i].backend, good[i].size ? "--device-memory" : NULL,
                        good[i].size, NULL);
        assert_int_equal(t.code, 0);
        assert_has(t.out, good[i].text);
        ran_free(&t);
    }
    assert_ends(program(ON_GPU, "--device-memory", "40000", NULL), 2,
                "of 39.1 KiB there are 35.2 KiB for it");
    const char *bad[] = {"-1GiB", "0", "x", "1e99GiB", "GiB", "1 GB", "nanGiB", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_ends(program(ON_GPU, "--device-memory", bad[i], NULL), 2,
                    "--device-memory must be a size like 141GiB");
    ran r = program(ON_GPU, "--device-memory", "141GiB", "--format", "json", NULL);
    json_t *j = json_of(&r, 0);
    const json_t *d = json_array_get(
        json_object_get(json_object_get(j, "memory"), "devices"), 0);
    assert_string_equal(json_string_value(json_object_get(d, "device")), "cuda:0");
    assert_true(json_integer_value(json_object_get(d, "memory")) == 141ll << 30);
    json_decref(j);
}

static void test_every_pipeline(void **state) {
    (void)state;
    ran names = program("completion", "pipelines", NULL);
    int n = 0;
    for (char *at = strtok(names.out, "\n"); at; at = strtok(NULL, "\n"), n++)
        assert_ends(program("check", at, NULL), 0, "");
    assert_true(n > 0);
    ran_free(&names);
}

static void test_explain_says_where_from(void **state) {
    (void)state;
    char path[128];
    in_scratch(path, sizeof path, "deploy.yaml");
    write_text(path, "stages:\n  - {stage_id: 0, max_num_seqs: 5}\n");
    ran r = program("check", "qwen3_tts", "--model", MODEL, "--deploy", path, "--explain",
                    "--set", "code2wav.max_num_seqs=3", "--enforce-eager", NULL);
    assert_int_equal(r.code, 0);
    assert_has(r.out, "talker.max_num_seqs = 5  (");
    assert_has(r.out, "deploy.yaml:2:");
    assert_has(r.out, "code2wav.max_num_seqs = 3  (--set code2wav.max_num_seqs=3)");
    assert_has(r.out, "enforce_eager = true  (--enforce_eager");
    ran_free(&r);
    assert_ends(program("check", "qwen3_tts", "--set", "talkr.max_num_seqs=3", NULL), 2,
                "did you mean 'talker'?");
    assert_ends(program("check", "qwen3_tts", "--set", "talker.max_num_seq=3", NULL), 2,
                "did you mean 'max_num_seqs'?");
}

/* However a deploy file is named, the settings are the same; other names are refused. */
static void test_b003_one_file_one_result(void **state) {
    (void)state;
    char path[128], joined[160], letter[160];
    in_scratch(path, sizeof path, "b003.yaml");
    write_text(path, "async_chunk: false\nstages:\n  - {stage_id: 0, max_num_seqs: 2}\n");
    snprintf(joined, sizeof joined, "--deploy=%s", path);
    snprintf(letter, sizeof letter, "-d%s", path);
    ran a = program("check", "qwen3_tts", "--deploy", path, "-fjson", NULL);
    ran b = program("check", "qwen3_tts", joined, "-fjson", NULL);
    ran c = program("check", letter, "qwen3_tts", "-fjson", NULL);
    assert_int_equal(a.code, 0);
    assert_string_equal(a.out, b.out);
    assert_string_equal(a.out, c.out);
    ran_free(&a);
    ran_free(&b);
    ran_free(&c);
    assert_ends(program("check", "qwen3_tts", "--stage-configs-path", path, NULL), 2,
                "unknown option '--stage-configs-path'");
}

static void test_overlay_only(void **state) {
    (void)state;
    char ok[128], warn[128], fail[128];
    write_text(in_scratch(ok, sizeof ok, "ok.yaml"),
               "stages: [{stage_id: 0, max_num_seqs: 2}]\n");
    write_text(in_scratch(warn, sizeof warn, "warn.yaml"),
               "stages: [{stage_id: 0, max_num_sqes: 2}]\n");
    write_text(in_scratch(fail, sizeof fail, "fail.yaml"), "stages: {a: 1, a: 2}\n");
    ran r = program("check", "--overlay-only", ok, warn, fail, NULL);
    assert_int_equal(r.code, 2);
    assert_has(r.out, "ok   ");
    assert_has(r.out, "\nwarn ");
    assert_has(r.out, "\nfail ");
    assert_has(r.err, "did you mean 'max_num_seqs'?");
    ran_free(&r);
    assert_ends(program("check", "--overlay-only", ok, warn, NULL), 0, "");
    r = program("check", "--overlay-only", ok, "--format", "json", "--max-num-seqs", "4",
                NULL);
    json_t *j = json_of(&r, 0);
    json_t *stage =
        json_object_get(json_object_get(json_object_get(j, "effective"), "stages"), "0");
    assert_string_equal(json_string_value(json_object_get(j, "status")), "ok");
    assert_int_equal(json_integer_value(json_object_get(stage, "max_num_seqs")), 4);
    stage = json_array_get(json_object_get(json_object_get(j, "merged"), "stages"), 0);
    assert_int_equal(json_integer_value(json_object_get(stage, "max_num_seqs")), 2);
    json_decref(j);
    r = program("check", "--overlay-only", ok, warn, "--format", "json", NULL);
    j = json_of(&r, 0);
    assert_int_equal(json_array_size(j), 2);
    json_decref(j);
    assert_ends(program("check", "--overlay-only", NULL), 2, "which files?");
}

static void test_recipes(void **state) {
    (void)state;
    char path[128], arg[136];
    ran r = program("check", "qwen3_tts", "--model", MODEL, "--request",
                    "{\"text\": \"hi\", \"voice\": \"Ryan\"}", NULL);
    assert_int_equal(r.code, 0);
    assert_has(r.out, "recipes:");
    assert_has(r.out, "talker.prompt");
    ran_free(&r);
    in_scratch(path, sizeof path, "request.json");
    write_text(path, "{\"text\": \"hi\",\n \"voice\": }\n");
    snprintf(arg, sizeof arg, "@%s", path);
    assert_ends(program("check", "qwen3_tts", "--request", arg, NULL), 2,
                "request.json:2:");
    assert_ends(program("check", "qwen3_tts", "--model", MODEL, "--request",
                        "{\"text\": \"hi\", \"voice\": \"nobody\"}", NULL),
                2, "voice");
}

static void test_dot(void **state) {
    (void)state;
    char path[128];
    ran r = program("dot", "qwen3_tts", "--model", MODEL, NULL);
    assert_int_equal(r.code, 0);
    assert_int_equal(strncmp(r.out, "digraph ", 8), 0);
    assert_has(r.out, "code2wav");
    assert_has(r.out, "codes[16]");
    ran_free(&r);
    in_scratch(path, sizeof path, "plan.dot");
    assert_ends(program("dot", "qwen3_tts", "-o", path, NULL), 0, "");
    char *text = slurp_path(path, NULL);
    assert_int_equal(strncmp(text, "digraph ", 8), 0);
    free(text);
    assert_ends(program("dot", "qwen3_tts", "-o", "no/such/folder/x.svg", NULL), 2,
                "there is no folder 'no/such/folder'");
}

static void test_dot_pictures(void **state) {
    (void)state;
    char svg[128], png[128], *old = strdup(getenv("PATH"));
    in_scratch(svg, sizeof svg, "plan.svg");
    in_scratch(png, sizeof png, "plan.png");
    setenv("PATH", scratch(), 1);
    assert_ends(program("dot", "qwen3_tts", "-o", svg, NULL), 1,
                "it comes with Graphviz");
    assert_false(exists(svg));
    setenv("PATH", old, 1);
    free(old);
    if (system("command -v dot >/dev/null 2>&1") != 0) {
        print_message("skipped: the program 'dot' is not here\n");
        skip();
    }
    assert_ends(program("dot", "qwen3_tts", "--model", MODEL, "-o", svg, NULL), 0, "");
    assert_ends(program("dot", "qwen3_tts", "--model", MODEL, "-o", png, NULL), 0, "");
    char *text = slurp_path(svg, NULL), *picture = slurp_path(png, NULL);
    assert_has(text, "<svg");
    assert_has(text, "code2wav");
    assert_memory_equal(picture, "\x89PNG", 4);
    free(text);
    free(picture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_yaml_has_a_position),
        cmocka_unit_test(test_plan_is_printed),
        cmocka_unit_test(test_memory_of_devices),
        cmocka_unit_test(test_every_pipeline),
        cmocka_unit_test(test_explain_says_where_from),
        cmocka_unit_test(test_b003_one_file_one_result),
        cmocka_unit_test(test_overlay_only),
        cmocka_unit_test(test_recipes),
        cmocka_unit_test(test_dot),
        cmocka_unit_test(test_dot_pictures),
    };
    return cmocka_run_group_tests(tests, enter_source_tree, remove_scratch);
}
