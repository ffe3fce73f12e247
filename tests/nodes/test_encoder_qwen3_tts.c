/* The two encoders of Qwen3-TTS Base against the public implementation's output on the tiny
 * checkpoints, and against themselves: any company, chunking, thread count gives the same
 * bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "nodes/encoder/encoder.h"
#include "nodes/load/json.h"
#include "tests/support/golden.h"
#include "tests/support/harness.h"

enum { IN = 0, OUT = 1, SEQS = 4, MAX_SECONDS = 14 };

/* float32 sums in another order than the reference's, whose own distance to a float64
 * program is 4.3e-6 (mel), 4.0e-6 (vector) and 4.5e-6 (before the quantizers). */
#define MEL_TOLERANCE 1e-5
#define VECTOR_TOLERANCE 1e-5
#define LATENT_TOLERANCE 1e-5
/* Blocks give values of up to 2,000 in tiny-a, of which mfa makes small differences: there
 * the reference itself is 2.7e-5 from float64. */
#define MFA_TOLERANCE 2e-4

static const char *const names[] = {"tiny-a", "tiny-b"};
static const char *const cases[] = {"long12s", "mid", "short", "silence", "tiny"};
enum { N_CASES = sizeof cases / sizeof *cases };
static const char *backend = "ref";

/* ---- help ------------------------------------------------------------------------------ */

typedef struct fixture {
    th_env env;
    og_model *model;
    og_node *node;
    og_dtype dtype;
    int64_t width, per_out; /* values of an item; samples for one, 0: one item in all */
} fixture;

static void open_threads(fixture *f, const char *name, const og_arch *arch, int threads,
                         const char *cache) {
    char path[4096];
    og_err err = OG_ERR_INIT;
    snprintf(path, sizeof path, "%s/tests/data/qwen3_tts/%s/base", OG_SOURCE_DIR, name);
    if (og_device_open(backend, 0, threads, &f->env.dev, &err) < 0) fail_msg("%s", err.msg);
    if (og_exec_create(f->env.dev, 0, &f->env.exec, &err) < 0) fail_msg("%s", err.msg);
    if (og_model_open(path, &f->model, &err) < 0) fail_msg("%s", err.msg);
    const og_option_value options[] = {{"max_seconds", "14"}, {"cache_bytes", cache}};
    int codec = arch == &og_arch_qwen3_tts_codec_encoder;
    og_node_cfg cfg = {.arch = arch, .stage = codec ? "ref_codec" : "speaker",
                       .model = f->model, .folder = codec ? "speech_tokenizer" : "",
                       .exec = f->env.exec, .max_seqs = SEQS, .max_model_len = 1,
                       .max_batched_tokens = 1, .options = options, .n_options = 2};
    if (og_encoder_api.create(&cfg, &f->node, &err) < 0) fail_msg("%s", err.msg);
    th_plan(&f->env, f->node);
    og_node_plan plan;
    if (og_encoder_plan(arch, &cfg, &plan, &err) < 0) fail_msg("%s", err.msg);
    f->dtype = plan.out_dtype[OUT];
    f->width = plan.out_width[OUT];
    f->per_out = codec ? plan.in_items_per_out_item[OUT] : 0;
}

static void open_node(fixture *f, const char *name, const og_arch *arch, const char *cache) {
    open_threads(f, name, arch, 2, cache);
}

static void close_node(fixture *f) {
    f->node->api->destroy(f->node);
    og_model_close(f->model);
    th_close(&f->env);
}

static int64_t items_of(const fixture *f, int64_t n) {
    return f->per_out ? (n + f->per_out - 1) / f->per_out : n > 0;
}

static void start(fixture *f, th_job *j, int id, int64_t n) {
    og_err err = OG_ERR_INIT;
    th_job_init(j, (uint64_t)id, 0);
    j->job.max_items = (int32_t)n;
    th_job_out(j, OUT, f->dtype, f->width, items_of(f, n));
    if (f->node->api->admit(f->node, &j->job, &err) < 0) fail_msg("%s", err.msg);
}

static void finish(fixture *f, th_job *j) {
    f->node->api->retire(f->node, &j->job);
    th_job_free(j);
}

static void feed(fixture *f, th_job *j, const float *x, int64_t n, int flags) {
    th_feed_items(f->node, j, IN, -1, OG_F32, n, 1, x, flags);
}

static void check_done(const fixture *f, const th_job *j, int64_t n) {
    assert_int_equal(j->err.code, 0);
    assert_true(j->out[OUT].first && j->out[OUT].last);
    assert_int_equal(j->out[OUT].commits, 1);
    assert_int_equal(j->out[OUT].n, items_of(f, n));
}

static size_t result_size(const fixture *f, int64_t n) {
    return (size_t)(items_of(f, n) * f->width) * 4;
}

/* Encode alone; the result is the caller's (free). */
static void *encode(fixture *f, const float *x, int64_t n) {
    th_job j;
    start(f, &j, 1, n);
    feed(f, &j, x, n, OG_FIRST | OG_LAST);
    th_run(f->node, 1000);
    check_done(f, &j, n);
    void *y = malloc(result_size(f, n));
    memcpy(y, j.out[OUT].data, result_size(f, n));
    finish(f, &j);
    return y;
}

static og_weights *open_case(const char *name, const char *which) {
    char path[128];
    snprintf(path, sizeof path, "qwen3_tts/%s/%s", name, which);
    return golden_open(path);
}

/* The samples that the case was made from, aligned; the caller's. */
static float *clip_of(const og_weights *g, int64_t *n) {
    og_weights *clips = golden_open("qwen3_tts/clips");
    const char *which = og_weights_metadata(g, "clip");
    assert_non_null(which);
    og_tensor t = golden_get(clips, which);
    float *x = malloc(og_tensor_bytes(&t));
    memcpy(x, t.data, og_tensor_bytes(&t));
    *n = t.ne[0];
    og_weights_close(clips);
    return x;
}

static float *clip_named(const char *which, int64_t *n) {
    char name[64];
    snprintf(name, sizeof name, "codec_encode_%s", which);
    og_weights *g = open_case("tiny-a", name);
    float *x = clip_of(g, n);
    og_weights_close(g);
    return x;
}

/* ---- against the reference --------------------------------------------------------------- */

static void compare_codes(const og_tensor *want, const int32_t *got, const og_weights *g,
                          const char *what) {
    for (int64_t i = 0; i < og_tensor_count(want); i++) {
        if (golden_i64_at(want, i) == got[i]) continue;
        float margin = golden_has(g, "margin") ? golden_f32(g, "margin", i) : 0;
        fail_msg("%s: code %lld of frame %lld is %d, not %lld; the margin is %g", what,
                 (long long)(i % want->ne[1]), (long long)(i / want->ne[1]), got[i],
                 (long long)golden_i64_at(want, i), (double)margin);
    }
}

static void test_codes_equal_the_reference(void **state) {
    (void)state;
    for (int m = 0; m < 2; m++) {
        fixture f;
        open_node(&f, names[m], &og_arch_qwen3_tts_codec_encoder, "0");
        for (int i = 0; i < N_CASES; i++) {
            char which[64];
            int64_t n;
            if (!strcmp(backend, "ref") && !strcmp(cases[i], "long12s")) continue;
            snprintf(which, sizeof which, "codec_encode_%s", cases[i]);
            og_weights *g = open_case(names[m], which);
            float *x = clip_of(g, &n);
            int32_t *y = encode(&f, x, n);
            og_tensor want = golden_get(g, "codes");
            assert_int_equal(want.ne[0], items_of(&f, n));
            assert_int_equal(want.ne[1], f.width);
            compare_codes(&want, y, g, which);
            free(y);
            free(x);
            og_weights_close(g);
        }
        close_node(&f);
    }
}

static void test_vectors_equal_the_reference(void **state) {
    (void)state;
    for (int m = 0; m < 2; m++) {
        fixture f;
        open_node(&f, names[m], &og_arch_qwen3_tts_speaker, "0");
        for (int i = 0; i < N_CASES; i++) {
            char which[64];
            int64_t n;
            if (!strcmp(backend, "ref") && !strcmp(cases[i], "long12s")) continue;
            snprintf(which, sizeof which, "codec_encode_%s", cases[i]);
            og_weights *g = open_case(names[m], which);
            if (golden_has(g, "speaker_embedding")) {
                float *x = clip_of(g, &n), *y = encode(&f, x, n);
                og_tensor want = golden_get(g, "speaker_embedding");
                assert_int_equal(og_tensor_count(&want), f.width);
                double d = golden_max_diff(&want, y, f.width);
                if (d > VECTOR_TOLERANCE) fail_msg("%s %s: off by %g", names[m], which, d);
                free(y);
                free(x);
            }
            og_weights_close(g);
        }
        close_node(&f);
    }
}

/* What the whole requests of the Base variant were made with. */
static void test_requests_have_these_references(void **state) {
    (void)state;
    static const char *const requests[] = {"base_icl_en", "base_icl_text_longer"};
    for (int m = 0; m < 2; m++) {
        fixture codec, speaker;
        open_node(&codec, names[m], &og_arch_qwen3_tts_codec_encoder, "0");
        open_node(&speaker, names[m], &og_arch_qwen3_tts_speaker, "0");
        for (int i = 0; i < 2; i++) {
            int64_t n;
            og_weights *g = open_case(names[m], requests[i]);
            float *x = clip_of(g, &n), *vector = encode(&speaker, x, n);
            int32_t *codes = encode(&codec, x, n);
            og_tensor want = golden_get(g, "ref_codes");
            assert_int_equal(want.ne[0], items_of(&codec, n));
            compare_codes(&want, codes, g, requests[i]);
            want = golden_get(g, "speaker_embedding");
            assert_true(golden_max_diff(&want, vector, speaker.width) <= VECTOR_TOLERANCE);
            free(codes);
            free(vector);
            free(x);
            og_weights_close(g);
        }
        close_node(&codec);
        close_node(&speaker);
    }
}

/* ---- layer by layer ------------------------------------------------------------------------ */

/* A tap of ours beside an array of the case; turned: ours is [time, channels], the case's
 * [channels, time]. |difference| <= tol * (1 + |wanted|). */
typedef struct layer_pair {
    const char *tap, *name;
    int turned;
    double tol;
} layer_pair;

static const layer_pair layers[] = {
    {"codec_encoder.layers.6", "tap_enc6", 1, LATENT_TOLERANCE},
    {"codec_encoder.layers.9", "tap_enc9", 1, LATENT_TOLERANCE},
    {"codec_encoder.layers.12", "tap_enc12", 1, LATENT_TOLERANCE},
    {"codec_encoder.layers.14", "tap_enc14", 1, LATENT_TOLERANCE},
    {"codec_encoder.transformer.layers.0", "tap_tr_layer0", 0, LATENT_TOLERANCE},
    {"codec_encoder.transformer.layers.1", "tap_tr_layer1", 0, LATENT_TOLERANCE},
    {"codec_encoder.transformer.layers.2", "tap_tr_layer2", 0, LATENT_TOLERANCE},
    {"codec_encoder.downsample", "tap_downsample", 1, LATENT_TOLERANCE},
    {"speaker.mel", "mel", 1, MEL_TOLERANCE},
    {"speaker.blocks.0", "tap_spk_block0", 1, LATENT_TOLERANCE},
    {"speaker.blocks.1", "tap_spk_block1", 1, LATENT_TOLERANCE},
    {"speaker.blocks.2", "tap_spk_block2", 1, LATENT_TOLERANCE},
    {"speaker.blocks.3", "tap_spk_block3", 1, LATENT_TOLERANCE},
    {"speaker.mfa", "tap_spk_mfa", 1, MFA_TOLERANCE},
    {"speaker.asp", "tap_spk_asp", 1, LATENT_TOLERANCE},
};

typedef struct tap_state {
    og_weights *g;
    int seen;
} tap_state;

static double layer_diff(const og_tensor *want, const og_tensor *got, int turned) {
    double worst = 0;
    int64_t rows = got->ne[0], cols = got->ne[1];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            double a = (double)golden_f32_at(want, turned ? c * rows + r : r * cols + c);
            double b = (double)((const float *)got->data)[r * got->stride[0] + c];
            double d = fabs(a - b) / (1 + fabs(a));
            if (!(d <= worst)) worst = d;
        }
    return worst;
}

static void on_tap(void *arg, const char *name, const og_tensor *t) {
    tap_state *s = arg;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        if (strcmp(layers[i].tap, name) != 0 || !golden_has(s->g, layers[i].name)) continue;
        og_tensor want = golden_get(s->g, layers[i].name), got = *t;
        if (!strcmp(name, "speaker.asp")) got.ne[0] = 1;
        assert_int_equal(og_tensor_count(&want), og_tensor_count(t));
        double d = layer_diff(&want, &got, layers[i].turned);
        if (!(d <= layers[i].tol)) fail_msg("%s is off by %g", name, d);
        s->seen++;
    }
}

static void test_every_layer_equals_the_reference(void **state) {
    (void)state;
    const og_arch *const archs[] = {&og_arch_qwen3_tts_codec_encoder,
                                    &og_arch_qwen3_tts_speaker};
    for (int m = 0; m < 2; m++) {
        tap_state s = {open_case(names[m], "codec_encode_short"), 0};
        int64_t n;
        float *x = clip_of(s.g, &n);
        for (int a = 0; a < 2; a++) {
            fixture f;
            open_node(&f, names[m], archs[a], "0");
            og_exec_set_tap(f.env.exec, on_tap, &s);
            free(encode(&f, x, n));
            close_node(&f);
        }
        /* tiny-a has 2 layers and 3 blocks after the first, tiny-b 3 and 2 */
        assert_int_equal(s.seen, sizeof layers / sizeof *layers - 1);
        og_weights_close(s.g);
        free(x);
    }
}

/* ---- against themselves --------------------------------------------------------------------- */

static const og_arch *const both[] = {&og_arch_qwen3_tts_codec_encoder,
                                      &og_arch_qwen3_tts_speaker};

static void test_batch_equals_alone(void **state) {
    (void)state;
    int64_t n;
    float *x = clip_named("mid", &n);
    for (int a = 0; a < 4; a++) {
        fixture f;
        open_node(&f, names[a / 2], both[a % 2], "0");
        th_job j[SEQS];
        void *alone[SEQS];
        int64_t size[SEQS];
        for (int i = 0; i < SEQS; i++) {
            size[i] = n - i * 5111;
            alone[i] = encode(&f, x + i * 100, size[i]);
        }
        for (int i = 0; i < SEQS; i++) start(&f, &j[i], i, size[i]);
        /* in pieces, interleaved, with steps between */
        for (int64_t at = 0; at < n; at += 4096) {
            for (int i = SEQS - 1; i >= 0; i--) {
                int64_t left = size[i] - at, take = left < 4096 ? left : 4096;
                if (left <= 0) continue;
                feed(&f, &j[i], x + i * 100 + at, take,
                     (at ? 0 : OG_FIRST) | (take == left ? OG_LAST : 0));
            }
            th_step(f.node, NULL);
        }
        th_run(f.node, 1000);
        for (int i = 0; i < SEQS; i++) {
            check_done(&f, &j[i], size[i]);
            assert_memory_equal(j[i].out[OUT].data, alone[i], result_size(&f, size[i]));
            free(alone[i]);
            finish(&f, &j[i]);
        }
        close_node(&f);
    }
    free(x);
}

/* Bits of all results of a run with that many threads: the pool is sized once a process. */
static uint64_t run_with(int threads) {
    uint64_t hash = 1469598103934665603u;
    int64_t n;
    float *x = clip_named("mid", &n);
    backend = "cpu";
    for (int a = 0; a < 4; a++) {
        fixture f;
        open_threads(&f, names[a / 2], both[a % 2], threads, "0");
        unsigned char *y = encode(&f, x, n);
        for (size_t i = 0; i < result_size(&f, n); i++)
            hash = (hash ^ y[i]) * 1099511628211u;
        free(y);
        close_node(&f);
    }
    free(x);
    return hash;
}

static uint64_t in_child(int threads) {
    int fd[2], status = 0;
    uint64_t hash = 0;
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        hash = run_with(threads);
        _exit(write(fd[1], &hash, sizeof hash) == sizeof hash ? 0 : 1);
    }
    assert_true(pid > 0);
    assert_int_equal(read(fd[0], &hash, sizeof hash), sizeof hash);
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    close(fd[0]);
    close(fd[1]);
    return hash;
}

static void test_threads_change_nothing(void **state) {
    (void)state;
    uint64_t one = in_child(1), two = in_child(2);
    assert_true(one == two && one);
}

static void test_a_hit_has_the_same_bits(void **state) {
    (void)state;
    int64_t n;
    float *x = clip_named("short", &n);
    for (int a = 0; a < 4; a++) {
        fixture f;
        og_node_stats st;
        open_node(&f, names[a / 2], both[a % 2], "1000000");
        void *first = encode(&f, x, n);
        f.node->api->stats(f.node, &st);
        int64_t steps = st.steps;
        assert_int_equal(st.cache_misses, 1);
        void *again = encode(&f, x, n);
        assert_memory_equal(first, again, result_size(&f, n));
        f.node->api->stats(f.node, &st);
        assert_int_equal(st.cache_hits, 1);
        assert_int_equal(st.cache_misses, 1);
        assert_int_equal(st.steps, steps); /* nothing was computed */
        assert_true(st.cache_bytes > 0 && st.cache_bytes <= 1000000);
        x[n - 1] += 1e-6f;
        free(encode(&f, x, n));
        f.node->api->stats(f.node, &st);
        assert_int_equal(st.cache_misses, 2); /* another clip */
        x[n - 1] -= 1e-6f;
        free(first);
        free(again);
        close_node(&f);
    }
    free(x);
}

/* ---- limits ------------------------------------------------------------------------------------ */

static void expect_refusal(fixture *f, int64_t n, const char *said, const char *limit) {
    og_err err = OG_ERR_INIT;
    th_job j;
    th_job_init(&j, 1, 0);
    j.job.max_items = (int32_t)n;
    assert_int_equal(f->node->api->fits(f->node, &j.job, &err), OG_ELIMIT);
    assert_non_null(strstr(err.msg, said));
    assert_non_null(strstr(err.msg, limit));
    err = (og_err)OG_ERR_INIT;
    assert_int_equal(f->node->api->admit(f->node, &j.job, &err), OG_ELIMIT);
}

static void test_clips_that_are_too_long_or_too_short(void **state) {
    (void)state;
    for (int m = 0; m < 2; m++) {
        fixture f;
        /* the widest mirrored edge is 4 frames in tiny-a, 3 in tiny-b */
        int64_t least = m == 0 ? 1280 : 1024, n;
        open_node(&f, names[m], &og_arch_qwen3_tts_speaker, "0");
        expect_refusal(&f, 14 * 24000 + 1, "336001 samples", "at most 336000 (14.000 s)");
        expect_refusal(&f, least - 1, m == 0 ? "1279 samples" : "1023 samples",
                       m == 0 ? "at least 1280" : "at least 1024");
        float *x = clip_named("short", &n);
        free(encode(&f, x, least)); /* the shortest there is */
        free(x);
        close_node(&f);

        open_node(&f, names[m], &og_arch_qwen3_tts_codec_encoder, "0");
        expect_refusal(&f, 14 * 24000 + 1, "336001 samples", "at most 336000");
        float one = 0.5f;
        free(encode(&f, &one, 1)); /* the codec takes any length */
        close_node(&f);
    }
}

/* Every length around the strides: no buffer is planned too small and frames come out right. */
static void test_odd_lengths_fit_their_plan(void **state) {
    (void)state;
    int64_t n;
    float *x = clip_named("long12s", &n);
    static const int64_t lengths[] = {1, 2, 479, 480, 481, 959, 960, 961, 1919, 1920, 1921,
                                      23999, 24000, 24001, 24480, 24961, 47999, 48001};
    for (int m = 0; m < 2; m++) {
        fixture f;
        open_node(&f, names[m], &og_arch_qwen3_tts_codec_encoder, "0");
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            free(encode(&f, x, lengths[i]));
        close_node(&f);
    }
    free(x);
}

/* ---- config and weights --------------------------------------------------------------------- */

static int check_text(const og_arch *arch, const char *text, og_err *err) {
    *err = (og_err)OG_ERR_INIT;
    json_t *root = og_json_parse("config.json", text, strlen(text), 16, err);
    if (!root) fail_msg("%s", err->msg);
    int rc = arch->check(root, err);
    json_decref(root);
    return rc;
}

typedef struct config_case {
    const char *text, *field;
} config_case;

#define CODEC(rate, more)                                                               \
    "{\"encoder_valid_num_quantizers\": 16, \"input_sample_rate\": 24000, "             \
    "\"encode_downsample_rate\": " rate ", \"encoder_config\": {\"hidden_size\": 512, " \
    "\"num_quantizers\": 32" more "}}"

static void test_config_faults_name_their_key(void **state) {
    (void)state;
    static const config_case codec[] = {
        {CODEC("1919", ""), "encode_downsample_rate"},
        {CODEC("1920", ", \"upsampling_ratios\": []"), "encoder_config.upsampling_ratios"},
        {CODEC("1920", ", \"num_residual_layers\": 2"),
         "encoder_config.num_residual_layers"},
        {CODEC("1920", ", \"use_causal_conv\": false"), "encoder_config.use_causal_conv"},
        {CODEC("1920", ", \"use_conv_shortcut\": true"),
         "encoder_config.use_conv_shortcut"},
        {CODEC("1920", ", \"pad_mode\": \"reflect\""), "encoder_config.pad_mode"},
        {CODEC("1920", ", \"hidden_act\": \"silu\""), "encoder_config.hidden_act"},
        {CODEC("1920", ", \"head_dim\": 63"), "encoder_config.head_dim"},
        {CODEC("1920", ", \"num_key_value_heads\": 3"),
         "encoder_config.num_key_value_heads"},
        {CODEC("1920", ", \"codebook_dim\": 128, \"vector_quantization_hidden_dimension\": 64"),
         "encoder_config.codebook_dim"},
        {CODEC("1920", ", \"num_semantic_quantizers\": 16"), "encoder_valid_num_quantizers"},
        {CODEC("1920", ", \"num_filters\": 63"), "encoder_config.num_filters"},
        {CODEC("1920", ", \"num_filters\": 65536"), "encoder_config.num_filters"},
    };
    static const config_case speaker[] = {
        {"{}", "enc_dim"},
        {"{\"enc_dim\": 32, \"sample_rate\": 16000}", "sample_rate"},
        {"{\"enc_dim\": 32, \"mel_dim\": 80}", "mel_dim"},
        {"{\"enc_dim\": 32, \"enc_channels\": [8, 8, 16]}", "enc_channels"},
        {"{\"enc_dim\": 32, \"enc_channels\": [512, 512, 512, 256, 1536]}", "enc_channels"},
        {"{\"enc_dim\": 32, \"enc_channels\": [512, 512, 512, 512, 1024]}", "enc_channels"},
        {"{\"enc_dim\": 32, \"enc_res2net_scale\": 7}", "enc_channels"},
        {"{\"enc_dim\": 32, \"enc_res2net_scale\": 1}", "enc_res2net_scale"},
    };
    og_err err;
    /* with the defaults of the published checkpoints */
    assert_int_equal(check_text(both[0], CODEC("1920", ""), &err), 0);
    assert_int_equal(check_text(both[1], "{\"enc_dim\": 1024}", &err), 0);
    for (size_t i = 0; i < sizeof codec / sizeof *codec; i++) {
        if (check_text(both[0], codec[i].text, &err) >= 0) fail_msg("%s", codec[i].text);
        assert_string_equal(err.field, codec[i].field);
        assert_non_null(strstr(err.msg, codec[i].field));
    }
    for (size_t i = 0; i < sizeof speaker / sizeof *speaker; i++) {
        if (check_text(both[1], speaker[i].text, &err) >= 0) fail_msg("%s", speaker[i].text);
        assert_string_equal(err.field, speaker[i].field);
    }
}

static void test_plan_and_stats_agree(void **state) {
    (void)state;
    for (int a = 0; a < 4; a++) {
        fixture f;
        og_node_plan plan;
        og_node_stats st;
        og_err err = OG_ERR_INIT;
        open_node(&f, names[a / 2], both[a % 2], "5000");
        assert_int_equal(og_encoder_plan(both[a % 2], &f.node->cfg, &plan, &err), 0);
        f.node->api->stats(f.node, &st);
        assert_int_equal(plan.rate, 24000);
        assert_int_equal(plan.state_bytes, st.state_bytes + 5000);
        /* The plan leaves out biases and norms. */
        assert_true(st.weight_bytes > plan.weight_bytes * 0.9);
        assert_true(st.weight_bytes < plan.weight_bytes * 1.1);
        if (a % 2) assert_int_equal(plan.in_items_per_out_item[OUT], 14 * 24000);
        close_node(&f);
    }
}

static void test_create_survives_each_failed_allocation(void **state) {
    (void)state;
    for (int a = 0; a < 2; a++) {
        fixture f;
        open_node(&f, "tiny-b", both[a], "100000");
        og_node_cfg cfg = f.node->cfg;
        cfg.options = NULL;
        cfg.n_options = 0;
        long live = og_alloc_live();
        for (long n = 1;; n++) {
            og_err err = OG_ERR_INIT;
            og_node *node = NULL;
            og_alloc_fail_at(n);
            int rc = og_encoder_api.create(&cfg, &node, &err);
            int hit = og_alloc_failed();
            og_alloc_fail_at(0);
            if (rc == 0) {
                assert_false(hit);
                node->api->destroy(node);
                break;
            }
            assert_true(hit && err.msg[0]);
            assert_null(node);
            assert_int_equal(og_alloc_live(), live);
        }
        close_node(&f);
    }
}

int main(void) {
    const struct CMUnitTest once[] = {
        cmocka_unit_test(test_threads_change_nothing), /* first: no thread may exist yet */
        cmocka_unit_test(test_config_faults_name_their_key),
        cmocka_unit_test(test_plan_and_stats_agree),
        cmocka_unit_test(test_create_survives_each_failed_allocation),
    };
    /* The plain loops of ref are too slow for the long clip, even at tiny sizes. */
    const struct CMUnitTest on_ref[] = {
        cmocka_unit_test(test_codes_equal_the_reference),
        cmocka_unit_test(test_vectors_equal_the_reference),
        cmocka_unit_test(test_every_layer_equals_the_reference),
    };
    const struct CMUnitTest on_cpu[] = {
        cmocka_unit_test(test_codes_equal_the_reference),
        cmocka_unit_test(test_vectors_equal_the_reference),
        cmocka_unit_test(test_every_layer_equals_the_reference),
        cmocka_unit_test(test_requests_have_these_references),
        cmocka_unit_test(test_batch_equals_alone),
        cmocka_unit_test(test_a_hit_has_the_same_bits),
        cmocka_unit_test(test_clips_that_are_too_long_or_too_short),
        cmocka_unit_test(test_odd_lengths_fit_their_plan),
    };
    int failed = cmocka_run_group_tests_name("encoders", once, NULL, NULL);
    failed += cmocka_run_group_tests_name("encoders on ref", on_ref, NULL, NULL);
    backend = "cpu";
    failed += cmocka_run_group_tests_name("encoders on cpu", on_cpu, NULL, NULL);
    return failed;
}
