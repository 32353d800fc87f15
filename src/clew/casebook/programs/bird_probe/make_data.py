"""Write recordings as band energies (data/recordings.npz), their metadata (data/clips.csv) and the settings used."""

from pathlib import Path

import numpy as np
import pandas as pd

SPECIES = ["wren", "robin", "siskin", "dunnock", "linnet", "redpoll"]


def make(rng, count, frames=20, bands=6):
    centre = rng.uniform(1.8, 3.4, len(SPECIES))
    tempo = rng.uniform(0.3, 1.6, len(SPECIES))
    label = rng.integers(0, len(SPECIES), count)
    t = np.arange(frames)
    clips = np.zeros((count, frames, bands))
    for i, kind in enumerate(label):
        pitch = centre[kind] + 0.9 * np.sin(tempo[kind] * t + rng.uniform(0, 2 * np.pi)) + rng.normal(0, 0.3)
        loudness = rng.uniform(0.6, 1.6)
        clips[i] = loudness * np.exp(-((np.arange(bands) - pitch[:, None]) ** 2) / 0.7)
    clips += rng.gamma(1.5, 0.17, clips.shape)
    return clips.astype(np.float16), label


if __name__ == "__main__":
    rng = np.random.default_rng(31)
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    clips, label = make(rng, 1200)
    np.savez_compressed(folder / "recordings.npz", clips=clips)
    table = pd.DataFrame(
        {
            "clip": np.arange(len(label)),
            "species": [SPECIES[i] for i in label],
            "site": rng.choice(["marsh", "wood", "field"], len(label)),
            "split": np.where(np.arange(len(label)) < 900, "train", "test"),
        }
    )
    table.to_csv(folder / "clips.csv", index=False)
