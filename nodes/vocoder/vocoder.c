#include "nodes/vocoder/vocoder.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/base/alloc.h"
#include "nodes/blocks/place.h"

typedef enum slot_state {
    SLOT_FREE,
    SLOT_ACTIVE,
    SLOT_ENDED, /* the last sample was handed on, or the job failed: waits for retire */
} slot_state;

/* fed and done count frames since admission, so they are the positions too; frame i of
 * the queue lies at codes[i * groups]: admission bounds fed, so the queue never wraps. */
typedef struct slot {
    slot_state state;
    uint32_t gen;
    og_job *job;
    uint16_t *codes;
    uint8_t *mute; /* per frame: decoded, not handed on */
    int64_t fed, done, limit;
    int64_t drop; /* samples still to be left out */
    int last;     /* LAST was fed */
    int opened;   /* FIRST was handed on */
} slot;

/* One job's share of a step. */
typedef struct take {
    slot *s;
    int n;        /* frames */
    int row;      /* its first row */
    int64_t skip; /* samples of the share that are left out in front */
    int64_t hand; /* samples that are handed on after them */
    og_tensor view;
} take;

typedef struct vocoder {
    og_node node;
    const og_vocoder_impl *impl;
    void *net;
    og_vocoder_dims dims;
    og_vocoder_limits lim;
    int in_port, out_port;
    slot *slots;
    uint16_t *queue_codes;
    uint8_t *queue_mute;
    take *takes;
    int n_takes;
    int32_t *row_codes, *row_slot, *row_pos, *row_cu;
    float *fetched; /* the samples of a step, where the device is not the host */
    int cursor; /* the slot that the next step serves first */
    int64_t steps, rows;
} vocoder;

/* ---- create ----------------------------------------------------------------------- */

static const char *option_text(const og_node_cfg *cfg, const char *name) {
    for (int i = 0; i < cfg->n_options; i++) {
        if (!strcmp(cfg->options[i].name, name)) return cfg->options[i].text;
    }
    for (const og_option_desc *d = cfg->arch->options; d && d->name; d++) {
        if (!strcmp(d->name, name)) return d->def;
    }
    return NULL;
}

static int option_frames(const og_node_cfg *cfg, const char *name) {
    const char *text = option_text(cfg, name);
    long v = text ? strtol(text, NULL, 10) : 0;
    return v < 1 ? 1 : v > 4096 ? 4096 : (int)v;
}

static int limits_of(const og_node_cfg *cfg, og_vocoder_limits *lim, og_err *err) {
    if (cfg->max_seqs < 1 || cfg->max_batched_tokens < 1 || cfg->max_model_len < 1) {
        return og_err_set(err, OG_EINVAL,
                          "a vocoder needs max_num_seqs, max_num_batched_tokens and "
                          "max_model_len of at least 1 (they are %d, %d and %d)",
                          cfg->max_seqs, cfg->max_batched_tokens, cfg->max_model_len);
    }
    int64_t rows = option_frames(cfg, "max_step_frames");
    if (rows > cfg->max_batched_tokens) rows = cfg->max_batched_tokens;
    int64_t chunk = option_frames(cfg, "max_chunk_frames");
    if (chunk > rows) chunk = rows;
    if (rows > chunk * cfg->max_seqs) rows = chunk * cfg->max_seqs;
    *lim = (og_vocoder_limits){cfg->max_seqs, (int)rows, (int)chunk};
    return 0;
}

static int find_ports(vocoder *v, og_err *err) {
    const og_port_desc *p = v->node.cfg.arch->ports;
    v->in_port = v->out_port = -1;
    for (int i = 0; p[i].name; i++) {
        if (p[i].flags & OG_PORT_IN) v->in_port = i;
        if (p[i].flags & OG_PORT_OUT) v->out_port = i;
    }
    if (v->in_port < 0 || v->out_port < 0) {
        return og_err_set(err, OG_EINTERNAL, "arch %s lacks a port",
                          v->node.cfg.arch->name);
    }
    return 0;
}

static int plan_memory(vocoder *v, og_err *err) {
    size_t slots = (size_t)v->lim.slots, len = (size_t)v->node.cfg.max_model_len;
    size_t rows = (size_t)v->lim.max_rows, groups = (size_t)v->dims.groups;

    v->slots = og_calloc(slots, sizeof *v->slots);
    /* Not zeroed: pages come into being as frames arrive. */
    v->queue_codes = og_malloc(slots * len * groups * sizeof *v->queue_codes);
    v->queue_mute = og_malloc(slots * len);
    v->takes = og_calloc(slots, sizeof *v->takes);
    v->row_codes = og_calloc(rows * groups, sizeof *v->row_codes);
    v->row_slot = og_calloc(rows, sizeof *v->row_slot);
    v->row_pos = og_calloc(rows * 3, sizeof *v->row_pos);
    v->row_cu = og_calloc(slots + 1, sizeof *v->row_cu);
    if (!v->slots || !v->queue_codes || !v->queue_mute || !v->takes || !v->row_codes ||
        !v->row_slot || !v->row_pos || !v->row_cu) {
        return og_err_set(err, OG_ENOMEM,
                          "no memory for %zu vocoder queues of %zu frames", slots, len);
    }
    if (!og_place_is_host(v->node.cfg.exec)) {
        void *p = NULL;
        size_t samples = rows * (size_t)v->dims.samples_per_item;
        int rc = og_shared_alloc(v->node.cfg.exec, samples * sizeof(float), &p, err);
        if (rc < 0) return rc;
        v->fetched = p;
    }
    for (size_t i = 0; i < slots; i++) {
        v->slots[i].codes = v->queue_codes + i * len * groups;
        v->slots[i].mute = v->queue_mute + i * len;
    }
    return 0;
}

static void destroy(og_node *n) {
    vocoder *v = (vocoder *)n;
    if (!v) return;
    if (v->net) v->impl->unload(v->net);
    og_shared_free(n->cfg.exec, v->fetched);
    og_free(v->row_cu);
    og_free(v->row_pos);
    og_free(v->row_slot);
    og_free(v->row_codes);
    og_free(v->takes);
    og_free(v->queue_mute);
    og_free(v->queue_codes);
    og_free(v->slots);
    og_free(v);
}

static int create(const og_node_cfg *cfg, og_node **out, og_err *err) {
    *out = NULL;
    vocoder *v = og_calloc(1, sizeof *v);
    if (!v) return og_err_set(err, OG_ENOMEM, "no memory for a vocoder");
    v->node.api = og_kind_vocoder.api;
    v->node.cfg = *cfg;
    v->impl = cfg->arch->impl;

    int rc = limits_of(cfg, &v->lim, err);
    if (rc < 0) goto fail;
    rc = find_ports(v, err);
    if (rc < 0) goto fail;
    rc = v->impl->load(cfg, &v->lim, &v->net, &v->dims, err);
    if (rc < 0) goto fail;
    rc = plan_memory(v, err);
    if (rc < 0) goto fail;
    *out = &v->node;
    return 0;

fail:
    if (cfg->stage) og_err_node(err, cfg->stage);
    destroy(&v->node);
    return rc;
}

/* ---- jobs ------------------------------------------------------------------------- */

static slot *slot_of(og_job *job) {
    slot *s = job->slot;
    return s && s->job == job && s->gen == job->gen && s->state != SLOT_FREE ? s : NULL;
}

static void fail_job(vocoder *v, slot *s, og_err *err) {
    if (v->node.cfg.stage) og_err_node(err, v->node.cfg.stage);
    s->state = SLOT_ENDED;
    og_job_fail(s->job, err);
}

static int fits(const og_node *n, const og_job *job, og_err *err) {
    if (job->max_items <= n->cfg.max_model_len) return 0;
    og_err_set(err, OG_ELIMIT,
               "the request may need %d code frames, and stage %s holds %d "
               "(max_model_len)",
               (int)job->max_items, n->cfg.stage ? n->cfg.stage : "vocoder",
               n->cfg.max_model_len);
    og_err_hint(err, "lower max_tokens, or raise max_model_len of the stage");
    return OG_ELIMIT;
}

static int admit(og_node *n, og_job *job, og_err *err) {
    vocoder *v = (vocoder *)n;
    int rc = fits(n, job, err);
    if (rc < 0) return rc;
    int i = 0;
    while (i < v->lim.slots && v->slots[i].state != SLOT_FREE) i++;
    if (i == v->lim.slots) return OG_EBUSY;
    rc = v->impl->reset(v->net, n->cfg.exec, i);
    if (rc < 0) {
        return og_err_set(err, rc, "resetting slot %d: %s", i,
                          og_exec_error(n->cfg.exec));
    }
    slot *s = &v->slots[i];
    *s = (slot){.state = SLOT_ACTIVE,
                .gen = s->gen + 1,
                .job = job,
                .codes = s->codes,
                .mute = s->mute};
    s->limit = job->max_items > 0 ? job->max_items : n->cfg.max_model_len;
    job->slot = s;
    job->gen = s->gen;
    return 0;
}

static void retire(og_node *n, og_job *job) {
    (void)n;
    slot *s = slot_of(job);
    job->slot = NULL;
    if (!s) return;
    s->state = SLOT_FREE;
    s->job = NULL;
}

/* ---- feed ------------------------------------------------------------------------- */

static int64_t code_at(const og_tensor *t, int64_t i, int64_t g) {
    int64_t at = i * t->stride[0] + (t->rank > 1 ? g * t->stride[1] : 0);
    return t->dtype == OG_I64 ? ((const int64_t *)t->data)[at]
                              : ((const int32_t *)t->data)[at];
}

static int check_items(const vocoder *v, const slot *s, const og_tensor *t, og_err *err) {
    char shape[64];
    if ((t->dtype != OG_I32 && t->dtype != OG_I64) || t->rank > 2 ||
        (t->rank == 2 ? t->ne[1] : 1) != v->dims.groups) {
        return og_err_set(err, OG_ESHAPE, "codes must be i32 or i64 [n,%d], not %s",
                          v->dims.groups, og_tensor_str(t, shape, sizeof shape));
    }
    if (t->place.kind != OG_PLACE_HOST) {
        return og_err_set(err, OG_EUNSUPPORTED, "code frames must lie in host memory");
    }
    if (s->fed + t->ne[0] > s->limit) {
        return og_err_set(err, OG_ELIMIT,
                          "%lld code frames came, and the request was admitted with %lld",
                          (long long)(s->fed + t->ne[0]), (long long)s->limit);
    }
    for (int64_t i = 0; i < t->ne[0]; i++) {
        for (int g = 0; g < v->dims.groups; g++) {
            int64_t c = code_at(t, i, g);
            if (c >= 0 && c < v->dims.codebook[g]) continue;
            return og_err_set(
                err, OG_EINVAL,
                "code %lld of group %d in frame %lld is outside its codebook "
                "of %d",
                (long long)c, g, (long long)(s->fed + i), v->dims.codebook[g]);
        }
    }
    return 0;
}

static void queue_items(const vocoder *v, slot *s, const og_tensor *t, int mute) {
    int groups = v->dims.groups;
    for (int64_t i = 0; i < t->ne[0]; i++, s->fed++) {
        for (int g = 0; g < groups; g++) {
            s->codes[s->fed * groups + g] = (uint16_t)code_at(t, i, g);
        }
        s->mute[s->fed] = mute != 0;
    }
}

static int feed_slot(vocoder *v, slot *s, int port, const og_chunk *c, og_err *err) {
    if (port != v->in_port || c->rows || c->fill) {
        return og_err_set(err, OG_EINVAL, "a vocoder takes code frames on port %s only",
                          v->node.cfg.arch->ports[v->in_port].name);
    }
    if (s->last)
        return og_err_set(err, OG_EINVAL, "code frames came after the last chunk");
    int has_items = og_tensor_present(&c->items) && c->items.ne[0] > 0;
    if (has_items) {
        int rc = check_items(v, s, &c->items, err);
        if (rc < 0) return rc;
    }
    s->drop += c->drop > 0 ? c->drop : 0;
    s->last = (c->flags & OG_LAST) != 0;
    /* Nobody listens: there is nothing to compute. */
    if (!s->job->out[v->out_port]) {
        if (s->last) s->state = SLOT_ENDED;
        return 0;
    }
    if (has_items) queue_items(v, s, &c->items, c->flags & OG_MUTE);
    return 0;
}

/* A fault ends the job: what it has queued is not decoded any more. */
static int feed(og_node *n, og_job *job, int port, og_chunk *c, og_err *err) {
    vocoder *v = (vocoder *)n;
    slot *s = slot_of(job);
    int rc = 0;
    if (s && s->state == SLOT_ACTIVE) rc = feed_slot(v, s, port, c, err);
    if (rc < 0) {
        s->state = SLOT_ENDED;
        if (n->cfg.stage) og_err_node(err, n->cfg.stage);
    }
    og_chunk_drop(c);
    return rc;
}

/* ---- step ------------------------------------------------------------------------- */

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Frames that s can decode now: pending, all muted or all not, with room for their
 * samples. */
static int frames_ready(const vocoder *v, const slot *s, int budget) {
    int64_t spi = v->dims.samples_per_item;
    int64_t most = min64(s->fed - s->done, min64(v->lim.max_chunk, budget));
    int64_t n = 0;
    while (n < most && s->mute[s->done + n] == s->mute[s->done]) n++;
    if (n > 0 && !s->mute[s->done]) {
        n = min64(n, (og_out_room(s->job->out[v->out_port]) + s->drop) / spi);
    }
    return (int)n;
}

/* Fill in t and reserve its room. 1 when s takes part, 0 when not. */
static int take_share(vocoder *v, slot *s, int budget, take *t) {
    int n = frames_ready(v, s, budget);
    if (n == 0 && !(s->last && s->done == s->fed)) return 0;
    int64_t samples = (int64_t)n * v->dims.samples_per_item;
    *t = (take){.s = s, .n = n};
    t->skip = n > 0 && s->mute[s->done] ? samples : min64(s->drop, samples);
    t->hand = samples - t->skip;
    if (t->hand == 0) return 1;
    int rc = og_out_reserve(s->job->out[v->out_port], t->hand, &t->view);
    if (rc == 0) return 1;
    if (rc != OG_EAGAIN) {
        og_err err = OG_ERR_INIT;
        og_err_set(&err, rc, "no room for %lld samples", (long long)t->hand);
        fail_job(v, s, &err);
    }
    return 0;
}

static void add_rows(vocoder *v, take *t, int row) {
    slot *s = t->s;
    size_t groups = (size_t)v->dims.groups;
    int32_t id = (int32_t)(s - v->slots);
    t->row = row;
    for (int i = 0; i < t->n; i++, row++) {
        int64_t at = s->done + i;
        for (size_t g = 0; g < groups; g++) {
            v->row_codes[(size_t)row * groups + g] = s->codes[(size_t)at * groups + g];
        }
        v->row_slot[row] = id;
        for (int k = 0; k < 3; k++) v->row_pos[row * 3 + k] = (int32_t)at;
    }
}

/* Deal the step's budget to the slots in turn. */
static og_rows deal(vocoder *v) {
    int n_seg = 0, row = 0, start = v->cursor;
    v->n_takes = 0;
    v->row_cu[0] = 0;
    for (int i = 0; i < v->lim.slots && row < v->lim.max_rows; i++) {
        int at = (start + i) % v->lim.slots;
        slot *s = &v->slots[at];
        take *t = &v->takes[v->n_takes];
        if (s->state != SLOT_ACTIVE || !take_share(v, s, v->lim.max_rows - row, t))
            continue;
        v->n_takes++;
        v->cursor = (at + 1) % v->lim.slots;
        if (t->n == 0) continue;
        add_rows(v, t, row);
        row += t->n;
        v->row_cu[++n_seg] = row;
    }
    return (og_rows){row, n_seg, v->row_slot, v->row_pos, v->row_cu};
}

static void hand_on(vocoder *v, take *t, const og_tensor *audio) {
    slot *s = t->s;
    og_out *out = s->job->out[v->out_port];
    if (t->hand > 0) {
        int64_t from = (int64_t)t->row * v->dims.samples_per_item + t->skip;
        memcpy(t->view.data, (const float *)audio->data + from,
               (size_t)t->hand * sizeof(float));
    }
    if (t->n > 0 && !s->mute[s->done]) s->drop -= t->skip;
    s->done += t->n;
    int ends = s->last && s->done == s->fed;
    if (t->hand == 0 && !ends) return;
    int flags = (s->opened ? 0 : OG_FIRST) | (ends ? OG_LAST : 0);
    s->opened = 1;
    if (ends) s->state = SLOT_ENDED;
    og_out_commit(out, t->hand, flags);
}

/* Decode the rows that were dealt; *audio then lies in host memory. */
static int decode(vocoder *v, const og_rows *rows, og_tensor *audio) {
    og_exec *ex = v->node.cfg.exec;
    int rc = v->impl->forward(v->net, ex, audio, v->row_codes, rows);
    if (rc < 0 || !v->fetched) return rc;
    rc = og_exec_fetch(ex, v->fetched, audio->data, og_tensor_bytes(audio));
    if (rc < 0) return rc;
    *audio = og_tensor_1d(OG_F32, audio->ne[0], v->fetched);
    return og_exec_sync(ex);
}

static int step(og_node *n, og_step_info *info, og_err *err) {
    vocoder *v = (vocoder *)n;
    og_exec *ex = n->cfg.exec;
    og_tensor audio = {0};
    int rc = 0;

    og_exec_reset(ex);
    og_rows rows = deal(v);
    *info = (og_step_info){.jobs = v->n_takes, .rows = rows.n};
    if (v->n_takes == 0) return OG_STEP_IDLE;
    if (rows.n > 0) rc = decode(v, &rows, &audio);
    if (rc < 0) {
        og_err_set(err, rc, "vocoder step of %d frames: %s", rows.n, og_exec_error(ex));
        if (n->cfg.stage) og_err_node(err, n->cfg.stage);
        return rc;
    }
    for (int i = 0; i < v->n_takes; i++) hand_on(v, &v->takes[i], &audio);
    v->steps += rows.n > 0;
    v->rows += rows.n;
    return OG_STEP_WORK;
}

/* ---- the rest --------------------------------------------------------------------- */

static void stats(const og_node *n, og_node_stats *out) {
    const vocoder *v = (const vocoder *)n;
    *out = (og_node_stats){.slots = v->lim.slots,
                           .weight_bytes = v->dims.weight_bytes,
                           .state_bytes = v->dims.state_bytes * (size_t)v->lim.slots,
                           .steps = v->steps,
                           .rows = v->rows};
    for (int i = 0; i < v->lim.slots; i++)
        out->slots_used += v->slots[i].state != SLOT_FREE;
}

/* Rows of a full step dealt over n_seg slots as evenly as can be. */
static og_rows full_step(vocoder *v, int n_seg) {
    int rows = v->lim.max_rows;
    for (int s = 0; s < n_seg; s++) {
        int from = (int)((int64_t)rows * s / n_seg),
            to = (int)((int64_t)rows * (s + 1) / n_seg);
        v->row_cu[s] = from;
        v->row_cu[s + 1] = to;
        for (int r = from; r < to; r++) {
            v->row_slot[r] = s;
            for (int k = 0; k < 3; k++) v->row_pos[r * 3 + k] = r - from;
        }
    }
    memset(v->row_codes, 0, (size_t)rows * (size_t)v->dims.groups * sizeof *v->row_codes);
    return (og_rows){rows, n_seg, v->row_slot, v->row_pos, v->row_cu};
}

/* Many short segments and few long ones are the two extremes of a full step. */
static int measure(og_node *n, og_err *err) {
    vocoder *v = (vocoder *)n;
    og_exec *ex = n->cfg.exec;
    og_exec_mode mode = og_exec_get_mode(ex);
    int fewest = (v->lim.max_rows + v->lim.max_chunk - 1) / v->lim.max_chunk;
    int segs[2] = {fewest, (int)min64(v->lim.slots, v->lim.max_rows)};
    int rc = 0;

    og_exec_set_mode(ex, OG_MEASURE);
    for (int i = 0; i < 2 && rc >= 0; i++) {
        og_tensor audio = {0};
        og_rows rows = full_step(v, segs[i]);
        og_exec_reset(ex);
        rc = v->impl->forward(v->net, ex, &audio, v->row_codes, &rows);
    }
    if (rc < 0) og_err_set(err, rc, "measuring a vocoder step: %s", og_exec_error(ex));
    og_exec_reset(ex);
    og_exec_set_mode(ex, mode);
    return rc < 0 ? rc : 0;
}

int og_vocoder_plan(const og_arch *a, const og_node_cfg *cfg, og_node_plan *out,
                    og_err *err) {
    const og_vocoder_impl *impl = a->impl;
    og_vocoder_limits lim;
    og_vocoder_dims d = {0};
    int rc = limits_of(cfg, &lim, err);
    if (rc < 0) return rc;
    const json_t *section = og_model_config(cfg->model, cfg->folder, a->section, err);
    if (!section) return err && err->code ? err->code : OG_ENOENT;
    rc = impl->dims(section, &lim, &d, err);
    if (rc < 0) return rc;

    *out = (og_node_plan){.weight_bytes = d.weight_bytes,
                          .rate = d.rate,
                          .state_bytes = d.state_bytes * (size_t)lim.slots};
    for (int i = 0; a->ports[i].name; i++) {
        if (!(a->ports[i].flags & OG_PORT_OUT)) continue;
        out->out_items_per_item[i] = d.samples_per_item;
        out->out_item_bytes[i] = sizeof(float);
        out->out_dtype[i] = OG_F32;
        out->out_width[i] = 1;
    }
    return 0;
}

const og_node_api og_vocoder_api = {
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

const og_kind_desc og_kind_vocoder = OG_KIND_VOCODER_DESC;
