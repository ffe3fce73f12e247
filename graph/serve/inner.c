/* Requests inside a call. */
#include <stdio.h>
#include <string.h>

#include "graph/serve/inner.h"

og__call *og__inner_start(og__call *outer, json_t *body) {
    og__call *in = body ? og__call_create(outer->server) : NULL;
    if (!in) {
        json_decref(body);
        return NULL;
    }
    memcpy(in->id, outer->id, sizeof in->id);
    in->given = body;
    in->parent = outer;
    og__call_ref(outer);
    in->method = OG__POST;
    in->t_body = og__clock();
    in->step = og__post_speech;
    og__call_kick(in);
    return in;
}

void og__inner_drop(og__call **in) {
    if (!*in) return;
    atomic_store(&(*in)->gone, true);
    og__call_kick(*in);
    og__call_unref(*in);
    *in = NULL;
}

int og__inner_status(og__call *in) {
    pthread_mutex_lock(&in->out.mu);
    int status = in->out.status;
    pthread_mutex_unlock(&in->out.mu);
    return status;
}

const char *og__inner_header(og__call *in, const char *name, int i) {
    const og_str *h = &in->out.head; /* nothing is added to it once the status is there */
    for (size_t at = 0; at < h->len;) {
        const char *key = h->data + at, *value = key + strlen(key) + 1;
        if (!strcmp(key, name) && i-- == 0) return value;
        at = (size_t)(value + strlen(value) + 1 - h->data);
    }
    return NULL;
}

bool og__inner_ended(og__call *in) {
    pthread_mutex_lock(&in->out.mu);
    bool ended = in->out.ended;
    pthread_mutex_unlock(&in->out.mu);
    return ended;
}

bool og__inner_cut(og__call *in) {
    pthread_mutex_lock(&in->out.mu);
    bool cut = in->out.cut;
    pthread_mutex_unlock(&in->out.mu);
    return cut;
}

void og__inner_take(og__call *in, og_str *out) {
    og__outbox *o = &in->out;
    pthread_mutex_lock(&o->mu);
    if (o->len) og_str_addn(out, o->data + o->from, o->len);
    o->from = o->len = 0;
    bool starved = o->starved;
    o->starved = false;
    pthread_mutex_unlock(&o->mu);
    if (starved) og__call_kick(in);
}

void og__inner_tick(og__call *in, bool over) {
    double own = (double)atomic_load(&in->limit_us) * 1e-6;
    double limit = in->server->opts.request_timeout;
    if (own > 0 && (limit <= 0 || own < limit)) limit = own;
    over |= limit > 0 && og__clock() - in->t_body > limit;
    if (over && !atomic_exchange(&in->expired, true)) og__call_kick(in);
}

/* "voice: ..." becomes "items[2].voice: ...", as it does in param. */
static void set_prefix(json_t *error, const char *prefix) {
    char text[OG__PARAM_MAX + 64], more[OG_ERR_MSG_MAX + 64];
    const char *param = json_string_value(json_object_get(error, "param"));
    const char *message = json_string_value(json_object_get(error, "message"));
    if (!param || !*prefix) return;
    if (message && !strncmp(message, param, strlen(param))) {
        snprintf(more, sizeof more, "%s%s", prefix, message);
        json_object_set_new(error, "message", og__text_json(more));
    }
    snprintf(text, sizeof text, "%s%s", prefix, param);
    json_object_set_new(error, "param", og__text_json(text));
}

json_t *og__inner_error(const char *body, size_t n, const char *prefix) {
    json_t *all = body ? json_loadb(body, n, 0, NULL) : NULL;
    json_t *error = json_incref(json_object_get(all, "error"));
    json_decref(all);
    if (!error) return og__error_json(500, NULL, "internal_error", "the request failed");
    set_prefix(error, prefix);
    return error;
}
