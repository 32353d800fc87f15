"""What the archive knows about a run, as plain records."""

import os
from typing import NamedTuple

Label = str | int | float | bool

RUN, END, CODE, DIFF = "run.json", "end.json", "code.json", "git.diff"
OUTPUT, CLUES, REPORT, PAGE = "output.jsonl", "clues.jsonl", "report.json", "report.html"
OBSERVED = "observed.json"
PARQUET, METRICS = "metrics.parquet", "metrics.jsonl"
STATES = ("running", "interrupted", "finished")


class Run(NamedTuple):
    """The handle of a run: enough to write to it from any process."""

    id: str
    folder: str

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)


def at(folder: str) -> Run:
    """The handle of the run in a folder, for a process that was told only the folder."""
    folder = os.path.abspath(folder)
    return Run(os.path.basename(folder), folder)


def home_of(run: Run) -> str:
    """The `.clew` folder that a run lies in."""
    return os.path.dirname(os.path.dirname(run.folder))


def epoch(moment: str) -> float:
    """A recorded moment in seconds since 1970; 0 when it cannot be read."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(moment.removesuffix("Z") + "+00:00").timestamp()
    except ValueError:
        return 0.0


class Git(NamedTuple):
    """The state of the working tree; `why` says why there is none. `cut`: the diff was longer than is kept."""

    commit: str = ""
    branch: str = ""
    dirty: bool = False
    cut: bool = False
    why: str = ""


class End(NamedTuple):
    """How a run ended: its exit status, or the name of the signal that ended it."""

    exit: int | None
    signal: str
    seconds: float
    steps: int
    verdict: str
    ended: str

    @property
    def says(self) -> str:
        if self.signal:
            return self.signal
        return "" if self.exit is None else f"exit {self.exit}"


class Record(NamedTuple):
    """Everything that `run.json` and `end.json` say, and what is known about its state now."""

    run: Run
    command: tuple[str, ...]
    cwd: str
    script: str
    started: str
    python: str
    executable: str
    platform: str
    cpus: int
    gpus: tuple[str, ...]
    packages: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    git: Git
    labels: tuple[tuple[str, Label], ...]
    rerun_of: str
    state: str
    end: End | None
    remarks: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        return self.end.verdict if self.end else ""


class Listing(NamedTuple):
    """The runs that could be read, oldest first, and a sentence for each that could not."""

    records: tuple[Record, ...]
    remarks: tuple[str, ...]


class SourceFile(NamedTuple):
    """One file of the user's code. `path` is relative when the file lies below the run's folder, else absolute.

    `changed`: it held something else when a later process of the same run looked; the first content is the one kept.
    """

    path: str
    digest: str
    size: int
    changed: bool = False
