/* Which sources may be absent in some request: the rule behind `?`.
 *
 * A stage may be off when it has a `when`, or when nothing feeds it for sure. What the
 * receiving stage's own `when` already says is taken as given: two stages that are gated
 * alike need no `?` between them. */
#include "graph/compile/compile.h"

#include <string.h>

static bool says(const og_cond *given, const og_cond *c) {
    if (!given) {
        return false;
    }
    if (og_cond_same(given, c)) {
        return true;
    }
    return given->op == OG_COND_AND && (says(given->left, c) || says(given->right, c));
}

static bool implied(const og_cond *given, const og_cond *c) {
    if (says(given, c)) {
        return true;
    }
    return c->op == OG_COND_AND && implied(given, c->left) && implied(given, c->right);
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool says_present(const og_cond *given, const char *field, const char *part) {
    if (!given) {
        return false;
    }
    if (given->op == OG_COND_AND) {
        return says_present(given->left, field, part) ||
               says_present(given->right, field, part);
    }
    return given->op == OG_COND_TRUTH && !given->is_cfg &&
           same_text(given->field, field) && same_text(given->part, part);
}

typedef struct ask {
    const og__build *b;
    const og_cond *given; /* of the receiving stage */
    int phase, depth;
} ask;

static bool stage_absent(ask *q, int stage, og_str *why);

static bool field_absent(const ask *q, const og_spec_end *e, og_str *why) {
    const og_spec_field *f = &q->b->spec->request[e->field];
    bool maybe = e->part || (f->type.optional && !f->def && !f->has_area);
    if (!maybe || says_present(q->given, f->name, e->part)) {
        return false;
    }
    og_str_addf(why, e->part ? "a request may have none" : "the field is optional");
    return true;
}

static bool end_absent(ask *q, const og_spec_end *e, og_str *why) {
    if (e->kind == OG_END_REQUEST) {
        return field_absent(q, e, why);
    }
    return e->kind == OG_END_STAGE && stage_absent(q, e->stage, why);
}

static bool edge_silent(ask *q, const og_spec_edge *e, og_str *why) {
    if (e->when && !implied(q->given, e->when)) {
        return true;
    }
    /* What a hook edge requires is an error of its own when it may be absent. */
    return !e->hook && e->n_from && end_absent(q, &e->from[0], why);
}

static bool stage_absent(ask *q, int stage, og_str *why) {
    const og_spec_stage *s = &q->b->spec->stages[stage];
    if (s->when && !implied(q->given, s->when)) {
        og_str_addf(why, "stage '%s' has when: ", s->name);
        og_cond_print(s->when, why);
        return true;
    }
    if (q->depth >= q->b->spec->n_stages) {
        return false; /* a cycle, reported elsewhere */
    }
    q->depth++;
    bool fed = false, sure = false;
    og_str inner = OG_STR_INIT;
    for (int i = 0; i < q->b->spec->n_edges && !sure; i++) {
        const og_spec_edge *e = &q->b->spec->edges[i];
        if (e->phase == q->phase && e->n_to && e->to[0].stage == stage) {
            fed = true;
            inner.len = 0;
            sure = !edge_silent(q, e, &inner);
        }
    }
    q->depth--;
    if (fed && !sure) {
        og_str_addf(why, "stage '%s' is off without its input%s%.*s", s->name,
                    inner.len ? ": " : "", (int)inner.len, inner.data ? inner.data : "");
    }
    og_str_free(&inner);
    return fed && !sure;
}

bool og__plan_may_be_absent(const og__build *b, const og_spec_end *e,
                            const og_spec_end *to, int phase, og_str *why) {
    ask q = {.b = b, .phase = phase};
    if (to && to->stage >= 0) {
        q.given = b->spec->stages[to->stage].when;
    }
    return end_absent(&q, e, why);
}
