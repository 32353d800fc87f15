"""MLflow stores, read without MLflow: the folder `mlruns` and the SQLite database.

SQLite has no NaN: MLflow stores it as 0.0 with `is_nan = 1`, and an infinity as the largest double. A reader that does
not know this turns a diverged run into one with a perfect loss.
"""

import math
import os
import sqlite3
from collections import defaultdict
from contextlib import closing
from typing import Any

from clew.errors import ClewError
from clew.sweep.points import Collected, Found, Point

LARGEST = 1.7976931348623157e308
STATES = {1: "running", 2: "scheduled", 3: "finished", 4: "failed", 5: "killed"}


def is_store(path: str) -> bool:
    if os.path.isfile(path):
        return path.endswith((".db", ".sqlite", ".sqlite3"))
    return os.path.isdir(path) and bool(_run_folders(path))


def _run_folders(path: str) -> list[tuple[str, str]]:
    """Folders of runs with the experiment that each belongs to."""
    found = []
    for experiment in sorted(os.listdir(path)):
        at = os.path.join(path, experiment)
        if not os.path.isdir(at) or experiment.startswith("."):
            continue
        for name in sorted(os.listdir(at)):
            folder = os.path.join(at, name)
            if os.path.isfile(os.path.join(folder, "meta.yaml")) and os.path.isdir(os.path.join(folder, "metrics")):
                found.append((experiment, folder))
    return found


def read_store(path: str, since: float = 0.0) -> Collected:
    return _database(path, since) if os.path.isfile(path) else _folders(path, since)


def _folders(path: str, since: float) -> Collected:
    runs, remarks = [], []
    for experiment, folder in _run_folders(path):
        try:
            updated = _newest(folder)
            if updated >= since:
                runs.append(_folder(path, experiment, folder, updated))
        except (OSError, ValueError) as error:
            remarks.append(f"{folder} could not be read: {error}.")
    return Collected(tuple(runs), tuple(remarks))


def _newest(folder: str) -> float:
    return max(os.stat(os.path.join(at, name)).st_mtime for at, _, names in os.walk(folder) for name in names)


def _yaml(path: str) -> dict[str, str]:
    """The flat `name: value` lines that MLflow writes."""
    found = {}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                name, sign, value = line.rstrip("\n").partition(":")
                if sign and not name.startswith((" ", "-", "#")):
                    found[name.strip()] = value.strip().strip("'\"")
    except OSError:
        return {}
    return found


def _folder(path: str, experiment: str, folder: str, updated: float) -> Found:
    meta = _yaml(os.path.join(folder, "meta.yaml"))
    name = _yaml(os.path.join(path, experiment, "meta.yaml")).get("name", experiment)
    config = {item: _text(os.path.join(folder, "params", item)) for item in _below(os.path.join(folder, "params"))}
    points = []
    for item in _below(os.path.join(folder, "metrics")):
        with open(os.path.join(folder, "metrics", item), encoding="utf-8") as file:
            for line in file:
                words = line.split()
                # A line that is cut off has no step yet; a run that is being written may end in one.
                if len(words) >= 3 and line.endswith("\n"):
                    points.append(Point(item, int(words[2]), float(words[1])))
    state = meta.get("status", "")
    word = STATES.get(int(state), state) if state.isdigit() else state.lower()
    run_id = meta.get("run_id") or os.path.basename(folder)
    return Found(run_id, folder, name, word, _date(meta.get("start_time")), updated, config, tuple(points))


def _below(folder: str) -> list[str]:
    """Names of files, also in folders: MLflow writes the metric `val/acc` as a file in a folder."""
    found = []
    for at, _, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(at, name), folder) for name in names if not name.startswith(".")]
    return sorted(found)


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _date(milliseconds: Any) -> str:
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(int(milliseconds) / 1000, UTC).isoformat()
    except (TypeError, ValueError, OverflowError):
        return ""


def exact(value: float | None, is_nan: object) -> float:
    """What was logged, from what the database holds."""
    if is_nan or value is None:
        return math.nan
    if abs(value) >= LARGEST:
        return math.copysign(math.inf, value)
    return float(value)


def _database(path: str, since: float) -> Collected:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as held:
            names = dict(held.execute("select experiment_id, name from experiments"))
            config: dict[str, dict[str, str]] = defaultdict(dict)
            for run, key, value in held.execute("select run_uuid, key, value from params"):
                config[run][key] = value
            points: dict[str, list[Point]] = defaultdict(list)
            query = "select run_uuid, key, step, value, is_nan from metrics order by run_uuid, key, step, timestamp"
            for run, key, step, value, is_nan in held.execute(query):
                points[run].append(Point(key, int(step), exact(value, is_nan)))
            rows = held.execute("select run_uuid, experiment_id, status, start_time, end_time from runs").fetchall()
    except sqlite3.Error as error:
        raise ClewError(f"{path} is no MLflow database: {error}.") from error
    runs = []
    for run, experiment, status, start, end in rows:
        updated = (end or start or 0) / 1000.0
        state = str(status or "").lower()
        # A run that goes on has no end time: it is always looked at again.
        if updated >= since or state == "running":
            group = str(names.get(experiment, experiment))
            runs.append(Found(run, path, group, state, _date(start), updated, config[run], tuple(points[run])))
    return Collected(tuple(runs), ())
