/* The loop: who is due, whose socket is ready, who has had his time. */
#include "graph/cli/bench/load.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "graph/cli/bench/net.h"

#define EVENTS 128
#define READ_SIZE (1 << 16)
#define REFUSAL_MAX 4096 /* of an error's body */
#define PROGRESS_EVERY 0.25

typedef enum conn_state { CLOSED, CONNECTING, SENDING, READING, IDLE } conn_state;

typedef struct conn {
    conn_state state;
    int fd, job;
    bool reused, answered; /* not its first request; a byte of the answer has come */
    double started;
    og_str out;
    size_t sent;
    og__http http;
    og__player player;
    og__decode decode;
    og_str refusal;
    double now;        /* of the bytes that are being decoded */
    struct conn *next; /* in a list of connections without work */
} conn;

typedef struct load {
    const og__load_opts *o;
    const og__job *jobs;
    og__record *records;
    og__total *total;
    int n, next, done, failed, active;
    double t0, told;
    int epoll, timer;
    og__addr to;
    conn **all;
    int n_all;
    conn *idle, *closed,
        *dead; /* dead: closed within this turn, may still have an event */
    char *buf;
    bool stopped;
} load;

static const struct {
    const char *word, *text;
} fails[] = {
#define OG__FAIL_ROW(name, word, text) {word, text},
    OG__FAIL_LIST(OG__FAIL_ROW)
#undef OG__FAIL_ROW
};

const char *og__fail_word(og__fail f) {
    return fails[f].word;
}
const char *og__fail_text(og__fail f) {
    return fails[f].text;
}

/* ---- connections -------------------------------------------------------------- */

static conn *pop(conn **list) {
    conn *c = *list;
    if (c) *list = c->next;
    return c;
}

static void push(conn **list, conn *c) {
    c->next = *list;
    *list = c;
}

static void drop_from(conn **list, conn *c) {
    while (*list && *list != c) list = &(*list)->next;
    if (*list) *list = c->next;
}

static conn *new_conn(load *l) {
    conn *c = pop(&l->closed);
    if (c) return c;
    conn **all = og_realloc(l->all, (size_t)(l->n_all + 1) * sizeof *all);
    if (!all) return NULL;
    l->all = all;
    c = og_calloc(1, sizeof *c);
    if (!c) return NULL;
    c->fd = -1;
    return all[l->n_all++] = c;
}

static void close_conn(load *l, conn *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->state = CLOSED;
    push(&l->dead, c);
}

static int watch(load *l, conn *c, uint32_t events, int op) {
    struct epoll_event ev = {.events = events, .data.ptr = c};
    return epoll_ctl(l->epoll, op, c->fd, &ev);
}

static int dial(load *l, conn *c) {
    c->fd = og__net_connect(&l->to);
    if (c->fd < 0) return -1;
    c->reused = false;
    c->state = CONNECTING;
    l->total->connections++;
    return watch(l, c, EPOLLIN | EPOLLOUT, EPOLL_CTL_ADD);
}

/* ---- the end of a request ----------------------------------------------------- */

static void say(og__record *r, og__fail fail, const char *text) {
    if (r->fail) return;
    r->fail = fail;
    snprintf(r->error, sizeof r->error, "%.159s", text);
}

/* The words of an OpenAI-style error, else the beginning of the body. */
static void refused(const conn *c, og__record *r) {
    char text[sizeof r->error];
    json_t *j =
        json_loadb(c->refusal.data ? c->refusal.data : "", c->refusal.len, 0, NULL);
    const json_t *e = json_object_get(j, "error");
    const char *msg = json_string_value(json_object_get(e ? e : j, "message"));
    if (!msg) msg = json_string_value(json_object_get(j, "detail"));
    if (!msg) msg = c->refusal.data ? c->refusal.data : "";
    snprintf(text, sizeof text, "status %d: %.140s", c->http.status, msg);
    json_decref(j);
    bool full = c->http.status == 429 || c->http.status == 503;
    say(r, full ? OG__FAIL_REFUSED : OG__FAIL_STATUS, text);
}

static void check_length(const load *l, const conn *c, og__record *r) {
    char text[sizeof r->error];
    int64_t expect = l->jobs[c->job].expect, multiple = l->o->multiple;
    if (expect > 0 && r->samples != expect) {
        snprintf(text, sizeof text, "%lld samples, %lld were expected",
                 (long long)r->samples, (long long)expect);
        say(r, OG__FAIL_LENGTH, text);
    } else if (multiple > 0 && r->samples % multiple) {
        snprintf(text, sizeof text, "%lld samples are no multiple of %lld",
                 (long long)r->samples, (long long)multiple);
        say(r, OG__FAIL_LENGTH, text);
    }
}

static void judge(const load *l, conn *c, og__record *r) {
    if (c->http.status != 200) {
        refused(c, r);
    } else if (!strcmp(c->http.content_type, "application/json")) {
        say(r, OG__FAIL_PROTOCOL, "the answer is JSON, not audio");
    } else if (og__decode_end(&c->decode) < 0) {
        say(r, c->decode.failed ? OG__FAIL_SERVER : OG__FAIL_PROTOCOL, c->decode.error);
    } else if (c->decode.bytes == 0) {
        say(r, OG__FAIL_EMPTY, "the answer has no audio");
    } else if (c->decode.kind != OG__ANSWER_OTHER) {
        check_length(l, c, r);
    }
}

static void measure(conn *c, og__record *r, double now) {
    const og__player *p = &c->player;
    r->e2el = now - c->started;
    if (c->decode.first >= 0) r->ttfp = c->decode.first - c->started;
    if (p->audible >= 0) r->audible = p->audible - c->started;
    r->samples = p->samples;
    r->audio_s = (double)p->samples / p->rate;
    r->underruns = p->underruns;
    r->underrun_s = p->underrun_s;
    r->worst_gap = p->worst_gap;
    r->packets = p->packets;
    r->bytes = c->decode.bytes;
    r->digest = p->digest;
    r->status = c->http.status;
    r->input_tokens = c->http.input_tokens;
}

/* The request of c is over; whether it went well is in the record by now or is judged. */
static void finish(load *l, conn *c, bool complete) {
    og__record *r = &l->records[c->job];
    double now = og__load_now();
    measure(c, r, now);
    if (complete) judge(l, c, r);
    r->finished = true;
    l->done++;
    l->failed += r->fail != OG__FAIL_NONE;
    l->active--;
    if (now - l->t0 > l->total->duration) l->total->duration = now - l->t0;
    if (complete && c->http.keep_alive) {
        c->state = IDLE;
        c->reused = true;
        push(&l->idle, c);
    } else {
        close_conn(l, c);
    }
}

static void fail(load *l, conn *c, og__fail kind, const char *text) {
    say(&l->records[c->job], kind, text);
    finish(l, c, false);
}

/* A kept connection that the server closed just then has not seen the request: once more,
 * on a new one, with the time still running. */
static bool retry(load *l, conn *c) {
    if (!c->reused || c->answered) return false;
    close(c->fd);
    c->fd = -1;
    c->sent = 0;
    l->records[c->job].retries++;
    if (dial(l, c) == 0) return true;
    c->reused = false;
    return false;
}

static void broke(load *l, conn *c, const char *why) {
    if (retry(l, c)) return;
    fail(l, c, c->state == CONNECTING ? OG__FAIL_CONNECT : OG__FAIL_RESET, why);
}

/* ---- sending and receiving ---------------------------------------------------- */

static int write_request(const load *l, conn *c) {
    const og__load_opts *o = l->o;
    const og__job *job = &l->jobs[c->job];
    bool sse = o->answer == OG__ANSWER_SSE;
    c->out.len = 0;
    og_str_addf(&c->out, "POST %s%s HTTP/1.1\r\nHost: %s:%s\r\n", o->url.path, o->path,
                o->url.host, o->url.port);
    og_str_addf(&c->out, "Content-Type: application/json\r\nAccept: %s\r\n",
                sse ? "text/event-stream" : "*/*");
    if (o->api_key) og_str_addf(&c->out, "Authorization: Bearer %s\r\n", o->api_key);
    if (o->headers) og_str_add(&c->out, o->headers);
    og_str_addf(&c->out, "Content-Length: %zu\r\n\r\n", job->n);
    og_str_addn(&c->out, job->body, job->n);
    return c->out.oom ? -1 : 0;
}

static void send_some(load *l, conn *c) {
    while (c->sent < c->out.len) {
        ssize_t k =
            send(c->fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);
        if (k >= 0) {
            c->sent += (size_t)k;
        } else if (errno == EAGAIN) {
            if (c->state == READING) watch(l, c, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
            c->state = SENDING;
            return;
        } else if (errno != EINTR) {
            broke(l, c, strerror(errno));
            return;
        }
    }
    if (c->state == SENDING) watch(l, c, EPOLLIN, EPOLL_CTL_MOD);
    c->state = READING;
}

static void connected(load *l, conn *c) {
    int problem = 0;
    socklen_t len = sizeof problem;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &problem, &len);
    if (problem) {
        fail(l, c, OG__FAIL_CONNECT, strerror(problem));
        return;
    }
    c->state = SENDING;
    send_some(l, c);
}

static void on_body(void *user, const char *data, size_t n) {
    conn *c = user;
    if (c->http.status == 200) {
        if (c->http.rate > 0 && c->player.samples == 0) c->player.rate = c->http.rate;
        if (c->http.channels > 0 && c->http.channels <= 16 && c->player.samples == 0)
            c->player.channels = c->http.channels;
        og__decode_take(&c->decode, c->now, data, n);
    } else if (c->refusal.len + n <= REFUSAL_MAX) {
        og_str_addn(&c->refusal, data, n);
    }
}

static void arrived(load *l, conn *c, const char *data, size_t n) {
    og__record *r = &l->records[c->job];
    og_err err = OG_ERR_INIT;
    if (!c->answered) r->first_byte = c->now - c->started;
    c->answered = true;
    long used = og__http_feed(&c->http, data, n, on_body, c, &err);
    if (used < 0) {
        fail(l, c, OG__FAIL_PROTOCOL, err.msg);
        return;
    }
    if (!c->http.done) return;
    if ((size_t)used < n) c->http.keep_alive = false;
    finish(l, c, true);
}

static void closed(load *l, conn *c) {
    og_err err = OG_ERR_INIT;
    if (!c->answered && retry(l, c)) return;
    if (og__http_eof(&c->http, &err) < 0)
        fail(l, c, OG__FAIL_RESET, err.msg);
    else
        finish(l, c, true);
}

static void receive(load *l, conn *c) {
    while (c->state == READING || c->state == SENDING) {
        ssize_t k = recv(c->fd, l->buf, READ_SIZE, 0);
        c->now = og__load_now();
        if (k > 0) {
            arrived(l, c, l->buf, (size_t)k);
            if (k < READ_SIZE) return; /* level-triggered: what came since calls again */
        } else if (k == 0) {
            closed(l, c);
            return;
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            broke(l, c, strerror(errno));
            return;
        }
    }
}

static void ready(load *l, conn *c, uint32_t events) {
    if (c->state == CLOSED) return;
    if (c->state == IDLE) { /* the server has closed it, or speaks out of turn */
        drop_from(&l->idle, c);
        close_conn(l, c);
        return;
    }
    if (c->state == CONNECTING) {
        connected(l, c);
        return;
    }
    if (c->state == SENDING && (events & EPOLLOUT)) send_some(l, c);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(l, c);
}

/* ---- starting ----------------------------------------------------------------- */

static int start(load *l, og_err *err) {
    int i = l->next++;
    og__record *r = &l->records[i];
    conn *c = pop(&l->idle);
    bool fresh = !c;
    if (fresh) c = new_conn(l);
    if (!c) return og_err_set(err, OG_ENOMEM, "no memory for another connection");
    c->job = i;
    c->sent = 0;
    c->answered = false;
    c->refusal.len = 0;
    og__http_init(&c->http);
    og__player_init(&c->player, l->o->rate, l->o->channels, l->o->audible_dbfs);
    og__decode_start(&c->decode, l->o->answer, &c->player);
    if (write_request(l, c) < 0)
        return og_err_set(err, OG_ENOMEM, "no memory for a request");
    if (++l->active > l->total->peak) l->total->peak = l->active;
    c->started = og__load_now();
    r->start = c->started - l->t0;
    r->lag =
        r->start > l->jobs[i].due && l->jobs[i].due > 0 ? r->start - l->jobs[i].due : 0;
    if (fresh && dial(l, c) < 0) {
        fail(l, c, OG__FAIL_CONNECT, strerror(errno));
    } else if (!fresh) {
        c->state = READING;
        send_some(l, c);
    }
    return 0;
}

static bool may_start(const load *l) {
    return !l->stopped && l->next < l->n &&
           (l->o->max_concurrency <= 0 || l->active < l->o->max_concurrency);
}

static int start_due(load *l, og_err *err) {
    int rc = 0;
    while (rc == 0 && may_start(l) && l->t0 + l->jobs[l->next].due <= og__load_now())
        rc = start(l, err);
    return rc;
}

/* ---- the loop ----------------------------------------------------------------- */

static bool at_work(const conn *c) {
    return c->state == CONNECTING || c->state == SENDING || c->state == READING;
}

static void expire(load *l, double now) {
    char text[64];
    snprintf(text, sizeof text, "no end within %g s", l->o->timeout_s);
    for (int i = 0; i < l->n_all; i++) {
        conn *c = l->all[i];
        if (at_work(c) && now - c->started >= l->o->timeout_s)
            fail(l, c, OG__FAIL_TIMEOUT, text);
    }
}

/* Wake up for the next arrival or the nearest time limit. */
static void set_timer(load *l, double now) {
    double until = now + PROGRESS_EVERY;
    for (int i = 0; i < l->n_all; i++)
        if (at_work(l->all[i]) && l->all[i]->started + l->o->timeout_s < until)
            until = l->all[i]->started + l->o->timeout_s;
    if (may_start(l) && l->t0 + l->jobs[l->next].due < until)
        until = l->t0 + l->jobs[l->next].due;
    if (until < now + 1e-6) until = now + 1e-6;
    struct itimerspec t = {.it_value.tv_sec = (time_t)until};
    t.it_value.tv_nsec = (long)((until - (double)t.it_value.tv_sec) * 1e9);
    timerfd_settime(l->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

static void tell(load *l, double now) {
    if (!l->o->progress || now - l->told < PROGRESS_EVERY) return;
    l->told = now;
    l->o->progress(l->o->progress_user, l->done, l->failed, l->active, l->n);
}

static int turn(load *l, og_err *err) {
    struct epoll_event ev[EVENTS];
    uint64_t ticks;
    set_timer(l, og__load_now());
    int n = epoll_wait(l->epoll, ev, EVENTS, -1);
    double woke = og__load_now();
    if (n < 0 && errno != EINTR)
        return og_err_set(err, OG_EIO, "cannot wait for sockets: %s", strerror(errno));
    for (int i = 0; i < n; i++) {
        if (ev[i].data.ptr == &l->timer) {
            if (read(l->timer, &ticks, sizeof ticks) < 0) continue;
        } else if (ev[i].data.ptr == l) {
            l->stopped = true;
        } else {
            ready(l, ev[i].data.ptr, ev[i].events);
        }
    }
    expire(l, woke);
    for (conn *c; (c = pop(&l->dead));) push(&l->closed, c);
    int rc = start_due(l, err);
    double now = og__load_now();
    if (now - woke > l->total->worst_turn) l->total->worst_turn = now - woke;
    tell(l, now);
    return rc;
}

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static int open_loop(load *l, og_err *err) {
    struct epoll_event timer = {.events = EPOLLIN, .data.ptr = &l->timer};
    struct epoll_event stop = {.events = EPOLLIN, .data.ptr = l};
    struct rlimit files;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    l->buf = og_malloc(READ_SIZE);
    if (!l->buf) return og_err_set(err, OG_ENOMEM, "out of memory");
    if (l->epoll < 0 || l->timer < 0 ||
        epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->timer, &timer) < 0 ||
        (l->o->stop_fd >= 0 &&
         epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->o->stop_fd, &stop) < 0))
        return og_err_set(err, OG_EIO, "cannot watch sockets: %s", strerror(errno));
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    int fd = og__net_open(&l->o->url, 10, &l->to, err);
    if (fd < 0) return fd;
    close(fd);
    return 0;
}

static void free_load(load *l) {
    for (int i = 0; i < l->n_all; i++) {
        conn *c = l->all[i];
        if (c->fd >= 0) close(c->fd);
        og_str_free(&c->out);
        og_str_free(&c->refusal);
        og__decode_free(&c->decode);
        og_free(c);
    }
    og_free(l->all);
    og_free(l->buf);
    if (l->epoll >= 0) close(l->epoll);
    if (l->timer >= 0) close(l->timer);
}

int og__load_run(const og__load_opts *o, const og__job *jobs, int n, og__record *records,
                 og__total *total, og_err *err) {
    load l = {.o = o,
              .jobs = jobs,
              .records = records,
              .total = total,
              .n = n,
              .epoll = -1,
              .timer = -1};
    *total = (og__total){0};
    for (int i = 0; i < n; i++)
        records[i] = (og__record){.start = -1,
                                  .first_byte = -1,
                                  .ttfp = -1,
                                  .e2el = -1,
                                  .audible = -1,
                                  .input_tokens = -1};
    int rc = open_loop(&l, err);
    double cpu = cpu_seconds();
    l.t0 = og__load_now();
    if (rc == 0) rc = start_due(&l, err);
    while (rc == 0 && l.done < n && !l.stopped) rc = turn(&l, err);
    total->cpu_s = cpu_seconds() - cpu;
    total->stopped = l.stopped;
    free_load(&l);
    return rc;
}
