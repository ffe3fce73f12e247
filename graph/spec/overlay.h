/* The overlay: where and how a pipeline runs. The public deploy schema, and ours.
 *
 * Loading reads a file and its base_config chain, checks keys and types, merges, and
 * works out the settings of every stage:
 *   merged     the files, base first (before platform and flags), as written
 *   platform   merged, nested blocks folded, with the section of the platform applied
 *   effective  per stage: root keys that reach stages < stage < platform < global flags <
 *              --set and --stage-overrides
 * Maps merge recursively; lists are replaced, except `stages` and `platforms.*.stages`,
 * which merge by stage_id (or name); null removes what a lower layer said. A stage's
 * runtime, engine_args and engine_extras are folded file by file before layers meet:
 * engine_extras < flat keys < engine_args, runtime.{devices,num_replicas,env} over flat.
 *
 * Every node of every result keeps the og_src of the text it came from: a file position,
 * or the text of a flag as the file name with line 0. Immutable after loading, owns its
 * memory, may be shared between threads.
 *
 *     og_overlay_opts o = {.path = "deploy/qwen3_tts.yaml", .platform = "cuda",
 *                          .stages = refs, .n_stages = n};
 *     og_overlay *ov;
 *     if (og_overlay_load(&o, diags, &ov, &err) < 0) ...
 *     int64_t seqs = og_overlay_int(ov, "talker", "max_num_seqs", 8);
 *     og_overlay_destroy(ov);
 */
#ifndef OG_SPEC_OVERLAY_H
#define OG_SPEC_OVERLAY_H

#include "graph/spec/pipeline.h"
#include "graph/spec/schema.h"
#include "graph/spec/tree.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_OVERLAY_MAX_BASES 16
#define OG_OVERLAY_MAX_CHUNKS 64

/* A stage of the pipeline, so that keys find it by id or name and go only to kinds that
 * own them. */
typedef struct og_stage_ref {
    const char *name;
    int id;           /* -1: reached by name only */
    const char *kind; /* node kind, NULL when not known: owns everything */
} og_stage_ref;

/* A global flag: --max-num-seqs 8 is {"max_num_seqs", "8"}. It reaches the root where the
 * key is a root key, and every stage whose kind owns it. */
typedef struct og_overlay_flag {
    const char *key, *value; /* value: YAML text */
} og_overlay_flag;

typedef struct og_overlay_opts {
    const char *path;        /* overlay file, or a name looked for in dirs; NULL: none */
    const char *const *dirs; /* folders of overlays that are given by name */
    int n_dirs;
    const char *platform;       /* "cpu", "cuda", ...; NULL: no section is applied */
    const og_stage_ref *stages; /* NULL: stages are those the overlay lists */
    int n_stages;
    const og_overlay_flag *flags;
    int n_flags;
    const char *const *sets; /* "talker.max_num_seqs=8", "async_chunk=false" */
    int n_sets;
    const char *stage_overrides; /* JSON {"0" or "talker": {key: value}}, or NULL */
    void (*asked)(void *arg, const char *path); /* of each file before it is read, whether
                                                   it is there or not; NULL */
    void *asked_arg;
} og_overlay_opts;

typedef struct og_overlay og_overlay;

/* On failure *out is NULL and diags holds every error. Unknown keys and keys that are
 * known but do nothing here are warnings. Errors: OG_ESPEC, OG_ELIMIT, OG_ENOENT, OG_EIO,
 * OG_ENOMEM. */
int og_overlay_load(const og_overlay_opts *opts, og_diags *diags, og_overlay **out,
                    og_err *err) OG_MUST_CHECK;
void og_overlay_destroy(og_overlay *ov); /* NULL is fine */

/* Files read, the overlay itself first (for watching). */
int og_overlay_n_files(const og_overlay *ov);
const char *og_overlay_file(const og_overlay *ov, int i);

const og_yaml_node *og_overlay_merged(const og_overlay *ov);
const og_yaml_node *og_overlay_platform(const og_overlay *ov);
/* The root after platform and flags, without stages and platforms. */
const og_yaml_node *og_overlay_root(const og_overlay *ov);
/* Effective settings of the stages: those of opts.stages in order, or those listed. */
int og_overlay_n_stages(const og_overlay *ov);
const char *og_overlay_stage_name(const og_overlay *ov, int i); /* "0" where unnamed */
const og_yaml_node *og_overlay_stage_at(const og_overlay *ov, int i);
const og_yaml_node *og_overlay_stage(const og_overlay *ov, const char *name);

/* Setting at a dotted path of a stage (NULL: of the root). The node tells where it came
 * from. NULL when nobody set it, or it is null. */
const og_yaml_node *og_overlay_get(const og_overlay *ov, const char *stage,
                                   const char *path);
/* The same as a value, with the caller's default; types were checked on loading, a value
 * of another type gives the default. */
int64_t og_overlay_int(const og_overlay *ov, const char *stage, const char *path,
                       int64_t def);
double og_overlay_float(const og_overlay *ov, const char *stage, const char *path,
                        double def);
bool og_overlay_bool(const og_overlay *ov, const char *stage, const char *path, bool def);
const char *og_overlay_string(const og_overlay *ov, const char *stage, const char *path,
                              const char *def);
/* Ids of a stage's `devices` ("0,1"). Returns how many, at most max; 0 when not set. */
int og_overlay_devices(const og_overlay *ov, const char *stage, int *ids, int max);

/* What carries the edge between two stages of the deploy schema. */
typedef struct og_overlay_link {
    const char *connector;             /* name, NULL when no connector is declared */
    const char *class_name;            /* "SharedMemoryConnector", NULL when not given */
    const og_yaml_node *extra;         /* map or NULL */
    int chunks[OG_OVERLAY_MAX_CHUNKS]; /* chunk sizes in frames, the last repeats */
    int n_chunks;                      /* 0: not set, the pipeline's own hold */
    og_src chunks_src;
    bool async_chunk; /* false: one chunk. True when nobody said so */
} og_overlay_link;

/* Link from stage_id `from` to `to`. Union of what both ends declare. */
void og_overlay_link_of(const og_overlay *ov, int from, int to, og_overlay_link *out);

/* One setting that differs between two overlays. */
typedef struct og_overlay_change {
    const char *stage;                  /* NULL: of the root */
    const char *path;                   /* dotted; valid during the call */
    const og_yaml_node *before, *after; /* NULL: not set */
    og_reload reload; /* what it needs while serving; LIVE for keys without effect */
} og_overlay_change;

/* Call visit for each effective setting that differs: stages by name, then the root. A
 * stage that only one of them has differs in all its settings. Errors: OG_ENOMEM. */
int og_overlay_diff(const og_overlay *before, const og_overlay *after,
                    void (*visit)(void *user, const og_overlay_change *change),
                    void *user) OG_MUST_CHECK;

typedef enum og_overlay_part { OG_OVERLAY_MERGED, OG_OVERLAY_EFFECTIVE } og_overlay_part;

/* Append JSON. MERGED: the merged map. EFFECTIVE: {"root": {..}, "stages": {name: {..}}}.
 * Scalars take the type of their field; where no field is known a plain scalar is null,
 * true, false or a number if it looks like one (YAML 1.2 core schema), else a string. */
void og_overlay_json(const og_overlay *ov, og_overlay_part part, og_str *out);
/* Append one JSON value of a tree; section says whose keys a map holds (schema.h, 0 for
 * none), strict: scalars are converted to the type of their field ("64" is 64). */
void og_overlay_node_json(const og_yaml_node *node, int section, bool strict,
                          og_str *out);
/* Append every effective value, one a line:
 *     talker.max_num_seqs = 8  (file:line:col) */
void og_overlay_explain(const og_overlay *ov, og_str *out);

#ifdef __cplusplus
}
#endif
#endif
