#include <limits.h>

#include "graph/spec/schema.h"
#include "spec_test.h"

static char dir[256];
static og_diags *d;
static og_overlay *ov;
static og_err err;

static int setup(void **state) {
    (void)state;
    temp_dir(dir, sizeof dir);
    d = og_diags_create();
    ov = NULL;
    err = (og_err)OG_ERR_INIT;
    return !d;
}

static int teardown(void **state) {
    (void)state;
    og_overlay_destroy(ov);
    og_diags_destroy(d);
    remove_dir(dir);
    return og_alloc_live() != 0;
}

static int load_opts(og_overlay_opts opts, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    opts.path = path;
    if (!opts.platform) opts.platform = "cuda";
    return og_overlay_load(&opts, d, &ov, &err);
}

static void load(const char *name) {
    if (load_opts((og_overlay_opts){0}, name) < 0) {
        char *all = messages(d);
        fail_msg("%s", all);
    }
}

static void load_text(const char *text) {
    write_file(dir, "o.yaml", text);
    load("o.yaml");
}

static void effective_is(const char *stage, const char *path, const char *json) {
    const og_yaml_node *n = og_overlay_get(ov, stage, path);
    og_str s = OG_STR_INIT;
    if (!n) {
        if (json) fail_msg("%s.%s is not set", stage ? stage : "", path);
        return;
    }
    if (!json) fail_msg("%s.%s is set", stage ? stage : "", path);
    og_overlay_node_json(n, OG_SECTION_NONE, true, &s);
    assert_string_equal(s.data, json);
    og_str_free(&s);
}

static void test_b001_nothing_beside_a_block_vanishes(void **state) {
    (void)state;
    write_file(dir, "base.yaml",
               "stages: [{stage_id: 0, max_num_seqs: 32, load_format: dummy}]\n");
    load_text("base_config: base.yaml\nstages: [{stage_id: 0, max_num_seqs: 4, "
              "engine_args: {enforce_eager: true}}]\n");
    effective_is("0", "max_num_seqs", "4");
    effective_is("0", "load_format", "\"dummy\"");
    effective_is("0", "enforce_eager", "true");
    effective_is("0", "engine_args", NULL);
}

static void test_b001_flat_over_nested_base(void **state) {
    (void)state;
    write_file(dir, "base.yaml",
               "stages: [{stage_id: 0, engine_args: {max_num_seqs: 32}, "
               "runtime: {devices: \"1\", num_replicas: 2}}]\n");
    load_text("base_config: base.yaml\nstages: [{stage_id: 0, max_num_seqs: 4, "
              "devices: \"0\"}]\n");
    effective_is("0", "max_num_seqs", "4");
    effective_is("0", "devices", "\"0\"");
    effective_is("0", "num_replicas", "2");
}

static void test_b002_extras_are_merged(void **state) {
    (void)state;
    load_text("stages: [{stage_id: 0, engine_extras: {hf_overrides: {a: 1, b: 2}}, "
              "hf_overrides: {b: 3}, engine_args: {hf_overrides: {c: 4}}}]\n");
    effective_is("0", "hf_overrides.a", "1");
    effective_is("0", "hf_overrides.b", "3");
    effective_is("0", "hf_overrides.c", "4");
}

static char *dump(og_overlay_part part) {
    og_str s = OG_STR_INIT;
    og_overlay_json(ov, part, &s);
    return s.data;
}

static void test_b003_every_way_in_gives_the_same(void **state) {
    (void)state;
    const char *dirs[] = {dir};
    char path[512];
    write_file(dir, "same.yaml",
               "async_chunk: false\nstages: [{stage_id: 0, "
               "engine_args: {max_num_seqs: 3}}]\n");
    load("same.yaml");
    char *first = dump(OG_OVERLAY_EFFECTIVE), *merged = dump(OG_OVERLAY_MERGED);
    snprintf(path, sizeof path, "%s/./same.yaml", dir);
    const char *names[] = {"same", "same.yaml", path};
    for (int i = 0; i < 3; i++) {
        og_overlay_destroy(ov);
        og_overlay_opts o = {
            .path = names[i], .dirs = dirs, .n_dirs = 1, .platform = "cuda"};
        assert_int_equal(og_overlay_load(&o, d, &ov, &err), 0);
        char *again = dump(OG_OVERLAY_EFFECTIVE), *raw = dump(OG_OVERLAY_MERGED);
        assert_string_equal(again, first);
        assert_string_equal(raw, merged);
        og_free(again);
        og_free(raw);
    }
    assert_false(og_overlay_bool(ov, NULL, "async_chunk", true));
    og_free(first);
    og_free(merged);
}

static void refuse(const char *text, int code, const char *words) {
    write_file(dir, "o.yaml", text);
    assert_int_equal(load_opts((og_overlay_opts){0}, "o.yaml"), code);
    assert_null(ov);
    assert_said(d, words);
}

static void test_b004_stage_twice(void **state) {
    (void)state;
    refuse("stages:\n  - stage_id: 0\n    devices: \"0\"\n  - stage_id: 0\n", OG_ESPEC,
           "o.yaml:4:5: error: stage_id 0 is listed twice");
    assert_said(d, "the first entry is in line 2, column 5");
}

static void test_b008_spelling(void **state) {
    (void)state;
    load_text(
        "async_chunk: off\nconnectors: {on: {name: shm}, n: {name: shm}}\n"
        "pipeline: no\nstages: [{stage_id: 0, devices: 0, "
        "default_sampling_params: {stop: [yes, no], extra_args: {x: off, y: 1e-1}}}]\n");
    char *json = dump(OG_OVERLAY_MERGED);
    assert_non_null(strstr(json, "\"async_chunk\": false"));
    assert_non_null(strstr(json, "\"on\": {"));
    assert_non_null(strstr(json, "\"n\": {"));
    assert_non_null(strstr(json, "\"pipeline\": \"no\""));
    assert_non_null(strstr(json, "\"devices\": \"0\""));
    assert_non_null(strstr(json, "\"stop\": [\"yes\", \"no\"]"));
    assert_non_null(strstr(json, "\"x\": \"off\""));
    assert_non_null(strstr(json, "\"y\": 0.1"));
    og_free(json);
}

static void test_b011_chains(void **state) {
    (void)state;
    char link[512];
    write_file(dir, "sub/x", "");
    write_file(dir, "b.yaml", "base_config: ./sub/../a.yaml\n");
    write_file(dir, "a.yaml", "base_config: b.yaml\n");
    assert_int_equal(load_opts((og_overlay_opts){0}, "a.yaml"), OG_ESPEC);
    assert_said(d, "base_config goes in a circle: ");
    char want[900];
    snprintf(want, sizeof want, "%s/a.yaml -> %s/b.yaml -> %s/a.yaml", dir, dir, dir);
    assert_said(d, want);
    write_file(dir, "self.yaml", "base_config: self.yaml\n");
    assert_int_equal(load_opts((og_overlay_opts){0}, "self.yaml"), OG_ESPEC);
    snprintf(link, sizeof link, "%s/link.yaml", dir);
    assert_int_equal(symlink("loop.yaml", link), 0);
    write_file(dir, "loop.yaml", "base_config: link.yaml\n");
    assert_int_equal(load_opts((og_overlay_opts){0}, "loop.yaml"), OG_ESPEC);
    assert_int_equal(load_opts((og_overlay_opts){0}, "link.yaml"), OG_ESPEC);
}

static void test_b011_three_levels(void **state) {
    (void)state;
    write_file(dir, "deep/c.yaml",
               "dtype: float32\nstages: [{stage_id: 1, max_num_seqs: 1}]\n");
    write_file(dir, "b.yaml", "base_config: deep/c.yaml\nstages: [{stage_id: 0}]\n");
    load_text("base_config: b.yaml\nstages: [{stage_id: 1, max_num_seqs: 2}]\n");
    effective_is("1", "max_num_seqs", "2");
    effective_is("0", "dtype", "\"float32\"");
    assert_int_equal(og_overlay_n_files(ov), 3);
    assert_string_equal(og_overlay_stage_name(ov, 0), "1");
}

static void test_b012_relative_to_its_own_file(void **state) {
    (void)state;
    char path[512], cwd[PATH_MAX], where[512];
    write_file(dir, "conf/base.yaml", "dtype: float32\n");
    write_file(dir, "conf/x/overlay.yaml", "base_config: ../base.yaml\n");
    assert_non_null(getcwd(cwd, sizeof cwd));
    load("conf/x/overlay.yaml");
    char *first = dump(OG_OVERLAY_MERGED);
    og_overlay_destroy(ov);
    snprintf(where, sizeof where, "%s/conf", dir);
    assert_int_equal(chdir(where), 0);
    og_overlay_opts o = {.path = "x/overlay.yaml", .platform = "cuda"};
    assert_int_equal(og_overlay_load(&o, d, &ov, &err), 0);
    char *second = dump(OG_OVERLAY_MERGED);
    assert_string_equal(first, second);
    og_overlay_destroy(ov);
    snprintf(path, sizeof path, "%s/conf/base.yaml", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(og_overlay_load(&o, d, &ov, &err), OG_ENOENT);
    assert_said(d, "/conf/x/../base.yaml': no such file");
    assert_said(d, "x/overlay.yaml:1:14: error: cannot read overlay");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(og_overlay_load(&o, d, &ov, NULL), OG_EIO);
    assert_said(d, "is a directory");
    assert_int_equal(chdir(cwd), 0);
    og_free(first);
    og_free(second);
}

static void test_b012_empty_base(void **state) {
    (void)state;
    write_file(dir, "empty.yaml", "# nothing yet\n");
    load_text("base_config: empty.yaml\ndtype: float32\n");
    char *json = dump(OG_OVERLAY_MERGED);
    assert_string_equal(json, "{\n  \"dtype\": \"float32\"\n}");
    og_free(json);
}

static void test_b013_null_removes(void **state) {
    (void)state;
    write_file(dir, "base.yaml",
               "stages:\n  - stage_id: 0\n    env: {A: 1}\n    default_sampling_params: "
               "{temperature: 0.9, seed: 42}\n");
    load_text("base_config: base.yaml\nstages:\n  - stage_id: 0\n"
              "    default_sampling_params: {seed: null}\n    env:\n");
    effective_is("0", "default_sampling_params.seed", NULL);
    effective_is("0", "default_sampling_params.temperature", "0.9");
    effective_is("0", "env", NULL);
    char *json = dump(OG_OVERLAY_MERGED);
    assert_null(strstr(json, "seed"));
    assert_null(strstr(json, "env"));
    og_free(json);
    assert_said(d, "o.yaml:5:5: warning: an empty 'env' removes the one below");
}

static void test_platform(void **state) {
    (void)state;
    const char *text =
        "stages:\n  - {stage_id: 0, max_num_seqs: 4, kv_cache_memory_bytes: 8,"
        " default_sampling_params: {top_k: 1, extra_args: {a: 1}}}\n"
        "platforms:\n  cuda:\n    stages:\n      - stage_id: 0\n        devices: \"2\"\n"
        "        kv_cache_memory_bytes: null\n        engine_args: {max_num_seqs: 9}\n"
        "        default_sampling_params: {extra_args: {b: 2}}\n"
        "      - {stage_id: 7, max_num_seqs: 1}\n"
        "  npu: {stages: [{stage_id: 0, max_num_seqs: 77}]}\n";
    load_text(text);
    effective_is("0", "devices", "\"2\"");
    effective_is("0", "max_num_seqs", "9");
    effective_is("0", "kv_cache_memory_bytes", NULL);
    effective_is("0", "default_sampling_params.top_k", "1");
    effective_is("0", "default_sampling_params.extra_args.a", "1");
    effective_is("0", "default_sampling_params.extra_args.b", "2");
    assert_said(d, "'stages' lists no such stage");
    assert_null(og_overlay_get(ov, NULL, "platforms"));
    og_overlay_destroy(ov);
    assert_int_equal(load_opts((og_overlay_opts){.platform = "cpu"}, "o.yaml"), 0);
    effective_is("0", "max_num_seqs", "4");
}

static const og_stage_ref refs[] = {
    {"text", 0, "encoder"},      {"dit", 0, "dit"},          {"vae", 0, "vae"},
    {"talker", 1, "ar_decoder"}, {"speaker", -1, "encoder"},
};

static int load_refs(og_overlay_opts o, const char *text) {
    write_file(dir, "o.yaml", text);
    o.stages = refs;
    o.n_stages = 5;
    return load_opts(o, "o.yaml");
}

static void test_owners_and_names(void **state) {
    (void)state;
    assert_int_equal(
        load_refs((og_overlay_opts){0},
                  "dtype: bfloat16\nstages:\n"
                  "  - {stage_id: 0, devices: \"0,1\", vae_use_tiling: true, "
                  "default_sampling_params: {num_inference_steps: 20, seed: 3, "
                  "temperature: 1}}\n"
                  "  - {name: vae, dtype: float32}\n"
                  "  - {name: speaker, backend: cpu}\n"),
        0);
    effective_is("text", "vae_use_tiling", NULL);
    effective_is("vae", "vae_use_tiling", "true");
    effective_is("dit", "default_sampling_params.num_inference_steps", "20");
    effective_is("dit", "default_sampling_params.temperature", NULL);
    effective_is("text", "default_sampling_params", NULL);
    effective_is("vae", "dtype", "\"float32\"");
    effective_is("dit", "dtype", "\"bfloat16\"");
    effective_is("speaker", "backend", "\"cpu\"");
    effective_is("talker", "dtype", "\"bfloat16\"");
    int ids[4];
    assert_int_equal(og_overlay_devices(ov, "dit", ids, 4), 2);
    assert_int_equal(ids[1], 1);
    assert_int_equal(og_overlay_devices(ov, "talker", ids, 4), 0);
}

static void test_unknown_stages(void **state) {
    (void)state;
    assert_int_equal(load_refs((og_overlay_opts){0}, "stages: [{stage_id: 7}]\n"),
                     OG_ESPEC);
    assert_said(d, "the pipeline has no stage with id 7");
    assert_said(d, "stages are text (0), dit (0), vae (0), talker (1), speaker");
    assert_int_equal(load_refs((og_overlay_opts){0}, "stages: [{name: taker}]\n"),
                     OG_ESPEC);
    assert_said(d, "did you mean 'talker'?");
}

static void test_precedence(void **state) {
    (void)state;
    const char *sets[] = {"talker.max_num_seqs=5", "async_chunk=off",
                          "talker.default_sampling_params.stop_token_ids=[1, 2]",
                          "0.gpu_memory_utilization=0.25"};
    const og_overlay_flag flags[] = {
        {"max_num_seqs", "3"}, {"dtype", "float16"}, {"enable_prefix_caching", "false"}};
    og_overlay_opts o = {.sets = sets,
                         .n_sets = 4,
                         .flags = flags,
                         .n_flags = 3,
                         .stage_overrides =
                             "{\"1\": {\"max_num_seqs\": 4, \"max_model_len\": "
                             "64}, \"dit\": {\"enforce_eager\": true}}"};
    assert_int_equal(load_refs(o, "dtype: bfloat16\nstages:\n  - {stage_id: 1, "
                                  "max_num_seqs: 1, dtype: float32}\nplatforms: {cuda: "
                                  "{stages: [{stage_id: 1, max_num_seqs: 2}]}}\n"),
                     0);
    effective_is("talker", "max_num_seqs", "5");
    effective_is("text", "max_num_seqs", "3");
    effective_is("talker", "max_model_len", "64");
    effective_is("dit", "enforce_eager", "true");
    effective_is("talker", "dtype", "\"float16\"");
    effective_is(NULL, "dtype", "\"float16\"");
    effective_is("vae", "gpu_memory_utilization", "0.25");
    effective_is("talker", "gpu_memory_utilization", NULL);
    effective_is("dit", "enable_prefix_caching", NULL);
    effective_is("talker", "enable_prefix_caching", "false");
    assert_false(og_overlay_bool(ov, NULL, "async_chunk", true));
    effective_is("talker", "default_sampling_params.stop_token_ids", "[1, 2]");
    const og_yaml_node *n = og_overlay_get(ov, "talker", "max_num_seqs");
    assert_string_equal(n->src.file, "--set talker.max_num_seqs=5");
    assert_int_equal(n->src.line, 0);
    og_str s = OG_STR_INIT;
    og_overlay_explain(ov, &s);
    assert_non_null(
        strstr(s.data, "talker.max_num_seqs = 5  (--set talker.max_num_seqs=5)"));
    assert_non_null(strstr(s.data, "talker.dtype = \"float16\"  (--dtype float16)"));
    assert_non_null(strstr(s.data, "dit.enforce_eager = true  (--stage-overrides)"));
    assert_non_null(strstr(s.data, "talker.num_replicas = 1  (default)"));
    og_str_free(&s);
    char *json = dump(OG_OVERLAY_MERGED);
    assert_non_null(strstr(json, "\"max_num_seqs\": 1"));
    assert_null(strstr(json, "async_chunk"));
    og_free(json);
}

static void test_bad_flags(void **state) {
    (void)state;
    static const struct {
        const char *set, *words;
    } cases[] = {
        {"talker.max_num_seqs=x", "takes a whole number, not 'x'"},
        {"talker.max_num_seqz=1", "did you mean 'max_num_seqs'?"},
        {"taker.max_num_seqs=1", "no stage and no root key 'taker'"},
        {"talker.max_num_seqs", "expected STAGE.key=value"},
        {"=1", "expected STAGE.key=value"},
        {"talker..x=1", "is no path of keys"},
        {"talker.devices=[", "did not find expected"},
        {"stages=[]", "'stages' cannot be set by a flag"},
        {"async_chunk=maybe", "takes true or false"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        og_overlay_opts o = {.sets = &cases[i].set, .n_sets = 1};
        assert_int_equal(load_refs(o, "{}"), OG_ESPEC);
        assert_said(d, cases[i].words);
    }
    static const char *const json[] = {"[]",
                                       "{",
                                       "{\"talker\": 3}",
                                       "{\"x\": {}}",
                                       "{\"1\": {\"max_num_seqs\": \"many\"}}",
                                       "{\"1\": {}, \"1\": {}}"};
    for (size_t i = 0; i < sizeof json / sizeof *json; i++) {
        og_overlay_opts o = {.stage_overrides = json[i]};
        assert_int_equal(load_refs(o, "{}"), OG_ESPEC);
    }
    const og_overlay_flag flag = {"no_such_thing", "1"};
    assert_int_equal(load_refs((og_overlay_opts){.flags = &flag, .n_flags = 1}, "{}"),
                     OG_ESPEC);
}

static void test_no_file(void **state) {
    (void)state;
    const char *set = "talker.devices=0,1";
    og_overlay_opts o = {.stages = refs, .n_stages = 5, .sets = &set, .n_sets = 1};
    assert_int_equal(og_overlay_load(&o, d, &ov, &err), 0);
    effective_is("talker", "devices", "\"0,1\"");
    char *json = dump(OG_OVERLAY_MERGED);
    assert_string_equal(json, "{}");
    og_free(json);
}

static void test_links(void **state) {
    (void)state;
    load_text("async_chunk: true\nconnectors:\n  a: {name: SharedMemoryConnector, extra: "
              "{codec_chunk_frames: 25, initial_codec_chunk_frames: 4}}\n"
              "  b: {extra: {codec_chunk_frames: [25, 50, 200]}}\n"
              "  c: {extra: {codec_chunk_ramp: [1, 2, 4], codec_chunk_frames: 8, "
              "codec_streaming: false}}\nstages:\n"
              "  - {stage_id: 0, output_connectors: {to_stage_1: a}}\n"
              "  - {stage_id: 1, output_connectors: {to_stage_2: b}}\n"
              "  - {stage_id: 2, input_connectors: {from_stage_1: b}, async_chunk: off}\n"
              "  - {stage_id: 3, input_connectors: {from_stage_0: c}}\n"
              "  - {stage_id: 4, input_connectors: {from_stage_0: {name: X}}}\n");
    og_overlay_link l;
    og_overlay_link_of(ov, 0, 1, &l);
    assert_string_equal(l.connector, "a");
    assert_string_equal(l.class_name, "SharedMemoryConnector");
    assert_int_equal(l.n_chunks, 2);
    assert_int_equal(l.chunks[0], 4);
    assert_int_equal(l.chunks[1], 25);
    assert_int_equal(l.chunks_src.line, 3);
    assert_true(l.async_chunk);
    og_overlay_link_of(ov, 1, 2, &l);
    assert_int_equal(l.n_chunks, 3);
    assert_int_equal(l.chunks[2], 200);
    assert_null(l.class_name);
    assert_false(l.async_chunk);
    og_overlay_link_of(ov, 0, 3, &l);
    assert_int_equal(l.n_chunks, 4);
    assert_int_equal(l.chunks[3], 8);
    assert_false(l.async_chunk);
    og_overlay_link_of(ov, 0, 4, &l);
    assert_string_equal(l.class_name, "X");
    og_overlay_link_of(ov, 2, 0, &l);
    assert_null(l.connector);
    assert_int_equal(l.n_chunks, 0);
}

static void test_warnings(void **state) {
    (void)state;
    load_text(
        "dtyp: float32\nstages:\n  - {stage_id: 0, max_num_seq: 3, quantization: fp8, "
        "tensor_parallel_size: 1, async_scheduling: true}\n"
        "connectors: {a: {extra: {anything: 1}}}\ncustom_voice_dir: ${HOME}\n");
    assert_said(d, "o.yaml:1:1: warning: unknown key 'dtyp' is not used");
    assert_said(d, "did you mean 'dtype'?");
    assert_said(d, "did you mean 'max_num_seqs'?");
    assert_said(d, "'quantization' is known but has no effect here");
    assert_said(d, "'${...}' is not replaced");
    assert_int_equal(og_diags_warnings(d), 4);
}

static void note_change(void *user, const og_overlay_change *c) {
    og_str_addf(user, "%s%s%s %c%c %d\n", c->stage ? c->stage : "", c->stage ? "." : "",
                c->path, c->before ? '1' : '0', c->after ? '1' : '0', (int)c->reload);
}

static void test_changes(void **state) {
    og_overlay *first;
    og_str s = OG_STR_INIT;
    (void)state;
    load_text(
        "async_chunk: true\nstages:\n  - {stage_id: 0, max_num_seqs: 1, devices: \"0\", "
        "dtype: float32, default_sampling_params: {top_k: 1, seed: 2}}\n");
    first = ov;
    assert_int_equal(og_overlay_diff(first, first, note_change, &s), 0);
    assert_null(s.data);
    load_text(
        "async_chunk: false\nstages:\n  - {stage_id: 0, max_num_seqs: 2, num_replicas: 2,"
        " dtype: float16, default_sampling_params: {top_k: 1, seed: 3}}\n");
    assert_int_equal(og_overlay_diff(first, ov, note_change, &s), 0);
    assert_string_equal(s.data,
                        "0.max_num_seqs 11 2\n0.devices 10 3\n0.dtype 11 0\n"
                        "0.default_sampling_params.seed 11 1\n0.num_replicas 01 3\n"
                        "async_chunk 11 1\n");
    og_str_free(&s);
    og_overlay_destroy(first);
}

/* Our own overlays load without a word, each against its pipeline. */
static void test_our_overlays(void **state) {
    static const char *const dirs[] = {OG_SOURCE_DIR "/pipelines"};
    static const char *const files[][2] = {
        {"qwen3_tts", "qwen3_tts"},
        {"qwen3_tts_2gpu", "qwen3_tts"},
        {"qwen3_tts_replicas", "qwen3_tts"},
        {"qwen3_tts_dummy", "qwen3_tts"},
        {"qwen3_omni", "qwen3_omni"},
        {"cosyvoice3", "cosyvoice3"},
        {"qwen_image", "qwen_image"},
        {"qwen_image", "qwen_image_edit"},
        {"wan2_2_i2v", "wan2_2_i2v"},
        {"bagel", "bagel"},
        {"higgs_v3", "higgs_v3"},
        {"qwen3_tts", "dialogue"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        og_pipeline *p;
        og_stage_ref own[16];
        const char *deploy = OG_SOURCE_DIR "/deploy";
        assert_int_equal(og_pipeline_load(files[i][1], dirs, 1, d, &p, &err), 0);
        for (int k = 0; k < p->n_stages; k++) {
            const og_spec_stage *s = &p->stages[k];
            own[k] = (og_stage_ref){s->name, s->id, s->node};
        }
        og_overlay_opts o = {.path = files[i][0],
                             .dirs = &deploy,
                             .n_dirs = 1,
                             .platform = i % 2 ? "cpu" : "cuda",
                             .stages = own,
                             .n_stages = p->n_stages};
        assert_int_equal(og_overlay_load(&o, d, &ov, &err), 0);
        assert_silent(d);
        og_overlay_destroy(ov);
        og_pipeline_destroy(p);
    }
    ov = NULL;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_b001_nothing_beside_a_block_vanishes),
        TEST(test_b001_flat_over_nested_base),
        TEST(test_b002_extras_are_merged),
        TEST(test_b003_every_way_in_gives_the_same),
        TEST(test_b004_stage_twice),
        TEST(test_b008_spelling),
        TEST(test_b011_chains),
        TEST(test_b011_three_levels),
        TEST(test_b012_relative_to_its_own_file),
        TEST(test_b012_empty_base),
        TEST(test_b013_null_removes),
        TEST(test_platform),
        TEST(test_owners_and_names),
        TEST(test_unknown_stages),
        TEST(test_precedence),
        TEST(test_bad_flags),
        TEST(test_no_file),
        TEST(test_links),
        TEST(test_warnings),
        TEST(test_changes),
        TEST(test_our_overlays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
