/* Host bytes to the device. Small pieces go through the driver. Large ones are dealt to lanes in
 * turn: a lane is a thread that copies from what may be a mapped file into pinned memory of its
 * own while the device fetches the piece before, so that page faults, the copy and the bus overlap.
 * The lanes' memory is taken with the first large piece. */
#include "kernels/cuda/cuda.h"
#include "kernels/base/alloc.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LARGE ((size_t)2 << 20)
#define PIECE ((size_t)1 << 20)
#define TURNS 2 /* pieces of a lane that are under way */
#define MOST_LANES 8

typedef struct lane {
    cudaStream_t stream;
    cudaEvent_t done[TURNS];
    char *pinned[TURNS];
} lane;

struct og__cuda_loader {
    pthread_mutex_t mu; /* one upload at a time */
    int n, made;        /* lanes; whether they are there */
    lane lanes[MOST_LANES];
    size_t bytes; /* that came so far */
    double seconds;
};

/* One lane's part of an upload. */
typedef struct part {
    pthread_t thread;
    int started, device, first, step;
    lane *lane;
    char *dst;
    const char *src;
    size_t bytes;
    cudaError_t error;
} part;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int og__cuda_loader_open(og_device *dev, og_err *err) {
    og__cuda_loader *l = og_calloc(1, sizeof *l);
    if (!l) return og_err_set(err, OG_ENOMEM, "no memory for a device");
    pthread_mutex_init(&l->mu, NULL);
    long cores = sysconf(_SC_NPROCESSORS_ONLN) / 2;
    l->n = cores < 1 ? 1 : cores > MOST_LANES ? MOST_LANES : (int)cores;
    og__cuda_device_of(dev)->loader = l;
    return 0;
}

static void lane_free(lane *l) {
    for (int i = 0; i < TURNS; i++) {
        if (l->done[i]) cudaEventDestroy(l->done[i]);
        if (l->pinned[i]) cudaFreeHost(l->pinned[i]);
    }
    if (l->stream) cudaStreamDestroy(l->stream);
    memset(l, 0, sizeof *l);
}

void og__cuda_loader_close(og_device *dev) {
    og__cuda_loader *l = og__cuda_device_of(dev)->loader;
    if (!l) return;
    for (int i = 0; i < l->n; i++) lane_free(&l->lanes[i]);
    pthread_mutex_destroy(&l->mu);
    og_free(l);
}

static cudaError_t lane_make(lane *l) {
    cudaError_t e = cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking);
    for (int i = 0; i < TURNS && e == cudaSuccess; i++) {
        e = cudaEventCreateWithFlags(&l->done[i], cudaEventDisableTiming);
        if (e == cudaSuccess)
            e = cudaHostAlloc((void **)&l->pinned[i], PIECE, cudaHostAllocDefault);
    }
    return e;
}

static cudaError_t make(og__cuda_loader *l) {
    cudaError_t e = cudaSuccess;
    for (int i = 0; i < l->n && !l->made && e == cudaSuccess; i++) e = lane_make(&l->lanes[i]);
    l->made = e == cudaSuccess;
    for (int i = 0; i < l->n && !l->made; i++) lane_free(&l->lanes[i]);
    return e;
}

/* Pieces first, first + step, ... */
static void *run_part(void *arg) {
    part *p = arg;
    lane *l = p->lane;
    int turn = 0;
    cudaError_t e = cudaSetDevice(p->device);
    for (size_t at = (size_t)p->first * PIECE; at < p->bytes && e == cudaSuccess;
         at += (size_t)p->step * PIECE, turn = (turn + 1) % TURNS) {
        size_t n = p->bytes - at < PIECE ? p->bytes - at : PIECE;
        if ((e = cudaEventSynchronize(l->done[turn])) != cudaSuccess) break;
        memcpy(l->pinned[turn], p->src + at, n);
        e = cudaMemcpyAsync(p->dst + at, l->pinned[turn], n, cudaMemcpyHostToDevice, l->stream);
        if (e == cudaSuccess) e = cudaEventRecord(l->done[turn], l->stream);
    }
    cudaError_t end = cudaStreamSynchronize(l->stream);
    p->error = e == cudaSuccess ? end : e;
    return NULL;
}

/* The caller is the first lane. A thread that does not start leaves its part to the caller. */
static cudaError_t by_lanes(og_device *dev, og__cuda_loader *l, char *dst, const char *src,
                            size_t bytes) {
    part parts[MOST_LANES];
    cudaError_t e = make(l);
    if (e != cudaSuccess) return e;
    for (int i = 0; i < l->n; i++) {
        parts[i] = (part){.device = dev->index, .first = i, .step = l->n,
                          .lane = &l->lanes[i], .dst = dst, .src = src, .bytes = bytes};
        part *p = &parts[i];
        p->started = i && pthread_create(&p->thread, NULL, run_part, p) == 0;
    }
    for (int i = 0; i < l->n; i++) {
        if (parts[i].started) pthread_join(parts[i].thread, NULL);
        else run_part(&parts[i]);
        if (e == cudaSuccess) e = parts[i].error;
    }
    return e;
}

static cudaError_t by_driver(og_device *dev, void *dst, const void *src, size_t bytes) {
    og__cuda_device *d = og__cuda_device_of(dev);
    cudaError_t e = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, d->io);
    return e == cudaSuccess ? cudaStreamSynchronize(d->io) : e;
}

int og__cuda_upload(og_device *dev, void *dst, const void *src, size_t bytes, og_err *err) {
    og__cuda_loader *l = og__cuda_device_of(dev)->loader;
    pthread_mutex_lock(&l->mu);
    double start = now();
    cudaError_t e = cudaSetDevice(dev->index);
    if (e == cudaSuccess)
        e = bytes >= LARGE ? by_lanes(dev, l, dst, src, bytes) : by_driver(dev, dst, src, bytes);
    l->bytes += e == cudaSuccess ? bytes : 0;
    l->seconds += now() - start;
    pthread_mutex_unlock(&l->mu);
    return e == cudaSuccess ? 0 : og__cuda_report(dev, "upload", e, err);
}

void og__cuda_uploaded(const og_device *dev, size_t *bytes, double *seconds) {
    og__cuda_loader *l = og__cuda_device_of(dev)->loader;
    pthread_mutex_lock(&l->mu);
    *bytes = l->bytes;
    *seconds = l->seconds;
    pthread_mutex_unlock(&l->mu);
}
