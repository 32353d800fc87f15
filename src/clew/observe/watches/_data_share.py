"""How many rows of one set have a twin in another, less what equal rows inside the other set would explain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

STRAY = 3


class Shared(NamedTuple):
    share: float
    twins: int
    rows: int


def shared(rows: Mapping[int, int], others: Iterable[int], twins: float, coverage: float) -> Shared:
    """`rows` by how often they occur; `twins` is the share of the other set's rows that have an equal one in that set,
    `coverage` the share of the other set that is known."""
    known = others if isinstance(others, dict | set) else set(others)
    total = sum(rows.values())
    found = sum(count for row, count in rows.items() if row in known)
    if not total:
        return Shared(0.0, 0, 0)
    natural = twins * total
    room = max(float(STRAY), 4 * (natural * (1 - twins)) ** 0.5)
    if found - natural < room or twins >= 1:
        return Shared(0.0, found, total)
    excess = (found / total - twins) / (1 - twins)
    return Shared(min(1.0, excess / max(coverage, 1e-3)), found, total)
