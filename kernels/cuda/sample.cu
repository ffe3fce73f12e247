/* The sampler of kernels/sample.h, one block for each row: no sort. The k-th largest value comes
 * from a count of equal intervals and a look at the one it lies in, the point where the mass is
 * reached from radix selection on the floats' bits, both with integer counts and masses, so
 * that the order of the atomics does not matter.
 *
 * The arithmetic is that of kernels/math.h to the bit: one rounding for each operation, none
 * contracted, hence the intrinsics. */
#include "kernels/cuda/launch.cuh"

#include <math_constants.h>

#define BLOCK 1024
#define BINS 256
#define SLICES (2 * BLOCK) /* intervals below the maximum, each 1 / SLICE wide */
#define SLICE 64.0f
#define IN_SHARED 8192 /* values of a row that are kept beside the kernel */

typedef unsigned long long u64;

__device__ inline float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ inline float add(float a, float b) { return __fadd_rn(a, b); }
__device__ inline float sub(float a, float b) { return __fsub_rn(a, b); }

/* og__expf */
__device__ float exp_exact(float x) {
    if (!(x > -87.0f)) return 0.0f;
    float n = sub(add(mul(x, 1.44269504f), 12582912.0f), 12582912.0f);
    float r = sub(sub(x, mul(n, 0.693359375f)), mul(n, -2.12194440e-4f));
    float p = 1.0f / 5040.0f;
    p = add(mul(p, r), 1.0f / 720.0f);
    p = add(mul(p, r), 1.0f / 120.0f);
    p = add(mul(p, r), 1.0f / 24.0f);
    p = add(mul(p, r), 1.0f / 6.0f);
    p = add(mul(p, r), 0.5f);
    p = add(mul(p, r), 1.0f);
    p = add(mul(p, r), 1.0f);
    return mul(p, __uint_as_float((unsigned)((int)n + 127) << 23));
}

/* og__logf */
__device__ float log_exact(float x) {
    unsigned u = __float_as_uint(x);
    int e = (int)(u >> 23) - 127;
    float m = __uint_as_float((u & 0x007fffffu) | 0x3f800000u);
    if (m > 1.41421356f) {
        m = mul(m, 0.5f);
        e++;
    }
    float s = __fdiv_rn(sub(m, 1.0f), add(m, 1.0f)), s2 = mul(s, s);
    float p = 1.0f / 11.0f;
    p = add(mul(p, s2), 1.0f / 9.0f);
    p = add(mul(p, s2), 1.0f / 7.0f);
    p = add(mul(p, s2), 1.0f / 5.0f);
    p = add(mul(p, s2), 1.0f / 3.0f);
    p = add(mul(p, s2), 1.0f);
    float f = (float)e;
    return add(mul(f, 0.693359375f), add(mul(mul(2.0f, s), p), mul(f, -2.12194440e-4f)));
}

__device__ u64 mass_of(float z) {
    return (u64)mul(exp_exact(z), 1099511627776.0f);
}

__device__ u64 limit_of(float top_p, u64 total) {
    double p = top_p < 0.0f ? 0.0 : (double)top_p;
    return (u64)__dmul_rn(__dsub_rn(1.0, p), (double)total);
}

__device__ float gumbel(unsigned word) {
    float u = mul(add((float)(word >> 9), 0.5f), 1.0f / 8388608.0f);
    return -log_exact(-log_exact(u));
}

/* og_philox for one vocabulary index: the word that it draws. */
__device__ unsigned draw_word(const og_sample_row &row, int index) {
    unsigned k0 = (unsigned)row.seed, k1 = (unsigned)(row.seed >> 32);
    unsigned c0 = (unsigned)index >> 2, c1 = (unsigned)row.count, c2 = row.codebook;
    unsigned c3 = row.stage ^ (unsigned)(row.count >> 32);
    for (int i = 0; i < 10; i++) {
        unsigned ah = __umulhi(0xD2511F53u, c0), al = 0xD2511F53u * c0;
        unsigned bh = __umulhi(0xCD9E8D57u, c2), bl = 0xCD9E8D57u * c2;
        c0 = bh ^ c1 ^ k0;
        c1 = bl;
        c2 = ah ^ c3 ^ k1;
        c3 = al;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return index & 2 ? (index & 1 ? c3 : c2) : (index & 1 ? c1 : c0);
}

/* Unsigned key in the order of the floats; -0 counts as 0. */
__device__ unsigned key_of(float z) {
    unsigned u = __float_as_uint(add(z, 0.0f));
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* ---- block-wide helpers; every thread calls them and gets the result --------------------- */

struct best {
    float v;
    int i;
};

__device__ inline best better(best a, best b) {
    return b.v > a.v || (b.v == a.v && b.i < a.i) ? b : a;
}

__device__ best block_best(best mine, best *shared) {
    for (int d = WARP / 2; d; d >>= 1) {
        best other = {__shfl_xor_sync(ALL_LANES, mine.v, d),
                      __shfl_xor_sync(ALL_LANES, mine.i, d)};
        mine = better(mine, other);
    }
    __syncthreads();
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = mine;
    __syncthreads();
    mine = shared[threadIdx.x % WARP];
    for (int d = WARP / 2; d; d >>= 1) {
        best other = {__shfl_xor_sync(ALL_LANES, mine.v, d),
                      __shfl_xor_sync(ALL_LANES, mine.i, d)};
        mine = better(mine, other);
    }
    return mine;
}

/* What a radix selection has found so far. */
struct found {
    unsigned prefix, mask;
    u64 left; /* of the target */
};

template <typename B> __device__ void clear_bins(B *bins) {
    __syncthreads();
    if (threadIdx.x < BINS) bins[threadIdx.x] = 0;
    __syncthreads();
}

/* By one warp: the first bin (from the top when `down`) at which the running sum reaches
 * f->left becomes the next digit; what lies before it is taken off f->left. */
template <typename B>
__device__ void pick_digit(const B *bins, int down, int shift, found *f) {
    constexpr int PER = BINS / WARP;
    int lane = threadIdx.x;
    u64 own = 0, upto, target = f->left;
    for (int i = 0; i < PER; i++) own += bins[down ? 255 - (lane * PER + i) : lane * PER + i];
    upto = own;
    for (int d = 1; d < WARP; d <<= 1) {
        u64 below = __shfl_up_sync(ALL_LANES, upto, d);
        if (lane >= d) upto += below;
    }
    u64 before = upto - own;
    bool here = before < target && (upto >= target || lane == WARP - 1);
    __syncwarp();
    if (!here) return;
    int o = lane * PER, last = o + PER - 1;
    for (; o < last; o++) {
        u64 n = bins[down ? 255 - o : o];
        if (before + n >= target) break;
        before += n;
    }
    f->left = target - before;
    f->prefix |= (unsigned)(down ? 255 - o : o) << shift;
    f->mask |= 255u << shift;
}

/* Radix selection, eight bits a pass: the key at which the weights of elements, taken in the
 * order of their keys, reach target (from 1). weigh gives 0 for elements that do not count. */
template <typename B, typename Key, typename Weigh>
__device__ unsigned select_key(int n, u64 target, int down, B *bins, found *f, Key key_at,
                               Weigh weigh) {
    if (threadIdx.x == 0) *f = found{0, 0, target};
    for (int shift = 24; shift >= 0; shift -= 8) {
        clear_bins(bins);
        unsigned prefix = f->prefix, mask = f->mask;
        for (int i = threadIdx.x; i < n; i += BLOCK) {
            unsigned key = key_at(i);
            if ((key & mask) != prefix) continue;
            B w = weigh(i, key);
            if (w) atomicAdd(&bins[key >> shift & 255], w);
        }
        __syncthreads();
        if (threadIdx.x < WARP) pick_digit(bins, down, shift, f);
    }
    __syncthreads();
    return f->prefix;
}

struct bin_sets {
    u64 mass[BINS];
    unsigned count[BINS];
    unsigned slices[SLICES], keys[BLOCK];
    unsigned warps[BLOCK / WARP];
    unsigned slice, before, n_keys, key;
    found f;
};

/* Key of the k-th largest of z. */
__device__ unsigned select_count(const float *z, int n, u64 k, bin_sets *b) {
    return select_key(
        n, k, 1, b->count, &b->f, [=](int i) { return key_of(z[i]); },
        [](int, unsigned) { return 1u; });
}

/* The interval of z <= 0; the larger z, the lower. Exact up to the last, where all the rest is. */
__device__ inline int slice_of(float z) {
    float s = mul(-z, SLICE);
    return s < (float)(SLICES - 1) ? (int)s : SLICES - 1;
}

/* Into b->slice the interval where the count from the top reaches k, into b->before the count
 * above it. */
__device__ void pick_slice(unsigned k, bin_sets *b) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    unsigned first = b->slices[2 * threadIdx.x], own = first + b->slices[2 * threadIdx.x + 1];
    unsigned upto = own;
    for (int d = 1; d < WARP; d <<= 1) {
        unsigned below = __shfl_up_sync(ALL_LANES, upto, d);
        if (lane >= d) upto += below;
    }
    if (lane == WARP - 1) b->warps[warp] = upto;
    __syncthreads();
    unsigned others = lane < warp ? b->warps[lane] : 0;
    for (int d = WARP / 2; d; d >>= 1) others += __shfl_xor_sync(ALL_LANES, others, d);
    unsigned before = others + upto - own;
    if (before < k && before + own >= k) {
        int second = before + first < k;
        b->slice = 2 * threadIdx.x + second;
        b->before = second ? before + first : before;
        b->n_keys = 0;
    }
    __syncthreads();
}

/* Key of the k-th largest of z, whose maximum is 0; k at most n. */
__device__ unsigned select_top(const float *z, int n, unsigned k, bin_sets *b) {
    b->slices[threadIdx.x] = b->slices[threadIdx.x + BLOCK] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += BLOCK) atomicAdd(&b->slices[slice_of(z[i])], 1u);
    __syncthreads();
    pick_slice(k, b);
    int slice = b->slice, count = b->slices[slice];
    if (count > BLOCK) return select_count(z, n, k, b);
    for (int i = threadIdx.x; i < n; i += BLOCK)
        if (slice_of(z[i]) == slice) b->keys[atomicAdd(&b->n_keys, 1u)] = key_of(z[i]);
    __syncthreads();
    int mine = threadIdx.x, above = 0;
    if (mine < count) {
        unsigned key = b->keys[mine];
        for (int i = 0; i < count; i++)
            above += b->keys[i] > key || (b->keys[i] == key && i < mine);
        if (above == (int)(k - b->before) - 1) b->key = key;
    }
    __syncthreads();
    return b->key;
}

/* The smallest key at which the mass of all keys from `least` up to it passes limit; *below
 * is the mass under it. */
__device__ unsigned select_mass(const float *z, int n, unsigned least, u64 limit, bin_sets *b,
                                u64 *below) {
    unsigned key = select_key(
        n, limit + 1, 0, b->mass, &b->f, [=](int i) { return key_of(z[i]); },
        [=](int i, unsigned k) { return k >= least ? mass_of(z[i]) : (u64)0; });
    *below = limit + 1 - b->f.left;
    return key;
}

/* The k-th smallest index (k from 1) among the elements with this key. */
__device__ unsigned select_index(const float *z, int n, unsigned key, u64 k, bin_sets *b) {
    return select_key(
        n, k, 0, b->count, &b->f, [](int i) { return (unsigned)i; },
        [=](int i, unsigned) { return key_of(z[i]) == key ? 1u : 0u; });
}

/* What top_k and top_p leave: keys above `key`, and those equal to it up to `last`. */
struct cut {
    unsigned key, last;
};

__device__ cut cut_mass(const float *z, int n, unsigned least, float top_p, bin_sets *b) {
    u64 mine = 0, below;
    clear_bins(b->mass);
    for (int i = threadIdx.x; i < n; i += BLOCK)
        if (key_of(z[i]) >= least) mine += mass_of(z[i]);
    if (mine) atomicAdd(&b->mass[0], mine);
    __syncthreads();
    u64 total = b->mass[0], limit = limit_of(top_p, total);
    if (limit >= total) { /* only the first maximum, z = 0, stays */
        unsigned zero = key_of(0.0f);
        return cut{zero, select_index(z, n, zero, 1, b)};
    }
    unsigned key = select_mass(z, n, least, limit, b, &below);
    clear_bins(b->mass);
    for (int i = threadIdx.x; i < n; i += BLOCK)
        if (key_of(z[i]) == key) {
            atomicAdd(&b->mass[0], (u64)1);
            atomicMax(&b->mass[1], mass_of(z[i])); /* the same for all of them */
        }
    __syncthreads();
    u64 equal = b->mass[0], each = b->mass[1], drop = each ? (limit - below) / each : 0;
    if (!drop) return cut{key, 0xffffffffu};
    return cut{key, select_index(z, n, key, equal - drop, b)};
}

struct sample_args {
    int32_t *ids;
    int64_t ids_step;
    float *logits;
    int64_t ld;
    int vocab, n_stop, in_shared;
    const og_sample_row *rows;
    const int32_t *history;
    int64_t history_ld;
    const uint8_t *allowed;
    const int32_t *stop;
    /* the chosen row of a table goes to y, when table is not NULL */
    const char *table;
    int64_t table_ld, ldy; /* bytes; elements */
    int table_t, table_rows, cols;
    float *y;
    og__cuda_fault *fault;
};

__device__ inline float penalised(float x, int seen, const og_sample_row &row) {
    if (seen <= 0) return x;
    x = x < 0.0f ? mul(x, row.repetition_penalty) : __fdiv_rn(x, row.repetition_penalty);
    return sub(sub(x, row.presence_penalty), mul(row.frequency_penalty, (float)seen));
}

/* Penalties and bans, from the logits into z. */
__device__ void process(const sample_args &a, const og_sample_row &row, int r, float *z) {
    const float *x = a.logits + r * a.ld;
    const int32_t *seen = a.history ? a.history + r * a.history_ld : nullptr;
    for (int i = threadIdx.x; i < a.vocab; i += BLOCK) {
        float v = x[i];
        if (v != v) v = -CUDART_INF_F;
        if (seen) v = penalised(v, seen[i], row);
        if (a.allowed && !a.allowed[i]) v = -CUDART_INF_F;
        z[i] = v;
    }
    __syncthreads();
    if (row.min_tokens > 0 && row.count < (u64)row.min_tokens)
        for (int s = threadIdx.x; s < a.n_stop; s += BLOCK)
            if (a.stop[s] >= 0 && a.stop[s] < a.vocab) z[a.stop[s]] = -CUDART_INF_F;
    __syncthreads();
}

__device__ int choose(const sample_args &a, int r, float *z, bin_sets *bins, best *bests) {
    int n = a.vocab;
    const og_sample_row row = a.rows[r];
    process(a, row, r, z);
    best b = {-CUDART_INF_F, 0x7fffffff};
    for (int i = threadIdx.x; i < n; i += BLOCK) b = better(b, best{z[i], i});
    b = block_best(b, bests);
    if (!(row.temperature > 0.0f) || !(b.v > -CUDART_INF_F && b.v < CUDART_INF_F)) return b.i;
    for (int i = threadIdx.x; i < n; i += BLOCK)
        z[i] = __fdiv_rn(sub(z[i], b.v), row.temperature);
    __syncthreads();
    cut c = {0, 0xffffffffu};
    if (row.top_k > 0 && row.top_k < n) c.key = select_top(z, n, (unsigned)row.top_k, bins);
    if (row.top_p < 1.0f) c = cut_mass(z, n, c.key, row.top_p, bins);
    best top = {-CUDART_INF_F, 0x7fffffff};
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        unsigned key = key_of(z[i]);
        if (key < c.key || !(z[i] > -CUDART_INF_F)) continue;
        if (key == c.key && (unsigned)i > c.last) continue;
        if (!(exp_exact(z[i]) >= row.min_p)) continue;
        float s = add(z[i], gumbel(draw_word(row, i)));
        if (s > -CUDART_INF_F) top = better(top, best{s, i});
    }
    top = block_best(top, bests);
    return top.i == 0x7fffffff ? b.i : top.i;
}

__global__ void __launch_bounds__(BLOCK) sample_kernel(const __grid_constant__ sample_args a) {
    extern __shared__ float near_z[];
    __shared__ bin_sets bins;
    __shared__ best bests[BLOCK / WARP];
    enter();
    int r = blockIdx.x;
    int id = choose(a, r, a.in_shared ? near_z : a.logits + r * a.ld, &bins, bests);
    if (threadIdx.x == 0) a.ids[r * a.ids_step] = id;
    if (!a.table) return;
    int none = id < 0 || id >= a.table_rows;
    if (threadIdx.x == 0 && id >= a.table_rows) {
        a.fault->value = id;
        a.fault->op = OG__FAULT_GATHER;
    }
    const char *from = a.table + (none ? 0 : id) * a.table_ld;
    for (int c = threadIdx.x; c < a.cols; c += 2 * BLOCK) {
        int other = c + BLOCK < a.cols;
        unsigned u = elem_bits(from, a.table_t, c), v = 0;
        if (other) v = elem_bits(from, a.table_t, c + BLOCK);
        a.y[r * a.ldy + c] = none ? 0.0f : elem_value(u, a.table_t);
        if (other) a.y[r * a.ldy + c + BLOCK] = none ? 0.0f : elem_value(v, a.table_t);
    }
}

static int draw(og_exec *ex, og_tensor *ids, og_tensor *logits, const og_sample_row *rows,
                const og_tensor *history, const og_tensor *allowed, const og_tensor *stop_ids,
                sample_args a) {
    a.ids = (int32_t *)ids->data;
    a.ids_step = ids->stride[0];
    a.logits = (float *)logits->data;
    a.ld = logits->stride[0];
    a.vocab = (int)logits->ne[1];
    a.in_shared = a.vocab <= IN_SHARED;
    a.rows = rows;
    if (og_tensor_present(history)) {
        a.history = (const int32_t *)history->data;
        a.history_ld = history->stride[0];
    }
    if (og_tensor_present(allowed)) a.allowed = (const uint8_t *)allowed->data;
    if (og_tensor_present(stop_ids)) {
        a.stop = (const int32_t *)stop_ids->data;
        a.n_stop = (int)stop_ids->ne[0];
    }
    return launch(ex, "sample", sample_kernel, dim3((unsigned)logits->ne[0]), dim3(BLOCK),
                  a.in_shared ? (size_t)a.vocab * sizeof(float) : (size_t)0, a);
}

int og__cuda_sample(og_exec *ex, og_tensor *ids, og_tensor *logits, const og_sample_row *rows,
                    const og_tensor *history, const og_tensor *allowed,
                    const og_tensor *stop_ids) {
    if (og__measuring(ex)) return 0;
    return draw(ex, ids, logits, rows, history, allowed, stop_ids, sample_args());
}

int og__cuda_sample_embed(og_exec *ex, og_tensor *ids, og_tensor *logits,
                          const og_sample_row *rows, const og_tensor *table, og_tensor *y) {
    sample_args a = {};
    og_tensor none = {};
    if (og__measuring(ex)) return 0;
    a.table = (const char *)table->data;
    a.table_ld = table->stride[0] * (int64_t)og_dtype_size(table->dtype);
    a.table_t = (int)table->dtype;
    a.table_rows = (int)table->ne[0];
    a.cols = (int)table->ne[1];
    a.y = (float *)y->data;
    a.ldy = y->stride[0];
    a.fault = og__cuda_exec_of(ex)->fault_dev;
    return draw(ex, ids, logits, rows, &none, &none, &none, a);
}
