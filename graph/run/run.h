/* Inside of the run room: what its files share.
 *
 *   og_engine    the plan in force, executors, front door, hook pool, counters
 *   og_executor  one thread, one og_exec, the nodes of a group; an inbox
 *   og_request   jobs, outs and feeders of one user's job, one allocation each
 *   og__job      an og_job with its place: which node, which executor
 *   og__out      the buffer behind one output port of one job: linear, mapped once at
 *                admission for the most the job can give, pages given back when read
 *   og__feeder   moves items from outs (or a hook's recipe) to one input port of one job,
 *                pulled by the consumer's executor; a producer only marks it dirty
 *
 * Locks. engine->mu guards the queue, the counters, the plan and the list of executors,
 * request->mu its events, executor->mu its inbox. Where two are held they are taken in the
 * order engine, request, executor; engine->reload_mu, held by a reload from its beginning to
 * its end, comes before them.
 * Feeders and nodes belong to their executor's thread alone.
 */
#ifndef OG_RUN_INTERNAL_H
#define OG_RUN_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "graph/hook/hook.h"
#include "graph/run/reload.h"
#include "graph/run/voice.h"
#include "nodes/media/audio.h"
#include "nodes/registry.h"

typedef struct og_executor og_executor;
typedef struct og__job og__job;
typedef struct og__out og__out;
typedef struct og__feeder og__feeder;

#define OG_MAX_FANOUT 8
#define OG_MAX_LANES 64
#define OG__GROUP_NAME 64

/* ---- outs (out.c) --------------------------------------------------------------- */

struct og__out {
    og_out base; /* first: nodes see this */
    og__job *job;
    int port;
    char *buf; /* mapped, cap * item_bytes */
    size_t map_bytes, item_bytes, freed; /* freed: bytes given back to the system */
    og_dtype dtype;
    int64_t width; /* 0: items are scalars */
    int64_t cap, reserved;
    int64_t window;           /* most unread items, 0: no limit (inner edges, taps) */
    _Atomic int64_t produced; /* published by commit */
    _Atomic int64_t consumed; /* by the client, response ports only */
    atomic_bool last;
    bool response, keep; /* keep: tapped, pages stay */
    og__feeder *feeders[OG_MAX_FANOUT];
    int n_feeders;
};

extern const og_engine_hooks og__engine_hooks;
OG_MUST_CHECK int og__out_map(og__out *o, og_err *err);
void og__out_unmap(og__out *o);
og_tensor og__out_view(const og__out *o, int64_t from, int64_t n);
/* The client has read up to item n. */
void og__out_consume(og__out *o, int64_t n);

/* ---- feeders (feeder.c) ---------------------------------------------------------- */

typedef enum og__part_kind { OG_PART_OUT, OG_PART_HOST, OG_PART_ROWS } og__part_kind;
typedef struct og__part {
    og__part_kind kind;
    og__out *out;      /* OUT: items [from, to) of it, to < 0: to its end */
    int64_t from, to;
    void *host;        /* HOST: n scalars of dtype, owned: ids of a hook, a clip's samples */
    og_dtype dtype;
    int64_t n;
    og_recipe *rows, *fill; /* ROWS */
    og__out *sources[OG_MAX_PORTS]; /* ROWS: what the recipe's source numbers are */
    int n_sources;
    bool mute;
    int32_t min_tokens, max_tokens, drop;
} og__part;

struct og__feeder {
    og__job *job; /* consumer */
    int port;
    og__part *parts;
    int n_parts, cap_parts;
    atomic_bool ready; /* the parts are complete: set once, by whoever made them */
    const int *chunks; /* schedule; the last repeats */
    int n_chunks;      /* 0: one chunk */
    int part, step;    /* where it stands: part, and chunk of the schedule */
    int64_t cursor;    /* item within the part */
    int64_t src_cursor[OG_MAX_PORTS]; /* ROWS: items fed of each source */
    bool rows_fed, closed;
    atomic_bool dirty;
    og__feeder *next_dirty;
};

og__part *og__feeder_add(og__feeder *f, og__part_kind kind);
/* Feed what can be fed; on the consumer's executor. */
void og__feeder_pull(og__feeder *f);
/* Something may be there for it: any thread. */
void og__feeder_mark(og__feeder *f);
void og__feeder_clear(og__feeder *f); /* free its parts */

/* ---- jobs and requests (request.c) ------------------------------------------------- */

struct og__job {
    og_job base; /* first: nodes see this */
    og_request *rq;
    int stage; /* index in the plan */
    int lane;  /* number, 0 where there are none */
    int replica;
    og_executor *ex; /* engine->mu, or the front door; counted in its users */
    og_node *node; /* while admitted */
    og__out outs[OG_MAX_PORTS]; /* by port; live where base.out[port] is set */
    og__feeder feeders[OG_MAX_PORTS];
    bool fed[OG_MAX_PORTS];
    atomic_int live_outs;
    bool admitted;               /* executor thread */
    bool retired;                /* executor thread */
    int node_index;              /* of the executor's nodes */
    atomic_bool retire_posted;
    unsigned turn; /* of the front door, when it was posted */
    int admit_rc;  /* OG_EAGAIN: not refused for itself, ask again */
    og_err admit_err;
    int64_t cost;
    og__job *next_admit, *next_retire;
};

typedef struct og__sink { /* a response port of the request */
    int edge, response;
    og__out *lanes[OG_MAX_LANES]; /* in the order they are answered */
    int n_lanes, lane;            /* lane: the one being read */
    int64_t cursor;               /* item of that lane */
    int64_t gap;                  /* samples between lanes */
    bool gap_due, first_sent, done;
} og__sink;

typedef struct og__edge_state { /* a hook edge of the request */
    bool runs, done;             /* its hook was started; it has answered */
    og_hook_job hook;
    og_hook_source sources[OG_MAX_PORTS];
} og__edge_state;

/* A whole output that is there from the start: its stage is not run for this request. */
typedef struct og__preset {
    int stage, port;
    int64_t n; /* items */
    size_t bytes;
    void *data; /* owned */
} og__preset;

struct og_request {
    og_engine *e;
    const og_plan *plan; /* it runs by this one, whatever is loaded later */
    int generation;
    uint64_t id, seed;
    json_t *fields;
    json_t *hook_fields; /* the same with media as their facts */
    og_audio *clips;     /* by field of the plan: decoded audio, x NULL where none */
    og_hook_request hook_req;
    atomic_int refs;
    atomic_bool fail_seen; /* by og__engine_fail_bound */
    unsigned char *stage_on, *edge_on; /* what of the plan it uses */
    og__edge_state *edges; /* by edge of the plan */
    atomic_int hooks_left;
    og__job **jobs;
    og__preset presets[OG_VOICE_MAX_PORTS];
    int n_presets;
    int n_jobs, wave_from; /* jobs of the wave that is admitted next: [wave_from, n_jobs) */
    int n_preset_jobs;     /* the first of them, which no executor has */
    bool built;            /* that wave has its jobs; the front door's */
    bool alone;            /* no other had jobs when it was asked last; likewise */
    bool final;            /* no wave follows: the front door's, then everybody's */
    og__sink *sinks;
    int n_sinks;
    og_request_tap *taps;
    int n_taps;
    bool taps_only; /* nothing is answered */
    int max_tokens; /* of every decoder, 0: as the plan says */
    og_request *next; /* queue; engine->mu, as what follows */
    bool asked;       /* its admission is not settled */
    bool refused;     /* it did not fit when it was asked last */
    bool dropped;     /* it has failed */
    unsigned freed_seen, own_freed; /* engine's freed when it was asked; of that its own */
    og_request *all_prev, *all_next; /* requests past the hooks; engine->mu */
    bool listed;

    pthread_mutex_t mu; /* what follows */
    pthread_cond_t cond;
    bool failed, admitted, done_sent; /* admitted: the last wave was */
    bool wave_open;                   /* a wave is admitted and not all retired */
    bool rolling;                     /* a wave was refused and not all have let go */
    int answers;                      /* of executors, that an admission still lacks */
    og_err err;
    int jobs_left; /* admitted and not yet retired */
    int32_t stopped;
    double t_submit, t_admit, t_first, t_done;
    void (*notify)(void *arg); /* NULL once the owner frees it */
    void *notify_arg;
    int held_sink;       /* sink whose items the client holds, -1 */
    int64_t held_to;
};

void og__request_ref(og_request *r);
void og__request_unref(og_request *r);
/* First error wins; every job is retired. */
void og__request_fail(og_request *r, const og_err *err);
void og__request_wake(og_request *r);
/* Whoever waits for events looks again. Under request->mu. */
void og__request_signal(og_request *r);
double og__now(void);

/* A request is admitted in waves: stages whose whole outputs a hook reads come first and
 * have let go of their slots before the hook runs; the last wave is the graph that streams.
 *
 * Start every hook whose sources are there; the last one to answer hands the request to
 * the front door (waves.c). Any thread. */
void og__request_advance(og_request *r);
/* Which stages the next wave has; r->final is set when none is left (waves.c). */
void og__request_wave(og_request *r, unsigned char *stages);
/* Jobs of the stages with presets, ended before anything begins (build.c). */
OG_MUST_CHECK int og__request_preset(og_request *r, og_err *err);
/* Outputs that the voice at path holds, as presets, and its facts (voice.c). */
OG_MUST_CHECK int og__voice_read(og_request *r, int field, const char *path, json_t **facts,
                                 og_err *err);
/* Jobs, outs, feeders and sinks of the next wave (build.c). */
OG_MUST_CHECK int og__request_build(og_request *r, og_err *err);

/* ---- executors (executor.c) --------------------------------------------------------- */

struct og_executor {
    og_engine *e;
    const og_plan *plan; /* that it was loaded by, which need not be the one in force */
    og_place place;
    char name[OG__GROUP_NAME]; /* of its group; engine->mu, as what follows */
    int *replicas;       /* number of each node among those of its stage */
    og_executor *next;   /* of those that leave */
    int reload;          /* that made it leave */
    pthread_t thread;
    bool started;
    og_device *dev;
    og_exec *exec;
    og_node **nodes; /* sinks first */
    int *stages;     /* plan stage of each node */
    int n_nodes;
    int *in;            /* jobs that each node holds; its own thread */
    atomic_int *limits; /* most of them, where fewer than it was loaded for; 0: none */
    og_node_stats *stats; /* guarded by mu */
    og_step_totals *totals; /* likewise, of each node */
    og_executor_memory memory; /* likewise */
    pthread_mutex_t mu;   /* inbox */
    pthread_cond_t cond;
    og__job *admits, *admits_tail, *retires, *retires_tail;
    og__feeder *dirty, *dirty_tail;
    bool kicked, stop, ready;
    int create_rc;
    og_err create_err;
    int held;                /* admitted jobs that are not retired; its own thread */
    unsigned refused_turn;   /* of the last admission that did not fit; its own thread */
    atomic_long outstanding; /* cost of the jobs bound here */
    atomic_int users;        /* jobs that name it, until their requests are freed */
    atomic_bool leaving;     /* nobody is routed here; its nodes go with their last job */
    atomic_bool unloaded;    /* they are gone */
    atomic_bool lost; /* a step failed as a whole */
    atomic_bool dead; /* and its nodes could not be made anew */
    atomic_bool device_lost; /* nor will they ever be in this process */
    atomic_int fault; /* injected: node index + 1 that fails in its next step */
};

/* Load the nodes of a group of the plan and start its thread (replica.c). */
OG_MUST_CHECK int og__executor_create(og_engine *e, const og_plan *plan, int group,
                                      og_executor **out, og_err *err);
void og__executor_destroy(og_executor *ex); /* NULL is fine */
/* It is group `group` of that plan from now on. Under engine->mu, or before it is known. */
void og__executor_assign(og_executor *ex, const og_plan *plan, int group);
/* Whether it can be that group as it stands. Under engine->mu. */
bool og__executor_serves(const og_executor *ex, const og_plan *plan, int group);
/* Bytes of the host that its nodes take, without weights. */
size_t og__executor_host_bytes(const og_executor *ex);

OG_MUST_CHECK int og__executor_start(og_executor *ex, og_err *err);
void og__executor_stop(og_executor *ex);
void og__executor_admit(og_executor *ex, og__job *j);
void og__executor_retire(og_executor *ex, og__job *j); /* once per job; later calls: none */
void og__executor_dirty(og_executor *ex, og__feeder *f);
void og__executor_kick(og_executor *ex);

/* ---- the engine (engine.c, front.c, admit.c) ------------------------------------------ */

/* What reloads leave behind them (reload.c). */
typedef struct og__reloads {
    pthread_mutex_t mu; /* what follows */
    json_t *records;    /* newest first */
    int n;              /* ever */
} og__reloads;

struct og_engine {
    og_engine_opts opts;
    og_hook_pool *hooks;
    pthread_t front;
    bool front_started;
    double load_s;
    atomic_size_t buffer_bytes;
    atomic_ullong next_id;
    atomic_int rebuilt;
    pthread_mutex_t reload_mu;
    og__reloads reloads;
    pthread_t reaper; /* destroys executors that have left */
    bool reaper_started;

    pthread_mutex_t mu; /* what follows */
    pthread_cond_t cond;
    const og_plan *plan; /* of requests that are submitted now */
    int generation;      /* its number, from 1 */
    og_executor **executors; /* that requests are routed to */
    int n_executors;
    og_executor *leaving; /* and those that are drained */
    bool reaper_stop;
    unsigned rounds[OG_PIPELINE_MAX_STAGES]; /* of round-robin routing, by stage */
    og_request *queue, *queue_tail, *all;
    int n_queue, n_requests;
    int n_asked;           /* of the queue */
    bool settling;         /* nobody is asked before all are settled */
    bool full;             /* somebody was refused since the queue was last empty */
    unsigned refused_at;   /* freed when somebody was refused last */
    unsigned turn;         /* the front door's own */
    unsigned freed;        /* grows whenever a slot may have come free */
    int64_t admitted, finished, failed;
    bool stop;
};

/* Start the records and end the draining (reload.c). */
OG_MUST_CHECK int og__reloads_init(og_engine *e, og_err *err);
void og__reloads_clear(og_engine *e);

/* og_engine_reload that also appends the changes, as printed; text may be NULL. */
OG_MUST_CHECK int og__engine_reload(og_engine *e, const og_plan *plan, const char *cause,
                                    og_reload_outcome *outcome, og_str *text, og_err *err);

void *og__front_main(void *engine);
/* Queue a wave of a request; first: before others, since it was admitted already. */
void og__front_push(og_engine *e, og_request *r, bool first);
/* Something came free; own: by a request that was refused, to which it is no news (it would
 * be asked for ever), NULL: not so. */
void og__front_freed(og_engine *e, og_request *own);
/* Under engine->mu: out of the queue, whose reference is then the caller's. */
void og__front_leave(og_engine *e, og_request *r, bool admitted);
/* Under engine->mu: it is not in and will be asked again; busy: once something came free. */
void og__front_refused(og_engine *e, og_request *r, bool busy);
void og__front_back(og_engine *e, og_request *r); /* and it holds nothing any more */

/* Bind the jobs of the wave to replicas and ask these. 0: the answers settle it; OG_EBUSY: no
 * replica is up for the moment; else it failed. The front door's thread. */
OG_MUST_CHECK int og__admit_post(og_engine *e, og_request *r, og_err *err);
/* One executor more has answered. */
void og__admit_answer(og_request *r);
/* The last job of a wave that was refused has let go. */
void og__admit_rolled(og_request *r);
/* A replica is lost: every request that it holds jobs of fails. An admission that is not
 * settled is asked again instead. On the executor's thread. */
void og__engine_fail_bound(og_engine *e, const og_executor *ex, const og_err *err);

#endif
