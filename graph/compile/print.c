/* The plan for people. */
#include "graph/compile/compile.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *og__plan_bytes(size_t n, char *buf, size_t size) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)n;
    int u = 0;
    for (; v >= 1024 && u < 4; u++) {
        v /= 1024;
    }
    snprintf(buf, size, u ? "%.1f %s" : "%.0f %s", v, units[u]);
    return buf;
}

static void type_text(og_str *out, const og_type *t) {
    if (t->kind == OG_TYPE_KIND_COUNT) {
        og_str_add(out, "?");
    } else {
        og_type_print(t, out);
    }
}

static void cond_text(og_str *out, const og_cond *c) {
    og_str_add(out, "  when ");
    og_cond_print(c, out);
}

/* ---- stages ---------------------------------------------------------------------- */

static void ports(og_str *out, const og_plan_stage *s, int flag, const char *title) {
    bool first = true;
    for (int i = 0; i < s->n_ports; i++) {
        if (!(s->ports[i].flags & flag)) {
            continue;
        }
        og_str_addf(out, "%s%s ", first ? title : ", ", s->ports[i].name);
        type_text(out, &s->ports[i].type);
        first = false;
    }
    og_str_add(out, first ? "" : "\n");
}

static void sampling(og_str *out, const char *title, const og_sampling *s, bool limits) {
    og_str_addf(out, "    %s", title);
    if (s->temperature <= 0) {
        og_str_add(out, " greedy");
    } else {
        og_str_addf(out, " temperature %g, top_k %d, top_p %g", (double)s->temperature,
                    s->top_k, (double)s->top_p);
    }
    if (s->repetition_penalty != 1.0f) {
        og_str_addf(out, ", repetition_penalty %g", (double)s->repetition_penalty);
    }
    if (limits) {
        og_str_addf(out, ", min_tokens %d, max_tokens %d", s->min_tokens, s->max_tokens);
        for (int i = 0; i < s->n_stop; i++) {
            og_str_addf(out, "%s%d", i ? "," : ", stop ", s->stop[i]);
        }
    }
    og_str_add(out, "\n");
}

static void stage_memory(og_str *out, const og_plan_stage *s) {
    char w[32], k[32], t[32];
    if (s->has_node_plan) {
        og_str_addf(out, "    memory: weights %s, KV %s, state %s\n",
                    og__plan_bytes(s->node.weight_bytes, w, sizeof w),
                    og__plan_bytes(s->node.kv_bytes, k, sizeof k),
                    og__plan_bytes(s->node.state_bytes, t, sizeof t));
    }
}

static void stage(og_str *out, const og_plan *p, const og_plan_stage *s) {
    og_str_addf(out, "  %s  %s %s%s%s", s->name, s->kind_name, s->arch_name,
                s->folder[0] ? "  weights " : "", s->folder);
    if (s->when) {
        cond_text(out, s->when);
    }
    og_str_add(out, "\n");
    ports(out, s, OG_PORT_IN, "    in: ");
    ports(out, s, OG_PORT_OUT, "    out: ");
    og_str_add(out, "    on");
    for (int i = 0; i < s->n_replicas; i++) {
        int g = s->replicas[i].group;
        og_str_addf(out, "%s %s", i ? "," : "", g >= 0 ? p->groups[g].name : "?");
    }
    og_str_addf(out, ": max_num_seqs %d, max_model_len %d, max_num_batched_tokens %d\n",
                s->max_num_seqs, s->max_model_len, s->max_num_batched_tokens);
    for (int i = 0; i < s->n_options; i++) {
        og_str_addf(out, "%s%s = %s%s", i ? ", " : "    options: ", s->options[i].name,
                    s->options[i].text ? s->options[i].text : "",
                    i + 1 == s->n_options ? "\n" : "");
    }
    if (s->kind == OG_KIND_AR) {
        sampling(out, "sampling:", &s->sampling, true);
        sampling(out, "head:", &s->head_sampling, false);
    }
    stage_memory(out, s);
}

/* ---- edges ----------------------------------------------------------------------- */

static void ends(og_str *out, const og_plan_end *list, int n) {
    for (int i = 0; i < n; i++) {
        og_str_addf(out, "%s%s%s: ", i ? ", " : "", list[i].text,
                    list[i].optional ? "?" : "");
        type_text(out, &list[i].type);
    }
}

static void edge_how(og_str *out, const og_plan_edge *e) {
    static const char *const via[] = {"",       "resample",       "detokenize",
                                      "resize", "split sentence", "split clause"};
    if (e->hook) {
        og_str_addf(out, "  hook %s (%s)", e->hook,
                    e->per_chunk      ? "per chunk"
                    : e->at_admission ? "at admission"
                                      : "once");
    }
    if (e->via != OG_VIA_NONE) {
        og_str_addf(out, "  via %s", via[e->via]);
        if (e->via_rate) {
            og_str_addf(out, " to %d", e->via_rate);
        }
    }
    if (e->whole) {
        og_str_add(out, "  whole");
    }
    for (int i = 0; i < e->n_chunk; i++) {
        og_str_addf(out, "%s%d", i ? "," : "  chunks ", e->chunk[i]);
    }
    if (e->numbered) {
        og_str_add(out, "  lanes numbered");
    }
    for (int i = 0; i < e->n_lanes; i++) {
        og_str_addf(out, "%s%s", i ? "," : "  lanes ", e->lanes[i]);
    }
    if (e->join) {
        og_str_addf(out, "  join, gap %g s", e->join_gap);
    }
    if (e->connector) {
        og_str_addf(out, "  connector %s", e->connector);
    }
    if (e->cast) {
        og_str_addf(out, "  %s", e->cast);
    }
}

static void edge(og_str *out, const og_plan_edge *e) {
    char buf[32];
    og_str_add(out, "  ");
    ends(out, e->from, e->n_from);
    og_str_add(out, " -> ");
    ends(out, e->to, e->n_to);
    edge_how(out, e);
    if (e->when) {
        cond_text(out, e->when);
    }
    if (e->budget_bytes) {
        og_str_addf(out, "  budget %s", og__plan_bytes(e->budget_bytes, buf, sizeof buf));
    }
    og_str_add(out, "\n");
}

/* ---- the whole ------------------------------------------------------------------- */

static int add_text(const char *text, size_t n, void *out) {
    og_str_addn(out, text, n);
    return 0;
}

static void fields(og_str *out, const og_plan *p) {
    og_str_add(out, "\nrequest\n");
    for (int i = 0; i < p->n_fields; i++) {
        const og_plan_field *f = &p->fields[i];
        og_str_addf(out, "  %s ", f->name);
        type_text(out, &f->type);
        if (f->def) {
            og_str_add(out, "  default ");
            json_dump_callback(f->def, add_text, out, JSON_ENCODE_ANY | JSON_COMPACT);
        }
        for (int k = 0; k < f->n_one_of; k++) {
            og_str_addf(out, "%s%s", k ? ", " : "  one of ", f->one_of[k]);
        }
        og_str_add(out, "\n");
    }
}

static void kv_text(og_str *out, const og_plan_share *h, const og_plan_stage *s) {
    char k[32], b[32];
    if (!h->kv_bytes) {
        return;
    }
    og_str_addf(out, ", KV %s", og__plan_bytes(h->kv_bytes, k, sizeof k));
    if (s->node.kv_pages) {
        og_str_addf(out, " (%" PRId64 " pages x %s)", s->node.kv_pages,
                    og__plan_bytes(s->node.kv_page_bytes, b, sizeof b));
    }
}

static void share(og_str *out, const og_plan *p, const og_plan_device *d,
                  const og_plan_share *h) {
    char a[32], w[32], t[32], l[32];
    const og_plan_stage *s = &p->stages[h->stage];
    og_str_addf(out, "    %s", s->name);
    if (s->n_replicas > 1) {
        og_str_addf(out, " #%d", h->replica);
    }
    og_str_addf(out, ": %s = weights %s", og__plan_bytes(h->bytes, a, sizeof a),
                og__plan_bytes(h->weight_bytes, w, sizeof w));
    kv_text(out, h, s);
    og_str_addf(out, ", state %s", og__plan_bytes(h->state_bytes, t, sizeof t));
    if (h->utilization > 0) {
        og_str_addf(out, "; gpu_memory_utilization %g", h->utilization);
    }
    if (h->utilization > 0 && d->memory) {
        size_t limit = (size_t)((double)d->memory * h->utilization);
        og_str_addf(out, " allows %s", og__plan_bytes(limit, l, sizeof l));
    }
    og_str_add(out, "\n");
}

void og_plan_print_memory(const og_plan *p, og_str *out) {
    char m[32], b[32], l[32];
    for (int i = 0; i < p->n_devices; i++) {
        const og_plan_device *d = &p->devices[i];
        og_str_addf(out, "  %s: %s planned", d->name, og__plan_bytes(d->bytes, b, sizeof b));
        if (!d->memory) {
            og_str_add(out, ", its size is not known\n");
        } else if (d->bytes > d->memory) {
            og_str_addf(out, " of %s, too much\n", og__plan_bytes(d->memory, m, sizeof m));
        } else {
            og_str_addf(out, " of %s, %s left\n", og__plan_bytes(d->memory, m, sizeof m),
                        og__plan_bytes(d->memory - d->bytes, l, sizeof l));
        }
        for (int k = 0; k < d->n_shares; k++) {
            share(out, p, d, &d->shares[k]);
        }
    }
}

static void memory(og_str *out, const og_plan *p) {
    char w[32], k[32], s[32], e[32];
    og_str_addf(
        out, "\nmemory: weights %s, KV %s, state %s; %s in flight for one request\n",
        og__plan_bytes(p->weight_bytes, w, sizeof w), og__plan_bytes(p->kv_bytes, k, sizeof k),
        og__plan_bytes(p->state_bytes, s, sizeof s), og__plan_bytes(p->edge_bytes, e, sizeof e));
    og_plan_print_memory(p, out);
    og_str_add(out, "  scratch and staging are measured when it is loaded (--stats)\n");
}

void og_plan_print(const og_plan *p, og_str *out) {
    og_str_addf(out, "pipeline %s  (%s)\n", p->name, p->file);
    og_str_addf(out, "checkpoint %s\nfingerprint %s\n",
                p->model_dir ? p->model_dir : "none", p->fingerprint_hex);
    for (int i = 0; i < p->n_blockers; i++) {
        og_str_addf(out, "not runnable here: %s\n", p->blockers[i]);
    }
    fields(out, p);
    og_str_add(out, "\nstages\n");
    for (int i = 0; i < p->n_order; i++) {
        stage(out, p, &p->stages[p->order[i]]);
    }
    og_str_add(out, "\nedges\n");
    for (int i = 0; i < p->n_edges; i++) {
        edge(out, &p->edges[i]);
    }
    og_str_add(out, "\nexecutors\n");
    for (int i = 0; i < p->n_groups; i++) {
        og_str_addf(out, "  %s:", p->groups[i].name);
        for (int k = 0; k < p->groups[i].n_stages; k++) {
            og_str_addf(out, " %s", p->stages[p->groups[i].stages[k]].name);
        }
        og_str_add(out, "\n");
    }
    memory(out, p);
}

void og_plan_explain(const og_plan *p, og_str *out) {
    og_overlay_explain(p->overlay, out);
}
