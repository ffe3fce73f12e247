"""Talker and code predictor: WORK/train.txt and WORK/codes.npz make WORK/talker.pt.

Batches are built on the device from padded tables. Whole-sentence prompts; a quarter of the
sentences in lower case without their last stop, a quarter with language Auto. Of the frames that
the model is told it said, one in twelve is another sentence's, and single codes are random.
"""
import time

import numpy as np
import torch
import torch.nn as nn

from common import SPEAKERS, Clock, arguments, device, save
from talker_net import ENGLISH, GROUPS, IDS, SIZE, SPEAKER_IDS, Talker
from tokenizer import SPECIAL, encode

a = arguments(__doc__, steps=0, seconds=500.0, positions=40000, rate=1.5e-3, dropout=0.05,
              noise=0.08, compile=1, report=200, validation=200)
PAD, BOS, EOS = (SPECIAL[t] for t in ("<tts_pad>", "<tts_text_bos>", "<tts_text_eod>"))
ROLE = [SPECIAL["<|im_start|>"], *encode("assistant"), *encode("\n")]
END = -2


class Batches:
    """Rows of sentences: role, head, text, end of text, frames; and what each predicts."""

    def __init__(self, lines, speaker, frames):
        texts = [encode(s) for s in lines], [encode(s.lower().rstrip(".")) for s in lines]
        widest = max(len(t) for v in texts for t in v)
        table = np.zeros((2, len(lines), widest), np.int16)
        for v, texts_v in enumerate(texts):
            for i, t in enumerate(texts_v):
                table[v, i, :len(t)] = t
        heads = [[*lang, SPEAKER_IDS[s], IDS["codec_pad_id"]] for s in SPEAKERS for lang in (
            [IDS["codec_think_id"], IDS["codec_think_bos_id"], ENGLISH, IDS["codec_think_eos_id"]],
            [IDS["codec_nothink_id"], IDS["codec_think_bos_id"], IDS["codec_think_eos_id"]])]
        self.head_length = torch.tensor([len(h) for h in heads], device=device)
        self.heads = torch.tensor([h + [-1] * (6 - len(h)) for h in heads], device=device)
        self.text = torch.from_numpy(table).to(device)
        self.length = torch.tensor([[len(t) for t in v] for v in texts], device=device)
        self.speaker, self.frames = (torch.from_numpy(np.asarray(v, np.int64)).to(device)
                                     for v in (speaker, frames))
        self.first = torch.cumsum(self.frames, 0) - self.frames
        self.role = torch.tensor(ROLE, device=device)
        self.total = np.array([len(t) for t in texts[0]]) + np.asarray(frames) + 12

    def rows(self, b, plain, auto):
        """text, codec, frame said and frame (or END) predicted, each [B, L]; -1: none."""
        n = -(-int(self.total[b].max()) // 32) * 32
        b = torch.from_numpy(b).to(device)
        p = torch.arange(n, device=device)[None]
        head = self.speaker[b] * 2 + auto
        length, frames, first = (v[:, None] for v in (self.length[plain, b], self.frames[b],
                                                      self.first[b]))
        start = 3 + self.head_length[head][:, None]  # of the text
        end = start + length
        say = end + 2  # the first frame's row; end of text and codec bos come before
        word = (p - start).clamp(0, self.text.shape[2] - 1)
        text = torch.where((p >= start) & (p < end),
                           self.text[plain, b].long().gather(1, word), PAD)
        text = torch.where(p < 3, self.role[p.clamp(max=2)], text)
        text = torch.where(p == start - 1, BOS, torch.where(p == end, EOS, text))
        mark = self.heads[head].gather(1, (p - 3).clamp(0, 5).expand(len(b), n))
        codec = torch.where((p >= 3) & (p < start), mark, -1)
        codec = torch.where((p >= start) & (p <= end), IDS["codec_pad_id"], codec)
        codec = torch.where(p == end + 1, IDS["codec_bos_id"], codec)
        said = torch.where((p >= say) & (p < say + frames), first + p - say, -1)
        next_ = torch.where((p >= say - 1) & (p < say - 1 + frames), first + p - say + 1, -1)
        return text, codec, said, torch.where(p == say - 1 + frames, END, next_)

    def order(self, chosen, draw):
        """Batches of about a.positions, of sentences of like length, in random order."""
        while True:
            every = draw.permutation(chosen)
            for at in range(0, len(every), 8192):
                part = every[at:at + 8192]
                part = part[np.argsort(self.total[part], kind="stable")]
                batches, i = [], 0
                while i < len(part):
                    longest = self.total[part[min(i + 32, len(part) - 1)]] + 8
                    size = max(4, a.positions // longest)
                    batches.append(part[i:i + size])
                    i += size
                draw.shuffle(batches)
                yield from batches


def inputs(batches, b, train=True):
    r = torch.rand(2, len(b), device=device)
    text, codec, said, after = batches.rows(b, (r[0] < 0.25).long() * train,
                                            (r[1] < 0.25).long() * train)
    heard = codes[said.clamp(min=0)].long()
    if train:
        other = codes[torch.randint(0, len(codes), said.shape, device=device)].long()
        heard = torch.where((torch.rand(said.shape, device=device) < a.noise)[..., None], other,
                            heard)
        heard = torch.where(torch.rand(heard.shape, device=device) < a.noise / 2,
                            torch.randint_like(heard, SIZE), heard)
    after = after.flatten()
    at, framed = (after != -1).nonzero()[:, 0], (after >= 0).nonzero()[:, 0]
    if train:  # the code predictor sees a third of the frames
        framed = framed[torch.randperm(len(framed), device=device)[:max(1, len(framed) // 3)]]
    goal = after[at]
    first = torch.where(goal >= 0, codes[goal.clamp(min=0), 0].long(), IDS["codec_eos_token_id"])
    return text, codec, heard, said >= 0, at, first, framed, codes[after[framed]].long()


def losses(batch):
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        return net(*batch)


def validate():
    net.eval()
    with torch.no_grad():
        parts = [losses(inputs(batches, held[i:i + 50], False)) for i in range(0, len(held), 50)]
    net.train()
    first = float(np.mean([p[0].item() for p in parts]))
    others = np.mean([p[1].float().cpu().numpy() for p in parts], 0)
    return f"first {first:.3f} others {others.mean():.3f} hits " \
           f"{np.mean([p[2].item() for p in parts]):.3f}"


def learn(batch):
    first, others, hits = losses(batch)
    optimizer.zero_grad(set_to_none=True)
    (first + others.mean()).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return first.detach(), others.detach().mean()


data = np.load(a.work + "/codes.npz")
lines = open(a.work + "/train.txt").read().split("\n")
codes = torch.from_numpy(data["codes"]).to(device)
batches = Batches([lines[i] for i in data["line"]], data["speaker"], data["frames"])
draw = np.random.RandomState(0)
shuffled = draw.permutation(len(data["line"]))
held, chosen = shuffled[:a.validation], shuffled[a.validation:]
net = Talker(a.dropout).to(device).train()
if a.compile:
    for stack in (net.model, net.code_predictor.model):
        for layer in stack.layers:
            layer.compile(dynamic=True)
big = [p for p in net.parameters() if p.ndim >= 2]
small = [p for p in net.parameters() if p.ndim < 2]
optimizer = torch.optim.AdamW([{"params": big, "weight_decay": 0.05},
                               {"params": small, "weight_decay": 0.0}],
                              lr=a.rate, betas=(0.9, 0.98), fused=device == "cuda")
stream = batches.order(chosen, draw)
print(f"talker: {len(chosen)} sentences, {len(codes)} frames, "
      f"{sum(p.numel() for p in net.parameters())} weights", flush=True)
clock, positions, saved = Clock(a.steps, a.seconds), 0, time.time()
since = time.time()
while clock.progress() < 1:
    for group in optimizer.param_groups:
        group["lr"] = clock.rate(a.rate, 200, 0.02)
    batch = inputs(batches, next(stream))
    first, others = learn(batch)
    clock.step += 1
    positions += batch[0].numel()
    if clock.step % a.report == 0 or clock.step in (1, 10, 50):
        print(f"talker: step {clock.step} {clock.elapsed():.0f} s first {first:.3f} others "
              f"{others:.3f} | {positions / (time.time() - since):.0f} positions/s | held out "
              f"{validate()}", flush=True)
        positions, since = 0, time.time()
    if time.time() - saved > 60:
        saved = time.time()
        save(net.state_dict(), a.work + "/talker.pt")
print(f"talker: {clock.step} steps in {clock.elapsed():.0f} s, held out {validate()}", flush=True)
save(net.state_dict(), a.work + "/talker.pt")
