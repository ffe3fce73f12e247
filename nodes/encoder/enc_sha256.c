#include "nodes/encoder/enc_sha256.h"

#include <string.h>

/* Fractional parts of the cube roots of the first 64 primes. */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2};

static uint32_t rotate(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static void expand(uint32_t w[64], const unsigned char *p) {
    for (int i = 0; i < 16; i++, p += 4)
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
}

/* One round; the caller renames the eight variables instead of moving them. */
#define ROUND(a, b, c, d, e, f, g, h, i)                                               \
    do {                                                                               \
        uint32_t t = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +              \
                     ((e & f) ^ (~e & g)) + K[i] + w[i];                               \
        d += t;                                                                        \
        h = t + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +                       \
            ((a & b) ^ (a & c) ^ (b & c));                                             \
    } while (0)

static void block(og__sha256 *s, const unsigned char *p) {
    uint32_t w[64], a = s->h[0], b = s->h[1], c = s->h[2], d = s->h[3], e = s->h[4],
                    f = s->h[5], g = s->h[6], h = s->h[7];
    expand(w, p);
    for (int i = 0; i < 64; i += 8) {
        ROUND(a, b, c, d, e, f, g, h, i);
        ROUND(h, a, b, c, d, e, f, g, i + 1);
        ROUND(g, h, a, b, c, d, e, f, i + 2);
        ROUND(f, g, h, a, b, c, d, e, i + 3);
        ROUND(e, f, g, h, a, b, c, d, i + 4);
        ROUND(d, e, f, g, h, a, b, c, i + 5);
        ROUND(c, d, e, f, g, h, a, b, i + 6);
        ROUND(b, c, d, e, f, g, h, a, i + 7);
    }
    const uint32_t add[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++) s->h[i] += add[i];
}

void og__sha256_init(og__sha256 *s) {
    /* fractional parts of the square roots of the first 8 primes */
    static const uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->h, h, sizeof h);
    s->bytes = 0;
}

void og__sha256_add(og__sha256 *s, const void *data, size_t n) {
    const unsigned char *p = data;
    while (n > 0) {
        size_t at = s->bytes % 64, take = 64 - at < n ? 64 - at : n;
        if (take == 64) {
            block(s, p);
        } else {
            memcpy(s->block + at, p, take);
            if (at + take == 64) block(s, s->block);
        }
        s->bytes += take;
        p += take;
        n -= take;
    }
}

void og__sha256_end(og__sha256 *s, unsigned char out[32]) {
    static const unsigned char pad[64] = {0x80};
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(s->bytes * 8 >> (56 - 8 * i));
    size_t at = s->bytes % 64;
    og__sha256_add(s, pad, at < 56 ? 56 - at : 120 - at);
    og__sha256_add(s, length, sizeof length);
    for (int i = 0; i < 32; i++) out[i] = (unsigned char)(s->h[i / 4] >> (24 - i % 4 * 8));
}
