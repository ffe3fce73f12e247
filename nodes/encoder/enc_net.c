#include "nodes/encoder/enc_net.h"

#include <stdarg.h>
#include <string.h>

void og__enc_mem_init(og__enc_mem *m, og_exec *ex) {
    og_store_init(&m->store, ex);
}

void og__enc_mem_free(og__enc_mem *m) {
    for (int i = 0; i < m->n; i++) og_device_free(m->store.dev, m->block[i]);
    m->n = 0;
    og_store_free(&m->store);
}

int og__enc_weight(og__enc_mem *m, og_tensor *t, og_err *err) {
    if (!og_store_make(&m->store, t, err)) return OG_ENOMEM;
    m->weight_bytes += og_tensor_bytes(t);
    return 0;
}

int og__enc_place(og__enc_mem *m, og_tensor *t, og_err *err) {
    return og_store_place(&m->store, t, err);
}

int og__enc_state(og__enc_mem *m, og_tensor *t, og_err *err) {
    void *p = NULL;
    if (m->n == OG__ENC_MAX_BLOCKS)
        return og_err_set(err, OG_ELIMIT, "the encoder has over %d states",
                          OG__ENC_MAX_BLOCKS);
    int rc = og_device_alloc(m->store.dev, og_tensor_bytes(t), &p, err);
    if (rc < 0) return rc;
    m->block[m->n++] = t->data = p;
    t->place = m->store.place;
    m->state_bytes += og_tensor_bytes(t);
    return 0;
}

int og__enc_repack(og__enc_mem *m, og_tensor *w, og_err *err) {
    og_tensor from = *w;
    if (from.ne[2] == 1) {
        *w = og_tensor_view(&from, 2, from.ne);
        m->weight_bytes += og_tensor_bytes(w);
        return og__enc_place(m, w, err);
    }
    og_tensor to = og_tensor_3d(from.dtype, from.ne[0], from.ne[2], from.ne[1], NULL);
    int rc = og__enc_weight(m, &to, err);
    if (rc < 0) return rc;
    og_pack_conv1d(&to, &from);
    og_weights_drop_pages(m->weights, &from);
    *w = to;
    return og__enc_place(m, w, err);
}

int og__enc_prepare(og__enc_mem *m, og__enc_conv *c, og_err *err) {
    int rc = og__enc_repack(m, &c->w, err);
    return rc < 0 ? rc : og__enc_place(m, &c->b, err);
}

float og__enc_value(const og_tensor *t, int64_t i) {
    const char *p = (const char *)t->data + (size_t)i * og_dtype_size(t->dtype);
    float f;
    uint16_t h;
    if (t->dtype == OG_F32) {
        memcpy(&f, p, sizeof f);
        return f;
    }
    memcpy(&h, p, sizeof h);
    return t->dtype == OG_BF16 ? og_bf16_to_f32(h) : og_f16_to_f32(h);
}

void og__enc_bind_conv(og_bind *b, og__enc_conv *c, int out, int in, int k, const char *fmt,
                       ...) {
    char name[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    og_bind_get(b, &c->w, og_ne3(out, in, k), "%s.weight", name);
    og_bind_get(b, &c->b, og_ne1(out), "%s.bias", name);
}

int og__enc_cfg_ints(const json_t *s, const char *key, int *v, int max_n, int *n,
                     const int *def, int n_def, int max, og_err *err) {
    if (og_cfg_find(s, key)) return og_cfg_int_array(s, key, v, max_n, n, 1, max, err);
    memcpy(v, def, (size_t)n_def * sizeof *v);
    *n = n_def;
    return 0;
}

int og__enc_bad(og_err *err, int code, const char *key, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    og_err_setv(err, code, fmt, ap);
    va_end(ap);
    og_err_field(err, key);
    return code;
}
