"""Notes of made-up instruments, drawn anew for every example."""

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

RATE = 4000
LENGTH = 256
LOWEST, OCTAVES = 110.0, 3.0


def note(rng, noise=0.3):
    """A waveform, and its pitch in octaves from the middle of the range."""
    octave = rng.uniform(0, OCTAVES)
    time = np.arange(LENGTH) / RATE
    wave = np.zeros(LENGTH)
    for harmonic in (1, 2, 3):
        strength = rng.uniform(0.3, 1.0) / harmonic
        wave += strength * np.sin(2 * np.pi * (harmonic * LOWEST * 2**octave * time + rng.random()))
    wave += noise * rng.standard_normal(LENGTH)
    loudness = rng.uniform(0.1, 1.0)
    return (loudness * wave).astype(np.float32), np.float32(octave - OCTAVES / 2)


def prepare(wave):
    return torch.from_numpy(wave / np.sqrt(np.mean(wave**2) + 1e-8)).unsqueeze(0)


class Notes(Dataset):
    """`count` notes an epoch, never the same twice."""

    def __init__(self, count, seed):
        self.count = count
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        wave, pitch = note(self.rng)
        return prepare(wave), torch.tensor(pitch)


def seed_worker(worker):
    """Every worker draws notes of its own, in every epoch."""
    get_worker_info().dataset.rng = np.random.default_rng(torch.initial_seed())


def fixed_set(count, seed):
    rng = np.random.default_rng(seed)
    waves, pitches = zip(*(note(rng) for _ in range(count)))
    return torch.stack([prepare(wave) for wave in waves]), torch.tensor(np.array(pitches))
