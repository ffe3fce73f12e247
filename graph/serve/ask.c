/* From a body of the speech API to the fields of a pipeline. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "graph/run/reload.h"
#include "graph/serve/speech.h"
#include "graph/serve/voices.h"

#define RATE_MIN 8000
#define RATE_MAX 192000

/* name in the API, field of the pipeline, its type */
typedef enum kind { TEXT, BOOL } kind;
static const struct {
    const char *api, *field;
    kind kind;
} map[] = {
    {"input", "text", TEXT},
    {"instructions", "instructions", TEXT},
    {"language", "language", TEXT},
    {"ref_text", "ref_text", TEXT},
    {"x_vector_only_mode", "x_vector_only_mode", BOOL},
    {"non_streaming_mode", "non_streaming_mode", BOOL},
};

const char *og__api_name(const char *field) {
    for (size_t i = 0; i < sizeof map / sizeof *map; i++)
        if (!strcmp(map[i].field, field)) return map[i].api;
    return field;
}

static bool has_field(const og__ask *a, const char *name) {
    return og_plan_find_field(a->plan, name) >= 0;
}

static void unused(og__body *b, const char *name) {
    og__reply_header(b->call, "x-omni-warning", "%s%s is not used by this pipeline", b->prefix,
                     name);
}

/* A value for a field of the pipeline, taken over. */
static void set(og__body *b, og__ask *a, const char *api, const char *field, json_t *v) {
    if (has_field(a, field)) {
        json_object_set_new(a->fields, field, v);
        return;
    }
    json_decref(v);
    unused(b, api);
}

static void read_mapped(og__body *b, og__ask *a) {
    for (size_t i = 0; i < sizeof map / sizeof *map; i++) {
        bool given;
        if (map[i].kind == BOOL) {
            bool on = og__body_bool(b, map[i].api, false, &given);
            if (given) set(b, a, map[i].api, map[i].field, json_boolean(on));
            continue;
        }
        const char *text = og__body_text(b, map[i].api);
        if (text) set(b, a, map[i].api, map[i].field, json_string(text));
    }
    if (!b->failed && !json_object_get(a->fields, "text") && has_field(a, "text"))
        og__body_fault(b, "input", "missing", "this field is required");
}

/* "name" or {"id": "name"}, under either of two names. */
static const char *voice_of(og__body *b, const char **api) {
    static const char *const names[] = {"voice", "speaker"};
    const char *voice = NULL;
    for (int i = 0; i < 2; i++) {
        json_t *v = og__body_any(b, names[i]);
        if (!v) continue;
        if (json_is_object(v)) v = json_object_get(v, "id");
        if (!json_is_string(v)) {
            og__body_fault(b, names[i], "invalid_type", "must be a string or {\"id\": string}");
            return NULL;
        }
        if (!voice) {
            voice = json_string_value(v);
            *api = names[i];
        }
    }
    return voice;
}

/* A voice is one of the checkpoint's own, or an uploaded one, which is heard as a clip is. */
static void read_voice(og__body *b, og__ask *a) {
    const char *api = "voice", *voice = voice_of(b, &api);
    char path[PATH_MAX];
    int field;
    if (!voice || !*voice || b->failed) return;
    bool clones = og__voice_clones(a->plan, &field);
    bool clip = og__body_any(b, "ref_audio") || og__body_any(b, "references");
    bool uploaded = !og__voice_own(a->plan, voice) &&
                    og__voice_path(b->call->server, voice, path, sizeof path);
    if (uploaded && !clones)
        og__body_fault(b, api, "unsupported", "'%.64s' is an uploaded voice, and the checkpoint "
                       "does not clone voices, as a Base checkpoint does", voice);
    else if (uploaded)
        set(b, a, api, "ref_audio", json_string(path));
    else if (!clones || og__voice_own(a->plan, NULL))
        set(b, a, api, "voice", json_string(voice));
    else if (clip)
        og__reply_header(b->call, "x-omni-warning", "%s is not used: the clip is the voice", api);
    else
        og__body_fault(b, api, "voice_not_found", "there is no uploaded voice '%.64s', and no "
                       "ref_audio", voice);
}

static void keep_clip(og__body *b, og__ask *a, const char *name, const char *text) {
    og_str bytes = OG_STR_INIT;
    og_err err = OG_ERR_INIT;
    char path[48];
    if (og__data_url(text, &bytes, &err) < 0) {
        og__body_fault(b, name, "invalid_value", "%s", err.msg);
        og_str_free(&bytes);
        return;
    }
    a->clip = og__memory_file(bytes.data, bytes.len);
    og_str_free(&bytes);
    if (a->clip < 0) {
        b->failed = true;
        og__reply_error(b->call, 503, NULL, "out_of_memory", "no memory for the clip");
        return;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", a->clip);
    set(b, a, name, "ref_audio", json_string(path));
}

static void read_location(og__body *b, og__ask *a, const char *name, const char *text) {
    bool remote = !strncasecmp(text, "http://", 7) || !strncasecmp(text, "https://", 8);
    bool file = !strncasecmp(text, "file://", 7);
    if (remote)
        og__body_fault(b, name, "unsupported", "remote URLs are not fetched: send a data: URL");
    else if (file && !b->call->server->opts.allow_files)
        og__body_fault(b, name, "forbidden", "file: URLs are off (--allow-files)");
    else if (file)
        set(b, a, name, "ref_audio", json_string(text + 7));
    else
        keep_clip(b, a, name, text);
}

static void read_ref_audio(og__body *b, og__ask *a) {
    json_t *v = og__body_any(b, "ref_audio");
    const char *name = "ref_audio";
    json_t *list = og__body_any(b, "references");
    if (!v && list) {
        name = "references";
        json_t *one = json_is_array(list) && json_array_size(list) == 1 ? json_array_get(list, 0)
                                                                         : NULL;
        v = json_object_get(one, "audio_path");
        const char *text = json_string_value(json_object_get(one, "text"));
        if (!v)
            og__body_fault(b, name, "invalid_value", "must be a list of one {audio_path, text}");
        if (text && !json_object_get(a->fields, "ref_text"))
            set(b, a, name, "ref_text", json_string(text));
    }
    if (!v || b->failed) return;
    if (json_is_array(v) && json_array_size(v) == 1) v = json_array_get(v, 0);
    if (!json_is_string(v))
        og__body_fault(b, name, "invalid_type", "must be a string, or a list of one");
    else if (!has_field(a, "ref_audio"))
        og__body_fault(b, name, "unsupported", "this pipeline has no reference audio");
    else
        read_location(b, a, name, json_string_value(v));
}

/* Fields of the public API that nothing here can honour are refused, not ignored. */
static void refuse(og__body *b) {
    static const char *const names[] = {"speaker_embedding", "ref_audio_2", "ambient_sound",
                                        "duration_seconds"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (og__body_any(b, names[i]))
            og__body_fault(b, names[i], "unsupported", "is not supported by this pipeline");
    if (og__body_bool(b, "word_timestamps", false, NULL))
        og__body_fault(b, "word_timestamps", "unsupported", "there is no aligner");
}

static void read_task_type(og__body *b, const og__ask *a) {
    const char *task = og__body_text(b, "task_type");
    if (!task) return;
    if (strcmp(task, "CustomVoice") && strcmp(task, "VoiceDesign") && strcmp(task, "Base"))
        og__body_fault(b, "task_type", "invalid_value",
                       "must be CustomVoice, VoiceDesign or Base");
    else if (!strcmp(task, "Base") && !has_field(a, "ref_audio"))
        og__body_fault(b, "task_type", "unsupported", "this pipeline has no reference audio");
}

/* ---- how the audio is wanted ------------------------------------------------------------ */

#define FORMATS "wav, pcm, flac, mp3, opus"

static void read_format(og__body *b, og__ask *a) {
    const char *text = og__body_text(b, "response_format");
    og_audio_format f = OG_AUDIO_WAV;
    if (text && (og_audio_by_name(text, &f, NULL) < 0 || f == OG_AUDIO_WAV_F32))
        og__body_fault(b, "response_format", "invalid_value",
                       "'%.32s' is not supported, these are: " FORMATS, text);
    a->format = f;
}

static void read_delivery(og__body *b, og__ask *a) {
    bool given, stream = og__body_bool(b, "stream", false, &given);
    const char *how = og__body_text(b, "stream_format");
    json_t *options = og__body_any(b, "stream_options");
    if (how && strcmp(how, "sse") && strcmp(how, "audio"))
        og__body_fault(b, "stream_format", "invalid_value", "must be sse or audio");
    bool pcm = a->format == OG_AUDIO_PCM || a->format == OG_AUDIO_WAV, sse = how && how[0] == 's';
    a->delivery = OG__WHOLE;
    if (given ? stream : sse || (how && pcm))
        a->delivery = how && how[0] == 'a' ? OG__RAW : OG__SSE;
    if (options && a->delivery == OG__WHOLE)
        og__body_fault(b, "stream_options", "invalid_value", "needs \"stream\": true");
    if (options && !json_is_object(options))
        og__body_fault(b, "stream_options", "invalid_type", "must be an object");
    if (a->delivery != OG__WHOLE && !pcm)
        og__body_fault(b, "response_format", "unsupported",
                       "a stream is pcm or wav, not %s", og_audio_name(a->format));
}

static void read_rates(og__body *b, og__ask *a) {
    int64_t rate = a->rate;
    a->speed = og__body_number(b, "speed", 0.25, 4, 1);
    og__body_int(b, "sample_rate", RATE_MIN, RATE_MAX, &rate);
    a->out_rate = (int)rate;
    bool changed = a->speed != 1 || a->out_rate != a->rate;
    if (changed && a->delivery != OG__WHOLE)
        og__body_fault(b, a->speed != 1 ? "speed" : "sample_rate", "unsupported",
                       "a stream has the speed 1 and the pipeline's rate of %d Hz", a->rate);
}

static void read_numbers(og__body *b, og__ask *a) {
    int64_t n;
    if (og__body_int(b, "seed", INT64_MIN, INT64_MAX, &n)) {
        a->has_seed = true;
        a->seed = (uint64_t)n;
    }
    if (og__body_int(b, "max_new_tokens", 1, 1 << 24, &n)) a->max_tokens = (int)n;
    if (og__body_int(b, "initial_codec_chunk_frames", 1, 1 << 20, &n))
        unused(b, "initial_codec_chunk_frames");
    if (og__body_any(b, "extra_params")) unused(b, "extra_params");
    a->timeout = og__body_number(b, "timeout", 0.001, 86400, 0);
}

/* Other fields of the pipeline go through under their own names; the rest is told. */
static void read_others(og__body *b, og__ask *a) {
    const char *name;
    json_t *v;
    int told = 0;
    json_object_foreach(b->root, name, v) {
        if (og__body_knows(b, name) || json_is_null(v)) continue;
        if (has_field(a, name) && strcmp(name, "text") && strcmp(name, "ref_audio"))
            json_object_set(a->fields, name, v);
        else if (told++ < 8)
            og__reply_header(b->call, "x-omni-warning", "unknown field '%s%.64s'", b->prefix,
                             name);
    }
}

static int find_model(og__body *b, og__ask *a) {
    const char *name = og__body_text(b, "model");
    if (b->failed) return -1;
    a->model = og__server_model(b->call->server, name);
    if (!a->model) {
        b->failed = true;
        og__reply_error(b->call, 404, "model", "model_not_found",
                        "the model '%.64s' does not exist", name ? name : "");
        return -1;
    }
    snprintf(b->call->model, sizeof b->call->model, "%s", a->model->name);
    a->plan = og_engine_plan(a->model->engine);
    for (a->response = 0; a->response < a->plan->n_responses; a->response++)
        if (a->plan->responses[a->response].type.kind == OG_TYPE_AUDIO) break;
    if (a->response < a->plan->n_responses) a->rate = a->plan->responses[a->response].rate;
    if (a->rate > 0) return 0;
    og__body_fault(b, "model", "unsupported", "'%s' answers with no audio", a->model->name);
    return -1;
}

int og__ask_read(og__body *b, og__ask *a) {
    *a = (og__ask){.clip = -1, .fields = json_object()};
    if (!a->fields) {
        og__reply_error(b->call, 503, NULL, "out_of_memory", "out of memory");
        return -1;
    }
    if (find_model(b, a) < 0) return -1;
    read_mapped(b, a);
    read_voice(b, a);
    read_task_type(b, a);
    refuse(b);
    read_format(b, a);
    read_delivery(b, a);
    read_rates(b, a);
    read_numbers(b, a);
    read_ref_audio(b, a);
    read_others(b, a);
    return b->failed ? -1 : 0;
}

void og__ask_clear(og__ask *a) {
    if (a->clip >= 0) close(a->clip);
    json_decref(a->fields);
    og_plan_unref(a->plan);
    *a = (og__ask){.clip = -1};
}
