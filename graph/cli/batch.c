/* `run --batch FILE.jsonl`: many requests through one engine. A line is an object of the
 * pipeline's request fields, with `output` (a file) and optionally `seed`. A few workers
 * each carry one line at a time, so that the stages batch what is under way; one line that
 * fails stops nothing. Lines whose output was written are noted in FILE.jsonl.done by the
 * hash of their text and are not done again. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "graph/cli/run.h"

#define IN_FLIGHT_DEFAULT 16
#define IN_FLIGHT_MAX 256
#define BATCH_MAX_LINES 1000000
#define BATCH_MAX_BYTES ((size_t)256 << 20)

typedef struct line {
    int number; /* from 1 */
    const char *text;
    size_t len;
    uint64_t hash;
    json_t *fields;
    const char *output; /* in the arena */
    bool has_seed, skip;
    uint64_t seed;
    json_t *result; /* what is printed of it, once it is through */
    bool failed;
} line;

typedef struct batch {
    og__cli *cli;
    og_plan *plan;
    og_engine *engine;
    const char *path, *dir;
    og_str text;
    line *lines;
    int n;
    int response, rate;
    bool in_order, quiet;
    FILE *journal;
    og__watch *watch;

    pthread_mutex_t mu; /* what follows, the journal and stdout */
    int next, printed, done, failed, skipped;
    double audio;
} batch;

/* ---- reading ------------------------------------------------------------------ */

static uint64_t hash_text(const char *s, size_t n) { /* FNV-1a */
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 1099511628211u;
    return h;
}

static og_src place(const batch *b, const line *l, int col) {
    return (og_src){b->path, l->number, col};
}

static int read_seed(const batch *b, line *l, og_err *err) {
    json_t *v = json_object_get(l->fields, "seed");
    if (!v) return 0;
    char *end = NULL;
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        l->seed = (uint64_t)json_integer_value(v);
    } else {
        const char *text = json_string_value(v);
        errno = 0;
        l->seed = text ? strtoull(text, &end, 10) : 0;
        if (!text || errno || end == text || *end || strchr(text, '-'))
            return og_err_at(err, OG_EINVAL, place(b, l, 1),
                             "seed must be a whole number from 0 to 2^64-1");
    }
    l->has_seed = true;
    if (og_plan_find_field(b->plan, "seed") < 0) json_object_del(l->fields, "seed");
    return 0;
}

/* One line into l: its fields, its output, its seed. */
static int parse_line(batch *b, line *l, og_err *err) {
    json_error_t je;
    l->fields = json_loadb(l->text, l->len, JSON_REJECT_DUPLICATES, &je);
    if (!l->fields)
        return og_err_at(err, OG_EFORMAT, place(b, l, je.column > 0 ? je.column : 1), "%s",
                         je.text);
    if (!json_is_object(l->fields))
        return og_err_at(err, OG_EFORMAT, place(b, l, 1),
                         "a line must be an object of request fields");
    const char *output = json_string_value(json_object_get(l->fields, "output"));
    if (!output || !*output)
        return og_err_at(err, OG_EFORMAT, place(b, l, 1),
                         "no output: every line needs \"output\": \"FILE\"");
    bool joined = b->dir && output[0] != '/';
    l->output = joined ? og_arena_printf(b->cli->arena, "%s/%s", b->dir, output)
                       : og_arena_strdup(b->cli->arena, output);
    if (!l->output) return og_err_set(err, OG_ENOMEM, "out of memory");
    og_audio_format format;
    int rc = og_audio_by_path(l->output, &format, err);
    if (rc < 0) {
        og_err e = *err;
        og_err_clear(err);
        return og_err_at(err, rc, place(b, l, 1), "%s", e.msg);
    }
    json_object_del(l->fields, "output");
    return read_seed(b, l, err);
}

static int split_lines(batch *b, og_err *err) {
    const char *at = b->text.data, *end = at + b->text.len;
    int cap = 0;
    for (int number = 1; at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        size_t len = (size_t)(stop - at);
        if (strspn(at, " \t\r") < len) {
            if (b->n == BATCH_MAX_LINES)
                return og_err_set(err, OG_ELIMIT, "%s: too many lines (limit is %d)",
                                  b->path, BATCH_MAX_LINES);
            if (b->n == cap) {
                cap = cap ? cap * 2 : 64;
                line *more = og_realloc(b->lines, (size_t)cap * sizeof *more);
                if (!more) return og_err_set(err, OG_ENOMEM, "out of memory");
                b->lines = more;
            }
            b->lines[b->n++] = (line){
                .number = number, .text = at, .len = len, .hash = hash_text(at, len)};
        }
        at = stop + (stop < end);
    }
    return 0;
}

static int by_output(const void *a, const void *b) {
    const line *x = *(line *const *)a, *y = *(line *const *)b;
    int c = strcmp(x->output, y->output);
    return c ? c : x->number - y->number;
}

/* Two lines that write one file are a fault of the file as a whole. */
static int check_outputs(batch *b, og_err *err) {
    line **sorted = og_calloc((size_t)b->n + 1, sizeof *sorted);
    int n = 0, rc = 0;
    if (!sorted) return og_err_set(err, OG_ENOMEM, "out of memory");
    for (int i = 0; i < b->n; i++)
        if (b->lines[i].output) sorted[n++] = &b->lines[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_output);
    for (int i = 1; i < n && rc == 0; i++)
        if (!strcmp(sorted[i - 1]->output, sorted[i]->output))
            rc = og_err_at(err, OG_EINVAL, place(b, sorted[i], 1),
                           "output '%s' is that of line %d too", sorted[i]->output,
                           sorted[i - 1]->number);
    og_free(sorted);
    return rc;
}

static int read_batch(batch *b, og_err *err) {
    int rc = og__read_file(b->path, &b->text, err);
    if (rc == 0 && b->text.len > BATCH_MAX_BYTES)
        rc = og_err_set(err, OG_ELIMIT, "%s is too large (limit is %zu bytes)", b->path,
                        BATCH_MAX_BYTES);
    return rc == 0 && b->text.len ? split_lines(b, err) : rc;
}

/* ---- the journal ---------------------------------------------------------------- */

static void mark_done(batch *b, uint64_t hash) {
    for (int i = 0; i < b->n; i++) {
        line *l = &b->lines[i];
        struct stat st;
        if (l->hash == hash && l->output && stat(l->output, &st) == 0) l->skip = true;
    }
}

static int open_journal(batch *b, og_err *err) {
    const char *path = og_arena_printf(b->cli->arena, "%s.done", b->path);
    if (!path) return og_err_set(err, OG_ENOMEM, "out of memory");
    FILE *f = fopen(path, "r");
    char text[64];
    while (f && fgets(text, sizeof text, f)) mark_done(b, strtoull(text, NULL, 16));
    if (f) fclose(f);
    b->journal = fopen(path, "a");
    if (!b->journal)
        return og_err_set(err, OG_EIO, "cannot write %s: %s", path, strerror(errno));
    return 0;
}

/* ---- one line --------------------------------------------------------------------- */

static json_t *result_of(const line *l, const char *status) {
    json_t *r = json_pack("{s:i, s:s, s:s?}", "line", l->number, "status", status, "output",
                          l->output);
    return r ? r : json_null();
}

static void fail_line(batch *b, line *l, const og_err *err) {
    l->failed = true;
    l->result = result_of(l, "error");
    json_object_set_new(l->result, "error", json_string(err->msg));
    if (err->field[0]) json_object_set_new(l->result, "field", json_string(err->field));
    if (err->node[0]) json_object_set_new(l->result, "stage", json_string(err->node));
    if (b->quiet) return;
    char text[OG_ERR_MSG_MAX + 512];
    og_err e = *err;
    if (!e.file[0]) {
        snprintf(e.file, sizeof e.file, "%s", b->path);
        e.line = l->number;
        e.col = 1;
    }
    og_err_format(&e, text, sizeof text);
    fprintf(stderr, "%s\n", text);
}

static int write_items(batch *b, og_audio_out *out, const og_event *ev, int64_t *n,
                       og_err *err) {
    static const float silence[4096];
    if (ev->response != b->response) return 0;
    int rc = 0;
    for (int64_t left = ev->gap; left > 0 && rc == 0; left -= 4096) {
        size_t k = left < 4096 ? (size_t)left : 4096;
        rc = og_audio_write(out, silence, k, err);
        *n += (int64_t)k;
    }
    if (!og_tensor_present(&ev->items) || rc < 0) return rc;
    *n += ev->items.ne[0];
    return og_audio_write(out, ev->items.data, (size_t)ev->items.ne[0], err);
}

/* Read a request to its end into its file. The file appears when all of it is there. */
static int carry(batch *b, line *l, og_request *r, int64_t *samples, og_err *err) {
    og_audio_format format;
    og_audio_out *out = NULL;
    int rc = og_audio_by_path(l->output, &format, err);
    if (rc == 0) rc = og_audio_create(l->output, format, b->rate, 1, &out, err);
    while (rc == 0) {
        og_event ev;
        og_event_kind kind = og_request_next(r, 100, &ev);
        if (kind == OG_EVENT_DONE) break;
        if (kind == OG_EVENT_ERROR) {
            *err = ev.err;
            rc = ev.err.code;
        }
        if (kind == OG_EVENT_ITEMS) rc = write_items(b, out, &ev, samples, err);
        if (og__watch_hit(b->watch)) rc = og_err_set(err, OG_ECANCELED, "canceled");
    }
    if (rc == 0) return og_audio_commit(out, err);
    og_audio_abort(out);
    return rc;
}

/* What the hooks warned of, a list; NULL when there is nothing. */
static json_t *warnings_of(og_request *r) {
    json_t *list = NULL;
    const char *text;
    for (int i = 0; (text = og_request_warning(r, i)); i++) {
        if (!list) list = json_array();
        json_array_append_new(list, json_string(text));
    }
    return list;
}

/* The queue may be full for a moment: then the line waits, it does not fail. */
static int submit(batch *b, const line *l, og_request **r, og_err *err) {
    og_request_desc d = {.fields = l->fields, .has_seed = l->has_seed, .seed = l->seed};
    for (;;) {
        og_err_clear(err);
        int rc = og_engine_submit(b->engine, &d, r, err);
        if (rc != OG_EBUSY || og__watch_hit(b->watch)) return rc;
        struct timespec t = {0, 20000000};
        nanosleep(&t, NULL);
    }
}

static void do_line(batch *b, line *l) {
    og_err err = OG_ERR_INIT;
    og_request *r = NULL;
    int64_t samples = 0;
    og_request_stats s = {0};
    pthread_mutex_lock(&b->mu); /* names lie in the arena, which is no thread's own */
    int rc = parse_line(b, l, &err);
    pthread_mutex_unlock(&b->mu);
    if (rc == 0) rc = submit(b, l, &r, &err);
    if (rc == 0) rc = carry(b, l, r, &samples, &err);
    json_t *warnings = rc == 0 ? warnings_of(r) : NULL;
    if (r) og_request_get_stats(r, &s);
    og_request_free(r);
    pthread_mutex_lock(&b->mu);
    if (rc < 0) {
        og_err_set(&err, rc, "%s", og_strerror(rc));
        fail_line(b, l, &err);
        b->failed++;
    } else {
        double seconds = (double)samples / b->rate;
        char seed[24];
        snprintf(seed, sizeof seed, "%llu", (unsigned long long)s.seed);
        l->result = result_of(l, "ok");
        json_object_set_new(l->result, "seconds", json_real(seconds));
        json_object_set_new(l->result, "wall", json_real(s.total_s));
        json_object_set_new(l->result, "first_output", json_real(s.first_output_s));
        json_object_set_new(l->result, "seed", json_string(seed));
        if (warnings) json_object_set_new(l->result, "warnings", warnings);
        fprintf(b->journal, "%016llx\n", (unsigned long long)l->hash);
        fflush(b->journal);
        b->audio += seconds;
        b->done++;
    }
    pthread_mutex_unlock(&b->mu);
}

static void print_result(line *l) {
    char *text = l->result ? json_dumps(l->result, JSON_COMPACT) : NULL;
    if (text) fprintf(stdout, "%s\n", text);
    free(text);
    json_decref(l->result);
    l->result = NULL;
}

/* Results as they come, or, in order, as far as all before them have come. */
static void print_results(batch *b, line *mine) {
    pthread_mutex_lock(&b->mu);
    if (!b->in_order) print_result(mine);
    while (b->in_order && b->printed < b->n && b->lines[b->printed].result)
        print_result(&b->lines[b->printed++]);
    fflush(stdout);
    pthread_mutex_unlock(&b->mu);
}

static void *worker(void *arg) {
    batch *b = arg;
    for (;;) {
        pthread_mutex_lock(&b->mu);
        line *l = b->next < b->n && !og__watch_hit(b->watch) ? &b->lines[b->next++] : NULL;
        pthread_mutex_unlock(&b->mu);
        if (!l) return NULL;
        if (l->skip) {
            pthread_mutex_lock(&b->mu);
            l->result = result_of(l, "skipped");
            b->skipped++;
            pthread_mutex_unlock(&b->mu);
        } else {
            json_decref(l->fields);
            l->fields = NULL;
            do_line(b, l);
        }
        print_results(b, l);
    }
}

/* ---- the whole ---------------------------------------------------------------------- */

static int find_audio(batch *b) {
    const og_plan *p = b->plan;
    for (int i = 0; i < p->n_responses; i++) {
        if (p->responses[i].type.kind != OG_TYPE_AUDIO) continue;
        b->response = i;
        b->rate = p->responses[i].rate;
        return 0;
    }
    return og__usage(b->cli, "pipeline '%s' answers with no audio", p->name);
}

/* What the file as a whole says, before anything is loaded: its outputs, what is done. */
static int look_ahead(batch *b, og_err *err) {
    int rc = read_batch(b, err);
    for (int i = 0; i < b->n && rc == 0; i++) {
        og_err ignored = OG_ERR_INIT; /* told when the line's turn comes */
        if (parse_line(b, &b->lines[i], &ignored) < 0) b->lines[i].output = NULL;
    }
    if (rc == 0) rc = check_outputs(b, err);
    return rc == 0 ? open_journal(b, err) : rc;
}

static int run_workers(batch *b, int n) {
    pthread_t threads[IN_FLIGHT_MAX];
    int started = 0;
    for (; started < n && started < b->n; started++)
        if (pthread_create(&threads[started], NULL, worker, b) != 0) break;
    if (started == 0 && b->n > 0) worker(b);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    return 0;
}

static void summary(batch *b, double wall) {
    fprintf(stderr, "%s: %d lines, %d done, %d skipped, %d failed; %.2f s of audio in %.2f s",
            b->path, b->n, b->done, b->skipped, b->failed, b->audio, wall);
    if (wall > 0) fprintf(stderr, ", %.2f audio-s/s", b->audio / wall);
    fputc('\n', stderr);
}

static int work(batch *b, int in_flight) {
    og_err err = OG_ERR_INIT;
    og_engine_opts opts = {.max_queue = IN_FLIGHT_MAX};
    if (look_ahead(b, &err) < 0 || og__watch_create(&b->watch, &err) < 0)
        return og__report(&err);
    if (og_engine_create(b->plan, &opts, &b->engine, &err) < 0) return og__report(&err);
    double start = og__seconds();
    run_workers(b, in_flight);
    if (!b->quiet) summary(b, og__seconds() - start);
    if (og__args_has(&b->cli->args, "stats")) og__stats_print(b->engine, b->plan, NULL);
    if (og__watch_hit(b->watch)) return OG__EXIT_SIGNAL;
    return b->failed ? OG__EXIT_FAILED : OG__EXIT_OK;
}

int og__batch(og__cli *cli, const char *pipeline) {
    batch b = {.cli = cli, .path = og__args_get(&cli->args, "batch")};
    b.dir = og__args_get(&cli->args, "output");
    b.in_order = og__args_has(&cli->args, "in-order");
    b.quiet = og__args_has(&cli->args, "quiet");
    long long in_flight = IN_FLIGHT_DEFAULT;
    int rc = og__args_int(cli, "in-flight", 1, IN_FLIGHT_MAX, &in_flight);
    pthread_mutex_init(&b.mu, NULL);
    if (!rc) rc = og__plan_make(cli, pipeline, 0, true, NULL, &b.plan);
    if (!rc) rc = find_audio(&b);
    if (!rc) rc = work(&b, (int)in_flight);
    og_engine_destroy(b.engine);
    og__watch_destroy(b.watch);
    if (b.journal) fclose(b.journal);
    for (int i = 0; i < b.n; i++) {
        json_decref(b.lines[i].fields);
        json_decref(b.lines[i].result);
    }
    og_free(b.lines);
    og_str_free(&b.text);
    og_plan_destroy(b.plan);
    pthread_mutex_destroy(&b.mu);
    return rc;
}
