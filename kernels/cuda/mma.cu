/* The fast mode's product for bf16 weights and more than OG__DOT_FEW rows of x: tensor cores.
 *
 * A warp owns 16 rows of weights as the A operand of mma.m16n8k16 and all of the block's rows
 * of x as B. Within an mma the order over k is free as long as both operands agree, so lane t
 * of a quad holds elements t * 8 .. t * 8 + 7 of 32: weights go from memory to registers in 16
 * bytes, without shared memory, one tile ahead. x arrives as f32 by asynchronous copies, two
 * tiles ahead, and is split into two bf16 terms (hi, then lo = x - hi): what is lost is below
 * 2^-17 of each element, and all sums are f32.
 *
 * K is cut over the blocks of a cluster, as a function of the weights' shapes alone; the
 * partial sums are added in ascending order of rank through distributed shared memory. So a
 * row's bits do not depend on the other rows, but differ from those of dot.cuh.
 */
#include "kernels/cuda/dot.cuh"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

#define MMA_K 128      /* elements of a tile */
#define MMA_LD 132     /* floats of a staged row: rows of a quarter warp in different banks */
#define MMA_STAGES 3
#define MMA_STEPS (MMA_K / 32)
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
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ inline uint4 load_stream(const unsigned char *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

__device__ inline void load_tile(uint4 (&to)[MMA_STEPS][2], const unsigned char *const (&w)[2],
                                 int k0, int end) {
#pragma unroll
    for (int s = 0; s < MMA_STEPS; s++) {
        int k = k0 + s * 32 + threadIdx.x % 4 * 8;
#pragma unroll
        for (int h = 0; h < 2; h++)
            to[s][h] = k < end ? load_stream(w[h] + k * 2) : make_uint4(0, 0, 0, 0);
    }
}

/* Rows of x from k0 on; what is past the rows or the slice becomes zero. Always one group. */
template <int NT>
__device__ inline void copy_x(const og__dot &d, const mma_slice &at, float *to, int k0) {
    if (k0 < at.to)
        for (int i = threadIdx.x; i < NT * 8 * (MMA_K / 4); i += blockDim.x) {
            int m = i / (MMA_K / 4), k = i % (MMA_K / 4) * 4, r = at.r0 + m;
            int there = r < d.m && k0 + k < at.to;
            const float *from = there ? d.x + r * d.ldx + k0 + k : d.x;
            unsigned at_shared = (unsigned)__cvta_generic_to_shared(to + m * MMA_LD + k);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at_shared),
                         "l"(from), "r"(there ? 16 : 0)
                         : "memory");
        }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int NT>
__device__ inline void multiply_tile(float (&acc)[NT][4], const uint4 (&w)[MMA_STEPS][2],
                                     const float *xs) {
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int s = 0; s < MMA_STEPS; s++) {
        const uint4 &a = w[s][0], &b = w[s][1];
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const float4 *x = (const float4 *)(xs + (n * 8 + g) * MMA_LD + s * 32 + t * 8);
            float4 p = x[0], q = x[1];
            unsigned hi[4], lo[4];
            split_pair(p.x, p.y, hi[0], lo[0]);
            split_pair(p.z, p.w, hi[1], lo[1]);
            split_pair(q.x, q.y, hi[2], lo[2]);
            split_pair(q.z, q.w, hi[3], lo[3]);
            mma(acc[n], a.x, b.x, a.y, b.y, hi[0], hi[1]);
            mma(acc[n], a.x, b.x, a.y, b.y, lo[0], lo[1]);
            mma(acc[n], a.z, b.z, a.w, b.w, hi[2], hi[3]);
            mma(acc[n], a.z, b.z, a.w, b.w, lo[2], lo[3]);
        }
    }
}

template <int NT>
__device__ inline void multiply_slice(const og__dot &d, const mma_slice &at,
                                      const unsigned char *const (&w)[2], float *shared,
                                      float (&acc)[NT][4]) {
    constexpr int STAGE = NT * 8 * MMA_LD;
    uint4 next[MMA_STEPS][2];
    load_tile(next, w, at.from, at.to);
    enter_wait();
    copy_x<NT>(d, at, shared, at.from);
    copy_x<NT>(d, at, shared + STAGE, at.from + MMA_K);
    for (int k = at.from, stage = 0; k < at.to; k += MMA_K) {
        uint4 now[MMA_STEPS][2];
#pragma unroll
        for (int s = 0; s < MMA_STEPS; s++) now[s][0] = next[s][0], now[s][1] = next[s][1];
        load_tile(next, w, k + MMA_K, at.to);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        copy_x<NT>(d, at, shared + (stage + 2) % MMA_STAGES * STAGE, k + 2 * MMA_K);
        multiply_tile<NT>(acc, now, shared + stage * STAGE);
        stage = (stage + 1) % MMA_STAGES;
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
}

/* Add the cluster's partial sums, [rows of x][LD] each, for this block's share. */
template <int NT, int WARPS>
__device__ inline void reduce(const og__dot &d, const og__dot_out &out, float *part, int r0,
                              int j0) {
    constexpr int BN = WARPS * 16, LD = BN + 4;
    cg::cluster_group cluster = cg::this_cluster();
    int ranks = (int)cluster.num_blocks(), per = d.glu ? BN / 2 : BN;
    int step = ranks * (int)blockDim.x;
    for (int i = (int)cluster.block_rank() * (int)blockDim.x + (int)threadIdx.x;
         i < NT * 8 * per; i += step) {
        int m = i / per, n = i % per, r = r0 + m, j = j0 + n;
        if (r >= d.m || j >= out.n) continue;
        float v = 0.0f, u = 0.0f;
        for (int s = 0; s < ranks; s++) {
            const float *from = cluster.map_shared_rank(part, s) + m * LD + n;
            v = __fadd_rn(v, from[0]);
            if (d.glu) u = __fadd_rn(u, from[per]);
        }
        if (d.glu)
            out.y[(int64_t)r * out.ldy + j] = __fmul_rn(
                activate(with_bias(d, out, v, j), d.act), with_bias(d, d.out[1], u, j));
        else write_out(d, out, v, r, j);
    }
}

template <int NT, int WARPS>
__global__ void __launch_bounds__(WARPS *WARP, 16 / WARPS)
    mma_kernel(const __grid_constant__ og__dot d) {
    constexpr int BN = WARPS * 16, LD = BN + 4;
    extern __shared__ float4 mma_shared[];
    float *shared = (float *)mma_shared;
    cg::cluster_group cluster = cg::this_cluster();
    int ranks = (int)cluster.num_blocks(), tile = blockIdx.x / ranks, o = 0;
    int warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    if (!d.glu)
        while (o + 1 < d.n_out && tile >= d.out[o + 1].tile0) o++;
    const og__dot_out &out = d.out[o];
    int j0 = (tile - out.tile0) * (d.glu ? BN / 2 : BN), second = d.glu && warp >= WARPS / 2;
    const og__dot_out &from = d.out[second ? 1 : o];
    int per = ((d.k + ranks - 1) / ranks + MMA_K - 1) / MMA_K * MMA_K;
    mma_slice at = {(int)cluster.block_rank() * per, 0, (int)blockIdx.y * NT * 8};
    at.to = at.from + per < d.k ? at.from + per : d.k;
    const unsigned char *w[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int j = j0 + (warp - (second ? WARPS / 2 : 0)) * 16 + g + h * 8;
        w[h] = (const unsigned char *)from.w + (j < from.n ? j : from.n - 1) * from.ldw * 2;
    }
    enter_early();
    float acc[NT][4] = {};
    multiply_slice<NT>(d, at, w, shared, acc);
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            shared[(n * 8 + t * 2 + (c & 1)) * LD + warp * 16 + g + (c >> 1) * 8] = acc[n][c];
    cluster.sync();
    reduce<NT, WARPS>(d, out, shared, at.r0, j0);
    cluster.sync(); /* nobody leaves while others read its sums */
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

/* The cut of K that leaves the busiest SM the least; no slice is under two tiles. */
static int cut_of(int tiles, int k, int sms) {
    int best = 1;
    double least = 1e30;
    for (int s = 1; s <= MMA_CLUSTER && (s == 1 || k >= s * 2 * MMA_K); s *= 2) {
        double share = (double)((tiles * s + sms - 1) / sms) / s;
        if (share < least) best = s, least = share;
    }
    return best;
}

template <int NT, int WARPS> static int mma_go(og_exec *ex, const char *op, og__dot *d) {
    int tiles = tile_count(d, WARPS * 16 / (d->glu ? 2 : 1));
    int cut = cut_of(tiles, d->k, og__cuda_device_of(ex->dev)->sms);
    size_t shared = sizeof(float) * MMA_STAGES * NT * 8 * MMA_LD;
    cudaError_t e = cudaFuncSetAttribute(mma_kernel<NT, WARPS>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         (int)shared);
    if (e != cudaSuccess) return og__cuda_fail(ex, op, e);
    dim3 grid((unsigned)(tiles * cut), (unsigned)((d->m + NT * 8 - 1) / (NT * 8)));
    return launch_cluster(ex, op, mma_kernel<NT, WARPS>, grid, dim3(WARPS * WARP), shared,
                          (unsigned)cut, *d);
}

template <int WARPS> static int mma_rows(og_exec *ex, const char *op, og__dot *d) {
    if (d->m <= 8) return mma_go<1, WARPS>(ex, op, d);
    if (d->m <= 16) return mma_go<2, WARPS>(ex, op, d);
    if (d->m <= 32) return mma_go<4, WARPS>(ex, op, d);
    return mma_go<MMA_COLUMNS / 8, WARPS>(ex, op, d);
}

int og__cuda_mma_takes(const og_exec *ex, og_dtype t, const og__dot *d) {
    int takes = t == OG_BF16 && og__cuda_fast(ex, t, d->m) && !d->cu && !d->norm && d->x_vec &&
                d->k % 8 == 0;
    for (int i = 0; i < d->n_out; i++)
        takes &= !((uintptr_t)d->out[i].w % 16) && d->out[i].ldw % 8 == 0;
    return takes;
}

/* Narrow blocks where wide ones would leave SMs without work. */
int og__cuda_mma(og_exec *ex, const char *op, og__dot *d) {
    int tiles = tile_count(d, 128 / (d->glu ? 2 : 1));
    if (tiles * MMA_CLUSTER < og__cuda_device_of(ex->dev)->sms * 3 / 4)
        return mma_rows<4>(ex, op, d);
    return mma_rows<8>(ex, op, d);
}
