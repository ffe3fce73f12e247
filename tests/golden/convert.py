"""Turn the reference's .npz golden files into one small .safetensors per case.

    convert.py SOURCE DEST              e.g. convert.py golden tests/golden/qwen3_tts
    convert.py --base CHECKPOINTS DATA  e.g. convert.py --base ckpt tests/data/qwen3_tts

SOURCE holds tiny-a/*.npz and tiny-b/*.npz, and voice/*.npz when there is one; needs numpy.
Kept are the greedy requests of all three variants and the cases of the codec's decoder and
encoder. cv_en, codec_decode_T7 and codec_encode_short also keep intermediates, for
bisecting by layer. Files that are there already are left alone.

--base writes the Base variant of the tiny checkpoints beside custom_voice. The two share all
weights but the speaker encoder's, so Base is stored as two shards, of which the first is a
link.
"""
import glob
import json
import os
import sys

import numpy as np

KEEP = ("input_ids instruct_ids prompt_embeds trailing_text_hidden tts_pad_embed "
        "talker_tokens talker_hidden talker_margin cp_margin codes wav "
        "frame_idx wav_frames wav_unchunked_frames wav_frame_rms "
        "ref_ids ref_codes ref_wav speaker_embedding margin tap_downsample mel").split()
DEEP = {
    "cv_en": "prefill_hidden_all prefill_layers_last talker_logits talker_scores "
             "cp_input cp_logits".split(),
    "codec_decode_T7": "tap_quantized tap_pre_conv tap_tr_input_proj tap_tr_layer0 "
                       "tap_tr_norm tap_pre_transformer tap_up0_convt tap_up0_convnext "
                       "tap_up1_convnext tap_dec0 tap_dec1_b0 tap_dec1_b1 tap_dec1_b2 "
                       "tap_dec1 tap_dec2".split(),
    "codec_encode_short": "tap_enc6 tap_enc9 tap_enc12 tap_enc14 "
                          "tap_tr_layer0 tap_tr_layer1 tap_tr_layer2 "
                          "tap_spk_block0 tap_spk_block1 tap_spk_block2 tap_spk_block3 "
                          "tap_spk_mfa tap_spk_asp".split(),
}
SHARDS = ["model-%05d-of-00002.safetensors" % i for i in (1, 2)]
MAX_WAV = 60000  # samples of a waveform that are kept; wav_len has the true count
MAX_WAV_BASE = 4800  # the same of a Base request: its cut is at the start
MAX_CLIP_BASE = 40000  # longer reference clips of Base requests are left out
DTYPES = {"float32": "F32", "float64": "F64", "int64": "I64", "int32": "I32"}


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


def convert(source, dest, clips):
    case = os.path.splitext(os.path.basename(source))[0]
    path = os.path.join(dest, case + ".safetensors")
    base = case.startswith("base_")
    data = np.load(source, allow_pickle=False)
    names = [k for k in KEEP + DEEP.get(case, []) if k in data]
    arrays = {k: data[k] for k in names}
    meta = {}
    ref = "wav" if case.startswith("codec_encode_") else "ref_wav"
    if ref in arrays:
        clip = arrays.pop(ref)
        if not base or clip.size <= MAX_CLIP_BASE:
            meta["clip"] = clips.setdefault(clip.tobytes(), case)
    if "margin" in arrays:
        arrays["margin"] = arrays["margin"].astype(np.float32)
    if "wav" in arrays:
        arrays["wav_len"] = np.array([arrays["wav"].size], np.int64)
        arrays["wav"] = arrays["wav"][:MAX_WAV_BASE if base else MAX_WAV]
    for k in ("meta_json", "text"):
        if k in data:
            meta[k] = str(data[k])
    if "sample_rate" in data:
        meta["sample_rate"] = str(int(data["sample_rate"]))
    if "ref_sr" in data:
        meta["ref_sr"] = str(int(data["ref_sr"]))
    return 0 if os.path.exists(path) else save(path, arrays, meta)


def base(checkpoints, dest):
    for name in ("tiny-a", "tiny-b"):
        source, folder = (os.path.join(root, name, "base") for root in (checkpoints, dest))
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(source, "model.safetensors"), "rb") as f:
            n = int.from_bytes(f.read(8), "little")
            header, data = json.loads(f.read(n)), f.read()
        header.pop("__metadata__", None)
        at = {k: v["data_offsets"] for k, v in header.items()}
        own = {k: np.frombuffer(data[at[k][0]:at[k][1]], np.float32).reshape(v["shape"])
               for k, v in header.items() if k.startswith("speaker_encoder.")}
        save(os.path.join(folder, SHARDS[1]), own, {"format": "pt"})
        index = {"metadata": {"total_size": len(data)},
                 "weight_map": {k: SHARDS[k in own] for k in sorted(header)}}
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
            json.dump(index, f, indent=1)
        with open(os.path.join(source, "config.json")) as f, \
             open(os.path.join(folder, "config.json"), "w") as g:
            g.write(f.read())
        links = {k: k for k in ("generation_config.json", "merges.txt", "vocab.json",
                                "preprocessor_config.json", "tokenizer_config.json",
                                "speech_tokenizer")}
        for k, v in {**links, SHARDS[0]: "model.safetensors"}.items():
            if not os.path.lexists(os.path.join(folder, k)):
                os.symlink("../custom_voice/" + v, os.path.join(folder, k))


def main():
    if sys.argv[1] == "--base":
        return base(*sys.argv[2:4])
    source, dest = sys.argv[1:3]
    total, clips = 0, {}
    tiny = ("cv_*", "vd_*", "codec_decode_*", "codec_encode_*", "base_*")
    for group, patterns in (("tiny-a", tiny), ("tiny-b", tiny), ("voice", ("en_*",))):
        os.makedirs(os.path.join(dest, group), exist_ok=True)
        for pattern in patterns:
            for path in sorted(glob.glob(os.path.join(source, group, pattern + ".npz"))):
                total += convert(path, os.path.join(dest, group), clips)
    total += save(os.path.join(dest, "clips.safetensors"),
                  {case: np.frombuffer(b, np.float32) for b, case in clips.items()}, {})
    print(total, "bytes")


if __name__ == "__main__":
    main()
