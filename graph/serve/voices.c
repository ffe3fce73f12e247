/* /v1/audio/voices: uploaded voices on disk. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/run/reload.h"
#include "graph/run/voice.h"
#include "graph/serve/voices.h"
#include "nodes/load/safetensors.h"

#define ENDING ".voice"

/* ---- which ------------------------------------------------------------------------------ */

bool og__voice_clones(const og_plan *p, int *field) {
    og_request_tap taps[OG_VOICE_MAX_PORTS];
    *field = og_plan_find_field(p, "ref_audio");
    return *field >= 0 && og_voice_taps(p, *field, taps, OG_VOICE_MAX_PORTS) > 0;
}

bool og__voice_own(const og_plan *p, const char *name) {
    int i = og_plan_find_field(p, "voice");
    if (i < 0) return false;
    const og_plan_field *f = &p->fields[i];
    bool hit = !name && f->n_one_of > 0;
    for (int k = 0; name && k < f->n_one_of; k++) hit |= !strcasecmp(f->one_of[k], name);
    return hit;
}

/* A name that is a file's too: no separators, no dots in front, nothing invisible. */
bool og__voice_name_ok(const char *name) {
    size_t n = strlen(name);
    if (n < 1 || n > OG__VOICE_NAME_MAX || !isalnum((unsigned char)name[0])) return false;
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p >= 0x80 || (!isalnum((unsigned char)*p) && !strchr("_-.", *p)))
            return false;
    return true;
}

bool og__voice_file(const og_server *s, const char *name, char *path, size_t size) {
    char low[OG__VOICE_NAME_MAX + 1];
    if (!s->opts.voices_dir || !og__voice_name_ok(name)) return false;
    snprintf(low, sizeof low, "%s", name);
    for (char *p = low; *p; p++) *p = (char)tolower((unsigned char)*p);
    int n = snprintf(path, size, "%s/%s" ENDING, s->opts.voices_dir, low);
    return n > 0 && (size_t)n < size;
}

bool og__voice_path(const og_server *s, const char *name, char *path, size_t size) {
    struct stat st;
    return og__voice_file(s, name, path, size) && lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* ---- the list ---------------------------------------------------------------------------- */

static json_t *fields_of(const og_weights *w) {
    const char *text = og_weights_metadata(w, "fields");
    json_t *j = text && strlen(text) <= OG_VOICE_MAX_JSON ? json_loads(text, 0, NULL) : NULL;
    if (json_is_object(j)) return j;
    json_decref(j);
    return json_object();
}

static void copy_text(json_t *to, const char *key, const json_t *from) {
    json_t *v = json_object_get(from, key);
    if (json_is_string(v)) json_object_set(to, key, v);
}

/* A file that was put there by hand has less to tell. */
json_t *og__voice_describe(const char *path, const char *name) {
    struct stat st;
    og_weights *w = NULL;
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || og_weights_open(path, &w, NULL) < 0)
        return NULL;
    json_t *fields = fields_of(w), *about = json_object_get(fields, OG__VOICE_ABOUT);
    json_t *j = json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:n}", "name", name, "consent", "",
                          "created_at", (json_int_t)st.st_mtime, "file_size",
                          (json_int_t)st.st_size, "mime_type", "", "embedding_source", "audio",
                          "embedding_dim");
    if (json_is_object(about)) json_object_update(j, about);
    copy_text(j, "ref_text", fields);
    json_decref(fields);
    og_weights_close(w);
    return j;
}

static int is_voice(const struct dirent *e) {
    size_t n = strlen(e->d_name), m = sizeof ENDING - 1;
    char name[OG__VOICE_NAME_MAX + 1];
    if (n <= m || n - m > OG__VOICE_NAME_MAX || strcmp(e->d_name + n - m, ENDING)) return 0;
    snprintf(name, sizeof name, "%.*s", (int)(n - m), e->d_name);
    return og__voice_name_ok(name);
}

static json_t *uploaded(const og_server *s) {
    struct dirent **files = NULL;
    json_t *list = json_array();
    int n = s->opts.voices_dir ? scandir(s->opts.voices_dir, &files, is_voice, alphasort) : 0;
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX], *name = files[i]->d_name;
        snprintf(path, sizeof path, "%s/%s", s->opts.voices_dir, name);
        name[strlen(name) - (sizeof ENDING - 1)] = 0;
        json_t *j = og__voice_describe(path, name);
        if (j) json_array_append_new(list, j);
        free(files[i]);
    }
    free(files);
    return list;
}

int og__voice_count(const og_server *s) {
    struct dirent **files = NULL;
    int n = scandir(s->opts.voices_dir, &files, is_voice, NULL);
    for (int i = 0; i < n; i++) free(files[i]);
    free(files);
    return n < 0 ? 0 : n;
}

static bool holds(const json_t *list, const char *text) {
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v)
        if (!strcasecmp(json_string_value(v), text)) return true;
    return false;
}

static void add_own(json_t *names, og__model *m) {
    const og_plan *p = og_engine_plan(m->engine);
    int i = og_plan_find_field(p, "voice");
    for (int k = 0; i >= 0 && k < p->fields[i].n_one_of; k++)
        if (!holds(names, p->fields[i].one_of[k]))
            json_array_append_new(names, og__text_json(p->fields[i].one_of[k]));
    og_plan_unref(p);
}

void og__get_voices(og__call *c) {
    og_server *s = c->server;
    json_t *names = json_array(), *list = uploaded(s), *v;
    size_t i;
    pthread_mutex_lock(&s->mu);
    int n = s->n_models;
    pthread_mutex_unlock(&s->mu);
    for (int k = 0; k < n; k++) add_own(names, &s->models[k]);
    json_array_foreach(list, i, v) json_array_append(names, json_object_get(v, "name"));
    og__reply_json(c, 200, json_pack("{s:o, s:o}", "voices", names, "uploaded_voices", list));
}

void og__delete_voice(og__call *c) {
    char path[PATH_MAX], text[OG__VOICE_NAME_MAX + 64];
    if (!og__voice_path(c->server, c->param, path, sizeof path) ||
        (unlink(path) < 0 && errno == ENOENT)) {
        og__reply_error(c, 404, "name", "voice_not_found", "there is no uploaded voice '%.64s'",
                        c->param);
        return;
    }
    if (access(path, F_OK) == 0) {
        og__reply_error(c, 500, "name", "io_error", "the voice cannot be deleted");
        return;
    }
    snprintf(text, sizeof text, "the voice '%.64s' is deleted", c->param);
    og__reply_json(c, 200, json_pack("{s:b, s:s}", "success", 1, "message", text));
}
