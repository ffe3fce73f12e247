/* Elementary functions of our own, so that bits do not depend on which variant the C library
 * picks for this processor. Arguments are reduced, then a Taylor polynomial is summed that is
 * long enough for double; after rounding to f32 the results are within 1 ulp.
 *
 * Two families: double (og__exp ...) for the oracle and for tables, and f32 with one rounding
 * per operation and no fused multiply-add (og__expf ...) for the sampler, which every backend
 * must follow to the bit.
 */
#ifndef OG_KERNELS_MATH_H
#define OG_KERNELS_MATH_H

#include <stdint.h>
#include <string.h>

#define OG__LN2_HI 0x1.62e42fee00000p-1 /* 33 bits: n * hi is exact for |n| < 2^20 */
#define OG__LN2_LO 0x1.a39ef35793c76p-33
#define OG__PIO2_1 0x1.921fb54400000p+0 /* pi/2 in three parts of 33, 33 and 53 bits */
#define OG__PIO2_2 0x1.0b4611a600000p-34
#define OG__PIO2_3 0x1.3198a2e037073p-69

static inline double og__round(double x) {
    const double magic =
        6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer */
    return (x + magic) - magic;
}

static inline double og__pow2(int n) {
    uint64_t u = (uint64_t)(n + 1023) << 52;
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

static inline double og__exp(double x) {
    if (x != x) return x;
    if (x > 709.0) return (double)__builtin_inff();
    if (x < -708.0) return 0.0;
    double n = og__round(x * 1.4426950408889634), p = 1.0;
    double r = (x - n * OG__LN2_HI) - n * OG__LN2_LO;
    for (int i = 14; i > 0; i--) p = 1.0 + p * r / i;
    return p * og__pow2((int)n);
}

static inline double og__log(double x) {
    if (!(x > 0.0))
        return x == 0.0 ? -(double)__builtin_inff() : (double)__builtin_nanf("");
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    int e = (int)(u >> 52) - 1023;
    u = (u & 0x000fffffffffffffu) | (uint64_t)1023 << 52;
    double m;
    memcpy(&m, &u, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    double s = (m - 1.0) / (m + 1.0), s2 = s * s, p = 0.0;
    for (int i = 23; i > 0; i -= 2) p = p * s2 + 1.0 / i;
    return e * OG__LN2_HI + (2.0 * s * p + e * OG__LN2_LO);
}

/* sin (quarter 0) or cos (quarter 1) of x, |x| < 2^20 or so. */
static inline double og__sincos(double x, int quarter) {
    double n = og__round(x * 0.6366197723675814);
    double r = ((x - n * OG__PIO2_1) - n * OG__PIO2_2) - n * OG__PIO2_3, r2 = r * r;
    int q = (int)((int64_t)n + quarter) & 3;
    double p = 1.0;
    if (q & 1) {
        for (int i = 18; i > 0; i -= 2) p = 1.0 - p * r2 / (i * (i - 1));
    } else {
        for (int i = 19; i > 1; i -= 2) p = 1.0 - p * r2 / (i * (i - 1));
        p *= r;
    }
    return q & 2 ? -p : p;
}

static inline double og__sin(double x) {
    return og__sincos(x, 0);
}

static inline double og__cos(double x) {
    return og__sincos(x, 1);
}

static inline double og__tanh(double x) {
    double a = x < 0 ? -x : x;
    if (a < 1e-3) return x * (1.0 - x * x / 3.0);
    double e = og__exp(-2.0 * a), t = (1.0 - e) / (1.0 + e);
    return x < 0 ? -t : t;
}

/* e^x - 1 without cancellation near 0. */
static inline double og__expm1(double x) {
    if (x > -1e-3 && x < 1e-3) return x * (1.0 + x * (0.5 + x * (1.0 / 6.0 + x / 24.0)));
    return og__exp(x) - 1.0;
}

/* Maclaurin series with positive terms below 3, continued fraction of erfc above
 * (Abramowitz and Stegun 7.1.6, 7.1.14). */
static inline double og__erf(double x) {
    double a = x < 0 ? -x : x, y;
    if (x != x) return x;
    if (a > 6.0) {
        y = 1.0;
    } else if (a < 3.0) {
        double term = a, sum = a;
        for (int i = 1; term > sum * 1e-17; i++) {
            term *= 2.0 * a * a / (2 * i + 1);
            sum += term;
        }
        y = 1.1283791670955126 * og__exp(-a * a) * sum;
    } else {
        double f = a;
        for (int i = 60; i > 0; i--) f = a + 0.5 * i / f;
        y = 1.0 - og__exp(-a * a) / (1.7724538509055159 * f);
    }
    return x < 0 ? -y : y;
}

/* e^x for x <= 0; 0 below -87. */
static inline float og__expf(float x) {
    if (!(x > -87.0f)) return 0.0f;
    float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
    float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t u = (uint32_t)((int)n + 127) << 23;
    float scale;
    memcpy(&scale, &u, sizeof scale);
    return p * scale;
}

/* Natural logarithm of a positive normal number. */
static inline float og__logf(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    int e = (int)(u >> 23) - 127;
    u = (u & 0x007fffffu) | 0x3f800000u;
    float m;
    memcpy(&m, &u, sizeof m);
    if (m > 1.41421356f) {
        m *= 0.5f;
        e++;
    }
    float s = (m - 1.0f) / (m + 1.0f), s2 = s * s;
    float p = 1.0f / 11.0f;
    p = p * s2 + 1.0f / 9.0f;
    p = p * s2 + 1.0f / 7.0f;
    p = p * s2 + 1.0f / 5.0f;
    p = p * s2 + 1.0f / 3.0f;
    p = p * s2 + 1.0f;
    return (float)e * 0.693359375f + (2.0f * s * p + (float)e * -2.12194440e-4f);
}

#endif
