#include "graph/spec/tree.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NUMBER_MAX 80 /* characters of a number that are worth reading */

const og_yaml_pair *og_yaml_pair_of(const og_yaml_node *map, const char *key) {
    if (!map || map->kind != OG_YAML_MAP) return NULL;
    for (int i = 0; i < map->n; i++) {
        if (!strcmp(map->pairs[i].key, key)) return &map->pairs[i];
    }
    return NULL;
}

const og_yaml_node *og_yaml_get(const og_yaml_node *map, const char *key) {
    const og_yaml_pair *p = og_yaml_pair_of(map, key);
    return p ? p->value : NULL;
}

const og_yaml_node *og_yaml_path(const og_yaml_node *map, const char *path) {
    while (map && map->kind == OG_YAML_MAP) {
        const char *dot = strchr(path, '.');
        size_t len = dot ? (size_t)(dot - path) : strlen(path);
        const og_yaml_node *next = NULL;
        for (int i = 0; i < map->n && !next; i++) {
            const char *key = map->pairs[i].key;
            if (!strncmp(key, path, len) && !key[len]) next = map->pairs[i].value;
        }
        if (!dot) return next;
        map = next;
        path = dot + 1;
    }
    return NULL;
}

const char *og_yaml_kind_name(og_yaml_kind kind) {
    switch (kind) {
    case OG_YAML_NULL: return "null";
    case OG_YAML_SCALAR: return "a scalar";
    case OG_YAML_SEQ: return "a list";
    default: return "a map";
    }
}

og_src og_yaml_text_src(const og_yaml_node *n) {
    og_src src = n->src;
    src.col += n->quoted;
    return src;
}

/* Numbers. A number is first copied without its underscores, checked against the grammar
 * digit by digit, and only then handed to the C library. */

static const char *digits(const char *p, int base) {
    const char *start = p;
    while (base == 16 ? isxdigit((unsigned char)*p) : *p >= '0' && *p < '0' + base) p++;
    return p == start ? NULL : p;
}

static bool without_underscores(const char *text, char *out) {
    size_t n = 0;
    for (const char *p = text; *p; p++) {
        if (*p == '_') {
            bool between = p > text && isxdigit((unsigned char)p[-1]) &&
                           isxdigit((unsigned char)p[1]);
            if (!between) return false;
            continue;
        }
        if (n == NUMBER_MAX - 1) return false;
        out[n++] = *p;
    }
    out[n] = 0;
    return n > 0;
}

static bool is_decimal(const char *p) {
    if (*p == '+' || *p == '-') p++;
    const char *whole = digits(p, 10);
    if (whole) p = whole;
    if (*p == '.') {
        const char *part = digits(++p, 10);
        if (!part && !whole) return false;
        if (part) p = part;
    } else if (!whole) {
        return false;
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        if (*p == '+' || *p == '-') p++;
        p = digits(p, 10);
    }
    return p && !*p;
}

static bool read_float(const char *text, double *out) {
    const char *word = text + (*text == '-' || *text == '+');
    if (!strcasecmp(word, ".inf")) {
        *out = *text == '-' ? -INFINITY : INFINITY;
        return true;
    }
    if (!strcasecmp(text, ".nan")) {
        *out = NAN;
        return true;
    }
    char buf[NUMBER_MAX];
    if (!without_underscores(text, buf) || !is_decimal(buf)) return false;
    *out = strtod(buf, NULL);
    return true;
}

static bool read_int(const char *text, int64_t *out) {
    char buf[NUMBER_MAX];
    if (!without_underscores(text, buf)) return false;
    const char *p = buf + (*buf == '-' || *buf == '+');
    int base = 10;
    if (p[0] == '0' && (p[1] == 'x' || p[1] == 'o')) base = p[1] == 'x' ? 16 : 8;
    const char *end = digits(base == 10 ? p : p + 2, base);
    if (!end || *end) return false;
    if (base != 10 && *buf != *p) return false;
    errno = 0;
    long long v = strtoll(base == 10 ? buf : p + 2, NULL, base);
    if (errno) return false;
    *out = v;
    return true;
}

/* 4096.0 and 1e3 are whole numbers too. */
static bool read_whole_float(const char *text, int64_t *out) {
    double v;
    if (!read_float(text, &v) || !(fabs(v) <= 9007199254740992.0) || v != floor(v)) {
        return false;
    }
    *out = (int64_t)v;
    return true;
}

static bool read_bool(const char *text, bool *out) {
    static const char *const yes[] = {"true", "yes", "on", "y", "1"};
    static const char *const no[] = {"false", "no", "off", "n", "0"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        if (!strcasecmp(text, yes[i])) return *out = true, true;
        if (!strcasecmp(text, no[i])) return *out = false, true;
    }
    return false;
}

static bool wrong(const og_yaml_node *n, const char *want, og_diags *diags) {
    if (n->kind == OG_YAML_SCALAR) {
        og_diags_error(diags, n->src, "expected %s, not '%.60s'", want, n->text);
    } else {
        og_diags_error(diags, n->src, "expected %s, not %s", want,
                       og_yaml_kind_name(n->kind));
    }
    return false;
}

bool og_yaml_bool(const og_yaml_node *n, bool *out, og_diags *diags) {
    if (n->kind == OG_YAML_SCALAR && read_bool(n->text, out)) return true;
    return wrong(n, "true or false", diags);
}

bool og_yaml_int(const og_yaml_node *n, int64_t *out, og_diags *diags) {
    if (n->kind == OG_YAML_SCALAR &&
        (read_int(n->text, out) || read_whole_float(n->text, out))) {
        return true;
    }
    return wrong(n, "a whole number of at most 64 bits", diags);
}

bool og_yaml_float(const og_yaml_node *n, double *out, og_diags *diags) {
    int64_t whole;
    if (n->kind == OG_YAML_SCALAR && read_float(n->text, out)) return true;
    if (n->kind == OG_YAML_SCALAR && read_int(n->text, &whole)) {
        *out = (double)whole;
        return true;
    }
    return wrong(n, "a number", diags);
}

bool og_yaml_string(const og_yaml_node *n, const char **out, og_diags *diags) {
    if (n->kind != OG_YAML_SCALAR) return wrong(n, "a string", diags);
    *out = n->text;
    return true;
}

char og_yaml_guess(const og_yaml_node *n) {
    int64_t whole;
    double real;
    if (n->kind != OG_YAML_SCALAR || n->quoted) return 's';
    if (!strcasecmp(n->text, "true") || !strcasecmp(n->text, "false")) return 'b';
    if (read_int(n->text, &whole)) return 'i';
    return read_float(n->text, &real) ? 'f' : 's';
}

static og_yaml_node *new_node(og_arena *a, og_yaml_kind kind, og_src src) {
    og_yaml_node *n = og_arena_alloc(a, sizeof *n);
    if (!n) return NULL;
    *n = (og_yaml_node){.kind = kind, .src = src, .size = 1, .height = 1, .text = ""};
    return n;
}

og_yaml_node *og_yaml_new_null(og_arena *a, og_src src) {
    return new_node(a, OG_YAML_NULL, src);
}

og_yaml_node *og_yaml_new_scalar(og_arena *a, og_src src, const char *text, bool quoted) {
    og_yaml_node *n = new_node(a, OG_YAML_SCALAR, src);
    char *copy = n ? og_arena_strdup(a, text) : NULL;
    if (!copy) return NULL;
    n->text = copy;
    n->quoted = quoted;
    return n;
}

/* Sizes stop at INT_MAX: the limit is far below. */
static void grow(og_yaml_node *n, const og_yaml_node *child) {
    n->size = child->size > INT_MAX - n->size ? INT_MAX : n->size + child->size;
    if (child->height >= n->height) n->height = child->height + 1;
}

og_yaml_node *og_yaml_new_seq(og_arena *a, og_src src, const og_yaml_node *const *items,
                              int n) {
    og_yaml_node *node = new_node(a, OG_YAML_SEQ, src);
    const og_yaml_node **own = node ? og_arena_alloc(a, (size_t)n * sizeof *own) : NULL;
    if (!own) return NULL;
    for (int i = 0; i < n; i++) {
        own[i] = items[i];
        grow(node, items[i]);
    }
    node->items = own;
    node->n = n;
    return node;
}

og_yaml_node *og_yaml_new_map(og_arena *a, og_src src, const og_yaml_pair *pairs, int n) {
    og_yaml_node *node = new_node(a, OG_YAML_MAP, src);
    og_yaml_pair *own = node ? og_arena_alloc(a, (size_t)n * sizeof *own) : NULL;
    if (!own) return NULL;
    for (int i = 0; i < n; i++) {
        own[i] = pairs[i];
        grow(node, pairs[i].value);
    }
    node->pairs = own;
    node->n = n;
    return node;
}
