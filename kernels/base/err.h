/* Errors: one convention for every room.
 *
 * A function that can fail returns int: 0 is success, a negative OG_E* code is failure.
 * The words go into an og_err, always the last argument, filled where the knowledge is
 * and never overwritten: the first error wins. NULL is allowed where nobody reads it.
 * Library code never prints and never exits.
 *
 *     og_err err = OG_ERR_INIT;
 *     if (og_st_open(path, &file, &err) < 0) {
 *         fprintf(stderr, "%s\n", err.msg);
 *     }
 */
#ifndef OG_BASE_ERR_H
#define OG_BASE_ERR_H

#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OG_MUST_CHECK __attribute__((warn_unused_result))
#define OG_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* name, value, text */
#define OG_ERR_LIST(X)                                                   \
    X(OG_EINVAL, -1, "invalid argument")                                 \
    X(OG_ENOMEM, -2, "out of memory")                                    \
    X(OG_EIO, -3, "input/output error")                                  \
    X(OG_ENOENT, -4, "not found")                                        \
    X(OG_EFORMAT, -5, "malformed file")                                  \
    X(OG_ESPEC, -6, "invalid specification")                             \
    X(OG_ETYPE, -7, "type mismatch")                                     \
    X(OG_ESHAPE, -8, "shape mismatch")                                   \
    X(OG_ELIMIT, -9, "limit exceeded")                                   \
    X(OG_EBUSY, -10, "busy")                                             \
    X(OG_EAGAIN, -11, "try again")                                       \
    X(OG_ECANCELED, -12, "canceled")                                     \
    X(OG_EHOOK, -13, "hook failed")                                      \
    X(OG_EREJECT, -14, "request rejected")                               \
    X(OG_EUNSUPPORTED, -15, "not supported")                             \
    X(OG_EDEVICE, -16, "device error")                                   \
    X(OG_ELOST, -17, "replica lost")                                     \
    X(OG_ETIMEOUT, -18, "timed out")                                     \
    X(OG_EINTERNAL, -19, "internal error")

#define OG_ERR_ENUM(name, value, text) name = value,
enum { OG_OK = 0, OG_ERR_LIST(OG_ERR_ENUM) };
#undef OG_ERR_ENUM

/* A place in a text file. file is NULL when there is none; line and col count from 1. */
typedef struct og_src {
    const char *file; /* borrowed: outlives the object that holds the og_src */
    int line, col;
} og_src;

#define OG_ERR_FILE_MAX 256
#define OG_ERR_MSG_MAX 1024

typedef struct og_err {
    int code;                   /* 0 while nothing has been reported */
    char file[OG_ERR_FILE_MAX]; /* source position, "" when there is none */
    int line, col;
    char node[64];  /* stage or node it happened in, "" when none */
    char field[64]; /* request field or key it is about, "" when none */
    char msg[OG_ERR_MSG_MAX];
    char hint[256]; /* what to do about it, "" when there is nothing to say */
} og_err;

#define OG_ERR_INIT {0}

/* Report code with a message unless err already holds an error. Returns code. */
int og_err_set(og_err *err, int code, const char *fmt, ...) OG_PRINTF(3, 4);
int og_err_setv(og_err *err, int code, const char *fmt, va_list ap);
/* The same with a source position. */
int og_err_at(og_err *err, int code, og_src src, const char *fmt, ...) OG_PRINTF(4, 5);
/* Add a hint, a stage name or a field name to the error just reported, unless it has one. */
void og_err_hint(og_err *err, const char *fmt, ...) OG_PRINTF(2, 3);
void og_err_node(og_err *err, const char *node);
void og_err_field(og_err *err, const char *field);
void og_err_clear(og_err *err);
/* Text and name ("OG_EIO") of a code; "unknown error" for any other number. */
const char *og_strerror(int code);
const char *og_err_name(int code);

/* Write the whole report into buf: "file:line:col: error: msg" then " [node]" and
 * "\n  hint: ..." where they exist. Control characters become blanks. Returns the length
 * that was needed. */
int og_err_format(const og_err *err, char *buf, int size);

#ifdef __cplusplus
}
#endif
#endif
