"""A case: what somebody saw, thought and did about one problem, in order.

The case is what its log says. Credences are never part of it: they are worked out anew from the clues each time.
"""

from typing import Any, NamedTuple

from clew.records.clue import Clue

KINDS = ("opened", "clue", "note", "hypothesis", "retract", "preflight", "closed", "reopened", "set_aside")
PARTS = ("working on", "thinking", "running", "result")


class Entry(NamedTuple):
    """One line of the log in its envelope. `number` counts from 1 and never changes."""

    number: int
    at: str
    by: str
    kind: str
    data: dict[str, Any]


class HeldClue(NamedTuple):
    """A clue with its place in the case: who entered it when, on which code, and whether it still counts."""

    number: int
    clue: Clue
    at: str
    by: str
    code: str = ""
    retracted: str = ""


class Own(NamedTuple):
    """A hypothesis that a person added: with a prior, what it expects, and what would refute it."""

    number: int
    id: str
    says: str
    prior: float
    expects: tuple[tuple[str, str], ...]
    check: str
    retracted: str = ""


class Worry(NamedTuple):
    """Something a person thought could go wrong before the run, and the check that would show it."""

    cause: str
    says: str
    check: str


class Preflight(NamedTuple):
    number: int
    at: str
    surprise: str
    worries: tuple[Worry, ...]
    script: str = ""


class Note(NamedTuple):
    """One line of the work log. `about` is the question a run answers, or the kind of run a result belongs to."""

    number: int
    at: str
    by: str
    part: str
    text: str
    about: str = ""


class Closing(NamedTuple):
    number: int
    at: str
    cause: str
    evidence: str
    clue: int | None
    unverified: str


class Case(NamedTuple):
    id: str
    folder: str
    symptom: str
    domain: str
    setting: str
    script: str
    code: str
    opened_at: str
    entries: tuple[Entry, ...]
    clues: tuple[HeldClue, ...]
    notes: tuple[Note, ...]
    own: tuple[Own, ...]
    preflights: tuple[Preflight, ...]
    closing: Closing | None
    remarks: tuple[str, ...] = ()
