/* Freeze: fingerprints of what an overlay may not touch, and a refusal by name when it
 * tries. The fingerprint depends on meaning alone: order of keys, comments and file names
 * do not change it; an arch, a type, an option that is not tunable, a constraint do. */
#include "graph/compile/compile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- overlay --------------------------------------------------------------------- */

/* Keys of the pipeline file that the deploy schema has not got. */
static bool frozen_key(og_section pipeline, og_section overlay, const char *key) {
    return og_key_find(pipeline, key) && !og_key_find(overlay, key);
}

static void refuse(og__build *b, const og_yaml_pair *p, const char *stage) {
    og_diags_error(
        b->diags, p->src,
        "%s%s%s'%s' is part of the pipeline, which is frozen: the overlay cannot "
        "change it",
        stage ? "stage '" : "", stage ? stage : "", stage ? "': " : "", p->key);
    og_diags_hint(b->diags, "change %s, or write a pipeline with base: %s", b->spec->file,
                  b->spec->name);
}

static void check_overlay(og__build *b) {
    const og_yaml_node *root = og_overlay_root(b->overlay);
    for (int i = 0; root && root->kind == OG_YAML_MAP && i < root->n; i++) {
        if (frozen_key(OG_SECTION_PIPELINE, OG_SECTION_OVERLAY, root->pairs[i].key)) {
            refuse(b, &root->pairs[i], NULL);
        }
    }
    for (int s = 0; s < b->spec->n_stages; s++) {
        const char *name = b->spec->stages[s].name;
        const og_yaml_node *n = og_overlay_stage(b->overlay, name);
        for (int i = 0; n && n->kind == OG_YAML_MAP && i < n->n; i++) {
            const char *key = n->pairs[i].key;
            if (strcmp(key, "id") != 0 &&
                frozen_key(OG_SECTION_STAGE, OG_SECTION_OVERLAY_STAGE, key)) {
                refuse(b, &n->pairs[i], name);
            }
        }
    }
}

/* ---- fingerprints ---------------------------------------------------------------- */

static int by_key(const void *a, const void *b) {
    const og_yaml_pair *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

static uint64_t hash_tree(og__build *b, uint64_t h, const og_yaml_node *n);

static uint64_t hash_map(og__build *b, uint64_t h, const og_yaml_node *n) {
    const og_yaml_pair **sorted = og__plan_new(b, (size_t)n->n, sizeof *sorted);
    if (!sorted) {
        return h;
    }
    for (int i = 0; i < n->n; i++) {
        sorted[i] = &n->pairs[i];
    }
    qsort(sorted, (size_t)n->n, sizeof *sorted, by_key);
    h = og__plan_hash(h, "{", 1);
    for (int i = 0; i < n->n; i++) {
        h = og__plan_hash_text(h, sorted[i]->key);
        h = hash_tree(b, h, sorted[i]->value);
    }
    return og__plan_hash(h, "}", 1);
}

static uint64_t hash_tree(og__build *b, uint64_t h, const og_yaml_node *n) {
    if (!n || n->kind == OG_YAML_NULL) {
        return og__plan_hash(h, "~", 1);
    }
    if (n->kind == OG_YAML_SCALAR) {
        return og__plan_hash_text(og__plan_hash(h, "s", 1), n->text);
    }
    if (n->kind == OG_YAML_MAP) {
        return hash_map(b, h, n);
    }
    h = og__plan_hash(h, "[", 1);
    for (int i = 0; i < n->n; i++) {
        h = hash_tree(b, h, n->items[i]);
    }
    return og__plan_hash(h, "]", 1);
}

static const og_option_desc *option(const og_arch *a, const char *name) {
    for (const og_option_desc *d = a->options; d && d->name; d++) {
        if (strcmp(d->name, name) == 0) {
            return d;
        }
    }
    return NULL;
}

static uint64_t hash_stage(const og_plan_stage *s) {
    uint64_t h = og__plan_hash_text(OG__HASH_INIT, s->name);
    h = og__plan_hash_text(h, s->kind_name);
    h = og__plan_hash_text(h, s->arch_name);
    h = og__plan_hash_text(h, s->folder);
    for (int i = 0; i < s->n_ports; i++) {
        og_str t = OG_STR_INIT;
        og_type_print(&s->ports[i].type, &t);
        h = og__plan_hash_text(og__plan_hash_text(h, s->ports[i].name), t.data);
        og_str_free(&t);
    }
    for (int i = 0; i < s->n_options; i++) {
        const og_option_desc *d = option(s->arch, s->options[i].name);
        if (d && !d->tunable) {
            h = og__plan_hash_text(og__plan_hash_text(h, d->name), s->options[i].text);
        }
    }
    return h;
}

int og__pass_freeze(og__build *b) {
    check_overlay(b);
    uint64_t h = og__plan_hash_text(OG__HASH_INIT, OG_PIPELINE_SCHEMA);
    h = hash_tree(b, h, b->spec->tree);
    for (int i = 0; i < b->n_stages; i++) {
        b->stages[i].fingerprint = hash_stage(&b->stages[i]);
        h = og__plan_hash(h, &b->stages[i].fingerprint, sizeof h);
    }
    b->plan->fingerprint = h;
    snprintf(b->plan->fingerprint_hex, sizeof b->plan->fingerprint_hex, "%016" PRIx64, h);
    return b->oom || og_diags_oom(b->diags) ? OG_ENOMEM : 0;
}
