/* What the text of a hook says it reads and emits.
 *
 * Lua is not run for this: the function's text is lexed (comments and strings left out)
 * from `function M.NAME(` to the next function of the module. That finds a source or a
 * port that was misspelt in the pipeline, before the first request does. */
#include "graph/compile/compile.h"

#include <ctype.h>
#include <string.h>

#define MAX_NAMES 64

typedef struct lex {
    const char *p, *end;
    const char *tok;
    size_t len;
} lex;

/* Length of a long bracket's opening "[==[", or 0. */
static size_t long_open(const char *p, const char *end) {
    const char *q = p;
    if (q >= end || *q++ != '[') {
        return 0;
    }
    while (q < end && *q == '=') {
        q++;
    }
    return q < end && *q == '[' ? (size_t)(q - p) + 1 : 0;
}

static const char *skip_long(const char *p, const char *end, size_t open) {
    size_t level = open - 2;
    for (p += open; p < end; p++) {
        if (*p != ']') {
            continue;
        }
        size_t n = 0;
        while (p + 1 + n < end && p[1 + n] == '=') {
            n++;
        }
        if (n == level && p + 1 + n < end && p[1 + n] == ']') {
            return p + 2 + n;
        }
    }
    return end;
}

static const char *skip_string(const char *p, const char *end) {
    char quote = *p++;
    while (p < end && *p != quote) {
        p += *p == '\\' && p + 1 < end ? 2 : 1;
    }
    return p < end ? p + 1 : end;
}

static const char *skip_comment(const char *p, const char *end) {
    size_t open = long_open(p + 2, end);
    if (open) {
        return skip_long(p + 2, end, open);
    }
    while (p < end && *p != '\n') {
        p++;
    }
    return p;
}

/* Next name or character; strings count as one character. false at the end. */
static bool next(lex *l) {
    while (l->p < l->end) {
        const char *p = l->p;
        size_t open = long_open(p, l->end);
        if (isspace((unsigned char)*p)) {
            l->p++;
        } else if (*p == '-' && p + 1 < l->end && p[1] == '-') {
            l->p = skip_comment(p, l->end);
        } else if (*p == '"' || *p == '\'' || open) {
            l->tok = "\"";
            l->len = 1;
            l->p = open ? skip_long(p, l->end, open) : skip_string(p, l->end);
            return true;
        } else {
            l->tok = p++;
            while (p < l->end && (isalnum((unsigned char)*l->tok) || *l->tok == '_') &&
                   (isalnum((unsigned char)*p) || *p == '_')) {
                p++;
            }
            l->len = (size_t)(p - l->tok);
            l->p = p;
            return true;
        }
    }
    return false;
}

static bool is(const lex *l, const char *word) {
    return l->len == strlen(word) && memcmp(l->tok, word, l->len) == 0;
}

static bool is_name(const lex *l) {
    return isalpha((unsigned char)*l->tok) || *l->tok == '_';
}

static bool expect(lex *l, const char *word) {
    return next(l) && is(l, word);
}

/* Whether the text goes on with `M.NAME(` after a `function`. */
static bool opens(lex at, const char *name, bool *module) {
    *module = next(&at) && is_name(&at) && expect(&at, ".") && next(&at) && is_name(&at);
    return *module && is(&at, name);
}

static bool keep(og_arena *a, const char **list, int *n, const lex *l) {
    for (int i = 0; i < *n; i++) {
        if (strlen(list[i]) == l->len && memcmp(list[i], l->tok, l->len) == 0) {
            return true;
        }
    }
    if (*n < MAX_NAMES) {
        list[*n] = og_arena_strndup(a, l->tok, l->len);
        *n += list[*n] != NULL;
    }
    return true;
}

static bool option(const lex *l) {
    return is(l, "lane") || is(l, "fill") || is(l, "limits") || is(l, "drop") ||
           is(l, "mute");
}

/* Keys of the table behind ctx:emit, at its own level. */
static void scan_emit(og_arena *a, lex at, og__hook_names *out) {
    int depth = 0;
    if (!next(&at)) {
        return;
    }
    if (is(&at, "(") && !next(&at)) {
        return;
    }
    if (!is(&at, "{")) {
        return;
    }
    depth = 1;
    bool start = true; /* where a key may stand */
    while (depth > 0 && next(&at)) {
        if (depth == 1 && start && is_name(&at) && !option(&at)) {
            lex ahead = at;
            if (expect(&ahead, "=") && !(ahead.p < ahead.end && *ahead.p == '=')) {
                keep(a, out->emits, &out->n_emits, &at);
            }
        }
        start = is(&at, ",") || is(&at, ";");
        depth += is(&at, "{") || is(&at, "(") || is(&at, "[");
        depth -= is(&at, "}") || is(&at, ")") || is(&at, "]");
    }
}

static void scan_body(og_arena *a, lex l, og__hook_names *out) {
    bool module;
    while (next(&l)) {
        if (is(&l, "function") && (opens(l, "", &module), module)) {
            return; /* the module's next function */
        }
        lex at = l;
        if (is(&l, "src") && expect(&at, ".") && next(&at) && is_name(&at)) {
            keep(a, out->reads, &out->n_reads, &at);
        }
        if (is(&l, "ctx") && (at = l, expect(&at, ":")) && expect(&at, "emit")) {
            scan_emit(a, at, out);
        }
    }
}

int og__plan_hook_scan(og_arena *a, const char *text, size_t len, const char *function,
                       og__hook_names *out) {
    memset(out, 0, sizeof *out);
    out->reads = og_arena_alloc(a, MAX_NAMES * sizeof *out->reads);
    out->emits = og_arena_alloc(a, MAX_NAMES * sizeof *out->emits);
    if (!out->reads || !out->emits) {
        return OG_ENOMEM;
    }
    lex l = {.p = text, .end = text + len};
    while (next(&l)) {
        bool module;
        if (is(&l, "function") && opens(l, function, &module)) {
            out->found = true;
            scan_body(a, l, out);
            return 0;
        }
    }
    return 0;
}
