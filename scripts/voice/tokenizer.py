"""The byte tokenizer of the voice, in the files of a byte-level BPE.

A token a byte; the only merges build "assistant", which the prompt needs as one token.
"""
import json
import re

SPECIAL = {"<|endoftext|>": 264, "<|im_start|>": 265, "<|im_end|>": 266, "<tts_pad>": 267,
           "<tts_text_bos>": 268, "<tts_text_eod>": 269}
WORD = "assistant"
MERGES = [(WORD[:i], WORD[i]) for i in range(1, len(WORD))]
PIECES = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+| ?[0-9]| ?[^\sA-Za-z0-9]+|\s+", re.I)


def _letters():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}


LETTER = _letters()
VOCAB = {LETTER[b]: b for b in range(256)} | {a + b: 256 + i for i, (a, b) in enumerate(MERGES)}


def encode(text):
    out = []
    for piece in PIECES.findall(text):
        tokens = [LETTER[b] for b in piece.encode()]
        for a, b in MERGES:
            i = 0
            while i < len(tokens) - 1:
                if (tokens[i], tokens[i + 1]) == (a, b):
                    tokens[i:i + 2] = [a + b]
                else:
                    i += 1
        out += [VOCAB[t] for t in tokens]
    return out


def save(folder):
    with open(folder + "/vocab.json", "w") as f:
        json.dump(VOCAB, f, ensure_ascii=False)
    with open(folder + "/merges.txt", "w") as f:
        f.write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in MERGES))
    added = {str(i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False,
                      "single_word": False, "special": True} for t, i in SPECIAL.items()}
    with open(folder + "/tokenizer_config.json", "w") as f:
        json.dump({"add_prefix_space": False, "added_tokens_decoder": added,
                   "additional_special_tokens": list(SPECIAL)[1:], "bos_token": None,
                   "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>",
                   "errors": "replace", "model_max_length": 32768, "pad_token": "<|endoftext|>",
                   "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer",
                   "unk_token": None}, f, indent=1)
