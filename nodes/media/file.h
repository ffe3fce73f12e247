/* A file that appears whole or not at all: written under a temporary name in the folder
 * of its path, then renamed. */
#ifndef OG_MEDIA_FILE_H
#define OG_MEDIA_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/base/err.h"

typedef struct og__file {
    int fd;
    char *path, *temp;
} og__file;

/* On failure *f holds nothing and no file is left. */
int og__file_create(const char *path, og__file *f, og_err *err);
/* Write n bytes at an offset, again if need be: headers learn their sizes at the end. */
int og__file_patch(og__file *f, int64_t at, const void *bytes, size_t n, og_err *err);
/* Give the file its name; on failure it is gone. Both free what f holds. */
int og__file_commit(og__file *f, og_err *err);
void og__file_abort(og__file *f);

#endif
