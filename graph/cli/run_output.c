/* Where the audio of `run` goes: a file that appears whole, standard output, or only the
 * facts about it as JSON. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/cli/run.h"

#define SILENCE 1024
#define POLL_MS 100

static const char *format_word(og__cli *cli, const og__output *o) {
    const char *word = og__args_get(&cli->args, "format");
    const char *dot = strrchr(o->path, '.');
    if (word) return word;
    if (o->standard) return "wav";
    return dot && !strchr(dot, '/') ? dot + 1 : "";
}

int og__output_plan(og__cli *cli, og__output *o) {
    og_err err = OG_ERR_INIT;
    *o = (og__output){.path = og__args_get(&cli->args, "output")};
    if (!o->path) {
        og__usage(cli, "where to? there is no -o");
        return og__hint("-o out.wav, or -o - for standard output");
    }
    o->standard = !strcmp(o->path, "-");
    if (!o->standard && og__can_write(o->path, &err) < 0) {
        og__report(&err);
        return OG__EXIT_USAGE;
    }
    const char *word = format_word(cli, o);
    if (!strcasecmp(word, "json")) {
        o->kind = OG__JSON;
    } else {
        int rc = og__args_has(&cli->args, "format")
                     ? og_audio_by_name(word, &o->audio, &err)
                 : o->standard ? og_audio_by_name(word, &o->audio, &err)
                               : og_audio_by_path(o->path, &o->audio, &err);
        if (rc < 0) {
            og__report(&err);
            return og__hint("-o takes .wav, .flac, .mp3, .opus, .pcm, .raw or .json; "
                            "--format decides where the name does not");
        }
    }
    if (o->standard && o->kind == OG__AUDIO && isatty(STDOUT_FILENO))
        return og__usage(cli,
                         "no audio is written to a terminal; use -o FILE, or a pipe");
    return 0;
}

/* Until the reader takes something. Nothing would wake a write that waits for a reader who
 * has stopped reading, so the wait is here, where Ctrl-C is seen. */
static int wait_for_reader(og__output *o) {
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    for (;;) {
        if (o->watch && og__watch_hit(o->watch))
            return og_err_set(&o->err, OG_ECANCELED, "canceled");
        int n = poll(&p, 1, POLL_MS);
        if (n > 0 || (n < 0 && errno != EINTR)) return 0;
    }
}

/* A pipe that takes anything takes PIPE_BUF bytes without waiting. */
static int to_stdout(void *ctx, const void *bytes, size_t n) {
    const char *p = bytes;
    int rc = 0;
    while (n > 0 && rc == 0) {
        size_t k = n < PIPE_BUF ? n : PIPE_BUF;
        rc = wait_for_reader(ctx);
        if (rc == 0) rc = og__write_stdout(p, k, &((og__output *)ctx)->err);
        p += k;
        n -= k;
    }
    return rc;
}

int og__output_open(og__output *o, int rate, og_err *err) {
    o->rate = rate;
    if (o->kind != OG__AUDIO) return 0;
    if (o->standard)
        return og_audio_stream(o->audio, rate, 1, to_stdout, o, &o->out, err);
    return og_audio_create(o->path, o->audio, rate, 1, &o->out, err);
}

/* Why standard output took no more says more than that a writer was stopped. */
static int sunk(const og__output *o, int rc, og_err *err) {
    if (rc >= 0 || !o->err.code) return rc;
    *err = o->err;
    return o->err.code;
}

int og__output_write(og__output *o, const og_tensor *samples, og_err *err) {
    int64_t n = samples->rank ? og_tensor_count(samples) : 0;
    if (n == 0) return 0;
    if (samples->dtype != OG_F32 || !og_tensor_dense(samples) ||
        samples->place.kind != OG_PLACE_HOST)
        return og_err_set(err, OG_EUNSUPPORTED,
                          "samples must be f32 in host memory, not %s",
                          og_dtype_name(samples->dtype));
    o->samples += n;
    return o->out ? sunk(o, og_audio_write(o->out, samples->data, (size_t)n, err), err)
                  : 0;
}

int og__output_silence(og__output *o, int64_t n, og_err *err) {
    static const float zeros[SILENCE];
    int rc = 0;
    while (n > 0 && rc == 0) {
        int64_t k = n < SILENCE ? n : SILENCE;
        rc = o->out ? sunk(o, og_audio_write(o->out, zeros, (size_t)k, err), err) : 0;
        o->samples += k;
        n -= k;
    }
    return rc;
}

/* One line a key: tapped items would fill a line each otherwise. */
static void json_text(const json_t *info, og_str *out) {
    const char *key;
    json_t *value;
    const char *sep = "{";
    json_object_foreach((json_t *)info, key, value) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        if (!text) out->oom = 1;
        og_str_addf(out, "%s\n  \"%s\": %s", sep, key, text ? text : "null");
        free(text);
        sep = ",";
    }
    og_str_add(out, "\n}\n");
}

int og__output_commit(og__output *o, const json_t *info, og_err *err) {
    if (o->kind == OG__AUDIO) {
        og_audio_out *out = o->out;
        o->out = NULL;
        return sunk(o, og_audio_commit(out, err), err);
    }
    og_str s = OG_STR_INIT;
    json_text(info, &s);
    int rc = s.oom         ? og_err_set(err, OG_ENOMEM, "out of memory")
             : o->standard ? og__write_stdout(s.data, s.len, err)
                           : og__write_file(o->path, s.data, s.len, err);
    og_str_free(&s);
    return rc;
}

void og__output_abort(og__output *o) {
    og_audio_abort(o->out);
    o->out = NULL;
}
