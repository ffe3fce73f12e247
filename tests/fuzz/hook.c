/* A hook file, run on sources of every kind with small budgets: M.f(ctx, src), called
 * twice in one VM. */
#include "graph/hook/hook.h"
#include "nodes/registry.h"
#include "tests/fuzz/fuzz.h"

static const int32_t ids[] = {1, 2, 3, 4};
static const og_row_span spans[] = {{1, 3, "image", {1, 1, 2}, 0}};
static const og_hook_source items[] = {
    {.kind = OG_HOOK_VECTOR, .present = 1, .count = 2, .grid = {1, 1, 2}},
    {.kind = OG_HOOK_VECTOR, .present = 1, .count = 3}};
static const og_hook_source sources[] = {
    {.kind = OG_HOOK_IDS,
     .present = 1,
     .count = 4,
     .ids = ids,
     .spans = spans,
     .n_spans = 1},
    {.kind = OG_HOOK_IDS, .present = 1, .open = 1},
    {.kind = OG_HOOK_CODES, .present = 1, .count = 5, .width = 4},
    {.kind = OG_HOOK_VECTOR, .present = 1, .open = 1, .width = 8},
    {.kind = OG_HOOK_LIST, .present = 1, .items = items, .n_items = 2},
    {.kind = OG_HOOK_TEXT, .present = 1, .text = "Hello, 12.", .text_len = 10}};
static const char *const names[] = {"ids", "said", "ref", "vec", "list", "text"};
static const char *const lanes[] = {"a", "b"};
static const char *const fields[] = {"text", "voice"};
static const og_hook_port ports[] = {{"prompt", 0}, {"feed", 1}};

static json_t *config(void) {
    return json_pack("{s:i, s:i, s:i, s:i, s:{s:i}, s:[i,i]}", "hidden_size", 8,
                     "num_code_groups", 4, "vocab_size", 50, "text_vocab_size", 1000,
                     "code_predictor_config", "vocab_size", 40, "list", 1, 2);
}

static void run(const og_hook_env *env, const json_t *request) {
    static const og_hook_limits limits = {50000, 2000, 1u << 20, 4u << 20, 1u << 14};
    og_hook_request req = {.fields = request, .state = og_hook_state_create()};
    og_hook_call call = {.env = env, .request = &req, .sources = sources};
    og_hook_result res = OG_HOOK_RESULT_INIT;
    og_hook_vm *vm = NULL;
    og_err err = OG_ERR_INIT;
    if (og_hook_vm_create(&limits, &vm, &err) < 0 || !req.state) abort();
    for (int i = 0; i < 2; i++) { /* again: what the first call left must not matter */
        og_err_clear(&err);
        int rc = og_hook_run(vm, &call, &res, &err);
        if (rc != err.code) abort();
        og_str s = OG_STR_INIT;
        if (rc == 0) og_hook_print(&res, env, &s);
        og_str_free(&s);
        og_hook_result_free(&res);
    }
    og_hook_vm_release(vm, req.state);
    og_hook_vm_destroy(vm);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *dirs[] = {fuzz_dir(), OG_SOURCE_DIR "/scripts/lua"};
    json_t *section = config(), *request = json_pack("{s:s}", "text", "Hello, 12.");
    og_hook_cfg cfg[] = {{"root", section}, {"talker", section}};
    og_hook_env env = {.file = "fuzz",
                       .function = "f",
                       .dirs = dirs,
                       .n_dirs = 2,
                       .stage = "talker",
                       .to = og_arch_find("qwen3_tts_talker"),
                       .section = section,
                       .max_rows = 4096,
                       .ports = ports,
                       .n_ports = 2,
                       .sources = names,
                       .n_sources = 6,
                       .lanes = lanes,
                       .n_lanes = 2,
                       .cfg = cfg,
                       .n_cfg = 2,
                       .fields = fields,
                       .n_fields = 2};
    if (!section || !request || !env.to) abort();
    fuzz_file("fuzz.lua", data, size);
    run(&env, request);
    json_decref(section);
    json_decref(request);
    return 0;
}
