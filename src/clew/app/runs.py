"""The archive: listing runs, looking into one, comparing two, running one again, throwing old ones away."""

import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from clew.archive import code, compare, files, metrics, output, runs
from clew.archive.again import Plan, rerun_plan
from clew.archive.gc import Cleared, gc
from clew.archive.model import PAGE, REPORT, STATES, Record, SourceFile, epoch
from clew.errors import ClewError, did_you_mean
from clew.records.clue import Clue
from clew.records.masked import masked, masked_words
from clew.records.trace import Series
from clew.report.run_page import DataFile, RunFacts

VERDICTS = ("fault", "suspect", "undecided", "healthy")
SORTS = ("started", "seconds", "verdict")
UNITS = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


class Chosen(NamedTuple):
    """The runs that were asked for, how many more match, and how many there are in all."""

    records: tuple[Record, ...]
    more: int
    total: int
    remarks: tuple[str, ...]


class Inside(NamedTuple):
    """One run, opened. `report` is what `report.json` says, None when there is none."""

    record: Record
    seconds: float
    code: tuple[SourceFile, ...]
    metrics: metrics.Metrics
    report: dict[str, Any] | None
    tail: tuple[str, ...]
    remarks: tuple[str, ...]


def listing(sort: str = "started", verdict: str = "", script: str = "", most: int = 0) -> Chosen:
    """The runs, newest (or longest, or worst) first. `most` 0 means all of them."""
    if sort not in SORTS:
        raise ClewError(f"runs are sorted by {', '.join(SORTS)}, not by {sort!r}.")
    if verdict and verdict not in (*VERDICTS, *STATES):
        hint = did_you_mean(verdict, [*VERDICTS, *STATES]) or f"; there are {', '.join((*VERDICTS, *STATES))}."
        raise ClewError(f"there is no verdict {verdict!r}{hint}")
    if most < 0:
        raise ClewError(f"-n takes the number of runs to show, not {most}.")
    held = runs.all_runs()
    found = [record for record in reversed(held.records) if verdict in ("", record.verdict, record.state)]
    found = [record for record in found if script in (record.script or " ".join(record.command))]
    if sort == "seconds":
        found.sort(key=seconds, reverse=True)
    elif sort == "verdict":
        rank = {name: index for index, name in enumerate(VERDICTS)}
        found.sort(key=lambda record: rank.get(record.verdict, len(rank)))
    shown = tuple(found[:most] if most else found)
    return Chosen(shown, len(found) - len(shown), len(held.records), held.remarks)


def seconds(record: Record) -> float:
    """How long a run took, or has taken so far, or was seen to live."""
    if record.end is not None:
        return record.end.seconds
    started = epoch(record.started)
    until = time.time() if record.state == "running" else runs.last_change(record.run)
    return max(0.0, until - started) if started else 0.0


def look(name: str, tail: int = 8) -> Inside:
    """Open a run. A part that cannot be read is said and costs only itself."""
    run = runs.find(name)
    record = runs.load(run)
    remarks = list(record.remarks)
    listed: tuple[SourceFile, ...] = ()
    numbers = metrics.Metrics({}, (), "", ())
    report: dict[str, Any] | None = None
    last: list[str] = []
    try:
        listed = code.read(run)
    except ClewError as error:
        remarks.append(str(error))
    try:
        numbers = metrics.read(run)
        remarks += numbers.remarks
    except ClewError as error:
        remarks.append(str(error))
    try:
        report = files.read_table(run.path(REPORT)) if os.path.exists(run.path(REPORT)) else None
    except ClewError as error:
        remarks.append(str(error))
    try:
        last, said = output.tail(run, tail)
        remarks += said
    except ClewError as error:
        remarks.append(str(error))
    return Inside(record, seconds(record), listed, numbers, report, tuple(last), tuple(remarks))


def checked(inside: Inside) -> tuple[tuple[Clue, ...], RunFacts]:
    """The clues that the report of a run was made from, and the data files that it read."""
    report = inside.report or {}
    rows = report.get("clues")
    if not isinstance(rows, list):
        raise ClewError(f"the run {inside.record.run.id} has no report, so its checks are not known.")
    table = report.get("run")
    held = table.get("files", []) if isinstance(table, dict) else []
    try:
        read = tuple(DataFile(**item) for item in held)
        clues = tuple(Clue.from_json(row) for row in rows)
    except (KeyError, TypeError, OverflowError, ValueError) as error:
        raise ClewError(f"the report of {inside.record.run.id} is damaged: {error}.") from error
    return clues, RunFacts(inside.record.script, 0, inside.seconds, 0, 1, inside.record.run.folder, files=read)


def printed(name: str, damage: files.Damage) -> Iterator[output.Said]:
    """What a run printed, in order."""
    run = runs.find(name)
    runs.load(run)
    return output.read(run, damage)


def series(name: str, metric: str) -> list[Series]:
    """The series of one quantity, the run's own first. `metric` may be NAME or NAME/PART."""
    held = metrics.read_metrics(runs.find(name))
    found = [item for (title, of), item in held.items() if metric in (title, f"{title}/{of}")]
    if not found:
        names = list(dict.fromkeys(title for title, _ in held))
        hint = did_you_mean(metric, names) or (f"; it has: {', '.join(names[:12])}." if names else "; it has none.")
        raise ClewError(f"this run has no metric {metric!r}{hint}")
    return sorted(found, key=lambda item: item.of)


def source(name: str, path: str) -> tuple[SourceFile, str]:
    """One source file of a run, as it was."""
    run = runs.find(name)
    listed = code.read(run)
    found = [item for item in listed if path in (item.path, os.path.basename(item.path))]
    exact = [item for item in found if item.path == path] or found
    if len(exact) > 1:
        raise ClewError(f"{path!r} may mean {' or '.join(item.path for item in exact[:4])}.")
    if not exact:
        names = [item.path for item in listed]
        raise ClewError(f"this run used no file {path!r}{did_you_mean(path, names) or '; --code lists those it used.'}")
    return exact[0], code.fetch(run, exact[0]).decode("utf-8", "replace")


def page(name: str) -> str:
    """The HTML report of a run."""
    run = runs.find(name)
    runs.ended(run)
    if not os.path.exists(run.path(PAGE)):
        raise ClewError(f"the run {run.id} has no HTML report: {run.path(PAGE)} is not there.")
    return files.read_bytes(run.path(PAGE)).decode("utf-8", "replace")


def page_link(name: str) -> str:
    """Where the HTML report of a run is, as a terminal and a browser open it."""
    from urllib.parse import quote

    page(name)
    return f"file://{quote(os.path.abspath(runs.find(name).path(PAGE)))}"


def difference(a: str, b: str) -> compare.Difference:
    return compare.diff(runs.find(a), runs.find(b))


def again(name: str) -> Plan:
    """Set a run up to run again."""
    return rerun_plan(runs.find(name))


def clear(keep: int | None, older_than: str, dry_run: bool) -> Cleared:
    return gc(keep, _age(older_than) if older_than else None, dry_run)


def _age(text: str) -> float:
    """`30d`, `12h`, `2w`, `90m` in seconds."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not number.isdecimal():
        raise ClewError(f"an age is a number with m, h, d or w, as in 30d, not {text!r}.")
    return int(number) * UNITS[unit]


# --- as JSON


def record_json(record: Record) -> dict[str, Any]:
    return {
        "id": record.run.id,
        "folder": record.run.folder,
        "script": record.script,
        "argv": masked_words(record.command),
        "cwd": record.cwd,
        "started": record.started,
        "state": record.state,
        "verdict": record.verdict,
        "steps": record.end.steps if record.end else None,
        "seconds": seconds(record),
        "exit": record.end.exit if record.end else None,
        "signal": record.end.signal if record.end else "",
        "python": record.python,
        "platform": record.platform,
        "cpus": record.cpus,
        "gpus": list(record.gpus),
        "packages": dict(record.packages),
        "environment": {name: masked(name, value) for name, value in record.environment},
        "git": record.git._asdict(),
        "labels": {name: masked(name, value) for name, value in record.labels},
        "rerun_of": record.rerun_of,
    }


def look_json(inside: Inside) -> dict[str, Any]:
    held = inside.metrics.series.values()
    return {
        "schema": files.SCHEMA,
        "command": "show",
        "run": record_json(inside.record),
        "metrics": [
            {
                "name": item.name,
                "of": item.of,
                "points": len(item.steps),
                "step": item.steps[-1],
                "last": item.values[-1],
            }
            for item in held
            if item.steps
        ],
        "code": [item._asdict() for item in inside.code],
        "report": inside.report,
        "remarks": list(inside.remarks),
    }


def difference_json(found: compare.Difference) -> dict[str, Any]:
    table: dict[str, Any] = {"schema": files.SCHEMA, "command": "runs diff", "same_input": found.same_input}
    table |= {"a": record_json(found.a), "b": record_json(found.b)}
    for name in ("command", "environment", "packages", "machine", "git", "labels", "outcome", "code", "metrics"):
        table[f"{name}_changed" if name == "command" else name] = [item._asdict() for item in getattr(found, name)]
    table |= {"code_same": found.code_same, "metrics_same": found.metrics_same, "remarks": list(found.remarks)}
    return table
