/* ctx.tables.NAME(x): rows of a table of the receiving arch. */
#include "graph/hook/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Push a bound of a table: a number as it is, "$key" from the arch's config section; 0
 * where there is none or no section to look into. */
static void push_bound(lua_State *L, const char *table, const char *text) {
    const og_hook_env *env = og__vm(L)->env;
    if (!text || (text[0] == '$' && !env->section)) {
        lua_pushinteger(L, 0);
        return;
    }
    if (text[0] != '$') {
        lua_pushinteger(L, strtoll(text, NULL, 10));
        return;
    }
    const json_t *j = og_cfg_find(env->section, text + 1);
    if (!json_is_integer(j))
        luaL_error(L, "table '%s': the config has no number '%s'", table, text + 1);
    lua_pushinteger(L, json_integer_value(j));
}

typedef struct lookup {
    const og_table_desc *desc;
    uint16_t table;
    int64_t count, width;
} lookup;

static void check_id(lua_State *L, const lookup *t, lua_Integer id) {
    if (id < 0 || (t->count > 0 && id >= t->count))
        luaL_error(L, "table '%s': id %I is out of range (it has %I)", t->desc->name, id,
                   (lua_Integer)t->count);
    if (id > INT32_MAX)
        luaL_error(L, "table '%s': id %I is out of range", t->desc->name, id);
}

static void wrong_argument(lua_State *L, const lookup *t, const char *got) {
    static const char *const wants[] = {"an id, a list of ids or ids", "codes",
                                        "vectors"};
    luaL_error(L, "table '%s' takes %s, got %s", t->desc->name, wants[t->desc->arg], got);
}

static int from_id(lua_State *L, const lookup *t) {
    lua_Integer id = lua_tointeger(L, 1);
    check_id(L, t, id);
    og__rows *r = og__rows_new(L, 1, 1, 0, 0);
    r->terms[0] = (og_term){t->table, OG_NO_SOURCE, (int32_t)id};
    r->off[1] = 1;
    return 1;
}

static int from_list(lua_State *L, const lookup *t) {
    lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
    if (n > OG_HOOK_MAX_ROWS)
        return luaL_error(L, "table '%s': more than %d ids", t->desc->name,
                          OG_HOOK_MAX_ROWS);
    og__rows *r = og__rows_new(L, (int32_t)n, n, 0, 0);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, 1, i);
        if (!lua_isinteger(L, -1))
            return luaL_error(L, "table '%s': element %I is a %s, not an id",
                              t->desc->name, i, og__what(L, -1));
        check_id(L, t, lua_tointeger(L, -1));
        r->terms[i - 1] =
            (og_term){t->table, OG_NO_SOURCE, (int32_t)lua_tointeger(L, -1)};
        r->off[i] = (int32_t)i;
        lua_pop(L, 1);
    }
    return 1;
}

static void check_kind(lua_State *L, const lookup *t, const og__seq *s) {
    static const og_hook_kind kinds[] = {OG_HOOK_IDS, OG_HOOK_CODES, OG_HOOK_VECTOR};
    char got[64];
    if (s->kind != kinds[t->desc->arg]) wrong_argument(L, t, og__kind_name(s->kind));
    if (t->desc->arg == OG_TABLE_ID || !t->width || !s->width || t->width == s->width)
        return;
    snprintf(got, sizeof got, "width %d", (int)s->width);
    luaL_error(L, "table '%s' takes %s of width %I, got %s", t->desc->name,
               og__kind_name(s->kind), (lua_Integer)t->width, got);
}

static int from_seq(lua_State *L, const lookup *t, const og__seq *s) {
    check_kind(L, t, s);
    int open = s->open_source >= 0;
    og__rows *r = og__rows_new(L, s->n, s->n, 0, open);
    int32_t at = 0;
    for (int32_t k = 0; k < s->n_runs; k++) {
        const og__run *run = &s->runs[k];
        for (int32_t i = 0; i < run->n; i++, at++) {
            if (run->source < 0) {
                int32_t id = s->ids[run->from + i];
                check_id(L, t, id);
                r->terms[at] = (og_term){t->table, OG_NO_SOURCE, id};
            } else {
                r->terms[at] = (og_term){t->table, (uint16_t)run->source, run->from + i};
            }
            r->off[at + 1] = at + 1;
        }
    }
    if (!open) return 1;
    r->open[0] = (og_open_term){{t->table, (uint16_t)s->open_source, s->open_at}, 1};
    r->at = s->n;
    r->source = s->open_source;
    return 1;
}

/* Upvalues: number of the table, count, width. */
static int call_table(lua_State *L) {
    int k = (int)lua_tointeger(L, lua_upvalueindex(1));
    lookup t = {&og__vm(L)->env->to->tables[k], (uint16_t)k,
                lua_tointeger(L, lua_upvalueindex(2)),
                lua_tointeger(L, lua_upvalueindex(3))};
    luaL_checkany(L, 1);
    const og__seq *s = og__seq_at(L, 1);
    if (s) return from_seq(L, &t, s);
    if (t.desc->arg == OG_TABLE_ID) {
        if (lua_isinteger(L, 1)) return from_id(L, &t);
        if (lua_type(L, 1) == LUA_TTABLE) return from_list(L, &t);
    }
    wrong_argument(L, &t, og__what(L, 1));
    return 0;
}

void og__push_table(lua_State *L, const char *name) {
    const og_hook_env *env = og__vm(L)->env;
    const og_table_desc *tables = env->to ? env->to->tables : NULL;
    og__near near;
    char hint[128];
    og__near_init(&near, name);
    for (int k = 0; tables && tables[k].name; k++) {
        og__near_add(&near, tables[k].name);
        if (strcmp(tables[k].name, name)) continue;
        lua_pushinteger(L, k);
        push_bound(L, name, tables[k].count);
        push_bound(L, name, tables[k].width);
        lua_pushcclosure(L, call_table, 3);
        return;
    }
    if (!tables)
        luaL_error(L, "stage '%s' has no tables", env->stage ? env->stage : "?");
    else
        luaL_error(L, "arch '%s' has no table '%s'%s", env->to->name, name,
                   og__near_text(&near, hint, sizeof hint));
}
