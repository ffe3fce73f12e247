/* Wire: ports exist, what must be fed is fed, what may be absent is marked, nothing runs
 * in circles. Makes the plan's ports, edges and responses. */
#include "graph/compile/compile.h"

#include <string.h>

/* ---- ports ----------------------------------------------------------------------- */

static int count_ports(const og_arch *a) {
    int n = 0;
    while (a && a->ports && a->ports[n].name && n < OG_MAX_PORTS) {
        n++;
    }
    return n;
}

static void make_ports(og__build *b, int stage) {
    og_plan_stage *s = &b->stages[stage];
    s->n_ports = count_ports(s->arch);
    og_plan_port *ports = og__plan_new(b, (size_t)s->n_ports, sizeof *ports);
    for (int i = 0; ports && i < s->n_ports; i++) {
        const og_port_desc *d = &s->arch->ports[i];
        ports[i].name = d->name;
        ports[i].flags = d->flags;
        ports[i].feeder = -1;
        if (!og_type_parse(d->type, s->src, b->arena, b->diags, &ports[i].type)) {
            ports[i].type.kind = OG_TYPE_KIND_COUNT;
        }
    }
    s->ports = b->ports[stage] = ports;
}

static void list_ports(const og_arch *a, int flag, og_str *out) {
    for (const og_port_desc *d = a->ports; d && d->name; d++) {
        if (d->flags & flag) {
            og_str_addf(out, "%s%s", out->len ? ", " : "", d->name);
        }
    }
}

static void no_port(og__build *b, const og_spec_end *e, int flag) {
    const og_arch *a = b->bs[e->stage].arch;
    og_str has = OG_STR_INIT;
    list_ports(a, flag, &has);
    og_diags_error(b->diags, e->src, "arch '%s' of stage '%s' has no %s '%s'", a->name,
                   b->spec->stages[e->stage].name,
                   flag == OG_PORT_IN ? "input" : "output", e->name);
    og_diags_hint(b->diags, "it has %s", has.len ? has.data : "none");
    og_str_free(&has);
}

/* Index of the arch's port, -1 when the arch is unknown or has no such port. */
static int port_of(const og__build *b, const og_spec_end *e, int flag) {
    const og_arch *a = e->stage >= 0 ? b->bs[e->stage].arch : NULL;
    for (int i = 0; a && a->ports && a->ports[i].name && i < OG_MAX_PORTS; i++) {
        if ((a->ports[i].flags & flag) && strcmp(a->ports[i].name, e->name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Every edge of the file, also those that this checkpoint turns off. */
static void check_ports(og__build *b) {
    for (int i = 0; i < b->spec->n_edges; i++) {
        const og_spec_edge *e = &b->spec->edges[i];
        for (int k = 0; k < e->n_from; k++) {
            const og_spec_end *f = &e->from[k];
            if (f->stage >= 0 && b->bs[f->stage].arch && port_of(b, f, OG_PORT_OUT) < 0) {
                no_port(b, f, OG_PORT_OUT);
            }
        }
        for (int k = 0; k < e->n_to; k++) {
            const og_spec_end *t = &e->to[k];
            if (t->stage >= 0 && b->bs[t->stage].arch && port_of(b, t, OG_PORT_IN) < 0) {
                no_port(b, t, OG_PORT_IN);
            }
        }
    }
}

/* ---- edges ----------------------------------------------------------------------- */

static og_type field_type(const og__build *b, const og_spec_end *e) {
    og_type t = b->spec->request[e->field].type;
    if (!e->part) {
        return t;
    }
    static const struct {
        const char *part;
        og_type_kind kind;
    } parts[] = {
        {"images", OG_TYPE_IMAGE}, {"audios", OG_TYPE_AUDIO}, {"videos", OG_TYPE_VIDEO}};
    og_type list = {
        .kind = OG_TYPE_KIND_COUNT, .list = true, .optional = true, .src = e->src};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(parts[i].part, e->part) == 0) {
            list.kind = parts[i].kind;
        }
    }
    return list;
}

static og_type response_type(const og_spec_end *e) {
    static const struct {
        const char *name;
        og_type_kind kind;
    } ports[] = {{"text", OG_TYPE_TEXT},
                 {"audio", OG_TYPE_AUDIO},
                 {"image", OG_TYPE_IMAGE},
                 {"images", OG_TYPE_IMAGE},
                 {"video", OG_TYPE_VIDEO}};
    og_type t = {.kind = OG_TYPE_KIND_COUNT, .src = e->src};
    for (size_t i = 0; i < sizeof ports / sizeof *ports; i++) {
        if (strcmp(ports[i].name, e->name) == 0) {
            t.kind = ports[i].kind;
        }
    }
    t.list = strcmp(e->name, "images") == 0;
    return t;
}

static og_plan_end make_end(og__build *b, const og_spec_end *e, int flag) {
    og_plan_end p = {.alias = e->alias,
                     .text = e->text,
                     .kind = e->kind,
                     .stage = -1,
                     .port = -1,
                     .field = -1,
                     .response = -1,
                     .optional = e->optional,
                     .src = e->src,
                     .part = e->part};
    p.type.kind = OG_TYPE_KIND_COUNT;
    if (e->kind == OG_END_REQUEST) {
        p.field = e->field;
        p.type = field_type(b, e);
    } else if (e->kind == OG_END_RESPONSE) {
        p.type = response_type(e);
    } else {
        p.stage = b->bs[e->stage].plan;
        p.port = port_of(b, e, flag);
        if (p.port >= 0) {
            const og_plan_port *port = &b->ports[p.stage][p.port];
            p.type = port->type;
            p.stream = (port->flags & OG_PORT_STREAM) != 0;
        }
    }
    return p;
}

static void copy_edge(og__build *b, const og_spec_edge *e, og_plan_edge *p) {
    p->src = e->src;
    p->index = b->n_edges;
    p->hook = e->hook;
    p->per_chunk = e->per_chunk;
    p->via = e->via;
    p->resize = e->resize;
    p->chunk = e->chunk;
    p->n_chunk = e->n_chunk;
    p->whole = e->async_chunk == OG_FALSE;
    p->numbered = e->numbered;
    p->join = e->join;
    p->join_gap = e->join_gap;
    p->phase = e->phase;
    p->n_lanes = e->n_lanes;
    const char **lanes =
        e->n_lanes ? og__plan_new(b, (size_t)e->n_lanes, sizeof *lanes) : NULL;
    for (int i = 0; lanes && i < e->n_lanes; i++) {
        lanes[i] = e->lanes[i].name;
    }
    p->lanes = lanes;
}

static void make_edge(og__build *b, int spec_edge) {
    const og_spec_edge *e = &b->spec->edges[spec_edge];
    og_plan_edge *p = &b->edges[b->n_edges];
    og_plan_end *from = og__plan_new(b, (size_t)e->n_from, sizeof *from);
    og_plan_end *to = og__plan_new(b, (size_t)e->n_to, sizeof *to);
    if (b->oom) {
        return;
    }
    copy_edge(b, e, p);
    p->spec = spec_edge;
    p->when = b->be[spec_edge].when;
    p->at_admission = e->hook != NULL;
    for (int i = 0; i < e->n_from; i++) {
        const og_spec_end *f = &e->from[i];
        if (f->stage >= 0 && b->bs[f->stage].dropped) {
            continue; /* optional: absent in every request of this checkpoint */
        }
        p->at_admission = p->at_admission && f->kind == OG_END_REQUEST;
        from[p->n_from++] = make_end(b, f, OG_PORT_OUT);
    }
    for (int i = 0; i < e->n_to; i++) {
        to[p->n_to++] = make_end(b, &e->to[i], OG_PORT_IN);
    }
    p->from = from;
    p->to = to;
    p->client = to[0].kind == OG_END_RESPONSE;
    b->n_edges++;
}

/* Note in the ports which edge feeds and which edges read them. */
static void connect(og__build *b, int edge) {
    const og_plan_edge *e = &b->edges[edge];
    for (int i = 0; i < e->n_to; i++) {
        const og_plan_end *t = &e->to[i];
        if (t->stage >= 0 && t->port >= 0) {
            b->ports[t->stage][t->port].feeder = edge;
        }
    }
    for (int i = 0; i < e->n_from; i++) {
        const og_plan_end *f = &e->from[i];
        if (f->stage < 0 || f->port < 0) {
            continue;
        }
        og_plan_port *port = &b->ports[f->stage][f->port];
        int *readers = og__plan_new(b, (size_t)port->n_readers + 1, sizeof *readers);
        if (!readers) {
            return;
        }
        if (port->n_readers) {
            memcpy(readers, port->readers, (size_t)port->n_readers * sizeof *readers);
        }
        readers[port->n_readers++] = edge;
        port->readers = readers;
    }
}

static void make_responses(og__build *b) {
    b->responses = og__plan_new(b, (size_t)b->n_edges, sizeof *b->responses);
    for (int i = 0; b->responses && i < b->n_edges; i++) {
        for (int k = 0; k < b->edges[i].n_to; k++) {
            og_plan_end *t = (og_plan_end *)&b->edges[i].to[k];
            if (t->kind == OG_END_RESPONSE) {
                t->response = b->n_responses;
                b->responses[b->n_responses++] = (og_plan_response){
                    .name = strchr(t->text, '.') ? strchr(t->text, '.') + 1 : t->text,
                    .src = t->src,
                    .type = t->type,
                    .edge = i,
                };
            }
        }
    }
}

/* ---- checks ---------------------------------------------------------------------- */

static int fed_inputs(const og__build *b, int stage) {
    int n = 0;
    for (int i = 0; i < b->stages[stage].n_ports; i++) {
        n += b->ports[stage][i].feeder >= 0;
    }
    return n;
}

static void check_fed(og__build *b) {
    for (int s = 0; s < b->n_stages; s++) {
        const og_plan_stage *st = &b->stages[s];
        for (int i = 0; i < st->n_ports; i++) {
            const og_plan_port *p = &b->ports[s][i];
            if ((p->flags & OG_PORT_IN) && !p->type.optional && p->feeder < 0) {
                og_diags_error(b->diags, st->src,
                               "stage '%s': input '%s' must be fed and has no edge",
                               st->name, p->name);
                og_diags_hint(b->diags, "add an edge with to: %s.%s", st->name, p->name);
            }
        }
    }
}

static void check_question_marks(og__build *b, const og_spec_edge *e) {
    for (int i = 0; e->hook && i < e->n_from; i++) {
        const og_spec_end *f = &e->from[i];
        og_str why = OG_STR_INIT;
        if (!f->optional && og__plan_may_be_absent(b, f, &e->to[0], e->phase, &why)) {
            og_diags_error(b->diags, f->src,
                           "source '%s' may be absent (%s): write '%s?'", f->text,
                           why.data ? why.data : "", f->text);
        }
        og_str_free(&why);
    }
}

/* A plain edge into a port that must be fed, of a stage that other edges keep on. */
static void check_plain(og__build *b, const og_spec_edge *e) {
    const og_spec_end *t = &e->to[0];
    int port = e->hook || t->stage < 0 ? -1 : port_of(b, t, OG_PORT_IN);
    int stage = port >= 0 ? b->bs[t->stage].plan : -1;
    if (stage < 0 || b->ports[stage][port].type.optional || fed_inputs(b, stage) < 2) {
        return;
    }
    og_str why = OG_STR_INIT;
    if (og__plan_may_be_absent(b, &e->from[0], t, e->phase, &why)) {
        og_diags_error(b->diags, e->src, "'%s' must be fed, but '%s' may be absent (%s)",
                       t->text, e->from[0].text, why.data ? why.data : "");
    }
    og_str_free(&why);
}

/* ---- order ----------------------------------------------------------------------- */

typedef struct links {
    int *from, *to, *order, *cycle, m;
} links;

static void add_links(const og__build *b, links *l, int phase) {
    l->m = 0;
    for (int i = 0; i < b->spec->n_edges; i++) {
        const og_spec_edge *e = &b->spec->edges[i];
        int t = e->n_to ? e->to[0].stage : -1;
        if (t < 0 || (phase >= 0 && e->phase != phase)) {
            continue;
        }
        for (int k = 0; k < e->n_from; k++) {
            if (e->from[k].stage >= 0) {
                l->from[l->m] = e->from[k].stage;
                l->to[l->m++] = t;
            }
        }
    }
}

static const og_spec_edge *closing_edge(const og__build *b, int from, int to) {
    for (int i = 0; i < b->spec->n_edges; i++) {
        const og_spec_edge *e = &b->spec->edges[i];
        for (int k = 0; k < e->n_from; k++) {
            if (e->from[k].stage == from && e->n_to && e->to[0].stage == to) {
                return e;
            }
        }
    }
    return &b->spec->edges[0];
}

static void report_cycle(og__build *b, const int *cycle, int len) {
    og_str text = OG_STR_INIT;
    for (int i = 0; i <= len; i++) {
        og_str_addf(&text, "%s%s", i ? " -> " : "", b->spec->stages[cycle[i]].name);
    }
    og_diags_error(b->diags, closing_edge(b, cycle[len - 1], cycle[len])->src,
                   "the edges form a cycle: %s", text.data ? text.data : "");
    og_diags_hint(b->diags,
                  "decode and denoise loops are inside a stage; between stages only "
                  "another phase may go back");
    og_str_free(&text);
}

static void keep_order(og__build *b, const links *l, bool sorted) {
    int *order = og__plan_new(b, (size_t)b->n_stages, sizeof *order);
    int n = 0;
    for (int i = 0; order && i < b->spec->n_stages; i++) {
        int p = b->bs[sorted ? l->order[i] : i].plan;
        if (p >= 0) {
            order[n++] = p;
        }
    }
    b->plan->order = order;
    b->plan->n_order = n;
}

static void order_stages(og__build *b) {
    int n = b->spec->n_stages, ends = 0;
    for (int i = 0; i < b->spec->n_edges; i++) {
        ends += b->spec->edges[i].n_from;
    }
    links l = {og__plan_new(b, (size_t)ends, sizeof(int)),
               og__plan_new(b, (size_t)ends, sizeof(int)),
               og__plan_new(b, (size_t)n, sizeof(int)),
               og__plan_new(b, (size_t)n + 1, sizeof(int)), 0};
    if (b->oom) {
        return;
    }
    int phases = b->spec->n_phases ? b->spec->n_phases : 1;
    int len = 0;
    for (int ph = 0; ph < phases && len == 0; ph++) {
        add_links(b, &l, b->spec->n_phases ? ph : -1);
        len = og__plan_topo(n, l.m, l.from, l.to, l.order, l.cycle);
    }
    if (len > 0) {
        report_cycle(b, l.cycle, len);
    }
    if (len == 0 && phases > 1) { /* over all phases there may be circles */
        add_links(b, &l, -1);
        len = og__plan_topo(n, l.m, l.from, l.to, l.order, l.cycle);
    }
    b->oom |= len < 0;
    keep_order(b, &l, len == 0);
}

int og__pass_wire(og__build *b) {
    check_ports(b);
    for (int i = 0; i < b->n_stages && !b->oom; i++) {
        make_ports(b, i);
    }
    for (int i = 0; i < b->spec->n_edges && !b->oom; i++) {
        if (!b->be[i].dropped) {
            make_edge(b, i);
        }
    }
    for (int i = 0; i < b->n_edges && !b->oom; i++) {
        connect(b, i);
    }
    if (!b->oom) {
        make_responses(b);
        order_stages(b);
    }
    if (b->oom) {
        return OG_ENOMEM;
    }
    check_fed(b);
    for (int i = 0; i < b->spec->n_edges; i++) {
        check_question_marks(b, &b->spec->edges[i]);
        if (!b->be[i].dropped) {
            check_plain(b, &b->spec->edges[i]);
        }
    }
    return og_diags_oom(b->diags) ? OG_ENOMEM : 0;
}
