"""Compress 8x8 digit images to a few numbers and back."""

import argparse
from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset, random_split


@dataclass
class Config:
    latent: int = 8
    hidden: int = 96
    lr: float = 2e-3
    batch_size: int = 64
    epochs: int = 20
    seed: int = 0


class Autoencoder(nn.Module):
    def __init__(self, latent, hidden):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(64, hidden), nn.ELU(), nn.Linear(hidden, hidden), nn.ELU(), nn.Linear(hidden, latent)
        )
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden), nn.ELU(), nn.Linear(hidden, hidden), nn.ELU(), nn.Linear(hidden, 64)
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Trainer:
    def __init__(self, config: Config):
        self.config = config
        torch.manual_seed(config.seed)
        self.train_loader, self.val_loader, self.baseline = self.load_data()
        self.model = Autoencoder(config.latent, config.hidden)
        self.loss_fn = nn.MSELoss()
        self.optimizer = optim.Adam(self.model.parameters(), lr=config.lr)
        self.scheduler = optim.lr_scheduler.StepLR(self.optimizer, step_size=8, gamma=0.4)

    def load_data(self):
        pixels = torch.tensor(load_digits().data, dtype=torch.float32) / 16.0
        splitter = torch.Generator().manual_seed(0)
        train, val = random_split(TensorDataset(pixels), [1400, len(pixels) - 1400], generator=splitter)
        train_x, val_x = pixels[train.indices], pixels[val.indices]
        mean = train_x.mean(0)
        baseline = ((val_x - mean) ** 2).mean().item()
        train_loader = DataLoader(TensorDataset(train_x - mean), batch_size=self.config.batch_size, shuffle=True)
        val_loader = DataLoader(TensorDataset(val_x - mean), batch_size=128)
        return train_loader, val_loader, baseline

    def train_epoch(self):
        self.model.train()
        losses = []
        for (x,) in self.train_loader:
            self.optimizer.zero_grad()
            loss = self.loss_fn(self.model(x), x)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        squared, count = 0.0, 0
        for (x,) in self.val_loader:
            squared += ((self.model(x) - x) ** 2).sum().item()
            count += x.numel()
        return squared / count

    def fit(self):
        for epoch in range(self.config.epochs):
            train_mse = self.train_epoch()
            val_mse = self.validate()
            self.scheduler.step()
            print(f"epoch {epoch + 1:>2}: train mse {train_mse:.5f}, val mse {val_mse:.5f}")
        return 1 - val_mse / self.baseline


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--latent", type=int, default=Config.latent)
    cli = parser.parse_args()
    explained = Trainer(Config(latent=cli.latent, seed=cli.seed)).fit()
    print(f"final explained={explained:.4f}")
