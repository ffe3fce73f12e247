/* A node under test: device, exec, jobs with outputs that collect, chunks with counted
 * releases. It plays the engine: its hooks stand behind og_out and og_job.
 *
 *     th_env env;
 *     th_open(&env, "ref");
 *     og_node *n = ...create with env.exec...
 *     th_plan(&env, n);                                    // measure, reserve scratch
 *     th_job j;
 *     th_job_init(&j, 1, 42);
 *     th_job_out(&j, port, OG_I32, groups, 64);            // collects 64 items at most
 *     assert_int_equal(n->api->admit(n, &j.job, &err), 0);
 *     th_feed_rows(n, &j, prompt_port, recipe, NULL, OG_FIRST | OG_LAST);
 *     th_feed_items(n, &j, codes_port, -1, OG_I32, frames, groups, data, OG_LAST);
 *     th_run(n, 1000);                                     // until IDLE; no allocation
 *     ... j.out[port].n items at j.out[port].data, j.out[port].last ...
 *     n->api->retire(n, &j.job);
 *     th_job_free(&j);
 *     th_close(&env);
 *
 * Outputs use the C library's memory, so that og_alloc_calls() sees the node's alone.
 * Include cmocka.h before this header.
 */
#ifndef OG_TESTS_HARNESS_H
#define OG_TESTS_HARNESS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/alloc.h"
#include "nodes/node.h"

#define TH_UNUSED __attribute__((unused)) static

typedef struct th_out {
    og_out out; /* first: the node's handle */
    og_dtype dtype;
    int64_t width; /* values of one item; items of width 1 are a vector [n] */
    int64_t cap, n, reserved;
    int64_t room; /* items that the client would take now; < 0: as many as fit */
    int first, last, commits;
    char *data;
} th_out;

typedef struct th_job {
    og_job job; /* first */
    th_out out[OG_MAX_PORTS];
    og_err err; /* what failed it; code 0: nothing */
    int stopped;
    int32_t stop_id;
} th_job;

typedef struct th_env {
    og_device *dev;
    og_exec *exec;
} th_env;

/* ---- hooks ---------------------------------------------------------------------- */

TH_UNUSED int64_t th_hook_room(const og_out *o) {
    const th_out *t = (const th_out *)(const void *)o;
    int64_t left = t->cap - t->n;
    return t->room >= 0 && t->room < left ? t->room : left;
}

TH_UNUSED int th_hook_reserve(og_out *o, int64_t n, og_tensor *view) {
    th_out *t = (th_out *)(void *)o;
    if (n > th_hook_room(o)) return OG_EAGAIN;
    size_t item = (size_t)t->width * og_dtype_size(t->dtype);
    char *at = t->data + (size_t)t->n * item;
    t->reserved = n;
    *view = t->width == 1 ? og_tensor_1d(t->dtype, n, at)
                          : og_tensor_2d(t->dtype, n, t->width, at);
    return 0;
}

TH_UNUSED void th_hook_commit(og_out *o, int64_t n, int flags) {
    th_out *t = (th_out *)(void *)o;
    assert_true(n <= t->reserved);
    assert_false(t->last); /* nothing follows LAST */
    assert_int_equal(!!(flags & OG_FIRST), t->commits == 0);
    t->first |= !!(flags & OG_FIRST);
    t->last |= !!(flags & OG_LAST);
    t->n += n;
    if (t->room >= 0) t->room -= n;
    t->reserved = 0;
    t->commits++;
}

TH_UNUSED void th_hook_fail(og_job *job, const og_err *err) {
    th_job *j = (th_job *)(void *)job;
    assert_int_equal(j->err.code, 0); /* the first error ends the job */
    j->err = *err;
}

TH_UNUSED void th_hook_stopped(og_job *job, int32_t stop_id) {
    th_job *j = (th_job *)(void *)job;
    j->stopped++;
    j->stop_id = stop_id;
}

static const og_engine_hooks th_hooks = {th_hook_reserve, th_hook_commit, th_hook_room,
                                         th_hook_fail, th_hook_stopped};

/* ---- device --------------------------------------------------------------------- */

TH_UNUSED int th_has_backend(const char *name) {
    for (const char *const *b = og_device_backends(); *b; b++)
        if (!strcmp(*b, name)) return 1;
    return 0;
}

TH_UNUSED void th_open(th_env *env, const char *backend) {
    og_err err = OG_ERR_INIT;
    if (og_device_open(backend, 0, 2, &env->dev, &err) < 0) fail_msg("%s", err.msg);
    if (og_exec_create(env->dev, 0, &env->exec, &err) < 0) fail_msg("%s", err.msg);
}

/* What the engine does after create: measure, then give the exec its scratch. */
TH_UNUSED void th_plan(th_env *env, og_node *n) {
    og_err err = OG_ERR_INIT;
    if (n->api->measure(n, &err) < 0) fail_msg("measure: %s", err.msg);
    assert_int_equal(og_exec_get_mode(env->exec), OG_RUN);
    if (og_exec_reserve(env->exec, og_exec_peak(env->exec), &err) < 0)
        fail_msg("%s", err.msg);
}

TH_UNUSED void th_close(th_env *env) {
    og_exec_destroy(env->exec);
    og_device_close(env->dev);
    *env = (th_env){0};
}

/* ---- jobs ----------------------------------------------------------------------- */

TH_UNUSED void th_job_init(th_job *j, uint64_t id, uint64_t seed) {
    memset(j, 0, sizeof *j);
    j->job.hooks = &th_hooks;
    j->job.id = id;
    j->job.seed = seed;
    j->job.sampling = (og_sampling)OG_SAMPLING_INIT;
    j->job.head_sampling = (og_sampling)OG_SAMPLING_INIT;
}

/* Greedy in the stage and in its head. */
TH_UNUSED void th_job_greedy(th_job *j) {
    j->job.sampling.temperature = 0;
    j->job.head_sampling.temperature = 0;
}

TH_UNUSED th_out *th_job_out(th_job *j, int port, og_dtype dtype, int64_t width,
                             int64_t cap) {
    assert_true(port >= 0 && port < OG_MAX_PORTS);
    th_out *t = &j->out[port];
    *t = (th_out){.out = {&th_hooks}, .dtype = dtype, .width = width, .cap = cap, .room = -1};
    t->data = calloc((size_t)(cap * width) + 1, og_dtype_size(dtype));
    assert_non_null(t->data);
    j->job.out[port] = &t->out;
    return t;
}

TH_UNUSED void th_job_free(th_job *j) {
    for (int i = 0; i < OG_MAX_PORTS; i++) free(j->out[i].data);
    memset(j, 0, sizeof *j);
}

/* ---- chunks --------------------------------------------------------------------- */

/* Feeds a recipe (its reference goes away with it) and, on `feed` ports, the fill row. */
TH_UNUSED int th_feed_rows_err(og_node *n, th_job *j, int port, og_recipe *rows,
                               og_recipe *fill, int flags, og_err *err) {
    og_chunk c = {.flags = flags, .source = -1, .rows = rows, .fill = fill};
    return n->api->feed(n, &j->job, port, &c, err);
}

TH_UNUSED void th_feed_rows(og_node *n, th_job *j, int port, og_recipe *rows,
                            og_recipe *fill, int flags) {
    og_err err = OG_ERR_INIT;
    if (th_feed_rows_err(n, j, port, rows, fill, flags, &err) < 0) fail_msg("%s", err.msg);
}

typedef struct th_items {
    int *live;
    char data[];
} th_items;

TH_UNUSED void th_release(void *arg) {
    th_items *t = arg;
    if (t->live) --*t->live;
    free(t);
}

/* Feeds a copy of n items. *live (may be NULL) counts chunks that are not yet released. */
TH_UNUSED int th_feed_items_live(og_node *n, th_job *j, int port, int source,
                                 og_dtype dtype, int64_t items, int64_t width,
                                 const void *data, int flags, int *live, og_err *err) {
    size_t bytes = (size_t)(items * width) * og_dtype_size(dtype);
    og_chunk c = {.flags = flags, .source = source};
    if (items) {
        th_items *t = malloc(sizeof *t + bytes);
        assert_non_null(t);
        t->live = live;
        if (live) ++*live;
        memcpy(t->data, data, bytes);
        c.items = width == 1 ? og_tensor_1d(dtype, items, t->data)
                             : og_tensor_2d(dtype, items, width, t->data);
        c.release = th_release;
        c.arg = t;
    }
    return n->api->feed(n, &j->job, port, &c, err);
}

TH_UNUSED void th_feed_items(og_node *n, th_job *j, int port, int source, og_dtype dtype,
                             int64_t items, int64_t width, const void *data, int flags) {
    og_err err = OG_ERR_INIT;
    int rc = th_feed_items_live(n, j, port, source, dtype, items, width, data, flags, NULL,
                                &err);
    if (rc < 0) fail_msg("%s", err.msg);
}

/* ---- steps ---------------------------------------------------------------------- */

/* One step, which must not allocate. Returns the result. */
TH_UNUSED int th_step(og_node *n, og_step_info *info) {
    og_err err = OG_ERR_INIT;
    og_step_info none;
    long before = og_alloc_calls();
    int rc = n->api->step(n, info ? info : &none, &err);
    if (rc < 0) fail_msg("step: %s", err.msg);
    assert_int_equal(og_alloc_calls(), before);
    return rc;
}

/* Steps until IDLE; returns how many steps did work. More than limit fails the test. */
TH_UNUSED int th_run(og_node *n, int limit) {
    int steps = 0;
    while (th_step(n, NULL) != OG_STEP_IDLE)
        if (++steps > limit) fail_msg("no end after %d steps", limit);
    return steps;
}

#endif
