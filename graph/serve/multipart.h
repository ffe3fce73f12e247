/* multipart/form-data (RFC 7578) in a body that is all there.
 *
 *     og__multipart m;
 *     rc = og__multipart_open(&m, c->content_type, c->body.data, c->body.len, &err);
 *     while (rc == 0 && (rc = og__multipart_next(&m, &part, &err)) > 0) use(&part);
 *
 * Strict: what is not as the RFC has it is refused with OG_EREJECT and the reason. Nothing is
 * copied but names; a part's data are bytes of the body. */
#ifndef OG_SERVE_MULTIPART_H
#define OG_SERVE_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/base/err.h"

#define OG__PARTS_MAX 32
#define OG__BOUNDARY_MAX 70 /* of the RFC */

typedef struct og__multipart {
    const char *at, *end;
    char mark[OG__BOUNDARY_MAX + 8]; /* "\r\n--boundary" */
    size_t n_mark;
    int parts;
} og__multipart;

typedef struct og__part {
    char name[128], filename[256], type[128]; /* "" where not given */
    const char *data;
    size_t n;
} og__part;

OG_MUST_CHECK int og__multipart_open(og__multipart *m, const char *content_type,
                                     const char *data, size_t n, og_err *err);
/* 1: a part; 0: no more; OG_EREJECT, after which nothing more can be read. */
OG_MUST_CHECK int og__multipart_next(og__multipart *m, og__part *p, og_err *err);

#endif
