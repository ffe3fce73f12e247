/* The steps of loading an overlay, across the files of this room. Not for others. */
#ifndef OG_SPEC_OVERLAY_PARTS_H
#define OG_SPEC_OVERLAY_PARTS_H

#include "graph/spec/overlay.h"
#include "graph/spec/schema.h"

typedef struct og__overlay_stage {
    const char *name;
    int id;
    int owner; /* OG_OWNER_* bits of its kind */
    const og_yaml_node *values;
} og__overlay_stage;

struct og_overlay {
    og_arena *arena;
    const og_yaml_node *merged, *platform, *root;
    og__overlay_stage *stages;
    int n_stages;
    const char *files[OG_OVERLAY_MAX_BASES];
    int n_files;
};

/* Everything while loading. Failures other than memory go to the diags. */
typedef struct og__overlaying {
    const og_overlay_opts *opts;
    og_arena *a;
    og_diags *d;
    og_overlay *ov;
    const og_yaml_node *layers[OG_OVERLAY_MAX_BASES]; /* the overlay first */
    int n;
    bool oom;
} og__overlaying;

/* An entry of a list of stages: which stage it means. id -1: by name. */
bool og__entry_is(const og_yaml_node *entry, int id, const char *name);
int og__entry_id(const og_yaml_node *entry);
const char *og__entry_name(const og_yaml_node *entry); /* NULL when it has none */

/* Merge a file over what is below it, stages and platforms.*.stages by id. d: as in
 * og__merge. NULL: out of memory. */
const og_yaml_node *og__overlay_merge(const og_yaml_node *base, const og_yaml_node *over,
                                      og_diags *d, og_arena *a);
/* Merge two lists of stages. */
const og_yaml_node *og__stages_merge(const og_yaml_node *base, const og_yaml_node *over,
                                     bool keep_null, og_diags *d, og_arena *a);
/* A file with the nested blocks of its stages folded into flat keys. */
const og_yaml_node *og__overlay_fold(const og_yaml_node *root, og_arena *a);

/* Read the chain of files, check each. False: failed, err says how. */
int og__overlay_files(og__overlaying *o, og_err *err);
/* Fill ov->platform, ov->root and the stages from the folded tree. */
void og__overlay_resolve(og__overlaying *o, const og_yaml_node *folded);
/* Apply flags, --stage-overrides and --set to root and stages. */
void og__overlay_flags(og__overlaying *o);
/* The keys that a kind owns. NULL: out of memory. */
const og_yaml_node *og__owned(const og_yaml_node *map, og_section section, int owner,
                              og_arena *a);
/* Connectors that stages name but nobody defines, or both ends of an edge differ in. */
void og__overlay_check_links(og__overlaying *o);

#endif
