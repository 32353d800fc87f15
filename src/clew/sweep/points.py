"""What a collector brings back: runs with their settings, and every point of every metric exactly."""

from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple


class Series(NamedTuple):
    """The readings of one metric, in the order in which they were logged."""

    steps: "array[int]"
    values: "array[float]"


class Points:
    """Readings by metric, sixteen bytes each. NaN and the infinities are readings."""

    def __init__(self, readings: Iterable[tuple[str, int, float]] = ()) -> None:
        self.series: dict[str, Series] = {}
        for reading in readings:
            self.add(*reading)

    def __len__(self) -> int:
        return sum(len(held.steps) for held in self.series.values())

    def of(self, name: str) -> Series:
        held = self.series.get(name)
        if held is None:
            held = self.series[name] = Series(array("q"), array("d"))
        return held

    def add(self, name: str, step: int, value: float) -> None:
        held = self.of(name)
        held.steps.append(step)
        held.values.append(value)

    def last(self) -> dict[str, float]:
        """The reading at the largest step; of several at one step the latest."""
        found = {}
        for name, held in self.series.items():
            best = max(range(len(held.steps)), key=lambda index: (held.steps[index], index))
            found[name] = held.values[best]
        return found


class Found(NamedTuple):
    """A run of some tracker. `updated` is when its source last changed, in seconds since 1970.

    `summary` has results that were stated once and not logged step by step. The run's output is the file `log` or the
    bytes `output`. `more`: these are points only, and the run itself comes later.
    """

    id: str
    source: str
    group: str
    state: str
    created: str
    updated: float
    config: dict[str, Any]
    points: Points
    summary: dict[str, Any] | None = None
    tags: dict[str, Any] | None = None
    log: str = ""
    output: bytes = b""
    more: bool = False


class Look(NamedTuple):
    """What need not be read again: runs that had ended and have not changed since. `known` are ids and sources."""

    since: float = 0.0
    known: frozenset[str] = frozenset()

    def settled(self, updated: float, name: str) -> bool:
        return updated < self.since and name in self.known


def row(found: Found) -> dict[str, Any]:
    """A run as one row: the last reading of every metric under its own name."""
    made: dict[str, Any] = {
        "run_id": found.id,
        "source": found.source,
        "group": found.group,
        "state": found.state,
        "created": found.created,
        "updated_at": found.updated,
        **{f"config.{name}": value for name, value in found.config.items()},
        **{f"tag.{name}": value for name, value in (found.tags or {}).items()},
    }
    for held in (found.points.last(), found.summary or {}):
        for name, value in held.items():
            made.setdefault(name, value)
    return made
