/* The process-wide thread pool of the CPU backend.
 *
 * A region is n independent tasks; the calling thread is worker 0 and takes part. One region
 * runs at a time over all execs; others wait their turn. Workers that sleep or come late are
 * never waited for: only tasks that were taken are. Idle workers spin for some microseconds,
 * then sleep on a futex. Results must not depend on which worker runs a task.
 *
 *     static void add(void *arg, int64_t task, int worker) { ... }
 *     og__pool_run(n_tasks, add, &job);
 */
#ifndef OG_CPU_POOL_H
#define OG_CPU_POOL_H

#include "kernels/base/err.h"

#include <stdint.h>

#define OG__POOL_MAX_THREADS 256
#define OG__POOL_MAX_TASKS (1 << 19)

typedef void og__task_fn(void *arg, int64_t task, int worker);

/* Count one more user; the first one starts the workers (threads 0: all cores). */
OG_MUST_CHECK int og__pool_acquire(int threads, og_err *err);
/* The last one to leave stops them. */
void og__pool_release(void);
/* Threads that may take part, the caller included. */
int og__pool_threads(void);
/* For tests: let only the first n threads take part (0: all). Between regions. */
void og__pool_set_active(int n);

/* Run fn for tasks 0 .. n-1 and return when all are done; n <= OG__POOL_MAX_TASKS. */
void og__pool_run(int64_t n, og__task_fn *fn, void *arg);

#endif
