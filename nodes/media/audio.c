/* Audio out: WAV and raw PCM are our own few bytes, the packed formats are libsndfile's. */
#include "nodes/media/audio.h"

#include <math.h>
#include <sndfile.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "nodes/media/file.h"

#define BLOCK 1024 /* samples converted at a time */

static const struct {
    const char *name, *type, *ext;
} formats[] = {
#define ROW(id, text, type, ext) {text, type, ext},
    OG_AUDIO_LIST(ROW)
#undef ROW
};

const char *og_audio_name(og_audio_format f) {
    return f < OG_AUDIO_COUNT ? formats[f].name : "?";
}

const char *og_audio_media_type(og_audio_format f) {
    return f < OG_AUDIO_COUNT ? formats[f].type : "application/octet-stream";
}

static int unsupported(const char *what, og_err *err) {
    return og_err_set(err, OG_EUNSUPPORTED,
                      "audio format '%.40s' is not supported (wav, wav_f32, flac, pcm, mp3, opus)",
                      what);
}

int og_audio_by_name(const char *name, og_audio_format *f, og_err *err) {
    for (int i = 0; i < OG_AUDIO_COUNT; i++) {
        if (strcasecmp(name, formats[i].name) != 0) continue;
        *f = (og_audio_format)i;
        return 0;
    }
    return unsupported(name, err);
}

int og_audio_by_path(const char *path, og_audio_format *f, og_err *err) {
    const char *slash = strrchr(path, '/');
    const char *dot = strrchr(slash ? slash : path, '.');
    if (!dot || !dot[1]) return unsupported(path, err);
    if (strcasecmp(dot + 1, "raw") == 0) {
        *f = OG_AUDIO_PCM;
        return 0;
    }
    for (int i = 0; i < OG_AUDIO_COUNT; i++) {
        if (strcasecmp(dot + 1, formats[i].ext) != 0) continue;
        *f = (og_audio_format)i;
        return 0;
    }
    return unsupported(dot + 1, err);
}

static int16_t to_s16(float x) {
    float y = x * 32767.0f;
    if (isnan(y)) return 0;
    if (y >= 32767.0f) return 32767;
    if (y <= -32768.0f) return -32768;
    return (int16_t)lrintf(y);
}

void og_audio_f32_to_s16(const float *x, int16_t *y, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = to_s16(x[i]);
}

static void put16(unsigned char *p, uint32_t v) {
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
}

static void put32(unsigned char *p, uint32_t v) {
    put16(p, v);
    put16(p + 2, v >> 16);
}

/* RIFF, fmt (16 bytes), data. An unknown size is all ones in both places, which players
 * take as "until the end". */
void og_wav_header(unsigned char h[OG_WAV_HEADER], int rate, int channels, int bits,
                   int is_float, uint32_t data_bytes) {
    uint32_t frame = (uint32_t)(channels * bits / 8);
    memcpy(h, "RIFF", 4);
    put32(h + 4, data_bytes == UINT32_MAX ? UINT32_MAX : data_bytes + OG_WAV_HEADER - 8);
    memcpy(h + 8, "WAVEfmt ", 8);
    put32(h + 16, 16);
    put16(h + 20, is_float ? 3 : 1);
    put16(h + 22, (uint32_t)channels);
    put32(h + 24, (uint32_t)rate);
    put32(h + 28, (uint32_t)rate * frame);
    put16(h + 32, frame);
    put16(h + 34, (uint32_t)bits);
    memcpy(h + 36, "data", 4);
    put32(h + 40, data_bytes);
}

struct og_audio_out {
    og_audio_format format;
    int rate, channels;
    og_audio_sink *sink; /* NULL: file */
    void *ctx;
    og__file file;
    SNDFILE *packed;
    int64_t at, end;     /* bytes so far: position and length of a file */
    int started, broken; /* the header is out; an error has been reported */
};

static int is_wav(og_audio_format f) {
    return f == OG_AUDIO_WAV || f == OG_AUDIO_WAV_F32;
}

static int sample_bits(og_audio_format f) {
    return f == OG_AUDIO_WAV_F32 ? 32 : 16;
}

static int put(og_audio_out *o, const void *bytes, size_t n, og_err *err) {
    int rc = 0;
    if (!o->sink) {
        rc = og__file_patch(&o->file, o->at, bytes, n, err);
    } else {
        rc = o->sink(o->ctx, bytes, n);
        if (rc < 0) og_err_set(err, rc, "the receiver of a stream has stopped");
    }
    o->at += (int64_t)n;
    if (o->at > o->end) o->end = o->at;
    return rc;
}

/* libsndfile's view of the output. A stream cannot go back: FLAC then leaves the fields
 * that it would fill in at the end. */
static sf_count_t vio_length(void *ctx) {
    return ((og_audio_out *)ctx)->end;
}

static sf_count_t vio_seek(sf_count_t offset, int whence, void *ctx) {
    og_audio_out *o = ctx;
    int64_t to = whence == SEEK_SET   ? offset
                 : whence == SEEK_CUR ? o->at + offset
                                      : o->end + offset;
    if (o->sink && to != o->at) return -1;
    o->at = to;
    return to;
}

static sf_count_t vio_read(void *buf, sf_count_t n, void *ctx) {
    (void)buf;
    (void)n;
    (void)ctx;
    return 0;
}

static sf_count_t vio_write(const void *bytes, sf_count_t n, void *ctx) {
    og_audio_out *o = ctx;
    if (o->broken || put(o, bytes, (size_t)n, NULL) < 0) {
        o->broken = 1;
        return 0;
    }
    return n;
}

static sf_count_t vio_tell(void *ctx) {
    return ((og_audio_out *)ctx)->at;
}

static bool is_packed(og_audio_format f) {
    return f == OG_AUDIO_FLAC || f == OG_AUDIO_MP3 || f == OG_AUDIO_OPUS;
}

int og_audio_opus_rate(int rate) {
    static const int rates[] = {8000, 12000, 16000, 24000, 48000};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (rate <= rates[i]) return rates[i];
    return 48000;
}

static int open_packed(og_audio_format f, int rate, int channels, SF_VIRTUAL_IO *io, void *ctx,
                       SNDFILE **out, og_err *err) {
    SF_INFO info = {.samplerate = rate, .channels = channels};
    info.format = f == OG_AUDIO_FLAC  ? SF_FORMAT_FLAC | SF_FORMAT_PCM_16
                  : f == OG_AUDIO_MP3 ? SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III
                                      : SF_FORMAT_OGG | SF_FORMAT_OPUS;
    bool fits = f != OG_AUDIO_OPUS || og_audio_opus_rate(rate) == rate;
    if (!fits || !sf_format_check(&info))
        return og_err_set(err, OG_EUNSUPPORTED, "%s with %d channels at %d Hz",
                          og_audio_name(f), channels, rate);
    *out = sf_open_virtual(io, SFM_WRITE, &info, ctx);
    if (*out) return 0;
    return og_err_set(err, OG_EUNSUPPORTED, "cannot write %s at %d Hz: %s", og_audio_name(f),
                      rate, sf_strerror(NULL));
}

static int create(og_audio_format f, int rate, int channels, og_audio_out **out,
                  og_err *err) {
    *out = NULL;
    if (f >= OG_AUDIO_COUNT) return unsupported("?", err);
    if (rate < 1 || rate > OG_AUDIO_MAX_RATE || channels < 1 ||
        channels > OG_AUDIO_MAX_CHANNELS)
        return og_err_set(err, OG_EINVAL,
                          "audio with %d channels at %d Hz (limits are %d and %d)",
                          channels, rate, OG_AUDIO_MAX_CHANNELS, OG_AUDIO_MAX_RATE);
    og_audio_out *o = og_calloc(1, sizeof *o);
    if (!o) return og_err_set(err, OG_ENOMEM, "no memory to write audio");
    o->format = f;
    o->rate = rate;
    o->channels = channels;
    o->file.fd = -1;
    *out = o;
    return 0;
}

static int start(og_audio_out *o, og_err *err) {
    unsigned char h[OG_WAV_HEADER];
    o->started = 1;
    SF_VIRTUAL_IO io = {vio_length, vio_seek, vio_read, vio_write, vio_tell};
    if (is_packed(o->format))
        return open_packed(o->format, o->rate, o->channels, &io, o, &o->packed, err);
    if (!is_wav(o->format)) return 0;
    og_wav_header(h, o->rate, o->channels, sample_bits(o->format),
                  o->format == OG_AUDIO_WAV_F32, UINT32_MAX);
    return put(o, h, sizeof h, err);
}

int og_audio_create(const char *path, og_audio_format f, int rate, int channels,
                    og_audio_out **out, og_err *err) {
    int rc = create(f, rate, channels, out, err);
    if (rc == 0) rc = og__file_create(path, &(*out)->file, err);
    if (rc == 0) rc = start(*out, err);
    if (rc < 0) {
        og_audio_abort(*out);
        *out = NULL;
    }
    return rc;
}

int og_audio_stream(og_audio_format f, int rate, int channels, og_audio_sink *sink,
                    void *ctx, og_audio_out **out, og_err *err) {
    int rc = create(f, rate, channels, out, err);
    if (rc < 0) return rc;
    (*out)->sink = sink;
    (*out)->ctx = ctx;
    return 0;
}

static int write_floats(og_audio_out *o, const float *x, size_t n, og_err *err) {
    unsigned char buf[BLOCK * 4];
    while (n) {
        size_t k = n < BLOCK ? n : BLOCK;
        for (size_t i = 0; i < k; i++) {
            uint32_t bits;
            memcpy(&bits, x + i, sizeof bits);
            put32(buf + 4 * i, bits);
        }
        int rc = put(o, buf, 4 * k, err);
        if (rc < 0) return rc;
        x += k;
        n -= k;
    }
    return 0;
}

static int write_shorts(og_audio_out *o, const float *x, size_t n, og_err *err) {
    unsigned char buf[BLOCK * 2];
    int16_t s[BLOCK];
    while (n) {
        size_t k = n < BLOCK ? n : BLOCK;
        int rc = 0;
        og_audio_f32_to_s16(x, s, k);
        if (o->packed) {
            if (sf_write_short(o->packed, s, (sf_count_t)k) != (sf_count_t)k || o->broken)
                rc = og_err_set(err, OG_EIO, "cannot write the audio: %s",
                                sf_strerror(o->packed));
        } else {
            for (size_t i = 0; i < k; i++) put16(buf + 2 * i, (uint16_t)s[i]);
            rc = put(o, buf, 2 * k, err);
        }
        if (rc < 0) return rc;
        x += k;
        n -= k;
    }
    return 0;
}

/* libsndfile takes whole frames, so a block must hold a multiple of any channel count. */
static size_t block_of(const og_audio_out *o) {
    return (size_t)(BLOCK / o->channels * o->channels);
}

int og_audio_write(og_audio_out *o, const float *samples, size_t frames, og_err *err) {
    size_t n = frames * (size_t)o->channels;
    int rc = 0;
    if (o->broken) return og_err_set(err, OG_EIO, "audio output has failed before");
    if (n && !o->started) rc = start(o, err);
    while (n && rc == 0) {
        size_t k = n < block_of(o) ? n : block_of(o);
        rc = o->format == OG_AUDIO_WAV_F32 ? write_floats(o, samples, k, err)
                                           : write_shorts(o, samples, k, err);
        samples += k;
        n -= k;
    }
    if (rc < 0) o->broken = 1;
    return rc;
}

static int finish(og_audio_out *o, og_err *err) {
    unsigned char h[OG_WAV_HEADER];
    if (o->broken) return og_err_set(err, OG_EIO, "audio output has failed before");
    if (!o->started) {
        int rc = start(o, err);
        if (rc < 0) return rc;
    }
    if (o->packed) {
        int rc = sf_close(o->packed);
        o->packed = NULL;
        if (rc || o->broken)
            return og_err_set(err, OG_EIO, "cannot write the audio: %s", sf_error_number(rc));
        return 0;
    }
    if (o->sink || !is_wav(o->format)) return 0;
    int64_t bytes = o->end - OG_WAV_HEADER;
    if (bytes >= (int64_t)UINT32_MAX - OG_WAV_HEADER)
        return og_err_set(err, OG_ELIMIT, "%lld bytes are too many for a wav file",
                          (long long)bytes);
    og_wav_header(h, o->rate, o->channels, sample_bits(o->format),
                  o->format == OG_AUDIO_WAV_F32, (uint32_t)bytes);
    return og__file_patch(&o->file, 0, h, sizeof h, err);
}

int og_audio_commit(og_audio_out *o, og_err *err) {
    int rc = finish(o, err);
    if (rc == 0 && !o->sink) rc = og__file_commit(&o->file, err);
    og_audio_abort(o);
    return rc;
}

void og_audio_abort(og_audio_out *o) {
    if (!o) return;
    o->broken = 1; /* what closing would still write is not wanted */
    if (o->packed) sf_close(o->packed);
    og__file_abort(&o->file);
    og_free(o);
}

/* A clip in memory: a stream whose length is known, so its header is put right. */
static int to_memory(void *ctx, const void *bytes, size_t n) {
    og_str *s = ctx;
    og_str_addn(s, bytes, n);
    return s->oom ? OG_ENOMEM : 0;
}

typedef struct memory {
    og_str *out;
    size_t base;
    int64_t at;
} memory;

static sf_count_t mem_length(void *ctx) {
    memory *m = ctx;
    return (sf_count_t)(m->out->len - m->base);
}

static sf_count_t mem_seek(sf_count_t offset, int whence, void *ctx) {
    memory *m = ctx;
    m->at = whence == SEEK_SET   ? offset
            : whence == SEEK_CUR ? m->at + offset
                                 : mem_length(ctx) + offset;
    return m->at;
}

static sf_count_t mem_write(const void *bytes, sf_count_t n, void *ctx) {
    memory *m = ctx;
    int64_t room = mem_length(ctx) - m->at;
    int64_t over = n < room ? n : room;
    if (over > 0)
        memcpy(m->out->data + m->base + m->at, bytes, (size_t)over);
    else
        over = 0;
    og_str_addn(m->out, (const char *)bytes + over, (size_t)(n - over));
    m->at += n;
    return m->out->oom ? 0 : n;
}

static sf_count_t mem_tell(void *ctx) {
    return ((memory *)ctx)->at;
}

static int encode_packed(og_audio_format format, int rate, int channels, const float *samples,
                         size_t frames, og_str *out, og_err *err) {
    memory m = {.out = out, .base = out->len};
    SF_VIRTUAL_IO io = {mem_length, mem_seek, vio_read, mem_write, mem_tell};
    SNDFILE *f;
    int rc = open_packed(format, rate, channels, &io, &m, &f, err);
    if (rc < 0) return rc;
    size_t n = frames * (size_t)channels;
    og_audio_out shape = {.channels = channels};
    int ok = 1;
    while (n && ok) {
        int16_t s[BLOCK];
        size_t k = n < block_of(&shape) ? n : block_of(&shape);
        og_audio_f32_to_s16(samples, s, k);
        ok = sf_write_short(f, s, (sf_count_t)k) == (sf_count_t)k;
        samples += k;
        n -= k;
    }
    ok = sf_close(f) == 0 && ok;
    if (out->oom) return og_err_set(err, OG_ENOMEM, "no memory for a clip");
    return ok ? 0 : og_err_set(err, OG_EIO, "cannot write %s", og_audio_name(format));
}

int og_audio_encode(og_audio_format f, int rate, int channels, const float *samples,
                    size_t frames, og_str *out, og_err *err) {
    og_audio_out *o;
    size_t base = out->len;
    int rc = create(f, rate, channels, &o, err);
    if (rc < 0) return rc;
    if (is_packed(f)) {
        og_audio_abort(o);
        return encode_packed(f, rate, channels, samples, frames, out, err);
    }
    o->sink = to_memory;
    o->ctx = out;
    uint64_t bytes = (uint64_t)frames * (uint64_t)channels * (uint64_t)sample_bits(f) / 8;
    if (is_wav(f) && bytes >= UINT32_MAX - OG_WAV_HEADER)
        rc = og_err_set(err, OG_ELIMIT, "%llu bytes are too many for a wav file",
                        (unsigned long long)bytes);
    if (rc == 0) rc = og_audio_write(o, samples, frames, err);
    if (rc < 0) {
        og_audio_abort(o);
        return rc;
    }
    rc = og_audio_commit(o, err);
    if (rc == 0 && is_wav(f))
        og_wav_header((unsigned char *)out->data + base, rate, channels, sample_bits(f),
                      f == OG_AUDIO_WAV_F32, (uint32_t)bytes);
    return rc;
}
