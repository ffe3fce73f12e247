/* A path, the header with the key, and a data: URL, with bytes FUZZ_SPLIT between them. */
#include "graph/serve/server.h"
#include "tests/fuzz/fuzz.h"

#define KEY "sk-1234"

static char *text_of(const uint8_t *data, size_t size) {
    char *s = malloc(size + 1);
    if (!s) abort();
    if (size) memcpy(s, data, size);
    s[size] = 0;
    return s;
}

static void find(const char *path) {
    char *param = malloc(OG__PARAM_MAX);
    if (!param) abort();
    for (int m = OG__GET; m <= OG__OTHER; m++) {
        const char *allowed = NULL;
        param[0] = 0;
        const og__route *r = og__route_find((og__method)m, path, param, &allowed);
        if (r && (!r->handler || memchr(param, 0, OG__PARAM_MAX) == NULL)) abort();
        if (r && (strchr(param, '/') || (strstr(r->path, "{}") && !*param))) abort();
        if (!r && !allowed) abort();
    }
    free(param);
}

/* The header ends with the key where it lets in. */
static void open_door(const char *authorization) {
    static const char *const keys[] = {"k", KEY};
    static og_server s; /* only its options are looked at */
    s.opts.api_keys = keys;
    s.opts.n_api_keys = 2;
    const char *last = strrchr(authorization, ' ');
    bool right = last && (!strcmp(last, " k") || !strcmp(last, " " KEY));
    if (og__key_ok(&s, authorization) && !right) abort();
}

/* What is decoded comes back when it is encoded and decoded again. */
static void decode(const char *url) {
    og_str bytes = OG_STR_INIT, text = OG_STR_INIT, again = OG_STR_INIT;
    og_err err = OG_ERR_INIT;
    int rc = og__data_url(url, &bytes, &err);
    if ((rc < 0) != (err.code != 0)) abort();
    if (rc == 0 && bytes.len) {
        og__base64(bytes.data, bytes.len, &text);
        if (og__data_url(text.data, &again, NULL) < 0) abort();
        if (again.len != bytes.len || memcmp(again.data, bytes.data, bytes.len)) abort();
    }
    og_str_free(&bytes);
    og_str_free(&text);
    og_str_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    void (*const parts[])(const char *) = {find, open_door, decode};
    for (int i = 0; i < 3; i++) {
        size_t at = fuzz_split(data, size), over = at < size ? at + 1 : at;
        char *text = text_of(data, at);
        parts[i](text);
        free(text);
        data += over;
        size -= over;
    }
    return 0;
}
