/* What the overlay makes of a plan: places, sampling, chunk sizes, memory, and what it may
 * not touch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/compile/archs.h"

#define TINY OG_SOURCE_DIR "/tests/data/qwen3_tts/tiny-a/custom_voice"

typedef struct built {
    og_plan *plan;
    og_diags *diags;
    og_err err;
    int rc;
} built;

static built build_opts(og_plan_options o, int flags) {
    built r = {.diags = og_diags_create()};
    r.rc = og_plan_build(&o, flags, r.diags, &r.plan, &r.err);
    return r;
}

/* Qwen3-TTS on fake archs with a real configuration and --set texts. */
static built build_sets(const char *const *sets, int n) {
    og_plan_options o = fake_options("qwen3_tts");
    o.model = TINY;
    o.sets = sets, o.n_sets = n;
    return build_opts(o, 0);
}

/* The same with an overlay file of this text. */
static built build_overlay(const char *text) {
    char path[] = "/tmp/og_overlay_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    og_plan_options o = fake_options("qwen3_tts");
    o.model = TINY;
    o.deploy = path;
    built r = build_opts(o, 0);
    unlink(path);
    return r;
}

static void done(built *r) {
    og_plan_destroy(r->plan);
    og_diags_destroy(r->diags);
}

static bool said(const built *r, og_severity severity, const char *text) {
    for (int i = 0; i < og_diags_count(r->diags); i++) {
        const og_diag *d = og_diags_at(r->diags, i);
        if (d->severity == severity && strstr(d->msg, text)) {
            return true;
        }
    }
    og_str s = OG_STR_INIT;
    og_diags_print(r->diags, &s);
    print_error("nobody said '%s':\n%s\n", text, s.data ? s.data : "");
    og_str_free(&s);
    return false;
}

static const og_plan_stage *stage(const built *r, const char *name) {
    if (r->rc < 0) {
        print_error("%s\n", r->err.msg);
    }
    assert_int_equal(r->rc, 0);
    return &r->plan->stages[og_plan_find_stage(r->plan, name)];
}

/* ---- place ----------------------------------------------------------------------- */

static void test_one_group_by_default(void **state) {
    (void)state;
    built r = build_sets(NULL, 0);
    assert_int_equal(stage(&r, "talker")->n_replicas, 1);
    assert_int_equal(r.plan->n_groups, 1);
    assert_string_equal(r.plan->groups[0].name, "cpu:0");
    done(&r);
}

static void test_devices_make_groups(void **state) {
    (void)state;
    const char *sets[] = {"code2wav.devices=\"1\""};
    built r = build_sets(sets, 1);
    assert_int_equal(stage(&r, "talker")->replicas[0].group, 0);
    assert_int_equal(r.plan->n_groups, 2);
    assert_string_equal(r.plan->groups[1].name, "cpu:1");
    done(&r);
}

static void test_replicas(void **state) {
    (void)state;
    const char *sets[] = {"talker.num_replicas=2", "talker.devices=\"0,1\"",
                          "code2wav.num_replicas=2"};
    built r = build_sets(sets, 3);
    const og_plan_stage *t = stage(&r, "talker"), *v = stage(&r, "code2wav");
    assert_int_equal(t->n_replicas, 2);
    assert_int_equal(r.plan->n_groups, 3); /* cpu:0, cpu:1, cpu:0 #1 */
    assert_int_equal(t->replicas[0].group, v->replicas[0].group);
    assert_true(t->replicas[1].group != v->replicas[1].group);
    done(&r);
    const char *bad[] = {"talker.num_replicas=3", "talker.devices=\"0,1\""};
    r = build_sets(bad, 2);
    assert_true(r.rc < 0);
    assert_true(said(&r, OG_SEVERITY_ERROR, "3 replicas need 1 device or 3"));
    done(&r);
}

static void test_cuda_without_a_build(void **state) {
    (void)state;
    const char *sets[] = {"talker.backend=cuda"};
    for (const char *const *n = og_device_backends(); *n; n++) {
        if (strcmp(*n, "cuda") == 0) {
            skip();
        }
    }
    built r = build_sets(sets, 1);
    assert_true(r.rc < 0 && !r.plan);
    assert_true(said(&r, OG_SEVERITY_ERROR, "backend 'cuda' is not in this build"));
    done(&r);
}

/* An encoder runs where the overlay puts it, as every stage does. */
static void test_encoders_follow_the_device(void **state) {
    (void)state;
    const char *sets[] = {"speaker.backend=cuda", "speaker.devices=\"1\""};
    og_plan_options o = fake_options("qwen3_tts");
    o.model = OG_SOURCE_DIR "/tests/data/qwen3_tts/tiny-a/base";
    o.sets = sets, o.n_sets = 2;
    built r = build_opts(o, OG_PLAN_CHECK_ONLY);
    const og_plan_replica *p = &stage(&r, "speaker")->replicas[0];
    assert_int_equal(p->place.kind, OG_PLACE_CUDA);
    assert_int_equal(p->place.index, 1);
    assert_string_equal(r.plan->groups[p->group].name, "cuda:1");
    p = &stage(&r, "talker")->replicas[0];
    assert_int_equal(p->place.kind, OG_PLACE_HOST);
    assert_string_equal(r.plan->groups[p->group].name, "cpu:0");
    done(&r);
}

/* ---- chunks ---------------------------------------------------------------------- */

static const og_plan_edge *codes_edge(const built *r) {
    assert_int_equal(r->rc, 0);
    for (int i = 0; i < r->plan->n_edges; i++) {
        if (strcmp(r->plan->edges[i].from[0].text, "talker.codes") == 0) {
            return &r->plan->edges[i];
        }
    }
    fail();
    return NULL;
}

static void test_connector_sets_the_chunks(void **state) {
    (void)state;
    built r = build_overlay(
        "connectors:\n"
        "  c: {name: SharedMemoryConnector,\n"
        "      extra: {codec_chunk_frames: 25, initial_codec_chunk_frames: 4}}\n"
        "stages:\n"
        "  - {stage_id: 0, output_connectors: {to_stage_1: c}}\n"
        "  - {stage_id: 1, input_connectors: {from_stage_0: c}}\n");
    const og_plan_edge *e = codes_edge(&r);
    assert_int_equal(e->n_chunk, 2);
    assert_int_equal(e->chunk[0], 4);
    assert_int_equal(e->chunk[1], 25);
    assert_string_equal(e->connector, "c");
    assert_false(e->whole);
    done(&r);
}

static void test_async_chunk_false_is_whole(void **state) {
    (void)state;
    built r = build_overlay("async_chunk: off\n");
    const og_plan_edge *e = codes_edge(&r);
    assert_true(e->whole);
    assert_int_equal(e->n_chunk, 0);
    done(&r);
}

/* ---- sampling -------------------------------------------------------------------- */

static void test_order_of_sampling(void **state) {
    (void)state;
    built r =
        build_overlay("stages:\n  - stage_id: 0\n"
                      "    default_sampling_params: {temperature: 0.5, min_tokens: 0,\n"
                      "      stop_token_ids: [7], seed: 42, top_k: -1}\n"
                      "    subtalker_sampling_params: {temperature: 0.25}\n");
    const og_sampling *s = &stage(&r, "talker")->sampling;
    assert_true(s->temperature == 0.5f);
    assert_true(s->repetition_penalty > 1.04f && s->repetition_penalty < 1.06f);
    assert_int_equal(s->top_k, 0);
    assert_int_equal(s->min_tokens, 2); /* the constraint holds */
    assert_true(said(&r, OG_SEVERITY_WARNING, "min_tokens stays 2"));
    assert_int_equal(s->n_stop, 2); /* a union, the overlay's first */
    assert_int_equal(s->stop[0], 7);
    assert_true(stage(&r, "talker")->head_sampling.temperature == 0.25f);
    assert_true(r.plan->has_seed && r.plan->seed == 42);
    done(&r);
}

static void test_constraint_can_be_tightened(void **state) {
    (void)state;
    const char *sets[] = {"talker.default_sampling_params.min_tokens=5"};
    built r = build_sets(sets, 1);
    assert_int_equal(stage(&r, "talker")->sampling.min_tokens, 5);
    done(&r);
}

static void test_stop_ids_beyond_the_head_b053(void **state) {
    (void)state;
    const char *sets[] = {
        "talker.default_sampling_params.stop_token_ids=[1279, 1280, 151645]"};
    built r = build_sets(sets, 1);
    const og_sampling *s = &stage(&r, "talker")->sampling;
    assert_int_equal(s->n_stop, 2); /* 1279 and the pipeline's own */
    assert_int_equal(s->stop[0], 1279);
    assert_int_equal(s->min_tokens, 2);
    assert_true(
        said(&r, OG_SEVERITY_WARNING, "stop id 1280 is dropped: its head has 1280"));
    assert_true(said(&r, OG_SEVERITY_WARNING, "stop id 151645 is dropped"));
    done(&r);
}

/* ---- memory ---------------------------------------------------------------------- */

static void test_memory_is_refused_with_numbers(void **state) {
    (void)state;
    og_plan_options o = fake_options("qwen3_tts");
    o.model = TINY;
    o.memory_limit = 100000;
    built r = build_opts(o, 0);
    assert_true(r.rc < 0);
    assert_true(said(&r, OG_SEVERITY_ERROR, "of host memory (weights"));
    done(&r);
    r = build_opts(o, OG_PLAN_CHECK_ONLY); /* the machine that checks need not serve */
    assert_int_equal(r.rc, 0);
    assert_false(r.plan->runnable);
    done(&r);
}

static void test_budgets(void **state) {
    (void)state;
    const char *sets[] = {"talker.default_sampling_params.max_tokens=100",
                          "talker.max_num_seqs=2", "talker.max_model_len=200"};
    built r = build_sets(sets, 3);
    const og_plan_edge *e = codes_edge(&r);
    assert_int_equal(e->max_items, 100);
    assert_int_equal(e->budget_bytes, 400);
    assert_int_equal(stage(&r, "talker")->node.kv_bytes, 2 * 200 * 16);
    assert_int_equal(r.plan->weight_bytes, 2000);
    assert_int_equal(r.plan->edge_bytes, 400); /* an edge to the client has no budget */
    done(&r);
}

/* 8 sequences of 4096 positions would take 512 KiB; the talker's pool gets a quarter. */
static void test_pool_is_bounded_by_the_machine(void **state) {
    (void)state;
    og_plan_options o = fake_options("qwen3_tts");
    const char *sets[] = {"code2wav.max_model_len=1"};
    o.model = TINY;
    o.sets = sets, o.n_sets = 1;
    o.memory_limit = 1 << 20;
    built r = build_opts(o, 0);
    assert_int_equal(stage(&r, "talker")->kv_bytes, 1 << 18);
    assert_true(said(&r, OG_SEVERITY_NOTE, "is bounded to 262144 bytes"));
    done(&r);
}

/* ---- memory of GPUs: weights 1000, KV 16 a position, state 10, each stage ------------ */

static built on_gpu(size_t memory, const char *const *sets, int n) {
    const char *all[8] = {"backend=cuda"};
    og_plan_options o = fake_options("qwen3_tts");
    memcpy(all + 1, sets, (size_t)n * sizeof *sets);
    o.model = TINY;
    o.sets = all, o.n_sets = n + 1;
    o.device_memory = memory;
    return build_opts(o, OG_PLAN_CHECK_ONLY);
}

static const char *const small[] = {
    "talker.max_num_seqs=2", "talker.max_model_len=100", "code2wav.max_num_seqs=1",
    "code2wav.max_model_len=10", "talker.gpu_memory_utilization=0.5"};

static void test_each_device_has_its_sum(void **state) {
    (void)state;
    built r = on_gpu(10000, small, 5);
    assert_int_equal(r.rc, 0);
    assert_int_equal(r.plan->n_devices, 1);
    const og_plan_device *d = &r.plan->devices[0];
    assert_string_equal(d->name, "cuda:0");
    assert_int_equal(d->memory, 10000);
    assert_int_equal(d->n_shares, 2);
    assert_int_equal(d->shares[0].bytes, 1000 + 2 * 100 * 16 + 10);
    assert_true(d->shares[0].utilization == 0.5 && d->shares[1].utilization == 0.9);
    assert_int_equal(d->shares[1].bytes, 1000 + 160 + 10);
    assert_int_equal(d->bytes, d->shares[0].bytes + d->shares[1].bytes);
    assert_true(og_plan_find_device(r.plan, (og_place){OG_PLACE_CUDA, 0}) == d);
    assert_null(og_plan_find_device(r.plan, (og_place){OG_PLACE_HOST, 0}));
    og_str s = OG_STR_INIT;
    og_plan_print_memory(r.plan, &s);
    assert_non_null(strstr(s.data, "cuda:0: 5.3 KiB planned of 9.8 KiB, 4.5 KiB left"));
    assert_non_null(strstr(s.data, "gpu_memory_utilization 0.5 allows 4.9 KiB"));
    og_str_free(&s);
    json_t *j = og_plan_json(r.plan);
    const json_t *at = json_array_get(
        json_object_get(json_object_get(j, "memory"), "devices"), 0);
    assert_int_equal(json_integer_value(json_object_get(at, "left")), 10000 - 5380);
    at = json_array_get(json_object_get(at, "stages"), 0);
    assert_string_equal(json_string_value(json_object_get(at, "stage")), "talker");
    assert_int_equal(json_integer_value(json_object_get(at, "limit")), 5000);
    json_decref(j);
    done(&r);
}

/* On the host the weights of two replicas are one mapping, on a GPU each has its own. */
static void test_replicas_and_their_weights(void **state) {
    (void)state;
    const char *sets[] = {"talker.num_replicas=2", "talker.devices=\"0,1\""};
    built r = build_sets(sets, 2);
    assert_int_equal(r.rc, 0);
    assert_int_equal(r.plan->n_devices, 1);
    assert_string_equal(r.plan->devices[0].name, "host memory");
    assert_int_equal(r.plan->devices[0].shares[1].weight_bytes, 0);
    done(&r);
    r = on_gpu(0, sets, 2);
    assert_int_equal(r.rc, 0);
    assert_int_equal(r.plan->n_devices, 2);
    assert_int_equal(r.plan->devices[1].memory, 0);
    assert_int_equal(r.plan->devices[1].n_shares, 1);
    assert_int_equal(r.plan->devices[1].shares[0].weight_bytes, 1000);
    done(&r);
}

static void test_what_a_gpu_has_not_is_refused(void **state) {
    (void)state;
    struct {
        size_t memory;
        const char *set, *text;
    } bad[] = {
        {10000, "talker.gpu_memory_utilization=0.2",
         "stage 'talker' asks for 2.5 KiB of cuda:0 (weights 1000 B, KV 1.6 KiB, state 10 "
         "B), and of 9.8 KiB there are 2.0 KiB for it: raise gpu_memory_utilization (0.2), "
         "or lower max_model_len (100)"},
        {10000, "talker.kv_cache_memory_bytes=6000",
         "raise gpu_memory_utilization (0.5), or lower kv_cache_memory_bytes (6000)"},
        {10000, "talker.gpu_memory_utilization=0.05",
         "there are 500 B for it: raise gpu_memory_utilization (0.05)"},
        {3000, "talker.gpu_memory_utilization=1",
         "of 2.9 KiB there are 1.8 KiB for it: lower gpu_memory_utilization (1)"},
        {900, "talker.gpu_memory_utilization=1", "need a device with more memory"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *sets[6];
        memcpy(sets, small, sizeof small);
        sets[5] = bad[i].set;
        built r = on_gpu(bad[i].memory, sets, 6);
        assert_true(r.rc < 0 && !r.plan);
        assert_true(said(&r, OG_SEVERITY_ERROR, bad[i].text));
        done(&r);
    }
}

/* What gpu_memory_utilization leaves is the pool, where nobody says how large it is. */
static void test_pool_is_what_a_gpu_leaves(void **state) {
    (void)state;
    const char *sets[6];
    memcpy(sets, small, sizeof small);
    sets[5] = "talker.max_num_seqs=8";
    built r = on_gpu(10000, sets, 6);
    assert_int_equal(stage(&r, "talker")->kv_bytes, 5000 - 1010);
    assert_true(said(&r, OG_SEVERITY_NOTE, "the KV pool is bounded to 3990 bytes"));
    assert_int_equal(r.plan->devices[0].shares[0].bytes, 5000);
    done(&r);
}

/* A GPU is open when its engine starts, and has as much as it has. */
static void test_a_plan_is_held_against_a_device(void **state) {
    (void)state;
    built r = on_gpu(0, small, 5);
    og_err err = OG_ERR_INIT;
    int share = -1;
    assert_int_equal(r.rc, 0);
    const og_plan_device *d = &r.plan->devices[0];
    assert_int_equal(og_plan_device_fits(r.plan, d, 10000, NULL, &err), 0);
    assert_int_equal(og_plan_device_fits(r.plan, d, 8000, &share, &err), OG_ELIMIT);
    assert_int_equal(share, 0);
    assert_non_null(strstr(err.msg, "stage 'talker' asks for 4.1 KiB of cuda:0"));
    done(&r);
}

static void test_lengths(void **state) {
    (void)state;
    const char *longer[] = {"talker.max_model_len=9000"};
    built r = build_sets(longer, 1);
    assert_true(r.rc < 0);
    assert_true(
        said(&r, OG_SEVERITY_ERROR, "max_model_len is 9000, the network can take 8192"));
    done(&r);
    const char *tight[] = {"talker.max_model_len=50"};
    r = build_sets(tight, 1);
    assert_int_equal(stage(&r, "talker")->sampling.max_tokens, 49);
    done(&r);
    const char *pool[] = {"talker.kv_cache_memory_bytes=1000"};
    r = build_sets(pool, 1);
    assert_true(r.rc < 0);
    assert_true(said(&r, OG_SEVERITY_ERROR, "too small for one sequence of 4096"));
    done(&r);
}

/* ---- freeze ---------------------------------------------------------------------- */

static void test_frozen_fields_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *overlay, *text;
    } cases[] = {{"stages:\n  - {stage_id: 0, arch: other}\n",
                  "stage 'talker': 'arch' is part of"},
                 {"stages:\n  - {stage_id: 0, constraints: {min_tokens: 0}}\n",
                  "stage 'talker': 'constraints' is part of"},
                 {"stages:\n  - {stage_id: 1, weights: elsewhere}\n",
                  "stage 'code2wav': 'weights' is part of"},
                 {"request: {text: audio}\n", "'request' is part of the pipeline"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        built r = build_overlay(cases[i].overlay);
        assert_true(r.rc < 0 && !r.plan);
        assert_true(said(&r, OG_SEVERITY_ERROR, cases[i].text));
        done(&r);
    }
}

static void test_options_of_the_overlay(void **state) {
    (void)state;
    og_plan_options o = fake_options("higgs_v3");
    const char *good[] = {"code2wav.options.left_context=50"};
    o.sets = good, o.n_sets = 1;
    built r = build_opts(o, OG_PLAN_CHECK_ONLY);
    const og_plan_stage *s = stage(&r, "code2wav");
    assert_string_equal(s->options[0].name, "left_context");
    assert_string_equal(s->options[0].text, "50");
    done(&r);
    const char *frozen[] = {"code2wav.options.lookahead=1"};
    o.sets = frozen;
    r = build_opts(o, OG_PLAN_CHECK_ONLY);
    assert_true(r.rc < 0);
    assert_true(said(&r, OG_SEVERITY_ERROR,
                     "'lookahead' of arch 'higgs_codec_decoder' is frozen"));
    done(&r);
    const char *range[] = {"code2wav.options.left_context=5000"};
    o.sets = range;
    r = build_opts(o, OG_PLAN_CHECK_ONLY);
    assert_true(said(&r, OG_SEVERITY_ERROR, "it may be 0 to 1000"));
    done(&r);
}

static void test_without_a_checkpoint_a_run_says_so(void **state) {
    (void)state;
    built r = build_opts(fake_options("qwen3_tts"), 0);
    assert_true(r.rc < 0);
    assert_true(said(&r, OG_SEVERITY_ERROR, "needs a checkpoint"));
    done(&r);
    og_plan_options none = fake_options(NULL);
    r = build_opts(none, 0);
    assert_true(r.rc < 0);
    assert_non_null(strstr(r.err.msg, "neither a pipeline nor a checkpoint"));
    done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_group_by_default),
        cmocka_unit_test(test_devices_make_groups),
        cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_cuda_without_a_build),
        cmocka_unit_test(test_encoders_follow_the_device),
        cmocka_unit_test(test_connector_sets_the_chunks),
        cmocka_unit_test(test_async_chunk_false_is_whole),
        cmocka_unit_test(test_order_of_sampling),
        cmocka_unit_test(test_constraint_can_be_tightened),
        cmocka_unit_test(test_stop_ids_beyond_the_head_b053),
        cmocka_unit_test(test_memory_is_refused_with_numbers),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_pool_is_bounded_by_the_machine),
        cmocka_unit_test(test_each_device_has_its_sum),
        cmocka_unit_test(test_replicas_and_their_weights),
        cmocka_unit_test(test_what_a_gpu_has_not_is_refused),
        cmocka_unit_test(test_pool_is_what_a_gpu_leaves),
        cmocka_unit_test(test_a_plan_is_held_against_a_device),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_frozen_fields_are_refused_by_name),
        cmocka_unit_test(test_options_of_the_overlay),
        cmocka_unit_test(test_without_a_checkpoint_a_run_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
