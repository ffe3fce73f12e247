/* A small HTTP client over a raw socket, so that tests see what is on the wire. Include
 * cmocka.h before this header.
 *
 *     int fd = dial(port);
 *     send_text(fd, "GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
 *     reply r = read_reply(fd, "GET");
 *     assert_int_equal(r.status, 200);
 *     reply_free(&r);
 */
#ifndef OG_TESTS_CLIENT_H
#define OG_TESTS_CLIENT_H

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENT_UNUSED __attribute__((unused))
#define CLIENT_WAIT_MS 20000

typedef struct reply {
    int status;
    char head[8192];
    char *body;
    size_t n;
    bool cut; /* the connection ended before the body did */
} reply;

CLIENT_UNUSED static int dial(int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0) fail_msg("connect: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

CLIENT_UNUSED static void send_bytes(int fd, const void *bytes, size_t n) {
    const char *p = bytes;
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0) return; /* the answer tells why */
        p += k;
        n -= (size_t)k;
    }
}

CLIENT_UNUSED static void send_text(int fd, const char *text) {
    send_bytes(fd, text, strlen(text));
}

/* At most n bytes; 0 at the end, -1 when nothing came in time. */
CLIENT_UNUSED static ssize_t read_some(int fd, void *buf, size_t n, int wait_ms) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, wait_ms) <= 0) return -1;
    ssize_t k = recv(fd, buf, n, 0);
    return k < 0 ? 0 : k;
}

CLIENT_UNUSED static const char *header_of(const reply *r, const char *name, char *buf,
                                           size_t size) {
    size_t n = strlen(name);
    for (const char *line = strstr(r->head, "\r\n"); line && line[2]; line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, name, n) && line[2 + n] == ':') {
            const char *v = line + 3 + n, *end = strstr(v, "\r\n");
            while (*v == ' ') v++;
            snprintf(buf, size, "%.*s", (int)(end ? end - v : 0), v);
            return buf;
        }
    return NULL;
}

static bool read_byte(int fd, char *c) {
    return read_some(fd, c, 1, CLIENT_WAIT_MS) == 1;
}

/* Up to and with "\r\n"; NULL at the end. */
static bool read_line(int fd, char *buf, size_t size) {
    size_t n = 0;
    while (n + 1 < size && read_byte(fd, buf + n)) {
        buf[++n] = 0;
        if (n >= 2 && !strcmp(buf + n - 2, "\r\n")) return true;
    }
    return false;
}

static bool read_body(int fd, reply *r, size_t n) {
    r->body = realloc(r->body, r->n + n + 1);
    while (n) {
        ssize_t k = read_some(fd, r->body + r->n, n, CLIENT_WAIT_MS);
        if (k <= 0) return false;
        r->n += (size_t)k;
        n -= (size_t)k;
    }
    r->body[r->n] = 0;
    return true;
}

static void read_chunks(int fd, reply *r) {
    char line[64];
    for (;;) {
        if (!read_line(fd, line, sizeof line)) break;
        size_t n = strtoul(line, NULL, 16);
        if (n == 0) {
            r->cut = !read_line(fd, line, sizeof line);
            return;
        }
        if (!read_body(fd, r, n) || !read_line(fd, line, sizeof line)) break;
    }
    r->cut = true;
}

CLIENT_UNUSED static reply read_reply(int fd, const char *method) {
    reply r = {0};
    char value[64];
    size_t n = 0;
    r.body = calloc(1, 1);
    while (n + 1 < sizeof r.head && read_byte(fd, r.head + n)) {
        r.head[++n] = 0;
        if (n >= 4 && !strcmp(r.head + n - 4, "\r\n\r\n")) break;
    }
    if (sscanf(r.head, "HTTP/1.%*d %d", &r.status) != 1) {
        r.cut = true;
        return r;
    }
    if (!strcmp(method, "HEAD") || r.status == 204 || r.status < 200) return r;
    if (header_of(&r, "content-length", value, sizeof value))
        r.cut = !read_body(fd, &r, strtoul(value, NULL, 10));
    else if (header_of(&r, "transfer-encoding", value, sizeof value))
        read_chunks(fd, &r);
    else
        while (read_body(fd, &r, 1)) continue;
    return r;
}

CLIENT_UNUSED static void reply_free(reply *r) {
    free(r->body);
    r->body = NULL;
}

/* Whether the peer has closed, within the wait. */
CLIENT_UNUSED static bool is_closed(int fd, int wait_ms) {
    char c;
    return read_some(fd, &c, 1, wait_ms) == 0;
}

/* A request on a connection that is there. headers: further lines, each with its end. */
CLIENT_UNUSED static reply ask_on(int fd, const char *method, const char *path,
                                  const char *headers, const void *body, size_t n) {
    char head[2048];
    int len = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: a\r\n%s", method, path,
                       headers ? headers : "");
    if (body)
        len += snprintf(head + len, sizeof head - (size_t)len, "Content-Length: %zu\r\n", n);
    len += snprintf(head + len, sizeof head - (size_t)len, "\r\n");
    char *all = malloc((size_t)len + n);
    memcpy(all, head, (size_t)len);
    if (n) memcpy(all + len, body, n);
    send_bytes(fd, all, (size_t)len + n);
    free(all);
    return read_reply(fd, method);
}

CLIENT_UNUSED static reply http_ask(int port, const char *method, const char *path, const char *body) {
    int fd = dial(port);
    reply r = ask_on(fd, method, path, NULL, body, body ? strlen(body) : 0);
    close(fd);
    return r;
}

/* The JSON of an answer; the test fails when it is none. The caller's. */
CLIENT_UNUSED static json_t *json_of(const reply *r) {
    json_error_t e;
    json_t *j = json_loadb(r->body, r->n, 0, &e);
    if (!j) fail_msg("status %d, not JSON: %.200s", r->status, r->body);
    return j;
}

/* An OpenAI-style error with this status and field. */
CLIENT_UNUSED static void assert_error(reply *r, int status, const char *param) {
    if (r->status != status) fail_msg("status %d, not %d: %.300s", r->status, status, r->body);
    json_t *j = json_of(r), *e = json_object_get(j, "error");
    assert_true(json_string_length(json_object_get(e, "message")) > 0);
    assert_true(json_string_length(json_object_get(e, "type")) > 0);
    const char *got = json_string_value(json_object_get(e, "param"));
    if (param)
        assert_string_equal(got ? got : "", param);
    json_decref(j);
    reply_free(r);
}

#endif
