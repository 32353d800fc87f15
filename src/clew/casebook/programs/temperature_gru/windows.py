"""Windows of past days and the temperature of the day after."""

import numpy as np
import pandas as pd
import torch
from torch.utils.data import Dataset


class Windows(Dataset):
    def __init__(self, frame, columns, target, window, mean, std):
        scaled = (frame[columns] - mean[columns]) / std[columns]
        angle = 2 * np.pi * frame["date"].dt.dayofyear / 365.25
        values = np.column_stack([scaled.to_numpy(), np.sin(angle), np.cos(angle)])
        self.values = torch.tensor(values, dtype=torch.float32)
        self.target = torch.tensor(scaled[target].to_numpy(), dtype=torch.float32)
        self.window = window

    def __len__(self):
        return len(self.values) - self.window

    def __getitem__(self, i):
        return self.values[i : i + self.window], self.target[i + self.window]


def load(root, config):
    frame = pd.read_csv(root / config["csv"], parse_dates=["date"]).sort_values("date")
    train = frame[frame["date"] <= config["train_until"]]
    val = frame[(frame["date"] > config["train_until"]) & (frame["date"] <= config["val_until"])]
    mean, std = train[config["columns"]].mean(), train[config["columns"]].std()
    arguments = (config["columns"], config["target"], config["window"], mean, std)
    return Windows(train, *arguments), Windows(val, *arguments), float(std[config["target"]])
