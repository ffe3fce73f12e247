/* Checks of the ops that move rows. */
#include "kernels/check.h"

#define TABLE_TYPES(t) (og__is_weight(t) || (t) == OG_F8_E4M3 || (t) == OG_F8_E5M2)

int og_op_copy(og_exec *ex, og_tensor *y, const og_tensor *x) {
    OG__CHECK(og__usable(ex, "copy", "y", y, "x", x, NULL));
    if (!og__same_shape(y, x))
        return og__eshape(ex, "copy", "shapes differ", "y", y, "x", x, NULL);
    if (y->dtype == OG_F8_E4M3 || y->dtype == OG_F8_E5M2)
        if (y->dtype != x->dtype)
            return og__fail(ex, OG_EUNSUPPORTED, "copy: a cast to %s is not supported",
                            og_dtype_name(y->dtype));
    if (og__measuring(ex) || !og_tensor_count(y)) return 0;
    return ex->dev->be->copy(ex, y, x);
}

int og_op_fill(og_exec *ex, og_tensor *y, float v) {
    OG__CHECK(og__usable(ex, "fill", "y", y, NULL));
    if (y->dtype == OG_F8_E4M3 || y->dtype == OG_F8_E5M2)
        return og__fail(ex, OG_EUNSUPPORTED, "fill: a cast to %s is not supported",
                        og_dtype_name(y->dtype));
    if (og__measuring(ex) || !og_tensor_count(y)) return 0;
    return ex->dev->be->fill(ex, y, v);
}

static int is_ids(const og_tensor *ids, int64_t n) {
    return ids->dtype == OG_I32 && ids->rank == 1 && ids->ne[0] == n;
}

int og_op_gather_rows(og_exec *ex, og_tensor *y, const og_tensor *table,
                      const og_tensor *ids) {
    OG__CHECK(og__usable(ex, "gather_rows", "y", y, "table", table, "ids", ids, NULL));
    og__mat m;
    if (table->rank != 2 || !TABLE_TYPES(table->dtype) ||
        (table->ne[1] != 1 && table->stride[1] != 1))
        return og__eshape(ex, "gather_rows", "the table must be [N, D] of a float type",
                          "table", table, NULL);
    if (y->dtype != OG_F32 || !og__mat_as(y, table->ne[1], &m) || !is_ids(ids, m.rows))
        return og__eshape(ex, "gather_rows", "y must be f32 [R, D] and ids i32 [R]", "y",
                          y, "table", table, "ids", ids, NULL);
    if (og__measuring(ex) || !og_tensor_count(y)) return 0;
    return ex->dev->be->gather_rows(ex, y, table, ids);
}

int og_op_scatter_rows(og_exec *ex, og_tensor *y, const og_tensor *x,
                       const og_tensor *ids) {
    OG__CHECK(og__usable(ex, "scatter_rows", "y", y, "x", x, "ids", ids, NULL));
    og__mat my, mx;
    if (!y->rank || !x->rank || y->dtype != x->dtype ||
        !og__mat_as(y, y->ne[y->rank - 1], &my) || !og__mat_as(x, my.cols, &mx) ||
        !is_ids(ids, mx.rows))
        return og__eshape(ex, "scatter_rows",
                          "y and x must be rows of one width and dtype, "
                          "ids i32 [R]",
                          "y", y, "x", x, "ids", ids, NULL);
    if (og__measuring(ex) || !og_tensor_count(x)) return 0;
    return ex->dev->be->scatter_rows(ex, y, x, ids);
}

int og_op_row_sum(og_exec *ex, og_tensor *y, const og_row_prog *prog) {
    OG__CHECK(og__usable(ex, "row_sum", "y", y, NULL));
    if (y->rank != 2 || !og__is_f32_rows(y))
        return og__eshape(ex, "row_sum", "y must be f32 [R, D]", "y", y, NULL);
    for (int i = 0; i < prog->n_tables; i++) {
        const og_tensor *t = &prog->tables[i];
        OG__CHECK(og__usable(ex, "row_sum", "table", t, NULL));
        if (t->rank != 2 || !TABLE_TYPES(t->dtype) || t->ne[1] != y->ne[1] ||
            (t->ne[1] != 1 && t->stride[1] != 1))
            return og__eshape(ex, "row_sum", "a table must be [N, D] of a float type",
                              "y", y, "table", t, NULL);
    }
    if (og__measuring(ex) || !og_tensor_count(y)) return 0;
    return ex->dev->be->row_sum(ex, y, prog);
}
