/* How near each op comes to what the machine can do; ops_cases.h has the table.
 *
 * Of every op: time of a call (the best of many short rounds), bytes and operations per
 * second, and their shares of the ceilings of this run: a plain read of memory, and
 * multiply-adds in registers. On CUDA the ceilings are those of its own ops: a copy of
 * 256 MiB, and a large bf16 linear. What an op has the larger share of binds it. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/machine.h"
#include "bench/ops_cases.h"
#include "kernels/base/alloc.h"

#define ROUND_SECONDS 0.004
#define GRAPH_CALLS 16

typedef struct settings {
    const char *backend, *filter, *out;
    int threads;
    double seconds;
} settings;

typedef struct result {
    const ops_case *c;
    double seconds, bytes, flops; /* of a call */
} result;

/* ---- timing ---------------------------------------- */

static int repeat(ops_env *env, const ops_case *c, int n) {
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) rc = ops_call(env, c);
    return rc;
}

/* Rounds are about as long as a turn on a shared core: the best one had it whole. */
static int time_calls(ops_env *env, const ops_case *c, double seconds, double *best) {
    double t = machine_now(), until = t + seconds;
    int rc = repeat(env, c, 1); /* touches what has not been touched, and says how long */
    t = machine_now() - t;
    int n = t < ROUND_SECONDS ? (int)(ROUND_SECONDS / t) : 1;
    *best = 0;
    while (rc == 0 && (*best == 0 || machine_now() < until)) {
        t = machine_now();
        rc = repeat(env, c, n);
        double per = (machine_now() - t) / n;
        if (*best == 0 || per < *best) *best = per;
        if (per * n < ROUND_SECONDS / 2) n *= 2; /* the first call was a slow one */
    }
    return rc;
}

/* A captured graph of some calls: what a step costs a device that works by itself. */
static int time_graph(ops_env *env, const ops_case *c, double seconds, double *best) {
    og_graph *g = NULL;
    int rc = og_exec_capture_begin(env->ex);
    if (rc < 0) return rc;
    rc = repeat(env, c, GRAPH_CALLS);
    int end = og_exec_capture_end(env->ex, &g);
    if (rc == 0) rc = end;
    double until = machine_now() + seconds;
    *best = 0;
    while (rc == 0 && (*best == 0 || machine_now() < until)) {
        double t = machine_now();
        for (int i = 0; i < 4 && rc == 0; i++) rc = og_graph_launch(env->ex, g);
        if (rc == 0) rc = og_exec_sync(env->ex);
        t = (machine_now() - t) / (4 * GRAPH_CALLS);
        if (*best == 0 || t < *best) *best = t;
    }
    og_graph_destroy(env->ex, g);
    return rc;
}

static int measure(ops_env *env, const ops_case *c, double seconds, result *r) {
    int rc = ops_make(env, c);
    *r = (result){.c = c, .bytes = env->bytes, .flops = env->flops};
    if (rc == 0)
        rc = env->device_works_alone ? time_graph(env, c, seconds, &r->seconds)
                                     : time_calls(env, c, seconds, &r->seconds);
    if (rc < 0) fprintf(stderr, "%s: %s\n", c->name, og_exec_error(env->ex));
    return rc;
}

/* ---- ceilings ---------------------------------------- */

static const ops_case *find(const char *name) {
    for (int i = 0; i < n_ops_cases; i++)
        if (!strcmp(ops_cases[i].name, name)) return &ops_cases[i];
    return NULL;
}

static int device_ceilings(ops_env *env, double seconds, machine_rates *out) {
    ops_case copy = *find("copy 1024x4096"), linear = *find("linear 2048>6144 M64 BF16");
    result r;
    copy.rows = 8192;
    linear.rows = linear.k = linear.n = 8192;
    int rc = measure(env, &copy, seconds, &r);
    if (rc < 0) return rc;
    out->read = out->copy = r.bytes / r.seconds;
    rc = measure(env, &linear, seconds, &r);
    if (rc < 0) return rc;
    out->fma = r.flops / r.seconds;
    return 0;
}

static int ceilings(ops_env *env, const settings *s, machine_rates *out) {
    if (env->device_works_alone) return device_ceilings(env, 0.5, out);
    return machine_measure(s->threads, 1.0, out);
}

/* ---- report ---------------------------------------- */

static void print_head(void) {
    printf("%-44s %12s %9s %6s %10s %6s\n", "op", "us", "GB/s", "read", "GFLOP/s",
           "peak");
}

static void print_row(const result *r, const machine_rates *top) {
    double gb = r->bytes / r->seconds, gf = r->flops / r->seconds;
    printf("%-44s %12.1f %9.2f %5.0f%% %10.2f %5.0f%%\n", r->c->name, r->seconds * 1e6,
           gb * 1e-9, 100 * gb / top->read, gf * 1e-9, 100 * gf / top->fma);
}

static json_t *row_json(const result *r, const machine_rates *top) {
    double gb = r->bytes / r->seconds, gf = r->flops / r->seconds;
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "op", r->c->name, "us",
                     r->seconds * 1e6, "gb_s", gb * 1e-9, "read_share", gb / top->read,
                     "gflop_s", gf * 1e-9, "peak_share", gf / top->fma);
}

/* Bytes over time, of all linears with one row: what a decode step is made of. */
static void print_sum(const result *r, int n, const machine_rates *top) {
    double bytes = 0, seconds = 0;
    for (int i = 0; i < n; i++) {
        if (!strstr(r[i].c->name, "linear") || r[i].c->rows != 1 || r[i].c->t != OG_BF16)
            continue;
        bytes += r[i].bytes;
        seconds += r[i].seconds;
    }
    if (seconds > 0)
        printf("bf16 linears of one row, together: %.2f GB/s, %.0f%% of a plain read\n",
               bytes / seconds * 1e-9, 100 * bytes / seconds / top->read);
}

/* ---- main ---------------------------------------- */

static const char help[] = "usage: ops [OPTIONS]\n"
                           "  --backend NAME   cpu (default), ref or cuda\n"
                           "  --threads N      of the CPU backend (default: all cores)\n"
                           "  --filter WORD    only ops whose name holds WORD\n"
                           "  --seconds S      for each op (default 0.2)\n"
                           "  --list           names only\n"
                           "  -o FILE          the numbers as JSON\n";

static int parse(int argc, char **argv, settings *s) {
    static const struct option names[] = {{"backend", 1, NULL, 'b'},
                                          {"threads", 1, NULL, 't'},
                                          {"filter", 1, NULL, 'f'},
                                          {"seconds", 1, NULL, 's'},
                                          {"list", 0, NULL, 'l'},
                                          {"help", 0, NULL, 'h'},
                                          {0}};
    *s = (settings){.backend = "cpu", .threads = machine_cores(), .seconds = 0.2};
    int c;
    while ((c = getopt_long(argc, argv, "o:", names, NULL)) != -1) {
        switch (c) {
        case 'b': s->backend = optarg; break;
        case 't': s->threads = atoi(optarg); break;
        case 'f': s->filter = optarg; break;
        case 's': s->seconds = atof(optarg); break;
        case 'o': s->out = optarg; break;
        case 'l':
            for (int i = 0; i < n_ops_cases; i++) puts(ops_cases[i].name);
            exit(EXIT_SUCCESS);
        case 'h': fputs(help, stdout); exit(EXIT_SUCCESS);
        default: return -1;
        }
    }
    return optind == argc && s->threads > 0 && s->seconds > 0 ? 0 : -1;
}

static int wanted(const settings *s, const ops_case *c) {
    return !s->filter || strstr(c->name, s->filter);
}

static int run(ops_env *env, const settings *s, result *results) {
    machine_rates before, after;
    if (ceilings(env, s, &before) < 0) return -1;
    int n = 0, failed = 0;
    for (int i = 0; i < n_ops_cases; i++) {
        if (!wanted(s, &ops_cases[i])) continue;
        if (measure(env, &ops_cases[i], s->seconds, &results[n]) < 0)
            failed = -1;
        else
            n++;
    }
    if (ceilings(env, s, &after) < 0) return -1;
    machine_rates top = machine_best(&before, &after);
    og_device_info dev;
    og_device_info_get(env->dev, &dev);
    machine_print(s->threads, &before, &after);
    printf("backend %s: %s\n", dev.backend, dev.name);
    print_head();
    json_t *rows = json_array();
    for (int i = 0; i < n; i++) {
        print_row(&results[i], &top);
        json_array_append_new(rows, row_json(&results[i], &top));
    }
    print_sum(results, n, &top);
    json_t *doc = json_pack("{s:s, s:s, s:s, s:o, s:o}", "program", "ops", "backend",
                            dev.backend, "device", dev.name, "machine",
                            machine_json(s->threads, &before, &after), "ops", rows);
    return machine_save(doc, s->out) < 0 ? -1 : failed;
}

int main(int argc, char **argv) {
    settings s;
    static ops_env env;
    og_err err = OG_ERR_INIT;
    if (parse(argc, argv, &s) < 0) {
        fputs(help, stderr);
        return 2;
    }
    result *results = og_calloc((size_t)n_ops_cases, sizeof *results);
    int rc = results ? ops_open(&env, s.backend, s.threads, &err) : OG_ENOMEM;
    if (rc < 0)
        fprintf(stderr, "ops: %s\n", err.code ? err.msg : og_strerror(rc));
    else
        rc = run(&env, &s, results);
    ops_close(&env);
    og_free(results);
    return rc < 0;
}
