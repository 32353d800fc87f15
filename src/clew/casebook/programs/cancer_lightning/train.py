"""Breast-cancer diagnosis with Lightning."""

import argparse
import logging

import lightning as L
import torch
import torch.nn as nn
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, TensorDataset


class CancerData(L.LightningDataModule):
    def __init__(self, batch_size=32):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        x, y = load_breast_cancer(return_X_y=True)
        x_train, x_val, y_train, y_val = train_test_split(x, y, test_size=0.3, stratify=y, random_state=3)
        scaler = StandardScaler().fit(x_train)
        self.train_set = self._tensors(scaler.transform(x_train), y_train)
        self.val_set = self._tensors(scaler.transform(x_val), y_val)

    @staticmethod
    def _tensors(x, y):
        return TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32))

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=171)


class Diagnosis(L.LightningModule):
    def __init__(self, hidden=32, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(30, hidden),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )
        self.loss = nn.BCEWithLogitsLoss()

    def forward(self, x):
        return self.net(x).squeeze(-1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.loss(self(x), y)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.log("val_loss", self.loss(logits, y))
        self.log("val_acc", ((logits > 0) == y.bool()).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "epoch"}}


class PrintMetrics(L.Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        shown = ", ".join(f"{name} {value:.4f}" for name, value in sorted(trainer.callback_metrics.items()))
        print(f"epoch {trainer.current_epoch}: {shown}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=15)
    args = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    L.seed_everything(args.seed, verbose=False)

    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[PrintMetrics()],
    )
    trainer.fit(Diagnosis(), datamodule=CancerData())
    print(f"final val_acc={trainer.callback_metrics['val_acc'].item():.4f}")


if __name__ == "__main__":
    main()
