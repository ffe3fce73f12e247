/* A counter through a mixing function (SplitMix64: Steele, Lea, Flood 2014), and a gamma
 * generator by squeeze (Marsaglia, Tsang 2000). */
#include "graph/cli/bench/random.h"

#include <math.h>

uint64_t og__rng_next(og__rng *r) {
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double og__rng_unit(og__rng *r) {
    return ((double)(og__rng_next(r) >> 12) + 0.5) * 0x1p-52;
}

int og__rng_below(og__rng *r, int n) {
    return n > 0 ? (int)(og__rng_next(r) % (uint64_t)n) : 0;
}

static double normal(og__rng *r) {
    double u = og__rng_unit(r), v = og__rng_unit(r);
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

double og__rng_gamma(og__rng *r, double shape) {
    if (shape < 1) /* from shape + 1, thinned */
        return og__rng_gamma(r, shape + 1) * pow(og__rng_unit(r), 1 / shape);
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = normal(r), v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        if (log(og__rng_unit(r)) < 0.5 * x * x + d - d * v + d * log(v)) return d * v;
    }
}

void og__arrivals(uint64_t seed, double rate, double burstiness, int n, double *due) {
    og__rng r = {seed};
    double at = 0;
    for (int i = 0; i < n; i++) {
        if (!isinf(rate)) at += og__rng_gamma(&r, burstiness);
        due[i] = at;
    }
    if (at <= 0) return;
    double stretch = n / rate / at;
    for (int i = 0; i < n; i++) due[i] *= stretch;
}
