/* Ops over a whole sequence: what the oracle and the CPU backend share.
 *
 * The work of an op is cut into rows, or into blocks of OG__SEQ_BLOCK channels, and a piece
 * of it is one call: the oracle makes a single call for all, the CPU deals calls to its
 * pool. Sums over time run in double and in ascending order within a channel, so the cut
 * changes no bit. */
#ifndef OG_REF_SEQ_H
#define OG_REF_SEQ_H

#include "kernels/check.h"

#define OG__SEQ_BLOCK 16 /* channels: one cache line of each row */

typedef struct og__seq_job {
    og__mat y, x, w;    /* w.p is NULL where weights are absent */
    float *mean, *std;  /* of the statistics; std may be NULL */
    float floor;        /* under a root or a logarithm */
    int64_t left;       /* of a padding */
    og_pad mode;
} og__seq_job;

static inline int64_t og__seq_blocks(int64_t channels) {
    return (channels + OG__SEQ_BLOCK - 1) / OG__SEQ_BLOCK;
}

/* Rows [from, to) of y. */
void og__seq_pad_rows(void *job, int64_t from, int64_t to);
void og__seq_magnitude_rows(void *job, int64_t from, int64_t to);
void og__seq_log_rows(void *job, int64_t from, int64_t to);
/* Channel blocks [from, to). */
void og__seq_stats_blocks(void *job, int64_t from, int64_t to);
void og__seq_max_blocks(void *job, int64_t from, int64_t to); /* into mean */
void og__seq_sum_blocks(void *job, int64_t from, int64_t to); /* into mean */
/* Row of the table that is nearest to x among the candidates: exact distances in double,
 * the lowest index of equals. keep NULL: every row. */
int32_t og__seq_nearest(const float *x, const og__mat *table, const uint8_t *keep);

int og__ref_pad_time(og_exec *ex, og_tensor *y, const og_tensor *x, int64_t left,
                     og_pad mode);
int og__ref_conv1d_valid(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                         const og_tensor *bias, int stride, int dilation,
                         const og_epilogue *epi);
int og__ref_magnitude(og_exec *ex, og_tensor *y, const og_tensor *x, float eps);
int og__ref_log_floor(og_exec *ex, og_tensor *y, const og_tensor *x, float floor);
int og__ref_softmax_time(og_exec *ex, og_tensor *y, const og_tensor *x);
int og__ref_time_stats(og_exec *ex, og_tensor *mean, og_tensor *std, const og_tensor *x,
                       const og_tensor *w, float floor);
int og__ref_rvq_nearest(og_exec *ex, og_tensor *ids, const og_tensor *x,
                        const og_tensor *table);

int og__cpu_pad_time(og_exec *ex, og_tensor *y, const og_tensor *x, int64_t left,
                     og_pad mode);
int og__cpu_magnitude(og_exec *ex, og_tensor *y, const og_tensor *x, float eps);
int og__cpu_log_floor(og_exec *ex, og_tensor *y, const og_tensor *x, float floor);
int og__cpu_softmax_time(og_exec *ex, og_tensor *y, const og_tensor *x);
int og__cpu_time_stats(og_exec *ex, og_tensor *mean, og_tensor *std, const og_tensor *x,
                       const og_tensor *w, float floor);
int og__cpu_rvq_nearest(og_exec *ex, og_tensor *ids, const og_tensor *x,
                        const og_tensor *table);

#endif
