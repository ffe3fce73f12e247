/* --tap-layers: every tensor that a model names, one .npy each, in the order of the run.
 * Executors call in from their own threads; one lock keeps the numbers in order. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "graph/cli/run.h"
#include "nodes/media/npy.h"

struct og__layers {
    pthread_mutex_t mu;
    const char *dir; /* borrowed */
    int64_t n;
    og_err err; /* the first one; nothing is written after it */
};

/* Numbers of two runs in one folder could not be told apart. */
static bool has_npy(const char *dir) {
    DIR *d = opendir(dir);
    bool found = false;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        found = n > 4 && !strcmp(e->d_name + n - 4, ".npy");
    }
    if (d) closedir(d);
    return found;
}

int og__layers_create(const char *dir, og__layers **out, og_err *err) {
    *out = NULL;
    if (mkdir(dir, 0777) < 0 && errno != EEXIST)
        return og_err_set(err, OG_EINVAL, "cannot make folder '%s': %s", dir,
                          strerror(errno));
    if (has_npy(dir)) {
        og_err_set(err, OG_EINVAL, "folder '%s' holds .npy files already", dir);
        og_err_hint(err, "name an empty folder, or one that is not there");
        return OG_EINVAL;
    }
    og__layers *l = og_calloc(1, sizeof *l);
    if (!l) return og_err_set(err, OG_ENOMEM, "out of memory");
    pthread_mutex_init(&l->mu, NULL);
    l->dir = dir;
    *out = l;
    return 0;
}

/* One element after another, innermost dimension last: tapped views may have gaps. */
static void gather(const og_tensor *t, char *out) {
    int64_t at[OG_MAX_RANK] = {0}, n = og_tensor_count(t);
    size_t size = og_dtype_size(t->dtype);
    for (int64_t i = 0; i < n; i++) {
        int64_t offset = 0;
        for (int d = 0; d < t->rank; d++) offset += at[d] * t->stride[d];
        memcpy(out + (size_t)i * size, (const char *)t->data + offset * (int64_t)size,
               size);
        for (int d = t->rank - 1; d >= 0 && ++at[d] == t->ne[d]; d--) at[d] = 0;
    }
}

/* bf16 has no name in NumPy. */
static og_dtype widen_bf16(const og_tensor *t, char *data) {
    if (t->dtype != OG_BF16) return t->dtype;
    for (int64_t i = og_tensor_count(t); i-- > 0;) {
        uint16_t h;
        memcpy(&h, data + 2 * i, sizeof h);
        float f = og_bf16_to_f32(h);
        memcpy(data + 4 * i, &f, sizeof f);
    }
    return OG_F32;
}

static int write_one(const char *path, const og_tensor *t, og_err *err) {
    size_t size = og_dtype_size(t->dtype);
    if (t->place.kind != OG_PLACE_HOST)
        return og_err_set(err, OG_EUNSUPPORTED, "'%s': the layer is in device memory",
                          path);
    char *data = og_malloc((size_t)og_tensor_count(t) * (size < 4 ? 4 : size) + 1);
    if (!data) return og_err_set(err, OG_ENOMEM, "no memory for '%s'", path);
    gather(t, data);
    og_dtype dtype = widen_bf16(t, data);
    og_npy_out *out = NULL;
    int rc = og_npy_create(path, dtype, t->rank - 1, t->ne + 1, &out, err);
    if (rc == 0) {
        rc = og_npy_append(out, data, t->ne[0], err);
        if (rc == 0)
            rc = og_npy_commit(out, err);
        else
            og_npy_abort(out);
    }
    og_free(data);
    return rc;
}

void og__layers_tap(void *layers, const char *name, const og_tensor *t) {
    og__layers *l = layers;
    char path[4096], safe[256];
    snprintf(safe, sizeof safe, "%s", name);
    for (char *c = safe; *c; c++)
        if (*c == '/' || *c == ' ') *c = '_';
    pthread_mutex_lock(&l->mu);
    if (l->err.code == 0 && t->rank > 0) {
        snprintf(path, sizeof path, "%s/%04lld-%s.npy", l->dir, (long long)l->n, safe);
        if (write_one(path, t, &l->err) == 0) l->n++;
    }
    pthread_mutex_unlock(&l->mu);
}

int og__layers_finish(og__layers *l, int64_t *n, og_err *err) {
    pthread_mutex_lock(&l->mu);
    int rc = l->err.code;
    *n = l->n;
    if (rc < 0) *err = l->err;
    pthread_mutex_unlock(&l->mu);
    return rc;
}

void og__layers_free(og__layers *l) {
    if (!l) return;
    pthread_mutex_destroy(&l->mu);
    og_free(l);
}
