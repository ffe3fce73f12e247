/* One Lua state: memory, budgets, running a call, turning failures into og_err. */
#include "graph/hook/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- memory ---------------------------------------------------------------------- */

#define BIG_BLOCK (64u * 1024u) /* an allocation worth a look at the clock */

/* Lua collects its garbage and asks again before a NULL becomes an error. */
static void *vm_alloc(void *ud, void *p, size_t old, size_t size) {
    og_hook_vm *vm = ud;
    if (!p) old = 0;
    if (!size) {
        vm->bytes -= old;
        og_free(p);
        return NULL;
    }
    if (size > old) {
        if (vm->bytes - old + size > vm->cap) {
            vm->starved = 0;
            return NULL;
        }
        if (size >= BIG_BLOCK && vm->call && og__late(vm)) {
            vm->starved = 2;
            return NULL;
        }
    }
    void *q = og_realloc(p, size);
    if (!q) {
        if (size > old) {
            vm->starved = 1;
            return NULL;
        }
        q = p; /* Lua counts on it that shrinking never fails */
    }
    vm->bytes = vm->bytes - old + size;
    return q;
}

size_t og_hook_vm_bytes(const og_hook_vm *vm) {
    return vm->bytes;
}

/* ---- budgets --------------------------------------------------------------------- */

static int64_t clock_ns(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int og__late(const og_hook_vm *vm) {
    int64_t limit = vm->lim.ms * 1000000;
    int64_t wall = clock_ns(CLOCK_MONOTONIC) - vm->wall0;
    if (wall <= limit) return 0;
    return wall > 10 * limit || clock_ns(CLOCK_THREAD_CPUTIME_ID) - vm->cpu0 > limit;
}

int og__fatal(lua_State *L, int code, const char *fmt, ...) {
    og_hook_vm *vm = og__vm(L);
    if (!vm->fatal) {
        va_list ap;
        va_start(ap, fmt);
        og_err_setv(&vm->err, code, fmt, ap);
        va_end(ap);
        vm->fatal = code;
    }
    lua_pushlightuserdata(L, vm);
    return lua_error(L);
}

int og__fatal_late(lua_State *L) {
    return og__fatal(L, OG_EHOOK, "the hook takes longer than %lld ms",
                     (long long)og__vm(L)->lim.ms);
}

int og__fatal_spent(lua_State *L) {
    return og__fatal(L, OG_EHOOK, "the hook takes more than %lld instructions",
                     (long long)og__vm(L)->lim.instructions);
}

int og__fatal_memory(lua_State *L) {
    og_hook_vm *vm = og__vm(L);
    if (vm->starved == 2) return og__fatal_late(L);
    if (vm->starved == 1) return og__fatal(L, OG_ENOMEM, "out of memory");
    if (vm->cap >= vm->lim.vm_bytes)
        return og__fatal(L, OG_EHOOK, "the hooks of this worker need more than %zu MiB",
                         vm->lim.vm_bytes >> 20);
    return og__fatal(L, OG_EHOOK, "the hook needs more than %zu KiB of memory",
                     vm->lim.call_bytes >> 10);
}

void og__charge(lua_State *L, int64_t n) {
    og_hook_vm *vm = og__vm(L);
    int64_t left = vm->lim.instructions - vm->used;
    if (n < 0 || n > left) {
        og__fatal_spent(L);
        return;
    }
    vm->used += n;
    if ((n >= 1000 || (++vm->ticks & 15) == 0) && og__late(vm)) og__fatal_late(L);
}

/* Fires every OG__HOOK_STEP instructions: a single one may cost a millisecond (comparing
 * two strings of megabytes), so the step is short. */
static void on_count(lua_State *L, lua_Debug *ar) {
    (void)ar;
    og__charge(L, OG__HOOK_STEP);
}

/* ---- messages -------------------------------------------------------------------- */

/* Levenshtein distance of short words, at most `limit` + 1. */
static int distance(const char *a, const char *b) {
    int row[65];
    size_t n = strlen(b);
    if (n > 64) return 65;
    for (size_t j = 0; j <= n; j++) row[j] = (int)j;
    for (size_t i = 1; a[i - 1]; i++) {
        int diag = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int best = diag + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diag = row[j];
            row[j] = best;
        }
    }
    return row[n];
}

void og__near_init(og__near *n, const char *word) {
    size_t len = strlen(word);
    *n = (og__near){word, NULL, len > 64 ? 0 : (int)(len / 3) + 2};
}

void og__near_add(og__near *n, const char *name) {
    if (strlen(n->word) > 64) return;
    int d = distance(n->word, name);
    if (d < n->dist) {
        n->dist = d;
        n->best = name;
    }
}

const char *og__near_text(const og__near *n, char *buf, size_t size) {
    buf[0] = '\0';
    if (n->best) snprintf(buf, size, " (did you mean '%s'?)", n->best);
    return buf;
}

void og__meta(lua_State *L, const char *name, const luaL_Reg *fns) {
    luaL_newmetatable(L, name);
    luaL_setfuncs(L, fns, 0);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}

void *og__test(lua_State *L, int i, const char *name) {
    return luaL_testudata(L, i, name);
}

const char *og__what(lua_State *L, int i) {
    og__seq *s = luaL_testudata(L, i, OG__SEQ);
    if (s) return og__kind_name(s->kind);
    if (lua_type(L, i) == LUA_TUSERDATA &&
        luaL_getmetafield(L, i, "__name") == LUA_TSTRING) {
        const char *name = lua_tostring(L, -1); /* the registry keeps it alive */
        lua_pop(L, 1);
        return name;
    }
    return luaL_typename(L, i);
}

/* Move "name.lua:12: " from the front of text to file and line. Returns what follows. */
static const char *take_position(const char *text, char *file, size_t size, int *line) {
    const char *colon = strstr(text, ".lua:");
    if (!colon || colon - text >= OG__MAX_NAME + 8) return text;
    for (const char *c = text; c < colon; c++)
        if (*c == ' ' || *c == '\n') return text;
    char *end;
    long n = strtol(colon + 5, &end, 10);
    if (end == colon + 5 || *end != ':') return text;
    snprintf(file, size, "%.*s.lua", (int)(colon - text), text);
    *line = (int)n;
    return end[1] == ' ' ? end + 2 : end + 1;
}

/* Where the Lua code stands, into the report: the position unless it has one, and the
 * chain of calls. Allocates nothing, so that it works when the hook's memory is out. */
static void add_traceback(lua_State *L, og_err *err) {
    lua_Debug ar;
    int shown = 0;
    for (int level = 0; shown < 8 && lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sln", &ar);
        if (ar.currentline < 0) continue;
        if (!err->line) {
            snprintf(err->file, sizeof err->file, "%s", ar.short_src);
            err->line = ar.currentline;
        }
        size_t at = strlen(err->msg);
        snprintf(err->msg + at, sizeof err->msg - at, "%s\n  %s:%d%s%s",
                 shown ? "" : "\ntraceback:", ar.short_src, ar.currentline,
                 ar.name ? " in " : "", ar.name ? ar.name : "");
        shown++;
    }
}

/* The message handler: runs where the error happened, before the stack is unwound. */
static int on_error(lua_State *L) {
    og_hook_vm *vm = og__vm(L);
    og_err *err = &vm->err;
    if (!vm->fatal) {
        const char *text = lua_tostring(L, 1);
        if (text) {
            char file[sizeof err->file] = "";
            int line = 0;
            text = take_position(text, file, sizeof file, &line);
            og_err_set(err, OG_EHOOK, "%.*s", OG_ERR_MSG_MAX / 2, text);
            snprintf(err->file, sizeof err->file, "%s", file);
            err->line = line;
        } else {
            og_err_set(err, OG_EHOOK, "the hook raised %s%s", lua_isnil(L, 1) ? "" : "a ",
                       og__what(L, 1));
        }
    }
    if (err->code == OG_EHOOK) add_traceback(L, err);
    return 1;
}

/* What pcall's status says when no handler could run. */
static void report(og_hook_vm *vm, int status) {
    if (vm->err.code) return;
    if (status == LUA_ERRMEM && vm->starved == 1)
        og_err_set(&vm->err, OG_ENOMEM, "out of memory");
    else if (status == LUA_ERRMEM && vm->starved == 2)
        og_err_set(&vm->err, OG_EHOOK, "the hook takes longer than %lld ms",
                   (long long)vm->lim.ms);
    else if (status == LUA_ERRMEM)
        og_err_set(&vm->err, OG_EHOOK, "the hook needs more than %zu KiB of memory",
                   vm->lim.call_bytes >> 10);
    else
        og_err_set(&vm->err, OG_EHOOK, "the hook failed in its error handling");
}

/* ---- life ------------------------------------------------------------------------ */

static int init(lua_State *L) {
    og_hook_vm *vm = og__vm(L);
    lua_newtable(L);
    vm->files = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_newtable(L);
    vm->patterns = luaL_ref(L, LUA_REGISTRYINDEX);
    og__open_seq(L);
    og__open_rows(L);
    og__open_view(L);
    og__open_ctx(L);
    og__open_sandbox(L);
    return 0;
}

int og_hook_vm_create(const og_hook_limits *limits, og_hook_vm **out, og_err *err) {
    *out = NULL;
    og_hook_vm *vm = og_calloc(1, sizeof *vm);
    if (!vm) goto nomem;
    vm->lim = limits ? *limits : (og_hook_limits)OG_HOOK_LIMITS_INIT;
    vm->cap = vm->lim.vm_bytes;
    vm->globals = vm->modules = vm->state = LUA_NOREF;
    vm->L = lua_newstate(vm_alloc, vm);
    if (!vm->L) goto nomem;
    *(og_hook_vm **)lua_getextraspace(vm->L) = vm;
    if (og__re_create(vm) < 0) goto nomem;
    lua_pushcfunction(vm->L, init);
    if (lua_pcall(vm->L, 0, 0, 0) != LUA_OK) goto nomem;
    vm->gc_base = vm->bytes;
    *out = vm;
    return 0;
nomem:
    og_hook_vm_destroy(vm);
    return og_err_set(err, OG_ENOMEM, "no memory for a Lua state");
}

void og_hook_vm_destroy(og_hook_vm *vm) {
    if (!vm) return;
    if (vm->L) lua_close(vm->L);
    og__re_destroy(vm);
    og_free(vm);
}

/* ---- a call ---------------------------------------------------------------------- */

static int set_ref(lua_State *L, int *ref) {
    luaL_unref(L, LUA_REGISTRYINDEX, *ref);
    *ref = LUA_NOREF;
    *ref = luaL_ref(L, LUA_REGISTRYINDEX);
    return *ref;
}

/* Fresh globals over the shared, read-only base: nothing that a call leaves in them is
 * seen by the next. */
static void fresh_globals(lua_State *L) {
    og_hook_vm *vm = og__vm(L);
    lua_newtable(L);
    lua_createtable(L, 0, 2);
    lua_rawgeti(L, LUA_REGISTRYINDEX, vm->base);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    set_ref(L, &vm->globals);
    lua_newtable(L);
    set_ref(L, &vm->modules);
}

static void push_done(lua_State *L, const og_hook_call *call) {
    lua_createtable(L, 0, 2);
    lua_pushstring(L, call->done_phase);
    lua_setfield(L, -2, "phase");
    if (call->done_stop < 0) return;
    lua_pushinteger(L, call->done_stop);
    lua_setfield(L, -2, "stop");
}

static void take_next(lua_State *L) {
    og_hook_vm *vm = og__vm(L);
    if (lua_isnil(L, -1)) return;
    if (lua_type(L, -1) != LUA_TSTRING) {
        luaL_error(L, "%s.%s: a next hook returns a phase or nil, not a %s",
                   vm->env->file, vm->env->function, og__what(L, -1));
        return;
    }
    vm->res->next = og_strdup(lua_tostring(L, -1));
    if (!vm->res->next) og__fatal(L, OG_ENOMEM, "out of memory");
}

/* The protected part of a call: everything that may throw. Without a result only the file
 * and the function are checked. */
static int protected_call(lua_State *L) {
    og_hook_vm *vm = og__vm(L);
    luaL_checkstack(L, 20, NULL);
    fresh_globals(L);
    if (vm->call->test) {
        og__run_test(L);
        return 0;
    }
    og__function(L, vm->env->file, vm->env->function);
    if (!vm->res) return 0;
    int next = vm->call->done_phase != NULL;
    lua_rawgeti(L, LUA_REGISTRYINDEX, vm->ctx);
    if (next)
        push_done(L, vm->call);
    else
        og__push_sources(L);
    lua_call(L, 2, 1);
    if (next) take_next(L);
    if (vm->state != LUA_NOREF) og__check_state(L);
    return 0;
}

static int cleanup(lua_State *L) {
    og_hook_vm *vm = og__vm(L);
    int *refs[] = {&vm->globals, &vm->modules, &vm->state};
    for (size_t i = 0; i < sizeof refs / sizeof *refs; i++) {
        luaL_unref(L, LUA_REGISTRYINDEX, *refs[i]);
        *refs[i] = LUA_NOREF;
    }
    if (vm->bytes < vm->gc_base + (2u << 20)) return 0;
    lua_gc(L, LUA_GCCOLLECT);
    vm->gc_base = vm->bytes;
    return 0;
}

static void begin(og_hook_vm *vm, const og_hook_call *call, og_hook_result *res) {
    vm->call = call;
    vm->env = call->env;
    vm->res = res;
    vm->serial++;
    vm->used = 0;
    vm->ticks = 0;
    vm->n_chain = 0;
    vm->fatal = 0;
    og_err_clear(&vm->err);
    vm->wall0 = clock_ns(CLOCK_MONOTONIC);
    vm->cpu0 = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    vm->cap = vm->bytes + vm->lim.call_bytes;
    if (vm->cap > vm->lim.vm_bytes) vm->cap = vm->lim.vm_bytes;
    lua_sethook(vm->L, on_count, LUA_MASKCOUNT, OG__HOOK_STEP);
}

static void end(og_hook_vm *vm) {
    lua_State *L = vm->L;
    lua_sethook(L, NULL, 0, 0);
    og_free(vm->scratch);
    vm->scratch = NULL;
    vm->call = NULL;
    vm->cap = vm->lim.vm_bytes + BIG_BLOCK; /* tidying up must not fail for a full VM */
    lua_settop(L, 0);
    lua_pushcfunction(L, cleanup);
    if (lua_pcall(L, 0, 0, 0) != LUA_OK) lua_settop(L, 0);
    vm->env = NULL;
    vm->res = NULL;
}

/* What a failed run keeps: its log lines. */
static void drop_emits(og_hook_result *res) {
    char **logs = res->logs;
    int n_logs = res->n_logs;
    uint32_t warnings = res->warnings;
    res->logs = NULL;
    res->n_logs = 0;
    og_hook_result_free(res);
    res->logs = logs;
    res->n_logs = n_logs;
    res->warnings = warnings;
}

static int run(og_hook_vm *vm, const og_hook_call *call, og_hook_result *res,
               og_err *err) {
    lua_State *L = vm->L;
    begin(vm, call, res);
    lua_pushcfunction(L, on_error);
    lua_pushcfunction(L, protected_call);
    int status = lua_pcall(L, 0, 0, 1);
    if (status != LUA_OK) report(vm, status);
    end(vm);
    if (status == LUA_OK) return 0;
    if (res) drop_emits(res);
    if (err && !err->code) *err = vm->err;
    return vm->err.code;
}

int og_hook_run(og_hook_vm *vm, const og_hook_call *call, og_hook_result *res,
                og_err *err) {
    int rc = run(vm, call, res, err);
    if (rc < 0 && call->env->stage) og_err_node(err, call->env->stage);
    return rc;
}

int og_hook_check(const char *const *dirs, int n_dirs, const char *file,
                  const char *function, og_err *err) {
    og_hook_vm *vm;
    int rc = og_hook_vm_create(NULL, &vm, err);
    if (rc < 0) return rc;
    og_hook_env env = {
        .file = file, .function = function, .dirs = dirs, .n_dirs = n_dirs};
    og_hook_call call = {.env = &env};
    rc = run(vm, &call, NULL, err);
    og_hook_vm_destroy(vm);
    return rc;
}
