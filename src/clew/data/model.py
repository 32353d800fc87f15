"""Data files as tables of named columns, and what a check says about them."""

from __future__ import annotations

from typing import Any, NamedTuple

from clew.records.clue import Answer
from clew.records.place import Place

Array = Any
"""A numpy array. Numpy's own generic types say little here, where every column has another type."""
TRAIN, HELD = "train", "held"


class Column(NamedTuple):
    """`kind`: number, category, text, list (of words), array (numbers with further axes), time, key (says nothing but
    which row it is) or stream (encoded text without rows). `values` of numbers, times and arrays are numbers, NaN where
    a cell is empty; all else are Python values."""

    file: str
    name: str
    kind: str
    values: Array
    empty: int = 0

    @property
    def title(self) -> str:
        return f"column {self.name}" if self.name else "the array"


class Table(NamedTuple):
    """What was read of one file. `line` is the line on which row 0 stands, 0 where a file has no lines of text.
    `whole`: nothing was left out; `total`: the rows that the file has, where more of it is known than was read."""

    file: str
    rows: int
    columns: tuple[Column, ...]
    line: int = 0
    whole: bool = True
    total: int = 0


class Part(NamedTuple):
    """Files whose rows belong together, joined by row. `role` is "train", "held" or "" as far as names tell."""

    role: str
    rows: int
    columns: tuple[Column, ...]
    lines: tuple[tuple[str, int], ...]

    def column(self, name: str) -> Column | None:
        return next((held for held in self.columns if held.name == name), None)

    @property
    def file(self) -> str:
        return self.columns[0].file


class Family(NamedTuple):
    """Parts that hold the same columns: shards of one set, or its training and validation files."""

    parts: tuple[Part, ...]
    target: str = ""
    sure: bool = False
    """Whether a name or the source says that this is the target, and not only its position."""
    used: frozenset[str] = frozenset()
    """Columns that the source names, other than the target; `unused` are the rest where it names its inputs."""
    unused: frozenset[str] = frozenset()

    def named(self, role: str) -> list[Part]:
        return [part for part in self.parts if part.role == role]

    @property
    def training(self) -> list[Part]:
        return [part for part in self.parts if part.role != HELD]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


class Look(NamedTuple):
    """Everything that the checks read."""

    families: tuple[Family, ...]
    notes: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    """All that was read, tables or not, as path and shown name."""


class Found(NamedTuple):
    """An answer with how strongly it speaks: of several of one test the strongest is told."""

    answer: Answer
    weight: float


def place(part: Part, column: Column, first: int | None = None, last: int | None = None) -> Place:
    """The rows from `first` up to and with `last` of a column; the whole column without them."""
    line = dict(part.lines).get(column.file, 0)
    rows = None if first is None else f"{first}-{first if last is None else last}"
    return Place(
        file=column.file,
        line=line + first if line and first is not None else None,
        end_line=line + last if line and first is not None and last is not None else None,
        rows=rows,
        column=column.name or None,
    )


def spoken(part: Part, column: Column, first: int, last: int) -> str:
    """Rows as people find them: with the lines of the file where it has lines."""
    line = dict(part.lines).get(column.file, 0)
    lines = f" (lines {first + line} to {last + line})" if line else ""
    return f"rows {first} to {last}{lines} of {column.file}"


def sentence(text: str) -> str:
    """With a capital in front and all else as it is: names of columns keep theirs."""
    return text[:1].upper() + text[1:]


def counted(rows: int) -> str:
    return f"{rows} row{'s' * (rows != 1)}"
