/* What the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput: any bytes
 * may give an error or a result, but no crash, no leak and no hang. scripts/fuzz builds it
 * with libFuzzer; every other build links it with replay.c, which runs its corpus. */
#ifndef OG_TESTS_FUZZ_H
#define OG_TESTS_FUZZ_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_UNUSED __attribute__((unused)) static

/* Separates the parts of an input that has two: no byte of UTF-8. */
#define FUZZ_SPLIT 0xff

FUZZ_UNUSED size_t fuzz_split(const uint8_t *data, size_t size) {
    const uint8_t *at = size ? memchr(data, FUZZ_SPLIT, size) : NULL;
    return at ? (size_t)(at - data) : size;
}

FUZZ_UNUSED char fuzz_dir_path[64];

static void fuzz_remove_dir(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", fuzz_dir_path);
    if (system(command) != 0) return;
}

/* A folder in memory for files that have to be files. One a process. */
FUZZ_UNUSED const char *fuzz_dir(void) {
    if (*fuzz_dir_path) return fuzz_dir_path;
    snprintf(fuzz_dir_path, sizeof fuzz_dir_path, "%s/og-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(fuzz_dir_path)) abort();
    atexit(fuzz_remove_dir);
    return fuzz_dir_path;
}

/* Write a file of that folder; its path, in a buffer of the function's. */
FUZZ_UNUSED const char *fuzz_file(const char *name, const void *data, size_t size) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size)) abort();
    close(fd);
    return path;
}

#endif
