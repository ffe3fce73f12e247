/* ctx.state: a plain Lua table per request.
 *
 * It outlives the call, so it may hold plain data only: a function would keep a whole
 * call alive, and rows or sequences mean nothing in another one. What it holds is
 * measured after each call that touched it; the request that keeps too much fails, not
 * its neighbours. / */
#include "graph/hook/internal.h"

#include <string.h>

og_hook_state *og_hook_state_create(void) {
    og_hook_state *st = og_calloc(1, sizeof *st);
    if (!st) return NULL;
    st->ref = LUA_NOREF;
    st->worker = -1;
    return st;
}

static int unref(lua_State *L) {
    luaL_unref(L, LUA_REGISTRYINDEX, (int)lua_tointeger(L, 1));
    return 0;
}

void og_hook_vm_release(og_hook_vm *vm, og_hook_state *st) {
    if (!st) return;
    if (st->vm == vm && st->ref != LUA_NOREF) {
        lua_pushcfunction(vm->L, unref);
        lua_pushinteger(vm->L, st->ref);
        if (lua_pcall(vm->L, 1, 0, 0) != LUA_OK) lua_settop(vm->L, 0);
    }
    og_free(st);
}

void og__push_state(lua_State *L) {
    og_hook_vm *vm = og__vm(L);
    og_hook_state *st = vm->call->request ? vm->call->request->state : NULL;
    if (vm->state != LUA_NOREF) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, vm->state);
        return;
    }
    if (st && st->vm && st->vm != vm) {
        luaL_error(L, "ctx.state belongs to another worker");
        return;
    }
    if (st && st->vm) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref);
    } else {
        lua_newtable(L);
        if (st) {
            lua_pushvalue(L, -1);
            st->ref = luaL_ref(L, LUA_REGISTRYINDEX);
            st->vm = vm;
        }
    }
    lua_pushvalue(L, -1);
    vm->state = luaL_ref(L, LUA_REGISTRYINDEX);
}

#define NODE_BYTES 40 /* about what an entry of a Lua table takes */

/* Bytes of the table on top; `seen` at stack index 1 holds the tables counted already. */
static size_t measure(lua_State *L, int depth) {
    size_t bytes = 56;
    luaL_checkstack(L, 6, NULL);
    if (depth > OG__STATE_DEPTH)
        luaL_error(L, "ctx.state: tables nested deeper than %d", OG__STATE_DEPTH);
    lua_pushvalue(L, -1);
    if (lua_rawget(L, 1) != LUA_TNIL) return lua_pop(L, 1), 0;
    lua_pop(L, 1);
    lua_pushvalue(L, -1);
    lua_pushboolean(L, 1);
    lua_rawset(L, 1);
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        og__charge(L, 2);
        bytes += NODE_BYTES;
        for (int i = -2; i < 0; i++) {
            int type = lua_type(L, i);
            if (type == LUA_TSTRING) {
                bytes += lua_rawlen(L, i);
            } else if (type == LUA_TTABLE) {
                lua_pushvalue(L, i);
                bytes += measure(L, depth + 1);
                lua_pop(L, 1);
            } else if (type > LUA_TSTRING) {
                luaL_error(L,
                           "ctx.state holds %s: it keeps numbers, strings, booleans and "
                           "tables of them",
                           og__what(L, i));
            }
        }
    }
    return bytes;
}

static int check(lua_State *L) {
    og_hook_vm *vm = og__vm(L);
    lua_newtable(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, vm->state);
    size_t bytes = measure(L, 0);
    if (bytes > vm->lim.state_bytes)
        return luaL_error(L, "ctx.state holds more than %d KiB",
                          (int)(vm->lim.state_bytes >> 10));
    return 0;
}

void og__check_state(lua_State *L) {
    lua_pushcfunction(L, check);
    lua_call(L, 0, 0);
}
