/* `dot`: the plan's graph as DOT text, or as a picture made by Graphviz. */
#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "graph/cli/cli.h"

extern char **environ;

static int drain(int fd, og_str *out) {
    char buf[1 << 14];
    ssize_t n;
    while ((n = read(fd, buf, sizeof buf)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        og_str_addn(out, buf, (size_t)n);
    }
    return 0;
}

static int missing(int code, og_err *err) {
    og_err_set(err, OG_EIO, "cannot run the program 'dot': %s", strerror(code));
    og_err_hint(err, "it comes with Graphviz; --format dot does without it");
    return OG_EIO;
}

/* Run `dot -Tformat` over text. The text goes in by way of a file, so that the program
 * may write while it still reads. */
static int render(const og_str *text, const char *format, og_str *out, og_err *err) {
    char flag[16];
    int fds[2], status = 0;
    pid_t pid;
    posix_spawn_file_actions_t io;
    FILE *in = tmpfile();
    if (!in || fwrite(text->data, 1, text->len, in) != text->len || fflush(in) != 0 ||
        pipe(fds) < 0) {
        if (in) fclose(in);
        return og_err_set(err, OG_EIO, "no temporary file: %s", strerror(errno));
    }
    rewind(in);
    snprintf(flag, sizeof flag, "-T%s", format);
    char *argv[] = {(char *)"dot", flag, NULL};
    posix_spawn_file_actions_init(&io);
    posix_spawn_file_actions_adddup2(&io, fileno(in), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&io, fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&io, fds[0]);
    int rc = posix_spawnp(&pid, "dot", &io, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&io);
    fclose(in);
    close(fds[1]);
    int bad = rc ? 0 : drain(fds[0], out);
    close(fds[0]);
    if (rc) return missing(rc, err);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) return missing(ENOENT, err);
    if (bad < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0 || out->oom)
        return og_err_set(err, OG_EIO, "the program 'dot' failed");
    return 0;
}

static const char *format_of(const og__args *a, const char *path) {
    const char *word = og__args_get(a, "format"), *dot = path ? strrchr(path, '.') : NULL;
    if (word) return word;
    if (dot && (!strcmp(dot, ".svg") || !strcmp(dot, ".png"))) return dot + 1;
    return "dot";
}

static int write_out(const og_plan *plan, const char *format, const char *path) {
    og_str text = OG_STR_INIT, picture = OG_STR_INIT;
    og_err err = OG_ERR_INIT;
    og_plan_dot(plan, &text);
    int rc = text.oom || !text.data ? og_err_set(&err, OG_ENOMEM, "out of memory") : 0;
    if (rc == 0 && strcmp(format, "dot")) {
        rc = render(&text, format, &picture, &err);
        og_str_free(&text);
        text = picture;
    }
    if (rc == 0)
        rc = path && strcmp(path, "-") ? og__write_file(path, text.data, text.len, &err)
                                       : og__write_stdout(text.data, text.len, &err);
    og_str_free(&text);
    return rc < 0 ? og__report(&err) : OG__EXIT_OK;
}

static int run(og__cli *cli) {
    const char *pipeline;
    og_err err = OG_ERR_INIT;
    og_plan *plan = NULL;
    int rc = og__plan_args(cli, &pipeline);
    if (rc) return rc;
    if (cli->args.help) {
        og__print_help(cli, stdout);
        return OG__EXIT_OK;
    }
    const char *path = og__args_get(&cli->args, "output");
    const char *format = format_of(&cli->args, path);
    bool standard = !path || !strcmp(path, "-");
    if (!standard && og__can_write(path, &err) < 0)
        return og__report(&err), OG__EXIT_USAGE;
    if (standard && !strcmp(format, "png") && isatty(STDOUT_FILENO))
        return og__usage(cli,
                         "no picture is written to a terminal; use -o FILE, or a pipe");
    rc = og__plan_make(cli, pipeline, OG_PLAN_CHECK_ONLY, false, NULL, &plan);
    if (rc == 0) rc = write_out(plan, format, path);
    og_plan_destroy(plan);
    return rc;
}

static const og__opt options[] = {
    {"output", 'o', OG__VALUE, "FILE", NULL, OG__FILL_FILE, false,
     "where to (default: standard output)"},
    {"format", 'f', OG__VALUE, "FORMAT", "dot|svg|png", OG__FILL_NONE, false,
     "form (default: by the file's name, else dot); svg and png need Graphviz"},
    OG__PLAN_OPTIONS,
    {0},
};

static const char *const examples[] = {
    "omni-graph dot qwen3_tts --model examples/voice -o qwen3_tts.svg",
    "omni-graph dot qwen3_tts | dot -Tpdf -o qwen3_tts.pdf",
    NULL,
};

const og__cmd og__cmd_dot = {
    .name = "dot",
    .usage = "PIPELINE [OPTIONS] [-o FILE]",
    .brief = "draw the plan's graph: types, places, replicas, chunk sizes, hooks",
    .options = options,
    .fill = OG__FILL_PIPELINE,
    .min_pos = 1,
    .max_pos = 1,
    .overlay_flags = true,
    .examples = examples,
    .run = run,
};
