#include "kernels/base/err.h"

#include <stdio.h>
#include <string.h>

int og_err_setv(og_err *err, int code, const char *fmt, va_list ap) {
    if (!err || err->code) return code;
    err->code = code;
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    return code;
}

int og_err_set(og_err *err, int code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    og_err_setv(err, code, fmt, ap);
    va_end(ap);
    return code;
}

int og_err_at(og_err *err, int code, og_src src, const char *fmt, ...) {
    if (!err || err->code) return code;
    va_list ap;
    va_start(ap, fmt);
    og_err_setv(err, code, fmt, ap);
    va_end(ap);
    if (src.file) {
        snprintf(err->file, sizeof err->file, "%s", src.file);
        err->line = src.line;
        err->col = src.col;
    }
    return code;
}

void og_err_hint(og_err *err, const char *fmt, ...) {
    if (!err || err->hint[0]) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->hint, sizeof err->hint, fmt, ap);
    va_end(ap);
}

void og_err_node(og_err *err, const char *node) {
    if (err && !err->node[0]) snprintf(err->node, sizeof err->node, "%s", node);
}

void og_err_field(og_err *err, const char *field) {
    if (err && !err->field[0]) snprintf(err->field, sizeof err->field, "%s", field);
}

void og_err_clear(og_err *err) {
    if (err) memset(err, 0, sizeof *err);
}

const char *og_strerror(int code) {
    switch (code) {
    case OG_OK: return "success";
#define OG_ERR_CASE(name, value, text) \
    case name: return text;
        OG_ERR_LIST(OG_ERR_CASE)
#undef OG_ERR_CASE
    }
    return "unknown error";
}

const char *og_err_name(int code) {
    switch (code) {
    case OG_OK: return "OG_OK";
#define OG_ERR_CASE(name, value, text) \
    case name: return #name;
        OG_ERR_LIST(OG_ERR_CASE)
#undef OG_ERR_CASE
    }
    return "unknown error";
}

/* Messages quote what strangers wrote: no line of theirs, and nothing that steers a terminal. */
static void clean(char *s) {
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f) *s = ' ';
}

int og_err_format(const og_err *err, char *buf, int size) {
    og_err e = *err;
    char at[OG_ERR_FILE_MAX + 32] = "";
    clean(e.file);
    clean(e.msg);
    clean(e.node);
    clean(e.hint);
    if (e.file[0] && e.line)
        snprintf(at, sizeof at, "%s:%d:%d: ", e.file, e.line, e.col);
    else if (e.file[0])
        snprintf(at, sizeof at, "%s: ", e.file);
    return snprintf(buf, (size_t)size, "%serror: %s%s%s%s%s%s", at, e.msg,
                    e.node[0] ? " [" : "", e.node, e.node[0] ? "]" : "",
                    e.hint[0] ? "\n  hint: " : "", e.hint);
}
