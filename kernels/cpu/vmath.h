/* Elementary functions on sixteen lanes, f32 with fused multiply-adds: the same bits on AVX2
 * and AVX-512. Errors are relative to double: below 2 ulp for exp, sin^2 and sigmoid, below
 * 4 ulp for erf and tanh. */
#ifndef OG_CPU_VMATH_H
#define OG_CPU_VMATH_H

#include "kernels/cpu/vec.h"
#include "kernels/ops.h"

#define LN2_HI 0.693359375f /* 9 bits: n * hi is exact */
#define LN2_LO (-2.12194440e-4f)

/* e^r for |r| <= ln 2 / 2, Taylor to degree 8. */
OG__INLINE v16 exp_poly(v16 r) {
    v16 p = v_set(1.0f / 40320.0f);
    p = v_fma(p, r, v_set(1.0f / 5040.0f));
    p = v_fma(p, r, v_set(1.0f / 720.0f));
    p = v_fma(p, r, v_set(1.0f / 120.0f));
    p = v_fma(p, r, v_set(1.0f / 24.0f));
    p = v_fma(p, r, v_set(1.0f / 6.0f));
    p = v_fma(p, r, v_set(0.5f));
    p = v_fma(p, r, v_set(1.0f));
    return v_fma(p, r, v_set(1.0f));
}

OG__INLINE v16 v_exp(v16 x) {
    x = v_max(v_set(-110.0f), v_min(v_set(89.0f), x)); /* this order keeps NaN */
    v16 n = v_round(v_mul(x, v_set(1.44269504f)));
    v16 r = v_fnma(n, v_set(LN2_HI), x);
    r = v_fnma(n, v_set(LN2_LO), r);
    return v_scale2(exp_poly(r), n);
}

/* sin(x)^2: the period is pi and the sign does not matter. */
OG__INLINE v16 v_sin2(v16 x) {
    v16 n = v_round(v_mul(x, v_set(0.318309886f)));
    v16 r = v_fnma(n, v_set(3.140625f), x); /* pi in three parts */
    r = v_fnma(n, v_set(9.67502593994140625e-4f), r);
    r = v_fnma(n, v_set(1.509957990978376432e-7f), r);
    v16 r2 = v_mul(r, r), p = v_set(1.0f / 6227020800.0f);
    p = v_fma(p, r2, v_set(-1.0f / 39916800.0f));
    p = v_fma(p, r2, v_set(1.0f / 362880.0f));
    p = v_fma(p, r2, v_set(-1.0f / 5040.0f));
    p = v_fma(p, r2, v_set(1.0f / 120.0f));
    p = v_fma(p, r2, v_set(-1.0f / 6.0f));
    v16 s = v_fma(v_mul(p, r2), r, r);
    return v_mul(s, s);
}

OG__INLINE v16 v_sigmoid(v16 x) {
    v16 e = v_exp(v_sub(v_zero(), x));
    return v_div(v_set(1.0f), v_add(v_set(1.0f), e));
}

OG__INLINE v16 v_expm1(v16 x) {
    v16 p = v_set(1.0f / 40320.0f);
    p = v_fma(p, x, v_set(1.0f / 5040.0f));
    p = v_fma(p, x, v_set(1.0f / 720.0f));
    p = v_fma(p, x, v_set(1.0f / 120.0f));
    p = v_fma(p, x, v_set(1.0f / 24.0f));
    p = v_fma(p, x, v_set(1.0f / 6.0f));
    p = v_fma(p, x, v_set(0.5f));
    p = v_fma(v_mul(p, x), x, x);
    return v_pick(v_lt(v_abs(x), v_set(0.3f)), p, v_sub(v_exp(x), v_set(1.0f)));
}

/* 1 - 2 / (e^2|x| + 1); by e^2x - 1 near 0. */
OG__INLINE v16 v_tanh(v16 x) {
    v16 a = v_min(v_set(10.0f), v_abs(x)), one = v_set(1.0f), two = v_set(2.0f);
    v16 m = v_expm1(v_mul(two, a));
    v16 t = v_div(m, v_add(m, two));
    t = v_pick(v_lt(v_set(9.1f), a), one, t);
    return v_copysign(t, x);
}

/* Chebyshev interpolants of our own: erf(x)/x in x^2 on [0, 1], and -log(erfc(x)) on [1, 4],
 * where erf is 1 - e^-q; 1 from 4 on. */
OG__INLINE v16 v_erf(v16 x) {
    v16 a = v_min(v_set(4.0f), v_abs(x)), t = v_mul(a, a);
    v16 p = v_set(-9.667046242679508e-06f);
    p = v_fma(p, t, v_set(0.00011265959551639543f));
    p = v_fma(p, t, v_set(-0.0008484080465982815f));
    p = v_fma(p, t, v_set(0.00522103181078774f));
    p = v_fma(p, t, v_set(-0.026865430728073802f));
    p = v_fma(p, t, v_set(0.11283782495227555f));
    p = v_fma(p, t, v_set(-0.37612638468026405f));
    p = v_mul(a, v_fma(p, t, v_set(1.1283791670615426f)));
    v16 u = v_mul(v_sub(a, v_set(2.5f)), v_set(1.0f / 1.5f));
    v16 q = v_set(-4.1958400119470854e-05f);
    q = v_fma(q, u, v_set(0.00022749950396258907f));
    q = v_fma(q, u, v_set(-0.0008803970815181274f));
    q = v_fma(q, u, v_set(0.0031903054128813815f));
    q = v_fma(q, u, v_set(-0.010961849217608627f));
    q = v_fma(q, u, v_set(0.03664757804490174f));
    q = v_fma(q, u, v_set(2.12376083312395f));
    q = v_fma(q, u, v_set(8.029021011336711f));
    q = v_fma(q, u, v_set(7.806815272727262f));
    q = v_sub(v_set(1.0f), v_exp(v_sub(v_zero(), q)));
    return v_copysign(v_pick(v_lt(a, v_set(1.0f)), p, q), x);
}

OG__INLINE v16 v_gelu(v16 x) {
    v16 e = v_erf(v_mul(x, v_set(0.70710678118654752f)));
    return v_mul(v_mul(v_set(0.5f), x), v_add(v_set(1.0f), e));
}

OG__INLINE v16 v_gelu_tanh(v16 x) {
    v16 x2 = v_mul(x, x), u = v_fma(v_mul(x2, v_set(0.044715f)), x, x);
    v16 t = v_tanh(v_mul(v_set(0.7978845608028654f), u));
    return v_mul(v_mul(v_set(0.5f), x), v_add(v_set(1.0f), t));
}

/* act is a constant where this is inlined. */
OG__INLINE v16 v_act(v16 x, og_act act) {
    switch (act) {
    case OG_ACT_NONE: return x;
    case OG_ACT_SILU: return v_mul(x, v_sigmoid(x));
    case OG_ACT_GELU: return v_gelu(x);
    case OG_ACT_GELU_TANH: return v_gelu_tanh(x);
    case OG_ACT_RELU: return v_max(v_zero(), x);
    case OG_ACT_ELU: return v_pick(v_lt(v_zero(), x), x, v_expm1(x));
    case OG_ACT_TANH: return v_tanh(x);
    case OG_ACT_SIGMOID: return v_sigmoid(x);
    case OG_ACT_EXP: return v_exp(x);
    }
    return x;
}

#endif
