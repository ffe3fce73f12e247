/* Hook workers: threads with a VM each.
 *
 * Jobs of one request stay on one worker, because ctx.state lives in its VM: they wait in
 * that worker's queue. All other jobs wait in one queue for whoever is free, so that none
 * stands behind a slow hook.
 */
#include "graph/hook/internal.h"

#include <pthread.h>
#include <string.h>

#define MAX_THREADS 64

typedef struct queue {
    og_hook_job *first, *last;
} queue;

typedef struct worker {
    og_hook_pool *pool;
    pthread_t thread;
    pthread_cond_t wake;
    og_hook_vm *vm;
    queue own;
    og_hook_state *released;
    int idle;
} worker;

struct og_hook_pool {
    pthread_mutex_t lock; /* everything below, and the pool's part of every state */
    queue shared;
    int stopping;
    int n, started;
    worker workers[];
};

static void put(queue *q, og_hook_job *job) {
    job->next = NULL;
    if (q->last)
        q->last->next = job;
    else
        q->first = job;
    q->last = job;
}

static og_hook_job *take(queue *q) {
    og_hook_job *job = q->first;
    if (!job) return NULL;
    q->first = job->next;
    if (!q->first) q->last = NULL;
    job->next = NULL;
    return job;
}

static og_hook_state *state_of(const og_hook_job *job) {
    return job->call.request ? job->call.request->state : NULL;
}

/* The worker keeps st from now on: its jobs leave the shared queue, in their order. */
static void adopt(worker *w, og_hook_state *st) {
    queue rest = {NULL, NULL};
    st->worker = (int)(w - w->pool->workers);
    st->n_shared--; /* the one just taken */
    if (!st->n_shared) return;
    for (og_hook_job *job; (job = take(&w->pool->shared));)
        put(state_of(job) == st ? &w->own : &rest, job);
    w->pool->shared = rest;
    st->n_shared = 0;
}

static void wake_idle(og_hook_pool *pool) {
    for (int i = 0; i < pool->n; i++) {
        if (!pool->workers[i].idle) continue;
        pool->workers[i].idle = 0; /* the next job wakes another one */
        pthread_cond_signal(&pool->workers[i].wake);
        return;
    }
}

static og_hook_job *take_job(worker *w) {
    og_hook_job *job = take(&w->own);
    if (job) {
        if (w->pool->shared.first) wake_idle(w->pool);
        return job;
    }
    job = take(&w->pool->shared);
    if (job && state_of(job)) adopt(w, state_of(job));
    return job;
}

static void drop_released(worker *w, og_hook_state *st) {
    while (st) {
        og_hook_state *next = st->next;
        og_hook_vm_release(w->vm, st);
        st = next;
    }
}

static void run_job(worker *w, og_hook_job *job, int cancel) {
    job->result = (og_hook_result)OG_HOOK_RESULT_INIT;
    og_err_clear(&job->err);
    job->code = cancel ? og_err_set(&job->err, OG_ECANCELED, "the engine is stopping")
                       : og_hook_run(w->vm, &job->call, &job->result, &job->err);
    job->done(job);
}

static void *work(void *arg) {
    worker *w = arg;
    og_hook_pool *pool = w->pool;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        og_hook_state *released = w->released;
        w->released = NULL;
        og_hook_job *job = take_job(w);
        int stopping = pool->stopping;
        if (!job && !released) {
            if (stopping) break;
            w->idle = 1;
            pthread_cond_wait(&w->wake, &pool->lock);
            w->idle = 0;
            continue;
        }
        pthread_mutex_unlock(&pool->lock);
        drop_released(w, released);
        if (job) run_job(w, job, stopping);
        pthread_mutex_lock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static int start_worker(og_hook_pool *pool, worker *w, const og_hook_limits *limits,
                        og_err *err) {
    w->pool = pool;
    int rc = og_hook_vm_create(limits, &w->vm, err);
    if (rc < 0) return rc;
    if (pthread_cond_init(&w->wake, NULL)) {
        og_hook_vm_destroy(w->vm);
        return og_err_set(err, OG_ENOMEM, "no memory for a hook worker");
    }
    if (pthread_create(&w->thread, NULL, work, w)) {
        pthread_cond_destroy(&w->wake);
        og_hook_vm_destroy(w->vm);
        return og_err_set(err, OG_ENOMEM, "cannot start a hook worker");
    }
    pool->started++;
    return 0;
}

int og_hook_pool_create(int n_threads, const og_hook_limits *limits, og_hook_pool **out,
                        og_err *err) {
    *out = NULL;
    if (n_threads < 1 || n_threads > MAX_THREADS)
        return og_err_set(err, OG_EINVAL, "%d hook workers (1 to %d)", n_threads,
                          MAX_THREADS);
    og_hook_pool *pool =
        og_calloc(1, sizeof *pool + (size_t)n_threads * sizeof *pool->workers);
    if (!pool) return og_err_set(err, OG_ENOMEM, "no memory for hook workers");
    if (pthread_mutex_init(&pool->lock, NULL)) {
        og_free(pool);
        return og_err_set(err, OG_ENOMEM, "no memory for hook workers");
    }
    pool->n = n_threads;
    for (int i = 0; i < n_threads; i++) {
        int rc = start_worker(pool, &pool->workers[i], limits, err);
        if (rc < 0) {
            og_hook_pool_destroy(pool);
            return rc;
        }
    }
    *out = pool;
    return 0;
}

void og_hook_submit(og_hook_pool *pool, og_hook_job *job) {
    og_hook_state *st = state_of(job);
    pthread_mutex_lock(&pool->lock);
    if (st && st->worker >= 0) {
        put(&pool->workers[st->worker].own, job);
        pthread_cond_signal(&pool->workers[st->worker].wake);
    } else {
        if (st) st->n_shared++;
        put(&pool->shared, job);
        wake_idle(pool);
    }
    pthread_mutex_unlock(&pool->lock);
}

void og_hook_pool_release(og_hook_pool *pool, og_hook_state *st) {
    if (!st) return;
    pthread_mutex_lock(&pool->lock);
    int k = st->worker;
    if (k >= 0) {
        worker *w = &pool->workers[k];
        st->next = w->released;
        w->released = st;
        pthread_cond_signal(&w->wake);
    }
    pthread_mutex_unlock(&pool->lock);
    if (k < 0) og_free(st);
}

void og_hook_pool_destroy(og_hook_pool *pool) {
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = 1;
    for (int i = 0; i < pool->started; i++) pthread_cond_signal(&pool->workers[i].wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->started; i++) {
        worker *w = &pool->workers[i];
        pthread_join(w->thread, NULL);
        pthread_cond_destroy(&w->wake);
        og_hook_vm_destroy(w->vm);
    }
    pthread_mutex_destroy(&pool->lock);
    og_free(pool);
}
