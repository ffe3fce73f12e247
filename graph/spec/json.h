/* Writing JSON, across the files of this room. Not for others. */
#ifndef OG_SPEC_JSON_H
#define OG_SPEC_JSON_H

#include "kernels/base/alloc.h"

/* A string with its quotes. */
void og__json_string(const char *s, og_str *out);
/* A line feed and two blanks a level. */
void og__json_line(int depth, og_str *out);

#endif
