/* Added tokens: found in the text before anything else looks at it. */
#include <string.h>

#include "nodes/load/tok.h"

static int new_node(og__trie *t, unsigned char byte, int32_t *at) {
    if (t->n == t->cap) {
        int32_t cap = t->cap ? t->cap * 2 : 64;
        struct og__trienode *v = og_realloc(t->nodes, (size_t)cap * sizeof *v);
        if (!v) return OG_ENOMEM;
        t->nodes = v;
        t->cap = cap;
    }
    *at = t->n++;
    t->nodes[*at] = (struct og__trienode){0, 0, -1, byte};
    return 0;
}

static int32_t child_of(const og__trie *t, int32_t node, unsigned char byte) {
    int32_t k = t->nodes[node].child;
    while (k && t->nodes[k].byte != byte) k = t->nodes[k].sibling;
    return k;
}

static int trie_put(og__trie *t, const char *s, size_t len, int32_t added) {
    int32_t node = 0;
    if (!t->n && new_node(t, 0, &node) < 0) return OG_ENOMEM;
    for (size_t i = 0; i < len; i++) {
        int32_t k = child_of(t, node, (unsigned char)s[i]);
        if (!k) {
            if (new_node(t, (unsigned char)s[i], &k) < 0) return OG_ENOMEM;
            t->nodes[k].sibling = t->nodes[node].child;
            t->nodes[node].child = k;
        }
        node = k;
    }
    t->nodes[node].added = added;
    return 0;
}

/* The longest added token at text[at..len), or -1. */
static int32_t trie_longest(const og__trie *t, const char *text, size_t len, size_t at,
                            size_t *end) {
    int32_t node = 0, found = -1;
    for (size_t i = at; i < len; i++) {
        node = child_of(t, node, (unsigned char)text[i]);
        if (!node) break;
        if (t->nodes[node].added >= 0) {
            found = t->nodes[node].added;
            *end = i + 1;
        }
    }
    return found;
}

int og__added_put(og_tokenizer *t, const char *name, const og__added *a, og_err *err) {
    if (!a->len)
        return og_err_set(err, OG_EFORMAT, "%s: an added token without text", name);
    if (t->n_added == t->cap_added) {
        int cap = t->cap_added ? t->cap_added * 2 : 64;
        og__added *v = og_realloc(t->added, (size_t)cap * sizeof *v);
        if (!v) return og_err_set(err, OG_ENOMEM, "%s: no memory for added tokens", name);
        t->added = v;
        t->cap_added = cap;
    }
    int rc = og__tok_add_token(t, a->text, a->id, err);
    if (rc < 0) return rc;
    og__token *k = &t->tokens[a->id];
    if (k->added) return 0;
    k->added = 1;
    k->special = a->special;
    t->added[t->n_added] = *a;
    t->added[t->n_added++].text = k->text;
    return 0;
}

int og__added_finish(og_tokenizer *t, og_err *err) {
    for (int i = 0; i < t->n_added; i++) {
        og__added *a = &t->added[i];
        int late = a->normalized && t->n_norms;
        if (late) {
            og_str s;
            int rc = og__normalize(t, a->text, a->len, &s, err);
            if (rc < 0) return rc;
            const char *text = og_arena_strndup(t->arena, s.data ? s.data : "", s.len);
            size_t len = s.len;
            og_str_free(&s);
            if (!text) return og_err_set(err, OG_ENOMEM, "no memory for added tokens");
            if (!len) continue;
            a->text = text;
            a->len = len;
        }
        if (trie_put(late ? &t->normal : &t->raw, a->text, a->len, i) < 0)
            return og_err_set(err, OG_ENOMEM, "no memory for added tokens");
    }
    return 0;
}

static int32_t char_before(const char *text, size_t from, size_t at, size_t *start) {
    int32_t c = -1;
    size_t i = at;
    if (i <= from) return -1;
    do i--;
    while (i > from && ((unsigned char)text[i] & 0xc0) == 0x80);
    *start = i;
    return og__utf8((const unsigned char *)text + i, at - i, &c) > 0 ? c : -1;
}

static int32_t char_after(const char *text, size_t len, size_t at, size_t *next) {
    int32_t c = -1;
    if (at >= len) return -1;
    int n = og__utf8((const unsigned char *)text + at, len - at, &c);
    *next = at + (n > 0 ? (size_t)n : 1);
    return n > 0 ? c : -1;
}

static int stands_alone(const char *text, size_t len, size_t at, size_t end) {
    size_t unused;
    int32_t a = char_before(text, 0, at, &unused),
            b = char_after(text, len, end, &unused);
    return !(a >= 0 && og__is_word(a)) && !(b >= 0 && og__is_word(b));
}

/* Take the spaces before and after into the match. What lies before from is taken. */
static void widen(const og__added *a, const char *text, size_t len, size_t from,
                  size_t *at, size_t *end) {
    size_t k = 0;
    int32_t c;
    while (a->lstrip && (c = char_before(text, from, *at, &k)) >= 0 && og__is_space(c))
        *at = k;
    while (a->rstrip && (c = char_after(text, len, *end, &k)) >= 0 && og__is_space(c))
        *end = k;
}

int og__added_find(const og_tokenizer *t, const og__trie *trie, const char *text,
                   size_t len, size_t from, size_t *at, size_t *end, int32_t *id) {
    if (!trie->n) return 0;
    for (size_t i = from; i < len; i++) {
        int32_t k = trie_longest(trie, text, len, i, end);
        if (k < 0) continue;
        const og__added *a = &t->added[k];
        if (a->single_word && !stands_alone(text, len, i, *end)) {
            i = *end - 1;
            continue;
        }
        *at = i;
        *id = a->id;
        widen(a, text, len, from, at, end);
        return 1;
    }
    return 0;
}
