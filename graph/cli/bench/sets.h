/* What the requests say: built-in English sentences, lines of a file, or random words.
 *
 * A set is a list of prompts; a run takes them in an order that its seed decides, and from the
 * beginning again when there are too few. Owned by its arena.
 *
 *     og__set set;
 *     if (og__set_load(arena, "english", &set, &err) < 0) ...
 *     const og__prompt *p = og__set_pick(&set, order, i);
 *
 * Files: one text a line; a line that begins with '{' is a JSON object, whose "text" (or
 * "input") is the text and whose other keys go into the body of the request; `.lst` files
 * are those of the Seed-TTS evaluation (id|text of the clip|clip|text to speak). */
#ifndef OG_CLI_BENCH_SETS_H
#define OG_CLI_BENCH_SETS_H

#include <stdbool.h>

#include "graph/cli/bench/random.h"
#include "kernels/base/alloc.h"
#include "kernels/base/err.h"

typedef struct og__prompt {
    const char *text;
    const char *ref_text, *ref_audio; /* a clip to speak like: words and file; NULL */
    const char *extra;                /* further keys of the body, JSON text; NULL */
    int words;
} og__prompt;

typedef struct og__set {
    const char *name;
    og__prompt *prompts;
    int n;
} og__set;

#define OG__SET_MAX 1000000 /* prompts of a file */

/* "english", "english-design" (with a description of a voice), or a file. */
int og__set_load(og_arena *arena, const char *what, og__set *out,
                 og_err *err) OG_MUST_CHECK;
/* n prompts of random common words, min to max words each. */
int og__set_random(og_arena *arena, uint64_t seed, int n, int min, int max, og__set *out,
                   og_err *err) OG_MUST_CHECK;
/* order[i], i < n: which prompt request i takes. Every round goes through all of them once. */
int og__set_order(const og__set *set, uint64_t seed, bool shuffle, int n, int *order,
                  og_err *err) OG_MUST_CHECK;
/* How long a person takes for the text, in seconds: about 14 characters of English a second. */
double og__spoken_seconds(const char *text);
/* Three seconds of a made-up voice as a data: URL (WAV, 24 kHz), where a clip is needed and
 * none is at hand. NULL when out of memory; owned by the arena. */
const char *og__made_up_clip(og_arena *arena);

extern const char *const og__english[];
extern const int og__n_english;
extern const char *const og__english_voices[]; /* descriptions, for english-design */
extern const int og__n_english_voices;

#endif
