/* Copies, fills, rows by index, row programs. One thread for each element. */
#include "kernels/cuda/launch.cuh"

#define BLOCK 256

struct view {
    char *data;
    int64_t ne[OG_MAX_RANK], stride[OG_MAX_RANK];
    int rank, dtype, size;
};

static view view_of(const og_tensor *t) {
    view v = {};
    v.data = (char *)t->data;
    v.rank = t->rank;
    v.dtype = t->dtype;
    v.size = (int)og_dtype_size(t->dtype);
    for (int i = 0; i < t->rank; i++) {
        v.ne[i] = t->ne[i];
        v.stride[i] = t->stride[i];
    }
    return v;
}

/* One element of any dtype, as a double and as an integer. */
struct number {
    double f;
    long long i;
};

__device__ unsigned long long load_bytes(const char *p, int size) {
    unsigned long long u = 0;
    for (int b = 0; b < size; b++) u |= (unsigned long long)(unsigned char)p[b] << 8 * b;
    return u;
}

__device__ void store_bytes(char *p, unsigned long long u, int size) {
    for (int b = 0; b < size; b++) p[b] = (char)(u >> 8 * b);
}

/* What does not fit an integer, NaN included, becomes 0. */
__device__ number from_double(double f) {
    number n = {f, f > -9.2e18 && f < 9.2e18 ? (long long)f : 0};
    return n;
}

__device__ number from_int(long long i) {
    number n = {(double)i, i};
    return n;
}

__device__ number read_one(const char *p, int t, int size) {
    if (t == OG_F64) return from_double(__longlong_as_double((long long)load_bytes(p, 8)));
    if (t == OG_F32 || t == OG_BF16 || t == OG_F16 || t == OG_F8_E4M3 || t == OG_F8_E5M2)
        return from_double((double)elem(p, t, 0));
    unsigned long long u = load_bytes(p, size);
    switch (t) {
    case OG_I32: return from_int((int)u);
    case OG_I16: return from_int((short)u);
    case OG_I8: return from_int((signed char)u);
    case OG_U64: {
        number n = {(double)u, (long long)u};
        return n;
    }
    default: return from_int((long long)u);
    }
}

__device__ unsigned long long bits_of(number n, int t) {
    float f = (float)n.f;
    switch (t) {
    case OG_F64: return (unsigned long long)__double_as_longlong(n.f);
    case OG_F32: return __float_as_uint(f);
    case OG_BF16: return narrow_bf16(f);
    case OG_F16: return __half_as_ushort(__float2half_rn(f));
    case OG_BOOL: return n.f != 0.0;
    default: return (unsigned long long)n.i;
    }
}

__device__ char *at_index(const view &v, const view &shape, int64_t n) {
    int64_t off = 0;
    for (int i = shape.rank - 1; i >= 0; i--) {
        off += n % shape.ne[i] * v.stride[i];
        n /= shape.ne[i];
    }
    return v.data + off * v.size;
}

__global__ void __launch_bounds__(BLOCK) copy_kernel(view y, view x, int64_t n) {
    enter();
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    const char *from = at_index(x, y, i);
    char *to = at_index(y, y, i);
    if (x.dtype == y.dtype) store_bytes(to, load_bytes(from, x.size), x.size);
    else store_bytes(to, bits_of(read_one(from, x.dtype, x.size), y.dtype), y.size);
}

__global__ void __launch_bounds__(BLOCK) copy_words(uint4 *y, const uint4 *x, int64_t n) {
    enter();
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] = x[i];
}

int og__cuda_copy(og_exec *ex, og_tensor *y, const og_tensor *x) {
    int64_t n = og_tensor_count(y);
    size_t bytes = og_tensor_bytes(y);
    if (x->dtype == y->dtype && og_tensor_dense(x) && og_tensor_dense(y) &&
        !(((uintptr_t)x->data | (uintptr_t)y->data | bytes) % 16))
        return launch(ex, "copy", copy_words, blocks_for((int64_t)bytes / 16, BLOCK),
                      dim3(BLOCK), 0, (uint4 *)y->data, (const uint4 *)x->data,
                      (int64_t)bytes / 16);
    return launch(ex, "copy", copy_kernel, blocks_for(n, BLOCK), dim3(BLOCK), 0, view_of(y),
                  view_of(x), n);
}

__global__ void __launch_bounds__(BLOCK) fill_kernel(view y, float v, int64_t n) {
    enter();
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) store_bytes(at_index(y, y, i), bits_of(from_double((double)v), y.dtype), y.size);
}

int og__cuda_fill(og_exec *ex, og_tensor *y, float v) {
    int64_t n = og_tensor_count(y);
    return launch(ex, "fill", fill_kernel, blocks_for(n, BLOCK), dim3(BLOCK), 0, view_of(y), v,
                  n);
}

/* ---- rows by index ------------------------------------------------------------------------ */

struct table {
    const char *p;
    int64_t ld, rows; /* ld in bytes */
    int dtype;
};

static table table_of(const og_tensor *t) {
    table b = {(const char *)t->data, t->stride[0] * (int64_t)og_dtype_size(t->dtype),
               t->ne[0], (int)t->dtype};
    return b;
}

__device__ void report(og__cuda_fault *fault, int op, int value) {
    fault->value = value;
    fault->op = op;
}

__global__ void __launch_bounds__(BLOCK)
    gather_kernel(float *y, int64_t ldy, int cols, int64_t n, table t, const int32_t *ids,
                  int64_t step, og__cuda_fault *fault) {
    enter();
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    int64_t r = i / cols;
    int c = (int)(i % cols), id = ids[r * step];
    if (id >= t.rows && c == 0) report(fault, OG__FAULT_GATHER, id);
    int none = id < 0 || id >= t.rows;
    y[r * ldy + c] = none ? 0.0f : elem(t.p + id * t.ld, t.dtype, c);
}

int og__cuda_gather_rows(og_exec *ex, og_tensor *y, const og_tensor *t,
                         const og_tensor *ids) {
    og__mat m;
    og__mat_as(y, t->ne[1], &m);
    int64_t n = m.rows * m.cols;
    return launch(ex, "gather_rows", gather_kernel, blocks_for(n, BLOCK), dim3(BLOCK), 0,
                  (float *)m.p, m.ld, (int)m.cols, n, table_of(t),
                  (const int32_t *)ids->data, ids->stride[0],
                  og__cuda_exec_of(ex)->fault_dev);
}

__global__ void __launch_bounds__(BLOCK)
    scatter_kernel(char *y, int64_t ldy, int64_t rows, const char *x, int64_t ldx, int size,
                   int cols, int64_t n, const int32_t *ids, int64_t step,
                   og__cuda_fault *fault) {
    enter();
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    int64_t r = i / cols;
    int c = (int)(i % cols), id = ids[r * step];
    if (id < 0) return;
    if (id >= rows) {
        if (c == 0) report(fault, OG__FAULT_SCATTER, id);
        return;
    }
    char *to = y + (id * ldy + c) * size;
    const char *from = x + (r * ldx + c) * size;
    if (size == 4) *(unsigned *)to = *(const unsigned *)from;
    else store_bytes(to, load_bytes(from, size), size);
}

int og__cuda_scatter_rows(og_exec *ex, og_tensor *y, const og_tensor *x,
                          const og_tensor *ids) {
    og__mat my = og__mat_of(y), mx;
    og__mat_as(x, my.cols, &mx);
    int64_t n = mx.rows * mx.cols;
    return launch(ex, "scatter_rows", scatter_kernel, blocks_for(n, BLOCK), dim3(BLOCK), 0,
                  my.p, my.ld, my.rows, (const char *)mx.p, mx.ld,
                  (int)og_dtype_size(x->dtype), (int)mx.cols, n, (const int32_t *)ids->data,
                  ids->stride[0], og__cuda_exec_of(ex)->fault_dev);
}

struct tables {
    table t[OG__CUDA_TABLES];
    int n;
};

/* The first term is taken as it is: that keeps the sign of a lone -0. */
__global__ void __launch_bounds__(BLOCK)
    row_sum_kernel(float *y, int64_t ldy, int cols, const __grid_constant__ tables all,
                   const int32_t *off, const int32_t *which, const int32_t *index,
                   og__cuda_fault *fault) {
    enter();
    int r = blockIdx.x, from = off[r], to = off[r + 1];
    for (int c = threadIdx.x; c < cols; c += BLOCK) {
        float sum = 0.0f;
        for (int j = from; j < to; j++) {
            int t = which[j], i = index[j];
            if (t < 0 || t >= all.n || i < 0 || i >= all.t[t].rows) {
                report(fault, OG__FAULT_ROW_SUM, r);
                continue;
            }
            float v = elem(all.t[t].p + i * all.t[t].ld, all.t[t].dtype, c);
            sum = j == from ? v : __fadd_rn(sum, v);
        }
        y[r * ldy + c] = sum;
    }
}

int og__cuda_row_sum(og_exec *ex, og_tensor *y, const og_row_prog *prog) {
    og__mat m = og__mat_of(y);
    if (prog->n_tables > OG__CUDA_TABLES)
        return og__fail(ex, OG_ELIMIT, "row_sum: %d tables (limit is %d)", prog->n_tables,
                        OG__CUDA_TABLES);
    tables all = {};
    all.n = prog->n_tables;
    for (int i = 0; i < prog->n_tables; i++) all.t[i] = table_of(&prog->tables[i]);
    return launch(ex, "row_sum", row_sum_kernel, dim3((unsigned)m.rows), dim3(BLOCK), 0,
                  (float *)m.p, m.ld, (int)m.cols, all, prog->off, prog->table, prog->index,
                  og__cuda_exec_of(ex)->fault_dev);
}

__device__ void depth_pass(const og__depth_pass &p) {
    int s = blockIdx.x * BLOCK + threadIdx.x, per = p.pass ? 1 : 2;
    if (s == 0) p.cu[p.n_seq] = p.n_seq * per;
    if (s >= p.n_seq) return;
    p.params[s] = p.given[s];
    p.params[s].codebook = (uint32_t)p.pass + 1;
    p.cu[s] = s * per;
    for (int i = 0; i < per; i++) {
        int r = s * per + i, pos = p.pass ? p.pass + 1 : i;
        p.slot[r] = p.slots[s];
        p.pos[3 * r] = p.pos[3 * r + 1] = p.pos[3 * r + 2] = pos;
    }
}

/* Pass first.pass + blockIdx.y. */
__global__ void __launch_bounds__(BLOCK) depth_pass_kernel(og__depth_pass first) {
    enter();
    og__depth_pass p = first;
    int later = blockIdx.y, n = first.n_seq;
    if (later) {
        p.pass = later;
        p.slot += 2 * n;
        p.cu += n + 1;
        p.pos += 3 * (later + 1) * n;
        p.params += later * n;
    }
    depth_pass(p);
}

int og__cuda_depth_pass(og_exec *ex, const og__depth_pass *pass) {
    return launch(ex, "depth_ar", depth_pass_kernel, blocks_for(pass->n_seq, BLOCK),
                  dim3(BLOCK), 0, *pass);
}

int og__cuda_depth_passes(og_exec *ex, const og__depth_pass *first, int n) {
    dim3 grid = blocks_for(first->n_seq, BLOCK);
    grid.y = (unsigned)n;
    return launch(ex, "depth_ar", depth_pass_kernel, grid, dim3(BLOCK), 0, *first);
}
