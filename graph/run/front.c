/* The front door: the queue, and one thread that asks for the admission of its requests, in
 * order. Many are asked at the same time and stay in the queue until their answers are
 * there; nothing is held by one that waits, so requests cannot starve each other.
 *
 * Order. An executor takes admissions in the order of the queue. Once it has refused one it
 * refuses all that were asked in the same turn, so nobody passes at that executor. The door
 * then asks nobody until all answers are there and what was refused has let go: a new turn
 * begins. Who was refused is asked again when something came free, and alone: nobody enters
 * before it. Only those that were asked together with it, on other executors, may be in
 * sooner, and they are MAX_ASKED at most. */
#include <string.h>

#include "graph/run/run.h"

#define MAX_ASKED 64
#define FULL_ASKED 8

void og__front_push(og_engine *e, og_request *r, bool first) {
    og__request_ref(r);
    pthread_mutex_lock(&e->mu);
    if (!r->listed) {
        r->listed = true;
        r->all_next = e->all;
        if (e->all) e->all->all_prev = r;
        e->all = r;
    }
    if (first) e->n_queue++; /* its place was given back when its first wave left */
    r->refused = false;
    r->next = first ? e->queue : NULL;
    if (first)
        e->queue = r;
    else if (e->queue_tail)
        e->queue_tail->next = r;
    else
        e->queue = r;
    if (!r->next) e->queue_tail = r;
    pthread_cond_broadcast(&e->cond);
    pthread_mutex_unlock(&e->mu);
}

void og__front_freed(og_engine *e, og_request *own) {
    pthread_mutex_lock(&e->mu);
    e->freed++;
    if (own) own->own_freed++;
    pthread_cond_broadcast(&e->cond);
    pthread_mutex_unlock(&e->mu);
}

void og__front_leave(og_engine *e, og_request *r, bool admitted) {
    og_request **at = &e->queue, *prev = NULL;
    while (*at != r) {
        prev = *at;
        at = &(*at)->next;
    }
    *at = r->next;
    if (e->queue_tail == r) e->queue_tail = prev;
    r->asked = false;
    e->n_asked--;
    e->n_queue--;
    e->admitted += admitted;
    if (!e->queue) e->full = false;
    pthread_cond_broadcast(&e->cond);
}

void og__front_refused(og_engine *e, og_request *r, bool busy) {
    r->refused = busy;
    e->settling = true;
    if (!busy) return;
    e->full = true;
    e->refused_at = e->freed;
}

void og__front_back(og_engine *e, og_request *r) {
    pthread_mutex_lock(&e->mu);
    r->asked = false;
    e->n_asked--;
    pthread_cond_broadcast(&e->cond);
    pthread_mutex_unlock(&e->mu);
}

/* Whether somebody else has let go of something since it was asked. */
static bool has_news(const og_engine *e, const og_request *r) {
    return e->freed - r->freed_seen != r->own_freed;
}

/* Whether it is asked together with those before it. In a full house few are, and one more for
 * each job that has left: others would be refused only to be asked again. */
static bool may_follow(const og_engine *e, const og_request *r) {
    unsigned asked = (unsigned)e->n_asked, left = e->freed - e->refused_at;
    if (r->refused || asked >= MAX_ASKED) return false;
    return !e->full || asked < FULL_ASKED || asked - FULL_ASKED < left;
}

/* Who is asked now, NULL: nobody. Those whose end is known are answered at once, wherever
 * they stand. Under engine->mu. */
static og_request *next_to_ask(og_engine *e) {
    for (og_request *r = e->queue; r; r = r->next)
        if (!r->asked && (r->dropped || e->stop)) return r;
    if (e->settling && e->n_asked > 0) return NULL;
    if (e->settling) e->turn++;
    e->settling = false;
    og_request *r = e->queue;
    while (r && r->asked) r = r->next;
    if (!r) return NULL;
    if (e->n_asked > 0) return may_follow(e, r) ? r : NULL;
    if (r->refused && !has_news(e, r)) return NULL;
    e->settling = r->refused; /* alone */
    return r;
}

static void turn_away(og_engine *e, og_request *r, const og_err *err) {
    pthread_mutex_lock(&e->mu);
    og__front_leave(e, r, false);
    pthread_mutex_unlock(&e->mu);
    og__request_fail(r, err);
    og__request_unref(r);
}

static void ask(og_engine *e, og_request *r, bool stop, bool dropped) {
    og_err err = OG_ERR_INIT;
    int rc = stop || dropped ? OG_ECANCELED : 0;
    if (stop) og_err_set(&err, rc, "the engine is stopping");
    if (rc == 0 && !r->built) rc = og__request_build(r, &err);
    r->built = true;
    if (rc == 0) rc = og__admit_post(e, r, &err);
    if (rc == OG_EBUSY) {
        pthread_mutex_lock(&e->mu);
        og__front_refused(e, r, true);
        pthread_mutex_unlock(&e->mu);
        og__front_back(e, r);
    } else if (rc < 0) {
        og_err_set(&err, rc, "%s", og_strerror(rc));
        turn_away(e, r, &err);
    }
}

void *og__front_main(void *engine) {
    og_engine *e = engine;
    for (;;) {
        og_request *r;
        pthread_mutex_lock(&e->mu);
        while (!(r = next_to_ask(e)) && !(e->stop && e->n_requests == 0))
            pthread_cond_wait(&e->cond, &e->mu);
        bool stop = e->stop, dropped = r && r->dropped;
        if (r) {
            r->asked = true;
            r->freed_seen = e->freed;
            r->own_freed = 0;
            e->n_asked++;
        }
        pthread_mutex_unlock(&e->mu);
        if (!r) return NULL;
        ask(e, r, stop, dropped);
    }
}
