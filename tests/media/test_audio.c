/* Audio out and in: exact headers, conversion, whole files or none. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <sndfile.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/alloc.h"
#include "nodes/media/audio.h"

static char dir[256];

static const char *in_dir(const char *name) {
    static char path[16][600];
    static int turn;
    char *p = path[turn++ % 16];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static int files_in_dir(void) {
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static og_str slurp(const char *path) {
    og_str s = OG_STR_INIT;
    char buf[4096];
    size_t n;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    while ((n = fread(buf, 1, sizeof buf, f)) > 0) og_str_addn(&s, buf, n);
    fclose(f);
    return s;
}

static void ok(int rc, const og_err *err) {
    if (rc < 0) fail_msg("%s", err->msg);
}

static int collect(void *ctx, const void *bytes, size_t n) {
    og_str_addn(ctx, bytes, n);
    return 0;
}

static const unsigned char streamed_header[] = {
    0x52, 0x49, 0x46, 0x46, 0xff, 0xff, 0xff, 0xff, 0x57, 0x41, 0x56,
    0x45, 0x66, 0x6d, 0x74, 0x20, 0x10, 0x00, 0x00, 0x00, 0x01, 0x00,
    0x01, 0x00, 0xc0, 0x5d, 0x00, 0x00, 0x80, 0xbb, 0x00, 0x00, 0x02,
    0x00, 0x10, 0x00, 0x64, 0x61, 0x74, 0x61, 0xff, 0xff, 0xff, 0xff};

static void test_b036_b037_streamed_wav(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_str s = OG_STR_INIT;
    og_audio_out *o;
    float x[480];
    for (int i = 0; i < 480; i++) x[i] = 0.5f;
    ok(og_audio_stream(OG_AUDIO_WAV, 24000, 1, collect, &s, &o, &err), &err);
    assert_int_equal(s.len, 0);
    for (int i = 0; i < 3; i++) ok(og_audio_write(o, x, 480, &err), &err);
    ok(og_audio_commit(o, &err), &err);
    assert_int_equal(s.len, 44 + 2880);
    assert_memory_equal(s.data, streamed_header, 44);
    assert_null(memmem(s.data + 1, s.len - 1, "RIFF", 4));
    og_str_free(&s);
    ok(og_audio_stream(OG_AUDIO_WAV, 24000, 1, collect, &s, &o, &err), &err);
    ok(og_audio_commit(o, &err), &err);
    assert_int_equal(s.len, 44);
    og_str_free(&s);
}

static uint32_t le32(const char *p) {
    const unsigned char *u = (const unsigned char *)p;
    return (uint32_t)u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 |
           (uint32_t)u[3] << 24;
}

static void test_b038_whole_wav(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_str s = OG_STR_INIT;
    og_audio_out *o;
    float *x = calloc(24000, sizeof *x);
    ok(og_audio_encode(OG_AUDIO_WAV, 24000, 1, x, 24000, &s, &err), &err);
    ok(og_audio_create(in_dir("a.wav"), OG_AUDIO_WAV, 24000, 1, &o, &err), &err);
    ok(og_audio_write(o, x, 10000, &err), &err);
    ok(og_audio_write(o, x, 14000, &err), &err);
    ok(og_audio_commit(o, &err), &err);
    og_str file = slurp(in_dir("a.wav"));
    assert_int_equal(s.len, 48044);
    assert_int_equal(le32(s.data + 4), 48036);
    assert_int_equal(le32(s.data + 40), 48000);
    assert_int_equal(file.len, s.len);
    assert_memory_equal(file.data, s.data, s.len);
    og_str_free(&s);
    og_str_free(&file);
    free(x);
}

static void test_rate_stands_in_the_header(void **state) {
    (void)state;
    unsigned char h[OG_WAV_HEADER];
    og_wav_header(h, 44100, 2, 32, 1, 16);
    assert_int_equal(le32((char *)h + 24), 44100);
    assert_int_equal(le32((char *)h + 28), 44100 * 8);
    assert_int_equal(h[20], 3);
    assert_int_equal(h[32], 8);
}

static void test_sample_conversion(void **state) {
    (void)state;
    const float x[] = {0,   1,    -1,    2,     -2,           INFINITY,    -INFINITY,
                       NAN, 0.5f, -0.5f, 1e-6f, 1.5f / 32767, 2.5f / 32767};
    const int16_t want[] = {0, 32767, -32767, 32767, -32768, 32767, -32768,
                            0, 16384, -16384, 0,     2,      2};
    int16_t y[13];
    og_audio_f32_to_s16(x, y, 13);
    for (int i = 0; i < 13; i++) assert_int_equal(y[i], want[i]);
}

static void sine(float *x, int n, int rate, double hz) {
    for (int i = 0; i < n; i++)
        x[i] = 0.8f * (float)sin(6.283185307179586 * hz * i / rate);
}

static void test_formats_round_trip(void **state) {
    (void)state;
    static const char *const names[] = {"r.wav", "r.flac", "rf.wav"};
    static const og_audio_format formats[] = {OG_AUDIO_WAV, OG_AUDIO_FLAC,
                                              OG_AUDIO_WAV_F32};
    og_err err = OG_ERR_INIT;
    float x[5000];
    sine(x, 5000, 24000, 440);
    for (int k = 0; k < 3; k++) {
        og_audio_out *o;
        og_audio a, b;
        og_str s = OG_STR_INIT;
        ok(og_audio_create(in_dir(names[k]), formats[k], 24000, 1, &o, &err), &err);
        for (int i = 0; i < 5000; i += 500) ok(og_audio_write(o, x + i, 500, &err), &err);
        ok(og_audio_commit(o, &err), &err);
        ok(og_audio_read(in_dir(names[k]), 0, &a, &err), &err);
        ok(og_audio_encode(formats[k], 24000, 1, x, 5000, &s, &err), &err);
        ok(og_audio_decode(s.data, s.len, 0, &b, &err), &err);
        assert_int_equal(a.n, 5000);
        assert_int_equal(b.n, 5000);
        assert_int_equal(a.rate, 24000);
        for (int i = 0; i < 5000; i++) {
            assert_true(fabsf(a.x[i] - x[i]) < (k == 2 ? 1e-9f : 5e-5f));
            assert_true(a.x[i] == b.x[i]);
        }
        og_audio_clear(&a);
        og_audio_clear(&b);
        og_str_free(&s);
    }
}

static void test_streamed_flac(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_str s = OG_STR_INIT;
    og_audio_out *o;
    og_audio a;
    float x[9600];
    sine(x, 9600, 24000, 300);
    ok(og_audio_stream(OG_AUDIO_FLAC, 24000, 1, collect, &s, &o, &err), &err);
    for (int i = 0; i < 9600; i += 960) ok(og_audio_write(o, x + i, 960, &err), &err);
    ok(og_audio_commit(o, &err), &err);
    assert_memory_equal(s.data, "fLaC", 4);
    assert_null(memmem(s.data + 1, s.len - 1, "fLaC", 4));
    ok(og_audio_decode(s.data, s.len, 0, &a, &err), &err);
    assert_int_equal(a.n, 9600);
    assert_true(fabsf(a.x[777] - x[777]) < 5e-5f);
    og_audio_clear(&a);
    og_str_free(&s);
}

static void test_pcm(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_str s = OG_STR_INIT;
    const float x[] = {0, 1, -1};
    ok(og_audio_encode(OG_AUDIO_PCM, 24000, 1, x, 3, &s, &err), &err);
    assert_int_equal(s.len, 6);
    assert_memory_equal(s.data, "\x00\x00\xff\x7f\x01\x80", 6);
    og_str_free(&s);
}

static void test_file_appears_whole_or_not_at_all(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_audio_out *o;
    float x[100] = {0};
    int before = files_in_dir();
    static const og_audio_format formats[] = {OG_AUDIO_WAV, OG_AUDIO_FLAC};
    for (int k = 0; k < 2; k++) {
        ok(og_audio_create(in_dir("gone.wav"), formats[k], 24000, 1, &o, &err), &err);
        ok(og_audio_write(o, x, 100, &err), &err);
        assert_int_not_equal(access(in_dir("gone.wav"), F_OK), 0);
        og_audio_abort(o);
        assert_int_equal(files_in_dir(), before);
    }
    og_audio_abort(NULL);
    assert_int_equal(
        og_audio_create(in_dir("no/such/x.wav"), OG_AUDIO_WAV, 24000, 1, &o, &err),
        OG_EIO);
    assert_null(o);
    og_err_clear(&err);
    assert_int_equal(og_audio_create("/dev/null", OG_AUDIO_WAV, 24000, 1, &o, &err),
                     OG_EIO);
    assert_int_equal(og_audio_create(in_dir("x"), OG_AUDIO_WAV, 0, 1, &o, NULL),
                     OG_EINVAL);
    assert_int_equal(og_audio_create(in_dir("x"), OG_AUDIO_WAV, 8000, 65, &o, NULL),
                     OG_EINVAL);
    assert_int_equal(files_in_dir(), before);
}

static int refuse(void *ctx, const void *bytes, size_t n) {
    (void)bytes;
    (void)n;
    return --*(int *)ctx < 0 ? OG_ECANCELED : 0;
}

static void test_receiver_that_stops(void **state) {
    (void)state;
    static const og_audio_format formats[] = {OG_AUDIO_WAV, OG_AUDIO_PCM, OG_AUDIO_FLAC};
    float x[100] = {0};
    for (int k = 0; k < 3; k++) {
        og_err err = OG_ERR_INIT;
        og_audio_out *o;
        int left = 1, rc = 0;
        ok(og_audio_stream(formats[k], 24000, 1, refuse, &left, &o, &err), &err);
        for (int i = 0; i < 1000 && rc == 0; i++) rc = og_audio_write(o, x, 100, &err);
        assert_true(rc < 0);
        assert_true(og_audio_write(o, x, 100, &err) < 0);
        assert_true(og_audio_commit(o, &err) < 0);
    }
}

static void test_names(void **state) {
    (void)state;
    og_audio_format f;
    og_err err = OG_ERR_INIT;
    ok(og_audio_by_name("FLAC", &f, &err), &err);
    assert_int_equal(f, OG_AUDIO_FLAC);
    ok(og_audio_by_path("a.b/out.WAV", &f, &err), &err);
    assert_int_equal(f, OG_AUDIO_WAV);
    ok(og_audio_by_path("x.raw", &f, &err), &err);
    assert_int_equal(f, OG_AUDIO_PCM);
    assert_int_equal(og_audio_by_path("a.wav/out", &f, &err), OG_EUNSUPPORTED);
    og_err_clear(&err);
    assert_int_equal(og_audio_by_name("mpeg", &f, &err), OG_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "flac"));
    assert_string_equal(og_audio_media_type(OG_AUDIO_FLAC), "audio/flac");
    assert_string_equal(og_audio_name(OG_AUDIO_PCM), "pcm");
}

static void test_read_stereo_and_resample(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_audio_out *o;
    og_audio a;
    enum { N = 16000 };
    float *mono = malloc(N * sizeof *mono), *two = malloc(2 * N * sizeof *two);
    sine(mono, N, 16000, 440);
    for (int i = 0; i < N; i++) {
        two[2 * i] = mono[i] + 0.1f;
        two[2 * i + 1] = mono[i] - 0.1f;
    }
    ok(og_audio_create(in_dir("s.wav"), OG_AUDIO_WAV_F32, 16000, 2, &o, &err), &err);
    ok(og_audio_write(o, two, N, &err), &err);
    ok(og_audio_commit(o, &err), &err);
    ok(og_audio_read(in_dir("s.wav"), 24000, &a, &err), &err);
    assert_int_equal(a.n, 24000);
    assert_int_equal(a.rate, 24000);
    assert_int_equal(a.source_rate, 16000);
    assert_int_equal(a.source_channels, 2);
    float want[24000];
    sine(want, 24000, 24000, 440);
    for (int i = 1000; i < 23000; i++) assert_true(fabsf(a.x[i] - want[i]) < 2e-3f);
    og_audio_clear(&a);
    float *y;
    int64_t m;
    ok(og_audio_resample(mono, 7, 16000, 24000, &y, &m, &err), &err);
    assert_int_equal(m, 11);
    og_free(y);
    ok(og_audio_resample(mono, 0, 16000, 24000, &y, &m, &err), &err);
    assert_int_equal(m, 0);
    og_free(y);
    ok(og_audio_resample(mono, 147, 44100, 24000, &y, &m, &err), &err);
    assert_int_equal(m, 81); /* 80, but for the rounding that the references do */
    assert_true(y[80] == 0);
    og_free(y);
    free(mono);
    free(two);
}

static void test_bad_input(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_audio a;
    assert_int_equal(og_audio_decode("junk", 4, 0, &a, &err), OG_EFORMAT);
    assert_null(a.x);
    assert_int_equal(og_audio_decode(NULL, 0, 0, &a, NULL), OG_EFORMAT);
    assert_int_equal(og_audio_read(in_dir("absent.wav"), 0, &a, NULL), OG_EFORMAT);
    /* A header that claims more than there is. */
    unsigned char h[OG_WAV_HEADER + 8] = {0};
    og_wav_header(h, 24000, 1, 16, 0, 0x7ffffff0);
    og_err_clear(&err);
    ok(og_audio_decode(h, sizeof h, 0, &a, &err), &err);
    assert_int_equal(a.n, 4);
    og_audio_clear(&a);
    og_wav_header(h, 24000, 1, 16, 0, 0);
    assert_int_equal(og_audio_decode(h, OG_WAV_HEADER, 0, &a, NULL), OG_EFORMAT);
}

static void test_random_mutations(void **state) {
    (void)state;
    og_str wav = OG_STR_INIT, flac = OG_STR_INIT;
    og_err err = OG_ERR_INIT;
    float x[600];
    uint32_t seed = 5;
    sine(x, 600, 8000, 440);
    ok(og_audio_encode(OG_AUDIO_WAV, 8000, 1, x, 600, &wav, &err), &err);
    ok(og_audio_encode(OG_AUDIO_FLAC, 8000, 1, x, 600, &flac, &err), &err);
    for (int round = 0; round < 600; round++) {
        const og_str *from = round % 2 ? &wav : &flac;
        char *copy = malloc(from->len);
        og_audio a;
        memcpy(copy, from->data, from->len);
        for (int i = 0; i < 3; i++) {
            seed = seed * 1664525u + 1013904223u;
            copy[(seed >> 8) % (i ? 60 : from->len)] = (char)(seed >> 24);
        }
        if (og_audio_decode(copy, from->len, 0, &a, NULL) == 0) og_audio_clear(&a);
        free(copy);
    }
    og_str_free(&wav);
    og_str_free(&flac);
}

static void test_out_of_memory(void **state) {
    (void)state;
    float x[3000] = {0};
    const char *path = in_dir("oom.wav");
    long live = og_alloc_live();
    for (long n = 1; n < 1000; n++) {
        og_err err = OG_ERR_INIT;
        og_audio_out *o = NULL;
        og_audio a = {0};
        og_alloc_fail_at(n);
        int rc = og_audio_create(path, OG_AUDIO_WAV, 24000, 1, &o, &err);
        if (rc == 0) rc = og_audio_write(o, x, 3000, &err);
        if (rc == 0) rc = og_audio_commit(o, &err);
        if (rc == 0) rc = og_audio_read(path, 16000, &a, &err);
        int failed = og_alloc_failed();
        og_alloc_fail_at(0);
        og_audio_clear(&a);
        assert_int_equal(og_alloc_live(), live);
        assert_int_equal(rc, failed ? OG_ENOMEM : 0);
        if (!failed) break;
    }
}

static int make_dir(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "%s/audio-XXXXXX", OG_BINARY_DIR);
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b036_b037_streamed_wav),
        cmocka_unit_test(test_b038_whole_wav),
        cmocka_unit_test(test_rate_stands_in_the_header),
        cmocka_unit_test(test_sample_conversion),
        cmocka_unit_test(test_formats_round_trip),
        cmocka_unit_test(test_streamed_flac),
        cmocka_unit_test(test_pcm),
        cmocka_unit_test(test_file_appears_whole_or_not_at_all),
        cmocka_unit_test(test_receiver_that_stops),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_read_stereo_and_resample),
        cmocka_unit_test(test_bad_input),
        cmocka_unit_test(test_random_mutations),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
