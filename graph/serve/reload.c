/* POST /v1/reload, SIGHUP, and what is told of every reload. */
#include <stdio.h>
#include <string.h>

#include "graph/serve/reload.h"

#define WAITING_MAX 64
#define BY_POST "POST /v1/reload"

typedef struct wish {
    og__call *call; /* NULL: by a signal */
    og__model *only; /* NULL: all models */
    struct wish *next;
} wish;

struct og__reloads {
    pthread_t thread;
    pthread_mutex_t mu;
    pthread_cond_t cond;
    wish *first, *last;
    int n;
    bool stop;
};

/* ---- a model's reloader ----------------------------------------------------------------- */

/* One line for the outcome, one for each line of the diff or of what is wrong. */
static void told(void *arg, const og_reload_report *report) {
    og__reload *r = arg;
    const char *outcome = og_reload_outcome_name(report->outcome);
    atomic_fetch_add(&r->outcomes[report->outcome], 1);
    og__log(r->server, "reload model=%s cause=\"%s\" outcome=%s", r->model, report->cause, outcome);
    for (const char *p = report->text; p && *p;) {
        int n = (int)strcspn(p, "\n");
        if (n) og__log(r->server, "reload model=%s | %.*s", r->model, n, p);
        p += n + (p[n] != 0);
    }
}

int og__reload_create(og_server *s, const og_serve_model *m, og__reload **out, og_err *err) {
    og__reload *r = og_calloc(1, sizeof *r);
    *out = r;
    if (r) r->model = og_strdup(m->name);
    if (!r || !r->model) {
        og__reload_free(r);
        *out = NULL;
        return og_err_set(err, OG_ENOMEM, "out of memory");
    }
    r->server = s;
    int rc = og_reloader_create(m->engine, m->options, told, r, &r->reloader, err);
    if (rc == 0) return 0;
    og__reload_free(r);
    *out = NULL;
    return rc;
}

void og__reload_free(og__reload *r) {
    if (!r) return;
    og_reloader_destroy(r->reloader);
    og_free(r->model);
    og_free(r);
}

/* ---- one reload ------------------------------------------------------------------------- */

/* The newest record that a POST left: one at a time is made, and the last was ours. */
static json_t *own_record(og_engine *e) {
    json_t *status = og_engine_reload_status(e), *record;
    json_t *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(status, "reloads"), i, record) {
        const char *cause = json_string_value(json_object_get(record, "cause"));
        if (cause && !found && !strcmp(cause, BY_POST)) found = json_incref(record);
    }
    json_decref(status);
    return found;
}

static json_t *model_answer(const og__model *m, og_reload_outcome outcome) {
    og_engine_stats es;
    og_engine_get_stats(m->engine, &es);
    json_t *record = outcome == OG_RELOADED_SAME ? NULL : own_record(m->engine);
    json_t *j = record ? json_copy(record)
                       : json_pack("{s:s, s:[]}", "outcome", og_reload_outcome_name(outcome),
                                   "changes");
    json_object_set_new(j, "model", json_string(m->name));
    json_object_set_new(j, "generation", json_integer(es.generation));
    json_decref(record);
    return j;
}

static int status_of(og_reload_outcome outcome, const char **code) {
    switch (outcome) {
    case OG_RELOADED_REFUSED: *code = "reload_refused"; return 409;
    case OG_RELOADED_INVALID: *code = "invalid_overlay"; return 422;
    case OG_RELOADED_FAILED: *code = "reload_failed"; return 503;
    default: *code = NULL; return 200;
    }
}

static void answer(og__call *c, og_reload_outcome worst, json_t *models, const og_err *err) {
    const char *code;
    int status = status_of(worst, &code);
    json_t *j = json_pack("{s:s, s:o}", "outcome", og_reload_outcome_name(worst), "models", models);
    if (status != 200) {
        char text[OG_ERR_MSG_MAX + 320];
        int n = 0;
        if (err->file[0])
            n = snprintf(text, sizeof text, "%.255s:%d:%d: ", err->file, err->line, err->col);
        snprintf(text + n, sizeof text - (size_t)n, "%s", err->msg);
        snprintf(c->error, sizeof c->error, "%.159s", text);
        json_object_set_new(j, "error", og__error_json(status, NULL, code, text));
    }
    og__reply_json(c, status, j);
}

static void fulfil(og_server *s, const wish *w) {
    json_t *answers = json_array();
    og_reload_outcome worst = OG_RELOADED_SAME;
    og_err first = OG_ERR_INIT;
    pthread_mutex_lock(&s->mu);
    int n = s->n_models;
    pthread_mutex_unlock(&s->mu);
    for (int i = 0; i < n; i++) {
        og__model *m = &s->models[i];
        og_reload_outcome outcome;
        og_err err = OG_ERR_INIT;
        if (!m->reload || (w->only && w->only != m)) continue;
        int rc = og_reloader_run(m->reload->reloader, w->call ? BY_POST : "SIGHUP", &outcome, &err);
        if (rc < 0 && !first.code) first = err;
        if (outcome > worst) worst = outcome;
        if (outcome == OG_RELOADED_SAME) {
            atomic_fetch_add(&m->reload->outcomes[outcome], 1);
            og__log(s, "reload model=%s cause=\"%s\" outcome=same", m->name,
                    w->call ? BY_POST : "SIGHUP");
        }
        json_array_append_new(answers, model_answer(m, outcome));
    }
    if (w->call)
        answer(w->call, worst, answers, &first);
    else
        json_decref(answers);
}

/* ---- the thread -------------------------------------------------------------------------- */

static wish *next_wish(og__reloads *r, bool *stop) {
    pthread_mutex_lock(&r->mu);
    while (!r->first && !r->stop) pthread_cond_wait(&r->cond, &r->mu);
    wish *w = r->first;
    if (w) {
        r->first = w->next;
        if (!r->first) r->last = NULL;
        r->n--;
    }
    *stop = r->stop;
    pthread_mutex_unlock(&r->mu);
    return w;
}

static void *reload_main(void *arg) {
    og_server *s = arg;
    wish *w;
    bool stop;
    while ((w = next_wish(s->reloads, &stop))) {
        if (!stop)
            fulfil(s, w);
        else if (w->call)
            og__reply_error(w->call, 503, NULL, "draining", "the server is going down");
        if (w->call) og__call_unref(w->call);
        og_free(w);
    }
    return NULL;
}

/* 0, OG_EBUSY when too many wait, OG_ECANCELED when the server ends, OG_ENOMEM. */
static int push(og_server *s, og__call *c, og__model *only) {
    og__reloads *r = s->reloads;
    wish *w = og_calloc(1, sizeof *w);
    if (!w) return OG_ENOMEM;
    *w = (wish){.call = c, .only = only};
    pthread_mutex_lock(&r->mu);
    int rc = r->stop ? OG_ECANCELED : r->n >= WAITING_MAX ? OG_EBUSY : 0;
    if (rc == 0) {
        if (c) og__call_ref(c);
        *(r->last ? &r->last->next : &r->first) = w;
        r->last = w;
        r->n++;
        pthread_cond_signal(&r->cond);
    }
    pthread_mutex_unlock(&r->mu);
    if (rc < 0) og_free(w);
    return rc;
}

int og__reloads_start(og_server *s, og_err *err) {
    og__reloads *r = og_calloc(1, sizeof *r);
    if (!r) return og_err_set(err, OG_ENOMEM, "out of memory");
    pthread_mutex_init(&r->mu, NULL);
    pthread_cond_init(&r->cond, NULL);
    s->reloads = r;
    if (pthread_create(&r->thread, NULL, reload_main, s) == 0) return 0;
    pthread_mutex_destroy(&r->mu);
    pthread_cond_destroy(&r->cond);
    og_free(r);
    s->reloads = NULL;
    return og_err_set(err, OG_EIO, "cannot start a thread");
}

void og__reloads_stop(og_server *s) {
    og__reloads *r = s->reloads;
    if (!r) return;
    pthread_mutex_lock(&r->mu);
    r->stop = true;
    pthread_cond_signal(&r->cond);
    pthread_mutex_unlock(&r->mu);
    pthread_join(r->thread, NULL);
}

void og__reloads_free(og_server *s) {
    og__reloads *r = s->reloads;
    if (!r) return;
    pthread_mutex_destroy(&r->mu);
    pthread_cond_destroy(&r->cond);
    og_free(r);
}

void og_server_reload(og_server *s) {
    if (push(s, NULL, NULL) < 0) og__log(s, "reload cause=\"SIGHUP\" outcome=dropped");
}

/* ---- POST /v1/reload --------------------------------------------------------------------- */

/* {} or nothing: all models; {"model": NAME}: that one. -1 after an answer. */
static int read_body(og__call *c, og__model **only) {
    og__body b;
    if (c->body.len == 0) return 0;
    if (og__body_open(&b, c) < 0) return -1;
    const char *name = og__body_text(&b, "model");
    if (name && *name) *only = og__server_model(c->server, name);
    bool unknown = name && *name && !*only, failed = b.failed;
    if (unknown)
        og__reply_error(c, 404, "model", "model_not_found", "the model '%s' does not exist", name);
    og__body_close(&b);
    return unknown || failed ? -1 : 0;
}

void og__post_reload(og__call *c) {
    og__model *only = NULL;
    if (read_body(c, &only) < 0) return;
    bool any = false;
    pthread_mutex_lock(&c->server->mu);
    for (int i = 0; i < c->server->n_models; i++)
        any |= c->server->models[i].reload && (!only || only == &c->server->models[i]);
    pthread_mutex_unlock(&c->server->mu);
    if (!any) {
        og__reply_error(c, 409, NULL, "reload_refused", "this server was started without reloads");
        return;
    }
    int rc = push(c->server, c, only);
    if (rc == OG_EBUSY)
        og__reply_error(c, 429, NULL, "queue_full", "%d reloads are waiting", WAITING_MAX);
    else if (rc < 0)
        og__reply_error(c, 503, NULL, rc == OG_ENOMEM ? "out_of_memory" : "draining", "%s",
                        rc == OG_ENOMEM ? "out of memory" : "the server is going down");
}
