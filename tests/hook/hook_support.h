/* What the hook tests share: an arch made of text, files in a temporary folder, running
 * one function. Include cmocka.h before this header. / */
#ifndef OG_TESTS_HOOK_SUPPORT_H
#define OG_TESTS_HOOK_SUPPORT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/hook/hook.h"

#define HS_UNUSED __attribute__((unused)) static

/* Sanitizers make everything slower; tests of the default budgets say so themselves. */
#define HS_ROOMY                                                                         \
    { 2000000, 20000, 16u << 20, 64u << 20, 1u << 20 }

#define HS_LUA OG_SOURCE_DIR "/scripts/lua"

static const og_port_desc hs_ports[] = {
    {"prompt", OG_PORT_IN | OG_PORT_ROWS, "embeds[$hidden_size]", ""},
    {"feed", OG_PORT_IN | OG_PORT_ROWS | OG_PORT_STREAM, "embeds[$hidden_size]?", ""},
    {"codes", OG_PORT_IN | OG_PORT_STREAM, "codes[$num_code_groups]", ""},
    {"tokens", OG_PORT_IN, "tokens", ""},
    {"deepstack", OG_PORT_IN, "hidden[$hidden_size]?", ""},
    {NULL, 0, NULL, NULL}};

static const og_table_desc hs_tables[] = {
    {"text", OG_TABLE_ID, "$text_vocab_size", NULL, ""},
    {"codec", OG_TABLE_ID, "$vocab_size", NULL, ""},
    {"frame", OG_TABLE_CODES, NULL, "$num_code_groups", ""},
    {"speaker", OG_TABLE_VECTOR, NULL, "$hidden_size", ""},
    {"hidden", OG_TABLE_VECTOR, NULL, NULL, ""},
    {"audio", OG_TABLE_VECTOR, NULL, NULL, ""},
    {"visual", OG_TABLE_VECTOR, NULL, NULL, ""},
    {"latent", OG_TABLE_VECTOR, NULL, NULL, ""},
    {"speech", OG_TABLE_ID, NULL, NULL, ""},
    {"reference", OG_TABLE_CODES, NULL, NULL, ""},
    {"frame_delayed", OG_TABLE_CODES, NULL, NULL, ""},
    {NULL, OG_TABLE_ID, NULL, NULL, NULL}};

static const og_arch hs_arch = {.name = "toy", .ports = hs_ports, .tables = hs_tables};

static const og_hook_port hs_edge_ports[] = {
    {"prompt", 0}, {"feed", 1}, {"codes", 2}, {"tokens", 3}, {"deepstack", 4}};

/* ---- files ----------------------------------------------------------------------- */

typedef struct hs_dir {
    char path[64];
    char names[32][64];
    int n;
} hs_dir;

HS_UNUSED void hs_dir_open(hs_dir *d) {
    memset(d, 0, sizeof *d);
    snprintf(d->path, sizeof d->path, "/tmp/og_hook_XXXXXX");
    assert_non_null(mkdtemp(d->path));
}

HS_UNUSED void hs_dir_write(hs_dir *d, const char *name, const char *text, size_t len) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s.lua", d->path, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
    for (int i = 0; i < d->n; i++)
        if (!strcmp(d->names[i], name)) return;
    assert_true(d->n < 32);
    snprintf(d->names[d->n++], sizeof d->names[0], "%s", name);
}

HS_UNUSED void hs_dir_text(hs_dir *d, const char *name, const char *text) {
    hs_dir_write(d, name, text, strlen(text));
}

HS_UNUSED void hs_dir_close(hs_dir *d) {
    char path[160];
    for (int i = 0; i < d->n; i++) {
        snprintf(path, sizeof path, "%s/%s.lua", d->path, d->names[i]);
        unlink(path);
    }
    rmdir(d->path);
}

/* ---- a bench: one env, request and VM that tests adjust -------------------------- */

typedef struct hs_bench {
    hs_dir dir;
    const char *dirs[2];
    og_hook_env env;
    og_hook_request request;
    og_hook_call call;
    og_hook_vm *vm;
    og_hook_result res;
    og_err err;
    json_t *section, *root, *fields;
    og_hook_cfg cfg[2];
} hs_bench;

HS_UNUSED json_t *hs_json(const char *text) {
    json_error_t e;
    json_t *j = json_loads(text, 0, &e);
    if (!j) fail_msg("%s", e.text);
    return j;
}

HS_UNUSED void hs_open_limits(hs_bench *b, const og_hook_limits *limits) {
    static const char *const fields[] = {"text", "voice", "language", "voices",
                                         "messages"};
    memset(b, 0, sizeof *b);
    hs_dir_open(&b->dir);
    b->dirs[0] = b->dir.path;
    b->dirs[1] = HS_LUA;
    b->section =
        hs_json("{\"hidden_size\": 8, \"num_code_groups\": 4, \"vocab_size\": 50,"
                " \"text_vocab_size\": 1000}");
    b->root =
        hs_json("{\"pad_id\": 7, \"sub\": {\"a\": 1, \"list\": [5, 6]}, \"none\": null}");
    b->fields = hs_json("{\"text\": \"hello\", \"voices\": [\"x\", \"y\"]}");
    b->cfg[0] = (og_hook_cfg){"root", b->root};
    b->cfg[1] = (og_hook_cfg){"talker", b->section};
    b->env = (og_hook_env){.file = "t",
                           .function = "f",
                           .dirs = b->dirs,
                           .n_dirs = 2,
                           .stage = "talker",
                           .to = &hs_arch,
                           .section = b->section,
                           .max_rows = 4096,
                           .ports = hs_edge_ports,
                           .n_ports = 5,
                           .cfg = b->cfg,
                           .n_cfg = 2,
                           .fields = fields,
                           .n_fields = 5};
    b->request.fields = b->fields;
    b->call.env = &b->env;
    b->call.request = &b->request;
    if (og_hook_vm_create(limits, &b->vm, &b->err) < 0) fail_msg("%s", b->err.msg);
}

HS_UNUSED void hs_open(hs_bench *b) {
    og_hook_limits roomy = HS_ROOMY;
    hs_open_limits(b, &roomy);
}

HS_UNUSED void hs_close(hs_bench *b) {
    og_hook_result_free(&b->res);
    og_hook_vm_destroy(b->vm);
    json_decref(b->section);
    json_decref(b->root);
    json_decref(b->fields);
    hs_dir_close(&b->dir);
}

/* Put a file with M.f = function(ctx, src) BODY end there under a fresh name and run it:
 * files are parsed once per VM. */
HS_UNUSED int hs_run(hs_bench *b, const char *body) {
    static int serial;
    static char name[32];
    char *text = malloc(strlen(body) + 128);
    assert_non_null(text);
    int n =
        sprintf(text, "local M = {}\nfunction M.f(ctx, src)\n%s\nend\nreturn M\n", body);
    snprintf(name, sizeof name, "t%d", serial++ % 24);
    hs_dir_write(&b->dir, name, text, (size_t)n);
    free(text);
    og_hook_result_free(&b->res);
    og_err_clear(&b->err);
    if (serial % 24 == 1 && serial > 1) { /* names begin again: so does the VM */
        og_hook_limits roomy = HS_ROOMY;
        og_hook_vm_destroy(b->vm);
        if (og_hook_vm_create(&roomy, &b->vm, &b->err) < 0) fail_msg("%s", b->err.msg);
    }
    b->env.file = name;
    return og_hook_run(b->vm, &b->call, &b->res, &b->err);
}

/* The printed form of what the last run emitted; a static buffer. */
HS_UNUSED const char *hs_print(const hs_bench *b) {
    static char buf[8192];
    og_str s = OG_STR_INIT;
    og_hook_print(&b->res, &b->env, &s);
    snprintf(buf, sizeof buf, "%s", s.data ? s.data : "");
    og_str_free(&s);
    return buf;
}

HS_UNUSED void hs_ok(hs_bench *b, const char *body) {
    if (hs_run(b, body) < 0) fail_msg("%s:%d: %s", b->err.file, b->err.line, b->err.msg);
}

/* Run and expect exactly this printed form. */
HS_UNUSED void hs_expect(hs_bench *b, const char *body, const char *want) {
    hs_ok(b, body);
    assert_string_equal(hs_print(b), want);
}

/* Run and expect an OG_EHOOK whose message holds want, at that line of the body. */
HS_UNUSED void hs_fails(hs_bench *b, const char *body, int line, const char *want) {
    int rc = hs_run(b, body);
    if (rc != OG_EHOOK) fail_msg("%s: got %s %s", want, og_err_name(rc), b->err.msg);
    if (!strstr(b->err.msg, want)) fail_msg("wanted '%s', got '%s'", want, b->err.msg);
    if (line) {
        char file[40];
        snprintf(file, sizeof file, "%s.lua", b->env.file);
        assert_string_equal(b->err.file, file);
        assert_int_equal(b->err.line, line + 2);
    }
}

#endif
