/* The steps of loading a pipeline, across the files of this room. Not for others. */
#ifndef OG_SPEC_PIPELINE_PARTS_H
#define OG_SPEC_PIPELINE_PARTS_H

#include "graph/spec/pipeline.h"

/* What is being read: the structs are filled through it and const afterwards. */
typedef struct og__reading {
    og_pipeline *p;
    og_arena *a;
    og_diags *d;
    og_spec_field *request;
    og_spec_stage *stages;
    og_spec_edge *edges;
    og_spec_phase *phases;
    og_spec_route *routes;
    bool oom;
} og__reading;

/* Value of a key, NULL when there is none or it is null. */
const og_yaml_node *og__given(const og_yaml_node *map, const char *key);
/* Room for n zeroed items (one at least); NULL sets oom. */
void *og__room(og__reading *r, int n, size_t size);

/* Base chain merged into one map (the rules of `base`), `base` left out. base names
 * files nearest first. NULL: failed, see diags (or out of memory). */
const og_yaml_node *og__pipeline_merge(const og_yaml_node *base, const og_yaml_node *over,
                                       og_arena *a, og_diags *d);

/* Fill the structs from a tree whose keys and value types have been checked. Errors go to
 * the diags, so that one pass finds them all. */
void og__read_request(og__reading *r);
void og__read_stages(og__reading *r);
void og__read_edges(og__reading *r);
void og__read_routes(og__reading *r);
/* Checks that need the whole: conditions, feeders, lanes, `with`. */
void og__check_pipeline(og__reading *r);

/* Parse a condition below map's `when`. NULL when there is none or it is wrong. */
const og_cond *og__read_when(og__reading *r, const og_yaml_node *map);
/* Split `file.function`. */
bool og__read_hook(og__reading *r, const og_yaml_node *n, const char **file,
                   const char **function);
/* Report a name that does not exist, with the nearest that does. */
void og__no_such(og__reading *r, og_src src, const char *what, const char *name,
                 const char *const *names, int n);
void og__no_such_stage(og__reading *r, og_src src, const char *name);
void og__no_such_field(og__reading *r, og_src src, const char *name);

#endif
