/* From hook results to jobs: which lanes there are, what each job may take and give at most,
 * where its outputs go, what its inputs are made of. Runs once per request, before it is
 * queued; everything that the request will need in memory is reserved here. */
#include <string.h>

#include "graph/run/run.h"

typedef struct builder {
    og_request *r;
    const og_plan *p;
    int lanes[64]; /* by stage */
    og_err *err;
} builder;

#define MAX_STAGES ((int)(sizeof((builder *)0)->lanes / sizeof(int)))

static og__job *find_job(const og_request *r, int stage, int lane) {
    og__job *only = NULL;
    int n = 0;
    for (int i = 0; i < r->n_jobs; i++) {
        og__job *j = r->jobs[i];
        if (j->stage != stage) continue;
        if (j->lane == lane) return j;
        only = j;
        n++;
    }
    return n == 1 ? only : NULL; /* a value without lanes is seen by all of them */
}

static bool targets(const og_plan_edge *e, int stage) {
    for (int i = 0; i < e->n_to; i++)
        if (e->to[i].kind == OG_END_STAGE && e->to[i].stage == stage) return true;
    return false;
}

/* Lanes of a stage: those its hook made, or those of what feeds it. Named lanes beyond the
 * default are for archs that gather them. */
static int count_lanes(builder *b, int stage) {
    int n = 1;
    for (int i = 0; i < b->p->n_edges; i++) {
        const og_plan_edge *e = &b->p->edges[i];
        if (!b->r->edge_on[i] || !targets(e, stage)) continue;
        const og_hook_result *res = &b->r->edges[i].hook.result;
        for (int k = 0; e->env && e->numbered && k < res->n; k++)
            if (res->emits[k].lane + 1 > n) n = res->emits[k].lane + 1;
        for (int k = 0; k < e->n_from; k++)
            if (e->from[k].kind == OG_END_STAGE && b->lanes[e->from[k].stage] > n)
                n = b->lanes[e->from[k].stage];
    }
    return n;
}

static bool is_tapped(const og_request *r, const og_plan_stage *st, const char *port,
                      bool *keep) {
    *keep = false;
    for (int i = 0; i < r->n_taps; i++)
        if (!strcmp(r->taps[i].stage, st->name) && !strcmp(r->taps[i].port, port))
            *keep = true;
    return *keep;
}

/* Whether a live edge reads the port. */
static bool is_read(const builder *b, const og_plan_port *port, bool *client) {
    bool read = false;
    for (int i = 0; i < port->n_readers; i++) {
        if (!b->r->edge_on[port->readers[i]]) continue;
        read = true;
        *client |= b->p->edges[port->readers[i]].client;
    }
    return read;
}

static og__job *new_job(builder *b, int stage, int lane) {
    og_request *r = b->r;
    og__job **jobs = og_realloc(r->jobs, (size_t)(r->n_jobs + 1) * sizeof *jobs);
    if (!jobs) return NULL;
    r->jobs = jobs;
    og__job *j = og_calloc(1, sizeof *j);
    if (!j) return NULL;
    r->jobs[r->n_jobs++] = j;
    const og_plan_stage *st = &b->p->stages[stage];
    j->rq = r;
    j->stage = stage;
    j->lane = lane;
    j->base = (og_job){.hooks = &og__engine_hooks,
                       .id = r->id,
                       .lane = lane,
                       /* Numbered lanes are sentences of their own: each its own stream. */
                       .seed = r->seed + (uint64_t)lane,
                       .sampling = st->sampling,
                       .head_sampling = st->head_sampling,
                       .owner = r};
    return j;
}

/* ---- inputs ---------------------------------------------------------------------- */

static int64_t part_items(const og__part *p) {
    if (p->kind == OG_PART_HOST) return p->n;
    if (p->kind == OG_PART_OUT) return p->to >= 0 ? p->to - p->from : p->out->cap - p->from;
    int64_t n = p->rows ? p->rows->n_rows : 0;
    for (int i = 0; p->rows && i < p->rows->n_open; i++) {
        int s = p->rows->open[i].source;
        if (s < p->n_sources && p->sources[s]) n += p->sources[s]->cap;
    }
    return n;
}

static int listen(builder *b, og__out *o, og__feeder *f) {
    for (int i = 0; i < o->n_feeders; i++)
        if (o->feeders[i] == f) return 0;
    if (o->n_feeders == OG_MAX_FANOUT)
        return og_err_set(b->err, OG_ELIMIT, "a port feeds too many inputs (limit is %d)",
                          OG_MAX_FANOUT);
    o->feeders[o->n_feeders++] = f;
    return 0;
}

static og__out *source_out(builder *b, const og_plan_end *end, int lane) {
    if (end->kind != OG_END_STAGE) return NULL;
    og__job *j = find_job(b->r, end->stage, lane);
    return j && j->base.out[end->port] ? &j->outs[end->port] : NULL;
}

static int no_memory(builder *b) {
    return og_err_set(b->err, OG_ENOMEM, "no memory for the request");
}

static int add_seq(builder *b, og__feeder *f, const og_plan_edge *e, og_hook_emit *em,
                   int lane) {
    for (int i = 0; i < em->n_parts; i++) {
        const og_hook_part *hp = &em->parts[i];
        og__part *p = og__feeder_add(f, hp->source < 0 ? OG_PART_HOST : OG_PART_OUT);
        if (!p) return no_memory(b);
        p->mute = em->mute;
        p->drop = i == 0 ? em->drop : 0;
        if (hp->source < 0) {
            p->n = hp->n;
            p->dtype = OG_I32;
            p->host = og_malloc((size_t)hp->n * sizeof *hp->ids);
            if (!p->host) return no_memory(b);
            memcpy(p->host, hp->ids, (size_t)hp->n * sizeof *hp->ids);
            continue;
        }
        p->out = source_out(b, &e->from[hp->source], lane);
        if (!p->out)
            return og_err_set(b->err, OG_EHOOK, "hook '%s' emitted from '%s', which is absent",
                              e->hook, e->from[hp->source].alias);
        p->from = hp->from;
        p->to = hp->n < 0 ? -1 : hp->from + hp->n;
        int rc = listen(b, p->out, f);
        if (rc < 0) return rc;
    }
    return 0;
}

static int add_rows(builder *b, og__feeder *f, const og_plan_edge *e, og_hook_emit *em,
                    int lane) {
    og__part *p = og__feeder_add(f, OG_PART_ROWS);
    if (!p) return no_memory(b);
    p->rows = em->rows ? og_recipe_ref(em->rows) : NULL;
    p->fill = em->fill ? og_recipe_ref(em->fill) : NULL;
    p->mute = em->mute;
    p->min_tokens = em->min_tokens;
    p->max_tokens = em->max_tokens;
    p->drop = em->drop;
    p->n_sources = p->rows && p->rows->n_sources ? e->n_from : 0;
    for (int s = 0; s < p->n_sources; s++) {
        p->sources[s] = source_out(b, &e->from[s], lane);
        int rc = p->sources[s] ? listen(b, p->sources[s], f) : 0;
        if (rc < 0) return rc;
    }
    return 0;
}

/* A clip of the request, at the rate that the port wants. */
static int add_clip(builder *b, og__feeder *f, const og_plan_edge *e) {
    const og_audio *clip = &b->r->clips[e->from[0].field];
    og__part *p = og__feeder_add(f, OG_PART_HOST);
    if (!p) return no_memory(b);
    p->dtype = OG_F32;
    int to = e->via_rate ? e->via_rate : clip->rate;
    float *x = NULL;
    int rc = og_audio_resample(clip->x, clip->n, clip->rate, to, &x, &p->n, b->err);
    p->host = x;
    if (rc < 0) og_err_field(b->err, b->p->fields[e->from[0].field].name);
    return rc;
}

static const int one_by_one[] = {1};

static int feed_port(builder *b, og__job *j, const og_plan_edge *e, const og_plan_end *to) {
    og__feeder *f = &j->feeders[to->port];
    f->job = j;
    f->port = to->port;
    j->fed[to->port] = true;
    bool stage_source = e->env || e->from[0].kind == OG_END_STAGE;
    if (!e->whole && stage_source) {
        f->chunks = e->n_chunk ? e->chunk : one_by_one;
        f->n_chunks = e->n_chunk ? e->n_chunk : 1;
    }
    int rc = 0;
    if (e->env) {
        og_hook_result *res = &b->r->edges[e->index].hook.result;
        for (int k = 0; k < res->n && rc == 0; k++) {
            og_hook_emit *em = &res->emits[k];
            bool mine = !e->numbered || em->lane == j->lane;
            if (em->kind == OG_HOOK_EMIT_FORK || em->port != to->port || !mine) continue;
            if (!e->numbered && em->lane != 0) continue;
            rc = em->kind == OG_HOOK_EMIT_ROWS ? add_rows(b, f, e, em, j->lane)
                                               : add_seq(b, f, e, em, j->lane);
        }
    } else if (!stage_source) {
        rc = add_clip(b, f, e);
    } else {
        og__part *p = og__feeder_add(f, OG_PART_OUT);
        if (!p) return no_memory(b);
        p->out = source_out(b, &e->from[0], j->lane);
        if (p->out)
            rc = listen(b, p->out, f);
        else
            f->n_parts = 0;
    }
    atomic_store(&f->ready, true);
    return rc;
}

static int feed_job(builder *b, og__job *j) {
    for (int i = 0; i < b->p->n_edges; i++) {
        const og_plan_edge *e = &b->p->edges[i];
        if (!b->r->edge_on[i]) continue;
        for (int k = 0; k < e->n_to; k++) {
            if (e->to[k].kind != OG_END_STAGE || e->to[k].stage != j->stage) continue;
            int rc = feed_port(b, j, e, &e->to[k]);
            if (rc < 0) return rc;
        }
    }
    /* A stream that nobody feeds has ended: its stage must not wait for it. */
    const og_plan_stage *st = &b->p->stages[j->stage];
    for (int p = 0; p < st->n_ports && p < OG_MAX_PORTS; p++) {
        int flags = st->ports[p].flags;
        if (!(flags & OG_PORT_IN) || !(flags & OG_PORT_STREAM) || j->fed[p]) continue;
        j->feeders[p].job = j;
        j->feeders[p].port = p;
        j->fed[p] = true;
        atomic_store(&j->feeders[p].ready, true);
    }
    return 0;
}

/* ---- sizes ------------------------------------------------------------------------ */

static int64_t input_items(const og__job *j, const og_plan_stage *st, const char *only) {
    int64_t most = 0;
    for (int p = 0; p < st->n_ports; p++) {
        if (!j->fed[p] || (only && strcmp(st->ports[p].name, only) != 0)) continue;
        int64_t n = 0;
        for (int i = 0; i < j->feeders[p].n_parts; i++) n += part_items(&j->feeders[p].parts[i]);
        if (n > most) most = n;
    }
    return most;
}

/* A decoder's prompt and the room that is left for tokens. A limit that would not fit is
 * lowered to what does; a prompt without room for one token is refused. */
static int size_decoder(builder *b, og__job *j, const og_plan_stage *st) {
    int64_t rows = input_items(j, st, "prompt");
    int64_t feed = input_items(j, st, "feed");
    if (rows >= st->max_model_len) {
        og_err_set(b->err, OG_ELIMIT,
                   "the prompt has %lld rows and stage '%s' takes %d positions in all "
                   "(max_model_len), so there is no room to decode",
                   (long long)rows, st->name, st->max_model_len);
        return OG_ELIMIT;
    }
    int64_t room = st->max_model_len - rows;
    if (b->r->max_tokens > 0 && room > b->r->max_tokens) room = b->r->max_tokens;
    if (j->base.sampling.max_tokens > room) j->base.sampling.max_tokens = (int32_t)room;
    j->base.max_items = (int32_t)rows;
    j->base.max_feed = (int32_t)feed;
    j->cost = rows + j->base.sampling.max_tokens;
    return 0;
}

static int size_job(builder *b, og__job *j) {
    const og_plan_stage *st = &b->p->stages[j->stage];
    if (st->kind == OG_KIND_AR) return size_decoder(b, j, st);
    int64_t items = input_items(j, st, NULL);
    if (items > INT32_MAX)
        return og_err_set(b->err, OG_ELIMIT, "stage '%s' would take %lld items (limit is %d)",
                          st->name, (long long)items, INT32_MAX);
    j->base.max_items = (int32_t)items;
    j->cost = items > 0 ? items : 1;
    return 0;
}

static og__out *init_out(og__job *j, int p, const og_plan_port *port) {
    og__out *o = &j->outs[p];
    o->base.hooks = &og__engine_hooks;
    o->job = j;
    o->port = p;
    o->dtype = port->dtype;
    o->item_bytes = port->item_bytes;
    bool scalar = port->type.kind == OG_TYPE_AUDIO || port->type.kind == OG_TYPE_TOKENS;
    o->width = scalar ? 0 : port->width;
    return o;
}

/* Most items of an output for so many input items; whole outputs may be fewer. */
static int64_t most_items(const og_plan_stage *st, int port, int64_t items) {
    int64_t fewer = st->node.in_items_per_out_item[port], per = st->ports[port].per_item;
    if (fewer > 0) return (items + fewer - 1) / fewer;
    return items * (per > 0 ? per : 1);
}

static int open_outs(builder *b, og__job *j) {
    const og_plan_stage *st = &b->p->stages[j->stage];
    int live = 0;
    for (int p = 0; p < st->n_ports && p < OG_MAX_PORTS; p++) {
        const og_plan_port *port = &st->ports[p];
        bool client = false, keep = false;
        if (!(port->flags & OG_PORT_OUT)) continue;
        bool read = is_read(b, port, &client);
        if (!is_tapped(b->r, st, port->name, &keep) && !read) continue;
        og__out *o = init_out(j, p, port);
        o->keep = keep;
        o->response = client;
        bool prompt = !(port->flags & OG_PORT_STREAM);
        if (st->kind == OG_KIND_AR)
            o->cap = prompt ? j->base.max_items : j->base.sampling.max_tokens;
        else
            o->cap = most_items(st, p, j->base.max_items);
        if (client && !keep)
            o->window = (int64_t)(b->r->e->opts.window_bytes / (o->item_bytes ? o->item_bytes : 1));
        int rc = og__out_map(o, b->err);
        if (rc < 0) return rc;
        j->base.out[p] = &o->base;
        live++;
    }
    atomic_init(&j->live_outs, live);
    return 0;
}

/* ---- presets ----------------------------------------------------------------------- */

static int preset_out(builder *b, const og__preset *s) {
    og__job *j = find_job(b->r, s->stage, 0);
    if (!j) {
        if (!(j = new_job(b, s->stage, 0))) return no_memory(b);
        j->retired = true;
        atomic_store(&j->retire_posted, true);
        b->r->n_preset_jobs++;
    }
    og__out *o = init_out(j, s->port, &b->p->stages[s->stage].ports[s->port]);
    o->cap = s->n;
    o->keep = true;
    int rc = og__out_map(o, b->err);
    if (rc < 0) return rc;
    memcpy(o->buf, s->data, s->bytes);
    atomic_store(&o->produced, s->n);
    atomic_store(&o->last, true);
    j->base.out[s->port] = &o->base;
    return 0;
}

/* Whether every output of the stage that somebody reads is preset. */
static int check_preset(builder *b, int field, int stage) {
    const og_plan_stage *st = &b->p->stages[stage];
    const og__job *j = find_job(b->r, stage, 0);
    for (int i = 0; i < st->n_ports; i++) {
        bool client = false;
        bool read = (st->ports[i].flags & OG_PORT_OUT) && is_read(b, &st->ports[i], &client);
        if (!read || (j && j->base.out[i])) continue;
        og_err_set(b->err, OG_EREJECT, "the saved voice has no %s.%s, which this request needs",
                   st->name, st->ports[i].name);
        og_err_field(b->err, b->p->fields[field].name);
        return OG_EREJECT;
    }
    return 0;
}

int og__request_preset(og_request *r, og_err *err) {
    builder b = {.r = r, .p = r->plan, .err = err};
    int rc = 0;
    for (int i = 0; i < r->n_presets && rc == 0; i++)
        if (r->stage_on[r->presets[i].stage]) rc = preset_out(&b, &r->presets[i]);
    for (int i = 0; r->n_presets && i < b.p->n_edges && rc == 0; i++) {
        const og_plan_edge *e = &b.p->edges[i];
        bool media = !e->env && e->from[0].kind == OG_END_REQUEST && r->edge_on[i];
        if (!media || r->clips[e->from[0].field].x) continue;
        for (int k = 0; k < e->n_to && rc == 0; k++)
            if (e->to[k].kind == OG_END_STAGE && r->stage_on[e->to[k].stage])
                rc = check_preset(&b, e->from[0].field, e->to[k].stage);
    }
    return rc;
}

/* ---- response ---------------------------------------------------------------------- */

static int add_sink(builder *b, const og_plan_edge *e) {
    og_request *r = b->r;
    const og_plan_end *from = &e->from[0];
    og__sink *s = &r->sinks[r->n_sinks];
    memset(s, 0, sizeof *s);
    s->response = e->to[0].response;
    for (int lane = 0; lane < b->lanes[from->stage]; lane++) {
        og__job *j = find_job(r, from->stage, lane);
        if (!j || j->lane != lane || !j->base.out[from->port]) continue;
        s->lanes[s->n_lanes++] = &j->outs[from->port];
    }
    if (s->n_lanes == 0) return 0;
    int rate = b->p->responses[s->response].rate;
    s->gap = (int64_t)(e->join_gap * rate + 0.5);
    /* Joined lanes are answered one after another but made together: the later ones are a
     * spool and must not stop their stage. */
    for (int i = 0; s->n_lanes > 1 && i < s->n_lanes; i++) s->lanes[i]->window = 0;
    r->n_sinks++;
    return 0;
}

static int build_stage(builder *b, int stage) {
    int n = b->lanes[stage] = count_lanes(b, stage);
    if (n > OG_MAX_LANES)
        return og_err_set(b->err, OG_ELIMIT, "the request makes %d lanes (limit is %d)", n,
                          OG_MAX_LANES);
    for (int lane = 0; lane < n; lane++) {
        og__job *j = new_job(b, stage, lane);
        if (!j) return no_memory(b);
        int rc = feed_job(b, j);
        if (rc == 0) rc = size_job(b, j);
        if (rc == 0) rc = open_outs(b, j);
        if (rc < 0) return rc;
    }
    return 0;
}

int og__request_build(og_request *r, og_err *err) {
    builder b = {.r = r, .p = r->plan, .err = err};
    unsigned char wave[MAX_STAGES] = {0};
    if (b.p->n_stages > MAX_STAGES)
        return og_err_set(err, OG_ELIMIT, "too many stages (limit is %d)", MAX_STAGES);
    og__request_wave(r, wave);
    r->wave_from = r->n_jobs;
    for (int i = 0; i < r->n_jobs; i++) /* lanes of the stages of earlier waves */
        if (r->jobs[i]->lane + 1 > b.lanes[r->jobs[i]->stage])
            b.lanes[r->jobs[i]->stage] = r->jobs[i]->lane + 1;
    for (int i = 0; i < b.p->n_order; i++) {
        int stage = b.p->order[i];
        int rc = wave[stage] ? build_stage(&b, stage) : 0;
        if (rc < 0) return rc;
    }
    if (!r->final) return 0;
    r->sinks = og_calloc((size_t)b.p->n_responses + 1, sizeof *r->sinks);
    if (!r->sinks) return no_memory(&b);
    for (int i = 0; i < b.p->n_edges; i++) {
        const og_plan_edge *e = &b.p->edges[i];
        if (!e->client || !r->edge_on[i]) continue;
        int rc = add_sink(&b, e);
        if (rc < 0) return rc;
    }
    if (r->n_sinks == 0 && !r->taps_only)
        return og_err_set(err, OG_EINVAL, "this request has no output");
    return 0;
}
