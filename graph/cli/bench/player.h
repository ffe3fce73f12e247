/* A listener: what a client that plays the audio as it comes would hear.
 *
 * Playback begins when the first samples arrive and goes on as long as there are any. A piece
 * that arrives after the former ones have been played is an underrun, and the time in between
 * is silence that nobody asked for. `audible` is the moment at which the first sample above
 * the threshold is played: leading silence counts, so a server gains nothing by sending zeros.
 *
 *     og__player p;
 *     og__player_init(&p, 24000, 1, -50.0);
 *     og__player_take(&p, seconds_now, pcm, n);      // little-endian s16, any split
 */
#ifndef OG_CLI_BENCH_PLAYER_H
#define OG_CLI_BENCH_PLAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct og__player {
    int rate, channels, threshold; /* threshold: of |sample|, in s16 units */
    double first, last;           /* arrival of the first and of the latest samples; -1 */
    double ends;                  /* when everything that has arrived is played */
    double audible;               /* -1: nothing yet */
    double underrun_s, worst_gap; /* silence in all; longest wait between two arrivals */
    int underruns, packets;
    int64_t samples;        /* per channel */
    uint64_t digest;        /* of all PCM bytes */
    unsigned char part[64]; /* bytes of a sample that is not complete */
    size_t n_part;
} og__player;

/* dbfs: threshold of what can be heard. channels: 1 to 16. */
void og__player_init(og__player *p, int rate, int channels, double dbfs);
void og__player_take(og__player *p, double now, const void *pcm, size_t n);
/* Bytes are left that make no whole sample. */
bool og__player_torn(const og__player *p);

#endif
