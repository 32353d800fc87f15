"""What only the ranks of a distributed run show together: whether they read the same examples, and whether their
parameters have parted. Joins what each rank wrote into its trace.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from clew.observe.watch import Answer
from clew.observe.watches._data_share import shared
from clew.records.clue import Reading, Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.records.trace import Series

FEWEST = 16
ROW = "row digest"
EPOCH = "rows per epoch"
TRAINED = "loader trained"
PARAMETER = "fingerprint"
GRADIENT = "fingerprint of gradient"
REPLICATED = "fingerprint replicated"
TALK = "fingerprint talk"
PLACE = "fingerprint place"
EXCHANGED = "fingerprint exchanged"

Traces = Sequence[Mapping[tuple[str, str], "Series"]]


def joined(ranks: Traces) -> Answer:
    """Do they read the same examples? From the traces of all ranks, each as series by name and loader."""
    if len(ranks) < 2:
        return Unclear("one process: there are no ranks to compare")
    sets = [_trained_rows(rank) for rank in ranks]
    if any(sum(rows.values()) < FEWEST for rows, _ in sets):
        return Unclear("too few training rows of each rank went through a loader")
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


def drifted(ranks: Traces) -> Answer:
    """Have the parameters of replicas parted? Ranks that hold parts of one model differ rightly, so a difference counts
    only where something shows that they are meant to be alike."""
    optimizers = sorted({of.split(" ", 1)[0] for rank in ranks for name, of in rank if name == PARAMETER})
    answers = [_optimizer_drifted(ranks, number) for number in optimizers]
    readings = [answer for answer in answers if isinstance(answer, Reading)]
    if not readings:
        return answers[0] if answers else Unclear("not all ranks reported parameters")
    return max(readings, key=lambda held: float(dict(held.measured)["largest_relative_difference"] or 0.0))


def _optimizer_drifted(ranks: Traces, number: str) -> Answer:
    held = [
        {of: series for (name, of), series in rank.items() if name == PARAMETER and of.split(" ", 1)[0] == number}
        for rank in ranks
    ]
    if len({frozenset(parts) for parts in held}) > 1:
        return Unclear("the ranks hold parameters of different names or shapes: they are not replicas")
    worst, first = _apart([[parts[of] for parts in held] for of in held[0]])
    if worst is None:
        return Unclear("no step was sampled on all ranks")
    if worst == 0.0 or first is None:
        return Reading(largest_relative_difference=worst, ranks=len(ranks))
    alike, why = _meant_alike(ranks, number, list(held[0]))
    if not alike:
        return Unclear("the parameters differ between ranks; whether they should be equal is not known")
    said = [*(of for name, of in ranks[0] if name == EXCHANGED), *(of for name, of in ranks[0] if name == PLACE)]
    files = [of.split(" ", 1)[1] for of in said if of.split(" ", 1)[0] == number]
    reading = Reading(largest_relative_difference=worst, ranks=len(ranks), first_seen_after_step=first + 1, because=why)
    return reading.at(*(Place.parse(file) for file in files[:3]))


def _meant_alike(ranks: Traces, number: str, parts: list[str]) -> tuple[bool, str]:
    if all(min(rank[REPLICATED, number].values) > 0 for rank in ranks):
        return True, "DistributedDataParallel holds them"
    gradients = [
        [rank[GRADIENT, of] for rank in ranks] for of in parts if all((GRADIENT, of) in rank for rank in ranks)
    ]
    moved = any(value not in (0.0,) and not math.isnan(value) for held in gradients for value in held[0].values)
    if moved and _apart(gradients)[0] == 0.0:
        return True, "their gradients are averaged"
    if all(any(name == EXCHANGED and of.split(" ", 1)[0] == number for name, of in rank) for rank in ranks):
        return True, "the script exchanges their gradients and does not step with the result"
    talks = [rank[TALK, ""].values for rank in ranks if (TALK, "") in rank]
    silent = all(len(talk) > 1 and talk[0] == talk[-1] for talk in talks)  # NaN equals nothing
    if silent and len(talks) == len(ranks) and all(("loss", "") in rank for rank in ranks):
        return True, "the ranks never exchanged gradients"
    return False, ""


def _apart(parts: Sequence[Sequence[Series]]) -> tuple[float | None, int | None]:
    """The largest relative difference of one sum between ranks, at steps that all of them looked at, and the first step
    with any."""
    worst: float | None = None
    first: int | None = None
    for held in parts:
        by_rank = [dict(zip(series.steps, series.values, strict=True)) for series in held]
        for step in sorted(set.intersection(*map(set, by_rank))):
            values = [one[step] for one in by_rank]
            if all(math.isnan(value) for value in values):
                continue
            apart = _relative(values)
            worst = apart if worst is None else max(worst, apart)
            if apart > 0.0 and (first is None or step < first):
                first = step
    return worst, first


def _relative(values: Sequence[float]) -> float:
    """Inf where one is not a number and another is: these have parted for good."""
    if not all(math.isfinite(value) for value in values):
        return 0.0 if len({repr(value) for value in values}) == 1 else math.inf
    scale = max(map(abs, values))
    return (max(values) - min(values)) / scale if scale else 0.0
