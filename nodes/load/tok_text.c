/* UTF-8, character classes and normalisation. */
#include <string.h>
#include <utf8proc.h>

#include "nodes/load/tok.h"

int og__utf8(const unsigned char *s, size_t n, int32_t *c) {
    unsigned char b = s[0];
    if (b < 0x80) {
        *c = b;
        return 1;
    }
    if (b < 0xc2 || b > 0xf4) return -1;
    int len = b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
    int32_t v = b & (0xff >> (len + 1));
    for (int i = 1; i < len; i++) {
        if ((size_t)i == n) return 0;
        unsigned char low = 0x80, high = 0xbf; /* of the second byte, per lead byte */
        if (i == 1 && b == 0xe0) low = 0xa0;
        if (i == 1 && b == 0xed) high = 0x9f;
        if (i == 1 && b == 0xf0) low = 0x90;
        if (i == 1 && b == 0xf4) high = 0x8f;
        if (s[i] < low || s[i] > high) return -i;
        v = v << 6 | (s[i] & 0x3f);
    }
    *c = v;
    return len;
}

int og__utf8_check(const char *text, size_t len, og_err *err) {
    const unsigned char *s = (const unsigned char *)text;
    int32_t c;
    for (size_t i = 0; i < len;) {
        int n = og__utf8(s + i, len - i, &c);
        if (n <= 0) return og_err_set(err, OG_EINVAL, "text is not UTF-8 at byte %zu", i);
        i += (size_t)n;
    }
    return 0;
}

int og__is_space(int32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
    if (c == 0x85) return 1;
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_ZS || k == UTF8PROC_CATEGORY_ZL ||
           k == UTF8PROC_CATEGORY_ZP;
}

int og__is_word(int32_t c) {
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return 1;
    default: return 0;
    }
}

static void add_char(og_str *out, int32_t c) {
    unsigned char buf[4];
    int n = (int)utf8proc_encode_char(c, buf);
    og_str_addn(out, (char *)buf, (size_t)n);
}

static int is_ascii(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0x80) return 0;
    return 1;
}

typedef struct points {
    int32_t *v;
    size_t n, cap;
} points;

static int points_room(points *p, size_t more) {
    if (p->n + more <= p->cap) return 0;
    size_t cap = (p->n + more) * 2;
    int32_t *v = og_realloc(p->v, cap * sizeof *v);
    if (!v) return OG_ENOMEM;
    p->v = v;
    p->cap = cap;
    return 0;
}

static int combining_class(int32_t c) {
    return utf8proc_get_property(c)->combining_class;
}

/* Canonical order of one run of combining marks: a stable sort by class. Counting keeps
 * it linear, where exchanging neighbours lets a hostile text take quadratic time. */
static int order_run(int32_t *v, size_t n) {
    size_t start[257] = {0};
    int sorted = 1;
    for (size_t i = 0; i < n; i++) {
        int k = combining_class(v[i]);
        if (i && k < combining_class(v[i - 1])) sorted = 0;
        start[k + 1]++;
    }
    if (sorted) return 0;
    int32_t *copy = og_malloc(n * sizeof *copy);
    if (!copy) return OG_ENOMEM;
    memcpy(copy, v, n * sizeof *copy);
    for (int k = 0; k < 256; k++) start[k + 1] += start[k];
    for (size_t i = 0; i < n; i++) v[start[combining_class(copy[i])]++] = copy[i];
    og_free(copy);
    return 0;
}

static int canonical_order(points *p) {
    for (size_t i = 0; i < p->n;) {
        size_t end = i;
        while (end < p->n && combining_class(p->v[end]) != 0) end++;
        if (end - i > 1 && order_run(p->v + i, end - i) < 0) return OG_ENOMEM;
        i = end > i ? end : i + 1;
    }
    return 0;
}

static int decompose(const char *text, size_t len, int options, points *p) {
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0; i < len;) {
        int32_t c = 0;
        int n = og__utf8(s + i, len - i, &c), boundary = 0;
        i += n > 0 ? (size_t)n : 1;
        if (points_room(p, 32) < 0) return OG_ENOMEM;
        utf8proc_ssize_t got =
            utf8proc_decompose_char(c, p->v + p->n, (utf8proc_ssize_t)(p->cap - p->n),
                                    (utf8proc_option_t)options, &boundary);
        if (got > 0) p->n += (size_t)got;
    }
    return canonical_order(p);
}

static int unicode_form(const og__norm *f, const char *text, size_t len, og_str *out) {
    points p = {0};
    int options = UTF8PROC_STABLE | (f->compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                  (f->compat ? UTF8PROC_COMPAT : 0);
    if (is_ascii(text, len)) {
        og_str_addn(out, text, len);
        return 0;
    }
    int rc = decompose(text, len, options, &p);
    utf8proc_ssize_t n = (utf8proc_ssize_t)p.n;
    if (rc == 0 && f->compose)
        n = utf8proc_normalize_utf32(p.v, n, (utf8proc_option_t)options);
    for (utf8proc_ssize_t i = 0; rc == 0 && i < n; i++) add_char(out, p.v[i]);
    og_free(p.v);
    return rc;
}

static void lower(const char *text, size_t len, og_str *out) {
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0; i < len;) {
        int32_t c = 0;
        int n = og__utf8(s + i, len - i, &c);
        i += n > 0 ? (size_t)n : 1;
        add_char(out, utf8proc_tolower(c));
        /* The one character whose lower case is two. */
        if (c == 0x130) add_char(out, 0x307);
    }
}

static void replace(const og__norm *f, const char *text, size_t len, og_str *out) {
    size_t at = 0;
    while (at < len) {
        const char *hit = memmem(text + at, len - at, f->from, f->from_len);
        if (!hit) break;
        og_str_addn(out, text + at, (size_t)(hit - text) - at);
        og_str_addn(out, f->to, f->to_len);
        at = (size_t)(hit - text) + f->from_len;
    }
    og_str_addn(out, text + at, len - at);
}

static int replace_regex(const og_tokenizer *t, const og__norm *f, const char *text,
                         size_t len, og_str *out, og_err *err) {
    pcre2_match_data *md = pcre2_match_data_create(1, t->pcre);
    size_t from = 0, at, end;
    int rc = 0;
    if (!md) return og_err_set(err, OG_ENOMEM, "no memory to normalise a text");
    while ((rc = og__match(t, f->re, md, text, len, from, &at, &end, err)) == 1) {
        og_str_addn(out, text + from, at - from);
        og_str_addn(out, f->to, f->to_len);
        from = end;
    }
    og_str_addn(out, text + from, len - from);
    pcre2_match_data_free(md);
    return rc;
}

static void strip(const og__norm *f, const char *text, size_t len, og_str *out) {
    const unsigned char *s = (const unsigned char *)text;
    size_t first = len, last = 0;
    for (size_t i = 0; i < len;) {
        int32_t c = 0;
        int n = og__utf8(s + i, len - i, &c);
        if (n <= 0) n = 1;
        if (!og__is_space(c)) {
            if (first == len) first = i;
            last = i + (size_t)n;
        }
        i += (size_t)n;
    }
    size_t begin = f->left ? first : 0;
    size_t end = f->right ? (last > begin ? last : begin) : len;
    og_str_addn(out, text + begin, end - begin);
}

static int step(const og_tokenizer *t, const og__norm *f, const char *text, size_t len,
                og_str *out, og_err *err) {
    switch (f->kind) {
    case OG__NORM_UNICODE:
        if (unicode_form(f, text, len, out) < 0)
            return og_err_set(err, OG_ENOMEM, "no memory to normalise a text");
        return 0;
    case OG__NORM_LOWER: lower(text, len, out); return 0;
    case OG__NORM_PREPEND:
        if (len) og_str_addn(out, f->to, f->to_len);
        og_str_addn(out, text, len);
        return 0;
    case OG__NORM_REPLACE: replace(f, text, len, out); return 0;
    case OG__NORM_REPLACE_REGEX: return replace_regex(t, f, text, len, out, err);
    case OG__NORM_STRIP: strip(f, text, len, out); return 0;
    }
    return 0;
}

int og__normalize(const og_tokenizer *t, const char *text, size_t len, og_str *out,
                  og_err *err) {
    og_str a = OG_STR_INIT, b = OG_STR_INIT;
    int rc = 0;
    og_str_addn(&a, text, len);
    for (int i = 0; i < t->n_norms && rc == 0 && !a.oom; i++) {
        rc = step(t, &t->norms[i], a.data, a.len, &b, err);
        if (rc == 0 && b.len > OG_TOK_MAX_TEXT)
            rc =
                og_err_set(err, OG_ELIMIT, "a normalised text of %zu bytes (limit is %u)",
                           b.len, OG_TOK_MAX_TEXT);
        og_str_free(&a);
        a = b;
        b = (og_str)OG_STR_INIT;
    }
    if (rc == 0 && a.oom)
        rc = og_err_set(err, OG_ENOMEM, "no memory to normalise a text");
    if (rc < 0) og_str_free(&a);
    *out = a;
    return rc;
}
