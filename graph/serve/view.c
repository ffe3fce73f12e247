/* GET /v1/graph: the plans in force and their counters. */
#include <string.h>
#include <stddef.h>
#include <time.h>

#include "graph/run/reload.h"
#include "graph/serve/metrics.h"
#include "graph/serve/view.h"

#define NODE(field) offsetof(og__replica_view, node.field)
#define STEPS(field) offsetof(og__replica_view, steps.field)

const og__counter og__counters[] = {
    {"up", OG__COUNT_INT, offsetof(og__replica_view, up), false, "1 while the replica serves."},
    {"slots", OG__COUNT_INT, NODE(slots), false, "Sequences that the replica steps together."},
    {"slots_used", OG__COUNT_INT, NODE(slots_used), false, "Sequences that it holds."},
    {"kv_pages", OG__COUNT_I64, NODE(kv_pages), false, "Pages of its KV pool."},
    {"kv_pages_used", OG__COUNT_I64, NODE(kv_pages_used), false,
     "KV pages held by sequences or promised to them."},
    {"kv_pages_cached", OG__COUNT_I64, NODE(kv_pages_cached), false,
     "KV pages kept for prompts that begin alike."},
    {"prefix_rows_hit", OG__COUNT_I64, NODE(prefix_rows_hit), true,
     "Prompt rows taken from kept pages."},
    {"prefix_rows", OG__COUNT_I64, NODE(prefix_rows_total), true, "Prompt rows, all of them."},
    {"steps", OG__COUNT_I64, STEPS(steps), true, "Steps that found work."},
    {"step_seconds", OG__COUNT_REAL, STEPS(seconds), true, "Time spent in these steps."},
    {"batch_jobs", OG__COUNT_I64, STEPS(jobs), true,
     "Sequences that took part, summed over steps: over steps it is the batch size."},
    {"rows", OG__COUNT_I64, STEPS(rows), true, "Rows computed, summed over steps."},
    {"prefill_rows", OG__COUNT_I64, STEPS(prefill), true, "Prompt rows among them."},
    {"weight_bytes", OG__COUNT_SIZE, NODE(weight_bytes), false,
     "Bytes of weights; replicas of one place share them."},
    {"state_bytes", OG__COUNT_SIZE, NODE(state_bytes), false,
     "Bytes of sequences' state and KV."},
    {"cache_hits", OG__COUNT_I64, NODE(cache_hits), true, "Results found in the cache."},
    {"cache_misses", OG__COUNT_I64, NODE(cache_misses), true, "Results that had to be made."},
    {"cache_bytes", OG__COUNT_SIZE, NODE(cache_bytes), false, "Bytes of cached results."},
    {0},
};

double og__counter_value(const og__counter *c, const og__replica_view *r) {
    const char *at = (const char *)r + c->offset;
    switch (c->type) {
    case OG__COUNT_INT: return *(const int *)at;
    case OG__COUNT_I64: return (double)*(const int64_t *)at;
    case OG__COUNT_SIZE: return (double)*(const size_t *)at;
    default: return *(const double *)at;
    }
}

/* ---- the view --------------------------------------------------------------------------- */

/* What a reload took away meanwhile is down, with zeros. */
static void look_at_replica(const og__model *m, const og_plan *p, int stage, int replica,
                            og__replica_view *out) {
    static const char *const names[] = {"up", "rebuilding", "down", "leaving"};
    const og_plan_stage *st = &p->stages[stage];
    og_replica_state state = og_engine_replica_state(m->engine, stage, replica);
    int group = st->replicas[replica].group;
    *out = (og__replica_view){.model = m->name,
                              .stage = st->name,
                              .place = group >= 0 ? p->groups[group].name : "",
                              .stage_index = stage,
                              .replica = replica,
                              .state = names[state],
                              .up = state == OG_REPLICA_UP};
    if (og_engine_node_stats(m->engine, stage, replica, &out->node) < 0)
        out->node = (og_node_stats){0};
    if (og_engine_step_totals(m->engine, stage, replica, &out->steps) < 0)
        out->steps = (og_step_totals){0};
}

static int look_at_model(const og__model *m, og__model_view *v) {
    const og_plan *p = og_engine_plan(m->engine);
    int n = 0;
    *v = (og__model_view){.model = m, .plan = p};
    og_engine_get_stats(m->engine, &v->engine);
    for (int i = 0; i < p->n_stages; i++) n += p->stages[i].n_replicas;
    v->replicas = og_calloc((size_t)n + 1, sizeof *v->replicas);
    if (!v->replicas) return OG_ENOMEM;
    for (int k = 0; k < p->n_order; k++) {
        int i = p->order[k];
        for (int r = 0; r < p->stages[i].n_replicas && v->n_replicas < n; r++)
            look_at_replica(m, p, i, r, &v->replicas[v->n_replicas++]);
    }
    return 0;
}

int og__view_take(og_server *s, const og__model *only, og__view *v) {
    *v = (og__view){0};
    pthread_mutex_lock(&s->mu);
    int n = s->n_models;
    pthread_mutex_unlock(&s->mu);
    v->models = og_calloc((size_t)n + 1, sizeof *v->models);
    int rc = v->models ? 0 : OG_ENOMEM;
    for (int i = 0; i < n && rc == 0; i++) {
        if (only && only != &s->models[i]) continue;
        rc = look_at_model(&s->models[i], &v->models[v->n_models++]);
    }
    if (rc < 0) og__view_free(v);
    return rc;
}

void og__view_free(og__view *v) {
    for (int i = 0; i < v->n_models; i++) {
        og_plan_unref(v->models[i].plan);
        og_free(v->models[i].replicas);
    }
    og_free(v->models);
    *v = (og__view){0};
}

/* ---- JSON ------------------------------------------------------------------------------- */

static json_t *replica_json(const og__replica_view *r) {
    json_t *j = json_pack("{s:i, s:s, s:s}", "replica", r->replica, "place", r->place, "state",
                          r->state);
    for (const og__counter *c = og__counters; c->name; c++) {
        double x = og__counter_value(c, r);
        json_object_set_new(j, c->name,
                            c->type == OG__COUNT_REAL ? json_real(x) : json_integer((json_int_t)x));
    }
    return j;
}

static json_t *stages_json(const og__model_view *v) {
    json_t *stages = json_array(), *replicas = NULL;
    int last = -1;
    for (int i = 0; i < v->n_replicas; i++) {
        const og__replica_view *r = &v->replicas[i];
        if (r->stage_index != last) {
            replicas = json_array();
            json_array_append_new(
                stages, json_pack("{s:s, s:o}", "stage", r->stage, "replicas", replicas));
        }
        last = r->stage_index;
        json_array_append_new(replicas, replica_json(r));
    }
    return stages;
}

static json_t *requests_json(const og_engine_stats *e) {
    return json_pack("{s:i, s:i, s:I, s:I, s:I, s:I, s:i}", "running", e->requests - e->queued,
                     "queued", e->queued, "admitted", (json_int_t)e->admitted, "finished",
                     (json_int_t)e->finished, "failed", (json_int_t)e->failed, "buffer_bytes",
                     (json_int_t)e->buffer_bytes, "rebuilt", e->rebuilt);
}

static json_t *speech_json(og_server *s, const og__model *m) {
    og__speech_totals t;
    og__metrics_totals(s, m, &t);
    return json_pack("{s:I, s:I, s:I, s:f}", "answered", (json_int_t)t.ok, "failed",
                     (json_int_t)t.failed, "underruns", (json_int_t)t.underruns, "audio_seconds",
                     t.audio_s);
}

static json_t *model_json(og_server *s, const og__model_view *v) {
    const og__model *m = v->model;
    json_t *aliases = json_array();
    for (int i = 0; i < m->n_aliases; i++)
        json_array_append_new(aliases, og__text_json(m->aliases[i]));
    json_t *j = json_pack("{s:o, s:o, s:i, s:f}", "model", og__text_json(m->name), "aliases",
                          aliases, "generation", v->engine.generation, "load_seconds",
                          v->engine.load_s);
    json_t *plan = og_plan_json(v->plan), *reload = og_engine_reload_status(m->engine);
    json_object_set_new(j, "requests", requests_json(&v->engine));
    json_object_set_new(j, "speech", speech_json(s, m));
    json_object_set_new(j, "stages", stages_json(v));
    json_object_set_new(j, "reload", reload ? reload : json_null());
    json_object_set_new(j, "plan", plan ? plan : json_null());
    return j;
}

static json_t *view_json(og_server *s, const og__view *v) {
    static const char *const states[] = {"loading", "ready", "draining"};
    json_t *models = json_array();
    for (int i = 0; i < v->n_models; i++)
        json_array_append_new(models, model_json(s, &v->models[i]));
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return json_pack("{s:s, s:f, s:f, s:o}", "state", states[og__server_state(s)], "time",
                     (double)t.tv_sec + 1e-9 * (double)t.tv_nsec, "uptime",
                     og__clock() - s->t_start, "models", models);
}

void og__get_graph(og__call *c) {
    og__view v;
    const og__model *only = c->param[0] ? og__server_model(c->server, c->param) : NULL;
    if (c->param[0] && !only) {
        og__reply_error(c, 404, "model", "model_not_found", "the model '%s' does not exist",
                        c->param);
        return;
    }
    if (og__view_take(c->server, only, &v) < 0) {
        og__reply_error(c, 503, NULL, "out_of_memory", "out of memory");
        return;
    }
    og__reply_header(c, "cache-control", "no-store");
    og__reply_json(c, 200, view_json(c->server, &v));
    og__view_free(&v);
}
