/* Files that are saved in all the ways that people and programs save them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "graph/run/watch.h"
#include "tests/run/reload_rig.h"

#define TOP_K "stages:\n  - {stage_id: 0, default_sampling_params: {top_k: %d}}\n"

static void nap(int ms) {
    for (int i = 0; i < ms; i++) live_nap();
}

static void watch(live *s) {
    og_err err = OG_ERR_INIT;
    assert_int_equal(og_reloader_watch(s->reloader, &err), 0);
}

/* Told once more, and once: nothing follows. */
static void assert_told(live *s, int n, og_reload_outcome outcome) {
    live_until(live_n_told(s) >= n);
    nap(2 * OG_WATCH_QUIET_MS);
    assert_int_equal(live_n_told(s), n);
    assert_int_equal(s->told[n - 1], outcome);
}

static void put(live *s, const char *name, const char *fmt, int v) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    live_save(path, fmt, v);
}

static void point(live *s, const char *name, const char *target) {
    char path[256], temp[256];
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    snprintf(temp, sizeof temp, "%s/%s.tmp", s->dir, name);
    assert_int_equal(symlink(target, temp), 0);
    assert_int_equal(rename(temp, path), 0);
}

static void folder(live *s, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static int top_k(live *s) {
    const og_plan *p = og_engine_plan(s->engine);
    int k = p->stages[0].sampling.top_k;
    og_plan_unref(p);
    return k;
}

static void test_b085_links_renames_and_bases(void **state) {
    (void)state;
    live s;
    live_open(&s, "{}\n");
    folder(&s, "v1");
    folder(&s, "v2");
    folder(&s, "v3");
    put(&s, "v1/overlay.yaml", TOP_K, 1);
    put(&s, "v2/overlay.yaml", TOP_K, 2);
    put(&s, "v3/overlay.yaml", TOP_K, 3);
    point(&s, "..data", "v1");
    point(&s, "overlay.yaml", "..data/overlay.yaml");
    watch(&s);
    assert_told(&s, 1, OG_RELOADED_LIVE); /* what was saved before the watch began */
    assert_int_equal(top_k(&s), 1);
    point(&s, "..data", "v2");
    assert_told(&s, 2, OG_RELOADED_LIVE);
    assert_int_equal(top_k(&s), 2);
    point(&s, "..data", "v3");
    assert_told(&s, 3, OG_RELOADED_LIVE);
    assert_int_equal(top_k(&s), 3);
    put(&s, "base.yaml", TOP_K, 5);
    put(&s, "overlay.yaml", "base_config: base.yaml\nstages:\n  - {stage_id: 1, "
                            "max_num_seqs: %d}\n", 8);
    assert_told(&s, 4, OG_RELOADED_LIVE);
    assert_int_equal(top_k(&s), 5);
    put(&s, "base.yaml", TOP_K, 6);
    assert_told(&s, 5, OG_RELOADED_LIVE);
    assert_int_equal(top_k(&s), 6);
    put(&s, "v3/overlay.yaml", TOP_K, 9); /* nobody's any more */
    nap(3 * OG_WATCH_QUIET_MS);
    assert_int_equal(live_n_told(&s), 5);
    live_close(&s);
}

/* Half a file that is closed is reported once; the rest of it is noticed. */
static void test_half_written(void **state) {
    (void)state;
    live s;
    live_open(&s, "{}\n");
    watch(&s);
    FILE *f = fopen(s.overlay, "w");
    fputs("stages:\n  - {stage_id: 0, default_sam", f);
    fclose(f);
    assert_told(&s, 1, OG_RELOADED_INVALID);
    assert_non_null(strstr(s.text, "overlay.yaml:2:"));
    assert_int_equal(live_stats(&s).generation, 1);
    f = fopen(s.overlay, "a");
    fputs("pling_params: {top_k: 4}}\n", f);
    fclose(f);
    assert_told(&s, 2, OG_RELOADED_LIVE);
    assert_int_equal(top_k(&s), 4);
    live_close(&s);
}

/* A burst of saves is one reload (a few on a machine that stands still in between), and what
 * leaves the text as it was, or is about another file, is none. */
static void test_a_burst_is_told_once(void **state) {
    (void)state;
    live s;
    live_open(&s, "{}\n");
    watch(&s);
    for (int i = 1; i <= 30; i++) put(&s, "overlay.yaml", TOP_K, i);
    live_until(top_k(&s) == 30);
    nap(2 * OG_WATCH_QUIET_MS);
    int n = live_n_told(&s);
    assert_true(n < 10);
    put(&s, "overlay.yaml", TOP_K, 30);
    put(&s, "overlay.yaml", TOP_K "# nothing else\n", 30);
    put(&s, "other.yaml", TOP_K, 1);
    nap(3 * OG_WATCH_QUIET_MS);
    assert_int_equal(live_n_told(&s), n);
    live_close(&s);
}

/* A file that is being written is let alone until it is closed. */
static void test_a_slow_writer(void **state) {
    (void)state;
    live s;
    live_open(&s, "{}\n");
    watch(&s);
    FILE *f = fopen(s.overlay, "w");
    for (int i = 0; i < 4; i++) {
        fputs("stages: [ # more to come\n", f);
        fflush(f);
        nap(OG_WATCH_QUIET_MS);
    }
    rewind(f);
    fprintf(f, TOP_K "#", 31);
    fclose(f);
    assert_told(&s, 1, OG_RELOADED_INVALID); /* its end is still there */
    put(&s, "overlay.yaml", TOP_K, 31);
    assert_told(&s, 2, OG_RELOADED_LIVE);
    live_close(&s);
}

/* A file that goes and comes back, and a base that is named before it is there. */
static void test_absent_files(void **state) {
    (void)state;
    live s;
    live_open(&s, "{}\n");
    watch(&s);
    unlink(s.overlay);
    assert_told(&s, 1, OG_RELOADED_INVALID);
    put(&s, "overlay.yaml", "base_config: sub/base\nasync_chunk: %d\n", 1);
    live_until(live_n_told(&s) >= 2);
    assert_int_equal(s.told[1], OG_RELOADED_INVALID);
    folder(&s, "sub");
    put(&s, "sub/base.yaml", TOP_K, 7);
    live_until(top_k(&s) == 7);
    live_close(&s);
}

/* No overlay, nothing to watch. */
static void test_without_an_overlay(void **state) {
    (void)state;
    live s;
    live_open(&s, "{}\n");
    s.opts.deploy = NULL;
    watch(&s);
    assert_int_equal(live_reload(&s), OG_RELOADED_SAME);
    live_close(&s);
}

static atomic_int told;

static void count(void *arg) {
    (void)arg;
    atomic_fetch_add(&told, 1);
}

/* Links in a circle, long names, more files than are watched, folders that go: nothing hangs. */
static void test_odd_paths(void **state) {
    (void)state;
    char dir[] = "/tmp/og_watch_XXXXXX", path[8300], command[64];
    og_watch *w;
    og_err err = OG_ERR_INIT;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(og_watch_create(count, NULL, &w, &err), 0);
    snprintf(path, sizeof path, "%s/a", dir);
    assert_int_equal(symlink("b", path), 0);
    og_watch_add(w, path);
    snprintf(path, sizeof path, "%s/b", dir);
    assert_int_equal(symlink("a", path), 0);
    og_watch_add(w, path);
    og_watch_add(w, "");
    og_watch_add(w, "/");
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = 0;
    path[0] = '/';
    og_watch_add(w, path);
    for (int i = 0; i < 2 * OG_WATCH_MAX_FILES; i++) {
        snprintf(path, sizeof path, "%s/%d/./../%d/file", dir, i, i);
        og_watch_add(w, path);
    }
    assert_int_equal(og_watch_start(w, &err), 0);
    snprintf(path, sizeof path, "%s/1", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/1/file", dir);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
    live_until(atomic_load(&told) == 1);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    live_until(atomic_load(&told) == 2);
    og_watch_destroy(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b085_links_renames_and_bases),
        cmocka_unit_test(test_half_written),
        cmocka_unit_test(test_a_burst_is_told_once),
        cmocka_unit_test(test_a_slow_writer),
        cmocka_unit_test(test_absent_files),
        cmocka_unit_test(test_without_an_overlay),
        cmocka_unit_test(test_odd_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
