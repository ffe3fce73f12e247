/* The ops of one step. Sizes and arguments stand in ctl; in MEASURE mode the same calls
 * count scratch. Each function gives its scratch back, but for what it returns. */
#include "nodes/ar/ar_node.h"

/* Bytes of a page table that travel with each step; ops read a larger one over the bus. */
#define STAGE_TABLE ((size_t)256 << 10)

static og_exec *exec_of(const ar_node *n) {
    return n->node.cfg.exec;
}

static og_tensor on(const ar_node *n, og_tensor t) {
    return og_place_on(exec_of(n), t);
}

static og_tensor all_states(const ar_node *n) {
    return on(n, og_tensor_2d(OG_F32, n->n_slots, n->d.hidden, n->state));
}

static og_tensor all_feed_rows(const ar_node *n) {
    int64_t rows = (int64_t)n->n_slots * (AR_FEED_WINDOW + 1);
    return on(n, og_tensor_2d(OG_F32, rows, n->d.hidden, n->feed_rows));
}

/* ---- stage ----------------------------------------------------------------------- */

static void *staged(ar_node *n, const void *host, size_t bytes, int *rc) {
    const void *at = NULL;
    if (*rc >= 0) *rc = og_exec_stage(exec_of(n), host, bytes, &at);
    return (void *)(uintptr_t)at;
}

static void *staged_i32(ar_node *n, const int32_t *host, int64_t count, int *rc) {
    return staged(n, host, (size_t)count * sizeof *host, rc);
}

int og__ar_stage(ar_node *n) {
    const ar_ctl *c = &n->ctl;
    ar_ctl *d = &n->seen;
    size_t emit = (size_t)c->n_emit;
    int rc = og_exec_stage_begin(exec_of(n));
    if (rc < 0) return rc;
    *d = *c;
    d->slot = staged_i32(n, c->slot, c->n_rows, &rc);
    d->pos = staged_i32(n, c->pos, 3 * (int64_t)c->n_rows, &rc);
    d->cu = staged_i32(n, c->cu, c->n_seg + 1, &rc);
    d->keep = staged_i32(n, c->keep, c->n_rows, &rc);
    d->last = staged_i32(n, c->last, (int64_t)c->n_decode * n->d.groups, &rc);
    d->add_off = staged_i32(n, c->add_off, c->n_decode + 1, &rc);
    d->add_table = staged_i32(n, c->add_table, 2 * (int64_t)c->n_decode, &rc);
    d->add_index = staged_i32(n, c->add_index, 2 * (int64_t)c->n_decode, &rc);
    d->emit_slot = staged_i32(n, c->emit_slot, c->n_emit, &rc);
    d->stop = staged_i32(n, c->stop, (int64_t)c->n_emit * OG_MAX_STOP_IDS, &rc);
    d->emit_row = staged(n, c->emit_row, emit * sizeof *c->emit_row, &rc);
    d->head_row = staged(n, c->head_row, emit * sizeof *c->head_row, &rc);
    if (n->pool.table_bytes <= STAGE_TABLE)
        og__ar_pool_show(&n->pool, staged(n, n->pool.table, n->pool.table_bytes, &rc));
    int ended = og_exec_stage_end(exec_of(n));
    return rc < 0 ? rc : ended;
}

/* ---- rows ------------------------------------------------------------------------ */

int og__ar_run_feed(ar_node *n) {
    og_exec *ex = exec_of(n);
    ar_batch *b = &n->feed_batch;
    if (!b->n_rows) return 0;
    size_t mark = og_exec_mark(ex);
    og_tensor y = og_exec_alloc(ex, OG_F32, 2, (int64_t[]){b->n_rows, n->d.hidden});
    og_tensor store = all_feed_rows(n);
    og_tensor at = on(n, og_tensor_1d(OG_I32, b->n_rows, n->ctl.feed_at));
    int rc = og__ar_batch_run(n, b, &y);
    if (!rc) rc = og_op_scatter_rows(ex, &store, &y, &at);
    og_exec_release(ex, mark);
    return rc;
}

/* x [n_decode, hidden] = feedback(last frames) + the feed rows that add_* names. */
static int run_feedback(ar_node *n, og_tensor *x) {
    og_exec *ex = exec_of(n);
    const ar_ctl *c = &n->seen;
    og_tensor codes = on(n, og_tensor_2d(OG_I32, c->n_decode, n->d.groups, c->last));
    if (n->port_feed < 0) return n->impl->feedback(n->model, ex, x, &codes);
    og_tensor t[2] = {og_exec_alloc(ex, OG_F32, 2, x->ne), all_feed_rows(n)};
    int rc = n->impl->feedback(n->model, ex, &t[0], &codes);
    if (rc < 0) return rc;
    return og_op_row_sum(ex, x, &(og_row_prog){t, 2, c->add_off, c->add_table, c->add_index});
}

int og__ar_run_stack(ar_node *n) {
    og_exec *ex = exec_of(n);
    const ar_ctl *c = &n->seen;
    if (!c->n_rows) return 0;
    size_t mark = og_exec_mark(ex);
    og_tensor x = og_exec_alloc(ex, OG_F32, 2, (int64_t[]){c->n_rows, n->d.hidden});
    og_tensor fed = og_tensor_rows(&x, 0, c->n_decode);
    og_tensor prompt = og_tensor_rows(&x, c->n_decode, c->n_rows - c->n_decode);
    og_tensor keep = on(n, og_tensor_1d(OG_I32, c->n_rows, c->keep)), state = all_states(n);
    og_rows rows = {c->n_rows, c->n_seg, c->slot, c->pos, c->cu};
    int rc = 0;
    if (c->n_decode) rc = run_feedback(n, &fed);
    if (!rc && c->n_rows > c->n_decode) rc = og__ar_batch_run(n, &n->prompt_batch, &prompt);
    if (!rc) {
        og_tap(ex, &x, "%s.rows", n->node.cfg.stage);
        rc = n->impl->stack(n->model, ex, &x, n->pool.layers, &rows);
    }
    if (!rc) rc = og_op_scatter_rows(ex, &state, &x, &keep);
    og_exec_release(ex, mark);
    return rc;
}

/* y [count, hidden] = states of the slots. */
static int gather_states(ar_node *n, og_tensor *y, int32_t *slots, int count) {
    og_exec *ex = exec_of(n);
    og_tensor ids = on(n, og_tensor_1d(OG_I32, count, slots)), state = all_states(n);
    *y = og_exec_alloc(ex, OG_F32, 2, (int64_t[]){count, n->d.hidden});
    return og_op_gather_rows(ex, y, &state, &ids);
}

/* ---- codes ----------------------------------------------------------------------- */

int og__ar_run_logits(ar_node *n, og_tensor *logits) {
    og_exec *ex = exec_of(n);
    const ar_ctl *c = &n->seen;
    og_tensor h;
    *logits = og_exec_alloc(ex, OG_F32, 2, (int64_t[]){c->n_emit, n->d.vocab});
    size_t mark = og_exec_mark(ex);
    int rc = gather_states(n, &h, c->emit_slot, c->n_emit);
    if (!rc) rc = n->impl->logits(n->model, ex, logits, &h);
    og_exec_release(ex, mark);
    return rc;
}

static og_tensor frames_from(const ar_node *n, int from, int count) {
    int32_t *at = n->drawn + (size_t)from * (size_t)n->d.groups;
    return on(n, og_tensor_2d(OG_I32, count, n->d.groups, at));
}

/* Draws into the first column of the frames. */
int og__ar_run_sample(ar_node *n, og_tensor *logits, int from, int count, int n_stop) {
    const ar_ctl *c = &n->seen;
    int32_t *list = c->stop + (size_t)from * OG_MAX_STOP_IDS;
    int32_t *counts = c->counts + (size_t)from * (size_t)n->d.vocab;
    og_tensor rows = og_tensor_rows(logits, from, count), ids = frames_from(n, from, count);
    og_tensor stop = on(n, og_tensor_1d(OG_I32, n_stop, list));
    og_tensor past = on(n, og_tensor_2d(OG_I32, count, n->d.vocab, counts));
    const og_tensor *allowed = &n->model->allowed;
    ids.rank = 1;
    return og_op_sample(exec_of(n), &ids, &rows, c->emit_row + from,
                        n->ctl.with_history ? &past : NULL,
                        og_tensor_present(allowed) ? allowed : NULL, n_stop ? &stop : NULL);
}

int og__ar_run_head(ar_node *n) {
    og_exec *ex = exec_of(n);
    int count = n->ahead ? n->ctl.n_emit : n->ctl.n_head;
    int32_t *slots = n->ahead ? n->seen.emit_slot : n->ctl.head_slot;
    if (!n->impl->head || !count) return 0;
    size_t mark = og_exec_mark(ex);
    og_tensor frame = frames_from(n, 0, count), h;
    int rc = gather_states(n, &h, slots, count);
    if (!rc)
        rc = n->impl->head(n->model, ex, &frame, &h, n->depth.layers, slots,
                           n->seen.head_row);
    og_exec_release(ex, mark);
    return rc;
}

int og__ar_fetch_logits(ar_node *n, const og_tensor *logits) {
    return og_exec_fetch(exec_of(n), n->ctl.logits, logits->data, og_tensor_bytes(logits));
}

int og__ar_fetch_frames(ar_node *n) {
    size_t bytes = (size_t)n->ctl.n_emit * (size_t)n->d.groups * sizeof *n->drawn;
    if (n->drawn == n->ctl.frame) return 0;
    return og_exec_fetch(exec_of(n), n->ctl.frame, n->drawn, bytes);
}
