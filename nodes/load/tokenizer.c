/* Tokenizer objects, and the way from text to ids and back. */
#include "nodes/load/tokenizer.h"

#include <string.h>

#include "nodes/load/json.h"
#include "nodes/load/tok.h"

static void *pcre_malloc(size_t size, void *data) {
    (void)data;
    return og_malloc(size);
}

static void pcre_free(void *p, void *data) {
    (void)data;
    og_free(p);
}

static og_tokenizer *create(og_err *err) {
    og_tokenizer *t = og_calloc(1, sizeof *t);
    if (t) {
        atomic_init(&t->refs, 1);
        t->unk = -1;
        og__alphabet_init(t);
        t->arena = og_arena_create();
        t->pcre = pcre2_general_context_create(pcre_malloc, pcre_free, NULL);
    }
    if (!t || !t->arena || !t->pcre) {
        og_tokenizer_close(t);
        og_err_set(err, OG_ENOMEM, "no memory for a tokenizer");
        return NULL;
    }
    return t;
}

og_tokenizer *og_tokenizer_ref(og_tokenizer *t) {
    atomic_fetch_add(&t->refs, 1);
    return t;
}

void og_tokenizer_close(og_tokenizer *t) {
    if (!t || atomic_fetch_sub(&t->refs, 1) != 1) return;
    for (int i = 0; i < t->n_splits; i++) pcre2_code_free(t->splits[i].re);
    for (int i = 0; i < t->n_norms; i++) pcre2_code_free(t->norms[i].re);
    pcre2_match_context_free(t->limits);
    pcre2_general_context_free(t->pcre);
    og_free(t->merges.slots);
    og_free(t->by_text.slots);
    og_free(t->raw.nodes);
    og_free(t->normal.nodes);
    og_free(t->added);
    og_free(t->tokens);
    og_arena_destroy(t->arena);
    og_free(t);
}

static int done(og_tokenizer *t, const char *name, int rc, og_tokenizer **out,
                og_err *err) {
    if (rc == 0) rc = og__tok_finish(t, name, err);
    if (rc < 0) {
        og_tokenizer_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

int og_tokenizer_open(const char *dir, og_tokenizer **out, og_err *err) {
    og_err own = OG_ERR_INIT;
    if (!err) err = &own;
    *out = NULL;
    og_tokenizer *t = create(err);
    if (!t) return OG_ENOMEM;
    return done(t, dir, og__tok_load_dir(t, dir, err), out, err);
}

int og_tokenizer_open_json(const char *name, const char *json, size_t len,
                           og_tokenizer **out, og_err *err) {
    og_err own = OG_ERR_INIT;
    if (!err) err = &own;
    *out = NULL;
    if (len > OG_TOK_MAX_FILE)
        return og_err_set(err, OG_ELIMIT, "%s: %zu bytes are too many (limit is %u)",
                          name, len, OG_TOK_MAX_FILE);
    og_tokenizer *t = create(err);
    if (!t) return OG_ENOMEM;
    json_t *root = og_json_parse(name, json, len, OG_TOK_MAX_DEPTH, err);
    int rc = root ? og__tok_load_json(t, name, root, err) : err->code;
    rc = done(t, name, rc, out, err);
    json_decref(root);
    return rc;
}

int32_t og_tokenizer_token_id(const og_tokenizer *t, const char *token) {
    return og__strmap_get(&t->by_text, token, strlen(token));
}

const char *og_tokenizer_token(const og_tokenizer *t, int32_t id) {
    return id < 0 || id >= t->n_tokens ? NULL : t->tokens[id].text;
}

int32_t og_tokenizer_size(const og_tokenizer *t) {
    return t->n_tokens;
}

int og_tokenizer_special(const og_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->n_tokens && t->tokens[id].special;
}

/* Everything that one call to encode allocates. */
typedef struct encoder {
    const og_tokenizer *t;
    og__ids out;
    og__spans words;
    og__bpe bpe;
    int parse_added;
} encoder;

static int encode_words(encoder *e, const char *text, size_t len, og_err *err) {
    int rc = og__split_text(e->t, text, len, &e->words, err);
    for (size_t i = 0; i < e->words.n && rc == 0; i++)
        rc = og__bpe_word(e->t, &e->bpe, text + e->words.v[i].at, e->words.v[i].len,
                          &e->out, err);
    return rc;
}

/* Metaspace and prefix spaces: edits of a segment that come before it is split. */
static int encode_edited(encoder *e, const char *text, size_t len, int is_first,
                         og_err *err) {
    const og_tokenizer *t = e->t;
    og_str s = OG_STR_INIT;
    int wants = t->prefix == OG__ALWAYS || (t->prefix == OG__FIRST && is_first);
    if (t->space_as) {
        for (size_t i = 0; i < len; i++) {
            if (text[i] == ' ')
                og_str_add(&s, t->space_as);
            else
                og_str_addn(&s, text + i, 1);
        }
    } else {
        og_str_addn(&s, text, len);
    }
    size_t n = wants ? strlen(t->prefix_text) : 0;
    int has = n && s.len >= n && memcmp(s.data, t->prefix_text, n) == 0;
    if (n && !has) {
        og_str whole = OG_STR_INIT;
        og_str_addn(&whole, t->prefix_text, n);
        og_str_addn(&whole, s.data, s.len);
        whole.oom |= s.oom;
        og_str_free(&s);
        s = whole;
    }
    int rc = s.oom ? og_err_set(err, OG_ENOMEM, "no memory to tokenize")
                   : encode_words(e, s.data, s.len, err);
    og_str_free(&s);
    return rc;
}

static int encode_plain(encoder *e, const char *text, size_t len, int is_first,
                        og_err *err) {
    if (!len) return 0;
    if (e->t->prefix != OG__NEVER || e->t->space_as)
        return encode_edited(e, text, len, is_first, err);
    return encode_words(e, text, len, err);
}

/* Cut a text at the added tokens of a trie; what lies between goes to the next stage. */
static int encode_segments(encoder *e, int normal, const char *text, size_t len,
                           int is_first, og_err *err);

static int encode_normal(encoder *e, const char *text, size_t len, int is_first,
                         og_err *err) {
    og_str s;
    if (!len) return 0;
    if (!e->t->n_norms) return encode_segments(e, 1, text, len, is_first, err);
    int rc = og__normalize(e->t, text, len, &s, err);
    if (rc == 0) rc = encode_segments(e, 1, s.data ? s.data : "", s.len, is_first, err);
    og_str_free(&s);
    return rc;
}

static int encode_segments(encoder *e, int normal, const char *text, size_t len,
                           int is_first, og_err *err) {
    int (*next)(encoder *, const char *, size_t, int, og_err *) =
        normal ? encode_plain : encode_normal;
    const og__trie *trie = normal ? &e->t->normal : &e->t->raw;
    size_t from = 0, at, end;
    int32_t id;
    while (e->parse_added &&
           og__added_find(e->t, trie, text, len, from, &at, &end, &id)) {
        int rc = next(e, text + from, at - from, is_first && from == 0, err);
        if (rc < 0) return rc;
        if (og__ids_add(&e->out, id) < 0)
            return og_err_set(err, OG_ENOMEM, "no memory for ids");
        from = end;
    }
    return next(e, text + from, len - from, is_first && from == 0, err);
}

static int encode(const og_tokenizer *t, const char *text, size_t len, int parse_added,
                  int32_t **ids, size_t *n, og_err *err) {
    encoder e = {.t = t, .parse_added = parse_added};
    *ids = NULL;
    *n = 0;
    if (len > OG_TOK_MAX_TEXT)
        return og_err_set(err, OG_ELIMIT, "a text of %zu bytes is too long (limit is %u)",
                          len, OG_TOK_MAX_TEXT);
    int rc = og__utf8_check(text, len, err);
    if (rc == 0) rc = encode_segments(&e, 0, text, len, 1, err);
    if (rc == 0 && !e.out.v && !(e.out.v = og_calloc(1, sizeof *e.out.v)))
        rc = og_err_set(err, OG_ENOMEM, "no memory for ids");
    og__bpe_free(&e.bpe);
    og_free(e.words.v);
    if (rc < 0) {
        og_free(e.out.v);
        return rc;
    }
    *ids = e.out.v;
    *n = e.out.n;
    return 0;
}

int og_tokenizer_encode(const og_tokenizer *t, const char *text, size_t len,
                        int32_t **ids, size_t *n, og_err *err) {
    return encode(t, text, len, 1, ids, n, err);
}

int og_tokenizer_encode_plain(const og_tokenizer *t, const char *text, size_t len,
                              int32_t **ids, size_t *n, og_err *err) {
    return encode(t, text, len, 0, ids, n, err);
}

void og_detok_init(og_detok *d, const og_tokenizer *t, int skip_special) {
    *d = (og_detok){.t = t, .skip_special = skip_special};
}

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Append what is complete of s[0..n) and return how many bytes were dealt with. */
static size_t add_complete(og_str *out, const unsigned char *s, size_t n) {
    size_t i = 0;
    int32_t c;
    while (i < n) {
        int step = og__utf8(s + i, n - i, &c);
        if (step == 0) break;
        if (step < 0) {
            og_str_add(out, REPLACEMENT);
            step = -step;
        } else {
            og_str_addn(out, (const char *)s + i, (size_t)step);
        }
        i += (size_t)step;
    }
    return i;
}

int og_detok_push(og_detok *d, int32_t id, og_str *out, og_err *err) {
    const og_tokenizer *t = d->t;
    if (!og_tokenizer_token(t, id))
        return og_err_set(err, OG_EINVAL, "no token has id %d", id);
    const og__token *k = &t->tokens[id];
    const char *bytes = k->bytes;
    size_t n = k->n_bytes;
    if (k->special && d->skip_special) return 0;
    if (!d->started && !k->added) {
        for (int i = 0; i < t->strip_first && n && *bytes == ' '; i++, n--) bytes++;
        d->started = 1;
    }
    /* A tail of at most three bytes is completed byte by byte; the rest goes at once. */
    while (d->n_tail && n) {
        d->tail[d->n_tail++] = (unsigned char)*bytes++;
        n--;
        size_t did = add_complete(out, d->tail, (size_t)d->n_tail);
        d->n_tail -= (int)did;
        memmove(d->tail, d->tail + did, (size_t)d->n_tail);
    }
    size_t did = add_complete(out, (const unsigned char *)bytes, n);
    if (n > did) {
        memcpy(d->tail, bytes + did, n - did);
        d->n_tail = (int)(n - did);
    }
    return out->oom ? og_err_set(err, OG_ENOMEM, "no memory to decode tokens") : 0;
}

int og_detok_end(og_detok *d, og_str *out, og_err *err) {
    if (d->n_tail) og_str_add(out, REPLACEMENT);
    d->n_tail = 0;
    return out->oom ? og_err_set(err, OG_ENOMEM, "no memory to decode tokens") : 0;
}

int og_tokenizer_decode(const og_tokenizer *t, const int32_t *ids, size_t n,
                        int skip_special, og_str *out, og_err *err) {
    og_detok d;
    og_detok_init(&d, t, skip_special);
    for (size_t i = 0; i < n; i++) {
        int rc = og_detok_push(&d, ids[i], out, err);
        if (rc < 0) return rc;
    }
    return og_detok_end(&d, out, err);
}
