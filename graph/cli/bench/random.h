/* Random numbers of the bench: the same seed gives the same load on every machine.
 *
 *     og__rng r = {seed};
 *     double gap = og__rng_gamma(&r, 1.0) / rate;      // Poisson arrivals
 */
#ifndef OG_CLI_BENCH_RANDOM_H
#define OG_CLI_BENCH_RANDOM_H

#include <stdint.h>

typedef struct og__rng {
    uint64_t state;
} og__rng;

uint64_t og__rng_next(og__rng *r);
double og__rng_unit(og__rng *r);                /* within (0, 1) */
int og__rng_below(og__rng *r, int n);           /* 0 .. n-1 */
double og__rng_gamma(og__rng *r, double shape); /* scale 1; shape > 0 */

/* Moments at which n requests start, in seconds, ascending. Gaps follow a gamma distribution of
 * that shape (1: a Poisson process; smaller: bursts; larger: more even), stretched so that the
 * last request starts at n / rate: two runs of one rate then offer the same load. rate INFINITY:
 * all at 0. */
void og__arrivals(uint64_t seed, double rate, double burstiness, int n, double *due);

#endif
