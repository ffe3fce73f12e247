/* Steps as recorded graphs: what a node launches again and again in the same shape is recorded
 * once and from then on replayed with one launch.
 *
 * A key names all that a step's ops depend on but for the contents of memory: numbers of rows,
 * optional inputs. The first step of a key runs op by op, the second is recorded, the others
 * are replayed. Everything the ops are given must lie at the same addresses in each step of a
 * key: control arrays come through og_exec_stage in the same sizes, scratch starts at the
 * same mark. On a device without graphs, while a tap listens, and when the table of keys is
 * full, the ops simply run. OG_GRAPHS=0 in the environment does the same for all steps.
 *
 *     static int ops(void *arg, og_exec *ex) { ... only ops ... }
 *     rc = og_graphs_run(&n->graphs, ex, (uint64_t)rows << 8 | flags, ops, n);
 */
#ifndef OG_BLOCKS_GRAPHS_H
#define OG_BLOCKS_GRAPHS_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_GRAPHS_MAX 128

typedef struct og_graph_entry {
    uint64_t key;
    size_t mark; /* of the scratch when it was recorded */
    og_graph *graph;
} og_graph_entry;

/* Zeroed but for `off`. */
typedef struct og_graphs {
    int off; /* nothing is recorded */
    int n;
    og_graph_entry list[OG_GRAPHS_MAX];
} og_graphs;

/* Launches ops and nothing else: it may be called to record. */
typedef int og_graph_body(void *arg, og_exec *ex);

void og_graphs_init(og_graphs *g, og_exec *ex);
/* Run body, or replay what it recorded under this key. Its error, or the device's. */
OG_MUST_CHECK int og_graphs_run(og_graphs *g, og_exec *ex, uint64_t key, og_graph_body *body,
                                void *arg);
void og_graphs_free(og_graphs *g, og_exec *ex);

#ifdef __cplusplus
}
#endif
#endif
