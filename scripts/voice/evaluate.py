"""Word error rate by Whisper base: evaluate.py WHISPER_FOLDER SENTENCES.txt WAVES [WAVES ...]

WAVES holds 000.wav, 001.wav, ... of the sentences, in order. int8, beam 5, one sentence a call.
Prints, for each folder, the error with its 95% interval (bootstrap over sentences), and what
was heard amiss. The words are compared in lower case, without punctuation, digits as words.
"""
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


def main(whisper, sentences, folders):
    from faster_whisper import WhisperModel
    model = WhisperModel(whisper, device="cpu", compute_type="int8", cpu_threads=1)
    refs = [line.strip() for line in open(sentences)]
    for folder in folders:
        wrong, total = [], []
        for i, ref in enumerate(refs):
            heard, _ = model.transcribe(samples_16k(f"{folder}/{i:03d}.wav"), language="en",
                                        beam_size=5, condition_on_previous_text=False,
                                        without_timestamps=True)
            hyp = " ".join(s.text.strip() for s in heard)
            wrong.append(errors(words(ref), words(hyp)))
            total.append(len(words(ref)))
            if wrong[-1]:
                print(f"  {i:3d} {wrong[-1]} {ref} | {hyp}", flush=True)
        wrong, total = np.array(wrong), np.array(total)
        draw = np.random.default_rng(1).integers(0, len(refs), (10000, len(refs)))
        rate = wrong[draw].sum(1) / total[draw].sum(1)
        low, high = np.percentile(rate, (2.5, 97.5))
        print(f"{folder}: {100 * wrong.sum() / total.sum():.1f}% of {total.sum()} words "
              f"[{100 * low:.1f}, {100 * high:.1f}]", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
