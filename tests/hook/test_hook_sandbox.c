/* The sandbox: every budget ends its call, in time, and spoils nothing for the next. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <time.h>

#include "tests/hook/hook_support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW 40
#else
#define SLOW 1
#endif
/* 50 ms of the budget; past it, at most what lies between two looks at the clock. */
#define DEADLINE_MS (150 * SLOW)

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int setup(void **state) {
    static hs_bench b;
    hs_open_limits(&b, NULL);
    *state = &b;
    return 0;
}

static int teardown(void **state) {
    hs_close(*state);
    return 0;
}

/* Run under the default budgets: must fail with want in the message, in time, also when
 * the hook tries to catch it; and the VM must work afterwards. */
static void attack_once(hs_bench *b, const char *body, const char *want) {
    og_hook_limits limits = OG_HOOK_LIMITS_INIT;
    og_hook_vm_destroy(b->vm);
    assert_int_equal(og_hook_vm_create(&limits, &b->vm, &b->err), 0);
    double ms = 1e9;
    int rc = 0;
    for (int i = 0; i < 3 && ms > DEADLINE_MS;
         i++) { /* a stolen core looks like our time */
        double t0 = cpu_ms();
        rc = hs_run(b, body);
        ms = cpu_ms() - t0;
    }
    if (rc != OG_EHOOK) fail_msg("%s\ngave %s %s", body, og_err_name(rc), b->err.msg);
    /* on a slow machine the clock is first, whatever the budget under test is */
    if (want && !strstr(b->err.msg, want) && !strstr(b->err.msg, "longer than 50 ms"))
        fail_msg("%s\ngave '%s'", body, b->err.msg);
    if (ms > DEADLINE_MS) fail_msg("%s\ntook %.0f ms: %s", body, ms, b->err.msg);
    og_hook_result_free(&b->res);
    og_err_clear(&b->err);
    hs_dir_text(&b->dir, "ok", "return {f = function(ctx) ctx:log('fine') end}");
    b->env.file = "ok";
    assert_int_equal(og_hook_run(b->vm, &b->call, &b->res, &b->err), 0);
    assert_int_equal(b->res.n_logs, 1);
}

static void attack(hs_bench *b, const char *body, const char *want) {
    char caught[2048];
    attack_once(b, body, want);
    snprintf(caught, sizeof caught,
             "for i = 1, 1000 do pcall(function()\n%s\nend) end error('caught it')",
             body);
    attack_once(b, caught, want);
}

static void test_b089_work_in_c_loops(void **state) {
    hs_bench *b = *state;
    attack(b, "string.rep('', 3000000000)", "instructions");
    attack(b, "string.rep('x', 2^30 | 0)", "instructions");
    attack(b, "string.rep('x', 1 << 62, 'yy')", "instructions");
    attack(b, "table.move({}, 1, 1 << 40, 2)", "instructions");
    attack(b, "table.move({1}, math.mininteger, math.maxinteger - 1, 2)", NULL);
    attack(b, "table.unpack({}, 1, 1 << 40)", "instructions");
    attack(b, "table.unpack({}, math.mininteger, math.maxinteger)", "instructions");
    attack(b, "table.concat({}, '', 1, 1 << 50)", "instructions");
    attack(b,
           "local t = {}\nfor i = 1, 100000 do t[i] = i end\n"
           "for i = 1, 100000 do table.insert(t, 1, i) end",
           NULL);
    attack(b,
           "local t = {}\nfor i = 1, 100000 do t[i] = i end\n"
           "while true do table.remove(t, 1) end",
           NULL);
    attack(b,
           "local t = {}\nfor i = 1, 200000 do t[i] = i % 7 end\n"
           "while true do table.sort(t) end",
           "instructions");
    attack(b,
           "local s = ('x'):rep(500000)\nlocal t = {}\n"
           "for i = 1, 1000 do t[i] = s end\ntable.sort(t)",
           "instructions");
    attack(b, "local s = ('x'):rep(100000)\nwhile true do s:lower() end", NULL);
    attack(b, "local s = ('x'):rep(100000)\nwhile true do s:find('y') end", NULL);
    attack(b, "local s = ('x'):rep(100000)\nwhile true do ('%s'):format(s) end", NULL);
    attack(b,
           "local t = {}\nfor i = 1, 200000 do t[i] = i end\nfor i = 1, 200000 do t[i] = "
           "nil end\n"
           "while true do next(t) end",
           NULL);
    attack(b,
           "local s, r = ('x'):rep(500000) .. 'a', ('x'):rep(500000) .. 'b'\n"
           "while true do local q = s < r end",
           NULL);
}

static void test_b089_patterns(void **state) {
    hs_bench *b = *state;
    attack(b, "string.match(string.rep('ab', 8000), '(.*)(.*)(.*)c')", NULL);
    hs_ok(b,
          "assert(re.match(string.rep('ab', 8000), '(.*)(.*)(.*)c') == nil)"); /* no c */
    attack(b, "re.match(string.rep('ab', 8000), '(.*)(.*)(.*)[cd]')", NULL);
    attack(b, "re.match(string.rep('a', 29) .. '!', '^(a+)+$')", NULL);
    attack(b, "re.match(string.rep('a', 200000), 'a*[bc]')", NULL);
    attack(b, "re.match(string.rep('a', 400000) .. '!', '(?:a|aa)+$')", NULL);
    attack(b, "re.gsub(string.rep('a', 300000), 'a*?b|', 'x')", NULL);
    attack(b, "for w in re.gmatch(string.rep('a', 300000), 'a?') do end", NULL);
    attack(b, "re.match(('a'):rep(30000), '^(?:(a)|b)*?c')", NULL);
    attack(b, "re.match('x', '((((a{1,100}){1,100}){1,100}){1,100}){1,100}')", NULL);
    attack(b, "re.match(('('):rep(1000), ('('):rep(1000))", NULL);
    attack(b, "re.match(('a'):rep(1000), '(?R)a')", NULL);
    attack(b, "re.gsub('x', 'x', function() while true do end end)", NULL);
}

static void test_b089_instructions_and_time(void **state) {
    hs_bench *b = *state;
    attack(b, "while true do end", "instructions");
    attack(b, "local function f() return f() end\nreturn f()", "instructions");
    attack(b, "for i = 1, math.huge do end", NULL);
    attack(b, "::again:: goto again", "instructions");
    attack(b, "for i = 1, 1e18 do local x = i .. '' end", NULL);
    attack(b, "for k in function() return 1 end do end", NULL);
    attack(b, "local t = {} for i = 1, 1e9 do t.x = i end", "instructions");
    attack_once(b, "local function f() pcall(f) pcall(f) end\nf() error('end')", NULL);
    attack(b,
           "local t = {3, 2, 1, 5, 4, 9, 8, 7}\n"
           "while true do pcall(table.sort, t, function() return true end) end",
           NULL);
}

static void test_b089_values(void **state) {
    hs_bench *b = *state;
    attack(b, "local p = ctx.tables.text(1)\nwhile true do p = p .. p end", "more");
    attack(b, "local p = ctx.tables.text(1)\nwhile true do p = p + p end", NULL);
    attack(
        b,
        "local p = ctx.tables.text(1)\nfor i = 1, 1e9 do p = p .. ctx.tables.text(1) end",
        NULL);
    attack(b, "local p = ctx.tables.text{}\nwhile true do p = p:rep(1 << 60) end", NULL);
    attack(b,
           "local t = {}\nfor i = 1, 200000 do t[i] = 1 end\n"
           "while true do ctx.tables.text(t) end",
           NULL);
    attack(b, "while true do ctx:log('x') end", NULL);
    attack(b, "while true do local x = ctx.cfg.root.sub.list end", NULL);
    attack(b, "while true do ctx.cfg.root:get('x') end", NULL);
    attack(b, "while true do for k, v in pairs(ctx.cfg.root) do end end", NULL);
    attack(b, "local t = ctx.state\nwhile true do t[#t + 1] = 1 end", NULL);
}

static void test_memory_cap(void **state) {
    hs_bench *b = *state;
    attack(b, "local t = {}\nfor i = 1, 1e9 do t[i] = {i} end", NULL);
    attack(b, "local s = 'x'\nwhile true do s = s .. s end", "memory");
    attack(b, "local t = {}\nwhile true do t[#t + 1] = ('x'):rep(10000) .. #t end", NULL);
    attack(b, "local function f(...) return f(1, ...) end\nf()", NULL);
    assert_true(og_hook_vm_bytes(b->vm) < (4u << 20));
}

/* Text chunks only, no way to the outside, no metatables. */
static void test_what_is_not_there(void **state) {
    hs_bench *b = *state;
    static const char *const names[] = {"load",           "loadstring",   "loadfile",
                                        "dofile",         "require",      "print",
                                        "collectgarbage", "os",           "io",
                                        "debug",          "package",      "_G",
                                        "warn",           "utf8",         "xpcall",
                                        "coroutine",      "setmetatable", "getmetatable"};
    char body[128], want[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(body, sizeof body, "return %s", names[i]);
        snprintf(want, sizeof want, "'%s' is not part of hooks", names[i]);
        hs_fails(b, body, 1, want);
    }
    hs_ok(b,
          "assert(string.dump == nil and math.random == nil and math.randomseed == nil)\n"
          "assert(string.pack == nil and undefined == nil)\n"
          "x = 5\nassert(x == 5)");
    hs_fails(b, "string.lower = 5", 1, "the libraries are read-only");
    hs_fails(b, "rawset(string, 'lower', 5)", 1, "table expected");
    hs_fails(b, "('x').y = 5", 1, "index a string value");
    hs_dir_text(&b->dir, "binary", "\x1bLua\x54rest");
    hs_fails(b, "use 'binary'", 0, "attempt to load a binary chunk");
}

static void test_b090_errors_of_every_shape(void **state) {
    hs_bench *b = *state;
    attack_once(b, "error({})", "the hook raised a table");
    attack_once(b, "error(nil)", "the hook raised nil");
    attack_once(b, "error()", "the hook raised nil");
    attack_once(b, "error(error)", "the hook raised a function");
    attack_once(b, "error(src)", "the hook raised a sources");
    attack_once(b, "error(true)", "the hook raised a boolean");
    attack_once(b, "error(('x'):rep(100000))", "xxx");
    attack_once(b, "local function f() return 1 + f() end\nf()", NULL);
    attack_once(b, "local function f() pcall(f) error('deep') end\nf()", NULL);
    attack_once(
        b, "local f\nf = function() return pcall(pcall, f) end\nf() error('deep')", NULL);
    attack_once(b, "local function f() return re.gsub('x', 'x', f) end\nf()", NULL);
    attack_once(b, "local t = {3, 2, 1}\nlocal function f() table.sort(t, f) end\nf()",
                NULL);
    attack_once(b, "coroutine.yield()", "'coroutine' is not part of hooks");
    attack_once(b, "re.gsub('x', 'x', function() coroutine.yield() end)", "coroutine");
    attack_once(b, "pcall(function() coroutine.yield() end) error('on')", "on");
    attack_once(b, "require 'x'", "'require' is not part of hooks: use use \"name\"");
    hs_fails(b, "error('x', 2)", 0, "x");
    hs_fails(b, "local t = {}\nt.x.y = 1", 2, "attempt to index a nil value (field 'x')");
    hs_ok(b, "local ok, e = pcall(error, {code = 5})\nassert(not ok and e.code == 5)\n"
             "assert(select('#', pcall(error)) == 2)");
}

static void test_b091_globals_end_with_the_call(void **state) {
    hs_bench *b = *state;
    hs_dir_text(&b->dir, "keeps",
                "local seen = {}\n"
                "chunks = chunks or {}\n"
                "return {f = function(ctx)\n"
                "  chunks[#chunks + 1] = ('x'):rep(100)\n"
                "  seen[#seen + 1] = ('y'):rep(100)\n"
                "  if #chunks ~= 1 or #seen ~= 1 then error('saw another request') end\n"
                "end}");
    b->env.file = "keeps";
    size_t warm = 0;
    for (int i = 0; i < 10000; i++) {
        og_err err = OG_ERR_INIT;
        if (og_hook_run(b->vm, &b->call, &b->res, &err) < 0) fail_msg("%s", err.msg);
        if (i == 2000) warm = og_hook_vm_bytes(b->vm);
    }
    assert_true(og_hook_vm_bytes(b->vm) <= warm + (3u << 20));
}

static void test_b091_states_are_released(void **state) {
    hs_bench *b = *state;
    hs_dir_text(&b->dir, "fills",
                "return {f = function(ctx) local t = ctx.state\n"
                "for i = 1, 200 do t[#t + 1] = 'a' .. #t end end}");
    b->env.file = "fills";
    size_t warm = 0;
    for (int i = 0; i < 2000; i++) {
        og_hook_state *st = og_hook_state_create();
        b->request.state = st;
        for (int k = 0; k < 3; k++) {
            og_err err = OG_ERR_INIT;
            if (og_hook_run(b->vm, &b->call, &b->res, &err) < 0) fail_msg("%s", err.msg);
        }
        og_hook_vm_release(b->vm, st);
        if (i == 500) warm = og_hook_vm_bytes(b->vm);
    }
    b->request.state = NULL;
    assert_true(og_hook_vm_bytes(b->vm) <= warm + (3u << 20));
}

/* A request that keeps more and more fails; the next one does not. */
static void test_b091_a_growing_state_fails_its_own_request(void **state) {
    hs_bench *b = *state;
    hs_dir_text(&b->dir, "grows",
                "return {f = function(ctx) local t = ctx.state\n"
                "t[#t + 1] = ('x'):rep(60000) .. #t end}");
    b->env.file = "grows";
    og_hook_state *st = og_hook_state_create();
    b->request.state = st;
    int rc = 0, runs = 0;
    og_err err = OG_ERR_INIT;
    for (; rc == 0 && runs < 100; runs++)
        rc = og_hook_run(b->vm, &b->call, &b->res, &err);
    assert_int_equal(rc, OG_EHOOK);
    assert_true(runs > 10 && runs < 30);
    assert_non_null(strstr(err.msg, "ctx.state holds more than 1024 KiB"));
    og_hook_vm_release(b->vm, st);
    b->request.state = NULL;
    hs_ok(b, "ctx.state.x = 1");
}

/* Each allocation of a call fails once: the call still works (Lua collects and asks
 * again) or reports OG_ENOMEM; nothing leaks and the VM stays usable. */
static void test_failing_allocations(void **state) {
    hs_bench *b = *state;
    static const char *const lanes[] = {"a", "b"};
    b->env.lanes = lanes;
    b->env.n_lanes = 2;
    hs_dir_text(&b->dir, "many",
                "local M = {}\nfunction M.f(ctx)\n"
                "  local T, C = ctx.tables.text, ctx.tables.codec\n"
                "  ctx:log('line')\n"
                "  ctx.state.x = {re.gsub('a b c', '\\\\w', '<$0>')}\n"
                "  for i = 1, 5 do ctx:emit{prompt = T{1, 2, 3} + C(i), lane = 'b'} end\n"
                "  ctx:fork('b')\n"
                "  ctx:emit{feed = T(1):rep(3) .. C{4, 5}, fill = T(9)}\n"
                "end\nreturn M\n");
    b->env.file = "many";
    int failures = 0, n = 1;
    for (;; n++) {
        og_hook_limits roomy = HS_ROOMY;
        og_hook_vm *vm = NULL;
        og_hook_result res = OG_HOOK_RESULT_INIT;
        og_err err = OG_ERR_INIT;
        long live = og_alloc_live();
        og_alloc_fail_at(n);
        int rc = og_hook_vm_create(&roomy, &vm, &err);
        if (rc == 0) rc = og_hook_run(vm, &b->call, &res, &err);
        int failed = og_alloc_failed();
        og_alloc_fail_at(0);
        if (rc < 0)
            assert_int_equal(rc, OG_ENOMEM);
        else
            assert_int_equal(res.n, 7);
        og_hook_result_free(&res);
        og_hook_vm_destroy(vm);
        assert_int_equal(og_alloc_live(), live);
        failures += rc < 0;
        if (!failed) break;
    }
    assert_true(n > 100);
    assert_true(failures >= 10);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_b089_work_in_c_loops),
        T(test_b089_patterns),
        T(test_b089_instructions_and_time),
        T(test_b089_values),
        T(test_memory_cap),
        T(test_what_is_not_there),
        T(test_b090_errors_of_every_shape),
        T(test_b091_globals_end_with_the_call),
        T(test_b091_states_are_released),
        T(test_b091_a_growing_state_fails_its_own_request),
        T(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
