/* The fast mode's convolutions of many rows: an implicit product on the tensor cores.
 *
 * First x is split once into two bf16 terms (hi, then lo = x - hi: what is lost is below 2^-17
 * of each element), with the columns of the state before those of each segment. In these packed
 * rows tap j of output row r of segment s is row r + s * depth + j * dilation, whether it was
 * state or x. Then a block takes BM rows of x and 96 of weights; tiles of 32 channels of one tap
 * come to shared memory by asynchronous copies, some stages ahead, in an order of 16-byte pieces
 * that keeps rows side by side in different banks. Weights of f32 are split likewise on their way
 * to the registers, and of the four products that of the two small terms is left out. All sums
 * are f32.
 *
 * An element's order of additions depends on the weights' shape alone, but differs from
 * dot.cuh's; how many rows there are chooses between the two.
 */
#include "kernels/cuda/dot.cuh"

#define CONV_K 32  /* channels of a tile */
#define CONV_N 96  /* weights' rows of a block; every Cout of the vocoders is a multiple */
#define CONV_ROWS 64 /* of x, from which on it pays */
#define CONV_SHARED_MAX (112 << 10)

/* ---- splitting ------------------------------------------------------------------------------ */

__device__ inline unsigned two_bf16(float a, float b) {
    unsigned u;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(b), "f"(a));
    return u;
}

__device__ inline void split_two(float a, float b, unsigned &hi, unsigned &lo) {
    hi = two_bf16(a, b);
    lo = two_bf16(__fsub_rn(a, __uint_as_float(hi << 16)),
                  __fsub_rn(b, __uint_as_float(hi & 0xffff0000u)));
}

/* terms: [2][rows + n_seg * depth][channels]. A thread takes four channels of a packed row. */
__global__ void __launch_bounds__(256)
    split_kernel(const __grid_constant__ og__dot d, uint2 *terms, int packed) {
    enter();
    int per = d.channels / 4, depth = (d.taps - 1) * d.dilation;
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    int p = (int)(i / per), c = (int)(i % per) * 4, lo = 0, hi = d.n_seg - 1;
    if (p >= packed) return;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (d.cu[mid] + mid * depth <= p) lo = mid;
        else hi = mid - 1;
    }
    int first = d.cu[lo], t = p - first - lo * depth - depth;
    float4 v = make_float4(0, 0, 0, 0);
    if (t >= 0) {
        v = *(const float4 *)(d.x + (int64_t)(first + t) * d.ldx + c);
    } else if (d.cu[lo + 1] > first) {
        int64_t row = (int64_t)d.slot[first] * depth + depth + t;
        v = *(const float4 *)(d.state + row * d.channels + c);
    }
    uint2 big, small;
    split_two(v.x, v.y, big.x, small.x);
    split_two(v.z, v.w, big.y, small.y);
    terms[i] = big;
    terms[(int64_t)packed * per + i] = small;
}

/* ---- the product ---------------------------------------------------------------------------- */

__device__ inline void copy_piece(unsigned to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 16 : 0));
}

__device__ inline void load_matrices(unsigned (&m)[4], unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(from));
}

__device__ inline void mma_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Byte offset of a 16-byte piece: rows of 64 bytes (bf16), read eight rows at a time. */
__device__ inline int piece_16(int row, int piece) {
    return row * 64 + ((piece ^ (row >> 1 & 3)) << 4);
}

/* The same of rows of 128 bytes (f32), of which four rows by two pieces are read at a time. */
__device__ inline int piece_32(int row, int piece) {
    return row * 128 + ((piece ^ ((row & 3) << 1 | (row >> 2 & 1))) << 4);
}

template <typename W, int BM> struct conv_tile {
    static constexpr int THREADS = 2 * BM, WARPS_M = BM / 32, BYTES = sizeof(W);
    static constexpr int X = 2 * BM * CONV_K * 2, STAGE = X + CONV_N * CONV_K * BYTES;
    static constexpr int STAGES = BYTES == 4 ? 3 : 4;
    static_assert(STAGE * STAGES <= CONV_SHARED_MAX, "two blocks share an SM");
};

/* Where a thread's pieces come from: two rows of x in both terms, some of weights. */
template <typename W, int BM> struct conv_source {
    using tile = conv_tile<W, BM>;
    static constexpr int ROW_PIECES = CONV_K * tile::BYTES / 16;
    static constexpr int PIECES = CONV_N * ROW_PIECES;
    const unsigned short *x[2], *low;
    const W *w[(PIECES + tile::THREADS - 1) / tile::THREADS];
    bool x_there[2];
    int left; /* tiles of 32 channels until the next tap */
};

template <typename W, int BM>
__device__ inline void find_source(conv_source<W, BM> &s, const og__dot &d,
                                   const unsigned short *terms, int packed, int r0, int j0) {
    using source = conv_source<W, BM>;
    int depth = (d.taps - 1) * d.dilation;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = r0 + h * BM / 2 + threadIdx.x / 4, lo = 0, hi = d.n_seg - 1;
        s.x_there[h] = r < d.m;
        if (r >= d.m) r = d.m - 1;
        while (lo < hi) {
            int mid = (lo + hi + 1) / 2;
            if (d.cu[mid] <= r) lo = mid;
            else hi = mid - 1;
        }
        s.x[h] = terms + (int64_t)(r + lo * depth) * d.channels + threadIdx.x % 4 * 8;
    }
    s.low = terms + (int64_t)packed * d.channels;
    s.left = d.channels / CONV_K;
#pragma unroll
    for (int i = 0; i < (int)(sizeof s.w / sizeof *s.w); i++) {
        int q = threadIdx.x + i * source::tile::THREADS, j = j0 + q / source::ROW_PIECES;
        const W *w = (const W *)d.out[0].w;
        s.w[i] = j < d.out[0].n && q < source::PIECES
                     ? w + j * d.out[0].ldw + q % source::ROW_PIECES * (16 / source::tile::BYTES)
                     : nullptr;
    }
}

/* Ask for the next tile of K. */
template <typename W, int BM>
__device__ inline void ask(conv_source<W, BM> &s, const og__dot &d, unsigned to,
                           const unsigned short *terms) {
    using source = conv_source<W, BM>;
    using tile = conv_tile<W, BM>;
    int64_t low = s.low - terms;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int at = piece_16(h * BM / 2 + threadIdx.x / 4, threadIdx.x % 4);
        copy_piece(to + at, s.x[h], s.x_there[h]);
        copy_piece(to + tile::X / 2 + at, s.x[h] + low, s.x_there[h]);
    }
#pragma unroll
    for (int i = 0; i < (int)(sizeof s.w / sizeof *s.w); i++) {
        int q = threadIdx.x + i * tile::THREADS;
        int row = q / source::ROW_PIECES, piece = q % source::ROW_PIECES;
        if (q >= source::PIECES) continue;
        copy_piece(to + tile::X + (tile::BYTES == 4 ? piece_32(row, piece) : piece_16(row, piece)),
                   s.w[i] ? s.w[i] : (const W *)d.out[0].w, s.w[i] != nullptr);
        if (s.w[i]) s.w[i] += CONV_K;
    }
    int step = CONV_K;
    if (!--s.left) {
        s.left = d.channels / CONV_K;
        step += (d.dilation - 1) * d.channels; /* the next tap's first channel */
    }
    s.x[0] += step;
    s.x[1] += step;
}

/* Weights of two tiles of eight rows, 16 of K: pairs b[2n], b[2n + 1], and their small terms. */
template <typename W>
__device__ inline void load_weights_two(unsigned from, int n0, int kk, unsigned (&big)[4],
                                        unsigned (&small)[4]) {
    int lane = threadIdx.x % WARP;
    if (sizeof(W) == 2) {
        int row = n0 + lane / 16 * 8 + lane % 8;
        load_matrices(big, from + piece_16(row, kk * 2 + lane / 8 % 2));
        return;
    }
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = n0 + i / 2 * 8 + g, k = kk * 16 + i % 2 * 8 + t * 2;
        float a, b;
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(a), "=f"(b)
                     : "r"(from + piece_32(row, k / 4) + k % 4 * 4));
        split_two(a, b, big[i], small[i]);
    }
}

template <typename W, int BM>
__device__ inline void multiply_tile(float (&acc)[2][6][4], unsigned stage) {
    using tile = conv_tile<W, BM>;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int m0 = warp % tile::WARPS_M * 32, n0 = warp / tile::WARPS_M * 48;
#pragma unroll
    for (int kk = 0; kk < CONV_K / 16; kk++) {
        unsigned hi[2][4], lo[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int at = piece_16(m0 + i * 16 + lane % 16, kk * 2 + lane / 16);
            load_matrices(hi[i], stage + at);
            load_matrices(lo[i], stage + tile::X / 2 + at);
        }
#pragma unroll
        for (int n = 0; n < 6; n += 2) {
            unsigned big[4], small[4];
            load_weights_two<W>(stage + tile::X, n0 + n * 8, kk, big, small);
#pragma unroll
            for (int term = 0; term < (sizeof(W) == 4 ? 3 : 2); term++)
#pragma unroll
                for (int i = 0; i < 2; i++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        /* lo x w, hi x w, and between them hi x what w leaves out */
                        bool rest = sizeof(W) == 4 && term == 1;
                        const unsigned(&w)[4] = rest ? small : big;
                        const unsigned(&x)[4] = term ? hi[i] : lo[i];
                        mma_add(acc[i][n + e], x, w[e * 2], w[e * 2 + 1]);
                    }
        }
    }
}

template <typename W, int BM>
__global__ void __launch_bounds__(2 * BM, BM == 128 ? 2 : 3)
    conv_kernel(const __grid_constant__ og__dot d, const unsigned short *terms, int packed) {
    using tile = conv_tile<W, BM>;
    extern __shared__ float4 conv_shared[];
    enter();
    unsigned shared = (unsigned)__cvta_generic_to_shared(conv_shared);
    int r0 = blockIdx.y * BM, j0 = blockIdx.x * CONV_N, tiles = d.k / CONV_K;
    conv_source<W, BM> source;
    find_source<W, BM>(source, d, terms, packed, r0, j0);
    float acc[2][6][4] = {};
#pragma unroll
    for (int i = 0; i < tile::STAGES - 1; i++) {
        if (i < tiles) ask<W, BM>(source, d, shared + i * tile::STAGE, terms);
        asm volatile("cp.async.commit_group;");
    }
    for (int i = 0; i < tiles; i++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(tile::STAGES - 2));
        __syncthreads();
        int next = i + tile::STAGES - 1;
        if (next < tiles)
            ask<W, BM>(source, d, shared + next % tile::STAGES * tile::STAGE, terms);
        asm volatile("cp.async.commit_group;");
        multiply_tile<W, BM>(acc, shared + i % tile::STAGES * tile::STAGE);
    }
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int r = r0 + warp % tile::WARPS_M * 32 + lane / 4;
    int j = j0 + warp / tile::WARPS_M * 48 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int n = 0; n < 6; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int row = r + i * 16 + e / 2 * 8, col = j + n * 8 + e % 2;
                if (row < d.m && col < d.out[0].n)
                    write_out(d, d.out[0], acc[i][n][e], row, col);
            }
}

/* ---- launch --------------------------------------------------------------------------------- */

int og__cuda_conv_takes(const og_exec *ex, og_dtype t, const og__dot *d) {
    return !ex->dev->deterministic && (t == OG_BF16 || t == OG_F32) &&
           d->m >= CONV_ROWS && d->channels % CONV_K == 0 && d->ldx % 4 == 0 &&
           (uintptr_t)d->x % 16 == 0 && (uintptr_t)d->state % 16 == 0 &&
           (uintptr_t)d->out[0].w % 16 == 0 && d->out[0].ldw * (t == OG_F32 ? 4 : 2) % 16 == 0 &&
           d->out[0].n >= CONV_N / 2;
}

int64_t og__cuda_conv_packed(const og__dot *d) {
    return d->m + (int64_t)d->n_seg * (d->taps - 1) * d->dilation;
}

template <typename W, int BM>
static int conv_go(og_exec *ex, const char *op, const og__dot *d, const unsigned short *terms,
                   int packed) {
    using tile = conv_tile<W, BM>;
    size_t shared = (size_t)tile::STAGE * tile::STAGES;
    cudaError_t e = cudaFuncSetAttribute(
        conv_kernel<W, BM>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (e != cudaSuccess) return og__cuda_fail(ex, op, e);
    dim3 grid((unsigned)((d->out[0].n + CONV_N - 1) / CONV_N),
              (unsigned)((d->m + BM - 1) / BM));
    return launch(ex, op, conv_kernel<W, BM>, grid, dim3(tile::THREADS), shared, *d, terms,
                  packed);
}

/* Small tiles where large ones would leave SMs without work. */
template <typename W>
static int conv_rows(og_exec *ex, const char *op, const og__dot *d, const unsigned short *terms,
                     int packed) {
    int64_t large = (int64_t)((d->out[0].n + CONV_N - 1) / CONV_N) * ((d->m + 127) / 128);
    if (large < og__cuda_device_of(ex->dev)->sms)
        return conv_go<W, 64>(ex, op, d, terms, packed);
    return conv_go<W, 128>(ex, op, d, terms, packed);
}

int og__cuda_conv_mma(og_exec *ex, const char *op, og_dtype t, const og__dot *d, void *terms) {
    int packed = (int)og__cuda_conv_packed(d);
    OG__CHECK(launch(ex, op, split_kernel, blocks_for((int64_t)packed * d->channels / 4, 256),
                     dim3(256), 0, *d, (uint2 *)terms, packed));
    if (t == OG_F32) return conv_rows<float>(ex, op, d, (const unsigned short *)terms, packed);
    return conv_rows<unsigned short>(ex, op, d, (const unsigned short *)terms, packed);
}
