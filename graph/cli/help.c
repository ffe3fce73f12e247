/* The texts of --help and `help`, from the tables. */
#include <string.h>

#include "graph/cli/cli.h"

#define COLUMN 34 /* where the words of an option begin */
#define WIDTH 90

void og__opt_text(const og__opt *o, og_str *out) {
    if (o->letter)
        og_str_addf(out, "-%c, --%s", o->letter, o->name);
    else
        og_str_addf(out, "    --%s", o->name);
    if (o->kind == OG__VALUE) og_str_addf(out, " %s", o->arg ? o->arg : "VALUE");
}

/* Words of text from column `at` on, broken at WIDTH. The cursor stands in column
 * `col`. */
static void wrapped(const char *text, int col, int at, og_str *out) {
    while (*text) {
        int len = (int)strcspn(text, " \n");
        if (col > at && col + 1 + len > WIDTH) {
            og_str_addf(out, "\n%*s", at, "");
            col = at;
        } else if (col > at) {
            og_str_add(out, " ");
            col++;
        }
        og_str_addn(out, text, (size_t)len);
        col += len;
        text += len;
        while (*text == ' ') text++;
        if (*text == '\n') {
            og_str_addf(out, "\n%*s", at, "");
            col = at;
            text++;
        }
    }
    og_str_add(out, "\n");
}

static void row(const char *left, const char *doc, const char *words, og_str *out) {
    og_str text = OG_STR_INIT;
    og_str_add(&text, doc ? doc : "");
    if (words) {
        og_str_add(&text, " (");
        for (const char *w = words; *w; w++)
            og_str_addf(&text, *w == '|' ? ", " : "%c", *w);
        og_str_add(&text, ")");
    }
    og_str_addf(out, "  %-*s", COLUMN - 2, left);
    if (strlen(left) + 3 > COLUMN) og_str_addf(out, "\n%*s", COLUMN, "");
    wrapped(text.data ? text.data : "", COLUMN, COLUMN, out);
    og_str_free(&text);
}

static void rows(const char *title, const og__opt *table, og_str *out) {
    if (!table || !table->name) return;
    og_str_addf(out, "\n%s:\n", title);
    for (const og__opt *o = table; o->name; o++) {
        og_str left = OG_STR_INIT;
        og__opt_text(o, &left);
        row(left.data ? left.data : "", o->doc, o->words, out);
        og_str_free(&left);
    }
}

void og__print_help(const og__cli *cli, FILE *to) {
    const og__cmd *c = cli->cmd;
    og_str s = OG_STR_INIT;
    og_str_addf(&s, "usage: omni-graph %s%s%s\n\n", c->name, *c->usage ? " " : "",
                c->usage);
    wrapped(c->brief, 0, 0, &s);
    if (c->doc) {
        og_str_add(&s, "\n");
        wrapped(c->doc, 0, 0, &s);
    }
    if (c->subs) og_str_add(&s, "\ncommands:\n");
    for (const og__cmd *const *sub = c->subs; sub && *sub; sub++)
        row((*sub)->name, (*sub)->brief, NULL, &s);
    rows("options", c->options, &s);
    rows("fields of this pipeline's requests", cli->fields, &s);
    if (c->overlay_flags)
        og_str_add(&s,
                   "\nEvery key of the overlay is an option as well (--max-num-seqs 8,\n"
                   "--no-async-chunk): see 'omni-graph schema overlay --markdown'.\n");
    og_str_add(&s, c->examples[1] ? "\nexamples:\n" : "\nexample:\n");
    for (const char *const *e = c->examples; *e; e++) og_str_addf(&s, "  %s\n", *e);
    if (s.data) fputs(s.data, to);
    og_str_free(&s);
}

void og__print_overview(FILE *to) {
    og_str s = OG_STR_INIT;
    og_str_add(&s, "usage: omni-graph COMMAND [ARGUMENTS]\n\n"
                   "Runs any-to-any models described by YAML pipelines.\n\ncommands:\n");
    for (const og__cmd *const *c = og__cmds; *c; c++)
        og_str_addf(&s, "  %-12s%s\n", (*c)->name, (*c)->brief);
    og_str_add(&s, "\n'omni-graph COMMAND --help' explains a command.\n\nexample:\n"
                   "  omni-graph run qwen3_tts --text \"Good morning.\" -o out.wav\n");
    if (s.data) fputs(s.data, to);
    og_str_free(&s);
}
