"""Whether held-out windows of a series lie between windows that were trained on.

A window and the next one share all but one of their rows in time. So the neighbours of a window are known by the part
that they share, whatever order the examples come in and however they were split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from clew.observe.hooks import tensors_in
from clew.observe.watches._data_given import row_digests

if TYPE_CHECKING:
    from clew.observe.rows import Digests
    from clew.observe.watch import Batch
    from clew.observe.watches._data_feed import Feed
    from clew.observe.watches._data_given import Loader
    from clew.records.place import Place

SETS, ROWS, VALUES = 8, 16_384, 8_000_000
SHORTEST, LONGEST = 4, 4096
FEWEST, BETWEEN, SHARE = 32, 8, 0.15
DISTINCT, KNOWN = 0.5, 0.5


class Windows:
    """Digests of windows: whole, without the last row in time, and without the first."""

    def __init__(self) -> None:
        self.whole: list[Digests] = []
        self.head: list[Digests] = []
        self.tail: list[Digests] = []
        self.count = self.values = 0

    def add(self, inputs: torch.Tensor) -> None:
        parts = [row_digests([part], ROWS) for part in (inputs, inputs[:, :-1], inputs[:, 1:])]
        if any(part is None for part in parts):
            return
        for kept, part in zip((self.whole, self.head, self.tail), parts, strict=True):
            kept.append(np.asarray(part))
        self.count += len(inputs)
        self.values += inputs.numel()


class Between(NamedTuple):
    rows: int
    of: int
    place: Place | None


class WindowSets:
    """The windows that loaders gave in their first epoch."""

    def __init__(self) -> None:
        self.sets: dict[int, Windows] = {}

    def batch(self, event: Batch) -> None:
        held = self.sets.get(event.loader)
        if event.epoch or (held is None and len(self.sets) >= SETS):
            return
        if held is None:
            held = self.sets[event.loader] = Windows()
        if held.count >= ROWS or held.values >= VALUES:
            return
        tensors = event.tensors or list(tensors_in(event.value, torch))
        first = next((tensor for tensor in tensors if tensor.dim()), None)
        if first is not None and _window(first):
            held.add(first)

    def between(self, feed: Feed) -> Between | None:
        """Held-out windows whose neighbours on both sides were trained on."""
        for loader in feed.loaders.values():
            partner = feed.loaders.get(loader.partner) if loader.partner is not None else None
            own = self.sets.get(loader.number)
            other = self.sets.get(partner.number) if partner is not None else None
            if not loader.evaluated or partner is None or own is None or other is None:
                continue
            found = _between(own, other, partner)
            if found is not None:
                return Between(found[0], found[1], loader.place)
        return None


def _between(own: Windows, other: Windows, partner: Loader) -> tuple[int, int] | None:
    if own.count < FEWEST or other.count < FEWEST:
        return None
    whole, head, tail = (np.concatenate(part) for part in (own.whole, own.head, own.tail))
    seen, heads, tails = (np.concatenate(part) for part in (other.whole, other.head, other.tail))
    covered = min(1.0, other.count / max(partner.source.size or 0, other.count))
    known = np.isin(whole, seen)
    varied = len(np.unique(head)) >= DISTINCT * len(head) and len(np.unique(heads)) >= DISTINCT * len(heads)
    if not varied or float(known.mean()) >= KNOWN * covered:
        return None  # a training set that is scored too
    between = int((np.isin(head, tails) & np.isin(tail, heads) & ~known).sum())
    return (between, len(whole)) if between >= max(BETWEEN, SHARE * covered**2 * len(whole)) else None


def _window(inputs: torch.Tensor) -> bool:
    if inputs.dim() not in (2, 3) or not inputs.is_floating_point() or inputs.device.type != "cpu":
        return False
    return SHORTEST <= inputs.shape[1] <= LONGEST and inputs.layout is torch.strided and inputs.numel() > 0
