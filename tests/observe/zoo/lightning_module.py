"""A LightningModule with its Trainer: validation, a schedule, clipping and accumulation by the Trainer."""

import logging
import tempfile

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from common import print_digest
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(L.LightningModule):
    def __init__(self, width=32):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Dropout(0.05), nn.Linear(width, 4))
        self.decoder = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 32))

    def training_step(self, batch, batch_idx):  # noqa: ARG002
        (x,) = batch
        loss = F.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):  # noqa: ARG002
        (x,) = batch
        self.log("val_loss", F.mse_loss(self.decoder(self.encoder(x)), x))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)}


def main():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    L.seed_everything(0, verbose=False)
    x = torch.randn(320, 4) @ torch.randn(4, 32) / 2
    train = DataLoader(TensorDataset(x[:256]), batch_size=32, shuffle=True)
    val = DataLoader(TensorDataset(x[256:]), batch_size=64)
    model = Autoencoder()
    with tempfile.TemporaryDirectory() as root:
        trainer = L.Trainer(
            max_epochs=8,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            gradient_clip_val=1.0,
            accumulate_grad_batches=2,
            default_root_dir=root,
        )
        trainer.fit(model, train, val)
    metrics = {name: round(value.item(), 5) for name, value in sorted(trainer.callback_metrics.items())}
    print(metrics, "steps", trainer.global_step)
    print_digest(model, trainer.optimizers[0])


if __name__ == "__main__":
    main()
