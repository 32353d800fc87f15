"""A GAN on a ring of Gaussians: two models, two optimisers, a detached fake, an average of the generator's weights."""

import copy
import math

import torch
import torch.nn as nn
from common import print_digest, seed_all

seed_all(7)
latent = 8


def real_batch(n):
    angle = 2 * math.pi * torch.randint(0, 8, (n,)) / 8
    return torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(n, 2)


G = nn.Sequential(nn.Linear(latent, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
D = nn.Sequential(
    nn.utils.parametrizations.spectral_norm(nn.Linear(2, 32)), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(32, 1)
)
ema = copy.deepcopy(G).eval().requires_grad_(False)
opt_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
real_label, fake_label = torch.ones(64, 1), torch.zeros(64, 1)

for i in range(80):
    D.zero_grad()
    loss_real = criterion(D(real_batch(64)), real_label)
    loss_real.backward()
    fake = G(torch.randn(64, latent))
    loss_fake = criterion(D(fake.detach()), fake_label)
    loss_fake.backward()
    opt_d.step()

    G.zero_grad()
    loss_g = criterion(D(fake), real_label)
    loss_g.backward()
    opt_g.step()
    with torch.no_grad():
        for slow, fast in zip(ema.parameters(), G.parameters(), strict=True):
            slow.lerp_(fast, 0.05)
    if i % 20 == 0:
        print(f"[{i}/80] Loss_D: {(loss_real + loss_fake).item():.4f} Loss_G: {loss_g.item():.4f}")

with torch.no_grad():
    print("spread", round(ema(torch.randn(256, latent)).std().item(), 4))
print_digest(G, D, ema, opt_g, opt_d)
