"""Lengths against the teacher: lengths.py TEACHER.idx WAVES (000.wav, 001.wav, ... in order).

TEACHER.idx: what `synth VOICE SENTENCES 0 1 TEACHER` wrote. Prints how many are empty, how many
ran into the 512 frames that the checkpoint allows, and how many are within 20% of the teacher.
"""
import sys
import wave

index, folder = sys.argv[1:]
ratios, empty, endless = [], 0, 0
for line in open(index):
    i, _, samples = map(int, line.split())
    with wave.open(f"{folder}/{i:03d}.wav") as f:
        frames = f.getnframes() // 1920
    empty += frames < 3
    endless += frames >= 512
    ratios.append(frames * 1920 / 24000 / (samples / 16000))
near = sum(0.8 <= r <= 1.2 for r in ratios)
print(f"{folder}: {len(ratios)} sentences, {empty} empty, {endless} without an end, {near} within "
      f"20% of the teacher; extremes {min(ratios):.2f} and {max(ratios):.2f}")
