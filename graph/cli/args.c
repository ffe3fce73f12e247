/* Command lines by table: long and short options, values behind `=` or a space, `--` for
 * the end of options, and the nearest name for one that is not there. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "graph/cli/cli.h"
#include "graph/spec/schema.h"

#define NAMES_MAX 512 /* options looked at for "did you mean" */

static const og__opt help_option = {
    .name = "help", .letter = 'h', .kind = OG__SWITCH, .doc = "this text"};

typedef struct found {
    const og__opt *opt;
    og__origin origin;
    bool negated; /* --no-NAME of a bool */
} found;

static const og__opt *in_table(const og__opt *table, const char *name, size_t len) {
    for (const og__opt *o = table; o && o->name; o++)
        if (!strncmp(o->name, name, len) && !o->name[len]) return o;
    return NULL;
}

static bool find_exact(const og__cli *cli, const char *name, size_t len, found *out) {
    const og__opt *tables[] = {cli->cmd->options, cli->fields, cli->overlay};
    *out = (found){0};
    if (len == 4 && !strncmp(name, "help", 4)) out->opt = &help_option;
    for (int i = 0; i < 3 && !out->opt; i++) {
        out->opt = in_table(tables[i], name, len);
        out->origin = (og__origin)i;
    }
    return out->opt != NULL;
}

static bool find_long(const og__cli *cli, const char *name, size_t len, found *out) {
    char dashed[128];
    if (len >= sizeof dashed) return false;
    for (size_t i = 0; i < len; i++) dashed[i] = name[i] == '_' ? '-' : name[i];
    if (find_exact(cli, dashed, len, out)) return true;
    if (len < 4 || strncmp(dashed, "no-", 3)) return false;
    out->negated = true;
    bool ok = find_exact(cli, dashed + 3, len - 3, out) && out->opt->kind == OG__BOOL;
    out->negated = ok;
    return ok;
}

static bool find_letter(const og__cli *cli, char letter, found *out) {
    *out = (found){0};
    if (letter == 'h') out->opt = &help_option;
    for (const og__opt *o = cli->cmd->options; !out->opt && o && o->name; o++)
        if (o->letter == letter) out->opt = o;
    return out->opt != NULL;
}

static int add_names(const og__opt *table, const char **names, int n) {
    for (const og__opt *o = table; o && o->name && n < NAMES_MAX; o++)
        names[n++] = o->name;
    return n;
}

static int unknown(og__cli *cli, const char *name, size_t len) {
    const char *names[NAMES_MAX];
    char text[128];
    snprintf(text, sizeof text, "%.*s", (int)(len < 127 ? len : 127), name);
    for (char *c = text; *c; c++)
        if (*c == '_') *c = '-';
    int n = add_names(cli->cmd->options, names, 0);
    n = add_names(cli->fields, names, n);
    const char *best = og_near(text, names, n);
    n = add_names(cli->overlay, names, 0);
    if (!best) best = og_near(text, names, n);
    og__usage(cli, "unknown option '--%.*s'", (int)len, name);
    if (best) return og__hint("did you mean '--%s'?", best);
    if (!cli->fields) return OG__EXIT_USAGE;
    og_str list = OG_STR_INIT;
    for (const og__opt *o = cli->fields; o->name; o++)
        og_str_addf(&list, "%s--%s", list.len ? ", " : "", o->name);
    if (list.data) og__hint("fields of this pipeline: %s", list.data);
    og_str_free(&list);
    return OG__EXIT_USAGE;
}

bool og__word_in(const char *words, const char *value) {
    size_t len = strlen(value);
    for (const char *w = words; w; w = strchr(w, '|') ? strchr(w, '|') + 1 : NULL)
        if (!strncmp(w, value, len) && (w[len] == '|' || !w[len])) return true;
    return false;
}

static const char *flag_text(const found *f, char *buf, size_t size) {
    snprintf(buf, size, "--%s", f->opt->name);
    return buf;
}

static int store(og__cli *cli, const found *f, const char *value) {
    og__args *a = &cli->args;
    char flag[160];
    if (f->opt == &help_option) {
        a->help = true;
        return 0;
    }
    if (f->opt->words && value && !og__word_in(f->opt->words, value)) {
        og_str words = OG_STR_INIT;
        for (const char *w = f->opt->words; *w; w++)
            og_str_addf(&words, *w == '|' ? ", " : "%c", *w);
        og__usage(cli, "%s cannot be '%s'", flag_text(f, flag, sizeof flag), value);
        og__hint("it is one of %s", words.data ? words.data : "");
        og_str_free(&words);
        return OG__EXIT_USAGE;
    }
    for (int i = 0; !f->opt->many && i < a->n_given; i++)
        if (a->given[i].opt == f->opt)
            return og__usage(cli, "%s is given twice", flag_text(f, flag, sizeof flag));
    a->given[a->n_given++] = (og__given){f->opt, f->negated ? "false" : value, f->origin};
    return 0;
}

static bool is_truth(const char *word) {
    return og__word_in("true|false|yes|no|on|off|True|False", word);
}

/* Value of the option at argv[*i], `inline_value` when it stood behind `=` or a
 * letter. */
static int take(og__cli *cli, const found *f, const char *inline_value, int *i) {
    char flag[160];
    const char *next = *i + 1 < cli->argc ? cli->argv[*i + 1] : NULL;
    if (f->opt->kind == OG__SWITCH || f->negated) {
        if (inline_value)
            return og__usage(cli, "%s takes no value", flag_text(f, flag, sizeof flag));
        return store(cli, f, NULL);
    }
    if (inline_value) return store(cli, f, inline_value);
    if (f->opt->kind == OG__BOOL) {
        if (next && is_truth(next)) {
            ++*i;
            return store(cli, f, next);
        }
        return store(cli, f, NULL);
    }
    if (!next) {
        og__usage(cli, "%s needs a value", flag_text(f, flag, sizeof flag));
        return og__hint("write %s %s", flag, f->opt->arg ? f->opt->arg : "VALUE");
    }
    ++*i;
    return store(cli, f, next);
}

static int take_long(og__cli *cli, bool loose, int *i) {
    const char *name = cli->argv[*i] + 2, *eq = strchr(name, '=');
    size_t len = eq ? (size_t)(eq - name) : strlen(name);
    found f;
    if (find_long(cli, name, len, &f)) return take(cli, &f, eq ? eq + 1 : NULL, i);
    if (!loose) return unknown(cli, name, len);
    const char *next = *i + 1 < cli->argc ? cli->argv[*i + 1] : NULL;
    if (!eq && next && (next[0] != '-' || !next[1])) ++*i;
    return 0;
}

/* -q, -ofile, -o file, -qo file */
static int take_letters(og__cli *cli, bool loose, int *i) {
    for (const char *c = cli->argv[*i] + 1; *c; c++) {
        found f;
        if (!find_letter(cli, *c, &f)) {
            if (loose) return 0;
            og__usage(cli, "unknown option '-%c'", *c);
            return cli->fields && strchr(cli->argv[*i], ' ')
                       ? og__hint("write --text=... for a value that begins with '-'")
                       : OG__EXIT_USAGE;
        }
        if (f.opt->kind != OG__SWITCH) {
            const char *rest = c[1] == '=' ? c + 2 : c[1] ? c + 1 : NULL;
            return take(cli, &f, rest, i);
        }
        int rc = take(cli, &f, NULL, i);
        if (rc) return rc;
    }
    return 0;
}

static int count_positionals(og__cli *cli) {
    const og__cmd *cmd = cli->cmd;
    const og__args *a = &cli->args;
    if (a->help) return 0;
    if (a->n_pos > cmd->max_pos)
        return og__usage(cli, "unexpected argument '%s'", a->pos[cmd->max_pos]);
    if (a->n_pos >= cmd->min_pos) return 0;
    og__usage(cli, "too few arguments");
    return og__hint("usage: omni-graph %s %s", cmd->name, cmd->usage);
}

int og__args_parse(og__cli *cli, bool loose) {
    og__args *a = &cli->args;
    size_t room = (size_t)cli->argc + 1;
    *a = (og__args){0};
    a->pos = og_arena_alloc(cli->arena, room * sizeof *a->pos);
    /* A cluster of letters may hold more switches than there are arguments. */
    size_t letters = 0;
    for (int i = 0; i < cli->argc; i++) letters += strlen(cli->argv[i]);
    a->given = og_arena_alloc(cli->arena, (room + letters) * sizeof *a->given);
    if (!a->given || !a->pos) return og__usage(cli, "out of memory");
    bool options = true;
    for (int i = 0, rc; i < cli->argc; i++) {
        const char *s = cli->argv[i];
        rc = 0;
        if (options && !strcmp(s, "--"))
            options = false;
        else if (options && s[0] == '-' && s[1] == '-')
            rc = take_long(cli, loose, &i);
        else if (options && s[0] == '-' && s[1])
            rc = take_letters(cli, loose, &i);
        else
            a->pos[a->n_pos++] = s;
        if (rc) return rc;
    }
    return loose ? 0 : count_positionals(cli);
}

const char *og__args_get(const og__args *a, const char *name) {
    for (int i = a->n_given - 1; i >= 0; i--)
        if (a->given[i].origin == OG__FROM_COMMAND &&
            !strcmp(a->given[i].opt->name, name))
            return a->given[i].value ? a->given[i].value : "";
    return NULL;
}

bool og__args_has(const og__args *a, const char *name) {
    return og__args_get(a, name) != NULL;
}

const char *const *og__args_all(og__cli *cli, const char *name, int *n) {
    const og__args *a = &cli->args;
    const char **all = og_arena_alloc(cli->arena, (size_t)(a->n_given + 1) * sizeof *all);
    *n = 0;
    for (int i = 0; all && i < a->n_given; i++)
        if (a->given[i].origin == OG__FROM_COMMAND &&
            !strcmp(a->given[i].opt->name, name))
            all[(*n)++] = a->given[i].value;
    return all;
}

int og__args_int(og__cli *cli, const char *name, long long min, long long max,
                 long long *out) {
    const char *text = og__args_get(&cli->args, name);
    if (!text) return 0;
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end || v < min || v > max)
        return og__usage(cli, "--%s must be a whole number from %lld to %lld, not '%s'",
                         name, min, max, text);
    *out = v;
    return 0;
}
