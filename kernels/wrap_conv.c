/* Checks of the convolutions over packed rows. */
#include "kernels/check.h"

/* state is f32 [n_slots, depth, channels], dense, when there is anything to carry. */
static int check_state(og_exec *ex, const char *op, const og_tensor *state,
                       const og_rows *rows, int64_t n, int64_t depth, int64_t channels) {
    if (!depth) return og__check_rows(ex, op, rows, n, -1);
    if (!og_tensor_present(state))
        return og__fail(ex, OG_ESHAPE, "%s: a state of %lld columns is needed", op,
                        (long long)depth);
    OG__CHECK(og__usable(ex, op, "state", state, NULL));
    if (state->dtype != OG_F32 || state->rank != 3 || state->ne[1] != depth ||
        state->ne[2] != channels || !og_tensor_dense(state))
        return og__eshape(ex, op,
                          "the state must be dense f32 [slots, columns, channels]",
                          "state", state, NULL);
    return og__check_rows(ex, op, rows, n, state->ne[0]);
}

static int is_rows(const og_tensor *t, int64_t width) {
    og__mat m;
    return t->dtype == OG_F32 && t->rank == 2 && og__mat_as(t, width, &m);
}

static int check_conv(og_exec *ex, const char *op, const og_tensor *y, const og_tensor *x,
                      const og_tensor *w, const og_tensor *bias) {
    OG__CHECK(og__usable(ex, op, "y", y, "x", x, "w", w, "bias", bias, NULL));
    if (w->rank != 3 || !og__is_weight(w->dtype) || !og_tensor_dense(w) || !w->ne[1])
        return og__eshape(ex, op, "w must be dense [Cout, k, Cin] in f32, bf16 or f16",
                          "w", w, NULL);
    if (!is_rows(x, w->ne[2]))
        return og__eshape(ex, op, "x must be f32 [R, Cin]", "x", x, "w", w, NULL);
    if (og_tensor_count(y) && y->data && y->data == x->data)
        return og__fail(ex, OG_EINVAL, "%s: y must not be x", op);
    return 0;
}

int og_op_conv1d(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                 const og_tensor *bias, og_tensor *state, const og_rows *rows,
                 int dilation, const og_epilogue *epi) {
    OG__CHECK(check_conv(ex, "conv1d", y, x, w, bias));
    int64_t cout = w->ne[0], n = x->ne[0];
    og__mat m;
    if (!is_rows(y, cout) || y->ne[0] != n)
        return og__eshape(ex, "conv1d", "y must be f32 [R, Cout]", "y", y, "x", x, "w", w,
                          NULL);
    if (og_tensor_present(bias) && !og__is_vector(bias, cout))
        return og__eshape(ex, "conv1d", "bias must be [Cout]", "bias", bias, "w", w,
                          NULL);
    if (dilation < 1) return og__fail(ex, OG_EINVAL, "conv1d: dilation %d", dilation);
    if (epi && epi->scale) {
        OG__CHECK(og__usable(ex, "conv1d", "scale", epi->scale, NULL));
        if (!og__is_vector(epi->scale, cout))
            return og__eshape(ex, "conv1d", "scale must be [Cout]", "scale", epi->scale,
                              NULL);
    }
    if (epi && epi->residual) {
        OG__CHECK(og__usable(ex, "conv1d", "residual", epi->residual, NULL));
        if (epi->residual->dtype != OG_F32 || !og__mat_as(epi->residual, cout, &m) ||
            m.rows != n)
            return og__eshape(ex, "conv1d", "the residual must have y's rows", "residual",
                              epi->residual, "y", y, NULL);
    }
    OG__CHECK(
        check_state(ex, "conv1d", state, rows, n, (w->ne[1] - 1) * dilation, w->ne[2]));
    if (!n) return 0;
    size_t mark = og_exec_mark(ex);
    int rc = ex->dev->be->conv1d(ex, y, x, w, bias, state, rows, dilation, epi);
    og_exec_release(ex, mark);
    return rc;
}

int og_op_conv1d_depthwise(og_exec *ex, og_tensor *y, const og_tensor *x,
                           const og_tensor *w, const og_tensor *bias, og_tensor *state,
                           const og_rows *rows, int dilation) {
    const char *op = "conv1d_depthwise";
    OG__CHECK(og__usable(ex, op, "y", y, "x", x, "w", w, "bias", bias, NULL));
    if (w->rank != 2 || !og__is_weight(w->dtype) || !og_tensor_dense(w) || !w->ne[1])
        return og__eshape(ex, op, "w must be dense [C, k] in f32, bf16 or f16", "w", w,
                          NULL);
    if (!is_rows(x, w->ne[0]) || !is_rows(y, w->ne[0]) || !og__same_shape(x, y))
        return og__eshape(ex, op, "y and x must be f32 [R, C]", "y", y, "x", x, "w", w,
                          NULL);
    if (og_tensor_present(bias) && !og__is_vector(bias, w->ne[0]))
        return og__eshape(ex, op, "bias must be [C]", "bias", bias, "w", w, NULL);
    if (dilation < 1) return og__fail(ex, OG_EINVAL, "%s: dilation %d", op, dilation);
    if (og_tensor_count(y) && y->data && y->data == x->data)
        return og__fail(ex, OG_EINVAL, "%s: y must not be x", op);
    OG__CHECK(
        check_state(ex, op, state, rows, x->ne[0], (w->ne[1] - 1) * dilation, w->ne[0]));
    if (!x->ne[0]) return 0;
    size_t mark = og_exec_mark(ex);
    int rc = ex->dev->be->conv1d_depthwise(ex, y, x, w, bias, state, rows, dilation);
    og_exec_release(ex, mark);
    return rc;
}

int og_op_conv_transpose1d(og_exec *ex, og_tensor *y, const og_tensor *x,
                           const og_tensor *w, const og_tensor *bias, og_tensor *state,
                           const og_rows *rows, int stride) {
    const char *op = "conv_transpose1d";
    OG__CHECK(check_conv(ex, op, y, x, w, bias));
    if (stride < 1 || w->ne[0] % stride)
        return og__eshape(ex, op, "w must be [stride * Cout, taps, Cin]", "w", w, NULL);
    int64_t cout = w->ne[0] / stride, n = x->ne[0];
    if (!is_rows(y, cout) || !og_tensor_dense(y) || y->ne[0] != n * stride)
        return og__eshape(ex, op, "y must be dense f32 [R * stride, Cout]", "y", y, "x",
                          x, "w", w, NULL);
    if (og_tensor_present(bias) && !og__is_vector(bias, cout))
        return og__eshape(ex, op, "bias must be [Cout]", "bias", bias, "w", w, NULL);
    OG__CHECK(check_state(ex, op, state, rows, n, w->ne[1] - 1, w->ne[2]));
    if (!n) return 0;
    size_t mark = og_exec_mark(ex);
    const og__backend *be = ex->dev->be;
    int rc = be->conv_transpose1d
                 ? be->conv_transpose1d(ex, y, x, w, bias, state, rows, stride)
                 : og__compose_conv_transpose1d(ex, y, x, w, bias, state, rows, stride);
    og_exec_release(ex, mark);
    return rc;
}
