/* URLs, and answers that arrive in pieces. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "graph/cli/bench/http.h"

enum { STATUS_LINE, HEADER, BODY, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER, DONE };

/* ---- URLs --------------------------------------------------------------------- */

static int bad_url(const char *text, og_err *err) {
    return og_err_set(err, OG_EINVAL, "'%.200s' is no URL of a server", text);
}

static int copy(char *to, size_t room, const char *from, size_t n) {
    if (n == 0 || n >= room) return OG_EINVAL;
    memcpy(to, from, n);
    to[n] = 0;
    return 0;
}

static bool is_port(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isdigit((unsigned char)s[i])) return false;
    int v = n > 0 && n < 6 ? atoi(s) : 0;
    return v > 0 && v < 65536;
}

int og__url_parse(const char *text, og__url *out, og_err *err) {
    *out = (og__url){.port = "80"};
    const char *s = text;
    if (!strncasecmp(s, "https://", 8)) {
        og_err_set(err, OG_EINVAL, "'%.200s': this client speaks no TLS", text);
        og_err_hint(err, "put a local proxy that ends TLS in between, or use http://");
        return OG_EINVAL;
    }
    if (!strncasecmp(s, "http://", 7)) s += 7;
    size_t len = strcspn(s, "/?#");
    const char *path = s + len;
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == '@' || *c == '?' || *c == '#')
            return bad_url(text, err);
    size_t host = len, skip = 0;
    if (*s == '[') { /* [::1]:8000 */
        const char *end = memchr(s, ']', len);
        if (!end) return bad_url(text, err);
        skip = 1;
        host = (size_t)(end - s) - 1;
    } else if (memchr(s, ':', len)) {
        host = (size_t)((const char *)memchr(s, ':', len) - s);
    }
    const char *rest = s + skip + host + skip;
    if (copy(out->host, sizeof out->host, s + skip, host)) return bad_url(text, err);
    if (rest < path) {
        size_t n = (size_t)(path - rest) - 1;
        if (*rest != ':' || !is_port(rest + 1, n)) return bad_url(text, err);
        copy(out->port, sizeof out->port, rest + 1, n);
    }
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/') n--;
    if (n >= sizeof out->path) return bad_url(text, err);
    memcpy(out->path, path, n);
    out->path[n] = 0;
    return 0;
}

/* ---- answers ------------------------------------------------------------------ */

void og__http_init(og__http *p) {
    p->status = 0;
    p->keep_alive = true;
    p->headers = p->done = false;
    p->rate = p->channels = 0;
    p->input_tokens = -1;
    p->retry_after = -1;
    p->content_type[0] = p->request_id[0] = 0;
    p->state = STATUS_LINE;
    p->chunked = p->sized = false;
    p->left = 0;
    p->n_line = 0;
}

static int malformed(og_err *err, const char *what) {
    return og_err_set(err, OG_EFORMAT, "the answer is not HTTP/1.1: %s", what);
}

static int status_line(og__http *p, og_err *err) {
    int minor, status, n = 0;
    if (sscanf(p->line, "HTTP/1.%1d %3d%n", &minor, &status, &n) != 2 || status < 100 ||
        (p->line[n] && p->line[n] != ' '))
        return malformed(err, "bad status line");
    p->status = status;
    p->keep_alive = minor > 0;
    p->state = HEADER;
    return 0;
}

/* The number behind `name=` in a header's value, 0 when there is none. */
static int parameter(const char *value, const char *name) {
    const char *at = strcasestr(value, name);
    return at && at[strlen(name)] == '=' ? atoi(at + strlen(name) + 1) : 0;
}

static void content_type(og__http *p, const char *value) {
    size_t n = strcspn(value, "; ");
    if (n >= sizeof p->content_type) n = sizeof p->content_type - 1;
    for (size_t i = 0; i < n; i++)
        p->content_type[i] = (char)tolower((unsigned char)value[i]);
    p->content_type[n] = 0;
    if (!p->rate) p->rate = parameter(value, "rate");
    if (!p->channels) p->channels = parameter(value, "channels");
}

static int length(og__http *p, const char *value, og_err *err) {
    char *end;
    long long n = strtoll(value, &end, 10);
    if (end == value || *end || n < 0) return malformed(err, "bad Content-Length");
    p->sized = true;
    p->left = n;
    return 0;
}

static int header(og__http *p, og_err *err) {
    char *colon = strchr(p->line, ':');
    if (!colon || colon == p->line) return malformed(err, "a header without a name");
    *colon = 0;
    char *value = colon + 1;
    while (*value == ' ' || *value == '\t') value++;
    for (char *end = value + strlen(value);
         end > value && isspace((unsigned char)end[-1]);)
        *--end = 0;
    const char *name = p->line;
    if (!strcasecmp(name, "content-length")) return length(p, value, err);
    if (!strcasecmp(name, "transfer-encoding"))
        p->chunked = strcasestr(value, "chunked") != NULL;
    else if (!strcasecmp(name, "connection"))
        p->keep_alive = strcasestr(value, "close")        ? false
                        : strcasestr(value, "keep-alive") ? true
                                                          : p->keep_alive;
    else if (!strcasecmp(name, "content-type"))
        content_type(p, value);
    else if (!strcasecmp(name, "x-sample-rate"))
        p->rate = atoi(value);
    else if (!strcasecmp(name, "x-vllm-omni-input-tokens"))
        p->input_tokens = atoll(value);
    else if (!strcasecmp(name, "retry-after"))
        p->retry_after = atof(value);
    else if (!strcasecmp(name, "x-request-id"))
        snprintf(p->request_id, sizeof p->request_id, "%.63s", value);
    return 0;
}

static void finish(og__http *p) {
    p->state = DONE;
    p->done = true;
}

static void headers_end(og__http *p) {
    if (p->status < 200 && p->status != 101) { /* interim: the real answer follows */
        og__http_init(p);
        return;
    }
    p->headers = true;
    if (p->status == 204 || p->status == 304) {
        finish(p);
    } else if (p->chunked) {
        p->state = CHUNK_SIZE;
    } else {
        p->state = BODY;
        if (!p->sized) p->keep_alive = false;
        if (p->sized && p->left == 0) finish(p);
    }
}

static int chunk_size(og__http *p, og_err *err) {
    char *end;
    long long n = strtoll(p->line, &end, 16);
    if (end == p->line || (*end && *end != ';' && *end != ' ') || n < 0)
        return malformed(err, "bad chunk size");
    p->left = n;
    p->state = n ? CHUNK_DATA : TRAILER;
    return 0;
}

static int take_line(og__http *p, og_err *err) {
    bool empty = !p->line[0];
    switch (p->state) {
    case STATUS_LINE: return empty ? 0 : status_line(p, err);
    case HEADER:
        if (!empty) return header(p, err);
        headers_end(p);
        return 0;
    case CHUNK_SIZE: return chunk_size(p, err);
    case CHUNK_END:
        if (!empty) return malformed(err, "a chunk is longer than its size");
        p->state = CHUNK_SIZE;
        return 0;
    default: /* TRAILER */
        if (empty) finish(p);
        return 0;
    }
}

/* Bytes up to the end of a line; *used counts them. */
static int line_bytes(og__http *p, const char *data, size_t n, size_t *used,
                      og_err *err) {
    const char *nl = memchr(data, '\n', n);
    size_t take = nl ? (size_t)(nl - data) : n;
    if (p->n_line + take >= OG__HTTP_LINE_MAX)
        return malformed(err, "a line is too long");
    memcpy(p->line + p->n_line, data, take);
    p->n_line += take;
    *used += take + (nl != NULL);
    if (!nl) return 0;
    if (p->n_line > 0 && p->line[p->n_line - 1] == '\r') p->n_line--;
    p->line[p->n_line] = 0;
    p->n_line = 0;
    return take_line(p, err);
}

static void body_bytes(og__http *p, const char *data, size_t n, size_t *used,
                       og__body_fn body, void *user) {
    bool bounded = p->state == CHUNK_DATA || p->sized;
    size_t take = bounded && (int64_t)n > p->left ? (size_t)p->left : n;
    *used += take;
    if (bounded) p->left -= (int64_t)take;
    if (take) body(user, data, take);
    if (!bounded || p->left > 0) return;
    if (p->state == CHUNK_DATA)
        p->state = CHUNK_END;
    else
        finish(p);
}

long og__http_feed(og__http *p, const char *data, size_t n, og__body_fn body, void *user,
                   og_err *err) {
    size_t used = 0;
    while (used < n && !p->done) {
        if (p->state == BODY || p->state == CHUNK_DATA) {
            body_bytes(p, data + used, n - used, &used, body, user);
        } else {
            int rc = line_bytes(p, data + used, n - used, &used, err);
            if (rc < 0) return rc;
        }
    }
    return (long)used;
}

int og__http_eof(og__http *p, og_err *err) {
    if (p->state == BODY && !p->sized) finish(p);
    if (p->done) return 0;
    return og_err_set(err, OG_EIO, "the server closed the connection %s",
                      p->headers ? "in the middle of the answer" : "without an answer");
}
