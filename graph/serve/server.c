/* The server as a whole: its models, its states, how it begins and ends. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "graph/serve/metrics.h"
#include "graph/serve/reload.h"
#include "graph/serve/server.h"

#define BACKLOG 1024

static int bound_port(int fd) {
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n) < 0) return -1;
    if (a.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&a)->sin6_port);
    return ntohs(((struct sockaddr_in *)&a)->sin_port);
}

static int try_listen(const struct addrinfo *a) {
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    int e = errno;
    close(fd);
    errno = e;
    return -1;
}

int og_listen(const char *host, int port, int *bound, og_err *err) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int rc = getaddrinfo(host && *host ? host : NULL, service, &hints, &list);
    if (rc) return og_err_set(err, OG_EIO, "cannot listen at '%s': %s", host, gai_strerror(rc));
    int fd = -1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) fd = try_listen(a);
    int e = errno;
    freeaddrinfo(list);
    if (fd < 0)
        return og_err_set(err, OG_EIO, "cannot listen at %s port %d: %s",
                          host && *host ? host : "any address", port, strerror(e));
    *bound = bound_port(fd);
    return fd;
}

og__state og__server_state(og_server *s) {
    pthread_mutex_lock(&s->mu);
    og__state state = s->state;
    pthread_mutex_unlock(&s->mu);
    return state;
}

static bool is_called(const og__model *m, const char *name) {
    bool hit = !strcmp(m->name, name);
    for (int i = 0; i < m->n_aliases; i++) hit |= !strcmp(m->aliases[i], name);
    return hit;
}

og__model *og__server_model(og_server *s, const char *name) {
    og__model *hit = NULL;
    pthread_mutex_lock(&s->mu);
    for (int i = 0; i < s->n_models && !hit; i++)
        if (!name || !*name || is_called(&s->models[i], name)) hit = &s->models[i];
    pthread_mutex_unlock(&s->mu);
    return hit;
}

static void clear_model(og__model *m) {
    og__reload_free(m->reload);
    for (int i = 0; i < m->n_aliases; i++) og_free(m->aliases[i]);
    og_free(m->aliases);
    og_free(m->name);
}

static int copy_model(const og_serve_model *from, og__model *to, og_err *err) {
    *to = (og__model){.engine = from->engine, .created = (int64_t)time(NULL)};
    to->name = og_strdup(from->name);
    to->aliases = og_calloc((size_t)from->n_aliases + 1, sizeof *to->aliases);
    bool ok = to->name && to->aliases;
    for (int i = 0; ok && i < from->n_aliases; i++) {
        to->aliases[i] = og_strdup(from->aliases[i]);
        ok = to->aliases[i] != NULL;
        to->n_aliases += ok;
    }
    if (ok) return 0;
    clear_model(to);
    return og_err_set(err, OG_ENOMEM, "out of memory");
}

/* Without a watch it still reloads when it is told to. */
static void watch_model(og_server *s, const og__model *m) {
    og_err err = OG_ERR_INIT;
    if (og_reloader_watch(m->reload->reloader, &err) < 0)
        og__log(s, "watch model=%s failed: %s", m->name, err.msg);
}

int og_server_add(og_server *s, const og_serve_model *m, og_err *err) {
    og__model copy;
    int rc = copy_model(m, &copy, err);
    if (rc < 0) return rc;
    if (m->options && og__reload_create(s, m, &copy.reload, err) < 0) {
        clear_model(&copy);
        return OG_ENOMEM;
    }
    pthread_mutex_lock(&s->mu);
    for (int i = 0; i < s->n_models && rc == 0; i++)
        if (is_called(&s->models[i], m->name))
            rc = og_err_set(err, OG_EINVAL, "two models are called '%s'", m->name);
    if (rc == 0 && s->n_models == OG_SERVE_MAX_MODELS)
        rc = og_err_set(err, OG_ELIMIT, "too many models (limit is %d)", OG_SERVE_MAX_MODELS);
    if (rc == 0) s->models[s->n_models++] = copy;
    pthread_mutex_unlock(&s->mu);
    if (rc < 0)
        clear_model(&copy);
    else if (copy.reload && m->watch)
        watch_model(s, &copy);
    return rc;
}

void og_server_ready(og_server *s) {
    pthread_mutex_lock(&s->mu);
    if (s->state == OG__LOADING) s->state = OG__READY;
    pthread_mutex_unlock(&s->mu);
}

static void *loop_main(void *arg) {
    og_server *s = arg;
    og__http_run(s);
    pthread_mutex_lock(&s->mu);
    s->ended = true;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->mu);
    return NULL;
}

int og_server_create(const og_serve_opts *opts, int listen_fd, og_server **out, og_err *err) {
    *out = NULL;
    if (opts->workers < 1 || opts->outbox < 1 || !opts->tls_cert != !opts->tls_key)
        return og_err_set(err, OG_EINVAL, "a server needs workers, room for answers, and a "
                                          "certificate with its key or neither");
    og_server *s = og_calloc(1, sizeof *s);
    if (!s) return og_err_set(err, OG_ENOMEM, "no memory for the server");
    s->opts = *opts;
    s->listen_fd = listen_fd;
    s->hups = -1;
    s->t_start = og__clock();
    pthread_mutex_init(&s->mu, NULL);
    pthread_mutex_init(&s->loop_mu, NULL);
    pthread_cond_init(&s->cond, NULL);
    s->metrics = og__metrics_create();
    int rc = og__workers_start(s, err);
    if (rc == 0 && !s->metrics) rc = og_err_set(err, OG_ENOMEM, "no memory for the server");
    if (rc == 0) rc = og__reloads_start(s, err);
    if (rc == 0) rc = og__http_open(s, err);
    if (rc == 0) {
        s->loop_started = pthread_create(&s->loop, NULL, loop_main, s) == 0;
        if (!s->loop_started) rc = og_err_set(err, OG_EIO, "cannot start the loop thread");
    }
    if (rc < 0) {
        og_server_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

void og_server_drain(og_server *s) {
    pthread_mutex_lock(&s->mu);
    if (s->state != OG__DRAINING) s->t_drain = og__clock();
    s->state = OG__DRAINING;
    pthread_mutex_unlock(&s->mu);
    og__loop_wake(s);
}

void og_server_break(og_server *s, const char *why) {
    pthread_mutex_lock(&s->mu);
    if (!s->broken) snprintf(s->why, sizeof s->why, "%s", why);
    s->broken = true;
    pthread_mutex_unlock(&s->mu);
    og_server_drain(s);
}

int og_server_wait(og_server *s) {
    pthread_mutex_lock(&s->mu);
    while (!s->ended) pthread_cond_wait(&s->cond, &s->mu);
    int rc = s->broken ? OG_EDEVICE : s->timed_out ? OG_ETIMEOUT : 0;
    pthread_mutex_unlock(&s->mu);
    return rc;
}

void og_server_destroy(og_server *s) {
    if (!s) return;
    atomic_store(&s->stop, true);
    if (s->loop_started) {
        og__loop_wake(s);
        pthread_join(s->loop, NULL);
    }
    og__reloads_stop(s);
    pthread_mutex_lock(&s->mu);
    while (s->calls > 0) pthread_cond_wait(&s->cond, &s->mu);
    pthread_mutex_unlock(&s->mu);
    og__workers_stop(s);
    og__http_close(s);
    og__reloads_free(s);
    for (int i = 0; i < s->n_models; i++) clear_model(&s->models[i]);
    og__metrics_free(s->metrics);
    pthread_mutex_destroy(&s->mu);
    pthread_mutex_destroy(&s->loop_mu);
    pthread_cond_destroy(&s->cond);
    og_free(s);
}
