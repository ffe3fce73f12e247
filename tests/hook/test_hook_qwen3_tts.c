/* The Qwen3-TTS prompt hook against the reference: every golden request's rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>

#include "nodes/load/model.h"
#include "tests/hook/hook_support.h"
#include "tests/support/golden.h"

#define TOLERANCE 1e-5 /* of the reference's float32 against our double */

typedef struct checkpoint {
    og_model *model;
    og_weights *w;
    const json_t *root, *talker;
    og_tokenizer *tok;
    int hidden, text_hidden;
} checkpoint;

static void open_checkpoint(checkpoint *c, const char *name, const char *kind) {
    char path[512];
    og_err err = OG_ERR_INIT;
    snprintf(path, sizeof path, "%s/tests/data/qwen3_tts/%s/%s", OG_SOURCE_DIR, name,
             kind);
    if (og_model_open(path, &c->model, &err) < 0) fail_msg("%s", err.msg);
    if (og_weights_open(path, &c->w, &err) < 0) fail_msg("%s", err.msg);
    if (og_tokenizer_open(path, &c->tok, &err) < 0) fail_msg("%s", err.msg);
    c->root = og_model_config(c->model, "", NULL, &err);
    c->talker = json_object_get(c->root, "talker_config");
    assert_non_null(c->talker);
    c->hidden = (int)json_integer_value(json_object_get(c->talker, "hidden_size"));
    c->text_hidden =
        (int)json_integer_value(json_object_get(c->talker, "text_hidden_size"));
}

static void close_checkpoint(checkpoint *c) {
    og_tokenizer_close(c->tok);
    og_weights_close(c->w);
    og_model_close(c->model);
}

/* y[n] = w[n, k] x + b, in double. */
static void linear(const checkpoint *c, const char *name, const double *x, int k,
                   double *y, int n) {
    char full[128];
    snprintf(full, sizeof full, "%s.weight", name);
    og_tensor w = golden_get(c->w, full);
    snprintf(full, sizeof full, "%s.bias", name);
    og_tensor b = golden_get(c->w, full);
    for (int i = 0; i < n; i++) {
        y[i] = (double)golden_f32_at(&b, i);
        for (int j = 0; j < k; j++)
            y[i] += (double)golden_f32_at(&w, (int64_t)i * k + j) * x[j];
    }
}

static void add_text(const checkpoint *c, int32_t id, double *row) {
    double x[256], h[256], y[256];
    og_tensor e = golden_get(c->w, "talker.model.text_embedding.weight");
    assert_true(id >= 0 && id < e.ne[0]);
    for (int i = 0; i < c->text_hidden; i++)
        x[i] = (double)golden_f32_at(&e, (int64_t)id * c->text_hidden + i);
    linear(c, "talker.text_projection.linear_fc1", x, c->text_hidden, h, c->text_hidden);
    for (int i = 0; i < c->text_hidden; i++) h[i] /= 1 + exp(-h[i]);
    linear(c, "talker.text_projection.linear_fc2", h, c->text_hidden, y, c->hidden);
    for (int i = 0; i < c->hidden; i++) row[i] += y[i];
}

static void add_codec(const checkpoint *c, int32_t id, double *row) {
    og_tensor e = golden_get(c->w, "talker.model.codec_embedding.weight");
    assert_true(id >= 0 && id < e.ne[0]);
    for (int i = 0; i < c->hidden; i++)
        row[i] += (double)golden_f32_at(&e, (int64_t)id * c->hidden + i);
}

static void compare(const checkpoint *c, const og_recipe *r, const og_weights *g,
                    const char *key, const char *name) {
    og_tensor want = golden_get(g, key);
    assert_non_null(r);
    assert_int_equal(r->n_open, 0);
    assert_int_equal(og_tensor_count(&want), (int64_t)r->n_rows * c->hidden);
    for (int32_t i = 0; i < r->n_rows; i++) {
        double row[256] = {0};
        for (int32_t k = r->off[i]; k < r->off[i + 1]; k++) {
            assert_int_equal(r->terms[k].source, OG_NO_SOURCE);
            if (r->terms[k].table == 0)
                add_text(c, r->terms[k].index, row);
            else
                add_codec(c, r->terms[k].index, row);
        }
        for (int j = 0; j < c->hidden; j++) {
            double d =
                fabs(row[j] - (double)golden_f32_at(&want, (int64_t)i * c->hidden + j));
            if (!(d <= TOLERANCE))
                fail_msg("%s: %s row %d differs by %g", name, key, (int)i + 1, d);
        }
    }
}

/* The request that the golden's call was. */
static json_t *request_of(const og_weights *g) {
    const char *meta = og_weights_metadata(g, "meta_json");
    assert_non_null(meta);
    json_t *m = hs_json(meta), *f = json_object();
    static const char *const map[][2] = {{"text", "text"},
                                         {"speaker", "voice"},
                                         {"instruct", "instructions"},
                                         {"language", "language"},
                                         {"non_streaming_mode", "non_streaming_mode"}};
    for (size_t i = 0; i < sizeof map / sizeof *map; i++) {
        json_t *v = json_object_get(m, map[i][0]);
        if (v && !json_is_null(v)) json_object_set(f, map[i][1], v);
    }
    if (!json_object_get(f, "language"))
        json_object_set_new(f, "language", json_string("auto"));
    json_decref(m);
    return f;
}

static void check_golden(const checkpoint *c, og_hook_vm *vm, const char *tiny,
                         const char *name) {
    static const char *const dirs[] = {HS_LUA};
    static const char *const sources[] = {"text", "xvec", "ref"};
    static const char *const fields[] = {"text",     "voice",    "instructions",
                                         "language", "ref_text", "non_streaming_mode"};
    char path[320];
    snprintf(path, sizeof path, "qwen3_tts/%s/%s", tiny, name);
    og_weights *g = golden_open(path);
    json_t *body = request_of(g);
    og_hook_cfg cfg[] = {{"root", c->root}, {"talker", c->talker}};
    og_hook_env env = {.file = "qwen3_tts",
                       .function = "prompt",
                       .dirs = dirs,
                       .n_dirs = 1,
                       .stage = "talker",
                       .to = &hs_arch,
                       .section = c->talker,
                       .tokenizer = c->tok,
                       .max_rows = 32768,
                       .ports = hs_edge_ports,
                       .n_ports = 2,
                       .sources = sources,
                       .n_sources = 3,
                       .cfg = cfg,
                       .n_cfg = 2,
                       .fields = fields,
                       .n_fields = 6};
    const char *text = json_string_value(json_object_get(body, "text"));
    og_hook_source src[3] = {
        {.kind = OG_HOOK_TEXT, .present = 1, .text = text, .text_len = strlen(text)}};
    og_hook_request req = {.fields = body};
    og_hook_call call = {.env = &env, .request = &req, .sources = src};
    og_hook_result res = OG_HOOK_RESULT_INIT;
    og_err err = OG_ERR_INIT;
    if (og_hook_run(vm, &call, &res, &err) < 0) fail_msg("%s: %s", path, err.msg);
    assert_int_equal(res.n, 2);
    assert_int_equal(res.emits[0].port, 0);
    assert_int_equal(res.emits[1].port, 1);
    compare(c, res.emits[0].rows, g, "prompt_embeds", path);
    compare(c, res.emits[1].rows, g, "trailing_text_hidden", path);
    compare(c, res.emits[1].fill, g, "tts_pad_embed", path);
    og_hook_result_free(&res);
    json_decref(body);
    og_weights_close(g);
}

/* Every request of one checkpoint; returns how many. */
static int check_all(const char *tiny, const char *kind, const char *prefix) {
    char path[512];
    checkpoint c;
    og_hook_limits roomy = HS_ROOMY;
    og_hook_vm *vm;
    og_err err = OG_ERR_INIT;
    int n = 0;
    open_checkpoint(&c, tiny, kind);
    if (og_hook_vm_create(&roomy, &vm, &err) < 0) fail_msg("%s", err.msg);
    snprintf(path, sizeof path, "%s/tests/golden/qwen3_tts/%s", OG_SOURCE_DIR, tiny);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char *dot = strstr(e->d_name, ".safetensors");
        if (!dot || strncmp(e->d_name, prefix, strlen(prefix))) continue;
        *dot = '\0';
        check_golden(&c, vm, tiny, e->d_name);
        n++;
    }
    closedir(d);
    og_hook_vm_destroy(vm);
    close_checkpoint(&c);
    return n;
}

static void test_custom_voice_rows(void **state) {
    (void)state;
    assert_true(check_all("tiny-a", "custom_voice", "cv_") >= 15);
    assert_true(check_all("tiny-b", "custom_voice", "cv_") >= 15);
}

static void test_voice_design_rows(void **state) {
    (void)state;
    assert_true(check_all("tiny-a", "voice_design", "vd_") >= 4);
    assert_true(check_all("tiny-b", "voice_design", "vd_") >= 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_custom_voice_rows),
        cmocka_unit_test(test_voice_design_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
