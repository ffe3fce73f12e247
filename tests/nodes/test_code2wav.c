/* Qwen3-TTS code2wav against the public implementation's output on the tiny checkpoints,
 * and against itself: any chunking, batch, slot or thread count gives the same bits. */
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

#include "nodes/load/json.h"
#include "nodes/vocoder/vocoder.h"
#include "tests/nodes/far.h"
#include "tests/support/golden.h"
#include "tests/support/harness.h"

enum { IN = 0, OUT = 1, MAX_FRAMES = 720 };

/* float32 sums in another order than the reference's; the reference's own distance to a
 * float64 program is 7.6e-6. */
#define TOLERANCE 5e-5

static const char *const names[] = {"tiny-a", "tiny-b"};
static const char *backend = "ref";

/* ---- help ------------------------------------------------------------------------- */

typedef struct fixture {
    th_env env;
    og_model *model;
    og_node *node;
    int groups, spi;
} fixture;

static void open_env(th_env *env, const char *be, int threads) {
    og_err err = OG_ERR_INIT;
    if (!strcmp(be, "far")) {
        far_open(env);
        return;
    }
    if (og_device_open(be, 0, threads, &env->dev, &err) < 0) fail_msg("%s", err.msg);
    if (og_exec_create(env->dev, 0, &env->exec, &err) < 0) fail_msg("%s", err.msg);
}

static void open_node(fixture *f, const char *name, int seqs, const char *chunk,
                      int threads) {
    char path[4096];
    og_err err = OG_ERR_INIT;
    snprintf(path, sizeof path, "%s/tests/data/qwen3_tts/%s/custom_voice", OG_SOURCE_DIR,
             name);
    open_env(&f->env, backend, threads);
    if (og_model_open(path, &f->model, &err) < 0) fail_msg("%s", err.msg);
    const og_option_value options[] = {{"max_chunk_frames", chunk},
                                       {"max_step_frames", "32"}};
    og_node_cfg cfg = {.arch = &og_arch_qwen3_tts_code2wav,
                       .stage = "code2wav",
                       .model = f->model,
                       .folder = "speech_tokenizer",
                       .exec = f->env.exec,
                       .max_seqs = seqs,
                       .max_model_len = MAX_FRAMES,
                       .max_batched_tokens = 64,
                       .options = options,
                       .n_options = 2};
    if (og_kind_vocoder.api->create(&cfg, &f->node, &err) < 0) fail_msg("%s", err.msg);
    th_plan(&f->env, f->node);
    og_node_plan plan;
    if (og_kind_vocoder.plan(cfg.arch, &cfg, &plan, &err) < 0) fail_msg("%s", err.msg);
    f->spi = (int)plan.out_items_per_item[OUT];
    const json_t *root = og_model_config(f->model, "speech_tokenizer", NULL, &err);
    assert_int_equal(
        og_cfg_int(root, "decoder_config.num_quantizers", &f->groups, 1, 64, &err), 0);
}

static void close_node(fixture *f) {
    f->node->api->destroy(f->node);
    og_model_close(f->model);
    th_close(&f->env);
}

/* Made-up frames: all of them legal, no two alike. */
static void make_codes(const fixture *f, int32_t *codes, int frames, uint32_t seed) {
    for (int i = 0; i < frames * f->groups; i++) {
        seed = seed * 1664525u + 1013904223u;
        codes[i] = (int32_t)((seed >> 8) % 128);
    }
}

static void start(fixture *f, th_job *j, int id, int frames) {
    og_err err = OG_ERR_INIT;
    th_job_init(j, (uint64_t)id, 0);
    j->job.max_items = frames;
    th_job_out(j, OUT, OG_F32, 1, (int64_t)frames * f->spi);
    if (f->node->api->admit(f->node, &j->job, &err) < 0) fail_msg("%s", err.msg);
}

static void finish(fixture *f, th_job *j) {
    f->node->api->retire(f->node, &j->job);
    th_job_free(j);
}

static void feed(fixture *f, th_job *j, const int32_t *codes, int n, int flags) {
    th_feed_items(f->node, j, IN, -1, OG_I32, n, f->groups, codes, flags);
}

static const float *samples(const th_job *j) {
    return (const float *)(const void *)j->out[OUT].data;
}

/* Decode alone. sizes are chunk lengths, the last one repeats; ends at 0. NULL: one
 * chunk. */
static float *decode(fixture *f, const int32_t *codes, int frames, const int *sizes) {
    th_job j;
    int at = 0, i = 0;
    start(f, &j, 1, frames);
    while (at < frames) {
        int n = sizes ? sizes[i] : frames;
        if (sizes && sizes[i + 1]) i++;
        if (n > frames - at) n = frames - at;
        feed(f, &j, codes + at * f->groups, n,
             (at == 0 ? OG_FIRST : 0) | (at + n == frames ? OG_LAST : 0));
        th_run(f->node, 2000);
        at += n;
    }
    assert_true(j.out[OUT].first && j.out[OUT].last);
    assert_int_equal(j.out[OUT].n, (int64_t)frames * f->spi);
    float *wav = malloc((size_t)frames * (size_t)f->spi * sizeof *wav);
    memcpy(wav, samples(&j), (size_t)frames * (size_t)f->spi * sizeof *wav);
    finish(f, &j);
    return wav;
}

static void assert_same(const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a)) {
            fail_msg("sample %lld: %.9g, not %.9g", (long long)i, (double)b[i],
                     (double)a[i]);
        }
    }
}

static int32_t *golden_codes(const og_weights *g, int *frames) {
    og_tensor t = golden_get(g, "codes");
    int32_t *codes = malloc((size_t)og_tensor_count(&t) * sizeof *codes);
    for (int64_t i = 0; i < og_tensor_count(&t); i++) {
        codes[i] = (int32_t)golden_i64_at(&t, i);
    }
    *frames = (int)t.ne[0];
    return codes;
}

/* ---- against the reference -------------------------------------------------------- */

static void check_golden_wav(fixture *f, const char *name, int frames) {
    char path[128];
    int n;
    snprintf(path, sizeof path, "qwen3_tts/%s/codec_decode_T%d", name, frames);
    og_weights *g = golden_open(path);
    int32_t *codes = golden_codes(g, &n);
    og_tensor wav = golden_get(g, "wav");
    assert_int_equal(n, frames);
    assert_int_equal(golden_i64(g, "wav_len", 0), (int64_t)frames * f->spi);
    float *mine = decode(f, codes, frames, NULL);
    double diff = golden_max_diff(&wav, mine, og_tensor_count(&wav));
    if (!(diff <= TOLERANCE)) fail_msg("%s T %d: off by %g", name, frames, diff);
    free(mine);
    free(codes);
    og_weights_close(g);
}

static void test_equals_the_reference(void **state) {
    (void)state;
    const int frames[] = {1, 2, 7, 30};
    for (int i = 0; i < 2; i++) {
        fixture f;
        open_node(&f, names[i], 2, "12", 2);
        for (int k = 0; k < 4; k++) check_golden_wav(&f, names[i], frames[k]);
        close_node(&f);
    }
}

/* The decode that was not cut every 300 frames, at the frames that were stored. */
static void test_long_decode_never_restarts(void **state) {
    (void)state;
    const int lengths[] = {350, 700};
    for (int i = 0; i < 4; i++) {
        char path[128];
        int n;
        fixture f;
        snprintf(path, sizeof path, "qwen3_tts/%s/codec_decode_T%d", names[i / 2],
                 lengths[i % 2]);
        open_node(&f, names[i / 2], 1, "32", 2);
        og_weights *g = golden_open(path);
        int32_t *codes = golden_codes(g, &n);
        og_tensor want = golden_get(g, "wav_unchunked_frames");
        og_tensor index = golden_get(g, "frame_idx");
        float *mine = decode(&f, codes, n, NULL);
        for (int64_t k = 0; k < index.ne[0]; k++) {
            int64_t frame = golden_i64_at(&index, k);
            og_tensor row = og_tensor_rows(&want, k, 1);
            double diff = golden_max_diff(&row, mine + frame * f.spi, f.spi);
            if (!(diff <= TOLERANCE))
                fail_msg("%s frame %d: off by %g", path, (int)frame, diff);
        }
        free(mine);
        free(codes);
        og_weights_close(g);
        close_node(&f);
    }
}

/* Golden intermediates are [C, T] from the convolutions, [T, C] from the transformer. */
typedef struct tap_case {
    const char *tap, *golden;
    int time_first;
} tap_case;

static const tap_case tap_cases[] = {
    {"code2wav.quant", "tap_quantized", 0},
    {"code2wav.pre_conv", "tap_pre_conv", 0},
    {"code2wav.input_proj", "tap_tr_input_proj", 1},
    {"code2wav.layers.0", "tap_tr_layer0", 1},
    {"code2wav.norm", "tap_tr_norm", 1},
    {"code2wav.pre_transformer", "tap_pre_transformer", 1},
    {"code2wav.upsample.0.0", "tap_up0_convt", 0},
    {"code2wav.upsample.0.1", "tap_up0_convnext", 0},
    {"code2wav.upsample.1.1", "tap_up1_convnext", 0},
    {"code2wav.decoder.0", "tap_dec0", 0},
    {"code2wav.decoder.1.block.0", "tap_dec1_b0", 0},
    {"code2wav.decoder.1.block.1", "tap_dec1_b1", 0},
    {"code2wav.decoder.1.block.2", "tap_dec1_b2", 0},
    {"code2wav.decoder.1.block.4", "tap_dec1", 0},
    {"code2wav.decoder.2.block.4", "tap_dec2", 0},
};
enum { N_TAPS = sizeof tap_cases / sizeof *tap_cases };

typedef struct tap_state {
    og_weights *g;
    int seen[N_TAPS];
} tap_state;

static void on_tap(void *arg, const char *name, const og_tensor *t) {
    tap_state *s = arg;
    for (int i = 0; i < N_TAPS; i++) {
        if (strcmp(name, tap_cases[i].tap)) continue;
        og_tensor want = golden_get(s->g, tap_cases[i].golden);
        int64_t rows = t->ne[0], width = t->ne[1];
        s->seen[i]++;
        assert_int_equal(og_tensor_count(&want), rows * width);
        assert_int_equal(want.ne[tap_cases[i].time_first ? 0 : 1], rows);
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t c = 0; c < width; c++) {
                float mine = ((const float *)t->data)[r * t->stride[0] + c];
                int64_t at = tap_cases[i].time_first ? r * width + c : c * rows + r;
                float d = mine - golden_f32_at(&want, at);
                if (!(d >= -2e-5f && d <= 2e-5f)) {
                    fail_msg("%s row %d channel %d: off by %g", name, (int)r, (int)c,
                             (double)d);
                }
            }
        }
    }
}

static void test_every_layer_equals_the_reference(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        char path[128];
        int n;
        fixture f;
        snprintf(path, sizeof path, "qwen3_tts/%s/codec_decode_T7", names[i]);
        open_node(&f, names[i], 1, "12", 2);
        tap_state s = {.g = golden_open(path)};
        int32_t *codes = golden_codes(s.g, &n);
        og_exec_set_tap(f.env.exec, on_tap, &s);
        free(decode(&f, codes, n, NULL));
        for (int k = 0; k < N_TAPS; k++) assert_int_equal(s.seen[k], 1);
        free(codes);
        og_weights_close(s.g);
        close_node(&f);
    }
}

/* ---- against itself --------------------------------------------------------------- */

static void test_b057_chunked_equals_whole(void **state) {
    (void)state;
    static const int plans[][6] = {
        {1, 2, 4, 8, 12, 0}, {1, 0}, {5, 0}, {3, 17, 1, 0}, {60, 0}};
    for (int i = 0; i < 2; i++) {
        const int frames = 60;
        int32_t codes[60 * OG_VOCODER_MAX_GROUPS];
        fixture f;
        open_node(&f, names[i], 1, "32", 2);
        make_codes(&f, codes, frames, 7);
        float *whole = decode(&f, codes, frames, NULL);
        for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
            float *cut = decode(&f, codes, frames, plans[k]);
            assert_same(whole, cut, (int64_t)frames * f.spi);
            free(cut);
        }
        close_node(&f);
        /* Another bound on a job's share moves every cut, and the ring's pages. */
        open_node(&f, names[i], 3, "5", 2);
        float *fives = decode(&f, codes, frames, NULL);
        assert_same(whole, fives, (int64_t)frames * f.spi);
        free(fives);
        free(whole);
        close_node(&f);
    }
}

static void test_b057_batch_equals_alone(void **state) {
    (void)state;
    enum { N = 8 };
    static const int frames[N] = {1, 3, 40, 7, 12, 25, 2, 33};
    for (int i = 0; i < 2; i++) {
        int32_t codes[N][40 * OG_VOCODER_MAX_GROUPS];
        float *alone[N];
        th_job j[N];
        int fed[N] = {0};
        fixture f;
        open_node(&f, names[i], N, "12", 2);
        for (int k = 0; k < N; k++) {
            make_codes(&f, codes[k], frames[k], 100u + (uint32_t)k);
            alone[k] = decode(&f, codes[k], frames[k], NULL);
        }
        for (int k = N - 1; k >= 0; k--) start(&f, &j[k], k, frames[k]);
        for (int round = 0; round < 12; round++) {
            for (int k = 0; k < N; k++) {
                int n = 1 + (round * 3 + k) % 7;
                if (n > frames[k] - fed[k]) n = frames[k] - fed[k];
                if (n == 0) continue;
                feed(&f, &j[k], codes[k] + fed[k] * f.groups, n, fed[k] ? 0 : OG_FIRST);
                fed[k] += n;
            }
            th_step(f.node, NULL);
        }
        for (int k = 0; k < N; k++) {
            assert_int_equal(fed[k], frames[k]);
            feed(&f, &j[k], NULL, 0, OG_LAST);
        }
        th_run(f.node, 100);
        for (int k = 0; k < N; k++) {
            assert_true(j[k].out[OUT].last);
            assert_int_equal(j[k].out[OUT].n, (int64_t)frames[k] * f.spi);
            assert_same(alone[k], samples(&j[k]), (int64_t)frames[k] * f.spi);
            finish(&f, &j[k]);
            free(alone[k]);
        }
        close_node(&f);
    }
}

static void test_b050_a_reused_slot_is_silent_before_its_first_frame(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const int frames = 20;
        int32_t codes[20 * OG_VOCODER_MAX_GROUPS], other[20 * OG_VOCODER_MAX_GROUPS];
        fixture f;
        th_job j;
        open_node(&f, names[i], 1, "4", 2);
        make_codes(&f, codes, frames, 1);
        make_codes(&f, other, frames, 2);
        float *clean = decode(&f, codes, frames, NULL);
        start(&f, &j, 2, frames);
        feed(&f, &j, other, frames, OG_FIRST);
        th_step(f.node, NULL);
        th_step(f.node, NULL);
        finish(&f, &j); /* in the middle: 12 frames are still queued */
        float *again = decode(&f, codes, frames, NULL);
        assert_same(clean, again, (int64_t)frames * f.spi);
        free(clean);
        free(again);
        close_node(&f);
    }
}

static void test_muted_frames_warm_the_state(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const int frames = 30, warm = 13;
        int32_t codes[30 * OG_VOCODER_MAX_GROUPS];
        fixture f;
        th_job j;
        open_node(&f, names[i], 1, "12", 2);
        make_codes(&f, codes, frames, 5);
        float *whole = decode(&f, codes, frames, NULL);
        start(&f, &j, 1, frames);
        feed(&f, &j, codes, warm, OG_FIRST | OG_MUTE);
        feed(&f, &j, codes + warm * f.groups, frames - warm, 0);
        th_run(f.node, 100);
        feed(&f, &j, NULL, 0, OG_LAST);
        th_run(f.node, 100);
        assert_true(j.out[OUT].last);
        assert_int_equal(j.out[OUT].n, (int64_t)(frames - warm) * f.spi);
        assert_same(whole + warm * f.spi, samples(&j), (int64_t)(frames - warm) * f.spi);
        finish(&f, &j);
        free(whole);
        close_node(&f);
    }
}

/* ---- threads: the pool is the process's, so each count gets a process of its own -- */

enum { THREAD_FRAMES = 25 };

static int write_all(int fd, const void *p, size_t n) {
    const char *at = p;
    while (n > 0) {
        ssize_t k = write(fd, at, n);
        if (k <= 0) return -1;
        at += k;
        n -= (size_t)k;
    }
    return 0;
}

static size_t read_all(int fd, void *p, size_t n) {
    size_t got = 0;
    for (ssize_t k; got < n && (k = read(fd, (char *)p + got, n - got)) > 0;)
        got += (size_t)k;
    return got;
}

/* Decode in a child with so many threads; the samples come back through a pipe. */
static float *decode_in_child(const char *name, const char *be, int threads, size_t *n) {
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int32_t codes[THREAD_FRAMES * OG_VOCODER_MAX_GROUPS];
        fixture f;
        backend = be;
        open_node(&f, name, 2, "12", threads);
        make_codes(&f, codes, THREAD_FRAMES, 9);
        float *wav = decode(&f, codes, THREAD_FRAMES, NULL);
        int rc = write_all(fd[1], wav, (size_t)(THREAD_FRAMES * f.spi) * sizeof *wav);
        _exit(rc < 0 ? 1 : 0);
    }
    close(fd[1]);
    size_t cap = (size_t)THREAD_FRAMES * 1920;
    float *wav = calloc(cap, sizeof *wav);
    *n = read_all(fd[0], wav, cap * sizeof *wav) / sizeof *wav;
    close(fd[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return wav;
}

static void test_threads_change_nothing(void **state) {
    (void)state;
    if (!th_has_backend("cpu")) skip();
    for (int i = 0; i < 2; i++) {
        size_t n1, n2;
        float *one = decode_in_child(names[i], "cpu", 1, &n1);
        float *two = decode_in_child(names[i], "cpu", 2, &n2);
        assert_true(n1 > 0);
        assert_int_equal(n1, n2);
        assert_same(one, two, (int64_t)n1);
        free(one);
        free(two);
    }
}

/* On a device whose memory is not the host's, with recorded steps; a slot is used again. */
static void test_far_device(void **state) {
    (void)state;
    enum { FRAMES = 15, CHUNK = 3 };
    for (int i = 0; i < 2; i++) {
        fixture f;
        int32_t codes[FRAMES * OG_VOCODER_MAX_GROUPS];
        float *wav[3];
        for (int run = 0; run < 3; run++) {
            if (run < 2) {
                backend = run ? "far" : "ref";
                open_node(&f, names[i], 1, "3", 1);
                make_codes(&f, codes, FRAMES, 5);
            }
            far_graph_launches = 0;
            wav[run] = decode(&f, codes, FRAMES, NULL);
            assert_int_equal(far_graph_launches, run == 0 ? 0 : FRAMES / CHUNK - (run == 1));
            if (run != 1) close_node(&f);
        }
        assert_same(wav[0], wav[1], (int64_t)FRAMES * f.spi);
        assert_same(wav[0], wav[2], (int64_t)FRAMES * f.spi);
        for (int run = 0; run < 3; run++) free(wav[run]);
    }
    backend = "ref";
}

/* ---- config and weights ----------------------------------------------------------- */

static const char *const good_config =
    "{\"output_sample_rate\": 24000, \"decode_upsample_rate\": 48, \"decoder_config\": {"
    "\"num_quantizers\": 3, \"codebook_size\": 8, \"codebook_dim\": 4, \"latent_dim\": 6,"
    "\"hidden_size\": 8, \"intermediate_size\": 12, \"num_hidden_layers\": 1,"
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 4,"
    "\"sliding_window\": 3, \"decoder_dim\": 16, \"upsampling_ratios\": [2],"
    "\"upsample_rates\": [4, 6]}}";

static int check_text(const char *text, og_err *err) {
    *err = (og_err)OG_ERR_INIT;
    json_t *root = og_json_parse("config.json", text, strlen(text), 16, err);
    if (!root) fail_msg("%s", err->msg);
    int rc = og_arch_qwen3_tts_code2wav.check(root, err);
    json_decref(root);
    return rc;
}

static void test_config_faults_name_their_key(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *field;
    } cases[] = {
        {"\"num_quantizers\": 3", "\"x\": 3", "decoder_config.num_quantizers"},
        {"\"num_quantizers\": 3", "\"num_quantizers\": 65",
         "decoder_config.num_quantizers"},
        {"\"codebook_size\": 8", "\"codebook_size\": 65537",
         "decoder_config.codebook_size"},
        {"\"codebook_dim\": 4", "\"codebook_dim\": 5", "decoder_config.codebook_dim"},
        {"\"latent_dim\": 6", "\"latent_dim\": \"six\"", "decoder_config.latent_dim"},
        {"\"head_dim\": 4", "\"head_dim\": 3", "decoder_config.head_dim"},
        {"\"num_attention_heads\": 2, \"num_key_value_heads\": 1",
         "\"num_attention_heads\": 3, \"num_key_value_heads\": 2",
         "decoder_config.num_key_value_heads"},
        {"\"sliding_window\": 3", "\"sliding_window\": 0",
         "decoder_config.sliding_window"},
        {"\"sliding_window\": 3", "\"hidden_act\": \"gelu\", \"sliding_window\": 3",
         "decoder_config.hidden_act"},
        {"\"sliding_window\": 3", "\"attention_bias\": true, \"sliding_window\": 3",
         "decoder_config.attention_bias"},
        {"\"decoder_dim\": 16", "\"decoder_dim\": 18", "decoder_config.decoder_dim"},
        {"[2]", "[]", "decoder_config.upsampling_ratios"},
        {"[4, 6]", "[1, 1, 1, 4, 6]", "decoder_config.decoder_dim"},
        {"[2]", "[64, 64, 64]", "decoder_config.upsample_rates"},
        {"\"decode_upsample_rate\": 48", "\"decode_upsample_rate\": 47",
         "decode_upsample_rate"},
        {"\"output_sample_rate\": 24000, ", "", "output_sample_rate"},
    };
    og_err err;
    assert_int_equal(check_text(good_config, &err), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        const char *at = strstr(good_config, cases[i].from);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good_config), good_config,
                 cases[i].to, at + strlen(cases[i].from));
        int rc = check_text(text, &err);
        if (rc >= 0) fail_msg("accepted: %s", cases[i].to);
        assert_string_equal(err.field, cases[i].field);
        assert_non_null(strstr(err.msg, cases[i].field));
    }
}

static void test_plan_and_stats_agree(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture f;
        og_node_plan plan;
        og_node_stats st;
        og_err err = OG_ERR_INIT;
        open_node(&f, names[i], 3, "12", 2);
        assert_int_equal(
            og_kind_vocoder.plan(&og_arch_qwen3_tts_code2wav, &f.node->cfg, &plan, &err),
            0);
        assert_int_equal(plan.rate, 24000);
        assert_int_equal(plan.out_items_per_item[OUT], i == 0 ? 1920 : 960);
        assert_int_equal(plan.out_dtype[OUT], OG_F32);
        f.node->api->stats(f.node, &st);
        assert_int_equal(st.state_bytes, plan.state_bytes);
        /* The plan leaves out biases, norms and snakes. */
        assert_true(st.weight_bytes > plan.weight_bytes * 0.9);
        assert_true(st.weight_bytes < plan.weight_bytes * 1.1);
        close_node(&f);
    }
}

static void test_create_survives_each_failed_allocation(void **state) {
    (void)state;
    fixture f;
    open_node(&f, "tiny-b", 2, "12", 2);
    og_node_cfg cfg = f.node->cfg;
    cfg.options = NULL;
    cfg.n_options = 0;
    long live = og_alloc_live();
    for (long n = 1;; n++) {
        og_err err = OG_ERR_INIT;
        og_node *node = NULL;
        og_alloc_fail_at(n);
        int rc = og_kind_vocoder.api->create(&cfg, &node, &err);
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

int main(void) {
    const struct CMUnitTest once[] = {
        cmocka_unit_test(
            test_threads_change_nothing), /* first: no thread may exist yet */
        cmocka_unit_test(test_far_device),
        cmocka_unit_test(test_config_faults_name_their_key),
        cmocka_unit_test(test_plan_and_stats_agree),
        cmocka_unit_test(test_create_survives_each_failed_allocation),
    };
    /* The plain loops of ref take a second for each second of audio even at tiny sizes.
     */
    const struct CMUnitTest on_ref[] = {
        cmocka_unit_test(test_equals_the_reference),
        cmocka_unit_test(test_every_layer_equals_the_reference),
    };
    const struct CMUnitTest on_cpu[] = {
        cmocka_unit_test(test_equals_the_reference),
        cmocka_unit_test(test_long_decode_never_restarts),
        cmocka_unit_test(test_every_layer_equals_the_reference),
        cmocka_unit_test(test_b057_chunked_equals_whole),
        cmocka_unit_test(test_b057_batch_equals_alone),
        cmocka_unit_test(test_b050_a_reused_slot_is_silent_before_its_first_frame),
        cmocka_unit_test(test_muted_frames_warm_the_state),
    };
    int failed = cmocka_run_group_tests_name("code2wav", once, NULL, NULL);
    failed += cmocka_run_group_tests_name("code2wav on ref", on_ref, NULL, NULL);
    backend = "cpu";
    failed += cmocka_run_group_tests_name("code2wav on cpu", on_cpu, NULL, NULL);
    return failed;
}
