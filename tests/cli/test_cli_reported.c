/* What users of other engines reported, seen from outside: the program, its exit code, its
 * outputs. A name carries the id of its report. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/ioctl.h>
#include <time.h>

#include "tests/cli/program.h"

#define MODEL_A "tests/data/qwen3_tts/tiny-a/custom_voice"
#define RUN_A "run", "qwen3_tts", "--model", MODEL_A, "--max-tokens", "12", "--seed", "3"
#define WAV_HEADER 44

static uint32_t u32(const char *at) {
    uint32_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

/* ---- audio ---------------------------------------------------------------------------- */

static void test_b036_b044_streamed_and_whole_hold_the_same(void **state) {
    (void)state;
    char path[128];
    size_t n;
    in_scratch(path, sizeof path, "whole.wav");
    ran r =
        program(RUN_A, "--text", "Once and no more.", "--voice", "ryan", "-o", "-", NULL);
    assert_int_equal(r.code, 0);
    assert_ends(program(RUN_A, "--text", "Once and no more.", "--voice", "ryan", "--set",
                        "async_chunk=false", "-o", path, NULL),
                0, "");
    char *whole = slurp_path(path, &n);
    assert_true(n > WAV_HEADER + 2 * 1920);
    assert_int_equal(r.n_out, n);
    assert_memory_equal(r.out + WAV_HEADER, whole + WAV_HEADER, n - WAV_HEADER);
    assert_memory_equal(r.out, "RIFF\xff\xff\xff\xff", 8);
    for (size_t i = 1; i + 4 <= n; i++) assert_true(memcmp(r.out + i, "RIFF", 4) != 0);
    free(whole);
    ran_free(&r);
}

/* The checkpoint with another rate in its vocoder's config. */
static void model_at(char *path, size_t size, int rate) {
    char name[32], command[512];
    snprintf(name, sizeof name, "rate%d", rate);
    in_scratch(path, size, name);
    snprintf(command, sizeof command,
             "cp -r " MODEL_A " '%s' && sed -i "
             "'s/\"output_sample_rate\": 24000/\"output_sample_rate\": %d/' "
             "'%s/speech_tokenizer/config.json'",
             path, rate, path);
    assert_int_equal(system(command), 0);
}

/* No rate is a constant: not in the header, not in the gap between two lanes. */
static void test_b046_the_rate_is_the_stages(void **state) {
    (void)state;
    const int rates[] = {44100, 16000};
    for (int i = 0; i < 2; i++) {
        char model[128], path[128];
        size_t n;
        model_at(model, sizeof model, rates[i]);
        in_scratch(path, sizeof path, "rate.wav");
        assert_ends(program("run", "qwen3_tts", "--model", model, "--text", "Hi.",
                            "--voice", "ryan", "--max-tokens", "5", "-o", path, NULL),
                    0, "");
        char *wav = slurp_path(path, &n);
        assert_int_equal(u32(wav + 24), rates[i]);
        assert_int_equal(u32(wav + 28), 2 * rates[i]);
        free(wav);
        ran r = program("run", "dialogue", "--model", model, "--text",
                        "ryan: Hi.\nryan: Hi.", "--seed", "1", "--max-tokens", "5",
                        "--tap", "code2wav.audio", "-f", "json", "-o", "-", NULL);
        assert_int_equal(r.code, 0);
        json_t *j = json_loads(r.out, 0, NULL);
        json_t *taps = json_object_get(j, "taps"), *tap;
        const char *key;
        json_int_t samples = 0, joined = 0;
        json_object_foreach(taps, key, tap) samples +=
            json_integer_value(json_array_get(json_object_get(tap, "shape"), 0));
        json_t *audio = json_object_get(j, "audio");
        joined = json_integer_value(json_object_get(audio, "samples"));
        assert_int_equal(json_integer_value(json_object_get(audio, "sample_rate")),
                         rates[i]);
        assert_int_equal(json_object_size(taps), 2);
        assert_int_equal(joined - samples, rates[i] / 4);
        json_decref(j);
        ran_free(&r);
    }
}

/* ---- requests ------------------------------------------------------------------------- */

static int count(const char *text, char c) {
    int n = 0;
    for (; *text; text++) n += *text == c;
    return n;
}

static void add_line(json_t *fields, FILE *f) {
    char *text = json_dumps(fields, JSON_COMPACT);
    fprintf(f, "%s\n", text);
    free(text);
    json_decref(fields);
}

/* Ids that repeat, are empty, endless or hold a line break swap no outputs, and what the
 * caller wrote makes no line of its own in the messages. */
static void test_b049_ids_of_the_caller(void **state) {
    (void)state;
    static char endless[65537];
    char file[128], name[32], path[128], alone[128];
    memset(endless, 'x', sizeof endless - 1);
    const char *const ids[] = {"same", "same", "", "", endless, "a\nb: c\r\n"};
    enum { N = sizeof ids / sizeof *ids };
    in_scratch(file, sizeof file, "ids.jsonl");
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    for (int i = 0; i < N; i++) {
        char text[32], out[32];
        snprintf(text, sizeof text, "Number %d.", i);
        snprintf(out, sizeof out, "id%d.wav", i);
        add_line(json_pack("{s:s,s:s,s:s,s:s,s:i}", "request_id", ids[i], "text", text,
                           "voice", "ryan", "output", out, "seed", i),
                 f);
    }
    add_line(json_pack("{s:s,s:s,s:s}", "text", "Hi.", "voice", "no\nbody\x1b[31m",
                       "output", "id6.wav"),
             f);
    fclose(f);
    ran r = program("run", "qwen3_tts", "--model", MODEL_A, "--max-tokens", "8",
                    "--batch", file, "-o", scratch(), NULL);
    assert_int_equal(r.code, 1);
    assert_has(r.err, "ids.jsonl:7:1: error: voice: 'no body [31m'");
    assert_has(r.err, "7 lines, 6 done, 0 skipped, 1 failed");
    assert_int_equal(count(r.err, '\n'), 2);
    assert_int_equal(count(r.out, '\n'), N + 1);
    ran_free(&r);
    in_scratch(alone, sizeof alone, "id_alone.wav");
    for (int i = 0; i < N; i++) {
        char text[32], seed[8];
        size_t n, m;
        snprintf(name, sizeof name, "id%d.wav", i);
        snprintf(text, sizeof text, "Number %d.", i);
        snprintf(seed, sizeof seed, "%d", i);
        in_scratch(path, sizeof path, name);
        assert_ends(program("run", "qwen3_tts", "--model", MODEL_A, "--max-tokens", "8",
                            "--text", text, "--voice", "ryan", "--seed", seed, "-o",
                            alone, NULL),
                    0, "");
        char *a = slurp_path(path, &n), *b = slurp_path(alone, &m);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, n);
        free(a);
        free(b);
    }
}

/* A prompt past the window is refused with both numbers, and the other line goes on. */
static void test_b054_a_prompt_past_the_window(void **state) {
    (void)state;
    char file[128], lines[512], path[128];
    in_scratch(file, sizeof file, "window.jsonl");
    in_scratch(path, sizeof path, "w2.wav");
    snprintf(lines, sizeof lines,
             "{\"text\": \"%0*d\", \"voice\": \"ryan\", \"output\": \"w1.wav\"}\n"
             "{\"text\": \"1\", \"voice\": \"ryan\", \"output\": \"w2.wav\"}\n",
             200, 0);
    write_text(file, lines);
    ran r = program("run", "qwen3_tts", "--model", MODEL_A, "--max-tokens", "8",
                    "--batch", file, "-o", scratch(), "--set", "talker.max_model_len=64",
                    "--stats", NULL);
    assert_int_equal(r.code, 1);
    assert_has(r.err, "window.jsonl:1:1: error: prompt has 2");
    assert_has(r.err, "rows, the limit of stage 'talker' is 64");
    assert_has(r.err, "2 lines, 1 done, 0 skipped, 1 failed");
    assert_has(r.err, "0 of 8");
    ran_free(&r);
    assert_true(exists(path));
    assert_ends(program("run", "qwen3_tts", "--model", MODEL_A, "--text", "Hi.",
                        "--voice", "ryan", "--max-tokens", "0", "-o", path, NULL),
                2, "--max-tokens must be a whole number from 1");
}

static void test_b055_blank_text_in_a_batch(void **state) {
    (void)state;
    char file[128], path[128];
    in_scratch(file, sizeof file, "blank.jsonl");
    in_scratch(path, sizeof path, "blank0.wav");
    write_text(
        file,
        "{\"voice\": \"ryan\", \"output\": \"blank0.wav\"}\n"
        "{\"text\": null, \"voice\": \"ryan\", \"output\": \"blank1.wav\"}\n"
        "{\"text\": \"\", \"voice\": \"ryan\", \"output\": \"blank2.wav\"}\n"
        "{\"text\": \" \\t\\n\", \"voice\": \"ryan\", \"output\": \"blank3.wav\"}\n"
        "{\"text\": \"\\u3000\", \"voice\": \"ryan\", \"output\": \"blank4.wav\"}\n");
    ran r = program("run", "qwen3_tts", "--model", MODEL_A, "--batch", file, "-o",
                    scratch(), "--stats", NULL);
    assert_int_equal(r.code, 1);
    assert_has(r.err, "5 lines, 0 done, 0 skipped, 5 failed");
    assert_has(r.err, "0 admitted");
    for (int i = 1; i <= 5; i++) {
        char at[48];
        snprintf(at, sizeof at, "blank.jsonl:%d:1: error: text: ", i);
        assert_has(r.err, at);
    }
    ran_free(&r);
    assert_false(exists(path));
}

/* ---- scheduling ----------------------------------------------------------------------- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Until the pipe holds what it can: the writer is then waiting for us. */
static void wait_until_full(int fd) {
    int have = -1, before = -2;
    for (int i = 0; i < 600 && (have != before || have <= 0); i++) {
        before = have;
        usleep(200000);
        assert_int_equal(ioctl(fd, FIONREAD, &have), 0);
    }
    assert_true(have > 4096);
}

/* Nobody reads standard output, and still SIGTERM ends the run. */
static void test_b086_sigterm_while_nobody_reads(void **state) {
    (void)state;
    static char text[700];
    int fds[2], status = 0;
    for (size_t n = 0; n + 64 < sizeof text; n += strlen(text + n))
        snprintf(text + n, sizeof text - n, "The children play in the garden. ");
    assert_int_equal(pipe(fds), 0);
    char *argv[] = {(char *)"omni-graph", (char *)"run", (char *)"qwen3_tts",
                    (char *)"--text",     text,          (char *)"--voice",
                    (char *)"rms",        (char *)"-q",  (char *)"-o",
                    (char *)"-",          NULL};
    posix_spawn_file_actions_t io;
    posix_spawn_file_actions_init(&io);
    posix_spawn_file_actions_adddup2(&io, fds[1], 1);
    posix_spawn_file_actions_addclose(&io, fds[0]);
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, binary(), &io, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&io);
    close(fds[1]);
    wait_until_full(fds[0]);
    double start = now();
    kill(pid, SIGTERM);
    while (waitpid(pid, &status, WNOHANG) == 0 && now() - start < 10) usleep(5000);
    double took = now() - start;
    if (took >= 10) kill(pid, SIGKILL);
    assert_true(took < 2);
    assert_int_equal(WEXITSTATUS(status), 130);
    close(fds[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b036_b044_streamed_and_whole_hold_the_same),
        cmocka_unit_test(test_b046_the_rate_is_the_stages),
        cmocka_unit_test(test_b049_ids_of_the_caller),
        cmocka_unit_test(test_b054_a_prompt_past_the_window),
        cmocka_unit_test(test_b055_blank_text_in_a_batch),
        cmocka_unit_test(test_b086_sigterm_while_nobody_reads),
    };
    return cmocka_run_group_tests(tests, enter_source_tree, remove_scratch);
}
