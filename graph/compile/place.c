/* Place: which device each replica runs on, which stages share an executor, and the chunk
 * sizes of the edges. Replica number r of the stages of one device form one group, so a
 * talker and a vocoder on one device are stepped in stream order by one thread. */
#include "graph/compile/compile.h"

#include <stdio.h>
#include <string.h>

#define MAX_DEVICES 64

static bool in_build(const char *backend) {
    for (const char *const *n = og_device_backends(); *n; n++) {
        if (strcmp(*n, backend) == 0) {
            return true;
        }
    }
    return false;
}

static const char *backend_of(const og__build *b, const og_plan_stage *s) {
    return og_overlay_string(b->overlay, s->name, "backend", b->opts->backend);
}

static og_src overlay_src(const og__build *b, const og_plan_stage *s, const char *key) {
    const og_yaml_node *n = og_overlay_get(b->overlay, s->name, key);
    return n ? n->src : s->src;
}

static void check_backend(og__build *b, const og_plan_stage *s, const char *backend) {
    if (strcmp(backend, "cpu") != 0 && strcmp(backend, "cuda") != 0) {
        og_diags_error(b->diags, overlay_src(b, s, "backend"),
                       "stage '%s': there is no backend '%s'", s->name, backend);
        og_diags_hint(b->diags, "cpu or cuda");
    } else if (!in_build(backend)) {
        og__plan_block(
            b, overlay_src(b, s, "backend"),
            "stage '%s': backend '%s' is not in this build%s", s->name, backend,
            strcmp(backend, "cuda") == 0 ? " (configure with -DOG_CUDA=ON)" : "");
    }
}

/* Device id of replica r. -1 after an error. */
static int device_of(og__build *b, const og_plan_stage *s, const int *ids, int n, int r) {
    if (n == 0) {
        return 0;
    }
    if (n == 1) {
        return ids[0];
    }
    if (s->n_replicas == 1 || n == s->n_replicas) {
        return ids[r];
    }
    if (r == 0) {
        og_diags_error(b->diags, overlay_src(b, s, "devices"),
                       "stage '%s': %d replicas need 1 device or %d, `devices` names %d",
                       s->name, s->n_replicas, s->n_replicas, n);
    }
    return -1;
}

static int same_place_before(const og_plan_replica *replicas, const int *device, int r) {
    int n = 0;
    for (int i = 0; i < r; i++) {
        n += replicas[i].place.kind == replicas[r].place.kind && device[i] == device[r];
    }
    return n;
}

static int group_of(og__build *b, og_place place, const char *backend, int device,
                    int ordinal) {
    const char *name = ordinal ? og__plan_text(b, "%s:%d #%d", backend, device, ordinal)
                               : og__plan_text(b, "%s:%d", backend, device);
    if (!name) {
        return -1;
    }
    for (int i = 0; i < b->n_groups; i++) {
        if (strcmp(b->groups[i].name, name) == 0) {
            return i;
        }
    }
    b->groups[b->n_groups] = (og_plan_group){.name = name, .place = place};
    return b->n_groups++;
}

static void place_stage(og__build *b, int stage) {
    og_plan_stage *s = &b->stages[stage];
    const char *backend = backend_of(b, s);
    bool cuda = strcmp(backend, "cuda") == 0;
    int ids[MAX_DEVICES], device[MAX_DEVICES];
    int n = og_overlay_devices(b->overlay, s->name, ids, MAX_DEVICES);
    check_backend(b, s, backend);
    s->n_replicas = (int)og_overlay_int(b->overlay, s->name, "num_replicas", 1);
    if (s->n_replicas < 1 || s->n_replicas > MAX_DEVICES) {
        og_diags_error(b->diags, overlay_src(b, s, "num_replicas"),
                       "stage '%s': %d replicas (1 to %d are allowed)", s->name,
                       s->n_replicas, MAX_DEVICES);
        s->n_replicas = 1;
    }
    if (n > 1 && s->n_replicas == 1) {
        og_diags_warn(b->diags, overlay_src(b, s, "devices"),
                      "stage '%s': one replica runs on one device, %s:%d; the others of "
                      "`devices` stay unused",
                      s->name, backend, ids[0]);
    }
    og_plan_replica *r = og__plan_new(b, (size_t)s->n_replicas, sizeof *r);
    for (int i = 0; r && i < s->n_replicas; i++) {
        device[i] = device_of(b, s, ids, n, i);
        r[i].place.kind = cuda ? OG_PLACE_CUDA : OG_PLACE_HOST;
        r[i].place.index = cuda && device[i] >= 0 ? device[i] : 0;
        r[i].group = -1;
        if (device[i] >= 0) {
            r[i].group = group_of(b, r[i].place, backend, device[i],
                                  same_place_before(r, device, i));
        }
    }
    s->replicas = r;
}

/* `with`: one set of weights, one KV pool, the same replicas. */
static void place_with(og__build *b, int stage) {
    og_plan_stage *s = &b->stages[stage];
    const og_plan_stage *o = &b->stages[s->with];
    bool apart = s->n_replicas != o->n_replicas;
    for (int i = 0; i < s->n_replicas && !apart; i++) {
        apart = s->replicas[i].group != o->replicas[i].group;
    }
    if (apart) {
        og__plan_block(
            b, overlay_src(b, s, "devices"),
            "stage '%s' shares its weights with '%s', and the overlay puts them apart: "
            "this build runs them together only",
            s->name, o->name);
    }
}

static void list_stages(og__build *b) {
    for (int g = 0; g < b->n_groups && !b->oom; g++) {
        int *list = og__plan_new(b, (size_t)b->n_stages, sizeof *list);
        int n = 0;
        for (int i = 0; list && i < b->plan->n_order; i++) {
            const og_plan_stage *s = &b->stages[b->plan->order[i]];
            for (int r = 0; r < s->n_replicas; r++) {
                if (s->replicas[r].group == g) {
                    list[n++] = b->plan->order[i];
                    break;
                }
            }
        }
        b->groups[g].stages = list;
        b->groups[g].n_stages = n;
    }
}

/* ---- edges ----------------------------------------------------------------------- */

static int id_of(const og__build *b, int stage) {
    return stage >= 0 ? b->stages[stage].stage_id : -1;
}

/* Sizes of the overlay's connector replace the pipeline's. */
static void take_link(og__build *b, og_plan_edge *e, int from, int to) {
    og_overlay_link link = {0};
    og_overlay_link_of(b->overlay, from, to, &link);
    e->whole |= !link.async_chunk;
    e->connector = link.connector ? og__plan_text(b, "%s", link.connector) : NULL;
    if (link.n_chunks > 0) {
        int *sizes = og__plan_new(b, (size_t)link.n_chunks, sizeof *sizes);
        if (sizes) {
            memcpy(sizes, link.chunks, (size_t)link.n_chunks * sizeof *sizes);
            e->chunk = sizes;
            e->n_chunk = link.n_chunks;
        }
    }
}

static void chunk_edge(og__build *b, og_plan_edge *e) {
    int stream = -1;
    for (int i = 0; i < e->n_from && stream < 0; i++) {
        stream = e->from[i].stage >= 0 && e->from[i].stream ? i : -1;
    }
    int to = e->n_to ? e->to[0].stage : -1;
    if (to < 0) {
        return; /* a client takes what comes, as it comes */
    }
    if (!b->plan->async_chunk) {
        e->whole = true;
    }
    if (stream >= 0) {
        int from_id = id_of(b, e->from[stream].stage), to_id = id_of(b, to);
        if (from_id >= 0 && to_id >= 0) {
            take_link(b, e, from_id, to_id);
        }
    }
    if (e->whole && e->n_chunk) {
        e->n_chunk = 0;
    }
    const og_plan_end *f = stream >= 0 ? &e->from[stream] : NULL;
    if (f && b->stages[f->stage].n_replicas) {
        const og_place *p = &b->stages[f->stage].replicas[0].place;
        const og_place *q = &b->stages[to].replicas[0].place;
        if (p->kind != q->kind || p->index != q->index) {
            e->cast = og__plan_text(b, "copy %s -> %s",
                                    p->kind == OG_PLACE_CUDA ? "cuda" : "host",
                                    q->kind == OG_PLACE_CUDA ? "cuda" : "host");
        }
    }
}

int og__pass_place(og__build *b) {
    b->groups = og__plan_new(b, (size_t)b->n_stages * MAX_DEVICES, sizeof *b->groups);
    if (b->oom) {
        return OG_ENOMEM;
    }
    for (int i = 0; i < b->plan->n_order && !b->oom; i++) {
        place_stage(b, b->plan->order[i]);
    }
    for (int i = 0; i < b->n_stages && !b->oom; i++) {
        if (b->stages[i].with >= 0) {
            place_with(b, i);
        }
    }
    list_stages(b);
    for (int i = 0; i < b->n_edges && !b->oom; i++) {
        chunk_edge(b, &b->edges[i]);
    }
    return b->oom || og_diags_oom(b->diags) ? OG_ENOMEM : 0;
}
