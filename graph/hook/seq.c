/* Sequences: what a source holds, or what ctx:tokenize gave, cut and joined.
 *
 * A sequence is a list of runs over sources and constant ids, with an optional open tail.
 * Only constant ids can be read. Immutable; one userdata block each.
 */
#include "graph/hook/internal.h"

#include <stdio.h>
#include <string.h>

const char *og__kind_name(og_hook_kind kind) {
    static const char *const names[] = {"text",     "ids",   "codes", "vectors",
                                        "messages", "media", "list"};
    return names[kind];
}

og__seq *og__seq_new(lua_State *L, og_hook_kind kind, int32_t n_runs, int32_t n_ids,
                     int32_t n_spans) {
    size_t runs = sizeof(og__seq), ids = runs + (size_t)n_runs * sizeof(og__run);
    size_t spans = ids + (size_t)n_ids * sizeof(int32_t);
    size_t size = spans + (size_t)n_spans * sizeof(og_row_span);
    og__charge(L, 4 + (int64_t)(size / 64));
    char *block = lua_newuserdatauv(L, size, 0);
    memset(block, 0, sizeof(og__seq));
    og__seq *s = (og__seq *)(void *)block;
    s->serial = og__vm(L)->serial;
    s->kind = kind;
    s->open_source = -1;
    s->n_runs = n_runs;
    s->n_ids = n_ids;
    s->n_spans = n_spans;
    s->runs = (og__run *)(void *)(block + runs);
    s->ids = (int32_t *)(void *)(block + ids);
    s->spans = (og_row_span *)(void *)(block + spans);
    luaL_setmetatable(L, OG__SEQ);
    return s;
}

og__seq *og__seq_ids(lua_State *L, const int32_t *ids, int32_t n) {
    og__seq *s = og__seq_new(L, OG_HOOK_IDS, 1, n, 0);
    if (n) memcpy(s->ids, ids, (size_t)n * sizeof *ids);
    s->runs[0] = (og__run){-1, 0, n};
    s->n = n;
    return s;
}

void og__seq_source(lua_State *L, int32_t source, int32_t base,
                    const og_hook_source *src) {
    int readable = src->kind == OG_HOOK_IDS && !src->open;
    og__seq *s = og__seq_new(L, src->kind, src->open ? 0 : 1, readable ? src->count : 0,
                             readable ? src->n_spans : 0);
    s->width = src->width;
    memcpy(s->grid, src->grid, sizeof s->grid);
    s->seconds = src->seconds;
    if (src->open) {
        s->open_source = source;
        s->open_at = base;
        return;
    }
    s->n = src->count;
    s->runs[0] = readable ? (og__run){-1, 0, s->n} : (og__run){source, base, s->n};
    if (s->n_ids) memcpy(s->ids, src->ids, (size_t)s->n_ids * sizeof *s->ids);
    if (s->n_spans) memcpy(s->spans, src->spans, (size_t)s->n_spans * sizeof *s->spans);
}

og__seq *og__seq_at(lua_State *L, int i) {
    og__seq *s = og__test(L, i, OG__SEQ);
    if (s && s->serial != og__vm(L)->serial)
        luaL_error(L,
                   "a sequence of another call: keep numbers and strings in ctx.state");
    return s;
}

static og__seq *check_seq(lua_State *L, int i) {
    og__seq *s = og__seq_at(L, i);
    if (!s) luaL_typeerror(L, i, "sequence");
    return s;
}

void og__range(lua_State *L, int32_t n, int32_t *from, int32_t *to) {
    lua_Integer i = luaL_checkinteger(L, 2), j = luaL_optinteger(L, 3, -1);
    if (i < 0) i = -i > n ? 1 : n + i + 1;
    if (i == 0) i = 1;
    if (j < 0) j = -j > n ? 0 : n + j + 1;
    if (j > n) j = n;
    if (i > j) i = 1, j = 0;
    *from = (int32_t)i - 1;
    *to = (int32_t)j;
}

/* ---- parts ----------------------------------------------------------------------- */

/* Copy items [from, to) of the closed part behind the runs of out; ids behind its ids. */
static void add_items(og__seq *out, const og__seq *s, int32_t from, int32_t to) {
    int32_t at = 0;
    for (int32_t r = 0; r < s->n_runs && at < to; at += s->runs[r++].n) {
        int32_t a = from > at ? from - at : 0;
        int32_t b = to - at < s->runs[r].n ? to - at : s->runs[r].n;
        if (a >= b) continue;
        og__run run = {s->runs[r].source, s->runs[r].from + a, b - a};
        if (run.source < 0) {
            memcpy(out->ids + out->n_ids, s->ids + run.from,
                   (size_t)run.n * sizeof *s->ids);
            run.from = out->n_ids;
            out->n_ids += run.n;
        }
        out->runs[out->n_runs++] = run;
        out->n += run.n;
    }
}

static og__seq *like(lua_State *L, const og__seq *s, int32_t n_runs, int32_t n_ids) {
    og__seq *out = og__seq_new(L, s->kind, n_runs, n_ids, 0);
    out->n_runs = out->n_ids = 0;
    out->width = s->width;
    return out;
}

static int32_t ids_within(const og__seq *s, int32_t from, int32_t to) {
    return s->n_ids < to - from ? s->n_ids : to - from;
}

static int sub_open(lua_State *L, const og__seq *s) {
    lua_Integer i = luaL_checkinteger(L, 2), j = luaL_optinteger(L, 3, 0);
    int closed = !lua_isnoneornil(L, 3);
    if (i < 0 || j < 0)
        return luaL_error(L, "sub: positions of an open sequence count from its start");
    if (i == 0) i = 1;
    if (i > OG_HOOK_MAX_ROWS || j > OG_HOOK_MAX_ROWS)
        return luaL_error(L, "sub: position beyond %d", OG_HOOK_MAX_ROWS);
    int32_t from = (int32_t)i - 1, to = closed ? (int32_t)j : s->n;
    int32_t known = to < s->n ? to : s->n;
    int32_t skip = from > s->n ? from - s->n : 0; /* open items left out in front */
    if (s->open_at > OG__MAX_ITEM - OG_HOOK_MAX_ROWS)
        return luaL_error(L, "sub: item beyond %d", OG__MAX_ITEM);
    og__seq *out =
        like(L, s, s->n_runs + 1, from < known ? ids_within(s, from, known) : 0);
    if (from < known) add_items(out, s, from, known);
    if (!closed) {
        out->open_source = s->open_source;
        out->open_at = s->open_at + skip;
        return 1;
    }
    int32_t first = from > s->n ? from : s->n;
    if (to > first) {
        out->runs[out->n_runs++] =
            (og__run){s->open_source, s->open_at + skip, to - first};
        out->n += to - first;
    }
    return 1;
}

static int seq_sub(lua_State *L) {
    og__seq *s = check_seq(L, 1);
    if (s->open_source >= 0) return sub_open(L, s);
    int32_t from, to;
    og__range(L, s->n, &from, &to);
    og__seq *out = like(L, s, s->n_runs, ids_within(s, from, to));
    add_items(out, s, from, to);
    if (from == 0 && to == s->n) {
        memcpy(out->grid, s->grid, sizeof out->grid);
        out->seconds = s->seconds;
    }
    return 1;
}

static int seq_concat(lua_State *L) {
    og__seq *a = og__seq_at(L, 1), *b = og__seq_at(L, 2);
    if (!a || !b || a->kind != b->kind || (a->width && b->width && a->width != b->width))
        return luaL_error(L, "`..` wants the same kind on both sides, got %s .. %s",
                          og__what(L, 1), og__what(L, 2));
    if (a->open_source >= 0)
        return luaL_error(
            L, "nothing can follow an open sequence (open rows can be followed)");
    if ((int64_t)a->n + b->n > OG_HOOK_MAX_ROWS)
        return luaL_error(L, "`..`: more than %d items", OG_HOOK_MAX_ROWS);
    og__seq *out = like(L, a, a->n_runs + b->n_runs, a->n_ids + b->n_ids);
    if (!out->width) out->width = b->width;
    add_items(out, a, 0, a->n);
    add_items(out, b, 0, b->n);
    out->open_source = b->open_source;
    out->open_at = b->open_at;
    return 1;
}

/* ---- reading --------------------------------------------------------------------- */

static int push_item(lua_State *L, const og__seq *s, lua_Integer k) {
    if (s->kind != OG_HOOK_IDS)
        return luaL_error(L, "items of %s cannot be read, only ids can",
                          og__kind_name(s->kind));
    if (k < 0 && s->open_source < 0) k += s->n + 1;
    if (k < 1) return lua_pushnil(L), 1;
    if (k > s->n && s->open_source < 0) return lua_pushnil(L), 1;
    int32_t at = 0;
    for (int32_t r = 0; r < s->n_runs; at += s->runs[r++].n) {
        if (k > at + s->runs[r].n) continue;
        if (s->runs[r].source >= 0) break;
        lua_pushinteger(L, s->ids[s->runs[r].from + (int32_t)k - 1 - at]);
        return 1;
    }
    return luaL_error(L, "item %I is still to be decoded and cannot be read", k);
}

static int seq_find(lua_State *L) {
    og__seq *s = check_seq(L, 1);
    lua_Integer id = luaL_checkinteger(L, 2), start = luaL_optinteger(L, 3, 1);
    if (s->kind != OG_HOOK_IDS)
        return luaL_error(L, "items of %s cannot be read, only ids can",
                          og__kind_name(s->kind));
    if (start < 0 && s->open_source < 0) start = -start > s->n ? 1 : s->n + start + 1;
    og__charge(L, 1 + s->n / 16);
    int32_t at = 0;
    for (int32_t r = 0; r < s->n_runs; at += s->runs[r++].n) {
        const og__run *run = &s->runs[r];
        if (run->source >= 0) continue;
        for (int32_t k =
                 start - 1 > at
                     ? (int32_t)(start - 1 - at < run->n ? start - 1 - at : run->n)
                     : 0;
             k < run->n; k++) {
            if (s->ids[run->from + k] != id) continue;
            lua_pushinteger(L, at + k + 1);
            return 1;
        }
    }
    return lua_pushnil(L), 1;
}

static void push_grid(lua_State *L, const int32_t *grid, float seconds) {
    if (!grid[0] && !grid[1] && !grid[2]) {
        lua_pushnil(L);
        return;
    }
    lua_createtable(L, 4, 0);
    for (int i = 0; i < 3; i++) {
        lua_pushinteger(L, grid[i]);
        lua_rawseti(L, -2, i + 1);
    }
    if (seconds == 0) return;
    lua_pushnumber(L, seconds);
    lua_rawseti(L, -2, 4);
}

/* Append {from, to, kind, grid} (positions from 1, inclusive) to the list at -1. */
static void add_span(lua_State *L, int32_t from, int32_t to, const og_row_span *span) {
    lua_createtable(L, 0, 4);
    lua_pushinteger(L, from);
    lua_setfield(L, -2, "from");
    lua_pushinteger(L, to);
    lua_setfield(L, -2, "to");
    lua_pushstring(L, span ? span->kind : "text");
    lua_setfield(L, -2, "kind");
    if (span && to - from + 1 == span->to - span->from) {
        push_grid(L, span->grid, span->seconds);
        lua_setfield(L, -2, "grid");
    }
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
}

static int seq_spans(lua_State *L) {
    og__seq *s = check_seq(L, 1);
    int32_t from = 0, to = s->n;
    if (s->kind != OG_HOOK_IDS || s->open_source >= 0)
        return luaL_error(L, "spans: only a prompt's ids have them");
    if (!lua_isnoneornil(L, 2)) og__range(L, s->n, &from, &to);
    og__charge(L, s->n_spans);
    lua_newtable(L);
    for (int32_t k = 0; k < s->n_spans; k++) {
        const og_row_span *sp = &s->spans[k];
        int32_t a = sp->from > from ? sp->from : from, b = sp->to < to ? sp->to : to;
        if (a >= b) continue;
        if (a > from) add_span(L, from + 1, a, NULL);
        add_span(L, a + 1, b, sp);
        from = b;
    }
    if (from < to) add_span(L, from + 1, to, NULL);
    return 1;
}

/* ---- metatable ------------------------------------------------------------------- */

static const luaL_Reg METHODS[] = {
    {"sub", seq_sub}, {"find", seq_find}, {"spans", seq_spans}, {NULL, NULL}};

static int seq_index(lua_State *L) {
    og__seq *s = check_seq(L, 1);
    if (lua_isinteger(L, 2)) return push_item(L, s, lua_tointeger(L, 2));
    const char *key = luaL_checkstring(L, 2);
    if (!strcmp(key, "grid")) return push_grid(L, s->grid, s->seconds), 1;
    if (!strcmp(key, "open")) return lua_pushboolean(L, s->open_source >= 0), 1;
    og__near near;
    char hint[128];
    og__near_init(&near, key);
    og__near_add(&near, "grid");
    og__near_add(&near, "open");
    for (const luaL_Reg *m = METHODS; m->name; m++) {
        if (!strcmp(key, m->name)) return lua_pushcfunction(L, m->func), 1;
        og__near_add(&near, m->name);
    }
    return luaL_error(L, "a sequence has no '%s'%s", key,
                      og__near_text(&near, hint, sizeof hint));
}

static int seq_len(lua_State *L) {
    og__seq *s = check_seq(L, 1);
    if (s->open_source >= 0)
        return luaL_error(L, "the length of an open sequence is not known");
    lua_pushinteger(L, s->n);
    return 1;
}

static int seq_add(lua_State *L) {
    return luaL_error(L, "`+` adds rows, got %s + %s: look sequences up in a table first",
                      og__what(L, 1), og__what(L, 2));
}

static int seq_set(lua_State *L) {
    return luaL_error(L, "a sequence cannot be changed");
}

void og__open_seq(lua_State *L) {
    static const luaL_Reg meta[] = {{"__index", seq_index},   {"__len", seq_len},
                                    {"__concat", seq_concat}, {"__add", seq_add},
                                    {"__newindex", seq_set},  {NULL, NULL}};
    og__meta(L, OG__SEQ, meta);
}
