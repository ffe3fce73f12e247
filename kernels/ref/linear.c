#include "kernels/elem.h"
#include "kernels/ref/ref.h"

static void one(const og_tensor *y, const og__mat *x, const og_tensor *w,
                const og_tensor *bias, const og_epilogue *epi) {
    og__mat my;
    int64_t n = w->ne[0];
    og__mat_as(y, n, &my);
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0.0;
            const float *a = (const float *)x->p + r * x->ld;
            for (int64_t k = 0; k < x->cols; k++)
                sum += (double)a[k] *
                       (double)og__elem(w->data, w->dtype, j * w->stride[0] + k);
            if (bias && og_tensor_present(bias))
                sum += (double)og__elem(bias->data, bias->dtype, j);
            ((float *)my.p)[r * my.ld + j] = (float)og__ref_epilogue(sum, epi, r, j, n);
        }
}

int og__ref_linear(og_exec *ex, int n, og_tensor *y, const og_tensor *x,
                   const og_tensor *w, const og_tensor *bias, const og_epilogue *epi) {
    if (og__measuring(ex)) return 0;
    og__mat mx;
    og__mat_as(x, w->ne[1], &mx);
    for (int i = 0; i < n; i++) one(&y[i], &mx, &w[i], bias ? &bias[i] : NULL, epi);
    return 0;
}
