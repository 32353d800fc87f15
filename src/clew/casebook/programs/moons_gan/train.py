"""A GAN on a two-dimensional point cloud."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import make_moons

LATENT = 8


def generator(hidden=64):
    return nn.Sequential(
        nn.Linear(LATENT, hidden),
        nn.LeakyReLU(0.2),
        nn.Linear(hidden, hidden),
        nn.LeakyReLU(0.2),
        nn.Linear(hidden, 2),
    )


def discriminator(hidden=64):
    return nn.Sequential(
        nn.Linear(2, hidden),
        nn.LeakyReLU(0.2),
        nn.Linear(hidden, hidden),
        nn.LeakyReLU(0.2),
        nn.Linear(hidden, 1),
    )


def real_points(count, seed):
    points, _ = make_moons(count, noise=0.06, random_state=seed)
    return torch.tensor(points, dtype=torch.float32)


def energy_distance(a, b):
    between = torch.cdist(a, b).mean()
    return (2 * between - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    train = real_points(2000, seed=0)
    held_out = real_points(1000, seed=1)
    mean, std = train.mean(0), train.std(0)
    train, held_out = (train - mean) / std, (held_out - mean) / std

    net_g, net_d = generator(), discriminator()
    opt_g = torch.optim.Adam(net_g.parameters(), lr=args.lr, betas=(0.5, 0.9))
    opt_d = torch.optim.Adam(net_d.parameters(), lr=args.lr, betas=(0.5, 0.9))
    fixed_noise = torch.randn(1000, LATENT)
    ones, zeros = torch.ones(args.batch_size), torch.zeros(args.batch_size)

    for step in range(1, args.steps + 1):
        real = train[torch.from_numpy(rng.integers(0, len(train), args.batch_size))]
        fake = net_g(torch.randn(args.batch_size, LATENT))

        opt_d.zero_grad()
        loss_real = F.binary_cross_entropy_with_logits(net_d(real).squeeze(1), ones)
        loss_fake = F.binary_cross_entropy_with_logits(net_d(fake.detach()).squeeze(1), zeros)
        loss_d = loss_real + loss_fake
        loss_d.backward()
        opt_d.step()

        opt_g.zero_grad()
        loss_g = F.binary_cross_entropy_with_logits(net_d(fake).squeeze(1), ones)
        loss_g.backward()
        opt_g.step()

        if step % 50 == 0:
            with torch.no_grad():
                distance = energy_distance(net_g(fixed_noise), held_out)
            print(
                f"[{step}/{args.steps}] loss_d {loss_d.item():.4f} loss_g {loss_g.item():.4f} distance {distance:.4f}"
            )

    print(f"final energy_distance={distance:.4f}")


if __name__ == "__main__":
    main()
