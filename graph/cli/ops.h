/* One line about each op of kernels/ops.h, for `inspect`; a test holds it against the
 * header. Constant data, ends with a NULL name. */
#ifndef OG_CLI_OPS_H
#define OG_CLI_OPS_H

typedef struct og__op_doc {
    const char *name, *family, *doc; /* name without og_op_ */
} og__op_doc;

extern const og__op_doc og__op_docs[];

#endif
