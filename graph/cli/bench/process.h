/* A server as a child: started, waited for, stopped. It dies with us.
 *
 *     og__process *p;
 *     if (og__process_start(argv, "server.log", &p, &err) == 0 &&
 *         og__process_wait(p, &url, 300, stop_fd, &err) == 0) ...
 *     og__process_stop(p, 30);          // SIGTERM, then SIGKILL; frees p
 */
#ifndef OG_CLI_BENCH_PROCESS_H
#define OG_CLI_BENCH_PROCESS_H

#include "graph/cli/bench/http.h"

typedef struct og__process og__process;

/* argv[0] is the program's path; log takes its standard output and error. */
int og__process_start(const char *const *argv, const char *log, og__process **out,
                      og_err *err) OG_MUST_CHECK;
/* Until GET /health says 200. OG_EIO when the process ends before (with the end of its log),
 * OG_ETIMEOUT, or OG_ECANCELED when stop_fd (-1: none) becomes readable. */
int og__process_wait(og__process *p, const og__url *url, double seconds, int stop_fd,
                     og_err *err) OG_MUST_CHECK;
/* Whether it has ended by itself. */
bool og__process_ended(og__process *p);
/* Ask it to end, and make it after so many seconds. NULL is fine. */
void og__process_stop(og__process *p, double seconds);
/* A port of 127.0.0.1 that nobody uses just now; -1. */
int og__free_port(void);

#endif
