/* ctx:emit and ctx:fork: from Lua values to what leaves the hook. */
#include "graph/hook/internal.h"

#include <stdio.h>
#include <string.h>

/* ---- lanes ----------------------------------------------------------------------- */

static int named_lane(lua_State *L, const char *name) {
    const og_hook_env *env = og__vm(L)->env;
    og__near near;
    char hint[128];
    og__near_init(&near, name);
    for (int i = 0; i < env->n_lanes; i++) {
        if (!strcmp(env->lanes[i], name)) return i;
        og__near_add(&near, env->lanes[i]);
    }
    return luaL_error(L, "the edge has no lane '%s'%s", name,
                      og__near_text(&near, hint, sizeof hint));
}

/* Lane at stack index i; the default when it is nil. */
static int check_lane(lua_State *L, int i) {
    og_hook_vm *vm = og__vm(L);
    if (lua_isnoneornil(L, i)) return vm->call->lane;
    if (!vm->env->numbered) {
        if (!vm->env->n_lanes) return luaL_error(L, "the edge makes no lanes");
        if (lua_type(L, i) != LUA_TSTRING)
            return luaL_error(L, "a lane is a name here, got %s", og__what(L, i));
        return named_lane(L, lua_tostring(L, i));
    }
    if (!lua_isinteger(L, i))
        return luaL_error(L, "lanes are numbered here, got %s", og__what(L, i));
    lua_Integer n = lua_tointeger(L, i);
    if (n < 1 || n > OG_HOOK_MAX_LANES)
        return luaL_error(L, "lane %I is not in 1 to %d", n, OG_HOOK_MAX_LANES);
    return (int)n - 1;
}

/* ---- building -------------------------------------------------------------------- */

/* A new emission at the end of the result, which owns it from now on. */
static og_hook_emit *add_emit(lua_State *L, og_hook_emit_kind kind) {
    og_hook_result *res = og__vm(L)->res;
    if (res->n == OG_HOOK_MAX_EMITS) {
        luaL_error(L, "ctx:emit: more than %d emissions", OG_HOOK_MAX_EMITS);
        return NULL;
    }
    if (res->n == res->cap) {
        int cap = res->cap ? 2 * res->cap : 4;
        og_hook_emit *p = og_realloc(res->emits, (size_t)cap * sizeof *p);
        if (!p) {
            og__fatal(L, OG_ENOMEM, "out of memory");
            return NULL;
        }
        res->emits = p;
        res->cap = cap;
    }
    og_hook_emit *e = &res->emits[res->n++];
    *e = (og_hook_emit){.kind = kind, .port = -1};
    return e;
}

/* One more than the highest source that a term names; 0 when all ids are known. */
static int32_t sources_named(const og__rows *r) {
    int32_t n = 0;
    for (int32_t i = 0; r->n && i < r->off[r->n]; i++)
        if (r->terms[i].source != OG_NO_SOURCE && r->terms[i].source >= n)
            n = r->terms[i].source + 1;
    for (int32_t i = 0; i < r->n_open; i++)
        if (r->open[i].term.source != OG_NO_SOURCE && r->open[i].term.source >= n)
            n = r->open[i].term.source + 1;
    return r->n_open && r->source >= n ? r->source + 1 : n;
}

static og_recipe *make_recipe(lua_State *L, const og__rows *r) {
    og_open_part part = {r->at, r->source, 0, r->n_open};
    og_recipe shape = {.n_rows = r->n,
                       .off = r->off,
                       .terms = r->terms,
                       .n_open = r->n_open > 0,
                       .open = &part,
                       .open_terms = r->open,
                       .n_spans = r->n_spans,
                       .spans = r->spans,
                       .n_sources = sources_named(r)};
    og_recipe *out = og_recipe_create(&shape, r->n_open);
    if (!out) og__fatal(L, OG_ENOMEM, "out of memory");
    return out;
}

static void add_rows(lua_State *L, const char *port, og_hook_emit *e, const og__rows *r) {
    const og_hook_env *env = og__vm(L)->env;
    if (env->max_rows > 0 && r->n > env->max_rows)
        og__fatal(L, OG_ELIMIT, "%s has %d rows, the limit of stage '%s' is %d", port,
                  (int)r->n, env->stage ? env->stage : "?", (int)env->max_rows);
    e->rows = make_recipe(L, r);
}

/* One block: the parts, then the constant ids. */
static void add_parts(lua_State *L, og_hook_emit *e, const og__seq *s) {
    int32_t n = s->n_runs + (s->open_source >= 0);
    size_t ids = (size_t)n * sizeof(og_hook_part);
    char *block = og_malloc(ids + (size_t)s->n_ids * sizeof(int32_t) + 1);
    if (!block) {
        og__fatal(L, OG_ENOMEM, "out of memory");
        return;
    }
    e->parts = (og_hook_part *)(void *)block;
    int32_t *copy = (int32_t *)(void *)(block + ids);
    if (s->n_ids) memcpy(copy, s->ids, (size_t)s->n_ids * sizeof *copy);
    for (int32_t k = 0; k < s->n_runs; k++) {
        const og__run *run = &s->runs[k];
        if (!run->n) continue;
        int constant = run->source < 0;
        e->parts[e->n_parts++] =
            (og_hook_part){run->source, constant ? 0 : run->from, run->n,
                           constant ? copy + run->from : NULL};
    }
    if (s->open_source >= 0)
        e->parts[e->n_parts++] = (og_hook_part){s->open_source, s->open_at, -1, NULL};
}

/* What a port of that type takes: "tokens" ids, "codes[..]" codes, else vectors. */
static og_hook_kind port_kind(const char *type) {
    if (!strncmp(type, "tokens", 6)) return OG_HOOK_IDS;
    if (!strncmp(type, "codes", 5)) return OG_HOOK_CODES;
    return OG_HOOK_VECTOR;
}

static void port_error(lua_State *L, const og_hook_port *p, int value) {
    const og_hook_env *env = og__vm(L)->env;
    const og_port_desc *d = &env->to->ports[p->port];
    if (d->flags & OG_PORT_ROWS)
        luaL_error(L, "port '%s' takes rows, got %s: look them up in one of ctx.tables",
                   p->name, og__what(L, value));
    else
        luaL_error(L, "port '%s' takes %s, got %s", p->name, d->type, og__what(L, value));
}

/* Options that go with every port of one ctx:emit. */
typedef struct options {
    int lane, mute;
    int32_t min_tokens, max_tokens, drop;
    const og__rows *fill;
} options;

static void emit_port(lua_State *L, const og_hook_port *p, const options *o) {
    int value = lua_gettop(L);
    const og_port_desc *d = &og__vm(L)->env->to->ports[p->port];
    const og__rows *r = og__rows_at(L, value);
    const og__seq *s = og__seq_at(L, value);
    if (!r == !!(d->flags & OG_PORT_ROWS) || (!r && !s)) port_error(L, p, value);
    if (s && s->kind != port_kind(d->type)) port_error(L, p, value);
    og_hook_emit *e = add_emit(L, r ? OG_HOOK_EMIT_ROWS : OG_HOOK_EMIT_SEQ);
    e->port = p->port;
    e->lane = o->lane;
    e->mute = o->mute;
    e->min_tokens = o->min_tokens;
    e->max_tokens = o->max_tokens;
    e->drop = o->drop;
    if (r)
        add_rows(L, p->name, e, r);
    else
        add_parts(L, e, s);
    if (o->fill && !strcmp(d->name, "feed")) e->fill = make_recipe(L, o->fill);
}

/* ---- arguments ------------------------------------------------------------------- */

static const char *const OPTIONS[] = {"lane", "fill", "limits", "drop", "mute", NULL};

static const og_hook_port *find_port(const og_hook_env *env, const char *name) {
    for (int i = 0; i < env->n_ports; i++)
        if (!strcmp(env->ports[i].name, name)) return &env->ports[i];
    return NULL;
}

static void check_key(lua_State *L) {
    const og_hook_env *env = og__vm(L)->env;
    if (lua_type(L, -2) != LUA_TSTRING) {
        luaL_error(L, "ctx:emit: keys are names of ports, got %s", og__what(L, -2));
        return;
    }
    const char *key = lua_tostring(L, -2);
    og__near near;
    char hint[128];
    og__near_init(&near, key);
    for (int i = 0; OPTIONS[i]; i++) {
        if (!strcmp(key, OPTIONS[i])) return;
        og__near_add(&near, OPTIONS[i]);
    }
    if (find_port(env, key)) return;
    for (int i = 0; i < env->n_ports; i++) og__near_add(&near, env->ports[i].name);
    luaL_error(L, "the edge has no port '%s'%s", key,
               og__near_text(&near, hint, sizeof hint));
}

/* A field of the table at t that is a count, 0 when it is missing. */
static int32_t count_field(lua_State *L, int t, const char *key) {
    int32_t out = 0;
    if (lua_getfield(L, t, key) != LUA_TNIL) {
        int is_int;
        lua_Integer n = lua_tointegerx(L, -1, &is_int);
        if (!is_int || n < 0 || n > INT32_MAX)
            luaL_error(L, "ctx:emit: %s must be a count, got %s", key, og__what(L, -1));
        out = (int32_t)n;
    }
    lua_pop(L, 1);
    return out;
}

static void read_limits(lua_State *L, options *o) {
    if (lua_getfield(L, 2, "limits") == LUA_TNIL) {
        lua_pop(L, 1);
        return;
    }
    if (!lua_istable(L, -1)) {
        luaL_error(L, "ctx:emit: limits is a table, got %s", og__what(L, -1));
        return;
    }
    int t = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, t); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
        if (strcmp(key, "min_tokens") && strcmp(key, "max_tokens"))
            luaL_error(L, "ctx:emit: limits has no '%s' (min_tokens and max_tokens)",
                       key);
    }
    o->min_tokens = count_field(L, t, "min_tokens");
    o->max_tokens = count_field(L, t, "max_tokens");
    lua_pop(L, 1);
}

static void read_fill(lua_State *L, options *o) {
    if (lua_getfield(L, 2, "fill") == LUA_TNIL) {
        lua_pop(L, 1);
        return;
    }
    const og__rows *r = og__rows_at(L, -1);
    if (!r || r->n_open || r->n != 1) {
        luaL_error(L, "ctx:emit: fill is one row, got %s",
                   r ? r->n_open ? "open rows" : "several" : og__what(L, -1));
        return;
    }
    for (int32_t k = 0; k < r->n_terms; k++)
        if (r->terms[k].source != OG_NO_SOURCE)
            luaL_error(L, "ctx:emit: fill is a row of constant ids");
    o->fill = r; /* kept alive by the argument table */
    lua_pop(L, 1);
}

static options read_options(lua_State *L) {
    options o = {0};
    lua_getfield(L, 2, "lane");
    o.lane = check_lane(L, lua_gettop(L));
    lua_getfield(L, 2, "mute");
    o.mute = lua_toboolean(L, -1);
    lua_pop(L, 2);
    o.drop = count_field(L, 2, "drop");
    read_limits(L, &o);
    read_fill(L, &o);
    return o;
}

static void check_call(lua_State *L, const char *method) {
    og_hook_vm *vm = og__vm(L);
    if (!og__test(L, 1, OG__CTX)) luaL_error(L, "call it with a colon: ctx:%s", method);
    if (vm->call->done_phase || !vm->env->n_ports)
        luaL_error(L, "ctx:%s: this hook has no ports", method);
}

int og__l_emit(lua_State *L) {
    const og_hook_env *env = og__vm(L)->env;
    int ports = 0;
    check_call(L, "emit{...}");
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) check_key(L);
    options o = read_options(L);
    int feeds = 0;
    for (int i = 0; i < env->n_ports;
         i++) { /* in the edge's order, whatever the table's is */
        const og_hook_port *p = &env->ports[i];
        if (lua_getfield(L, 2, p->name) != LUA_TNIL) {
            emit_port(L, p, &o);
            feeds += !strcmp(env->to->ports[p->port].name, "feed");
            ports++;
        }
        lua_pop(L, 1);
    }
    if (o.fill && !feeds) return luaL_error(L, "ctx:emit: fill belongs to a feed port");
    if (!ports) return luaL_error(L, "ctx:emit: no port given");
    return 0;
}

int og__l_fork(lua_State *L) {
    check_call(L, "fork(lane)");
    luaL_checkany(L, 2);
    int lane = check_lane(L, 2), from = check_lane(L, 3);
    if (lane == from) return luaL_error(L, "ctx:fork: a lane cannot become itself");
    og_hook_emit *e = add_emit(L, OG_HOOK_EMIT_FORK);
    e->lane = lane;
    e->from_lane = from;
    return 0;
}
