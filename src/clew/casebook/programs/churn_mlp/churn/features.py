"""Turn rows of the customer table into numbers."""

import numpy as np
import torch


class Features:
    """Scaling and vocabularies, learned from the training rows only."""

    def __init__(self, numeric, categorical, log=()):
        self.numeric, self.categorical, self.log = numeric, categorical, log

    def _numbers(self, frame):
        numbers = frame[self.numeric].astype("float64").copy()
        for column in self.log:
            numbers[column] = np.log1p(numbers[column])
        return numbers

    def fit(self, frame):
        numbers = self._numbers(frame)
        self.mean, self.std = numbers.mean(), numbers.std()
        self.levels = {column: sorted(frame[column].unique()) for column in self.categorical}
        return self

    def transform(self, frame):
        numbers = (self._numbers(frame) - self.mean) / self.std
        codes = np.stack(
            [frame[column].map(self.levels[column].index).to_numpy() for column in self.categorical], axis=1
        )
        return torch.tensor(numbers.to_numpy(), dtype=torch.float32), torch.tensor(codes, dtype=torch.long)

    @property
    def cardinalities(self):
        return [len(self.levels[column]) for column in self.categorical]
