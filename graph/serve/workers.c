/* The workers that run the steps of calls, and the reaper that frees engine requests. */
#include "graph/serve/server.h"

enum { IDLE, QUEUED, RUNNING, AGAIN };

struct og__reap {
    og__reap *next;
    og__call *call;
    og_request *request;
};

static void enqueue(og__workers *w, og__call *c) {
    pthread_mutex_lock(&w->mu);
    c->next_run = NULL;
    if (w->last)
        w->last->next_run = c;
    else
        w->first = c;
    w->last = c;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->mu);
}

/* A call is referenced from the moment it leaves IDLE until it is there again. */
void og__call_kick(og__call *c) {
    int was = atomic_load(&c->sched), to;
    do {
        to = was == IDLE ? QUEUED : was == RUNNING ? AGAIN : was;
        if (to == was) return;
    } while (!atomic_compare_exchange_weak(&c->sched, &was, to));
    if (to != QUEUED) return;
    og__call_ref(c);
    enqueue(&c->server->workers, c);
}

static void run(og__workers *w, og__call *c) {
    atomic_store(&c->sched, RUNNING);
    if (c->step) c->step(c);
    int running = RUNNING;
    if (atomic_compare_exchange_strong(&c->sched, &running, IDLE)) {
        og__call_unref(c);
        return;
    }
    atomic_store(&c->sched, QUEUED);
    enqueue(w, c);
}

static void *worker_main(void *arg) {
    og__workers *w = arg;
    pthread_mutex_lock(&w->mu);
    for (;;) {
        while (!w->first && !w->stop) pthread_cond_wait(&w->cond, &w->mu);
        og__call *c = w->first;
        if (!c) break;
        w->first = c->next_run;
        if (!w->first) w->last = NULL;
        pthread_mutex_unlock(&w->mu);
        run(w, c);
        pthread_mutex_lock(&w->mu);
    }
    pthread_mutex_unlock(&w->mu);
    return NULL;
}

static void *reaper_main(void *arg) {
    og__workers *w = arg;
    pthread_mutex_lock(&w->mu);
    for (;;) {
        while (!w->reaps && !w->stop) pthread_cond_wait(&w->reap_cond, &w->mu);
        og__reap *r = w->reaps;
        if (!r) break;
        w->reaps = r->next;
        pthread_mutex_unlock(&w->mu);
        og_request_free(r->request);
        og__call_unref(r->call);
        og_free(r);
        pthread_mutex_lock(&w->mu);
    }
    pthread_mutex_unlock(&w->mu);
    return NULL;
}

void og__request_reap(og__call *c, og_request *request) {
    og__workers *w = &c->server->workers;
    if (!request) return;
    og_request_cancel(request);
    og__reap *r = og_malloc(sizeof *r);
    if (!r) { /* better slow than leaked */
        og_request_free(request);
        return;
    }
    og__call_ref(c);
    *r = (og__reap){.call = c, .request = request};
    pthread_mutex_lock(&w->mu);
    r->next = w->reaps;
    w->reaps = r;
    pthread_cond_signal(&w->reap_cond);
    pthread_mutex_unlock(&w->mu);
}

int og__workers_start(og_server *s, og_err *err) {
    og__workers *w = &s->workers;
    pthread_mutex_init(&w->mu, NULL);
    pthread_cond_init(&w->cond, NULL);
    pthread_cond_init(&w->reap_cond, NULL);
    w->n = s->opts.workers;
    w->threads = og_calloc((size_t)w->n, sizeof *w->threads);
    if (!w->threads) return og_err_set(err, OG_ENOMEM, "no memory for %d workers", w->n);
    w->reaper_started = pthread_create(&w->reaper, NULL, reaper_main, w) == 0;
    while (w->reaper_started && w->started < w->n &&
           pthread_create(&w->threads[w->started], NULL, worker_main, w) == 0)
        w->started++;
    return w->started == w->n ? 0 : og_err_set(err, OG_EIO, "cannot start a worker thread");
}

void og__workers_stop(og_server *s) {
    og__workers *w = &s->workers;
    pthread_mutex_lock(&w->mu);
    w->stop = true;
    pthread_cond_broadcast(&w->cond);
    pthread_cond_broadcast(&w->reap_cond);
    pthread_mutex_unlock(&w->mu);
    for (int i = 0; i < w->started; i++) pthread_join(w->threads[i], NULL);
    if (w->reaper_started) pthread_join(w->reaper, NULL);
    og_free(w->threads);
    pthread_mutex_destroy(&w->mu);
    pthread_cond_destroy(&w->cond);
    pthread_cond_destroy(&w->reap_cond);
}
