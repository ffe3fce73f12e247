/* Single elements of any dtype. Data may be misaligned, so everything goes by memcpy. */
#ifndef OG_KERNELS_ELEM_H
#define OG_KERNELS_ELEM_H

#include "kernels/tensor.h"

#include <string.h>

/* Element i of float data, widened. */
static inline float og__elem(const void *p, og_dtype t, int64_t i) {
    float f;
    uint16_t h;
    switch (t) {
    case OG_F32: memcpy(&f, (const char *)p + i * 4, 4); return f;
    case OG_BF16: memcpy(&h, (const char *)p + i * 2, 2); return og_bf16_to_f32(h);
    case OG_F16: memcpy(&h, (const char *)p + i * 2, 2); return og_f16_to_f32(h);
    case OG_F8_E4M3: return og_f8_e4m3_to_f32(((const uint8_t *)p)[i]);
    case OG_F8_E5M2: return og_f8_e5m2_to_f32(((const uint8_t *)p)[i]);
    default: return 0.0f;
    }
}

/* Store into f32, bf16 or f16 data. */
static inline void og__elem_set(void *p, og_dtype t, int64_t i, float v) {
    uint16_t h;
    switch (t) {
    case OG_F32: memcpy((char *)p + i * 4, &v, 4); break;
    case OG_BF16:
        h = og_f32_to_bf16(v);
        memcpy((char *)p + i * 2, &h, 2);
        break;
    case OG_F16:
        h = og_f32_to_f16(v);
        memcpy((char *)p + i * 2, &h, 2);
        break;
    default: break;
    }
}

#endif
