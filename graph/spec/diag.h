/* Diagnostics: what the readers of specs have to say, each with a source position.
 *
 * One og_diags is handed down through loading and compiling, and everything found goes
 * into it: a file with five mistakes gets five messages. A list belongs to one thread and
 * to whoever created it; it copies every string it is given, so it outlives the trees and
 * plans it talks about. Texts of source files are kept for the line and the caret.
 *
 *     og_diags *d = og_diags_create();
 *     if (!d || og_pipeline_load(path, dirs, n_dirs, d, &p, &err) < 0) {
 *         og_str out = OG_STR_INIT;
 *         og_diags_print(d, &out);
 *         fputs(out.data, stderr);
 *     }
 *     og_diags_destroy(d);
 */
#ifndef OG_SPEC_DIAG_H
#define OG_SPEC_DIAG_H

#include <stddef.h>

#include "kernels/base/alloc.h"
#include "kernels/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum og_severity {
    OG_SEVERITY_NOTE,
    OG_SEVERITY_WARNING,
    OG_SEVERITY_ERROR,
} og_severity;

typedef struct og_diag {
    og_severity severity;
    og_src src;       /* file NULL when it is about no file */
    const char *msg;  /* no line feed at the end */
    const char *hint; /* "" when there is nothing to say */
} og_diag;

/* Messages kept; further ones are only counted. */
#define OG_DIAGS_MAX 100

typedef struct og_diags og_diags;

/* NULL when out of memory. */
og_diags *og_diags_create(void);
void og_diags_destroy(og_diags *d); /* NULL is fine */

/* Keep a copy of a source text under its name; a name given before keeps its first text.
 * Silently skipped when out of memory: messages then print without the line. */
void og_diags_source(og_diags *d, const char *name, const char *text, size_t len);

/* Add a message. The same message at the same place is added once. d may be NULL. */
void og_diags_error(og_diags *d, og_src src, const char *fmt, ...) OG_PRINTF(3, 4);
void og_diags_warn(og_diags *d, og_src src, const char *fmt, ...) OG_PRINTF(3, 4);
void og_diags_note(og_diags *d, og_src src, const char *fmt, ...) OG_PRINTF(3, 4);
/* Give the message just added a hint (what to do about it). */
void og_diags_hint(og_diags *d, const char *fmt, ...) OG_PRINTF(2, 3);
/* A hint "did you mean 'best'?"; nothing when best is NULL. */
void og_diags_suggest(og_diags *d, const char *best);

/* Report that memory ran out: an error without a place. */
void og_diags_no_memory(og_diags *d);

/* Numbers so far: repeats, messages over the limit and those that found no memory count
 * too, so a growing number is the sign that something failed. */
int og_diags_errors(const og_diags *d);
int og_diags_warnings(const og_diags *d);
/* Whether memory ran out, while something was added or as reported. */
int og_diags_oom(const og_diags *d);

/* The messages kept, in the order they were added. */
int og_diags_count(const og_diags *d);
const og_diag *og_diags_at(const og_diags *d, int i);

/* Append one message, or all of them and a count of those left out:
 *     file:line:col: error: message
 *       the source line
 *           ^
 *       hint: what to do
 */
void og_diags_print_one(const og_diags *d, int i, og_str *out);
void og_diags_print(const og_diags *d, og_str *out);

/* The first error as an og_err. Returns its code: OG_ESPEC, or OG_ENOMEM when memory ran
 * out, or 0 when there is no error. */
int og_diags_err(const og_diags *d, og_err *err);

#ifdef __cplusplus
}
#endif
#endif
