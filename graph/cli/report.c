/* Words for people, on stderr, and the exit codes that go with them. */
#include <stdarg.h>
#include <string.h>

#include "graph/cli/cli.h"

int og__usage(og__cli *cli, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fputs("error: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    cli->misused = true;
    return OG__EXIT_USAGE;
}

int og__hint(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fputs("  hint: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    return OG__EXIT_USAGE;
}

int og__exit_code(int code) {
    switch (code) {
    case OG_OK: return OG__EXIT_OK;
    case OG_EINVAL:
    case OG_ENOENT:
    case OG_ESPEC:
    case OG_ETYPE:
    case OG_ELIMIT:
    case OG_EREJECT:
    case OG_EUNSUPPORTED: return OG__EXIT_USAGE;
    case OG_ECANCELED: return OG__EXIT_SIGNAL;
    default: return OG__EXIT_FAILED;
    }
}

int og__report(const og_err *err) {
    char text[OG_ERR_FILE_MAX + OG_ERR_MSG_MAX + 512];
    og_err e = *err;
    if (!e.msg[0]) snprintf(e.msg, sizeof e.msg, "%s", og_strerror(e.code));
    og_err_format(&e, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    size_t n = strlen(e.field);
    if (n && (strncmp(e.msg, e.field, n) || e.msg[n] != ':'))
        fprintf(stderr, "  field: %s\n", e.field);
    return og__exit_code(e.code);
}

void og__print_diags(const og_diags *d, og_severity least) {
    og_str s = OG_STR_INIT;
    if (least == OG_SEVERITY_NOTE)
        og_diags_print(d, &s);
    else
        for (int i = 0; i < og_diags_count(d); i++)
            if (og_diags_at(d, i)->severity >= least) og_diags_print_one(d, i, &s);
    if (s.data) fputs(s.data, stderr);
    og_str_free(&s);
}
