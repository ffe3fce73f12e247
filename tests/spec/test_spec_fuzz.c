/* Bytes that nobody meant: random mutations of good files, and allocations that fail.
 * The only demand is an error or a result, never a crash, a leak or a hang. The seed is
 * fixed; OG_FUZZ_ROUNDS makes the walk longer. */
#include <dirent.h>
#include <time.h>

#include "graph/spec/cond.h"
#include "spec_test.h"

#define MAX_SEEDS 64
#define MAX_TEXT 8192

typedef struct seed_text {
    char text[MAX_TEXT];
    size_t len;
} seed_text;

static seed_text seeds[MAX_SEEDS];
static int n_seeds;
static uint64_t rng = 0x9e3779b97f4a7c15u;

static uint32_t rnd(uint32_t n) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 33) % n;
}

static void add_seed(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f || n_seeds == MAX_SEEDS) {
        if (f) fclose(f);
        return;
    }
    seeds[n_seeds].len = fread(seeds[n_seeds].text, 1, MAX_TEXT, f);
    fclose(f);
    n_seeds++;
}

static void add_seeds(const char *dir) {
    char path[600];
    DIR *list = opendir(dir);
    assert_non_null(list);
    for (struct dirent *e; (e = readdir(list));) {
        if (!strstr(e->d_name, ".yaml")) continue;
        snprintf(path, sizeof path, "%s/%.200s", dir, e->d_name);
        add_seed(path);
    }
    closedir(list);
}

static const char overlay_seed[] =
    "base_config: none.yaml\nasync_chunk: true\nconnectors:\n  shm: {name: S, extra: "
    "{codec_chunk_frames: [1, 2], codec_streaming: true}}\nstages:\n  - stage_id: 0\n"
    "    engine_args: {max_num_seqs: 3}\n    runtime: {devices: \"0\"}\n"
    "    default_sampling_params: &s {top_k: 1, seed: null}\n"
    "    output_connectors: {to_stage_1: shm}\n"
    "  - {stage_id: 1, input_connectors: {from_stage_0: shm}, default_sampling_params: "
    "*s}\n"
    "platforms: {cuda: {stages: [{stage_id: 1, devices: \"1\", env: {<<: {A: 1}}}]}}\n";

static size_t mutate(char *out, const seed_text *from) {
    static const char bits[][8] = {
        "{",    "}", "[",  "]",    ": ", "- ",   "\n", "?",  "&a ", "*a",
        "null", "~", "\"", "'",    "$",  "<<: ", "..", "-1", "1e9", "\xff",
        "|\n",  "#", "\t", "!!x ", ",",  "not ", "==", "(",  "  ",  "%"};
    size_t len = from->len;
    memcpy(out, from->text, len);
    for (uint32_t edits = 1 + rnd(6); edits; edits--) {
        size_t at = len ? rnd((uint32_t)len) : 0;
        const char *bit = bits[rnd(sizeof bits / sizeof *bits)];
        size_t n = strlen(bit), cut = rnd(3) ? 0 : rnd(12);
        if (cut > len - at) cut = len - at;
        if (len - cut + n > MAX_TEXT * 2) continue;
        memmove(out + at + n, out + at + cut, len - at - cut);
        memcpy(out + at, bit, n);
        len = len - cut + n;
    }
    return len;
}

static void run_pipeline(const char *text, size_t len) {
    static const char *const dirs[] = {OG_SOURCE_DIR "/pipelines"};
    og_diags *d = og_diags_create();
    og_pipeline *p = NULL;
    og_err err = OG_ERR_INIT;
    int rc = og_pipeline_parse("fuzz.yaml", text, len, dirs, 1, d, &p, &err);
    assert_true((rc == 0) == (p != NULL));
    assert_true((rc == 0) == (err.code == 0));
    if (rc < 0 && og_diags_errors(d) == 0) fail_msg("no message: %s", err.msg);
    char *all = messages(d);
    og_free(all);
    og_pipeline_destroy(p);
    og_diags_destroy(d);
}

static void run_overlay(const char *dir, const char *text, size_t len) {
    static const og_stage_ref refs[] = {{"a", 0, "dit"}, {"b", 1, "ar_decoder"}};
    char path[600], set[64];
    const char *sets[] = {set};
    write_bytes(dir, "f.yaml", text, len);
    snprintf(path, sizeof path, "%s/f.yaml", dir);
    snprintf(set, sizeof set, "a.max_num_seqs=%.20s", len > 40 ? "2" : "x");
    og_diags *d = og_diags_create();
    og_overlay *ov = NULL;
    og_err err = OG_ERR_INIT;
    og_overlay_opts o = {.path = path, .platform = "cuda", .sets = sets, .n_sets = 1};
    if (rnd(2)) {
        o.stages = refs;
        o.n_stages = 2;
    } else {
        o.n_sets = 0;
    }
    int rc = og_overlay_load(&o, d, &ov, &err);
    assert_true((rc == 0) == (ov != NULL));
    if (ov) {
        og_str s = OG_STR_INIT;
        og_overlay_link l;
        og_overlay_json(ov, OG_OVERLAY_MERGED, &s);
        og_overlay_json(ov, OG_OVERLAY_EFFECTIVE, &s);
        og_overlay_explain(ov, &s);
        og_overlay_link_of(ov, 0, 1, &l);
        og_str_free(&s);
    }
    og_overlay_destroy(ov);
    og_diags_destroy(d);
}

static int rounds(void) {
    const char *env = getenv("OG_FUZZ_ROUNDS");
    return env ? atoi(env) : 1500;
}

static void test_mutated_pipelines(void **state) {
    static char text[MAX_TEXT * 2 + 64];
    (void)state;
    add_seeds(OG_SOURCE_DIR "/pipelines");
    add_seeds(OG_SOURCE_DIR "/tests/bad/lib");
    time_t end = time(NULL) + 5;
    for (int i = rounds(); i && time(NULL) < end; i--) {
        size_t len = mutate(text, &seeds[rnd((uint32_t)n_seeds)]);
        run_pipeline(text, len);
    }
    assert_int_equal(og_alloc_live(), 0);
}

static void test_mutated_overlays(void **state) {
    static char text[MAX_TEXT * 2 + 64];
    static seed_text seed;
    char dir[256];
    (void)state;
    temp_dir(dir, sizeof dir);
    seed.len = strlen(overlay_seed) - strlen("base_config: none.yaml\n");
    memcpy(seed.text, overlay_seed + strlen("base_config: none.yaml\n"), seed.len);
    time_t end = time(NULL) + 5;
    for (int i = rounds(); i && time(NULL) < end; i--) {
        size_t len = mutate(text, &seed);
        run_overlay(dir, text, len);
    }
    remove_dir(dir);
    assert_int_equal(og_alloc_live(), 0);
}

static void test_random_bytes(void **state) {
    static char text[512];
    (void)state;
    for (int i = 0; i < 2000; i++) {
        size_t len = rnd(sizeof text);
        for (size_t k = 0; k < len; k++) text[k] = (char)rnd(256);
        run_pipeline(text, len);
    }
    og_arena *a = og_arena_create();
    og_diags *d = og_diags_create();
    for (int i = 0; i < 5000; i++) {
        static const char *const words[] = {"a", "not ", "and ",  "or ",  "(",
                                            ")", "==",   " has ", "$x.y", "\"",
                                            "1", ".",    "$",     " "};
        char cond[200] = "";
        for (uint32_t n = rnd(12); n; n--) strcat(cond, words[rnd(14)]);
        const og_cond *c = og_cond_parse(cond, (og_src){"c", 1, 1}, a, d);
        og_str s = OG_STR_INIT;
        if (c) og_cond_print(c, &s);
        if (c && !og_cond_same(c, og_cond_parse(s.data, (og_src){"c", 1, 1}, a, NULL))) {
            og_str again = OG_STR_INIT;
            og_cond_print(og_cond_parse(s.data, (og_src){"c", 1, 1}, a, NULL), &again);
            assert_string_equal(s.data, again.data);
            og_str_free(&again);
        }
        og_str_free(&s);
    }
    og_diags_destroy(d);
    og_arena_destroy(a);
}

typedef int (*walk_fn)(const char *arg);

static int walk_yaml(const char *text) {
    og_arena *a = og_arena_create();
    og_diags *d = og_diags_create();
    const og_yaml_node *root = NULL;
    og_err err = OG_ERR_INIT;
    int rc = OG_ENOMEM;
    if (a && d) rc = og_yaml_parse("w.yaml", text, strlen(text), a, d, &root, &err);
    if (d) og_diags_destroy(d);
    og_arena_destroy(a);
    return rc;
}

static int walk_pipeline(const char *name) {
    static const char *const dirs[] = {OG_SOURCE_DIR "/pipelines"};
    og_diags *d = og_diags_create();
    og_pipeline *p = NULL;
    og_err err = OG_ERR_INIT;
    int rc = d ? og_pipeline_load(name, dirs, 1, d, &p, &err) : OG_ENOMEM;
    assert_true((rc == 0) == (p != NULL));
    og_pipeline_destroy(p);
    og_diags_destroy(d);
    return rc;
}

static int walk_overlay(const char *path) {
    static const og_stage_ref refs[] = {{"a", 0, "dit"}, {"b", 1, "ar_decoder"}};
    static const og_overlay_flag flag = {"dtype", "float32"};
    const char *sets[] = {"b.default_sampling_params={seed: 1, stop: [x]}"};
    og_diags *d = og_diags_create();
    og_overlay *ov = NULL;
    og_err err = OG_ERR_INIT;
    og_overlay_opts o = {.path = path,
                         .platform = "cuda",
                         .stages = refs,
                         .n_stages = 2,
                         .flags = &flag,
                         .n_flags = 1,
                         .sets = sets,
                         .n_sets = 1,
                         .stage_overrides = "{\"a\": {\"enforce_eager\": true}}"};
    int rc = d ? og_overlay_load(&o, d, &ov, &err) : OG_ENOMEM;
    assert_true((rc == 0) == (ov != NULL));
    if (ov) {
        og_str s = OG_STR_INIT;
        og_overlay_explain(ov, &s);
        og_overlay_json(ov, OG_OVERLAY_EFFECTIVE, &s);
        if (s.oom) rc = OG_ENOMEM;
        og_str_free(&s);
    }
    og_overlay_destroy(ov);
    og_diags_destroy(d);
    return rc;
}

/* Fail every allocation in turn: nothing leaks, and a failure is never taken for success
 * except where only the text of a message was lost. */
static void walk(walk_fn fn, const char *arg, int good) {
    assert_int_equal(fn(arg), good);
    long nth = 1;
    for (;; nth++) {
        og_alloc_fail_at(nth);
        int rc = fn(arg);
        int failed = og_alloc_failed();
        og_alloc_fail_at(0);
        assert_int_equal(og_alloc_live(), 0);
        if (!failed) break;
        assert_true(rc == good || rc == OG_ENOMEM);
    }
    print_message("%ld allocations\n", nth - 1);
    assert_true(nth > 3);
}

static void test_failing_allocations(void **state) {
    char dir[256], path[512];
    (void)state;
    walk(walk_yaml, "a: &x {b: [1, 2, {c: d}], <<: {e: f}}\ng: *x\n", 0);
    walk(walk_yaml, "a: [1, 2\nb: ", OG_ESPEC);
    walk(walk_pipeline, "bagel", 0);
    walk(walk_pipeline, "dialogue", 0);
    walk(walk_pipeline, OG_SOURCE_DIR "/tests/bad/edge_stage.yaml", OG_ESPEC);
    temp_dir(dir, sizeof dir);
    write_file(dir, "none.yaml",
               "dtype: float16\nstages: [{stage_id: 0, max_num_seqs: 1}]\n");
    write_file(dir, "o.yaml", overlay_seed);
    snprintf(path, sizeof path, "%s/o.yaml", dir);
    walk(walk_overlay, path, 0);
    remove_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutated_pipelines),
        cmocka_unit_test(test_mutated_overlays),
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
