/* A soak of the server: many clients over real sockets ask for twice what it can do, leave in
 * the middle, send broken bodies and read slowly, while its overlay is rewritten (well, badly
 * and half) and its replicas fail. Every answer that ends is compared bit by bit with what the
 * same request gets alone; in between all stops and everything must be back at zero.
 *
 *     soak_opts o = {.seconds = 1200, .lap = 30, .seed = 1};
 *     soak_counts n;
 *     int problems = soak_run(&o, &n);   // each is told on stderr
 *     soak_print(&n, stdout);
 *
 *   soak.c         the world: server, solo answers, laps, faults, what health says
 *   soak_reload.c  the overlay and those who rewrite it
 *   soak_client.c  the clients
 *   soak_wire.c    HTTP on a socket, for threads in which no test may fail
 *
 * What a request may get depends on what happened while it ran. Two counters tell: reloads
 * have a number when they begin (`begun`) and when they are in force (`settled`), so that an
 * answer is that of a setting from the last settled one before it was sent to the last begun
 * one when it was there. Faults have the same pair.
 */
#ifndef OG_TESTS_SOAK_H
#define OG_TESTS_SOAK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "graph/run/reload.h"
#include "graph/serve/serve.h"
#include "kernels/base/alloc.h"

#define SOAK_SETTINGS 4
#define SOAK_TEXTS 4
#define SOAK_CLIENTS 16 /* two replicas of four sequences each, twice */
#define SOAK_EPOCHS 65536
#define SOAK_WAIT_S 60 /* what has not come by then is lost */

typedef struct soak_opts {
    double seconds, lap; /* lap: from one look at the counters to the next */
    uint64_t seed;
} soak_opts;

typedef struct soak_counts {
    atomic_long asked, same, busy, refused, left, slow,
        timeouts;        /* answers, by their kind */
    atomic_long faulted; /* requests that a fault took, told as such */
    atomic_long dropped; /* read ahead behind another and not begun */
    atomic_long wrong, lost, problems;
    atomic_long health, reloads, bad_files, half_files, faults, rebuilt, laps;
    long fds_first, fds_last, rss_first, rss_last; /* KiB */
    long blocks_first, blocks_last;
    double seconds;
} soak_counts;

typedef struct soak_span {
    atomic_long begun, settled;
} soak_span;

typedef struct soak_world {
    soak_opts opts;
    soak_counts *n;
    char dir[64], overlay[96];
    const char *pipelines, *lua;
    og_plan_options plan;
    og_engine *engine;
    og_reloader *reloader;
    og_server *server;
    int listen_fd, port;
    og_str solo[SOAK_SETTINGS][SOAK_TEXTS]; /* pcm */
    int setting_of[SOAK_EPOCHS];            /* by the number of the reload */
    soak_span reloads, faults;
    atomic_bool pause, stop, no_faults;
    pthread_mutex_t mu;
    pthread_cond_t cond;
    int paused, threads;
} soak_world;

/* The number of problems. */
int soak_run(const soak_opts *o, soak_counts *n);
void soak_print(const soak_counts *n, FILE *f);

/* ---- shared by the files of the soak ------------------------------------------------- */

void soak_problem(soak_world *w, const char *fmt, ...) OG_PRINTF(2, 3);
double soak_clock(void);
void soak_nap(double seconds);
uint64_t soak_random(uint64_t *state);
int soak_below(uint64_t *state, int n); /* [0, n) */
/* Waits while the world is paused; false: it is over. */
bool soak_go_on(soak_world *w);

/* soak_reload.c */
int soak_make_plan(soak_world *w, int setting, bool alone, og_plan **out, og_err *err);
void soak_settle(soak_world *w, int setting); /* as a lap ends */
void *soak_reload_main(void *world);

/* soak_client.c */
typedef struct soak_client {
    soak_world *w;
    uint64_t rng;
} soak_client;
void *soak_client_main(void *client);
bool soak_speak(int port, int text, og_str *pcm); /* alone */

/* soak_wire.c */
typedef struct soak_conn {
    int fd;
    double pause; /* after every read */
    size_t stop;  /* bytes to read in all before leaving; 0: no limit */
    size_t from, len, total;
    char buf[4096];
} soak_conn;

typedef struct soak_reply {
    int status; /* 0: nothing that is one */
    char head[8192];
    og_str body;
    bool cut, timed_out;
} soak_reply;

bool soak_dial(soak_conn *c, int port, int rcvbuf); /* rcvbuf 0: the system's */
void soak_hang_up(soak_conn *c, bool reset);
bool soak_send(soak_conn *c, const void *bytes, size_t n);
void soak_read(soak_conn *c, soak_reply *r); /* r: zeros before, soak_reply_free after */
void soak_reply_free(soak_reply *r);
bool soak_header(const soak_reply *r, const char *name, char *buf, size_t size);
/* A request with a body of JSON (NULL: none). */
void soak_request(og_str *out, const char *method, const char *path, const char *body,
                  size_t n);

#endif
