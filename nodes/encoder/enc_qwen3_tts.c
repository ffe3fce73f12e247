/* Encoders of a Qwen3-TTS Base checkpoint: the speaker vector (an ECAPA-TDNN over 128 mels)
 * and the codec encoder (Mimi). Their descriptors, so that a pipeline which has them can be
 * compiled and its types checked; the kind `encoder` has no api.
 */
#include "nodes/encoder/encoder.h"

#define MELS 128 /* fixed in the public code, whatever mel_dim says */

static int check_speaker(const json_t *s, og_err *err) {
    int v, n, many[16];
    int rc = og_cfg_int(s, "enc_dim", &v, 1, 1 << 20, err);
    if (!rc) rc = og_cfg_int_or(s, "sample_rate", &v, 24000, 1, 1 << 20, err);
    if (!rc) rc = og_cfg_int_or(s, "mel_dim", &v, MELS, MELS, MELS, err);
    if (!rc) rc = og_cfg_int_array(s, "enc_channels", many, 16, &n, 1, 1 << 20, err);
    return rc;
}

static const og_port_desc speaker_ports[] = {
    {"audio", OG_PORT_IN | OG_PORT_SAMPLES, "audio[24000]?", "reference voice, mono"},
    {"embedding", OG_PORT_OUT, "hidden[$enc_dim]", "one vector"},
    {0}};

const og_arch og_arch_qwen3_tts_speaker = {
    .name = "qwen3_tts_speaker",
    .doc = "Speaker vector of a reference voice.",
    .kind = OG_KIND_ENCODER,
    .model = "Qwen3-TTS",
    .section = "speaker_encoder_config",
    .ports = speaker_ports,
    .check = check_speaker};

static int check_codec(const json_t *s, og_err *err) {
    int v;
    int rc = og_cfg_int(s, "encoder_valid_num_quantizers", &v, 1, 64, err);
    if (!rc) rc = og_cfg_int(s, "input_sample_rate", &v, 1, 1 << 20, err);
    if (!rc) rc = og_cfg_int(s, "encode_downsample_rate", &v, 1, 1 << 20, err);
    if (!rc) rc = og_cfg_int(s, "encoder_config.hidden_size", &v, 1, 1 << 20, err);
    if (!rc) rc = og_cfg_int(s, "encoder_config.num_quantizers", &v, 1, 1024, err);
    return rc;
}

static const og_port_desc codec_ports[] = {
    {"audio", OG_PORT_IN | OG_PORT_SAMPLES, "audio[$input_sample_rate]?",
     "reference voice, mono"},
    {"codes", OG_PORT_OUT, "codes[$encoder_valid_num_quantizers]",
     "one frame for each encode_downsample_rate samples"},
    {0}};

const og_arch og_arch_qwen3_tts_codec_encoder = {
    .name = "qwen3_tts_codec_encoder",
    .doc = "Codes of a reference voice, as the talker speaks them.",
    .kind = OG_KIND_ENCODER,
    .model = "Qwen3-TTS-Tokenizer-12Hz",
    .section = "",
    .ports = codec_ports,
    .check = check_codec};
