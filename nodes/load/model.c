/* A checkpoint folder and the typed reads of its configs. */
#include "nodes/load/model.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nodes/load/internal.h"
#include "nodes/load/json.h"

#define MAX_DEPTH 64 /* nesting of a config */
#define MAX_FOLDER_NAME 255

typedef struct folder {
    char *name;
    json_t *config;
    og_weights *weights;
    og_tokenizer *tokenizer;
} folder;

struct og_model {
    atomic_int refs;
    char *dir;
    json_t *index, *generation;
    int dummy;
    uint64_t seed;
    og_dtype dtype;
    pthread_mutex_t lock; /* over folders and what they hold */
    folder folders[OG_MODEL_MAX_FOLDERS];
    int n_folders;
};

static void path_to(const og_model *m, const char *name, const char *file, og_str *out) {
    og_str_addf(out, "%s%s%s%s%s", m->dir, *name ? "/" : "", name, *file ? "/" : "",
                file);
}

int og_model_has(const og_model *m, const char *name, const char *file) {
    og_str path = OG_STR_INIT;
    path_to(m, name, file, &path);
    int found = !path.oom && access(path.data, F_OK) == 0;
    og_str_free(&path);
    return found;
}

/* A JSON file of a folder; *out is NULL and the result 0 when there is none. */
static int load_optional(const og_model *m, const char *name, const char *file,
                         json_t **out, og_err *err) {
    og_str path = OG_STR_INIT;
    int rc = 0;
    *out = NULL;
    path_to(m, name, file, &path);
    if (path.oom) {
        og_str_free(&path);
        return og_err_set(err, OG_ENOMEM, "no memory for the path of %s", file);
    }
    if (access(path.data, F_OK) == 0) {
        *out = og_json_load(path.data, OG_MODEL_MAX_CONFIG, MAX_DEPTH, err);
        if (!*out)
            rc = err->code;
        else if (!json_is_object(*out))
            rc = og_err_set(err, OG_EFORMAT, "%s: not a JSON object", path.data);
    }
    if (rc < 0) {
        json_decref(*out);
        *out = NULL;
    }
    og_str_free(&path);
    return rc;
}

static int good_folder_name(const char *name) {
    size_t n = strlen(name);
    return n <= MAX_FOLDER_NAME && name[0] != '/' && name[0] != '.' &&
           !strstr(name, "/.");
}

/* The record of a folder, made at the first mention. Locked by the caller. */
static folder *folder_of(og_model *m, const char *name, og_err *err) {
    for (int i = 0; i < m->n_folders; i++)
        if (strcmp(m->folders[i].name, name) == 0) return &m->folders[i];
    if (!good_folder_name(name)) {
        og_err_set(err, OG_EINVAL, "'%.100s' is not a folder of a checkpoint", name);
        return NULL;
    }
    if (m->n_folders == OG_MODEL_MAX_FOLDERS) {
        og_err_set(err, OG_ELIMIT, "too many folders of %s (limit is %d)", m->dir,
                   OG_MODEL_MAX_FOLDERS);
        return NULL;
    }
    char *copy = og_strdup(name);
    if (!copy) {
        og_err_set(err, OG_ENOMEM, "no memory for folder %s", name);
        return NULL;
    }
    folder *f = &m->folders[m->n_folders++];
    memset(f, 0, sizeof *f);
    f->name = copy;
    return f;
}

static int load_config(og_model *m, folder *f, og_err *err) {
    static const char *const files[] = {"config.json", "scheduler_config.json",
                                        "preprocessor_config.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files && !f->config; i++) {
        if (i > 0 && !*f->name) break;
        int rc = load_optional(m, f->name, files[i], &f->config, err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int load_root(og_model *m, og_err *err) {
    folder *root = folder_of(m, "", err);
    if (!root) return err->code;
    int rc = load_config(m, root, err);
    if (rc < 0) return rc;
    rc = load_optional(m, "", "model_index.json", &m->index, err);
    if (rc < 0) return rc;
    rc = load_optional(m, "", "generation_config.json", &m->generation, err);
    if (rc < 0) return rc;
    if (!root->config && !m->index)
        return og_err_set(err, OG_ENOENT,
                          "%s: not a checkpoint: no config.json, no "
                          "model_index.json",
                          m->dir);
    return 0;
}

static int open_model(const char *dir, int dummy, uint64_t seed, og_dtype dtype,
                      og_model **out, og_err *err) {
    og_err own = OG_ERR_INIT;
    struct stat st;
    if (!err) err = &own;
    *out = NULL;
    if (stat(dir, &st) < 0)
        return og_err_set(err, errno == ENOENT ? OG_ENOENT : OG_EIO, "%s: %s", dir,
                          strerror(errno));
    if (!S_ISDIR(st.st_mode)) return og_err_set(err, OG_ENOENT, "%s: not a folder", dir);
    og_model *m = og_calloc(1, sizeof *m);
    if (!m) return og_err_set(err, OG_ENOMEM, "no memory for model %s", dir);
    atomic_init(&m->refs, 1);
    pthread_mutex_init(&m->lock, NULL);
    m->dummy = dummy;
    m->seed = seed;
    m->dtype = dtype;
    m->dir = og_strdup(dir);
    int rc = m->dir ? load_root(m, err)
                    : og_err_set(err, OG_ENOMEM, "no memory for model %s", dir);
    if (rc < 0) {
        og_model_close(m);
        return rc;
    }
    *out = m;
    return 0;
}

int og_model_open(const char *dir, og_model **out, og_err *err) {
    return open_model(dir, 0, 0, OG_F32, out, err);
}

int og_model_open_dummy(const char *dir, uint64_t seed, og_dtype dtype, og_model **out,
                        og_err *err) {
    return open_model(dir, 1, seed, dtype, out, err);
}

og_model *og_model_ref(og_model *m) {
    atomic_fetch_add(&m->refs, 1);
    return m;
}

void og_model_close(og_model *m) {
    if (!m || atomic_fetch_sub(&m->refs, 1) != 1) return;
    for (int i = 0; i < m->n_folders; i++) {
        folder *f = &m->folders[i];
        og_tokenizer_close(f->tokenizer);
        og_weights_close(f->weights);
        json_decref(f->config);
        og_free(f->name);
    }
    json_decref(m->generation);
    json_decref(m->index);
    pthread_mutex_destroy(&m->lock);
    og_free(m->dir);
    og_free(m);
}

const char *og_model_dir(const og_model *m) {
    return m->dir;
}

int og_model_is_dummy(const og_model *m) {
    return m->dummy;
}

const json_t *og_model_generation_config(const og_model *m) {
    return m->generation;
}

const json_t *og_model_index(const og_model *m) {
    return m->index;
}

const json_t *og_model_config(og_model *m, const char *name, const char *section,
                              og_err *err) {
    og_err own = OG_ERR_INIT;
    const json_t *cfg = NULL;
    if (!err) err = &own;
    pthread_mutex_lock(&m->lock);
    folder *f = folder_of(m, name, err);
    if (f && (f->config || load_config(m, f, err) == 0)) {
        cfg = f->config;
        if (!cfg)
            og_err_set(err, OG_ENOENT, "%s%s%s: no config.json", m->dir, *name ? "/" : "",
                       name);
    }
    pthread_mutex_unlock(&m->lock);
    if (!cfg || !section || !*section) return cfg;
    cfg = og_cfg_find(cfg, section);
    if (json_is_object(cfg)) return cfg;
    og_err_set(err, OG_EFORMAT, "%s%s%s/config.json: no section %s", m->dir,
               *name ? "/" : "", name, section);
    return NULL;
}

static int open_weights(og_model *m, folder *f, og_err *err) {
    og_str path = OG_STR_INIT;
    if (m->dummy) return og_weights_dummy(m->seed, m->dtype, &f->weights, err);
    path_to(m, f->name, "", &path);
    int rc = path.oom ? og_err_set(err, OG_ENOMEM, "no memory for a path")
                      : og_weights_open(path.data, &f->weights, err);
    og_str_free(&path);
    return rc;
}

int og_model_weights(og_model *m, const char *name, og_weights **out, og_err *err) {
    og_err own = OG_ERR_INIT;
    if (!err) err = &own;
    *out = NULL;
    pthread_mutex_lock(&m->lock);
    folder *f = folder_of(m, name, err);
    int rc = f ? 0 : err->code;
    if (f && !f->weights) rc = open_weights(m, f, err);
    if (rc == 0) *out = f->weights;
    pthread_mutex_unlock(&m->lock);
    return rc;
}

int og_model_tokenizer(og_model *m, const char *name, const og_tokenizer **out,
                       og_err *err) {
    og_err own = OG_ERR_INIT;
    og_str path = OG_STR_INIT;
    if (!err) err = &own;
    *out = NULL;
    pthread_mutex_lock(&m->lock);
    folder *f = folder_of(m, name, err);
    int rc = f ? 0 : err->code;
    if (f && !f->tokenizer) {
        path_to(m, name, "", &path);
        rc = path.oom ? og_err_set(err, OG_ENOMEM, "no memory for a path")
                      : og_tokenizer_open(path.data, &f->tokenizer, err);
    }
    if (rc == 0) *out = f->tokenizer;
    pthread_mutex_unlock(&m->lock);
    og_str_free(&path);
    return rc;
}

static uint64_t hash_json(uint64_t h, const json_t *j) {
    char *text = j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    h = og__hash_str(h, text ? text : "");
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    if (text) release(text);
    return h;
}

int og_model_fingerprint(og_model *m, uint64_t *out, og_err *err) {
    og_weights *w;
    og_err none = OG_ERR_INIT;
    int rc = og_model_weights(m, "", &w, &none);
    if (rc < 0 && rc != OG_ENOENT) return og_err_set(err, rc, "%s", none.msg);
    uint64_t h = hash_json(OG__HASH_INIT, m->index);
    pthread_mutex_lock(&m->lock);
    h = hash_json(h, m->folders[0].config);
    /* By name, so that the order of first use does not matter. */
    uint64_t sum = 0;
    for (int i = 0; i < m->n_folders; i++) {
        const folder *f = &m->folders[i];
        if (f->weights)
            sum += og__hash_u64(og__hash_str(OG__HASH_INIT, f->name),
                                og_weights_fingerprint(f->weights));
    }
    pthread_mutex_unlock(&m->lock);
    *out = og__hash_u64(h, sum);
    return 0;
}
