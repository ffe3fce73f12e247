#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/base/alloc.h"
#include "kernels/base/err.h"

static void test_first_error_wins(void **state) {
    (void)state;
    og_err e = OG_ERR_INIT;
    og_src at = {"a.yaml", 3, 7};
    assert_int_equal(og_err_at(&e, OG_ESPEC, at, "no stage '%s'", "x"), OG_ESPEC);
    assert_int_equal(og_err_set(&e, OG_EIO, "later"), OG_EIO);
    og_err_hint(&e, "did you mean 'y'?");
    og_err_hint(&e, "second hint");
    char text[256];
    og_err_format(&e, text, sizeof text);
    assert_string_equal(text, "a.yaml:3:7: error: no stage 'x'\n  hint: did you mean 'y'?");
    assert_int_equal(og_err_set(NULL, OG_EIO, "nobody listens"), OG_EIO);
    og_err_clear(&e);
    assert_int_equal(e.code, 0);
}

static void test_codes_have_texts(void **state) {
    (void)state;
    assert_string_equal(og_strerror(OG_EBUSY), "busy");
    assert_string_equal(og_err_name(OG_EBUSY), "OG_EBUSY");
    assert_string_equal(og_strerror(12345), "unknown error");
}

static void test_nth_allocation_fails_once(void **state) {
    (void)state;
    og_alloc_fail_at(2);
    void *a = og_malloc(8);
    assert_non_null(a);
    assert_null(og_calloc(4, 4));
    assert_true(og_alloc_failed());
    void *b = og_malloc(8);
    assert_non_null(b);
    og_alloc_fail_at(0);
    og_free(a);
    og_free(b);
}

static void test_live_count_and_overflow(void **state) {
    (void)state;
    long before = og_alloc_live();
    char *p = og_strdup("text");
    assert_int_equal(og_alloc_live(), before + 1);
    p = og_realloc(p, 1000);
    assert_string_equal(p, "text");
    og_free(p);
    assert_int_equal(og_alloc_live(), before);
    volatile size_t huge = SIZE_MAX / 2;
    assert_null(og_calloc(huge, 4));
    assert_null(og_aligned(64, SIZE_MAX - 8));
    assert_int_equal(og_alloc_live(), before);
}

static void test_arena_keeps_everything(void **state) {
    (void)state;
    long before = og_alloc_live();
    og_arena *a = og_arena_create();
    char *first = og_arena_strdup(a, "first");
    for (int i = 0; i < 2000; i++) {
        unsigned char *p = og_arena_alloc(a, (size_t)i % 300 + 1);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        assert_int_equal(p[0], 0);
        memset(p, 0xff, (size_t)i % 300 + 1);
    }
    assert_non_null(og_arena_alloc(a, 100000));
    assert_string_equal(og_arena_printf(a, "%d-%s", 7, "x"), "7-x");
    assert_string_equal(first, "first");
    og_arena_destroy(a);
    assert_int_equal(og_alloc_live(), before);
}

static void test_string_builder(void **state) {
    (void)state;
    og_str s = OG_STR_INIT;
    for (int i = 0; i < 100; i++) og_str_addf(&s, "%d,", i);
    og_str_add(&s, "end");
    assert_int_equal(s.len, 293);
    assert_int_equal(strlen(s.data), s.len);
    og_str_free(&s);
    og_alloc_fail_at(1);
    og_str_add(&s, "x");
    assert_true(s.oom);
    og_alloc_fail_at(0);
    og_str_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_error_wins),
        cmocka_unit_test(test_codes_have_texts),
        cmocka_unit_test(test_nth_allocation_fails_once),
        cmocka_unit_test(test_live_count_and_overflow),
        cmocka_unit_test(test_arena_keeps_everything),
        cmocka_unit_test(test_string_builder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
