#include "nodes/blocks/rows.h"

static int has_item(const og_row_source *sources, const og_term *t) {
    return t->source == OG_NO_SOURCE || t->index < sources[t->source].n;
}

static int ended(const og_row_source *sources, const og_term *t) {
    return !has_item(sources, t) && sources[t->source].closed;
}

static og_row_state peek_closed(const og_recipe *r, int32_t row, const og_row_source *sources,
                                og_term *terms, int *n_terms) {
    og_row_state state = OG_ROW_READY;
    *n_terms = 0;
    for (int32_t k = r->off[row]; k < r->off[row + 1]; k++) {
        const og_term *t = &r->terms[k];
        if (ended(sources, t)) return OG_ROW_NEVER;
        if (!has_item(sources, t)) state = OG_ROW_WAIT;
        terms[(*n_terms)++] = *t;
    }
    return state;
}

/* END here is the end of the part alone. Terms that step decide; a part in which none does
 * has one row for each item of the source that drives it. */
static og_row_state peek_open(const og_recipe *r, const og_row_cursor *at,
                              const og_row_source *sources, og_term *terms, int *n_terms) {
    const og_open_part *p = &r->open[at->open];
    og_row_state state = OG_ROW_READY;
    int steps = 0;
    *n_terms = 0;
    for (int32_t k = 0; k < p->n_terms; k++) {
        const og_open_term *o = &r->open_terms[p->first_term + k];
        og_term t = o->term;
        if (t.source != OG_NO_SOURCE) t.index += o->step * at->i;
        if (t.source != OG_NO_SOURCE && o->step) steps = 1;
        if (ended(sources, &t)) return o->step ? OG_ROW_END : OG_ROW_NEVER;
        if (!has_item(sources, &t)) state = OG_ROW_WAIT;
        terms[(*n_terms)++] = t;
    }
    if (steps) return state;
    og_term drive = {0, (uint16_t)p->source, at->i};
    if (ended(sources, &drive)) return OG_ROW_END;
    return has_item(sources, &drive) ? state : OG_ROW_WAIT;
}

static int in_open_part(const og_recipe *r, const og_row_cursor *at) {
    return at->open < r->n_open && r->open[at->open].at <= at->row;
}

og_row_state og_row_peek(const og_recipe *r, og_row_cursor *at, const og_row_source *sources,
                         og_term *terms, int *n_terms) {
    while (in_open_part(r, at)) {
        og_row_state s = peek_open(r, at, sources, terms, n_terms);
        if (s != OG_ROW_END) return s;
        at->open++;
        at->i = 0;
    }
    if (at->row >= r->n_rows) return OG_ROW_END;
    return peek_closed(r, at->row, sources, terms, n_terms);
}

void og_row_take(const og_recipe *r, og_row_cursor *at) {
    if (in_open_part(r, at)) at->i++;
    else at->row++;
}

static int check_term(const og_term *t, const og_row_table *tables, int n_tables,
                      const char *what, int32_t row, og_err *err) {
    if (t->table >= n_tables)
        return og_err_set(err, OG_EINVAL, "%s %d names table %d of %d", what, row, t->table,
                          n_tables);
    const og_row_table *tab = &tables[t->table];
    if (t->source != OG_NO_SOURCE) {
        if (t->source < OG_ROW_MAX_SOURCES && t->index >= 0) return 0;
        return og_err_set(err, OG_ELIMIT, "%s %d reads item %d of source %d (limit is %d)",
                          what, row, t->index, t->source, OG_ROW_MAX_SOURCES);
    }
    if (tab->arg != OG_TABLE_ID)
        return og_err_set(err, OG_EINVAL, "%s %d gives an id to table %s, which takes items",
                          what, row, tab->name);
    if (t->index < 0 || (tab->count && t->index >= tab->count))
        return og_err_set(err, OG_ELIMIT, "%s %d: id %d is not in table %s (0 to %lld)", what,
                          row, t->index, tab->name, (long long)tab->count - 1);
    return 0;
}

static int check_count(int32_t n, const char *what, int32_t row, og_err *err) {
    if (n >= 0 && n <= OG_ROW_MAX_TERMS) return 0;
    return og_err_set(err, OG_ELIMIT, "%s %d has %d terms (limit is %d)", what, row, n,
                      OG_ROW_MAX_TERMS);
}

static int check_open(const og_recipe *r, int32_t part, const og_row_table *tables,
                      int n_tables, og_err *err) {
    const og_open_part *p = &r->open[part];
    int rc = check_count(p->n_terms, "open part", part, err);
    if (!rc && (p->source < 0 || p->source >= OG_ROW_MAX_SOURCES))
        rc = og_err_set(err, OG_ELIMIT, "open part %d is driven by source %d (limit is %d)",
                        part, p->source, OG_ROW_MAX_SOURCES);
    for (int32_t k = 0; !rc && k < p->n_terms; k++)
        rc = check_term(&r->open_terms[p->first_term + k].term, tables, n_tables, "open part",
                        part, err);
    return rc;
}

int og_recipe_check(const og_recipe *r, const og_row_table *tables, int n_tables,
                    og_err *err) {
    int rc = 0;
    if (r->n_sources > OG_ROW_MAX_SOURCES)
        return og_err_set(err, OG_ELIMIT, "rows name %d sources (limit is %d)", r->n_sources,
                          OG_ROW_MAX_SOURCES);
    for (int32_t i = 0; !rc && i < r->n_rows; i++) {
        rc = check_count(r->off[i + 1] - r->off[i], "row", i, err);
        for (int32_t k = r->off[i]; !rc && k < r->off[i + 1]; k++)
            rc = check_term(&r->terms[k], tables, n_tables, "row", i, err);
    }
    for (int32_t i = 0; !rc && i < r->n_open; i++)
        rc = check_open(r, i, tables, n_tables, err);
    return rc;
}
