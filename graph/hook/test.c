/* Test functions: finding them, the `t` they get, fixtures as JSON. */
#include "graph/hook/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/hook/internal.h"

#define PREFIX "test_"
#define T "t"
#define MAX_DEPTH 32
#define SHOWN 160 /* bytes of a value in a message */

/* What a call of this file carries; og_hook_call.test points at it. */
typedef struct og__test_call {
    og_hook_tests *list; /* not NULL: only find the functions */
    const og_hook_bench *bench;
} og__test_call;

/* ---- Lua values as JSON; nothing here throws ------------------------------------- */

typedef struct conversion {
    int left; /* values it may still have */
    const char *why;
} conversion;

static json_t *to_json(lua_State *L, int i, int depth, conversion *c);

static json_t *refuse(conversion *c, const char *why) {
    if (!c->why) c->why = why;
    return NULL;
}

static json_t *list_to_json(lua_State *L, int i, lua_Integer n, int depth,
                            conversion *c) {
    json_t *list = json_array();
    for (lua_Integer k = 1; list && k <= n; k++) {
        lua_rawgeti(L, i, k);
        json_t *v = to_json(L, lua_gettop(L), depth, c);
        lua_pop(L, 1);
        if (!v || json_array_append_new(list, v) < 0) {
            json_decref(list);
            return refuse(c, "out of memory");
        }
    }
    return list;
}

static json_t *table_to_json(lua_State *L, int i, int depth, conversion *c) {
    if (depth >= MAX_DEPTH) return refuse(c, "it is nested too deeply (limit is 32)");
    if (!lua_checkstack(L, 4)) return refuse(c, "out of memory");
    lua_Integer n = (lua_Integer)lua_rawlen(L, i);
    if (n > 0) return list_to_json(L, i, n, depth + 1, c);
    json_t *map = json_object();
    for (lua_pushnil(L); map && lua_next(L, i); lua_pop(L, 1)) {
        json_t *v = lua_type(L, -2) == LUA_TSTRING
                        ? to_json(L, lua_gettop(L), depth + 1, c)
                        : refuse(c, "its keys must be strings, or 1, 2, 3, ...");
        if (!v || json_object_set_new(map, lua_tostring(L, -2), v) < 0) {
            lua_pop(L, 2);
            json_decref(map);
            return refuse(c, "a key or a text is not UTF-8");
        }
    }
    return map;
}

static json_t *to_json(lua_State *L, int i, int depth, conversion *c) {
    size_t len;
    if (c->left-- <= 0) return refuse(c, "it has too many values (limit is 65536)");
    switch (lua_type(L, i)) {
    case LUA_TBOOLEAN: return json_boolean(lua_toboolean(L, i));
    case LUA_TNUMBER:
        if (lua_isinteger(L, i)) return json_integer(lua_tointeger(L, i));
        if (!isfinite(lua_tonumber(L, i))) return refuse(c, "a number is not finite");
        return json_real(lua_tonumber(L, i));
    case LUA_TSTRING: {
        const char *s = lua_tolstring(L, i, &len);
        json_t *j = json_stringn(s, len);
        return j ? j : refuse(c, "a text is not UTF-8");
    }
    case LUA_TTABLE: return table_to_json(L, i, depth, c);
    default: return refuse(c, "it may hold plain data only");
    }
}

/* ---- t:hook and t:rejects -------------------------------------------------------- */

static void check_self(lua_State *L, const char *method) {
    if (!og__test(L, 1, T)) luaL_error(L, "call it with a colon: t:%s", method);
}

/* "file.function" or "function", of the test's own file. */
static void split(lua_State *L, const char *text, char file[OG__MAX_NAME + 1],
                  const char **name) {
    const char *dot = strchr(text, '.');
    size_t n = dot ? (size_t)(dot - text) : 0;
    if (n > OG__MAX_NAME) luaL_error(L, "t:hook: the file's name is too long");
    snprintf(file, OG__MAX_NAME + 1, "%.*s", (int)n, text);
    *name = dot ? dot + 1 : text;
}

/* Arguments 2 and 3: which hook, on what. The result's text hangs on vm->scratch, so that
 * an error thrown later frees it. */
static int run_bench(lua_State *L, og_str *out, og_err *err) {
    og_hook_vm *vm = og__vm(L);
    const og_hook_bench *bench = vm->call->test->bench;
    char file[OG__MAX_NAME + 1];
    const char *name;
    conversion c = {.left = OG_HOOK_MAX_FIXTURE};
    split(L, luaL_checkstring(L, 2), file, &name);
    lua_settop(L, 3);
    luaL_checktype(L, 3, LUA_TTABLE);
    json_t *fixture = to_json(L, 3, 0, &c);
    if (!fixture) return luaL_error(L, "fixture: %s", c.why ? c.why : "out of memory");
    int rc = bench->run(bench->arg, *file ? file : NULL, name, fixture, out, err);
    json_decref(fixture);
    vm->scratch = out->data;
    if (out->oom) og__fatal(L, OG_ENOMEM, "out of memory");
    return rc;
}

static void drop_scratch(lua_State *L) {
    og_free(og__vm(L)->scratch);
    og__vm(L)->scratch = NULL;
}

/* The lines of text that are not blank, without the blanks before them. */
static void push_lines(lua_State *L, const char *text) {
    lua_newtable(L);
    for (int k = 1; text && *(text += strspn(text, " \n")); k++) {
        size_t n = strcspn(text, "\n");
        lua_pushlstring(L, text, n);
        lua_rawseti(L, -2, k);
        text += n;
    }
}

static int t_hook(lua_State *L) {
    og_str out = OG_STR_INIT;
    og_err err = OG_ERR_INIT;
    check_self(L, "hook");
    int rc = run_bench(L, &out, &err);
    if (rc < 0 && err.file[0])
        return luaL_error(L, "%s:%d: %s", err.file, err.line, err.msg);
    if (rc < 0)
        return luaL_error(L, "%s%s%s", err.field, err.field[0] ? ": " : "", err.msg);
    push_lines(L, out.data);
    drop_scratch(L);
    return 1;
}

static int t_rejects(lua_State *L) {
    og_str out = OG_STR_INIT;
    og_err err = OG_ERR_INIT;
    check_self(L, "rejects");
    int rc = run_bench(L, &out, &err);
    drop_scratch(L);
    if (rc == 0) return luaL_error(L, "%s did not reject", lua_tostring(L, 2));
    if (rc != OG_EREJECT)
        return luaL_error(L, "%s failed: %s", lua_tostring(L, 2), err.msg);
    lua_pushstring(L, err.field);
    lua_pushstring(L, err.msg);
    return 2;
}

/* ---- t:eq and t:ok --------------------------------------------------------------- */

/* A value for a message, on top of the stack. */
static const char *shown(lua_State *L, int i) {
    size_t n;
    if (lua_type(L, i) != LUA_TSTRING) return luaL_tolstring(L, i, NULL);
    const char *s = lua_tolstring(L, i, &n);
    return lua_pushfstring(L, n > SHOWN ? "\"%s...\"" : "\"%s\"",
                           n > SHOWN ? lua_pushlstring(L, s, SHOWN) : s);
}

static int differ(lua_State *L, int a, int b, const char *path) {
    const char *got = shown(L, a), *want = shown(L, b);
    return luaL_error(L, "%s%sgot %s\n  want %s", path, *path ? ": " : "", got, want);
}

static void equal(lua_State *L, int a, int b, const char *path, int depth);

/* Each key of a in b; then none of b that a lacks. */
static void equal_tables(lua_State *L, int a, int b, const char *path, int depth) {
    luaL_checkstack(L, 12, "values are nested too deeply");
    if (depth >= MAX_DEPTH) luaL_error(L, "values are nested too deeply (limit is 32)");
    lua_Integer n = (lua_Integer)lua_rawlen(L, a), m = (lua_Integer)lua_rawlen(L, b);
    for (lua_Integer k = 1; k <= n || k <= m; k++) { /* lists in order */
        lua_rawgeti(L, a, k);
        lua_rawgeti(L, b, k);
        int top = lua_gettop(L);
        equal(L, top - 1, top, lua_pushfstring(L, "%s[%I]", path, (LUAI_UACINT)k),
              depth + 1);
        lua_settop(L, top - 2);
    }
    for (int turn = 0; turn < 2; turn++) {
        for (lua_pushnil(L); lua_next(L, turn ? b : a); lua_pop(L, 1)) {
            int top = lua_gettop(L);
            lua_pushvalue(L, top - 1);
            lua_rawget(L, turn ? a : b);
            lua_pushvalue(L, top - 1); /* tolstring would change the key itself */
            const char *sub =
                lua_pushfstring(L, "%s.%s", path, luaL_tolstring(L, -1, NULL));
            equal(L, turn ? top + 1 : top, turn ? top : top + 1, sub, depth + 1);
            lua_settop(L, top);
        }
    }
}

static void equal(lua_State *L, int a, int b, const char *path, int depth) {
    og__charge(L, 4);
    if (lua_rawequal(L, a, b)) return;
    if (lua_type(L, a) == LUA_TTABLE && lua_type(L, b) == LUA_TTABLE)
        equal_tables(L, a, b, path, depth);
    else
        differ(L, a, b, path);
}

static int t_eq(lua_State *L) {
    check_self(L, "eq");
    luaL_checkany(L, 2);
    luaL_checkany(L, 3);
    if (lua_istable(L, 2) && lua_type(L, 3) == LUA_TSTRING) {
        push_lines(L, lua_tostring(L, 3));
        lua_replace(L, 3);
    }
    equal(L, 2, 3, luaL_optstring(L, 4, ""), 0);
    return 0;
}

static int t_ok(lua_State *L) {
    check_self(L, "ok");
    luaL_checkany(L, 2);
    if (lua_toboolean(L, 2)) return 0;
    return luaL_error(L, "%s", luaL_optstring(L, 3, "not true"));
}

/* ---- the call -------------------------------------------------------------------- */

static void push_t(lua_State *L) {
    static const luaL_Reg fns[] = {{"hook", t_hook},
                                   {"rejects", t_rejects},
                                   {"eq", t_eq},
                                   {"ok", t_ok},
                                   {NULL, NULL}};
    lua_newuserdatauv(L, 0, 0);
    if (luaL_newmetatable(L, T)) {
        luaL_newlib(L, fns);
        lua_setfield(L, -2, "__index");
        lua_pushboolean(L, 0);
        lua_setfield(L, -2, "__metatable");
    }
    lua_setmetatable(L, -2);
}

static void add(lua_State *L, og_hook_tests *t, const char *name, int line) {
    if (t->n == OG_HOOK_MAX_TESTS) {
        luaL_error(L, "too many test functions (limit is %d)", OG_HOOK_MAX_TESTS);
        return;
    }
    if (t->n == t->cap) {
        int cap = t->cap ? 2 * t->cap : 16;
        og_hook_test *list = og_realloc(t->list, (size_t)cap * sizeof *list);
        if (!list) og__fatal(L, OG_ENOMEM, "out of memory");
        t->list = list, t->cap = cap;
    }
    t->list[t->n] = (og_hook_test){og_strdup(name), line};
    if (!t->list[t->n].name) og__fatal(L, OG_ENOMEM, "out of memory");
    t->n++;
}

static void find(lua_State *L, og_hook_tests *out) {
    lua_Debug ar;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        if (strncmp(name, PREFIX, strlen(PREFIX)) || !lua_isfunction(L, -1)) continue;
        lua_pushvalue(L, -1);
        lua_getinfo(L, ">S", &ar);
        add(L, out, name, ar.linedefined);
    }
}

void og__run_test(lua_State *L) {
    og_hook_vm *vm = og__vm(L);
    if (vm->call->test->list) {
        og__use(L, vm->env->file);
        find(L, vm->call->test->list);
        return;
    }
    og__function(L, vm->env->file, vm->env->function);
    push_t(L);
    lua_call(L, 1, 0);
}

/* ---- in front -------------------------------------------------------------------- */

static int by_line(const void *a, const void *b) {
    const og_hook_test *x = a, *y = b;
    return x->line != y->line ? (x->line > y->line) - (x->line < y->line)
                              : strcmp(x->name, y->name);
}

static int call_vm(og_hook_vm *vm, const og_hook_env *env, const og__test_call *test,
                   og_err *err) {
    og_hook_request request = {0};
    og_hook_call call = {.env = env, .request = &request, .test = test};
    og_hook_result res = OG_HOOK_RESULT_INIT;
    int rc = og_hook_run(vm, &call, &res, err);
    og_hook_result_free(&res);
    return rc;
}

int og_hook_tests_list(og_hook_vm *vm, const char *const *dirs, int n_dirs,
                       const char *file, og_hook_tests *out, og_err *err) {
    og_hook_env env = {.file = file, .dirs = dirs, .n_dirs = n_dirs};
    og__test_call test = {.list = out};
    *out = (og_hook_tests){0};
    int rc = call_vm(vm, &env, &test, err);
    if (rc < 0) {
        og_hook_tests_free(out);
        return rc;
    }
    if (out->n) qsort(out->list, (size_t)out->n, sizeof *out->list, by_line);
    return 0;
}

void og_hook_tests_free(og_hook_tests *tests) {
    for (int i = 0; i < tests->n; i++) og_free(tests->list[i].name);
    og_free(tests->list);
    *tests = (og_hook_tests){0};
}

int og_hook_test_run(og_hook_vm *vm, const char *const *dirs, int n_dirs,
                     const char *file, const char *name, const og_hook_bench *bench,
                     og_err *err) {
    og_hook_env env = {.file = file, .function = name, .dirs = dirs, .n_dirs = n_dirs};
    og__test_call test = {.bench = bench};
    return call_vm(vm, &env, &test, err);
}
