/* Texts become bodies; bodies run. */
#include "graph/cli/bench/run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIP_MAX ((size_t)32 << 20)

int og__percentiles_parse(const char *text, double *out, og_err *err) {
    int n = 0;
    for (const char *s = text; *s;) {
        char *end;
        double v = strtod(s, &end);
        if (end == s || !(v >= 0 && v <= 100) || (*end && *end != ',' && *end != ' '))
            return og_err_set(
                err, OG_EINVAL,
                "percentiles are numbers from 0 to 100 with commas, not '%.80s'", text);
        if (n == OG__PERCENTILES_MAX)
            return og_err_set(err, OG_ELIMIT, "too many percentiles (limit is %d)", n);
        out[n++] = v;
        s = end + strspn(end, ", ");
    }
    return n;
}

static int no_memory(og_err *err) {
    return og_err_set(err, OG_ENOMEM, "out of memory");
}

/* A clip as the value of ref_audio: a URL as it is, a file as a data: URL. */
static const char *clip(og_arena *arena, const char *what, og_err *err) {
    if (!what) return og__made_up_clip(arena);
    if (!strncmp(what, "data:", 5) || strstr(what, "://")) return what;
    og_str raw = OG_STR_INIT, url = OG_STR_INIT;
    char buf[1 << 14];
    size_t k;
    const char *out = NULL;
    FILE *f = fopen(what, "rbe");
    if (!f) {
        og_err_set(err, errno == ENOENT ? OG_ENOENT : OG_EIO, "cannot read '%s': %s",
                   what, strerror(errno));
        return NULL;
    }
    while (raw.len < CLIP_MAX && (k = fread(buf, 1, sizeof buf, f)) > 0)
        og_str_addn(&raw, buf, k);
    if (ferror(f) || raw.len >= CLIP_MAX) {
        og_err_set(err, OG_EIO, "cannot read '%s', or it is larger than 32 MiB", what);
    } else {
        og_str_add(&url, "data:audio/wav;base64,");
        og__base64_encode(raw.data, raw.len, &url);
        out = url.oom || raw.oom ? NULL : og_arena_strdup(arena, url.data);
    }
    fclose(f);
    og_str_free(&raw);
    og_str_free(&url);
    return out;
}

static void put(json_t *j, const char *key, const char *value) {
    if (value) json_object_set_new(j, key, json_string(value));
}

/* What every body has. NULL: see err. */
static json_t *common(const og__bench *b) {
    json_t *j = json_object();
    put(j, "model", b->model);
    json_object_set_new(j, "input", json_string(""));
    put(j, "voice", b->voice);
    put(j, "language", b->language);
    put(j, "instructions", b->instructions);
    put(j, "ref_audio", b->ref_audio);
    put(j, "ref_text", b->ref_text);
    if (b->extra) json_object_update(j, (json_t *)b->extra);
    /* Whoever asks in the further keys for another form would have it measured wrongly. */
    json_object_del(j, "stream");
    json_object_del(j, "stream_format");
    put(j, "response_format", b->format);
    if (b->stream != OG__STREAM_NONE) {
        json_object_set_new(j, "stream", json_true());
        put(j, "stream_format", b->stream == OG__STREAM_SSE ? "sse" : "audio");
    }
    return j;
}

static int frames_of(const og__bench *b, const og__prompt *p) {
    if (b->frames >= 0) return b->frames;
    int n = (int)lround(og__spoken_seconds(p->text) * b->frames_per_second);
    return n > 1 ? n : 1;
}

static int add_clip(const og__bench *b, og_arena *arena, const og__prompt *p,
                    const char **made_up, json_t *j, og_err *err) {
    if (!b->clone || b->ref_audio) return 0;
    const char *url =
        p->ref_audio || !*made_up ? clip(arena, p->ref_audio, err) : *made_up;
    if (!url) return err->code ? err->code : no_memory(err);
    if (!p->ref_audio) *made_up = url;
    put(j, "ref_audio", url);
    put(j, "ref_text", p->ref_text ? p->ref_text : "This is a made up voice.");
    return 0;
}

static int one_job(const og__bench *b, og_arena *arena, const json_t *base,
                   const og__prompt *p, const char **made_up, og__job *job, og_err *err) {
    json_t *j = json_copy((json_t *)base);
    put(j, "input", p->text);
    if (p->extra) {
        json_t *more = json_loads(p->extra, 0, NULL);
        json_object_update(j, more);
        json_decref(more);
    }
    int rc = add_clip(b, arena, p, made_up, j, err);
    int frames = frames_of(b, p);
    if (frames > 0) {
        /* The last token only ends the answer: a frame comes of each of the others. */
        json_object_set_new(j, "max_new_tokens", json_integer(frames + 1));
        json_object_set_new(j, "ignore_eos", json_true());
        job->expect = (int64_t)frames * b->frame_samples;
    }
    char *text = rc == 0 ? json_dumps(j, JSON_COMPACT) : NULL;
    job->body = text ? og_arena_strdup(arena, text) : NULL;
    if (rc == 0 && !job->body) rc = no_memory(err);
    if (rc == 0) job->n = strlen(job->body);
    job->text_units = p->words;
    free(text);
    json_decref(j);
    return rc;
}

int og__bench_jobs(const og__bench *b, og_arena *arena, int n, og__job *jobs,
                   og_err *err) {
    int *order = og_malloc((size_t)n * sizeof *order);
    double *due = og_malloc((size_t)n * sizeof *due);
    const char *made_up = NULL;
    json_t *base = common(b);
    int rc = order && due && base ? 0 : no_memory(err);
    if (rc == 0) rc = og__set_order(&b->set, b->seed, b->shuffle, n, order, err);
    if (rc == 0) og__arrivals(b->seed, b->rate, b->burstiness, n, due);
    for (int i = 0; i < n && rc == 0; i++) {
        jobs[i] = (og__job){.due = due[i]};
        rc = one_job(b, arena, base, &b->set.prompts[order[i]], &made_up, &jobs[i], err);
    }
    json_decref(base);
    og_free(order);
    og_free(due);
    return rc;
}

static og__answer answer_of(const og__bench *b) {
    if (b->stream == OG__STREAM_SSE) return OG__ANSWER_SSE;
    if (!b->format || !strcmp(b->format, "wav")) return OG__ANSWER_WAV;
    return strcmp(b->format, "pcm") ? OG__ANSWER_OTHER : OG__ANSWER_PCM;
}

/* The first requests make a server allocate and compile; a bench in which all of them fail
 * would measure nothing but errors, and is not begun. */
static int warm_up(const og__bench *b, const og__load_opts *load, og_err *err) {
    og__bench w = *b;
    og__load_opts o = *load;
    og__total total;
    og_arena *arena = og_arena_create();
    og__record *records =
        arena ? og_arena_alloc(arena, (size_t)b->warmup * sizeof *records) : NULL;
    og__job *jobs =
        records ? og_arena_alloc(arena, (size_t)b->warmup * sizeof *jobs) : NULL;
    w.rate = INFINITY;
    w.seed = b->seed + 0x7761726d; /* other texts than those that are measured */
    o.progress = NULL;
    if (o.max_concurrency <= 0 && !isinf(b->rate)) o.max_concurrency = 2;
    int rc = jobs ? og__bench_jobs(&w, arena, b->warmup, jobs, err) : no_memory(err);
    if (rc == 0) rc = og__load_run(&o, jobs, b->warmup, records, &total, err);
    if (rc == 0 && total.stopped) rc = og_err_set(err, OG_ECANCELED, "stopped");
    bool any = rc != 0;
    for (int i = 0; i < b->warmup && !any; i++) any = records[i].fail == OG__FAIL_NONE;
    if (!any)
        rc = og_err_set(err, OG_EREJECT, "all %d warm-up requests failed; the first: %s",
                        b->warmup, records[0].error);
    og_arena_destroy(arena);
    return rc;
}

static int measure(const og__bench *b, const og__load_opts *load, og_arena *arena,
                   json_t **result, og_err *err) {
    og__summary sum;
    og__total total;
    og__job *jobs = og_arena_alloc(arena, (size_t)b->n * sizeof *jobs);
    og__record *records = og_malloc((size_t)b->n * sizeof *records);
    int rc = jobs && records ? og__bench_jobs(b, arena, b->n, jobs, err) : no_memory(err);
    if (rc == 0) rc = og__load_run(load, jobs, b->n, records, &total, err);
    if (rc == 0) rc = og__summarize(records, b->n, b->limits, b->n_limits, &sum, err);
    if (rc == 0) {
        *result = og__result_json(b, &sum, &total, records);
        og__summary_free(&sum);
        if (!*result)
            rc = no_memory(err);
        else if (total.stopped)
            rc = og_err_set(err, OG_ECANCELED, "stopped");
    }
    og_free(records);
    return rc;
}

int og__bench_run(const og__bench *b, json_t **result, og_err *err) {
    og__load_opts load = b->load;
    load.answer = answer_of(b);
    *result = NULL;
    int rc = og__load_reach(&load.url, 10, err);
    if (rc == 0 && b->warmup > 0) rc = warm_up(b, &load, err);
    if (rc < 0) return rc;
    og_arena *arena = og_arena_create();
    rc = arena ? measure(b, &load, arena, result, err) : no_memory(err);
    og_arena_destroy(arena);
    return rc;
}
