/* From records to figures.
 *
 * The definitions are those of the public bench client: a failed request counts in no
 * distribution; percentiles are interpolated linearly between ranks; std is that of the whole
 * population. */
#ifndef OG_CLI_BENCH_STATS_H
#define OG_CLI_BENCH_STATS_H

#include "graph/cli/bench/load.h"

typedef enum og__metric {
    OG__METRIC_TTFP,     /* first audio byte after the request was begun, ms */
    OG__METRIC_AUDIBLE,  /* first sample that can be heard is played, ms */
    OG__METRIC_E2EL,     /* the whole answer, ms */
    OG__METRIC_RTF,      /* time of the whole answer / seconds of audio */
    OG__METRIC_DURATION, /* seconds of audio */
    OG__METRIC_UNDERRUN, /* seconds of silence while the listener waited */
    OG__METRIC_COUNT
} og__metric;

/* The name in result files behind mean_, median_, pNN_: "audio_ttfp_ms". */
const char *og__metric_key(og__metric m);
/* The short name of --goodput and --percentile-metrics: "ttfp"; *title: for people. */
const char *og__metric_word(og__metric m, const char **title);
/* The metric of a short name, or of the public one ("audio_ttfp"). -1: none. */
int og__metric_find(const char *name, size_t n);
/* Its value in a record in the unit of its key; false where it has none. */
bool og__metric_of(const og__record *r, og__metric m, double *out);

typedef struct og__dist {
    double *sorted; /* n values, ascending; owned */
    int n;
    double mean, std;
} og__dist;

/* p from 0 to 100; 0 for an empty distribution. */
double og__dist_percentile(const og__dist *d, double p);

#define OG__LIMITS_MAX 8
typedef struct og__limit {
    og__metric metric;
    double max;
} og__limit;

/* "ttfp:50 e2el:1000": the number of limits, or OG_EINVAL. */
int og__limits_parse(const char *text, og__limit *out, og_err *err) OG_MUST_CHECK;

typedef struct og__summary {
    int n, completed, failed, good, continuous; /* good: within all limits */
    int fails[OG__FAIL_COUNT];
    const og__record *first_of[OG__FAIL_COUNT]; /* an example of each kind, NULL */
    int64_t samples, bytes, input_tokens;
    double audio_s, worst_lag, worst_gap;
    int underruns, retries;
    og__dist dist[OG__METRIC_COUNT];
} og__summary;

int og__summarize(const og__record *records, int n, const og__limit *limits, int n_limits,
                  og__summary *out, og_err *err) OG_MUST_CHECK;
void og__summary_free(og__summary *s);

#endif
