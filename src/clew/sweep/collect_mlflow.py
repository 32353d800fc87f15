"""MLflow stores, read without MLflow: the folder `mlruns` and the SQLite database.

SQLite has no NaN: MLflow stores it as 0.0 with `is_nan = 1`, and an infinity as the largest double. A reader that does
not know this turns a diverged run into one with a perfect loss.
"""

import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from clew.errors import ClewError
from clew.reading import opened, text
from clew.sweep.points import Found, Look, Points

LARGEST = 1.7976931348623157e308
STATES = {1: "running", 2: "scheduled", 3: "finished", 4: "failed", 5: "killed"}
OWN = "mlflow."
"""Tags that MLflow sets itself begin with this."""


def is_store(path: str) -> bool:
    if os.path.isfile(path):
        return path.endswith((".db", ".sqlite", ".sqlite3")) or _is_sqlite(path)
    return os.path.isdir(path) and next(_run_folders(path), None) is not None


def _is_sqlite(path: str) -> bool:
    try:
        with opened(path) as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def own_tags(tags: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tags.items() if not name.startswith(OWN)}


def date(milliseconds: Any) -> str:
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(int(milliseconds) / 1000, UTC).isoformat()
    except (TypeError, ValueError, OverflowError, OSError):
        return ""


def exact(value: float | None, is_nan: object) -> float:
    """What was logged, from what the database holds."""
    if is_nan or value is None:
        return math.nan
    if abs(value) >= LARGEST:
        return math.copysign(math.inf, value)
    return float(value)


def read_store(path: str, look: Look, remarks: list[str]) -> Iterator[Found]:
    return _database(path, look) if os.path.isfile(path) else _folders(path, look, remarks)


def _run_folders(path: str) -> Iterator[tuple[str, str]]:
    """Folders of runs with the experiment that each belongs to."""
    for experiment in sorted(os.listdir(path)):
        at = os.path.join(path, experiment)
        if not os.path.isdir(at) or experiment.startswith("."):
            continue
        for name in sorted(os.listdir(at)):
            folder = os.path.join(at, name)
            if os.path.isfile(os.path.join(folder, "meta.yaml")) and os.path.isdir(os.path.join(folder, "metrics")):
                yield experiment, folder


def _folders(path: str, look: Look, remarks: list[str]) -> Iterator[Found]:
    for experiment, folder in _run_folders(path):
        try:
            updated = _newest(folder)
            if look.settled(updated, folder):
                continue
            found = _folder(path, experiment, folder, updated)
        except (OSError, ValueError, OverflowError) as error:
            remarks.append(f"{folder} could not be read: {error}.")
            continue
        if found is not None:
            yield found


def _newest(folder: str) -> float:
    times = (os.stat(os.path.join(at, name)).st_mtime for at, _, names in os.walk(folder) for name in names)
    return max(times, default=0.0)


def _yaml(path: str) -> dict[str, str]:
    """The flat `name: value` lines that MLflow writes."""
    found = {}
    try:
        for line in text(path).splitlines():
            name, sign, value = line.partition(":")
            if sign and not name.startswith((" ", "-", "#")):
                found[name.strip()] = value.strip().strip("'\"")
    except OSError:
        return {}
    return found


def _folder(path: str, experiment: str, folder: str, updated: float) -> Found | None:
    meta = _yaml(os.path.join(folder, "meta.yaml"))
    if meta.get("lifecycle_stage") == "deleted":
        return None
    name = _yaml(os.path.join(path, experiment, "meta.yaml")).get("name", experiment)
    points = Points()
    for item in _below(os.path.join(folder, "metrics")):
        _metric(os.path.join(folder, "metrics", item), item, points)
    state = meta.get("status", "")
    word = STATES.get(int(state), state) if state.isdigit() else state.lower()
    return Found(
        meta.get("run_id") or os.path.basename(folder),
        folder,
        name,
        word,
        date(meta.get("start_time")),
        updated,
        _texts(os.path.join(folder, "params")),
        points,
        tags=own_tags(_texts(os.path.join(folder, "tags"))),
        log=_output(os.path.join(folder, "artifacts")),
    )


def _metric(path: str, name: str, points: Points) -> None:
    readings = []
    # A line that is cut off has no step yet; a run that is being written may end in one.
    for number, line in enumerate(text(path).split("\n")[:-1]):
        words = line.split()
        if not words:
            continue
        try:
            step = int(words[2]) if len(words) > 2 else 0
            readings.append((step, int(words[0]), float(words[1])))
        except (ValueError, IndexError):
            raise ValueError(f"line {number + 1} of its metric {name} is damaged") from None
    for step, _, value in sorted(readings, key=lambda one: one[:2]):
        points.add(name, step, value)


def _texts(folder: str) -> dict[str, str]:
    found = {}
    for item in _below(folder):
        found[item] = text(os.path.join(folder, item))
    return found


def _below(folder: str) -> list[str]:
    """Names of files, also in folders: MLflow writes the metric `val/acc` as a file in a folder."""
    found = []
    for at, _, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(at, name), folder) for name in names if not name.startswith(".")]
    return sorted(found)


def _output(artifacts: str) -> str:
    path = os.path.join(artifacts.removeprefix("file://"), "output.log")
    return path if os.path.isfile(path) else ""


def _database(path: str, look: Look) -> Iterator[Found]:
    try:
        # Read only, and without waiting long for a writer.
        with closing(sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, timeout=10.0)) as held:
            names = dict(held.execute("select experiment_id, name from experiments"))
            there = {row[1] for row in held.execute("pragma table_info(runs)")}
            alive = "where lifecycle_stage = 'active'" if "lifecycle_stage" in there else ""
            place = "artifact_uri" if "artifact_uri" in there else "''"
            tagged = {row[1] for row in held.execute("pragma table_info(tags)")}
            query = f"select run_uuid, experiment_id, status, start_time, end_time, {place} from runs {alive}"
            for run, experiment, status, start, end, artifacts in held.execute(query).fetchall():
                updated, state = (end or start or 0) / 1000.0, str(status or "").lower()
                if look.settled(updated, run):
                    continue
                points = Points()
                query = "select key, step, value, is_nan from metrics where run_uuid = ? order by key, step, timestamp"
                for key, step, value, is_nan in held.execute(query, (run,)):
                    points.add(str(key), int(step), exact(value, is_nan))
                config = dict(held.execute("select key, value from params where run_uuid = ?", (run,)))
                tags: dict[str, Any] = {}
                if tagged:
                    tags = own_tags(dict(held.execute("select key, value from tags where run_uuid = ?", (run,))))
                group, log = str(names.get(experiment, experiment)), _output(str(artifacts or ""))
                yield Found(run, path, group, state, date(start), updated, config, points, tags=tags, log=log)
    except (sqlite3.Error, TypeError, ValueError, OverflowError) as error:
        raise ClewError(f"{path} could not be read as an MLflow database: {error}.") from error


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(os.path.abspath(path))
