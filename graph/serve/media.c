/* base64, data: URLs, and bytes as a file. */
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "graph/serve/server.h"

int og__memory_file(const void *bytes, size_t n) {
    int fd = memfd_create("clip", MFD_CLOEXEC);
    size_t done = 0;
    while (fd >= 0 && done < n) {
        ssize_t k = write(fd, (const char *)bytes + done, n - done);
        if (k <= 0) break;
        done += (size_t)k;
    }
    if (fd >= 0 && done < n) {
        close(fd);
        return -1;
    }
    return fd;
}

static int digit(unsigned char ch) {
    if (ch >= 'A' && ch <= 'Z') return ch - 'A';
    if (ch >= 'a' && ch <= 'z') return ch - 'a' + 26;
    if (ch >= '0' && ch <= '9') return ch - '0' + 52;
    if (ch == '+' || ch == '-') return 62;
    if (ch == '/' || ch == '_') return 63;
    return -1;
}

static bool is_blank(char ch) {
    return ch == '\n' || ch == '\r' || ch == ' ' || ch == '\t';
}

static int decode(const char *s, og_str *out, og_err *err) {
    unsigned acc = 0;
    int bits = 0, digits = 0, pads = 0;
    for (; *s; s++) {
        if (is_blank(*s)) continue;
        if (*s == '=' && ++pads <= 2) continue;
        int d = pads ? -1 : digit((unsigned char)*s);
        if (d < 0)
            return og_err_set(err, OG_EREJECT,
                              "not base64: a stray character after %d digits", digits);
        acc = acc << 6 | (unsigned)d;
        digits++;
        bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        char byte = (char)(acc >> bits);
        og_str_addn(out, &byte, 1);
    }
    if (digits == 0) return og_err_set(err, OG_EREJECT, "holds no data");
    if (digits % 4 == 1 || (pads && (digits + pads) % 4))
        return og_err_set(err, OG_EREJECT, "not base64: %d digits are cut short", digits);
    return out->oom ? og_err_set(err, OG_ENOMEM, "out of memory") : 0;
}

int og__data_url(const char *text, og_str *out, og_err *err) {
    if (strncasecmp(text, "data:", 5) != 0) return decode(text, out, err);
    const char *comma = strchr(text, ',');
    if (!comma) return og_err_set(err, OG_EREJECT, "a data: URL without a comma");
    size_t n = (size_t)(comma - text);
    if (n < 7 || strncasecmp(comma - 7, ";base64", 7) != 0)
        return og_err_set(err, OG_EREJECT, "a data: URL that is not base64");
    return decode(comma + 1, out, err);
}

void og__base64(const void *bytes, size_t n, og_str *out) {
    static const char set[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = bytes;
    char buf[1024];
    size_t k = 0;
    for (size_t i = 0; i < n; i += 3) {
        unsigned v = (unsigned)p[i] << 16;
        if (i + 1 < n) v |= (unsigned)p[i + 1] << 8;
        if (i + 2 < n) v |= p[i + 2];
        buf[k++] = set[v >> 18];
        buf[k++] = set[v >> 12 & 63];
        buf[k++] = i + 1 < n ? set[v >> 6 & 63] : '=';
        buf[k++] = i + 2 < n ? set[v & 63] : '=';
        if (k == sizeof buf) {
            og_str_addn(out, buf, k);
            k = 0;
        }
    }
    og_str_addn(out, buf, k);
}
