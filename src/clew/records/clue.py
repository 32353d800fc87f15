"""One observation, nothing inferred.

A clue names no cause and holds no clock and no host: two people who see the same thing record the same clue, and it has
the same digest. Who saw it and when belongs to the envelope of the log that keeps it.
"""

from typing import Any, NamedTuple

from clew.records import exact
from clew.records.place import Place

SOURCES = ("observe", "exam", "lint", "log", "sweep", "probe", "person")
UNCLEAR = "unclear"

Value = float | int | bool | str | None


class Unclear(NamedTuple):
    """A check ran and cannot say: the reason is part of the record."""

    why: str


class Reading:
    """What a check measured, by name: `Reading(final_over_initial=0.02, steps=200)`. NaN is a reading."""

    __slots__ = ("measured", "where")
    measured: tuple[tuple[str, Value], ...]
    where: tuple[Place, ...]

    def __init__(self, **measured: Value) -> None:
        object.__setattr__(self, "measured", tuple(sorted(measured.items())))
        object.__setattr__(self, "where", ())

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a reading is not changed once taken (tried to set {name})")

    def at(self, *places: Place) -> "Reading":
        """The same reading, with the places it was taken at."""
        new = Reading(**dict(self.measured))
        object.__setattr__(new, "where", places)
        return new

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reading) and exact.dumps(self._key()) == exact.dumps(other._key())

    def __hash__(self) -> int:
        return hash(exact.dumps(self._key()))

    def _key(self) -> list[Any]:
        return [dict(self.measured), [place.to_json() for place in self.where]]

    def __repr__(self) -> str:
        return f"Reading({', '.join(f'{name}={value!r}' for name, value in self.measured)})"


class Saw:
    """An outcome that was seen as such, for tests without a scale: `Saw("eval", forwards=12).at(place)`."""

    __slots__ = ("measured", "outcome", "says", "where")

    def __init__(self, outcome: str, /, **measured: Value) -> None:
        self.outcome = outcome
        self.measured = tuple(sorted(measured.items()))
        self.where: tuple[Place, ...] = ()
        self.says = ""

    def at(self, *places: Place | None) -> "Saw":
        """Where it was seen; None is left out."""
        self.where = tuple(dict.fromkeys(place for place in places if place is not None))
        return self

    def saying(self, text: str) -> "Saw":
        """One plain sentence with the figures, when the outcome's own words would say too little."""
        self.says = text
        return self


Answer = Reading | Saw | Unclear
"""What an instrument says: figures that a table turns into an outcome, an outcome, or why neither."""


class Clue(NamedTuple):
    """What one test saw. `outcome` is one of the test's outcomes, or "unclear" with the reason in `why`."""

    test: str
    outcome: str
    measured: tuple[tuple[str, Value], ...] = ()
    where: tuple[Place, ...] = ()
    under: tuple[tuple[str, str], ...] = ()
    reads: tuple[str, ...] = ()
    source: str = "person"
    says: str = ""
    reproduce: str = ""
    why: str = ""
    version: int = 1
    fix: str = ""  # what lint's rule would have changed

    def to_json(self) -> dict[str, Any]:
        """As CONTRACT has it, plus what the record needs to be whole."""
        table: dict[str, Any] = {
            "test": self.test,
            "outcome": self.outcome,
            "measured": dict(self.measured),
            "where": [place.to_json() for place in self.where],
            "source": self.source,
            "says": self.says,
            "reproduce": self.reproduce,
            "version": self.version,
            "reads": list(self.reads),
        }
        if self.under:
            table["under"] = dict(self.under)
        if self.why:
            table["why"] = self.why
        if self.fix:
            table["fix"] = self.fix
        return table

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> "Clue":
        return cls(
            test=table["test"],
            outcome=table["outcome"],
            measured=tuple(sorted(table.get("measured", {}).items())),
            where=tuple(Place.from_json(place) for place in table.get("where", [])),
            under=tuple(sorted(table.get("under", {}).items())),
            reads=tuple(table.get("reads", [])),
            source=table.get("source", "person"),
            says=table.get("says", ""),
            reproduce=table.get("reproduce", ""),
            why=table.get("why", ""),
            version=table.get("version", 1),
            fix=table.get("fix", ""),
        )

    @property
    def digest(self) -> str:
        return exact.digest(self.to_json())
