/* An exec's stream: stage, fetch, stamps, capture. */
#include "kernels/cuda/cuda.h"
#include "kernels/base/alloc.h"

#include <stdlib.h>
#include <string.h>

#define STAGE_ALIGN 64

struct og_graph {
    cudaGraphExec_t exec;
};

static int is_on(const char *name) {
    const char *v = getenv(name);
    return v && v[0] == '1';
}

static size_t aligned(size_t n) {
    return (n + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
}

static void stage_free(og__cuda_exec *c) {
    if (c->stage) cudaFree(c->stage);
    for (int i = 0; i < OG__CUDA_RING; i++)
        if (c->pinned[i]) cudaFreeHost(c->pinned[i]);
    c->stage = NULL;
    memset(c->pinned, 0, sizeof c->pinned);
    c->stage_cap = 0;
}

static cudaError_t stage_make(og__cuda_exec *c, size_t bytes) {
    cudaError_t e = cudaMalloc((void **)&c->stage, bytes);
    for (int i = 0; i < OG__CUDA_RING && e == cudaSuccess; i++)
        e = cudaHostAlloc((void **)&c->pinned[i], bytes, cudaHostAllocDefault);
    if (e == cudaSuccess) c->stage_cap = bytes;
    return e;
}

static cudaError_t make(og__cuda_exec *c) {
    cudaError_t e = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    for (int i = 0; i < OG__CUDA_RING && e == cudaSuccess; i++)
        e = cudaEventCreateWithFlags(&c->copied[i], cudaEventDisableTiming);
    for (int i = 0; i < OG__CUDA_EVENTS && e == cudaSuccess; i++)
        e = cudaEventCreateWithFlags(&c->events[i], cudaEventDisableTiming);
    if (e == cudaSuccess) e = stage_make(c, OG__CUDA_STAGE);
    if (e == cudaSuccess)
        e = cudaHostAlloc((void **)&c->fault, sizeof *c->fault, cudaHostAllocMapped);
    if (e == cudaSuccess) {
        memset(c->fault, 0, sizeof *c->fault);
        e = cudaHostGetDevicePointer((void **)&c->fault_dev, c->fault, 0);
    }
    return e;
}

static void unmake(og__cuda_exec *c) {
    if (c->stream) cudaStreamSynchronize(c->stream);
    stage_free(c);
    if (c->fault) cudaFreeHost(c->fault);
    for (int i = 0; i < OG__CUDA_RING; i++)
        if (c->copied[i]) cudaEventDestroy(c->copied[i]);
    for (int i = 0; i < OG__CUDA_EVENTS; i++)
        if (c->events[i]) cudaEventDestroy(c->events[i]);
    if (c->stream) cudaStreamDestroy(c->stream);
    og_free(c);
}

int og__cuda_exec_open(og_exec *ex, og_err *err) {
    og__cuda_exec *c = og_calloc(1, sizeof *c);
    if (!c) return og_err_set(err, OG_ENOMEM, "no memory for an exec");
    c->pdl = getenv("OG_PDL") ? is_on("OG_PDL") : -1;
    c->trace = is_on("OG_CUDA_TRACE");
    cudaError_t e = cudaSetDevice(ex->dev->index);
    if (e == cudaSuccess) e = make(c);
    if (e != cudaSuccess) {
        og__cuda_report(ex->dev, "a stream and its stage", e, err);
        unmake(c);
        return OG_EDEVICE;
    }
    ex->impl = c;
    return 0;
}

void og__cuda_exec_close(og_exec *ex) {
    cudaSetDevice(ex->dev->index);
    unmake(og__cuda_exec_of(ex));
    ex->impl = NULL;
}

static int check_fault(og_exec *ex) {
    og__cuda_exec *c = og__cuda_exec_of(ex);
    static const char *const words[] = {"", "gather_rows: an id past the table",
                                        "scatter_rows: an id past the rows",
                                        "row_sum: a table or an index out of range"};
    int op = *(volatile int *)&c->fault->op, value = *(volatile int *)&c->fault->value;
    if (op == OG__FAULT_NONE) return 0;
    memset(c->fault, 0, sizeof *c->fault);
    return og__fail(ex, OG_EINVAL, "%s: %d", words[op & 3], value);
}

int og__cuda_sync(og_exec *ex) {
    cudaError_t e = cudaSetDevice(ex->dev->index);
    if (e == cudaSuccess) e = cudaStreamSynchronize(og__cuda_exec_of(ex)->stream);
    return e == cudaSuccess ? check_fault(ex) : og__cuda_fail(ex, "sync", e);
}

/* ---- stage ---------------------------------------------------------------------------- */

int og__cuda_reserve(og_exec *ex, og_err *err) {
    og__cuda_exec *c = og__cuda_exec_of(ex);
    if (c->stage_peak <= c->stage_cap) return 0;
    cudaError_t e = cudaSetDevice(ex->dev->index);
    if (e == cudaSuccess) e = cudaStreamSynchronize(c->stream);
    stage_free(c);
    if (e == cudaSuccess) e = stage_make(c, c->stage_peak);
    return e == cudaSuccess ? 0 : og__cuda_report(ex->dev, "a stage of host bytes", e, err);
}

int og__cuda_stage_begin(og_exec *ex) {
    og__cuda_exec *c = og__cuda_exec_of(ex);
    if (c->stage_open) return og__fail(ex, OG_EINVAL, "stage: begun twice");
    c->stage_open = 1;
    c->stage_used = 0;
    if (ex->mode != OG_RUN) return 0;
    c->turn = (c->turn + 1) % OG__CUDA_RING;
    cudaError_t e = cudaEventSynchronize(c->copied[c->turn]);
    return e == cudaSuccess ? 0 : og__cuda_fail(ex, "stage", e);
}

int og__cuda_stage(og_exec *ex, const void *host, size_t bytes, const void **dev) {
    og__cuda_exec *c = og__cuda_exec_of(ex);
    if (!c->stage_open) return og__fail(ex, OG_EINVAL, "stage: not begun");
    size_t at = c->stage_used;
    c->stage_used += aligned(bytes);
    if (c->stage_used > c->stage_peak) c->stage_peak = c->stage_used;
    *dev = c->stage + at;
    if (og__measuring(ex)) return 0;
    if (c->stage_used > c->stage_cap)
        return og__fail(ex, OG_ENOMEM, "stage: %zu bytes, the stage has %zu", c->stage_used,
                        c->stage_cap);
    if (ex->mode == OG_RUN && bytes) memcpy(c->pinned[c->turn] + at, host, bytes);
    return 0;
}

int og__cuda_stage_end(og_exec *ex) {
    og__cuda_exec *c = og__cuda_exec_of(ex);
    if (!c->stage_open) return og__fail(ex, OG_EINVAL, "stage: not begun");
    c->stage_open = 0;
    if (ex->mode != OG_RUN || !c->stage_used || c->stage_used > c->stage_cap) return 0;
    cudaError_t e = cudaSetDevice(ex->dev->index);
    if (e == cudaSuccess)
        e = cudaMemcpyAsync(c->stage, c->pinned[c->turn], c->stage_used,
                            cudaMemcpyHostToDevice, c->stream);
    if (e == cudaSuccess) e = cudaEventRecord(c->copied[c->turn], c->stream);
    return og__cuda_launched(ex, "stage", e);
}

int og__cuda_fetch(og_exec *ex, void *host, const void *dev, size_t bytes) {
    og__cuda_exec *c = og__cuda_exec_of(ex);
    cudaError_t e = cudaSetDevice(ex->dev->index);
    if (e == cudaSuccess)
        e = cudaMemcpyAsync(host, dev, bytes, cudaMemcpyDeviceToHost, c->stream);
    return og__cuda_launched(ex, "fetch", e);
}

/* ---- stamps --------------------------------------------------------------------------- */

int og__cuda_stamp(og_exec *ex, uint64_t *stamp) {
    og__cuda_exec *c = og__cuda_exec_of(ex);
    cudaError_t e = cudaSetDevice(ex->dev->index);
    if (e == cudaSuccess) e = cudaEventRecord(c->events[*stamp % OG__CUDA_EVENTS], c->stream);
    return e == cudaSuccess ? 0 : og__cuda_fail(ex, "stamp", e);
}

/* An event that was recorded again stands for a later point, which is safe to wait for. */
int og__cuda_reached(og_exec *ex, uint64_t stamp, int wait) {
    cudaEvent_t event = og__cuda_exec_of(ex)->events[stamp % OG__CUDA_EVENTS];
    cudaError_t e = wait ? cudaEventSynchronize(event) : cudaEventQuery(event);
    if (e == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return 0;
    }
    if (e != cudaSuccess) return og__cuda_fail(ex, "stamp", e);
    int rc = check_fault(ex);
    return rc < 0 ? rc : 1;
}

/* ---- capture -------------------------------------------------------------------------- */

int og__cuda_capture_begin(og_exec *ex) {
    og__cuda_exec *c = og__cuda_exec_of(ex);
    cudaError_t e = cudaSetDevice(ex->dev->index);
    if (e == cudaSuccess)
        e = cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal);
    return e == cudaSuccess ? 0 : og__cuda_fail(ex, "capture", e);
}

int og__cuda_capture_end(og_exec *ex, og_graph **out) {
    og__cuda_exec *c = og__cuda_exec_of(ex);
    cudaGraph_t graph = NULL;
    cudaError_t e = cudaStreamEndCapture(c->stream, &graph);
    og_graph *g = e == cudaSuccess ? og_calloc(1, sizeof *g) : NULL;
    if (e == cudaSuccess && !g) {
        cudaGraphDestroy(graph);
        return og__fail(ex, OG_ENOMEM, "no memory for a graph");
    }
    if (e == cudaSuccess) e = cudaGraphInstantiate(&g->exec, graph, 0);
    if (e == cudaSuccess) e = cudaGraphUpload(g->exec, c->stream);
    if (graph) cudaGraphDestroy(graph);
    if (e == cudaSuccess) {
        *out = g;
        return 0;
    }
    if (g && g->exec) cudaGraphExecDestroy(g->exec);
    og_free(g);
    return og__cuda_fail(ex, "capture", e);
}

int og__cuda_graph_launch(og_exec *ex, og_graph *g) {
    cudaError_t e = cudaSetDevice(ex->dev->index);
    if (e == cudaSuccess) e = cudaGraphLaunch(g->exec, og__cuda_exec_of(ex)->stream);
    return og__cuda_launched(ex, "graph", e);
}

void og__cuda_graph_destroy(og_exec *ex, og_graph *g) {
    cudaSetDevice(ex->dev->index);
    cudaGraphExecDestroy(g->exec);
    og_free(g);
}
