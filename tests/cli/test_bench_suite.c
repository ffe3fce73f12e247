/* `bench suite`: suites of our own against the mock server, and the public ones as far as
 * reading them goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <glob.h>

#include "graph/cli/bench/suite.h"
#include "tests/cli/mock_speech.h"
#include "tests/cli/program.h"

static mock *server;

static const char sweep[] =
    "[{\"test_name\": \"small\", \"server_params\": {\"model\": \"mock-tts\"},\n"
    "  \"benchmark_params\": [\n"
    "   {\"task\": \"voice\", \"dataset_name\": \"seed-tts-text\", \"backend\": "
    "\"openai-audio-speech\",\n"
    "    \"endpoint\": \"/v1/audio/speech\", \"num_prompts\": [3, 5], \"max-concurrency\": [1, 2],\n"
    "    \"num_warmups\": 0, \"extra_body\": {\"voice\": \"Vivian\"}, \"percentile-metrics\": "
    "\"audio_rtf\",\n"
    "    \"baseline\": {\"H100\": {\"median_audio_ttfp_ms\": [100000, 100000],\n"
    "       \"audio_throughput\": [1e9, 1e9]}}},\n"
    "   {\"task\": \"voice\", \"dataset_name\": \"random\", \"random_input_len\": 4,\n"
    "    \"request_rate\": 100, \"num_prompts\": 4, \"num_warmups\": 0, \"surprise\": 1,\n"
    "    \"baseline\": {\"median_e2el_ms\": {\"100\": 100000}, \"mean_wer\": 1}},\n"
    "   {\"task\": \"quality\", \"enabled\": false, \"num_prompts\": 2, \"max_concurrency\": 1}]},\n"
    " {\"test_name\": \"picture\", \"server_type\": \"vllm-omni\", \"server_params\": {\"model\": "
    "\"x\"},\n"
    "  \"benchmark_params\": [{\"dataset\": \"random\", \"width\": 512, \"num-prompts\": 2}]},\n"
    " {\"test_name\": \"other\", \"server_params\": {\"model\": \"org/Another\"},\n"
    "  \"benchmark_params\": [{\"num_prompts\": 1, \"max_concurrency\": 1}]}]\n";

static json_t *load(const char *path) {
    json_error_t e;
    json_t *j = json_load_file(path, 0, &e);
    if (!j) fail_msg("%s: %s", path, e.text);
    return j;
}

static const json_t *entry(const json_t *report, size_t i) {
    return json_array_get(json_object_get(report, "entries"), i);
}

static const json_t *run_of(const json_t *report, size_t i, size_t k) {
    return json_array_get(json_object_get(entry(report, i), "runs"), k);
}

static const char *str(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

static double num(const json_t *j, const char *key) {
    return json_number_value(json_object_get(j, key));
}

static void test_a_sweep(void **state) {
    (void)state;
    char suite[128], out[128], path[160], *text;
    write_text(in_scratch(suite, sizeof suite, "small.json"), sweep);
    in_scratch(out, sizeof out, "out");
    ran r = program("bench", "suite", suite, "--base-url", server->url, "--out", out, NULL);
    if (r.code) fail_msg("exit code %d: %s%s", r.code, r.err, r.out);
    assert_has(r.err, "[0].benchmark_params[1].surprise: unknown key");
    assert_has(r.out, "6 runs: 3 passed, 0 failed, 3 skipped");
    ran_free(&r);
    snprintf(path, sizeof path, "%s/small.json", out);
    json_t *j = load(path);
    const json_t *two = json_object_get(run_of(j, 0, 1), "result");
    assert_int_equal(num(two, "completed"), 5);
    assert_int_equal(num(two, "max_concurrency"), 2);
    assert_string_equal(str(two, "Hardware"), "H100");
    assert_int_equal(num(json_object_get(two, "baseline"), "median_audio_ttfp_ms"), 100000);
    const json_t *all = json_object_get(run_of(j, 0, 1), "baseline");
    assert_string_equal(str(json_array_get(all, 0), "verdict"), "pass");
    assert_string_equal(str(json_array_get(all, 1), "verdict"), "fail");
    const json_t *open = json_object_get(run_of(j, 0, 2), "baseline");
    assert_string_equal(str(json_array_get(open, 0), "verdict"), "pass");
    assert_string_equal(str(json_array_get(open, 1), "verdict"), "na");
    assert_has(str(run_of(j, 0, 3), "skipped"), "not enabled");
    assert_has(str(entry(j, 1), "skipped"), "images and video");
    assert_has(str(entry(j, 2), "skipped"), "the server serves 'mock-tts'");
    json_decref(j);
    snprintf(path, sizeof path, "%s/small.csv", out);
    text = slurp_path(path, NULL);
    assert_has(text, "test_name,model,task");
    assert_has(text, "\"small\",\"mock-tts\",\"voice\",\"\",\"seed-tts-text\",,2,pass,\"\",5,5,0,");
    free(text);
    snprintf(path, sizeof path, "%s/small.html", out);
    text = slurp_path(path, NULL);
    assert_has(text, "<svg ");
    assert_has(text, "median first packet, ms");
    assert_null(strstr(text, "src=")); /* nothing is fetched from anywhere */
    assert_null(strstr(text, "href="));
    assert_null(strstr(text, "<script"));
    free(text);
}

static void test_exit_codes(void **state) {
    (void)state;
    char suite[128], out[128];
    write_text(in_scratch(suite, sizeof suite, "small.json"), sweep);
    in_scratch(out, sizeof out, "out");
    assert_ends(program("bench", "suite", suite, "--base-url", server->url, "--out", out,
                        "--assert-baseline", "--test", "small", "-q", "--extra-body",
                        "{\"voice\": \"frames\", \"max_new_tokens\": 2}", NULL),
                1, "");
    assert_has(server->last_body, "\"max_new_tokens\":2");
    write_text(in_scratch(suite, sizeof suite, "bad.json"),
               "[{\"test_name\": \"b\", \"server_params\": {\"model\": \"mock-tts\"}, "
               "\"benchmark_params\": [{\"num_prompts\": 2, \"max_concurrency\": 1, "
               "\"num_warmups\": 0, \"extra_body\": {\"voice\": \"reset\"}}]}]");
    ran r = program("bench", "suite", suite, "--base-url", server->url, "--out", out, NULL);
    assert_int_equal(r.code, 1);
    assert_has(r.out, "1 runs: 0 passed, 1 failed");
    ran_free(&r);
}

/* A run that lasts, in batches. */
static void test_stability(void **state) {
    (void)state;
    char suite[128], out[128], path[160];
    write_text(in_scratch(suite, sizeof suite, "long.json"),
               "[{\"test_name\": \"l\", \"server_params\": {\"model\": \"mock-tts\"}, "
               "\"benchmark_params\": [{\"duration_sec\": 86400, \"max_concurrency\": 2, "
               "\"num_prompts_per_batch\": 4, \"random_input_len\": {\"min\": 0, \"max\": 9}, "
               "\"num_warmups\": 0}]}]");
    in_scratch(out, sizeof out, "out");
    ran r = program("bench", "suite", suite, "--base-url", server->url, "--out", out, NULL);
    assert_int_equal(r.code, 0);
    assert_has(r.out, "say --duration SECONDS");
    ran_free(&r);
    r = program("bench", "suite", suite, "--base-url", server->url, "--out", out, "--duration",
                "0.05", NULL);
    assert_int_equal(r.code, 0);
    ran_free(&r);
    snprintf(path, sizeof path, "%s/long.json", out);
    json_t *j = load(path);
    const json_t *result = json_object_get(run_of(j, 0, 0), "result");
    assert_true(num(result, "batches") >= 1);
    assert_int_equal(num(result, "completed"), 4 * num(result, "batches"));
    json_decref(j);
}

static void refuses(const char *json, const char *words) {
    char suite[128];
    write_text(in_scratch(suite, sizeof suite, "refused.json"), json);
    assert_ends(program("bench", "suite", suite, "--list", NULL), 2, words);
}

static void test_bad_files(void **state) {
    (void)state;
    refuses("[{]", "refused.json:1:");
    refuses("3", "refused.json:1:1: error: '[' or '{' expected");
    refuses("[]", "the list is empty");
    refuses("[3]", "refused.json: [0]: a map is needed");
    refuses("[{\"server_params\": []}]", "[0].server_params: a map is needed");
    refuses("[{\"benchmark_params\": {}}]", "[0].benchmark_params: a list is needed");
    refuses("[{\"benchmark_params\": [1]}]", "[0].benchmark_params[0]: a map is needed");
    refuses("[{\"benchmark_params\": [{\"num_prompts\": [1, 2], \"max_concurrency\": [1, 2, 3]}]}]",
            "[0].benchmark_params[0].num_prompts: 2 numbers for a sweep of 3");
    refuses("[{\"benchmark_params\": [{\"num_prompts\": [\"x\"]}]}]",
            "[0].benchmark_params[0].num_prompts: [0] is no number");
    refuses("[{\"benchmark_params\": [{\"num_prompts\": 1, \"max_concurrency\": -1}]}]",
            "max_concurrency: -1 is not positive");
    refuses("[{\"benchmark_params\": [{\"baseline\": 3}]}]", "baseline: a map is needed");
    refuses("[{\"a\": 1, \"a\": 2}]", "duplicate");
    assert_ends(program("bench", "suite", "no/such.json", NULL), 2, "no/such.json");
    assert_ends(program("bench", "suite", NULL), 2, "too few arguments");
}

/* ---- servers ------------------------------------------------------------------ */

static const char *find(void *user, const char *name) {
    (void)user;
    return strstr(name, "missing") ? NULL : "/overlays/x.yaml";
}

static char *serve_line(const char *params, bool one_device, const char **skip) {
    og_arena *a = og_arena_create();
    json_t *j = json_loads(params, 0, NULL);
    og__suite_entry e = {.server = j};
    og__serve_how how = {one_device, find, NULL};
    og__serve_line line;
    og_err err = OG_ERR_INIT;
    assert_non_null(j);
    assert_int_equal(og__suite_serve_line(a, &e, &how, &line, &err), 0);
    og_str s = OG_STR_INIT;
    for (int i = 0; i < line.n; i++) og_str_addf(&s, "%s%s", i ? " " : "", line.args[i]);
    *skip = line.skip ? "skip" : NULL;
    char *out = strdup(s.data ? s.data : "");
    og_str_free(&s);
    json_decref(j);
    og_arena_destroy(a);
    return out;
}

static void becomes(const char *params, bool one_device, const char *want) {
    const char *skip;
    char *line = serve_line(params, one_device, &skip);
    assert_null(skip);
    assert_string_equal(line, want);
    free(line);
}

static void test_server_lines(void **state) {
    (void)state;
    const char *skip;
    becomes("{}", false, "");
    becomes("{\"serve_args\": {\"max-num-seqs\": 8, \"async_chunk\": true, \"enforce-eager\": false, "
            "\"dtype\": null, \"hf-overrides\": {\"a\": 1}, \"trust-remote-code\": true}}",
            false, "--max-num-seqs 8 --async_chunk --hf-overrides {\"a\":1}");
    becomes("{\"extra_cli_args\": [\"--deploy-config\", \"a/b.yaml\", \"--trust-remote-code\", "
            "\"--stage-init-timeout\", \"900\", \"--async-chunk\"]}",
            false, "--deploy /overlays/x.yaml --async-chunk");
    becomes("{\"stage_overrides\": {\"1\": {\"devices\": \"1\", \"max_num_seqs\": 2}}}", false,
            "--stage-overrides {\"1\":{\"devices\":\"1\",\"max_num_seqs\":2}}");
    becomes("{\"stage_overrides\": {\"0\": {\"devices\": \"1\"}, \"1\": {\"devices\": \"1\", "
            "\"max_num_seqs\": 2}}}",
            true, "--stage-overrides {\"1\":{\"max_num_seqs\":2}}");
    becomes("{\"stage_config_name\": \"old.yaml\", \"update\": {\"async_chunk\": false, "
            "\"stage_args\": {\"0\": {\"engine_args.max_num_seqs\": 4, "
            "\"default_sampling_params.seed\": 7}}}, \"delete\": {\"stage_args\": {\"0\": "
            "[\"engine_args.compilation_config\"]}}}",
            false,
            "--deploy /overlays/x.yaml --set async_chunk=false --stage-overrides "
            "{\"0\":{\"max_num_seqs\":4,\"default_sampling_params\":{\"seed\":7},"
            "\"compilation_config\":null}}");
    free(serve_line("{\"serve_args\": {\"deploy-config\": \"missing.yaml\"}}", false, &skip));
    assert_non_null(skip);
}

/* Our own server with the embedded voice: started, measured, stopped. */
static void test_a_server_of_our_own(void **state) {
    (void)state;
    char suite[128], out[128], path[160];
    ran help = program("serve", "--help", NULL);
    bool there = help.code == 0;
    ran_free(&help);
    if (!there) {
        print_message("skipped: this build has no server\n");
        skip();
    }
    write_text(in_scratch(suite, sizeof suite, "own.json"),
               "[{\"test_name\": \"own\", \"server_params\": {\"model\": \"org/Voice\"}, "
               "\"benchmark_params\": [{\"num_prompts\": 1, \"max_concurrency\": 1, "
               "\"num_warmups\": 0, \"dataset_name\": \"seed-tts-text\", \"extra_body\": "
               "{\"voice\": \"rms\", \"language\": \"english\"}}]},"
               "{\"test_name\": \"no\", \"server_params\": {\"model\": \"org/Voice\", "
               "\"serve_args\": {\"no-such-option\": 1}}, \"benchmark_params\": "
               "[{\"num_prompts\": 1, \"max_concurrency\": 1}]}]");
    in_scratch(out, sizeof out, "out");
    ran r = program("bench", "suite", suite, "--checkpoint", "org/*=examples/voice", "--out", out,
                    "--threads", "1", "--frames", "3", NULL);
    assert_has(r.err, "omni-graph serve qwen3_tts --model examples/voice");
    assert_has(r.err, "the server ended with code 2 before it was ready");
    assert_int_equal(r.code, 1);
    snprintf(path, sizeof path, "%s/own.json", out);
    json_t *j = load(path);
    if (strcmp(str(run_of(j, 0, 0), "verdict"), "pass")) fail_msg("%s%s", r.err, r.out);
    assert_string_equal(str(run_of(j, 1, 0), "verdict"), "fail");
    ran_free(&r);
    json_decref(j);
}

/* Every public file is read without a complaint, and each of its items is somewhere. */
static void test_public_files(void **state) {
    (void)state;
    const char *shared = getenv("OG_SHARED");
    char pattern[512];
    glob_t g;
    snprintf(pattern, sizeof pattern, "%s/compat/perf/*/*.json",
             shared && *shared ? shared : OG_SOURCE_DIR "/../shared");
    if (glob(pattern, 0, NULL, &g) != 0) {
        print_message("skipped: the public suites are not here\n");
        skip();
    }
    for (size_t i = 0; i < g.gl_pathc; i++) {
        og_arena *a = og_arena_create();
        og__suite s;
        og_str warnings = OG_STR_INIT;
        og_err err = OG_ERR_INIT;
        if (og__suite_load(a, g.gl_pathv[i], &s, &warnings, &err) < 0)
            fail_msg("%s: %s", g.gl_pathv[i], err.msg);
        if (warnings.data && strstr(warnings.data, "unknown key")) fail_msg("%s", warnings.data);
        for (int e = 0; e < s.n_entries; e++)
            assert_true(s.entries[e].skip || s.entries[e].n_runs > 0);
        if (strstr(g.gl_pathv[i], "aug22_2026/test_tts.json")) assert_int_equal(s.n_runs, 19);
        og__suite_free(&s);
        og_str_free(&warnings);
        og_arena_destroy(a);
    }
    globfree(&g);
}

static int start(void **state) {
    server = mock_start();
    return enter_source_tree(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sweep),        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_stability),      cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_server_lines),   cmocka_unit_test(test_a_server_of_our_own),
        cmocka_unit_test(test_public_files),
    };
    return cmocka_run_group_tests(tests, start, remove_scratch);
}
