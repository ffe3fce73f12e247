/* Order: producers first, and cycles told vertex by vertex. */
#include "graph/compile/compile.h"

#include <string.h>

/* One depth-first walk without recursion. state: 0 new, 1 on the path, 2 done. */
typedef struct walk {
    int n, m;
    const int *from, *to;
    unsigned char *state;
    int *path, *next, n_path; /* next: where to go on in the edge list */
    int *done, n_done;
} walk;

static int cycle_from(const walk *w, int v, int *cycle) {
    int at = 0;
    while (w->path[at] != v) {
        at++;
    }
    int len = w->n_path - at;
    memcpy(cycle, w->path + at, (size_t)len * sizeof *cycle);
    cycle[len] = v;
    return len;
}

/* Returns the length of a cycle that root leads into, or 0. */
static int visit(walk *w, int root, int *cycle) {
    w->n_path = 0;
    w->path[w->n_path++] = root;
    w->next[root] = 0;
    w->state[root] = 1;
    while (w->n_path) {
        int v = w->path[w->n_path - 1];
        while (w->next[v] < w->m && w->from[w->next[v]] != v) {
            w->next[v]++;
        }
        if (w->next[v] == w->m) {
            w->state[v] = 2;
            w->done[w->n_done++] = v;
            w->n_path--;
            continue;
        }
        int t = w->to[w->next[v]++];
        if (w->state[t] == 1) {
            return cycle_from(w, t, cycle);
        }
        if (w->state[t] == 0) {
            w->state[t] = 1;
            w->next[t] = 0;
            w->path[w->n_path++] = t;
        }
    }
    return 0;
}

/* Kahn's walk by number, so that equal files give equal orders. */
static void by_number(const walk *w, int *order) {
    int n = 0;
    for (int v = 0; v < w->n; v++) {
        w->state[v] = 0;
    }
    while (n < w->n) {
        int pick = -1;
        for (int v = 0; v < w->n && pick < 0; v++) {
            bool ready = !w->state[v];
            for (int i = 0; i < w->m && ready; i++) {
                ready = w->to[i] != v || w->state[w->from[i]];
            }
            pick = ready ? v : -1;
        }
        w->state[pick] = 1;
        order[n++] = pick;
    }
}

int og__plan_topo(int n, int m, const int *from, const int *to, int *order, int *cycle) {
    size_t k = (size_t)n + 1;
    walk w = {.n = n, .m = m, .from = from, .to = to};
    int *mem = og_calloc(3 * k, sizeof *mem);
    w.state = og_calloc(k, 1);
    int len = -1;
    if (mem && w.state) {
        w.path = mem, w.next = mem + k, w.done = mem + 2 * k;
        len = 0;
        for (int v = 0; v < n && len == 0; v++) {
            if (w.state[v] == 0) {
                len = visit(&w, v, cycle);
            }
        }
        if (len == 0) {
            by_number(&w, order);
        }
    }
    og_free(mem);
    og_free(w.state);
    return len;
}
