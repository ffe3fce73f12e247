/* Devices, execs, scratch, error words, the tap, and tensors. */
#include "kernels/base/alloc.h"
#include "kernels/exec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static og_exec *open_exec(size_t scratch, og_device **dev) {
    og_exec *ex;
    assert_int_equal(og_device_open("cpu", 0, 2, dev, NULL), 0);
    assert_int_equal(og_exec_create(*dev, scratch, &ex, NULL), 0);
    return ex;
}

static void close_exec(og_exec *ex, og_device *dev) {
    og_exec_destroy(ex);
    og_device_close(dev);
}

static int has_backend(const char *name) {
    const char *const *names = og_device_backends();
    while (*names && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

static void test_unknown_backends_are_refused_with_words(void **state) {
    (void)state;
    og_device *dev;
    og_err err = OG_ERR_INIT;
    assert_int_equal(og_device_open("tpu", 0, 0, &dev, &err), OG_EUNSUPPORTED);
    assert_null(dev);
    assert_non_null(strstr(err.msg, "tpu"));
    if (!has_backend("cuda")) {
        og_err_clear(&err);
        assert_int_equal(og_device_open("cuda", 0, 0, &dev, &err), OG_EUNSUPPORTED);
        assert_non_null(strstr(err.msg, "no CUDA backend"));
        assert_non_null(strstr(err.hint, "OG_CUDA"));
    }
    og_err_clear(&err);
    assert_int_equal(og_device_open("cpu", 0, -1, &dev, &err), OG_EINVAL);
}

static void test_what_a_machine_lacks_has_words(void **state) {
    (void)state;
    const struct {
        int driver, runtime, index, count;
        const char *text;
    } lack[] = {
        {0, 13000, -1, 0, "there is no NVIDIA driver on this machine"},
        {12020, 13000, -1, 0, "the NVIDIA driver supports CUDA 12.2, this build needs 13.0"},
        {0, 0, 7, 2, "GPU 7 is asked for, this machine has 2 (0 to 1)"},
        {0, 0, 1, 1, "GPU 1 is asked for, this machine has one (0)"},
        {0, 0, 0, 0, "GPU 0 is asked for, this machine has none"},
    };
    for (size_t i = 0; i < sizeof lack / sizeof *lack; i++) {
        og_err err = OG_ERR_INIT;
        int rc = lack[i].index < 0 ? og__no_driver(lack[i].driver, lack[i].runtime, &err)
                                   : og__no_gpu(lack[i].index, lack[i].count, &err);
        assert_int_equal(rc, lack[i].index < 0 ? OG_EDEVICE : OG_ENOENT);
        assert_string_equal(err.msg, lack[i].text);
        assert_true(err.hint[0]);
    }
}

static void test_backends_are_listed_and_described(void **state) {
    (void)state;
    const char *const *names = og_device_backends();
    for (int i = 0; names[i] && strcmp(names[i], "cuda") != 0; i++) {
        og_device *dev;
        og_device_info info;
        assert_int_equal(og_device_open(names[i], 0, 2, &dev, NULL), 0);
        og_device_info_get(dev, &info);
        assert_string_equal(info.backend, names[i]);
        assert_true(info.name[0] && info.threads >= 1 && info.deterministic);
        og_device_close(dev);
    }
}

/* One small step: two ops and a scratch tensor. */
static int step(og_exec *ex, og_tensor *out, const og_tensor *x, const og_tensor *w) {
    og_tensor h = og_exec_alloc(ex, OG_F32, 2, (int64_t[]){x->ne[0], w->ne[0]});
    int rc = og_op_linear(ex, 1, &h, x, w, NULL, NULL);
    return rc < 0 ? rc : og_op_unary(ex, out, &h, OG_ACT_RELU);
}

static void test_measure_then_run(void **state) {
    (void)state;
    og_device *dev;
    og_exec *ex = open_exec(0, &dev);
    float xs[2 * 3] = {1, 2, 3, -1, -2, -3},
                 ws[4 * 3] = {1, 1, 1, 0, 1, 0, 1, 0, 0, 0, 0, 1};
    float ys[2 * 4] = {0};
    og_tensor x = og_tensor_2d(OG_F32, 2, 3, xs), w = og_tensor_2d(OG_F32, 4, 3, ws);
    og_tensor y = og_tensor_2d(OG_F32, 2, 4, ys), none = og_tensor_2d(OG_F32, 2, 4, NULL);
    og_exec_set_mode(ex, OG_MEASURE);
    assert_int_equal(step(ex, &none, &x, &w), 0);
    og_exec_reset(ex);
    size_t peak = og_exec_peak(ex);
    assert_true(peak >= 2 * 4 * sizeof(float));
    og_exec_set_mode(ex, OG_RUN);
    assert_int_equal(step(ex, &y, &x, &w), OG_ENOMEM);
    assert_non_null(strstr(og_exec_error(ex), "scratch"));
    og_exec_reset(ex);
    assert_int_equal(og_exec_reserve(ex, peak, NULL), 0);
    long calls = og_alloc_calls();
    assert_int_equal(step(ex, &y, &x, &w), 0);
    assert_int_equal(og_exec_sync(ex), 0);
    assert_int_equal(og_alloc_calls(), calls);
    float want[8] = {6, 2, 1, 3, 0, 0, 0, 0};
    assert_memory_equal(ys, want, sizeof want);
    assert_int_equal(og_exec_peak(ex), peak);
    close_exec(ex, dev);
}

/* Scratch measured at the largest step is enough for every smaller one. */
static void test_a_measured_arena_fits_smaller_steps(void **state) {
    (void)state;
    enum { ROWS = 60, K = 70, N = 20, TAPS = 3, SLOTS = 8 };
    static float xs[ROWS * K], ws[N * TAPS * K], ys[ROWS * N], ss[SLOTS * (TAPS - 1) * K];
    static int32_t slot[ROWS], pos[3 * ROWS];
    og_device *dev;
    og_exec *ex = open_exec(0, &dev);
    og_tensor w = og_tensor_3d(OG_F32, N, TAPS, K, ws), none = {0};
    og_tensor s = og_tensor_3d(OG_F32, SLOTS, TAPS - 1, K, ss);
    for (int rows = ROWS; rows > 0; rows--) {
        int32_t cu[3] = {0, rows / 2, rows};
        for (int r = 0; r < rows; r++) slot[r] = r < rows / 2;
        og_rows packed = {rows, 2, slot, pos, cu}, single = {rows, 1, slot, pos, cu + 1};
        og_tensor x = og_tensor_2d(OG_F32, rows, K, xs),
                  y = og_tensor_2d(OG_F32, rows, N, ys);
        if (rows == ROWS) {
            og_exec_set_mode(ex, OG_MEASURE);
            assert_int_equal(og_op_conv1d(ex, &y, &x, &w, &none, &s, &single, 1, NULL),
                             0);
            og_exec_reset(ex);
            assert_int_equal(og_exec_reserve(ex, og_exec_peak(ex), NULL), 0);
            og_exec_set_mode(ex, OG_RUN);
        }
        assert_int_equal(og_op_conv1d(ex, &y, &x, &w, &none, &s, &packed, 1, NULL), 0);
        og_exec_reset(ex);
    }
    close_exec(ex, dev);
}

static void test_og_isa_chooses_the_instruction_set(void **state) {
    (void)state;
    og_device *dev;
    og_device_info info;
    og_err err = OG_ERR_INIT;
    const char *given = getenv("OG_ISA");
    char keep[16];
    snprintf(keep, sizeof keep, "%s", given ? given : "");
    setenv("OG_ISA", "ref", 1);
    assert_int_equal(og_device_open("cpu", 0, 2, &dev, NULL), 0);
    og_device_info_get(dev, &info);
    assert_string_equal(info.backend, "cpu");
    assert_non_null(strstr(info.name, "plain C"));
    og_device_close(dev);
    setenv("OG_ISA", "neon", 1);
    assert_int_equal(og_device_open("cpu", 0, 2, &dev, &err), OG_EINVAL);
    assert_non_null(strstr(err.msg, "neon"));
    setenv("OG_ISA", keep, 1);
}

static void test_marks_give_scratch_back(void **state) {
    (void)state;
    og_device *dev;
    og_exec *ex = open_exec(4096, &dev);
    int64_t ne[1] = {100};
    og_tensor a = og_exec_alloc(ex, OG_F32, 1, ne);
    size_t mark = og_exec_mark(ex);
    og_tensor b = og_exec_alloc(ex, OG_F32, 1, ne);
    og_exec_release(ex, mark);
    og_tensor c = og_exec_alloc(ex, OG_F32, 1, ne);
    assert_non_null(a.data);
    assert_ptr_equal(b.data, c.data);
    assert_int_equal((uintptr_t)a.data % 64, 0);
    assert_int_equal((uintptr_t)c.data % 64, 0);
    og_exec_release(ex, 0);
    ne[0] = 5000;
    assert_null(og_exec_alloc(ex, OG_F32, 1, ne).data);
    assert_true(og_exec_peak(ex) >= 20000);
    close_exec(ex, dev);
}

static void test_shape_errors_name_both_shapes(void **state) {
    (void)state;
    og_device *dev;
    og_exec *ex = open_exec(4096, &dev);
    float buf[64] = {0};
    og_tensor x = og_tensor_2d(OG_F32, 2, 3, buf), w = og_tensor_2d(OG_F32, 4, 5, buf);
    og_tensor y = og_tensor_2d(OG_F32, 2, 4, buf);
    assert_int_equal(og_op_linear(ex, 1, &y, &x, &w, NULL, NULL), OG_ESHAPE);
    assert_non_null(strstr(og_exec_error(ex), "f32[2,3]"));
    assert_non_null(strstr(og_exec_error(ex), "f32[4,5]"));
    assert_int_equal(og_op_unary(ex, &y, &x, OG_ACT_SILU), OG_ESHAPE);
    assert_non_null(strstr(og_exec_error(ex), "unary"));
    og_exec_set_mode(ex, OG_MEASURE); /* measuring checks shapes as well */
    assert_int_equal(og_op_unary(ex, &y, &x, OG_ACT_SILU), OG_ESHAPE);
    close_exec(ex, dev);
}

static void test_tensors_of_other_devices_are_refused(void **state) {
    (void)state;
    og_device *dev;
    og_exec *ex = open_exec(4096, &dev);
    float buf[8] = {0};
    og_tensor x = og_tensor_2d(OG_F32, 2, 4, buf), y = x;
    x.place.kind = OG_PLACE_CUDA;
    assert_int_equal(og_op_unary(ex, &y, &x, OG_ACT_SILU), OG_EINVAL);
    assert_non_null(strstr(og_exec_error(ex), "another device"));
    close_exec(ex, dev);
}

typedef struct seen {
    int calls;
    char name[64];
} seen;

static void remember(void *arg, const char *name, const og_tensor *t) {
    seen *s = arg;
    s->calls += t->ne[0] == 3;
    snprintf(s->name, sizeof s->name, "%s", name);
}

static void test_tap_sees_named_tensors_in_run_mode_only(void **state) {
    (void)state;
    og_device *dev;
    og_exec *ex = open_exec(0, &dev);
    seen s = {0};
    og_tensor t = og_tensor_1d(OG_F32, 3, NULL);
    og_tap(ex, &t, "layer.%d", 1);
    og_exec_set_tap(ex, remember, &s);
    og_exec_set_mode(ex, OG_MEASURE);
    og_tap(ex, &t, "layer.%d", 2);
    assert_int_equal(s.calls, 0);
    og_exec_set_mode(ex, OG_RUN);
    og_tap(ex, &t, "layer.%d", 3);
    assert_int_equal(s.calls, 1);
    assert_string_equal(s.name, "layer.3");
    close_exec(ex, dev);
}

static void test_creation_survives_every_failed_allocation(void **state) {
    (void)state;
    og_device *dev;
    og_exec *ex;
    for (long n = 1;; n++) {
        long live = og_alloc_live();
        og_alloc_fail_at(n);
        int rc = og_device_open("cpu", 0, 2, &dev, NULL);
        if (!rc) {
            rc = og_exec_create(dev, 1000, &ex, NULL);
            if (!rc) og_exec_destroy(ex);
            og_device_close(dev);
        }
        int hit = og_alloc_failed();
        og_alloc_fail_at(0);
        assert_int_equal(og_alloc_live(), live);
        if (!hit) break;
        assert_int_equal(rc, OG_ENOMEM);
    }
}

static void test_half_types_round_trip(void **state) {
    (void)state;
    for (uint32_t v = 0; v < 65536; v++) {
        float f = og_f16_to_f32((uint16_t)v), b = og_bf16_to_f32((uint16_t)v);
        if (f == f) assert_int_equal(og_f32_to_f16(f), v);
        if (b == b) assert_int_equal(og_f32_to_bf16(b), v);
    }
    assert_int_equal(og_f32_to_f16(65519.9f), 0x7bff);
    assert_int_equal(og_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(og_f32_to_f16(0x1p-25f), 0);
    assert_int_equal(og_f32_to_f16(0x1.8p-25f), 1);
    assert_true(og_f8_e4m3_to_f32(0x7e) == 448.0f && og_f8_e4m3_to_f32(1) == 0x1p-9f);
    assert_true(og_f8_e5m2_to_f32(0x7b) == 57344.0f && og_f8_e5m2_to_f32(1) == 0x1p-16f);
}

static void test_views_and_names(void **state) {
    (void)state;
    float data[24];
    char buf[64];
    og_tensor t = og_tensor_3d(OG_F32, 2, 3, 4, data);
    assert_string_equal(og_tensor_str(&t, buf, sizeof buf), "f32[2,3,4]");
    assert_int_equal(og_tensor_bytes(&t), sizeof data);
    og_tensor r = og_tensor_rows(&t, 1, 1);
    assert_ptr_equal(r.data, data + 12);
    og_tensor v = og_tensor_view(&t, 2, (int64_t[]){6, 4});
    assert_true(og_tensor_dense(&v) && og_tensor_count(&v) == 24);
    v.stride[0] = 5;
    assert_false(og_tensor_dense(&v));
    og_tensor absent = {0};
    assert_false(og_tensor_present(&absent));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_backends_are_refused_with_words),
        cmocka_unit_test(test_what_a_machine_lacks_has_words),
        cmocka_unit_test(test_backends_are_listed_and_described),
        cmocka_unit_test(test_measure_then_run),
        cmocka_unit_test(test_a_measured_arena_fits_smaller_steps),
        cmocka_unit_test(test_og_isa_chooses_the_instruction_set),
        cmocka_unit_test(test_marks_give_scratch_back),
        cmocka_unit_test(test_shape_errors_name_both_shapes),
        cmocka_unit_test(test_tensors_of_other_devices_are_refused),
        cmocka_unit_test(test_tap_sees_named_tensors_in_run_mode_only),
        cmocka_unit_test(test_creation_survives_every_failed_allocation),
        cmocka_unit_test(test_half_types_round_trip),
        cmocka_unit_test(test_views_and_names),
    };
    return cmocka_run_group_tests_name("exec", tests, NULL, NULL);
}
