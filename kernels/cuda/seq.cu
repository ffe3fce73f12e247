/* Ops over a whole sequence [T, C]. Rows are elementwise. A statistic of a channel is the work
 * of LANES threads: lane l takes rows l, l + LANES, ... in ascending order, in double, and the
 * lanes are added in ascending order, so its bits depend on T alone. Nearest rows are decided
 * by the very sums of the oracle. */
#include "kernels/cuda/launch.cuh"

#define BLOCK 256
#define LANES 8 /* threads of a channel */
#define NEAR_BLOCK 256

struct rows {
    float *y;
    const float *x;
    int64_t ldy, ldx, n; /* elements of y */
    int cols;
};

static rows rows_of(const og__mat *y, const og__mat *x) {
    rows r = {(float *)y->p, (const float *)x->p, y->ld, x->ld, y->rows * y->cols,
              (int)y->cols};
    return r;
}

/* The row of x that stands at time t of the padded sequence; -1: zeros. */
__device__ inline int64_t padded_row(int64_t t, int64_t n, int mode) {
    if (t >= 0 && t < n) return t;
    if (mode == OG_PAD_EDGE) return t < 0 ? 0 : n - 1;
    if (mode == OG_PAD_REFLECT) return t < 0 ? -t : 2 * (n - 1) - t;
    return -1;
}

__global__ void __launch_bounds__(BLOCK)
    pad_kernel(rows r, int64_t left, int64_t n_x, int mode) {
    enter();
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= r.n) return;
    int64_t t = i / r.cols, at = padded_row(t - left, n_x, mode);
    int c = (int)(i % r.cols);
    r.y[t * r.ldy + c] = at < 0 ? 0.0f : r.x[at * r.ldx + c];
}

int og__cuda_pad_time(og_exec *ex, og_tensor *y, const og_tensor *x, int64_t left,
                      og_pad mode) {
    og__mat my = og__mat_of(y), mx = og__mat_of(x);
    rows r = rows_of(&my, &mx);
    return launch(ex, "pad_time", pad_kernel, blocks_for(r.n, BLOCK), dim3(BLOCK), 0, r, left,
                  mx.rows, (int)mode);
}

__global__ void __launch_bounds__(BLOCK) magnitude_kernel(rows r, float eps) {
    enter();
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= r.n) return;
    int64_t t = i / r.cols;
    int c = (int)(i % r.cols);
    float re = r.x[t * r.ldx + c], im = r.x[t * r.ldx + r.cols + c];
    float sum = __fadd_rn(__fadd_rn(__fmul_rn(re, re), __fmul_rn(im, im)), eps);
    r.y[t * r.ldy + c] = __fsqrt_rn(sum);
}

int og__cuda_magnitude(og_exec *ex, og_tensor *y, const og_tensor *x, float eps) {
    og__mat my = og__mat_of(y), mx = og__mat_of(x);
    rows r = rows_of(&my, &mx);
    return launch(ex, "magnitude", magnitude_kernel, blocks_for(r.n, BLOCK), dim3(BLOCK), 0, r,
                  eps);
}

__global__ void __launch_bounds__(BLOCK) log_kernel(rows r, float floor) {
    enter();
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= r.n) return;
    int64_t t = i / r.cols;
    int c = (int)(i % r.cols);
    float v = r.x[t * r.ldx + c];
    r.y[t * r.ldy + c] = (float)log((double)(v < floor ? floor : v));
}

int og__cuda_log_floor(og_exec *ex, og_tensor *y, const og_tensor *x, float floor) {
    og__mat my = og__mat_of(y), mx = og__mat_of(x);
    rows r = rows_of(&my, &mx);
    return launch(ex, "log_floor", log_kernel, blocks_for(r.n, BLOCK), dim3(BLOCK), 0, r,
                  floor);
}

/* ---- statistics over time: a block is WARP channels by LANES rows --------------------------- */

/* The sum of the lanes' values in each of the block's channels, seen by all its threads. */
__device__ inline double over_lanes(double v, double (*part)[WARP]) {
    __syncthreads();
    part[threadIdx.y][threadIdx.x] = v;
    __syncthreads();
    double sum = part[0][threadIdx.x];
    for (int l = 1; l < LANES; l++) sum = __dadd_rn(sum, part[l][threadIdx.x]);
    return sum;
}

__device__ inline double max_over_lanes(double v, double (*part)[WARP]) {
    __syncthreads();
    part[threadIdx.y][threadIdx.x] = v;
    __syncthreads();
    double most = part[0][threadIdx.x];
    for (int l = 1; l < LANES; l++) most = fmax(most, part[l][threadIdx.x]);
    return most;
}

__global__ void __launch_bounds__(WARP *LANES) softmax_kernel(rows r, int64_t n_rows) {
    __shared__ double part[LANES][WARP];
    enter();
    int c = blockIdx.x * WARP + threadIdx.x;
    int64_t last = c < r.cols ? n_rows : 0; /* threads past the channels only keep company */
    float most = -INFINITY;
    for (int64_t t = threadIdx.y; t < last; t += LANES) most = fmaxf(most, r.x[t * r.ldx + c]);
    most = (float)max_over_lanes((double)most, part);
    double sum = 0.0;
    for (int64_t t = threadIdx.y; t < last; t += LANES)
        sum = __dadd_rn(sum, (double)expf(__fsub_rn(r.x[t * r.ldx + c], most)));
    float all = (float)over_lanes(sum, part);
    for (int64_t t = threadIdx.y; t < last; t += LANES)
        r.y[t * r.ldy + c] = __fdiv_rn(expf(__fsub_rn(r.x[t * r.ldx + c], most)), all);
}

int og__cuda_softmax_time(og_exec *ex, og_tensor *y, const og_tensor *x) {
    if (og__measuring(ex)) return 0;
    og__mat my = og__mat_of(y), mx = og__mat_of(x);
    rows r = rows_of(&my, &mx);
    return launch(ex, "softmax_time", softmax_kernel, blocks_for(r.cols, WARP),
                  dim3(WARP, LANES), 0, r, my.rows);
}

struct weighted {
    const float *x, *w; /* w: NULL where all rows weigh the same */
    int64_t ldx, ldw, rows;
    int cols;
};

/* Sum of w * (x - shift)^power over the rows of this lane. */
__device__ inline double lane_sum(const weighted &in, int c, double shift, int power) {
    double sum = 0.0;
    for (int64_t t = threadIdx.y; c < in.cols && t < in.rows; t += LANES) {
        double v = __dsub_rn((double)in.x[t * in.ldx + c], shift);
        if (power == 2) v = __dmul_rn(v, v);
        if (in.w) v = __dmul_rn((double)in.w[t * in.ldw + c], v);
        sum = __dadd_rn(sum, v);
    }
    return sum;
}

__global__ void __launch_bounds__(WARP *LANES)
    stats_kernel(float *mean, float *std, weighted in, float floor) {
    __shared__ double part[LANES][WARP];
    enter();
    int c = blockIdx.x * WARP + threadIdx.x, write = c < in.cols && threadIdx.y == 0;
    double m = over_lanes(lane_sum(in, c, 0.0, 1), part);
    if (!in.w) m = __ddiv_rn(m, (double)in.rows);
    if (write) mean[c] = (float)m;
    if (!std) return;
    double v = over_lanes(lane_sum(in, c, m, 2), part);
    if (!in.w) v = __ddiv_rn(v, (double)in.rows);
    if (write) std[c] = (float)__dsqrt_rn(v < (double)floor ? (double)floor : v);
}

int og__cuda_time_stats(og_exec *ex, og_tensor *mean, og_tensor *std, const og_tensor *x,
                        const og_tensor *w, float floor) {
    og__mat mx = og__mat_of(x);
    weighted in = {(const float *)mx.p, nullptr, mx.ld, 0, mx.rows, (int)mx.cols};
    if (og_tensor_present(w)) {
        og__mat mw = og__mat_of(w);
        in.w = (const float *)mw.p;
        in.ldw = mw.ld;
    }
    float *to = og_tensor_present(std) ? (float *)std->data : nullptr;
    return launch(ex, "time_stats", stats_kernel, blocks_for(in.cols, WARP),
                  dim3(WARP, LANES), 0, (float *)mean->data, to, in, floor);
}

/* ---- nearest row: a block for a row of x, a thread for every NEAR_BLOCK-th row of the table -- */

struct nearest {
    double distance;
    int index;
};

__device__ inline nearest nearer(nearest a, nearest b) {
    bool second = b.distance < a.distance || (b.distance == a.distance && b.index < a.index);
    return second ? b : a;
}

__device__ inline double distance(const float *x, const float *row, int cols) {
    double sum = 0.0;
    for (int c = 0; c < cols; c++) {
        double d = __dsub_rn((double)x[c], (double)row[c]);
        sum = __dadd_rn(sum, __dmul_rn(d, d));
    }
    return sum;
}

__global__ void __launch_bounds__(NEAR_BLOCK)
    nearest_kernel(int32_t *ids, int64_t step, const float *x, int64_t ldx, int cols,
                   const float *table, int64_t ldt, int n) {
    __shared__ nearest all[NEAR_BLOCK];
    enter();
    const float *row = x + blockIdx.x * ldx;
    nearest best = {INFINITY, INT32_MAX};
    for (int i = threadIdx.x; i < n; i += NEAR_BLOCK) {
        double d = distance(row, table + i * ldt, cols);
        if (d < best.distance) best = {d, i};
    }
    all[threadIdx.x] = best;
    for (int half = NEAR_BLOCK / 2; half; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            all[threadIdx.x] = nearer(all[threadIdx.x], all[threadIdx.x + half]);
    }
    /* no distance is a number: the first row, as in the oracle */
    if (threadIdx.x == 0) ids[blockIdx.x * step] = all[0].index == INT32_MAX ? 0 : all[0].index;
}

int og__cuda_rvq_nearest(og_exec *ex, og_tensor *ids, const og_tensor *x,
                         const og_tensor *table) {
    if (og__measuring(ex)) return 0;
    og__mat mx = og__mat_of(x), mt = og__mat_of(table);
    return launch(ex, "rvq_nearest", nearest_kernel, dim3((unsigned)mx.rows), dim3(NEAR_BLOCK),
                  0, (int32_t *)ids->data, ids->stride[0], (const float *)mx.p, mx.ld,
                  (int)mx.cols, (const float *)mt.p, mt.ld, (int)mt.rows);
}
