/* The strict binder: every fault of a module's weights in one message. */
#include <stdio.h>
#include <string.h>

#include "nodes/load/internal.h"
#include "nodes/load/safetensors.h"

#define SHOWN 12 /* extra names that a message spells out */
#define FAULT_BYTES                                                                      \
    900 /* of faults that it does: og_err.msg must hold the count after them */

struct og_bind {
    og_weights *w;
    char *prefix;
    og_str ignored;       /* prefixes of names that are not ours, each with its NUL */
    unsigned char *taken; /* one per tensor of the set */
    og_str faults;        /* at most FAULT_BYTES */
    int n_faults, n_hidden;
    int code; /* of the first fault */
    const char **extra;
    size_t n_extra;
    og_str extra_text;
};

og_bind *og_bind_create(og_weights *w, const char *prefix) {
    og_bind *b = og_calloc(1, sizeof *b);
    if (!b) return NULL;
    b->w = w;
    b->prefix = og_strdup(prefix);
    b->taken = og_calloc(og_weights_count(w), 1);
    if (!b->prefix || !b->taken) {
        og_bind_free(b);
        return NULL;
    }
    return b;
}

void og_bind_free(og_bind *b) {
    if (!b) return;
    og_free(b->prefix);
    og_free(b->taken);
    og_free(b->extra);
    og_str_free(&b->ignored);
    og_str_free(&b->faults);
    og_str_free(&b->extra_text);
    og_free(b);
}

static int fault(og_bind *b, int code, const char *fmt, ...) OG_PRINTF(3, 4);
static int fault(og_bind *b, int code, const char *fmt, ...) {
    char line[FAULT_BYTES];
    va_list ap;
    if (b->n_faults++ == 0) b->code = code;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (b->n_hidden || b->faults.len + strlen(line) + 2 > FAULT_BYTES) {
        b->n_hidden++;
        return code;
    }
    if (b->faults.len) og_str_add(&b->faults, "; ");
    og_str_add(&b->faults, line);
    return code;
}

/* prefix + formatted rest, in name[size]. */
static int full_name(og_bind *b, char *name, size_t size, const char *fmt, va_list ap) {
    int n = snprintf(name, size, "%s", b->prefix);
    if (n < 0 || (size_t)n >= size) return -1;
    int m = vsnprintf(name + n, size - (size_t)n, fmt, ap);
    return m < 0 || (size_t)(n + m) >= size ? -1 : 0;
}

static int shape_fits(const og_tensor *t, const og_ne *want) {
    if (t->rank != want->rank) return 0;
    for (int i = 0; i < t->rank; i++)
        if (want->ne[i] >= 0 && t->ne[i] != want->ne[i]) return 0;
    return 1;
}

static void shape_str(const og_ne *s, char *buf, size_t size) {
    size_t at = 0;
    buf[0] = 0;
    for (int i = 0; i < s->rank && at < size; i++) {
        int n = s->ne[i] < 0 ? snprintf(buf + at, size - at, "%s?", i ? "," : "")
                             : snprintf(buf + at, size - at, "%s%lld", i ? "," : "",
                                        (long long)s->ne[i]);
        at += n > 0 ? (size_t)n : 0;
    }
}

static int is_weight_dtype(og_dtype t) {
    return t == OG_F32 || t == OG_F16 || t == OG_BF16;
}

/* dtype OG_DTYPE_COUNT stands for the three that weights may have. */
static int bind_file(og_bind *b, og_tensor *out, const char *name, og_dtype dtype,
                     const og_ne *shape, int optional) {
    long i = og__weights_index(b->w, name);
    if (i < 0) return optional ? 0 : fault(b, OG_EFORMAT, "missing %s", name);
    const og_tensor *t = og_weights_at(b->w, (size_t)i);
    b->taken[i] = 1;
    if (!shape_fits(t, shape)) {
        char have[128], want[128];
        shape_str(shape, want, sizeof want);
        return fault(b, OG_ESHAPE, "%s is %s, not [%s]", name,
                     og_tensor_str(t, have, sizeof have), want);
    }
    if (dtype == OG_DTYPE_COUNT ? !is_weight_dtype(t->dtype) : t->dtype != dtype)
        return fault(b, OG_ETYPE, "%s is %s, not %s", name, og_dtype_name(t->dtype),
                     dtype == OG_DTYPE_COUNT ? "F32, F16 or BF16" : og_dtype_name(dtype));
    *out = *t;
    return 0;
}

static int bind_dummy(og_bind *b, og_tensor *out, const char *name, og_dtype dtype,
                      const og_ne *shape) {
    og_err err = OG_ERR_INIT;
    if (dtype == OG_DTYPE_COUNT) dtype = og__weights_dummy_dtype(b->w);
    int rc = og__weights_make(b->w, name, dtype, *shape, out, &err);
    return rc < 0 ? fault(b, rc, "%s", err.msg) : 0;
}

static int bind(og_bind *b, og_tensor *out, og_dtype dtype, const og_ne *shape,
                int optional, const char *fmt, va_list ap) {
    char name[OG_ST_MAX_NAME + 1];
    memset(out, 0, sizeof *out);
    if (!b) return OG_ENOMEM;
    if (full_name(b, name, sizeof name, fmt, ap) < 0)
        return fault(b, OG_ELIMIT, "a tensor name is too long (limit is %d)",
                     OG_ST_MAX_NAME);
    return og_weights_is_dummy(b->w) ? bind_dummy(b, out, name, dtype, shape)
                                     : bind_file(b, out, name, dtype, shape, optional);
}

int og_bind_get(og_bind *b, og_tensor *out, og_ne shape, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int rc = bind(b, out, OG_DTYPE_COUNT, &shape, 0, fmt, ap);
    va_end(ap);
    return rc;
}

int og_bind_opt(og_bind *b, og_tensor *out, og_ne shape, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int rc = bind(b, out, OG_DTYPE_COUNT, &shape, 1, fmt, ap);
    va_end(ap);
    return rc;
}

int og_bind_as(og_bind *b, og_tensor *out, og_dtype dtype, og_ne shape, const char *fmt,
               ...) {
    va_list ap;
    va_start(ap, fmt);
    int rc = bind(b, out, dtype, &shape, 0, fmt, ap);
    va_end(ap);
    return rc;
}

int og_bind_has(og_bind *b, const char *fmt, ...) {
    char name[OG_ST_MAX_NAME + 1];
    va_list ap;
    if (!b) return 0;
    va_start(ap, fmt);
    int rc = full_name(b, name, sizeof name, fmt, ap);
    va_end(ap);
    return rc == 0 && og__weights_index(b->w, name) >= 0;
}

void og_bind_ignore(og_bind *b, const char *fmt, ...) {
    char name[OG_ST_MAX_NAME + 1];
    va_list ap;
    if (!b) return;
    va_start(ap, fmt);
    int rc = full_name(b, name, sizeof name, fmt, ap);
    va_end(ap);
    if (rc == 0) og_str_addn(&b->ignored, name, strlen(name) + 1);
}

static int starts_with(const char *s, const char *head) {
    return strncmp(s, head, strlen(head)) == 0;
}

static int is_ignored(const og_bind *b, const char *name) {
    for (size_t at = 0; at < b->ignored.len; at += strlen(b->ignored.data + at) + 1)
        if (starts_with(name, b->ignored.data + at)) return 1;
    return 0;
}

static int find_extra(og_bind *b) {
    size_t n = og_weights_count(b->w);
    og_free(b->extra);
    b->n_extra = 0;
    b->extra = og_calloc(n, sizeof *b->extra);
    if (!b->extra) return OG_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const char *name = og_weights_name(b->w, i);
        if (!b->taken[i] && starts_with(name, b->prefix) && !is_ignored(b, name))
            b->extra[b->n_extra++] = name;
    }
    return 0;
}

static void tell_extra(og_bind *b) {
    og_str_free(&b->extra_text);
    b->extra_text = (og_str)OG_STR_INIT;
    if (b->n_extra == 0) return;
    og_str_addf(&b->extra_text, "%zu tensors are not used:", b->n_extra);
    for (size_t i = 0; i < b->n_extra && i < SHOWN; i++)
        og_str_addf(&b->extra_text, "%s %s", i ? "," : "", b->extra[i]);
    if (b->n_extra > SHOWN)
        og_str_addf(&b->extra_text, " and %zu more", b->n_extra - SHOWN);
}

int og_bind_finish(og_bind *b, og_err *err) {
    if (!b || find_extra(b) < 0)
        return og_err_set(err, OG_ENOMEM, "no memory to bind weights");
    tell_extra(b);
    if (b->n_hidden) og_str_addf(&b->faults, "; and %d more", b->n_hidden);
    if (b->ignored.oom || b->faults.oom || b->extra_text.oom)
        return og_err_set(err, OG_ENOMEM, "no memory to bind weights");
    if (b->n_faults == 0) return 0;
    og_err_set(err, b->n_faults == 1 ? b->code : OG_EFORMAT, "weights do not fit: %s",
               b->faults.data);
    if (b->n_extra) og_err_hint(err, "%s", b->extra_text.data);
    return b->n_faults == 1 ? b->code : OG_EFORMAT;
}

size_t og_bind_extra_count(const og_bind *b) {
    return b ? b->n_extra : 0;
}

const char *og_bind_extra(const og_bind *b, size_t i) {
    return b && i < b->n_extra ? b->extra[i] : NULL;
}

const char *og_bind_extra_text(const og_bind *b) {
    return b && b->extra_text.data ? b->extra_text.data : "";
}
