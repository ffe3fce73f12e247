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
    double low, high, bottom, top; /* of x; of y */
    bool log, log_y;
} scale;

static double part(double v, double low, double high, bool logarithmic) {
    if (!(high > low)) return 0.5;
    return logarithmic ? log(v / low) / log(high / low) : (v - low) / (high - low);
}

static double at_x(const scale *s, double x) {
    return LEFT + part(x, s->low, s->high, s->log) * (W - LEFT - RIGHT);
}

static double at_y(const scale *s, double y) {
    return H - BOTTOM - part(y, s->bottom, s->top, s->log_y) * (H - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten, so that about four of them fill the height. */
static double tick_of(double top) {
    double power = pow(10, floor(log10(top / 4))), times = top / 4 / power;
    return power * (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10);
}

/* Whether there is something to see: two loads at least. */
static bool span(const og__plot *p, scale *s) {
    double least = INFINITY;
    *s = (scale){.low = INFINITY, .high = -INFINITY};
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->series[i].n; k++) {
            s->low = fmin(s->low, p->series[i].x[k]);
            s->high = fmax(s->high, p->series[i].x[k]);
            s->top = fmax(s->top, p->series[i].y[k]);
            least = fmin(least, p->series[i].y[k]);
        }
    if (!(s->high > s->low)) return false;
    s->log = s->low > 0 && s->high / s->low >= 8;
    if (!(s->top > 0)) s->top = 1;
    s->log_y = least > 0 && s->top / least >= 20;
    s->bottom = s->log_y ? least / 1.3 : 0;
    s->top *= s->log_y ? 1.3 : 1.08;
    return true;
}

static void words(og_str *out, double x, double y, const char *anchor, const char *text) {
    og_str_addf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    og__html(text, out);
    og_str_add(out, "</text>");
}

static void grid_line(const scale *s, double y, og_str *out) {
    char label[32];
    og_str_addf(out, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>", LEFT, at_y(s, y),
                W - RIGHT);
    snprintf(label, sizeof label, "%g", y);
    words(out, LEFT - 6, at_y(s, y) + 4, "end", label);
}

static void axes(const og__plot *p, const scale *s, og_str *out) {
    char label[32];
    bool wide = s->log_y && s->top / s->bottom > 300; /* then powers of ten alone */
    if (s->log_y)
        for (double power = pow(10, floor(log10(s->bottom))); power <= s->top;
             power *= 10)
            for (double m = 1; m < 10; m = m < 2 ? 2 : m < 5 ? 5 : 10) {
                bool in = power * m >= s->bottom && power * m <= s->top;
                if (in && (m < 2 || !wide)) grid_line(s, power * m, out);
            }
    else
        for (double y = 0; y <= s->top; y += tick_of(s->top)) grid_line(s, y, out);
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
    const char *inside = r->reference ? "#fff" : color;
    og_str_addf(out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\"%s d=\"",
                color, dash);
    for (int k = 0; k < r->n; k++)
        og_str_addf(out, "%c%.1f %.1f", k ? 'L' : 'M', at_x(s, r->x[k]),
                    at_y(s, r->y[k]));
    og_str_add(out, "\"/>");
    for (int k = 0; k < r->n; k++) {
        og_str_addf(out,
                    "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\" stroke=\"%s\">"
                    "<title>",
                    at_x(s, r->x[k]), at_y(s, r->y[k]), inside, color);
        og__html(r->name, out);
        og_str_addf(out, ": %g at %g</title></circle>", r->y[k], r->x[k]);
    }
}

void og__plot_svg(const og__plot *p, og_str *out) {
    scale s;
    if (!span(p, &s)) return;
    double height = H + 16 * p->n + 6;
    og_str_addf(out, "<svg viewBox=\"0 0 %g %g\" width=\"%g\" role=\"img\" aria-label=\"",
                W, height, W);
    og__html(p->title, out);
    og_str_add(out, "\">");
    axes(p, &s, out);
    int color_at = -1; /* a reference has the colour of the series before it */
    for (int i = 0; i < p->n; i++) {
        if (!p->series[i].reference || color_at < 0) color_at++;
        const char *color = colors[color_at % 8];
        double y = H + 10 + 16 * i;
        line(&p->series[i], &s, color, out);
        og_str_addf(out, "<path stroke=\"%s\" stroke-width=\"2\" d=\"M%.1f %.1fh18\"%s/>",
                    color, LEFT, y,
                    p->series[i].reference ? " stroke-dasharray=\"4 3\"" : "");
        words(out, LEFT + 24, y + 4, "start", p->series[i].name);
    }
    og_str_add(out, "</svg>\n");
}
