"""Run the public reference on the reference clips in files, and store what came of it.

    clone.py CHECKPOINTS DEST       e.g. clone.py ckpt tests/golden/qwen3_tts

CHECKPOINTS holds tiny-a/base and tiny-b/base; needs qwen-tts (bench/reference/setup.sh). The
clips are 44.1 kHz, one and two channels, with partials on both sides of 12 kHz, so that the
mixing and the filter of the resampler count. They are written once and read by the reference
as by the engine, each with its own decoder. Files that are there already are left alone.
"""
import json
import os
import sys
import warnings

import numpy as np
import soundfile
import torch
from qwen_tts import Qwen3TTSModel

from convert import save

warnings.filterwarnings("ignore")
torch.set_grad_enabled(False)
torch.set_num_threads(1)

RATE = 44100
MAX_WAV = 1200
GREEDY = dict(do_sample=False, subtalker_dosample=False, repetition_penalty=1.05,
              max_new_tokens=20)
CASES = {
    "base_icl_44k": dict(clip="clip_44k_mono.flac", text="Hello, this is a test.",
                         language="English", ref_text="This is the reference text."),
    "base_xvec_44k_stereo": dict(clip="clip_44k_stereo.flac", text="Hello, this is a test.",
                                 language="English", x_vector_only_mode=True),
    "base_icl_44k_stereo": dict(clip="clip_44k_stereo.flac", text="Two channels, one voice.",
                                language="English", ref_text="This is the reference text."),
}


def voice(seconds, pitch, seed):
    """Gliding partials up to 17 kHz under syllables, and a little noise."""
    n = int(seconds * RATE)
    t = np.arange(n) / RATE
    f0 = pitch + 30 * np.sin(2 * np.pi * 0.9 * t) + 8 * np.sin(2 * np.pi * 3.3 * t)
    phase = 2 * np.pi * np.cumsum(f0) / RATE
    x = sum(0.93 ** k / k * np.sin(k * phase + k) for k in range(1, 25))
    x += sum(0.02 * np.sin(k * phase + k) for k in range(60, int(17000 / (pitch + 40)), 9))
    syllables = 0.15 + 0.85 * np.clip(np.sin(2 * np.pi * 2.1 * t + 0.3), 0, 1) ** 0.7
    noise = 0.0005 * np.random.RandomState(seed).randn(n)
    return (0.12 * x * syllables + noise).clip(-1, 1)


def write_clips(folder):
    left, right = voice(0.6, 150, 45), voice(0.6, 110, 46)
    clips = {"clip_44k_mono.flac": voice(1.0, 130, 44),
             "clip_44k_stereo.flac": np.stack([left, 0.6 * right], 1)}
    for name, x in clips.items():
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            soundfile.write(path, x, RATE, subtype="PCM_16")


def run(model, tapped, folder, case):
    args = dict(CASES[case])
    clip = args.pop("clip")
    items = model.create_voice_clone_prompt(
        os.path.join(folder, clip), args.get("ref_text"), args.get("x_vector_only_mode", False))
    wavs, rate = model.generate_voice_clone(
        text=args["text"], language=args["language"], voice_clone_prompt=items, **GREEDY)
    out = {"codes": tapped["codes"].numpy().astype(np.int64),
           "wav": wavs[0][:MAX_WAV], "wav_len": np.array([wavs[0].size], np.int64),
           "speaker_embedding": items[0].ref_spk_embedding.float().numpy()}
    if items[0].ref_code is not None:
        out["ref_codes"] = items[0].ref_code.numpy()
    facts = json.dumps({**args, **GREEDY}, ensure_ascii=False)
    return out, {"meta_json": facts, "ref_file": clip, "sample_rate": str(rate)}


def main():
    checkpoints, dest = sys.argv[1:3]
    write_clips(dest)
    for name in ("tiny-a", "tiny-b"):
        model = Qwen3TTSModel.from_pretrained(os.path.join(checkpoints, name, "base"),
                                              dtype=torch.float32, attn_implementation="sdpa")
        tapped, inner = {}, model.model.generate

        def generate(**kw):
            result = inner(**kw)
            tapped["codes"] = result[0][0]
            return result

        model.model.generate = generate
        for case in CASES:
            path = os.path.join(dest, name, case + ".safetensors")
            arrays, meta = run(model, tapped, dest, case)
            shapes = {k: v.shape for k, v in arrays.items()}
            print(name, case, shapes, 0 if os.path.exists(path) else save(path, arrays, meta))


main()
