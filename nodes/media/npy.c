#include "nodes/media/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/alloc.h"
#include "nodes/media/file.h"

/* Room for any header of ours, so that it can be written again once the rows are known;
 * NumPy wants it padded with spaces to a multiple of 64 with a newline at the end. */
#define HEADER 192
#define MAX_IN_HEADER 65535
#define MAGIC "\x93NUMPY\x01\x00"
#define MAGIC_BYTES 8

static const struct {
    og_dtype dtype;
    const char *descr;
    int size;
} types[] = {
    {OG_F32, "<f4", 4}, {OG_F16, "<f2", 2}, {OG_F64, "<f8", 8}, {OG_I64, "<i8", 8},
    {OG_I32, "<i4", 4}, {OG_I16, "<i2", 2}, {OG_I8, "|i1", 1},  {OG_U64, "<u8", 8},
    {OG_U32, "<u4", 4}, {OG_U16, "<u2", 2}, {OG_U8, "|u1", 1},  {OG_BOOL, "|b1", 1},
};
#define N_TYPES (sizeof types / sizeof *types)

struct og_npy_out {
    og__file file;
    size_t type;
    int rank;
    int64_t ne[OG_MAX_RANK];
    int64_t row_bytes, rows;
    int broken;
};

static void make_header(const og_npy_out *o, char h[HEADER]) {
    memset(h, ' ', HEADER);
    memcpy(h, MAGIC, MAGIC_BYTES);
    h[8] = (char)(HEADER - 10);
    h[9] = 0;
    char text[HEADER];
    int n = snprintf(text, sizeof text,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (%lld,",
                     types[o->type].descr, (long long)o->rows);
    for (int i = 0; i < o->rank; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%lld", i ? ", " : " ",
                      (long long)o->ne[i]);
    n += snprintf(text + n, sizeof text - (size_t)n, "), }");
    memcpy(h + 10, text, (size_t)n);
    h[HEADER - 1] = '\n';
}

static int write_header(og_npy_out *o, og_err *err) {
    char h[HEADER];
    make_header(o, h);
    return og__file_patch(&o->file, 0, h, sizeof h, err);
}

int og_npy_create(const char *path, og_dtype dtype, int rank, const int64_t *ne,
                  og_npy_out **out, og_err *err) {
    size_t type = 0;
    *out = NULL;
    while (type < N_TYPES && types[type].dtype != dtype) type++;
    if (type == N_TYPES)
        return og_err_set(err, OG_EUNSUPPORTED, "%s: NumPy has no such number type",
                          path);
    if (rank < 0 || rank >= OG_MAX_RANK)
        return og_err_set(err, OG_EINVAL, "%s: rows of rank %d (limit is %d)", path, rank,
                          OG_MAX_RANK - 1);
    int64_t bytes = types[type].size;
    for (int i = 0; i < rank; i++) {
        if (ne[i] < 0 || __builtin_mul_overflow(bytes, ne[i], &bytes) ||
            bytes > OG_NPY_MAX_BYTES)
            return og_err_set(err, OG_EINVAL, "%s: rows of an impossible size", path);
    }
    og_npy_out *o = og_calloc(1, sizeof *o);
    if (!o) return og_err_set(err, OG_ENOMEM, "no memory to write %s", path);
    o->type = type;
    o->rank = rank;
    o->row_bytes = bytes;
    if (rank) memcpy(o->ne, ne, (size_t)rank * sizeof *ne);
    int rc = og__file_create(path, &o->file, err);
    if (rc == 0) rc = write_header(o, err);
    if (rc < 0) {
        og_npy_abort(o);
        return rc;
    }
    *out = o;
    return 0;
}

int og_npy_append(og_npy_out *o, const void *data, int64_t rows, og_err *err) {
    int64_t at = o->rows * o->row_bytes, bytes;
    if (o->broken) return og_err_set(err, OG_EIO, "an array file has failed before");
    if (rows < 0 || __builtin_mul_overflow(rows, o->row_bytes, &bytes) ||
        bytes > OG_NPY_MAX_BYTES - at)
        return og_err_set(err, OG_ELIMIT,
                          "an array file would grow too long (limit is %lld)",
                          (long long)OG_NPY_MAX_BYTES);
    int rc = og__file_patch(&o->file, HEADER + at, data, (size_t)bytes, err);
    if (rc < 0)
        o->broken = 1;
    else
        o->rows += rows;
    return rc;
}

int og_npy_commit(og_npy_out *o, og_err *err) {
    int rc = o->broken ? og_err_set(err, OG_EIO, "an array file has failed before")
                       : write_header(o, err);
    if (rc == 0) rc = og__file_commit(&o->file, err);
    og_npy_abort(o);
    return rc;
}

void og_npy_abort(og_npy_out *o) {
    if (!o) return;
    og__file_abort(&o->file);
    og_free(o);
}

/* The value of a key in the header's dictionary: the text behind "'key':". */
static const char *value_of(const char *header, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s':", key);
    const char *p = strstr(header, quoted);
    if (!p) return NULL;
    p += strlen(quoted);
    while (*p == ' ') p++;
    return p;
}

static int parse_shape(const char *p, og_tensor *t) {
    t->rank = 0;
    if (!p || *p++ != '(') return -1;
    while (*p && *p != ')') {
        char *end;
        if (*p == ' ' || *p == ',') {
            p++;
            continue;
        }
        long long v = strtoll(p, &end, 10);
        if (end == p || v < 0 || t->rank == OG_MAX_RANK) return -1;
        t->ne[t->rank++] = v;
        p = end;
    }
    if (t->rank == 0) t->ne[t->rank++] = 1;
    return *p == ')' ? 0 : -1;
}

static int parse_header(const char *path, const char *header, og_tensor *t, int *size,
                        og_err *err) {
    const char *descr = value_of(header, "descr"),
               *order = value_of(header, "fortran_order");
    size_t type = 0;
    if (!descr || !order || parse_shape(value_of(header, "shape"), t) < 0)
        return og_err_set(err, OG_EFORMAT, "%s: bad header", path);
    while (type < N_TYPES && strncmp(descr + 1, types[type].descr, 3) != 0) type++;
    if (type == N_TYPES)
        return og_err_set(err, OG_EUNSUPPORTED, "%s: number type %.8s", path, descr);
    if (strncmp(order, "False", 5) != 0)
        return og_err_set(err, OG_EUNSUPPORTED, "%s: Fortran order", path);
    t->dtype = types[type].dtype;
    *size = types[type].size;
    return 0;
}

static int read_exact(int fd, void *buf, size_t n) {
    char *p = buf;
    while (n) {
        ssize_t got = read(fd, p, n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return -1;
        p += got;
        n -= (size_t)got;
    }
    return 0;
}

static int read_open(const char *path, int fd, og_tensor *t, og_err *err) {
    unsigned char h[10];
    char text[MAX_IN_HEADER + 1];
    struct stat st;
    int size = 0, rc;
    if (fstat(fd, &st) < 0 || read_exact(fd, h, sizeof h) < 0 ||
        memcmp(h, MAGIC, MAGIC_BYTES) != 0)
        return og_err_set(err, OG_EFORMAT, "%s: not a .npy file of version 1.0", path);
    size_t len = (size_t)h[8] | (size_t)h[9] << 8;
    if (read_exact(fd, text, len) < 0)
        return og_err_set(err, OG_EFORMAT, "%s: truncated", path);
    text[len] = 0;
    rc = parse_header(path, text, t, &size, err);
    if (rc < 0) return rc;
    int64_t bytes = size;
    for (int i = 0; i < t->rank; i++) {
        if (__builtin_mul_overflow(bytes, t->ne[i], &bytes))
            return og_err_set(err, OG_EFORMAT, "%s: the shape overflows", path);
    }
    if (bytes != (int64_t)st.st_size - (int64_t)(sizeof h + len))
        return og_err_set(err, OG_EFORMAT, "%s: %lld bytes of data, not %lld", path,
                          (long long)st.st_size - (long long)(sizeof h + len),
                          (long long)bytes);
    int64_t stride = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        t->stride[i] = stride;
        if (__builtin_mul_overflow(stride, t->ne[i] ? t->ne[i] : 1, &stride))
            return og_err_set(err, OG_EFORMAT, "%s: the shape overflows", path);
    }
    t->data = og_malloc((size_t)bytes);
    if (!t->data) return og_err_set(err, OG_ENOMEM, "no memory for %s", path);
    if (read_exact(fd, t->data, (size_t)bytes) == 0) return 0;
    og_free(t->data);
    t->data = NULL;
    return og_err_set(err, OG_EIO, "%s: cannot read", path);
}

int og_npy_read(const char *path, og_tensor *t, og_err *err) {
    memset(t, 0, sizeof *t);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return og_err_set(err, errno == ENOENT ? OG_ENOENT : OG_EIO, "%s: %s", path,
                          strerror(errno));
    int rc = read_open(path, fd, t, err);
    if (rc < 0) memset(t, 0, sizeof *t);
    close(fd);
    return rc;
}
