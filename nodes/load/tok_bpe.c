/* Byte pair encoding: the tables, and the merging of one word. */
#include <stdio.h>
#include <string.h>

#include "nodes/load/tok.h"

static uint64_t hash_bytes(const char *s, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

static void strmap_store(og__strmap *m, const char *s, uint32_t len, int32_t id) {
    size_t i = hash_bytes(s, len) & (m->cap - 1);
    while (m->slots[i].id >= 0) i = (i + 1) & (m->cap - 1);
    m->slots[i].s = s;
    m->slots[i].len = len;
    m->slots[i].id = id;
}

static int strmap_grow(og__strmap *m) {
    og__strmap bigger = {.cap = m->cap ? m->cap * 2 : 1024, .n = m->n};
    bigger.slots = og_malloc(bigger.cap * sizeof *bigger.slots);
    if (!bigger.slots) return OG_ENOMEM;
    for (size_t i = 0; i < bigger.cap; i++) bigger.slots[i].id = -1;
    for (size_t i = 0; i < m->cap; i++) {
        if (m->slots[i].id >= 0)
            strmap_store(&bigger, m->slots[i].s, m->slots[i].len, m->slots[i].id);
    }
    og_free(m->slots);
    *m = bigger;
    return 0;
}

int og__strmap_put(og__strmap *m, const char *s, size_t len, int32_t id) {
    if (m->n * 2 >= m->cap && strmap_grow(m) < 0) return OG_ENOMEM;
    strmap_store(m, s, (uint32_t)len, id);
    m->n++;
    return 0;
}

int32_t og__strmap_get(const og__strmap *m, const char *s, size_t len) {
    if (!m->cap) return -1;
    size_t i = hash_bytes(s, len) & (m->cap - 1);
    for (; m->slots[i].id >= 0; i = (i + 1) & (m->cap - 1)) {
        if (m->slots[i].len == len && memcmp(m->slots[i].s, s, len) == 0)
            return m->slots[i].id;
    }
    return -1;
}

/* The last step of splitmix64: neighbouring ids must not share a slot. */
static size_t hash_pair(uint64_t key) {
    key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9u;
    key = (key ^ key >> 27) * 0x94d049bb133111ebu;
    return (size_t)(key ^ key >> 31);
}

static struct og__pairslot *pair_slot(const og__pairmap *m, uint64_t key) {
    size_t i = hash_pair(key) & (m->cap - 1);
    while (m->slots[i].rank >= 0 && m->slots[i].key != key) i = (i + 1) & (m->cap - 1);
    return &m->slots[i];
}

static int pairmap_grow(og__pairmap *m) {
    og__pairmap bigger = {.cap = m->cap ? m->cap * 2 : 1024, .n = m->n};
    bigger.slots = og_malloc(bigger.cap * sizeof *bigger.slots);
    if (!bigger.slots) return OG_ENOMEM;
    for (size_t i = 0; i < bigger.cap; i++) bigger.slots[i].rank = -1;
    for (size_t i = 0; i < m->cap; i++) {
        if (m->slots[i].rank >= 0) *pair_slot(&bigger, m->slots[i].key) = m->slots[i];
    }
    og_free(m->slots);
    *m = bigger;
    return 0;
}

static uint64_t pair_key(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static const struct og__pairslot *find_pair(const og__pairmap *m, int32_t left,
                                            int32_t right) {
    if (!m->cap) return NULL;
    const struct og__pairslot *s = pair_slot(m, pair_key(left, right));
    return s->rank < 0 ? NULL : s;
}

/* The byte-level alphabet (GPT-2): printable bytes of Latin-1 are themselves, the other
 * 68 take the characters from U+0100 on, in order. */
static int is_plain(int byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

void og__alphabet_init(og_tokenizer *t) {
    int next = 0x100;
    for (int c = 0; c < OG__ALPHABET; c++) t->byte_of[c] = -1;
    for (int b = 0; b < 256; b++) {
        int c = is_plain(b) ? b : next++;
        t->char_of[b] = (uint16_t)c;
        t->byte_of[c] = (int16_t)b;
    }
}

/* The character of a byte, as UTF-8 into buf; returns its length, 1 or 2. */
static size_t spell_byte(const og_tokenizer *t, unsigned char byte, char *buf) {
    int c = t->char_of[byte];
    if (c < 0x80) {
        buf[0] = (char)c;
        return 1;
    }
    buf[0] = (char)(0xc0 | c >> 6);
    buf[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

static int tokens_room(og_tokenizer *t, int32_t id) {
    if (id < t->cap_tokens) return 0;
    int32_t cap = t->cap_tokens ? t->cap_tokens : 1024;
    while (cap <= id) cap *= 2;
    og__token *v = og_realloc(t->tokens, (size_t)cap * sizeof *v);
    if (!v) return OG_ENOMEM;
    memset(v + t->cap_tokens, 0, (size_t)(cap - t->cap_tokens) * sizeof *v);
    t->tokens = v;
    t->cap_tokens = cap;
    return 0;
}

int og__tok_add_token(og_tokenizer *t, const char *name, int32_t id, og_err *err) {
    if (id < 0 || id >= OG_TOK_MAX_ID)
        return og_err_set(err, OG_ELIMIT, "token '%.100s' has id %d (limit is %d)", name,
                          id, OG_TOK_MAX_ID);
    if (tokens_room(t, id) < 0) goto oom;
    if (t->tokens[id].text) {
        if (strcmp(t->tokens[id].text, name) == 0) return 0;
        return og_err_set(err, OG_EFORMAT,
                          "tokens '%.100s' and '%.100s' have the same id %d",
                          t->tokens[id].text, name, id);
    }
    size_t len = strlen(name);
    if (og__strmap_get(&t->by_text, name, len) >= 0)
        return og_err_set(err, OG_EFORMAT, "token '%.100s' has two ids", name);
    char *copy = og_arena_strdup(t->arena, name);
    if (!copy || og__strmap_put(&t->by_text, copy, len, id) < 0) goto oom;
    t->tokens[id].text = copy;
    t->tokens[id].bytes = copy;
    t->tokens[id].n_bytes = (uint32_t)len;
    if (id >= t->n_tokens) t->n_tokens = id + 1;
    return 0;
oom:
    return og_err_set(err, OG_ENOMEM, "no memory for a vocabulary");
}

int og__tok_add_merge(og_tokenizer *t, const char *left, size_t n_left, const char *right,
                      size_t n_right, int32_t rank) {
    char small[256], *both = small;
    og__pairmap *m = &t->merges;
    int32_t a = og__strmap_get(&t->by_text, left, n_left);
    int32_t b = og__strmap_get(&t->by_text, right, n_right);
    if (n_left + n_right > sizeof small && !(both = og_malloc(n_left + n_right)))
        return OG_ENOMEM;
    memcpy(both, left, n_left);
    memcpy(both + n_left, right, n_right);
    int32_t c = og__strmap_get(&t->by_text, both, n_left + n_right);
    if (both != small) og_free(both);
    if (a < 0 || b < 0 || c < 0) return OG_EFORMAT;
    if (m->n * 2 >= m->cap && pairmap_grow(m) < 0) return OG_ENOMEM;
    struct og__pairslot *s = pair_slot(m, pair_key(a, b));
    if (s->rank < 0) m->n++;
    *s = (struct og__pairslot){pair_key(a, b), rank, c};
    return 0;
}

/* Bytes of a byte-level spelling; 0 when it holds a character outside the alphabet, as
 * added tokens may, which then are their own bytes. */
static size_t unmap(const og_tokenizer *t, const char *text, char *out) {
    const unsigned char *s = (const unsigned char *)text;
    size_t n = 0, len = strlen(text);
    for (size_t i = 0; i < len;) {
        int32_t c = -1;
        int step = og__utf8(s + i, len - i, &c);
        int byte = step > 0 && c < OG__ALPHABET ? t->byte_of[c] : -1;
        if (byte < 0) return 0;
        out[n++] = (char)byte;
        i += (size_t)step;
    }
    return n;
}

static int hex_byte(const char *text) {
    unsigned v;
    char end;
    if (strlen(text) != 6 || sscanf(text, "<0x%2X%c", &v, &end) != 2 || end != '>')
        return -1;
    return (int)v;
}

static int show_replaced(og_tokenizer *t, og__token *k) {
    og_str s = OG_STR_INIT;
    size_t n = strlen(t->show_from);
    const char *p = k->text, *hit;
    if (!strstr(p, t->show_from)) return 0;
    for (; (hit = strstr(p, t->show_from)); p = hit + n) {
        og_str_addn(&s, p, (size_t)(hit - p));
        og_str_add(&s, t->show_to);
    }
    og_str_add(&s, p);
    k->bytes = s.oom ? NULL : og_arena_strdup(t->arena, s.data);
    k->n_bytes = (uint32_t)s.len;
    og_str_free(&s);
    return k->bytes ? 0 : OG_ENOMEM;
}

/* What a token decodes to, from its spelling. */
static int show_token(og_tokenizer *t, og__token *k) {
    int byte;
    if (k->added) return 0;
    if (t->byte_level) {
        char *bytes = og_arena_alloc(t->arena, strlen(k->text) + 1);
        if (!bytes) return OG_ENOMEM;
        size_t n = unmap(t, k->text, bytes);
        if (n || !*k->text) {
            k->bytes = bytes;
            k->n_bytes = (uint32_t)n;
        }
        return 0;
    }
    if (t->show_bytes && (byte = hex_byte(k->text)) >= 0) {
        char one = (char)byte;
        char *bytes = og_arena_alloc(t->arena, 1);
        if (!bytes) return OG_ENOMEM;
        *bytes = one;
        k->bytes = bytes;
        k->n_bytes = 1;
        return 0;
    }
    return t->show_from ? show_replaced(t, k) : 0;
}

int og__tok_finish(og_tokenizer *t, const char *name, og_err *err) {
    char text[16];
    for (int b = 0; b < 256; b++) {
        size_t n = t->byte_level
                       ? spell_byte(t, (unsigned char)b, text)
                       : (size_t)snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        t->byte_ids[b] = og__strmap_get(&t->by_text, text, n);
    }
    for (int32_t i = 0; i < t->n_tokens; i++) {
        if (t->tokens[i].text && show_token(t, &t->tokens[i]) < 0)
            return og_err_set(err, OG_ENOMEM, "%s: no memory for a vocabulary", name);
    }
    return og__added_finish(t, err);
}

int og__ids_add(og__ids *s, int32_t id) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        int32_t *v = og_realloc(s->v, cap * sizeof *v);
        if (!v) return OG_ENOMEM;
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = id;
    return 0;
}

void og__bpe_free(og__bpe *b) {
    og_free(b->symbols);
    og_free(b->heap);
}

/* Lowest rank first, then leftmost: the order in which merges are learnt and applied. */
static int before(const struct og__merge *a, const struct og__merge *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static int heap_push(og__bpe *b, struct og__merge m) {
    if (b->n_heap == b->cap_heap) {
        size_t cap = b->cap_heap ? b->cap_heap * 2 : 64;
        struct og__merge *v = og_realloc(b->heap, cap * sizeof *v);
        if (!v) return OG_ENOMEM;
        b->heap = v;
        b->cap_heap = cap;
    }
    size_t i = b->n_heap++;
    for (; i > 0 && before(&m, &b->heap[(i - 1) / 2]); i = (i - 1) / 2)
        b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = m;
    return 0;
}

static struct og__merge heap_pop(og__bpe *b) {
    struct og__merge top = b->heap[0], last = b->heap[--b->n_heap];
    size_t i = 0;
    for (;;) {
        size_t k = 2 * i + 1;
        if (k >= b->n_heap) break;
        if (k + 1 < b->n_heap && before(&b->heap[k + 1], &b->heap[k])) k++;
        if (!before(&b->heap[k], &last)) break;
        b->heap[i] = b->heap[k];
        i = k;
    }
    if (b->n_heap) b->heap[i] = last;
    return top;
}

static int offer(const og_tokenizer *t, og__bpe *b, int32_t at) {
    int32_t next = b->symbols[at].next;
    if (next < 0) return 0;
    const struct og__pairslot *s =
        find_pair(&t->merges, b->symbols[at].id, b->symbols[next].id);
    return s ? heap_push(b, (struct og__merge){s->rank, at, s->id}) : 0;
}

static int add_symbol(og__bpe *b, size_t *n, int32_t id) {
    if (*n == b->cap_symbols) {
        size_t cap = b->cap_symbols ? b->cap_symbols * 2 : 64;
        struct og__symbol *v = og_realloc(b->symbols, cap * sizeof *v);
        if (!v) return OG_ENOMEM;
        b->symbols = v;
        b->cap_symbols = cap;
    }
    b->symbols[*n] = (struct og__symbol){(int32_t)*n - 1, (int32_t)*n + 1, id};
    ++*n;
    return 0;
}

/* A character that is no token: its bytes where the vocabulary has them all, else the
 * unknown token, once for a run of them where it says so. 0, OG_ENOMEM or OG_EINVAL. */
static int add_unknown(const og_tokenizer *t, og__bpe *b, size_t *n, const char *text,
                       int len) {
    int rc = 0, whole = t->byte_fallback;
    for (int i = 0; i < len && whole; i++)
        whole = t->byte_ids[(unsigned char)text[i]] >= 0;
    if (!whole) {
        if (t->unk < 0) return OG_EINVAL;
        if (t->fuse_unk && *n && b->symbols[*n - 1].id == t->unk) return 0;
        return add_symbol(b, n, t->unk);
    }
    for (int i = 0; i < len && rc == 0; i++)
        rc = add_symbol(b, n, t->byte_ids[(unsigned char)text[i]]);
    return rc;
}

static int start_symbols(const og_tokenizer *t, og__bpe *b, const char *text, size_t len,
                         size_t *n) {
    int rc = 0, step = 1;
    for (size_t i = 0; i < len && rc == 0; i += (size_t)step) {
        int32_t c = 0, id;
        if (t->byte_level) {
            id = t->byte_ids[(unsigned char)text[i]];
        } else {
            step = og__utf8((const unsigned char *)text + i, len - i, &c);
            if (step <= 0) step = 1;
            id = og__strmap_get(&t->by_text, text + i, (size_t)step);
        }
        rc = id >= 0 ? add_symbol(b, n, id) : add_unknown(t, b, n, text + i, step);
    }
    if (*n) b->symbols[*n - 1].next = -1;
    return rc;
}

/* The whole word's id where merges are to be ignored for words of the vocabulary. */
static int32_t whole_word(const og_tokenizer *t, const char *text, size_t len) {
    char spelled[512];
    size_t n = 0;
    if (!t->byte_level) return og__strmap_get(&t->by_text, text, len);
    if (len * 2 > sizeof spelled) return -1;
    for (size_t i = 0; i < len; i++)
        n += spell_byte(t, (unsigned char)text[i], spelled + n);
    return og__strmap_get(&t->by_text, spelled, n);
}

/* Apply merges while there are any. A queued merge is stale when its left symbol is gone
 * (id -1) or the pair there has become another one. */
static int merge_all(const og_tokenizer *t, og__bpe *b, size_t n) {
    int rc = 0;
    b->n_heap = 0;
    for (size_t i = 0; i < n && rc == 0; i++) rc = offer(t, b, (int32_t)i);
    while (b->n_heap && rc == 0) {
        struct og__merge m = heap_pop(b);
        struct og__symbol *left = &b->symbols[m.at];
        if (left->id < 0 || left->next < 0) continue;
        struct og__symbol *right = &b->symbols[left->next];
        const struct og__pairslot *s = find_pair(&t->merges, left->id, right->id);
        if (!s || s->id != m.id) continue;
        left->id = m.id;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0) b->symbols[left->next].prev = m.at;
        if (left->prev >= 0) rc = offer(t, b, left->prev);
        if (rc == 0) rc = offer(t, b, m.at);
    }
    return rc;
}

int og__bpe_word(const og_tokenizer *t, og__bpe *b, const char *text, size_t len,
                 og__ids *out, og_err *err) {
    size_t n = 0;
    if (t->ignore_merges) {
        int32_t id = whole_word(t, text, len);
        if (id >= 0)
            return og__ids_add(out, id) < 0
                       ? og_err_set(err, OG_ENOMEM, "no memory for ids")
                       : 0;
    }
    int rc = start_symbols(t, b, text, len, &n);
    if (rc == OG_EINVAL)
        return og_err_set(err, OG_EINVAL, "the vocabulary has no token for '%.*s'",
                          len > 40 ? 40 : (int)len, text);
    if (rc == 0 && n) rc = merge_all(t, b, n);
    for (int32_t i = 0; n && i >= 0 && rc == 0; i = b->symbols[i].next)
        rc = og__ids_add(out, b->symbols[i].id);
    return rc < 0 ? og_err_set(err, rc, "no memory to tokenize") : 0;
}
