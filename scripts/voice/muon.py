"""Momentum whose step is made orthogonal (Newton-Schulz), for the matrices inside the layers."""
import torch


def orthogonal(g, steps=5):
    """Near-orthogonal factors of a stack of matrices [N, R, C], in bf16 on a GPU."""
    x = g.bfloat16() if g.is_cuda else g
    wide = x.shape[1] <= x.shape[2]
    x = x if wide else x.transpose(1, 2)
    x = x / (x.float().square().sum((1, 2), keepdim=True).sqrt() + 1e-7).to(x.dtype)
    for _ in range(steps):
        a = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return (x if wide else x.transpose(1, 2)).float()


class Muon:
    """Matrices of one shape go through one stacked product. A step's size is AdamW's."""

    def __init__(self, matrices, rate, decay=0.05, momentum=0.95):
        self.rate, self.decay, self.momentum = rate, decay, momentum
        shapes = {}
        for p in matrices:
            shapes.setdefault(tuple(p.shape), []).append(p)
        self.stacks = [(ps, torch.zeros_like(torch.stack([p.detach() for p in ps])))
                       for ps in shapes.values()]

    @torch.no_grad()
    def step(self):
        """rate: a tensor of one element, so that a captured step reads its present value."""
        for matrices, mean in self.stacks:
            g = torch.stack([p.grad for p in matrices])
            mean.lerp_(g, 1 - self.momentum)
            step = orthogonal(g.lerp(mean, self.momentum))
            step = step * (0.2 * max(mean.shape[1:]) ** 0.5) * self.rate
            keep = 1 - self.rate * self.decay
            for p, s in zip(matrices, step.unbind()):
                p.mul_(keep).sub_(s)
