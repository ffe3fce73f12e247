/* Elementwise ops and norms. Elementwise: one thread for each element; norms: a warp for each
 * row. */
#include "kernels/cuda/launch.cuh"

#define BLOCK 256
#define ROW_FLOATS 8192 /* of a row in shared memory */
#define WARPS (BLOCK / WARP)

/* Rows of one width, each operand with its own stride. */
struct shape {
    int64_t n;
    int cols;
};

struct place {
    int64_t row;
    int col;
};

__device__ inline bool locate(const shape &s, place *at) {
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= s.n) return false;
    if (s.n < 0x7fffffff) {
        unsigned r = (unsigned)i / (unsigned)s.cols;
        at->row = r;
        at->col = (int)((unsigned)i - r * (unsigned)s.cols);
    } else {
        at->row = i / s.cols;
        at->col = (int)(i - at->row * s.cols);
    }
    return true;
}

static shape shape_of(const og__mat *m) {
    shape s = {m->rows * m->cols, (int)m->cols};
    return s;
}

__global__ void __launch_bounds__(BLOCK)
    unary_kernel(float *y, int64_t ldy, const float *x, int64_t ldx, shape s, int act) {
    enter();
    place at;
    if (locate(s, &at)) y[at.row * ldy + at.col] = activate(x[at.row * ldx + at.col], act);
}

int og__cuda_unary(og_exec *ex, og_tensor *y, const og_tensor *x, og_act act) {
    og__mat my = og__mat_of(y), mx = og__mat_of(x);
    shape s = shape_of(&my);
    return launch(ex, "unary", unary_kernel, blocks_for(s.n, BLOCK), dim3(BLOCK), 0,
                  (float *)my.p, my.ld, (const float *)mx.p, mx.ld, s, (int)act);
}

__global__ void __launch_bounds__(BLOCK)
    binary_kernel(float *y, int64_t ldy, const float *a, int64_t lda, const float *b,
                  int64_t ldb, shape s, int op) {
    enter();
    place at;
    if (!locate(s, &at)) return;
    float u = a[at.row * lda + at.col], v = b[at.row * ldb + at.col], r;
    switch (op) {
    case OG_ADD: r = __fadd_rn(u, v); break;
    case OG_SUB: r = __fsub_rn(u, v); break;
    case OG_MUL: r = __fmul_rn(u, v); break;
    default: r = __fdiv_rn(u, v);
    }
    y[at.row * ldy + at.col] = r;
}

int og__cuda_binary(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                    og_binary op) {
    og__mat my = og__mat_of(y), ma = og__mat_of(a), mb = og__mat_of(b);
    shape s = shape_of(&my);
    int stretch = b->rank == 1 && a->rank > 1;
    return launch(ex, "binary", binary_kernel, blocks_for(s.n, BLOCK), dim3(BLOCK), 0,
                  (float *)my.p, my.ld, (const float *)ma.p, ma.ld, (const float *)mb.p,
                  stretch ? (int64_t)0 : mb.ld, s, (int)op);
}

__global__ void __launch_bounds__(BLOCK)
    scaled_add_kernel(float *y, int64_t ldy, const float *a, int64_t lda, const float *b,
                      int64_t ldb, const void *scale, int t, shape s) {
    enter();
    place at;
    if (!locate(s, &at)) return;
    float v = b[at.row * ldb + at.col];
    if (scale) v = __fmul_rn(v, elem(scale, t, at.col));
    y[at.row * ldy + at.col] = __fadd_rn(a[at.row * lda + at.col], v);
}

int og__cuda_scaled_add(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                        const og_tensor *scale) {
    if (og__measuring(ex)) return 0;
    og__mat my = og__mat_of(y), ma = og__mat_of(a), mb = og__mat_of(b);
    shape s = shape_of(&my);
    int has = og_tensor_present(scale);
    return launch(ex, "scaled_add", scaled_add_kernel, blocks_for(s.n, BLOCK), dim3(BLOCK), 0,
                  (float *)my.p, my.ld, (const float *)ma.p, ma.ld, (const float *)mb.p, mb.ld,
                  has ? (const void *)scale->data : nullptr, has ? (int)scale->dtype : 0, s);
}

/* sin(x)^2: the period is pi and the sign does not matter, so pi is taken off in three parts
 * and a Taylor polynomial to degree 13 is left. Good for |x| < 2^17 or so. */
__device__ inline float sin_squared(float x) {
    float n = rintf(__fmul_rn(x, 0.318309886f));
    float r = fmaf(n, -3.140625f, x);
    r = fmaf(n, -9.67502593994140625e-4f, r);
    r = fmaf(n, -1.509957990978376432e-7f, r);
    float r2 = __fmul_rn(r, r), p = 1.0f / 6227020800.0f;
    p = fmaf(p, r2, -1.0f / 39916800.0f);
    p = fmaf(p, r2, 1.0f / 362880.0f);
    p = fmaf(p, r2, -1.0f / 5040.0f);
    p = fmaf(p, r2, 1.0f / 120.0f);
    p = fmaf(p, r2, -1.0f / 6.0f);
    float s = fmaf(__fmul_rn(p, r2), r, r);
    return __fmul_rn(s, s);
}

__global__ void __launch_bounds__(BLOCK)
    snake_kernel(float *y, int64_t ldy, const float *x, int64_t ldx, const float *alpha,
                 const float *inv_beta, shape s) {
    enter();
    place at;
    if (!locate(s, &at)) return;
    float v = x[at.row * ldx + at.col];
    /* the product is rounded as in the public models; at large arguments it matters */
    float q = sin_squared(__fmul_rn(v, alpha[at.col]));
    y[at.row * ldy + at.col] = fmaf(q, inv_beta[at.col], v);
}

int og__cuda_snake(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *alpha,
                   const og_tensor *inv_beta) {
    og__mat my = og__mat_of(y), mx = og__mat_of(x);
    shape s = shape_of(&my);
    return launch(ex, "snake", snake_kernel, blocks_for(s.n, BLOCK), dim3(BLOCK), 0,
                  (float *)my.p, my.ld, (const float *)mx.p, mx.ld, (const float *)alpha->data,
                  (const float *)inv_beta->data, s);
}

__global__ void __launch_bounds__(BLOCK)
    clamp_kernel(float *y, int64_t ldy, const float *x, int64_t ldx, float lo, float hi,
                 shape s) {
    enter();
    place at;
    if (!locate(s, &at)) return;
    float v = x[at.row * ldx + at.col];
    y[at.row * ldy + at.col] = v < lo ? lo : v > hi ? hi : v;
}

int og__cuda_clamp(og_exec *ex, og_tensor *y, const og_tensor *x, float lo, float hi) {
    og__mat my = og__mat_of(y), mx = og__mat_of(x);
    shape s = shape_of(&my);
    return launch(ex, "clamp", clamp_kernel, blocks_for(s.n, BLOCK), dim3(BLOCK), 0,
                  (float *)my.p, my.ld, (const float *)mx.p, mx.ld, lo, hi, s);
}

/* ---- norms -------------------------------------------------------------------------------- */

__global__ void __launch_bounds__(BLOCK)
    rms_norm_kernel(float *y, int64_t ldy, const float *x, int64_t ldx, int rows, int cols,
                    int vec, const void *w, int t, float eps) {
    enter();
    int r = blockIdx.x * WARPS + threadIdx.x / WARP;
    if (r >= rows) return;
    const float *from = x + r * ldx;
    float *to = y + r * ldy, scale = rms_scale(from, cols, eps, vec);
    for (int c = threadIdx.x % WARP; c < cols; c += WARP)
        to[c] = rms_apply(from[c], scale, elem(w, t, c));
}

/* A block for a row, for few rows: the sum is still one warp's, from shared memory. */
__global__ void __launch_bounds__(BLOCK)
    rms_norm_row_kernel(float *y, int64_t ldy, const float *x, int64_t ldx, int cols,
                        const void *w, int t, float eps) {
    __shared__ float4 row[ROW_FLOATS / 4];
    __shared__ float shared_scale;
    float *v = (float *)row;
    unsigned bits[4]; /* of the first weights */
    enter_early();
#pragma unroll
    for (int i = 0; i < 4; i++)
        if ((int)threadIdx.x + i * BLOCK < cols)
            bits[i] = elem_bits(w, t, threadIdx.x + i * BLOCK);
    enter_wait();
    const float *from = x + blockIdx.x * ldx;
    float *to = y + blockIdx.x * ldy;
#pragma unroll 4
    for (int c = threadIdx.x; c < cols; c += BLOCK) v[c] = from[c];
    __syncthreads();
    if (threadIdx.x < WARP) {
        float scale = rms_scale(v, cols, eps, cols % 4 == 0);
        if (threadIdx.x == 0) shared_scale = scale;
    }
    __syncthreads();
    for (int c0 = threadIdx.x; c0 < cols; c0 += 4 * BLOCK) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int c = c0 + i * BLOCK, next = c + 4 * BLOCK;
            if (c >= cols) continue;
            to[c] = rms_apply(v[c], shared_scale, elem_value(bits[i], t));
            if (next < cols) bits[i] = elem_bits(w, t, next);
        }
    }
}

int og__cuda_rms_norm(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                      float eps) {
    if (og__measuring(ex)) return 0;
    og__mat my = og__mat_of(y), mx = og__mat_of(x);
    if (mx.cols <= ROW_FLOATS && mx.cols >= BLOCK)
        return launch(ex, "rms_norm", rms_norm_row_kernel, dim3((unsigned)mx.rows),
                      dim3(BLOCK), 0, (float *)my.p, my.ld, (const float *)mx.p, mx.ld,
                      (int)mx.cols, (const void *)w->data, (int)w->dtype, eps);
    return launch(ex, "rms_norm", rms_norm_kernel, blocks_for(mx.rows, WARPS), dim3(BLOCK), 0,
                  (float *)my.p, my.ld, (const float *)mx.p, mx.ld, (int)mx.rows,
                  (int)mx.cols, is_vec4(mx.p, mx.ld, mx.cols), (const void *)w->data,
                  (int)w->dtype, eps);
}

__global__ void __launch_bounds__(BLOCK)
    layer_norm_kernel(float *y, int64_t ldy, const float *x, int64_t ldx, int rows, int cols,
                      const void *w, int tw, const void *b, int tb, float eps) {
    enter();
    int r = blockIdx.x * WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (r >= rows) return;
    const float *from = x + r * ldx;
    float *to = y + r * ldy, sum = 0.0f, square = 0.0f;
    for (int c = lane; c < cols; c += WARP) sum = __fadd_rn(sum, from[c]);
    float mean = __fdiv_rn(warp_sum(sum), (float)cols);
    for (int c = lane; c < cols; c += WARP) {
        float d = __fsub_rn(from[c], mean);
        square = fmaf(d, d, square);
    }
    float var = __fdiv_rn(warp_sum(square), (float)cols);
    float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(var, eps)));
    for (int c = lane; c < cols; c += WARP) {
        float v = __fmul_rn(__fmul_rn(__fsub_rn(from[c], mean), scale), elem(w, tw, c));
        to[c] = b ? __fadd_rn(v, elem(b, tb, c)) : v;
    }
}

int og__cuda_layer_norm(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                        const og_tensor *b, float eps) {
    if (og__measuring(ex)) return 0;
    og__mat my = og__mat_of(y), mx = og__mat_of(x);
    int has = og_tensor_present(b);
    return launch(ex, "layer_norm", layer_norm_kernel, blocks_for(mx.rows, WARPS), dim3(BLOCK),
                  0, (float *)my.p, my.ld, (const float *)mx.p, mx.ld, (int)mx.rows,
                  (int)mx.cols, (const void *)w->data, (int)w->dtype,
                  has ? (const void *)b->data : nullptr, has ? (int)b->dtype : 0, eps);
}
