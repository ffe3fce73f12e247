/* re.find, re.match, re.gmatch, re.gsub: PCRE2 under the budgets of the call.
 *
 * A match limit alone does not bound the work: "a*[bc]" over n letters a is quadratic and
 * counts n matches only. So every pattern is compiled with automatic callouts, which fire
 * before each item at each attempt: they are charged and look at the clock.
 */
#include "graph/hook/internal.h"

#include <stdio.h>
#include <string.h>

#define MAX_PATTERN 1024
#define MAX_CACHED 64
#define MATCH_LIMIT 1000000
#define DEPTH_LIMIT 10000
#define HEAP_LIMIT_KIB 4096
#define LONG_SUBJECT 4096 /* from here on a single item may scan for long */

/* ---- memory ---------------------------------------------------------------------- */

typedef union block {
    size_t size;
    max_align_t align;
} block;

static void *re_malloc(size_t size, void *arg) {
    og_hook_vm *vm = arg;
    size += sizeof(block);
    if (vm->bytes + size > vm->cap) {
        vm->starved = 0;
        return NULL;
    }
    block *b = og_malloc(size);
    if (!b) {
        vm->starved = 1;
        return NULL;
    }
    b->size = size;
    vm->bytes += size;
    return b + 1;
}

static void re_free(void *p, void *arg) {
    og_hook_vm *vm = arg;
    if (!p) return;
    block *b = (block *)p - 1;
    vm->bytes -= b->size;
    og_free(b);
}

static int on_callout(pcre2_callout_block *b, void *arg) {
    og_hook_vm *vm = arg;
    if (++vm->used > vm->lim.instructions) return PCRE2_ERROR_CALLOUT;
    if ((b->subject_length >= LONG_SUBJECT || (++vm->ticks & 63) == 0) && og__late(vm))
        return PCRE2_ERROR_CALLOUT;
    return 0;
}

int og__re_create(og_hook_vm *vm) {
    vm->gctx = pcre2_general_context_create(re_malloc, re_free, vm);
    vm->cctx = vm->gctx ? pcre2_compile_context_create(vm->gctx) : NULL;
    vm->mctx = vm->gctx ? pcre2_match_context_create(vm->gctx) : NULL;
    if (!vm->cctx || !vm->mctx) return OG_ENOMEM;
    pcre2_set_max_pattern_length(vm->cctx, MAX_PATTERN);
    pcre2_set_match_limit(vm->mctx, MATCH_LIMIT);
    pcre2_set_depth_limit(vm->mctx, DEPTH_LIMIT);
    pcre2_set_heap_limit(vm->mctx, HEAP_LIMIT_KIB);
    pcre2_set_callout(vm->mctx, on_callout, vm);
    return 0;
}

void og__re_destroy(og_hook_vm *vm) {
    pcre2_match_context_free(vm->mctx);
    pcre2_compile_context_free(vm->cctx);
    pcre2_general_context_free(vm->gctx);
}

/* ---- patterns -------------------------------------------------------------------- */

static int gc_code(lua_State *L) {
    pcre2_code **code = lua_touserdata(L, 1);
    pcre2_code_free(*code);
    *code = NULL;
    return 0;
}

static int gc_match(lua_State *L) {
    pcre2_match_data **md = lua_touserdata(L, 1);
    pcre2_match_data_free(*md);
    *md = NULL;
    return 0;
}

static void compile_error(lua_State *L, int rc, size_t at) {
    char text[128] = "";
    if (rc == PCRE2_ERROR_HEAP_FAILED) {
        og__fatal_memory(L);
        return;
    }
    pcre2_get_error_message(rc, (PCRE2_UCHAR *)text, sizeof text);
    luaL_error(L, "pattern, at character %d: %s", (int)at + 1, text);
}

/* Push the compiled pattern at stack index i. Patterns are kept for the VM's life; of
 * more than MAX_CACHED all are dropped. */
static pcre2_code *push_pattern(lua_State *L, int i) {
    og_hook_vm *vm = og__vm(L);
    size_t len;
    const char *text = luaL_checklstring(L, i, &len);
    lua_rawgeti(L, LUA_REGISTRYINDEX, vm->patterns);
    lua_pushvalue(L, i);
    if (lua_rawget(L, -2) == LUA_TUSERDATA) {
        lua_remove(L, -2);
        return *(pcre2_code **)lua_touserdata(L, -1);
    }
    lua_pop(L, 2);
    og__charge(L, 200 + 8 * (int64_t)(len < MAX_PATTERN ? len : MAX_PATTERN));
    if (++vm->n_patterns > MAX_CACHED) {
        lua_newtable(L);
        lua_rawseti(L, LUA_REGISTRYINDEX, vm->patterns);
        vm->n_patterns = 1;
    }
    pcre2_code **code = lua_newuserdatauv(L, sizeof *code, 0);
    *code = NULL;
    luaL_setmetatable(L, OG__RE);
    int rc = 0;
    size_t at = 0;
    *code = pcre2_compile((PCRE2_SPTR)text, len,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C |
                              PCRE2_AUTO_CALLOUT,
                          &rc, &at, vm->cctx);
    if (!*code) compile_error(L, rc, at);
    lua_rawgeti(L, LUA_REGISTRYINDEX, vm->patterns);
    lua_pushvalue(L, i);
    lua_pushvalue(L, -3);
    lua_rawset(L, -3);
    lua_pop(L, 1);
    return *code;
}

/* One search over one subject. It lives in a userdata of the stack, as callbacks may
 * search with the same pattern meanwhile. */
typedef struct search {
    pcre2_match_data *md; /* first: gc_match */
    const pcre2_code *code;
    const char *s;
    size_t len;
    size_t from;     /* where the next search begins */
    int after_empty; /* the last match was empty: not the same again */
    int checked;     /* the subject is known to be UTF-8 */
} search;

static search *push_search(lua_State *L, int subject, int pattern) {
    const char *s;
    size_t len;
    s = luaL_checklstring(L, subject, &len);
    const pcre2_code *code = push_pattern(L, pattern);
    search *q = lua_newuserdatauv(L, sizeof *q, 0);
    *q = (search){.code = code, .s = s, .len = len};
    luaL_setmetatable(L, OG__REMATCH);
    q->md = pcre2_match_data_create_from_pattern(code, og__vm(L)->gctx);
    if (!q->md) og__fatal_memory(L);
    return q;
}

static int match_error(lua_State *L, int rc) {
    og_hook_vm *vm = og__vm(L);
    char text[128] = "";
    switch (rc) {
    case PCRE2_ERROR_CALLOUT:
        return vm->used > vm->lim.instructions ? og__fatal_spent(L) : og__fatal_late(L);
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
        return luaL_error(L, "the pattern runs away on this text (match limit)");
    case PCRE2_ERROR_NOMEMORY: return og__fatal_memory(L);
    default:
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)text, sizeof text);
        return luaL_error(L, "matching: %s", text);
    }
}

static int exec(lua_State *L, search *q, size_t from, uint32_t options) {
    if (q->checked) options |= PCRE2_NO_UTF_CHECK;
    int rc = pcre2_match(q->code, (PCRE2_SPTR)q->s, q->len, from, options, q->md,
                         og__vm(L)->mctx);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) match_error(L, rc);
    q->checked = 1;
    return rc > 0;
}

static size_t next_char(const search *q, size_t at) {
    for (at++; at < q->len && (q->s[at] & 0xc0) == 0x80;) at++;
    return at;
}

/* The next match of a walk; ov[0], ov[1] are its ends. */
static int advance(lua_State *L, search *q) {
    for (;;) {
        if (q->from > q->len) return 0;
        int found = exec(L, q, q->from,
                         q->after_empty ? PCRE2_NOTEMPTY_ATSTART | PCRE2_ANCHORED : 0);
        const size_t *ov = pcre2_get_ovector_pointer(q->md);
        og__charge(L, 8 + (found ? (int64_t)(ov[1] - q->from) / 16 : 0));
        if (found) {
            if (ov[1] < ov[0]) return luaL_error(L, "matching: \\K moved behind the end");
            q->after_empty = ov[0] == ov[1];
            q->from = ov[1];
            return 1;
        }
        if (!q->after_empty) {
            q->from = q->len + 1;
            return 0;
        }
        q->after_empty = 0;
        q->from = next_char(q, q->from);
    }
}

/* ---- results --------------------------------------------------------------------- */

static void push_group(lua_State *L, const search *q, uint32_t i) {
    const size_t *ov = pcre2_get_ovector_pointer(q->md);
    if (i >= pcre2_get_ovector_count(q->md) || ov[2 * i] == PCRE2_UNSET)
        lua_pushnil(L);
    else
        lua_pushlstring(L, q->s + ov[2 * i], ov[2 * i + 1] - ov[2 * i]);
}

/* The groups, or the whole match of a pattern without any. */
static int push_groups(lua_State *L, const search *q, int whole) {
    uint32_t n = pcre2_get_ovector_count(q->md);
    if (n == 1) {
        if (whole) push_group(L, q, 0);
        return whole;
    }
    luaL_checkstack(L, (int)n, "too many groups");
    for (uint32_t i = 1; i < n; i++) push_group(L, q, i);
    return (int)n - 1;
}

static size_t start_at(lua_State *L, int i, size_t len) {
    lua_Integer init = luaL_optinteger(L, i, 1);
    if (init < 0) init = -init > (lua_Integer)len ? 1 : (lua_Integer)len + init + 1;
    if (init == 0) init = 1;
    return init > (lua_Integer)len + 1 ? len + 1 : (size_t)init - 1;
}

static int search_once(lua_State *L, int positions) {
    lua_settop(L, 3);
    search *q = push_search(L, 1, 2);
    size_t from = start_at(L, 3, q->len);
    og__charge(L, 8 + (int64_t)q->len / 16);
    if (from > q->len || !exec(L, q, from, 0)) return luaL_pushfail(L), 1;
    if (!positions) return push_groups(L, q, 1);
    const size_t *ov = pcre2_get_ovector_pointer(q->md);
    lua_pushinteger(L, (lua_Integer)ov[0] + 1);
    lua_pushinteger(L, (lua_Integer)ov[1]);
    return 2 + push_groups(L, q, 0);
}

static int re_find(lua_State *L) {
    return search_once(L, 1);
}

static int re_match(lua_State *L) {
    return search_once(L, 0);
}

static int gmatch_step(lua_State *L) {
    search *q = lua_touserdata(L, lua_upvalueindex(1));
    if (!advance(L, q)) return luaL_pushfail(L), 1;
    return push_groups(L, q, 1);
}

static int re_gmatch(lua_State *L) {
    lua_settop(L, 2);
    push_search(L, 1, 2);
    lua_pushvalue(L, 1); /* upvalues 2 and 3 keep subject and pattern alive */
    lua_pushvalue(L, -3);
    lua_pushcclosure(L, gmatch_step, 3);
    return 1;
}

/* $0 to $99, ${12} and $$ of a replacement. */
static void add_replacement(lua_State *L, luaL_Buffer *b, const search *q, const char *r,
                            size_t n) {
    const size_t *ov = pcre2_get_ovector_pointer(q->md);
    uint32_t groups = pcre2_get_ovector_count(q->md);
    for (size_t i = 0; i < n; i++) {
        if (r[i] != '$') {
            luaL_addchar(b, r[i]);
            continue;
        }
        size_t at = i + 1;
        if (at < n && r[at] == '$') {
            luaL_addchar(b, '$');
            i = at;
            continue;
        }
        int brace = at < n && r[at] == '{';
        size_t digits = at += (size_t)brace;
        uint32_t g = 0;
        for (; at < n && at < digits + 2 && r[at] >= '0' && r[at] <= '9'; at++)
            g = 10 * g + (uint32_t)(r[at] - '0');
        if (at == digits || (brace && (at == n || r[at] != '}')) || g >= groups) {
            luaL_error(L,
                       "re.gsub: bad '$' in the replacement (groups are $0 to $%d, $$ is "
                       "a dollar sign)",
                       (int)groups - 1);
            return;
        }
        if (ov[2 * g] != PCRE2_UNSET)
            luaL_addlstring(b, q->s + ov[2 * g], ov[2 * g + 1] - ov[2 * g]);
        i = brace ? at : at - 1;
    }
}

/* A function's or table's answer: nil and false keep the match. */
static void add_answer(lua_State *L, luaL_Buffer *b, const search *q, size_t from,
                       size_t to) {
    if (lua_type(L, 3) == LUA_TFUNCTION) {
        lua_pushvalue(L, 3);
        int n = push_groups(L, q, 1);
        lua_call(L, n, 1);
    } else {
        push_group(L, q, pcre2_get_ovector_count(q->md) > 1);
        lua_gettable(L, 3);
    }
    if (!lua_toboolean(L, -1)) {
        lua_pop(L, 1);
        luaL_addlstring(b, q->s + from, to - from);
        return;
    }
    if (!lua_isstring(L, -1)) {
        luaL_error(L, "re.gsub: a replacement must be a string, got %s", og__what(L, -1));
        return;
    }
    luaL_addvalue(b);
}

static int re_gsub(lua_State *L) {
    lua_settop(L, 4);
    int type = lua_type(L, 3);
    luaL_argexpected(L,
                     type == LUA_TSTRING || type == LUA_TNUMBER ||
                         type == LUA_TFUNCTION || type == LUA_TTABLE,
                     3, "string, function or table");
    lua_Integer max = luaL_optinteger(L, 4, LUA_MAXINTEGER), count = 0;
    search *q = push_search(L, 1, 2);
    size_t done = 0, r_len = 0;
    const char *r =
        type == LUA_TSTRING || type == LUA_TNUMBER ? lua_tolstring(L, 3, &r_len) : NULL;
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    og__charge(L, 8 + (int64_t)q->len / 16);
    while (count < max && advance(L, q)) {
        const size_t *ov = pcre2_get_ovector_pointer(q->md);
        size_t from = ov[0], to = ov[1];
        if (from < done) return luaL_error(L, "re.gsub: a match before the last one");
        luaL_addlstring(&b, q->s + done, from - done);
        og__charge(L, 4 + (int64_t)(r_len + to - from) / 4);
        if (r)
            add_replacement(L, &b, q, r, r_len);
        else
            add_answer(L, &b, q, from, to);
        done = to;
        count++;
    }
    luaL_addlstring(&b, q->s + done, q->len - done);
    luaL_pushresult(&b);
    lua_pushinteger(L, count);
    return 2;
}

void og__open_re(lua_State *L) {
    static const luaL_Reg code[] = {{"__gc", gc_code}, {NULL, NULL}};
    static const luaL_Reg match[] = {{"__gc", gc_match}, {NULL, NULL}};
    static const luaL_Reg fns[] = {{"find", re_find},
                                   {"match", re_match},
                                   {"gmatch", re_gmatch},
                                   {"gsub", re_gsub},
                                   {NULL, NULL}};
    og__meta(L, OG__RE, code);
    og__meta(L, OG__REMATCH, match);
    luaL_newlib(L, fns);
}
