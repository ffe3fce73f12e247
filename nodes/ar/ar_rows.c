/* Recipes into rows: terms are collected, computed tables run over their arguments, and one
 * op adds everything up. */
#include "nodes/ar/ar_node.h"

#include <string.h>

void og__ar_batch_clear(ar_batch *b) {
    b->n_rows = b->n_terms = b->n_tables = 0;
    for (int t = 0; t < OG_AR_MAX_TABLES; t++) {
        b->n_args[t] = 0;
        b->map[t] = -1;
    }
    for (int i = 0; i < 64; i++) b->memo[i].table = -1;
    b->off[0] = 0;
}

static int table_slot(ar_batch *b, int table) {
    if (b->map[table] < 0) b->map[table] = b->n_tables++;
    return b->map[table];
}

/* A copy of the item that a term reads, checked against its table. */
static int item_of(const ar_node *n, const ar_input *in, const og_term *t, const void **item,
                   og_err *err) {
    const og_row_table *tab = &n->d.tables[t->table];
    const ar_source *s = &in->source[in->at][t->source];
    og_dtype want = tab->arg == OG_TABLE_VECTOR ? OG_F32 : OG_I32;
    if (s->dtype != want || s->width != tab->width)
        return og_err_set(err, OG_ETYPE,
                          "source %d has items %s[%lld], table %s takes %s[%lld]", t->source,
                          og_dtype_name(s->dtype), (long long)s->width, tab->name,
                          og_dtype_name(want), (long long)tab->width);
    *item = (const char *)s->data +
            (size_t)t->index * (size_t)s->width * og_dtype_size(s->dtype);
    if (tab->arg == OG_TABLE_VECTOR || !tab->count) return 0;
    for (int64_t i = 0; i < tab->width; i++) {
        int32_t v = ((const int32_t *)*item)[i];
        if (v < 0 || v >= tab->count)
            return og_err_set(err, OG_ELIMIT, "item %d of source %d holds %d, table %s %lld",
                              t->index, t->source, v, tab->name, (long long)tab->count);
    }
    return 0;
}

/* Index of the argument in the table's list; -1 when the list is full. */
static int add_arg(const ar_node *n, ar_batch *b, int table, const void *arg) {
    const og_row_table *tab = &n->d.tables[table];
    int32_t id = tab->arg == OG_TABLE_ID ? *(const int32_t *)arg : 0;
    int m = (id * 5 + table) & 63;
    if (tab->arg == OG_TABLE_ID && b->memo[m].table == table && b->memo[m].id == id)
        return b->memo[m].at;
    if (b->n_args[table] == b->cap_args) return -1;
    int at = b->n_args[table]++;
    size_t size = (size_t)tab->width * sizeof(int32_t); /* f32 is as wide */
    memcpy((char *)b->args[table] + (size_t)at * size, arg, size);
    if (tab->arg == OG_TABLE_ID) {
        b->memo[m].table = table;
        b->memo[m].id = id;
        b->memo[m].at = at;
    }
    return at;
}

static int add_term(ar_node *n, ar_batch *b, const ar_input *in, const og_term *t,
                    og_err *err) {
    const void *arg = &t->index;
    int rc = t->source == OG_NO_SOURCE ? 0 : item_of(n, in, t, &arg, err);
    if (rc < 0) return rc;
    int32_t index;
    if (og_tensor_present(&n->model->direct[t->table])) index = *(const int32_t *)arg;
    else if ((index = add_arg(n, b, t->table, arg)) < 0) return 0;
    b->table[b->n_terms] = table_slot(b, t->table);
    b->index[b->n_terms++] = index;
    return 1;
}

int og__ar_batch_add(ar_node *n, ar_batch *b, const ar_input *in, const og_term *terms,
                     int n_terms, og_err *err) {
    if (b->n_rows == b->cap_rows || b->n_terms + n_terms > b->cap_terms) return 0;
    int before = b->n_terms, rc = 1;
    for (int i = 0; rc > 0 && i < n_terms; i++) rc = add_term(n, b, in, &terms[i], err);
    if (rc <= 0) b->n_terms = before;
    else b->off[++b->n_rows] = b->n_terms;
    return rc;
}

void og__ar_batch_fullest(const ar_node *n, ar_batch *b) {
    og__ar_batch_clear(b);
    b->n_rows = b->cap_rows;
    b->n_terms = b->cap_terms;
    for (int t = 0; t < n->d.n_tables; t++) {
        b->n_args[t] = b->args[t] ? b->cap_args : 0;
        table_slot(b, t);
    }
}

static og_tensor args_of(const ar_node *n, const ar_batch *b, int table) {
    const og_row_table *tab = &n->d.tables[table];
    og_dtype type = tab->arg == OG_TABLE_VECTOR ? OG_F32 : OG_I32;
    og_tensor t = og_tensor_2d(type, b->n_args[table], tab->width, b->args[table]);
    if (tab->arg == OG_TABLE_ID) t = og_tensor_1d(type, b->n_args[table], b->args[table]);
    return og_place_on(n->node.cfg.exec, t);
}

int og__ar_batch_run(ar_node *n, ar_batch *b, og_tensor *y) {
    og_exec *ex = n->node.cfg.exec;
    size_t mark = og_exec_mark(ex);
    og_tensor tables[OG_AR_MAX_TABLES];
    int rc = 0;
    for (int t = 0; !rc && t < n->d.n_tables; t++) {
        if (b->map[t] < 0) continue;
        og_tensor *tab = &tables[b->map[t]];
        *tab = n->model->direct[t];
        if (og_tensor_present(tab)) continue;
        *tab = og_exec_alloc(ex, OG_F32, 2, (int64_t[]){b->n_args[t], n->d.hidden});
        og_tensor args = args_of(n, b, t);
        rc = n->impl->table(n->model, ex, t, tab, &args);
    }
    if (!rc)
        rc = og_op_row_sum(ex, y, &(og_row_prog){.tables = tables,
                                                 .n_tables = b->n_tables,
                                                 .off = b->off,
                                                 .table = b->table,
                                                 .index = b->index});
    og_exec_release(ex, mark);
    return rc;
}
