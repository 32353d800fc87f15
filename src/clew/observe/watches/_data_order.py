"""Whether labels come in order: the runs test for several kinds, and likeness of successive batches."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise


def runs_z(labels: Sequence[int]) -> float:
    """Agreeing neighbours against random orders of the same labels (the runs test for several kinds)."""
    n = len(labels)
    counts = Counter(labels).values()
    squares, cubes = sum(c**2 for c in counts), sum(c**3 for c in counts)
    agree = sum(a == b for a, b in pairwise(labels))
    expected = (squares - n) / n
    variance = (squares * (squares + n * (n + 1)) - 2 * n * cubes - n**3) / (n**2 * (n - 1))
    return float((agree - expected) / variance**0.5) if variance > 0 else 0.0


def across(batches: Sequence[tuple[int, ...]]) -> bool:
    """Whether successive batches resemble each other at least half as much as each resembles itself."""
    shares = [{label: count / len(batch) for label, count in Counter(batch).items()} for batch in batches]
    whole = Counter(label for batch in batches for label in batch)
    total = sum(whole.values())
    chance = sum((count / total) ** 2 for count in whole.values())
    within = sum(sum(share**2 for share in batch.values()) for batch in shares) / len(shares)
    pairs = list(pairwise(shares))
    between = sum(sum(share * b.get(label, 0.0) for label, share in a.items()) for a, b in pairs) / len(pairs)
    return between - chance > 0.5 * (within - chance)
