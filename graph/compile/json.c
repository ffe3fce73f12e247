/* The plan as JSON. Every helper takes NULL for "out of memory" and passes it on, so that
 * one test at the end is enough. */
#include "graph/compile/plan.h"

#include <string.h>

/* Put v (owned) into obj. NULL obj or v: everything is given up. */
static json_t *put(json_t *obj, const char *key, json_t *v) {
    if (!obj || !v || json_object_set_new(obj, key, v) < 0) {
        if (!obj) {
            json_decref(v);
        }
        json_decref(obj);
        return NULL;
    }
    return obj;
}

static json_t *append(json_t *list, json_t *v) {
    if (!list || !v || json_array_append_new(list, v) < 0) {
        if (!list) {
            json_decref(v);
        }
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *text(const char *s) {
    return s ? json_string(s) : json_null();
}

static json_t *type_json(const og_type *t) {
    og_str s = OG_STR_INIT;
    if (t->kind == OG_TYPE_KIND_COUNT) {
        return json_null();
    }
    og_type_print(t, &s);
    json_t *v = s.oom ? NULL : json_string(s.data ? s.data : "");
    og_str_free(&s);
    return v;
}

static json_t *cond_json(const og_cond *c) {
    og_str s = OG_STR_INIT;
    if (!c) {
        return json_null();
    }
    og_cond_print(c, &s);
    json_t *v = s.oom ? NULL : json_string(s.data ? s.data : "");
    og_str_free(&s);
    return v;
}

static json_t *src_json(og_src src) {
    return json_pack("{s:s?,s:i,s:i}", "file", src.file, "line", src.line, "col",
                     src.col);
}

static json_t *ints(const int *v, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        list = append(list, json_integer(v[i]));
    }
    return list;
}

static json_t *texts(const char *const *v, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        list = append(list, text(v[i]));
    }
    return list;
}

static json_t *sampling_json(const og_sampling *s) {
    json_t *o = json_pack(
        "{s:f,s:f,s:f,s:i,s:f,s:f,s:f,s:i,s:i}", "temperature", (double)s->temperature,
        "top_p", (double)s->top_p, "min_p", (double)s->min_p, "top_k", (int)s->top_k,
        "repetition_penalty", (double)s->repetition_penalty, "presence_penalty",
        (double)s->presence_penalty, "frequency_penalty", (double)s->frequency_penalty,
        "min_tokens", (int)s->min_tokens, "max_tokens", (int)s->max_tokens);
    return put(o, "stop_token_ids", ints(s->stop, s->n_stop));
}

static json_t *ports_json(const og_plan_stage *s, int flag) {
    json_t *o = json_object();
    for (int i = 0; i < s->n_ports; i++) {
        if (s->ports[i].flags & flag) {
            o = put(o, s->ports[i].name, type_json(&s->ports[i].type));
        }
    }
    return o;
}

static json_t *replicas_json(const og_plan *p, const og_plan_stage *s) {
    json_t *list = json_array();
    for (int i = 0; i < s->n_replicas; i++) {
        int g = s->replicas[i].group;
        list = append(list, text(g >= 0 ? p->groups[g].name : NULL));
    }
    return list;
}

static json_t *options_json(const og_plan_stage *s) {
    json_t *o = json_object();
    for (int i = 0; i < s->n_options; i++) {
        o = put(o, s->options[i].name, text(s->options[i].text));
    }
    return o;
}

static json_t *stage_json(const og_plan *p, const og_plan_stage *s) {
    json_t *o = json_pack(
        "{s:s,s:i,s:s,s:s,s:s,s:i,s:i,s:i,s:I}", "name", s->name, "id", s->stage_id,
        "node", s->kind_name, "arch", s->arch_name, "weights", s->folder, "max_num_seqs",
        s->max_num_seqs, "max_model_len", s->max_model_len, "max_num_batched_tokens",
        s->max_num_batched_tokens, "stage_key", (json_int_t)s->stage_key);
    o = put(o, "known", json_boolean(s->arch != NULL));
    o = put(o, "when", cond_json(s->when));
    o = put(o, "in", ports_json(s, OG_PORT_IN));
    o = put(o, "out", ports_json(s, OG_PORT_OUT));
    o = put(o, "replicas", replicas_json(p, s));
    o = put(o, "options", options_json(s));
    if (s->kind == OG_KIND_AR) {
        o = put(o, "sampling", sampling_json(&s->sampling));
        o = put(o, "head_sampling", sampling_json(&s->head_sampling));
    }
    if (s->has_node_plan) {
        o = put(o, "memory",
                json_pack("{s:I,s:I,s:I}", "weights", (json_int_t)s->node.weight_bytes,
                          "kv", (json_int_t)s->node.kv_bytes, "state",
                          (json_int_t)s->node.state_bytes));
    }
    return put(o, "source", src_json(s->src));
}

static json_t *end_json(const og_plan_end *e) {
    json_t *o = json_pack("{s:s,s:s?,s:b,s:b}", "port", e->text, "as", e->alias,
                          "optional", e->optional, "stream", e->stream);
    return put(o, "type", type_json(&e->type));
}

static json_t *ends_json(const og_plan_end *e, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        list = append(list, end_json(&e[i]));
    }
    return list;
}

static json_t *edge_json(const og_plan_edge *e) {
    static const char *const via[] = {NULL,     "resample",       "detokenize",
                                      "resize", "split sentence", "split clause"};
    json_t *o = json_object();
    o = put(o, "from", ends_json(e->from, e->n_from));
    o = put(o, "to", ends_json(e->to, e->n_to));
    o = put(o, "hook", text(e->hook));
    o = put(o, "via", text(via[e->via]));
    o = put(o, "type", type_json(&e->type));
    o = put(o, "whole", json_boolean(e->whole));
    o = put(o, "chunk", ints(e->chunk, e->n_chunk));
    o = put(o, "lanes", e->numbered ? text("numbered") : texts(e->lanes, e->n_lanes));
    o = put(o, "join", e->join ? json_pack("{s:f}", "gap", e->join_gap) : json_null());
    o = put(o, "when", cond_json(e->when));
    o = put(o, "cast", text(e->cast));
    o = put(o, "connector", text(e->connector));
    o = put(o, "max_items", json_integer(e->max_items));
    o = put(o, "budget_bytes", json_integer((json_int_t)e->budget_bytes));
    return put(o, "source", src_json(e->src));
}

static json_t *field_json(const og_plan_field *f) {
    json_t *o = json_object();
    o = put(o, "name", text(f->name));
    o = put(o, "type", type_json(&f->type));
    o = put(o, "default", f->def ? json_deep_copy(f->def) : json_null());
    o = put(o, "one_of", texts(f->one_of, f->n_one_of));
    o = put(o, "min", f->has_min ? json_real(f->min) : json_null());
    o = put(o, "max", f->has_max ? json_real(f->max) : json_null());
    return put(o, "step", f->has_step ? json_real(f->step) : json_null());
}

static json_t *groups_json(const og_plan *p) {
    json_t *list = json_array();
    for (int i = 0; i < p->n_groups; i++) {
        const og_plan_group *g = &p->groups[i];
        json_t *names = json_array();
        for (int k = 0; k < g->n_stages; k++) {
            names = append(names, text(p->stages[g->stages[k]].name));
        }
        json_t *o = put(json_object(), "name", text(g->name));
        list = append(list, put(o, "stages", names));
    }
    return list;
}

static json_t *share_json(const og_plan *p, const og_plan_device *d,
                          const og_plan_share *h) {
    const og_plan_stage *s = &p->stages[h->stage];
    json_t *o = json_pack(
        "{s:s,s:i,s:I,s:I,s:I,s:I,s:I,s:I}", "stage", s->name, "replica", h->replica,
        "planned", (json_int_t)h->bytes, "weights", (json_int_t)h->weight_bytes, "kv",
        (json_int_t)h->kv_bytes, "kv_pages", (json_int_t)s->node.kv_pages,
        "kv_page_bytes", (json_int_t)s->node.kv_page_bytes, "state",
        (json_int_t)h->state_bytes);
    bool part = h->utilization > 0;
    o = put(o, "gpu_memory_utilization", part ? json_real(h->utilization) : json_null());
    if (!part) {
        return o;
    }
    double limit = (double)d->memory * h->utilization;
    return put(o, "limit", d->memory ? json_integer((json_int_t)limit) : json_null());
}

static json_t *devices_json(const og_plan *p) {
    json_t *list = json_array();
    for (int i = 0; i < p->n_devices; i++) {
        const og_plan_device *d = &p->devices[i];
        json_t *shares = json_array();
        for (int k = 0; k < d->n_shares; k++) {
            shares = append(shares, share_json(p, d, &d->shares[k]));
        }
        json_t *o = json_pack("{s:s,s:I}", "device", d->name, "planned",
                              (json_int_t)d->bytes);
        json_int_t all = (json_int_t)d->memory, left = all - (json_int_t)d->bytes;
        o = put(o, "memory", all ? json_integer(all) : json_null());
        o = put(o, "left", all ? json_integer(left) : json_null());
        list = append(list, put(o, "stages", shares));
    }
    return list;
}

static json_t *memory_json(const og_plan *p) {
    json_t *o = json_pack("{s:I,s:I,s:I,s:I}", "weights", (json_int_t)p->weight_bytes,
                          "kv", (json_int_t)p->kv_bytes, "state",
                          (json_int_t)p->state_bytes, "request",
                          (json_int_t)p->edge_bytes);
    return put(o, "devices", devices_json(p));
}

static json_t *overlay_json(const og_plan *p, og_overlay_part part) {
    og_str s = OG_STR_INIT;
    og_overlay_json(p->overlay, part, &s);
    json_t *v = s.oom || !s.data ? NULL : json_loads(s.data, JSON_DECODE_ANY, NULL);
    og_str_free(&s);
    return v ? v : json_null();
}

json_t *og_plan_json(const og_plan *p) {
    json_t *stages = json_array(), *edges = json_array(), *fields = json_array();
    for (int i = 0; i < p->n_order; i++) {
        stages = append(stages, stage_json(p, &p->stages[p->order[i]]));
    }
    for (int i = 0; i < p->n_edges; i++) {
        edges = append(edges, edge_json(&p->edges[i]));
    }
    for (int i = 0; i < p->n_fields; i++) {
        fields = append(fields, field_json(&p->fields[i]));
    }
    json_t *o = json_pack("{s:s,s:s,s:s?,s:s,s:b}", "pipeline", p->name, "file", p->file,
                          "model", p->model_dir, "fingerprint", p->fingerprint_hex,
                          "runnable", p->runnable);
    o = put(o, "blockers", texts(p->blockers, p->n_blockers));
    o = put(o, "request", fields);
    o = put(o, "stages", stages);
    o = put(o, "edges", edges);
    o = put(o, "executors", groups_json(p));
    o = put(o, "memory", memory_json(p));
    o = put(o, "merged", overlay_json(p, OG_OVERLAY_MERGED));
    return put(o, "effective", overlay_json(p, OG_OVERLAY_EFFECTIVE));
}
