/* Inside the compiler: the state that the passes share, and the passes.
 *
 * A build belongs to one thread. Passes run in the order below; each reads what the ones
 * before it left and reports everything it finds into diags, so that one run names all
 * mistakes. A pass returns 0, or OG_ENOMEM; errors in the spec are counted in diags only.
 *
 *     og__build b;
 *     if (og__build_open(&b, &opts, flags, diags, err) == 0) {
 *         rc = og__pass_resolve(&b);  ...  rc = og__pass_freeze(&b);
 *     }
 *     og__build_close(&b);     drops the plan, unless it was taken
 */
#ifndef OG_COMPILE_COMPILE_H
#define OG_COMPILE_COMPILE_H

#include "graph/compile/plan.h"
#include "graph/spec/schema.h"

#define OG__MAX_BLOCKERS 64

/* What is known of a stage of the pipeline file before it is in the plan (or left out). */
typedef struct og__bstage {
    const og_arch *arch;      /* NULL: unknown */
    const og_kind_desc *kind; /* NULL: unknown */
    const char *folder;
    bool tried; /* section was looked up */
    const json_t *section;
    og_tri on;           /* what the plan knows of `when` */
    const og_cond *when; /* what is left of it; NULL: always */
    bool dropped;
    int plan; /* index in the plan, -1 when dropped */
} og__bstage;

typedef struct og__bedge {
    const og_cond *when;
    bool dropped;
} og__bedge;

typedef struct og__build {
    const og_plan_options *opts;
    bool check;
    og_diags *diags;
    og_arena *arena; /* the plan's */
    og_plan *plan;
    og_pipeline *spec;
    og_overlay *overlay;
    og_model *model;
    const og_arch *const *archs;
    const og_kind_desc *kinds;
    int n_kinds;
    og__bstage *bs; /* by index in spec->stages */
    og__bedge *be;  /* by index in spec->edges */
    /* The plan's arrays while they can still be written. */
    og_plan_stage *stages;
    og_plan_port **ports; /* by plan stage */
    og_plan_edge *edges;
    og_plan_field *fields;
    og_plan_response *responses;
    og_plan_group *groups;
    int n_stages, n_edges, n_responses, n_groups;
    const char *blockers[OG__MAX_BLOCKERS];
    int n_blockers;
    bool oom;
} og__build;

/* Load pipeline, checkpoint configs and overlay. On failure nothing is left to close. */
int og__build_open(og__build *b, const og_plan_options *opts, int flags, og_diags *diags,
                   og_err *err);
void og__build_close(og__build *b);

int og__pass_resolve(og__build *b); /* archs, kinds, sections */
int og__pass_gate(og__build *b);   /* what can never be on leaves; plan arrays are made */
int og__pass_fields(og__build *b); /* request fields, defaults, `one_of: $map` */
int og__pass_wire(og__build *b);   /* ends, feeders, `?`, order, cycles */
int og__pass_lanes(og__build *b);  /* from maker to gatherer */
int og__pass_hooks(og__build *b);  /* files, functions, source and port names */
int og__pass_unify(og__build *b);  /* types along edges */
int og__pass_values(og__build *b); /* options, sampling, arch checks */
int og__pass_place(og__build *b);  /* devices, replicas, groups, chunk sizes */
int og__pass_memory(og__build *b); /* node plans, budgets, totals */
int og__pass_freeze(og__build *b); /* fingerprints; the overlay keeps its hands off */

/* Part of pass_memory: what each device holds, and whether it can. */
void og__plan_devices(og__build *b, size_t host_memory);
/* Most bytes that the KV pool of a stage on a GPU may take; 0: no bound is known. */
size_t og__plan_pool_bound(const og__build *b, const og_plan_stage *s);

/* ---- helpers -------------------------------------------------------------------- */

/* n zeroed items in the plan's arena; NULL sets b->oom. n may be 0. */
void *og__plan_new(og__build *b, size_t n, size_t size);
const char *og__plan_text(og__build *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* A feature that this build does not run: an error, or in check mode a note and a reason
 * why the plan is not runnable. */
void og__plan_block(og__build *b, og_src src, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Pipeline whose `match` fits the checkpoint; NULL with errors in diags. */
og_pipeline *og__plan_pick(og__build *b);
/* Check a pipeline's `match` against the checkpoint. *why: the first entry that fails. */
bool og__plan_match(og_model *m, const og_pipeline *p, const og_spec_match **why);

typedef enum og__cfg_state {
    OG__CFG_FOUND,
    OG__CFG_ABSENT,  /* the section has no such key, or null */
    OG__CFG_UNKNOWN, /* no checkpoint, or an arch that this build lacks */
} og__cfg_state;
/* Value of a `$` reference. own: spec stage that a bare `$key` belongs to, -1. */
og__cfg_state og__plan_cfg_get(og__build *b, const og_cfg_ref *ref, int own,
                               const json_t **out);
/* The same where it must exist: ABSENT is reported (with the nearest key) at ref->src. */
og__cfg_state og__plan_cfg_need(og__build *b, const og_cfg_ref *ref, int own,
                                const json_t **out);
/* Config section of a spec stage; NULL when it is not known. Errors are reported once. */
const json_t *og__plan_section(og__build *b, int spec_stage);

/* "3.6 GiB". */
const char *og__plan_bytes(size_t n, char *buf, size_t size);

/* "did you mean" among the archs of this build. */
void og__plan_suggest_arch(og__build *b, const char *name);
/* How a value of config or request answers a leaf; NULL and null are absent. */
og_tri og__plan_cond_json(const og_cond *leaf, const json_t *v);

/* Read a scalar or `$` reference of a pipeline file as an integer or text. false: not
 * known, or reported. */
bool og__plan_spec_int(og__build *b, const og_yaml_node *n, int own, int64_t *out);
const char *og__plan_spec_text(og__build *b, const og_yaml_node *n, int own);

/* Unify: the type that both are, or false with *field saying what differs ("kind",
 * "width", "rate", "list") and both values in words. Dims that are free or not known meet
 * anything. a is the producer's. */
typedef struct og__type_diff {
    const char *field;
    char left[64], right[64];
} og__type_diff;
bool og__plan_type_unify(const og_type *a, const og_type *b, og_type *out,
                         og__type_diff *diff);

/* Order of a graph of n vertices with m edges from[i] -> to[i], producers first, ties by
 * number. Returns 0, or the length of a cycle: its vertices in order are then in cycle
 * (room for n + 1: the first is repeated at the end). -1 when out of memory. */
int og__plan_topo(int n, int m, const int *from, const int *to, int *order, int *cycle);

/* Whether source e of an edge to `to` may be absent while `to` is on, and why. */
bool og__plan_may_be_absent(const og__build *b, const og_spec_end *e,
                            const og_spec_end *to, int phase, og_str *why);

/* Names that the text of a Lua hook reads as src.NAME and emits as keys of ctx:emit{}. */
typedef struct og__hook_names {
    const char **reads, **emits;
    int n_reads, n_emits;
    bool found;
} og__hook_names;
int og__plan_hook_scan(og_arena *a, const char *text, size_t len, const char *function,
                       og__hook_names *out);

/* Resolve the sampling of a stage, and its routing. */
void og__plan_sampling(og__build *b, int stage);
void og__plan_route(og__build *b, int stage);

/* JSON of a scalar or list of a pipeline file as a field of that type; NULL: see diags. */
json_t *og__plan_field_json(og__build *b, const og_type *type, const og_yaml_node *n);

/* 64-bit FNV-1a, to be chained; start from OG__HASH_INIT. */
#define OG__HASH_INIT 0xcbf29ce484222325ull
uint64_t og__plan_hash(uint64_t h, const void *data, size_t n);
uint64_t og__plan_hash_text(uint64_t h, const char *text); /* NULL hashes unlike "" */

#endif
