/* Ctrl-C. A thread of its own takes the signals with sigwait, so that no code of ours
 * ever runs inside a handler and a request can be cancelled from there directly. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "graph/cli/run.h"

struct og__watch {
    pthread_t thread;
    pthread_mutex_t mu;
    sigset_t set;
    og_request *r;
    int hits;
    bool stop;
};

static void *watch(void *arg) {
    og__watch *w = arg;
    for (;;) {
        int sig;
        if (sigwait(&w->set, &sig) != 0) continue;
        pthread_mutex_lock(&w->mu);
        bool stop = w->stop, counts = !stop && sig != SIGUSR1;
        if (counts && ++w->hits > 1) _exit(OG__EXIT_SIGNAL);
        if (counts && w->r) og_request_cancel(w->r);
        pthread_mutex_unlock(&w->mu);
        if (stop) return NULL;
    }
}

/* A shell that starts us in the background has SIGINT ignored, and so it stays. */
static void add_unless_ignored(sigset_t *set, int sig) {
    struct sigaction old;
    if (sigaction(sig, NULL, &old) == 0 && old.sa_handler != SIG_IGN) sigaddset(set, sig);
}

int og__watch_create(og__watch **out, og_err *err) {
    og__watch *w = og_calloc(1, sizeof *w);
    *out = NULL;
    if (!w) return og_err_set(err, OG_ENOMEM, "out of memory");
    pthread_mutex_init(&w->mu, NULL);
    sigemptyset(&w->set);
    add_unless_ignored(&w->set, SIGINT);
    add_unless_ignored(&w->set, SIGTERM);
    sigaddset(&w->set, SIGUSR1); /* ours: wakes the thread up to end it */
    if (pthread_sigmask(SIG_BLOCK, &w->set, NULL) != 0 ||
        pthread_create(&w->thread, NULL, watch, w) != 0) {
        pthread_mutex_destroy(&w->mu);
        og_free(w);
        return og_err_set(err, OG_EIO, "cannot start the thread that watches for Ctrl-C");
    }
    *out = w;
    return 0;
}

void og__watch_request(og__watch *w, og_request *r) {
    pthread_mutex_lock(&w->mu);
    w->r = r;
    if (r && w->hits) og_request_cancel(r);
    pthread_mutex_unlock(&w->mu);
}

bool og__watch_hit(og__watch *w) {
    pthread_mutex_lock(&w->mu);
    bool hit = w->hits > 0;
    pthread_mutex_unlock(&w->mu);
    return hit;
}

void og__watch_destroy(og__watch *w) {
    if (!w) return;
    pthread_mutex_lock(&w->mu);
    w->stop = true;
    pthread_mutex_unlock(&w->mu);
    pthread_kill(w->thread, SIGUSR1);
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->mu);
    og_free(w);
}
