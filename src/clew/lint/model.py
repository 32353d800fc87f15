"""What a rule says about a place."""

from typing import NamedTuple

CONFIDENCES = ("certain", "likely", "look")


class Edit(NamedTuple):
    """Replace what stands between two places (lines from 1, columns from 0) with `text`."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


class Fix(NamedTuple):
    """A change that fixes the finding. A safe one keeps everything the author can have meant."""

    says: str
    safe: bool
    edits: tuple[Edit, ...]


class Related(NamedTuple):
    """Another place that the finding rests on."""

    path: str
    line: int
    says: str


class Finding(NamedTuple):
    """One fault at one place. `cell` is the notebook cell the lines count in, from 1; 0 in a plain file."""

    rule: str
    name: str
    cause: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    message: str
    confidence: str
    fix: Fix | None = None
    related: tuple[Related, ...] = ()
    cell: int = 0


class Trouble(NamedTuple):
    """A file that could not be looked at, and why; `partly` where only some rules could not."""

    path: str
    why: str
    partly: bool = False

    def __str__(self) -> str:
        return (
            f"{self.path} was checked in part: {self.why}"
            if self.partly
            else f"{self.path} could not be checked: {self.why}"
        )
