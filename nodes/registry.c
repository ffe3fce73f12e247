#include "nodes/registry.h"
#include "nodes/ar/ar.h"
#include "nodes/encoder/encoder.h"
#include "nodes/vocoder/vocoder.h"

#include <string.h>

const og_arch *const og_archs[] = {&og_arch_qwen3_tts_talker, &og_arch_qwen3_tts_code2wav,
                                   &og_arch_qwen3_tts_speaker,
                                   &og_arch_qwen3_tts_codec_encoder, NULL};

/* In the order of og_kind. */
static const og_kind_desc kinds[] = {
    {OG_KIND_ENCODER, "encoder",
     "reads a whole input (text, audio, an image) and gives hidden states, codes or one "
     "vector", &og_encoder_api, og_encoder_plan},
    {OG_KIND_AR, "ar_decoder",
     "decodes token by token, or frame by frame with a depth head: paged KV, chunked "
     "prefill, continuous batching, rows that come while it decodes",
     &og_ar_api, og_ar_plan},
    {OG_KIND_DIT, "dit", "denoises latents step by step, many requests in one step", NULL,
     NULL},
    {OG_KIND_VAE, "vae", "turns latents into pictures or video and back, in tiles", NULL,
     NULL},
    OG_KIND_VOCODER_DESC};

const og_kind_desc *og_kinds(int *n) {
    *n = sizeof kinds / sizeof *kinds;
    return kinds;
}

const og_kind_desc *og_kind_get(og_kind kind) {
    int n;
    const og_kind_desc *k = og_kinds(&n);
    return (int)kind >= 0 && (int)kind < n ? &k[kind] : NULL;
}

const og_kind_desc *og_kind_find(const char *name) {
    int n;
    const og_kind_desc *k = og_kinds(&n);
    for (int i = 0; i < n; i++)
        if (!strcmp(k[i].name, name)) return &k[i];
    return NULL;
}

const og_arch *og_arch_find(const char *name) {
    for (int i = 0; og_archs[i]; i++)
        if (!strcmp(og_archs[i]->name, name)) return og_archs[i];
    return NULL;
}
