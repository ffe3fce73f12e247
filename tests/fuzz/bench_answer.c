/* An answer of a speech server as the bench client reads it: byte 0 says the form, the rest is
 * what comes over the wire. Whole, and byte by byte, must be the same audio. */
#include "graph/cli/bench/decode.h"
#include "graph/cli/bench/http.h"
#include "tests/fuzz/fuzz.h"

typedef struct outcome {
    int rc, status;
    long used;
    int64_t samples, bytes;
    uint64_t digest;
} outcome;

static og__decode decode; /* its buffer is used again, as the client does */

static void on_body(void *user, const char *data, size_t n) {
    double *now = user;
    og__decode_take(&decode, *now += 0.001, data, n);
}

static outcome feed(og__answer kind, const char *data, size_t n, size_t step) {
    outcome o = {0};
    og__http p;
    og__player player;
    og_err err = OG_ERR_INIT;
    double now = 0;
    og__http_init(&p);
    og__player_init(&player, 24000, 1, -50);
    og__decode_start(&decode, kind, &player);
    while (o.rc == 0 && (size_t)o.used < n && !p.done) {
        size_t left = n - (size_t)o.used, take = left < step ? left : step;
        long k = og__http_feed(&p, data + o.used, take, on_body, &now, &err);
        if (k < 0)
            o.rc = (int)k;
        else
            o.used += k;
    }
    if (o.rc == 0 && !p.done) o.rc = og__http_eof(&p, &err);
    if (o.rc == 0) o.rc = og__decode_end(&decode);
    if (o.rc != 0 && !err.msg[0] && !decode.error[0]) abort();
    o.status = p.status;
    o.samples = player.samples;
    o.bytes = decode.bytes;
    o.digest = player.digest;
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    og__answer kind = (og__answer)(data[0] % 4);
    const char *wire = (const char *)data + 1;
    outcome a = feed(kind, wire, size - 1, size), b = feed(kind, wire, size - 1, 1);
    if (a.rc != b.rc || a.status != b.status) abort();
    if (a.rc == 0 && (a.used != b.used || a.samples != b.samples || a.bytes != b.bytes ||
                      a.digest != b.digest))
        abort();
    og__decode_free(&decode);
    return 0;
}
