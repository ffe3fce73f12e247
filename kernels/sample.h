/* The arithmetic of sampling, shared to the bit by every backend (CUDA spells the same with
 * round-to-nearest intrinsics). x are the logits after penalties and bans, max their maximum:
 *
 *   z_i    = (x_i - max) / temperature          f32
 *   top_k  keeps z_i >= the k-th largest z
 *   e_i    = og__expf(z_i), mass_i = floor(e_i * 2^40)
 *   top_p  with M the sum of masses kept so far and L = floor((1 - top_p) * M) in double:
 *          in ascending order of z, equal ones from the highest index down, an element is
 *          dropped while the running sum, its own mass included, is <= L; the last stays
 *   min_p  keeps e_i >= min_p
 *   score  = z_i + (-log(-log(u_i))), the first maximum is drawn
 *   u_i    = (word >> 9 + 0.5) * 2^-23, word = philox(key = seed lo, hi;
 *            counter = i / 4, count lo, codebook, stage ^ count hi)[i % 4]
 *
 * NaN logits count as -inf. Without a finite maximum the first maximum is taken.
 */
#ifndef OG_KERNELS_SAMPLE_H
#define OG_KERNELS_SAMPLE_H

#include "kernels/math.h"
#include "kernels/ops.h"

static inline uint64_t og__sample_mass(float e) {
    return (uint64_t)(e * 1099511627776.0f);
}

static inline uint64_t og__sample_limit(float top_p, uint64_t total) {
    double p = top_p < 0.0f ? 0.0 : (double)top_p;
    return (uint64_t)((1.0 - p) * (double)total);
}

static inline void og__sample_words(const og_sample_row *row, int64_t index,
                                    uint32_t out[4]) {
    uint32_t key[2] = {(uint32_t)row->seed, (uint32_t)(row->seed >> 32)};
    uint32_t counter[4] = {(uint32_t)(index >> 2), (uint32_t)row->count, row->codebook,
                           row->stage ^ (uint32_t)(row->count >> 32)};
    og_philox(key, counter, out);
}

static inline float og__sample_gumbel(uint32_t word) {
    float u = ((float)(word >> 9) + 0.5f) * 0x1p-23f;
    return -og__logf(-og__logf(u));
}

static inline float og__penalise(float x, int32_t seen, const og_sample_row *row) {
    if (seen <= 0) return x;
    x = x < 0.0f ? x * row->repetition_penalty : x / row->repetition_penalty;
    return x - row->presence_penalty - row->frequency_penalty * (float)seen;
}

#endif
