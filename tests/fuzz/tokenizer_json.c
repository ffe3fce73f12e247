/* A tokenizer.json, and behind a byte FUZZ_SPLIT a text for it. */
#include "nodes/load/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static void look(const og_tokenizer *t, const char *text, size_t n) {
    int32_t *ids = NULL;
    size_t count = 0;
    og_err err = OG_ERR_INIT;
    og_str s = OG_STR_INIT;
    if (og_tokenizer_encode(t, text, n, &ids, &count, &err) == 0 &&
        og_tokenizer_decode(t, ids, count, 0, &s, &err) == 0) {
        for (size_t i = 0; i < count; i++)
            if (!og_tokenizer_token(t, ids[i])) abort();
    }
    og_free(ids);
    og_str_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char text[] =
        "Hello <|im_start|> w\xc3\xb6rld, it's 12 o'clock\n\n\t  !";
    og_tokenizer *t = NULL;
    og_err err = OG_ERR_INIT;
    size_t at = fuzz_split(data, size);
    int rc = og_tokenizer_open_json("fuzz", (const char *)data, at, &t, &err);
    if ((rc == 0) != (t != NULL) || rc != err.code) abort();
    if (t) look(t, text, sizeof text - 1);
    if (t && at < size) look(t, (const char *)data + at + 1, size - at - 1);
    og_tokenizer_close(t);
    return 0;
}
