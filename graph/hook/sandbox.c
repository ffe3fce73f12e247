/* The standard library as hooks see it: an allow-list, with a charge on all that works in
 * a C loop, where the instruction hook never fires. Each original runs in its wrapper's
 * frame, so its messages keep their positions and names. / */
#include "graph/hook/internal.h"

#include <string.h>

#define BYTES_PER_STEP 16 /* a byte copied costs about a sixteenth of an instruction */

static int original(lua_State *L) {
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

static int64_t checked_len(lua_State *L, int i) {
    return i <= lua_gettop(L) && lua_type(L, i) >= LUA_TTABLE ? (int64_t)luaL_len(L, i)
                                                              : 0;
}

/* ---- base ------------------------------------------------------------------------ */

/* The budgets and ctx:reject pass through. */
static int base_pcall(lua_State *L) {
    og_hook_vm *vm = og__vm(L);
    luaL_checkany(L, 1);
    lua_pushboolean(L, 1);
    lua_insert(L, 1);
    int n_chain = vm->n_chain;
    int status = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
    if (status == LUA_OK) return lua_gettop(L);
    if (status == LUA_ERRMEM && !vm->fatal) return og__fatal_memory(L);
    if (vm->fatal) return lua_error(L);
    vm->n_chain = n_chain;
    og_free(vm->scratch);
    vm->scratch = NULL;
    lua_pushboolean(L, 0);
    lua_insert(L, -2);
    return 2;
}

static int base_next(lua_State *L) {
    og__charge(L, 1);
    return original(L);
}

static int base_pairs(lua_State *L) {
    luaL_checkany(L, 1);
    if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
        lua_pushvalue(L, 1);
        lua_call(L, 1, 3);
        return 3;
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

/* No addresses: what a hook does must not depend on where something lies. */
static int base_tostring(lua_State *L) {
    luaL_checkany(L, 1);
    switch (lua_type(L, 1)) {
    case LUA_TNIL:
    case LUA_TBOOLEAN:
    case LUA_TNUMBER:
    case LUA_TSTRING: luaL_tolstring(L, 1, NULL); break;
    default: lua_pushstring(L, og__what(L, 1));
    }
    return 1;
}

/* ---- string ---------------------------------------------------------------------- */

static int str_copy(lua_State *L) {
    size_t n = 0;
    luaL_checklstring(L, 1, &n);
    og__charge(L, 1 + (int64_t)n / BYTES_PER_STEP);
    return original(L);
}

static int str_rep(lua_State *L) {
    size_t len = 0, sep = 0;
    luaL_checklstring(L, 1, &len);
    lua_Integer n = luaL_checkinteger(L, 2);
    luaL_optlstring(L, 3, "", &sep);
    int64_t per = 1 + (int64_t)((len + sep) / BYTES_PER_STEP);
    if (n > 0) og__charge(L, n > INT64_MAX / per ? INT64_MAX : n * per);
    return original(L);
}

static int str_format(lua_State *L) {
    size_t len = 0;
    const char *fmt = luaL_checklstring(L, 1, &len);
    og__charge(L, 1 + (int64_t)len);
    for (const char *p = fmt; p < fmt + len; p++) {
        if (*p != '%') continue;
        p += 1 + strspn(p + 1, "-+ #0123456789.");
        if (*p == 'p') return luaL_error(L, "string.format: '%%p' is not part of hooks");
    }
    for (int i = 2; i <= lua_gettop(L); i++) {
        if (lua_type(L, i) == LUA_TSTRING) {
            og__charge(L, (int64_t)lua_rawlen(L, i) / BYTES_PER_STEP);
        } else if (lua_type(L, i) >= LUA_TTABLE) {
            lua_pushstring(L, og__what(L, i));
            lua_replace(L, i);
        }
    }
    return original(L);
}

/* string.find(s, text [, init]): always plain. */
static int str_find(lua_State *L) {
    size_t n = 0, k = 0;
    const char *s = luaL_checklstring(L, 1, &n), *what = luaL_checklstring(L, 2, &k);
    lua_Integer init = luaL_optinteger(L, 3, 1);
    if (init < 0) init = -init > (lua_Integer)n ? 1 : (lua_Integer)n + init + 1;
    if (init == 0) init = 1;
    og__charge(L, 1 + (int64_t)n / BYTES_PER_STEP);
    if (init > (lua_Integer)n + 1) return luaL_pushfail(L), 1;
    const char *from = s + init - 1;
    const char *at = memmem(from, n - (size_t)(init - 1), what, k);
    if (!at) return luaL_pushfail(L), 1;
    lua_pushinteger(L, at - s + 1);
    lua_pushinteger(L, at - s + (lua_Integer)k);
    return 2;
}

static int str_no_patterns(lua_State *L) {
    const char *name = lua_tostring(L, lua_upvalueindex(1));
    return luaL_error(L, "string.%s is not part of hooks: use re.%s (PCRE2)", name, name);
}

/* ---- table ----------------------------------------------------------------------- */

static int tab_concat(lua_State *L) {
    size_t sep = 0;
    luaL_optlstring(L, 2, "", &sep);
    lua_Integer i = luaL_optinteger(L, 3, 1);
    lua_Integer j =
        lua_isnoneornil(L, 4) ? (lua_Integer)checked_len(L, 1) : luaL_checkinteger(L, 4);
    if (i > j) return original(L);
    uint64_t n = (uint64_t)j - (uint64_t)i + 1;
    uint64_t per = 2 + sep / BYTES_PER_STEP;
    og__charge(L, n > INT64_MAX / per || n == 0 ? INT64_MAX : (int64_t)(n * per));
    return original(L);
}

static int tab_unpack(lua_State *L) {
    lua_Integer i = luaL_optinteger(L, 2, 1);
    lua_Integer j =
        lua_isnoneornil(L, 3) ? (lua_Integer)checked_len(L, 1) : luaL_checkinteger(L, 3);
    if (i <= j) {
        uint64_t n = (uint64_t)j - (uint64_t)i + 1;
        og__charge(L, n > INT64_MAX / 2 || n == 0 ? INT64_MAX : (int64_t)n);
    }
    return original(L);
}

static int tab_move(lua_State *L) {
    lua_Integer f = luaL_checkinteger(L, 2), e = luaL_checkinteger(L, 3);
    if (f <= e) {
        uint64_t n = (uint64_t)e - (uint64_t)f + 1;
        og__charge(L, n > INT64_MAX / 4 || n == 0 ? INT64_MAX : (int64_t)n * 2);
    }
    return original(L);
}

/* insert and remove: what lies behind the place moves. */
static int tab_shift(lua_State *L) {
    int64_t n = checked_len(L, 1);
    int inserts = lua_toboolean(L, lua_upvalueindex(2));
    int has_place = lua_gettop(L) >= (inserts ? 3 : 2);
    int64_t at = has_place && lua_isinteger(L, 2) ? lua_tointeger(L, 2) : n;
    og__charge(L, at < 1 || at >= n ? 2 : 2 * (n - at) + 2);
    return original(L);
}

static int tab_sort(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    int64_t n = checked_len(L, 1), bytes = 0, log2n = 1;
    while ((n >> log2n) > 0) log2n++;
    og__charge(L, 4 * n * log2n);
    for (int64_t i = 1; i <= n; i++) {
        if (lua_rawgeti(L, 1, i) == LUA_TSTRING) bytes += (int64_t)lua_rawlen(L, -1);
        lua_pop(L, 1);
    }
    og__charge(L, bytes * log2n / BYTES_PER_STEP);
    return original(L);
}

static int tab_pack(lua_State *L) {
    og__charge(L, lua_gettop(L));
    return original(L);
}

/* ---- building -------------------------------------------------------------------- */

typedef struct wrapped {
    const char *name;
    lua_CFunction fn; /* `original` where nothing is charged */
} wrapped;

static const wrapped BASE[] = {
    {"assert", original},   {"error", original},    {"ipairs", original},
    {"next", base_next},    {"rawequal", original}, {"rawget", original},
    {"rawlen", original},   {"rawset", original},   {"select", original},
    {"tonumber", original}, {"type", original},     {NULL, NULL}};
static const wrapped STRING[] = {
    {"byte", str_copy},  {"char", tab_pack}, {"format", str_format}, {"len", original},
    {"lower", str_copy}, {"rep", str_rep},   {"reverse", str_copy},  {"sub", str_copy},
    {"upper", str_copy}, {NULL, NULL}};
static const char *const NO_PATTERNS[] = {"match", "gmatch", "gsub", NULL};
static const wrapped TABLE[] = {{"concat", tab_concat}, {"insert", tab_shift},
                                {"move", tab_move},     {"pack", tab_pack},
                                {"remove", tab_shift},  {"sort", tab_sort},
                                {"unpack", tab_unpack}, {NULL, NULL}};
/* Constants are copied too. */
static const char *const MATH[] = {
    "abs",  "acos", "asin", "atan", "ceil",       "cos",  "deg",        "exp",  "floor",
    "fmod", "huge", "log",  "max",  "maxinteger", "min",  "mininteger", "modf", "pi",
    "rad",  "sin",  "sqrt", "tan",  "tointeger",  "type", "ult",        NULL};

/* Names of Lua that hooks do not have, and what to use. */
static const char *const REMOVED[][2] = {{"print", "ctx:log"},
                                         {"require", "use \"name\""},
                                         {"dofile", "use \"name\""},
                                         {"loadfile", "use \"name\""},
                                         {"load", NULL},
                                         {"loadstring", NULL},
                                         {"collectgarbage", NULL},
                                         {"setmetatable", NULL},
                                         {"getmetatable", NULL},
                                         {"coroutine", NULL},
                                         {"xpcall", "pcall"},
                                         {"warn", "ctx:log"},
                                         {"os", NULL},
                                         {"io", NULL},
                                         {"debug", NULL},
                                         {"package", NULL},
                                         {"utf8", "re"},
                                         {"_G", "locals"},
                                         {NULL, NULL}};

static int missing_global(lua_State *L) {
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
    for (int i = 0; REMOVED[i][0]; i++) {
        if (strcmp(name, REMOVED[i][0])) continue;
        const char *instead = REMOVED[i][1];
        return luaL_error(L, "'%s' is not part of hooks%s%s", name,
                          instead ? ": use " : "", instead ? instead : "");
    }
    lua_pushnil(L);
    return 1;
}

static int read_only(lua_State *L) {
    const char *key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "?";
    return luaL_error(L, "cannot set '%s': the libraries are read-only", key);
}

/* Fill the table on top from the library table below it. */
static void add_wrapped(lua_State *L, const wrapped *w) {
    for (; w->name; w++) {
        lua_getfield(L, -2, w->name);
        lua_pushboolean(L, !strcmp(w->name, "insert"));
        lua_pushcclosure(L, w->fn, 2);
        lua_setfield(L, -2, w->name);
    }
}

/* Replace the table on top by a read-only view of it. */
static void seal(lua_State *L) {
    lua_newuserdatauv(L, 0, 0);
    lua_createtable(L, 0, 4);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, read_only);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_remove(L, -2);
}

static void push_string_lib(lua_State *L) {
    lua_createtable(L, 0, 16);
    luaL_requiref(L, "string", luaopen_string, 0);
    lua_insert(L, -2);
    add_wrapped(L, STRING);
    lua_remove(L, -2);
    lua_pushcfunction(L, str_find);
    lua_setfield(L, -2, "find");
    for (int i = 0; NO_PATTERNS[i]; i++) {
        lua_pushstring(L, NO_PATTERNS[i]);
        lua_pushcclosure(L, str_no_patterns, 1);
        lua_setfield(L, -2, NO_PATTERNS[i]);
    }
    lua_pushliteral(L, "");
    lua_createtable(L, 0, 2);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2); /* of all strings: s:lower() finds the list above */
    lua_pop(L, 1);
}

static void push_base_functions(lua_State *L) {
    lua_createtable(L, 0, 32);
    luaL_requiref(L, "_G", luaopen_base, 0);
    lua_insert(L, -2);
    add_wrapped(L, BASE);
    lua_remove(L, -2);
    lua_getfield(L, -1, "next");
    lua_pushcclosure(L, base_pairs, 1);
    lua_setfield(L, -2, "pairs");
    lua_pushcfunction(L, base_pcall);
    lua_setfield(L, -2, "pcall");
    lua_pushcfunction(L, base_tostring);
    lua_setfield(L, -2, "tostring");
    lua_pushcfunction(L, og__l_use);
    lua_setfield(L, -2, "use");
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, missing_global);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
}

static void add_table_and_math(lua_State *L) {
    lua_createtable(L, 0, 8);
    luaL_requiref(L, "table", luaopen_table, 0);
    lua_insert(L, -2);
    add_wrapped(L, TABLE);
    lua_remove(L, -2);
    seal(L);
    lua_setfield(L, -2, "table");
    luaL_requiref(L, "math", luaopen_math, 0);
    lua_createtable(L, 0, 32);
    for (int i = 0; MATH[i]; i++) {
        lua_getfield(L, -2, MATH[i]);
        lua_setfield(L, -2, MATH[i]);
    }
    lua_remove(L, -2);
    seal(L);
    lua_setfield(L, -2, "math");
}

void og__open_sandbox(lua_State *L) {
    og_hook_vm *vm = og__vm(L);
    push_base_functions(L);
    push_string_lib(L);
    seal(L);
    lua_setfield(L, -2, "string");
    add_table_and_math(L);
    og__open_re(L);
    seal(L);
    lua_setfield(L, -2, "re");
    vm->base = luaL_ref(L, LUA_REGISTRYINDEX);
    /* what the libraries left behind: nothing reaches it, nothing needs it */
    lua_pushnil(L);
    lua_setfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_newtable(L);
    lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
}
