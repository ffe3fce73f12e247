/* HTTPS and HTTP/2, with curl as the client and a certificate made for the test. Skipped where
 * curl or openssl is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/serve/serve_rig.h"

static char dir[64];

/* What a shell command prints; the caller's. NULL when it fails. */
static char *output_of(const char *command) {
    FILE *f = popen(command, "r");
    char *text = calloc(1, 1 << 20);
    size_t n = f ? fread(text, 1, (1 << 20) - 1, f) : 0;
    if (f && pclose(f) == 0 && n > 0) return text;
    free(text);
    return NULL;
}

static bool make_certificate(void) {
    char command[512];
    snprintf(command, sizeof command,
             "command -v curl >/dev/null && openssl req -x509 -newkey rsa:2048 -nodes -days 2 "
             "-subj /CN=localhost -keyout %s/key.pem -out %s/cert.pem 2>/dev/null",
             dir, dir);
    return system(command) == 0;
}

static char *curl(int port, const char *options) {
    char command[1024];
    snprintf(command, sizeof command,
             "curl -sk -m 30 -w ' %%{http_version} %%{http_code} %%{size_download}' "
             "https://localhost:%d%s",
             port, options);
    return output_of(command);
}

#define SPEECH "/v1/audio/speech -d '{\"input\": \"Good morning.\", \"voice\": \"rms\", \"seed\": 7"

static void test_http1_and_http2_over_tls(void **state) {
    (void)state;
    static const char *const versions[] = {"--http1.1", "--http2"}, *const ends[] = {" 1.1 200", " 2 200"};
    char cert[96], key[96], options[512];
    size_t sizes[2] = {0};
    if (!make_certificate()) {
        print_message("no curl or no openssl: not tested\n");
        skip();
    }
    snprintf(cert, sizeof cert, "%s/cert.pem", dir);
    snprintf(key, sizeof key, "%s/key.pem", dir);
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.tls_cert = cert;
    o.tls_key = key;
    served s;
    served_open(&s, NULL, &o);
    for (int i = 0; i < 2; i++) {
        snprintf(options, sizeof options, SPEECH "}' -o /dev/null %s", versions[i]);
        char *text = curl(s.port, options);
        assert_non_null(text);
        assert_non_null(strstr(text, ends[i]));
        sizes[i] = strtoul(strrchr(text, ' '), NULL, 10);
        free(text);
        snprintf(options, sizeof options, SPEECH ", \"stream\": true}' %s", versions[i]);
        text = curl(s.port, options);
        assert_non_null(text);
        assert_non_null(strstr(text, "speech.audio.done"));
        assert_non_null(strstr(text, ends[i]));
        free(text);
        snprintf(options, sizeof options, "/v1/audio/speech -d '{' %s", versions[i]);
        text = curl(s.port, options);
        assert_non_null(text);
        assert_non_null(strstr(text, "invalid_json"));
        assert_non_null(strstr(text, " 400 "));
        free(text);
    }
    assert_true(sizes[0] > 44);
    assert_int_equal(sizes[0], sizes[1]);
    wait_idle(&s, 10);
    served_close(&s);
}

static int make_dir(void **state) {
    const char *root = getenv("TMPDIR");
    (void)state;
    snprintf(dir, sizeof dir, "%.40s/og-tls-XXXXXX", root && *root ? root : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command) == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http1_and_http2_over_tls),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
