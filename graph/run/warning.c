#include "graph/run/run.h"

const char *og_request_warning(og_request *r, int i) {
    for (int e = 0; r->edges && e < r->plan->n_edges; e++) {
        const og_hook_result *res = &r->edges[e].hook.result;
        for (int k = 0; k < res->n_logs; k++)
            if ((res->warnings >> k & 1) && i-- == 0) return res->logs[k];
    }
    return NULL;
}
