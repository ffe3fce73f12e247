/* The real program in a test: run it, look at its exit code and both its outputs.
 *
 *     ran r = program("version", NULL);
 *     assert_int_equal(r.code, 0);
 *     assert_has(r.out, "omni-graph");
 *     ran_free(&r);
 *
 * The binary is $OG_PROGRAM, or the one in the build folder. It runs in the source tree.
 * Include cmocka.h before this header. */
#ifndef OG_TESTS_PROGRAM_H
#define OG_TESTS_PROGRAM_H

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))
#define ARGS_MAX 64

extern char **environ;

typedef struct ran {
    int code; /* exit code, or 128 + signal */
    char *out, *err;
    size_t n_out;
} ran;

UNUSED static char *slurp(FILE *f, size_t *n) {
    size_t cap = 1 << 16, len = 0, k;
    char *s = malloc(cap);
    rewind(f);
    while ((k = fread(s + len, 1, cap - len - 1, f)) > 0) {
        len += k;
        if (cap - len < 2) s = realloc(s, cap *= 2);
    }
    s[len] = 0;
    if (n) *n = len;
    fclose(f);
    return s;
}

UNUSED static char *slurp_path(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    return slurp(f, n);
}

UNUSED static const char *binary(void) {
    const char *p = getenv("OG_PROGRAM");
    return p && *p ? p : OG_BINARY_DIR "/omni-graph";
}

/* A child at work; in is its standard input, NULL: none. */
typedef struct child {
    pid_t pid;
    FILE *out, *err;
} child;

UNUSED static child start_argv(const char *path, char **argv, const char *in) {
    child c = {.out = tmpfile(), .err = tmpfile()};
    FILE *input = tmpfile();
    posix_spawn_file_actions_t io;
    if (in) fputs(in, input);
    rewind(input);
    posix_spawn_file_actions_init(&io);
    posix_spawn_file_actions_adddup2(&io, fileno(input), 0);
    posix_spawn_file_actions_adddup2(&io, fileno(c.out), 1);
    posix_spawn_file_actions_adddup2(&io, fileno(c.err), 2);
    int rc = posix_spawn(&c.pid, path, &io, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&io);
    fclose(input);
    if (rc) fail_msg("cannot run %s: %s", path, strerror(rc));
    return c;
}

UNUSED static ran wait_for(child c) {
    int status = 0;
    while (waitpid(c.pid, &status, 0) < 0 && errno == EINTR) continue;
    ran r = {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
    r.out = slurp(c.out, &r.n_out);
    r.err = slurp(c.err, NULL);
    return r;
}

UNUSED static int collect(char **argv, va_list ap) {
    int n = 1;
    argv[0] = (char *)"omni-graph";
    for (char *a; (a = va_arg(ap, char *)) && n < ARGS_MAX - 1;) argv[n++] = a;
    argv[n] = NULL;
    return n;
}

UNUSED static ran program(const char *first, ...) {
    char *argv[ARGS_MAX] = {(char *)"omni-graph", (char *)first};
    va_list ap;
    va_start(ap, first);
    if (first) collect(argv + 1, ap);
    if (first) argv[1] = (char *)first;
    va_end(ap);
    return wait_for(start_argv(binary(), argv, NULL));
}

UNUSED static ran program_in(const char *in, const char *first, ...) {
    char *argv[ARGS_MAX] = {(char *)"omni-graph"};
    va_list ap;
    va_start(ap, first);
    collect(argv + 1, ap);
    argv[1] = (char *)first;
    va_end(ap);
    return wait_for(start_argv(binary(), argv, in));
}

UNUSED static void ran_free(ran *r) {
    free(r->out);
    free(r->err);
}

UNUSED static void has(const char *text, const char *part, const char *file, int line) {
    if (text && strstr(text, part)) return;
    print_error("%s:%d: '%s' is not in:\n%s\n", file, line, part,
                text ? text : "(nothing)");
    _fail(file, line);
}
#define assert_has(text, part) has(text, part, __FILE__, __LINE__)

/* Exit code, and a part of standard error; the outputs are freed. */
UNUSED static void ends(ran r, int code, const char *part, const char *file, int line) {
    if (r.code != code) {
        print_error("%s:%d: exit code %d, not %d:\n%s%s\n", file, line, r.code, code,
                    r.err, r.out);
        _fail(file, line);
    }
    has(r.err, part, file, line);
    ran_free(&r);
}
#define assert_ends(r, code, part) ends(r, code, part, __FILE__, __LINE__)

/* A folder of this process for files that tests write. */
UNUSED static const char *scratch(void) {
    static char dir[64];
    const char *root = getenv("TMPDIR");
    if (!*dir) {
        snprintf(dir, sizeof dir, "%.40s/og-cli-XXXXXX", root && *root ? root : "/tmp");
        if (!mkdtemp(dir)) fail_msg("no folder for the test: %s", strerror(errno));
    }
    return dir;
}

UNUSED static const char *in_scratch(char *buf, size_t size, const char *name) {
    snprintf(buf, size, "%s/%s", scratch(), name);
    return buf;
}

UNUSED static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    if (!f) fail_msg("cannot write %s", path);
    fputs(text, f);
    fclose(f);
}

UNUSED static int exists(const char *path) {
    return access(path, F_OK) == 0;
}

UNUSED static int enter_source_tree(void **state) {
    (void)state;
    return chdir(OG_SOURCE_DIR);
}

UNUSED static int remove_scratch(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", scratch());
    return system(command) == 0 ? 0 : -1;
}

#endif
