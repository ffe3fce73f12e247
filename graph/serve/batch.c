/* POST /v1/audio/speech/batch: many requests in one body, each an inner call. All run at
 * once; the answers go out in their order, as soon as those before them are out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/serve/inner.h"

#define ITEMS_MAX 128
#define COPIES_MAX 8 /* shared fields times items, in bodies of the largest size */

typedef struct item {
    og__call *call;
    json_t *error; /* owned: found before there was a call */
} item;

typedef struct batch {
    item *items;
    int n, at; /* at: the next one to be answered */
    int good;
    bool begun;
} batch;

static void over(og__call *c) {
    (void)c;
}

static void leave(og__call *c) {
    batch *b = c->job;
    c->job = NULL;
    c->step = over;
    atomic_store(&c->ticks, false);
    for (int i = 0; i < b->n; i++) {
        og__inner_drop(&b->items[i].call);
        json_decref(b->items[i].error);
    }
    og_free(b->items);
    og_free(b);
}

/* ---- answers ----------------------------------------------------------------------------- */

static long long header_number(og__call *in, const char *name) {
    const char *text = og__inner_header(in, name, 0);
    return text ? strtoll(text, NULL, 10) : 0;
}

static void add_usage(og__call *in, og_str *out) {
    og_str_addf(out, ",\"usage\":{\"input_tokens\":%lld,\"output_tokens\":%lld,"
                     "\"total_tokens\":%lld}",
                header_number(in, "x-vllm-omni-input-tokens"),
                header_number(in, "x-vllm-omni-output-tokens"),
                header_number(in, "x-vllm-omni-total-tokens"));
}

static void add_json(og_str *out, const char *key, json_t *value) {
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    og_str_addf(out, ",\"%s\":", key);
    og_str_addn(out, text ? text : "null", text ? strlen(text) : 4);
    free(text);
}

static void add_warnings(og__call *in, og_str *out) {
    json_t *list = json_array();
    const char *text;
    for (int i = 0; (text = og__inner_header(in, "x-omni-warning", i)); i++)
        json_array_append_new(list, og__text_json(text));
    if (json_array_size(list)) add_json(out, "warnings", list);
    json_decref(list);
}

static void put_good(batch *b, og__call *in, const og_str *audio, og_str *out) {
    const char *type = og__inner_header(in, "content-type", 0);
    b->good++;
    og_str_addf(out, "\"status\":\"success\",\"audio_data\":\"");
    og__base64(audio->data, audio->len, out);
    og_str_addf(out, "\",\"media_type\":\"%s\"", type ? type : "");
    add_usage(in, out);
    add_warnings(in, out);
}

static void put_bad(json_t *error, og_str *out) {
    og_str_addf(out, "\"status\":\"error\"");
    add_json(out, "error", error);
}

static void put_answer(og__call *c, batch *b, int i) {
    item *it = &b->items[i];
    og_str out = OG_STR_INIT, body = OG_STR_INIT;
    char prefix[32];
    og_str_addf(&out, "%s{\"index\":%d,", i ? "," : "", i);
    if (it->call) og__inner_take(it->call, &body);
    if (it->call && og__inner_status(it->call) == 200 && !og__inner_cut(it->call)) {
        put_good(b, it->call, &body, &out);
        c->audio_s += it->call->audio_s;
    } else {
        snprintf(prefix, sizeof prefix, "items[%d].", i);
        if (!it->error) it->error = og__inner_error(body.data, body.len, prefix);
        put_bad(it->error, &out);
    }
    og_str_addf(&out, "}");
    if (out.oom || body.oom)
        og__reply_cut(c);
    else
        og__reply_put(c, out.data, out.len);
    og_str_free(&out);
    og_str_free(&body);
    og__inner_drop(&it->call);
}

/* The head goes with the first answer. */
static void begin(og__call *c, batch *b) {
    char text[128];
    if (b->begun) return;
    b->begun = true;
    char id[OG__ID_MAX + 1];
    memcpy(id, c->id, sizeof id);
    for (char *p = id; *p; p++) /* it may be the client's own */
        if (*p == '"' || *p == '\\') *p = '-';
    int n = snprintf(text, sizeof text, "{\"id\":\"speech-batch-%s\",\"results\":[", id);
    og__reply_head(c, 200, "application/json", -1);
    og__reply_put(c, text, (size_t)n);
}

static void end(og__call *c, batch *b) {
    char text[96];
    int n = snprintf(text, sizeof text, "],\"total\":%d,\"succeeded\":%d,\"failed\":%d}", b->n,
                     b->good, b->n - b->good);
    og__reply_put(c, text, (size_t)n);
    og__reply_end(c);
    leave(c);
}

static bool is_done(const item *it) {
    return !it->call || og__inner_ended(it->call);
}

static void step(og__call *c) {
    batch *b = c->job;
    if (atomic_load(&c->gone)) {
        leave(c);
        return;
    }
    for (int i = b->at; i < b->n; i++)
        if (b->items[i].call) og__inner_tick(b->items[i].call, atomic_load(&c->expired));
    while (b->at < b->n && is_done(&b->items[b->at]) && !og__reply_full(c)) {
        begin(c, b);
        put_answer(c, b, b->at++);
    }
    if (b->at == b->n) end(c, b);
}

/* ---- requests ------------------------------------------------------------------------------ */

/* What is shared, and over it what the item says; null says nothing. */
static json_t *merge(const json_t *shared, json_t *own) {
    json_t *all = json_copy((json_t *)shared), *v;
    const char *key;
    json_object_del(all, "items");
    json_object_foreach(own, key, v)
        if (!json_is_null(v) && json_object_set(all, key, v) < 0) break;
    return all;
}

static const char *streams(const json_t *body) {
    static const char *const names[] = {"stream", "stream_format", "stream_options"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *v = json_object_get(body, names[i]);
        if (v && !json_is_null(v) && !json_is_false(v)) return names[i];
    }
    return NULL;
}

static json_t *item_error(int i, const char *field, const char *code, const char *what) {
    char param[64], text[128];
    snprintf(param, sizeof param, "items[%d]%s%s", i, field ? "." : "", field ? field : "");
    snprintf(text, sizeof text, "%s: %s", param, what);
    return og__error_json(400, param, code, text);
}

static void start(og__call *c, item *it, const json_t *shared, int i) {
    json_t *own = json_array_get(json_object_get(shared, "items"), (size_t)i);
    const char *field = json_is_object(own) ? streams(own) : NULL;
    if (!json_is_object(own))
        it->error = item_error(i, NULL, "invalid_type", "must be an object");
    else if (field)
        it->error = item_error(i, field, "unsupported", "a batch is answered whole");
    else if (!(it->call = og__inner_start(c, merge(shared, own))))
        it->error = og__error_json(503, NULL, "out_of_memory", "out of memory");
}

/* How many items, or -1 after the answer. */
static int check(og__body *b, size_t bytes) {
    json_t *list = og__body_any(b, "items");
    const char *model = og__body_text(b, "model"), *stream = streams(b->root);
    size_t n = json_array_size(list);
    if (!list)
        og__body_fault(b, "items", "missing", "this field is required");
    else if (!json_is_array(list))
        og__body_fault(b, "items", "invalid_type", "must be a list");
    else if (n < 1 || n > ITEMS_MAX)
        og__body_fault(b, "items", "limit_exceeded", "has %zu items, must be from 1 to %d", n,
                       ITEMS_MAX);
    else if (stream)
        og__body_fault(b, stream, "unsupported", "a batch is answered whole");
    else if (bytes * n > b->call->server->opts.max_body * COPIES_MAX)
        og__body_fault(b, "items", "limit_exceeded", "%zu items with a body of %zu bytes: too "
                       "much is shared, send them one by one", n, bytes);
    if (b->failed) return -1;
    if (og__server_model(b->call->server, model)) return (int)n;
    og__reply_error(b->call, 404, "model", "model_not_found", "the model '%.64s' does not exist",
                    model ? model : "");
    return -1;
}

void og__post_batch(og__call *c) {
    og__body body;
    if (og__body_open(&body, c) < 0) return;
    int n = check(&body, c->body.len);
    batch *b = n > 0 ? og_calloc(1, sizeof *b) : NULL;
    if (b) b->items = og_calloc((size_t)n, sizeof *b->items);
    if (n > 0 && (!b || !b->items)) {
        og__reply_error(c, 503, NULL, "out_of_memory", "out of memory");
        og_free(b);
    } else if (n > 0) {
        b->n = n;
        c->job = b;
        c->step = step;
        atomic_store(&c->ticks, true);
        snprintf(c->model, sizeof c->model, "%s",
                 og__server_model(c->server, og__body_text(&body, "model"))->name);
        for (int i = 0; i < n; i++) start(c, &b->items[i], body.root, i);
        step(c);
    }
    og__body_close(&body);
}
