/* Convolutions over packed rows. The sums are the dot family's (dot.h); here are the depthwise
 * kernel and the moving of states, which follows in a launch of its own, since every block of
 * the convolution reads the old state. */
#include "kernels/cuda/dot.h"
#include "kernels/cuda/launch.cuh"

#define BLOCK 256

/* state of a segment = the last `depth` columns of [state, x]. One thread takes all columns
 * of a channel in ascending order: what it overwrites it has already read. */
__global__ void __launch_bounds__(BLOCK)
    push_kernel(float *state, const float *x, int64_t ldx, int depth, int channels,
                const int32_t *cu, const int32_t *slot) {
    enter();
    int s = blockIdx.y, c = blockIdx.x * BLOCK + threadIdx.x, first = cu[s];
    int n = cu[s + 1] - first;
    if (c >= channels || n <= 0) return;
    float *to = state + (int64_t)slot[first] * depth * channels + c;
    for (int i = 0; i < depth; i++) {
        int t = i + n - depth;
        to[(int64_t)i * channels] = t >= 0 ? x[(int64_t)(first + t) * ldx + c]
                                           : to[(int64_t)(i + n) * channels];
    }
}

static int push(og_exec *ex, const char *op, og_tensor *state, const og__mat *x,
                const og_rows *rows, int64_t depth) {
    if (!depth) return 0;
    dim3 grid = blocks_for(x->cols, BLOCK);
    grid.y = (unsigned)rows->n_seg;
    return launch(ex, op, push_kernel, grid, dim3(BLOCK), 0, (float *)state->data,
                  (const float *)x->p, x->ld, (int)depth, (int)x->cols, rows->cu, rows->slot);
}

static void conv_inputs(og__dot *d, const og__mat *x, const og_tensor *w, og_tensor *state,
                        const og_rows *rows, int dilation) {
    d->x = (const float *)x->p;
    d->ldx = x->ld;
    d->m = (int)x->rows;
    d->channels = (int)w->ne[2];
    d->taps = (int)w->ne[1];
    d->k = d->channels * d->taps;
    d->dilation = dilation;
    d->cu = rows->cu;
    d->slot = rows->slot;
    d->n_seg = rows->n_seg;
    d->x_vec = is_vec4(x->p, x->ld, x->cols);
    if (d->taps > 1) {
        d->state = (const float *)state->data;
        d->x_vec &= !((uintptr_t)state->data % 16);
    }
}

/* y has w's rows as its width. A bias shorter than that repeats. */
static int convolve(og_exec *ex, const char *op, const og__mat *y, const og__mat *x,
                    const og_tensor *w, const og_tensor *bias, og_tensor *state,
                    const og_rows *rows, int dilation, const og_epilogue *epi) {
    og__dot d = {};
    conv_inputs(&d, x, w, state, rows, dilation);
    d.n_out = 1;
    d.out[0].w = w->data;
    d.out[0].ldw = d.k;
    d.out[0].n = (int)w->ne[0];
    d.out[0].y = (float *)y->p;
    d.out[0].ldy = y->ld;
    if (og_tensor_present(bias)) {
        d.out[0].bias = bias->data;
        d.out[0].bias_t = (int)bias->dtype;
        d.bias_mod = (int)og_tensor_count(bias);
    }
    if (epi) {
        og__mat r;
        d.act = (int)epi->act;
        if (epi->scale) {
            d.scale = epi->scale->data;
            d.scale_t = (int)epi->scale->dtype;
        }
        if (epi->residual && og__mat_as(epi->residual, w->ne[0], &r)) {
            d.residual = (const float *)r.p;
            d.ldr = r.ld;
        }
    }
    OG__CHECK(og__cuda_dot(ex, op, w->dtype, &d));
    return push(ex, op, state, x, rows, (int64_t)(d.taps - 1) * dilation);
}

int og__cuda_conv1d(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                    const og_tensor *bias, og_tensor *state, const og_rows *rows,
                    int dilation, const og_epilogue *epi) {
    if (og__measuring(ex)) return 0;
    og__mat mx = og__mat_of(x), my = og__mat_of(y);
    return convolve(ex, "conv1d", &my, &mx, w, bias, state, rows, dilation, epi);
}

/* The phases are stride * Cout outputs of one causal convolution, and [R, stride * Cout] is
 * [R * stride, Cout] in memory. */
int og__cuda_conv_transpose1d(og_exec *ex, og_tensor *y, const og_tensor *x,
                              const og_tensor *w, const og_tensor *bias, og_tensor *state,
                              const og_rows *rows, int stride) {
    (void)stride;
    if (og__measuring(ex)) return 0;
    og__mat mx = og__mat_of(x);
    og__mat wide = {(char *)y->data, y->dtype, x->ne[0], w->ne[0], w->ne[0]};
    return convolve(ex, "conv_transpose1d", &wide, &mx, w, bias, state, rows, 1, nullptr);
}

__global__ void __launch_bounds__(BLOCK)
    depthwise_kernel(float *y, int64_t ldy, const float *x, int64_t ldx, int rows,
                     int channels, const void *w, int tw, int taps, int dilation,
                     const void *bias, int tb, const float *state, const int32_t *cu,
                     const int32_t *slot, int n_seg) {
    enter();
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    int r = (int)(i / channels), c = (int)(i % channels), lo = 0, hi = n_seg - 1;
    if (r >= rows) return;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (cu[mid] <= r) lo = mid;
        else hi = mid - 1;
    }
    int first = cu[lo], depth = (taps - 1) * dilation;
    const float *before = state + (int64_t)slot[first] * depth * channels + c;
    float sum = 0.0f;
    for (int j = 0; j < taps; j++) {
        int t = r - first - (taps - 1 - j) * dilation;
        float v = t >= 0 ? x[(int64_t)(first + t) * ldx + c]
                         : before[(int64_t)(depth + t) * channels];
        sum = fmaf(v, elem(w, tw, (int64_t)c * taps + j), sum);
    }
    if (bias) sum = __fadd_rn(sum, elem(bias, tb, c));
    y[(int64_t)r * ldy + c] = sum;
}

int og__cuda_conv1d_depthwise(og_exec *ex, og_tensor *y, const og_tensor *x,
                              const og_tensor *w, const og_tensor *bias, og_tensor *state,
                              const og_rows *rows, int dilation) {
    if (og__measuring(ex)) return 0;
    og__mat mx = og__mat_of(x), my = og__mat_of(y);
    int taps = (int)w->ne[1], has = og_tensor_present(bias);
    OG__CHECK(launch(ex, "conv1d_depthwise", depthwise_kernel,
                     blocks_for(mx.rows * mx.cols, BLOCK), dim3(BLOCK), 0, (float *)my.p,
                     my.ld, (const float *)mx.p, mx.ld, (int)mx.rows, (int)mx.cols,
                     (const void *)w->data, (int)w->dtype, taps, dilation,
                     has ? (const void *)bias->data : nullptr, has ? (int)bias->dtype : 0,
                     taps > 1 ? (const float *)state->data : (const float *)nullptr, rows->cu,
                     rows->slot, rows->n_seg));
    return push(ex, "conv1d_depthwise", state, &mx, rows, (int64_t)(taps - 1) * dilation);
}
