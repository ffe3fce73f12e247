/* Port buffers. Address space for the most a job can give is reserved at admission, so a
 * commit never waits for a consumer inside the graph; only unread output of a response port
 * is bounded, and its pages go back to the system as the client reads. */
#include <sys/mman.h>

#include "graph/run/run.h"

int og__out_map(og__out *o, og_err *err) {
    if (o->cap < 0 || (o->item_bytes && (size_t)o->cap > SIZE_MAX / 2 / o->item_bytes))
        return og_err_set(err, OG_ELIMIT, "output of %lld items of %zu bytes is too large",
                          (long long)o->cap, o->item_bytes);
    o->map_bytes = (size_t)o->cap * o->item_bytes;
    if (o->map_bytes == 0) return 0;
    void *p = mmap(NULL, o->map_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        size_t wanted = o->map_bytes;
        o->map_bytes = 0;
        return og_err_set(err, OG_ENOMEM, "no address space for %zu bytes of output", wanted);
    }
    o->buf = p;
    atomic_fetch_add(&o->job->rq->e->buffer_bytes, o->map_bytes);
    return 0;
}

void og__out_unmap(og__out *o) {
    if (!o->map_bytes) return;
    munmap(o->buf, o->map_bytes);
    atomic_fetch_sub(&o->job->rq->e->buffer_bytes, o->map_bytes);
    o->buf = NULL;
    o->map_bytes = 0;
}

og_tensor og__out_view(const og__out *o, int64_t from, int64_t n) {
    char *at = o->buf + (size_t)from * o->item_bytes;
    if (o->width == 0) return og_tensor_1d(o->dtype, n, at);
    return og_tensor_2d(o->dtype, n, o->width, at);
}

void og__out_consume(og__out *o, int64_t n) {
    atomic_store(&o->consumed, n);
    if (!o->keep) {
        size_t page = 4096, upto = (size_t)n * o->item_bytes / page * page;
        if (upto > o->freed) {
            madvise(o->buf + o->freed, upto - o->freed, MADV_DONTNEED);
            o->freed = upto;
        }
    }
    if (o->job->ex) og__executor_kick(o->job->ex); /* none made a preset */
}

static int64_t room(const og_out *out) {
    const og__out *o = (const og__out *)out;
    int64_t produced = atomic_load_explicit(&o->produced, memory_order_relaxed);
    int64_t free_items = o->cap - produced;
    if (!o->window) return free_items;
    int64_t unread = produced - atomic_load(&o->consumed);
    /* An empty window takes anything, so that one large emission cannot stall for ever. */
    if (unread == 0) return free_items;
    int64_t credit = o->window > unread ? o->window - unread : 0;
    return credit < free_items ? credit : free_items;
}

static int reserve(og_out *out, int64_t n, og_tensor *view) {
    og__out *o = (og__out *)out;
    if (n > room(out)) return OG_EAGAIN;
    o->reserved = n;
    *view = og__out_view(o, atomic_load_explicit(&o->produced, memory_order_relaxed), n);
    return 0;
}

static void commit(og_out *out, int64_t n, int flags) {
    og__out *o = (og__out *)out;
    og__job *j = o->job;
    if (n > o->reserved) n = o->reserved;
    o->reserved = 0;
    atomic_fetch_add(&o->produced, n);
    bool last = (flags & OG_LAST) != 0 && !atomic_load(&o->last);
    if (last) atomic_store(&o->last, true);
    for (int i = 0; i < o->n_feeders; i++) og__feeder_mark(o->feeders[i]);
    if (o->response) og__request_wake(j->rq);
    if (last && atomic_fetch_sub(&j->live_outs, 1) == 1) og__executor_retire(j->ex, j);
}

static void job_fail(og_job *job, const og_err *err) {
    og__job *j = (og__job *)job;
    og_err e = *err;
    og_err_node(&e, j->node->cfg.stage);
    og__request_fail(j->rq, &e);
}

static void job_stopped(og_job *job, int32_t stop_id) {
    og__job *j = (og__job *)job;
    pthread_mutex_lock(&j->rq->mu);
    j->rq->stopped = stop_id;
    pthread_mutex_unlock(&j->rq->mu);
}

const og_engine_hooks og__engine_hooks = {
    .reserve = reserve,
    .commit = commit,
    .room = room,
    .fail = job_fail,
    .stopped = job_stopped,
};
