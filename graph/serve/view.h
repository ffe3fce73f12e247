/* A server's models as they are at one moment, for /metrics and /v1/graph. */
#ifndef OG_SERVE_VIEW_H
#define OG_SERVE_VIEW_H

#include "graph/serve/server.h"

typedef struct og__replica_view {
    const char *model, *stage, *place; /* of the plan that the view holds */
    int stage_index, replica;
    const char *state; /* "up", "rebuilding", "down", "leaving" */
    int up;
    og_node_stats node;
    og_step_totals steps;
} og__replica_view;

typedef struct og__model_view {
    const og__model *model;
    const og_plan *plan; /* owned reference */
    og_engine_stats engine;
    og__replica_view *replicas; /* those of a stage one after the other */
    int n_replicas;
} og__model_view;

typedef struct og__view {
    og__model_view *models;
    int n_models;
} og__view;

/* only: one model, or NULL for all. OG_ENOMEM leaves an empty view. */
OG_MUST_CHECK int og__view_take(og_server *s, const og__model *only, og__view *v);
void og__view_free(og__view *v);

/* A counter of a replica: its name in both forms, and where it stands in the view. */
typedef enum og__counter_type { OG__COUNT_INT, OG__COUNT_I64, OG__COUNT_SIZE, OG__COUNT_REAL } og__counter_type;
typedef struct og__counter {
    const char *name; /* "slots_used"; /metrics has omni_graph_stage_ before it */
    og__counter_type type;
    size_t offset;    /* in og__replica_view */
    bool total;       /* only grows; /metrics has _total behind it */
    const char *help;
} og__counter;
extern const og__counter og__counters[]; /* ended by name NULL */
double og__counter_value(const og__counter *c, const og__replica_view *r);

void og__get_graph(og__call *c);

#endif
