#include "kernels/elem.h"
#include "kernels/math.h"
#include "kernels/ref/ref.h"

double og__ref_act(double v, og_act act) {
    switch (act) {
    case OG_ACT_NONE: return v;
    case OG_ACT_SILU: return v / (1.0 + og__exp(-v));
    case OG_ACT_GELU: return 0.5 * v * (1.0 + og__erf(v * 0.7071067811865476));
    case OG_ACT_GELU_TANH:
        return 0.5 * v *
               (1.0 + og__tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    case OG_ACT_RELU: return v > 0.0 ? v : 0.0;
    case OG_ACT_ELU: return v > 0.0 ? v : og__expm1(v);
    case OG_ACT_TANH: return og__tanh(v);
    case OG_ACT_SIGMOID: return 1.0 / (1.0 + og__exp(-v));
    case OG_ACT_EXP: return og__exp(v);
    }
    return v;
}

double og__ref_epilogue(double v, const og_epilogue *epi, int64_t r, int64_t j,
                        int64_t n) {
    og__mat m;
    if (!epi) return v;
    v = og__ref_act(v, epi->act);
    if (epi->scale) v *= (double)og__elem(epi->scale->data, epi->scale->dtype, j);
    if (epi->residual && og__mat_as(epi->residual, n, &m))
        v += (double)((float *)m.p)[r * m.ld + j];
    return v;
}

static float *row_of(const og__mat *m, int64_t r) {
    return (float *)m->p + r * m->ld;
}

int og__ref_unary(og_exec *ex, og_tensor *y, const og_tensor *x, og_act act) {
    (void)ex;
    og__mat my = og__mat_of(y), mx = og__mat_of(x);
    for (int64_t r = 0; r < my.rows; r++)
        for (int64_t c = 0; c < my.cols; c++)
            row_of(&my, r)[c] = (float)og__ref_act((double)row_of(&mx, r)[c], act);
    return 0;
}

static float apply(float a, float b, og_binary op) {
    switch (op) {
    case OG_ADD: return a + b;
    case OG_SUB: return a - b;
    case OG_MUL: return a * b;
    case OG_DIV: return a / b;
    }
    return 0.0f;
}

int og__ref_binary(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                   og_binary op) {
    (void)ex;
    og__mat my = og__mat_of(y), ma = og__mat_of(a), mb = og__mat_of(b);
    int stretch = b->rank == 1 && a->rank > 1;
    for (int64_t r = 0; r < my.rows; r++)
        for (int64_t c = 0; c < my.cols; c++)
            row_of(&my, r)[c] =
                apply(row_of(&ma, r)[c], row_of(&mb, stretch ? 0 : r)[c], op);
    return 0;
}

int og__ref_scaled_add(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                       const og_tensor *scale) {
    if (og__measuring(ex)) return 0;
    og__mat my = og__mat_of(y), ma = og__mat_of(a), mb = og__mat_of(b);
    for (int64_t r = 0; r < my.rows; r++)
        for (int64_t c = 0; c < my.cols; c++) {
            double s = og_tensor_present(scale)
                           ? (double)og__elem(scale->data, scale->dtype, c)
                           : 1.0;
            row_of(&my, r)[c] =
                (float)((double)row_of(&ma, r)[c] + (double)row_of(&mb, r)[c] * s);
        }
    return 0;
}

int og__ref_snake(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *alpha,
                  const og_tensor *inv_beta) {
    (void)ex;
    og__mat my = og__mat_of(y), mx = og__mat_of(x);
    for (int64_t r = 0; r < my.rows; r++)
        for (int64_t c = 0; c < my.cols; c++) {
            float v = row_of(&mx, r)[c];
            /* the product is rounded as in the public models; at large arguments it matters */
            double s = og__sin((double)(v * og__elem(alpha->data, OG_F32, c)));
            row_of(&my, r)[c] =
                (float)((double)v + s * s * (double)og__elem(inv_beta->data, OG_F32, c));
        }
    return 0;
}

int og__ref_clamp(og_exec *ex, og_tensor *y, const og_tensor *x, float lo, float hi) {
    (void)ex;
    og__mat my = og__mat_of(y), mx = og__mat_of(x);
    for (int64_t r = 0; r < my.rows; r++)
        for (int64_t c = 0; c < my.cols; c++) {
            float v = row_of(&mx, r)[c];
            row_of(&my, r)[c] = v < lo ? lo : v > hi ? hi : v;
        }
    return 0;
}

int og__ref_rms_norm(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                     float eps) {
    if (og__measuring(ex)) return 0;
    og__mat my = og__mat_of(y), mx = og__mat_of(x);
    for (int64_t r = 0; r < my.rows; r++) {
        const float *from = row_of(&mx, r);
        double sum = 0.0;
        for (int64_t c = 0; c < mx.cols; c++) sum += (double)from[c] * (double)from[c];
        double scale = 1.0 / __builtin_sqrt(sum / (double)mx.cols + (double)eps);
        for (int64_t c = 0; c < mx.cols; c++)
            row_of(&my, r)[c] =
                (float)((double)from[c] * scale * (double)og__elem(w->data, w->dtype, c));
    }
    return 0;
}

int og__ref_layer_norm(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                       const og_tensor *b, float eps) {
    if (og__measuring(ex)) return 0;
    og__mat my = og__mat_of(y), mx = og__mat_of(x);
    double n = (double)mx.cols;
    for (int64_t r = 0; r < my.rows; r++) {
        const float *from = row_of(&mx, r);
        double sum = 0.0, sq = 0.0;
        for (int64_t c = 0; c < mx.cols; c++) sum += (double)from[c];
        for (int64_t c = 0; c < mx.cols; c++) {
            double d = (double)from[c] - sum / n;
            sq += d * d;
        }
        double scale = 1.0 / __builtin_sqrt(sq / n + (double)eps);
        for (int64_t c = 0; c < mx.cols; c++) {
            double shift =
                og_tensor_present(b) ? (double)og__elem(b->data, b->dtype, c) : 0.0;
            row_of(&my, r)[c] = (float)(((double)from[c] - sum / n) * scale *
                                            (double)og__elem(w->data, w->dtype, c) +
                                        shift);
        }
    }
    return 0;
}
