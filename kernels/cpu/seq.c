/* Ops over a whole sequence. Rows or blocks of channels are dealt to the pool. */
#include "kernels/cpu/cpu.h"
#include "kernels/ref/seq.h"

#include <string.h>

int og__cpu_pad_time(og_exec *ex, og_tensor *y, const og_tensor *x, int64_t left,
                     og_pad mode) {
    (void)ex;
    og__seq_job j = {.y = og__mat_of(y), .x = og__mat_of(x), .left = left, .mode = mode};
    og__cpu_rows(j.y.rows, j.y.cols, og__seq_pad_rows, &j);
    return 0;
}

int og__cpu_magnitude(og_exec *ex, og_tensor *y, const og_tensor *x, float eps) {
    (void)ex;
    og__seq_job j = {.y = og__mat_of(y), .x = og__mat_of(x), .floor = eps};
    og__cpu_rows(j.y.rows, j.y.cols, og__seq_magnitude_rows, &j);
    return 0;
}

#define LOG_COST 16 /* a logarithm in double, in elements of a cheap op */

int og__cpu_log_floor(og_exec *ex, og_tensor *y, const og_tensor *x, float floor) {
    (void)ex;
    og__seq_job j = {.y = og__mat_of(y), .x = og__mat_of(x), .floor = floor};
    og__cpu_rows(j.y.rows, j.y.cols * LOG_COST, og__seq_log_rows, &j);
    return 0;
}

static void over_channels(og__seq_job *j, og__rows_fn *fn) {
    og__cpu_rows(og__seq_blocks(j->x.cols), j->x.rows * OG__SEQ_BLOCK, fn, j);
}

int og__cpu_time_stats(og_exec *ex, og_tensor *mean, og_tensor *std, const og_tensor *x,
                       const og_tensor *w, float floor) {
    (void)ex;
    og__seq_job j = {.x = og__mat_of(x), .mean = mean->data, .floor = floor};
    if (og_tensor_present(w)) j.w = og__mat_of(w);
    if (og_tensor_present(std)) j.std = std->data;
    over_channels(&j, og__seq_stats_blocks);
    return 0;
}

typedef struct soft_job {
    const og__isa *isa;
    og__mat y, x;
    const float *max, *sum;
} soft_job;

static float *row_of(const og__mat *m, int64_t r) {
    return (float *)m->p + r * m->ld;
}

static void exp_rows(void *arg, int64_t from, int64_t to) {
    const soft_job *j = arg;
    for (int64_t r = from; r < to; r++) {
        j->isa->binary(row_of(&j->y, r), row_of(&j->x, r), j->max, j->x.cols, OG_SUB);
        j->isa->unary(row_of(&j->y, r), row_of(&j->y, r), j->x.cols, OG_ACT_EXP);
    }
}

static void divide_rows(void *arg, int64_t from, int64_t to) {
    const soft_job *j = arg;
    for (int64_t r = from; r < to; r++)
        j->isa->binary(row_of(&j->y, r), row_of(&j->y, r), j->sum, j->y.cols, OG_DIV);
}

int og__cpu_softmax_time(og_exec *ex, og_tensor *y, const og_tensor *x) {
    float *max, *sum;
    OG__CHECK(og__cpu_floats(ex, x->ne[1], &max));
    OG__CHECK(og__cpu_floats(ex, x->ne[1], &sum));
    if (og__measuring(ex)) return 0;
    soft_job j = {og__cpu_isa(ex), og__mat_of(y), og__mat_of(x), max, sum};
    og__seq_job over = {.x = j.x, .mean = max};
    over_channels(&over, og__seq_max_blocks);
    og__cpu_rows(j.y.rows, j.y.cols, exp_rows, &j);
    over = (og__seq_job){.x = j.y, .mean = sum};
    over_channels(&over, og__seq_sum_blocks);
    og__cpu_rows(j.y.rows, j.y.cols, divide_rows, &j);
    return 0;
}

/* ---- nearest row ------------------------------------------------------------------------ */

/* |c|^2 - 2 x c for all rows c by one matrix product, then the exact distances of those
 * rows alone that rounding could have put in the wrong order. */
typedef struct near_job {
    og__mat x, table;
    const float *dots, *norms; /* [R][N], [N] */
    uint8_t *keep;             /* [R][N] */
    int32_t *ids;
    int64_t id_stride;
} near_job;

static float square(const float *x, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return (float)sum;
}

static void norm_rows(void *arg, int64_t from, int64_t to) {
    const near_job *j = arg;
    for (int64_t i = from; i < to; i++)
        ((float *)j->norms)[i] = square(row_of(&j->table, i), j->table.cols);
}

/* The sum of D products in 16 lanes is off by at most (D/16 + 5) roundings of
 * |x| |c| <= (|x|^2 + |c|^2) / 2; twice that is allowed for. */
static void nearest_rows(void *arg, int64_t from, int64_t to) {
    const near_job *j = arg;
    int64_t n = j->table.rows;
    float tol = 1.2e-7f * (float)(j->table.cols / 16 + 6);
    for (int64_t r = from; r < to; r++) {
        const float *dot = j->dots + r * n, *x = row_of(&j->x, r);
        uint8_t *keep = j->keep + r * n;
        float limit = __builtin_inff();
        for (int64_t i = 0; i < n; i++) {
            float most = j->norms[i] - 2.0f * dot[i] + tol * j->norms[i];
            limit = most < limit ? most : limit;
        }
        limit += 2.0f * tol * square(x, j->x.cols);
        for (int64_t i = 0; i < n; i++)
            keep[i] = j->norms[i] - 2.0f * dot[i] - tol * j->norms[i] <= limit;
        j->ids[r * j->id_stride] = og__seq_nearest(x, &j->table, keep);
    }
}

int og__cpu_rvq_nearest(og_exec *ex, og_tensor *ids, const og_tensor *x,
                        const og_tensor *table) {
    int64_t rows = x->ne[0], n = table->ne[0];
    float *norms;
    OG__CHECK(og__cpu_floats(ex, n, &norms));
    og_tensor dots = og_exec_alloc(ex, OG_F32, 2, (int64_t[]){rows, n});
    og_tensor keep = og_exec_alloc(ex, OG_U8, 2, (int64_t[]){rows, n});
    OG__CHECK(og__usable(ex, "rvq_nearest", "scratch", &dots, "scratch", &keep, NULL));
    OG__CHECK(og_op_linear(ex, 1, &dots, x, table, NULL, NULL));
    if (og__measuring(ex)) return 0;
    near_job j = {og__mat_of(x), og__mat_of(table), dots.data, norms, keep.data, ids->data,
                  ids->stride[0]};
    og__cpu_rows(n, j.table.cols, norm_rows, &j);
    og__cpu_rows(rows, 2 * n, nearest_rows, &j);
    return 0;
}
