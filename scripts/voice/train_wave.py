"""Codec, step 2: codes frozen, the decoder on waveforms: mel loss, then an STFT-GAN as well.

Reads WORK/front.pt and WORK/speech (again at 0.3 of the time); writes WORK/decoder.pt.
"""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from codec_net import FRAME, Decoder, Discriminator, Encoder, MelLoss, Snake
from common import Clock, Speech, arguments, device, save

a = arguments(__doc__, steps=0, seconds=364.0, batch=10, frames=20, gan=0.5, rate=8e-4,
              compile=1, until=0.0)
torch.backends.cudnn.benchmark = True
encoder, decoder = Encoder().to(device), Decoder().to(device)
front = torch.load(a.work + "/front.pt", map_location=device)
encoder.load_state_dict(front["encoder"])
decoder.load_state_dict(front["decoder"])
for p in [*encoder.parameters(), *decoder.quantizer.parameters()]:
    p.requires_grad_(False)
if a.compile:
    for m in decoder.modules():
        if isinstance(m, Snake):
            m.compile(dynamic=True)
speech, mel_loss, judge = Speech(a.work), MelLoss().to(device), Discriminator().to(device)
names = [n for n, p in decoder.named_parameters() if p.requires_grad]
weights = [p for p in decoder.parameters() if p.requires_grad]
average = [p.detach().clone() for p in weights]
fused = device == "cuda"
maker = torch.optim.AdamW(weights, lr=a.rate, betas=(0.8, 0.98), weight_decay=1e-3, fused=fused)
critic = torch.optim.AdamW(judge.parameters(), lr=3e-4, betas=(0.8, 0.98), fused=fused)
clock, again, saved = Clock(a.steps, a.seconds, a.until), False, time.time()


def adversarial(x, y):
    """The discriminator's step, then the loss of the waveform y before it."""
    real, fake = judge(x), judge(y.detach())
    loss = sum(F.relu(1 - r[0]).mean() + F.relu(1 + f[0]).mean() for r, f in zip(real, fake))
    critic.zero_grad(set_to_none=True)
    (loss / len(real)).backward()
    critic.step()
    judge.requires_grad_(False)
    fake = judge(y)
    with torch.no_grad():
        real = judge(x)
    n = len(fake)
    fool = -sum(f[0].mean() for f in fake) / n
    match = sum((u.float() - v.float()).abs().mean() / (v.float().abs().mean() + 1e-5)
                for r, f in zip(real, fake) for u, v in zip(f[1], r[1])) / n / 5
    judge.requires_grad_(True)
    return 0.7 * fool + 3.0 * match


def write():
    state = {k: v.clone() for k, v in decoder.state_dict().items()}
    save({**state, **dict(zip(names, average))}, a.work + "/decoder.pt")


while clock.progress() < 1:
    if clock.progress() > 0.3 and not again:
        speech, again = Speech(a.work), True
        print("wave:", speech.told(), flush=True)
    rate = clock.rate(a.rate, 100, 0.0)
    for optimizer, top in ((maker, 1.0), (critic, 3e-4)):
        for group in optimizer.param_groups:
            group["lr"] = min(rate, top)
    x = speech.segments(a.batch, a.frames + 8)
    with torch.no_grad():
        q = decoder.quantizer(encoder(x))[0][:, :, 4:-4]
    x = x[:, 4 * FRAME:-4 * FRAME]
    y = decoder.wave(q).squeeze(1).float()
    mel = mel_loss(y, x)
    loss, beyond = 15 * mel, clock.progress() - a.gan
    if beyond > 0:
        cut = max(0, x.shape[1] - 16 * FRAME)
        loss = loss + min(1, beyond / 0.05) * adversarial(x[:, cut:], y[:, cut:])
    maker.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(weights, 10.0)
    maker.step()
    clock.step += 1
    with torch.no_grad():
        torch._foreach_lerp_(average, weights, min(0.1, max(0.005, 1 / (clock.step + 1))))
    if clock.step % 250 == 0 or clock.step == 20:
        print(f"wave: step {clock.step} {clock.elapsed():.0f} s mel {mel:.4f}", flush=True)
    if time.time() - saved > 60:
        saved = time.time()
        write()
write()
print(f"wave: {clock.step} steps in {clock.elapsed():.0f} s", flush=True)
