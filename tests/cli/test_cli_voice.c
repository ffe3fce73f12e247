/* voice save, and run with what it wrote. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nodes/media/audio.h"
#include "tests/cli/program.h"

#define BASE "--model", "tests/data/qwen3_tts/tiny-a/base"
#define RUN "run", "qwen3_tts", BASE, "--text", "Hello there.", "--max-tokens", "10"
#define SAID "--ref-text", "It was a bright cold day in April."

static char clip[128], voice[128];

static int make_clip(void **state) {
    (void)state;
    enum { RATE = 16000, N = RATE };
    static float x[2 * N];
    og_err err = OG_ERR_INIT;
    og_audio_out *out = NULL;
    in_scratch(clip, sizeof clip, "clip.flac");
    in_scratch(voice, sizeof voice, "anna.voice");
    for (int i = 0; i < 2 * N; i++) x[i] = (float)((i / 2 * 37 % 400) - 200) / 1000;
    return og_audio_create(clip, OG_AUDIO_FLAC, RATE, 2, &out, &err) < 0 ||
           og_audio_write(out, x, N, &err) < 0 || og_audio_commit(out, &err) < 0;
}

static void same_files(const char *a, const char *b) {
    size_t n, m;
    char *x = slurp_path(a, &n), *y = slurp_path(b, &m);
    assert_int_equal(n, m);
    assert_true(n > 1000);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static void test_save_and_speak(void **state) {
    (void)state;
    char a[128], b[128];
    in_scratch(a, sizeof a, "clip.wav");
    in_scratch(b, sizeof b, "voice.wav");
    assert_ends(program("voice", "save", BASE, "--ref-audio", clip, SAID, "--name", "anna",
                        "-o", voice, NULL), 0, "anna.voice: voice 'anna', ");
    assert_ends(program(RUN, "--seed", "7", "--ref-audio", clip, SAID, "-o", a, NULL), 0, "");
    assert_ends(program(RUN, "--seed", "7", "--ref-audio", voice, "-o", b, NULL), 0, "");
    same_files(a, b);
    assert_ends(program(RUN, "--seed", "7", "--ref-audio", clip, "--x-vector-only-mode", "-o",
                        a, NULL), 0, "");
    assert_ends(program("voice", "save", BASE, "--ref-audio", clip, "--x-vector-only-mode",
                        "--name", "anna", "-o", voice, "-q", NULL), 0, "");
    assert_ends(program(RUN, "--seed", "7", "--ref-audio", voice, "-o", b, NULL), 0, "");
    same_files(a, b);
}

/* A line of a batch names a voice like any clip. */
static void test_voice_in_a_batch(void **state) {
    (void)state;
    char lines[128], text[512], out[128], single[128];
    in_scratch(lines, sizeof lines, "lines.jsonl");
    in_scratch(out, sizeof out, "batch.wav");
    in_scratch(single, sizeof single, "single.wav");
    assert_ends(program("voice", "save", "qwen3_tts", BASE, "--ref-audio", clip, SAID,
                        "--name", "anna", "-o", voice, NULL), 0, "ref_codec.codes");
    snprintf(text, sizeof text,
             "{\"text\": \"Hello there.\", \"ref_audio\": \"%s\", \"seed\": 7, "
             "\"output\": \"%s\"}\n", voice, out);
    write_text(lines, text);
    assert_ends(program("run", "qwen3_tts", BASE, "--max-tokens", "10", "--batch", lines, NULL),
                0, "1 done");
    assert_ends(program(RUN, "--seed", "7", "--ref-audio", voice, "-o", single, NULL), 0, "");
    same_files(out, single);
}

/* The second line's clip was heard before, by both encoders. */
static void test_same_clip_twice(void **state) {
    (void)state;
    char lines[128], text[1024], one[128], two[128];
    in_scratch(lines, sizeof lines, "twice.jsonl");
    in_scratch(one, sizeof one, "twice1.wav");
    in_scratch(two, sizeof two, "twice2.wav");
    const char *line = "{\"text\": \"Hello there.\", \"ref_audio\": \"%s\", \"ref_text\": "
                       "\"It was a bright cold day.\", \"seed\": 7, \"output\": \"%s\"}\n";
    int n = snprintf(text, sizeof text, line, clip, one);
    snprintf(text + n, sizeof text - (size_t)n, line, clip, two);
    write_text(lines, text);
    ran r = program("run", "qwen3_tts", BASE, "--max-tokens", "10", "--batch", lines, "--stats",
                    NULL);
    assert_int_equal(r.code, 0);
    assert_has(r.err, "result cache     speaker: 1 of 2 clips found, 1.1 KiB kept");
    assert_has(r.err, "result cache     ref_codec: 1 of 2 clips found, ");
    ran_free(&r);
    same_files(one, two);
    r = program(RUN, "--ref-audio", voice, "-o", one, "--stats", NULL);
    if (strstr(r.err, "result cache")) fail_msg("a saved voice asks no encoder:\n%s", r.err);
    ran_free(&r);
}

static void test_what_is_refused(void **state) {
    (void)state;
    char wav[128];
    in_scratch(wav, sizeof wav, "refused.wav");
    assert_ends(program("voice", "load", NULL), 2, "only 'voice save'");
    assert_ends(program("voice", "save", "--ref-audio", clip, "--name", "a", "-o", voice, NULL),
                2, "needs --model");
    assert_ends(program("voice", "save", BASE, "--name", "a", "-o", voice, NULL), 2,
                "needs --ref-audio");
    assert_ends(program("voice", "save", BASE, "--ref-audio", clip, "--name", "a", "-o",
                        "/tmp/a.wav", NULL), 2, "ends in .voice");
    assert_ends(program("voice", "save", BASE, "--ref-audio", "/no/clip.wav", "--name", "a",
                        "-o", voice, NULL), 2, "/no/clip.wav");
    assert_ends(program("voice", "save", "--model", "tests/data/qwen3_tts/tiny-a/custom_voice",
                        "--ref-audio", clip, "--name", "a", "-o", voice, NULL), 2,
                "makes nothing of ref_audio");
    assert_ends(program("voice", "save", BASE, "--ref-audio", clip, "--x-vector-only-mode",
                        "--name", "anna", "-o", voice, NULL), 0, "");
    assert_ends(program(RUN, "--ref-audio", voice, "--no-x-vector-only-mode", "--ref-text",
                        "Hi.", "-o", wav, NULL), 2, "has no ref_codec.codes");
    assert_ends(program("run", "qwen3_tts", "--model", "tests/data/qwen3_tts/tiny-b/base",
                        "--text", "Hi.", "--ref-audio", voice, "-o", wav, NULL), 2, "voice");
    assert_false(exists(wav));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_save_and_speak),
                                       cmocka_unit_test(test_voice_in_a_batch),
                                       cmocka_unit_test(test_same_clip_twice),
                                       cmocka_unit_test(test_what_is_refused)};
    return cmocka_run_group_tests(tests, make_clip, NULL);
}
