/* Allocation: every byte of ours goes through here.
 *
 * The process allocator behind it is jemalloc (the C library's in sanitizer builds).
 * Any thread may call. A test mode makes the Nth call fail, so that each constructor can
 * be walked over all its allocations; a live count finds leaks without a sanitizer.
 *
 *     float *x = og_calloc(n, sizeof *x);
 *     if (!x) return og_err_set(err, OG_ENOMEM, "no memory for %zu values", n);
 *     og_free(x);
 */
#ifndef OG_BASE_ALLOC_H
#define OG_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void *og_malloc(size_t size);
void *og_calloc(size_t n, size_t size); /* zeroed; NULL on overflow of n * size */
void *og_realloc(void *p, size_t size);
void *og_aligned(size_t align, size_t size); /* zeroed; free with og_free */
void og_free(void *p);                       /* NULL is fine */

#define OG_LAZY_ALIGN 64
/* A zeroed block, aligned to OG_LAZY_ALIGN, that takes memory only as it is touched: for
 * pools that are planned for the worst case. Counts as one call and one block. */
void *og_lazy(size_t size);
void og_lazy_free(void *p); /* NULL is fine */
char *og_strdup(const char *s);
char *og_strndup(const char *s, size_t n);

/* Test mode: the nth call from now (1 = the next) returns NULL, once. 0 turns it off. */
void og_alloc_fail_at(long nth);
/* Whether the failure asked for has happened. */
int og_alloc_failed(void);
/* Blocks that are allocated and not yet freed. */
long og_alloc_live(void);
/* All calls so far that asked for memory; the node contract asserts that a step adds none. */
long og_alloc_calls(void);

/* An arena: objects that live and die together. Not thread safe. */
typedef struct og_arena og_arena;
og_arena *og_arena_create(void);
void *og_arena_alloc(og_arena *a, size_t size); /* zeroed, aligned to 16 */
char *og_arena_strdup(og_arena *a, const char *s);
char *og_arena_strndup(og_arena *a, const char *s, size_t n);
char *og_arena_printf(og_arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void og_arena_destroy(og_arena *a); /* NULL is fine */

/* A growing string. Start from OG_STR_INIT; oom is set (and data kept) when memory ran out. */
typedef struct og_str {
    char *data; /* always terminated once anything was added; NULL before */
    size_t len, cap;
    int oom;
} og_str;
#define OG_STR_INIT {0}
void og_str_add(og_str *s, const char *text);
void og_str_addn(og_str *s, const char *text, size_t n);
void og_str_addf(og_str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void og_str_free(og_str *s);

#ifdef __cplusplus
}
#endif
#endif
