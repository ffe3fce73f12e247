/* From a request body to its first hooks: checks, media, seed, taps. */
#include <string.h>
#include <sys/random.h>

#include "graph/run/run.h"

static int copy_taps(og_request *r, const og_request_desc *d, og_err *err) {
    const og_plan *p = r->plan;
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

/* Whatever is loaded later, it runs by the plan that is in force now. */
static void take_plan(og_request *r) {
    pthread_mutex_lock(&r->e->mu);
    r->plan = og_plan_ref(r->e->plan);
    r->generation = r->e->generation;
    pthread_mutex_unlock(&r->e->mu);
}

static void choose_seed(og_request *r, const og_request_desc *d) {
    const og_plan *p = r->plan;
    if (d->has_seed)
        r->seed = d->seed;
    else if (p->has_seed)
        r->seed = p->seed;
    else if (getrandom(&r->seed, sizeof r->seed, 0) != (ssize_t)sizeof r->seed)
        r->seed = (uint64_t)(og__now() * 1e9);
}

/* A clip, or what was made of one; the facts are what hooks see of it. */
static int read_clip(og_request *r, int field, const char *path, json_t **facts,
                     og_err *err) {
    og_audio *c = &r->clips[field];
    if (og_voice_is(path)) return og__voice_read(r, field, path, facts, err);
    int rc = og_audio_read(path, 0, c, err);
    if (rc < 0) return rc == OG_ENOMEM ? rc : OG_EREJECT;
    *facts = json_pack("{s:i,s:f,s:i}", "rate", c->source_rate, "seconds",
                       (double)c->n / c->rate, "channels", c->source_channels);
    return 0;
}

/* Audio fields are decoded here, once, at their own rate; hooks see facts instead of them. */
static int decode_media(og_request *r, og_err *err) {
    const og_plan *p = r->plan;
    r->clips = og_calloc((size_t)p->n_fields + 1, sizeof *r->clips);
    r->hook_fields = json_copy(r->fields);
    if (!r->clips || !r->hook_fields)
        return og_err_set(err, OG_ENOMEM, "no memory for the request");
    for (int i = 0; i < p->n_fields; i++) {
        const char *name = p->fields[i].name;
        const char *path = json_string_value(json_object_get(r->fields, name));
        if (p->fields[i].type.kind != OG_TYPE_AUDIO || !path) continue;
        json_t *facts = NULL;
        int rc = read_clip(r, i, path, &facts, err);
        if (rc < 0) {
            if (err && rc == OG_EREJECT) err->code = rc; /* whatever the file's fault is */
            og_err_field(err, name);
            return rc;
        }
        if (json_object_set_new(r->hook_fields, name, facts) < 0)
            return og_err_set(err, OG_ENOMEM, "no memory for the request");
    }
    return 0;
}

/* The fields, with those of a saved voice among them, as the plan wants them. */
static int check_fields(og_request *r, const json_t *fields, og_err *err) {
    json_t *body = fields ? json_copy((json_t *)fields) : json_null();
    if (!body) return og_err_set(err, OG_ENOMEM, "no memory for the request");
    int rc = og_voice_defaults(r->plan, body, err);
    if (rc == 0) rc = og_plan_request_check(r->plan, body, &r->fields, NULL, err);
    json_decref(body);
    return rc;
}

static bool reaches(const og_plan_edge *e, const unsigned char *stages) {
    bool any = false;
    for (int i = 0; i < e->n_to; i++)
        any |= e->to[i].kind == OG_END_STAGE && stages[e->to[i].stage];
    return any;
}

/* Leave on what comes before the tapped ports, and nothing else. */
static void narrow(og_request *r) {
    const og_plan *p = r->plan;
    unsigned char need[OG_PIPELINE_MAX_STAGES] = {0};
    for (int i = 0; i < r->n_taps; i++) need[og_plan_find_stage(p, r->taps[i].stage)] = 1;
    for (int s = p->n_order - 1; s >= 0; s--)
        for (int i = 0; i < p->n_edges; i++) {
            const og_plan_edge *e = &p->edges[i];
            if (!r->edge_on[i] || !reaches(e, need)) continue;
            for (int k = 0; k < e->n_from; k++)
                if (e->from[k].kind == OG_END_STAGE) need[e->from[k].stage] = 1;
        }
    for (int s = 0; s < p->n_stages; s++) r->stage_on[s] &= need[s];
    for (int i = 0; i < p->n_edges; i++) r->edge_on[i] &= reaches(&p->edges[i], need);
}

static int prepare(og_request *r, const og_request_desc *d, og_err *err) {
    const og_plan *p = r->plan;
    r->stage_on = og_calloc((size_t)p->n_stages, 1);
    r->edge_on = og_calloc((size_t)p->n_edges, 1);
    r->edges = og_calloc((size_t)p->n_edges, sizeof *r->edges);
    if (!r->stage_on || !r->edge_on || !r->edges)
        return og_err_set(err, OG_ENOMEM, "no memory for the request");
    choose_seed(r, d);
    r->taps_only = d->taps_only && d->n_taps > 0;
    r->max_tokens = d->max_tokens;
    r->notify = d->notify;
    r->notify_arg = d->notify_arg;
    int rc = check_fields(r, d->fields, err);
    if (rc == 0) rc = copy_taps(r, d, err);
    if (rc == 0) rc = decode_media(r, err);
    if (rc == 0) rc = og_plan_gate(p, r->fields, NULL, 0, r->stage_on, r->edge_on, err);
    if (rc == 0 && r->taps_only) narrow(r);
    if (rc == 0) rc = og__request_preset(r, err);
    if (rc < 0) return rc;
    r->hook_req.fields = r->hook_fields;
    r->hook_req.state = og_hook_state_create();
    return r->hook_req.state ? 0 : og_err_set(err, OG_ENOMEM, "no memory for the request");
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
    take_plan(r);
    r->id = atomic_fetch_add(&e->next_id, 1) + 1;
    r->held_sink = -1;
    r->t_submit = og__now();
    r->t_admit = r->t_first = r->t_done = -1;
    atomic_init(&r->refs, 1);
    rc = prepare(r, desc, err);
    if (rc < 0) {
        pthread_mutex_lock(&e->mu);
        e->n_queue--;
        pthread_mutex_unlock(&e->mu);
        og__request_unref(r);
        return rc;
    }
    og__request_advance(r);
    *out = r;
    return 0;
}
