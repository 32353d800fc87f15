"""Variational autoencoder on 8x8 digits."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


class VAE(nn.Module):
    def __init__(self, hidden=128, latent=8):
        super().__init__()
        self.enc = nn.Linear(64, hidden)
        self.mu = nn.Linear(hidden, latent)
        self.logvar = nn.Linear(hidden, latent)
        self.dec1 = nn.Linear(latent, hidden)
        self.dec2 = nn.Linear(hidden, 64)

    def encode(self, x):
        h = F.relu(self.enc(x))
        return self.mu(h), self.logvar(h)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z):
        return torch.sigmoid(self.dec2(F.relu(self.dec1(z))))

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


SIGMA = 0.2  # observation noise, in pixel units


def negative_elbo(output, x, mu, logvar):
    """Nats per image, up to the constant of the Gaussian likelihood."""
    reconstruction = F.mse_loss(output, x, reduction="sum") / (2 * SIGMA**2)
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return (reconstruction + kl) / x.shape[0], kl / x.shape[0]


def batches(x, size):
    for index in torch.randperm(len(x)).split(size):
        yield x[index]


def train(model, optimizer, x, batch_size):
    model.train()
    total = 0.0
    for batch in batches(x, batch_size):
        optimizer.zero_grad()
        loss, _ = negative_elbo(*_with_input(model, batch))
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    return total / len(x)


def _with_input(model, x):
    output, mu, logvar = model(x)
    return output, x, mu, logvar


@torch.no_grad()
def test(model, x):
    model.eval()
    loss, kl = negative_elbo(*_with_input(model, x))
    return loss.item(), kl.item()


def main():
    parser = argparse.ArgumentParser(description="VAE digits")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    pixels = torch.tensor(load_digits().data, dtype=torch.float32) / 16.0
    x_train, x_val = train_test_split(pixels, test_size=0.2, random_state=0)

    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        train_loss = train(model, optimizer, x_train, args.batch_size)
        val_loss, kl = test(model, x_val)
        print(f"====> Epoch: {epoch} train loss: {train_loss:.3f} val loss: {val_loss:.3f} val kl: {kl:.3f}")
    print(f"final val_elbo={-val_loss:.3f}")


if __name__ == "__main__":
    main()
