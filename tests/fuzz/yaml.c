/* A pipeline file: YAML tree, keys, conditions, types, edges, bases. */
#include "graph/spec/pipeline.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const dirs[] = {OG_SOURCE_DIR "/pipelines"};
    og_diags *d = og_diags_create();
    og_pipeline *p = NULL;
    og_err err = OG_ERR_INIT;
    og_str s = OG_STR_INIT;
    int rc =
        og_pipeline_parse("fuzz.yaml", (const char *)data, size, dirs, 1, d, &p, &err);
    if ((rc == 0) != (p != NULL) || (rc < 0 && !og_diags_errors(d) && !err.msg[0]))
        abort();
    og_diags_print(d, &s);
    og_str_free(&s);
    og_pipeline_destroy(p);
    og_diags_destroy(d);
    return 0;
}
