#include "kernels/tensor.h"

#include <stdio.h>
#include <string.h>

size_t og_dtype_size(og_dtype t) {
    switch (t) {
#define SIZE_CASE(name, size, text)                                                      \
    case name: return size;
        OG_DTYPE_LIST(SIZE_CASE)
#undef SIZE_CASE
    case OG_DTYPE_COUNT: break;
    }
    return 0;
}

const char *og_dtype_name(og_dtype t) {
    switch (t) {
#define NAME_CASE(name, size, text)                                                      \
    case name: return text;
        OG_DTYPE_LIST(NAME_CASE)
#undef NAME_CASE
    case OG_DTYPE_COUNT: break;
    }
    return "unknown";
}

og_tensor og_tensor_nd(og_dtype t, int rank, const int64_t *ne, void *data) {
    og_tensor out = {.dtype = t, .data = data};
    if (rank < 0 || rank > OG_MAX_RANK) return out;
    out.rank = rank;
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        out.ne[i] = ne[i];
        out.stride[i] = stride;
        stride *= ne[i];
    }
    return out;
}

og_tensor og_tensor_1d(og_dtype t, int64_t a, void *data) {
    return og_tensor_nd(t, 1, &a, data);
}

og_tensor og_tensor_2d(og_dtype t, int64_t a, int64_t b, void *data) {
    return og_tensor_nd(t, 2, (int64_t[]){a, b}, data);
}

og_tensor og_tensor_3d(og_dtype t, int64_t a, int64_t b, int64_t c, void *data) {
    return og_tensor_nd(t, 3, (int64_t[]){a, b, c}, data);
}

int64_t og_tensor_count(const og_tensor *t) {
    if (t->rank <= 0) return 0;
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->ne[i];
    return n;
}

size_t og_tensor_bytes(const og_tensor *t) {
    return (size_t)og_tensor_count(t) * og_dtype_size(t->dtype);
}

int og_tensor_dense(const og_tensor *t) {
    int64_t want = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (t->ne[i] != 1 && t->stride[i] != want) return 0;
        want *= t->ne[i];
    }
    return 1;
}

int og_tensor_present(const og_tensor *t) {
    return t && t->rank > 0;
}

og_tensor og_tensor_rows(const og_tensor *t, int64_t from, int64_t n) {
    og_tensor out = *t;
    out.ne[0] = n;
    if (out.data)
        out.data =
            (char *)t->data + from * t->stride[0] * (int64_t)og_dtype_size(t->dtype);
    return out;
}

og_tensor og_tensor_view(const og_tensor *t, int rank, const int64_t *ne) {
    og_tensor out = og_tensor_nd(t->dtype, rank, ne, t->data);
    out.place = t->place;
    return out;
}

char *og_tensor_str(const og_tensor *t, char *buf, size_t size) {
    size_t at = 0;
    const char *name = og_dtype_name(t->dtype);
    for (; *name && at + 1 < size; name++, at++)
        buf[at] = *name >= 'A' && *name <= 'Z' ? (char)(*name + 32) : *name;
    if (size) buf[at] = 0;
    for (int i = 0; i < t->rank && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%c%lld", i ? ',' : '[',
                               (long long)t->ne[i]);
    if (at < size) snprintf(buf + at, size - at, t->rank ? "]" : "[]");
    return buf;
}

static float bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

float og_bf16_to_f32(uint16_t v) {
    return bits_f32((uint32_t)v << 16);
}

uint16_t og_f32_to_bf16(float v) {
    uint32_t u = f32_bits(v);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* A float with exp_bits of exponent and man_bits of fraction, widened exactly. */
static float widen(uint32_t v, int exp_bits, int man_bits) {
    uint32_t sign = v >> (exp_bits + man_bits) << 31;
    int e = (int)(v >> man_bits & ((1u << exp_bits) - 1));
    uint32_t man = v & ((1u << man_bits) - 1);
    int bias = (1 << (exp_bits - 1)) - 1;
    if (e)
        return bits_f32(sign | (uint32_t)(e - bias + 127) << 23 | man << (23 - man_bits));
    float small = (float)man * bits_f32((uint32_t)(1 - bias - man_bits + 127) << 23);
    return bits_f32(sign | f32_bits(small));
}

float og_f16_to_f32(uint16_t v) {
    if ((v & 0x7c00) == 0x7c00)
        return bits_f32((uint32_t)(v & 0x8000) << 16 | 0x7f800000 |
                        (uint32_t)(v & 0x3ff) << 13);
    return widen(v, 5, 10);
}

uint16_t og_f32_to_f16(float v) {
    uint32_t u = f32_bits(v), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000)
        return (uint16_t)(sign | 0x7c00); /* 65520 and more round to inf */
    if (a >= 0x38800000) {
        a += 0xfff + (a >> 13 & 1);
        return (uint16_t)(sign | (a - 0x38000000) >> 13);
    }
    if (a < 0x33000000) return (uint16_t)sign;
    int shift = 126 - (int)(a >> 23); /* subnormal: units of 2^-24 */
    uint32_t man = (a & 0x7fffff) | 0x800000, rest = man & ((1u << shift) - 1);
    uint32_t half = 1u << (shift - 1), out = man >> shift;
    if (rest > half || (rest == half && (out & 1))) out++;
    return (uint16_t)(sign | out);
}

float og_f8_e4m3_to_f32(uint8_t v) {
    if ((v & 0x7f) == 0x7f) return bits_f32((uint32_t)(v & 0x80) << 24 | 0x7fc00000);
    return widen(v, 4, 3);
}

float og_f8_e5m2_to_f32(uint8_t v) {
    return og_f16_to_f32((uint16_t)(v << 8));
}
