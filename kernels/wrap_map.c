/* Checks of elementwise ops and norms. */
#include "kernels/check.h"

/* y and x are f32 rows of one shape. */
static int check_pair(og_exec *ex, const char *op, const og_tensor *y,
                      const og_tensor *x) {
    OG__CHECK(og__usable(ex, op, "y", y, "x", x, NULL));
    if (og__is_f32_rows(y) && og__is_f32_rows(x) && og__same_shape(y, x)) return 0;
    return og__eshape(ex, op, "y and x must be f32 rows of one shape", "y", y, "x", x,
                      NULL);
}

static int check_vector(og_exec *ex, const char *op, const char *name, const og_tensor *v,
                        const og_tensor *x) {
    OG__CHECK(og__usable(ex, op, name, v, NULL));
    if (og__is_vector(v, x->ne[x->rank - 1])) return 0;
    return og__eshape(ex, op, "the vector must have the width of x", name, v, "x", x,
                      NULL);
}

int og_op_unary(og_exec *ex, og_tensor *y, const og_tensor *x, og_act act) {
    OG__CHECK(check_pair(ex, "unary", y, x));
    if ((unsigned)act > OG_ACT_EXP)
        return og__fail(ex, OG_EINVAL, "unary: there is no activation %d", (int)act);
    if (og__measuring(ex) || !og_tensor_count(y)) return 0;
    return ex->dev->be->unary(ex, y, x, act);
}

int og_op_binary(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                 og_binary op) {
    OG__CHECK(check_pair(ex, "binary", y, a));
    OG__CHECK(og__usable(ex, "binary", "b", b, NULL));
    if ((unsigned)op > OG_DIV)
        return og__fail(ex, OG_EINVAL, "binary: there is no operation %d", (int)op);
    int row = og__is_f32_rows(b) && b->rank == 1 && b->ne[0] == a->ne[a->rank - 1];
    if (!row && !(og__is_f32_rows(b) && og__same_shape(a, b)))
        return og__eshape(ex, "binary", "b must be f32 with a's shape, or [C]", "a", a,
                          "b", b, NULL);
    if (og__measuring(ex) || !og_tensor_count(y)) return 0;
    return ex->dev->be->binary(ex, y, a, b, op);
}

int og_op_scaled_add(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                     const og_tensor *scale) {
    OG__CHECK(check_pair(ex, "scaled_add", y, a));
    OG__CHECK(check_pair(ex, "scaled_add", a, b));
    if (og_tensor_present(scale))
        OG__CHECK(check_vector(ex, "scaled_add", "scale", scale, a));
    if (!og_tensor_count(y)) return 0;
    size_t mark = og_exec_mark(ex);
    int rc = ex->dev->be->scaled_add(ex, y, a, b, scale);
    og_exec_release(ex, mark);
    return rc;
}

int og_op_snake(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *alpha,
                const og_tensor *inv_beta) {
    OG__CHECK(check_pair(ex, "snake", y, x));
    OG__CHECK(check_vector(ex, "snake", "alpha", alpha, x));
    OG__CHECK(check_vector(ex, "snake", "inv_beta", inv_beta, x));
    if (alpha->dtype != OG_F32 || inv_beta->dtype != OG_F32)
        return og__eshape(ex, "snake", "alpha and inv_beta must be f32", "alpha", alpha,
                          "inv_beta", inv_beta, NULL);
    if (og__measuring(ex) || !og_tensor_count(y)) return 0;
    return ex->dev->be->snake(ex, y, x, alpha, inv_beta);
}

int og_op_clamp(og_exec *ex, og_tensor *y, const og_tensor *x, float lo, float hi) {
    OG__CHECK(check_pair(ex, "clamp", y, x));
    if (!(lo <= hi))
        return og__fail(ex, OG_EINVAL, "clamp: %g is above %g", (double)lo, (double)hi);
    if (og__measuring(ex) || !og_tensor_count(y)) return 0;
    return ex->dev->be->clamp(ex, y, x, lo, hi);
}

int og_op_rms_norm(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                   float eps) {
    OG__CHECK(check_pair(ex, "rms_norm", y, x));
    OG__CHECK(check_vector(ex, "rms_norm", "w", w, x));
    if (!og_tensor_count(y)) return 0;
    size_t mark = og_exec_mark(ex);
    int rc = ex->dev->be->rms_norm(ex, y, x, w, eps);
    og_exec_release(ex, mark);
    return rc;
}

int og_op_layer_norm(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                     const og_tensor *b, float eps) {
    OG__CHECK(check_pair(ex, "layer_norm", y, x));
    OG__CHECK(check_vector(ex, "layer_norm", "w", w, x));
    if (og_tensor_present(b)) OG__CHECK(check_vector(ex, "layer_norm", "b", b, x));
    if (!og_tensor_count(y)) return 0;
    size_t mark = og_exec_mark(ex);
    int rc = ex->dev->be->layer_norm(ex, y, x, w, b, eps);
    og_exec_release(ex, mark);
    return rc;
}
