"""Random views of the same scene: another crop position, brightness and noise; the digit stays whole."""

import torch
import torch.nn.functional as F


def shift(images, most):
    """Each image by its own offset, with background moving in at the edges."""
    n, _, height, width = images.shape
    padded = F.pad(images, (most, most, most, most))
    dy = torch.randint(0, 2 * most + 1, (n, 1, 1))
    dx = torch.randint(0, 2 * most + 1, (n, 1, 1))
    rows = dy + torch.arange(height).view(1, -1, 1)
    columns = dx + torch.arange(width).view(1, 1, -1)
    return padded[torch.arange(n).view(-1, 1, 1), 0, rows, columns].unsqueeze(1)


def brightness(images, spread=0.3):
    return images * (1 + spread * (2 * torch.rand(len(images), 1, 1, 1) - 1))


def place(images, size, generator):
    """Put each image somewhere on an empty canvas."""
    n, _, height, width = images.shape
    canvas = torch.zeros(n, 1, size, size)
    tops = torch.randint(0, size - height + 1, (n,), generator=generator)
    lefts = torch.randint(0, size - width + 1, (n,), generator=generator)
    for i, (top, left) in enumerate(zip(tops.tolist(), lefts.tolist())):
        canvas[i, :, top : top + height, left : left + width] = images[i]
    return canvas


def view(images):
    return brightness(shift(images, most=3)) + 0.1 * torch.randn_like(images)
