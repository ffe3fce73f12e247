/* The sampler of kernels/sample.h without sorting: the k-th largest value and the point where
 * the mass is reached are found by radix selection on the floats' bits. */
#include "kernels/sample.h"
#include "kernels/cpu/cpu.h"

#define NEG_INF (-__builtin_inff())

/* Unsigned key in the order of the floats; -0 counts as 0. */
static uint32_t key_of(float z) {
    uint32_t u;
    z += 0.0f;
    memcpy(&u, &z, sizeof u);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* Key of the k-th largest of z. */
static uint32_t select_count(const float *z, int64_t n, int64_t k) {
    uint32_t prefix = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t bins[256] = {0};
        for (int64_t i = 0; i < n; i++) {
            uint32_t key = key_of(z[i]);
            if ((key & mask) == prefix) bins[key >> shift & 255]++;
        }
        int b = 255;
        for (; b > 0 && bins[b] < k; b--) k -= bins[b];
        prefix |= (uint32_t)b << shift;
        mask |= 255u << shift;
    }
    return prefix;
}

/* What top_k and top_p leave: keys above `key`, and of the equal ones the first `ties`. */
typedef struct cut {
    uint32_t key;
    int64_t ties;
} cut;

static uint64_t mass_of(float z) {
    return og__sample_mass(og__expf(z));
}

/* The smallest key at which the mass of all keys up to it, those below `least` left out,
 * passes limit; *below is the mass under it. */
static uint32_t select_mass(const float *z, int64_t n, uint32_t least, uint64_t limit,
                            uint64_t *below) {
    uint32_t prefix = 0, mask = 0;
    uint64_t sum = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint64_t bins[256] = {0};
        for (int64_t i = 0; i < n; i++) {
            uint32_t key = key_of(z[i]);
            if (key >= least && (key & mask) == prefix)
                bins[key >> shift & 255] += mass_of(z[i]);
        }
        int b = 0;
        for (; b < 255 && sum + bins[b] <= limit; b++) sum += bins[b];
        prefix |= (uint32_t)b << shift;
        mask |= 255u << shift;
    }
    *below = sum;
    return prefix;
}

static cut cut_mass(const float *z, int64_t n, uint32_t least, float top_p) {
    uint64_t total = 0, below;
    int64_t equal = 0;
    for (int64_t i = 0; i < n; i++)
        if (key_of(z[i]) >= least) total += mass_of(z[i]);
    uint64_t limit = og__sample_limit(top_p, total);
    if (limit >= total)
        return (cut){key_of(0.0f), 1}; /* only the maximum, z = 0, stays */
    cut c = {select_mass(z, n, least, limit, &below), 0};
    float value = 0.0f;
    for (int64_t i = 0; i < n; i++)
        if (key_of(z[i]) == c.key) {
            value = z[i];
            equal++;
        }
    c.ties = equal - (int64_t)((limit - below) / mass_of(value));
    return c;
}

static int32_t first_maximum(const float *x, int64_t n) {
    int32_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = (int32_t)i;
    return best;
}

static void process(float *x, int64_t vocab, const og_sample_row *row,
                    const int32_t *seen, const uint8_t *allowed, const int32_t *stop,
                    int64_t n_stop) {
    for (int64_t i = 0; i < vocab; i++)
        if (x[i] != x[i]) x[i] = NEG_INF;
    for (int64_t i = 0; seen && i < vocab; i++)
        if (seen[i] > 0) x[i] = og__penalise(x[i], seen[i], row);
    if (row->min_tokens > 0 && row->count < (uint64_t)row->min_tokens)
        for (int64_t s = 0; s < n_stop; s++)
            if (stop[s] >= 0 && stop[s] < vocab) x[stop[s]] = NEG_INF;
    for (int64_t i = 0; allowed && i < vocab; i++)
        if (!allowed[i]) x[i] = NEG_INF;
}

static int32_t gumbel_maximum(const float *z, int64_t vocab, const og_sample_row *row,
                              cut c, int32_t best) {
    uint32_t words[4];
    int64_t block = -1;
    float top = NEG_INF;
    for (int64_t i = 0; i < vocab; i++) {
        uint32_t key = key_of(z[i]);
        if (key < c.key || !(z[i] > NEG_INF)) continue;
        if (key == c.key && c.ties-- <= 0) continue;
        if (row->min_p > 0.0f && !(og__expf(z[i]) >= row->min_p)) continue;
        if (block != i >> 2) {
            block = i >> 2;
            og__sample_words(row, i, words);
        }
        float s = z[i] + og__sample_gumbel(words[i & 3]);
        if (s > top) {
            top = s;
            best = (int32_t)i;
        }
    }
    return best;
}

static int32_t draw(float *x, int64_t vocab, const og_sample_row *row) {
    int32_t best = first_maximum(x, vocab);
    float max = x[best];
    if (!(row->temperature > 0.0f) || !(max > NEG_INF && max < -NEG_INF)) return best;
    for (int64_t i = 0; i < vocab; i++) x[i] = (x[i] - max) / row->temperature;
    cut c = {0, 0};
    if (row->top_k > 0 && row->top_k < vocab) c.key = select_count(x, vocab, row->top_k);
    c.ties = vocab;
    if (row->top_p < 1.0f) c = cut_mass(x, vocab, c.key, row->top_p);
    return gumbel_maximum(x, vocab, row, c, best);
}

typedef struct sample_job {
    const og_tensor *ids, *logits, *history, *allowed, *stop;
    const og_sample_row *rows;
} sample_job;

static void sample_rows(void *arg, int64_t from, int64_t to) {
    const sample_job *j = arg;
    int64_t vocab = j->logits->ne[1];
    int has_history = og_tensor_present(j->history),
        has_stop = og_tensor_present(j->stop);
    for (int64_t r = from; r < to; r++) {
        float *x = (float *)j->logits->data + r * j->logits->stride[0];
        process(x, vocab, &j->rows[r],
                has_history
                    ? (const int32_t *)j->history->data + r * j->history->stride[0]
                    : NULL,
                og_tensor_present(j->allowed) ? j->allowed->data : NULL,
                has_stop ? j->stop->data : NULL, has_stop ? j->stop->ne[0] : 0);
        ((int32_t *)j->ids->data)[r * j->ids->stride[0]] = draw(x, vocab, &j->rows[r]);
    }
}

int og__cpu_sample(og_exec *ex, og_tensor *ids, og_tensor *logits,
                   const og_sample_row *rows, const og_tensor *history,
                   const og_tensor *allowed, const og_tensor *stop_ids) {
    if (og__measuring(ex)) return 0;
    sample_job j = {ids, logits, history, allowed, stop_ids, rows};
    og__cpu_rows(logits->ne[0], logits->ne[1] * 8, sample_rows, &j);
    return 0;
}
