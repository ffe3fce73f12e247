/* Input ports of an ar_decoder: recipes, the items that they name, the fill row. */
#include "kernels/base/alloc.h"
#include "nodes/ar/ar_node.h"

#include <string.h>

og_row_state og__ar_input_peek(ar_input *in, og_term *terms, int *n_terms) {
    while (in->at < in->n_recipes) {
        og_row_state s = og_row_peek(in->recipe[in->at], &in->cursor, in->come[in->at],
                                     terms, n_terms);
        if (s != OG_ROW_END) return s;
        in->at++;
        in->cursor = (og_row_cursor){0};
    }
    return in->closed ? OG_ROW_END : OG_ROW_WAIT;
}

void og__ar_input_take(ar_input *in) {
    og_row_take(in->recipe[in->at], &in->cursor);
}

void og__ar_input_clear(ar_input *in) {
    for (int i = 0; i < in->n_recipes; i++) og_recipe_unref(in->recipe[i]);
    in->n_recipes = in->at = in->closed = 0;
    in->cursor = (og_row_cursor){0};
    memset(in->come, 0, sizeof in->come);
}

void og__ar_input_free(ar_input *in) {
    og__ar_input_clear(in);
    for (int i = 0; i < AR_MAX_RECIPES; i++)
        for (int k = 0; k < OG_ROW_MAX_SOURCES; k++) og_free(in->source[i][k].data);
}

static int take_recipe(ar_node *n, ar_input *in, og_chunk *c, og_err *err) {
    int rc = og_recipe_check(c->rows, n->d.tables, n->d.n_tables, err);
    if (rc < 0) return rc;
    if (in->closed) return og_err_set(err, OG_EINVAL, "rows after the port was closed");
    if (in->n_recipes == AR_MAX_RECIPES)
        return og_err_set(err, OG_ELIMIT, "too many pieces of rows on one port (limit is %d)",
                          AR_MAX_RECIPES);
    in->recipe[in->n_recipes++] = c->rows;
    c->rows = NULL;
    return 0;
}

static int take_fill(ar_node *n, ar_slot *s, og_chunk *c, og_err *err) {
    int rc = og_recipe_check(c->fill, n->d.tables, n->d.n_tables, err);
    if (rc < 0) return rc;
    if (c->fill->n_rows != 1 || c->fill->n_open || c->fill->n_sources)
        return og_err_set(err, OG_EINVAL, "fill must be one row of known ids (%d rows)",
                          c->fill->n_rows);
    og_recipe_unref(s->fill);
    s->fill = c->fill;
    c->fill = NULL;
    return 0;
}

/* Items belong to the recipe that came last, or to the first while there is none. */
static int of_recipe(const ar_input *in) {
    return in->n_recipes ? in->n_recipes - 1 : 0;
}

/* Rows of a prompt and feed rows can name no more items than fit in two windows. */
static int take_items(ar_node *n, ar_input *in, const og_chunk *c, og_err *err) {
    const og_tensor *x = &c->items;
    if (c->source < 0 || c->source >= OG_ROW_MAX_SOURCES)
        return og_err_set(err, OG_ELIMIT, "items of source %d (limit is %d)", c->source,
                          OG_ROW_MAX_SOURCES);
    og_row_source *come = &in->come[of_recipe(in)][c->source];
    ar_source *s = &in->source[of_recipe(in)][c->source];
    int64_t width = x->ne[0] ? og_tensor_count(x) / x->ne[0] : 1;
    if (come->closed)
        return og_err_set(err, OG_EINVAL, "items of source %d after its end", c->source);
    if (!og_tensor_dense(x) || (x->dtype != OG_I32 && x->dtype != OG_F32) ||
        (come->n && (x->dtype != s->dtype || width != s->width)))
        return og_err_set(err, OG_ETYPE, "items of source %d must be alike, dense i32 or f32",
                          c->source);
    if (come->n + x->ne[0] > 2 * (int64_t)n->max_len)
        return og_err_set(err, OG_ELIMIT, "source %d gave %lld items (limit is %d)",
                          c->source, (long long)(come->n + x->ne[0]), 2 * n->max_len);

    size_t item = (size_t)width * og_dtype_size(x->dtype);
    size_t have = (size_t)come->n * item, more = (size_t)x->ne[0] * item;
    if (have + more > s->cap) {
        size_t cap = 2 * s->cap > have + more ? 2 * s->cap : have + more;
        void *p = og_realloc(s->data, cap);
        if (!p) return og_err_set(err, OG_ENOMEM, "no memory for %zu bytes of items", cap);
        s->data = p;
        s->cap = cap;
    }
    s->dtype = x->dtype;
    s->width = width;
    if (more) memcpy((char *)s->data + have, x->data, more);
    come->n += (int32_t)x->ne[0];
    return 0;
}

static void take_limits(ar_slot *s, const og_chunk *c) {
    if (c->min_tokens > s->min_tokens) s->min_tokens = c->min_tokens;
    if (c->max_tokens > 0 && c->max_tokens < s->max_tokens) s->max_tokens = c->max_tokens;
    if (c->drop > 0) s->drop = c->drop;
    if (c->flags & OG_MUTE) s->muted = 1;
}

static int take(ar_node *n, ar_slot *s, int port, og_chunk *c, og_err *err) {
    int is_feed = port == n->port_feed;
    ar_input *in = is_feed ? &s->feed : &s->prompt;
    int of_source = !c->rows && !c->fill && c->source >= 0;
    int rc = 0;
    if (c->rows) rc = take_recipe(n, in, c, err);
    if (!rc && c->fill && is_feed) rc = take_fill(n, s, c, err);
    if (!rc && c->items.rank > 0) rc = take_items(n, in, c, err);
    if (rc < 0) return rc;
    if (!is_feed) take_limits(s, c);
    if (!(c->flags & OG_LAST)) return 0;
    if (!of_source) in->closed = 1;
    else if (c->source < OG_ROW_MAX_SOURCES) in->come[of_recipe(in)][c->source].closed = 1;
    return 0;
}

int og__ar_feed(og_node *node, og_job *job, int port, og_chunk *c, og_err *err) {
    ar_node *n = og__ar_node(node);
    ar_slot *s = og__ar_slot_of(job);
    int rc = 0;
    if (port < 0 || (port != n->port_prompt && port != n->port_feed))
        rc = og_err_set(err, OG_EINVAL, "port %d of %s takes no chunks", port,
                        n->node.cfg.arch->name);
    else if (s && s->state != AR_DONE) rc = take(n, s, port, c, err);
    if (rc < 0) og_err_node(err, n->node.cfg.stage);
    og_chunk_drop(c);
    return rc;
}
