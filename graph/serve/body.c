/* JSON bodies: strict types, and a path for every fault. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "graph/serve/server.h"

static void fault(og__body *b, const char *name, const char *code, const char *text) {
    char path[OG__PARAM_MAX];
    if (b->failed) return;
    b->failed = true;
    snprintf(path, sizeof path, "%s%s", b->prefix, name);
    og__reply_error(b->call, 400, path, code, "%s: %s", path, text);
}

void og__body_fault(og__body *b, const char *name, const char *code, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fault(b, name, code, text);
}

/* What jansson says may quote the bytes that it stumbled over; the place is enough. */
static int not_json(og__call *c, const json_error_t *e) {
    bool utf8 = json_error_code(e) == json_error_invalid_utf8;
    bool twice = json_error_code(e) == json_error_duplicate_key;
    bool deep = json_error_code(e) == json_error_stack_overflow;
    og__reply_error(c, 400, NULL, "invalid_json", "the body is not JSON: %s at line %d, column %d",
                    utf8    ? "bytes that are not UTF-8"
                    : twice ? "a key that stands twice"
                    : deep  ? "nested too deeply"
                            : "syntax error",
                    e->line, e->column);
    return -1;
}

int og__body_open(og__body *b, og__call *c) {
    json_error_t e;
    *b = (og__body){.call = c, .root = json_incref(c->given)};
    if (b->root) return 0;
    if (c->body.len == 0) {
        og__reply_error(c, 400, NULL, "invalid_json", "the body is empty, a JSON object is expected");
        return -1;
    }
    b->root = json_loadb(c->body.data, c->body.len, JSON_REJECT_DUPLICATES, &e);
    if (!b->root) return not_json(c, &e);
    if (json_is_object(b->root)) return 0;
    og__reply_error(c, 400, NULL, "invalid_json", "the body must be a JSON object");
    og__body_close(b);
    return -1;
}

void og__body_close(og__body *b) {
    json_decref(b->root);
    b->root = NULL;
}

bool og__body_knows(const og__body *b, const char *name) {
    for (int i = 0; i < b->n_known; i++)
        if (!strcmp(b->known[i], name)) return true;
    return false;
}

json_t *og__body_any(og__body *b, const char *name) {
    if (!og__body_knows(b, name) && b->n_known < OG__BODY_FIELDS) b->known[b->n_known++] = name;
    json_t *v = json_object_get(b->root, name);
    return !v || json_is_null(v) || b->failed ? NULL : v;
}

static void wrong_type(og__body *b, const char *name, const char *wanted) {
    char text[64];
    snprintf(text, sizeof text, "must be %s", wanted);
    fault(b, name, "invalid_type", text);
}

const char *og__body_text(og__body *b, const char *name) {
    json_t *v = og__body_any(b, name);
    if (v && !json_is_string(v)) wrong_type(b, name, "a string");
    return v && json_is_string(v) ? json_string_value(v) : NULL;
}

bool og__body_bool(og__body *b, const char *name, bool def, bool *given) {
    json_t *v = og__body_any(b, name);
    if (given) *given = v != NULL;
    if (v && !json_is_boolean(v)) wrong_type(b, name, "true or false");
    return v && json_is_boolean(v) ? json_is_true(v) : def;
}

double og__body_number(og__body *b, const char *name, double min, double max, double def) {
    json_t *v = og__body_any(b, name);
    if (!v) return def;
    if (!json_is_number(v)) {
        wrong_type(b, name, "a number");
        return def;
    }
    double x = json_number_value(v);
    if (isfinite(x) && x >= min && x <= max) return x;
    og__body_fault(b, name, "invalid_value", "must be from %g to %g", min, max);
    return def;
}

bool og__body_int(og__body *b, const char *name, int64_t min, int64_t max, int64_t *out) {
    json_t *v = og__body_any(b, name);
    if (!v) return false;
    if (!json_is_integer(v)) {
        wrong_type(b, name, "a whole number");
        return false;
    }
    int64_t x = json_integer_value(v);
    if (x >= min && x <= max) {
        *out = x;
        return true;
    }
    og__body_fault(b, name, "invalid_value", "must be from %lld to %lld", (long long)min,
                   (long long)max);
    return false;
}
