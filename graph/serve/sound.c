/* What is done to a whole answer's samples, and how its words are counted. */
#include <string.h>

#include "graph/serve/speech.h"
#include "nodes/load/tokenizer.h"

static const og_tokenizer *tokenizer_of(const og_plan *p) {
    for (int i = 0; i < p->n_edges; i++)
        if (p->edges[i].env && p->edges[i].env->tokenizer) return p->edges[i].env->tokenizer;
    return NULL;
}

static int64_t count(const og_tokenizer *t, const char *text) {
    int32_t *ids = NULL;
    size_t n = 0;
    if (!t || !text || og_tokenizer_encode_plain(t, text, strlen(text), &ids, &n, NULL) < 0)
        return 0;
    og_free(ids);
    return (int64_t)n;
}

int64_t og__text_tokens(const og_plan *p, const json_t *fields) {
    const og_tokenizer *t = tokenizer_of(p);
    return count(t, json_string_value(json_object_get(fields, "text"))) +
           count(t, json_string_value(json_object_get(fields, "instructions")));
}

/* Replace *x, which is ours, by what `next` made of it. */
static void replace(float **x, int64_t *n, float *next, int64_t m) {
    og_free(*x);
    *x = next;
    *n = m;
}

int og__speech_encode(const og__ask *a, const float *samples, int64_t n, og_str *out,
                      og_err *err) {
    float *own = NULL, *next = NULL;
    int64_t m = 0, k = n;
    int rc = 0, rate = a->out_rate;
    if (a->format == OG_AUDIO_OPUS) rate = og_audio_opus_rate(rate);
    if (a->speed != 1) {
        rc = og_audio_stretch(samples, k, a->rate, a->speed, &next, &m, err);
        if (rc == 0) replace(&own, &k, next, m);
    }
    if (rc == 0 && rate != a->rate) {
        rc = og_audio_resample(own ? own : samples, k, a->rate, rate, &next, &m, err);
        if (rc == 0) replace(&own, &k, next, m);
    }
    if (rc == 0)
        rc = og_audio_encode(a->format, rate, 1, own ? own : samples, (size_t)k, out, err);
    og_free(own);
    return rc;
}
