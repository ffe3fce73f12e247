/* The server: engines behind an OpenAI-compatible HTTP API.
 *
 * An og_server is one loop thread (libwebsockets: HTTP/1.1, HTTP/2 over TLS, WebSocket) that
 * only moves bytes, and a few workers that read bodies, submit requests, pull events when the
 * engine says that there are some, and encode audio. What a client does not read stays in
 * the engine: its request is stalled, its neighbours are not.
 *
 *     og_serve_opts o = OG_SERVE_OPTS_INIT;
 *     int fd = og_listen("127.0.0.1", 8000, &port, &err);
 *     og_server_create(&o, fd, &s, &err);          // answers /health (loading) from now on
 *     og_server_add(s, &(og_serve_model){.name = "qwen3_tts", .engine = e}, &err);
 *     og_server_ready(s);
 *     ... og_server_drain(s) by a signal ...
 *     og_server_wait(s);                           // all answered, or the time is over
 *     og_server_destroy(s);
 *
 * og_server_drain, _ready, _reload and og_server_add may be called from any thread; create,
 * wait and destroy by the owner. Engines are the caller's: destroyed after the server.
 */
#ifndef OG_SERVE_H
#define OG_SERVE_H

#include <stdbool.h>

#include "graph/run/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_SERVE_PORT 8000
#define OG_SERVE_MAX_MODELS 16

typedef struct og_server og_server;

/* One line of the log, without a newline. Any thread. */
typedef void og_serve_log(void *arg, const char *line);

typedef struct og_serve_opts {
    const char *const *api_keys; /* any of them is let in; none: everybody */
    int n_api_keys;
    const char *cors_origin; /* "*", an origin, or NULL: no CORS headers */
    const char *tls_cert, *tls_key; /* PEM files; both or neither */
    const char *voices_dir;  /* folder of uploaded voices; NULL: uploads are refused */
    size_t max_body;         /* bytes of a request's body */
    size_t outbox;           /* bytes that wait for a client before its request is stalled */
    int workers;
    int max_connections;
    double request_timeout;  /* seconds a request may take in all; 0: no limit */
    double stall_timeout;    /* seconds a client may read nothing of what waits for it */
    double drain_timeout;    /* seconds that requests get to finish when it drains */
    bool allow_files;        /* file: URLs and paths in bodies */
    bool quiet;              /* no line per request */
    og_serve_log *log;       /* NULL: none */
    void *log_arg;
} og_serve_opts;
#define OG_SERVE_OPTS_INIT                                                               \
    {                                                                                    \
        .max_body = (size_t)32 << 20, .outbox = (size_t)256 << 10, .workers = 4,         \
        .max_connections = 4096, .request_timeout = 600, .stall_timeout = 60,            \
        .drain_timeout = 30                                                              \
    }

/* A pipeline that is served. */
typedef struct og_serve_model {
    const char *name;           /* as `model` in bodies and at /v1/models */
    const char *const *aliases; /* other names of it */
    int n_aliases;
    og_engine *engine;          /* borrowed until the server is destroyed */
    const og_plan_options *options; /* that its plan was made of, borrowed likewise with all
                                       they point to; NULL: it is never reloaded */
    bool watch;                 /* reload when a file of its overlay is saved */
} og_serve_model;

/* A listening socket for host (a name, an address, or "" for all) and port (0: any free one,
 * *bound tells). Returns the descriptor, which is the caller's, or OG_EIO. */
OG_MUST_CHECK int og_listen(const char *host, int port, int *bound, og_err *err);

/* Start the threads. listen_fd is borrowed until destroy; opts is copied, its strings are
 * borrowed. Errors: OG_EINVAL, OG_EIO (certificates), OG_ENOMEM. */
OG_MUST_CHECK int og_server_create(const og_serve_opts *opts, int listen_fd,
                                   og_server **out, og_err *err);
/* The first one added is the default of bodies without `model`. OG_EINVAL for a name that is
 * taken, OG_ELIMIT. */
OG_MUST_CHECK int og_server_add(og_server *s, const og_serve_model *m, og_err *err);
/* Requests are let in from now on. */
void og_server_ready(og_server *s);
/* Take no new requests, finish what is under way, then end. May be called again. */
void og_server_drain(og_server *s);
/* Reload all models, as SIGHUP asks for; returns at once, the log tells what came of it. */
void og_server_reload(og_server *s);
/* A device is beyond repair: drain, and let og_server_wait say so. */
void og_server_break(og_server *s, const char *why);
/* Until it has drained. 0, OG_ETIMEOUT when requests were cut, OG_EDEVICE after a break. */
int og_server_wait(og_server *s);
void og_server_destroy(og_server *s); /* cuts what is still there; NULL is fine */

/* ---- the parent ----------------------------------------------------------------- */

/* The process that owns the listening socket and never touches a device: it runs argv (with
 * the descriptor's number put in place of "{fd}") and runs it again when it dies, after a
 * pause that grows while it keeps dying young. SIGTERM, SIGINT and SIGHUP are passed on.
 * Connections that come while no worker runs wait in the socket's backlog. Returns the exit
 * code for the process: that of a worker that ended by itself with 0, or with a usage error
 * before it was ever ready. */
int og_serve_parent(int listen_fd, char *const *argv, og_serve_log *log, void *log_arg);
/* Exit code of a worker that asks to be run again. */
#define OG_SERVE_EXIT_AGAIN 75

#ifdef __cplusplus
}
#endif
#endif
