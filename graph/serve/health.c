/* How the server is, and what it serves. */
#include "graph/run/reload.h"
#include "graph/serve/server.h"

static const char *replica_state(og_engine *e, int stage, int replica) {
    static const char *const names[] = {"up", "rebuilding", "down", "leaving"};
    return names[og_engine_replica_state(e, stage, replica)];
}

/* A replica, as its executor saw it last. *up counts those that serve. */
static json_t *replica_json(og_engine *e, int stage, int replica, int *up) {
    og_node_stats n = {0};
    const char *state = replica_state(e, stage, replica);
    *up += state[0] == 'u';
    if (og_engine_node_stats(e, stage, replica, &n) < 0) n = (og_node_stats){0};
    return json_pack("{s:i, s:s, s:i, s:i, s:I, s:I}", "replica", replica, "state", state,
                     "slots", n.slots, "slots_used", n.slots_used, "kv_pages",
                     (json_int_t)n.kv_pages, "kv_pages_used", (json_int_t)n.kv_pages_used);
}

static json_t *model_json(const og__model *m, bool *serves) {
    const og_plan *p = og_engine_plan(m->engine);
    og_engine_stats es;
    og_engine_get_stats(m->engine, &es);
    json_t *stages = json_array();
    *serves = true;
    for (int i = 0; i < p->n_stages; i++) {
        json_t *replicas = json_array();
        int up = 0;
        for (int r = 0; r < p->stages[i].n_replicas; r++)
            json_array_append_new(replicas, replica_json(m->engine, i, r, &up));
        *serves &= up > 0;
        json_array_append_new(
            stages, json_pack("{s:s, s:b, s:o}", "stage", p->stages[i].name, "up", up > 0,
                              "replicas", replicas));
    }
    json_t *j = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:o}", "model", m->name, "pipeline",
                          p->name, "requests", es.requests, "queued", es.queued, "generation",
                          es.generation, "rebuilt", es.rebuilt, "stages", stages);
    og_plan_unref(p);
    return j;
}

void og__get_health(og__call *c) {
    og_server *s = c->server;
    json_t *models = json_array();
    bool up = true;
    pthread_mutex_lock(&s->mu);
    int n = s->n_models;
    og__state state = s->state;
    const char *why = s->broken ? s->why : NULL;
    pthread_mutex_unlock(&s->mu);
    for (int i = 0; i < n; i++) {
        bool serves;
        json_array_append_new(models, model_json(&s->models[i], &serves));
        up &= serves;
    }
    const char *word = why                     ? "broken"
                       : state == OG__LOADING  ? "loading"
                       : state == OG__DRAINING ? "draining"
                       : up                    ? "ok"
                                               : "degraded";
    og__reply_json(c, word[0] == 'o' ? 200 : 503,
                   json_pack("{s:s, s:s*, s:f, s:o}", "status", word, "reason", why, "uptime",
                             og__clock() - s->t_start, "models", models));
}

static json_t *describe(const og__model *m, const char *name) {
    const og_plan *p = og_engine_plan(m->engine);
    json_t *j = json_pack("{s:s, s:s, s:I, s:s, s:s, s:s}", "id", name, "object", "model",
                          "created", (json_int_t)m->created, "owned_by", "omni-graph",
                          "pipeline", p->name, "root", m->name);
    og_plan_unref(p);
    return j;
}

void og__get_models(og__call *c) {
    og_server *s = c->server;
    json_t *data = json_array();
    pthread_mutex_lock(&s->mu);
    int n = s->n_models;
    pthread_mutex_unlock(&s->mu);
    for (int i = 0; i < n; i++) {
        const og__model *m = &s->models[i];
        json_array_append_new(data, describe(m, m->name));
        for (int k = 0; k < m->n_aliases; k++)
            json_array_append_new(data, describe(m, m->aliases[k]));
    }
    og__reply_json(c, 200, json_pack("{s:s, s:o}", "object", "list", "data", data));
}

void og__get_model(og__call *c) {
    const og__model *m = og__server_model(c->server, c->param);
    if (m)
        og__reply_json(c, 200, describe(m, c->param));
    else
        og__reply_error(c, 404, "model", "model_not_found", "the model '%s' does not exist",
                        c->param);
}
