"""Whether distributed ranks read the same examples: joins what each rank's trace says about the rows it trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from clew.observe.watch import Answer
from clew.observe.watches._data_share import shared
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.records.trace import Series

FEWEST = 16
ROW = "row digest"
EPOCH = "rows per epoch"
TRAINED = "loader trained"


def joined(ranks: Sequence[Mapping[tuple[str, str], Series]]) -> Answer:
    """The answer over the traces of all ranks, each as series by name and loader."""
    if len(ranks) < 2:
        return Unclear("one process: there are no ranks to compare")
    sets = [_trained_rows(rank) for rank in ranks]
    if any(sum(rows.values()) < FEWEST for rows, _ in sets):
        return Unclear("too few training rows of each rank were seen through a loader")
    worst = Reading(shared_share=0.0, rows=sum(sum(rows.values()) for rows, _ in sets), ranks=len(ranks))
    most = 0.0
    for (first, (rows, _)), (second, (others, epoch)) in combinations(enumerate(sets), 2):
        total = sum(others.values())
        twins = sum(count for count in others.values() if count > 1) / total
        found = shared(rows, others, twins, min(1.0, total / epoch) if epoch else 1.0)
        if found.share > most:
            most = found.share
            pair = f"{first} and {second}"
            worst = Reading(shared_share=most, rows=found.rows, twins_seen=found.twins, ranks=len(ranks), pair=pair)
    return worst


def _trained_rows(rank: Mapping[tuple[str, str], Series]) -> tuple[Counter[int], float]:
    """Digests of the rows a rank trained on, and how many rows its epoch has, 0 when that is unknown."""
    rows: Counter[int] = Counter()
    epoch = 0.0
    for (name, loader), series in rank.items():
        if name == ROW and (TRAINED, loader) in rank:
            rows.update(int(value) for value in series.values)
            epoch += max(rank[EPOCH, loader].values, default=0.0) if (EPOCH, loader) in rank else 0.0
    return rows, epoch
