/* A client of the soak: asks, one request after another, each in a way drawn by lot. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "graph/serve/server.h"
#include "tests/serve/soak.h"

#define SPEECH "/v1/audio/speech"

static const char *const texts[SOAK_TEXTS] = {"Good morning.", "The cat sat on the mat.",
                                              "Yes.", "We will meet at the old bridge."};

typedef enum form { WHOLE_PCM, WHOLE_WAV, RAW_PCM, RAW_WAV, EVENTS, FORMS } form;
static const char *const how[FORMS] = {
    ", \"response_format\": \"pcm\"",
    ", \"response_format\": \"wav\"",
    ", \"response_format\": \"pcm\", \"stream_format\": \"audio\"",
    ", \"stream\": true, \"stream_format\": \"audio\"",
    ", \"response_format\": \"pcm\", \"stream\": true",
};

/* One request under way: what could hold for it is told by the counters around it. */
typedef struct exchange {
    soak_world *w;
    int text;
    form form;
    long reload, fault; /* settled when it was sent */
    bool hurried;       /* with a time limit that it may not keep */
    soak_reply r;
} exchange;

static int body_of(int text, form f, const char *more, char *buf, size_t size) {
    return snprintf(buf, size,
                    "{\"input\": \"%s\", \"voice\": \"rms\", \"seed\": %d%s%s}",
                    texts[text], 40 + text, how[f], more);
}

static void start(exchange *x, soak_world *w, uint64_t *rng) {
    *x = (exchange){.w = w,
                    .text = soak_below(rng, SOAK_TEXTS),
                    .form = (form)soak_below(rng, FORMS)};
    x->reload = atomic_load(&w->reloads.settled);
    x->fault = atomic_load(&w->faults.settled);
}

static void told_lost(exchange *x, const char *what) {
    atomic_fetch_add(&x->w->n->lost, 1);
    soak_problem(x->w, "%s: status %d, %zu bytes, form %d%s", what, x->r.status,
                 x->r.body.len, (int)x->form,
                 x->r.timed_out ? ", nothing came in time" : "");
}

/* ---- answers ----------------------------------------------------------------------------- */

static void compare(exchange *x, const char *pcm, size_t n) {
    soak_world *w = x->w;
    long last = atomic_load(&w->reloads.begun);
    for (long e = x->reload; e <= last; e++) {
        const og_str *want = &w->solo[w->setting_of[e % SOAK_EPOCHS]][x->text];
        if (want->len == n && !memcmp(want->data, pcm, n)) {
            atomic_fetch_add(&w->n->same, 1);
            return;
        }
    }
    atomic_fetch_add(&w->n->wrong, 1);
    soak_problem(w, "wrong samples: text %d, form %d, %zu bytes, reloads %ld to %ld",
                 x->text, (int)x->form, n, x->reload, last);
}

/* {message, type, code} of an error; false: it is none. */
static bool read_error(const json_t *e, char *code, size_t size, const char **message) {
    const char *c = json_string_value(json_object_get(e, "code"));
    *message = json_string_value(json_object_get(e, "message"));
    snprintf(code, size, "%s", c ? c : "");
    return c && *message && **message && json_is_string(json_object_get(e, "type"));
}

/* A fault may have taken it, and is what it says. */
static bool is_fault(const exchange *x, const char *code, const char *message) {
    bool told = !strcmp(code, "device_error") && strstr(message, "a fault was injected");
    return told && atomic_load(&x->w->faults.begun) > x->fault;
}

static void take_error(exchange *x) {
    json_t *j = json_loadb(x->r.body.data ? x->r.body.data : "", x->r.body.len, 0, NULL);
    char code[64], v[32];
    const char *message = "";
    soak_counts *n = x->w->n;
    bool ok = read_error(json_object_get(j, "error"), code, sizeof code, &message);
    if (ok && x->r.status == 429 && soak_header(&x->r, "retry-after", v, sizeof v)) {
        atomic_fetch_add(&n->busy, 1);
        soak_nap(0.08);
    } else if (ok && x->r.status == 503 && is_fault(x, code, message))
        atomic_fetch_add(&n->faulted, 1);
    else if (ok && x->r.status == 504 && x->hurried)
        atomic_fetch_add(&n->timeouts, 1);
    else
        soak_problem(x->w, "unexpected answer %d: %.300s", x->r.status,
                     x->r.body.data ? x->r.body.data : "");
    json_decref(j);
}

/* Events to samples. Ends with 'd' (done), 'e' (an error, put in code and message), 0. */
static char join(const soak_reply *r, og_str *pcm, char *code, char *message,
                 size_t size) {
    char end = 0;
    for (const char *p = r->body.data, *to; p && (to = strstr(p, "\n\n")); p = to + 2) {
        json_t *j = end || strncmp(p, "data: ", 6)
                        ? NULL
                        : json_loadb(p + 6, (size_t)(to - p - 6), 0, NULL);
        const char *type = json_string_value(json_object_get(j, "type")), *text = "";
        const char *audio = json_string_value(json_object_get(j, "audio"));
        if (type && audio && !strcmp(type, "speech.audio.delta"))
            end = og__data_url(audio, pcm, NULL) < 0 ? 'x' : 0;
        else if (type && !strcmp(type, "speech.audio.done"))
            end = 'd';
        else if (type && !strcmp(type, "speech.audio.error") &&
                 read_error(json_object_get(j, "error"), code, size, &text))
            end = 'e';
        else
            end = 'x';
        snprintf(message, size, "%s", text ? text : "");
        json_decref(j);
    }
    return end;
}

static void take_events(exchange *x) {
    og_str pcm = OG_STR_INIT;
    char code[256] = "", message[256] = "";
    char end = join(&x->r, &pcm, code, message, sizeof code);
    if (end == 'd')
        compare(x, pcm.data, pcm.len);
    else if (end == 'e' && is_fault(x, code, message))
        atomic_fetch_add(&x->w->n->faulted, 1);
    else if (end == 'e' && x->hurried && !strcmp(code, "timeout"))
        atomic_fetch_add(&x->w->n->timeouts, 1);
    else
        soak_problem(x->w, "events end with '%c' %s: %s", end ? end : '-', code, message);
    og_str_free(&pcm);
}

/* Whatever came, it must be one of the answers that such a request may get. */
static void settle(exchange *x) {
    soak_reply *r = &x->r;
    bool wav = x->form == WHOLE_WAV || x->form == RAW_WAV;
    bool raw = x->form == RAW_PCM || x->form == RAW_WAV;
    if (r->status == 0 || r->timed_out)
        told_lost(x, "no answer");
    else if (r->status != 200)
        r->cut ? told_lost(x, "an error cut short") : take_error(x);
    else if (r->cut && raw && atomic_load(&x->w->faults.begun) > x->fault)
        atomic_fetch_add(&x->w->n->faulted, 1);
    else if (r->cut && raw && x->hurried)
        atomic_fetch_add(&x->w->n->timeouts, 1);
    else if (r->cut)
        told_lost(x, "an answer cut short");
    else if (x->form == EVENTS)
        take_events(x);
    else if (wav && (r->body.len < 44 || memcmp(r->body.data, "RIFF", 4)))
        soak_problem(x->w, "no WAV");
    else
        compare(x, r->body.data + (wav ? 44 : 0), r->body.len - (wav ? 44 : 0));
    soak_reply_free(r);
}

/* ---- what a client does ------------------------------------------------------------------------ */

static void post(exchange *x, const char *more, og_str *out) {
    char body[512];
    int n = body_of(x->text, x->form, more, body, sizeof body);
    soak_request(out, "POST", SPEECH, body, (size_t)n);
    atomic_fetch_add(&x->w->n->asked, 1);
}

static void ask(soak_world *w, soak_conn *c, uint64_t *rng, const char *more) {
    exchange x;
    og_str out = OG_STR_INIT;
    start(&x, w, rng);
    x.hurried = strstr(more, "timeout") != NULL;
    post(&x, more, &out);
    soak_send(c, out.data, out.len);
    soak_read(c, &x.r);
    settle(&x);
    og_str_free(&out);
}

static void ask_slowly(soak_world *w, uint64_t *rng) {
    soak_conn c;
    if (!soak_dial(&c, w->port, 4096)) return;
    c.pause = 0.001 * (1 + soak_below(rng, 20));
    ask(w, &c, rng, "");
    soak_hang_up(&c, false);
    atomic_fetch_add(&w->n->slow, 1);
}

/* Leaves at any byte: of the request, or of the answer. */
static void leave(soak_world *w, uint64_t *rng) {
    exchange x;
    soak_conn c;
    og_str out = OG_STR_INIT;
    if (!soak_dial(&c, w->port, soak_below(rng, 2) ? 4096 : 0)) return;
    start(&x, w, rng);
    post(&x, "", &out);
    bool early = soak_below(rng, 3) == 0;
    soak_send(&c, out.data, early ? (size_t)soak_below(rng, (int)out.len) : out.len);
    if (!early && soak_below(rng, 4)) {
        c.stop = 1 + (size_t)soak_below(rng, 30000);
        soak_read(&c, &x.r);
    }
    soak_nap(0.001 * soak_below(rng, 30));
    soak_hang_up(&c, soak_below(rng, 2));
    soak_reply_free(&x.r);
    og_str_free(&out);
    atomic_fetch_add(&w->n->left, 1);
}

/* A body that must be refused with this status; the connection is good for the next. */
static void refuse(soak_world *w, soak_conn *c, const char *body, size_t n, int status) {
    soak_reply r = {0};
    og_str out = OG_STR_INIT;
    char code[64];
    const char *message;
    soak_request(&out, "POST", SPEECH, body, n);
    soak_send(c, out.data, out.len);
    soak_read(c, &r);
    json_t *j = json_loadb(r.body.data ? r.body.data : "", r.body.len, 0, NULL);
    bool full = r.status == 429; /* what only the pipeline's hooks know comes later */
    if ((r.status != status && !full) || r.cut ||
        !read_error(json_object_get(j, "error"), code, sizeof code, &message))
        soak_problem(w, "a broken body got %d%s: %.200s\n  of %.200s", r.status,
                     r.cut ? ", cut" : "", r.body.data ? r.body.data : "", body);
    json_decref(j);
    soak_reply_free(&r);
    out.len = 0;
    soak_request(&out, "GET", "/v1/models", NULL, 0);
    soak_send(c, out.data, out.len);
    soak_read(c, &r);
    if (r.status != 200 || r.cut) soak_problem(w, "after a broken body: %d", r.status);
    soak_reply_free(&r);
    og_str_free(&out);
    atomic_fetch_add(&w->n->refused, 1);
}

static void send_broken(soak_world *w, soak_conn *c, uint64_t *rng) {
    static const struct {
        const char *body;
        int status;
    } fixed[] = {
        {"", 400},
        {"[]", 400},
        {"{\"input\": 3}", 400},
        {"{\"input\": \"  \"}", 400},
        {"{\"voice\": \"rms\"}", 400},
        {"{\"input\": \"a\", \"voice\": \"nobody\"}", 400},
        {"{\"input\": \"a\", \"model\": \"none\"}", 404},
        {"{\"input\": \"\xc4\xe3\"}", 400},
        {"{\"input\": \"a\", \"input\": \"b\"}", 400},
        {"{\"input\": \"a\", \"speed\": \"1\"}", 400},
        {"{\"input\": \"a\", \"response_format\": \"mpeg\"}", 400},
        {"{\"input\": \"\\ud83d\"}", 400},
        {"{\"input\": \"a\", \"max_new_tokens\": -1}", 400},
    };
    int k = soak_below(rng, (int)(sizeof fixed / sizeof *fixed) + 6);
    char body[512];
    if (k < (int)(sizeof fixed / sizeof *fixed)) {
        refuse(w, c, fixed[k].body, strlen(fixed[k].body), fixed[k].status);
        return;
    }
    int n = body_of(0, WHOLE_PCM, "", body, sizeof body);
    refuse(w, c, body, (size_t)soak_below(rng, n - 1), 400); /* cut at any byte */
}

/* What is not HTTP, or says that it is too much: the server is rid of it. */
static void send_garbage(soak_world *w, uint64_t *rng) {
    static const char *const lines[] = {
        "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999\r\n\r\n",
        "POST " SPEECH
        " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"inp",
        "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nContent-Length: -4\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "GARBAGE\r\n\r\n",
        "GET / HTTP/9.9\r\n: no name\r\n\r\n"};
    soak_conn c;
    char bytes[256];
    if (!soak_dial(&c, w->port, 0)) return;
    if (soak_below(rng, 2)) {
        const char *line = lines[soak_below(rng, 6)];
        soak_send(&c, line, strlen(line));
    } else {
        for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)soak_random(rng);
        soak_send(&c, bytes, (size_t)soak_below(rng, sizeof bytes));
    }
    soak_nap(0.001 * soak_below(rng, 20));
    soak_hang_up(&c, soak_below(rng, 2));
    atomic_fetch_add(&w->n->refused, 1);
}

/* Three in one packet are answered in their order. One that was read ahead with its body may
 * get no answer; then the connection ends, and the client knows that it was not begun. */
static void pipeline(soak_world *w, soak_conn *c, uint64_t *rng) {
    exchange x;
    og_str out = OG_STR_INIT;
    soak_reply r = {0};
    start(&x, w, rng);
    soak_request(&out, "GET", "/v1/models", NULL, 0);
    post(&x, "", &out);
    soak_request(&out, "GET", "/v1/models/demo", NULL, 0);
    soak_send(c, out.data, out.len);
    soak_read(c, &r);
    if (r.status != 200 || !strstr(r.body.data, "\"list\""))
        soak_problem(w, "first of three: %d", r.status);
    soak_reply_free(&r);
    soak_read(c, &x.r);
    bool dropped = !x.r.head[0] && !x.r.timed_out, whole = !x.r.cut;
    if (dropped)
        atomic_fetch_add(&w->n->dropped, 1);
    else
        settle(&x);
    if (whole) soak_read(c, &r);
    if (whole && r.head[0] && (r.status != 200 || !strstr(r.body.data, "\"demo\"")))
        soak_problem(w, "third of three: %d", r.status);
    soak_reply_free(&x.r);
    soak_reply_free(&r);
    og_str_free(&out);
}

static void act(soak_world *w, soak_conn *c, uint64_t *rng) {
    int lot = soak_below(rng, 100);
    if (lot < 60)
        ask(w, c, rng, "");
    else if (lot < 64)
        ask(w, c, rng, ", \"timeout\": 0.05");
    else if (lot < 70)
        ask_slowly(w, rng);
    else if (lot < 83)
        leave(w, rng);
    else if (lot < 92)
        send_broken(w, c, rng);
    else if (lot < 96)
        send_garbage(w, rng);
    else
        pipeline(w, c, rng);
}

void *soak_client_main(void *client) {
    soak_client *me = client;
    soak_conn c = {.fd = -1};
    while (soak_go_on(me->w)) {
        /* Between laps nobody is connected; and an answer may have ended the connection. */
        if (c.fd < 0 && !soak_dial(&c, me->w->port, 0)) {
            soak_problem(me->w, "cannot connect");
            continue;
        }
        act(me->w, &c, &me->rng);
        bool ended = recv(c.fd, c.buf, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
        if (ended || c.from != c.len || soak_below(&me->rng, 4) == 0 ||
            atomic_load(&me->w->pause))
            soak_hang_up(&c, false);
    }
    soak_hang_up(&c, false);
    return NULL;
}

bool soak_speak(int port, int text, og_str *pcm) {
    soak_conn c;
    soak_reply r = {0};
    og_str out = OG_STR_INIT;
    char body[512];
    int n = body_of(text, WHOLE_PCM, "", body, sizeof body);
    if (!soak_dial(&c, port, 0)) return false;
    soak_request(&out, "POST", SPEECH, body, (size_t)n);
    soak_send(&c, out.data, out.len);
    soak_read(&c, &r);
    bool ok = r.status == 200 && !r.cut && r.body.len > 0;
    og_str_addn(pcm, r.body.data ? r.body.data : "", r.body.len);
    soak_hang_up(&c, false);
    soak_reply_free(&r);
    og_str_free(&out);
    return ok;
}
