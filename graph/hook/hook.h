/* Hooks: Lua functions on edges that describe what the next stage gets.
 *
 * A hook runs once per request and phase, on a hook worker, and never computes on a
 * device: it looks ids up in the config, tokenises, and emits recipes (rows of the
 * receiving arch's tables) or pieces of sequences. The whole API of the Lua side is in
 * docs/hooks.md; the sandbox and its budgets are described in graph/hook/README.md.
 *
 *   env      one hook edge of a plan: immutable, made by the compiler, shared by threads
 *   call     one run of it: the request's fields and what the sources of the edge hold
 *   result   what it emitted, in order; owned by the caller
 *   state    ctx.state of one request; sticks to the VM that saw it first
 *   vm       one Lua state: single-threaded; for `check --request` and tests
 *   pool     worker threads with a VM each; what the running engine uses
 *
 * Synchronous use:
 *
 *     og_hook_vm *vm;
 *     og_hook_result res = OG_HOOK_RESULT_INIT;
 *     if (og_hook_vm_create(NULL, &vm, err) < 0) return err->code;
 *     if (og_hook_run(vm, &call, &res, err) == 0)
 *         for (int i = 0; i < res.n; i++) deliver(&res.emits[i]);
 *     og_hook_result_free(&res);
 *     og_hook_vm_destroy(vm);
 *
 * Errors of a run:
 *   OG_EREJECT  the hook called ctx:reject: err.field is the request's field, err.msg the
 *               text for the user, without a traceback
 *   OG_ELIMIT   the user gave too much: text that is too long to tokenise, or more rows
 *               than the stage's max_rows; a 400 as well
 *   OG_EHOOK    anything else that the Lua code did: err.file and err.line say where,
 *               err.msg is the message with a traceback behind it. Budgets that were
 *               exceeded are reported so too
 *   OG_ENOENT   the file was not found
 *   OG_ENOMEM   memory is out (ours, not the hook's cap)
 */
#ifndef OG_HOOK_H
#define OG_HOOK_H

#include <jansson.h>

#include "kernels/base/alloc.h"
#include "kernels/base/err.h"
#include "nodes/node.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- env: what the compiler knows of a hook edge --------------------------------- */

/* ctx.cfg.NAME: a stage's config section, "root" (config.json) or "index"
 * (model_index.json). Borrowed. */
typedef struct og_hook_cfg {
    const char *name;
    const json_t *json;
} og_hook_cfg;

/* A port of the edge's `to` map. */
typedef struct og_hook_port {
    const char *name; /* key of the `to` map, which ctx:emit uses */
    int port;         /* index in env.to->ports */
} og_hook_port;

/* Everything is borrowed and must outlive the calls that use it. All envs of one pool
 * take their files from the same dirs. */
typedef struct og_hook_env {
    const char *file; /* "qwen3_tts": DIR/qwen3_tts.lua of the first dir that has it */
    const char *function;    /* "prompt" */
    const char *const *dirs; /* the user's first, the built-in scripts/lua last */
    int n_dirs;

    const char *stage; /* name of the `to` stage, for messages; NULL in `next` hooks */
    const og_arch *to; /* its arch; NULL: no tables and no ports */
    const json_t *section; /* the config section that arch reads: bounds of its tables */
    const og_tokenizer *tokenizer; /* NULL: ctx:tokenize and ctx:token are errors */
    int32_t max_rows; /* the stage's max_model_len; 0: only OG_HOOK_MAX_ROWS */

    const og_hook_port *ports;
    int n_ports;
    /* Names of the `from` map; their order numbers the sources of every recipe and
     * sequence that this edge emits. */
    const char *const *sources;
    int n_sources;
    /* Further names of the map, which this checkpoint never has: src.NAME is nil. */
    const char *const *absent;
    int n_absent;
    const char *const *lanes; /* names, the first is the default; NULL: none */
    int n_lanes;
    int numbered; /* lanes are numbers from 1 instead */

    const og_hook_cfg *cfg;
    int n_cfg;
    const char *const *fields; /* every field the pipeline declares, present or not */
    int n_fields;
} og_hook_env;

/* ---- call: one run --------------------------------------------------------------- */

typedef enum og_hook_kind {
    OG_HOOK_TEXT,     /* a string */
    OG_HOOK_IDS,      /* tokens: the only items that a hook can read */
    OG_HOOK_CODES,    /* code frames of width codes each */
    OG_HOOK_VECTOR,   /* hidden, embeds, embedding, latent: vectors of width values */
    OG_HOOK_MESSAGES, /* a chat: list of {role, parts: [{type, text}]} */
    OG_HOOK_MEDIA,    /* facts of a picture, clip or sound: {width, height, rate, ...} */
    OG_HOOK_LIST      /* a list of sources of one kind */
} og_hook_kind;

/* What a source of the edge holds when the hook runs. An item of a recipe or a part names
 * it by the source's number and the item's index (from 0). In a LIST the items of all
 * elements are counted through, element after element. */
typedef struct og_hook_source {
    og_hook_kind kind;
    int present;   /* 0: src.NAME is nil */
    int open;      /* a stream whose end is not known; count and ids are then not read */
    int32_t count; /* items of IDS, CODES, VECTOR (an embedding has 1) */
    int32_t width; /* codes a frame, values a vector; 0: not checked */
    const int32_t *ids; /* IDS: [count], on the host */
    const char *text;   /* TEXT */
    size_t text_len;
    const json_t *json; /* MESSAGES: the list; MEDIA: the facts, an object */
    int32_t grid[3];    /* t, h, w that the encoder said of the item; zeros: none */
    float seconds;
    const og_row_span *spans; /* IDS of a prompt: the spans of the recipe that made it */
    int32_t n_spans;
    const struct og_hook_source *items; /* LIST */
    int32_t n_items;
} og_hook_source;

/* ctx.state: created with the request, released when it has ended. */
typedef struct og_hook_state og_hook_state;

typedef struct og_hook_request {
    const json_t
        *fields; /* object: fields after defaults; an absent field is missing or null.
                             A media field is the object of its facts, a size is
                             {"width", "height"}, lists are arrays */
    const char *route;    /* NULL: the pipeline has no routes */
    og_hook_state *state; /* NULL: ctx.state is empty in every call */
} og_hook_request;

typedef struct og_hook_call {
    const og_hook_env *env;
    const og_hook_request *request;
    const og_hook_source *sources; /* [env->n_sources] */
    int lane; /* `per: chunk`: index of the default lane (chunk number - 1); else 0 */
    /* `next` hooks, called with (ctx, done); NULL: an edge's hook, called (ctx, src) */
    const char *done_phase;
    int32_t done_stop; /* the id that ended the decoding, or -1 */
    const struct og__test_call *test; /* NULL; graph/hook/test.h sets it */
} og_hook_call;

/* ---- result ---------------------------------------------------------------------- */

#define OG_HOOK_MAX_ROWS (1 << 20) /* of one recipe, whatever the stage allows */
#define OG_HOOK_MAX_LANES 256
#define OG_HOOK_MAX_EMITS 1024
#define OG_HOOK_MAX_TEXT (256 * 1024) /* bytes of one ctx:tokenize */
#define OG_HOOK_MAX_LOGS 32
#define OG_HOOK_LOG_BYTES 256

typedef enum og_hook_emit_kind {
    OG_HOOK_EMIT_ROWS, /* a recipe for a port with OG_PORT_ROWS */
    OG_HOOK_EMIT_SEQ,  /* pieces of sequences, one after another */
    OG_HOOK_EMIT_FORK  /* lane becomes a copy of lane `from_lane` as it stands */
} og_hook_emit_kind;

/* A piece of a sequence: constant ids, or items of a source. Only the last can be open */
typedef struct og_hook_part {
    int32_t source;     /* -1: constant ids */
    int32_t from;       /* first item of the source */
    int32_t n;          /* items; -1: all that will come, from `from` on */
    const int32_t *ids; /* [n], owned by the result; NULL unless source is -1 */
} og_hook_part;

/* In the order the hook made them: a fork copies what was emitted before it. Several
 * emissions to one port of one lane go one behind another; the port closes behind the
 * last of them, once its open part has ended. */
typedef struct og_hook_emit {
    og_hook_emit_kind kind;
    int lane;      /* index from 0: of env.lanes, or number - 1 when lanes are numbered */
    int from_lane; /* FORK */
    int port;      /* index in env.to->ports; -1 in a FORK */
    og_recipe *rows; /* ROWS; one reference, take it by setting it to NULL */
    og_recipe *fill; /* ROWS to `feed`: one closed row, or NULL: then nothing is added */
    og_hook_part *parts; /* SEQ */
    int32_t n_parts;
    int32_t min_tokens, max_tokens; /* 0: no limit; only tighten */
    int32_t drop; /* first outputs of the stage that are not handed on */
    int mute;
} og_hook_emit;

typedef struct og_hook_result {
    og_hook_emit *emits;
    int n, cap;
    char **logs; /* ctx:log and ctx:warn, also when the run failed */
    int n_logs;
    uint32_t warnings; /* bit i: logs[i] is for the user (ctx:warn) */
    char *next; /* `next` hooks: the phase to run, NULL: the request is through */
} og_hook_result;
#define OG_HOOK_RESULT_INIT                                                              \
    { 0 }

/* Frees what the result still owns and zeroes it. */
void og_hook_result_free(og_hook_result *res);

/* Readable form for `check --request` and tests: one line per row, numbers from 1.
 *     prompt (talker)  14 rows
 *        4  text[151671] + codec[2154]
 *        9  text[151671] + speaker(xvec[1])
 *       15..  text(said[2..]) */
void og_hook_print(const og_hook_result *res, const og_hook_env *env, og_str *out);

/* ---- vm -------------------------------------------------------------------------- */

/* Budgets of one call. A hook that exceeds one ends with OG_EHOOK, also inside pcall. */
typedef struct og_hook_limits {
    int64_t instructions; /* VM instructions, and the work of C functions in their like */
    int64_t ms; /* CPU time of a call; by the wall clock it is 10 times that: a busy
                           machine must not fail a hook that only waits for a core */
    size_t call_bytes;  /* growth of the VM during the call */
    size_t vm_bytes;    /* the VM as a whole */
    size_t state_bytes; /* ctx.state of one request */
} og_hook_limits;
#define OG_HOOK_LIMITS_INIT                                                              \
    { 2000000, 50, 16u << 20, 64u << 20, 1u << 20 }

typedef struct og_hook_vm og_hook_vm;

/* limits NULL: the defaults. */
OG_MUST_CHECK int og_hook_vm_create(const og_hook_limits *limits, og_hook_vm **out,
                                    og_err *err);
void og_hook_vm_destroy(og_hook_vm *vm); /* NULL is fine */
/* Bytes that the VM holds now. */
size_t og_hook_vm_bytes(const og_hook_vm *vm);
/* Run one call; res must be empty. After a failure it holds the log lines alone. */
OG_MUST_CHECK int og_hook_run(og_hook_vm *vm, const og_hook_call *call,
                              og_hook_result *res, og_err *err);

/* Compile-time check: the file is found and parses, its top level runs and returns a
 * table with that function. Every `use` at its top level is checked with it. Errors as of
 * a run; OG_ESPEC when the function is missing (the nearest is named). */
OG_MUST_CHECK int og_hook_check(const char *const *dirs, int n_dirs, const char *file,
                                const char *function, og_err *err);

/* One per request that runs hooks; NULL when memory is out. */
og_hook_state *og_hook_state_create(void);
/* Release a state that was used with a VM of the caller's own. */
void og_hook_vm_release(og_hook_vm *vm, og_hook_state *st);

/* ---- pool ------------------------------------------------------------------------ */

typedef struct og_hook_pool og_hook_pool;

/* A call on its way. The caller fills call, done and arg and keeps the job, and all that
 * the call points to, until done was called; done runs on the worker's thread, must not
 * block, and may free the job. Whoever holds the job then frees the result. */
typedef struct og_hook_job {
    og_hook_call call;
    void (*done)(struct og_hook_job *job);
    void *arg;
    int code; /* 0 or OG_E*; OG_ECANCELED: the pool was destroyed first */
    og_hook_result result;
    og_err err;
    struct og_hook_job *next; /* the pool's */
} og_hook_job;

OG_MUST_CHECK int og_hook_pool_create(int n_threads, const og_hook_limits *limits,
                                      og_hook_pool **out, og_err *err);
/* Any thread. Never fails and never blocks: an answer always comes through done. Jobs
 * with one state run on one worker, in the order they were submitted. */
void og_hook_submit(og_hook_pool *pool, og_hook_job *job);
/* The request has ended: any thread, after the last job with st was done. */
void og_hook_pool_release(og_hook_pool *pool, og_hook_state *st);
/* Runs what is running to its end, cancels what waits, joins the threads. */
void og_hook_pool_destroy(og_hook_pool *pool);

#ifdef __cplusplus
}
#endif
#endif
