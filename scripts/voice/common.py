"""What the training steps share: the teacher's speech, the clock of a step, saving."""
import argparse
import glob
import os
import time

import numpy as np
import torch
import torchaudio

SPEAKERS = ("rms", "slt")
device = "cuda" if torch.cuda.is_available() else "cpu"


def arguments(text, **defaults):
    p = argparse.ArgumentParser(description=text)
    p.add_argument("work", help="folder of all that is made: train.txt, speech/, *.pt, codes.npz")
    for name, value in defaults.items():
        p.add_argument("--" + name, type=type(value), default=value)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    return p.parse_args()


class Clock:
    """Progress from 0 to 1 by steps, by seconds when no number of steps is given, or until a
    time of day (in seconds since 1970) when there is one."""

    def __init__(self, steps, seconds, until=0.0):
        self.steps, self.step, self.start = steps, 0, time.time()
        self.seconds = max(1.0, until - self.start) if until else seconds

    def elapsed(self):
        return time.time() - self.start

    def progress(self):
        return self.step / self.steps if self.steps else self.elapsed() / self.seconds

    def rate(self, peak, warm, floor):
        cosine = 0.5 * (1 + np.cos(np.pi * min(1, self.progress())))
        return peak * min(1, (self.step + 1) / warm) * (cosine * (1 - floor) + floor)


def save(state, path):
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)


class Speech:
    """Everything that the teacher has said by now, at 24 kHz on the device."""

    def __init__(self, work):
        self.edge = 1 << 62  # the samples from here on are the second speaker's
        waves, self.line, self.speaker, self.offset, self.length, base = [], [], [], [], [], 0
        for path in sorted(glob.glob(f"{work}/speech/*.idx")):
            index = [line.split() for line in open(path).read().split("\n")[:-1]]
            raw = np.fromfile(path[:-3] + "raw", np.int16)
            index = np.array([i for i in index if len(i) == 3], np.int64).reshape(-1, 3)
            index = index[index[:, 1] + index[:, 2] <= len(raw)]
            if not len(index):
                continue
            x = torch.from_numpy(raw[:(index[-1, 1] + index[-1, 2]) // 2 * 2]).to(device)
            y = torch.cat([torchaudio.functional.resample(c.float() / 32768, 16000, 24000)
                           for c in x.split(16000 * 600)])
            who = SPEAKERS.index(os.path.basename(path)[:3])
            if who:
                self.edge = min(self.edge, base)
            waves.append((y * 32767).round().clamp(-32768, 32767).to(torch.int16))
            self.line += list(index[:, 0])
            self.speaker += [who] * len(index)
            self.offset += list(base + index[:, 1] * 3 // 2)
            self.length += list(index[:, 2] * 3 // 2)
            base += len(y)
        self.wave = torch.cat(waves) if waves else torch.zeros(0, dtype=torch.int16)
        self.line, self.speaker, self.offset, self.length = map(
            np.array, (self.line, self.speaker, self.offset, self.length))

    def segments(self, batch, frames):
        """[batch, samples] of random places, of the speakers in turn."""
        n, whole = frames * 1920, self.wave.numel()
        edge = min(self.edge, whole)
        spans = [(a, b - n - 1 - a) for a, b in ((0, edge), (edge, whole)) if b - a > n + 1]
        spans = torch.tensor([spans[i % len(spans)] for i in range(batch)]).to(self.wave.device)
        at = spans[:, 0] + (torch.rand(batch, dtype=torch.float64, device=self.wave.device)
                            * spans[:, 1]).long()
        span = torch.arange(n, device=self.wave.device)
        return self.wave[at[:, None] + span[None]].float() / 32768

    def told(self):
        return f"{len(self.line)} sentences, {self.wave.numel() / 86.4e6:.2f} h"
