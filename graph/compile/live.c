/* What of the plan one request uses. Forward: what is present and allowed; backward: what
 * something live needs. A stage that a request does not need costs it nothing. */
#include "graph/compile/compile.h"

#include <string.h>

typedef struct live {
    const og_plan *p;
    const json_t *req;
    unsigned char *stage, *edge;
} live;

/* ---- conditions ------------------------------------------------------------------ */

/* Whether a chat has a part such as "image", "image_url" or "input_audio". */
static bool has_part(const json_t *messages, const char *part) {
    size_t len = strlen(part);
    len -= len > 1 && part[len - 1] == 's';
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        const json_t *parts = json_object_get(m, "content");
        parts = json_is_array(parts) ? parts : json_object_get(m, "parts");
        for (size_t k = 0; k < json_array_size(parts); k++) {
            const char *t =
                json_string_value(json_object_get(json_array_get(parts, k), "type"));
            if (t && strncmp(t, "input_", 6) == 0) {
                t += 6;
            }
            if (t && strncmp(t, part, len) == 0) {
                return true;
            }
        }
    }
    return false;
}

static og_tri lookup(void *user, const og_cond *leaf) {
    const live *l = user;
    if (leaf->is_cfg) {
        return OG_FALSE; /* decided at plan time, or in a plan that does not run */
    }
    const json_t *v = json_object_get(l->req, leaf->field);
    if (leaf->part) {
        return has_part(v, leaf->part) ? OG_TRUE : OG_FALSE;
    }
    return og__plan_cond_json(leaf, v);
}

static bool holds(const live *l, const og_cond *c) {
    return !c || og_cond_eval(c, lookup, (void *)l) == OG_TRUE;
}

/* ---- forward --------------------------------------------------------------------- */

static bool present(const live *l, const og_plan_end *e) {
    if (e->kind == OG_END_STAGE) {
        return l->stage[e->stage];
    }
    const og_plan_field *f = &l->p->fields[e->field];
    const json_t *v = json_object_get(l->req, f->name);
    if (e->part) {
        return has_part(v, e->part);
    }
    return f->has_area || (v && !json_is_null(v));
}

static bool edge_runs(const live *l, const og_plan_edge *e) {
    if (!holds(l, e->when)) {
        return false;
    }
    for (int i = 0; i < e->n_from; i++) {
        if ((!e->hook || !e->from[i].optional) && !present(l, &e->from[i])) {
            return false;
        }
    }
    return true;
}

static int target(const og_plan_edge *e) {
    return e->n_to ? e->to[0].stage : -1;
}

static void forward(live *l) {
    for (int i = 0; i < l->p->n_order; i++) {
        int s = l->p->order[i];
        bool fed = false, any = false;
        bool on = holds(l, l->p->stages[s].when);
        for (int k = 0; k < l->p->n_edges; k++) {
            if (target(&l->p->edges[k]) == s) {
                any = true;
                l->edge[k] = on && edge_runs(l, &l->p->edges[k]);
                fed |= l->edge[k];
            }
        }
        l->stage[s] = on && (fed || !any);
    }
    for (int k = 0; k < l->p->n_edges; k++) {
        if (target(&l->p->edges[k]) < 0) {
            l->edge[k] = edge_runs(l, &l->p->edges[k]);
        }
    }
}

/* ---- backward -------------------------------------------------------------------- */

static bool wanted(const og_plan *p, const og_plan_edge *e, const char *const *want,
                   int n) {
    if (!want) {
        return true;
    }
    for (int i = 0; i < n; i++) {
        if (strcmp(p->responses[e->to[0].response].name, want[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool needed(const live *l, int stage) {
    for (int k = 0; k < l->p->n_edges; k++) {
        const og_plan_edge *e = &l->p->edges[k];
        for (int i = 0; l->edge[k] && i < e->n_from; i++) {
            if (e->from[i].stage == stage) {
                return true;
            }
        }
    }
    return false;
}

/* Consumers first, so one walk is enough: producers of what is off turn off behind it. */
static void backward(live *l) {
    for (int i = l->p->n_order - 1; i >= 0; i--) {
        int s = l->p->order[i];
        l->stage[s] = l->stage[s] && needed(l, s);
        for (int k = 0; !l->stage[s] && k < l->p->n_edges; k++) {
            if (target(&l->p->edges[k]) == s) {
                l->edge[k] = 0;
            }
        }
    }
}

/* ---- what is missing ------------------------------------------------------------- */

static const og_plan_field *missing_field(const live *l, const og_plan_edge *e) {
    for (int i = 0; i < e->n_from; i++) {
        if (e->from[i].field >= 0 && !present(l, &e->from[i])) {
            return &l->p->fields[e->from[i].field];
        }
    }
    return NULL;
}

static int check_fed(const live *l, og_err *err) {
    for (int s = 0; s < l->p->n_stages; s++) {
        const og_plan_stage *st = &l->p->stages[s];
        for (int i = 0; l->stage[s] && i < st->n_ports; i++) {
            const og_plan_port *port = &st->ports[i];
            if (!(port->flags & OG_PORT_IN) || port->type.optional || port->feeder < 0 ||
                l->edge[port->feeder]) {
                continue;
            }
            const og_plan_field *f = missing_field(l, &l->p->edges[port->feeder]);
            og_err_set(err, OG_EREJECT, "stage '%s' needs '%s'%s%s", st->name, port->name,
                       f ? ", which comes of the request's field " : "",
                       f ? f->name : "");
            og_err_node(err, st->name);
            if (f) {
                og_err_field(err, f->name);
            }
            return OG_EREJECT;
        }
    }
    return 0;
}

static int check_answered(const live *l, og_err *err) {
    for (int k = 0; k < l->p->n_edges; k++) {
        if (l->edge[k] && target(&l->p->edges[k]) < 0) {
            return 0;
        }
    }
    og_str has = OG_STR_INIT;
    for (int i = 0; i < l->p->n_responses; i++) {
        og_str_addf(&has, "%s%s", i ? ", " : "", l->p->responses[i].name);
    }
    og_err_set(err, OG_EREJECT, "nothing would be answered: the pipeline gives %s",
               has.data ? has.data : "nothing");
    og_str_free(&has);
    return OG_EREJECT;
}

int og_plan_gate(const og_plan *p, const json_t *request, const char *const *want,
                 int n_want, unsigned char *stage_on, unsigned char *edge_on,
                 og_err *err) {
    live l = {p, request, stage_on, edge_on};
    memset(stage_on, 0, (size_t)p->n_stages);
    memset(edge_on, 0, (size_t)p->n_edges);
    forward(&l);
    for (int k = 0; k < p->n_edges; k++) {
        if (target(&p->edges[k]) < 0 && !wanted(p, &p->edges[k], want, n_want)) {
            edge_on[k] = 0;
        }
    }
    backward(&l);
    int rc = check_fed(&l, err);
    return rc < 0 ? rc : check_answered(&l, err);
}
