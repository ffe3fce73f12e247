/* One step of an ar_decoder: choose jobs, run their rows, draw, hand on.
 *
 * Every job that can go on takes part: jobs in decode with one row, then prompts, oldest
 * first, as far as the budget of rows reaches. A job that misses a feed row, a prompt row or
 * room in an output is left out and does not hold up the others.
 */
#include "nodes/ar/ar_node.h"

#include <string.h>

/* ---- the ends of a job ----------------------------------------------------------- */

static void fail(ar_node *n, ar_slot *s, og_err *err) {
    og_err_node(err, n->node.cfg.stage);
    og__ar_slot_end(n, s);
    og_job_fail(s->job, err);
}

static void commit(ar_slot *s, int port, int64_t items, int flags) {
    if (!(s->sent >> port & 1)) flags |= OG_FIRST;
    s->sent |= 1u << port;
    og_out_commit(s->job->out[port], items, flags);
}

static void finish(ar_node *n, ar_slot *s, int32_t stop_id) {
    og__ar_slot_end(n, s);
    og_job_stopped(s->job, stop_id);
    for (int p = 0; p < OG_MAX_PORTS; p++)
        if (s->job->out[p]) commit(s, p, 0, OG_LAST);
}

/* ---- choosing -------------------------------------------------------------------- */

static int live_outputs(const ar_slot *s) {
    for (int p = 0; p < OG_MAX_PORTS; p++)
        if (s->job->out[p]) return 1;
    return 0;
}

static int has_room(const ar_slot *s) {
    for (int p = 0; p < OG_MAX_PORTS; p++)
        if (s->job->out[p] && og_out_room(s->job->out[p]) < 1) return 0;
    return 1;
}

/* Evaluate rows of the slot's feed ahead of their use, as far as they are known. */
static void refill(ar_node *n, ar_slot *s) {
    ar_batch *b = &n->feed_batch;
    int32_t base = s->index * (AR_FEED_WINDOW + 1);
    og_term terms[OG_ROW_MAX_TERMS];
    og_err err = OG_ERR_INIT;
    int n_terms, added = 1;
    s->feed_next = s->feed_have = 0;
    while (!s->feed_ended && s->feed_have < AR_FEED_WINDOW) {
        og_row_state st = og__ar_input_peek(&s->feed, terms, &n_terms);
        if (st == OG_ROW_WAIT) return;
        if (st != OG_ROW_READY) {
            s->feed_ended = 1;
            break;
        }
        int32_t at = b->n_rows;
        if ((added = og__ar_batch_add(n, b, &s->feed, terms, n_terms, &err)) <= 0) break;
        n->ctl.feed_at[at] = base + s->feed_have++;
        og__ar_input_take(&s->feed);
    }
    if (added > 0 && s->feed_ended && s->fill && !s->fill_ready) {
        int32_t at = b->n_rows;
        const og_recipe *r = s->fill;
        added = og__ar_batch_add(n, b, &s->feed, r->terms, r->off[1], &err);
        if (added > 0) n->ctl.feed_at[at] = base + AR_FEED_WINDOW;
        s->fill_ready = added > 0;
    }
    if (added < 0) fail(n, s, &err);
}

/* Index in the store of the row to add to the feedback; -1: none; -2: not there yet. */
static int32_t feed_row(ar_node *n, ar_slot *s) {
    int32_t base = s->index * (AR_FEED_WINDOW + 1);
    if (n->port_feed < 0) return -1;
    if (s->feed_next == s->feed_have && !(s->feed_ended && s->fill_ready == !!s->fill))
        refill(n, s);
    if (s->feed_next < s->feed_have) return base + s->feed_next++;
    if (!s->feed_ended || (s->fill && !s->fill_ready)) return -2;
    return s->fill ? base + AR_FEED_WINDOW : -1;
}

static void add_row(ar_ctl *c, const ar_slot *s, int32_t pos, int32_t keep) {
    int r = c->n_rows++;
    c->slot[r] = s->index;
    c->pos[3 * r] = c->pos[3 * r + 1] = c->pos[3 * r + 2] = pos;
    c->keep[r] = keep;
}

static void end_segment(ar_ctl *c) {
    c->cu[++c->n_seg] = c->n_rows;
}

static void emit(ar_ctl *c, const ar_slot *s) {
    c->emit_slot[c->n_emit++] = s->index;
}

/* Pages were promised at admission, so a refusal here is a fault of ours. */
static int extend(ar_node *n, ar_slot *s, int64_t positions) {
    og_err err = OG_ERR_INIT;
    if (og__ar_pool_extend(&n->pool, s->index, positions) == 0) return 1;
    og_err_set(&err, OG_EINTERNAL, "position %lld is past the %d pages of the job",
               (long long)positions, n->pool.held[s->index]);
    fail(n, s, &err);
    return 0;
}

static void plan_decode(ar_node *n, ar_slot *s) {
    ar_ctl *c = &n->ctl;
    int32_t feed = feed_row(n, s);
    if (feed == -2 || s->state == AR_DONE || !extend(n, s, s->pos + 1)) return;
    int i = c->n_decode++, k = c->add_off[i], g = n->d.groups;
    memcpy(c->last + (size_t)i * (size_t)g, n->frames + (size_t)s->index * (size_t)g,
           (size_t)g * sizeof *c->last);
    c->add_table[k] = 0;
    c->add_index[k++] = i;
    if (feed >= 0) {
        c->add_table[k] = 1;
        c->add_index[k++] = feed;
    }
    c->add_off[i + 1] = k;
    add_row(c, s, s->pos++, s->index);
    end_segment(c);
    emit(c, s);
}

/* Undo the rows of a prompt that failed while they were collected. */
static void cut_rows(ar_node *n, int rows) {
    ar_batch *b = &n->prompt_batch;
    n->ctl.n_rows = rows;
    b->n_rows = rows - n->ctl.n_decode;
    b->n_terms = b->off[b->n_rows];
}

static int too_long(ar_node *n, ar_slot *s, og_err *err) {
    if (s->pos < s->max_prompt) return 0;
    return og_err_set(err, OG_ELIMIT,
                      "the prompt has more than the %d rows that were reserved for it "
                      "(max_model_len is %d)", s->max_prompt, n->max_len);
}

static void prompt_ended(ar_node *n, ar_slot *s, og_row_state why) {
    if (why == OG_ROW_NEVER || !s->pos || !live_outputs(s)) {
        finish(n, s, -1); /* its rows of this step, if any, run over the trash page */
        return;
    }
    if (s->max_tokens > n->max_len - s->pos) s->max_tokens = n->max_len - s->pos;
    emit(&n->ctl, s);
}

static void plan_prompt(ar_node *n, ar_slot *s) {
    ar_ctl *c = &n->ctl;
    og_term terms[OG_ROW_MAX_TERMS];
    og_err err = OG_ERR_INIT;
    int n_terms, added = 1, first = c->n_rows;
    og_row_state st;
    og__ar_prefix_skip(n, s);
    while ((st = og__ar_input_peek(&s->prompt, terms, &n_terms)) == OG_ROW_READY) {
        if (c->n_rows == n->max_rows) break;
        added = too_long(n, s, &err);
        if (!added)
            added = og__ar_batch_add(n, &n->prompt_batch, &s->prompt, terms, n_terms, &err);
        if (added <= 0) break;
        if (!extend(n, s, s->pos + 1)) {
            cut_rows(n, first);
            return;
        }
        og__ar_prefix_row(n, s, terms, n_terms);
        add_row(c, s, s->pos++, -1);
        og__ar_input_take(&s->prompt);
    }
    if (added < 0) {
        cut_rows(n, first);
        fail(n, s, &err);
        return;
    }
    if (c->n_rows > first) {
        c->keep[c->n_rows - 1] = s->index;
        end_segment(c);
    }
    if (st == OG_ROW_END || st == OG_ROW_NEVER) prompt_ended(n, s, st);
}

static void clear(ar_node *n) {
    ar_ctl *c = &n->ctl;
    c->n_rows = c->n_seg = c->n_decode = c->n_emit = c->n_head = 0;
    c->cu[0] = c->add_off[0] = 0;
    og__ar_batch_clear(&n->prompt_batch);
    og__ar_batch_clear(&n->feed_batch);
}

static void plan(ar_node *n) {
    clear(n);
    for (int i = 0; i < n->n_used; i++)
        if (n->order[i]->state == AR_DECODE && has_room(n->order[i]))
            plan_decode(n, n->order[i]);
    for (int i = 0; i < n->n_used; i++)
        if (n->order[i]->state == AR_PROMPT && has_room(n->order[i]))
            plan_prompt(n, n->order[i]);
}

/* ---- drawing --------------------------------------------------------------------- */

/* Whether all exponents are below that of infinity and NaN. */
static int finite_row(const float *x, int n) {
    uint32_t bits, bad = 0;
    for (int i = 0; i < n; i++) {
        memcpy(&bits, &x[i], sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

static void find_broken(ar_node *n, const float *logits, uint8_t *broken) {
    size_t vocab = (size_t)n->d.vocab;
    for (int i = 0; i < n->ctl.n_emit; i++)
        broken[i] = !finite_row(logits + (size_t)i * vocab, n->d.vocab);
}

static void describe(ar_node *n, int i) {
    ar_ctl *c = &n->ctl;
    ar_slot *s = &n->slots[c->emit_slot[i]];
    const og_sampling *p = &s->sampling;
    c->emit_row[i] = s->row;
    c->emit_row[i].count = (uint64_t)s->n_tokens;
    c->emit_row[i].min_tokens = s->min_tokens;
    c->head_row[i] = s->head_row;
    c->head_row[i].count = (uint64_t)s->n_tokens;
    memcpy(c->stop + (size_t)i * OG_MAX_STOP_IDS, p->stop, sizeof p->stop);
    c->with_history |= p->repetition_penalty != 1.0f || p->presence_penalty != 0.0f ||
                       p->frequency_penalty != 0.0f;
}

/* Row i of counts = the history of the job; mostly it stands there from the last step. */
static void count_history(ar_node *n, int i) {
    ar_ctl *c = &n->ctl;
    size_t v = (size_t)n->d.vocab;
    const ar_slot *s = &n->slots[c->emit_slot[i]];
    ar_counted *k = &c->counted[i];
    if (k->slot == s->index && k->gen == s->gen && k->n_tokens == s->n_tokens) return;
    memcpy(c->counts + (size_t)i * v, n->history + (size_t)s->index * v,
           v * sizeof *c->counts);
    *k = (ar_counted){s->index, s->n_tokens, s->gen};
}

static void note_token(ar_node *n, const ar_slot *s, int i, int32_t id) {
    ar_ctl *c = &n->ctl;
    size_t v = (size_t)n->d.vocab;
    n->history[(size_t)s->index * v + (size_t)id]++;
    if (!c->with_history) return;
    c->counts[(size_t)i * v + (size_t)id]++;
    c->counted[i].n_tokens++;
}

static void describe_all(ar_node *n) {
    ar_ctl *c = &n->ctl;
    c->with_history = 0;
    for (int i = 0; i < c->n_emit; i++) describe(n, i);
    for (int i = 0; c->with_history && i < c->n_emit; i++) count_history(n, i);
}

static int same_stops(const ar_node *n, int a, int b) {
    const og_sampling *p = &n->slots[n->ctl.emit_slot[a]].sampling;
    const og_sampling *q = &n->slots[n->ctl.emit_slot[b]].sampling;
    return p->n_stop == q->n_stop &&
           !memcmp(p->stop, q->stop, (size_t)p->n_stop * sizeof *p->stop);
}

/* One launch for each run of jobs with the same stop ids. */
static int sample(ar_node *n, og_tensor *logits) {
    ar_ctl *c = &n->ctl;
    int rc = 0;
    for (int from = 0, to; !rc && from < c->n_emit; from = to) {
        for (to = from + 1; to < c->n_emit && same_stops(n, from, to);) to++;
        int n_stop = n->slots[c->emit_slot[from]].sampling.n_stop;
        rc = og__ar_run_sample(n, logits, from, to - from, n_stop);
    }
    return rc;
}

/* Returns whether the job goes on to a frame. */
static int judge(ar_node *n, ar_slot *s, int32_t id) {
    for (int i = 0; i < s->sampling.n_stop; i++)
        if (s->sampling.stop[i] == id) {
            finish(n, s, id);
            return 0;
        }
    if (s->n_tokens < s->max_tokens) return 1;
    finish(n, s, -1);
    return 0;
}

/* Job i goes on to a frame. Ahead of the host that is there, else the head takes the rows
 * that are left, which close up. */
static void go_on(ar_node *n, const ar_slot *s, int i, int32_t id) {
    ar_ctl *c = &n->ctl;
    int k = c->n_head++;
    c->head_slot[k] = s->index;
    c->head_at[k] = n->ahead ? i : k;
    if (n->ahead) return;
    c->head_row[k] = c->head_row[i];
    c->frame[(size_t)k * (size_t)n->d.groups] = id;
}

static void choose(ar_node *n, const uint8_t *broken) {
    ar_ctl *c = &n->ctl;
    for (int i = 0; i < c->n_emit; i++) {
        ar_slot *s = &n->slots[c->emit_slot[i]];
        int32_t id = c->frame[(size_t)i * (size_t)n->d.groups];
        if (broken[i] || id < 0 || id >= n->d.vocab) {
            og_err err = OG_ERR_INIT;
            og_err_set(&err, OG_EINTERNAL, "token %d at position %d: %s", s->n_tokens, s->pos,
                       broken[i] ? "the network gave a value that is not finite"
                                 : "no id may be drawn");
            fail(n, s, &err);
            continue;
        }
        note_token(n, s, i, id);
        s->n_tokens++;
        if (judge(n, s, id)) go_on(n, s, i, id);
    }
}

/* ---- handing on ------------------------------------------------------------------ */

/* A view to write the next item to; NULL when the job has no use for it. */
static void *room_for(ar_node *n, ar_slot *s, int port) {
    og_tensor view;
    if (port < 0 || s->state == AR_DONE || !s->job->out[port]) return NULL;
    if (s->muted || s->n_tokens <= s->drop) return NULL;
    if (og_out_reserve(s->job->out[port], 1, &view) == 0) return view.data;
    og_err err = OG_ERR_INIT;
    og_err_set(&err, OG_EINTERNAL, "no room in %s, which had room when the step began",
               n->node.cfg.arch->ports[port].name);
    fail(n, s, &err);
    return NULL;
}

static void put(ar_node *n, ar_slot *s, int port, const int32_t *item, size_t bytes) {
    void *to = room_for(n, s, port);
    if (!to) return;
    memcpy(to, item, bytes);
    commit(s, port, 1, 0);
}

/* The state lies on the device. */
static int put_state(ar_node *n, ar_slot *s) {
    og_exec *ex = n->node.cfg.exec;
    size_t h = (size_t)n->d.hidden;
    void *to = room_for(n, s, n->port_hidden);
    if (!to) return 0;
    int rc = og_exec_fetch(ex, to, n->state + (size_t)s->index * h, h * sizeof(float));
    if (!rc) rc = og_exec_sync(ex);
    if (!rc) commit(s, n->port_hidden, 1, 0);
    return rc;
}

static int hand_on(ar_node *n) {
    ar_ctl *c = &n->ctl;
    size_t g = (size_t)n->d.groups;
    int rc = 0;
    for (int k = 0; !rc && k < c->n_head; k++) {
        ar_slot *s = &n->slots[c->head_slot[k]];
        const int32_t *frame = c->frame + (size_t)c->head_at[k] * g;
        memcpy(n->frames + (size_t)s->index * g, frame, g * sizeof *frame);
        s->state = AR_DECODE;
        put(n, s, n->port_codes, frame, g * sizeof *frame);
        put(n, s, n->port_tokens, frame, sizeof *frame);
        rc = put_state(n, s);
    }
    return rc;
}

static int draw(ar_node *n) {
    uint8_t broken[AR_MAX_SLOTS];
    og_tensor logits;
    if (!n->ctl.n_emit) return 0;
    int rc = og__ar_run_logits(n, &logits);
    if (rc < 0) return rc;
    find_broken(n, logits.data, broken);
    if ((rc = sample(n, &logits)) < 0) return rc;
    choose(n, broken);
    if ((rc = og__ar_run_head(n)) < 0) return rc;
    return hand_on(n);
}

/* ---- ahead of the host ----------------------------------------------------------- */

/* What follows from here on is launched in one go; the host is asked afterwards. */
static int ahead_ops(void *arg, og_exec *ex) {
    ar_node *n = arg;
    og_tensor logits;
    int rc = og__ar_run_stack(n);
    if (rc < 0 || !n->ctl.n_emit) return rc;
    size_t mark = og_exec_mark(ex);
    rc = og__ar_run_logits(n, &logits);
    if (!rc) rc = og__ar_fetch_logits(n, &logits);
    if (!rc) rc = sample(n, &logits);
    og_exec_release(ex, mark);
    if (!rc) rc = og__ar_run_head(n);
    return rc ? rc : og__ar_fetch_frames(n);
}

/* What the ops of a step of decode rows alone depend on; 0 for any other step. */
static uint64_t shape_of(const ar_node *n) {
    const ar_ctl *c = &n->ctl;
    if (!c->n_rows || c->n_rows != c->n_decode || c->n_seg != c->n_rows ||
        c->n_emit != c->n_rows)
        return 0;
    for (int i = 1; i < c->n_emit; i++)
        if (!same_stops(n, 0, i)) return 0;
    uint64_t n_stop = (uint64_t)n->slots[c->emit_slot[0]].sampling.n_stop;
    return (uint64_t)c->n_rows << 16 | n_stop << 1 | (uint64_t)c->with_history;
}

static int run_ahead(ar_node *n) {
    og_exec *ex = n->node.cfg.exec;
    uint8_t broken[AR_MAX_SLOTS];
    uint64_t shape = shape_of(n);
    int rc = shape ? og_graphs_run(&n->graphs, ex, shape, ahead_ops, n) : ahead_ops(n, ex);
    if (!rc) rc = og_exec_sync(ex);
    if (rc < 0) return rc;
    og__ar_prefix_commit(n);
    find_broken(n, n->ctl.logits, broken);
    choose(n, broken);
    return hand_on(n);
}

static int run(ar_node *n) {
    size_t mark = og_exec_mark(n->node.cfg.exec);
    describe_all(n);
    int rc = og__ar_stage(n);
    if (!rc) rc = og__ar_run_feed(n);
    if (!rc && n->ahead) {
        rc = run_ahead(n);
    } else if (!rc) {
        rc = og__ar_run_stack(n);
        if (!rc) og__ar_prefix_commit(n);
        if (!rc) rc = draw(n);
    }
    og_exec_release(n->node.cfg.exec, mark);
    return rc;
}

int og__ar_step(og_node *node, og_step_info *info, og_err *err) {
    ar_node *n = og__ar_node(node);
    ar_ctl *c = &n->ctl;
    plan(n);
    *info = (og_step_info){c->n_seg, c->n_rows, c->n_rows - c->n_decode};
    if (!c->n_rows && !c->n_emit && !n->feed_batch.n_rows) return OG_STEP_IDLE;
    int rc = run(n);
    if (rc < 0) {
        og_err_set(err, rc, "%s", og_exec_error(n->node.cfg.exec));
        og_err_node(err, n->node.cfg.stage);
        return rc;
    }
    n->steps++;
    n->rows += c->n_rows;
    return OG_STEP_WORK;
}

/* The largest step there can be: all rows prompt, then all slots in decode. */
static int measure_shapes(ar_node *n) {
    ar_ctl *c = &n->ctl;
    og_tensor logits;
    og__ar_batch_fullest(n, &n->feed_batch);
    c->n_rows = n->max_rows;
    c->n_seg = c->n_decode = c->n_emit = c->n_head = n->n_slots;
    c->with_history = 1;
    int rc = og__ar_stage(n);
    if (!rc) rc = og__ar_run_feed(n);
    for (int decode = 0; !rc && decode <= n->n_slots; decode += n->n_slots) {
        og__ar_batch_fullest(n, &n->prompt_batch);
        n->seen.n_decode = decode;
        n->prompt_batch.n_rows = n->max_rows - decode;
        rc = og__ar_run_stack(n);
    }
    if (!rc) rc = og__ar_run_logits(n, &logits);
    if (!rc) rc = og__ar_run_sample(n, &logits, 0, n->n_slots, OG_MAX_STOP_IDS);
    return rc ? rc : og__ar_run_head(n);
}

int og__ar_measure(og_node *node, og_err *err) {
    ar_node *n = og__ar_node(node);
    og_exec *ex = n->node.cfg.exec;
    og_exec_mode before = og_exec_get_mode(ex);
    og_exec_set_mode(ex, OG_MEASURE);
    size_t mark = og_exec_mark(ex);
    int rc = measure_shapes(n);
    og_exec_release(ex, mark);
    og_exec_set_mode(ex, before);
    clear(n);
    if (rc < 0) og_err_set(err, rc, "%s", og_exec_error(ex));
    if (rc < 0) og_err_node(err, n->node.cfg.stage);
    return rc;
}
