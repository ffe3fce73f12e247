#include "nodes/load/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/alloc.h"
#include "nodes/load/internal.h"

/* Nesting before position end, and the largest one on the way. A scan of its own, since
 * jansson's limit is a constant of its build. Brackets in strings do not count. */
static int nesting(const char *text, size_t end, int *deepest) {
    int depth = 0, max = 0, in_string = 0;
    for (size_t i = 0; i < end; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = 0;
        } else if (c == '"') {
            in_string = 1;
        } else if (c == '{' || c == '[') {
            if (++depth > max) max = depth;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    if (deepest) *deepest = max;
    return depth;
}

/* The string token that ends at or before pos: where a repeated key was noticed. */
static void key_before(const char *text, size_t pos, const char **key, int *len) {
    size_t end = pos;
    *key = text;
    *len = 0;
    while (end > 0 && text[end - 1] != '"') end--;
    if (end < 2) return;
    size_t start = end - 1;
    while (start > 0) {
        if (text[start - 1] == '"') {
            size_t slashes = 0;
            while (start - 1 > slashes && text[start - 2 - slashes] == '\\') slashes++;
            if (slashes % 2 == 0) break;
        }
        start--;
    }
    *key = text + start;
    *len = end - 1 - start > 200 ? 200 : (int)(end - 1 - start);
}

static int report(const char *name, const char *text, size_t len, const json_error_t *je,
                  const char *top, og_err *err) {
    enum json_error_code code = json_error_code(je);
    /* A failure without a position is jansson's way of saying that memory ran out. */
    if (code == json_error_out_of_memory || je->line < 0)
        return og_err_set(err, OG_ENOMEM, "no memory for %s", name);
    if (code == json_error_duplicate_key) {
        size_t pos = je->position > 0 ? (size_t)je->position : 0;
        const char *key;
        int n;
        key_before(text, pos < len ? pos : len, &key, &n);
        int at_top = nesting(text, (size_t)(key - text) - (key > text), NULL) == 1;
        return og_err_set(err, OG_EFORMAT, "%s:%d: duplicate %s %.*s", name, je->line,
                          at_top ? top : "key", n, key);
    }
    return og_err_set(err, OG_EFORMAT, "%s:%d:%d: malformed JSON: %s", name, je->line,
                      je->column, je->text);
}

json_t *og__json_parse(const char *name, const char *text, size_t len, int max_depth,
                       const char *top, og_err *err) {
    int deepest;
    nesting(text, len, &deepest);
    if (deepest > max_depth) {
        og_err_set(err, OG_ELIMIT, "%s: nested too deeply (%d, limit is %d)", name,
                   deepest, max_depth);
        return NULL;
    }
    json_error_t je = {0};
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!root) report(name, text, len, &je, top, err);
    return root;
}

json_t *og_json_parse(const char *name, const char *text, size_t len, int max_depth,
                      og_err *err) {
    return og__json_parse(name, text, len, max_depth, "key", err);
}

static int read_all(int fd, char *buf, size_t size, size_t *got) {
    *got = 0;
    while (*got < size) {
        ssize_t n = read(fd, buf + *got, size - *got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        *got += (size_t)n;
    }
    return 0;
}

int og_file_read(const char *path, size_t max_bytes, char **text, size_t *len,
                 og_err *err) {
    struct stat st;
    int rc = 0;
    char *buf = NULL;
    *text = NULL;
    *len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return og_err_set(err, errno == ENOENT || errno == ENOTDIR ? OG_ENOENT : OG_EIO,
                          "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        rc = og_err_set(err, OG_EIO, "%s: not a regular file", path);
        goto done;
    }
    if ((uint64_t)st.st_size > max_bytes) {
        rc = og_err_set(err, OG_ELIMIT, "%s: %lld bytes are too many (limit is %zu)",
                        path, (long long)st.st_size, max_bytes);
        goto done;
    }
    buf = og_malloc((size_t)st.st_size + 1);
    if (!buf) {
        rc = og_err_set(err, OG_ENOMEM, "no memory for %s", path);
        goto done;
    }
    if (read_all(fd, buf, (size_t)st.st_size, len) < 0) {
        rc = og_err_set(err, OG_EIO, "%s: %s", path, strerror(errno));
        og_free(buf);
        goto done;
    }
    buf[*len] = 0;
    *text = buf;
done:
    close(fd);
    return rc;
}

json_t *og_json_load(const char *path, size_t max_bytes, int max_depth, og_err *err) {
    char *text;
    size_t len;
    if (og_file_read(path, max_bytes, &text, &len, err) < 0) return NULL;
    json_t *root = og_json_parse(path, text, len, max_depth, err);
    og_free(text);
    return root;
}
