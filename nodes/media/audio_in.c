/* Audio in: any file that libsndfile knows, as one channel at one rate. */
#include <math.h>
#include <sndfile.h>
#include <soxr.h>
#include <stdio.h>
#include <string.h>

#include "nodes/media/audio.h"

#define BLOCK 4096 /* frames read at a time: a header's frame count is only a claim */

void og_audio_clear(og_audio *a) {
    og_free(a->x);
    memset(a, 0, sizeof *a);
}

static int room_for(og_audio *a, int64_t *cap, int64_t more, og_err *err) {
    if (a->n + more <= *cap) return 0;
    if (a->n + more > OG_AUDIO_MAX_FRAMES)
        return og_err_set(err, OG_ELIMIT, "audio is too long (limit is %lld samples)",
                          (long long)OG_AUDIO_MAX_FRAMES);
    int64_t bigger = *cap ? *cap * 2 : 16 * BLOCK;
    float *x = og_realloc(a->x, (size_t)bigger * sizeof *x);
    if (!x) return og_err_set(err, OG_ENOMEM, "no memory for audio");
    a->x = x;
    *cap = bigger;
    return 0;
}

/* Average the channels of n frames; what is no number becomes silence. */
static void mix_down(const float *in, int64_t n, int channels, float *out) {
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int c = 0; c < channels; c++) sum += in[i * channels + c];
        out[i] = isfinite(sum) ? sum / (float)channels : 0;
    }
}

static int read_frames(SNDFILE *f, int channels, og_audio *a, og_err *err) {
    int64_t cap = 0;
    int rc = 0;
    float *block = og_malloc((size_t)BLOCK * (size_t)channels * sizeof *block);
    if (!block) return og_err_set(err, OG_ENOMEM, "no memory for audio");
    for (;;) {
        sf_count_t n = sf_readf_float(f, block, BLOCK);
        if (n <= 0) break;
        rc = room_for(a, &cap, n, err);
        if (rc < 0) break;
        mix_down(block, n, channels, a->x + a->n);
        a->n += n;
    }
    og_free(block);
    return rc;
}

static int to_rate(og_audio *a, int rate, og_err *err) {
    float *y;
    int64_t m;
    int rc = og_audio_resample(a->x, a->n, a->rate, rate, &y, &m, err);
    if (rc < 0) return rc;
    og_free(a->x);
    a->x = y;
    a->n = m;
    a->rate = rate;
    return 0;
}

static int read_open(SNDFILE *f, const SF_INFO *info, int rate, og_audio *out,
                     og_err *err) {
    memset(out, 0, sizeof *out);
    if (!f)
        return og_err_set(err, OG_EFORMAT, "not an audio file that can be read: %s",
                          sf_strerror(NULL));
    int rc = 0;
    out->rate = out->source_rate = info->samplerate;
    out->source_channels = info->channels;
    if (info->channels < 1 || info->channels > OG_AUDIO_MAX_CHANNELS ||
        info->samplerate < 1 || info->samplerate > OG_AUDIO_MAX_RATE)
        rc = og_err_set(
            err, OG_ELIMIT, "audio with %d channels at %d Hz (limits are %d and %d)",
            info->channels, info->samplerate, OG_AUDIO_MAX_CHANNELS, OG_AUDIO_MAX_RATE);
    if (rc == 0) rc = read_frames(f, info->channels, out, err);
    sf_close(f);
    if (rc == 0 && out->n == 0) rc = og_err_set(err, OG_EFORMAT, "audio without samples");
    if (rc == 0 && rate && rate != out->rate) rc = to_rate(out, rate, err);
    if (rc < 0) og_audio_clear(out);
    return rc;
}

int og_audio_read(const char *path, int rate, og_audio *out, og_err *err) {
    SF_INFO info = {0};
    og_err own = OG_ERR_INIT;
    int rc = read_open(sf_open(path, SFM_READ, &info), &info, rate, out, &own);
    return rc < 0 ? og_err_set(err, rc, "%s: %s", path, own.msg) : 0;
}

typedef struct memory {
    const char *bytes;
    sf_count_t len, at;
} memory;

static sf_count_t mem_length(void *ctx) {
    return ((memory *)ctx)->len;
}

static sf_count_t mem_seek(sf_count_t offset, int whence, void *ctx) {
    memory *m = ctx;
    sf_count_t to = whence == SEEK_SET   ? offset
                    : whence == SEEK_CUR ? m->at + offset
                                         : m->len + offset;
    if (to < 0 || to > m->len) return -1;
    return m->at = to;
}

static sf_count_t mem_read(void *buf, sf_count_t n, void *ctx) {
    memory *m = ctx;
    if (n > m->len - m->at) n = m->len - m->at;
    if (n < 0) n = 0;
    memcpy(buf, m->bytes + m->at, (size_t)n);
    m->at += n;
    return n;
}

static sf_count_t mem_write(const void *bytes, sf_count_t n, void *ctx) {
    (void)bytes;
    (void)n;
    (void)ctx;
    return 0;
}

static sf_count_t mem_tell(void *ctx) {
    return ((memory *)ctx)->at;
}

int og_audio_decode(const void *bytes, size_t len, int rate, og_audio *out, og_err *err) {
    SF_VIRTUAL_IO io = {mem_length, mem_seek, mem_read, mem_write, mem_tell};
    memory m = {.bytes = bytes, .len = (sf_count_t)len};
    SF_INFO info = {0};
    SNDFILE *f = len ? sf_open_virtual(&io, SFM_READ, &info, &m) : NULL;
    return read_open(f, &info, rate, out, err);
}

/* In floating point, as the references of the models count: the ratio is rounded first, so one
 * second at 44.1 kHz is 24,001 samples at 24 kHz, of which the last is silence. */
static double resampled_length(int64_t n, int from, int to) {
    return ceil((double)n * ((double)to / (double)from));
}

int og_audio_resample(const float *x, int64_t n, int from, int to, float **y, int64_t *m,
                      og_err *err) {
    *y = NULL;
    *m = 0;
    if (from < 1 || from > OG_AUDIO_MAX_RATE || to < 1 || to > OG_AUDIO_MAX_RATE || n < 0)
        return og_err_set(err, OG_EINVAL,
                          "cannot resample from %d to %d Hz (limit is %d)", from, to,
                          OG_AUDIO_MAX_RATE);
    double length = resampled_length(n, from, to);
    if (length > (double)OG_AUDIO_MAX_FRAMES)
        return og_err_set(err, OG_ELIMIT, "audio is too long (limit is %lld samples)",
                          (long long)OG_AUDIO_MAX_FRAMES);
    int64_t want = (int64_t)length;
    float *out = og_calloc((size_t)want, sizeof *out);
    if (!out) return og_err_set(err, OG_ENOMEM, "no memory for audio");
    if (from == to) {
        if (n) memcpy(out, x, (size_t)n * sizeof *out);
    } else if (n) {
        size_t used, made = 0;
        soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
        soxr_error_t e = soxr_oneshot(from, to, 1, x, (size_t)n, &used, out, (size_t)want,
                                      &made, NULL, &quality, NULL);
        if (e) {
            og_free(out);
            return og_err_set(err, OG_ENOMEM, "cannot resample audio: %s", e);
        }
    }
    *y = out;
    *m = want;
    return 0;
}
