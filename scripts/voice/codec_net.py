"""The codec for training: the decoder of the 12 Hz speech tokenizer (same parameter names as the
public classes), and what training alone needs: encoder, quantisation, discriminator, losses."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchaudio

FRAME = 1920  # samples
CONFIG = dict(codebook_size=256, num_quantizers=8, codebook_dim=128, latent_dim=128,
              hidden_size=128, num_attention_heads=2, num_key_value_heads=2,
              intermediate_size=256, num_hidden_layers=2, sliding_window=16, rms_norm_eps=1e-5,
              rope_theta=10000.0, upsample_rates=[8, 5, 4, 3], upsampling_ratios=[2, 2],
              decoder_dim=256, max_position_embeddings=8000, attention_bias=False,
              attention_dropout=0.0, hidden_act="silu", layer_scale_initial_scale=0.01)


def mels(bins, high, n):
    return torchaudio.functional.melscale_fbanks(bins, 0, high, n, 24000, norm=None)


class CausalConv(nn.Module):
    def __init__(self, i, o, k, dilation=1, groups=1):
        super().__init__()
        self.conv = nn.Conv1d(i, o, k, dilation=dilation, groups=groups)
        self.pad = (k - 1) * dilation

    def forward(self, x):
        return self.conv(F.pad(x, (self.pad, 0)))


class CausalUp(nn.Module):
    def __init__(self, i, o, k, stride):
        super().__init__()
        self.conv = nn.ConvTranspose1d(i, o, k, stride=stride)
        self.cut = k - stride

    def forward(self, x):
        x = self.conv(x)
        return x[..., :x.shape[-1] - self.cut]


class ConvNeXt(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.dwconv = CausalConv(d, d, 7, groups=d)
        self.norm = nn.LayerNorm(d, eps=1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.gamma = nn.Parameter(0.1 * torch.ones(d))

    def forward(self, x):
        h = self.norm(self.dwconv(x).transpose(1, 2))
        return x + (self.gamma * self.pwconv2(F.gelu(self.pwconv1(h)))).transpose(1, 2)


class Snake(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x):
        s = torch.sin(x * torch.exp(self.alpha)[None, :, None].to(x.dtype))
        scale = (1.0 / (torch.exp(self.beta) + 1e-9))[None, :, None].to(x.dtype)
        return torch.addcmul(x, scale * s, s)


class Residual(nn.Module):
    def __init__(self, d, dilation):
        super().__init__()
        self.act1, self.conv1 = Snake(d), CausalConv(d, d, 7, dilation)
        self.act2, self.conv2 = Snake(d), CausalConv(d, d, 1)

    def forward(self, x):
        return x + self.conv2(self.act2(self.conv1(self.act1(x))))


class UpBlock(nn.Module):
    def __init__(self, i, o, rate):
        super().__init__()
        self.block = nn.Sequential(Snake(i), CausalUp(i, o, 2 * rate, rate),
                                   *(Residual(o, d) for d in (1, 3, 9)))

    def forward(self, x):
        return self.block(x)


class RMSNorm(nn.Module):
    def __init__(self, d, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d)), eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


def rope(length, d, theta, device):
    inverse = 1.0 / (theta ** (torch.arange(0, d, 2, device=device).float() / d))
    angle = torch.outer(torch.arange(length, device=device).float(), inverse)
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        h = c["hidden_size"]
        self.heads, self.d = c["num_attention_heads"], h // c["num_attention_heads"]
        for n in "qkvo":
            setattr(self, n + "_proj", nn.Linear(h, h, bias=False))

    def forward(self, x, turn, mask):
        b, t, h = x.shape
        q, k, v = (p(x).view(b, t, self.heads, self.d).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(rotate(q, *turn), rotate(k, *turn), v, attn_mask=mask)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, h))


class LayerScale(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.scale = nn.Parameter(torch.full((d,), 0.1))

    def forward(self, x):
        return self.scale * x


class MLP(nn.Module):
    def __init__(self, h, i):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(h, i, bias=False), nn.Linear(h, i, bias=False)
        self.down_proj = nn.Linear(i, h, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class TransformerLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, eps = c["hidden_size"], c["rms_norm_eps"]
        self.self_attn, self.mlp = Attention(c), MLP(h, c["intermediate_size"])
        self.input_layernorm = RMSNorm(h, eps)
        self.post_attention_layernorm = RMSNorm(h, eps)
        self.self_attn_layer_scale, self.mlp_layer_scale = LayerScale(h), LayerScale(h)

    def forward(self, x, turn, mask):
        x = x + self.self_attn_layer_scale(self.self_attn(self.input_layernorm(x), turn, mask))
        return x + self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x)))


class Transformer(nn.Module):
    def __init__(self, c):
        super().__init__()
        h = c["hidden_size"]
        self.c = c
        self.layers = nn.ModuleList(TransformerLayer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = RMSNorm(h, c["rms_norm_eps"])
        self.input_proj, self.output_proj = (nn.Linear(c["latent_dim"], h),
                                             nn.Linear(h, c["latent_dim"]))

    def forward(self, x):
        c, t = self.c, x.shape[1]
        turn = rope(t, c["hidden_size"] // c["num_attention_heads"], c["rope_theta"], x.device)
        i = torch.arange(t, device=x.device)
        behind = i[:, None] - i[None]
        mask = (behind >= 0) & (behind < c["sliding_window"])
        x = self.input_proj(x)
        for layer in self.layers:
            x = layer(x, turn, mask)
        return self.output_proj(self.norm(x))


class Codebook(nn.Module):
    def __init__(self, d, size):
        super().__init__()
        self.cluster_usage = nn.Parameter(torch.ones(size), requires_grad=False)
        self.embedding_sum = nn.Parameter(torch.randn(size, d) * 0.1, requires_grad=False)

    def rows(self):
        return self.embedding_sum / self.cluster_usage.clamp(min=1e-5)[:, None]


class Quantizer(nn.Module):
    def __init__(self, d, size):
        super().__init__()
        self._codebook = Codebook(d, size)

    @torch.no_grad()
    def nearest(self, h):
        e = self._codebook.rows()
        return (e.pow(2).sum(1)[None] - 2 * h @ e.t()).argmin(1)

    @torch.no_grad()
    def follow(self, h, index, decay=0.97):
        """Moving averages of the rows' members; a row that few choose restarts at a sample."""
        book = self._codebook
        size = book.cluster_usage.shape[0]
        member = F.one_hot(index, size).float()
        book.cluster_usage.mul_(decay).add_(member.sum(0), alpha=1 - decay)
        book.embedding_sum.mul_(decay).add_(member.t() @ h, alpha=1 - decay)
        share = h.shape[0] / size
        dead = book.cluster_usage < 0.02 * share
        fresh = h[torch.randint(0, h.shape[0], (size,), device=h.device)]
        usage = torch.full_like(book.cluster_usage, 0.2 * share)
        book.embedding_sum.copy_(torch.where(dead[:, None], fresh * usage[:, None],
                                             book.embedding_sum))
        book.cluster_usage.copy_(torch.where(dead, usage, book.cluster_usage))


class Levels(nn.Module):
    def __init__(self, n, d, size):
        super().__init__()
        self.layers = nn.ModuleList(Quantizer(d, size) for _ in range(n))


class ResidualQuantizer(nn.Module):
    def __init__(self, n, d, outer, size):
        super().__init__()
        self.input_proj = nn.Conv1d(outer, d, 1, bias=False)
        self.output_proj = nn.Conv1d(d, outer, 1, bias=False)
        self.vq = Levels(n, d, size)

    def forward(self, x, levels=None, train=False):
        """x [B, D, T]; levels [B]: how many levels count, None: all."""
        h = self.input_proj(x)
        b, d, t = h.shape
        rest = h.detach().float().transpose(1, 2).reshape(-1, d)
        total, codes = torch.zeros_like(rest), []
        for i, level in enumerate(self.vq.layers):
            index = level.nearest(rest)
            e = level._codebook.rows()[index]
            if train:
                level.follow(rest, index)
            if levels is not None:
                e = e * (levels > i).float().repeat_interleave(t)[:, None]
            total, rest = total + e, rest - e
            codes.append(index.view(b, t))
        total = total.view(b, t, d).transpose(1, 2)
        commit = F.mse_loss(h.float(), total)
        return self.output_proj(h + (total - h).detach()), torch.stack(codes, 1), commit

    def decode(self, codes):
        rows = sum(q._codebook.rows()[codes[:, i]] for i, q in enumerate(self.vq.layers))
        return self.output_proj(rows.transpose(1, 2))


class SplitQuantizer(nn.Module):
    def __init__(self, c):
        super().__init__()
        d = c["codebook_dim"]
        self.rvq_first = ResidualQuantizer(1, d // 2, d, c["codebook_size"])
        self.rvq_rest = ResidualQuantizer(c["num_quantizers"] - 1, d // 2, d, c["codebook_size"])

    def forward(self, z, train=False, dropout=0.0):
        n, b, levels = len(self.rvq_rest.vq.layers), z.shape[0], None
        if train and dropout > 0:
            few = torch.rand(b, device=z.device) < dropout
            levels = torch.where(few, torch.randint(0, n, (b,), device=z.device), n)
        e0, c0, l0 = self.rvq_first(z, None, train)
        e1, c1, l1 = self.rvq_rest(z - e0.detach(), levels, train)
        return e0 + e1, torch.cat([c0, c1], 1), l0 + l1

    def decode(self, codes):
        return self.rvq_first.decode(codes[:, :1]) + self.rvq_rest.decode(codes[:, 1:])


class Decoder(nn.Module):
    def __init__(self, c=CONFIG):
        super().__init__()
        latent, d = c["latent_dim"], c["decoder_dim"]
        self.pre_transformer, self.quantizer = Transformer(c), SplitQuantizer(c)
        self.pre_conv = CausalConv(c["codebook_dim"], latent, 3)
        self.upsample = nn.ModuleList(
            nn.ModuleList([CausalUp(latent, latent, f, f), ConvNeXt(latent)])
            for f in c["upsampling_ratios"])
        blocks = [UpBlock(d >> i, d >> (i + 1), r) for i, r in enumerate(c["upsample_rates"])]
        out = d >> len(blocks)
        self.decoder = nn.ModuleList([CausalConv(latent, d, 7), *blocks, Snake(out),
                                      CausalConv(out, 1, 7)])

    def front(self, q):
        h = self.pre_transformer(self.pre_conv(q).transpose(1, 2)).transpose(1, 2)
        for pair in self.upsample:
            for m in pair:
                h = m(h)
        return h

    def wave(self, q):
        h = self.front(q)
        for m in self.decoder:
            h = m(h)
        return h

    def forward(self, codes):
        return self.wave(self.quantizer.decode(codes)).clamp(-1, 1)


class EncoderBlock(nn.Module):
    def __init__(self, d, k):
        super().__init__()
        self.norm, self.mix = nn.GroupNorm(1, d), nn.Conv1d(d, d, k, padding=k // 2, groups=d)
        self.wide, self.narrow = nn.Conv1d(d, 2 * d, 1), nn.Conv1d(2 * d, d, 1)

    def forward(self, x):
        return x + self.narrow(F.gelu(self.wide(self.mix(self.norm(x)))))


class Encoder(nn.Module):
    """Training alone: waveform, log-mel, then latents at 12.5 Hz."""

    def __init__(self, width=320, n=80):
        super().__init__()
        self.register_buffer("bank", mels(513, 8200.0, n), persistent=False)
        self.register_buffer("window", torch.hann_window(1024), persistent=False)
        self.first = nn.Conv1d(n, width, 5, padding=2)
        self.fine = nn.Sequential(*(EncoderBlock(width, 7) for _ in range(3)))
        self.down = nn.Conv1d(width, width, 8, stride=4, padding=2)
        self.coarse = nn.Sequential(*(EncoderBlock(width, 3) for _ in range(3)))
        self.last = nn.Conv1d(width, CONFIG["codebook_dim"], 1)

    def forward(self, x):
        x = torch.stft(F.pad(x, (272, 272)), 1024, 480, window=self.window, center=False,
                       return_complex=True).abs()
        mel = torch.log(x.pow(2).transpose(1, 2) @ self.bank + 1e-5).transpose(1, 2) * 0.2 + 0.5
        return self.last(self.coarse(self.down(self.fine(self.first(mel)))))


class SpectralHead(nn.Module):
    """What the front half of the decoder is trained on: log-mel and the low log-STFT bins."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = CausalConv(128, 256, 5), CausalConv(256, 300, 1)
        self.register_buffer("bank", mels(513, 8200.0, 80))
        self.register_buffer("short", torch.hann_window(1024))
        self.register_buffer("long", torch.hann_window(2048))

    def forward(self, h):
        return self.out(F.gelu(self.conv(h)))

    def target(self, x):
        b, n = x.shape
        mel = torch.stft(F.pad(x, (392, 392)), 1024, 240, window=self.short, center=False,
                         return_complex=True).abs().pow(2).transpose(1, 2) @ self.bank
        mel = torch.log10(mel.clamp(min=1e-4)).reshape(b, n // 480, 160)  # two 10 ms steps
        low = torch.stft(F.pad(x, (784, 784)), 2048, 480, window=self.long, center=False,
                         return_complex=True).abs()[:, 2:142].transpose(1, 2)
        return torch.cat([mel, 2 * torch.log10(low.clamp(min=1e-2))], -1).transpose(1, 2)


class STFTDiscriminator(nn.Module):
    def __init__(self, n, ch=32):
        super().__init__()
        self.n = n
        self.register_buffer("window", torch.hann_window(n), persistent=False)
        norm = nn.utils.parametrizations.weight_norm
        wide = [norm(nn.Conv2d(ch, ch, (3, 9), (1, 2), padding=(d, 4), dilation=(d, 1)))
                for d in (1, 2, 4)]
        self.convs = nn.ModuleList([norm(nn.Conv2d(2, ch, (3, 9), padding=(1, 4))), *wide,
                                    norm(nn.Conv2d(ch, ch, (3, 3), padding=(1, 1)))])
        self.out = norm(nn.Conv2d(ch, 1, (3, 3), padding=(1, 1)))

    def forward(self, x):
        x = torch.stft(x, self.n, self.n // 4, window=self.window, return_complex=True)
        x = x / math.sqrt(self.n) * 4
        h, seen = torch.stack([x.real, x.imag], 1).transpose(2, 3), []
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
            for conv in self.convs:
                h = F.leaky_relu(conv(h), 0.2)
                seen.append(h)
            h = self.out(h)
        return h.float(), seen


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ModuleList(STFTDiscriminator(n) for n in (2048, 1024, 512, 256))

    def forward(self, x):
        return [d(x) for d in self.scales]


class MelLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.sizes = (128, 10), (256, 20), (512, 40), (1024, 80), (2048, 120)
        for n, m in self.sizes:
            self.register_buffer(f"bank{n}", mels(n // 2 + 1, 12000.0, m), persistent=False)
            self.register_buffer(f"window{n}", torch.hann_window(n), persistent=False)

    def forward(self, a, b):
        total = 0.0
        for n, _ in self.sizes:
            bank, window = getattr(self, f"bank{n}"), getattr(self, f"window{n}")
            x, y = (torch.log10((torch.stft(w, n, n // 4, window=window, return_complex=True)
                                 .abs().transpose(1, 2) @ bank).clamp(min=1e-4)) for w in (a, b))
            total = total + (x - y).abs().mean()
        return total / len(self.sizes)
