/* `bench serve` against a mock server over real sockets. Nothing here looks at how long
 * anything takes, but for what a pause of the mock makes certain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cli/mock_speech.h"
#include "tests/cli/program.h"

#define FRAME 1920

static mock *server;

static json_t *result_of(const char *path) {
    json_error_t e;
    json_t *j = json_load_file(path, 0, &e);
    if (!j) fail_msg("%s: %s", path, e.text);
    return j;
}

static double num(const json_t *j, const char *key) {
    const json_t *v = json_object_get(j, key);
    if (!json_is_number(v)) fail_msg("the result has no number '%s'", key);
    return json_number_value(v);
}

/* A run of n requests with one voice: its result. */
static json_t *bench_args(const char *voice, const char *n, int code, const char *const a[6]) {
    char path[128];
    ran r = program("bench", "serve", "--base-url", server->url, "--voice", voice, "-n", n,
                    "--warmup", "0", "--seed", "3", "-o",
                    in_scratch(path, sizeof path, "result.json"), "--save-detailed", a[0], a[1], a[2],
                    a[3], a[4], a[5], NULL);
    if (r.code != code) fail_msg("exit code %d:\n%s%s", r.code, r.err, r.out);
    ran_free(&r);
    return result_of(path);
}

#define bench(voice, n, code, ...) \
    bench_args(voice, n, code, (const char *const[6]){__VA_ARGS__})

/* All requests of a voice fail in one way. */
static void fails_as(const char *voice, const char *kind, const char *words, const char *a,
                     const char *b) {
    json_t *j = bench(voice, "3", 1, "-c", "2", a, b);
    json_t *one = json_object_get(json_object_get(j, "errors_by_kind"), kind);
    if (!one) fail_msg("%s: %s", voice, json_dumps(json_object_get(j, "errors_by_kind"), 0));
    assert_int_equal(num(one, "count"), 3);
    assert_has(json_string_value(json_object_get(one, "first")), words);
    assert_int_equal(num(j, "completed"), 0);
    assert_int_equal(num(j, "failed"), 3);
    json_decref(j);
}

static void test_closed_loop(void **state) {
    (void)state;
    int before = server->connections;
    json_t *j = bench("plain", "20", 0, "-c", "4", "--model", "some-model");
    assert_int_equal(num(j, "completed"), 20);
    assert_int_equal(num(j, "failed"), 0);
    assert_int_equal(num(j, "total_audio_frames"), 20 * 4 * FRAME);
    assert_true(num(j, "total_audio_duration_s") > 6.39 &&
                num(j, "total_audio_duration_s") < 6.41);
    assert_int_equal(num(j, "max_concurrent_requests"), 4);
    assert_int_equal(num(j, "max_concurrency"), 4);
    assert_int_equal(num(j, "total_input_tokens"), 20 * 7);
    assert_string_equal(json_string_value(json_object_get(j, "model_id")), "some-model");
    assert_string_equal(json_string_value(json_object_get(j, "request_rate")), "inf");
    /* One to see whether somebody is there, one to see that again, and four that are kept. */
    assert_true(server->connections - before <= 7);
    json_decref(j);
}

/* The fields of the public client's result that speech fills, under their names. */
static void test_fields_of_the_public_client(void **state) {
    (void)state;
    static const char *const fields[] = {
        "date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts",
        "request_rate", "burstiness", "max_concurrency", "duration", "completed", "failed",
        "total_input_tokens", "total_output_tokens", "request_throughput", "request_goodput",
        "output_throughput", "total_token_throughput", "max_output_tokens_per_s",
        "max_concurrent_requests", "rtfx", "num_ttft_samples", "num_tpot_samples",
        "num_itl_samples", "num_audio_ttfp_samples", "num_audio_rtf_samples",
        "total_audio_duration_s", "total_audio_frames", "audio_throughput",
        "mean_audio_ttfp_ms", "median_audio_ttfp_ms", "p99_audio_ttfp_ms", "mean_audio_rtf",
        "median_audio_rtf", "p99_audio_rtf", "mean_audio_duration_s", "median_audio_duration_s",
        "p99_audio_duration_s", "mean_audio_underrun_s", "median_audio_underrun_s",
        "mean_e2el_ms", "median_e2el_ms", "p99_e2el_ms",
    };
    json_t *j = bench("plain", "4", 0, "--metric-percentiles", "99,99.9", "-c", "1");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!json_object_get(j, fields[i])) fail_msg("no field '%s'", fields[i]);
    assert_non_null(json_object_get(j, "p99.9_audio_ttfp_ms"));
    assert_null(json_object_get(j, "p95_audio_ttfp_ms"));
    json_decref(j);
}

static void test_stored_result_of_the_public_client(void **state) {
    (void)state;
    const char *shared = getenv("OG_SHARED"), *key;
    char path[512];
    json_t *value, *j;
    snprintf(path, sizeof path, "%s/compat/bench-results/bench_tts_result.json",
             shared && *shared ? shared : OG_SOURCE_DIR "/../shared");
    if (!exists(path)) {
        print_message("skipped: no stored results of the public client\n");
        skip();
    }
    json_t *theirs = result_of(path);
    j = bench("plain", "4", 0, "-c", "2", "--metric-percentiles", "99");
    json_object_foreach(theirs, key, value) {
        int speech = !strstr(key, "image") && !strstr(key, "video") && !strstr(key, "memory") &&
                      !strstr(key, "stage_") && !strstr(key, "denoise");
        if (speech && !json_object_get(j, key)) fail_msg("no field '%s'", key);
    }
    json_decref(theirs);
    json_decref(j);
}

static void test_bodies(void **state) {
    (void)state;
    json_t *j = bench("plain", "1", 0, "--language", "English", "--extra-body",
                      "{\"task_type\": \"CustomVoice\", \"stream\": false}");
    json_decref(j);
    assert_has(server->last_head, "POST /v1/audio/speech HTTP/1.1");
    json_t *body = json_loads(server->last_body, 0, NULL);
    assert_non_null(body);
    assert_string_equal(json_string_value(json_object_get(body, "model")), "mock-tts");
    assert_string_equal(json_string_value(json_object_get(body, "language")), "English");
    assert_string_equal(json_string_value(json_object_get(body, "task_type")), "CustomVoice");
    assert_string_equal(json_string_value(json_object_get(body, "stream_format")), "audio");
    assert_string_equal(json_string_value(json_object_get(body, "response_format")), "pcm");
    assert_true(json_is_true(json_object_get(body, "stream")));
    assert_true(json_string_length(json_object_get(body, "input")) > 3);
    json_decref(body);
    json_decref(bench("plain", "1", 0, "--api-key", "sesame", "--header", "X-Tier: gold"));
    assert_has(server->last_head, "Authorization: Bearer sesame\r\n");
    assert_has(server->last_head, "X-Tier: gold\r\n");
}

static void test_same_seed_same_load(void **state) {
    (void)state;
    ran a = program("bench", "serve", "--dry-run", "-n", "80", "--seed", "5", NULL);
    ran b = program("bench", "serve", "--dry-run", "-n", "80", "--seed", "5", NULL);
    ran c = program("bench", "serve", "--dry-run", "-n", "80", "--seed", "6", NULL);
    assert_int_equal(a.code, 0);
    assert_string_equal(a.out, b.out);
    assert_string_not_equal(a.out, c.out);
    ran_free(&a);
    ran_free(&b);
    ran_free(&c);
    a = program("bench", "serve", "--dry-run", "-n", "3", "--dataset", "random",
                "--random-input-len", "5", NULL);
    assert_int_equal(a.code, 0);
    assert_has(a.out, "\"input\":");
    ran_free(&a);
}

static void test_open_loop(void **state) {
    (void)state;
    json_t *j = bench("plain", "40", 0, "-r", "200", "--burstiness", "0.5");
    json_t *all = json_object_get(j, "requests");
    assert_int_equal(num(j, "completed"), 40);
    assert_int_equal(json_array_size(all), 40);
    /* Forty at 200 a second: the last one is due after 0.2 s. */
    assert_true(num(json_array_get(all, 39), "start_s") >= 0.2);
    for (size_t i = 1; i < 40; i++)
        assert_true(num(json_array_get(all, i), "start_s") >=
                    num(json_array_get(all, i - 1), "start_s"));
    json_decref(j);
}

static void test_pieces(void **state) {
    (void)state;
    json_t *a = bench("plain", "1", 0, "-c", "1"), *b = bench("bytewise", "1", 0, "-c", "1");
    const json_t *x = json_array_get(json_object_get(a, "requests"), 0),
                 *y = json_array_get(json_object_get(b, "requests"), 0);
    assert_int_equal(num(x, "samples"), 4 * FRAME);
    assert_int_equal(num(y, "samples"), 4 * FRAME);
    assert_string_equal(json_string_value(json_object_get(x, "digest")),
                        json_string_value(json_object_get(y, "digest")));
    json_decref(a);
    json_decref(b);
}

/* Raw, events, whole WAV and whole PCM are the same samples. */
static void test_forms_of_an_answer(void **state) {
    (void)state;
    static const struct {
        const char *voice, *stream, *format;
    } forms[] = {{"plain", "audio", "pcm"}, {"plain", "sse", "pcm"}, {"sse-split", "sse", "pcm"},
                 {"plain", "none", "wav"},  {"plain", "none", "pcm"},
                 {"bytewise", "sse", "pcm"}, {"bytewise", "none", "wav"}};
    char first[32] = "";
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        json_t *j = bench(forms[i].voice, "2", 0, "--stream", forms[i].stream,
                          "--response-format", forms[i].format);
        const json_t *r = json_array_get(json_object_get(j, "requests"), 1);
        const char *digest = json_string_value(json_object_get(r, "digest"));
        assert_int_equal(num(r, "samples"), 4 * FRAME);
        if (!*first) snprintf(first, sizeof first, "%s", digest);
        assert_string_equal(first, digest);
        json_decref(j);
    }
}

static void test_listener(void **state) {
    (void)state;
    json_t *j = bench("gap", "2", 0, "-c", "2", "--goodput", "underrun:0");
    assert_int_equal(num(j, "audio_underruns"), 2);
    assert_true(num(j, "audio_continuity") == 0);
    assert_true(num(j, "mean_audio_underrun_s") > 0.03);
    assert_true(num(j, "request_goodput") == 0);
    json_decref(j);
    j = bench("quiet", "1", 0, "-c", "1", "--goodput", "rtf:1000");
    /* 2400 samples of silence are 100 ms, wherever they lie. */
    assert_true(num(j, "mean_audio_ttfa_ms") >= num(j, "mean_audio_ttfp_ms") + 99.9);
    assert_true(num(j, "request_goodput") > 0);
    json_decref(j);
}

static void test_lengths(void **state) {
    (void)state;
    json_t *j = bench("frames", "4", 0, "--frames", "3", "-c", "1");
    assert_int_equal(num(j, "total_audio_frames"), 4 * 3 * FRAME);
    json_decref(j);
    json_decref(bench("frames", "8", 0, "--frames", "text", "-c", "4"));
    fails_as("plain", "length", "7680 samples, 5760 were expected", "--frames", "3");
    fails_as("short", "length", "no multiple of 1920", "--frame-samples", "1920");
}

static void test_every_kind_of_failure(void **state) {
    (void)state;
    fails_as("bad", "status", "status 400: voice: there is no voice 'bad'", NULL, NULL);
    fails_as("full", "refused", "status 429: the queue is full", NULL, NULL);
    fails_as("reset", "reset", "", NULL, NULL);
    fails_as("close", "reset", "without an answer", NULL, NULL);
    fails_as("garbage", "protocol", "not HTTP/1.1", NULL, NULL);
    fails_as("odd", "protocol", "within a sample", NULL, NULL);
    fails_as("json", "protocol", "JSON, not audio", NULL, NULL);
    fails_as("empty", "empty", "no audio", NULL, NULL);
    fails_as("hang", "timeout", "no end within 0.1 s", "--timeout", "0.1");
    fails_as("sse-error", "server", "the model fell over", "--stream", "sse");
    fails_as("sse-cut", "protocol", "end without speech.audio.done", "--stream", "sse");
}

/* A kept connection that the server closed meanwhile is no failure of the request. */
static void test_connections_that_are_gone(void **state) {
    (void)state;
    json_t *j = bench("fickle", "10", 0, "-c", "2");
    assert_int_equal(num(j, "completed"), 10);
    json_decref(j);
}

/* Ctrl-C: what there is by then is told and kept. */
static void test_stopped(void **state) {
    (void)state;
    char path[128];
    int before = server->posts;
    in_scratch(path, sizeof path, "stopped.json");
    char *argv[] = {(char *)"omni-graph", (char *)"bench", (char *)"serve", (char *)"--base-url",
                    server->url, (char *)"--voice", (char *)"hang", (char *)"--warmup",
                    (char *)"0", (char *)"-c", (char *)"2", (char *)"-n", (char *)"50",
                    (char *)"-o", path, NULL};
    child c = start_argv(binary(), argv, NULL);
    while (server->posts < before + 2) usleep(2000);
    kill(c.pid, SIGTERM);
    ran r = wait_for(c);
    assert_int_equal(r.code, 130);
    assert_has(r.out, "0 of 50 requests completed");
    ran_free(&r);
    json_t *j = result_of(path);
    assert_true(json_is_true(json_object_get(j, "stopped")));
    json_decref(j);
}

static void test_text_for_people(void **state) {
    (void)state;
    ran r = program("bench", "serve", "--base-url", server->url, "-n", "4", "-c", "2",
                    "--goodput", "ttfp:10000 e2el:10000", NULL);
    assert_int_equal(r.code, 0);
    assert_has(r.out, "4 of 4 requests completed, 0 failed");
    assert_has(r.out, "first packet, ms");
    assert_has(r.out, "100.0% within the limits");
    ran_free(&r);
}

static void test_files_of_texts(void **state) {
    (void)state;
    char path[128];
    write_text(in_scratch(path, sizeof path, "t.txt"),
               "One.\n\n  {\"input\": \"Two.\", \"voice\": \"anna\", \"speed\": 1.5}  \r\n");
    ran r = program("bench", "serve", "--dry-run", "-n", "3", "--disable-shuffle", "--dataset",
                    path, "--voice", "bob", NULL);
    assert_int_equal(r.code, 0);
    assert_has(r.out, "\"input\":\"One.\",\"voice\":\"bob\"");
    assert_has(r.out, "\"input\":\"Two.\",\"voice\":\"anna\"");
    assert_has(r.out, "\"speed\":1.5");
    ran_free(&r);
    write_text(in_scratch(path, sizeof path, "s.lst"), "a|words|no.wav|Say this.\n");
    assert_ends(program("bench", "serve", "--dry-run", "-n", "1", "--dataset", path, NULL), 2,
                "no.wav': No such file");
    write_text(path, "a|words\n");
    assert_ends(program("bench", "serve", "--dry-run", "-n", "1", "--dataset", path, NULL), 1,
                "s.lst:1:1: error: four fields are needed");
    write_text(in_scratch(path, sizeof path, "t.txt"), "One.\n{\"input\": 3}\n");
    assert_ends(program("bench", "serve", "--dry-run", "-n", "1", "--dataset", path, NULL), 1,
                "t.txt:2:1: error: the object has no \"text\"");
    write_text(path, "One.\nTwo \xff\n");
    assert_ends(program("bench", "serve", "--dry-run", "-n", "1", "--dataset", path, NULL), 1,
                "t.txt:2:1: error: the line is not UTF-8");
    write_text(path, "\n\n");
    assert_ends(program("bench", "serve", "--dry-run", "-n", "1", "--dataset", path, NULL), 2,
                "holds no texts");
}

static void test_bad_usage(void **state) {
    (void)state;
#define BENCH(...) program("bench", "serve", __VA_ARGS__, NULL)
    assert_ends(program("bench", NULL), 2, "usage: omni-graph bench serve|suite");
    assert_ends(program("bench", "surve", NULL), 2, "there is no 'bench surve'");
    assert_ends(BENCH("--base-url", "https://x"), 2, "speaks no TLS");
    assert_ends(BENCH("--base-url", "http://x:99999"), 2, "is no URL of a server");
    assert_ends(BENCH("--base-url", "http://[::1"), 2, "is no URL of a server");
    assert_ends(BENCH("--max-concurrency", "0"), 2, "whole number from 1");
    assert_ends(BENCH("--request-rate", "-1"), 2, "--request-rate must be a number");
    assert_ends(BENCH("--burstiness", "2"), 2, "needs a --request-rate");
    assert_ends(BENCH("--goodput", "speed:3"), 2, "'speed:3' is no limit");
    assert_ends(BENCH("--metric-percentiles", "101"), 2, "0 to 100");
    assert_ends(BENCH("--extra-body", "{"), 2, "--extra-body is not JSON");
    assert_ends(BENCH("--extra-body", "[]"), 2, "is a JSON object");
    assert_ends(BENCH("--response-format", "mp3"), 2, "a stream is pcm or wav");
    assert_ends(BENCH("--backend", "openai-chat-omni"), 2, "cannot be measured yet");
    assert_ends(BENCH("--dataset", "no/such/file"), 2, "built in are: english");
    assert_ends(BENCH("--header", "nonsense"), 2, "NAME=VALUE");
    assert_ends(BENCH("-o", "no/such/folder/r.json"), 2, "there is no folder");
    assert_ends(BENCH("--max-concurency", "1"), 2, "did you mean '--max-concurrency'?");
#undef BENCH
}

static void test_no_server(void **state) {
    (void)state;
    assert_ends(program("bench", "serve", "--port", "1", "-n", "1", NULL), 1,
                "cannot connect to 127.0.0.1 port 1: Connection refused");
    assert_ends(program("bench", "serve", "--base-url", server->url, "--voice", "bad", "-n", "2",
                        NULL),
                1, "all 2 warm-up requests failed; the first: status 400: voice");
}

static int start(void **state) {
    server = mock_start();
    return enter_source_tree(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_loop),
        cmocka_unit_test(test_fields_of_the_public_client),
        cmocka_unit_test(test_stored_result_of_the_public_client),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_same_seed_same_load),
        cmocka_unit_test(test_open_loop),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_forms_of_an_answer),
        cmocka_unit_test(test_listener),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_every_kind_of_failure),
        cmocka_unit_test(test_connections_that_are_gone),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_text_for_people),
        cmocka_unit_test(test_files_of_texts),
        cmocka_unit_test(test_bad_usage),
        cmocka_unit_test(test_no_server),
    };
    return cmocka_run_group_tests(tests, start, remove_scratch);
}
