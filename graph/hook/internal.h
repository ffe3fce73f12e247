/* Shared by the files of this room: the VM, the values it hands to Lua, the budgets.
 *
 * Two kinds of failure leave Lua code. An error is a Lua error with a message; pcall
 * catches it. A fatal one (budgets, memory, ctx:reject, limits) is remembered in the VM
 * first and then thrown; our pcall throws it on. Everything that a lua_* call can throw
 * through owns its memory by way of Lua, the VM's scratch pointer or the result, so
 * nothing leaks. / */
#ifndef OG_HOOK_INTERNAL_H
#define OG_HOOK_INTERNAL_H

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "graph/hook/hook.h"

#define OG__MAX_FILE (256u * 1024u) /* bytes of one Lua file */
#define OG__MAX_NAME 48             /* characters of its name: short_src shows it whole */
#define OG__MAX_USE 16              /* files that use each other in a row */
#define OG__HOOK_STEP 100           /* instructions between two looks at the budget */
#define OG__STATE_DEPTH 32          /* tables in tables of ctx.state */
#define OG__MAX_ITEM (1 << 30)      /* index of an item of a stream */

/* Names of metatables; luaL_tolstring-like messages show them. */
#define OG__SEQ "sequence"
#define OG__ROWS "rows"
#define OG__VIEW "view"
#define OG__SRC "sources"
#define OG__CTX "ctx"
#define OG__CFG "ctx.cfg"
#define OG__TABLES "ctx.tables"
#define OG__RE "pattern"
#define OG__REMATCH "match"

struct og_hook_state {
    og_hook_vm *vm; /* that holds the table; NULL before the first call */
    int ref;        /* in its registry */
    int worker;     /* the pool's: -1 before the first job */
    int n_shared;   /* its jobs that wait for any worker */
    og_hook_state *next;
};

struct og_hook_vm {
    lua_State *L;
    og_hook_limits lim;
    /* memory */
    size_t bytes, cap, gc_base;
    int starved; /* why an allocation failed: 0 our cap, 1 the process, 2 too late */
    pcre2_general_context *gctx;
    pcre2_compile_context *cctx;
    pcre2_match_context *mctx;
    /* registry references */
    int base, files, patterns, ctx;
    int n_patterns;
    /* the running call */
    const og_hook_call *call;
    const og_hook_env *env;
    og_hook_result *res;
    uint32_t serial;             /* of the call: values of another call are refused */
    int globals, modules, state; /* registry references, LUA_NOREF when there is none */
    const char *chain[OG__MAX_USE]; /* files that are being loaded */
    int n_chain;
    void *scratch; /* C memory to free if the call fails here */
    int64_t used;
    unsigned ticks;
    int64_t wall0, cpu0;
    int fatal; /* code of the fatal failure, 0: none */
    og_err err;
};

/* ---- vm.c ------------------------------------------------------------------------ */

static inline og_hook_vm *og__vm(lua_State *L) {
    return *(og_hook_vm **)lua_getextraspace(L);
}
/* Raise a fatal failure. */
int og__fatal(lua_State *L, int code, const char *fmt, ...) OG_PRINTF(3, 4);
/* Charge work of about n VM instructions, and look at the clock now and then. */
void og__charge(lua_State *L, int64_t n);
/* Whether the call has used up its time. */
int og__late(const og_hook_vm *vm);
int og__fatal_late(lua_State *L);
int og__fatal_spent(lua_State *L);
int og__fatal_memory(lua_State *L);

/* Nearest of some names to a word, for messages. */
typedef struct og__near {
    const char *word, *best;
    int dist;
} og__near;
void og__near_init(og__near *n, const char *word);
void og__near_add(og__near *n, const char *name);
/* " (did you mean 'x'?)" or "" into buf. */
const char *og__near_text(const og__near *n, char *buf, size_t size);

/* Make a metatable with functions, locked against getmetatable; leaves nothing. */
void og__meta(lua_State *L, const char *name, const luaL_Reg *fns);
/* The userdata at i if it has that metatable, else NULL. */
void *og__test(lua_State *L, int i, const char *name);
/* What is at i, for messages: "rows", "ids", "number", ... */
const char *og__what(lua_State *L, int i);

/* ---- sandbox.c, re.c ------------------------------------------------------------- */

void og__open_sandbox(lua_State *L); /* sets vm->base */
void og__open_re(lua_State *L);      /* leaves the table of re.* on the stack */
int og__re_create(og_hook_vm *vm);
void og__re_destroy(og_hook_vm *vm);

/* ---- load.c ---------------------------------------------------------------------- */

/* Push the table that a file returns, run once per call. */
void og__use(lua_State *L, const char *name);
int og__l_use(lua_State *L); /* use "name" */
/* Push M[function]; an error names the nearest. */
void og__function(lua_State *L, const char *file, const char *function);

/* ---- values ---------------------------------------------------------------------- */

/* A run of a sequence: n items of a source from `from` on, or n ids at ids[from]. */
typedef struct og__run {
    int32_t source; /* -1: ids */
    int32_t from, n;
} og__run;

typedef struct og__seq {
    uint32_t serial;
    og_hook_kind kind; /* IDS, CODES, VECTOR */
    int32_t width;
    int32_t n;           /* closed items */
    int32_t open_source; /* -1: closed */
    int32_t open_at;     /* next item of it */
    int32_t grid[3];
    float seconds;
    int32_t n_runs, n_ids, n_spans;
    og__run *runs;
    int32_t *ids;
    og_row_span *spans;
} og__seq;

typedef struct og__rows {
    uint32_t serial;
    int32_t n, n_terms, n_spans;
    int32_t n_open; /* open terms; 0: closed */
    int32_t at;     /* the open part stands before row `at` */
    int32_t source; /* that drives it */
    int32_t *off;
    og_term *terms;
    og_open_term *open;
    og_row_span *spans;
} og__rows;

void og__open_seq(lua_State *L);
void og__open_rows(lua_State *L);
void og__open_view(lua_State *L);
void og__open_ctx(lua_State *L); /* sets vm->ctx */

/* New values on top of the stack, arrays zeroed and to be filled by the caller. */
og__seq *og__seq_new(lua_State *L, og_hook_kind kind, int32_t n_runs, int32_t n_ids,
                     int32_t n_spans);
og__seq *og__seq_ids(lua_State *L, const int32_t *ids, int32_t n);
/* The sequence that a source is; base is the number of its first item. */
void og__seq_source(lua_State *L, int32_t source, int32_t base, const og_hook_source *s);
og__rows *og__rows_new(lua_State *L, int32_t n, int64_t n_terms, int32_t n_spans,
                       int32_t n_open);
/* The value at i, of this call; NULL when it is something else. */
og__seq *og__seq_at(lua_State *L, int i);
og__rows *og__rows_at(lua_State *L, int i);
/* Resolve (i, j) at stack indices 2 and 3 as string.sub does over n items. Half open. */
void og__range(lua_State *L, int32_t n, int32_t *from, int32_t *to);
const char *og__kind_name(og_hook_kind kind);

/* view.c: JSON as read-only Lua values. path stands in messages. */
typedef enum og__view_mode {
    OG__VIEW_PLAIN,  /* a missing key is nil */
    OG__VIEW_STRICT, /* a missing key is an error, :get(k) is not */
    OG__VIEW_REQUEST /* a key that the pipeline does not declare is an error */
} og__view_mode;
void og__push_json(lua_State *L, const json_t *j, og__view_mode mode, const char *path);
void og__push_sources(lua_State *L);

/* emit.c */
int og__l_emit(lua_State *L);
int og__l_fork(lua_State *L);
/* table.c */
void og__push_table(lua_State *L, const char *name);
/* test.c: what takes the place of a hook's call when vm->call->test is set */
void og__run_test(lua_State *L);
/* state.c */
void og__push_state(lua_State *L);
void og__check_state(lua_State *L);

#endif
