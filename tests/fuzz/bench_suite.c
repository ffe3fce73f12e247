/* A performance suite: read, its servers' command lines made, its baselines judged. */
#include <sys/mman.h>
#include <unistd.h>

#include "graph/cli/bench/suite.h"
#include "tests/fuzz/fuzz.h"

static const char *overlay(void *user, const char *name) {
    (void)user;
    return name[0] == 'm' ? NULL : "overlay.yaml";
}

static void look(og_arena *arena, const og__suite *s, const json_t *result) {
    static const og__serve_how how = {.overlay = overlay},
                               one = {.one_device = true, overlay, 0};
    og__judged judged[OG__JUDGED_MAX];
    for (int i = 0; i < s->n_entries; i++) {
        og__serve_line line;
        og_err err = OG_ERR_INIT;
        if (og__suite_serve_line(arena, &s->entries[i], i % 2 ? &how : &one, &line,
                                 &err) < 0 &&
            !err.msg[0])
            abort();
    }
    for (int i = 0; i < s->n_runs; i++)
        og__suite_judge(&s->runs[i], "H100", i % 2 ? result : NULL, 0.1, judged);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int fd = memfd_create("suite", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    og_arena *arena = og_arena_create();
    json_t *result = json_pack("{s:i, s:f}", "completed", 3, "audio_throughput", 2.0);
    og__suite s;
    og_str warnings = OG_STR_INIT;
    og_err err = OG_ERR_INIT;
    int rc = og__suite_load(arena, path, &s, &warnings, &err);
    if (rc != err.code || (rc < 0 && !err.msg[0])) abort();
    if (rc == 0) {
        look(arena, &s, result);
        og__suite_free(&s);
    }
    json_decref(result);
    og_str_free(&warnings);
    og_arena_destroy(arena);
    close(fd);
    return 0;
}
