/* `hook test`: the test_* functions of a hook file, on fixtures, without a model.
 *
 * A fixture is the table that a test hands to t:hook (docs/hooks.md lists its keys). What
 * the compiler would know of the edge comes from it: arch, config, lanes, sources. Without
 * a checkpoint a text's tokens are its bytes, and `tokens` adds marks such as
 * <|im_start|>. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/cli/cli.h"
#include "graph/hook/test.h"
#include "nodes/registry.h"

#define SOURCES_MAX 16
#define CFG_MAX 32
#define PORTS_MAX OG_MAX_PORTS

typedef struct bench {
    const char *file; /* the hook file's name */
    const char *dirs[8];
    int n_dirs;
    og_hook_vm *vm; /* of the hooks; the tests run in another */
} bench;

/* One fixture, read: all of it is borrowed from the JSON or lies in the arena. */
typedef struct fixture {
    og_arena *arena;
    og_tokenizer *tokenizer;
    og_hook_env env;
    og_hook_source sources[SOURCES_MAX];
    const char *names[SOURCES_MAX], *absent[SOURCES_MAX];
    og_hook_cfg cfg[CFG_MAX];
    og_hook_port ports[PORTS_MAX];
    og_hook_request request;
} fixture;

static int bad(og_err *err, const char *fmt, const char *what) {
    char text[160];
    snprintf(text, sizeof text, fmt, what);
    return og_err_set(err, OG_EINVAL, "fixture: %s", text);
}

/* ---- tokens ------------------------------------------------------------------- */

/* The character that stands for a byte in byte-level vocabularies: itself where it is
 * visible, else the next free one from U+0100 on. */
static void byte_name(int byte, int *spare, char out[4]) {
    bool visible = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    int c = visible ? byte : 256 + (*spare)++;
    int n = 0;
    if (c >= 128) out[n++] = (char)(0xc0 | c >> 6);
    out[n++] = (char)(c < 128 ? c : 0x80 | (c & 0x3f));
    out[n] = 0;
}

static json_t *byte_vocab(void) {
    json_t *vocab = json_object();
    int spare = 0;
    for (int b = 0; b < 256; b++) {
        char name[4];
        byte_name(b, &spare, name);
        json_object_set_new(vocab, name, json_integer(b));
    }
    return vocab;
}

static json_t *marks(const json_t *tokens) {
    json_t *list = json_array(), *id;
    const char *text;
    json_object_foreach((json_t *)tokens, text, id) json_array_append_new(
        list, json_pack("{s:O, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", text,
                        "special", 1, "single_word", 0, "lstrip", 0, "rstrip", 0,
                        "normalized", 0));
    return list;
}

static int make_tokenizer(fixture *f, const json_t *tokens, og_err *err) {
    json_t *j = json_pack("{s:o, s:{s:s, s:b, s:b, s:b}, s:{s:s}, s:{s:s, s:[], s:o}}",
                          "added_tokens", marks(tokens), "pre_tokenizer", "type",
                          "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
                          "use_regex", 1, "decoder", "type", "ByteLevel", "model", "type",
                          "BPE", "merges", "vocab", byte_vocab());
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    if (!text) return og_err_set(err, OG_ENOMEM, "out of memory");
    int rc = og_tokenizer_open_json("tokens", text, strlen(text), &f->tokenizer, err);
    free(text);
    f->env.tokenizer = f->tokenizer;
    return rc;
}

/* ---- sources ------------------------------------------------------------------ */

static int kind_of(const json_t *j, og_hook_kind *kind, og_err *err) {
    static const struct {
        const char *name;
        og_hook_kind kind;
    } kinds[] = {{"ids", OG_HOOK_IDS},           {"codes", OG_HOOK_CODES},
                 {"vector", OG_HOOK_VECTOR},     {"media", OG_HOOK_MEDIA},
                 {"messages", OG_HOOK_MESSAGES}, {"text", OG_HOOK_TEXT}};
    const char *name = json_string_value(json_object_get(j, "kind"));
    for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, name)) return *kind = kinds[i].kind, 0;
    return bad(err,
               "a source's kind is ids, codes, vector, media, messages or text, not %s",
               name ? name : "missing");
}

static int read_ids(fixture *f, const json_t *list, og_hook_source *s, og_err *err) {
    size_t n = json_array_size(list);
    int32_t *ids = og_arena_alloc(f->arena, (n + 1) * sizeof *ids);
    if (!ids) return og_err_set(err, OG_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v)) return bad(err, "%s", "a source's ids are integers");
        ids[i] = (int32_t)json_integer_value(v);
    }
    s->ids = ids;
    s->count = (int32_t)n;
    return 0;
}

static int32_t number(const json_t *j, const char *key, int32_t def) {
    const json_t *v = json_object_get(j, key);
    return json_is_integer(v) ? (int32_t)json_integer_value(v) : def;
}

/* A text, a list of ids, or {kind, count, width, open, ids, value}. */
static int read_source(fixture *f, const json_t *j, og_hook_source *s, og_err *err) {
    s->present = 1;
    if (json_is_string(j)) {
        s->kind = OG_HOOK_TEXT;
        s->text = json_string_value(j), s->text_len = json_string_length(j);
        return 0;
    }
    if (json_is_array(j) || json_object_size(j) == 0) { /* {} is a list as well */
        s->kind = OG_HOOK_IDS;
        return read_ids(f, j, s, err);
    }
    if (kind_of(j, &s->kind, err) < 0) return err->code;
    s->open = json_is_true(json_object_get(j, "open"));
    s->count = number(j, "count", 1);
    s->width = number(j, "width", 0);
    s->json = json_object_get(j, "value");
    s->text = json_string_value(s->json), s->text_len = json_string_length(s->json);
    if (s->count < 0 || s->width < 0)
        return bad(err, "%s", "a source's size is negative");
    if (s->kind == OG_HOOK_IDS && !s->open)
        return read_ids(f, json_object_get(j, "ids"), s, err);
    return 0;
}

/* false: a name of the edge that is nil here. */
static int add_source(fixture *f, const char *name, const json_t *j, og_err *err) {
    if (f->env.n_sources + f->env.n_absent == SOURCES_MAX)
        return og_err_set(err, OG_ELIMIT, "fixture: too many sources (limit is %d)",
                          SOURCES_MAX);
    if (json_is_false(j)) {
        f->absent[f->env.n_absent++] = name;
        return 0;
    }
    int k = f->env.n_sources++;
    f->names[k] = name;
    return read_source(f, j, &f->sources[k], err);
}

/* `src`; without it the request's text stands for a source `text`. */
static int read_sources(fixture *f, const json_t *j, og_err *err) {
    json_t *all = json_object_get(j, "src"), *v;
    const json_t *text = json_object_get(f->request.fields, "text");
    const char *name;
    int rc = 0;
    f->env.sources = f->names, f->env.absent = f->absent;
    if (!all && json_is_string(text)) return add_source(f, "text", text, err);
    json_object_foreach(all, name, v) if (rc == 0) rc = add_source(f, name, v, err);
    return rc;
}

/* ---- the edge ----------------------------------------------------------------- */

static int read_arch(fixture *f, const json_t *j, og_err *err) {
    const char *name = json_string_value(json_object_get(j, "arch"));
    if (!name) return 0;
    const og_arch *a = f->env.to = og_arch_find(name);
    if (!a)
        return bad(err, "there is no arch '%s' (see 'omni-graph inspect archs')", name);
    for (int i = 0; a->ports[i].name && f->env.n_ports < PORTS_MAX; i++)
        if (a->ports[i].flags & OG_PORT_IN)
            f->ports[f->env.n_ports++] = (og_hook_port){a->ports[i].name, i};
    f->env.ports = f->ports;
    return 0;
}

/* ctx.cfg, and which of its sections is that of the receiving stage: `stage`, or the only
 * one beside root and index. */
static int read_cfg(fixture *f, const json_t *j, og_err *err) {
    json_t *all = json_object_get(j, "cfg"), *v;
    const char *stage = json_string_value(json_object_get(j, "stage")), *name,
               *only = "stage";
    int n = 0;
    json_object_foreach(all, name, v) {
        if (f->env.n_cfg == CFG_MAX) return bad(err, "%s", "too many config sections");
        f->cfg[f->env.n_cfg++] = (og_hook_cfg){name, v};
        if (!strcmp(name, "root") || !strcmp(name, "index")) continue;
        only = n++ ? "stage" : name;
    }
    f->env.cfg = f->cfg;
    f->env.stage = stage ? stage : only;
    f->env.section = json_object_get(all, f->env.stage);
    return 0;
}

static const char **texts(fixture *f, const json_t *list, int *n) {
    size_t size = json_array_size(list);
    const char **out = og_arena_alloc(f->arena, (size + 1) * sizeof *out);
    *n = 0;
    for (size_t i = 0; out && i < size; i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (s) out[(*n)++] = s;
    }
    return out;
}

/* The request, and the names of the fields that a pipeline would declare. */
static int read_request(fixture *f, const json_t *j, og_err *err) {
    json_t *fields = json_object_get(j, "request"), *v;
    const json_t *more = json_object_get(j, "fields");
    const char *name;
    int n = 0;
    f->request.fields = fields;
    json_t *list = json_is_array(more) ? json_copy((json_t *)more) : json_array();
    json_object_foreach(fields, name, v) json_array_append_new(list, json_string(name));
    const char **names = texts(f, list, &n);
    for (int i = 0; names && i < n; i++) names[i] = og_arena_strdup(f->arena, names[i]);
    json_decref(list);
    if (!names) return og_err_set(err, OG_ENOMEM, "out of memory");
    f->env.fields = names, f->env.n_fields = n;
    return 0;
}

static int read_lanes(fixture *f, const json_t *j, og_err *err) {
    const json_t *lanes = json_object_get(j, "lanes");
    const char *word = json_string_value(lanes);
    f->env.numbered = word && !strcmp(word, "numbered");
    if (word && !f->env.numbered)
        return bad(err, "lanes: a list or numbered, not %s", word);
    f->env.lanes = texts(f, lanes, &f->env.n_lanes);
    if (!f->env.n_lanes) f->env.lanes = NULL;
    return 0;
}

static int check_keys(const json_t *j, og_err *err) {
    static const char *const keys[] = {"arch",   "stage", "cfg",   "request",
                                       "fields", "src",   "lanes", "tokens"};
    enum { N = sizeof keys / sizeof *keys };
    json_t *v;
    const char *name;
    json_object_foreach((json_t *)j, name, v) {
        bool known = false;
        for (int i = 0; i < N; i++) known |= !strcmp(name, keys[i]);
        if (known) continue;
        const char *best = og_near(name, keys, N);
        return og_err_set(err, OG_EINVAL, "fixture: unknown key '%s'%s%s%s", name,
                          best ? " (did you mean '" : "", best ? best : "",
                          best ? "'?)" : "");
    }
    return 0;
}

static int read_fixture(fixture *f, const json_t *j, og_err *err) {
    if (!json_is_object(j)) return bad(err, "%s", "it is a table with string keys");
    int rc = check_keys(j, err);
    if (rc == 0) rc = read_arch(f, j, err);
    if (rc == 0) rc = read_cfg(f, j, err);
    if (rc == 0) rc = read_request(f, j, err);
    if (rc == 0) rc = read_sources(f, j, err);
    if (rc == 0) rc = read_lanes(f, j, err);
    return rc < 0 ? rc : make_tokenizer(f, json_object_get(j, "tokens"), err);
}

static int run_fixture(void *arg, const char *file, const char *name, const json_t *j,
                       og_str *out, og_err *err) {
    bench *b = arg;
    fixture f = {.arena = og_arena_create()};
    og_hook_result res = OG_HOOK_RESULT_INIT;
    f.env.file = file ? file : b->file;
    f.env.function = name;
    f.env.dirs = b->dirs, f.env.n_dirs = b->n_dirs;
    f.request.state = og_hook_state_create();
    int rc = f.arena && f.request.state ? read_fixture(&f, j, err)
                                        : og_err_set(err, OG_ENOMEM, "out of memory");
    og_hook_call call = {.env = &f.env, .request = &f.request, .sources = f.sources};
    if (rc == 0) rc = og_hook_run(b->vm, &call, &res, err);
    if (rc == 0) og_hook_print(&res, &f.env, out);
    og_hook_result_free(&res);
    if (f.request.state) og_hook_vm_release(b->vm, f.request.state);
    og_tokenizer_close(f.tokenizer);
    og_arena_destroy(f.arena);
    return rc;
}

/* ---- the command -------------------------------------------------------------- */

/* "dir/my.lua" -> the file's name and its folder, which comes before the data folders. */
static int find_file(og__cli *cli, const char *path, bench *b) {
    og__data data;
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t n = strlen(name);
    if (n < 5 || strcmp(name + n - 4, ".lua"))
        return og__usage(cli, "'%s' is no .lua file", path);
    if (access(path, R_OK) < 0) return og__usage(cli, "cannot read '%s'", path);
    b->file = og_arena_strndup(cli->arena, name, n - 4);
    b->dirs[b->n_dirs++] =
        slash ? og_arena_strndup(cli->arena, path, (size_t)(slash - path) + 1) : ".";
    og__data_find(cli->arena, NULL, &data);
    for (int i = 0; i < data.n_scripts; i++) b->dirs[b->n_dirs++] = data.scripts[i];
    return b->file && b->dirs[0] ? 0 : og__usage(cli, "out of memory");
}

/* One line a test; what failed is told at its own place in the file. */
static bool run_one(bench *b, og_hook_vm *vm, const char *path, const og_hook_test *t,
                    og_str *out) {
    og_err err = OG_ERR_INIT;
    og_hook_bench hb = {.run = run_fixture, .arg = b};
    if (og_hook_test_run(vm, b->dirs, b->n_dirs, b->file, t->name, &hb, &err) == 0) {
        og_str_addf(out, "ok    %s\n", t->name);
        return true;
    }
    const char *trace = strstr(err.msg, "\ntraceback:");
    char own[OG_ERR_FILE_MAX];
    snprintf(own, sizeof own, "%.200s.lua", b->file);
    og_str_addf(out, "FAIL  %s\n", t->name);
    og_str_addf(out, "%s:%d: %.*s\n",
                !err.file[0] || !strcmp(err.file, own) ? path : err.file,
                err.line ? err.line : t->line,
                (int)(trace ? trace - err.msg : (long)strlen(err.msg)), err.msg);
    if (trace && strcmp(err.file, own)) og_str_addf(out, "%s\n", trace + 1);
    return false;
}

static int run_tests(bench *b, og_hook_vm *vm, const char *path) {
    og_hook_tests tests;
    og_err err = OG_ERR_INIT;
    og_str out = OG_STR_INIT;
    int passed = 0;
    if (og_hook_tests_list(vm, b->dirs, b->n_dirs, b->file, &tests, &err) < 0) {
        og__report(&err);
        return OG__EXIT_FAILED;
    }
    for (int i = 0; i < tests.n; i++)
        passed += run_one(b, vm, path, &tests.list[i], &out);
    int failed = tests.n - passed;
    og_str_addf(&out, "%d passed, %d failed\n", passed, failed);
    if (!tests.n) og__hint("%s has no function named test_...", path);
    og_hook_tests_free(&tests);
    int rc = og__print_str(&out);
    return rc ? rc : failed || !passed ? OG__EXIT_FAILED : OG__EXIT_OK;
}

static int run(og__cli *cli) {
    /* Tests call many hooks and are nobody's guests: room for all of them together. */
    static const og_hook_limits roomy = {200000000, 20000, 128u << 20, 256u << 20,
                                         1u << 20};
    bench b = {0};
    og_hook_vm *vm = NULL;
    og_err err = OG_ERR_INIT;
    if (strcmp(cli->args.pos[0], "test"))
        return og__usage(cli, "there is no 'hook %s', only 'hook test FILE'",
                         cli->args.pos[0]);
    int rc = find_file(cli, cli->args.pos[1], &b);
    if (rc) return rc;
    if (og_hook_vm_create(NULL, &b.vm, &err) < 0 ||
        og_hook_vm_create(&roomy, &vm, &err) < 0)
        rc = og__report(&err);
    else
        rc = run_tests(&b, vm, cli->args.pos[1]);
    og_hook_vm_destroy(vm);
    og_hook_vm_destroy(b.vm);
    return rc;
}

static const og__opt options[] = {{0}};

static const char *const examples[] = {
    "omni-graph hook test my.lua",
    NULL,
};

const og__cmd og__cmd_hook = {
    .name = "hook",
    .usage = "test FILE",
    .brief = "run the test_* functions of a hook file, without a model",
    .doc =
        "Each function test_NAME(t) of FILE runs in the sandbox of hooks. "
        "t:hook(name, fixture) runs a hook and gives its printed rows, t:rejects its "
        "refusal, t:eq and t:ok check. Exit code 1 if any fails. docs/hooks.md has the "
        "keys of a fixture.",
    .options = options,
    .words = "test",
    .min_pos = 2,
    .max_pos = 2,
    .examples = examples,
    .run = run,
};
