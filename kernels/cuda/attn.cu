/* Positions and paged attention.
 *
 * Attention: a block of eight warps for one row and the query heads of one kv head. Keys are
 * taken in groups of 32 that begin at absolute positions divisible by 32; group g belongs to
 * warp g % 8, a lane scores a key, and the warps' results are combined in ascending order. So
 * the order depends on the row's position and window alone, not on batch, chunk or page.
 */
#include "kernels/cuda/launch.cuh"

#include <math_constants.h>

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

/* One warp: x normed and turned in place, then appended at `to` unless it is NULL. */
__device__ void norm_rope(float *x, int dim, const void *w, int t, float eps,
                          const float *cos, const float *sin, void *to, int to_t,
                          int64_t at) {
    int lane = threadIdx.x % WARP, half = dim / 2;
    float scale = 1.0f;
    if (w) {
        float sum = 0.0f;
        for (int i = lane; i < dim; i += WARP) sum = fmaf(x[i], x[i], sum);
        sum = __fdiv_rn(warp_sum(sum), (float)dim);
        scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(sum, eps)));
    }
    for (int i = lane; i < half; i += WARP) {
        float a = x[i], b = x[i + half];
        if (w) {
            a = rms_apply(a, scale, elem(w, t, i));
            b = rms_apply(b, scale, elem(w, t, i + half));
        }
        float u = fmaf(a, cos[i], -__fmul_rn(b, sin[i]));
        float v = fmaf(b, cos[i], __fmul_rn(a, sin[i]));
        x[i] = u;
        x[i + half] = v;
        if (!to) continue;
        elem_set(to, to_t, at + i, u);
        elem_set(to, to_t, at + i + half, v);
    }
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
    const float *cos = a.cos + (int64_t)r * (dim / 2), *sin = a.sin + (int64_t)r * (dim / 2);
    if (h < a.heads) {
        norm_rope(a.q + ((int64_t)r * a.heads + h) * dim, dim, a.q_norm, a.q_norm_t, a.eps,
                  cos, sin, nullptr, 0, 0);
        return;
    }
    int g = (h - a.heads) % a.kv.heads, is_v = h - a.heads >= a.kv.heads;
    int64_t from = ((int64_t)r * a.kv.heads + g) * dim;
    int64_t at = cache_at(a.kv, a.slot[r], a.pos[3 * r], g);
    if (!is_v) {
        norm_rope(a.k + from, dim, a.k_norm, a.k_norm_t, a.eps, cos, sin, a.kv.k, a.kv.dtype,
                  at);
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

/* The lane's key against HG query heads; d ascending, whichever way it is read. */
template <int T, int HG>
__device__ inline void score(const attn_args &a, const float *q, int64_t at, float (&s)[HG]) {
    typedef typename kv_type<T>::store store;
    constexpr int V = kv_type<T>::V;
    const store *k = (const store *)a.kv.k + at;
    int dim = a.kv.dim;
    if (a.vec) {
#pragma unroll 4
        for (int d = 0; d < dim; d += V) {
            uint4 u = *(const uint4 *)(k + d);
            const store *e = (const store *)&u;
#pragma unroll
            for (int i = 0; i < V; i++)
#pragma unroll
                for (int h = 0; h < HG; h++)
                    s[h] = fmaf(q[h * dim + d + i], kv_type<T>::one(e[i]), s[h]);
        }
        return;
    }
    for (int d = 0; d < dim; d++) {
        float v = kv_type<T>::one(k[d]);
#pragma unroll
        for (int h = 0; h < HG; h++) s[h] = fmaf(q[h * dim + d], v, s[h]);
    }
}

/* Lane l holds dimensions i * 32 + l of the results. */
template <int T, int HG, int DV>
__global__ void __launch_bounds__(BLOCK)
    attn_kernel(const __grid_constant__ attn_args a) {
    typedef typename kv_type<T>::store store;
    extern __shared__ float shared[];
    int dim = a.kv.dim, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int r = blockIdx.x, h0 = blockIdx.y * HG, g = h0 / a.group;
    float *q = shared, *sums = q + HG * dim; /* [WARPS][HG][dim] */
    float *tops = sums + WARPS * HG * dim, *masses = tops + WARPS * HG;
    enter();
    int64_t base = ((int64_t)r * a.heads + h0) * dim;
    for (int i = threadIdx.x; i < HG * dim; i += BLOCK) q[i] = a.q[base + i];
    __syncthreads();
    int pos = a.pos[3 * r], slot = a.slot[r];
    int from = a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0;
    float top[HG], mass[HG], acc[HG][DV] = {};
#pragma unroll
    for (int h = 0; h < HG; h++) {
        top[h] = -CUDART_INF_F;
        mass[h] = 0.0f;
    }
    int first = from / WARP;
    first += ((warp - first) % WARPS + WARPS) % WARPS;
    for (int group = first; group <= pos / WARP; group += WARPS) {
        int j = group * WARP + lane, lo = max(from - group * WARP, 0);
        int hi = min(pos - group * WARP + 1, WARP);
        bool live = j >= from && j <= pos;
        int64_t at = live ? cache_at(a.kv, slot, j, g) : 0;
        float s[HG] = {}, p[HG];
        if (live) score<T, HG>(a, q, at, s);
#pragma unroll
        for (int h = 0; h < HG; h++) {
            float v = live ? __fmul_rn(s[h], a.scale) : -CUDART_INF_F;
            float next = fmaxf(top[h], warp_max(v));
            float shrink = expf(__fsub_rn(top[h], next));
            p[h] = live ? expf(__fsub_rn(v, next)) : 0.0f;
            mass[h] = fmaf(mass[h], shrink, warp_sum(p[h]));
            top[h] = next;
#pragma unroll
            for (int i = 0; i < DV; i++) acc[h][i] = __fmul_rn(acc[h][i], shrink);
        }
#pragma unroll 4
        for (int l = lo; l < hi; l++) {
            const store *v = (const store *)a.kv.v + __shfl_sync(ALL_LANES, at, l);
            float x[DV];
#pragma unroll
            for (int i = 0; i < DV; i++)
                x[i] = i * WARP + lane < dim ? kv_type<T>::one(v[i * WARP + lane]) : 0.0f;
#pragma unroll
            for (int h = 0; h < HG; h++) {
                float w = __shfl_sync(ALL_LANES, p[h], l);
#pragma unroll
                for (int i = 0; i < DV; i++) acc[h][i] = fmaf(w, x[i], acc[h][i]);
            }
        }
    }
#pragma unroll
    for (int h = 0; h < HG; h++) {
#pragma unroll
        for (int i = 0; i < DV; i++)
            if (i * WARP + lane < dim)
                sums[(warp * HG + h) * dim + i * WARP + lane] = acc[h][i];
        if (lane == 0) {
            tops[warp * HG + h] = top[h];
            masses[warp * HG + h] = mass[h];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < HG * dim; i += BLOCK) {
        int h = i / dim;
        float m = -CUDART_INF_F, sum = 0.0f, total = 0.0f;
        for (int w = 0; w < WARPS; w++) m = fmaxf(m, tops[w * HG + h]);
        for (int w = 0; w < WARPS; w++) {
            float e = expf(__fsub_rn(tops[w * HG + h], m));
            sum = fmaf(sums[w * HG * dim + i], e, sum);
            total = fmaf(masses[w * HG + h], e, total);
        }
        a.y[base + i] = __fdiv_rn(sum, total);
    }
}

template <int T, int HG, int DV> static int attn_go(og_exec *ex, int rows, attn_args *a) {
    size_t shared =
        ((size_t)(WARPS + 1) * HG * a->kv.dim + (size_t)2 * WARPS * HG) * sizeof(float);
    return launch(ex, "attn_paged", attn_kernel<T, HG, DV>,
                  dim3((unsigned)rows, (unsigned)(a->heads / HG)), dim3(BLOCK), shared, *a);
}

template <int T, int HG> static int attn_dim(og_exec *ex, int rows, attn_args *a) {
    if (a->kv.dim <= 64) return attn_go<T, HG, 2>(ex, rows, a);
    if (a->kv.dim <= 128) return attn_go<T, HG, 4>(ex, rows, a);
    return attn_go<T, HG, 8>(ex, rows, a);
}

template <int T> static int attn_of(og_exec *ex, int rows, attn_args *a) {
    a->vec = a->kv.dim % kv_type<T>::V == 0 && !((uintptr_t)a->kv.k % 16);
    return a->group % 2 ? attn_dim<T, 1>(ex, rows, a) : attn_dim<T, 2>(ex, rows, a);
}

int og__cuda_attn_paged(og_exec *ex, og_tensor *y, const og_tensor *q, const og_kv *kv,
                        const og_rows *rows, float scale, int window) {
    if (q->ne[2] > MAX_DIM)
        return og__fail(ex, OG_ELIMIT, "attn_paged: head_dim %lld (limit is %d)",
                        (long long)q->ne[2], MAX_DIM);
    if (og__measuring(ex)) return 0;
    attn_args a = {};
    a.y = (float *)y->data;
    a.q = (const float *)q->data;
    a.slot = rows->slot;
    a.pos = rows->pos;
    a.heads = (int)q->ne[1];
    a.group = (int)(q->ne[1] / kv->k.ne[2]);
    a.window = window;
    a.scale = scale;
    a.kv = cache_of(kv);
    if (kv->k.dtype == OG_F32) return attn_of<OG_F32>(ex, rows->n, &a);
    if (kv->k.dtype == OG_BF16) return attn_of<OG_BF16>(ex, rows->n, &a);
    return attn_of<OG_F16>(ex, rows->n, &a);
}
