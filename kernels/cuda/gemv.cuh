/* The dot family for at most OG__DOT_FEW rows of x: bound by how fast weights arrive.
 *
 * One block for each SM; its warps take items, an item being R rows of weights (gate and up of
 * one output when GLU). R * P loads of 16 bytes a lane are in flight at any time: each piece is
 * asked for again, a group further, as soon as it has been multiplied, across the ends of rows;
 * the first group before x is waited for. Few enough registers for two blocks an SM, so that
 * the next launch can begin. All of x lies in shared memory as f32, in the planes of dot.cuh.
 *
 * Bits: those of dot.cuh. Lane l sums k = (i * 32 + l) * V + e in ascending order, then the
 * tree; the fused norm sums its squares as rms_scale does.
 */
#ifndef OG_CUDA_GEMV_CUH
#define OG_CUDA_GEMV_CUH

#include "kernels/cuda/dot.cuh"

#define GEMV_WARPS 16
#define GEMV_BLOCK (GEMV_WARPS * WARP)
#define GEMV_FLOATS 50000      /* of x and its norm in shared memory */

template <int V> __device__ inline int plane_at(int k, int width) {
    if (V == 4) return k;
    return (k >> 2 & 1) * (width / 2) + (k >> 3) * 4 + (k & 3);
}

__device__ inline uint4 load_once(const unsigned char *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* Row r of all outputs, one after the other: its output and its index there. */
__device__ inline int locate(const og__dot &d, int r, int &j) {
    int o = 0;
    while (o + 1 < d.n_out && r >= d.out[o + 1].tile0) o++;
    j = r - d.out[o].tile0;
    return o;
}

template <typename T, int R, bool GLU>
__device__ inline void item_rows(const og__dot &d, int item, int total,
                                 const unsigned char *(&w)[R]) {
#pragma unroll
    for (int r = 0; r < R; r++) {
        int row = item * R + r, j = item, o = r;
        if (!GLU) o = locate(d, row < total ? row : total - 1, j);
        w[r] = (const unsigned char *)d.out[o].w + j * d.out[o].ldw * T::SIZE;
    }
}

/* Piece p of a group: 16 bytes a lane of each row, from k0 on; past `end` nothing. */
template <typename T, int R>
__device__ inline void load_piece(uint4 (&to)[R], const unsigned char *const (&w)[R], int k0,
                                  int p, int end) {
    int k = k0 + (p * WARP + threadIdx.x % WARP) * T::V;
#pragma unroll
    for (int r = 0; r < R; r++)
        to[r] = k < end ? load_once(w[r] + k * T::SIZE) : make_uint4(0, 0, 0, 0);
}

template <typename T, int MB, int R>
__device__ inline void multiply_piece(float (&acc)[MB][R], const uint4 (&w)[R], const float *xs,
                                      int k0, int p, int end) {
    int k = k0 + (p * WARP + threadIdx.x % WARP) * T::V;
    if (k >= end) return;
    float f[R][T::V];
#pragma unroll
    for (int r = 0; r < R; r++) T::unpack(w[r], f[r]);
#pragma unroll
    for (int m = 0; m < MB; m++)
#pragma unroll
        for (int q = 0; q < T::V; q += 4) {
            float4 v = *(const float4 *)(xs + m * end + plane_at<T::V>(k + q, end));
#pragma unroll
            for (int r = 0; r < R; r++) {
                acc[m][r] = fmaf(f[r][q], v.x, acc[m][r]);
                acc[m][r] = fmaf(f[r][q + 1], v.y, acc[m][r]);
                acc[m][r] = fmaf(f[r][q + 2], v.z, acc[m][r]);
                acc[m][r] = fmaf(f[r][q + 3], v.w, acc[m][r]);
            }
        }
}

/* rms_scale of a staged row. */
template <int V> __device__ inline float staged_scale(const float *row, int k, float eps) {
    float s[4] = {0, 0, 0, 0};
#pragma unroll 4
    for (int i = threadIdx.x % WARP * 4; i < k; i += WARP * 4) {
        float4 v = *(const float4 *)(row + plane_at<V>(i, k));
        s[0] = fmaf(v.x, v.x, s[0]);
        s[1] = fmaf(v.y, v.y, s[1]);
        s[2] = fmaf(v.z, v.z, s[2]);
        s[3] = fmaf(v.w, v.w, s[3]);
    }
    float sum = warp_sum(__fadd_rn(__fadd_rn(s[0], s[1]), __fadd_rn(s[2], s[3])));
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)k), eps)));
}

/* The norm's weights into shared memory, behind x. */
template <int V> __device__ inline void stage_norm(const og__dot &d, float *norm) {
    for (int k0 = threadIdx.x; k0 < d.k; k0 += 4 * GEMV_BLOCK) {
        unsigned bits[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int k = k0 + i * GEMV_BLOCK;
            if (k < d.k) bits[i] = elem_bits(d.norm, d.norm_t, k);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int k = k0 + i * GEMV_BLOCK;
            if (k < d.k) norm[plane_at<V>(k, d.k)] = elem_value(bits[i], d.norm_t);
        }
    }
}

/* x into shared memory; then normed in place. */
template <int V, int MB> __device__ inline void stage_all(const og__dot &d, float *xs) {
    __shared__ dot_row rows[MB];
    __shared__ float scales[MB];
    int warp = threadIdx.x / WARP;
    const float *norm = xs + MB * d.k;
    if (d.cu) {
        if (threadIdx.x < MB) rows[threadIdx.x] = find_row(d, threadIdx.x);
        __syncthreads();
    }
#pragma unroll 2
    for (int i = threadIdx.x * 4; i < MB * d.k; i += GEMV_BLOCK * 4) {
        int m = MB == 1 ? 0 : i / d.k, k = i - m * d.k;
        float4 v = make_float4(0, 0, 0, 0);
        if (m < d.m) v = x_four(d, rows[m], m, k);
        *(float4 *)(xs + m * d.k + plane_at<V>(k, d.k)) = v;
    }
    __syncthreads();
    if (!d.norm) return;
    if (warp < MB) {
        float s = staged_scale<V>(xs + warp * d.k, d.k, d.eps);
        if (threadIdx.x % WARP == 0) scales[warp] = s;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < MB * d.k; i += GEMV_BLOCK) {
        int m = MB == 1 ? 0 : i / d.k;
        if (m < d.m) xs[i] = rms_apply(xs[i], scales[m], norm[i - m * d.k]);
    }
    __syncthreads();
}

template <int MB, int R, bool GLU>
__device__ inline void finish(const og__dot &d, float (&acc)[MB][R], int item, int total) {
    int lane = threadIdx.x % WARP;
    float mine = 0.0f, other = 0.0f;
#pragma unroll
    for (int m = 0; m < MB; m++)
#pragma unroll
        for (int r = 0; r < R; r++) {
            float v = warp_sum(acc[m][r]);
            if (lane == (GLU ? m : m * R + r)) (GLU && r ? other : mine) = v;
        }
    if (GLU) {
        if (lane < MB && lane < d.m)
            d.out[0].y[(int64_t)lane * d.out[0].ldy + item] =
                __fmul_rn(activate(with_bias(d, d.out[0], mine, item), d.act),
                          with_bias(d, d.out[1], other, item));
        return;
    }
    int m = lane / R, row = item * R + lane % R, j;
    if (lane >= MB * R || m >= d.m || row >= total) return;
    int o = locate(d, row, j);
    write_out(d, d.out[o], mine, m, j);
}

template <typename T, int MB, int R, bool GLU>
__global__ void __launch_bounds__(GEMV_BLOCK, MB == 1 ? 2 : 1)
    gemv_kernel(const __grid_constant__ og__dot d, int items, int total) {
    constexpr int P = 8 / R, GROUP = P * WARP * T::V;
    extern __shared__ float4 gemv_shared[];
    float *xs = (float *)gemv_shared;
    int item = threadIdx.x / WARP * gridDim.x + blockIdx.x, step = gridDim.x * GEMV_WARPS;
    const unsigned char *w[R];
    uint4 flight[P][R];
    enter_early();
    if (item < items) {
        item_rows<T, R, GLU>(d, item, total, w);
#pragma unroll
        for (int p = 0; p < P; p++) load_piece<T, R>(flight[p], w, 0, p, d.k);
    }
    if (d.norm) stage_norm<T::V>(d, xs + MB * d.k);
    enter_wait();
    stage_all<T::V, MB>(d, xs);
    for (; item < items; item += step) {
        float acc[MB][R] = {};
        for (int k = 0; k < d.k; k += GROUP) {
            int next = k + GROUP;
            if (next >= d.k && item + step < items) {
                next = 0;
                item_rows<T, R, GLU>(d, item + step, total, w);
            }
#pragma unroll
            for (int p = 0; p < P; p++) {
                multiply_piece<T, MB, R>(acc, flight[p], xs, k, p, d.k);
                load_piece<T, R>(flight[p], w, next, p, d.k);
            }
        }
        finish<MB, R, GLU>(d, acc, item, total);
    }
}

/* ---- launch --------------------------------------------------------------------------------- */

template <typename T, int MB, int R, bool GLU>
static int gemv_go(og_exec *ex, const char *op, og__dot *d) {
    int total = 0, sms = og__cuda_device_of(ex->dev)->sms;
    for (int i = 0; i < (GLU ? 1 : d->n_out); i++) {
        d->out[i].tile0 = total;
        total += d->out[i].n;
    }
    int items = GLU ? total : (total + R - 1) / R;
    size_t shared = sizeof(float) * (size_t)d->k * (MB + (d->norm ? 1 : 0));
    cudaError_t e = cudaSuccess;
    if (shared > SHARED_AS_IS)
        e = cudaFuncSetAttribute(gemv_kernel<T, MB, R, GLU>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (e != cudaSuccess) return og__cuda_fail(ex, op, e);
    return launch(ex, op, gemv_kernel<T, MB, R, GLU>, dim3((unsigned)(items < sms ? items : sms)),
                  dim3(GEMV_BLOCK), shared, *d, items, total);
}

/* Two rows at once where one has too few bytes to wait for. */
template <typename T, int MB> static int gemv_rows(og_exec *ex, const char *op, og__dot *d) {
    if (d->glu) return gemv_go<T, MB, 2, true>(ex, op, d);
    if (d->k * T::SIZE <= 2048) return gemv_go<T, MB, 2, false>(ex, op, d);
    return gemv_go<T, MB, 1, false>(ex, op, d);
}

static inline int gemv_takes(const og__dot *d) {
    int rows = d->m > 2 ? 4 : d->m;
    return d->m <= OG__DOT_FEW && (int64_t)d->k * (rows + (d->norm ? 1 : 0)) <= GEMV_FLOATS;
}

template <typename T> static int gemv_of(og_exec *ex, const char *op, og__dot *d) {
    if (d->m > 2) return gemv_rows<T, 4>(ex, op, d);
    return d->m == 2 ? gemv_rows<T, 2>(ex, op, d) : gemv_rows<T, 1>(ex, op, d);
}

template <typename T> static int dot_of(og_exec *ex, const char *op, og__dot *d) {
    if (!dot_is_aligned<T>(d)) return dot_unaligned<T>(ex, op, d);
    return gemv_takes(d) ? gemv_of<T>(ex, op, d) : dot_aligned<T>(ex, op, d);
}

#endif
