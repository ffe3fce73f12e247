/* Moves: runs of contiguous elements by memcpy or a vector loop, all else by the oracle. */
#include "kernels/cpu/cpu.h"

#include <string.h>

typedef struct move_job {
    const og__isa *isa;
    og__mat y, x;
    const og_tensor *table, *ids;
    const og_row_prog *prog;
} move_job;

static char *row_of(const og__mat *m, int64_t r) {
    return m->p + r * m->ld * (int64_t)og_dtype_size(m->dtype);
}

static void copy_rows(void *arg, int64_t from, int64_t to) {
    const move_job *j = arg;
    for (int64_t r = from; r < to; r++) {
        if (j->y.dtype == j->x.dtype)
            memmove(row_of(&j->y, r), row_of(&j->x, r),
                    (size_t)j->y.cols * og_dtype_size(j->y.dtype));
        else
            j->isa->widen((float *)(void *)row_of(&j->y, r), row_of(&j->x, r), j->x.dtype,
                          j->y.cols);
    }
}

int og__cpu_copy(og_exec *ex, og_tensor *y, const og_tensor *x) {
    move_job j = {.isa = og__cpu_isa(ex)};
    int64_t cols = y->ne[y->rank - 1];
    int fast = og__mat_as(y, cols, &j.y) && og__mat_as(x, cols, &j.x) &&
               (y->dtype == x->dtype || (y->dtype == OG_F32 && og__is_weight(x->dtype)));
    if (!fast) return og__ref_copy(ex, y, x);
    og__cpu_rows(j.y.rows, cols, copy_rows, &j);
    return 0;
}

typedef struct fill_job {
    og__mat y;
    float v;
} fill_job;

static void fill_rows(void *arg, int64_t from, int64_t to) {
    const fill_job *j = arg;
    for (int64_t r = from; r < to; r++) {
        float *y = (float *)(void *)j->y.p + r * j->y.ld;
        for (int64_t c = 0; c < j->y.cols; c++) y[c] = j->v;
    }
}

int og__cpu_fill(og_exec *ex, og_tensor *y, float v) {
    fill_job j = {.v = v};
    if (y->dtype != OG_F32 || !og__mat_as(y, y->ne[y->rank - 1], &j.y))
        return og__ref_fill(ex, y, v);
    og__cpu_rows(j.y.rows, j.y.cols, fill_rows, &j);
    return 0;
}

static void gather(void *arg, int64_t from, int64_t to) {
    const move_job *j = arg;
    const int32_t *ids = j->ids->data;
    for (int64_t r = from; r < to; r++) {
        float *y = (float *)(void *)row_of(&j->y, r);
        int32_t id = ids[r * j->ids->stride[0]];
        if (id < 0)
            memset(y, 0, (size_t)j->y.cols * sizeof *y);
        else
            j->isa->widen(y, row_of(&j->x, id), j->x.dtype, j->y.cols);
    }
}

int og__cpu_gather_rows(og_exec *ex, og_tensor *y, const og_tensor *table,
                        const og_tensor *ids) {
    if (!og__is_weight(table->dtype)) return og__ref_gather_rows(ex, y, table, ids);
    move_job j = {.isa = og__cpu_isa(ex), .ids = ids};
    og__mat_as(y, table->ne[1], &j.y);
    j.x = (og__mat){table->data, table->dtype, table->ne[0], table->ne[1],
                    table->stride[0]};
    for (int64_t r = 0; r < j.y.rows; r++) {
        int32_t id = ((const int32_t *)ids->data)[r * ids->stride[0]];
        if (id >= table->ne[0])
            return og__fail(ex, OG_EINVAL, "gather_rows: id %d, the table has %lld rows",
                            id, (long long)table->ne[0]);
    }
    og__cpu_rows(j.y.rows, j.y.cols, gather, &j);
    return 0;
}

static void sum_rows(void *arg, int64_t from, int64_t to) {
    const move_job *j = arg;
    const og_row_prog *p = j->prog;
    for (int64_t r = from; r < to; r++) {
        float *y = (float *)(void *)row_of(&j->y, r);
        if (p->off[r] == p->off[r + 1]) memset(y, 0, (size_t)j->y.cols * sizeof *y);
        for (int32_t i = p->off[r]; i < p->off[r + 1]; i++) {
            const og_tensor *t = &p->tables[p->table[i]];
            const char *x = (const char *)t->data +
                            p->index[i] * t->stride[0] * (int64_t)og_dtype_size(t->dtype);
            if (i == p->off[r])
                j->isa->widen(y, x, t->dtype, j->y.cols);
            else
                j->isa->add_widened(y, x, t->dtype, j->y.cols);
        }
    }
}

int og__cpu_row_sum(og_exec *ex, og_tensor *y, const og_row_prog *prog) {
    move_job j = {.isa = og__cpu_isa(ex), .y = og__mat_of(y), .prog = prog};
    for (int i = 0; i < prog->n_tables; i++)
        if (!og__is_weight(prog->tables[i].dtype)) return og__ref_row_sum(ex, y, prog);
    for (int32_t i = prog->off[0]; i < prog->off[j.y.rows]; i++) {
        int32_t t = prog->table[i];
        if (t < 0 || t >= prog->n_tables || prog->index[i] < 0 ||
            prog->index[i] >= prog->tables[t].ne[0])
            return og__fail(ex, OG_EINVAL, "row_sum: term %d names table %d, index %d", i,
                            t, prog->index[i]);
    }
    int64_t terms = (prog->off[j.y.rows] - prog->off[0]) / j.y.rows + 1;
    og__cpu_rows(j.y.rows, j.y.cols * terms, sum_rows, &j);
    return 0;
}
