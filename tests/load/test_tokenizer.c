/* Tokenizers: ids against the reference, and the ways in which others have failed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/alloc.h"
#include "nodes/load/tokenizer.h"
#include "tests/support/golden.h"

#define TINY "tests/data/qwen3_tts/tiny-a/custom_voice"

static og_tokenizer *open_dir(const char *dir) {
    og_err err = OG_ERR_INIT;
    og_tokenizer *t = NULL;
    if (og_tokenizer_open(dir, &t, &err) < 0) fail_msg("%s", err.msg);
    return t;
}

static og_tokenizer *open_tree(const char *rest) {
    char path[4096];
    return open_dir(source_path(path, sizeof path, rest));
}

/* A byte-level tokenizer.json: 256 bytes in order of value, then extra JSON members. */
static char *byte_json(const char *merges, const char *more_vocab, const char *extra) {
    og_str s = OG_STR_INIT;
    int next = 0x100;
    og_str_add(&s, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int b = 0; b < 256; b++) {
        int plain = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
        og_str_addf(&s, "%s\"\\u%04x\":%d", b ? "," : "", (unsigned)(plain ? b : next++),
                    b);
    }
    og_str_addf(&s, "%s},\"merges\":[%s]}%s", more_vocab, merges, extra);
    og_str_add(&s, "}");
    assert_false(s.oom);
    return s.data;
}

#define BYTE_LEVEL                                                                       \
    ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"             \
    "\"use_regex\":true}"

static og_tokenizer *open_json(char *json) {
    og_err err = OG_ERR_INIT;
    og_tokenizer *t = NULL;
    if (og_tokenizer_open_json("t.json", json, strlen(json), &t, &err) < 0)
        fail_msg("%s", err.msg);
    og_free(json);
    return t;
}

static void expect_bad_json(char *json, int code, const char *word) {
    og_err err = OG_ERR_INIT;
    og_tokenizer *t = (og_tokenizer *)1;
    int rc = og_tokenizer_open_json("t.json", json, strlen(json), &t, &err);
    if (rc != code || t) fail_msg("%d, not %d: %s", rc, code, err.msg);
    if (!strstr(err.msg, word)) fail_msg("'%s' lacks '%s'", err.msg, word);
    og_free(json);
}

static char *ids_text(const og_tokenizer *t, const char *text, size_t len) {
    og_err err = OG_ERR_INIT;
    og_str s = OG_STR_INIT;
    int32_t *ids = NULL;
    size_t n = 0;
    if (og_tokenizer_encode(t, text, len, &ids, &n, &err) < 0) fail_msg("%s", err.msg);
    for (size_t i = 0; i < n; i++) og_str_addf(&s, "%s%d", i ? " " : "", ids[i]);
    if (!s.data) og_str_add(&s, "");
    og_free(ids);
    return s.data;
}

static void expect_ids(const og_tokenizer *t, const char *text, const char *want) {
    char *have = ids_text(t, text, strlen(text));
    if (strcmp(have, want) != 0) fail_msg("'%s': %s, not %s", text, have, want);
    og_free(have);
}

static void expect_list(const og_tokenizer *t, const char *text, const json_t *list) {
    og_str want = OG_STR_INIT;
    size_t i;
    json_t *v;
    og_str_add(&want, "");
    json_array_foreach(list, i, v) {
        og_str_addf(&want, "%s%lld", i ? " " : "", (long long)json_integer_value(v));
    }
    expect_ids(t, text, want.data);
    og_str_free(&want);
}

static void check_golden(const og_tokenizer *t, const char *key, int wrapped) {
    char path[4096];
    size_t i;
    json_t *c, *all = json_load_file(source_path(path, sizeof path,
                                                 "tests/golden/qwen3_tts/tokenizer.json"),
                                     0, NULL);
    assert_true(json_array_size(all) > 30);
    json_array_foreach(all, i, c) {
        const char *text = json_string_value(json_object_get(c, "text"));
        expect_list(t, text, json_object_get(c, key));
        if (!wrapped) continue;
        og_str s = OG_STR_INIT;
        og_str_addf(&s, "<|im_start|>assistant\n%s<|im_end|>\n<|im_start|>assistant\n",
                    text);
        expect_list(t, s.data, json_object_get(c, "full_wrapped"));
        og_str_free(&s);
    }
    json_decref(all);
}

static void test_reference_ids_tiny(void **state) {
    (void)state;
    og_tokenizer *a = open_tree(TINY);
    og_tokenizer *b = open_tree("tests/data/qwen3_tts/tiny-b/voice_design");
    check_golden(a, "tiny-a", 0);
    check_golden(b, "tiny-b", 0);
    assert_int_equal(og_tokenizer_token_id(a, "<|im_start|>"), 12016);
    assert_int_equal(og_tokenizer_token_id(a, "<|im_start"), -1);
    assert_string_equal(og_tokenizer_token(a, 12016), "<|im_start|>");
    assert_null(og_tokenizer_token(a, -1));
    assert_null(og_tokenizer_token(a, og_tokenizer_size(a)));
    assert_true(og_tokenizer_special(a, 12016));
    assert_false(og_tokenizer_special(a, 5));
    og_tokenizer_close(og_tokenizer_ref(a));
    og_tokenizer_close(a);
    og_tokenizer_close(b);
}

static void test_reference_ids_full(void **state) {
    (void)state;
    char path[4096];
    const char *shared = getenv("OG_SHARED");
    if (shared)
        snprintf(path, sizeof path, "%s/qwen3_tts/ckpt/tokenizer-qwen-full", shared);
    else
        source_path(path, sizeof path, "../shared/qwen3_tts/ckpt/tokenizer-qwen-full");
    if (access(path, R_OK) < 0) {
        print_message("no full vocabulary beside the source: skipped\n");
        skip();
    }
    og_tokenizer *t = open_dir(path);
    check_golden(t, "full", 1);
    assert_int_equal(og_tokenizer_token_id(t, "<tts_text_eod>"), 151673);
    og_tokenizer_close(t);
}

/* The prompts of the golden requests, built from their text as the model's hook does. */
static void test_golden_prompts(void **state) {
    (void)state;
    static const char *const cases[] = {
        "cv_en",    "cv_numbers", "cv_lead_newline", "cv_space", "cv_special_in_text",
        "cv_mixed", "cv_empty"};
    static const char *const models[] = {"tiny-a", "tiny-b"};
    for (int m = 0; m < 2; m++) {
        char dir[200];
        snprintf(dir, sizeof dir, "tests/data/qwen3_tts/%s/custom_voice", models[m]);
        og_tokenizer *t = open_tree(dir);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            char name[200];
            snprintf(name, sizeof name, "qwen3_tts/%s/%s", models[m], cases[i]);
            og_weights *g = golden_open(name);
            json_t *meta = json_loads(og_weights_metadata(g, "meta_json"), 0, NULL);
            og_str s = OG_STR_INIT;
            og_str_addf(&s,
                        "<|im_start|>assistant\n%s<|im_end|>\n<|im_start|>assistant\n",
                        json_string_value(json_object_get(meta, "text")));
            og_tensor want = golden_get(g, "input_ids");
            og_str list = OG_STR_INIT;
            for (int64_t k = 0; k < want.ne[0]; k++)
                og_str_addf(&list, "%s%lld", k ? " " : "",
                            (long long)golden_i64_at(&want, k));
            expect_ids(t, s.data, list.data);
            og_str_free(&list);
            og_str_free(&s);
            json_decref(meta);
            og_weights_close(g);
        }
        og_tokenizer_close(t);
    }
}

static void test_default_voice(void **state) {
    (void)state;
    og_tokenizer *t = open_tree("examples/voice");
    expect_ids(t, "<|im_start|>assistant\nA<|im_end|>", "265 263 10 65 266");
    og_tokenizer_close(t);
}

static void expect_round_trip(const og_tokenizer *t, const char *text) {
    og_err err = OG_ERR_INIT;
    int32_t *ids;
    size_t n;
    og_str out = OG_STR_INIT;
    assert_int_equal(og_tokenizer_encode(t, text, strlen(text), &ids, &n, &err), 0);
    assert_int_equal(og_tokenizer_decode(t, ids, n, 0, &out, &err), 0);
    assert_string_equal(out.data ? out.data : "", text);
    og_str_free(&out);
    og_free(ids);
}

static void test_decode_round_trip(void **state) {
    (void)state;
    og_tokenizer *t = open_tree(TINY);
    expect_round_trip(t,
                      "Hello, world! \xe4\xbb\x8a\xe5\xa4\xa9 \xf0\x9f\x98\x80\r\n\tx");
    expect_round_trip(t, "<|im_start|>user\nhi<|im_end|>\n");
    expect_round_trip(t, "");
    og_err err = OG_ERR_INIT;
    og_str out = OG_STR_INIT;
    int32_t ids[] = {og_tokenizer_token_id(t, "<|im_start|>"),
                     og_tokenizer_token_id(t, "a")};
    assert_int_equal(og_tokenizer_decode(t, ids, 2, 1, &out, &err), 0);
    assert_string_equal(out.data, "a");
    og_str_free(&out);
    ids[0] = 1 << 23;
    assert_int_equal(og_tokenizer_decode(t, ids, 1, 0, &out, &err), OG_EINVAL);
    og_tokenizer_close(t);
}

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static char *repeat(const char *head, const char *part, size_t n) {
    size_t k = strlen(part), h = strlen(head);
    char *s = malloc(h + n * k + 1);
    memcpy(s, head, h);
    for (size_t i = 0; i < n; i++) memcpy(s + h + i * k, part, k);
    s[h + n * k] = 0;
    return s;
}

typedef struct run {
    const og_tokenizer *t;
    const char *text;
    size_t n;
    int32_t first, last;
    double seconds;
} run;

static void *run_encode(void *arg) {
    run *r = arg;
    int32_t *ids = NULL;
    double start = now();
    if (og_tokenizer_encode(r->t, r->text, strlen(r->text), &ids, &r->n, NULL) < 0)
        return arg;
    r->seconds = now() - start;
    r->first = ids[0];
    r->last = ids[r->n - 1];
    og_free(ids);
    return NULL;
}

/* On a thread with a stack of 256 KiB. */
static run small_stack(const og_tokenizer *t, const char *head, const char *part,
                       size_t n) {
    run r = {.t = t, .text = repeat(head, part, n)};
    pthread_attr_t attr;
    pthread_t thread;
    void *failed;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 << 10);
    assert_int_equal(pthread_create(&thread, &attr, run_encode, &r), 0);
    pthread_join(thread, &failed);
    assert_null(failed);
    pthread_attr_destroy(&attr);
    free((char *)r.text);
    return r;
}

static void test_b030_long_runs(void **state) {
    (void)state;
    /* Bytes with the merges A A and AA AA: n / 4 ids, and the ids are known. */
    og_tokenizer *t =
        open_json(byte_json("\"A A\",\"AA AA\"", ",\"AA\":256,\"AAAA\":257",
                            ",\"normalizer\":{\"type\":\"NFC\"}" BYTE_LEVEL));
    run half = small_stack(t, "", "A", 100000), whole = small_stack(t, "", "A", 200000);
    assert_int_equal(half.n, 25000);
    assert_int_equal(whole.n, 50000);
    assert_int_equal(whole.first, 257);
    assert_true(whole.seconds < 3.5 * half.seconds + 0.02);
    assert_int_equal(small_stack(t, "", "Z", 131072).n, 131072);
    assert_int_equal(small_stack(t, "", "\n", 20000).n, 20000);
    assert_int_equal(small_stack(t, "x", " ", 100000).n, 100001);
    assert_int_equal(small_stack(t, "a", "\xcc\x80", 50000).n, 2 + 49999 * 2);
    /* Marks of two classes in turn make exchange sorts quadratic. */
    run few = small_stack(t, "b", "\xcc\x80\xcc\xa3", 25000);
    assert_int_equal(few.n, 3 + 49999 * 2); /* b and the dot below are one character */
    assert_true(few.seconds < 1.0);
    og_tokenizer_close(t);
    og_tokenizer *q = open_tree(TINY);
    assert_true(small_stack(q, "", "A", 200000).n > 0);
    assert_true(small_stack(q, "", " \n", 100000).n > 0);
    assert_true(small_stack(q, "", "<", 200000).n > 0);
    og_tokenizer_close(q);
}

static void test_b031_stream_of_bytes(void **state) {
    (void)state;
    og_tokenizer *t = open_json(byte_json("", "", BYTE_LEVEL));
    static const int32_t ids[] = {240, 159, 152, 128, 97};
    og_err err = OG_ERR_INIT;
    og_str stream = OG_STR_INIT, whole = OG_STR_INIT;
    og_detok d;
    og_detok_init(&d, t, 1);
    for (int i = 0; i < 5; i++) {
        size_t before = stream.len;
        assert_int_equal(og_detok_push(&d, ids[i], &stream, &err), 0);
        assert_int_equal(stream.len - before, i < 3 ? 0 : i == 3 ? 4 : 1);
    }
    assert_int_equal(og_detok_end(&d, &stream, &err), 0);
    assert_int_equal(og_tokenizer_decode(t, ids, 5, 1, &whole, &err), 0);
    assert_string_equal(stream.data, "\xf0\x9f\x98\x80\x61");
    assert_string_equal(stream.data, whole.data);
    og_str_free(&stream);
    og_str_free(&whole);
    og_tokenizer_close(t);
}

static void test_b032_cut_inside_a_character(void **state) {
    (void)state;
    og_tokenizer *t = open_json(byte_json("", "", BYTE_LEVEL));
    static const int32_t cut[] = {240, 159, 152},
                         bad[] = {97, 240, 159, 98, 255, 0xed, 0xa0};
    og_err err = OG_ERR_INIT;
    og_str s = OG_STR_INIT;
    assert_int_equal(og_tokenizer_decode(t, cut, 3, 1, &s, &err), 0);
    assert_string_equal(s.data, "\xef\xbf\xbd");
    og_str_free(&s);
    assert_int_equal(og_tokenizer_decode(t, bad, 7, 1, &s, &err), 0);
    assert_string_equal(s.data, "a\xef\xbf\xbd"
                                "b\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    og_str_free(&s);
    og_tokenizer_close(t);
}

static void test_b033_strip_flags(void **state) {
    (void)state;
    static const char *const want[] = {"97 32 32 300 32 32 98", "97 32 32 300 98",
                                       "97 300 32 32 98", "97 300 98"};
    for (int k = 0; k < 4; k++) {
        char extra[400];
        snprintf(extra, sizeof extra,
                 BYTE_LEVEL ",\"added_tokens\":[{\"id\":300,\"content\":\"<m>\","
                            "\"lstrip\":%s,\"rstrip\":%s,\"normalized\":false,"
                            "\"single_word\":false,\"special\":true}]",
                 k & 2 ? "true" : "false", k & 1 ? "true" : "false");
        og_tokenizer *t = open_json(byte_json("", "", extra));
        expect_ids(t, "a  <m>  b", want[k]);
        og_tokenizer_close(t);
    }
}

static void test_single_word_and_longest(void **state) {
    (void)state;
    og_tokenizer *t = open_json(byte_json(
        "", "",
        BYTE_LEVEL
        ",\"added_tokens\":[{\"id\":300,\"content\":\"ab\",\"single_word\":true},"
        "{\"id\":301,\"content\":\"<x>\"},{\"id\":302,\"content\":\"<x>y\"}]"));
    expect_ids(t, "ab", "300");
    expect_ids(t, "cab", "99 97 98");
    expect_ids(t, "ab.", "300 46");
    expect_ids(t, "<x>y<x>z", "302 301 122");
    og_err err = OG_ERR_INIT;
    int32_t *ids;
    size_t n;
    assert_int_equal(og_tokenizer_encode_plain(t, "<x>", 3, &ids, &n, &err), 0);
    assert_int_equal(n, 3);
    og_free(ids);
    og_tokenizer_close(t);
}

static void test_b035_normalizers(void **state) {
    (void)state;
    static const char *const text = "e\xcc\x81";
    og_tokenizer *t = open_json(byte_json("", "", BYTE_LEVEL));
    expect_ids(t, text, "101 204 129");
    og_tokenizer_close(t);
    t = open_json(byte_json("", "", BYTE_LEVEL ",\"normalizer\":{\"type\":\"NFC\"}"));
    expect_ids(t, text, "195 169");
    expect_ids(t, "\xe2\x84\xab", "195 133");                 /* the angstrom sign */
    expect_ids(t, "\xef\xac\x81", "239 172 129");             /* the fi ligature stays */
    expect_ids(t, "\xe1\x84\x80\xe1\x85\xa1", "234 176 128"); /* Hangul */
    og_tokenizer_close(t);
    t = open_json(byte_json("", "", BYTE_LEVEL ",\"normalizer\":{\"type\":\"NFKC\"}"));
    expect_ids(t, "\xef\xac\x81", "102 105");
    og_tokenizer_close(t);
    t = open_json(byte_json("", "", BYTE_LEVEL ",\"normalizer\":{\"type\":\"NFD\"}"));
    expect_ids(t, "\xc3\xa9", "101 204 129");
    og_tokenizer_close(t);
    t = open_json(byte_json(
        "", "",
        BYTE_LEVEL
        ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}"
        ","
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"b\"},\"content\":\"xy\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"z+\"},\"content\":\"q\"},"
        "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true},"
        "{\"type\":\"Prepend\",\"prepend\":\"_\"}]}"));
    expect_ids(t, "  ABzzz ", "95 97 120 121 113");
    og_tokenizer_close(t);
    expect_bad_json(byte_json("", "", BYTE_LEVEL ",\"normalizer\":{\"type\":\"Nmt\"}"),
                    OG_EUNSUPPORTED, "Nmt");
}

static void expect_pieces(const char *steps, const char *text, const char *want) {
    /* Every pair of bytes merges, so each word of two letters becomes one id. */
    og_str extra = OG_STR_INIT;
    og_str_addf(
        &extra,
        ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[%s,"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}",
        steps);
    og_tokenizer *t = open_json(byte_json("\"a b\",\"a -\",\"- a\",\"1 2\",\"- -\"",
                                          ",\"ab\":256,\"a-\":257,\"-a\":258,\"12\":259,"
                                          "\"--\":260",
                                          extra.data));
    expect_ids(t, text, want);
    og_tokenizer_close(t);
    og_str_free(&extra);
}

static void test_pre_tokenizers(void **state) {
    (void)state;
#define SPLIT(b, inv)                                                                    \
    "{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"" b               \
    "\",\"invert\":" inv "}"
    expect_pieces(SPLIT("Isolated", "false"), "a-a", "97 45 97");
    expect_pieces(SPLIT("Removed", "false"), "a-a", "97 97");
    expect_pieces(SPLIT("Removed", "true"), "a--a", "45 45");
    expect_pieces(SPLIT("MergedWithPrevious", "false"), "a-a", "257 97");
    expect_pieces(SPLIT("MergedWithPrevious", "false"), "a--a", "257 45 97");
    expect_pieces(SPLIT("MergedWithNext", "false"), "a-a", "97 258");
    expect_pieces(SPLIT("MergedWithNext", "false"), "a--a", "97 45 258");
    expect_pieces(SPLIT("MergedWithNext", "false"), "a-", "97 45");
    expect_pieces(SPLIT("Contiguous", "false"), "a--a", "97 260 97");
    expect_pieces("{\"type\":\"Digits\",\"individual_digits\":true}", "12ab",
                  "49 50 256");
    expect_pieces("{\"type\":\"Digits\",\"individual_digits\":false}", "12ab", "259 256");
    expect_pieces("{\"type\":\"Whitespace\"}", "ab  a-", "256 97 45");
    expect_pieces("{\"type\":\"WhitespaceSplit\"}", "ab  a-", "256 257");
    expect_pieces("{\"type\":\"Punctuation\"}", "a-a", "97 45 97");
#undef SPLIT
    expect_bad_json(byte_json("", "", ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}"),
                    OG_EUNSUPPORTED, "UnicodeScripts");
    expect_bad_json(byte_json("", "",
                              ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":"
                              "{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}"),
                    OG_EFORMAT, "pattern");
    expect_bad_json(byte_json("", "",
                              ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":"
                              "{\"Regex\":\"[a&&b]\"},\"behavior\":\"Isolated\"}"),
                    OG_EUNSUPPORTED, "class");
}

/* A pattern that backtracks without end is an error, not a hang. */
static void test_runaway_pattern(void **state) {
    (void)state;
    og_tokenizer *t =
        open_json(byte_json("", "",
                            ",\"pre_tokenizer\":{\"type\":\"Sequence\","
                            "\"pretokenizers\":[{\"type\":\"Split\","
                            "\"pattern\":{\"Regex\":\"(a|aa)+[cd]\"},"
                            "\"behavior\":\"Isolated\"},"
                            "{\"type\":\"ByteLevel\",\"use_regex\":false}]}"));
    char *text = repeat("", "a", 5000);
    og_err err = OG_ERR_INIT;
    int32_t *ids;
    size_t n;
    assert_int_equal(og_tokenizer_encode(t, text, 5000, &ids, &n, &err), OG_ELIMIT);
    assert_null(ids);
    free(text);
    og_tokenizer_close(t);
}

/* A vocabulary of characters with byte fallback, as SentencePiece models have it. */
static void test_byte_fallback(void **state) {
    (void)state;
    og_str s = OG_STR_INIT;
    og_str_add(&s,
               "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"fuse_unk\":true,"
               "\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0");
    for (int b = 0; b < 256; b++) og_str_addf(&s, ",\"<0x%02X>\":%d", (unsigned)b, b + 1);
    og_str_add(&s, ",\"\xe2\x96\x81\":257,\"h\":258,\"i\":259,\"hi\":260,"
                   "\"\xe2\x96\x81hi\":261},\"merges\":[\"h i\",\"\xe2\x96\x81 hi\"]},"
                   "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
                   "{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"},"
                   "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                   "\"content\":\"\xe2\x96\x81\"}]},"
                   "\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
                   "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},"
                   "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
                   "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}}");
    og_tokenizer *t = open_json(s.data);
    expect_ids(t, "hi hi", "261 261");
    expect_ids(t, "hi\xc3\xa9", "261 196 170");
    expect_round_trip(t, "hi hi\xc3\xa9 hi");
    og_tokenizer_close(t);
}

static void test_metaspace_and_unknown(void **state) {
    (void)state;
    og_tokenizer *t = open_json(og_strdup(
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":true,"
        "\"vocab\":{\"?\":0,\"_\":1,\"a\":2,\"_a\":3},\"merges\":[[\"_\",\"a\"]]},"
        "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\","
        "\"prepend_scheme\":\"always\",\"split\":true},"
        "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\","
        "\"prepend_scheme\":\"always\",\"split\":true}}"));
    expect_ids(t, "a a", "3 3");
    expect_ids(t, "azz a", "3 0 3");
    expect_round_trip(t, "a a");
    og_tokenizer_close(t);
}

static void test_bad_files(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_tokenizer *t;
    expect_bad_json(og_strdup("{}"), OG_EUNSUPPORTED, "model");
    expect_bad_json(og_strdup("[]"), OG_EFORMAT, "object");
    expect_bad_json(og_strdup("{\"model\":{\"type\":\"Unigram\"}}"), OG_EUNSUPPORTED,
                    "Unigram");
    expect_bad_json(byte_json("\"a b\"", "", ""), OG_EFORMAT, "merge 0");
    expect_bad_json(byte_json("\"ab\"", "", ""), OG_EFORMAT, "merge 0");
    expect_bad_json(byte_json("", ",\"q0\":3", ""), OG_EFORMAT, "same id 3");
    expect_bad_json(byte_json("", ",\"q0\":-3", ""), OG_EFORMAT, "legal id");
    expect_bad_json(byte_json("", ",\"q0\":99999999", ""), OG_EFORMAT, "legal id");
    expect_bad_json(byte_json("", ",\"q0\":300,\"q0\":301", ""), OG_EFORMAT,
                    "duplicate key q0");
    expect_bad_json(
        byte_json("", "", ",\"added_tokens\":[{\"id\":300,\"content\":\"\"}]"),
        OG_EFORMAT, "without text");
    expect_bad_json(byte_json("", "", ",\"added_tokens\":[{\"content\":\"x\"}]"),
                    OG_EFORMAT, "legal id");
    assert_int_equal(og_tokenizer_open("/nonexistent", &t, &err), OG_ENOENT);
    t = open_json(byte_json("", "", BYTE_LEVEL));
    int32_t *ids;
    size_t n;
    og_err_clear(&err);
    assert_int_equal(og_tokenizer_encode(t, "ab\xff", 3, &ids, &n, &err), OG_EINVAL);
    assert_non_null(strstr(err.msg, "byte 2"));
    assert_int_equal(og_tokenizer_encode(t, "\xed\xa0\x80", 3, &ids, &n, NULL),
                     OG_EINVAL);
    assert_int_equal(og_tokenizer_encode(t, "a\0b", 3, &ids, &n, NULL), 0);
    assert_int_equal(n, 3);
    og_free(ids);
    og_tokenizer_close(t);
}

static char temp[256];

static void write_text(const char *name, const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", temp, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void expect_bad_vocab(const char *vocab, const char *word) {
    og_err err = OG_ERR_INIT;
    og_tokenizer *t = NULL;
    write_text("vocab.json", vocab);
    assert_int_equal(og_tokenizer_open(temp, &t, &err), OG_EFORMAT);
    assert_null(t);
    if (!strstr(err.msg, word)) fail_msg("'%s' lacks '%s'", err.msg, word);
}

static void test_vocab_and_merges(void **state) {
    (void)state;
    og_err err = OG_ERR_INIT;
    og_tokenizer *t;
    write_text("merges.txt", "#version: 0.2\r\n\\ \\\r\n");
    write_text("vocab.json", "{}");
    assert_int_equal(og_tokenizer_open(temp, &t, &err), OG_EFORMAT);
    assert_non_null(strstr(err.msg, "merges.txt:2: '\\ \\'"));
    write_text(
        "vocab.json",
        " {\"a\" : 0,\n\"\\\\\":1, \"\\\\\\u005C\":2,\"\\ud83d\\ude00\":3,\"\\u00E9\":7}\n");
    og_err_clear(&err);
    if (og_tokenizer_open(temp, &t, &err) < 0) fail_msg("%s", err.msg);
    expect_ids(t, "a\\\\", "0 2");
    assert_int_equal(og_tokenizer_token_id(t, "\xf0\x9f\x98\x80"), 3);
    assert_int_equal(og_tokenizer_token_id(t, "\xc3\xa9"), 7);
    assert_int_equal(og_tokenizer_size(t), 8);
    assert_null(og_tokenizer_token(t, 5));
    int32_t *ids;
    size_t n;
    assert_int_equal(og_tokenizer_encode(t, "b", 1, &ids, &n, NULL), OG_EINVAL);
    og_tokenizer_close(t);
    expect_bad_vocab("", "not an object");
    expect_bad_vocab("{\"a\":0", "missing");
    expect_bad_vocab("{\"a\":0,}", "a token is missing");
    expect_bad_vocab("{\"a\" 0}", "colon");
    expect_bad_vocab("{\"a\":-1}", "no legal id");
    expect_bad_vocab("{\"a\":99999999999999999999}", "no legal id");
    expect_bad_vocab("{\"a\":\"b\"}", "no legal id");
    expect_bad_vocab("{\"a\":0,\n\"a\":1}", "vocab.json:2: duplicate token a");
    expect_bad_vocab("{\"a\":0,\"b\":0}", "same id 0");
    expect_bad_vocab("{\"a", "without end");
    expect_bad_vocab("{\"a\nb\":0}", "escape");
    expect_bad_vocab("{\"\\u0000\":0}", "escape");
    expect_bad_vocab("{\"\\ud800\":0}", "escape");
    expect_bad_vocab("{\"\\udc00\":0}", "escape");
    expect_bad_vocab("{\"\\u12\":0}", "escape");
    expect_bad_vocab("{\"\xff\":0}", "UTF-8");
    expect_bad_vocab("{} x", "behind the end");
    write_text("tokenizer_config.json", "{\"tokenizer_class\":\"LlamaTokenizer\"}");
    og_err_clear(&err);
    assert_int_equal(og_tokenizer_open(temp, &t, &err), OG_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "LlamaTokenizer"));
}

#define THREADS 4

static void *encode_often(void *arg) {
    for (int i = 0; i < 50; i++) {
        int32_t *ids;
        size_t n;
        const char *text = "<|im_start|>The 3rd caf\xc3\xa9, don't!<|im_end|>";
        if (og_tokenizer_encode(arg, text, strlen(text), &ids, &n, NULL) < 0 || n < 8)
            return arg;
        og_free(ids);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    og_tokenizer *t = open_tree(TINY);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, t), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    og_tokenizer_close(t);
}

/* Fail the nth allocation of opening and of encoding, for every n. */
static void test_out_of_memory(void **state) {
    (void)state;
    char path[4096];
    source_path(path, sizeof path, "examples/voice");
    long live = og_alloc_live();
    for (long n = 1; n < 100000; n++) {
        og_err err = OG_ERR_INIT;
        og_tokenizer *t = NULL;
        int32_t *ids = NULL;
        size_t count;
        const char *text = "<|im_start|>a caf\xc3\xa9<|im_end|>";
        og_str out = OG_STR_INIT;
        og_alloc_fail_at(n);
        int rc = og_tokenizer_open(path, &t, &err);
        if (rc == 0) rc = og_tokenizer_encode(t, text, strlen(text), &ids, &count, &err);
        if (rc == 0) rc = og_tokenizer_decode(t, ids, count, 1, &out, &err);
        int failed = og_alloc_failed();
        og_alloc_fail_at(0);
        og_free(ids);
        og_str_free(&out);
        og_tokenizer_close(t);
        assert_int_equal(og_alloc_live(), live);
        if (rc < 0) assert_int_equal(rc, OG_ENOMEM);
        if (!failed) break;
    }
}

static uint32_t lcg(uint32_t *s) {
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

static void test_random_mutations(void **state) {
    (void)state;
    char *json = byte_json(
        "\"a b\"", ",\"ab\":256",
        ",\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
        "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[^\\\\s\\\\p{L}]"
        "+\"},"
        "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\"}]},"
        "\"added_tokens\":[{\"id\":300,\"content\":\"<m>\",\"lstrip\":true}]");
    size_t len = strlen(json);
    long live = og_alloc_live();
    uint32_t seed = 7;
    char *buf = malloc(len);
    for (int round = 0; round < 1500; round++) {
        memcpy(buf, json, len);
        for (int i = 1 + (int)(lcg(&seed) % 3); i > 0; i--) {
            /* Mostly the part behind the long vocabulary. */
            size_t at = lcg(&seed) % 4 ? len - 1 - lcg(&seed) % 420 : lcg(&seed) % len;
            if (lcg(&seed) % 2)
                buf[at] = (char)lcg(&seed);
            else
                buf[at] = "0123456789[]{}\",:\\()*+?"[lcg(&seed) % 23];
        }
        og_err err = OG_ERR_INIT;
        og_tokenizer *t;
        if (og_tokenizer_open_json("m.json", buf, len, &t, &err) == 0) {
            int32_t *ids;
            size_t n;
            if (og_tokenizer_encode(t, "ab <m> c1e\xcc\x81", 12, &ids, &n, NULL) == 0)
                og_free(ids);
            og_tokenizer_close(t);
        } else {
            assert_true(err.code < 0 && err.msg[0]);
        }
        assert_int_equal(og_alloc_live(), live);
    }
    free(buf);
    og_free(json);
}

static int make_dir(void **state) {
    (void)state;
    snprintf(temp, sizeof temp, "%s/tok-XXXXXX", OG_BINARY_DIR);
    return mkdtemp(temp) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", temp);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_ids_tiny),
        cmocka_unit_test(test_reference_ids_full),
        cmocka_unit_test(test_golden_prompts),
        cmocka_unit_test(test_default_voice),
        cmocka_unit_test(test_decode_round_trip),
        cmocka_unit_test(test_b030_long_runs),
        cmocka_unit_test(test_b031_stream_of_bytes),
        cmocka_unit_test(test_b032_cut_inside_a_character),
        cmocka_unit_test(test_b033_strip_flags),
        cmocka_unit_test(test_single_word_and_longest),
        cmocka_unit_test(test_b035_normalizers),
        cmocka_unit_test(test_pre_tokenizers),
        cmocka_unit_test(test_runaway_pattern),
        cmocka_unit_test(test_byte_fallback),
        cmocka_unit_test(test_metaspace_and_unknown),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_vocab_and_merges),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_random_mutations),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
