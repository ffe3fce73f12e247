/* The tokenizer of a folder: tokenizer.json, or vocab.json + merges.txt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nodes/load/json.h"
#include "nodes/load/tok.h"

/* What the Qwen2 tokenizer class splits with. */
#define QWEN2_PATTERN                                                                    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"                 \
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const char *file_in(og_tokenizer *t, const char *dir, const char *name,
                           og_err *err) {
    const char *path = og_arena_printf(t->arena, "%s/%s", dir, name);
    if (!path) og_err_set(err, OG_ENOMEM, "no memory for a path");
    return path;
}

/* A JSON object of the folder; *out NULL and 0 when the file is not there. */
static int load_json(og_tokenizer *t, const char *dir, const char *name, json_t **out,
                     og_err *err) {
    const char *path = file_in(t, dir, name, err);
    *out = NULL;
    if (!path) return OG_ENOMEM;
    if (access(path, F_OK) < 0) return 0;
    *out = og_json_load(path, OG_TOK_MAX_FILE, OG_TOK_MAX_DEPTH, err);
    if (!*out) return err->code;
    if (json_is_object(*out)) return 0;
    json_decref(*out);
    *out = NULL;
    return og_err_set(err, OG_EFORMAT, "%s: not a JSON object", path);
}

static int load_merges(og_tokenizer *t, const char *path, og_err *err) {
    char *text, *line, *rest;
    size_t len;
    int32_t rank = 0;
    int number = 0;
    int rc = og_file_read(path, OG_TOK_MAX_FILE, &text, &len, err);
    if (rc < 0) return rc;
    for (rest = text; rc == 0 && (line = strsep(&rest, "\n")) != NULL;) {
        size_t n = strlen(line);
        number++;
        if (n && line[n - 1] == '\r') line[--n] = 0;
        if (!n || strncmp(line, "#version", 8) == 0) continue;
        char *space = strchr(line, ' ');
        if (!space || strchr(space + 1, ' ')) {
            rc =
                og_err_set(err, OG_EFORMAT, "%s:%d: a merge is two tokens", path, number);
            break;
        }
        rc = og__tok_add_merge(t, line, (size_t)(space - line), space + 1,
                               strlen(space + 1), rank++);
        if (rc == OG_ENOMEM)
            og_err_set(err, rc, "%s: no memory for merges", path);
        else if (rc < 0)
            og_err_set(err, rc, "%s:%d: '%.100s' uses a token outside the vocabulary",
                       path, number, line);
    }
    og_free(text);
    return rc;
}

/* Normaliser and split of the class that a folder names. */
static int use_class(og_tokenizer *t, const json_t *config, og_err *err) {
    static const og__norm nfc = {.kind = OG__NORM_UNICODE, .compose = 1};
    const char *name = json_string_value(json_object_get(config, "tokenizer_class"));
    int gpt2 = name && strncmp(name, "GPT2Tokenizer", 13) == 0;
    if (name && !gpt2 && strncmp(name, "Qwen2Tokenizer", 14) != 0)
        return og_err_set(err, OG_EUNSUPPORTED,
                          "tokenizer_config.json: class %.60s needs a tokenizer.json",
                          name);
    t->byte_level = 1;
    if (json_is_true(json_object_get(config, "add_prefix_space"))) {
        t->prefix = OG__ALWAYS;
        t->prefix_text = " ";
    }
    int rc = gpt2 ? 0 : og__tok_push_norm(t, &nfc, err);
    if (rc < 0) return rc;
    return og__tok_push_split(t, "tokenizer class",
                              gpt2 ? OG__GPT2_PATTERN : QWEN2_PATTERN, 1, OG__ISOLATED, 0,
                              err);
}

static int load_parts(og_tokenizer *t, const char *dir, const json_t *config,
                      og_err *err) {
    const char *vocab = file_in(t, dir, "vocab.json", err);
    const char *merges = file_in(t, dir, "merges.txt", err);
    if (!vocab || !merges) return OG_ENOMEM;
    if (access(vocab, F_OK) < 0)
        return og_err_set(err, OG_ENOENT, "%s: no tokenizer.json, no vocab.json", dir);
    int rc = use_class(t, config, err);
    if (rc == 0) rc = og__tok_load_vocab(t, vocab, err);
    if (rc == 0) rc = load_merges(t, merges, err);
    return rc;
}

static int legal_id(const char *text, long *id) {
    char *end;
    *id = strtol(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && *id < OG_TOK_MAX_ID;
}

/* added_tokens_decoder: {"151643": {"content": ...}}. */
static int load_decoder_map(og_tokenizer *t, const json_t *config, og_err *err) {
    const char *key;
    json_t *j;
    long id;
    json_object_foreach(json_object_get(config, "added_tokens_decoder"), key, j) {
        const char *text = json_string_value(json_object_get(j, "content"));
        if (!text || !legal_id(key, &id))
            return og_err_set(
                err, OG_EFORMAT,
                "tokenizer_config.json: added token %.60s has no legal id or "
                "no content",
                key);
        og__added a = {.text = text,
                       .len = strlen(text),
                       .id = (int32_t)id,
                       .lstrip = json_is_true(json_object_get(j, "lstrip")),
                       .rstrip = json_is_true(json_object_get(j, "rstrip")),
                       .single_word = json_is_true(json_object_get(j, "single_word")),
                       .normalized = json_is_true(json_object_get(j, "normalized")),
                       .special = json_is_true(json_object_get(j, "special"))};
        int rc = og__added_put(t, "tokenizer_config.json", &a, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* added_tokens.json: {"<tool>": 151657}. */
static int load_added_map(og_tokenizer *t, const char *dir, og_err *err) {
    const char *text;
    json_t *root, *v;
    int rc = load_json(t, dir, "added_tokens.json", &root, err);
    if (rc < 0 || !root) return rc;
    json_object_foreach(root, text, v) {
        json_int_t id = json_integer_value(v);
        og__added a = {.text = text, .len = strlen(text), .id = (int32_t)id};
        if (!json_is_integer(v) || id < 0 || id >= OG_TOK_MAX_ID)
            rc = og_err_set(err, OG_EFORMAT, "added_tokens.json: '%.60s' has no legal id",
                            text);
        else
            rc = og__added_put(t, "added_tokens.json", &a, err);
        if (rc < 0) break;
    }
    json_decref(root);
    return rc;
}

int og__tok_load_dir(og_tokenizer *t, const char *dir, og_err *err) {
    json_t *config = NULL, *whole = NULL;
    int rc = load_json(t, dir, "tokenizer_config.json", &config, err);
    if (rc == 0) rc = load_json(t, dir, "tokenizer.json", &whole, err);
    if (rc == 0)
        rc = whole ? og__tok_load_json(t, "tokenizer.json", whole, err)
                   : load_parts(t, dir, config, err);
    if (rc == 0) rc = load_decoder_map(t, config, err);
    if (rc == 0) rc = load_added_map(t, dir, err);
    json_decref(whole);
    json_decref(config);
    return rc;
}
