#include "graph/compile/diff.h"

#include <stdlib.h>
#include <string.h>

typedef struct differ {
    const og_plan *old, *now;
    const int *loaded;
    og_arena *arena;
    og_plan_change *list;
    int n, cap;
    bool oom;
} differ;

static const char FIXED[] = "it is fixed once the replicas are loaded: restart to change it";

const char *og_change_name(og_change_kind kind) {
    static const char *const names[] = {"live", "rolling", "refuse"};
    return names[kind];
}

/* ---- collecting ------------------------------------------------------------------ */

static og_plan_change *add(differ *d) {
    if (d->n == d->cap) {
        int cap = d->cap ? d->cap * 2 : 16;
        og_plan_change *list = og_realloc(d->list, (size_t)cap * sizeof *list);
        if (!list) {
            d->oom = true;
            return NULL;
        }
        d->list = list;
        d->cap = cap;
    }
    og_plan_change *c = &d->list[d->n++];
    memset(c, 0, sizeof *c);
    c->why = "";
    return c;
}

static const char *keep(differ *d, const char *text) {
    const char *copy = og_arena_strdup(d->arena, text);
    d->oom |= !copy;
    return copy ? copy : "";
}

/* JSON of a setting, on one line. */
static const char *value(differ *d, const og_yaml_node *n) {
    og_str s = OG_STR_INIT;
    if (!n) return NULL;
    og_overlay_node_json(n, OG_SECTION_NONE, false, &s);
    json_t *v = s.data ? json_loads(s.data, JSON_DECODE_ANY, NULL) : NULL;
    char *line = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;
    d->oom |= s.oom;
    const char *text = keep(d, line ? line : s.data ? s.data : "");
    free(line);
    json_decref(v);
    og_str_free(&s);
    return text;
}

/* Sequences that the stage's replicas can take without new ones. */
static int capacity(const differ *d, int stage) {
    return d->loaded ? d->loaded[stage] : d->old->stages[stage].max_num_seqs;
}

static void judge(differ *d, og_plan_change *c, const og_overlay_change *o) {
    int stage = o->stage ? og_plan_find_stage(d->now, o->stage) : -1;
    switch (o->reload) {
    case OG_RELOAD_LIVE: c->kind = OG_CHANGE_LIVE; return;
    case OG_RELOAD_ROLLING: c->kind = OG_CHANGE_ROLLING; return;
    case OG_RELOAD_NONE:
        c->kind = OG_CHANGE_REFUSE;
        c->why = FIXED;
        return;
    case OG_RELOAD_LOADED: break;
    }
    c->kind = OG_CHANGE_LIVE;
    if (stage < 0 || d->now->stages[stage].max_num_seqs <= capacity(d, stage)) return;
    const char *why = og_arena_printf(
        d->arena, "%d is more than the %d that the replicas were loaded for: new ones are "
        "started", d->now->stages[stage].max_num_seqs, capacity(d, stage));
    d->oom |= !why;
    c->kind = OG_CHANGE_ROLLING;
    c->why = why ? why : "";
}

static void visit(void *user, const og_overlay_change *o) {
    differ *d = user;
    og_plan_change *c = add(d);
    if (!c) return;
    const char *path = og_arena_printf(d->arena, "%s%s%s", o->stage ? o->stage : "",
                                       o->stage ? "." : "", o->path);
    d->oom |= !path;
    c->path = path ? path : "";
    c->before = value(d, o->before);
    c->after = value(d, o->after);
    c->src = o->after ? o->after->src : o->before->src;
    if (c->src.file) c->src.file = keep(d, c->src.file);
    judge(d, c, o);
}

static void other(differ *d, const char *path, const char *before, const char *after,
                  const char *why) {
    og_plan_change *c = add(d);
    if (!c) return;
    c->kind = OG_CHANGE_REFUSE;
    c->path = path;
    c->before = before ? keep(d, before) : NULL;
    c->after = after ? keep(d, after) : NULL;
    c->why = why;
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_pipeline(const og_plan *a, const og_plan *b) {
    return a->fingerprint == b->fingerprint && a->n_stages == b->n_stages &&
           a->n_edges == b->n_edges && a->n_fields == b->n_fields;
}

int og_plan_diff(const og_plan *old, const og_plan *now, const int *loaded,
                 og_plan_changes *out, og_err *err) {
    differ d = {.old = old, .now = now, .loaded = loaded, .arena = og_arena_create()};
    memset(out, 0, sizeof *out);
    if (!d.arena) return og_err_set(err, OG_ENOMEM, "out of memory");
    if (!same_text(old->model_dir, now->model_dir))
        other(&d, "model", old->model_dir, now->model_dir,
              "the checkpoint is another one: restart to change it");
    else if (!same_pipeline(old, now))
        other(&d, "pipeline", old->fingerprint_hex, now->fingerprint_hex,
              "the frozen part of the pipeline is another one: restart to change it");
    else if (og_overlay_diff(old->overlay, now->overlay, visit, &d) < 0)
        d.oom = true;
    og_plan_change *list = og_arena_alloc(d.arena, (size_t)(d.n + 1) * sizeof *list);
    if (list && d.n) memcpy(list, d.list, (size_t)d.n * sizeof *list);
    og_free(d.list);
    if (!list || d.oom) {
        og_arena_destroy(d.arena);
        return og_err_set(err, OG_ENOMEM, "out of memory");
    }
    *out = (og_plan_changes){.list = list, .n = d.n, .arena = d.arena};
    for (int i = 0; i < d.n; i++)
        if (list[i].kind > out->kind) out->kind = list[i].kind;
    return 0;
}

void og_plan_changes_free(og_plan_changes *c) {
    og_arena_destroy(c->arena);
    memset(c, 0, sizeof *c);
}

/* ---- printing -------------------------------------------------------------------- */

/* "file:line:col", the text of a flag, or nothing. */
static void source(const og_plan_change *c, og_str *out) {
    if (!c->src.file) return;
    og_str_add(out, c->src.file);
    if (c->src.line > 0) og_str_addf(out, ":%d:%d", c->src.line, c->src.col);
}

void og_plan_changes_print(const og_plan_changes *c, og_str *out) {
    for (int i = 0; i < c->n; i++) {
        const og_plan_change *x = &c->list[i];
        og_str_addf(out, "%-8s %s: %s -> %s", og_change_name(x->kind), x->path,
                    x->before ? x->before : "(not set)", x->after ? x->after : "(not set)");
        if (x->src.file) {
            og_str_add(out, "  (");
            source(x, out);
            og_str_add(out, ")");
        }
        og_str_addf(out, "%s%s\n", x->why[0] ? ": " : "", x->why);
    }
}

/* What json holds as text; the text itself where it is none. */
static json_t *parsed(const char *text) {
    if (!text) return json_null();
    json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
    return v ? v : json_string(text);
}

static json_t *change_json(const og_plan_change *c) {
    og_str src = OG_STR_INIT;
    source(c, &src);
    json_t *o = json_pack("{s:s,s:o,s:o,s:s?,s:s,s:s}", "path", c->path, "old",
                          parsed(c->before), "new", parsed(c->after), "source", src.data,
                          "class", og_change_name(c->kind), "why", c->why);
    og_str_free(&src);
    return o;
}

json_t *og_plan_changes_json(const og_plan_changes *c) {
    json_t *list = json_array();
    for (int i = 0; i < c->n && list; i++) {
        if (json_array_append_new(list, change_json(&c->list[i])) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

/* ---- replicas -------------------------------------------------------------------- */

bool og_plan_stage_serves(const og_plan_stage *loaded, const og_plan_stage *wanted) {
    const og_plan_stage *a = loaded, *b = wanted;
    bool same = same_text(a->name, b->name) && b->max_num_seqs <= a->max_num_seqs &&
                a->max_model_len == b->max_model_len &&
                a->max_num_batched_tokens == b->max_num_batched_tokens &&
                a->kv_asked == b->kv_asked && a->prefix_cache == b->prefix_cache &&
                a->n_options == b->n_options;
    for (int i = 0; same && i < a->n_options; i++)
        same = same_text(a->options[i].name, b->options[i].name) &&
               same_text(a->options[i].text, b->options[i].text);
    return same;
}
