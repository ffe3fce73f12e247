/* Tokenizer: BPE from vocab.json + merges.txt or from tokenizer.json.
 *
 * Immutable once open and reference counted: any number of threads may encode and decode
 * with one object. Text is UTF-8 with a length; it may hold NUL. Cost is about linear in
 * the text (n log n in the longest word), without recursion.
 *
 *     og_tokenizer *t = NULL;
 *     int32_t *ids = NULL;
 *     size_t n = 0;
 *     if (og_tokenizer_open(dir, &t, err) < 0) return err->code;
 *     rc = og_tokenizer_encode(t, text, strlen(text), &ids, &n, err);
 *     og_free(ids);
 *     og_tokenizer_close(t);
 */
#ifndef OG_LOAD_TOKENIZER_H
#define OG_LOAD_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/base/alloc.h"
#include "kernels/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits; they stand in the messages. */
#define OG_TOK_MAX_FILE (256u << 20) /* bytes of any one file */
#define OG_TOK_MAX_DEPTH 64          /* nesting of its JSON */
#define OG_TOK_MAX_ID (1 << 24)
#define OG_TOK_MAX_TEXT (16u << 20) /* bytes of one text */
#define OG_TOK_MAX_PATTERN 16384    /* bytes of one regular expression */
#define OG_TOK_MAX_STEPS 32         /* normalisers, and pre-tokenisers, in one file */

typedef struct og_tokenizer og_tokenizer;

/* Open the tokenizer of a folder: tokenizer.json when there is one, else vocab.json +
 * merges.txt (classes Qwen2Tokenizer, which is the default, and GPT2Tokenizer of
 * tokenizer_config.json). added_tokens_decoder of tokenizer_config.json and
 * added_tokens.json are read with both. A part that we do not know (normaliser,
 * pre-tokeniser, model) is OG_EUNSUPPORTED and names it; never a silent difference. */
int og_tokenizer_open(const char *dir, og_tokenizer **out, og_err *err) OG_MUST_CHECK;
/* The same from the text of a tokenizer.json. name stands in messages. */
int og_tokenizer_open_json(const char *name, const char *json, size_t len,
                           og_tokenizer **out, og_err *err) OG_MUST_CHECK;
og_tokenizer *og_tokenizer_ref(og_tokenizer *t);
void og_tokenizer_close(og_tokenizer *t); /* one owner less; NULL is fine */

/* Ids of a text. Added tokens ("<|im_start|>") in it become their ids; nothing is put
 * before or after. *ids is the caller's (og_free), also when *n is 0. OG_EINVAL for text
 * that is not UTF-8 (with the byte offset), OG_ELIMIT for one that is too long or a
 * pattern that runs away. */
int og_tokenizer_encode(const og_tokenizer *t, const char *text, size_t len,
                        int32_t **ids, size_t *n, og_err *err) OG_MUST_CHECK;
/* The same, but added tokens in the text are plain characters. */
int og_tokenizer_encode_plain(const og_tokenizer *t, const char *text, size_t len,
                              int32_t **ids, size_t *n, og_err *err) OG_MUST_CHECK;

/* Id of a token spelled as in the vocabulary or as an added token, -1 when unknown. */
int32_t og_tokenizer_token_id(const og_tokenizer *t, const char *token);
/* Spelling of an id, NULL when there is none. Borrowed. */
const char *og_tokenizer_token(const og_tokenizer *t, int32_t id);
/* One more than the largest id. */
int32_t og_tokenizer_size(const og_tokenizer *t);
/* Whether the id is an added token marked special. */
int og_tokenizer_special(const og_tokenizer *t, int32_t id);

/* Text of ids, always valid UTF-8 (bytes that form no character become one U+FFFD per
 * maximal bad run), appended to out. skip_special leaves special tokens out. Unknown ids
 * are OG_EINVAL. Equal to what a stream of og_detok_push and og_detok_end gives. */
int og_tokenizer_decode(const og_tokenizer *t, const int32_t *ids, size_t n,
                        int skip_special, og_str *out, og_err *err) OG_MUST_CHECK;

/* Streaming decoder: one token at a time, never half a character. A value: init, push,
 * end; nothing to free. It borrows the tokenizer. */
typedef struct og_detok {
    const og_tokenizer *t;
    int skip_special;
    int started;
    int n_tail;
    unsigned char tail[4]; /* bytes of a character that is not complete yet */
} og_detok;
void og_detok_init(og_detok *d, const og_tokenizer *t, int skip_special);
/* Append the characters that id completes to out (maybe none). */
int og_detok_push(og_detok *d, int32_t id, og_str *out, og_err *err) OG_MUST_CHECK;
/* Append one U+FFFD when the tokens ended inside a character. */
int og_detok_end(og_detok *d, og_str *out, og_err *err) OG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
