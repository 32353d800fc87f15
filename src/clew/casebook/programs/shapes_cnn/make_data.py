"""Draw noisy grey-scale images of five shapes and save them under data/."""

from pathlib import Path

import numpy as np

SIZE = 16
NAMES = ["disc", "square", "triangle", "cross", "ring"]


def draw(kind, rng):
    row, col = np.mgrid[:SIZE, :SIZE]
    radius = rng.uniform(3.5, 5.5)
    y = row - rng.uniform(6.5, 9.5)
    x = col - rng.uniform(6.5, 9.5)
    distance = np.hypot(x, y)
    if kind == 0:
        mask = distance < radius
    elif kind == 1:
        mask = np.maximum(abs(x), abs(y)) < radius * 0.85
    elif kind == 2:
        mask = (y < radius * 0.8) & (abs(x) < (y + radius) * 0.6)
    elif kind == 3:
        mask = (np.minimum(abs(x), abs(y)) < 1.2) & (np.maximum(abs(x), abs(y)) < radius)
    else:
        mask = (distance < radius) & (distance > radius - 2.0)
    background = rng.uniform(30, 110)
    ink = background + rng.uniform(60, 120)
    image = np.where(mask, ink, background) + rng.normal(0, 22, (SIZE, SIZE))
    return image.clip(0, 255).astype(np.uint8)


def make(count, rng):
    labels = rng.integers(0, len(NAMES), count)
    images = np.stack([draw(kind, rng) for kind in labels])
    return images, labels.astype(np.int64)


if __name__ == "__main__":
    rng = np.random.default_rng(7)
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    for split, count in [("train", 1000), ("val", 400)]:
        images, labels = make(count, rng)
        np.savez_compressed(folder / f"{split}.npz", images=images, labels=labels)
