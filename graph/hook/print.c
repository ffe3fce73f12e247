/* Results: freeing, and the readable form. */
#include "graph/hook/hook.h"

#include <string.h>

void og_hook_result_free(og_hook_result *res) {
    for (int i = 0; i < res->n; i++) {
        og_recipe_unref(res->emits[i].rows);
        og_recipe_unref(res->emits[i].fill);
        og_free(res->emits[i].parts);
    }
    for (int i = 0; i < res->n_logs; i++) og_free(res->logs[i]);
    og_free(res->emits);
    og_free(res->logs);
    og_free(res->next);
    *res = (og_hook_result)OG_HOOK_RESULT_INIT;
}

static const char *source_name(const og_hook_env *env, int32_t k) {
    return k >= 0 && k < env->n_sources ? env->sources[k] : "?";
}

static const char *table_name(const og_hook_env *env, int k) {
    return env->to && env->to->tables ? env->to->tables[k].name : "?";
}

static void print_term(const og_term *t, int open, const og_hook_env *env, og_str *out) {
    const char *table = table_name(env, t->table);
    if (t->source == OG_NO_SOURCE)
        og_str_addf(out, "%s[%d]", table, (int)t->index);
    else
        og_str_addf(out, "%s(%s[%d%s])", table, source_name(env, t->source),
                    (int)t->index + 1, open ? ".." : "");
}

static void print_open(const og_recipe *r, const og_open_part *p, const og_hook_env *env,
                       og_str *out) {
    og_str_addf(out, "  %4d..  ", (int)p->at + 1);
    for (int32_t k = 0; k < p->n_terms; k++) {
        const og_open_term *t = &r->open_terms[p->first_term + k];
        if (k) og_str_add(out, " + ");
        print_term(&t->term, t->step != 0, env, out);
    }
    og_str_add(out, "\n");
}

static void print_rows(const og_recipe *r, const og_hook_env *env, og_str *out) {
    for (int32_t i = 0; i <= r->n_rows; i++) {
        for (int32_t k = 0; k < r->n_open; k++)
            if (r->open[k].at == i) print_open(r, &r->open[k], env, out);
        if (i == r->n_rows) break;
        og_str_addf(out, "  %4d  ", (int)i + 1);
        for (int32_t k = r->off[i]; k < r->off[i + 1]; k++) {
            if (k > r->off[i]) og_str_add(out, " + ");
            print_term(&r->terms[k], 0, env, out);
        }
        og_str_add(out, "\n");
    }
    for (int32_t k = 0; k < r->n_spans; k++) {
        const og_row_span *s = &r->spans[k];
        og_str_addf(out, "  span %s rows %d to %d", s->kind, (int)s->from + 1,
                    (int)s->to);
        if (s->grid[0] || s->grid[1] || s->grid[2])
            og_str_addf(out, "  grid %d x %d x %d", (int)s->grid[0], (int)s->grid[1],
                        (int)s->grid[2]);
        if (s->seconds > 0) og_str_addf(out, "  %g s", (double)s->seconds);
        og_str_add(out, "\n");
    }
}

static void print_parts(const og_hook_emit *e, const og_hook_env *env, og_str *out) {
    for (int32_t i = 0; i < e->n_parts; i++) {
        const og_hook_part *p = &e->parts[i];
        og_str_add(out, "  ");
        if (p->source < 0) {
            og_str_add(out, "ids");
            for (int32_t k = 0; k < p->n; k++) og_str_addf(out, " %d", (int)p->ids[k]);
        } else if (p->n < 0) {
            og_str_addf(out, "%s[%d..]", source_name(env, p->source), (int)p->from + 1);
        } else {
            og_str_addf(out, "%s[%d..%d]", source_name(env, p->source), (int)p->from + 1,
                        (int)(p->from + p->n));
        }
        og_str_add(out, "\n");
    }
}

static void print_lane(int lane, const og_hook_env *env, og_str *out) {
    if (env->numbered)
        og_str_addf(out, "lane %d", lane + 1);
    else if (lane < env->n_lanes)
        og_str_addf(out, "lane %s", env->lanes[lane]);
}

static void print_limits(const og_hook_emit *e, og_str *out) {
    if (e->min_tokens) og_str_addf(out, "  min_tokens %d", (int)e->min_tokens);
    if (e->max_tokens) og_str_addf(out, "  max_tokens %d", (int)e->max_tokens);
    if (e->drop) og_str_addf(out, "  drop %d", (int)e->drop);
    if (e->mute) og_str_add(out, "  mute");
}

static void print_emit(const og_hook_emit *e, const og_hook_env *env, og_str *out) {
    if (e->kind == OG_HOOK_EMIT_FORK) {
        og_str_add(out, "fork  ");
        print_lane(e->lane, env, out);
        og_str_add(out, " from ");
        print_lane(e->from_lane, env, out);
        og_str_add(out, "\n");
        return;
    }
    og_str_addf(out, "%s.%s", env->stage ? env->stage : "?",
                env->to->ports[e->port].name);
    if (env->numbered || env->n_lanes) {
        og_str_add(out, "  ");
        print_lane(e->lane, env, out);
    }
    if (e->rows)
        og_str_addf(out, "  %d rows%s", (int)e->rows->n_rows,
                    e->rows->n_open ? " and more" : "");
    print_limits(e, out);
    og_str_add(out, "\n");
    if (e->rows)
        print_rows(e->rows, env, out);
    else
        print_parts(e, env, out);
    if (!e->fill) return;
    og_str_addf(out, "%s.%s  then in every step\n", env->stage ? env->stage : "?",
                env->to->ports[e->port].name);
    print_rows(e->fill, env, out);
}

void og_hook_print(const og_hook_result *res, const og_hook_env *env, og_str *out) {
    for (int i = 0; i < res->n; i++) print_emit(&res->emits[i], env, out);
    if (res->next) og_str_addf(out, "next phase: %s\n", res->next);
    for (int i = 0; i < res->n_logs; i++)
        og_str_addf(out, "%s: %s\n", res->warnings >> i & 1 ? "warning" : "log",
                    res->logs[i]);
}
