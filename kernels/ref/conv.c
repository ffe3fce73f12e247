#include "kernels/elem.h"
#include "kernels/ref/ref.h"

void og__host_state_push(float *state, int64_t depth, const char *x, int64_t n,
                         int64_t ld, int64_t channels) {
    int64_t keep = n < depth ? depth - n : 0, take = depth - keep;
    if (keep)
        memmove(state, state + n * channels, (size_t)(keep * channels) * sizeof *state);
    for (int64_t i = 0; i < take; i++)
        memcpy(state + (keep + i) * channels, (const float *)x + (n - take + i) * ld,
               (size_t)channels * sizeof *state);
}

/* Input columns of one segment: negative times are in the state. */
typedef struct columns {
    const float *x, *state;
    int64_t ld, depth, channels;
} columns;

static const float *column(const columns *c, int64_t t) {
    return t >= 0 ? c->x + t * c->ld : c->state + (c->depth + t) * c->channels;
}

static columns segment(const og__mat *x, const og_tensor *state, const og_rows *rows,
                       int s, int64_t depth) {
    int64_t first = rows->cu[s];
    columns c = {(const float *)x->p + first * x->ld, NULL, x->ld, depth, x->cols};
    if (depth) c.state = (const float *)state->data + rows->slot[first] * depth * x->cols;
    return c;
}

static void push(const columns *c, int64_t n) {
    if (c->depth)
        og__host_state_push((float *)c->state, c->depth, (const char *)c->x, n, c->ld,
                            c->channels);
}

int og__ref_conv1d(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                   const og_tensor *bias, og_tensor *state, const og_rows *rows,
                   int dilation, const og_epilogue *epi) {
    if (og__measuring(ex)) return 0;
    int64_t cout = w->ne[0], k = w->ne[1], cin = w->ne[2];
    og__mat mx = og__mat_of(x), my = og__mat_of(y);
    for (int s = 0; s < rows->n_seg; s++) {
        int64_t n = rows->cu[s + 1] - rows->cu[s];
        if (!n) continue;
        columns in = segment(&mx, state, rows, s, (k - 1) * dilation);
        for (int64_t t = 0; t < n; t++)
            for (int64_t o = 0; o < cout; o++) {
                int64_t r = rows->cu[s] + t;
                double sum = 0.0;
                for (int64_t j = 0; j < k; j++) {
                    const float *a = column(&in, t - (k - 1 - j) * dilation);
                    for (int64_t c = 0; c < cin; c++)
                        sum += (double)a[c] *
                               (double)og__elem(w->data, w->dtype, (o * k + j) * cin + c);
                }
                if (og_tensor_present(bias))
                    sum += (double)og__elem(bias->data, bias->dtype, o);
                ((float *)my.p)[r * my.ld + o] =
                    (float)og__ref_epilogue(sum, epi, r, o, cout);
            }
        push(&in, n);
    }
    return 0;
}

int og__ref_conv1d_depthwise(og_exec *ex, og_tensor *y, const og_tensor *x,
                             const og_tensor *w, const og_tensor *bias, og_tensor *state,
                             const og_rows *rows, int dilation) {
    if (og__measuring(ex)) return 0;
    int64_t channels = w->ne[0], k = w->ne[1];
    og__mat mx = og__mat_of(x), my = og__mat_of(y);
    for (int s = 0; s < rows->n_seg; s++) {
        int64_t n = rows->cu[s + 1] - rows->cu[s];
        if (!n) continue;
        columns in = segment(&mx, state, rows, s, (k - 1) * dilation);
        for (int64_t t = 0; t < n; t++)
            for (int64_t c = 0; c < channels; c++) {
                double sum = 0.0;
                for (int64_t j = 0; j < k; j++)
                    sum += (double)column(&in, t - (k - 1 - j) * dilation)[c] *
                           (double)og__elem(w->data, w->dtype, c * k + j);
                if (og_tensor_present(bias))
                    sum += (double)og__elem(bias->data, bias->dtype, c);
                ((float *)my.p)[(rows->cu[s] + t) * my.ld + c] = (float)sum;
            }
        push(&in, n);
    }
    return 0;
}
