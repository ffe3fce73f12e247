/* Lines for whoever runs the server: key=value, one for each exchange. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "graph/serve/metrics.h"

void og__log(og_server *s, const char *fmt, ...) {
    char line[2048];
    va_list ap;
    if (!s->opts.log) return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    for (char *p = line; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = ' ';
    s->opts.log(s->opts.log_arg, line);
}

static const char *method_name(og__method m) {
    static const char *const names[] = {"GET", "POST", "DELETE", "OPTIONS", "HEAD", "OTHER"};
    return names[m];
}

/* A value that may hold anything, quoted so that the line can be taken apart again. */
static void quoted(const char *text, char *out, size_t size) {
    size_t n = 0;
    for (; *text && n + 3 < size; text++) {
        if (*text == '"' || *text == '\\') out[n++] = '\\';
        out[n++] = *text;
    }
    out[n] = 0;
}

void og__log_call(og__call *c) {
    og__metrics_call(c);
    if (c->server->opts.quiet) return;
    char path[256], error[320], more[512];
    quoted(c->path ? c->path : "", path, sizeof path);
    quoted(c->error, error, sizeof error);
    int n = 0;
    more[0] = 0;
    if (c->model[0])
        n += snprintf(more + n, sizeof more - (size_t)n, " model=%s audio=%.3f", c->model,
                      c->audio_s);
    int64_t first = atomic_load(&c->t_first_byte);
    if (c->model[0] && first > 0)
        n += snprintf(more + n, sizeof more - (size_t)n, " first=%.4f", (double)first * 1e-6);
    if (c->error[0] && n < (int)sizeof more)
        snprintf(more + n, sizeof more - (size_t)n, " error=\"%s\"", error);
    og__log(c->server, "request id=%s peer=%s method=%s path=\"%s\" status=%d bytes=%lld time=%.4f%s%s",
            c->id, c->peer, method_name(c->method), path, c->out.status, (long long)c->sent,
            og__clock() - c->t_start, atomic_load(&c->gone) ? " gone=1" : "", more);
}
