/* Checks of the linear family. */
#include "kernels/check.h"

static int check_weight(og_exec *ex, const char *op, const og_tensor *w, int64_t k) {
    OG__CHECK(og__usable(ex, op, "w", w, NULL));
    if (w->rank != 2 || !og__is_weight(w->dtype) || (w->ne[1] != 1 && w->stride[1] != 1))
        return og__eshape(ex, op, "w must be [N, K] in f32, bf16 or f16", "w", w, NULL);
    if (w->ne[1] != k)
        return og__fail(ex, OG_ESHAPE, "%s: K differs: x has %lld, w has %lld", op,
                        (long long)k, (long long)w->ne[1]);
    return 0;
}

static int check_epilogue(og_exec *ex, const char *op, const og_epilogue *epi,
                          const og_tensor *y, int64_t rows, int64_t n) {
    if (!epi) return 0;
    og__mat m;
    if ((unsigned)epi->act > OG_ACT_EXP)
        return og__fail(ex, OG_EINVAL, "%s: there is no activation %d", op,
                        (int)epi->act);
    if (epi->scale) {
        OG__CHECK(og__usable(ex, op, "scale", epi->scale, NULL));
        if (!og__is_vector(epi->scale, n))
            return og__eshape(ex, op, "scale must be [N]", "scale", epi->scale, "y", y,
                              NULL);
    }
    if (epi->residual) {
        const og_tensor *r = epi->residual;
        OG__CHECK(og__usable(ex, op, "residual", r, NULL));
        if (r->dtype != OG_F32 || !og__mat_as(r, n, &m) || m.rows != rows)
            return og__eshape(ex, op, "the residual must be f32 with y's rows",
                              "residual", r, "y", y, NULL);
    }
    return 0;
}

/* n weights over one input x of `rows` rows and width k. */
static int check_outputs(og_exec *ex, const char *op, int n, const og_tensor *y,
                         const og_tensor *x, int64_t rows, int64_t k, const og_tensor *w,
                         const og_tensor *bias, const og_epilogue *epi) {
    og__mat m;
    if (n < 1) return og__fail(ex, OG_EINVAL, "%s: %d weights", op, n);
    for (int i = 0; i < n; i++) {
        OG__CHECK(check_weight(ex, op, &w[i], k));
        OG__CHECK(og__usable(ex, op, "y", &y[i], "bias", bias ? &bias[i] : NULL, NULL));
        int64_t width = w[i].ne[0];
        if (y[i].dtype != OG_F32 || !og__mat_as(&y[i], width, &m) || m.rows != rows)
            return og__eshape(ex, op, "y must be f32 [R, N]", "y", &y[i], "w", &w[i],
                              NULL);
        if (y[i].data && y[i].data == x->data)
            return og__fail(ex, OG_EINVAL, "%s: y must not be x", op);
        if (bias && og_tensor_present(&bias[i]) && !og__is_vector(&bias[i], width))
            return og__eshape(ex, op, "bias must be [N]", "bias", &bias[i], "w", &w[i],
                              NULL);
        OG__CHECK(check_epilogue(ex, op, epi, &y[i], rows, width));
    }
    return 0;
}

/* The input of a linear: f32, seen as rows of the weights' K. */
static int check_input(og_exec *ex, const char *op, const og_tensor *x,
                       const og_tensor *w, og__mat *m) {
    OG__CHECK(og__usable(ex, op, "x", x, "w", w, NULL));
    if (x->dtype == OG_F32 && w->rank == 2 && og__mat_as(x, w->ne[1], m)) return 0;
    return og__eshape(ex, op, "x must be f32 [R, K] with the K of w", "x", x, "w", w,
                      NULL);
}

int og_op_linear(og_exec *ex, int n, og_tensor *y, const og_tensor *x, const og_tensor *w,
                 const og_tensor *bias, const og_epilogue *epi) {
    og__mat m;
    OG__CHECK(check_input(ex, "linear", x, w, &m));
    OG__CHECK(check_outputs(ex, "linear", n, y, x, m.rows, m.cols, w, bias, epi));
    if (!m.rows) return 0;
    size_t mark = og_exec_mark(ex);
    int rc = ex->dev->be->linear(ex, n, y, x, w, bias, epi);
    og_exec_release(ex, mark);
    return rc;
}

int og_op_norm_linear(og_exec *ex, int n, og_tensor *y, const og_tensor *x,
                      const og_tensor *norm, float eps, const og_tensor *w,
                      const og_tensor *bias) {
    og__mat m;
    OG__CHECK(check_input(ex, "norm_linear", x, w, &m));
    OG__CHECK(og__usable(ex, "norm_linear", "norm", norm, NULL));
    if (!og__is_vector(norm, m.cols))
        return og__eshape(ex, "norm_linear", "norm must be [K]", "norm", norm, "x", x,
                          NULL);
    OG__CHECK(check_outputs(ex, "norm_linear", n, y, x, m.rows, m.cols, w, bias, NULL));
    if (!m.rows) return 0;
    size_t mark = og_exec_mark(ex);
    int rc = ex->dev->be->norm_linear
                 ? ex->dev->be->norm_linear(ex, n, y, x, norm, eps, w, bias)
                 : og__compose_norm_linear(ex, n, y, x, norm, eps, w, bias);
    og_exec_release(ex, mark);
    return rc;
}

int og_op_glu_linear(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *norm,
                     float eps, const og_tensor *gate, const og_tensor *up, og_act act) {
    og__mat m;
    OG__CHECK(check_input(ex, "glu_linear", x, gate, &m));
    OG__CHECK(og__usable(ex, "glu_linear", "norm", norm, NULL));
    if (!og__is_vector(norm, m.cols))
        return og__eshape(ex, "glu_linear", "norm must be [K]", "norm", norm, "x", x,
                          NULL);
    if ((unsigned)act > OG_ACT_EXP)
        return og__fail(ex, OG_EINVAL, "glu_linear: there is no activation %d", (int)act);
    OG__CHECK(check_outputs(ex, "glu_linear", 1, y, x, m.rows, m.cols, gate, NULL, NULL));
    OG__CHECK(check_outputs(ex, "glu_linear", 1, y, x, m.rows, m.cols, up, NULL, NULL));
    if (!m.rows) return 0;
    size_t mark = og_exec_mark(ex);
    int rc = ex->dev->be->glu_linear
                 ? ex->dev->be->glu_linear(ex, y, x, norm, eps, gate, up, act)
                 : og__compose_glu_linear(ex, y, x, norm, eps, gate, up, act);
    og_exec_release(ex, mark);
    return rc;
}
