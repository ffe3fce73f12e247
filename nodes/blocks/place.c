#include "nodes/blocks/place.h"
#include "kernels/base/alloc.h"

#define ALIGN 64

og_place og_place_of(og_exec *ex) {
    return og_exec_alloc(ex, OG_F32, 1, (int64_t[]){0}).place;
}

int og_place_is_host(og_exec *ex) {
    return og_place_of(ex).kind == OG_PLACE_HOST;
}

og_tensor og_place_on(og_exec *ex, og_tensor t) {
    t.place = og_place_of(ex);
    return t;
}

int og_shared_alloc(og_exec *ex, size_t bytes, void **out, og_err *err) {
    og_device *dev = og_exec_device(ex);
    return og_place_is_host(ex) ? og_device_alloc(dev, bytes, out, err)
                                : og_device_alloc_host(dev, bytes, out, err);
}

void og_shared_free(og_exec *ex, void *p) {
    if (!p) return;
    if (og_place_is_host(ex)) og_device_free(og_exec_device(ex), p);
    else og_device_free_host(og_exec_device(ex), p);
}

/* ---- the store ------------------------------------------------------------------- */

void og_store_init(og_store *s, og_exec *ex) {
    *s = (og_store){.dev = og_exec_device(ex), .place = og_place_of(ex)};
}

static og_stored *add(og_store *s, og_err *err) {
    if (s->n == s->cap) {
        int cap = s->cap ? 2 * s->cap : 64;
        og_stored *list = og_realloc(s->list, (size_t)cap * sizeof *list);
        if (!list) {
            og_err_set(err, OG_ENOMEM, "no memory for a list of %d weights", cap);
            return NULL;
        }
        s->list = list;
        s->cap = cap;
    }
    s->list[s->n] = (og_stored){0};
    return &s->list[s->n++];
}

void *og_store_make(og_store *s, og_tensor *t, og_err *err) {
    og_stored *e = add(s, err);
    if (!e) return NULL;
    size_t bytes = og_tensor_bytes(t);
    t->data = e->host = og_aligned(ALIGN, bytes);
    e->own = e->host != NULL;
    if (!e->own) og_err_set(err, OG_ENOMEM, "no memory for a weight of %zu bytes", bytes);
    return e->host;
}

static int is_there(const og_store *s, const og_tensor *t) {
    return t->place.kind == s->place.kind && t->place.index == s->place.index;
}

static og_stored *find(og_store *s, const og_tensor *t) {
    for (int i = s->n - 1; i >= 0; i--)
        if (s->list[i].host == t->data) return &s->list[i];
    return NULL;
}

/* A freed address may come again for another tensor, so the entry forgets it. */
static void drop_host(og_stored *e) {
    if (!e->own) return;
    og_free(e->host);
    e->host = NULL;
    e->own = 0;
}

int og_store_place(og_store *s, og_tensor *t, og_err *err) {
    if (!og_tensor_present(t) || is_there(s, t)) return 0;
    og_stored *e = find(s, t);
    if (!e && !(e = add(s, err))) return OG_ENOMEM;
    if (!og_tensor_present(&e->placed)) {
        e->host = t->data;
        og_tensor copy;
        int rc = og_device_place(s->dev, t, &copy, err);
        if (rc < 0) return rc;
        e->placed = copy;
        drop_host(e);
    }
    t->data = e->placed.data;
    t->place = e->placed.place;
    return 0;
}

void og_store_free(og_store *s) {
    for (int i = 0; i < s->n; i++) {
        drop_host(&s->list[i]);
        if (og_tensor_present(&s->list[i].placed))
            og_device_unplace(s->dev, &s->list[i].placed);
    }
    og_free(s->list);
    *s = (og_store){0};
}
