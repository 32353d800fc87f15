"""What rows of token numbers show by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

STRAY = 0.05
FEWEST = 2


def padding(ids: torch.Tensor) -> list[int] | None:
    """How much padding closes each row; None where nothing looks like padding."""
    last = ids[:, -1:]
    runs = (ids == last).flip(1).long().cumprod(1).sum(1)
    closing = runs >= 2
    if int(closing.sum()) < FEWEST:
        return None
    pad = last[closing].mode(0).values
    is_pad = closing & (last[:, 0] == pad)
    stray = int(closing.sum()) - int(is_pad.sum())
    lengths = runs.where(is_pad, (last[:, 0] == pad).long())
    elsewhere = (ids[:, 1:] == pad).sum() - lengths.clamp(max=ids.shape[1] - 1).sum()
    if stray > STRAY * int(closing.sum()) or int(elsewhere) != 0:
        return None
    if int((lengths >= ids.shape[1]).sum()) or len(set(lengths.tolist())) < FEWEST:
        return None
    return [int(length) for length in lengths]
