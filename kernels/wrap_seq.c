/* Checks of the ops over a whole sequence, and the composed default of conv1d_valid. */
#include "kernels/check.h"

/* A backend need not have these ops. */
#define NEED(ex, op)                                                                  \
    do {                                                                              \
        if (!(ex)->dev->be->op)                                                       \
            return og__fail(ex, OG_EUNSUPPORTED, #op ": not on %s", (ex)->dev->be->name); \
    } while (0)

static int is_rows(const og_tensor *t) {
    return t->rank == 2 && og__is_f32_rows(t);
}

static int check_pair(og_exec *ex, const char *op, const og_tensor *y, const og_tensor *x) {
    OG__CHECK(og__usable(ex, op, "y", y, "x", x, NULL));
    if (is_rows(y) && is_rows(x)) return 0;
    return og__eshape(ex, op, "y and x must be f32 [T, C]", "y", y, "x", x, NULL);
}

int og_op_pad_time(og_exec *ex, og_tensor *y, const og_tensor *x, int64_t left,
                   og_pad mode) {
    NEED(ex, pad_time);
    OG__CHECK(check_pair(ex, "pad_time", y, x));
    int64_t n = x->ne[0], right = y->ne[0] - n - left;
    if ((unsigned)mode > OG_PAD_REFLECT)
        return og__fail(ex, OG_EINVAL, "pad_time: there is no mode %d", (int)mode);
    if (y->ne[1] != x->ne[1] || left < 0 || right < 0)
        return og__eshape(ex, "pad_time", "y must have x's channels and room for left + T",
                          "y", y, "x", x, NULL);
    if ((mode == OG_PAD_EDGE && n < 1) ||
        (mode == OG_PAD_REFLECT && (left >= n || right >= n)))
        return og__fail(ex, OG_ESHAPE, "pad_time: %lld and %lld rows around %lld do not mirror",
                        (long long)left, (long long)right, (long long)n);
    if (og_tensor_count(y) && y->data && y->data == x->data)
        return og__fail(ex, OG_EINVAL, "pad_time: y must not be x");
    if (og__measuring(ex) || !og_tensor_count(y)) return 0;
    return ex->dev->be->pad_time(ex, y, x, left, mode);
}

/* ---- convolution without padding ------------------------------------------------------ */

/* The first (k-1) * dilation rows are the state of a causal convolution over the others. */
static int valid_by_state(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                          const og_tensor *bias, int dilation, const og_epilogue *epi) {
    int64_t depth = (w->ne[1] - 1) * dilation, n = y->ne[0], cin = w->ne[2];
    og_tensor past = og_tensor_rows(x, 0, depth), rest = og_tensor_rows(x, depth, n);
    og_tensor state = og_exec_alloc(ex, OG_F32, 3, (int64_t[]){1, depth, cin});
    og_tensor slot = og_exec_alloc(ex, OG_I32, 1, (int64_t[]){n});
    og_tensor cu = og_exec_alloc(ex, OG_I32, 1, (int64_t[]){2});
    og_tensor end = og_tensor_rows(&cu, 1, 1), flat = og_tensor_view(&state, 2, past.ne);
    OG__CHECK(og_op_fill(ex, &slot, 0.0f));
    OG__CHECK(og_op_fill(ex, &cu, 0.0f));
    OG__CHECK(og_op_fill(ex, &end, (float)n));
    OG__CHECK(og_op_copy(ex, &flat, &past));
    og_rows rows = {(int)n, 1, slot.data, NULL, cu.data};
    return og_op_conv1d(ex, y, &rest, w, bias, &state, &rows, dilation, epi);
}

/* Without dilation the k rows of a window lie one behind another: a matrix product over
 * rows that overlap. */
static int valid_by_windows(og_exec *ex, og_tensor *y, const og_tensor *x,
                            const og_tensor *w, const og_tensor *bias, int stride,
                            const og_epilogue *epi) {
    int64_t width = w->ne[1] * w->ne[2];
    og_tensor windows = *x, flat = og_tensor_view(w, 2, (int64_t[]){w->ne[0], width});
    windows.ne[0] = y->ne[0];
    windows.ne[1] = width;
    windows.stride[0] = stride * w->ne[2];
    windows.stride[1] = 1;
    return og_op_linear(ex, 1, y, &windows, &flat, bias, epi);
}

static int compose_conv1d_valid(og_exec *ex, og_tensor *y, const og_tensor *x,
                                const og_tensor *w, const og_tensor *bias, int stride,
                                int dilation, const og_epilogue *epi) {
    if (stride == 1 && w->ne[1] > 1) return valid_by_state(ex, y, x, w, bias, dilation, epi);
    return valid_by_windows(ex, y, x, w, bias, stride, epi);
}

/* Rows that are told apart by a float must be counted exactly by one. */
#define MOST_ROWS (1 << 24)

int og_op_conv1d_valid(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                       const og_tensor *bias, int stride, int dilation,
                       const og_epilogue *epi) {
    const char *op = "conv1d_valid";
    OG__CHECK(check_pair(ex, op, y, x));
    OG__CHECK(og__usable(ex, op, "w", w, "bias", bias, NULL));
    if (w->rank != 3 || !og__is_weight(w->dtype) || !og_tensor_dense(w) || !w->ne[1])
        return og__eshape(ex, op, "w must be dense [Cout, k, Cin] in f32, bf16 or f16", "w",
                          w, NULL);
    if (stride < 1 || dilation < 1)
        return og__fail(ex, OG_EINVAL, "%s: stride %d, dilation %d", op, stride, dilation);
    if (stride > 1 && dilation > 1 && w->ne[1] > 1)
        return og__fail(ex, OG_EUNSUPPORTED, "%s: stride %d and dilation %d at once", op,
                        stride, dilation);
    int64_t left = x->ne[0] - (w->ne[1] - 1) * dilation;
    if (x->ne[1] != w->ne[2] || !og_tensor_dense(x) || left < 1 || left > MOST_ROWS ||
        y->ne[0] != (left - 1) / stride + 1 || y->ne[1] != w->ne[0])
        return og__eshape(ex, op, "x must be dense [T, Cin], y [(T - (k-1) * dilation - 1) / "
                          "stride + 1, Cout]", "y", y, "x", x, "w", w, NULL);
    if (og_tensor_present(bias) && !og__is_vector(bias, w->ne[0]))
        return og__eshape(ex, op, "bias must be [Cout]", "bias", bias, "w", w, NULL);
    size_t mark = og_exec_mark(ex);
    const og__backend *be = ex->dev->be;
    int rc = be->conv1d_valid
                 ? be->conv1d_valid(ex, y, x, w, bias, stride, dilation, epi)
                 : compose_conv1d_valid(ex, y, x, w, bias, stride, dilation, epi);
    og_exec_release(ex, mark);
    return rc;
}

/* ---- spectra and statistics ------------------------------------------------------------ */

int og_op_magnitude(og_exec *ex, og_tensor *y, const og_tensor *x, float eps) {
    NEED(ex, magnitude);
    OG__CHECK(check_pair(ex, "magnitude", y, x));
    if (y->ne[0] != x->ne[0] || 2 * y->ne[1] != x->ne[1])
        return og__eshape(ex, "magnitude", "y must be [T, F] and x [T, 2F]", "y", y, "x", x,
                          NULL);
    if (og__measuring(ex) || !og_tensor_count(y)) return 0;
    return ex->dev->be->magnitude(ex, y, x, eps);
}

int og_op_log_floor(og_exec *ex, og_tensor *y, const og_tensor *x, float floor) {
    NEED(ex, log_floor);
    OG__CHECK(check_pair(ex, "log_floor", y, x));
    if (!og__same_shape(y, x))
        return og__eshape(ex, "log_floor", "shapes differ", "y", y, "x", x, NULL);
    if (!(floor > 0.0f))
        return og__fail(ex, OG_EINVAL, "log_floor: the floor is %g", (double)floor);
    if (og__measuring(ex) || !og_tensor_count(y)) return 0;
    return ex->dev->be->log_floor(ex, y, x, floor);
}

int og_op_softmax_time(og_exec *ex, og_tensor *y, const og_tensor *x) {
    NEED(ex, softmax_time);
    OG__CHECK(check_pair(ex, "softmax_time", y, x));
    if (!og__same_shape(y, x))
        return og__eshape(ex, "softmax_time", "shapes differ", "y", y, "x", x, NULL);
    if (!og_tensor_count(y)) return 0;
    size_t mark = og_exec_mark(ex);
    int rc = ex->dev->be->softmax_time(ex, y, x);
    og_exec_release(ex, mark);
    return rc;
}

static int is_stat(const og_tensor *t, int64_t channels) {
    return t->dtype == OG_F32 && og__is_vector(t, channels);
}

int og_op_time_stats(og_exec *ex, og_tensor *mean, og_tensor *std, const og_tensor *x,
                     const og_tensor *w, float floor) {
    const char *op = "time_stats";
    NEED(ex, time_stats);
    OG__CHECK(og__usable(ex, op, "mean", mean, "std", std, "x", x, "w", w, NULL));
    if (!is_rows(x) || x->ne[0] < 1)
        return og__eshape(ex, op, "x must be f32 [T, C] of at least one row", "x", x, NULL);
    if (!is_stat(mean, x->ne[1]) || (og_tensor_present(std) && !is_stat(std, x->ne[1])))
        return og__eshape(ex, op, "mean and std must be dense f32 [C]", "mean", mean, "std",
                          std, "x", x, NULL);
    if (og_tensor_present(w) && (!is_rows(w) || !og__same_shape(w, x)))
        return og__eshape(ex, op, "w must have x's shape", "w", w, "x", x, NULL);
    if (og__measuring(ex) || !x->ne[1]) return 0;
    return ex->dev->be->time_stats(ex, mean, std, x, w, floor);
}

int og_op_rvq_nearest(og_exec *ex, og_tensor *ids, const og_tensor *x,
                      const og_tensor *table) {
    const char *op = "rvq_nearest";
    NEED(ex, rvq_nearest);
    OG__CHECK(og__usable(ex, op, "ids", ids, "x", x, "table", table, NULL));
    if (!is_rows(x) || !is_rows(table) || table->ne[1] != x->ne[1] || table->ne[0] < 1 ||
        table->ne[0] > INT32_MAX)
        return og__eshape(ex, op, "x and table must be f32 [R, D] and [N, D]", "x", x,
                          "table", table, NULL);
    if (ids->dtype != OG_I32 || ids->rank != 1 || ids->ne[0] != x->ne[0])
        return og__eshape(ex, op, "ids must be i32 [R]", "ids", ids, "x", x, NULL);
    if (!x->ne[0]) return 0;
    size_t mark = og_exec_mark(ex);
    int rc = ex->dev->be->rvq_nearest(ex, ids, x, table);
    og_exec_release(ex, mark);
    return rc;
}
