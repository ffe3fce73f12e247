/* Execs: modes, the scratch arena, error words and the developer's tap. */
#include "kernels/exec.h"
#include "kernels/base/alloc.h"

#include <stdarg.h>
#include <stdio.h>

int og_exec_create(og_device *dev, size_t scratch, og_exec **out, og_err *err) {
    *out = NULL;
    og_exec *ex = og_calloc(1, sizeof *ex);
    if (!ex) return og_err_set(err, OG_ENOMEM, "no memory for an exec");
    ex->dev = dev;
    ex->mode = OG_RUN;
    int rc = og_exec_reserve(ex, scratch, err);
    if (rc < 0) goto fail;
    if (dev->be->exec_open && (rc = dev->be->exec_open(ex, err)) < 0) goto fail;
    *out = ex;
    return 0;
fail:
    og_device_free(dev, ex->arena);
    og_free(ex);
    return rc;
}

void og_exec_destroy(og_exec *ex) {
    if (!ex) return;
    if (ex->dev->be->exec_close) ex->dev->be->exec_close(ex);
    og_device_free(ex->dev, ex->arena);
    og_free(ex);
}

og_device *og_exec_device(const og_exec *ex) {
    return ex->dev;
}

void og_exec_set_mode(og_exec *ex, og_exec_mode mode) {
    ex->mode = mode;
}

og_exec_mode og_exec_get_mode(const og_exec *ex) {
    return ex->mode;
}

og_tensor og_exec_alloc(og_exec *ex, og_dtype t, int rank, const int64_t *ne) {
    og_tensor out = og_tensor_nd(t, rank, ne, NULL);
    out.place = ex->dev->place;
    size_t bytes = og_tensor_bytes(&out), at = ex->used;
    bytes = (bytes + OG__SCRATCH_ALIGN - 1) / OG__SCRATCH_ALIGN * OG__SCRATCH_ALIGN;
    ex->used += bytes;
    if (ex->used > ex->peak) ex->peak = ex->used;
    if (ex->mode != OG_MEASURE && ex->used <= ex->cap) out.data = ex->arena + at;
    return out;
}

size_t og_exec_mark(const og_exec *ex) {
    return ex->used;
}

void og_exec_release(og_exec *ex, size_t mark) {
    if (mark < ex->used) ex->used = mark;
}

void og_exec_reset(og_exec *ex) {
    ex->used = 0;
}

size_t og_exec_peak(const og_exec *ex) {
    return ex->peak;
}

int og_exec_reserve(og_exec *ex, size_t bytes, og_err *err) {
    if (ex->impl && ex->dev->be->reserve) {
        int grown = ex->dev->be->reserve(ex, err);
        if (grown < 0) return grown;
    }
    if (bytes <= ex->cap) return 0;
    if (ex->used && ex->mode != OG_MEASURE)
        return og_err_set(err, OG_EINVAL, "scratch can only grow between steps");
    void *p;
    int rc = og_device_alloc(ex->dev, bytes, &p, err);
    if (rc < 0) return rc;
    og_device_free(ex->dev, ex->arena);
    ex->arena = p;
    ex->cap = bytes;
    return 0;
}

const char *og_exec_error(const og_exec *ex) {
    return ex->error;
}

int og_exec_sync(og_exec *ex) {
    return ex->dev->be->sync ? ex->dev->be->sync(ex) : 0;
}

int og__fail(og_exec *ex, int code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(ex->error, sizeof ex->error, fmt, ap);
    va_end(ap);
    return code;
}

void og_exec_set_tap(og_exec *ex, og_tap_fn *fn, void *arg) {
    ex->tap = fn;
    ex->tap_arg = arg;
}

static size_t span_of(const og_tensor *t) {
    int64_t last = 0;
    if (!og_tensor_count(t)) return 0;
    for (int i = 0; i < t->rank; i++) last += (t->ne[i] - 1) * t->stride[i];
    return ((size_t)last + 1) * og_dtype_size(t->dtype);
}

/* A tap reads host memory: elsewhere it gets a copy, and where there is none, nothing. */
static void tap_copy(og_exec *ex, const char *name, const og_tensor *t) {
    og_err err = OG_ERR_INIT;
    size_t bytes = span_of(t);
    og_tensor copy = *t;
    copy.place = (og_place){OG_PLACE_HOST, 0};
    copy.data = og_malloc(bytes ? bytes : 1);
    if (copy.data && og_exec_sync(ex) == 0 &&
        og_device_download(ex->dev, copy.data, t->data, bytes, &err) == 0)
        ex->tap(ex->tap_arg, name, &copy);
    og_free(copy.data);
}

int og_exec_tapped(const og_exec *ex) {
    return ex->tap != NULL;
}

void og_tap(og_exec *ex, const og_tensor *t, const char *fmt, ...) {
    if (!ex->tap || ex->mode != OG_RUN) return;
    char name[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    if (ex->dev->place.kind != OG_PLACE_HOST) tap_copy(ex, name, t);
    else ex->tap(ex->tap_arg, name, t);
}
