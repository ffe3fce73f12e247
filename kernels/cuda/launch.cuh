/* How kernels are launched, and what they have in common.
 *
 * A kernel begins with enter(): it lets the next kernel of the stream be scheduled, then
 * waits for the one before. Every thread does so before it reads or writes anything but
 * weights; only then is the order of the stream transitive. In a launch that does not overlap
 * both are no-ops.
 */
#ifndef OG_CUDA_LAUNCH_CUH
#define OG_CUDA_LAUNCH_CUH

#include "kernels/cuda/cuda.h"

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#define WARP 32
#define ALL_LANES 0xffffffffu
#define SHARED_AS_IS (40 << 10) /* dynamic shared memory that needs no asking, with room
                                 * for what is static */

__device__ inline void enter_early() {
    cudaTriggerProgrammaticLaunchCompletion();
}

__device__ inline void enter_wait() {
    cudaGridDependencySynchronize();
}

__device__ inline void enter() {
    enter_early();
    enter_wait();
}

/* A barrier of the cluster's blocks that orders their shared memory, and one at the end, so that
 * nobody leaves while others read his; the latter orders nothing, for all that was read has been
 * used. A block alone needs no fence of the device's memory for them. */
__device__ inline void cluster_barrier(int ranks) {
    if (ranks == 1) {
        __syncthreads();
        return;
    }
    asm volatile("barrier.cluster.arrive.release;\n"
                 "barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ inline void cluster_leave(int ranks) {
    if (ranks == 1) return;
    asm volatile("barrier.cluster.arrive.relaxed;\n"
                 "barrier.cluster.wait;" ::: "memory");
}

/* A launch in clusters of `cluster` blocks along x. */
template <typename... P, typename... A>
static int launch_cluster(og_exec *ex, const char *op, void (*kernel)(P...), dim3 grid,
                          dim3 block, size_t shared, unsigned cluster, A... args) {
    og__cuda_exec *c = og__cuda_exec_of(ex);
    cudaLaunchAttribute attr[2] = {};
    unsigned n = 0;
    if (cluster > 1) {
        attr[n].id = cudaLaunchAttributeClusterDimension;
        attr[n++].val.clusterDim = {cluster, 1, 1};
    }
    if (c->pdl > 0 || (c->pdl < 0 && c->few)) {
        attr[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr[n++].val.programmaticStreamSerializationAllowed = 1;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = c->stream;
    config.attrs = attr;
    config.numAttrs = n;
    cudaError_t e = cudaSetDevice(ex->dev->index);
    if (e == cudaSuccess) e = cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
    return og__cuda_launched(ex, op, e);
}

template <typename... P, typename... A>
static int launch(og_exec *ex, const char *op, void (*kernel)(P...), dim3 grid, dim3 block,
                  size_t shared, A... args) {
    return launch_cluster(ex, op, kernel, grid, block, shared, 1, args...);
}

/* Blocks of `block` threads over n elements. */
static inline dim3 blocks_for(int64_t n, int block) {
    return dim3((unsigned)((n + block - 1) / block));
}

/* ---- single elements of any float dtype, aligned or not --------------------------------- */

__device__ inline unsigned load_u16(const unsigned char *p) {
    return (uintptr_t)p & 1 ? p[0] | (unsigned)p[1] << 8 : *(const unsigned short *)p;
}

__device__ inline unsigned load_u32(const unsigned char *p) {
    if (!((uintptr_t)p & 3)) return *(const unsigned *)p;
    return load_u16(p) | load_u16(p + 2) << 16;
}

__device__ inline float widen_f16(unsigned h) {
    return __half2float(__ushort_as_half((unsigned short)h));
}

__device__ inline float widen_f8(unsigned v, __nv_fp8_interpretation_t kind) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)v, kind)));
}

/* An element's bits, and what they stand for. Apart, so that several can be asked for before
 * the first is waited for. */
__device__ inline unsigned elem_bits(const void *data, int t, int64_t i) {
    const unsigned char *p = (const unsigned char *)data;
    switch (t) {
    case OG_F32: return load_u32(p + i * 4);
    case OG_BF16:
    case OG_F16: return load_u16(p + i * 2);
    case OG_F8_E4M3:
    case OG_F8_E5M2: return p[i];
    default: return 0;
    }
}

__device__ inline float elem_value(unsigned bits, int t) {
    switch (t) {
    case OG_F32: return __uint_as_float(bits);
    case OG_BF16: return __uint_as_float(bits << 16);
    case OG_F16: return widen_f16(bits);
    case OG_F8_E4M3: return widen_f8(bits, __NV_E4M3);
    case OG_F8_E5M2: return widen_f8(bits, __NV_E5M2);
    default: return 0.0f;
    }
}

__device__ inline float elem(const void *data, int t, int64_t i) {
    return elem_value(elem_bits(data, t, i), t);
}

__device__ inline unsigned narrow_bf16(float v) {
    unsigned u = __float_as_uint(v);
    if ((u & 0x7fffffffu) > 0x7f800000u) return u >> 16 | 64;
    return (u + 0x7fffu + (u >> 16 & 1)) >> 16;
}

/* Store into f32, bf16 or f16; p is aligned. */
__device__ inline void elem_set(void *data, int t, int64_t i, float v) {
    if (t == OG_F32) ((float *)data)[i] = v;
    else if (t == OG_BF16) ((unsigned short *)data)[i] = (unsigned short)narrow_bf16(v);
    else if (t == OG_F16) ((__half *)data)[i] = __float2half_rn(v);
}

/* ---- arithmetic that all kernels spell alike ---------------------------------------------- */

__device__ inline float warp_sum(float v) {
#pragma unroll
    for (int d = WARP / 2; d; d >>= 1) v = __fadd_rn(v, __shfl_xor_sync(ALL_LANES, v, d));
    return v;
}

__device__ inline float warp_max(float v) {
#pragma unroll
    for (int d = WARP / 2; d; d >>= 1) v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, d));
    return v;
}

__device__ inline float sigmoid(float v) {
    return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-v)));
}

__device__ inline float activate(float v, int act) {
    switch (act) {
    case OG_ACT_SILU: return __fmul_rn(v, sigmoid(v));
    case OG_ACT_GELU:
        return __fmul_rn(__fmul_rn(0.5f, v),
                         __fadd_rn(1.0f, erff(__fmul_rn(v, 0.70710678118654752f))));
    case OG_ACT_GELU_TANH: {
        float u = fmaf(__fmul_rn(__fmul_rn(v, v), 0.044715f), v, v);
        float t = tanhf(__fmul_rn(0.7978845608028654f, u));
        return __fmul_rn(__fmul_rn(0.5f, v), __fadd_rn(1.0f, t));
    }
    case OG_ACT_RELU: return v > 0.0f ? v : 0.0f;
    case OG_ACT_ELU: return v > 0.0f ? v : expm1f(v);
    case OG_ACT_TANH: return tanhf(v);
    case OG_ACT_SIGMOID: return sigmoid(v);
    case OG_ACT_EXP: return expf(v);
    default: return v;
    }
}

/* 1 / sqrt(mean(x^2) + eps) of one row by one warp: lane l holds elements (i * 32 + l) * 4 + e
 * for e = 0..3, one sum for each e. All lanes return it. */
__device__ inline float rms_scale(const float *x, int k, float eps, int vec) {
    int lane = threadIdx.x % WARP;
    float s[4] = {0, 0, 0, 0};
    for (int i = lane * 4; i < k; i += WARP * 4) {
        if (vec) {
            float4 v = *(const float4 *)(x + i);
            s[0] = fmaf(v.x, v.x, s[0]);
            s[1] = fmaf(v.y, v.y, s[1]);
            s[2] = fmaf(v.z, v.z, s[2]);
            s[3] = fmaf(v.w, v.w, s[3]);
        } else {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float v = i + e < k ? x[i + e] : 0.0f;
                s[e] = fmaf(v, v, s[e]);
            }
        }
    }
    float sum = warp_sum(__fadd_rn(__fadd_rn(s[0], s[1]), __fadd_rn(s[2], s[3])));
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)k), eps)));
}

__device__ inline float rms_apply(float x, float scale, float w) {
    return __fmul_rn(__fmul_rn(x, scale), w);
}

/* Rows of floats that can be read four at a time. */
static inline int is_vec4(const void *p, int64_t ld, int64_t cols) {
    return !((uintptr_t)p % 16) && ld % 4 == 0 && cols % 4 == 0;
}

#endif
