/* The program: commands, their options, and what they share.
 *
 * A command is a const og__cmd: its options, words and examples are data, from which the
 * parser, --help and the completion scripts are made. Its function gets an og__cli and
 * returns the exit code of the process. One thread; everything a command allocates in
 * passing lies in cli->arena and dies with the process's single call to main.
 *
 *     const char *model = og__args_get(&cli->args, "model");
 *     if (!model) return og__usage(cli, "which checkpoint?");
 */
#ifndef OG_CLI_H
#define OG_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "graph/compile/plan.h"
#include "kernels/base/alloc.h"
#include "kernels/base/err.h"

/* Exit codes of the process. */
enum {
    OG__EXIT_OK = 0,
    OG__EXIT_FAILED = 1, /* a run that failed, files that differ */
    OG__EXIT_USAGE = 2,  /* bad usage, bad specification, a request that is refused */
    OG__EXIT_SIGNAL = 130
};

/* ---- options ------------------------------------------------------------------ */

typedef enum og__opt_kind {
    OG__SWITCH, /* --greedy */
    OG__VALUE,  /* --model DIR, --model=DIR */
    OG__BOOL    /* --non-streaming-mode, ... true, ...=false; --no-... is false */
} og__opt_kind;

/* What completion offers for a value or a positional argument. */
typedef enum og__fill {
    OG__FILL_NONE,
    OG__FILL_FILE,
    OG__FILL_DIR,
    OG__FILL_PIPELINE,
    OG__FILL_NAME /* whatever `inspect` knows */
} og__fill;

typedef struct og__opt {
    const char *name; /* long form, without its dashes */
    char letter;      /* short form, 0: none */
    og__opt_kind kind;
    const char *arg;   /* of a value, as help shows it: "DIR" */
    const char *words; /* "a|b|c": the only values; NULL: any */
    og__fill fill;
    bool many; /* may be given several times */
    const char *doc;
} og__opt;

typedef struct og__cli og__cli;

typedef struct og__cmd {
    const char *name;
    const char *usage;           /* what follows the command's name */
    const char *brief, *doc;     /* one line; paragraphs, or NULL */
    const og__opt *options;      /* ends with a NULL name */
    const char *words;           /* "a|b": first positional argument, for completion */
    og__fill fill;               /* of positional arguments */
    int min_pos, max_pos;        /* number of positional arguments */
    bool overlay_flags;          /* any key of the overlay is an option too */
    bool fields;                 /* request fields of the pipeline are options too */
    const char *const *examples; /* command lines, NULL-ended */
    int (*run)(og__cli *cli);
    /* Commands behind this one's name ("bench serve"), NULL-ended; NULL: none. Such a
     * command has neither options nor a run of its own. */
    const struct og__cmd *const *subs;
} og__cmd;

typedef enum og__origin {
    OG__FROM_COMMAND,
    OG__FROM_FIELDS,
    OG__FROM_OVERLAY
} og__origin;

typedef struct og__given {
    const og__opt *opt;
    const char *value; /* NULL: a switch, or a bool without a value */
    og__origin origin;
} og__given;

typedef struct og__args {
    og__given *given; /* in the order of the command line */
    const char **pos;
    int n_given, n_pos;
    bool help; /* -h or --help stood among them */
} og__args;

struct og__cli {
    og_arena *arena;
    const og__cmd *cmd;
    int argc; /* behind the command's name */
    char **argv;
    og__args args;
    const og__opt *fields;  /* request fields as options, NULL-ended; NULL: not known */
    const og__opt *overlay; /* keys of the overlay as options, likewise */
    bool misused;           /* og__usage has spoken */
};

extern const og__cmd *const og__cmds[]; /* NULL-ended */
const og__cmd *og__cmd_find(const char *name);
/* The command behind cmd's name: "serve" of "bench". NULL: there is none. */
const og__cmd *og__cmd_find_sub(const og__cmd *cmd, const char *word);

/* Parse cli->argv into cli->args. loose: options that are not known are passed over
 * (their value too, if it looks like one), for a first look at the pipeline's name. 0,
 * or OG__EXIT_USAGE after a message on stderr. */
int og__args_parse(og__cli *cli, bool loose);
/* The last value given to an option ("" for a switch), NULL when it was not given.
 * Looks at the command's own options only. */
const char *og__args_get(const og__args *a, const char *name);
bool og__args_has(const og__args *a, const char *name);
/* All values of an option, in order; *n is their number. NULL when out of memory. */
const char *const *og__args_all(og__cli *cli, const char *name, int *n);
/* An option's number within bounds. 0 and *out as it was when it was not given;
 * OG__EXIT_USAGE after a message. */
int og__args_int(og__cli *cli, const char *name, long long min, long long max,
                 long long *out);
/* Whether value is one of "a|b|c". */
bool og__word_in(const char *words, const char *value);
/* Overlay keys as options, from the one table of keys. NULL when out of memory. */
const og__opt *og__overlay_options(og_arena *arena);
/* Request fields of a pipeline as options. NULL when out of memory. */
const og__opt *og__field_options(og_arena *arena, const og_pipeline *p);

/* ---- messages ----------------------------------------------------------------- */

/* "error: ..." on stderr; main points at --help in the end. Returns OG__EXIT_USAGE. */
int og__usage(og__cli *cli, const char *fmt, ...) OG_PRINTF(2, 3);
/* A hint below the message just written. Returns OG__EXIT_USAGE. */
int og__hint(const char *fmt, ...) OG_PRINTF(1, 2);
/* Print an error, with the field that it is about. Returns the exit code that fits it. */
int og__report(const og_err *err);
/* The exit code for an OG_E* code. */
int og__exit_code(int code);
/* All messages on stderr; those below `least` are left out. */
void og__print_diags(const og_diags *d, og_severity least);

void og__print_help(const og__cli *cli, FILE *to);
void og__print_overview(FILE *to);
/* Append one option as help shows it: "-o, --output FILE". */
void og__opt_text(const og__opt *o, og_str *out);

/* ---- files -------------------------------------------------------------------- */

/* Where pipelines, hooks, overlays and the default checkpoint lie. $OG_DATA_DIR alone
 * if it is set; else the current folder, what was installed beside the program
 * (PREFIX/share/omni-graph), and the source tree of a program that was not installed. */
typedef struct og__data {
    const char *pipelines[4], *scripts[5], *deploy[4];
    int n_pipelines, n_scripts, n_deploy;
    const char *model; /* the default checkpoint, NULL when there is none */
} og__data;
/* pipeline (may be NULL): of a path, ../scripts/lua beside its folder comes first. */
void og__data_find(og_arena *arena, const char *pipeline, og__data *out);
/* Names of the pipelines in all of these folders, sorted. Returns how many, at most
 * max. */
int og__pipeline_names(og_arena *arena, const char **names, int max);
/* Load what names a pipeline, only to look at it. NULL after messages on stderr. */
og_pipeline *og__pipeline_open(og__cli *cli, const char *name);

/* Whether a file could be made at path: 0, or OG_ENOENT / OG_EINVAL / OG_EIO. */
int og__can_write(const char *path, og_err *err);
/* A whole file: it appears under its name complete, or not at all. */
int og__write_file(const char *path, const char *data, size_t n, og_err *err);
/* A file, or standard input for "-", appended to out. */
int og__read_file(const char *path, og_str *out, og_err *err);
/* Text of an argument: itself, the file behind '@', or stdin for "-". NULL: see err. */
const char *og__read_text(og_arena *arena, const char *arg, og_err *err);
/* Write to stdout and flush; OG_EIO when nobody reads any more. */
int og__write_stdout(const char *data, size_t n, og_err *err);
/* og__write_stdout of a string that is then freed, or the message that it failed. */
int og__print_str(og_str *s);
/* The same for JSON, indented, which is taken over. NULL counts as out of memory. */
int og__print_json(json_t *j);

/* ---- plans -------------------------------------------------------------------- */

/* Options of every command that makes a plan. */
#define OG__PLAN_OPTIONS                                                                 \
    {"model", 'm', OG__VALUE, "DIR", NULL, OG__FILL_DIR, false, "checkpoint folder"},    \
        {"deploy", 'd',           OG__VALUE, "FILE",                                     \
         NULL,     OG__FILL_FILE, false,     "overlay: where and how it runs"},  \
        OG__PLAN_OPTIONS_MORE

#define OG__PLAN_OPTIONS_MORE \
        {"set",     's',                                                                 \
         OG__VALUE, "STAGE.KEY=VALUE",                                                   \
         NULL,      OG__FILL_NONE,                                                       \
         true,      "an overlay key of a stage, or of the root (async_chunk=false)"},    \
        {"stage-overrides",                                                              \
         0,                                                                              \
         OG__VALUE,                                                                      \
         "JSON",                                                                         \
         NULL,                                                                           \
         OG__FILL_NONE,                                                                  \
         false,                                                                          \
         "overlay keys by stage: {\"talker\": {\"max_num_seqs\": 4}}"},                  \
        {"threads", 't',                                                                 \
         OG__VALUE, "N",                                                                 \
         NULL,      OG__FILL_NONE,                                                       \
         false,     "threads of the CPU backend (default: all cores)"},                  \
        {"backend",      0,                                                              \
         OG__VALUE,      "NAME",                                                         \
         "ref|cpu|cuda", OG__FILL_NONE,                                                  \
         false,          "of stages whose overlay names none (default: cpu)"},           \
        {"load-format", 0,                                                               \
         OG__VALUE,     "FORMAT",                                                        \
         "auto|dummy",  OG__FILL_NONE,                                                   \
         false,         "dummy: made-up weights, only the configs are read"},            \
        {"greedy",   0,                                                                  \
         OG__SWITCH, NULL,                                                               \
         NULL,       OG__FILL_NONE,                                                      \
         false,      "no sampling in any stage"},                                        \
    {                                                                                    \
        "max-tokens", 0, OG__VALUE, "N", NULL, OG__FILL_NONE, false,                     \
            "bound on what each decoder makes"                                           \
    }

/* First look (pipeline's fields), then the strict parse: every command with a PIPELINE
 * calls this first. 0, or an exit code; *pipeline is the first positional argument. */
int og__plan_args(og__cli *cli, const char **pipeline);
/* Overlay keys among the options as flags (room for args.n_given). Their number, or -1
 * when out of memory. */
int og__key_flags(og__cli *cli, og_overlay_flag *flags);
/* What a plan is made of, by the options of the command line; it lies in the arena. 0, or an
 * exit code. */
int og__plan_options(og__cli *cli, const char *pipeline, bool default_model,
                     og_plan_options *out);
/* Compile. Messages are printed unless diags are wanted back. default_model: use the
 * embedded checkpoint when none is named. 0, or an exit code. */
int og__plan_make(og__cli *cli, const char *pipeline, int flags, bool default_model,
                  og_diags *diags, og_plan **out);

/* ---- commands ----------------------------------------------------------------- */

extern const og__cmd og__cmd_run, og__cmd_serve, og__cmd_check, og__cmd_dot, og__cmd_schema,
    og__cmd_inspect, og__cmd_hook, og__cmd_voice, og__cmd_bench, og__cmd_completion,
    og__cmd_version, og__cmd_help;
extern const og__cmd og__cmd_bench_serve, og__cmd_bench_suite;

/* inspect diff A B. */
int og__diff(og__cli *cli, const char *a, const char *b);

#endif
