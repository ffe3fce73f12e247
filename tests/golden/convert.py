"""Turn the reference's .npz golden files into one small .safetensors per case.

    convert.py SOURCE DEST      e.g. convert.py golden tests/golden/qwen3_tts

SOURCE holds tiny-a/*.npz and tiny-b/*.npz, and voice/*.npz when there is one; needs numpy.
Kept are the greedy custom_voice and voice_design requests and the codec decoder's cases.
cv_en and codec_decode_T7 also keep intermediates, for bisecting by layer.
"""
import glob
import json
import os
import sys

import numpy as np

KEEP = ("input_ids instruct_ids prompt_embeds trailing_text_hidden tts_pad_embed "
        "talker_tokens talker_hidden talker_margin cp_margin codes wav "
        "frame_idx wav_frames wav_unchunked_frames wav_frame_rms").split()
DEEP = {
    "cv_en": "prefill_hidden_all prefill_layers_last talker_logits talker_scores "
             "cp_input cp_logits".split(),
    "codec_decode_T7": "tap_quantized tap_pre_conv tap_tr_input_proj tap_tr_layer0 "
                       "tap_tr_norm tap_pre_transformer tap_up0_convt tap_up0_convnext "
                       "tap_up1_convnext tap_dec0 tap_dec1_b0 tap_dec1_b1 tap_dec1_b2 "
                       "tap_dec1 tap_dec2".split(),
}
MAX_WAV = 60000  # samples of a waveform that are kept; wav_len has the true count
DTYPES = {"float32": "F32", "int64": "I64", "int32": "I32"}


def save(path, arrays, meta):
    header, blobs, at = {"__metadata__": meta}, [], 0
    for name in sorted(arrays):
        a = np.ascontiguousarray(arrays[name])
        header[name] = {"dtype": DTYPES[str(a.dtype)], "shape": list(a.shape),
                        "data_offsets": [at, at + a.nbytes]}
        blobs.append(a.tobytes())
        at += a.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(blobs))
    return 8 + len(text) + at


def convert(source, dest):
    case = os.path.splitext(os.path.basename(source))[0]
    data = np.load(source, allow_pickle=False)
    names = [k for k in KEEP + DEEP.get(case, []) if k in data]
    arrays = {k: data[k] for k in names}
    if "wav" in arrays:
        arrays["wav_len"] = np.array([arrays["wav"].size], np.int64)
        arrays["wav"] = arrays["wav"][:MAX_WAV]
    meta = {}
    for k in ("meta_json", "text"):
        if k in data:
            meta[k] = str(data[k])
    if "sample_rate" in data:
        meta["sample_rate"] = str(int(data["sample_rate"]))
    return save(os.path.join(dest, case + ".safetensors"), arrays, meta)


def main():
    source, dest = sys.argv[1:3]
    total = 0
    for group, patterns in (("tiny-a", ("cv_*", "vd_*", "codec_decode_*")),
                            ("tiny-b", ("cv_*", "vd_*", "codec_decode_*")),
                            ("voice", ("en_*",))):
        os.makedirs(os.path.join(dest, group), exist_ok=True)
        for pattern in patterns:
            for path in sorted(glob.glob(os.path.join(source, group, pattern + ".npz"))):
                total += convert(path, os.path.join(dest, group))
    print(total, "bytes")


main()
