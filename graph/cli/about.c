/* `version` and `help`. */
#include <string.h>

#include "graph/cli/cli.h"
#include "graph/spec/schema.h"

#ifndef OG_VERSION
#define OG_VERSION "unknown"
#endif

static int version(og__cli *cli) {
    og_str s = OG_STR_INIT;
    (void)cli;
    og_str_addf(&s, "omni-graph %s\nbackends:", OG_VERSION);
    for (const char *const *b = og_device_backends(); *b; b++) og_str_addf(&s, " %s", *b);
    og_str_add(&s, "\n");
    return og__print_str(&s);
}

static int help(og__cli *cli) {
    if (cli->args.n_pos == 0) {
        og__print_overview(stdout);
        return OG__EXIT_OK;
    }
    const char *name = cli->args.pos[0], *names[16];
    og__cli about = {.arena = cli->arena, .cmd = og__cmd_find(name)};
    if (about.cmd && cli->args.n_pos > 1) {
        about.cmd = og__cmd_find_sub(about.cmd, cli->args.pos[1]);
        if (!about.cmd)
            return og__usage(cli, "there is no command '%s %s'", name, cli->args.pos[1]);
    }
    if (about.cmd) {
        og__print_help(&about, stdout);
        return OG__EXIT_OK;
    }
    int n = 0;
    for (const og__cmd *const *c = og__cmds; *c && n < 16; c++) names[n++] = (*c)->name;
    const char *best = og_near(name, names, n);
    og__usage(cli, "there is no command '%s'", name);
    return best ? og__hint("did you mean '%s'?", best) : OG__EXIT_USAGE;
}

static const og__opt no_options[] = {{0}};
static const char *const version_examples[] = {"omni-graph version", NULL};
static const char *const help_examples[] = {"omni-graph help run", NULL};

const og__cmd og__cmd_version = {
    .name = "version",
    .usage = "",
    .brief = "print the version and the backends of this binary",
    .options = no_options,
    .examples = version_examples,
    .run = version,
};

const og__cmd og__cmd_help = {
    .name = "help",
    .usage = "[COMMAND]",
    .brief = "explain a command",
    .options = no_options,
    .max_pos = 2,
    .examples = help_examples,
    .run = help,
};
