#include "bench/machine.h"
#include "kernels/base/alloc.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define BUFFER ((size_t)256 << 20)
#define FMA_ROUNDS 200000
#define MAX_THREADS 256

static double clock_of(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double machine_now(void) {
    return clock_of(CLOCK_MONOTONIC);
}

double machine_cpu(void) {
    return clock_of(CLOCK_PROCESS_CPUTIME_ID);
}

int machine_cores(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (int)n;
}

/* ---- the loops ---------------------------------------- */

#if defined(__x86_64__)

__attribute__((target("avx2"))) static uint64_t read_avx2(const char *p, size_t n) {
    __m256i s[8];
    uint64_t out[4];
    for (int i = 0; i < 8; i++) s[i] = _mm256_setzero_si256();
    for (size_t at = 0; at + 256 <= n; at += 256)
        for (int i = 0; i < 8; i++)
            s[i] =
                _mm256_add_epi64(s[i], _mm256_load_si256((const __m256i *)(p + at) + i));
    for (int i = 1; i < 8; i++) s[0] = _mm256_add_epi64(s[0], s[i]);
    _mm256_storeu_si256((__m256i *)out, s[0]);
    return out[0] + out[1] + out[2] + out[3];
}

/* Twelve chains hide a latency of four at two a cycle, with room to spare. */
__attribute__((target("avx2,fma"))) static double fma_avx2(float *sink) {
    __m256 s[12], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
    for (int i = 0; i < 12; i++) s[i] = _mm256_set1_ps((float)i);
    for (int r = 0; r < FMA_ROUNDS; r++)
        for (int i = 0; i < 12; i++) s[i] = _mm256_fmadd_ps(s[i], a, b);
    for (int i = 1; i < 12; i++) s[0] = _mm256_add_ps(s[0], s[i]);
    *sink += _mm256_cvtss_f32(s[0]);
    return 2.0 * 8 * 12 * FMA_ROUNDS;
}

__attribute__((target("avx512f"))) static double fma_avx512(float *sink) {
    __m512 s[16], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
    for (int i = 0; i < 16; i++) s[i] = _mm512_set1_ps((float)i);
    for (int r = 0; r < FMA_ROUNDS; r++)
        for (int i = 0; i < 16; i++) s[i] = _mm512_fmadd_ps(s[i], a, b);
    for (int i = 1; i < 16; i++) s[0] = _mm512_add_ps(s[0], s[i]);
    *sink += _mm512_cvtss_f32(s[0]);
    return 2.0 * 16 * 16 * FMA_ROUNDS;
}

static int has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static int has_avx512(void) {
    return __builtin_cpu_supports("avx512f") != 0;
}

#else

static uint64_t read_avx2(const char *p, size_t n) {
    return (uint64_t)p[0] + n;
}

static double fma_avx2(float *sink) {
    return *sink;
}

static double fma_avx512(float *sink) {
    return *sink;
}

static int has_avx2(void) {
    return 0;
}

static int has_avx512(void) {
    return 0;
}

#endif

static uint64_t read_plain(const char *p, size_t n) {
    const uint64_t *v = (const uint64_t *)(const void *)p;
    uint64_t s[4] = {0};
    for (size_t i = 0; i + 4 <= n / sizeof *v; i += 4)
        for (int k = 0; k < 4; k++) s[k] += v[i + (size_t)k];
    return s[0] + s[1] + s[2] + s[3];
}

static double fma_plain(float *sink) {
    float s[16];
    for (int i = 0; i < 16; i++) s[i] = (float)i;
    for (int r = 0; r < FMA_ROUNDS; r++)
        for (int i = 0; i < 16; i++) s[i] = s[i] * 0.999f + 1e-3f;
    for (int i = 0; i < 16; i++) *sink += s[i];
    return 2.0 * 16 * FMA_ROUNDS;
}

/* ---- on all threads ---------------------------------------- */

typedef enum what { READ, COPY, FMA, STOP } what;

typedef struct crew {
    pthread_barrier_t start, end;
    char *buffer;
    int n;
    what what;
} crew;

typedef struct hand {
    crew *c;
    int index;
    double amount; /* of the last round: bytes or operations */
    uint64_t sum;  /* what the loops computed, so that they are not dropped */
    float sink;
    pthread_t thread;
} hand;

static void one_round(hand *h) {
    size_t part = BUFFER / (size_t)h->c->n & ~(size_t)4095, half = part / 2;
    char *p = h->c->buffer + part * (size_t)h->index;
    switch (h->c->what) {
    case READ:
        h->sum += has_avx2() ? read_avx2(p, part) : read_plain(p, part);
        h->amount = (double)part;
        break;
    case COPY:
        memcpy(p + half, p, half);
        h->amount = 2.0 * (double)half;
        break;
    case FMA:
        h->amount = has_avx512() ? fma_avx512(&h->sink)
                    : has_avx2() ? fma_avx2(&h->sink)
                                 : fma_plain(&h->sink);
        break;
    case STOP: break;
    }
}

static void *hand_main(void *arg) {
    hand *h = arg;
    for (;;) {
        pthread_barrier_wait(&h->c->start);
        if (h->c->what == STOP) return NULL;
        one_round(h);
        pthread_barrier_wait(&h->c->end);
    }
}

/* Amount per second of the best round. The caller is hand 0. */
static double rate(crew *c, hand *hands, what w, double seconds) {
    double best = 0, until = machine_now() + seconds;
    c->what = w;
    do {
        pthread_barrier_wait(&c->start);
        double t = machine_now(), amount = 0;
        one_round(&hands[0]);
        pthread_barrier_wait(&c->end);
        t = machine_now() - t;
        for (int i = 0; i < c->n; i++) amount += hands[i].amount;
        if (amount / t > best) best = amount / t;
    } while (machine_now() < until);
    return best;
}

static void run_crew(crew *c, hand *hands, double seconds, machine_rates *out) {
    pthread_barrier_init(&c->start, NULL, (unsigned)c->n);
    pthread_barrier_init(&c->end, NULL, (unsigned)c->n);
    for (int i = 0; i < c->n; i++) hands[i] = (hand){.c = c, .index = i};
    for (int i = 1; i < c->n; i++) {
        int rc = pthread_create(&hands[i].thread, NULL, hand_main, &hands[i]);
        if (rc == 0) continue;
        /* Those that run wait at a barrier that will never be full. */
        fprintf(stderr, "machine: cannot start thread %d: %s\n", i, strerror(rc));
        exit(EXIT_FAILURE);
    }
    out->read = rate(c, hands, READ, seconds / 3);
    out->copy = rate(c, hands, COPY, seconds / 3);
    out->fma = rate(c, hands, FMA, seconds / 3);
    c->what = STOP;
    pthread_barrier_wait(&c->start);
    for (int i = 1; i < c->n; i++) pthread_join(hands[i].thread, NULL);
    pthread_barrier_destroy(&c->start);
    pthread_barrier_destroy(&c->end);
}

int machine_measure(int threads, double seconds, machine_rates *out) {
    crew c = {.n = threads > 0 ? threads : machine_cores()};
    if (c.n > MAX_THREADS) c.n = MAX_THREADS;
    hand *hands = og_calloc((size_t)c.n, sizeof *hands);
    c.buffer =
        mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int rc = -1;
    if (hands && c.buffer != MAP_FAILED) {
        madvise(c.buffer, BUFFER, MADV_HUGEPAGE);
        memset(c.buffer, 1, BUFFER);
        run_crew(&c, hands, seconds, out);
        rc = 0;
    }
    if (c.buffer != MAP_FAILED) munmap(c.buffer, BUFFER);
    og_free(hands);
    return rc;
}

machine_rates machine_best(const machine_rates *a, const machine_rates *b) {
    return (machine_rates){.read = a->read > b->read ? a->read : b->read,
                           .copy = a->copy > b->copy ? a->copy : b->copy,
                           .fma = a->fma > b->fma ? a->fma : b->fma};
}

/* ---- telling ---------------------------------------- */

char *machine_name(char *buf, size_t size) {
    char line[256], model[160] = "unknown CPU";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "model name", 10) != 0) continue;
        const char *v = strchr(line, ':');
        if (v) snprintf(model, sizeof model, "%.*s", (int)strcspn(v + 2, "\n"), v + 2);
        break;
    }
    if (f) fclose(f);
    snprintf(buf, size, "%s, %d core%s, %s", model, machine_cores(),
             machine_cores() == 1 ? "" : "s",
             has_avx512() ? "AVX-512"
             : has_avx2() ? "AVX2"
                          : "no AVX2");
    return buf;
}

double machine_load(void) {
    double load = 0;
    return getloadavg(&load, 1) == 1 ? load : -1;
}

static json_t *rates_json(const machine_rates *r) {
    return json_pack("{s:f, s:f, s:f}", "read_gb_s", r->read * 1e-9, "copy_gb_s",
                     r->copy * 1e-9, "fma_gflop_s", r->fma * 1e-9);
}

json_t *machine_json(int threads, const machine_rates *before,
                     const machine_rates *after) {
    char name[256];
    return json_pack("{s:s, s:i, s:i, s:f, s:o, s:o}", "machine",
                     machine_name(name, sizeof name), "cores", machine_cores(), "threads",
                     threads, "load", machine_load(), "before", rates_json(before),
                     "after", rates_json(after));
}

static void print_rates(const char *when, const machine_rates *r) {
    printf("%-7s read %6.1f GB/s   copy %6.1f GB/s   multiply-add %7.1f GFLOP/s\n", when,
           r->read * 1e-9, r->copy * 1e-9, r->fma * 1e-9);
}

void machine_print(int threads, const machine_rates *before, const machine_rates *after) {
    char name[256];
    printf("%s; %d thread%s; load %.1f\n", machine_name(name, sizeof name), threads,
           threads == 1 ? "" : "s", machine_load());
    print_rates("before", before);
    print_rates("after", after);
}

int machine_save(json_t *doc, const char *path) {
    int rc = 0;
    if (!doc) {
        fprintf(stderr, "out of memory\n");
        return -1;
    }
    if (path && json_dump_file(doc, path, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        rc = -1;
    }
    json_decref(doc);
    return rc;
}
