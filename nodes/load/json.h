/* Strict JSON files: bounded in size and depth, repeated keys refused.
 *
 *     json_t *root = og_json_load("dir/config.json", OG_MODEL_MAX_CONFIG, 64, err);
 *     ...
 *     json_decref(root);
 */
#ifndef OG_LOAD_JSON_H
#define OG_LOAD_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "kernels/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parse text. name stands in messages, with the line. NULL on failure: OG_EFORMAT, or
 * OG_ELIMIT beyond max_depth. The result is the caller's (json_decref). */
json_t *og_json_parse(const char *name, const char *text, size_t len, int max_depth,
                      og_err *err);
/* Read and parse a file of at most max_bytes. OG_ENOENT when it is not there. */
json_t *og_json_load(const char *path, size_t max_bytes, int max_depth, og_err *err);
/* Read a whole file; *text is the caller's (og_free), with a NUL after its *len bytes. */
int og_file_read(const char *path, size_t max_bytes, char **text, size_t *len,
                 og_err *err) OG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
