/* From a request body to the front door: checks, then the hooks, each once, on the hook
 * workers. A hook that is refused costs the executors nothing. */
#include <string.h>
#include <sys/random.h>

#include "graph/run/run.h"

static void fill_source(og_hook_source *s, const og_plan *p, const og_request *r,
                        const og_plan_end *end) {
    if (end->kind == OG_END_REQUEST) {
        const json_t *v = json_object_get(r->fields, p->fields[end->field].name);
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
}

static void finish_hooks(og_request *r) {
    og_err err = OG_ERR_INIT;
    int rc = 0;
    for (int i = 0; i < r->e->plan->n_edges && rc == 0; i++) {
        og_hook_job *h = &r->edges[i].hook;
        if (!r->edges[i].runs || h->code == 0) continue;
        rc = h->code;
        err = h->err;
        og_err_set(&err, rc, "%s", og_strerror(rc));
    }
    if (rc == 0) rc = og__request_build(r, &err);
    if (rc < 0) og__request_fail(r, &err);
    og__front_push(r->e, r);
    og__request_unref(r);
}

static void hook_done(og_hook_job *job) {
    og_request *r = job->arg;
    if (atomic_fetch_sub(&r->hooks_left, 1) == 1) finish_hooks(r);
}

/* One count is held by this function, so that no hook can finish the request before all of
 * them were started. */
int og__request_start(og_request *r, og_err *err) {
    const og_plan *p = r->e->plan;
    r->hook_req.fields = r->fields;
    r->hook_req.state = og_hook_state_create();
    if (!r->hook_req.state) return og_err_set(err, OG_ENOMEM, "no memory for the request");
    atomic_store(&r->hooks_left, 1);
    og__request_ref(r);
    for (int i = 0; i < p->n_edges; i++) {
        const og_plan_edge *edge = &p->edges[i];
        if (!edge->env || !r->edge_on[i]) continue;
        og__edge_state *st = &r->edges[i];
        for (int k = 0; k < edge->n_from; k++)
            fill_source(&st->sources[k], p, r, &edge->from[k]);
        st->runs = true;
        st->hook.call = (og_hook_call){.env = edge->env,
                                       .request = &r->hook_req,
                                       .sources = st->sources,
                                       .done_stop = -1};
        st->hook.done = hook_done;
        st->hook.arg = r;
        atomic_fetch_add(&r->hooks_left, 1);
    }
    for (int i = 0; i < p->n_edges; i++)
        if (r->edges[i].runs) og_hook_submit(r->e->hooks, &r->edges[i].hook);
    if (atomic_fetch_sub(&r->hooks_left, 1) == 1) finish_hooks(r);
    return 0;
}

static int copy_taps(og_request *r, const og_request_desc *d, og_err *err) {
    const og_plan *p = r->e->plan;
    if (d->n_taps == 0) return 0;
    r->taps = og_calloc((size_t)d->n_taps, sizeof *r->taps);
    if (!r->taps) return og_err_set(err, OG_ENOMEM, "no memory for %d taps", d->n_taps);
    for (int i = 0; i < d->n_taps; i++) {
        const og_request_tap *t = &d->taps[i];
        int stage = og_plan_find_stage(p, t->stage);
        if (stage < 0)
            return og_err_set(err, OG_EINVAL, "tap %s.%s: no stage '%s' in this plan",
                              t->stage, t->port, t->stage);
        int port = og_arch_port(p->stages[stage].arch, t->port);
        if (port < 0 || !(p->stages[stage].arch->ports[port].flags & OG_PORT_OUT))
            return og_err_set(err, OG_EINVAL, "tap %s.%s: stage '%s' has no output '%s'",
                              t->stage, t->port, t->stage, t->port);
        r->n_taps = i + 1;
        r->taps[i].stage = og_strdup(t->stage);
        r->taps[i].port = og_strdup(t->port);
        if (!r->taps[i].stage || !r->taps[i].port)
            return og_err_set(err, OG_ENOMEM, "no memory for %d taps", d->n_taps);
    }
    return 0;
}

static int take_place(og_engine *e, og_err *err) {
    pthread_mutex_lock(&e->mu);
    bool full = e->n_queue >= e->opts.max_queue;
    if (!full) {
        e->n_queue++;
        e->n_requests++;
    }
    pthread_mutex_unlock(&e->mu);
    return full ? og_err_set(err, OG_EBUSY, "the queue is full (limit is %d requests)",
                             e->opts.max_queue)
                : 0;
}

static void choose_seed(og_request *r, const og_request_desc *d) {
    const og_plan *p = r->e->plan;
    if (d->has_seed)
        r->seed = d->seed;
    else if (p->has_seed)
        r->seed = p->seed;
    else if (getrandom(&r->seed, sizeof r->seed, 0) != (ssize_t)sizeof r->seed)
        r->seed = (uint64_t)(og__now() * 1e9);
}

static int prepare(og_request *r, const og_request_desc *d, og_err *err) {
    const og_plan *p = r->e->plan;
    r->stage_on = og_calloc((size_t)p->n_stages, 1);
    r->edge_on = og_calloc((size_t)p->n_edges, 1);
    r->edges = og_calloc((size_t)p->n_edges, sizeof *r->edges);
    if (!r->stage_on || !r->edge_on || !r->edges)
        return og_err_set(err, OG_ENOMEM, "no memory for the request");
    choose_seed(r, d);
    int rc = og_plan_request_check(p, d->fields, &r->fields, NULL, err);
    if (rc == 0) rc = copy_taps(r, d, err);
    if (rc == 0) rc = og_plan_gate(p, r->fields, NULL, 0, r->stage_on, r->edge_on, err);
    return rc;
}

int og_engine_submit(og_engine *e, const og_request_desc *desc, og_request **out,
                     og_err *err) {
    *out = NULL;
    int rc = take_place(e, err);
    if (rc < 0) return rc;
    og_request *r = og_calloc(1, sizeof *r);
    if (!r) {
        pthread_mutex_lock(&e->mu);
        e->n_queue--;
        e->n_requests--;
        pthread_mutex_unlock(&e->mu);
        return og_err_set(err, OG_ENOMEM, "no memory for the request");
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&r->mu, NULL);
    pthread_cond_init(&r->cond, &attr);
    pthread_condattr_destroy(&attr);
    r->e = e;
    r->id = atomic_fetch_add(&e->next_id, 1) + 1;
    r->held_sink = -1;
    r->t_submit = og__now();
    r->t_admit = r->t_first = r->t_done = -1;
    atomic_init(&r->refs, 1);
    rc = prepare(r, desc, err);
    if (rc == 0) rc = og__request_start(r, err);
    if (rc < 0) {
        pthread_mutex_lock(&e->mu);
        e->n_queue--;
        pthread_mutex_unlock(&e->mu);
        og__request_unref(r);
        return rc;
    }
    *out = r;
    return 0;
}
