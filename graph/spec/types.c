#include "graph/spec/types.h"

#include <string.h>

#define DIM_DIGITS 12

static const struct {
    const char *word;
    int max_dims;
} kinds[] = {
#define ROW(name, word, dims) {word, dims},
    OG_TYPE_KINDS(ROW)
#undef ROW
};

const char *og_type_kind_name(og_type_kind kind) {
    return kind >= 0 && kind < OG_TYPE_KIND_COUNT ? kinds[kind].word : "?";
}

bool og_type_is_field(og_type_kind kind) {
    return kind <= OG_TYPE_AUDIO;
}

static bool letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool name_char(char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '-';
}

bool og_name_ok(const char *text, size_t len) {
    if (!len || len > OG_NAME_MAX || !letter(text[0])) return false;
    for (size_t i = 1; i < len; i++) {
        if (!name_char(text[i])) return false;
    }
    return true;
}

bool og_cfg_is_ref(const char *text) {
    return text[0] == '$';
}

static og_src shifted(og_src src, size_t by) {
    src.col += (int)by;
    return src;
}

/* Length of a run of names joined by dots; 0 when text does not begin with a name. */
static size_t dotted_len(const char *text) {
    size_t n = 0;
    while (letter(text[n]) || (n && text[n - 1] == '.' && name_char(text[n]))) {
        while (name_char(text[n])) n++;
        if (text[n] != '.' || !name_char(text[n + 1])) break;
        n++;
    }
    return n;
}

static bool cfg_ref_n(const char *text, size_t len, og_src src, bool bare, og_arena *a,
                      og_diags *diags, og_cfg_ref *out) {
    const char *dot = memchr(text + 1, '.', len - 1);
    bool whole = len > 1 && dotted_len(text + 1) == len - 1;
    if (!whole || (!dot && !bare)) {
        og_diags_error(diags, src, "'%.*s' is no configuration value", (int)len, text);
        og_diags_hint(diags, "write $STAGE.key, $root.key or $index.key");
        return false;
    }
    const char *key = dot ? dot + 1 : text + 1;
    *out = (og_cfg_ref){.src = src};
    out->key = og_arena_strndup(a, key, len - (size_t)(key - text));
    if (dot) out->scope = og_arena_strndup(a, text + 1, (size_t)(dot - text) - 1);
    if (out->key && (!dot || out->scope)) return true;
    og_diags_no_memory(diags);
    return false;
}

bool og_cfg_ref_parse(const char *text, og_src src, bool bare, og_arena *a,
                      og_diags *diags, og_cfg_ref *out) {
    if (!og_cfg_is_ref(text)) {
        og_diags_error(diags, src, "expected a configuration value, not '%.60s'", text);
        return false;
    }
    return cfg_ref_n(text, strlen(text), src, bare, a, diags, out);
}

typedef struct reader {
    const char *text;
    size_t at;
    og_src src;
    og_arena *arena;
    og_diags *diags;
} reader;

static bool expected(reader *r, const char *what) {
    const char *rest = r->text + r->at;
    og_diags_error(r->diags, shifted(r->src, r->at),
                   "expected %s%s%.20s%s in type '%.80s'", what,
                   *rest ? ", not '" : " at the end", rest, *rest ? "'" : "", r->text);
    return false;
}

static void blanks(reader *r) {
    while (r->text[r->at] == ' ') r->at++;
}

static bool take(reader *r, char c) {
    blanks(r);
    if (r->text[r->at] != c) return false;
    r->at++;
    return true;
}

static bool read_const(reader *r, og_dim *d) {
    size_t start = r->at;
    int64_t v = 0;
    while (r->text[r->at] >= '0' && r->text[r->at] <= '9') {
        if (r->at - start == DIM_DIGITS) return expected(r, "a smaller number");
        v = v * 10 + (r->text[r->at++] - '0');
    }
    if (v == 0) {
        r->at = start;
        return expected(r, "a dim of 1 or more");
    }
    *d = (og_dim){.kind = OG_DIM_CONST, .value = v};
    return true;
}

static bool read_dim(reader *r, og_dim *d) {
    blanks(r);
    const char *p = r->text + r->at;
    if (*p >= '0' && *p <= '9') return read_const(r, d);
    if (*p == '_' && !name_char(p[1])) {
        r->at++;
        *d = (og_dim){.kind = OG_DIM_FREE};
        return true;
    }
    size_t len = *p == '$' ? dotted_len(p + 1) : 0;
    if (!len) return expected(r, "a number, $key or _");
    *d = (og_dim){.kind = OG_DIM_NAME};
    og_src src = shifted(r->src, r->at);
    r->at += len + 1;
    return cfg_ref_n(p, len + 1, src, true, r->arena, r->diags, &d->ref);
}

static bool read_dims(reader *r, og_type *t) {
    int max = kinds[t->kind].max_dims;
    do {
        if (t->n_dims == max) {
            og_diags_error(r->diags, shifted(r->src, r->at), "type '%s' takes %s%d dim%s",
                           kinds[t->kind].word, max ? "at most " : "", max,
                           max == 1 ? "" : "s");
            return false;
        }
        if (!read_dim(r, &t->dims[t->n_dims++])) return false;
    } while (take(r, ','));
    return take(r, ']') || expected(r, "']'");
}

static bool unknown_kind(reader *r, const char *word, size_t len) {
    og_diags_error(r->diags, shifted(r->src, (size_t)(word - r->text)), "no type '%.*s'",
                   (int)(len < 60 ? len : 60), word);
    og_str all = OG_STR_INIT;
    for (int i = 0; i < OG_TYPE_KIND_COUNT; i++) {
        og_str_addf(&all, "%s%s", i ? ", " : "", kinds[i].word);
    }
    if (all.data) og_diags_hint(r->diags, "types are %s and list(...)", all.data);
    og_str_free(&all);
    return false;
}

static bool read_base(reader *r, og_type *t) {
    blanks(r);
    const char *word = r->text + r->at;
    size_t len = 0;
    while (name_char(word[len])) len++;
    if (!len) return expected(r, "a type");
    if (len == 4 && !strncmp(word, "list", 4) && !t->list) {
        r->at += len;
        t->list = true;
        if (!take(r, '(')) return expected(r, "'('");
        return read_base(r, t) && (take(r, ')') || expected(r, "')'"));
    }
    int k = 0;
    while (k < OG_TYPE_KIND_COUNT &&
           (strlen(kinds[k].word) != len || strncmp(kinds[k].word, word, len))) {
        k++;
    }
    if (k == OG_TYPE_KIND_COUNT) return unknown_kind(r, word, len);
    t->kind = (og_type_kind)k;
    r->at += len;
    return !take(r, '[') || read_dims(r, t);
}

bool og_type_parse(const char *text, og_src src, og_arena *a, og_diags *diags,
                   og_type *out) {
    reader r = {text, 0, src, a, diags};
    og_type t = {.src = src};
    if (!read_base(&r, &t)) return false;
    t.optional = take(&r, '?');
    blanks(&r);
    if (text[r.at]) return expected(&r, "the end");
    *out = t;
    return true;
}

static void print_dim(const og_dim *d, og_str *out) {
    switch (d->kind) {
    case OG_DIM_FREE: og_str_add(out, "_"); break;
    case OG_DIM_CONST: og_str_addf(out, "%lld", (long long)d->value); break;
    case OG_DIM_NAME:
        og_str_addf(out, "$%s%s%s", d->ref.scope ? d->ref.scope : "",
                    d->ref.scope ? "." : "", d->ref.key);
        break;
    }
}

void og_type_print(const og_type *t, og_str *out) {
    og_str_addf(out, "%s%s", t->list ? "list(" : "", og_type_kind_name(t->kind));
    for (int i = 0; i < t->n_dims; i++) {
        og_str_add(out, i ? ", " : "[");
        print_dim(&t->dims[i], out);
    }
    og_str_addf(out, "%s%s%s", t->n_dims ? "]" : "", t->list ? ")" : "",
                t->optional ? "?" : "");
}
