/* multipart/form-data in memory. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "graph/serve/multipart.h"

#define HEAD_MAX 4096 /* bytes of a part's headers */

/* ---- parameters of a header ---------------------------------------------------------------- */

static const char *skip_blank(const char *s, const char *end) {
    while (s < end && (*s == ' ' || *s == '\t')) s++;
    return s;
}

/* A token or a quoted string, unquoted. NULL when it is neither or too long. */
static const char *take_value(const char *s, const char *end, char *out, size_t size) {
    size_t n = 0;
    bool quoted = s < end && *s == '"';
    for (s += quoted; s < end; s++) {
        if (quoted ? *s == '"' : (*s == ';' || *s == ' ' || *s == '\t')) break;
        if (quoted && *s == '\\' && s + 1 < end && (s[1] == '"' || s[1] == '\\')) s++;
        if (n + 1 >= size || (unsigned char)*s < 0x20) return NULL;
        out[n++] = *s;
    }
    out[n] = 0;
    if (quoted && s == end) return NULL;
    return s + quoted;
}

/* The value of a parameter "; key=value". 1: found, 0: not there, -1: malformed. */
static int parameter(const char *s, const char *end, const char *key, char *out, size_t size) {
    size_t n_key = strlen(key);
    char other[512];
    const char *stop = memchr(s, ';', (size_t)(end - s));
    for (s = stop ? stop : end; s < end;) {
        s = skip_blank(s, end);
        if (s < end && *s++ != ';') return -1;
        s = skip_blank(s, end);
        const char *eq = memchr(s, '=', (size_t)(end - s));
        if (s == end) break;
        if (!eq) return -1;
        bool hit = (size_t)(eq - s) == n_key && !strncasecmp(s, key, n_key);
        s = take_value(eq + 1, end, hit ? out : other, hit ? size : sizeof other);
        if (!s) return -1;
        if (hit) return 1;
    }
    return 0;
}

/* ---- the body -------------------------------------------------------------------------------- */

int og__multipart_open(og__multipart *m, const char *content_type, const char *data, size_t n,
                       og_err *err) {
    static const char kind[] = "multipart/form-data";
    char boundary[OG__BOUNDARY_MAX + 1];
    const char *type = content_type ? content_type : "";
    if (strncasecmp(type, kind, sizeof kind - 1) || !strchr("; \t", type[sizeof kind - 1]))
        return og_err_set(err, OG_EREJECT, "the body must be multipart/form-data");
    if (parameter(type, type + strlen(type), "boundary", boundary, sizeof boundary) != 1 ||
        !boundary[0])
        return og_err_set(err, OG_EREJECT, "multipart/form-data needs a boundary of 1 to %d "
                          "characters", OG__BOUNDARY_MAX);
    *m = (og__multipart){.at = data, .end = data + n};
    m->n_mark = (size_t)snprintf(m->mark, sizeof m->mark, "\r\n--%s", boundary);
    const char *first = m->mark + 2; /* nothing stands before the first one */
    if (!data || n < m->n_mark - 2 || memcmp(data, first, m->n_mark - 2))
        return og_err_set(err, OG_EREJECT, "the body does not begin with its boundary");
    m->at += m->n_mark - 2;
    return 0;
}

static int read_line(og__part *p, const char *line, const char *end) {
    const char *colon = memchr(line, ':', (size_t)(end - line));
    if (!colon) return -1;
    size_t n = (size_t)(colon - line);
    const char *value = skip_blank(colon + 1, end);
    if (n == 12 && !strncasecmp(line, "content-type", n)) {
        if ((size_t)(end - value) >= sizeof p->type) return -1;
        snprintf(p->type, sizeof p->type, "%.*s", (int)(end - value), value);
    }
    if (n != 19 || strncasecmp(line, "content-disposition", n)) return 0;
    if (end - value < 9 || strncasecmp(value, "form-data", 9)) return -1;
    if (parameter(value, end, "name", p->name, sizeof p->name) != 1) return -1;
    return parameter(value, end, "filename", p->filename, sizeof p->filename) < 0 ? -1 : 0;
}

/* Headers up to the empty line. */
static int read_headers(og__multipart *m, og__part *p) {
    const char *begin = m->at;
    for (;;) {
        const char *end = memmem(m->at, (size_t)(m->end - m->at), "\r\n", 2);
        if (!end || end - begin > HEAD_MAX) return -1;
        const char *line = m->at;
        m->at = end + 2;
        if (end == line) return p->name[0] ? 0 : -1;
        if (read_line(p, line, end) < 0) return -1;
    }
}

/* Behind a boundary. 1: a part follows, 0: that was the last one. */
static int read_mark(og__multipart *m) {
    if (m->end - m->at >= 2 && !memcmp(m->at, "--", 2)) return 0;
    m->at = skip_blank(m->at, m->end);
    if (m->end - m->at < 2 || memcmp(m->at, "\r\n", 2)) return -1;
    m->at += 2;
    return 1;
}

int og__multipart_next(og__multipart *m, og__part *p, og_err *err) {
    *p = (og__part){0};
    int rc = read_mark(m);
    if (rc == 0) return 0;
    if (rc < 0)
        return og_err_set(err, OG_EREJECT, "a boundary of the body is cut short");
    if (m->parts++ == OG__PARTS_MAX)
        return og_err_set(err, OG_EREJECT, "too many parts (limit is %d)", OG__PARTS_MAX);
    if (read_headers(m, p) < 0)
        return og_err_set(err, OG_EREJECT, "the headers of part %d are malformed", m->parts);
    p->data = m->at;
    const char *stop = memmem(m->at, (size_t)(m->end - m->at), m->mark, m->n_mark);
    if (!stop) return og_err_set(err, OG_EREJECT, "part %d has no end", m->parts);
    p->n = (size_t)(stop - m->at);
    m->at = stop + m->n_mark;
    return 1;
}
