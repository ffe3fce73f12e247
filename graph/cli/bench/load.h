/* The load generator: requests over real sockets, and when their bytes came.
 *
 * One thread, one epoll, non-blocking sockets, HTTP/1.1 with connections kept alive and used
 * again. Closed loop: at most max_concurrency at a time, the next starts when one ends. Open
 * loop: requests start when they are due, whatever the server does (max_concurrency bounds
 * them still, if it is given). The time of a byte is taken right after the recv that brought
 * it; all times are seconds on one monotonic clock.
 *
 *     og__job job = {.body = json, .n = strlen(json)};
 *     og__record rec;
 *     og__load_opts o = OG__LOAD_OPTS;
 *     o.url = url; o.path = "/v1/audio/speech"; o.max_concurrency = 8;
 *     int rc = og__load_run(&o, &job, 1, &rec, &total, &err);
 *
 * A request that fails is a record with `fail` set, never an error of the run. */
#ifndef OG_CLI_BENCH_LOAD_H
#define OG_CLI_BENCH_LOAD_H

#include "graph/cli/bench/decode.h"
#include "graph/cli/bench/http.h"

/* name, word in reports, text */
#define OG__FAIL_LIST(X)                                                                 \
    X(OG__FAIL_NONE, "none", "completed")                                                \
    X(OG__FAIL_CONNECT, "connect", "no connection")                                      \
    X(OG__FAIL_RESET, "reset", "the connection broke")                                   \
    X(OG__FAIL_TIMEOUT, "timeout", "no end within the time limit")                       \
    X(OG__FAIL_REFUSED, "refused", "status 429 or 503")                                  \
    X(OG__FAIL_STATUS, "status", "any other status but 200")                             \
    X(OG__FAIL_PROTOCOL, "protocol", "not HTTP, or not the format asked")                \
    X(OG__FAIL_SERVER, "server", "an error event within the stream")                     \
    X(OG__FAIL_EMPTY, "empty", "an answer without audio")                                \
    X(OG__FAIL_LENGTH, "length", "not the expected number of samples")

#define OG__FAIL_ENUM(name, word, text) name,
typedef enum og__fail { OG__FAIL_LIST(OG__FAIL_ENUM) OG__FAIL_COUNT } og__fail;
#undef OG__FAIL_ENUM
const char *og__fail_word(og__fail f);
const char *og__fail_text(og__fail f);

typedef struct og__job {
    const char *body; /* borrowed */
    size_t n;
    double due;     /* seconds after the start of the run; 0 in a closed loop */
    int64_t expect; /* samples that the answer must have, 0: any number */
    int text_units; /* of the input, reported where the server says no tokens */
} og__job;

/* Times are seconds from the start of this request, -1: it did not come to that. */
typedef struct og__record {
    double start; /* of this request, after the start of the run */
    double lag;   /* how much later than it was due */
    double first_byte, ttfp, e2el, audible;
    double audio_s, underrun_s, worst_gap;
    int underruns, packets, status, retries;
    int64_t samples, bytes, input_tokens;
    uint64_t digest;
    og__fail fail;
    bool finished; /* false: the run was stopped before */
    char error[160];
} og__record;

typedef struct og__total {
    double duration;   /* first start to last end */
    double cpu_s;      /* of this process: a client that is busy measures itself */
    double worst_turn; /* longest time between two looks at the sockets */
    int peak;          /* requests in flight at once */
    int connections;   /* made */
    bool stopped;
} og__total;

typedef struct og__load_opts {
    og__url url;
    const char *path;    /* of the endpoint, behind url.path */
    const char *api_key; /* NULL: none */
    const char *headers; /* further ones, each with its \r\n; NULL: none */
    int max_concurrency; /* 0: no bound */
    double timeout_s;    /* for one request */
    og__answer answer;
    int rate, channels; /* of PCM, unless the server names others */
    double audible_dbfs;
    int64_t multiple; /* samples of an answer are a multiple of it; 0: any */
    int stop_fd;      /* readable: stop; -1: none */
    /* Told now and then how far it is; NULL: nobody. */
    void (*progress)(void *user, int done, int failed, int active, int n);
    void *progress_user;
} og__load_opts;
#define OG__LOAD_OPTS                                                                    \
    { .timeout_s = 600, .rate = 24000, .channels = 1, .audible_dbfs = -50, .stop_fd = -1 }

/* Whether somebody listens there: 0, or OG_EIO / OG_ENOENT with the reason. */
int og__load_reach(const og__url *url, double seconds, og_err *err) OG_MUST_CHECK;
/* Run all n jobs (ordered by due). records: n of them. */
int og__load_run(const og__load_opts *o, const og__job *jobs, int n, og__record *records,
                 og__total *total, og_err *err) OG_MUST_CHECK;
/* A GET, as a whole: the body is appended to out. Returns the status, or a negative error. */
int og__load_get(const og__url *url, const char *path, const char *api_key,
                 double seconds, og_str *out, og_err *err) OG_MUST_CHECK;

double og__load_now(void); /* monotonic seconds */

#endif
