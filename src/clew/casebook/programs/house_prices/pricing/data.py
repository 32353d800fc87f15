"""Sales tables to scaled tensors. Prices are modelled on a log scale."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, TensorDataset

NUMBERS = ["area_m2", "rooms", "year_built", "garden_m2", "km_to_centre", "energy_class"]


class Preprocessor:
    def fit(self, frame):
        self.districts = sorted(frame["district"].unique())
        numbers = frame[NUMBERS].to_numpy(dtype=np.float64)
        self.mean, self.std = numbers.mean(0), numbers.std(0)
        logs = np.log(frame["price"].to_numpy())
        self.log_mean, self.log_std = logs.mean(), logs.std()
        return self

    def inputs(self, frame):
        numbers = (frame[NUMBERS].to_numpy(dtype=np.float64) - self.mean) / self.std
        one_hot = np.stack([frame["district"].to_numpy() == name for name in self.districts], axis=1)
        return torch.tensor(np.concatenate([numbers, one_hot], axis=1), dtype=torch.float32)

    def targets(self, frame):
        logs = (np.log(frame["price"].to_numpy()) - self.log_mean) / self.log_std
        return torch.tensor(logs, dtype=torch.float32)

    def prices(self, scaled):
        return torch.exp(scaled * self.log_std + self.log_mean)


def build_loaders(options, root):
    folder = Path(root) / options["folder"]
    shards = sorted(path for path in folder.glob("*.csv") if path.name != options["holdout"])
    train = pd.concat([pd.read_csv(path) for path in shards], ignore_index=True)
    val = pd.read_csv(folder / options["holdout"])
    preprocessor = Preprocessor().fit(train)
    train_set = TensorDataset(preprocessor.inputs(train), preprocessor.targets(train))
    val_set = TensorDataset(preprocessor.inputs(val), preprocessor.targets(val))
    train_loader = DataLoader(train_set, batch_size=options["batch_size"], shuffle=True)
    return train_loader, DataLoader(val_set, batch_size=500), preprocessor
