/* Whole files in and out. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/cli/cli.h"

#define READ_MAX ((size_t)64 << 20)

static int fail(const char *verb, const char *path, og_err *err) {
    int code = errno == ENOENT ? OG_ENOENT : OG_EIO;
    return og_err_set(err, code, "cannot %s '%s': %s", verb, path, strerror(errno));
}

/* Folder of a path, as open() takes it. */
static void folder_of(const char *path, char buf[PATH_MAX]) {
    const char *slash = strrchr(path, '/');
    snprintf(buf, PATH_MAX, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (slash == path) snprintf(buf, PATH_MAX, "/");
}

int og__can_write(const char *path, og_err *err) {
    char folder[PATH_MAX];
    struct stat st;
    if (!*path || strlen(path) >= PATH_MAX - 16)
        return og_err_set(err, OG_EINVAL, "'%.80s' is no file name", path);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return og_err_set(err, OG_EINVAL, "cannot write '%s': it is a folder", path);
    folder_of(path, folder);
    if (stat(folder, &st) < 0)
        return og_err_set(err, OG_ENOENT, "cannot write '%s': there is no folder '%s'",
                          path, folder);
    if (!S_ISDIR(st.st_mode))
        return og_err_set(err, OG_EINVAL, "cannot write '%s': '%s' is no folder", path,
                          folder);
    if (access(folder, W_OK) < 0)
        return og_err_set(err, OG_EINVAL, "cannot write '%s': folder '%s': %s", path,
                          folder, strerror(errno));
    return 0;
}

static int write_all(int fd, const char *data, size_t n) {
    while (n > 0) {
        ssize_t k = write(fd, data, n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return -1;
        data += k;
        n -= (size_t)k;
    }
    return 0;
}

int og__write_file(const char *path, const char *data, size_t n, og_err *err) {
    char temp[PATH_MAX + 32];
    int rc = og__can_write(path, err);
    if (rc < 0) return rc;
    snprintf(temp, sizeof temp, "%s.%ld.tmp", path, (long)getpid());
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return fail("write", path, err);
    rc = write_all(fd, data, n) < 0 ? fail("write", path, err) : 0;
    if (close(fd) < 0 && rc == 0) rc = fail("write", path, err);
    if (rc == 0 && rename(temp, path) < 0) rc = fail("write", path, err);
    if (rc < 0) unlink(temp);
    return rc;
}

int og__read_file(const char *path, og_str *out, og_err *err) {
    bool standard = !strcmp(path, "-");
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail("read", path, err);
    char buf[1 << 14];
    ssize_t k;
    while ((k = read(fd, buf, sizeof buf)) != 0) {
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 || out->len > READ_MAX) break;
        og_str_addn(out, buf, (size_t)k);
    }
    int rc = k < 0 ? fail("read", path, err) : 0;
    if (k > 0)
        rc = og_err_set(err, OG_ELIMIT, "'%s' is larger than %zu bytes", path, READ_MAX);
    if (out->oom) rc = og_err_set(err, OG_ENOMEM, "no memory for '%s'", path);
    if (!standard) close(fd);
    return rc;
}

const char *og__read_text(og_arena *arena, const char *arg, og_err *err) {
    if (strcmp(arg, "-") && arg[0] != '@') return arg;
    og_str s = OG_STR_INIT;
    const char *text = NULL;
    if (og__read_file(arg[0] == '@' ? arg + 1 : arg, &s, err) == 0) {
        if (s.data && strlen(s.data) != s.len)
            og_err_set(err, OG_EINVAL, "the text of '%s' holds a NUL character", arg);
        else
            text = og_arena_strdup(arena, s.data ? s.data : "");
        if (!text) og_err_set(err, OG_ENOMEM, "out of memory");
    }
    og_str_free(&s);
    return text;
}

int og__write_stdout(const char *data, size_t n, og_err *err) {
    if (write_all(STDOUT_FILENO, data, n) < 0)
        return og_err_set(err, OG_EIO, "cannot write to standard output: %s",
                          strerror(errno));
    return 0;
}

int og__print_str(og_str *s) {
    og_err err = OG_ERR_INIT;
    int rc = s->oom ? og_err_set(&err, OG_ENOMEM, "out of memory")
                    : og__write_stdout(s->data ? s->data : "", s->len, &err);
    og_str_free(s);
    return rc < 0 ? og__report(&err) : OG__EXIT_OK;
}

static int add_json(const char *text, size_t n, void *out) {
    og_str_addn(out, text, n);
    return ((og_str *)out)->oom ? -1 : 0;
}

int og__print_json(json_t *j) {
    og_str s = OG_STR_INIT;
    if (!j || json_dump_callback(j, add_json, &s, JSON_INDENT(2)) < 0) s.oom = 1;
    json_decref(j);
    og_str_add(&s, "\n");
    return og__print_str(&s);
}
