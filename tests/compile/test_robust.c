/* No input and no failing allocation may crash the compiler or leak. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nodes/load/json.h"
#include "tests/compile/archs.h"

#define TINY OG_SOURCE_DIR "/tests/data/qwen3_tts/tiny-a/custom_voice"

/* xorshift: the same mutations in every run. */
static uint32_t rnd(uint32_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 17;
    *s ^= *s << 5;
    return *s;
}

static const char *const pieces[] = {"{",
                                     "}",
                                     "[",
                                     "]",
                                     ": ",
                                     ", ",
                                     "?",
                                     "$root.x",
                                     "request.text",
                                     "talker.codes",
                                     "null",
                                     "- ",
                                     "\n",
                                     "when: ",
                                     "lanes: numbered",
                                     "hook: a.b",
                                     "0",
                                     "-1",
                                     "99999999999999999999",
                                     "\"",
                                     "'",
                                     "&a ",
                                     "*a",
                                     "join: {}",
                                     "via: resample",
                                     "not ",
                                     " and ",
                                     "base: qwen3_tts"};

static size_t mutate(char *text, size_t n, size_t cap, uint32_t *seed) {
    int edits = 1 + (int)(rnd(seed) % 4);
    for (int i = 0; i < edits && n > 8; i++) {
        size_t at = rnd(seed) % n, len = 1 + rnd(seed) % 12;
        const char *p = pieces[rnd(seed) % (sizeof pieces / sizeof *pieces)];
        switch (rnd(seed) % 4) {
        case 0: /* cut */
            len = len < n - at ? len : n - at;
            memmove(text + at, text + at + len, n - at - len);
            n -= len;
            break;
        case 1: /* change one byte */ text[at] = (char)(0x20 + rnd(seed) % 0x5f); break;
        case 2: /* put something in */
            len = strlen(p);
            if (n + len < cap) {
                memmove(text + at + len, text + at, n - at);
                memcpy(text + at, p, len);
                n += len;
            }
            break;
        default: /* copy a piece over another */
            len = len < n - at ? len : n - at;
            memmove(text + rnd(seed) % (n - len + 1), text + at, len);
        }
    }
    return n;
}

static void compile_file(const char *path, const char *model) {
    og_plan_options o = fake_options(path);
    o.model = model;
    og_diags *d = og_diags_create();
    og_plan *p = NULL;
    og_err err = OG_ERR_INIT;
    int rc = og_plan_build(&o, OG_PLAN_CHECK_ONLY, d, &p, &err);
    assert_true((rc == 0) == (p != NULL));
    assert_true(rc == 0 || err.code < 0);
    if (p) {
        og_str s = OG_STR_INIT;
        og_plan_print(p, &s);
        og_plan_dot(p, &s);
        json_decref(og_plan_json(p));
        og_str_free(&s);
    }
    og_plan_destroy(p);
    og_diags_destroy(d);
}

static void test_mutated_pipelines(void **state) {
    (void)state;
    static const char *const names[] = {"qwen3_tts", "bagel",    "qwen_image",
                                        "dialogue",  "higgs_v3", "qwen3_omni"};
    char dir[] = "/tmp/og_mutate_XXXXXX", path[128];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/x.yaml", dir);
    char *text = malloc(1 << 16);
    uint32_t seed = 12345;
    const char *rounds_text = getenv("OG_FUZZ_ROUNDS");
    int rounds = rounds_text ? atoi(rounds_text) : 400;
    for (int i = 0; i < rounds; i++) {
        char source[512], *good = NULL;
        size_t n;
        snprintf(source, sizeof source, "%s/%s.yaml", pipeline_dirs[0], names[i % 6]);
        assert_int_equal(og_file_read(source, 1 << 15, &good, &n, NULL), 0);
        memcpy(text, good, n);
        og_free(good);
        n = mutate(text, n, 1 << 16, &seed);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fwrite(text, 1, n, f);
        fclose(f);
        compile_file(path, i % 6 == 0 ? TINY : NULL);
    }
    free(text);
    unlink(path);
    rmdir(dir);
}

/* Every allocation of a build fails once: an error each time, nothing left behind. */
static void test_failing_allocator(void **state) {
    (void)state;
    json_set_alloc_funcs(og_malloc, og_free);
    og_plan_options o = fake_options("qwen3_tts");
    o.model = TINY;
    long live = og_alloc_live();
    int reached = 0;
    for (long n = 1;; n += n < 200 ? 1 : 97) {
        og_plan *p = NULL;
        og_err err = OG_ERR_INIT;
        og_alloc_fail_at(n);
        int rc = og_plan_build(&o, 0, NULL, &p, &err);
        int failed = og_alloc_failed();
        og_alloc_fail_at(0);
        /* A lost hint or note does not fail the build. */
        assert_true((rc == 0) == (p != NULL));
        og_plan_destroy(p);
        if (og_alloc_live() != live) {
            print_error("allocation %ld: %ld blocks left\n", n, og_alloc_live() - live);
            fail();
        }
        if (!failed) {
            break;
        }
        reached++;
    }
    assert_true(reached > 200);
}

static void test_failing_allocator_at_admission(void **state) {
    (void)state;
    og_plan_options o = fake_options("qwen3_tts");
    o.model = TINY;
    og_plan *p = NULL;
    assert_int_equal(og_plan_build(&o, 0, NULL, &p, NULL), 0);
    json_t *in = json_pack("{s:s,s:s,s:b}", "text", "hello", "voice", "Ryan",
                           "x_vector_only_mode", 1);
    for (long n = 1; n < 200; n++) {
        json_t *out = NULL;
        og_err err = OG_ERR_INIT;
        long live = og_alloc_live();
        og_alloc_fail_at(n);
        int rc = og_plan_request_check(p, in, &out, NULL, &err);
        int failed = og_alloc_failed();
        og_alloc_fail_at(0);
        assert_true((rc == 0) == (out != NULL));
        json_decref(out);
        assert_int_equal(og_alloc_live(), live);
        if (!failed) {
            break;
        }
    }
    json_decref(in);
    og_plan_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failing_allocator),
        cmocka_unit_test(test_failing_allocator_at_admission),
        cmocka_unit_test(test_mutated_pipelines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
