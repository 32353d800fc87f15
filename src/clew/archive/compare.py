"""What changed between two runs: first what went in, then what came out."""

import os
import struct
from typing import NamedTuple

from clew.archive import code, metrics, runs
from clew.archive.model import DIFF, Record, Run, SourceFile
from clew.errors import ClewError
from clew.reading import whole
from clew.records.masked import masked, masked_words

LONGEST = 20_000
"""Lines of a file up to which a line-by-line difference is worked out: the effort grows with their product."""


class Change(NamedTuple):
    """Something that has another value, or is only there in one of the two (the other is then None)."""

    name: str
    before: str | None
    after: str | None


class FileChange(NamedTuple):
    """A source file that differs. `diff` is unified; `note` says why there is none."""

    path: str
    kind: str  # "changed" | "added" | "removed"
    diff: str = ""
    note: str = ""


class MetricChange(NamedTuple):
    """The last value of a series in each run, with its step; None where a run has no such series."""

    name: str
    of: str
    before: float | None
    after: float | None
    step_before: int | None
    step_after: int | None


class Difference(NamedTuple):
    a: Record
    b: Record
    command: tuple[Change, ...]
    code: tuple[FileChange, ...]
    code_same: int
    environment: tuple[Change, ...]
    packages: tuple[Change, ...]
    machine: tuple[Change, ...]
    git: tuple[Change, ...]
    labels: tuple[Change, ...]
    outcome: tuple[Change, ...]
    metrics: tuple[MetricChange, ...]
    metrics_same: int
    remarks: tuple[str, ...]

    @property
    def same_input(self) -> bool:
        """Whether nothing that could explain a different outcome was seen to differ."""
        return not (self.command or self.code or self.environment or self.packages or self.machine or self.git)

    @property
    def same_outcome(self) -> bool:
        return not self.metrics and all(change.name == "seconds" for change in self.outcome)


def diff(a: Run, b: Run) -> Difference:
    """Compare two runs. A part that cannot be read in either is said and left out."""
    one, two = runs.load(a), runs.load(b)
    remarks = [f"{held.run.id}: {text}" for held in (one, two) for text in held.remarks]
    changed, same_files = _code(a, b, (one.script, two.script), remarks)
    values, same_values = _metrics(a, b, remarks)
    return Difference(
        a=one,
        b=two,
        command=_command(one, two),
        code=changed,
        code_same=same_files,
        environment=_pairs(dict(one.environment), dict(two.environment)),
        packages=_pairs(dict(one.packages), dict(two.packages)),
        machine=_pairs(_machine(one), _machine(two)),
        git=_pairs(_git(one), _git(two)),
        labels=_pairs(*({name: str(held) for name, held in record.labels} for record in (one, two))),
        outcome=_pairs(_outcome(one), _outcome(two)),
        metrics=values,
        metrics_same=same_values,
        remarks=tuple(remarks),
    )


def _pairs(before: dict[str, str], after: dict[str, str]) -> tuple[Change, ...]:
    names = sorted({*before, *after})
    return tuple(
        Change(name, masked(name, before.get(name)), masked(name, after.get(name)))
        for name in names
        if before.get(name) != after.get(name)
    )


def _machine(record: Record) -> dict[str, str]:
    gpus = ", ".join(record.gpus)
    return {"python": record.python, "platform": record.platform, "cpus": str(record.cpus), "gpus": gpus or "none"}


def _git(record: Record) -> dict[str, str]:
    held = record.git
    try:
        import hashlib

        changes = f"digest {hashlib.sha256(whole(record.run.path(DIFF))).hexdigest()[:12]}"
    except OSError:
        changes = "none"
    table = {"commit": held.commit, "branch": held.branch, "uncommitted": changes if held.dirty else "none"}
    return {name: value for name, value in table.items() if value}


def _outcome(record: Record) -> dict[str, str]:
    end = record.end
    if end is None:
        return {"state": record.state}
    table = {"state": record.state, "exit": end.says, "verdict": end.verdict, "steps": str(end.steps)}
    return {**{name: value for name, value in table.items() if value}, "seconds": f"{end.seconds:.1f}"}


def _command(one: Record, two: Record) -> tuple[Change, ...]:
    """By option where there are options, so that one changed number is not two long lines."""
    if one.command == two.command:
        return ()
    found = _pairs(options(one.command), options(two.command))
    whole = Change("command", " ".join(masked_words(one.command)), " ".join(masked_words(two.command)))
    return found or (whole,)


def options(command: tuple[str, ...]) -> dict[str, str]:
    """The options of a command line by name. The words before, between and after them stand under "words"."""
    found: dict[str, str] = {}
    words: list[str] = []
    index = 0
    while index < len(command):
        word = command[index]
        index += 1
        if not _is_option(word):
            # Hydra and many home-grown parsers write name=value without dashes.
            name, sign, value = word.partition("=")
            if sign and name.replace(".", "").replace("_", "").isalnum():
                found[name] = value
            else:
                words.append(word)
            continue
        name, sign, value = word.partition("=")
        if not sign:
            taken = []
            while index < len(command) and not _is_option(command[index]) and "=" not in command[index]:
                taken.append(command[index])
                index += 1
            value = " ".join(taken) or "given"
        found[name] = f"{found[name]} {value}" if name in found else value
    return {"words": " ".join(words), **found} if words else found


def _is_option(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and not word[1].isdigit() and word[1] != "."


def _code(a: Run, b: Run, scripts: tuple[str, str], remarks: list[str]) -> tuple[tuple[FileChange, ...], int]:
    try:
        before, after = ({item.path: item for item in code.read(run)} for run in (a, b))
    except ClewError as error:
        remarks.append(f"code was not compared: {error}")
        return (), 0
    if bool(before) != bool(after):
        remarks.append(f"code was not compared: {(b if before else a).id} has no snapshot of its source files")
        return (), 0
    names = _renamed(sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys()), scripts)
    found, same = [], 0
    for path in sorted({*before, *after} - set(names.values())):
        one, two = before.get(path), after.get(names.get(path, path))
        if one is None or two is None:
            found.append(FileChange(path, "removed" if two is None else "added"))
        elif one.digest == two.digest:
            same += 1
        else:
            found.append(_file(a, b, one, two))
    return tuple(found), same


def _renamed(removed: list[str], added: list[str], scripts: tuple[str, str]) -> dict[str, str]:
    """What a file of the one run is called in the other: the scripts themselves, and files moved to another folder."""
    by_base = [{base: path for path in paths if (base := os.path.basename(path))} for paths in (removed, added)]
    found = {by_base[0][base]: by_base[1][base] for base in by_base[0].keys() & by_base[1].keys()}
    if scripts[0] in removed and scripts[1] in added:
        found = {one: two for one, two in found.items() if two != scripts[1]} | {scripts[0]: scripts[1]}
    return found


def _file(a: Run, b: Run, one: SourceFile, two: SourceFile) -> FileChange:
    import difflib

    path = one.path if one.path == two.path else f"{one.path} → {two.path}"
    try:
        texts = [code.fetch(run, item).decode("utf-8") for run, item in ((a, one), (b, two))]
    except UnicodeDecodeError:
        return FileChange(path, "changed", note="it is not text")
    except ClewError as error:
        return FileChange(path, "changed", note=str(error))
    before, after = (text.splitlines() for text in texts)
    if max(len(before), len(after)) > LONGEST:
        return FileChange(path, "changed", note=f"it has over {LONGEST} lines")
    made = difflib.unified_diff(before, after, f"{a.id}/{one.path}", f"{b.id}/{two.path}", lineterm="")
    text = "\n".join(made)
    return FileChange(path, "changed", text, "" if text else "only line ends differ")


def _metrics(a: Run, b: Run, remarks: list[str]) -> tuple[tuple[MetricChange, ...], int]:
    try:
        read = [metrics.read(run) for run in (a, b)]
    except ClewError as error:
        remarks.append(f"metrics were not compared: {error}")
        return (), 0
    remarks += [f"{run.id}: {text}" for run, held in zip((a, b), read, strict=True) for text in held.remarks]
    before, after = ({key: item for key, item in held.series.items() if item.steps} for held in read)
    found, same = [], 0
    for key in dict.fromkeys((*before, *after)):
        one, two = before.get(key), after.get(key)
        values = [None if item is None else item.values[-1] for item in (one, two)]
        if one is not None and two is not None and _bits(one.values[-1]) == _bits(two.values[-1]):
            same += 1
            continue
        steps = [None if item is None else item.steps[-1] for item in (one, two)]
        found.append(MetricChange(*key, *values, *steps))  # type: ignore[arg-type]  # two floats, then two ints
    return tuple(found), same


def _bits(value: float) -> bytes:
    """NaN equals NaN here."""
    return b"nan" if value != value else struct.pack("<d", value)
