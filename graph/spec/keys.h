/* The two halves of the table of schema.h, and short names for writing it. Not for
 * others. */
#ifndef OG_SPEC_KEYS_H
#define OG_SPEC_KEYS_H

#include "graph/spec/schema.h"

extern const og_key og__pipeline_keys[];
extern const int og__n_pipeline_keys;
extern const og_key og__overlay_keys[];
extern const int og__n_overlay_keys;

#define BOOL OG_VALUE_BOOL
#define INT OG_VALUE_INT
#define FLOAT OG_VALUE_FLOAT
#define STR OG_VALUE_STRING
#define LIST OG_VALUE_LIST
#define MAP OG_VALUE_MAP
#define REF OG_VALUE_REF
#define AT_LEAST(v) .has_min = true, .min = (v)
#define BETWEEN(a, b) .has_min = true, .min = (a), .has_max = true, .max = (b)

/* Check one pair of a section. */
void og__pair_check(const og_yaml_pair *p, og_section section, bool quiet,
                    og_diags *diags);
/* og_keys_check where warnings about keys without effect are not wanted. */
void og__keys_check(const og_yaml_node *map, og_section section, bool quiet,
                    og_diags *diags);

#endif
