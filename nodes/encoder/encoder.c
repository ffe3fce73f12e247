#include "nodes/encoder/encoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/alloc.h"
#include "nodes/blocks/place.h"
#include "nodes/encoder/enc_cache.h"
#include "nodes/encoder/enc_sha256.h"

typedef enum slot_state {
    SLOT_FREE,
    SLOT_FILLING,
    SLOT_READY, /* LAST was fed: waits for its turn, or is being encoded */
    SLOT_ENDED, /* the result was handed on, or the job failed: waits for retire */
} slot_state;

typedef struct slot {
    slot_state state;
    uint32_t gen;
    og_job *job;
    float *samples; /* [limit], the slot's own from admit to retire */
    int64_t n, limit;
    uint64_t turn; /* clips are encoded in the order in which they became ready */
    og__sha256 hash;
    unsigned char key[OG__ENC_KEY];
} slot;

typedef struct encoder {
    og_node node;
    const og_encoder_impl *impl;
    void *net;
    og_encoder_dims dims;
    int in_port, out_port;
    slot *slots;
    og__enc_cache *cache;
    uint64_t fingerprint;
    slot *current; /* the clip that some pieces were done of */
    int piece, pieces;
    /* Where the device is not the host: the clip on the device, the result on the host. */
    float *clip;
    void *fetched;
    uint64_t turns;
    int64_t steps, rows, hits, misses;
} encoder;

int64_t og_encoder_items(const og_encoder_dims *d, int64_t n) {
    if (n <= 0) return 0;
    return d->items_per_out ? (n + d->items_per_out - 1) / d->items_per_out : 1;
}

/* ---- create ---------------------------------------------------------------------- */

static double option_number(const og_node_cfg *cfg, const char *name) {
    const char *text = NULL;
    for (int i = 0; i < cfg->n_options && !text; i++)
        if (!strcmp(cfg->options[i].name, name)) text = cfg->options[i].text;
    for (const og_option_desc *d = cfg->arch->options; d && d->name && !text; d++)
        if (!strcmp(d->name, name)) text = d->def;
    return text ? strtod(text, NULL) : 0;
}

static int max_seconds(const og_node_cfg *cfg) {
    double v = option_number(cfg, "max_seconds");
    return v < 1 ? 1 : v > OG_ENCODER_MAX_SECONDS ? OG_ENCODER_MAX_SECONDS : (int)v;
}

static size_t cache_bytes(const og_node_cfg *cfg) {
    double v = option_number(cfg, "cache_bytes");
    return v > 0 ? (size_t)v : 0;
}

static void find_ports(encoder *e) {
    const og_port_desc *p = e->node.cfg.arch->ports;
    for (int i = 0; p[i].name; i++) {
        if (p[i].flags & OG_PORT_IN) e->in_port = i;
        if (p[i].flags & OG_PORT_OUT) e->out_port = i;
    }
}

static void destroy(og_node *n) {
    encoder *e = (encoder *)n;
    if (!e) return;
    if (e->net) e->impl->unload(e->net);
    for (int i = 0; e->slots && i < n->cfg.max_seqs; i++) og_free(e->slots[i].samples);
    og__enc_cache_destroy(e->cache);
    og_device_free(og_exec_device(n->cfg.exec), e->clip);
    og_shared_free(n->cfg.exec, e->fetched);
    og_free(e->slots);
    og_free(e);
}

static size_t clip_bytes(const encoder *e) {
    return (size_t)e->dims.max_items * sizeof *e->clip;
}

static int make_edges(encoder *e, og_err *err) {
    og_exec *ex = e->node.cfg.exec;
    size_t item = (size_t)e->dims.width * og_dtype_size(e->dims.dtype);
    if (og_place_is_host(ex)) return 0;
    void *clip = NULL;
    int rc = og_device_alloc(og_exec_device(ex), clip_bytes(e), &clip, err);
    if (rc < 0) return rc;
    e->clip = clip;
    e->dims.state_bytes += clip_bytes(e);
    return og_shared_alloc(ex, (size_t)og_encoder_items(&e->dims, e->dims.max_items) * item,
                           &e->fetched, err);
}

static int create(const og_node_cfg *cfg, og_node **out, og_err *err) {
    *out = NULL;
    if (cfg->max_seqs < 1)
        return og_err_set(err, OG_EINVAL, "an encoder needs max_num_seqs of at least 1");
    encoder *e = og_calloc(1, sizeof *e);
    if (!e) return og_err_set(err, OG_ENOMEM, "no memory for an encoder");
    e->node.api = &og_encoder_api;
    e->node.cfg = *cfg;
    e->impl = cfg->arch->impl;
    find_ports(e);

    int rc = e->impl->load(cfg, max_seconds(cfg), &e->net, &e->dims, err);
    if (rc < 0) goto fail;
    /* after load: it covers the weights that have been opened */
    rc = og_model_fingerprint(cfg->model, &e->fingerprint, err);
    if (rc < 0) goto fail;
    rc = og__enc_cache_create(cache_bytes(cfg), &e->cache, err);
    if (rc < 0) goto fail;
    rc = make_edges(e, err);
    if (rc < 0) goto fail;
    e->slots = og_calloc((size_t)cfg->max_seqs, sizeof *e->slots);
    if (!e->slots) {
        rc = og_err_set(err, OG_ENOMEM, "no memory for %d clips", cfg->max_seqs);
        goto fail;
    }
    *out = &e->node;
    return 0;

fail:
    if (cfg->stage) og_err_node(err, cfg->stage);
    destroy(&e->node);
    return rc;
}

/* ---- jobs ------------------------------------------------------------------------ */

static slot *slot_of(const og_job *job) {
    slot *s = job->slot;
    return s && s->job == job && s->gen == job->gen && s->state != SLOT_FREE ? s : NULL;
}

static int bad_length(const encoder *e, int64_t n, int64_t limit, int longer, og_err *err) {
    double rate = e->dims.rate;
    og_err_set(err, OG_ELIMIT,
               "the audio has %lld samples (%.3f s at %d Hz) and stage '%s' takes at %s "
               "%lld (%.3f s)",
               (long long)n, (double)n / rate, e->dims.rate,
               e->node.cfg.stage ? e->node.cfg.stage : "encoder",
               longer ? "most" : "least", (long long)limit, (double)limit / rate);
    og_err_hint(err, longer ? "give a shorter clip, or raise the option max_seconds"
                            : "give a longer clip");
    return OG_ELIMIT;
}

static int check_length(const encoder *e, int64_t n, og_err *err) {
    if (n > e->dims.max_items) return bad_length(e, n, e->dims.max_items, 1, err);
    if (n > 0 && n < e->dims.min_items) return bad_length(e, n, e->dims.min_items, 0, err);
    return 0;
}

static int fits(const og_node *n, const og_job *job, og_err *err) {
    return check_length((const encoder *)n, job->max_items, err);
}

static int admit(og_node *n, og_job *job, og_err *err) {
    encoder *e = (encoder *)n;
    int rc = fits(n, job, err);
    if (rc < 0) return rc;
    int i = 0;
    while (i < n->cfg.max_seqs && e->slots[i].state != SLOT_FREE) i++;
    if (i == n->cfg.max_seqs) return OG_EBUSY;
    slot *s = &e->slots[i];
    int64_t limit = job->max_items > 0 ? job->max_items : e->dims.max_items;
    float *samples = og_malloc((size_t)limit * sizeof *samples);
    if (!samples)
        return og_err_set(err, OG_ENOMEM, "no memory for a clip of %lld samples",
                          (long long)limit);
    *s = (slot){.state = SLOT_FILLING, .gen = s->gen + 1, .job = job, .samples = samples,
                .limit = limit};
    og__sha256_init(&s->hash);
    og__sha256_add(&s->hash, n->cfg.arch->name, strlen(n->cfg.arch->name) + 1);
    og__sha256_add(&s->hash, &e->fingerprint, sizeof e->fingerprint);
    job->slot = s;
    job->gen = s->gen;
    return 0;
}

static void retire(og_node *n, og_job *job) {
    encoder *e = (encoder *)n;
    slot *s = slot_of(job);
    job->slot = NULL;
    if (!s) return;
    if (e->current == s) e->current = NULL;
    og_free(s->samples);
    *s = (slot){.gen = s->gen};
}

/* ---- feed ------------------------------------------------------------------------ */

static int check_chunk(const encoder *e, const slot *s, int port, const og_chunk *c,
                       og_err *err) {
    if (port != e->in_port || c->rows || c->fill)
        return og_err_set(err, OG_EINVAL, "an encoder takes samples on port %s only",
                          e->node.cfg.arch->ports[e->in_port].name);
    if (c->drop > 0 || (c->flags & OG_MUTE))
        return og_err_set(err, OG_EINVAL,
                          "the output of an encoder is whole: nothing of it can be dropped");
    if (s->state != SLOT_FILLING)
        return og_err_set(err, OG_EINVAL, "samples came after the last chunk");
    return 0;
}

/* Append the items of t. */
static int take_samples(const encoder *e, slot *s, const og_tensor *t, og_err *err) {
    char shape[64];
    if (t->dtype != OG_F32 || t->rank > 2 || (t->rank == 2 && t->ne[1] != 1))
        return og_err_set(err, OG_ESHAPE, "samples must be f32 [n], not %s",
                          og_tensor_str(t, shape, sizeof shape));
    if (t->place.kind != OG_PLACE_HOST)
        return og_err_set(err, OG_EUNSUPPORTED, "samples must lie in host memory");
    int64_t n = s->n + t->ne[0];
    if (n > e->dims.max_items) return bad_length(e, n, e->dims.max_items, 1, err);
    if (n > s->limit)
        return og_err_set(err, OG_ELIMIT,
                          "%lld samples came, and the request was admitted with %lld",
                          (long long)n, (long long)s->limit);
    float *to = s->samples + s->n;
    for (int64_t i = 0; i < t->ne[0]; i++) {
        memcpy(&to[i], (const float *)t->data + i * t->stride[0], sizeof *to);
        if (!isfinite(to[i]))
            return og_err_set(err, OG_EINVAL, "sample %lld of the audio is %s",
                              (long long)(s->n + i), isnan(to[i]) ? "not a number" : "infinite");
    }
    og__sha256_add(&s->hash, to, (size_t)t->ne[0] * sizeof *to);
    s->n = n;
    return 0;
}

static int feed_slot(encoder *e, slot *s, int port, const og_chunk *c, og_err *err) {
    int rc = check_chunk(e, s, port, c, err);
    if (rc < 0) return rc;
    if (og_tensor_present(&c->items) && c->items.ne[0] > 0) {
        rc = take_samples(e, s, &c->items, err);
        if (rc < 0) return rc;
    }
    if (!(c->flags & OG_LAST)) return 0;
    rc = check_length(e, s->n, err);
    if (rc < 0) return rc;
    og__sha256_end(&s->hash, s->key);
    /* Nobody listens: there is nothing to compute. */
    s->state = s->job->out[e->out_port] ? SLOT_READY : SLOT_ENDED;
    s->turn = ++e->turns;
    return 0;
}

/* A fault ends the job. */
static int feed(og_node *n, og_job *job, int port, og_chunk *c, og_err *err) {
    encoder *e = (encoder *)n;
    slot *s = slot_of(job);
    int rc = 0;
    if (s && s->state != SLOT_ENDED) rc = feed_slot(e, s, port, c, err);
    if (rc < 0) {
        s->state = SLOT_ENDED;
        if (e->current == s) e->current = NULL;
        if (n->cfg.stage) og_err_node(err, n->cfg.stage);
    }
    og_chunk_drop(c);
    return rc;
}

/* ---- step ------------------------------------------------------------------------ */

/* The clip in hand, else the one that has been ready for longest and whose client has room. */
static slot *choose(const encoder *e) {
    if (e->current) return e->current;
    slot *best = NULL;
    for (int i = 0; i < e->node.cfg.max_seqs; i++) {
        slot *s = &e->slots[i];
        if (s->state != SLOT_READY || (best && best->turn < s->turn)) continue;
        if (og_out_room(s->job->out[e->out_port]) < og_encoder_items(&e->dims, s->n)) continue;
        best = s;
    }
    return best;
}

/* Reserve the output of s. 1, or 0 when it could not be had, which fails the job: there was
 * room when it was chosen, and nobody else writes there. */
static int reserve(encoder *e, slot *s, og_tensor *view) {
    og_err err = OG_ERR_INIT;
    int64_t n = og_encoder_items(&e->dims, s->n);
    int rc = n ? og_out_reserve(s->job->out[e->out_port], n, view) : 0;
    if (rc == 0) return 1;
    og_err_set(&err, rc, "no room for %lld items", (long long)n);
    if (e->node.cfg.stage) og_err_node(&err, e->node.cfg.stage);
    s->state = SLOT_ENDED;
    og_job_fail(s->job, &err);
    return 0;
}

static void hand_on(encoder *e, slot *s) {
    s->state = SLOT_ENDED;
    og_out_commit(s->job->out[e->out_port], og_encoder_items(&e->dims, s->n),
                  OG_FIRST | OG_LAST);
}

static size_t result_bytes(const encoder *e, const slot *s) {
    return (size_t)(og_encoder_items(&e->dims, s->n) * e->dims.width) *
           og_dtype_size(e->dims.dtype);
}

/* 1 when s was answered without work: an absent input, or a clip that was heard before. */
static int answer(encoder *e, slot *s) {
    og_tensor view = {0};
    size_t bytes = result_bytes(e, s);
    if (bytes && og__enc_cache_find(e->cache, s->key) != bytes) return 0;
    if (!reserve(e, s, &view)) return 1;
    if (bytes) og__enc_cache_get(e->cache, s->key, view.data);
    e->hits += bytes > 0;
    hand_on(e, s);
    return 1;
}

/* The result where the host can read it; its readers are host code. */
static int fetch(encoder *e, const slot *s, const og_tensor *y, const void **out) {
    og_exec *ex = e->node.cfg.exec;
    *out = y->data;
    if (!e->fetched) return 0;
    *out = e->fetched;
    int rc = og_exec_fetch(ex, e->fetched, y->data, result_bytes(e, s));
    return rc < 0 ? rc : og_exec_sync(ex);
}

static int deliver(encoder *e, slot *s, const og_tensor *y) {
    og_tensor view = {0};
    const void *result;
    int rc = fetch(e, s, y, &result);
    if (rc < 0) return rc;
    og__enc_cache_put(e->cache, s->key, result, result_bytes(e, s));
    if (!reserve(e, s, &view)) return 0;
    memcpy(view.data, result, result_bytes(e, s));
    hand_on(e, s);
    return 0;
}

/* The samples where ops read them. Pieces of a clip that was cancelled may still read the
 * one before. */
static int bring_clip(encoder *e, const slot *s, og_tensor *x) {
    og_exec *ex = e->node.cfg.exec;
    *x = og_place_on(ex, og_tensor_1d(OG_F32, s->n, e->clip ? e->clip : s->samples));
    if (!e->clip || e->piece) return 0;
    int rc = og_exec_sync(ex);
    if (rc < 0) return rc;
    return og_device_upload(og_exec_device(ex), e->clip, s->samples,
                            (size_t)s->n * sizeof *s->samples, NULL);
}

static int run_piece(encoder *e, slot *s) {
    og_tensor x, y = {0};
    int last = e->piece == e->pieces - 1;
    int rc = bring_clip(e, s, &x);
    if (rc == 0) rc = e->impl->piece(e->net, e->node.cfg.exec, e->piece, &x, &y);
    if (rc < 0) return rc;
    e->piece++;
    e->steps++;
    if (!last) return 0;
    e->rows += og_encoder_items(&e->dims, s->n);
    e->current = NULL;
    return deliver(e, s, &y);
}

static int step(og_node *n, og_step_info *info, og_err *err) {
    encoder *e = (encoder *)n;
    slot *s = choose(e);
    *info = (og_step_info){.jobs = s != NULL};
    if (!s) return OG_STEP_IDLE;
    og_exec_reset(n->cfg.exec);
    if (!e->current) {
        if (answer(e, s)) return OG_STEP_WORK;
        e->misses++;
        e->current = s;
        e->piece = 0;
        e->pieces = e->impl->pieces(e->net, s->n);
    }
    info->rows = e->piece == e->pieces - 1 ? (int)og_encoder_items(&e->dims, s->n) : 0;
    int rc = run_piece(e, s);
    if (rc == 0) return OG_STEP_WORK;
    og_err_set(err, rc, "encoding %lld samples: %s", (long long)s->n,
               og_exec_error(n->cfg.exec));
    if (n->cfg.stage) og_err_node(err, n->cfg.stage);
    return rc;
}

/* ---- the rest -------------------------------------------------------------------- */

static void stats(const og_node *n, og_node_stats *out) {
    const encoder *e = (const encoder *)n;
    *out = (og_node_stats){.slots = n->cfg.max_seqs,
                           .weight_bytes = e->dims.weight_bytes,
                           .state_bytes = e->dims.state_bytes,
                           .steps = e->steps,
                           .rows = e->rows,
                           .cache_hits = e->hits,
                           .cache_misses = e->misses,
                           .cache_bytes = og__enc_cache_bytes(e->cache)};
    for (int i = 0; i < n->cfg.max_seqs; i++)
        out->slots_used += e->slots[i].state != SLOT_FREE;
}

/* Every piece of the longest clip. */
static int measure(og_node *n, og_err *err) {
    encoder *e = (encoder *)n;
    og_exec *ex = n->cfg.exec;
    og_exec_mode mode = og_exec_get_mode(ex);
    og_tensor x = og_place_on(ex, og_tensor_1d(OG_F32, e->dims.max_items, NULL)), y;
    int rc = 0;
    og_exec_set_mode(ex, OG_MEASURE);
    for (int i = 0; i < e->impl->pieces(e->net, e->dims.max_items) && rc == 0; i++) {
        og_exec_reset(ex);
        rc = e->impl->piece(e->net, ex, i, &x, &y);
    }
    if (rc < 0) og_err_set(err, rc, "measuring an encoder: %s", og_exec_error(ex));
    og_exec_reset(ex);
    og_exec_set_mode(ex, mode);
    return rc;
}

int og_encoder_plan(const og_arch *a, const og_node_cfg *cfg, og_node_plan *out,
                    og_err *err) {
    const og_encoder_impl *impl = a->impl;
    og_encoder_dims d = {0};
    const json_t *section = og_model_config(cfg->model, cfg->folder, a->section, err);
    if (!section) return err && err->code ? err->code : OG_ENOENT;
    int rc = impl->dims(section, max_seconds(cfg), &d, err);
    if (rc < 0) return rc;
    *out = (og_node_plan){.weight_bytes = d.weight_bytes,
                          .state_bytes = d.state_bytes + cache_bytes(cfg),
                          .rate = d.rate};
    for (int i = 0; a->ports[i].name; i++) {
        if (!(a->ports[i].flags & OG_PORT_OUT)) continue;
        out->in_items_per_out_item[i] = d.items_per_out ? d.items_per_out : d.max_items;
        out->out_item_bytes[i] = (size_t)d.width * og_dtype_size(d.dtype);
        out->out_dtype[i] = d.dtype;
        out->out_width[i] = d.width;
    }
    return 0;
}

const og_node_api og_encoder_api = {
    .create = create,
    .destroy = destroy,
    .fits = fits,
    .admit = admit,
    .feed = feed,
    .step = step,
    .retire = retire,
    .stats = stats,
    .measure = measure,
};

const og_kind_desc og_kind_encoder = {
    OG_KIND_ENCODER, "encoder",
    "reads a whole input (text, audio, an image) and gives hidden states, codes or one "
    "vector",
    &og_encoder_api, og_encoder_plan};
