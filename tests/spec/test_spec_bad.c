/* Every file of tests/bad says in its first line what must be reported, and where:
 *     # expect: LINE:COL: part of the message
 * Files called overlay_* are overlays, all others pipelines. */
#include <dirent.h>

#include "spec_test.h"

#define BAD_DIR OG_SOURCE_DIR "/tests/bad"

static bool matches(const og_diag *m, int line, int col, const char *text) {
    return m->severity == OG_SEVERITY_ERROR && m->src.line == line && m->src.col == col &&
           strstr(m->msg, text);
}

static int check(const char *path, const char *name, int line, int col,
                 const char *text) {
    og_diags *d = og_diags_create();
    og_err err = OG_ERR_INIT;
    og_pipeline *p = NULL;
    og_overlay *ov = NULL;
    og_overlay_opts opts = {.path = path, .platform = "cuda"};
    int rc = !strncmp(name, "overlay_", 8) ? og_overlay_load(&opts, d, &ov, &err)
                                           : og_pipeline_load(path, NULL, 0, d, &p, &err);
    bool found = false;
    for (int i = 0; i < og_diags_count(d); i++) {
        found |= matches(og_diags_at(d, i), line, col, text);
    }
    int bad = rc >= 0 || !err.code || !found;
    if (bad) {
        char *all = messages(d);
        print_error("%s: expected %d:%d: %s, got rc %d:\n%s\n", name, line, col, text, rc,
                    all);
        og_free(all);
    }
    og_pipeline_destroy(p);
    og_overlay_destroy(ov);
    og_diags_destroy(d);
    return bad;
}

static int check_file(const char *name) {
    char path[512], first[512] = "", text[512];
    int line, col, at = 0;
    snprintf(path, sizeof path, BAD_DIR "/%s", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    if (!fgets(first, sizeof first, f)) first[0] = 0;
    fclose(f);
    first[strcspn(first, "\n")] = 0;
    if (sscanf(first, "# expect: %d:%d: %n", &line, &col, &at) != 2 || !at) {
        print_error("%s: no '# expect: LINE:COL: text'\n", name);
        return 1;
    }
    snprintf(text, sizeof text, "%s", first + at);
    return check(path, name, line, col, text);
}

static void test_bad_files(void **state) {
    (void)state;
    DIR *dir = opendir(BAD_DIR);
    int bad = 0, n = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        size_t len = strlen(e->d_name);
        if (len < 5 || strcmp(e->d_name + len - 5, ".yaml")) continue;
        bad += check_file(e->d_name);
        n++;
    }
    closedir(dir);
    print_message("%d files\n", n);
    assert_true(n > 100);
    assert_int_equal(bad, 0);
    assert_int_equal(og_alloc_live(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bad_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
