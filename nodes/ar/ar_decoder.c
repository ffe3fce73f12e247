/* The kind ar_decoder: nodes, slots, admission, the memory plan. */
#include "kernels/base/alloc.h"
#include "nodes/ar/ar_node.h"

#include <stdlib.h>
#include <string.h>

/* ---- sizes from the config ------------------------------------------------------- */

/* A number in a table's descriptor: "$key" of the section, or digits; NULL gives def. */
static int resolve(const json_t *section, const char *text, int64_t def, int64_t *out,
                   og_err *err) {
    *out = text ? strtoll(text, NULL, 10) : def;
    return text && text[0] == '$' ? og_cfg_i64(section, text + 1, out, 1, 1 << 30, err) : 0;
}

static int read_tables(const og_arch *a, const json_t *section, og_ar_dims *d, og_err *err) {
    int rc = 0;
    for (const og_table_desc *t = a->tables; !rc && t && t->name; t++) {
        if (d->n_tables == OG_AR_MAX_TABLES)
            return og_err_set(err, OG_EINTERNAL, "%s has too many tables (limit is %d)",
                              a->name, OG_AR_MAX_TABLES);
        og_row_table *r = &d->tables[d->n_tables++];
        *r = (og_row_table){.name = t->name, .arg = t->arg};
        rc = resolve(section, t->count, 0, &r->count, err);
        if (!rc) rc = resolve(section, t->width, 1, &r->width, err);
    }
    return rc;
}

static int read_dims(const og_arch *a, const og_node_cfg *cfg, og_ar_dims *d, og_err *err) {
    const og_ar_impl *impl = a->impl;
    const json_t *section = og_model_config(cfg->model, cfg->folder, a->section, err);
    if (!section) return err && err->code ? err->code : OG_ENOENT;
    int rc = impl->dims(section, d, err);
    if (!rc) rc = read_tables(a, section, d, err);
    if (rc < 0) return rc;
    if (cfg->max_seqs < 1 || cfg->max_seqs > AR_MAX_SLOTS)
        return og_err_set(err, OG_ELIMIT, "max_num_seqs is %d (1 to %d)", cfg->max_seqs,
                          AR_MAX_SLOTS);
    if (cfg->max_model_len < 2 || cfg->max_model_len > d->max_positions)
        return og_err_set(err, OG_ELIMIT,
                          "max_model_len is %d, this network takes 2 to %lld positions",
                          cfg->max_model_len, (long long)d->max_positions);
    return 0;
}

static size_t page_bytes(const og_ar_dims *d) {
    return og__ar_page_bytes(d->layers, d->kv_heads, d->head_dim);
}

static int32_t pool_pages(const og_ar_dims *d, const og_node_cfg *cfg) {
    int64_t most = (int64_t)cfg->max_seqs * og__ar_pages(cfg->max_model_len);
    int64_t given = cfg->kv_bytes ? (int64_t)(cfg->kv_bytes / page_bytes(d)) : most;
    return (int32_t)(given < most ? given : most);
}

static size_t depth_bytes(const og_ar_dims *d, int slots) {
    if (!d->depth_layers) return 0;
    return og__ar_page_bytes(d->depth_layers, d->depth_kv_heads, d->depth_head_dim) *
           ((size_t)slots * AR_DEPTH_PAGES((size_t)d->groups) + 1);
}

/* ---- two blocks of memory ---------------------------------------------------------- */

typedef struct carver {
    char *base; /* NULL while counting */
    size_t used;
} carver;

static void *carve(carver *c, size_t n, size_t size) {
    void *p = c->base ? c->base + c->used : NULL;
    c->used += (n * size + 63) & ~(size_t)63;
    return p;
}

static void carve_batch(ar_node *n, carver *c, ar_batch *b) {
    b->cap_rows = n->max_rows;
    b->cap_terms = 4 * n->max_rows > OG_ROW_MAX_TERMS ? 4 * n->max_rows : OG_ROW_MAX_TERMS;
    b->cap_args = n->max_rows > OG_ROW_MAX_TERMS ? n->max_rows : OG_ROW_MAX_TERMS;
    b->off = carve(c, (size_t)b->cap_rows + 1, sizeof *b->off);
    b->table = carve(c, (size_t)b->cap_terms, sizeof *b->table);
    b->index = carve(c, (size_t)b->cap_terms, sizeof *b->index);
    for (int t = 0; t < n->d.n_tables; t++) {
        if (og_tensor_present(&n->model->direct[t])) continue;
        size_t width = (size_t)n->d.tables[t].width;
        b->args[t] = carve(c, (size_t)b->cap_args * width, sizeof(int32_t));
    }
}

static void carve_ctl(ar_node *n, carver *m) {
    ar_ctl *c = &n->ctl;
    size_t s = (size_t)n->n_slots, r = (size_t)n->max_rows, i4 = sizeof(int32_t);
    size_t g = (size_t)n->d.groups, v = (size_t)n->d.vocab;
    c->slot = carve(m, r, i4);
    c->pos = carve(m, 3 * r, i4);
    c->cu = carve(m, r + 1, i4);
    c->keep = carve(m, r, i4);
    c->last = carve(m, s * g, i4);
    c->add_off = carve(m, s + 1, i4);
    c->add_table = carve(m, 2 * s, i4);
    c->add_index = carve(m, 2 * s, i4);
    c->feed_at = carve(m, r, i4);
    c->emit_slot = carve(m, s, i4);
    c->emit_row = carve(m, s, sizeof *c->emit_row);
    c->stop = carve(m, s * OG_MAX_STOP_IDS, i4);
    c->counts = carve(m, s * v, i4);
    c->counted = carve(m, s, sizeof *c->counted);
    c->head_slot = carve(m, s, i4);
    c->head_row = carve(m, s, sizeof *c->head_row);
    c->frame = carve(m, s * g, i4);
    c->head_at = carve(m, s, i4);
    c->logits = carve(m, s * v, sizeof *c->logits);
}

static void carve_device(ar_node *n, carver *m) {
    size_t s = (size_t)n->n_slots, h = (size_t)n->d.hidden;
    size_t window = n->port_feed < 0 ? 0 : AR_FEED_WINDOW + 1;
    n->state = carve(m, s * h, sizeof *n->state);
    n->feed_rows = carve(m, s * window * h, sizeof *n->feed_rows);
    n->drawn = carve(m, s * (size_t)n->d.groups, sizeof *n->drawn);
}

static void carve_shared(ar_node *n, carver *m) {
    size_t s = (size_t)n->n_slots;
    n->frames = carve(m, s * (size_t)n->d.groups, sizeof *n->frames);
    n->history = carve(m, s * (size_t)n->d.vocab, sizeof *n->history);
    carve_ctl(n, m);
    carve_batch(n, m, &n->prompt_batch);
    carve_batch(n, m, &n->feed_batch);
}

static int alloc_blocks(ar_node *n, og_err *err) {
    og_exec *ex = n->node.cfg.exec;
    carver on_device = {0}, shared = {0};
    carve_device(n, &on_device);
    carve_shared(n, &shared);
    n->block_bytes = on_device.used + shared.used;
    int rc = og_device_alloc(n->dev, on_device.used, &n->block, err);
    if (!rc) rc = og_shared_alloc(ex, shared.used, &n->shared, err);
    if (rc < 0) return rc;
    on_device = (carver){.base = n->block};
    shared = (carver){.base = n->shared};
    carve_device(n, &on_device);
    carve_shared(n, &shared);
    if (og_place_is_host(ex)) n->drawn = n->ctl.frame;
    return 0;
}

/* ---- create and destroy ------------------------------------------------------------ */

static int init_pools(ar_node *n, og_err *err) {
    const og_ar_dims *d = &n->d;
    int32_t pages = pool_pages(d, &n->node.cfg);
    if (pages < 1)
        return og_err_set(err, OG_ELIMIT, "%zu bytes of KV hold no page of %d positions "
                          "(%zu bytes)", n->node.cfg.kv_bytes, OG_AR_PAGE, page_bytes(d));
    int rc = og__ar_pool_init(&n->pool, n->node.cfg.exec, d->layers, d->kv_heads, d->head_dim,
                              n->n_slots, n->max_len, pages, err);
    if (rc < 0 || !d->depth_layers) return rc;
    int32_t each = AR_DEPTH_PAGES(d->groups);
    rc = og__ar_pool_init(&n->depth, n->node.cfg.exec, d->depth_layers, d->depth_kv_heads,
                          d->depth_head_dim, n->n_slots, d->groups + 1, each * n->n_slots,
                          err);
    for (int i = 0; !rc && i < n->n_slots; i++) {
        rc = og__ar_pool_reserve(&n->depth, i, each);
        if (!rc) rc = og__ar_pool_extend(&n->depth, i, d->groups + 1);
    }
    return rc ? rc : og__ar_pool_fix(&n->depth, n->n_slots, err);
}

static int init_node(ar_node *n, og_err *err) {
    const og_node_cfg *cfg = &n->node.cfg;
    int rc = read_dims(cfg->arch, cfg, &n->d, err);
    if (rc < 0) return rc;
    n->ahead = !og_place_is_host(cfg->exec);
    og_graphs_init(&n->graphs, cfg->exec);
    n->n_slots = cfg->max_seqs;
    n->max_len = cfg->max_model_len;
    n->max_rows = cfg->max_batched_tokens;
    if (n->max_rows < n->n_slots) n->max_rows = n->n_slots;
    n->port_prompt = og_arch_port(cfg->arch, "prompt");
    n->port_feed = og_arch_port(cfg->arch, "feed");
    n->port_codes = og_arch_port(cfg->arch, "codes");
    n->port_tokens = og_arch_port(cfg->arch, "tokens");
    n->port_hidden = og_arch_port(cfg->arch, "hidden");
    n->slots = og_calloc((size_t)n->n_slots, sizeof *n->slots);
    n->order = og_calloc((size_t)n->n_slots, sizeof *n->order);
    if (!n->slots || !n->order)
        return og_err_set(err, OG_ENOMEM, "no memory for %d slots", n->n_slots);
    for (int i = 0; i < n->n_slots; i++) n->slots[i].index = i;
    rc = n->impl->load(cfg, &n->d, &n->model, err);
    if (!rc) rc = init_pools(n, err);
    if (!rc) rc = og__ar_prefix_init(n, err);
    return rc ? rc : alloc_blocks(n, err);
}

static void destroy(og_node *node) {
    if (!node) return;
    ar_node *n = og__ar_node(node);
    for (int i = 0; n->slots && i < n->n_slots; i++) {
        og__ar_input_free(&n->slots[i].prompt);
        og__ar_input_free(&n->slots[i].feed);
        og_recipe_unref(n->slots[i].fill);
    }
    og_graphs_free(&n->graphs, n->node.cfg.exec);
    og_shared_free(n->node.cfg.exec, n->shared);
    og_device_free(n->dev, n->block);
    og__ar_pool_free(&n->depth);
    og__ar_pool_free(&n->pool);
    n->impl->unload(n->model);
    og_free(n->order);
    og_free(n->slots);
    og_free(n);
}

static int create(const og_node_cfg *cfg, og_node **out, og_err *err) {
    *out = NULL;
    ar_node *n = og_calloc(1, sizeof *n);
    if (!n) return og_err_set(err, OG_ENOMEM, "no memory for a node");
    n->node.api = &og_ar_api;
    n->node.cfg = *cfg;
    n->impl = cfg->arch->impl;
    n->dev = og_exec_device(cfg->exec);
    int rc = init_node(n, err);
    if (rc < 0) {
        og_err_node(err, cfg->stage);
        destroy(&n->node);
        return rc;
    }
    *out = &n->node;
    return 0;
}

/* ---- admission --------------------------------------------------------------------- */

static int32_t most_prompt(const ar_node *n, const og_job *job) {
    return job->max_items > 0 ? job->max_items : n->max_len - 1;
}

/* Positions that the job takes at most; the token that ends it takes none. */
static int64_t most_positions(const ar_node *n, const og_job *job) {
    int64_t all = (int64_t)most_prompt(n, job) + job->sampling.max_tokens - 1;
    return all < n->max_len ? all : n->max_len;
}

static int fits(const og_node *node, const og_job *job, og_err *err) {
    const ar_node *n = og__ar_const(node);
    int32_t prompt = most_prompt(n, job), pages = og__ar_pages(most_positions(n, job));
    int rc = 0;
    if (job->sampling.max_tokens < 1)
        rc = og_err_set(err, OG_ELIMIT, "max_tokens is %d (at least 1)",
                        job->sampling.max_tokens);
    else if (prompt >= n->max_len)
        rc = og_err_set(err, OG_ELIMIT, "the prompt takes %d rows, max_model_len is %d and "
                        "leaves room for %d", prompt, n->max_len, n->max_len - 1);
    else if (pages > n->pool.n_pages - 1)
        rc = og_err_set(err, OG_ELIMIT, "the request takes %d KV pages of %d positions, "
                        "there are %d", pages, OG_AR_PAGE, n->pool.n_pages - 1);
    if (rc < 0) og_err_node(err, n->node.cfg.stage);
    return rc;
}

static ar_slot *free_slot(ar_node *n) {
    for (int i = 0; i < n->n_slots; i++)
        if (n->slots[i].state == AR_FREE) return &n->slots[i];
    return NULL;
}

static og_sample_row sample_row(const ar_node *n, const og_job *job, const og_sampling *p) {
    return (og_sample_row){.temperature = p->temperature,
                           .top_p = p->top_p,
                           .min_p = p->min_p,
                           .repetition_penalty = p->repetition_penalty,
                           .presence_penalty = p->presence_penalty,
                           .frequency_penalty = p->frequency_penalty,
                           .top_k = p->top_k,
                           .seed = job->seed,
                           .stage = n->node.cfg.stage_key};
}

/* Ids that this vocabulary does not have never come; applied, they would write past it. */
static void keep_known_stops(og_sampling *p, int vocab) {
    int kept = 0;
    int32_t all = p->n_stop < OG_MAX_STOP_IDS ? p->n_stop : OG_MAX_STOP_IDS;
    for (int32_t i = 0; i < all; i++)
        if (p->stop[i] >= 0 && p->stop[i] < vocab) p->stop[kept++] = p->stop[i];
    p->n_stop = kept;
}

static void start(ar_node *n, ar_slot *s, og_job *job) {
    s->state = AR_PROMPT;
    s->job = job;
    s->feed_next = s->feed_have = s->feed_ended = s->fill_ready = 0;
    s->pos = s->n_tokens = s->drop = s->muted = 0;
    s->sent = 0;
    og__ar_prefix_start(n, s);
    s->max_prompt = most_prompt(n, job);
    s->sampling = job->sampling;
    s->min_tokens = job->sampling.min_tokens;
    s->max_tokens = job->sampling.max_tokens;
    keep_known_stops(&s->sampling, n->d.vocab);
    s->row = sample_row(n, job, &job->sampling);
    s->head_row = sample_row(n, job, &job->head_sampling);
    memset(n->history + (size_t)s->index * (size_t)n->d.vocab, 0,
           (size_t)n->d.vocab * sizeof *n->history);
    n->order[n->n_used++] = s;
    job->slot = s;
    job->gen = ++s->gen;
}

static int admit(og_node *node, og_job *job, og_err *err) {
    ar_node *n = og__ar_node(node);
    int rc = fits(node, job, err);
    if (rc < 0) return rc;
    ar_slot *s = free_slot(n);
    int32_t pages = og__ar_pages(most_positions(n, job));
    if (!s) return og_err_set(err, OG_EBUSY, "all %d slots are in use", n->n_slots);
    if (og__ar_pool_reserve(&n->pool, s->index, pages) < 0)
        return og_err_set(err, OG_EBUSY, "%d KV pages are needed, %d are free", pages,
                          og__ar_pool_available(&n->pool));
    start(n, s, job);
    return 0;
}

void og__ar_slot_end(ar_node *n, ar_slot *s) {
    s->state = AR_DONE;
    og__ar_pool_drop(&n->pool, s->index);
    og__ar_input_clear(&s->prompt);
    og__ar_input_clear(&s->feed);
    og_recipe_unref(s->fill);
    s->fill = NULL;
}

static void retire(og_node *node, og_job *job) {
    ar_node *n = og__ar_node(node);
    ar_slot *s = og__ar_slot_of(job);
    job->slot = NULL;
    if (!s) return;
    og__ar_slot_end(n, s);
    s->state = AR_FREE;
    s->job = NULL;
    int i = 0;
    while (n->order[i] != s) i++;
    n->n_used--;
    memmove(&n->order[i], &n->order[i + 1], (size_t)(n->n_used - i) * sizeof *n->order);
}

/* ---- numbers ----------------------------------------------------------------------- */

static void stats(const og_node *node, og_node_stats *out) {
    const ar_node *n = og__ar_const(node);
    *out = (og_node_stats){.slots = n->n_slots,
                           .slots_used = n->n_used,
                           .kv_pages = n->pool.n_pages - 1,
                           .kv_pages_used = og__ar_pool_used(&n->pool),
                           .kv_pages_cached = n->pool.index.n_cached,
                           .prefix_rows_hit = n->shared_rows,
                           .prefix_rows_total = n->prompt_rows,
                           .weight_bytes = n->model->weight_bytes,
                           .state_bytes = n->block_bytes + n->pool.bytes + n->depth.bytes,
                           .steps = n->steps,
                           .rows = n->rows};
}

static void plan_port(og_node_plan *p, int port, og_dtype type, int64_t width) {
    if (port < 0) return;
    p->out_dtype[port] = type;
    p->out_width[port] = width;
    p->out_item_bytes[port] = (size_t)width * og_dtype_size(type);
}

/* Bytes of one weight, by what the checkpoint says of itself; bf16 when it says nothing. */
static size_t weight_size(const og_node_cfg *cfg) {
    const json_t *root = og_model_config(cfg->model, cfg->folder, "", NULL);
    const char *type = NULL;
    if (root && og_cfg_str_or(root, "torch_dtype", &type, NULL, NULL) == 0 && !type &&
        og_cfg_str_or(root, "dtype", &type, NULL, NULL) < 0)
        type = NULL;
    return type && !strcmp(type, "float32") ? 4 : 2;
}

int og_ar_plan(const og_arch *a, const og_node_cfg *cfg, og_node_plan *out, og_err *err) {
    og_ar_dims d;
    *out = (og_node_plan){0};
    int rc = read_dims(a, cfg, &d, err);
    if (rc < 0) return rc;
    int s = cfg->max_seqs;
    out->weight_bytes = (size_t)d.n_params * weight_size(cfg);
    out->kv_pages = (int64_t)pool_pages(&d, cfg) + 1;
    out->kv_page_bytes = page_bytes(&d);
    out->kv_bytes = out->kv_page_bytes * (size_t)out->kv_pages;
    out->state_bytes = depth_bytes(&d, s) +
                       (size_t)s * ((size_t)d.hidden * (AR_FEED_WINDOW + 2) * sizeof(float) +
                                    (size_t)d.vocab * 2 * sizeof(int32_t));
    out->max_positions = d.max_positions;
    plan_port(out, og_arch_port(a, "codes"), OG_I32, d.groups);
    plan_port(out, og_arch_port(a, "tokens"), OG_I32, 1);
    plan_port(out, og_arch_port(a, "hidden"), OG_F32, d.hidden);
    return 0;
}

const og_node_api og_ar_api = {create, destroy, fits,  admit, og__ar_feed, og__ar_step,
                               retire, stats,   og__ar_measure};
