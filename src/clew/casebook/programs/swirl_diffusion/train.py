"""Denoising diffusion on a two-dimensional swirl."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def swirl(count, generator):
    angle = 1.5 * math.pi * (1 + 2 * torch.rand(count, generator=generator))
    points = torch.stack([angle * torch.cos(angle), angle * torch.sin(angle)], dim=1)
    return points + 0.3 * torch.randn(count, 2, generator=generator)


class Denoiser(nn.Module):
    def __init__(self, hidden=96, frequencies=8):
        super().__init__()
        self.register_buffer("rates", math.pi * 2.0 ** torch.arange(frequencies).div(2))
        self.net = nn.Sequential(
            nn.Linear(2 + 2 * frequencies, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, 2),
        )

    def forward(self, x, t):
        angle = t[:, None] * self.rates
        return self.net(torch.cat([x, angle.sin(), angle.cos()], dim=1))


class Diffusion:
    def __init__(self, steps=50):
        self.steps = steps
        t = torch.linspace(0, 1, steps + 1)
        cumulative = torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
        cumulative = cumulative / cumulative[0]
        self.betas = (1 - cumulative[1:] / cumulative[:-1]).clamp(max=0.999)
        self.alpha_bar = torch.cumprod(1 - self.betas, dim=0)

    def loss(self, model, x0):
        t = torch.randint(0, self.steps, (len(x0),))
        noise = torch.randn_like(x0)
        keep = self.alpha_bar[t].unsqueeze(1)
        noisy = keep.sqrt() * x0 + (1 - keep).sqrt() * noise
        return F.mse_loss(model(noisy, (t + 1) / self.steps), noise)

    @torch.no_grad()
    def sample(self, model, count):
        x = torch.randn(count, 2)
        for t in reversed(range(self.steps)):
            beta, bar = self.betas[t], self.alpha_bar[t]
            predicted = model(x, torch.full((count,), (t + 1) / self.steps))
            x = (x - beta / (1 - bar).sqrt() * predicted) / (1 - beta).sqrt()
            if t > 0:
                x = x + beta.sqrt() * torch.randn_like(x)
        return x


def energy_distance(a, b):
    return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--ema", type=float, default=0.99)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    generator = torch.Generator().manual_seed(0)
    train, held_out = swirl(4000, generator), swirl(1000, generator)
    mean, std = train.mean(0), train.std()
    train, held_out = (train - mean) / std, (held_out - mean) / std

    model = Denoiser()
    averaged = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(args.ema)
    )
    diffusion = Diffusion()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps, eta_min=args.lr / 20)

    window = []
    for step in range(1, args.steps + 1):
        model.train()
        batch = train[torch.randint(0, len(train), (args.batch_size,))]
        loss = diffusion.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        averaged.update_parameters(model)
        window.append(loss.item())
        if step % 100 == 0:
            averaged.eval()
            distance = energy_distance(diffusion.sample(averaged, 1000), held_out)
            print(f"step {step:4d}  loss {sum(window) / len(window):.4f}  energy distance {distance:.4f}")
            window = []

    print(f"final energy_distance={distance:.4f}")


if __name__ == "__main__":
    main()
