/* `check --request`: run the hooks of one request and print what they emit. Values of the
 * request are its own; what a stage would have made stands in as a placeholder: a stream
 * is open, a whole sequence has as many items as PLACEHOLDER_ITEMS says. */
#include "graph/compile/plan.h"

#include <stdio.h>
#include <string.h>

enum { PLACEHOLDER_ITEMS = 4 };

static og_hook_kind kind_of(const og_type *t) {
    switch (t->kind) {
    case OG_TYPE_TEXT: return OG_HOOK_TEXT;
    case OG_TYPE_TOKENS: return OG_HOOK_IDS;
    case OG_TYPE_CODES: return OG_HOOK_CODES;
    case OG_TYPE_MESSAGES: return OG_HOOK_MESSAGES;
    case OG_TYPE_AUDIO:
    case OG_TYPE_IMAGE:
    case OG_TYPE_VIDEO: return OG_HOOK_MEDIA;
    default: return OG_HOOK_VECTOR;
    }
}

static int32_t width_of(const og_type *t) {
    return t->n_dims && t->dims[t->n_dims - 1].kind == OG_DIM_CONST
               ? (int32_t)t->dims[t->n_dims - 1].value
               : 0;
}

static const int32_t zero_ids[PLACEHOLDER_ITEMS];

static void stage_source(const og_plan_end *e, bool on, og_hook_source *s,
                         og_hook_source *item) {
    s->kind = kind_of(&e->type);
    s->present = on;
    s->open = e->stream;
    s->count = s->kind == OG_HOOK_VECTOR && !e->stream ? 1 : PLACEHOLDER_ITEMS;
    s->width = width_of(&e->type);
    s->ids = s->kind == OG_HOOK_IDS ? zero_ids : NULL;
    if (e->type.list) {
        *item = *s;
        s->kind = OG_HOOK_LIST;
        s->items = item;
        s->n_items = 1;
    }
}

static void request_source(const og_plan *p, const og_plan_end *e, const json_t *req,
                           og_hook_source *s, og_hook_source *item) {
    const json_t *v = json_object_get(req, p->fields[e->field].name);
    s->kind = kind_of(&e->type);
    s->present = v && !json_is_null(v) && !e->part;
    s->json = v;
    s->text = json_string_value(v);
    s->text_len = json_string_length(v);
    if (s->kind == OG_HOOK_MEDIA && !json_is_object(v)) {
        s->json = NULL;
    }
    if (e->type.list) {
        *item = *s;
        item->json = json_array_get(v, 0);
        item->text = json_string_value(item->json);
        item->text_len = json_string_length(item->json);
        s->kind = OG_HOOK_LIST;
        s->items = item;
        s->n_items = json_array_size(v) ? 1 : 0;
    }
}

typedef struct run {
    const og_plan *p;
    const json_t *req;
    const unsigned char *stage_on;
    og_hook_vm *vm;
    og_hook_state *state;
    og_str *out;
    og_diags *notes;
} run;

static void heading(const run *r, const og_plan_edge *e) {
    og_str_addf(r->out, "hook %s", e->hook);
    bool first = true;
    for (int i = 0; i < e->n_from; i++) {
        if (e->from[i].stage >= 0 && r->stage_on[e->from[i].stage]) {
            og_str_addf(r->out, "%s%s", first ? "  with placeholders for " : ", ",
                        e->from[i].text);
            first = false;
        }
    }
    og_str_add(r->out, "\n");
}

static int run_edge(const run *r, const og_plan_edge *e, og_err *err) {
    size_t n = (size_t)e->n_from;
    og_hook_source *sources = og_calloc(2 * n + 1, sizeof *sources);
    og_hook_result res = OG_HOOK_RESULT_INIT;
    if (!sources) {
        return og_err_set(err, OG_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        const og_plan_end *f = &e->from[i];
        if (f->kind == OG_END_STAGE) {
            stage_source(f, r->stage_on[f->stage], &sources[i], &sources[n + i]);
        } else {
            request_source(r->p, f, r->req, &sources[i], &sources[n + i]);
        }
    }
    og_hook_request request = {.fields = r->req, .state = r->state};
    og_hook_call call = {.env = e->env, .request = &request, .sources = sources};
    int rc = og_hook_run(r->vm, &call, &res, err);
    if (rc == 0) {
        heading(r, e);
        og_hook_print(&res, e->env, r->out);
    }
    for (int i = 0; i < res.n_logs; i++) {
        if (res.warnings >> i & 1)
            og_diags_warn(r->notes, e->src, "%s", res.logs[i]);
        else
            og_diags_note(r->notes, e->src, "%s: %s", e->hook, res.logs[i]);
    }
    og_hook_result_free(&res);
    og_free(sources);
    return rc;
}

static int run_edges(run *r, const unsigned char *edge_on, og_err *err) {
    int rc = 0;
    /* What runs at admission comes first, so that a rejection is the first thing seen. */
    for (int pass = 0; pass < 2 && rc == 0; pass++) {
        for (int i = 0; i < r->p->n_edges && rc == 0; i++) {
            const og_plan_edge *e = &r->p->edges[i];
            if (e->env && e->env->to && edge_on[i] && e->at_admission == (pass == 0)) {
                rc = run_edge(r, e, err);
            }
        }
    }
    return rc;
}

int og_plan_check_request(const og_plan *p, const json_t *request, og_str *out,
                          og_diags *notes, og_err *err) {
    json_t *body = NULL;
    unsigned char *on = og_calloc((size_t)(p->n_stages + p->n_edges) + 1, 1);
    run r = {.p = p, .stage_on = on, .out = out, .notes = notes};
    int rc = on ? 0 : og_err_set(err, OG_ENOMEM, "out of memory");
    if (rc == 0) {
        rc = og_plan_request_check(p, request, &body, notes, err);
    }
    if (rc == 0) {
        rc = og_plan_gate(p, body, NULL, 0, on, on + p->n_stages, err);
    }
    if (rc == 0) {
        rc = og_hook_vm_create(NULL, &r.vm, err);
    }
    if (rc == 0 && !(r.state = og_hook_state_create())) {
        rc = og_err_set(err, OG_ENOMEM, "out of memory");
    }
    if (rc == 0) {
        r.req = body;
        rc = run_edges(&r, on + p->n_stages, err);
    }
    if (r.state) {
        og_hook_vm_release(r.vm, r.state);
    }
    og_hook_vm_destroy(r.vm);
    json_decref(body);
    og_free(on);
    return rc;
}
