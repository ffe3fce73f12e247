/* The parent: owns the listening socket, runs the worker, runs it again when it dies. It
 * never opens a device, so a device that is beyond repair takes only the worker with it. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "graph/serve/server.h"

#define PAUSE_MIN 0.1
#define PAUSE_MAX 10.0
#define SETTLED 30.0 /* a worker that lived so long did not die of its start */
#define ARGS_MAX 512
#define EXIT_USAGE 2

typedef struct parent {
    int listen_fd;
    char *const *argv;
    og_serve_log *log;
    void *log_arg;
    sigset_t set;
    pid_t worker;
    bool stop;
    double pause;
} parent;

static void say(const parent *p, const char *fmt, ...) {
    char line[512];
    va_list ap;
    if (!p->log) return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    p->log(p->log_arg, line);
}

/* In the child, between fork and exec: nothing that allocates. */
static void become_worker(const parent *p, char **argv, pid_t self) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    fcntl(p->listen_fd, F_SETFD, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == self) execv("/proc/self/exe", argv);
    _exit(127);
}

static int start(parent *p) {
    char *argv[ARGS_MAX], number[16];
    pid_t self = getpid();
    int n = 0;
    snprintf(number, sizeof number, "%d", p->listen_fd);
    for (; p->argv[n] && n < ARGS_MAX - 1; n++)
        argv[n] = strcmp(p->argv[n], "{fd}") ? p->argv[n] : number;
    argv[n] = NULL;
    p->worker = fork();
    if (p->worker == 0) become_worker(p, argv, self);
    if (p->worker < 0) say(p, "worker cannot be started: %s", strerror(errno));
    return p->worker < 0 ? -1 : 0;
}

static void on_signal(parent *p, int sig) {
    if (sig == SIGTERM || sig == SIGINT) p->stop = true;
    if (p->worker > 0 && sig != SIGCHLD) kill(p->worker, sig);
}

/* Until the worker has ended. Returns its wait status. */
static int attend(parent *p) {
    for (;;) {
        int status;
        pid_t got = waitpid(p->worker, &status, WNOHANG);
        if (got == p->worker) {
            p->worker = 0;
            return status;
        }
        int sig = sigwaitinfo(&p->set, NULL);
        if (sig > 0) on_signal(p, sig);
    }
}

/* Before it is run again; a signal ends the pause early. */
static void rest(parent *p) {
    struct timespec t = {(time_t)p->pause, (long)((p->pause - (double)(time_t)p->pause) * 1e9)};
    double until = og__clock() + p->pause;
    while (!p->stop && og__clock() < until) {
        int sig = sigtimedwait(&p->set, NULL, &t);
        if (sig > 0) on_signal(p, sig);
    }
    p->pause = p->pause * 2 < PAUSE_MAX ? p->pause * 2 : PAUSE_MAX;
}

/* Whether the worker is run again; else *code is the exit code of all. */
static bool judge(parent *p, int status, double lived, bool first, int *code) {
    bool exited = WIFEXITED(status);
    *code = exited ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (p->stop || *code == 0) return false;
    if (first && exited && *code != OG_SERVE_EXIT_AGAIN) return false;
    if (lived > SETTLED) p->pause = PAUSE_MIN;
    if (exited)
        say(p, "worker ended with code %d after %.1f s, starting it again in %.1f s", *code, lived,
            p->pause);
    else
        say(p, "worker died of signal %d after %.1f s, starting it again in %.1f s",
            WTERMSIG(status), lived, p->pause);
    return true;
}

int og_serve_parent(int listen_fd, char *const *argv, og_serve_log *log, void *log_arg) {
    parent p = {.listen_fd = listen_fd, .argv = argv, .log = log, .log_arg = log_arg,
                .pause = PAUSE_MIN};
    int code = EXIT_USAGE;
    sigemptyset(&p.set);
    sigaddset(&p.set, SIGTERM);
    sigaddset(&p.set, SIGINT);
    sigaddset(&p.set, SIGHUP);
    sigaddset(&p.set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &p.set, NULL);
    for (bool first = true;; first = false) {
        double t0 = og__clock();
        if (start(&p) < 0) return 1;
        int status = attend(&p);
        if (!judge(&p, status, og__clock() - t0, first, &code)) break;
        rest(&p);
        if (p.stop) return 0;
    }
    return code;
}
