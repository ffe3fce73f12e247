/* Pre-tokenising: regular expressions that cut a text into words. */
#include <string.h>

#include "nodes/load/tok.h"

#define MATCH_LIMIT 10000000u   /* steps of one match */
#define HEAP_LIMIT (128u << 10) /* KiB that the interpreter may take for backtracking */

int og__spans_add(og__spans *s, size_t at, size_t len) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        og__span *v = og_realloc(s->v, cap * sizeof *v);
        if (!v) return OG_ENOMEM;
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = (og__span){at, len};
    return 0;
}

/* Members of \s and \w as the pattern's authors had them (Oniguruma, Rust): PCRE2's own
 * count U+180E as space, and no marks or connectors as word characters. */
#define SPACE "\\p{Z}\\x09-\\x0d\\x{85}"
#define WORD "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}"

/* The pattern in PCRE2's dialect. What the two read differently is refused, for a silent
 * difference would give other ids: set operations, nested classes, \h. */
static int translate(const char *name, const char *p, og_str *out, og_err *err) {
    int in_class = 0;
    for (; *p; p++) {
        if (*p == '\\' && (p[1] == 'h' || p[1] == 'H'))
            return og_err_set(err, OG_EUNSUPPORTED, "%s: the pattern has \\%c", name,
                              p[1]);
        if (*p == '\\' && p[1]) {
            const char *set = p[1] == 's' || p[1] == 'S'   ? SPACE
                              : p[1] == 'w' || p[1] == 'W' ? WORD
                                                           : NULL;
            int negated = p[1] == 'S' || p[1] == 'W';
            if (set && !in_class)
                og_str_addf(out, "[%s%s]", negated ? "^" : "", set);
            else if (set && !negated)
                og_str_add(out, set);
            else
                og_str_addn(out, p, 2);
            p++;
            continue;
        }
        if (in_class && ((*p == '[' && p[1] != ':') || (*p == '&' && p[1] == '&')))
            return og_err_set(err, OG_EUNSUPPORTED,
                              "%s: the pattern has a class inside a class or &&", name);
        if (*p == '[' && !in_class) {
            in_class = 1;
            og_str_addn(out, p, 1);
            if (p[1] == '^') og_str_addn(out, ++p, 1);
            if (p[1] == ']') og_str_addn(out, ++p, 1);
            continue;
        }
        if (*p == ']') in_class = 0;
        og_str_addn(out, p, 1);
    }
    return 0;
}

/* A literal, quoted character by character: a quote of \Q..\E would end at its own \E. */
static void quote(const char *p, og_str *out) {
    for (; *p; p++) {
        if ((unsigned char)*p < 0x80 && strchr("\\^$.[]|()?*+{}-#&~ \t\n\r\f\v", *p))
            og_str_addf(out, "\\x%02x", (unsigned)*p);
        else
            og_str_addn(out, p, 1);
    }
}

static int compile(og_tokenizer *t, const char *name, const og_str *pattern,
                   pcre2_code **re, og_err *err) {
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_compile_context *cc = pcre2_compile_context_create(t->pcre);
    if (!cc) return og_err_set(err, OG_ENOMEM, "%s: no memory for a pattern", name);
    *re = pcre2_compile((PCRE2_SPTR)pattern->data, pattern->len,
                        PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, cc);
    pcre2_compile_context_free(cc);
    if (!*re) {
        char why[120] = "";
        if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
            return og_err_set(err, OG_ENOMEM, "%s: no memory for a pattern", name);
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return og_err_set(err, OG_EFORMAT, "%s: bad pattern: %s", name, why);
    }
    /* Without a compiler for this machine, or memory for it, the interpreter serves. */
    pcre2_jit_compile(*re, PCRE2_JIT_COMPLETE);
    return 0;
}

static int make_limits(og_tokenizer *t) {
    if (t->limits) return 0;
    t->limits = pcre2_match_context_create(t->pcre);
    if (!t->limits) return OG_ENOMEM;
    pcre2_set_match_limit(t->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(t->limits, HEAP_LIMIT);
    return 0;
}

int og__pattern(og_tokenizer *t, const char *name, const char *pattern, int is_regex,
                pcre2_code **re, og_err *err) {
    og_str text = OG_STR_INIT;
    int rc = 0;
    if (strlen(pattern) > OG_TOK_MAX_PATTERN)
        return og_err_set(err, OG_ELIMIT, "%s: a pattern of %zu bytes (limit is %d)",
                          name, strlen(pattern), OG_TOK_MAX_PATTERN);
    if (is_regex)
        rc = translate(name, pattern, &text, err);
    else
        quote(pattern, &text);
    if (rc == 0 && !text.oom && !text.len)
        rc = og_err_set(err, OG_EFORMAT, "%s: an empty pattern", name);
    if (rc == 0 && (text.oom || make_limits(t) < 0))
        rc = og_err_set(err, OG_ENOMEM, "%s: no memory for a pattern", name);
    if (rc == 0) rc = compile(t, name, &text, re, err);
    og_str_free(&text);
    return rc;
}

/* Compiled code needs its own stack, 32 KiB of ours by default; what does not fit there
 * runs again in the interpreter, which keeps its state on the heap. */
static int match_once(const og_tokenizer *t, const pcre2_code *re, pcre2_match_data *md,
                      const char *text, size_t len, size_t from) {
    int rc =
        pcre2_match(re, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK, md, t->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(re, (PCRE2_SPTR)text, len, from,
                         PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, md, t->limits);
    return rc;
}

int og__match(const og_tokenizer *t, const pcre2_code *re, pcre2_match_data *md,
              const char *text, size_t len, size_t from, size_t *at, size_t *end,
              og_err *err) {
    while (from < len) {
        int rc = match_once(t, re, md, text, len, from);
        if (rc == PCRE2_ERROR_NOMATCH) return 0;
        if (rc == PCRE2_ERROR_NOMEMORY)
            return og_err_set(err, OG_ENOMEM, "no memory to match a pattern");
        if (rc < 0)
            return og_err_set(
                err, OG_ELIMIT,
                "a tokenizer pattern runs away on this text (limit is %u steps)",
                MATCH_LIMIT);
        const PCRE2_SIZE *o = pcre2_get_ovector_pointer(md);
        if (o[1] > o[0]) {
            *at = o[0];
            *end = o[1];
            return 1;
        }
        /* Nothing was matched: go on behind the next character. */
        from = o[1] > from ? o[1] : from + 1;
        while (from < len && ((unsigned char)text[from] & 0xc0) == 0x80) from++;
    }
    return 0;
}

/* Parts of one word in order; consecutive parts of a kind are joined as behavior says. */
typedef struct cutter {
    const og__split *s;
    og__spans *out;
    size_t base; /* of the word in the text */
    int last_match, any;
    size_t held_at; /* MergedWithNext: matches that wait for what follows */
    int held;
} cutter;

static int emit(cutter *c, size_t at, size_t end, int join) {
    og__spans *o = c->out;
    if (join && c->any) {
        o->v[o->n - 1].len = c->base + end - o->v[o->n - 1].at;
        return 0;
    }
    c->any = 1;
    return og__spans_add(o, c->base + at, end - at);
}

static int part(cutter *c, size_t at, size_t end, int is_match) {
    int rc = 0;
    if (at == end) return 0;
    if (c->s->invert) is_match = !is_match;
    switch (c->s->behavior) {
    case OG__REMOVED:
        if (!is_match) rc = emit(c, at, end, 0);
        break;
    case OG__MERGED_WITH_PREVIOUS:
        rc = emit(c, at, end, is_match && !c->last_match);
        break;
    case OG__CONTIGUOUS:
        rc = emit(c, at, end, c->any && is_match == c->last_match);
        break;
    case OG__MERGED_WITH_NEXT:
        if (is_match) {
            if (c->held) rc = emit(c, c->held_at, at, 0);
            c->held = 1;
            c->held_at = at;
        } else {
            rc = emit(c, c->held ? c->held_at : at, end, 0);
            c->held = 0;
        }
        break;
    default: rc = emit(c, at, end, 0); break;
    }
    c->last_match = is_match;
    return rc;
}

static int cut_word(const og_tokenizer *t, const og__split *s, pcre2_match_data *md,
                    const char *text, og__span word, og__spans *out, og_err *err) {
    cutter c = {.s = s, .out = out, .base = word.at};
    size_t from = 0, at, end;
    int rc, oom = 0;
    while ((rc = og__match(t, s->re, md, text + word.at, word.len, from, &at, &end,
                           err)) == 1) {
        oom |= part(&c, from, at, 0) < 0 || part(&c, at, end, 1) < 0;
        from = end;
        if (oom) break;
    }
    if (rc < 0) return rc;
    oom |= part(&c, from, word.len, 0) < 0;
    if (c.held) oom |= emit(&c, c.held_at, word.len, 0) < 0;
    return oom ? og_err_set(err, OG_ENOMEM, "no memory to split a text") : 0;
}

int og__split_text(const og_tokenizer *t, const char *text, size_t len, og__spans *words,
                   og_err *err) {
    og__spans next = {0};
    pcre2_match_data *md = NULL;
    int rc = 0;
    words->n = 0;
    if (t->n_splits) md = pcre2_match_data_create(1, t->pcre);
    if ((t->n_splits && !md) || og__spans_add(words, 0, len) < 0)
        rc = og_err_set(err, OG_ENOMEM, "no memory to split a text");
    for (int i = 0; i < t->n_splits && rc == 0; i++) {
        next.n = 0;
        for (size_t k = 0; k < words->n && rc == 0; k++)
            rc = cut_word(t, &t->splits[i], md, text, words->v[k], &next, err);
        og__spans swap = *words;
        *words = next;
        next = swap;
    }
    og_free(next.v);
    pcre2_match_data_free(md);
    return rc;
}
