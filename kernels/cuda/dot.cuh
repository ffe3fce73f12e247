/* The kernel of dot.h: a warp for R rows of weights and MB rows of x.
 *
 * Bits. Lane l of a warp sums the elements k = (i * 32 + l) * V + e in ascending order, V
 * being the elements of 16 bytes of the weights' dtype; an xor tree over the lanes follows.
 * That depends on K and the dtype alone. MB, R, tiles, alignment and the fused norm choose
 * only what else runs beside it.
 *
 * x is staged in shared memory as f32 (normed when a norm is given), in chunks; weights go
 * straight to registers, 16 bytes a lane, and are asked for in L2 before x is waited for.
 * In shared memory the two halves of a lane's eight elements lie in two planes, so that 16-byte
 * reads of a warp do not meet in a bank.
 */
#ifndef OG_CUDA_DOT_CUH
#define OG_CUDA_DOT_CUH

#include "kernels/cuda/dot.h"
#include "kernels/cuda/launch.cuh"

#define DOT_WARPS 8
#define DOT_BLOCK (DOT_WARPS * WARP)
#define DOT_FLOATS 8192 /* of x in shared memory */
#define LINE 128        /* bytes that one prefetch brings */

struct w_f32 {
    static constexpr int SIZE = 4, V = 4;
    __device__ static void unpack(uint4 u, float (&o)[V]) {
        o[0] = __uint_as_float(u.x);
        o[1] = __uint_as_float(u.y);
        o[2] = __uint_as_float(u.z);
        o[3] = __uint_as_float(u.w);
    }
    __device__ static float one(const unsigned char *p) {
        return __uint_as_float(load_u32(p));
    }
};

struct w_bf16 {
    static constexpr int SIZE = 2, V = 8;
    __device__ static void pair(unsigned u, float &a, float &b) {
        a = __uint_as_float(u << 16);
        b = __uint_as_float(u & 0xffff0000u);
    }
    __device__ static void unpack(uint4 u, float (&o)[V]) {
        pair(u.x, o[0], o[1]);
        pair(u.y, o[2], o[3]);
        pair(u.z, o[4], o[5]);
        pair(u.w, o[6], o[7]);
    }
    __device__ static float one(const unsigned char *p) {
        return __uint_as_float(load_u16(p) << 16);
    }
};

struct w_f16 {
    static constexpr int SIZE = 2, V = 8;
    __device__ static void pair(unsigned u, float &a, float &b) {
        a = widen_f16(u & 0xffffu);
        b = widen_f16(u >> 16);
    }
    __device__ static void unpack(uint4 u, float (&o)[V]) {
        pair(u.x, o[0], o[1]);
        pair(u.y, o[2], o[3]);
        pair(u.z, o[4], o[5]);
        pair(u.w, o[6], o[7]);
    }
    __device__ static float one(const unsigned char *p) {
        return widen_f16(load_u16(p));
    }
};

/* Where row r of x comes from; first < 0: the row does not exist. */
struct dot_row {
    int first; /* conv: first row of its segment */
    const float *state;
};

template <int V, int CHUNK> __device__ inline int staged_at(int k) {
    if (V == 4) return k;
    return (k >> 2 & 1) * (CHUNK / 2) + (k >> 3) * 4 + (k & 3);
}

__device__ inline const float *conv_column(const og__dot &d, const dot_row &row, int r,
                                           int tap) {
    int t = r - row.first - (d.taps - 1 - tap) * d.dilation;
    if (t >= 0) return d.x + (int64_t)(row.first + t) * d.ldx;
    return row.state + (int64_t)((d.taps - 1) * d.dilation + t) * d.channels;
}

__device__ inline float x_one(const og__dot &d, const dot_row &row, int r, int k) {
    if (k >= d.k) return 0.0f;
    if (!d.cu) return d.x[(int64_t)r * d.ldx + k];
    int tap = (int)((unsigned)k / (unsigned)d.channels);
    return conv_column(d, row, r, tap)[k - tap * d.channels];
}

__device__ inline float4 x_four(const og__dot &d, const dot_row &row, int r, int k) {
    if (d.x_vec) {
        if (k >= d.k) return make_float4(0, 0, 0, 0);
        if (!d.cu) return *(const float4 *)(d.x + (int64_t)r * d.ldx + k);
        int tap = (int)((unsigned)k / (unsigned)d.channels);
        return *(const float4 *)(conv_column(d, row, r, tap) + (k - tap * d.channels));
    }
    return make_float4(x_one(d, row, r, k), x_one(d, row, r, k + 1), x_one(d, row, r, k + 2),
                       x_one(d, row, r, k + 3));
}

__device__ inline float normed(const og__dot &d, float v, float scale, int k) {
    return k < d.k ? rms_apply(v, scale, elem(d.norm, d.norm_t, k)) : 0.0f;
}

/* Elements [k0, k0 + n) of MB rows, n a multiple of four. */
template <int V, int MB, int CHUNK>
__device__ inline void stage_x(const og__dot &d, float *xs, const dot_row *rows,
                               const float *scales, int r0, int k0, int n) {
    for (int i = threadIdx.x * 4; i < MB * n; i += DOT_BLOCK * 4) {
        int m = MB == 1 ? 0 : i / n, k = i - m * n, r = r0 + m;
        float4 v = make_float4(0, 0, 0, 0);
        if (r < d.m) {
            v = x_four(d, rows[m], r, k0 + k);
            if (d.norm) {
                v.x = normed(d, v.x, scales[m], k0 + k);
                v.y = normed(d, v.y, scales[m], k0 + k + 1);
                v.z = normed(d, v.z, scales[m], k0 + k + 2);
                v.w = normed(d, v.w, scales[m], k0 + k + 3);
            }
        }
        *(float4 *)(xs + m * CHUNK + staged_at<V, CHUNK>(k)) = v;
    }
}

template <typename T, bool VEC>
__device__ inline void load_w(const unsigned char *w, int k, int end, float (&o)[T::V]) {
    if (VEC) {
        T::unpack(__ldg((const uint4 *)(w + (int64_t)k * T::SIZE)), o);
    } else {
#pragma unroll
        for (int e = 0; e < T::V; e++)
            o[e] = k + e < end ? T::one(w + (int64_t)(k + e) * T::SIZE) : 0.0f;
    }
}

template <typename T, int MB, int R, bool VEC, int CHUNK>
__device__ inline void accumulate(float (&acc)[MB][R], const unsigned char *const (&w)[R],
                                  const float *xs, int k0, int end) {
    constexpr int V = T::V, U = MB == 1 ? 4 : MB == 2 ? 2 : 1;
    int lane = threadIdx.x % WARP;
#pragma unroll U
    for (int k = k0 + lane * V; k < end; k += WARP * V) {
        float f[R][V];
#pragma unroll
        for (int r = 0; r < R; r++) load_w<T, VEC>(w[r], k, end, f[r]);
#pragma unroll
        for (int m = 0; m < MB; m++) {
            float xv[V];
#pragma unroll
            for (int q = 0; q < V; q += 4) {
                float4 v = *(const float4 *)(xs + m * CHUNK + staged_at<V, CHUNK>(k - k0 + q));
                xv[q] = v.x;
                xv[q + 1] = v.y;
                xv[q + 2] = v.z;
                xv[q + 3] = v.w;
            }
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int e = 0; e < V; e++) acc[m][r] = fmaf(f[r][e], xv[e], acc[m][r]);
        }
    }
}

__device__ inline float with_bias(const og__dot &d, const og__dot_out &o, float v, int j) {
    if (!o.bias) return v;
    return __fadd_rn(v, elem(o.bias, o.bias_t, d.bias_mod ? j % d.bias_mod : j));
}

__device__ inline void write_out(const og__dot &d, const og__dot_out &o, float v, int r,
                                 int j) {
    v = activate(with_bias(d, o, v, j), d.act);
    if (d.scale) v = __fmul_rn(v, elem(d.scale, d.scale_t, j));
    if (d.residual) v = __fadd_rn(v, d.residual[(int64_t)r * d.ldr + j]);
    o.y[(int64_t)r * o.ldy + j] = v;
}

/* The segment of row r: the last that begins at or before it. */
__device__ inline dot_row find_row(const og__dot &d, int r) {
    dot_row row = {0, d.state};
    if (r >= d.m || !d.cu) return row;
    int lo = 0, hi = d.n_seg - 1;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (d.cu[mid] <= r) lo = mid;
        else hi = mid - 1;
    }
    row.first = d.cu[lo];
    if (d.state)
        row.state =
            d.state + (int64_t)d.slot[row.first] * (d.taps - 1) * d.dilation * d.channels;
    return row;
}

template <typename T, int MB, int R, bool VEC, bool GLU>
__global__ void __launch_bounds__(DOT_BLOCK)
    dot_kernel(const __grid_constant__ og__dot d) {
    constexpr int CHUNK = DOT_FLOATS / MB, PER = GLU ? R / 2 : R;
    __shared__ float xs[DOT_FLOATS];
    __shared__ dot_row rows[MB];
    __shared__ float scales[MB];
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int tile = blockIdx.x / d.m_tiles, r0 = (blockIdx.x % d.m_tiles) * MB;
    int o = 0;
    if (!GLU)
        while (o + 1 < d.n_out && tile >= d.out[o + 1].tile0) o++;
    const og__dot_out &out = d.out[o];
    int j0 = ((tile - out.tile0) * DOT_WARPS + warp) * PER;
    enter_early();
    const unsigned char *w[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const og__dot_out &from = GLU ? d.out[r & 1] : out;
        int j = j0 + (GLU ? r / 2 : r);
        w[r] = (const unsigned char *)from.w +
               (j < from.n ? j : from.n - 1) * from.ldw * T::SIZE;
        for (int b = lane * LINE; b < d.k * T::SIZE; b += WARP * LINE)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(w[r] + b));
    }
    enter_wait();
    if (threadIdx.x < MB) rows[threadIdx.x] = find_row(d, r0 + threadIdx.x);
    if (d.norm && warp < MB && r0 + warp < d.m) {
        float s = rms_scale(d.x + (int64_t)(r0 + warp) * d.ldx, d.k, d.eps, d.x_vec);
        if (lane == 0) scales[warp] = s;
    }
    float acc[MB][R] = {};
    for (int k0 = 0; k0 < d.k; k0 += CHUNK) {
        int n = d.k - k0 < CHUNK ? d.k - k0 : CHUNK, end = k0 + n;
        __syncthreads();
        stage_x<T::V, MB, CHUNK>(d, xs, rows, scales, r0, k0, (n + T::V - 1) / T::V * T::V);
        __syncthreads();
        accumulate<T, MB, R, VEC, CHUNK>(acc, w, xs, k0, end);
    }
    float mine = 0.0f, other = 0.0f;
#pragma unroll
    for (int m = 0; m < MB; m++)
#pragma unroll
        for (int p = 0; p < PER; p++) {
            float a = warp_sum(acc[m][GLU ? 2 * p : p]), b = 0.0f;
            if (GLU) b = warp_sum(acc[m][2 * p + 1]);
            if (lane == m * PER + p) {
                mine = a;
                other = b;
            }
        }
    int r = r0 + lane / PER, j = j0 + lane % PER;
    if (lane >= MB * PER || r >= d.m || j >= out.n) return;
    if (GLU)
        out.y[(int64_t)r * out.ldy + j] =
            __fmul_rn(activate(with_bias(d, out, mine, j), d.act),
                      with_bias(d, d.out[1], other, j));
    else
        write_out(d, out, mine, r, j);
}

/* ---- launch --------------------------------------------------------------------------------- */

template <typename T, int MB, int R, bool VEC, bool GLU>
static int dot_go(og_exec *ex, const char *op, og__dot *d) {
    constexpr int PER = DOT_WARPS * (GLU ? R / 2 : R);
    int tiles = 0;
    for (int i = 0; i < (GLU ? 1 : d->n_out); i++) {
        d->out[i].tile0 = tiles;
        tiles += (d->out[i].n + PER - 1) / PER;
    }
    d->m_tiles = (d->m + MB - 1) / MB;
    return launch(ex, op, dot_kernel<T, MB, R, VEC, GLU>,
                  dim3((unsigned)tiles * (unsigned)d->m_tiles), dim3(DOT_BLOCK), 0, *d);
}

/* A warp takes more than one row of weights as soon as that leaves enough blocks. */
template <typename T> static int dot_aligned(og_exec *ex, const char *op, og__dot *d) {
    int64_t n = 0;
    for (int i = 0; i < d->n_out; i++) n += d->out[i].n;
    int64_t blocks = n / DOT_WARPS * ((d->m + OG__DOT_ROWS - 1) / OG__DOT_ROWS);
    if (d->glu) return dot_go<T, 8, 4, true, true>(ex, op, d);
    return blocks >= 4 * og__cuda_device_of(ex->dev)->sms
               ? dot_go<T, 8, 4, true, false>(ex, op, d)
               : dot_go<T, 8, 1, true, false>(ex, op, d);
}

/* Weights that 16 bytes cannot be read from: rare, so two blockings are enough. */
template <typename T> static int dot_unaligned(og_exec *ex, const char *op, og__dot *d) {
    if (d->glu)
        return d->m == 1 ? dot_go<T, 1, 2, false, true>(ex, op, d)
                         : dot_go<T, 8, 4, false, true>(ex, op, d);
    return d->m == 1 ? dot_go<T, 1, 1, false, false>(ex, op, d)
                     : dot_go<T, 8, 4, false, false>(ex, op, d);
}

/* 16 bytes at a time can be read from all weights. */
template <typename T> static int dot_is_aligned(const og__dot *d) {
    int vec = d->k % T::V == 0;
    for (int i = 0; i < d->n_out; i++)
        vec &= !((uintptr_t)d->out[i].w % 16) && d->out[i].ldw * T::SIZE % 16 == 0;
    return vec;
}

#endif
