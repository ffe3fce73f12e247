/* Garbage as hook source: bytes, broken files of ours, and random programs over the API's
 * own words. Nothing may crash, hang or leak; the seed is fixed. OG_FUZZ_N sets the
 * number of programs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nodes/load/json.h"
#include "tests/hook/hook_support.h"

static uint64_t seed = 20260101;

static uint32_t rnd(uint32_t n) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % n;
}

static int programs(int def) {
    const char *n = getenv("OG_FUZZ_N");
    return n ? atoi(n) : def;
}

static const int32_t IDS[] = {1, 2, 3, 4};
static const og_row_span SPANS[] = {{1, 3, "image", {1, 1, 2}, 0}};
static const char *const SOURCES[] = {"ids", "said", "ref", "vec", "list"};
static const char *const LANES[] = {"a", "b"};
static const og_hook_source ITEMS[] = {
    {.kind = OG_HOOK_VECTOR, .present = 1, .count = 2, .grid = {1, 1, 2}},
    {.kind = OG_HOOK_VECTOR, .present = 1, .count = 3}};
static const og_hook_source SRC[] = {
    {.kind = OG_HOOK_IDS,
     .present = 1,
     .count = 4,
     .ids = IDS,
     .spans = SPANS,
     .n_spans = 1},
    {.kind = OG_HOOK_IDS, .present = 1, .open = 1},
    {.kind = OG_HOOK_CODES, .present = 1, .count = 5, .width = 4},
    {.kind = OG_HOOK_VECTOR, .present = 1, .open = 1, .width = 8},
    {.kind = OG_HOOK_LIST, .present = 1, .items = ITEMS, .n_items = 2}};

static void set_up(hs_bench *b) {
    og_hook_limits limits = {100000, 20000, 4u << 20, 16u << 20, 1u << 16};
    hs_open_limits(b, &limits);
    b->env.sources = SOURCES;
    b->env.n_sources = 5;
    b->env.lanes = LANES;
    b->env.n_lanes = 2;
    b->call.sources = SRC;
    b->env.file = "fuzz";
}

/* A new VM now and then, as files are parsed once per VM. */
static int run_text(hs_bench *b, const char *text, size_t len) {
    og_hook_limits limits = {100000, 20000, 4u << 20, 16u << 20, 1u << 16};
    hs_dir_write(&b->dir, "fuzz", text, len);
    og_hook_vm_destroy(b->vm);
    og_err_clear(&b->err);
    assert_int_equal(og_hook_vm_create(&limits, &b->vm, &b->err), 0);
    int rc = og_hook_run(b->vm, &b->call, &b->res, &b->err);
    if (rc == 0) {
        og_str s = OG_STR_INIT;
        og_hook_print(&b->res, &b->env, &s);
        og_str_free(&s);
    }
    og_hook_result_free(&b->res);
    return rc;
}

static void test_bytes(void **state) {
    (void)state;
    hs_bench b;
    set_up(&b);
    for (int i = 0; i < programs(300); i++) {
        char text[200];
        size_t n = rnd(sizeof text);
        for (size_t k = 0; k < n; k++) text[k] = (char)rnd(256);
        if (n > 4 && rnd(4) == 0) memcpy(text, "\x1bLua", 4);
        assert_true(run_text(&b, text, n) < 0);
    }
    hs_close(&b);
}

static void test_broken_files(void **state) {
    (void)state;
    static const char *const files[] = {"qwen3_tts", "bagel", "dialogue", "qwen3_omni"};
    static const char *const functions[] = {"prompt", "read", "lines", "talker"};
    hs_bench b;
    set_up(&b);
    for (int i = 0; i < programs(300); i++) {
        char path[512], *text = NULL;
        size_t len = 0;
        int f = (int)rnd(4);
        snprintf(path, sizeof path, "%s/%s.lua", HS_LUA, files[f]);
        assert_int_equal(og_file_read(path, 1 << 20, &text, &len, &b.err), 0);
        for (uint32_t k = rnd(4); k + 1 > 0 && k < 4; k--)
            text[rnd((uint32_t)len)] = (char)rnd(128);
        size_t at = rnd((uint32_t)len), cut = rnd(20);
        if (at + cut < len && rnd(2)) {
            memmove(text + at, text + at + cut, len - at - cut);
            len -= cut;
        }
        b.env.function = functions[f];
        assert_true(run_text(&b, text, len) <= 0);
        og_free(text);
    }
    hs_close(&b);
}

/* Words that make mostly valid expressions of the API. */
static const char *const ATOMS[] = {"src.ids",
                                    "src.said",
                                    "src.ref",
                                    "src.vec",
                                    "src.list[1]",
                                    "src.list",
                                    "T(1)",
                                    "T{1, 2, 3}",
                                    "T{}",
                                    "C(2)",
                                    "T(src.ids)",
                                    "T(src.said)",
                                    "F(src.ref)",
                                    "H(src.vec)",
                                    "H(src.list[2])",
                                    "1",
                                    "-1",
                                    "0",
                                    "3",
                                    "1 << 20",
                                    "math.huge",
                                    "nil",
                                    "'x'",
                                    "{}",
                                    "{1, 2}",
                                    "ctx",
                                    "ctx.state",
                                    "x",
                                    "y",
                                    "ctx.request",
                                    "ctx.cfg.root",
                                    "ctx.cfg.root.sub",
                                    "'text'",
                                    "function(a) return a end",
                                    "{1, 1, 2}"};
static const char *const METHODS[] = {"sub",   "rep",   "as",       "find",
                                      "spans", "get",   "emit",     "log",
                                      "fork",  "lower", "tokenize", "reject",
                                      "warn"};
static const char *const OPERATORS[] = {" .. ", " + ", " == ", " < ", " and ", " or "};
static const char *const CALLS[] = {
    "re.match", "re.gsub", "re.gmatch", "table.concat", "table.insert", "table.sort",
    "pcall",    "ipairs",  "pairs",     "next",         "tostring",     "string.format",
    "select",   "T",       "C",         "rawset",       "table.unpack", "string.rep",
    "re.find",  "type"};
#define PICK(a) a[rnd(sizeof a / sizeof *a)]

static void expression(og_str *s, int depth) {
    switch (depth > 3 ? 0 : rnd(7)) {
    default: og_str_add(s, PICK(ATOMS)); break;
    case 3:
        og_str_add(s, "(");
        expression(s, depth + 1);
        og_str_add(s, PICK(OPERATORS));
        expression(s, depth + 1);
        og_str_add(s, ")");
        break;
    case 4:
        og_str_add(s, "(");
        expression(s, depth + 1);
        og_str_addf(s, "):%s(", PICK(METHODS));
        expression(s, depth + 1);
        if (rnd(2)) {
            og_str_add(s, ", ");
            expression(s, depth + 1);
        }
        og_str_add(s, ")");
        break;
    case 5:
        og_str_addf(s, "%s(", PICK(CALLS));
        expression(s, depth + 1);
        if (rnd(2)) {
            og_str_add(s, ", ");
            expression(s, depth + 1);
        }
        og_str_add(s, ")");
        break;
    case 6:
        og_str_add(s, rnd(2) ? "#" : "-");
        expression(s, depth + 1);
        break;
    }
}

static void statement(og_str *s, int depth) {
    switch (depth > 2 ? rnd(3) : rnd(7)) {
    case 0:
        og_str_add(s, rnd(2) ? "local x = " : "y = ");
        expression(s, 0);
        break;
    case 1:
        og_str_addf(s, "ctx:emit{%s = ", rnd(2) ? "prompt" : "feed");
        expression(s, 1);
        if (rnd(3) == 0) {
            og_str_add(s, ", fill = ");
            expression(s, 2);
        }
        if (rnd(3) == 0) og_str_add(s, ", lane = 'b', drop = 1");
        og_str_add(s, "}");
        break;
    case 2:
        og_str_addf(s, "ctx:emit{%s = ", rnd(2) ? "codes" : "tokens");
        expression(s, 1);
        og_str_add(s, "}");
        break;
    case 3:
        og_str_add(s, "for i = 1, 9 do ");
        statement(s, depth + 1);
        og_str_add(s, " end");
        break;
    case 4:
        og_str_add(s, "pcall(function() ");
        statement(s, depth + 1);
        og_str_add(s, " end)");
        break;
    case 5:
        og_str_add(s, "if ");
        expression(s, 1);
        og_str_add(s, " then ");
        statement(s, depth + 1);
        og_str_add(s, " end");
        break;
    default: og_str_add(s, "ctx.state[1] = "); expression(s, 1);
    }
}

static void test_random_programs(void **state) {
    (void)state;
    hs_bench b;
    int good = 0, n = programs(3000);
    set_up(&b);
    b.env.function = "f";
    long live = og_alloc_live();
    for (int i = 0; i < n; i++) {
        og_str s = OG_STR_INIT;
        og_str_add(
            &s, "local M = {}\nfunction M.f(ctx, src)\n"
                "local T, C, F, H = ctx.tables.text, ctx.tables.codec, ctx.tables.frame,"
                " ctx.tables.hidden\nlocal x, y = T(1), src.ids\n");
        for (int k = 0; k < 6; k++) { /* pcall keeps most programs going */
            og_str_add(&s, "pcall(function() ");
            statement(&s, 0);
            og_str_add(&s, " end)\n");
        }
        og_str_add(&s, "end\nreturn M\n");
        good += run_text(&b, s.data, s.len) == 0;
        og_str_free(&s);
    }
    assert_true(good > n / 10);
    run_text(&b, "return {f = function() end}", 27);
    assert_true(og_alloc_live() <= live + 100);
    hs_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_broken_files),
        cmocka_unit_test(test_random_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
