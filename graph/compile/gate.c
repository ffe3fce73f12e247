/* Gate: decide what of `when` the checkpoint decides, and make the plan's arrays from what
 * can be on. Three-valued: a `$` part is known or (without a checkpoint) not, a request
 * field is never known here. */
#include "graph/compile/compile.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static og_tri test_list(const og_cond *leaf, const json_t *list) {
    if (leaf->op == OG_COND_TRUTH) {
        return json_array_size(list) ? OG_TRUE : OG_FALSE;
    }
    if (leaf->op != OG_COND_HAS) {
        return OG_FALSE;
    }
    og_cond eq = *leaf;
    eq.op = OG_COND_EQ;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (og__plan_cond_json(&eq, json_array_get(list, i)) == OG_TRUE) {
            return OG_TRUE;
        }
    }
    return OG_FALSE;
}

og_tri og__plan_cond_json(const og_cond *leaf, const json_t *v) {
    char buf[40];
    if (!v || json_is_null(v)) {
        return OG_FALSE;
    }
    if (json_is_array(v)) {
        return test_list(leaf, v);
    }
    if (json_is_object(v)) {
        if (leaf->op == OG_COND_HAS) {
            return json_object_get(v, leaf->word) ? OG_TRUE : OG_FALSE;
        }
        return leaf->op == OG_COND_TRUTH && json_object_size(v) ? OG_TRUE : OG_FALSE;
    }
    const char *text = json_string_value(v);
    if (json_is_boolean(v)) {
        text = json_is_true(v) ? "true" : "false";
    } else if (json_is_integer(v)) {
        snprintf(buf, sizeof buf, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        text = buf;
    } else if (json_is_real(v)) {
        snprintf(buf, sizeof buf, "%.17g", json_real_value(v));
        text = buf;
    }
    return og_cond_test_text(leaf, text);
}

static og_tri lookup(void *user, const og_cond *leaf) {
    og__build *b = user;
    const json_t *v;
    if (!leaf->is_cfg) {
        return OG_UNKNOWN;
    }
    switch (og__plan_cfg_get(b, &leaf->ref, -1, &v)) {
    case OG__CFG_FOUND: return og__plan_cond_json(leaf, v);
    case OG__CFG_ABSENT:
        og_diags_note(b->diags, leaf->src,
                      "the checkpoint has no key '%s': the condition takes it as absent",
                      leaf->ref.key);
        return OG_FALSE;
    default: return OG_UNKNOWN;
    }
}

/* What is left of a condition; OG_TRUE and OG_FALSE leave nothing to ask. */
static og_tri reduce(og__build *b, const og_cond *c, const og_cond **left) {
    *left = NULL;
    if (!c) {
        return OG_TRUE;
    }
    const og_cond *r = og_cond_reduce(c, lookup, b, b->arena);
    if (!r) {
        b->oom = true;
        return OG_UNKNOWN;
    }
    if (r->op == OG_COND_CONST) {
        return r->value;
    }
    *left = r;
    return OG_UNKNOWN;
}

/* A plain edge lives as long as its source; a hook edge as long as its required ones. */
static bool sources_gone(const og__build *b, const og_spec_edge *e) {
    for (int i = 0; i < e->n_from; i++) {
        const og_spec_end *f = &e->from[i];
        if (f->stage >= 0 && b->bs[f->stage].dropped && (!e->hook || !f->optional)) {
            return true;
        }
    }
    return false;
}

static bool target_gone(const og__build *b, const og_spec_edge *e) {
    return e->n_to && e->to[0].stage >= 0 && b->bs[e->to[0].stage].dropped;
}

/* A stage that the file feeds, but no edge of this plan, can never be on. */
static bool starved(const og__build *b, int stage) {
    bool any = false;
    for (int i = 0; i < b->spec->n_edges; i++) {
        const og_spec_edge *e = &b->spec->edges[i];
        if (e->n_to && e->to[0].stage == stage) {
            any = true;
            if (!b->be[i].dropped) {
                return false;
            }
        }
    }
    return any;
}

static void propagate(og__build *b) {
    bool moved = true;
    while (moved) {
        moved = false;
        for (int i = 0; i < b->spec->n_edges; i++) {
            const og_spec_edge *e = &b->spec->edges[i];
            if (!b->be[i].dropped && (sources_gone(b, e) || target_gone(b, e))) {
                b->be[i].dropped = moved = true;
            }
        }
        for (int i = 0; i < b->spec->n_stages; i++) {
            if (!b->bs[i].dropped && starved(b, i)) {
                b->bs[i].dropped = moved = true;
            }
        }
    }
}

static void decide(og__build *b) {
    for (int i = 0; i < b->spec->n_stages; i++) {
        og__bstage *s = &b->bs[i];
        s->on = reduce(b, b->spec->stages[i].when, &s->when);
        s->dropped = s->on == OG_FALSE;
    }
    for (int i = 0; i < b->spec->n_edges; i++) {
        og_tri on = reduce(b, b->spec->edges[i].when, &b->be[i].when);
        b->be[i].dropped = on == OG_FALSE;
    }
    propagate(b);
}

static bool answers(const og_spec_edge *e) {
    return e->n_to && e->to[0].kind == OG_END_RESPONSE;
}

/* Without an edge into `response` every request would hang. */
static void check_terminal(og__build *b) {
    int all = 0, kept = 0;
    for (int i = 0; i < b->spec->n_edges; i++) {
        all += answers(&b->spec->edges[i]);
        kept += answers(&b->spec->edges[i]) && !b->be[i].dropped;
    }
    if (!all) {
        og_diags_error(b->diags, b->spec->src,
                       "no terminal stage: no edge of pipeline '%s' ends at response",
                       b->spec->name);
        og_diags_hint(b->diags,
                      "add an edge such as {from: STAGE.audio, to: response.audio}");
    } else if (!kept) {
        og_diags_error(
            b->diags, b->spec->src,
            "no terminal stage: with this checkpoint no edge of pipeline '%s' that "
            "ends at response can be on",
            b->spec->name);
    }
}

/* What the stages that stay need of this build. */
static void require(og__build *b, int i) {
    const og_spec_stage *s = &b->spec->stages[i];
    const og__bstage *o = &b->bs[i];
    if (!o->kind) {
        return;
    }
    if (!o->arch) {
        og__plan_block(b, s->arch_src, "stage '%s': arch '%s' is not in this build",
                       s->name, s->arch);
        og__plan_suggest_arch(b, s->arch);
    } else if (!o->kind->api) {
        og__plan_block(b, s->node_src,
                       "stage '%s': node kind '%s' does not run in this build", s->name,
                       s->node);
    } else if (!o->arch->impl) {
        og__plan_block(b, s->arch_src, "stage '%s': arch '%s' does not run in this build",
                       s->name, s->arch);
    }
}

static void require_phases(og__build *b) {
    const og_pipeline *p = b->spec;
    if (p->n_phases > 1) {
        og__plan_block(b, p->phases[1].src,
                       "phases: pipeline '%s' has %d of them, this build runs one",
                       p->name, p->n_phases);
    } else if (p->n_routes > 1) {
        og__plan_block(b, p->routes[1].src,
                       "routes: pipeline '%s' has %d of them, this build runs one",
                       p->name, p->n_routes);
    }
    for (int i = 0; i < p->n_routes; i++) {
        if (p->routes[i].next) {
            og__plan_block(b, p->routes[i].next_src,
                           "routes: 'next' hooks are not run by this build");
        }
    }
}

/* Converters and calls that graph/run does not do yet, on edges that stay. */
static void require_edge(og__build *b, const og_spec_edge *e) {
    static const char *const missing[] = {
        [OG_VIA_NONE] = NULL,
        [OG_VIA_DETOKENIZE] = "detokenize",
        [OG_VIA_RESIZE] = "resize",
        [OG_VIA_SPLIT_SENTENCE] = "split",
        [OG_VIA_SPLIT_CLAUSE] = "split",
    };
    if (missing[e->via]) {
        og__plan_block(b, e->via_src, "via: %s is not run by this build",
                       missing[e->via]);
    }
    if (e->per_chunk) {
        og__plan_block(b, e->src, "per: chunk is not run by this build");
    }
}

static void make_stage(og__build *b, int i) {
    const og_spec_stage *s = &b->spec->stages[i];
    og__bstage *o = &b->bs[i];
    og_plan_stage *p = &b->stages[b->n_stages];
    o->plan = b->n_stages++;
    p->name = s->name;
    p->src = s->src;
    p->spec = i;
    p->stage_id = s->id;
    p->kind_name = s->node;
    p->arch_name = s->arch;
    p->arch = o->arch;
    p->kind_desc = o->kind;
    p->kind = o->kind ? o->kind->kind : OG_KIND_ENCODER;
    p->folder = o->folder;
    p->tokenizer = s->tokenizer ? s->tokenizer : o->arch ? o->arch->tokenizer : NULL;
    p->section = og__plan_section(b, i);
    p->with = -1;
    p->on = o->when ? OG_PLAN_PER_REQUEST : OG_PLAN_ON;
    p->when = o->when;
    p->stage_key = (uint32_t)og__plan_hash_text(OG__HASH_INIT, s->name);
}

int og__pass_gate(og__build *b) {
    decide(b);
    check_terminal(b);
    require_phases(b);
    b->stages = og__plan_new(b, (size_t)b->spec->n_stages, sizeof *b->stages);
    b->ports = og__plan_new(b, (size_t)b->spec->n_stages, sizeof *b->ports);
    b->edges = og__plan_new(b, (size_t)b->spec->n_edges, sizeof *b->edges);
    if (b->oom) {
        return OG_ENOMEM;
    }
    for (int i = 0; i < b->spec->n_stages; i++) {
        if (!b->bs[i].dropped) {
            require(b, i);
            make_stage(b, i);
        }
    }
    for (int i = 0; i < b->spec->n_edges; i++) {
        if (!b->be[i].dropped) {
            require_edge(b, &b->spec->edges[i]);
        }
    }
    for (int i = 0; i < b->n_stages; i++) {
        const char *with = b->spec->stages[b->stages[i].spec].with;
        int other = with ? og_pipeline_stage(b->spec, with) : -1;
        b->stages[i].with = other >= 0 ? b->bs[other].plan : -1;
    }
    return og_diags_oom(b->diags) ? OG_ENOMEM : 0;
}
