/* Audio files and streams, out and in.
 *
 * Samples inside the engine are float, nominally -1..1, interleaved where there is more
 * than one channel. On the way to 16 bits: x * 32767, rounded to nearest (half to even),
 * clipped to -32768..32767, NaN becomes 0. An object belongs to one thread at a time.
 *
 *     og_audio_out *o = NULL;                           // a file: all of it or nothing
 *     if (og_audio_create("out.wav", OG_AUDIO_WAV, 24000, 1, &o, err) < 0) ...
 *     rc = og_audio_write(o, samples, n, err);             // as often as wanted
 *     rc = og_audio_commit(o, err);                        // or og_audio_abort(o)
 *
 *     og_audio ref = {0};
 *     rc = og_audio_read("voice.mp3", 24000, &ref, err);   // mono, 24 kHz
 *     og_audio_clear(&ref);
 */
#ifndef OG_MEDIA_AUDIO_H
#define OG_MEDIA_AUDIO_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/base/alloc.h"
#include "kernels/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_AUDIO_MAX_CHANNELS 64
#define OG_AUDIO_MAX_RATE 768000
#define OG_AUDIO_MAX_FRAMES ((int64_t)1 << 29) /* of an input file, after decoding */
#define OG_WAV_HEADER 44

/* name, spelling, media type, file name extension */
#define OG_AUDIO_LIST(X)                                 \
    X(OG_AUDIO_WAV, "wav", "audio/wav", "wav")           \
    X(OG_AUDIO_WAV_F32, "wav_f32", "audio/wav", "wav")   \
    X(OG_AUDIO_FLAC, "flac", "audio/flac", "flac")       \
    X(OG_AUDIO_PCM, "pcm", "audio/pcm", "pcm")           \
    X(OG_AUDIO_MP3, "mp3", "audio/mpeg", "mp3")          \
    X(OG_AUDIO_OPUS, "opus", "audio/ogg", "opus")

/* 16 bits little endian, but for WAV_F32. PCM has no header. OPUS is Ogg, and knows only the
 * rates of og_audio_opus_rate. */
#define OG_AUDIO_ENUM(name, text, type, ext) name,
typedef enum og_audio_format {
    OG_AUDIO_LIST(OG_AUDIO_ENUM) OG_AUDIO_COUNT
} og_audio_format;
#undef OG_AUDIO_ENUM

const char *og_audio_name(og_audio_format f);
const char *og_audio_media_type(og_audio_format f);
/* Format by spelling, or by the extension of a path ("wav", "flac", "pcm", "raw"; any
 * case). OG_EUNSUPPORTED lists what there is. */
int og_audio_by_name(const char *name, og_audio_format *f, og_err *err) OG_MUST_CHECK;
int og_audio_by_path(const char *path, og_audio_format *f, og_err *err) OG_MUST_CHECK;

typedef struct og_audio_out og_audio_out;

/* Takes n bytes, in order. A negative return stops the writer, which passes it on. */
typedef int og_audio_sink(void *ctx, const void *bytes, size_t n);

/* A file. It is written under a temporary name in the same folder; commit gives it its
 * name (replacing what was there), with true sizes in the header. A path that is a device
 * or a pipe is OG_EIO: stream to those. */
int og_audio_create(const char *path, og_audio_format f, int rate, int channels,
                    og_audio_out **out, og_err *err) OG_MUST_CHECK;
/* A stream to a sink, length unknown: a WAV header comes once, at the first byte, with
 * sizes of 0xffffffff; FLAC leaves its total open. */
int og_audio_stream(og_audio_format f, int rate, int channels, og_audio_sink *sink,
                    void *ctx, og_audio_out **out, og_err *err) OG_MUST_CHECK;
/* frames * channels samples. After a failure only abort, or commit, which fails. */
int og_audio_write(og_audio_out *o, const float *samples, size_t frames,
                   og_err *err) OG_MUST_CHECK;
/* Finish and free o, also on failure (a file is then not there, and the old one kept).
 * A stream that got no samples still gets its header. */
int og_audio_commit(og_audio_out *o, og_err *err) OG_MUST_CHECK;
/* Drop it: no file appears. NULL is fine. */
void og_audio_abort(og_audio_out *o);

/* A whole clip into memory, appended to out, with true sizes in the header. */
int og_audio_encode(og_audio_format f, int rate, int channels, const float *samples,
                    size_t frames, og_str *out, og_err *err) OG_MUST_CHECK;

/* The conversion above; the count is in samples. Host byte order. */
void og_audio_f32_to_s16(const float *x, int16_t *y, size_t n);
/* The 44 bytes of a RIFF header. data_bytes of UINT32_MAX means unknown. */
void og_wav_header(unsigned char h[OG_WAV_HEADER], int rate, int channels, int bits,
                   int is_float, uint32_t data_bytes);

/* A mono clip. Owner: whoever holds it; og_audio_clear frees x. */
typedef struct og_audio {
    float *x;
    int64_t n;
    int rate;
    int source_rate, source_channels; /* as found in the file */
} og_audio;

/* Read any file or memory that libsndfile knows (wav, flac, ogg, opus, mp3, aiff),
 * average its channels, and resample to rate (0 keeps its own). OG_EFORMAT for what is no
 * audio or holds no samples. */
int og_audio_read(const char *path, int rate, og_audio *out, og_err *err) OG_MUST_CHECK;
int og_audio_decode(const void *bytes, size_t len, int rate, og_audio *out,
                    og_err *err) OG_MUST_CHECK;
void og_audio_clear(og_audio *a);

/* Mono, soxr's HQ recipe; *m = ceil(n * (to / from)) in double, what soxr does not fill being
 * silence. *y is the caller's (og_free). */
int og_audio_resample(const float *x, int64_t n, int from, int to, float **y, int64_t *m,
                      og_err *err) OG_MUST_CHECK;

/* The nearest rate, not below, that Opus codes; 48000 at most. */
int og_audio_opus_rate(int rate);

/* Mono at another speed and the same pitch: *m = round(n / speed) samples. *y is the caller's
 * (og_free). OG_EINVAL for a speed below 0.1 or above 10. */
int og_audio_stretch(const float *x, int64_t n, int rate, double speed, float **y, int64_t *m,
                     og_err *err) OG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
