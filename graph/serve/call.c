/* One exchange, counted by the server. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "graph/serve/server.h"

double og__clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void name_call(og__call *c) {
    unsigned char r[12];
    if (getrandom(r, sizeof r, 0) != (ssize_t)sizeof r) memset(r, 0, sizeof r);
    int n = snprintf(c->id, sizeof c->id, "req-");
    for (size_t i = 0; i < sizeof r; i++)
        n += snprintf(c->id + n, sizeof c->id - (size_t)n, "%02x", r[i]);
}

og__call *og__call_create(og_server *s) {
    og__call *c = og_calloc(1, sizeof *c);
    if (!c) return NULL;
    c->server = s;
    atomic_init(&c->refs, 1);
    pthread_mutex_init(&c->out.mu, NULL);
    c->out.length = -1;
    c->t_start = c->t_progress = og__clock();
    name_call(c);
    pthread_mutex_lock(&s->mu);
    s->calls++;
    pthread_mutex_unlock(&s->mu);
    return c;
}

void og__call_ref(og__call *c) {
    atomic_fetch_add(&c->refs, 1);
}

void og__call_unref(og__call *c) {
    og_server *s = c->server;
    og__call *parent = c->parent;
    if (atomic_fetch_sub(&c->refs, 1) != 1) return;
    pthread_mutex_destroy(&c->out.mu);
    og_str_free(&c->out.head);
    og_free(c->out.data);
    og_str_free(&c->body);
    og_free(c->path);
    og_free(c->content_type);
    json_decref(c->given);
    og_free(c);
    pthread_mutex_lock(&s->mu);
    s->calls--;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->mu);
    if (parent) og__call_unref(parent);
}

void og__call_limit(og__call *c, double seconds) {
    atomic_store(&c->limit_us, (int64_t)(seconds * 1e6) + 1);
}
