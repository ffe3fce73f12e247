/* The dot family for one instruction set; see isa.h. Included once by each. */

/* ---- lanes along K ---------------------------------------------------------------- */

static void lanes(float *to, const float *x, int64_t width, og_dtype t) {
    int64_t i = 0;
    for (; i + 16 <= width; i += 16) v_store(to + i, v_to_lanes(v_load(x + i), t));
    if (i < width) v_store(to + i, v_to_lanes(v_load_n(x + i, (int)(width - i)), t));
}

/* How far to call ahead along one row of weights, in bytes: the processor's own prefetch
 * begins anew with each page. Two rows at a time, which several rows of x go through one
 * after another, call for the next two. Measured at K 1024 to 6144. */
#define AHEAD 1024

/* M rows of x against N rows of weights; M, N and t are constants. */
OG__INLINE void dot_block(float *out, int64_t ld, const float *x, int64_t ldx,
                          const og__weights *w, int64_t first, const int M, const int N,
                          const og_dtype t) {
    const int64_t size = t == OG_F32 ? 4 : 2;
    const int64_t whole = w->width / 16 * 16, tail = w->width - whole;
    const char *row = w->p + first * w->ld * size;
    const int64_t ahead = N == 1 ? AHEAD : N * w->ld * size;
    v16 acc[6];
#pragma GCC unroll 16
    for (int i = 0; i < M * N; i++) acc[i] = v_zero();
    for (int tap = 0; tap < w->taps; tap++) {
        const char *wp = row + tap * w->width * size;
        for (int64_t k = 0; k < whole; k += 16) {
            v16 xs[3];
#pragma GCC unroll 4
            for (int i = 0; i < M; i++) xs[i] = v_load(x + i * ldx + k);
#pragma GCC unroll 4
            for (int j = 0; j < N; j++) {
                const char *at = wp + (j * w->ld + k) * size;
                v16 b = v_load_lanes(at, t, 16);
                _mm_prefetch(at + ahead, _MM_HINT_T0);
#pragma GCC unroll 4
                for (int i = 0; i < M; i++) acc[i * N + j] = v_fma(xs[i], b, acc[i * N + j]);
            }
        }
        if (tail) {
#pragma GCC unroll 4
            for (int j = 0; j < N; j++) {
                v16 b = v_load_lanes(wp + (j * w->ld + whole) * size, t, (int)tail);
#pragma GCC unroll 4
                for (int i = 0; i < M; i++)
                    acc[i * N + j] = v_fma(v_load(x + i * ldx + whole), b, acc[i * N + j]);
            }
        }
        x += whole + (tail ? 16 : 0);
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) out[i * ld + j] = v_sum(acc[i * N + j]);
}

/* One function for each block and type: inlined into one, they would share registers. */
typedef void dot_fn(float *out, int64_t ld, const float *x, int64_t ldx,
                    const og__weights *w, int64_t first);
#define DOT_BLOCK(M, N, t)                                                       \
    static __attribute__((noinline)) void dot_##M##x##N##_##t(                   \
        float *out, int64_t ld, const float *x, int64_t ldx, const og__weights *w, \
        int64_t first) {                                                         \
        dot_block(out, ld, x, ldx, w, first, M, N, t);                           \
    }
#define DOT_BLOCKS(t)                                                            \
    DOT_BLOCK(1, 1, t) DOT_BLOCK(1, 2, t) DOT_BLOCK(2, 1, t) DOT_BLOCK(2, 2, t)  \
    DOT_BLOCK(3, 1, t) DOT_BLOCK(3, 2, t)                                        \
    static dot_fn *const dot_##t[3][2] = {{dot_1x1_##t, dot_1x2_##t},            \
                                          {dot_2x1_##t, dot_2x2_##t},            \
                                          {dot_3x1_##t, dot_3x2_##t}};
DOT_BLOCKS(OG_F32)
DOT_BLOCKS(OG_BF16)
DOT_BLOCKS(OG_F16)

static void dot(float *out, int64_t ld, const float *x, int64_t ldx, int m,
                const og__weights *w, int64_t first, int n) {
    dot_fn *const(*blocks)[2] = w->dtype == OG_BF16  ? dot_OG_BF16
                                : w->dtype == OG_F16 ? dot_OG_F16
                                                     : dot_OG_F32;
    for (int j = 0, cols; j < n; j += cols) {
        cols = n - j > 1 && m > 1 ? 2 : 1; /* one row of x: memory is the limit */
        for (int i = 0, rows; i < m; i += rows) {
            int left = m - i; /* threes, and twos where a one would be left */
            rows = left == 1 ? 1 : left == 2 || left == 4 ? 2 : 3;
            blocks[rows - 1][cols - 1](out + i * ld + j, ld, x + i * ldx, ldx, w, first + j);
        }
    }
}

/* ---- lanes along N ---------------------------------------------------------------- */

/* Transpose 8 x 8 in registers. */
OG__INLINE void transpose8(__m256 r[8]) {
    __m256 t[8], u[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

/* Half a panel: weight rows [j, j + 8) of one block of 16 channels, to 16 lane streams that
 * lie `stride` floats apart. Rows past n are zeros. */
OG__INLINE void pack_block(float *to, int64_t stride, const char *w, int64_t ld_bytes, int n,
                           int valid, const og_dtype t) {
    __m256 lo[8], hi[8];
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        v16 v = j < n ? v_load_lanes(w + j * ld_bytes, t, valid) : v_zero();
        lo[j] = v_low(v);
        hi[j] = v_high(v);
    }
    transpose8(lo);
    transpose8(hi);
#pragma GCC unroll 8
    for (int l = 0; l < 8; l++) {
        _mm256_storeu_ps(to + l * stride, lo[l]);
        _mm256_storeu_ps(to + (l + 8) * stride, hi[l]);
    }
}

OG__INLINE void pack_typed(float *panel, const og__weights *w, int64_t first, int n,
                           const og__chunk *c, const og_dtype t) {
    const int64_t size = t == OG_F32 ? 4 : 2, stride = c->taps * c->blocks * OG__PANEL;
    for (int tap = c->tap; tap < c->tap + c->taps; tap++)
        for (int64_t b = c->block; b < c->block + c->blocks; b++) {
            int64_t left = w->width - b * 16;
            const char *p = w->p + (first * w->ld + tap * w->width + b * 16) * size;
            int valid = left < 16 ? (int)left : 16;
            pack_block(panel, stride, p, w->ld * size, n, valid, t);
            pack_block(panel + 8, stride, p + 8 * w->ld * size, w->ld * size, n - 8, valid, t);
            panel += OG__PANEL;
        }
}

static void pack(float *panel, const og__weights *w, int64_t first, int n,
                 const og__chunk *c) {
    switch (w->dtype) {
    case OG_BF16: pack_typed(panel, w, first, n, c, OG_BF16); break;
    case OG_F16: pack_typed(panel, w, first, n, c, OG_F16); break;
    default: pack_typed(panel, w, first, n, c, OG_F32); break;
    }
}

/* Lanes in the order in which the tree of v_sum meets them. */
static const unsigned char tree_order[16] = {0, 8, 4, 12, 2, 10, 6, 14,
                                             1, 9, 5, 13, 3, 11, 7, 15};

/* Where lane l lies within a block of 16 activations. */
OG__INLINE int lane_offset(int l, og_dtype t) {
    return t != OG_BF16 ? l : l < 8 ? 2 * l : 2 * (l - 8) + 1;
}

/* One lane of one chunk: acc += x[row][block * 16 + offset] * panel. */
OG__INLINE void gemm_lane(v16 *acc, const float *const *rows, const float *panel,
                          const og__chunk *c, int offset, const int M) {
    for (int tap = 0; tap < c->taps; tap++, rows += TILE) {
        const float *x[TILE];
#pragma GCC unroll 16
        for (int i = 0; i < M; i++) x[i] = rows[i] + offset;
        for (int64_t b = 0; b < c->blocks; b++, panel += OG__PANEL) {
            v16 w = v_load(panel);
#pragma GCC unroll 16
            for (int i = 0; i < M; i++) acc[i] = v_fma(v_set(x[i][b * 16]), w, acc[i]);
        }
    }
}

/* Call for a sixteenth of the next tile's activations: they come from the third cache or
 * from memory, and one pass over a lane is enough to hide that. Of several taps only the
 * last has rows that no earlier tile has touched. */
OG__INLINE void prefetch_tile(const float *const *next, const og__chunk *c, int step,
                              const int M) {
    next += (c->tap + c->taps - 1) * TILE;
    for (int64_t b = c->block + step; b < c->block + c->blocks; b += 16)
        for (int i = 0; i < M; i++)
            _mm_prefetch((const char *)(next[i] + b * 16), _MM_HINT_T1);
}

OG__INLINE void gemm_tile(float *out, float *part, const float *const *rows,
                          const float *const *next, const float *panel, const og__chunk *c,
                          og_dtype t, int begins, int ends, const int M) {
    const int64_t slice = c->taps * c->blocks * OG__PANEL;
    const int area = TILE * OG__PANEL;
    float stack[4][TILE * OG__PANEL];
    const float *from[TILE * OG__TAPS_MAX];
    for (int i = 0; i < c->taps * TILE; i++) from[i] = rows[c->tap * TILE + i] + c->block * 16;
    for (int step = 0; step < 16; step++) {
        int l = tree_order[step];
        float *p = part + l * area;
        if (next) prefetch_tile(next, c, step, M);
        v16 acc[TILE];
#pragma GCC unroll 16
        for (int i = 0; i < M; i++) acc[i] = begins ? v_zero() : v_load(p + i * OG__PANEL);
        gemm_lane(acc, from, panel + l * slice, c, lane_offset(l, t), M);
        int level = 0;
        for (; ends && (step >> level & 1); level++) {
#pragma GCC unroll 16
            for (int i = 0; i < M; i++)
                acc[i] = v_add(v_load(stack[level] + i * OG__PANEL), acc[i]);
        }
        float *to = !ends ? p : level < 4 ? stack[level] : out;
#pragma GCC unroll 16
        for (int i = 0; i < M; i++) v_store(to + i * OG__PANEL, acc[i]);
    }
}

static void gemm(float *out, float *part, const float *const *rows, const float *const *next,
                 int m, const float *panel, const og__chunk *c, og_dtype t, int begins,
                 int ends) {
    if (m > TILE / 2) gemm_tile(out, part, rows, next, panel, c, t, begins, ends, TILE);
    else gemm_tile(out, part, rows, next, panel, c, t, begins, ends, TILE / 2);
}

OG__INLINE void epilogue_as(const og__block *b, const og__epi *e, const og_act act) {
    for (int64_t r = 0; r < b->rows; r++) {
        float *y = b->y + r * b->ldy;
        const float *raw = b->raw + r * b->ldraw;
        const float *add = b->residual ? b->residual + r * b->ldr : NULL;
        for (int64_t i = 0; i < b->n; i += 16) {
            int m = STEP(i, b->n);
            v16 v = v_load_m(raw + i, m);
            if (e->bias) v = v_add(v, v_load_m(e->bias + b->from + i, m));
            v = v_act(v, act);
            if (e->scale) v = v_mul(v, v_load_m(e->scale + b->from + i, m));
            if (add) v = v_add(v, v_load_m(add + i, m));
            v_store_m(y + i, v, m);
        }
    }
}

static void epilogue(const og__block *b, const og__epi *e) {
#define EPILOGUE_CASE(a) \
    case a: epilogue_as(b, e, a); break;
    switch (e->act) {
        EPILOGUE_CASE(OG_ACT_NONE)
        EPILOGUE_CASE(OG_ACT_SILU)
        EPILOGUE_CASE(OG_ACT_GELU)
        EPILOGUE_CASE(OG_ACT_GELU_TANH)
        EPILOGUE_CASE(OG_ACT_RELU)
        EPILOGUE_CASE(OG_ACT_ELU)
        EPILOGUE_CASE(OG_ACT_TANH)
        EPILOGUE_CASE(OG_ACT_SIGMOID)
        EPILOGUE_CASE(OG_ACT_EXP)
    }
#undef EPILOGUE_CASE
}
