/* What a suite gave: one JSON value, from which the CSV and the HTML page are made.
 *
 * {"suite", "date", "hardware", "program", "tolerance", "totals": {...},
 *  "entries": [{"test_name", "model", "skipped": reason or null,
 *               "failed": why its server was not ready, "server": words, "start_s",
 *               "runs": [{"task", "phase", "dataset", "request_rate", "max_concurrency",
 *                         "verdict": "pass|fail|skipped", "skipped": reason or null,
 *                         "baseline": [{"metric", "baseline", "value", "verdict"}],
 *                         "result": {...}}]}]} */
#ifndef OG_CLI_BENCH_REPORT_H
#define OG_CLI_BENCH_REPORT_H

#include <jansson.h>
#include <stdbool.h>

#include "kernels/base/alloc.h"

/* One line a run: what it was, and its main figures. */
void og__report_csv(const json_t *report, og_str *out);
/* A page that needs nothing else: tables and SVG plots. */
void og__report_html(const json_t *report, og_str *out);
/* The same in a few lines of text. */
void og__report_text(const json_t *report, og_str *out);

/* ---- plots (plot.c) ----------------------------------------------------------- */

#define OG__PLOT_SERIES_MAX 8
#define OG__PLOT_POINTS_MAX 64

typedef struct og__series {
    const char *name; /* borrowed */
    double x[OG__PLOT_POINTS_MAX], y[OG__PLOT_POINTS_MAX];
    int n;
    bool reference; /* someone else's figures: dashed */
} og__series;

typedef struct og__plot {
    const char *title, *x_label;
    og__series series[OG__PLOT_SERIES_MAX];
    int n;
} og__plot;

/* A series by name, made if it is not there. NULL when there are too many. */
og__series *og__plot_series(og__plot *p, const char *name, bool reference);
void og__series_add(og__series *s, double x, double y);
/* An <svg>; an axis is logarithmic where it spans a factor of 8 (x) or 20 (y), else y is from
 * 0. Nothing when there are not two different x. A reference series stands right behind the
 * one that it belongs to. */
void og__plot_svg(const og__plot *p, og_str *out);
/* Text with &, <, > and quotes made harmless. */
void og__html(const char *text, og_str *out);

#endif
