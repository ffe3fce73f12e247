/* One safetensors file: 8 bytes of header length, the header as JSON, the data. */
#include "nodes/load/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nodes/load/internal.h"

#define LENGTH_BYTES 8
#define SAMPLES 8
#define SAMPLE_BYTES 512

uint64_t og__hash(uint64_t h, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

uint64_t og__hash_u64(uint64_t h, uint64_t v) {
    return og__hash(h, &v, sizeof v);
}

uint64_t og__hash_str(uint64_t h, const char *s) {
    size_t n = strlen(s);
    return og__hash(og__hash_u64(h, n), s, n);
}

/* Size and a few samples of the bytes: tells a retrained checkpoint, whose header is the
 * same, from the old one without reading it whole. */
static uint64_t sample_hash(const og__st_file *f) {
    const char *p = f->map;
    size_t piece = f->size < SAMPLE_BYTES ? f->size : SAMPLE_BYTES;
    uint64_t h = og__hash_u64(OG__HASH_INIT, f->size);
    for (size_t i = 1; i <= SAMPLES; i++)
        h = og__hash(h, p + (f->size - piece) / SAMPLES * i, piece);
    return h;
}

static int map_file(const char *path, og__st_file *f, og_err *err) {
    struct stat st;
    int rc = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return og_err_set(err, errno == ENOENT || errno == ENOTDIR ? OG_ENOENT : OG_EIO,
                          "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        rc = og_err_set(err, OG_EIO, "%s: not a regular file", path);
        goto done;
    }
    if (st.st_size < LENGTH_BYTES + 2) {
        rc = og_err_set(err, OG_EFORMAT,
                        "%s: truncated: %lld bytes cannot hold a safetensors header",
                        path, (long long)st.st_size);
        goto done;
    }
    f->size = (size_t)st.st_size;
    f->map = mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (f->map == MAP_FAILED) {
        f->map = NULL;
        rc = og_err_set(err, OG_EIO, "%s: cannot map: %s", path, strerror(errno));
        goto done;
    }
    f->hash = sample_hash(f);
done:
    close(fd);
    return rc;
}

static int header_length(const og__st_file *f, size_t *len, og_err *err) {
    const unsigned char *p = f->map;
    uint64_t n = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) n = n << 8 | p[i];
    if (n > OG_ST_MAX_HEADER)
        return og_err_set(err, OG_ELIMIT,
                          "%s: header of %llu bytes is too long (limit is %u)", f->path,
                          (unsigned long long)n, OG_ST_MAX_HEADER);
    if (n > f->size - LENGTH_BYTES)
        return og_err_set(
            err, OG_EFORMAT,
            "%s: truncated: the header should have %llu bytes, the file has "
            "%zu in all",
            f->path, (unsigned long long)n, f->size);
    if (n < 2 || p[LENGTH_BYTES] != '{')
        return og_err_set(err, OG_EFORMAT, "%s: the header is not a JSON object",
                          f->path);
    *len = (size_t)n;
    return 0;
}

static int parse_dtype(const char *path, const char *name, const json_t *j,
                       og_dtype *dtype, og_err *err) {
    const char *text = json_string_value(j);
    if (!text) return og_err_set(err, OG_EFORMAT, "%s: tensor %s: no dtype", path, name);
    for (int i = 0; i < OG_DTYPE_COUNT; i++) {
        if (strcmp(text, og_dtype_name((og_dtype)i)) == 0) {
            *dtype = (og_dtype)i;
            return 0;
        }
    }
    return og_err_set(err, OG_EFORMAT, "%s: tensor %s: unknown dtype %.64s", path, name,
                      text);
}

/* Count of elements, refused where the dimensions other than 0 overflow: strides of a
 * tensor without elements are computed too. A scalar becomes one element of rank 1. */
static int parse_shape(const char *path, const char *name, const json_t *j, int *rank,
                       int64_t *ne, int64_t *count, og_err *err) {
    int64_t product = 1;
    int zero = 0;
    if (!json_is_array(j))
        return og_err_set(err, OG_EFORMAT, "%s: tensor %s: no shape", path, name);
    size_t n = json_array_size(j);
    if (n > OG_MAX_RANK)
        return og_err_set(err, OG_ELIMIT, "%s: tensor %s: rank %zu (limit is %d)", path,
                          name, n, OG_MAX_RANK);
    for (size_t i = 0; i < n; i++) {
        const json_t *d = json_array_get(j, i);
        ne[i] = json_integer_value(d);
        if (!json_is_integer(d) || ne[i] < 0)
            return og_err_set(err, OG_EFORMAT,
                              "%s: tensor %s: dimension %zu is not a count", path, name,
                              i);
        if (ne[i] == 0)
            zero = 1;
        else if (__builtin_mul_overflow(product, ne[i], &product))
            return og_err_set(err, OG_EFORMAT, "%s: tensor %s: the shape overflows", path,
                              name);
    }
    if (n == 0) ne[n++] = 1;
    *rank = (int)n;
    *count = zero ? 0 : product;
    return 0;
}

static int parse_offsets(const char *path, const char *name, const json_t *j, size_t data,
                         uint64_t *begin, uint64_t *end, og_err *err) {
    const json_t *a = json_array_get(j, 0), *b = json_array_get(j, 1);
    if (json_array_size(j) != 2 || !json_is_integer(a) || !json_is_integer(b) ||
        json_integer_value(a) < 0 || json_integer_value(b) < json_integer_value(a))
        return og_err_set(err, OG_EFORMAT, "%s: tensor %s: bad data_offsets", path, name);
    *begin = (uint64_t)json_integer_value(a);
    *end = (uint64_t)json_integer_value(b);
    if (*end > data)
        return og_err_set(err, OG_EFORMAT,
                          "%s: truncated: tensor %s ends at byte %llu of %zu data bytes",
                          path, name, (unsigned long long)*end, data);
    return 0;
}

static int parse_tensor(og__st_file *f, const char *name, json_t *j, char *data,
                        size_t size, og_arena *arena, og_err *err) {
    int rank = 0;
    int64_t ne[OG_MAX_RANK] = {0}, count = 0;
    uint64_t begin = 0, end = 0, bytes;
    og_dtype dtype = OG_U8;
    int rc;
    if (strlen(name) > OG_ST_MAX_NAME)
        return og_err_set(err, OG_ELIMIT, "%s: a tensor name of %zu bytes (limit is %d)",
                          f->path, strlen(name), OG_ST_MAX_NAME);
    if (!json_is_object(j))
        return og_err_set(err, OG_EFORMAT, "%s: tensor %s is not an object", f->path,
                          name);
    rc = parse_dtype(f->path, name, json_object_get(j, "dtype"), &dtype, err);
    if (rc < 0) return rc;
    rc = parse_shape(f->path, name, json_object_get(j, "shape"), &rank, ne, &count, err);
    if (rc < 0) return rc;
    rc = parse_offsets(f->path, name, json_object_get(j, "data_offsets"), size, &begin,
                       &end, err);
    if (rc < 0) return rc;
    if (__builtin_mul_overflow((uint64_t)count, og_dtype_size(dtype), &bytes) ||
        bytes != end - begin)
        return og_err_set(
            err, OG_EFORMAT,
            "%s: tensor %s: %lld elements of %s do not fill bytes %llu to %llu", f->path,
            name, (long long)count, og_dtype_name(dtype), (unsigned long long)begin,
            (unsigned long long)end);
    og__entry *e = &f->entries[f->n];
    e->name = og_arena_strdup(arena, name);
    if (!e->name) return og_err_set(err, OG_ENOMEM, "no memory for %s", f->path);
    e->t = og_tensor_nd(dtype, rank, ne, data + begin);
    e->shard = 0;
    f->n++;
    f->hash = og__hash_u64(og__hash_str(f->hash, name), (uint64_t)dtype);
    f->hash = og__hash_u64(og__hash(f->hash, ne, sizeof ne), begin);
    return 0;
}

static int by_address(const void *pa, const void *pb) {
    const og__entry *a = pa, *b = pb;
    const char *x = a->t.data, *y = b->t.data;
    if (x != y) return x < y ? -1 : 1;
    size_t na = og_tensor_bytes(&a->t), nb = og_tensor_bytes(&b->t);
    return na < nb ? -1 : na > nb;
}

/* Tensors must tile the data: what overlaps is an attack or a bug, and so is a hole. */
static int check_tiling(og__st_file *f, const char *data, size_t size, og_err *err) {
    const char *at = data, *last = NULL;
    qsort(f->entries, f->n, sizeof *f->entries, by_address);
    for (size_t i = 0; i < f->n; i++) {
        const og__entry *e = &f->entries[i];
        const char *begin = e->t.data;
        size_t bytes = og_tensor_bytes(&e->t);
        if (bytes == 0) continue;
        if (begin < at)
            return og_err_set(err, OG_EFORMAT, "%s: tensors %s and %s overlap", f->path,
                              last, e->name);
        if (begin > at)
            return og_err_set(err, OG_EFORMAT, "%s: a hole of %zu bytes before tensor %s",
                              f->path, (size_t)(begin - at), e->name);
        at = begin + bytes;
        last = e->name;
    }
    size_t rest = size - (size_t)(at - data);
    if (rest)
        return og_err_set(err, OG_EFORMAT, "%s: %zu bytes after the last tensor", f->path,
                          rest);
    return 0;
}

static int take_metadata(og__st_file *f, json_t *meta, og_err *err) {
    const char *key;
    json_t *v;
    if (!json_is_object(meta))
        return og_err_set(err, OG_EFORMAT, "%s: __metadata__ is not an object", f->path);
    json_object_foreach(meta, key, v) {
        if (!json_is_string(v))
            return og_err_set(err, OG_EFORMAT,
                              "%s: __metadata__ key %.100s is not a string", f->path,
                              key);
    }
    f->metadata = json_incref(meta);
    return 0;
}

static int parse_header(og__st_file *f, json_t *root, size_t header, og_arena *arena,
                        og_err *err) {
    char *data = (char *)f->map + LENGTH_BYTES + header;
    size_t size = f->size - LENGTH_BYTES - header;
    const char *name;
    json_t *j;
    int rc;
    size_t n = json_object_size(root);
    if (n > OG_ST_MAX_TENSORS)
        return og_err_set(err, OG_ELIMIT, "%s: %zu tensors (limit is %u)", f->path, n,
                          OG_ST_MAX_TENSORS);
    f->entries = og_calloc(n, sizeof *f->entries);
    if (!f->entries) return og_err_set(err, OG_ENOMEM, "no memory for %s", f->path);
    json_object_foreach(root, name, j) {
        if (strcmp(name, "__metadata__") == 0)
            rc = take_metadata(f, j, err);
        else
            rc = parse_tensor(f, name, j, data, size, arena, err);
        if (rc < 0) return rc;
    }
    return check_tiling(f, data, size, err);
}

int og__st_open(const char *path, og_arena *arena, og__st_file *f, og_err *err) {
    size_t header = 0;
    json_t *root = NULL;
    memset(f, 0, sizeof *f);
    f->path = og_arena_strdup(arena, path);
    if (!f->path) return og_err_set(err, OG_ENOMEM, "no memory for %s", path);
    int rc = map_file(path, f, err);
    if (rc < 0) goto fail;
    rc = header_length(f, &header, err);
    if (rc < 0) goto fail;
    root = og__json_parse(path, (const char *)f->map + LENGTH_BYTES, header,
                          OG_ST_MAX_DEPTH, "tensor name", err);
    if (!root) {
        rc = err ? err->code : OG_EFORMAT;
        goto fail;
    }
    rc = parse_header(f, root, header, arena, err);
    if (rc < 0) goto fail;
    json_decref(root);
    return 0;
fail:
    json_decref(root);
    og__st_close(f);
    return rc;
}

void og__st_close(og__st_file *f) {
    json_decref(f->metadata);
    og_free(f->entries);
    if (f->map) munmap(f->map, f->size);
    memset(f, 0, sizeof *f);
}
