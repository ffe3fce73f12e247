/* multipart/form-data: the header, a byte FUZZ_SPLIT, the body. Parts lie within the body, one
 * behind the other. */
#include "graph/serve/multipart.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t at = fuzz_split(data, size), n = at < size ? size - at - 1 : 0;
    char *type = malloc(at + 1), *body = malloc(n ? n : 1);
    og__multipart m;
    og__part p;
    og_err err = OG_ERR_INIT;
    if (!type || !body) abort();
    if (at) memcpy(type, data, at);
    type[at] = 0;
    if (n) memcpy(body, data + at + 1, n);
    const char *from = body;
    int rc = og__multipart_open(&m, type, body, n, &err), parts = 0;
    while (rc == 0 && (rc = og__multipart_next(&m, &p, &err)) > 0) {
        if (p.data < from || p.n > (size_t)(body + n - p.data) || ++parts > OG__PARTS_MAX)
            abort();
        if (!memchr(p.name, 0, sizeof p.name) ||
            !memchr(p.filename, 0, sizeof p.filename) ||
            !memchr(p.type, 0, sizeof p.type))
            abort();
        from = p.data + p.n;
        rc = 0;
    }
    if ((rc < 0) != (err.code != 0)) abort();
    free(type);
    free(body);
    return 0;
}
