/* The Lua API: sequences, rows, ctx, and what its errors say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nodes/load/json.h"
#include "tests/hook/hook_support.h"

#define NEEDS "local T, C = ctx.tables.text, ctx.tables.codec\n"

static const int32_t SAID[] = {10, 11, 12, 13, 14, 11};
static const og_row_span SPANS[] = {{1, 3, "image", {1, 2, 4}, 0}};
static const char *const SOURCES[] = {"ids",  "said",  "ref",  "vec",
                                      "list", "words", "gone", "next"};

/* Sources 0 to 7: ids, open ids, 5 code frames, a vector, two vectors in a list, a text,
 * an absent one, open vectors. */
static void set_sources(hs_bench *b, og_hook_source *s, og_hook_source *items) {
    items[0] = (og_hook_source){
        .kind = OG_HOOK_VECTOR, .present = 1, .count = 4, .width = 8, .grid = {1, 2, 2}};
    items[1] = (og_hook_source){.kind = OG_HOOK_VECTOR,
                                .present = 1,
                                .count = 2,
                                .width = 8,
                                .grid = {1, 1, 2},
                                .seconds = 1.5f};
    s[0] = (og_hook_source){.kind = OG_HOOK_IDS,
                            .present = 1,
                            .count = 6,
                            .ids = SAID,
                            .spans = SPANS,
                            .n_spans = 1};
    s[1] = (og_hook_source){.kind = OG_HOOK_IDS, .present = 1, .open = 1};
    s[2] = (og_hook_source){.kind = OG_HOOK_CODES, .present = 1, .count = 5, .width = 4};
    s[3] = (og_hook_source){.kind = OG_HOOK_VECTOR, .present = 1, .count = 1, .width = 8};
    s[4] = (og_hook_source){
        .kind = OG_HOOK_LIST, .present = 1, .items = items, .n_items = 2};
    s[5] = (og_hook_source){
        .kind = OG_HOOK_TEXT, .present = 1, .text = "two words", .text_len = 9};
    s[6] = (og_hook_source){.kind = OG_HOOK_CODES};
    s[7] = (og_hook_source){.kind = OG_HOOK_VECTOR, .present = 1, .open = 1, .width = 8};
    b->env.sources = SOURCES;
    b->env.n_sources = 8;
    b->call.sources = s;
}

typedef struct fixture {
    hs_bench b;
    og_hook_source src[8], items[2];
} fixture;

static int setup(void **state) {
    static fixture f;
    hs_open(&f.b);
    set_sources(&f.b, f.src, f.items);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    hs_close(&f->b);
    return 0;
}

static void test_rows_algebra(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    hs_expect(
        b, NEEDS "ctx:emit{prompt = T(1) .. T{2, 3} + C(4) .. (T(5) .. T(6)) + C{7, 8}}",
        "talker.prompt  5 rows\n"
        "     1  text[1]\n"
        "     2  text[2] + codec[4]\n"
        "     3  text[3] + codec[4]\n"
        "     4  text[5] + codec[7]\n"
        "     5  text[6] + codec[8]\n");
    hs_expect(b,
              NEEDS
              "local p = T{1, 2, 3, 4}\n"
              "assert(#p == 4 and #p:sub(2) == 3 and #p:sub(-2) == 2)\n"
              "assert(#p:sub(2, -2) == 2 and #p:sub(3, 2) == 0 and #p:sub(0, 99) == 4)\n"
              "assert(#p:rep(3) == 12 and #p:rep(0) == 0 and #T{} == 0)\n"
              "assert(#(T{} + C(1)) == 0 and #(T{}):rep(5) == 0)\n"
              "ctx:emit{prompt = p:sub(-2) .. C(1):rep(2)}",
              "talker.prompt  4 rows\n"
              "     1  text[3]\n"
              "     2  text[4]\n"
              "     3  codec[1]\n"
              "     4  codec[1]\n");
    hs_expect(b,
              NEEDS "local v = ctx.tables.visual(src.list[2])\n"
                    "ctx:emit{prompt = T(1) .. v:as('image', src.list[2].grid) .. T(2)}",
              "talker.prompt  4 rows\n"
              "     1  text[1]\n"
              "     2  visual(list[5])\n"
              "     3  visual(list[6])\n"
              "     4  text[2]\n"
              "  span image rows 2 to 3  grid 1 x 1 x 2  1.5 s\n");
}

static void test_rows_of_sources(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    hs_expect(
        b,
        NEEDS
        "local F = ctx.tables.frame\n"
        "ctx:emit{prompt = F(src.ref:sub(2, 3)) + C(1) .. ctx.tables.speaker(src.vec)"
        " .. T(src.ids:sub(-2))}",
        "talker.prompt  5 rows\n"
        "     1  frame(ref[2]) + codec[1]\n"
        "     2  frame(ref[3]) + codec[1]\n"
        "     3  speaker(vec[1])\n"
        "     4  text[14]\n"
        "     5  text[11]\n");
    assert_int_equal(b->res.emits[0].rows->n_sources, 4); /* vec is number 3 */
    static const char *const absent[] = {"never"};
    b->env.absent = absent;
    b->env.n_absent = 1;
    hs_ok(b, "assert(src.never == nil)");
}

static void test_open_rows(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    hs_expect(b, NEEDS "ctx:emit{feed = T(src.said:sub(2)) .. T(9), fill = T(3)}",
              "talker.feed  1 rows and more\n"
              "     1..  text(said[2..])\n"
              "     1  text[9]\n"
              "talker.feed  then in every step\n"
              "     1  text[3]\n");
    const og_recipe *r = b->res.emits[0].rows;
    assert_int_equal(r->open[0].source, 1);
    assert_int_equal(r->open_terms[0].step, 1);
    assert_int_equal(r->open_terms[0].term.index, 1);
    /* a known head: ids 3 to 6 of the prompt, then what is said */
    hs_expect(b,
              NEEDS "local s = src.ids:sub(5) .. src.said\n"
                    "assert(s.open and not src.ids.open and s[1] == 14)\n"
                    "ctx:emit{prompt = T(s:sub(1, 3)) + C(1), feed = T(s:sub(2)) + C(2)}",
              "talker.prompt  3 rows\n"
              "     1  text[14] + codec[1]\n"
              "     2  text[11] + codec[1]\n"
              "     3  text(said[1]) + codec[1]\n"
              "talker.feed  1 rows and more\n"
              "     1  text[11] + codec[2]\n"
              "     2..  text(said[1..]) + codec[2]\n");
    /* two open ones go in step: where one has a closed head the other is written out */
    hs_expect(b,
              NEEDS "local H = ctx.tables.hidden\n"
                    "local s = src.ids:sub(6) .. src.said\n"
                    "ctx:emit{feed = T(s) + H(src.next:sub(2)) .. T(9)}",
              "talker.feed  2 rows and more\n"
              "     1  text[11] + hidden(next[2])\n"
              "     2..  text(said[1..]) + hidden(next[3..])\n"
              "     2  text[9]\n");
    hs_expect(b,
              NEEDS "local p = T(1) .. T(src.said)\n"
                    "ctx:emit{prompt = p:sub(1, 3), feed = p:sub(4)}",
              "talker.prompt  3 rows\n"
              "     1  text[1]\n"
              "     2  text(said[1])\n"
              "     3  text(said[2])\n"
              "talker.feed  0 rows and more\n"
              "     1..  text(said[3..])\n");
}

static void test_sequences(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    hs_ok(b, "local s = src.ids\n"
             "assert(#s == 6 and s[1] == 10 and s[-1] == 11 and s[7] == nil)\n"
             "assert(s:find(11) == 2 and s:find(11, 3) == 6 and s:find(99) == nil)\n"
             "assert(s:find(10, 2) == nil and #s:sub(2, 4) == 3 and s:sub(-1)[1] == 11)\n"
             "assert(src.words == 'two words' and src.gone == nil and #src.list == 2)\n"
             "assert(src.list[1].grid[3] == 2 and src.list[2].grid[4] == 1.5)\n"
             "assert(src.ids.grid == nil and #src.ref == 5)");
    hs_ok(b,
          "local t = src.ids:spans(1, 6)\n"
          "assert(#t == 3 and t[1].kind == 'text' and t[1].from == 1 and t[1].to == 1)\n"
          "assert(t[2].kind == 'image' and t[2].from == 2 and t[2].to == 3)\n"
          "assert(t[2].grid[2] == 2 and t[3].from == 4 and t[3].to == 6)\n"
          "t = src.ids:spans(3, 4)\n"
          "assert(#t == 2 and t[1].kind == 'image' and t[1].grid == nil and t[2].from == "
          "4)");
    hs_expect(b,
              "ctx:emit{codes = src.ref:sub(2, 4), mute = true}\n"
              "ctx:emit{tokens = src.ids:sub(1, 2) .. src.ids:sub(6)}",
              "talker.codes  mute\n"
              "  ref[2..4]\n"
              "talker.tokens\n"
              "  ids 10 11\n"
              "  ids 11\n");
    hs_expect(b,
              "ctx:emit{tokens = src.ids:sub(1, 1) .. src.said:sub(3), drop = 2,\n"
              "limits = {min_tokens = 4, max_tokens = 9}}",
              "talker.tokens  min_tokens 4  max_tokens 9  drop 2\n"
              "  ids 10\n"
              "  said[3..]\n");
}

static void test_row_errors(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    hs_fails(b, NEEDS "local p = T{1, 2, 3} + C{1, 2, 3, 4, 5}", 2, "rows: 3 + 5");
    hs_fails(b, NEEDS "local p = T{1, 2, 3} + T(src.said)", 2, "rows: 3 + open");
    hs_fails(b, NEEDS "local p = T(src.said) .. T(src.said)", 2, "two open parts");
    hs_fails(b, NEEDS "local p = T(1) .. src.ids", 2,
             "rows on both sides, got rows .. ids");
    hs_fails(b, NEEDS "local p = T(1) .. 'x'", 2, "got rows .. string");
    hs_fails(b, NEEDS "local p = 1 + T(1)", 2, "got number + rows");
    hs_fails(b, "local p = src.ids + src.ids", 1, "look sequences up in a table first");
    hs_fails(b, NEEDS "local n = #T(src.said)", 2, "length of open rows");
    hs_fails(b, NEEDS "local n = T(src.said):sub(-1)", 2, "count from their start");
    hs_fails(b, NEEDS "local n = T(1):rep(-1)", 2, "negative count -1");
    hs_fails(b, NEEDS "local n = T(1):rep(1e9 // 1 | 0)", 2, "more than 1048576 rows");
    hs_fails(b, NEEDS "local n = T(1):as('picture')", 2, "unknown kind 'picture'");
    hs_fails(b, NEEDS "local n = T{1, 2, 3}:as('image', {1, 2, 4})", 2,
             "the grid 1 x 2 x 4 does not fit 3 rows");
    hs_fails(b, NEEDS "local n = T{1, 2}:as('image'):sub(2)", 2, "cut the image span");
    hs_fails(b, NEEDS "local n = T(1):repeated(2)", 2, "rows have no 'repeated'");
    hs_fails(b, NEEDS "T(1).x = 2", 2, "rows cannot be changed");
    hs_fails(b, NEEDS "local x = T(1)[1]", 2, "only describes");
}

static void test_sequence_errors(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    hs_fails(b, "return src.ref[1]", 1, "items of codes cannot be read");
    hs_fails(b, "return src.said[1]", 1, "still to be decoded");
    hs_fails(b, "return #src.said", 1, "length of an open sequence");
    hs_fails(b, "return src.said:sub(-2)", 1, "count from its start");
    hs_fails(b, "return src.said .. src.ids", 1, "nothing can follow an open sequence");
    hs_fails(b, "return src.ids .. src.ref", 1, "got ids .. codes");
    hs_fails(b, "return src.ids .. 'x'", 1, "got ids .. string");
    hs_fails(b, "return src.ids:fnd(1)", 1, "did you mean 'find'?");
    hs_fails(b, "return src.sayd", 1, "no source 'sayd' (did you mean 'said'?)");
    hs_fails(b, "src.ids[1] = 5", 1, "cannot be changed");
    hs_fails(b, "src.x = 5", 1, "read-only");
    hs_fails(b, "return src.ref:find(1)", 1, "only ids can");
    hs_fails(b, "return src.ids:sub('x')", 1, "number expected");
}

static void test_table_errors(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    hs_fails(b, "return ctx.tables.txt(1)", 1, "no table 'txt' (did you mean 'text'?)");
    hs_fails(b, NEEDS "return T(1000)", 2,
             "table 'text': id 1000 is out of range (it has 1000)");
    hs_fails(b, NEEDS "return C(-1)", 2, "id -1 is out of range");
    hs_fails(b, NEEDS "return T{1, 2, 'x'}", 2, "element 3 is a string");
    hs_fails(b, NEEDS "return T('x')", 2,
             "takes an id, a list of ids or ids, got string");
    hs_fails(b, NEEDS "return T(1.5)", 2, "got number");
    hs_fails(b, NEEDS "return T(src.ref)", 2, "got codes");
    hs_fails(b, NEEDS "return T(nil)", 2, "got nil");
    hs_fails(b, "return ctx.tables.frame(src.ids)", 1,
             "table 'frame' takes codes, got ids");
    hs_fails(b, "return ctx.tables.frame{1, 2}", 1,
             "table 'frame' takes codes, got table");
    hs_fails(b, NEEDS "local t = {}\nfor i = 1, 10 do t[i] = 999 + i end\nreturn T(t)", 4,
             "id 1000 is out of range");
    fixture *f = *state;
    f->src[2].width = 6;
    hs_fails(b, "return ctx.tables.frame(src.ref)", 1, "codes of width 4, got width 6");
}

static void test_emit_errors(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    hs_fails(b, NEEDS "ctx:emit{promt = T(1)}", 2,
             "no port 'promt' (did you mean 'prompt'?)");
    hs_fails(b, "ctx:emit{prompt = src.ids}", 1, "port 'prompt' takes rows, got ids");
    hs_fails(b, NEEDS "ctx:emit{codes = T(1)}", 2,
             "port 'codes' takes codes[$num_code_groups], got rows");
    hs_fails(b, "ctx:emit{codes = src.ids}", 1, "got ids");
    hs_fails(b, "ctx:emit{prompt = 'x'}", 1, "got string");
    hs_fails(b, "ctx:emit{}", 1, "no port given");
    hs_fails(b, "ctx:emit(5)", 1, "table expected");
    hs_fails(b, "ctx.emit{}", 1, "call it with a colon");
    hs_fails(b, NEEDS "ctx:emit{prompt = T(1), fill = T(1)}", 2,
             "fill belongs to a feed port");
    hs_fails(b, NEEDS "ctx:emit{feed = T(1), fill = T{1, 2}}", 2, "fill is one row");
    hs_fails(b, NEEDS "ctx:emit{prompt = T(1), drop = -1}", 2, "drop must be a count");
    hs_fails(b, NEEDS "ctx:emit{prompt = T(1), limits = {max = 1}}", 2,
             "limits has no 'max'");
    hs_fails(b, NEEDS "ctx:emit{prompt = T(1), lane = 'x'}", 2, "makes no lanes");
    hs_fails(b, NEEDS "ctx:emit{prompt = T(1), [1] = 2}", 2, "keys are names of ports");
    assert_int_equal(b->res.n, 0);
    assert_int_equal(hs_run(b, NEEDS "ctx:emit{prompt = T(1):rep(4097)}"), OG_ELIMIT);
    assert_non_null(
        strstr(b->err.msg, "prompt has 4097 rows, the limit of stage 'talker' is"));
    hs_fails(b, NEEDS "for i = 1, 2000 do ctx:emit{prompt = T(1)} end", 2,
             "more than 1024");
}

static void test_lanes(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    static const char *const lanes[] = {"cond", "uncond", "empty"};
    b->env.lanes = lanes;
    b->env.n_lanes = 3;
    hs_expect(b,
              NEEDS
              "ctx:emit{prompt = T(1)}\nctx:fork('uncond')\n"
              "ctx:emit{prompt = T(2), lane = 'uncond'}\nctx:fork('empty', 'uncond')",
              "talker.prompt  lane cond  1 rows\n"
              "     1  text[1]\n"
              "fork  lane uncond from lane cond\n"
              "talker.prompt  lane uncond  1 rows\n"
              "     1  text[2]\n"
              "fork  lane empty from lane uncond\n");
    hs_fails(b, "ctx:fork('uncnd')", 1, "no lane 'uncnd' (did you mean 'uncond'?)");
    hs_fails(b, "ctx:fork('cond')", 1, "cannot become itself");
    hs_fails(b, "ctx:fork(1)", 1, "a lane is a name here");
    b->env.n_lanes = 0;
    b->env.numbered = 1;
    b->call.lane = 4;
    hs_expect(b, NEEDS "ctx:emit{prompt = T(1)}\nctx:emit{prompt = T(2), lane = 2}",
              "talker.prompt  lane 5  1 rows\n"
              "     1  text[1]\n"
              "talker.prompt  lane 2  1 rows\n"
              "     1  text[2]\n");
    hs_fails(b, NEEDS "ctx:emit{prompt = T(1), lane = 0}", 2,
             "lane 0 is not in 1 to 256");
    hs_fails(b, NEEDS "ctx:emit{prompt = T(1), lane = 'a'}", 2,
             "lanes are numbered here");
}

static void test_config_and_request(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    hs_ok(b, "local c = ctx.cfg.root\n"
             "assert(c.pad_id == 7 and c.sub.a == 1 and c.sub.list[2] == 6 and "
             "#c.sub.list == 2)\n"
             "assert(c:get('nope') == nil and c.none == nil and c.sub.list[3] == nil)\n"
             "local n = 0\nfor k, v in pairs(c) do n = n + 1 end\nassert(n == 2)\n"
             "for i, v in ipairs(c.sub.list) do n = n + v end\nassert(n == 13)\n"
             "local r = ctx.request\n"
             "assert(r.text == 'hello' and r.voice == nil and table.concat(r.voices, "
             "'+') == 'x+y')\n"
             "assert(ctx.route == nil)");
    hs_fails(b, "return ctx.cfg.root.pad", 1, "the config has no 'root.pad'");
    hs_fails(b, "return ctx.cfg.root.pad_ids", 1, "(did you mean 'pad_id'?)");
    hs_fails(b, "return ctx.cfg.root.sub.b", 1, "no 'root.sub.b'");
    hs_fails(b, "return ctx.cfg.rot", 1, "ctx.cfg has no 'rot' (did you mean 'root'?)");
    hs_fails(b, "return ctx.request.langage", 1,
             "no field 'langage' (did you mean 'language'?)");
    hs_fails(b, "ctx.cfg.root.pad_id = 1", 1, "'root' is read-only");
    hs_fails(b, "ctx.x = 1", 1, "ctx is read-only");
    hs_fails(b, "return ctx.requests", 1,
             "ctx has no 'requests' (did you mean 'request'?)");
    hs_fails(b, "return ctx:tokenize('x')", 1, "stage 'talker' has no tokenizer");
}

static void test_reject_and_log(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    int rc = hs_run(b, "ctx:log('seen\\n' .. 1)\nctx:reject('voice', 'pick another')");
    assert_int_equal(rc, OG_EREJECT);
    assert_string_equal(b->err.field, "voice");
    assert_string_equal(b->err.msg, "pick another");
    assert_int_equal(b->err.line, 0);
    assert_int_equal(b->res.n_logs, 1);
    assert_string_equal(b->res.logs[0], "seen 1");
    /* it does not return, not even into pcall */
    rc = hs_run(b, "pcall(function() ctx:reject('text', 'no') end)\nerror('went on')");
    assert_int_equal(rc, OG_EREJECT);
    hs_ok(b, "for i = 1, 100 do ctx:log(('x'):rep(1000)) end");
    assert_int_equal(b->res.n_logs, OG_HOOK_MAX_LOGS);
    assert_int_equal(strlen(b->res.logs[0]), OG_HOOK_LOG_BYTES);
    assert_int_equal(b->res.warnings, 0);
    hs_ok(b, "ctx:log('one')\nctx:warn('two')");
    assert_int_equal(b->res.n_logs, 2);
    assert_int_equal(b->res.warnings, 2);
    assert_string_equal(b->res.logs[1], "two");
    /* kept when the hook fails */
    hs_run(b, "ctx:warn('first')\nctx:reject('text', 'no')");
    assert_int_equal(b->res.warnings, 1);
}

static void test_errors_say_where(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    hs_fails(b, "local function inner()\n  error('broken')\nend\ninner()", 2,
             "broken\ntraceback:");
    assert_non_null(strstr(b->err.msg, "in inner"));
    assert_non_null(strstr(b->err.msg, ".lua:6")); /* the caller */
    hs_fails(b, "local x = nil\nreturn x.y", 2,
             "attempt to index a nil value (local 'x')");
    hs_fails(b, "local ok, e = pcall(error, 'again')\nerror(e, 0)", 2, "again");
    assert_string_equal(b->err.node, "talker");
}

static void test_next_hooks(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    b->call.done_phase = "read";
    b->call.done_stop = 42;
    hs_expect(b, "return src.phase == 'read' and src.stop == 42 and 'write'",
              "next phase: write\n");
    b->call.done_stop = -1;
    hs_expect(b, "assert(src.stop == nil)", "");
    assert_null(b->res.next);
    hs_fails(b, "return 5", 0, "a next hook returns a phase or nil, not a number");
    hs_fails(b, "ctx:emit{prompt = 1}", 1, "this hook has no ports");
    b->call.done_phase = NULL;
}

static void test_state_lives_as_long_as_the_request(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    og_hook_state *st = og_hook_state_create();
    b->request.state = st;
    hs_dir_text(&b->dir, "st",
                "return {f = function(ctx) ctx.state.n = (ctx.state.n or 0) + 1\n"
                "if ctx.state.n == 3 then ctx:reject('text', 'three') end end}");
    b->env.file = "st";
    assert_int_equal(og_hook_run(b->vm, &b->call, &b->res, &b->err), 0);
    assert_int_equal(og_hook_run(b->vm, &b->call, &b->res, &b->err), 0);
    b->request.state = NULL; /* another request */
    assert_int_equal(og_hook_run(b->vm, &b->call, &b->res, &b->err), 0);
    b->request.state = st;
    assert_int_equal(og_hook_run(b->vm, &b->call, &b->res, &b->err), OG_EREJECT);
    og_hook_vm_release(b->vm, st);
    b->request.state = NULL;
    hs_fails(b, "ctx.state.f = function() end", 0, "ctx.state holds function");
    hs_fails(b, "ctx.state.a = {b = {src.ids}}", 0, "ctx.state holds ids");
    hs_fails(b, "local t = ctx.state\nfor i = 1, 40 do t.t = {}; t = t.t end", 0,
             "nested deeper than 32");
    hs_fails(b, "local t = ctx.state\nt.x = ('x'):rep(2^19 | 0) .. ('y'):rep(2^19 | 0)",
             0, "more than 1024 KiB");
    hs_ok(b, "local t = ctx.state\nt.self = t\nt[1] = {t, 'x', 2.5, true}");
}

static void test_modules(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    hs_dir_text(&b->dir, "lib",
                "local n = 0\nreturn {count = function() n = n + 1; return n end}");
    hs_dir_text(&b->dir, "ring_a", "local b = use 'ring_b'\nreturn {}");
    hs_dir_text(&b->dir, "ring_b", "local a = use 'ring_a'\nreturn {}");
    hs_dir_text(&b->dir, "bad", "return {\n  x = = 2}");
    hs_dir_text(&b->dir, "five", "return 5");
    for (int i = 0; i < 2; i++) /* a file's own variables begin anew in each call */
        hs_ok(b, "local l, m = use 'lib', use 'lib'\nassert(l == m and l.count() == 1)");
    hs_fails(b, "use 'ring_a'", 0, "in a circle: ring_a uses ring_b uses ring_a");
    hs_fails(b, "use 'bad'", 0, "unexpected symbol near '='");
    assert_string_equal(b->err.file, "bad.lua");
    assert_int_equal(b->err.line, 2);
    hs_fails(b, "use 'five'", 0, "five.lua must return a table of functions, not number");
    hs_fails(b, "use '../etc/passwd'", 1, "is no file name");
    assert_int_equal(hs_run(b, "use 'nowhere'"), OG_ENOENT);
    assert_non_null(strstr(b->err.msg, "no nowhere.lua"));
    assert_int_equal(hs_run(b, "pcall(use, 'bad')\nuse 'lib'"), 0);
}

static void test_check(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    og_err err = OG_ERR_INIT;
    hs_dir_text(&b->dir, "good", "return {prompt = function() end}");
    hs_dir_text(&b->dir, "bad", "local x =\n\nreturn {");
    assert_int_equal(og_hook_check(b->dirs, 2, "good", "prompt", &err), 0);
    assert_int_equal(og_hook_check(b->dirs, 2, "good", "promt", &err), OG_ESPEC);
    assert_string_equal(err.msg,
                        "good.lua has no function 'promt' (did you mean 'prompt'?)");
    og_err_clear(&err);
    assert_int_equal(og_hook_check(b->dirs, 2, "bad", "prompt", &err), OG_EHOOK);
    assert_string_equal(err.file, "bad.lua");
    assert_int_equal(err.line, 3);
    og_err_clear(&err);
    assert_int_equal(og_hook_check(b->dirs, 2, "gone", "prompt", &err), OG_ENOENT);
    og_err_clear(&err);
    assert_int_equal(og_hook_check(b->dirs, 2, "qwen3_tts", "prompt", &err), 0);
}

static void test_re(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    hs_ok(b, "assert(re.match('key = value', '(\\\\w+) = (\\\\w+)') == 'key')\n"
             "local a, z, c = re.find('xx42yy', '(\\\\d)\\\\d')\nassert(a == 3 and z == "
             "4 and c == '4')\n"
             "assert(re.find('abc', 'x') == nil and re.match('abc', 'b', 3) == nil)\n"
             "assert(re.match('abc', '.', -1) == 'c' and re.match('abc', '', 9) == nil)");
    hs_ok(b, "local t = {}\nfor w in re.gmatch('one two  three', '\\\\w+') do t[#t + 1] "
             "= w end\n"
             "assert(table.concat(t, ',') == 'one,two,three')\n"
             "t = {}\nfor k, v in re.gmatch('a=1 b=2', '(\\\\w)=(\\\\w)') do t[#t + 1] = "
             "k .. v end\n"
             "assert(table.concat(t, ',') == 'a1,b2')\n"
             "local n = 0\nfor _ in re.gmatch('h\\u{e9}llo', '') do n = n + 1 "
             "end\nassert(n == 6)");
    hs_ok(b, "assert(re.gsub('a  b   c', '\\\\s+', ' ') == 'a b c')\n"
             "local s, n = re.gsub('john smith', '(\\\\w+) (\\\\w+)', '$2, ${1}0 $$')\n"
             "assert(s == 'smith, john0 $' and n == 1)\n"
             "assert(re.gsub('abc', '\\\\w', function(c) return c == 'b' and 'B' end) == "
             "'aBc')\n"
             "assert(re.gsub('abc', '\\\\w', {a = '1', c = 3}) == '1b3')\n"
             "assert(re.gsub('aaa', 'a', 'b', 2) == 'bba')\n"
             "assert(re.gsub('abc', '', '-') == '-a-b-c-')\n"
             "assert(re.gsub('\\u{3000}x', '^\\\\s+', '') == 'x')\n" /* a Unicode space */
             "assert(select('#', re.match('ac', '(a)(b)?(c)')) == 3)");
    hs_ok(b, "local s = re.gsub('a1b2', '(\\\\w)(\\\\d)', function(x, y)\n"
             "return re.gsub(x, '(\\\\w)', '<$1>') .. re.match(y, '\\\\d') end)\n"
             "assert(s == '<a>1<b>2')");
    hs_fails(b, "re.match('x', '(')", 1, "pattern, at character 2");
    hs_fails(b, "re.gsub('x', 'x', '$1')", 1, "bad '$' in the replacement");
    hs_fails(b, "re.match('\\xff\\xfe', 'x')", 1, "UTF-8");
    hs_fails(b, "re.gsub('x', 'x', function() return {} end)", 1,
             "must be a string, got table");
    hs_fails(b, "re.match('x', ('x'):rep(2000))", 1, "pattern");
    hs_fails(b, "re.gsub('x', 'x', function() error('inside') end)", 1, "inside");
}

static void test_strings(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    hs_ok(b,
          "assert(string.find('a.b', '.', 1, true) == 2 and ('a.b'):find('.') == 2)\n"
          "assert(string.find('abc', '') == 1 and string.find('abc', 'c', -1) == 3)\n"
          "assert(string.find('abc', 'x') == nil and string.find('abc', 'a', 2) == nil)\n"
          "assert(('Ryan'):lower() == 'ryan' and ('ab'):rep(3, '-') == 'ab-ab-ab')\n"
          "assert(('%d %s %5.2f'):format(1, 'x', 2) == '1 x  2.00')\n"
          "assert(tostring({}) == 'table' and ('%s'):format({}) == 'table')\n"
          "assert(tostring(nil) == 'nil' and tostring(1.5) == '1.5' and "
          "tostring(src.ids) == 'ids')");
    hs_fails(b, "return ('x'):match('x')", 1,
             "string.match is not part of hooks: use re.match");
    hs_fails(b, "return string.gsub('x', 'x', 'y')", 1, "use re.gsub");
    hs_fails(b, "return ('%p'):format({})", 1, "not part of hooks");
}

/* The file for editors, the documentation and the VM name the same functions. */
static void test_documentation_and_definitions_agree(void **state) {
    hs_bench *b = &((fixture *)*state)->b;
    static const char *const where[][2] = {{"function ctx:", "ctx"},
                                           {"function Seq:", "src.ids"},
                                           {"function re.", "re"},
                                           {"function Rows:", "ctx.tables.text(1)"},
                                           {"function Config:", "ctx.cfg.root"}};
    char *defs, *docs, body[128];
    size_t len;
    int n = 0;
    assert_int_equal(og_file_read(HS_LUA "/omni.d.lua", 1 << 20, &defs, &len, &b->err),
                     0);
    assert_int_equal(
        og_file_read(OG_SOURCE_DIR "/docs/hooks.md", 1 << 20, &docs, &len, &b->err), 0);
    for (size_t i = 0; i < sizeof where / sizeof *where; i++)
        for (char *p = defs; (p = strstr(p, where[i][0]));) {
            p += strlen(where[i][0]);
            int name = (int)strcspn(p, "(");
            snprintf(body, sizeof body, "assert(type(%s.%.*s) == 'function')",
                     where[i][1], name, p);
            hs_ok(b, body);
            snprintf(body, sizeof body, "%.*s(", name, p);
            if (!strstr(docs, body)) fail_msg("docs/hooks.md does not mention %s", body);
            n++;
        }
    assert_int_equal(n, 18);
    og_free(defs);
    og_free(docs);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_rows_algebra),
        T(test_rows_of_sources),
        T(test_open_rows),
        T(test_sequences),
        T(test_row_errors),
        T(test_sequence_errors),
        T(test_table_errors),
        T(test_emit_errors),
        T(test_lanes),
        T(test_config_and_request),
        T(test_reject_and_log),
        T(test_errors_say_where),
        T(test_next_hooks),
        T(test_state_lives_as_long_as_the_request),
        T(test_modules),
        T(test_check),
        T(test_re),
        T(test_strings),
        T(test_documentation_and_definitions_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
