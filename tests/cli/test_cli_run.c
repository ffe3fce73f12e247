/* run, end to end with the small checkpoints: outputs, taps, refusals, Ctrl-C. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/alloc.h"
#include "nodes/media/npy.h"
#include "tests/cli/program.h"
#include "tests/support/golden.h"

#define MODEL "--model", "tests/data/qwen3_tts/tiny-a/custom_voice"
#define SPEAKER "--voice", "ryan", "--language", "English"
#define TEXT "Hello, this is a test of the engine."
#define LIKE_GOLDEN                                                                      \
    "--greedy", "--max-tokens", "20", "--set",                                           \
        "talker.default_sampling_params.repetition_penalty=1.05", "--non-streaming-mode"

static uint32_t u32(const char *at) {
    uint32_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

static void no_leftovers(void) {
    char command[160];
    snprintf(command, sizeof command, "ls '%s' | grep -q tmp", scratch());
    assert_int_not_equal(system(command), 0);
}

static void test_codes_and_wav_are_the_golden_ones(void **state) {
    (void)state;
    char wav[128], npy[128], tap[160];
    og_tensor codes;
    og_err err = OG_ERR_INIT;
    size_t n;
    in_scratch(wav, sizeof wav, "golden.wav");
    snprintf(tap, sizeof tap, "talker.codes=%s",
             in_scratch(npy, sizeof npy, "codes.npy"));
    assert_ends(program("run", "qwen3_tts", MODEL, SPEAKER, "--text", TEXT, LIKE_GOLDEN,
                        "--tap", tap, "-o", wav, NULL),
                0, "golden.wav: 0.96 s of audio in ");
    og_weights *g = golden_open("qwen3_tts/tiny-a/cv_en");
    og_tensor want = golden_get(g, "codes"), samples = golden_get(g, "wav");
    assert_int_equal(og_npy_read(npy, &codes, &err), 0);
    assert_int_equal(codes.dtype, OG_I64);
    assert_int_equal(codes.rank, 2);
    assert_int_equal(codes.ne[0], want.ne[0]);
    assert_int_equal(codes.ne[1], want.ne[1]);
    assert_memory_equal(codes.data, want.data, og_tensor_bytes(&want));
    og_free(codes.data);

    char *bytes = slurp_path(wav, &n);
    int64_t frames = golden_i64(g, "wav_len", 0);
    assert_int_equal(n, 44 + 2 * frames);
    assert_memory_equal(bytes, "RIFF", 4);
    assert_int_equal(u32(bytes + 4), n - 8);
    assert_int_equal(u32(bytes + 24), 24000);
    assert_int_equal(u32(bytes + 40), n - 44);
    for (int64_t i = 0; i < og_tensor_count(&samples); i++) {
        int16_t v;
        memcpy(&v, bytes + 44 + 2 * i, sizeof v);
        double d = (double)v - 32767.0 * (double)golden_f32_at(&samples, i);
        assert_true(d < 3 && d > -3);
    }
    free(bytes);
    og_weights_close(g);
}

static void test_formats(void **state) {
    (void)state;
    char path[128];
    size_t n;
    const char *const names[] = {"a.flac", "a.pcm", "a.raw"};
    for (int i = 0; i < 3; i++) {
        in_scratch(path, sizeof path, names[i]);
        assert_ends(program("run", "qwen3_tts", MODEL, SPEAKER, "--text", TEXT,
                            LIKE_GOLDEN, "-qo", path, NULL),
                    0, "");
        char *bytes = slurp_path(path, &n);
        if (i == 0)
            assert_memory_equal(bytes, "fLaC", 4);
        else
            assert_int_equal(n, 2 * 23040);
        free(bytes);
    }
    ran r = program("run", "qwen3_tts", MODEL, SPEAKER, "--text", TEXT, LIKE_GOLDEN, "-q",
                    "-o", "-", NULL);
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    assert_int_equal(r.n_out, 44 + 2 * 23040);
    assert_memory_equal(r.out, "RIFF\xff\xff\xff\xff", 8);
    ran_free(&r);
    r = program("run", "qwen3_tts", MODEL, SPEAKER, "--text", TEXT, LIKE_GOLDEN, "-q",
                "-o", "-", "--format", "pcm", NULL);
    assert_int_equal(r.n_out, 2 * 23040);
    ran_free(&r);
}

static void test_json(void **state) {
    (void)state;
    ran r = program("run", "qwen3_tts", MODEL, SPEAKER, "--text", TEXT, LIKE_GOLDEN, "-q",
                    "--tap", "talker.codes", "--tap", "code2wav.audio", "--format",
                    "json", "-o", "-", "--seed", "18446744073709551615", NULL);
    assert_int_equal(r.code, 0);
    json_t *j = json_loads(r.out, 0, NULL);
    assert_non_null(j);
    json_t *audio = json_object_get(j, "audio"), *taps = json_object_get(j, "taps");
    json_t *codes = json_object_get(json_object_get(taps, "talker.codes"), "data");
    assert_int_equal(json_integer_value(json_object_get(audio, "samples")), 23040);
    assert_int_equal(json_integer_value(json_object_get(audio, "sample_rate")), 24000);
    assert_string_equal(json_string_value(json_object_get(j, "seed")),
                        "18446744073709551615");
    assert_int_equal(json_array_size(codes), 12);
    assert_int_equal(json_array_size(json_array_get(codes, 11)), 16);
    codes = json_object_get(json_object_get(taps, "code2wav.audio"), "data");
    assert_int_equal(json_array_size(codes), 23040);
    json_decref(j);
    ran_free(&r);
}

/* The same request by flags, by JSON, by file and by standard input; the same seed. */
static void test_ways_to_say_it(void **state) {
    (void)state;
    char path[128], arg[136];
    snprintf(arg, sizeof arg, "@%s", in_scratch(path, sizeof path, "say.json"));
    write_text(path, "{\"text\": \"Good day\", \"voice\": \"ryan\"}");
#define SAY MODEL, "--seed", "7", "--max-tokens", "12", "-q", "-o", "-"
    ran a =
        program("run", "qwen3_tts", SAY, "--text", "Good day", "--voice", "ryan", NULL);
    ran b =
        program("run", "qwen3_tts", SAY, "--request",
                "{\"text\": \"Good day\", \"voice\": \"serena\"}", "--voice=RYAN", NULL);
    ran c = program("run", "qwen3_tts", SAY, "-r", arg, NULL);
    ran d = program_in("Good day\n", "run", "qwen3_tts", SAY, "--text", "-", "--voice",
                       "ryan", NULL);
    ran e = program("run", "qwen3_tts", SAY, "--text", "Good day", "--voice", "ryan",
                    "--no-async-chunk", "--threads", "1", NULL);
    ran *all[] = {&b, &c, &d, &e};
    if (a.code) fail_msg("%s", a.err);
    assert_true(a.n_out > 44);
    for (int i = 0; i < 4; i++) {
        if (all[i]->code) fail_msg("%d: %s", i, all[i]->err);
        assert_int_equal(all[i]->n_out, a.n_out);
        assert_memory_equal(all[i]->out, a.out, a.n_out);
        ran_free(all[i]);
    }
    ran_free(&a);
}

static int64_t npy_rows(const char *name, const char *suffix) {
    char path[128], file[64];
    og_tensor t;
    og_err err = OG_ERR_INIT;
    snprintf(file, sizeof file, "%s%s.npy", name, suffix);
    if (og_npy_read(in_scratch(path, sizeof path, file), &t, &err) < 0)
        fail_msg("%s", err.msg);
    og_free(t.data);
    return t.ne[0];
}

/* Three lanes: a tap file each, and their audio one after another with the gaps between. */
static void test_lanes_are_joined(void **state) {
    (void)state;
    char wav[128], npy[128], tap[160];
    size_t n;
    in_scratch(wav, sizeof wav, "lanes.wav");
    snprintf(tap, sizeof tap, "code2wav.audio=%s",
             in_scratch(npy, sizeof npy, "lane.npy"));
    assert_ends(program("run", "dialogue", MODEL, "--text",
                        "ryan: hi\nserena: hello\nryan: bye", "--voices", "ryan",
                        "--voices", "serena", "--max-tokens", "8", "--seed", "3", "--tap",
                        tap, "-o", wav, NULL),
                0, "");
    int64_t samples =
        npy_rows("lane", "") + npy_rows("lane", ".1") + npy_rows("lane", ".2");
    char *bytes = slurp_path(wav, &n);
    assert_int_equal(n, 44 + 2 * (samples + 2 * 6000));
    free(bytes);
    in_scratch(npy, sizeof npy, "lane.3.npy");
    assert_false(exists(npy));
}

static void test_default_checkpoint(void **state) {
    (void)state;
    char path[128];
    in_scratch(path, sizeof path, "default.wav");
    assert_ends(program("run", "qwen3_tts", "--text", "Good day.", "--voice", "rms",
                        "--max-tokens", "10", "-o", path, "--stats", NULL),
                0, "peak memory");
    assert_ends(program("run", "qwen3_tts", "--text", "Good day.", "--voice", "rms",
                        "--max-tokens", "10", "-o", path, "--stats", NULL),
                0, "  executor cpu:0: scratch ");
    assert_true(exists(path));
}

/* What the voice has not learned to say is named, and the rest is said. */
static void test_text_in_another_script(void **state) {
    (void)state;
    char path[128], file[128];
    in_scratch(path, sizeof path, "script.wav");
    const char *what = "warning: the voice cannot speak these characters of the text: "
                       "\xE4\xBD\xA0 \xE5\xA5\xBD 7\n";
    assert_ends(program("run", "qwen3_tts", "--text",
                        "\xE4\xBD\xA0\xE5\xA5\xBD, good day 77.", "--voice", "rms",
                        "--max-tokens", "10", "-o", path, NULL),
                0, what);
    assert_true(exists(path));
    ran r = program("run", "examples/spoken.yaml", "--text", "It is 7:05.", "--max-tokens",
                    "10", "-o", path, NULL);
    assert_int_equal(r.code, 0);
    assert_null(strstr(r.err, "warning"));
    ran_free(&r);
    in_scratch(file, sizeof file, "script.jsonl");
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs("{\"text\": \"Day 7.\", \"voice\": \"rms\", \"output\": \"script.wav\"}\n", f);
    fclose(f);
    r = program("run", "qwen3_tts", "--max-tokens", "10", "--batch", file, "-o", scratch(),
                NULL);
    assert_int_equal(r.code, 0);
    assert_has(r.out, "\"warnings\":[\"the voice cannot speak");
    ran_free(&r);
}

static void test_refused_before_loading(void **state) {
    (void)state;
    char path[128];
    in_scratch(path, sizeof path, "refused.wav");
#define SPEAK "run", "qwen3_tts", MODEL, SPEAKER
    assert_ends(program(SPEAK, "--text", "hi", NULL), 2, "there is no -o");
    assert_ends(program(SPEAK, "--text", "hi", "-o", "no/such/folder/a.wav", NULL), 2,
                "there is no folder 'no/such/folder'");
    assert_ends(program(SPEAK, "--text", "hi", "-o", "tests", NULL), 2, "it is a folder");
    assert_ends(program(SPEAK, "--text", "hi", "-o", "/proc/a.wav", NULL), 2, "/proc");
    assert_ends(program(SPEAK, "--text", "hi", "-o", "a.mid", NULL), 2, "mid");
    assert_ends(program(SPEAK, "-o", path, NULL), 2, "text: is missing");
    assert_ends(program(SPEAK, "--text", "hi", "-o", path, "--seed", "-1", NULL), 2,
                "--seed");
    assert_ends(program(SPEAK, "--text", "hi", "-o", path, "--request", "[]", NULL), 2,
                "must be a JSON object");
    assert_ends(
        program(SPEAK, "--text", "hi", "-o", path, "--request", "{\"text\"", NULL), 2,
        "--request:1:");
    assert_ends(program(SPEAK, "--text", "\xff", "-o", path, NULL), 2, "not UTF-8");
    assert_ends(program("run", "qwen3_tts", MODEL, "--text", "hi", "--voice", "nobody",
                        "-o", path, NULL),
                2, "voice");
    assert_ends(
        program(SPEAK, "--text", "hi", "-o", path, "--tap", "talkr.codes=a.npy", NULL), 2,
        "did you mean 'talker'?");
    assert_ends(
        program(SPEAK, "--text", "hi", "-o", path, "--tap", "talker.prompt=a.npy", NULL),
        2, "its outputs are codes");
    assert_ends(program(SPEAK, "--text", "hi", "-o", path, "--tap", "talker.codes", NULL),
                2, "which file?");
    assert_false(exists(path));
    no_leftovers();
}

static void test_b055_blank_text_is_refused(void **state) {
    (void)state;
    char path[128];
    in_scratch(path, sizeof path, "blank.wav");
    assert_ends(program(SPEAK, "--text", " \n ", "-o", path, NULL), 2, "text");
    assert_ends(program(SPEAK, "--text", "", "-o", path, NULL), 2, "text");
    assert_false(exists(path));
    no_leftovers();
}

/* A checkpoint that was cut short is a failed run, and the file of before stays. */
static void test_failed_run_keeps_the_old_file(void **state) {
    (void)state;
    char path[128], command[512], model[128];
    in_scratch(path, sizeof path, "old.wav");
    in_scratch(model, sizeof model, "cut");
    write_text(path, "old");
    snprintf(command, sizeof command,
             "cp -r tests/data/qwen3_tts/tiny-a/custom_voice '%s' && "
             "truncate -s 100000 '%s/model.safetensors'",
             model, model);
    assert_int_equal(system(command), 0);
    ran r = program("run", "qwen3_tts", "--model", model, SPEAKER, "--text", "hi", "-o",
                    path, NULL);
    assert_int_not_equal(r.code, 0);
    assert_has(r.err, "model.safetensors");
    ran_free(&r);
    char *text = slurp_path(path, NULL);
    assert_string_equal(text, "old");
    free(text);
    no_leftovers();
}

static void test_reader_that_goes_away(void **state) {
    (void)state;
    char command[512];
    snprintf(
        command, sizeof command,
        "'%s' run qwen3_tts --model tests/data/qwen3_tts/tiny-a/custom_voice --text '%s' "
        "--voice ryan -o - 2>/dev/null | head -c 4 >/dev/null; exit ${PIPESTATUS[0]}",
        binary(), TEXT);
    char *argv[] = {(char *)"bash", (char *)"-c", command, NULL};
    ran r = wait_for(start_argv("/bin/bash", argv, NULL));
    assert_true(r.code == 1 || r.code == 0); /* 0: all was written before head had gone */
    ran_free(&r);
}

/* Started as if from a terminal, where Ctrl-C is not ignored. The text is as long as the
 * stage's 4096 positions allow, at a token a byte, so that it takes a while. */
static child start_long(const char *path) {
    static char text[3600];
    for (size_t n = 0; n + 64 < sizeof text; n += strlen(text + n))
        snprintf(text + n, sizeof text - n, "The children play in the garden. ");
    char *argv[] = {
        (char *)"omni-graph", (char *)"run", (char *)"qwen3_tts", (char *)"--text", text,
        (char *)"--voice",    (char *)"rms", (char *)"-o",        (char *)path,     NULL};
    return start_argv(binary(), argv, NULL);
}

/* Wait until the file under its other name is there. */
static void wait_until_writing(const child *c) {
    char command[160];
    snprintf(command, sizeof command, "ls '%s' | grep -q tmp", scratch());
    for (int i = 0; i < 3000; i++) {
        if (system(command) == 0) return;
        usleep(20000);
    }
    kill(c->pid, SIGKILL);
    fail_msg("the run wrote nothing within a minute");
}

static void test_ctrl_c_leaves_no_file(void **state) {
    (void)state;
    char path[128];
    const int signals[] = {SIGINT, SIGTERM};
    in_scratch(path, sizeof path, "stopped.wav");
    signal(SIGINT, SIG_DFL);
    for (int i = 0; i < 2; i++) {
        child c = start_long(path);
        wait_until_writing(&c);
        usleep(200000);
        kill(c.pid, signals[i]);
        assert_ends(wait_for(c), 130, "stopped.wav was not written");
        assert_false(exists(path));
        no_leftovers();
    }
}

static void test_second_ctrl_c_ends_at_once(void **state) {
    (void)state;
    char path[128], command[160];
    in_scratch(path, sizeof path, "twice.wav");
    child c = start_long(path);
    wait_until_writing(&c);
    kill(c.pid, SIGINT);
    usleep(1000);
    kill(c.pid, SIGTERM);
    ran r = wait_for(c);
    assert_int_equal(r.code, 130);
    assert_false(exists(path));
    ran_free(&r);
    snprintf(command, sizeof command, "rm -f '%s'/*tmp*", scratch());
    assert_int_equal(system(command), 0);
}

static void test_layers_and_diff(void **state) {
    (void)state;
    char a[128], b[128], c[128], wav[128];
    in_scratch(a, sizeof a, "layers_a");
    in_scratch(b, sizeof b, "layers_b");
    in_scratch(c, sizeof c, "layers_c");
    in_scratch(wav, sizeof wav, "layers.wav");
#define DUMP "--max-tokens", "6", "-qo", wav, "--tap-layers"
    assert_ends(program(SPEAK, "--greedy", "--text", "hi", "-t1", DUMP, a, NULL), 0, "");
    assert_ends(program(SPEAK, "--greedy", "--text", "hi", "-t2", DUMP, b, NULL), 0, "");
    assert_ends(program(SPEAK, "--greedy", "--text", "ho", DUMP, c, NULL), 0, "");
    assert_ends(program(SPEAK, "--greedy", "--text", "ho", DUMP, c, NULL), 2,
                "holds .npy files already");
    ran r = program("inspect", "diff", a, b, NULL);
    assert_int_equal(r.code, 0);
    assert_has(r.out, " 0 differ, 0 only in the first, 0 only in the second");
    ran_free(&r);
    r = program("inspect", "diff", a, c, NULL);
    assert_int_equal(r.code, 1);
    assert_has(r.out, "DIFFERS");
    assert_has(r.out, "first that differs: talker.rows, number 0");
    ran_free(&r);
    r = program("inspect", "diff", a, c, "--tol", "1e9", NULL);
    assert_has(r.out, "equal within 1e+09");
    ran_free(&r);
    assert_ends(program("inspect", "diff", a, "no/such", NULL), 2,
                "there is no 'no/such'");
    assert_ends(program("inspect", "diff", a, NULL), 2, "takes two folders");
    assert_ends(program("inspect", "diff", a, b, "--tol", "x", NULL), 2, "--tol");
}

/* A tap beside the reference's file, name for name. */
static void test_diff_against_the_reference(void **state) {
    (void)state;
    char dir[128], wav[128], codes[160], audio[160];
    in_scratch(dir, sizeof dir, "against");
    in_scratch(wav, sizeof wav, "against.wav");
    assert_int_equal(mkdir(dir, 0777), 0);
    snprintf(codes, sizeof codes, "talker.codes=%s/0-codes.npy", dir);
    snprintf(audio, sizeof audio, "code2wav.audio=%s/1-wav.npy", dir);
    assert_ends(program(SPEAK, "--text", TEXT, LIKE_GOLDEN, "--tap", codes, "--tap",
                        audio, "-qo", wav, NULL),
                0, "");
    ran r =
        program("inspect", "diff", dir, "tests/golden/qwen3_tts/tiny-a/cv_en.safetensors",
                "--tol", "5e-5", NULL);
    assert_int_equal(r.code, 0);
    assert_has(r.out, "2 equal within 5e-05, 0 differ, 0 only in the first");
    ran_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_and_wav_are_the_golden_ones),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_ways_to_say_it),
        cmocka_unit_test(test_lanes_are_joined),
        cmocka_unit_test(test_default_checkpoint),
        cmocka_unit_test(test_text_in_another_script),
        cmocka_unit_test(test_refused_before_loading),
        cmocka_unit_test(test_b055_blank_text_is_refused),
        cmocka_unit_test(test_failed_run_keeps_the_old_file),
        cmocka_unit_test(test_reader_that_goes_away),
        cmocka_unit_test(test_ctrl_c_leaves_no_file),
        cmocka_unit_test(test_second_ctrl_c_ends_at_once),
        cmocka_unit_test(test_layers_and_diff),
        cmocka_unit_test(test_diff_against_the_reference),
    };
    return cmocka_run_group_tests(tests, enter_source_tree, remove_scratch);
}
