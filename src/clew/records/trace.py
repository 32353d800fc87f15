"""The bulk data of a run, as every reader of it sees it.

`observe`, the importers of other people's logs and the framework callbacks all fill a trace; checks read it through
this interface and never ask where it came from. A trace is never a clue: it is what clues are read from.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, runtime_checkable

from clew.records import exact
from clew.records.clue import Value
from clew.records.place import Place

RIGHT, ASKED = "answers right", "answers asked for"
"""What is counted in evaluation, beside the script's own counting."""


class Event(NamedTuple):
    """Something that happened once: a call of backward, step, zero_grad, eval …, with its place and its details."""

    step: int
    kind: str
    place: Place | None = None
    detail: tuple[tuple[str, Value], ...] = ()


class Series(NamedTuple):
    """One quantity by step. `of` names the module or parameter it belongs to, "" for the run as a whole."""

    name: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    of: str = ""
    unit: str = ""

    @property
    def digest(self) -> str:
        return exact.digest(list(self))


@runtime_checkable
class Trace(Protocol):
    """What can be asked of the record of a run."""

    @property
    def run(self) -> str: ...

    def names(self) -> tuple[str, ...]:
        """The quantities recorded for the run or for any part of it."""
        ...

    def parts(self, name: str) -> tuple[str, ...]:
        """The modules or parameters for which `name` was recorded, "" among them when the run as a whole has it."""
        ...

    def series(self, name: str, of: str = "") -> Series | None:
        """None when nothing was recorded: "did not look" is not "looked and saw nothing"."""
        ...

    def events(self, kind: str = "") -> Iterator[Event]:
        """In the order they happened; all of them, or those of one kind."""
        ...


class HeldTrace:
    """A trace held in memory: for small imports and for trying a check by hand."""

    def __init__(self, run: str, series: Iterable[Series] = (), events: Iterable[Event] = ()) -> None:
        self._run = run
        self._series = {(item.name, item.of): item for item in series}
        self._events = tuple(events)

    @property
    def run(self) -> str:
        return self._run

    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name, _ in self._series))

    def parts(self, name: str) -> tuple[str, ...]:
        return tuple(of for found, of in self._series if found == name)

    def series(self, name: str, of: str = "") -> Series | None:
        return self._series.get((name, of))

    def events(self, kind: str = "") -> Iterator[Event]:
        return (event for event in self._events if not kind or event.kind == kind)
