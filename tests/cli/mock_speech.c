/* The mock server: a thread for every connection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cli/mock_speech.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FRAME 1920
#define QUIET 2400

static mock server;
static int listener;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

typedef struct answer {
    int fd, bytewise;
    const char *voice;
    int at; /* samples so far */
} answer;

static void nap(int ms) {
    struct timespec t = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&t, NULL);
}

static void put(answer *a, const void *data, size_t n) {
    const char *s = data;
    size_t step = a->bytewise ? 1 : n;
    for (size_t i = 0; i < n; i += step)
        if (send(a->fd, s + i, step, MSG_NOSIGNAL) < 0) return;
}

static void puts_to(answer *a, const char *s) {
    put(a, s, strlen(s));
}

static void chunk(answer *a, const void *data, size_t n) {
    char head[16];
    snprintf(head, sizeof head, "%zx\r\n", n);
    puts_to(a, head);
    put(a, data, n);
    puts_to(a, "\r\n");
}

static int is(const answer *a, const char *voice) {
    return !strcmp(a->voice, voice);
}

static void samples(answer *a, int16_t *pcm, int n) {
    for (int i = 0; i < n; i++, a->at++)
        pcm[i] = is(a, "quiet") && a->at < QUIET ? 0 : (int16_t)(8000 + a->at % 100);
}

static void base64(const unsigned char *b, int n, char *out) {
    static const char d[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)b[i] << 16 | (uint32_t)(i + 1 < n ? b[i + 1] : 0) << 8 |
                     (i + 2 < n ? b[i + 2] : 0);
        *out++ = d[v >> 18];
        *out++ = d[v >> 12 & 63];
        *out++ = i + 1 < n ? d[v >> 6 & 63] : '=';
        *out++ = i + 2 < n ? d[v & 63] : '=';
    }
    *out = 0;
}

static void event(answer *a, const int16_t *pcm, int n) {
    static const char head[] =
        "data: {\"type\": \"speech.audio.delta\", \"response_format\": "
        "\"pcm\", \"audio\": \"";
    char *text = malloc(sizeof head + (size_t)n * 3 + 64);
    strcpy(text, head);
    base64((const unsigned char *)pcm, n * 2, text + strlen(text));
    strcat(text, "\"}\n\n");
    size_t len = strlen(text), cut = is(a, "sse-split") ? len / 3 : 0;
    if (cut) chunk(a, text, cut);
    chunk(a, text + cut, len - cut);
    free(text);
}

static void events_end(answer *a) {
    static const char done[] = ": a comment\n\ndata: {\"type\": \"speech.audio.done\", "
                               "\"usage\": {}}\n\n";
    static const char bad[] = "event: error\ndata: {\"type\": \"speech.audio.error\", "
                              "\"error\": {\"message\": \"the model fell over\"}}\n\n";
    if (is(a, "sse-error"))
        chunk(a, bad, sizeof bad - 1);
    else if (!is(a, "sse-cut"))
        chunk(a, done, sizeof done - 1);
}

static void broken_off(answer *a) {
    struct linger now = {1, 0};
    setsockopt(a->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

/* Raw chunks or events. 0 when the connection is to be closed. */
static int stream(answer *a, int total, int sse) {
    int16_t pcm[FRAME];
    puts_to(a, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 "
               "OK\r\nX-Vllm-Omni-Input-Tokens: 7\r\n");
    puts_to(a, sse ? "Content-Type: text/event-stream\r\n"
                   : "Content-Type: audio/pcm;rate=24000;channels=1\r\n");
    puts_to(a, "Transfer-Encoding: chunked\r\n\r\n");
    for (int left = total; left > 0; left -= FRAME) {
        int n = left < FRAME ? left : FRAME;
        samples(a, pcm, n);
        if (sse)
            event(a, pcm, n);
        else
            chunk(a, pcm, (size_t)n * 2);
        if (is(a, "gap") && left == total) nap(120); /* a frame lasts 80 ms */
        if (is(a, "reset") && left <= total / 2) {
            nap(20);
            broken_off(a);
            return 0;
        }
    }
    if (is(a, "odd")) chunk(a, "x", 1);
    if (sse) events_end(a);
    puts_to(a, "0\r\nX-Trailer: yes\r\n\r\n");
    return 1;
}

static void u32(unsigned char *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> 8 * i);
}

static int whole(answer *a, int total, int wav) {
    char head[128];
    unsigned char h[44] = "RIFF....WAVEfmt \x10\0\0\0\1\0\1\0....\0\0\0\0\2\0\x10\0data";
    int16_t *pcm = malloc((size_t)total * 2);
    samples(a, pcm, total);
    u32(h + 4, 36 + 2 * (uint32_t)total);
    u32(h + 24, 24000);
    u32(h + 28, 48000);
    u32(h + 40, 2 * (uint32_t)total);
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n",
             2 * total + (wav ? 44 : 0));
    puts_to(a, head);
    if (wav) put(a, h, 44);
    put(a, pcm, (size_t)total * 2);
    free(pcm);
    return 1;
}

static int text(answer *a, const char *status, const char *body) {
    char head[256];
    snprintf(
        head, sizeof head,
        "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
        status, strlen(body));
    puts_to(a, head);
    puts_to(a, body);
    return 1;
}

static int number_of(const char *body, const char *key, int otherwise) {
    const char *at = strstr(body, key);
    return at ? atoi(at + strlen(key)) : otherwise;
}

static int speech(answer *a, const char *body) {
    int total = 4 * FRAME;
    if (is(a, "frames")) total = FRAME * (number_of(body, "\"max_new_tokens\":", 2) - 1);
    if (is(a, "short")) total = 7000;
    if (is(a, "bad"))
        return text(a, "400 Bad Request",
                    "{\"error\": {\"message\": \"voice: there is no voice 'bad'\"}}");
    if (is(a, "full"))
        return text(a, "429 Too Many Requests\r\nRetry-After: 1",
                    "{\"error\": {\"message\": \"the queue is full\"}}");
    if (is(a, "json")) return text(a, "200 OK", "{}");
    if (is(a, "empty"))
        return puts_to(a, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), 1;
    if (is(a, "garbage")) return puts_to(a, "SSH-2.0-mock\r\n"), 0;
    if (is(a, "close")) return 0;
    if (is(a, "hang")) return nap(1500), 0;
    if (!strstr(body, "\"stream\":true"))
        return whole(a, total, strstr(body, "\"response_format\":\"wav\"") != NULL);
    return stream(a, total, strstr(body, "\"stream_format\":\"sse\"") != NULL);
}

/* A request from the connection: headers, then the body. 0 at its end. */
static int take(int fd, char *head, size_t head_size, char **body) {
    size_t n = 0;
    while (n + 1 < head_size && recv(fd, head + n, 1, 0) == 1) {
        head[++n] = 0;
        if (n > 3 && !strcmp(head + n - 4, "\r\n\r\n")) break;
    }
    if (n < 4) return 0;
    char *at = strcasestr(head, "content-length:");
    size_t len = at ? (size_t)atol(at + 15) : 0, got = 0;
    *body = calloc(len + 1, 1);
    while (got < len) {
        ssize_t k = recv(fd, *body + got, len - got, 0);
        if (k <= 0) return 0;
        got += (size_t)k;
    }
    return 1;
}

static void remember(const char *head, const char *body) {
    pthread_mutex_lock(&mu);
    server.posts++;
    snprintf(server.last_head, sizeof server.last_head, "%.2047s", head);
    snprintf(server.last_body, sizeof server.last_body, "%.4095s", body);
    pthread_mutex_unlock(&mu);
}

static void voice_of(const char *body, char *out, size_t size) {
    const char *at = strstr(body, "\"voice\":\"");
    snprintf(out, size, "%s", at ? at + 9 : "");
    out[strcspn(out, "\"")] = 0;
}

static void *serve(void *arg) {
    answer a = {.fd = (int)(intptr_t)arg};
    char head[2048], voice[32], *body = NULL;
    for (int more = 1; more && take(a.fd, head, sizeof head, &body);) {
        voice_of(body, voice, sizeof voice);
        a.voice = voice;
        a.bytewise = is(&a, "bytewise");
        a.at = 0;
        if (!strncmp(head, "POST", 4)) {
            remember(head, body);
            more = speech(&a, body) && !is(&a, "fickle");
        } else if (!strncmp(head, "GET /v1/models ", 15)) {
            text(&a, "200 OK", "{\"data\": [{\"id\": \"mock-tts\"}]}");
        } else if (!strncmp(head, "GET /health ", 12)) {
            text(&a, "200 OK", "{\"status\": \"ok\"}");
        } else {
            text(&a, "404 Not Found", "{}");
        }
        free(body);
        body = NULL;
    }
    free(body);
    close(a.fd);
    return NULL;
}

static void *accept_all(void *arg) {
    int one = 1, fd;
    (void)arg;
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        pthread_t t;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        pthread_mutex_lock(&mu);
        server.connections++;
        pthread_mutex_unlock(&mu);
        if (pthread_create(&t, NULL, serve, (void *)(intptr_t)fd) == 0) pthread_detach(t);
    }
    return NULL;
}

mock *mock_start(void) {
    struct sockaddr_in me = {.sin_family = AF_INET};
    socklen_t len = sizeof me;
    pthread_t t;
    me.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&me, len) < 0 ||
        listen(listener, 128) < 0 ||
        getsockname(listener, (struct sockaddr *)&me, &len) < 0 ||
        pthread_create(&t, NULL, accept_all, NULL) != 0)
        fail_msg("no mock server");
    pthread_detach(t);
    server.port = ntohs(me.sin_port);
    snprintf(server.url, sizeof server.url, "http://127.0.0.1:%d", server.port);
    return &server;
}
