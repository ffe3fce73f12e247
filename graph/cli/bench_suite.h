/* The parts of `bench suite`: its server, its runs, its report. All on the main thread. */
#ifndef OG_CLI_BENCH_SUITE_CMD_H
#define OG_CLI_BENCH_SUITE_CMD_H

#include "graph/cli/bench/process.h"
#include "graph/cli/bench/suite.h"
#include "graph/cli/bench_cli.h"

typedef struct og__suite_cmd {
    og__cli *cli;
    og__suite suite;
    og__data data;          /* where overlays and pipelines lie */
    const char *out, *stem; /* folder and name of what is written */
    const char *hardware;
    double tolerance, timeout_s, start_timeout_s, duration_s;
    int most;            /* prompts of a run at most, 0: as the file says */
    int frames;          /* as og__bench.frames */
    const char *dataset; /* in place of the file's, NULL */
    json_t *extra;       /* keys that come over the file's extra_body, NULL; owned */
    uint64_t seed;
    int stop_fd;
    bool quiet, list;
    bool stopped;

    /* the server of the entry at work */
    const char *base_url; /* NULL: servers of our own */
    og__url url;
    const char *api_key, *model; /* model: as the server calls it */
    og__process *process;
    const char *line; /* its command line, NULL: none runs */
    double start_s;
} og__suite_cmd;

/* Have a server for entry e: 0; or 1 with *skip, why there is none for it; or OG_E*. Keeps the
 * one that runs if it is the same. */
int og__suite_server(og__suite_cmd *c, const og__suite_entry *e, const char **skip,
                     og_err *err);
void og__suite_server_stop(og__suite_cmd *c);
/* One run as a value of the report (report.h); never NULL but when out of memory. */
json_t *og__suite_run_one(og__suite_cmd *c, const og__suite_run *run);
/* The same of a run that is not made: verdict is "skipped" or "fail". */
json_t *og__suite_run_not(const og__suite_cmd *c, const og__suite_run *run,
                          const char *verdict, const char *why);

#endif
