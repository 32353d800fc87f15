from pathlib import Path

import pandas as pd
import torch
from torch.utils.data import DataLoader, TensorDataset

from churn.features import Features


def load(config, root):
    options = config["data"]
    train = pd.read_csv(Path(root) / options["train"])
    val = pd.read_csv(Path(root) / options["val"])
    features = Features(options["numeric"], options["categorical"], options["log"]).fit(train)

    def dataset(frame):
        target = torch.tensor(frame[options["target"]].to_numpy(), dtype=torch.float32)
        return TensorDataset(*features.transform(frame), target)

    batch_size = config["optim"]["batch_size"]
    train_loader = DataLoader(dataset(train), batch_size=batch_size, shuffle=True)
    val_loader = DataLoader(dataset(val), batch_size=4 * batch_size)
    return train_loader, val_loader, features
