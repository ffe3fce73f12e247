/* Lanes: follow them from the hook edge that makes them, through plain edges and stages,
 * to the stage that gathers them or the join that ends them. */
#include "graph/compile/compile.h"

#include <string.h>

typedef struct lane_set {
    const char *names[OG_EDGE_MAX_LANES];
    int n;
    bool numbered;
    const og_plan_edge *maker; /* the first one, for messages */
} lane_set;

static bool has(const lane_set *s, const char *name) {
    for (int i = 0; i < s->n; i++) {
        if (strcmp(s->names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static bool add(lane_set *s, const char *name) {
    if (has(s, name) || s->n == OG_EDGE_MAX_LANES) {
        return false;
    }
    s->names[s->n++] = name;
    return true;
}

static bool laned(const lane_set *s) {
    return s->n || s->numbered;
}

/* Lanes end in a stage that gathers them; of an unknown arch nothing can be said. */
static bool ends_lanes(const og_plan_stage *s) {
    return !s->arch || s->arch->lanes;
}

static int target_stage(const og_plan_edge *e) {
    return e->n_to ? e->to[0].stage : -1;
}

static void seed(og__build *b, lane_set *sets) {
    for (int i = 0; i < b->n_edges; i++) {
        const og_plan_edge *e = &b->edges[i];
        int t = target_stage(e);
        if (t < 0 || (!e->n_lanes && !e->numbered)) {
            continue;
        }
        sets[t].numbered |= e->numbered;
        sets[t].maker = sets[t].maker ? sets[t].maker : e;
        for (int k = 0; k < e->n_lanes; k++) {
            add(&sets[t], e->lanes[k]);
        }
    }
}

/* Whether an edge's (first laned) source still has lanes; its stage. */
static int laned_source(const og__build *b, const lane_set *sets, const og_plan_edge *e) {
    for (int i = 0; i < e->n_from; i++) {
        int s = e->from[i].stage;
        if (s >= 0 && laned(&sets[s]) && !ends_lanes(&b->stages[s])) {
            return s;
        }
    }
    return -1;
}

static bool flow_edge(og__build *b, lane_set *sets, og_plan_edge *e) {
    int s = laned_source(b, sets, e), t = target_stage(e);
    if (s < 0 || e->hook) {
        return false;
    }
    e->carries_lanes = true;
    if (t < 0 || e->join) {
        return false;
    }
    bool moved = sets[s].numbered && !sets[t].numbered;
    sets[t].numbered |= sets[s].numbered;
    sets[t].maker = sets[t].maker ? sets[t].maker : sets[s].maker;
    for (int i = 0; i < sets[s].n; i++) {
        moved |= add(&sets[t], sets[s].names[i]);
    }
    return moved;
}

/* Where a lane is written, for messages. */
static og_src lane_src(const og__build *b, const lane_set *set, const char *name) {
    for (int i = 0; i < b->spec->n_edges; i++) {
        const og_spec_edge *e = &b->spec->edges[i];
        for (int k = 0; k < e->n_lanes; k++) {
            if (strcmp(e->lanes[k].name, name) == 0) {
                return e->lanes[k].src;
            }
        }
    }
    return set->maker->src;
}

static void check_gatherer(og__build *b, const lane_set *set, const og_plan_stage *s) {
    if (!s->arch || !s->arch->lanes || !laned(set)) {
        return;
    }
    og_str known = OG_STR_INIT;
    const char *names[OG_EDGE_MAX_LANES];
    int n = 0;
    for (; s->arch->lanes[n] && n < OG_EDGE_MAX_LANES; n++) {
        names[n] = s->arch->lanes[n];
        og_str_addf(&known, "%s%s", n ? ", " : "", names[n]);
    }
    for (int i = 0; i < set->n; i++) {
        bool ok = false;
        for (int k = 0; k < n; k++) {
            ok |= strcmp(names[k], set->names[i]) == 0;
        }
        if (!ok) {
            og_diags_error(b->diags, lane_src(b, set, set->names[i]),
                           "stage '%s' (arch '%s') gathers no lane '%s': it has %s",
                           s->name, s->arch->name, set->names[i],
                           known.data ? known.data : "");
            og_diags_suggest(b->diags, og_near(set->names[i], names, n));
        }
    }
    if (set->numbered) {
        og_diags_error(b->diags, set->maker->src,
                       "numbered lanes reach stage '%s' (arch '%s'), which gathers %s",
                       s->name, s->arch->name, known.data ? known.data : "");
    }
    og_str_free(&known);
}

static void check_edge(og__build *b, const lane_set *sets, const og_plan_edge *e) {
    int s = laned_source(b, sets, e);
    if (s >= 0 && e->hook) {
        og_diags_error(
            b->diags, e->src,
            "lanes pass along plain edges only: stage '%s' has lanes, and hook "
            "'%s' would take its values",
            b->stages[s].name, e->hook);
        return;
    }
    if (s >= 0 && e->client && sets[s].numbered && !e->join) {
        og_diags_error(b->diags, e->src,
                       "numbered lanes reach '%s' and nothing joins them", e->to[0].text);
        og_diags_hint(b->diags, "add join: {gap: 0.25} or join: {}");
    }
    if (s < 0 && e->join && e->n_from && e->from[0].stage >= 0 &&
        b->stages[e->from[0].stage].arch) {
        og_diags_error(b->diags, e->src, "join, but no lanes come from '%s'",
                       e->from[0].text);
        og_diags_hint(b->diags, "lanes are made by `lanes:` on a hook edge");
    }
}

int og__pass_lanes(og__build *b) {
    lane_set *sets = og__plan_new(b, (size_t)b->n_stages, sizeof *sets);
    if (!sets) {
        return OG_ENOMEM;
    }
    seed(b, sets);
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < b->n_edges; i++) {
            moved |= flow_edge(b, sets, &b->edges[i]);
        }
    }
    for (int i = 0; i < b->n_stages; i++) {
        check_gatherer(b, &sets[i], &b->stages[i]);
    }
    for (int i = 0; i < b->n_edges; i++) {
        check_edge(b, sets, &b->edges[i]);
    }
    return og_diags_oom(b->diags) ? OG_ENOMEM : 0;
}
