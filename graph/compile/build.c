/* Building a plan: load what it is made of, run the passes, hand it over. */
#include "graph/compile/compile.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct og__plan_refs {
    atomic_int n;
};

void *og__plan_new(og__build *b, size_t n, size_t size) {
    void *p = og_arena_alloc(b->arena, (n ? n : 1) * size);
    if (!p) {
        b->oom = true;
    }
    return p;
}

const char *og__plan_text(og__build *b, const char *fmt, ...) {
    char buf[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    const char *s = og_arena_strdup(b->arena, buf);
    if (!s) {
        b->oom = true;
    }
    return s;
}

void og__plan_block(og__build *b, og_src src, const char *fmt, ...) {
    char buf[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    if (!b->check) {
        og_diags_error(b->diags, src, "%s", buf);
        return;
    }
    og_diags_note(b->diags, src, "%s", buf);
    if (b->n_blockers < OG__MAX_BLOCKERS) {
        const char *text = og_arena_strdup(b->arena, buf);
        if (text) {
            b->blockers[b->n_blockers++] = text;
        } else {
            b->oom = true;
        }
    }
}

uint64_t og__plan_hash(uint64_t h, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ p[i]) * 0x100000001b3ull;
    }
    return h;
}

uint64_t og__plan_hash_text(uint64_t h, const char *text) {
    if (!text) {
        return og__plan_hash(h, "\xff", 1);
    }
    return og__plan_hash(h, text, strlen(text) + 1);
}

static int open_overlay(og__build *b, const char *platform, og_err *err) {
    const og_plan_options *o = b->opts;
    int n = b->spec->n_stages;
    og_stage_ref *refs = og__plan_new(b, (size_t)n, sizeof *refs);
    if (!refs) {
        return og_err_set(err, OG_ENOMEM, "out of memory");
    }
    for (int i = 0; i < n; i++) {
        const og_spec_stage *s = &b->spec->stages[i];
        refs[i] = (og_stage_ref){s->name, s->id, s->node};
    }
    og_overlay_opts oo = {
        .path = o->deploy,
        .dirs = o->deploy_dirs,
        .n_dirs = o->n_deploy_dirs,
        .platform = platform,
        .stages = refs,
        .n_stages = n,
        .flags = o->flags,
        .n_flags = o->n_flags,
        .sets = o->sets,
        .n_sets = o->n_sets,
        .stage_overrides = o->stage_overrides,
        .asked = o->asked,
        .asked_arg = o->asked_arg,
    };
    return og_overlay_load(&oo, b->diags, &b->overlay, err);
}

static bool wants_dummy(const og__build *b) {
    if (b->opts->dummy) {
        return true;
    }
    for (int i = 0; i < b->spec->n_stages; i++) {
        const char *f =
            og_overlay_string(b->overlay, b->spec->stages[i].name, "load_format", "auto");
        if (strcmp(f, "dummy") == 0) {
            return true;
        }
    }
    return false;
}

/* Made-up weights take the dtype that the checkpoint says it has. */
static og_dtype dummy_dtype(og_model *m) {
    const json_t *cfg = og_model_config(m, "", NULL, NULL);
    const char *keys[] = {"torch_dtype", "dtype"};
    for (int i = 0; i < 2; i++) {
        const char *t = json_string_value(json_object_get(cfg, keys[i]));
        if (t && strcmp(t, "float32") == 0) {
            return OG_F32;
        }
        if (t && strcmp(t, "float16") == 0) {
            return OG_F16;
        }
    }
    return OG_BF16;
}

static int reopen_dummy(og__build *b, og_err *err) {
    og_model *m = NULL;
    int rc = og_model_open_dummy(b->opts->model, 0, dummy_dtype(b->model), &m, err);
    if (rc == 0) {
        og_model_close(b->model);
        b->model = m;
    }
    return rc;
}

static void registry(og__build *b) {
    const og_plan_registry *r = &b->opts->registry;
    b->archs = r->archs ? r->archs : og_archs;
    b->kinds = r->kinds;
    b->n_kinds = r->n_kinds;
    if (!b->kinds) {
        b->kinds = og_kinds(&b->n_kinds);
    }
}

static int open_spec(og__build *b, og_err *err) {
    const og_plan_options *o = b->opts;
    if (o->pipeline) {
        return og_pipeline_load(o->pipeline, o->pipeline_dirs, o->n_pipeline_dirs,
                                b->diags, &b->spec, err);
    }
    if (!b->model) {
        og_err_set(err, OG_EINVAL, "neither a pipeline nor a checkpoint was given");
        og_err_hint(err,
                    "name a pipeline, or give --model DIR to pick one by its config");
        return OG_EINVAL;
    }
    b->spec = og__plan_pick(b);
    return b->spec ? 0 : og_diags_err(b->diags, err);
}

static int check_match(og__build *b) {
    const og_spec_match *why = NULL;
    if (!b->model || og__plan_match(b->model, b->spec, &why)) {
        return 0;
    }
    const char *what = why->value ? why->value : "to be present";
    og_diags_error(b->diags, why->src,
                   "pipeline '%s' is not for this checkpoint: it wants %s %s",
                   b->spec->name, why->key, what);
    og_diags_hint(b->diags, "the checkpoint is %s", b->opts->model);
    return OG_ESPEC;
}

int og__build_open(og__build *b, const og_plan_options *opts, int flags, og_diags *diags,
                   og_err *err) {
    memset(b, 0, sizeof *b);
    b->opts = opts;
    b->check = (flags & OG_PLAN_CHECK_ONLY) != 0;
    b->diags = diags;
    b->arena = og_arena_create();
    b->plan = b->arena ? og_arena_alloc(b->arena, sizeof *b->plan) : NULL;
    int rc = OG_ENOMEM;
    if (!b->plan) {
        og_err_set(err, rc, "out of memory");
        goto fail;
    }
    registry(b);
    if (opts->loaded) {
        b->model = og_model_ref(opts->loaded);
    } else if (opts->model && (rc = og_model_open(opts->model, &b->model, err)) < 0) {
        goto fail;
    }
    if ((rc = open_spec(b, err)) < 0) {
        goto fail;
    }
    if ((rc = check_match(b)) < 0) {
        og_diags_err(b->diags, err);
        goto fail;
    }
    if ((rc = open_overlay(b, opts->backend, err)) < 0) {
        goto fail;
    }
    bool made_up = b->model && og_model_is_dummy(b->model);
    if (b->model && wants_dummy(b) && !made_up && (rc = reopen_dummy(b, err)) < 0) {
        goto fail;
    }
    b->bs = og__plan_new(b, (size_t)b->spec->n_stages, sizeof *b->bs);
    b->be = og__plan_new(b, (size_t)b->spec->n_edges, sizeof *b->be);
    if (b->oom) {
        rc = og_err_set(err, OG_ENOMEM, "out of memory");
        goto fail;
    }
    return 0;
fail:
    og__build_close(b);
    return rc;
}

static void drop_fields(og_plan_field *fields, int n) {
    for (int i = 0; fields && i < n; i++) {
        json_decref((json_t *)fields[i].def);
        fields[i].def = NULL;
    }
}

void og__build_close(og__build *b) {
    drop_fields(b->fields, b->spec ? b->spec->n_request : 0);
    og_overlay_destroy(b->overlay);
    og_pipeline_destroy(b->spec);
    og_model_close(b->model);
    og_arena_destroy(b->arena);
    memset(b, 0, sizeof *b);
}

/* Move what the plan keeps out of the build. */
static og_plan *take(og__build *b) {
    og_plan *p = b->plan;
    p->name = b->spec->name;
    p->file = b->spec->file;
    p->runnable = b->n_blockers == 0;
    p->pipeline = b->spec;
    p->overlay = b->overlay;
    p->model = b->model;
    p->stages = b->stages, p->n_stages = b->n_stages;
    p->edges = b->edges, p->n_edges = b->n_edges;
    p->fields = b->fields, p->n_fields = b->spec->n_request;
    p->responses = b->responses, p->n_responses = b->n_responses;
    p->groups = b->groups, p->n_groups = b->n_groups;
    p->threads = b->opts->threads;
    p->arena = b->arena;
    atomic_init(&p->refs->n, 1);
    return p;
}

static const char **keep_list(og__build *b, const char *const *list, int n) {
    const char **copy = og__plan_new(b, (size_t)n, sizeof *copy);
    for (int i = 0; copy && i < n; i++) {
        copy[i] = og__plan_text(b, "%s", list[i]);
    }
    return copy;
}

/* Strings of the options are the caller's: the plan outlives them. */
static void keep_options(og__build *b) {
    og_plan *p = b->plan;
    const og_plan_options *o = b->opts;
    p->model_dir = o->model ? og__plan_text(b, "%s", o->model) : NULL;
    p->backend = og__plan_text(b, "%s", o->backend);
    p->script_dirs = keep_list(b, o->script_dirs, o->n_script_dirs);
    p->n_script_dirs = o->n_script_dirs;
    p->async_chunk = og_overlay_bool(b->overlay, NULL, "async_chunk", true);
    p->refs = og__plan_new(b, 1, sizeof *p->refs);
}

static void keep_blockers(og__build *b) {
    b->plan->blockers = keep_list(b, b->blockers, b->n_blockers);
    b->plan->n_blockers = b->n_blockers;
}

typedef int (*pass_fn)(og__build *b);

static int run_passes(og__build *b) {
    /* The first group only reads the spec: it runs through, so that all mistakes are
     * named. The second builds on a graph that is sound. */
    static const pass_fn first[] = {og__pass_resolve, og__pass_gate,  og__pass_fields,
                                    og__pass_wire,    og__pass_lanes, og__pass_hooks,
                                    og__pass_unify};
    static const pass_fn second[] = {og__pass_values, og__pass_place, og__pass_memory,
                                     og__pass_freeze};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        if (first[i](b) < 0 || b->oom) {
            return OG_ENOMEM;
        }
    }
    for (size_t i = 0; i < sizeof second / sizeof *second; i++) {
        if (og_diags_errors(b->diags)) {
            return OG_ESPEC;
        }
        if (second[i](b) < 0 || b->oom) {
            return OG_ENOMEM;
        }
    }
    return og_diags_errors(b->diags) ? OG_ESPEC : 0;
}

int og_plan_build(const og_plan_options *opts, int flags, og_diags *diags, og_plan **out,
                  og_err *err) {
    og__build b;
    og_diags *own = NULL;
    *out = NULL;
    if (!diags && !(diags = own = og_diags_create())) {
        return og_err_set(err, OG_ENOMEM, "out of memory");
    }
    int rc = og__build_open(&b, opts, flags, diags, err);
    if (rc == 0) {
        keep_options(&b);
        rc = b.oom ? OG_ENOMEM : run_passes(&b);
        keep_blockers(&b);
        if (rc == 0 && !b.oom) {
            *out = take(&b);
        } else {
            rc = rc ? rc : OG_ENOMEM;
            if (rc == OG_ENOMEM || og_diags_err(diags, err) == 0) {
                og_err_set(err, rc, "%s", og_strerror(rc));
            }
            og__build_close(&b);
        }
    }
    og_diags_destroy(own);
    return rc;
}

const og_plan *og_plan_ref(const og_plan *p) {
    atomic_fetch_add(&p->refs->n, 1);
    return p;
}

void og_plan_unref(const og_plan *p) {
    og_plan_destroy((og_plan *)p);
}

void og_plan_destroy(og_plan *p) {
    if (!p || atomic_fetch_sub(&p->refs->n, 1) != 1) {
        return;
    }
    drop_fields((og_plan_field *)p->fields, p->n_fields);
    og_overlay_destroy((og_overlay *)p->overlay);
    og_pipeline_destroy((og_pipeline *)p->pipeline);
    og_model_close(p->model);
    og_arena_destroy(p->arena);
}

int og_plan_find_stage(const og_plan *p, const char *name) {
    for (int i = 0; i < p->n_stages; i++) {
        if (strcmp(p->stages[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

int og_plan_find_field(const og_plan *p, const char *name) {
    for (int i = 0; i < p->n_fields; i++) {
        if (strcmp(p->fields[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

int og_plan_find_response(const og_plan *p, const char *name) {
    for (int i = 0; i < p->n_responses; i++) {
        if (strcmp(p->responses[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

og_node_cfg og_plan_node_cfg(const og_plan *p, int stage, og_exec *exec) {
    const og_plan_stage *s = &p->stages[stage];
    return (og_node_cfg){
        .arch = s->arch,
        .stage = s->name,
        .model = p->model,
        .folder = s->folder,
        .exec = exec,
        .stage_key = s->stage_key,
        .max_seqs = s->max_num_seqs,
        .max_model_len = s->max_model_len,
        .max_batched_tokens = s->max_num_batched_tokens,
        .kv_bytes = s->kv_bytes,
        .prefix_cache = s->prefix_cache,
        .options = s->options,
        .n_options = s->n_options,
    };
}
