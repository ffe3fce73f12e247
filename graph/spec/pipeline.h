/* A pipeline as it is written: stages, edges, request fields, phases, routes.
 *
 * Everything that can be told from the YAML alone has been checked when a pipeline was
 * loaded: keys and value types, names (unique, legal, and existing where they are
 * referred to: stages, request fields, response ports, phases, `with`), one feeder a port
 * in each graph, hook edges ending at one stage, lanes and `per` only beside a hook,
 * conditions (fields exist), defaults against `one_of`, `min`, `max`. What needs an arch
 * or a checkpoint is left to the compiler: ports, types along edges, options, `$` values.
 *
 * Immutable after loading, owns all its memory, may be shared between threads.
 *
 *     og_pipeline *p;
 *     if (og_pipeline_load("qwen3_tts", dirs, 1, diags, &p, &err) < 0) ...
 *     for (int i = 0; i < p->n_stages; i++) puts(p->stages[i].name);
 *     og_pipeline_destroy(p);
 */
#ifndef OG_SPEC_PIPELINE_H
#define OG_SPEC_PIPELINE_H

#include "graph/spec/cond.h"
#include "graph/spec/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_PIPELINE_SCHEMA "omni-graph/1"
#define OG_PIPELINE_MAX_STAGES 256
#define OG_PIPELINE_MAX_EDGES 1024
#define OG_PIPELINE_MAX_BASES 16
#define OG_EDGE_MAX_CHUNKS 64
#define OG_EDGE_MAX_LANES 64

/* `match`: all must hold for a checkpoint to be this pipeline's. */
typedef struct og_spec_match {
    const char *key;   /* "model_type", "class", or a component or config key */
    const char *value; /* NULL: `present` */
    og_src src;
} og_spec_match;

/* A request field. */
typedef struct og_spec_field {
    const char *name;
    og_src src;
    og_type type; /* type.optional: may be absent */

    const og_yaml_node *def; /* default: a scalar or a list, checked; NULL when none */
    /* default: {area, of, step}: size of picture field `of`, scaled to area */
    bool has_area;
    int64_t area, area_step;
    const char *area_of;

    int n_one_of; /* words allowed, compared without case; 0 with no ref: no limit */
    const char *const *one_of;
    bool has_one_of_ref; /* one_of: $map: keys of that map */
    og_cfg_ref one_of_ref;

    bool has_min, has_max, has_step; /* numbers; `size` uses step for both sides */
    double min, max, step;           /* step counts from min (0 when absent) */
} og_spec_field;

/* `weights`: one folder (role NULL) or one a role. Empty folder text is the root. */
typedef struct og_spec_weights {
    const char *role, *folder;
    og_src src;
} og_spec_weights;

/* `in` and `out` of a stage: assertions on what the arch declares. */
typedef struct og_spec_port {
    const char *name;
    og_type type;
    og_src src;
} og_spec_port;

typedef struct og_spec_stage {
    const char *name;
    og_src src;
    int id; /* stage_id of the deploy schema, -1 when none */
    const char *node, *arch;
    og_src node_src, arch_src;
    const og_spec_weights *weights; /* n_weights 0: the root */
    int n_weights;
    const char *tokenizer, *scheduler; /* folder, NULL: the root */
    og_src tokenizer_src, scheduler_src;
    const char *with; /* stage whose weights, KV pool and replica it shares, or NULL */
    og_src with_src;
    const og_yaml_node *options; /* map or NULL; values may be `$` references */
    /* constraints; scalars of the lists may be `$` references. NULL when absent */
    const og_yaml_node *stop_token_ids, *stop_tokens, *min_tokens;
    const og_cond *when; /* NULL: always on */
    const og_spec_port *in, *out;
    int n_in, n_out;
} og_spec_stage;

typedef enum og_end_kind { OG_END_REQUEST, OG_END_STAGE, OG_END_RESPONSE } og_end_kind;

/* One end of an edge. */
typedef struct og_spec_end {
    const char *alias; /* name in a hook edge's map, NULL on a plain edge */
    const char *text;  /* as written, without `?` */
    og_end_kind kind;
    int stage;        /* index into stages, -1 for request and response */
    int field;        /* index into request, -1 otherwise */
    const char *name; /* port, request field or response port */
    const char *part; /* request.messages.images: "images"; NULL otherwise */
    bool optional;    /* `?`: may be absent */
    og_src src;
} og_spec_end;

typedef struct og_spec_lane {
    const char *name;
    bool optional;
    og_src src;
} og_spec_lane;

typedef enum og_via {
    OG_VIA_NONE,
    OG_VIA_RESAMPLE,
    OG_VIA_DETOKENIZE,
    OG_VIA_RESIZE,
    OG_VIA_SPLIT_SENTENCE,
    OG_VIA_SPLIT_CLAUSE,
} og_via;

typedef struct og_spec_resize {
    int64_t area, min, max, step; /* pixels; 0: not given */
    int to_field;                 /* request field of type size, -1: none */
} og_spec_resize;

typedef struct og_spec_edge {
    og_src src;
    const og_spec_end *from, *to;
    int n_from, n_to;
    const char *hook; /* as written, NULL on a plain edge */
    const char *hook_file, *hook_function;
    og_src hook_src;
    const og_spec_lane *lanes; /* the first is the default */
    int n_lanes;
    bool numbered; /* lanes: numbered */
    og_via via;
    og_spec_resize resize;
    og_src via_src;
    const int *chunk; /* sizes in items of the producer, the last repeats */
    int n_chunk;      /* 0: not given */
    og_src chunk_src;
    og_tri async_chunk; /* OG_UNKNOWN: not given */
    bool join;
    double join_gap; /* seconds between joined lanes */
    const og_cond *when;
    bool per_chunk;
    int phase; /* index into phases, -1 when the pipeline has none */
} og_spec_edge;

typedef struct og_spec_phase {
    const char *name;
    og_src src;
    int first, n_edges; /* its edges, a run of og_pipeline.edges */
} og_spec_phase;

typedef struct og_spec_route {
    const char *name;
    og_src src;
    const og_cond *when; /* NULL: always */
    const int *phases;   /* indices */
    int n_phases;
    const char *next, *next_file, *next_function; /* hook asked at the end, or NULL */
    og_src next_src;
} og_spec_route;

typedef struct og_pipeline {
    const char *name, *file;
    og_src src;               /* of the name */
    const char *const *bases; /* files it was merged from, nearest first */
    int n_bases;
    const og_spec_match *match;
    const og_spec_field *request;
    const og_spec_stage *stages;
    const og_spec_edge *edges; /* with phases: phase by phase */
    const og_spec_phase *phases;
    const og_spec_route *routes;
    int n_match, n_request, n_stages, n_edges, n_phases, n_routes;
    const og_yaml_node *tree; /* the merged YAML */
    og_arena *arena;          /* holds all of the above */
} og_pipeline;

/* Load a pipeline: a path (has a `/` or ends in .yaml) or a name, looked for as NAME.yaml
 * in dirs. A `base` is looked for beside the file that names it, then in dirs. diags is
 * needed.
 * On failure *out is NULL. Errors: OG_ESPEC, OG_ELIMIT, OG_ENOENT, OG_EIO, OG_ENOMEM. */
int og_pipeline_load(const char *path_or_name, const char *const *dirs, int n_dirs,
                     og_diags *diags, og_pipeline **out, og_err *err) OG_MUST_CHECK;
/* The same from text that stands for a file called name. */
int og_pipeline_parse(const char *name, const char *text, size_t len,
                      const char *const *dirs, int n_dirs, og_diags *diags,
                      og_pipeline **out, og_err *err) OG_MUST_CHECK;
void og_pipeline_destroy(og_pipeline *p); /* NULL is fine */

/* Index by name, -1 when there is none. */
int og_pipeline_stage(const og_pipeline *p, const char *name);
int og_pipeline_field(const og_pipeline *p, const char *name);
int og_pipeline_phase(const og_pipeline *p, const char *name);
/* Nearest name among the stages, for "did you mean"; NULL when none is near. */
const char *og_pipeline_near_stage(const og_pipeline *p, const char *name);

#ifdef __cplusplus
}
#endif
#endif
