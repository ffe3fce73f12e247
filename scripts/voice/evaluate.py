"""Word error rate by Whisper base: evaluate.py WHISPER_FOLDER SENTENCES.txt WAVES [WAVES ...]

WAVES holds 000.wav, 001.wav, ... of the sentences, in order. int8, beam 5, one sentence a call.
Prints, for each folder, the error with its 95% interval (bootstrap over sentences), and what
was heard amiss. What was heard is kept in WAVES/heard.json, by the sums of the files, so that a
second call listens to changed files alone. The words are compared in lower case, without punctuation, digits as words.
"""
import hashlib
import json
import os
import re
import sys
import wave

import numpy as np

DIGITS = dict(zip("1 2 3 4 5 6 7 8 9 10 11 12 20 24 30 50".split(),
                  "one two three four five six seven eight nine ten eleven twelve twenty "
                  "twenty_four thirty fifty".split()))


def words(s):
    s = re.sub(r"[^a-z0-9' ]", " ", s.lower().replace("-", " "))
    return " ".join(DIGITS.get(w, w) for w in s.split()).replace("_", " ").split()


def errors(ref, hyp):
    row = list(range(len(hyp) + 1))
    for i, r in enumerate(ref, 1):
        last, row[0] = row[0], i
        for j, h in enumerate(hyp, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (r != h))
    return row[-1]


def samples_16k(path):
    with wave.open(path) as f:
        rate = f.getframerate()
        x = np.frombuffer(f.readframes(f.getnframes()), np.int16).astype(np.float32) / 32768
    if rate == 24000:  # 3:2 through a windowed sinc
        t = np.arange(-48, 49) / 3.0
        h = np.sinc(t * 0.94) * np.hanning(len(t)) * 0.94 * 2 / 3
        up = np.zeros(2 * len(x), np.float32)
        up[::2] = x
        x = np.convolve(up, h.astype(np.float32), "same")[::3]
    return np.ascontiguousarray(x, np.float32)


class Listener:
    """Whisper base on one core, asked once for each file."""

    def __init__(self, whisper):
        self.whisper, self.model = whisper, None

    def hear(self, path, known):
        with open(path, "rb") as f:
            key = hashlib.sha256(f.read()).hexdigest()
        if key not in known:
            if not self.model:
                from faster_whisper import WhisperModel
                self.model = WhisperModel(self.whisper, device="cpu", compute_type="int8",
                                          cpu_threads=1)
            heard, _ = self.model.transcribe(samples_16k(path), language="en", beam_size=5,
                                             condition_on_previous_text=False,
                                             without_timestamps=True)
            known[key] = " ".join(s.text.strip() for s in heard)
        return known[key]


def main(whisper, sentences, folders):
    listener = Listener(whisper)
    refs = [line.strip() for line in open(sentences)]
    for folder in folders:
        cache = folder + "/heard.json"
        known = json.load(open(cache)) if os.path.exists(cache) else {}
        wrong, total = [], []
        for i, ref in enumerate(refs):
            hyp = listener.hear(f"{folder}/{i:03d}.wav", known)
            wrong.append(errors(words(ref), words(hyp)))
            total.append(len(words(ref)))
            if wrong[-1]:
                print(f"  {i:3d} {wrong[-1]} {ref} | {hyp}", flush=True)
        with open(cache, "w") as f:
            json.dump(known, f)
        wrong, total = np.array(wrong), np.array(total)
        draw = np.random.default_rng(1).integers(0, len(refs), (10000, len(refs)))
        rate = wrong[draw].sum(1) / total[draw].sum(1)
        low, high = np.percentile(rate, (2.5, 97.5))
        print(f"{folder}: {100 * wrong.sum() / total.sum():.1f}% of {total.sum()} words "
              f"[{100 * low:.1f}, {100 * high:.1f}]", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
