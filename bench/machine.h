/* What the machine can do at most: ceilings that a plain loop reaches, and what it is.
 *
 * A benchmark measures them in its own run, before and after, since other work on the
 * machine moves them: where the two differ, its numbers are no better than that.
 *
 *     machine_rates before, after;
 *     machine_measure(2, 0.5, &before);
 *     ... the work ...
 *     machine_measure(2, 0.5, &after);
 *     double share = bytes_per_s / fmax(before.read, after.read);
 */
#ifndef OG_BENCH_MACHINE_H
#define OG_BENCH_MACHINE_H

#include <jansson.h>

typedef struct machine_rates {
    double read; /* bytes per second of summing 256 MiB of huge pages */
    double copy; /* bytes per second, read and written, of memcpy within it */
    double fma;  /* f32 operations per second of independent multiply-adds in registers */
} machine_rates;

/* The best of the rounds that fit into a third of `seconds` each, on `threads` threads
 * (0: all cores). 0, or -1 when memory or threads are missing. */
int machine_measure(int threads, double seconds, machine_rates *out);
/* The higher of each. */
machine_rates machine_best(const machine_rates *a, const machine_rates *b);

int machine_cores(void);
double machine_now(void); /* seconds of the monotonic clock */
double machine_cpu(void); /* CPU seconds of this process, all threads */
/* "AMD EPYC, 2 cores, AVX2" into buf. Returns buf. */
char *machine_name(char *buf, size_t size);
double machine_load(void); /* processes that want to run, over the last minute */

/* {"machine", "cores", "threads", "load", "before": {...}, "after": {...}}: new reference
 */
json_t *machine_json(int threads, const machine_rates *before,
                     const machine_rates *after);
/* The same for people, on standard output. */
void machine_print(int threads, const machine_rates *before, const machine_rates *after);
/* Write doc as JSON to path and drop the reference; path NULL: only that. 0, or -1 with a
 * message on standard error. */
int machine_save(json_t *doc, const char *path);

#endif
