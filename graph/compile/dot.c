/* The plan in the DOT language. Ids and labels are always quoted; inside, `"` and `\` are
 * escaped and control characters become spaces, so any name gives a valid file. */
#include "graph/compile/plan.h"

#include <inttypes.h>
#include <string.h>

/* Append text for the inside of a quoted string. */
static void escaped(og_str *out, const char *text) {
    for (const char *p = text ? text : ""; *p; p++) {
        if (*p == '"' || *p == '\\') {
            og_str_add(out, "\\");
        }
        char c = (unsigned char)*p < 0x20 ? ' ' : *p;
        og_str_addn(out, &c, 1);
    }
}

/* Ids carry their class, so that a stage may be called like a request field. */
static void id(og_str *out, const char *class_name, const char *name) {
    og_str_addf(out, "\"%s:", class_name);
    escaped(out, name);
    og_str_add(out, "\"");
}

static void end_id(og_str *out, const og_plan *p, const og_plan_end *e) {
    if (e->kind == OG_END_STAGE) {
        id(out, "stage", p->stages[e->stage].name);
    } else if (e->kind == OG_END_REQUEST) {
        id(out, "request", p->fields[e->field].name);
    } else {
        id(out, "response", p->responses[e->response].name);
    }
}

/* ---- nodes ----------------------------------------------------------------------- */

static void places(og_str *out, const og_plan *p, const og_plan_stage *s) {
    for (int i = 0; i < s->n_replicas; i++) {
        int g = s->replicas[i].group;
        og_str_add(out, i ? ", " : "");
        escaped(out, g >= 0 ? p->groups[g].name : "?");
    }
}

static const char *fill_of(const og_plan_stage *s) {
    static const char *const fills[] = {"#e8f1fb", "#fbeee0", "#efe6f8", "#e6f4ea",
                                        "#fde8ec"};
    return s->arch ? fills[s->kind] : "#ffffff";
}

static void stage_node(og_str *out, const og_plan *p, const og_plan_stage *s) {
    og_str_add(out, "  ");
    id(out, "stage", s->name);
    og_str_addf(out,
                " [shape=box, style=\"rounded,filled%s\", fillcolor=\"%s\", label=\"",
                s->on == OG_PLAN_PER_REQUEST ? ",dashed" : "", fill_of(s));
    escaped(out, s->name);
    og_str_add(out, "\\n");
    escaped(out, s->kind_name);
    og_str_add(out, " / ");
    escaped(out, s->arch_name);
    og_str_add(out, "\\n");
    places(out, p, s);
    og_str_addf(out, "  x%d replica%s, %d seqs", s->n_replicas,
                s->n_replicas == 1 ? "" : "s", s->max_num_seqs);
    if (s->when) {
        og_str when = OG_STR_INIT;
        og_cond_print(s->when, &when);
        og_str_add(out, "\\nwhen ");
        escaped(out, when.data);
        og_str_free(&when);
    }
    og_str_add(out, "\"];\n");
}

static bool field_used(const og_plan *p, int field) {
    for (int i = 0; i < p->n_edges; i++) {
        for (int k = 0; k < p->edges[i].n_from; k++) {
            if (p->edges[i].from[k].field == field) {
                return true;
            }
        }
    }
    return false;
}

static void outer_nodes(og_str *out, const og_plan *p) {
    for (int i = 0; i < p->n_fields; i++) {
        if (field_used(p, i)) {
            og_str_add(out, "  ");
            id(out, "request", p->fields[i].name);
            og_str_add(out, " [shape=plaintext, label=\"request.");
            escaped(out, p->fields[i].name);
            og_str_add(out, "\"];\n");
        }
    }
    for (int i = 0; i < p->n_responses; i++) {
        og_str_add(out, "  ");
        id(out, "response", p->responses[i].name);
        og_str_add(out, " [shape=plaintext, label=\"response.");
        escaped(out, p->responses[i].name);
        og_str_add(out, "\"];\n");
    }
}

/* ---- edges ----------------------------------------------------------------------- */

static void type_label(og_str *out, const og_type *t) {
    og_str s = OG_STR_INIT;
    if (t->kind != OG_TYPE_KIND_COUNT) {
        og_type_print(t, &s);
    }
    escaped(out, s.data ? s.data : "?");
    og_str_free(&s);
}

static const char *via_name(og_via via) {
    static const char *const names[] = {"",       "resample",       "detokenize",
                                        "resize", "split sentence", "split clause"};
    return names[via];
}

static void chunk_label(og_str *out, const og_plan_edge *e) {
    if (e->whole) {
        og_str_add(out, "\\nwhole");
    } else if (e->n_chunk) {
        og_str_add(out, "\\nchunks ");
        for (int i = 0; i < e->n_chunk; i++) {
            og_str_addf(out, "%s%d", i ? "," : "", e->chunk[i]);
        }
    }
}

static void lanes_label(og_str *out, const og_plan_edge *e) {
    if (e->numbered) {
        og_str_add(out, "\\nlanes numbered");
    }
    for (int i = 0; i < e->n_lanes; i++) {
        og_str_add(out, i ? ", " : "\\nlanes ");
        escaped(out, e->lanes[i]);
    }
    if (e->join) {
        og_str_addf(out, "\\njoin, gap %g s", e->join_gap);
    }
}

static void edge_line(og_str *out, const og_plan *p, const og_plan_edge *e, int from,
                      const og_plan_end *to) {
    const og_plan_end *f = &e->from[from];
    og_str_add(out, "  ");
    end_id(out, p, f);
    og_str_add(out, " -> ");
    end_id(out, p, to);
    og_str_addf(out, " [style=%s, label=\"", f->optional || e->when ? "dashed" : "solid");
    escaped(out, strchr(f->text, '.') ? strchr(f->text, '.') + 1 : f->text);
    og_str_add(out, ": ");
    type_label(out, &f->type);
    if (from == 0) {
        if (e->hook) {
            og_str_add(out, "\\nhook ");
            escaped(out, e->hook);
        }
        if (e->via != OG_VIA_NONE) {
            og_str_addf(out, "\\nvia %s", via_name(e->via));
        }
        chunk_label(out, e);
        lanes_label(out, e);
        if (e->cast) {
            og_str_add(out, "\\n");
            escaped(out, e->cast);
        }
    }
    og_str_add(out, "\"];\n");
}

/* One line a source; a hook without sources of this checkpoint has none to draw. */
static void edge(og_str *out, const og_plan *p, const og_plan_edge *e) {
    for (int i = 0; i < e->n_from; i++) {
        edge_line(out, p, e, i, &e->to[0]);
    }
}

void og_plan_dot(const og_plan *p, og_str *out) {
    og_str_add(out, "digraph \"");
    escaped(out, p->name);
    og_str_add(out, "\" {\n  rankdir=LR;\n  node [fontname=\"Helvetica\", fontsize=11];\n"
                    "  edge [fontname=\"Helvetica\", fontsize=9];\n  label=\"");
    escaped(out, p->name);
    og_str_addf(out, "  fingerprint %s\";\n", p->fingerprint_hex);
    outer_nodes(out, p);
    for (int i = 0; i < p->n_stages; i++) {
        stage_node(out, p, &p->stages[i]);
    }
    for (int i = 0; i < p->n_edges; i++) {
        edge(out, p, &p->edges[i]);
    }
    og_str_add(out, "}\n");
}
