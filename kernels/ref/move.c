#include "kernels/elem.h"
#include "kernels/ref/ref.h"

/* One element of any dtype, as a double and as an integer. */
typedef struct number {
    double f;
    int64_t i;
} number;

#define READ_INT(type)                                                                   \
    {                                                                                    \
        type v_;                                                                         \
        memcpy(&v_, p, sizeof v_);                                                       \
        n.i = (int64_t)v_;                                                               \
        n.f = (double)v_;                                                                \
        return n;                                                                        \
    }

static number read_one(const char *p, og_dtype t) {
    number n = {0, 0};
    switch (t) {
    case OG_I64: READ_INT(int64_t)
    case OG_I32: READ_INT(int32_t)
    case OG_I16: READ_INT(int16_t)
    case OG_I8: READ_INT(int8_t)
    case OG_U64: READ_INT(uint64_t)
    case OG_U32: READ_INT(uint32_t)
    case OG_U16: READ_INT(uint16_t)
    case OG_U8:
    case OG_BOOL: READ_INT(uint8_t)
    case OG_F64: memcpy(&n.f, p, sizeof n.f); break;
    default: n.f = (double)og__elem(p, t, 0);
    }
    /* what does not fit an integer, NaN included, becomes 0 */
    n.i = n.f > -9.2e18 && n.f < 9.2e18 ? (int64_t)n.f : 0;
    return n;
}

#define WRITE_INT(type)                                                                  \
    {                                                                                    \
        type v_ = (type)n.i;                                                             \
        memcpy(p, &v_, sizeof v_);                                                       \
        break;                                                                           \
    }

static void write_one(char *p, og_dtype t, number n) {
    switch (t) {
    case OG_I64: WRITE_INT(int64_t)
    case OG_I32: WRITE_INT(int32_t)
    case OG_I16: WRITE_INT(int16_t)
    case OG_I8: WRITE_INT(int8_t)
    case OG_U64: WRITE_INT(uint64_t)
    case OG_U32: WRITE_INT(uint32_t)
    case OG_U16: WRITE_INT(uint16_t)
    case OG_U8: WRITE_INT(uint8_t)
    case OG_BOOL: n.i = n.f != 0.0; WRITE_INT(uint8_t)
    case OG_F64: memcpy(p, &n.f, sizeof n.f); break;
    default: og__elem_set(p, t, 0, (float)n.f);
    }
}

/* Steps index through the shape of t; returns 0 after the last. */
static int next_index(const og_tensor *t, int64_t *index) {
    for (int i = t->rank - 1; i >= 0; i--) {
        if (++index[i] < t->ne[i]) return 1;
        index[i] = 0;
    }
    return 0;
}

static char *at_index(const og_tensor *t, const int64_t *index) {
    int64_t off = 0;
    for (int i = 0; i < t->rank; i++) off += index[i] * t->stride[i];
    return (char *)t->data + off * (int64_t)og_dtype_size(t->dtype);
}

int og__ref_copy(og_exec *ex, og_tensor *y, const og_tensor *x) {
    (void)ex;
    int64_t index[OG_MAX_RANK] = {0};
    size_t size = og_dtype_size(x->dtype);
    do {
        char *to = at_index(y, index);
        const char *from = at_index(x, index);
        if (x->dtype == y->dtype)
            memmove(to, from, size);
        else
            write_one(to, y->dtype, read_one(from, x->dtype));
    } while (next_index(y, index));
    return 0;
}

int og__ref_fill(og_exec *ex, og_tensor *y, float v) {
    (void)ex;
    int64_t index[OG_MAX_RANK] = {0};
    number n = {(double)v, 0};
    n.i = n.f > -9.2e18 && n.f < 9.2e18 ? (int64_t)n.f : 0;
    do {
        write_one(at_index(y, index), y->dtype, n);
    } while (next_index(y, index));
    return 0;
}

static const char *table_row(const og_tensor *table, int64_t i) {
    return (const char *)table->data +
           i * table->stride[0] * (int64_t)og_dtype_size(table->dtype);
}

int og__ref_gather_rows(og_exec *ex, og_tensor *y, const og_tensor *table,
                        const og_tensor *ids) {
    og__mat m;
    og__mat_as(y, table->ne[1], &m);
    for (int64_t r = 0; r < m.rows; r++) {
        int32_t id = ((const int32_t *)ids->data)[r * ids->stride[0]];
        float *to = (float *)m.p + r * m.ld;
        if (id >= table->ne[0])
            return og__fail(ex, OG_EINVAL, "gather_rows: id %d, the table has %lld rows",
                            id, (long long)table->ne[0]);
        const char *from = id < 0 ? NULL : table_row(table, id);
        for (int64_t c = 0; c < m.cols; c++)
            to[c] = from ? og__elem(from, table->dtype, c) : 0.0f;
    }
    return 0;
}

int og__ref_scatter_rows(og_exec *ex, og_tensor *y, const og_tensor *x,
                         const og_tensor *ids) {
    og__mat my = og__mat_of(y), mx;
    og__mat_as(x, my.cols, &mx);
    int64_t size = (int64_t)og_dtype_size(x->dtype);
    for (int64_t r = 0; r < mx.rows; r++) {
        int32_t id = ((const int32_t *)ids->data)[r * ids->stride[0]];
        if (id < 0) continue;
        if (id >= my.rows)
            return og__fail(ex, OG_EINVAL, "scatter_rows: id %d, y has %lld rows", id,
                            (long long)my.rows);
        memcpy(my.p + id * my.ld * size, mx.p + r * mx.ld * size,
               (size_t)(mx.cols * size));
    }
    return 0;
}

int og__ref_row_sum(og_exec *ex, og_tensor *y, const og_row_prog *prog) {
    og__mat m = og__mat_of(y);
    for (int64_t r = 0; r < m.rows; r++) {
        float *to = (float *)m.p + r * m.ld;
        for (int64_t c = 0; c < m.cols; c++) to[c] = 0.0f;
        for (int32_t j = prog->off[r]; j < prog->off[r + 1]; j++) {
            int32_t t = prog->table[j], i = prog->index[j];
            if (t < 0 || t >= prog->n_tables || i < 0 || i >= prog->tables[t].ne[0])
                return og__fail(ex, OG_EINVAL,
                                "row_sum: row %lld names table %d, index %d",
                                (long long)r, t, i);
            const char *from = table_row(&prog->tables[t], i);
            int first = j == prog->off[r]; /* keeps the sign of a lone -0 */
            for (int64_t c = 0; c < m.cols; c++) {
                float v = og__elem(from, prog->tables[t].dtype, c);
                to[c] = first ? v : to[c] + v;
            }
        }
    }
    return 0;
}

int og__ref_depth_pass(og_exec *ex, const og__depth_pass *p) {
    (void)ex;
    int per = p->pass ? 1 : 2;
    for (int s = 0; s < p->n_seq; s++) {
        p->params[s] = p->given[s];
        p->params[s].codebook = (uint32_t)p->pass + 1;
        p->cu[s] = s * per;
        for (int i = 0; i < per; i++) {
            int r = s * per + i;
            p->slot[r] = p->slots[s];
            p->pos[3 * r] = p->pos[3 * r + 1] = p->pos[3 * r + 2] =
                p->pass ? p->pass + 1 : i;
        }
    }
    p->cu[p->n_seq] = p->n_seq * per;
    return 0;
}
