"""The programs and the faults, as their tables have them.

A program is a folder under `programs/` and a row of `programs.toml`. A fault is a row of `faults/PROGRAM.toml`: a text
of one source or settings file that becomes another text, or a change of the generated data files (`spoil.py`).
"""

import hashlib
import os
import tomllib
from typing import Any, NamedTuple

from clew.errors import ClewError, did_you_mean

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "programs")
FAULTS = os.path.join(HERE, "faults")
HEALTHY = "none.healthy"
SETTINGS = (".toml", ".yaml", ".json", "config.py", "config_recipes.py")
"""How the names of settings files end."""
KEYS = {"id", "cause", "also", "file", "find", "replace", "near", "spoil", "with", "hurts", "unseen", "rows", "columns"}


class Program(NamedTuple):
    """A program that learns. Its last line is `final METRIC=VALUE`, inside the bounds for any seed."""

    name: str
    command: tuple[str, ...]
    metric: str
    at_least: float | None
    at_most: float | None
    domain: str
    seconds: float


class Fault(NamedTuple):
    """One change that makes a program faulty.

    `also`: causes that say the same thing of this change. `near`: texts of further lines that are a right place.
    `hurts`: false where the program's figure need not change; `unseen` then says where the effect is.
    `spoil` names a function of `spoil.py`, `arguments` are its own, `rows` and `columns` say what it touches of `file`.
    """

    id: str
    program: str
    cause: str
    also: tuple[str, ...] = ()
    file: str = ""
    find: str = ""
    replace: str = ""
    near: tuple[str, ...] = ()
    spoil: str = ""
    arguments: tuple[tuple[str, Any], ...] = ()
    rows: str = ""
    columns: str = ""
    hurts: bool = True
    unseen: str = ""

    @property
    def place(self) -> str:
        """Where it sits: script, package, config or data."""
        if self.spoil:
            return "data"
        if self.file.endswith(SETTINGS):
            return "config"
        return "script" if self.file == "train.py" else "package"

    @property
    def family(self) -> str:
        return self.cause.split(".")[0]

    @property
    def right(self) -> tuple[str, ...]:
        """The causes that count as the true one."""
        return (self.cause, *self.also)


def programs() -> dict[str, Program]:
    with open(os.path.join(PROGRAMS, "programs.toml"), "rb") as file:
        rows = tomllib.load(file)["program"]
    return {
        name: Program(
            name,
            tuple(row["command"]),
            row["metric"],
            row.get("at_least"),
            row.get("at_most"),
            row["domain"],
            row["seconds"],
        )
        for name, row in rows.items()
    }


def faults() -> list[Fault]:
    """Every fault of the tables, by program, in the order in which they stand there."""
    found: list[Fault] = []
    for name in sorted(os.listdir(FAULTS)):
        if name.endswith(".toml"):
            with open(os.path.join(FAULTS, name), "rb") as file:
                rows = tomllib.load(file)["fault"]
            found += (row_of(name.removesuffix(".toml"), row) for row in rows)
    return found


def row_of(program: str, row: dict[str, Any]) -> Fault:
    if unknown := row.keys() - KEYS:
        raise ClewError(f"fault {row.get('id')!r} of {program} has an unknown field {sorted(unknown)[0]!r}.")
    return Fault(
        id=f"{program}.{row['id']}",
        program=program,
        cause=row["cause"],
        also=tuple(row.get("also", ())),
        file=row["file"],
        find=row.get("find", ""),
        replace=row.get("replace", ""),
        near=tuple(row.get("near", ())),
        spoil=row.get("spoil", ""),
        arguments=tuple((key, frozen(value)) for key, value in sorted(row.get("with", {}).items())),
        rows=row.get("rows", ""),
        columns=row.get("columns", ""),
        hurts=row.get("hurts", True),
        unseen=row.get("unseen", ""),
    )


def frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def healthy(program: str) -> Fault:
    """The program as it is, as a fault that changes nothing."""
    return Fault(f"{program}.healthy", program, HEALTHY)


def chosen(everything: list[Fault], only: list[str]) -> list[Fault]:
    """Those whose id, program, cause, family or place was named; all of them when nothing was."""
    if not only:
        return everything
    names = {name for item in everything for name in names_of(item)}
    for word in only:
        if word not in names:
            raise ClewError(
                f"no fault, program or cause of the casebook is called {word!r}{did_you_mean(word, sorted(names))}"
            )
    return [item for item in everything if not {*only}.isdisjoint(names_of(item))]


def names_of(item: Fault) -> set[str]:
    return {item.id, item.program, item.cause, item.family, item.place if item.cause != HEALTHY else "healthy"}


def sample(everything: list[Fault], count: int) -> list[Fault]:
    """The same `count` every time, spread over the causes."""
    by_cause: dict[str, list[Fault]] = {}
    for item in sorted(everything, key=lambda item: hashlib.sha256(item.id.encode()).digest()):
        by_cause.setdefault(item.cause, []).append(item)
    turns = sorted(
        ((turn, index, item) for index, group in enumerate(by_cause.values()) for turn, item in enumerate(group)),
        key=lambda entry: entry[:2],
    )
    return [item for _, _, item in turns[:count]]
