/* Recipes: the one-block copy, the cursor over closed and open rows, what a check refuses;
 * and the registry that names the archs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/base/alloc.h"
#include "nodes/blocks/rows.h"
#include "nodes/registry.h"

#define NONE OG_NO_SOURCE

static const og_row_table tables[] = {{"text", OG_TABLE_ID, 100, 1},
                                      {"frame", OG_TABLE_CODES, 16, 4},
                                      {"voice", OG_TABLE_VECTOR, 0, 8}};

static void test_recipe_is_one_block(void **state) {
    (void)state;
    int32_t off[] = {0, 2, 3};
    og_term terms[] = {{0, NONE, 5}, {1, 2, 7}, {0, NONE, 6}};
    og_open_part open = {1, 3, 0, 2};
    og_open_term open_terms[] = {{{0, 3, 1}, 1}, {{0, NONE, 9}, 0}};
    og_row_span span = {0, 2, "image", {1, 2, 3}, 0.5f};
    og_recipe shape = {.n_rows = 2, .off = off, .terms = terms, .n_open = 1, .open = &open,
                       .open_terms = open_terms, .n_spans = 1, .spans = &span,
                       .n_sources = 4};
    long live = og_alloc_live(), calls = og_alloc_calls();
    og_recipe *r = og_recipe_create(&shape, 2);
    assert_non_null(r);
    assert_int_equal(og_alloc_calls(), calls + 1);
    memset(off, 9, sizeof off);
    memset(terms, 9, sizeof terms);
    assert_int_equal(r->off[2], 3);
    assert_int_equal(r->terms[1].source, 2);
    assert_int_equal(r->open[0].source, 3);
    assert_int_equal(r->open_terms[1].term.index, 9);
    assert_string_equal(r->spans[0].kind, "image");
    assert_ptr_equal(og_recipe_ref(r), r);
    og_recipe_unref(r);
    assert_int_equal(og_alloc_live(), live + 1);
    og_recipe_unref(r);
    og_recipe_unref(NULL);
    assert_int_equal(og_alloc_live(), live);

    og_recipe *empty = og_recipe_create(&(og_recipe){0}, 0);
    assert_int_equal(empty->off[0], 0);
    og_recipe_unref(empty);
    og_alloc_fail_at(1);
    assert_null(og_recipe_create(&(og_recipe){0}, 0));
    og_alloc_fail_at(0);
}

static og_row_state peek(const og_recipe *r, og_row_cursor *at, const og_row_source *src,
                         int32_t *index) {
    og_term terms[OG_ROW_MAX_TERMS];
    int n = 0;
    og_row_state s = og_row_peek(r, at, src, terms, &n);
    if (s == OG_ROW_READY) {
        *index = terms[0].index;
        og_row_take(r, at);
    }
    return s;
}

/* Closed, open, closed: rows come in this order, each when it can be known. */
static void test_cursor_waits_and_goes_on(void **state) {
    (void)state;
    int32_t off[] = {0, 1, 2}, index = -1;
    og_term terms[] = {{0, NONE, 5}, {0, NONE, 6}};
    og_open_part open = {1, 0, 0, 1};
    og_open_term t = {{0, 0, 2}, 1};
    og_recipe r = {.n_rows = 2, .off = off, .terms = terms, .n_open = 1, .open = &open,
                   .open_terms = &t, .n_sources = 1};
    og_row_cursor at = {0};
    og_row_source src[1] = {{2, 0}};
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_READY);
    assert_int_equal(index, 5);
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_WAIT);
    src[0].n = 4;
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_READY);
    assert_int_equal(index, 2);
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_READY);
    assert_int_equal(index, 3);
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_WAIT);
    src[0].closed = 1;
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_READY);
    assert_int_equal(index, 6);
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_END);
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_END);
}

/* An open part at the end, and one that has ended before it had any row. */
static void test_open_part_without_rows(void **state) {
    (void)state;
    int32_t off[] = {0}, index = -1;
    og_open_part open[] = {{0, 0, 0, 1}, {0, 1, 1, 1}};
    og_open_term t[] = {{{0, 0, 3}, 1}, {{0, 1, 0}, 1}};
    og_recipe r = {.off = off, .n_open = 2, .open = open, .open_terms = t, .n_sources = 2};
    og_row_cursor at = {0};
    og_row_source src[2] = {{2, 1}, {1, 0}};
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_READY);
    assert_int_equal(index, 0);
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_WAIT);
    src[1].closed = 1;
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_END);
}

/* A part in which no term steps has a row for each item of the source that drives it. */
static void test_driven_constant_rows(void **state) {
    (void)state;
    int32_t off[] = {0}, index = -1;
    og_open_part open = {0, 0, 0, 1};
    og_open_term t = {{0, NONE, 42}, 0};
    og_recipe r = {.off = off, .n_open = 1, .open = &open, .open_terms = &t,
                   .n_sources = 1};
    og_row_cursor at = {0};
    og_row_source src[1] = {{0, 0}};
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_WAIT);
    src[0] = (og_row_source){2, 1};
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_READY);
    assert_int_equal(index, 42);
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_READY);
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_END);
}

static void test_row_that_never_comes(void **state) {
    (void)state;
    int32_t off[] = {0, 2}, index = -1;
    og_term terms[] = {{0, NONE, 1}, {1, 0, 3}};
    og_recipe r = {.n_rows = 1, .off = off, .terms = terms, .n_sources = 1};
    og_row_cursor at = {0};
    og_row_source src[1] = {{3, 0}};
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_WAIT);
    src[0].closed = 1;
    assert_int_equal(peek(&r, &at, src, &index), OG_ROW_NEVER);
}

static void test_check_counts_terms(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    int32_t off[] = {0, 1, 1 + OG_ROW_MAX_TERMS + 1};
    og_term terms[OG_ROW_MAX_TERMS + 2] = {{0}};
    for (int i = 0; i < OG_ROW_MAX_TERMS + 2; i++) terms[i].source = NONE;
    og_recipe r = {.n_rows = 2, .off = off, .terms = terms};
    assert_int_equal(og_recipe_check(&r, tables, 3, &err), OG_ELIMIT);
    assert_non_null(strstr(err.msg, "row 1 has 33 terms (limit is 32)"));
    r.n_rows = 1;
    og_err_clear(&err);
    assert_int_equal(og_recipe_check(&r, tables, 3, &err), 0);
    r.n_sources = OG_ROW_MAX_SOURCES + 1;
    assert_int_equal(og_recipe_check(&r, tables, 3, &err), OG_ELIMIT);
}

static void test_check_looks_into_open_parts(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    int32_t off[] = {0};
    og_open_part open = {0, 0, 0, 2};
    og_open_term t[] = {{{1, 0, 0}, 1}, {{0, NONE, 100}, 0}};
    og_recipe r = {.off = off, .n_open = 1, .open = &open, .open_terms = t, .n_sources = 1};
    assert_int_equal(og_recipe_check(&r, tables, 3, &err), OG_ELIMIT);
    assert_non_null(strstr(err.msg, "open part 0: id 100 is not in table text (0 to 99)"));
    t[1].term.index = 99;
    og_err_clear(&err);
    assert_int_equal(og_recipe_check(&r, tables, 3, &err), 0);
    open.source = OG_ROW_MAX_SOURCES;
    assert_int_equal(og_recipe_check(&r, tables, 3, &err), OG_ELIMIT);
}

static void test_registry(void **state) {
    (void)state;
    int n;
    const og_kind_desc *k = og_kinds(&n);
    assert_int_equal(n, 5);
    for (int i = 0; i < n; i++) {
        assert_int_equal(k[i].kind, i);
        assert_ptr_equal(og_kind_get((og_kind)i), &k[i]);
        assert_ptr_equal(og_kind_find(k[i].name), &k[i]);
        assert_true(strlen(k[i].doc) > 20);
        assert_int_equal(!k[i].api, !k[i].plan);
    }
    assert_null(og_kind_find("decoder"));
    assert_null(og_arch_find("qwen3"));
    for (int i = 0; og_archs[i]; i++) {
        const og_arch *a = og_archs[i];
        assert_ptr_equal(og_arch_find(a->name), a);
        assert_non_null(a->doc);
        assert_non_null(a->model);
        assert_non_null(a->section);
        assert_non_null(a->check);
        for (int p = 0; a->ports[p].name; p++) {
            assert_int_equal(og_arch_port(a, a->ports[p].name), p);
            assert_int_equal(!(a->ports[p].flags & OG_PORT_IN),
                             !!(a->ports[p].flags & OG_PORT_OUT));
        }
        assert_int_equal(og_arch_port(a, "none"), -1);
        assert_int_equal(og_arch_table(a, "none"), -1);
    }
    const og_arch *talker = og_arch_find("qwen3_tts_talker");
    assert_int_equal(og_arch_table(talker, "speaker"), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recipe_is_one_block),
        cmocka_unit_test(test_cursor_waits_and_goes_on),
        cmocka_unit_test(test_open_part_without_rows),
        cmocka_unit_test(test_driven_constant_rows),
        cmocka_unit_test(test_row_that_never_comes),
        cmocka_unit_test(test_check_counts_terms),
        cmocka_unit_test(test_check_looks_into_open_parts),
        cmocka_unit_test(test_registry)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
