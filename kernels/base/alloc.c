#include "kernels/base/alloc.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Counters of the whole process: the one kind of mutable global that this room has. */
static atomic_long live, calls, fail_in;
static atomic_int fail_hit;

static int refused(void) {
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (atomic_load_explicit(&fail_in, memory_order_relaxed) == 0) return 0;
    if (atomic_fetch_sub(&fail_in, 1) != 1) return 0;
    atomic_store(&fail_hit, 1);
    return 1;
}

static void *counted(void *p) {
    if (p) atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return p;
}

void *og_malloc(size_t size) {
    return refused() ? NULL : counted(malloc(size ? size : 1));
}

void *og_calloc(size_t n, size_t size) {
    if (!n || !size) n = size = 1;
    return refused() ? NULL : counted(calloc(n, size));
}

void *og_realloc(void *p, size_t size) {
    if (!p) return og_malloc(size);
    return refused() ? NULL : realloc(p, size ? size : 1);
}

void *og_aligned(size_t align, size_t size) {
    if (refused()) return NULL;
    if (size > SIZE_MAX - align) return NULL;
    size_t whole = (size + align - 1) / align * align;
    void *p = aligned_alloc(align, whole ? whole : align);
    if (p) memset(p, 0, whole);
    return counted(p);
}

void og_free(void *p) {
    if (!p) return;
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    free(p);
}

/* Whole pages come zeroed from the system and take memory when they are first touched. The
 * address sanitizer sees the ends of blocks that malloc gives, and of no others. */
#if defined(__SANITIZE_ADDRESS__)
#define LAZY_FROM SIZE_MAX
#else
#define LAZY_FROM ((size_t)1 << 20)
#endif

typedef struct lazy_head {
    size_t mapped; /* bytes of the mapping, 0: from og_aligned */
    unsigned char pad[OG_LAZY_ALIGN - sizeof(size_t)];
} lazy_head;

static void *map_zeros(size_t size) {
    if (refused()) return NULL;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return counted(p == MAP_FAILED ? NULL : p);
}

void *og_lazy(size_t size) {
    if (size > SIZE_MAX - sizeof(lazy_head)) return NULL;
    size_t whole = size + sizeof(lazy_head);
    size_t mapped = whole >= LAZY_FROM ? whole : 0;
    lazy_head *h = mapped ? map_zeros(mapped) : og_aligned(OG_LAZY_ALIGN, whole);
    if (!h) return NULL;
    h->mapped = mapped;
    return h + 1;
}

void og_lazy_free(void *p) {
    if (!p) return;
    lazy_head *h = (lazy_head *)p - 1;
    if (!h->mapped) {
        og_free(h);
        return;
    }
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    munmap(h, h->mapped);
}

char *og_strndup(const char *s, size_t n) {
    size_t len = strnlen(s, n);
    char *out = og_malloc(len + 1);
    if (!out) return NULL;
    memcpy(out, s, len);
    out[len] = 0;
    return out;
}

char *og_strdup(const char *s) {
    return og_strndup(s, strlen(s));
}

void og_alloc_fail_at(long nth) {
    atomic_store(&fail_hit, 0);
    atomic_store(&fail_in, nth);
}

int og_alloc_failed(void) {
    return atomic_load(&fail_hit);
}

long og_alloc_live(void) {
    return atomic_load(&live);
}

long og_alloc_calls(void) {
    return atomic_load(&calls);
}

#define ARENA_BLOCK 16384

typedef struct arena_block {
    struct arena_block *next;
    size_t used, cap;
    _Alignas(16) unsigned char data[];
} arena_block;

struct og_arena {
    arena_block *head;
};

og_arena *og_arena_create(void) {
    return og_calloc(1, sizeof(og_arena));
}

void *og_arena_alloc(og_arena *a, size_t size) {
    if (size > SIZE_MAX / 2) return NULL;
    size = (size + 15) & ~(size_t)15;
    if (!a->head || a->head->cap - a->head->used < size) {
        size_t cap = size > ARENA_BLOCK ? size : ARENA_BLOCK;
        arena_block *b = og_calloc(1, sizeof *b + cap);
        if (!b) return NULL;
        b->cap = cap;
        b->next = a->head;
        a->head = b;
    }
    void *p = a->head->data + a->head->used;
    a->head->used += size;
    return p;
}

char *og_arena_strndup(og_arena *a, const char *s, size_t n) {
    size_t len = strnlen(s, n);
    char *out = og_arena_alloc(a, len + 1);
    if (out) memcpy(out, s, len);
    return out;
}

char *og_arena_strdup(og_arena *a, const char *s) {
    return og_arena_strndup(a, s, strlen(s));
}

char *og_arena_printf(og_arena *a, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *out = n < 0 ? NULL : og_arena_alloc(a, (size_t)n + 1);
    if (out) vsnprintf(out, (size_t)n + 1, fmt, again);
    va_end(again);
    return out;
}

void og_arena_destroy(og_arena *a) {
    if (!a) return;
    for (arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        og_free(b);
    }
    og_free(a);
}

static int str_room(og_str *s, size_t more) {
    if (s->oom) return 0;
    if (s->len + more + 1 <= s->cap) return 1;
    size_t cap = s->cap ? s->cap * 2 : 64;
    while (cap < s->len + more + 1) cap *= 2;
    char *data = og_realloc(s->data, cap);
    if (!data) {
        s->oom = 1;
        return 0;
    }
    s->data = data;
    s->cap = cap;
    return 1;
}

void og_str_addn(og_str *s, const char *text, size_t n) {
    if (!str_room(s, n)) return;
    memcpy(s->data + s->len, text, n);
    s->len += n;
    s->data[s->len] = 0;
}

void og_str_add(og_str *s, const char *text) {
    og_str_addn(s, text, strlen(text));
}

void og_str_addf(og_str *s, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && str_room(s, (size_t)n)) {
        vsnprintf(s->data + s->len, (size_t)n + 1, fmt, again);
        s->len += (size_t)n;
    }
    va_end(again);
}

void og_str_free(og_str *s) {
    og_free(s->data);
    *s = (og_str)OG_STR_INIT;
}
