/* Faster or slower speech at the same pitch (WSOLA: Verhelst and Roelands, "An overlap-add
 * technique based on waveform similarity (WSOLA) for high quality time-scale modification of
 * speech", ICASSP 1993). Windows of 30 ms overlap by half; each is taken from within 10 ms of
 * where it should be, there where it continues the window before it best. */
#include <math.h>
#include <string.h>

#include "nodes/media/audio.h"

#define WINDOW_S 0.030
#define SEEK_S 0.010
#define SPEED_MIN 0.1
#define SPEED_MAX 10.0

typedef struct clip {
    const float *x;
    int64_t n;
} clip;

static float at(const clip *c, int64_t i) {
    return i >= 0 && i < c->n ? c->x[i] : 0.0f;
}

/* How alike `half` samples from a and from b are; every second one tells enough. */
static float likeness(const clip *c, int64_t a, int64_t b, int half) {
    float dot = 0, energy = 1e-9f;
    for (int i = 0; i < half; i += 2) {
        float y = at(c, b + i);
        dot += at(c, a + i) * y;
        energy += y * y;
    }
    return dot / sqrtf(energy);
}

static int64_t best_start(const clip *c, int64_t natural, int64_t wanted, int half, int seek) {
    int64_t best = wanted;
    float score = likeness(c, natural, wanted, half);
    for (int d = -seek; d <= seek; d++) {
        float s = likeness(c, natural, wanted + d, half);
        if (s > score) {
            score = s;
            best = wanted + d;
        }
    }
    return best;
}

int og_audio_stretch(const float *x, int64_t n, int rate, double speed, float **y, int64_t *m,
                     og_err *err) {
    *y = NULL;
    *m = 0;
    if (!(speed >= SPEED_MIN && speed <= SPEED_MAX) || rate < 1)
        return og_err_set(err, OG_EINVAL, "speed %g (limits are %g and %g)", speed, SPEED_MIN,
                          SPEED_MAX);
    int half = (int)(WINDOW_S * rate / 2) + 1, seek = (int)(SEEK_S * rate);
    int64_t total = llround((double)n / speed);
    float *out = og_calloc((size_t)total + (size_t)half * 2 + 1, sizeof *out);
    if (!out) return og_err_set(err, OG_ENOMEM, "no memory for %lld samples", (long long)total);
    clip c = {x, n};
    int64_t natural = 0; /* what follows the window before in the clip itself */
    for (int64_t to = -half; to < total; to += half) {
        int64_t wanted = llround((double)to * speed), from = wanted;
        if (to >= 0 && speed != 1) from = best_start(&c, natural, wanted, half, seek);
        for (int i = 0; i < 2 * half; i++) {
            float w = 0.5f - 0.5f * cosf((float)(3.14159265358979 * (i + 0.5) / half));
            if (to + i >= 0 && to + i < total) out[to + i] += w * at(&c, from + i);
        }
        natural = from + half;
    }
    *y = out;
    *m = total;
    return 0;
}
