/* Causal convolutions over packed rows with carried state. */
#include "kernels/cpu/cpu.h"

#include <string.h>

/* Columns of every segment's state with padded channels, in the order of the segments. */
static int pad_state(og_exec *ex, og__taps *in, const og_tensor *state, int64_t depth,
                     int64_t width) {
    int64_t ld = og__blocks(width) * OG__LANES, n_seg = in->rows->n_seg;
    /* while measuring, segments may be fewer than in a later step of as many rows */
    int64_t most = in->rows->n < state->ne[0] ? in->rows->n : state->ne[0];
    float *to;
    OG__CHECK(og__cpu_floats(ex, (n_seg > most ? n_seg : most) * depth * ld, &to));
    in->state = to;
    in->state_ld = ld;
    in->by_segment = 1;
    if (og__measuring(ex)) return 0;
    memset(to, 0, (size_t)(n_seg * depth * ld) * sizeof *to);
    for (int64_t s = 0; s < n_seg; s++) {
        if (in->rows->cu[s] == in->rows->cu[s + 1]) continue;
        const float *from =
            (const float *)state->data + in->rows->slot[in->rows->cu[s]] * depth * width;
        for (int64_t i = 0; i < depth; i++)
            memcpy(to + (s * depth + i) * ld, from + i * width,
                   (size_t)width * sizeof *to);
    }
    return 0;
}

typedef struct push_job {
    float *state;
    const float *x;
    const og_rows *rows;
    int64_t depth, ld, width;
} push_job;

static void push_task(void *arg, int64_t s, int worker) {
    const push_job *j = arg;
    (void)worker;
    int64_t first = j->rows->cu[s], n = j->rows->cu[s + 1] - first;
    if (n)
        og__host_state_push(j->state + j->rows->slot[first] * j->depth * j->width,
                            j->depth, (const char *)(j->x + first * j->ld), n, j->ld,
                            j->width);
}

/* Move every segment's state on, once all outputs have been computed. */
static void push_states(const og_tensor *state, const og__mat *x, const og_rows *rows,
                        int64_t depth) {
    if (!depth) return;
    push_job j = {state->data, (const float *)x->p, rows, depth, x->ld, x->cols};
    og__pool_run(rows->n_seg, push_task, &j);
}

int og__cpu_conv1d(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                   const og_tensor *bias, og_tensor *state, const og_rows *rows,
                   int dilation, const og_epilogue *epi) {
    int64_t cout = w->ne[0], taps = w->ne[1], cin = w->ne[2],
            depth = (taps - 1) * dilation;
    og__mat mx = og__mat_of(x), my = og__mat_of(y);
    og__taps in = {.x = (const float *)mx.p,
                   .ld = mx.ld,
                   .taps = (int)taps,
                   .dilation = dilation,
                   .rows = rows,
                   .state_ld = cin};
    if (depth) in.state = state->data;
    OG__CHECK(og__cpu_pad(ex, &in.x, &in.ld, mx.rows, cin));
    if (depth && cin % OG__LANES) OG__CHECK(pad_state(ex, &in, state, depth, cin));
    og__product p = {
        .w = {w->data, w->dtype, taps * cin, cin, (int)taps},
        .n = cout,
        .y = (float *)my.p,
        .ldy = my.ld,
    };
    OG__CHECK(og__cpu_epilogue(ex, &p, bias, epi));
    OG__CHECK(og__cpu_matmul(ex, &in, mx.rows, &p, 1));
    if (!og__measuring(ex)) push_states(state, &mx, rows, depth);
    return 0;
}

typedef struct depthwise_job {
    const og__isa *isa;
    og__mat y, x;
    const float *w, *bias, *state; /* w as [taps][C] */
    const og_rows *rows;
    int taps, dilation;
} depthwise_job;

#define DEPTHWISE_TAPS 64

static void depthwise_rows(void *arg, int64_t from, int64_t to) {
    const depthwise_job *j = arg;
    const float *in[DEPTHWISE_TAPS];
    int64_t width = j->x.cols, depth = (int64_t)(j->taps - 1) * j->dilation;
    int s = 0;
    for (int64_t r = from; r < to; r++) {
        while (r >= j->rows->cu[s + 1]) s++;
        int64_t first = j->rows->cu[s];
        for (int k = 0; k < j->taps; k++) {
            int64_t t = r - first - (int64_t)(j->taps - 1 - k) * j->dilation;
            in[k] = t >= 0
                        ? (const float *)j->x.p + (first + t) * j->x.ld
                        : j->state + (j->rows->slot[first] * depth + depth + t) * width;
        }
        j->isa->depthwise((float *)j->y.p + r * j->y.ld, in, j->w, j->bias, j->taps,
                          width);
    }
}

int og__cpu_conv1d_depthwise(og_exec *ex, og_tensor *y, const og_tensor *x,
                             const og_tensor *w, const og_tensor *bias, og_tensor *state,
                             const og_rows *rows, int dilation) {
    int64_t width = w->ne[0], taps = w->ne[1];
    if (taps > DEPTHWISE_TAPS)
        return og__fail(ex, OG_ELIMIT, "conv1d_depthwise: %lld taps (limit is %d)",
                        (long long)taps, DEPTHWISE_TAPS);
    depthwise_job j = {.isa = og__cpu_isa(ex),
                       .y = og__mat_of(y),
                       .x = og__mat_of(x),
                       .rows = rows,
                       .taps = (int)taps,
                       .dilation = dilation};
    float *turned, *plain;
    OG__CHECK(og__cpu_vector(ex, bias, &j.bias));
    OG__CHECK(og__cpu_floats(ex, width * taps, &plain));
    OG__CHECK(og__cpu_floats(ex, width * taps, &turned));
    if (og__measuring(ex)) return 0;
    j.isa->widen(plain, w->data, w->dtype, width * taps);
    for (int64_t c = 0; c < width; c++)
        for (int64_t k = 0; k < taps; k++) turned[k * width + c] = plain[c * taps + k];
    j.w = turned;
    if (taps > 1) j.state = state->data;
    og__cpu_rows(rows->n, width * taps, depthwise_rows, &j);
    push_states(state, &j.x, rows, (taps - 1) * dilation);
    return 0;
}
