/* The structs of an ar_decoder, for the files of this room.
 *
 * A node has n_slots slots; a job that was admitted owns one until it retires. What a step
 * tells the ops lies in ar_ctl, which is written by the host before the ops are called; what
 * a job leaves from one step to the next lies in arrays that are addressed by slot.
 *
 * There are two blocks of memory, laid out in ar_decoder.c: one on the device for states and
 * rows, and one that host and device share for the rest. The small arrays of ar_ctl that
 * many ops read are staged: `seen` has the addresses under which ops find them in this step.
 * On a host device all these are one and the same.
 *
 * Where a sync costs (any device but the host), a step runs ahead: the depth head draws frames
 * for all rows that drew a first code, and the host decides afterwards which of them count.
 */
#ifndef OG_AR_NODE_H
#define OG_AR_NODE_H

#include "nodes/ar/ar.h"
#include "nodes/ar/ar_kv.h"
#include "nodes/blocks/graphs.h"
#include "nodes/blocks/place.h"
#include "nodes/encoder/enc_sha256.h"

#define AR_MAX_SLOTS 1024
#define AR_MAX_RECIPES 8 /* recipes one behind another on a port */
#define AR_FEED_WINDOW 32 /* feed rows that are evaluated ahead for a slot */
#define AR_DEPTH_PAGES(groups) (((groups) + OG_AR_PAGE) / OG_AR_PAGE) /* groups + 1 long */

/* Items of one source, copied when they are fed. The buffer stays with the slot. */
typedef struct ar_source {
    og_dtype dtype;
    int64_t width;
    size_t cap; /* bytes */
    void *data;
} ar_source;

/* What has come to one input port of a job: recipes, each with its own sources. */
typedef struct ar_input {
    og_recipe *recipe[AR_MAX_RECIPES];
    int n_recipes, at; /* at: the one that is read now */
    og_row_cursor cursor;
    int closed; /* no further recipe */
    og_row_source come[AR_MAX_RECIPES][OG_ROW_MAX_SOURCES];
    ar_source source[AR_MAX_RECIPES][OG_ROW_MAX_SOURCES];
} ar_input;

typedef enum ar_state {
    AR_FREE,
    AR_PROMPT, /* rows of the prompt are still to be run */
    AR_DECODE, /* a frame waits to be fed back */
    AR_DONE    /* ended or failed; waits for retire */
} ar_state;

typedef struct ar_slot {
    int index;
    uint32_t gen;
    ar_state state;
    og_job *job;

    ar_input prompt, feed;
    og_recipe *fill;
    int feed_next, feed_have; /* rows of the window that were used and that are there */
    int feed_ended, fill_ready;

    int32_t pos; /* positions in the KV */
    og__sha256 hash; /* of the rows since the last full page, and the key of that page */
    int32_t max_prompt;
    int32_t n_tokens, min_tokens, max_tokens;
    int32_t drop;
    int muted;
    uint32_t sent; /* bit p: port p has had its first commit */
    og_sampling sampling;
    og_sample_row row, head_row; /* all but count */
} ar_slot;

/* Rows to evaluate at once: sums of table rows. Terms of computed tables collect their
 * arguments; equal ids share one. */
typedef struct ar_batch {
    int cap_rows, cap_terms, cap_args;
    int n_rows, n_terms, n_tables;
    int n_args[OG_AR_MAX_TABLES];
    int map[OG_AR_MAX_TABLES]; /* table of the arch -> table of the row program, or -1 */
    int32_t *off, *table, *index;
    void *args[OG_AR_MAX_TABLES]; /* NULL for direct tables */
    struct {
        int32_t table, id, at;
    } memo[64];
} ar_batch;

typedef struct ar_counted {
    int32_t slot, n_tokens;
    uint32_t gen;
} ar_counted;

typedef struct ar_ctl {
    int n_rows, n_seg, n_decode; /* of this step's stack; decode rows come first */
    int n_emit, n_head;
    int32_t *slot, *pos, *cu; /* [R] [R][3] [R + 1] */
    int32_t *keep;            /* [R] slot that keeps the row's state, or -1 */
    int32_t *last;            /* [S, groups] frames that are fed back */
    int32_t *add_off, *add_table, *add_index; /* [S + 1] [2 S] [2 S]: feedback + feed row */
    int32_t *feed_at;         /* [R] where an evaluated feed row goes */
    int32_t *emit_slot;       /* [S] */
    og_sample_row *emit_row;  /* [S] */
    int32_t *stop;            /* [S, OG_MAX_STOP_IDS] */
    int with_history;         /* some emitting job has a penalty */
    int32_t *counts;          /* [S, vocab] history of the emitting jobs */
    ar_counted *counted;      /* [S] whose history each row of counts is */
    int32_t *head_slot;       /* [S] */
    og_sample_row *head_row;  /* [S] of the emitting jobs, then of those with a frame */
    int32_t *frame;           /* [S, groups] column 0 is what was drawn first */
    int32_t *head_at;         /* [S] row in frame of each job with a frame */
    float *logits;            /* [S, vocab] where a step runs ahead */
} ar_ctl;

typedef struct ar_node {
    og_node node; /* first */
    const og_ar_impl *impl;
    og_ar_model *model;
    og_ar_dims d;
    og_device *dev;
    int port_prompt, port_feed, port_codes, port_tokens, port_hidden; /* -1: none */
    int n_slots, max_len, max_rows;
    ar_slot *slots;
    ar_slot **order; /* [n_slots] those in use, in order of admission */
    int n_used;
    ar_pool pool, depth;

    int ahead;           /* a step runs ahead of the host's decisions */
    void *block;         /* on the device: state, feed_rows, the frames that ops draw */
    void *shared;        /* everything else below */
    size_t block_bytes;  /* of both */
    float *state;     /* [S, hidden] normed state of each slot's last row */
    float *feed_rows; /* [S, AR_FEED_WINDOW + 1, hidden], the last one is the fill row */
    int32_t *frames;  /* [S, groups] last frame */
    int32_t *history; /* [S, vocab] */
    ar_ctl ctl, seen;
    int32_t *drawn;   /* [S, groups] frames where ops draw them; on the host ctl.frame */
    og_graphs graphs;
    ar_batch prompt_batch, feed_batch;
    int64_t steps, rows;
    unsigned char prefix_root[AR_KEY]; /* the key before the first page */
    int64_t prompt_rows, shared_rows;  /* of prompts; of them, those found in the cache */
} ar_node;

/* ar_rows.c */
void og__ar_batch_clear(ar_batch *b);
/* 1: added; 0: no room; < 0: a fault of the job, in err. */
int og__ar_batch_add(ar_node *n, ar_batch *b, const ar_input *in, const og_term *terms,
                     int n_terms, og_err *err);
void og__ar_batch_fullest(const ar_node *n, ar_batch *b);
int og__ar_batch_run(ar_node *n, ar_batch *b, og_tensor *y);

/* ar_feed.c */
int og__ar_feed(og_node *node, og_job *job, int port, og_chunk *c, og_err *err);
og_row_state og__ar_input_peek(ar_input *in, og_term *terms, int *n_terms);
void og__ar_input_take(ar_input *in);
void og__ar_input_clear(ar_input *in); /* keeps the buffers */
void og__ar_input_free(ar_input *in);

/* ar_prefix.c: pages of prompts that begin alike; all but init do nothing when it is off. */
int og__ar_prefix_init(ar_node *n, og_err *err);
void og__ar_prefix_start(const ar_node *n, ar_slot *s);
/* Pass over full pages of the prompt that are there already. */
void og__ar_prefix_skip(ar_node *n, ar_slot *s);
/* The row at s->pos is computed in this step; its page is in the table. */
void og__ar_prefix_row(ar_node *n, ar_slot *s, const og_term *terms, int n_terms);
/* The rows of this step have run. */
void og__ar_prefix_commit(ar_node *n);

/* ar_step.c */
int og__ar_step(og_node *node, og_step_info *info, og_err *err);
int og__ar_measure(og_node *node, og_err *err);

/* ar_ops.c: the ops of a step, in RUN and in MEASURE; what they read stands in ctl and, under
 * the ops' addresses, in seen. */
/* Show the ops what stands in ctl: the first thing once it is complete. The addresses follow
 * from the counts in ctl alone. */
int og__ar_stage(ar_node *n);
int og__ar_run_feed(ar_node *n);
int og__ar_run_stack(ar_node *n);
/* *logits [n_emit, vocab] is scratch of the step. */
int og__ar_run_logits(ar_node *n, og_tensor *logits);
int og__ar_run_sample(ar_node *n, og_tensor *logits, int from, int count, int n_stop);
int og__ar_run_head(ar_node *n);
/* What a step that runs ahead has to tell the host, there after a sync. */
int og__ar_fetch_logits(ar_node *n, const og_tensor *logits);
int og__ar_fetch_frames(ar_node *n);

/* ar_decoder.c */
void og__ar_slot_end(ar_node *n, ar_slot *s); /* to AR_DONE: gives pages and inputs back */

static inline ar_node *og__ar_node(og_node *node) {
    return (ar_node *)(void *)node;
}
static inline const ar_node *og__ar_const(const og_node *node) {
    return (const ar_node *)(const void *)node;
}
/* The job's slot, NULL when it has none here any more. */
static inline ar_slot *og__ar_slot_of(const og_job *job) {
    ar_slot *s = job->slot;
    return s && s->job == job && s->gen == job->gen ? s : NULL;
}

#endif
