/* A Qwen3-TTS talker under test: node, recipes by the public prompt table, golden cases. */
#ifndef OG_TESTS_TALKER_H
#define OG_TESTS_TALKER_H

#include "nodes/ar/ar.h"
#include "nodes/load/json.h"
#include "nodes/registry.h"
#include "tests/support/golden.h"
#include "tests/support/harness.h"

enum { T_TEXT, T_CODEC, T_FRAME, T_SPEAKER };

/* ---- recipes --------------------------------------------------------------------- */

#define RB_ROWS 4096
#define RB_TERMS 16384

typedef struct rb {
    int32_t off[RB_ROWS + 1], n_rows;
    og_term terms[RB_TERMS];
    og_open_part open[4];
    og_open_term open_terms[8];
    int32_t n_open, n_open_terms;
} rb;

TH_UNUSED rb *rb_new(void) {
    rb *b = calloc(1, sizeof *b);
    assert_non_null(b);
    return b;
}

/* A term of the row that is being written; rb_row ends it. */
TH_UNUSED void rb_term(rb *b, int table, int source, int32_t index) {
    int32_t at = b->off[b->n_rows + 1] ? b->off[b->n_rows + 1] : b->off[b->n_rows];
    assert_true(at < RB_TERMS);
    b->terms[at] = (og_term){(uint16_t)table, (uint16_t)source, index};
    b->off[b->n_rows + 1] = at + 1;
}

TH_UNUSED void rb_row(rb *b) {
    if (b->off[b->n_rows + 1] < b->off[b->n_rows]) b->off[b->n_rows + 1] = b->off[b->n_rows];
    b->n_rows++;
    assert_true(b->n_rows < RB_ROWS);
}

/* One row: text id (-1: none) + codec id (-1: none). */
TH_UNUSED void rb_pair(rb *b, int32_t text, int32_t codec) {
    if (text >= 0) rb_term(b, T_TEXT, OG_NO_SOURCE, text);
    if (codec >= 0) rb_term(b, T_CODEC, OG_NO_SOURCE, codec);
    rb_row(b);
}

TH_UNUSED og_recipe *rb_done(rb *b) {
    og_recipe shape = {.n_rows = b->n_rows,
                       .off = b->off,
                       .terms = b->terms,
                       .n_open = b->n_open,
                       .open = b->open,
                       .open_terms = b->open_terms,
                       .n_sources = 0};
    og_recipe *r = og_recipe_create(&shape, b->n_open_terms);
    assert_non_null(r);
    free(b);
    return r;
}

TH_UNUSED og_recipe *one_row(int table, int32_t id) {
    rb *b = rb_new();
    rb_term(b, table, OG_NO_SOURCE, id);
    rb_row(b);
    return rb_done(b);
}

/* ---- node ------------------------------------------------------------------------ */

typedef struct talker_fix {
    th_env env;
    og_model *model;
    og_node_cfg cfg;
    og_node *node;
    const json_t *root, *talker;
    int groups, hidden;
    int prompt, feed, codes, tokens, states; /* ports */
} talker_fix;

#define TALKER_CFG ((og_node_cfg){.stage = "talker", .stage_key = 7, .max_seqs = 8, \
                                  .max_model_len = 1024, .max_batched_tokens = 512})

/* On the device of f->env; the rest of f is zeroed. */
TH_UNUSED void talker_open_on(talker_fix *f, const char *folder, og_node_cfg cfg) {
    char path[4096], dir[64];
    og_err err = OG_ERR_INIT;
    snprintf(dir, sizeof dir, "tests/data/qwen3_tts/%s/custom_voice", folder);
    if (og_model_open(source_path(path, sizeof path, dir), &f->model, &err) < 0)
        fail_msg("%s", err.msg);
    f->cfg = cfg;
    f->cfg.arch = og_arch_find("qwen3_tts_talker");
    f->cfg.model = f->model;
    f->cfg.folder = "";
    f->cfg.exec = f->env.exec;
    const og_arch *a = f->cfg.arch;
    f->root = og_model_config(f->model, "", NULL, &err);
    f->talker = og_model_config(f->model, "", a->section, &err);
    assert_int_equal(a->check(f->talker, &err), 0);
    if (og_kind_get(a->kind)->api->create(&f->cfg, &f->node, &err) < 0)
        fail_msg("%s", err.msg);
    th_plan(&f->env, f->node);
    f->prompt = og_arch_port(a, "prompt");
    f->feed = og_arch_port(a, "feed");
    f->codes = og_arch_port(a, "codes");
    f->tokens = og_arch_port(a, "tokens");
    f->states = og_arch_port(a, "hidden");
    assert_int_equal(og_cfg_int(f->talker, "num_code_groups", &f->groups, 1, 64, &err), 0);
    assert_int_equal(og_cfg_int(f->talker, "hidden_size", &f->hidden, 1, 4096, &err), 0);
}

TH_UNUSED void talker_open(talker_fix *f, const char *backend, const char *folder,
                           og_node_cfg cfg) {
    memset(f, 0, sizeof *f);
    th_open(&f->env, backend);
    talker_open_on(f, folder, cfg);
}

TH_UNUSED void talker_close(talker_fix *f) {
    f->node->api->destroy(f->node);
    og_model_close(f->model);
    th_close(&f->env);
}

TH_UNUSED int32_t cfg_id(const json_t *cfg, const char *key) {
    og_err err = OG_ERR_INIT;
    int v;
    if (og_cfg_int(cfg, key, &v, 0, 1 << 24, &err) < 0) fail_msg("%s", err.msg);
    return v;
}

/* ---- requests -------------------------------------------------------------------- */

typedef struct talker_case {
    char name[64];
    og_weights *golden;
    json_t *meta;
    int streaming;
    og_recipe *prompt, *feed, *fill;
} talker_case;

static const char *meta_str(const json_t *meta, const char *key) {
    const json_t *v = json_object_get(meta, key);
    return json_is_string(v) ? json_string_value(v) : NULL;
}

static void lower(char *out, const char *s) {
    for (; *s; s++) *out++ = (char)(*s >= 'A' && *s <= 'Z' ? *s + 32 : *s);
    *out = 0;
}

/* The language id and the speaker id, -1 for none. */
static void who(const talker_fix *f, const json_t *meta, int32_t *lang, int32_t *spk) {
    char key[96], l[64] = "auto", s[64] = "";
    if (meta_str(meta, "language")) lower(l, meta_str(meta, "language"));
    if (meta_str(meta, "speaker")) lower(s, meta_str(meta, "speaker"));
    *lang = *spk = -1;
    if (s[0] && (!strcmp(l, "chinese") || !strcmp(l, "auto"))) {
        const json_t *d = json_object_get(json_object_get(f->talker, "spk_is_dialect"), s);
        if (json_is_string(d)) snprintf(l, sizeof l, "%s", json_string_value(d));
    }
    if (strcmp(l, "auto") != 0) {
        snprintf(key, sizeof key, "codec_language_id.%s", l);
        *lang = cfg_id(f->talker, key);
    }
    if (!s[0]) return;
    snprintf(key, sizeof key, "spk_id.%s", s);
    *spk = cfg_id(f->talker, key);
}

/* Rows of the head of a prompt, up to the text: role, language, speaker, bos. */
static void head_rows(const talker_fix *f, rb *b, const talker_case *c) {
    const og_weights *g = c->golden;
    const json_t *t = f->talker;
    int32_t lang, spk, pad = cfg_id(f->root, "tts_pad_token_id");
    who(f, c->meta, &lang, &spk);
    if (golden_has(g, "instruct_ids")) {
        og_tensor ids = golden_get(g, "instruct_ids");
        for (int64_t i = 0; i < og_tensor_count(&ids); i++)
            rb_pair(b, (int32_t)golden_i64_at(&ids, i), -1);
    }
    for (int i = 0; i < 3; i++) rb_pair(b, (int32_t)golden_i64(g, "input_ids", i), -1);
    rb_pair(b, pad, cfg_id(t, lang < 0 ? "codec_nothink_id" : "codec_think_id"));
    rb_pair(b, pad, cfg_id(t, "codec_think_bos_id"));
    if (lang >= 0) rb_pair(b, pad, lang);
    rb_pair(b, pad, cfg_id(t, "codec_think_eos_id"));
    if (spk >= 0) rb_pair(b, pad, spk);
    rb_pair(b, cfg_id(f->root, "tts_bos_token_id"), cfg_id(t, "codec_pad_id"));
}

/* The recipes of a golden custom_voice or voice_design request. */
TH_UNUSED void talker_load(const talker_fix *f, talker_case *c, const char *folder,
                           const char *name) {
    char path[128];
    og_err err = OG_ERR_INIT;
    memset(c, 0, sizeof *c);
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(path, sizeof path, "qwen3_tts/%s/%s", folder, name);
    c->golden = golden_open(path);
    const char *text = og_weights_metadata(c->golden, "meta_json");
    assert_non_null(text);
    c->meta = og_json_parse(name, text, strlen(text), 8, &err);
    assert_non_null(c->meta);
    const json_t *ns = json_object_get(c->meta, "non_streaming_mode");
    c->streaming = json_is_false(ns);

    og_tensor ids = golden_get(c->golden, "input_ids");
    int64_t n = og_tensor_count(&ids);
    int32_t pad = cfg_id(f->root, "tts_pad_token_id");
    int32_t eos = cfg_id(f->root, "tts_eos_token_id");
    int32_t cpad = cfg_id(f->talker, "codec_pad_id"), cbos = cfg_id(f->talker, "codec_bos_id");
    rb *p = rb_new(), *t = rb_new();
    head_rows(f, p, c);
    if (c->streaming) {
        rb_pair(p, (int32_t)golden_i64_at(&ids, 3), cbos);
        for (int64_t i = 4; i < n - 5; i++) rb_pair(t, (int32_t)golden_i64_at(&ids, i), -1);
        rb_pair(t, eos, -1);
    } else {
        for (int64_t i = 3; i < n - 5; i++) rb_pair(p, (int32_t)golden_i64_at(&ids, i), cpad);
        rb_pair(p, eos, cpad);
        rb_pair(p, pad, cbos);
        rb_pair(t, pad, -1);
    }
    c->prompt = rb_done(p);
    c->feed = rb_done(t);
    c->fill = one_row(T_TEXT, pad);
}

TH_UNUSED void talker_unload(talker_case *c) {
    og_recipe_unref(c->prompt);
    og_recipe_unref(c->feed);
    og_recipe_unref(c->fill);
    json_decref(c->meta);
    og_weights_close(c->golden);
}

/* A greedy job with the case's own limits and all outputs, not yet admitted. */
TH_UNUSED void talker_job(const talker_fix *f, th_job *j, const talker_case *c,
                          uint64_t id) {
    th_job_init(j, id, 1000 + id);
    th_job_greedy(j);
    og_sampling *s = &j->job.sampling;
    s->max_tokens = (int32_t)json_integer_value(json_object_get(c->meta, "max_new_tokens"));
    s->repetition_penalty =
        (float)json_number_value(json_object_get(c->meta, "repetition_penalty"));
    s->min_tokens = 2;
    s->stop[s->n_stop++] = cfg_id(f->talker, "codec_eos_token_id");
    j->job.max_items = c->prompt->n_rows;
    th_job_out(j, f->codes, OG_I32, f->groups, s->max_tokens);
    th_job_out(j, f->tokens, OG_I32, 1, s->max_tokens);
    th_job_out(j, f->states, OG_F32, f->hidden, s->max_tokens);
}

TH_UNUSED void talker_admit(const talker_fix *f, th_job *j) {
    og_err err = OG_ERR_INIT;
    if (f->node->api->admit(f->node, &j->job, &err) < 0) fail_msg("%s", err.msg);
}

TH_UNUSED void talker_feed(const talker_fix *f, th_job *j, const talker_case *c) {
    th_feed_rows(f->node, j, f->prompt, og_recipe_ref(c->prompt), NULL, OG_FIRST | OG_LAST);
    th_feed_rows(f->node, j, f->feed, og_recipe_ref(c->feed), og_recipe_ref(c->fill),
                 OG_FIRST | OG_LAST);
}

static const char *const talker_cases[] = {
    "cv_en",        "cv_en_stream",       "cv_empty",         "cv_empty_stream",
    "cv_zh_auto",   "cv_dialect_zh",      "cv_dialect_en",    "cv_dialect_auto_stream",
    "cv_instruct",  "cv_lead_newline",    "cv_long",          "cv_long_stream",
    "cv_mixed",     "cv_numbers",         "cv_numbers_stream", "cv_one_char",
    "cv_one_char_stream", "cv_space",     "cv_special_in_text", "vd_auto",
    "vd_en",        "vd_no_instruct",     "vd_zh_stream"};
#define N_TALKER_CASES ((int)(sizeof talker_cases / sizeof *talker_cases))

static const char *const talker_backends[] = {"ref", "cpu"};

#endif
