/* The loop: libwebsockets' callbacks, and nothing that waits. A connection's session points
 * to the call that is under way on it. */
#include <arpa/inet.h>
#include <errno.h>
#include <libwebsockets.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "graph/serve/server.h"

#define TICK_US (250 * LWS_US_PER_MS)
#define WRITE_MAX 32768  /* bytes of one write on HTTP/1 */
#define FRAME_MAX 16000  /* and of one HTTP/2 frame */
#define HEADERS_MAX 4096 /* of an answer */
#define SNDBUF_MAX (1 << 20)
#define ACCEPTS_MAX 64   /* between two looks at the others */

typedef struct session {
    og__call *call;
} session;

/* ---- calls of the loop ---------------------------------------------------------------- */

static void enlist(og_server *s, og__call *c) {
    c->next = s->live;
    if (c->next) c->next->prev = c;
    s->live = c;
    s->n_live++;
}

/* The connection has no more to do with the call. */
static void detach(og_server *s, og__call *c) {
    if (!c->session) return;
    ((session *)c->session)->call = NULL;
    c->session = NULL;
    c->wsi = NULL;
    if (c->prev)
        c->prev->next = c->next;
    else
        s->live = c->next;
    if (c->next) c->next->prev = c->prev;
    s->n_live--;
    og__log_call(c);
    og__call_unref(c);
}

static void lost(og_server *s, og__call *c) {
    atomic_store(&c->gone, true);
    og__call_ref(c);
    detach(s, c);
    og__call_kick(c);
    og__call_unref(c);
}

void og__loop_news(og__call *c) {
    og_server *s = c->server;
    if (c->parent) {
        og__call_kick(c->parent);
        return;
    }
    pthread_mutex_lock(&s->loop_mu);
    bool add = !c->has_news && !s->closed;
    if (add) {
        c->has_news = true;
        c->next_news = s->news;
        s->news = c;
        og__call_ref(c);
    }
    pthread_mutex_unlock(&s->loop_mu);
    if (add) og__loop_wake(s);
}

void og__loop_wake(og_server *s) {
    if (s->lws) lws_cancel_service(s->lws);
}

static void read_news(og_server *s) {
    pthread_mutex_lock(&s->loop_mu);
    og__call *c = s->news;
    s->news = NULL;
    pthread_mutex_unlock(&s->loop_mu);
    while (c) {
        pthread_mutex_lock(&s->loop_mu);
        og__call *next = c->next_news;
        c->has_news = false;
        pthread_mutex_unlock(&s->loop_mu);
        if (c->wsi) lws_callback_on_writable(c->wsi);
        og__call_unref(c);
        c = next;
    }
}

/* ---- requests ------------------------------------------------------------------------- */

static void copy_header(struct lws *wsi, enum lws_token_indexes token, char *buf, int size) {
    buf[0] = 0;
    if (lws_hdr_copy(wsi, buf, size, token) < 0) buf[0] = 0;
}

static void custom_header(struct lws *wsi, const char *name, char *buf, int size) {
    buf[0] = 0;
    if (lws_hdr_custom_copy(wsi, buf, size, name, (int)strlen(name)) < 0) buf[0] = 0;
}

static og__method method_of(int m) {
    switch (m) {
    case LWSHUMETH_GET: return OG__GET;
    case LWSHUMETH_POST: return OG__POST;
    case LWSHUMETH_DELETE: return OG__DELETE;
    case LWSHUMETH_OPTIONS: return OG__OPTIONS;
    case LWSHUMETH_HEAD: return OG__HEAD;
    default: return OG__OTHER;
    }
}

/* The client's own id, where it is one that can be printed back. */
static void take_id(og__call *c, struct lws *wsi) {
    char id[OG__ID_MAX + 1];
    custom_header(wsi, "x-request-id:", id, sizeof id);
    for (const char *p = id; *p; p++)
        if ((unsigned char)*p <= 0x20 || (unsigned char)*p > 0x7e) return;
    if (id[0]) memcpy(c->id, id, sizeof id);
}

static void cors(og__call *c, const char *origin) {
    const char *allowed = c->server->opts.cors_origin;
    if (!allowed || !*origin || (strcmp(allowed, "*") && strcmp(allowed, origin))) return;
    og__reply_header(c, "access-control-allow-origin", "%s", allowed);
    if (strcmp(allowed, "*")) og__reply_header(c, "vary", "origin");
    og__reply_header(c, "access-control-expose-headers", "*");
    if (c->method != OG__OPTIONS) return;
    og__reply_header(c, "access-control-allow-methods", "GET, POST, DELETE");
    og__reply_header(c, "access-control-allow-headers",
                     "authorization, content-type, x-request-id");
    og__reply_header(c, "access-control-max-age", "86400");
}

/* What can be said before the body is there. True when the call is answered. */
static bool answer_early(og__call *c, const char *authorization, const char *allowed,
                         int64_t length, bool chunked) {
    if (c->method == OG__OPTIONS && (c->route || *allowed)) {
        og__reply_header(c, "allow", "%s", allowed);
        og__reply_head(c, 204, NULL, 0);
        og__reply_end(c);
    } else if (!c->route && *allowed) {
        og__reply_header(c, "allow", "%s", allowed);
        og__reply_error(c, 405, NULL, "method_not_allowed", "this path answers %s", allowed);
    } else if (!c->route) {
        og__reply_error(c, 404, NULL, "unknown_path", "there is no such path");
    } else if (!c->route->open && !og__key_ok(c->server, authorization)) {
        og__reply_error(c, 401, NULL, "invalid_api_key", "%s",
                        *authorization ? "this API key is not known" : "an API key is needed");
    } else if (chunked) {
        og__reply_error(c, 411, NULL, "length_required",
                        "a body needs Content-Length, chunked ones are not read");
    } else if (length > (int64_t)c->server->opts.max_body) {
        og__reply_error(c, 413, NULL, "body_too_large", "the body has %lld bytes, the limit is %zu",
                        (long long)length, c->server->opts.max_body);
    } else {
        return false;
    }
    c->early = true;
    return true;
}

/* The request is complete. It is told again while the next one already waits behind it: that
 * one is then left in the socket until this one is answered. */
static void dispatch(og__call *c) {
    if (c->t_body > 0) {
        c->held = !c->h2 && lws_rx_flow_control(c->wsi, 0) == 0;
        return;
    }
    lws_set_timeout(c->wsi, NO_PENDING_TIMEOUT, 0);
    c->t_body = og__clock();
    if (!c->early) og__call_kick(c);
    lws_callback_on_writable(c->wsi);
}

static int64_t content_length(struct lws *wsi, bool *given) {
    char text[32];
    copy_header(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH, text, sizeof text);
    *given = lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) > 0;
    if (!*given) return 0;
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    return errno || end == text || *end || n < 0 ? INT64_MAX : n;
}

static bool has_body(og__method m) {
    return m == OG__POST || m == OG__OTHER;
}

static int on_request(struct lws *wsi, session *ses, og_server *s) {
    char *uri, text[1024], authorization[1024], origin[256];
    int uri_len, m = lws_http_get_uri_and_method(wsi, &uri, &uri_len);
    if (m < 0 || ses->call) return -1;
    og__call *c = og__call_create(s);
    if (!c) return -1;
    c->wsi = wsi;
    c->session = ses;
    ses->call = c;
    enlist(s, c);
    c->method = method_of(m);
    c->h2 = lws_get_network_wsi(wsi) != wsi;
    c->path = og_strndup(uri, (size_t)uri_len);
    copy_header(wsi, WSI_TOKEN_HTTP_CONTENT_TYPE, text, sizeof text);
    c->content_type = og_strdup(text);
    if (!c->path || !c->content_type) return -1;
    lws_get_peer_simple(wsi, c->peer, sizeof c->peer);
    take_id(c, wsi);
    copy_header(wsi, WSI_TOKEN_ORIGIN, origin, sizeof origin);
    copy_header(wsi, WSI_TOKEN_HTTP_AUTHORIZATION, authorization, sizeof authorization);
    og__reply_header(c, "x-request-id", "%s", c->id);
    cors(c, origin);
    copy_header(wsi, WSI_TOKEN_HTTP, text, sizeof text);
    bool old = !strcmp(text, "HTTP/1.0");
    c->close_after = old;
    c->chunked = !c->h2 && !old;
    copy_header(wsi, WSI_TOKEN_HTTP_EXPECT, text, sizeof text);
    bool expects = !strcasecmp(text, "100-continue");
    copy_header(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING, text, sizeof text);
    bool given;
    int64_t length = content_length(wsi, &given);
    const char *allowed;
    c->route = og__route_find(c->method, c->path, c->param, &allowed);
    c->step = og__route_run;
    bool answered = answer_early(c, authorization, allowed, length, *text != 0);
    /* Without a length there is no body: the connection cannot be told so, and ends. */
    if (has_body(c->method) && !given && !c->h2) c->close_after = true;
    /* An answer that does not wait for the body leaves the rest of it unread. */
    if (answered && (*text || expects || length > (int64_t)s->opts.max_body))
        c->close_after = true;
    bool waits = has_body(c->method) && (given || c->h2) && length > 0 && !c->close_after;
    if (!waits && !(given && length > 0 && !answered)) {
        dispatch(c);
        return 0;
    }
    if (expects && !answered) {
        unsigned char go[LWS_PRE + 32];
        static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
        memcpy(go + LWS_PRE, line, sizeof line - 1);
        if (lws_write(wsi, go + LWS_PRE, sizeof line - 1, LWS_WRITE_HTTP_HEADERS) < 0) return -1;
    }
    return 0;
}

static int on_body(og__call *c, const void *in, size_t len) {
    if (c->early) return 0;
    og_str_addn(&c->body, in, len);
    if (c->body.oom || c->body.len > c->server->opts.max_body) {
        og__reply_error(c, 413, NULL, "body_too_large", "the body has more than %zu bytes",
                        c->server->opts.max_body);
        c->early = c->close_after = true;
        dispatch(c);
    }
    return 0;
}

/* ---- answers ------------------------------------------------------------------------------ */

static int add_header(struct lws *wsi, const char *name, const char *value, unsigned char **p,
                      unsigned char *end) {
    char key[128];
    snprintf(key, sizeof key, "%s:", name);
    return lws_add_http_header_by_name(wsi, (const unsigned char *)key,
                                       (const unsigned char *)value, (int)strlen(value), p, end);
}

/* Under outbox.mu. */
static int write_head(struct lws *wsi, og__call *c) {
    unsigned char buf[LWS_PRE + HEADERS_MAX], *start = buf + LWS_PRE, *p = start;
    unsigned char *end = buf + sizeof buf - 1;
    og__outbox *o = &c->out;
    if (lws_add_http_header_status(wsi, (unsigned)o->status, &p, end)) return -1;
    for (size_t at = 0; at < o->head.len;) {
        const char *name = o->head.data + at, *value = name + strlen(name) + 1;
        if (add_header(wsi, name, value, &p, end)) return -1;
        at = (size_t)(value + strlen(value) + 1 - o->head.data);
    }
    if (o->length >= 0) {
        c->chunked = false;
        if (lws_add_http_header_content_length(wsi, (lws_filepos_t)o->length, &p, end)) return -1;
    } else if (c->chunked) {
        if (add_header(wsi, "transfer-encoding", "chunked", &p, end)) return -1;
    }
    if (c->close_after && !c->h2 && add_header(wsi, "connection", "close", &p, end)) return -1;
    if (lws_finalize_http_header(wsi, &p, end)) return -1;
    bool bare = c->method == OG__HEAD || o->length == 0;
    enum lws_write_protocol how = LWS_WRITE_HTTP_HEADERS;
    if (bare && c->h2) how |= LWS_WRITE_H2_STREAM_END;
    return lws_write(wsi, start, (size_t)(p - start), how) < 0 ? -1 : 0;
}

/* The next piece of the body, framed. Returns its length, *last: nothing follows. */
static size_t next_piece(og__call *c, unsigned char *at, size_t max, bool *last) {
    og__outbox *o = &c->out;
    size_t n = o->len < max ? o->len : max, k = 0;
    if (c->chunked && n) k = (size_t)sprintf((char *)at, "%zx\r\n", n);
    if (n) memcpy(at + k, o->data + o->from, n);
    k += n;
    if (c->chunked && n) {
        memcpy(at + k, "\r\n", 2);
        k += 2;
    }
    o->from += n;
    o->len -= n;
    c->sent += (int64_t)n;
    *last = o->ended && o->len == 0;
    if (*last && c->chunked && !o->cut) {
        memcpy(at + k, "0\r\n\r\n", 5);
        k += 5;
    }
    return k;
}

static void mark_first(og__call *c) {
    if (atomic_load(&c->t_first_byte)) return;
    atomic_store(&c->t_first_byte, (int64_t)((og__clock() - c->t_start) * 1e6) + 1);
}

/* What the peer takes now. */
static size_t allowance(struct lws *wsi, const og__call *c) {
    if (!c->h2) return WRITE_MAX;
    int n = lws_get_peer_write_allowance(wsi);
    if (n < 0 || n > FRAME_MAX) return FRAME_MAX;
    return (size_t)n;
}

/* 1: over, the connection lives; 0: more to come; -1: close it. */
static int write_some(struct lws *wsi, og__call *c) {
    unsigned char buf[LWS_PRE + WRITE_MAX + 32], *at = buf + LWS_PRE;
    og__outbox *o = &c->out;
    int rc = 0;
    bool last = false, room = false, more = false;
    pthread_mutex_lock(&o->mu);
    if (!o->status) {
        rc = o->cut ? -1 : 0;
    } else if (!c->head_sent) {
        c->head_sent = true;
        rc = write_head(wsi, c);
        last = c->method == OG__HEAD || o->length == 0;
        more = o->len > 0 || o->ended;
    } else {
        size_t max = allowance(wsi, c), n = max ? next_piece(c, at, max, &last) : 0;
        enum lws_write_protocol how =
            last && !o->cut ? LWS_WRITE_HTTP_FINAL : LWS_WRITE_HTTP;
        if (n || (last && c->h2 && !o->cut))
            rc = lws_write(wsi, at, n, how) < 0 ? -1 : 0;
        if (n && rc == 0) {
            c->t_progress = og__clock();
            mark_first(c);
        }
        room = o->starved && o->len < c->server->opts.outbox / 2;
        if (room) o->starved = false;
        more = o->len > 0 || (o->ended && !last);
        if (last && o->cut) rc = -1;
    }
    pthread_mutex_unlock(&o->mu);
    if (room) og__call_kick(c);
    if (rc < 0) return -1;
    if (last) return c->close_after && !c->h2 ? -1 : 1;
    if (more) lws_callback_on_writable(wsi);
    return 0;
}

static int on_writable(struct lws *wsi, session *ses, og_server *s) {
    og__call *c = ses->call;
    if (!c) return 0;
    int rc = write_some(wsi, c);
    if (rc == 0) return 0;
    bool whole;
    pthread_mutex_lock(&c->out.mu);
    whole = c->out.ended && c->out.len == 0 && !c->out.cut;
    pthread_mutex_unlock(&c->out.mu);
    if (rc < 0 && !whole) {
        lost(s, c);
        return -1;
    }
    if (c->held) lws_rx_flow_control(wsi, 1);
    detach(s, c);
    return rc < 0 || lws_http_transaction_completed(wsi) ? -1 : 0;
}

/* ---- time ----------------------------------------------------------------------------------- */

static bool is_stalled(og__call *c, double now) {
    double limit = c->server->opts.stall_timeout;
    pthread_mutex_lock(&c->out.mu);
    bool waiting = c->head_sent && c->out.len > 0;
    pthread_mutex_unlock(&c->out.mu);
    if (!waiting) c->t_progress = now;
    return limit > 0 && waiting && now - c->t_progress > limit;
}

/* Whether the client of a connection that is not read has closed it. */
static bool hung_up(og__call *c) {
    struct pollfd p = {.fd = lws_get_socket_fd(c->wsi), .events = POLLRDHUP};
    return c->held && poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static void drop(og_server *s, og__call *c) {
    struct lws *wsi = c->wsi;
    lost(s, c);
    lws_set_timeout(wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_ASYNC);
}

static void check_times(og_server *s) {
    double now = og__clock();
    for (og__call *c = s->live, *next; c; c = next) {
        next = c->next;
        if (atomic_load(&c->ticks)) og__call_kick(c);
        bool stalled = is_stalled(c, now);
        if (stalled)
            snprintf(c->error, sizeof c->error, "the client did not read for %g s",
                     s->opts.stall_timeout);
        if (stalled || hung_up(c)) {
            drop(s, c);
            continue;
        }
        double own = (double)atomic_load(&c->limit_us) * 1e-6, limit = s->opts.request_timeout;
        if (own > 0 && (limit <= 0 || own < limit)) limit = own;
        if (limit > 0 && c->t_body > 0 && now - c->t_body > limit &&
            !atomic_exchange(&c->expired, true))
            og__call_kick(c);
    }
}

/* Whether draining is over. */
static bool is_drained(og_server *s) {
    pthread_mutex_lock(&s->mu);
    bool draining = s->state == OG__DRAINING;
    bool late = draining && og__clock() - s->t_drain > s->opts.drain_timeout;
    if (draining && late && s->n_live > 0) s->timed_out = true;
    pthread_mutex_unlock(&s->mu);
    return draining && (s->n_live == 0 || late);
}

/* ---- libwebsockets ----------------------------------------------------------------------------- */

static int on_listener(struct lws *wsi, og_server *s) {
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), on = 1;
        int room = s->opts.outbox < SNDBUF_MAX ? (int)s->opts.outbox : SNDBUF_MAX;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
            s->paused = true; /* the tick looks again */
            lws_rx_flow_control(wsi, 0);
        }
        if (fd < 0) return 0;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        /* Else the system would keep megabytes for a client that does not read. */
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        if (s->connections >= s->opts.max_connections) {
            close(fd);
            continue;
        }
        (void)!lws_adopt_socket_vhost(s->vhost, fd);
    }
    return 0;
}

static og_server *server_of(struct lws *wsi) {
    return lws_context_user(lws_get_context(wsi));
}

static int on_listen_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                           size_t len) {
    (void)user;
    (void)in;
    (void)len;
    return reason == LWS_CALLBACK_RAW_RX_FILE ? on_listener(wsi, server_of(wsi)) : 0;
}

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t len) {
    session *ses = user;
    switch (reason) {
    case LWS_CALLBACK_HTTP: return on_request(wsi, ses, server_of(wsi));
    case LWS_CALLBACK_HTTP_BODY: return ses->call ? on_body(ses->call, in, len) : 0;
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
        if (ses->call) dispatch(ses->call);
        return 0;
    case LWS_CALLBACK_HTTP_WRITEABLE: return on_writable(wsi, ses, server_of(wsi));
    case LWS_CALLBACK_HTTP_DROP_PROTOCOL:
    case LWS_CALLBACK_CLOSED_HTTP:
        if (ses && ses->call) lost(server_of(wsi), ses->call);
        return 0;
    case LWS_CALLBACK_SERVER_NEW_CLIENT_INSTANTIATED:
        server_of(wsi)->connections++;
        return 0;
    case LWS_CALLBACK_WSI_DESTROY:
        server_of(wsi)->connections--;
        return 0;
    case LWS_CALLBACK_EVENT_WAIT_CANCELLED: read_news(server_of(wsi)); return 0;
    default: return lws_callback_http_dummy(wsi, reason, user, in, len);
    }
}

static const struct lws_protocols protocols[] = {
    {"http", on_event, sizeof(session), 0, 0, NULL, 0},
    {"listen", on_listen_event, 0, 0, 0, NULL, 0},
    {NULL, NULL, 0, 0, 0, NULL, 0},
};

/* libwebsockets would write to stderr; what matters reaches us as return values. */
static void say_nothing(int level, const char *line) {
    (void)level;
    (void)line;
}

int og__http_open(og_server *s, og_err *err) {
    lws_set_log_level(0, say_nothing);
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN_SERVER,
        .protocols = protocols,
        .gid = (gid_t)-1,
        .uid = (uid_t)-1,
        .user = s,
        .server_string = "omni-graph",
        .timeout_secs = 30,
        .keepalive_timeout = 75,
        .max_http_header_data = 8192,
        .max_http_header_pool = 1024,
        .pt_serv_buf_size = 65536,
        .fd_limit_per_thread = (unsigned)s->opts.max_connections + 64,
        .ssl_cert_filepath = s->opts.tls_cert,
        .ssl_private_key_filepath = s->opts.tls_key,
        .options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS |
                   (s->opts.tls_cert ? LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT : 0),
    };
    s->lws = lws_create_context(&info);
    if (!s->lws) return og_err_set(err, OG_ENOMEM, "cannot start the HTTP loop");
    s->vhost = lws_create_vhost(s->lws, &info);
    if (!s->vhost)
        return og_err_set(err, OG_EIO, "cannot serve%s%s",
                          s->opts.tls_cert ? " with the certificate " : "",
                          s->opts.tls_cert ? s->opts.tls_cert : "");
    lws_sock_file_fd_type fd = {.filefd = dup(s->listen_fd)};
    s->listener = lws_adopt_descriptor_vhost(s->vhost, LWS_ADOPT_RAW_FILE_DESC, fd, "listen", NULL);
    return s->listener ? 0 : og_err_set(err, OG_EIO, "cannot serve the listening socket");
}

typedef struct ticker {
    lws_sorted_usec_list_t sul; /* first: the callback gets its address */
    og_server *s;
} ticker;

static void tick(lws_sorted_usec_list_t *sul) {
    ticker *t = (ticker *)sul;
    check_times(t->s);
    if (t->s->paused) {
        t->s->paused = false;
        lws_rx_flow_control(t->s->listener, 1);
    }
    lws_sul_schedule(t->s->lws, 0, sul, tick, TICK_US);
}

void og__http_run(og_server *s) {
    ticker t = {.s = s};
    lws_sul_schedule(s->lws, 0, &t.sul, tick, TICK_US);
    while (!atomic_load(&s->stop) && !is_drained(s))
        if (lws_service(s->lws, 0) < 0) break;
    lws_sul_schedule(s->lws, 0, &t.sul, NULL, LWS_SET_TIMER_USEC_CANCEL);
    while (s->live) lost(s, s->live);
    pthread_mutex_lock(&s->loop_mu);
    s->closed = true;
    pthread_mutex_unlock(&s->loop_mu);
    read_news(s);
}

void og__http_close(og_server *s) {
    if (s->lws) lws_context_destroy(s->lws);
    s->lws = NULL;
}
