"""Where something was seen."""

from typing import Any, NamedTuple


class Place(NamedTuple):
    """A place in the source, in the model, in the run, in a sweep, or in a data file; what does not apply is None.

    `rows` counts from 0, as "400-2299", and leaves out a head line; `line` is where they stand in the file.
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
        return ", ".join(parts)
