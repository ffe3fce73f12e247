/* HTTP/1.1 on a socket: what the soak's clients send and read. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/serve/soak.h"

bool soak_dial(soak_conn *c, int port, int rcvbuf) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    c->from = c->len = c->total = c->stop = 0;
    c->pause = 0;
    if (c->fd < 0) return false;
    if (rcvbuf) setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(c->fd, (struct sockaddr *)&a, sizeof a) == 0) return true;
    soak_hang_up(c, false);
    return false;
}

void soak_hang_up(soak_conn *c, bool reset) {
    struct linger at_once = {1, 0};
    if (c->fd < 0) return;
    if (reset) setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(c->fd);
    c->fd = -1;
}

bool soak_send(soak_conn *c, const void *bytes, size_t n) {
    const char *p = bytes;
    while (n) {
        ssize_t k = send(c->fd, p, n, MSG_NOSIGNAL);
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* 1: there is something; 0: the end, or as much as was wanted; -1: nothing came in time. */
static int fill(soak_conn *c) {
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    if (c->from < c->len) return 1;
    if (c->stop && c->total >= c->stop) return 0;
    if (c->pause > 0) soak_nap(c->pause);
    if (poll(&p, 1, SOAK_WAIT_S * 1000) <= 0) return -1;
    size_t most = sizeof c->buf;
    if (c->stop && c->stop - c->total < most) most = c->stop - c->total;
    ssize_t k = recv(c->fd, c->buf, most, 0);
    if (k <= 0) return 0;
    c->from = 0;
    c->len = (size_t)k;
    c->total += (size_t)k;
    return 1;
}

static bool take_byte(soak_conn *c, soak_reply *r, char *byte) {
    int rc = fill(c);
    r->timed_out |= rc < 0;
    if (rc <= 0) return false;
    *byte = c->buf[c->from++];
    return true;
}

/* Up to and without "\r\n". */
static bool take_line(soak_conn *c, soak_reply *r, char *line, size_t size) {
    size_t n = 0;
    while (n + 1 < size && take_byte(c, r, line + n)) {
        if (line[n++] != '\n') continue;
        line[n - 1] = 0;
        if (n >= 2 && line[n - 2] == '\r') line[n - 2] = 0;
        return true;
    }
    return false;
}

static bool take_body(soak_conn *c, soak_reply *r, size_t n) {
    while (n) {
        int rc = fill(c);
        r->timed_out |= rc < 0;
        if (rc <= 0) return false;
        size_t k = c->len - c->from < n ? c->len - c->from : n;
        og_str_addn(&r->body, c->buf + c->from, k);
        c->from += k;
        n -= k;
    }
    return true;
}

static bool take_chunks(soak_conn *c, soak_reply *r) {
    char line[64], *end;
    for (;;) {
        if (!take_line(c, r, line, sizeof line)) return false;
        size_t n = strtoul(line, &end, 16);
        if (end == line || *end) return false;
        if (n && !take_body(c, r, n)) return false;
        if (!take_line(c, r, line, sizeof line) || line[0]) return false;
        if (n == 0) return true;
    }
}

static bool take_head(soak_conn *c, soak_reply *r) {
    size_t n = 0;
    while (n + 1 < sizeof r->head && take_byte(c, r, r->head + n)) {
        r->head[++n] = 0;
        if (n >= 4 && !memcmp(r->head + n - 4, "\r\n\r\n", 4))
            return sscanf(r->head, "HTTP/1.1 %d", &r->status) == 1;
    }
    return false;
}

void soak_read(soak_conn *c, soak_reply *r) {
    char value[64];
    r->cut = true;
    if (!take_head(c, r)) {
        r->status = 0;
        return;
    }
    if (soak_header(r, "content-length", value, sizeof value))
        r->cut = !take_body(c, r, strtoul(value, NULL, 10));
    else if (soak_header(r, "transfer-encoding", value, sizeof value))
        r->cut = !take_chunks(c, r);
}

void soak_reply_free(soak_reply *r) {
    og_str_free(&r->body);
    memset(r, 0, sizeof *r);
}

bool soak_header(const soak_reply *r, const char *name, char *buf, size_t size) {
    size_t n = strlen(name);
    for (const char *line = strstr(r->head, "\r\n"); line;
         line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, name, n) && line[2 + n] == ':') {
            const char *v = line + 3 + n + strspn(line + 3 + n, " ");
            snprintf(buf, size, "%.*s", (int)strcspn(v, "\r"), v);
            return true;
        }
    return false;
}

void soak_request(og_str *out, const char *method, const char *path, const char *body,
                  size_t n) {
    og_str_addf(out, "%s %s HTTP/1.1\r\nHost: soak\r\n", method, path);
    if (body) og_str_addf(out, "Content-Length: %zu\r\n", n);
    og_str_add(out, "\r\n");
    if (body && n) og_str_addn(out, body, n);
}
