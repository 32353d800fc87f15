"""Where something was seen."""

import os
from collections.abc import Iterable
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A place in the source, in the model, in the run, in a sweep, or in a data file; what does not apply is None.

    `rows` counts from 0, as "400-2299", and leaves out a head line; `line` is where they stand in the file. `role` says
    in words what the place is, such as "made here".
    """

    file: str | None = None
    line: int | None = None
    end_line: int | None = None
    symbol: str | None = None
    module: str | None = None
    parameter: str | None = None
    step: int | None = None
    last_step: int | None = None
    run: str | None = None
    rank: int | None = None
    axis: str | None = None
    rows: str | None = None
    column: str | None = None
    role: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in self._asdict().items() if value is not None}

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> "Place":
        known = {name: table[name] for name in cls._fields if name in table}
        return cls(**known)

    @classmethod
    def parse(cls, text: str) -> "Place":
        """`train.py:41`, `train.py`, or `module:encoder.layer.3`."""
        head, _, tail = text.rpartition(":")
        if head in ("module", "parameter", "run", "axis", "symbol"):
            return cls(**{head: tail})  # type: ignore[arg-type]  # the five names above all hold text
        if head and tail.isdigit():
            return cls(file=head, line=int(tail))
        return cls(file=text)

    def __str__(self) -> str:
        parts = []
        if self.file is not None:
            place = f"{self.file}:{self.line}" if self.line is not None else self.file
            parts.append(f"{place} in {self.symbol}" if self.symbol else place)
        elif self.symbol:
            parts.append(self.symbol)
        named = {name: getattr(self, name) for name in ("rows", "column", "module", "parameter", "run", "axis")}
        parts += [f"{name} {value}" for name, value in named.items() if value is not None]
        if self.step is not None:
            parts.append(f"step {self.step}" if self.last_step is None else f"steps {self.step}–{self.last_step}")
        if self.rank is not None:
            parts.append(f"rank {self.rank}")
        if self.role is not None:
            parts.append(self.role)
        return ", ".join(parts)


def near(path: str) -> str:
    """A path as a terminal opens it: relative below the current folder, else whole."""
    full, here = os.path.abspath(path), os.getcwd()
    return os.path.relpath(full) if full.startswith(os.path.join(here, "")) else full


MOST_TOLD = 3
SET_HERE = "is set here"
RESHAPED, ATTENDS, COMPUTED, MOVED, STORED, ENCODED = (
    "reshaped here",
    "attends here",
    "computed here",
    "moved here",
    "stored here",
    "encoded here",
)
DEEDS = (RESHAPED, ATTENDS, COMPUTED, MOVED, STORED, ENCODED)
"""Roles of lines that do what was seen, and not only something like it."""


def told(hints: Iterable[Place], seen: Iterable[Place]) -> tuple[Place, ...]:
    """The places of a cause as a report gives them: few, each line once, the most telling first.

    `hints` are lines that the cause as such points to, `seen` is where its clues were seen. Data files come before
    source, source before names of modules. Hints that hold places seen are in their order already.
    """
    first, second = list(hints), list(seen)
    if first and second and second[0].role and (not first[0].role or second[0].role in DEEDS):
        first, second = second, first  # what was seen and can be said in words goes before what merely reads like it
    mixed = [*first[:1], *second[:1], *first[1:], *second[1:]]
    if set(first).intersection(second):
        mixed = [*hints, *seen]
    mixed.sort(key=_rank)
    lines: dict[tuple[object, ...], Place] = {}
    for place in mixed:
        key = (place.file, place.line, place.rows) if place.line is not None else tuple(place)
        lines.setdefault(key, place)
    return tuple(lines.values())[:MOST_TOLD]


def _rank(place: Place) -> int:
    if place.file is None:
        return 2
    return 1 if place.file.endswith(".py") or str(place.role).endswith(SET_HERE) else 0
