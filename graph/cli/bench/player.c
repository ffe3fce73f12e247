/* The playback model. */
#include <math.h>
#include <string.h>

#include "graph/cli/bench/player.h"

#define FNV_START 14695981039346656037u
#define FNV_PRIME 1099511628211u

void og__player_init(og__player *p, int rate, int channels, double dbfs) {
    *p = (og__player){.rate = rate, .channels = channels, .digest = FNV_START};
    p->first = p->last = p->audible = -1;
    p->threshold = (int)ceil(32768.0 * pow(10.0, dbfs / 20.0));
}

static void digest(og__player *p, const unsigned char *b, size_t n) {
    uint64_t h = p->digest;
    for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * FNV_PRIME;
    p->digest = h;
}

/* Index of the first frame that can be heard, -1 for none. */
static int64_t find_audible(const og__player *p, const unsigned char *b, size_t frames) {
    for (size_t i = 0; i < frames * (size_t)p->channels; i++) {
        int v = (int16_t)(uint16_t)(b[2 * i] | b[2 * i + 1] << 8);
        if (v >= p->threshold || -v >= p->threshold) return (int64_t)i / p->channels;
    }
    return -1;
}

static void play(og__player *p, double now, const unsigned char *b, size_t frames) {
    if (frames == 0) return;
    if (p->first < 0) {
        p->first = p->ends = now;
    } else {
        if (now - p->last > p->worst_gap) p->worst_gap = now - p->last;
        if (now > p->ends) {
            p->underruns++;
            p->underrun_s += now - p->ends;
            p->ends = now;
        }
    }
    p->last = now;
    if (p->audible < 0) {
        int64_t at = find_audible(p, b, frames);
        if (at >= 0) p->audible = p->ends + (double)at / p->rate;
    }
    p->ends += (double)frames / p->rate;
    p->samples += (int64_t)frames;
}

void og__player_take(og__player *p, double now, const void *pcm, size_t n) {
    const unsigned char *b = pcm;
    size_t size = 2 * (size_t)p->channels;
    digest(p, b, n);
    p->packets++;
    if (p->n_part) {
        size_t take = size - p->n_part < n ? size - p->n_part : n;
        memcpy(p->part + p->n_part, b, take);
        p->n_part += take;
        b += take;
        n -= take;
        if (p->n_part == size) {
            play(p, now, p->part, 1);
            p->n_part = 0;
        }
    }
    play(p, now, b, n / size);
    if (n % size) {
        memcpy(p->part, b + n / size * size, n % size);
        p->n_part = n % size;
    }
}

bool og__player_torn(const og__player *p) {
    return p->n_part > 0;
}
