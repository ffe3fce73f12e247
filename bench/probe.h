/* Clocks around the steps of an engine's nodes, without a line in the engine.
 *
 * The compiler takes its node kinds from its options: probe_kinds gives it those of this
 * program with `step` and `admit` wrapped. There is one probe in a process; it is started
 * before the plan is built and read while no request runs.
 *
 *     probe_start();
 *     options.registry = probe_registry();
 *     ... build the plan, create the engine ...
 *     probe_reset(frames + 1);
 *     ... requests ...
 *     probe_sum(OG_KIND_AR, 4, &s);
 */
#ifndef OG_BENCH_PROBE_H
#define OG_BENCH_PROBE_H

#include "graph/compile/plan.h"

typedef struct probe_stat {
    int steps;
    double total, median, best; /* seconds */
    double cpu; /* median of the process's CPU seconds: steadier in company */
    int64_t rows;
} probe_stat;

void probe_start(void);
void probe_stop(void);
og_plan_registry probe_registry(void);
/* Forget the steps so far. From now on every decoder's job makes exactly `tokens` tokens,
 * the stop id at the end of them or not; it must not exceed what the plan allows. */
void probe_reset(int tokens);
/* Steps of nodes of that kind that computed something for exactly `jobs` jobs and no
 * prompt rows, but the last of them, in which a job ends (jobs 0: all its steps). On a
 * device that works by itself the time is that of handing over. */
void probe_sum(og_kind kind, int jobs, probe_stat *out);

#endif
