/* Conditions of `when`: decided partly when the plan is made, partly for each request.
 *
 *     cond = or      or = and {"or" and}      and = not {"and" not}
 *     not  = "not" not | "(" or ")" | test
 *     test = NAME | NAME "==" WORD | NAME "has" WORD
 *
 * NAME is a request field (dotted for a part: messages.images) or a `$` value of the
 * checkpoint; WORD is a literal, in quotes where it has other characters than letters,
 * digits and _ - + . or is a word of the grammar. Immutable after parsing; lives in the
 * arena.
 *
 *     const og_cond *c = og_cond_parse("not task or $root.x == 1", src, arena, diags);
 *     og_tri now = og_cond_eval(c, lookup, plan);      OG_UNKNOWN: ask again per request
 */
#ifndef OG_SPEC_COND_H
#define OG_SPEC_COND_H

#include "graph/spec/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum og_tri { OG_FALSE = 0, OG_TRUE = 1, OG_UNKNOWN = -1 } og_tri;

typedef enum og_cond_op {
    OG_COND_OR,
    OG_COND_AND,
    OG_COND_NOT,   /* left only */
    OG_COND_TRUTH, /* NAME: present, and not false, 0, "" or an empty list */
    OG_COND_EQ,
    OG_COND_HAS,   /* NAME is a list that holds WORD */
    OG_COND_CONST, /* left after og_cond_reduce */
} og_cond_op;

typedef struct og_cond {
    og_cond_op op;
    og_src src; /* of the operator or the name */
    const struct og_cond *left, *right;
    bool is_cfg;       /* the name is a `$` value */
    og_cfg_ref ref;    /* is_cfg */
    const char *field; /* otherwise: the request field ... */
    const char *part;  /* ... and its part ("images"), or NULL */
    const char *word;  /* EQ, HAS */
    og_tri value;      /* CONST */
} og_cond;

/* Parse; NULL with one error in diags. text stands at src. */
const og_cond *og_cond_parse(const char *text, og_src src, og_arena *a, og_diags *diags);

/* Answer a leaf (TRUTH, EQ or HAS): OG_TRUE, OG_FALSE, or OG_UNKNOWN where it cannot be
 * told yet. Comparing is the callback's business: it knows the types. */
typedef og_tri (*og_cond_lookup)(void *user, const og_cond *leaf);

/* Three-valued: false and unknown is false, true or unknown is true. */
og_tri og_cond_eval(const og_cond *c, og_cond_lookup lookup, void *user);
/* What is left of c after everything lookup knows: a CONST when nothing is. NULL only
 * when out of memory. Shares nodes with c. */
const og_cond *og_cond_reduce(const og_cond *c, og_cond_lookup lookup, void *user,
                              og_arena *a);
/* Call visit for each leaf, left to right. */
void og_cond_leaves(const og_cond *c, void (*visit)(void *user, const og_cond *leaf),
                    void *user);
/* Whether two conditions are written alike (same operators, names and words). */
bool og_cond_same(const og_cond *a, const og_cond *b);
/* Append as it would be written, with no more brackets than it needs. */
void og_cond_print(const og_cond *c, og_str *out);

/* Helpers for lookups: how a scalar answers, NULL being absent. OG_COND_TRUTH: not "",
 * "false" or a zero (a lookup of a text field answers by presence itself). OG_COND_EQ:
 * same text without regard to case, or equal as numbers; a true or false also equals its
 * other spellings. HAS of a scalar is false. */
og_tri og_cond_test_text(const og_cond *leaf, const char *text);
/* The same for a tree (a list answers HAS; null and NULL are absent). */
og_tri og_cond_test_node(const og_cond *leaf, const og_yaml_node *node);

#ifdef __cplusplus
}
#endif
#endif
