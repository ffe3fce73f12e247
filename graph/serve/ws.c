/* WebSockets on the loop. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "graph/serve/ws.h"

#define PIECE_MAX 16384 /* bytes of one write */

static og_server *server_of(struct lws *wsi) {
    return lws_context_user(lws_get_context(wsi));
}

/* ---- the upgrade ------------------------------------------------------------------------- */

static void copy_header(struct lws *wsi, enum lws_token_indexes token, char *buf, int size) {
    if (lws_hdr_copy(wsi, buf, size, token) < 0) buf[0] = 0;
}

/* A page of another site must not use a server that its reader runs. */
static bool is_foreign(struct lws *wsi, const og_server *s) {
    char origin[256] = "", host[256] = "";
    const char *allowed = s->opts.cors_origin, *at;
    copy_header(wsi, WSI_TOKEN_ORIGIN, origin, sizeof origin);
    copy_header(wsi, WSI_TOKEN_HOST, host, sizeof host);
    if (!origin[0] || (allowed && (!strcmp(allowed, "*") || !strcmp(allowed, origin))))
        return false;
    at = strstr(origin, "://");
    return !at || strcasecmp(at + 3, host) != 0;
}

static const og__route *route_of(struct lws *wsi) {
    char *uri, path[OG__PATH_MAX], param[OG__PARAM_MAX];
    int n, m = lws_http_get_uri_and_method(wsi, &uri, &n);
    const char *allowed;
    if (m != LWSHUMETH_GET || n < 0 || (size_t)n >= sizeof path) return NULL;
    memcpy(path, uri, (size_t)n);
    path[n] = 0;
    const og__route *r = og__route_find(OG__GET, path, param, &allowed);
    return r && r->handler == og__get_stream ? r : NULL;
}

static int deny(struct lws *wsi, int status, const char *words, const char *code,
                const char *text) {
    unsigned char buf[LWS_PRE + 1024];
    char body[512], *at = (char *)buf + LWS_PRE;
    json_t *j = json_pack("{s:o}", "error", og__error_json(status, NULL, code, text));
    size_t n = j ? json_dumpb(j, body, sizeof body, JSON_COMPACT) : 0;
    json_decref(j);
    if (n > sizeof body) n = 0;
    int k = snprintf(at, 1024, "HTTP/1.1 %d %s\r\ncontent-type: application/json\r\n"
                     "content-length: %zu\r\nconnection: close\r\n\r\n%.*s", status, words, n,
                     (int)n, body);
    (void)!lws_write(wsi, (unsigned char *)at, (size_t)k, LWS_WRITE_HTTP_HEADERS);
    return -1;
}

static int on_upgrade(struct lws *wsi, const char *to) {
    og_server *s = server_of(wsi);
    char key[1024] = "";
    if (!to || strcasecmp(to, "websocket")) return 0;
    copy_header(wsi, WSI_TOKEN_HTTP_AUTHORIZATION, key, sizeof key);
    if (!route_of(wsi))
        return deny(wsi, 404, "Not Found", "unknown_path", "there is no WebSocket at this path");
    if (!og__key_ok(s, key))
        return deny(wsi, 401, "Unauthorized", "invalid_api_key", "an API key is needed");
    if (is_foreign(wsi, s))
        return deny(wsi, 403, "Forbidden", "forbidden", "pages of this origin are not let in");
    if (og__server_state(s) != OG__READY)
        return deny(wsi, 503, "Service Unavailable", "not_ready", "the server is not ready");
    return 0;
}

static int on_established(struct lws *wsi, og__session *ses) {
    og_server *s = server_of(wsi);
    og__ws *w = og_calloc(1, sizeof *w);
    og__call *c = w ? og__call_create(s) : NULL;
    if (!c) {
        og_free(w);
        return -1;
    }
    pthread_mutex_init(&w->mu, NULL);
    c->job = w;
    c->path = og_strdup(OG__WS_PATH);
    c->step = og__ws_step;
    c->out.status = 101;
    c->head_sent = true;
    atomic_store(&c->ticks, true);
    lws_get_peer_simple(wsi, c->peer, sizeof c->peer);
    og__enlist(s, c, wsi, ses);
    lws_set_timeout(wsi, NO_PENDING_TIMEOUT, 0);
    return 0;
}

/* ---- messages in -------------------------------------------------------------------------- */

static int too_large(struct lws *wsi) {
    static unsigned char why[] = "too large";
    lws_close_reason(wsi, LWS_CLOSE_STATUS_MESSAGE_TOO_LARGE, why, sizeof why - 1);
    return -1;
}

static int on_receive(struct lws *wsi, og__call *c, const void *in, size_t len) {
    og__ws *w = c->job;
    size_t max = c->server->opts.max_body;
    if (lws_frame_is_binary(wsi)) {
        static unsigned char why[] = "only text is understood";
        lws_close_reason(wsi, LWS_CLOSE_STATUS_UNACCEPTABLE_OPCODE, why, sizeof why - 1);
        return -1;
    }
    og_str_addn(&w->part, in, len);
    if (w->part.oom || w->part.len > max) return too_large(wsi);
    if (!lws_is_final_fragment(wsi) || lws_remaining_packet_payload(wsi)) return 0;
    pthread_mutex_lock(&w->mu);
    og_str_addn(&w->inbox, (const char *)&w->part.len, sizeof w->part.len);
    og_str_addn(&w->inbox, w->part.data ? w->part.data : "", w->part.len);
    bool full = w->inbox.oom || w->inbox.len > max + (max >> 2);
    pthread_mutex_unlock(&w->mu);
    w->part.len = 0;
    if (full) return too_large(wsi);
    og__call_kick(c);
    return 0;
}

/* ---- messages out -------------------------------------------------------------------------- */

void og__ws_send(og__call *c, og__ws_kind kind, const void *bytes, size_t n) {
    og__ws_head head = {kind, n};
    og_str s = OG_STR_INIT;
    og_str_addn(&s, (const char *)&head, sizeof head);
    og_str_addn(&s, bytes ? bytes : "", n);
    if (s.oom)
        og__reply_cut(c);
    else
        og__reply_put(c, s.data, s.len); /* whole: the loop may look at any time */
    og_str_free(&s);
}

static void take_out(og__outbox *o, void *to, size_t n) {
    if (n) memcpy(to, o->data + o->from, n);
    o->from += n;
    o->len -= n;
}

/* Under outbox.mu: the next piece of a record. 0: nothing to write. */
static size_t next_piece(og__call *c, og__ws *w, unsigned char *at,
                         enum lws_write_protocol *how) {
    og__outbox *o = &c->out;
    bool first = !w->writing;
    if (first && o->len == 0) return 0;
    if (first) {
        take_out(o, &w->out, sizeof w->out);
        w->left = w->out.n;
        w->writing = true;
    }
    size_t n = w->left < PIECE_MAX ? w->left : PIECE_MAX;
    take_out(o, at, n);
    w->left -= n;
    w->writing = w->left > 0;
    int flags = !first ? LWS_WRITE_CONTINUATION
                : w->out.kind == OG__WS_TEXT ? LWS_WRITE_TEXT : LWS_WRITE_BINARY;
    *how = (enum lws_write_protocol)(flags | (w->writing ? LWS_WRITE_NO_FIN : 0));
    return n;
}

static int on_room(struct lws *wsi, og__call *c) {
    unsigned char buf[LWS_PRE + PIECE_MAX], *at = buf + LWS_PRE;
    og__ws *w = c->job;
    enum lws_write_protocol how = LWS_WRITE_TEXT;
    pthread_mutex_lock(&c->out.mu);
    size_t n = next_piece(c, w, at, &how);
    bool over = (c->out.cut || (!n && w->out.kind == OG__WS_CLOSE)), more = c->out.len > 0;
    bool room = c->out.starved && c->out.len < c->server->opts.outbox / 2;
    if (room) c->out.starved = false;
    c->sent += (int64_t)n;
    pthread_mutex_unlock(&c->out.mu);
    if (room) og__call_kick(c);
    if (n && lws_write(wsi, at, n, how) < 0) return -1;
    if (n) c->t_progress = og__clock();
    if (over) {
        lws_close_reason(wsi, LWS_CLOSE_STATUS_NORMAL, NULL, 0);
        return -1;
    }
    if (more) lws_callback_on_writable(wsi);
    return 0;
}

int og__ws_event(struct lws *wsi, enum lws_callback_reasons reason, og__session *ses,
                 const void *in, size_t len) {
    if (reason == LWS_CALLBACK_HTTP_CONFIRM_UPGRADE) return on_upgrade(wsi, in);
    if (reason == LWS_CALLBACK_ESTABLISHED) return on_established(wsi, ses);
    if (!ses || !ses->call) return 0;
    if (reason == LWS_CALLBACK_RECEIVE) return on_receive(wsi, ses->call, in, len);
    if (reason == LWS_CALLBACK_SERVER_WRITEABLE) return on_room(wsi, ses->call);
    og__lost(server_of(wsi), ses->call);
    return 0;
}

void og__get_stream(og__call *c) {
    og__reply_header(c, "upgrade", "websocket");
    og__reply_error(c, 426, NULL, "upgrade_required", "this path speaks WebSocket");
}
