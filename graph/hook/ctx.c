/* ctx: what a hook sees of the request, the config and the stage it feeds. */
#include "graph/hook/internal.h"

#include <stdio.h>
#include <string.h>

static void check_self(lua_State *L, const char *method) {
    if (!og__test(L, 1, OG__CTX)) luaL_error(L, "call it with a colon: ctx:%s", method);
}

/* ---- tokenizer ------------------------------------------------------------------- */

static const og_tokenizer *check_tokenizer(lua_State *L, const char *method) {
    const og_hook_env *env = og__vm(L)->env;
    if (!env->tokenizer)
        luaL_error(L, "ctx:%s: stage '%s' has no tokenizer", method,
                   env->stage ? env->stage : "?");
    return env->tokenizer;
}

/* Ids of a text, in vm->scratch. */
static size_t encode(lua_State *L, const char *method, const char *s, size_t len) {
    og_hook_vm *vm = og__vm(L);
    const og_tokenizer *tok = check_tokenizer(L, method);
    if (len > OG_HOOK_MAX_TEXT)
        og__fatal(L, OG_ELIMIT, "text of %zu bytes is too long (limit is %d)", len,
                  OG_HOOK_MAX_TEXT);
    og__charge(L, 16 + (int64_t)len);
    og_err err = OG_ERR_INIT;
    int32_t *ids = NULL;
    size_t n = 0;
    int rc = og_tokenizer_encode(tok, s, len, &ids, &n, &err);
    if (rc == OG_ENOMEM || rc == OG_ELIMIT) og__fatal(L, rc, "%s", err.msg);
    if (rc < 0) luaL_error(L, "ctx:%s: %s", method, err.msg);
    vm->scratch = ids;
    return n;
}

static void free_scratch(lua_State *L) {
    og_free(og__vm(L)->scratch);
    og__vm(L)->scratch = NULL;
}

static int ctx_tokenize(lua_State *L) {
    size_t len;
    check_self(L, "tokenize");
    const char *s = luaL_checklstring(L, 2, &len);
    size_t n = encode(L, "tokenize", s, len);
    og__seq_ids(L, og__vm(L)->scratch, (int32_t)n);
    free_scratch(L);
    return 1;
}

static int ctx_token(lua_State *L) {
    size_t len;
    check_self(L, "token");
    const char *s = luaL_checklstring(L, 2, &len);
    size_t n = encode(L, "token", s, len);
    int32_t id = n == 1 ? *(int32_t *)og__vm(L)->scratch : -1;
    free_scratch(L);
    if (n != 1) return luaL_error(L, "'%s' is %d tokens, not one", s, (int)n);
    lua_pushinteger(L, id);
    return 1;
}

/* ---- reject, log, warn ------------------------------------------------------------ */

static int ctx_reject(lua_State *L) {
    og_hook_vm *vm = og__vm(L);
    check_self(L, "reject");
    const char *field = luaL_checkstring(L, 2), *text = luaL_checkstring(L, 3);
    if (!vm->fatal) snprintf(vm->err.field, sizeof vm->err.field, "%s", field);
    return og__fatal(L, OG_EREJECT, "%s", text);
}

/* Lines beyond the limit are dropped: a log is no place for data. */
static int add_line(lua_State *L, const char *method, int warning) {
    og_hook_vm *vm = og__vm(L);
    size_t len;
    check_self(L, method);
    const char *s = luaL_checklstring(L, 2, &len);
    if (!vm->res || vm->res->n_logs >= OG_HOOK_MAX_LOGS) return 0;
    if (!vm->res->logs)
        vm->res->logs = og_calloc(OG_HOOK_MAX_LOGS, sizeof *vm->res->logs);
    char *line = vm->res->logs
                     ? og_strndup(s, len < OG_HOOK_LOG_BYTES ? len : OG_HOOK_LOG_BYTES)
                     : NULL;
    if (!line) return og__fatal(L, OG_ENOMEM, "out of memory");
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    if (warning) vm->res->warnings |= (uint32_t)1 << vm->res->n_logs;
    vm->res->logs[vm->res->n_logs++] = line;
    return 0;
}

static int ctx_log(lua_State *L) {
    return add_line(L, "log", 0);
}

static int ctx_warn(lua_State *L) {
    return add_line(L, "warn", 1);
}

/* ---- ctx, ctx.cfg, ctx.tables ---------------------------------------------------- */

static int cfg_index(lua_State *L) {
    const og_hook_env *env = og__vm(L)->env;
    const char *name = luaL_checkstring(L, 2);
    og__near near;
    char hint[128];
    og__near_init(&near, name);
    for (int i = 0; i < env->n_cfg; i++) {
        og__near_add(&near, env->cfg[i].name);
        if (strcmp(env->cfg[i].name, name)) continue;
        og__push_json(L, env->cfg[i].json, OG__VIEW_STRICT, name);
        return 1;
    }
    return luaL_error(L, "ctx.cfg has no '%s'%s", name,
                      og__near_text(&near, hint, sizeof hint));
}

static int tables_index(lua_State *L) {
    og__push_table(L, luaL_checkstring(L, 2));
    return 1;
}

static void push_request(lua_State *L) {
    const og_hook_request *r = og__vm(L)->call->request;
    if (r && json_is_object(r->fields))
        og__push_json(L, r->fields, OG__VIEW_REQUEST, "request");
    else
        luaL_error(L, "there is no request");
}

static void push_proxy(lua_State *L, const char *meta) {
    lua_newuserdatauv(L, 0, 0);
    luaL_setmetatable(L, meta);
}

static const luaL_Reg METHODS[] = {{"tokenize", ctx_tokenize},
                                   {"token", ctx_token},
                                   {"emit", og__l_emit},
                                   {"fork", og__l_fork},
                                   {"reject", ctx_reject},
                                   {"log", ctx_log},
                                   {"warn", ctx_warn},
                                   {NULL, NULL}};
static const char *const VALUES[] = {"request", "cfg", "tables", "state", "route", NULL};

static int push_value(lua_State *L, int k) {
    const og_hook_request *r = og__vm(L)->call->request;
    switch (k) {
    case 0: push_request(L); break;
    case 1: push_proxy(L, OG__CFG); break;
    case 2: push_proxy(L, OG__TABLES); break;
    case 3: og__push_state(L); break;
    default: lua_pushstring(L, r ? r->route : NULL);
    }
    return 1;
}

static int ctx_index(lua_State *L) {
    const char *key = luaL_checkstring(L, 2);
    og__near near;
    char hint[128];
    og__near_init(&near, key);
    for (const luaL_Reg *m = METHODS; m->name; m++) {
        if (!strcmp(key, m->name)) return lua_pushcfunction(L, m->func), 1;
        og__near_add(&near, m->name);
    }
    for (int k = 0; VALUES[k]; k++) {
        if (!strcmp(key, VALUES[k])) return push_value(L, k);
        og__near_add(&near, VALUES[k]);
    }
    return luaL_error(L, "ctx has no '%s'%s", key,
                      og__near_text(&near, hint, sizeof hint));
}

static int ctx_set(lua_State *L) {
    return luaL_error(L, "ctx is read-only: keep things in ctx.state");
}

void og__open_ctx(lua_State *L) {
    static const luaL_Reg ctx[] = {
        {"__index", ctx_index}, {"__newindex", ctx_set}, {NULL, NULL}};
    static const luaL_Reg cfg[] = {
        {"__index", cfg_index}, {"__newindex", ctx_set}, {NULL, NULL}};
    static const luaL_Reg tables[] = {
        {"__index", tables_index}, {"__newindex", ctx_set}, {NULL, NULL}};
    og__meta(L, OG__CTX, ctx);
    og__meta(L, OG__CFG, cfg);
    og__meta(L, OG__TABLES, tables);
    push_proxy(L, OG__CTX);
    og__vm(L)->ctx = luaL_ref(L, LUA_REGISTRYINDEX);
}
