/* Lua files: found once, parsed once per VM, run once per call.
 *
 * What is cached is the parsed main function. Each call runs it anew over that call's
 * globals, so that no file-level variable carries anything from one request to another.
 */
#include "graph/hook/internal.h"

#include <stdio.h>
#include <string.h>

#include "nodes/load/json.h"

static int good_name(const char *name) {
    size_t n =
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    return n > 0 && n <= OG__MAX_NAME && !name[n];
}

/* Text of the first dir's file, in vm->scratch. */
static const char *read_file(lua_State *L, const char *name, size_t *len) {
    og_hook_vm *vm = og__vm(L);
    const og_hook_env *env = vm->env;
    for (int i = 0; i < env->n_dirs; i++) {
        char path[4096];
        int n = snprintf(path, sizeof path, "%s/%s.lua", env->dirs[i], name);
        if (n < 0 || (size_t)n >= sizeof path) continue;
        og_err err = OG_ERR_INIT;
        char *text = NULL;
        int rc = og_file_read(path, OG__MAX_FILE, &text, len, &err);
        if (rc == OG_ENOENT) continue;
        if (rc < 0) {
            og__fatal(L, rc, "%s", err.msg);
            return NULL;
        }
        vm->scratch = text;
        return text;
    }
    og__fatal(L, OG_ENOENT, "there is no %s.lua in the folders of Lua files", name);
    return NULL;
}

/* Push the main function of a file. */
static void push_main(lua_State *L, const char *name) {
    og_hook_vm *vm = og__vm(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, vm->files);
    if (lua_getfield(L, -1, name) == LUA_TFUNCTION) {
        lua_remove(L, -2);
        return;
    }
    lua_pop(L, 1);
    size_t len = 0;
    const char *text = read_file(L, name, &len);
    og__charge(L, (int64_t)len / 4);
    char chunk[OG__MAX_NAME + 8];
    snprintf(chunk, sizeof chunk, "@%s.lua", name);
    int status = luaL_loadbufferx(L, text, len, chunk, "t");
    og_free(vm->scratch);
    vm->scratch = NULL;
    if (status == LUA_ERRMEM) og__fatal_memory(L);
    if (status != LUA_OK) lua_error(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, name);
    lua_remove(L, -2);
}

/* "a uses b uses a" */
static void chain_error(lua_State *L, const char *name, const char *what) {
    og_hook_vm *vm = og__vm(L);
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (int i = 0; i < vm->n_chain; i++) {
        luaL_addstring(&b, vm->chain[i]);
        luaL_addstring(&b, " uses ");
    }
    luaL_addstring(&b, name);
    luaL_pushresult(&b);
    luaL_error(L, "%s: %s", what, lua_tostring(L, -1));
}

void og__use(lua_State *L, const char *name) {
    og_hook_vm *vm = og__vm(L);
    luaL_checkstack(L, 10, NULL);
    if (!good_name(name)) {
        luaL_error(L, "use: '%s' is no file name (letters, digits and _, at most %d)",
                   name, OG__MAX_NAME);
        return;
    }
    lua_rawgeti(L, LUA_REGISTRYINDEX, vm->modules);
    if (lua_getfield(L, -1, name) != LUA_TNIL) {
        lua_remove(L, -2);
        return;
    }
    lua_pop(L, 1);
    for (int i = 0; i < vm->n_chain; i++)
        if (!strcmp(vm->chain[i], name))
            chain_error(L, name, "files use each other in a circle");
    if (vm->n_chain == OG__MAX_USE)
        chain_error(L, name, "too many files in a row (limit is 16)");
    push_main(L, name);
    lua_rawgeti(L, LUA_REGISTRYINDEX, vm->globals);
    if (!lua_setupvalue(L, -2, 1)) lua_pop(L, 1);
    vm->chain[vm->n_chain++] = name;
    lua_call(L, 0, 1);
    vm->n_chain--;
    if (lua_type(L, -1) != LUA_TTABLE) {
        luaL_error(L, "%s.lua must return a table of functions, not %s", name,
                   og__what(L, -1));
        return;
    }
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, name);
    lua_remove(L, -2);
}

int og__l_use(lua_State *L) {
    og__use(L, luaL_checkstring(L, 1));
    return 1;
}

void og__function(lua_State *L, const char *file, const char *function) {
    og__use(L, file);
    if (lua_getfield(L, -1, function) == LUA_TFUNCTION) {
        lua_remove(L, -2);
        return;
    }
    lua_pop(L, 1);
    og__near near;
    char hint[128];
    og__near_init(&near, function);
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
        if (lua_type(L, -2) == LUA_TSTRING && lua_isfunction(L, -1))
            og__near_add(&near, lua_tostring(L, -2));
    og__fatal(L, OG_ESPEC, "%s.lua has no function '%s'%s", file, function,
              og__near_text(&near, hint, sizeof hint));
}
