/* Routing: how requests come to a replica of a stage. */
#include "graph/compile/compile.h"

#include <string.h>

static int find_field(const og__build *b, const char *name) {
    for (int i = 0; i < b->spec->n_request; i++) {
        if (strcmp(b->fields[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* A policy by name, or a map of policy and key. */
void og__plan_route(og__build *b, int stage) {
    og_plan_stage *s = &b->stages[stage];
    const og_yaml_node *n = og_overlay_get(b->overlay, s->name, "routing");
    const char *at = n && n->kind == OG_YAML_MAP ? "routing.policy" : "routing";
    const char *policy = og_overlay_string(b->overlay, s->name, at, "least_work");
    const char *key = og_overlay_string(b->overlay, s->name, "routing.key", "");
    s->affinity = -1;
    s->policy = OG_PLAN_LEAST_WORK;
    if (strcmp(policy, "round_robin") == 0) {
        s->policy = OG_PLAN_ROUND_ROBIN;
    }
    if (strcmp(policy, "affinity") != 0) {
        return;
    }
    s->policy = OG_PLAN_AFFINITY;
    s->affinity = find_field(b, key);
    if (s->affinity < 0) {
        og_diags_error(b->diags, n->src,
                       "stage '%s': routing by affinity needs a `key` that is a field of the "
                       "request%s%s",
                       s->name, key[0] ? ", there is no " : "", key);
    }
}
