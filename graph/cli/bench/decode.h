/* From the body of a speech answer to samples: raw PCM, WAV with its header, server-sent events
 * with base64 inside, or a format that is only counted (mp3, flac, opus). Pieces may be split
 * anywhere. Owns its buffers; og__decode_free between any two answers keeps none of them.
 *
 *     og__decode d = {0};
 *     og__decode_start(&d, OG__ANSWER_SSE, &player);
 *     og__decode_take(&d, now, data, n);
 *     if (og__decode_end(&d) < 0) puts(d.error);
 */
#ifndef OG_CLI_BENCH_DECODE_H
#define OG_CLI_BENCH_DECODE_H

#include "graph/cli/bench/player.h"
#include "kernels/base/alloc.h"

typedef enum og__answer {
    OG__ANSWER_PCM,
    OG__ANSWER_WAV,
    OG__ANSWER_SSE,
    OG__ANSWER_OTHER
} og__answer;

typedef struct og__decode {
    og__answer kind;
    og__player *player; /* borrowed */
    double first;       /* first byte of audio, -1 */
    int64_t bytes;      /* of audio, base64 and headers not counted */
    bool finished;      /* SSE: the last event has come */
    bool failed;        /* SSE: the server has reported an error; the text is in error */
    char error[256];    /* why the answer is no good, "" */
    og_str text;        /* a header or an event that is not complete */
    size_t line;        /* SSE: where in text the present line begins */
    int64_t left;       /* WAV: bytes of samples that follow, -1: until the end */
    bool in_data;
} og__decode;

void og__decode_start(og__decode *d, og__answer kind, og__player *player);
void og__decode_take(og__decode *d, double now, const char *data, size_t n);
/* After the last byte: 0, or OG_EFORMAT with d->error. */
int og__decode_end(og__decode *d);
void og__decode_free(og__decode *d);

/* Base64 of a whole text; NULL when it is not, or when memory ran out. Owned by the caller. */
unsigned char *og__base64_decode(const char *text, size_t n, size_t *out_n);
void og__base64_encode(const void *data, size_t n, og_str *out);

#endif
