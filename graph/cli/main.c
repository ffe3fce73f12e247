/* omni-graph: picks the command. */
#include <signal.h>
#include <string.h>

#include "graph/cli/cli.h"
#include "graph/spec/schema.h"

#define COMMANDS_MAX 16

const og__cmd *const og__cmds[] = {
    &og__cmd_run,     &og__cmd_serve,   &og__cmd_check,   &og__cmd_dot,
    &og__cmd_schema,  &og__cmd_inspect, &og__cmd_hook, &og__cmd_voice,
    &og__cmd_bench, &og__cmd_completion, &og__cmd_version, &og__cmd_help, NULL,
};

const og__cmd *og__cmd_find(const char *name) {
    for (const og__cmd *const *c = og__cmds; *c; c++)
        if (!strcmp((*c)->name, name)) return *c;
    return NULL;
}

const og__cmd *og__cmd_find_sub(const og__cmd *cmd, const char *word) {
    size_t n = strlen(cmd->name) + 1;
    for (const og__cmd *const *c = cmd->subs; c && *c; c++)
        if (!strcmp((*c)->name + n, word)) return *c;
    return NULL;
}

static int unknown(og__cli *cli, const char *name) {
    const char *names[COMMANDS_MAX];
    int n = 0;
    for (const og__cmd *const *c = og__cmds; *c && n < COMMANDS_MAX; c++)
        names[n++] = (*c)->name;
    const char *best = og_near(name, names, n);
    og__usage(cli, "unknown command '%s'", name);
    return best ? og__hint("did you mean '%s'?", best) : OG__EXIT_USAGE;
}

/* A command that has others behind its name, and no such one was given. */
static int which(og__cli *cli, const char *name) {
    if (name && (!strcmp(name, "--help") || !strcmp(name, "-h"))) {
        og__print_help(cli, stdout);
        return OG__EXIT_OK;
    }
    if (name)
        og__usage(cli, "there is no '%s %s'", cli->cmd->name, name);
    else
        og__usage(cli, "too few arguments");
    return og__hint("usage: omni-graph %s %s", cli->cmd->name, cli->cmd->usage);
}

static int dispatch(og__cli *cli, int argc, char **argv) {
    if (argc < 2) {
        og__print_overview(stderr);
        return OG__EXIT_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) name = "help";
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) name = "version";
    const og__cmd *cmd = og__cmd_find(name);
    if (!cmd && name[0] == '-') return og__usage(cli, "unknown option '%s'", name);
    if (!cmd) return unknown(cli, name);
    cli->cmd = cmd;
    int skip = 2;
    if (cmd->subs) {
        const og__cmd *sub = argc > 2 ? og__cmd_find_sub(cmd, argv[2]) : NULL;
        if (!sub) return which(cli, argc > 2 ? argv[2] : NULL);
        cli->cmd = cmd = sub;
        skip = 3;
    }
    cli->argc = argc - skip;
    cli->argv = argv + skip;
    /* Commands that take a pipeline parse in two steps, the second with its fields. */
    if (!cmd->overlay_flags) {
        int rc = og__args_parse(cli, false);
        if (rc) return rc;
        if (cli->args.help) {
            og__print_help(cli, stdout);
            return OG__EXIT_OK;
        }
    }
    return cmd->run(cli);
}

int main(int argc, char **argv) {
    /* A reader of our output that goes away is a failed write, not a silent death. */
    signal(SIGPIPE, SIG_IGN);
    og__cli cli = {.arena = og_arena_create()};
    if (!cli.arena) {
        fputs("error: out of memory\n", stderr);
        return OG__EXIT_FAILED;
    }
    int rc = dispatch(&cli, argc, argv);
    if (cli.misused)
        fprintf(stderr, "  see 'omni-graph %s%s--help'\n", cli.cmd ? cli.cmd->name : "",
                cli.cmd ? " " : "");
    if (fflush(stdout) != 0 && rc == 0) rc = OG__EXIT_FAILED;
    og_arena_destroy(cli.arena);
    return rc;
}
