/* The vocoder kind, over a network of three lines: slots, queues, batching,
 * back-pressure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nodes/vocoder/vocoder.h"
#include "tests/support/harness.h"

enum { GROUPS = 2, SPI = 4, MAX_SLOTS = 16, IN = 0, OUT = 1 };

/* ---- a network: each frame adds its first code to the slot's sum ------------------ */

typedef struct toy {
    float sum[MAX_SLOTS];
    int calls, rows, most_rows, most_seg, fail;
} toy;

static toy *last_toy;

static int toy_dims(const json_t *section, const og_vocoder_limits *lim,
                    og_vocoder_dims *d, og_err *err) {
    (void)section, (void)lim, (void)err;
    *d = (og_vocoder_dims){.groups = GROUPS,
                           .codebook = {16, 8},
                           .samples_per_item = SPI,
                           .rate = 8000,
                           .state_bytes = sizeof(float)};
    return 0;
}

static int toy_load(const og_node_cfg *cfg, const og_vocoder_limits *lim, void **net,
                    og_vocoder_dims *d, og_err *err) {
    (void)cfg;
    assert_true(lim->slots <= MAX_SLOTS);
    *net = last_toy = og_calloc(1, sizeof(toy));
    if (!*net) return og_err_set(err, OG_ENOMEM, "no memory for a toy");
    return toy_dims(NULL, lim, d, err);
}

static int toy_forward(void *net, og_exec *ex, og_tensor *audio, const int32_t *codes,
                       const og_rows *rows) {
    toy *t = net;
    *audio = og_exec_alloc(ex, OG_F32, 1, (int64_t[]){(int64_t)rows->n * SPI});
    if (og_exec_get_mode(ex) == OG_MEASURE) return 0;
    if (t->fail) return t->fail;
    t->calls++;
    t->rows += rows->n;
    if (rows->n > t->most_rows) t->most_rows = rows->n;
    for (int s = 0; s < rows->n_seg; s++) {
        if (rows->cu[s + 1] - rows->cu[s] > t->most_seg) {
            t->most_seg = rows->cu[s + 1] - rows->cu[s];
        }
        for (int r = rows->cu[s]; r < rows->cu[s + 1]; r++) {
            float *sum = &t->sum[rows->slot[r]];
            assert_int_equal(rows->slot[r], rows->slot[rows->cu[s]]);
            *sum += (float)codes[r * GROUPS];
            for (int k = 0; k < SPI; k++) {
                ((float *)audio->data)[r * SPI + k] =
                    *sum * 1000 + (float)rows->pos[3 * r] * 10 + (float)k;
            }
        }
    }
    return 0;
}

static int toy_reset(void *net, og_exec *ex, int slot) {
    (void)ex;
    ((toy *)net)->sum[slot] = 0;
    return 0;
}

static const og_vocoder_impl toy_impl = {toy_dims, toy_load, og_free, toy_forward,
                                         toy_reset};
static const og_port_desc toy_ports[] = {
    {"codes", OG_PORT_IN | OG_PORT_STREAM, "codes[2]", ""},
    {"audio", OG_PORT_OUT | OG_PORT_STREAM | OG_PORT_SAMPLES, "audio[8000]", ""},
    {NULL, 0, NULL, NULL},
};
static const og_option_desc toy_options[] = {
    OG_VOCODER_OPTIONS,
    {NULL, OG_OPT_INT, NULL, 0, 0, 0, NULL},
};
static const og_arch toy_arch = {.name = "toy",
                                 .kind = OG_KIND_VOCODER,
                                 .section = "",
                                 .ports = toy_ports,
                                 .options = toy_options,
                                 .impl = &toy_impl};

/* ---- help ------------------------------------------------------------------------- */

typedef struct fixture {
    th_env env;
    og_node *node;
    toy *net;
} fixture;

static const og_option_value small[] = {{"max_chunk_frames", "4"},
                                        {"max_step_frames", "8"}};

static og_node_cfg cfg_of(og_exec *ex, int seqs) {
    return (og_node_cfg){.arch = &toy_arch,
                         .stage = "wave",
                         .exec = ex,
                         .max_seqs = seqs,
                         .max_model_len = 40,
                         .max_batched_tokens = 64,
                         .options = small,
                         .n_options = 2};
}

static void open_node(fixture *f, int seqs) {
    og_err err = OG_ERR_INIT;
    th_open(&f->env, "ref");
    og_node_cfg cfg = cfg_of(f->env.exec, seqs);
    if (og_kind_vocoder.api->create(&cfg, &f->node, &err) < 0) fail_msg("%s", err.msg);
    th_plan(&f->env, f->node);
    f->net = last_toy;
}

static void close_node(fixture *f) {
    f->node->api->destroy(f->node);
    th_close(&f->env);
}

static void start(fixture *f, th_job *j, int id, int frames) {
    og_err err = OG_ERR_INIT;
    th_job_init(j, (uint64_t)id, 0);
    j->job.max_items = frames;
    th_job_out(j, OUT, OG_F32, 1, 40 * SPI);
    if (f->node->api->admit(f->node, &j->job, &err) < 0) fail_msg("%s", err.msg);
}

static void finish(fixture *f, th_job *j) {
    f->node->api->retire(f->node, &j->job);
    th_job_free(j);
}

/* n frames whose first code is `code`, the second 0. */
static void feed(fixture *f, th_job *j, int n, int code, int flags, int drop) {
    int32_t codes[40 * GROUPS] = {0};
    og_err err = OG_ERR_INIT;
    for (int i = 0; i < n; i++) codes[i * GROUPS] = code;
    og_chunk c = {.flags = flags, .source = -1, .drop = drop};
    if (n) c.items = og_tensor_2d(OG_I32, n, GROUPS, codes);
    if (f->node->api->feed(f->node, &j->job, IN, &c, &err) < 0) fail_msg("%s", err.msg);
    memset(codes, 0xee, sizeof codes); /* the node must have its own copy */
}

static int feed_bad(fixture *f, th_job *j, int port, og_tensor items, og_err *err) {
    og_chunk c = {.source = -1, .items = items};
    *err = (og_err)OG_ERR_INIT;
    return f->node->api->feed(f->node, &j->job, port, &c, err);
}

/* Sample k of frame `at` when each frame so far had first code `code`. */
static float expect(int at, int k, int code) {
    return (float)((at + 1) * code * 1000 + at * 10 + k);
}

static void check_samples(const th_job *j, int64_t from, int64_t n, int code) {
    const float *x = (const float *)(const void *)j->out[OUT].data;
    assert_int_equal(j->out[OUT].n, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = from + i;
        assert_true(x[i] == expect((int)(at / SPI), (int)(at % SPI), code));
    }
}

/* ---- tests ------------------------------------------------------------------------ */

static void test_streams_chunks_with_flags(void **state) {
    (void)state;
    fixture f;
    th_job j;
    open_node(&f, 2);
    start(&f, &j, 1, 30);
    assert_int_equal(th_step(f.node, NULL), OG_STEP_IDLE);
    feed(&f, &j, 1, 3, OG_FIRST, 0);
    assert_int_equal(th_run(f.node, 9), 1);
    assert_true(j.out[OUT].first);
    assert_false(j.out[OUT].last);
    check_samples(&j, 0, SPI, 3);
    feed(&f, &j, 2, 3, 0, 0);
    feed(&f, &j, 6, 3, 0, 0);
    feed(&f, &j, 1, 3, OG_LAST, 0);
    assert_int_equal(th_run(f.node, 9), 3); /* 9 frames, at most 4 of a job in a step */
    assert_true(j.out[OUT].last);
    check_samples(&j, 0, 10 * SPI, 3);
    assert_int_equal(f.net->most_seg, 4);
    finish(&f, &j);
    close_node(&f);
}

static void test_last_without_frames_closes_the_output(void **state) {
    (void)state;
    fixture f;
    th_job a, b;
    open_node(&f, 2);
    start(&f, &a, 1, 4);
    start(&f, &b, 2, 4);
    feed(&f, &a, 2, 1, OG_FIRST, 0);
    th_run(f.node, 9);
    feed(&f, &a, 0, 0, OG_LAST, 0);
    feed(&f, &b, 0, 0, OG_FIRST | OG_LAST, 0);
    int calls = f.net->calls;
    assert_int_equal(th_run(f.node, 9), 1);
    assert_int_equal(f.net->calls, calls);
    assert_true(a.out[OUT].last && b.out[OUT].first && b.out[OUT].last);
    assert_int_equal(a.out[OUT].n, 2 * SPI);
    assert_int_equal(b.out[OUT].n, 0);
    finish(&f, &a);
    finish(&f, &b);
    close_node(&f);
}

static void test_mute_warms_and_hands_nothing_on(void **state) {
    (void)state;
    fixture f;
    th_job j;
    open_node(&f, 2);
    start(&f, &j, 1, 30);
    feed(&f, &j, 6, 2, OG_FIRST | OG_MUTE, 0);
    th_run(f.node, 9);
    assert_int_equal(j.out[OUT].commits, 0);
    feed(&f, &j, 3, 2, 0, 0);
    th_run(f.node, 9);
    assert_true(j.out[OUT].first);
    check_samples(&j, 6 * SPI, 3 * SPI, 2);
    /* Muted to the end: the output still closes. */
    feed(&f, &j, 1, 2, OG_MUTE | OG_LAST, 0);
    th_run(f.node, 9);
    assert_true(j.out[OUT].last);
    assert_int_equal(j.out[OUT].n, 3 * SPI);
    finish(&f, &j);
    close_node(&f);
}

static void test_drop_leaves_out_the_first_samples(void **state) {
    (void)state;
    fixture f;
    th_job j;
    open_node(&f, 2);
    start(&f, &j, 1, 30);
    feed(&f, &j, 1, 2, OG_FIRST | OG_MUTE, 0);
    feed(&f, &j, 3, 2, 0, 2 * SPI + 1);
    feed(&f, &j, 1, 2, OG_LAST, 0);
    th_run(f.node, 9);
    check_samples(&j, SPI + 2 * SPI + 1, 4 * SPI - 2 * SPI - 1, 2);
    assert_true(j.out[OUT].first && j.out[OUT].last);
    finish(&f, &j);
    close_node(&f);
}

static void test_a_full_client_stops_only_its_own_job(void **state) {
    (void)state;
    fixture f;
    th_job slow, fast;
    open_node(&f, 2);
    start(&f, &slow, 1, 30);
    start(&f, &fast, 2, 30);
    slow.out[OUT].room = 2 * SPI + 3;
    feed(&f, &slow, 5, 1, OG_FIRST, 0);
    feed(&f, &fast, 5, 1, OG_FIRST | OG_LAST, 0);
    th_run(f.node, 9);
    check_samples(&slow, 0, 2 * SPI, 1);
    check_samples(&fast, 0, 5 * SPI, 1);
    assert_int_equal(th_step(f.node, NULL), OG_STEP_IDLE);
    slow.out[OUT].room = -1;
    feed(&f, &slow, 0, 0, OG_LAST, 0);
    th_run(f.node, 9);
    check_samples(&slow, 0, 5 * SPI, 1);
    assert_true(slow.out[OUT].last);
    finish(&f, &slow);
    finish(&f, &fast);
    close_node(&f);
}

static void test_steps_are_dealt_in_turn(void **state) {
    (void)state;
    fixture f;
    th_job j[4];
    og_step_info info;
    open_node(&f, 4);
    for (int i = 0; i < 4; i++) {
        start(&f, &j[i], i, 30);
        feed(&f, &j[i], 12, i + 1, OG_FIRST | OG_LAST, 0);
    }
    for (int step = 0; step < 6; step++) {
        assert_int_equal(th_step(f.node, &info), OG_STEP_WORK);
        assert_int_equal(info.jobs, 2);
        assert_int_equal(info.rows, 8);
        for (int i = 0; i < 4; i++) {
            int turns = step / 2 + (i < 2 || step % 2 ? 1 : 0);
            assert_int_equal(j[i].out[OUT].n, turns * 4 * SPI);
        }
    }
    assert_int_equal(th_step(f.node, &info), OG_STEP_IDLE);
    assert_int_equal(info.jobs, 0);
    assert_int_equal(f.net->most_rows, 8);
    for (int i = 0; i < 4; i++) {
        check_samples(&j[i], 0, 12 * SPI, i + 1);
        finish(&f, &j[i]);
    }
    close_node(&f);
}

static void test_bad_codes_fail_their_job(void **state) {
    (void)state;
    fixture f;
    th_job bad, good;
    og_err err;
    int32_t codes[3][GROUPS] = {{15, 7}, {0, 8}, {0, 0}};
    open_node(&f, 2);
    start(&f, &bad, 1, 30);
    start(&f, &good, 2, 30);
    feed(&f, &good, 2, 5, OG_FIRST | OG_LAST, 0);
    feed(&f, &bad, 2, 5, OG_FIRST, 0);
    assert_int_equal(feed_bad(&f, &bad, IN, og_tensor_2d(OG_I32, 3, GROUPS, codes), &err),
                     OG_EINVAL);
    assert_string_equal(err.msg,
                        "code 8 of group 1 in frame 3 is outside its codebook of 8");
    assert_string_equal(err.node, "wave");
    th_run(f.node, 9);
    assert_int_equal(bad.out[OUT].n, 0);
    check_samples(&good, 0, 2 * SPI, 5);
    /* What still comes for a failed job is let go. */
    assert_int_equal(feed_bad(&f, &bad, IN, og_tensor_2d(OG_I32, 1, GROUPS, codes), &err),
                     0);
    finish(&f, &bad);
    finish(&f, &good);
    start(&f, &bad, 3, 30);
    codes[0][0] = -1;
    assert_int_equal(feed_bad(&f, &bad, IN, og_tensor_2d(OG_I32, 1, GROUPS, codes), &err),
                     OG_EINVAL);
    assert_string_equal(err.msg,
                        "code -1 of group 0 in frame 0 is outside its codebook of 16");
    finish(&f, &bad);
    close_node(&f);
}

static void test_malformed_chunks_are_refused(void **state) {
    (void)state;
    fixture f;
    og_err err;
    int64_t codes[64] = {0};
    const struct {
        int port;
        og_tensor items;
        int code;
    } cases[] = {
        {IN, og_tensor_2d(OG_I32, 2, 3, codes), OG_ESHAPE},
        {IN, og_tensor_1d(OG_I32, 2, codes), OG_ESHAPE},
        {IN, og_tensor_2d(OG_F32, 2, GROUPS, codes), OG_ESHAPE},
        {OUT, og_tensor_2d(OG_I32, 2, GROUPS, codes), OG_EINVAL},
        {IN, og_tensor_2d(OG_I32, 5, GROUPS, codes), OG_ELIMIT},
    };
    open_node(&f, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        th_job j;
        start(&f, &j, 1, 4);
        assert_int_equal(feed_bad(&f, &j, cases[i].port, cases[i].items, &err),
                         cases[i].code);
        assert_true(err.msg[0]);
        finish(&f, &j);
    }
    th_job j;
    start(&f, &j, 1, 4);
    feed(&f, &j, 1, 1, OG_LAST, 0);
    assert_int_equal(feed_bad(&f, &j, IN, og_tensor_2d(OG_I32, 1, GROUPS, codes), &err),
                     OG_EINVAL);
    finish(&f, &j);
    close_node(&f);
}

static void test_i64_and_strided_codes_are_taken(void **state) {
    (void)state;
    fixture f;
    th_job j;
    og_err err;
    int64_t codes[GROUPS][3] = {{7, 7, 7}, {1, 2, 3}}; /* groups outermost */
    og_tensor t = og_tensor_2d(OG_I64, 3, GROUPS, codes);
    t.stride[0] = 1;
    t.stride[1] = 3;
    open_node(&f, 1);
    start(&f, &j, 1, 4);
    assert_int_equal(feed_bad(&f, &j, IN, t, &err), 0);
    th_run(f.node, 9);
    check_samples(&j, 0, 3 * SPI, 7);
    finish(&f, &j);
    close_node(&f);
}

static void test_admission_has_limits(void **state) {
    (void)state;
    fixture f;
    th_job a, b;
    og_err err = OG_ERR_INIT;
    open_node(&f, 1);
    th_job_init(&a, 1, 0);
    a.job.max_items = 41;
    assert_int_equal(f.node->api->fits(f.node, &a.job, &err), OG_ELIMIT);
    assert_non_null(strstr(err.msg, "41"));
    assert_non_null(strstr(err.msg, "40"));
    start(&f, &a, 1, 40);
    th_job_init(&b, 2, 0);
    err = (og_err)OG_ERR_INIT;
    assert_int_equal(f.node->api->admit(f.node, &b.job, &err), OG_EBUSY);
    finish(&f, &a);
    start(&f, &b, 2, 0); /* nothing promised: the node's own limit */
    feed(&f, &b, 40, 1, OG_LAST, 0);
    th_run(f.node, 20);
    check_samples(&b, 0, 40 * SPI, 1);
    finish(&f, &b);
    close_node(&f);
}

static void test_b050_a_slot_is_clean_after_retire(void **state) {
    (void)state;
    fixture f;
    th_job j;
    open_node(&f, 1);
    start(&f, &j, 1, 30);
    feed(&f, &j, 9, 5, OG_FIRST, 0);
    th_step(f.node, NULL); /* 5 frames are still queued */
    finish(&f, &j);
    start(&f, &j, 2, 30);
    assert_int_equal(th_step(f.node, NULL), OG_STEP_IDLE);
    feed(&f, &j, 3, 2, OG_FIRST | OG_LAST, 0);
    th_run(f.node, 9);
    check_samples(&j, 0, 3 * SPI, 2);
    finish(&f, &j);
    close_node(&f);
}

static void test_b048_what_comes_late_is_dropped(void **state) {
    (void)state;
    fixture f;
    th_job late, j;
    og_err err = OG_ERR_INIT;
    int live = 0;
    int32_t codes[GROUPS] = {1, 1};
    open_node(&f, 1);
    start(&f, &late, 1, 30);
    og_job ghost = late.job;
    f.node->api->retire(f.node, &late.job);
    f.node->api->retire(f.node, &late.job); /* idempotent */
    assert_int_equal(th_feed_items_live(f.node, &late, IN, -1, OG_I32, 1, GROUPS, codes,
                                        0, &live, &err),
                     0);
    start(&f, &j, 2, 30);
    /* The same slot, an older generation: neither fed nor retired by it. */
    og_chunk c = {.items = og_tensor_2d(OG_I32, 1, GROUPS, codes)};
    assert_int_equal(f.node->api->feed(f.node, &ghost, IN, &c, &err), 0);
    f.node->api->retire(f.node, &ghost);
    assert_int_equal(th_step(f.node, NULL), OG_STEP_IDLE);
    assert_int_equal(th_feed_items_live(f.node, &j, IN, -1, OG_I32, 1, GROUPS, codes,
                                        OG_LAST, &live, &err),
                     0);
    assert_int_equal(live, 0); /* copied, so given back at once */
    th_run(f.node, 9);
    check_samples(&j, 0, SPI, 1);
    finish(&f, &j);
    th_job_free(&late);
    close_node(&f);
}

static void test_nobody_listens_nothing_is_computed(void **state) {
    (void)state;
    fixture f;
    th_job j;
    open_node(&f, 1);
    start(&f, &j, 1, 30);
    j.job.out[OUT] = NULL;
    feed(&f, &j, 9, 5, OG_FIRST | OG_LAST, 0);
    assert_int_equal(th_step(f.node, NULL), OG_STEP_IDLE);
    assert_int_equal(f.net->calls, 0);
    finish(&f, &j);
    close_node(&f);
}

static void test_a_lost_device_is_the_steps_error(void **state) {
    (void)state;
    fixture f;
    th_job j;
    og_step_info info;
    og_err err = OG_ERR_INIT;
    open_node(&f, 1);
    start(&f, &j, 1, 30);
    feed(&f, &j, 1, 5, OG_FIRST, 0);
    f.net->fail = OG_EDEVICE;
    assert_int_equal(f.node->api->step(f.node, &info, &err), OG_EDEVICE);
    assert_string_equal(err.node, "wave");
    finish(&f, &j);
    close_node(&f);
}

static void test_stats_count(void **state) {
    (void)state;
    fixture f;
    th_job j;
    og_node_stats st;
    open_node(&f, 3);
    start(&f, &j, 1, 30);
    feed(&f, &j, 6, 5, OG_FIRST, 0);
    th_run(f.node, 9);
    f.node->api->stats(f.node, &st);
    assert_int_equal(st.slots, 3);
    assert_int_equal(st.slots_used, 1);
    assert_int_equal(st.steps, 2);
    assert_int_equal(st.rows, 6);
    assert_int_equal(st.state_bytes, 3 * sizeof(float));
    finish(&f, &j);
    f.node->api->stats(f.node, &st);
    assert_int_equal(st.slots_used, 0);
    close_node(&f);
}

static void test_create_survives_each_failed_allocation(void **state) {
    (void)state;
    th_env env;
    th_open(&env, "ref");
    og_node_cfg cfg = cfg_of(env.exec, 3);
    long live = og_alloc_live();
    for (long n = 1;; n++) {
        og_err err = OG_ERR_INIT;
        og_node *node = NULL;
        og_alloc_fail_at(n);
        int rc = og_kind_vocoder.api->create(&cfg, &node, &err);
        int hit = og_alloc_failed();
        og_alloc_fail_at(0);
        if (!hit) {
            assert_int_equal(rc, 0);
            node->api->destroy(node);
            break;
        }
        assert_int_equal(rc, OG_ENOMEM);
        assert_null(node);
        assert_int_equal(og_alloc_live(), live);
    }
    cfg.max_seqs = 0;
    og_node *node = NULL;
    og_err err = OG_ERR_INIT;
    assert_int_equal(og_kind_vocoder.api->create(&cfg, &node, &err), OG_EINVAL);
    assert_non_null(strstr(err.msg, "max_num_seqs"));
    th_close(&env);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_chunks_with_flags),
        cmocka_unit_test(test_last_without_frames_closes_the_output),
        cmocka_unit_test(test_mute_warms_and_hands_nothing_on),
        cmocka_unit_test(test_drop_leaves_out_the_first_samples),
        cmocka_unit_test(test_a_full_client_stops_only_its_own_job),
        cmocka_unit_test(test_steps_are_dealt_in_turn),
        cmocka_unit_test(test_bad_codes_fail_their_job),
        cmocka_unit_test(test_malformed_chunks_are_refused),
        cmocka_unit_test(test_i64_and_strided_codes_are_taken),
        cmocka_unit_test(test_admission_has_limits),
        cmocka_unit_test(test_b050_a_slot_is_clean_after_retire),
        cmocka_unit_test(test_b048_what_comes_late_is_dropped),
        cmocka_unit_test(test_nobody_listens_nothing_is_computed),
        cmocka_unit_test(test_a_lost_device_is_the_steps_error),
        cmocka_unit_test(test_stats_count),
        cmocka_unit_test(test_create_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
