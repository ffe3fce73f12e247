/* The fast mode's product for bf16 weights and more than OG__DOT_FEW rows of x: tensor cores.
 *
 * A block takes RW * 16 rows of weights, all of its rows of x and a slice of K, in tiles of 64.
 * Its eight warps are RW along the weights' rows times KW along the steps of 32 of a tile. A
 * warp's 16 rows of weights are the A operand of mma.m16n8k16, x is B. Within an mma the order
 * over k is free as long as both operands agree, so lane t of a quad holds elements
 * t * 8 .. t * 8 + 7 of 32: weights go from memory to registers in 16 bytes, without shared
 * memory, four steps ahead. x arrives as f32, a tile ahead in registers, and is split once a
 * block into two bf16 terms (hi, then lo = x - hi): what is lost is below 2^-17 of each
 * element, and all sums are f32.
 *
 * A norm before the product: x is multiplied by the norm's weights on its way, its squares are
 * summed beside, and the row's scale multiplies the result.
 *
 * K is cut over the blocks of a cluster, as a function of the weights' shapes alone; the
 * partial sums are added in ascending order, first of the KW warps, then of the ranks through
 * distributed shared memory. So a row's bits do not depend on the other rows, but differ from
 * those of dot.cuh.
 */
#include "kernels/cuda/dot.cuh"

#include <cooperative_groups.h>
#include <limits.h>

namespace cg = cooperative_groups;

#define MMA_K 64  /* elements of a tile */
#define MMA_LD 96 /* bf16 of a staged row: rows side by side lie in different banks */
#define MMA_WARPS 8
#define MMA_BLOCK (MMA_WARPS * WARP)
#define MMA_AHEAD 4 /* steps of weights in flight */
#define MMA_CLUSTER 8
#define MMA_COLUMNS 64 /* rows of x a block takes at most */

struct mma_slice {
    int from, to; /* of K */
    int r0;       /* first row of x */
};

__device__ inline unsigned pack_bf16(float lo, float hi) {
    unsigned u;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(hi), "f"(lo));
    return u;
}

/* Two elements as a pair of bf16 and the pair of what that leaves out. */
__device__ inline void split_pair(float a, float b, unsigned &hi, unsigned &lo) {
    hi = pack_bf16(a, b);
    lo = pack_bf16(__fsub_rn(a, __uint_as_float(hi << 16)),
                   __fsub_rn(b, __uint_as_float(hi & 0xffff0000u)));
}

__device__ inline void mma(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                           unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ inline uint4 load_stream(const uint4 *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* A lane's part of a step of weights: 16 bytes of rows g and g + 8. */
struct w_step {
    uint4 v[2];
};

__device__ inline void load_weights(w_step &to, const uint4 *base, const int (&row)[2], int k,
                                    int end) {
#pragma unroll
    for (int h = 0; h < 2; h++)
        to.v[h] = k < end ? load_stream(base + row[h] + k / 8) : make_uint4(0, 0, 0, 0);
}

/* A tile of x in the registers of the block: half a warp holds rows half + 16 * j, a lane four
 * elements of each. */
#define MMA_HALVES (2 * MMA_WARPS)
template <int NT> struct x_tile {
    static constexpr int J = NT > 1 ? NT / 2 : 1;
    float4 v[J];
    uint2 norm; /* four bf16 */
};

/* Where a thread finds its part of x: of row j at p + j * step. */
struct x_source {
    const float *p;
    const uint2 *norm;
    int64_t step;
    unsigned there; /* bit j: the row exists */
    int k, to;
};

template <int NT>
__device__ inline x_source find_x(const og__dot &d, const mma_slice &at) {
    int half = threadIdx.x / 16, k = at.from + threadIdx.x % 16 * 4;
    x_source s = {d.x + (int64_t)(at.r0 + half) * d.ldx + k, (const uint2 *)d.norm + k / 4,
                  MMA_HALVES * d.ldx, 0, k, at.to};
#pragma unroll
    for (int j = 0; j < x_tile<NT>::J; j++) {
        int m = half + j * MMA_HALVES;
        if (m < NT * 8 && at.r0 + m < d.m) s.there |= 1u << j;
    }
    return s;
}

/* The next tile; what is past the rows or the slice is zero. */
template <int NT, bool NORM>
__device__ inline void load_x(x_source &s, x_tile<NT> &x) {
    unsigned there = s.k < s.to ? s.there : 0;
#pragma unroll
    for (int j = 0; j < x_tile<NT>::J; j++)
        x.v[j] = there >> j & 1 ? *(const float4 *)(s.p + j * s.step) : make_float4(0, 0, 0, 0);
    if (NORM && there) x.norm = __ldg(s.norm);
    s.p += MMA_K;
    s.norm += MMA_K / 4;
    s.k += MMA_K;
}

/* Into shared memory, [hi, lo][rows][MMA_LD]. */
template <int NT, bool NORM>
__device__ inline void store_x(x_tile<NT> &x, unsigned short *to,
                               float (&squares)[x_tile<NT>::J]) {
    int k = threadIdx.x % 16 * 4, half = threadIdx.x / 16;
    float w0 = __uint_as_float(x.norm.x << 16), w1 = __uint_as_float(x.norm.x & 0xffff0000u);
    float w2 = __uint_as_float(x.norm.y << 16), w3 = __uint_as_float(x.norm.y & 0xffff0000u);
#pragma unroll
    for (int j = 0; j < x_tile<NT>::J; j++) {
        int m = half + j * MMA_HALVES;
        if (NT == 1 && m >= NT * 8) continue;
        float4 v = x.v[j];
        if (NORM) {
            float sum = fmaf(v.y, v.y, fmaf(v.x, v.x, squares[j]));
            squares[j] = fmaf(v.w, v.w, fmaf(v.z, v.z, sum));
            v.x *= w0, v.y *= w1, v.z *= w2, v.w *= w3;
        }
        uint2 hi, lo;
        split_pair(v.x, v.y, hi.x, lo.x);
        split_pair(v.z, v.w, hi.y, lo.y);
        *(uint2 *)(to + m * MMA_LD + k) = hi;
        *(uint2 *)(to + (NT * 8 + m) * MMA_LD + k) = lo;
    }
}

/* Sums that are waited for are far apart: each of a group's gets one term in turn. */
template <int NT>
__device__ inline void multiply_step(float (&acc)[NT][4], const w_step &w,
                                     const unsigned short *xs) {
    constexpr int GROUP = NT > 4 ? 2 : NT; /* more would not fit the registers */
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    const uint4 &a = w.v[0], &b = w.v[1];
#pragma unroll
    for (int n0 = 0; n0 < NT; n0 += GROUP) {
        uint4 hi[GROUP], lo[GROUP];
#pragma unroll
        for (int n = 0; n < GROUP; n++) {
            const unsigned short *at = xs + ((n0 + n) * 8 + g) * MMA_LD + t * 8;
            hi[n] = *(const uint4 *)at;
            lo[n] = *(const uint4 *)(at + NT * 8 * MMA_LD);
        }
#pragma unroll
        for (int turn = 0; turn < 4; turn++)
#pragma unroll
            for (int n = 0; n < GROUP; n++) {
                const uint4 &x = turn % 2 ? lo[n] : hi[n];
                if (turn < 2) mma(acc[n0 + n], a.x, b.x, a.y, b.y, x.x, x.y);
                else mma(acc[n0 + n], a.z, b.z, a.w, b.w, x.z, x.w);
            }
    }
}

template <int NT, int RW, bool NORM>
__device__ inline void multiply_slice(const og__dot &d, const mma_slice &at, const uint4 *base,
                                      const int (&row)[2], unsigned short *xs,
                                      float (&acc)[NT][4], float (&squares)[x_tile<NT>::J]) {
    constexpr int KW = MMA_WARPS / RW, STEPS = MMA_K / 32 / KW, TILES = MMA_AHEAD / STEPS;
    constexpr int BUFFER = 2 * NT * 8 * MMA_LD;
    int own = threadIdx.x / WARP / RW * 32; /* the warp's first step */
    int k_lane = own + threadIdx.x % 4 * 8;
    w_step ahead[TILES][STEPS];
    x_source source = find_x<NT>(d, at);
    x_tile<NT> x = {};
#pragma unroll
    for (int i = 0; i < MMA_AHEAD; i++)
        load_weights(ahead[i / STEPS][i % STEPS], base, row, at.from + i * KW * 32 + k_lane,
                     at.to);
    enter_wait();
    load_x<NT, NORM>(source, x);
    store_x<NT, NORM>(x, xs, squares);
    load_x<NT, NORM>(source, x);
    for (int k0 = at.from; k0 < at.to; k0 += TILES * MMA_K)
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            int k = k0 + i * MMA_K;
            if (k >= at.to) break;
            __syncthreads();
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
                int step = s * KW * 32;
                multiply_step<NT>(acc, ahead[i][s], xs + i % 2 * BUFFER + own + step);
                load_weights(ahead[i][s], base, row, k + TILES * MMA_K + step + k_lane, at.to);
            }
            if (k + MMA_K >= at.to) continue;
            store_x<NT, NORM>(x, xs + (i + 1) % 2 * BUFFER, squares);
            load_x<NT, NORM>(source, x);
        }
    __syncthreads();
}

/* The sums of the warps along K, [KW][rows of x][LD], added up in the first; and the sums of
 * squares of the rows. */
template <int NT, int RW, bool NORM>
__device__ inline void gather_block(float (&acc)[NT][4], const float (&squares)[x_tile<NT>::J],
                                    float *part, float *squared) {
    constexpr int KW = MMA_WARPS / RW, LD = RW * 16 + 4, PLANE = NT * 8 * LD;
    int warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    float *mine = part + warp / RW * PLANE + warp % RW * 16;
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            mine[(n * 8 + t * 2 + (c & 1)) * LD + g + (c >> 1) * 8] = acc[n][c];
#pragma unroll
    for (int j = 0; NORM && j < x_tile<NT>::J; j++) {
        float sum = squares[j];
        int m = threadIdx.x / 16 + j * MMA_HALVES;
#pragma unroll
        for (int i = 8; i; i >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(ALL_LANES, sum, i));
        if (threadIdx.x % 16 == 0 && m < NT * 8) squared[m] = sum;
    }
    if (KW == 1) return;
    __syncthreads();
    for (int i = threadIdx.x * 4; i < PLANE; i += MMA_BLOCK * 4) {
        float4 v = *(const float4 *)(part + i);
#pragma unroll
        for (int s = 1; s < KW; s++) {
            float4 u = *(const float4 *)(part + s * PLANE + i);
            v.x = __fadd_rn(v.x, u.x);
            v.y = __fadd_rn(v.y, u.y);
            v.z = __fadd_rn(v.z, u.z);
            v.w = __fadd_rn(v.w, u.w);
        }
        *(float4 *)(part + i) = v;
    }
}

/* What the norm multiplies each row by; squared becomes that. */
template <int NT>
__device__ inline void find_scales(const og__dot &d, float *squared, float *scales) {
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x < NT * 8) {
        float sum = 0.0f;
        for (int s = 0; s < (int)cluster.num_blocks(); s++)
            sum = __fadd_rn(sum, cluster.map_shared_rank(squared, s)[threadIdx.x]);
        float mean = __fdiv_rn(sum, (float)d.k);
        scales[threadIdx.x] = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, d.eps)));
    }
    __syncthreads();
}

/* Four neighbours of the cluster's partial sums, added in ascending order of rank. */
__device__ inline void add_ranks(const float *part, int ranks, float (&v)[4]) {
    cg::cluster_group cluster = cg::this_cluster();
#pragma unroll 4
    for (int s = 0; s < ranks; s++) {
        float4 u = *(const float4 *)cluster.map_shared_rank(part, s);
        v[0] = __fadd_rn(v[0], u.x);
        v[1] = __fadd_rn(v[1], u.y);
        v[2] = __fadd_rn(v[2], u.z);
        v[3] = __fadd_rn(v[3], u.w);
    }
}

/* Four neighbours of row r, from output j on, as far as there are any. */
template <bool GLU>
__device__ inline void put_four(const og__dot &d, const og__dot_out &out, const float (&v)[4],
                                const float (&u)[4], const float (&old)[4], int r, int j) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
        if (j + e >= out.n) continue;
        float y = activate(with_bias(d, out, v[e], j + e), d.act);
        if (GLU) {
            y = __fmul_rn(y, with_bias(d, d.out[1], u[e], j + e));
        } else {
            if (d.scale) y = __fmul_rn(y, elem(d.scale, d.scale_t, j + e));
            if (d.residual) y = __fadd_rn(y, old[e]);
        }
        out.y[(int64_t)r * out.ldy + j + e] = y;
    }
}

/* This block's share of the cluster's sums, [rows of x][LD], as outputs. */
template <int NT, int RW, bool NORM, bool GLU>
__device__ inline void gather_cluster(const og__dot &d, const og__dot_out &out, const float *part,
                                      const float *scales, int r0, int j0) {
    constexpr int BN = RW * 16, LD = BN + 4, PER = GLU ? BN / 2 : BN;
    cg::cluster_group cluster = cg::this_cluster();
    int ranks = (int)cluster.num_blocks(), rank = (int)cluster.block_rank();
    for (int i = (rank * MMA_BLOCK + (int)threadIdx.x) * 4; i < NT * 8 * PER;
         i += ranks * MMA_BLOCK * 4) {
        int m = i / PER, n = i % PER, r = r0 + m, j = j0 + n;
        if (r >= d.m || j >= out.n) continue;
        float v[4] = {}, u[4] = {}, old[4] = {};
        if (!GLU && d.residual)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (j + e < out.n) old[e] = d.residual[(int64_t)r * d.ldr + j + e];
        add_ranks(part + m * LD + n, ranks, v);
        if (GLU) add_ranks(part + m * LD + PER + n, ranks, u);
        if (NORM)
#pragma unroll
            for (int e = 0; e < 4; e++)
                v[e] = __fmul_rn(v[e], scales[m]), u[e] = __fmul_rn(u[e], scales[m]);
        put_four<GLU>(d, out, v, u, old, r, j);
    }
}

template <int NT, int RW, bool NORM>
__global__ void __launch_bounds__(MMA_BLOCK, 2)
    mma_kernel(const __grid_constant__ og__dot d) {
    constexpr int BN = RW * 16;
    extern __shared__ float4 mma_shared[];
    __shared__ float squared[NT * 8], scales[NT * 8];
    cg::cluster_group cluster = cg::this_cluster();
    int ranks = (int)cluster.num_blocks(), tile = blockIdx.x / ranks, o = 0;
    int row_warp = threadIdx.x / WARP % RW, g = threadIdx.x % WARP / 4;
    if (!d.glu)
        while (o + 1 < d.n_out && tile >= d.out[o + 1].tile0) o++;
    const og__dot_out &out = d.out[o];
    int second = d.glu && row_warp >= RW / 2;
    int j0 = (tile - out.tile0) * (d.glu ? BN / 2 : BN);
    const og__dot_out &from = d.out[second ? 1 : o];
    int per = ((d.k + ranks - 1) / ranks + MMA_K - 1) / MMA_K * MMA_K;
    mma_slice at = {(int)cluster.block_rank() * per, 0, (int)blockIdx.y * NT * 8};
    at.to = at.from + per < d.k ? at.from + per : d.k;
    int row[2]; /* where rows begin, in 16 bytes */
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int j = j0 + (row_warp - (second ? RW / 2 : 0)) * 16 + h * 8 + g;
        row[h] = (j < from.n ? j : from.n - 1) * (int)(from.ldw / 8);
    }
    enter_early();
    float acc[NT][4] = {}, squares[x_tile<NT>::J] = {};
    multiply_slice<NT, RW, NORM>(d, at, (const uint4 *)from.w, row, (unsigned short *)mma_shared,
                                 acc, squares);
    gather_block<NT, RW, NORM>(acc, squares, (float *)mma_shared, squared);
    cluster_barrier(ranks);
    if (NORM) find_scales<NT>(d, squared, scales);
    const float *part = (const float *)mma_shared;
    if (d.glu) gather_cluster<NT, RW, NORM, true>(d, out, part, scales, at.r0, j0);
    else gather_cluster<NT, RW, NORM, false>(d, out, part, scales, at.r0, j0);
    cluster_leave(ranks);
}

/* ---- launch --------------------------------------------------------------------------------- */

static int tile_count(og__dot *d, int per) {
    int tiles = 0;
    for (int i = 0; i < (d->glu ? 1 : d->n_out); i++) {
        d->out[i].tile0 = tiles;
        tiles += (d->out[i].n + per - 1) / per;
    }
    return tiles;
}

/* The cut of K that leaves the busiest SM the least, in tiles; no slice is under four
 * tiles of K. */
static int cut_of(int tiles, int k, int sms, double *least) {
    int best = 1;
    *least = 1e30;
    for (int s = 1; s <= MMA_CLUSTER && (s == 1 || k >= s * 4 * MMA_K); s *= 2) {
        double share = (double)((tiles * s + sms - 1) / sms) / s;
        if (share < *least) best = s, *least = share;
    }
    return best;
}

template <int NT, int RW, bool NORM>
static int mma_go(og_exec *ex, const char *op, og__dot *d, int tiles, int cut) {
    size_t staged = (size_t)4 * NT * 8 * MMA_LD * sizeof(short);
    size_t sums = sizeof(float) * (MMA_WARPS / RW) * NT * 8 * (RW * 16 + 4);
    size_t shared = staged > sums ? staged : sums;
    cudaError_t e = cudaSuccess;
    if (shared > SHARED_AS_IS)
        e = cudaFuncSetAttribute(mma_kernel<NT, RW, NORM>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (e != cudaSuccess) return og__cuda_fail(ex, op, e);
    dim3 grid((unsigned)(tiles * cut), (unsigned)((d->m + NT * 8 - 1) / (NT * 8)));
    return launch_cluster(ex, op, mma_kernel<NT, RW, NORM>, grid, dim3(MMA_BLOCK), shared,
                          (unsigned)cut, *d);
}

template <int NT, int RW>
static int mma_norm(og_exec *ex, const char *op, og__dot *d, int tiles, int cut) {
    if (d->norm) return mma_go<NT, RW, true>(ex, op, d, tiles, cut);
    return mma_go<NT, RW, false>(ex, op, d, tiles, cut);
}

template <int RW>
static int mma_rows(og_exec *ex, const char *op, og__dot *d, int tiles, int cut) {
    if (d->m <= 8) return mma_norm<1, RW>(ex, op, d, tiles, cut);
    if (d->m <= 16) return mma_norm<2, RW>(ex, op, d, tiles, cut);
    if (d->m <= 32) return mma_norm<4, RW>(ex, op, d, tiles, cut);
    return mma_norm<MMA_COLUMNS / 8, RW>(ex, op, d, tiles, cut);
}

int og__cuda_mma_takes(const og_exec *ex, og_dtype t, const og__dot *d) {
    int takes = og__cuda_fast(ex, t, d->m) && !d->cu && d->x_vec && d->k % 8 == 0;
    if (d->norm) takes &= d->norm_t == OG_BF16 && !((uintptr_t)d->norm % 8);
    for (int i = 0; i < d->n_out; i++)
        takes &= !((uintptr_t)d->out[i].w % 16) && d->out[i].ldw % 8 == 0 &&
                 d->out[i].ldw / 8 * d->out[i].n < INT_MAX;
    return takes;
}

/* Narrow tiles where wide ones would leave SMs without work; they cost more reading of x. */
int og__cuda_mma(og_exec *ex, const char *op, og__dot *d) {
    int sms = og__cuda_device_of(ex->dev)->sms, part = d->glu ? 2 : 1;
    double wide, narrow;
    int tiles = tile_count(d, 64 / part), cut = cut_of(tiles, d->k, sms, &narrow);
    int tiles2 = tile_count(d, 128 / part), cut2 = cut_of(tiles2, d->k, sms, &wide);
    if (wide * 2 <= narrow * 1.15) return mma_rows<8>(ex, op, d, tiles2, cut2);
    tile_count(d, 64 / part);
    return mma_rows<4>(ex, op, d, tiles, cut);
}
