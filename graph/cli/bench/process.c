/* The child and its end. */
#include "graph/cli/bench/process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "graph/cli/bench/load.h"
#include "kernels/base/alloc.h"

#define LOOK_EVERY_MS 100
#define TAIL 600 /* bytes of the log that an error shows */

struct og__process {
    pid_t pid;
    bool ended;
    int status;
    char log[512];
};

static void become(const char *const *argv, int log) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL); /* ours are blocked for the signalfd */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0); /* Ctrl-C is for us; we tell it */
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, 0);
    dup2(log, 1);
    dup2(log, 2);
    execv(argv[0], (char *const *)argv);
    dprintf(2, "cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

int og__process_start(const char *const *argv, const char *log, og__process **out,
                      og_err *err) {
    *out = NULL;
    og__process *p = og_calloc(1, sizeof *p);
    if (!p) return og_err_set(err, OG_ENOMEM, "out of memory");
    snprintf(p->log, sizeof p->log, "%s", log);
    int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        og_free(p);
        return og_err_set(err, OG_EIO, "cannot write '%s': %s", log, strerror(errno));
    }
    p->pid = fork();
    if (p->pid == 0) become(argv, fd);
    close(fd);
    if (p->pid < 0) {
        og_free(p);
        return og_err_set(err, OG_EIO, "cannot start a server: %s", strerror(errno));
    }
    *out = p;
    return 0;
}

bool og__process_ended(og__process *p) {
    if (!p->ended && waitpid(p->pid, &p->status, WNOHANG) == p->pid) p->ended = true;
    return p->ended;
}

/* The last lines that it wrote. */
static void tail(const og__process *p, char *buf, size_t size) {
    buf[0] = 0;
    int fd = open(p->log, O_RDONLY | O_CLOEXEC);
    off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    off_t from = end > (off_t)size - 1 ? end - (off_t)size + 1 : 0;
    ssize_t n = fd < 0 ? 0 : pread(fd, buf, size - 1, from);
    buf[n > 0 ? n : 0] = 0;
    while (n > 0 && buf[n - 1] == '\n') buf[--n] = 0;
    if (fd >= 0) close(fd);
}

static int it_ended(const og__process *p, og_err *err) {
    char last[TAIL], how[64];
    if (WIFSIGNALED(p->status))
        snprintf(how, sizeof how, "was ended by signal %d", WTERMSIG(p->status));
    else
        snprintf(how, sizeof how, "ended with code %d", WEXITSTATUS(p->status));
    tail(p, last, sizeof last);
    return og_err_set(err, OG_EIO, "the server %s before it was ready: %s", how,
                      last[0] ? last : "(it said nothing)");
}

static bool healthy(const og__url *url) {
    og_str body = OG_STR_INIT;
    og_err none = OG_ERR_INIT;
    int status = og__load_get(url, "/health", NULL, 5, &body, &none);
    og_str_free(&body);
    return status == 200;
}

int og__process_wait(og__process *p, const og__url *url, double seconds, int stop_fd,
                     og_err *err) {
    double until = og__load_now() + seconds;
    struct pollfd stop = {stop_fd, POLLIN, 0};
    for (;;) {
        if (og__process_ended(p)) return it_ended(p, err);
        if (healthy(url)) return 0;
        if (og__load_now() >= until)
            return og_err_set(err, OG_ETIMEOUT, "the server is not ready after %g s",
                              seconds);
        if (poll(&stop, 1, LOOK_EVERY_MS) > 0 && stop_fd >= 0)
            return og_err_set(err, OG_ECANCELED, "stopped");
    }
}

void og__process_stop(og__process *p, double seconds) {
    if (!p) return;
    double until = og__load_now() + seconds;
    if (!og__process_ended(p)) kill(p->pid, SIGTERM);
    while (!og__process_ended(p) && og__load_now() < until) poll(NULL, 0, 10);
    if (!p->ended) {
        kill(p->pid, SIGKILL);
        while (waitpid(p->pid, &p->status, 0) < 0 && errno == EINTR) continue;
    }
    og_free(p);
}

int og__free_port(void) {
    struct sockaddr_in me = {.sin_family = AF_INET};
    socklen_t len = sizeof me;
    me.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = -1;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&me, len) == 0 &&
        getsockname(fd, (struct sockaddr *)&me, &len) == 0)
        port = ntohs(me.sin_port);
    if (fd >= 0) close(fd);
    return port;
}
