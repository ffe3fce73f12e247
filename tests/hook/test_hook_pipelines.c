/* Every Lua file that we ship: it loads, and its hooks run on made-up sources. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>

#include "tests/hook/hook_support.h"

/* ---- a tokenizer of single characters and marks ---------------------------------- */

static const char *const MARKS[] = {
    "<|im_start|>",   "<|im_end|>",      "<|vision_start|>",
    "<|vision_end|>", "<|image_pad|>",   "<|video_pad|>",
    "<|audio_pad|>",  "<|audio_start|>", "<|audio_end|>",
    "<|tts|>",        "<|text|>",        "<|ref_text|>",
    "<|ref_audio|>",  "<|audio|>",       "user",
    "assistant"};

static og_tokenizer *make_tokenizer(void) {
    og_str s = OG_STR_INIT;
    og_err err = OG_ERR_INIT;
    og_tokenizer *t = NULL;
    int id = 0;
    og_str_add(&s, "{\"added_tokens\": [");
    for (size_t i = 0; i < sizeof MARKS / sizeof *MARKS; i++)
        og_str_addf(&s,
                    "%s{\"id\": %d, \"content\": \"%s\", \"special\": true,"
                    " \"single_word\": false, \"lstrip\": false, \"rstrip\": false,"
                    " \"normalized\": false}",
                    i ? "," : "", 500 + (int)i, MARKS[i]);
    og_str_add(
        &s, "], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\","
            " \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": true},"
            " \"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"},"
            " \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {");
    for (int c = 33; c < 127; c++)
        og_str_addf(&s, c == '"' || c == '\\' ? "\"\\%c\": %d, " : "\"%c\": %d, ", c,
                    id++);
    og_str_addf(&s, "\"\\u0120\": %d, \"\\u010a\": %d}}}", id, id + 1);
    if (og_tokenizer_open_json("toy", s.data, s.len, &t, &err) < 0)
        fail_msg("%s", err.msg);
    og_str_free(&s);
    return t;
}

/* ---- a run ----------------------------------------------------------------------- */

typedef struct dry {
    og_hook_vm *vm;
    og_tokenizer *tok;
    og_hook_env env;
    og_hook_call call;
    og_hook_request request;
    og_hook_result res;
    og_err err;
    og_str out;
    json_t *cfg_json[4], *fields;
    og_hook_cfg cfg[4];
    const char *field_names[16];
} dry;

static const char *const DIRS[] = {HS_LUA};

static void dry_open(dry *d, const char *file, const char *function) {
    og_hook_limits roomy = HS_ROOMY;
    memset(d, 0, sizeof *d);
    if (og_hook_vm_create(&roomy, &d->vm, &d->err) < 0) fail_msg("%s", d->err.msg);
    d->tok = make_tokenizer();
    d->env = (og_hook_env){.file = file,
                           .function = function,
                           .dirs = DIRS,
                           .n_dirs = 1,
                           .stage = "stage",
                           .to = &hs_arch,
                           .tokenizer = d->tok,
                           .max_rows = 4096,
                           .ports = hs_edge_ports,
                           .n_ports = 5,
                           .cfg = d->cfg,
                           .fields = d->field_names};
    d->request.state = og_hook_state_create();
    d->call = (og_hook_call){.env = &d->env, .request = &d->request};
}

static void dry_cfg(dry *d, const char *name, const char *json) {
    json_t *j = d->cfg_json[d->env.n_cfg] = hs_json(json);
    d->cfg[d->env.n_cfg++] = (og_hook_cfg){name, j};
}

/* fields as JSON; a null stands for a field that is declared and absent. */
static void dry_request(dry *d, const char *json) {
    json_decref(d->fields);
    d->request.fields = d->fields = hs_json(json);
    d->env.n_fields = 0;
    const char *key;
    json_t *v;
    json_object_foreach(d->fields, key, v) d->field_names[d->env.n_fields++] = key;
}

static int dry_run(dry *d) {
    og_hook_result_free(&d->res);
    og_err_clear(&d->err);
    og_str_free(&d->out);
    d->out = (og_str)OG_STR_INIT;
    int rc = og_hook_run(d->vm, &d->call, &d->res, &d->err);
    if (rc == 0) og_hook_print(&d->res, &d->env, &d->out);
    return rc;
}

static void dry_ok(dry *d) {
    if (dry_run(d) < 0) fail_msg("%s:%d: %s", d->err.file, d->err.line, d->err.msg);
}

static void dry_rejects(dry *d, const char *field, const char *text) {
    int rc = dry_run(d);
    if (rc != OG_EREJECT) fail_msg("%s: %s", og_err_name(rc), d->err.msg);
    assert_string_equal(d->err.field, field);
    if (!strstr(d->err.msg, text)) fail_msg("wanted '%s', got '%s'", text, d->err.msg);
}

static void dry_has(const dry *d, const char *text) {
    if (!d->out.data || !strstr(d->out.data, text))
        fail_msg("no '%s' in\n%s", text, d->out.data ? d->out.data : "nothing");
}

static void dry_close(dry *d) {
    og_hook_vm_release(d->vm, d->request.state);
    og_hook_result_free(&d->res);
    og_str_free(&d->out);
    og_tokenizer_close(d->tok);
    og_hook_vm_destroy(d->vm);
    for (int i = 0; i < d->env.n_cfg; i++) json_decref(d->cfg_json[i]);
    json_decref(d->fields);
}

#define VECTORS(n)                                                                       \
    { .kind = OG_HOOK_VECTOR, .present = 1, .count = n }
#define OPEN_IDS                                                                         \
    { .kind = OG_HOOK_IDS, .present = 1, .open = 1 }

#define TTS_TALKER                                                                       \
    "{\"spk_id\": {\"ryan\": 7, \"eric\": 8}, \"spk_is_dialect\": {\"ryan\": false,"     \
    " \"eric\": \"sichuan_dialect\"}, \"codec_language_id\": {\"english\": 3, "          \
    "\"chinese\": 4,"                                                                    \
    " \"sichuan_dialect\": 30}, \"codec_pad_id\": 1, \"codec_bos_id\": 2,"               \
    " \"codec_think_id\": 5, \"codec_nothink_id\": 6, \"codec_think_bos_id\": 10,"       \
    " \"codec_think_eos_id\": 11}"
#define TTS_ROOT(kind)                                                                   \
    "{\"tts_pad_token_id\": 400, \"tts_bos_token_id\": 401, \"tts_eos_token_id\": 402,"  \
    " \"tts_model_type\": \"" kind "\", \"tts_model_size\": \"1b7\"}"

/* ---- the hooks ------------------------------------------------------------------- */

static void test_every_file_loads(void **state) {
    (void)state;
    DIR *d = opendir(HS_LUA);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char name[256], *dot;
        og_err err = OG_ERR_INIT;
        snprintf(name, sizeof name, "%s", e->d_name);
        dot = strstr(name, ".lua");
        if (!dot || strstr(name, ".d.lua")) continue;
        *dot = '\0';
        int rc = og_hook_check(DIRS, 1, name, "no_such_hook", &err);
        if (rc != OG_ESPEC)
            fail_msg("%s: %s", name, err.msg); /* it loads, but has no such */
        n++;
    }
    closedir(d);
    assert_true(n >= 8);
}

static void test_qwen3_tts_base(void **state) {
    (void)state;
    static const char *const sources[] = {"text", "xvec", "ref"};
    og_hook_source src[] = {
        {.kind = OG_HOOK_TEXT, .present = 1, .text = "Hi.", .text_len = 3},
        VECTORS(1),
        {.kind = OG_HOOK_CODES, .present = 1, .count = 3}};
    dry d;
    dry_open(&d, "qwen3_tts", "prompt");
    dry_cfg(&d, "root", TTS_ROOT("base"));
    dry_cfg(&d, "talker", TTS_TALKER);
    d.env.sources = sources;
    d.env.n_sources = 3;
    d.call.sources = src;
    dry_request(
        &d,
        "{\"text\": \"Hi.\", \"voice\": null, \"language\": \"English\","
        " \"instructions\": null, \"ref_text\": \"Yo\", \"non_streaming_mode\": null}");
    dry_ok(&d); /* text of 6 rows against 4 rows of codes */
    dry_has(&d, "stage.prompt  13 rows\n");
    dry_has(&d, "     8  text[400] + speaker(xvec[1])\n     9  text[401] + codec[1]\n");
    dry_has(&d, "    10  text[56] + codec[2]\n    11  text[78] + frame(ref[1])\n");
    dry_has(&d, "    13  text[72] + frame(ref[3])\n");
    dry_has(&d, "stage.feed  2 rows\n     1  text[13]\n     2  text[402]\n");
    src[2].count = 8; /* now the codes are longer */
    dry_ok(&d);
    dry_has(&d, "stage.prompt  18 rows\n");
    dry_has(&d,
            "    18  text[400] + frame(ref[8])\nstage.feed  1 rows\n     1  text[400]\n");
    src[2].present = 0; /* the voice alone */
    dry_ok(&d);
    dry_has(&d, "stage.prompt  10 rows\n");
    src[1].present = 0;
    dry_rejects(&d, "ref_audio", "it needs ref_audio");
    src[1].present = src[2].present = 1;
    dry_request(
        &d, "{\"text\": \"Hi.\", \"voice\": null, \"language\": \"English\","
            " \"instructions\": null, \"ref_text\": null, \"non_streaming_mode\": null}");
    dry_rejects(&d, "ref_text", "needed with ref_audio");
    dry_close(&d);
}

static void test_qwen3_tts_rejects(void **state) {
    (void)state;
    static const char *const bodies[][3] = {{"ryan", "klingon", "language"},
                                            {"bob", "english", "voice"},
                                            {"ryan", "sichuan_dialect", "language"}};
    static const char *const sources[] = {"text", "xvec", "ref"};
    og_hook_source src[3] = {
        {.kind = OG_HOOK_TEXT, .present = 1, .text = "x", .text_len = 1}};
    dry d;
    dry_open(&d, "qwen3_tts", "prompt");
    dry_cfg(&d, "root", TTS_ROOT("custom_voice"));
    dry_cfg(&d, "talker", TTS_TALKER);
    d.env.sources = sources;
    d.env.n_sources = 3;
    d.call.sources = src;
    for (int i = 0; i < 3; i++) {
        char body[256];
        snprintf(body, sizeof body,
                 "{\"text\": \"x\", \"voice\": \"%s\", \"language\": \"%s\","
                 " \"instructions\": null, \"non_streaming_mode\": true}",
                 bodies[i][0], bodies[i][1]);
        dry_request(&d, body);
        dry_rejects(&d, bodies[i][2], "");
    }
    dry_request(&d, "{\"text\": \"x\", \"voice\": \"Eric\", \"language\": \"Auto\","
                    " \"instructions\": null, \"non_streaming_mode\": false}");
    dry_ok(&d); /* a dialect speaker gives "auto" a language */
    dry_has(&d, "     6  text[400] + codec[30]\n");
    dry_close(&d);
}

static void test_qwen3_tts_codes(void **state) {
    (void)state;
    static const char *const sources[] = {"codes", "ref"};
    og_hook_source src[] = {{.kind = OG_HOOK_CODES, .present = 1, .open = 1},
                            {.kind = OG_HOOK_CODES, .present = 1, .count = 9}};
    dry d;
    dry_open(&d, "qwen3_tts", "codes");
    dry_request(&d, "{}");
    d.env.sources = sources;
    d.env.n_sources = 2;
    d.call.sources = src;
    dry_ok(&d);
    assert_string_equal(d.out.data,
                        "stage.codes  mute\n  ref[1..9]\nstage.codes\n  codes[1..]\n");
    dry_close(&d);
}

#define THINKER                                                                          \
    "{\"image_token_id\": 504, \"video_token_id\": 505, \"audio_token_id\": 506}"

static void test_qwen3_omni_thinker(void **state) {
    (void)state;
    static const char *const sources[] = {"messages", "audios", "images", "videos",
                                          "deep"};
    og_hook_source image = {
        .kind = OG_HOOK_VECTOR, .present = 1, .count = 6, .grid = {1, 4, 6}};
    og_hook_source audio = VECTORS(5);
    og_hook_source src[] = {
        {.kind = OG_HOOK_MESSAGES},
        {.kind = OG_HOOK_LIST, .present = 1, .items = &audio, .n_items = 1},
        {.kind = OG_HOOK_LIST, .present = 1, .items = &image, .n_items = 1},
        {.kind = OG_HOOK_LIST},
        VECTORS(6)};
    dry d;
    dry_open(&d, "qwen3_omni", "thinker");
    dry_cfg(&d, "thinker", THINKER);
    dry_request(&d,
                "{\"messages\": [{\"role\": \"system\", \"parts\": [{\"type\": \"text\","
                " \"text\": \"be brief\"}]}, {\"role\": \"user\", \"parts\": [{\"type\":"
                " \"image\"}, {\"type\": \"text\", \"text\": \"what?\"}, {\"type\":"
                " \"audio\"}]}]}");
    d.env.sources = sources;
    d.env.n_sources = 5;
    d.call.sources = src;
    dry_ok(&d);
    dry_has(&d, "  span image rows 23 to 28  grid 1 x 4 x 6\n");
    dry_has(&d, "  span audio rows 36 to 40\n");
    dry_has(&d, "    23  visual(images[1])\n");
    dry_has(&d, "stage.deepstack\n  deep[1..6]\n");
    dry_request(
        &d, "{\"messages\": [{\"role\": \"user\", \"parts\": [{\"type\": \"image\"}]},"
            " {\"role\": \"user\", \"parts\": [{\"type\": \"image\"}]}]}");
    int rc = dry_run(&d); /* one picture, two parts */
    assert_int_equal(rc, OG_EHOOK);
    dry_close(&d);
}

static void test_qwen3_omni_talker(void **state) {
    (void)state;
    static const int32_t ids[] = {500, 514, 95, 504, 504, 504, 501, 95, 500, 515, 95};
    static const og_row_span spans[] = {{3, 6, "image", {1, 2, 6}, 0}};
    static const char *const sources[] = {"ids", "seen", "said"};
    og_hook_source src[] = {{.kind = OG_HOOK_IDS,
                             .present = 1,
                             .count = 11,
                             .ids = ids,
                             .spans = spans,
                             .n_spans = 1},
                            VECTORS(11),
                            OPEN_IDS};
    dry d;
    dry_open(&d, "qwen3_omni", "talker");
    dry_cfg(&d, "root",
            "{\"tts_pad_token_id\": 400, \"tts_bos_token_id\": 401,"
            " \"tts_eos_token_id\": 402, \"im_start_token_id\": 500,"
            " \"user_token_id\": 514, \"assistant_token_id\": 515}");
    dry_cfg(&d, "talker",
            "{\"codec_nothink_id\": 1, \"codec_think_bos_id\": 2,"
            " \"codec_think_eos_id\": 3, \"codec_pad_id\": 4, \"codec_bos_id\": 5,"
            " \"speaker_id\": {\"ethan\": 9}}");
    dry_request(&d, "{\"voice\": \"Ethan\"}");
    d.env.sources = sources;
    d.env.n_sources = 3;
    d.call.sources = src;
    dry_ok(&d);
    dry_has(&d, "     3  text[95]\n     4  hidden(seen[4])\n");
    dry_has(&d, "    17  text(said[1]) + codec[5]\n");
    dry_has(&d, "  span image rows 4 to 6  grid 1 x 2 x 6\n");
    dry_has(
        &d,
        "stage.feed  1 rows and more\n     1..  text(said[2..])\n     1  text[402]\n");
    dry_request(&d, "{\"voice\": \"bob\"}");
    dry_rejects(&d, "voice", "unknown voice");
    dry_close(&d);
}

static void test_qwen_image(void **state) {
    (void)state;
    static const char *const lanes[] = {"cond", "uncond"};
    static const char *const sources[] = {"prompt", "visual"};
    og_hook_source image = {
        .kind = OG_HOOK_VECTOR, .present = 1, .count = 12, .grid = {1, 6, 8}};
    og_hook_source src[] = {
        {.kind = OG_HOOK_TEXT, .present = 1, .text = "a cat", .text_len = 5},
        {.kind = OG_HOOK_LIST, .present = 1, .items = &image, .n_items = 1}};
    dry d;
    dry_open(&d, "qwen_image", "t2i");
    dry_cfg(&d, "text", THINKER);
    dry_request(
        &d,
        "{\"prompt\": \"a cat\", \"negative_prompt\": \" \", \"true_cfg_scale\": 4.0}");
    d.env.lanes = lanes;
    d.env.n_lanes = 2;
    d.env.sources = sources;
    d.env.n_sources = 2;
    d.call.sources = src;
    dry_ok(&d);
    assert_int_equal(d.res.n, 2);
    assert_int_equal(d.res.emits[0].drop, 34);
    assert_int_equal(d.res.emits[1].lane, 1);
    d.env.function = "edit";
    dry_ok(&d);
    assert_int_equal(d.res.emits[0].drop, 64);
    assert_int_equal(d.res.emits[0].rows->n_spans, 1);
    dry_request(
        &d, "{\"prompt\": \"a cat\", \"negative_prompt\": \" \", \"true_cfg_scale\": 1}");
    dry_ok(&d);
    assert_int_equal(d.res.n, 1);
    dry_close(&d);
}

static void test_wan(void **state) {
    (void)state;
    static const char *const lanes[] = {"cond", "uncond"};
    dry d;
    dry_open(&d, "wan", "prompts");
    dry_request(&d, "{\"prompt\": \"  a  cat \\n runs \", \"negative_prompt\": \"\","
                    " \"guidance_scale\": 5.0}");
    d.env.lanes = lanes;
    d.env.n_lanes = 2;
    dry_ok(&d);
    assert_string_equal(d.out.data,
                        "stage.tokens  lane cond\n  ids 64 94 66 64 83 94 81 84 77 82\n"
                        "stage.tokens  lane uncond\n");
    dry_close(&d);
}

static void test_bagel(void **state) {
    (void)state;
    static const char *const lanes[] = {"cond", "no_text", "no_image"};
    static const char *const sources[] = {"prompt", "visual", "latent"};
    og_hook_source lat = {
        .kind = OG_HOOK_VECTOR, .present = 1, .count = 8, .grid = {1, 2, 4}};
    og_hook_source vit = {
        .kind = OG_HOOK_VECTOR, .present = 1, .count = 6, .grid = {1, 2, 3}};
    og_hook_source src[] = {
        {.kind = OG_HOOK_TEXT, .present = 1, .text = "hat", .text_len = 3},
        {.kind = OG_HOOK_LIST, .present = 1, .items = &vit, .n_items = 1},
        {.kind = OG_HOOK_LIST, .present = 1, .items = &lat, .n_items = 1}};
    dry d;
    dry_open(&d, "bagel", "read");
    dry_request(&d, "{\"prompt\": \"hat\", \"negative_prompt\": \"\", \"think\": false,"
                    " \"images\": [{\"width\": 64}], \"max_images\": 2}");
    d.env.lanes = lanes;
    d.env.n_lanes = 3;
    d.env.sources = sources;
    d.env.n_sources = 3;
    d.call.sources = src;
    d.request.route = "edit";
    dry_ok(&d);
    dry_has(&d, "stage.prompt  lane cond  18 rows\n");
    dry_has(&d, "fork  lane no_text from lane cond\n");
    dry_has(&d, "  span latent rows 1 to 10  grid 1 x 2 x 4\n"
                "  span image rows 11 to 18  grid 1 x 2 x 3\n");
    dry_has(&d, "stage.prompt  lane no_image  5 rows\n");
    /* the phases of an interleaved answer: max_images pictures, then no more */
    static const char *const want[] = {"write", "draw", "look", "write",
                                       "draw",  "look", "write"};
    const char *phase = "read";
    char last[16];
    d.env.function = "next";
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        d.call.done_phase = phase;
        d.call.done_stop = 502;
        dry_ok(&d);
        assert_non_null(d.res.next);
        assert_string_equal(d.res.next, want[i]);
        snprintf(last, sizeof last, "%s", d.res.next);
        phase = last;
    }
    dry_ok(&d);
    assert_null(d.res.next);
    dry_close(&d);
}

static void test_higgs_and_cosyvoice(void **state) {
    (void)state;
    static const char *const sources[] = {"text", "ref"};
    og_hook_source src[] = {
        {.kind = OG_HOOK_TEXT, .present = 1, .text = "hello", .text_len = 5},
        {.kind = OG_HOOK_CODES, .present = 1, .count = 20}};
    dry d;
    dry_open(&d, "higgs_v3", "prompt");
    dry_request(&d, "{\"text\": \"hello\", \"ref_text\": \"hi\"}");
    dry_cfg(&d, "talker", "{\"speech_token_size\": 600}");
    d.env.sources = sources;
    d.env.n_sources = 2;
    d.call.sources = src;
    dry_ok(&d);
    dry_has(&d, "stage.prompt  32 rows\n     1  text[509]\n     2  text[511]\n");
    dry_has(&d, "     6  frame_delayed(ref[1])\n");
    src[1] = (og_hook_source){
        .kind = OG_HOOK_IDS, .present = 1, .count = 2, .ids = (const int32_t[]){17, 18}};
    d.env.file = "cosyvoice3";
    dry_ok(&d);
    dry_has(&d, "stage.prompt  11 rows  min_tokens 10  max_tokens 100\n");
    dry_has(&d, "     9  speech[602]\n    10  speech[17]\n");
    dry_close(&d);
}

static void test_dialogue(void **state) {
    (void)state;
    dry d;
    dry_open(&d, "dialogue", "lines");
    dry_cfg(&d, "root", TTS_ROOT("custom_voice"));
    dry_cfg(&d, "talker", TTS_TALKER);
    d.env.numbered = 1;
    dry_request(
        &d, "{\"text\": \"A: good morning\\nB: morning, A\\nA:  tea? \", \"voices\":"
            " [\"ryan\", \"eric\"], \"language\": \"english\", \"instructions\": null,"
            " \"non_streaming_mode\": null}");
    dry_ok(&d);
    assert_int_equal(d.res.n, 6);
    dry_has(&d, "stage.prompt  lane 3  15 rows\n");
    assert_non_null(d.res.emits[5].fill);
    dry_request(&d,
                "{\"text\": \"A: hi\\nnonsense\", \"voices\": [\"ryan\"], \"language\":"
                " \"english\", \"instructions\": null, \"non_streaming_mode\": null}");
    dry_rejects(&d, "text", "expected NAME: words, got 'nonsense'");
    dry_request(&d,
                "{\"text\": \"A: hi\\nB: hi\", \"voices\": [\"ryan\"], \"language\":"
                " \"english\", \"instructions\": null, \"non_streaming_mode\": null}");
    dry_rejects(&d, "voices", "no voice left for B");
    dry_close(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_file_loads),
        cmocka_unit_test(test_qwen3_tts_base),
        cmocka_unit_test(test_qwen3_tts_rejects),
        cmocka_unit_test(test_qwen3_tts_codes),
        cmocka_unit_test(test_qwen3_omni_thinker),
        cmocka_unit_test(test_qwen3_omni_talker),
        cmocka_unit_test(test_qwen_image),
        cmocka_unit_test(test_wan),
        cmocka_unit_test(test_bagel),
        cmocka_unit_test(test_higgs_and_cosyvoice),
        cmocka_unit_test(test_dialogue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
