"""Draw microscope-like images with cells and their masks into data/*.npy."""

from pathlib import Path

import numpy as np

SIZE = 32


def draw(rng):
    row, col = np.mgrid[:SIZE, :SIZE]
    mask = np.zeros((SIZE, SIZE), bool)
    image = np.full((SIZE, SIZE), rng.uniform(40, 80))
    image += rng.uniform(-0.8, 0.8) * (col - SIZE / 2) + rng.uniform(-0.8, 0.8) * (row - SIZE / 2)
    for _ in range(rng.integers(2, 6)):
        cy, cx = rng.uniform(3, SIZE - 3, 2)
        a, b = rng.uniform(2.5, 5.0, 2)
        angle = rng.uniform(0, np.pi)
        u = (col - cx) * np.cos(angle) + (row - cy) * np.sin(angle)
        v = (row - cy) * np.cos(angle) - (col - cx) * np.sin(angle)
        inside = (u / a) ** 2 + (v / b) ** 2 < 1
        image[inside] += rng.uniform(35, 70)
        mask |= inside
    for _ in range(3):
        cy, cx = rng.integers(1, SIZE - 1, 2)
        image[cy - 1 : cy + 1, cx - 1 : cx + 1] += 60
    image += rng.normal(0, 12, image.shape)
    return image.clip(0, 255).astype(np.uint8), mask.astype(np.uint8)


if __name__ == "__main__":
    rng = np.random.default_rng(29)
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    for split, count in [("train", 240), ("val", 80)]:
        pairs = [draw(rng) for _ in range(count)]
        np.save(folder / f"{split}_images.npy", np.stack([image for image, _ in pairs]))
        np.save(folder / f"{split}_masks.npy", np.stack([mask for _, mask in pairs]))
