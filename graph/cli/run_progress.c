/* What `run` says on stderr while it works, and the tables of --stats. */
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "graph/cli/run.h"

#define PERIOD 0.1 /* seconds between two lines */
#define WIDTH_DEFAULT 80

double og__seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The engine counts the items of a stage's first live output port. */
static int counted_port(const og_plan_stage *st) {
    for (int i = 0; i < st->n_ports; i++)
        if ((st->ports[i].flags & OG_PORT_OUT) && st->ports[i].n_readers) return i;
    return -1;
}

void og__progress_init(og__progress *p, og__cli *cli, const og_plan *plan) {
    int *port = og_arena_alloc(cli->arena, (size_t)plan->n_stages * sizeof *port + 1);
    *p = (og__progress){.plan = plan, .port = port};
    p->on = port && isatty(STDERR_FILENO) && !og__args_has(&cli->args, "quiet");
    for (int i = 0; port && i < plan->n_stages; i++)
        port[i] = counted_port(&plan->stages[i]);
}

static int columns(void) {
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 8 ? w.ws_col
                                                                     : WIDTH_DEFAULT;
}

static void line(og__progress *p, const char *text) {
    fprintf(stderr, "\r%.*s\033[K", columns() - 1, text);
    fflush(stderr);
    p->shown = true;
}

void og__progress_note(og__progress *p, const char *text) {
    if (p->on) line(p, text);
}

static int samples_per_second(const og_plan *plan, int stage, int port) {
    if (plan->stages[stage].node.rate > 0) return plan->stages[stage].node.rate;
    for (int i = 0; i < plan->n_responses; i++) {
        const og_plan_edge *e = &plan->edges[plan->responses[i].edge];
        if (e->n_from == 1 && e->from[0].stage == stage && e->from[0].port == port)
            return plan->responses[i].rate;
    }
    return 0;
}

static void stage_text(const og__progress *p, int stage, const og_stage_progress *s,
                       og_str *out) {
    const og_plan_stage *st = &p->plan->stages[stage];
    const og_plan_port *port = p->port[stage] < 0 ? NULL : &st->ports[p->port[stage]];
    const char *unit = "items";
    if (!port) return;
    og_str_addf(out, "%s%s ", out->len ? "  " : "", st->name);
    int rate = samples_per_second(p->plan, stage, p->port[stage]);
    if (port->type.kind == OG_TYPE_AUDIO && rate) {
        og_str_addf(out, "%.2f s", (double)s->items / rate);
    } else {
        if (port->type.kind == OG_TYPE_CODES) unit = "frames";
        if (port->type.kind == OG_TYPE_TOKENS) unit = "tokens";
        og_str_addf(out, "%lld %s", (long long)s->items, unit);
    }
    if (s->done) og_str_add(out, " (done)");
}

void og__progress_show(og__progress *p, og_request *r, double audio_s, double wall_s) {
    if (!p->on || wall_s < p->next) return;
    og_str s = OG_STR_INIT;
    for (int i = 0; i < p->plan->n_order; i++) {
        og_stage_progress at;
        og_request_get_progress(r, p->plan->order[i], &at);
        if (at.items || !at.done) stage_text(p, p->plan->order[i], &at, &s);
    }
    if (audio_s > 0) og_str_addf(&s, "  real-time factor %.2f", wall_s / audio_s);
    if (s.data) line(p, s.data);
    og_str_free(&s);
    p->next = wall_s + PERIOD;
}

void og__progress_clear(og__progress *p) {
    if (p->shown) fputs("\r\033[K", stderr);
    p->shown = false;
}

/* ---- --stats ------------------------------------------------------------------ */

static void bytes_text(size_t n, char *buf, size_t size) {
    if (n >= (size_t)1 << 30)
        snprintf(buf, size, "%.2f GiB", (double)n / (1 << 30));
    else if (n >= (size_t)1 << 20)
        snprintf(buf, size, "%.1f MiB", (double)n / (1 << 20));
    else
        snprintf(buf, size, "%.1f KiB", (double)n / (1 << 10));
}

static void node_row(const og_plan_stage *st, int replica, const og_node_stats *n) {
    char name[96], slots[32], pages[48], weights[32], state[32];
    snprintf(name, sizeof name, st->n_replicas > 1 ? "%s #%d" : "%s", st->name, replica);
    snprintf(slots, sizeof slots, "%d of %d", n->slots_used, n->slots);
    if (n->kv_pages)
        snprintf(pages, sizeof pages, "%lld of %lld", (long long)n->kv_pages_used,
                 (long long)n->kv_pages);
    else
        snprintf(pages, sizeof pages, "-");
    bytes_text(n->weight_bytes, weights, sizeof weights);
    bytes_text(n->state_bytes, state, sizeof state);
    fprintf(stderr, "%-16s %10s %14s %12s %12s %9lld %9lld\n", name, slots, pages,
            weights, state, (long long)n->steps, (long long)n->rows);
}

static void prefix_row(const og_plan_stage *st, int replica, const og_node_stats *n) {
    char name[96];
    if (!n->prefix_rows_total) return;
    snprintf(name, sizeof name, st->n_replicas > 1 ? "%s #%d" : "%s", st->name, replica);
    fprintf(stderr, "%-16s %s: %lld of %lld prompt rows found, %lld pages kept\n",
            "prefix cache", name, (long long)n->prefix_rows_hit,
            (long long)n->prefix_rows_total, (long long)n->kv_pages_cached);
}

static void cache_row(const og_plan_stage *st, int replica, const og_node_stats *n) {
    char name[96], bytes[32];
    int64_t lookups = n->cache_hits + n->cache_misses;
    if (!lookups) return;
    snprintf(name, sizeof name, st->n_replicas > 1 ? "%s #%d" : "%s", st->name, replica);
    bytes_text(n->cache_bytes, bytes, sizeof bytes);
    fprintf(stderr, "%-16s %s: %lld of %lld clips found, %s kept\n", "result cache", name,
            (long long)n->cache_hits, (long long)lookups, bytes);
}

static void each_node(og_engine *e, const og_plan *p,
                      void (*print)(const og_plan_stage *, int, const og_node_stats *)) {
    for (int i = 0; i < p->n_order; i++) {
        const og_plan_stage *st = &p->stages[p->order[i]];
        for (int r = 0; r < st->n_replicas; r++) {
            og_node_stats n = {0};
            if (og_engine_node_stats(e, p->order[i], r, &n) == 0) print(st, r, &n);
        }
    }
}

static void fact(const char *name, const char *text) {
    fprintf(stderr, "%-16s %s\n", name, text);
}

static void seconds_fact(const char *name, double s) {
    char text[32];
    snprintf(text, sizeof text, "%.3f s", s);
    fact(name, s < 0 ? "-" : text);
}

/* The plan, and what was measured. */
static void memory_rows(og_engine *e, const og_plan *p) {
    og_str planned = OG_STR_INIT;
    og_plan_print_memory(p, &planned);
    fprintf(stderr, "memory\n%s", planned.data ? planned.data : "");
    og_str_free(&planned);
    for (int i = 0; i < p->n_groups; i++) {
        og_executor_memory m;
        char scratch[32], staging[32], device[32];
        if (og_engine_executor_memory(e, i, &m) < 0) continue;
        bytes_text(m.scratch, scratch, sizeof scratch);
        bytes_text(m.staging, staging, sizeof staging);
        bytes_text(m.device, device, sizeof device);
        fprintf(stderr, "  executor %s: scratch %s, staging %s%s%s\n", p->groups[i].name,
                scratch, staging, m.device ? ", device " : "", m.device ? device : "");
    }
}

void og__stats_print(og_engine *e, const og_plan *p, const og_request_stats *q) {
    og_engine_stats s;
    struct rusage use;
    char text[160];
    og_engine_get_stats(e, &s);
    fprintf(stderr, "%-16s %10s %14s %12s %12s %9s %9s\n", "stage", "slots", "kv pages",
            "weights", "state", "steps", "rows");
    each_node(e, p, node_row);
    each_node(e, p, prefix_row);
    each_node(e, p, cache_row);
    memory_rows(e, p);
    if (q) {
        seconds_fact("queued", q->queued_s);
        seconds_fact("first output", q->first_output_s);
        seconds_fact("total", q->total_s);
        snprintf(text, sizeof text, "%llu", (unsigned long long)q->seed);
        fact("seed", text);
    }
    seconds_fact("load", s.load_s);
    bytes_text(s.buffer_bytes, text, sizeof text);
    fact("port buffers", text);
    snprintf(text, sizeof text, "%lld admitted, %lld finished, %lld failed",
             (long long)s.admitted, (long long)s.finished, (long long)s.failed);
    fact("requests", text);
    if (getrusage(RUSAGE_SELF, &use) == 0) {
        bytes_text((size_t)use.ru_maxrss << 10, text, sizeof text);
        fact("peak memory", text);
    }
}
