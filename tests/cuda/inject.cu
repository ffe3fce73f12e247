#include "tests/cuda/inject.h"
#include "kernels/cuda/cuda.h"

#include <atomic>

static std::atomic<int> kind(INJECT_NONE), left(0), done(0);

__global__ void nothing_kernel() {}

__global__ void trap_kernel() {
    __trap();
}

void inject_arm(inject_kind k, int launches) {
    done = 0;
    left = launches;
    kind = k;
}

int inject_done(void) {
    return done;
}

static cudaError_t fail(int k, cudaStream_t stream) {
    void *p = nullptr;
    switch (k) {
    case INJECT_LAUNCH: nothing_kernel<<<1, 4096, 0, stream>>>(); return cudaGetLastError();
    case INJECT_MEMORY: return cudaMalloc(&p, (size_t)1 << 50);
    default: trap_kernel<<<1, 1, 0, stream>>>(); return cudaStreamSynchronize(stream);
    }
}

cudaError_t og__cuda_inject(const char *op, cudaStream_t stream) {
    (void)op;
    int k = kind;
    if (k == INJECT_NONE || --left > 0) return cudaSuccess;
    if (kind.exchange(INJECT_NONE) == INJECT_NONE) return cudaSuccess;
    cudaError_t e = fail(k, stream);
    done = 1;
    return e;
}
