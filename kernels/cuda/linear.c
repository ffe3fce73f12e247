/* linear and its fusions: which launches of the dot family an op becomes. Weights of one
 * dtype go together, OG__CUDA_OUTPUTS a launch. */
#include "kernels/cuda/dot.h"

int og__cuda_dot(og_exec *ex, const char *op, og_dtype t, og__dot *d) {
    og__cuda_exec_of(ex)->few = d->m <= OG__DOT_FEW;
    if (og__cuda_mma_takes(ex, t, d)) return og__cuda_mma(ex, op, d);
    switch (t) {
    case OG_F32: return og__cuda_dot_f32(ex, op, d);
    case OG_BF16: return og__cuda_dot_bf16(ex, op, d);
    case OG_F16: return og__cuda_dot_f16(ex, op, d);
    default: return og__fail(ex, OG_EUNSUPPORTED, "%s: weights of %s", op, og_dtype_name(t));
    }
}

static og__dot dot_over(const og_tensor *x, int64_t k) {
    og__mat m;
    og__dot d = {0};
    og__mat_as(x, k, &m);
    d.x = (const float *)m.p;
    d.ldx = m.ld;
    d.m = (int)m.rows;
    d.k = (int)k;
    d.x_vec = (uintptr_t)m.p % 16 == 0 && m.ld % 4 == 0 && k % 4 == 0;
    return d;
}

static og__dot_out output_of(const og_tensor *y, const og_tensor *w, const og_tensor *bias) {
    og__mat m;
    og__dot_out o = {0};
    og__mat_as(y, w->ne[0], &m);
    o.w = w->data;
    o.ldw = w->stride[0];
    o.n = (int)w->ne[0];
    o.y = (float *)m.p;
    o.ldy = m.ld;
    if (bias && og_tensor_present(bias)) {
        o.bias = bias->data;
        o.bias_t = (int)bias->dtype;
    }
    return o;
}

static void epilogue(og__dot *d, const og_epilogue *epi, int64_t n) {
    og__mat m;
    if (!epi) return;
    d->act = (int)epi->act;
    if (epi->scale) {
        d->scale = epi->scale->data;
        d->scale_t = (int)epi->scale->dtype;
    }
    if (epi->residual && og__mat_as(epi->residual, n, &m)) {
        d->residual = (const float *)m.p;
        d->ldr = m.ld;
    }
}

/* An epilogue with vectors is one weight's: its residual has that weight's width. */
static int together(int n, const og_tensor *w, const og_epilogue *epi) {
    int count = 1;
    if (epi && (epi->scale || epi->residual)) return 1;
    while (count < n && count < OG__CUDA_OUTPUTS && w[count].dtype == w[0].dtype) count++;
    return count;
}

static int run(og_exec *ex, const char *op, const og__dot *base, int n, og_tensor *y,
               const og_tensor *w, const og_tensor *bias, const og_epilogue *epi) {
    for (int i = 0; i < n;) {
        og__dot d = *base;
        d.n_out = together(n - i, w + i, epi);
        for (int j = 0; j < d.n_out; j++)
            d.out[j] = output_of(&y[i + j], &w[i + j], bias ? &bias[i + j] : NULL);
        epilogue(&d, epi, w[i].ne[0]);
        OG__CHECK(og__cuda_dot(ex, op, w[i].dtype, &d));
        i += d.n_out;
    }
    return 0;
}

int og__cuda_linear(og_exec *ex, int n, og_tensor *y, const og_tensor *x, const og_tensor *w,
                    const og_tensor *bias, const og_epilogue *epi) {
    if (og__measuring(ex)) return 0;
    og__dot d = dot_over(x, w->ne[1]);
    return run(ex, "linear", &d, n, y, w, bias, epi);
}

/* Whether all of these weights go to the tensor cores, which norm x on its way. */
static int all_fast(const og_exec *ex, const og__dot *d, const og_tensor *norm, int n,
                    const og_tensor *w) {
    og__dot one = *d;
    one.n_out = 1;
    one.norm = norm->data;
    one.norm_t = (int)norm->dtype;
    for (int i = 0; i < n; i++) {
        one.out[0].w = w[i].data;
        one.out[0].ldw = w[i].stride[0];
        one.out[0].n = (int)w[i].ne[0];
        if (!og__cuda_mma_takes(ex, w[i].dtype, &one)) return 0;
    }
    return 1;
}

/* The input of a normed op: within the kernel for a few rows and on the tensor cores, else
 * normed beforehand into scratch. The first and the last have the same bits, rms_norm being the
 * same code. */
static int normed(og_exec *ex, const char *op, const og_tensor *x, const og_tensor *norm,
                  float eps, int n, const og_tensor *w, og__dot *d) {
    int64_t k = w->ne[1];
    *d = dot_over(x, k);
    int few = d->m <= OG__DOT_ROWS && !og__cuda_fast(ex, w->dtype, d->m);
    if (few || (!og__measuring(ex) && all_fast(ex, d, norm, n, w))) {
        d->norm = norm->data;
        d->norm_t = (int)norm->dtype;
        d->eps = eps;
        return 0;
    }
    og_tensor rows = og_exec_alloc(ex, OG_F32, 2, (int64_t[]){d->m, k});
    OG__CHECK(og__usable(ex, op, "scratch", &rows, NULL));
    if (og__measuring(ex)) return 0;
    og_tensor from = *x;
    from.rank = 2;
    from.ne[0] = d->m, from.ne[1] = k, from.stride[0] = d->ldx, from.stride[1] = 1;
    *d = dot_over(&rows, k);
    return og__cuda_rms_norm(ex, &rows, &from, norm, eps);
}

int og__cuda_norm_linear(og_exec *ex, int n, og_tensor *y, const og_tensor *x,
                         const og_tensor *norm, float eps, const og_tensor *w,
                         const og_tensor *bias) {
    og__dot d;
    OG__CHECK(normed(ex, "norm_linear", x, norm, eps, n, w, &d));
    if (og__measuring(ex)) return 0;
    return run(ex, "norm_linear", &d, n, y, w, bias, NULL);
}

int og__cuda_glu_linear(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *norm,
                        float eps, const og_tensor *gate, const og_tensor *up, og_act act) {
    if (gate->dtype != up->dtype || gate->ne[0] != up->ne[0])
        return og__compose_glu_linear(ex, y, x, norm, eps, gate, up, act);
    og_tensor both[2] = {*gate, *up};
    og__dot d;
    OG__CHECK(normed(ex, "glu_linear", x, norm, eps, 2, both, &d));
    if (og__measuring(ex)) return 0;
    d.glu = 1;
    d.act = (int)act;
    d.n_out = 2;
    d.out[0] = output_of(y, gate, NULL);
    d.out[1] = output_of(y, up, NULL);
    return og__cuda_dot(ex, "glu_linear", gate->dtype, &d);
}
