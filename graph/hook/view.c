/* JSON as read-only Lua values: ctx.cfg, ctx.request, messages and media; and `src`.
 *
 * Objects and arrays are wrapped, never copied: a config may be large and a hook reads a
 * few keys of it. A view is only valid in the call that made it. / */
#include "graph/hook/internal.h"

#include <stdio.h>
#include <string.h>

typedef struct view {
    uint32_t serial;
    og__view_mode mode;
    const json_t *json;
    char path[]; /* "talker.codec_language_id", for messages */
} view;

void og__push_json(lua_State *L, const json_t *j, og__view_mode mode, const char *path) {
    switch (j ? json_typeof(j) : JSON_NULL) {
    case JSON_NULL: lua_pushnil(L); return;
    case JSON_TRUE: lua_pushboolean(L, 1); return;
    case JSON_FALSE: lua_pushboolean(L, 0); return;
    case JSON_INTEGER: lua_pushinteger(L, json_integer_value(j)); return;
    case JSON_REAL: lua_pushnumber(L, json_real_value(j)); return;
    case JSON_STRING:
        og__charge(L, 1 + (int64_t)json_string_length(j) / 16);
        lua_pushlstring(L, json_string_value(j), json_string_length(j));
        return;
    case JSON_OBJECT:
    case JSON_ARRAY: break;
    }
    size_t n = strlen(path) + 1;
    view *v = lua_newuserdatauv(L, sizeof *v + n, 0);
    *v = (view){
        og__vm(L)->serial,
        mode,
        j,
    };
    memcpy(v->path, path, n);
    luaL_setmetatable(L, OG__VIEW);
}

static view *check_view(lua_State *L, int i) {
    view *v = og__test(L, i, OG__VIEW);
    if (!v)
        luaL_typeerror(L, i, "view");
    else if (v->serial != og__vm(L)->serial)
        luaL_error(L, "'%s' of another call: keep numbers and strings in ctx.state",
                   v->path);
    return v;
}

/* Push the value at a key, below v. */
static void push_child(lua_State *L, const view *v, const json_t *j, const char *key) {
    char path[256];
    og__view_mode mode = v->mode == OG__VIEW_REQUEST ? OG__VIEW_PLAIN : v->mode;
    snprintf(path, sizeof path, "%s.%s", v->path, key);
    og__push_json(L, j, mode, path);
}

static int missing_key(lua_State *L, const view *v, const char *key) {
    const og_hook_env *env = og__vm(L)->env;
    og__near near;
    char hint[128];
    og__near_init(&near, key);
    if (v->mode == OG__VIEW_REQUEST) {
        for (int i = 0; i < env->n_fields; i++) {
            if (!strcmp(env->fields[i], key)) return lua_pushnil(L), 1;
            og__near_add(&near, env->fields[i]);
        }
        return luaL_error(L, "the request has no field '%s'%s", key,
                          og__near_text(&near, hint, sizeof hint));
    }
    json_t *j = (json_t *)v->json;
    for (void *it = json_object_iter(j); it; it = json_object_iter_next(j, it))
        og__near_add(&near, json_object_iter_key(it));
    og__charge(L, 4 * (int64_t)json_object_size(j));
    return luaL_error(L, "the config has no '%s.%s'%s", v->path, key,
                      og__near_text(&near, hint, sizeof hint));
}

static int view_get(lua_State *L) {
    view *v = check_view(L, 1);
    luaL_checkany(L, 2);
    if (json_is_array(v->json) || lua_type(L, 2) != LUA_TSTRING) return lua_pushnil(L), 1;
    const char *key = lua_tostring(L, 2);
    push_child(L, v, json_object_get(v->json, key), key);
    return 1;
}

static int index_array(lua_State *L, const view *v) {
    char key[32];
    if (!lua_isinteger(L, 2)) return lua_pushnil(L), 1;
    lua_Integer i = lua_tointeger(L, 2);
    if (i < 1 || i > (lua_Integer)json_array_size(v->json)) return lua_pushnil(L), 1;
    snprintf(key, sizeof key, "%d", (int)i);
    push_child(L, v, json_array_get(v->json, (size_t)i - 1), key);
    return 1;
}

static int view_index(lua_State *L) {
    view *v = check_view(L, 1);
    if (v->mode != OG__VIEW_REQUEST && lua_type(L, 2) == LUA_TSTRING &&
        !strcmp(lua_tostring(L, 2), "get"))
        return lua_pushcfunction(L, view_get), 1;
    if (json_is_array(v->json)) return index_array(L, v);
    if (lua_type(L, 2) != LUA_TSTRING) {
        if (v->mode == OG__VIEW_PLAIN) return lua_pushnil(L), 1;
        return luaL_error(L, "'%s': keys are strings, got %s", v->path, og__what(L, 2));
    }
    const char *key = lua_tostring(L, 2);
    const json_t *j = json_object_get(v->json, key);
    if (!j && v->mode != OG__VIEW_PLAIN) return missing_key(L, v, key);
    push_child(L, v, j, key);
    return 1;
}

static int view_len(lua_State *L) {
    view *v = check_view(L, 1);
    lua_pushinteger(L,
                    (lua_Integer)(json_is_array(v->json) ? json_array_size(v->json) : 0));
    return 1;
}

static int view_next(lua_State *L) {
    view *v = check_view(L, 1);
    json_t *j = (json_t *)v->json;
    og__charge(L, 1);
    if (json_is_array(j)) {
        lua_Integer i = luaL_optinteger(L, 2, 0) + 1;
        lua_settop(L, 1);
        lua_pushinteger(L, i);
        index_array(L, v);
        return lua_isnil(L, -1) ? 1 : (lua_pushinteger(L, i), lua_insert(L, -2), 2);
    }
    void *it =
        lua_isnoneornil(L, 2)
            ? json_object_iter(j)
            : json_object_iter_next(j, json_object_iter_at(j, luaL_checkstring(L, 2)));
    for (; it && json_is_null(json_object_iter_value(it));
         it = json_object_iter_next(j, it)) {
    }
    if (!it) return lua_pushnil(L), 1;
    lua_pushstring(L, json_object_iter_key(it));
    push_child(L, v, json_object_iter_value(it), json_object_iter_key(it));
    return 2;
}

static int view_pairs(lua_State *L) {
    check_view(L, 1);
    lua_pushcfunction(L, view_next);
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

static int view_set(lua_State *L) {
    return luaL_error(L, "'%s' is read-only", check_view(L, 1)->path);
}

/* ---- src ------------------------------------------------------------------------- */

static int32_t source_items(const og_hook_source *s) {
    int64_t n = s->kind == OG_HOOK_LIST ? 0 : s->count;
    for (int32_t i = 0; s->kind == OG_HOOK_LIST && i < s->n_items; i++)
        n += source_items(&s->items[i]);
    return n > OG__MAX_ITEM ? OG__MAX_ITEM : (int32_t)n;
}

/* Push what a source is in Lua. Items of lists are counted through from base. */
static void push_source(lua_State *L, int32_t k, int32_t base, const og_hook_source *s,
                        const char *name) {
    luaL_checkstack(L, 4, "lists of lists");
    if (!s->present) {
        lua_pushnil(L);
        return;
    }
    switch (s->kind) {
    case OG_HOOK_TEXT: lua_pushlstring(L, s->text ? s->text : "", s->text_len); break;
    case OG_HOOK_MESSAGES:
    case OG_HOOK_MEDIA: og__push_json(L, s->json, OG__VIEW_PLAIN, name); break;
    case OG_HOOK_IDS:
    case OG_HOOK_CODES:
    case OG_HOOK_VECTOR: og__seq_source(L, k, base, s); break;
    case OG_HOOK_LIST:
        lua_createtable(L, s->n_items, 0);
        for (int32_t i = 0; i < s->n_items; i++) {
            push_source(L, k, base, &s->items[i], name);
            lua_rawseti(L, -2, i + 1);
            base += source_items(&s->items[i]);
        }
    }
}

void og__push_sources(lua_State *L) {
    og_hook_vm *vm = og__vm(L);
    lua_newuserdatauv(L, 0, 1);
    lua_createtable(L, 0, vm->env->n_sources);
    for (int i = 0; i < vm->env->n_sources; i++) {
        push_source(L, i, 0, &vm->call->sources[i], vm->env->sources[i]);
        lua_setfield(L, -2, vm->env->sources[i]);
    }
    lua_setiuservalue(L, -2, 1);
    luaL_setmetatable(L, OG__SRC);
}

static int src_index(lua_State *L) {
    luaL_checkudata(L, 1, OG__SRC);
    const og_hook_env *env = og__vm(L)->env;
    const char *key = luaL_checkstring(L, 2);
    lua_getiuservalue(L, 1, 1);
    lua_pushvalue(L, 2);
    if (lua_rawget(L, -2) != LUA_TNIL) return 1;
    og__near near;
    char hint[128];
    og__near_init(&near, key);
    for (int i = 0; i < env->n_sources; i++) {
        if (!strcmp(env->sources[i], key)) return 1;
        og__near_add(&near, env->sources[i]);
    }
    for (int i = 0; i < env->n_absent; i++)
        if (!strcmp(env->absent[i], key)) return 1;
    return luaL_error(L, "the edge has no source '%s'%s", key,
                      og__near_text(&near, hint, sizeof hint));
}

static int src_set(lua_State *L) {
    return luaL_error(L, "src is read-only");
}

void og__open_view(lua_State *L) {
    static const luaL_Reg meta[] = {{"__index", view_index},
                                    {"__len", view_len},
                                    {"__pairs", view_pairs},
                                    {"__newindex", view_set},
                                    {NULL, NULL}};
    static const luaL_Reg src[] = {
        {"__index", src_index}, {"__newindex", src_set}, {NULL, NULL}};
    og__meta(L, OG__VIEW, meta);
    og__meta(L, OG__SRC, src);
}
