"""The checkpoint in the public layout: export.py WORK FOLDER (bf16; needs the qwen-tts package).

The codec encoder has the real network class and random weights: only cloning would use it.
"""
import json
import os
import sys

import torch
from qwen_tts.core import Qwen3TTSTokenizerV2Config, Qwen3TTSTokenizerV2Model
from safetensors.torch import save_file

import tokenizer
from codec_net import CONFIG, FRAME
from talker_net import ENGLISH, IDS, PREDICTOR, SPEAKER_IDS, TALKER

SPECIAL = tokenizer.SPECIAL
SAMPLING = {"do_sample": True, "repetition_penalty": 1.0, "temperature": 0.3, "top_k": 20,
            "top_p": 1.0, "subtalker_dosample": True, "subtalker_temperature": 0.3,
            "subtalker_top_k": 20, "subtalker_top_p": 1.0, "max_new_tokens": 512}
COMMON = {"attention_bias": False, "attention_dropout": 0, "hidden_act": "silu",
          "initializer_range": 0.02, "sliding_window": None, "use_cache": True,
          "use_sliding_window": False}
ENCODER = dict(audio_channels=1, attention_bias=False, attention_dropout=0.0, codebook_dim=8,
               codebook_size=CONFIG["codebook_size"], compress=2, dilation_growth_rate=2,
               head_dim=8, hidden_act="gelu", hidden_size=16, initializer_range=0.02,
               intermediate_size=16, kernel_size=7, last_kernel_size=3,
               layer_scale_initial_scale=0.01, max_position_embeddings=8000, norm_eps=1e-5,
               normalize=False, num_attention_heads=2, num_filters=2, num_hidden_layers=1,
               num_key_value_heads=2, num_quantizers=CONFIG["num_quantizers"],
               num_residual_layers=1, num_semantic_quantizers=1, pad_mode="constant",
               residual_kernel_size=3, rope_theta=10000.0, sampling_rate=24000,
               sliding_window=250, trim_right_ratio=1.0, upsample_groups=16,
               upsampling_ratios=[8, 6, 5, 4], use_cache=False, use_causal_conv=True,
               use_conv_shortcut=False, use_streaming=False,
               vector_quantization_hidden_dimension=8, _frame_rate=12.5, model_type="mimi")


def write(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=1)


def root_config():
    predictor = {"model_type": "qwen3_tts_talker_code_predictor", **COMMON,
                 "layer_types": ["full_attention"] * PREDICTOR["num_hidden_layers"],
                 "max_position_embeddings": 65536, "max_window_layers": 28,
                 "rope_scaling": None, **PREDICTOR}
    rope = {"interleaved": True, "mrope_section": [12, 10, 10], "rope_type": "default",
            "type": "default"}
    talker = {"model_type": "qwen3_tts_talker", **COMMON, "max_position_embeddings": 32768,
              "position_id_per_seconds": 13, "rope_scaling": rope, **TALKER, **IDS,
              "codec_language_id": {"english": ENGLISH}, "spk_id": SPEAKER_IDS,
              "spk_is_dialect": dict.fromkeys(SPEAKER_IDS, False),
              "code_predictor_config": predictor}
    return {"architectures": ["Qwen3TTSForConditionalGeneration"], "model_type": "qwen3_tts",
            "tokenizer_type": "qwen3_tts_tokenizer_12hz", "tts_model_size": "0b6",
            "tts_model_type": "custom_voice", "speakable": "A-Za-z ,.'?!;:-",
            "assistant_token_id": tokenizer.VOCAB["assistant"],
            "im_start_token_id": SPECIAL["<|im_start|>"],
            "im_end_token_id": SPECIAL["<|im_end|>"], "tts_pad_token_id": SPECIAL["<tts_pad>"],
            "tts_bos_token_id": SPECIAL["<tts_text_bos>"],
            "tts_eos_token_id": SPECIAL["<tts_text_eod>"], "talker_config": talker,
            "torch_dtype": "bfloat16", "transformers_version": "4.57.3"}


def codec_weights(decoder, config):
    weights = {}
    for k, v in decoder.items():
        if k.endswith("embedding_sum"):  # rows with usage 1: rounding leaves the ratio alone
            v = v / decoder[k.replace("embedding_sum", "cluster_usage")].clamp(min=1e-5)[:, None]
        elif k.endswith("cluster_usage"):
            v = torch.ones_like(v)
        weights["decoder." + k] = v.bfloat16().contiguous()
    torch.manual_seed(0)
    whole = Qwen3TTSTokenizerV2Model(Qwen3TTSTokenizerV2Config(**config)).state_dict()
    assert {k for k in whole if k.startswith("decoder.")} == set(weights)
    for k, v in whole.items():
        if k.startswith("encoder."):
            weights[k] = (v.bfloat16() if v.is_floating_point() else v).contiguous().clone()
    return weights


def main(work, out):
    codec = out + "/speech_tokenizer"
    os.makedirs(codec, exist_ok=True)
    tokenizer.save(out)
    write(out + "/config.json", root_config())
    write(out + "/generation_config.json", SAMPLING)
    write(out + "/preprocessor_config.json",
          {"padding_side": "left", "padding_value": 0.0, "processor_class": "Qwen3TTSProcessor",
           "return_attention_mask": True})
    config = {"architectures": ["Qwen3TTSTokenizerV2Model"],
              "model_type": "qwen3_tts_tokenizer_12hz",
              "encoder_valid_num_quantizers": CONFIG["num_quantizers"],
              "input_sample_rate": 24000, "output_sample_rate": 24000,
              "decode_upsample_rate": FRAME, "encode_downsample_rate": FRAME,
              "encoder_config": ENCODER, "decoder_config": CONFIG, "torch_dtype": "bfloat16",
              "transformers_version": "4.57.3"}
    write(codec + "/config.json", config)
    write(codec + "/preprocessor_config.json",
          {"chunk_length_s": None, "feature_extractor_type": "EncodecFeatureExtractor",
           "feature_size": 1, "overlap": None, "padding_side": "right", "padding_value": 0.0,
           "return_attention_mask": True, "sampling_rate": 24000})
    talker = torch.load(work + "/talker.pt", map_location="cpu")
    save_file({"talker." + k: v.bfloat16().contiguous() for k, v in talker.items()},
              out + "/model.safetensors", metadata={"format": "pt"})
    decoder = torch.load(work + "/decoder.pt", map_location="cpu")
    save_file(codec_weights(decoder, config), codec + "/model.safetensors",
              metadata={"format": "pt"})
    size = sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(out)
               for f in files if not f.endswith(".md"))
    print(f"{out}: {size} bytes")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
