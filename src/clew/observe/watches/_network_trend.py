"""A long series of readings in a few hundred numbers, and whether it grows steadily."""

from __future__ import annotations

from itertools import pairwise

BINS = 256


class Bins:
    """Medians of neighbouring readings. When there are too many, neighbours are joined and bins get twice as wide."""

    def __init__(self, width: int = 1) -> None:
        self.width = width
        self.medians: list[float] = []
        self._open: list[float] = []
        self.count = 0

    def add(self, value: float) -> None:
        self.count += 1
        self._open.append(value)
        if len(self._open) < self.width:
            return
        self.medians.append(median(self._open))
        self._open = []
        if len(self.medians) >= BINS:
            self.medians = [(a + b) / 2 for a, b in zip(self.medians[::2], self.medians[1::2], strict=False)]
            self.width *= 2

    def tenths(self) -> tuple[float, float, float]:
        """The median of the first tenth, of the middle one, and of the last."""
        size = max(1, len(self.medians) // 10)
        middle = len(self.medians) // 2
        return (
            median(self.medians[:size]),
            median(self.medians[middle - size // 2 : middle - size // 2 + size]),
            median(self.medians[-size:]),
        )

    def steadiness(self) -> float:
        """Kendall's tau with time over at most forty levels: 1 when every later one is higher."""
        step = max(1, len(self.medians) // 40)
        levels = [median(self.medians[i : i + step]) for i in range(0, len(self.medians) - step + 1, step)]
        pairs = [(a < b) - (a > b) for i, a in enumerate(levels) for b in levels[i + 1 :]]
        return sum(pairs) / len(pairs) if pairs else 0.0

    def largest_jump(self) -> float:
        """The largest rise between two neighbouring levels, twenty of them over the whole."""
        step = max(1, len(self.medians) // 20)
        levels = [median(self.medians[i : i + step]) for i in range(0, len(self.medians) - step + 1, step)]
        return max((b - a for a, b in pairwise(levels)), default=0.0)


def median(values: list[float]) -> float:
    ranked = sorted(values)
    middle = len(ranked) // 2
    return ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2
