#include "nodes/blocks/graphs.h"
#include "nodes/blocks/place.h"

#include <stdlib.h>
#include <string.h>

void og_graphs_init(og_graphs *g, og_exec *ex) {
    const char *v = getenv("OG_GRAPHS");
    *g = (og_graphs){.off = og_place_is_host(ex) || (v && v[0] == '0')};
}

/* *known is 0 for a key that is seen for the first time. NULL when the table is full. */
static og_graph_entry *entry_of(og_graphs *g, uint64_t key, int *known) {
    *known = 1;
    for (int i = 0; i < g->n; i++)
        if (g->list[i].key == key) return &g->list[i];
    *known = 0;
    if (g->n == OG_GRAPHS_MAX) return NULL;
    g->list[g->n] = (og_graph_entry){.key = key};
    return &g->list[g->n++];
}

static int record(og_exec *ex, og_graph_entry *e, og_graph_body *body, void *arg) {
    size_t mark = og_exec_mark(ex);
    int rc = og_exec_capture_begin(ex);
    if (rc < 0) return rc;
    rc = body(arg, ex);
    int ended = og_exec_capture_end(ex, &e->graph);
    og_exec_release(ex, mark);
    e->mark = mark;
    return rc < 0 ? rc : ended;
}

int og_graphs_run(og_graphs *g, og_exec *ex, uint64_t key, og_graph_body *body, void *arg) {
    if (g->off || og_exec_get_mode(ex) != OG_RUN || og_exec_tapped(ex)) return body(arg, ex);
    int known;
    og_graph_entry *e = entry_of(g, key, &known);
    if (!e || !known || (e->graph && e->mark != og_exec_mark(ex))) return body(arg, ex);
    if (!e->graph && record(ex, e, body, arg) < 0) {
        /* Nothing of the step has run: it runs now, and says itself what is wrong. */
        g->off = 1;
        og_graph_destroy(ex, e->graph);
        e->graph = NULL;
        return body(arg, ex);
    }
    return og_graph_launch(ex, e->graph);
}

void og_graphs_free(og_graphs *g, og_exec *ex) {
    for (int i = 0; i < g->n; i++) og_graph_destroy(ex, g->list[i].graph);
    *g = (og_graphs){.off = 1};
}
