/* tokenizer.json: every part is taken over or refused by name. */
#include <stdio.h>
#include <string.h>

#include "nodes/load/tok.h"

#define PUNCTUATION "[!-/:-@\\[-`{-~\\p{P}]"
#define MARK "\xe2\x96\x81" /* U+2581, the visible space of SentencePiece */

static const char *str(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

static int flag(const json_t *j, const char *key) {
    return json_is_true(json_object_get(j, key));
}

static int unsupported(const char *name, const char *what, const char *type,
                       og_err *err) {
    return og_err_set(err, OG_EUNSUPPORTED, "%s: %s of type '%.60s' is not supported",
                      name, what, type);
}

/* ---- normalisers */

int og__tok_push_norm(og_tokenizer *t, const og__norm *n, og_err *err) {
    if (t->n_norms == OG_TOK_MAX_STEPS)
        return og_err_set(err, OG_ELIMIT, "too many normalisers (limit is %d)",
                          OG_TOK_MAX_STEPS);
    t->norms[t->n_norms++] = *n;
    return 0;
}

static int text_of(og_tokenizer *t, const json_t *j, const char *key, const char **s,
                   size_t *len, og_err *err) {
    const char *v = str(j, key);
    *s = og_arena_strdup(t->arena, v);
    *len = strlen(v);
    return *s ? 0 : og_err_set(err, OG_ENOMEM, "no memory for a tokenizer");
}

static int load_replace(og_tokenizer *t, const char *name, const json_t *j, og_err *err) {
    og__norm n = {.kind = OG__NORM_REPLACE};
    const json_t *pattern = json_object_get(j, "pattern");
    int rc = text_of(t, j, "content", &n.to, &n.to_len, err);
    if (rc < 0) return rc;
    if (json_object_get(pattern, "Regex")) {
        n.kind = OG__NORM_REPLACE_REGEX;
        rc = og__pattern(t, name, str(pattern, "Regex"), 1, &n.re, err);
        if (rc < 0) return rc;
        rc = og__tok_push_norm(t, &n, err);
        if (rc < 0) pcre2_code_free(n.re);
        return rc;
    }
    rc = text_of(t, pattern, "String", &n.from, &n.from_len, err);
    if (rc < 0) return rc;
    if (!n.from_len)
        return og_err_set(err, OG_EFORMAT, "%s: Replace without pattern", name);
    return og__tok_push_norm(t, &n, err);
}

static int load_normalizer(og_tokenizer *t, const char *name, const json_t *j, int depth,
                           og_err *err) {
    static const struct {
        const char *type;
        og__norm norm;
    } plain[] = {
        {"NFC", {.kind = OG__NORM_UNICODE, .compose = 1}},
        {"NFD", {.kind = OG__NORM_UNICODE}},
        {"NFKC", {.kind = OG__NORM_UNICODE, .compose = 1, .compat = 1}},
        {"NFKD", {.kind = OG__NORM_UNICODE, .compat = 1}},
        {"Lowercase", {.kind = OG__NORM_LOWER}},
    };
    const char *type = str(j, "type");
    size_t i;
    const json_t *item;
    if (!j || json_is_null(j)) return 0;
    for (i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(type, plain[i].type) == 0)
            return og__tok_push_norm(t, &plain[i].norm, err);
    if (strcmp(type, "Replace") == 0) return load_replace(t, name, j, err);
    if (strcmp(type, "Prepend") == 0) {
        og__norm n = {.kind = OG__NORM_PREPEND};
        int rc = text_of(t, j, "prepend", &n.to, &n.to_len, err);
        return rc < 0 ? rc : og__tok_push_norm(t, &n, err);
    }
    if (strcmp(type, "Strip") == 0) {
        og__norm n = {.kind = OG__NORM_STRIP,
                      .left = flag(j, "strip_left"),
                      .right = flag(j, "strip_right")};
        return og__tok_push_norm(t, &n, err);
    }
    if (strcmp(type, "Sequence") != 0 || depth > OG_TOK_MAX_STEPS)
        return unsupported(name, "a normalizer", type, err);
    json_array_foreach(json_object_get(j, "normalizers"), i, item) {
        int rc = load_normalizer(t, name, item, depth + 1, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- pre-tokenisers */

int og__tok_push_split(og_tokenizer *t, const char *name, const char *pattern,
                       int is_regex, og__behavior behavior, int invert, og_err *err) {
    if (t->n_splits == OG_TOK_MAX_STEPS)
        return og_err_set(err, OG_ELIMIT, "%s: too many pre-tokenizers (limit is %d)",
                          name, OG_TOK_MAX_STEPS);
    og__split s = {.behavior = behavior, .invert = invert};
    int rc = og__pattern(t, name, pattern, is_regex, &s.re, err);
    if (rc < 0) return rc;
    t->splits[t->n_splits++] = s;
    return 0;
}

static int behavior_of(const char *name, const json_t *j, og__behavior *b, og_err *err) {
#define NAME(value, text) text,
    static const char *const names[] = {OG__SPLIT_LIST(NAME)};
#undef NAME
    const char *text = str(j, "behavior");
    for (int i = 0; i < OG__SPLIT_COUNT; i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *b = (og__behavior)i;
        return 0;
    }
    return unsupported(name, "a split behavior", text, err);
}

static int load_split(og_tokenizer *t, const char *name, const json_t *j, og_err *err) {
    const json_t *pattern = json_object_get(j, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    og__behavior b = 0;
    int rc = behavior_of(name, j, &b, err);
    if (rc < 0) return rc;
    return og__tok_push_split(t, name, regex ? regex : str(pattern, "String"),
                              regex != NULL, b, flag(j, "invert"), err);
}

/* Spaces before a segment are put there once, so only a first step may ask for them. */
static int load_byte_level(og_tokenizer *t, const char *name, const json_t *j,
                           og_err *err) {
    if (flag(j, "add_prefix_space")) {
        if (t->n_splits)
            return unsupported(name, "a late prefix space", "ByteLevel", err);
        t->prefix = OG__ALWAYS;
        t->prefix_text = " ";
    }
    t->byte_level = 1;
    const json_t *use = json_object_get(j, "use_regex");
    if (use && !json_is_null(use) && !json_is_true(use)) return 0;
    return og__tok_push_split(t, name, OG__GPT2_PATTERN, 1, OG__ISOLATED, 0, err);
}

static int load_metaspace(og_tokenizer *t, const char *name, const json_t *j,
                          og_err *err) {
    const char *scheme = str(j, "prepend_scheme"), *mark = str(j, "replacement");
    const json_t *split = json_object_get(j, "split");
    if (t->n_splits || t->space_as)
        return unsupported(name, "a late step", "Metaspace", err);
    t->space_as = og_arena_strdup(t->arena, *mark ? mark : MARK);
    if (!t->space_as) return og_err_set(err, OG_ENOMEM, "no memory for a tokenizer");
    t->prefix_text = t->space_as;
    t->prefix = strcmp(scheme, "never") == 0   ? OG__NEVER
                : strcmp(scheme, "first") == 0 ? OG__FIRST
                                               : OG__ALWAYS;
    if (!*scheme && json_is_false(json_object_get(j, "add_prefix_space")))
        t->prefix = OG__NEVER;
    if (json_is_false(split)) return 0;
    return og__tok_push_split(t, name, t->space_as, 0, OG__MERGED_WITH_NEXT, 0, err);
}

static int load_pretokenizer(og_tokenizer *t, const char *name, const json_t *j,
                             int depth, og_err *err) {
    const char *type = str(j, "type");
    size_t i;
    const json_t *item;
    if (!j || json_is_null(j)) return 0;
    /* What follows ByteLevel would see its alphabet, not the text that we keep. */
    if (t->byte_level && strcmp(type, "Sequence") != 0)
        return unsupported(name, "a pre-tokenizer after ByteLevel", type, err);
    if (strcmp(type, "Split") == 0) return load_split(t, name, j, err);
    if (strcmp(type, "ByteLevel") == 0) return load_byte_level(t, name, j, err);
    if (strcmp(type, "Metaspace") == 0) return load_metaspace(t, name, j, err);
    if (strcmp(type, "Digits") == 0)
        return og__tok_push_split(
            t, name, "\\p{N}", 1,
            flag(j, "individual_digits") ? OG__ISOLATED : OG__CONTIGUOUS, 0, err);
    if (strcmp(type, "Whitespace") == 0)
        return og__tok_push_split(t, name, "\\w+|[^\\w\\s]+", 1, OG__REMOVED, 1, err);
    if (strcmp(type, "WhitespaceSplit") == 0)
        return og__tok_push_split(t, name, "\\s", 1, OG__REMOVED, 0, err);
    if (strcmp(type, "Punctuation") == 0) {
        og__behavior b = OG__ISOLATED;
        int rc = *str(j, "behavior") ? behavior_of(name, j, &b, err) : 0;
        return rc < 0 ? rc : og__tok_push_split(t, name, PUNCTUATION, 1, b, 0, err);
    }
    if (strcmp(type, "Sequence") != 0 || depth > OG_TOK_MAX_STEPS)
        return unsupported(name, "a pre-tokenizer", type, err);
    json_array_foreach(json_object_get(j, "pretokenizers"), i, item) {
        int rc = load_pretokenizer(t, name, item, depth + 1, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- decoders */

static int load_strip(og_tokenizer *t, const char *name, const json_t *j, og_err *err) {
    json_int_t start = json_integer_value(json_object_get(j, "start"));
    if (strcmp(str(j, "content"), " ") != 0 || start < 0 || start > 16 ||
        json_integer_value(json_object_get(j, "stop")) != 0)
        return unsupported(name, "a decoder", "Strip", err);
    t->strip_first = (int)start;
    return 0;
}

static int load_shown(og_tokenizer *t, const char *name, const char *from, const char *to,
                      og_err *err) {
    if (t->show_from || !*from) return unsupported(name, "a decoder", "Replace", err);
    t->show_from = og_arena_strdup(t->arena, from);
    t->show_to = og_arena_strdup(t->arena, to);
    return t->show_from && t->show_to
               ? 0
               : og_err_set(err, OG_ENOMEM, "no memory for a decoder");
}

static int load_decoder(og_tokenizer *t, const char *name, const json_t *j, int depth,
                        og_err *err) {
    const char *type = str(j, "type");
    size_t i;
    const json_t *item;
    if (!j || json_is_null(j) || t->byte_level) return 0;
    if (strcmp(type, "Fuse") == 0) return 0;
    if (strcmp(type, "ByteFallback") == 0) {
        t->show_bytes = 1;
        return 0;
    }
    if (strcmp(type, "Replace") == 0)
        return load_shown(t, name, str(json_object_get(j, "pattern"), "String"),
                          str(j, "content"), err);
    if (strcmp(type, "Metaspace") == 0) {
        const char *mark = str(j, "replacement");
        t->strip_first = t->prefix != OG__NEVER;
        return load_shown(t, name, *mark ? mark : MARK, " ", err);
    }
    if (strcmp(type, "Strip") == 0) return load_strip(t, name, j, err);
    if (strcmp(type, "Sequence") != 0 || depth > OG_TOK_MAX_STEPS)
        return unsupported(name, "a decoder", type, err);
    json_array_foreach(json_object_get(j, "decoders"), i, item) {
        int rc = load_decoder(t, name, item, depth + 1, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- the model */

static int load_merge(og_tokenizer *t, const char *name, const json_t *j, size_t rank,
                      og_err *err) {
    const char *text = json_string_value(j), *left, *right;
    size_t n;
    if (text) {
        const char *space = strchr(text, ' ');
        if (!space)
            return og_err_set(err, OG_EFORMAT, "%s: merge %zu is no pair", name, rank);
        left = text;
        n = (size_t)(space - text);
        right = space + 1;
    } else {
        left = json_string_value(json_array_get(j, 0));
        right = json_string_value(json_array_get(j, 1));
        if (!left || !right || json_array_size(j) != 2)
            return og_err_set(err, OG_EFORMAT, "%s: merge %zu is no pair", name, rank);
        n = strlen(left);
    }
    int rc = og__tok_add_merge(t, left, n, right, strlen(right), (int32_t)rank);
    if (rc == OG_ENOMEM) return og_err_set(err, rc, "%s: no memory for merges", name);
    if (rc < 0)
        return og_err_set(err, rc, "%s: merge %zu uses a token outside the vocabulary",
                          name, rank);
    return 0;
}

static int check_model(og_tokenizer *t, const char *name, const json_t *m, og_err *err) {
    const char *type = str(m, "type");
    const json_t *dropout = json_object_get(m, "dropout");
    if (!json_is_object(m) || (*type && strcmp(type, "BPE") != 0) ||
        (!*type && !json_object_get(m, "merges")))
        return unsupported(name, "a model", type, err);
    if (*str(m, "continuing_subword_prefix") || *str(m, "end_of_word_suffix"))
        return unsupported(name, "a model", "BPE with affixes", err);
    if (json_is_number(dropout) && json_number_value(dropout) != 0)
        return unsupported(name, "a model", "BPE with dropout", err);
    t->byte_fallback = flag(m, "byte_fallback");
    t->fuse_unk = flag(m, "fuse_unk");
    t->ignore_merges = flag(m, "ignore_merges");
    return 0;
}

static int load_model(og_tokenizer *t, const char *name, const json_t *m, og_err *err) {
    const json_t *merges = json_object_get(m, "merges"), *item;
    json_t *vocab = json_object_get(m, "vocab"), *v;
    const char *token;
    size_t i;
    int rc = check_model(t, name, m, err);
    if (rc < 0) return rc;
    if (!json_is_object(vocab) || !json_is_array(merges))
        return og_err_set(err, OG_EFORMAT, "%s: the model lacks vocab or merges", name);
    json_object_foreach(vocab, token, v) {
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= OG_TOK_MAX_ID)
            return og_err_set(err, OG_EFORMAT, "%s: token '%.100s' has no legal id", name,
                              token);
        rc = og__tok_add_token(t, token, (int32_t)id, err);
        if (rc < 0) return rc;
    }
    json_array_foreach(merges, i, item) {
        rc = load_merge(t, name, item, i, err);
        if (rc < 0) return rc;
    }
    const char *unk = str(m, "unk_token");
    t->unk = *unk ? og__strmap_get(&t->by_text, unk, strlen(unk)) : -1;
    return 0;
}

int og__tok_load_added(og_tokenizer *t, const char *name, const json_t *list,
                       og_err *err) {
    size_t i;
    const json_t *j;
    json_array_foreach(list, i, j) {
        const json_t *id = json_object_get(j, "id");
        og__added a = {.text = str(j, "content"),
                       .lstrip = (uint8_t)flag(j, "lstrip"),
                       .rstrip = (uint8_t)flag(j, "rstrip"),
                       .single_word = (uint8_t)flag(j, "single_word"),
                       .normalized = (uint8_t)flag(j, "normalized"),
                       .special = (uint8_t)flag(j, "special")};
        json_int_t v = json_integer_value(id);
        if (!json_is_integer(id) || v < 0 || v >= OG_TOK_MAX_ID)
            return og_err_set(err, OG_EFORMAT, "%s: added token '%.100s' has no legal id",
                              name, a.text);
        a.id = (int32_t)v;
        a.len = strlen(a.text);
        int rc = og__added_put(t, name, &a, err);
        if (rc < 0) return rc;
    }
    return 0;
}

int og__tok_load_json(og_tokenizer *t, const char *name, json_t *root, og_err *err) {
    int rc;
    if (!json_is_object(root))
        return og_err_set(err, OG_EFORMAT, "%s: not a JSON object", name);
    if ((rc = load_normalizer(t, name, json_object_get(root, "normalizer"), 0, err)) <
            0 ||
        (rc = load_pretokenizer(t, name, json_object_get(root, "pre_tokenizer"), 0,
                                err)) < 0 ||
        (rc = load_decoder(t, name, json_object_get(root, "decoder"), 0, err)) < 0 ||
        (rc = load_model(t, name, json_object_get(root, "model"), err)) < 0)
        return rc;
    return og__tok_load_added(t, name, json_object_get(root, "added_tokens"), err);
}
