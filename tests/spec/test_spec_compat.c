/* Our merge against the released code's, over the shared compatibility data:
 *   compat/merge/NN/   worked cases, with their inputs
 *   compat/golden/     merged public deploy files; the files themselves are read from the
 *                      folder OG_VLLM_DEPLOY
 * docs/overlays-differences.md explains every number in the tables below. */
#include <dirent.h>
#include <jansson.h>

#include "graph/spec/schema.h"
#include "spec_test.h"

/* How a case comes out: leaves that differ from the released result, or refused. */
#define REFUSED (-1)

static const struct {
    const char *name;
    int differs;
} merge_cases[] = {
    {"01", 4},  {"02", 0},        {"03", 10},       {"04", 0},        {"05", 2},
    {"06", 0},  {"07", 0},        {"07c", 0},       {"08", 1},        {"09", 4},
    {"09b", 3}, {"10", 6},        {"10b", 0},       {"11b", 0},       {"11c", REFUSED},
    {"11d", 0}, {"11e", REFUSED}, {"11f", REFUSED}, {"11g", REFUSED}, {"11h", 0},
    {"11j", 0}, {"12", 0},        {"12b", 0},       {"12c", 0},       {"14", 0},
    {"18", 0},
};

static const struct {
    const char *file;
    int differs;
} golden_cases[] = {{"nemotron_labs_voicechat_duplex.yaml", 2}};

static int differ(const json_t *a, const json_t *b);

static int differ_objects(const json_t *a, const json_t *b) {
    const char *key;
    json_t *v;
    int n = 0;
    json_object_foreach((json_t *)a, key, v) {
        const json_t *other = json_object_get(b, key);
        n += other ? differ(v, other) : 1;
    }
    json_object_foreach((json_t *)b, key, v) n += !json_object_get(a, key);
    return n;
}

/* Leaves in which two values differ. Numbers are equal by value; "0" and 0 are not. */
static int differ(const json_t *a, const json_t *b) {
    if (json_is_object(a) && json_is_object(b)) return differ_objects(a, b);
    if (json_is_number(a) && json_is_number(b)) {
        return json_number_value(a) != json_number_value(b);
    }
    if (!json_is_array(a) || !json_is_array(b)) return !json_equal(a, b);
    if (json_array_size(a) != json_array_size(b)) return 1;
    int n = 0;
    for (size_t i = 0; i < json_array_size(a); i++) {
        n += differ(json_array_get(a, i), json_array_get(b, i));
    }
    return n;
}

/* The released code adds an empty list to a platform without stages. */
static void drop_empty_lists(json_t *merged) {
    const char *key;
    json_t *platform;
    json_object_foreach(json_object_get(merged, "platforms"), key, platform) {
        json_t *stages = json_object_get(platform, "stages");
        if (stages && json_array_size(stages) == 0) json_object_del(platform, "stages");
    }
}

/* Merged result of a file, NULL when it is refused. */
static json_t *merged_of(const char *path) {
    og_diags *d = og_diags_create();
    og_overlay *ov = NULL;
    og_overlay_opts o = {.path = path, .platform = "cuda"};
    json_t *j = NULL;
    if (og_overlay_load(&o, d, &ov, NULL) == 0) {
        og_str s = OG_STR_INIT;
        json_error_t why;
        og_overlay_json(ov, OG_OVERLAY_MERGED, &s);
        j = json_loads(s.data, JSON_DECODE_ANY, &why);
        if (!j) fail_msg("%s: not JSON: %s", path, why.text);
        og_str_free(&s);
        og_str_add(&s, "");
        og_overlay_json(ov, OG_OVERLAY_EFFECTIVE, &s);
        json_t *e = json_loads(s.data, 0, &why);
        if (!e) fail_msg("%s: not JSON: %s", path, why.text);
        json_decref(e);
        og_str_free(&s);
    }
    og_overlay_destroy(ov);
    og_diags_destroy(d);
    return j;
}

static json_t *read_json(const char *path) {
    json_error_t why;
    json_t *j = json_load_file(path, 0, &why);
    if (!j) fail_msg("%s: %s", path, why.text);
    return j;
}

static void check_merge(const char *dir, const char *name, int want) {
    char path[800];
    snprintf(path, sizeof path, "%s/compat/merge/%s/expected.json", dir, name);
    json_t *expected = read_json(path);
    const char *file = json_string_value(json_object_get(expected, "loaded_file"));
    snprintf(path, sizeof path, "%s/compat/merge/%s/%s", dir, name, file);
    json_t *ours = merged_of(path);
    int got = ours ? differ(ours, json_object_get(expected, "merged")) : REFUSED;
    if (got != want) fail_msg("case %s: %d leaves differ, expected %d", name, got, want);
    json_decref(ours);
    json_decref(expected);
}

static void test_merge_cases(void **state) {
    char buf[512];
    const char *dir = shared_dir(buf, sizeof buf);
    (void)state;
    if (!dir) {
        print_message("skipped: no shared data (set OG_SHARED)\n");
        skip();
    }
    for (size_t i = 0; i < sizeof merge_cases / sizeof *merge_cases; i++) {
        check_merge(dir, merge_cases[i].name, merge_cases[i].differs);
    }
}

static int expected_differences(const char *file) {
    for (size_t i = 0; i < sizeof golden_cases / sizeof *golden_cases; i++) {
        if (!strcmp(file, golden_cases[i].file)) return golden_cases[i].differs;
    }
    return 0;
}

/* 1: compared, 0: the file is not in the folder (those that were inline). */
static int check_golden(const char *golden, const char *deploy) {
    char path[800];
    json_t *expected = read_json(golden);
    const char *file = json_string_value(json_object_get(expected, "file"));
    snprintf(path, sizeof path, "%s/%s", deploy, file);
    if (access(path, R_OK) != 0) {
        json_decref(expected);
        return 0;
    }
    json_t *ours = merged_of(path), *theirs = json_object_get(expected, "merged_yaml");
    if (!ours) fail_msg("%s is refused", path);
    drop_empty_lists(ours);
    drop_empty_lists(theirs);
    int got = differ(ours, theirs), want = expected_differences(file);
    if (got != want) fail_msg("%s: %d leaves differ, expected %d", file, got, want);
    json_decref(ours);
    json_decref(expected);
    return 1;
}

static void test_golden_files(void **state) {
    char buf[512], path[800];
    const char *dir = shared_dir(buf, sizeof buf), *deploy = getenv("OG_VLLM_DEPLOY");
    int n = 0;
    (void)state;
    if (!dir || !deploy) {
        print_message("skipped: %s\n", dir ? "OG_VLLM_DEPLOY names no folder"
                                           : "no shared data (set OG_SHARED)");
        skip();
    }
    snprintf(path, sizeof path, "%s/compat/golden", dir);
    DIR *list = opendir(path);
    assert_non_null(list);
    for (struct dirent *e; (e = readdir(list));) {
        if (!strstr(e->d_name, ".json")) continue;
        snprintf(path, sizeof path, "%s/compat/golden/%.200s", dir, e->d_name);
        n += check_golden(path, deploy);
    }
    closedir(list);
    print_message("%d files compared\n", n);
    assert_true(n >= 70);
}

/* Every public file loads, whether there is a golden result or not. */
static void test_all_deploy_files(void **state) {
    const char *deploy = getenv("OG_VLLM_DEPLOY");
    char path[800];
    int n = 0;
    (void)state;
    DIR *list = deploy ? opendir(deploy) : NULL;
    if (!list) {
        print_message("skipped: OG_VLLM_DEPLOY names no folder\n");
        skip();
    }
    for (struct dirent *e; (e = readdir(list));) {
        if (!strstr(e->d_name, ".yaml")) continue;
        snprintf(path, sizeof path, "%s/%.200s", deploy, e->d_name);
        json_t *j = merged_of(path);
        if (!j) fail_msg("%s is refused", path);
        json_decref(j);
        n++;
    }
    closedir(list);
    print_message("%d files loaded\n", n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge_cases),
        cmocka_unit_test(test_golden_files),
        cmocka_unit_test(test_all_deploy_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
