/* Unify: types along edges, before anything is loaded. A mismatch names both ports, both
 * types, the field that differs and what would fix it. Nothing is converted silently. */
#include "graph/compile/compile.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What the dims of a kind are called. */
static const char *dim_name(og_type_kind kind, int i) {
    switch (kind) {
    case OG_TYPE_AUDIO: return "rate";
    case OG_TYPE_CODES: return "number of groups";
    case OG_TYPE_MEL: return "number of bins";
    case OG_TYPE_LATENT: return "number of channels";
    default: return i ? "second width" : "width";
    }
}

static og_dim dim_at(const og_type *t, int i) {
    og_dim free_dim = {.kind = OG_DIM_FREE};
    return i < t->n_dims ? t->dims[i] : free_dim;
}

static void dim_text(const og_dim *d, char *buf, size_t size) {
    if (d->kind == OG_DIM_CONST) {
        snprintf(buf, size, "%" PRId64, d->value);
    } else if (d->kind == OG_DIM_NAME) {
        snprintf(buf, size, "$%s%s%s", d->ref.scope ? d->ref.scope : "",
                 d->ref.scope ? "." : "", d->ref.key);
    } else {
        snprintf(buf, size, "_");
    }
}

static bool dim_unify(const og_dim *a, const og_dim *b, og_dim *out) {
    *out = a->kind == OG_DIM_CONST ? *a : b->kind != OG_DIM_FREE ? *b : *a;
    return a->kind != OG_DIM_CONST || b->kind != OG_DIM_CONST || a->value == b->value;
}

bool og__plan_type_unify(const og_type *a, const og_type *b, og_type *out,
                         og__type_diff *diff) {
    *out = *b;
    out->optional = a->optional;
    if (a->kind != b->kind) {
        diff->field = "kind";
        snprintf(diff->left, sizeof diff->left, "%s", og_type_kind_name(a->kind));
        snprintf(diff->right, sizeof diff->right, "%s", og_type_kind_name(b->kind));
        return false;
    }
    if (a->list && !b->list) { /* one value to a list port is a list of one */
        diff->field = "list";
        snprintf(diff->left, sizeof diff->left, "a list");
        snprintf(diff->right, sizeof diff->right, "one value");
        return false;
    }
    int n = a->n_dims > b->n_dims ? a->n_dims : b->n_dims;
    out->n_dims = n;
    for (int i = 0; i < n; i++) {
        og_dim x = dim_at(a, i), y = dim_at(b, i);
        if (!dim_unify(&x, &y, &out->dims[i])) {
            diff->field = dim_name(a->kind, i);
            dim_text(&x, diff->left, sizeof diff->left);
            dim_text(&y, diff->right, sizeof diff->right);
            return false;
        }
    }
    return true;
}

/* ---- dims from the checkpoint ---------------------------------------------------- */

static void resolve_dim(og__build *b, int spec_stage, og_dim *d) {
    const json_t *v;
    if (d->kind != OG_DIM_NAME ||
        og__plan_cfg_need(b, &d->ref, spec_stage, &v) != OG__CFG_FOUND) {
        return;
    }
    if (!json_is_integer(v) || json_integer_value(v) < 1) {
        og_diags_error(b->diags, d->ref.src,
                       "$%s of the checkpoint is not a positive integer", d->ref.key);
        return;
    }
    d->kind = OG_DIM_CONST;
    d->value = json_integer_value(v);
}

static void resolve_ports(og__build *b) {
    for (int s = 0; s < b->n_stages; s++) {
        for (int i = 0; i < b->stages[s].n_ports; i++) {
            og_type *t = &b->ports[s][i].type;
            for (int d = 0; d < t->n_dims; d++) {
                resolve_dim(b, b->stages[s].spec, &t->dims[d]);
            }
        }
    }
}

static void take_types(og__build *b, const og_plan_end *ends, int n) {
    for (int i = 0; i < n; i++) {
        if (ends[i].stage >= 0 && ends[i].port >= 0) {
            ((og_plan_end *)&ends[i])->type = b->ports[ends[i].stage][ends[i].port].type;
        }
    }
}

/* `in:` and `out:` of a stage only assert what the arch declares. */
static void check_asserts(og__build *b, int stage, const og_spec_port *want, int n,
                          int flag) {
    const og_plan_stage *s = &b->stages[stage];
    for (int i = 0; i < n && s->arch; i++) {
        int port = -1;
        for (int k = 0; k < s->n_ports && port < 0; k++) {
            port = (b->ports[stage][k].flags & flag) &&
                           strcmp(b->ports[stage][k].name, want[i].name) == 0
                       ? k
                       : -1;
        }
        og_type t = want[i].type, u;
        og__type_diff diff;
        for (int d = 0; d < t.n_dims; d++) {
            resolve_dim(b, s->spec, &t.dims[d]);
        }
        if (port < 0) {
            og_diags_error(b->diags, want[i].src, "arch '%s' has no %s '%s'",
                           s->arch->name, flag == OG_PORT_IN ? "input" : "output",
                           want[i].name);
        } else if (!og__plan_type_unify(&b->ports[stage][port].type, &t, &u, &diff)) {
            og_diags_error(
                b->diags, want[i].src,
                "stage '%s' asserts another type for '%s' than arch '%s' has: the "
                "%s differs (%s here, %s there)",
                s->name, want[i].name, s->arch->name, diff.field, diff.right, diff.left);
        }
    }
}

/* ---- edges ----------------------------------------------------------------------- */

static bool known(const og_plan_end *e) {
    return e->type.kind != OG_TYPE_KIND_COUNT;
}

static const char *fix_for(const og_type *a, const og_type *b, const char *field) {
    if (a->kind == OG_TYPE_AUDIO && b->kind == OG_TYPE_AUDIO) {
        return "add via: resample";
    }
    if (a->kind == OG_TYPE_TOKENS && b->kind == OG_TYPE_TEXT) {
        return "add via: detokenize";
    }
    if (a->kind == OG_TYPE_TEXT && b->kind == OG_TYPE_TOKENS) {
        return "tokenising is a hook's work: add hook: FILE.FUNCTION";
    }
    if (strcmp(field, "list") == 0) {
        return "a hook can pick one of a list";
    }
    return strcmp(field, "kind") == 0
               ? "connect ports of one kind, or describe the rows in a "
                 "hook"
               : "the two stages are of different checkpoints";
}

static void mismatch(og__build *b, const og_plan_edge *e, const og_plan_end *f,
                     const og_plan_end *t, const og__type_diff *diff) {
    og_str left = OG_STR_INIT, right = OG_STR_INIT;
    og_type_print(&f->type, &left);
    og_type_print(&t->type, &right);
    og_diags_error(b->diags, e->src,
                   "'%s' is %s, '%s' takes %s: the %s differs (%s and %s)", f->text,
                   left.data ? left.data : "?", t->text, right.data ? right.data : "?",
                   diff->field, diff->left, diff->right);
    og_diags_hint(b->diags, "%s", fix_for(&f->type, &t->type, diff->field));
    og_str_free(&left);
    og_str_free(&right);
}

/* The type behind a converter, false when it does not take what comes. */
static bool convert(og__build *b, const og_plan_edge *e, og_type *t) {
    static const struct {
        og_via via;
        const char *name;
        og_type_kind from, to;
    } table[] = {{OG_VIA_RESAMPLE, "resample", OG_TYPE_AUDIO, OG_TYPE_AUDIO},
                 {OG_VIA_DETOKENIZE, "detokenize", OG_TYPE_TOKENS, OG_TYPE_TEXT},
                 {OG_VIA_RESIZE, "resize", OG_TYPE_IMAGE, OG_TYPE_IMAGE},
                 {OG_VIA_SPLIT_SENTENCE, "split", OG_TYPE_TEXT, OG_TYPE_TEXT},
                 {OG_VIA_SPLIT_CLAUSE, "split", OG_TYPE_TEXT, OG_TYPE_TEXT}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].via != e->via) {
            continue;
        }
        bool video = e->via == OG_VIA_RESIZE && t->kind == OG_TYPE_VIDEO;
        if (t->kind != table[i].from && !video) {
            og_diags_error(b->diags, e->src, "via: %s takes %s, and '%s' is %s",
                           table[i].name, og_type_kind_name(table[i].from),
                           e->from[0].text, og_type_kind_name(t->kind));
            return false;
        }
        t->kind = video ? OG_TYPE_VIDEO : table[i].to;
        if (e->via == OG_VIA_RESAMPLE) {
            t->n_dims = 0;
        }
    }
    return true;
}

/* A client's recording has any rate: it meets a fixed one only through `via: resample`. */
static bool rate_unknown(const og_plan_edge *e, const og_plan_end *f,
                         const og_plan_end *t) {
    return f->kind == OG_END_REQUEST && e->via == OG_VIA_NONE &&
           t->type.kind == OG_TYPE_AUDIO && t->type.n_dims &&
           t->type.dims[0].kind != OG_DIM_FREE &&
           (!f->type.n_dims || f->type.dims[0].kind == OG_DIM_FREE);
}

static void unify_plain(og__build *b, og_plan_edge *e) {
    const og_plan_end *f = &e->from[0], *t = &e->to[0];
    e->type = t->type;
    if (!known(f) || !known(t)) {
        return;
    }
    if (t->port >= 0 && (b->ports[t->stage][t->port].flags & OG_PORT_ROWS)) {
        og_diags_error(b->diags, e->src, "'%s' takes rows: only a hook can describe them",
                       t->text);
        og_diags_hint(b->diags, "add hook: FILE.FUNCTION, with named ends");
        return;
    }
    og_type from = f->type;
    og__type_diff diff;
    if (!convert(b, e, &from)) {
        return;
    }
    if (t->kind == OG_END_RESPONSE && from.kind == t->type.kind) {
        e->type = from; /* a response takes any rate and number */
    } else if (!og__plan_type_unify(&from, &t->type, &e->type, &diff)) {
        mismatch(b, e, f, t, &diff);
    } else if (rate_unknown(e, f, t)) {
        og_diags_error(b->diags, e->src,
                       "'%s' has the rate of the client's recording, '%s' takes %" PRId64
                       " samples per second",
                       f->text, t->text, t->type.dims[0].value);
        og_diags_hint(b->diags, "add via: resample");
    }
    if (e->via == OG_VIA_RESAMPLE && t->type.n_dims &&
        t->type.dims[0].kind == OG_DIM_CONST) {
        e->via_rate = (int)t->type.dims[0].value;
    }
    if (e->via == OG_VIA_DETOKENIZE && f->stage >= 0) {
        e->via_tokenizer = b->stages[f->stage].tokenizer;
    }
}

/* A hook may hand a sequence on as it is, so sources of a target's own kind must fit it. */
static void unify_hook(og__build *b, og_plan_edge *e) {
    e->type = e->to[0].type;
    for (int k = 0; k < e->n_to; k++) {
        const og_plan_end *t = &e->to[k];
        if (!known(t) || t->port < 0 ||
            (b->ports[t->stage][t->port].flags & OG_PORT_ROWS)) {
            continue;
        }
        for (int i = 0; i < e->n_from; i++) {
            og_type u;
            og__type_diff diff;
            const og_plan_end *f = &e->from[i];
            if (known(f) && f->type.kind == t->type.kind && f->kind == OG_END_STAGE &&
                f->type.list == t->type.list &&
                !og__plan_type_unify(&f->type, &t->type, &u, &diff)) {
                mismatch(b, e, f, t, &diff);
            }
        }
    }
}

static void response_rates(og__build *b) {
    for (int i = 0; i < b->n_responses; i++) {
        og_plan_response *r = &b->responses[i];
        r->type = b->edges[r->edge].type;
        if (r->type.kind == OG_TYPE_AUDIO && r->type.n_dims &&
            r->type.dims[0].kind == OG_DIM_CONST) {
            r->rate = (int)r->type.dims[0].value;
        }
    }
}

int og__pass_unify(og__build *b) {
    resolve_ports(b);
    for (int s = 0; s < b->n_stages; s++) {
        const og_spec_stage *spec = &b->spec->stages[b->stages[s].spec];
        check_asserts(b, s, spec->in, spec->n_in, OG_PORT_IN);
        check_asserts(b, s, spec->out, spec->n_out, OG_PORT_OUT);
    }
    for (int i = 0; i < b->n_edges; i++) {
        og_plan_edge *e = &b->edges[i];
        take_types(b, e->from, e->n_from);
        take_types(b, e->to, e->n_to);
        if (e->hook) {
            unify_hook(b, e);
        } else {
            unify_plain(b, e);
        }
    }
    response_rates(b);
    return b->oom || og_diags_oom(b->diags) ? OG_ENOMEM : 0;
}
