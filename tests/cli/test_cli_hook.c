/* hook test: which functions run, what their fixtures give, where failures are told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cli/program.h"

/* Write a file of Lua and test it. */
static ran lua(const char *name, const char *text) {
    char path[256];
    write_text(in_scratch(path, sizeof path, name), text);
    return program("hook", "test", path, NULL);
}

static void is(ran r, int code, const char *out) {
    if (r.code != code)
        fail_msg("exit code %d, not %d:\n%s%s", r.code, code, r.out, r.err);
    assert_has(r.out, out);
    ran_free(&r);
}

static const char toy[] =
    "local M = {}\n"
    "function M.prompt(ctx, src)\n"
    "    local T, C = ctx.tables.text, ctx.tables.codec\n"
    "    if src.text == '' then ctx:reject('text', 'it is empty') end\n"
    "    ctx:emit{prompt = T(ctx:tokenize(src.text)) + C(ctx.cfg.talker.pad)}\n"
    "end\n"
    "local function fixture(text)\n"
    "    return {arch = 'qwen3_tts_talker', request = {text = text},\n"
    "            cfg = {talker = {pad = 7, vocab_size = 9, text_vocab_size = 300,\n"
    "                             num_code_groups = 2, hidden_size = 4,\n"
    "                             code_predictor_config = {vocab_size = 8}}},\n"
    "            tokens = {['<|x|>'] = 299}}\n"
    "end\n";

static ran toy_test(const char *tests) {
    char text[4096];
    snprintf(text, sizeof text, "%s%s\nreturn M\n", toy, tests);
    return lua("toy.lua", text);
}

static void test_rows(void **state) {
    (void)state;
    is(toy_test(
           "function M.test_rows(t)\n"
           "    t:eq(t:hook('prompt', fixture('A<|x|>')), [[\n"
           "        talker.prompt  2 rows\n"
           "        1  text[65] + codec[7]\n"
           "        2  text[299] + codec[7]\n"
           "    ]])\n"
           "    t:eq(t:hook('toy.prompt', fixture('B'))[2], '1  text[66] + codec[7]')\n"
           "end"),
       0, "ok    test_rows\n1 passed, 0 failed\n");
}

static void test_rejections(void **state) {
    (void)state;
    is(toy_test("function M.test_r(t)\n"
                "    local field, text = t:rejects('prompt', fixture(''))\n"
                "    t:eq({field, text}, {'text', 'it is empty'})\n"
                "end"),
       0, "1 passed, 0 failed");
    is(toy_test("function M.test_r(t) t:rejects('prompt', fixture('a')) end"), 1,
       "toy.lua:14: prompt did not reject");
    is(toy_test("function M.test_r(t) t:hook('prompt', fixture('')) end"), 1,
       "toy.lua:14: text: it is empty");
}

static void test_order_and_names(void **state) {
    (void)state;
    is(lua("order.lua",
           "local M = {}\n"
           "function M.test_b() end\nfunction M.test_a() end\n"
           "function M.testing() error('no') end\nM.test_no = 1\nreturn M\n"),
       0, "ok    test_b\nok    test_a\n2 passed, 0 failed\n");
    is(lua("none.lua", "return {}"), 1, "0 passed, 0 failed");
}

static void test_a_failure_has_its_place(void **state) {
    (void)state;
    ran r = lua("bad.lua", "local M = {}\n"
                           "function M.test_list(t)\n"
                           "    t:eq({1, {'x', 'y'}}, {1, {'x', 'z'}}, 'rows')\n"
                           "end\n"
                           "function M.test_key(t) t:eq({a = 1}, {a = 1, b = 2}) end\n"
                           "function M.test_type(t) t:eq('1', 1) end\n"
                           "function M.test_ok(t) t:ok(nil, 'it is nil') end\n"
                           "function M.test_good(t) t:ok(true) end\n"
                           "return M\n");
    assert_int_equal(r.code, 1);
    assert_has(r.out, "/bad.lua:3: rows[2][2]: got \"y\"\n  want \"z\"\n");
    assert_has(r.out, "/bad.lua:5: .b: got nil\n  want 2\n");
    assert_has(r.out, "/bad.lua:6: got \"1\"\n  want 1\n");
    assert_has(r.out, "/bad.lua:7: it is nil\n");
    assert_has(r.out, "ok    test_good\n1 passed, 4 failed\n");
    ran_free(&r);
}

static void test_a_hook_that_fails(void **state) {
    (void)state;
    ran r = toy_test("function M.boom() local x = nil; x() end\n"
                     "function M.test_b(t) t:hook('boom', {}) end");
    assert_int_equal(r.code, 1);
    assert_has(r.out, "toy.lua:14: attempt to call a nil value (local 'x')");
    ran_free(&r);
    is(toy_test("function M.test_c(t)\n"
                "    t:eq(pcall(t.hook, t, 'prompt', fixture('')), false)\nend"),
       0, "1 passed");
    is(lua("syntax.lua", "return {"), 1, "");
    ran s = lua("syntax.lua", "return {");
    assert_has(s.err, "syntax.lua:1:");
    ran_free(&s);
}

static void test_fixtures_are_checked(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{reqest = {}}", "fixture: unknown key 'reqest' (did you mean 'request'?)"},
        {"{arch = 'talker'}", "fixture: there is no arch 'talker'"},
        {"{lanes = 'three'}", "fixture: lanes: a list or numbered, not three"},
        {"{src = {x = {kind = 'sound'}}}", "fixture: a source's kind is ids, codes,"},
        {"{src = {x = {1.5}}}", "fixture: a source's ids are integers"},
        {"{request = {f = print}}", "fixture: it may hold plain data only"},
        {"{request = {[1.5] = 1}}", "fixture: its keys must be strings"},
        {"{request = {text = '\\255'}}", "fixture: a text is not UTF-8"},
        {"{tokens = {['<|x|>'] = -4}}", "tokens"},
        {"3", "table expected, got number"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "local M = {h = function() end}\nlocal print = 1 and function() end\n"
                 "function M.test_f(t) t:hook('h', %s) end\nreturn M\n",
                 cases[i][0]);
        is(lua("fixture.lua", text), 1, cases[i][1]);
    }
}

static void test_sources_and_lanes(void **state) {
    (void)state;
    is(lua("src.lua",
           "local M = {}\n"
           "function M.h(ctx, src)\n"
           "    assert(src.gone == nil and #src.ids == 3 and src.said.open)\n"
           "    assert(#src.none == 0 and src.pic.width == 4 and ctx.request.voice == "
           "nil)\n"
           "    ctx.state.n = 1\n"
           "    ctx:emit{codes = src.said, lane = 2}\n"
           "end\n"
           "function M.test_h(t)\n"
           "    for i = 1, 2 do\n"
           "        t:eq(t:hook('h', {arch = 'qwen3_tts_code2wav', stage = 'wav',\n"
           "            lanes = 'numbered', request = {}, fields = {'voice'}, src = {\n"
           "                gone = false, ids = {4, 5, 6}, none = {},\n"
           "                said = {kind = 'codes', open = true, width = 2},\n"
           "                pic = {kind = 'media', value = {width = 4}}}}),\n"
           "            {'wav.codes  lane 2', 'said[1..]'})\n"
           "    end\n"
           "end\n"
           "return M\n"),
       0, "1 passed, 0 failed");
}

/* The sandbox of hooks: what runs away ends. */
static void test_the_sandbox_holds(void **state) {
    (void)state;
    is(lua("loop.lua", "return {test_l = function() while true do end end,\n"
                       "test_m = function(t) t:hook('l', {}) end,\n"
                       "l = function() while true do end end}"),
       1, "0 passed, 2 failed");
    is(lua("deep.lua", "local M = {}\nfunction M.test_d(t)\n"
                       "local a = {} a.a = a\n"
                       "t:ok(not pcall(t.hook, t, 'x', a))\n"
                       "local b = {} b.a = b\nt:ok(not pcall(t.eq, t, a, b))\n"
                       "t:ok(not pcall(function() return load end))\n"
                       "end\nreturn M\n"),
       0, "1 passed, 0 failed");
}

static void test_usage(void **state) {
    (void)state;
    assert_ends(program("hook", "run", "x.lua", NULL), 2, "only 'hook test FILE'");
    assert_ends(program("hook", "test", "nowhere.lua", NULL), 2, "cannot read");
    assert_ends(program("hook", "test", "README.md", NULL), 2, "is no .lua file");
    assert_ends(program("hook", "test", NULL), 2, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rejections),
        cmocka_unit_test(test_order_and_names),
        cmocka_unit_test(test_a_failure_has_its_place),
        cmocka_unit_test(test_a_hook_that_fails),
        cmocka_unit_test(test_fixtures_are_checked),
        cmocka_unit_test(test_sources_and_lanes),
        cmocka_unit_test(test_the_sandbox_holds),
        cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests(tests, enter_source_tree, remove_scratch);
}
