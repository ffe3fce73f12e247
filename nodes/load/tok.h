/* Inside of the tokenizer: its parts, each in a file of its own.
 *
 *   text -> added tokens -> normalise -> added tokens -> split -> words -> BPE -> ids
 */
#ifndef OG_LOAD_TOK_H
#define OG_LOAD_TOK_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/base/alloc.h"
#include "kernels/base/err.h"
#include "nodes/load/tokenizer.h"

/* What GPT-2's class and any ByteLevel pre-tokeniser split with. */
#define OG__GPT2_PATTERN                                                                 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* One token. bytes is what it decodes to; text is its spelling in the files. */
typedef struct og__token {
    const char *text; /* NULL: no token has this id */
    const char *bytes;
    uint32_t n_bytes;
    uint8_t added, special;
} og__token;

/* A byte string that is part of a larger text. */
typedef struct og__span {
    size_t at, len;
} og__span;

typedef struct og__spans {
    og__span *v;
    size_t n, cap;
} og__spans;
int og__spans_add(og__spans *s, size_t at, size_t len); /* OG_ENOMEM or 0 */

typedef struct og__ids {
    int32_t *v;
    size_t n, cap;
} og__ids;
int og__ids_add(og__ids *s, int32_t id);

/* Strings to ids: open addressing, a power of two of slots, never more than half full. */
typedef struct og__strmap {
    struct og__strslot {
        const char *s;
        uint32_t len;
        int32_t id; /* -1: free */
    } * slots;
    size_t cap, n;
} og__strmap;
int og__strmap_put(og__strmap *m, const char *s, size_t len, int32_t id);
int32_t og__strmap_get(const og__strmap *m, const char *s, size_t len); /* -1: absent */

/* (left id, right id) to rank and merged id; the same kind of table. */
typedef struct og__pairmap {
    struct og__pairslot {
        uint64_t key;
        int32_t rank, id; /* rank -1: free */
    } * slots;
    size_t cap, n;
} og__pairmap;

typedef enum og__norm_kind {
    OG__NORM_UNICODE,
    OG__NORM_LOWER,
    OG__NORM_PREPEND,
    OG__NORM_REPLACE,
    OG__NORM_REPLACE_REGEX,
    OG__NORM_STRIP
} og__norm_kind;

typedef struct og__norm {
    og__norm_kind kind;
    int compat, compose;   /* UNICODE */
    const char *from, *to; /* PREPEND: to; REPLACE: both */
    size_t from_len, to_len;
    int left, right; /* STRIP */
    pcre2_code *re;  /* REPLACE_REGEX */
} og__norm;

/* What becomes of the matches that cut a text. */
#define OG__SPLIT_LIST(X)                                                                \
    X(OG__REMOVED, "Removed")                                                            \
    X(OG__ISOLATED, "Isolated")                                                          \
    X(OG__MERGED_WITH_PREVIOUS, "MergedWithPrevious")                                    \
    X(OG__MERGED_WITH_NEXT, "MergedWithNext")                                            \
    X(OG__CONTIGUOUS, "Contiguous")
#define OG__SPLIT_ENUM(name, text) name,
typedef enum og__behavior { OG__SPLIT_LIST(OG__SPLIT_ENUM) OG__SPLIT_COUNT } og__behavior;
#undef OG__SPLIT_ENUM

typedef struct og__split {
    pcre2_code *re;
    og__behavior behavior;
    int invert;
} og__split;

/* Added tokens by their bytes: a trie in one array, children as sibling lists. */
typedef struct og__trie {
    struct og__trienode {
        int32_t child, sibling; /* 0: none (node 0 is the root) */
        int32_t added;          /* index of the added token that ends here, -1 */
        unsigned char byte;
    } * nodes;
    int32_t n, cap;
} og__trie;

typedef struct og__added {
    const char *text; /* as matched: normalised if it is to be */
    size_t len;
    int32_t id;
    uint8_t lstrip, rstrip, single_word, normalized, special;
} og__added;

/* How a prefix comes before a segment (ByteLevel's space, Metaspace's mark). */
typedef enum og__prefix { OG__NEVER, OG__FIRST, OG__ALWAYS } og__prefix;

#define OG__ALPHABET 0x144 /* one more than its last character */

struct og_tokenizer {
    atomic_int refs;
    og_arena *arena; /* strings */
    og__token *tokens;
    int32_t n_tokens, cap_tokens;
    og__strmap by_text;

    og__added *added;
    int n_added, cap_added;
    og__trie raw, normal; /* tokens matched before and after normalising */

    og__norm norms[OG_TOK_MAX_STEPS];
    int n_norms;
    og__split splits[OG_TOK_MAX_STEPS];
    int n_splits;
    og__prefix prefix;
    const char *prefix_text;
    const char *space_as; /* Metaspace: what a space becomes; NULL otherwise */

    pcre2_general_context *pcre;
    pcre2_match_context *limits;

    /* The byte-level alphabet: the character of each byte, the byte of each character */
    uint16_t char_of[256];
    int16_t byte_of[OG__ALPHABET];

    /* BPE */
    int byte_level, byte_fallback, fuse_unk, ignore_merges;
    int32_t unk;
    int32_t byte_ids[256]; /* byte level: the single bytes; fallback: <0x..>; -1 */
    og__pairmap merges;

    /* Decoding of vocabularies that are not byte level */
    const char *show_from, *show_to; /* a replacement in every token */
    int show_bytes;                  /* <0x..> tokens are bytes */
    int strip_first;                 /* spaces dropped at the start of a text */
};

/* tok_bpe.c */
int og__tok_add_token(og_tokenizer *t, const char *name, int32_t id, og_err *err);
int og__tok_add_merge(og_tokenizer *t, const char *left, size_t n_left, const char *right,
                      size_t n_right, int32_t rank);
int og__tok_finish(og_tokenizer *t, const char *name, og_err *err);
/* Buffers of one call to encode. */
typedef struct og__bpe {
    struct og__symbol {
        int32_t prev, next, id;
    } * symbols;
    struct og__merge {
        int32_t rank, at, id;
    } * heap;
    size_t cap_symbols, cap_heap, n_heap;
} og__bpe;
int og__bpe_word(const og_tokenizer *t, og__bpe *b, const char *text, size_t len,
                 og__ids *out, og_err *err);
void og__bpe_free(og__bpe *b);
void og__alphabet_init(og_tokenizer *t);

/* tok_text.c */
/* One character of s[0..n): its length and code point; 0 when incomplete; minus the
 * length of the maximal bad run when it is not UTF-8. */
int og__utf8(const unsigned char *s, size_t n, int32_t *c);
int og__utf8_check(const char *text, size_t len, og_err *err);
int og__is_space(int32_t c);
int og__is_word(int32_t c);
/* Run all normalisers; out gets the result. */
int og__normalize(const og_tokenizer *t, const char *text, size_t len, og_str *out,
                  og_err *err);

/* tok_split.c */
int og__pattern(og_tokenizer *t, const char *name, const char *pattern, int is_regex,
                pcre2_code **re, og_err *err);
/* Next match at or after from: 1 with *at and *end, 0 none, < 0 error. */
int og__match(const og_tokenizer *t, const pcre2_code *re, pcre2_match_data *md,
              const char *text, size_t len, size_t from, size_t *at, size_t *end,
              og_err *err);
/* Cut text into words. */
int og__split_text(const og_tokenizer *t, const char *text, size_t len, og__spans *words,
                   og_err *err);

/* tok_added.c */
int og__added_put(og_tokenizer *t, const char *name, const og__added *a, og_err *err);
int og__added_finish(og_tokenizer *t, og_err *err);
/* Next added token at or after from, with what it strips: 1, or 0 when there is none. */
int og__added_find(const og_tokenizer *t, const og__trie *trie, const char *text,
                   size_t len, size_t from, size_t *at, size_t *end, int32_t *id);

/* tok_json.c, tok_files.c */
int og__tok_load_json(og_tokenizer *t, const char *name, json_t *root, og_err *err);
int og__tok_load_added(og_tokenizer *t, const char *name, const json_t *list,
                       og_err *err);
/* tok_vocab.c: a vocab.json, {"token": id, ...}. */
int og__tok_load_vocab(og_tokenizer *t, const char *path, og_err *err);
int og__tok_load_dir(og_tokenizer *t, const char *dir, og_err *err);
int og__tok_push_norm(og_tokenizer *t, const og__norm *n, og_err *err);
int og__tok_push_split(og_tokenizer *t, const char *name, const char *pattern,
                       int is_regex, og__behavior behavior, int invert, og_err *err);

#endif
