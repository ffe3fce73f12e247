/* Sockets of HTTP/1: which are read, which have room, and how one is closed. */
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "graph/serve/http.h"

#define EVENTS_MAX 64
#define HEAD_MIN 16          /* bytes; no head of a request is shorter */
#define LOOKS_MAX 64
#define LINGER_S 2
#define LINGER_MAX (64 << 20) /* bytes that are read for nothing */

static void watch(og__call *c, int op, uint32_t events) {
    struct epoll_event e = {.events = events | EPOLLRDHUP, .data.ptr = c};
    epoll_ctl(c->server->hups, op, lws_get_socket_fd(c->wsi), &e);
}

void og__hold(og__call *c) {
    if (c->h2 || c->held) return;
    c->held = true;
    lws_rx_flow_control(c->wsi, 0);
    watch(c, EPOLL_CTL_ADD, 0);
}

void og__release(og__call *c) {
    if (!c->held) return;
    c->held = false;
    watch(c, EPOLL_CTL_DEL, 0);
    lws_rx_flow_control(c->wsi, 1);
}

void og__wait_for_room(og__call *c) {
    watch(c, EPOLL_CTL_MOD, EPOLLOUT);
}

int og__on_hups(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                size_t len) {
    struct epoll_event events[EVENTS_MAX];
    (void)user;
    (void)in;
    (void)len;
    if (reason != LWS_CALLBACK_RAW_RX_FILE) return 0;
    og_server *s = lws_context_user(lws_get_context(wsi));
    int n = epoll_wait(s->hups, events, EVENTS_MAX, 0);
    for (int i = 0; i < n; i++) {
        og__call *c = events[i].data.ptr;
        if (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
            og__drop(s, c);
            continue;
        }
        watch(c, EPOLL_CTL_MOD, 0);
        og__send(s, c);
    }
    return 0;
}

int og__wire_open(og_server *s, og_err *err) {
    s->hups = epoll_create1(EPOLL_CLOEXEC);
    lws_sock_file_fd_type fd = {.filefd = s->hups < 0 ? -1 : dup(s->hups)};
    if (fd.filefd < 0 ||
        !lws_adopt_descriptor_vhost(s->vhost, LWS_ADOPT_RAW_FILE_DESC, fd, "hups", NULL))
        return og_err_set(err, OG_EIO, "cannot watch connections");
    return 0;
}

void og__wire_close(og_server *s) {
    if (s->hups >= 0) close(s->hups);
}

/* ---- what was read --------------------------------------------------------------------- */

/* Bytes that were read from a socket since it is there, -1 when they keep coming. */
static int64_t bytes_read(int fd) {
    for (int i = 0; i < LOOKS_MAX; i++) {
        struct tcp_info a, b;
        socklen_t n = sizeof a, m = sizeof b;
        int waiting;
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &a, &n) < 0) return -1;
        if (ioctl(fd, SIOCINQ, &waiting) < 0) return -1;
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &b, &m) < 0) return -1;
        if (a.tcpi_bytes_received == b.tcpi_bytes_received)
            return (int64_t)a.tcpi_bytes_received - waiting;
    }
    return -1;
}

void og__mark_read(struct lws *wsi) {
    int64_t n = bytes_read(lws_get_socket_fd(wsi));
    lws_set_opaque_user_data(wsi, (void *)(uintptr_t)(n < 0 ? INTPTR_MAX : n));
}

bool og__is_read_ahead(struct lws *wsi) {
    int64_t before = (int64_t)(uintptr_t)lws_get_opaque_user_data(wsi);
    return before > 0 && bytes_read(lws_get_socket_fd(wsi)) - before < HEAD_MIN;
}

/* ---- the end of a connection --------------------------------------------------------------- */

void og__kill(struct lws *wsi) {
    lws_set_timeout(wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_ASYNC);
}

void og__linger(og_server *s, struct lws *wsi, bool unread) {
    int fd = lws_get_socket_fd(wsi), waiting = 0;
    if (s->opts.tls_cert) return; /* libwebsockets waits for the client itself */
    if (!unread && (ioctl(fd, SIOCINQ, &waiting) < 0 || waiting == 0)) return;
    shutdown(fd, SHUT_WR);
    lws_sock_file_fd_type rest = {.filefd = dup(fd)};
    if (rest.filefd < 0) return;
    struct lws *w =
        lws_adopt_descriptor_vhost(s->vhost, LWS_ADOPT_RAW_FILE_DESC, rest, "linger", NULL);
    if (w) lws_set_timeout(w, PENDING_TIMEOUT_USER_OK, LINGER_S);
}

int og__on_linger(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                  size_t len) {
    char rest[16384];
    int64_t *total = user;
    (void)in;
    (void)len;
    if (reason != LWS_CALLBACK_RAW_RX_FILE) return 0;
    ssize_t n = recv(lws_get_socket_fd(wsi), rest, sizeof rest, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    *total += n;
    return n == 0 || *total > LINGER_MAX ? -1 : 0;
}
