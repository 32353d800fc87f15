"""What was done to the data on its way to tensors: fits, transforms, splits, resamplings, with digests of the rows.

One per process. It is written by `provenance` and read by watches. Everything in it is small: digests, counts, places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from clew.observe.coded import Coded
    from clew.observe.encoded import Encoded
    from clew.observe.rows import Digests, Sampled
    from clew.records.place import Place

CALLS = 256
SPLITS = 64
FRAMES = 32
CASTS = 16
LOOKS = 1000
HALF = 0.5


class Call(NamedTuple):
    """One call that learned from rows or changed them. `came` and `went` are the same rows, before and after."""

    number: int
    kind: str  # "fit" | "transform" | "fit_transform" | "resample"
    what: str  # the class or function
    learns: bool  # whether it takes more than a list of categories from the rows
    fit: int  # the number of the call that fitted it, its own for a fit; -1 when unknown
    place: Place | None
    came: Sampled | None
    went: Sampled | None
    columns: tuple[str, ...] = ()  # names of the columns that came, where they have names


class Split(NamedTuple):
    """One call of train_test_split or random_split."""

    number: int
    what: str
    shuffled: bool
    place: Place | None
    training: Sampled | None
    held_out: Sampled | None
    by_columns: dict[tuple[str, ...], tuple[Sampled, Sampled]]  # the same two, over these columns only
    in_time: str  # how the rows are known to be ordered in time, "" when they are not
    readable: bool  # whether there were rows to judge that by, and not only their numbers


class Frame(NamedTuple):
    """A table that was read from a file, and the columns of it that have gaps or infinite values."""

    file: str
    rows: int
    gaps: tuple[tuple[str, int], ...]
    place: Place | None
    infinite: tuple[tuple[str, int], ...] = ()


class Cast(NamedTuple):
    """A cast to an integer type that does not hold some of the values, so that they come out as others."""

    what: str  # the type, and the columns where they have names
    changed: int
    of: int
    place: Place | None


class Ledger:
    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.calls: list[Call] = []
        self.splits: list[Split] = []
        self.frames: list[Frame] = []
        self.casts: list[Cast] = []
        self.encoded: list[Encoded] = []
        self.coded: list[Coded] = []
        self.counted = 0
        self.looks = 0
        self.trouble = ""  # what first went wrong in taking notes; said where a note is missing

    def failed(self, error: BaseException) -> None:
        self.trouble = self.trouble or f"what was done to tables could not be noted: {type(error).__name__}: {error}"

    def may_look(self) -> bool:
        """A script that calls these functions in a loop is not slowed down for ever."""
        self.looks += 1
        return self.looks <= LOOKS

    def next_number(self) -> int:
        self.counted += 1
        return self.counted

    def add(self, call: Call) -> None:
        if len(self.calls) < CALLS:
            self.calls.append(call)

    def named_columns(self) -> list[tuple[str, ...]]:
        """The column lists that fits and transforms were given, newest first."""
        return list(dict.fromkeys(call.columns for call in reversed(self.calls) if call.columns))[:8]

    def gaps(self) -> str:
        """Which columns of which file had missing values, in words."""
        found = [
            f"{frame.file}: " + ", ".join(f"{name} ({count} of {frame.rows})" for name, count in frame.gaps[:6])
            for frame in self.frames
            if frame.gaps
        ]
        return "; ".join(found[:3])

    def scaled(self, rows: Digests) -> bool:
        """Whether most of these rows came out of a scaler."""
        made = [call.went for call in self.calls if call.went and call.what.endswith("Scaler")]
        return bool(len(rows)) and any(went.share_of(rows[:2048]) > 0.5 for went in made)


class Trail(NamedTuple):
    """Rows followed back through the calls that made them."""

    call: Call
    rows: Digests  # as they were when they came to this call


def trail(ledger: Ledger, rows: Digests, before: float) -> list[Trail]:
    """The calls that made these rows, last one first. A call that left a row as it was did not make it."""
    found = []
    for call in sorted(ledger.calls, key=lambda held: -held.number):
        came, went = call.came, call.went
        if call.number >= before or came is None or went is None or len(came.digests) != len(went.digests):
            continue
        changed = came.digests != went.digests
        made = went._replace(digests=went.digests[changed])
        if made.share_of(rows) >= HALF:
            rows = came.digests[changed & np.isin(went.digests, rows)]
            found.append(Trail(call, rows))
    return found


LEDGER = Ledger()
