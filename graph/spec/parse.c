/* libyaml events to nodes. Recursion is bounded by OG_YAML_MAX_DEPTH, the number of nodes
 * by OG_YAML_MAX_NODES: an alias counts for all that its anchor holds. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

#include "graph/spec/spec.h"
#include "graph/spec/tree.h"

#define SMALL_MAP 16 /* up to here a duplicate is looked for without a hash table */

typedef struct anchor {
    const char *name;
    const og_yaml_node *node; /* NULL while its node is being read */
    struct anchor *next;
} anchor;

typedef struct parser {
    yaml_parser_t yaml;
    og_arena *arena;
    og_diags *diags;
    const char *file, *text;
    size_t len;
    anchor *anchors;
    int n_anchors, nodes;
    int code; /* of the first failure */
} parser;

static const og_yaml_node *parse_node(parser *p, yaml_event_t *ev, int depth);

static og_src place(const parser *p, yaml_mark_t mark) {
    return (og_src){p->file, (int)mark.line + 1, (int)mark.column + 1};
}

static const og_yaml_node *fail(parser *p, int code) {
    if (!p->code) p->code = code;
    return NULL;
}

static const og_yaml_node *no_memory(parser *p) {
    return fail(p, OG_ENOMEM);
}

/* Line and column of a byte, for errors that have only an offset. */
static og_src offset_src(const parser *p, size_t offset) {
    og_src src = {p->file, 1, 1};
    for (size_t i = 0; i < offset && i < p->len; i++) {
        unsigned char c = (unsigned char)p->text[i];
        if (c == '\n') {
            src.line++;
            src.col = 1;
        } else if ((c & 0xc0) != 0x80) {
            src.col++;
        }
    }
    return src;
}

static void yaml_error(parser *p) {
    const yaml_parser_t *y = &p->yaml;
    const char *problem = y->problem ? y->problem : "malformed YAML";
    if (y->error == YAML_MEMORY_ERROR) {
        no_memory(p);
        return;
    }
    fail(p, OG_ESPEC);
    if (y->error == YAML_READER_ERROR) {
        og_diags_error(p->diags, offset_src(p, y->problem_offset),
                       "not a legal YAML text: %s (byte 0x%02x)", problem,
                       (unsigned)y->problem_value & 0xffu);
        return;
    }
    og_diags_error(p->diags, place(p, y->problem_mark), "%s%s%s", problem,
                   y->context ? ", " : "", y->context ? y->context : "");
    if (y->context && y->context_mark.line != y->problem_mark.line) {
        og_diags_note(p->diags, place(p, y->context_mark), "it began here");
    }
}

static bool next(parser *p, yaml_event_t *ev) {
    if (p->code) return false;
    if (yaml_parser_parse(&p->yaml, ev)) return true;
    yaml_error(p);
    return false;
}

static bool count(parser *p, og_src src, int size) {
    if (size > OG_YAML_MAX_NODES - p->nodes) {
        og_diags_error(p->diags, src, "too many nodes, aliases written out (limit is %d)",
                       OG_YAML_MAX_NODES);
        fail(p, OG_ELIMIT);
        return false;
    }
    p->nodes += size;
    return true;
}

static bool deep(parser *p, og_src src, int depth) {
    if (depth <= OG_YAML_MAX_DEPTH) return false;
    og_diags_error(p->diags, src, "nested too deeply (limit is %d levels)",
                   OG_YAML_MAX_DEPTH);
    fail(p, OG_ELIMIT);
    return true;
}

static anchor *open_anchor(parser *p, const char *name, og_src src) {
    if (p->n_anchors == OG_YAML_MAX_ANCHORS) {
        og_diags_error(p->diags, src, "too many anchors (limit is %d)",
                       OG_YAML_MAX_ANCHORS);
        fail(p, OG_ELIMIT);
        return NULL;
    }
    anchor *an = og_arena_alloc(p->arena, sizeof *an);
    char *own = an ? og_arena_strdup(p->arena, name) : NULL;
    if (!own) {
        no_memory(p);
        return NULL;
    }
    *an = (anchor){.name = own, .next = p->anchors};
    p->anchors = an;
    p->n_anchors++;
    return an;
}

static const og_yaml_node *parse_alias(parser *p, const yaml_event_t *ev, int depth) {
    og_src src = place(p, ev->start_mark);
    const char *name = (const char *)ev->data.alias.anchor;
    const anchor *an = p->anchors;
    while (an && strcmp(an->name, name)) an = an->next;
    if (!an || !an->node) {
        og_diags_error(p->diags, src,
                       an ? "alias '%.60s' stands inside its own anchor"
                          : "alias '%.60s' has no anchor",
                       name);
        return fail(p, OG_ESPEC);
    }
    if (!count(p, src, an->node->size)) return NULL;
    return deep(p, src, depth + an->node->height) ? NULL : an->node;
}

static bool is_null_word(const char *s) {
    return !*s || !strcmp(s, "~") || !strcmp(s, "null") || !strcmp(s, "Null") ||
           !strcmp(s, "NULL");
}

static bool tag_ok(parser *p, const yaml_char_t *tag, const char *fits, og_src src) {
    if (!tag || !strcmp((const char *)tag, "!")) return true;
    if (!strcmp((const char *)tag, fits)) return true;
    og_diags_error(p->diags, src, "the tag '%.60s' is not supported", (const char *)tag);
    fail(p, OG_ESPEC);
    return false;
}

/* Text of a scalar event, in the arena. NULL: failed. */
static const char *scalar_text(parser *p, const yaml_event_t *ev) {
    const char *value = (const char *)ev->data.scalar.value;
    if (memchr(value, 0, ev->data.scalar.length)) {
        og_diags_error(p->diags, place(p, ev->start_mark), "a text with a NUL character");
        fail(p, OG_ESPEC);
        return NULL;
    }
    const char *text = og_arena_strdup(p->arena, value);
    if (!text) no_memory(p);
    return text;
}

static const og_yaml_node *parse_scalar(parser *p, const yaml_event_t *ev) {
    og_src src = place(p, ev->start_mark);
    const yaml_char_t *tag = ev->data.scalar.tag;
    if (!count(p, src, 1) || !tag_ok(p, tag, YAML_STR_TAG, src)) return NULL;
    const char *text = scalar_text(p, ev);
    if (!text) return NULL;
    bool quoted = tag || ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    og_yaml_node *n = !quoted && is_null_word(text)
                          ? og_yaml_new_null(p->arena, src)
                          : og_yaml_new_scalar(p->arena, src, text, quoted);
    if (!n) return no_memory(p);
    if (n->kind == OG_YAML_NULL) n->empty = !*text;
    return n;
}

static const og_yaml_node *parse_seq(parser *p, og_src src, int depth) {
    const og_yaml_node **items = NULL, *out = NULL;
    int n = 0, cap = 0;
    yaml_event_t ev;
    while (next(p, &ev)) {
        if (ev.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&ev);
            out = og_yaml_new_seq(p->arena, src, items, n);
            if (!out) no_memory(p);
            break;
        }
        const og_yaml_node *item = parse_node(p, &ev, depth);
        if (!item) break;
        if (!og__grow((void **)&items, n, &cap, sizeof *items)) {
            no_memory(p);
            break;
        }
        items[n++] = item;
    }
    og_free(items);
    return out;
}

static bool duplicate(parser *p, const og_yaml_pair *first, const og_yaml_pair *again) {
    og_diags_error(p->diags, again->src, "duplicate key '%.60s'", again->key);
    og_diags_hint(p->diags, "the first one is in line %d, column %d", first->src.line,
                  first->src.col);
    fail(p, OG_ESPEC);
    return false;
}

static uint32_t hash(const char *s) {
    uint32_t h = 2166136261u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

/* Whether all keys differ. */
static bool unique_small(parser *p, const og_yaml_pair *pairs, int n) {
    for (int i = 1; i < n; i++) {
        for (int k = 0; k < i; k++) {
            if (!strcmp(pairs[i].key, pairs[k].key)) {
                return duplicate(p, &pairs[k], &pairs[i]);
            }
        }
    }
    return true;
}

static bool unique(parser *p, const og_yaml_pair *pairs, int n) {
    if (n <= SMALL_MAP) return unique_small(p, pairs, n);
    size_t cap = 64;
    while (cap < (size_t)n * 2) cap *= 2;
    int *slots = og_calloc(cap, sizeof *slots); /* index + 1 */
    if (!slots) return no_memory(p), false;
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        size_t at = hash(pairs[i].key) & (cap - 1);
        while (slots[at] && strcmp(pairs[slots[at] - 1].key, pairs[i].key)) {
            at = (at + 1) & (cap - 1);
        }
        if (slots[at]) ok = duplicate(p, &pairs[slots[at] - 1], &pairs[i]);
        slots[at] = i + 1;
    }
    og_free(slots);
    return ok;
}

typedef struct pairs {
    og_yaml_pair *list;
    int n, cap;
} pairs;

static bool push(parser *p, pairs *m, og_yaml_pair pair) {
    if (!og__grow((void **)&m->list, m->n, &m->cap, sizeof *m->list)) {
        no_memory(p);
        return false;
    }
    m->list[m->n++] = pair;
    return true;
}

static bool has_key(const pairs *m, const char *key) {
    for (int i = 0; i < m->n; i++) {
        if (!strcmp(m->list[i].key, key)) return true;
    }
    return false;
}

/* Add the pairs of a merged map that are not there yet. */
static bool merge_map(parser *p, pairs *m, const og_yaml_node *from, og_src src) {
    if (from->kind != OG_YAML_MAP) {
        og_diags_error(p->diags, src, "'<<' takes a map or a list of maps, not %s",
                       og_yaml_kind_name(from->kind));
        fail(p, OG_ESPEC);
        return false;
    }
    for (int i = 0; i < from->n; i++) {
        if (has_key(m, from->pairs[i].key)) continue;
        if (!count(p, src, from->pairs[i].value->size)) return false;
        if (!push(p, m, from->pairs[i])) return false;
    }
    return true;
}

/* Replace the pair `<<` by the pairs of the map or maps it names. */
static bool resolve_merge(parser *p, pairs *m) {
    int at = 0;
    while (at < m->n && strcmp(m->list[at].key, "<<")) at++;
    if (at == m->n) return true;
    og_yaml_pair merge = m->list[at];
    memmove(m->list + at, m->list + at + 1, (size_t)(m->n - at - 1) * sizeof *m->list);
    m->n--;
    const og_yaml_node *v = merge.value;
    if (v->kind != OG_YAML_SEQ) return merge_map(p, m, v, merge.src);
    for (int i = 0; i < v->n; i++) {
        if (!merge_map(p, m, v->items[i], merge.src)) return false;
    }
    return true;
}

static bool parse_pair(parser *p, yaml_event_t *ev, int depth, pairs *m, bool *merges) {
    og_yaml_pair pair = {.src = place(p, ev->start_mark)};
    if (ev->type != YAML_SCALAR_EVENT) {
        og_diags_error(p->diags, pair.src, "a key must be a scalar");
        fail(p, OG_ESPEC);
    } else if (tag_ok(p, ev->data.scalar.tag, YAML_STR_TAG, pair.src)) {
        pair.key = scalar_text(p, ev);
    }
    if (pair.key && !strcmp(pair.key, "<<") &&
        ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        *merges = true;
    }
    yaml_event_delete(ev);
    yaml_event_t value;
    if (!pair.key || !next(p, &value)) return false;
    pair.value = parse_node(p, &value, depth);
    return pair.value && push(p, m, pair);
}

static const og_yaml_node *parse_map(parser *p, og_src src, int depth) {
    pairs m = {0};
    const og_yaml_node *out = NULL;
    bool merges = false;
    yaml_event_t ev;
    while (next(p, &ev)) {
        if (ev.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&ev);
            if (!unique(p, m.list, m.n)) break;
            if (merges && !resolve_merge(p, &m)) break;
            out = og_yaml_new_map(p->arena, src, m.list, m.n);
            if (!out) no_memory(p);
            break;
        }
        if (!parse_pair(p, &ev, depth, &m, &merges)) break;
    }
    og_free(m.list);
    return out;
}

static const char *anchor_of(const yaml_event_t *ev) {
    switch (ev->type) {
    case YAML_SCALAR_EVENT: return (const char *)ev->data.scalar.anchor;
    case YAML_SEQUENCE_START_EVENT: return (const char *)ev->data.sequence_start.anchor;
    case YAML_MAPPING_START_EVENT: return (const char *)ev->data.mapping_start.anchor;
    default: return NULL;
    }
}

static const og_yaml_node *parse_body(parser *p, yaml_event_t *ev, int depth) {
    og_src src = place(p, ev->start_mark);
    yaml_event_type_t type = ev->type;
    if (type == YAML_SCALAR_EVENT) return parse_scalar(p, ev);
    if (deep(p, src, depth + 1) || !count(p, src, 1)) return NULL;
    bool map = type == YAML_MAPPING_START_EVENT;
    const yaml_char_t *tag =
        map ? ev->data.mapping_start.tag : ev->data.sequence_start.tag;
    if (!tag_ok(p, tag, map ? YAML_MAP_TAG : YAML_SEQ_TAG, src)) return NULL;
    return map ? parse_map(p, src, depth + 1) : parse_seq(p, src, depth + 1);
}

/* Read the node that ev begins; ev is deleted. NULL: failed. */
static const og_yaml_node *parse_node(parser *p, yaml_event_t *ev, int depth) {
    const og_yaml_node *out = NULL;
    anchor *an = NULL;
    if (ev->type == YAML_ALIAS_EVENT) {
        out = parse_alias(p, ev, depth);
    } else {
        const char *name = anchor_of(ev);
        if (name) an = open_anchor(p, name, place(p, ev->start_mark));
        if (!p->code) out = parse_body(p, ev, depth);
        if (an) an->node = out;
    }
    yaml_event_delete(ev);
    return out;
}

static bool expect(parser *p, yaml_event_type_t type) {
    yaml_event_t ev;
    if (!next(p, &ev)) return false;
    bool ok = ev.type == type;
    if (!ok) {
        og_diags_error(p->diags, place(p, ev.start_mark),
                       "a second document: one file holds one");
        fail(p, OG_ESPEC);
    }
    yaml_event_delete(&ev);
    return ok;
}

static const og_yaml_node *parse_document(parser *p) {
    yaml_event_t ev;
    if (!expect(p, YAML_STREAM_START_EVENT) || !next(p, &ev)) return NULL;
    if (ev.type == YAML_STREAM_END_EVENT) {
        yaml_event_delete(&ev);
        og_yaml_node *none = og_yaml_new_null(p->arena, (og_src){p->file, 1, 1});
        if (!none) return no_memory(p);
        none->empty = true;
        return none;
    }
    yaml_event_delete(&ev); /* the start of the document */
    if (!next(p, &ev)) return NULL;
    const og_yaml_node *root = parse_node(p, &ev, 0);
    if (!root || !expect(p, YAML_DOCUMENT_END_EVENT)) return NULL;
    return expect(p, YAML_STREAM_END_EVENT) ? root : NULL;
}

static bool refuse_encoding(parser *p) {
    bool utf16 = p->len >= 2 &&
                 (!memcmp(p->text, "\xff\xfe", 2) || !memcmp(p->text, "\xfe\xff", 2));
    if (!utf16) return false;
    og_diags_error(p->diags, (og_src){p->file, 1, 1}, "the text is UTF-16, not UTF-8");
    fail(p, OG_ESPEC);
    return true;
}

static int report(int code, const og_diags *diags, const char *name, og_err *err) {
    if (code == OG_ENOMEM) return og_err_set(err, code, "%s: out of memory", name);
    og_err found = OG_ERR_INIT;
    if (diags && og_diags_err(diags, &found) == OG_ENOMEM) {
        return og_err_set(err, OG_ENOMEM, "%s: out of memory", name);
    }
    og_src src = {found.file[0] ? found.file : NULL, found.line, found.col};
    return og_err_at(err, code, src, "%s", found.code ? found.msg : "malformed YAML");
}

int og_yaml_parse(const char *name, const char *text, size_t len, og_arena *a,
                  og_diags *diags, const og_yaml_node **root, og_err *err) {
    *root = NULL;
    const char *file = og_arena_strdup(a, name);
    if (!file) return og_err_set(err, OG_ENOMEM, "%s: out of memory", name);
    og_diags_source(diags, file, text, len);
    if (len > OG_YAML_MAX_BYTES) {
        og_diags_error(diags, (og_src){file, 1, 1},
                       "the file is too big (limit is %u bytes)", OG_YAML_MAX_BYTES);
        return report(OG_ELIMIT, diags, name, err);
    }
    if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) {
        text += 3;
        len -= 3;
    }
    parser p = {.arena = a, .diags = diags, .file = file, .text = text, .len = len};
    if (refuse_encoding(&p)) return report(p.code, diags, name, err);
    if (!yaml_parser_initialize(&p.yaml)) {
        return og_err_set(err, OG_ENOMEM, "%s: out of memory", name);
    }
    yaml_parser_set_encoding(&p.yaml, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&p.yaml, (const unsigned char *)text, len);
    const og_yaml_node *out = parse_document(&p);
    yaml_parser_delete(&p.yaml);
    if (p.code) return report(p.code, diags, name, err);
    *root = out;
    return 0;
}

static int read_all(const char *path, char **text, size_t *len, og_err *err) {
    FILE *f = fopen(path, "rbe");
    if (!f) {
        int code = errno == ENOENT || errno == ENOTDIR ? OG_ENOENT : OG_EIO;
        return og_err_set(err, code, "cannot open '%s': %s", path, strerror(errno));
    }
    struct stat st = {0};
    if (fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode)) {
        fclose(f);
        return og_err_set(err, OG_EIO, "'%s' is a directory", path);
    }
    size_t cap = OG_YAML_MAX_BYTES + 1u, first = 0;
    if (S_ISREG(st.st_mode) && (size_t)st.st_size < cap) cap = (size_t)st.st_size + 1;
    char *buf = og_malloc(cap);
    first = buf ? fread(buf, 1, cap, f) : 0;
    int bad = ferror(f);
    fclose(f);
    if (!buf) return og_err_set(err, OG_ENOMEM, "%s: out of memory", path);
    if (bad) {
        og_free(buf);
        return og_err_set(err, OG_EIO, "cannot read '%s'", path);
    }
    *text = buf;
    *len = first;
    return 0;
}

int og_yaml_load(const char *path, og_arena *a, og_diags *diags,
                 const og_yaml_node **root, og_err *err) {
    char *text = NULL;
    size_t len = 0;
    *root = NULL;
    int rc = read_all(path, &text, &len, err);
    if (rc < 0) return rc;
    rc = og_yaml_parse(path, text, len, a, diags, root, err);
    og_free(text);
    return rc;
}
