/* Counters of exchanges and of speech, and all counters as Prometheus text. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "graph/serve/metrics.h"
#include "graph/serve/reload.h"
#include "graph/serve/view.h"

#define BOUNDS 18
#define LATE_S 0.001 /* less is the clock's and the scheduler's */
#define CANCELED 499

static const double seconds_bounds[BOUNDS] = {0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15,
                                              0.25,  0.5,   1,    2,    4,    8,    15,    30,  60};
static const double factor_bounds[BOUNDS] = {0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2,
                                             0.3,   0.4,  0.5,  0.6,  0.8,  1,     1.5, 2,    4};

typedef struct histogram {
    atomic_llong n[BOUNDS + 1]; /* the last: beyond all bounds */
    atomic_llong sum;           /* millionths */
} histogram;

typedef struct speech_counts {
    histogram first_packet, first_audio, whole, factor;
    atomic_llong ok, failed, underruns, audio_us;
} speech_counts;

typedef struct call_row {
    const char *path; /* of the route table */
    og__method method;
    int status;
    long long n;
} call_row;

struct og__metrics {
    speech_counts models[OG_SERVE_MAX_MODELS];
    atomic_llong gone;
    double t_start; /* unix seconds */
    pthread_mutex_t mu; /* what follows */
    call_row *rows;
    size_t n_rows, cap_rows;
};

og__metrics *og__metrics_create(void) {
    og__metrics *m = og_calloc(1, sizeof *m);
    struct timespec t;
    if (!m) return NULL;
    pthread_mutex_init(&m->mu, NULL);
    clock_gettime(CLOCK_REALTIME, &t);
    m->t_start = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    return m;
}

void og__metrics_free(og__metrics *m) {
    if (!m) return;
    pthread_mutex_destroy(&m->mu);
    og_free(m->rows);
    og_free(m);
}

/* ---- counting ----------------------------------------------------------------------------- */

static void observe(histogram *h, const double *bounds, double x) {
    int i = 0;
    if (!(x >= 0)) return;
    while (i < BOUNDS && x > bounds[i]) i++;
    atomic_fetch_add(&h->n[i], 1);
    atomic_fetch_add(&h->sum, (long long)(x * 1e6));
}

static speech_counts *counts_of(og_server *s, const og__model *m) {
    return &s->metrics->models[m - s->models];
}

/* Out of memory the row is not counted, and nothing else is lost. */
static void count_row(og__metrics *m, const char *path, og__method method, int status) {
    size_t i = 0;
    pthread_mutex_lock(&m->mu);
    while (i < m->n_rows && (m->rows[i].path != path || m->rows[i].method != method ||
                             m->rows[i].status != status))
        i++;
    if (i == m->cap_rows) {
        size_t cap = m->cap_rows ? m->cap_rows * 2 : 32;
        call_row *more = og_realloc(m->rows, cap * sizeof *more);
        if (more) {
            m->rows = more;
            m->cap_rows = cap;
        }
    }
    if (i < m->cap_rows) {
        if (i == m->n_rows) m->rows[m->n_rows++] = (call_row){path, method, status, 0};
        m->rows[i].n++;
    }
    pthread_mutex_unlock(&m->mu);
}

void og__metrics_call(og__call *c) {
    static const char other[] = "other";
    og__metrics *m = c->server->metrics;
    int status = c->out.status ? c->out.status : CANCELED;
    count_row(m, c->route ? c->route->path : other, c->method, status);
    bool whole = c->out.length >= 0 && c->sent >= c->out.length; /* though its end came late */
    if (atomic_load(&c->gone) && !(c->out.status && whole)) atomic_fetch_add(&m->gone, 1);
    int64_t first = atomic_load(&c->t_first_byte);
    bool streamed = c->out.length < 0;
    const og__model *model = NULL;
    if (c->model[0] && streamed && first > 0) model = og__server_model(c->server, c->model);
    if (model)
        observe(&counts_of(c->server, model)->first_packet, seconds_bounds, (double)first * 1e-6);
}

void og__metrics_speech(og__call *c, const og__model *m, bool ok) {
    if (!m) return; /* it failed before it was known */
    speech_counts *k = counts_of(c->server, m);
    atomic_fetch_add(ok ? &k->ok : &k->failed, 1);
    if (!ok) return;
    double whole = og__clock() - c->t_start;
    atomic_fetch_add(&k->audio_us, (long long)(c->audio_s * 1e6));
    observe(&k->whole, seconds_bounds, whole);
    if (c->first_s >= 0) observe(&k->first_audio, seconds_bounds, c->first_s);
    if (c->audio_s > 0) observe(&k->factor, factor_bounds, whole / c->audio_s);
}

void og__metrics_piece(og__call *c, const og__model *m, double played) {
    double now = og__clock(), late = now - c->t_play - played;
    if (c->t_play <= 0) {
        c->t_play = now;
        return;
    }
    if (late < LATE_S) return;
    pthread_mutex_lock(&c->out.mu);
    bool dry = c->out.len == 0;
    pthread_mutex_unlock(&c->out.mu);
    if (!dry) return;
    c->t_play += late;
    atomic_fetch_add(&counts_of(c->server, m)->underruns, 1);
}

void og__metrics_totals(og_server *s, const og__model *m, og__speech_totals *out) {
    speech_counts *k = counts_of(s, m);
    *out = (og__speech_totals){.ok = atomic_load(&k->ok),
                               .failed = atomic_load(&k->failed),
                               .underruns = atomic_load(&k->underruns),
                               .audio_s = (double)atomic_load(&k->audio_us) * 1e-6};
}

/* ---- text --------------------------------------------------------------------------------- */

static void family(og_str *o, const char *name, const char *type, const char *help) {
    og_str_addf(o, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* name="value", with a comma before all but the first. */
static void label(og_str *o, const char *name, const char *value, bool first) {
    og_str_addf(o, "%s%s=\"", first ? "" : ",", name);
    for (; *value; value++) {
        if (*value == '\n')
            og_str_addn(o, "\\n", 2);
        else
            og_str_addf(o, *value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
    }
    og_str_addn(o, "\"", 1);
}

static void number(og_str *o, double x) {
    if (x == floor(x) && fabs(x) < 1e15)
        og_str_addf(o, " %lld\n", (long long)x);
    else
        og_str_addf(o, " %.9g\n", x);
}

static void single(og_str *o, const char *name, const char *type, const char *help, double x) {
    family(o, name, type, help);
    og_str_addf(o, "%s", name);
    number(o, x);
}

/* One sample of each model: get finds the number. */
typedef double model_number(og_server *s, const og__model_view *v);

static void of_models(og_str *o, og_server *s, const og__view *v, const char *name,
                      const char *type, const char *help, model_number *get) {
    family(o, name, type, help);
    for (int i = 0; i < v->n_models; i++) {
        og_str_addf(o, "%s{", name);
        label(o, "model", v->models[i].model->name, true);
        og_str_addn(o, "}", 1);
        number(o, get(s, &v->models[i]));
    }
}

static void histograms(og_str *o, og_server *s, const og__view *v, const char *name,
                       const char *help, const double *bounds, size_t offset) {
    family(o, name, "histogram", help);
    for (int i = 0; i < v->n_models; i++) {
        const og__model *m = v->models[i].model;
        histogram *h = (histogram *)((char *)counts_of(s, m) + offset);
        long long sum = 0;
        for (int k = 0; k <= BOUNDS; k++) {
            char bound[32] = "+Inf";
            if (k < BOUNDS) snprintf(bound, sizeof bound, "%g", bounds[k]);
            sum += atomic_load(&h->n[k]);
            og_str_addf(o, "%s_bucket{", name);
            label(o, "model", m->name, true);
            label(o, "le", bound, false);
            og_str_addf(o, "} %lld\n", sum);
        }
        og_str_addf(o, "%s_sum{", name);
        label(o, "model", m->name, true);
        og_str_addf(o, "} %.6f\n%s_count{", (double)atomic_load(&h->sum) * 1e-6, name);
        label(o, "model", m->name, true);
        og_str_addf(o, "} %lld\n", sum);
    }
}

/* ---- what there is -------------------------------------------------------------------------- */

static void put_calls(og_str *o, og__metrics *m) {
    static const char *const methods[] = {"GET", "POST", "DELETE", "OPTIONS", "HEAD", "other"};
    family(o, "omni_graph_http_requests_total", "counter", "Exchanges that are over, by status.");
    pthread_mutex_lock(&m->mu);
    for (size_t i = 0; i < m->n_rows; i++) {
        const call_row *r = &m->rows[i];
        og_str_addf(o, "omni_graph_http_requests_total{");
        label(o, "path", r->path, true);
        label(o, "method", methods[r->method], false);
        og_str_addf(o, ",status=\"%d\"} %lld\n", r->status, r->n);
    }
    pthread_mutex_unlock(&m->mu);
    single(o, "omni_graph_clients_gone_total", "counter",
           "Connections that ended before their answer did.", (double)atomic_load(&m->gone));
}

static double audio_of(og_server *s, const og__model_view *v) {
    return (double)atomic_load(&counts_of(s, v->model)->audio_us) * 1e-6;
}

static double underruns_of(og_server *s, const og__model_view *v) {
    return (double)atomic_load(&counts_of(s, v->model)->underruns);
}

static void put_speech(og_str *o, og_server *s, const og__view *v) {
    const char *name = "omni_graph_speech_answers_total";
    family(o, name, "counter", "Utterances that were answered in full (ok) or failed.");
    for (int i = 0; i < 2 * v->n_models; i++) {
        const og__model *m = v->models[i / 2].model;
        speech_counts *k = counts_of(s, m);
        og_str_addf(o, "%s{", name);
        label(o, "model", m->name, true);
        label(o, "outcome", i % 2 ? "failed" : "ok", false);
        og_str_addf(o, "} %lld\n", atomic_load(i % 2 ? &k->failed : &k->ok));
    }
    of_models(o, s, v, "omni_graph_speech_audio_seconds_total", "counter",
              "Seconds of audio in full answers.", audio_of);
    of_models(o, s, v, "omni_graph_speech_underruns_total", "counter",
              "Times that the listener of a stream ran dry.", underruns_of);
    histograms(o, s, v, "omni_graph_first_packet_seconds",
               "From a request's head to the first byte of its streamed answer.", seconds_bounds,
               offsetof(speech_counts, first_packet));
    histograms(o, s, v, "omni_graph_speech_first_audio_seconds",
               "From the submission of an utterance to its first samples.", seconds_bounds,
               offsetof(speech_counts, first_audio));
    histograms(o, s, v, "omni_graph_speech_seconds",
               "From a request's head to the last sample of an utterance.", seconds_bounds,
               offsetof(speech_counts, whole));
    histograms(o, s, v, "omni_graph_speech_real_time_factor",
               "That time over the length of the audio.", factor_bounds,
               offsetof(speech_counts, factor));
}

#define ENGINE(field)                                                                    \
    static double field##_of(og_server *s, const og__model_view *v) {                    \
        (void)s;                                                                         \
        return (double)v->engine.field;                                                  \
    }
ENGINE(requests)
ENGINE(queued)
ENGINE(admitted)
ENGINE(finished)
ENGINE(failed)
ENGINE(rebuilt)
ENGINE(buffer_bytes)
ENGINE(load_s)
ENGINE(generation)
ENGINE(leaving)
ENGINE(lost)

static void put_engines(og_str *o, og_server *s, const og__view *v) {
    static const struct {
        const char *name, *type, *help;
        model_number *get;
    } rows[] = {
        {"omni_graph_requests", "gauge", "Requests in the engine, with those that wait.",
         requests_of},
        {"omni_graph_requests_queued", "gauge", "Requests that wait for a place.", queued_of},
        {"omni_graph_requests_admitted_total", "counter", "Requests that were let in.", admitted_of},
        {"omni_graph_requests_finished_total", "counter", "Requests that ended well.", finished_of},
        {"omni_graph_requests_failed_total", "counter", "Requests that failed or were canceled.",
         failed_of},
        {"omni_graph_replicas_rebuilt_total", "counter", "Replicas that were lost and made anew.",
         rebuilt_of},
        {"omni_graph_buffer_bytes", "gauge", "Address space of the requests' port buffers.",
         buffer_bytes_of},
        {"omni_graph_load_seconds", "gauge", "What it took to load the model.", load_s_of},
        {"omni_graph_plan_generation", "gauge", "Number of the plan in force.", generation_of},
        {"omni_graph_executors_leaving", "gauge", "Executors that are drained after a reload.",
         leaving_of},
        {"omni_graph_executors_lost", "gauge", "Executors whose device is lost for good.", lost_of},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        of_models(o, s, v, rows[i].name, rows[i].type, rows[i].help, rows[i].get);
}

static void put_stages(og_str *o, const og__view *v) {
    for (const og__counter *c = og__counters; c->name; c++) {
        char name[96];
        snprintf(name, sizeof name, "omni_graph_stage_%s%s", c->name, c->total ? "_total" : "");
        family(o, name, c->total ? "counter" : "gauge", c->help);
        for (int i = 0; i < v->n_models; i++) {
            for (int k = 0; k < v->models[i].n_replicas; k++) {
                const og__replica_view *r = &v->models[i].replicas[k];
                og_str_addf(o, "%s{", name);
                label(o, "model", r->model, true);
                label(o, "stage", r->stage, false);
                og_str_addf(o, ",replica=\"%d\"", r->replica);
                label(o, "place", r->place, false);
                og_str_addn(o, "}", 1);
                number(o, og__counter_value(c, r));
            }
        }
    }
}

static void put_reloads(og_str *o, const og__view *v) {
    const char *name = "omni_graph_reloads_total";
    family(o, name, "counter", "Reloads by their outcome.");
    for (int i = 0; i < v->n_models; i++) {
        const og__model *m = v->models[i].model;
        for (int k = 0; m->reload && k < OG__RELOAD_OUTCOMES; k++) {
            og_str_addf(o, "%s{", name);
            label(o, "model", m->name, true);
            label(o, "outcome", og_reload_outcome_name((og_reload_outcome)k), false);
            og_str_addf(o, "} %lld\n", atomic_load(&m->reload->outcomes[k]));
        }
    }
}

/* Pages that are in memory. */
static double resident(void) {
    long long all, here = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%lld %lld", &all, &here) != 2) here = 0;
    fclose(f);
    return (double)here * (double)sysconf(_SC_PAGESIZE);
}

static double open_files(void) {
    DIR *d = opendir("/proc/self/fd");
    int n = -1; /* the look itself holds one */
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void put_process(og_str *o, og_server *s) {
    static const char *const words[] = {"loading", "ready", "draining"};
    struct rusage u = {0};
    getrusage(RUSAGE_SELF, &u);
    pthread_mutex_lock(&s->mu);
    int calls = s->calls, state = (int)s->state;
    pthread_mutex_unlock(&s->mu);
    family(o, "omni_graph_state", "gauge", "1 for the state that the server is in.");
    for (int i = 0; i < 3; i++)
        og_str_addf(o, "omni_graph_state{state=\"%s\"} %d\n", words[i], state == i);
    single(o, "omni_graph_calls", "gauge", "Exchanges under way, this one with them.", calls);
    single(o, "omni_graph_uptime_seconds", "gauge", "Since the server was started.",
           og__clock() - s->t_start);
    single(o, "process_start_time_seconds", "gauge", "Unix time of the start.", s->metrics->t_start);
    single(o, "process_cpu_seconds_total", "counter", "Time that all threads computed.",
           (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
               1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec));
    single(o, "process_resident_memory_bytes", "gauge", "Host memory in use.", resident());
    single(o, "process_open_fds", "gauge", "Open descriptors.", open_files());
}

void og__get_metrics(og__call *c) {
    og_server *s = c->server;
    og_str o = OG_STR_INIT;
    og__view v;
    bool oom = og__view_take(s, NULL, &v) < 0;
    if (!oom) {
        put_process(&o, s);
        put_calls(&o, s->metrics);
        put_speech(&o, s, &v);
        put_engines(&o, s, &v);
        put_stages(&o, &v);
        put_reloads(&o, &v);
    }
    og__view_free(&v);
    if (oom || o.oom) {
        og__reply_error(c, 503, NULL, "out_of_memory", "out of memory");
    } else {
        og__reply_head(c, 200, "text/plain; version=0.0.4; charset=utf-8", (int64_t)o.len);
        og__reply_put(c, o.data, o.len);
        og__reply_end(c);
    }
    og_str_free(&o);
}
