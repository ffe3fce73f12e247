#include "graph/spec/cond.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define COND_MAX_DEPTH 32
#define COND_MAX_TEXT 4096

typedef enum tok {
    TOK_END,
    TOK_WORD,   /* name, number or word of the grammar */
    TOK_QUOTED, /* text in quotes */
    TOK_CFG,    /* $scope.key */
    TOK_EQ,
    TOK_OPEN,
    TOK_CLOSE,
    TOK_BAD,
} tok;

typedef struct parser {
    const char *text;
    og_src src;
    og_arena *arena;
    og_diags *diags;
    size_t at;         /* behind the token in hand */
    size_t start, len; /* of the token in hand */
    tok tok;
    int depth;
} parser;

static const og_cond *parse_or(parser *p);

static og_src here(const parser *p) {
    og_src src = p->src;
    for (size_t i = 0; i < p->start; i++) {
        src.col += ((unsigned char)p->text[i] & 0xc0) != 0x80;
    }
    return src;
}

static bool word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '-' || c == '+' || c == '.';
}

static size_t word_len(const char *s) {
    size_t n = 0;
    while (word_char(s[n])) n++;
    return n;
}

static tok quoted(parser *p, const char *s) {
    const char *end = strchr(s + 1, *s);
    if (!end) return TOK_BAD;
    p->start++;
    p->len = (size_t)(end - s) - 1;
    p->at = (size_t)(end - p->text) + 1;
    return TOK_QUOTED;
}

static tok scan(parser *p) {
    const char *s = p->text + p->start;
    p->len = 1;
    if (!*s) return p->len = 0, TOK_END;
    if (*s == '(') return TOK_OPEN;
    if (*s == ')') return TOK_CLOSE;
    if (!strncmp(s, "==", 2)) return p->len = 2, TOK_EQ;
    if (*s == '"' || *s == '\'') return quoted(p, s);
    if (*s == '$') {
        p->len = 1 + word_len(s + 1);
        return TOK_CFG;
    }
    if (word_char(*s)) {
        p->len = word_len(s);
        return TOK_WORD;
    }
    return TOK_BAD;
}

static void advance(parser *p) {
    while (p->text[p->at] == ' ' || p->text[p->at] == '\t' || p->text[p->at] == '\n') {
        p->at++;
    }
    p->start = p->at;
    p->tok = scan(p);
    if (p->tok != TOK_QUOTED) p->at = p->start + p->len;
}

static bool is_word(const parser *p, const char *word) {
    return p->tok == TOK_WORD && strlen(word) == p->len &&
           !strncmp(p->text + p->start, word, p->len);
}

static bool is_grammar_word(const parser *p) {
    return is_word(p, "not") || is_word(p, "and") || is_word(p, "or") ||
           is_word(p, "has");
}

static const og_cond *expected(parser *p, const char *what) {
    if (p->tok == TOK_END) {
        og_diags_error(p->diags, here(p), "expected %s at the end of the condition",
                       what);
    } else {
        og_diags_error(p->diags, here(p), "expected %s, not '%.*s'", what,
                       (int)(p->len < 60 ? p->len : 60), p->text + p->start);
    }
    if (p->tok == TOK_BAD && p->text[p->start] == '=') {
        og_diags_hint(p->diags, "equality is written '=='");
    }
    return NULL;
}

static const og_cond *no_memory(parser *p) {
    og_diags_no_memory(p->diags);
    return NULL;
}

static const og_cond *make(parser *p, og_cond c) {
    og_cond *out = og_arena_alloc(p->arena, sizeof *out);
    if (!out) return no_memory(p);
    *out = c;
    return out;
}

static bool read_name(parser *p, og_cond *c) {
    const char *s = p->text + p->start;
    char *name = og_arena_strndup(p->arena, s, p->len);
    if (!name) return no_memory(p), false;
    c->src = here(p);
    if (p->tok == TOK_CFG) {
        c->is_cfg = true;
        return og_cfg_ref_parse(name, c->src, false, p->arena, p->diags, &c->ref);
    }
    char *dot = strchr(name, '.');
    size_t len = dot ? (size_t)(dot - name) : p->len;
    if (!og_name_ok(name, len) || (dot && !og_name_ok(dot + 1, strlen(dot + 1)))) {
        return expected(p, "the name of a request field or a $ value"), false;
    }
    if (dot) *dot = 0;
    c->field = name;
    c->part = dot ? dot + 1 : NULL;
    return true;
}

static bool read_word(parser *p, og_cond *c) {
    if ((p->tok != TOK_WORD && p->tok != TOK_QUOTED) || is_grammar_word(p)) {
        expected(p, "a word");
        if (p->tok == TOK_CFG) {
            og_diags_hint(p->diags, "the right side is always a literal");
        }
        return false;
    }
    c->word = og_arena_strndup(p->arena, p->text + p->start, p->len);
    if (!c->word) return no_memory(p), false;
    advance(p);
    return true;
}

static const og_cond *parse_test(parser *p) {
    og_cond c = {.op = OG_COND_TRUTH};
    if ((p->tok != TOK_WORD && p->tok != TOK_CFG) || is_grammar_word(p)) {
        return expected(p, "the name of a request field or a $ value");
    }
    if (!read_name(p, &c)) return NULL;
    advance(p);
    if (p->tok == TOK_EQ || is_word(p, "has")) {
        c.op = p->tok == TOK_EQ ? OG_COND_EQ : OG_COND_HAS;
        advance(p);
        if (!read_word(p, &c)) return NULL;
    } else if (is_word(p, "in")) {
        expected(p, "'==', 'has', 'and' or 'or'");
        og_diags_hint(p->diags, "a list is asked with 'LIST has WORD'");
        return NULL;
    }
    return make(p, c);
}

static const og_cond *parse_not(parser *p) {
    if (++p->depth > COND_MAX_DEPTH) {
        og_diags_error(p->diags, here(p), "condition is nested too deeply (limit is %d)",
                       COND_MAX_DEPTH);
        return NULL;
    }
    og_cond c = {.op = OG_COND_NOT, .src = here(p)};
    const og_cond *out = NULL;
    if (is_word(p, "not")) {
        advance(p);
        c.left = parse_not(p);
        out = c.left ? make(p, c) : NULL;
    } else if (p->tok == TOK_OPEN) {
        advance(p);
        out = parse_or(p);
        if (out && p->tok != TOK_CLOSE) return expected(p, "')', 'and' or 'or'");
        if (out) advance(p);
    } else {
        out = parse_test(p);
    }
    p->depth--;
    return out;
}

static const og_cond *parse_chain(parser *p, og_cond_op op, const char *word,
                                  const og_cond *(*operand)(parser *)) {
    const og_cond *left = operand(p);
    while (left && is_word(p, word)) {
        og_cond c = {.op = op, .src = here(p), .left = left};
        advance(p);
        c.right = operand(p);
        left = c.right ? make(p, c) : NULL;
    }
    return left;
}

static const og_cond *parse_and(parser *p) {
    return parse_chain(p, OG_COND_AND, "and", parse_not);
}

static const og_cond *parse_or(parser *p) {
    return parse_chain(p, OG_COND_OR, "or", parse_and);
}

const og_cond *og_cond_parse(const char *text, og_src src, og_arena *a, og_diags *diags) {
    parser p = {.text = text, .src = src, .arena = a, .diags = diags};
    if (strlen(text) > COND_MAX_TEXT) {
        og_diags_error(diags, src, "condition is too long (limit is %d bytes)",
                       COND_MAX_TEXT);
        return NULL;
    }
    advance(&p);
    const og_cond *c = parse_or(&p);
    if (c && p.tok != TOK_END) return expected(&p, "'==', 'has', 'and' or 'or'");
    return c;
}

/* Evaluation. A chain of `and` leans to the left and may be as long as the text allows,
 * so the walk is bounded by COND_MAX_TEXT. */

static og_tri not3(og_tri v) {
    return v == OG_UNKNOWN ? OG_UNKNOWN : v == OG_TRUE ? OG_FALSE : OG_TRUE;
}

static og_tri and3(og_tri a, og_tri b) {
    if (a == OG_FALSE || b == OG_FALSE) return OG_FALSE;
    return a == OG_TRUE && b == OG_TRUE ? OG_TRUE : OG_UNKNOWN;
}

og_tri og_cond_eval(const og_cond *c, og_cond_lookup lookup, void *user) {
    switch (c->op) {
    case OG_COND_CONST: return c->value;
    case OG_COND_NOT: return not3(og_cond_eval(c->left, lookup, user));
    case OG_COND_AND:
        return and3(og_cond_eval(c->left, lookup, user),
                    og_cond_eval(c->right, lookup, user));
    case OG_COND_OR:
        return not3(and3(not3(og_cond_eval(c->left, lookup, user)),
                         not3(og_cond_eval(c->right, lookup, user))));
    default: return lookup(user, c);
    }
}

static const og_cond *copy(og_cond c, og_arena *a) {
    og_cond *out = og_arena_alloc(a, sizeof *out);
    if (out) *out = c;
    return out;
}

const og_cond *og_cond_reduce(const og_cond *c, og_cond_lookup lookup, void *user,
                              og_arena *a) {
    og_tri v = og_cond_eval(c, lookup, user);
    if (v != OG_UNKNOWN) {
        return copy((og_cond){.op = OG_COND_CONST, .src = c->src, .value = v}, a);
    }
    if (c->op >= OG_COND_TRUTH) return c;
    og_cond out = *c;
    out.left = og_cond_reduce(c->left, lookup, user, a);
    if (!out.left) return NULL;
    if (c->op == OG_COND_NOT) return out.left == c->left ? c : copy(out, a);
    out.right = og_cond_reduce(c->right, lookup, user, a);
    if (!out.right) return NULL;
    if (out.left->op == OG_COND_CONST) return out.right;
    if (out.right->op == OG_COND_CONST) return out.left;
    return out.left == c->left && out.right == c->right ? c : copy(out, a);
}

void og_cond_leaves(const og_cond *c, void (*visit)(void *, const og_cond *),
                    void *user) {
    if (c->op == OG_COND_CONST) return;
    if (c->op >= OG_COND_TRUTH) {
        visit(user, c);
        return;
    }
    og_cond_leaves(c->left, visit, user);
    if (c->right) og_cond_leaves(c->right, visit, user);
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && !strcmp(a, b));
}

bool og_cond_same(const og_cond *a, const og_cond *b) {
    if (a == b) return true;
    if (!a || !b || a->op != b->op || a->is_cfg != b->is_cfg) return false;
    return a->value == b->value && same_text(a->ref.scope, b->ref.scope) &&
           same_text(a->ref.key, b->ref.key) && same_text(a->field, b->field) &&
           same_text(a->part, b->part) && same_text(a->word, b->word) &&
           og_cond_same(a->left, b->left) && og_cond_same(a->right, b->right);
}

static void print_word(const char *w, og_str *out) {
    bool plain = *w && word_len(w) == strlen(w) && strcmp(w, "not") && strcmp(w, "and") &&
                 strcmp(w, "or") && strcmp(w, "has");
    const char *quote = plain ? "" : strchr(w, '"') ? "'" : "\"";
    og_str_addf(out, "%s%s%s", quote, w, quote);
}

static void print_leaf(const og_cond *c, og_str *out) {
    if (c->is_cfg) {
        og_str_addf(out, "$%s.%s", c->ref.scope, c->ref.key);
    } else {
        og_str_addf(out, "%s%s%s", c->field, c->part ? "." : "", c->part ? c->part : "");
    }
    if (c->op == OG_COND_TRUTH) return;
    og_str_add(out, c->op == OG_COND_EQ ? " == " : " has ");
    print_word(c->word, out);
}

static void print_in(const og_cond *c, og_cond_op outer, og_str *out) {
    bool brackets = c->op < outer;
    if (brackets) og_str_add(out, "(");
    switch (c->op) {
    case OG_COND_CONST: og_str_add(out, c->value == OG_TRUE ? "true" : "false"); break;
    case OG_COND_NOT:
        og_str_add(out, "not ");
        print_in(c->left, OG_COND_NOT, out);
        break;
    case OG_COND_AND:
    case OG_COND_OR:
        print_in(c->left, c->op, out);
        og_str_add(out, c->op == OG_COND_AND ? " and " : " or ");
        print_in(c->right, c->op, out);
        break;
    default: print_leaf(c, out);
    }
    if (brackets) og_str_add(out, ")");
}

void og_cond_print(const og_cond *c, og_str *out) {
    print_in(c, OG_COND_OR, out);
}

static og_yaml_node as_node(const char *text) {
    return (og_yaml_node){.kind = OG_YAML_SCALAR, .text = text};
}

static og_tri tri(bool v) {
    return v ? OG_TRUE : OG_FALSE;
}

static bool text_equal(const char *a, const char *b) {
    if (!strcasecmp(a, b)) return true;
    og_yaml_node x = as_node(a), y = as_node(b);
    double u, v;
    bool p, q;
    if (og_yaml_float(&x, &u, NULL) && og_yaml_float(&y, &v, NULL)) return u == v;
    if (og_yaml_guess(&x) != 'b') return false;
    return og_yaml_bool(&x, &p, NULL) && og_yaml_bool(&y, &q, NULL) && p == q;
}

static bool text_truth(const char *text) {
    og_yaml_node n = as_node(text);
    double v;
    if (!*text || !strcasecmp(text, "false")) return false;
    return !og_yaml_float(&n, &v, NULL) || v != 0;
}

og_tri og_cond_test_text(const og_cond *leaf, const char *text) {
    if (!text) return OG_FALSE;
    if (leaf->op == OG_COND_TRUTH) return tri(text_truth(text));
    return leaf->op == OG_COND_EQ ? tri(text_equal(text, leaf->word)) : OG_FALSE;
}

og_tri og_cond_test_node(const og_cond *leaf, const og_yaml_node *node) {
    if (!node || node->kind == OG_YAML_NULL) return OG_FALSE;
    if (node->kind == OG_YAML_SCALAR) return og_cond_test_text(leaf, node->text);
    if (leaf->op == OG_COND_TRUTH) return tri(node->n > 0);
    for (int i = 0; leaf->op == OG_COND_HAS && i < node->n; i++) {
        const char *word =
            node->kind == OG_YAML_MAP ? node->pairs[i].key : node->items[i]->text;
        if (text_equal(word, leaf->word)) return OG_TRUE;
    }
    return OG_FALSE;
}
