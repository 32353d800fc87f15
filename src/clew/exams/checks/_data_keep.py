"""Examples written out for a person to look at: images as PNG, tokens as text, rows as a table."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import torch

from clew.exams.batches import Batch, take
from clew.exams.checks._data_tables import shown_inputs
from clew.home import private

MOST_COLUMNS = 64
SMALLEST = 128
"""Images are enlarged by whole factors until their longer side is at least this."""


class Shown(NamedTuple):
    """One example, and what is to be said about it."""

    row: int
    words: dict[str, str]


def keep(folder: str, batch: Batch, shown: Sequence[Shown]) -> list[str]:
    """Writes the examples into the folder, best first; returns the paths of what was written. `index.tsv` says what
    each of them is, and holds the values themselves where the inputs are rows of a table."""
    os.makedirs(folder, 0o700, exist_ok=True)
    written = []
    lines: list[list[str]] = []
    for number, item in enumerate(shown):
        one = take(batch, torch.tensor([item.row]))
        line = [str(number), *item.words.values()]
        for part in shown_inputs(one):
            held = part.tensor[0].detach().cpu()
            stem = f"{number:03d}_{_plain(part.name)}"
            pixels = as_image(held)
            if pixels is not None:
                written.append(_write(folder, f"{stem}.png", png(pixels)))
                line.append(f"{stem}.png")
            elif not held.is_floating_point() and held.numel() > 1:
                text = " ".join(str(int(token)) for token in held.flatten())
                written.append(_write(folder, f"{stem}.txt", f"{text}\n".encode()))
                line.append(f"{stem}.txt")
            else:
                line += [f"{float(value.real):.6g}" for value in held.flatten()[:MOST_COLUMNS]]
        lines.append(line)
    head = ["number", *(shown[0].words if shown else ())]
    width = max((len(line) for line in lines), default=len(head))
    head += [f"input {column}" for column in range(width - len(head))]
    table = "".join("\t".join(line) + "\n" for line in [head, *lines])
    return [_write(folder, "index.tsv", table.encode()), *written]


def as_image(held: torch.Tensor) -> torch.Tensor | None:
    """(height, width, 1 or 3) of bytes, from (channels, height, width), (height, width, channels) or a square; None
    when it is no image. The range of the example is spread over black to white."""
    if held.dim() == 3 and held.shape[0] in (1, 3, 4):
        held = held.permute(1, 2, 0)
    elif held.dim() == 2 and held.shape[0] == held.shape[1] and held.shape[0] >= 8 and held.is_floating_point():
        held = held[:, :, None]
    if held.dim() != 3 or held.shape[2] not in (1, 3, 4) or min(held.shape[:2]) < 4 or held.is_complex():
        return None
    held = torch.nan_to_num(held[:, :, : 1 if held.shape[2] == 1 else 3].double())
    low, high = float(held.min()), float(held.max())
    held = (held - low) / (high - low) if high > low else torch.zeros_like(held)
    pixels = (held * 255).round().to(torch.uint8)
    factor = max(1, SMALLEST // max(pixels.shape[:2]))
    return pixels.repeat_interleave(factor, 0).repeat_interleave(factor, 1)


def png(pixels: torch.Tensor) -> bytes:
    """A PNG file of (height, width, 1 or 3) bytes."""
    height, width, channels = pixels.shape
    raw = b"".join(b"\0" + bytes(line.flatten().tolist()) for line in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 6)) + chunk(b"IEND", b"")


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name).strip("_") or "input"


def _write(folder: str, name: str, content: bytes) -> str:
    path = os.path.join(folder, name)
    with open(path, "wb", opener=private) as file:
        file.write(content)
    return path
