/* The sampler spelled out: whole sorts instead of selections. The arithmetic is that of
 * kernels/sample.h, so other backends must draw the very same ids. */
#include "kernels/sample.h"
#include "kernels/ref/ref.h"

#include <stdlib.h>

#define NEG_INF (-__builtin_inff())

typedef struct candidate {
    float z;
    int32_t index;
} candidate;

static int ascending(const void *pa, const void *pb) {
    const candidate *a = pa, *b = pb;
    if (a->z != b->z) return a->z < b->z ? -1 : 1;
    return a->index > b->index ? -1 : a->index < b->index;
}

static void process(float *x, int64_t vocab, const og_sample_row *row,
                    const int32_t *seen, const uint8_t *allowed, const int32_t *stop,
                    int64_t n_stop) {
    for (int64_t i = 0; i < vocab; i++) {
        if (x[i] != x[i]) x[i] = NEG_INF;
        if (seen) x[i] = og__penalise(x[i], seen[i], row);
    }
    if (row->min_tokens > 0 && row->count < (uint64_t)row->min_tokens)
        for (int64_t s = 0; s < n_stop; s++)
            if (stop[s] >= 0 && stop[s] < vocab) x[stop[s]] = NEG_INF;
    for (int64_t i = 0; allowed && i < vocab; i++)
        if (!allowed[i]) x[i] = NEG_INF;
}

static int32_t first_maximum(const float *x, int64_t n) {
    int32_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = (int32_t)i;
    return best;
}

/* From the sorted candidates [from, n): how many of the smallest top_p drops. */
static int64_t drop_mass(const candidate *c, int64_t from, int64_t n, float top_p) {
    uint64_t total = 0, sum = 0;
    for (int64_t i = from; i < n; i++) total += og__sample_mass(og__expf(c[i].z));
    uint64_t limit = og__sample_limit(top_p, total);
    for (; from < n - 1; from++) {
        sum += og__sample_mass(og__expf(c[from].z));
        if (sum > limit) break;
    }
    return from;
}

static int32_t draw(float *x, int64_t vocab, const og_sample_row *row, candidate *c) {
    int32_t best = first_maximum(x, vocab);
    float max = x[best];
    if (!(row->temperature > 0.0f) || !(max > NEG_INF && max < -NEG_INF)) return best;
    for (int64_t i = 0; i < vocab; i++) {
        x[i] = (x[i] - max) / row->temperature;
        c[i] = (candidate){x[i], (int32_t)i};
    }
    qsort(c, (size_t)vocab, sizeof *c, ascending);
    int64_t from = 0;
    if (row->top_k > 0 && row->top_k < vocab) {
        float kth = c[vocab - row->top_k].z;
        while (c[from].z < kth) from++;
    }
    if (row->top_p < 1.0f) from = drop_mass(c, from, vocab, row->top_p);
    float top = NEG_INF;
    int32_t id = best;
    for (int64_t i = from; i < vocab; i++) {
        uint32_t words[4];
        if (!(c[i].z > NEG_INF) || !(og__expf(c[i].z) >= row->min_p)) continue;
        og__sample_words(row, c[i].index, words);
        float s = c[i].z + og__sample_gumbel(words[c[i].index & 3]);
        if (s > top || (s == top && c[i].index < id)) {
            top = s;
            id = c[i].index;
        }
    }
    return id;
}

int og__ref_sample(og_exec *ex, og_tensor *ids, og_tensor *logits,
                   const og_sample_row *rows, const og_tensor *history,
                   const og_tensor *allowed, const og_tensor *stop_ids) {
    int64_t vocab = logits->ne[1];
    og_tensor buf =
        og_exec_alloc(ex, OG_U8, 1, (int64_t[]){vocab * (int64_t)sizeof(candidate)});
    OG__CHECK(og__usable(ex, "sample", "scratch", &buf, NULL));
    if (og__measuring(ex)) return 0;
    int has_stop = og_tensor_present(stop_ids);
    for (int64_t r = 0; r < logits->ne[0]; r++) {
        float *x = (float *)logits->data + r * logits->stride[0];
        const int32_t *seen =
            og_tensor_present(history)
                ? (const int32_t *)history->data + r * history->stride[0]
                : NULL;
        process(x, vocab, &rows[r], seen,
                og_tensor_present(allowed) ? allowed->data : NULL,
                has_stop ? stop_ids->data : NULL, has_stop ? stop_ids->ne[0] : 0);
        ((int32_t *)ids->data)[r * ids->stride[0]] = draw(x, vocab, &rows[r], buf.data);
    }
    return 0;
}
