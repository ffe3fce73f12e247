/* Descriptors for the nine pipelines without networks behind them: what the compiler needs
 * to check ports, types, options and lanes. Each test program includes it once. */
#ifndef OG_TEST_ARCHS_H
#define OG_TEST_ARCHS_H

#include "graph/compile/plan.h"

#define IN OG_PORT_IN
#define OUT OG_PORT_OUT
#define ROWS (OG_PORT_IN | OG_PORT_ROWS)
#define STREAM_IN (OG_PORT_IN | OG_PORT_STREAM)
#define STREAM (OG_PORT_OUT | OG_PORT_STREAM)

#define PORTS(name, ...) static const og_port_desc ports_##name[] = {__VA_ARGS__, {0}}
#define P(n, flags, type)                                                                \
    { n, flags, type, "test" }
#define OPTIONS(name, ...)                                                               \
    static const og_option_desc options_##name[] = {__VA_ARGS__, {0}}
#define O(n, kind, def, tunable)                                                         \
    { n, kind, def, 0, 0, tunable, "test" }

static const int fake_impl = 1;

PORTS(q_talker, P("prompt", ROWS, "embeds[$hidden_size]"),
      P("feed", ROWS, "embeds[$hidden_size]?"), P("tokens", STREAM, "tokens"),
      P("codes", STREAM, "codes[$num_code_groups]"));
PORTS(q_code2wav, P("codes", STREAM_IN, "codes[_]"), P("audio", STREAM, "audio[24000]"));
PORTS(q_speaker, P("audio", IN, "audio[24000]?"), P("embedding", OUT, "hidden[_]"));
PORTS(q_ref, P("audio", IN, "audio[24000]?"), P("codes", OUT, "codes[_]"));
PORTS(thinker, P("prompt", ROWS, "embeds[_]"), P("deepstack", IN, "hidden[_]?"),
      P("tokens", STREAM, "tokens"), P("hidden", STREAM, "hidden[_]"),
      P("prompt_ids", OUT, "tokens"), P("prompt_hidden", OUT, "hidden[_]"),
      P("kv", OUT, "kv"));
PORTS(omni_audio, P("audios", IN, "list(audio[16000])"),
      P("embeds", OUT, "list(embeds[_])"));
PORTS(omni_vision, P("images", IN, "list(image)?"), P("videos", IN, "list(video)?"),
      P("images", OUT, "list(embeds[_])"), P("videos", OUT, "list(embeds[_])"),
      P("deepstack", OUT, "hidden[_]"));
PORTS(omni_talker, P("prompt", ROWS, "embeds[_]"), P("feed", ROWS, "embeds[_]?"),
      P("codes", STREAM, "codes[16]"));
PORTS(omni_code2wav, P("codes", STREAM_IN, "codes[16]"),
      P("audio", STREAM, "audio[24000]"));
PORTS(qwen_vl, P("prompt", ROWS, "embeds[_]"), P("hidden", OUT, "hidden[_]"));
PORTS(qwen_vl_vision, P("images", IN, "list(image)"),
      P("embeds", OUT, "list(embeds[_])"));
PORTS(dit16, P("text", IN, "hidden[_]"), P("image", IN, "latent[16]?"),
      P("latent", OUT, "latent[16]"));
PORTS(vae16, P("latent", IN, "latent[16]"), P("image", OUT, "image"));
PORTS(vae_enc16, P("image", IN, "image"), P("latent", OUT, "latent[16]"));
PORTS(umt5, P("tokens", IN, "tokens"), P("hidden", OUT, "hidden[4096]"));
PORTS(wan_dit, P("text", IN, "hidden[4096]"), P("image", IN, "latent[16]?"),
      P("latent", OUT, "latent[16]"));
PORTS(wan_vae, P("latent", IN, "latent[16]"), P("video", STREAM, "video"));
PORTS(bagel_llm, P("prompt", ROWS, "embeds[_]"), P("tokens", STREAM, "tokens"),
      P("kv", OUT, "kv"));
PORTS(bagel_vit, P("images", IN, "list(image)"), P("embeds", OUT, "list(embeds[_])"));
PORTS(bagel_vae_enc, P("images", IN, "list(image)"),
      P("latents", OUT, "list(latent[16])"));
PORTS(bagel_dit, P("kv", IN, "kv"), P("latent", OUT, "latent[16]"));
PORTS(higgs, P("prompt", ROWS, "embeds[_]"), P("codes", STREAM, "codes[8]"));
PORTS(higgs_dec, P("codes", STREAM_IN, "codes[8]"), P("audio", STREAM, "audio[24000]"));
PORTS(higgs_enc, P("audio", IN, "audio[24000]?"), P("codes", OUT, "codes[8]"));
PORTS(cosy_lm, P("prompt", ROWS, "embeds[_]"), P("codes", STREAM, "codes[1]"));
PORTS(cosy_flow, P("codes", STREAM_IN, "codes[1]"), P("prompt_codes", IN, "codes[1]?"),
      P("prompt_mel", IN, "mel[80]?"), P("speaker", IN, "hidden[192]?"),
      P("audio", STREAM, "audio[24000]"));
PORTS(cosy_tok, P("audio", IN, "audio[16000]"), P("codes", OUT, "codes[1]"));
PORTS(campplus, P("audio", IN, "audio[16000]"), P("embedding", OUT, "hidden[192]"));
PORTS(cosy_mel, P("audio", IN, "audio[24000]"), P("mel", OUT, "mel[80]"));

OPTIONS(thinker, O("hidden_layer", OG_OPT_INT, "24", 0));
OPTIONS(qwen_vl, O("layer", OG_OPT_INT, "-1", 0));
OPTIONS(umt5, O("max_length", OG_OPT_INT, "512", 0),
        O("pad_output", OG_OPT_BOOL, "false", 0));
OPTIONS(wan_dit, O("boundary_ratio", OG_OPT_FLOAT, "0.9", 0));
OPTIONS(higgs, O("delay", OG_OPT_STR, "0", 0));
OPTIONS(higgs_dec, {"left_context", OG_OPT_INT, "25", 0, 1000, 1, "test"},
        O("lookahead", OG_OPT_INT, "4", 0));
OPTIONS(cosy_flow, O("lookahead", OG_OPT_INT, "3", 0), O("steps", OG_OPT_INT, "10", 1));

static const char *const guidance[] = {"cond", "uncond", NULL};
static const char *const bagel_lanes[] = {"cond", "no_text", "no_image", NULL};

#define ARCH(id, text, k, ports_of, ...)                                                 \
    static const og_arch id = {.name = text,                                             \
                               .doc = "test",                                            \
                               .kind = k,                                                \
                               .ports = ports_##ports_of,                                \
                               .impl = &fake_impl,                                       \
                               __VA_ARGS__}
ARCH(a1, "qwen3_tts_talker", OG_KIND_AR, q_talker, .tokenizer = "",
     .section = "talker_config");
ARCH(a2, "qwen3_tts_code2wav", OG_KIND_VOCODER, q_code2wav, );
ARCH(a3, "qwen3_tts_speaker", OG_KIND_ENCODER, q_speaker, );
ARCH(a4, "qwen3_tts_codec_encoder", OG_KIND_ENCODER, q_ref, );
ARCH(a5, "qwen3_omni_thinker", OG_KIND_AR, thinker, .options = options_thinker);
ARCH(a6, "qwen3_omni_audio", OG_KIND_ENCODER, omni_audio, );
ARCH(a7, "qwen3_omni_vision", OG_KIND_ENCODER, omni_vision, );
ARCH(a8, "qwen3_omni_talker", OG_KIND_AR, omni_talker, );
ARCH(a9, "qwen3_omni_code2wav", OG_KIND_VOCODER, omni_code2wav, );
ARCH(b1, "qwen2_5_vl", OG_KIND_ENCODER, qwen_vl, .options = options_qwen_vl);
ARCH(b2, "qwen2_5_vl_vision", OG_KIND_ENCODER, qwen_vl_vision, );
ARCH(b3, "qwen_image_dit", OG_KIND_DIT, dit16, .lanes = guidance);
ARCH(b4, "qwen_image_vae", OG_KIND_VAE, vae16, );
ARCH(b5, "qwen_image_vae_encoder", OG_KIND_VAE, vae_enc16, );
ARCH(b6, "umt5", OG_KIND_ENCODER, umt5, .options = options_umt5);
ARCH(b7, "wan_dit", OG_KIND_DIT, wan_dit, .lanes = guidance, .options = options_wan_dit);
ARCH(b8, "wan_vae", OG_KIND_VAE, wan_vae, );
ARCH(b9, "wan_vae_encoder", OG_KIND_VAE, vae_enc16, );
ARCH(c1, "bagel_llm", OG_KIND_AR, bagel_llm, );
ARCH(c2, "bagel_vit", OG_KIND_ENCODER, bagel_vit, );
ARCH(c3, "bagel_vae_encoder", OG_KIND_VAE, bagel_vae_enc, );
ARCH(c4, "bagel_dit", OG_KIND_DIT, bagel_dit, .lanes = bagel_lanes);
ARCH(c5, "bagel_vae", OG_KIND_VAE, vae16, );
ARCH(c6, "higgs_v3_talker", OG_KIND_AR, higgs, .tokenizer = "", .options = options_higgs);
ARCH(c7, "higgs_codec_decoder", OG_KIND_VOCODER, higgs_dec, .options = options_higgs_dec);
ARCH(c8, "higgs_codec_encoder", OG_KIND_ENCODER, higgs_enc, );
ARCH(c9, "cosyvoice3_lm", OG_KIND_AR, cosy_lm, .tokenizer = "");
ARCH(d1, "cosyvoice3_flow", OG_KIND_VOCODER, cosy_flow, .options = options_cosy_flow);
ARCH(d2, "cosyvoice3_speech_tokenizer", OG_KIND_ENCODER, cosy_tok, );
ARCH(d3, "campplus", OG_KIND_ENCODER, campplus, );
ARCH(d4, "cosyvoice3_mel", OG_KIND_ENCODER, cosy_mel, );

static const og_arch *const fake_archs[] = {
    &a1, &a2, &a3, &a4, &a5, &a6, &a7, &a8, &a9, &b1, &b2, &b3, &b4, &b5, &b6, &b7,
    &b8, &b9, &c1, &c2, &c3, &c4, &c5, &c6, &c7, &c8, &c9, &d1, &d2, &d3, &d4, NULL};

/* A kind's plan with round numbers: 1000 bytes of weights, 16 of KV a position. */
static int fake_plan(const og_arch *a, const og_node_cfg *cfg, og_node_plan *out,
                     og_err *err) {
    (void)err;
    out->weight_bytes = 1000;
    out->kv_bytes = cfg->kv_bytes
                        ? cfg->kv_bytes
                        : (size_t)cfg->max_seqs * (size_t)cfg->max_model_len * 16;
    out->state_bytes = 10;
    out->max_positions = a->kind == OG_KIND_AR ? 8192 : 0;
    for (int i = 0; i < OG_MAX_PORTS; i++) {
        out->out_items_per_item[i] = a->kind == OG_KIND_VOCODER ? 1920 : 1;
        out->out_item_bytes[i] = 4;
        out->out_width[i] = 1;
    }
    return 0;
}

static const og_node_api fake_api;
static const og_kind_desc fake_kinds[] = {
    {OG_KIND_ENCODER, "encoder", "test", &fake_api, fake_plan},
    {OG_KIND_AR, "ar_decoder", "test", &fake_api, fake_plan},
    {OG_KIND_DIT, "dit", "test", &fake_api, fake_plan},
    {OG_KIND_VAE, "vae", "test", &fake_api, fake_plan},
    {OG_KIND_VOCODER, "vocoder", "test", &fake_api, fake_plan}};

static const char *const pipeline_dirs[] = {OG_SOURCE_DIR "/pipelines"};
static const char *const script_dirs[] = {OG_SOURCE_DIR "/scripts/lua"};

/* Options with the fake archs and the repository's folders. */
static inline og_plan_options fake_options(const char *pipeline) {
    og_plan_options o = OG_PLAN_OPTIONS_INIT;
    o.pipeline = pipeline;
    o.pipeline_dirs = pipeline_dirs, o.n_pipeline_dirs = 1;
    o.script_dirs = script_dirs, o.n_script_dirs = 1;
    o.registry = (og_plan_registry){fake_archs, fake_kinds, 5};
    return o;
}

#endif
