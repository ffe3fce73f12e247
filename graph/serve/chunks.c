/* Bodies with Transfer-Encoding: chunked. */
#include "graph/serve/server.h"

#define LINE_MAX_BYTES 256 /* of a chunk's size with its extensions */
#define TRAILER_MAX 8192   /* bytes of all trailer lines */

enum { SIZE, EXTENSION, DATA, DATA_CR, DATA_LF, TRAILER, TRAILER_LINE, LAST_LF, DONE };

static int digit(unsigned char ch) {
    if (ch >= '0' && ch <= '9') return ch - '0';
    if (ch >= 'a' && ch <= 'f') return ch - 'a' + 10;
    if (ch >= 'A' && ch <= 'F') return ch - 'A' + 10;
    return -1;
}

/* In the line of a size. */
static int in_size(og__chunks *k, unsigned char ch) {
    int d = k->state == SIZE ? digit(ch) : -1;
    if (++k->line > LINE_MAX_BYTES) return -1;
    if (d >= 0) {
        if (k->left > (INT64_MAX >> 5)) return -1;
        k->left = k->left * 16 + d;
        k->digits = true;
        return 0;
    }
    if (!k->digits) return -1;
    if (ch == '\n') {
        k->state = k->left ? DATA : TRAILER;
        k->line = 0;
    } else if (k->state == SIZE && ch != ';' && ch != '\r' && ch != ' ' && ch != '\t') {
        return -1;
    } else {
        k->state = EXTENSION;
    }
    return 0;
}

static int in_trailer(og__chunks *k, unsigned char ch) {
    if (++k->line > TRAILER_MAX) return -1;
    if (k->state == LAST_LF) {
        if (ch != '\n') return -1;
        k->state = DONE;
    } else if (k->state == TRAILER) {
        k->state = ch == '\r' ? LAST_LF : ch == '\n' ? DONE : TRAILER_LINE;
    } else if (ch == '\n') {
        k->state = TRAILER;
    }
    return 0;
}

static int one(og__chunks *k, unsigned char ch) {
    switch (k->state) {
    case SIZE:
    case EXTENSION: return in_size(k, ch);
    case DATA_CR:
        k->state = ch == '\r' ? DATA_LF : SIZE;
        break;
    case DATA_LF: k->state = SIZE; break;
    default: return in_trailer(k, ch);
    }
    if (k->state != SIZE) return 0;
    k->line = 0;
    k->digits = false;
    return ch == '\n' ? 0 : -1;
}

int og__chunks_read(og__chunks *k, const void *bytes, size_t n, size_t max, og_str *out) {
    const char *p = bytes;
    while (n && k->state != DONE) {
        if (k->state != DATA) {
            if (one(k, (unsigned char)*p++) < 0) return OG_EREJECT;
            n--;
            continue;
        }
        if (k->left > (int64_t)(max - out->len)) return OG_ELIMIT;
        size_t m = (int64_t)n < k->left ? n : (size_t)k->left;
        og_str_addn(out, p, m);
        if (out->oom) return OG_ENOMEM;
        p += m;
        n -= m;
        k->left -= (int64_t)m;
        if (k->left == 0) k->state = DATA_CR;
    }
    return k->state == DONE;
}
