/* Conditions and types: what they mean, what they print, where they fail. */
#include "graph/spec/cond.h"
#include "spec_test.h"

static og_arena *arena;
static og_diags *diags;

static int setup(void **state) {
    (void)state;
    arena = og_arena_create();
    diags = og_diags_create();
    return !arena || !diags;
}

static int teardown(void **state) {
    (void)state;
    og_arena_destroy(arena);
    og_diags_destroy(diags);
    return og_alloc_live() != 0;
}

static const og_cond *cond(const char *text) {
    return og_cond_parse(text, (og_src){"c", 1, 10}, arena, diags);
}

static void print_is(const char *text, const char *want) {
    const og_cond *c = cond(text);
    og_str s = OG_STR_INIT;
    assert_non_null(c);
    og_cond_print(c, &s);
    assert_string_equal(s.data, want);
    og_str_free(&s);
}

static void test_precedence(void **state) {
    (void)state;
    print_is("not a and b or c", "not a and b or c");
    print_is("not (a and b) or c", "not (a and b) or c");
    print_is("a or b and c", "a or b and c");
    print_is("(a or b) and c", "(a or b) and c");
    print_is("((a))", "a");
    print_is("not not a", "not not a");
    print_is("a==b and $root.x==c", "a == b and $root.x == c");
    print_is("x has \"two words\"", "x has \"two words\"");
    print_is("x == 'not'", "x == \"not\"");
    print_is("messages.images or $talker.a.b", "messages.images or $talker.a.b");
    print_is("a == 1.5e-3", "a == 1.5e-3");
    assert_silent(diags);
    assert_true(og_cond_same(cond("a and not b"), cond("a  and not (b)")));
    assert_false(og_cond_same(cond("a and not b"), cond("a and not c")));
    const og_cond *c = cond("not a and b or c");
    assert_int_equal(c->op, OG_COND_OR);
    assert_int_equal(c->left->op, OG_COND_AND);
    assert_int_equal(c->left->left->op, OG_COND_NOT);
    assert_int_equal(c->left->right->src.col, 20);
}

static void test_errors(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int col;
        const char *msg;
    } cases[] = {
        {"", 10, "expected the name"},
        {"and a", 10, "expected the name"},
        {"a ==", 14, "expected a word at the end"},
        {"a = b", 12, "expected '=='"},
        {"a == $b.c", 15, "expected a word"},
        {"a b", 12, "expected '=='"},
        {"(a", 12, "expected ')'"},
        {"a)", 11, "expected '=='"},
        {"not", 13, "expected the name"},
        {"a has and", 16, "expected a word"},
        {"a == \"b", 15, "expected a word"},
        {"$x", 10, "no configuration value"},
        {"$x.", 10, "no configuration value"},
        {"$.x", 10, "no configuration value"},
        {"1a", 10, "expected the name"},
        {"a.b.c", 10, "expected the name"},
        {"a\xc3\xa4 b", 11, "expected '=='"},
        {"\xc3\xa4", 10, "expected the name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        og_diags *d = og_diags_create();
        assert_null(og_cond_parse(cases[i].text, (og_src){"c", 1, 10}, arena, d));
        const og_diag *m = og_diags_at(d, 0);
        if (m->src.col != cases[i].col || !strstr(m->msg, cases[i].msg)) {
            fail_msg("'%s': %d: %s", cases[i].text, m->src.col, m->msg);
        }
        og_diags_destroy(d);
    }
    og_str deep = OG_STR_INIT;
    for (int i = 0; i < 1000; i++) og_str_add(&deep, "(");
    assert_null(cond(deep.data));
    assert_said(diags, "nested too deeply (limit is 32)");
    og_str_free(&deep);
}

/* a is true, b false, anything else is not known yet. */
static og_tri lookup(void *user, const og_cond *leaf) {
    (void)user;
    if (leaf->is_cfg) return OG_UNKNOWN;
    return !strcmp(leaf->field, "a")   ? OG_TRUE
           : !strcmp(leaf->field, "b") ? OG_FALSE
                                       : OG_UNKNOWN;
}

static void test_three_values(void **state) {
    (void)state;
    static const struct {
        const char *text;
        og_tri value;
        const char *rest;
    } cases[] = {
        {"a", OG_TRUE, "true"},
        {"b", OG_FALSE, "false"},
        {"x", OG_UNKNOWN, "x"},
        {"not x", OG_UNKNOWN, "not x"},
        {"a and x", OG_UNKNOWN, "x"},
        {"b and x", OG_FALSE, "false"},
        {"a or x", OG_TRUE, "true"},
        {"b or x", OG_UNKNOWN, "x"},
        {"not (b or x) and a", OG_UNKNOWN, "not x"},
        {"x and y", OG_UNKNOWN, "x and y"},
        {"(x or b) and (a and y or b)", OG_UNKNOWN, "x and y"},
        {"$root.k == v and a", OG_UNKNOWN, "$root.k == v"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const og_cond *c = cond(cases[i].text);
        assert_int_equal(og_cond_eval(c, lookup, NULL), cases[i].value);
        const og_cond *rest = og_cond_reduce(c, lookup, NULL, arena);
        og_str s = OG_STR_INIT;
        og_cond_print(rest, &s);
        assert_string_equal(s.data, cases[i].rest);
        og_str_free(&s);
    }
}

static void count(void *user, const og_cond *leaf) {
    (void)leaf;
    ++*(int *)user;
}

static void test_leaves_and_values(void **state) {
    (void)state;
    int n = 0;
    og_cond_leaves(cond("a and not b or c == d"), count, &n);
    assert_int_equal(n, 3);
    assert_int_equal(og_cond_test_text(cond("a == Base"), "base"), OG_TRUE);
    assert_int_equal(og_cond_test_text(cond("a == 1.0"), "1"), OG_TRUE);
    assert_int_equal(og_cond_test_text(cond("a == yes"), "true"), OG_TRUE);
    assert_int_equal(og_cond_test_text(cond("a == yes"), "on"), OG_FALSE);
    assert_int_equal(og_cond_test_text(cond("a"), "0"), OG_FALSE);
    assert_int_equal(og_cond_test_text(cond("a"), "no"), OG_TRUE);
    assert_int_equal(og_cond_test_text(cond("a"), NULL), OG_FALSE);
    const og_yaml_node *root;
    og_err err = OG_ERR_INIT;
    assert_int_equal(og_yaml_parse("l", "[text, audio]", 13, arena, diags, &root, &err),
                     0);
    assert_int_equal(og_cond_test_node(cond("a has audio"), root), OG_TRUE);
    assert_int_equal(og_cond_test_node(cond("a has image"), root), OG_FALSE);
    assert_int_equal(og_cond_test_node(cond("a"), root), OG_TRUE);
}

static void test_types(void **state) {
    (void)state;
    static const struct {
        const char *text, *want;
    } good[] = {
        {"text", "text"},
        {"bool?", "bool?"},
        {"audio[24000]", "audio[24000]"},
        {"codes[$num_code_groups]", "codes[$num_code_groups]"},
        {"hidden[$thinker.hidden_size]?", "hidden[$thinker.hidden_size]?"},
        {"list(image)?", "list(image)?"},
        {"list( audio[16000] ) ?", "list(audio[16000])?"},
        {"embeds[_]", "embeds[_]"},
        {"hidden[3, 4]", "hidden[3, 4]"},
        {"latent[16]", "latent[16]"},
        {"kv", "kv"},
        {"size", "size"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        og_type t;
        og_str s = OG_STR_INIT;
        assert_true(og_type_parse(good[i].text, (og_src){"t", 1, 1}, arena, diags, &t));
        og_type_print(&t, &s);
        assert_string_equal(s.data, good[i].want);
        og_str_free(&s);
    }
    assert_silent(diags);
    static const struct {
        const char *text;
        int col;
    } bad[] = {
        {"", 1},
        {"txt", 1},
        {"codes[", 7},
        {"codes[]", 7},
        {"codes[0]", 7},
        {"codes[1", 8},
        {"codes[1,2]", 9},
        {"text[1]", 6},
        {"list image", 6},
        {"list(image", 11},
        {"list(list(image))", 6},
        {"codes[-1]", 7},
        {"codes[$]", 7},
        {"audio??", 7},
        {"audio x", 7},
        {"codes[99999999999999]", 19},
        {"[1]", 1},
        {"list()", 6},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        og_type t;
        og_diags *d = og_diags_create();
        assert_false(og_type_parse(bad[i].text, (og_src){"t", 1, 1}, arena, d, &t));
        if (og_diags_at(d, 0)->src.col != bad[i].col) {
            fail_msg("'%s': %d: %s", bad[i].text, og_diags_at(d, 0)->src.col,
                     og_diags_at(d, 0)->msg);
        }
        og_diags_destroy(d);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_precedence),        TEST(test_errors), TEST(test_three_values),
        TEST(test_leaves_and_values), TEST(test_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
