#include "graph/spec/diag.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MSG_MAX 2048
#define LINE_MAX_SHOWN 160 /* characters of a source line that are worth printing */

typedef struct source {
    char *name, *text;
    size_t len;
    struct source *next;
} source;

struct og_diags {
    og_arena *arena;
    source *sources;
    og_diag list[OG_DIAGS_MAX];
    int n, errors, warnings, oom;
    int lost_errors, lost_warnings; /* over the limit, or without memory */
    int open; /* index of the message a hint belongs to, -1 when it was not kept */
};

og_diags *og_diags_create(void) {
    og_diags *d = og_calloc(1, sizeof *d);
    if (!d) return NULL;
    d->open = -1;
    d->arena = og_arena_create();
    if (!d->arena) {
        og_free(d);
        return NULL;
    }
    return d;
}

void og_diags_destroy(og_diags *d) {
    if (!d) return;
    og_arena_destroy(d->arena);
    og_free(d);
}

static const source *find_source(const og_diags *d, const char *name) {
    for (const source *s = d->sources; s && name; s = s->next) {
        if (!strcmp(s->name, name)) return s;
    }
    return NULL;
}

void og_diags_source(og_diags *d, const char *name, const char *text, size_t len) {
    if (!d || !name || find_source(d, name)) return;
    source *s = og_arena_alloc(d->arena, sizeof *s);
    char *copy = s ? og_arena_alloc(d->arena, len + 1) : NULL;
    char *own = copy ? og_arena_strdup(d->arena, name) : NULL;
    if (!own) return;
    if (len) memcpy(copy, text, len);
    *s = (source){.name = own, .text = copy, .len = len, .next = d->sources};
    d->sources = s;
}

/* Length of the UTF-8 character at p, 0 when it is not one. */
static size_t utf8_len(const unsigned char *p, size_t left) {
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (p[0] > 0xf4 || n > left) return 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
    }
    bool surrogate = n == 3 && p[0] == 0xed && p[1] > 0x9f;
    bool low = (n == 3 && p[0] == 0xe0 && p[1] < 0xa0) ||
               (n == 4 && p[0] == 0xf0 && p[1] < 0x90);
    return surrogate || low || (n == 4 && p[0] == 0xf4 && p[1] > 0x8f) ? 0 : n;
}

/* Append at most max characters of text that may be anything: what is no UTF-8 becomes
 * `?`, control characters become blanks, so that a hostile file cannot steer a
 * terminal. */
static void add_clean(og_str *out, const char *text, size_t len, int max) {
    for (size_t i = 0; i < len && max > 0; max--) {
        const unsigned char *p = (const unsigned char *)text + i;
        size_t n = utf8_len(p, len - i);
        if (!n)
            og_str_add(out, "?");
        else if (*p < 0x20 || *p == 0x7f)
            og_str_add(out, " ");
        else
            og_str_addn(out, text + i, n);
        i += n ? n : 1;
    }
}

/* The same into the arena. NULL: out of memory. */
static const char *clean_copy(og_diags *d, const char *text) {
    og_str s = OG_STR_INIT;
    og_str_add(&s, "");
    add_clean(&s, text, strlen(text), MSG_MAX);
    const char *out = s.oom || !s.data ? NULL : og_arena_strdup(d->arena, s.data);
    og_str_free(&s);
    return out;
}

static const char *own_file(og_diags *d, const char *file) {
    const source *s = find_source(d, file);
    if (s) return s->name;
    for (int i = 0; i < d->n; i++) {
        const char *known = d->list[i].src.file;
        if (known && !strcmp(known, file)) return known;
    }
    return og_arena_strdup(d->arena, file);
}

static bool same_place(og_src a, og_src b) {
    if (a.line != b.line || a.col != b.col || !a.file != !b.file) return false;
    return !a.file || !strcmp(a.file, b.file);
}

static bool repeated(const og_diags *d, og_severity severity, og_src src,
                     const char *msg) {
    for (int i = 0; i < d->n; i++) {
        const og_diag *have = &d->list[i];
        if (have->severity == severity && same_place(have->src, src) &&
            !strcmp(have->msg, msg)) {
            return true;
        }
    }
    return false;
}

static void add(og_diags *d, og_severity severity, og_src src, const char *fmt,
                va_list ap) {
    if (!d) return;
    char msg[MSG_MAX];
    vsnprintf(msg, sizeof msg, fmt, ap);
    bool error = severity == OG_SEVERITY_ERROR, warning = severity == OG_SEVERITY_WARNING;
    d->open = -1;
    d->errors += error;
    d->warnings += warning;
    if (repeated(d, severity, src, msg)) return;
    bool full = d->n == OG_DIAGS_MAX;
    const char *text = full ? NULL : clean_copy(d, msg);
    const char *file = text && src.file ? own_file(d, src.file) : NULL;
    if (!text || (src.file && !file)) {
        d->oom |= !full;
        d->lost_errors += error;
        d->lost_warnings += warning;
        return;
    }
    src.file = file;
    d->open = d->n;
    d->list[d->n++] = (og_diag){severity, src, text, ""};
}

void og_diags_error(og_diags *d, og_src src, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    add(d, OG_SEVERITY_ERROR, src, fmt, ap);
    va_end(ap);
}

void og_diags_warn(og_diags *d, og_src src, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    add(d, OG_SEVERITY_WARNING, src, fmt, ap);
    va_end(ap);
}

void og_diags_note(og_diags *d, og_src src, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    add(d, OG_SEVERITY_NOTE, src, fmt, ap);
    va_end(ap);
}

void og_diags_hint(og_diags *d, const char *fmt, ...) {
    if (!d || d->open < 0 || d->list[d->open].hint[0]) return;
    char msg[MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    const char *hint = clean_copy(d, msg);
    if (hint) d->list[d->open].hint = hint;
}

void og_diags_suggest(og_diags *d, const char *best) {
    if (best) og_diags_hint(d, "did you mean '%s'?", best);
}

void og_diags_no_memory(og_diags *d) {
    if (!d) return;
    d->errors++;
    d->oom = 1;
}

int og_diags_errors(const og_diags *d) {
    return d->errors;
}

int og_diags_warnings(const og_diags *d) {
    return d->warnings;
}

int og_diags_oom(const og_diags *d) {
    return d->oom;
}

int og_diags_count(const og_diags *d) {
    return d->n;
}

const og_diag *og_diags_at(const og_diags *d, int i) {
    return i >= 0 && i < d->n ? &d->list[i] : NULL;
}

/* Length of the line break at p, 0 when there is none. YAML 1.1 has five of them. */
static size_t break_at(const char *p, const char *end) {
    size_t left = (size_t)(end - p);
    if (left > 1 && !memcmp(p, "\r\n", 2)) return 2;
    if (left > 0 && (*p == '\n' || *p == '\r')) return 1;
    if (left > 1 && !memcmp(p, "\xc2\x85", 2)) return 2;
    if (left > 2 && !memcmp(p, "\xe2\x80", 2) && (p[2] & 0xfe) == 0xa8) return 3;
    return 0;
}

/* The line'th line of a text, without its end. NULL when it has fewer. */
static const char *line_of(const source *s, int line, size_t *len) {
    const char *p = s->text, *end = s->text + s->len;
    if (s->len >= 3 && !memcmp(p, "\xef\xbb\xbf", 3)) p += 3;
    for (int i = 1; i < line;) {
        if (p == end) return NULL;
        size_t br = break_at(p, end);
        p += br ? br : 1;
        i += br > 0;
    }
    const char *stop = p;
    while (stop < end && !break_at(stop, end)) stop++;
    *len = (size_t)(stop - p);
    return p;
}

/* Append a line and a caret below column col, counted in characters. */
static void print_line(const char *line, size_t len, int col, og_str *out) {
    og_str_add(out, "  ");
    add_clean(out, line, len, LINE_MAX_SHOWN);
    og_str_add(out, "\n");
    if (col < 1 || col > LINE_MAX_SHOWN + 1) return;
    og_str_addf(out, "  %*s^\n", col - 1, "");
}

static const char *severity_name(og_severity severity) {
    switch (severity) {
    case OG_SEVERITY_NOTE: return "note";
    case OG_SEVERITY_WARNING: return "warning";
    default: return "error";
    }
}

void og_diags_print_one(const og_diags *d, int i, og_str *out) {
    const og_diag *m = og_diags_at(d, i);
    if (!m) return;
    if (m->src.file) og_str_addf(out, "%s:", m->src.file);
    if (m->src.line > 0) og_str_addf(out, "%d:%d:", m->src.line, m->src.col);
    og_str_addf(out, "%s%s: %s\n", m->src.file ? " " : "", severity_name(m->severity),
                m->msg);
    const source *s = m->src.line > 0 ? find_source(d, m->src.file) : NULL;
    size_t len = 0;
    const char *line = s ? line_of(s, m->src.line, &len) : NULL;
    if (line) print_line(line, len, m->src.col, out);
    if (m->hint[0]) og_str_addf(out, "  hint: %s\n", m->hint);
}

void og_diags_print(const og_diags *d, og_str *out) {
    for (int i = 0; i < d->n; i++) og_diags_print_one(d, i, out);
    if (d->oom) og_str_add(out, "error: out of memory\n");
    int errors = d->lost_errors, warnings = d->lost_warnings;
    if (errors || warnings) {
        og_str_addf(out,
                    "%d more error%s and %d more warning%s not shown (limit is %d)\n",
                    errors, errors == 1 ? "" : "s", warnings, warnings == 1 ? "" : "s",
                    OG_DIAGS_MAX);
    }
}

int og_diags_err(const og_diags *d, og_err *err) {
    if (d->oom) return og_err_set(err, OG_ENOMEM, "out of memory");
    if (!d->errors) return 0;
    for (int i = 0; i < d->n; i++) {
        const og_diag *m = &d->list[i];
        if (m->severity != OG_SEVERITY_ERROR) continue;
        og_err_at(err, OG_ESPEC, m->src, "%s", m->msg);
        if (m->hint[0]) og_err_hint(err, "%s", m->hint);
        return OG_ESPEC;
    }
    return og_err_set(err, OG_ESPEC, "%d errors", d->errors);
}
