/* A .safetensors file: header, names, shapes, offsets; every byte that it admits is read. */
#include "nodes/load/safetensors.h"
#include "tests/fuzz/fuzz.h"

static void look(const og_weights *w) {
    unsigned sum = 0;
    for (size_t i = 0; i < og_weights_count(w); i++) {
        const og_tensor *t = og_weights_at(w, i);
        const unsigned char *p = t->data;
        size_t n = og_tensor_bytes(t);
        if (og_weights_find(w, og_weights_name(w, i)) != t) abort();
        for (size_t k = 0; k < n; k++) sum += p[k];
    }
    volatile unsigned sink = sum;
    (void)sink;
    og_weights_fingerprint(w);
    og_weights_metadata(w, "format");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    og_weights *w = NULL;
    og_err err = OG_ERR_INIT;
    int rc = og_weights_open(fuzz_file("x.safetensors", data, size), &w, &err);
    if ((rc == 0) != (w != NULL) || rc != err.code) abort();
    if (w) look(w);
    og_weights_close(w);
    return 0;
}
