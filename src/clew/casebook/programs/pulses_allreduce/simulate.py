"""Noisy detector traces with one pulse each; the target is where the pulse is, how high and how wide."""

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info


def traces(rng, count, samples, noise):
    low, high = np.array([0.2, 0.5, 0.03]), np.array([0.8, 2.0, 0.1])
    truth = rng.uniform(low, high, (count, 3))
    centre, height, width = (column[:, None] for column in truth.T)
    t = np.linspace(0.0, 1.0, samples)
    pulse = height * np.exp(-0.5 * ((t - centre) / width) ** 2)
    drift = rng.normal(0.0, 0.3, (count, 1)) + rng.normal(0.0, 0.3, (count, 1)) * t
    hum = 0.15 * np.sin(2 * np.pi * (rng.uniform(3.0, 6.0, (count, 1)) * t + rng.uniform(size=(count, 1))))
    x = pulse + drift + hum + rng.normal(0.0, noise, (count, samples))
    y = (truth - (low + high) / 2) / ((high - low) / 12**0.5)
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y.astype(np.float32))


class TraceBatches(IterableDataset):
    """An endless supply in epochs: every process and every loader worker draws its own batches."""

    def __init__(self, config, seed, rank):
        self.config, self.seed, self.rank, self.epoch = config, seed, rank, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        rng = np.random.default_rng([self.seed, self.epoch, self.rank, worker])
        for _ in range(self.config["batches_per_epoch"] // workers):
            yield traces(rng, self.config["batch_size"], self.config["samples"], self.config["noise"])


def held_out(config, count=400):
    return traces(np.random.default_rng(31337), count, config["samples"], config["noise"])
