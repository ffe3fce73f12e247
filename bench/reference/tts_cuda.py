"""Time Qwen3-TTS in PyTorch on a GPU: static caches, inductor's kernels, one CUDA graph a frame.

The best that plain PyTorch gives, beside bench/tts.c on the same GPU: bf16, random weights at
the sizes of the config, top-k sampling, KV caches of a fixed length. Needs torch and torchaudio.

    tts_cuda.py --model bench/configs/qwen3_tts_1b7 --beside cuda_1b7.json -o reference.json
"""
import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../scripts/voice"))
import codec_net  # noqa: E402  the public decoder's classes

DTYPE, DEVICE = torch.bfloat16, "cuda"


def parse():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", required=True, help="folder with the configs")
    p.add_argument("--requests", default="1,8,32,64,128", help="rows of a frame")
    p.add_argument("--kv", type=int, default=300, help="positions in the caches (300)")
    p.add_argument("--prompt", type=int, default=40, help="rows of the prompt (40)")
    p.add_argument("--beside", help="JSON of bench/tts of the same run: prints the ratios")
    p.add_argument("-o", dest="out", help="the numbers as JSON")
    a = p.parse_args()
    a.requests = [int(x) for x in a.requests.split(",")]
    return a


def captured(f):
    """A function that launches f as one graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            f()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        f()
    return graph.replay


def milliseconds(f, times=30):
    """Median over single calls, by events."""
    out = []
    for i in range(times + 3):
        a, b = (torch.cuda.Event(enable_timing=True) for _ in "ab")
        torch.cuda.synchronize()
        a.record()
        f()
        b.record()
        torch.cuda.synchronize()
        if i >= 3:
            out.append(a.elapsed_time(b))
    return statistics.median(out)


def random(*shape):
    return torch.randn(*shape, device=DEVICE, dtype=DTYPE) * 0.02


def rms(x, w):
    return F.rms_norm(x, (x.shape[-1],), w, 1e-6)


def turned(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def before(x, norm, qkv, q_norm, k_norm, cos, sin, heads, kv, dim):
    rows = F.linear(rms(x, norm), qkv).view(*x.shape[:2], heads + 2 * kv, dim)
    q, k, v = rows.split((heads, kv, kv), 2)
    q, k = turned(rms(q, q_norm), cos, sin), turned(rms(k, k_norm), cos, sin)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def after(x, heard, out, norm, gate_up, down):
    x = x + F.linear(heard.transpose(1, 2).flatten(2), out)
    gate, up = F.linear(rms(x, norm), gate_up).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, down)


def drawn(logits):
    best, index = torch.topk(logits.float() / 0.9, 50, -1)
    share = torch.softmax(best, -1)
    return index.gather(-1, (share / torch.empty_like(share).exponential_(1.0)).argmax(
        -1, keepdim=True))


def last(x, norm, head):
    return F.linear(rms(x[:, -1], norm), head)


class Decoder:
    """Layers of random weights with caches of a fixed length."""

    def __init__(self, c, length):
        h, dim = c["hidden_size"], c["head_dim"]
        self.shape = c["num_attention_heads"], c["num_key_value_heads"], dim
        heads, kv, _ = self.shape
        ones = lambda n: torch.ones(n, device=DEVICE, dtype=DTYPE)  # noqa: E731
        self.layers = [(ones(h), random((heads + 2 * kv) * dim, h), ones(dim), ones(dim),
                        random(h, heads * dim), ones(h), random(2 * c["intermediate_size"], h),
                        random(h, c["intermediate_size"]))
                       for _ in range(c["num_hidden_layers"])]
        self.norm, self.length = ones(h), length
        turn = torch.outer(torch.arange(length, device=DEVICE).float(), 1 / c["rope_theta"] ** (
            torch.arange(0, dim, 2, device=DEVICE).float() / dim))
        turn = torch.cat((turn, turn), -1)
        self.cos, self.sin = turn.cos().to(DTYPE), turn.sin().to(DTYPE)

    def rows(self, n):
        _, kv, dim = self.shape
        self.k, self.v = ([random(n, kv, self.length, dim) for _ in self.layers] for _ in "kv")

    def run(self, x, at, before_, after_):
        t = x.shape[1]
        turn = [u[at:at + t].view(1, t, 1, -1) for u in (self.cos, self.sin)]
        for i, (n1, qkv, qn, kn, out, n2, gate_up, down) in enumerate(self.layers):
            q, k, v = before_(x, n1, qkv, qn, kn, *turn, *self.shape)
            self.k[i][:, :, at:at + t].copy_(k)
            self.v[i][:, :, at:at + t].copy_(v)
            heard = F.scaled_dot_product_attention(
                q, self.k[i][:, :, :at + t], self.v[i][:, :, :at + t], enable_gqa=True,
                is_causal=t > 1)
            x = after_(x, heard, out, n2, gate_up, down)
        return x


class Attention(codec_net.Attention):
    """The codec's, with heads that are wider than the width's share."""

    def __init__(self, c):
        torch.nn.Module.__init__(self)
        self.heads, self.d = c["num_attention_heads"], c["head_dim"]
        wide = self.heads * self.d
        for n in "qkv":
            setattr(self, n + "_proj", torch.nn.Linear(c["hidden_size"], wide, bias=False))
        self.o_proj = torch.nn.Linear(wide, c["hidden_size"], bias=False)

    def forward(self, x, turn, mask):
        b, t, _ = x.shape
        q, k, v = (p(x).view(b, t, self.heads, self.d).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (codec_net.rotate(u, *turn).to(v.dtype) for u in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class Model:
    def __init__(self, a):
        with open(os.path.join(a.model, "config.json")) as f:
            c = json.load(f)["talker_config"]
        with open(os.path.join(a.model, "speech_tokenizer", "config.json")) as f:
            self.codec = json.load(f)["decoder_config"]
        p = c["code_predictor_config"]
        h, w = c["hidden_size"], p["hidden_size"]
        self.groups, self.width, self.a = c["num_code_groups"], h, a
        self.talker, self.predictor = Decoder(c, a.kv + 1), Decoder(p, self.groups + 1)
        self.first = random(c["vocab_size"], h)
        self.head = random(c["vocab_size"], h)
        self.tables = [random(p["vocab_size"], h) for _ in range(self.groups - 1)]
        self.heads = [random(p["vocab_size"], w) for _ in range(self.groups - 1)]
        self.narrow = (random(w, h), random(w)) if w != h else None

    def prepare(self, n):
        """Functions of a frame for n requests, still to be captured."""
        torch._dynamo.reset()
        make = lambda f: torch.compile(f, dynamic=False)  # noqa: E731
        pre, post, draw, end = make(before), make(after), make(drawn), make(last)
        narrow = make(lambda x: F.linear(x, *self.narrow) if self.narrow else x)
        talker, predictor = self.talker, self.predictor
        talker.rows(n)
        predictor.rows(n)
        x, hidden, text = (random(n, 1, self.width) for _ in range(3))
        codes = torch.zeros(n, self.groups, dtype=torch.long, device=DEVICE)

        def step(rows, at):
            y = rms(talker.run(rows, at, pre, post)[:, -1:], talker.norm)
            hidden.copy_(y)
            codes[:, :1].copy_(draw(F.linear(y[:, 0], self.head)))

        def predict():
            said = F.embedding(codes[:, :1], self.first)
            total = said + text
            y = predictor.run(narrow(torch.cat((hidden, said), 1)), 0, pre, post)
            for i in range(self.groups - 1):
                code = draw(end(y, predictor.norm, self.heads[i]))
                codes[:, i + 1:i + 2].copy_(code)
                said = F.embedding(code, self.tables[i])
                total = total + said
                if i < self.groups - 2:
                    y = predictor.run(narrow(said), i + 2, pre, post)
            x.copy_(total)

        return lambda: step(x, self.a.kv), predict, step, codes

    def vocoder(self):
        codec_net.Attention = Attention
        with torch.device(DEVICE):
            net = codec_net.Decoder(self.codec).to(DTYPE).eval()
        return net


def read_bandwidth():
    x = torch.randn(1 << 30, device=DEVICE, dtype=DTYPE)
    return x.numel() * 2 / milliseconds(lambda: torch.sum(x.view(torch.float32))) * 1e3


@torch.inference_mode()
def main():
    a = parse()
    torch.manual_seed(0)
    report = {"program": "PyTorch, inductor, one graph a frame", "torch": torch.__version__,
              "device": torch.cuda.get_device_name(), "kv": a.kv, "model": a.model,
              "read_bytes_per_s": read_bandwidth(), "rounds": []}
    print(f"PyTorch {torch.__version__}, {report['device']}, KV {a.kv}; a plain sum reads "
          f"{report['read_bytes_per_s'] * 1e-12:.2f} TB/s", flush=True)
    model = Model(a)
    print("requests  talker ms  predictor ms  frame ms  RTF (codes)  audio-s/s  compiled in s")
    for n in a.requests:
        start = time.time()
        talk, predict, step, codes = model.prepare(n)
        parts = [captured(f) for f in (talk, predict, lambda: (talk(), predict()))]
        spent = time.time() - start
        t, p, frame = (milliseconds(f) for f in parts)
        report["rounds"].append({"requests": n, "talker_ms": t, "predictor_ms": p,
                                 "frame_ms": frame})
        print(f"{n:8d}  {t:9.2f}  {p:12.2f}  {frame:8.2f}  {frame / 80:11.4f}  "
              f"{n * 80 / frame:9.1f}  {spent:.0f}", flush=True)
        if n == 1:
            rows, net = random(1, a.prompt, model.width), model.vocoder()
            fast = torch.compile(net, dynamic=False)

            def first():
                step(rows, 0)
                predict()
                return fast(codes.view(1, -1, 1).clamp(max=model.codec["codebook_size"] - 1))

            report["first_audio_ms"] = milliseconds(captured(first))
            print(f"first audio of {a.prompt} prompt rows (prefill, one frame, vocoder) in one "
                  f"graph: {report['first_audio_ms']:.2f} ms", flush=True)
            del net, fast
        del parts
        torch.cuda.empty_cache()
    if a.beside:
        with open(a.beside) as f:
            ours = {r["requests"]: r for r in json.load(f)["rounds"]}
        for r in report["rounds"]:
            if r["requests"] in ours:
                ratio = r["frame_ms"] / ours[r["requests"]]["frame_ms"]
                print(f"omni-graph's frame at {r['requests']}: {ratio:.2f} times as fast")
    if a.out:
        with open(a.out, "w") as f:
            json.dump(report, f, indent=1)


if __name__ == "__main__":
    main()
