/* B019: whatever stages are called, the DOT text is valid and complete. Names that the
 * language does not allow are put into a plan by hand: the writer must not rely on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/compile/archs.h"

static int count(const char *text, const char *what) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what)) {
        n++;
    }
    return n;
}

static char *read_all(const char *path) {
    FILE *f = fopen(path, "r");
    char *buf = calloc(1, 1 << 20);
    if (f && buf) {
        buf[fread(buf, 1, (1 << 20) - 1, f)] = 0;
        fclose(f);
    }
    return buf;
}

/* Run dot; returns the svg, NULL when dot is not installed. The caller frees it. */
static char *svg_of(const char *dot) {
    char in[] = "/tmp/og_dot_XXXXXX", cmd[256], out[64];
    if (system("dot -V >/dev/null 2>&1") != 0) {
        return NULL;
    }
    int fd = mkstemp(in);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, dot, strlen(dot)), (ssize_t)strlen(dot));
    close(fd);
    snprintf(out, sizeof out, "%s.svg", in);
    snprintf(cmd, sizeof cmd, "dot -Tsvg %s -o %s 2>/dev/null", in, out);
    int rc = system(cmd);
    char *svg = read_all(out);
    unlink(in);
    unlink(out);
    assert_int_equal(rc, 0);
    return svg;
}

static void test_hostile_names_b019(void **state) {
    (void)state;
    static const char *const names[] = {"enc-1",  "a::b",      "say \"hi\"",
                                        "back\\", "digraph",   "\xe9\x98\xb6\xe6\xae\xb5",
                                        "",       "two\nlines"};
    enum { N = sizeof names / sizeof *names };
    og_plan_stage stages[N] = {0};
    og_plan_end ends[2 * (N - 1)] = {0};
    og_plan_edge edges[N - 1] = {0};
    for (int i = 0; i < N; i++) {
        stages[i].name = names[i];
        stages[i].kind_name = "encoder";
        stages[i].arch_name = "x\"y\\";
    }
    for (int i = 0; i < N - 1; i++) {
        for (int k = 0; k < 2; k++) {
            ends[2 * i + k] = (og_plan_end){.kind = OG_END_STAGE,
                                            .stage = i + k,
                                            .field = -1,
                                            .response = -1,
                                            .text = "a.\"p\\"};
            ends[2 * i + k].type.kind = OG_TYPE_TEXT;
        }
        edges[i] = (og_plan_edge){.from = &ends[2 * i],
                                  .n_from = 1,
                                  .to = &ends[2 * i + 1],
                                  .n_to = 1,
                                  .hook = "f\".g\\"};
    }
    og_plan p = {.name = "it's \"odd\"\\",
                 .stages = stages,
                 .n_stages = N,
                 .edges = edges,
                 .n_edges = N - 1,
                 .fingerprint_hex = "0"};
    og_str dot = OG_STR_INIT;
    og_plan_dot(&p, &dot);
    assert_int_equal(count(dot.data, " -> "), N - 1);
    assert_int_equal(count(dot.data, "shape=box"), N);
    char *svg = svg_of(dot.data);
    if (svg) {
        assert_int_equal(count(svg, "class=\"node\""), N);
        assert_int_equal(count(svg, "class=\"edge\""), N - 1);
    } else {
        print_message("dot is not installed: the picture was not drawn\n");
    }
    free(svg);
    og_str_free(&dot);
}

static void test_nine_pictures(void **state) {
    (void)state;
    static const char *const nine[] = {"bagel",      "cosyvoice3",      "dialogue",
                                       "higgs_v3",   "qwen3_omni",      "qwen3_tts",
                                       "qwen_image", "qwen_image_edit", "wan2_2_i2v"};
    for (int i = 0; i < 9; i++) {
        og_plan_options o = fake_options(nine[i]);
        og_plan *p = NULL;
        assert_int_equal(og_plan_build(&o, OG_PLAN_CHECK_ONLY, NULL, &p, NULL), 0);
        og_str dot = OG_STR_INIT;
        og_plan_dot(p, &dot);
        assert_int_equal(count(dot.data, "shape=box"), p->n_stages);
        char *svg = svg_of(dot.data);
        if (svg) {
            assert_int_equal(count(svg, "class=\"edge\""), count(dot.data, " -> "));
        }
        free(svg);
        og_str_free(&dot);
        og_plan_destroy(p);
    }
}

static void test_types_and_chunks_on_the_edges(void **state) {
    (void)state;
    og_plan_options o = fake_options("qwen3_tts");
    og_plan *p = NULL;
    assert_int_equal(og_plan_build(&o, OG_PLAN_CHECK_ONLY, NULL, &p, NULL), 0);
    og_str dot = OG_STR_INIT;
    og_plan_dot(p, &dot);
    assert_non_null(strstr(dot.data, "hook qwen3_tts.prompt"));
    assert_non_null(strstr(dot.data, "chunks 1,2,4,8,12"));
    assert_non_null(strstr(dot.data, "audio: audio[24000]"));
    assert_non_null(strstr(dot.data, "cpu:0"));
    assert_non_null(strstr(dot.data, "when $root.tts_model_type == base"));
    og_str_free(&dot);
    og_plan_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_names_b019),
        cmocka_unit_test(test_nine_pictures),
        cmocka_unit_test(test_types_and_chunks_on_the_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
