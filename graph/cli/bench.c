/* `bench`: the name before `serve` and `suite`, and what both of them share. */
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "graph/cli/bench_cli.h"

int og__bench_stop_fd(void) {
    sigset_t set;
    struct sigaction old;
    sigemptyset(&set);
    /* A shell that starts us in the background has SIGINT ignored, and so it stays. */
    if (sigaction(SIGINT, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0) return -1;
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

void og__bench_progress(void *label, int done, int failed, int active, int n) {
    fprintf(stderr, "\r%s%d of %d done, %d failed, %d in flight   ",
            label ? (const char *)label : "", done, n, failed, active);
}

void og__bench_progress_clear(void) {
    fprintf(stderr, "\r\033[K");
}

static const og__opt options[] = {{0}};
static const og__cmd *const subs[] = {&og__cmd_bench_serve, &og__cmd_bench_suite, NULL};
static const char *const examples[] = {
    "omni-graph bench serve --max-concurrency 8 --num-prompts 80",
    "omni-graph bench suite test_tts.json",
    NULL,
};

const og__cmd og__cmd_bench = {
    .name = "bench",
    .usage = "serve|suite ...",
    .brief = "measure a running server, or run a performance suite",
    .options = options,
    .words = "serve|suite",
    .min_pos = 1,
    .max_pos = 1,
    .examples = examples,
    .subs = subs,
};
