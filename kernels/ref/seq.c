#include "kernels/ref/seq.h"
#include "kernels/elem.h"
#include "kernels/math.h"
#include "kernels/ref/ref.h"

static float *row_of(const og__mat *m, int64_t r) {
    return (float *)m->p + r * m->ld;
}

/* The row of x that stands at time t of the padded sequence; -1: zeros. */
static int64_t padded_row(int64_t t, int64_t n, og_pad mode) {
    if (t >= 0 && t < n) return t;
    switch (mode) {
    case OG_PAD_ZERO: return -1;
    case OG_PAD_EDGE: return t < 0 ? 0 : n - 1;
    case OG_PAD_REFLECT: return t < 0 ? -t : 2 * (n - 1) - t;
    }
    return -1;
}

void og__seq_pad_rows(void *job, int64_t from, int64_t to) {
    const og__seq_job *j = job;
    size_t bytes = (size_t)j->x.cols * sizeof(float);
    for (int64_t r = from; r < to; r++) {
        int64_t at = padded_row(r - j->left, j->x.rows, j->mode);
        if (at < 0) memset(row_of(&j->y, r), 0, bytes);
        else memcpy(row_of(&j->y, r), row_of(&j->x, at), bytes);
    }
}

void og__seq_magnitude_rows(void *job, int64_t from, int64_t to) {
    const og__seq_job *j = job;
    for (int64_t r = from; r < to; r++) {
        const float *re = row_of(&j->x, r), *im = re + j->y.cols;
        float *y = row_of(&j->y, r);
        for (int64_t c = 0; c < j->y.cols; c++)
            y[c] = __builtin_sqrtf(re[c] * re[c] + im[c] * im[c] + j->floor);
    }
}

void og__seq_log_rows(void *job, int64_t from, int64_t to) {
    const og__seq_job *j = job;
    for (int64_t r = from; r < to; r++) {
        const float *x = row_of(&j->x, r);
        float *y = row_of(&j->y, r);
        for (int64_t c = 0; c < j->y.cols; c++)
            y[c] = (float)og__log((double)(x[c] < j->floor ? j->floor : x[c]));
    }
}

/* Channels of block b. */
static int block_of(const og__seq_job *j, int64_t b, int64_t *first) {
    *first = b * OG__SEQ_BLOCK;
    int64_t left = j->x.cols - *first;
    return left < OG__SEQ_BLOCK ? (int)left : OG__SEQ_BLOCK;
}

/* sum += weight * (x - shift), or its square; shift NULL: x itself. */
static void add_row(double *sum, const float *x, const float *w, const double *shift,
                    int n) {
    for (int c = 0; c < n; c++) {
        double d = (double)x[c] - (shift ? shift[c] : 0.0);
        if (shift) d *= d;
        sum[c] += w ? (double)w[c] * d : d;
    }
}

static void stats_block(const og__seq_job *j, int64_t first, int n) {
    double mean[OG__SEQ_BLOCK] = {0}, var[OG__SEQ_BLOCK] = {0}, t = (double)j->x.rows;
    for (int64_t r = 0; r < j->x.rows; r++)
        add_row(mean, row_of(&j->x, r) + first, j->w.p ? row_of(&j->w, r) + first : NULL,
                NULL, n);
    for (int c = 0; c < n; c++) {
        if (!j->w.p) mean[c] /= t;
        j->mean[first + c] = (float)mean[c];
    }
    if (!j->std) return;
    for (int64_t r = 0; r < j->x.rows; r++)
        add_row(var, row_of(&j->x, r) + first, j->w.p ? row_of(&j->w, r) + first : NULL,
                mean, n);
    for (int c = 0; c < n; c++) {
        if (!j->w.p) var[c] /= t;
        double v = var[c] < (double)j->floor ? (double)j->floor : var[c];
        j->std[first + c] = (float)__builtin_sqrt(v);
    }
}

void og__seq_stats_blocks(void *job, int64_t from, int64_t to) {
    const og__seq_job *j = job;
    int64_t first;
    for (int64_t b = from; b < to; b++) {
        int n = block_of(j, b, &first);
        stats_block(j, first, n);
    }
}

void og__seq_max_blocks(void *job, int64_t from, int64_t to) {
    const og__seq_job *j = job;
    int64_t first;
    for (int64_t b = from; b < to; b++) {
        int n = block_of(j, b, &first);
        for (int c = 0; c < n; c++) j->mean[first + c] = row_of(&j->x, 0)[first + c];
        for (int64_t r = 1; r < j->x.rows; r++)
            for (int c = 0; c < n; c++) {
                float v = row_of(&j->x, r)[first + c], *max = &j->mean[first + c];
                *max = v > *max ? v : *max;
            }
    }
}

void og__seq_sum_blocks(void *job, int64_t from, int64_t to) {
    const og__seq_job *j = job;
    int64_t first;
    for (int64_t b = from; b < to; b++) {
        int n = block_of(j, b, &first);
        double sum[OG__SEQ_BLOCK] = {0};
        for (int64_t r = 0; r < j->x.rows; r++)
            add_row(sum, row_of(&j->x, r) + first, NULL, NULL, n);
        for (int c = 0; c < n; c++) j->mean[first + c] = (float)sum[c];
    }
}

int32_t og__seq_nearest(const float *x, const og__mat *table, const uint8_t *keep) {
    int32_t best = 0;
    double least = (double)__builtin_inff();
    for (int64_t i = 0; i < table->rows; i++) {
        if (keep && !keep[i]) continue;
        const float *row = row_of(table, i);
        double sum = 0.0;
        for (int64_t c = 0; c < table->cols; c++) {
            double d = (double)x[c] - (double)row[c];
            sum += d * d;
        }
        if (sum < least) {
            least = sum;
            best = (int32_t)i;
        }
    }
    return best;
}

/* ---- the ops, on one thread --------------------------------------------------------- */

int og__ref_pad_time(og_exec *ex, og_tensor *y, const og_tensor *x, int64_t left,
                     og_pad mode) {
    (void)ex;
    og__seq_job j = {.y = og__mat_of(y), .x = og__mat_of(x), .left = left, .mode = mode};
    og__seq_pad_rows(&j, 0, j.y.rows);
    return 0;
}

int og__ref_conv1d_valid(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                         const og_tensor *bias, int stride, int dilation,
                         const og_epilogue *epi) {
    if (og__measuring(ex)) return 0;
    int64_t cout = w->ne[0], k = w->ne[1], cin = w->ne[2];
    og__mat mx = og__mat_of(x), my = og__mat_of(y);
    for (int64_t t = 0; t < my.rows; t++)
        for (int64_t o = 0; o < cout; o++) {
            double sum = 0.0;
            for (int64_t j = 0; j < k; j++) {
                const float *a = row_of(&mx, t * stride + j * dilation);
                for (int64_t c = 0; c < cin; c++)
                    sum += (double)a[c] *
                           (double)og__elem(w->data, w->dtype, (o * k + j) * cin + c);
            }
            if (og_tensor_present(bias))
                sum += (double)og__elem(bias->data, bias->dtype, o);
            row_of(&my, t)[o] = (float)og__ref_epilogue(sum, epi, t, o, cout);
        }
    return 0;
}

int og__ref_magnitude(og_exec *ex, og_tensor *y, const og_tensor *x, float eps) {
    (void)ex;
    og__seq_job j = {.y = og__mat_of(y), .x = og__mat_of(x), .floor = eps};
    og__seq_magnitude_rows(&j, 0, j.y.rows);
    return 0;
}

int og__ref_log_floor(og_exec *ex, og_tensor *y, const og_tensor *x, float floor) {
    (void)ex;
    og__seq_job j = {.y = og__mat_of(y), .x = og__mat_of(x), .floor = floor};
    og__seq_log_rows(&j, 0, j.y.rows);
    return 0;
}

int og__ref_softmax_time(og_exec *ex, og_tensor *y, const og_tensor *x) {
    if (og__measuring(ex)) return 0;
    og__mat my = og__mat_of(y), mx = og__mat_of(x);
    for (int64_t c = 0; c < mx.cols; c++) {
        float max = row_of(&mx, 0)[c];
        double sum = 0.0;
        for (int64_t r = 1; r < mx.rows; r++)
            if (row_of(&mx, r)[c] > max) max = row_of(&mx, r)[c];
        for (int64_t r = 0; r < mx.rows; r++)
            sum += og__exp((double)row_of(&mx, r)[c] - (double)max);
        for (int64_t r = 0; r < mx.rows; r++)
            row_of(&my, r)[c] =
                (float)(og__exp((double)row_of(&mx, r)[c] - (double)max) / sum);
    }
    return 0;
}

int og__ref_time_stats(og_exec *ex, og_tensor *mean, og_tensor *std, const og_tensor *x,
                       const og_tensor *w, float floor) {
    (void)ex;
    og__seq_job j = {.x = og__mat_of(x), .mean = mean->data, .floor = floor};
    if (og_tensor_present(w)) j.w = og__mat_of(w);
    if (og_tensor_present(std)) j.std = std->data;
    og__seq_stats_blocks(&j, 0, og__seq_blocks(j.x.cols));
    return 0;
}

int og__ref_rvq_nearest(og_exec *ex, og_tensor *ids, const og_tensor *x,
                        const og_tensor *table) {
    if (og__measuring(ex)) return 0;
    og__mat mx = og__mat_of(x), mt = og__mat_of(table);
    for (int64_t r = 0; r < mx.rows; r++)
        ((int32_t *)ids->data)[r * ids->stride[0]] =
            og__seq_nearest(row_of(&mx, r), &mt, NULL);
    return 0;
}
