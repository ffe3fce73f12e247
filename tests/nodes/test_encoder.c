/* The encoder kind, over a network of three lines: slots, order, pieces, limits, the cache. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nodes/encoder/enc_cache.h"
#include "nodes/encoder/enc_sha256.h"
#include "nodes/encoder/encoder.h"
#include "tests/support/harness.h"

enum { RATE = 100, PER_OUT = 10, WIDTH = 2, IN = 0, OUT = 1, LEAST = 3 };

/* ---- a network: each item is the sum of its samples and how many there are ----------------- */

typedef struct toy {
    int next; /* the piece that must come */
    const void *clip;
    int log[64], n_log; /* first sample of each clip that was begun */
    int fail;
} toy;

static toy *last_toy;

static int toy_dims(const json_t *section, int seconds, og_encoder_dims *d, og_err *err) {
    (void)section, (void)err;
    *d = (og_encoder_dims){.rate = RATE, .min_items = LEAST,
                           .max_items = (int64_t)RATE * seconds, .items_per_out = PER_OUT,
                           .dtype = OG_F32, .width = WIDTH};
    return 0;
}

static int toy_load(const og_node_cfg *cfg, int seconds, void **net, og_encoder_dims *d,
                    og_err *err) {
    (void)cfg;
    *net = last_toy = og_calloc(1, sizeof(toy));
    if (!*net) return og_err_set(err, OG_ENOMEM, "no memory for a toy");
    return toy_dims(NULL, seconds, d, err);
}

/* A piece for each hundred samples. */
static int toy_pieces(const void *net, int64_t n) {
    (void)net;
    return (int)((n + 99) / 100);
}

static int toy_piece(void *net, og_exec *ex, int i, const og_tensor *x, og_tensor *y) {
    toy *t = net;
    int64_t n = x->ne[0], items = (n + PER_OUT - 1) / PER_OUT;
    *y = og_exec_alloc(ex, OG_F32, 2, (int64_t[]){items, WIDTH});
    if (og_exec_get_mode(ex) == OG_MEASURE) return 0;
    if (t->fail) return t->fail;
    assert_true(i == 0 || (i == t->next && x->data == t->clip));
    if (i == 0) t->log[t->n_log++ % 64] = (int)((const float *)x->data)[0];
    t->clip = x->data;
    t->next = i + 1;
    for (int64_t k = 0; k < items * WIDTH; k++) ((float *)y->data)[k] = 0;
    for (int64_t k = 0; k < n; k++) {
        float *item = (float *)y->data + k / PER_OUT * WIDTH;
        item[0] += ((const float *)x->data)[k];
        item[1] += 1;
    }
    return 0;
}

static const og_encoder_impl toy_impl = {toy_dims, toy_load, og_free, toy_pieces, toy_piece};
static const og_port_desc toy_ports[] = {
    {"audio", OG_PORT_IN | OG_PORT_SAMPLES, "audio[100]?", ""},
    {"sums", OG_PORT_OUT, "hidden[2]", ""},
    {NULL, 0, NULL, NULL},
};
static const og_option_desc toy_options[] = {
    OG_ENCODER_OPTIONS,
    {NULL, OG_OPT_INT, NULL, 0, 0, 0, NULL},
};
static const og_arch toy_arch = {.name = "toy", .kind = OG_KIND_ENCODER, .section = "",
                                 .ports = toy_ports, .options = toy_options,
                                 .impl = &toy_impl};

/* ---- help ---------------------------------------------------------------------------------- */

typedef struct fixture {
    th_env env;
    og_model *model;
    og_node *node;
} fixture;

static void open_node(fixture *f, int seqs, const char *cache) {
    char path[4096];
    og_err err = OG_ERR_INIT;
    th_open(&f->env, "ref");
    snprintf(path, sizeof path, "%s/tests/data/qwen3_tts/tiny-b/base", OG_SOURCE_DIR);
    if (og_model_open(path, &f->model, &err) < 0) fail_msg("%s", err.msg);
    const og_option_value options[] = {{"max_seconds", "5"}, {"cache_bytes", cache}};
    og_node_cfg cfg = {.arch = &toy_arch, .stage = "listener", .model = f->model,
                       .folder = "", .exec = f->env.exec, .max_seqs = seqs,
                       .options = options, .n_options = 2};
    if (og_encoder_api.create(&cfg, &f->node, &err) < 0) fail_msg("%s", err.msg);
    th_plan(&f->env, f->node);
}

static void close_node(fixture *f) {
    f->node->api->destroy(f->node);
    og_model_close(f->model);
    th_close(&f->env);
}

static int64_t items_of(int64_t n) {
    return (n + PER_OUT - 1) / PER_OUT;
}

static int admit(fixture *f, th_job *j, int id, int64_t n) {
    og_err err = OG_ERR_INIT;
    th_job_init(j, (uint64_t)id, 0);
    j->job.max_items = (int32_t)n;
    th_job_out(j, OUT, OG_F32, WIDTH, items_of(n ? n : 5 * RATE));
    int rc = f->node->api->admit(f->node, &j->job, &err);
    if (rc < 0) th_job_free(j);
    return rc;
}

static void start(fixture *f, th_job *j, int id, int64_t n) {
    assert_int_equal(admit(f, j, id, n), 0);
}

static void finish(fixture *f, th_job *j) {
    f->node->api->retire(f->node, &j->job);
    th_job_free(j);
}

/* n samples that begin with `first`. */
static float *samples(int n, int first) {
    static float x[1024];
    for (int i = 0; i < n; i++) x[i] = (float)((first * 7 + i * i) % 50);
    x[0] = (float)first;
    return x;
}

static void feed(fixture *f, th_job *j, const float *x, int64_t n, int flags) {
    th_feed_items(f->node, j, IN, -1, OG_F32, n, 1, x, flags);
}

static void whole(fixture *f, th_job *j, int n, int first) {
    feed(f, j, samples(n, first), n, OG_FIRST | OG_LAST);
}

static void check(const th_job *j, int n, int first) {
    const float *x = samples(n, first), *y = (const float *)(const void *)j->out[OUT].data;
    assert_true(j->out[OUT].first && j->out[OUT].last && j->out[OUT].commits == 1);
    assert_int_equal(j->out[OUT].n, items_of(n));
    for (int64_t k = 0; k < items_of(n); k++) {
        float sum = 0, count = 0;
        for (int64_t i = k * PER_OUT; i < n && i < (k + 1) * PER_OUT; i++)
            sum += x[i], count += 1;
        assert_true(y[k * WIDTH] == sum && y[k * WIDTH + 1] == count);
    }
}

static og_node_stats stats(const fixture *f) {
    og_node_stats st;
    f->node->api->stats(f->node, &st);
    return st;
}

/* ---- clips ------------------------------------------------------------------------------------ */

static void test_a_clip_comes_whole_or_in_chunks(void **state) {
    (void)state;
    fixture f;
    th_job j;
    int live = 0;
    og_err err = OG_ERR_INIT;
    open_node(&f, 2, "0");
    start(&f, &j, 1, 257);
    whole(&f, &j, 257, 3);
    assert_int_equal(th_run(f.node, 10), 3); /* pieces */
    check(&j, 257, 3);
    finish(&f, &j);

    start(&f, &j, 2, 0); /* a length that nobody told */
    for (int at = 0; at < 257; at += 50) {
        int n = at + 50 < 257 ? 50 : 257 - at;
        const float *x = samples(257, 4);
        assert_int_equal(th_feed_items_live(f.node, &j, IN, -1, OG_F32, n, 1, x + at,
                                            at ? 0 : OG_FIRST, &live, &err), 0);
        assert_int_equal(live, 0); /* copied and given back */
        assert_int_equal(th_step(f.node, NULL), OG_STEP_IDLE);
    }
    feed(&f, &j, NULL, 0, OG_LAST);
    th_run(f.node, 10);
    check(&j, 257, 4);
    assert_int_equal(th_step(f.node, NULL), OG_STEP_IDLE);
    finish(&f, &j);
    close_node(&f);
}

static void test_no_audio_is_an_empty_output(void **state) {
    (void)state;
    fixture f;
    th_job j;
    open_node(&f, 1, "10000");
    start(&f, &j, 1, 0);
    feed(&f, &j, NULL, 0, OG_FIRST | OG_LAST);
    th_run(f.node, 3);
    assert_true(j.out[OUT].first && j.out[OUT].last);
    assert_int_equal(j.out[OUT].n, 0);
    assert_int_equal(last_toy->n_log, 0);
    assert_int_equal(stats(&f).cache_hits + stats(&f).cache_misses, 0);
    finish(&f, &j);
    close_node(&f);
}

static void test_clips_take_their_turn(void **state) {
    (void)state;
    fixture f;
    th_job j[3];
    open_node(&f, 3, "0");
    for (int i = 0; i < 3; i++) start(&f, &j[i], i, 250);
    whole(&f, &j[2], 250, 12);
    th_step(f.node, NULL); /* the first piece of job 2 */
    whole(&f, &j[0], 250, 10);
    whole(&f, &j[1], 250, 11);
    th_run(f.node, 20);
    for (int i = 0; i < 3; i++) check(&j[i], 250, 10 + i);
    assert_int_equal(last_toy->log[0], 12);
    assert_int_equal(last_toy->log[1], 10);
    assert_int_equal(last_toy->log[2], 11);
    assert_int_equal(stats(&f).slots_used, 3);
    for (int i = 0; i < 3; i++) finish(&f, &j[i]);
    assert_int_equal(stats(&f).slots_used, 0);
    close_node(&f);
}

static void test_retire_in_the_middle_of_a_clip(void **state) {
    (void)state;
    fixture f;
    th_job j[2];
    open_node(&f, 2, "10000");
    for (int i = 0; i < 2; i++) {
        start(&f, &j[i], i, 300);
        whole(&f, &j[i], 300, 20 + i);
    }
    th_step(f.node, NULL);
    finish(&f, &j[0]);
    th_run(f.node, 10);
    check(&j[1], 300, 21);
    finish(&f, &j[1]);
    start(&f, &j[0], 3, 300); /* what was left unfinished was not kept */
    whole(&f, &j[0], 300, 20);
    th_run(f.node, 10);
    check(&j[0], 300, 20);
    assert_int_equal(stats(&f).cache_hits, 0);
    finish(&f, &j[0]);
    close_node(&f);
}

static void test_b050_a_late_feed_reaches_nobody(void **state) {
    (void)state;
    fixture f;
    th_job old, now;
    og_err err = OG_ERR_INIT;
    open_node(&f, 1, "0");
    start(&f, &old, 1, 100);
    og_job copy = old.job;
    finish(&f, &old);
    start(&f, &now, 2, 100);
    og_chunk c = {.flags = OG_LAST, .source = -1};
    assert_int_equal(f.node->api->feed(f.node, &copy, IN, &c, &err), 0);
    assert_int_equal(th_step(f.node, NULL), OG_STEP_IDLE);
    whole(&f, &now, 100, 5);
    th_run(f.node, 5);
    check(&now, 100, 5);
    finish(&f, &now);
    close_node(&f);
}

static void test_nobody_listens_and_nothing_is_computed(void **state) {
    (void)state;
    fixture f;
    th_job j;
    open_node(&f, 1, "10000");
    start(&f, &j, 1, 100);
    j.job.out[OUT] = NULL;
    whole(&f, &j, 100, 5);
    assert_int_equal(th_step(f.node, NULL), OG_STEP_IDLE);
    assert_int_equal(last_toy->n_log, 0);
    finish(&f, &j);
    close_node(&f);
}

static void test_a_full_client_does_not_hold_up_others(void **state) {
    (void)state;
    fixture f;
    th_job j[2];
    open_node(&f, 2, "0");
    for (int i = 0; i < 2; i++) {
        start(&f, &j[i], i, 100);
        whole(&f, &j[i], 100, 30 + i);
    }
    j[0].out[OUT].room = 9; /* ten items come */
    th_run(f.node, 5);
    check(&j[1], 100, 31);
    assert_int_equal(j[0].out[OUT].commits, 0);
    j[0].out[OUT].room = 10;
    th_run(f.node, 5);
    check(&j[0], 100, 30);
    for (int i = 0; i < 2; i++) finish(&f, &j[i]);
    close_node(&f);
}

/* ---- limits and bad input ------------------------------------------------------------------------ */

static void test_admission(void **state) {
    (void)state;
    fixture f;
    th_job j[2], more;
    open_node(&f, 2, "0");
    assert_int_equal(admit(&f, &more, 1, 501), OG_ELIMIT);
    assert_int_equal(admit(&f, &more, 1, LEAST - 1), OG_ELIMIT);
    for (int i = 0; i < 2; i++) start(&f, &j[i], i, 500);
    assert_int_equal(admit(&f, &more, 9, 10), OG_EBUSY);
    finish(&f, &j[0]);
    start(&f, &more, 9, 10);
    finish(&f, &more);
    finish(&f, &j[1]);
    close_node(&f);
}

/* Feeds and expects a fault that ends this job and leaves the node fit for another. */
static void expect_fault(fixture *f, int64_t admitted, const float *x, int64_t n, int flags,
                         int code, const char *words) {
    th_job j;
    og_err err = OG_ERR_INIT;
    int live = 0;
    start(f, &j, 1, admitted);
    int rc = th_feed_items_live(f->node, &j, IN, -1, OG_F32, n, 1, x, flags, &live, &err);
    assert_int_equal(rc, code);
    assert_string_equal(err.node, "listener");
    if (!strstr(err.msg, words)) fail_msg("'%s' is not in '%s'", words, err.msg);
    assert_int_equal(live, 0);
    assert_int_equal(th_step(f->node, NULL), OG_STEP_IDLE);
    finish(f, &j);
    start(f, &j, 2, 100);
    whole(f, &j, 100, 8);
    th_run(f->node, 5);
    check(&j, 100, 8);
    finish(f, &j);
}

static void test_bad_clips_end_their_job_alone(void **state) {
    (void)state;
    fixture f;
    float x[600] = {0}, bad[20] = {0};
    open_node(&f, 1, "0");
    expect_fault(&f, 0, x, 501, OG_LAST, OG_ELIMIT, "at most 500 (5.000 s)");
    expect_fault(&f, 0, x, 501, 0, OG_ELIMIT, "501 samples (5.010 s at 100 Hz)");
    expect_fault(&f, 100, x, 101, OG_LAST, OG_ELIMIT, "admitted with 100");
    expect_fault(&f, 0, x, LEAST - 1, OG_LAST, OG_ELIMIT, "at least 3 (0.030 s)");
    bad[13] = NAN;
    expect_fault(&f, 20, bad, 20, OG_LAST, OG_EINVAL, "sample 13 of the audio is not a number");
    bad[13] = -INFINITY;
    expect_fault(&f, 20, bad, 20, 0, OG_EINVAL, "sample 13 of the audio is infinite");
    close_node(&f);
}

static void expect_bad_chunk(fixture *f, int port, og_chunk c, int code) {
    th_job j;
    og_err err = OG_ERR_INIT;
    start(f, &j, 1, 100);
    assert_int_equal(f->node->api->feed(f->node, &j.job, port, &c, &err), code);
    assert_true(err.msg[0]);
    finish(f, &j);
}

static void test_bad_chunks(void **state) {
    (void)state;
    fixture f;
    int32_t ints[8] = {0};
    float x[8] = {0};
    og_tensor good = og_tensor_1d(OG_F32, 8, x), far = good;
    far.place.kind = OG_PLACE_CUDA;
    open_node(&f, 1, "0");
    expect_bad_chunk(&f, OUT, (og_chunk){.items = good}, OG_EINVAL);
    expect_bad_chunk(&f, IN, (og_chunk){.items = og_tensor_1d(OG_I32, 8, ints)}, OG_ESHAPE);
    expect_bad_chunk(&f, IN, (og_chunk){.items = og_tensor_2d(OG_F32, 4, 2, x)}, OG_ESHAPE);
    expect_bad_chunk(&f, IN, (og_chunk){.items = far}, OG_EUNSUPPORTED);
    expect_bad_chunk(&f, IN, (og_chunk){.items = good, .drop = 1}, OG_EINVAL);
    expect_bad_chunk(&f, IN, (og_chunk){.items = good, .flags = OG_MUTE}, OG_EINVAL);
    th_job j;
    og_err err = OG_ERR_INIT;
    start(&f, &j, 1, 100);
    whole(&f, &j, 50, 2);
    og_chunk late = {.items = good};
    assert_int_equal(f.node->api->feed(f.node, &j.job, IN, &late, &err), OG_EINVAL);
    assert_int_equal(th_step(f.node, NULL), OG_STEP_IDLE);
    finish(&f, &j);
    close_node(&f);
}

static void test_a_failed_network_loses_the_replica(void **state) {
    (void)state;
    fixture f;
    th_job j;
    og_step_info info;
    og_err err = OG_ERR_INIT;
    open_node(&f, 1, "0");
    start(&f, &j, 1, 100);
    whole(&f, &j, 100, 2);
    last_toy->fail = OG_ENOMEM;
    assert_int_equal(f.node->api->step(f.node, &info, &err), OG_ENOMEM);
    assert_string_equal(err.node, "listener");
    finish(&f, &j);
    close_node(&f);
}

/* ---- cache -------------------------------------------------------------------------------------- */

static void run_one(fixture *f, int n, int first) {
    th_job j;
    start(f, &j, 1, n);
    whole(f, &j, n, first);
    th_run(f->node, 10);
    check(&j, n, first);
    finish(f, &j);
}

static void test_the_same_clip_is_encoded_once(void **state) {
    (void)state;
    fixture f;
    th_job j[2];
    open_node(&f, 2, "20000");
    for (int i = 0; i < 2; i++) start(&f, &j[i], i, 200);
    for (int i = 0; i < 2; i++) whole(&f, &j[i], 200, 40);
    th_run(f.node, 10);
    for (int i = 0; i < 2; i++) check(&j[i], 200, 40);
    for (int i = 0; i < 2; i++) finish(&f, &j[i]);
    assert_int_equal(stats(&f).cache_misses, 1);
    assert_int_equal(stats(&f).cache_hits, 1);
    run_one(&f, 200, 41);
    run_one(&f, 199, 40); /* a clip that begins like the other */
    run_one(&f, 200, 40);
    assert_int_equal(stats(&f).cache_misses, 3);
    assert_int_equal(stats(&f).cache_hits, 2);
    assert_true(stats(&f).cache_bytes <= 20000);
    close_node(&f);
}

static void test_a_cache_of_nothing(void **state) {
    (void)state;
    fixture f;
    open_node(&f, 1, "0");
    run_one(&f, 200, 40);
    run_one(&f, 200, 40);
    assert_int_equal(stats(&f).cache_misses, 2);
    assert_int_equal(stats(&f).cache_bytes, 0);
    close_node(&f);
}

static void key_of(int i, unsigned char key[OG__ENC_KEY]) {
    og__sha256 s;
    og__sha256_init(&s);
    og__sha256_add(&s, &i, sizeof i);
    og__sha256_end(&s, key);
}

static void fill(unsigned char *data, size_t n, int seed) {
    for (size_t i = 0; i < n; i++) data[i] = (unsigned char)(i * 31 + (size_t)seed * 7);
}

static int kept(og__enc_cache *c, int i, size_t bytes) {
    unsigned char key[OG__ENC_KEY], want[9000], got[9000];
    key_of(i, key);
    size_t n = og__enc_cache_find(c, key);
    if (!n) return 0;
    assert_int_equal(n, bytes);
    fill(want, bytes, i);
    og__enc_cache_get(c, key, got);
    assert_memory_equal(got, want, bytes);
    return 1;
}

static void put(og__enc_cache *c, int i, size_t bytes) {
    unsigned char key[OG__ENC_KEY], data[9000];
    key_of(i, key);
    fill(data, bytes, i);
    og__enc_cache_put(c, key, data, bytes);
}

static void test_the_cache_forgets_what_was_not_used_for_longest(void **state) {
    (void)state;
    og__enc_cache *c;
    enum { BOUND = 8 * 1200 };
    assert_int_equal(og__enc_cache_create(BOUND, &c, NULL), 0);
    for (int i = 0; i < 4; i++) put(c, i, 2000); /* two blocks each of eight */
    assert_int_equal(og__enc_cache_entries(c), 4);
    assert_true(og__enc_cache_bytes(c) <= BOUND);
    assert_true(kept(c, 0, 2000)); /* 0 is now the newest, 1 the oldest */
    put(c, 4, 10);
    assert_false(kept(c, 1, 2000));
    assert_true(kept(c, 2, 2000) && kept(c, 3, 2000) && kept(c, 0, 2000) && kept(c, 4, 10));
    put(c, 5, 1024); /* the block that 4 left */
    assert_int_equal(og__enc_cache_entries(c), 5);
    put(c, 6, 8192); /* everything goes */
    assert_int_equal(og__enc_cache_entries(c), 1);
    assert_true(kept(c, 6, 8192));
    put(c, 7, 8193); /* can never fit */
    assert_true(kept(c, 6, 8192) && !kept(c, 7, 8193));
    put(c, 8, 0);
    assert_int_equal(og__enc_cache_entries(c), 1);
    og__enc_cache_destroy(c);
}

static void test_the_cache_under_many_sizes(void **state) {
    (void)state;
    og__enc_cache *c;
    uint32_t seed = 1;
    assert_int_equal(og__enc_cache_create(40000, &c, NULL), 0);
    for (int i = 0; i < 5000; i++) {
        seed = seed * 1664525u + 1013904223u;
        int key = (int)(seed >> 8) % 60;
        size_t bytes = 1 + (size_t)key * 131 % 9000;
        if (!kept(c, key, bytes)) put(c, key, bytes);
        assert_true(kept(c, key, bytes));
        assert_true(og__enc_cache_bytes(c) <= 40000);
    }
    og__enc_cache_destroy(c);
}

static void test_sha256_known_answers(void **state) {
    (void)state;
    static const char *const text[] = {
        "", "abc", "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"};
    static const unsigned char want[3][4] = {
        {0xe3, 0xb0, 0xc4, 0x42}, {0xba, 0x78, 0x16, 0xbf}, {0x24, 0x8d, 0x6a, 0x61}};
    unsigned char out[32], again[32], data[300];
    og__sha256 s;
    for (int i = 0; i < 3; i++) {
        og__sha256_init(&s);
        og__sha256_add(&s, text[i], strlen(text[i]));
        og__sha256_end(&s, out);
        assert_memory_equal(out, want[i], 4);
    }
    assert_int_equal(out[31], 0xc1);
    /* any cut gives the same */
    fill(data, sizeof data, 1);
    og__sha256_init(&s);
    og__sha256_add(&s, data, sizeof data);
    og__sha256_end(&s, out);
    for (size_t step = 1; step < 140; step += 3) {
        og__sha256_init(&s);
        for (size_t at = 0; at < sizeof data; at += step)
            og__sha256_add(&s, data + at, at + step < sizeof data ? step : sizeof data - at);
        og__sha256_end(&s, again);
        assert_memory_equal(out, again, 32);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_clip_comes_whole_or_in_chunks),
        cmocka_unit_test(test_no_audio_is_an_empty_output),
        cmocka_unit_test(test_clips_take_their_turn),
        cmocka_unit_test(test_retire_in_the_middle_of_a_clip),
        cmocka_unit_test(test_b050_a_late_feed_reaches_nobody),
        cmocka_unit_test(test_nobody_listens_and_nothing_is_computed),
        cmocka_unit_test(test_a_full_client_does_not_hold_up_others),
        cmocka_unit_test(test_admission),
        cmocka_unit_test(test_bad_clips_end_their_job_alone),
        cmocka_unit_test(test_bad_chunks),
        cmocka_unit_test(test_a_failed_network_loses_the_replica),
        cmocka_unit_test(test_the_same_clip_is_encoded_once),
        cmocka_unit_test(test_a_cache_of_nothing),
        cmocka_unit_test(test_the_cache_forgets_what_was_not_used_for_longest),
        cmocka_unit_test(test_the_cache_under_many_sizes),
        cmocka_unit_test(test_sha256_known_answers),
    };
    return cmocka_run_group_tests_name("encoder", tests, NULL, NULL);
}
