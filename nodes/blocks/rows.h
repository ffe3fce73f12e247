/* Walking a recipe: which row is next, whether it can be known yet, and its terms.
 *
 * The consumer keeps, for each source that a recipe names, how many items have come and
 * whether more can come. A cursor stands before a row; og_row_peek says what is there and
 * og_row_take steps over it. Nothing is allocated.
 *
 *     og_row_cursor at = {0};
 *     og_term terms[OG_ROW_MAX_TERMS];
 *     int n;
 *     while (og_row_peek(recipe, &at, sources, terms, &n) == OG_ROW_READY) {
 *         add(terms, n);
 *         og_row_take(recipe, &at);
 *     }
 */
#ifndef OG_BLOCKS_ROWS_H
#define OG_BLOCKS_ROWS_H

#include "nodes/node.h"

#define OG_ROW_MAX_TERMS 32
#define OG_ROW_MAX_SOURCES 16

/* What has come of one source. */
typedef struct og_row_source {
    int32_t n;
    int closed; /* no further items */
} og_row_source;

typedef struct og_row_cursor {
    int32_t row;  /* next closed row */
    int32_t open; /* next open part */
    int32_t i;    /* rows taken of that part */
} og_row_cursor;

typedef enum og_row_state {
    OG_ROW_READY, /* terms were written; their index is the id or the item's number */
    OG_ROW_WAIT,  /* an item that it needs has not come */
    OG_ROW_END,   /* the recipe has no further row */
    OG_ROW_NEVER  /* a closed row needs an item that its ended source never gave */
} og_row_state;

/* terms has room for OG_ROW_MAX_TERMS, sources for r->n_sources. Steps the cursor over open
 * parts that have ended, else leaves it. */
og_row_state og_row_peek(const og_recipe *r, og_row_cursor *at, const og_row_source *sources,
                         og_term *terms, int *n_terms);
/* Step over the row that was READY. */
void og_row_take(const og_recipe *r, og_row_cursor *at);

/* A table of an arch with its numbers resolved from the config. */
typedef struct og_row_table {
    const char *name;
    og_table_arg arg;
    int64_t count; /* ids (or values of one code); 0: unbounded */
    int64_t width; /* of one argument: 1 for ids */
} og_row_table;

/* Whether a consumer with these tables can take r: tables and ids in range, no row with too
 * many terms, not too many sources. OG_EINVAL or OG_ELIMIT names the row and the numbers. */
OG_MUST_CHECK int og_recipe_check(const og_recipe *r, const og_row_table *tables,
                                  int n_tables, og_err *err);

#endif
