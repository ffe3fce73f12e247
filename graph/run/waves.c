/* Hooks and waves. A hook runs once, on a hook worker, when every whole source of it is
 * there; streams are open. Stages that make those whole sources are a wave of their own:
 * they are admitted, run and retired before the stages behind the hook are, so that nothing
 * is held while a hook is waited for, and admission knows the sizes it must reserve. */
#include <string.h>

#include "graph/run/run.h"

static bool is_whole(const og_plan *p, const og_plan_end *end) {
    return end->kind == OG_END_STAGE &&
           !(p->stages[end->stage].ports[end->port].flags & OG_PORT_STREAM);
}

static og__out *whole_out(const og_request *r, const og_plan_end *end) {
    for (int i = 0; i < r->n_jobs; i++) {
        og__job *j = r->jobs[i];
        if (j->stage == end->stage && j->base.out[end->port]) return &j->outs[end->port];
    }
    return NULL;
}

static bool sources_are_there(const og_request *r, const og_plan_edge *e) {
    const og_plan *p = r->plan;
    for (int k = 0; k < e->n_from; k++) {
        if (!is_whole(p, &e->from[k]) || !r->stage_on[e->from[k].stage]) continue;
        og__out *o = whole_out(r, &e->from[k]);
        if (!o || !atomic_load(&o->last)) return false;
    }
    return true;
}

static void fill_source(og_hook_source *s, const og_request *r, const og_plan_end *end) {
    const og_plan *p = r->plan;
    if (end->kind == OG_END_REQUEST) {
        const json_t *v = json_object_get(r->hook_fields, p->fields[end->field].name);
        s->present = v && !json_is_null(v);
        s->kind = OG_HOOK_MEDIA;
        s->json = v;
        if (!json_is_string(v)) return;
        s->kind = OG_HOOK_TEXT;
        s->text = json_string_value(v);
        s->text_len = json_string_length(v);
        return;
    }
    const og_plan_port *port = &p->stages[end->stage].ports[end->port];
    s->present = r->stage_on[end->stage];
    s->open = 1;
    s->width = (int32_t)port->width;
    s->kind = OG_HOOK_VECTOR;
    if (end->type.kind == OG_TYPE_TOKENS) s->kind = OG_HOOK_IDS;
    if (end->type.kind == OG_TYPE_CODES) s->kind = OG_HOOK_CODES;
    og__out *o = is_whole(p, end) ? whole_out(r, end) : NULL;
    if (!o) return;
    s->open = 0;
    s->count = (int32_t)atomic_load(&o->produced);
    if (s->kind == OG_HOOK_IDS) s->ids = (const int32_t *)o->buf;
}

static void hooks_done(og_request *r) {
    for (int i = 0; i < r->plan->n_edges; i++) {
        og__edge_state *st = &r->edges[i];
        if (!st->runs || st->done) continue;
        st->done = true;
        if (st->hook.code == 0) continue;
        og_err err = st->hook.err;
        og_err_set(&err, st->hook.code, "%s", og_strerror(st->hook.code));
        og__request_fail(r, &err);
    }
    og__front_push(r->e, r, r->n_jobs > r->n_preset_jobs);
    og__request_unref(r);
}

static void hook_done(og_hook_job *job) {
    og_request *r = job->arg;
    if (atomic_fetch_sub(&r->hooks_left, 1) == 1) hooks_done(r);
}

/* One count is held by this function, so that no hook can pass the request on before all of
 * them were started. */
void og__request_advance(og_request *r) {
    const og_plan *p = r->plan;
    atomic_store(&r->hooks_left, 1);
    og__request_ref(r);
    for (int i = 0; i < p->n_edges; i++) {
        const og_plan_edge *e = &p->edges[i];
        og__edge_state *st = &r->edges[i];
        if (!e->env || !r->edge_on[i] || st->runs || !sources_are_there(r, e)) continue;
        for (int k = 0; k < e->n_from; k++) fill_source(&st->sources[k], r, &e->from[k]);
        st->runs = true;
        st->hook.call = (og_hook_call){.env = e->env,
                                       .request = &r->hook_req,
                                       .sources = st->sources,
                                       .done_stop = -1};
        st->hook.done = hook_done;
        st->hook.arg = r;
        atomic_fetch_add(&r->hooks_left, 1);
    }
    for (int i = 0; i < p->n_edges; i++)
        if (r->edges[i].runs && !r->edges[i].done)
            og_hook_submit(r->e->hooks, &r->edges[i].hook);
    if (atomic_fetch_sub(&r->hooks_left, 1) == 1) hooks_done(r);
}

static bool is_built(const og_request *r, int stage) {
    for (int i = 0; i < r->n_jobs; i++)
        if (r->jobs[i]->stage == stage) return true;
    return false;
}

/* Take a stage and everything before it that is not built yet. */
static void take_upstream(const og_request *r, int stage, unsigned char *stages) {
    const og_plan *p = r->plan;
    if (stages[stage] || is_built(r, stage) || !r->stage_on[stage]) return;
    stages[stage] = 1;
    for (int i = 0; i < p->n_edges; i++) {
        const og_plan_edge *e = &p->edges[i];
        bool mine = false;
        for (int k = 0; k < e->n_to; k++)
            mine |= e->to[k].kind == OG_END_STAGE && e->to[k].stage == stage;
        for (int k = 0; mine && r->edge_on[i] && k < e->n_from; k++)
            if (e->from[k].kind == OG_END_STAGE)
                take_upstream(r, e->from[k].stage, stages);
    }
}

/* Whether every hook into the stage has answered. */
static bool can_build(const og_request *r, int stage) {
    const og_plan *p = r->plan;
    for (int i = 0; i < p->n_edges; i++) {
        const og_plan_edge *e = &p->edges[i];
        if (!e->env || !r->edge_on[i] || r->edges[i].done) continue;
        for (int k = 0; k < e->n_to; k++)
            if (e->to[k].kind == OG_END_STAGE && e->to[k].stage == stage) return false;
    }
    return true;
}

void og__request_wave(og_request *r, unsigned char *stages) {
    const og_plan *p = r->plan;
    bool waiting = false;
    for (int i = 0; i < p->n_edges; i++) {
        const og_plan_edge *e = &p->edges[i];
        if (!e->env || !r->edge_on[i] || r->edges[i].done) continue;
        waiting = true;
        for (int k = 0; k < e->n_from; k++)
            if (is_whole(p, &e->from[k])) take_upstream(r, e->from[k].stage, stages);
    }
    r->final = !waiting;
    for (int s = 0; s < p->n_stages; s++)
        stages[s] = waiting ? stages[s] && can_build(r, s)
                            : r->stage_on[s] && !is_built(r, s);
}
