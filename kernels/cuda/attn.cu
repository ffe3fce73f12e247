/* Positions and paged attention.
 *
 * Attention: for one row and the query heads of one kv head, by one block of eight warps or by
 * the blocks of a cluster. Keys are taken in groups that begin at absolute positions divisible
 * by their size, which depends on dtype and head_dim alone; group g belongs to virtual warp
 * g % 32, and the virtual warps' results are combined in ascending order, whichever warps and
 * blocks they were dealt to. So the order depends on the row's position and window alone, not
 * on batch, chunk or page.
 */
#include "kernels/cuda/launch.cuh"

#include <cooperative_groups.h>
#include <math_constants.h>

namespace cg = cooperative_groups;

#define VIRTUAL WARP
#define BLOCK 256
#define WARPS (BLOCK / WARP)
#define MAX_DIM 256

__global__ void __launch_bounds__(BLOCK)
    rope_kernel(float *cos_out, float *sin_out, const int32_t *pos, const float *inv_freq,
                int half, int64_t n) {
    enter();
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    double s, c;
    sincos((double)__fmul_rn((float)pos[3 * (i / half)], inv_freq[i % half]), &s, &c);
    cos_out[i] = (float)c;
    sin_out[i] = (float)s;
}

int og__cuda_rope_table(og_exec *ex, og_tensor *cos, og_tensor *sin, const og_rows *rows,
                        const og_tensor *inv_freq) {
    int half = (int)inv_freq->ne[0];
    int64_t n = (int64_t)rows->n * half;
    return launch(ex, "rope_table", rope_kernel, blocks_for(n, BLOCK), dim3(BLOCK), 0,
                  (float *)cos->data, (float *)sin->data, rows->pos,
                  (const float *)inv_freq->data, half, n);
}

/* ---- norm, rope, append --------------------------------------------------------------------- */

struct cache {
    void *k, *v;
    const int32_t *table;
    int dtype, max_pages, page, ring, heads, dim;
};

static cache cache_of(const og_kv *kv) {
    cache c = {kv->k.data, kv->v.data,          kv->table,
               (int)kv->k.dtype, kv->max_pages, kv->page,
               kv->ring,         (int)kv->k.ne[2], (int)kv->k.ne[3]};
    return c;
}

/* Element offset of a position of a slot for one head. */
__device__ inline int64_t cache_at(const cache &c, int slot, int pos, int head) {
    int i = pos / c.page;
    if (c.ring > 0) i %= c.ring;
    int64_t row =
        (int64_t)c.table[(int64_t)slot * c.max_pages + i] * c.page + pos % c.page;
    return (row * c.heads + head) * c.dim;
}

/* One warp: x, normed by w unless it is NULL and turned, into out and to element `at` of `to`,
 * unless they are NULL. All that is read is asked for at once. */
struct turn_args {
    const void *w;
    int w_t, dim;
    float eps;
    const float *cos, *sin;
};

struct turn_row {
    static constexpr int N = MAX_DIM / 2 / WARP;
    float a[N], b[N], c[N], s[N];
    unsigned u[N], v[N];
};

__device__ inline void load_turn(const turn_args &g, const float *x, turn_row &r) {
    int lane = threadIdx.x % WARP, half = g.dim / 2;
#pragma unroll
    for (int n = 0; n < turn_row::N; n++) {
        int i = n * WARP + lane;
        if (i >= half) continue;
        r.a[n] = x[i], r.b[n] = x[i + half];
        r.c[n] = g.cos[i], r.s[n] = g.sin[i];
        if (g.w) r.u[n] = elem_bits(g.w, g.w_t, i), r.v[n] = elem_bits(g.w, g.w_t, i + half);
    }
}

__device__ inline void finish_turn(const turn_args &g, turn_row &r, float *out, void *to, int to_t,
                                   int64_t at) {
    int lane = threadIdx.x % WARP, half = g.dim / 2;
    float sum = 0.0f, scale = 1.0f;
    if (g.w) {
#pragma unroll
        for (int n = 0; n < turn_row::N; n++)
            if (n * WARP + lane < half)
                sum = fmaf(r.b[n], r.b[n], fmaf(r.a[n], r.a[n], sum));
        sum = __fdiv_rn(warp_sum(sum), (float)g.dim);
        scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(sum, g.eps)));
    }
#pragma unroll
    for (int n = 0; n < turn_row::N; n++) {
        int i = n * WARP + lane;
        if (i >= half) continue;
        float a = r.a[n], b = r.b[n];
        if (g.w) {
            a = rms_apply(a, scale, elem_value(r.u[n], g.w_t));
            b = rms_apply(b, scale, elem_value(r.v[n], g.w_t));
        }
        float p = fmaf(a, r.c[n], -__fmul_rn(b, r.s[n]));
        float q = fmaf(b, r.c[n], __fmul_rn(a, r.s[n]));
        if (out) out[i] = p, out[i + half] = q;
        if (!to) continue;
        elem_set(to, to_t, at + i, p);
        elem_set(to, to_t, at + i + half, q);
    }
}

__device__ inline void norm_rope(const turn_args &g, const float *x, float *out, void *to,
                                 int to_t, int64_t at) {
    turn_row r;
    load_turn(g, x, r);
    finish_turn(g, r, out, to, to_t, at);
}

struct append_args {
    float *q, *k;
    const float *v, *cos, *sin;
    const void *q_norm, *k_norm;
    int q_norm_t, k_norm_t, heads, rows;
    float eps;
    const int32_t *slot, *pos;
    cache kv;
};

/* A warp for each head of q, k and v of each row. */
__global__ void __launch_bounds__(BLOCK) append_kernel(append_args a) {
    enter();
    int per = a.heads + 2 * a.kv.heads, dim = a.kv.dim;
    int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    int r = (int)(i / per), h = (int)(i % per);
    if (r >= a.rows) return;
    int64_t turn = (int64_t)r * (dim / 2);
    turn_args t = {a.q_norm, a.q_norm_t, dim, a.eps, a.cos + turn, a.sin + turn};
    if (h < a.heads) {
        float *q = a.q + ((int64_t)r * a.heads + h) * dim;
        norm_rope(t, q, q, nullptr, 0, 0);
        return;
    }
    int g = (h - a.heads) % a.kv.heads, is_v = h - a.heads >= a.kv.heads;
    int64_t from = ((int64_t)r * a.kv.heads + g) * dim;
    int64_t at = cache_at(a.kv, a.slot[r], a.pos[3 * r], g);
    if (!is_v) {
        t.w = a.k_norm;
        t.w_t = a.k_norm_t;
        norm_rope(t, a.k + from, a.k + from, a.kv.k, a.kv.dtype, at);
        return;
    }
    for (int d = threadIdx.x % WARP; d < dim; d += WARP)
        elem_set(a.kv.v, a.kv.dtype, at + d, a.v[from + d]);
}

int og__cuda_qk_norm_rope_append(og_exec *ex, og_tensor *q, og_tensor *k, const og_tensor *v,
                                 const og_tensor *q_norm, const og_tensor *k_norm, float eps,
                                 const og_tensor *cos, const og_tensor *sin,
                                 const og_rows *rows, og_kv *kv) {
    if (og__measuring(ex)) return 0;
    append_args a = {};
    a.q = (float *)q->data;
    a.k = (float *)k->data;
    a.v = (const float *)v->data;
    a.cos = (const float *)cos->data;
    a.sin = (const float *)sin->data;
    if (og_tensor_present(q_norm)) {
        a.q_norm = q_norm->data;
        a.q_norm_t = (int)q_norm->dtype;
    }
    if (og_tensor_present(k_norm)) {
        a.k_norm = k_norm->data;
        a.k_norm_t = (int)k_norm->dtype;
    }
    a.heads = (int)q->ne[1];
    a.rows = rows->n;
    a.eps = eps;
    a.slot = rows->slot;
    a.pos = rows->pos;
    a.kv = cache_of(kv);
    int64_t warps = (int64_t)rows->n * (a.heads + 2 * a.kv.heads);
    return launch(ex, "qk_norm_rope_append", append_kernel, blocks_for(warps, WARPS),
                  dim3(BLOCK), 0, a);
}

/* ---- attention -------------------------------------------------------------------------------- */

struct attn_args {
    float *y;
    const float *q;
    const int32_t *slot, *pos;
    int heads, group, window, vec;
    float scale;
    cache kv;
    /* norm, rope and append first, when k is not NULL */
    const float *k, *v, *cos, *sin;
    const void *q_norm, *k_norm;
    int q_norm_t, k_norm_t, n_seg;
    float eps;
    const int32_t *cu;
};

/* Elements of 16 bytes of the cache, widened. */
template <int T> struct kv_type;
template <> struct kv_type<OG_F32> {
    typedef float store;
    static constexpr int V = 4;
    __device__ static float one(float v) { return v; }
};
template <> struct kv_type<OG_BF16> {
    typedef unsigned short store;
    static constexpr int V = 8;
    __device__ static float one(unsigned short v) { return __uint_as_float((unsigned)v << 16); }
};
template <> struct kv_type<OG_F16> {
    typedef unsigned short store;
    static constexpr int V = 8;
    __device__ static float one(unsigned short v) { return widen_f16(v); }
};

/* How a warp lies over a group of keys: L lanes side by side hold a key's dimensions, P pieces
 * of 16 bytes each, and KEYS / SUBS keys follow one another in a lane. */
template <int T, int L, int P> struct lay {
    typedef typename kv_type<T>::store store;
    static constexpr int V = kv_type<T>::V, SUBS = WARP / L, N = 8 / P, KEYS = N * SUBS;
    __device__ static int dim_of(int p) { return (p * L + threadIdx.x % L) * V; }
};

/* 16 bytes of a row of the cache from dimension d on; what is past its end is zero. */
template <typename S, int V>
__device__ inline uint4 load_piece(const S *row, int d, int dim, int vec) {
    uint4 u = make_uint4(0, 0, 0, 0);
    if (vec) return d < dim ? *(const uint4 *)(row + d) : u;
    S *e = (S *)&u;
#pragma unroll
    for (int i = 0; i < V; i++)
        if (d + i < dim) e[i] = row[d + i];
    return u;
}

/* Keys and values of a group that lie in [from, pos]; the others are zero. */
template <int T, int L, int P>
__device__ inline void load_keys(const attn_args &a, int group, int from, int pos, int slot,
                                 int g, uint4 (&k)[lay<T, L, P>::N][P],
                                 uint4 (&v)[lay<T, L, P>::N][P]) {
    typedef lay<T, L, P> W;
    typedef typename W::store store;
    int first = group * W::KEYS, lane = threadIdx.x % WARP;
    int64_t mine = cache_at(a.kv, slot, min(max(first + lane, from), pos), g);
#pragma unroll
    for (int n = 0; n < W::N; n++) {
        int key = n * W::SUBS + lane / L;
        int64_t at = __shfl_sync(ALL_LANES, mine, key);
        bool live = first + key >= from && first + key <= pos;
#pragma unroll
        for (int p = 0; p < P; p++) {
            int d = live ? W::dim_of(p) : a.kv.dim;
            k[n][p] = load_piece<store, W::V>((const store *)a.kv.k + at, d, a.kv.dim, a.vec);
            v[n][p] = load_piece<store, W::V>((const store *)a.kv.v + at, d, a.kv.dim, a.vec);
        }
    }
}

/* What a virtual warp knows of its keys. */
template <int HG, int P, int V> struct partial {
    float top[HG], mass[HG], acc[HG][P][V];
};

template <int T, int HG, int L, int P>
__device__ inline void score_keys(const attn_args &a, const float (&q)[HG][P][kv_type<T>::V],
                                  const uint4 (&k)[lay<T, L, P>::N][P], int first, int from,
                                  int pos, float (&s)[HG][lay<T, L, P>::N]) {
    typedef lay<T, L, P> W;
#pragma unroll
    for (int n = 0; n < W::N; n++) {
        int j = first + n * W::SUBS + (int)(threadIdx.x % WARP) / L;
#pragma unroll
        for (int h = 0; h < HG; h++) {
            float sum = 0.0f;
#pragma unroll
            for (int p = 0; p < P; p++) {
                const typename W::store *e = (const typename W::store *)&k[n][p];
#pragma unroll
                for (int i = 0; i < W::V; i++)
                    sum = fmaf(q[h][p][i], kv_type<T>::one(e[i]), sum);
            }
#pragma unroll
            for (int d = L / 2; d; d >>= 1)
                sum = __fadd_rn(sum, __shfl_xor_sync(ALL_LANES, sum, d));
            s[h][n] = j >= from && j <= pos ? __fmul_rn(sum, a.scale) : -CUDART_INF_F;
        }
    }
}

/* A group of keys into the partial result; a lane's mass is that of its own keys. */
template <int T, int HG, int L, int P>
__device__ inline void take_keys(const attn_args &a, const float (&q)[HG][P][kv_type<T>::V],
                                 const uint4 (&k)[lay<T, L, P>::N][P],
                                 const uint4 (&v)[lay<T, L, P>::N][P], int first, int from,
                                 int pos, partial<HG, P, kv_type<T>::V> &r) {
    typedef lay<T, L, P> W;
    float s[HG][W::N];
    score_keys<T, HG, L, P>(a, q, k, first, from, pos, s);
#pragma unroll
    for (int h = 0; h < HG; h++) {
        float next = r.top[h];
#pragma unroll
        for (int n = 0; n < W::N; n++) next = fmaxf(next, s[h][n]);
#pragma unroll
        for (int d = L; d < WARP; d <<= 1)
            next = fmaxf(next, __shfl_xor_sync(ALL_LANES, next, d));
        float shrink = expf(__fsub_rn(r.top[h], next));
        r.top[h] = next;
        r.mass[h] = __fmul_rn(r.mass[h], shrink);
#pragma unroll
        for (int p = 0; p < P; p++)
#pragma unroll
            for (int i = 0; i < W::V; i++) r.acc[h][p][i] = __fmul_rn(r.acc[h][p][i], shrink);
#pragma unroll
        for (int n = 0; n < W::N; n++) {
            s[h][n] = expf(__fsub_rn(s[h][n], next));
            r.mass[h] = __fadd_rn(r.mass[h], s[h][n]);
        }
    }
#pragma unroll
    for (int n = 0; n < W::N; n++)
#pragma unroll
        for (int p = 0; p < P; p++) {
            const typename W::store *e = (const typename W::store *)&v[n][p];
#pragma unroll
            for (int i = 0; i < W::V; i++) {
                float x = kv_type<T>::one(e[i]);
#pragma unroll
                for (int h = 0; h < HG; h++)
                    r.acc[h][p][i] = fmaf(s[h][n], x, r.acc[h][p][i]);
            }
        }
}

/* The block's results in shared memory: [virtual warps of the block][HG][dim], then their
 * tops and masses. */
template <int HG> struct results {
    float *sums, *tops, *masses;
    __device__ results(float *at, int count, int dim)
        : sums(at), tops(at + count * HG * dim), masses(tops + count * HG) {}
};

template <int T, int HG, int L, int P>
__device__ inline void keep(const results<HG> &to, int i, int dim,
                            partial<HG, P, kv_type<T>::V> &r) {
    typedef lay<T, L, P> W;
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int h = 0; h < HG; h++) {
#pragma unroll
        for (int d = L; d < WARP; d <<= 1) {
            r.mass[h] = __fadd_rn(r.mass[h], __shfl_xor_sync(ALL_LANES, r.mass[h], d));
#pragma unroll
            for (int p = 0; p < P; p++)
#pragma unroll
                for (int e = 0; e < W::V; e++)
                    r.acc[h][p][e] = __fadd_rn(
                        r.acc[h][p][e], __shfl_xor_sync(ALL_LANES, r.acc[h][p][e], d));
        }
        if (lane == 0) to.tops[i * HG + h] = r.top[h], to.masses[i * HG + h] = r.mass[h];
        if (lane >= L) continue;
#pragma unroll
        for (int p = 0; p < P; p++)
#pragma unroll
            for (int e = 0; e < W::V; e++) {
                int d = W::dim_of(p) + e;
                if (d < dim) to.sums[(i * HG + h) * dim + d] = r.acc[h][p][e];
            }
    }
}

/* First row of row r's segment. */
__device__ inline int segment_start(const attn_args &a, int r) {
    if (a.cu[r < a.n_seg ? r : a.n_seg] == r) return r;
    int lo = 0, hi = a.n_seg - 1;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (a.cu[mid] <= r) lo = mid;
        else hi = mid - 1;
    }
    return a.cu[lo];
}

__device__ inline turn_args turn_of(const attn_args &a, int i, int is_q) {
    int64_t at = (int64_t)i * (a.kv.dim / 2);
    turn_args t = {is_q ? a.q_norm : a.k_norm, is_q ? a.q_norm_t : a.k_norm_t, a.kv.dim, a.eps,
                   a.cos + at, a.sin + at};
    return t;
}

/* Row i's key or value into the cache. */
__device__ inline void append_row(const attn_args &a, int i, int g, int is_v) {
    int64_t from = ((int64_t)i * a.kv.heads + g) * a.kv.dim;
    if (is_v) {
        int64_t at = cache_at(a.kv, a.slot[i], a.pos[3 * i], g);
        for (int d = threadIdx.x % WARP; d < a.kv.dim; d += WARP)
            elem_set(a.kv.v, a.kv.dtype, at + d, a.v[from + d]);
        return;
    }
    turn_args t = turn_of(a, i, 0);
    turn_row row;
    load_turn(t, a.k + from, row);
    int64_t at = cache_at(a.kv, a.slot[i], a.pos[3 * i], g);
    finish_turn(t, row, nullptr, a.kv.k, a.kv.dtype, at);
}

/* The query heads normed and turned into q, and all of the segment's rows up to r into the
 * cache: blocks of other rows may do the same, and write the same. */
template <int HG>
__device__ inline void append_first(const attn_args &a, int r, int h0, int g, int start,
                                    float *q) {
    int warp = threadIdx.x / WARP, pair = (warp - HG) / 2, pairs = (WARPS - HG) / 2;
    if (warp < HG) {
        const float *x = a.q + ((int64_t)r * a.heads + h0 + warp) * a.kv.dim;
        norm_rope(turn_of(a, r, 1), x, q + warp * a.kv.dim, nullptr, 0, 0);
        return;
    }
    if (pair >= pairs) return;
    for (int i = r - pair; i >= start; i -= pairs) append_row(a, i, g, (warp - HG) % 2);
}

/* All virtual warps' results in ascending order; each block of the cluster takes a share of
 * the dimensions. Lane l looks after virtual warp l. */
template <int HG>
__device__ inline void combine(const attn_args &a, const results<HG> &mine, int ranks, int live,
                               float *y) {
    cg::cluster_group cluster = cg::this_cluster();
    int lane = threadIdx.x % WARP, dim = a.kv.dim;
    int shift = 5 - (31 - __clz(ranks)), mask = (1 << shift) - 1; /* virtual warps of a block */
    float e[HG], total[HG];
#pragma unroll
    for (int h = 0; h < HG; h++) {
        int at = (lane & mask) * HG + h;
        float top = cluster.map_shared_rank(mine.tops, lane >> shift)[at];
        float mass = cluster.map_shared_rank(mine.masses, lane >> shift)[at];
        float most = warp_max(top);
        e[h] = top > -CUDART_INF_F ? expf(__fsub_rn(top, most)) : 0.0f;
        total[h] = warp_sum(__fmul_rn(mass, e[h]));
    }
    int step = ranks * BLOCK, n = HG * dim;
    for (int i0 = (int)cluster.block_rank() * BLOCK + (int)threadIdx.x / WARP * WARP; i0 < n;
         i0 += step) {
        int i = i0 + lane, h = HG > 1 && i >= dim ? 1 : 0;
        float sum = 0.0f;
#pragma unroll 4
        for (int w = 0; w < live; w++) {
            float weight = __shfl_sync(ALL_LANES, e[0], w);
            if (HG > 1) {
                float other = __shfl_sync(ALL_LANES, e[HG - 1], w);
                weight = h ? other : weight;
            }
            const float *from = cluster.map_shared_rank(mine.sums, w >> shift) + (w & mask) * n;
            if (weight != 0.0f && i < n) sum = fmaf(from[i], weight, sum);
        }
        if (i < n) y[i] = __fdiv_rn(sum, h ? total[HG - 1] : total[0]);
    }
}

template <int T, int HG, int L, int P>
__global__ void __launch_bounds__(BLOCK, 2)
    attn_kernel(const __grid_constant__ attn_args a) {
    typedef lay<T, L, P> W;
    extern __shared__ float shared[];
    cg::cluster_group cluster = cg::this_cluster();
    int ranks = (int)cluster.num_blocks(), rank = (int)cluster.block_rank();
    int dim = a.kv.dim, warp = threadIdx.x / WARP, per = VIRTUAL / ranks;
    int r = (int)blockIdx.x / ranks, h0 = blockIdx.y * HG, g = h0 / a.group;
    float *q_shared = shared;
    results<HG> out(q_shared + HG * dim, per, dim);
    enter();
    int64_t base = ((int64_t)r * a.heads + h0) * dim;
    int pos = a.pos[3 * r], slot = a.slot[r], start = a.k ? segment_start(a, r) : r;
    int from = a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0;
    int old = a.k ? pos - (r - start) : pos + 1; /* keys from here on are appended first */
    int first = from / W::KEYS, last = pos / W::KEYS;
    int group = first + ((rank * per + warp - first) % VIRTUAL + VIRTUAL) % VIRTUAL;
    uint4 k[W::N][P], v[W::N][P];
    bool early = group <= last && (group + 1) * W::KEYS <= old;
    if (early) load_keys<T, L, P>(a, group, from, pos, slot, g, k, v);
    if (a.k) append_first<HG>(a, r, h0, g, start, q_shared);
    else
        for (int i = threadIdx.x; i < HG * dim; i += BLOCK) q_shared[i] = a.q[base + i];
    __syncthreads();
    float q[HG][P][W::V];
#pragma unroll
    for (int h = 0; h < HG; h++)
#pragma unroll
        for (int p = 0; p < P; p++)
#pragma unroll
            for (int i = 0; i < W::V; i++) {
                int d = W::dim_of(p) + i;
                q[h][p][i] = d < dim ? q_shared[h * dim + d] : 0.0f;
            }
    for (int i = warp; i < per; i += WARPS) {
        group = first + ((rank * per + i - first) % VIRTUAL + VIRTUAL) % VIRTUAL;
        if (group > last) {
            int at = i * HG + (int)(threadIdx.x % WARP);
            if (threadIdx.x % WARP < HG) out.tops[at] = -CUDART_INF_F, out.masses[at] = 0.0f;
            continue;
        }
        partial<HG, P, W::V> part = {};
#pragma unroll
        for (int h = 0; h < HG; h++) part.top[h] = -CUDART_INF_F;
        for (; group <= last; group += VIRTUAL) {
            if (!early) load_keys<T, L, P>(a, group, from, pos, slot, g, k, v);
            early = false;
            take_keys<T, HG, L, P>(a, q, k, v, group * W::KEYS, from, pos, part);
        }
        keep<T, HG, L, P>(out, i, dim, part);
    }
    cluster_barrier(ranks);
    combine<HG>(a, out, ranks, first ? VIRTUAL : min(last + 1, VIRTUAL), a.y + base);
    cluster_leave(ranks);
}

/* Blocks that share a row's keys: as many as leave SMs something to do, and none where there
 * cannot be many keys. */
static unsigned ranks_for(const og_exec *ex, int64_t blocks, const og_kv *kv) {
    int64_t most = 2 * og__cuda_device_of(ex->dev)->sms;
    int64_t keys = (int64_t)kv->max_pages * kv->page;
    if (keys <= 128) return 1;
    return blocks * 4 <= most ? 4 : blocks * 2 <= most ? 2 : 1;
}

template <int T, int HG, int L, int P>
static int attn_go(og_exec *ex, int rows, const og_kv *kv, attn_args *a) {
    unsigned ranks = ranks_for(ex, (int64_t)rows * (a->heads / HG), kv);
    size_t per = VIRTUAL / ranks, dim = (size_t)a->kv.dim;
    size_t shared = (HG * dim + per * HG * (dim + 2)) * sizeof(float);
    cudaError_t e = cudaSuccess;
    if (shared > SHARED_AS_IS)
        e = cudaFuncSetAttribute(attn_kernel<T, HG, L, P>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (e != cudaSuccess) return og__cuda_fail(ex, "attn_paged", e);
    return launch_cluster(ex, "attn_paged", attn_kernel<T, HG, L, P>,
                          dim3((unsigned)rows * ranks, (unsigned)(a->heads / HG)), dim3(BLOCK),
                          shared, ranks, *a);
}

template <int T, int HG>
static int attn_dim(og_exec *ex, int rows, const og_kv *kv, attn_args *a) {
    constexpr int V = kv_type<T>::V; /* 4 or 8 */
    if (a->kv.dim <= 64) return attn_go<T, HG, 64 / V, 1>(ex, rows, kv, a);
    if (a->kv.dim <= 128) return attn_go<T, HG, 128 / V, 1>(ex, rows, kv, a);
    return attn_go<T, HG, WARP, V == 4 ? 2 : 1>(ex, rows, kv, a);
}

template <int T> static int attn_of(og_exec *ex, int rows, const og_kv *kv, attn_args *a) {
    a->vec = a->kv.dim % kv_type<T>::V == 0 &&
             !(((uintptr_t)a->kv.k | (uintptr_t)a->kv.v) % 16);
    return a->group % 2 ? attn_dim<T, 1>(ex, rows, kv, a) : attn_dim<T, 2>(ex, rows, kv, a);
}

static int attend(og_exec *ex, og_tensor *y, const og_tensor *q, const og_kv *kv,
                  const og_rows *rows, float scale, int window, attn_args *a) {
    if (q->ne[2] > MAX_DIM)
        return og__fail(ex, OG_ELIMIT, "attn_paged: head_dim %lld (limit is %d)",
                        (long long)q->ne[2], MAX_DIM);
    if (og__measuring(ex)) return 0;
    a->y = (float *)y->data;
    a->q = (const float *)q->data;
    a->slot = rows->slot;
    a->pos = rows->pos;
    a->cu = rows->cu;
    a->n_seg = rows->n_seg;
    a->heads = (int)q->ne[1];
    a->group = (int)(q->ne[1] / kv->k.ne[2]);
    a->window = window;
    a->scale = scale;
    a->kv = cache_of(kv);
    if (kv->k.dtype == OG_F32) return attn_of<OG_F32>(ex, rows->n, kv, a);
    if (kv->k.dtype == OG_BF16) return attn_of<OG_BF16>(ex, rows->n, kv, a);
    return attn_of<OG_F16>(ex, rows->n, kv, a);
}

int og__cuda_attn_paged(og_exec *ex, og_tensor *y, const og_tensor *q, const og_kv *kv,
                        const og_rows *rows, float scale, int window) {
    attn_args a = {};
    return attend(ex, y, q, kv, rows, scale, window, &a);
}

int og__cuda_append_attend(og_exec *ex, og_tensor *y, const og_tensor *qkv,
                           const og_decoder_layer *l, float eps, const og_tensor *cos,
                           const og_tensor *sin, const og_rows *rows, og_kv *kv, float scale,
                           int window) {
    attn_args a = {};
    a.k = (const float *)qkv[1].data;
    a.v = (const float *)qkv[2].data;
    a.cos = (const float *)cos->data;
    a.sin = (const float *)sin->data;
    a.eps = eps;
    if (og_tensor_present(&l->q_norm)) {
        a.q_norm = l->q_norm.data;
        a.q_norm_t = (int)l->q_norm.dtype;
    }
    if (og_tensor_present(&l->k_norm)) {
        a.k_norm = l->k_norm.data;
        a.k_norm_t = (int)l->k_norm.dtype;
    }
    return attend(ex, y, &qkv[0], kv, rows, scale, window, &a);
}
