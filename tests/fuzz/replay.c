/* Runs the corpus of a target once, without libFuzzer: what was found stays found. */
#include <dirent.h>
#include <sys/stat.h>

#include "kernels/base/alloc.h"
#include "tests/fuzz/fuzz.h"

#define INPUT_MAX (1 << 20)

static int run(const char *path) {
    static uint8_t data[INPUT_MAX];
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &st) < 0 || !S_ISREG(st.st_mode)) {
        if (f) fclose(f);
        return 0;
    }
    size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    /* A block of its own size, so that a sanitizer sees what is read behind it. */
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy) abort();
    memcpy(copy, data, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    return 1;
}

int main(int argc, char **argv) {
    const char *dir = argc > 1 ? argv[1] : OG_CORPUS;
    DIR *list = opendir(dir);
    int n = 0;
    if (!list) {
        fprintf(stderr, "no folder %s\n", dir);
        return 1;
    }
    for (struct dirent *e; (e = readdir(list));) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        n += run(path);
    }
    closedir(list);
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    long live = og_alloc_live();
    if (live) fprintf(stderr, "%ld blocks were not freed\n", live);
    printf("%d inputs\n%d passed, %d failed\n", n, !live, live != 0);
    return n == 0 || live != 0;
}
