"""Past and future."""

import numpy as np
import pandas as pd
import torch
from torch.utils.data import TensorDataset


def by_date(frame, until):
    until = pd.Timestamp(until)
    return frame[frame["date"] <= until], frame[frame["date"] > until]


class Standardizer:
    def __init__(self, columns):
        self.columns = columns

    def fit(self, frame):
        self.mean, self.std = frame[self.columns].mean(), frame[self.columns].std()
        return self

    def transform(self, frame):
        return ((frame[self.columns] - self.mean) / self.std).to_numpy(np.float32)


def to_dataset(frame, standardizer, target):
    numbers = torch.from_numpy(standardizer.transform(frame))
    ids = torch.from_numpy(frame[["shop_id", "product_id"]].to_numpy(np.int64))
    values = torch.from_numpy(frame[target].to_numpy(np.float32))
    return TensorDataset(numbers, ids, values)
