/* An audio file in memory, as it is and resampled. */
#include "nodes/media/audio.h"
#include "tests/fuzz/fuzz.h"

static void decode(const uint8_t *data, size_t size, int rate) {
    og_audio a = {0};
    og_err err = OG_ERR_INIT;
    int rc = og_audio_decode(data, size, rate, &a, &err);
    if (rc != err.code) abort();
    if (rc == 0 && (a.n <= 0 || a.rate <= 0 || (rate && a.rate != rate))) abort();
    og_audio_clear(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    decode(data, size, 0);
    decode(data, size, 24000);
    return 0;
}
