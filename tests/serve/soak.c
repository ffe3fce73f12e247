/* The soak's world: what is served, and the looks at it. */
#include <dirent.h>
#include <jansson.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "graph/serve/server.h"
#include "tests/serve/soak.h"

#define TOLD_MAX 40
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RSS_SLACK_KIB (2 << 20) /* sanitizers keep what was freed */
#else
#define RSS_SLACK_KIB (96 << 10) /* of allocators with an arena a thread */
#endif
#define BLOCKS_SLACK 4096        /* the records of the last reloads */

/* ---- small things --------------------------------------------------------------------- */

void soak_problem(soak_world *w, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (atomic_fetch_add(&w->n->problems, 1) < TOLD_MAX)
        fprintf(stderr, "soak: %s\n", text);
}

double soak_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void soak_nap(double seconds) {
    struct timespec t = {(time_t)seconds,
                         (long)((seconds - (double)(time_t)seconds) * 1e9)};
    if (seconds > 0) nanosleep(&t, NULL);
}

/* xorshift64*, which never gets out of 0 */
uint64_t soak_random(uint64_t *s) {
    if (!*s) *s = 0x9e3779b97f4a7c15u;
    *s ^= *s >> 12;
    *s ^= *s << 25;
    *s ^= *s >> 27;
    return *s * 0x2545f4914f6cdd1du;
}

int soak_below(uint64_t *s, int n) {
    return n > 0 ? (int)((soak_random(s) >> 33) % (uint64_t)n) : 0;
}

bool soak_go_on(soak_world *w) {
    if (!atomic_load(&w->pause)) return !atomic_load(&w->stop);
    pthread_mutex_lock(&w->mu);
    w->paused++;
    pthread_cond_broadcast(&w->cond);
    while (atomic_load(&w->pause)) pthread_cond_wait(&w->cond, &w->mu);
    w->paused--;
    pthread_mutex_unlock(&w->mu);
    return !atomic_load(&w->stop);
}

static void pause_all(soak_world *w) {
    atomic_store(&w->pause, true);
    pthread_mutex_lock(&w->mu);
    while (w->paused < w->threads) pthread_cond_wait(&w->cond, &w->mu);
    pthread_mutex_unlock(&w->mu);
}

static void resume_all(soak_world *w) {
    pthread_mutex_lock(&w->mu);
    atomic_store(&w->pause, false);
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->mu);
}

/* ---- faults ------------------------------------------------------------------------------ */

static int rebuilt(const soak_world *w) {
    og_engine_stats st;
    og_engine_get_stats(w->engine, &st);
    return st.rebuilt;
}

/* A replica fails; over when it was made anew (one that leaves is not). */
static void *fault_main(void *world) {
    soak_world *w = world;
    uint64_t rng = w->opts.seed * 31 + 9;
    while (soak_go_on(w)) {
        soak_nap(0.1 + 0.02 * soak_below(&rng, 60));
        if (atomic_load(&w->no_faults)) continue;
        int before = rebuilt(w);
        atomic_fetch_add(&w->faults.begun, 1);
        if (og_engine_inject_fault(w->engine, soak_below(&rng, 2), soak_below(&rng, 2)) ==
            0)
            atomic_fetch_add(&w->n->faults, 1);
        for (int i = 0; i < 500 && rebuilt(w) == before; i++) soak_nap(0.002);
        soak_nap(0.05);
        atomic_fetch_add(&w->faults.settled, 1);
    }
    return NULL;
}

/* ---- health ------------------------------------------------------------------------------ */

#define STATES_MAX 16

typedef struct sight {
    int generation, rebuilt, n[2];
    og_replica_state states[2][STATES_MAX];
    bool up;
} sight;

static void look(soak_world *w, sight *s) {
    const og_plan *p = og_engine_plan(w->engine);
    og_engine_stats st;
    memset(s, 0, sizeof *s);
    og_engine_get_stats(w->engine, &st);
    s->generation = st.generation;
    s->rebuilt = st.rebuilt;
    s->up = true;
    for (int i = 0; i < p->n_stages && i < 2; i++) {
        bool up = false;
        s->n[i] = p->stages[i].n_replicas;
        for (int r = 0; r < s->n[i] && r < STATES_MAX; r++) {
            s->states[i][r] = og_engine_replica_state(w->engine, i, r);
            up |= s->states[i][r] == OG_REPLICA_UP;
        }
        s->up &= up;
    }
    og_plan_unref(p);
}

static bool says_the_same(const soak_reply *r, const sight *s) {
    static const char *const names[] = {"up", "rebuilding", "down", "leaving"};
    json_t *j = json_loadb(r->body.data ? r->body.data : "", r->body.len, 0, NULL);
    json_t *m = json_array_get(json_object_get(j, "models"), 0),
           *stages = json_object_get(m, "stages");
    const char *status = json_string_value(json_object_get(j, "status"));
    bool same = status && !strcmp(status, s->up ? "ok" : "degraded") &&
                r->status == (s->up ? 200 : 503) &&
                json_integer_value(json_object_get(m, "generation")) == s->generation &&
                json_integer_value(json_object_get(m, "rebuilt")) == s->rebuilt &&
                json_array_size(stages) == 2;
    for (int i = 0; same && i < 2; i++) {
        json_t *list = json_object_get(json_array_get(stages, (size_t)i), "replicas");
        same = (int)json_array_size(list) == s->n[i];
        for (int k = 0; same && k < s->n[i] && k < STATES_MAX; k++) {
            const char *state = json_string_value(
                json_object_get(json_array_get(list, (size_t)k), "state"));
            same = state && !strcmp(state, names[s->states[i][k]]);
        }
    }
    json_decref(j);
    return same;
}

/* What it says is what the engine was before and after; where these differ nothing is known. */
static void *health_main(void *world) {
    soak_world *w = world;
    soak_conn c = {.fd = -1};
    while (soak_go_on(w)) {
        og_str out = OG_STR_INIT;
        soak_reply r = {0};
        sight before, after;
        if (c.fd < 0 && !soak_dial(&c, w->port, 0)) continue;
        soak_request(&out, "GET", "/health", NULL, 0);
        look(w, &before);
        soak_send(&c, out.data, out.len);
        soak_read(&c, &r);
        look(w, &after);
        if (r.status == 0 || r.cut)
            soak_problem(w, "no word of health");
        else if (!memcmp(&before, &after, sizeof before)) {
            atomic_fetch_add(&w->n->health, 1);
            if (!says_the_same(&r, &after))
                soak_problem(w, "health is not true: %d %.900s", r.status, r.body.data);
        }
        soak_reply_free(&r);
        og_str_free(&out);
        soak_nap(0.02);
        if (atomic_load(&w->pause)) soak_hang_up(&c, false);
    }
    soak_hang_up(&c, false);
    return NULL;
}

/* ---- at the end of a lap ------------------------------------------------------------------- */

static long open_descriptors(void) {
    DIR *d = opendir("/proc/self/fd");
    long n = -1; /* its own */
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

static long resident_kib(void) {
    long pages = 0, ignored;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &ignored, &pages) != 2) pages = 0;
    if (f) fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int live_calls(soak_world *w) {
    pthread_mutex_lock(&w->server->mu);
    int n = w->server->calls;
    pthread_mutex_unlock(&w->server->mu);
    return n;
}

static bool is_idle(soak_world *w) {
    og_engine_stats st;
    sight s;
    og_engine_get_stats(w->engine, &st);
    look(w, &s);
    bool all_up = true;
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < s.n[i]; r++) all_up &= s.states[i][r] == OG_REPLICA_UP;
    return all_up && st.requests == 0 && st.leaving == 0 && live_calls(w) == 0;
}

static void check_zero(soak_world *w) {
    const og_plan *p = og_engine_plan(w->engine);
    og_engine_stats st;
    og_engine_get_stats(w->engine, &st);
    if (st.requests || st.queued || st.buffer_bytes || st.leaving || st.lost ||
        live_calls(w))
        soak_problem(
            w, "left: %d requests, %d queued, %zu bytes, %d leaving, %d lost, %d calls",
            st.requests, st.queued, st.buffer_bytes, st.leaving, st.lost, live_calls(w));
    for (int i = 0; i < p->n_stages; i++)
        for (int r = 0; r < p->stages[i].n_replicas; r++) {
            og_node_stats n = {0};
            if (og_engine_node_stats(w->engine, i, r, &n) < 0 || n.slots_used ||
                n.kv_pages_used)
                soak_problem(w, "left: %d slots, %lld pages at stage %d replica %d",
                             n.slots_used, (long long)n.kv_pages_used, i, r);
        }
    og_plan_unref(p);
}

/* The descriptor of a connection goes when the loop has seen its end. */
static void settle_descriptors(soak_world *w) {
    double end = soak_clock() + 10;
    while (w->n->fds_first && open_descriptors() > w->n->fds_first && soak_clock() < end)
        soak_nap(0.01);
}

static void end_lap(soak_world *w) {
    soak_counts *n = w->n;
    double end = soak_clock() + SOAK_WAIT_S;
    soak_settle(w, 0);
    while (!is_idle(w) && soak_clock() < end) soak_nap(0.01);
    check_zero(w);
    settle_descriptors(w);
    soak_nap(n->fds_first ? 0 : 0.3);
    malloc_trim(0);
    n->fds_last = open_descriptors();
    n->rss_last = resident_kib();
    n->blocks_last = og_alloc_live();
    n->rebuilt = rebuilt(w);
    if (atomic_fetch_add(&n->laps, 1) == 0) {
        n->fds_first = n->fds_last;
        n->rss_first = n->rss_last;
        n->blocks_first = n->blocks_last;
    }
    if (n->fds_last > n->fds_first)
        soak_problem(w, "%ld descriptors, %ld after the first lap", n->fds_last,
                     n->fds_first);
    if (n->rss_last > n->rss_first + n->rss_first / 4 + RSS_SLACK_KIB)
        soak_problem(w, "%ld KiB, %ld after the first lap", n->rss_last, n->rss_first);
    if (n->blocks_last > n->blocks_first + BLOCKS_SLACK)
        soak_problem(w, "%ld blocks, %ld after the first lap", n->blocks_last,
                     n->blocks_first);
}

/* ---- the run ---------------------------------------------------------------------------------- */

static bool serve(soak_world *w, int setting, bool alone) {
    og_plan *plan = NULL;
    og_err err = OG_ERR_INIT;
    og_engine_opts eo = {.max_queue = alone ? 0 : 4};
    og_serve_opts so = OG_SERVE_OPTS_INIT;
    so.outbox = 16384; /* slow readers stall their requests */
    so.max_body = 1 << 20;
    og_serve_model m = {.name = "demo"};
    int rc = soak_make_plan(w, setting, alone, &plan, &err);
    if (rc == 0) rc = og_engine_create(plan, &eo, &w->engine, &err);
    og_plan_destroy(plan);
    if (rc == 0) rc = w->listen_fd = og_listen("127.0.0.1", 0, &w->port, &err);
    if (rc >= 0) rc = og_server_create(&so, w->listen_fd, &w->server, &err);
    m.engine = w->engine;
    if (rc == 0) rc = og_server_add(w->server, &m, &err);
    if (rc == 0) og_server_ready(w->server);
    if (rc < 0) soak_problem(w, "%s", err.msg);
    return rc == 0;
}

static void close_served(soak_world *w) {
    og_server_destroy(w->server);
    og_engine_destroy(w->engine);
    if (w->listen_fd >= 0) close(w->listen_fd);
    w->server = NULL;
    w->engine = NULL;
    w->listen_fd = -1;
}

static bool speak_alone(soak_world *w) {
    bool ok = true;
    for (int s = 0; ok && s < SOAK_SETTINGS; s++) {
        ok = serve(w, s, true);
        for (int t = 0; ok && t < SOAK_TEXTS; t++)
            ok = soak_speak(w->port, t, &w->solo[s][t]);
        close_served(w);
    }
    if (!ok) soak_problem(w, "no answers to compare with");
    return ok;
}

static void run_laps(soak_world *w) {
    double t0 = soak_clock(), end = t0 + w->opts.seconds;
    while (soak_clock() < end) {
        double lap = soak_clock();
        atomic_store(&w->no_faults, true); /* at first: an error is then nobody's fault */
        soak_nap(w->opts.lap * 0.4);
        atomic_store(&w->no_faults, false);
        soak_nap(w->opts.lap - (soak_clock() - lap));
        pause_all(w);
        end_lap(w);
        if (soak_clock() >= end) break;
        resume_all(w);
    }
    w->n->seconds = soak_clock() - t0;
    atomic_store(&w->stop, true);
    resume_all(w);
}

static void run_threads(soak_world *w) {
    pthread_t clients[SOAK_CLIENTS], others[3];
    soak_client c[SOAK_CLIENTS];
    void *(*const mains[3])(void *) = {soak_reload_main, fault_main, health_main};
    w->threads = SOAK_CLIENTS + 3;
    for (int i = 0; i < SOAK_CLIENTS; i++) {
        c[i] =
            (soak_client){.w = w, .rng = w->opts.seed * 1000003 + (uint64_t)i * 7919 + 1};
        pthread_create(&clients[i], NULL, soak_client_main, &c[i]);
    }
    for (int i = 0; i < 3; i++) pthread_create(&others[i], NULL, mains[i], w);
    run_laps(w);
    for (int i = 0; i < SOAK_CLIENTS; i++) pthread_join(clients[i], NULL);
    for (int i = 0; i < 3; i++) pthread_join(others[i], NULL);
}

int soak_run(const soak_opts *o, soak_counts *n) {
    soak_world *w = calloc(1, sizeof *w);
    og_err err = OG_ERR_INIT;
    memset(n, 0, sizeof *n);
    w->opts = *o;
    w->n = n;
    w->listen_fd = -1;
    pthread_mutex_init(&w->mu, NULL);
    pthread_cond_init(&w->cond, NULL);
    strcpy(w->dir, "/tmp/og_soak_XXXXXX");
    if (!mkdtemp(w->dir)) soak_problem(w, "no folder for the overlay");
    snprintf(w->overlay, sizeof w->overlay, "%s/overlay.yaml", w->dir);
    if (speak_alone(w) && serve(w, 0, false)) {
        if (og_reloader_create(w->engine, &w->plan, NULL, NULL, &w->reloader, &err) < 0 ||
            og_reloader_watch(w->reloader, &err) < 0)
            soak_problem(w, "%s", err.msg);
        else
            run_threads(w);
    }
    og_reloader_destroy(w->reloader);
    close_served(w);
    unlink(w->overlay);
    rmdir(w->dir);
    for (int s = 0; s < SOAK_SETTINGS; s++)
        for (int t = 0; t < SOAK_TEXTS; t++) og_str_free(&w->solo[s][t]);
    pthread_mutex_destroy(&w->mu);
    pthread_cond_destroy(&w->cond);
    free(w);
    return (int)atomic_load(&n->problems);
}

void soak_print(const soak_counts *n, FILE *f) {
    fprintf(f, "%.0f s, %ld laps\n", n->seconds, atomic_load(&n->laps));
    fprintf(f,
            "requests     %ld asked, %ld answered bit by bit as alone, %ld queue full, "
            "%ld timed out, %ld not begun\n",
            n->asked, n->same, n->busy, n->timeouts, n->dropped);
    fprintf(f,
            "clients      %ld left in the middle, %ld read slowly, %ld broken bodies\n",
            n->left, n->slow, n->refused);
    fprintf(f, "reloads      %ld applied, %ld bad files, %ld half-written\n", n->reloads,
            n->bad_files, n->half_files);
    fprintf(f, "faults       %ld injected, %ld replicas made anew, %ld requests told\n",
            n->faults, n->rebuilt, n->faulted);
    fprintf(f, "health       %ld times true\n", n->health);
    fprintf(f, "descriptors  %ld, after the first lap %ld\n", n->fds_last, n->fds_first);
    fprintf(f, "memory       %ld MiB, after the first lap %ld MiB; blocks %ld, %ld\n",
            n->rss_last >> 10, n->rss_first >> 10, n->blocks_last, n->blocks_first);
    fprintf(f, "%ld wrong, %ld lost, %ld problems\n", n->wrong, n->lost, n->problems);
}
