/* safetensors: what must load, and hostile headers that must not. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/alloc.h"
#include "nodes/load/safetensors.h"
#include "tests/support/golden.h"

static char dir[256];

static const char *in_dir(const char *name) {
    static char path[64][600];
    static int turn;
    char *p = path[turn++ % 64];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static void write_bytes(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static size_t build(unsigned char *buf, const char *header, const void *data, size_t n) {
    size_t len = strlen(header);
    for (int i = 0; i < 8; i++) buf[i] = (unsigned char)((uint64_t)len >> 8 * i);
    memcpy(buf + 8, header, len);
    if (n) memcpy(buf + 8 + len, data, n);
    return 8 + len + n;
}

static const char *write_st(const char *name, const char *header, const void *data,
                            size_t n) {
    unsigned char *buf = malloc(8 + strlen(header) + n);
    const char *path = in_dir(name);
    write_bytes(path, buf, build(buf, header, data, n));
    free(buf);
    return path;
}

/* Opening must fail with code, and the message hold each of the words. */
static void expect_bad(const char *path, int code, const char *word, const char *word2) {
    og_err err = OG_ERR_INIT;
    og_weights *w = (og_weights *)1;
    assert_int_equal(og_weights_open(path, &w, &err), code);
    assert_null(w);
    if (!strstr(err.msg, word)) fail_msg("'%s' lacks '%s'", err.msg, word);
    if (word2 && !strstr(err.msg, word2)) fail_msg("'%s' lacks '%s'", err.msg, word2);
}

static og_weights *expect_good(const char *path) {
    og_err err = OG_ERR_INIT;
    og_weights *w = NULL;
    if (og_weights_open(path, &w, &err) < 0) fail_msg("%s", err.msg);
    return w;
}

static const float one[] = {1.0f, 2.0f, 3.0f, 4.0f};

static void test_loads_a_checkpoint(void **state) {
    (void)state;
    char path[4096];
    og_weights *w = expect_good(
        source_path(path, sizeof path, "tests/data/qwen3_tts/tiny-a/custom_voice"));
    assert_true(og_weights_count(w) > 20);
    const og_tensor *t = og_weights_find(w, "talker.model.norm.weight");
    assert_non_null(t);
    assert_int_equal(t->dtype, OG_F32);
    assert_int_equal(t->rank, 1);
    assert_int_equal(t->ne[0], 32);
    assert_null(og_weights_find(w, "talker.model.norm"));
    for (size_t i = 1; i < og_weights_count(w); i++)
        assert_true(strcmp(og_weights_name(w, i - 1), og_weights_name(w, i)) < 0);
    og_weights_populate(w);
    og_weights_drop_pages(w, t);
    og_weights_close(og_weights_ref(w));
    og_weights_close(w);
}

static void test_golden_helper(void **state) {
    (void)state;
    og_weights *g = golden_open("qwen3_tts/tiny-a/cv_en");
    og_tensor codes = golden_get(g, "codes");
    assert_int_equal(codes.rank, 2);
    assert_int_equal(codes.ne[0], 12);
    assert_int_equal(codes.ne[1], 16);
    assert_int_equal(golden_i64(g, "wav_len", 0), 23040);
    assert_non_null(strstr(og_weights_metadata(g, "meta_json"), "ryan"));
    og_weights_close(g);
}

static void test_b020_duplicate_name(void **state) {
    (void)state;
    expect_bad(write_st("d.safetensors",
                        "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                        "\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                        one, 8),
               OG_EFORMAT, "duplicate tensor name w", NULL);
    expect_bad(write_st("d.safetensors",
                        "{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F16\",\"shape\":[1],"
                        "\"data_offsets\":[0,4]}}",
                        one, 4),
               OG_EFORMAT, "duplicate key dtype", NULL);
}

static void test_b021_metadata_only(void **state) {
    (void)state;
    og_weights *w = expect_good(
        write_st("m.safetensors", "{\"__metadata__\":{\"note\":\"x\"}}", NULL, 0));
    assert_int_equal(og_weights_count(w), 0);
    assert_string_equal(og_weights_metadata(w, "note"), "x");
    assert_null(og_weights_metadata(w, "other"));
    og_weights_close(w);
    w = expect_good(
        write_st("m.safetensors",
                 "{\"__metadata__\":{},\"w\":{\"dtype\":\"F32\",\"shape\":[1],"
                 "\"data_offsets\":[0,4]}}",
                 one, 4));
    assert_int_equal(og_weights_count(w), 1);
    og_weights_close(w);
    w = expect_good(write_st("m.safetensors", "{}", NULL, 0));
    assert_int_equal(og_weights_count(w), 0);
    og_weights_close(w);
    expect_bad(write_st("m.safetensors", "{\"__metadata__\":{\"n\":1}}", NULL, 0),
               OG_EFORMAT, "__metadata__", "n");
    expect_bad(write_st("m.safetensors", "{\"__metadata__\":[]}", NULL, 0), OG_EFORMAT,
               "__metadata__", NULL);
}

static void test_b023_zero_dimensions(void **state) {
    (void)state;
    static const char *const shapes[] = {"[0]", "[0,3]", "[]"};
    for (int i = 0; i < 3; i++) {
        char h[200];
        int bytes = i == 2 ? 4 : 0;
        snprintf(h, sizeof h,
                 "{\"w\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,%d]}}",
                 shapes[i], bytes);
        og_weights *w = expect_good(write_st("z.safetensors", h, one, (size_t)bytes));
        assert_int_equal(og_tensor_count(og_weights_find(w, "w")), i == 2 ? 1 : 0);
        og_weights_close(w);
    }
    expect_bad(
        write_st("z.safetensors",
                 "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,0]}}", NULL,
                 0),
        OG_EFORMAT, "w", "1 elements");
}

static void test_b024_misaligned(void **state) {
    (void)state;
    unsigned char data[9] = {7};
    memcpy(data + 1, one, 8);
    for (int pad = 0; pad < 4; pad++) {
        char h[300];
        snprintf(h, sizeof h,
                 "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                 "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]}}%*s",
                 pad, "");
        og_weights *w = expect_good(write_st("a.safetensors", h, data, 9));
        const og_tensor *t = og_weights_find(w, "w");
        assert_true(golden_f32_at(t, 0) == 1.0f && golden_f32_at(t, 1) == 2.0f);
        og_weights_close(w);
    }
}

#define ST(name) "{\"" name "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"

static void test_b025_shards(void **state) {
    (void)state;
    const char *index = in_dir("model.safetensors.index.json");
    const char *two =
        "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\"}}";
    /* s1 is malformed: naming s2 shows that no shard was opened before all were found. */
    write_bytes(in_dir("s1.safetensors"), "junk", 4);
    write_bytes(index, two, strlen(two));
    expect_bad(dir, OG_ENOENT, "s2.safetensors", "tensor b");
    write_st("s1.safetensors", ST("a"), one, 4);
    write_st("s2.safetensors", ST("b"), one + 1, 4);
    og_weights *w = expect_good(dir);
    assert_int_equal(og_weights_count(w), 2);
    assert_true(golden_f32(w, "b", 0) == 2.0f);
    assert_int_equal(og_weights_warnings(w), 0);
    og_weights_close(w);
    const char *wrong =
        "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\","
        "\"c\":\"s2.safetensors\"}}";
    write_bytes(index, wrong, strlen(wrong));
    expect_bad(dir, OG_EFORMAT, "tensor b", "s1.safetensors");
    const char *less = "{\"weight_map\":{\"a\":\"s1.safetensors\"}}";
    write_st("s1.safetensors",
             "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
             "\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
             one, 8);
    write_bytes(index, less, strlen(less));
    w = expect_good(dir);
    assert_int_equal(og_weights_warnings(w), 1);
    assert_non_null(strstr(og_weights_warning(w, 0), "tensor x"));
    og_weights_close(w);
    write_st("s2.safetensors", ST("a"), one, 4);
    write_bytes(index, two, strlen(two));
    expect_bad(dir, OG_EFORMAT, "duplicate tensor name a", NULL);
    const char *escape = "{\"weight_map\":{\"a\":\"../s1.safetensors\"}}";
    write_bytes(index, escape, strlen(escape));
    expect_bad(dir, OG_EFORMAT, "no legal file name", NULL);
    write_bytes(index, "{}", 2);
    expect_bad(dir, OG_EFORMAT, "weight_map", NULL);
    unlink(index);
}

static void test_b027_dtypes(void **state) {
    (void)state;
    const unsigned char data[] = {0x80, 0x3f, 0x38, 0x3c};
    og_weights *w = expect_good(
        write_st("f.safetensors",
                 "{\"b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]},"
                 "\"e\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[2,3]},"
                 "\"m\":{\"dtype\":\"F8_E5M2\",\"shape\":[1],\"data_offsets\":[3,4]}}",
                 data, 4));
    uint16_t bf;
    memcpy(&bf, og_weights_find(w, "b")->data, 2);
    assert_true(og_bf16_to_f32(bf) == 1.0f);
    assert_true(og_f8_e4m3_to_f32(*(uint8_t *)og_weights_find(w, "e")->data) == 1.0f);
    assert_true(og_f8_e5m2_to_f32(*(uint8_t *)og_weights_find(w, "m")->data) == 1.0f);
    og_weights_close(w);
    expect_bad(
        write_st("f.safetensors",
                 "{\"odd\":{\"dtype\":\"Q9\",\"shape\":[1],\"data_offsets\":[0,4]}}", one,
                 4),
        OG_EFORMAT, "tensor odd", "Q9");
}

typedef struct bad {
    const char *header;
    size_t data;
    int code;
    const char *word;
} bad;

static void test_hostile_headers(void **state) {
    (void)state;
    static const bad cases[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, OG_EFORMAT, "overlap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         4, OG_EFORMAT, "overlap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
         OG_EFORMAT, "hole"},
        {ST("a"), 8, OG_EFORMAT, "after the last tensor"},
        {ST("a"), 2, OG_EFORMAT, "truncated"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],"
         "\"data_offsets\":[0,0]}}",
         0, OG_EFORMAT, "overflow"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,"
         "0]}}",
         0, OG_EFORMAT, "do not fill"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,4611686018427387904,4],"
         "\"data_offsets\":[0,0]}}",
         0, OG_EFORMAT, "overflow"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,"
         "4]}}",
         4, OG_EFORMAT, "JSON"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
         OG_EFORMAT, "not a count"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4,
         OG_EFORMAT, "not a count"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4,
         OG_EFORMAT, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 8,
         OG_EFORMAT, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4,
         OG_EFORMAT, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}",
         4, OG_ELIMIT, "limit is 6"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, OG_EFORMAT, "no dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, OG_EFORMAT, "no shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, OG_EFORMAT, "data_offsets"},
        {"{\"a\":3}", 0, OG_EFORMAT, "not an object"},
        {"{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         OG_EFORMAT, "JSON"},
        {"{\"a\":", 0, OG_EFORMAT, "JSON"},
        {"[1,2]", 0, OG_EFORMAT, "not a JSON object"},
        {"{\"a\":[[[[[[[[[[]]]]]]]]]]}", 0, OG_ELIMIT, "limit is 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_bad(write_st("h.safetensors", cases[i].header, one, cases[i].data),
                   cases[i].code, cases[i].word, NULL);
    write_bytes(in_dir("h.safetensors"), "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    expect_bad(in_dir("h.safetensors"), OG_ELIMIT, "limit is 100000000", NULL);
    write_bytes(in_dir("h.safetensors"), "\x40\0\0\0\0\0\0\0{}", 10);
    expect_bad(in_dir("h.safetensors"), OG_EFORMAT, "truncated", NULL);
    write_bytes(in_dir("h.safetensors"), "", 0);
    expect_bad(in_dir("h.safetensors"), OG_EFORMAT, "truncated", NULL);
    expect_bad(in_dir("absent.safetensors"), OG_ENOENT, "absent.safetensors", NULL);
    assert_int_equal(mkdir(in_dir("empty"), 0755), 0);
    expect_bad(in_dir("empty"), OG_ENOENT, "model.safetensors", NULL);
}

static void test_binder_lists_everything(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_tensor t;
    og_weights *w = expect_good(
        write_st("b.safetensors",
                 "{\"m.a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
                 "\"m.i\":{\"dtype\":\"I32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                 "\"m.x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                 "\"m.sub.y\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                 "\"n.z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                 one, 16));
    og_bind *b = og_bind_create(w, "m.");
    assert_int_equal(og_bind_get(b, &t, og_ne2(2, -1), "%s", "a"), 0);
    assert_true(golden_f32_at(&t, 3) == 4.0f);
    assert_int_equal(og_bind_as(b, &t, OG_I32, og_ne1(0), "i"), 0);
    assert_int_equal(og_bind_opt(b, &t, og_ne1(3), "bias"), 0);
    assert_false(og_tensor_present(&t));
    assert_true(og_bind_has(b, "sub.%c", 'y'));
    og_bind_ignore(b, "sub.");
    assert_int_equal(og_bind_finish(b, &err), 0);
    assert_int_equal(og_bind_extra_count(b), 1);
    assert_string_equal(og_bind_extra(b, 0), "m.x");
    assert_non_null(strstr(og_bind_extra_text(b), "m.x"));

    assert_int_equal(og_bind_get(b, &t, og_ne2(2, 3), "a"), OG_ESHAPE);
    assert_false(og_tensor_present(&t));
    assert_int_equal(og_bind_get(b, &t, og_ne1(0), "i"), OG_ETYPE);
    for (int i = 0; i < 200; i++) og_bind_get(b, &t, og_ne1(i), "layers.%d.weight", i);
    assert_int_equal(og_bind_finish(b, &err), OG_EFORMAT);
    assert_non_null(strstr(err.msg, "m.a is f32[2,2], not [2,3]"));
    assert_non_null(strstr(err.msg, "m.i is I32"));
    assert_non_null(strstr(err.msg, "missing m.layers.0.weight"));
    assert_non_null(strstr(err.msg, " more"));
    og_bind_free(b);

    og_err none = OG_ERR_INIT;
    assert_int_equal(og_bind_get(NULL, &t, og_ne1(1), "a"), OG_ENOMEM);
    assert_int_equal(og_bind_finish(NULL, &none), OG_ENOMEM);
    og_weights_close(w);
}

static void test_dummy_weights(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_weights *w = NULL, *again = NULL;
    og_tensor a, n, bias, c, i8;
    assert_int_equal(og_weights_dummy(7, OG_F32, &w, &err), 0);
    assert_int_equal(og_weights_dummy(7, OG_BF16, &again, &err), 0);
    assert_int_equal(og_weights_dummy(7, OG_I8, &(og_weights *){NULL}, NULL),
                     OG_EUNSUPPORTED);
    og_bind *b = og_bind_create(w, "x."), *b2 = og_bind_create(again, "x.");
    og_bind_get(b, &a, og_ne2(64, 64), "proj.weight");
    og_bind_get(b, &n, og_ne1(8), "norm.weight");
    og_bind_get(b, &bias, og_ne1(8), "proj.bias");
    og_bind_as(b, &i8, OG_I8, og_ne1(8), "initialized");
    og_bind_get(b2, &c, og_ne2(64, 64), "proj.weight");
    assert_int_equal(og_bind_finish(b, &err), 0);
    double sum = 0, sq = 0;
    for (int i = 0; i < 4096; i++) {
        double v = golden_f32_at(&a, i);
        uint16_t low;
        memcpy(&low, (char *)c.data + 2 * i, 2);
        assert_true(fabs(og_bf16_to_f32(low) - v) <= fabs(v) / 128);
        sum += v;
        sq += v * v;
    }
    assert_true(fabs(sum / 4096) < 0.002);
    assert_true(fabs(sqrt(sq / 4096) - 0.02) < 0.001);
    assert_true(golden_f32_at(&n, 3) == 1.0f && golden_f32_at(&bias, 3) == 0.0f);
    og_tensor same;
    og_bind_get(b, &same, og_ne2(64, 64), "proj.weight");
    assert_ptr_equal(same.data, a.data);
    assert_int_equal(og_bind_get(b, &same, og_ne2(64, 65), "proj.weight"), OG_ESHAPE);
    assert_int_not_equal(og_bind_finish(b, &err), 0);
    assert_int_not_equal(og_weights_fingerprint(w), og_weights_fingerprint(again));
    og_bind_free(b);
    og_bind_free(b2);
    og_weights_close(w);
    og_weights_close(again);
}

static void test_fingerprint_sees_data(void **state) {
    (void)state;
    og_weights *a = expect_good(write_st("p.safetensors", ST("a"), one, 4));
    og_weights *b = expect_good(write_st("q.safetensors", ST("a"), one + 1, 4));
    og_weights *c = expect_good(write_st("r.safetensors", ST("a"), one, 4));
    assert_int_not_equal(og_weights_fingerprint(a), og_weights_fingerprint(b));
    assert_int_equal(og_weights_fingerprint(a), og_weights_fingerprint(c));
    og_weights_close(a);
    og_weights_close(b);
    og_weights_close(c);
}

static void test_out_of_memory(void **state) {
    (void)state;
    write_st("o1.safetensors", ST("a"), one, 4);
    write_st("o2.safetensors", ST("b"), one, 4);
    const char *map = "{\"weight_map\":{\"a\":\"o1.safetensors\"}}";
    write_bytes(in_dir("o.json"), map, strlen(map));
    static const char *const paths[] = {"o1.safetensors", "o.json"};
    for (int p = 0; p < 2; p++) {
        long live = og_alloc_live();
        for (long n = 1; n < 10000; n++) {
            og_err err = OG_ERR_INIT;
            og_weights *w = NULL;
            og_alloc_fail_at(n);
            int rc = og_weights_open(in_dir(paths[p]), &w, &err);
            int failed = og_alloc_failed();
            og_alloc_fail_at(0);
            if (rc == 0)
                og_weights_close(w);
            else if (rc != OG_ENOMEM)
                print_message("%ld: %d %s\n", n, rc, err.msg);
            assert_int_equal(og_alloc_live(), live);
            if (!failed) break;
            assert_int_not_equal(rc, 0);
        }
    }
}

static void test_binder_out_of_memory(void **state) {
    (void)state;
    og_weights *w = expect_good(write_st("o.safetensors", ST("a"), one, 4));
    for (long n = 1; n < 1000; n++) {
        og_err err = OG_ERR_INIT;
        og_tensor t;
        long live = og_alloc_live();
        og_alloc_fail_at(n);
        og_bind *b = og_bind_create(w, "");
        og_bind_ignore(b, "zzz");
        og_bind_get(b, &t, og_ne1(2), "a");
        og_bind_get(b, &t, og_ne1(2), "b");
        int rc = og_bind_finish(b, &err);
        int failed = og_alloc_failed();
        og_alloc_fail_at(0);
        og_bind_free(b);
        assert_int_equal(og_alloc_live(), live);
        assert_int_equal(rc, failed ? OG_ENOMEM : OG_EFORMAT);
        if (!failed) break;
    }
    og_weights_close(w);
}

static uint32_t lcg(uint32_t *s) {
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

/* Random damage to a real header: any outcome but a crash, and no leak. */
static void test_random_mutations(void **state) {
    (void)state;
    unsigned char base[2048], buf[2048];
    size_t n = build(base,
                     "{\"__metadata__\":{\"k\":\"v\"},"
                     "\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
                     "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[8,16]}}",
                     one, 16);
    uint32_t seed = 42;
    long live = og_alloc_live();
    char path[64];
    int fd = memfd_create("mutant", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (int round = 0; round < 3000; round++) {
        memcpy(buf, base, n);
        size_t len = n;
        int hits = 1 + (int)(lcg(&seed) % 4);
        for (int i = 0; i < hits; i++) {
            size_t at = lcg(&seed) % n;
            uint32_t kind = lcg(&seed) % 4;
            if (kind == 0)
                buf[at] = (unsigned char)lcg(&seed);
            else if (kind == 1)
                buf[at] ^= (unsigned char)(1u << lcg(&seed) % 8);
            else if (kind == 2)
                buf[at] = (unsigned char)"0123456789[]{}\",:"[lcg(&seed) % 17];
            else
                len = at + 1;
        }
        assert_int_equal(ftruncate(fd, (off_t)len), 0);
        assert_int_equal(pwrite(fd, buf, len, 0), len);
        og_err err = OG_ERR_INIT;
        og_weights *w = NULL;
        if (og_weights_open(path, &w, &err) == 0) {
            volatile unsigned char sum = 0;
            for (size_t i = 0; i < og_weights_count(w); i++) {
                const og_tensor *t = og_weights_at(w, i);
                const unsigned char *p = t->data;
                for (size_t k = 0; k < og_tensor_bytes(t); k++) sum ^= p[k];
            }
            og_weights_close(w);
        } else {
            assert_true(err.code < 0 && err.msg[0]);
        }
        assert_int_equal(og_alloc_live(), live);
    }
    close(fd);
}

static int make_dir(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "%s/st-XXXXXX", OG_BINARY_DIR);
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
        cmocka_unit_test(test_loads_a_checkpoint),
        cmocka_unit_test(test_golden_helper),
        cmocka_unit_test(test_b020_duplicate_name),
        cmocka_unit_test(test_b021_metadata_only),
        cmocka_unit_test(test_b023_zero_dimensions),
        cmocka_unit_test(test_b024_misaligned),
        cmocka_unit_test(test_b025_shards),
        cmocka_unit_test(test_b027_dtypes),
        cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_binder_lists_everything),
        cmocka_unit_test(test_dummy_weights),
        cmocka_unit_test(test_fingerprint_sees_data),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_binder_out_of_memory),
        cmocka_unit_test(test_random_mutations),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
