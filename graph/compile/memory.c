/* Memory: limits of each stage, what its node will take, what one request may have in
 * flight on each edge, and whether all of it fits. Numbers come from the kinds' own plan
 * functions, from config alone: nothing is loaded. */
#include "graph/compile/compile.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* What a stage gets when nobody says otherwise. */
enum {
    DEFAULT_SEQS = 8,
    DEFAULT_BATCHED = 512,
    DEFAULT_LEN = 4096,
    DEFAULT_STREAM_LEN = 65536, /* frames through a vocoder: it keeps a window, not all */
};

static bool is_set(const og__build *b, const og_plan_stage *s, const char *key,
                   og_src *src) {
    const og_yaml_node *n = og_overlay_get(b->overlay, s->name, key);
    *src = n ? n->src : s->src;
    return n != NULL;
}

static int setting(const og__build *b, const og_plan_stage *s, const char *key, int def) {
    int64_t v = og_overlay_int(b->overlay, s->name, key, def);
    return v < 1 ? 1 : v > INT32_MAX ? INT32_MAX : (int)v;
}

static void limits(og__build *b, og_plan_stage *s) {
    int len = s->kind == OG_KIND_VOCODER ? DEFAULT_STREAM_LEN : DEFAULT_LEN;
    s->max_num_seqs = setting(b, s, "max_num_seqs", DEFAULT_SEQS);
    s->max_model_len = setting(b, s, "max_model_len", len);
    s->max_num_batched_tokens = setting(b, s, "max_num_batched_tokens", DEFAULT_BATCHED);
    int64_t kv = og_overlay_int(b->overlay, s->name, "kv_cache_memory_bytes", 0);
    s->kv_bytes = s->kv_asked = kv > 0 ? (size_t)kv : 0;
    s->prefix_cache = og_overlay_bool(b->overlay, s->name, "enable_prefix_caching", true);
}

static og_node_cfg node_cfg(const og__build *b, const og_plan_stage *s) {
    return (og_node_cfg){
        .arch = s->arch,
        .stage = s->name,
        .model = b->model,
        .folder = s->folder,
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

static bool ask_node(og__build *b, const og_plan_stage *s, const og_node_cfg *cfg,
                     og_node_plan *out) {
    og_err err = OG_ERR_INIT;
    memset(out, 0, sizeof *out);
    if (s->kind_desc->plan(s->arch, cfg, out, &err) < 0) {
        og_diags_error(b->diags, s->src, "stage '%s': %s", s->name, err.msg);
        if (err.hint[0]) {
            og_diags_hint(b->diags, "%s", err.hint);
        }
        return false;
    }
    return true;
}

static bool can_plan(const og__build *b, const og_plan_stage *s) {
    if (!s->arch || !s->arch->impl || !s->kind_desc->plan) return false;
    return !s->arch->section || (b->model && s->section);
}

/* The network's own longest sequence bounds max_model_len. */
static bool bound_len(og__build *b, og_plan_stage *s) {
    int64_t most = s->node.max_positions;
    og_src src;
    if (most <= 0 || s->max_model_len <= most) {
        return false;
    }
    if (is_set(b, s, "max_model_len", &src)) {
        og_diags_error(b->diags, src,
                       "stage '%s': max_model_len is %d, the network can take %" PRId64,
                       s->name, s->max_model_len, most);
        return false;
    }
    s->max_model_len = (int)most;
    return true;
}

static size_t machine_memory(const og__build *b) {
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    if (b->opts->memory_limit) {
        return b->opts->memory_limit;
    }
    return pages > 0 && size > 0 ? (size_t)pages * (size_t)size : 0;
}

/* A pool for the worst case of all slots may be more than the device has. Where nobody said
 * how large it is to be, it takes on the host a quarter of the memory at most, on a GPU what
 * gpu_memory_utilization leaves, and one sequence at the least: admission makes the others
 * wait. */
static void bound_pool(og__build *b, og_plan_stage *s) {
    bool host = s->replicas && s->replicas[0].place.kind == OG_PLACE_HOST;
    size_t most = host ? machine_memory(b) / 4 : og__plan_pool_bound(b, s);
    if (s->kv_bytes || s->kind != OG_KIND_AR || !most || s->node.kv_bytes <= most) {
        return;
    }
    og_node_cfg one = node_cfg(b, s);
    og_node_plan p;
    one.max_seqs = 1;
    if (!ask_node(b, s, &one, &p)) {
        return;
    }
    s->kv_bytes = p.kv_bytes > most ? p.kv_bytes : most;
    og_diags_note(b->diags, s->src,
                  "stage '%s': the KV pool is bounded to %zu bytes, %d sequences of %d "
                  "positions would take %zu",
                  s->name, s->kv_bytes, s->max_num_seqs, s->max_model_len,
                  s->node.kv_bytes);
    one = node_cfg(b, s);
    s->has_node_plan = ask_node(b, s, &one, &s->node);
}

static void check_pool(og__build *b, const og_plan_stage *s) {
    og_node_cfg one = node_cfg(b, s);
    og_node_plan p;
    og_src src;
    one.max_seqs = 1;
    one.kv_bytes = 0;
    if (!s->kv_bytes || !ask_node(b, s, &one, &p) || p.kv_bytes <= s->kv_bytes) {
        return;
    }
    is_set(b, s, "kv_cache_memory_bytes", &src);
    og_diags_error(
        b->diags, src,
        "stage '%s': a KV pool of %zu bytes is too small for one sequence of %d "
        "positions, which takes %zu",
        s->name, s->kv_bytes, s->max_model_len, p.kv_bytes);
    og_diags_hint(b->diags, "raise kv_cache_memory_bytes or lower max_model_len");
}

static void plan_node(og__build *b, int stage) {
    og_plan_stage *s = &b->stages[stage];
    limits(b, s);
    if (can_plan(b, s)) {
        og_node_cfg cfg = node_cfg(b, s);
        s->has_node_plan = ask_node(b, s, &cfg, &s->node);
        if (s->has_node_plan && bound_len(b, s)) {
            cfg = node_cfg(b, s);
            s->has_node_plan = ask_node(b, s, &cfg, &s->node);
        }
        if (s->has_node_plan) {
            check_pool(b, s);
            bound_pool(b, s);
        }
    }
    /* One position is left for the prompt, at the least. */
    if (s->max_tokens_soft && s->max_model_len > 1 &&
        s->sampling.max_tokens > s->max_model_len - 1) {
        s->sampling.max_tokens = s->max_model_len - 1;
    }
}

/* ---- items and budgets ----------------------------------------------------------- */

static int64_t most_in(const og__build *b, int stage) {
    int64_t most = 0;
    for (int i = 0; i < b->stages[stage].n_ports; i++) {
        const og_plan_port *p = &b->ports[stage][i];
        if (p->feeder >= 0 && b->edges[p->feeder].max_items > most) {
            most = b->edges[p->feeder].max_items;
        }
    }
    return most;
}

static int64_t mul(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}

static void plan_ports(og__build *b, int stage) {
    const og_plan_stage *s = &b->stages[stage];
    int64_t in = most_in(b, stage);
    for (int i = 0; i < s->n_ports; i++) {
        og_plan_port *p = &b->ports[stage][i];
        if (!(p->flags & OG_PORT_OUT)) {
            continue;
        }
        p->dtype = s->node.out_dtype[i];
        p->width = s->node.out_width[i];
        p->item_bytes = s->node.out_item_bytes[i];
        p->per_item = s->node.out_items_per_item[i];
        if (s->kind == OG_KIND_AR) {
            bool stream = (p->flags & OG_PORT_STREAM) != 0;
            p->max_items = stream ? s->sampling.max_tokens : s->max_model_len;
        } else {
            p->max_items = mul(in, p->per_item);
        }
    }
}

static void plan_edge(og__build *b, og_plan_edge *e) {
    bool first = true;
    e->max_items = 0;
    for (int i = 0; i < e->n_from; i++) {
        const og_plan_end *f = &e->from[i];
        if (f->stage < 0 || f->port < 0) {
            continue;
        }
        const og_plan_port *p = &b->ports[f->stage][f->port];
        if (first) {
            e->dtype = p->dtype;
            e->width = p->width;
            e->item_bytes = p->item_bytes;
            first = false;
        }
        if (p->max_items > e->max_items) {
            e->max_items = p->max_items;
        }
        if (!e->client) {
            e->budget_bytes += (size_t)mul(p->max_items, (int64_t)p->item_bytes);
        }
    }
}

static void plan_edges(og__build *b) {
    for (int i = 0; i < b->n_edges; i++) {
        og_plan_edge *e = &b->edges[i];
        b->plan->edge_bytes += e->budget_bytes;
        if (e->env && e->to[0].stage >= 0) {
            ((og_hook_env *)e->env)->max_rows = b->stages[e->to[0].stage].max_model_len;
        }
    }
}

/* Producers first: an edge's items are known when its source's ports are. */
static void plan_stream(og__build *b) {
    for (int i = 0; i < b->plan->n_order; i++) {
        int s = b->plan->order[i];
        for (int k = 0; k < b->n_edges; k++) {
            if (b->edges[k].n_to && b->edges[k].to[0].stage == s) {
                b->edges[k].budget_bytes = 0;
                plan_edge(b, &b->edges[k]);
            }
        }
        plan_ports(b, s);
    }
    for (int k = 0; k < b->n_edges; k++) {
        if (b->edges[k].client) {
            plan_edge(b, &b->edges[k]);
        }
    }
}

/* ---- totals ---------------------------------------------------------------------- */

/* Weights are mapped once a machine, whatever number of replicas uses them. */
static void totals(og__build *b) {
    og_plan *p = b->plan;
    for (int i = 0; i < b->n_stages; i++) {
        const og_plan_stage *s = &b->stages[i];
        size_t n = (size_t)s->n_replicas;
        p->weight_bytes += s->with >= 0 ? 0 : s->node.weight_bytes;
        p->kv_bytes += n * s->node.kv_bytes;
        p->state_bytes += n * s->node.state_bytes;
    }
    p->memory_limit = machine_memory(b);
    og__plan_devices(b, p->memory_limit);
}

int og__pass_memory(og__build *b) {
    for (int i = 0; i < b->n_stages && !b->oom; i++) {
        plan_node(b, i);
    }
    plan_stream(b);
    plan_edges(b);
    totals(b);
    return b->oom || og_diags_oom(b->diags) ? OG_ENOMEM : 0;
}
