/* `schema`: the keys of pipeline and overlay files, for editors and for people. */
#include <string.h>

#include "graph/cli/cli.h"
#include "graph/spec/schema.h"

static int run(og__cli *cli) {
    const char *what = cli->args.pos[0];
    if (!og__word_in("pipeline|overlay", what)) {
        og__usage(cli, "there is no schema '%s'", what);
        return og__hint("it is one of pipeline, overlay");
    }
    og_schema schema = *what == 'p' ? OG_SCHEMA_PIPELINE : OG_SCHEMA_OVERLAY;
    og_str s = OG_STR_INIT;
    if (og__args_has(&cli->args, "markdown"))
        og_schema_markdown(schema, &s);
    else
        og_schema_json(schema, &s);
    if (s.len && s.data[s.len - 1] != '\n') og_str_add(&s, "\n");
    return og__print_str(&s);
}

static const og__opt options[] = {
    {"markdown", 0, OG__SWITCH, NULL, NULL, OG__FILL_NONE, false,
     "a page with every key instead of the JSON Schema"},
    {0},
};

static const char *const examples[] = {
    "omni-graph schema pipeline > pipeline.schema.json",
    "omni-graph schema overlay --markdown",
    NULL,
};

const og__cmd og__cmd_schema = {
    .name = "schema",
    .usage = "pipeline|overlay [--markdown]",
    .brief = "print the JSON Schema of pipeline or overlay files",
    .doc = "In an editor with a YAML language server, the first line\n"
           "# yaml-language-server: $schema=pipeline.schema.json\n"
           "then completes and checks the file.",
    .options = options,
    .words = "pipeline|overlay",
    .min_pos = 1,
    .max_pos = 1,
    .examples = examples,
    .run = run,
};
