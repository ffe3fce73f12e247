/* `inspect diff`: two dumps of layers, tensor by tensor. Tensors meet by name and by how
 * often that name has come before, so runs that batch or chunk differently still line up
 * where they made the same calls. */
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "graph/cli/cli.h"
#include "nodes/load/safetensors.h"
#include "nodes/media/npy.h"

typedef struct entry {
    const char *name, *path; /* name without its number; path NULL: in the weights */
    long long number;
    int nth; /* of that name */
    const og_tensor *tensor;
} entry;

typedef struct set {
    entry *e;
    int n, room;
    og_weights *weights; /* of a .safetensors set */
} set;

typedef struct result {
    double max_abs, max_rel, peak;
    int64_t count, at; /* elements; where the largest difference is */
    bool transposed;
} result;

/* ---- reading a set ------------------------------------------------------------ */

static int add(og_arena *arena, set *s, entry e) {
    if (s->n == s->room) {
        int room = s->room ? 2 * s->room : 256;
        entry *more = og_arena_alloc(arena, (size_t)room * sizeof *more);
        if (!more || !e.name) return OG_ENOMEM;
        if (s->n) memcpy(more, s->e, (size_t)s->n * sizeof *more);
        s->e = more;
        s->room = room;
    }
    s->e[s->n++] = e;
    return 0;
}

static int by_number(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* NNNN-NAME.npy */
static int read_folder(og_arena *arena, const char *dir, set *s) {
    DIR *d = opendir(dir);
    int rc = 0;
    for (struct dirent *f; d && rc == 0 && (f = readdir(d));) {
        char *end;
        size_t len = strlen(f->d_name);
        if (len < 5 || strcmp(f->d_name + len - 4, ".npy")) continue;
        entry e = {.number = strtoll(f->d_name, &end, 10)};
        if (*end == '-' && end > f->d_name) end++;
        e.name = og_arena_strndup(arena, end, len - 4 - (size_t)(end - f->d_name));
        e.path = og_arena_printf(arena, "%s/%s", dir, f->d_name);
        rc = add(arena, s, e);
    }
    if (d) closedir(d);
    return rc;
}

static int read_weights(og_arena *arena, const char *path, const char *prefix, set *s,
                        og_err *err) {
    int rc = og_weights_open(path, &s->weights, err);
    size_t skip = strlen(prefix);
    for (size_t i = 0; rc == 0 && i < og_weights_count(s->weights); i++) {
        const char *name = og_weights_name(s->weights, i);
        if (strncmp(name, prefix, skip)) continue;
        rc = add(arena, s,
                 (entry){.name = name + skip,
                         .number = (long long)i,
                         .tensor = og_weights_at(s->weights, i)});
    }
    return rc;
}

static int read_set(og_arena *arena, const char *path, const char *prefix, set *s,
                    og_err *err) {
    struct stat st;
    if (stat(path, &st) < 0) return og_err_set(err, OG_ENOENT, "there is no '%s'", path);
    int rc = S_ISDIR(st.st_mode) ? read_folder(arena, path, s)
                                 : read_weights(arena, path, prefix, s, err);
    if (rc == 0 && s->n == 0)
        rc = og_err_set(err, OG_EINVAL, "'%s' holds no tensors to compare", path);
    if (rc < 0) return og_err_set(err, rc, "out of memory");
    qsort(s->e, (size_t)s->n, sizeof *s->e, by_number);
    for (int i = 0; i < s->n; i++)
        for (int k = i - 1; k >= 0; k--)
            if (!strcmp(s->e[k].name, s->e[i].name)) {
                s->e[i].nth = s->e[k].nth + 1;
                break;
            }
    return 0;
}

/* The search begins where the partner stands in a run that made the same calls. */
static const entry *partner(const set *s, const entry *of, int near) {
    for (int k = 0; k < s->n; k++) {
        const entry *e = &s->e[(near + k) % s->n];
        if (e->nth == of->nth && !strcmp(e->name, of->name)) return e;
    }
    return NULL;
}

/* ---- comparing ---------------------------------------------------------------- */

static double value(const og_tensor *t, int64_t i) {
    const char *at = (const char *)t->data + (size_t)i * og_dtype_size(t->dtype);
    float f;
    double d;
    uint64_t u = 0;
    uint16_t h;
    switch (t->dtype) {
    case OG_F32: memcpy(&f, at, sizeof f); return (double)f;
    case OG_F64: memcpy(&d, at, sizeof d); return d;
    case OG_F16: memcpy(&h, at, sizeof h); return (double)og_f16_to_f32(h);
    case OG_BF16: memcpy(&h, at, sizeof h); return (double)og_bf16_to_f32(h);
    default: memcpy(&u, at, og_dtype_size(t->dtype));
    }
    return t->dtype == OG_I32 ? (double)(int32_t)u : (double)(int64_t)u;
}

/* Shapes agree but for dimensions of one; or a is b transposed, as references that keep
 * channels first dump theirs. */
static bool same_shape(const og_tensor *a, const og_tensor *b, bool *transposed) {
    int64_t x[OG_MAX_RANK], y[OG_MAX_RANK];
    int n = 0, m = 0;
    for (int i = 0; i < a->rank; i++)
        if (a->ne[i] != 1) x[n++] = a->ne[i];
    for (int i = 0; i < b->rank; i++)
        if (b->ne[i] != 1) y[m++] = b->ne[i];
    bool same = n == m;
    for (int i = 0; same && i < n; i++) same = x[i] == y[i];
    *transposed = !same && n == 2 && m == 2 && x[0] == y[1] && x[1] == y[0];
    return same || *transposed;
}

static int64_t last_dim(const og_tensor *t) {
    for (int i = t->rank - 1; i >= 0; i--)
        if (t->ne[i] != 1) return t->ne[i];
    return 1;
}

static void compare(const og_tensor *a, const og_tensor *b, result *r) {
    int64_t n = og_tensor_count(a), cols = last_dim(a), rows = n / (cols ? cols : 1);
    r->count = n;
    for (int64_t i = 0; i < n; i++) {
        double x = value(a, i),
               y = value(b, r->transposed ? i % cols * rows + i / cols : i);
        double d = fabs(x - y);
        if (isnan(x) && isnan(y)) continue;
        if (isnan(d)) d = x == y ? 0 : INFINITY;
        if (fabs(y) > r->peak) r->peak = fabs(y);
        if (d <= r->max_abs) continue;
        r->max_abs = d;
        r->at = i;
    }
    r->max_rel = r->max_abs == 0 ? 0 : r->peak > 0 ? r->max_abs / r->peak : INFINITY;
}

static int load(const entry *e, og_tensor *t, og_err *err) {
    if (e->path) return og_npy_read(e->path, t, err);
    *t = *e->tensor;
    return 0;
}

/* One line; whether the two are equal within tol, or < 0. */
static int pair(const entry *a, const entry *b, double tol, og_err *err) {
    og_tensor x = {0}, y = {0};
    result r = {0};
    char shape[96], other[96];
    int rc = load(a, &x, err), equal = 0;
    if (rc == 0) rc = load(b, &y, err);
    if (rc == 0) {
        og_tensor_str(&x, shape, sizeof shape);
        og_tensor_str(&y, other, sizeof other);
        if (!same_shape(&x, &y, &r.transposed)) {
            printf("%-40s %-20s shapes differ: %s\n", a->name, shape, other);
        } else {
            compare(&x, &y, &r);
            equal = r.max_abs <= tol;
            printf("%-40s %-20s abs %-10.3g rel %-10.3g%s%s\n", a->name, shape, r.max_abs,
                   r.max_rel, r.transposed ? " transposed" : "", equal ? "" : " DIFFERS");
        }
    }
    if (a->path) og_free(x.data);
    if (b->path) og_free(y.data);
    return rc < 0 ? rc : equal;
}

static int compare_sets(const set *a, const set *b, double tol, og_err *err) {
    int equal = 0, differ = 0, missing = 0;
    const entry *first = NULL;
    for (int i = 0; i < a->n; i++) {
        const entry *p = partner(b, &a->e[i], i);
        if (!p) {
            missing++;
            continue;
        }
        int same = pair(&a->e[i], p, tol, err);
        if (same < 0) return same;
        if (!same && !first) first = &a->e[i];
        equal += same;
        differ += !same;
    }
    printf("%d equal within %g, %d differ, %d only in the first, %d only in the second\n",
           equal, tol, differ, missing, b->n - equal - differ);
    if (first)
        printf("first that differs: %s, number %lld%s\n", first->name, first->number,
               first->nth ? " (not the first of its name)" : "");
    if (equal + differ == 0)
        return og_err_set(err, OG_EINVAL, "the two have no names in common");
    return differ ? 0 : 1;
}

int og__diff(og__cli *cli, const char *a, const char *b) {
    const char *text = og__args_get(&cli->args, "tol"), *prefix;
    og_err err = OG_ERR_INIT;
    set x = {0}, y = {0};
    char *end = NULL;
    double tol = text ? strtod(text, &end) : 0;
    if (text && (end == text || *end || !(tol >= 0)))
        return og__usage(cli, "--tol must be a number from 0 on, not '%s'", text);
    prefix = og__args_get(&cli->args, "prefix");
    int rc = read_set(cli->arena, a, "", &x, &err);
    if (rc == 0) rc = read_set(cli->arena, b, prefix ? prefix : "", &y, &err);
    if (rc == 0) rc = compare_sets(&x, &y, tol, &err);
    og_weights_close(x.weights);
    og_weights_close(y.weights);
    if (rc < 0) return og__report(&err);
    return rc ? OG__EXIT_OK : OG__EXIT_FAILED;
}
