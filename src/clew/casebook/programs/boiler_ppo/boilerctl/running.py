import torch
import torch.nn as nn


class RunningNorm(nn.Module):
    """Scales observations by the mean and variance of all that were seen in training."""

    def __init__(self, size, clip=5.0):
        super().__init__()
        self.clip = clip
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("var", torch.ones(size, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(1e-4, dtype=torch.float64))

    @torch.no_grad()
    def update(self, x):
        x = x.double().reshape(-1, x.shape[-1])
        batch_mean, batch_var, batch_count = x.mean(0), x.var(0, unbiased=False), len(x)
        delta = batch_mean - self.mean
        total = self.count + batch_count
        m2 = self.var * self.count + batch_var * batch_count + delta**2 * self.count * batch_count / total
        self.mean += delta * batch_count / total
        self.var.copy_(m2 / total)
        self.count.copy_(total)

    def forward(self, x):
        scaled = (x - self.mean) / torch.sqrt(self.var + 1e-8)
        return scaled.clamp(-self.clip, self.clip).float()
