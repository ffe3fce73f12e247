/* Feeders: from output buffers and hook results to one input port. The consumer's executor
 * pulls, so that a feeder has one thread; chunks follow the edge's schedule, and what is fed
 * does not depend on who was faster. */
#include <string.h>

#include "graph/run/run.h"

og__part *og__feeder_add(og__feeder *f, og__part_kind kind) {
    if (f->n_parts == f->cap_parts) {
        int cap = f->cap_parts ? f->cap_parts * 2 : 4;
        og__part *parts = og_realloc(f->parts, (size_t)cap * sizeof *parts);
        if (!parts) return NULL;
        f->parts = parts;
        f->cap_parts = cap;
    }
    og__part *p = &f->parts[f->n_parts++];
    memset(p, 0, sizeof *p);
    p->kind = kind;
    p->to = -1;
    return p;
}

void og__feeder_clear(og__feeder *f) {
    for (int i = 0; i < f->n_parts; i++) {
        og_free(f->parts[i].host);
        og_recipe_unref(f->parts[i].rows);
        og_recipe_unref(f->parts[i].fill);
    }
    og_free(f->parts);
    f->parts = NULL;
    f->n_parts = 0;
}

void og__feeder_mark(og__feeder *f) {
    if (!atomic_exchange(&f->dirty, true)) {
        og__request_ref(f->job->rq);
        og__executor_dirty(f->job->ex, f);
    }
}

static void release(void *arg) {
    og__request_unref(arg);
}

/* Hand one chunk to the node. Returns 0, or -1 when the request failed. */
static int give(og__feeder *f, og_chunk *c) {
    og__job *j = f->job;
    og_err err = OG_ERR_INIT;
    if (og_tensor_present(&c->items)) {
        og__request_ref(j->rq);
        c->release = release;
        c->arg = j->rq;
    }
    if (j->node->api->feed(j->node, &j->base, f->port, c, &err) == 0) return 0;
    og_err_node(&err, j->node->cfg.stage);
    og__request_fail(j->rq, &err);
    return -1;
}

static int chunk_size(const og__feeder *f) {
    if (!f->n_chunks) return 0;
    return f->chunks[f->step < f->n_chunks ? f->step : f->n_chunks - 1];
}

static bool is_final(const og__feeder *f) {
    return f->part == f->n_parts - 1;
}

static int next_part(og__feeder *f) {
    f->part++;
    f->cursor = 0;
    f->rows_fed = false;
    memset(f->src_cursor, 0, sizeof f->src_cursor);
    return 1;
}

/* One chunk of a sequence part. Returns 1 when it moved, 0 when it must wait, -1: failed. */
static int pull_items(og__feeder *f, og__part *p) {
    bool ended = true;
    int64_t limit = p->n;
    if (p->kind == OG_PART_OUT) {
        ended = atomic_load(&p->out->last); /* before produced: nothing comes after last */
        limit = atomic_load(&p->out->produced) - p->from;
        if (limit < 0) limit = 0;
        if (p->to >= 0 && limit >= p->to - p->from) {
            limit = p->to - p->from;
            ended = true;
        }
    }
    int64_t have = limit - f->cursor, want = chunk_size(f);
    bool whole = want == 0 || have < want;
    if (whole && !ended) return 0;
    int64_t n = whole ? have : want;
    bool finishes = ended && n == have;
    if (n > 0 || (finishes && is_final(f))) {
        og_chunk c = {.source = -1, .drop = p->drop};
        if (f->part == 0 && f->cursor == 0) c.flags |= OG_FIRST;
        if (p->mute) c.flags |= OG_MUTE;
        if (finishes && is_final(f)) c.flags |= OG_LAST;
        if (n > 0 && p->kind == OG_PART_OUT)
            c.items = og__out_view(p->out, p->from + f->cursor, n);
        else if (n > 0)
            c.items = og_tensor_1d(p->dtype, n,
                                   (char *)p->host + f->cursor * (int64_t)og_dtype_size(p->dtype));
        if (give(f, &c) < 0) return -1;
        f->cursor += n;
        f->step++;
    }
    return finishes ? next_part(f) : 1;
}

/* A recipe, then the items of the sources that it names as they come. */
static int pull_rows(og__feeder *f, og__part *p) {
    bool moved = false, open = false;
    if (!f->rows_fed) {
        og_chunk c = {.source = -1,
                      .rows = p->rows ? og_recipe_ref(p->rows) : NULL,
                      .fill = p->fill ? og_recipe_ref(p->fill) : NULL,
                      .min_tokens = p->min_tokens,
                      .max_tokens = p->max_tokens,
                      .drop = p->drop};
        if (f->part == 0) c.flags |= OG_FIRST;
        if (p->mute) c.flags |= OG_MUTE;
        if (is_final(f)) c.flags |= OG_LAST;
        f->rows_fed = moved = true;
        if (give(f, &c) < 0) return -1;
    }
    for (int s = 0; s < p->n_sources; s++) {
        og__out *o = p->sources[s];
        if (!o || f->src_cursor[s] < 0) continue;
        bool ended = atomic_load(&o->last);
        int64_t n = atomic_load(&o->produced) - f->src_cursor[s];
        open |= !ended;
        if (n == 0 && !ended) continue;
        og_chunk c = {.source = s, .flags = ended ? OG_LAST : 0};
        if (n > 0) c.items = og__out_view(o, f->src_cursor[s], n);
        f->src_cursor[s] = ended ? -1 : f->src_cursor[s] + n;
        moved = true;
        if (give(f, &c) < 0) return -1;
    }
    if (!open) return next_part(f);
    return moved ? 1 : 0;
}

void og__feeder_pull(og__feeder *f) {
    og__job *j = f->job;
    if (!atomic_load(&f->ready) || f->closed || !j->admitted || j->retired) return;
    while (f->part < f->n_parts) {
        og__part *p = &f->parts[f->part];
        int moved = p->kind == OG_PART_ROWS ? pull_rows(f, p) : pull_items(f, p);
        if (moved <= 0) return;
    }
    f->closed = true;
    if (f->n_parts == 0) {
        og_chunk c = {.source = -1, .flags = OG_FIRST | OG_LAST};
        give(f, &c);
    }
}
