#include <errno.h>
#include <string.h>
#include <time.h>

#include "graph/run/run.h"

#define RELEASE_PAUSE_NS 50000
#define RELEASE_TRIES 40000 /* 2 s: then the last holder frees it */

void og__request_ref(og_request *r) {
    atomic_fetch_add(&r->refs, 1);
}

static void unlist(og_request *r) {
    og_engine *e = r->e;
    pthread_mutex_lock(&e->mu);
    if (r->listed) {
        if (r->all_prev)
            r->all_prev->all_next = r->all_next;
        else
            e->all = r->all_next;
        if (r->all_next) r->all_next->all_prev = r->all_prev;
    }
    e->n_requests--;
    pthread_cond_broadcast(&e->cond);
    pthread_mutex_unlock(&e->mu);
}

static void job_free(og__job *j) {
    if (j->ex) atomic_fetch_sub(&j->ex->users, 1);
    for (int p = 0; p < OG_MAX_PORTS; p++) {
        og__out_unmap(&j->outs[p]);
        og__feeder_clear(&j->feeders[p]);
    }
    og_free(j);
}

void og__request_unref(og_request *r) {
    if (atomic_fetch_sub(&r->refs, 1) != 1) return;
    for (int i = 0; i < r->n_jobs; i++) job_free(r->jobs[i]);
    for (int i = 0; r->edges && i < r->plan->n_edges; i++)
        og_hook_result_free(&r->edges[i].hook.result);
    if (r->hook_req.state) og_hook_pool_release(r->e->hooks, r->hook_req.state);
    for (int i = 0; i < r->n_taps; i++) {
        og_free((char *)r->taps[i].stage);
        og_free((char *)r->taps[i].port);
    }
    for (int i = 0; i < r->n_presets; i++) og_free(r->presets[i].data);
    for (int i = 0; r->clips && i < r->plan->n_fields; i++) og_audio_clear(&r->clips[i]);
    og_free(r->clips);
    json_decref(r->fields);
    json_decref(r->hook_fields);
    og_free(r->stage_on);
    og_free(r->edge_on);
    og_free(r->jobs);
    og_free(r->edges);
    og_free(r->sinks);
    og_free(r->taps);
    og_plan_unref(r->plan);
    /* Who looks for the requests of a lost replica still finds it, and locks it, until here;
     * and the engine may be destroyed once no request is left. */
    unlist(r);
    pthread_mutex_destroy(&r->mu);
    pthread_cond_destroy(&r->cond);
    og_free(r);
}

void og__request_signal(og_request *r) {
    pthread_cond_broadcast(&r->cond);
    if (r->notify) r->notify(r->notify_arg);
}

void og__request_wake(og_request *r) {
    pthread_mutex_lock(&r->mu);
    if (r->t_first < 0) r->t_first = og__now();
    og__request_signal(r);
    pthread_mutex_unlock(&r->mu);
}

void og__request_fail(og_request *r, const og_err *err) {
    pthread_mutex_lock(&r->mu);
    bool first = !r->failed;
    if (first) {
        r->failed = true;
        r->err = *err;
        r->t_done = og__now();
        /* Jobs that were handed to their executors go now; others are never handed over. */
        if (r->jobs_left > 0)
            for (int i = 0; i < r->n_jobs; i++)
                og__executor_retire(r->jobs[i]->ex, r->jobs[i]);
    }
    og__request_signal(r);
    pthread_mutex_unlock(&r->mu);
    if (!first) return;
    pthread_mutex_lock(&r->e->mu);
    r->e->failed++;
    r->dropped = true;
    pthread_cond_broadcast(&r->e->cond); /* it need not wait at the front door any more */
    pthread_mutex_unlock(&r->e->mu);
}

void og_request_cancel(og_request *r) {
    og_err err = OG_ERR_INIT;
    og_err_set(&err, OG_ECANCELED, "canceled");
    pthread_mutex_lock(&r->mu);
    bool over = r->done_sent;
    pthread_mutex_unlock(&r->mu);
    if (!over) og__request_fail(r, &err);
}

void og_request_free(og_request *r) {
    if (!r) return;
    og_request_cancel(r);
    pthread_mutex_lock(&r->mu);
    r->notify = NULL;
    while (r->jobs_left > 0) pthread_cond_wait(&r->cond, &r->mu);
    pthread_mutex_unlock(&r->mu);
    /* Marks on feeders, a place in the queue, a hook that still runs: whoever holds one lets
     * go in its current turn, and then every counter is back to what it was. */
    for (int i = 0; i < RELEASE_TRIES && atomic_load(&r->refs) > 1; i++) {
        struct timespec t = {0, RELEASE_PAUSE_NS};
        nanosleep(&t, NULL);
    }
    og__request_unref(r);
}

/* What the client held is read now. */
static void give_back(og_request *r) {
    if (r->held_sink < 0) return;
    og__sink *s = &r->sinks[r->held_sink];
    og__out *o = s->lanes[s->lane];
    s->cursor = r->held_to;
    r->held_sink = -1;
    og__out_consume(o, s->cursor);
}

/* Whether the sink has something to say; fills ev. */
static bool sink_poll(og_request *r, int index, og_event *ev) {
    og__sink *s = &r->sinks[index];
    while (!s->done) {
        og__out *o = s->lanes[s->lane];
        bool ended = atomic_load(&o->last); /* before produced: nothing follows last */
        int64_t n = atomic_load(&o->produced) - s->cursor;
        bool first = !s->first_sent;
        if (s->gap_due && s->gap > 0 && (n > 0 || ended)) {
            s->gap_due = false;
            *ev = (og_event){.kind = OG_EVENT_ITEMS, .response = s->response, .gap = s->gap};
            return true;
        }
        if (n > 0) {
            s->first_sent = true;
            *ev = (og_event){.kind = OG_EVENT_ITEMS, .response = s->response, .first = first};
            ev->items = og__out_view(o, s->cursor, n);
            r->held_sink = index;
            r->held_to = s->cursor + n;
            return true;
        }
        if (!ended) return false;
        if (s->lane + 1 < s->n_lanes) {
            s->lane++;
            s->cursor = 0;
            s->gap_due = true;
            continue;
        }
        s->done = true;
        *ev = (og_event){
            .kind = OG_EVENT_ITEMS, .response = s->response, .first = first, .last = 1};
        return true;
    }
    return false;
}

static bool poll_locked(og_request *r, og_event *ev) {
    if (r->failed) {
        *ev = (og_event){.kind = OG_EVENT_ERROR, .err = r->err};
        return true;
    }
    if (!r->admitted) return false; /* the sinks are the front door's until then */
    bool all_done = true;
    for (int i = 0; i < r->n_sinks; i++) {
        if (sink_poll(r, i, ev)) return true;
        all_done &= r->sinks[i].done;
    }
    if (!all_done || r->jobs_left > 0) return false;
    if (!r->done_sent) {
        r->done_sent = true;
        r->t_done = og__now();
    }
    *ev = (og_event){.kind = OG_EVENT_DONE};
    return true;
}

og_event_kind og_request_next(og_request *r, int timeout_ms, og_event *ev) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&r->mu);
    bool finished = r->done_sent;
    give_back(r);
    bool got;
    while (!(got = poll_locked(r, ev))) {
        int rc = timeout_ms < 0 ? pthread_cond_wait(&r->cond, &r->mu)
                                : pthread_cond_timedwait(&r->cond, &r->mu, &until);
        if (rc == ETIMEDOUT) break;
    }
    finished = !finished && r->done_sent;
    pthread_mutex_unlock(&r->mu);
    if (finished) {
        pthread_mutex_lock(&r->e->mu);
        r->e->finished++;
        pthread_mutex_unlock(&r->e->mu);
    }
    if (!got) *ev = (og_event){.kind = OG_EVENT_TIMEOUT};
    return ev->kind;
}

int og_request_tapped(og_request *r, int tap, int lane, og_tensor *items) {
    if (tap < 0 || tap >= r->n_taps) return OG_ENOENT;
    const og_plan *p = r->plan;
    int stage = og_plan_find_stage(p, r->taps[tap].stage), seen = 0;
    int port = og_arch_port(p->stages[stage].arch, r->taps[tap].port);
    for (int i = 0; i < r->n_jobs; i++) {
        og__job *j = r->jobs[i];
        if (j->stage != stage || !j->base.out[port] || seen++ != lane) continue;
        *items = og__out_view(&j->outs[port], 0, atomic_load(&j->outs[port].produced));
        return 0;
    }
    return OG_ENOENT;
}

void og_request_get_stats(og_request *r, og_request_stats *out) {
    pthread_mutex_lock(&r->mu);
    double t0 = r->t_submit;
    *out = (og_request_stats){.id = r->id,
                              .seed = r->seed,
                              .queued_s = r->t_admit < 0 ? -1 : r->t_admit - t0,
                              .first_output_s = r->t_first < 0 ? -1 : r->t_first - t0,
                              .total_s = r->t_done < 0 ? -1 : r->t_done - t0,
                              .generation = r->generation,
                              .lanes = r->admitted ? r->sinks[0].n_lanes : 0};
    pthread_mutex_unlock(&r->mu);
}

void og_request_get_progress(og_request *r, int stage, og_stage_progress *out) {
    *out = (og_stage_progress){.stage = r->plan->stages[stage].name, .done = 1};
    pthread_mutex_lock(&r->mu);
    bool admitted = r->admitted;
    pthread_mutex_unlock(&r->mu);
    for (int i = 0; admitted && i < r->n_jobs; i++) {
        og__job *j = r->jobs[i];
        if (j->stage != stage) continue;
        for (int p = 0; p < OG_MAX_PORTS; p++) {
            if (!j->base.out[p]) continue;
            out->items += atomic_load(&j->outs[p].produced);
            out->done &= atomic_load(&j->outs[p].last);
            break;
        }
    }
}
