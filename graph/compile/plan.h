/* The plan: what the compiler makes of pipeline + overlay + checkpoint config.
 *
 * og_plan_build runs the passes resolve, gate, wire, unify, place, memory and freeze, in
 * this order. The result is immutable, lies in one arena, and may be read by any thread;
 * everything in it points into the plan and dies with og_plan_destroy. Every object has
 * the og_src of the YAML it came from, so that a run-time failure can name the line.
 *
 *     og_plan_options o = OG_PLAN_OPTIONS_INIT;
 *     o.pipeline = "qwen3_tts";
 *     o.model = "checkpoint";
 *     o.pipeline_dirs = &dir, o.n_pipeline_dirs = 1;
 *     o.script_dirs = &lua, o.n_script_dirs = 1;
 *     og_diags *diags = og_diags_create();
 *     og_plan *plan;
 *     if (og_plan_build(&o, 0, diags, &plan, &err) < 0) ...   // diags has all of it
 *     for (int i = 0; i < plan->n_order; i++) start(&plan->stages[plan->order[i]]);
 *     og_plan_destroy(plan);
 *
 * Numbers such as `stage`, `edge`, `field`, `group` are indices into the plan's arrays;
 * -1 means none.
 */
#ifndef OG_COMPILE_PLAN_H
#define OG_COMPILE_PLAN_H

#include <jansson.h>

#include "graph/hook/hook.h"
#include "graph/spec/overlay.h"
#include "graph/spec/pipeline.h"
#include "nodes/registry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- options -------------------------------------------------------------------- */

enum {
    /* For `check`, `dot` and editors: what this build cannot run (an arch it does not have,
     * phases, a kind without an API) is a note, everything that can be checked is, and the
     * plan is returned with runnable = false. A checkpoint is not needed: `$` values are
     * then unknown, and what hangs on them stays undecided. */
    OG_PLAN_CHECK_ONLY = 1,
};

/* Archs and kinds to compile against; zeros: those of this binary (nodes/registry.h). */
typedef struct og_plan_registry {
    const og_arch *const *archs; /* NULL-ended */
    const og_kind_desc *kinds;   /* in the order of og_kind */
    int n_kinds;
} og_plan_registry;

typedef struct og_plan_options {
    const char
        *pipeline;     /* file or name; NULL: the one whose `match` fits the checkpoint */
    const char *model; /* checkpoint folder; NULL: none, `$` values cannot be resolved */
    og_model *loaded; /* that folder as another plan has it open: weights and tokenizers are
                         shared with that one; NULL: it is opened anew */
    const char *deploy; /* overlay file or name; NULL: none */
    const char *const *pipeline_dirs, *const *script_dirs, *const *deploy_dirs;
    int n_pipeline_dirs, n_script_dirs, n_deploy_dirs;
    const char *const *sets; /* "talker.max_num_seqs=8", "async_chunk=false" */
    int n_sets;
    const char *stage_overrides;  /* JSON, or NULL */
    const og_overlay_flag *flags; /* global flags */
    int n_flags;
    const char *backend; /* of stages whose overlay names none: "cpu" or "cuda" */
    bool dummy;          /* made-up weights, as load_format: dummy */
    int threads;         /* of the CPU backend; 0: all cores */
    bool greedy;         /* no sampling in any stage, whatever the overlay says */
    int max_tokens;      /* > 0: bounds every decoder */
    size_t memory_limit; /* bytes of host memory the plan may take; 0: the machine's */
    size_t device_memory; /* bytes of each GPU; 0: not known, nothing is held against it */
    void (*asked)(void *arg, const char *path); /* of each file of the overlay, before it is
                                                   read; NULL */
    void *asked_arg;
    og_plan_registry registry;
} og_plan_options;
#define OG_PLAN_OPTIONS_INIT                                                             \
    { .backend = "cpu" }

/* ---- stages --------------------------------------------------------------------- */

/* A port of a stage, at its index in the arch's descriptor: the index of og_job.out[] and
 * of feed(). Types have their dims resolved as far as the checkpoint is known. */
typedef struct og_plan_port {
    const char *name;
    int flags; /* OG_PORT_* */
    og_type type;
    og_dtype dtype;     /* outputs: of one item */
    int64_t width;      /* outputs: values of one item (groups of a code frame) */
    size_t item_bytes;  /* outputs */
    int64_t per_item;   /* outputs: items for one input item (1920), 0 where not fixed */
    int64_t max_items;  /* outputs: most that one request can make, 0 when not known */
    int feeder;         /* inputs: edge that feeds it, -1 */
    const int *readers; /* outputs: edges that take it */
    int n_readers;
} og_plan_port;

/* One group: a thread, a device, the stages it steps in stream order. */
typedef struct og_plan_group {
    const char *name; /* "cpu:0", "cpu:0 #1" */
    og_place place;
    const int *stages; /* in topological order; one replica of each */
    int n_stages;
} og_plan_group;

/* One instance of a stage. */
typedef struct og_plan_replica {
    og_place place;
    int group;
} og_plan_replica;

/* How a request comes to a replica. */
typedef enum og_plan_policy {
    OG_PLAN_LEAST_WORK,
    OG_PLAN_ROUND_ROBIN,
    OG_PLAN_AFFINITY /* requests with one value of field go to one replica */
} og_plan_policy;

typedef enum og_plan_on { OG_PLAN_ON, OG_PLAN_PER_REQUEST } og_plan_on;

typedef struct og_plan_stage {
    const char *name;
    og_src src;
    int spec;     /* index into pipeline->stages */
    int stage_id; /* of the deploy schema, -1 */
    const char *kind_name, *arch_name;
    og_kind kind;
    const og_arch *arch; /* NULL only in a plan that is not runnable */
    const og_kind_desc *kind_desc;
    const char *folder;    /* of its weights; "" is the root */
    const char *tokenizer; /* folder of its tokenizer, NULL when it has none */
    const json_t *section; /* config section that the arch reads; NULL: no checkpoint */
    int with;              /* stage whose weights and replica it shares, -1 */
    og_plan_on on;         /* stages that can never be on are not in the plan */
    const og_cond *when;   /* PER_REQUEST: what is left to ask */
    const og_plan_port *ports;
    int n_ports;
    const og_plan_replica *replicas;
    int n_replicas;
    og_plan_policy policy;
    int affinity; /* index into fields; -1 */
    int max_num_seqs, max_model_len, max_num_batched_tokens;
    size_t kv_bytes;           /* bound of the KV pool; 0: max_num_seqs x max_model_len */
    size_t kv_asked;           /* that bound, where the overlay says it; 0 */
    bool prefix_cache;         /* decoders keep the KV of prompts that begin alike */
    og_sampling sampling;      /* constraints > overlay > generation_config > defaults */
    og_sampling head_sampling; /* of a depth head: the subtalker_* values */
    /* Nobody asked for sampling.max_tokens: admission may lower it so that the prompt fits */
    bool max_tokens_soft;
    const og_option_value *options; /* every option of the arch, checked, with defaults */
    int n_options;
    og_node_plan node; /* of one replica; zeros where the arch cannot say */
    bool has_node_plan;
    uint32_t stage_key;   /* Philox key: hash of the name */
    uint64_t fingerprint; /* of its frozen part */
} og_plan_stage;

/* ---- edges ---------------------------------------------------------------------- */

typedef struct og_plan_end {
    const char *alias; /* name in a hook edge's map, NULL on a plain edge */
    const char *text;  /* as written: "talker.codes" */
    og_end_kind kind;
    int stage,
        port;  /* OG_END_STAGE: port is the arch's index, -1 if the arch is unknown */
    int field; /* OG_END_REQUEST: index into fields */
    const char *part; /* request.messages.images: "images" */
    int response;     /* OG_END_RESPONSE: index into responses */
    bool optional;    /* `?`: may be absent */
    bool stream;      /* items come bit by bit; else whole */
    og_type type;
    og_src src;
} og_plan_end;

typedef struct og_plan_edge {
    og_src src;
    int index, spec; /* in the plan, in pipeline->edges */
    const og_plan_end *from, *to;
    int n_from, n_to;
    const char *hook;       /* "qwen3_tts.prompt", NULL on a plain edge */
    const og_hook_env *env; /* what the hook room runs; NULL on a plain edge */
    bool at_admission;      /* the hook has request sources only */
    bool per_chunk;
    og_via via;
    og_spec_resize resize;
    int via_rate;              /* resample: samples per second of the target, 0: free */
    const char *via_tokenizer; /* detokenize: folder of the source stage's tokenizer */
    bool whole;                /* async_chunk: false: everything as one chunk */
    const int *chunk;          /* sizes in items of the producer, the last repeats */
    int n_chunk;               /* 0: as they come */
    const char *const *lanes;  /* names, the first is the default; lanes made here */
    int n_lanes;
    bool numbered;      /* lanes are numbers, as many as the hook makes */
    bool carries_lanes; /* what flows here belongs to lanes made upstream */
    bool join;
    double join_gap;     /* seconds */
    const og_cond *when; /* what is left to ask per request; NULL: always */
    og_type type;        /* unified, of a plain edge; of a hook edge the target's */
    og_dtype dtype;      /* of one item of the (first) stage source */
    int64_t width;
    size_t item_bytes;
    const char *cast;      /* "bf16 -> f32", "host -> cuda:0" as inserted; or NULL */
    int64_t max_items;     /* most items of one request, 0: not known */
    size_t budget_bytes;   /* inner edges: what admission reserves of a request */
    bool client;           /* ends at a response: the only edges that push back */
    const char *connector; /* that the overlay declares for it, or NULL */
    int phase;             /* index into pipeline->phases, -1 without phases */
} og_plan_edge;

/* ---- the request ---------------------------------------------------------------- */

typedef struct og_plan_field {
    const char *name;
    og_src src;
    og_type type;
    bool optional;
    const json_t *def;         /* default, NULL when none */
    const char *const *one_of; /* words allowed, as spelled; NULL: no limit */
    int n_one_of;
    bool has_min, has_max, has_step;
    double min, max, step;
    bool has_area; /* size computed from picture field area_of */
    int64_t area, area_step;
    int area_of;
} og_plan_field;

typedef struct og_plan_response {
    const char *name; /* "audio", "text", "image", "images", "video" */
    og_src src;
    og_type type;
    int edge; /* that feeds it */
    int rate; /* samples per second of audio, 0 when not known */
} og_plan_response;

/* ---- memory --------------------------------------------------------------------- */

/* What one replica of a stage takes of its device, but for scratch and staging, which are
 * measured when it is loaded. */
typedef struct og_plan_share {
    int stage, replica;
    size_t bytes;        /* of all that follows */
    size_t weight_bytes; /* on the host 0 beyond the first replica: files are mapped once */
    size_t kv_bytes, state_bytes;
    double utilization; /* part of the device that it may take; 0: all, on the host */
} og_plan_share;

typedef struct og_plan_device {
    og_place place;
    const char *name; /* "host memory", "cuda:0" */
    size_t memory;    /* 0: not known */
    size_t bytes;     /* planned */
    const og_plan_share *shares;
    int n_shares;
} og_plan_device;

/* ---- the plan ------------------------------------------------------------------- */

typedef struct og_plan {
    const char *name; /* of the pipeline */
    const char *file;
    bool runnable; /* false: only with OG_PLAN_CHECK_ONLY; `blockers` says why */
    const char *const *blockers;
    int n_blockers;
    const og_pipeline *pipeline;
    const og_overlay *overlay;
    og_model *model; /* NULL when no checkpoint was given */
    const char *model_dir;
    const og_plan_stage *stages;
    const og_plan_edge *edges;
    const og_plan_field *fields;
    const og_plan_response *responses;
    const og_plan_group *groups;
    const int *order; /* stages, producers first */
    int n_stages, n_edges, n_fields, n_responses, n_groups, n_order;
    const char *const *script_dirs;
    int n_script_dirs;
    const char *backend;
    int threads;
    bool async_chunk;
    bool has_seed; /* a seed that the overlay gives to requests without one */
    uint64_t seed;
    size_t weight_bytes, kv_bytes, state_bytes; /* of all replicas */
    size_t edge_bytes;    /* budgets of one request over all inner edges */
    uint64_t fingerprint; /* of the frozen part: pipeline, archs, config values used */
    char fingerprint_hex[17];
    og_arena *arena;
    size_t memory_limit; /* bytes of host memory that it was held against; 0: none */
    const og_plan_device *devices;
    int n_devices;
    struct og__plan_refs *refs;
} og_plan;

/* Compile. On success *out is the plan (og_plan_destroy) and diags may hold warnings; on
 * failure *out is NULL, diags holds every error and err the first. diags is the caller's
 * and outlives nothing: the plan does not keep it. Errors: OG_ESPEC, OG_ETYPE, OG_ELIMIT,
 * OG_EUNSUPPORTED, OG_ENOENT, OG_EFORMAT, OG_EIO, OG_ENOMEM. */
int og_plan_build(const og_plan_options *opts, int flags, og_diags *diags, og_plan **out,
                  og_err *err) OG_MUST_CHECK;
/* One owner less, and the last one frees it: an engine, and every request on its way, owns
 * the plan that it runs by. Any thread; NULL is fine. */
void og_plan_destroy(og_plan *p);
const og_plan *og_plan_ref(const og_plan *p);
void og_plan_unref(const og_plan *p); /* as og_plan_destroy */

/* Index by name, -1 when there is none. */
int og_plan_find_stage(const og_plan *p, const char *name);
int og_plan_find_field(const og_plan *p, const char *name);
int og_plan_find_response(const og_plan *p, const char *name);

/* Configuration of a node, the same for every replica of the stage: all that
 * og_node_api.create wants but the model's own reference. The result borrows from the
 * plan. */
og_node_cfg og_plan_node_cfg(const og_plan *p, int stage, og_exec *exec);

/* Hold what is planned for a device of the plan against so many bytes: each replica against
 * its part of them, all against the whole. OG_ELIMIT: err names the stage, what it asks, what
 * there is for it and the key to change; *share (may be NULL) is the index of its share. */
int og_plan_device_fits(const og_plan *p, const og_plan_device *d, size_t memory,
                        int *share, og_err *err) OG_MUST_CHECK;
/* NULL: nothing is placed there. */
const og_plan_device *og_plan_find_device(const og_plan *p, og_place place);

/* ---- admission ------------------------------------------------------------------ */

/* Validate a request body: types, missing fields, one_of without regard to case (the
 * spelling of the list is stored), min, max and step, defaults filled in; text fields
 * that are required must not be blank. A text form of a value ("true", "5", "a,b" for a
 * list, "1024x768") is accepted where the field's type is not text, so that command line
 * flags go through the same door. Media are strings (path or URL) or objects.
 * *out is a new object with every present field (json_decref); absent ones are left out.
 * Unknown fields and rounded values are warnings in notes (may be NULL).
 * On failure OG_EREJECT, err->field is the field's name. */
int og_plan_request_check(const og_plan *p, const json_t *in, json_t **out,
                          og_diags *notes, og_err *err) OG_MUST_CHECK;

/* What of the plan a (checked) request uses: stage_on[n_stages] and edge_on[n_edges]
 * become 0 or 1. A stage is on when its `when` holds, an input of it is present and
 * something live needs an output of it; an edge is on when its `when` holds, its required
 * sources are present and its target is on. want (NULL: all) names the response ports
 * asked for. OG_EREJECT when a port that must be fed would not be. */
int og_plan_gate(const og_plan *p, const json_t *request, const char *const *want,
                 int n_want, unsigned char *stage_on, unsigned char *edge_on,
                 og_err *err) OG_MUST_CHECK;

/* Run the hooks that run at admission on a request body, with placeholders for upstream
 * values, and append the recipes they emit. Needs a tokenizer, no weights. */
int og_plan_check_request(const og_plan *p, const json_t *request, og_str *out,
                          og_diags *notes, og_err *err) OG_MUST_CHECK;

/* ---- printing ------------------------------------------------------------------- */

/* Append the graph in the DOT language: types on the edges, places, replicas, chunk
 * sizes, hooks. Every id is quoted; node and edge counts are those of the plan, request
 * and response ports are nodes of their own. */
void og_plan_dot(const og_plan *p, og_str *out);
/* Append the plan for people: stages, ports, edges, placement, casts, memory. */
void og_plan_print(const og_plan *p, og_str *out);
/* The part about memory alone: each device, each replica on it. */
void og_plan_print_memory(const og_plan *p, og_str *out);
/* The plan as JSON; the overlay as merged stands under "merged", the settings of each
 * stage under "effective". A new reference; NULL when out of memory. */
json_t *og_plan_json(const og_plan *p);
/* Append for each value of the overlay where it came from. */
void og_plan_explain(const og_plan *p, og_str *out);

#ifdef __cplusplus
}
#endif
#endif
