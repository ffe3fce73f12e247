/* Values: options of the archs, what each arch says of its config, sampling. */
#include "graph/compile/compile.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *type_name(og_option_type t) {
    static const char *const names[] = {"an integer", "a number", "true or false",
                                        "text"};
    return names[t];
}

/* One number of the text, where the option is one. */
static bool number(const og_option_desc *d, const char *text, double *v) {
    char *end;
    errno = 0;
    *v = d->type == OG_OPT_INT ? (double)strtoll(text, &end, 0) : strtod(text, &end);
    return end != text && !*end && errno == 0 && isfinite(*v);
}

static void check_option(og__build *b, const og_plan_stage *s, const og_option_desc *d,
                         const char *text, og_src src) {
    double v = 0;
    bool ok = true;
    if (d->type == OG_OPT_INT || d->type == OG_OPT_FLOAT) {
        ok = number(d, text, &v);
    } else if (d->type == OG_OPT_BOOL) {
        ok = strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
    }
    if (!ok) {
        og_diags_error(b->diags, src, "stage '%s': option '%s' must be %s, not '%s'",
                       s->name, d->name, type_name(d->type), text);
    } else if ((d->min != 0 || d->max != 0) && d->type <= OG_OPT_FLOAT &&
               (v < d->min || v > d->max)) {
        og_diags_error(b->diags, src, "stage '%s': option '%s' is %s, it may be %g to %g",
                       s->name, d->name, text, d->min, d->max);
    }
}

/* Text of an option's value: a scalar, a `$` reference, or a list as "0,1,2". */
static const char *option_text(og__build *b, const og_option_desc *d,
                               const og_yaml_node *n, int own) {
    bool v;
    if (n->kind == OG_YAML_SCALAR) {
        const char *text = og__plan_spec_text(b, n, own);
        bool plain = text == n->text && d->type == OG_OPT_BOOL;
        return plain && og_yaml_bool(n, &v, b->diags) ? (v ? "true" : "false") : text;
    }
    if (n->kind != OG_YAML_SEQ || d->type != OG_OPT_STR) {
        og_diags_error(b->diags, n->src, "option '%s' must be %s, not %s", d->name,
                       type_name(d->type), og_yaml_kind_name(n->kind));
        return NULL;
    }
    og_str list = OG_STR_INIT;
    for (int i = 0; i < n->n; i++) {
        const char *item = og__plan_spec_text(b, n->items[i], own);
        og_str_addf(&list, "%s%s", i ? "," : "", item ? item : "");
    }
    const char *text = og_arena_strdup(b->arena, list.data ? list.data : "");
    b->oom |= !text || list.oom;
    og_str_free(&list);
    return text;
}

static const og_option_desc *find_option(const og_arch *a, const char *name) {
    for (const og_option_desc *d = a->options; d && d->name; d++) {
        if (strcmp(d->name, name) == 0) {
            return d;
        }
    }
    return NULL;
}

static void unknown_option(og__build *b, const og_arch *a, const char *name, og_src src) {
    const char *names[128];
    int n = 0;
    for (const og_option_desc *d = a->options; d && d->name && n < 128; d++) {
        names[n++] = d->name;
    }
    og_diags_error(b->diags, src, "arch '%s' has no option '%s'", a->name, name);
    const char *best = og_near(name, names, n);
    if (best) {
        og_diags_suggest(b->diags, best);
    } else {
        og_diags_hint(b->diags,
                      n ? "omni-graph inspect arch %s lists its options"
                        : "arch %s has no options",
                      a->name);
    }
}

static void check_option_names(og__build *b, const og_arch *a, const og_yaml_node *map,
                               bool overlay) {
    for (int i = 0; a && map && map->kind == OG_YAML_MAP && i < map->n; i++) {
        const og_option_desc *d = find_option(a, map->pairs[i].key);
        if (!d) {
            unknown_option(b, a, map->pairs[i].key, map->pairs[i].src);
        } else if (overlay && !d->tunable) {
            og_diags_error(
                b->diags, map->pairs[i].src,
                "option '%s' of arch '%s' is frozen: the overlay cannot change it",
                d->name, a->name);
        }
    }
}

static void stage_options(og__build *b, int stage) {
    og_plan_stage *s = &b->stages[stage];
    if (!s->arch) {
        return;
    }
    const og_yaml_node *own = b->spec->stages[s->spec].options;
    const og_yaml_node *over = og_overlay_get(b->overlay, s->name, "options");
    check_option_names(b, s->arch, over, true);
    int n = 0;
    while (s->arch->options && s->arch->options[n].name) {
        n++;
    }
    og_option_value *values = og__plan_new(b, (size_t)n, sizeof *values);
    for (int i = 0; values && i < n; i++) {
        const og_option_desc *d = &s->arch->options[i];
        const og_yaml_node *v = og_yaml_get(over, d->name);
        v = v ? v : og_yaml_get(own, d->name);
        const char *text = v ? option_text(b, d, v, s->spec) : d->def;
        if (text && v) {
            check_option(b, s, d, text, v->src);
        }
        values[i] = (og_option_value){d->name, text ? text : d->def};
    }
    s->options = values;
    s->n_options = values ? n : 0;
}

static void arch_check(og__build *b, const og_plan_stage *s) {
    og_err err = OG_ERR_INIT;
    if (s->arch && s->arch->check && s->section && s->arch->check(s->section, &err) < 0) {
        og_diags_error(b->diags, s->src, "stage '%s': the checkpoint's configuration: %s",
                       s->name, err.msg);
        if (err.hint[0]) {
            og_diags_hint(b->diags, "%s", err.hint);
        }
    }
}

/* Options of stages that this checkpoint turns off are checked by name all the same. */
static void check_spec_options(og__build *b) {
    for (int i = 0; i < b->spec->n_stages; i++) {
        check_option_names(b, b->bs[i].arch, b->spec->stages[i].options, false);
    }
}

int og__pass_values(og__build *b) {
    check_spec_options(b);
    for (int i = 0; i < b->n_stages && !b->oom; i++) {
        stage_options(b, i);
        arch_check(b, &b->stages[i]);
        og__plan_sampling(b, i);
        og__plan_route(b, i);
    }
    return b->oom || og_diags_oom(b->diags) ? OG_ENOMEM : 0;
}
