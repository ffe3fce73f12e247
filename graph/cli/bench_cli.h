/* What `bench serve` and `bench suite` share. */
#ifndef OG_CLI_BENCH_CLI_H
#define OG_CLI_BENCH_CLI_H

#include "graph/cli/bench/run.h"
#include "graph/cli/cli.h"

/* Readable after SIGINT or SIGTERM, which end nothing by themselves any more. -1: there is
 * none, and they do. */
int og__bench_stop_fd(void);
/* A line on stderr that overwrites itself; label may be NULL. */
void og__bench_progress(void *label, int done, int failed, int active, int n);
void og__bench_progress_clear(void);

#endif
