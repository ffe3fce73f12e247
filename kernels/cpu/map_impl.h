/* Elementwise ops and norms on runs of contiguous f32, for one instruction set; see isa.h.
 * A tail takes the body's path with masked loads and stores. */

#define STEP(i, n) ((n) - (i) < 16 ? (int)((n) - (i)) : 16)

OG__INLINE void unary_as(float *y, const float *x, int64_t n, const og_act act) {
    for (int64_t i = 0; i < n; i += 16) {
        int m = STEP(i, n);
        v_store_m(y + i, v_act(v_load_m(x + i, m), act), m);
    }
}

static void unary(float *y, const float *x, int64_t n, og_act act) {
#define UNARY_CASE(a)                                                                    \
    case a: unary_as(y, x, n, a); break;
    switch (act) {
        UNARY_CASE(OG_ACT_NONE)
        UNARY_CASE(OG_ACT_SILU)
        UNARY_CASE(OG_ACT_GELU)
        UNARY_CASE(OG_ACT_GELU_TANH)
        UNARY_CASE(OG_ACT_RELU)
        UNARY_CASE(OG_ACT_ELU)
        UNARY_CASE(OG_ACT_TANH)
        UNARY_CASE(OG_ACT_SIGMOID)
        UNARY_CASE(OG_ACT_EXP)
    }
#undef UNARY_CASE
}

OG__INLINE v16 v_binary(v16 a, v16 b, og_binary op) {
    switch (op) {
    case OG_ADD: return v_add(a, b);
    case OG_SUB: return v_sub(a, b);
    case OG_MUL: return v_mul(a, b);
    case OG_DIV: return v_div(a, b);
    }
    return a;
}

static void binary(float *y, const float *a, const float *b, int64_t n, og_binary op) {
    for (int64_t i = 0; i < n; i += 16) {
        int m = STEP(i, n);
        v_store_m(y + i, v_binary(v_load_m(a + i, m), v_load_m(b + i, m), op), m);
    }
}

static void scaled_add(float *y, const float *a, const float *b, const float *scale,
                       int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        int m = STEP(i, n);
        v16 v = v_load_m(b + i, m);
        if (scale) v = v_mul(v, v_load_m(scale + i, m));
        v_store_m(y + i, v_add(v_load_m(a + i, m), v), m);
    }
}

static void snake(float *y, const float *x, const float *alpha, const float *inv_beta,
                  int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        int m = STEP(i, n);
        v16 v = v_load_m(x + i, m), s = v_sin2(v_mul(v, v_load_m(alpha + i, m)));
        v_store_m(y + i, v_fma(s, v_load_m(inv_beta + i, m), v), m);
    }
}

static void clamp(float *y, const float *x, int64_t n, float lo, float hi) {
    for (int64_t i = 0; i < n; i += 16) {
        int m = STEP(i, n);
        v_store_m(y + i, v_max(v_set(lo), v_min(v_set(hi), v_load_m(x + i, m))), m);
    }
}

static void rms_norm(float *y, const float *x, const float *w, int64_t n, float eps) {
    v16 sum = v_zero();
    for (int64_t i = 0; i < n; i += 16) {
        v16 v = v_load_m(x + i, STEP(i, n));
        sum = v_fma(v, v, sum);
    }
    v16 scale = v_set(1.0f / __builtin_sqrtf(v_sum(sum) / (float)n + eps));
    for (int64_t i = 0; i < n; i += 16) {
        int m = STEP(i, n);
        v_store_m(y + i, v_mul(v_mul(v_load_m(x + i, m), scale), v_load_m(w + i, m)), m);
    }
}

static void layer_norm(float *y, const float *x, const float *w, const float *b,
                       int64_t n, float eps) {
    v16 sum = v_zero(), squares = v_zero();
    for (int64_t i = 0; i < n; i += 16) sum = v_add(sum, v_load_m(x + i, STEP(i, n)));
    float mean = v_sum(sum) / (float)n;
    for (int64_t i = 0; i < n; i += 16) {
        int m = STEP(i, n);
        /* absent lanes hold the mean, so that they add nothing */
        v16 d = v_sub(v_load_m(x + i, m), v_set(mean));
        if (m < 16) {
            float buf[16] = {0};
            v_store_n(buf, d, m);
            d = v_load(buf);
        }
        squares = v_fma(d, d, squares);
    }
    float scale = 1.0f / __builtin_sqrtf(v_sum(squares) / (float)n + eps);
    for (int64_t i = 0; i < n; i += 16) {
        int m = STEP(i, n);
        v16 v = v_mul(v_sub(v_load_m(x + i, m), v_set(mean)), v_set(scale));
        v = v_mul(v, v_load_m(w + i, m));
        if (b) v = v_add(v, v_load_m(b + i, m));
        v_store_m(y + i, v, m);
    }
}

OG__INLINE void widen_as(float *y, const char *x, int64_t n, int add, const og_dtype t) {
    for (int64_t i = 0; i < n; i += 16) {
        int m = STEP(i, n);
        v16 v = v_load_as(x + i * (t == OG_F32 ? 4 : 2), t, m);
        if (add) v = v_add(v_load_m(y + i, m), v);
        v_store_m(y + i, v, m);
    }
}

OG__INLINE void widen_any(float *y, const void *x, og_dtype t, int64_t n, const int add) {
    switch (t) {
    case OG_BF16: widen_as(y, x, n, add, OG_BF16); break;
    case OG_F16: widen_as(y, x, n, add, OG_F16); break;
    default: widen_as(y, x, n, add, OG_F32); break;
    }
}

static void widen(float *y, const void *x, og_dtype t, int64_t n) {
    widen_any(y, x, t, n, 0);
}

static void add_widened(float *y, const void *x, og_dtype t, int64_t n) {
    widen_any(y, x, t, n, 1);
}

static void depthwise(float *y, const float *const *rows, const float *w,
                      const float *bias, int taps, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        int m = STEP(i, n);
        v16 v = v_zero();
        for (int j = 0; j < taps; j++)
            v = v_fma(v_load_m(rows[j] + i, m), v_load_m(w + j * n + i, m), v);
        if (bias) v = v_add(v, v_load_m(bias + i, m));
        v_store_m(y + i, v, m);
    }
}
