#include "kernels/cpu/pool.h"
#include "kernels/base/alloc.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* How long an idle worker and a waiting caller look before they sleep. A futex wake costs
 * over 10 us, a decode step has hundreds of regions a few us apart. */
#define SPIN_NS 20000
/* Rounds of spinning in vain after which a worker sleeps at once until it finds work. */
#define MAX_MISSES 3
#define JOBS 4

typedef struct job {
    og__task_fn *fn;
    void *arg;
} job;

/* ticket is {epoch:24 | tasks:20 | next:20}: one fetch_add takes a task and tells which
 * region it is of, so a late worker can neither miss the end of a region nor touch the job
 * of another. A job slot is rewritten only JOBS regions later, and a region whose task was
 * taken cannot end before that task is done. */
static struct pool {
    pthread_mutex_t users; /* acquire and release */
    pthread_mutex_t turn;  /* one region at a time */
    int n_users, threads;
    pthread_t *ids;
    atomic_int active, stop;
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) atomic_uint wake; /* futex: changes with each region */
    atomic_int sleepers;
    _Alignas(64) _Atomic uint32_t done; /* futex of the caller */
    atomic_int waiting;
    uint32_t epoch;
    job jobs[JOBS];
} pool = {.users = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_MUTEX_INITIALIZER};

#define FIELD ((uint64_t)0xfffff)

static uint64_t ticket_of(uint32_t epoch, int64_t n) {
    return (uint64_t)(epoch & 0xffffff) << 40 | (uint64_t)n << 20;
}

static void futex_wait(void *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(void *word, int n) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

static void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Look at *word until it differs from value or the time is up. Returns whether it did. */
static int spin_until_changed(const atomic_uint *word, uint32_t value) {
    int64_t end = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < 64; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) return 1;
            pause_cpu();
        }
    } while (now_ns() < end);
    return 0;
}

/* Take tasks of the current region until none is left. Returns how many were done. */
static int work(int worker) {
    int did = 0;
    for (;;) {
        uint64_t t = atomic_load(&pool.ticket);
        if ((t & FIELD) >= (t >> 20 & FIELD)) return did;
        t = atomic_fetch_add(&pool.ticket, 1);
        int64_t n = (int64_t)(t >> 20 & FIELD), task = (int64_t)(t & FIELD);
        if (task >= n) return did;
        job j = pool.jobs[(t >> 40) % JOBS];
        j.fn(j.arg, task, worker);
        did++;
        if (atomic_fetch_add(&pool.done, 1) + 1 == (uint32_t)n &&
            atomic_load(&pool.waiting))
            futex_wake(&pool.done, 1);
    }
}

static void sleep_until_changed(uint32_t seen) {
    atomic_fetch_add(&pool.sleepers, 1);
    if (atomic_load(&pool.wake) == seen) futex_wait(&pool.wake, seen);
    atomic_fetch_sub(&pool.sleepers, 1);
}

static void *worker_main(void *arg) {
    int id = (int)(intptr_t)arg, misses = 0;
    uint32_t seen = 0;
    while (!atomic_load(&pool.stop)) {
        uint32_t now = atomic_load(&pool.wake);
        if (now != seen) {
            seen = now;
            if (id < atomic_load(&pool.active) && work(id)) misses = 0;
            continue;
        }
        if (misses < MAX_MISSES && spin_until_changed(&pool.wake, seen)) continue;
        if (misses < MAX_MISSES) misses++;
        sleep_until_changed(seen);
    }
    return NULL;
}

static int core_count(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    return n < 1 ? 1 : n;
}

static void stop_workers(int started) {
    atomic_store(&pool.stop, 1);
    atomic_fetch_add(&pool.wake, 1);
    futex_wake(&pool.wake, OG__POOL_MAX_THREADS);
    for (int i = 1; i < started; i++) pthread_join(pool.ids[i], NULL);
    og_free(pool.ids);
    pool.ids = NULL;
}

static int start_workers(int threads, og_err *err) {
    if (threads <= 0) threads = core_count();
    if (threads > OG__POOL_MAX_THREADS) threads = OG__POOL_MAX_THREADS;
    pool.ids = og_calloc((size_t)threads, sizeof *pool.ids);
    if (!pool.ids) return og_err_set(err, OG_ENOMEM, "no memory for the thread pool");
    pool.threads = threads;
    atomic_store(&pool.stop, 0);
    atomic_store(&pool.active, threads);
    for (int i = 1; i < threads; i++) {
        if (!pthread_create(&pool.ids[i], NULL, worker_main, (void *)(intptr_t)i))
            continue;
        stop_workers(i);
        return og_err_set(err, OG_ENOMEM, "cannot start thread %d of the pool", i + 1);
    }
    return 0;
}

int og__pool_acquire(int threads, og_err *err) {
    pthread_mutex_lock(&pool.users);
    int rc = pool.n_users ? 0 : start_workers(threads, err);
    if (rc == 0) pool.n_users++;
    pthread_mutex_unlock(&pool.users);
    return rc;
}

void og__pool_release(void) {
    pthread_mutex_lock(&pool.users);
    if (--pool.n_users == 0) stop_workers(pool.threads);
    pthread_mutex_unlock(&pool.users);
}

int og__pool_threads(void) {
    return pool.threads;
}

void og__pool_set_active(int n) {
    atomic_store(&pool.active, n > 0 && n < pool.threads ? n : pool.threads);
}

static void wait_done(uint32_t n) {
    int64_t end = now_ns() + SPIN_NS;
    for (;;) {
        uint32_t done = atomic_load(&pool.done);
        if (done == n) return;
        if (now_ns() < end) {
            for (int i = 0; i < 16; i++) pause_cpu();
            continue;
        }
        atomic_store(&pool.waiting, 1);
        if (atomic_load(&pool.done) == done) futex_wait(&pool.done, done);
        atomic_store(&pool.waiting, 0);
    }
}

void og__pool_run(int64_t n, og__task_fn *fn, void *arg) {
    if (n <= 1 || atomic_load_explicit(&pool.active, memory_order_relaxed) <= 1) {
        for (int64_t i = 0; i < n; i++) fn(arg, i, 0);
        return;
    }
    pthread_mutex_lock(&pool.turn);
    uint32_t epoch = ++pool.epoch;
    pool.jobs[epoch % JOBS] = (job){fn, arg};
    atomic_store(&pool.done, 0);
    atomic_store(&pool.ticket, ticket_of(epoch, n));
    atomic_fetch_add(&pool.wake, 1);
    if (atomic_load(&pool.sleepers)) futex_wake(&pool.wake, OG__POOL_MAX_THREADS);
    work(0);
    wait_done((uint32_t)n);
    pthread_mutex_unlock(&pool.turn);
}
