/* The archs of the kind `encoder`. */
#ifndef OG_ENCODER_H
#define OG_ENCODER_H

#include "nodes/node.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const og_arch og_arch_qwen3_tts_speaker;
extern const og_arch og_arch_qwen3_tts_codec_encoder;

#ifdef __cplusplus
}
#endif
#endif
