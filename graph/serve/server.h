/* Inside of the serve room: what its files share.
 *
 *   og_server    loop thread, workers, reaper, models, the list of calls under way
 *   og__call     one exchange: the request as it came, the answer as it goes out
 *   og__outbox   bytes of an answer between a worker that makes them and the loop
 *   og__route    method and path -> handler
 *   og__body     a JSON body, read field by field with the path of what is wrong
 *
 * A call is held by the loop while its connection lasts, and by whoever works on it. Its
 * `step` runs on a worker, never on two at once, whenever it was kicked: when the body is
 * complete, when the engine has news, when the outbox has room again, when the client is
 * gone, when its time is over. A step never waits; it returns and is kicked again.
 *
 * Locks: server->mu (models, state), workers.mu (queue), outbox.mu, loop_mu (calls with news
 * for the loop). None is held while another room is called.
 */
#ifndef OG_SERVE_INTERNAL_H
#define OG_SERVE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "graph/serve/serve.h"
#include "kernels/base/alloc.h"

#define OG__ID_MAX 64
#define OG__PARAM_MAX 256
#define OG__PATH_MAX 1024

struct lws;
struct lws_context;
struct lws_vhost;
typedef struct og__call og__call;
typedef struct og__metrics og__metrics; /* metrics.h */
typedef struct og__reload og__reload;   /* reload.h */
typedef struct og__reloads og__reloads;
typedef void og__step_fn(og__call *c);

typedef enum og__method {
    OG__GET,
    OG__POST,
    OG__DELETE,
    OG__OPTIONS,
    OG__HEAD,
    OG__OTHER
} og__method;

typedef enum og__state { OG__LOADING, OG__READY, OG__DRAINING } og__state;

/* ---- the answer (outbox.c) --------------------------------------------------------- */

typedef struct og__outbox {
    pthread_mutex_t mu;
    int status;          /* 0 until the head is there */
    og_str head;         /* "Name\0value\0" pairs */
    int64_t length;      /* of the body, -1: not known */
    char *data;          /* [from, from + len) waits for the loop */
    size_t from, len, cap;
    int64_t put;         /* bytes of the body so far */
    bool ended, cut;     /* cut: the connection ends without a proper end */
    bool starved;        /* a step waits for room */
    bool oom;
} og__outbox;

/* Add a header; before the head goes. */
void og__reply_header(og__call *c, const char *name, const char *fmt, ...) OG_PRINTF(3, 4);
/* The head goes; length -1: the body's end is told by og__reply_end. A second head is
 * ignored. */
void og__reply_head(og__call *c, int status, const char *type, int64_t length);
void og__reply_put(og__call *c, const void *bytes, size_t n);
void og__reply_end(og__call *c);
/* End the connection so that nobody takes what came for all of it. */
void og__reply_cut(og__call *c);
/* Whether more should wait: then the call is kicked when there is room. */
bool og__reply_full(og__call *c);
bool og__reply_begun(og__call *c);
/* A whole answer of JSON, which is taken over. */
void og__reply_json(og__call *c, int status, json_t *j);
/* {"error": {message, type, param, code}}. param and code may be NULL. After the head has
 * gone the connection is cut instead. */
void og__reply_error(og__call *c, int status, const char *param, const char *code,
                     const char *fmt, ...) OG_PRINTF(5, 6);
/* The same of an engine's error, with its status; rename: API name of a field, or NULL. */
void og__reply_failure(og__call *c, const og_err *err, const char *param);
/* {message, type, param, code} of an error, for events of a stream. */
json_t *og__error_json(int status, const char *param, const char *code, const char *text);
/* The HTTP status and the short name of an OG_E* code. */
int og__status_of(int code, const char **name);
/* A JSON string of text whatever bytes it has. */
json_t *og__text_json(const char *text);

/* ---- bodies in chunks (chunks.c) ----------------------------------------------------- */

typedef struct og__chunks {
    int state; /* all 0: at the beginning */
    int64_t left;
    size_t line;
    bool digits;
} og__chunks;

/* The next bytes of a body, in pieces of any size; its data is appended to out. 1 at its end
 * (what follows is ignored), 0 before, OG_EREJECT, OG_ELIMIT beyond max, OG_ENOMEM. */
int og__chunks_read(og__chunks *k, const void *bytes, size_t n, size_t max, og_str *out);

/* ---- calls (call.c) ----------------------------------------------------------------- */

typedef struct og__route {
    og__method method;
    const char *path; /* "/v1/audio/voices/{}": {} is one part of the path */
    og__step_fn *handler;
    bool open; /* no API key is asked for, and it answers in every state */
} og__route;

struct og__call {
    og_server *server;
    atomic_int refs;
    /* the request: written by the loop before the first step */
    char id[OG__ID_MAX + 1];
    char peer[48];
    og__method method;
    char *path, *content_type; /* the path as it came, without its query */
    char param[OG__PARAM_MAX]; /* what stood for {} */
    const og__route *route;
    og_str body;
    double t_start, t_body;
    og__outbox out;
    atomic_bool gone, expired;
    /* workers.c */
    og__step_fn *step;
    atomic_int sched;
    og__call *next_run;
    /* the loop's own */
    struct lws *wsi;
    void *session;
    og__call *prev, *next;
    bool held;  /* the connection is not read (http.h) */
    bool ahead; /* it was read together with the request before it */
    bool in_chunks, unread; /* of the body: how it comes, and whether it was left */
    og__chunks chunks;
    bool head_sent, chunked, close_after, h2, early; /* early: answered before its body */
    bool partial; /* the socket has not taken all that was written */
    bool written; /* all is written */
    int64_t sent;
    double t_progress;
    /* loop_mu */
    og__call *next_news;
    bool has_news;
    /* the step's own */
    void *job;
    atomic_bool ticks;  /* kicked at every tick of the loop too */
    og__call *parent;   /* of an inner call (inner.h): gets its news in place of the loop */
    json_t *given;      /* owned: its body, parsed */
    atomic_int_least64_t limit_us; /* of its own time limit, 0: the server's */
    /* for the log and the counters */
    char model[64];
    double audio_s, first_s;
    double t_play; /* when a listener of a stream began, as far as he has not run dry */
    atomic_int_least64_t t_first_byte; /* microseconds since t_start, 0: none */
    char error[160];
};

og__call *og__call_create(og_server *s);
void og__call_ref(og__call *c);
void og__call_unref(og__call *c);
/* A time limit of its own, in seconds since its body was there. */
void og__call_limit(og__call *c, double seconds);
double og__clock(void); /* monotonic seconds */

/* ---- workers (workers.c) -------------------------------------------------------------- */

typedef struct og__reap og__reap;

typedef struct og__workers {
    pthread_t *threads;
    int n, started;
    pthread_t reaper;
    bool reaper_started, stop;
    pthread_mutex_t mu;
    pthread_cond_t cond, reap_cond;
    og__call *first, *last;
    og__reap *reaps;
} og__workers;

OG_MUST_CHECK int og__workers_start(og_server *s, og_err *err);
/* After the last call is gone. */
void og__workers_stop(og_server *s);
/* Let its step run. Any thread; takes workers.mu only. */
void og__call_kick(og__call *c);
/* og_request_free, where waiting for a stage hurts nobody; c is held until then. */
void og__request_reap(og__call *c, og_request *r);

/* ---- the server (server.c) ------------------------------------------------------------ */

typedef struct og__model {
    char *name;
    char **aliases;
    int n_aliases;
    og_engine *engine;
    og__reload *reload; /* owned; NULL: it cannot be reloaded */
    int64_t created; /* unix seconds */
} og__model;

struct og_server {
    og_serve_opts opts;
    int listen_fd;
    pthread_mutex_t mu;
    pthread_cond_t cond;
    og__state state;
    bool broken, ended, timed_out;
    char why[256];
    og__model models[OG_SERVE_MAX_MODELS];
    int n_models;
    int calls; /* objects that live */
    double t_drain, t_start;
    og__workers workers;
    og__metrics *metrics;
    og__reloads *reloads;
    /* the loop's */
    pthread_t loop;
    bool loop_started;
    struct lws_context *lws;
    struct lws_vhost *vhost;
    struct lws *listener;
    og__call *live; /* with a connection */
    int n_live, connections;
    int hups;    /* epoll set of held connections */
    bool paused; /* out of descriptors: accepts later */
    atomic_bool stop;
    pthread_mutex_t loop_mu;
    og__call *news;
    bool closed; /* the loop has ended: no news are read any more */
};

og__state og__server_state(og_server *s);
/* By name; NULL or "": the default. NULL when there is none. Models are never taken away. */
og__model *og__server_model(og_server *s, const char *name);
/* There is something for the loop to do about a call. Any thread. */
void og__loop_news(og__call *c);
void og__loop_wake(og_server *s);

/* ---- http.c ----------------------------------------------------------------------------- */

OG_MUST_CHECK int og__http_open(og_server *s, og_err *err);
void og__http_run(og_server *s); /* until s->stop */
void og__http_close(og_server *s);

/* ---- route.c ------------------------------------------------------------------------------ */

/* The route, or NULL with *allowed: methods of that path, "" when there is no such path. */
const og__route *og__route_find(og__method m, const char *path, char *param,
                                const char **allowed);
/* First step of a call: its handler. */
void og__route_run(og__call *c);
/* Whether the key that came with a request is one of ours, in constant time. */
bool og__key_ok(const og_server *s, const char *authorization);

void og__get_health(og__call *c);
void og__get_models(og__call *c);
void og__get_model(og__call *c);
void og__post_speech(og__call *c);
void og__post_batch(og__call *c);
void og__get_voices(og__call *c);
void og__post_voice(og__call *c);
void og__delete_voice(og__call *c);

/* ---- body.c -------------------------------------------------------------------------------- */

#define OG__BODY_FIELDS 64

/* The first fault is answered at once (400 with the field's path) and remembered; what is
 * read after it has its default. */
typedef struct og__body {
    og__call *call;
    json_t *root;        /* owned */
    char prefix[64];     /* "items[2]." */
    bool failed;
    const char *known[OG__BODY_FIELDS]; /* asked for so far */
    int n_known;
} og__body;

/* 0, or -1 after the answer. */
int og__body_open(og__body *b, og__call *c);
void og__body_close(og__body *b);
/* null is absent everywhere. NULL, or the field of that type. */
const char *og__body_text(og__body *b, const char *name);
json_t *og__body_any(og__body *b, const char *name);
bool og__body_bool(og__body *b, const char *name, bool def, bool *given);
double og__body_number(og__body *b, const char *name, double min, double max, double def);
bool og__body_int(og__body *b, const char *name, int64_t min, int64_t max, int64_t *out);
void og__body_fault(og__body *b, const char *name, const char *code, const char *fmt, ...)
    OG_PRINTF(4, 5);
bool og__body_knows(const og__body *b, const char *name);

/* ---- media.c ---------------------------------------------------------------------------------- */

/* Bytes of a data: URL or bare base64, appended to out: 0, or OG_EREJECT with what is wrong.
 * Line breaks and missing padding are accepted, any other stray character is not. */
int og__data_url(const char *text, og_str *out, og_err *err);
/* The engine takes clips by path; bytes of a body get one without touching a disk: a
 * descriptor for /proc/self/fd, or -1. */
int og__memory_file(const void *bytes, size_t n);
/* base64 of n bytes, appended. */
void og__base64(const void *bytes, size_t n, og_str *out);

/* ---- log.c -------------------------------------------------------------------------------------- */

void og__log(og_server *s, const char *fmt, ...) OG_PRINTF(2, 3);
/* A call is over: it is counted, and has its line. */
void og__log_call(og__call *c);

#endif
