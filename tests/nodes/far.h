/* A device on the host that behaves like a GPU, for tests of nodes: its memory cannot be read
 * or written by the host, work is only queued until somebody waits for it, graphs replay what
 * was recorded with the addresses of then, and whatever an op is given must lie on the device
 * or in pinned memory. The ops are those of the naive backend.
 *
 *     far_open(&env);          // in place of th_open(&env, "ref")
 *     ...
 *     th_close(&env);
 *
 * far_graph_launches counts what was replayed. Include cmocka.h before this header.
 */
#ifndef OG_TESTS_FAR_H
#define OG_TESTS_FAR_H

#include <sys/mman.h>

#include "kernels/exec.h"
#include "tests/support/harness.h"

#define FAR_BYTES ((size_t)1 << 32) /* of address space */
#define FAR_STAGE ((size_t)4 << 20)
#define FAR_PINNED 64

static int far_graph_launches;

typedef enum far_op {
    FAR_COPY, FAR_FILL, FAR_GATHER, FAR_SCATTER, FAR_UNARY, FAR_BINARY, FAR_SCALED_ADD,
    FAR_SNAKE, FAR_CLAMP, FAR_RMS, FAR_LAYER_NORM, FAR_LINEAR, FAR_ROPE, FAR_APPEND,
    FAR_ATTN, FAR_ROW_SUM, FAR_CONV, FAR_DEPTHWISE, FAR_SAMPLE, FAR_DEPTH_PASS, FAR_FETCH,
    FAR_STAGED
} far_op;

typedef struct far_rec {
    far_op op;
    int n_t;
    og_tensor t[14];
    og_tensor *tables; /* of row_sum, own */
    int n_tables;
    og_rows rows;
    og_kv kv;
    og_row_prog prog;
    og_epilogue epi; /* its tensors are t[12] and t[13] */
    og__depth_pass pass;
    const og_sample_row *params;
    float f[2];
    int i[2];
    void *dst, *own;
    const void *src;
    size_t bytes, used;
} far_rec;

typedef struct far_list {
    far_rec *r;
    int n, cap;
} far_list;

struct og_graph {
    far_list list;
};

typedef struct far_device {
    char *base;
    size_t used;
    struct {
        char *p;
        size_t n;
    } pinned[FAR_PINNED];
    int n_pinned;
} far_device;

typedef struct far_exec {
    far_list queue;
    og_graph *recording;
    char *stage, *copy;
    size_t used;
} far_exec;

static far_device *far_of(const og_device *dev) {
    return dev->impl;
}

static void far_touch(og_device *dev, int on) {
    far_device *d = far_of(dev);
    if (mprotect(d->base, d->used + 4096, on ? PROT_READ | PROT_WRITE : PROT_NONE))
        fail_msg("mprotect");
}

/* ---- memory ---------------------------------------------------------------------- */

static int far_alloc(og_device *dev, size_t bytes, void **out, og_err *err) {
    far_device *d = far_of(dev);
    (void)err;
    size_t whole = (bytes + 255) & ~(size_t)255;
    assert_true(d->used + whole + 4096 < FAR_BYTES);
    *out = d->base + d->used;
    d->used += whole;
    return 0;
}

static void far_free(og_device *dev, void *p) {
    assert_true((char *)p >= far_of(dev)->base);
}

static int far_move(og_device *dev, void *dst, const void *src, size_t bytes, og_err *err) {
    (void)err;
    far_touch(dev, 1);
    memcpy(dst, src, bytes);
    far_touch(dev, 0);
    return 0;
}

static int far_alloc_host(og_device *dev, size_t bytes, void **out, og_err *err) {
    far_device *d = far_of(dev);
    (void)err;
    assert_true(d->n_pinned < FAR_PINNED);
    char *p = calloc(1, bytes ? bytes : 1);
    d->pinned[d->n_pinned].p = p;
    d->pinned[d->n_pinned++].n = bytes;
    *out = p;
    return 0;
}

static void far_free_host(og_device *dev, void *p) {
    far_device *d = far_of(dev);
    int i = 0;
    while (i < d->n_pinned && d->pinned[i].p != p) i++;
    assert_true(i < d->n_pinned);
    d->pinned[i] = d->pinned[--d->n_pinned];
    free(p);
}

static int far_is_pinned(const far_device *d, const void *at, size_t bytes) {
    for (int i = 0; i < d->n_pinned; i++)
        if ((const char *)at >= d->pinned[i].p &&
            (const char *)at + bytes <= d->pinned[i].p + d->pinned[i].n)
            return 1;
    return 0;
}

static void far_seen(og_exec *ex, const char *what, const void *at, size_t bytes) {
    const far_device *d = far_of(ex->dev);
    const char *p = at;
    if (!bytes || (p >= d->base && p + bytes <= d->base + d->used)) return;
    if (!far_is_pinned(d, at, bytes))
        fail_msg("%s: %zu bytes are neither on the device nor pinned", what, bytes);
}

static void far_seen_tensor(og_exec *ex, const og_tensor *t) {
    size_t size = og_dtype_size(t->dtype);
    int64_t last = 0;
    if (!t->rank || !og_tensor_count(t)) return;
    for (int i = 0; i < t->rank; i++) last += (t->ne[i] - 1) * t->stride[i];
    far_seen(ex, "tensor", t->data, ((size_t)last + 1) * size);
}

static void far_seen_rows(og_exec *ex, const og_rows *rows) {
    size_t n = (size_t)rows->n, i4 = sizeof(int32_t);
    if (!n) return;
    far_seen(ex, "slot", rows->slot, n * i4);
    if (rows->pos) far_seen(ex, "pos", rows->pos, 3 * n * i4);
    far_seen(ex, "cu", rows->cu, ((size_t)rows->n_seg + 1) * i4);
}

/* ---- the queue ------------------------------------------------------------------- */

static void far_push(far_list *l, const far_rec *r) {
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 256;
        l->r = realloc(l->r, (size_t)l->cap * sizeof *l->r);
    }
    l->r[l->n++] = *r;
}

static void far_check(og_exec *ex, const far_rec *r) {
    for (int i = 0; i < 14; i++) far_seen_tensor(ex, &r->t[i]);
    for (int i = 0; i < r->n_tables; i++) far_seen_tensor(ex, &r->tables[i]);
    far_seen_rows(ex, &r->rows);
    far_seen_tensor(ex, &r->kv.k);
    far_seen_tensor(ex, &r->kv.v);
    if (r->kv.table) far_seen(ex, "page table", r->kv.table, sizeof(int32_t));
    if (r->op == FAR_ROW_SUM) {
        far_seen(ex, "off", r->prog.off, ((size_t)r->t[0].ne[0] + 1) * sizeof(int32_t));
        far_seen(ex, "table", r->prog.table, sizeof(int32_t));
        far_seen(ex, "index", r->prog.index, sizeof(int32_t));
    }
    if (r->params)
        far_seen(ex, "sampling", r->params, (size_t)r->t[1].ne[0] * sizeof *r->params);
    if (r->op == FAR_DEPTH_PASS) {
        far_seen(ex, "slots", r->pass.slots, (size_t)r->pass.n_seq * sizeof(int32_t));
        far_seen(ex, "given", r->pass.given, (size_t)r->pass.n_seq * sizeof *r->pass.given);
    }
}

static int far_play_one(og_exec *ex, far_rec *r) {
    const og__backend *be = &og__backend_ref;
    og_tensor *t = r->t;
    og_kv kv = r->kv;
    og_epilogue epi = r->epi;
    og_row_prog prog = r->prog;
    if (epi.scale) epi.scale = &t[12];
    if (epi.residual) epi.residual = &t[13];
    prog.tables = r->tables;
    switch (r->op) {
    case FAR_COPY: return be->copy(ex, &t[0], &t[1]);
    case FAR_FILL: return be->fill(ex, &t[0], r->f[0]);
    case FAR_GATHER: return be->gather_rows(ex, &t[0], &t[1], &t[2]);
    case FAR_SCATTER: return be->scatter_rows(ex, &t[0], &t[1], &t[2]);
    case FAR_UNARY: return be->unary(ex, &t[0], &t[1], (og_act)r->i[0]);
    case FAR_BINARY: return be->binary(ex, &t[0], &t[1], &t[2], (og_binary)r->i[0]);
    case FAR_SCALED_ADD: return be->scaled_add(ex, &t[0], &t[1], &t[2], &t[3]);
    case FAR_SNAKE: return be->snake(ex, &t[0], &t[1], &t[2], &t[3]);
    case FAR_CLAMP: return be->clamp(ex, &t[0], &t[1], r->f[0], r->f[1]);
    case FAR_RMS: return be->rms_norm(ex, &t[0], &t[1], &t[2], r->f[0]);
    case FAR_LAYER_NORM: return be->layer_norm(ex, &t[0], &t[1], &t[2], &t[3], r->f[0]);
    case FAR_LINEAR:
        return be->linear(ex, r->n_t, &t[0], &t[9], &t[3], r->i[0] ? &t[6] : NULL,
                          r->i[1] ? &epi : NULL);
    case FAR_ROPE: return be->rope_table(ex, &t[0], &t[1], &r->rows, &t[2]);
    case FAR_APPEND:
        return be->qk_norm_rope_append(ex, &t[0], &t[1], &t[2], &t[3], &t[4], r->f[0], &t[5],
                                       &t[6], &r->rows, &kv);
    case FAR_ATTN: return be->attn_paged(ex, &t[0], &t[1], &kv, &r->rows, r->f[0], r->i[0]);
    case FAR_ROW_SUM: return be->row_sum(ex, &t[0], &prog);
    case FAR_CONV:
        return be->conv1d(ex, &t[0], &t[1], &t[2], &t[3], &t[4], &r->rows, r->i[0],
                          r->i[1] ? &epi : NULL);
    case FAR_DEPTHWISE:
        return be->conv1d_depthwise(ex, &t[0], &t[1], &t[2], &t[3], &t[4], &r->rows, r->i[0]);
    case FAR_SAMPLE:
        return be->sample(ex, &t[0], &t[1], r->params, &t[2], &t[3], &t[4]);
    case FAR_DEPTH_PASS: return be->depth_pass(ex, &r->pass);
    case FAR_FETCH: memcpy(r->dst, r->src, r->bytes); return 0;
    case FAR_STAGED: memcpy(r->dst, r->own, r->bytes); return 0;
    }
    return OG_EINTERNAL;
}

/* Do what was queued. */
static int far_sync(og_exec *ex) {
    far_exec *x = ex->impl;
    size_t used = ex->used;
    int rc = 0;
    far_touch(ex->dev, 1);
    for (int i = 0; i < x->queue.n; i++) {
        far_rec *r = &x->queue.r[i];
        ex->used = r->used;
        far_check(ex, r);
        if (rc >= 0) rc = far_play_one(ex, r);
        free(r->own);
    }
    ex->used = used;
    x->queue.n = 0;
    far_touch(ex->dev, 0);
    return rc;
}

static int far_go(og_exec *ex, far_rec *r) {
    far_exec *x = ex->impl;
    r->used = ex->used;
    assert_true(ex->mode == (x->recording ? OG_CAPTURE : OG_RUN));
    far_push(x->recording ? &x->recording->list : &x->queue, r);
    return 0;
}

/* ---- device and exec ------------------------------------------------------------- */

static void far_close(og_device *dev) {
    assert_int_equal(far_of(dev)->n_pinned, 0);
    munmap(far_of(dev)->base, FAR_BYTES);
    free(dev->impl);
}

static int far_exec_open(og_exec *ex, og_err *err) {
    far_exec *x = calloc(1, sizeof *x);
    void *p;
    assert_int_equal(far_alloc(ex->dev, FAR_STAGE, &p, err), 0);
    x->stage = p;
    x->copy = calloc(1, FAR_STAGE);
    ex->impl = x;
    return 0;
}

static void far_exec_close(og_exec *ex) {
    far_exec *x = ex->impl;
    assert_int_equal(far_sync(ex), 0);
    free(x->queue.r);
    free(x->copy);
    free(x);
}

static int far_stage_begin(og_exec *ex) {
    ((far_exec *)ex->impl)->used = 0;
    return 0;
}

static int far_stage(og_exec *ex, const void *host, size_t bytes, const void **dev) {
    far_exec *x = ex->impl;
    *dev = x->stage + x->used;
    assert_true(x->used + bytes + 64 <= FAR_STAGE);
    if (ex->mode == OG_RUN && bytes) memcpy(x->copy + x->used, host, bytes);
    x->used += (bytes + 63) & ~(size_t)63;
    return 0;
}

static int far_stage_end(og_exec *ex) {
    far_exec *x = ex->impl;
    if (ex->mode != OG_RUN) return 0;
    far_rec r = {.op = FAR_STAGED, .dst = x->stage, .bytes = x->used};
    r.own = malloc(x->used + 1);
    memcpy(r.own, x->copy, x->used);
    return far_go(ex, &r);
}

/* To memory that is not pinned a copy waits, and cannot be recorded. */
static int far_fetch(og_exec *ex, void *host, const void *dev, size_t bytes) {
    far_rec r = {.op = FAR_FETCH, .dst = host, .src = dev, .bytes = bytes};
    int pinned = far_is_pinned(far_of(ex->dev), host, bytes);
    if (!pinned) assert_true(ex->mode == OG_RUN);
    int rc = far_go(ex, &r);
    return rc < 0 || pinned ? rc : far_sync(ex);
}

static int far_capture_begin(og_exec *ex) {
    ((far_exec *)ex->impl)->recording = calloc(1, sizeof(og_graph));
    return 0;
}

static int far_capture_end(og_exec *ex, og_graph **out) {
    far_exec *x = ex->impl;
    *out = x->recording;
    x->recording = NULL;
    return 0;
}

static int far_graph_launch(og_exec *ex, og_graph *g) {
    far_exec *x = ex->impl;
    for (int i = 0; i < g->list.n; i++) far_push(&x->queue, &g->list.r[i]);
    far_graph_launches++;
    return 0;
}

static void far_graph_destroy(og_exec *ex, og_graph *g) {
    (void)ex;
    for (int i = 0; i < g->list.n; i++) free(g->list.r[i].tables);
    free(g->list.r);
    free(g);
}

/* ---- ops ------------------------------------------------------------------------- */

#define FAR_MEASURED(call)                                                               \
    if (og__measuring(ex)) return og__backend_ref.call

static int far_t(og_exec *ex, far_op op, const og_tensor *a, const og_tensor *b,
                 const og_tensor *c, const og_tensor *d, float f0, float f1, int i0) {
    far_rec r = {.op = op, .f = {f0, f1}, .i = {i0}};
    const og_tensor *all[4] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if (all[i]) r.t[i] = *all[i];
    return far_go(ex, &r);
}

static int far_copy(og_exec *ex, og_tensor *y, const og_tensor *x) {
    return far_t(ex, FAR_COPY, y, x, NULL, NULL, 0, 0, 0);
}
static int far_fill(og_exec *ex, og_tensor *y, float v) {
    return far_t(ex, FAR_FILL, y, NULL, NULL, NULL, v, 0, 0);
}
static int far_gather(og_exec *ex, og_tensor *y, const og_tensor *t, const og_tensor *ids) {
    return far_t(ex, FAR_GATHER, y, t, ids, NULL, 0, 0, 0);
}
static int far_scatter(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *ids) {
    return far_t(ex, FAR_SCATTER, y, x, ids, NULL, 0, 0, 0);
}
static int far_unary(og_exec *ex, og_tensor *y, const og_tensor *x, og_act act) {
    return far_t(ex, FAR_UNARY, y, x, NULL, NULL, 0, 0, (int)act);
}
static int far_binary(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                      og_binary op) {
    return far_t(ex, FAR_BINARY, y, a, b, NULL, 0, 0, (int)op);
}
static int far_scaled_add(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                          const og_tensor *s) {
    FAR_MEASURED(scaled_add(ex, y, a, b, s));
    return far_t(ex, FAR_SCALED_ADD, y, a, b, s, 0, 0, 0);
}
static int far_snake(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *a,
                     const og_tensor *b) {
    return far_t(ex, FAR_SNAKE, y, x, a, b, 0, 0, 0);
}
static int far_clamp(og_exec *ex, og_tensor *y, const og_tensor *x, float lo, float hi) {
    return far_t(ex, FAR_CLAMP, y, x, NULL, NULL, lo, hi, 0);
}
static int far_rms(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                   float eps) {
    FAR_MEASURED(rms_norm(ex, y, x, w, eps));
    return far_t(ex, FAR_RMS, y, x, w, NULL, eps, 0, 0);
}
static int far_layer_norm(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                          const og_tensor *b, float eps) {
    FAR_MEASURED(layer_norm(ex, y, x, w, b, eps));
    return far_t(ex, FAR_LAYER_NORM, y, x, w, b, eps, 0, 0);
}

static void far_epilogue(far_rec *r, const og_epilogue *epi) {
    if (!epi) return;
    r->i[1] = 1;
    r->epi = *epi;
    if (epi->scale) r->t[12] = *epi->scale;
    if (epi->residual) r->t[13] = *epi->residual;
}

static int far_linear(og_exec *ex, int n, og_tensor *y, const og_tensor *x,
                      const og_tensor *w, const og_tensor *bias, const og_epilogue *epi) {
    FAR_MEASURED(linear(ex, n, y, x, w, bias, epi));
    far_rec r = {.op = FAR_LINEAR, .n_t = n, .i = {bias != NULL}};
    assert_true(n <= 3);
    for (int i = 0; i < n; i++) {
        r.t[i] = y[i];
        r.t[3 + i] = w[i];
        if (bias) r.t[6 + i] = bias[i];
    }
    r.t[9] = *x;
    far_epilogue(&r, epi);
    return far_go(ex, &r);
}

static int far_rope(og_exec *ex, og_tensor *c, og_tensor *s, const og_rows *rows,
                    const og_tensor *freq) {
    far_rec r = {.op = FAR_ROPE, .t = {*c, *s, *freq}, .rows = *rows};
    return far_go(ex, &r);
}

static int far_append(og_exec *ex, og_tensor *q, og_tensor *k, const og_tensor *v,
                      const og_tensor *qn, const og_tensor *kn, float eps,
                      const og_tensor *c, const og_tensor *s, const og_rows *rows, og_kv *kv) {
    FAR_MEASURED(qk_norm_rope_append(ex, q, k, v, qn, kn, eps, c, s, rows, kv));
    far_rec r = {.op = FAR_APPEND, .t = {*q, *k, *v, *qn, *kn, *c, *s}, .f = {eps},
                 .rows = *rows, .kv = *kv};
    return far_go(ex, &r);
}

static int far_attn(og_exec *ex, og_tensor *y, const og_tensor *q, const og_kv *kv,
                    const og_rows *rows, float scale, int window) {
    FAR_MEASURED(attn_paged(ex, y, q, kv, rows, scale, window));
    far_rec r = {.op = FAR_ATTN, .t = {*y, *q}, .f = {scale}, .i = {window}, .rows = *rows,
                 .kv = *kv};
    return far_go(ex, &r);
}

static int far_row_sum(og_exec *ex, og_tensor *y, const og_row_prog *prog) {
    far_exec *x = ex->impl;
    size_t bytes = (size_t)prog->n_tables * sizeof(og_tensor);
    far_rec r = {.op = FAR_ROW_SUM, .t = {*y}, .prog = *prog, .n_tables = prog->n_tables};
    r.tables = malloc(bytes + 1);
    memcpy(r.tables, prog->tables, bytes);
    if (!x->recording) r.own = r.tables; /* freed once it was played */
    return far_go(ex, &r);
}

static int far_conv(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                    const og_tensor *bias, og_tensor *state, const og_rows *rows,
                    int dilation, const og_epilogue *epi) {
    FAR_MEASURED(conv1d(ex, y, x, w, bias, state, rows, dilation, epi));
    far_rec r = {.op = FAR_CONV, .t = {*y, *x, *w}, .i = {dilation}, .rows = *rows};
    if (bias) r.t[3] = *bias;
    if (state) r.t[4] = *state;
    far_epilogue(&r, epi);
    return far_go(ex, &r);
}

static int far_depthwise(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                         const og_tensor *bias, og_tensor *state, const og_rows *rows,
                         int dilation) {
    FAR_MEASURED(conv1d_depthwise(ex, y, x, w, bias, state, rows, dilation));
    far_rec r = {.op = FAR_DEPTHWISE, .t = {*y, *x, *w}, .i = {dilation}, .rows = *rows};
    if (bias) r.t[3] = *bias;
    if (state) r.t[4] = *state;
    return far_go(ex, &r);
}

static int far_sample(og_exec *ex, og_tensor *ids, og_tensor *logits,
                      const og_sample_row *rows, const og_tensor *history,
                      const og_tensor *allowed, const og_tensor *stop) {
    FAR_MEASURED(sample(ex, ids, logits, rows, history, allowed, stop));
    far_rec r = {.op = FAR_SAMPLE, .t = {*ids, *logits}, .params = rows};
    if (history) r.t[2] = *history;
    if (allowed) r.t[3] = *allowed;
    if (stop) r.t[4] = *stop;
    return far_go(ex, &r);
}

static int far_depth_pass(og_exec *ex, const og__depth_pass *pass) {
    far_rec r = {.op = FAR_DEPTH_PASS, .pass = *pass};
    return far_go(ex, &r);
}

static const og__backend far_backend = {
    .name = "far", .place = OG_PLACE_CUDA, .close = far_close, .alloc = far_alloc,
    .free = far_free, .upload = far_move, .download = far_move, .exec_open = far_exec_open,
    .exec_close = far_exec_close, .sync = far_sync, .alloc_host = far_alloc_host,
    .free_host = far_free_host, .stage_begin = far_stage_begin, .stage = far_stage,
    .stage_end = far_stage_end, .fetch = far_fetch, .capture_begin = far_capture_begin,
    .capture_end = far_capture_end, .graph_launch = far_graph_launch,
    .graph_destroy = far_graph_destroy, .copy = far_copy, .fill = far_fill,
    .gather_rows = far_gather, .scatter_rows = far_scatter, .unary = far_unary,
    .binary = far_binary, .scaled_add = far_scaled_add, .snake = far_snake,
    .clamp = far_clamp, .rms_norm = far_rms, .layer_norm = far_layer_norm,
    .linear = far_linear, .rope_table = far_rope, .qk_norm_rope_append = far_append,
    .attn_paged = far_attn, .row_sum = far_row_sum, .conv1d = far_conv,
    .conv1d_depthwise = far_depthwise, .sample = far_sample, .depth_pass = far_depth_pass,
};

static void far_open(th_env *env) {
    og_err err = OG_ERR_INIT;
    far_device *d = calloc(1, sizeof *d);
    d->base = mmap(NULL, FAR_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    assert_true(d->base != MAP_FAILED);
    env->dev = og_calloc(1, sizeof *env->dev);
    assert_non_null(env->dev);
    *env->dev = (og_device){.be = &far_backend, .place = {OG_PLACE_CUDA, 0}, .impl = d};
    if (og_exec_create(env->dev, 0, &env->exec, &err) < 0) fail_msg("%s", err.msg);
}

#endif
