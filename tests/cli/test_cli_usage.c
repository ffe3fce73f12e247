/* Commands, options, help, schema, inspect, completion: what needs no model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cli/program.h"

static const char *const commands[] = {
    "run", "check", "dot", "schema", "inspect", "completion", "version", "help", NULL};

static void test_no_command(void **state) {
    (void)state;
    assert_ends(program(NULL), 2, "usage: omni-graph COMMAND");
}

static void test_unknown_command(void **state) {
    (void)state;
    assert_ends(program("rnu", NULL), 2, "did you mean 'run'?");
    assert_ends(program("xylophone", NULL), 2, "unknown command 'xylophone'");
    assert_ends(program("help", "chekc", NULL), 2, "did you mean 'check'?");
    assert_ends(program("--verbose", NULL), 2, "unknown option '--verbose'");
}

static void test_help_has_an_example(void **state) {
    (void)state;
    for (const char *const *c = commands; *c; c++) {
        ran a = program(*c, "--help", NULL), b = program("help", *c, NULL);
        assert_int_equal(a.code, 0);
        assert_int_equal(b.code, 0);
        assert_string_equal(a.out, b.out);
        assert_has(a.out, "example");
        assert_has(a.out, "  omni-graph ");
        assert_string_equal(a.err, "");
        ran_free(&a);
        ran_free(&b);
    }
    ran r = program("--help", NULL);
    assert_int_equal(r.code, 0);
    for (const char *const *c = commands; *c; c++) assert_has(r.out, *c);
    ran_free(&r);
}

static void test_help_lists_the_fields(void **state) {
    (void)state;
    ran r = program("run", "qwen3_tts", "--help", NULL);
    assert_int_equal(r.code, 0);
    assert_has(r.out, "--non-streaming-mode");
    assert_has(r.out, "--ref-audio FILE");
    ran_free(&r);
}

static void test_version(void **state) {
    (void)state;
    ran a = program("version", NULL), b = program("--version", NULL);
    assert_int_equal(a.code, 0);
    assert_has(a.out, "omni-graph ");
    assert_has(a.out, "backends:");
    assert_string_equal(a.out, b.out);
    ran_free(&a);
    ran_free(&b);
}

static void test_bad_options(void **state) {
    (void)state;
    assert_ends(program("schema", "pipeline", "--markdwon", NULL), 2,
                "did you mean '--markdown'?");
    assert_ends(program("run", "qwen3_tts", "--txt", "hi", NULL), 2,
                "did you mean '--text'?");
    assert_ends(program("run", "qwen3_tts", "--zzzzzzzz", "hi", NULL), 2,
                "fields of this pipeline: --text, --voice");
    assert_ends(program("check", "qwen3_tts", "--max-num-seq", "2", NULL), 2,
                "did you mean '--max-num-seqs'?");
    assert_ends(program("run", "qwen3_tts", "--text", NULL), 2, "--text needs a value");
    assert_ends(program("run", "qwen3_tts", "-Q", NULL), 2, "unknown option '-Q'");
    assert_ends(program("run", "qwen3_tts", "--greedy=1", NULL), 2,
                "--greedy takes no value");
    assert_ends(program("dot", "qwen3_tts", "--format", "gif", NULL), 2,
                "it is one of dot, svg, png");
    assert_ends(program("run", "qwen3_tts", "--seed", "1", "--seed", "2", NULL), 2,
                "--seed is given twice");
    assert_ends(program("run", "qwen3_tts", "more", NULL), 2,
                "unexpected argument 'more'");
    assert_ends(program("run", NULL), 2, "which pipeline?");
    assert_ends(program("check", "qwen3_tts", "--threads", "none", NULL), 2,
                "--threads must be a whole number");
}

static void test_forms_of_options(void **state) {
    (void)state;
    const char *forms[][4] = {{"--format", "json", NULL, NULL},
                              {"--format=json", NULL, NULL, NULL},
                              {"-f", "json", NULL, NULL},
                              {"-fjson", NULL, NULL, NULL},
                              {"-f=json", NULL, NULL, NULL}};
    for (int i = 0; i < 5; i++) {
        ran r = program("inspect", "kinds", forms[i][0], forms[i][1], NULL);
        assert_int_equal(r.code, 0);
        assert_int_equal(r.out[0], '[');
        ran_free(&r);
    }
    assert_ends(program("inspect", "--", "--format", NULL), 2, "'--format'");
}

static json_t *json_of(ran *r) {
    json_error_t at;
    assert_int_equal(r->code, 0);
    json_t *j = json_loads(r->out, 0, &at);
    if (!j) fail_msg("line %d: %s\n%s", at.line, at.text, r->out);
    ran_free(r);
    return j;
}

static void test_schema_is_json(void **state) {
    (void)state;
    const char *const names[] = {"pipeline", "overlay"};
    for (int i = 0; i < 2; i++) {
        ran r = program("schema", names[i], NULL),
            m = program("schema", names[i], "--markdown", NULL);
        json_t *j = json_of(&r);
        assert_true(json_is_string(json_object_get(j, "$schema")));
        assert_true(json_is_object(json_object_get(j, "$defs")));
        json_decref(j);
        assert_int_equal(m.code, 0);
        assert_has(m.out, "stages");
        ran_free(&m);
    }
    assert_ends(program("schema", "model", NULL), 2, "one of pipeline, overlay");
    assert_ends(program("schema", NULL), 2, "too few arguments");
}

static void test_inspect(void **state) {
    (void)state;
    ran r = program("inspect", NULL);
    assert_int_equal(r.code, 0);
    assert_has(r.out, "ar_decoder");
    assert_has(r.out, "qwen3_tts_talker");
    assert_has(r.out, "qwen3_tts ");
    ran_free(&r);
    r = program("inspect", "qwen3_tts_talker", NULL);
    assert_has(r.out, "prompt");
    assert_has(r.out, "codes[$num_code_groups]");
    ran_free(&r);
    r = program("inspect", "archs", "--format", "json", NULL);
    json_t *j = json_of(&r);
    assert_true(json_array_size(j) >= 2);
    json_decref(j);
    r = program("inspect", "qwen3_tts", "-f", "json", NULL);
    j = json_of(&r);
    assert_true(json_array_size(json_object_get(j, "request")) == 8);
    json_decref(j);
    r = program("inspect", "-f", "json", NULL);
    json_decref(json_of(&r));
    assert_ends(program("inspect", "qwen3_tts_talkre", NULL), 2,
                "did you mean 'qwen3_tts_talker'?");
    assert_ends(program("inspect", "ops", "more", NULL), 2, "unexpected argument");
}

/* The table of `inspect ops` and the header name the same ops. */
static void test_inspect_knows_every_op(void **state) {
    (void)state;
    ran r = program("inspect", "ops", "--format", "json", NULL);
    json_t *ops = json_of(&r);
    char *header = slurp_path(OG_SOURCE_DIR "/kernels/ops.h", NULL);
    size_t declared = 0;
    for (char *at = header; (at = strstr(at, "int og_op_")); at++) {
        char name[64] = "";
        size_t i, n = strcspn(at + 10, "(");
        json_t *op;
        int known = 0;
        snprintf(name, sizeof name, "%.*s", (int)(n < 63 ? n : 63), at + 10);
        json_array_foreach(ops, i, op) known |=
            !strcmp(json_string_value(json_object_get(op, "name")), name);
        if (!known) fail_msg("'inspect ops' does not know %s", name);
        declared++;
    }
    assert_int_equal(declared, json_array_size(ops));
    free(header);
    json_decref(ops);
}

static ran shell(const char *script) {
    char *argv[] = {(char *)"bash", (char *)"--norc", (char *)"-c", (char *)script, NULL};
    return wait_for(start_argv("/bin/bash", argv, NULL));
}

static void test_bash_completion(void **state) {
    (void)state;
    char script[4096], path[128];
    ran r = program("completion", "bash", NULL);
    assert_int_equal(r.code, 0);
    write_text(in_scratch(path, sizeof path, "completion.bash"), r.out);
    ran_free(&r);
    snprintf(
        script, sizeof script,
        "omni-graph() { '%s' \"$@\"; }; source '%s'; "
        "try() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _omni_graph; "
        "echo \"${COMPREPLY[@]}\"; }; "
        "try omni-graph ch; try omni-graph run qwen3; try omni-graph run qwen3_tts "
        "--non; "
        "try omni-graph run qwen3_tts --backend c; try omni-graph schema pip; "
        "try omni-graph dot qwen3_tts --form",
        binary(), path);
    r = shell(script);
    assert_string_equal(r.err, "");
    assert_has(r.out, "check\n");
    assert_has(r.out, "qwen3_tts");
    assert_has(r.out, "--non-streaming-mode\n");
    assert_has(r.out, "cpu cuda\n");
    assert_has(r.out, "pipeline\n");
    assert_has(r.out, "--format\n");
    ran_free(&r);
}

static void test_zsh_completion(void **state) {
    (void)state;
    char path[128], *argv[] = {(char *)"zsh", (char *)"-n", path, NULL};
    ran r = program("completion", "zsh", NULL);
    assert_int_equal(r.code, 0);
    assert_int_equal(strncmp(r.out, "#compdef omni-graph\n", 20), 0);
    assert_has(r.out, "--greedy[");
    write_text(in_scratch(path, sizeof path, "_omni-graph"), r.out);
    ran_free(&r);
    if (exists("/usr/bin/zsh"))
        assert_ends(wait_for(start_argv("/usr/bin/zsh", argv, NULL)), 0, "");
    assert_ends(program("completion", "fish", NULL), 2, "it is one of bash, zsh");
}

static void link_into(const char *prefix, const char *rest, const char *to) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", prefix, rest);
    if (symlink(to, path) < 0) fail_msg("symlink %s: %s", path, strerror(errno));
}

static void make_dir(const char *prefix, const char *rest) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", prefix, rest);
    if (mkdir(path, 0777) < 0) fail_msg("mkdir %s: %s", path, strerror(errno));
}

/* An installed tree finds its data wherever it has been moved to. */
static void test_data_beside_the_program(void **state) {
    (void)state;
    char prefix[128], path[512], command[2048];
    in_scratch(prefix, sizeof prefix, "prefix");
    make_dir(prefix, "");
    make_dir(prefix, "bin");
    make_dir(prefix, "share");
    make_dir(prefix, "share/omni-graph");
    link_into(prefix, "share/omni-graph/pipelines", OG_SOURCE_DIR "/pipelines");
    snprintf(path, sizeof path, "%s/bin/omni-graph", prefix);
    snprintf(command, sizeof command, "cp '%s' '%s' && cd / && '%s' inspect pipelines",
             binary(), path, path);
    ran r = shell(command);
    assert_int_equal(r.code, 0);
    snprintf(path, sizeof path, "%s/share/omni-graph/pipelines/qwen3_tts.yaml", prefix);
    assert_has(r.out, path);
    ran_free(&r);
    snprintf(command, sizeof command,
             "cd / && OG_DATA_DIR='%s/share/omni-graph' '%s' inspect pipelines", prefix,
             binary());
    r = shell(command);
    assert_has(r.out, path);
    ran_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_command),
        cmocka_unit_test(test_unknown_command),
        cmocka_unit_test(test_help_has_an_example),
        cmocka_unit_test(test_help_lists_the_fields),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_forms_of_options),
        cmocka_unit_test(test_schema_is_json),
        cmocka_unit_test(test_inspect),
        cmocka_unit_test(test_inspect_knows_every_op),
        cmocka_unit_test(test_bash_completion),
        cmocka_unit_test(test_zsh_completion),
        cmocka_unit_test(test_data_beside_the_program),
    };
    return cmocka_run_group_tests(tests, enter_source_tree, remove_scratch);
}
