/* PCM, WAV and server-sent events, in pieces. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "graph/cli/bench/decode.h"
#include "kernels/base/err.h"

#define HEADER_MAX 65536             /* of a WAV file before its samples */
#define EVENT_MAX ((size_t)64 << 20) /* of a server-sent event */

static void complain(og__decode *d, const char *fmt, const char *what) {
    if (!d->error[0]) snprintf(d->error, sizeof d->error, fmt, what);
}

void og__decode_start(og__decode *d, og__answer kind, og__player *player) {
    og_str text = d->text;
    *d = (og__decode){.kind = kind, .player = player, .first = -1, .text = text};
    d->text.len = 0;
    d->text.oom = 0;
}

void og__decode_free(og__decode *d) {
    og_str_free(&d->text);
}

static void audio(og__decode *d, double now, const void *data, size_t n, bool samples) {
    if (n == 0) return;
    if (d->first < 0) d->first = now;
    d->bytes += (int64_t)n;
    if (samples) og__player_take(d->player, now, data, n);
}

/* ---- base64 ------------------------------------------------------------------- */

static int sextet(unsigned char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

unsigned char *og__base64_decode(const char *text, size_t n, size_t *out_n) {
    while (n > 0 && text[n - 1] == '=') n--;
    unsigned char *out = n % 4 == 1 ? NULL : og_malloc(n / 4 * 3 + 3);
    uint32_t bits = 0;
    *out_n = 0;
    for (size_t i = 0; out && i < n; i++) {
        int v = sextet((unsigned char)text[i]);
        if (v < 0) {
            og_free(out);
            return NULL;
        }
        bits = bits << 6 | (uint32_t)v;
        if (i % 4) out[(*out_n)++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    return out;
}

void og__base64_encode(const void *data, size_t n, og_str *out) {
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *b = data;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)b[i] << 16;
        if (i + 1 < n) v |= (uint32_t)b[i + 1] << 8;
        if (i + 2 < n) v |= b[i + 2];
        char four[4] = {digits[v >> 18], digits[v >> 12 & 63],
                        i + 1 < n ? digits[v >> 6 & 63] : '=',
                        i + 2 < n ? digits[v & 63] : '='};
        og_str_addn(out, four, 4);
    }
}

/* ---- server-sent events ------------------------------------------------------- */

static void event_audio(og__decode *d, double now, const json_t *j) {
    const json_t *a = json_object_get(j, "audio");
    if (!a) a = json_object_get(j, "delta");
    const char *format = json_string_value(json_object_get(j, "response_format"));
    if (!json_is_string(a)) {
        complain(d, "a %s event without audio", "speech.audio.delta");
        return;
    }
    size_t n;
    unsigned char *raw =
        og__base64_decode(json_string_value(a), json_string_length(a), &n);
    if (!raw)
        complain(d, "the audio of a %s event is not base64", "speech.audio.delta");
    else if (format && !strcmp(format, "wav") && n > 44)
        audio(d, now, raw + 44, n - 44, true); /* a file of its own in every event */
    else
        audio(d, now, raw, n, !format || !strcmp(format, "pcm"));
    og_free(raw);
}

static void event_error(og__decode *d, const json_t *j) {
    const json_t *e = json_object_get(j, "error");
    const char *msg = json_string_value(json_object_get(e ? e : j, "message"));
    if (!msg) msg = json_string_value(e);
    d->failed = true;
    complain(d, "%.200s", msg ? msg : "the server reports an error");
}

static void event(og__decode *d, double now, const char *data, size_t n) {
    if (n == 6 && !memcmp(data, "[DONE]", 6)) {
        d->finished = true;
        return;
    }
    json_t *j = json_loadb(data, n, 0, NULL);
    const char *type = json_string_value(json_object_get(j, "type"));
    if (!json_is_object(j))
        complain(d, "an event is not %s", "a JSON object");
    else if (json_object_get(j, "error") || (type && strstr(type, "error")))
        event_error(d, j);
    else if (type && !strcmp(type, "speech.audio.delta"))
        event_audio(d, now, j);
    else if (type && !strcmp(type, "speech.audio.done"))
        d->finished = true;
    json_decref(j);
}

/* An event ends with an empty line; its data lines are joined in place. */
static void event_lines(og__decode *d, double now) {
    char *to = d->text.data, *next;
    size_t n = 0;
    for (char *s = d->text.data; *s; s = next) {
        char *end = s + strcspn(s, "\n");
        next = *end ? end + 1 : end;
        if (end > s && end[-1] == '\r') end--;
        if (strncmp(s, "data:", 5)) continue;
        s += s[5] == ' ' ? 6 : 5;
        if (s > end) continue;
        if (n) to[n++] = '\n';
        memmove(to + n, s, (size_t)(end - s));
        n += (size_t)(end - s);
    }
    if (n) event(d, now, to, n);
}

static void sse(og__decode *d, double now, const char *data, size_t n) {
    while (n > 0 && !d->text.oom) {
        const char *nl = memchr(data, '\n', n);
        size_t take = nl ? (size_t)(nl - data) + 1 : n;
        if (d->text.len + take > EVENT_MAX) {
            complain(d, "an event is longer than %s", "64 MiB");
            return;
        }
        og_str_addn(&d->text, data, take);
        data += take;
        n -= take;
        if (!nl) return;
        size_t line = d->text.len - d->line;
        bool empty = line == 1 || (line == 2 && d->text.data[d->line] == '\r');
        d->line = d->text.len;
        if (!empty) continue;
        event_lines(d, now);
        d->text.len = d->line = 0;
    }
}

/* ---- WAV ---------------------------------------------------------------------- */

static uint32_t u32(const char *p) {
    const unsigned char *b = (const unsigned char *)p;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static void format(og__decode *d, const char *p) {
    int channels = (int)(u32(p) >> 16), bits = (int)(u32(p + 12) >> 16);
    if (channels < 1 || channels > 16 || bits != 16 || u32(p + 4) == 0) {
        complain(d, "the WAV file is not %s", "16-bit PCM");
        return;
    }
    d->player->channels = channels;
    d->player->rate = (int)u32(p + 4);
}

/* Where the samples begin, 0 while that is not known. */
static size_t wav_header(og__decode *d) {
    const char *s = d->text.data;
    size_t n = d->text.len;
    if (n < 12) return 0;
    if (memcmp(s, "RIFF", 4) || memcmp(s + 8, "WAVE", 4)) {
        complain(d, "the body is no %s file", "WAV");
        return 0;
    }
    for (size_t at = 12; at + 8 <= n;) {
        size_t size = u32(s + at + 4);
        if (!memcmp(s + at, "data", 4)) {
            /* A stream cannot know its length and says 0, or the largest number. */
            d->left = size == 0 || size >= 0x7fffffff ? -1 : (int64_t)size;
            return at + 8;
        }
        if (!memcmp(s + at, "fmt ", 4)) {
            if (at + 24 > n) return 0;
            format(d, s + at + 8);
        }
        at += 8 + size + (size & 1);
    }
    return 0;
}

static void wav(og__decode *d, double now, const char *data, size_t n) {
    if (!d->in_data) {
        og_str_addn(&d->text, data, n);
        size_t at = d->text.oom ? 0 : wav_header(d);
        if (!at && d->text.len > HEADER_MAX)
            complain(d, "the WAV file has no %s", "samples");
        if (!at) return;
        d->in_data = true;
        data = d->text.data + at;
        n = d->text.len - at;
    }
    if (d->left >= 0 && (int64_t)n > d->left) n = (size_t)d->left;
    if (d->left >= 0) d->left -= (int64_t)n;
    audio(d, now, data, n, true);
}

/* ------------------------------------------------------------------------------- */

void og__decode_take(og__decode *d, double now, const char *data, size_t n) {
    if (d->error[0]) return;
    switch (d->kind) {
    case OG__ANSWER_PCM: audio(d, now, data, n, true); break;
    case OG__ANSWER_WAV: wav(d, now, data, n); break;
    case OG__ANSWER_SSE: sse(d, now, data, n); break;
    case OG__ANSWER_OTHER: audio(d, now, data, n, false); break;
    }
    if (d->text.oom) complain(d, "%s", "out of memory");
}

int og__decode_end(og__decode *d) {
    if (d->kind == OG__ANSWER_SSE && !d->finished)
        complain(d, "the events end without %s", "speech.audio.done");
    if (d->kind == OG__ANSWER_WAV && !d->in_data)
        complain(d, "the WAV file has no %s", "samples");
    if (d->kind == OG__ANSWER_WAV && d->left > 0)
        complain(d, "the WAV file is shorter than %s", "its header says");
    if (d->kind != OG__ANSWER_OTHER && og__player_torn(d->player))
        complain(d, "the audio ends %s", "within a sample");
    return d->error[0] ? OG_EFORMAT : 0;
}
