/* POST /v1/audio/voices: a clip, or a speaker's vector, becomes a file in the folder. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "graph/run/reload.h"
#include "graph/run/voice.h"
#include "graph/serve/multipart.h"
#include "graph/serve/voices.h"

#define SAMPLE_MAX ((size_t)10 << 20)
#define VOICES_MAX 1000
#define TEXT_MAX 4096    /* bytes of a text field */
#define NUMBERS_MAX 8192 /* of a speaker's vector */

enum { CONSENT, NAME, REF_TEXT, DESCRIPTION, MODEL, SAMPLE, EMBEDDING, N_FIELDS };
static const char *const names[N_FIELDS] = {
    "consent", "name", "ref_text", "speaker_description", "model", "audio_sample",
    "speaker_embedding"};

typedef struct upload {
    char *text[N_FIELDS]; /* owned; NULL where not sent; no SAMPLE */
    og__part sample;      /* bytes of the call's body */
    og__model *model;
    const og_plan *plan;  /* owned reference */
    int field, clip;      /* clip: descriptor, -1 */
    json_t *keep;         /* fields that belong to the voice */
    og_request *request;
    og_request_tap taps[OG_VOICE_MAX_PORTS];
    int n_taps;
} upload;

static void over(og__call *c) {
    (void)c;
}

static void leave(og__call *c) {
    upload *u = c->job;
    c->job = NULL;
    c->step = over;
    og__request_reap(c, u->request);
    for (int i = 0; i < N_FIELDS; i++) og_free(u->text[i]);
    if (u->clip >= 0) close(u->clip);
    json_decref(u->keep);
    og_plan_unref(u->plan);
    og_free(u);
}

static int refuse(og__call *c, const char *param, const char *code, const char *text) {
    og__reply_error(c, 400, param, code, "%s: %s", param, text);
    return -1;
}

/* ---- the form ------------------------------------------------------------------------------ */

static int take_text(og__call *c, upload *u, int i, const og__part *p) {
    size_t max = i == EMBEDDING ? NUMBERS_MAX * 32 : TEXT_MAX;
    json_t *v = p->n <= max ? json_stringn(p->data, p->n) : NULL;
    bool ok = v && !memchr(p->data, 0, p->n);
    json_decref(v);
    if (p->n > max) return refuse(c, names[i], "limit_exceeded", "is too long");
    if (!ok) return refuse(c, names[i], "invalid_value", "is not UTF-8 text");
    u->text[i] = og_strndup(p->data, p->n);
    if (u->text[i]) return 0;
    og__reply_error(c, 503, NULL, "out_of_memory", "out of memory");
    return -1;
}

static int take_part(og__call *c, upload *u, const og__part *p) {
    int i = 0;
    while (i < N_FIELDS && strcmp(names[i], p->name)) i++;
    if (i == N_FIELDS) {
        og__reply_header(c, "x-omni-warning", "unknown field '%.64s'", p->name);
        return 0;
    }
    if (i == SAMPLE ? u->sample.data != NULL : u->text[i] != NULL)
        return refuse(c, names[i], "invalid_value", "stands twice");
    if (i != SAMPLE) return take_text(c, u, i, p);
    if (p->n == 0) return refuse(c, names[i], "invalid_value", "is empty");
    if (p->n > SAMPLE_MAX) return refuse(c, names[i], "limit_exceeded", "is larger than 10 MiB");
    u->sample = *p;
    return 0;
}

static int read_form(og__call *c, upload *u) {
    og__multipart m;
    og__part p;
    og_err err = OG_ERR_INIT;
    int rc = og__multipart_open(&m, c->content_type, c->body.data, c->body.len, &err);
    while (rc == 0 && (rc = og__multipart_next(&m, &p, &err)) > 0)
        if ((rc = take_part(c, u, &p)) < 0) return rc;
    if (rc < 0) og__reply_error(c, 400, NULL, "invalid_multipart", "%s", err.msg);
    return rc;
}

static bool is_blank(const char *text) {
    return !text || !text[strspn(text, " \t\r\n")];
}

static int check_form(og__call *c, upload *u) {
    for (int i = CONSENT; i <= NAME; i++)
        if (is_blank(u->text[i])) return refuse(c, names[i], "missing", "this field is required");
    if (!og__voice_name_ok(u->text[NAME]))
        return refuse(c, "name", "invalid_value",
                      "must be 1 to 64 letters, digits, '_', '-' and '.', and begin with a "
                      "letter or a digit");
    if (!u->sample.data == !u->text[EMBEDDING])
        return refuse(c, names[SAMPLE], u->sample.data ? "invalid_value" : "missing",
                      "send either audio_sample or speaker_embedding");
    if (u->text[EMBEDDING] && u->text[REF_TEXT])
        return refuse(c, names[REF_TEXT], "invalid_value",
                      "a speaker_embedding has no text that was said");
    return 0;
}

/* ---- the checkpoint --------------------------------------------------------------------------- */

static bool try_model(upload *u, og__model *m) {
    u->model = m;
    u->plan = og_engine_plan(m->engine);
    if (og__voice_clones(u->plan, &u->field)) return true;
    og_plan_unref(u->plan);
    u->plan = NULL;
    return false;
}

/* The one that is asked for, or the first that clones. */
static int find_model(og__call *c, upload *u) {
    og_server *s = c->server;
    const char *name = u->text[MODEL];
    og__model *m = og__server_model(s, name);
    if (!m) {
        og__reply_error(c, 404, "model", "model_not_found", "the model '%.64s' does not exist",
                        name ? name : "");
        return -1;
    }
    pthread_mutex_lock(&s->mu);
    int n = s->n_models;
    pthread_mutex_unlock(&s->mu);
    bool hit = try_model(u, m);
    for (int i = 0; i < n && !hit && is_blank(name); i++) hit = try_model(u, &s->models[i]);
    if (!hit)
        return refuse(c, "model", "unsupported",
                      "its checkpoint does not clone voices, a Base checkpoint does");
    snprintf(c->model, sizeof c->model, "%s", u->model->name);
    if (!og__voice_own(u->plan, u->text[NAME])) return 0;
    return refuse(c, "name", "invalid_value", "is a voice of the model itself");
}

static int check_room(og__call *c, const upload *u) {
    og_server *s = c->server;
    char path[PATH_MAX];
    if (!s->opts.voices_dir) {
        og__reply_error(c, 403, NULL, "forbidden",
                        "uploads are off: the server has no folder of voices (--voices-dir)");
        return -1;
    }
    if (!og__voice_file(s, u->text[NAME], path, sizeof path))
        return refuse(c, "name", "invalid_value", "gives a path that is too long");
    if (access(path, F_OK) == 0 || og__voice_count(s) < VOICES_MAX) return 0;
    og__reply_error(c, 400, NULL, "limit_exceeded", "there are %d voices already", VOICES_MAX);
    return -1;
}

/* ---- the file ------------------------------------------------------------------------------------ */

static int write_all(int fd, const char *data, size_t n) {
    while (n > 0) {
        ssize_t k = write(fd, data, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return -1;
        data += k;
        n -= (size_t)k;
    }
    return fsync(fd);
}

/* Whole under its name, or not there. */
static int store(const og_server *s, const char *name, const og_str *file, char *path,
                 size_t size, og_err *err) {
    char temp[PATH_MAX];
    const char *dir = s->opts.voices_dir;
    if (!og__voice_file(s, name, path, size) ||
        snprintf(temp, sizeof temp, "%s/.upload.XXXXXX", dir) >= (int)sizeof temp)
        return og_err_set(err, OG_EINVAL, "the path of the voice is too long");
    if (mkdir(dir, 0777) < 0 && errno != EEXIST)
        return og_err_set(err, OG_EIO, "the folder of voices cannot be made: %s", strerror(errno));
    int fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return og_err_set(err, OG_EIO, "the voice cannot be written: %s", strerror(errno));
    int bad = write_all(fd, file->data, file->len) < 0 ? errno : 0;
    if (close(fd) < 0 && !bad) bad = errno;
    if (!bad && rename(temp, path) < 0) bad = errno;
    if (!bad) return 0;
    unlink(temp);
    return og_err_set(err, OG_EIO, "the voice cannot be written: %s", strerror(bad));
}

static int keep_facts(upload *u, int dim) {
    json_t *about = json_pack(
        "{s:s, s:s, s:I, s:I, s:o, s:s}", "name", u->text[NAME], "consent", u->text[CONSENT],
        "created_at", (json_int_t)time(NULL), "file_size",
        (json_int_t)(u->sample.data ? u->sample.n : strlen(u->text[EMBEDDING])), "mime_type",
        og__text_json(u->sample.data ? u->sample.type : "application/json"),
        "embedding_source", u->sample.data ? "audio" : "direct");
    json_object_set_new(about, "embedding_dim", dim > 0 ? json_integer(dim) : json_null());
    if (!is_blank(u->text[DESCRIPTION]))
        json_object_set_new(about, names[DESCRIPTION], json_string(u->text[DESCRIPTION]));
    return json_object_set_new(u->keep, OG__VOICE_ABOUT, about);
}

static void answer(og__call *c, upload *u, const og_str *file) {
    char path[PATH_MAX];
    og_err err = OG_ERR_INIT;
    if (store(c->server, u->text[NAME], file, path, sizeof path, &err) < 0) {
        og__reply_failure(c, &err, NULL);
        return;
    }
    json_t *voice = og__voice_describe(path, u->text[NAME]);
    og__reply_json(c, 200, json_pack("{s:b, s:o}", "success", 1, "voice",
                                     voice ? voice : json_object()));
}

/* ---- from a vector ----------------------------------------------------------------------------- */

static int numbers_of(og__call *c, const char *text, float *x) {
    json_t *list = json_loads(text, 0, NULL);
    int n = json_is_array(list) ? (int)json_array_size(list) : 0;
    bool ok = n >= 1 && n <= NUMBERS_MAX;
    for (int i = 0; ok && i < n; i++) {
        json_t *v = json_array_get(list, (size_t)i);
        double d = json_number_value(v);
        ok = json_is_number(v) && d >= -3e38 && d <= 3e38;
        x[i] = (float)d;
    }
    json_decref(list);
    return ok ? n : refuse(c, names[EMBEDDING], "invalid_value",
                           "must be a JSON list of 1 to 8192 finite numbers");
}

static void from_vector(og__call *c, upload *u) {
    float x[NUMBERS_MAX];
    og_str file = OG_STR_INIT;
    og_err err = OG_ERR_INIT;
    int n = numbers_of(c, u->text[EMBEDDING], x);
    if (n > 0) {
        json_object_set_new(u->keep, "x_vector_only_mode", json_true());
        keep_facts(u, n);
        if (og_voice_pack_vector(u->plan, u->field, u->text[NAME], u->keep, x, n, &file, &err) < 0)
            og__reply_failure(c, &err, names[EMBEDDING]);
        else
            answer(c, u, &file);
    }
    og_str_free(&file);
    leave(c);
}

/* ---- from a clip ------------------------------------------------------------------------------- */

static int vector_length(const upload *u) {
    og_tensor t;
    for (int i = 0; i < u->n_taps; i++)
        if (og_request_tapped(u->request, i, 0, &t) == 0 && t.dtype != OG_I32 && t.ne[0] == 1)
            return (int)og_tensor_count(&t);
    return 0;
}

static void finish(og__call *c, upload *u) {
    og_str file = OG_STR_INIT;
    og_err err = OG_ERR_INIT;
    keep_facts(u, vector_length(u));
    if (og_voice_pack(u->request, u->field, u->text[NAME], u->keep, &file, &err) < 0)
        og__reply_failure(c, &err, NULL);
    else
        answer(c, u, &file);
    og_str_free(&file);
    leave(c);
}

/* Messages begin with the pipeline's name of the clip; the client sent an audio_sample. */
static void fail(og__call *c, const og_err *err) {
    og_err told = *err;
    if (!strcmp(err->field, "ref_audio")) {
        const char *text = err->msg;
        if (!strncmp(text, "ref_audio: ", 11)) text += 11;
        snprintf(told.msg, sizeof told.msg, "audio_sample: %.900s", text);
        og__reply_failure(c, &told, "audio_sample");
    } else {
        og__reply_failure(c, &told, err->field[0] ? err->field : NULL);
    }
    leave(c);
}

static void pull(og__call *c) {
    upload *u = c->job;
    og_event ev = {0};
    og_event_kind kind;
    if (atomic_load(&c->gone)) {
        leave(c);
        return;
    }
    if (atomic_load(&c->expired)) {
        og_err_set(&ev.err, OG_ETIMEOUT, "the request took longer than its time limit");
        fail(c, &ev.err);
        return;
    }
    while ((kind = og_request_next(u->request, 0, &ev)) == OG_EVENT_ITEMS) continue;
    if (kind == OG_EVENT_DONE) finish(c, u);
    if (kind == OG_EVENT_ERROR) fail(c, &ev.err);
}

static void news(void *arg) {
    og__call_kick(arg);
}

/* What the pipeline asks for and a voice does not depend on is there, and never used. */
static json_t *fields_for(const upload *u, const char *path) {
    json_t *fields = json_object();
    for (int i = 0; i < u->plan->n_fields; i++) {
        const og_plan_field *f = &u->plan->fields[i];
        if (f->type.kind == OG_TYPE_TEXT && !f->optional && !f->def)
            json_object_set_new(fields, f->name, json_string("."));
    }
    json_object_update(fields, u->keep);
    json_object_set_new(fields, "ref_audio", json_string(path));
    return fields;
}

static void from_clip(og__call *c, upload *u) {
    og_err err = OG_ERR_INIT;
    char path[48];
    if (!is_blank(u->text[REF_TEXT]))
        json_object_set_new(u->keep, "ref_text", json_string(u->text[REF_TEXT]));
    else if (og_plan_find_field(u->plan, "x_vector_only_mode") >= 0)
        json_object_set_new(u->keep, "x_vector_only_mode", json_true());
    u->clip = og__memory_file(u->sample.data, u->sample.n);
    if (u->clip < 0) {
        og__reply_error(c, 503, NULL, "out_of_memory", "no memory for the clip");
        leave(c);
        return;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", u->clip);
    u->n_taps = og_voice_taps(u->plan, u->field, u->taps, OG_VOICE_MAX_PORTS);
    json_t *fields = fields_for(u, path);
    og_request_desc d = {.fields = fields, .taps = u->taps, .n_taps = u->n_taps,
                         .taps_only = 1, .notify = news, .notify_arg = c};
    int rc = og_engine_submit(u->model->engine, &d, &u->request, &err);
    json_decref(fields);
    if (rc < 0) {
        fail(c, &err);
        return;
    }
    c->step = pull;
    pull(c);
}

void og__post_voice(og__call *c) {
    upload *u = og_calloc(1, sizeof *u);
    if (!u || !(u->keep = json_object())) {
        og_free(u);
        og__reply_error(c, 503, NULL, "out_of_memory", "out of memory");
        return;
    }
    u->clip = -1;
    c->job = u;
    if (read_form(c, u) < 0 || check_form(c, u) < 0 || check_room(c, u) < 0 ||
        find_model(c, u) < 0)
        leave(c);
    else if (u->text[EMBEDDING])
        from_vector(c, u);
    else
        from_clip(c, u);
}
