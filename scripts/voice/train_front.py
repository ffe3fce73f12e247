"""Codec, step 1: encoder, quantisation and the front half of the decoder on spectral targets.

Reads WORK/speech (what there is, again at half time); writes WORK/front.pt.
"""
import time

import torch
import torch.nn as nn

from codec_net import Decoder, Encoder, SpectralHead
from common import Clock, Speech, arguments, device, save

a = arguments(__doc__, steps=0, seconds=65.0, batch=48, frames=36, wait=2500,
              rate=1.5e-3, start="", until=0.0)
speech = Speech(a.work)
while len(speech.line) < a.wait:
    time.sleep(1)
    speech = Speech(a.work)
encoder, decoder, head = Encoder().to(device), Decoder().to(device), SpectralHead().to(device)
if a.start:
    start = torch.load(a.start, map_location=device)
    encoder.load_state_dict(start["encoder"])
    decoder.load_state_dict(start["decoder"])
parts = [encoder, head, decoder.quantizer, decoder.pre_conv, decoder.pre_transformer,
         decoder.upsample]
weights = [p for m in parts for p in m.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(weights, lr=1e-3, betas=(0.9, 0.98), weight_decay=1e-3,
                              fused=device == "cuda")
clock, again, saved = Clock(a.steps, a.seconds, a.until), False, time.time()
print("front:", speech.told(), flush=True)


def write():
    save({"encoder": encoder.state_dict(), "decoder": decoder.state_dict()}, a.work + "/front.pt")


while clock.progress() < 1:
    if clock.progress() > 0.5 and not again:
        speech, again = Speech(a.work), True
        print("front:", speech.told(), flush=True)
    for group in optimizer.param_groups:
        group["lr"] = clock.rate(a.rate, 200, 0.0)
    x = speech.segments(a.batch, a.frames)
    dropout = 0.2 if clock.progress() < 0.8 else 0.0
    q, codes, commit = decoder.quantizer(encoder(x), True, dropout)
    out, target = head(decoder.front(q)), head.target(x)
    d = (out - target).abs()
    mel, low = d[:, :160].mean(), d[:, 160:].mean()
    loss = mel + 0.5 * low + 0.3 * d[:, :160].pow(2).mean() + 0.25 * commit
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(weights, 3.0)
    optimizer.step()
    clock.step += 1
    if clock.step % 400 == 0 or clock.step == 20:
        print(f"front: step {clock.step} {clock.elapsed():.0f} s mel {mel:.4f} low {low:.4f} "
              f"commit {commit:.4f}", flush=True)
    if time.time() - saved > 60:
        saved = time.time()
        write()
write()
print(f"front: {clock.step} steps in {clock.elapsed():.0f} s", flush=True)
