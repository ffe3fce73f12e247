/* Golden data in a test: reference outputs stored as safetensors under tests/golden.
 *
 *     og_weights *g = golden_open("qwen3_tts/tiny-a/cv_en");
 *     og_tensor codes = golden_get(g, "codes");             // I64 [frames, groups]
 *     og_tensor wav = golden_get(g, "wav");                 // F32, maybe only its start:
 *     int64_t n = golden_i64(g, "wav_len", 0);              // the true length
 *     assert_true(golden_max_diff(&wav, mine, og_tensor_count(&wav)) <= 5e-5);
 *     og_weights_close(g);
 *
 * Everything that is not there fails the test. The data may be misaligned: read single
 * values through golden_f32 and golden_i64. Include cmocka.h before this header.
 */
#ifndef OG_TESTS_GOLDEN_H
#define OG_TESTS_GOLDEN_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "nodes/load/safetensors.h"

#define GOLDEN_UNUSED __attribute__((unused))

/* Path of a file of the source tree, in a buffer of the caller. */
GOLDEN_UNUSED static const char *source_path(char *buf, size_t size, const char *rest) {
    snprintf(buf, size, "%s/%s", OG_SOURCE_DIR, rest);
    return buf;
}

GOLDEN_UNUSED static og_weights *golden_open(const char *name) {
    char path[4096];
    og_err err = OG_ERR_INIT;
    og_weights *w = NULL;
    snprintf(path, sizeof path, "%s/tests/golden/%s.safetensors", OG_SOURCE_DIR, name);
    if (og_weights_open(path, &w, &err) < 0) fail_msg("%s", err.msg);
    return w;
}

GOLDEN_UNUSED static int golden_has(const og_weights *w, const char *name) {
    return og_weights_find(w, name) != NULL;
}

GOLDEN_UNUSED static og_tensor golden_get(const og_weights *w, const char *name) {
    const og_tensor *t = og_weights_find(w, name);
    if (!t) fail_msg("no golden array %s", name);
    return *t;
}

GOLDEN_UNUSED static float golden_f32_at(const og_tensor *t, int64_t i) {
    float v;
    assert_int_equal(t->dtype, OG_F32);
    memcpy(&v, (const char *)t->data + i * (int64_t)sizeof v, sizeof v);
    return v;
}

GOLDEN_UNUSED static int64_t golden_i64_at(const og_tensor *t, int64_t i) {
    int64_t v;
    assert_int_equal(t->dtype, OG_I64);
    memcpy(&v, (const char *)t->data + i * (int64_t)sizeof v, sizeof v);
    return v;
}

GOLDEN_UNUSED static float golden_f32(const og_weights *w, const char *name, int64_t i) {
    og_tensor t = golden_get(w, name);
    return golden_f32_at(&t, i);
}

GOLDEN_UNUSED static int64_t golden_i64(const og_weights *w, const char *name,
                                        int64_t i) {
    og_tensor t = golden_get(w, name);
    return golden_i64_at(&t, i);
}

/* Largest |a - b| over the first n values of an F32 array; infinite after any NaN. */
GOLDEN_UNUSED static double golden_max_diff(const og_tensor *t, const float *x,
                                            int64_t n) {
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)golden_f32_at(t, i) - (double)x[i]);
        if (isnan(d)) return INFINITY;
        if (d > worst) worst = d;
    }
    return worst;
}

#endif
