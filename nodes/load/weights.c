/* A set of tensors: one file, the shards of an index, or made up from a seed. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nodes/load/internal.h"
#include "nodes/load/json.h"
#include "nodes/load/safetensors.h"

#define MAX_INDEX (256u << 20) /* bytes of an index file */
#define DUMMY_STD 0.02f

typedef struct made {
    struct made *next;
    const char *name;
    og_tensor t;
} made;

struct og_weights {
    atomic_int refs;
    og_arena *arena;
    og__st_file *files;
    size_t n_files;
    og__entry *entries; /* sorted by name */
    size_t n;
    const char **warnings;
    size_t n_warnings;
    uint64_t hash;
    /* Only of a dummy set. A mutex, since archs bind on threads of their own. */
    int dummy;
    uint64_t seed;
    og_dtype dtype;
    pthread_mutex_t lock;
    made *made;
};

static og_weights *create(og_err *err) {
    og_weights *w = og_calloc(1, sizeof *w);
    if (w && !(w->arena = og_arena_create())) {
        og_free(w);
        w = NULL;
    }
    if (!w) {
        og_err_set(err, OG_ENOMEM, "no memory for a set of weights");
        return NULL;
    }
    atomic_init(&w->refs, 1);
    pthread_mutex_init(&w->lock, NULL);
    w->hash = OG__HASH_INIT;
    return w;
}

og_weights *og_weights_ref(og_weights *w) {
    atomic_fetch_add(&w->refs, 1);
    return w;
}

void og_weights_close(og_weights *w) {
    if (!w || atomic_fetch_sub(&w->refs, 1) != 1) return;
    for (size_t i = 0; i < w->n_files; i++) og__st_close(&w->files[i]);
    for (made *m = w->made; m; m = m->next) og_free(m->t.data);
    og_free(w->files);
    og_free(w->entries);
    og_free(w->warnings);
    og_arena_destroy(w->arena);
    pthread_mutex_destroy(&w->lock);
    og_free(w);
}

static int by_name(const void *pa, const void *pb) {
    const og__entry *a = pa, *b = pb;
    return strcmp(a->name, b->name);
}

/* Gather the files' entries into one sorted table. A name in two shards is an error. */
static int gather(og_weights *w, og_err *err) {
    size_t n = 0;
    for (size_t i = 0; i < w->n_files; i++) n += w->files[i].n;
    w->entries = og_calloc(n, sizeof *w->entries);
    if (!w->entries) return og_err_set(err, OG_ENOMEM, "no memory for %zu tensors", n);
    for (size_t i = 0; i < w->n_files; i++) {
        og__st_file *f = &w->files[i];
        for (size_t k = 0; k < f->n; k++) {
            w->entries[w->n] = f->entries[k];
            w->entries[w->n++].shard = (uint32_t)i;
        }
        og_free(f->entries);
        f->entries = NULL;
        w->hash = og__hash_u64(w->hash, f->hash);
    }
    qsort(w->entries, w->n, sizeof *w->entries, by_name);
    for (size_t i = 1; i < w->n; i++) {
        const og__entry *a = &w->entries[i - 1], *b = &w->entries[i];
        if (strcmp(a->name, b->name) == 0)
            return og_err_set(err, OG_EFORMAT, "duplicate tensor name %s in %s and %s",
                              a->name, w->files[a->shard].path, w->files[b->shard].path);
    }
    return 0;
}

static int open_single(og_weights *w, const char *path, og_err *err) {
    w->files = og_calloc(1, sizeof *w->files);
    if (!w->files) return og_err_set(err, OG_ENOMEM, "no memory for %s", path);
    int rc = og__st_open(path, w->arena, &w->files[0], err);
    if (rc < 0) return rc;
    w->n_files = 1;
    return gather(w, err);
}

/* The shards of an index while it is being read. */
typedef struct index_file {
    const char *path; /* of the index */
    json_t *root, *map;
    const char **shards; /* file names as in the map; borrowed */
    size_t n;
} index_file;

static long shard_of(const index_file *ix, const char *name) {
    for (size_t i = 0; i < ix->n; i++)
        if (strcmp(ix->shards[i], name) == 0) return (long)i;
    return -1;
}

/* Shards lie beside their index; a name that could leave the folder is refused. */
static int good_shard_name(const char *s) {
    return *s && *s != '.' && !strchr(s, '/') && strlen(s) <= NAME_MAX;
}

static int collect_shards(index_file *ix, og_err *err) {
    const char *name;
    json_t *v;
    ix->map = json_object_get(ix->root, "weight_map");
    if (!json_is_object(ix->map))
        return og_err_set(err, OG_EFORMAT, "%s: no weight_map", ix->path);
    ix->shards = og_calloc(OG_ST_MAX_SHARDS, sizeof *ix->shards);
    if (!ix->shards) return og_err_set(err, OG_ENOMEM, "no memory for %s", ix->path);
    json_object_foreach(ix->map, name, v) {
        const char *file = json_string_value(v);
        if (!file || !good_shard_name(file))
            return og_err_set(err, OG_EFORMAT, "%s: tensor %.200s has no legal file name",
                              ix->path, name);
        if (shard_of(ix, file) >= 0) continue;
        if (ix->n == OG_ST_MAX_SHARDS)
            return og_err_set(err, OG_ELIMIT, "%s: too many shards (limit is %d)",
                              ix->path, OG_ST_MAX_SHARDS);
        ix->shards[ix->n++] = file;
    }
    return 0;
}

static const char *beside(og_arena *arena, const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    return og_arena_printf(arena, "%.*s%s", slash ? (int)(slash - path + 1) : 0, path,
                           name);
}

/* Some tensor that the index puts into a shard, for the message. */
static const char *tensor_in(const index_file *ix, const char *shard) {
    const char *name;
    json_t *v;
    json_object_foreach(ix->map, name, v) {
        if (strcmp(json_string_value(v), shard) == 0) return name;
    }
    return "";
}

static int shards_exist(og_weights *w, const index_file *ix, og_err *err) {
    for (size_t i = 0; i < ix->n; i++) {
        const char *path = beside(w->arena, ix->path, ix->shards[i]);
        if (!path) return og_err_set(err, OG_ENOMEM, "no memory for %s", ix->path);
        if (access(path, R_OK) < 0)
            return og_err_set(
                err, OG_ENOENT,
                "%s: shard %s, which holds tensor %.200s, cannot be read: %s", ix->path,
                path, tensor_in(ix, ix->shards[i]), strerror(errno));
    }
    return 0;
}

static int warn_unnamed(og_weights *w, const index_file *ix, og_err *err) {
    for (size_t i = 0; i < w->n; i++) {
        const og__entry *e = &w->entries[i];
        if (json_object_get(ix->map, e->name)) continue;
        if (!w->warnings) w->warnings = og_calloc(w->n, sizeof *w->warnings);
        char *text = og_arena_printf(w->arena, "%s: tensor %s is not in the index",
                                     w->files[e->shard].path, e->name);
        if (!w->warnings || !text)
            return og_err_set(err, OG_ENOMEM, "no memory for %s", ix->path);
        w->warnings[w->n_warnings++] = text;
    }
    return 0;
}

static int check_places(og_weights *w, const index_file *ix, og_err *err) {
    const char *name;
    json_t *v;
    json_object_foreach(ix->map, name, v) {
        const char *want = json_string_value(v);
        long i = og__weights_index(w, name);
        if (i < 0)
            return og_err_set(err, OG_EFORMAT, "%s: no shard holds tensor %.200s",
                              ix->path, name);
        if (shard_of(ix, want) != (long)w->entries[i].shard)
            return og_err_set(err, OG_EFORMAT,
                              "%s: tensor %.200s should be in %s but lies in %s",
                              ix->path, name, want, ix->shards[w->entries[i].shard]);
    }
    return warn_unnamed(w, ix, err);
}

static int open_shards(og_weights *w, const index_file *ix, og_err *err) {
    w->files = og_calloc(ix->n, sizeof *w->files);
    if (!w->files) return og_err_set(err, OG_ENOMEM, "no memory for %s", ix->path);
    for (size_t i = 0; i < ix->n; i++) {
        const char *path = beside(w->arena, ix->path, ix->shards[i]);
        if (!path) return og_err_set(err, OG_ENOMEM, "no memory for %s", ix->path);
        int rc = og__st_open(path, w->arena, &w->files[i], err);
        if (rc < 0) return rc;
        w->n_files++;
    }
    return gather(w, err);
}

static int open_index(og_weights *w, const char *path, og_err *err) {
    index_file ix = {.path = path};
    int rc;
    ix.root = og_json_load(path, MAX_INDEX, OG_ST_MAX_DEPTH, err);
    if (!ix.root) return err ? err->code : OG_EFORMAT;
    if ((rc = collect_shards(&ix, err)) < 0) goto done;
    if ((rc = shards_exist(w, &ix, err)) < 0) goto done;
    if ((rc = open_shards(w, &ix, err)) < 0) goto done;
    rc = check_places(w, &ix, err);
done:
    og_free(ix.shards);
    json_decref(ix.root);
    return rc;
}

static int ends_with(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* The weight file of a folder, or the path itself when it is a file. */
static const char *locate(og_weights *w, const char *path, og_err *err) {
    static const char *const names[] = {"model.safetensors.index.json",
                                        "model.safetensors",
                                        "diffusion_pytorch_model.safetensors.index.json",
                                        "diffusion_pytorch_model.safetensors"};
    struct stat st;
    if (stat(path, &st) < 0) {
        og_err_set(err, errno == ENOENT ? OG_ENOENT : OG_EIO, "%s: %s", path,
                   strerror(errno));
        return NULL;
    }
    if (!S_ISDIR(st.st_mode)) return path;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *file = og_arena_printf(w->arena, "%s/%s", path, names[i]);
        if (!file) {
            og_err_set(err, OG_ENOMEM, "no memory for %s", path);
            return NULL;
        }
        if (access(file, F_OK) == 0) return file;
    }
    og_err_set(err, OG_ENOENT, "%s: no model.safetensors, no index of shards", path);
    return NULL;
}

int og_weights_open(const char *path, og_weights **out, og_err *err) {
    og_err own = OG_ERR_INIT;
    if (!err) err = &own;
    *out = NULL;
    og_weights *w = create(err);
    if (!w) return OG_ENOMEM;
    const char *file = locate(w, path, err);
    int rc = err->code;
    if (file)
        rc = ends_with(file, ".json") ? open_index(w, file, err)
                                      : open_single(w, file, err);
    if (rc < 0) {
        og_weights_close(w);
        return rc;
    }
    *out = w;
    return 0;
}

long og__weights_index(const og_weights *w, const char *name) {
    og__entry key = {.name = name};
    if (w->n == 0) return -1;
    const og__entry *e = bsearch(&key, w->entries, w->n, sizeof key, by_name);
    return e ? (long)(e - w->entries) : -1;
}

const og_tensor *og_weights_find(const og_weights *w, const char *name) {
    long i = og__weights_index(w, name);
    return i < 0 ? NULL : &w->entries[i].t;
}

size_t og_weights_count(const og_weights *w) {
    return w->n;
}

const char *og_weights_name(const og_weights *w, size_t i) {
    return i < w->n ? w->entries[i].name : NULL;
}

const og_tensor *og_weights_at(const og_weights *w, size_t i) {
    return i < w->n ? &w->entries[i].t : NULL;
}

const char *og_weights_metadata(const og_weights *w, const char *key) {
    for (size_t i = 0; i < w->n_files; i++) {
        const char *v = json_string_value(json_object_get(w->files[i].metadata, key));
        if (v) return v;
    }
    return NULL;
}

size_t og_weights_warnings(const og_weights *w) {
    return w->n_warnings;
}

const char *og_weights_warning(const og_weights *w, size_t i) {
    return i < w->n_warnings ? w->warnings[i] : NULL;
}

uint64_t og_weights_fingerprint(const og_weights *w) {
    return w->hash;
}

void og_weights_populate(const og_weights *w) {
    for (size_t i = 0; i < w->n_files; i++) {
        void *map = w->files[i].map;
        size_t size = w->files[i].size;
#ifdef MADV_POPULATE_READ
        if (madvise(map, size, MADV_POPULATE_READ) == 0) continue;
#endif
        madvise(map, size, MADV_WILLNEED);
    }
}

void og_weights_drop_pages(const og_weights *w, const og_tensor *t) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)t->data + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)t->data + og_tensor_bytes(t)) / page * page;
    for (size_t i = 0; i < w->n_files; i++) {
        uintptr_t map = (uintptr_t)w->files[i].map;
        if (from >= map && to <= map + w->files[i].size && from < to)
            madvise((void *)from, to - from, MADV_DONTNEED);
    }
}

int og_weights_dummy(uint64_t seed, og_dtype dtype, og_weights **out, og_err *err) {
    *out = NULL;
    if (dtype != OG_F32 && dtype != OG_BF16 && dtype != OG_F16)
        return og_err_set(err, OG_EUNSUPPORTED, "dummy weights of %s (F32, BF16 or F16)",
                          og_dtype_name(dtype));
    og_weights *w = create(err);
    if (!w) return OG_ENOMEM;
    w->dummy = 1;
    w->seed = seed;
    w->dtype = dtype;
    w->hash = og__hash_u64(og__hash_u64(OG__HASH_INIT, seed), (uint64_t)dtype);
    *out = w;
    return 0;
}

int og_weights_is_dummy(const og_weights *w) {
    return w->dummy;
}

og_dtype og__weights_dummy_dtype(const og_weights *w) {
    return w->dtype;
}

/* splitmix64 of a counter: any element can be computed alone. */
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Near normal with deviation 1: four 16-bit uniforms added up. */
static float near_normal(uint64_t r) {
    int sum = (int)(r & 0xffff) + (int)(r >> 16 & 0xffff) + (int)(r >> 32 & 0xffff) +
              (int)(r >> 48);
    return ((float)sum - 131070.0f) * (1.0f / 37837.2f);
}

static void store(void *data, og_dtype dtype, int64_t i, float v) {
    if (dtype == OG_F32)
        ((float *)data)[i] = v;
    else
        ((uint16_t *)data)[i] = dtype == OG_BF16 ? og_f32_to_bf16(v) : og_f32_to_f16(v);
}

static int is_leaf(const char *name, const char *leaf) {
    size_t n = strlen(name), m = strlen(leaf);
    return n >= m && strcmp(name + n - m, leaf) == 0 &&
           (n == m || name[n - m - 1] == '.');
}

/* What a tensor of this name holds everywhere, or 0 in *is_const for random values. */
static float constant_of(const char *name, int rank, int *is_const) {
    *is_const = 1;
    if (is_leaf(name, "bias") || is_leaf(name, "alpha") || is_leaf(name, "beta"))
        return 0;
    if (is_leaf(name, "cluster_usage") || rank == 1) return 1;
    *is_const = 0;
    return 0;
}

static void fill(const og_weights *w, const char *name, og_tensor *t) {
    int64_t n = og_tensor_count(t);
    int is_const;
    if (t->dtype != OG_F32 && t->dtype != OG_BF16 && t->dtype != OG_F16) {
        memset(t->data, 0, og_tensor_bytes(t));
        return;
    }
    float value = constant_of(name, t->rank, &is_const);
    uint64_t key = mix(og__hash_str(OG__HASH_INIT, name) ^ mix(w->seed));
    for (int64_t i = 0; i < n; i++) {
        if (!is_const) value = DUMMY_STD * near_normal(mix(key + (uint64_t)i));
        store(t->data, t->dtype, i, value);
    }
}

static int same_shape(const og_tensor *t, const og_ne *shape) {
    if (t->rank != shape->rank) return 0;
    for (int i = 0; i < t->rank; i++)
        if (shape->ne[i] >= 0 && t->ne[i] != shape->ne[i]) return 0;
    return 1;
}

static made *find_made(og_weights *w, const char *name) {
    for (made *m = w->made; m; m = m->next)
        if (strcmp(m->name, name) == 0) return m;
    return NULL;
}

static made *make(og_weights *w, const char *name, og_dtype dtype, og_ne shape,
                  og_err *err) {
    size_t bytes = og_dtype_size(dtype);
    for (int i = 0; i < shape.rank; i++) {
        if (shape.ne[i] < 0) shape.ne[i] = 1;
        if (__builtin_mul_overflow(bytes, (size_t)shape.ne[i], &bytes) ||
            bytes > PTRDIFF_MAX) {
            og_err_set(err, OG_ELIMIT, "dummy tensor %s: the shape overflows", name);
            return NULL;
        }
    }
    made *m = og_arena_alloc(w->arena, sizeof *m);
    const char *copy = og_arena_strdup(w->arena, name);
    void *data = og_malloc(bytes);
    if (!m || !copy || !data) {
        og_free(data);
        og_err_set(err, OG_ENOMEM, "no memory for %zu bytes of dummy tensor %s", bytes,
                   name);
        return NULL;
    }
    m->name = copy;
    m->t = og_tensor_nd(dtype, shape.rank, shape.ne, data);
    fill(w, name, &m->t);
    m->next = w->made;
    w->made = m;
    return m;
}

int og__weights_make(og_weights *w, const char *name, og_dtype dtype, og_ne shape,
                     og_tensor *out, og_err *err) {
    int rc = 0;
    pthread_mutex_lock(&w->lock);
    made *m = find_made(w, name);
    if (!m && !(m = make(w, name, dtype, shape, err)))
        rc = OG_ENOMEM;
    else if (!same_shape(&m->t, &shape))
        rc = og_err_set(err, OG_ESHAPE, "dummy tensor %s was bound with another shape",
                        name);
    else
        *out = m->t;
    pthread_mutex_unlock(&w->lock);
    return rc;
}
