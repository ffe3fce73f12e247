/* Every node kind and every arch in this binary: the one file where graph/ meets them. */
#ifndef OG_REGISTRY_H
#define OG_REGISTRY_H

#include "nodes/node.h"

/* NULL-ended. */
extern const og_arch *const og_archs[];
const og_arch *og_arch_find(const char *name);
const og_kind_desc *og_kind_find(const char *name);
const og_kind_desc *og_kind_get(og_kind kind);
/* The kinds, in the order of og_kind; *n is their number. */
const og_kind_desc *og_kinds(int *n);

#endif
