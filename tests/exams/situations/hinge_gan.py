import torch
import torch.nn as nn
from torch.nn.utils import spectral_norm

torch.manual_seed(0)


def sample(n):
    c = torch.randint(0, 8, (n,)).float() * 0.7854
    return torch.stack([2 * c.cos(), 2 * c.sin()], 1) + 0.02 * torch.randn(n, 2)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = spectral_norm(nn.Linear(2, 64))
        self.l2 = spectral_norm(nn.Linear(64, 64))
        self.out = spectral_norm(nn.Linear(64, 1))

    def forward(self, x):
        h = torch.relu(self.l1(x))
        h = torch.relu(self.l2(h))
        return self.out(h).squeeze(-1)


gen = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
critic = Critic()
opt_g = torch.optim.Adam(gen.parameters(), lr=1e-4, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.0, 0.9))
for it in range(100):
    for _ in range(2):
        real = sample(128)
        fake = gen(torch.randn(128, 8)).detach()
        d_loss = nn.functional.relu(1 - critic(real)).mean() + nn.functional.relu(1 + critic(fake)).mean()
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
    g_loss = -critic(gen(torch.randn(128, 8))).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    if it % 20 == 0:
        print(f"it {it} d_loss {d_loss.item():.4f} g_loss {g_loss.item():.4f}", flush=True)
