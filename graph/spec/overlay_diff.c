/* What changed between two overlays, and what each change needs while serving. */
#include <string.h>

#include "graph/spec/overlay_parts.h"

/* Whose keys a map holds, and what a change below it needs. */
typedef struct holder {
    og_section section;
    bool named; /* free names, each a map of the section */
    og_reload reload;
} holder;

typedef struct differing {
    void (*visit)(void *user, const og_overlay_change *change);
    void *user;
    const char *stage;
    bool oom;
} differing;

static bool same(const og_yaml_node *a, const og_yaml_node *b) {
    if (a == b) return true;
    if (!a || !b || a->kind != b->kind || a->n != b->n || strcmp(a->text, b->text)) {
        return false;
    }
    for (int i = 0; a->kind == OG_YAML_SEQ && i < a->n; i++) {
        if (!same(a->items[i], b->items[i])) return false;
    }
    for (int i = 0; a->kind == OG_YAML_MAP && i < a->n; i++) {
        if (!same(a->pairs[i].value, og_yaml_get(b, a->pairs[i].key))) return false;
    }
    return true;
}

static holder below(const holder *h, const char *name) {
    if (h->named) return (holder){h->section, false, h->reload};
    const og_key *key = h->section ? og_key_find(h->section, name) : NULL;
    if (!key) return (holder){OG_SECTION_NONE, false, h->reload};
    holder out = {key->inner, (key->flags & OG_KEY_NAMED) != 0, h->reload};
    if (key->reload != OG_RELOAD_NONE) out.reload = key->reload;
    if (key->flags & (OG_KEY_UNSUPPORTED | OG_KEY_IGNORED)) out.reload = OG_RELOAD_LIVE;
    return out;
}

static void walk(differing *d, const char *path, holder h, const og_yaml_node *a,
                 const og_yaml_node *b);

static void walk_pair(differing *d, const char *path, const holder *h, const char *name,
                      const og_yaml_node *a, const og_yaml_node *b) {
    og_str full = OG_STR_INIT;
    og_str_addf(&full, "%s%s%s", path, *path ? "." : "", name);
    if (full.oom || !full.data)
        d->oom = true;
    else if (!same(a, b))
        walk(d, full.data, below(h, name), a, b);
    og_str_free(&full);
}

static void walk_maps(differing *d, const char *path, holder h, const og_yaml_node *a,
                      const og_yaml_node *b) {
    for (int i = 0; a && i < a->n; i++) {
        const og_yaml_pair *p = &a->pairs[i];
        walk_pair(d, path, &h, p->key, p->value, og_yaml_get(b, p->key));
    }
    for (int i = 0; b && i < b->n; i++) {
        const og_yaml_pair *p = &b->pairs[i];
        if (!og_yaml_get(a, p->key)) walk_pair(d, path, &h, p->key, NULL, p->value);
    }
}

static void walk(differing *d, const char *path, holder h, const og_yaml_node *a,
                 const og_yaml_node *b) {
    if (a && b && a->kind == OG_YAML_MAP && b->kind == OG_YAML_MAP) {
        walk_maps(d, path, h, a, b);
        return;
    }
    og_overlay_change change = {d->stage, path, a, b, h.reload};
    d->visit(d->user, &change);
}

static void walk_stage(differing *d, const char *name, const og_yaml_node *a,
                       const og_yaml_node *b) {
    d->stage = name;
    walk_maps(d, "", (holder){OG_SECTION_OVERLAY_STAGE, false, OG_RELOAD_NONE}, a, b);
}

int og_overlay_diff(const og_overlay *before, const og_overlay *after,
                    void (*visit)(void *user, const og_overlay_change *change),
                    void *user) {
    differing d = {.visit = visit, .user = user};
    for (int i = 0; i < before->n_stages; i++) {
        const char *name = before->stages[i].name;
        walk_stage(&d, name, before->stages[i].values, og_overlay_stage(after, name));
    }
    for (int i = 0; i < after->n_stages; i++) {
        const char *name = after->stages[i].name;
        if (og_overlay_stage(before, name)) continue;
        walk_stage(&d, name, NULL, after->stages[i].values);
    }
    d.stage = NULL;
    walk_maps(&d, "", (holder){OG_SECTION_OVERLAY, false, OG_RELOAD_NONE}, before->root,
              after->root);
    return d.oom ? OG_ENOMEM : 0;
}
