"""What a reader of curves answers."""

from clew.records.clue import Reading, Unclear, Value


class Seen:
    """An outcome read off a curve as such, for tests without a scale: `Seen("steadily", rise_over_start=0.8)`."""

    __slots__ = ("measured", "outcome")

    def __init__(self, outcome: str, /, **measured: Value) -> None:
        self.outcome = outcome
        self.measured = tuple(sorted(measured.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seen) and (self.outcome, self.measured) == (other.outcome, other.measured)

    def __hash__(self) -> int:
        return hash((self.outcome, self.measured))

    def __repr__(self) -> str:
        return f"Seen({self.outcome!r}, {', '.join(f'{name}={value!r}' for name, value in self.measured)})"


Answer = Reading | Seen | Unclear
