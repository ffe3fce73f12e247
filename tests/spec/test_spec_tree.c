
#include "spec_test.h"

typedef struct parsed {
    og_arena *a;
    og_diags *d;
    const og_yaml_node *root;
    og_err err;
    int rc;
} parsed;

static parsed parse_n(const char *text, size_t len) {
    parsed p = {.a = og_arena_create(), .d = og_diags_create()};
    p.rc = og_yaml_parse("t.yaml", text, len, p.a, p.d, &p.root, &p.err);
    return p;
}

static parsed parse(const char *text) {
    return parse_n(text, strlen(text));
}

static void done(parsed *p) {
    og_diags_destroy(p->d);
    og_arena_destroy(p->a);
}

static void refuse(const char *text, int rc, int line, int col, const char *words) {
    parsed p = parse(text);
    assert_int_equal(p.rc, rc);
    assert_null(p.root);
    assert_said(p.d, words);
    assert_int_equal(p.err.line, line);
    assert_int_equal(p.err.col, col);
    done(&p);
}

static void test_positions_and_order(void **state) {
    (void)state;
    parsed p = parse("b: 1\na:\n  - x\n  - {k: 'v', l: }\n");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.root->kind, OG_YAML_MAP);
    assert_string_equal(p.root->pairs[0].key, "b");
    const og_yaml_node *a = og_yaml_get(p.root, "a");
    assert_int_equal(a->src.line, 3);
    assert_int_equal(a->src.col, 3);
    const og_yaml_pair *k = og_yaml_pair_of(a->items[1], "k");
    assert_int_equal(k->src.line, 4);
    assert_int_equal(k->src.col, 6);
    assert_true(k->value->quoted);
    assert_int_equal(og_yaml_text_src(k->value).col, k->value->src.col + 1);
    const og_yaml_node *l = og_yaml_get(a->items[1], "l");
    assert_int_equal(l->kind, OG_YAML_NULL);
    assert_true(l->empty);
    assert_string_equal(p.root->src.file, "t.yaml");
    assert_int_equal(p.root->size, 7);
    assert_int_equal(p.root->height, 4);
    done(&p);
}

static void test_b004_duplicate_keys(void **state) {
    (void)state;
    const char *text = "stages:\n - stage_id: 0\n   devices: \"0\"\n   devices: \"1\"\n";
    parsed p = parse(text);
    assert_int_equal(p.rc, OG_ESPEC);
    assert_said(p.d, "t.yaml:4:4: error: duplicate key 'devices'");
    assert_said(p.d, "the first one is in line 3, column 4");
    assert_said(p.d, "     devices: \"1\"\n     ^");
    done(&p);
    og_str big = OG_STR_INIT;
    for (int i = 0; i < 100; i++) og_str_addf(&big, "k%d: 1\n", i);
    og_str_add(&big, "k42: 2\n");
    refuse(big.data, OG_ESPEC, 101, 1, "the first one is in line 43");
    og_str_free(&big);
}

static void test_b008_the_field_decides(void **state) {
    (void)state;
    parsed p = parse("async_chunk: off\nconnectors: {on: {name: shm}, n: {name: shm}}\n"
                     "pipeline: no\nq: \"null\"\nz: ~\n");
    bool b = true;
    const char *s;
    assert_true(og_yaml_bool(og_yaml_get(p.root, "async_chunk"), &b, p.d));
    assert_false(b);
    const og_yaml_node *c = og_yaml_get(p.root, "connectors");
    assert_string_equal(c->pairs[0].key, "on");
    assert_string_equal(c->pairs[1].key, "n");
    assert_true(og_yaml_string(og_yaml_get(p.root, "pipeline"), &s, p.d));
    assert_string_equal(s, "no");
    assert_int_equal(og_yaml_get(p.root, "q")->kind, OG_YAML_SCALAR);
    assert_int_equal(og_yaml_get(p.root, "z")->kind, OG_YAML_NULL);
    assert_false(og_yaml_get(p.root, "z")->empty);
    assert_silent(p.d);
    done(&p);
}

static og_yaml_node scalar(const char *text) {
    return (og_yaml_node){.kind = OG_YAML_SCALAR, .text = text};
}

static void test_numbers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t v;
        bool ok;
    } ints[] = {
        {"0", 0, true},
        {"-7", -7, true},
        {"+7", 7, true},
        {"1_024", 1024, true},
        {"0x1F", 31, true},
        {"0o17", 15, true},
        {"4096.0", 4096, true},
        {"1e3", 1000, true},
        {"34359738368", 34359738368, true},
        {"9223372036854775807", INT64_MAX, true},
        {"9223372036854775808", 0, false},
        {"", 0, false},
        {"_1", 0, false},
        {"1__0", 0, false},
        {"1_", 0, false},
        {"1.5", 0, false},
        {"0x", 0, false},
        {"-0x1", 0, false},
        {"12a", 0, false},
        {"nan", 0, false},
        {" 1", 0, false},
        {"1e400", 0, false},
        {"--1", 0, false},
    };
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        og_yaml_node n = scalar(ints[i].text);
        int64_t v = 0;
        if (og_yaml_int(&n, &v, NULL) != ints[i].ok) fail_msg("int '%s'", ints[i].text);
        if (ints[i].ok) assert_true(v == ints[i].v);
    }
    static const struct {
        const char *text;
        double v;
        bool ok;
    } floats[] = {
        {"0.5", 0.5, true},
        {"1e-1", 0.1, true},
        {".5", 0.5, true},
        {"5.", 5, true},
        {"-.inf", -1.0 / 0.0, true},
        {"1", 1, true},
        {"0x10", 16, true},
        {".", 0, false},
        {"1e", 0, false},
        {"inf", 0, false},
        {"0x1p3", 0, false},
        {"1,5", 0, false},
    };
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        og_yaml_node n = scalar(floats[i].text);
        double v = 0;
        if (og_yaml_float(&n, &v, NULL) != floats[i].ok) fail_msg("'%s'", floats[i].text);
        if (floats[i].ok) assert_true(v == floats[i].v);
    }
}

static void test_guess(void **state) {
    (void)state;
    static const char *const cases[] = {"btrue",  "bFalse", "i12", "i-3",
                                        "f1.5",   "f1e-1",  "sno", "syes",
                                        "s1.2.3", "s",      "s0,1"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        og_yaml_node n = scalar(cases[i] + 1);
        assert_int_equal(og_yaml_guess(&n), cases[i][0]);
        n.quoted = true;
        assert_int_equal(og_yaml_guess(&n), 's');
    }
}

static void test_b009_alias_bomb(void **state) {
    (void)state;
    og_str s = OG_STR_INIT;
    og_str_add(&s, "a: &a [x,x,x,x,x,x,x,x,x]\n");
    for (char c = 'b'; c <= 'i'; c++) {
        og_str_addf(&s, "%c: &%c [", c, c);
        for (int i = 0; i < 9; i++) og_str_addf(&s, "*%c%s", c - 1, i < 8 ? "," : "]\n");
    }
    parsed p = parse(s.data);
    assert_int_equal(p.rc, OG_ELIMIT);
    assert_said(p.d, "too many nodes, aliases written out (limit is 50000)");
    done(&p);
    og_str_free(&s);
}

static void test_b009_depth(void **state) {
    (void)state;
    char *deep = og_malloc(10001);
    memset(deep, '[', 10000);
    deep[10000] = 0;
    parsed p = parse(deep);
    assert_int_equal(p.rc, OG_ELIMIT);
    assert_said(p.d, "nested too deeply (limit is 64 levels)");
    done(&p);
    og_free(deep);
    refuse(
        "a: &a "
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n"
        "b: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n",
        OG_ELIMIT, 2, 40, "nested too deeply");
}

static void test_b009_merging_counts(void **state) {
    (void)state;
    og_str s = OG_STR_INIT;
    og_str_add(&s, "base: &m {");
    for (int i = 0; i < 300; i++) og_str_addf(&s, "k%d: 1, ", i);
    og_str_add(&s, "}\nlist:\n");
    for (int i = 0; i < 300; i++) og_str_add(&s, "  - {<<: *m}\n");
    parsed p = parse(s.data);
    assert_int_equal(p.rc, OG_ELIMIT);
    done(&p);
    og_str_free(&s);
}

static void test_b014_byte_order_mark(void **state) {
    (void)state;
    static const char *const texts[] = {
        "\xef\xbb\xbf- a: 1\r\n  b: 2\r\n",
        "\xef\xbb\xbf---\n- a: 1\n  b: 2\n",
        "- a: 1\n  b: 2\n",
    };
    for (size_t i = 0; i < 3; i++) {
        parsed p = parse(texts[i]);
        assert_int_equal(p.rc, 0);
        assert_int_equal(p.root->n, 1);
        assert_int_equal(p.root->items[0]->n, 2);
        assert_string_equal(og_yaml_get(p.root->items[0], "b")->text, "2");
        assert_int_equal(p.root->items[0]->pairs[0].src.col, 3);
        done(&p);
    }
    refuse("\xef\xbb\xbf"
           "a: 1\r\na: 2\r\n",
           OG_ESPEC, 2, 1, "  a: 2\n  ^");
    parsed p = parse_n("\xff\xfe"
                       "a\0:\0",
                       6);
    assert_said(p.d, "UTF-16");
    done(&p);
}

static void test_merge_keys(void **state) {
    (void)state;
    parsed p = parse("a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\n"
                     "c: {<<: [*a, *b], x: 9}\nd: {'<<': 1}\n");
    const og_yaml_node *c = og_yaml_get(p.root, "c");
    assert_int_equal(c->n, 3);
    assert_string_equal(og_yaml_get(c, "x")->text, "9");
    assert_string_equal(og_yaml_get(c, "y")->text, "2");
    assert_string_equal(og_yaml_get(c, "z")->text, "4");
    assert_non_null(og_yaml_get(og_yaml_get(p.root, "d"), "<<"));
    done(&p);
}

static void test_refused(void **state) {
    (void)state;
    refuse("a: *b", OG_ESPEC, 1, 4, "has no anchor");
    refuse("a: &a [*a]", OG_ESPEC, 1, 8, "inside its own anchor");
    refuse("? [a]\n: b", OG_ESPEC, 1, 3, "a key must be a scalar");
    refuse("a: 1\n---\nb: 2", OG_ESPEC, 2, 1, "a second document");
    refuse("a: !!python/object x", OG_ESPEC, 1, 4, "tag");
    refuse("a: \"x\\0y\"", OG_ESPEC, 1, 4, "NUL");
    refuse("a: [1, 2", OG_ESPEC, 2, 1, "did not find expected");
    refuse("a: \xff", OG_ESPEC, 1, 4, "not a legal YAML text");
    refuse("a: \xff", OG_ESPEC, 1, 4, "\n  a: ?\n");
    refuse("a:\n\t- b", OG_ESPEC, 2, 1, "cannot start any token");
    parsed p = parse("a: !!str 12\nb: ! x");
    assert_int_equal(p.rc, 0);
    assert_true(og_yaml_get(p.root, "a")->quoted);
    done(&p);
    p = parse_n("a: b\0c", 6);
    assert_true(p.rc < 0);
    done(&p);
}

static void test_limits(void **state) {
    (void)state;
    og_str s = OG_STR_INIT;
    for (int i = 0; i < 300; i++) og_str_addf(&s, "- &a%d x\n", i);
    refuse(s.data, OG_ELIMIT, 257, 3, "too many anchors (limit is 256)");
    og_str_free(&s);
    size_t len = OG_YAML_MAX_BYTES + 1u;
    char *big = og_malloc(len);
    memset(big, '#', len);
    parsed p = parse_n(big, len);
    assert_int_equal(p.rc, OG_ELIMIT);
    done(&p);
    og_free(big);
}

static void test_files(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_arena *a = og_arena_create();
    const og_yaml_node *root;
    assert_int_equal(og_yaml_load("/nonexistent/x.yaml", a, NULL, &root, &err),
                     OG_ENOENT);
    og_err_clear(&err);
    assert_int_equal(og_yaml_load(OG_SOURCE_DIR "/tests", a, NULL, &root, &err), OG_EIO);
    assert_non_null(strstr(err.msg, "is a directory"));
    og_arena_destroy(a);
}

static void test_empty(void **state) {
    (void)state;
    static const char *const texts[] = {"", "# nothing\n", "---\n", "\xef\xbb\xbf"};
    for (size_t i = 0; i < 4; i++) {
        parsed p = parse(texts[i]);
        assert_int_equal(p.rc, 0);
        assert_int_equal(p.root->kind, OG_YAML_NULL);
        done(&p);
    }
}

static void test_diags(void **state) {
    (void)state;
    og_diags *d = og_diags_create();
    og_src src = {"f.yaml", 1, 4};
    const char *text = "\xc3\xa4\xc3\xb6: x\n";
    og_diags_source(d, "f.yaml", text, strlen(text));
    og_diags_error(d, src, "bad %d", 1);
    og_diags_suggest(d, "y");
    og_diags_error(d, src, "bad %d", 1);
    og_diags_warn(d, (og_src){"--set a=b", 0, 0}, "odd");
    char *all = messages(d);
    assert_string_equal(all, "f.yaml:1:4: error: bad 1\n  \xc3\xa4\xc3\xb6: x\n     ^\n"
                             "  hint: did you mean 'y'?\n--set a=b: warning: odd\n");
    og_free(all);
    assert_int_equal(og_diags_errors(d), 2);
    assert_int_equal(og_diags_count(d), 2);
    for (int i = 0; i < 200; i++) og_diags_error(d, (og_src){"f.yaml", i + 2, 1}, "more");
    assert_int_equal(og_diags_count(d), OG_DIAGS_MAX);
    assert_said(d, "102 more errors and 0 more warnings not shown (limit is 100)");
    og_err err = OG_ERR_INIT;
    assert_int_equal(og_diags_err(d, &err), OG_ESPEC);
    assert_string_equal(err.msg, "bad 1");
    assert_string_equal(err.hint, "did you mean 'y'?");
    og_diags_destroy(d);
    og_diags_error(NULL, src, "nobody listens");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_positions_and_order),
        cmocka_unit_test(test_b004_duplicate_keys),
        cmocka_unit_test(test_b008_the_field_decides),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_guess),
        cmocka_unit_test(test_b009_alias_bomb),
        cmocka_unit_test(test_b009_depth),
        cmocka_unit_test(test_b009_merging_counts),
        cmocka_unit_test(test_b014_byte_order_mark),
        cmocka_unit_test(test_merge_keys),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_diags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
