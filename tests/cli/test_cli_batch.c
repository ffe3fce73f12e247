/* run --batch: many lines, faults that stop nothing, and running again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cli/program.h"

#define BATCH                                                                            \
    "run", "qwen3_tts", "--model", "tests/data/qwen3_tts/tiny-b/custom_voice",           \
        "--max-tokens", "10"

static void write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int there(const char *name) {
    char path[160];
    return access(in_scratch(path, sizeof path, name), F_OK) == 0;
}

static const char lines[] =
    "{\"text\": \"One.\", \"voice\": \"ryan\", \"output\": \"b1.wav\", \"seed\": 1}\n"
    "\n"
    "{\"text\": \" \", \"voice\": \"ryan\", \"output\": \"b2.wav\"}\n"
    "{\"text\": \"broken\n"
    "{\"text\": \"Two words.\", \"voice\": \"serena\", \"output\": \"b3.flac\", "
    "\"seed\": \"18446744073709551615\"}\n"
    "{\"text\": \"No file.\", \"voice\": \"ryan\"}\n"
    "{\"text\": \"Three.\", \"voice\": \"nobody\", \"output\": \"b4.wav\"}\n";

static void test_faults_stop_nothing_and_done_is_done(void **state) {
    (void)state;
    char file[160], text[512];
    in_scratch(file, sizeof file, "batch.jsonl");
    write_file(file, lines);
    ran r = program(BATCH, "--batch", file, "-o", scratch(), "--in-order", "--stats", NULL);
    assert_int_equal(r.code, 1);
    assert_has(r.err, "batch.jsonl:3:1: error: text: must not be blank");
    assert_has(r.err, "batch.jsonl:4:");
    assert_has(r.err, "batch.jsonl:6:1: error: no output");
    assert_has(r.err, "batch.jsonl:7:1: error: voice: 'nobody'");
    assert_has(r.err, "6 lines, 2 done, 0 skipped, 4 failed");
    assert_has(r.err, "port buffers     0.0 KiB");
    const char *first = strstr(r.out, "\"line\":1"), *last = strstr(r.out, "\"line\":7");
    assert_true(first && last && first < last);
    ran_free(&r);
    assert_true(there("b1.wav") && there("b3.flac"));
    assert_false(there("b2.wav") || there("b4.wav"));

    r = program(BATCH, "--batch", file, "-o", scratch(), NULL);
    assert_has(r.err, "6 lines, 0 done, 2 skipped, 4 failed");
    ran_free(&r);

    /* A line that changed is done again. */
    snprintf(text, sizeof text, "%s",
             "{\"text\": \"Other.\", \"voice\": \"ryan\", \"output\": \"b1.wav\"}\n");
    write_file(file, text);
    assert_ends(program(BATCH, "--batch", file, "-o", scratch(), NULL), 0,
                "1 lines, 1 done, 0 skipped, 0 failed");
}

static void test_two_lines_one_file(void **state) {
    (void)state;
    char file[160];
    in_scratch(file, sizeof file, "twice.jsonl");
    write_file(file, "{\"text\": \"a\", \"output\": \"x.wav\"}\n"
                     "{\"text\": \"b\", \"output\": \"x.wav\"}\n");
    assert_ends(program(BATCH, "--batch", file, "-o", scratch(), NULL), 2,
                "twice.jsonl:2:1: error: output '");
    assert_ends(program(BATCH, "--batch", "/no/such/file.jsonl", NULL), 2, "/no/such/file");
}

/* A line's samples are those of the same request run alone. */
static void test_a_line_equals_a_run(void **state) {
    (void)state;
    char file[160], one[160], two[160];
    size_t n, m;
    in_scratch(file, sizeof file, "same.jsonl");
    write_file(file, "{\"text\": \"Same bits.\", \"voice\": \"ryan\", \"output\": \"s0.wav\", "
                     "\"seed\": 7}\n"
                     "{\"text\": \"Company for the first.\", \"voice\": \"serena\", "
                     "\"output\": \"s1.wav\", \"seed\": 8}\n");
    assert_ends(program(BATCH, "--batch", file, "-o", scratch(), "--set",
                        "talker.num_replicas=2", NULL),
                0, "2 done");
    in_scratch(one, sizeof one, "s0.wav");
    in_scratch(two, sizeof two, "alone.wav");
    assert_ends(program(BATCH, "--text", "Same bits.", "--voice", "ryan", "--seed", "7",
                        "-o", two, NULL),
                0, "alone.wav");
    char *a = slurp_path(one, &n), *b = slurp_path(two, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults_stop_nothing_and_done_is_done),
        cmocka_unit_test(test_two_lines_one_file),
        cmocka_unit_test(test_a_line_equals_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
