/* What a new plan changes of the one that runs, and what each change needs: nothing but the
 * new plan (live), new replicas (rolling), or a restart (refuse). The kinds come from the
 * key table of the overlay (graph/spec/keys_overlay.c, column `reload`).
 *
 *     og_plan_changes c;
 *     if (og_plan_diff(old, new, NULL, &c, &err) == 0) {
 *         og_plan_changes_print(&c, &text);
 *         if (c.kind == OG_CHANGE_REFUSE) ...
 *         og_plan_changes_free(&c);
 *     }
 *
 * Changes own their memory: both plans may be gone. Stateless; any thread may call.
 */
#ifndef OG_COMPILE_DIFF_H
#define OG_COMPILE_DIFF_H

#include "graph/compile/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum og_change_kind {
    OG_CHANGE_LIVE,    /* requests that come later have it */
    OG_CHANGE_ROLLING, /* new replicas are started, old ones drained */
    OG_CHANGE_REFUSE   /* needs a restart */
} og_change_kind;

typedef struct og_plan_change {
    og_change_kind kind;
    const char *path;           /* "talker.default_sampling_params.temperature" */
    const char *before, *after; /* JSON; NULL: not set */
    og_src src; /* where the new value stands; of a value that is gone: where it stood */
    const char *why; /* a sentence where the kind needs one, "" else */
} og_plan_change;

typedef struct og_plan_changes {
    const og_plan_change *list;
    int n;
    og_change_kind kind; /* the gravest; LIVE when there are none */
    og_arena *arena;
} og_plan_changes;

/* loaded[stage]: sequences that the replicas of that stage were loaded for; NULL: the old
 * plan's max_num_seqs. Another pipeline or checkpoint is one change, of kind REFUSE. On
 * failure (OG_ENOMEM) there is nothing to free. */
OG_MUST_CHECK int og_plan_diff(const og_plan *old, const og_plan *now, const int *loaded,
                               og_plan_changes *out, og_err *err);
void og_plan_changes_free(og_plan_changes *c); /* zeroes it */

const char *og_change_name(og_change_kind kind); /* "live", "rolling", "refuse" */
/* One line each:
 *     rolling  talker.num_replicas: 1 -> 3  (deploy/tts.yaml:7:19)
 * and what there is to say of it. */
void og_plan_changes_print(const og_plan_changes *c, og_str *out);
/* [{path, old, new, source, class, why}]; a new reference, NULL when out of memory. */
json_t *og_plan_changes_json(const og_plan_changes *c);

/* Whether a replica that was loaded for one stage can serve as one of the other: all that
 * a node is made from is the same, and no more sequences are wanted than it was loaded for. */
bool og_plan_stage_serves(const og_plan_stage *loaded, const og_plan_stage *wanted);

#ifdef __cplusplus
}
#endif
#endif
