/* Distributions and counts. */
#include "graph/cli/bench/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *key, *word, *title;
} metrics[OG__METRIC_COUNT] = {
    [OG__METRIC_TTFP] = {"audio_ttfp_ms", "ttfp", "first packet, ms"},
    [OG__METRIC_AUDIBLE] = {"audio_ttfa_ms", "ttfa", "first audible sample, ms"},
    [OG__METRIC_E2EL] = {"e2el_ms", "e2el", "whole answer, ms"},
    [OG__METRIC_RTF] = {"audio_rtf", "rtf", "real-time factor"},
    [OG__METRIC_DURATION] = {"audio_duration_s", "duration", "audio, s"},
    [OG__METRIC_UNDERRUN] = {"audio_underrun_s", "underrun", "underrun, s"},
};

const char *og__metric_key(og__metric m) {
    return metrics[m].key;
}

const char *og__metric_word(og__metric m, const char **title) {
    if (title) *title = metrics[m].title;
    return metrics[m].word;
}

int og__metric_find(const char *name, size_t n) {
    if (n > 6 && !strncmp(name, "audio_", 6)) {
        name += 6;
        n -= 6;
    }
    for (int m = 0; m < OG__METRIC_COUNT; m++)
        if (strlen(metrics[m].word) == n && !strncmp(metrics[m].word, name, n)) return m;
    return -1;
}

static bool given(double v, double scale, double *out) {
    *out = v * scale;
    return v >= 0;
}

bool og__metric_of(const og__record *r, og__metric m, double *out) {
    bool audio = r->samples > 0;
    switch (m) {
    case OG__METRIC_TTFP: return given(r->ttfp, 1e3, out);
    case OG__METRIC_AUDIBLE: return given(r->audible, 1e3, out);
    case OG__METRIC_E2EL: return given(r->e2el, 1e3, out);
    case OG__METRIC_RTF: return audio && given(r->e2el / r->audio_s, 1, out);
    case OG__METRIC_DURATION: return audio && given(r->audio_s, 1, out);
    case OG__METRIC_UNDERRUN: return audio && given(r->underrun_s, 1, out);
    default: return false;
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void finish(og__dist *d) {
    double sum = 0, squares = 0;
    if (d->n == 0) return;
    qsort(d->sorted, (size_t)d->n, sizeof *d->sorted, ascending);
    for (int i = 0; i < d->n; i++) sum += d->sorted[i];
    d->mean = sum / d->n;
    for (int i = 0; i < d->n; i++)
        squares += (d->sorted[i] - d->mean) * (d->sorted[i] - d->mean);
    d->std = sqrt(squares / d->n);
}

double og__dist_percentile(const og__dist *d, double p) {
    if (d->n == 0) return 0;
    double rank = p / 100 * (d->n - 1);
    int low = (int)floor(rank);
    if (low >= d->n - 1) return d->sorted[d->n - 1];
    double part = rank - low;
    return d->sorted[low] + part * (d->sorted[low + 1] - d->sorted[low]);
}

static int one_limit(const char *s, size_t n, og__limit *out, og_err *err) {
    const char *colon = memchr(s, ':', n);
    int m = colon ? og__metric_find(s, (size_t)(colon - s)) : -1;
    char *end = NULL;
    double v = m >= 0 ? strtod(colon + 1, &end) : 0;
    if (m < 0 || end != s + n || end == colon + 1 || !(v >= 0)) {
        og_err_set(err, OG_EINVAL, "'%.*s' is no limit", (int)(n < 80 ? n : 80), s);
        og_err_hint(err, "write ttfp:50 e2el:1000 (ms), rtf:0.5, ttfa:60 (ms), "
                         "duration:10 (s) or underrun:0 (s)");
        return OG_EINVAL;
    }
    *out = (og__limit){(og__metric)m, v};
    return 0;
}

int og__limits_parse(const char *text, og__limit *out, og_err *err) {
    int n = 0;
    for (const char *s = text; *s;) {
        size_t len = strcspn(s, " ,");
        if (len && n == OG__LIMITS_MAX)
            return og_err_set(err, OG_ELIMIT, "too many limits (limit is %d)", n);
        int rc = len ? one_limit(s, len, &out[n++], err) : 0;
        if (rc < 0) return rc;
        s += len;
        s += strspn(s, " ,");
    }
    return n;
}

static bool within(const og__record *r, const og__limit *limits, int n) {
    double v;
    for (int i = 0; i < n; i++)
        if (!og__metric_of(r, limits[i].metric, &v) || v > limits[i].max) return false;
    return true;
}

static void count(og__summary *s, const og__record *r, const og__limit *limits, int n) {
    double v;
    s->completed++;
    s->good += within(r, limits, n);
    s->samples += r->samples;
    s->bytes += r->bytes;
    s->audio_s += r->audio_s;
    s->underruns += r->underruns;
    s->continuous += r->samples > 0 && r->underruns == 0;
    if (r->input_tokens > 0) s->input_tokens += r->input_tokens;
    if (r->worst_gap > s->worst_gap) s->worst_gap = r->worst_gap;
    for (int m = 0; m < OG__METRIC_COUNT; m++)
        if (og__metric_of(r, (og__metric)m, &v)) s->dist[m].sorted[s->dist[m].n++] = v;
}

int og__summarize(const og__record *records, int n, const og__limit *limits, int n_limits,
                  og__summary *out, og_err *err) {
    *out = (og__summary){.n = n};
    for (int m = 0; m < OG__METRIC_COUNT; m++) {
        out->dist[m].sorted = og_malloc((size_t)(n + 1) * sizeof(double));
        if (out->dist[m].sorted) continue;
        og__summary_free(out);
        return og_err_set(err, OG_ENOMEM, "out of memory");
    }
    for (int i = 0; i < n; i++) {
        const og__record *r = &records[i];
        if (!r->finished) continue;
        out->fails[r->fail]++;
        out->retries += r->retries;
        if (r->lag > out->worst_lag) out->worst_lag = r->lag;
        if (r->fail) {
            out->failed++;
            if (!out->first_of[r->fail]) out->first_of[r->fail] = r;
        } else {
            count(out, r, limits, n_limits);
        }
    }
    for (int m = 0; m < OG__METRIC_COUNT; m++) finish(&out->dist[m]);
    return 0;
}

void og__summary_free(og__summary *s) {
    for (int m = 0; m < OG__METRIC_COUNT; m++) {
        og_free(s->dist[m].sorted);
        s->dist[m].sorted = NULL;
    }
}
