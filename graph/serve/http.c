/* The loop: libwebsockets' callbacks, and nothing that waits. A connection's session points
 * to the call that is under way on it. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "graph/serve/http.h"
#include "graph/serve/ws.h"

#define TICK_US (250 * LWS_US_PER_MS)
#define SNDBUF_MAX (1 << 20)
#define SNDBUF_MIN (32 << 10) /* so that a piece is taken whole where there is room */
#define PATIENCE 2.0 /* seconds for a connection that cannot be held */
#define ACCEPTS_MAX 64 /* between two looks at the others */

/* ---- calls of the loop ---------------------------------------------------------------- */

void og__enlist(og_server *s, og__call *c, struct lws *wsi, og__session *ses) {
    c->wsi = wsi;
    c->session = ses;
    ses->call = c;
    c->next = s->live;
    if (c->next) c->next->prev = c;
    s->live = c;
    s->n_live++;
}

void og__detach(og_server *s, og__call *c) {
    if (!c->session) return;
    og__release(c);
    ((og__session *)c->session)->call = NULL;
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

void og__lost(og_server *s, og__call *c) {
    atomic_store(&c->gone, true);
    og__call_ref(c);
    og__detach(s, c);
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
        if (c->wsi) og__send(s, c);
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
                         int64_t length) {
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
    } else if (length > (int64_t)c->server->opts.max_body) {
        og__reply_error(c, 413, NULL, "body_too_large", "the body has %lld bytes, the limit is %zu",
                        (long long)length, c->server->opts.max_body);
    } else {
        return false;
    }
    c->early = true;
    return true;
}

/* The request is complete: nothing more is read until it is answered. */
static void dispatch(og__call *c) {
    if (c->t_body > 0) return;
    lws_set_timeout(c->wsi, NO_PENDING_TIMEOUT, 0);
    c->t_body = og__clock();
    if (!c->ahead) og__hold(c);
    if (c->early)
        og__loop_news(c);
    else
        og__call_kick(c);
}

/* How the body of a request is told to end. */
typedef struct framing {
    bool given, chunked, wrong;
    int64_t length;
} framing;

static framing framing_of(const og__call *c, struct lws *wsi) {
    char text[64];
    framing f = {0};
    copy_header(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH, text, sizeof text);
    f.given = lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) > 0;
    if (f.given) {
        char *end;
        errno = 0;
        f.length = strtoll(text, &end, 10);
        f.wrong = errno || text[0] < '0' || text[0] > '9' || *end;
    }
    copy_header(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING, text, sizeof text);
    f.chunked = !strcasecmp(text, "chunked");
    bool body = c->method == OG__POST || c->method == OG__OTHER;
    f.wrong |= *text && (!f.chunked || f.given || !body || c->close_after);
    return f;
}

static int say_continue(struct lws *wsi) {
    unsigned char go[LWS_PRE + 32];
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    memcpy(go + LWS_PRE, line, sizeof line - 1);
    return lws_write(wsi, go + LWS_PRE, sizeof line - 1, LWS_WRITE_HTTP_HEADERS) < 0 ? -1 : 0;
}

/* Answer or wait for the body. libwebsockets takes a POST without a length for one with a
 * very long body: such a connection ends with its answer. */
static int begin(og__call *c, struct lws *wsi, const framing *f, const char *authorization,
                 const char *allowed) {
    char text[32];
    copy_header(wsi, WSI_TOKEN_HTTP_EXPECT, text, sizeof text);
    bool expects = !strcasecmp(text, "100-continue");
    bool body = c->method == OG__POST || c->method == OG__OTHER;
    if (f->wrong) {
        og__reply_error(c, 400, NULL, "invalid_framing",
                        "Content-Length or Transfer-Encoding cannot be understood");
        c->early = c->close_after = c->unread = true;
    } else if (answer_early(c, authorization, allowed, f->length) &&
               (f->chunked || expects || f->length > (int64_t)c->server->opts.max_body)) {
        c->close_after = c->unread = true;
    }
    if (body && !f->given && !c->h2) c->close_after = true;
    c->in_chunks = f->chunked;
    bool waits = f->length > 0 || f->chunked || (body && c->h2 && !f->given);
    if (!waits || c->unread) {
        dispatch(c);
        return 0;
    }
    return expects && !c->early ? say_continue(wsi) : 0;
}

/* A request that was read together with the one before it, and has a body (http.h). */
static bool is_lost(const og__call *c, const framing *f) {
    bool body = c->method == OG__POST || c->method == OG__OTHER;
    return c->ahead && (f->length != 0 || f->wrong || (body && !f->given));
}

static int on_request(struct lws *wsi, og__session *ses, og_server *s) {
    char *uri, text[1024], authorization[1024], origin[256];
    int uri_len, m = lws_http_get_uri_and_method(wsi, &uri, &uri_len);
    if (m < 0 || ses->call) return -1;
    og__call *c = og__call_create(s);
    if (!c) return -1;
    og__enlist(s, c, wsi, ses);
    c->method = method_of(m);
    c->h2 = lws_get_network_wsi(wsi) != wsi;
    c->ahead = !c->h2 && og__is_read_ahead(wsi);
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
    framing f = framing_of(c, wsi);
    copy_header(wsi, WSI_TOKEN_CONNECTION, text, sizeof text);
    c->close_after |= !strcasecmp(text, "close");
    if (is_lost(c, &f)) {
        og__linger(s, wsi, true);
        return -1;
    }
    const char *allowed;
    c->route = og__route_find(c->method, c->path, c->param, &allowed);
    c->step = og__route_run;
    return begin(c, wsi, &f, authorization, allowed);
}

static void too_large(og__call *c) {
    og__reply_error(c, 413, NULL, "body_too_large", "the body has more than %zu bytes",
                    c->server->opts.max_body);
    c->early = c->close_after = c->unread = true;
    dispatch(c);
}

static void on_chunks(og__call *c, const void *in, size_t len) {
    int rc = og__chunks_read(&c->chunks, in, len, c->server->opts.max_body, &c->body);
    if (rc == 0) return;
    if (rc == 1) {
        dispatch(c);
    } else if (rc == OG_EREJECT) {
        og__reply_error(c, 400, NULL, "invalid_framing", "the body's chunks are broken");
        c->early = c->unread = true;
        dispatch(c);
    } else {
        too_large(c);
    }
}

static int on_body(og__call *c, const void *in, size_t len) {
    if (c->t_body > 0 || c->early) return 0;
    if (c->in_chunks) {
        on_chunks(c, in, len);
        return 0;
    }
    og_str_addn(&c->body, in, len);
    if (c->body.oom || c->body.len > c->server->opts.max_body) too_large(c);
    return 0;
}

/* Where a body comes in chunks its end is not libwebsockets' to tell. It tells ends again
 * and again while there is more that was read, and the connection cannot be held. */
static int on_body_end(og__call *c) {
    if (c->t_body > 0 && c->partial) return -1;
    if (!c->in_chunks)
        dispatch(c);
    else if (c->t_body == 0)
        too_large(c);
    return 0;
}

/* ---- time ----------------------------------------------------------------------------------- */

static bool is_stalled(og__call *c, double now) {
    double limit = c->server->opts.stall_timeout;
    if (c->partial && (limit <= 0 || limit > PATIENCE)) limit = PATIENCE;
    pthread_mutex_lock(&c->out.mu);
    bool waiting = c->out.status && (!c->head_sent || c->out.len > 0 || c->written);
    pthread_mutex_unlock(&c->out.mu);
    if (!waiting) c->t_progress = now;
    return limit > 0 && waiting && now - c->t_progress > limit;
}

void og__drop(og_server *s, og__call *c) {
    struct lws *wsi = c->wsi;
    og__lost(s, c);
    og__kill(wsi);
}

/* A request that was read ahead cannot be held: it has its answer at once, or none. */
static bool is_stuck(og__call *c) {
    return c->ahead && !c->held && c->t_body > 0 && lws_send_pipe_choked(c->wsi);
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
        if (stalled || is_stuck(c)) {
            og__drop(s, c);
            continue;
        }
        /* It would go on to count the time of a body whose end it does not know. */
        if (c->t_body > 0 && !c->h2 && !c->written)
            lws_set_timeout(c->wsi, NO_PENDING_TIMEOUT, 0);
        double own = (double)atomic_load(&c->limit_us) * 1e-6, limit = s->opts.request_timeout;
        if (own > 0 && (limit <= 0 || own < limit)) limit = own;
        if (limit > 0 && c->t_body > 0 && now - c->t_body > limit &&
            !atomic_exchange(&c->expired, true))
            og__call_kick(c);
    }
}

/* Where a device is lost for good only a new process helps: the parent starts it. */
static void check_devices(og_server *s) {
    pthread_mutex_lock(&s->mu);
    int n = s->broken ? 0 : s->n_models;
    pthread_mutex_unlock(&s->mu);
    for (int i = 0; i < n; i++) {
        og_engine_stats st;
        og_engine_get_stats(s->models[i].engine, &st);
        if (st.lost == 0) continue;
        og__log(s, "device lost model=%s, draining", s->models[i].name);
        og_server_break(s, "the device of a stage is lost");
        return;
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
        size_t most = s->opts.outbox < SNDBUF_MAX ? s->opts.outbox : SNDBUF_MAX;
        int room = most < SNDBUF_MIN ? SNDBUF_MIN : (int)most;
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
    og__session *ses = user;
    switch (reason) {
    case LWS_CALLBACK_HTTP: return on_request(wsi, ses, server_of(wsi));
    case LWS_CALLBACK_HTTP_BODY: return ses->call ? on_body(ses->call, in, len) : 0;
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
        return ses->call ? on_body_end(ses->call) : 0;
    case LWS_CALLBACK_HTTP_WRITEABLE: return og__on_writable(wsi, ses, server_of(wsi));
    case LWS_CALLBACK_HTTP_DROP_PROTOCOL:
    case LWS_CALLBACK_CLOSED_HTTP:
        if (ses && ses->call) og__lost(server_of(wsi), ses->call);
        return 0;
    case LWS_CALLBACK_SERVER_NEW_CLIENT_INSTANTIATED:
        server_of(wsi)->connections++;
        return 0;
    case LWS_CALLBACK_WSI_DESTROY:
        server_of(wsi)->connections--;
        return 0;
    case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
    case LWS_CALLBACK_ESTABLISHED:
    case LWS_CALLBACK_RECEIVE:
    case LWS_CALLBACK_SERVER_WRITEABLE:
    case LWS_CALLBACK_CLOSED: return og__ws_event(wsi, reason, ses, in, len);
    case LWS_CALLBACK_EVENT_WAIT_CANCELLED: read_news(server_of(wsi)); return 0;
    default: return lws_callback_http_dummy(wsi, reason, user, in, len);
    }
}

static const struct lws_protocols protocols[] = {
    {"http", on_event, sizeof(og__session), 0, 0, NULL, 0},
    {"listen", on_listen_event, 0, 0, 0, NULL, 0},
    {"hups", og__on_hups, 0, 0, 0, NULL, 0},
    {"linger", og__on_linger, sizeof(int64_t), 0, 0, NULL, 0},
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
    if (!s->listener) return og_err_set(err, OG_EIO, "cannot serve the listening socket");
    return og__wire_open(s, err);
}

typedef struct ticker {
    lws_sorted_usec_list_t sul; /* first: the callback gets its address */
    og_server *s;
} ticker;

static void tick(lws_sorted_usec_list_t *sul) {
    ticker *t = (ticker *)sul;
    check_times(t->s);
    check_devices(t->s);
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
    while (s->live) og__lost(s, s->live);
    pthread_mutex_lock(&s->loop_mu);
    s->closed = true;
    pthread_mutex_unlock(&s->loop_mu);
    read_news(s);
}

void og__http_close(og_server *s) {
    if (s->lws) lws_context_destroy(s->lws);
    s->lws = NULL;
    og__wire_close(s);
}
