/* vocab.json, {"token": id, ...}, read in one pass: a real vocabulary has 150,000 entries,
 * and a tree of objects for them costs more than everything else that a tokenizer loads.
 * Keys that repeat are found by the token table. */
#include <string.h>

#include "nodes/load/json.h"
#include "nodes/load/tok.h"

typedef struct reader {
    const char *path, *at, *end;
    int line;
    og_str token;
} reader;

static int malformed(const reader *r, const char *what, og_err *err) {
    return og_err_set(err, OG_EFORMAT, "%s:%d: malformed vocabulary: %s", r->path,
                      r->line, what);
}

static void skip_space(reader *r) {
    for (; r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at; r->at++)
        r->line += *r->at == '\n';
}

/* The next character behind spaces if it is c. */
static int take(reader *r, char c) {
    skip_space(r);
    if (r->at == r->end || *r->at != c) return 0;
    r->at++;
    return 1;
}

static int hex4(reader *r, int32_t *v) {
    *v = 0;
    if (r->end - r->at < 4) return 0;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef";
        char c = *r->at++;
        const char *hit = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
        if (!hit) return 0;
        *v = *v << 4 | (int32_t)(hit - digits);
    }
    return 1;
}

static void add_utf8(og_str *s, int32_t c) {
    char buf[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--, c >>= 6) buf[i] = (char)(0x80 | (c & 0x3f));
    buf[0] = (char)(lead[n] | c);
    og_str_addn(s, buf, n);
}

/* What follows a backslash. A NUL is refused: tokens are C strings. */
static int escape(reader *r) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int32_t c, low;
    char k = r->at < r->end ? *r->at++ : 0;
    const char *hit = k ? strchr(from, k) : NULL;
    if (hit) {
        og_str_addn(&r->token, &to[hit - from], 1);
        return 1;
    }
    if (k != 'u' || !hex4(r, &c) || c == 0 || (c >= 0xdc00 && c <= 0xdfff)) return 0;
    if (c >= 0xd800 && c <= 0xdbff) {
        if (r->end - r->at < 2 || *r->at++ != '\\' || *r->at++ != 'u') return 0;
        if (!hex4(r, &low) || low < 0xdc00 || low > 0xdfff) return 0;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    add_utf8(&r->token, c);
    return 1;
}

static int string(reader *r, og_err *err) {
    r->token.len = 0;
    if (!take(r, '"')) return malformed(r, "a token is missing", err);
    for (;;) {
        const char *from = r->at;
        while (r->at < r->end && *r->at != '"' && *r->at != '\\' &&
               (unsigned char)*r->at >= 0x20)
            r->at++;
        og_str_addn(&r->token, from, (size_t)(r->at - from));
        if (r->at == r->end) return malformed(r, "a token without end", err);
        char c = *r->at++;
        if (c == '"') break;
        if (c != '\\' || !escape(r)) return malformed(r, "a bad escape in a token", err);
    }
    if (r->token.oom) return og_err_set(err, OG_ENOMEM, "%s: no memory", r->path);
    if (og__utf8_check(r->token.data, r->token.len, NULL) < 0)
        return malformed(r, "a token is not UTF-8", err);
    return 0;
}

static int integer(reader *r, int32_t *v, og_err *err) {
    skip_space(r);
    const char *from = r->at;
    *v = 0;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9' && *v < OG_TOK_MAX_ID)
        *v = *v * 10 + (*r->at++ - '0');
    if (r->at == from || *v >= OG_TOK_MAX_ID)
        return og_err_set(err, OG_EFORMAT, "%s:%d: token '%.100s' has no legal id",
                          r->path, r->line, r->token.data);
    return 0;
}

static int entries(og_tokenizer *t, reader *r, og_err *err) {
    int32_t id;
    if (!take(r, '{')) return malformed(r, "not an object", err);
    if (take(r, '}')) return 0;
    do {
        int rc = string(r, err);
        if (rc < 0) return rc;
        if (!take(r, ':')) return malformed(r, "a colon is missing", err);
        rc = integer(r, &id, err);
        if (rc < 0) return rc;
        if (og__strmap_get(&t->by_text, r->token.data, r->token.len) >= 0)
            return og_err_set(err, OG_EFORMAT, "%s:%d: duplicate token %.100s", r->path,
                              r->line, r->token.data);
        rc = og__tok_add_token(t, r->token.data, id, err);
        if (rc < 0) return rc;
    } while (take(r, ','));
    return take(r, '}') ? 0 : malformed(r, "a comma or the end is missing", err);
}

int og__tok_load_vocab(og_tokenizer *t, const char *path, og_err *err) {
    reader r = {.path = path, .line = 1};
    char *text;
    size_t len;
    int rc = og_file_read(path, OG_TOK_MAX_FILE, &text, &len, err);
    if (rc < 0) return rc;
    r.at = text;
    r.end = text + len;
    rc = entries(t, &r, err);
    skip_space(&r);
    if (rc == 0 && r.at != r.end) rc = malformed(&r, "text behind the end", err);
    og_str_free(&r.token);
    og_free(text);
    return rc;
}
