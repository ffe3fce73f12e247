#include "kernels/check.h"

#include <stdarg.h>
#include <stdio.h>

int og__mat_as(const og_tensor *t, int64_t cols, og__mat *m) {
    int i = t->rank - 1;
    int64_t width = 1;
    for (; i >= 0 && width < cols; i--) {
        if (t->ne[i] != 1 && t->stride[i] != width) return 0;
        width *= t->ne[i];
    }
    if (width != cols) return 0;
    int64_t rows = 1, ld = cols;
    for (; i >= 0; i--) {
        if (t->ne[i] == 1) continue;
        if (rows == 1)
            ld = t->stride[i];
        else if (t->stride[i] != rows * ld)
            return 0;
        rows *= t->ne[i];
    }
    *m = (og__mat){t->data, t->dtype, rows, cols, ld};
    return 1;
}

og__mat og__mat_of(const og_tensor *t) {
    og__mat m = {0};
    og__mat_as(t, t->ne[t->rank - 1], &m);
    return m;
}

int og__same_shape(const og_tensor *a, const og_tensor *b) {
    if (a->rank != b->rank) return 0;
    for (int i = 0; i < a->rank; i++)
        if (a->ne[i] != b->ne[i]) return 0;
    return 1;
}

int og__is_weight(og_dtype t) {
    return t == OG_F32 || t == OG_BF16 || t == OG_F16;
}

int og__is_f32_rows(const og_tensor *t) {
    og__mat m;
    return t->dtype == OG_F32 && t->rank > 0 && og__mat_as(t, t->ne[t->rank - 1], &m);
}

int og__is_vector(const og_tensor *t, int64_t n) {
    return og__is_weight(t->dtype) && og_tensor_count(t) == n && og_tensor_dense(t);
}

static int usable_one(og_exec *ex, const char *op, const char *name, const og_tensor *t) {
    if (t->rank < 0 || t->rank > OG_MAX_RANK || t->dtype >= OG_DTYPE_COUNT)
        return og__fail(ex, OG_EINVAL, "%s: %s has rank %d and dtype %d", op, name,
                        t->rank, (int)t->dtype);
    if (t->place.kind != ex->dev->place.kind || t->place.index != ex->dev->place.index)
        return og__fail(ex, OG_EINVAL, "%s: %s lies on another device", op, name);
    if (t->data || og__measuring(ex) || !og_tensor_count(t)) return 0;
    return og__fail(ex, OG_ENOMEM,
                    "%s: %s has no memory (scratch of %zu bytes, %zu were asked for)", op,
                    name, ex->cap, ex->peak);
}

int og__usable(og_exec *ex, const char *op, ...) {
    va_list ap;
    va_start(ap, op);
    int rc = 0;
    const char *name;
    while (!rc && (name = va_arg(ap, const char *))) {
        const og_tensor *t = va_arg(ap, const og_tensor *);
        if (t && t->rank) rc = usable_one(ex, op, name, t);
    }
    va_end(ap);
    return rc;
}

int og__eshape(og_exec *ex, const char *op, const char *why, ...) {
    char text[96];
    size_t at = (size_t)snprintf(ex->error, sizeof ex->error, "%s: %s", op, why);
    va_list ap;
    va_start(ap, why);
    const char *name, *sep = ": ";
    while ((name = va_arg(ap, const char *)) && at < sizeof ex->error) {
        const og_tensor *t = va_arg(ap, const og_tensor *);
        if (!t) continue;
        at += (size_t)snprintf(ex->error + at, sizeof ex->error - at, "%s%s %s", sep,
                               name, og_tensor_str(t, text, sizeof text));
        sep = ", ";
    }
    va_end(ap);
    return OG_ESHAPE;
}

int og__check_rows(og_exec *ex, const char *op, const og_rows *rows, int64_t n,
                   int64_t n_slots) {
    if (rows->n != n)
        return og__fail(ex, OG_ESHAPE, "%s: %d rows are described, the tensor has %lld",
                        op, rows->n, (long long)n);
    if (og__measuring(ex) || ex->dev->place.kind != OG_PLACE_HOST || !n) return 0;
    if (rows->n_seg < 1 || rows->cu[0] != 0 || rows->cu[rows->n_seg] != n)
        return og__fail(ex, OG_EINVAL, "%s: cu does not span the %d rows", op, rows->n);
    for (int s = 0; s < rows->n_seg; s++) {
        if (rows->cu[s + 1] < rows->cu[s])
            return og__fail(ex, OG_EINVAL, "%s: cu descends at segment %d", op, s);
        if (rows->cu[s + 1] == rows->cu[s]) continue;
        int32_t slot = rows->slot[rows->cu[s]];
        if (slot < 0 || (n_slots >= 0 && slot >= n_slots))
            return og__fail(ex, OG_EINVAL, "%s: segment %d has slot %d of %lld", op, s,
                            slot, (long long)n_slots);
    }
    return 0;
}

int og__check_kv(og_exec *ex, const char *op, const og_kv *kv, int64_t n_kv_heads,
                 int64_t head_dim) {
    OG__CHECK(og__usable(ex, op, "kv.k", &kv->k, "kv.v", &kv->v, NULL));
    const og_tensor *k = &kv->k;
    if (k->rank != 4 || !og__same_shape(k, &kv->v) || k->dtype != kv->v.dtype ||
        !og__is_weight(k->dtype) || !og_tensor_dense(k) || !og_tensor_dense(&kv->v))
        return og__eshape(ex, op, "k and v must be alike, dense, [pages,page,heads,dim]",
                          "k", k, "v", &kv->v, NULL);
    if (k->ne[1] != kv->page || k->ne[2] != n_kv_heads || k->ne[3] != head_dim)
        return og__eshape(ex, op, "kv does not fit the page size, kv heads or head_dim",
                          "kv", k, NULL);
    if (kv->max_pages < 1 || kv->ring < 0 || kv->ring > kv->max_pages)
        return og__fail(ex, OG_EINVAL, "%s: ring %d, max_pages %d", op, kv->ring,
                        kv->max_pages);
    return 0;
}
