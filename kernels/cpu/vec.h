/* Sixteen f32 lanes, as two AVX2 registers or one AVX-512 register.
 *
 * The including file has set its target and defined OG__AVX512 or not. Every operation gives
 * the same bits in both forms: each is one IEEE operation per lane. Loads and stores may be
 * misaligned. The _n forms touch only the first n lanes (0 < n <= 16) and load zeros into
 * the others, so a tail takes the same path as the body.
 */
#ifndef OG_CPU_VEC_H
#define OG_CPU_VEC_H

#include "kernels/tensor.h"

#include <immintrin.h>
#include <string.h>

#define OG__INLINE static inline __attribute__((always_inline))

#ifdef OG__AVX512

typedef __m512 v16;
typedef __mmask16 m16;

OG__INLINE v16 v_zero(void) { return _mm512_setzero_ps(); }
OG__INLINE v16 v_set(float x) { return _mm512_set1_ps(x); }
OG__INLINE v16 v_load(const void *p) { return _mm512_loadu_ps(p); }
OG__INLINE void v_store(void *p, v16 x) { _mm512_storeu_ps(p, x); }
OG__INLINE m16 v_first(int n) { return (m16)((1u << n) - 1); }
OG__INLINE v16 v_load_n(const void *p, int n) { return _mm512_maskz_loadu_ps(v_first(n), p); }
OG__INLINE void v_store_n(void *p, v16 x, int n) { _mm512_mask_storeu_ps(p, v_first(n), x); }
OG__INLINE v16 v_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
OG__INLINE v16 v_fnma(v16 a, v16 b, v16 c) { return _mm512_fnmadd_ps(a, b, c); }
OG__INLINE v16 v_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
OG__INLINE v16 v_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
OG__INLINE v16 v_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
OG__INLINE v16 v_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
OG__INLINE v16 v_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
OG__INLINE v16 v_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }
OG__INLINE v16 v_abs(v16 a) { return _mm512_abs_ps(a); }
OG__INLINE v16 v_round(v16 a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
OG__INLINE m16 v_lt(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
/* a where m, else b */
OG__INLINE v16 v_pick(m16 m, v16 a, v16 b) { return _mm512_mask_blend_ps(m, b, a); }
/* a with the sign of b */
OG__INLINE v16 v_copysign(v16 a, v16 b) {
    __m512i sign = _mm512_set1_epi32((int)0x80000000);
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        sign, _mm512_castps_si512(b), _mm512_castps_si512(a), 0xca));
}
/* x * 2^n, n integral, in two steps so that the ends of the range come out right */
OG__INLINE v16 v_scale2(v16 x, v16 n) {
    __m512i i = _mm512_cvtps_epi32(n), a = _mm512_srai_epi32(i, 1), b = _mm512_sub_epi32(i, a);
    __m512i bias = _mm512_set1_epi32(127);
    v16 fa = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(a, bias), 23));
    v16 fb = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(b, bias), 23));
    return _mm512_mul_ps(_mm512_mul_ps(x, fa), fb);
}
OG__INLINE __m256 v_low(v16 x) { return _mm512_castps512_ps256(x); }
OG__INLINE __m256 v_high(v16 x) { return _mm512_extractf32x8_ps(x, 1); }
OG__INLINE v16 v_join(__m256 lo, __m256 hi) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(lo), hi, 1);
}

#else

typedef struct v16 {
    __m256 a, b;
} v16;
typedef v16 m16;

OG__INLINE v16 v_join(__m256 lo, __m256 hi) { return (v16){lo, hi}; }
OG__INLINE __m256 v_low(v16 x) { return x.a; }
OG__INLINE __m256 v_high(v16 x) { return x.b; }
OG__INLINE v16 v_zero(void) { return v_join(_mm256_setzero_ps(), _mm256_setzero_ps()); }
OG__INLINE v16 v_set(float x) { return v_join(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
OG__INLINE v16 v_load(const void *p) {
    return v_join(_mm256_loadu_ps(p), _mm256_loadu_ps((const float *)p + 8));
}
OG__INLINE void v_store(void *p, v16 x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps((float *)p + 8, x.b);
}
/* eight lanes, of which the first n are on */
OG__INLINE __m256i half_mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
OG__INLINE v16 v_load_n(const void *p, int n) {
    return v_join(_mm256_maskload_ps(p, half_mask(n)),
                  _mm256_maskload_ps((const float *)p + 8, half_mask(n - 8)));
}
OG__INLINE void v_store_n(void *p, v16 x, int n) {
    _mm256_maskstore_ps(p, half_mask(n), x.a);
    _mm256_maskstore_ps((float *)p + 8, half_mask(n - 8), x.b);
}
#define V_BOTH(name, op)                                         \
    OG__INLINE v16 name(v16 x, v16 y) {                          \
        return v_join(op(x.a, y.a), op(x.b, y.b));               \
    }
V_BOTH(v_add, _mm256_add_ps)
V_BOTH(v_sub, _mm256_sub_ps)
V_BOTH(v_mul, _mm256_mul_ps)
V_BOTH(v_div, _mm256_div_ps)
V_BOTH(v_max, _mm256_max_ps)
V_BOTH(v_min, _mm256_min_ps)
#undef V_BOTH
OG__INLINE v16 v_fma(v16 x, v16 y, v16 z) {
    return v_join(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b));
}
OG__INLINE v16 v_fnma(v16 x, v16 y, v16 z) {
    return v_join(_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b));
}
OG__INLINE v16 v_abs(v16 x) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return v_join(_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b));
}
OG__INLINE v16 v_round(v16 x) {
    return v_join(_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                  _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
OG__INLINE m16 v_lt(v16 x, v16 y) {
    return v_join(_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ));
}
OG__INLINE v16 v_pick(m16 m, v16 x, v16 y) {
    return v_join(_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b));
}
OG__INLINE __m256 half_copysign(__m256 x, __m256 y) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(sign, x), _mm256_and_ps(sign, y));
}
OG__INLINE v16 v_copysign(v16 x, v16 y) {
    return v_join(half_copysign(x.a, y.a), half_copysign(x.b, y.b));
}
OG__INLINE __m256 half_scale2(__m256 x, __m256 n) {
    __m256i i = _mm256_cvtps_epi32(n), a = _mm256_srai_epi32(i, 1), b = _mm256_sub_epi32(i, a);
    __m256i bias = _mm256_set1_epi32(127);
    __m256 fa = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(a, bias), 23));
    __m256 fb = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(b, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(x, fa), fb);
}
OG__INLINE v16 v_scale2(v16 x, v16 n) {
    return v_join(half_scale2(x.a, n.a), half_scale2(x.b, n.b));
}

#endif

OG__INLINE v16 v_load_m(const void *p, int n) {
    return n == 16 ? v_load(p) : v_load_n(p, n);
}
OG__INLINE void v_store_m(void *p, v16 x, int n) {
    if (n == 16) v_store(p, x);
    else v_store_n(p, x, n);
}

/* The sum of all lanes by one fixed tree: l + (l+8), then + 4, + 2, + 1. */
OG__INLINE float v_sum(v16 x) {
    __m256 s = _mm256_add_ps(v_low(x), v_high(x));
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}

OG__INLINE float v_maximum(v16 x) {
    __m256 s = _mm256_max_ps(v_low(x), v_high(x));
    __m128 t = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_max_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
}

/* ---- sixteen stored elements, widened ------------------------------------------- */

OG__INLINE __m256i load_words(const void *p, int n) {
    if (n == 16) return _mm256_loadu_si256(p);
    uint16_t buf[16] = {0};
    memcpy(buf, p, (size_t)n * 2);
    return _mm256_loadu_si256((const __m256i *)buf);
}

OG__INLINE v16 widen_f16(__m256i words) {
    return v_join(_mm256_cvtph_ps(_mm256_castsi256_si128(words)),
                  _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1)));
}

/* In natural order. t is a constant where this is inlined. */
OG__INLINE v16 v_load_as(const void *p, og_dtype t, int n) {
    if (t == OG_F32) return v_load_m(p, n);
    __m256i words = load_words(p, n);
    if (t == OG_F16) return widen_f16(words);
    __m256i lo = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(words));
    __m256i hi = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(words, 1));
    return v_join(_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
                  _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16)));
}

/* In lane order: for bf16 the even elements, then the odd ones, which needs no shuffle. */
OG__INLINE v16 v_load_lanes(const void *p, og_dtype t, int n) {
    if (t != OG_BF16) return v_load_as(p, t, n);
    __m256i words = load_words(p, n);
    __m256i odd = _mm256_and_si256(words, _mm256_set1_epi32((int)0xffff0000));
    return v_join(_mm256_castsi256_ps(_mm256_slli_epi32(words, 16)), _mm256_castsi256_ps(odd));
}

/* f32 in the lane order of weights of type t. */
OG__INLINE v16 v_to_lanes(v16 x, og_dtype t) {
    if (t != OG_BF16) return x;
    __m256 even = _mm256_shuffle_ps(v_low(x), v_high(x), 0x88);
    __m256 odd = _mm256_shuffle_ps(v_low(x), v_high(x), 0xdd);
    even = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(even), 0xd8));
    odd = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(odd), 0xd8));
    return v_join(even, odd);
}

#endif
