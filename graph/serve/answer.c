/* What goes out on a connection: heads, and bytes of outboxes as the socket has room. */
#include <stdio.h>
#include <string.h>

#include "graph/serve/http.h"

#define WRITE_MAX 16384  /* bytes of one write on HTTP/1 */
#define WRITE_MIN 2048
#define WRITES_MAX 16    /* before it is the turn of others */
#define FRAME_MAX 16000  /* bytes of one HTTP/2 frame */
#define HEADERS_MAX 8192 /* of an answer */

typedef enum progress {
    IDLE,  /* nothing to write now */
    AGAIN, /* more to write */
    OVER,  /* all is written */
    BROKEN /* cut, or the socket is dead */
} progress;

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

/* What the peer takes now, or what a socket that has room takes whole. */
static size_t allowance(struct lws *wsi, const og__call *c) {
    if (!c->h2) {
        size_t part = c->server->opts.outbox / 8;
        return part < WRITE_MIN ? WRITE_MIN : part < WRITE_MAX ? part : WRITE_MAX;
    }
    int n = lws_get_peer_write_allowance(wsi);
    if (n < 0 || n > FRAME_MAX) return FRAME_MAX;
    return (size_t)n;
}

/* Under outbox.mu, the head is out. *room: a step that waits may go on. */
static progress write_piece(struct lws *wsi, og__call *c, bool *room) {
    unsigned char buf[LWS_PRE + WRITE_MAX + 32], *at = buf + LWS_PRE;
    og__outbox *o = &c->out;
    bool last = false;
    size_t max = allowance(wsi, c), n = max ? next_piece(c, at, max, &last) : 0;
    enum lws_write_protocol how = last && !o->cut ? LWS_WRITE_HTTP_FINAL : LWS_WRITE_HTTP;
    if ((n || (last && c->h2 && !o->cut)) && lws_write(wsi, at, n, how) < 0) return BROKEN;
    if (n) {
        c->t_progress = og__clock();
        mark_first(c);
    }
    *room = o->starved && o->len < c->server->opts.outbox / 2;
    if (*room) o->starved = false;
    if (last) return o->cut ? BROKEN : OVER;
    return o->len > 0 || o->ended ? AGAIN : IDLE;
}

static progress write_some(struct lws *wsi, og__call *c) {
    og__outbox *o = &c->out;
    progress p = IDLE;
    bool room = false;
    pthread_mutex_lock(&o->mu);
    if (!o->status) {
        p = o->cut ? BROKEN : IDLE;
    } else if (!c->head_sent) {
        c->head_sent = true;
        p = write_head(wsi, c) < 0                        ? BROKEN
            : c->method == OG__HEAD || o->length == 0     ? OVER
            : o->len > 0 || o->ended                      ? AGAIN
                                                          : IDLE;
    } else {
        p = write_piece(wsi, c, &room);
    }
    pthread_mutex_unlock(&o->mu);
    if (room) og__call_kick(c);
    return p;
}

static bool has_news(og__call *c) {
    og__outbox *o = &c->out;
    pthread_mutex_lock(&o->mu);
    bool news = o->status ? !c->head_sent || o->len > 0 || o->ended : o->cut;
    pthread_mutex_unlock(&o->mu);
    return news;
}

/* The exchange is over. Returns whether the connection is to be closed. */
static bool end(og_server *s, struct lws *wsi, og__call *c, bool broken) {
    bool h2 = c->h2, leave = broken || (c->close_after && !h2), unread = c->unread;
    og__release(c);
    if (!h2) og__mark_read(wsi);
    if (broken)
        og__lost(s, c);
    else
        og__detach(s, c);
    if (!leave) leave = lws_http_transaction_completed(wsi) != 0;
    if (leave && !h2) og__linger(s, wsi, unread);
    return leave;
}

void og__send(og_server *s, og__call *c) {
    struct lws *wsi = c->wsi;
    for (int i = 0; c->held; i++) {
        if (!has_news(c)) return;
        if (i == WRITES_MAX || lws_send_pipe_choked(wsi)) {
            og__wait_for_room(c);
            return;
        }
        progress p = c->written ? OVER : write_some(wsi, c);
        if (p != BROKEN && lws_partial_buffered(wsi)) {
            c->written = p == OVER;
            c->partial = true;
            og__release(c); /* only libwebsockets can write the rest of it */
        } else if (p == OVER && lws_send_pipe_choked(wsi)) {
            c->written = true; /* the next request would wait for room without a pause */
        } else if (p == OVER || p == BROKEN) {
            if (end(s, wsi, c, p == BROKEN)) og__kill(wsi);
            return;
        }
    }
    lws_callback_on_writable(wsi);
}

int og__on_writable(struct lws *wsi, og__session *ses, og_server *s) {
    og__call *c = ses->call;
    if (!c || c->held) return 0;
    progress p = c->written ? OVER : write_some(wsi, c);
    if (p == IDLE) return 0;
    if (p == OVER && !c->h2 && lws_send_pipe_choked(wsi)) {
        c->written = true;
        p = AGAIN;
    }
    if (p == AGAIN) {
        lws_callback_on_writable(wsi);
        return 0;
    }
    return end(s, wsi, c, p == BROKEN) ? -1 : 0;
}
