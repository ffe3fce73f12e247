/* .npy files: exact bytes, round trips, refusals. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/alloc.h"
#include "nodes/media/npy.h"

static char path[300];

static void ok(int rc, const og_err *err) {
    if (rc < 0) fail_msg("%s", err->msg);
}

static void test_rows_round_trip(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_npy_out *o;
    og_tensor t;
    const int64_t ne[] = {2, 2};
    const int64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    ok(og_npy_create(path, OG_I64, 2, ne, &o, &err), &err);
    ok(og_npy_append(o, rows, 1, &err), &err);
    ok(og_npy_append(o, rows + 4, 2, &err), &err);
    assert_int_not_equal(access(path, F_OK), 0);
    ok(og_npy_commit(o, &err), &err);
    ok(og_npy_read(path, &t, &err), &err);
    assert_int_equal(t.dtype, OG_I64);
    assert_int_equal(t.rank, 3);
    assert_int_equal(t.ne[0], 3);
    assert_int_equal(t.stride[0], 4);
    assert_memory_equal(t.data, rows, sizeof rows);
    og_free(t.data);
}

static void test_header_bytes(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_npy_out *o;
    char h[192];
    ok(og_npy_create(path, OG_F32, 0, NULL, &o, &err), &err);
    ok(og_npy_append(o, (float[]){1, 2}, 2, &err), &err);
    ok(og_npy_commit(o, &err), &err);
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(h, 1, sizeof h, f), sizeof h);
    fclose(f);
    assert_memory_equal(h, "\x93NUMPY\x01\x00\xb6\x00", 10);
    assert_int_equal(h[191], '\n');
    h[191] = 0;
    assert_non_null(
        strstr(h + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"));
}

static void test_every_type(void **state) {
    (void)state;
    const char zeros[64] = {0};
    for (int d = 0; d < OG_DTYPE_COUNT; d++) {
        og_err err = OG_ERR_INIT;
        og_npy_out *o;
        og_tensor t;
        const int64_t ne[] = {3};
        int rc = og_npy_create(path, (og_dtype)d, 1, ne, &o, &err);
        if (d == OG_BF16 || d == OG_F8_E4M3 || d == OG_F8_E5M2) {
            assert_int_equal(rc, OG_EUNSUPPORTED);
            continue;
        }
        ok(rc, &err);
        ok(og_npy_append(o, zeros, 2, &err), &err);
        ok(og_npy_commit(o, &err), &err);
        ok(og_npy_read(path, &t, &err), &err);
        assert_int_equal(t.dtype, d);
        assert_int_equal(t.ne[0], 2);
        og_free(t.data);
    }
}

static void write_file(const char *header, const char *data, size_t n) {
    FILE *f = fopen(path, "wb");
    size_t len = strlen(header);
    unsigned char size[] = {(unsigned char)len, (unsigned char)(len >> 8)};
    fwrite("\x93NUMPY\x01\x00", 1, 8, f);
    fwrite(size, 1, 2, f);
    fwrite(header, 1, len, f);
    fwrite(data, 1, n, f);
    fclose(f);
}

static void test_bad_files(void **state) {
    (void)state;
    static const struct {
        const char *header;
        int code;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", OG_EFORMAT},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", OG_EUNSUPPORTED},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", OG_EUNSUPPORTED},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", OG_EUNSUPPORTED},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", OG_EFORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 1, }", OG_EFORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1), }",
         OG_EFORMAT},
        {"{'descr': '<f4', 'fortran_order': False, "
         "'shape': (4611686018427387904, 4611686018427387904), }",
         OG_EFORMAT},
        {"{'descr': '<f4', 'fortran_order': False, "
         "'shape': (0, 4611686018427387904, 4611686018427387904), }",
         OG_EFORMAT},
        {"", OG_EFORMAT},
    };
    og_tensor t;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(cases[i].header, "abcd", i == 8 ? 0 : 4);
        assert_int_equal(og_npy_read(path, &t, NULL), cases[i].code);
        assert_null(t.data);
    }
    write_file("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "abcd", 4);
    assert_int_equal(og_npy_read(path, &t, NULL), 0);
    assert_int_equal(t.ne[0], 1);
    og_free(t.data);
    unlink(path);
    assert_int_equal(og_npy_read(path, &t, NULL), OG_ENOENT);
}

static void test_abort_leaves_nothing(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_npy_out *o;
    unlink(path);
    ok(og_npy_create(path, OG_F32, 0, NULL, &o, &err), &err);
    og_npy_abort(o);
    og_npy_abort(NULL);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(og_npy_create(path, OG_F32, 6, (int64_t[6]){0}, &o, NULL),
                     OG_EINVAL);
    assert_int_equal(og_npy_create(path, OG_F32, 1, (int64_t[]){-1}, &o, NULL),
                     OG_EINVAL);
}

static void test_out_of_memory(void **state) {
    (void)state;
    long live = og_alloc_live();
    for (long n = 1; n < 100; n++) {
        og_err err = OG_ERR_INIT;
        og_npy_out *o;
        og_tensor t = {0};
        og_alloc_fail_at(n);
        int rc = og_npy_create(path, OG_F32, 0, NULL, &o, &err);
        if (rc == 0) rc = og_npy_append(o, &(float){1}, 1, &err);
        if (rc == 0) rc = og_npy_commit(o, &err);
        if (rc == 0) rc = og_npy_read(path, &t, &err);
        int failed = og_alloc_failed();
        og_alloc_fail_at(0);
        og_free(t.data);
        assert_int_equal(og_alloc_live(), live);
        assert_int_equal(rc, failed ? OG_ENOMEM : 0);
        if (!failed) break;
    }
}

static int make_path(void **state) {
    (void)state;
    snprintf(path, sizeof path, "%s/npy-%ld.npy", OG_BINARY_DIR, (long)getpid());
    return 0;
}

static int remove_path(void **state) {
    (void)state;
    unlink(path);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_round_trip),      cmocka_unit_test(test_header_bytes),
        cmocka_unit_test(test_every_type),           cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_abort_leaves_nothing), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
