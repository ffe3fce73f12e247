/* Checks that need the whole pipeline: conditions, `with`, and one feeder a port. */
#include <string.h>
#include <strings.h>

#include "graph/spec/pipeline_parts.h"
#include "graph/spec/schema.h"

static void check_scope(og__reading *r, const og_cfg_ref *ref) {
    if (!ref->scope || !strcmp(ref->scope, "root") || !strcmp(ref->scope, "index"))
        return;
    if (og_pipeline_stage(r->p, ref->scope) >= 0) return;
    og_diags_error(r->d, ref->src, "'$%s.%s': no stage '%s' (nor $root or $index)",
                   ref->scope, ref->key, ref->scope);
    og_diags_suggest(r->d, og_pipeline_near_stage(r->p, ref->scope));
}

static void check_word(og__reading *r, const og_cond *leaf, const og_spec_field *f) {
    if (!leaf->word || !f->n_one_of) return;
    for (int i = 0; i < f->n_one_of; i++) {
        if (!strcasecmp(f->one_of[i], leaf->word)) return;
    }
    og_diags_error(r->d, leaf->src, "'%s' is never '%.60s'", f->name, leaf->word);
    const char *best = og_near(leaf->word, f->one_of, f->n_one_of);
    if (best) og_diags_suggest(r->d, best);
}

static void check_leaf_type(og__reading *r, const og_cond *leaf, const og_spec_field *f) {
    bool list = f->type.list || leaf->part;
    if (leaf->part && f->type.kind != OG_TYPE_MESSAGES) {
        og_diags_error(r->d, leaf->src, "request field '%s' has no parts", f->name);
    } else if (leaf->part && strcmp(leaf->part, "images") &&
               strcmp(leaf->part, "audios") && strcmp(leaf->part, "videos")) {
        static const char *const parts[] = {"images", "audios", "videos"};
        og__no_such(r, leaf->src, "part of messages", leaf->part, parts, 3);
    } else if (leaf->op == OG_COND_HAS && !list) {
        og_diags_error(r->d, leaf->src, "'%s' is no list: compare with '=='", f->name);
    } else if (leaf->op == OG_COND_EQ && list) {
        og_diags_error(r->d, leaf->src, "'%s' is a list: ask with 'has'", f->name);
    } else {
        check_word(r, leaf, f);
    }
}

static void check_leaf(void *user, const og_cond *leaf) {
    og__reading *r = user;
    if (leaf->is_cfg) {
        check_scope(r, &leaf->ref);
        return;
    }
    int k = og_pipeline_field(r->p, leaf->field);
    if (k < 0)
        og__no_such_field(r, leaf->src, leaf->field);
    else
        check_leaf_type(r, leaf, &r->request[k]);
}

static void check_conditions(og__reading *r) {
    for (int i = 0; i < r->p->n_stages; i++) {
        if (r->stages[i].when) og_cond_leaves(r->stages[i].when, check_leaf, r);
    }
    for (int i = 0; i < r->p->n_edges; i++) {
        if (r->edges[i].when) og_cond_leaves(r->edges[i].when, check_leaf, r);
    }
    for (int i = 0; i < r->p->n_routes; i++) {
        if (r->routes[i].when) og_cond_leaves(r->routes[i].when, check_leaf, r);
    }
}

/* `$stage.key` anywhere in options and constraints. */
static void check_refs(og__reading *r, const og_yaml_node *n) {
    og_cfg_ref ref;
    if (!n) return;
    if (n->kind == OG_YAML_SCALAR && og_cfg_is_ref(n->text)) {
        og_src src = og_yaml_text_src(n);
        if (og_cfg_ref_parse(n->text, src, false, r->a, r->d, &ref)) check_scope(r, &ref);
    }
    for (int i = 0; n->kind == OG_YAML_SEQ && i < n->n; i++) check_refs(r, n->items[i]);
    for (int i = 0; n->kind == OG_YAML_MAP && i < n->n; i++) {
        check_refs(r, n->pairs[i].value);
    }
}

static void check_with(og__reading *r, const og_spec_stage *s) {
    if (!s->with) return;
    int k = og_pipeline_stage(r->p, s->with);
    if (k < 0) {
        og__no_such_stage(r, s->with_src, s->with);
    } else if (&r->stages[k] == s) {
        og_diags_error(r->d, s->with_src, "a stage cannot share with itself");
    } else if (r->stages[k].with) {
        og_diags_error(r->d, s->with_src, "'%s' itself shares with '%s'", s->with,
                       r->stages[k].with);
        og_diags_hint(r->d, "name the stage that owns the weights");
    }
}

static void check_stage(og__reading *r, const og_spec_stage *s) {
    check_with(r, s);
    check_refs(r, s->options);
    check_refs(r, s->stop_token_ids);
    check_refs(r, s->min_tokens);
}

/* Ports of stages take one edge. Parts of the response may have several, as when two
 * stages answer under opposite conditions. */
static void check_fed(og__reading *r, const og_spec_end *e, const og_spec_end *earlier) {
    if (e->kind != OG_END_STAGE || earlier->kind != OG_END_STAGE) return;
    if (e->stage < 0 || e->stage != earlier->stage || strcmp(e->name, earlier->name))
        return;
    og_diags_error(r->d, e->src, "'%s' is fed twice", e->text);
    og_diags_hint(r->d, "the first edge to it is in line %d", earlier->src.line);
}

static void check_feeders(og__reading *r, int edge) {
    const og_spec_edge *e = &r->edges[edge];
    for (int i = 0; i < e->n_to; i++) {
        for (int k = 0; k <= edge; k++) {
            const og_spec_edge *other = &r->edges[k];
            if (other->phase != e->phase) continue;
            int n = k == edge ? i : other->n_to;
            for (int j = 0; j < n; j++) check_fed(r, &e->to[i], &other->to[j]);
        }
    }
}

void og__check_pipeline(og__reading *r) {
    for (int i = 0; i < r->p->n_request; i++) {
        if (r->request[i].has_one_of_ref && r->request[i].one_of_ref.key) {
            check_scope(r, &r->request[i].one_of_ref);
        }
    }
    for (int i = 0; i < r->p->n_stages; i++) check_stage(r, &r->stages[i]);
    check_conditions(r);
    for (int i = 0; i < r->p->n_edges; i++) {
        if (r->edges[i].to) check_feeders(r, i);
    }
}
