#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
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
    og_err quoted = OG_ERR_INIT;
    og_err_set(&quoted, OG_EIO, "no '%s'", "a\nerror: b\x1b[2J\x7f");
    og_err_format(&quoted, text, sizeof text);
    assert_string_equal(text, "error: no 'a error: b [2J '");
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

/* Small blocks and mapped ones: zeroed, aligned, counted, refused on demand. */
static void test_lazy_blocks(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 100, (1 << 20) - 64, 1 << 20, 5000000};
    long before = og_alloc_live();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        long calls = og_alloc_calls();
        unsigned char *p = og_lazy(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % OG_LAZY_ALIGN, 0);
        assert_int_equal(og_alloc_live(), before + 1);
        assert_int_equal(og_alloc_calls(), calls + 1);
        for (size_t k = 0; k < sizes[i]; k += 97) assert_int_equal(p[k], 0);
        memset(p, 0xff, sizes[i]);
        og_lazy_free(p);
        assert_int_equal(og_alloc_live(), before);
        og_alloc_fail_at(1);
        assert_null(og_lazy(sizes[i]));
        assert_true(og_alloc_failed());
    }
    og_alloc_fail_at(0);
    og_lazy_free(NULL);
    assert_null(og_lazy(SIZE_MAX - 8));
    assert_int_equal(og_alloc_live(), before);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Not under tsan: its shadow memory counts as the process's own. */
static long resident_pages(void) {
    long all, resident;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &all, &resident), 2);
    fclose(f);
    return resident;
}

static void test_lazy_blocks_take_what_is_touched(void **state) {
    (void)state;
    long page = sysconf(_SC_PAGESIZE), before = resident_pages();
    char *p = og_lazy((size_t)1 << 30);
    assert_null(og_lazy(SIZE_MAX / 2));
    assert_non_null(p);
    assert_true((resident_pages() - before) * page < 16 << 20);
    memset(p + (100 << 20), 1, 64 << 20);
    assert_true((resident_pages() - before) * page >= 64 << 20);
    assert_true((resident_pages() - before) * page < 128 << 20);
    og_lazy_free(p);
    assert_true((resident_pages() - before) * page < 16 << 20);
}
#endif

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
        cmocka_unit_test(test_lazy_blocks),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(test_lazy_blocks_take_what_is_touched),
#endif
        cmocka_unit_test(test_live_count_and_overflow),
        cmocka_unit_test(test_arena_keeps_everything),
        cmocka_unit_test(test_string_builder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
