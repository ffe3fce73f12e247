"""Goldens of the embedded voice from the public reference: golden.py CHECKPOINT FOLDER

Four sentences, speakers in turn, greedy, in float32 on the bf16 weights; needs the qwen-tts
package. en_N.safetensors: codes, the waveform's first 60,000 samples and its length.
"""
import sys

import numpy as np
import torch
from qwen_tts import Qwen3TTSModel
from safetensors.numpy import save_file

SPEAKERS = "rms", "slt"
LINES = ("The weather is nice today and the children play in the garden.",
         "Hello, this is the voice of the graph engine.", "Good morning, how are you today?",
         "Kick the ball straight and follow through.")


def main(checkpoint, folder):
    torch.set_num_threads(1)
    model = Qwen3TTSModel.from_pretrained(checkpoint, dtype=torch.float32,
                                          attn_implementation="sdpa")
    codec, seen = model.model.speech_tokenizer, []
    decode = codec.decode

    def watched(codes, *rest, **named):
        seen.append(codes)
        return decode(codes, *rest, **named)

    codec.decode = watched
    for i, line in enumerate(LINES):
        speaker = SPEAKERS[i % len(SPEAKERS)]
        waves, rate = model.generate_custom_voice(
            text=line, speaker=speaker, language="English", non_streaming_mode=True,
            do_sample=False, subtalker_dosample=False, repetition_penalty=1.0,
            max_new_tokens=200)
        codes = seen[-1][0] if isinstance(seen[-1], (list, tuple)) else seen[-1]
        codes = codes["audio_codes"] if isinstance(codes, dict) else codes
        codes = torch.as_tensor(codes).reshape(-1, 8).cpu().numpy().astype(np.int64)
        wave = np.asarray(waves[0], np.float32)
        save_file({"codes": codes, "wav": wave[:60000].copy(),
                   "wav_len": np.array([wave.size], np.int64)}, f"{folder}/en_{i}.safetensors",
                  metadata={"text": line, "voice": speaker, "sample_rate": str(rate)})
        print(f"{folder}/en_{i}.safetensors: {speaker}, {len(codes)} frames", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
