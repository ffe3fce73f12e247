/* A result beside the baseline of its run. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/cli/bench/suite.h"

const char *og__verdict_word(og__verdict v) {
    return v == OG__VERDICT_PASS ? "pass" : v == OG__VERDICT_FAIL ? "fail" : "na";
}

static bool numeric_keys(const json_t *map) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)map, key,
                        value) if (!isdigit((unsigned char)*key)) return false;
    return true;
}

/* The map metric -> value. Newer files have one for every kind of hardware, older ones are flat,
 * with a list or a map by concurrency as the value. */
static const json_t *bucket(const json_t *baseline, const char *hardware) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)baseline, key, value) {
        if (json_is_object(value) && !numeric_keys(value))
            return json_object_get(baseline, hardware);
    }
    return baseline;
}

static double at_step(const json_t *v, const og__suite_run *run) {
    char key[32];
    if (json_is_array(v)) {
        size_t n = json_array_size(v);
        v = json_array_get(v, n == 1 ? 0 : (size_t)run->step);
    } else if (json_is_object(v)) {
        if (isinf(run->rate))
            snprintf(key, sizeof key, "%d", run->concurrency);
        else
            snprintf(key, sizeof key, "%g", run->rate);
        v = json_object_get(v, key);
    }
    return json_is_number(v) ? json_number_value(v) : NAN;
}

int og__suite_judge(const og__suite_run *run, const char *hardware, const json_t *result,
                    double tolerance, og__judged *out) {
    const json_t *map = bucket(og__member(run->params, "baseline"), hardware);
    const char *metric;
    json_t *v;
    int n = 0;
    json_object_foreach((json_t *)map, metric, v) {
        double base = at_step(v, run);
        if (isnan(base) || n == OG__JUDGED_MAX || !strcmp(metric, "regression_tolerance"))
            continue;
        const json_t *now = json_object_get(result, metric);
        og__judged *j = &out[n++];
        *j =
            (og__judged){metric, base, json_is_number(now) ? json_number_value(now) : NAN,
                         OG__VERDICT_NA};
        if (isnan(j->value) ||
            json_integer_value(json_object_get(result, "completed")) == 0)
            continue;
        bool more = strstr(metric, "throughput") || strstr(metric, "goodput");
        bool fine = more ? j->value >= base * (1 - tolerance)
                         : j->value <= base * (1 + tolerance);
        j->verdict = fine ? OG__VERDICT_PASS : OG__VERDICT_FAIL;
    }
    return n;
}
