/* The edges of a step on a host device: placing, staging, fetching, stamps, graphs. */
#include "kernels/base/alloc.h"
#include "kernels/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static og_device *dev;
static og_exec *ex;

static int open_cpu(void **state) {
    (void)state;
    if (og_device_open("cpu", 0, 1, &dev, NULL) < 0) return -1;
    return og_exec_create(dev, 1 << 12, &ex, NULL);
}

static int close_cpu(void **state) {
    (void)state;
    og_exec_destroy(ex);
    og_device_close(dev);
    return 0;
}

static void test_a_placed_tensor_is_the_tensor(void **state) {
    (void)state;
    float v[6] = {0};
    og_tensor t = og_tensor_2d(OG_F32, 2, 3, v), out;
    assert_int_equal(og_device_place(dev, &t, &out, NULL), 0);
    assert_ptr_equal(out.data, v);
    og_device_unplace(dev, &out);
    assert_ptr_equal(out.data, v);
}

static void test_staged_bytes_are_the_hosts(void **state) {
    (void)state;
    int32_t ids[3] = {1, 2, 3};
    const void *seen;
    assert_int_equal(og_exec_stage_begin(ex), 0);
    assert_int_equal(og_exec_stage(ex, ids, sizeof ids, &seen), 0);
    assert_int_equal(og_exec_stage_end(ex), 0);
    assert_ptr_equal(seen, ids);
}

static void test_fetch_copies_but_not_while_measuring(void **state) {
    (void)state;
    void *host;
    float from[2] = {3, 4};
    assert_int_equal(og_device_alloc_host(dev, sizeof from, &host, NULL), 0);
    og_exec_set_mode(ex, OG_MEASURE);
    assert_int_equal(og_exec_fetch(ex, host, NULL, sizeof from), 0);
    og_exec_set_mode(ex, OG_RUN);
    assert_int_equal(og_exec_fetch(ex, host, from, sizeof from), 0);
    assert_memory_equal(host, from, sizeof from);
    og_device_free_host(dev, host);
}

static void test_stamps_ascend_and_are_reached(void **state) {
    (void)state;
    uint64_t a, b;
    assert_int_equal(og_exec_stamp(ex, &a), 0);
    assert_int_equal(og_exec_stamp(ex, &b), 0);
    assert_true(b == a + 1);
    assert_int_equal(og_exec_reached(ex, b), 1);
    assert_int_equal(og_exec_wait(ex, b), 0);
    assert_int_equal(og_exec_reached(ex, b + 1), OG_EINVAL);
}

static void test_no_graphs_on_the_host(void **state) {
    (void)state;
    og_graph *g;
    assert_int_equal(og_exec_capture_begin(ex), OG_EUNSUPPORTED);
    assert_int_equal(og_exec_capture_end(ex, &g), OG_EUNSUPPORTED);
    assert_null(g);
    assert_non_null(strstr(og_exec_error(ex), "cpu"));
    assert_int_equal(og_graph_launch(ex, NULL), OG_EUNSUPPORTED);
    og_graph_destroy(ex, NULL);
    assert_int_equal(og_device_lost(dev), 0);
}

static void test_no_memory_for_the_host_block(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    void *p;
    og_alloc_fail_at(1);
    assert_int_equal(og_device_alloc_host(dev, 64, &p, &err), OG_ENOMEM);
    assert_null(p);
    og_alloc_fail_at(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_placed_tensor_is_the_tensor),
        cmocka_unit_test(test_staged_bytes_are_the_hosts),
        cmocka_unit_test(test_fetch_copies_but_not_while_measuring),
        cmocka_unit_test(test_stamps_ascend_and_are_reached),
        cmocka_unit_test(test_no_graphs_on_the_host),
        cmocka_unit_test(test_no_memory_for_the_host_block),
    };
    return cmocka_run_group_tests_name("step", tests, open_cpu, close_cpu);
}
