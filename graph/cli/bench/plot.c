/* Lines and dots as SVG. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/cli/bench/report.h"

#define W 460.0
#define H 250.0
#define LEFT 56.0
#define RIGHT 12.0
#define TOP 28.0
#define BOTTOM 40.0

static const char *const colors[] = {"#0b6fa4", "#c4501b", "#2e7d32", "#7b3fa0",
                                     "#8a6d00", "#00777a", "#b0245a", "#4a4a4a"};

void og__html(const char *text, og_str *out) {
    for (const char *c = text ? text : ""; *c; c++) {
        switch (*c) {
        case '&': og_str_add(out, "&amp;"); break;
        case '<': og_str_add(out, "&lt;"); break;
        case '>': og_str_add(out, "&gt;"); break;
        case '"': og_str_add(out, "&quot;"); break;
        default: og_str_addn(out, c, 1);
        }
    }
}

og__series *og__plot_series(og__plot *p, const char *name, bool reference) {
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->series[i].name, name) && p->series[i].reference == reference)
            return &p->series[i];
    if (p->n == OG__PLOT_SERIES_MAX) return NULL;
    og__series *s = &p->series[p->n++];
    *s = (og__series){.name = name, .reference = reference};
    return s;
}

void og__series_add(og__series *s, double x, double y) {
    if (!s || s->n == OG__PLOT_POINTS_MAX || !isfinite(x) || !isfinite(y)) return;
    s->x[s->n] = x;
    s->y[s->n++] = y;
}

typedef struct scale {
    double low, high, top; /* of x; of y, from 0 */
    bool log;
} scale;

static double at_x(const scale *s, double x) {
    double a = s->log ? log(s->low) : s->low, b = s->log ? log(s->high) : s->high;
    double v = s->log ? log(x) : x;
    return LEFT + (b > a ? (v - a) / (b - a) : 0.5) * (W - LEFT - RIGHT);
}

static double at_y(const scale *s, double y) {
    return H - BOTTOM - y / s->top * (H - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten, so that about four of them fill the height. */
static double tick_of(double top) {
    double power = pow(10, floor(log10(top / 4))), part = top / 4 / power;
    return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

static bool span(const og__plot *p, scale *s) {
    *s = (scale){.low = INFINITY, .high = -INFINITY};
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->series[i].n; k++) {
            s->low = fmin(s->low, p->series[i].x[k]);
            s->high = fmax(s->high, p->series[i].x[k]);
            s->top = fmax(s->top, p->series[i].y[k]);
        }
    s->log = s->low > 0 && s->high / s->low >= 8;
    if (!(s->top > 0)) s->top = 1;
    s->top *= 1.08;
    return isfinite(s->low);
}

static void words(og_str *out, double x, double y, const char *anchor, const char *text) {
    og_str_addf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    og__html(text, out);
    og_str_add(out, "</text>");
}

static void axes(const og__plot *p, const scale *s, og_str *out) {
    char label[32];
    double tick = tick_of(s->top);
    for (double y = 0; y <= s->top; y += tick) {
        og_str_addf(out, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>", LEFT, at_y(s, y),
                    W - RIGHT);
        snprintf(label, sizeof label, "%g", y);
        words(out, LEFT - 6, at_y(s, y) + 4, "end", label);
    }
    double seen[OG__PLOT_SERIES_MAX * OG__PLOT_POINTS_MAX];
    int n = 0;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->series[i].n; k++) {
            double x = at_x(s, p->series[i].x[k]);
            bool near = false;
            for (int m = 0; m < n && !near; m++) near = fabs(seen[m] - x) < 26;
            if (near) continue;
            seen[n++] = x;
            snprintf(label, sizeof label, "%g", p->series[i].x[k]);
            words(out, x, H - BOTTOM + 16, "middle", label);
        }
    words(out, (LEFT + W - RIGHT) / 2, H - 6, "middle", p->x_label);
    words(out, LEFT - 40, TOP - 14, "start", p->title);
}

static void line(const og__series *r, const scale *s, const char *color, og_str *out) {
    const char *dash = r->reference ? " stroke-dasharray=\"4 3\"" : "";
    og_str_addf(out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\"%s d=\"", color, dash);
    for (int k = 0; k < r->n; k++)
        og_str_addf(out, "%c%.1f %.1f", k ? 'L' : 'M', at_x(s, r->x[k]), at_y(s, r->y[k]));
    og_str_add(out, "\"/>");
    for (int k = 0; k < r->n; k++) {
        og_str_addf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>",
                    at_x(s, r->x[k]), at_y(s, r->y[k]), color);
        og__html(r->name, out);
        og_str_addf(out, ": %g at %g</title></circle>", r->y[k], r->x[k]);
    }
}

void og__plot_svg(const og__plot *p, og_str *out) {
    scale s;
    if (!span(p, &s)) return;
    double height = H + 16 * p->n + 6;
    og_str_addf(out, "<svg viewBox=\"0 0 %g %g\" width=\"%g\" role=\"img\" aria-label=\"", W,
                height, W);
    og__html(p->title, out);
    og_str_add(out, "\">");
    axes(p, &s, out);
    for (int i = 0; i < p->n; i++) {
        const char *color = p->series[i].reference ? "#8c8c8c" : colors[i % 8];
        double y = H + 10 + 16 * i;
        line(&p->series[i], &s, color, out);
        og_str_addf(out, "<path stroke=\"%s\" stroke-width=\"2\" d=\"M%.1f %.1fh18\"%s/>", color,
                    LEFT, y, p->series[i].reference ? " stroke-dasharray=\"4 3\"" : "");
        words(out, LEFT + 24, y + 4, "start", p->series[i].name);
    }
    og_str_add(out, "</svg>\n");
}
