/* CSV, HTML and text of a suite's report. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/cli/bench/report.h"

static const char *str(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

static double num(const json_t *j, const char *key) {
    const json_t *v = json_object_get(j, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* "8 at a time", "2 requests/s" */
static void load_words(const json_t *run, og_str *out) {
    double rate = num(run, "request_rate"), c = num(run, "max_concurrency");
    if (!isnan(rate)) og_str_addf(out, "%g requests/s", rate);
    if (!isnan(c)) og_str_addf(out, "%s%g at a time", isnan(rate) ? "" : ", ", c);
    if (isnan(rate) && isnan(c)) og_str_add(out, "all at once");
}

static void run_words(const json_t *run, og_str *out) {
    const char *task = str(run, "task"), *phase = str(run, "phase");
    og_str_addf(out, "%s%s%s", task, *task && *phase ? ", " : "", phase);
    if (!*task && !*phase) og_str_add(out, str(run, "dataset"));
}

/* ---- CSV ---------------------------------------------------------------------- */

static const char *const columns[] = {
    "num_prompts",
    "completed",
    "failed",
    "duration",
    "request_throughput",
    "audio_throughput",
    "mean_audio_ttfp_ms",
    "median_audio_ttfp_ms",
    "p95_audio_ttfp_ms",
    "p99_audio_ttfp_ms",
    "median_audio_ttfa_ms",
    "median_audio_rtf",
    "p95_audio_rtf",
    "median_e2el_ms",
    "p95_e2el_ms",
    "p99_e2el_ms",
    "total_audio_duration_s",
    "audio_underruns",
    "audio_continuity",
};
#define N_COLUMNS (sizeof columns / sizeof *columns)

static void cell(const char *text, og_str *out) {
    og_str_add(out, "\"");
    for (const char *c = text; *c; c++) {
        if (*c == '"') og_str_add(out, "\"");
        og_str_addn(out, *c == '\n' ? " " : c, 1);
    }
    og_str_add(out, "\"");
}

static void csv_run(const json_t *entry, const json_t *run, og_str *out) {
    const json_t *result = json_object_get(run, "result");
    const char *const names[] = {"task", "phase", "dataset"};
    cell(str(entry, "test_name"), out);
    og_str_add(out, ",");
    cell(str(entry, "model"), out);
    for (size_t i = 0; i < 3; i++) {
        og_str_add(out, ",");
        cell(str(run, names[i]), out);
    }
    const char *const load[] = {"request_rate", "max_concurrency"};
    for (size_t i = 0; i < 2; i++) {
        double v = num(run, load[i]);
        og_str_add(out, ",");
        if (!isnan(v)) og_str_addf(out, "%g", v);
    }
    og_str_addf(out, ",%s,", str(run, "verdict"));
    cell(str(run, "skipped"), out);
    for (size_t i = 0; i < N_COLUMNS; i++) {
        double v = num(result, columns[i]);
        og_str_add(out, ",");
        if (!isnan(v)) og_str_addf(out, "%.10g", v);
    }
    og_str_add(out, "\n");
}

void og__report_csv(const json_t *report, og_str *out) {
    json_t *entry, *run;
    size_t i, k;
    og_str_add(out,
               "test_name,model,task,phase,dataset,request_rate,max_concurrency,verdict,"
               "skipped");
    for (size_t c = 0; c < N_COLUMNS; c++) og_str_addf(out, ",%s", columns[c]);
    og_str_add(out, "\n");
    json_array_foreach(json_object_get(report, "entries"), i, entry) {
        json_array_foreach(json_object_get(entry, "runs"), k, run)
            csv_run(entry, run, out);
    }
}

/* ---- HTML --------------------------------------------------------------------- */

static const char style[] =
    "body{font:15px/1.45 system-ui,sans-serif;color:#1c1c1c;background:#fff;margin:2rem "
    "auto;"
    "max-width:70rem;padding:0 "
    "1rem}h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}"
    "table{border-collapse:collapse;margin:.6rem 0;font-variant-numeric:tabular-nums}"
    "th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right}"
    "th:first-child,td:first-child,td.w,th.w{text-align:left}"
    ".pass{color:#1b6e2b}.fail{color:#b3261e;font-weight:600}.na,.skipped{color:#6b6b6b}"
    "svg{font:11px system-ui,sans-serif;margin:.4rem 1rem .4rem 0;max-width:100%}"
    "svg text{fill:#333}.grid{stroke:#e3e3e3;fill:none}code{font-size:.9em}";

static void value_cell(const json_t *result, const char *key, int digits, double scale,
                       og_str *out) {
    double v = num(result, key);
    if (isnan(v))
        og_str_add(out, "<td></td>");
    else
        og_str_addf(out, "<td>%.*f</td>", digits, v * scale);
}

static void html_run(const json_t *run, og_str *out) {
    const json_t *r = json_object_get(run, "result");
    og_str words = OG_STR_INIT;
    og_str_add(out, "<tr><td>");
    run_words(run, &words);
    og__html(words.data, out);
    words.len = 0;
    og_str_add(out, "</td><td class=w>");
    load_words(run, &words);
    og__html(words.data, out);
    og_str_free(&words);
    og_str_addf(out, "</td><td class=\"w %s\">", str(run, "verdict"));
    og__html(str(run, "verdict"), out);
    og_str_add(out, "</td>");
    if (!r) {
        og_str_add(out, "<td class=\"w skipped\" colspan=9>");
        og__html(str(run, "skipped"), out);
        og_str_add(out, "</td></tr>\n");
        return;
    }
    og_str_addf(out, "<td>%g/%g</td>", num(r, "completed"), num(r, "num_prompts"));
    value_cell(r, "median_audio_ttfp_ms", 1, 1, out);
    value_cell(r, "p95_audio_ttfp_ms", 1, 1, out);
    value_cell(r, "median_audio_rtf", 3, 1, out);
    value_cell(r, "median_e2el_ms", 0, 1, out);
    value_cell(r, "p95_e2el_ms", 0, 1, out);
    value_cell(r, "audio_throughput", 1, 1, out);
    value_cell(r, "request_throughput", 2, 1, out);
    value_cell(r, "audio_continuity", 1, 100, out);
    og_str_add(out, "</tr>\n");
}

static void baselines(const json_t *runs, const char *hardware, og_str *out) {
    json_t *run, *b;
    size_t i, k;
    bool any = false;
    json_array_foreach(runs, i, run) any |=
        json_array_size(json_object_get(run, "baseline")) > 0;
    if (!any) return;
    og_str_add(out, "<table><tr><th>against the baseline");
    if (*hardware) og_str_add(out, " of ");
    og__html(hardware, out);
    og_str_add(
        out,
        "<th class=w>load<th class=w>metric<th>baseline<th>here<th>ratio<th></tr>\n");
    json_array_foreach(runs, i, run)
        json_array_foreach(json_object_get(run, "baseline"), k, b) {
        double base = num(b, "baseline"), v = num(b, "value");
        og_str words = OG_STR_INIT;
        og_str_add(out, "<tr><td>");
        run_words(run, &words);
        og__html(words.data, out);
        words.len = 0;
        load_words(run, &words);
        og_str_add(out, "</td><td class=w>");
        og__html(words.data, out);
        og_str_free(&words);
        og_str_add(out, "</td><td class=w><code>");
        og__html(str(b, "metric"), out);
        og_str_addf(out, "</code></td><td>%g</td><td>", base);
        if (!isnan(v))
            og_str_addf(out, "%.4g</td><td>%.3g", v, base != 0 ? v / base : NAN);
        else
            og_str_add(out, "</td><td>");
        og_str_addf(out, "</td><td class=%s>%s</td></tr>\n", str(b, "verdict"),
                    str(b, "verdict"));
    }
    og_str_add(out, "</table>\n");
}

static double baseline_of(const json_t *run, const char *metric) {
    json_t *b;
    size_t i;
    json_array_foreach(json_object_get(run, "baseline"), i, b) {
        if (!strcmp(str(b, "metric"), metric)) return num(b, "baseline");
    }
    return NAN;
}

/* One metric over the load; key: of the sweep that is the x axis. */
static void plot(const json_t *runs, const char *key, const char *x_label,
                 const char *metric, const char *title, og_str *out) {
    og__plot p = {.title = title, .x_label = x_label};
    char names[OG__PLOT_SERIES_MAX][96], ref[OG__PLOT_SERIES_MAX][112];
    json_t *run;
    size_t i;
    int n = 0;
    json_array_foreach(runs, i, run) {
        double x = num(run, key), y = num(json_object_get(run, "result"), metric);
        if (isnan(x) || isnan(y) || n == OG__PLOT_SERIES_MAX) continue;
        const char *task = str(run, "task");
        int at = 0;
        snprintf(names[n], sizeof names[n], "%.80s", *task ? task : str(run, "dataset"));
        while (strcmp(names[at], names[n])) at++;
        n += at == n;
        snprintf(ref[at], sizeof ref[at], "%.90s, baseline", names[at]);
        og__series_add(og__plot_series(&p, names[at], false), x, y);
        double base = baseline_of(run, metric);
        if (!isnan(base)) og__series_add(og__plot_series(&p, ref[at], true), x, base);
    }
    og__plot_svg(&p, out);
}

static void plots(const json_t *runs, og_str *out) {
    static const struct {
        const char *metric, *title;
    } all[] = {{"median_audio_ttfp_ms", "median first packet, ms"},
               {"p95_audio_ttfp_ms", "p95 first packet, ms"},
               {"median_audio_rtf", "median real-time factor"},
               {"audio_throughput", "audio seconds per second"},
               {"p95_e2el_ms", "p95 whole answer, ms"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        plot(runs, "max_concurrency", "requests at a time", all[i].metric, all[i].title,
             out);
        plot(runs, "request_rate", "requests a second", all[i].metric, all[i].title, out);
    }
}

static void html_entry(const json_t *report, const json_t *entry, og_str *out) {
    const json_t *runs = json_object_get(entry, "runs");
    json_t *run;
    size_t i;
    og_str_add(out, "<h2>");
    og__html(str(entry, "test_name"), out);
    og_str_add(out, "</h2>\n<p>");
    og__html(str(entry, "model"), out);
    if (*str(entry, "server")) {
        og_str_add(out, "; <code>");
        og__html(str(entry, "server"), out);
        og_str_add(out, "</code>");
    }
    double start = num(entry, "start_s");
    if (!isnan(start)) og_str_addf(out, "; ready after %.1f s", start);
    og_str_add(out, "</p>\n");
    if (*str(entry, "skipped")) {
        og_str_add(out, "<p class=skipped>Skipped: ");
        og__html(str(entry, "skipped"), out);
        og_str_add(out, "</p>\n");
        return;
    }
    if (*str(entry, "failed")) {
        og_str_add(out, "<p class=fail>");
        og__html(str(entry, "failed"), out);
        og_str_add(out, "</p>\n");
    }
    og_str_add(out,
               "<table><tr><th>run<th class=w>load<th class=w><th>done<th>first packet, "
               "median ms<th>p95<th>RTF<th>whole answer, median ms<th>p95<th>audio-s/s"
               "<th>requests/s<th>without a gap, %</tr>\n");
    json_array_foreach(runs, i, run) html_run(run, out);
    og_str_add(out, "</table>\n");
    baselines(runs, str(report, "hardware"), out);
    plots(runs, out);
}

void og__report_html(const json_t *report, og_str *out) {
    const json_t *t = json_object_get(report, "totals");
    json_t *entry;
    size_t i;
    og_str_addf(out,
                "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport "
                "content=\"width=device-width\">\n<title>");
    og__html(str(report, "suite"), out);
    og_str_addf(out, "</title>\n<style>%s</style>\n<h1>", style);
    og__html(str(report, "suite"), out);
    og_str_add(out, "</h1>\n<p>");
    og__html(str(report, "date"), out);
    og_str_add(out, ", ");
    og__html(str(report, "program"), out);
    og_str_addf(
        out,
        ". %g runs: %g passed, %g failed, %g skipped. Baselines: %g met, %g missed, "
        "%g not comparable.</p>\n",
        num(t, "runs"), num(t, "pass"), num(t, "fail"), num(t, "skipped"),
        num(t, "baseline_pass"), num(t, "baseline_fail"), num(t, "baseline_na"));
    json_array_foreach(json_object_get(report, "entries"), i, entry)
        html_entry(report, entry, out);
    og_str_add(out, "</html>\n");
}

/* ---- text --------------------------------------------------------------------- */

static void text_run(const json_t *run, og_str *out) {
    const json_t *r = json_object_get(run, "result");
    og_str words = OG_STR_INIT;
    run_words(run, &words);
    og_str_add(&words, "; ");
    load_words(run, &words);
    og_str_addf(out, "  %-7s %-44s", str(run, "verdict"), words.data ? words.data : "");
    og_str_free(&words);
    if (!r) {
        og_str_addf(out, " %s\n", str(run, "skipped"));
        return;
    }
    og_str_addf(out, " first packet %.1f ms, RTF %.3f, %.1f audio-s/s",
                num(r, "median_audio_ttfp_ms"), num(r, "median_audio_rtf"),
                num(r, "audio_throughput"));
    json_t *b;
    size_t i;
    int met = 0, missed = 0;
    json_array_foreach(json_object_get(run, "baseline"), i, b) {
        met += !strcmp(str(b, "verdict"), "pass");
        missed += !strcmp(str(b, "verdict"), "fail");
    }
    if (met + missed) og_str_addf(out, "; baseline %d of %d met", met, met + missed);
    og_str_add(out, "\n");
}

void og__report_text(const json_t *report, og_str *out) {
    const json_t *t = json_object_get(report, "totals");
    json_t *entry, *run;
    size_t i, k;
    json_array_foreach(json_object_get(report, "entries"), i, entry) {
        og_str_addf(out, "%s (%s)\n", str(entry, "test_name"), str(entry, "model"));
        if (*str(entry, "skipped")) {
            og_str_addf(out, "  skipped %s\n", str(entry, "skipped"));
            continue;
        }
        if (*str(entry, "failed"))
            og_str_addf(out, "  failed: %s\n", str(entry, "failed"));
        json_array_foreach(json_object_get(entry, "runs"), k, run) text_run(run, out);
    }
    og_str_addf(
        out,
        "%g runs: %g passed, %g failed, %g skipped; baselines: %g met, %g missed, "
        "%g not comparable\n",
        num(t, "runs"), num(t, "pass"), num(t, "fail"), num(t, "skipped"),
        num(t, "baseline_pass"), num(t, "baseline_fail"), num(t, "baseline_na"));
}
