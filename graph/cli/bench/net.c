/* Resolving, connecting, and one whole GET. */
#include "graph/cli/bench/net.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "graph/cli/bench/load.h"

#define GET_MAX ((size_t)8 << 20)

double og__load_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int og__net_resolve(const og__url *url, og__addr *out, og_err *err) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int rc = getaddrinfo(url->host, url->port, &hints, &list), n = 0;
    if (rc)
        return og_err_set(err, OG_ENOENT, "cannot find the host '%s': %s", url->host,
                          gai_strerror(rc));
    for (struct addrinfo *a = list; a && n < OG__ADDRS_MAX; a = a->ai_next) {
        memcpy(&out[n].sa, a->ai_addr, a->ai_addrlen);
        out[n++].len = a->ai_addrlen;
    }
    freeaddrinfo(list);
    return n;
}

int og__net_connect(const og__addr *to) {
    int one = 1;
    int fd = socket(to->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (const struct sockaddr *)&to->sa, to->len) == 0 ||
        errno == EINPROGRESS)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static int wait_fd(int fd, short what, double until) {
    struct pollfd p = {fd, what, 0};
    double left = until - og__load_now();
    int rc = poll(&p, 1, left > 0 ? (int)(left * 1000) + 1 : 0);
    if (rc == 0) errno = ETIMEDOUT;
    return rc > 0 ? 0 : -1;
}

static int connect_one(const og__addr *to, double until) {
    int fd = og__net_connect(to), problem = errno;
    socklen_t len = sizeof problem;
    if (fd < 0) return -1;
    if (wait_fd(fd, POLLOUT, until) == 0) {
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &len) == 0 && problem == 0)
            return fd;
    } else {
        problem = errno;
    }
    close(fd);
    errno = problem;
    return -1;
}

int og__net_open(const og__url *url, double seconds, og__addr *out, og_err *err) {
    og__addr all[OG__ADDRS_MAX];
    int n = og__net_resolve(url, all, err);
    if (n < 0) return n;
    double until = og__load_now() + seconds;
    for (int i = 0; i < n; i++) {
        int fd = connect_one(&all[i], until);
        if (fd < 0) continue;
        *out = all[i];
        return fd;
    }
    og_err_set(err, OG_EIO, "cannot connect to %s port %s: %s", url->host, url->port,
               n ? strerror(errno) : "no address");
    og_err_hint(err, "is the server running? 'omni-graph serve PIPELINE' starts one");
    return OG_EIO;
}

int og__load_reach(const og__url *url, double seconds, og_err *err) {
    og__addr to;
    int fd = og__net_open(url, seconds, &to, err);
    if (fd >= 0) close(fd);
    return fd < 0 ? fd : 0;
}

/* ---- one GET ------------------------------------------------------------------ */

static void keep(void *user, const char *data, size_t n) {
    og_str *s = user;
    if (s->len + n <= GET_MAX) og_str_addn(s, data, n);
}

static int broken(const og__url *url, og_err *err) {
    return og_err_set(err, OG_EIO, "%s port %s: %s", url->host, url->port,
                      strerror(errno));
}

static int get_send(int fd, const og__url *url, const char *path, const char *key,
                    double until, og_err *err) {
    og_str s = OG_STR_INIT;
    og_str_addf(&s, "GET %s%s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n",
                url->path, path, url->host, url->port);
    if (key) og_str_addf(&s, "Authorization: Bearer %s\r\n", key);
    og_str_add(&s, "\r\n");
    int rc = s.oom ? og_err_set(err, OG_ENOMEM, "out of memory") : 0;
    for (size_t at = 0; rc == 0 && at < s.len;) {
        ssize_t k = send(fd, s.data + at, s.len - at, MSG_NOSIGNAL);
        if (k > 0) at += (size_t)k;
        if (k < 0 && errno != EINTR &&
            (errno != EAGAIN || wait_fd(fd, POLLOUT, until) < 0))
            rc = broken(url, err);
    }
    og_str_free(&s);
    return rc;
}

static int get_read(int fd, const og__url *url, og__http *p, double until, og_str *out,
                    og_err *err) {
    char buf[1 << 14];
    while (!p->done) {
        ssize_t k = wait_fd(fd, POLLIN, until) < 0 ? -1 : recv(fd, buf, sizeof buf, 0);
        if (k < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (k < 0) return broken(url, err);
        if (k == 0) return og__http_eof(p, err);
        long used = og__http_feed(p, buf, (size_t)k, keep, out, err);
        if (used < 0) return (int)used;
    }
    return 0;
}

int og__load_get(const og__url *url, const char *path, const char *api_key,
                 double seconds, og_str *out, og_err *err) {
    double until = og__load_now() + seconds;
    og__addr to;
    og__http p;
    int fd = og__net_open(url, seconds, &to, err);
    if (fd < 0) return fd;
    og__http_init(&p);
    int rc = get_send(fd, url, path, api_key, until, err);
    if (rc == 0) rc = get_read(fd, url, &p, until, out, err);
    close(fd);
    if (rc == 0 && out->oom) rc = og_err_set(err, OG_ENOMEM, "out of memory");
    return rc < 0 ? rc : p.status;
}
