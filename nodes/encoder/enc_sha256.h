/* SHA-256 (FIPS 180-4), for keys that nobody can make collide: a result that is found by the
 * hash of its input must not be another speaker's.
 *
 *     og__sha256 s;
 *     og__sha256_init(&s);
 *     og__sha256_add(&s, samples, n * sizeof *samples);
 *     og__sha256_end(&s, key);
 */
#ifndef OG_ENC_SHA256_H
#define OG_ENC_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct og__sha256 {
    uint32_t h[8];
    uint64_t bytes;
    unsigned char block[64];
} og__sha256;

void og__sha256_init(og__sha256 *s);
void og__sha256_add(og__sha256 *s, const void *data, size_t n);
void og__sha256_end(og__sha256 *s, unsigned char out[32]);

#endif
