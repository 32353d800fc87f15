import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Cells(Dataset):
    def __init__(self, folder, split, statistics, flips=False):
        mean, std = statistics
        images = np.load(folder / f"{split}_images.npy").astype(np.float32) / 255.0
        self.images = torch.from_numpy((images - mean) / std).unsqueeze(1)
        self.masks = torch.from_numpy(np.load(folder / f"{split}_masks.npy")).float().unsqueeze(1)
        self.flips = flips

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, mask = self.images[i], self.masks[i]
        if self.flips:
            for dim in (1, 2):
                if torch.rand(1).item() < 0.5:
                    image, mask = image.flip(dim), mask.flip(dim)
        return image, mask


def pixel_statistics(folder):
    images = np.load(folder / "train_images.npy") / 255.0
    return float(images.mean()), float(images.std())


def build_loaders(options, root):
    folder = root / options["folder"]
    statistics = pixel_statistics(folder)
    train = Cells(folder, "train", statistics, flips=options["flips"])
    val = Cells(folder, "val", statistics)
    return DataLoader(train, batch_size=options["batch_size"], shuffle=True), DataLoader(val, batch_size=40)
