/* `completion`: scripts for bash and zsh, written from the same tables as the parser.
 * What depends on the machine (pipelines, and the fields of one) the scripts ask the
 * program for. */
#include <string.h>

#include "graph/cli/cli.h"

#define NAMES_MAX 512
#define COMMANDS_MAX 32

/* All commands, and those behind another's name right after it; NULL-ended. */
static void flatten(const og__cmd *all[COMMANDS_MAX + 1]) {
    int n = 0;
    for (const og__cmd *const *c = og__cmds; *c && n < COMMANDS_MAX; c++) {
        all[n++] = *c;
        for (const og__cmd *const *sub = (*c)->subs; sub && *sub && n < COMMANDS_MAX; sub++)
            all[n++] = *sub;
    }
    all[n] = NULL;
}

static void spaced(const char *words, og_str *out) {
    for (const char *w = words; w && *w; w++) og_str_addn(out, *w == '|' ? " " : w, 1);
}

/* Text inside single quotes; the brackets and colons that zsh gives a meaning are
 * escaped. */
static void quoted(const char *text, bool zsh, og_str *out) {
    for (const char *c = text ? text : ""; *c; c++) {
        if (*c == '\'') {
            og_str_add(out, "'\\''");
            continue;
        }
        if (zsh && strchr("[]:\\", *c)) og_str_add(out, "\\");
        og_str_addn(out, c, 1);
    }
}

/* ---- bash --------------------------------------------------------------------- */

static void bash_reply(const char *what, og_str *out) {
    og_str_addf(out, "COMPREPLY=($(compgen %s -- \"$cur\"))", what);
}

static void bash_value(const og__cmd *c, const og__opt *o, og_str *out) {
    if (o->kind != OG__VALUE) return;
    og_str_addf(out, "    '%s --%s'", c->name, o->name);
    if (o->letter) og_str_addf(out, " | '%s -%c'", c->name, o->letter);
    og_str_add(out, ") ");
    if (o->words) {
        og_str words = OG_STR_INIT;
        og_str_add(&words, "-W '");
        spaced(o->words, &words);
        og_str_add(&words, "'");
        bash_reply(words.data ? words.data : "", out);
        og_str_free(&words);
    } else if (o->fill == OG__FILL_DIR) {
        bash_reply("-d", out);
    } else if (o->fill == OG__FILL_FILE) {
        bash_reply("-f", out);
    } else {
        og_str_add(out, "COMPREPLY=()");
    }
    og_str_add(out, "; return ;;\n");
}

static void bash_command(const og__cmd *c, og_str *out) {
    og_str_addf(out, "    '%s')\n        options='--help", c->name);
    for (const og__opt *o = c->options; o->name; o++) og_str_addf(out, " --%s", o->name);
    og_str_add(out, "'\n        words='");
    spaced(c->words, out);
    og_str_add(out, "'\n");
    if (c->fill == OG__FILL_PIPELINE || c->fill == OG__FILL_NAME)
        og_str_add(out,
                   "        words+=\" $(omni-graph completion pipelines 2>/dev/null)\"\n"
                   "        files=yes\n");
    if (c->fields)
        og_str_add(out, "        [ \"$COMP_CWORD\" -gt 2 ] && options+=\" "
                        "$(omni-graph completion fields \"${COMP_WORDS[2]}\" "
                        "2>/dev/null)\"\n");
    og_str_add(out, "        ;;\n");
}

static void bash(og_str *out) {
    const og__cmd *flat[COMMANDS_MAX + 1];
    flatten(flat);
    og_str_add(
        out, "# bash completion for omni-graph: source this file.\n"
             "_omni_graph() {\n"
             "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
             "    local command=${COMP_WORDS[1]} options='' words='' files=''\n"
             "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        ");
    og_str all = OG_STR_INIT;
    og_str_add(&all, "-W '");
    for (const og__cmd *const *c = og__cmds; *c; c++)
        og_str_addf(&all, "%s ", (*c)->name);
    og_str_add(&all, "--help --version'");
    bash_reply(all.data ? all.data : "", out);
    og_str_free(&all);
    og_str_add(out, "\n        return\n    fi\n");
    for (const og__cmd *const *c = og__cmds; *c; c++)
        if ((*c)->subs)
            og_str_addf(out,
                        "    [ \"$command\" = %s ] && [ \"$COMP_CWORD\" -gt 2 ] &&\n"
                        "        command=\"%s ${COMP_WORDS[2]}\"\n",
                        (*c)->name, (*c)->name);
    og_str_add(out, "    case \"$command $prev\" in\n");
    for (const og__cmd *const *c = flat; *c; c++)
        for (const og__opt *o = (*c)->options; o->name; o++) bash_value(*c, o, out);
    og_str_add(out, "    esac\n    case $command in\n");
    for (const og__cmd *const *c = flat; *c; c++) bash_command(*c, out);
    og_str_add(out,
               "    esac\n"
               "    case $cur in\n"
               "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")) ;;\n"
               "    *)\n"
               "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
               "        [ -n \"$files\" ] && COMPREPLY+=($(compgen -f -- \"$cur\"))\n"
               "        ;;\n"
               "    esac\n"
               "}\n"
               "complete -o filenames -F _omni_graph omni-graph\n");
}

/* ---- zsh ---------------------------------------------------------------------- */

static void zsh_value(const og__opt *o, og_str *out) {
    if (o->kind != OG__VALUE) return;
    og_str_add(out, ":");
    quoted(o->arg, true, out);
    og_str_add(out, ":");
    if (o->words) {
        og_str_add(out, "(");
        spaced(o->words, out);
        og_str_add(out, ")");
    } else if (o->fill == OG__FILL_DIR) {
        og_str_add(out, "_files -/");
    } else if (o->fill == OG__FILL_FILE) {
        og_str_add(out, "_files");
    }
}

static void zsh_option(const og__opt *o, og_str *out) {
    og_str_add(out, " \\\n            ");
    if (o->many)
        og_str_addf(out, "'*--%s", o->name);
    else if (o->letter)
        og_str_addf(out, "'(-%c --%s)'{-%c,--%s}'", o->letter, o->name, o->letter,
                    o->name);
    else
        og_str_addf(out, "'--%s", o->name);
    og_str_add(out, "[");
    quoted(o->doc, true, out);
    og_str_add(out, "]");
    zsh_value(o, out);
    og_str_add(out, "'");
}

static void zsh_positional(const og__cmd *c, og_str *out) {
    if (c->fill == OG__FILL_PIPELINE) {
        og_str_add(out, " \\\n            '1:pipeline:_omni_graph_pipelines'");
    } else if (c->words) {
        og_str_add(out, " \\\n            '1:what:{compadd ");
        spaced(c->words, out);
        if (c->fill == OG__FILL_NAME) og_str_add(out, "; _omni_graph_pipelines");
        og_str_add(out, "}'");
    }
    if (c->max_pos > 1 && c->fill != OG__FILL_NONE)
        og_str_add(out, " \\\n            '*:file:_files'");
}

static void zsh(og_str *out) {
    const og__cmd *flat[COMMANDS_MAX + 1];
    flatten(flat);
    og_str_add(
        out,
        "#compdef omni-graph\n"
        "# zsh completion for omni-graph: put this file into $fpath as _omni-graph.\n"
        "_omni_graph_pipelines() {\n"
        "    local -a names\n"
        "    names=(${(f)\"$(omni-graph completion pipelines 2>/dev/null)\"})\n"
        "    compadd -a names\n"
        "    _files -g '*.yaml'\n"
        "}\n"
        "_omni-graph() {\n"
        "    local -a commands fields\n"
        "    commands=(\n");
    for (const og__cmd *const *c = og__cmds; *c; c++) {
        og_str_addf(out, "        '%s:", (*c)->name);
        quoted((*c)->brief, true, out);
        og_str_add(out, "'\n");
    }
    og_str_add(out, "    )\n"
                    "    if (( CURRENT == 2 )); then\n"
                    "        _describe command commands\n"
                    "        return\n"
                    "    fi\n"
                    "    shift words\n"
                    "    (( CURRENT-- ))\n");
    for (const og__cmd *const *c = og__cmds; *c; c++)
        if ((*c)->subs)
            og_str_addf(out,
                        "    if [[ $words[1] == %s ]] && (( CURRENT > 2 )); then\n"
                        "        shift words\n"
                        "        (( CURRENT-- ))\n"
                        "        words[1]=\"%s $words[1]\"\n"
                        "    fi\n",
                        (*c)->name, (*c)->name);
    og_str_add(out, "    case $words[1] in\n");
    for (const og__cmd *const *c = flat; *c; c++) {
        og_str_addf(out, "    '%s')\n", (*c)->name);
        if ((*c)->fields)
            og_str_add(
                out,
                "        [[ -n $words[2] && $words[2] != -* ]] && fields=(\n"
                "            ${(f)\"$(omni-graph completion fields $words[2] "
                "2>/dev/null)\"})\n"
                "        fields=(${^fields}'[field of the request]:value:_files')\n");
        og_str_addf(out, "        _arguments%s", (*c)->fields ? " $fields" : "");
        for (const og__opt *o = (*c)->options; o->name; o++) zsh_option(o, out);
        og_str_add(out, " \\\n            '(-h --help)'{-h,--help}'[this text]'");
        zsh_positional(*c, out);
        og_str_add(out, "\n        ;;\n");
    }
    og_str_add(out, "    esac\n"
                    "}\n"
                    "_omni-graph \"$@\"\n");
}

/* ---- what the scripts ask ----------------------------------------------------- */

static void pipelines(og__cli *cli, og_str *out) {
    const char *names[NAMES_MAX];
    int n = og__pipeline_names(cli->arena, names, NAMES_MAX);
    for (int i = 0; i < n; i++) og_str_addf(out, "%s\n", names[i]);
}

static int fields(og__cli *cli, og_str *out) {
    if (cli->args.n_pos < 2) return og__usage(cli, "fields of which pipeline?");
    og_pipeline *p = og__pipeline_open(cli, cli->args.pos[1]);
    if (!p) return OG__EXIT_USAGE;
    const og__opt *o = og__field_options(cli->arena, p);
    for (; o && o->name; o++) og_str_addf(out, "--%s\n", o->name);
    og_pipeline_destroy(p);
    return 0;
}

static int run(og__cli *cli) {
    const char *what = cli->args.pos[0];
    og_str s = OG_STR_INIT;
    int rc = 0;
    if (!strcmp(what, "bash"))
        bash(&s);
    else if (!strcmp(what, "zsh"))
        zsh(&s);
    else if (!strcmp(what, "pipelines"))
        pipelines(cli, &s);
    else if (!strcmp(what, "fields"))
        rc = fields(cli, &s);
    else
        rc = (og__usage(cli, "there is no completion for '%s'", what),
              og__hint("it is one of bash, zsh, pipelines, fields"));
    if (rc == 0) return og__print_str(&s);
    og_str_free(&s);
    return rc;
}

static const og__opt options[] = {{0}};

static const char *const examples[] = {
    "source <(omni-graph completion bash)",
    "omni-graph completion zsh > ~/.zfunc/_omni-graph",
    NULL,
};

const og__cmd og__cmd_completion = {
    .name = "completion",
    .usage = "bash|zsh",
    .brief = "print the completion script of a shell",
    .doc =
        "The scripts ask the program for 'completion pipelines' and 'completion fields "
        "PIPELINE'.",
    .options = options,
    .words = "bash|zsh",
    .min_pos = 1,
    .max_pos = 2,
    .examples = examples,
    .run = run,
};
