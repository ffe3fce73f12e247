/* Resolve: which arch and which node kind each stage names. */
#include "graph/compile/compile.h"

#include <string.h>

#define MAX_NAMES 512

static const og_arch *find_arch(const og__build *b, const char *name) {
    for (const og_arch *const *a = b->archs; *a; a++) {
        if (strcmp((*a)->name, name) == 0) {
            return *a;
        }
    }
    return NULL;
}

static const og_kind_desc *find_kind(const og__build *b, const char *name) {
    for (int i = 0; i < b->n_kinds; i++) {
        if (strcmp(b->kinds[i].name, name) == 0) {
            return &b->kinds[i];
        }
    }
    return NULL;
}

void og__plan_suggest_arch(og__build *b, const char *name) {
    const char *names[MAX_NAMES];
    int n = 0;
    for (const og_arch *const *a = b->archs; *a && n < MAX_NAMES; a++) {
        names[n++] = (*a)->name;
    }
    og_diags_suggest(b->diags, og_near(name, names, n));
}

static void suggest_kind(og__build *b, const char *name) {
    const char *names[MAX_NAMES];
    int n = 0;
    for (; n < b->n_kinds && n < MAX_NAMES; n++) {
        names[n] = b->kinds[n].name;
    }
    og_diags_suggest(b->diags, og_near(name, names, n));
}

static const og_kind_desc *kind_of_arch(const og__build *b, const og_arch *a) {
    for (int i = 0; i < b->n_kinds; i++) {
        if (b->kinds[i].kind == a->kind) {
            return &b->kinds[i];
        }
    }
    return NULL;
}

static void resolve_stage(og__build *b, int i) {
    const og_spec_stage *s = &b->spec->stages[i];
    og__bstage *o = &b->bs[i];
    o->plan = -1;
    o->on = OG_TRUE;
    o->folder = s->n_weights ? s->weights[0].folder : "";
    o->arch = find_arch(b, s->arch);
    o->kind = find_kind(b, s->node);
    if (!o->kind) {
        og_diags_error(b->diags, s->node_src, "stage '%s': there is no node kind '%s'",
                       s->name, s->node);
        suggest_kind(b, s->node);
        return;
    }
    if (!o->arch) {
        return; /* reported when the stage stays in the plan */
    }
    const og_kind_desc *real = kind_of_arch(b, o->arch);
    if (real != o->kind) {
        og_diags_error(b->diags, s->node_src,
                       "stage '%s': arch '%s' is of node kind '%s', not '%s'", s->name,
                       s->arch, real ? real->name : "?", s->node);
        og_diags_hint(b->diags, "write node: %s, or another arch",
                      real ? real->name : "?");
    }
}

/* `with` shares weights, so both stages must read the same folder and no chain is allowed. */
static void check_with(og__build *b, int i) {
    const og_spec_stage *s = &b->spec->stages[i];
    int other = s->with ? og_pipeline_stage(b->spec, s->with) : -1;
    if (other < 0) {
        return;
    }
    if (other == i || b->spec->stages[other].with) {
        og_diags_error(b->diags, s->with_src,
                       "stage '%s': `with` must name a stage that has weights of its own",
                       s->name);
    }
}

int og__pass_resolve(og__build *b) {
    for (int i = 0; i < b->spec->n_stages; i++) {
        resolve_stage(b, i);
    }
    for (int i = 0; i < b->spec->n_stages; i++) {
        check_with(b, i);
    }
    return b->oom || og_diags_oom(b->diags) ? OG_ENOMEM : 0;
}
