/* What the tests of this room share. */
#ifndef OG_TESTS_SPEC_TEST_H
#define OG_TESTS_SPEC_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "graph/spec/overlay.h"
#include "graph/spec/pipeline.h"

#define UNUSED __attribute__((unused))

/* All messages as text; free with og_free. */
static UNUSED char *messages(const og_diags *d) {
    og_str out = OG_STR_INIT;
    og_str_add(&out, "");
    og_diags_print(d, &out);
    return out.data;
}

static UNUSED void assert_said(const og_diags *d, const char *text) {
    char *all = messages(d);
    if (!strstr(all, text)) fail_msg("'%s' is not in:\n%s", text, all);
    og_free(all);
}

static UNUSED void assert_silent(const og_diags *d) {
    char *all = messages(d);
    if (*all) fail_msg("unexpected: %s", all);
    og_free(all);
}

/* A file of len bytes below a folder that is made for the test. */
static UNUSED void write_bytes(const char *dir, const char *name, const char *text,
                               size_t len) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    for (char *p = path + strlen(dir) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(path, 0700);
        *p = '/';
    }
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static UNUSED void write_file(const char *dir, const char *name, const char *text) {
    write_bytes(dir, name, text, strlen(text));
}

static UNUSED char *temp_dir(char *buf, size_t size) {
    const char *tmp = getenv("TMPDIR");
    snprintf(buf, size, "%s/og-spec-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(buf));
    return buf;
}

static UNUSED void remove_dir(const char *dir) {
    char cmd[600];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    assert_int_equal(system(cmd), 0);
}

/* Folder of the shared compatibility data, or NULL. */
static UNUSED const char *shared_dir(char *buf, size_t size) {
    const char *env = getenv("OG_SHARED");
    struct stat st;
    snprintf(buf, size, "%s", env ? env : OG_SOURCE_DIR "/../shared");
    return stat(buf, &st) == 0 && S_ISDIR(st.st_mode) ? buf : NULL;
}

#endif
