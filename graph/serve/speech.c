/* POST /v1/audio/speech: one request through an engine, its audio to one client. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/serve/metrics.h"
#include "graph/serve/speech.h"

#define SILENCE 4096

typedef struct job {
    og__ask ask;
    og_request *request;
    float *samples; /* whole answers */
    size_t n, cap;
    og_audio_out *out; /* streams */
    og_str piece;      /* bytes of one event */
    int64_t total;     /* samples so far */
} job;

static void free_job(og__call *c) {
    job *j = c->job;
    if (!j) return;
    c->job = NULL;
    og_audio_abort(j->out);
    og__request_reap(c, j->request);
    og__ask_clear(&j->ask);
    og_free(j->samples);
    og_str_free(&j->piece);
    og_free(j);
}

static void over(og__call *c) {
    (void)c;
}

static void leave(og__call *c) {
    free_job(c);
    c->step = over;
}

/* ---- what it cost ------------------------------------------------------------------------ */

/* Tokens that the decoders made: frames, for a codec. */
static int64_t tokens_out(const job *j) {
    int64_t n = 0;
    for (int i = 0; i < j->ask.plan->n_stages; i++) {
        og_stage_progress p;
        if (j->ask.plan->stages[i].kind != OG_KIND_AR) continue;
        og_request_get_progress(j->request, i, &p);
        n += p.items;
    }
    return n;
}

static json_t *usage_json(const job *j) {
    int64_t in = og__text_tokens(j->ask.plan, j->ask.fields), out = tokens_out(j);
    return json_pack("{s:I, s:I, s:I}", "input_tokens", (json_int_t)in, "output_tokens",
                     (json_int_t)out, "total_tokens", (json_int_t)(in + out));
}

static void usage_headers(og__call *c, const job *j) {
    long long in = og__text_tokens(j->ask.plan, j->ask.fields), out = tokens_out(j);
    og_request_stats s;
    og_request_get_stats(j->request, &s);
    og__reply_header(c, "x-vllm-omni-input-tokens", "%lld", in);
    og__reply_header(c, "x-vllm-omni-input-text-tokens", "%lld", in);
    og__reply_header(c, "x-vllm-omni-input-audio-tokens", "0");
    og__reply_header(c, "x-vllm-omni-output-tokens", "%lld", out);
    og__reply_header(c, "x-vllm-omni-total-tokens", "%lld", in + out);
    og__reply_header(c, "x-omni-seed", "%llu", (unsigned long long)s.seed);
}

/* ---- streams ------------------------------------------------------------------------------- */

static void put_event(og__call *c, json_t *j) {
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    if (!text) return;
    og__reply_put(c, "data: ", 6);
    og__reply_put(c, text, strlen(text));
    og__reply_put(c, "\n\n", 2);
    free(text);
}

static int to_client(void *ctx, const void *bytes, size_t n) {
    og__reply_put(ctx, bytes, n);
    return 0;
}

static int to_piece(void *ctx, const void *bytes, size_t n) {
    job *j = ((og__call *)ctx)->job;
    og_str_addn(&j->piece, bytes, n);
    return j->piece.oom ? OG_ENOMEM : 0;
}

/* The head of a stream goes with its first samples, so that what fails before has a status. */
static int begin_stream(og__call *c, job *j, og_err *err) {
    if (j->out) return 0;
    bool sse = j->ask.delivery == OG__SSE;
    int rc = og_audio_stream(j->ask.format, j->ask.rate, 1, sse ? to_piece : to_client, c,
                             &j->out, err);
    if (rc < 0) return rc;
    og__reply_header(c, "x-sample-rate", "%d", j->ask.rate);
    og__reply_header(c, "cache-control", "no-cache");
    og__reply_head(c, 200, sse ? "text/event-stream" : og_audio_media_type(j->ask.format), -1);
    return 0;
}

static void flush_event(og__call *c, job *j) {
    og_str text = OG_STR_INIT;
    if (j->ask.delivery != OG__SSE || j->piece.len == 0) return;
    og__base64(j->piece.data, j->piece.len, &text);
    j->piece.len = 0;
    if (!text.oom)
        put_event(c, json_pack("{s:s, s:s#, s:s}", "type", "speech.audio.delta", "audio",
                               text.data, text.len, "response_format",
                               og_audio_name(j->ask.format)));
    og_str_free(&text);
}

/* ---- samples --------------------------------------------------------------------------------- */

static int keep(job *j, const float *x, size_t n, og_err *err) {
    if (j->n + n > j->cap) {
        size_t cap = j->cap ? j->cap * 2 : 65536;
        while (cap < j->n + n) cap *= 2;
        float *more = og_realloc(j->samples, cap * sizeof *more);
        if (!more) return og_err_set(err, OG_ENOMEM, "no memory for the audio");
        j->samples = more;
        j->cap = cap;
    }
    memcpy(j->samples + j->n, x, n * sizeof *x);
    j->n += n;
    return 0;
}

static int take(og__call *c, job *j, const float *x, size_t n, og_err *err) {
    j->total += (int64_t)n;
    if (j->ask.delivery == OG__WHOLE) return keep(j, x, n, err);
    int rc = begin_stream(c, j, err);
    return rc < 0 ? rc : og_audio_write(j->out, x, n, err);
}

static int take_items(og__call *c, job *j, const og_event *ev, og_err *err) {
    static const float silence[SILENCE];
    int rc = 0;
    if (ev->response != j->ask.response) return 0;
    if (j->ask.delivery != OG__WHOLE)
        og__metrics_piece(c, j->ask.model, (double)j->total / j->ask.rate);
    for (int64_t left = ev->gap; left > 0 && rc == 0; left -= SILENCE)
        rc = take(c, j, silence, left < SILENCE ? (size_t)left : SILENCE, err);
    if (rc == 0 && og_tensor_present(&ev->items))
        rc = take(c, j, ev->items.data, (size_t)ev->items.ne[0], err);
    flush_event(c, j);
    return rc;
}

/* ---- ends -------------------------------------------------------------------------------------- */

/* Messages begin with the pipeline's name of the field; the client knows the API's. */
static void say_api_name(og_err *err, const char *param) {
    size_t n = strlen(err->field);
    if (!param || strncmp(err->msg, err->field, n) || err->msg[n] != ':') return;
    char text[OG_ERR_MSG_MAX];
    snprintf(text, sizeof text, "%.64s%.900s", param, err->msg + n);
    memcpy(err->msg, text, sizeof text);
}

static void fail(og__call *c, job *j, const og_err *err) {
    const char *code, *param = err->field[0] ? og__api_name(err->field) : NULL;
    int status = og__status_of(err->code, &code);
    og_err told = *err;
    say_api_name(&told, param);
    err = &told;
    if (j->out && j->ask.delivery == OG__SSE) {
        json_t *e = og__error_json(status, param, code, err->msg);
        put_event(c, json_pack("{s:s, s:o, s:b, s:s}", "type", "speech.audio.error", "error", e,
                               "partial_audio", j->total > 0, "action", "discard"));
        snprintf(c->error, sizeof c->error, "%.159s", err->msg);
        og__reply_end(c);
    } else {
        og__reply_failure(c, err, param);
    }
    og__metrics_speech(c, j->ask.model, false);
    leave(c);
}

static int finish_whole(og__call *c, job *j, og_err *err) {
    og_str bytes = OG_STR_INIT;
    const og__ask *a = &j->ask;
    int rc = og__speech_encode(a, j->samples, (int64_t)j->n, &bytes, err);
    if (rc == 0) {
        usage_headers(c, j);
        og__reply_header(c, "x-sample-rate", "%d", a->out_rate);
        og__reply_head(c, 200, og_audio_media_type(a->format), (int64_t)bytes.len);
        og__reply_put(c, bytes.data, bytes.len);
        og__reply_end(c);
    }
    og_str_free(&bytes);
    return rc;
}

static int finish_stream(og__call *c, job *j, og_err *err) {
    int rc = begin_stream(c, j, err);
    if (rc < 0) return rc;
    rc = og_audio_commit(j->out, err);
    j->out = NULL;
    if (rc < 0) return rc;
    flush_event(c, j);
    if (j->ask.delivery == OG__SSE)
        put_event(c, json_pack("{s:s, s:o}", "type", "speech.audio.done", "usage",
                               usage_json(j)));
    og__reply_end(c);
    return 0;
}

static void finish(og__call *c, job *j) {
    og_err err = OG_ERR_INIT;
    const char *line;
    og_request_stats s;
    for (int i = 0; (line = og_request_warning(j->request, i)); i++)
        og__reply_header(c, "x-omni-warning", "%s", line);
    og_request_get_stats(j->request, &s);
    c->audio_s = (double)j->total / j->ask.rate;
    c->first_s = s.first_output_s;
    int rc = j->ask.delivery == OG__WHOLE ? finish_whole(c, j, &err) : finish_stream(c, j, &err);
    if (rc < 0) {
        fail(c, j, &err);
        return;
    }
    og__metrics_speech(c, j->ask.model, true);
    leave(c);
}

/* ---- the step ------------------------------------------------------------------------------------ */

static void expire(og__call *c, job *j) {
    og_err err = OG_ERR_INIT;
    og_err_set(&err, OG_ETIMEOUT, "the request took longer than its time limit");
    fail(c, j, &err);
}

static void pull(og__call *c) {
    job *j = c->job;
    og_err err = OG_ERR_INIT;
    og_event ev;
    if (atomic_load(&c->gone)) {
        leave(c);
        return;
    }
    if (atomic_load(&c->expired)) {
        expire(c, j);
        return;
    }
    while (!og__reply_full(c)) {
        og_event_kind kind = og_request_next(j->request, 0, &ev);
        if (kind == OG_EVENT_TIMEOUT) return;
        if (kind == OG_EVENT_DONE) {
            finish(c, j);
            return;
        }
        if (kind == OG_EVENT_ERROR) {
            fail(c, j, &ev.err);
            return;
        }
        if (take_items(c, j, &ev, &err) < 0) {
            fail(c, j, &err);
            return;
        }
    }
}

static void news(void *arg) {
    og__call_kick(arg);
}

static int submit(og__call *c, job *j, og_err *err) {
    const og__ask *a = &j->ask;
    og_request_desc d = {.fields = a->fields,
                         .has_seed = a->has_seed,
                         .seed = a->seed,
                         .max_tokens = a->max_tokens,
                         .notify = news,
                         .notify_arg = c};
    int rc = og_engine_submit(a->model->engine, &d, &j->request, err);
    if (rc == 0 && a->timeout > 0) og__call_limit(c, a->timeout);
    return rc;
}

void og__post_speech(og__call *c) {
    og__body b;
    og_err err = OG_ERR_INIT;
    if (og__body_open(&b, c) < 0) return;
    job *j = og_calloc(1, sizeof *j);
    if (!j) {
        og__reply_error(c, 503, NULL, "out_of_memory", "out of memory");
        og__body_close(&b);
        return;
    }
    c->job = j;
    int rc = og__ask_read(&b, &j->ask);
    og__body_close(&b);
    if (rc == 0 && submit(c, j, &err) < 0) {
        fail(c, j, &err);
        return;
    }
    if (rc < 0) {
        leave(c);
        return;
    }
    c->step = pull;
    pull(c);
}
