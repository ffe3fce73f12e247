"""Talker and code predictor: WORK/train.txt and WORK/codes.npz make WORK/talker.pt.

Batches are built on the device from padded tables, in a few fixed shapes, so that on a GPU a
whole step is one captured graph per shape. Whole-sentence prompts; a quarter of the sentences in
lower case without their last stop, a quarter with language Auto; both speakers as often. Of the
frames that the model is told it said, one in twelve is another sentence's, and single codes are
random.
"""
import time

import numpy as np
import torch
import torch.nn as nn

from common import SPEAKERS, Clock, arguments, device, save
from talker_net import ENGLISH, GROUPS, IDS, SIZE, SPEAKER_IDS, Talker
from tokenizer import SPECIAL, encode

a = arguments(__doc__, steps=0, seconds=500.0, positions=40000, rate=1.5e-3, noise=0.08,
              compile=1, graphs=1, report=30.0, validation=400, start="",
              until=0.0)
SHARE = 0.4  # of the frames, those that the code predictor sees
WEIGHTS = [0.5, 0.4, 0.3, 0.2, 0.2, 0.2, 0.2]  # of the losses of groups 1.. beside the first's
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

    def rows(self, b, n, plain, auto):
        """text, codec, frame said and frame (or END) predicted, each [B, n]; -1: none."""
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

    def shapes(self, chosen):
        """Splits sentences by length: {columns: sentences}, each enough for some batches."""
        columns, part, out = -(-self.total[chosen] // 32) * 32, [], {}
        for n in range(32, int(columns.max()) + 1, 32):
            part = np.concatenate([part, chosen[columns == n]]).astype(np.int64)
            if len(part) >= 4 * self.size(n):
                out[n], part = part, []
        if len(part):
            out[n] = np.concatenate([part, out.pop(max(out))]) if out else part
        return out

    @staticmethod
    def size(n):
        return max(4, a.positions // n)

    def order(self, shapes, draw):
        """Endless batches (columns, sentences): shapes by their shares, speakers evenly."""
        spoken = self.speaker.cpu().numpy()
        counts = np.bincount(np.concatenate([spoken[v] for v in shapes.values()]),
                             minlength=len(SPEAKERS))
        more = counts.max() / np.maximum(counts, 1) - 1
        lists, share = {n: [] for n in shapes}, np.array(
            [len(v) / self.size(n) for n, v in shapes.items()])
        while True:
            n = draw.choice(list(shapes), p=share / share.sum())
            size = self.size(n)
            while len(lists[n]) < size:
                v = shapes[n]
                again = v[draw.rand(len(v)) < more[spoken[v]]]
                lists[n] = [*lists[n], *draw.permutation(np.concatenate([v, again]))]
            yield n, np.array(lists[n][:size])
            lists[n] = lists[n][size:]


def some(mask, count):
    """Indices of count of a mask's places by chance; those of other places when there are less."""
    return torch.sort(mask + torch.rand(mask.shape, device=device), descending=True)[1][:count]


def inputs(batches, b, n, predicted, framed, train=True):
    """What the net's forward takes, in sizes that depend on n, predicted and framed alone."""
    r = torch.rand(2, len(b), device=device)
    text, codec, said, after = batches.rows(b, n, ((r[0] < 0.25) & train).long(),
                                            ((r[1] < 0.25) & train).long())
    heard = codes[said.clamp(min=0)].long()
    if train:
        other = codes[torch.randint(0, len(codes), said.shape, device=device)].long()
        heard = torch.where((torch.rand(said.shape, device=device) < a.noise)[..., None], other,
                            heard)
        heard = torch.where(torch.rand(heard.shape, device=device) < a.noise / 2,
                            torch.randint_like(heard, SIZE), heard)
    heard = torch.where((said >= 0)[..., None], heard, -1)
    after = after.flatten()
    at, frames_at = some(after != -1, predicted), some(after >= 0, framed)
    goal, frame = after[at], after[frames_at]
    first = torch.where(goal >= 0, codes[goal.clamp(min=0), 0].long(), IDS["codec_eos_token_id"])
    return (torch.cat([text[..., None], codec[..., None], heard], -1), at,
            torch.where(goal == -1, -1, first), frames_at,
            torch.where(frame[:, None] >= 0, codes[frame.clamp(min=0)].long(), -1))


def losses(batch):
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        return net(*batch)


def validate():
    """On whole sentences as they are; with gradients recorded, so that nothing compiles anew."""
    parts = []
    for i in range(0, len(held), 100):
        b, n = held[i:i + 100], -(-int(batches.total[held[i:i + 100]].max()) // 32) * 32
        frames = int(batches.frames[b].sum())
        b = torch.from_numpy(b).to(device)
        parts.append([x.detach().float().cpu().numpy() for x in losses(
            inputs(batches, b, n, frames + len(b), frames, False))])
    first, others, hits = (np.mean([p[i] for p in parts], 0) for i in range(3))
    return f"first {first:.4f} others {others.mean():.4f} hits {hits:.4f} sum " \
           f"{first + (others * WEIGHTS).sum():.4f}"


def step(b, n):
    """A whole step from a batch's sentences; sizes are those of an average batch and a margin."""
    mean, spread = batches.told[n]
    room = mean * len(b) + 4 * spread * len(b) ** 0.5 + 1
    predicted = min(len(b) * n, int(room + len(b)) // 64 * 64 + 64)
    framed = max(1, int(SHARE * mean * len(b)))
    first, others, _ = losses(inputs(batches, b, n, predicted, framed))
    optimizer.zero_grad(set_to_none=True)
    (first + (others * weights).sum()).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return torch.stack([first.detach(), others.detach().mean()])


class Captured:
    """Steps replayed from a graph per shape; each is captured at the first batch of its shape."""

    def __init__(self):
        self.graphs, self.pool = {}, torch.cuda.graph_pool_handle()

    def __call__(self, b, n):
        if n not in self.graphs:
            own, side = b.clone(), torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    step(own, n)
            torch.cuda.current_stream().wait_stream(side)
            optimizer.zero_grad(set_to_none=True)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool):
                out = step(own, n)
            self.graphs[n] = graph, own, out
        graph, own, out = self.graphs[n]
        own.copy_(b)
        graph.replay()
        return out


data = np.load(a.work + "/codes.npz")
lines = open(a.work + "/train.txt").read().split("\n")
codes = torch.from_numpy(data["codes"]).to(device)
batches = Batches([lines[i] for i in data["line"]], data["speaker"], data["frames"])
draw = np.random.RandomState(0)
shuffled = draw.permutation(len(data["line"]))
held, chosen = shuffled[:a.validation], shuffled[a.validation:]
net = Talker().to(device).train()
if a.start:
    state = torch.load(a.start, map_location=device)
    net.load_state_dict(state.get("talker", state))
if a.compile:
    torch._dynamo.config.recompile_limit = 64
    for stack in (net.model, net.code_predictor.model):
        for layer in stack.layers:
            layer.compile(dynamic=True)
shapes = batches.shapes(chosen)
frames = batches.frames.cpu().numpy()
batches.told = {n: (frames[v].mean(), frames[v].std()) for n, v in shapes.items()}
rate = torch.tensor(a.rate, device=device)
weights = torch.tensor(WEIGHTS, device=device)
big = [p for p in net.parameters() if p.ndim >= 2]
small = [p for p in net.parameters() if p.ndim < 2]
optimizer = torch.optim.AdamW([{"params": big, "weight_decay": 0.05},
                               {"params": small, "weight_decay": 0.0}],
                              lr=rate, betas=(0.9, 0.98), fused=device == "cuda",
                              capturable=device == "cuda")
learn = Captured() if a.graphs and device == "cuda" else step
stream = batches.order(shapes, draw)
print(f"talker: {len(chosen)} sentences, {len(codes)} frames, "
      f"{sum(p.numel() for p in net.parameters())} weights, shapes "
      f"{ {n: len(v) for n, v in shapes.items()} }, held out {validate()}", flush=True)
for n, v in shapes.items():  # compiles and captures before the clock starts
    rate.fill_(0.0)
    learn(torch.from_numpy(np.resize(v, batches.size(n))).to(device), n)
if device == "cuda":
    torch.cuda.synchronize()
print(f"talker: ready {time.strftime('%T')}", flush=True)
clock, positions, told = Clock(a.steps, a.seconds, a.until), 0, time.time()
while clock.progress() < 1:
    rate.fill_(clock.rate(a.rate, 300, 0.0))
    n, b = next(stream)
    b = torch.from_numpy(b)
    out = learn(b.pin_memory().to(device, non_blocking=True) if device == "cuda" else b, n)
    clock.step += 1
    positions += len(b) * n
    if clock.step % 20 == 0 and device == "cuda":
        torch.cuda.synchronize()  # the clock counts steps done, not steps asked for
    if time.time() - told > a.report or clock.step in (1, 10, 50):
        first, others = out.tolist()
        since = time.time() - told
        print(f"talker: step {clock.step} {clock.elapsed():.0f} s first {first:.3f} others "
              f"{others:.3f} | {positions / since:.0f} positions/s | held out {validate()}",
              flush=True)
        positions, told = 0, time.time()
        if not np.isfinite(first + others):
            raise SystemExit("talker: the loss is not finite")
        save(net.state_dict(), a.work + "/talker.pt")
print(f"talker: {clock.step} steps in {clock.elapsed():.0f} s, held out {validate()}", flush=True)
save(net.state_dict(), a.work + "/talker.pt")
