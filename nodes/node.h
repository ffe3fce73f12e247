/* The contract between the engine and the models: node kinds, archs, jobs, chunks.
 *
 * graph/ knows nothing of a model but what stands here and in nodes/registry.h; nodes/ know
 * nothing of YAML, Lua, HTTP or threads.
 *
 *   kind   how work is batched and stepped (ar_decoder, vocoder, ...): an og_kind_desc
 *   arch   which network a node runs: a const og_arch, one file per model family
 *   node   one instance of an arch on one device, with slots for max_seqs jobs
 *   job    one lane of one request at one stage
 *   chunk  what travels on an edge: items of a port, or a recipe for rows
 *
 * Threads. All calls on a node come from the one executor thread that owns it; create and
 * destroy too. Nodes of one executor share its og_exec and so run in stream order. Nothing
 * here blocks, and a step allocates nothing.
 *
 * Life of a job:
 *
 *     admit(node, job)            a slot and worst-case memory, or OG_EBUSY
 *     feed(node, job, port, c)    any number; gives the chunk away, also on failure
 *     step(node, &info)           WORK, WAIT, IDLE, or < 0: the replica is lost
 *       -> og_out_reserve / og_out_commit      outputs leave
 *       -> og_job_fail                         one job's failure
 *     retire(node, job)           from any state, at a step boundary; drops the slot
 */
#ifndef OG_NODE_H
#define OG_NODE_H

#include "kernels/ops.h"
#include "nodes/load/model.h"
#include "nodes/load/tokenizer.h"
#include "nodes/recipe.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_MAX_PORTS 16

/* ---- descriptors: const tables that schema, docs, inspect and the compiler read ---- */

typedef enum og_kind { OG_KIND_ENCODER, OG_KIND_AR, OG_KIND_DIT, OG_KIND_VAE, OG_KIND_VOCODER } og_kind;

typedef enum og_port_flags {
    OG_PORT_IN = 1,
    OG_PORT_OUT = 2,
    OG_PORT_ROWS = 4,    /* fed by recipes of the arch's tables */
    OG_PORT_STREAM = 8,  /* items come or go bit by bit; else the port is whole */
    OG_PORT_SAMPLES = 16 /* items are audio samples; n per item of the input is in the dims */
} og_port_flags;

/* type is written as in a pipeline file: "codes[$num_code_groups]", "audio[24000]?". A
 * $name is a key of the config section that the arch reads. */
typedef struct og_port_desc {
    const char *name;
    int flags;
    const char *type;
    const char *doc;
} og_port_desc;

typedef enum og_table_arg { OG_TABLE_ID, OG_TABLE_CODES, OG_TABLE_VECTOR } og_table_arg;
/* A table that recipes may name. count is the number of ids: a config key ("$vocab_size") or
 * a number; of a CODES table it bounds each code, of a VECTOR table it is NULL. width is the
 * width of the argument of a CODES or VECTOR table (a config key or number). */
typedef struct og_table_desc {
    const char *name;
    og_table_arg arg;
    const char *count;
    const char *width;
    const char *doc;
} og_table_desc;

typedef enum og_option_type { OG_OPT_INT, OG_OPT_FLOAT, OG_OPT_BOOL, OG_OPT_STR } og_option_type;
typedef struct og_option_desc {
    const char *name;
    og_option_type type;
    const char *def; /* default, as text */
    double min, max; /* of numbers; both 0: no limit */
    int tunable;     /* the overlay may change it */
    const char *doc;
} og_option_desc;

typedef struct og_arch {
    const char *name;
    const char *doc;
    og_kind kind;
    const char *model;              /* the public model it implements, for inspect */
    const char *section;            /* config section it reads, dotted; "" is the root; NULL: none */
    const char *tokenizer;          /* folder of its tokenizer, NULL when it has none */
    const og_port_desc *ports;      /* ends with a NULL name */
    const og_table_desc *tables;    /* ends with a NULL name; NULL when none */
    const og_option_desc *options;  /* likewise */
    const char *const *lanes;       /* lanes it gathers, NULL-ended; NULL when none */
    /* Check the config alone (no weights): every key it needs, ranges, divisibility. */
    int (*check)(const json_t *section, og_err *err);
    const void *impl; /* the kind's own table: og_ar_impl, og_vocoder_impl, ... */
} og_arch;

/* Index of a port or table by name, or -1. */
int og_arch_port(const og_arch *a, const char *name);
int og_arch_table(const og_arch *a, const char *name);

/* ---- sampling ------------------------------------------------------------------- */

#define OG_MAX_STOP_IDS 16

/* Resolved for one job: pipeline constraints, then overlay, then generation_config. */
typedef struct og_sampling {
    float temperature, top_p, min_p;
    float repetition_penalty, presence_penalty, frequency_penalty;
    int32_t top_k;
    int32_t min_tokens, max_tokens; /* max_tokens counts the token that ends the decoding */
    int32_t n_stop;
    int32_t stop[OG_MAX_STOP_IDS];
} og_sampling;
#define OG_SAMPLING_INIT {1.0f, 1.0f, 0.0f, 1.0f, 0.0f, 0.0f, 0, 0, 2048, 0, {0}}

/* ---- chunks --------------------------------------------------------------------- */

typedef enum og_chunk_flags {
    OG_FIRST = 1,
    OG_LAST = 2, /* nothing follows; may come with no items */
    OG_MUTE = 4  /* the consumer runs, its output is not handed on */
} og_chunk_flags;

typedef struct og_chunk {
    int flags;
    int source;      /* >= 0: items of the recipe's open source of that number */
    og_tensor items; /* [n, ...] of the port's type; rank 0 when there are none */
    og_recipe *rows; /* for ports with OG_PORT_ROWS; one reference is given away */
    og_recipe *fill; /* `feed` ports: the row after rows have ended; may be NULL */
    int32_t min_tokens, max_tokens; /* limits of the emission; 0: none; only tighten */
    int32_t drop;                   /* first outputs that are not handed on */
    void (*release)(void *arg);     /* called once when items are no longer read; NULL: none */
    void *arg;
} og_chunk;
void og_chunk_drop(og_chunk *c); /* release items and recipes */

/* ---- jobs ----------------------------------------------------------------------- */

/* Where an output goes: made by the engine, one per live output port of a job. */
typedef struct og_out og_out;
/* Room for n items; view is where to write them ([n, ...] of the port's type). OG_EAGAIN
 * when the client has not taken enough: the job is then not stepped. */
OG_MUST_CHECK int og_out_reserve(og_out *out, int64_t n, og_tensor *view);
/* Hand on the first n of what was reserved, with OG_FIRST / OG_LAST. n may be 0 with LAST. */
void og_out_commit(og_out *out, int64_t n, int flags);
/* Items that could be reserved now. */
int64_t og_out_room(const og_out *out);

typedef struct og_engine_hooks og_engine_hooks;

typedef struct og_job {
    const og_engine_hooks *hooks;
    uint64_t id;        /* of the request: the server's own number */
    uint32_t gen;       /* generation of the slot; late results carry it and are dropped */
    int lane;
    uint64_t seed;      /* of the request */
    uint64_t tag;       /* engine's own */
    og_sampling sampling, head_sampling; /* of the stage, and of its depth head */
    int32_t max_items;  /* worst case of input items (prompt rows or code frames) */
    int32_t max_feed;   /* decoders: worst case of rows of the feed port */
    og_out *out[OG_MAX_PORTS]; /* by port index; NULL: no live consumer, not computed */
    void *slot;         /* the node's */
    void *owner;        /* the engine's */
} og_job;

/* One job's failure; the node keeps its slot until retire. err is copied. */
void og_job_fail(og_job *job, const og_err *err);
/* What ended a decoding: the stop id, or -1 for the length limit. */
void og_job_stopped(og_job *job, int32_t stop_id);

/* The engine's side of og_out and og_job_*; tests of nodes bring their own. */
struct og_engine_hooks {
    int (*reserve)(og_out *out, int64_t n, og_tensor *view);
    void (*commit)(og_out *out, int64_t n, int flags);
    int64_t (*room)(const og_out *out);
    void (*fail)(og_job *job, const og_err *err);
    void (*stopped)(og_job *job, int32_t stop_id);
};
/* The first member of every og_out. */
struct og_out {
    const og_engine_hooks *hooks;
};

/* ---- nodes ---------------------------------------------------------------------- */

typedef struct og_option_value {
    const char *name, *text; /* checked against the arch's descriptor before create */
} og_option_value;

typedef struct og_node_cfg {
    const og_arch *arch;
    const char *stage;   /* its name, for messages */
    og_model *model;
    const char *folder;  /* weights folder in the checkpoint; "" is the root */
    og_exec *exec;       /* of the executor; shared by its nodes */
    uint32_t stage_key;  /* Philox key of the stage: the same on every replica and device */
    int max_seqs;        /* slots */
    int max_model_len;   /* positions per job */
    int max_batched_tokens; /* rows per step */
    size_t kv_bytes;     /* bound of the KV pool; 0: max_seqs x max_model_len */
    int prefix_cache;    /* decoders: keep the KV of prompts that begin alike */
    const og_option_value *options;
    int n_options;
} og_node_cfg;

typedef struct og_node og_node;

typedef enum og_step_result { OG_STEP_IDLE = 0, OG_STEP_WORK = 1, OG_STEP_WAIT = 2 } og_step_result;

typedef struct og_step_info {
    int jobs;    /* jobs that took part */
    int rows;    /* rows computed */
    int prefill; /* of them, prompt rows */
} og_step_info;

typedef struct og_node_stats {
    int slots, slots_used;
    int64_t kv_pages, kv_pages_used;  /* used: held by jobs or promised to them */
    int64_t kv_pages_cached;          /* held by no job, kept for prompts that begin alike */
    int64_t prefix_rows_hit, prefix_rows_total; /* prompt rows that were not computed; all */
    size_t weight_bytes, state_bytes;
    int64_t steps, rows;
    int64_t cache_hits, cache_misses; /* of results that are kept by content: encoders */
    size_t cache_bytes;               /* in use by them */
} og_node_stats;

/* What a job would take at most, asked before admission. fits is 0 when it could never fit:
 * err then has both numbers. */
typedef struct og_node_api {
    int (*create)(const og_node_cfg *cfg, og_node **out, og_err *err);
    void (*destroy)(og_node *n);
    /* OG_ELIMIT with both numbers when the job can never fit this node. */
    int (*fits)(const og_node *n, const og_job *job, og_err *err);
    int (*admit)(og_node *n, og_job *job, og_err *err);
    int (*feed)(og_node *n, og_job *job, int port, og_chunk *c, og_err *err);
    int (*step)(og_node *n, og_step_info *info, og_err *err);
    void (*retire)(og_node *n, og_job *job);
    void (*stats)(const og_node *n, og_node_stats *out);
    /* Run one step of the largest shapes in MEASURE mode, so that the exec knows its peak. */
    int (*measure)(og_node *n, og_err *err);
} og_node_api;

struct og_node { /* the first member of every kind's own struct */
    const og_node_api *api;
    og_node_cfg cfg;
};

struct og_node_plan;

typedef struct og_kind_desc {
    og_kind kind;
    const char *name;
    const char *doc;
    const og_node_api *api; /* NULL: the kind exists in the language, no arch runs it yet */
    /* Plan-time facts, from config alone: item counts and sizes for the memory plan. */
    int (*plan)(const og_arch *a, const og_node_cfg *cfg, struct og_node_plan *out, og_err *err);
} og_kind_desc;

/* What a node will take and give, known before anything is loaded. */
typedef struct og_node_plan {
    size_t weight_bytes, kv_bytes, state_bytes; /* of the whole node */
    int64_t kv_pages;                           /* that kv_bytes are; 0: it has none */
    size_t kv_page_bytes;
    int64_t out_items_per_item[OG_MAX_PORTS];   /* output items for one input item (1920) */
    int64_t in_items_per_out_item[OG_MAX_PORTS]; /* whole ports, else 0: n input items give
                                                    ceil(n / this) items, whatever the line
                                                    above says */
    size_t out_item_bytes[OG_MAX_PORTS];        /* bytes of one item of that port */
    og_dtype out_dtype[OG_MAX_PORTS];
    int64_t out_width[OG_MAX_PORTS]; /* values per item (groups of a code frame, 1 sample) */
    int64_t max_positions;           /* longest sequence the network can take; 0: any */
    int rate;                        /* samples per second of an audio port, 0: none */
} og_node_plan;

#ifdef __cplusplus
}
#endif
#endif
