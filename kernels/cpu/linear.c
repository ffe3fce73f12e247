#include "kernels/cpu/cpu.h"

#include <string.h>

typedef struct pad_job {
    float *to;
    const float *from;
    int64_t ld_to, ld_from, width;
} pad_job;

static void pad_rows(void *arg, int64_t from, int64_t to) {
    const pad_job *j = arg;
    for (int64_t r = from; r < to; r++) {
        memcpy(j->to + r * j->ld_to, j->from + r * j->ld_from,
               (size_t)j->width * sizeof(float));
        memset(j->to + r * j->ld_to + j->width, 0,
               (size_t)(j->ld_to - j->width) * sizeof(float));
    }
}

int og__cpu_pad(og_exec *ex, const float **x, int64_t *ld, int64_t rows, int64_t width) {
    int64_t padded = og__blocks(width) * OG__LANES;
    if (padded == width) return 0;
    pad_job j = {NULL, *x, padded, *ld, width};
    OG__CHECK(og__cpu_floats(ex, rows * padded, &j.to));
    *x = j.to;
    *ld = padded;
    if (!og__measuring(ex)) og__cpu_rows(rows, padded, pad_rows, &j);
    return 0;
}

/* One product with its own dtype may share a run with others of the same dtype only, since
 * the lane order of the activations follows the dtype. */
static int same_kind(const og_tensor *a, const og_tensor *b) {
    return a->dtype == b->dtype;
}

static int product(og_exec *ex, og__product *p, const og_tensor *y, const og_tensor *w,
                   const og_tensor *bias, const og_epilogue *epi) {
    og__mat m;
    og__mat_as(y, w->ne[0], &m);
    *p = (og__product){
        .w = {w->data, w->dtype, w->ne[0] > 1 ? w->stride[0] : w->ne[1], w->ne[1], 1},
        .n = w->ne[0],
        .y = (float *)m.p,
        .ldy = m.ld,
    };
    return og__cpu_epilogue(ex, p, bias, epi);
}

#define RUN_MAX 8

int og__cpu_linear(og_exec *ex, int n, og_tensor *y, const og_tensor *x,
                   const og_tensor *w, const og_tensor *bias, const og_epilogue *epi) {
    og__mat m;
    og__mat_as(x, w->ne[1], &m);
    og__taps in = {.x = (const float *)m.p, .ld = m.ld, .taps = 1, .dilation = 1};
    OG__CHECK(og__cpu_pad(ex, &in.x, &in.ld, m.rows, m.cols));
    for (int i = 0; i < n;) {
        og__product p[RUN_MAX];
        int first = i, k = 0;
        for (; i < n && k < RUN_MAX && same_kind(&w[first], &w[i]); i++, k++)
            OG__CHECK(product(ex, &p[k], &y[i], &w[i], bias ? &bias[i] : NULL, epi));
        OG__CHECK(og__cpu_matmul(ex, &in, m.rows, p, k));
    }
    return 0;
}
