#include "nodes/media/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/alloc.h"

#define MAX_TRIES 1000 /* names for a temporary file */

static void release(og__file *f) {
    if (f->fd >= 0) close(f->fd);
    og_free(f->temp);
    og_free(f->path);
    *f = (og__file){.fd = -1};
}

/* A name that nobody else has. Not mkstemp: its files are private, and widening them
 * would mean to change the umask of all threads for a moment. */
static int open_temp(const char *path, og__file *f) {
    for (unsigned i = 0; i < MAX_TRIES; i++) {
        og_str temp = OG_STR_INIT;
        og_str_addf(&temp, "%s.%ld-%u.tmp", path, (long)getpid(), i);
        if (temp.oom) {
            og_str_free(&temp);
            return OG_ENOMEM;
        }
        f->fd = open(temp.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (f->fd >= 0) {
            f->temp = temp.data;
            return 0;
        }
        og_str_free(&temp);
        if (errno != EEXIST) break;
    }
    return OG_EIO;
}

int og__file_create(const char *path, og__file *f, og_err *err) {
    struct stat st;
    *f = (og__file){.fd = -1};
    /* Renaming over a device or a pipe would replace it. */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return og_err_set(err, OG_EIO, "cannot write %s: not a regular file", path);
    f->path = og_strdup(path);
    int rc = f->path ? open_temp(path, f) : OG_ENOMEM;
    int why = errno;
    if (rc == 0) return 0;
    release(f);
    if (rc == OG_ENOMEM) return og_err_set(err, rc, "no memory to write %s", path);
    return og_err_set(err, rc, "cannot write %s: %s", path, strerror(why));
}

static int failed(const og__file *f, og_err *err) {
    return og_err_set(err, OG_EIO, "cannot write %s: %s", f->path, strerror(errno));
}

int og__file_patch(og__file *f, int64_t at, const void *bytes, size_t n, og_err *err) {
    const char *p = bytes;
    while (n) {
        ssize_t did = pwrite(f->fd, p, n, (off_t)at);
        if (did < 0 && errno == EINTR) continue;
        if (did < 0) return failed(f, err);
        p += did;
        at += did;
        n -= (size_t)did;
    }
    return 0;
}

int og__file_commit(og__file *f, og_err *err) {
    int rc = 0;
    if (close(f->fd) < 0) rc = failed(f, err);
    f->fd = -1;
    if (rc == 0 && rename(f->temp, f->path) < 0) rc = failed(f, err);
    if (rc < 0) unlink(f->temp);
    release(f);
    return rc;
}

void og__file_abort(og__file *f) {
    if (f->temp) unlink(f->temp);
    release(f);
}
