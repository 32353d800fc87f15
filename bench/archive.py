"""How fast a million recorded points load, as a ratio to reading the same file raw.

The same points are loaded from Parquet, from JSON lines (without pyarrow) and from the trace of a run that has not
ended, in turn, round after round. Times are medians of processor time: a busy machine does not distort them. Raw means
all bytes of the file into memory, nothing understood; for Parquet, reading it into an Arrow table is shown as well.
"""

import argparse
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from clew.archive import metrics, runs
from clew.archive.model import METRICS, PARQUET, Run
from clew.records import exact


def points(count: int) -> list[str]:
    """A run's loss at every step, and statistics of 40 parameters at every fortieth, with some that are not finite."""
    lines = []
    for index in range(count // 2):
        value = math.nan if index % 9973 == 0 else 2.3 / (1.0 + 0.01 * index)
        lines.append(exact.dumps(["loss", "", index, value]))
        lines.append(exact.dumps(["grad_norm", f"layer.{index % 40}.weight", index // 40, 1.0 / (1 + index)]))
    return lines


def raw(path: str) -> int:
    with open(path, "rb") as file:
        return len(file.read())


def load(run: Run, count: int) -> None:
    found = metrics.read_metrics(run)
    if sum(len(item.steps) for item in found.values()) != count:
        raise SystemExit("points were lost")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(f"{options.points:,} points in 41 series")
        print(f"{'file':<18}{'size':>9}{'raw':>11}{'loaded':>11}{'ratio':>8}")
        report(folder, options.points, options.rounds)


def report(folder: str, count: int, rounds: int) -> None:
    held = {
        name: runs.begin([name], folder, home=os.path.join(folder, ".clew")) for name in ("parquet", "lines", "trace")
    }
    with open(held["trace"].path("trace-1.jsonl"), "w", encoding="ascii") as file:
        file.write("\n".join(points(count)) + "\n")
    series = list(metrics.read_metrics(held["trace"]).values())
    metrics.keep(held["parquet"], series)
    arrow, metrics._arrow = metrics._arrow, lambda: None
    metrics.keep(held["lines"], series)
    metrics._arrow = arrow
    paths = {"parquet": PARQUET, "lines": METRICS, "trace": "trace-1.jsonl"}
    tried: dict[str, Callable[[], Any]] = {}
    for name, run in held.items():
        path = run.path(paths[name])
        if not os.path.exists(path):
            raise SystemExit("this bench needs pyarrow: pip install pyarrow")
        tried[f"raw {name}"] = lambda path=path: raw(path)  # type: ignore[misc]
        tried[name] = lambda run=run: load(run, count)  # type: ignore[misc]
    parquet = import_module("pyarrow.parquet")
    tried["arrow"] = lambda: parquet.read_table(held["parquet"].path(PARQUET))
    times: dict[str, list[float]] = {name: [] for name in tried}
    for _ in range(rounds):
        for name, work in tried.items():
            start = time.process_time()
            work()
            times[name].append(time.process_time() - start)
    median = {name: statistics.median(taken) for name, taken in times.items()}
    for name, run in held.items():
        size, plain = os.path.getsize(run.path(paths[name])), median[f"raw {name}"]
        row(paths[name], size, plain, median[name])
    row("as an Arrow table", os.path.getsize(held["parquet"].path(PARQUET)), median["raw parquet"], median["arrow"])


def row(name: str, size: int, plain: float, taken: float) -> None:
    print(f"{name:<18}{size / 1e6:>6.1f} MB{1000 * plain:>8.2f} ms{1000 * taken:>8.1f} ms{taken / plain:>7.0f}x")


if __name__ == "__main__":
    main()
