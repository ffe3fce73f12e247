/* Sockets of the bench client. */
#ifndef OG_CLI_BENCH_NET_H
#define OG_CLI_BENCH_NET_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "graph/cli/bench/http.h"

typedef struct og__addr {
    struct sockaddr_storage sa;
    socklen_t len;
} og__addr;

#define OG__ADDRS_MAX 8

/* Addresses of a host and port. Their number, or OG_ENOENT. */
int og__net_resolve(const og__url *url, og__addr *out, og_err *err) OG_MUST_CHECK;
/* A non-blocking TCP socket that is connecting. The descriptor, or -1 (errno). */
int og__net_connect(const og__addr *to);
/* A connected one; *out is the address that answered. The descriptor, or OG_EIO. */
int og__net_open(const og__url *url, double seconds, og__addr *out,
                 og_err *err) OG_MUST_CHECK;

#endif
