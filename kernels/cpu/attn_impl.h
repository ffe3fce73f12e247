/* Attention over keys in pages, for one instruction set; see isa.h. */

static void norm_rope(float *x, const float *w, float eps, const float *cos,
                      const float *sin, int64_t dim) {
    int64_t half = dim / 2;
    if (w) rms_norm(x, x, w, dim, eps);
    for (int64_t i = 0; i < half; i += 16) {
        int m = STEP(i, half);
        v16 a = v_load_m(x + i, m), b = v_load_m(x + half + i, m);
        v16 c = v_load_m(cos + i, m), s = v_load_m(sin + i, m);
        v_store_m(x + i, v_sub(v_mul(a, c), v_mul(b, s)), m);
        v_store_m(x + half + i, v_add(v_mul(b, c), v_mul(a, s)), m);
    }
}

/* Scores of N keys, N and t constant. */
OG__INLINE void score_block(float *s, const float *q, const char *k, int64_t stride,
                            int64_t dim, float scale, const int N, const og_dtype t) {
    const int64_t size = t == OG_F32 ? 4 : 2;
    v16 acc[4];
#pragma GCC unroll 4
    for (int j = 0; j < N; j++) acc[j] = v_zero();
    for (int64_t i = 0; i < dim; i += 16) {
        int m = STEP(i, dim);
        v16 a = v_load_m(q + i, m);
#pragma GCC unroll 4
        for (int j = 0; j < N; j++)
            acc[j] = v_fma(a, v_load_as(k + (j * stride + i) * size, t, m), acc[j]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < N; j++) s[j] = v_sum(acc[j]) * scale;
}

OG__INLINE float scores_as(float *s, const float *q, const char *k, int64_t stride,
                           int64_t n, int64_t dim, float scale, float max,
                           const og_dtype t) {
    const int64_t size = t == OG_F32 ? 4 : 2;
    int64_t j = 0;
    for (; j + 4 <= n; j += 4)
        score_block(s + j, q, k + j * stride * size, stride, dim, scale, 4, t);
    for (; j < n; j++)
        score_block(s + j, q, k + j * stride * size, stride, dim, scale, 1, t);
    for (j = 0; j < n; j++) max = s[j] > max ? s[j] : max;
    return max;
}

static float scores(float *s, const float *q, const void *k, og_dtype t, int64_t stride,
                    int64_t n, int64_t dim, float scale, float max) {
    switch (t) {
    case OG_BF16: return scores_as(s, q, k, stride, n, dim, scale, max, OG_BF16);
    case OG_F16: return scores_as(s, q, k, stride, n, dim, scale, max, OG_F16);
    default: return scores_as(s, q, k, stride, n, dim, scale, max, OG_F32);
    }
}

static float softmax(float *s, int64_t n, float max) {
    v16 sum = v_zero();
    for (int64_t i = 0; i < n; i += 16) {
        int m = STEP(i, n);
        v_store_m(s + i, v_exp(v_sub(v_load_m(s + i, m), v_set(max))), m);
        sum = v_add(sum, v_load_m(s + i, m));
    }
    return v_sum(sum);
}

/* N blocks of 16 values over all keys. */
OG__INLINE void mix_block(float *y, const float *s, const char *v, int64_t stride,
                          int64_t n, const int N, int m, const og_dtype t) {
    const int64_t size = t == OG_F32 ? 4 : 2;
    v16 acc[4];
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) acc[i] = v_load_m(y + i * 16, m);
    for (int64_t j = 0; j < n; j++) {
        v16 p = v_set(s[j]);
#pragma GCC unroll 4
        for (int i = 0; i < N; i++)
            acc[i] = v_fma(p, v_load_as(v + (j * stride + i * 16) * size, t, m), acc[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) v_store_m(y + i * 16, acc[i], m);
}

OG__INLINE void mix_as(float *y, const float *s, const char *v, int64_t stride, int64_t n,
                       int64_t dim, const og_dtype t) {
    const int64_t size = t == OG_F32 ? 4 : 2;
    int64_t i = 0;
    for (; i + 64 <= dim; i += 64) mix_block(y + i, s, v + i * size, stride, n, 4, 16, t);
    for (; i < dim; i += 16)
        mix_block(y + i, s, v + i * size, stride, n, 1, STEP(i, dim), t);
}

static void mix(float *y, const float *s, const void *v, og_dtype t, int64_t stride,
                int64_t n, int64_t dim) {
    switch (t) {
    case OG_BF16: mix_as(y, s, v, stride, n, dim, OG_BF16); break;
    case OG_F16: mix_as(y, s, v, stride, n, dim, OG_F16); break;
    default: mix_as(y, s, v, stride, n, dim, OG_F32); break;
    }
}
