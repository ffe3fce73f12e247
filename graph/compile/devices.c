/* What each device has to hold, and whether it can. Host memory is one device, however many
 * "cpu:N" the overlay names. */
#include "graph/compile/compile.h"

/* Where the overlay does not say gpu_memory_utilization. */
#define DEFAULT_UTILIZATION 0.9

static double utilization(const og__build *b, const og_plan_stage *s) {
    double v = og_overlay_float(b->overlay, s->name, "gpu_memory_utilization",
                                DEFAULT_UTILIZATION);
    return v > 0 ? v : DEFAULT_UTILIZATION;
}

static size_t part_of(size_t memory, double utilization) {
    return utilization > 0 ? (size_t)((double)memory * utilization) : memory;
}

size_t og__plan_pool_bound(const og__build *b, const og_plan_stage *s) {
    size_t limit = part_of(b->opts->device_memory, utilization(b, s));
    /* A pool has one page more than it was asked for, which is nobody's. */
    size_t rest = s->node.weight_bytes + s->node.state_bytes + s->node.kv_page_bytes;
    if (!limit) {
        return 0;
    }
    return limit > rest ? limit - rest : 1;
}

/* ---- the lists ------------------------------------------------------------------- */

static og_plan_device *device_at(og_plan_device *list, int *n, og_place place) {
    for (int i = 0; i < *n; i++) {
        if (list[i].place.kind == place.kind && list[i].place.index == place.index) {
            return &list[i];
        }
    }
    list[*n] = (og_plan_device){.place = place};
    return &list[(*n)++];
}

static og_plan_share share_of(const og__build *b, int stage, int replica) {
    const og_plan_stage *s = &b->stages[stage];
    bool host = s->replicas[replica].place.kind == OG_PLACE_HOST;
    bool again = s->with >= 0 || (host && replica > 0);
    og_plan_share h = {.stage = stage,
                       .replica = replica,
                       .weight_bytes = again ? 0 : s->node.weight_bytes,
                       .kv_bytes = s->node.kv_bytes,
                       .state_bytes = s->node.state_bytes,
                       .utilization = host ? 0 : utilization(b, s)};
    h.bytes = h.weight_bytes + h.kv_bytes + h.state_bytes;
    return h;
}

static void add_shares(og__build *b, og_plan_device *d, int room) {
    og_plan_share *list = og__plan_new(b, (size_t)room, sizeof *list);
    for (int i = 0; list && i < b->plan->n_order; i++) {
        const og_plan_stage *s = &b->stages[b->plan->order[i]];
        for (int r = 0; r < s->n_replicas; r++) {
            og_place at = s->replicas[r].place;
            if (at.kind != d->place.kind || at.index != d->place.index) {
                continue;
            }
            list[d->n_shares] = share_of(b, b->plan->order[i], r);
            d->bytes += list[d->n_shares++].bytes;
        }
    }
    d->shares = list;
}

static og_src src_of(const og__build *b, const og_plan_stage *s) {
    static const char *const keys[] = {"gpu_memory_utilization", "kv_cache_memory_bytes",
                                       "max_num_seqs", "max_model_len"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const og_yaml_node *n = og_overlay_get(b->overlay, s->name, keys[i]);
        if (n) {
            return n->src;
        }
    }
    return s->src;
}

/* Against b->stages: the plan gets its stages at the end of the build. The machine that checks
 * a plan need not be the one that serves it; the size of a GPU was told. */
static void check(og__build *b, const og_plan_device *d) {
    og_err err = OG_ERR_INIT;
    og_plan view = {.stages = b->stages, .n_stages = b->n_stages};
    int share = 0;
    if (!d->memory || og_plan_device_fits(&view, d, d->memory, &share, &err) == 0) {
        return;
    }
    og_src src = src_of(b, &b->stages[d->shares[share].stage]);
    if (d->place.kind == OG_PLACE_HOST) {
        og__plan_block(b, src, "%s", err.msg);
    } else {
        og_diags_error(b->diags, src, "%s", err.msg);
    }
}

void og__plan_devices(og__build *b, size_t host_memory) {
    int most = 0, n = 0;
    for (int i = 0; i < b->n_stages; i++) {
        most += b->stages[i].n_replicas;
    }
    og_plan_device *list = og__plan_new(b, (size_t)most, sizeof *list);
    for (int i = 0; list && i < b->plan->n_order; i++) {
        const og_plan_stage *s = &b->stages[b->plan->order[i]];
        for (int r = 0; r < s->n_replicas; r++) {
            device_at(list, &n, s->replicas[r].place);
        }
    }
    for (int i = 0; i < n && !b->oom; i++) {
        og_plan_device *d = &list[i];
        bool host = d->place.kind == OG_PLACE_HOST;
        d->memory = host ? host_memory : b->opts->device_memory;
        d->name = host ? "host memory" : og__plan_text(b, "cuda:%d", d->place.index);
        add_shares(b, d, most);
        check(b, d);
    }
    b->plan->devices = list;
    b->plan->n_devices = n;
}

const og_plan_device *og_plan_find_device(const og_plan *p, og_place place) {
    for (int i = 0; i < p->n_devices; i++) {
        const og_place *at = &p->devices[i].place;
        if (at->kind == place.kind && at->index == place.index) {
            return &p->devices[i];
        }
    }
    return NULL;
}

/* ---- whether it fits ------------------------------------------------------------- */

/* What to change so that a share fits. */
static void advise(og_str *out, const og_plan_stage *s, const og_plan_share *h,
                   size_t there_is, size_t memory) {
    size_t seqs = s->max_num_seqs > 0 ? (size_t)s->max_num_seqs : 1;
    bool too_large = h->weight_bytes + h->state_bytes / seqs > there_is;
    bool part = h->utilization > 0 && h->bytes <= memory &&
                there_is == part_of(memory, h->utilization);
    if (part) {
        og_str_addf(out, "raise gpu_memory_utilization (%g)%s", h->utilization,
                    too_large ? "" : ", or ");
    }
    if (too_large) {
        og_str_add(out, part ? "" : "its weights need a device with more memory");
    } else if (h->state_bytes > h->kv_bytes) {
        og_str_addf(out, "lower max_num_seqs (%d)", s->max_num_seqs);
    } else if (s->kv_asked) {
        og_str_addf(out, "lower kv_cache_memory_bytes (%zu)", s->kv_asked);
    } else if (s->kv_bytes && h->utilization > 0 && !part) {
        og_str_addf(out, "lower gpu_memory_utilization (%g)", h->utilization);
    } else if (s->kv_bytes) { /* bounded already: more sequences only wait */
        og_str_addf(out, "lower max_model_len (%d)", s->max_model_len);
    } else {
        og_str_addf(out, "lower max_num_seqs (%d) or max_model_len (%d)", s->max_num_seqs,
                    s->max_model_len);
    }
}

static int refuse(const og_plan *p, const og_plan_device *d, const og_plan_share *h,
                  size_t there_is, size_t memory, og_err *err) {
    const og_plan_stage *s = &p->stages[h->stage];
    char a[32], w[32], k[32], t[32], l[32], m[32];
    og_str advice = OG_STR_INIT;
    advise(&advice, s, h, there_is, memory);
    int rc = og_err_set(
        err, OG_ELIMIT,
        "stage '%s' asks for %s of %s (weights %s, KV %s, state %s), and of %s there are %s "
        "for it: %s",
        s->name, og__plan_bytes(h->bytes, a, sizeof a), d->name,
        og__plan_bytes(h->weight_bytes, w, sizeof w),
        og__plan_bytes(h->kv_bytes, k, sizeof k),
        og__plan_bytes(h->state_bytes, t, sizeof t), og__plan_bytes(memory, m, sizeof m),
        og__plan_bytes(there_is, l, sizeof l), advice.data ? advice.data : "");
    og_str_free(&advice);
    return rc;
}

/* All together are too much: it is the largest that has to give way. */
int og_plan_device_fits(const og_plan *p, const og_plan_device *d, size_t memory,
                        int *share, og_err *err) {
    int largest = 0;
    for (int i = 0; i < d->n_shares; i++) {
        const og_plan_share *h = &d->shares[i];
        size_t limit = part_of(memory, h->utilization);
        if (share) {
            *share = i;
        }
        if (h->utilization > 0 && h->bytes > limit) {
            return refuse(p, d, h, limit, memory, err);
        }
        if (h->bytes > d->shares[largest].bytes) {
            largest = i;
        }
    }
    if (d->bytes <= memory) {
        return 0;
    }
    const og_plan_share *h = &d->shares[largest];
    size_t others = d->bytes - h->bytes;
    if (share) {
        *share = largest;
    }
    return refuse(p, d, h, memory > others ? memory - others : 0, memory, err);
}
