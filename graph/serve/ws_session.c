/* What is said in a WebSocket session: configuration and text in, audio of each piece of text
 * out, in order. Each piece is an inner call of /v1/audio/speech. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/serve/inner.h"
#include "graph/serve/ws.h"

#define QUEUE_MAX 256              /* pieces of text that wait to be spoken */
#define TEXT_MAX ((size_t)256 << 10) /* bytes of text that are not spoken yet */
#define AHEAD 2                    /* pieces that are made at once */
#define LOOK_BACK 32               /* bytes that may belong to a mark with what follows */

typedef struct piece {
    char *text; /* owned; NULL: the end of an utterance */
    json_t *config; /* owned reference */
    int utterance, index;
    bool streams, begun;
    size_t bytes;
    og__call *in;
} piece;

typedef struct session {
    json_t *config; /* fields of speech, as they are now; NULL before session.config */
    og__split split;
    bool streams, closing, closed;
    og_str text; /* not cut into pieces yet */
    size_t scanned, waiting; /* bytes of text in the queue */
    int utterance, index;
    piece queue[QUEUE_MAX];
    int first, n;
    double t_heard;
} session;

/* ---- frames out ---------------------------------------------------------------------------- */

static void send_json(og__call *c, json_t *j) {
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    if (text)
        og__ws_send(c, OG__WS_TEXT, text, strlen(text));
    else
        og__reply_cut(c);
    free(text);
}

/* error: taken over. p may be NULL. */
static void send_error(og__call *c, const piece *p, json_t *error) {
    json_t *j = json_pack("{s:s, s:O, s:o}", "type", "error", "message",
                          json_object_get(error, "message"), "error", error);
    snprintf(c->error, sizeof c->error, "%.159s",
             json_string_value(json_object_get(error, "message")));
    if (p) {
        json_object_set_new(j, "utterance_index", json_integer(p->utterance));
        json_object_set_new(j, "sentence_index", json_integer(p->index));
    }
    send_json(c, j);
}

static void fault(og__call *c, const char *param, const char *code, const char *what) {
    char text[256];
    snprintf(text, sizeof text, "%s%s%s", param ? param : "", param ? ": " : "", what);
    send_error(c, NULL, og__error_json(400, param, code, text));
}

static void send_close(og__call *c, session *s) {
    if (!s->closed) og__ws_send(c, OG__WS_CLOSE, NULL, 0);
    s->closed = true;
}

/* ---- the queue ------------------------------------------------------------------------------ */

static piece *piece_at(session *s, int i) {
    return &s->queue[(s->first + i) % QUEUE_MAX];
}

static void drop_first(session *s) {
    piece *p = piece_at(s, 0);
    if (p->text) s->waiting -= strlen(p->text);
    og__inner_drop(&p->in);
    og_free(p->text);
    json_decref(p->config);
    *p = (piece){0};
    s->first = (s->first + 1) % QUEUE_MAX;
    s->n--;
}

/* text NULL: the end of the utterance. False after an error. */
static bool enqueue(og__call *c, session *s, const char *text, size_t n) {
    char *copy = text ? og_strndup(text, n) : NULL;
    /* One place is kept for the end. */
    if (s->n >= QUEUE_MAX - (text ? 1 : 0) || (text && !copy)) {
        og_free(copy);
        fault(c, "text", "limit_exceeded", "too much is waiting to be spoken");
        return false;
    }
    *piece_at(s, s->n++) = (piece){.text = copy, .utterance = s->utterance, .index = s->index,
                                   .streams = s->streams, .config = json_incref(s->config)};
    if (copy) {
        s->index++;
        s->waiting += strlen(copy);
    }
    return true;
}

static bool is_blank(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\n", text[i])) return false;
    return true;
}

/* Cut finished pieces off the text; all: what is left is finished too. */
static void cut(og__call *c, session *s, bool all) {
    for (;;) {
        size_t n = og__split_at(s->text.data, s->text.len, s->scanned, s->split);
        if (n == 0 && all) n = s->text.len;
        if (n == 0) break;
        if (!is_blank(s->text.data, n) && !enqueue(c, s, s->text.data, n)) {
            s->text.len = 0;
            s->scanned = 0;
            return;
        }
        memmove(s->text.data, s->text.data + n, s->text.len - n);
        s->text.len -= n;
        s->scanned = 0;
    }
    s->scanned = s->text.len > LOOK_BACK ? s->text.len - LOOK_BACK : 0;
    /* A look back begins with a character, not within one. */
    while (s->scanned > 0 && ((unsigned char)s->text.data[s->scanned] & 0xc0) == 0x80)
        s->scanned--;
}

/* ---- messages in ------------------------------------------------------------------------------ */

static int split_by_name(const char *name) {
    static const char *const names[] = {"none", "sentence", "clause"};
    for (int i = 0; name && i < 3; i++)
        if (!strcmp(names[i], name)) return i;
    return -1;
}

static bool is_pcm(const json_t *config) {
    const char *f = json_string_value(json_object_get(config, "response_format"));
    return f && !strcmp(f, "pcm");
}

static void on_config(og__call *c, session *s, json_t *m) {
    static const char *const own[] = {"type", "split_granularity", "stream_audio", "input",
                                      "stream", "stream_format", "stream_options"};
    json_t *split = json_object_get(m, "split_granularity");
    json_t *streams = json_object_get(m, "stream_audio");
    int how = split && !json_is_null(split) ? split_by_name(json_string_value(split)) : 0;
    bool on = json_is_true(streams);
    double speed = json_number_value(json_object_get(m, "speed"));
    if (s->text.len)
        fault(c, "type", "invalid_value", "session.config within an utterance");
    else if (how < 0)
        fault(c, "split_granularity", "invalid_value", "must be none, sentence or clause");
    else if (streams && !json_is_null(streams) && !json_is_boolean(streams))
        fault(c, "stream_audio", "invalid_type", "must be true or false");
    else if (on && !is_pcm(m))
        fault(c, "response_format", "unsupported", "must be pcm with stream_audio");
    else if (on && speed != 0 && speed != 1)
        fault(c, "speed", "unsupported", "must be 1 with stream_audio");
    else {
        json_decref(s->config);
        s->config = json_copy(m);
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            json_object_del(s->config, own[i]);
        s->split = (og__split)how;
        s->streams = on;
    }
}

static void on_text(og__call *c, session *s, json_t *m) {
    json_t *text = json_object_get(m, "text");
    size_t n = json_string_length(text);
    if (!json_is_string(text)) {
        fault(c, "text", text ? "invalid_type" : "missing", "must be a string");
    } else if (s->waiting + s->text.len + n > TEXT_MAX) {
        fault(c, "text", "limit_exceeded", "too much is waiting to be spoken");
    } else {
        og_str_addn(&s->text, json_string_value(text), n);
        cut(c, s, false);
    }
}

static void on_done(og__call *c, session *s) {
    cut(c, s, true);
    if (s->index == 0) fault(c, "text", "missing", "there is nothing to be spoken");
    if (!enqueue(c, s, NULL, 0)) return;
    s->utterance++;
    s->index = 0;
}

static void on_message(og__call *c, session *s, const char *bytes, size_t n) {
    json_t *m = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, NULL);
    const char *type = json_string_value(json_object_get(m, "type"));
    s->t_heard = og__clock();
    if (!json_is_object(m))
        fault(c, NULL, "invalid_json", "a message must be a JSON object");
    else if (!type)
        fault(c, "type", "missing", "must be a string");
    else if (s->closing)
        fault(c, "type", "invalid_value", "the session is closed");
    else if (!strcmp(type, "session.config"))
        on_config(c, s, m);
    else if (!strcmp(type, "session.close"))
        s->closing = true;
    else if (strcmp(type, "input.text") && strcmp(type, "input.done"))
        fault(c, "type", "invalid_value", "must be session.config, input.text, input.done or "
              "session.close");
    else if (!s->config)
        fault(c, "type", "invalid_value", "session.config comes first");
    else if (!strcmp(type, "input.text"))
        on_text(c, s, m);
    else
        on_done(c, s);
    json_decref(m);
}

static void read_inbox(og__call *c, og__ws *w, session *s) {
    og_str box;
    pthread_mutex_lock(&w->mu);
    box = w->inbox;
    w->inbox = (og_str)OG_STR_INIT;
    pthread_mutex_unlock(&w->mu);
    for (size_t at = 0; at < box.len;) {
        size_t n;
        memcpy(&n, box.data + at, sizeof n);
        on_message(c, s, box.data + at + sizeof n, n);
        at += sizeof n + n;
    }
    og_str_free(&box);
}

/* ---- audio ----------------------------------------------------------------------------------------- */

static void start(og__call *c, piece *p) {
    json_t *body = json_copy(p->config);
    json_object_set_new(body, "input", json_string(p->text));
    json_object_set_new(body, "stream", json_boolean(p->streams));
    if (p->streams) json_object_set_new(body, "stream_format", json_string("audio"));
    p->in = og__inner_start(c, body);
}

static void begin(og__call *c, piece *p) {
    const char *rate = og__inner_header(p->in, "x-sample-rate", 0);
    const char *format = json_string_value(json_object_get(p->config, "response_format"));
    p->begun = true;
    send_json(c, json_pack("{s:s, s:i, s:i, s:s, s:s, s:i}", "type", "audio.start",
                           "utterance_index", p->utterance, "sentence_index", p->index,
                           "sentence_text", p->text, "format", format ? format : "wav",
                           "sample_rate", rate ? atoi(rate) : 0));
}

static void end(og__call *c, session *s, piece *p, const og_str *bytes) {
    bool bad = !p->begun || og__inner_cut(p->in);
    if (!p->begun)
        send_error(c, p, og__inner_error(bytes->data, bytes->len, ""));
    else if (bad)
        send_error(c, p, og__error_json(500, NULL, "internal_error", p->in->error));
    else
        c->audio_s += p->in->audio_s;
    send_json(c, json_pack("{s:s, s:i, s:i, s:I, s:b}", "type", "audio.done", "utterance_index",
                           p->utterance, "sentence_index", p->index, "total_bytes",
                           (json_int_t)p->bytes, "error", bad));
    s->t_heard = og__clock();
    drop_first(s);
}

/* The first piece of the queue. False: there is nothing to do for now. */
static bool speak(og__call *c, session *s) {
    piece *p = piece_at(s, 0);
    og_str bytes = OG_STR_INIT;
    if (!p->text) {
        send_json(c, json_pack("{s:s, s:i, s:i}", "type", "session.done", "utterance_index",
                               p->utterance, "total_sentences", p->index));
        drop_first(s);
        return true;
    }
    if (!p->in) {
        send_error(c, p, og__error_json(503, NULL, "out_of_memory", "out of memory"));
        drop_first(s);
        return true;
    }
    bool ended = og__inner_ended(p->in); /* asked before its bytes are taken */
    if (!p->begun && og__inner_status(p->in) == 200 && (p->streams || ended)) begin(c, p);
    if (!ended && !p->begun) return false;
    og__inner_take(p->in, &bytes);
    if (p->begun && bytes.len) {
        og__ws_send(c, OG__WS_BINARY, bytes.data, bytes.len);
        p->bytes += bytes.len;
    }
    if (ended) end(c, s, p, &bytes);
    og_str_free(&bytes);
    return ended;
}

static void start_ahead(og__call *c, session *s) {
    for (int i = 0, k = 0; i < s->n && k < AHEAD; i++) {
        piece *p = piece_at(s, i);
        if (!p->text) continue;
        k++;
        if (!p->in)
            start(c, p);
        else
            og__inner_tick(p->in, false);
    }
}

/* ---- the step ------------------------------------------------------------------------------------------ */

static void over(og__call *c) {
    (void)c;
}

static void leave(og__call *c, og__ws *w) {
    session *s = w->session;
    atomic_store(&c->ticks, false);
    c->step = over;
    c->job = NULL;
    while (s && s->n) drop_first(s);
    if (s) {
        json_decref(s->config);
        og_str_free(&s->text);
    }
    og_free(s);
    og_str_free(&w->inbox);
    og_str_free(&w->part);
    pthread_mutex_destroy(&w->mu);
    og_free(w);
}

static void check_end(og__call *c, session *s) {
    double limit = c->server->opts.stall_timeout;
    if (s->n || s->closed) return;
    bool draining = og__server_state(c->server) == OG__DRAINING;
    bool idle = limit > 0 && og__clock() - s->t_heard > limit;
    if (idle && !s->closing && !draining)
        send_error(c, NULL, og__error_json(408, NULL, "idle_timeout",
                                           "nothing was said for too long"));
    if (idle || draining || s->closing) send_close(c, s);
}

void og__ws_step(og__call *c) {
    og__ws *w = c->job;
    session *s = w->session;
    if (atomic_load(&c->gone)) {
        leave(c, w);
        return;
    }
    if (!s) {
        s = w->session = og_calloc(1, sizeof *s);
        if (!s) {
            og__reply_cut(c);
            return;
        }
        s->t_heard = og__clock();
    }
    read_inbox(c, w, s);
    start_ahead(c, s);
    while (s->n && !og__reply_full(c) && speak(c, s)) start_ahead(c, s);
    check_end(c, s);
}
