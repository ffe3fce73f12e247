/* The engine: a plan brought to life, and the requests that travel through it.
 *
 * og_engine loads the plan's checkpoint, starts one executor thread per group of nodes, a
 * few hook workers and one front-door thread that admits requests in order. It owns a
 * reference of the plan; another one may take its place while it serves (reload.h).
 *
 * og_request is one user's job. Its owner pulls events until DONE or ERROR, from one thread
 * at a time; samples are handed over by reference and given back by the next call, which is
 * what tells the engine how fast the client reads. Freeing an unfinished request cancels it
 * in every stage. Everything else may be called from any thread.
 *
 *     og_engine *e; og_request *r; og_event ev;
 *     og_engine_create(plan, NULL, &e, &err);
 *     og_request_desc d = {.fields = json, .seed = 7, .has_seed = 1};
 *     og_engine_submit(e, &d, &r, &err);
 *     while (og_request_next(r, -1, &ev) == OG_EVENT_ITEMS) write(ev.items ...);
 *     og_request_free(r);
 *     og_engine_destroy(e);
 */
#ifndef OG_ENGINE_H
#define OG_ENGINE_H

#include <jansson.h>

#include "graph/compile/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_MAX_QUEUE_DEFAULT 256

typedef struct og_engine og_engine;
typedef struct og_request og_request;

typedef struct og_engine_opts {
    int hook_workers;   /* 0: 2 */
    int max_queue;      /* requests that wait at the front door; 0: OG_MAX_QUEUE_DEFAULT */
    size_t window_bytes; /* unread output per response port before a request is stalled;
                            0: 16 MiB */
    og_tap_fn *tap;     /* developer's tap on every executor's exec, or NULL */
    void *tap_arg;
} og_engine_opts;

/* Load, start and measure. opts may be NULL. On failure nothing is left behind. */
OG_MUST_CHECK int og_engine_create(const og_plan *plan, const og_engine_opts *opts,
                                   og_engine **out, og_err *err);
/* Cancels what still runs and waits for it. All requests must have been freed. NULL is fine. */
void og_engine_destroy(og_engine *e);

typedef struct og_request_tap {
    const char *stage, *port; /* an output port of a stage; it is computed even without a
                                 consumer and can be read when the request is done */
} og_request_tap;

typedef struct og_request_desc {
    const json_t *fields; /* the pipeline's request fields, by name; borrowed */
    int has_seed;         /* 0: a random seed is drawn (og_request_stats tells which) */
    uint64_t seed;
    const og_request_tap *taps;
    int n_taps;
    int taps_only;        /* run what the taps need and no more; nothing is answered */
    int max_tokens;       /* > 0: no decoder makes more than this; it only tightens */
    /* Called when og_request_next may have something new, for owners that wait for many
     * requests at once (timeout_ms 0). From any thread, under locks of the engine: it must
     * only take a note and return. Never after og_request_free has begun to free. */
    void (*notify)(void *arg);
    void *notify_arg;
} og_request_desc;

/* An audio field takes the path of a clip or of a saved voice (voice.h).
 *
 * Check the fields and hand the request to the front door. Returns OG_EREJECT with
 * err->field for a fault in the request, OG_EBUSY when the queue is full. Faults found later
 * (a hook's reject, a request that can never fit) arrive as an ERROR event. */
OG_MUST_CHECK int og_engine_submit(og_engine *e, const og_request_desc *desc,
                                   og_request **out, og_err *err);

typedef enum og_event_kind {
    OG_EVENT_TIMEOUT, /* nothing within the time asked for */
    OG_EVENT_ITEMS,   /* items of a response port */
    OG_EVENT_DONE,
    OG_EVENT_ERROR
} og_event_kind;

typedef struct og_event {
    og_event_kind kind;
    int response;      /* index into the plan's response ports */
    og_tensor items;   /* borrowed until the next call; rank 0 for a gap */
    int64_t gap;       /* audio: so many samples of silence come here (joined lanes) */
    int first, last;   /* of that response port */
    og_err err;        /* ERROR */
} og_event;

/* The next event; timeout_ms < 0 waits for ever. After DONE or ERROR the same comes again. */
og_event_kind og_request_next(og_request *r, int timeout_ms, og_event *ev);
/* Retire it everywhere; an ERROR event with OG_ECANCELED follows. */
void og_request_cancel(og_request *r);
/* Cancel if needed, wait until every stage has let go, free. NULL is fine. */
void og_request_free(og_request *r);

/* What passed a tapped port, lane by lane. OG_ENOENT when that lane does not exist.
 * Borrowed until og_request_free; only after DONE. */
OG_MUST_CHECK int og_request_tapped(og_request *r, int tap, int lane, og_tensor *items);

/* The i-th warning (from 0) that hooks gave at admission (ctx:warn), NULL beyond the last.
 * Borrowed until og_request_free; only after DONE or ERROR. */
const char *og_request_warning(og_request *r, int i);

typedef struct og_stage_progress {
    const char *stage;
    int64_t items; /* of its first live output port, over all lanes */
    int done;
} og_stage_progress;

typedef struct og_request_stats {
    uint64_t id, seed;
    double queued_s, first_output_s, total_s; /* since submit; < 0: not yet */
    int lanes;
    int generation; /* of the plan that it runs by: 1, and one more with every reload */
} og_request_stats;
void og_request_get_stats(og_request *r, og_request_stats *out);
/* Progress of stage i of the plan. */
void og_request_get_progress(og_request *r, int stage, og_stage_progress *out);

typedef struct og_engine_stats {
    int requests, queued;   /* not yet freed; waiting at the front door */
    int64_t admitted, finished, failed;
    size_t buffer_bytes;    /* address space of the requests' port buffers */
    int rebuilt;            /* replicas that were lost and made anew */
    double load_s;          /* what og_engine_create took */
    int generation;         /* of the plan in force */
    int leaving;            /* executors that are drained */
    int lost;               /* executors whose device this process has lost for good: their
                               requests get OG_ELOST, and only a new process helps */
} og_engine_stats;
void og_engine_get_stats(og_engine *e, og_engine_stats *out);
/* Counters of replica r of stage i of the plan, as of the executor's last look. */
OG_MUST_CHECK int og_engine_node_stats(og_engine *e, int stage, int replica,
                                       og_node_stats *out);

/* Steps of a replica that found work to do, since its executor was started. */
typedef struct og_step_totals {
    int64_t steps;
    int64_t jobs, rows, prefill; /* summed over steps; prefill: prompt rows among them */
    double seconds;
} og_step_totals;
/* OG_ENOENT: no such replica. */
OG_MUST_CHECK int og_engine_step_totals(og_engine *e, int stage, int replica,
                                        og_step_totals *out);

/* What an executor takes of its device beside its nodes: the largest step so far, or the one
 * that was measured at load. */
typedef struct og_executor_memory {
    size_t scratch, staging;
    size_t device; /* bytes of the device, 0: not known, or the host's */
} og_executor_memory;
/* Of the group of that number in the plan; OG_ENOENT: no such one. */
OG_MUST_CHECK int og_engine_executor_memory(og_engine *e, int group, og_executor_memory *out);

typedef enum og_replica_state {
    OG_REPLICA_UP,
    OG_REPLICA_REBUILDING, /* lost, and made anew when its last job has let go */
    OG_REPLICA_DOWN,       /* that failed too: it stays down */
    OG_REPLICA_LEAVING
} og_replica_state;
/* DOWN for one that does not exist. */
og_replica_state og_engine_replica_state(og_engine *e, int stage, int replica);

/* For tests and drills: the next step of that replica fails as a lost device would. Its
 * requests get errors, others go on, and the replica is made anew. OG_ENOENT: no such one. */
OG_MUST_CHECK int og_engine_inject_fault(og_engine *e, int stage, int replica);

#ifdef __cplusplus
}
#endif
#endif
