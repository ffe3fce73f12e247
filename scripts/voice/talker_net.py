"""Talker and code predictor for training (same parameter names as the public classes)."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from codec_net import MLP, RMSNorm, rope, rotate

SIZE, GROUPS = 256, 8
TALKER = dict(vocab_size=SIZE + 1024, hidden_size=192, intermediate_size=368,
              num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
              rms_norm_eps=1e-6, rope_theta=10000.0, text_hidden_size=128, text_vocab_size=272,
              num_code_groups=GROUPS)
PREDICTOR = dict(vocab_size=SIZE, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                 num_attention_heads=2, num_key_value_heads=1, head_dim=64, rms_norm_eps=1e-6,
                 rope_theta=10000.0, num_code_groups=GROUPS)
IDS = dict(codec_pad_id=SIZE, codec_bos_id=SIZE + 1, codec_eos_token_id=SIZE + 2,
           codec_think_id=SIZE + 6, codec_nothink_id=SIZE + 7, codec_think_bos_id=SIZE + 8,
           codec_think_eos_id=SIZE + 9)
ENGLISH = SIZE + 16
SPEAKER_IDS = {"rms": SIZE + 32, "slt": SIZE + 33}
MARKS = 64  # ids from SIZE on that a prompt may hold
STARTS = [0, TALKER["text_vocab_size"] - SIZE,
          *(TALKER["text_vocab_size"] + MARKS + SIZE * g for g in range(GROUPS))]


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        h = c["hidden_size"]
        self.h, self.kv, self.d = (c["num_attention_heads"], c["num_key_value_heads"],
                                   c["head_dim"])
        self.q_proj = nn.Linear(h, self.h * self.d, bias=False)
        self.k_proj = nn.Linear(h, self.kv * self.d, bias=False)
        self.v_proj = nn.Linear(h, self.kv * self.d, bias=False)
        self.o_proj = nn.Linear(self.h * self.d, h, bias=False)
        self.q_norm, self.k_norm = (RMSNorm(self.d, c["rms_norm_eps"]) for _ in "qk")

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(b, t, self.h, self.d)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(b, t, self.kv, self.d)).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv, self.d).transpose(1, 2)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        k, v = (u[:, :, None].expand(b, self.kv, self.h // self.kv, t, self.d)
                .reshape(b, self.h, t, self.d) for u in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, eps = c["hidden_size"], c["rms_norm_eps"]
        self.self_attn, self.mlp = Attention(c), MLP(h, c["intermediate_size"])
        self.input_layernorm = RMSNorm(h, eps)
        self.post_attention_layernorm = RMSNorm(h, eps)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Stack(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])

    def run(self, x):
        cos, sin = rope(x.shape[1], self.c["head_dim"], self.c["rope_theta"], x.device)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class TalkerModel(Stack):
    def __init__(self, c):
        super().__init__(c)
        self.codec_embedding = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.text_embedding = nn.Embedding(c["text_vocab_size"], c["text_hidden_size"])


class PredictorModel(Stack):
    def __init__(self, c, width):
        super().__init__(c)
        self.codec_embedding = nn.ModuleList(nn.Embedding(c["vocab_size"], width)
                                             for _ in range(GROUPS - 1))


class Predictor(nn.Module):
    def __init__(self, c, width):
        super().__init__()
        self.model = PredictorModel(c, width)
        self.lm_head = nn.ModuleList(nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
                                     for _ in range(GROUPS - 1))
        self.small_to_mtp_projection = nn.Linear(width, c["hidden_size"])


class Projection(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.linear_fc1, self.linear_fc2 = nn.Linear(a, a), nn.Linear(a, b)

    def forward(self, x):
        return self.linear_fc2(F.silu(self.linear_fc1(x)))


class Talker(nn.Module):
    def __init__(self):
        super().__init__()
        width = TALKER["hidden_size"]
        self.model = TalkerModel(TALKER)
        self.text_projection = Projection(TALKER["text_hidden_size"], width)
        self.codec_head = nn.Linear(width, TALKER["vocab_size"], bias=False)
        self.code_predictor = Predictor(PREDICTOR, width)
        self.register_buffer("starts", torch.tensor(STARTS), persistent=False)
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, 0, 0.05)
                if getattr(m, "bias", None) is not None:
                    nn.init.zeros_(m.bias)
        for layer in [*self.model.layers, *self.code_predictor.model.layers]:
            nn.init.normal_(layer.self_attn.o_proj.weight, 0, 0.02)
            nn.init.normal_(layer.mlp.down_proj.weight, 0, 0.02)

    def rows(self, ids):
        """Input rows [B, L, width] of ids [B, L, 2 + GROUPS]: text, mark and codes; -1: none.

        A product with rows of ones and zeros: its gradient is a product as well, which is many
        times faster than that of a lookup whose few rows are all hit thousands of times.
        """
        text = self.text_projection(self.model.text_embedding.weight)
        codec = self.model.codec_embedding.weight
        table = torch.cat([text, codec[SIZE:SIZE + MARKS], codec[:SIZE],
                           *(t.weight for t in self.code_predictor.model.codec_embedding)])
        flat = torch.where(ids >= 0, ids + self.starts, len(table)).flatten(0, 1)
        kind = torch.bfloat16 if ids.is_cuda else torch.float32
        hot = torch.zeros(len(flat), len(table) + 8, dtype=kind, device=ids.device)
        hot.scatter_(1, flat, 1.0)
        return (hot @ F.pad(table, (0, 0, 0, 8)).to(kind)).float().view(*ids.shape[:2], -1)

    def groups(self, hidden, codes):
        """Logits [GROUPS - 1, N, SIZE] of groups 1.. of frames whose first codes are given."""
        p = self.code_predictor
        tables = torch.stack([self.model.codec_embedding.weight[:SIZE],
                              *(t.weight for t in p.model.codec_embedding[:-1])])
        every = torch.arange(SIZE, device=codes.device)
        hot = (codes[:, :-1].t()[..., None] == every).to(hidden.dtype)
        rows = torch.cat([hidden[None], torch.bmm(hot, tables.to(hidden.dtype))])
        y = p.model.run(p.small_to_mtp_projection(rows.transpose(0, 1)))
        heads = torch.stack([h.weight for h in p.lm_head])
        return torch.bmm(y[:, 1:].transpose(0, 1), heads.transpose(1, 2).to(y.dtype))

    def forward(self, ids, at, first, frames_at, codes):
        """Losses of the first group and of the others, and the first group's hit rate.

        ids: see rows; at: positions (flat) that predict first; frames_at: those that predict
        codes. Where first is negative, or a frame's first code, the row does not count.
        """
        h = self.model.run(self.rows(ids)).flatten(0, 1)
        # The other rows of the head are never sampled: generation suppresses them.
        logits = F.linear(h[at], self.codec_head.weight[:SIZE + 8]).float()
        counts = first >= 0
        loss = F.cross_entropy(logits, first, ignore_index=-1)
        hits = ((logits.argmax(-1) == first) & counts).sum() / counts.sum()
        y = self.groups(h[frames_at], codes.clamp(min=0)).float()
        others = F.cross_entropy(y.flatten(0, 1), codes[:, 1:].t().flatten(), ignore_index=-1,
                                 reduction="none").view(GROUPS - 1, -1).sum(1)
        return loss, others / (codes[:, 0] >= 0).sum(), hits
