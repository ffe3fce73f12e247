/* Answers: a head and bytes that a worker puts in and the loop takes out. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/serve/server.h"

void og__reply_header(og__call *c, const char *name, const char *fmt, ...) {
    char value[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    for (char *p = value; *p; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e) *p = '?';
    pthread_mutex_lock(&c->out.mu);
    if (!c->out.status) {
        og_str_addn(&c->out.head, name, strlen(name) + 1);
        og_str_addn(&c->out.head, value, strlen(value) + 1);
    }
    pthread_mutex_unlock(&c->out.mu);
}

void og__reply_head(og__call *c, int status, const char *type, int64_t length) {
    if (type) og__reply_header(c, "content-type", "%s", type);
    pthread_mutex_lock(&c->out.mu);
    if (!c->out.status) {
        c->out.status = status;
        c->out.length = length;
        if (c->out.head.oom) c->out.oom = true;
    }
    pthread_mutex_unlock(&c->out.mu);
    og__loop_news(c);
}

/* Room for n more bytes at the end: moved to the front first, grown only then. */
static bool make_room(og__outbox *o, size_t n) {
    if (o->from && (o->len == 0 || o->from + o->len + n > o->cap)) {
        memmove(o->data, o->data + o->from, o->len);
        o->from = 0;
    }
    if (o->len + n <= o->cap) return true;
    size_t cap = o->cap ? o->cap : 4096;
    while (cap < o->len + n) cap *= 2;
    char *more = og_realloc(o->data, cap);
    if (!more) return false;
    o->data = more;
    o->cap = cap;
    return true;
}

void og__reply_put(og__call *c, const void *bytes, size_t n) {
    og__outbox *o = &c->out;
    if (n == 0) return;
    pthread_mutex_lock(&o->mu);
    if (!o->ended && !o->oom && !atomic_load(&c->gone)) {
        if (make_room(o, n)) {
            memcpy(o->data + o->from + o->len, bytes, n);
            o->len += n;
            o->put += (int64_t)n;
        } else {
            o->oom = o->cut = o->ended = true;
        }
    }
    pthread_mutex_unlock(&o->mu);
    og__loop_news(c);
}

static void finish(og__call *c, bool cut) {
    pthread_mutex_lock(&c->out.mu);
    c->out.ended = true;
    c->out.cut |= cut;
    pthread_mutex_unlock(&c->out.mu);
    og__loop_news(c);
}

void og__reply_end(og__call *c) {
    finish(c, false);
}

void og__reply_cut(og__call *c) {
    finish(c, true);
}

bool og__reply_full(og__call *c) {
    pthread_mutex_lock(&c->out.mu);
    bool full = c->out.len >= c->server->opts.outbox && !atomic_load(&c->gone);
    if (full) c->out.starved = true;
    pthread_mutex_unlock(&c->out.mu);
    return full;
}

bool og__reply_begun(og__call *c) {
    pthread_mutex_lock(&c->out.mu);
    bool begun = c->out.status != 0;
    pthread_mutex_unlock(&c->out.mu);
    return begun;
}

void og__reply_json(og__call *c, int status, json_t *j) {
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    if (!text) {
        og__reply_head(c, 500, "application/json", 0);
        og__reply_end(c);
        return;
    }
    size_t n = strlen(text);
    og__reply_head(c, status, "application/json", (int64_t)n);
    og__reply_put(c, text, n);
    og__reply_end(c);
    free(text);
}

json_t *og__text_json(const char *text) {
    json_t *s = json_string(text);
    if (s) return s;
    char *clean = og_strdup(text);
    for (char *p = clean; p && *p; p++)
        if ((unsigned char)*p >= 0x80) *p = '?';
    s = clean ? json_string(clean) : NULL;
    og_free(clean);
    return s ? s : json_string("");
}

static const char *error_type(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
    }
}

json_t *og__error_json(int status, const char *param, const char *code, const char *text) {
    return json_pack("{s:o, s:s, s:o, s:s?}", "message", og__text_json(text), "type",
                     error_type(status), "param",
                     param && *param ? og__text_json(param) : json_null(), "code", code);
}

static void reply_error(og__call *c, int status, const char *param, const char *code,
                        const char *text) {
    if (!c->error[0]) snprintf(c->error, sizeof c->error, "%s", text);
    if (og__reply_begun(c)) {
        og__reply_cut(c);
        return;
    }
    if (status == 429 || status == 503) og__reply_header(c, "retry-after", "1");
    if (status == 401) og__reply_header(c, "www-authenticate", "Bearer");
    og__reply_json(c, status,
                   json_pack("{s:o}", "error", og__error_json(status, param, code, text)));
}

void og__reply_error(og__call *c, int status, const char *param, const char *code,
                     const char *fmt, ...) {
    char text[OG_ERR_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    reply_error(c, status, param, code, text);
}

int og__status_of(int code, const char **name) {
    static const struct {
        int code, status;
        const char *name;
    } rows[] = {
        {OG_EREJECT, 400, "invalid_value"},     {OG_EINVAL, 400, "invalid_value"},
        {OG_ELIMIT, 400, "limit_exceeded"},     {OG_EHOOK, 500, "hook_failed"},
        {OG_EBUSY, 429, "queue_full"},          {OG_ETIMEOUT, 504, "timeout"},
        {OG_EUNSUPPORTED, 400, "unsupported"},  {OG_ELOST, 503, "replica_lost"},
        {OG_EDEVICE, 503, "device_error"},      {OG_ECANCELED, 499, "canceled"},
        {OG_ENOMEM, 503, "out_of_memory"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].code == code) return *name = rows[i].name, rows[i].status;
    *name = "internal_error";
    return 500;
}

void og__reply_failure(og__call *c, const og_err *err, const char *param) {
    const char *code;
    int status = og__status_of(err->code, &code);
    char text[OG_ERR_MSG_MAX + 400];
    int n = snprintf(text, sizeof text, "%s", err->msg[0] ? err->msg : og_strerror(err->code));
    if (err->node[0] && n < (int)sizeof text)
        n += snprintf(text + n, sizeof text - (size_t)n, " (stage %s)", err->node);
    if (err->hint[0] && n < (int)sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, "; %s", err->hint);
    reply_error(c, status, param ? param : err->field, code, text);
}
