/* A result: JSON with the public client's field names, and the same for people. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "graph/cli/bench/run.h"

static void put(json_t *j, const char *key, json_t *value) {
    json_object_set_new(j, key, value);
}

static void real(json_t *j, const char *key, double v) {
    put(j, key, json_real(v));
}

static void whole(json_t *j, const char *key, int64_t v) {
    put(j, key, json_integer(v));
}

static void text(json_t *j, const char *key, const char *v) {
    char plain[256];
    json_t *s = v ? json_string(v) : json_null();
    if (!s && v) { /* a server's words need not be UTF-8, and are cut anywhere */
        snprintf(plain, sizeof plain, "%.255s", v);
        for (char *c = plain; *c; c++)
            if ((unsigned char)*c >= 0x80) *c = '?';
        s = json_string(plain);
    }
    put(j, key, s);
}

/* "p99" or "p99.9" */
static void percentile_name(double p, char *buf, size_t size) {
    snprintf(buf, size, "p%.10g", p);
}

/* ---- JSON --------------------------------------------------------------------- */

static void head(json_t *j, const og__bench *b) {
    char date[32];
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    strftime(date, sizeof date, "%Y%m%d-%H%M%S", &tm);
    text(j, "date", date);
    text(j, "endpoint_type", b->backend);
    text(j, "backend", b->backend);
    text(j, "label", b->label);
    text(j, "model_id", b->model);
    text(j, "tokenizer_id", NULL);
    whole(j, "num_prompts", b->n);
    put(j, "request_rate", isinf(b->rate) ? json_string("inf") : json_real(b->rate));
    real(j, "burstiness", b->burstiness);
    put(j, "max_concurrency",
        b->load.max_concurrency > 0 ? json_integer(b->load.max_concurrency)
                                    : json_null());
}

static void totals(json_t *j, const og__bench *b, const og__summary *s,
                   const og__total *t) {
    double d = t->duration > 0 ? t->duration : 1e-9;
    real(j, "duration", t->duration);
    whole(j, "completed", s->completed);
    whole(j, "failed", s->failed);
    whole(j, "total_input_tokens", s->input_tokens);
    whole(j, "total_output_tokens", 0);
    real(j, "request_throughput", s->completed / d);
    put(j, "request_goodput", b->n_limits ? json_real(s->good / d) : json_null());
    real(j, "output_throughput", 0);
    real(j, "total_token_throughput", (double)s->input_tokens / d);
    real(j, "total_audio_duration_s", s->audio_s);
    whole(j, "total_audio_frames", s->samples);
    real(j, "audio_throughput", s->audio_s / d);
    real(j, "max_output_tokens_per_s", 0);
    whole(j, "max_concurrent_requests", t->peak);
    real(j, "rtfx", 0);
    whole(j, "num_ttft_samples", 0);
    whole(j, "num_tpot_samples", 0);
    whole(j, "num_itl_samples", 0);
    whole(j, "num_audio_ttfp_samples", s->dist[OG__METRIC_TTFP].n);
    whole(j, "num_audio_rtf_samples", s->dist[OG__METRIC_RTF].n);
}

static void distribution(json_t *j, const og__bench *b, const og__summary *s,
                         og__metric m) {
    const og__dist *d = &s->dist[m];
    char key[64], p[24];
    const char *name = og__metric_key(m);
    snprintf(key, sizeof key, "mean_%s", name);
    real(j, key, d->mean);
    snprintf(key, sizeof key, "median_%s", name);
    real(j, key, og__dist_percentile(d, 50));
    snprintf(key, sizeof key, "std_%s", name);
    real(j, key, d->std);
    for (int i = 0; i < b->n_percentiles; i++) {
        percentile_name(b->percentiles[i], p, sizeof p);
        snprintf(key, sizeof key, "%s_%s", p, name);
        real(j, key, og__dist_percentile(d, b->percentiles[i]));
    }
}

static void listener(json_t *j, const og__summary *s) {
    int heard = s->dist[OG__METRIC_RTF].n;
    whole(j, "audio_underruns", s->underruns);
    put(j, "audio_continuity",
        heard ? json_real((double)s->continuous / heard) : json_null());
    real(j, "max_audio_gap_ms", 1e3 * s->worst_gap);
}

static json_t *failures(const og__summary *s) {
    json_t *all = json_object();
    for (int f = 1; f < OG__FAIL_COUNT; f++) {
        if (!s->fails[f]) continue;
        json_t *one = json_object();
        whole(one, "count", s->fails[f]);
        text(one, "text", og__fail_text((og__fail)f));
        text(one, "first", s->first_of[f]->error);
        put(all, og__fail_word((og__fail)f), one);
    }
    return all;
}

static json_t *goodput(const og__bench *b, const og__summary *s) {
    json_t *g = json_object(), *limits = json_object();
    for (int i = 0; i < b->n_limits; i++)
        real(limits, og__metric_key(b->limits[i].metric), b->limits[i].max);
    put(g, "limits", limits);
    whole(g, "good", s->good);
    real(g, "share",
         s->completed + s->failed ? (double)s->good / (s->completed + s->failed) : 0);
    return g;
}

/* What tells whether the client itself was the bound. */
static json_t *client(const og__bench *b, const og__summary *s, const og__total *t) {
    json_t *c = json_object();
    text(c, "dataset", b->set.name);
    whole(c, "seed", (int64_t)b->seed);
    whole(c, "num_warmups", b->warmup);
    text(c, "stream",
         b->stream == OG__STREAM_SSE     ? "sse"
         : b->stream == OG__STREAM_AUDIO ? "audio"
                                         : "none");
    text(c, "response_format", b->format);
    real(c, "audible_dbfs", b->load.audible_dbfs);
    whole(c, "connections", t->connections);
    whole(c, "retries", s->retries);
    real(c, "max_send_lag_ms", 1e3 * s->worst_lag);
    real(c, "max_turn_ms", 1e3 * t->worst_turn);
    real(c, "cpu_s", t->cpu_s);
    return c;
}

static json_t *request(const og__record *r) {
    char digest[24];
    json_t *j = json_object();
    real(j, "start_s", r->start);
    real(j, "lag_ms", 1e3 * r->lag);
    text(j, "result", r->finished ? og__fail_word(r->fail) : "stopped");
    if (r->error[0]) text(j, "error", r->error);
    whole(j, "status", r->status);
    for (int m = 0; m < OG__METRIC_COUNT; m++) {
        double v;
        if (og__metric_of(r, (og__metric)m, &v))
            real(j, og__metric_key((og__metric)m), v);
    }
    whole(j, "samples", r->samples);
    whole(j, "bytes", r->bytes);
    whole(j, "packets", r->packets);
    whole(j, "underruns", r->underruns);
    real(j, "max_gap_ms", 1e3 * r->worst_gap);
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)r->digest);
    text(j, "digest", digest);
    return j;
}

json_t *og__result_json(const og__bench *b, const og__summary *s, const og__total *t,
                        const og__record *records) {
    json_t *j = json_object();
    if (!j) return NULL;
    head(j, b);
    totals(j, b, s, t);
    for (int m = 0; m < OG__METRIC_COUNT; m++) distribution(j, b, s, (og__metric)m);
    listener(j, s);
    put(j, "errors_by_kind", failures(s));
    if (b->n_limits) put(j, "goodput", goodput(b, s));
    put(j, "client", client(b, s, t));
    if (t->stopped) put(j, "stopped", json_true());
    if (b->detailed) {
        json_t *all = json_array();
        for (int i = 0; i < b->n; i++) json_array_append_new(all, request(&records[i]));
        put(j, "requests", all);
    }
    return j;
}

/* ---- for people --------------------------------------------------------------- */

static double number(const json_t *j, const char *key) {
    return json_number_value(json_object_get(j, key));
}

static void table(const json_t *j, og_str *out) {
    const char *prefix = "mean_", *title, *key;
    json_t *value;
    og_str heads = OG_STR_INIT;
    /* Every percentile of the first packet is one of every other metric. */
    json_object_foreach((json_t *)j, key, value) {
        const char *at = strstr(key, "_audio_ttfp_ms");
        if (at && key[0] == 'p' && !at[14])
            og_str_addf(&heads, " %9.*s", (int)(at - key), key);
    }
    og_str_addf(out, "%-26s %9s %9s %9s%s\n", "", "mean", "median", "std",
                heads.data ? heads.data : "");
    og_str_free(&heads);
    for (int m = 0; m < OG__METRIC_COUNT; m++) {
        const char *name = og__metric_key((og__metric)m);
        og__metric_word((og__metric)m, &title);
        char full[64];
        snprintf(full, sizeof full, "%s%s", prefix, name);
        if (!json_object_get(j, full)) continue;
        og_str_addf(out, "%-26s", title);
        int digits = strstr(name, "_ms") ? 2 : 4;
        json_object_foreach((json_t *)j, key, value) {
            const char *at = strchr(key, '_');
            bool column = at && !strcmp(at + 1, name) && strncmp(key, "total", 5);
            if (column) og_str_addf(out, " %9.*f", digits, json_real_value(value));
        }
        og_str_add(out, "\n");
    }
}

static void failed(const json_t *j, og_str *out) {
    const char *word;
    json_t *one;
    json_object_foreach(json_object_get(j, "errors_by_kind"), word, one)
        og_str_addf(out, "  %lld x %s (%s); the first: %s\n",
                    (long long)json_integer_value(json_object_get(one, "count")), word,
                    json_string_value(json_object_get(one, "text")),
                    json_string_value(json_object_get(one, "first")));
}

void og__result_text(const json_t *j, og_str *out) {
    const json_t *good = json_object_get(j, "goodput");
    og_str_addf(out, "%.0f of %.0f requests completed, %.0f failed, in %.2f s\n",
                number(j, "completed"), number(j, "num_prompts"), number(j, "failed"),
                number(j, "duration"));
    failed(j, out);
    og_str_addf(
        out, "%.2f requests/s, %.2f audio-s/s, %.1f s of audio, at most %.0f at once\n",
        number(j, "request_throughput"), number(j, "audio_throughput"),
        number(j, "total_audio_duration_s"), number(j, "max_concurrent_requests"));
    if (good)
        og_str_addf(out, "goodput %.2f requests/s: %.1f%% within the limits\n",
                    number(j, "request_goodput"), 100 * number(good, "share"));
    if (json_is_real(json_object_get(j, "audio_continuity")))
        og_str_addf(out, "%.1f%% of the answers play without a gap (%.0f underruns)\n",
                    100 * number(j, "audio_continuity"), number(j, "audio_underruns"));
    if (number(j, "completed") > 0) table(j, out);
    const json_t *c = json_object_get(j, "client");
    double busy =
        number(c, "cpu_s") / (number(j, "duration") > 0 ? number(j, "duration") : 1);
    if (busy > 0.5 || number(c, "max_turn_ms") > 5)
        og_str_addf(
            out,
            "note: the client was busy %.0f%% of the time, up to %.1f ms at once; "
            "times may be its own\n",
            100 * busy, number(c, "max_turn_ms"));
}
