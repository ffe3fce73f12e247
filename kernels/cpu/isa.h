/* The kernels that exist once per instruction set, behind one table.
 *
 * The dot family. An output is sum over taps, over blocks of 16 channels, of x * w, in 16
 * lanes with one accumulator each, then one fixed tree (v_sum). The last block of a tap is
 * padded with zeros. A linear has one tap. The same sum is computed in two ways:
 *
 *   dot   lanes run along K: weights are read where they lie. For few rows.
 *   gemm  lanes run along N: for each of the 16 residues of K the products are added in the
 *         same order, and the 16 partial sums are merged by the same tree. Weights are
 *         packed first; rows of x are read where they lie. For many rows.
 *
 * Lane order: for bf16 weights lane l < 8 is element 2l of a block of 16, lane l >= 8 is
 * element 2(l-8)+1; for others lane l is element l.
 */
#ifndef OG_CPU_ISA_H
#define OG_CPU_ISA_H

#include "kernels/ops.h"

#define OG__LANES 16
#define OG__PANEL 16 /* columns of a packed panel of weights */

/* Weights as the dot family sees them: row j is taps runs of `width` elements. */
typedef struct og__weights {
    const char *p;
    og_dtype dtype;
    int64_t ld;    /* elements from row to row */
    int64_t width; /* channels of a tap */
    int taps;
} og__weights;

static inline int64_t og__blocks(int64_t width) {
    return (width + OG__LANES - 1) / OG__LANES;
}

#define OG__TAPS_MAX 8 /* taps of one chunk */

/* A piece of the K loop whose activations stay in the first cache: whole taps
 * [tap, tap + taps) when blocks is all of a tap, else blocks of one tap. */
typedef struct og__chunk {
    int tap, taps;
    int64_t block, blocks;
} og__chunk;

/* bias, activation, scale, residual; each array may be NULL. */
typedef struct og__epi {
    const float *bias, *scale;
    og_act act;
} og__epi;

/* Sums on their way to y = epilogue(raw): columns [from, from + n) of some rows. residual
 * may be y or NULL. */
typedef struct og__block {
    float *y;
    const float *raw, *residual;
    int64_t ldy, ldraw, ldr, rows, from, n;
} og__block;

typedef struct og__isa {
    const char *name;
    int tile; /* rows of a gemm tile */

    /* x, zero padded per tap, in the lane order of t. */
    void (*lanes)(float *to, const float *x, int64_t width, og_dtype t);
    /* out[i * ld + j] = row i of x (in lanes, ldx apart) . weight row j; i < m, j < n */
    void (*dot)(float *out, int64_t ld, const float *x, int64_t ldx, int m,
                const og__weights *w, int64_t first, int n);
    /* Weight rows [first, first + n), n <= 16, of one chunk. */
    void (*pack)(float *panel, const og__weights *w, int64_t first, int n,
                 const og__chunk *c);
    /* One tile of m <= tile rows by 16 columns over one chunk. rows[tap * tile + i] points
     * to the channels of row i; next is the same for the tile after it, or NULL. part holds
     * 16 * tile * 16 partial sums: read unless the chunk begins the sum, written unless it
     * ends it; then out (tile * 16) is written. */
    void (*gemm)(float *out, float *part, const float *const *rows,
                 const float *const *next, int m, const float *panel, const og__chunk *c,
                 og_dtype t, int begins, int ends);
    void (*epilogue)(const og__block *b, const og__epi *e);

    void (*unary)(float *y, const float *x, int64_t n, og_act act);
    void (*binary)(float *y, const float *a, const float *b, int64_t n, og_binary op);
    void (*scaled_add)(float *y, const float *a, const float *b, const float *scale,
                       int64_t n);
    void (*snake)(float *y, const float *x, const float *alpha, const float *inv_beta,
                  int64_t n);
    void (*clamp)(float *y, const float *x, int64_t n, float lo, float hi);
    void (*rms_norm)(float *y, const float *x, const float *w, int64_t n, float eps);
    void (*layer_norm)(float *y, const float *x, const float *w, const float *b, int64_t n,
                       float eps);
    void (*widen)(float *y, const void *x, og_dtype t, int64_t n);
    void (*add_widened)(float *y, const void *x, og_dtype t, int64_t n);
    /* Depthwise: y[c] = bias[c] + sum over taps of rows[j][c] * w[j * n + c]. */
    void (*depthwise)(float *y, const float *const *rows, const float *w, const float *bias,
                      int taps, int64_t n);

    /* Per head: rms_norm by w unless NULL, then rotation of halves. */
    void (*norm_rope)(float *x, const float *w, float eps, const float *cos,
                      const float *sin, int64_t dim);
    /* s[j] = q . k_j * scale for n keys `stride` elements apart; returns the maximum of
     * them and of max. */
    float (*scores)(float *s, const float *q, const void *k, og_dtype t, int64_t stride,
                    int64_t n, int64_t dim, float scale, float max);
    /* s[j] = e^(s[j] - max); returns their sum. */
    float (*softmax)(float *s, int64_t n, float max);
    /* y += sum over j ascending of s[j] * v_j. */
    void (*mix)(float *y, const float *s, const void *v, og_dtype t, int64_t stride,
                int64_t n, int64_t dim);
} og__isa;

extern const og__isa og__isa_avx2;
extern const og__isa og__isa_avx512;

#endif
