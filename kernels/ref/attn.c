#include "kernels/elem.h"
#include "kernels/math.h"
#include "kernels/ref/ref.h"

int og__ref_rope_table(og_exec *ex, og_tensor *cos, og_tensor *sin, const og_rows *rows,
                       const og_tensor *inv_freq) {
    (void)ex;
    int64_t half = inv_freq->ne[0];
    float *c = cos->data, *s = sin->data;
    for (int64_t r = 0; r < rows->n; r++)
        for (int64_t i = 0; i < half; i++) {
            float angle = (float)rows->pos[3 * r] * og__elem(inv_freq->data, OG_F32, i);
            c[r * half + i] = (float)og__cos((double)angle);
            s[r * half + i] = (float)og__sin((double)angle);
        }
    return 0;
}

static void norm_rope(float *x, int64_t dim, const og_tensor *w, float eps,
                      const float *cos, const float *sin) {
    int64_t half = dim / 2;
    if (og_tensor_present(w)) {
        double sum = 0.0;
        for (int64_t i = 0; i < dim; i++) sum += (double)x[i] * (double)x[i];
        double scale = 1.0 / __builtin_sqrt(sum / (double)dim + (double)eps);
        for (int64_t i = 0; i < dim; i++)
            x[i] = (float)((double)x[i] * scale * (double)og__elem(w->data, w->dtype, i));
    }
    for (int64_t i = 0; i < half; i++) {
        double a = (double)x[i], b = (double)x[i + half];
        x[i] = (float)(a * (double)cos[i] - b * (double)sin[i]);
        x[i + half] = (float)(b * (double)cos[i] + a * (double)sin[i]);
    }
}

static int64_t kv_offset(const og_kv *kv, int32_t slot, int64_t pos, int64_t head) {
    int64_t heads = kv->k.ne[2], dim = kv->k.ne[3];
    int64_t row = (int64_t)og__kv_page(kv, slot, pos) * kv->page + pos % kv->page;
    return (row * heads + head) * dim;
}

int og__ref_qk_norm_rope_append(og_exec *ex, og_tensor *q, og_tensor *k,
                                const og_tensor *v, const og_tensor *q_norm,
                                const og_tensor *k_norm, float eps, const og_tensor *cos,
                                const og_tensor *sin, const og_rows *rows, og_kv *kv) {
    if (og__measuring(ex)) return 0;
    int64_t heads = q->ne[1], kv_heads = k->ne[1], dim = q->ne[2];
    for (int64_t r = 0; r < rows->n; r++) {
        const float *c = (const float *)cos->data + r * dim / 2;
        const float *s = (const float *)sin->data + r * dim / 2;
        for (int64_t h = 0; h < heads; h++)
            norm_rope((float *)q->data + (r * heads + h) * dim, dim, q_norm, eps, c, s);
        for (int64_t h = 0; h < kv_heads; h++) {
            float *kr = (float *)k->data + (r * kv_heads + h) * dim;
            const float *vr = (const float *)v->data + (r * kv_heads + h) * dim;
            int64_t at = kv_offset(kv, rows->slot[r], rows->pos[3 * r], h);
            norm_rope(kr, dim, k_norm, eps, c, s);
            for (int64_t i = 0; i < dim; i++) {
                og__elem_set(kv->k.data, kv->k.dtype, at + i, kr[i]);
                og__elem_set(kv->v.data, kv->v.dtype, at + i, vr[i]);
            }
        }
    }
    return 0;
}

static double score(const og_kv *kv, const float *q, int64_t at, int64_t dim,
                    float scale) {
    double sum = 0.0;
    for (int64_t i = 0; i < dim; i++)
        sum += (double)q[i] * (double)og__elem(kv->k.data, kv->k.dtype, at + i);
    return sum * (double)scale;
}

/* Scores are computed three times: once for the maximum, once for the sum of the weights,
 * once for the result; slow, and free of buffers. */
static void attend(float *y, const float *q, const og_kv *kv, int32_t slot, int64_t pos,
                   int64_t head, float scale, int window) {
    int64_t dim = kv->k.ne[3], from = window > 0 && pos >= window ? pos - window + 1 : 0;
    double max = -1e300, sum = 0.0;
    for (int64_t j = from; j <= pos; j++) {
        double s = score(kv, q, kv_offset(kv, slot, j, head), dim, scale);
        if (s > max) max = s;
    }
    for (int64_t j = from; j <= pos; j++)
        sum += og__exp(score(kv, q, kv_offset(kv, slot, j, head), dim, scale) - max);
    for (int64_t i = 0; i < dim; i++) y[i] = 0.0f;
    for (int64_t i0 = 0; i0 < dim; i0 += 16) {
        int64_t n = dim - i0 < 16 ? dim - i0 : 16;
        double acc[16] = {0};
        for (int64_t j = from; j <= pos; j++) {
            int64_t at = kv_offset(kv, slot, j, head);
            double p = og__exp(score(kv, q, at, dim, scale) - max);
            for (int64_t i = 0; i < n; i++)
                acc[i] += p * (double)og__elem(kv->v.data, kv->v.dtype, at + i0 + i);
        }
        for (int64_t i = 0; i < n; i++) y[i0 + i] = (float)(acc[i] / sum);
    }
}

int og__ref_attn_paged(og_exec *ex, og_tensor *y, const og_tensor *q, const og_kv *kv,
                       const og_rows *rows, float scale, int window) {
    if (og__measuring(ex)) return 0;
    int64_t heads = q->ne[1], dim = q->ne[2], group = heads / kv->k.ne[2];
    for (int64_t r = 0; r < rows->n; r++)
        for (int64_t h = 0; h < heads; h++) {
            int64_t at = (r * heads + h) * dim;
            attend((float *)y->data + at, (const float *)q->data + at, kv, rows->slot[r],
                   rows->pos[3 * r], h / group, scale, window);
        }
    return 0;
}
