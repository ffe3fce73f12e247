/* The prefix cache: which rows a full page of KV stands for.
 *
 * The K and V of a row depend on nothing but the rows before it and itself, bit for bit, so a
 * page can serve every prompt that begins with the same rows. Its key is a chain:
 *
 *     key[-1] = sha256(checkpoint, arch, folder)
 *     key[i]  = sha256(key[i - 1], the 16 rows of page i)
 *
 * A row is hashed by what it adds up: the table and the id of each term or, where a term
 * names an item of a source, the values of that item. So a cloned voice is found again by
 * its reference codes and its speaker vector, whatever request they came with. Rows that were
 * decoded have no recipe: the pages of a chain end before the first of them.
 *
 * The last row of a prompt is always computed, as the first token is drawn from its state.
 */
#include "nodes/ar/ar_node.h"

#include <string.h>

static int is_on(const ar_node *n) {
    return n->pool.index.n_buckets > 0;
}

int og__ar_prefix_init(ar_node *n, og_err *err) {
    const og_node_cfg *cfg = &n->node.cfg;
    uint64_t checkpoint;
    og__sha256 h;
    if (!cfg->prefix_cache) return 0;
    int rc = og_model_fingerprint(cfg->model, &checkpoint, err);
    if (rc < 0) return rc;
    og__sha256_init(&h);
    og__sha256_add(&h, &checkpoint, sizeof checkpoint);
    og__sha256_add(&h, cfg->arch->name, strlen(cfg->arch->name) + 1);
    og__sha256_add(&h, cfg->folder, strlen(cfg->folder) + 1);
    og__sha256_end(&h, n->prefix_root);
    return og__ar_pool_keep(&n->pool, n->n_slots, err);
}

static void begin_page(og__sha256 *h, const unsigned char *before) {
    og__sha256_init(h);
    og__sha256_add(h, before, AR_KEY);
}

void og__ar_prefix_start(const ar_node *n, ar_slot *s) {
    if (is_on(n)) begin_page(&s->hash, n->prefix_root);
}

/* The type stands in the hash, so that items of a wrong type never match right ones. */
static void hash_term(og__sha256 *h, const ar_input *in, const og_term *t) {
    const ar_source *s = t->source == OG_NO_SOURCE ? NULL : &in->source[in->at][t->source];
    int32_t head[3] = {t->table, s ? (int32_t)s->dtype : OG_I32, s ? (int32_t)s->width : 1};
    og__sha256_add(h, head, sizeof head);
    if (!s) {
        og__sha256_add(h, &t->index, sizeof t->index);
        return;
    }
    size_t size = (size_t)s->width * og_dtype_size(s->dtype);
    og__sha256_add(h, (const char *)s->data + (size_t)t->index * size, size);
}

static void hash_row(og__sha256 *h, const ar_input *in, const og_term *terms, int n_terms) {
    int32_t count = n_terms;
    og__sha256_add(h, &count, sizeof count);
    for (int i = 0; i < n_terms; i++) hash_term(h, in, &terms[i]);
}

void og__ar_prefix_row(ar_node *n, ar_slot *s, const og_term *terms, int n_terms) {
    unsigned char key[AR_KEY];
    n->prompt_rows++;
    if (!is_on(n)) return;
    hash_row(&s->hash, &s->prompt, terms, n_terms);
    if ((s->pos + 1) % OG_AR_PAGE) return;
    og__sha256_end(&s->hash, key);
    og__ar_pool_name(&n->pool, s->index, key);
    begin_page(&s->hash, key);
}

/* Step over the rows of the next page and tell its key. 0 unless all of them and the row
 * behind them are known. */
static int read_page(ar_slot *s, unsigned char *key) {
    og_term terms[OG_ROW_MAX_TERMS];
    og__sha256 h = s->hash;
    int n_terms;
    for (int i = 0; i < OG_AR_PAGE; i++) {
        if (og__ar_input_peek(&s->prompt, terms, &n_terms) != OG_ROW_READY) return 0;
        hash_row(&h, &s->prompt, terms, n_terms);
        og__ar_input_take(&s->prompt);
    }
    og__sha256_end(&h, key);
    return og__ar_input_peek(&s->prompt, terms, &n_terms) == OG_ROW_READY;
}

static int skip_page(ar_node *n, ar_slot *s) {
    unsigned char key[AR_KEY];
    int at = s->prompt.at;
    og_row_cursor cursor = s->prompt.cursor;
    int32_t page = read_page(s, key) ? og__ar_pool_find(&n->pool, key) : 0;
    if (!page || og__ar_pool_share(&n->pool, s->index, page) < 0) {
        s->prompt.at = at;
        s->prompt.cursor = cursor;
        return 0;
    }
    begin_page(&s->hash, key);
    s->pos += OG_AR_PAGE;
    n->prompt_rows += OG_AR_PAGE;
    n->shared_rows += OG_AR_PAGE;
    return 1;
}

void og__ar_prefix_skip(ar_node *n, ar_slot *s) {
    if (!is_on(n) || s->pos % OG_AR_PAGE) return;
    while (s->pos + OG_AR_PAGE < s->max_prompt && skip_page(n, s))
        continue;
}

void og__ar_prefix_commit(ar_node *n) {
    for (int i = 0; is_on(n) && i < n->n_used; i++)
        og__ar_pool_list(&n->pool, n->order[i]->index);
}
