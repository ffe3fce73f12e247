/* Recipes: rows that a hook described and that a node gathers and adds.
 *
 * A row is a sum of terms, left to right. A term is one row of a table of the receiving
 * arch, chosen by an id that the hook knew, or by an item of an upstream sequence (a code
 * frame, an encoder's vector) that the hook never saw. A part whose length is not known yet
 * is an og_open_part: row i of it appears when item i of its open source has come.
 *
 * Everything is flat and immutable after creation; one recipe is one allocation, counted by
 * references, so that an edge and a node can hold it from different threads.
 */
#ifndef OG_RECIPE_H
#define OG_RECIPE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OG_NO_SOURCE 0xffffu

typedef struct og_term {
    uint16_t table;  /* index in the arch's tables */
    uint16_t source; /* OG_NO_SOURCE: index is the id; else index is an item of that source */
    int32_t index;
} og_term;

/* Rows that come one by one: row i is the sum of terms, where a term with step 1 reads item
 * index + i of its source and a term with step 0 is the same in every row. */
typedef struct og_open_term {
    og_term term;
    int32_t step;
} og_open_term;

typedef struct og_open_part {
    int32_t at;     /* the part stands before closed row `at` of the recipe */
    int32_t source; /* the open source that drives it */
    int32_t first_term, n_terms;
} og_open_part;

/* A span of rows that the arch's position rule treats as one thing (an image, say). */
typedef struct og_row_span {
    int32_t from, to; /* closed rows [from, to) */
    char kind[16];
    int32_t grid[3]; /* t, h, w; zeros when none */
    float seconds;
} og_row_span;

typedef struct og_recipe {
    int32_t n_rows;
    const int32_t *off;   /* [n_rows + 1] into terms */
    const og_term *terms; /* [off[n_rows]] */
    int32_t n_open;
    const og_open_part *open;
    const og_open_term *open_terms;
    int32_t n_spans;
    const og_row_span *spans;
    int32_t n_sources; /* sources that the terms name: indices into the edge's `from` map */
    int32_t refs;      /* managed by og_recipe_ref and og_recipe_unref */
} og_recipe;

/* Copy the arrays of shape (its refs is ignored) into one block with one reference. NULL
 * when memory is out. */
og_recipe *og_recipe_create(const og_recipe *shape, int32_t n_open_terms);
og_recipe *og_recipe_ref(og_recipe *r);
void og_recipe_unref(og_recipe *r); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
