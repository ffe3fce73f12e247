/* The ops of one step. Sizes and arguments stand in ctl; in MEASURE mode the same calls
 * count scratch. Each function gives its scratch back, but for what it returns. */
#include "nodes/ar/ar_node.h"

static og_exec *exec_of(const ar_node *n) {
    return n->node.cfg.exec;
}

static og_tensor all_states(const ar_node *n) {
    return og_tensor_2d(OG_F32, n->n_slots, n->d.hidden, n->state);
}

static og_tensor all_feed_rows(const ar_node *n) {
    int64_t rows = (int64_t)n->n_slots * (AR_FEED_WINDOW + 1);
    return og_tensor_2d(OG_F32, rows, n->d.hidden, n->feed_rows);
}

int og__ar_run_feed(ar_node *n) {
    og_exec *ex = exec_of(n);
    ar_batch *b = &n->feed_batch;
    if (!b->n_rows) return 0;
    size_t mark = og_exec_mark(ex);
    og_tensor y = og_exec_alloc(ex, OG_F32, 2, (int64_t[]){b->n_rows, n->d.hidden});
    og_tensor store = all_feed_rows(n), at = og_tensor_1d(OG_I32, b->n_rows, n->ctl.feed_at);
    int rc = og__ar_batch_run(n, b, &y);
    if (!rc) rc = og_op_scatter_rows(ex, &store, &y, &at);
    og_exec_release(ex, mark);
    return rc;
}

/* x [n_decode, hidden] = feedback(last frames) + the feed rows that add_* names. */
static int run_feedback(ar_node *n, og_tensor *x) {
    og_exec *ex = exec_of(n);
    ar_ctl *c = &n->ctl;
    og_tensor codes = og_tensor_2d(OG_I32, c->n_decode, n->d.groups, c->last);
    if (n->port_feed < 0) return n->impl->feedback(n->model, ex, x, &codes);
    og_tensor t[2] = {og_exec_alloc(ex, OG_F32, 2, x->ne), all_feed_rows(n)};
    int rc = n->impl->feedback(n->model, ex, &t[0], &codes);
    if (rc < 0) return rc;
    return og_op_row_sum(ex, x, &(og_row_prog){t, 2, c->add_off, c->add_table, c->add_index});
}

int og__ar_run_stack(ar_node *n) {
    og_exec *ex = exec_of(n);
    ar_ctl *c = &n->ctl;
    if (!c->n_rows) return 0;
    size_t mark = og_exec_mark(ex);
    og_tensor x = og_exec_alloc(ex, OG_F32, 2, (int64_t[]){c->n_rows, n->d.hidden});
    og_tensor fed = og_tensor_rows(&x, 0, c->n_decode);
    og_tensor prompt = og_tensor_rows(&x, c->n_decode, c->n_rows - c->n_decode);
    og_tensor keep = og_tensor_1d(OG_I32, c->n_rows, c->keep), state = all_states(n);
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
    og_tensor ids = og_tensor_1d(OG_I32, count, slots), state = all_states(n);
    *y = og_exec_alloc(ex, OG_F32, 2, (int64_t[]){count, n->d.hidden});
    return og_op_gather_rows(ex, y, &state, &ids);
}

int og__ar_run_logits(ar_node *n, og_tensor *logits) {
    og_exec *ex = exec_of(n);
    ar_ctl *c = &n->ctl;
    og_tensor h;
    *logits = og_exec_alloc(ex, OG_F32, 2, (int64_t[]){c->n_emit, n->d.vocab});
    size_t mark = og_exec_mark(ex);
    int rc = gather_states(n, &h, c->emit_slot, c->n_emit);
    if (!rc) rc = n->impl->logits(n->model, ex, logits, &h);
    og_exec_release(ex, mark);
    return rc;
}

int og__ar_run_sample(ar_node *n, og_tensor *logits, int from, int count, int n_stop) {
    ar_ctl *c = &n->ctl;
    int32_t *list = c->stop + (size_t)from * OG_MAX_STOP_IDS;
    og_tensor rows = og_tensor_rows(logits, from, count);
    og_tensor ids = og_tensor_1d(OG_I32, count, c->ids + from);
    og_tensor stop = og_tensor_1d(OG_I32, n_stop, list);
    og_tensor past = og_tensor_2d(OG_I32, count, n->d.vocab,
                                  c->counts + (size_t)from * (size_t)n->d.vocab);
    const og_tensor *allowed = &n->model->allowed;
    return og_op_sample(exec_of(n), &ids, &rows, c->emit_row + from,
                        c->with_history ? &past : NULL,
                        og_tensor_present(allowed) ? allowed : NULL, n_stop ? &stop : NULL);
}

int og__ar_run_head(ar_node *n) {
    og_exec *ex = exec_of(n);
    ar_ctl *c = &n->ctl;
    if (!n->impl->head || !c->n_head) return 0;
    size_t mark = og_exec_mark(ex);
    og_tensor frame = og_tensor_2d(OG_I32, c->n_head, n->d.groups, c->frame), h;
    int rc = gather_states(n, &h, c->head_slot, c->n_head);
    if (!rc)
        rc = n->impl->head(n->model, ex, &frame, &h, n->depth.layers, c->head_slot,
                           c->head_row);
    og_exec_release(ex, mark);
    return rc;
}
