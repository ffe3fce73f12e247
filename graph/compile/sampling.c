/* Sampling of a stage. Highest first: the pipeline's constraints, the overlay's
 * default_sampling_params, the checkpoint's generation_config.json, our defaults.
 *
 * A generation_config holds one set for the whole model. A key that begins with a stage's
 * name (talker_temperature) is that stage's alone and wins over the bare key; keys that
 * begin with subtalker_ are the depth head's. Its eos ids are not used: they are of the
 * text vocabulary, and a codec head has ids of its own that the pipeline names. */
#include "graph/compile/compile.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct source {
    og__build *b;
    const og_plan_stage *stage;
    const char *overlay; /* map of the overlay's stage */
    const char *prefix;  /* of generation_config keys */
    const json_t *gen;
} source;

static const json_t *gen_value(const source *s, const char *key) {
    char name[128];
    snprintf(name, sizeof name, "%s%s", s->prefix, key);
    const json_t *v = json_object_get(s->gen, name);
    if (!v && s->prefix[0] && strcmp(s->prefix, "subtalker_") != 0) {
        v = json_object_get(s->gen, key);
    }
    return json_is_null(v) ? NULL : v;
}

static const char *overlay_path(const source *s, const char *key, char *buf,
                                size_t size) {
    snprintf(buf, size, "%s.%s", s->overlay, key);
    return buf;
}

static double number(const source *s, const char *key, const char *gen_key, double def) {
    char path[128];
    const json_t *g = gen_key ? gen_value(s, gen_key) : NULL;
    if (json_is_number(g)) {
        def = json_number_value(g);
    }
    return og_overlay_float(s->b->overlay, s->stage->name,
                            overlay_path(s, key, path, sizeof path), def);
}

static bool truth(const source *s, const char *key, const char *gen_key, bool def) {
    char path[128];
    const json_t *g = gen_value(s, gen_key);
    if (json_is_boolean(g)) {
        def = json_is_true(g);
    }
    return og_overlay_bool(s->b->overlay, s->stage->name,
                           overlay_path(s, key, path, sizeof path), def);
}

static bool set_by_overlay(const source *s, const char *key) {
    char path[128];
    return og_overlay_get(s->b->overlay, s->stage->name,
                          overlay_path(s, key, path, sizeof path)) != NULL;
}

static int32_t clamp_int(double v, double lo) {
    return (int32_t)(v < lo ? lo : v > INT32_MAX ? INT32_MAX : v);
}

static void common(const source *s, const char *sample_key, og_sampling *o) {
    o->temperature = (float)number(s, "temperature", "temperature", o->temperature);
    o->top_p = (float)number(s, "top_p", "top_p", o->top_p);
    o->min_p = (float)number(s, "min_p", "min_p", o->min_p);
    o->top_k = clamp_int(number(s, "top_k", "top_k", o->top_k), 0);
    o->repetition_penalty = (float)number(s, "repetition_penalty", "repetition_penalty",
                                          o->repetition_penalty);
    o->presence_penalty = (float)number(s, "presence_penalty", NULL, o->presence_penalty);
    o->frequency_penalty =
        (float)number(s, "frequency_penalty", NULL, o->frequency_penalty);
    /* An overlay that asks for a temperature asks for sampling, whatever the checkpoint's
     * do_sample says. */
    bool sample = truth(s, "do_sample", sample_key, true);
    bool asked = set_by_overlay(s, "temperature") && !set_by_overlay(s, "do_sample");
    if ((!sample && !asked) || s->b->opts->greedy) {
        o->temperature = 0;
    }
}

/* ---- stop ids -------------------------------------------------------------------- */

/* Ids that the head can choose: 0 when nothing is known. */
static int64_t head_width(const og_plan_stage *s) {
    const json_t *v = og_cfg_find(s->section, "vocab_size");
    return json_is_integer(v) ? json_integer_value(v) : 0;
}

static void add_stop(og__build *b, og_plan_stage *s, int64_t id, og_src src) {
    og_sampling *o = &s->sampling;
    int64_t width = head_width(s);
    if (id < 0 || (width && id >= width)) {
        og_diags_warn(b->diags, src,
                      "stage '%s': stop id %" PRId64 " is dropped: its head has %" PRId64
                      " ids",
                      s->name, id, width);
        return;
    }
    for (int i = 0; i < o->n_stop; i++) {
        if (o->stop[i] == id) {
            return;
        }
    }
    if (o->n_stop == OG_MAX_STOP_IDS) {
        og_diags_error(b->diags, src, "stage '%s': too many stop ids (limit is %d)",
                       s->name, OG_MAX_STOP_IDS);
        return;
    }
    o->stop[o->n_stop++] = (int32_t)id;
}

static void stop_list(og__build *b, og_plan_stage *s, const og_yaml_node *list) {
    if (!list) {
        return;
    }
    int n = list->kind == OG_YAML_SEQ ? list->n : 1;
    for (int i = 0; i < n; i++) {
        const og_yaml_node *item = list->kind == OG_YAML_SEQ ? list->items[i] : list;
        int64_t id;
        if (og__plan_spec_int(b, item, s->spec, &id)) {
            add_stop(b, s, id, item->src);
        }
    }
}

static void stop_token(og__build *b, og_plan_stage *s, const og_yaml_node *item) {
    const og_tokenizer *t = NULL;
    og_err err = OG_ERR_INIT;
    const char *text = og__plan_spec_text(b, item, s->spec);
    if (!text || !b->model) {
        return;
    }
    if (og_model_tokenizer(b->model, s->tokenizer ? s->tokenizer : "", &t, &err) < 0) {
        og_diags_error(b->diags, item->src,
                       "stage '%s': stop_tokens need a tokenizer: %s", s->name, err.msg);
        return;
    }
    int32_t id = og_tokenizer_token_id(t, text);
    if (id < 0) {
        og_diags_error(b->diags, item->src,
                       "the tokenizer of stage '%s' has no token '%s'", s->name, text);
        return;
    }
    add_stop(b, s, id, item->src);
}

static void stops(og__build *b, og_plan_stage *s) {
    const og_spec_stage *spec = &b->spec->stages[s->spec];
    stop_list(
        b, s,
        og_overlay_get(b->overlay, s->name, "default_sampling_params.stop_token_ids"));
    stop_list(b, s, spec->stop_token_ids);
    const og_yaml_node *t = spec->stop_tokens;
    int n = !t ? 0 : t->kind == OG_YAML_SEQ ? t->n : 1;
    for (int i = 0; i < n; i++) {
        stop_token(b, s, t->kind == OG_YAML_SEQ ? t->items[i] : t);
    }
}

/* The overlay may raise min_tokens above the constraint, never lower it. */
static void min_tokens(og__build *b, og_plan_stage *s, const source *src) {
    const og_yaml_node *own = b->spec->stages[s->spec].min_tokens;
    int64_t least = 0;
    s->sampling.min_tokens = clamp_int(number(src, "min_tokens", "min_new_tokens", 0), 0);
    if (!own || !og__plan_spec_int(b, own, s->spec, &least)) {
        return;
    }
    if (s->sampling.min_tokens >= least) {
        return;
    }
    if (set_by_overlay(src, "min_tokens")) {
        const og_yaml_node *n =
            og_overlay_get(b->overlay, s->name, "default_sampling_params.min_tokens");
        og_diags_warn(b->diags, n->src,
                      "stage '%s': min_tokens stays %" PRId64
                      ", the pipeline's constraint",
                      s->name, least);
    }
    s->sampling.min_tokens = clamp_int((double)least, 0);
}

static void max_tokens(og__build *b, og_plan_stage *s, const source *src) {
    og_sampling *o = &s->sampling;
    s->max_tokens_soft = b->opts->max_tokens <= 0;
    o->max_tokens =
        clamp_int(number(src, "max_tokens", "max_new_tokens", o->max_tokens), 1);
    if (b->opts->max_tokens > 0) {
        o->max_tokens = b->opts->max_tokens;
    }
    if (o->min_tokens > o->max_tokens) {
        og_diags_warn(b->diags, s->src,
                      "stage '%s': min_tokens %d is lowered to max_tokens, %d", s->name,
                      o->min_tokens, o->max_tokens);
        o->min_tokens = o->max_tokens;
    }
}

static void check_range(og__build *b, const og_plan_stage *s, const og_sampling *o) {
    if (!(o->temperature >= 0) || !(o->top_p > 0 && o->top_p <= 1) ||
        !(o->min_p >= 0 && o->min_p <= 1) || !(o->repetition_penalty > 0)) {
        og_diags_error(
            b->diags, s->src,
            "stage '%s': sampling is out of range: temperature %g (>= 0), top_p %g "
            "(0 to 1), min_p %g (0 to 1), repetition_penalty %g (> 0)",
            s->name, o->temperature, o->top_p, o->min_p, o->repetition_penalty);
    }
}

void og__plan_sampling(og__build *b, int stage) {
    og_plan_stage *s = &b->stages[stage];
    const og_sampling init = OG_SAMPLING_INIT;
    s->sampling = s->head_sampling = init;
    if (s->kind != OG_KIND_AR) {
        return;
    }
    char own[OG_NAME_MAX + 2];
    snprintf(own, sizeof own, "%s_", s->name);
    const json_t *gen = b->model ? og_model_generation_config(b->model) : NULL;
    source src = {b, s, "default_sampling_params", own, gen};
    common(&src, "do_sample", &s->sampling);
    min_tokens(b, s, &src);
    max_tokens(b, s, &src);
    stops(b, s);
    source head = {b, s, "subtalker_sampling_params", "subtalker_", gen};
    common(&head, json_object_get(gen, "subtalker_dosample") ? "dosample" : "do_sample",
           &s->head_sampling);
    check_range(b, s, &s->sampling);
    check_range(b, s, &s->head_sampling);
    const og_yaml_node *seed =
        og_overlay_get(b->overlay, s->name, "default_sampling_params.seed");
    int64_t v;
    if (seed && !b->plan->has_seed && og_yaml_int(seed, &v, b->diags)) {
        b->plan->has_seed = true;
        b->plan->seed = (uint64_t)v;
    }
}
