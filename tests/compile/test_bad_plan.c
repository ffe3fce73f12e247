/* tests/bad_plan: one mistake a file, and on its first line what the compiler must say and
 * where: "# expect: line:col: part of the message". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/compile/archs.h"

#define DIR_NAME OG_SOURCE_DIR "/tests/bad_plan"

static bool read_expect(const char *path, int *line, int *col, char *text, size_t size) {
    char buf[512];
    FILE *f = fopen(path, "r");
    bool ok = f && fgets(buf, sizeof buf, f);
    int used = 0;
    ok = ok && sscanf(buf, "# expect: %d:%d: %n", line, col, &used) == 2 && used;
    if (ok) {
        buf[strcspn(buf, "\n")] = 0;
        snprintf(text, size, "%s", buf + used);
    }
    if (f) {
        fclose(f);
    }
    return ok;
}

static bool says(const og_diags *d, int line, int col, const char *text) {
    for (int i = 0; i < og_diags_count(d); i++) {
        const og_diag *g = og_diags_at(d, i);
        if (g->severity == OG_SEVERITY_ERROR && g->src.line == line &&
            g->src.col == col && strstr(g->msg, text)) {
            return true;
        }
    }
    return false;
}

/* Files about what a build lacks are compiled to run, the others to check. */
static bool check_file(const char *name) {
    char path[1024], text[512] = "";
    int line = 0, col = 0;
    snprintf(path, sizeof path, "%s/%s", DIR_NAME, name);
    if (!read_expect(path, &line, &col, text, sizeof text)) {
        print_error("%s: no '# expect: line:col: text' on the first line\n", name);
        return false;
    }
    og_plan_options o = fake_options(path);
    og_diags *d = og_diags_create();
    og_plan *plan = NULL;
    og_err err = OG_ERR_INIT;
    int flags = strncmp(name, "run_", 4) == 0 ? 0 : OG_PLAN_CHECK_ONLY;
    int rc = og_plan_build(&o, flags, d, &plan, &err);
    bool ok = rc < 0 && !plan && err.code < 0 && says(d, line, col, text);
    if (!ok) {
        og_str all = OG_STR_INIT;
        og_diags_print(d, &all);
        print_error("%s: wanted %d:%d: %s\ngot (%d):\n%s\n", name, line, col, text, rc,
                    all.data ? all.data : "");
        og_str_free(&all);
    }
    og_plan_destroy(plan);
    og_diags_destroy(d);
    return ok;
}

static void test_mistakes_b016_b018(void **state) {
    (void)state;
    struct dirent **found = NULL;
    int n = scandir(DIR_NAME, &found, NULL, alphasort);
    int files = 0, bad = 0;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        size_t len = strlen(found[i]->d_name);
        if (len > 5 && strcmp(found[i]->d_name + len - 5, ".yaml") == 0) {
            files++;
            bad += !check_file(found[i]->d_name);
        }
        free(found[i]);
    }
    free(found);
    assert_true(files >= 16);
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mistakes_b016_b018)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
